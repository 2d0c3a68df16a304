"""The steady state of a service: engines of one layout, each with its part of the requests.

All microbatches of an engine behave alike: one per pipeline stage, in each of the replicas that share experts. The
simulation (`simulation.py`) is that of one microbatch, with the time of a step in which all have the same work. It
runs for the expected times of steps, for both ends of their interval, and for their bounds.

More requests than the KV cache or the engine's limit of sequences takes wait. With random arrivals the wait has no end
unless they are rarer than what the engines serve; that is simulated first, as a closed loop with all places taken, of
separate engines for as few as have the same ratio of both kinds.

With separate engines for prefill and decode (`separate.py`) one simulation has all engines of both kinds, each with its
own requests. Each pipeline stage and each replica that shares experts is an engine of the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, gcd, inf, isinf
from typing import Any, NamedTuple

from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine, default_for
from roofmodel.errors import AnswerNote, Option, Text, WorkloadError
from roofmodel.models.architecture import Architecture
from roofmodel.numbers import units
from roofmodel.options.serving import ServeRequest
from roofmodel.options.values import REQUESTS_PER_CLIENT
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.speculation import Speculation, check_generates, speculation_of
from roofmodel.plan.step_times import ServingReplica, replica
from roofmodel.serve.separate import (
    SeparatePrefill,
    layout_of,
    prefill_engines,
    running_sequences,
    separate_layout,
)
from roofmodel.serve.simulation import ClientLoad, LoopResult, StepSeconds, gap_at, simulate
from roofmodel.serve.step_table import KINDS, StepTable
from roofmodel.serve.totals import ServiceTimes
from roofmodel.steps.capacity import fewest_requests
from roofmodel.steps.estimate import Estimate, energy_totals, estimate
from roofmodel.steps.placed import under_load

APPLICABLE = (
    "dtype", "weights", "kv", "activations", "attention", "engine", "engine_option", "mla", "tp", "dp", "pp", "ep",
    "memory_utilization", "max_len", "token_budget", "max_seqs", "routing", "capacity", "sustained", "power_limit",
)  # fmt: skip
"""The options of a workload that a service has, too."""


class ServingEstimate(NamedTuple):
    """A model on a device under a number of requests in flight.

    `mean_step` is the estimate of the mean decode step of an engine with most requests, `loop` what its simulation
    counted. `expected`, `low` and `high` are None for a device that is not calibrated.
    """

    request: ServeRequest
    mean_step: Estimate
    loop: LoopResult
    expected: ServiceTimes | None
    low: ServiceTimes | None
    high: ServiceTimes | None
    bound: ServiceTimes
    running: int  # requests of all engines that run at a time, at most
    capacity: float | None  # of an open loop: requests per second that all engines serve at most
    gpus: int
    chunk: int | None  # prompt tokens of a step at most; None: no limit is known
    host_seconds: float  # of a mean step
    outside: float  # seconds of a request outside the steps
    mean_osl: float
    prefill: SeparatePrefill | None = None  # separate ones

    @property
    def times(self) -> ServiceTimes:
        """The expected times, or the bounds where there are none."""
        return self.bound if self.expected is None else self.expected

    @property
    def joules_per_token(self) -> float | None:
        """Joules of all GPUs of an engine for an output token: their power in the mean step x TPOT, which contains the
        steps with prompts, / sequences of a step. None where the device states no power, and where other engines
        compute the prompts.
        """
        (phase,) = self.mean_step.phases
        watts = energy_totals(phase)["power_watts"]
        if watts is None or self.expected is None or self.prefill is not None:
            return None
        return float(watts * phase.step.parallel.gpus * self.expected.tpot / self.loop.decodes)


def service(
    arch: Architecture, device: Device, request: ServeRequest, options: Mapping[str, Any],
    drafter: Architecture | None = None,
) -> ServingEstimate:  # fmt: skip
    """The steady state of the request; `options` are those of a workload.

    Raises WorkloadError for an option that a service does not have, and where the model does not fit.
    """
    for name, value in options.items():
        if name not in APPLICABLE and value is not None:
            raise WorkloadError(
                Option(name, value), " does not apply to ", Option("phase", "serve"), "; ", Option("concurrency"), ", ",
                Option("isl"), " and ", Option("osl"), " state its requests",
            )  # fmt: skip
    check_generates(arch)
    speculation = speculation_of(arch, request, drafter)
    sizes = options if request.decode is None else separate_layout("decode", request, options)
    layout, layout_notes = layout_of(arch, sizes)
    options = {name: value for name, value in options.items() if value is not None and name not in Layout._fields}
    tokens = request.isl + request.osl
    if options.get("max_len", tokens) < tokens:
        raise WorkloadError(
            Option("max_len", options["max_len"]), f" is shorter than a request of {tokens} tokens; try ",
            Option("max_len", tokens),
        )  # fmt: skip
    if Engine.load(options.get("engine") or default_for("decoder_inference")).memory:
        options.setdefault("max_len", tokens)
    options.setdefault("sustained", "on" if device.power else "off")
    served = _engine(arch, device, layout, options)
    isl, osl = (max(2, round((1 + request.length_ratio) / 2 * length)) for length in (request.isl, request.osl))
    running = running_sequences(served, speculation, tokens, (isl, osl))
    prefill = None
    if request.prefill is not None:
        of_prefill, further_notes = layout_of(arch, separate_layout("prefill", request, {}))
        layout_notes += further_notes
        one = _engine(arch, device, of_prefill, options)
        prefill = prefill_engines(one, served, (of_prefill, layout), request, isl)
    lanes, engines = served.sequences_per_batch, (request.decode_engines or request.replicas) * layout.engines
    places = running * lanes * engines
    # the requests that one simulation has: those of a microbatch, or all of separate engines
    independent, shares = (1, 1) if prefill else (engines, lanes)
    parts = _parts(request.concurrency or places + (prefill.at_once if prefill else 0), independent)
    largest = max(ceil(in_flight / shares) for _, in_flight in parts)
    start = fewest_requests((prefill.served if prefill else served).starts)
    budget = start.token_budget if start else None
    cached = min(int(request.prefix_hit * isl), isl - 1)
    chunk = min(request.chunk or largest * request.isl, budget or largest * request.isl, largest * request.isl)
    lengths = (isl - cached, cached, osl)
    of_one = ceil(largest / (engines * lanes)) if prefill else largest
    table = StepTable(served, speculation, min(of_one, running), lengths, 1 if prefill else chunk)
    of_prompts = StepTable(prefill.served, None, 1, lengths, chunk) if prefill else None
    host = served.work.engine.host
    outside = float(host.outside_steps(isl))
    load = ClientLoad(
        largest, request.isl, request.osl, budget=budget or largest * (request.isl + 1), chunk=chunk, most=running,
        cached=request.prefix_hit, shortest=request.length_ratio, outside=outside,
        accepted=1.0 if speculation is None else speculation.accepted,
        verified=1 if speculation is None else speculation.tokens + 1, prompts_first=served.work.engine.prompts_first,
    )  # fmt: skip
    if prefill:
        load = load._replace(
            prefillers=prefill.lanes, decoders=engines * lanes, most_prompts=prefill.running, transfer=prefill.transfer
        )
    rate = None if request.requests is None else float(request.requests)
    found = {
        kind: [
            _steady(
                load._replace(sequences=ceil(in_flight / shares), outside=0.0 if kind == "bound" else outside),
                table.of(kind), None if of_prompts is None else of_prompts.of(kind),
                rate and rate / (independent * shares),
            )
            for _, in_flight in parts
        ]
        for kind in KINDS
    }  # fmt: skip
    loop, capacity = found["seconds"][-1]
    if rate is not None and isinf(loop.latency):
        raise _too_many(rate, capacity * independent * shares, request)
    times = {kind: _together(parts, [each.loop for each in results], rate) for kind, results in found.items()}
    step = _mean_step(arch, device, layout, options, loop, lanes)
    calibrated = step.phases[0].expected is not None
    if calibrated:
        times |= zip(("low", "high", "bound"), _ordered(times), strict=True)
    notes = (
        *dict.fromkeys(layout_notes),
        *_notes(served, prefill, speculation, request),
        *_endless(times["high"] if calibrated else times["bound"], rate),
    )
    return ServingEstimate(
        request=request, mean_step=step._replace(notes=(*notes, *step.notes)),
        loop=loop if calibrated else found["bound"][-1].loop,
        expected=times["seconds"] if calibrated else None, low=times["low"] if calibrated else None,
        high=times["high"] if calibrated else None, bound=times["bound"],
        running=places, gpus=engines * layout.engine.gpus + (prefill.gpus if prefill else 0),
        capacity=None if rate is None else capacity * independent * shares,
        chunk=min(filter(None, (request.chunk, budget)), default=None),
        host_seconds=float(host.step + host.sequence * loop.decodes + host.prompt_token * loop.prompt_tokens),
        outside=outside, mean_osl=(1 + request.length_ratio) / 2 * request.osl, prefill=prefill,
    )  # fmt: skip


class _Steady(NamedTuple):
    """The simulation of one microbatch, and the requests per second that it serves with its places taken."""

    loop: LoopResult
    capacity: float


def _steady(
    load: ClientLoad, seconds: StepSeconds, of_prompts: StepSeconds | None, rate: float | None
) -> _Steady:  # fmt: skip
    """The closed loop, or with a rate the open one. If more requests arrive than are served, the wait is endless.

    Twice as many separate engines of both kinds serve twice as much, so that a part of them shows the capacity.
    """
    parts = 1 if rate is None else gcd(load.prefillers, load.decoders)
    part = load._replace(
        sequences=ceil(load.sequences / parts), prefillers=load.prefillers // parts, decoders=load.decoders // parts
    )
    loop = simulate(part, seconds, of_prompts)
    capacity = parts * part.sequences / loop.latency
    if rate is None:
        return _Steady(loop, capacity)
    if rate >= capacity:
        return _Steady(loop._replace(ttft=inf, latency=inf, waiting=inf), capacity)
    in_flight = min(load.sequences, ceil(rate * loop.latency))
    return _Steady(simulate(load._replace(rate=rate, sequences=in_flight), seconds, of_prompts), capacity)


class OverloadError(WorkloadError):
    """More requests arrive than the engines serve."""


def _too_many(rate: float, capacity: float, request: ServeRequest) -> OverloadError:
    served = units.significant(capacity)
    more = (
        ["more ", Option("prefill_engines"), " or ", Option("decode_engines")] if request.prefill is not None
        else [Option("replicas", int(rate / (0.8 * capacity) * request.replicas) + 1)]
    )  # fmt: skip
    return OverloadError(
        Option("requests", f"{rate:g}/s"), f": the engines serve {served} requests/s at most, and the wait would grow "
        "without end; try ", Option("requests", f"{units.significant(0.8 * capacity)}/s"), " or ",
        *more,
    )  # fmt: skip


def _endless(high: ServiceTimes, rate: float | None) -> list[Text]:
    if rate is None or not isinf(high.latency):
        return []
    return [
        AnswerNote(
            f"at the slow end of the interval of their steps the engines serve less than {rate:g} requests/s: the wait "
            "has no upper end"
        )
    ]


def _engine(arch: Architecture, device: Device, layout: Layout, options: Mapping[str, Any]) -> ServingReplica:
    """One engine of the layout, on a device under long load."""
    further = {name: value for name, value in options.items() if name not in (*Formats._fields, *_OF_REPLICA)}
    form = Formats(**{"dtype": "fp16", **{name: options[name] for name in Formats._fields if name in options}})
    served = replica(
        arch, device, layout.engine, form, options.get("memory_utilization"),
        options.get("routing", "uniform"), options.get("engine"), options.get("engine_option") or (), **further,
    )  # fmt: skip
    loaded = under_load(device, served.work.options)
    return served._replace(device=loaded)


_OF_REPLICA = ("memory_utilization", "routing", "engine", "engine_option")
"""Options that `replica` has as parameters."""


def _parts(requests: int, engines: int) -> list[tuple[int, int]]:
    """(engines, requests in flight of each), as even as possible; engines without any are left out."""
    each, more = divmod(requests, engines)
    return [(count, in_flight) for count, in_flight in ((engines - more, each), (more, each + 1)) if count * in_flight]


def _together(
    parts: Sequence[tuple[int, int]], results: Sequence[LoopResult], rate: float | None
) -> ServiceTimes:  # fmt: skip
    """The means over the requests of all engines. Without a rate of arrivals, that of an engine follows from Little's
    law."""
    if rate is None:
        results = [*map(_with_first_requests, results)]
    rates = [
        engines * in_flight / result.latency if rate is None else rate
        for (engines, in_flight), result in zip(parts, results, strict=True)
    ]
    total = sum(rates)

    def mean(name: str) -> float:
        return sum(
            rate * float(getattr(result, name)) for rate, result in zip(rates, results, strict=True)
        ) / total  # fmt: skip

    gaps = sorted(
        (gap, rate / result.requests * count)
        for rate, result in zip(rates, results, strict=True)
        for gap, count in result.gaps
    )
    return ServiceTimes(mean("ttft"), mean("tpot"), mean("latency"), mean("waiting"), tuple(gaps), total)


def _with_first_requests(loop: LoopResult) -> LoopResult:
    """The means of a benchmark: over the requests of the steady state and the first one of each client."""
    later = (loop.first_ttft - loop.ttft) / REQUESTS_PER_CLIENT
    waiting = loop.waiting + (loop.first_waiting - loop.waiting) / REQUESTS_PER_CLIENT
    return loop._replace(ttft=loop.ttft + later, latency=loop.latency + later, waiting=waiting)


def _ordered(times: Mapping[str, ServiceTimes]) -> tuple[ServiceTimes, ServiceTimes, ServiceTimes]:
    """The ends of the interval and the bound. With shorter steps a request can arrive at a worse time of a step, so
    that the simulated wait grows a little: each end is the smallest or largest of the simulations."""
    bound, low, expected, high = (times[kind] for kind in ("bound", "low", "seconds", "high"))

    def of(choose: Callable[..., Any], *several: ServiceTimes) -> ServiceTimes:
        gaps = choose(*(each.gaps for each in several), key=lambda gaps: gap_at(gaps, 0.99))
        ttft, tpot, latency, waiting = (choose(values) for values in list(zip(*several, strict=True))[:4])
        rate = (max if choose is min else min)(each.requests_per_second for each in several)  # the shorter, the more
        return ServiceTimes(ttft, tpot, latency, waiting, gaps, rate)

    return of(min, low, expected, high), of(max, low, expected, high), of(min, bound, low, expected, high)


def _mean_step(
    arch: Architecture, device: Device, layout: Layout, options: Mapping[str, Any], loop: LoopResult, lanes: int
) -> Estimate:
    """The estimate of the mean decode step of an engine."""
    batch = max(1, round(loop.decodes)) * lanes
    of_engine: dict[str, Any] = layout.engine._asdict()
    if layout.pp > 1:
        of_engine["micro_batch"] = batch // lanes
    return estimate(arch, device, phase="decode", batch=batch, context=round(loop.context), **options, **of_engine)


def _notes(
    served: ServingReplica, prefill: SeparatePrefill | None, speculation: Speculation | None, request: ServeRequest
) -> list[Text]:
    notes: list[Text] = []
    if served.arch.max_tokens is not None and request.isl + request.osl > served.arch.max_tokens:
        notes.append(
            AnswerNote(
                Option("isl", request.isl), " and ", Option("osl", request.osl),
                f" exceed the maximum positions of {served.arch.name}, {served.arch.max_tokens}; the limit is not "
                "enforced",
            )
        )  # fmt: skip
    if speculation is not None:
        notes.append(
            AnswerNote(
                "operators and memory are those of the model without its draft; times contain both, and the weights "
                "and the cache of the draft leave room for fewer requests"
            )
        )
    shared = [served.layout, *([prefill.served.layout] if prefill else [])]
    if any(layout.joint_replicas > 1 for layout in shared):
        notes.append(AnswerNote("replicas that share experts are assumed to compute their prompts in the same steps"))
    return notes
