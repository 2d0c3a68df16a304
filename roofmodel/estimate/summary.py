"""The answers that open an estimate: latency and throughput, what limits each phase, memory, the largest batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from roofmodel.errors import Option
from roofmodel.estimate.text import describe_host_limit, describe_largest
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number, plain
from roofmodel.steps.estimate import Estimate
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.stages import generation_totals, latencies
from roofmodel.steps.workload_text import describe_rate, describe_usable_memory, without_unit_of
from roofmodel.timing.timing import Expected

LATENCY = {"prefill": "TTFT", "decode": "TPOT", "train": "step time"}
"""What the time of a phase is called: time to first token, time per output token."""
UNKNOWN = "no expected time"


class Answer(NamedTuple):
    """One line of the summary."""

    label: str
    text: str


def summary(estimate: Estimate) -> list[Answer]:
    """Six answers, for a decoder's two phases: TTFT, TPOT, tokens/s, what limits each phase, memory, largest batch.

    A single phase has its utilization in place of the second latency: MFU as appendix B of PaLM (arXiv 2204.02311)
    defines it, where all token pairs of attention count and recomputation does not. `generate` has both latencies.
    """
    if not estimate.has_total:  # no times without the bytes of the weights
        times = [Answer(LATENCY.get(phase.step.phase, "latency"), _unknown_format()) for phase in estimate.phases]
        return [*times, Answer("memory", describe_memory(estimate)), Answer("max batch", describe_largest(estimate))]
    return [
        *(answer for phase in estimate.phases for answer in _latencies(phase)),
        *_rates(estimate.phases),
        *(Answer("utilization", text) for text in _utilization(estimate.phases)),
        *_input(estimate),
        Answer("limited by", _join_phases(estimate.phases, [_limit(phase) for phase in estimate.phases])),
        Answer("memory", describe_memory(estimate)),
        Answer("max batch", describe_largest(estimate)),
    ]


def _latencies(phase: PhaseEstimate) -> Iterator[Answer]:
    name = phase.step.phase
    if name != "generate":
        latency = _latency(phase.bound_seconds, phase.expected, plain(phase.exposed_host_seconds))
        yield Answer(LATENCY.get(name, "latency"), latency)
        return
    steps = _steps(phase)
    for label, time in latencies(phase).items():
        yield Answer(label.upper(), _latency(time.bound, time.expected) + steps * (label == "tpot"))


def _steps(phase: PhaseEstimate) -> str:
    """` · first decode 9.08 ms, last 9.1 ms`: the expected times, or the bounds where there are none."""
    totals, kind = generation_totals(phase), "" if phase.expected else "bound_"
    first, last = (units.seconds(totals[f"{kind}tpot_{which}_seconds"]) for which in ("first", "last"))
    return f" · first decode {first}, last {last}"


def _latency(bound: Number, expected: Expected | None, host: Number = 0) -> str:
    """`11.7 ms bound    24.9 ms expected (22.5 ms to 29.1 ms)`, and the part of it that the engine's host adds."""
    text = f"{units.seconds(plain(bound))} bound"
    if expected is None:
        return f"{text:<16} {UNKNOWN}"
    seconds, low, high = (units.seconds(plain(value)) for value in expected)
    of_host = f"; host {units.seconds(float(host))}" if host else ""
    return f"{text:<16} {seconds} expected ({low} to {high}){of_host}"


def _rates(phases: tuple[PhaseEstimate, ...]) -> Iterator[Answer]:
    """`87.7 k bound, 41.2 k expected`; with the time of all of it for `generate`."""
    texts = []
    for phase in phases:
        rates = {"bound": phase.bound_seconds}
        if phase.expected:
            rates["expected"] = phase.expected.value
        text = ", ".join(f"{describe_rate(phase, seconds)} {name}" for name, seconds in rates.items())
        if phase.step.phase == "generate":
            times = ", ".join(f"{units.seconds(plain(seconds))} {name}" for name, seconds in rates.items())
            totals, kind = generation_totals(phase), "" if phase.expected else "bound_"
            user, gpu = (units.si(totals[f"{kind}tokens_per_second_per_{unit}"]) for unit in ("user", "gpu"))
            text += f" · {user} per user, {gpu} per GPU · total time {times}"
        texts.append(text)
    unit = "images/s" if phases[0].is_vision else "tokens/s"
    yield Answer(unit, _join_phases(phases, texts).replace(f" {unit}", ""))


def _utilization(phases: tuple[PhaseEstimate, ...]) -> Iterator[str]:
    """MFU, HFU where the executed FLOPs differ, and MBU, if there is one phase with an expected time."""
    phase = phases[0]
    if len(phases) > 1 or phase.expected is None or phase.step.phase == "generate":
        return
    (peak, bandwidth), seconds = phase.ceilings, plain(phase.expected.value)
    model, executed = plain(phase.model_flops), plain(phase.cost.matmul_flops)
    shares = {"MFU": model / seconds / peak}
    if executed != model:
        shares["HFU"] = executed / seconds / peak
    shares["MBU"] = plain(phase.cost.bytes) / seconds / bandwidth
    text = " · ".join(f"{name} {share:.1%}" for name, share in shares.items()) + " at the expected time"
    if executed < model:
        rewritten = {"ssm", "linear"} & {placed.operator.group for placed in phase.placed}
        text += f" (MFU counts {'the GEMMs of the reference code' if rewritten else 'masked pairs'})"
    yield text


def _input(estimate: Estimate) -> Iterator[Answer]:
    """With a data loader: the least time of a step with its input, and the workers that hide the loader."""
    pipeline = estimate.input_pipeline
    if pipeline is None:
        return
    loader, rate = pipeline.loader, describe_rate(estimate.phases[0], pipeline.seconds)
    copy = "" if pipeline.copy_seconds is None else f", {loader.copy} copy {units.seconds(pipeline.copy_seconds)}"
    limit = {
        "loader": "limited by the data loader",
        "copy": "limited by the copy",
        "gpu": "limited by the GPU",
        "serial": "loading, then computing",
    }[pipeline.limit]
    batch = f"{units.seconds(loader.seconds)} per batch, {units.count(loader.workers, 'worker')}"
    yield Answer("input", f"{batch}{copy}; {units.count(pipeline.workers_to_hide, 'worker')} would hide the loader")
    busy = f"GPU busy ≤ {pipeline.utilization:.0%}"
    yield Answer("with input", f"step ≥ {units.seconds(pipeline.seconds)}, ≤ {rate}, {busy}: {limit}")


def _limit(phase: PhaseEstimate) -> str:
    """What limits a phase: the host, or the ceiling with the largest share of the bound."""
    if phase.host_bound:
        kernels = phase.kernel_seconds if phase.step.parallel.pp == 1 else None  # of this pipeline stage only
        alone = f" (kernels alone {units.seconds(plain(kernels.value))})" if kernels else ""
        return f"{describe_host_limit(phase)}{alone}"
    memory, links, idle = phase.memory_seconds, phase.link_seconds, phase.idle.bound
    ceilings = {
        "compute": phase.bound_seconds - memory - links - idle,
        "memory (DRAM)": memory,
        "communication": links,
        "pipeline bubble": idle,
    }
    largest = max(ceilings, key=lambda name: plain(ceilings[name]))
    return f"{largest}, {plain(ceilings[largest]) / plain(phase.bound_seconds):.0%} of the bound"


def _join_phases(phases: tuple[PhaseEstimate, ...], texts: list[str]) -> str:
    """`prefill: … · decode: …`; a single phase is not named."""
    if len(texts) == 1:
        return texts[0]
    return " · ".join(f"{phase.step.phase}: {text}" for phase, text in zip(phases, texts, strict=True))


def _unknown_format() -> str:
    return f"unknown weight format; give {Option('weights')}"


def describe_memory(estimate: Estimate) -> str:
    """`3.22 of 72 GiB (0.9 of 80 GiB): fits; weights 2.9 GiB, KV 300 MiB, activations 28.1 MiB`."""
    need = estimate.memory
    if not estimate.has_total:
        known_roles = f"KV {units.binary(need.kv_cache)}, activations {units.binary(need.activations)}"
        return f"{_unknown_format()} ({known_roles})"
    roles = {
        "weights": need.weights,
        "KV": need.kv_cache,
        "activations": need.activations,
        "gradients": need.gradients,
        "optimizer": need.optimizer,
    }
    parts = ", ".join(f"{role} {units.binary(size)}" for role, size in roles.items() if size)
    if estimate.device.capacity is None:
        return f"{units.binary(need.total)}; the device's memory is not stated · {parts}"
    verdict = "fits" if estimate.fits else "does not fit"
    of_each = " per GPU" if estimate.workload.parallel.gpus > 1 else ""
    usable = describe_usable_memory(estimate)
    total = without_unit_of(usable.partition(" (")[0], units.binary(need.total))
    return f"{total} of {usable}{of_each}: {verdict}; {parts}"
