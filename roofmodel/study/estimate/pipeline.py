"""Stages of layers on GPUs of their own: how long a step takes through all of them.

A stage takes t for a microbatch, there and back where it trains, what it sends to its neighbours included; T is the sum
of all stages' times, the trip of one microbatch. While m microbatches follow one another, the slowest stage sets the
pace, and waits while the first of them comes to it and the last one goes on:

    m t + (T - t) / v

That is (m + p - 1) t where p stages take equally long: the bubble is (p - 1) / m of the time without it, and v parts
of layers that take turns on a stage make it as many times smaller (Narayanan et al., arXiv 2104.04473, section 2.2).
Decodes follow one another too: the next token of a microbatch starts as soon as it is through, so that a step takes

    max(m t, T)

What follows once a step, gradients' exchange and the optimizer, comes on top. Sends overlap with nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from roofmodel.algebra import Number, is_just, maximum
from roofmodel.counting.phases import distinct_stages, operators_without_cache
from roofmodel.counting.training import runs_once_per_step
from roofmodel.counting.workload import Host, Step
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture
from roofmodel.prediction.timing import Expected
from roofmodel.study.estimate.phase import Lap, PhaseEstimate, Uncached, phase_estimate, placed, running, total_seconds


def slowest(arch: Architecture, device: Device, step: Step, host: Host) -> PhaseEstimate:
    """A phase on a GPU of the stage that takes longest. Raises WorkloadError where the device lacks the format."""
    found = of_stages(arch, device, step, host)
    return max(zip(paces(found), found, strict=True), key=itemgetter(0))[1]


def of_stages(arch: Architecture, device: Device, step: Step, host: Host) -> list[PhaseEstimate]:
    """A phase on a GPU of each stage, of those that are alike once; each waits for the others."""
    staged = distinct_stages(arch, step)
    found = [phase_estimate(arch, device, one, host) for _, one in staged]
    if len(found) == 1 and is_just(step.parallel.pp, 1):
        return found
    laps = [dict(_laps(phase)) for phase in found]
    trips = {part: _trip([(many, lap[part]) for (many, _), lap in zip(staged, laps, strict=True)]) for part in laps[0]}
    return [
        phase._replace(
            idle=_sum(idle_time(part, step, own[part], trips[part]) for part in own),
            laps=tuple((part, own[part], trips[part]) for part in own),
        )
        for phase, own in zip(found, laps, strict=True)
    ]


def paces(found: Sequence[PhaseEstimate]) -> list[Number]:
    """How long a GPU of each stage is at work: as it is expected, or at the bound where that is not known of one."""
    expected = [phase.busy for phase in found]
    known = [each.seconds for each in expected if each is not None]
    return known if len(known) == len(found) else [total_seconds(phase.placed) for phase in found]


def without_cache(arch: Architecture, device: Device, step: Step) -> Uncached:
    """Generation without a KV cache on a GPU of the step's stage. Its passes follow one another as decodes do: a token
    must be known before the pass of the next can start."""
    dtype, staged = step.widths.compute, distinct_stages(arch, step)
    totals = [total_seconds(placed(operators_without_cache(arch, one), device, dtype)) for _, one in staged]
    trip = sum(many * total for (many, _), total in zip(staged, totals, strict=True)) / step.microbatches
    return Uncached(placed(operators_without_cache(arch, step), device, dtype), max(trip, *totals))


def _laps(phase: PhaseEstimate) -> Iterator[tuple[str, Lap]]:
    """By part of the phase, prefill and decodes or all of it: what one microbatch takes, all of its passes."""
    repeated = [placed for placed in phase.placed if not runs_once_per_step(placed.operator)]
    generates, each = phase.step.phase == "generate", 1 / phase.step.microbatches
    for part in ("prefill", "decodes") if generates else (phase.step.phase,):
        own = [placed for placed in repeated if not generates or placed.operator.stage == part]
        expected = running(own, phase.launch)
        yield part, Lap(each * total_seconds(own), expected and each * expected)


def _trip(laps: Sequence[tuple[int, Lap]]) -> Lap:
    """One microbatch through all stages, so many of each."""
    return _sum(Lap(many * lap.bound, lap.expected and many * lap.expected) for many, lap in laps)


def _sum(laps: Iterator[Lap]) -> Lap:
    bound, expected = zip(*laps, strict=True)
    known = [each for each in expected if each is not None]
    return Lap(sum(bound), sum(known[1:], known[0]) if len(known) == len(expected) else None)


def idle_time(part: str, step: Step, own: Lap, trip: Lap) -> Lap:
    """How long a stage waits for others."""

    def waits(mine: Number, all_stages: Number) -> Number:
        if part in ("decode", "decodes"):
            return maximum(all_stages - step.microbatches * mine, 0.0)
        return (all_stages - mine) / step.parallel.vpp

    known = own.expected and trip.expected and Expected(*map(waits, own.expected, trip.expected))
    return Lap(waits(own.bound, trip.bound), known)
