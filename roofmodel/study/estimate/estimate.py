"""The main job: a model, a workload and a device -> what must be done, how fast it could go, and how fast it will.

The bound needs the datasheet only. The expectation is the timing model's, and None where the device is not calibrated
for every operator: there is no efficiency factor to multiply with.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

from roofmodel.algebra import Number
from roofmodel.counting import memory, phases
from roofmodel.counting.workload import ONE_GPU, Workload
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture
from roofmodel.study.estimate.capacity import largest_batch, largest_context
from roofmodel.study.estimate.notes import device_notes, host_notes, memory_notes, model_notes, timing_notes, use_notes
from roofmodel.study.estimate.options import LONGEST, workload
from roofmodel.study.estimate.phase import PhaseEstimate
from roofmodel.study.estimate.pipeline import slowest, without_cache


class Estimate(NamedTuple):
    """A model on a device under a workload."""

    architecture: Architecture
    device: Device
    workload: Workload
    parameters: int
    active_parameters: int  # those that a token meets: of a mixture of experts, not all
    phases: tuple[PhaseEstimate, ...]
    memory: memory.Memory
    notes: tuple[str, ...]
    largest_batch: int | None  # that fits; None where the device's memory is not known
    largest_context: int | None  # likewise the value of --context if given, else --seq; None too where any length fits

    @property
    def fits(self) -> bool | None:
        """Whether the memory fits the device's; None where the device's is not known."""
        capacity = self.device.capacity
        return None if capacity is None else bool(self.memory.total <= capacity)


def estimate(arch: Architecture, device: Device, **options: Any) -> Estimate:
    """Count the workload that the options describe (see `options.Options`) and place it on the device.

    Raises WorkloadError for options that make no sense, or a type that the device lacks.
    """
    work, notes = workload(arch, **options)
    found = []
    for step in work.steps():
        phase = slowest(arch, device, step, work.host)
        if step.phase == "generate":
            phase = phase._replace(uncached=without_cache(arch, device, phase.step))
        found.append(phase)
    held, active, weights = _parameters(arch, work)
    peaks = (phases.phase_memory(arch, phase.step, weights, phase.operators) for phase in found)
    needed = reduce(memory.Memory.larger, peaks)
    return Estimate(
        architecture=arch,
        device=device,
        workload=work,
        parameters=held,
        active_parameters=active,
        phases=tuple(found),
        memory=needed,
        notes=(
            *arch.notes,
            *notes,
            *model_notes(arch, work),
            *device_notes(device, work),
            *memory_notes(device, needed.total),
            *timing_notes(device, found),
            *use_notes(found),
            *host_notes(found),
        ),
        largest_batch=device.capacity and largest_batch(arch, work, needed, device.capacity, LONGEST),
        largest_context=None
        if arch.image
        else device.capacity and largest_context(arch, work, needed, device.capacity, LONGEST),
    )


def parameters(arch: Architecture) -> tuple[int, int]:
    """How many parameters a model has, and how many of them a token meets."""
    return _parameters(arch, workload(arch)[0])[:2]


def _parameters(arch: Architecture, work: Workload) -> tuple[Any, Any, Number]:
    """How many parameters a model has, how many of them a token meets, and the bytes of those that a GPU has."""
    step = work.steps()[0]
    whole = phases.model_operators(arch, step._replace(parallel=ONE_GPU))
    shared = step.parallel != ONE_GPU
    weights = phases.weight_bytes(arch, step) if shared else memory.weight_bytes(arch, whole)
    return memory.parameters(arch, whole), memory.active_parameters(arch, whole), weights
