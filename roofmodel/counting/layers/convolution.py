"""Convolutional networks for images (ResNet, ConvNeXt, ...), and the patch embedding of vision transformers.

A convolution is a contraction with sliding axes: c input channels, o output channels, an r x s filter, i x j output
pixels. Identical blocks of a stage appear once, with the numbers of all blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import norm, norm_flops, norm_parameters
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Step
from roofmodel.errors import Option, WorkloadError
from roofmodel.models.architecture import Network, Patches
from roofmodel.models.convolutional import (
    Activation,
    Convolution,
    PixelStep,
    Pool,
    Residual,
    ResponseNorm,
    Scale,
    Sides,
)
from roofmodel.models.layers import Norm
from roofmodel.numbers.algebra import Number, maximum, minimum, quotient


class FeatureMap(NamedTuple):
    """A feature map: channels of rows x columns pixels."""

    channels: Number
    rows: Number
    columns: Number


class Context(NamedTuple):
    """The context of a network step: the pass, the part of the network, and whether the step is in a block.

    Each block has its own tensors; outside blocks, the tensor name starts with the part.
    """

    step: Step
    part: str  # stem, stage1, ...
    block: bool = False

    def build(self, pixels: FeatureMap, **sizes: Number) -> Builder:
        """A builder of operators on a feature map."""
        usual = {"b": self.step.batch, "c": pixels.channels, "i": pixels.rows, "j": pixels.columns}
        return Builder(usual | sizes, self.step.widths)

    def tensor(self, label: str) -> str:
        """The tensor name of the step with this label."""
        return label if self.block else f"{self.part}_{label}"


def network(net: Network, step: Step) -> Iterator[Operator]:
    """Stem, stages, and global average pooling to `h[b d]` with d channels."""
    pixels = FeatureMap(net.channels, *step.image)
    yield from steps(net.stem, Context(step, "stem"), pixels, "image", "x")
    pixels = output_map(net.stem, pixels)
    blocks = 0
    for index, stage in enumerate(net.stages, 1):
        context = Context(step, f"stage{index}")
        yield from steps(stage.entry, context, pixels, "x", "x")
        pixels = output_map(stage.entry, pixels)
        identical: dict[tuple[Residual, FeatureMap], list[int]] = {}  # block and input map -> block numbers
        for number, block in enumerate(stage.blocks, blocks):
            identical.setdefault((block, pixels), []).append(number)
            pixels = output_map(block.path, pixels)
        for (block, block_input), numbers in identical.items():
            for operator in residual(block, context._replace(block=True), block_input):
                yield replace(operator, layers=tuple(numbers))
        blocks += len(stage.blocks)

    sizes = {"b": step.batch, "d": pixels.channels, "i": pixels.rows, "j": pixels.columns}
    build = Builder(sizes, step.widths)
    yield build.operator("head.pool", "head", "x[b d i j] -> h[b d]", kind="pool", flops=vector_flops.ADD)
    if net.final_norm:
        yield norm(build, "final", net.final_norm, "h[b d]", "h[b d]")


def residual(block: Residual, context: Context, pixels: FeatureMap) -> Iterator[Operator]:
    """A residual block: path, shortcut (if any), their sum, and the steps after the sum."""
    yield from steps(block.path, context, pixels, "x", "y")
    yield from steps(block.shortcut, context, pixels, "x", "z")
    after, carried = output_map(block.path, pixels), "z" if block.shortcut else "x"
    text = f"y[b c i j] + {carried}[b c i j] -> x[b c i j]"
    yield context.build(after).operator(f"residual.{context.part}", "residual", text, kind="elementwise")
    yield from steps(block.after, context, after, "x", "x")


def steps(
    parts: Iterable[PixelStep], context: Context, pixels: FeatureMap, source: str, target: str
) -> Iterator[Operator]:
    """Consecutive steps, each labeled by the last convolution; all write the same tensor."""
    label = "sum"
    for part in parts:
        if isinstance(part, Convolution):
            label = part.name
        yield STEPS[type(part)](part, context, label, pixels, source, target)
        source, pixels = target, output_map([part], pixels)


def output_map(parts: Iterable[PixelStep], pixels: FeatureMap) -> FeatureMap:
    """The output map of consecutive steps. Raises WorkloadError if a filter is larger than its input map."""
    for part in parts:
        if not isinstance(part, Convolution | Pool):
            continue
        kernel, stride = pair(part.kernel), pair(part.stride)
        sides = zip(pixels[1:], kernel, stride, strict=True)
        rows, columns = (_output_size(n, k - 2 * part.padding, s) for n, k, s in sides)
        if any(isinstance(n, int) and n < 1 for n in (rows, columns)):
            raise WorkloadError(
                f"the image is too small: {pixels.rows} × {pixels.columns} pixels are the input of a filter of "
                f"{kernel[0]} × {kernel[1]}; try a larger ",
                Option("image"),
            )
        pixels = FeatureMap(part.out if isinstance(part, Convolution) else pixels.channels, rows, columns)
    return pixels


def _output_size(n: Number, filter: int, stride: int) -> Number:
    """Output size (n - filter) // stride + 1, written so that a symbol n stays n for a filter of 1 and stride 1."""
    last = n + (stride - filter)
    return last if stride == 1 else last // stride


def pair(sides: Sides) -> tuple[Number, Number]:
    """Rows and columns of a side length or pair."""
    return sides if isinstance(sides, tuple) else (sides, sides)


# --- Steps ------------------------------------------------------------------------------------------


def convolution(
    conv: Convolution, context: Context, label: str, pixels: FeatureMap, source: str, target: str
) -> Operator:
    """A convolution. A 1 x 1 filter with stride 1 is a matrix multiplication, without sliding axes."""
    build = _sliding(
        conv,
        context,
        pixels,
        g=conv.groups,
        c=quotient(pixels.channels, conv.groups),
        o=quotient(conv.out, conv.groups),
    )
    slides = conv.groups != 1 or pair(conv.kernel) != (1, 1) or pair(conv.stride) != (1, 1)
    input_axes, filter_axes = ("i+r j+s", " r s") if slides else ("i j", "")
    if conv.groups == 1:
        c, o, w = "c", "o", "o c"
    elif conv.groups == pixels.channels == conv.out:
        c, o, w = "g", "g", "g"
    else:
        c, o, w = "g c", "g o", "g o c"
    name = context.tensor(conv.name)
    bias = f" + B_{name}[{o}]" if conv.bias else ""
    text = f"{source}[b {c} {input_axes}] W_{name}[{w}{filter_axes}]{bias} -> {target}[b {o} i j]"
    return build.operator(f"{context.part}.{label}", context.part, text, kind="conv")


def _pool(pool: Pool, context: Context, label: str, pixels: FeatureMap, source: str, target: str) -> Operator:
    build = _sliding(pool, context, pixels)
    text = f"{source}[b c i+r j+s] -> {target}[b c i j]"
    operator = build.operator(f"{context.part}.pool", context.part, text, kind="pool")
    compared = operator.writes[0].elements(build.sizes) * pool.kernel**2  # one comparison per value
    return replace(operator, vector_flops=compared)


def _sliding(part: Convolution | Pool, context: Context, pixels: FeatureMap, **sizes: Number) -> Builder:
    """A builder for sliding filters: i and j are output pixels, i+r and j+s the input pixels that are read."""
    output = output_map([part], pixels)
    (r, s), strides = pair(part.kernel), pair(part.stride)
    return context.build(
        pixels,
        **{
            "i": output.rows, "j": output.columns, "r": r, "s": s,
            "i+r": input_rows_read(pixels.rows, output.rows, r, strides[0], part.padding),
            "j+s": input_rows_read(pixels.columns, output.columns, s, strides[1], part.padding),
        },
        **sizes,
    )  # fmt: skip


def input_rows_read(rows: Number, positions: Number, kernel: Number, stride: Number, padding: Number) -> Number:
    """Number of input rows that a sliding filter reads; fewer than all if the stride skips rows.

    Padding at either end is not counted.
    """
    span = stride * (positions - 1) + kernel
    covered = minimum(stride, kernel) * (positions - 1) + kernel
    return covered - padding - maximum(0, span - padding - rows)


def _norm(spec: Norm, context: Context, label: str, pixels: FeatureMap, source: str, target: str) -> Operator:
    """A norm. Batch norm reads the stored mean and variance; in training it computes those of the batch."""
    gain, bias = norm_parameters(context.tensor(label), spec, "c")
    moments = ""
    if spec.kind == "batchnorm" and context.step.phase == "train":
        spec = spec._replace(kind="layernorm")  # the same FLOPs per element, across other axes
    elif spec.kind == "batchnorm":
        moments = " mean[c] variance[c]"
    text = f"{source}[b c i j]{gain}{bias}{moments} -> {target}[b c i j]"
    return context.build(pixels).operator(
        f"norm.{context.part}_{label}", "norm", text, kind="norm", flops=norm_flops(spec)
    )


def _activation(
    part: Activation, context: Context, label: str, pixels: FeatureMap, source: str, target: str
) -> Operator:
    text, flops = f"{source}[b c i j] -> {target}[b c i j]", vector_flops.ACTIVATION[part.function]
    name = f"activation.{context.part}_{label}"
    return context.build(pixels).operator(name, "activation", text, kind="elementwise", flops=flops)


def _scale(part: Scale, context: Context, label: str, pixels: FeatureMap, source: str, target: str) -> Operator:
    text = f"{source}[b c i j] G_{context.tensor('scale')}[c] -> {target}[b c i j]"
    return context.build(pixels).operator(f"{context.part}.scale", context.part, text, kind="elementwise", flops=1)


def _response_norm(
    part: ResponseNorm, context: Context, label: str, pixels: FeatureMap, source: str, target: str
) -> Operator:
    gain, bias = f"G_{context.tensor('response')}[c]", f"B_{context.tensor('response')}[c]"
    text = f"{source}[b c i j] {gain} {bias} -> {target}[b c i j]"
    return context.build(pixels).operator(
        f"norm.{context.part}_response", "norm", text, kind="norm", flops=vector_flops.RESPONSE_NORM
    )


STEPS: dict[type, Callable[[Any, Context, str, FeatureMap, str, str], Operator]] = {
    Convolution: convolution,
    Pool: _pool,
    Norm: _norm,
    Activation: _activation,
    Scale: _scale,
    ResponseNorm: _response_norm,
}


# --- Patches ----------------------------------------------------------------------------------------


def patches(table: Patches, hidden: Number, step: Step) -> Iterator[Operator]:
    """Image patches as tokens `x[b t d]`: a non-overlapping convolution, special tokens, position embedding."""
    context, pixels = Context(step, "embedding"), FeatureMap(table.channels, *step.image)
    filters = Convolution("patches", hidden, table.patch, table.patch, bias=table.bias)
    yield from steps([filters], context, pixels, "image", "y")
    rows = table.tokens(table.image)
    build = context.build(output_map([filters], pixels), d=hidden, t=step.tokens, p=rows)
    special = "".join(f" E_{name}[d]" for name in table.special)
    yield build.operator("embedding.tokens", "embedding", f"y[b d i j]{special} -> x[b t d]", kind="elementwise")
    if table.positions:
        yield from _positions(table, hidden, step, build)
    if table.norm:
        yield norm(build, "patches", table.norm, "x[b t d]", "x[b t d]")


def _positions(table: Patches, hidden: Number, step: Step, build: Builder) -> Iterator[Operator]:
    """The addition of a learned vector for each position; the table is resized for images of another size."""
    position = "E_position[p d]"
    if step.image != table.image:
        position = "e[t d]"
        resized = build.operator("embedding.resize_positions", "embedding", "E_position[p d] -> e[t d]", kind="resize")
        new = step.tokens - len(table.special)
        yield replace(resized, vector_flops=vector_flops.BICUBIC * new * hidden)
    yield build.operator(
        "embedding.add_position", "embedding", f"x[b t d] + {position} -> x[b t d]", kind="elementwise"
    )
