"""Read the events of an Nsight Systems SQLite export. Schema and joins: see `profiles/nsys.py`.

Times are integer nanoseconds from the start of the session.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from roofmodel.errors import ProfileError
from roofmodel.profiles import nsys
from roofmodel.profiles.nvtx_ranges import NEVER_ENDED
from roofmodel.profiles.timelines.timeline import (
    CALLS,
    CLOCK,
    COPY,
    KERNEL,
    LATEST,
    MEMSET,
    OPERATORS,
    POWER,
    RANGES,
    UNKNOWN,
    WORK,
    Samples,
    TableBuilder,
    Timeline,
    count_joined,
    empty,
    with_launches,
)

# CUPTI's copyKind and memory kinds (ENUM_CUDA_MEMCPY_OPER, ENUM_CUDA_MEM_KIND of an export).
DIRECTIONS = {
    1: "HtoD", 2: "DtoH", 3: "HtoD", 4: "DtoH", 5: "DtoD", 6: "DtoD", 7: "DtoD", 8: "DtoD", 9: "HtoH", 10: "PtoP",
    11: "unified_HtoD", 12: "unified_DtoH", 13: "PtoP",
}  # fmt: skip
_MEMORY = {0: "pageable", 1: "pinned", 2: "device", 3: "device", 4: "managed", 5: "device", 6: "managed"}
_TIMES = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
Row = Any

# Names of GPU_METRICS, in sets of several architectures: `GPC Clock Frequency [MHz]`. The graphics processing clusters
# (GPC) contain the SMs.
_CLOCK_METRIC = "GPC Clock Frequency"
_POWER_METRIC = re.compile(r"(?:GPU )?Power(?: Draw| Usage)? ?[\[(](m?W)[\])]")
LEAST_HERTZ = 1e6  # below every clock in hertz, above every clock in megahertz


def read(file: BinaryIO, name: str, with_samples: bool = False) -> Timeline:
    """The events of an export, and with `with_samples` the samples of clock and power.

    Raises ProfileError for a file that is damaged or is not an nsys export.
    """
    with nsys.opened(file, name) as database:
        timeline = _timeline(database, name)
        return replace(timeline, samples=_samples(timeline, database)) if with_samples else timeline


def _timeline(database: nsys.Database, name: str) -> Timeline:
    strings = {row["id"]: str(row["value"]) for row in database.rows("StringIds", ("id", "value")) if row["value"]}
    work = TableBuilder(WORK)
    backwards = 0
    for kind, row, cells in _activities(database, strings):
        start, end = int(row["start"]), int(row["end"])
        backwards += end < start
        if end >= LATEST:
            raise OverflowError("a time is too large")
        work.add(
            kind=kind, start=start, end=max(start, end), device=row["deviceId"], stream=row["streamId"],
            process=None if row["globalPid"] is None else nsys.process_id(row["globalPid"]),
            correlation=row["correlationId"], **cells,
        )  # fmt: skip
    if not len(work):
        raise ProfileError(
            f"{name}: the export contains no kernels, copies or memsets; collect with `nsys profile --trace=cuda,nvtx`"
        )
    calls = TableBuilder(CALLS)
    for row in database.rows("CUPTI_ACTIVITY_KIND_RUNTIME", ("start", "end", "globalTid", "correlationId", "nameId")):
        if row["globalTid"] is not None and row["start"] is not None:
            calls.add(
                name=strings.get(row["nameId"], "CUDA call"), start=row["start"], end=_end(row), **_thread(row),
                correlation=row["correlationId"],
            )  # fmt: skip
    ranges = TableBuilder(RANGES)
    for row in database.rows("NVTX_EVENTS", ("start", "end", "eventType", "text", "textId", "globalTid")):
        label = strings.get(row["textId"]) if row["text"] is None else str(row["text"])
        if label and row["globalTid"] is not None and row["eventType"] in nsys.PUSH_POP | nsys.START_END:
            place = _thread(row)
            if row["eventType"] in nsys.START_END:
                place["thread"] = None
            ranges.add(name=label, start=row["start"], end=_end(row), **place)
    timeline = with_launches(
        Timeline(
            "nsys", name, work.frame(), calls.frame(), empty(OPERATORS), ranges.frame(), tuple(nsys.devices(database))
        )
    )
    return replace(timeline, warnings=tuple(_warnings(timeline, database, backwards)))


def _samples(timeline: Timeline, database: nsys.Database) -> dict[tuple[str | None, str | None, str], Samples]:
    """Clock and power of the GPU of each process and device, from `nsys profile --gpu-metrics-devices=all`.

    The low 8 bits of typeId are TARGET_INFO_GPU.id. Clocks have the unit MHz in their name and are stored in hertz.
    """
    quantities: dict[int, tuple[str, float]] = {}
    for row in database.rows("TARGET_INFO_GPU_METRICS", ("metricId", "metricName")):
        text = str(row["metricName"])
        if row["metricId"] is not None and text.startswith(_CLOCK_METRIC):
            quantities[int(row["metricId"])] = (CLOCK, 1.0)
        elif row["metricId"] is not None and (unit := _POWER_METRIC.fullmatch(text)):
            quantities[int(row["metricId"])] = (POWER, 1e-3 if unit[1] == "mW" else 1.0)
    if not quantities:
        return {}
    found: dict[tuple[int, str], tuple[array[int], array[float]]] = {}  # times and values: a run has millions of them
    columns = ("timestamp", "typeId", "metricId", "value")
    for row in database.rows("GPU_METRICS", columns, ("metricId", quantities)):
        if None not in tuple(row):
            quantity, factor = quantities[int(row["metricId"])]
            place = int(row["typeId"]) & 0xFF, quantity
            if place not in found:
                found[place] = array("q"), array("d")
            times, values = found[place]
            times.append(int(row["timestamp"]))
            values.append(float(row["value"]) * factor)
    every = {place: _sorted_samples(place[1], *found[place]) for place in found}
    gpus = _gpus(timeline, database, {gpu for gpu, _ in every})
    return {
        (process, device, quantity): samples
        for (process, device), gpu in gpus.items()
        for (number, quantity), samples in every.items()
        if number == gpu
    }


def _sorted_samples(quantity: str, stored_times: array[int], stored_values: array[float]) -> Samples:
    times, values = np.frombuffer(stored_times, np.int64), np.frombuffer(stored_values, np.float64)
    if (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        times, values = times[order], values[order]
    if quantity == CLOCK and float(np.median(values)) < LEAST_HERTZ:  # in MHz, as the name of the metric states
        values = values * 1e6
    return Samples(times, values)


def _gpus(timeline: Timeline, database: nsys.Database, sampled: set[int]) -> dict[tuple[str | None, str | None], int]:
    """TARGET_INFO_GPU.id of each process and device; the only sampled GPU if the export has one device."""
    by_process = {
        (str(row["pid"]), str(row["cudaId"])): int(row["gpuId"])
        for row in database.rows("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId"))
        if None not in tuple(row)
    }
    by_device = {
        str(row["cuDevice"]): int(row["id"])
        for row in database.rows("TARGET_INFO_GPU", ("cuDevice", "id"))
        if None not in tuple(row)
    }
    places = timeline.work[["process", "device"]].drop_duplicates().astype(object).to_numpy().tolist()
    found: dict[tuple[str | None, str | None], int] = {}
    for process, device in places:
        gpu = by_process.get((process, device), by_device.get(device))
        if gpu is None and len(places) == len(sampled) == 1:
            gpu = next(iter(sampled))
        if gpu is not None:
            found[process, device] = gpu
    return found


def _activities(database: nsys.Database, strings: dict[Any, str]) -> Iterator[tuple[str, Row, dict[str, Any]]]:
    names = ("demangledName", "shortName", "mangledName")
    for row in database.rows("CUPTI_ACTIVITY_KIND_KERNEL", (*_TIMES, *names)):
        yield KERNEL, row, {"name": next((strings[row[n]] for n in names if row[n] in strings), "unnamed kernel")}
    for row in database.rows("CUPTI_ACTIVITY_KIND_MEMCPY", (*_TIMES, "bytes", "copyKind", "srcKind", "dstKind")):
        direction = DIRECTIONS.get(row["copyKind"], "DtoD")
        kinds = {_MEMORY.get(row["srcKind"]), _MEMORY.get(row["dstKind"])}
        memory = next((kind for kind in ("pageable", "pinned", "managed", "device") if kind in kinds), None)
        label = f"[CUDA memcpy {direction}]"
        yield COPY, row, {"name": label, "bytes": row["bytes"], "direction": direction, "memory": memory}
    for row in database.rows("CUPTI_ACTIVITY_KIND_MEMSET", (*_TIMES, "bytes", "memKind")):
        yield MEMSET, row, {"name": "[CUDA memset]", "bytes": row["bytes"], "memory": _MEMORY.get(row["memKind"])}


def _thread(row: Row) -> dict[str, Any]:
    return {"process": nsys.process_id(row["globalTid"]), "thread": row["globalTid"]}


def _end(row: Row) -> int:
    """A range or call that is open at the end of the trace never ends."""
    return NEVER_ENDED - 1 if row["end"] is None else int(row["end"])


def _warnings(timeline: Timeline, database: nsys.Database, backwards: int) -> Iterator[str]:
    kernels, joined = count_joined(timeline)
    if graphs := database.count("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
        yield (
            f"{graphs} CUDA graphs were traced as a whole, so their kernels are missing; "
            "collect with `--cuda-graph-trace=node`"
        )
    if joined < kernels:
        yield (
            f"{kernels - joined} of {kernels} kernels have no launch in the export: the cause of idle time before them "
            "is unknown; collect with `nsys profile --trace=cuda,nvtx`"
        )
    if backwards:
        yield f"{backwards} activities end before they start: their durations count as zero"
    if (timeline.work["correlation"] == UNKNOWN).all() and kernels:
        yield "the export has no correlation ids: launches are unknown"
