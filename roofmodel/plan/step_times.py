"""Times and memory of an engine's steps for many batches and chunks, as arrays through the code of sweeps."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from roofmodel.counting import passes, phases
from roofmodel.counting.workload import UNIFORM, PromptChunk, Routing, Step, Workload
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.models.architecture import Architecture
from roofmodel.numbers.algebra import Number
from roofmodel.options.values import EngineName
from roofmodel.plan.layouts import Formats, Layout, options_of
from roofmodel.steps.capacity import StartMemory, server_starts, usable_memory
from roofmodel.steps.options import workload
from roofmodel.steps.phase import estimates_by_stage
from roofmodel.sweep.case import slowest_values

Array = Any
"""A NumPy array, or a number."""


Stored = list[tuple[Number, Number]]
"""For each distinct pipeline stage: bytes of its weights, and bytes of the KV cache of one sequence per microbatch."""


class StepTimes(NamedTuple):
    """A step of an engine: seconds with their interval, their parts, and the activations of the pass in bytes.

    `memory_bound` and `link_bound` are the parts of the bound that DRAM and links limit, in seconds. Without
    calibration the times are those of the bound.
    """

    seconds: Array
    low: Array
    high: Array
    communication: Array
    idle: Array  # while a pipeline stage waits
    bound: Array
    memory_bound: Array
    link_bound: Array
    overhead: Array  # of the expected time, that of steps that the host limits
    energy: Array  # joules of a GPU; NaN where the device states no power
    activations: Array = 0

    def __add__(self, other: StepTimes) -> StepTimes:  # type: ignore[override]
        """Two steps, one after the other; the activations of the larger."""
        *sums, _ = (a + b for a, b in zip(self, other, strict=True))
        return StepTimes._make((*sums, np.maximum(self.activations, other.activations)))

    def __rmul__(self, times: Array) -> StepTimes:
        return StepTimes._make((*(times * value for value in self[:-1]), self.activations))


StepTimes.__array_ufunc__ = None  # type: ignore[attr-defined]  # an array scales it as a number does


class ServingReplica(NamedTuple):
    """GPUs that compute a step together: the model on a device, in a layout with number formats.

    `step` is a decode of one sequence per microbatch; each pipeline stage has one microbatch in flight. `starts` is the
    memory of the engine's pipeline stages where it states one.
    """

    arch: Architecture
    device: Device
    layout: Layout
    formats: Formats
    work: Workload
    step: Step
    starts: tuple[StartMemory, ...] = ()

    @property
    def own_memory(self) -> Number | None:
        """The bytes per GPU that the engine keeps besides weights and KV cache, whatever a step computes; None where it
        states none."""
        if not self.starts:
            return None
        return max(start.usable - start.weights - start.kv_cache for start in self.starts)

    @property
    def sequences_per_batch(self) -> int:
        """Sequences in flight for each sequence of a microbatch."""
        return self.layout.pp * self.layout.dp

    @property
    def usable(self) -> Number | None:
        """The bytes per GPU that may be used; None where the device's memory is unknown."""
        return None if self.device.capacity is None else usable_memory(self.device, self.work)


def replica(
    arch: Architecture, device: Device, layout: Layout, form: Formats, memory_utilization: float | None,
    routing: Routing = UNIFORM, engine: EngineName | Engine | None = None,
    engine_option: tuple[tuple[str, str], ...] = (), **further: Any,
) -> ServingReplica:  # fmt: skip
    """A replica of this layout in an engine. Raises WorkloadError where the model or the device does not support it.

    `further` are options that the server is started with, and others of a workload; without any, its memory is that of
    the steps alone.
    """
    work, _ = workload(
        arch, device, phase="decode", batch=layout.pp * layout.dp, micro_batch=1, seq=2, engine=engine,
        engine_option=engine_option, memory_utilization=memory_utilization, routing=routing, **further,
        **options_of(layout, form),
    )  # fmt: skip
    (step,) = work.steps()
    starts = server_starts(arch, device, work) if further else ()
    return ServingReplica(arch, device, layout, form, work, step, starts)


def decode_times(engine: ServingReplica, batch: Array, context: Number, tokens: int = 1) -> StepTimes:
    """A decode of `batch` sequences per microbatch, each with `tokens` new tokens after `context` cached ones."""
    return _times(engine, engine.step._replace(batch=batch, context=context, tokens=tokens, logit_positions=tokens))


def mixed_times(
    engine: ServingReplica, batch: Array, context: Number, chunk: PromptChunk, tokens: int = 1
) -> StepTimes:
    """The same decode, with a chunk of a prompt in each microbatch."""
    step = engine.step._replace(batch=batch, context=context, tokens=tokens, logit_positions=tokens)
    return _times(engine, step._replace(chunk=chunk))


def prefill_times(engine: ServingReplica, batch: Array, tokens: Number, context: Number = 0) -> StepTimes:
    """A prefill of `batch` prompts per microbatch, or of chunks of them after `context` cached tokens; each pipeline
    stage works on one of `pp` microbatches."""
    return _times(engine, engine.step._replace(phase="prefill", batch=batch, tokens=tokens, context=context))


def _times(engine: ServingReplica, step: Step) -> StepTimes:
    staged = estimates_by_stage(engine.arch, engine.device, step, engine.work.engine)
    totals = slowest_values(staged)
    bound = totals["bound_seconds"]
    names = ("expected_seconds", "expected_low_seconds", "expected_high_seconds",
             "expected_communication_exposed_seconds", "expected_bubble_seconds")  # fmt: skip
    if totals["expected_seconds"] is None:
        names = ("bound_seconds", "bound_seconds", "bound_seconds", "communication_seconds", "bubble_seconds")
    activations = engine.own_memory
    if activations is None:
        activations = reduce(np.maximum, (passes.activation_bytes(phase.operators) for phase in staged))
    ceilings = (totals[f"{ceiling}_share"] * bound for ceiling in ("memory", "link"))
    seconds = totals[names[0]]
    overhead = 0 * seconds if totals["host_bound"] is None else totals["host_bound"] * seconds
    energy = np.nan if totals["energy_joules"] is None else totals["energy_joules"]
    return StepTimes._make((*(totals[name] for name in names), bound, *ceilings, overhead, energy, activations))


def stored_weights(engine: ServingReplica) -> list[Number]:
    """The bytes of weights of each distinct pipeline stage, per GPU."""
    return [phases.weight_bytes(engine.arch, stage) for _, stage in phases.distinct_stages(engine.arch, engine.step)]


def stored_cache(engine: ServingReplica, tokens: Number) -> list[Number]:
    """For each distinct pipeline stage: bytes per GPU of the KV cache of one sequence per microbatch."""
    full = engine.step._replace(context=tokens - 1)
    return [
        passes.kv_cache_bytes(passes.gpu_share(engine.arch, stage), stage)
        for _, stage in phases.distinct_stages(engine.arch, full)
    ]
