"""Totals of a phase by their JSON keys, in base units; None for unknown."""

from __future__ import annotations

from typing import Any

from roofmodel.numbers.algebra import plain
from roofmodel.steps.phase import PhaseEstimate, is_launch_bound, latencies, stage_time
from roofmodel.steps.placed import launches, sum_of, totals_of
from roofmodel.steps.power import step_energy
from roofmodel.timing.timing import Expected


def totals(phase: PhaseEstimate) -> dict[str, Any]:
    """A phase's totals by their JSON keys, in base units; None for unknown.

    `mfu` and `hfu` are model and hardware FLOPs utilization of all GPUs (PaLM, arXiv 2204.02311, appendix B): model
    FLOPs exclude recomputation, and masked pairs except in `mfu_all_pairs`; hardware FLOPs are the executed ones. `mbu`
    is the memory bandwidth utilization of this stage's GPUs.
    """
    values = totals_of(phase.placed) | {"bound_seconds": phase.bound_seconds}
    expected, (peak, bandwidth) = phase.expected, phase.ceilings
    exchanged, hidden, added = sum_of(phase.exchanges), phase.replicas.hidden, phase.replicas.added
    seconds, images = expected and plain(expected.value), phase.sequences
    return {
        **values,
        **expected_totals(expected),
        "bound_tokens_per_second": phase.tokens / values["bound_seconds"] if phase.has_tokens else None,
        **({"bound_images_per_second": images / values["bound_seconds"]} if phase.is_vision else {}),
        "tokens_per_second": phase.tokens / seconds if expected and phase.has_tokens else None,
        **({"images_per_second": expected and images / seconds} if phase.is_vision else {}),
        "mfu": expected and plain(phase.mean_flops.model) / seconds / peak,
        "mfu_all_pairs": expected and plain(phase.mean_flops.all_pairs) / seconds / peak,
        "hfu": expected and plain(phase.mean_flops.executed) / seconds / peak,
        "mbu": expected and plain(values["bytes"]) / seconds / bandwidth,
        "communication_seconds": sum(each.seconds for each in phase.exchanges),
        "expected_communication_seconds": exchanged and plain(exchanged.value),
        "communication_exposed_seconds": sum(each.seconds for each in phase.exchanges) - phase.hidden_bound,
        "expected_communication_exposed_seconds": exchanged and hidden and plain(exchanged.value) - plain(hidden.value),
        "expected_replica_seconds": added and plain(added.value),
        "bubble_seconds": phase.idle.bound,
        "expected_bubble_seconds": phase.idle.expected and plain(phase.idle.expected.value),
        "expected_host_seconds": expected and plain(phase.exposed_host_seconds),
        "kernels": phase.kernels,
        "host_bound": phase.host_bound if expected else None,
        "matmul_flops_all_pairs": phase.all_pairs_matmul_flops,
    }  # fmt: skip


def energy_totals(phase: PhaseEstimate) -> dict[str, Any]:
    """Power and energy of a phase, by their JSON keys; see `step_energy`."""
    tokens = phase.tokens if phase.step.phase in ("decode", "generate") else None
    return step_energy(phase.placed, phase.expected, phase.power, phase.step.parallel.gpus, tokens)


def expected_totals(expected: Expected | None) -> dict[str, Any]:
    """An expected time and the ends of its interval by their JSON keys."""
    return {
        "expected_seconds": expected and plain(expected.value),
        "expected_low_seconds": expected and plain(expected.low),
        "expected_high_seconds": expected and plain(expected.high),
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
        outside = 0 if kind else plain(phase.outside_steps)
        values[f"{kind}e2e_seconds"] = seconds if seconds is None else seconds + outside
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
            outside = 0 if kind or seconds is None else plain(phase.outside_steps)
            values[f"{kind}ttft_seconds"] = seconds if seconds is None else seconds + outside
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
