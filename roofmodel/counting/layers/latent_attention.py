"""Multi-head latent attention (MLA): the cache has one latent and one rotary key per token for all heads.

DeepSeek-V2 (arXiv 2405.04434, section 2.1); with an indexer: sparse attention of DeepSeek-V3.2 (arXiv 2512.02556).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import (
    BlockContext,
    attention_sizes,
    exchange_heads,
    fused_or_eager,
    norm_flops,
    norm_parameters,
    replicated_input,
    share_sequence,
)
from roofmodel.counting.layers.indexer import query_scale, select_tokens
from roofmodel.counting.layers.transformer import gate
from roofmodel.counting.operator import Builder, Operator, fuse
from roofmodel.counting.selected_keys import entries, pooled_pairs
from roofmodel.counting.tensors import Sizes
from roofmodel.counting.workload import Step, attended, pairs
from roofmodel.models.layers import LatentAttention
from roofmodel.numbers.algebra import is_just, minimum, quotient


def latent_attention(att: LatentAttention, block: BlockContext) -> Iterator[Operator]:
    """Down projections to the latents, up projections to queries, keys and values, attention, output projection.

    Naive: each pass expands the cached latents to keys and values of all heads. Absorbed: the queries are projected to
    the latent space, and attention runs on the cached latents as if all heads shared one key-value head. Serving
    engines use the absorbed form in a decode, which is bound by cache reads, and the naive form in a prefill. Where an
    indexer selects tokens, a fused prefill uses the absorbed form, too: it reads the selected latents instead of
    expanding the whole cache (FlashMLA's sparse prefill in vLLM and SGLang; the one of TensorRT-LLM).
    """
    step, x = block.step, block.input
    fused = step.attention == "flash" and step.cached
    prefills_sparsely = att.index_topk is not None and step.mla == "absorbed" and (fused or step.resumed)
    absorbs = step.absorbs or prefills_sparsely
    sparse: Sizes = {"sparse": att.index_topk} if att.index_topk is not None and absorbs else {}

    def keys_and_pairs(step: Step) -> Sizes:
        if att.window is not None:
            return {
                "s": attended(step, att.window), "t:s": pairs(step, att.window, block.causal), "windowed": 1,
            }  # fmt: skip
        # A decode reads only the tokens that its query chose. Many queries of a prefill together choose nearly all.
        keys = attended(step, att.index_topk if step.absorbs else None, evicts=False)
        if att.index_pool:
            most = quotient(att.index_topk, att.index_pool)
            if step.absorbs and step.attention == "flash":
                complete = entries(step, att.index_pool)
                keys = attended(step, None) - att.index_pool * (complete - minimum(complete, most))
            return {"s": keys, "t:s": pooled_pairs(step, att.index_pool, most), **sparse}
        if prefills_sparsely and not step.absorbs and step.attention == "flash":
            keys = minimum(keys, step.tokens * att.index_topk)
        return {
            "s": keys,
            "t:s": pairs(step, att.index_topk, block.causal, evicts=False),
            **sparse,
        }

    build = block.build(
        k=att.heads, h=att.nope_dim, r=att.rotary_dim, zk=att.latent, c=att.latent + att.rotary_dim,
        **{
            "hr": att.nope_dim + att.rotary_dim, "h'": att.value_dim, "hv": att.nope_dim + att.value_dim,
            "zq": att.query_latent or 0, "zn": 2 * (att.query_latent or 0),
            "hk": att.nope_dim + att.rotary_dim + att.value_dim, **keys_and_pairs(step),
        },
    )  # fmt: skip
    cache = "cache." if step.cached and block.causal else ""
    yield from queries(att, block, build)
    if att.query_scale:
        yield query_scale(build, "attention.q_scale", _query_parts(att), "k")
    if att.kv_sharing:  # layers that share latents use the tensors of one layer
        cache += "rotary_" if att.rotary_dim else "nope_"
    bias = " + B_kv_down[c]" if att.down_bias else ""
    if att.kv_sharing != "reuses":
        fresh = "k_rotary" if att.rotary else f"{cache}k_rotary"
        key = f" {fresh}[b t r]" if att.rotary_dim else ""
        line = f"{x} W_kv_down[d c]{bias} -> latent[b t zk]{key}"
        yield build.operator("attention.kv_down", "attention", line)
        yield latent_norm(att, build, "latent", "zk", f"{cache}latent[b t zk]")
    if att.rotary_norm:
        yield latent_norm(att, build, "k_rotary", "r", "k_rotary[b t r]")
    if att.rotary:
        new, rotated = ("", "") if att.kv_sharing == "reuses" else ("k_rotary[b t r] ", f" {cache}k_rotary[b t r]")
        yield rotary(build, "q_rotary[b t k r]", f"{new}-> q_rotary[b t k r]{rotated}")
    shared = f" {cache}k_rotary[b t r]" if att.rotary_dim else ""
    yield from replicated_input(build, step, "attention.latent", f"{cache}latent[b t zk]{shared}")
    if att.indexer:
        yield from select_tokens(att, att.indexer, block, cache)

    keys, values, output = "k[b s k h]", "v[b s k h']", "o[b t k h']"
    q, latents = "q[b t k h]", f"{cache}latent[b s zk]"
    if absorbs:
        yield build.operator("attention.absorb_k", "attention", f"{q} W_k_up[k h zk] -> q_latent[b t k zk]", kind="bmm")
        q, keys, values, output = "q_latent[b t k zk]", latents, latents, "o[b t k zk]"
    else:
        line = f"{latents} W_kv_up[zk k hv] -> {keys} {values}"
        yield build.operator("attention.kv_up", "attention", line)
    yield from core(build, block, (q, keys, values, output), cache, keys_and_pairs, " B_sinks[k]" * att.sinks)
    if absorbs:
        line = f"{output} W_v_up[k zk h'] -> o[b t k h']"
        yield build.operator("attention.absorb_v", "attention", line, kind="bmm")
    if att.gate:
        axes = "k" if att.gate == "head" else "k h'"
        if att.gate != "queries":
            line = f"{x} W_gate_heads[d {axes}] -> gate[b t {axes}]"
            yield build.operator("attention.gate_projection", "attention", line)
        yield gate(build, "attention", "k h'", axes)
    bias = " + B_out[d]" if att.out_bias else ""
    yield build.operator("attention.output", "attention", f"o[b t k h'] W_out[k h' d]{bias} -> {block.output}")


def queries(att: LatentAttention, block: BlockContext, build: Builder) -> Iterator[Operator]:
    """The query projection, through a query latent if the model has one."""
    x, out = block.input, _query_parts(att)
    size = "h" if is_just(att.rotary_dim, 0) else "hr"
    if not att.query_latent:
        yield from replicated_input(build, block.step, "attention.q", x)
        yield build.operator("attention.q", "attention", f"{x} W_q[d k {size}] -> {out}")
        return
    bias = " + B_q_down[zq]" if att.down_bias else ""
    latent, matrix = "query_latent[b t zq]", f"W_q_up[zq k {size}]"
    name = "query_down" if att.gate == "queries" else "query_latent"
    yield build.operator("attention.q_down", "attention", f"{x} W_q_down[d zq]{bias} -> {name}[b t zq]")
    yield latent_norm(att, build, name, "zq", latent)
    if att.gate == "queries":
        both = "query_latents[b t zn]"
        line = f"{latent} {name}[b t zq] => {both}"
        yield build.operator("attention.q_concat", "attention", line, kind="elementwise", keeps="nothing")
        latent, matrix, out = both, "W_q_up[zn k hk]", f"{out} gate[b t k h']"
    # `asked` is an earlier name of this tensor. Operator names do not change, because users' outputs contain them.
    yield from replicated_input(build, block.step, "attention.asked", latent)
    yield build.operator("attention.q_up", "attention", f"{latent} {matrix} -> {out}")


def _query_parts(att: LatentAttention) -> str:
    """The tensors of the queries: without and with rotary embedding."""
    return "q[b t k h]" + " q_rotary[b t k r]" * (not is_just(att.rotary_dim, 0))


def latent_norm(att: LatentAttention, build: Builder, name: str, axis: str, target: str) -> Operator:
    """The norm of a latent, between down and up projection, or of the shared rotary key."""
    gain, bias = norm_parameters(name, att.norm, axis)
    place = {"latent": "kv_norm", "k_rotary": "k_rotary_norm"}.get(name, "q_norm")
    return build.operator(
        f"attention.{place}", "attention", f"{name}[b t {axis}]{gain}{bias} -> {target}", kind="norm",
        flops=norm_flops(att.norm), function=att.norm.kind,
    )  # fmt: skip


def rotary(build: Builder, queries: str, rest: str, name: str = "attention.rotary") -> Operator:
    """Rotary embedding of the rotary part of queries and new keys."""
    line = f"{queries} cos[t r] sin[t r] {rest}"
    operator = build.operator(name, "attention", line, kind="elementwise", keeps="nothing", function="rotary")
    rotated = sum(tensor.elements(build.sizes) for tensor in operator.writes)
    return replace(operator, vector_flops=vector_flops.ROTARY * rotated)


def core(
    build: Builder,
    block: BlockContext,
    tensors: tuple[str, str, str, str],
    cache: str,
    keys_and_pairs: Callable[[Step], Sizes],
    sinks: str = "",
) -> Iterator[Operator]:
    """Scores of the NoPE and rotary parts, softmax, weighted sum of values; one kernel under flash attention.

    `keys_and_pairs` gives the sizes of `s` and `t:s` in a step.
    """
    q, keys, values, output = tensors
    both = [f"{q} {keys} -> a[b k t:s]"]
    if not is_just(build.sizes["r"], 0):
        both.append(f"q_rotary[b t k r] {cache}k_rotary[b s r] -> a[b k t:s]")

    sizes = attention_sizes(build.sizes, block.step, keys_and_pairs)
    # Kernels take the rotary key as a part of each head's key.
    own_keys = ["k[b t k h]", "v[b t k h']", f"{cache}k_rotary[b t k r]"]
    yield from share_sequence(build, sizes, block.step, [q, "q_rotary[b t k r]"], own_keys)

    def parts(step: Step) -> tuple[Operator, ...]:
        inner = build._replace(sizes=attention_sizes(build.sizes, step, keys_and_pairs))
        scores = (inner.operator("attention.scores", "attention", line, kind="bmm") for line in both)
        mask = vector_flops.MASK if block.causal and step.attention == "eager" else 0
        return (
            fuse("attention.scores", "attention", scores, kind="bmm"),
            inner.operator(
                "attention.softmax", "attention", f"a[b k t:s]{sinks} -> p[b k t:s]", kind="softmax",
                flops=vector_flops.SCALE + mask + vector_flops.SOFTMAX, keeps="outputs",
            ),
            inner.operator("attention.mix", "attention", f"p[b k t:s] {values} -> {output}", kind="bmm"),
        )  # fmt: skip

    yield from fused_or_eager("attention.flash", "attention", parts, block.step, kind="attention")
    yield from exchange_heads(build, block.step, "attention.output_heads", output)
