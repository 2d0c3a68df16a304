"""The estimate of a workload: operator counts, memory, and the bound and expected time of each phase on a device.

The bound needs the datasheet only. The expected time comes from the timing model; it is None if the device is not
calibrated for every operator. There is no efficiency factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from roofmodel.algebra import Number, is_just
from roofmodel.counting import memory, phases
from roofmodel.counting.operator import Operator
from roofmodel.counting.workload import ONE_GPU, Parallel, Workload
from roofmodel.devices.device import Device
from roofmodel.errors import Text
from roofmodel.models.architecture import Architecture
from roofmodel.study.estimate.alternatives import fitting_notes
from roofmodel.study.estimate.capacity import MemoryFormula, largest_batch, largest_context, usable_memory
from roofmodel.study.estimate.notes import (
    device_notes,
    launch_notes,
    matmul_format_notes,
    memory_notes,
    model_notes,
    timing_notes,
    utilization_notes,
    weight_format_notes,
)
from roofmodel.study.estimate.options import MAX_VALUE, workload
from roofmodel.study.estimate.phase import PhaseEstimate
from roofmodel.study.estimate.pipeline import slowest_stage, without_cache
from roofmodel.study.estimate.stages import first_and_last_decode


class Estimate(NamedTuple):
    """A model on a device under a workload."""

    architecture: Architecture
    device: Device
    workload: Workload
    parameters: int
    active_parameters: int  # of one token: MoE routes it to some of the experts
    phases: tuple[PhaseEstimate, ...]
    memory: memory.Memory
    notes: tuple[Text, ...]
    largest_batch: int | None  # that fits; None where the device's memory is unknown
    largest_context: int | None  # that fits, of --context if given, else of --seq; None also where any length fits

    @property
    def usable_memory(self) -> Number | None:
        """The bytes that the workload may use: `--memory-utilization` of the device's memory; None if unknown."""
        return None if self.device.capacity is None else usable_memory(self.device, self.workload)

    @property
    def fits(self) -> bool | None:
        """Whether the workload fits into the usable memory; None where the device's memory is unknown."""
        return None if self.usable_memory is None else bool(self.memory.total <= self.usable_memory)


def estimate(arch: Architecture, device: Device, **options: Any) -> Estimate:
    """The estimate of the workload that the options describe (see `options.Options`) on the device.

    Raises WorkloadError for invalid options, and for a number format that the device does not support.
    """
    work, notes = workload(arch, **options)
    found = []
    for step in work.steps():
        phase = slowest_stage(arch, device, step, work.host)
        if step.phase == "generate":
            decodes = (slowest_stage(arch, device, one, work.host) for one in first_and_last_decode(phase.step))
            uncached = without_cache(arch, device, phase.step)
            phase = phase._replace(uncached=uncached, first_and_last=tuple(decodes))
        found.append(phase)
    all_operators = _all_operators(arch, found, ONE_GPU)
    own = all_operators if work.parallel == ONE_GPU else _all_operators(arch, found, work.parallel)
    weights = memory.weight_bytes(phases.gpu_share(arch, work.steps()[0]), own)
    formula = MemoryFormula(arch, work, weights)
    needed = formula.at({})
    usable = None if device.capacity is None else usable_memory(device, work)
    return Estimate(
        architecture=arch,
        device=device,
        workload=work,
        parameters=memory.parameters(arch, all_operators),
        active_parameters=memory.active_parameters(arch, all_operators),
        phases=tuple(found),
        memory=needed,
        notes=(
            *arch.notes,
            *notes,
            *model_notes(arch, work),
            *device_notes(device, work),
            *weight_format_notes(arch, work, all_operators),
            *matmul_format_notes(arch, device, work),
            *fitting_notes(arch, device, work, needed, options),
            *memory_notes(device, work, needed.total),
            *timing_notes(device, found),
            *utilization_notes(found),
            *launch_notes(found),
        ),
        largest_batch=usable and largest_batch(formula, usable, MAX_VALUE),
        largest_context=(None if arch.image else usable and largest_context(formula, usable, MAX_VALUE)),
    )


def parameters(arch: Architecture) -> tuple[int, int]:
    """The number of parameters of a model, and how many of them are active for a token (MoE: the routed experts)."""
    all_operators = phases.model_operators(arch, workload(arch)[0].steps()[0])
    return memory.parameters(arch, all_operators), memory.active_parameters(arch, all_operators)


def _all_operators(arch: Architecture, found: Sequence[PhaseEstimate], parallel: Parallel) -> Sequence[Operator]:
    """Operators that name every parameter of the share of one GPU.

    Those of a prefill or forward pass, if it was counted for `parallel`, else of a further walk through the model.
    """
    first = found[0]
    step = first.step
    if step.parallel == parallel and step.phase in ("prefill", "forward", "generate") and is_just(step.context, 0):
        return (
            [placed.operator for placed in first.of_stage("prefill")] if step.phase == "generate" else first.operators
        )
    return phases.model_operators(arch, step._replace(parallel=parallel))
