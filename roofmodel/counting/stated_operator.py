"""An operator that the user states as a line and sizes: `A[i k] B[k j] -> C[i j]` with i, j and k.

The FLOPs follow from the loops over all axes of the factors: for each point, one multiplication less than there are
factors, and one addition if an axis is summed over. A contraction of two tensors is matmul work, anything else vector
work. Each added term is one addition per output element.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.tensors import OperatorLine, Sizes, Widths, parse, split_axes
from roofmodel.errors import Option, WorkloadError, shorten
from roofmodel.numbers.algebra import Number, product

MAX_LINE = 500  # characters
MAX_SIZE = 10**9
NAME = "kernel"
EXAMPLE = "'A[i k] B[k j] -> C[i j]'"


def stated_line(text: str) -> OperatorLine:
    """The parsed line; commas between axes are optional. Raises WorkloadError, which quotes the line."""
    if len(text) > MAX_LINE:
        raise WorkloadError(Option("line"), f" is longer than {MAX_LINE} characters")
    try:
        line = parse(" ".join(text.replace(",", " ").split()))
    except ValueError as error:
        raise WorkloadError(Option("line"), f": {error}; try {EXAMPLE}") from None
    tensors = (*line.inputs, *line.outputs)
    for tensor in tensors:
        if any(not re.fullmatch(r"[A-Za-z]\w*'?([:+][A-Za-z]\w*'?)*", axis) for axis in tensor.axes):
            raise WorkloadError(
                Option("line"), f": {tensor} needs axes that are names, such as {tensor.name}[i k]; try {EXAMPLE}"
            )
    if not single_axes(line):
        raise WorkloadError(Option("line"), f": no tensor has an axis; try {EXAMPLE}")
    input_axes = {axis for tensor in line.inputs for axis in split_axes(tensor.axes)}
    for tensor in line.outputs:
        if missing := [axis for axis in split_axes(tensor.axes) if axis not in input_axes]:
            raise WorkloadError(Option("line"), f": no input has the axis {missing[0]} of {tensor}")
    return line


def stated_sizes(line: OperatorLine, sizes: Mapping[str, object]) -> dict[str, int]:
    """The size of each axis of a line. Raises WorkloadError for a missing or unknown axis, and for an invalid size."""
    axes = single_axes(line)
    for axis, size in sizes.items():
        if axis not in axes:
            raise WorkloadError(Option("size"), f": the line has no axis {axis!r}; its axes are {', '.join(axes)}")
        if type(size) is not int or not 1 <= size <= MAX_SIZE:
            raise WorkloadError(
                Option("size"), f": {axis} is {shorten(size)}; it must be a whole number from 1 to {MAX_SIZE}"
            )
    if missing := [axis for axis in axes if axis not in sizes]:
        raise WorkloadError(
            Option("size"), f": the size of {', '.join(missing)} is missing; add ", Option("size", f"{missing[0]}=1024")
        )
    return {axis: int(str(sizes[axis])) for axis in axes}


def parsed_sizes(texts: Iterable[str]) -> dict[str, object]:
    """The sizes in texts such as `i=4096` and `i=4096,k=512`; `i=n` stays `n`. Raises WorkloadError for other text."""
    sizes: dict[str, object] = {}
    for part in (part for text in texts for part in text.split(",")):
        axis, equals, size = (each.strip() for each in part.partition("="))
        if equals and axis and size == "n":
            sizes[axis] = size
            continue
        if not equals or not axis or not (size.isascii() and size.removeprefix("-").isdigit() and len(size) < 20):
            raise WorkloadError(
                Option("size"), f": {shorten(part)} is not AXIS=SIZE; try ", Option("size", "i=4096")
            )  # fmt: skip
        sizes[axis] = int(size)
    return sizes


def single_axes(line: OperatorLine) -> tuple[str, ...]:
    """The axes of a line, in order; `i+r` and `t:s` count as two."""
    tensors = (*line.inputs, *line.outputs)
    return tuple(dict.fromkeys(axis for tensor in tensors for axis in split_axes(tensor.axes)))


def with_combined_axes(line: OperatorLine, sizes: Sizes) -> dict[str, Number]:
    """The sizes with those of sliding axes, i + r - 1, and of joint axes, t × s."""
    lengths: dict[str, Number] = dict(sizes)
    for axis in (axis for tensor in (*line.inputs, *line.outputs) for axis in tensor.axes):
        parts = [sizes[part] for part in split_axes([axis])]
        if "+" in axis:
            lengths[axis] = sum(parts) - len(parts) + 1
        elif ":" in axis:
            lengths[axis] = product(parts)
    return lengths


def operator(line: OperatorLine, sizes: Sizes, widths: Widths) -> Operator:
    """The operator of a line, for sizes of its single axes: numbers or symbols."""
    kind = "gemm" if line.contracted else "elementwise"
    if line.contracted and any("+" in axis for tensor in line.factors for axis in tensor.axes):
        kind = "conv"
    kernel = Builder(with_combined_axes(line, sizes), widths).operator(NAME, "kernel", line.text, kind=kind)
    if line.contracted:
        return kernel
    output_axes = {axis for tensor in line.outputs for axis in split_axes(tensor.axes)}
    summed = any(axis not in output_axes for tensor in line.factors for axis in split_axes(tensor.axes))
    per_point = len(line.factors) - 1 + summed
    points = product(kernel.sizes[axis] for axis in line.axes)
    return replace(kernel, vector_flops=kernel.vector_flops + per_point * points)


def meaning(line: OperatorLine, axis: str) -> str:
    """`axis of A and C`, `axis of A and B, summed over`."""
    tensors = {tensor.name: tensor for tensor in (*line.inputs, *line.outputs)}
    names = [name for name, tensor in tensors.items() if axis in tensor.axes or axis in split_axes(tensor.axes)]
    outputs = {each for tensor in line.outputs for each in (*tensor.axes, *split_axes(tensor.axes))}
    words = f"axis of {', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else f"axis of {names[0]}"
    return words if axis in outputs or ":" in axis or "+" in axis else f"{words}, summed over"
