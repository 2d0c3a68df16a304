"""The estimate of a workload: operator counts, memory, and the bound and expected time of each phase on a device.

The bound needs the datasheet only. The expected time comes from the timing model; it is None if the device is not
calibrated for every operator. There is no efficiency factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from roofmodel.counting import passes, phases
from roofmodel.counting.operator import Operator
from roofmodel.counting.workload import ONE_GPU, Step, Workload
from roofmodel.devices.device import Device
from roofmodel.errors import Text
from roofmodel.models.architecture import Architecture
from roofmodel.numbers.algebra import Number
from roofmodel.options.workload import MAX_VALUE
from roofmodel.steps.alternatives import fitting_notes
from roofmodel.steps.capacity import MemoryFormula, largest_batch, largest_context, usable_memory
from roofmodel.steps.engine_kernels import check_kernels
from roofmodel.steps.kernel_notes import kernel_notes
from roofmodel.steps.notes import (
    device_notes,
    eager_notes,
    exchange_notes,
    launch_notes,
    matmul_format_notes,
    memory_notes,
    model_notes,
    straggler_notes,
    utilization_notes,
    weight_format_notes,
)
from roofmodel.steps.options import workload
from roofmodel.steps.phase import PhaseEstimate, StageTime, pass_time
from roofmodel.steps.pipeline import slowest_stage, without_cache
from roofmodel.steps.routing import routing_notes

if TYPE_CHECKING:
    from roofmodel.steps.input_pipeline import InputPipeline, Loader


class Estimate(NamedTuple):
    """A model on a device under a workload."""

    architecture: Architecture
    device: Device
    workload: Workload
    parameters: int
    active_parameters: int  # of one token: MoE routes it to some of the experts
    phases: tuple[PhaseEstimate, ...]
    memory: passes.Memory  # without the sizes of weights in an unknown format, see `has_total`
    notes: tuple[Text, ...]
    largest_batch: int | None  # that fits; None where the device's memory or the weights' format is unknown
    largest_context: int | None  # that fits, of --context if given, else of --seq; None also where any length fits
    input_pipeline: InputPipeline | None = None  # of the phase, with --loader

    @property
    def has_total(self) -> bool:
        """Whether the total of the memory is known: that the format of the weights is."""
        return self.workload.weights_known

    @property
    def usable_memory(self) -> Number | None:
        """The bytes that the workload may use: `--memory-utilization` of the device's memory; None if unknown."""
        return None if self.device.capacity is None else usable_memory(self.device, self.workload)

    @property
    def fits(self) -> bool | None:
        """Whether the workload fits into the usable memory; None where the device's memory or the weights' format is
        unknown."""
        if self.usable_memory is None or not self.has_total:
            return None
        return bool(self.memory.total <= self.usable_memory)


def estimate(arch: Architecture, device: Device, *, loader: Loader | None = None, **options: Any) -> Estimate:
    """The estimate of the workload that the options describe (see `options.Options`) on the device.

    With a `loader` also of the input pipeline of a training step or a forward pass. Raises WorkloadError for invalid
    options, and for a number format that the device does not support.
    """
    work, notes = workload(arch, device, **options)
    check_kernels(work.engine, [device])
    estimates = [slowest_stage(arch, device, step, work.engine) for step in work.steps()]
    walk = passes.CachedWalks(_counted(estimates))
    first = phases.whole_model_step(work.steps()[0])
    all_operators = walk(arch, first._replace(parallel=ONE_GPU))
    formula = MemoryFormula(arch, work, phases.weight_bytes(arch, first, walk=walk))
    if work.phases == ("generate",):
        estimates = [_with_decodes(arch, device, work, estimates[0], formula, walk)]
    needed = phases.peak_memory(arch, work, formula.weights, walk=walk)
    usable = None if device.capacity is None or not work.weights_known else usable_memory(device, work)
    pipeline, loader_notes = _with_loader(arch, device, estimates[0], loader) if loader else (None, ())
    return Estimate(
        architecture=arch,
        device=device,
        workload=work,
        parameters=passes.parameters(arch, all_operators),
        active_parameters=passes.active_parameters(arch, all_operators),
        phases=tuple(estimates),
        memory=needed,
        notes=(
            *arch.notes,
            *notes,
            *model_notes(arch, work),
            *device_notes(device, work),
            *weight_format_notes(arch, work, all_operators),
            *matmul_format_notes(arch, device, work),
            *routing_notes(arch, work.routing, work.parallel.ep),
            *(fitting_notes(arch, device, work, needed, options, walk) if work.weights_known else ()),
            *(memory_notes(device, work, needed.total) if work.weights_known else ()),
            *kernel_notes(device, work, estimates),
            *exchange_notes(estimates),
            *straggler_notes(device, work),
            *utilization_notes(estimates),
            *launch_notes(estimates),
            *eager_notes(work, estimates),
            *loader_notes,
        ),
        largest_batch=usable and largest_batch(formula, needed, usable, MAX_VALUE),
        largest_context=None if arch.image else usable and largest_context(formula, needed, usable, MAX_VALUE),
        input_pipeline=pipeline,
    )


def _with_loader(
    arch: Architecture, device: Device, phase: PhaseEstimate, loader: Loader
) -> tuple[InputPipeline | None, Iterable[Text]]:
    """The input pipeline of a phase, and its notes; None for a phase that reads no batches from a data loader."""
    from roofmodel.steps.input_pipeline import FED_PHASES, input_notes, input_pipeline

    pipeline = input_pipeline(arch, device, phase, loader) if phase.step.phase in FED_PHASES else None
    return pipeline, input_notes(pipeline, device)


def _with_decodes(
    arch: Architecture,
    device: Device,
    work: Workload,
    phase: PhaseEstimate,
    formula: MemoryFormula,
    walk: passes.CachedWalks,
) -> PhaseEstimate:
    """Generation with the times of its first and last decode, and its bound without a KV cache.

    Without a pipeline, the operators of both decodes come from the formula; `walk` keeps those of the last one.
    """
    decodes = []
    steps = phases.first_decode_step(phase.step), phases.last_decode_step(phase.step)
    for new_tokens, step in zip((1, work.new_tokens), steps, strict=True):
        if formula.generates:
            walk.add(step, formula.decode_operators(new_tokens))
            decodes.append(pass_time(arch, device, step, work.engine, walk(arch, step)))
        else:
            slowest = slowest_stage(arch, device, step, work.engine)
            decodes.append(StageTime(slowest.bound_seconds, slowest.expected))
    return phase._replace(uncached=without_cache(arch, device, phase.step), first_and_last=tuple(decodes))


def _counted(estimates: Sequence[PhaseEstimate]) -> Iterator[tuple[Step, Sequence[Operator]]]:
    """The passes of the phases whose operators are those of the whole model, and these operators."""
    for phase in estimates:
        if phase.step.parallel.pp > 1:
            continue
        if phase.step.phase == "generate":
            yield phases.prompt_step(phase.step), [each.operator for each in phase.of_stage("prefill")]
        elif phase.step.phase != "train":
            yield phase.step, phase.operators


def parameters(arch: Architecture) -> tuple[int, int]:
    """The number of parameters of a model, and how many of them are active for a token (MoE: the routed experts)."""
    all_operators = phases.model_operators(arch, workload(arch)[0].steps()[0])
    return passes.parameters(arch, all_operators), passes.active_parameters(arch, all_operators)
