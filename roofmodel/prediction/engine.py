"""How long the operators of a phase take as a runtime runs them.

Eager: a framework runs operators one by one, and kernels beside them that no operator counts (`beside`). Megatron: the
same, but for kernels that Megatron-LM fuses.

Graph: as an engine runs them, captured as a graph, with neighbours fused. Serving engines and compilers (TensorRT-LLM,
vLLM, torch.compile) launch fewer kernels than a model has operators. Counted here as they do it everywhere: products of
one input, such as queries, keys and values, or gate and up, run as one product with the columns of all; what products
take narrower than it goes from operator to operator (`--activations`) is written so by the kernel before; sums and
rotary embedding run inside the kernel beside them, so that they cost their bytes and no launch. Everything else is a
kernel of its own. Collectives are NCCL's: by the sets of engines' own all-reduces, a few microseconds less each, models
that several GPUs serve come out no nearer (`benchmarks/accuracy.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from roofmodel.algebra import Number, either, largest, maximum, minimum
from roofmodel.counting.operator import Operator, Tensor
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Dropout
from roofmodel.prediction.roofline import Placement
from roofmodel.prediction.timing import (
    Expected,
    Formula,
    expect,
    expect_moved,
    held,
    movement,
    together,
)

MASK = 1  # bytes that dropout keeps of an element: whether it stayed
WIDE = 4  # bytes of an element of the loss, which frameworks compute in fp32


class Beside(NamedTuple):
    """A kernel that eager mode runs beside an operator: what it does, and the bytes that it reads and writes."""

    name: str
    bytes: Number


def expect_eager(
    operator: Operator, placed: Placement, kernels: Sequence[Beside], device: Device, dtype: str
) -> Expected | None:
    """The expected time of one occurrence of an operator, with the kernels beside it."""
    time = expect(operator, device, dtype, placed=placed)
    for kernel in kernels:
        more = expect_moved(kernel.bytes, device, dtype)
        time = time and more and time + more
    return time


def beside(operators: Sequence[Operator], dropout: Dropout, fused: bool = False) -> Iterator[tuple[Beside, ...]]:
    """By operator, in order, the kernels that PyTorch's eager mode runs beside it.

    Attention scales the scores and adds the mask in kernels of their own (transformers' `eager_attention_forward`); the
    gradient of scaling is one more. Its batched products want the rows of a head together, so that queries, keys,
    values and what comes of them are copied, as are their gradients (`torch.matmul`); keys and values that query heads
    share are copied for each of them (`repeat_kv`), and read so, or added up. A norm's backward pass reads its
    input and gradient once more for gain and bias (`native_layer_norm_backward`). Dropout reads, writes and keeps a
    mask, forward and backward (`native_dropout`); what is dropped of the embedding is left out. The loss is computed in
    fp32, and its gradient filled with zeros first.

    Fused as in Megatron-LM (Narayanan et al., arXiv 2104.04473, section 4.2), one kernel scales, masks and normalises
    scores, tensors lie so that products of heads need no copies, and what a block adds to the rows is dropped out by
    the kernel that adds it, which writes the mask beside.
    """
    added = {tensor.name for operator in operators for tensor in _added(operator) if dropout.rows}
    copied: set[tuple[object, ...]] = set()
    for operator in operators:
        found = [] if fused else list(_copies(operator, copied))
        gradient, first = operator.name.endswith(".grad"), operator.writes[0]
        if operator.kind == "softmax" and operator.group.endswith("attention"):
            apart = () if fused else ("scale",) if gradient else ("scale", "mask")
            found += [Beside(name, 2 * operator.bytes_of(first)) for name in apart]
            found += [_dropout(operator, first)] * dropout.probabilities
        elif operator.kind == "softmax" and operator.name.startswith("head.loss"):
            found.append(_in_fp32(operator, first, gradient))
        elif operator.kind == "norm" and gradient:
            found.append(Beside("gradients of gain and bias", 2 * largest(map(operator.bytes_of, operator.writes))))
        found += [_dropout(operator, tensor, fused) for tensor in _added(operator) if tensor.name in added]
        if operator.name.endswith(".grad_weight"):
            arriving = operator.reads[0]
            found += [_dropout(operator, arriving)] * (arriving.name.removeprefix("grad.") in added)
        yield tuple(found)


def _added(operator: Operator) -> tuple[Tensor, ...]:
    """Of a residual sum, what a block gives to it."""
    return operator.reads[1:] if operator.name.split(".")[-2:-1] == ["residual"] else ()


def _dropout(operator: Operator, tensor: Tensor, fused: bool = False) -> Beside:
    """What dropout moves of a tensor; fused with the kernel that has it, its mask alone."""
    mask = MASK * tensor.elements(operator.sizes)
    return Beside("dropout", mask if fused else 2 * operator.bytes_of(tensor) + mask)


def _copies(operator: Operator, copied: set[tuple[object, ...]]) -> Iterator[Beside]:
    """Of a product of attention, the copies of what has rows of heads, of each tensor once."""
    if operator.kind != "bmm" or not operator.group.endswith("attention"):
        return
    for tensor in (*operator.reads, *operator.writes):
        which = operator.group, operator.layers, tensor.name
        if "h" in tensor.axes and which not in copied:
            copied.add(which)
            # Once for each query head that shares it; its product reads all of these, and counts one.
            sharing = operator.sizes.get("g", 1) if "k" in tensor.axes and "g" not in tensor.axes else 1
            yield Beside(f"copy {tensor.name}", 2 * sharing * operator.bytes_of(tensor))


def _in_fp32(operator: Operator, logits: Tensor, gradient: bool) -> Beside:
    """Of a loss over so many logits, what its operator does not count.

    Narrow logits are cast, and what the operator reads and writes is as wide as the loss. The gradient that arrives is
    zeros but for the token that came: they are written, and read.
    """
    elements, narrow = logits.elements(operator.sizes), operator.bytes_of(logits)
    wide = maximum(WIDE * elements, narrow)
    cast = either(narrow < wide, narrow + wide, 0)
    return Beside("in fp32", cast + 2 * (wide - narrow) + 2 * wide * gradient)


class Fused(NamedTuple):
    """How an engine runs an operator: what one occurrence is expected to take, and the formula of a product's kernel.

    The kernel may be that of several products of one input, `together`, of which this one has `columns` out of all; or
    that of a neighbour, in which the operator `rides` along. Without a formula here it is the operator's own.
    """

    expected: Expected | None
    formula: Formula | None = None
    together: tuple[str, ...] = ()
    columns: tuple[Number, Number] = (1, 1)
    rides: bool = False


def fused(operators: Iterable[Operator], placed: Iterable[Placement], device: Device, dtype: str) -> Iterator[Fused]:
    """How an engine runs each operator, in order. What runs together shares its time by columns; what rides along takes
    its bound, and at most what it takes as a kernel of its own."""
    for _, run in groupby(zip(operators, placed, strict=True), key=lambda pair: _input(pair[0])):
        several, bounds = zip(*run, strict=True)
        if several[0].kind == "gemm" and (one := together(several, device, dtype)):
            yield from _shares(several, bounds, *one)
            continue
        for operator, bound in zip(several, bounds, strict=True):
            time, rides = expect(operator, device, dtype, placed=bound), _rides_along(operator)
            if time and rides:
                least = minimum(time.seconds, bound.bound_seconds)  # the bound, but not known where no time is
                time = Expected(least, least, time.high)
            yield Fused(time, rides=rides)


def _shares(
    operators: Sequence[Operator], bounds: Sequence[Placement], one: Formula, columns: Sequence[Number]
) -> Iterator[Fused]:
    """Of products that run as one, the part of each; of a single one all."""
    names, every = tuple(operator.name for operator in operators), sum(columns)
    for bound, own in zip(bounds, columns, strict=True):
        if len(operators) == 1:
            yield Fused(held(one.seconds, one.fit, bound.bound_seconds), one)
        else:
            share = held(one.seconds * own / every, one.fit, bound.bound_seconds)
            yield Fused(share, one, names, (own, every))


def _input(operator: Operator) -> object:
    """The same for products that run as one: of the same input, in the same layers; else the operator itself."""
    if operator.kind != "gemm" or operator.gemm is None:
        return id(operator)
    return operator.lines[0].factors[0], operator.layers, operator.stage


def _rides_along(operator: Operator) -> bool:
    return operator.kind == "elementwise" and movement(operator) in ("add", "rotary")
