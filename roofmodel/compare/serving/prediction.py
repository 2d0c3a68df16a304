"""The runs of a serving benchmark, predicted by the simulation of `roof estimate --phase serve`.

A client's first request arrives together with those of all others. A mean over all requests contains them, a median
does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import isinf
from typing import Any, NamedTuple

from roofmodel.benchmark_results.run import Figures, ServingRun
from roofmodel.devices.device import Device, Hardware
from roofmodel.engines.engine import Engine, default_for
from roofmodel.errors import AnswerNote, EngineError, Message, Option, RoofError, Text, WorkloadError, joined
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.numbers import units
from roofmodel.options.serving import ServeRequest, serve_request
from roofmodel.options.values import REQUESTS_PER_CLIENT
from roofmodel.plan.layouts import Layout, service_layouts
from roofmodel.profiles.kernel import Evidence
from roofmodel.roofline.device import identify
from roofmodel.serve.service import OverloadError, ServingEstimate, service
from roofmodel.serve.totals import ServiceTimes


class PredictedRun(NamedTuple):
    """A run and what is expected of it; without `expected`, `low` and `high` where the device is not calibrated.

    `in_flight`: the requests in flight of the prediction. `figures`: measured ones, with the latency from TTFT and TPOT
    where the file does not state it.
    """

    run: ServingRun
    figures: Figures
    in_flight: int
    service: ServingEstimate
    expected: Figures | None
    low: Figures | None
    high: Figures | None
    bound: Figures

    @property
    def layout(self) -> Layout:
        """The layout of the prediction, of one copy."""
        parallel = self.service.mean_step.workload.parallel
        engines = self.service.gpus // self.service.request.replicas // parallel.gpus
        return Layout(parallel.tp, parallel.pp, parallel.ep, parallel.dp * engines)

    @property
    def other_sizes(self) -> list[str]:
        """The sizes of the layout in which the file differs from the prediction."""
        return [name for name, size in self.run.layout.items() if getattr(self.layout, name) != size]

    def sizes(self, names: Iterable[str]) -> Message:
        """These sizes of the prediction's layout, as options."""
        return sizes(self.layout._asdict(), names)


def sizes(layout: Mapping[str, int], names: Iterable[str]) -> Message:
    """Sizes of a layout as options: `--tp 4 --dp 2`."""
    return joined(" ", (Option(name, layout[name]) for name in names))


class Predictor(NamedTuple):
    """What all runs of a comparison share: the model, the device, and the options that the user gave."""

    arch: Architecture
    device: Device
    requests: Mapping[str, Any]
    options: Mapping[str, Any]
    drafter: Architecture | None = None

    def predict(self, run: ServingRun, **replaced: Any) -> PredictedRun:
        """The prediction of a run; `replaced` are options of a workload in place of the given and the stated ones.

        Raises WorkloadError where the run states too little, and where the model does not fit.
        """
        options = {**_stated(run), **{k: v for k, v in self.options.items() if v is not None}, **replaced}
        try:
            found = service(self.arch, self.device, self._request(run), options, self.drafter)
        except OverloadError:  # the run ended, though more requests arrived than the engines are expected to serve
            request = self._request(run._replace(request_rate=None, concurrency=None))
            found = service(self.arch, self.device, request, options, self.drafter)
        rate = found.request.requests
        in_flight = found.request.concurrency or max(1, round(float(rate or 0) * found.times.latency))
        shift = 0.0
        if rate is None and (run.requests is not None or run.statistic == "median"):
            first = min(1.0, in_flight / run.requests) if run.requests and run.statistic == "mean" else 0.0
            shift = (found.loop.first_ttft - found.loop.ttft) * (first - 1 / REQUESTS_PER_CLIENT)
        expected = low = high = None
        if found.expected and found.low and found.high:
            ends = [_figures(found, times, in_flight, shift * times.ttft / found.expected.ttft)
                    for times in (found.expected, found.low, found.high)]  # fmt: skip
            expected, low, high = ends[0], _with_rates(ends[1], ends[2]), _with_rates(ends[2], ends[1])
        measured = run.measured._replace(latency_seconds=run.latency)
        return PredictedRun(
            run, measured, in_flight, found, expected, low, high, _figures(found, found.bound, in_flight)
        )  # fmt: skip

    def other_layouts(self, each: PredictedRun) -> Iterator[PredictedRun]:
        """The run predicted with every other layout of the same GPUs that fits."""
        for layout in service_layouts(self.arch, each.layout.gpus, {}):
            if layout.gpus == each.layout.gpus and layout != each.layout:
                try:
                    yield self.predict(each.run, **layout._asdict())
                except RoofError:
                    continue

    def without_graphs(self, each: PredictedRun) -> PredictedRun | None:
        """The run predicted with an engine whose host launches each kernel; None where that does not apply."""
        try:
            return self.predict(each.run, engine=default_for("other"))
        except RoofError:
            return None

    def _request(self, run: ServingRun) -> ServeRequest:
        given = dict(self.requests)
        if run.request_rate is not None and run.concurrency is None and not {"concurrency", "requests"} & given.keys():
            given["requests"] = run.request_rate
        if not {"concurrency", "requests"} & given.keys():
            if not run.in_flight:
                raise WorkloadError(
                    f"{run.file}: the file does not state how many requests were in flight; add ",
                    Option("concurrency", 64),
                )  # fmt: skip
            given["concurrency"] = max(1, round(run.in_flight))
        if run.longest and not {"isl", "osl", "length_ratio"} & given.keys():
            given |= {"isl": run.longest[0], "osl": run.longest[1], "length_ratio": run.length_ratio}
        isl, osl = (max(least, round(length)) for least, length in ((1, run.isl), (2, run.osl)))
        if ratio := given.get("length_ratio"):  # the file states means
            isl, osl = (round(2 * length / (1 + ratio)) for length in (isl, osl))
        return serve_request({"isl": isl, "osl": osl, **given})


def predictor_of(
    arch: Architecture, device: Device, requests: Mapping[str, Any], options: Mapping[str, Any]
) -> Predictor:
    """The predictor with these options of a service and of a workload. Raises RoofError for an unknown draft model."""
    return Predictor(arch, device, requests, options, hub.load_draft(requests.get("draft")))


def device_of(runs: Sequence[ServingRun], hw: Hardware | None) -> Device:
    """The given device, or the one whose name the files state. Raises RoofError without either."""
    if hw is not None:
        return Device.load(hw)
    evidence = {Evidence(name=run.gpu) for run in runs if run.gpu}
    if not evidence:
        raise WorkloadError("these results do not state the GPU; add it, as in ", Option("hw", "h100"))
    return identify(evidence, None, [run.file for run in runs]).device


def _stated(run: ServingRun) -> dict[str, Any]:
    """The options of a workload that a file states: layout and engine."""
    options: dict[str, Any] = dict(run.layout)
    if run.engine:
        options["engine"] = run.engine
        with suppress(EngineError):  # a version without a file: `notes` says which one is used
            options["engine"] = Engine.load(f"{run.engine}@{run.version}" if run.version else run.engine)
    return options


def notes(each: PredictedRun, given: Mapping[str, Any]) -> Iterator[Text]:
    """What was assumed of a run."""
    for text in _assumptions(each, given):
        yield AnswerNote(f"{each.run.file}: ", text)


def _assumptions(each: PredictedRun, given: Mapping[str, Any]) -> Iterator[Text]:
    run, engine = each.run, each.service.mean_step.workload.engine
    if run.request_rate is not None and each.service.request.requests is None:
        why = f"at most {run.concurrency} at once" if run.concurrency else "more than are expected to be served"
        yield (
            f"requests arrived at {units.significant(run.request_rate)}/s, {why}; it is compared with "
            f"{each.in_flight} requests in flight, which follow from the measured rate and latency (Little's law)"
        )
    elif run.request_rate is None and run.concurrency is None and "concurrency" not in given:
        yield (
            f"the file states no limit of requests in flight; it is compared with {each.in_flight}, the measured mean"
        )
    if given.get("engine") is None and not run.engine:
        yield Message(f"the file does not state the engine; {engine.label} is assumed; see ", Option("engine"))
    elif given.get("engine") is None and run.version and not run.version.startswith(engine.version):
        yield f"of version {run.version} of {engine.name}; the parameters are those of {engine.label}"
    if run.statistic == "median":
        yield "the file states medians, which are compared with expected means"
    if run.dataset not in (None, *EQUAL_LENGTHS):
        yield (
            f"the lengths of the dataset {run.dataset} vary; all requests are predicted with their means, "
            f"{round(run.isl)} prompt and {round(run.osl)} new tokens"
        )
    if others := each.other_sizes:
        yield Message("the file states ", sizes(run.layout, others), "; it is predicted with ", each.sizes(others))
    if run.failed:
        yield f"{units.count(run.failed, 'request')} failed, which the figures leave out"


EQUAL_LENGTHS = ("random", "random-ids")
"""Datasets whose lengths are those of the options, or drawn as these say."""


def _figures(found: ServingEstimate, times: ServiceTimes, in_flight: int, shift: float = 0.0) -> Figures:
    """The figures of a run in which TTFT is longer by `shift`; the rates follow from the latency by Little's law."""
    latency = times.latency + shift
    if isinf(latency):  # an open loop that is not stable at this end of its interval
        return Figures(tpot_seconds=times.tpot, itl_p99_seconds=times.itl_p99)
    rate = float(found.request.requests or in_flight / latency)
    return Figures(times.ttft + shift, times.tpot, times.itl_p99, latency, rate * found.mean_osl, rate)


def _with_rates(latencies: Figures, rates: Figures) -> Figures:
    """The latencies of one end of the interval with the rates of the other one: both are low, or both are high."""
    return Figures(*latencies[:4], *rates[4:])
