"""`roofmodel.calibrate_engine`, `roof calibrate MODEL RESULT…`: the host of an engine, fitted to benchmark results."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from math import floor, log10
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Unpack

from roofmodel.devices.device import Hardware
from roofmodel.errors import Option, Text, WorkloadError
from roofmodel.numbers import units
from roofmodel.options import values
from roofmodel.options.serving import ServeRequest, requests_of
from roofmodel.options.signature import checked, lists_request
from roofmodel.options.values import Model, PathLike
from roofmodel.report.base import Result
from roofmodel.report.document import Block, Document, Facts, Paragraph, Rows
from roofmodel.report.table import COUNT, SECONDS, Column, Table, Unit

if TYPE_CHECKING:
    from pathlib import Path

    from roofmodel.compare.serving.host_fit import HostFit, HostSample
    from roofmodel.compare.serving.prediction import PredictedRun
    from roofmodel.engines.engine import Engine
    from roofmodel.engines.engine_file import Host
    from roofmodel.options.keywords import EstimateOptions

LEAST = 2
"""Results that a fit needs: two terms of a step."""
TERMS = {
    "step": "each step", "sequence": "each sequence of a step", "request": "each request, outside the steps",
    "request_token": "each token of its prompt",
}  # fmt: skip
"""The fitted terms of a host and their meaning."""
_SHARE = Unit("{:+.1%}".format)


class _FittedRun(NamedTuple):
    """A run before and after the fit, and its TPOT with a host that was fitted to the others."""

    in_flight: int
    before: HostSample
    after: HostSample
    left_out: float | None

    @property
    def errors(self) -> tuple[float, float, float | None]:
        """The relative errors of TPOT: with the engine's file, fitted, left out of the fit."""
        measured = self.after.tpot
        left_out = None if self.left_out is None else self.left_out / measured - 1
        return self.before.expected_tpot / measured - 1, self.after.expected_tpot / measured - 1, left_out

    @property
    def first_token_errors(self) -> tuple[float | None, float | None]:
        """Those of TTFT, with the engine's file and fitted."""
        before, after = (
            each.expected_ttft / each.ttft - 1 if each.ttft and each.expected_ttft else None
            for each in (self.before, self.after)
        )
        return before, after


RUNS = Table(
    "runs",
    (
        Column(None, "in flight", COUNT, "in_flight"),
        Column(None, "TPOT", SECONDS, "after.tpot"),
        Column(None, "file", _SHARE, lambda row: row.errors[0]),
        Column(None, "fitted", _SHARE, lambda row: row.errors[1]),
        Column(None, "left out", _SHARE, lambda row: row.errors[2]),
        Column(None, "TTFT", SECONDS, "after.ttft"),
        Column(None, "file ", _SHARE, lambda row: row.first_token_errors[0]),
        Column(None, "fitted ", _SHARE, lambda row: row.first_token_errors[1]),
    ),
)
"""A row for each result."""


class EngineCalibrationReport(Result):
    """Result of `calibrate_engine`: the host of an engine, with the errors of each result before and after the fit.

    `save` writes the engine's file; `host` has the fitted seconds.
    """

    FILES: ClassVar[Sequence[str]] = ("yaml",)
    FORMATS: ClassVar[Sequence[str]] = ()

    def __init__(self, engine: Engine, runs: Sequence[PredictedRun], fit: HostFit) -> None:
        self.engine, self.host = engine, rounded(fit.host)
        self._runs, self._fit = runs, fit

    def answer(self) -> Document:
        """The fitted terms, and the errors of each result."""
        left_out: Sequence[float | None] = self._fit.left_out or [None] * len(self._runs)
        rows = [
            _FittedRun(run.in_flight, before, after, tpot)
            for run, before, after, tpot in zip(self._runs, self._fit.before, self._fit.after, left_out, strict=True)
        ]
        facts = [
            (name, f"{_time(seconds)} for {meaning}" if (seconds := getattr(self.host, name)) else "none")
            for name, meaning in TERMS.items()
        ]
        text = (
            "expected / measured - 1, with the engine's file, the fitted host, and a host fitted to the other results"
        )
        blocks: list[Block] = [Facts(facts), Rows(RUNS, rows), Paragraph(text, dim=True)]
        return Document(f"host of {self.engine.label}, fitted to {units.count(len(rows), 'result')}", blocks, dict)

    def _messages(self) -> Iterable[Text]:
        """What the results cannot tell, and where the host is no explanation."""
        yield from _remarks(self._runs, self._fit)

    @property
    def yaml(self) -> str:
        """The engine's file: everything else is that of the engine."""
        engine = self.engine
        like = engine.id if engine.file == f"{engine.id}.yaml" else os.path.abspath(engine.file)
        names = ", ".join(dict.fromkeys(each.run.file for each in self._runs))
        step = self._runs[0].service.mean_step
        terms = ", ".join(f"{name}: {_time(getattr(self.host, name))}" for name in TERMS if getattr(self.host, name))
        text = f"fitted by roof calibrate on {date.today().isoformat()} to {names}; {step.architecture.name} on "
        return (
            f"# {engine.label} with the host that benchmarks of it show.\n"
            f"like: {_quoted(like)}\nhost: {{{terms}}}\n"
            f"source:\n  host: {_quoted(f'{text}{step.device.id}')}\n"
        )

    def _write(self, form: str, file: Path) -> None:
        """Write the engine's file."""
        file.write_text(self.yaml, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<EngineCalibrationReport of {self.engine.label}>"


def rounded(host: Host) -> Host:
    """The host with three digits, as its file states it."""
    return host._replace(
        step=_rounded(host.step), sequence=_rounded(host.sequence), request=_rounded(host.request),
        request_token=_rounded(host.request_token),
    )  # fmt: skip


def _rounded(seconds: float) -> float:
    return round(seconds, 2 - floor(log10(seconds))) if seconds else 0.0


def _time(seconds: float) -> str:
    """A time as an engine's file states it: `35 us`."""
    return units.seconds(seconds).replace("µ", "u")


def _quoted(text: str) -> str:
    """A text in YAML, in quotes."""
    return json.dumps(text, ensure_ascii=False)


def _remarks(runs: Sequence[PredictedRun], fit: HostFit) -> Iterator[Text]:
    slow = [each for each in fit.after if each.expected_tpot > 1.05 * each.tpot]
    if not fit.host.step and not fit.host.sequence and slow:
        yield (
            "no host in steps is fitted: TPOT is shorter than expected without one; the kernels differ, not the host"
        )
    if len({each.in_flight for each in runs}) == 1:
        yield "all results have as many requests in flight: the terms of a step and of a sequence cannot be told apart"
    lengths = {round(each.prompt) for each in fit.after}
    if all(each.ttft is None for each in fit.after):
        yield "the results state no TTFT: the terms outside the steps are those of the engine's file"
    elif len(lengths) == 1:
        yield "all prompts are equally long: request_token is that of the engine's file"


@checked
@lists_request(ServeRequest)
def calibrate_engine(
    model: Model,
    *files: PathLike,
    hw: Hardware | None = None,
    family: str | None = None,
    **options: Unpack[EstimateOptions],
) -> EngineCalibrationReport:
    """Fit what the host of a serving engine takes to a few results of serving benchmarks (needs scipy, which the extra
    `calibrate` installs).

    Kernels and all else are those of `engine`. Results at several concurrencies tell the seconds of a step from those
    of a sequence. Raises RoofError.

    Args:
        model: A packaged name, a config.json or its folder, or a Hub id.
        *files: Results of serving benchmarks, as for `compare`.
        hw: The device, if the files do not state it.
        family: Read an unknown model_type as this family, such as llama.
        **options: The options of `estimate`; `engine` and `engine_option` name the engine that is calibrated.

    Examples:
        >>> calibrate_engine("llama-3.1-70b", "c8.json", "c64.json", hw="h100", engine="vllm", tp=8)  # doctest: +SKIP
        >>> calibrate_engine("llama-3-8b", "examples/genai_perf_a100_llama3-8b_c50.json", hw="a100", engine="trtllm")
        Traceback (most recent call last):
        ...
        roofmodel.errors.WorkloadError: 1 result given; a fit needs at least 2, of different concurrencies
    """
    from roofmodel.benchmark_results.reading import read
    from roofmodel.compare.serving.differences import step_excess
    from roofmodel.compare.serving.host_fit import HostSample, fit_host
    from roofmodel.compare.serving.prediction import device_of, predictor_of
    from roofmodel.engines.engine import Engine
    from roofmodel.models import hub

    requests = requests_of(options)
    given = options.get("engine")
    if given is None:
        raise WorkloadError("the engine that is calibrated is not given; add it, as in ", Option("engine", "ENGINE"))
    runs = read(values.paths("files", files))
    if len(runs) < LEAST:
        raise WorkloadError(
            f"{units.count(len(runs), 'result')} given; a fit needs at least {LEAST}, of different concurrencies"
        )
    settings = options.get("engine_option")
    engine = Engine.load(given, values.settings("engine_option", settings) if settings else ())
    device = device_of(runs, hw)
    arch = hub.load(values.path("model", model), family)

    def predicted(host: Host) -> list[PredictedRun]:
        with_host = {**options, "engine": engine._replace(host=host), "engine_option": None}
        predictor = predictor_of(arch, device, requests, with_host)
        return [predictor.predict(run) for run in runs]

    def samples(host: Host) -> list[HostSample]:
        found = []
        for each in predicted(host):
            if each.expected is None:
                raise WorkloadError(f"{device.id} is not calibrated: no times of kernels are known to subtract")
            if (excess := step_excess(each)) is None:
                raise WorkloadError(f"{each.run.file}: states neither TPOT nor the latency of requests")
            ttft = each.figures.ttft_seconds
            found.append(
                HostSample(
                    excess.sequences, each.run.isl, excess.measured, excess.expected, ttft, each.expected.ttft_seconds
                )
            )
        return found

    fit = fit_host(samples, engine.host)
    return EngineCalibrationReport(engine, predicted(fit.host), fit)
