"""The search of a plan: every layout, format, batch and chunk of a service, on every device.

Each pair of a layout and formats is one piece: one pass over the model evaluates all its batches and chunks as arrays
(`step_times.py`), with the code of `roof sweep`. Pieces run in two or more processes, or on a Dask cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import inf
from typing import Any, NamedTuple

import numpy as np

from roofmodel.counting.workload import UNIFORM, Routing
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine, default_for
from roofmodel.errors import AnswerNote, Option, Text, WarningNote, WorkloadError, ignored
from roofmodel.models.architecture import Architecture, has_experts
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number
from roofmodel.options.values import EngineName, ProgressCallback, no_progress
from roofmodel.options.workload import valid
from roofmodel.plan.candidate import Candidate, Supply, Targets, candidate, with_wait
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
    TrainingLayout,
    device_notes,
    formats,
    incomplete,
    is_power_of_two,
    no_format,
    no_layout,
    price_notes,
    search_round,
    service_layouts,
    within,
)
from roofmodel.plan.queueing import FullBatches, fewest_engines, partial_load
from roofmodel.plan.ranking import Ranked, format_text, front, layout_text, name, ranked, violation_text
from roofmodel.plan.request import MODES, MOST_SEARCHED_GPUS, ServiceRequest
from roofmodel.plan.serving import (
    Points,
    RequestLengths,
    batches,
    largest_batch,
    pareto,
    prompt_limit,
    steady_states,
)
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
from roofmodel.steps.phase import slowest_stage
from roofmodel.steps.placed import LoadSettings, load_notes, under_load
from roofmodel.steps.routing import check_routing, read_routing, routing_notes
from roofmodel.sweep.processes import in_processes
from roofmodel.sweep.sweep import prices_by_device


class Service(NamedTuple):
    """A request as the pieces of the search use it: with the draft model, the routing of the model, the engine."""

    traffic: RequestLengths
    targets: Targets
    gpus: int | None  # None: as few as suffice
    memory_utilization: float | None = None
    speculation: Speculation | None = None
    modes: tuple[str, ...] = MODES
    routing: Routing | None = None  # None: a model without experts
    engine: EngineName = ""
    engine_option: tuple[tuple[str, str], ...] = ()
    limits: Mapping[str, int | None] = {}
    """The options that the servers are started with."""
    chunk: int | None = None

    @property
    def most_gpus(self) -> int:
        """The GPUs that are searched at most."""
        return self.gpus or MOST_SEARCHED_GPUS

    def supply(self, price: float | None) -> Supply:
        """The GPUs of a device: without a required rate, all are paid for."""
        return Supply(self.most_gpus, price, self.targets.requests is None)


class Piece(NamedTuple):
    """One layout with one set of formats on one device. At a required rate it has fewer engines if they suffice, unless
    their number is given."""

    arch: Architecture
    device: Device
    layout: Layout
    formats: Formats
    service: Service
    price: float | None = None
    separates: bool = True  # whether its engine is also one of disaggregated serving
    is_fixed: bool = False  # whether the number of engines is given


class Shortage(NamedTuple):
    """A layout that does not fit with one sequence: the bytes per GPU that it needs and may use."""

    device: str
    layout: Layout | TrainingLayout
    formats: Formats
    needed: Number
    usable: Number


class Found(NamedTuple):
    """The result of a piece: the number of its candidates, the best or nearest one, the Pareto front; the rates of one
    engine that only decodes or only computes prompts."""

    points: int = 0
    best: Candidate | None = None
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
    gpus, restricted, seconds = service.most_gpus, request.search, float(request.time_limit)
    prices = prices_by_device(request.price, devices)
    searched = {device.id: formats(arch, device, loaded, restricted) for device in devices}
    is_given = not restricted.keys().isdisjoint({"tp", "pp", "ep"})
    pieces = [
        Piece(
            arch, device, layout, form, service, prices.get(device.id),
            is_given or is_power_of_two(layout.engine.gpus), "dp" in restricted,
        )
        for layout in service_layouts(arch, gpus, restricted)
        for device in devices
        for form in searched[device.id]
    ]  # fmt: skip
    if not pieces:
        raise WorkloadError(
            *(no_layout(arch, gpus, restricted) if any(searched.values()) else no_format(devices, restricted))
        )
    search = _Search(devices, service, prices, request)
    search.run(pieces, seconds, progress)
    found = search.found
    apart, apart_front, pairs = search.disaggregated()
    best = [*(each.best for each in found if each.best is not None), *apart]
    shortages = [each.shortage for each in found if each.shortage is not None]
    best_ranked = [
        entry._replace(candidate=entry.candidate._replace(engine=engine_name))
        for entry in ranked(best, request.top, service.targets)
    ]
    nearest = None
    if shortages and not best:
        nearest = min(shortages, key=lambda shortage: shortage.needed / shortage.usable)
    serving_plan = ServingPlan(
        model=arch.name, devices=tuple(device.id for device in devices), service=service, ranked=tuple(best_ranked),
        front=tuple(front([*(point for each in found for point in each.front), *apart_front])), shortage=nearest,
        searched=pairs + sum(each.points for each in found), layouts=len(found), notes=(),
        complete=search.done == len(pieces),
    )  # fmt: skip
    evaluated = [device for device in devices if searched[device.id]]
    remarks = (*_notes(serving_plan, pieces, prices), *device_notes(devices, evaluated))
    remarks = (*remarks, *dict.fromkeys(_kernel_notes(arch, evaluated, serving_plan)))
    if not serving_plan.complete:
        remarks = (incomplete(search.done, len(pieces), seconds), *remarks)
    if "auto" in restricted.get("dtype", ()):
        remarks = (*auto_dtype_notes(arch), *remarks)
    return serving_plan._replace(notes=(*arch.notes, *load_remarks, *routing_remarks, *remarks))


class _Search:
    """The results of a search. At a required rate, engines with more GPUs than the last of the candidates that may be
    shown are not evaluated."""

    def __init__(
        self, devices: Sequence[Device], service: Service, prices: Mapping[str, float], request: ServiceRequest
    ) -> None:
        self.devices, self.service, self.prices, self.request = devices, service, prices, request
        self.found: list[Found] = []
        self.done = 0  # pieces, with those that need not be evaluated

    def run(self, pieces: Sequence[Piece], seconds: float, progress: ProgressCallback) -> None:
        """Evaluate the pieces, the small engines first, until the time limit."""
        for result in within(self._results(pieces), seconds):
            self.done += 1
            if result is not None:
                self.found.append(result)
            progress("layouts", self.done, len(pieces))

    def _results(self, pieces: Sequence[Piece]) -> Iterator[Found | None]:
        """The result of each piece, None for those that need not be evaluated."""
        for number, several in groupby(pieces, key=lambda piece: search_round(piece.layout)):
            limits = self._most_gpus() if number else {}
            needed = list[Piece]()
            for piece in several:
                if piece.layout.engine.gpus > limits.get(piece.device.id, inf):
                    yield None
                else:
                    needed.append(piece)
            yield from _evaluated(needed, self.request.cluster)

    def _most_gpus(self) -> dict[str, int]:
        """By device, the GPUs of the last candidate that may be shown, if enough meet the required rate and targets."""
        if self.service.targets.requests is None:
            return {}
        gpus: dict[str, list[int]] = {}
        for each in [*(one.best for one in self.found), *self.disaggregated()[0]]:
            if each is not None and each.meets:
                gpus.setdefault(each.device, []).append(each.gpus)
        top = self.request.top
        return {device: sorted(several)[top - 1] for device, several in gpus.items() if len(several) >= top}

    def disaggregated(self) -> tuple[list[Candidate], list[Candidate], int]:
        """The best candidate of each decode engine with engines of its own for prefill, candidates for the Pareto
        front, and the number of all."""
        best, points, searched, service = list[Candidate](), list[Candidate](), 0, self.service
        for device in self.devices:
            links = service_links(device, service.most_gpus)
            prefill = [each for one in self.found if (each := one.prefill) and each.device == device.id]
            decode = [rates for one in self.found if (rates := one.decode) and rates.device == device.id]
            if not links or not prefill:
                continue
            common = EngineMatching(
                service.supply(self.prices.get(device.id)), service.traffic, service.targets, links
            )  # fmt: skip
            for count, best_match, several in matched(prefill, decode, common):
                searched += count
                best.append(best_match)
                points += several
        return best, points, searched


def _service(
    arch: Architecture, request: ServiceRequest, drafter: Architecture | None
) -> tuple[Service, Iterable[Text]]:
    """The request for this model, and notes on its routing. Raises WorkloadError if it is invalid for the model."""
    if request.gpus is None and request.requests is None:
        raise WorkloadError(
            Option("gpus"), " is missing; try ", Option("gpus", 8), ", or ", Option("requests", "5/s"),
            " for the smallest number of GPUs",
        )  # fmt: skip
    given = (request.ttft, request.tpot, request.requests, request.itl_p99)
    limits = [None if limit is None else float(limit) for limit in given]
    service = Service(
        RequestLengths(request.isl, request.osl), Targets(*limits), request.gpus, request.memory_utilization,
        speculation_of(arch, request, drafter), tuple(request.mode or MODES),
        engine=request.engine or default_for("decoder_inference"),
        engine_option=valid("engine_option", request.engine_option or ()),
        limits={
            "max_len": request.max_len or request.isl + request.osl, "token_budget": request.token_budget,
            "max_seqs": request.max_seqs,
        },
        chunk=request.chunk,
    )  # fmt: skip
    if not has_experts(arch):
        unused = request.routing is not None
        return service, [ignored("routing", f"{arch.name} has no experts")] * unused
    routing = UNIFORM if request.routing is None else read_routing(request.routing)
    check_routing(arch, routing)
    return service._replace(routing=routing), routing_notes(arch, routing, service.most_gpus)


def _evaluated(pieces: Sequence[Piece], cluster: str | None) -> Iterator[Found]:
    if cluster is None:
        return in_processes(evaluate, pieces)
    from roofmodel.sweep.dask_cluster import evaluate_on_cluster

    return evaluate_on_cluster(evaluate, pieces, cluster)


def _notes(serving_plan: ServingPlan, pieces: Sequence[Piece], prices: Mapping[str, float]) -> Iterator[Text]:
    if serving_plan.shortage is not None:
        short = serving_plan.shortage
        yield WarningNote(
            f"does not fit: the nearest layout, {layout_text(short.layout)} on {short.device}, needs "
            f"{units.binary(float(short.needed))} per GPU of {units.binary(float(short.usable))} usable; try more ",
            Option("gpus"), " or ", Option("weights", "int4"),
        )  # fmt: skip
    elif not serving_plan.meets and serving_plan.ranked:
        nearest, targets = serving_plan.ranked[0].candidate, serving_plan.service.targets
        searched = "" if serving_plan.complete else " that was searched"
        yield WarningNote(
            f"no layout{searched} meets the targets; the nearest is {_described(nearest)}: "
            f"{violation_text(nearest, targets)}",
            *_reachable_rate(serving_plan),
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


def _reachable_rate(serving_plan: ServingPlan) -> Iterator[Text]:
    """The highest rate within the latencies without a queue; no text if no candidate has such latencies or no rate is
    required."""
    targets = serving_plan.service.targets._replace(ttft=None, requests=None)
    # the candidates of the front meet the target of TTFT
    in_time = [each for each in serving_plan.front if targets.latency_ratio(None, each.tpot.value, each.itl_p99) <= 1]
    if not in_time or serving_plan.service.targets.requests is None:
        return
    highest = max(in_time, key=lambda candidate: candidate.requests.value)
    rate = units.significant(highest.requests.value)
    without = "" if serving_plan.service.targets.ttft is None else " without a queue"
    yield f"; with these latencies, the highest rate{without} is {rate} requests/s, of {_described(highest)}"
    if serving_plan.service.gpus is not None:
        yield from ("; the smallest number of GPUs that suffices is the answer without ", Option("gpus"))


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
        points, full = steady_states(served, traffic, stored, times, service.chunk)
        fits = np.full(len(points.batch), True) if served.usable is None else points.memory <= served.usable
        if fits.any():
            result = _Mixed(piece, served, points.at(fits), full.at(fits), largest).found(len(fits))
        elif len(fits):
            result = Found(len(fits), shortage=_shortage(piece, served, points.memory.min().item()))
    if "disaggregated" in service.modes and piece.separates and layout.engine.gpus < service.most_gpus:
        decode = decode_rates(served, traffic, stored, times)
        prefill = prefill_rates(served, traffic, weights)
        result = result._replace(decode=decode, prefill=prefill)
    return result


def _shortage(piece: Piece, served: ServingReplica, needed: Number) -> Shortage:
    return Shortage(piece.device.id, piece.layout, piece.formats, needed, served.usable)


class _Mixed:
    """The candidates with engines that compute prefill and decode: the points of an engine, and the most engines."""

    def __init__(self, piece: Piece, served: ServingReplica, points: Points, full: FullBatches, largest: int) -> None:
        self.piece, self.served, self.points, self.full, self.largest = piece, served, points, full, largest
        self.targets, self.engines = piece.service.targets, piece.layout.engines

    def found(self, searched: int) -> Found:
        """The best or nearest of the candidates, and their Pareto front."""
        points, targets = self.points, self.targets
        best = self._fewest_gpus() or self._fastest()
        in_time = np.flatnonzero(targets.meets_ttft(points.ttft[0]))
        shown = in_time[pareto(points.tpot[0][in_time], points.requests[0][in_time])]
        without_rate = targets._replace(requests=None)
        front = (self._candidate(int(place), self.engines, points.ttft, None, without_rate) for place in shown)
        return Found(searched, best, front=tuple(front))

    def _fewest_gpus(self) -> Candidate | None:
        """The candidate with the fewest engines that meet all targets at the required rate, of the batch with the
        highest rate within the latencies; None if no number does, or without a required rate."""
        points, targets = self.points, self.targets
        if targets.requests is None:
            return None
        allowed = np.flatnonzero(targets.violation(0.0, points.tpot[0], inf, points.itl_p99) <= 1)
        if not len(allowed):
            return None
        place = int(allowed[np.argmax(points.requests[0][allowed])])
        limit = inf if targets.ttft is None else targets.ttft
        needed = fewest_engines(self.full, place, targets.requests, self.engines, limit)
        if needed is None:
            return None
        engines = self.engines if self.piece.is_fixed else needed
        ttft, wait = partial_load(self.full, targets.requests, engines)
        return self._candidate(place, engines, ttft, float(wait[place]), targets)._replace(engines_needed=needed)

    def _fastest(self) -> Candidate:
        """The candidate with all engines and the highest rate that meets all targets, else the nearest one."""
        points, targets = self.points, self.targets
        ttft, wait, first_token = points.ttft, None, points.ttft[0]
        if targets.requests is not None:
            ttft, wait = partial_load(self.full, targets.requests, self.engines)
            first_token = with_wait(ttft[0], wait)
        missed = targets.violation(first_token, points.tpot[0], points.requests[0] * self.engines, points.itl_p99)
        excluded = np.zeros(len(missed)) if wait is None else targets.excludes_wait(wait)
        unmet = np.where(missed <= 1, 0.0, missed)
        place = int(np.lexsort((points.tpot[0], -points.requests[0], unmet, excluded))[0])
        return self._candidate(place, self.engines, ttft, None if wait is None else float(wait[place]), targets)

    def _candidate(
        self, place: int, engines: int, ttft: Sequence[Any], wait: float | None, targets: Targets
    ) -> Candidate:
        service = self.piece.service
        return candidate(
            self.served, engines, self.points, place, ttft=ttft, wait=wait, osl=service.traffic.osl, targets=targets,
            supply=service.supply(self.piece.price), largest=self.largest,
            chunk=prompt_limit(self.served, service.traffic.isl, service.chunk),
        )  # fmt: skip
