"""Times and totals of the stages of a phase: prefill and decodes of generation, or forward, backward, optimizer.

The prefill of generation gives the first token, and each decode one token more:

    TTFT = time of the prefill
    TPOT = (time of generation - TTFT) / decodes

Inference engines define TPOT in this way: the N tokens of an answer take N - 1 decodes.
"""

from __future__ import annotations

from typing import Any

from roofmodel.numbers.algebra import plain
from roofmodel.steps.phase import PhaseEstimate, StageTime, expected_totals, is_launch_bound, running, totals
from roofmodel.steps.pipeline import idle_time
from roofmodel.steps.placed import launches, sum_of, total_seconds, totals_of

LATENCIES = {"ttft": "prefill", "tpot": "decodes"}
"""The latencies of generation, by JSON key, and the stage whose time each one is."""


def stage_time(phase: PhaseEstimate, stage: str) -> StageTime:
    """Bound and expected time of a stage: its kernels, or the host's launches if they take longer.

    Prefill and decodes include their wait for other pipeline stages. In a training step the host launches kernels of
    the next stage while the GPU runs those of an earlier one, so that stages may sum to more than the step.
    """
    placed = phase.of_stage(stage)
    time = StageTime(total_seconds(placed), phase.with_host(running(placed, phase.launch), stage))
    for part, own, through_all in phase.stage_times:
        if part == stage:
            idle = idle_time(part, phase.step, own, through_all)
            expected = time.expected and idle.expected and time.expected + idle.expected
            time = StageTime(time.bound + idle.bound, expected)
    return time


def latencies(phase: PhaseEstimate) -> dict[str, StageTime]:
    """TTFT and TPOT of generation, as `ttft` and `tpot`; empty for other phases."""
    if phase.step.phase != "generate":
        return {}
    runs = {"ttft": 1, "tpot": phase.step.passes - 1}
    times = {name: stage_time(phase, stage) for name, stage in LATENCIES.items()}
    return {
        name: StageTime(time.bound / runs[name], time.expected and (1 / runs[name]) * time.expected)
        for name, time in times.items()
    }


def generation_totals(phase: PhaseEstimate) -> dict[str, Any]:
    """End-to-end latency, time of the first and last decode, tokens/s per GPU and per user, by their JSON keys.

    A user sees one token per TPOT. The end-to-end latency of a request is the time of its prefill and all its decodes.
    Tokens/s per GPU: the tokens of the decodes, without the first one, which the prefill gives, divided by this time.
    """
    values: dict[str, Any] = {}
    expected, tpot, gpus = phase.expected, latencies(phase)["tpot"], phase.step.parallel.gpus
    tpot_seconds = tpot.expected and plain(tpot.expected.value)
    kinds: tuple[tuple[str, Any, Any], ...] = (
        ("bound_", phase.bound_seconds, tpot.bound),
        ("", expected and plain(expected.value), tpot_seconds),
    )
    for kind, seconds, per_token in kinds:
        values[f"{kind}e2e_seconds"] = seconds
        values[f"{kind}tokens_per_second_per_gpu"] = None if seconds is None else phase.tokens / seconds / gpus
        values[f"{kind}tokens_per_second_per_user"] = None if per_token is None else 1 / per_token
    for name, step in zip(("first", "last"), phase.first_and_last, strict=False):
        values[f"tpot_{name}_seconds"] = step.expected and plain(step.expected.value)
        values[f"bound_tpot_{name}_seconds"] = step.bound
    return values


def phase_totals(phase: PhaseEstimate) -> dict[str, Any]:
    """A phase's totals by their JSON keys, with TTFT and TPOT of generation."""
    return totals(phase) | (latency_totals(phase) if phase.step.phase == "generate" else {})


def latency_totals(phase: PhaseEstimate) -> dict[str, Any]:
    """TTFT, TPOT, end-to-end latency, tokens/s per GPU and per user of a phase, by their JSON keys.

    A prefill alone has a TTFT, a decode alone a TPOT; tokens/s per GPU exist in every phase with tokens. Missing keys
    do not apply. The sizes may be arrays.
    """
    name, gpus, values = phase.step.phase, phase.step.parallel.gpus, dict[str, Any]()
    if name == "generate":
        for latency, time in latencies(phase).items():
            values[f"{latency}_seconds"] = time.expected and plain(time.expected.value)
            values[f"bound_{latency}_seconds"] = time.bound
        return values | generation_totals(phase)
    for kind, seconds in (("bound_", phase.bound_seconds), ("", phase.expected and plain(phase.expected.value))):
        if phase.has_tokens:
            values[f"{kind}tokens_per_second_per_gpu"] = None if seconds is None else phase.tokens / seconds / gpus
        if name == "prefill":
            values[f"{kind}ttft_seconds"] = seconds
        elif name == "decode":
            values[f"{kind}tpot_seconds"] = seconds
            values[f"{kind}tokens_per_second_per_user"] = None if seconds is None else 1 / seconds
    return values


def stage_totals(phase: PhaseEstimate) -> dict[str, dict[str, Any]]:
    """Totals by stage, with JSON keys as in a phase's totals; empty for a phase without stages."""
    values = {}
    for stage in phase.stages:
        placed, time = phase.of_stage(stage), stage_time(phase, stage)
        kernels = sum_of(placed)
        values[stage] = {
            **totals_of(placed),
            "bound_seconds": time.bound,
            **expected_totals(time.expected),
            "kernels": launches(placed),
            "host_bound": kernels
            and (is_launch_bound(kernels, launches(placed) * phase.launch) or phase.waits_for_host(stage, kernels)),
        }
    return values
