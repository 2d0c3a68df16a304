"""Attention over keys and values of every head, to the sequence itself or to a source, eager or fused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofmodel.algebra import Number, quotient
from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import BlockContext, norm_flops, norm_parameters
from roofmodel.counting.communication import shared
from roofmodel.counting.operator import Builder, Operator, fuse
from roofmodel.counting.workload import attended, pairs
from roofmodel.models.attention import Attention, CrossAttention, Disentangled
from roofmodel.models.norms_and_activations import HeadNorm, Norm


def attention(att: Attention, site: BlockContext) -> Iterator[Operator]:
    """Projections, rotary embedding, scores, softmax, mix, output projection.

    Keys and values are written to the cache by whatever produces them, and read from it by the
    scores and the mix; an encoder, or a forward pass without a cache, keeps them as activations.
    """
    step, x = site.step, site.reads
    build = _build(
        att,
        site,
        keys=attended(step, att.window, att.window_evicts, att.chunked),
        seen=pairs(step, att.window, site.causal, att.window_evicts, att.chunked),
    )
    cache = "cache." if step.cached and site.causal else ""
    if att.sharing:  # of the last layer of a kind, that lends, until the last one that borrows
        cache += "full_" if att.window is None else "window_"
    # What normalises or turns keys does so before they are stored.
    fresh_k = "k" if att.rotary_dim or att.norm else f"{cache}k"
    fresh_v = "v" if att.value_norm else f"{cache}v"
    q, k, v = "q[b t k g h]", f"{fresh_k}[b t k h]", f"{fresh_v}[b t k {_of_values(att)}]"
    if att.fused:
        bias = " + B_qkv[c]" if att.qkv_bias else ""
        yield build.operator("attention.qkv", "attention", f"{x} W_qkv[d c]{bias} -> {q} {k} {v}")
    else:
        asked = f"{q} gate[b t k g h]" if att.gate == "queries" else q
        for name, out in _projected(att, {"q": asked, "k": k, "v": v}):
            yield _projection(build, att, name, x, out)
    if att.value_norm and att.sharing != "borrows":
        source = k if att.values_of_keys else v
        yield _head_norm(build, "v", att.value_norm, source, f"{cache}v[b t k {_of_values(att)}]")
    if att.norm:
        yield from head_norms(build, att, att.norm, "k" if att.rotary_dim else f"{cache}k")
    if att.rotary_dim:
        yield rotary(build, att, cache)

    if att.gate in ("head", "element"):
        axes = _of_gate(att)
        yield build.operator(
            "attention.gate_projection", "attention", f"{x} W_gate_heads[d {axes}] -> gate[b t {axes}]"
        )
    against_positions: tuple[Operator, ...] = ()
    if att.disentangled:
        build = build._replace(sizes={**build.sizes, "w": att.disentangled.rows})
        yield from positions(att.disentangled, build)
        against_positions = position_scores(att.disentangled, build, cache)
    if att.relative_rows:
        yield relative_bias(build._replace(sizes={**build.sizes, "w": att.relative_rows}), "attention")

    added = " + alibi[b k g s]" if att.alibi else " + bias[k g t:s]" if att.relative_bias else ""
    added += "".join(f" + {product.lines[0].outputs[0]}" for product in against_positions)
    mask = vector_flops.MASK if site.causal and step.attention == "eager" else 0
    yield from _core(build, att, site, "attention", cache, added, mask, against_positions)


def cross_attention(cross: CrossAttention, site: BlockContext) -> Iterator[Operator]:
    """Queries of the decoder over keys and values of the source.

    The pass that encodes the source makes those, once, and caches them; every later pass only reads them.
    """
    att, step = cross.attention, site.step
    build = _build(att, site, keys=step.source, seen=step.tokens * step.source)
    cache = "cache." if step.cached else ""
    yield _projection(build, att, "q", site.reads, "q[b t k g h]", "cross_")
    if step.encodes:
        yield from shared(build, step, "cross_attention.source", "source[b s d]")
        for name in ("k", "v"):
            yield _projection(build, att, name, "source[b s d]", f"{cache}{name}[b s k h]", "cross_")
    yield from _core(build, att, site, "cross_attention", cache)


def _build(att: Attention, site: BlockContext, keys: Number, seen: Number) -> Builder:
    """A builder over so many keys a query, and so many query-key pairs a head."""
    return site.build(
        s=keys, k=att.kv_heads, g=quotient(att.heads, att.kv_heads), h=att.head_dim, r=att.rotary_dim,
        c=att.heads * att.head_dim + sum(att.cached),
        **{"h'": att.value_dim or 0, "hg": 2 * att.head_dim, "t:s": seen},
    )  # fmt: skip


def _projected(att: Attention, tensors: dict[str, str]) -> Iterator[tuple[str, str]]:
    """What the layer makes of what it reads: not what it borrows, nor values that are its keys."""
    for name, out in tensors.items():
        if name == "q" or not (att.sharing == "borrows" or (name == "v" and att.values_of_keys)):
            yield name, out


def _of_values(att: Attention) -> str:
    """The axis along a head's values."""
    return "h" if att.value_dim is None else "h'"


def _projection(build: Builder, att: Attention, name: str, source: str, out: str, cross: str = "") -> Operator:
    """Queries, keys or values out of what they are made of."""
    axes = {"q": "k g hg" if att.gate == "queries" else "k g h", "k": "k h", "v": f"k {_of_values(att)}"}[name]
    bias = f" + B_{cross}{name}[{axes}]" if att.qkv_bias and not (name == "k" and att.bare_keys) else ""
    text = f"{source} W_{cross}{name}[d {axes}]{bias} -> {out}"
    return build.operator(f"{cross}attention.{name}", _group(f"{cross}attention"), text)


def _group(place: str) -> str:
    return place.replace("_", " ")


def _core(
    build: Builder,
    att: Attention,
    site: BlockContext,
    place: str,
    cache: str,
    added: str = "",
    mask: int = 0,
    ahead: tuple[Operator, ...] = (),
) -> Iterator[Operator]:
    """Scores, softmax, mix, in one kernel or in several; the output projection.

    `added` to the scores are biases, and products that come `ahead`; `mask` is its FLOPs a score.
    """
    group, h, cross = _group(place), _of_values(att), place.removesuffix("attention")
    core = (
        *ahead,
        build.operator(f"{place}.scores", group, f"q[b t k g h] {cache}k[b s k h]{added} -> a[b k g t:s]", kind="bmm"),
        build.operator(
            f"{place}.softmax",
            group,
            f"a[b k g t:s]{' B_sinks[k g]' if att.sinks else ''} -> p[b k g t:s]",
            kind="softmax",
            flops=vector_flops.SCALE + mask + vector_flops.SOFTMAX,
            keeps="outputs",
        ),
        build.operator(f"{place}.mix", group, f"p[b k g t:s] {cache}v[b s k {h}] -> o[b t k g {h}]", kind="bmm"),
    )
    if site.step.attention == "flash":
        yield fuse(f"{place}.flash", group, core, kind="attention")
    else:
        yield from core
    if att.gate:
        yield gate(build, place, f"k g {h}", _of_gate(att))
    bias = f" + B_{cross}out[d]" if att.out_bias else ""
    yield build.operator(f"{place}.output", group, f"o[b t k g {h}] W_{cross}out[k g {h} d]{bias} -> {site.gives}")


def gate(build: Builder, place: str, axes: str, gated: str) -> Operator:
    """What the heads give, times the gate: a sigmoid, or a softplus, for each head or for each of its elements."""
    line = f"o[b t {axes}] gate[b t {gated}] -> o[b t {axes}]"
    product = build.operator(f"{place}.gate", _group(place), line, kind="elementwise", flops=1)
    gates = product.reads[1].elements(build.sizes)
    return replace(product, vector_flops=product.vector_flops + vector_flops.GATE * gates)


def _of_gate(att: Attention) -> str:
    return "k g" if att.gate == "head" else f"k g {_of_values(att)}"


def relative_bias(build: Builder, group: str) -> Operator:
    """The bias of each pair by head and distance, looked up in a table of a few rows, which is read whole."""
    return build.operator(f"{group}.relative", group, "E_relative[w k g] -> bias[k g t:s]", kind="gather")


def head_norms(build: Builder, att: Attention, spec: HeadNorm, normed_k: str) -> Iterator[Operator]:
    """Queries and new keys, normalised head by head or all heads together: the same work an element."""
    for name, axes, out in (("q", "k g h", "q"), ("k", "k h", normed_k)):
        if name == "q" or att.sharing != "borrows":
            gains = axes if spec.gains == "each" else "h"
            yield _head_norm(build, name, spec.norm, f"{name}[b t {axes}]", f"{out}[b t {axes}]", gains)


def _head_norm(build: Builder, name: str, spec: Norm, source: str, target: str, gains: str = "h") -> Operator:
    gain, bias = norm_parameters(name, spec, gains)
    line = f"{source}{gain}{bias} -> {target}"
    return build.operator(
        f"attention.{name}_norm", "attention", line, kind="norm", flops=norm_flops(spec), function=spec.kind
    )


def rotary(build: Builder, att: Attention, cache: str) -> Operator:
    """Rotary embedding of queries and new keys; only `r` of each head's `h` elements are turned."""
    keys = att.sharing != "borrows"
    given, turned_k = (" k[b t k h]", f" {cache}k[b t k h]") if keys else ("", "")
    text = f"q[b t k g h]{given} cos[t r] sin[t r] -> q[b t k g h]{turned_k}"
    operator = build.operator(
        "attention.rotary", "attention", text, kind="elementwise", keeps="nothing", function="rotary"
    )
    size = build.sizes
    turned = size["b"] * size["t"] * size["k"] * (size["g"] + int(keys)) * size["r"]
    return replace(operator, vector_flops=vector_flops.ROTARY * turned)


def positions(spec: Disentangled, build: Builder) -> Iterator[Operator]:
    """Keys and queries of the `w` relative positions: once for all sequences, yet anew in every layer."""
    for name, wanted in (("k", spec.to_position), ("q", spec.to_content)):
        if wanted or spec.shared:
            matrix = name if spec.shared else f"position_{name}"
            line = f"relative[w d] W_{matrix}[d k g h] + B_{matrix}[k g h] -> position.{name}[w k g h]"
            yield build.operator(f"attention.position_{name}", "attention", line)


def position_scores(spec: Disentangled, build: Builder, cache: str) -> tuple[Operator, ...]:
    """Every query with every relative position, every key likewise; a gather then picks the distance of each pair."""
    lines = (
        (spec.to_position, "content_to_position", "q[b t k g h] position.k[w k g h] -> c2p[b k g t w]"),
        (spec.to_content, "position_to_content", f"{cache}k[b s k h] position.q[w k g h] -> p2c[b k g s w]"),
    )
    return tuple(
        build.operator(f"attention.{name}", "attention", line, kind="bmm") for wanted, name, line in lines if wanted
    )
