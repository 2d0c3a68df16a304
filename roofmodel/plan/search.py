"""The evaluation of one layout with one set of formats: its candidates on mixed engines, its rates on engines of its
own for prefill or decode."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from roofmodel.counting.workload import UNIFORM, Routing
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture
from roofmodel.numbers.algebra import Number
from roofmodel.options.values import EngineName
from roofmodel.options.workload import MEMORY_UTILIZATION
from roofmodel.plan.candidate import Candidate, Targets, candidate, with_wait
from roofmodel.plan.disaggregated import DecodeRates, PrefillRates, decode_rates, prefill_rates
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.partial_load import FullBatches
from roofmodel.plan.serving import Points, RequestLengths, batches, largest_batch, pareto, steady_states
from roofmodel.plan.speculation import Speculation, generation_times, stored_with_draft
from roofmodel.plan.step_times import ServingReplica, replica, stored_weights

MODES = ("mixed", "disaggregated")


class Service(NamedTuple):
    """The question: requests, targets, number of GPUs, how much of their memory may be used, how they serve,
    how tokens choose experts, and the engine."""

    traffic: RequestLengths
    targets: Targets
    gpus: int
    memory_utilization: float = MEMORY_UTILIZATION
    speculation: Speculation | None = None
    modes: tuple[str, ...] = MODES
    routing: Routing | None = None  # None: a model without experts
    engine: EngineName = ""
    engine_option: tuple[tuple[str, str], ...] = ()


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
    )
    weights = stored_weights(served)
    stored = stored_with_draft(served, weights, service.speculation, sum(traffic))
    largest = largest_batch(served, stored)
    if not largest:
        return Found(shortage=_shortage(piece, served, max(map(sum, stored))))
    sequences = batches(largest)
    times = generation_times(served, service.speculation, traffic, sequences)
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
