"""How long the operators of a phase take as an engine runs them: captured as a graph, with neighbours fused.

Serving engines and compilers (TensorRT-LLM, vLLM, torch.compile) launch fewer kernels than a model has operators.
Counted here as they do it everywhere: products of one input, such as queries, keys and values, or gate and up, run as
one product with the columns of all; what products take narrower than it goes from operator to operator
(`--activations`) is written so by the kernel before; sums and rotary embedding run inside the kernel beside them, so
that they cost their bytes and no launch. Everything else is a kernel of its own. Collectives are NCCL's: by the sets of
engines' own all-reduces, a few microseconds less each, models that several GPUs serve come out no nearer
(`benchmarks/accuracy.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from roofmodel.algebra import Number, minimum
from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.prediction.roofline import Placement
from roofmodel.prediction.stream import stream_kind
from roofmodel.prediction.timing import (
    Expected,
    Formula,
    clamp_to_bound,
    expect,
    merged_gemms,
)


class Fused(NamedTuple):
    """How an engine runs an operator: what one occurrence is expected to take, and the formula of a product's kernel.

    The kernel may be that of several products of one input, `together`, of which this one has `columns` out of all; or
    that of a neighbour, in which the operator `rides` along. Without a formula here it is the operator's own.
    """

    expected: Expected | None
    formula: Formula | None = None
    merged: tuple[str, ...] = ()
    columns: tuple[Number, Number] = (1, 1)
    absorbed: bool = False


def fused(operators: Iterable[Operator], placed: Iterable[Placement], device: Device, dtype: str) -> Iterator[Fused]:
    """How an engine runs each operator, in order. What runs together shares its time by columns; what rides along takes
    its bound, and at most what it takes as a kernel of its own."""
    for _, run in groupby(zip(operators, placed, strict=True), key=lambda pair: _input(pair[0])):
        several, bounds = zip(*run, strict=True)
        if several[0].kind == "gemm" and (one := merged_gemms(several, device, dtype)):
            yield from _shares(several, bounds, *one)
            continue
        for operator, bound in zip(several, bounds, strict=True):
            time, absorbed = expect(operator, device, dtype, placed=bound), _is_absorbed(operator)
            if time and absorbed:
                least = minimum(time.seconds, bound.bound_seconds)  # the bound, but not known where no time is
                time = Expected(least, least, time.high)
            yield Fused(time, absorbed=absorbed)


def _shares(
    operators: Sequence[Operator], bounds: Sequence[Placement], one: Formula, columns: Sequence[Number]
) -> Iterator[Fused]:
    """Of products that run as one, the part of each; of a single one all."""
    names, every = tuple(operator.name for operator in operators), sum(columns)
    for bound, own in zip(bounds, columns, strict=True):
        if len(operators) == 1:
            yield Fused(clamp_to_bound(one.seconds, one.fit, bound.bound_seconds), one)
        else:
            share = clamp_to_bound(one.seconds * own / every, one.fit, bound.bound_seconds)
            yield Fused(share, one, names, (own, every))


def _input(operator: Operator) -> object:
    """The same for products that run as one: of the same input, in the same layers; else the operator itself."""
    if operator.kind != "gemm" or operator.gemm is None:
        return id(operator)
    return operator.lines[0].factors[0], operator.layers, operator.stage


def _is_absorbed(operator: Operator) -> bool:
    return operator.kind == "elementwise" and stream_kind(operator) in ("add", "rotary")
