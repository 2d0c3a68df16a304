"""Attention over keys and values of every head, eager or fused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofmodel.counting import vector
from roofmodel.counting.disentangled import position_scores, positions
from roofmodel.counting.operator import Builder, Operator, fuse
from roofmodel.counting.site import Site, norm_flops, norm_parameters
from roofmodel.counting.workload import attended, pairs
from roofmodel.models.architecture import Attention, HeadNorm


def attention(att: Attention, site: Site) -> Iterator[Operator]:
    """Projections, rotary embedding, scores, softmax, mix, output projection.

    Keys and values are written to the cache by whatever produces them, and read from it by the
    scores and the mix; an encoder, or a forward pass without a cache, keeps them as activations.
    """
    step, x = site.step, site.reads
    build = site.build(
        s=attended(step, att.window, att.window_evicts, att.chunked),
        k=att.kv_heads, g=att.heads // att.kv_heads, h=att.head_dim, r=att.rotary_dim,
        c=att.heads * att.head_dim + sum(att.cached),
        **{"h'": att.value_dim or 0, "t:s": pairs(step, att.window, site.causal, att.window_evicts, att.chunked)},
    )  # fmt: skip
    h = "h" if att.value_dim is None else "h'"
    cache = "cache." if step.cached and site.causal else ""
    # What normalises or turns keys does so before they are stored.
    fresh_k = "k" if att.rotary_dim or att.norm else f"{cache}k"
    q, k, v = "q[b t k g h]", f"{fresh_k}[b t k h]", f"{cache}v[b t k {h}]"
    if att.fused:
        bias = " + B_qkv[c]" if att.qkv_bias else ""
        yield build.operator("attention.qkv", "attention", f"{x} W_qkv[d c]{bias} -> {q} {k} {v}")
    else:
        for name, axes, out in (("q", "k g h", q), ("k", "k h", k), ("v", f"k {h}", v)):
            bias = f" + B_{name}[{axes}]" if att.qkv_bias else ""
            yield build.operator(f"attention.{name}", "attention", f"{x} W_{name}[d {axes}]{bias} -> {out}")
    if att.norm:
        yield from head_norms(build, att.norm, "k" if att.rotary_dim else f"{cache}k")
    if att.rotary_dim:
        yield rotary(build, cache)

    against_positions: tuple[Operator, ...] = ()
    if att.disentangled:
        build = build._replace(sizes={**build.sizes, "w": att.disentangled.rows})
        yield from positions(att.disentangled, build)
        against_positions = position_scores(att.disentangled, build, cache)

    added = " + alibi[b k g s]" if att.alibi else " + bias[k g t:s]" if att.relative_bias else ""
    added += "".join(f" + {product.lines[0].outputs[0]}" for product in against_positions)
    mask = vector.MASK if site.causal and step.attention == "eager" else 0
    core = (
        *against_positions,
        build.operator(
            "attention.scores",
            "attention",
            f"q[b t k g h] {cache}k[b s k h]{added} -> a[b k g t:s]",
            kind="bmm",
        ),
        build.operator(
            "attention.softmax",
            "attention",
            f"a[b k g t:s]{' B_sinks[k g]' if att.sinks else ''} -> p[b k g t:s]",
            kind="softmax",
            vector=vector.SCALE + mask + vector.SOFTMAX,
            keeps="outputs",
        ),
        build.operator("attention.mix", "attention", f"p[b k g t:s] {cache}v[b s k {h}] -> o[b t k g {h}]", kind="bmm"),
    )
    if step.attention == "flash":
        yield fuse("attention.flash", "attention", core, kind="attention")
    else:
        yield from core

    bias = " + B_out[d]" if att.out_bias else ""
    yield build.operator("attention.output", "attention", f"o[b t k g {h}] W_out[k g {h} d]{bias} -> {site.gives}")


def head_norms(build: Builder, spec: HeadNorm, normed_k: str) -> Iterator[Operator]:
    """Queries and new keys, normalised head by head or all heads together: the same work an element."""
    for name, axes, out in (("q", "k g h", "q"), ("k", "k h", normed_k)):
        gain, bias = norm_parameters(name, spec.norm, axes if spec.gains == "each" else "h")
        yield build.operator(
            f"attention.{name}_norm", "attention", f"{name}[b t {axes}]{gain}{bias} -> {out}[b t {axes}]",
            kind="norm", vector=norm_flops(spec.norm),
        )  # fmt: skip


def rotary(build: Builder, cache: str) -> Operator:
    """Rotary embedding of queries and new keys; only `r` of each head's `h` elements are turned."""
    text = f"q[b t k g h] k[b t k h] cos[t r] sin[t r] -> q[b t k g h] {cache}k[b t k h]"
    operator = build.operator("attention.rotary", "attention", text, kind="elementwise", keeps="nothing")
    size = build.sizes
    turned = size["b"] * size["t"] * size["k"] * (size["g"] + 1) * size["r"]
    return replace(operator, vector_flops=vector.ROTARY * turned)
