"""Expected times of operators as serving engines run them: captured in a graph, with neighboring operators fused.

Engines and compilers (TensorRT-LLM, vLLM, torch.compile) launch fewer kernels than a model has operators. Only the
fusions that all of them apply are counted:

- GEMMs with the same input, such as queries, keys and values, or gate and up, run as one GEMM with all their columns.
- Where GEMMs compute in a narrower format than `--activations`, the previous kernel writes their input in that format.
- Residual adds and rotary embedding run inside a neighboring kernel: they cost their bytes and no launch.

Every other operator is a kernel of its own. Collectives are NCCL's: with the parameters of engines' own all-reduces,
which are a few microseconds faster, expected times of models on several GPUs are not closer to the measurements
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
    """How an engine runs an operator: the expected time of one occurrence, and the formula of its kernel.

    `merged` names the operators of a merged GEMM; this operator has `columns` = (own, all) of it. An `absorbed`
    operator runs inside a neighboring kernel. `formula` is None where the operator's own formula applies.
    """

    expected: Expected | None
    formula: Formula | None = None
    merged: tuple[str, ...] = ()
    columns: tuple[Number, Number] = (1, 1)
    absorbed: bool = False


def fused(operators: Iterable[Operator], placed: Iterable[Placement], device: Device, dtype: str) -> Iterator[Fused]:
    """How an engine runs each operator, in order.

    Merged GEMMs share their time by columns. An absorbed operator takes its bound, at most its time as a kernel of its
    own.
    """
    for _, run in groupby(zip(operators, placed, strict=True), key=lambda pair: _input(pair[0])):
        several, bounds = zip(*run, strict=True)
        if several[0].kind == "gemm" and (one := merged_gemms(several, device, dtype)):
            yield from _shares(several, bounds, *one)
            continue
        for operator, bound in zip(several, bounds, strict=True):
            time, absorbed = expect(operator, device, dtype, placed=bound), _is_absorbed(operator)
            if time and absorbed:
                least = minimum(time.seconds, bound.bound_seconds)  # the bound, where an expected time is known
                time = Expected(least, least, time.high)
            yield Fused(time, absorbed=absorbed)


def _shares(
    operators: Sequence[Operator], bounds: Sequence[Placement], one: Formula, columns: Sequence[Number]
) -> Iterator[Fused]:
    """The share of each operator in a merged GEMM; a single GEMM has all of it."""
    names, every = tuple(operator.name for operator in operators), sum(columns)
    for bound, own in zip(bounds, columns, strict=True):
        if len(operators) == 1:
            yield Fused(clamp_to_bound(one.seconds, one.fit, bound.bound_seconds), one)
        else:
            share = clamp_to_bound(one.seconds * own / every, one.fit, bound.bound_seconds)
            yield Fused(share, one, names, (own, every))


def _input(operator: Operator) -> object:
    """A key that is equal for GEMMs that are merged: same input, layers and stage; unique for any other operator."""
    if operator.kind != "gemm" or operator.gemm is None:
        return id(operator)
    return operator.lines[0].factors[0], operator.layers, operator.stage


def _is_absorbed(operator: Operator) -> bool:
    return operator.kind == "elementwise" and stream_kind(operator) in ("add", "rotary")
