"""Pipeline parallelism: the time of a step through all pipeline stages, with the idle time of each stage.

A stage takes t for a microbatch, forward and backward where it trains, with what it sends to its neighbors. T is the
sum of these times over all stages: the pipeline latency of one microbatch. For m microbatches the slowest stage sets
the pace, and idles while the pipeline fills and drains:

    m t + (T - t) / v

That is (m + p - 1) t where p stages take equally long: the bubble is (p - 1) / m of the time without it, and v model
chunks per stage (interleaved schedule) divide it by v (Narayanan et al., arXiv 2104.04473, section 2.2). Decodes form
a pipeline too: the next token of a microbatch starts when the last stage has finished the previous one, so a step takes

    max(m t, T)

Work that runs once per step (gradient exchange and optimizer) is added. Sends do not overlap with computation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from roofmodel.counting.phases import distinct_stages, operators_without_cache
from roofmodel.counting.workload import Step
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.models.architecture import Architecture
from roofmodel.numbers.algebra import Number, is_just, maximum
from roofmodel.steps.phase import PhaseEstimate, StageTime, Uncached, phase_estimate, running
from roofmodel.steps.placed import placed, total_seconds
from roofmodel.timing.timing import Expected

if TYPE_CHECKING:
    from roofmodel.steps.similar_steps import SimilarSteps


def slowest_stage(arch: Architecture, device: Device, step: Step, engine: Engine) -> PhaseEstimate:
    """A phase on a GPU of the slowest pipeline stage. Raises WorkloadError where the device lacks the format."""
    estimates = estimates_by_stage(arch, device, step, engine)
    return max(zip(busy_seconds(estimates), estimates, strict=True), key=itemgetter(0))[1]


def estimates_by_stage(
    arch: Architecture, device: Device, step: Step, engine: Engine, similar: SimilarSteps | None = None
) -> list[PhaseEstimate]:
    """A phase on a GPU of each distinct pipeline stage, with the time that the stage idles.

    `similar` are training steps with which it shares counts and times.
    """
    staged = distinct_stages(arch, step)
    estimates = [phase_estimate(arch, device, stage_step, engine, similar) for _, stage_step in staged]
    if len(estimates) == 1 and is_just(step.parallel.pp, 1):
        return estimates
    times = [dict(_microbatch_times(phase)) for phase in estimates]
    latencies = {
        part: pipeline_latency([(count, stage[part]) for (count, _), stage in zip(staged, times, strict=True)])
        for part in times[0]
    }
    return [
        phase._replace(
            idle=_sum(idle_time(part, step, stage[part], latencies[part]) for part in stage),
            stage_times=tuple((part, stage[part], latencies[part]) for part in stage),
        )
        for phase, stage in zip(estimates, times, strict=True)
    ]


def busy_seconds(estimates: Sequence[PhaseEstimate]) -> list[Number]:
    """Seconds that a GPU of each stage is busy: expected, or the bound of all stages where one has no expected time."""
    expected = [phase.busy for phase in estimates]
    known_times = [each.value for each in expected if each is not None]
    return known_times if len(known_times) == len(estimates) else [total_seconds(phase.placed) for phase in estimates]


def without_cache(arch: Architecture, device: Device, step: Step) -> Uncached:
    """Generation without a KV cache, on a GPU of the step's stage.

    Its passes form a pipeline as decodes do: the pass for a token starts when the previous token is known.
    """
    staged = distinct_stages(arch, step)
    stages = [
        placed(operators_without_cache(arch, stage_step), device, step.widths.compute) for _, stage_step in staged
    ]
    totals = [total_seconds(stage) for stage in stages]
    latency = sum(count * total for (count, _), total in zip(staged, totals, strict=True)) / step.microbatches
    stage = next(stage for (_, stage_step), stage in zip(staged, stages, strict=True) if stage_step == step)
    return Uncached(stage, max(latency, *totals))


def _microbatch_times(phase: PhaseEstimate) -> Iterator[tuple[str, StageTime]]:
    """The time of one microbatch in all its passes, by part of the phase: prefill and decodes, or the whole phase."""
    repeated = [placed for placed in phase.placed if not placed.operator.runs_once_per_step]
    generates, each = phase.step.phase == "generate", 1 / phase.step.microbatches
    for part in ("prefill", "decodes") if generates else (phase.step.phase,):
        stage = [placed for placed in repeated if not generates or placed.operator.stage == part]
        expected = running(stage, phase.launch)
        yield part, StageTime(each * total_seconds(stage), expected and each * expected)


def pipeline_latency(times: Sequence[tuple[int, StageTime]]) -> StageTime:
    """The time of one microbatch through all stages, from the number and the time of each distinct stage."""
    return _sum(StageTime(count * time.bound, time.expected and count * time.expected) for count, time in times)


def _sum(times: Iterator[StageTime]) -> StageTime:
    bound, expected = zip(*times, strict=True)
    known_times = [each for each in expected if each is not None]
    return StageTime(sum(bound), sum(known_times[1:], known_times[0]) if len(known_times) == len(expected) else None)


def idle_time(part: str, step: Step, stage: StageTime, latency: StageTime) -> StageTime:
    """The time that a stage waits for the other stages."""

    def waiting_time(own_seconds: Number, latency_seconds: Number) -> Number:
        if part in ("decode", "decodes"):
            return maximum(latency_seconds - step.microbatches * own_seconds, 0.0)
        return (latency_seconds - own_seconds) / step.parallel.vpp

    idle = stage.expected and latency.expected and Expected(*map(waiting_time, stage.expected, latency.expected))
    return StageTime(waiting_time(stage.bound, latency.bound), idle)
