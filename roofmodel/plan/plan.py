"""The search of a plan: every layout, format, batch and chunk of a service, on every device.

Each pair of a layout and formats is one piece: one pass over the model evaluates all its batches and chunks as arrays
(`step_times.py`), with the code of `roof sweep`. Pieces run in two or more processes, or on a Dask cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from roofmodel.counting.workload import UNIFORM, Routing
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine, default_for
from roofmodel.errors import AnswerNote, Option, Text, WarningNote, WorkloadError, ignored
from roofmodel.models.architecture import Architecture
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number
from roofmodel.options.values import EngineName, ProgressCallback, no_progress
from roofmodel.options.workload import valid
from roofmodel.plan.candidate import Candidate, Targets, candidate, with_wait
from roofmodel.plan.disaggregated import (
    DecodeRates,
    EngineMatching,
    PrefillRates,
    decode_rates,
    matched,
    prefill_rates,
    service_links,
)
from roofmodel.plan.layouts import (
    Formats,
    Layout,
    device_notes,
    formats,
    incomplete,
    is_power_of_two,
    no_format,
    no_layout,
    price_notes,
    service_layouts,
    within,
)
from roofmodel.plan.queueing import FullBatches, fewest_engines
from roofmodel.plan.ranking import Ranked, format_text, front, layout_text, name, ranked, violation_text
from roofmodel.plan.request import MODES, ServiceRequest
from roofmodel.plan.serving import Points, RequestLengths, batches, largest_batch, pareto, steady_states
from roofmodel.plan.speculation import (
    Speculation,
    check_generates,
    generation_times,
    speculation_of,
    stored_with_draft,
)
from roofmodel.plan.step_times import ServingReplica, replica, stored_weights
from roofmodel.steps.notes import kernel_notes
from roofmodel.steps.options import auto_dtype_notes, check_kernels
from roofmodel.steps.parallelism import has_experts
from roofmodel.steps.phase import slowest_stage
from roofmodel.steps.placed import LoadSettings, load_notes, under_load
from roofmodel.steps.routing import check_routing, read_routing, routing_notes
from roofmodel.sweep.processes import in_processes
from roofmodel.sweep.sweep import prices_by_device

EngineKey = tuple[str, Layout, Formats]
"""Device, layout and formats of an engine."""


class Service(NamedTuple):
    """A request as the pieces of the search use it: with the draft model, the routing of the model, the engine."""

    traffic: RequestLengths
    targets: Targets
    gpus: int
    memory_utilization: float | None = None
    speculation: Speculation | None = None
    modes: tuple[str, ...] = MODES
    routing: Routing | None = None  # None: a model without experts
    engine: EngineName = ""
    engine_option: tuple[tuple[str, str], ...] = ()
    limits: Mapping[str, int | None] = {}
    """The options that the servers are started with."""


class Piece(NamedTuple):
    """One layout with one set of formats on one device."""

    arch: Architecture
    device: Device
    layout: Layout
    formats: Formats
    service: Service
    price: float | None = None
    separates: bool = True  # whether its engine is also one of disaggregated serving


class Shortage(NamedTuple):
    """A layout that does not fit with one sequence: the bytes per GPU that it needs and may use."""

    device: str
    layout: Layout
    formats: Formats
    needed: Number
    usable: Number


class Found(NamedTuple):
    """The result of a piece: the number of its candidates, the best or nearest one, its engine's full batches, the
    Pareto front; the rates of one engine that only decodes or only computes prompts."""

    points: int = 0
    best: Candidate | None = None
    full: FullBatches | None = None  # of the best candidate's engine, if it is mixed and a rate is required
    front: tuple[Candidate, ...] = ()
    shortage: Shortage | None = None
    decode: DecodeRates | None = None
    prefill: PrefillRates | None = None


class ServingPlan(NamedTuple):
    """The best candidates of a service, one for each layout, formats and device; the front of all candidates."""

    model: str
    devices: tuple[str, ...]
    service: Service
    ranked: tuple[Ranked, ...]
    front: tuple[Candidate, ...]
    shortage: Shortage | None  # the layout that lacks the least memory, where none fits
    searched: int  # candidates
    layouts: int  # pairs of layout and formats
    notes: tuple[Text, ...]
    complete: bool = True  # whether the search ended before its time limit

    @property
    def meets(self) -> bool:
        """Whether some candidate meets all targets."""
        return any(entry.candidate.meets for entry in self.ranked)


def plan(
    arch: Architecture, devices: Sequence[Device], request: ServiceRequest, drafter: Architecture | None = None,
    progress: ProgressCallback = no_progress,
) -> ServingPlan:  # fmt: skip
    """The best layouts, formats and batches of a service on at most `request.gpus` GPUs.

    `drafter` is the model of the name `request.draft`; None without one and for multi-token prediction. Raises
    WorkloadError for a value that is invalid for the model, and where no layout divides the model.
    """
    check_generates(arch)
    service, routing_remarks = _service(arch, request, drafter)
    loaded = Engine.load(service.engine, service.engine_option)
    check_kernels(loaded, devices)
    load_remarks = [note for device in devices for note in load_notes(device, LoadSettings(None, request.power_limit))]
    devices = [under_load(device, request) for device in devices]
    engine_name = loaded.id
    gpus, restricted, seconds = service.gpus, request.search, float(request.time_limit)
    prices = prices_by_device(request.price, devices)
    searched = {device.id: formats(arch, device, loaded, restricted) for device in devices}
    is_given = not restricted.keys().isdisjoint({"tp", "pp", "ep"})
    pieces = [
        Piece(
            arch, device, layout, form, service, prices.get(device.id), is_given or is_power_of_two(layout.engine.gpus)
        )
        for layout in service_layouts(arch, gpus, restricted)
        for device in devices
        for form in searched[device.id]
    ]  # fmt: skip
    if not pieces:
        raise WorkloadError(
            *(no_layout(arch, gpus, restricted) if any(searched.values()) else no_format(devices, restricted))
        )
    results = list(_reported(within(_evaluated(pieces, request.cluster), seconds), len(pieces), progress))
    pairs, apart, apart_points = _disaggregated(results, devices, service, prices)
    points = [*(point for result in results for point in result.front), *apart_points]
    best = [*(result.best for result in results if result.best is not None), *apart]
    shortages = [result.shortage for result in results if result.shortage is not None]
    full = {
        _engine_key(result.best): result.full
        for result in results
        if result.best is not None and result.full is not None
    }
    best_ranked = [
        entry._replace(candidate=entry.candidate._replace(engine=engine_name))
        for entry in ranked(best, request.top, service.targets)
    ]
    nearest = None
    if shortages and not best:
        nearest = min(shortages, key=lambda shortage: shortage.needed / shortage.usable)
    serving_plan = ServingPlan(
        model=arch.name, devices=tuple(device.id for device in devices), service=service,
        ranked=tuple(_with_engines_needed(best_ranked, full, service.targets)), front=tuple(front(points)),
        shortage=nearest,
        searched=pairs + sum(result.points for result in results), layouts=len(results), notes=(),
        complete=len(results) == len(pieces),
    )  # fmt: skip
    evaluated = [device for device in devices if searched[device.id]]
    remarks = (*_notes(serving_plan, pieces, prices, full), *device_notes(devices, evaluated))
    remarks = (*remarks, *dict.fromkeys(_kernel_notes(arch, evaluated, serving_plan)))
    if not serving_plan.complete:
        remarks = (incomplete(len(results), len(pieces), seconds), *remarks)
    if "auto" in restricted.get("dtype", ()):
        remarks = (*auto_dtype_notes(arch), *remarks)
    return serving_plan._replace(notes=(*arch.notes, *load_remarks, *routing_remarks, *remarks))


def _with_engines_needed(
    shown: Iterable[Ranked], full: Mapping[EngineKey, FullBatches], targets: Targets
) -> Iterator[Ranked]:
    """The candidates, with the number of engines that meet the targets at the required rate where they are mixed."""
    for entry in shown:
        if entry.candidate.meets and targets.requests is not None:
            needed = _fewest_engines(entry.candidate, full, targets, entry.candidate.layout.engines)
            entry = entry._replace(candidate=entry.candidate._replace(engines_needed=needed))
        yield entry


def _fewest_engines(
    candidate: Candidate, full: Mapping[EngineKey, FullBatches], targets: Targets, most: int
) -> int | None:
    """The smallest number of a mixed candidate's engines that sustain the required rate and meet the target of TTFT;
    `most` if no smaller number does, None in disaggregated serving."""
    if candidate.chunk is None or targets.requests is None:
        return None
    batch = candidate.batch // candidate.layout.engines
    limit = inf if targets.ttft is None else targets.ttft
    return fewest_engines(full[_engine_key(candidate)], batch, candidate.chunk, targets.requests, most, limit)


def _engine_key(candidate: Candidate) -> EngineKey:
    return candidate.device, candidate.layout, candidate.formats


def _service(
    arch: Architecture, request: ServiceRequest, drafter: Architecture | None
) -> tuple[Service, Iterable[Text]]:
    """The request for this model, and notes on its routing. Raises WorkloadError if it is invalid for the model."""
    limits = [None if limit is None else float(limit) for limit in (request.ttft, request.tpot, request.requests)]
    service = Service(
        RequestLengths(request.isl, request.osl), Targets(*limits), request.gpus, request.memory_utilization,
        speculation_of(arch, request, drafter), tuple(request.mode or MODES),
        engine=request.engine or default_for("decoder_inference"),
        engine_option=valid("engine_option", request.engine_option or ()),
        limits={
            "max_len": request.max_len or request.isl + request.osl, "token_budget": request.token_budget,
            "max_seqs": request.max_seqs,
        },
    )  # fmt: skip
    if not has_experts(arch):
        unused = request.routing is not None
        return service, [ignored("routing", f"{arch.name} has no experts")] * unused
    routing = UNIFORM if request.routing is None else read_routing(request.routing)
    check_routing(arch, routing)
    return service._replace(routing=routing), routing_notes(arch, routing, service.gpus)


def _evaluated(pieces: Sequence[Piece], cluster: str | None) -> Iterator[Found]:
    if cluster is None:
        return in_processes(evaluate, pieces)
    from roofmodel.sweep.dask_cluster import evaluate_on_cluster

    return evaluate_on_cluster(evaluate, pieces, cluster)


def _reported(results: Iterable[Found], total: int, progress: ProgressCallback) -> Iterator[Found]:
    for done, result in enumerate(results, 1):
        progress("layouts", done, total)
        yield result


def _disaggregated(
    results: Sequence[Found], devices: Sequence[Device], service: Service, prices: Mapping[str, float]
) -> tuple[int, list[Candidate], list[Candidate]]:
    """The number of candidates with engines of their own for prefill and decode, the best of each decode engine, and
    candidates for the Pareto front."""
    searched, best = 0, list[Candidate]()
    points: list[Candidate] = []
    for device in devices:
        links = service_links(device, service.gpus)
        prefill = [
            result.prefill for result in results if result.prefill is not None and result.prefill.device == device.id
        ]
        decode = [
            result.decode for result in results if result.decode is not None and result.decode.device == device.id
        ]
        if not links or not prefill:
            continue
        common = EngineMatching(service.gpus, service.traffic, service.targets, prices.get(device.id), links)
        for count, best_match, several in matched(prefill, decode, common):
            searched += count
            best.append(best_match)
            points += several
    return searched, best, points


def _notes(
    serving_plan: ServingPlan,
    pieces: Sequence[Piece],
    prices: Mapping[str, float],
    full: Mapping[EngineKey, FullBatches],
) -> Iterator[Text]:
    if serving_plan.shortage is not None:
        short = serving_plan.shortage
        yield WarningNote(
            f"does not fit: the nearest layout, {layout_text(short.layout)} on {short.device}, needs "
            f"{units.binary(float(short.needed))} per GPU of {units.binary(float(short.usable))} usable; try more ",
            Option("gpus"), " or ", Option("weights", "int4"),
        )  # fmt: skip
    elif not serving_plan.meets and serving_plan.ranked:
        nearest, targets = serving_plan.ranked[0].candidate, serving_plan.service.targets
        yield WarningNote(
            f"no layout meets the targets; the nearest is {_described(nearest)}: "
            f"{violation_text(nearest, targets.ttft, targets.tpot)}{_reachable_rate(serving_plan, nearest, full)}"
        )
    busy = [entry.rank for entry in serving_plan.ranked if entry.candidate.prefill and entry.candidate.prefill.limits]
    if busy and serving_plan.service.targets.requests is None:
        yield AnswerNote(
            f"TTFT does not include a queue: the prefill engines of rank {units.ranges(busy)} are busy all the time at "
            "the stated rate, so requests wait longer and longer; ", Option("requests"), " with a lower rate shows the "
            "mean wait",
        )  # fmt: skip
    yield from price_notes(prices, [piece.device for piece in pieces])
    yield from _request_notes(pieces[0].arch, serving_plan.service)


def _kernel_notes(arch: Architecture, devices: Sequence[Device], serving_plan: ServingPlan) -> Iterator[Text]:
    """The notes of an estimate on the parameters of the candidates' kernels; `device_notes` names a device without."""
    by_id, service = {device.id: device for device in devices if device.calibration}, serving_plan.service
    several = (
        (entry.candidate.device, entry.candidate.layout.engine, entry.candidate.formats)
        for entry in serving_plan.ranked
    )
    for where, layout, form in dict.fromkeys(several):
        if (device := by_id.get(where)) is None:
            continue
        asked_form = form._replace(activations=None if form.activations == form.dtype else form.activations)
        served = replica(
            arch, device, layout, asked_form, service.memory_utilization, engine=service.engine,
            engine_option=service.engine_option,
        )  # fmt: skip
        prefill = served.step._replace(phase="prefill", tokens=service.traffic.isl, context=0)
        steps = [slowest_stage(arch, device, step, served.work.engine) for step in (prefill, served.step)]
        yield from kernel_notes(device, served.work, steps)


def _described(candidate: Candidate) -> str:
    return f"{name(candidate)}, {format_text(candidate)}, batch {candidate.batch} on {candidate.device}"


def _reachable_rate(serving_plan: ServingPlan, nearest: Candidate, full: Mapping[EngineKey, FullBatches]) -> str:
    """The highest rate within the latencies without a queue, and the GPUs that reach the required rate with the same
    engines; no text if no candidate has such latencies or no rate is required."""
    targets = serving_plan.service.targets
    in_time = [
        candidate for candidate in serving_plan.front if targets.tpot is None or candidate.tpot.value <= targets.tpot
    ]
    if not in_time or targets.requests is None:  # the candidates of the front meet the target of TTFT
        return ""
    highest = max(in_time, key=lambda candidate: candidate.requests.value)
    enough = _sufficient_gpus(highest, targets, full)
    if highest == nearest:
        return f"; {enough}"
    without = "" if targets.ttft is None else " without a queue"
    rate = units.significant(highest.requests.value)
    return f"; with these latencies, the highest rate{without} is {rate} requests/s, of {_described(highest)}; {enough}"


def _sufficient_gpus(candidate: Candidate, targets: Targets, full: Mapping[EngineKey, FullBatches]) -> str:
    """The GPUs of these engines that sustain the required rate; of mixed engines, with the wait."""
    per_engine = candidate.gpus // candidate.layout.engines
    most = 8 * (candidate.sufficient_gpus or 1) // per_engine  # with so many, each engine has few sequences
    needed = None if targets.ttft is None else _fewest_engines(candidate, full, targets, most)
    if needed is None:
        apart = "" if targets.ttft is None else " (the wait is not considered)"
        return f"{candidate.sufficient_gpus} GPUs suffice at this rate per GPU{apart}"
    if needed < most:
        return f"{needed * per_engine} GPUs with such engines meet all targets, including the wait"
    return f"{candidate.sufficient_gpus} GPUs reach the required rate, but with the wait, TTFT exceeds its target"


def _request_notes(arch: Architecture, service: Service) -> Iterator[Text]:
    """Warnings on requests with more tokens than a model has positions, and on a draft model with another
    vocabulary."""
    speculation, (isl, osl) = service.speculation, service.traffic
    models = [arch]
    if speculation is not None and not speculation.is_mtp:
        models.append(speculation.draft)
    for model in models:
        if model.max_tokens is not None and isl + osl > model.max_tokens:
            yield WarningNote(
                Option("isl", isl), " and ", Option("osl", osl),
                f" exceed the maximum positions of {model.name}, {model.max_tokens}; the limit is not enforced",
            )  # fmt: skip
    own, *others = (model.facts["vocabulary"].value for model in models)
    if others and others[0] != own:
        yield WarningNote(
            Option("draft"), f": {models[1].name} has a vocabulary of {others[0]} tokens, {arch.name} one of {own}; "
            "engines need a draft model with the same tokenizer",
        )  # fmt: skip


# --- One layout ------------------------------------------------------------------------------------


def evaluate(piece: Piece) -> Found:
    """All candidates of one layout with one set of formats."""
    service, layout, traffic = piece.service, piece.layout, piece.service.traffic
    served = replica(
        piece.arch,
        piece.device,
        layout.engine,
        piece.formats,
        service.memory_utilization,
        service.routing or UNIFORM,
        service.engine,
        service.engine_option,
        **service.limits,
    )
    weights = stored_weights(served)
    stored = stored_with_draft(served, weights, service.speculation, sum(traffic))
    largest = largest_batch(served, stored)
    if not largest:
        return Found(shortage=_shortage(piece, served, max(map(sum, stored))))
    sequences = batches(largest)
    times = generation_times(served, service.speculation, traffic.isl + traffic.osl // 2, sequences)
    result = Found()
    if "mixed" in service.modes:
        points, full = steady_states(served, traffic, stored, times, service.targets.requests, layout.engines)
        result = _mixed(piece, served, points, largest)._replace(full=full)
    if "disaggregated" in service.modes and piece.separates and layout.engine.gpus < service.gpus:
        decode = decode_rates(served, traffic, stored, times)
        prefill = prefill_rates(served, traffic, weights)
        result = result._replace(decode=decode, prefill=prefill)
    return result


def _mixed(piece: Piece, served: ServingReplica, points: Points, largest: int) -> Found:
    """The candidates on engines that compute prefill and decode together."""
    fitting = points if served.usable is None else points.at(points.memory <= served.usable)
    if len(fitting.batch):
        return _chosen(piece, served, fitting, len(points.batch), largest)
    if not len(points.batch):
        return Found()
    return Found(len(points.batch), shortage=_shortage(piece, served, points.memory.min().item()))


def _shortage(piece: Piece, served: ServingReplica, needed: Number) -> Shortage:
    return Shortage(piece.device.id, piece.layout, piece.formats, needed, served.usable)


def _chosen(piece: Piece, served: ServingReplica, points: Points, searched: int, largest: int) -> Found:
    """The best or nearest of the points, and their Pareto front."""
    targets, layout = piece.service.targets, piece.layout

    def at(place: Any) -> Candidate:
        return candidate(
            served, layout, points, int(place), osl=piece.service.traffic.osl, targets=targets, price=piece.price,
            largest=largest,
        )  # fmt: skip

    first_token = with_wait(points.ttft[0], points.wait)
    missed = targets.violation(first_token, points.tpot[0], points.requests[0] * layout.engines)
    rates, met = points.requests[0], missed <= 1
    best = (
        np.lexsort((points.tpot[0], -rates, ~met))[0]
        if met.any()
        else np.lexsort((missed, targets.excludes_wait(points.wait)))[0]
    )
    in_time = np.flatnonzero(targets.meets_ttft(first_token))
    shown = in_time[pareto(points.tpot[0][in_time], rates[in_time])]
    return Found(searched, at(best), front=tuple(map(at, shown)))
