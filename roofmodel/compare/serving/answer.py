"""The answer of `roof compare` for results of serving benchmarks: for each run a table, and why it differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from roofmodel.benchmark_results.run import Figures
from roofmodel.compare.serving.compare import ComparedRun, ServingComparison
from roofmodel.numbers import units
from roofmodel.report.document import SEPARATOR, Block, Document, Heading, Items, Rows
from roofmodel.report.table import COUNT, NUMBER, PERCENT, RATE, SECONDS, Column, Table, Unit, joined
from roofmodel.serve.totals import LATENCIES


class RunQuantity(NamedTuple):
    """A figure of a run: its field of Figures, title, unit and meaning; its keys in files are `low` and `high`."""

    key: str
    title: str
    unit: Unit
    meaning: str
    ends: tuple[str, str]


def _quantity(key: str, suffix: str, title: str, unit: Unit, meaning: str) -> RunQuantity:
    ends = (f"{key}_low{suffix}", f"{key}_high{suffix}")
    return RunQuantity(f"{key}{suffix}", title, unit, meaning, ends)


QUANTITIES = (
    *(_quantity(name, "_seconds", title, SECONDS, meaning) for name, (title, meaning) in LATENCIES.items()),
    _quantity("output_tokens_per_second", "", "tokens/s", RATE, "output tokens of all requests per second"),
    _quantity("requests_per_second", "", "requests/s", NUMBER, "requests per second"),
)


class _FigureLine(NamedTuple):
    """A figure of a run for people."""

    compared: ComparedRun
    quantity: RunQuantity

    def of(self, which: str) -> float | None:
        figures: Figures | None = getattr(self.compared.predicted, which)
        value: float | None = getattr(figures, self.quantity.key, None)
        return value

    def text(self, which: str) -> str | None:
        value = self.of(which)
        return None if value is None else self.quantity.unit.write(value)

    @property
    def interval(self) -> str | None:
        low, high = self.text("low"), self.text("high")
        return low and f"{low} to {high}"

    @property
    def ratio(self) -> float | None:
        measured, expected = self.of("figures"), self.of("expected")
        return None if measured is None or expected is None else measured / expected


LINES = Table(
    "figures",
    (
        Column(None, "", value="quantity.title"),
        Column(None, "measured", COUNT, text=lambda line: line.text("figures"), unknown="-"),
        Column(None, "expected", COUNT, text=lambda line: line.text("expected")),
        Column(None, "80 % interval", COUNT, text=lambda line: line.interval),
        Column(None, "bound", COUNT, text=lambda line: line.text("bound"), priority=1),
        Column(None, "meas./exp.", PERCENT, "ratio"),
    ),
)
"""A row for each figure of a run (_FigureLine)."""


def _run(name: str) -> str:
    return f"predicted.run.{name}"


def _columns(kind: str, which: str, meaning: str, ends: bool = False) -> Iterator[Column]:
    """The columns of all quantities: `expected_ttft_seconds`, and the ends of the interval."""

    def value(which: str, key: str) -> Callable[[ComparedRun], Any]:
        return lambda row: getattr(getattr(row.predicted, which), key, None)

    for each in QUANTITIES:
        yield Column(f"{kind}_{each.key}", unit=each.unit, value=value(which, each.key), meaning=meaning + each.meaning)
        for end, key in zip(("low", "high"), each.ends, strict=True) if ends else ():
            yield Column(f"{kind}_{key}", value=value(end, each.key), meaning=f"the 80 % interval of `{each.key}`")


RUNS = Table(
    "runs",
    (
        Column("file", "file", value=_run("file"), meaning="the file"),
        Column("tool", value=_run("tool"), meaning="the benchmark that wrote it"),
        Column("model", value=_run("model"), meaning="the model that it states; null if none"),
        Column(
            "concurrency", "concurrency", COUNT, _run("concurrency"),
            meaning="requests in flight at most; null if it states no limit",
        ),
        Column(
            "request_rate", unit=NUMBER, value=_run("request_rate"),
            meaning="requests per second that its clients sent; null where each waits for its answer",
        ),
        Column("in_flight", value="predicted.in_flight", meaning="requests in flight of the prediction"),
        Column("isl", value=_run("isl"), meaning="mean prompt tokens of a request"),
        Column("osl", value=_run("osl"), meaning="mean new tokens of a request"),
        Column("statistic", value=_run("statistic"), meaning="what its latencies are: `mean` or `median`"),
        *(Column(key, value=f"predicted.layout.{key}", meaning="the layout of the prediction")
          for key in ("tp", "pp", "ep", "dp")),
        Column("engine", value="predicted.service.mean_step.workload.engine.id", meaning="its engine"),
        *_columns("measured", "figures", "measured: "),
        *_columns("expected", "expected", "expected: ", ends=True),
        *_columns("bound", "bound", "if each step takes its bound: "),
        Column(
            "terms", value=lambda row: [each.term for each in row.differences], flat=joined(" + "),
            meaning="what can explain the differences, the most important term first",
        ),
    ),
)  # fmt: skip
"""A row for each run (ComparedRun), in CSV files and for `--fail-if`."""


def document(comparison: ServingComparison) -> Document:
    """A table for each run, and the terms that can explain its differences."""
    blocks: list[Block] = []
    for each in comparison.runs:
        lines = [_FigureLine(each, quantity) for quantity in QUANTITIES]
        blocks += [Heading(_heading(each)), Rows(LINES, lines), Items([*_explanations(each)])]
    names = [each.predicted.service.mean_step.workload.engine.label for each in comparison.runs]
    title = f"{comparison.arch.name} on {comparison.device.name}"
    return Document(
        SEPARATOR.join([title, *dict.fromkeys(names)]), blocks, partial(data, comparison),
        lambda: Rows(RUNS, comparison.runs),
    )  # fmt: skip


def _heading(each: ComparedRun) -> str:
    predicted, run = each.predicted, each.predicted.run
    load = f"{predicted.in_flight} in flight"
    if run.request_rate is not None:
        load = f"{units.significant(run.request_rate)} requests/s, {load}"
    gpus = units.count(predicted.service.gpus, "GPU")
    sizes = " ".join(f"{name} {size}" for name, size in predicted.layout._asdict().items() if size > 1)
    lengths = f"{round(run.isl)} prompt and {round(run.osl)} new tokens"
    source = ", ".join(filter(None, (run.tool, run.model)))
    return f"{run.file} ({source}): {load}, {lengths}, {gpus}{sizes and f' ({sizes})'}"


def _explanations(each: ComparedRun) -> Iterator[str]:
    """A line for each term; what else there is to say where there is none."""
    for difference in each.differences:
        title = next(each.title for each in QUANTITIES if each.key == f"{difference.quantity}_seconds")
        yield (f"{difference.term} ({title} {units.signed_seconds(difference.seconds)}): {difference.evidence}")
    if not each.differences:
        if each.predicted.expected is None:
            yield "the device is not calibrated: only bounds are known, and no figure is below its bound"
        else:
            yield "the measured latencies are within their intervals"


def data(comparison: ServingComparison) -> dict[str, Any]:
    """The document `roofmodel.serving/1`."""
    return {
        "schema": "roofmodel.serving/1",
        "model": comparison.arch.name,
        "hardware": comparison.device.id,
        "runs": [_record(each) for each in comparison.runs],
        "warnings": [str(note) for note in comparison.notes],
    }


def _record(each: ComparedRun) -> dict[str, Any]:
    row, figures = RUNS.record(each), dict[str, dict[str, Any]]()
    for kind in ("measured", "expected", "bound"):
        figures[kind] = {key.removeprefix(f"{kind}_"): row.pop(key) for key in [*row] if key.startswith(f"{kind}_")}
    if each.predicted.expected is None:
        figures["expected"] = dict.fromkeys(figures["expected"])
    row.pop("terms")
    differences = [{**difference._asdict(), "evidence": str(difference.evidence)} for difference in each.differences]
    return {**row, **figures, "differences": differences}
