"""An Architecture and a pass through it -> its operators, in the order of the reference code.

Each block is a few lines (see operator.py for how to read one). An axis letter means the same
everywhere: b batch, t new tokens, s attended tokens, d hidden, k key-value heads, g query heads per
key-value head, h head size, f MLP width, v vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from roofmodel.counting import vector
from roofmodel.counting.attention import attention
from roofmodel.counting.convolution import network, patches
from roofmodel.counting.feed_forward import experts, feed_forward
from roofmodel.counting.operator import Builder, Operator, Sizes
from roofmodel.counting.site import Site, norm
from roofmodel.counting.widths import Widths
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import (
    MLP,
    Architecture,
    Attention,
    Dense,
    Head,
    Layer,
    MoE,
    Network,
    Norm,
    Patches,
    Stack,
)

# A part -> what its sublayer is called, the name of what it gives, and the function that lays out its operators.
BLOCKS: dict[type, tuple[str, str, Callable[[Any, Site], Iterator[Operator]]]] = {
    Attention: ("attention", "a[b t d]", attention),
    MLP: ("mlp", "m[b t d]", feed_forward),
    MoE: ("mlp", "m[b t d]", experts),
}


def operators(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """All operators of one pass; one that occurs in several layers stands once, with its layers."""
    if isinstance(arch.body, Network):
        return tuple(image_classifier(arch, arch.body, step))
    stack = arch.stack
    found = [*embedding(stack, step)]
    for layer, indices in _alike(stack.layers):
        found += [replace(operator, layers=indices) for operator in transformer_layer(layer, stack, step)]
    found += closing(arch, step)
    return tuple(found)


def _alike(layers: Iterable[Layer]) -> Iterator[tuple[Layer, tuple[int, ...]]]:
    """Layers that are alike, with the indices of their occurrences."""
    where: dict[Layer, list[int]] = {}
    for index, layer in enumerate(layers):
        where.setdefault(layer, []).append(index)
    return ((layer, tuple(indices)) for layer, indices in where.items())


def image_classifier(arch: Architecture, net: Network, step: Step) -> Iterator[Operator]:
    """A convolutional network, and the head on the means of its channels."""
    yield from network(net, step)
    yield from head_stages(arch.head, None, {"b": step.batch, "d": net.width}, ("h", "d"), step.widths)


def embedding(stack: Stack, step: Step) -> Iterator[Operator]:
    """Token rows, plus position and type rows where the model learns them, projected where narrower; or patches."""
    table = stack.embedding
    if isinstance(table, Patches):
        yield from patches(table, stack.hidden, step)
        return
    narrow = table.width != stack.hidden
    build = Builder(
        {
            "b": step.batch, "t": step.tokens, "d": stack.hidden, "e": table.width,
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
        name = "sinusoids" if table.fixed_positions else "E_position"
        yield build.gather("embedding.position", "embedding", f"{name}[p d] -> e[t d]")
        yield build.operator(
            "embedding.add_position", "embedding", "x[b t d] e[t d] -> x[b t d]", kind="elementwise", vector=1
        )
    if table.norm:
        yield norm(build, "embedding", table.norm, "x[b t d]", "x[b t d]")


def transformer_layer(layer: Layer, stack: Stack, step: Step) -> Iterator[Operator]:
    """The sublayers of a layer, each with its norms and the sum that carries its input past it."""
    build = Builder({"b": step.batch, "t": step.tokens, "d": stack.hidden}, step.widths)
    for sublayer in layer:
        reads, given = "x[b t d]", []
        for branch in sublayer.branches:
            place, gives, block = BLOCKS[type(branch.part)]
            if branch.before:
                reads = "n[b t d]"
                yield norm(build, place, branch.before, "x[b t d]", reads)
            yield from block(branch.part, Site(step, stack.hidden, stack.causal, reads, gives))
            if branch.after:
                yield norm(build, f"{place}_output", branch.after, gives, gives)
            given.append(gives)
        yield residual(build, place, " ".join(["x[b t d]", *given]))
        if sublayer.after:
            yield norm(build, place, sublayer.after, "x[b t d]", "x[b t d]")


def residual(build: Builder, place: str, summands: str) -> Operator:
    """The sum that carries the layer's input past the block."""
    flops = (summands.count("[") - 1) * vector.ADD
    return build.operator(f"residual.{place}", "residual", f"{summands} -> x[b t d]", kind="elementwise", vector=flops)


def closing(arch: Architecture, step: Step) -> Iterator[Operator]:
    """The final norm, the projection back to a narrower embedding, and the head's stages."""
    stack, table = arch.stack, arch.stack.embedding
    sizes = {
        "b": step.batch, "t": step.tokens, "l": step.logit_positions, "d": stack.hidden, "d'": stack.hidden,
    }  # fmt: skip
    width = "d"
    if stack.final_norm:
        yield norm(Builder(sizes, step.widths), "final", stack.final_norm, "x[b t d]", "x[b t d]")
    if not isinstance(table, Patches):
        sizes |= {"e": table.width, "v": table.vocabulary}
        if table.width != stack.hidden:
            build = Builder(sizes, step.widths)
            yield build.operator("head.project", "head", "x[b t d] W_project_out[d e] -> x[b t e]")
            width = "e"
    yield from head_stages(arch.head, stack.norm, sizes, ("x", width), step.widths)


def head_stages(
    head: Head, spec: Norm | None, sizes: Sizes, source: tuple[str, str], widths: Widths
) -> Iterator[Operator]:
    """The stages of a head; `source` is the tensor that the body gives, and the axis along its width."""
    given = source
    for stage in head.stages:
        build = Builder({**sizes, "n": stage.classes}, widths)
        yield from dense(build, stage, source if stage.from_layers else given, spec)
        given = ("h", "d'")


ROWS = {"tokens": "b t", "logits": "b l", "first": "b"}
OUT = {"hidden": "d'", "vocabulary": "v", "classes": "n", "pooler": "n"}


def dense(build: Builder, stage: Dense, source: tuple[str, str], spec: Norm | None) -> Iterator[Operator]:
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
    if stage.norm and spec:
        closing_norm = norm(build, stage.name, spec, result, result)
        yield replace(closing_norm, name=f"head.{stage.name}_norm", group="head")
