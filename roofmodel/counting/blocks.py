"""An Architecture and a pass through it -> its operators, in the order of the reference code.

Each block is a few lines (see operator.py for how to read one). An axis letter means the same
everywhere: b batch, t new tokens, s attended tokens, d hidden, k key-value heads, g query heads per
key-value head, h head size, f MLP width, v vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from roofmodel.counting import vector
from roofmodel.counting.operator import Builder, Operator, fuse
from roofmodel.counting.workload import Step, attended, pairs
from roofmodel.models.architecture import MLP, Architecture, Attention, Dense, Layer, Norm


def operators(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """All operators of one pass; one that occurs in several layers stands once, with its layers."""
    found = [*embedding(arch, step)]
    for layer, indices in _alike(arch.layers):
        block = transformer_layer(layer, arch, step)
        found += [replace(operator, layers=indices) for operator in block]
    found += closing(arch, step)
    return tuple(found)


def _alike(layers: Iterable[Layer]) -> Iterator[tuple[Layer, tuple[int, ...]]]:
    """Layers that are alike, with the indices of their occurrences."""
    where: dict[Layer, list[int]] = {}
    for index, layer in enumerate(layers):
        where.setdefault(layer, []).append(index)
    return ((layer, tuple(indices)) for layer, indices in where.items())


def embedding(arch: Architecture, step: Step) -> Iterator[Operator]:
    """Token rows, plus position and type rows where the model learns them, projected where narrower."""
    table = arch.embedding
    narrow = table.width != arch.hidden
    build = Builder(
        {
            "b": step.batch, "t": step.tokens, "d": arch.hidden, "e": table.width,
            "v": table.vocabulary, "p": table.position_rows, "y": table.type_rows,
        },
        step.widths,
    )  # fmt: skip
    width = "e" if narrow else "d"
    yield build.gather("embedding.token", "embedding", f"E_token[v {width}] -> x[b t {width}]")
    if narrow:
        yield build.operator("embedding.project", "embedding", "x[b t e] W_project_in[e d] -> x[b t d]")
    if table.type_rows:
        yield build.gather("embedding.type", "embedding", "E_type[y d] -> y[b t d]")
        yield build.operator(
            "embedding.add_type", "embedding", "x[b t d] y[b t d] -> x[b t d]", kind="elementwise", vector=1
        )
    if table.position_rows:
        yield build.gather("embedding.position", "embedding", "E_position[p d] -> e[t d]")
        yield build.operator(
            "embedding.add_position", "embedding", "x[b t d] e[t d] -> x[b t d]", kind="elementwise", vector=1
        )
    if table.norm:
        yield norm(build, "embedding", arch.layers[0].norm, "x[b t d]", "x[b t d]")


def transformer_layer(layer: Layer, arch: Architecture, step: Step) -> Iterator[Operator]:
    """Attention and MLP with their norms and residual sums, in the layer's own order."""
    att, mlp = layer.attention, layer.mlp
    build = Builder(
        {
            "b": step.batch, "t": step.tokens, "s": attended(step, att.window),
            "t:s": pairs(step, att.window, arch.causal), "d": arch.hidden,
            "k": att.kv_heads, "g": att.heads // att.kv_heads, "h": att.head_dim, "r": att.rotary_dim,
            "c": (att.heads + 2 * att.kv_heads) * att.head_dim, "f": mlp.width,
        },
        step.widths,
    )  # fmt: skip
    block_input = "x[b t d]" if layer.post_norm else "n[b t d]"
    if not layer.post_norm:
        yield norm(build, "attention", layer.norm, "x[b t d]", "n[b t d]")
    yield from attention(build, att, arch, step, block_input)
    if not layer.parallel:
        yield residual(build, "attention", "x[b t d] a[b t d]")
    if layer.post_norm:
        yield norm(build, "attention", layer.norm, "x[b t d]", "x[b t d]")
    else:
        yield norm(build, "mlp", layer.norm, "x[b t d]", "n[b t d]")
    yield from feed_forward(build, mlp, block_input)
    yield residual(build, "mlp", "x[b t d] a[b t d] m[b t d]" if layer.parallel else "x[b t d] m[b t d]")
    if layer.post_norm:
        yield norm(build, "mlp", layer.norm, "x[b t d]", "x[b t d]")


def norm(build: Builder, place: str, spec: Norm, source: str, target: str) -> Operator:
    """A norm over the hidden size, with gain and bias where it has them."""
    axis = source.rpartition(" ")[2].rstrip("]")
    gain = f" G_{place}[{axis}]" if spec.gain else ""
    bias = f" B_{place}_norm[{axis}]" if spec.bias else ""
    flops = vector.NORM[spec.kind] - (spec.kind == "layernorm") * (not spec.bias) - (not spec.gain)
    return build.operator(f"norm.{place}", "norm", f"{source}{gain}{bias} -> {target}", kind="norm", vector=flops)


def residual(build: Builder, place: str, summands: str) -> Operator:
    """The sum that carries the layer's input past the block."""
    flops = (summands.count("[") - 1) * vector.ADD
    return build.operator(f"residual.{place}", "residual", f"{summands} -> x[b t d]", kind="elementwise", vector=flops)


def attention(build: Builder, att: Attention, arch: Architecture, step: Step, x: str) -> Iterator[Operator]:
    """Projections, rotary embedding, scores, softmax, mix, output projection.

    Keys and values are written to the cache by whatever produces them, and read from it by the
    scores and the mix; an encoder, or a forward pass without a cache, keeps them as activations.
    """
    cache = "cache." if step.cached and arch.causal else ""
    fresh_k = "k" if att.rotary_dim else f"{cache}k"  # rotary embedding turns keys before they are stored
    q, k, v = "q[b t k g h]", f"{fresh_k}[b t k h]", f"{cache}v[b t k h]"
    if att.fused:
        bias = " + B_qkv[c]" if att.qkv_bias else ""
        yield build.operator("attention.qkv", "attention", f"{x} W_qkv[d c]{bias} -> {q} {k} {v}")
    else:
        for name, axes, out in (("q", "k g h", q), ("k", "k h", k), ("v", "k h", v)):
            bias = f" + B_{name}[{axes}]" if att.qkv_bias else ""
            yield build.operator(f"attention.{name}", "attention", f"{x} W_{name}[d {axes}]{bias} -> {out}")
    if att.rotary_dim:
        yield rotary(build, cache)

    alibi = " + alibi[b k g s]" if att.alibi else ""
    mask = vector.MASK if arch.causal and step.attention == "eager" else 0
    core = (
        build.operator(
            "attention.scores",
            "attention",
            f"q[b t k g h] {cache}k[b s k h]{alibi} -> a[b k g t:s]",
            kind="bmm",
        ),
        build.operator(
            "attention.softmax",
            "attention",
            "a[b k g t:s] -> p[b k g t:s]",
            kind="softmax",
            vector=vector.SCALE + mask + vector.SOFTMAX,
        ),
        build.operator("attention.mix", "attention", f"p[b k g t:s] {cache}v[b s k h] -> o[b t k g h]", kind="bmm"),
    )
    if step.attention == "flash":
        yield fuse("attention.flash", "attention", core, kind="attention")
    else:
        yield from core

    bias = " + B_out[d]" if att.out_bias else ""
    yield build.operator("attention.output", "attention", f"o[b t k g h] W_out[k g h d]{bias} -> a[b t d]")


def rotary(build: Builder, cache: str) -> Operator:
    """Rotary embedding of queries and new keys; only `r` of each head's `h` elements are turned."""
    text = f"q[b t k g h] k[b t k h] cos[t r] sin[t r] -> q[b t k g h] {cache}k[b t k h]"
    operator = build.operator("attention.rotary", "attention", text, kind="elementwise")
    size = build.sizes
    turned = size["b"] * size["t"] * size["k"] * (size["g"] + 1) * size["r"]
    return replace(operator, vector_flops=vector.ROTARY * turned)


def feed_forward(build: Builder, mlp: MLP, x: str) -> Iterator[Operator]:
    """Up, activation, down; with a gate: act(gate) times up, then down."""
    bias_f, bias_d = (" + B_{}[f]", " + B_down[d]") if mlp.bias else ("", "")
    flops = vector.ACTIVATION[mlp.activation]
    if mlp.gated:
        yield build.operator("mlp.gate", "mlp", f"{x} W_gate[d f]{bias_f.format('gate')} -> w[b t f]")
    yield build.operator("mlp.up", "mlp", f"{x} W_up[d f]{bias_f.format('up')} -> u[b t f]")
    if mlp.gated:
        yield build.operator(
            "mlp.activation", "mlp", "w[b t f] u[b t f] -> u[b t f]", kind="elementwise", vector=flops + 1
        )
    else:
        yield build.operator("mlp.activation", "mlp", "u[b t f] -> u[b t f]", kind="elementwise", vector=flops)
    yield build.operator("mlp.down", "mlp", f"u[b t f] W_down[f d]{bias_d} -> m[b t d]")


def closing(arch: Architecture, step: Step) -> Iterator[Operator]:
    """The final norm, the projection back to a narrower embedding, and the head's stages."""
    table = arch.embedding
    sizes = {
        "b": step.batch, "t": step.tokens, "l": step.logit_positions, "d": arch.hidden, "d'": arch.hidden,
        "e": table.width, "v": table.vocabulary,
    }  # fmt: skip
    build = Builder(sizes, step.widths)
    width = "d"
    if arch.final_norm:
        yield norm(build, "final", arch.layers[0].norm, "x[b t d]", "x[b t d]")
    if table.width != arch.hidden:
        yield build.operator("head.project", "head", "x[b t d] W_project_out[d e] -> x[b t e]")
        width = "e"
    source = ("x", width)
    for stage in arch.head.stages:
        if stage.from_layers:
            source = ("x", width)
        stage_build = Builder(sizes | {"n": stage.classes}, step.widths)
        yield from dense(stage_build, stage, source, arch.layers[0].norm)
        source = ("h", "d'")


ROWS = {"tokens": "b t", "logits": "b l", "first": "b"}
OUT = {"hidden": "d'", "vocabulary": "v", "classes": "n"}


def dense(build: Builder, stage: Dense, source: tuple[str, str], spec: Norm) -> Iterator[Operator]:
    """One stage of a head. The table or matrix before logits is named E_: quantisation leaves it alone."""
    rows, out, (tensor, width) = ROWS[stage.rows], OUT[stage.out], source
    if stage.out == "vocabulary":
        matrix = f"E_token[v {width}]" if stage.tied else f"E_{stage.name}[v {width}]"
    else:
        matrix = f"W_{stage.name}[{width} {out}]"
    bias = f" + B_{stage.name}[{out}]" if stage.bias else ""
    result = f"{'logits' if stage.out == 'vocabulary' else 'h'}[{rows} {out}]"
    yield build.operator(f"head.{stage.name}", "head", f"{tensor}[{rows} {width}] {matrix}{bias} -> {result}")
    if stage.activation:
        yield build.operator(
            f"head.{stage.name}_activation", "head", f"{result} -> {result}", kind="elementwise",
            vector=vector.ACTIVATION[stage.activation],
        )  # fmt: skip
    if stage.norm:
        closing_norm = norm(build, stage.name, spec, result, result)
        yield replace(closing_norm, name=f"head.{stage.name}_norm", group="head")
