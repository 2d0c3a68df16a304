"""The smallest change with which a workload fits into a device's memory: more GPUs, or a narrower weight format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from roofmodel.counting import phases
from roofmodel.counting.memory import Memory
from roofmodel.counting.number_formats import FORMATS
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.errors import Option, Text, WarningNote, WorkloadError, joined
from roofmodel.models.architecture import Architecture
from roofmodel.study.estimate.capacity import usable_memory
from roofmodel.study.estimate.options import workload
from roofmodel.study.estimate.parallelism import possible_tp

MAX_GPUS = 64
"""The largest tensor-parallel or pipeline-parallel size that is tried."""
NARROWER = ("fp8", "int4")
"""Weight formats that are tried, the widest first."""


def fitting_notes(
    arch: Architecture, device: Device, work: Workload, needed: Memory, options: Mapping[str, Any]
) -> Iterator[Text]:
    """If the workload does not fit: the smallest `--tp`, the smallest `--pp` and the widest `--weights` that do.

    Each is tried alone, with the other options as they are.
    """
    if device.capacity is None or needed.total <= usable_memory(device, work):
        return

    def first_that_fits(name: str, candidates: Iterable[tuple[Any, float]]) -> Option | None:
        usable = usable_memory(device, work)
        possible = (value for value, share in candidates if share * needed.total <= usable)
        return next((Option(name, value) for value in possible if _fits(arch, device, {**options, name: value})), None)

    found = [first_that_fits(name, candidates) for name, candidates in _candidates(arch, work, needed)]
    if named := [option for option in found if option is not None]:
        yield WarningNote(f"the workload does not fit on {device.id}; it fits with ", joined(" or with ", named))
    else:
        yield WarningNote(
            f"the workload does not fit on {device.id}, nor with ", Option("tp"), " or ", Option("pp"),
            f" up to {MAX_GPUS} or narrower weights; try a smaller batch or a shorter context",
        )  # fmt: skip


def _candidates(arch: Architecture, work: Workload, needed: Memory) -> Iterator[tuple[str, list[tuple[Any, float]]]]:
    """By option: its values, and the smallest share of the bytes that each one can leave on a GPU.

    The share is a lower bound: a value whose share does not fit needs no walk through the model.
    """
    tp, pp = work.parallel.tp, work.parallel.pp
    yield "tp", [(n, tp / n) for n in possible_tp(arch, work.parallel.dp, work.parallel.ep) if tp < n <= MAX_GPUS]
    yield "pp", [(n, pp / n) for n in (2**power for power in range(1, 7)) if pp < n <= MAX_GPUS]
    if "train" not in work.phases:
        bits = work.widths.weights.bits
        kept = needed.total - needed.weights
        shares = {name: FORMATS[name].bits / bits for name in NARROWER if FORMATS[name].bits < bits}
        yield "weights", [(name, (kept + share * needed.weights) / needed.total) for name, share in shares.items()]


def _fits(arch: Architecture, device: Device, options: Mapping[str, Any]) -> bool:
    """Whether the workload that the options describe fits; False where it cannot be sharded in this way."""
    try:
        work, _ = workload(arch, **options)
        weights = phases.weight_bytes(arch, work.steps()[0])
        return bool(phases.peak_memory(arch, work, weights).total <= usable_memory(device, work))
    except WorkloadError:
        return False
