"""Expected time of kernels that only move data: elementwise work, norms, softmax, lookups, copies."""

from __future__ import annotations

from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import ElementwiseTiming
from roofmodel.numbers.algebra import Number, Seconds, formula, maximum
from roofmodel.timing.formula import Chip, FormulaDescription, stream_seconds

DESCRIPTION = FormulaDescription(
    name="elementwise",
    title="elementwise kernels, and others that only move data",
    summary="Time of elementwise work, norms, softmax, lookups and copies: bytes over a bandwidth, or the arithmetic.",
    equation="latency + max(stream, compute_seconds)",
    terms=(
        (
            "stream",
            "data / (DRAM bandwidth × dram), or / (L2 ports × l2) where all data fits in L2; more data never takes "
            "less time",
        ),
        ("compute_seconds", "vector FLOPs / CUDA-core peak"),
    ),
    notes=("Data that fits in L2 is read from there: the previous kernel has just written it.",),
    source="Parameters: ElementwiseTiming, fitted by `roof calibrate`.",
)


@formula
def seconds(data: Number, compute_seconds: Number, chip: Chip, timing: ElementwiseTiming) -> Number:
    """Seconds to read and write `data` bytes, and at least `compute_seconds`; elementwise for arrays."""
    stream: Seconds = stream_seconds(data, data, chip, timing.dram, timing.l2)
    return timing.latency + maximum(stream, compute_seconds)


def elementwise_kind(operator: Operator) -> str:
    """The kind of a kernel that moves data: `norm`, `softmax`, `gather`, `scan`, `rotary`, `activation` or `add`."""
    if operator.kind in ("norm", "softmax", "gather", "scan"):
        return operator.kind
    name = operator.name.removesuffix(".grad")
    return next((kind for kind in ("rotary", "activation") if name.endswith(kind)), "add")
