"""Attention to a window of tokens and to compressed entries (DeepSeek-V4: CSA and HCA, with one key-value head).

A compression projects each token to content and weights; an entry is the sum of its tokens' contents times the softmax
of their weights, per element. With an indexer (CSA), entries overlap, the indexer has smaller entries of its own, and
each query attends to those that it selects. Source: the published code (`inference/model.py` of DeepSeek-V4) and
transformers (`modeling_deepseek_v4.py`), which masks the other entries instead.

Keys are the values, too: one tensor of window and entries is read once. A pass completes an entry every `ratio` tokens;
between two entries, a decode only stores its token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import BlockContext, fused_or_eager, norm_flops, norm_parameters, replicated_input
from roofmodel.counting.layers.latent_attention import rotary
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.selected_keys import entries, entry_pairs, new_entries
from roofmodel.counting.tensors import Sizes
from roofmodel.counting.workload import Step, attended, pairs
from roofmodel.models.layers import CompressedAttention, Norm
from roofmodel.numbers.algebra import Number, minimum, quotient

GROUP = "attention"
_UNWEIGHTED = Norm("rmsnorm", gain=False, bias=False)


def compressed_attention(att: CompressedAttention, block: BlockContext) -> Iterator[Operator]:
    """Queries through a latent, one key per token, compression, attention, output projection in two halves."""
    step, x = block.step, block.input
    overlap = 1 + att.overlaps
    build = block.build(
        k=att.heads, h=att.head_dim, r=att.rotary_dim, zq=att.query_latent, og=att.out_groups, ro=att.out_rank,
        ho=quotient(att.heads * att.head_dim, att.out_groups), ce=overlap * att.head_dim,
        **{"m'": att.ratio, **_keys_and_pairs(att, step)},
    )  # fmt: skip
    cache = "cache." if step.cached else ""
    yield build.operator("attention.q_down", GROUP, f"{x} W_q_down[d zq] -> query_latent[b t zq]")
    yield _norm(build, "q_norm", att.norm, "query_latent[b t zq]", "query_latent[b t zq]", "query_latent")
    yield from replicated_input(build, step, "attention.asked", "query_latent[b t zq]")
    yield build.operator("attention.q_up", GROUP, "query_latent[b t zq] W_q_up[zq k h] -> q[b t k h]")
    yield _norm(build, "q_heads_norm", _UNWEIGHTED, "q[b t k h]", "q[b t k h]", "q")
    yield build.operator("attention.kv", GROUP, f"{x} W_kv[d h] -> key[b t h]")
    yield _norm(build, "kv_norm", att.norm, "key[b t h]", "key[b t h]", "key")
    line = f"key[b t h] -> q[b t k h] {cache}kv[b t h]"
    yield _rotated(rotary(build, "q[b t k h]", line), att.rotary_dim, att.head_dim)
    yield from replicated_input(build, step, "attention.latent", f"{cache}kv[b t h]")
    if att.ratio:
        yield from _compression(att, build, block, "compress", "h", f"{cache}kv")
    if att.indexer:
        yield from _selection(att, build, block, cache)

    def core(step: Step) -> tuple[Operator, ...]:
        inner = build._replace(sizes={**build.sizes, **_keys_and_pairs(att, step)})
        mask = vector_flops.MASK if step.attention == "eager" else 0
        return (
            inner.operator("attention.scores", GROUP, f"q[b t k h] {cache}kv[b s h] -> a[b k t:s]", kind="bmm"),
            inner.operator(
                "attention.softmax", GROUP, "a[b k t:s] B_sinks[k] -> p[b k t:s]", kind="softmax",
                flops=vector_flops.SCALE + mask + vector_flops.SOFTMAX, keeps="outputs",
            ),
            inner.operator("attention.mix", GROUP, f"p[b k t:s] {cache}kv[b s h] -> o[b t k h]", kind="bmm"),
        )  # fmt: skip

    yield from fused_or_eager("attention.flash", GROUP, core, step, kind="attention")
    line = "o[b t k h] cos[t r] sin[t r] -> o[b t k h]"
    back = build.operator("attention.output_rotary", GROUP, line, kind="elementwise", keeps="nothing")
    yield _rotated(back, att.rotary_dim, att.head_dim)
    line = "o[b t og ho] W_out_down[og ho ro] -> low[b t og ro]"
    yield build.operator("attention.output_down", GROUP, line, kind="bmm")
    yield build.operator("attention.output", GROUP, f"low[b t og ro] W_out[og ro d] -> {block.output}")


def _keys_and_pairs(att: CompressedAttention, step: Step) -> Sizes:
    """Sizes of keys and pairs: the window, and the entries, of which a fused kernel computes those selected."""
    keys, computed = attended(step, att.window), pairs(step, att.window, causal=True)
    if att.ratio:
        complete = entries(step, att.ratio)
        # A decode reads only the entries that its query chose. Queries of a prefill together choose nearly all.
        chosen = att.index_topk and step.phase == "decode" and step.attention == "flash"
        keys = keys + (minimum(complete, att.index_topk) if chosen else complete)
        computed = computed + entry_pairs(step, att.ratio, att.index_topk)
    # the time of a prefill depends on the keys before a window only if nothing else is attended to
    return {
        "s": keys,
        "t:s": computed,
        **({"sparse": (att.index_topk or 0) + att.window} if att.ratio else {"windowed": 1}),
    }


def _norm(build: Builder, name: str, norm: Norm, source: str, target: str, gains: str) -> Operator:
    gain, bias = norm_parameters(gains, norm, source.rpartition(" ")[2].rstrip("]"))
    return build.operator(
        f"attention.{name}", GROUP, f"{source}{gain}{bias} -> {target}", kind="norm", flops=norm_flops(norm),
        function=norm.kind,
    )  # fmt: skip


def _rotated(operator: Operator, rotary_dim: Number, head_dim: Number) -> Operator:
    """The operator with the FLOPs of rotary embedding on `rotary_dim` of the `head_dim` elements of each head."""
    heads = sum(tensor.elements(operator.sizes) for tensor in operator.writes)
    return replace(operator, vector_flops=vector_flops.ROTARY * quotient(heads * rotary_dim, head_dim))


def _compression(
    att: CompressedAttention, build: Builder, block: BlockContext, name: str, width: str, target: str
) -> Iterator[Operator]:
    """Content and weights of the new tokens, and the entries that they complete; `width` is the axis of an entry."""
    step, x = block.step, block.input
    build = build._replace(sizes={**build.sizes, "te": new_entries(step, att.ratio)})
    for output in ("content", "gate"):
        line = f"{x} H_{name}_{output}[d ce] -> {name}_{output}[b t ce]"
        projection = build.operator(f"attention.{name}_{output}", GROUP, line)
        # without a complete entry, no result depends on the tokens
        flops = minimum(build.sizes["te"], 1) * projection.matmul_flops
        yield replace(projection, gradient_flops=dict.fromkeys((x.partition("[")[0], f"H_{name}_{output}"), flops))
    entry = f"{name}_entries[b te {width}]"
    line = f"{name}_content[b t ce] {name}_gate[b t ce] B_{name}_positions[m' ce] -> {entry}"
    # the bias of the position 1, softmax over the tokens of an entry, times the content 1, sum 1
    flops = 3 + vector_flops.SOFTMAX

    def parts(step: Step) -> tuple[Operator, ...]:
        turned = build.operator(
            f"attention.{name}_rotary", GROUP, f"{entry} cos[t r] sin[t r] -> {target}[b te {width}]",
            kind="elementwise", keeps="nothing",
        )  # fmt: skip
        return (
            build.operator(f"attention.{name}", GROUP, line, kind="elementwise", flops=flops),
            _norm(build, f"{name}_norm", att.norm, entry, entry, name),
            _rotated(turned, att.rotary_dim, build.sizes[width]),
        )

    yield from fused_or_eager(f"attention.{name}", GROUP, parts, step, kind="elementwise")


def _selection(att: CompressedAttention, build: Builder, block: BlockContext, cache: str) -> Iterator[Operator]:
    """The indexer: its own entries, scores of all of them, and the `index_topk` entries of each query.

    Score of an entry: sum over the heads of weight x relu(q . k).
    """
    assert att.indexer is not None
    step, overlap = block.step, 1 + att.overlaps
    sizes = {
        "ki": att.indexer.heads, "hi": att.indexer.head_dim, "ce": overlap * att.indexer.head_dim,
        "se": entries(step, att.ratio), "t:se": entry_pairs(step, att.ratio),
        "t:sk": entry_pairs(step._replace(attention="flash"), att.ratio, att.index_topk),
    }  # fmt: skip
    build = build._replace(sizes={**build.sizes, **sizes})
    keys = f"{cache}index"
    yield from _compression(att, build, block, "index", "hi", keys)
    line = "query_latent[b t zq] W_index_q[zq ki hi] -> index_q[b t ki hi]"
    yield build.operator("attention.index_q", GROUP, line)
    turned = build.operator(
        "attention.index_q_rotary", GROUP, "index_q[b t ki hi] cos[t r] sin[t r] -> index_q[b t ki hi]",
        kind="elementwise", keeps="nothing",
    )  # fmt: skip
    yield _rotated(turned, att.rotary_dim, att.indexer.head_dim)
    line = f"{block.input} W_index_weights[d ki] -> index_weight[b t ki]"
    yield build.operator("attention.index_weights", GROUP, line)

    def score(step: Step) -> tuple[Operator, ...]:
        inner = build._replace(sizes={**build.sizes, "s": build.sizes["se"], "t:se": entry_pairs(step, att.ratio)})
        return (
            inner.operator(
                "attention.index_scores", GROUP, f"index_q[b t ki hi] {keys}[b se hi] -> e[b ki t:se]", kind="bmm"
            ),
            inner.operator(
                "attention.index_sum", GROUP, "e[b ki t:se] index_weight[b t ki] => index_score[b t:se]",
                kind="elementwise", flops=vector_flops.ACTIVATION["relu"] + 2,
            ),
        )  # fmt: skip

    yield from fused_or_eager("attention.index_scores", GROUP, score, step, kind="attention")
    yield build.operator(
        "attention.index_choose", GROUP, "index_score[b t:se] -> selected[b t:sk]", kind="routing",
        flops=vector_flops.CHOOSE,
    )  # fmt: skip
