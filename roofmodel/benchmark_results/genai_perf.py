"""Results of genai-perf and AIPerf, JSON and CSV: statistics of each metric with their unit.

`inter_token_latency` is the time per output token of a request, so that its percentiles are not those of single gaps;
AIPerf's `inter_chunk_latency` is that of the gaps. Sources: genai_perf/export_data/csv_exporter.py and json_exporter.py
of triton-inference-server/perf_analyzer@263c5f6e; aiperf/exporters/csv_exporter.py and
aiperf/common/models/export_models.py of ai-dynamo/aiperf@db4f6397. The CSV does not state the load; genai-perf writes
thousands separators in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from roofmodel.benchmark_results.run import Entries, Figures, ServingRun
from roofmodel.engines.engine import engine_of_backend
from roofmodel.errors import ProfileError, shorten

GENAI_PERF, AIPERF = "genai-perf", "AIPerf"
PER_SECOND = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""The units of latencies, by how many a second has."""


def recognize(values: Entries) -> bool:
    """Whether an object is such a result."""
    return "avg" in values.inside("request_latency") or "avg" in values.inside("time_to_first_token")


def read(values: Entries) -> ServingRun:
    """The run of a result."""
    config = values.inside("input_config")
    load = config.inside("loadgen")  # AIPerf
    is_aiperf = bool(load.values) or "cli_command" in config or "inter_chunk_latency" in values
    tool = AIPERF if is_aiperf else GENAI_PERF
    for stimulus in (config, config.inside("perf_analyzer").inside("stimulus")):  # genai-perf, by version
        load = stimulus if {"concurrency", "request_rate"} & stimulus.values.keys() else load
    (isl,), (osl,) = (values.inside(f"{name}_sequence_length").required(tool, "avg") for name in ("input", "output"))
    models = config.values.get("model") or config.inside("endpoint").values.get("model_names") or [None]
    backend = config.text("backend") or ""
    return ServingRun(
        values.file, tool,
        Figures(
            _seconds(values, "time_to_first_token"), _seconds(values, "inter_token_latency"),
            _seconds(values, "inter_chunk_latency", "p99"), _seconds(values, "request_latency"),
            _mean(values, "output_token_throughput"), _mean(values, "request_throughput"),
        ),
        isl, osl, model=str(models[0]) if isinstance(models, list) and models[0] else None,
        concurrency=load.count("concurrency"), request_rate=load.rate("request_rate"),
        requests=int(_mean(values, "request_count") or 0) or None,
        engine=engine_of_backend(backend), gpu=_gpu(values),
        failed=int(_mean(values, "error_request_count") or 0) or None,
    )  # fmt: skip


def _mean(values: Entries, metric: str) -> float | None:
    return values.inside(metric).number("avg")


def _seconds(values: Entries, metric: str, statistic: str = "avg") -> float | None:
    """A statistic of a latency."""
    found = values.inside(metric)
    unit = found.text("unit") or "ms"
    if unit not in PER_SECOND:
        raise ProfileError(f"{values.file}: {metric} has the unit {shorten(unit)}; known: {', '.join(PER_SECOND)}")
    return found.number(statistic, per_second=PER_SECOND[unit])


def _gpu(values: Entries) -> str | None:
    """The name of the GPUs of AIPerf's telemetry, where all have the same one."""
    endpoints = values.inside("telemetry_data").inside("endpoints")
    gpus = [endpoints.inside(name).inside("gpus") for name in endpoints.values]
    names = {every.inside(gpu).text("gpu_name") for every in gpus for gpu in every.values}
    return names.pop() if len(names) == 1 else None


# --- CSV: a table of metrics with statistics, and one with single values ------------------------------

HEADER = "Metric"
_METRIC = re.compile(r"(?P<name>[^()]+?)(?: \((?P<unit>[^()]*)\))?\Z")


def recognize_rows(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the rows of a CSV are such a result."""
    names = {_key(row[0]) for row in rows if row}
    return rows[0][:1] == [HEADER] and bool({"request_latency", "time_to_first_token"} & names)


def objects_of(rows: Iterable[Sequence[str]], file: str) -> dict[str, Any]:
    """The metrics of the rows of a CSV as in the JSON."""
    metrics: dict[str, Any] = {}
    columns: Sequence[str] = ()
    for line, row in enumerate(rows, 1):
        if not row or not row[0]:
            continue
        if row[0] == HEADER:
            columns = ["avg" if name == "Value" else name for name in row]
            continue
        if (found := _METRIC.match(row[0])) is None or not columns:
            continue
        values = {name: _number(cell, f"{file}:{line}") for name, cell in zip(columns[1:], row[1:], strict=False)}
        metrics.setdefault(_key(row[0]), {"unit": found["unit"], **values})
    return metrics


def _key(title: str) -> str:
    """The key of a metric in the JSON: `time_to_first_token` of `Time To First Token (ms)`."""
    return title.partition(" (")[0].strip().lower().replace(" ", "_")


def _number(cell: str, where: str) -> float | None:
    """A number with or without thousands separators."""
    if cell in ("", "N/A"):
        return None
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        raise ProfileError(f"{where}: {shorten(cell)} is no number") from None
