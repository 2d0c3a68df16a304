"""Indexers: small attention heads that score all keys and select those that each query attends to.

An indexer has its own cache with one small key per token, which all its heads share. Its scores and its selection are
operators of their own; the attention that follows reads the selected keys only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import BlockContext, fused_or_eager, norm_flops, norm_parameters
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.selected_keys import entries, entry_pairs, new_entries, pooled_pairs, query_block_pairs
from roofmodel.counting.tensors import Sizes
from roofmodel.counting.workload import Step, attended, pairs
from roofmodel.models.layers import BlockSelection, Indexer, LatentAttention, Norm
from roofmodel.numbers.algebra import Number, minimum, quotient

KEY_NORM = Norm("layernorm")  # of DeepSeek-V3.2's indexer
SCORES = "index_q[b t ki hi] {cache}index[b s hi] -> e[b ki t:s]"


def select_tokens(att: LatentAttention, indexer: Indexer, block: BlockContext, cache: str) -> Iterator[Operator]:
    """Each query keeps the `index_topk` tokens with the highest scores (DeepSeek-V3.2, arXiv 2512.02556).

    Score of a token: sum over the heads of weight x relu(q . k). With pools of tokens (GLM-5.3), the indexer scores a
    key for each complete pool, a mean of its tokens' keys with learned weights, and selects whole pools.
    """
    step, x, pool = block.step, block.input, att.index_pool
    most = quotient(att.index_topk, pool) if pool else 0
    kept = (
        _kept_pairs(step, att.index_topk)
        if pool is None
        else pooled_pairs(step._replace(attention="flash"), pool, most)
    )
    own = {"zq": att.query_latent or 0, "t:si": kept}
    build = _build(block, indexer.heads, indexer.head_dim, att.rotary_dim, own)
    source = "query_latent[b t zq]"
    if not att.query_latent:
        source = "index_input[b t d]"
        gain, bias = norm_parameters("index_input", KEY_NORM, "d")
        yield build.operator(
            "attention.index_input_norm", "attention", f"{x}{gain}{bias} -> {source}", kind="norm",
            flops=norm_flops(KEY_NORM), function=KEY_NORM.kind,
        )  # fmt: skip
    axis = "zq" if att.query_latent else "d"
    yield build.operator("attention.index_q", "attention", f"{source} W_index_q[{axis} ki hi] -> index_q[b t ki hi]")
    if att.query_scale:
        yield query_scale(build, "attention.index_scale", "index_q[b t ki hi]", "ki")
    yield _keys(build, x)
    key = "index_k[b t hi]"
    is_final = not (att.rotary_dim or pool)
    yield _norm(build, "attention.index_norm", KEY_NORM, "index", key, f"{cache}index[b t hi]" if is_final else key)
    if att.rotary_dim:
        yield _rotary(build, cache)
    if pool:
        yield from _pool(build, x, step, pool, cache)
    yield build.operator("attention.index_weights", "attention", f"{x} W_index_weights[d ki] -> index_weight[b t ki]")

    def score(step: Step) -> tuple[Operator, ...]:
        scored: Sizes = {"t:s": pairs(step, None, block.causal)}
        if pool:
            scored = {"s": entries(step, pool), "t:s": entry_pairs(step, pool)}
        inner = build._replace(sizes={**build.sizes, **scored})
        return (
            inner.operator("attention.index_scores", "attention", SCORES.format(cache=cache), kind="bmm"),
            inner.operator(
                "attention.index_relu", "attention", "e[b ki t:s] -> e[b ki t:s]", kind="elementwise",
                flops=vector_flops.ACTIVATION["relu"],
            ),
            inner.operator(
                "attention.index_sum", "attention", "e[b ki t:s] index_weight[b t ki] -> index_score[b t:s]",
                kind="bmm",
            ),
        )  # fmt: skip

    yield from fused_or_eager("attention.index_scores", "attention", score, step, kind="attention")
    if pool:
        build = build._replace(sizes={**build.sizes, "t:s": entry_pairs(step._replace(attention="flash"), pool)})
    yield _choose(build, "index_score[b t:s] -> selected[b t:si]")


def _pool(build: Builder, x: str, step: Step, pool: Number, cache: str) -> Iterator[Operator]:
    """The keys of the pools that the new tokens complete: means of the tokens' keys, with softmax weights."""
    build = build._replace(sizes={**build.sizes, "te": new_entries(step, pool), "m'": pool})
    yield build.operator("attention.index_gate", "attention", f"{x} H_index_gate[d hi] -> index_gate[b t hi]")
    line = f"index_k[b t hi] index_gate[b t hi] B_index_positions[m' hi] => {cache}index[b te hi]"
    # the bias of the position 1, softmax over the tokens of a pool, times the key 1, sum 1
    flops = 3 + vector_flops.SOFTMAX
    yield build.operator("attention.index_pool", "attention", line, kind="elementwise", flops=flops)


def select_blocks(selection: BlockSelection, rotary_dim: Number, block: BlockContext, cache: str) -> Iterator[Operator]:
    """Each query keeps the blocks of keys with the highest scores, for each head (MiniMax-M3's code in transformers).

    Score of a block: the largest q . k of its keys. `rotary_dim` is that of the attention's heads.
    """
    step, x, norm = block.step, block.input, selection.norm
    own = {
        "t:sb": query_block_pairs(step, selection.block_size),
        "t:kb": query_block_pairs(step, selection.block_size, selection.blocks),
    }
    build = _build(block, selection.heads, selection.head_dim, minimum(rotary_dim, selection.head_dim), own)
    yield build.operator("attention.index_q", "attention", f"{x} W_index_q[d ki hi] -> index_q[b t ki hi]")
    yield _keys(build, x)
    yield _norm(build, "attention.index_q_norm", norm, "index_q", "index_q[b t ki hi]")
    yield _norm(build, "attention.index_norm", norm, "index", "index_k[b t hi]")
    yield _rotary(build, cache)

    def score(step: Step) -> tuple[Operator, ...]:
        inner = build._replace(sizes={**build.sizes, "t:s": pairs(step, None, block.causal)})
        return (
            inner.operator("attention.index_scores", "attention", SCORES.format(cache=cache), kind="bmm"),
            inner.operator(
                "attention.index_max", "attention", "e[b ki t:s] -> block_score[b ki t:sb]", kind="elementwise",
                flops=vector_flops.MAX,
            ),
        )  # fmt: skip

    yield from fused_or_eager("attention.index_scores", "attention", score, step, kind="attention")
    yield _choose(build, "block_score[b ki t:sb] -> selected[b ki t:kb]")


def select_pools(selection: BlockSelection, rotary_dim: Number, block: BlockContext, cache: str) -> Iterator[Operator]:
    """Each query keeps the complete blocks with the highest scores, for all heads together (Qwen4-Exp).

    The key of a block is the norm of its tokens' mean; its score is the sum over the heads of relu(q . k). Eager
    attention, too, scores only the blocks that are complete for a query.
    """
    step, x, norm, pool = block.step, block.input, selection.norm, selection.block_size
    exact = step._replace(attention="flash")
    own = {
        "te": new_entries(step, pool), "m'": pool, "s": entries(exact, pool), "t:s": entry_pairs(exact, pool),
        "t:kb": entry_pairs(exact, pool, selection.blocks),
    }  # fmt: skip
    build = _build(block, selection.heads, selection.head_dim, minimum(rotary_dim, selection.head_dim), own)
    yield build.operator("attention.index_q", "attention", f"{x} W_index_q[d ki hi] -> index_q[b t ki hi]")
    yield _keys(build, x)
    yield _norm(build, "attention.index_q_norm", norm, "index_q", "index_q[b t ki hi]")
    line = "index_k[b t hi] => index_pool[b te hi]"
    yield build.operator("attention.index_pool", "attention", line, kind="elementwise", flops=1)
    yield _norm(build, "attention.index_norm", norm, "index", "index_pool[b te hi]")
    line = f"index_q[b t ki hi] index_pool[b te hi] cos[t r] sin[t r] -> index_q[b t ki hi] {cache}index[b te hi]"
    sizes, rotary = build.sizes, build.operator("attention.index_rotary", "attention", line, kind="elementwise")
    rotated = sizes["b"] * (sizes["t"] * sizes["ki"] + sizes["te"]) * sizes["r"]
    yield replace(rotary, vector_flops=vector_flops.ROTARY * rotated)

    def score(step: Step) -> tuple[Operator, ...]:
        return (
            build.operator("attention.index_scores", "attention", SCORES.format(cache=cache), kind="bmm"),
            build.operator(
                "attention.index_sum", "attention", "e[b ki t:s] => index_score[b t:s]", kind="elementwise",
                flops=vector_flops.ACTIVATION["relu"] + vector_flops.ADD,
            ),
        )  # fmt: skip

    yield from fused_or_eager("attention.index_scores", "attention", score, step, kind="attention")
    yield _choose(build, "index_score[b t:s] -> selected[b t:kb]")


def _build(block: BlockContext, heads: Number, head_dim: Number, rotary_dim: Number, own: Sizes) -> Builder:
    """A builder with the sizes of the indexer's heads, of all keys and pairs, and its `own` sizes."""
    step = block.step
    all_keys = {"s": attended(step, None), "t:s": pairs(step, None, block.causal)}
    return block.build(r=rotary_dim, ki=heads, hi=head_dim, **{**all_keys, **own})


def _keys(build: Builder, source: str) -> Operator:
    return build.operator("attention.index_k", "attention", f"{source} W_index_k[d hi] -> index_k[b t hi]")


def _norm(build: Builder, name: str, norm: Norm, parameters: str, tensor: str, target: str = "") -> Operator:
    """The norm of queries or keys; all heads share its parameters. `target`: another tensor for its output."""
    gain, bias = norm_parameters(parameters, norm, "hi")
    line = f"{tensor}{gain}{bias} -> {target or tensor}"
    return build.operator(name, "attention", line, kind="norm", flops=norm_flops(norm), function=norm.kind)


def _rotary(build: Builder, cache: str) -> Operator:
    """Rotary embedding of queries and new keys, which are then cached."""
    line = f"index_q[b t ki hi] index_k[b t hi] cos[t r] sin[t r] -> index_q[b t ki hi] {cache}index[b t hi]"
    operator = build.operator("attention.index_rotary", "attention", line, kind="elementwise")
    sizes = build.sizes
    rotated = sizes["b"] * sizes["t"] * (sizes["ki"] + 1) * sizes["r"]
    return replace(operator, vector_flops=vector_flops.ROTARY * rotated)


def query_scale(build: Builder, name: str, queries: str, heads: str) -> Operator:
    """Queries times a scale per head and position: a learned number times the logarithm, plus another one."""
    line = f"{queries} G_{name.rpartition('.')[2]}[{heads}] B_{name.rpartition('.')[2]}[{heads}] -> {queries}"
    return build.operator(name, "attention", line, kind="elementwise", flops=1)


def _choose(build: Builder, line: str) -> Operator:
    return build.operator("attention.index_choose", "attention", line, kind="routing", flops=vector_flops.CHOOSE)


def _kept_pairs(step: Step, keeps: Number | None) -> Number:
    """Query-key pairs that the indexer keeps: per query, the `keeps` best tokens, or all if there are fewer."""
    if step.cached and step.passes > 1:
        return attended(step, keeps)
    return step.mean_of(lambda tokens: tokens * minimum(step.context + tokens, keeps))
