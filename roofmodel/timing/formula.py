"""What all timing formulas share, the device figures that they use and their description in `roof explain`; and the
simplest one, that of kernels that only move data: elementwise work, norms, softmax, lookups, copies.
"""

from __future__ import annotations

from types import ModuleType
from typing import Annotated, NamedTuple, get_origin, get_type_hints

from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import ElementwiseTiming
from roofmodel.devices.device import Device
from roofmodel.numbers.algebra import Number, Seconds, formula, maximum, minimum

PORT = 64  # bytes per clock between L2 and one SM, on NVIDIA GPUs since Volta


class Chip(NamedTuple):
    """The figures of a device for kernels of one compute format, in base units, from the datasheet."""

    multiprocessors: Annotated[int, "number of SMs"]
    peak: Annotated[float, "peak of the pipe that multiplies, in FLOP/s", "FLOP/s"]
    bandwidth: Annotated[float, "DRAM bandwidth, in bytes per second", "B/s"]
    l2: Annotated[float, "capacity of L2 in bytes; 0: unknown", "B"]
    port: Annotated[
        float, "bandwidth from L2 to all SMs, in bytes per second: 64 bytes per clock and SM, at boost clock", "B/s"
    ]


def chip(device: Device, dtype: str) -> Chip | None:
    """The figures for kernels of `dtype`; None where the device's file lacks the number of SMs or the boost clock.

    Raises WorkloadError where the device has no pipe for `dtype`.
    """
    clock = device.clocks.get("boost")
    if device.multiprocessors is None or clock is None:
        return None
    return Chip(
        multiprocessors=device.multiprocessors,
        peak=device.matmul_pipe(dtype).peak,
        bandwidth=device.bandwidth,
        l2=l2_bytes(device),
        port=device.multiprocessors * clock * PORT,
    )


def l2_bytes(device: Device) -> int:
    """The capacity of L2 in bytes; 0 where it is unknown."""
    capacity = device.levels["l2"].capacity if "l2" in device.levels else None
    return 0 if capacity is None else capacity


def dram_share(data: Number, capacity: Number) -> Number:
    """The share of `data` bytes that a repeated kernel reads from DRAM, where L2 keeps `capacity` bytes.

    0 up to that capacity, 1 from twice of it: L2 does not replace the oldest data first.
    """
    return minimum(maximum(data - capacity, 0) / maximum(capacity, 1), 1)


def stream_seconds(moved: Number, held: Number, chip: Chip, dram: Number, l2: Number) -> Number:
    """Seconds to read and write `moved` bytes: in L2 where it holds `held` of them, otherwise in DRAM.

    `dram` and `l2` are the shares of both bandwidths that a kernel reaches. Where L2 is the slower one by these
    parameters, more bytes than it holds take no less time than those that it holds.
    """
    in_l2 = moved / (l2 * chip.port)
    in_dram = maximum(moved / (dram * chip.bandwidth), in_l2 * (chip.l2 / maximum(held, 1)))
    fits = held <= chip.l2
    return in_l2 * fits + in_dram * (1 - fits)


def overlap(first: Number, second: Number) -> Number:
    """Seconds of two parts of a kernel that overlap, but not perfectly: between the longer one and the sum of both."""
    return (first * first + second * second) ** 0.5


UNFITTED = (
    "set by hand while this formula was developed on aiconfigurator's tables of A100 and H100; `roof calibrate` does "
    "not fit them."
)
"""The source of tile shapes and constants."""


class FormulaDescription(NamedTuple):
    """A timing formula as text."""

    name: str
    """The formula's name in JSON output."""
    title: str
    summary: str
    equation: str
    terms: tuple[tuple[str, str], ...] = ()
    """(name, meaning) pairs of the equation."""
    notes: tuple[str, ...] = ()
    source: str = ""
    """Where the formula comes from: a paper, a manual, or the measurements that it was fitted to."""
    constants: tuple[str, ...] = ()
    """Names of the module's constants that the formula uses. Their definitions have the values and meanings."""


class Meaning(NamedTuple):
    """What a number of a formula is."""

    text: str
    unit: str = ""


def meanings(owner: type | ModuleType) -> dict[str, Meaning]:
    """Name -> meaning of a record's fields or a module's constants.

    They are declared as `Annotated[type, text]`, `Annotated[type, text, unit]` or with a `Parameter`.
    """
    hints = get_type_hints(owner, include_extras=True)
    declared = {name: hint.__metadata__ for name, hint in hints.items() if get_origin(hint) is Annotated}
    return {
        name: Meaning(*each) if isinstance(each[0], str) else Meaning(each[0].meaning, each[0].unit)
        for name, each in declared.items()
    }


ELEMENTWISE = FormulaDescription(
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
def elementwise_seconds(data: Number, compute_seconds: Number, chip: Chip, timing: ElementwiseTiming) -> Number:
    """Seconds to read and write `data` bytes, and at least `compute_seconds`; elementwise for arrays."""
    stream: Seconds = stream_seconds(data, data, chip, timing.dram, timing.l2)
    return timing.latency + maximum(stream, compute_seconds)


def elementwise_kind(operator: Operator) -> str:
    """The kind of a kernel that moves data: `norm`, `softmax`, `gather`, `scan`, `rotary`, `activation` or `add`."""
    if operator.kind in ("norm", "softmax", "gather", "scan"):
        return operator.kind
    name = operator.name.removesuffix(".grad")
    return next((kind for kind in ("rotary", "activation") if name.endswith(kind)), "add")
