"""A run in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing read.

Format: "Trace Event Format" (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). Times are
microseconds; events of one thread must nest. Categories and arguments are those of the PyTorch profiler, so that its
readers, `roof trace` too, recognize kernels, copies, calls and operators.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from roofmodel.profiles.timelines.timeline import UNKNOWN
from roofmodel.trace.parts import CAUSE_TEXTS
from roofmodel.trace.timeline_rows import (
    COPIES,
    IDLE,
    NO_TIME,
    STEPS,
    STREAM,
    THREAD,
    Events,
    Names,
    Section,
    TimelineRow,
    TimelineRows,
    timeline_rows,
)
from roofmodel.trace.trace import RunAnalysis
from roofmodel.version import __version__

SUFFIXES = ("perfetto.json", "perfetto.json.gz")
_CPU = {"CUDA call": "cuda_runtime", "operator": "cpu_op", "range": "user_annotation", "data loader": "user_annotation"}


def write(trace: RunAnalysis, path: Path, *, compressed: bool) -> None:
    """Write all events of a run. Raises OSError."""
    with open(path, "wb") as file:
        if compressed:
            with (
                gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0, compresslevel=5) as zipped,
                io.BufferedWriter(zipped, 1 << 20) as stream,
            ):
                stream.writelines(_document(trace))
        else:
            file.writelines(_document(trace))


def _document(trace: RunAnalysis) -> Iterator[bytes]:
    about = {
        "tool": f"roofmodel {__version__}",
        "files": list(trace.names.values()),
        "findings": [finding.text for finding in trace.findings],
    }
    yield f'{{"displayTimeUnit":"ns","otherData":{_text(about)},"traceEvents":[\n'.encode()
    separator = b""
    for line in _lines(timeline_rows(trace)):
        yield separator + line.encode(errors="replace")
        separator = b",\n"
    yield b"\n]}\n"


_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class _Track(NamedTuple):
    """A thread of the file: consecutive lanes of a row whose events nest."""

    pid: int
    tid: int
    label: str
    row: TimelineRow
    first: int  # lane
    last: int

    def shows(self, events: Events) -> np.ndarray:
        return (events.lane >= self.first) & (events.lane <= self.last)


def _lines(rows: TimelineRows) -> Iterator[str]:
    pids = _process_ids(rows.sections)
    tids = count(1)
    tracks = []
    for order, (section, pid) in enumerate(zip(rows.sections, pids, strict=True)):
        yield _metadata("process_name", pid, None, name=section.label)
        yield _metadata("process_sort_index", pid, None, sort_index=order)
        for row in section.rows:
            for number, (first, last) in enumerate(_nested_lanes(row), 1):
                label = row.label if number == 1 else f"{row.label}, concurrent ({number})"
                track = _Track(pid, next(tids), label, row, first, last)
                tracks.append((section, track))
                yield _metadata("thread_name", pid, track.tid, name=label)
                yield _metadata("thread_sort_index", pid, track.tid, sort_index=track.tid)
    zero = min((int(row.events.start.min()) for row in rows.rows if len(row.events.start)), default=0)
    callers = _callers(track for _, track in tracks)
    names = [_text(_shown_name(*key)) for key in rows.names.numbers]
    flows = count(1)
    for section, track in tracks:
        yield from _events(section, track, names, rows.names, zero)
        if track.row.kind in (STREAM, COPIES):
            yield from _flows(track, callers, zero, flows)


def _process_ids(sections: tuple[Section, ...]) -> list[int]:
    """A distinct positive number for each section; that of its process for CPU threads, where it is free."""
    used_ids: set[int] = set()
    ids: list[int | None] = []
    for section in sections:
        process = section.process or ""
        pid = int(process) if section.rank is None and process.isdecimal() and len(process) < 10 else None
        pid = None if pid in used_ids or pid == 0 else pid
        used_ids |= {pid} if pid else set()
        ids.append(pid)
    free = (number for number in count(1) if number not in used_ids)
    return [next(free) if pid is None else pid for pid in ids]


def _nested_lanes(row: TimelineRow) -> Iterator[tuple[int, int]]:
    """Ranges of lanes whose events nest, as the format demands of a thread; each lane of a stream is a range."""
    events = row.events
    lanes = [events.select(events.lane == lane) for lane in range(int(events.lane.max(initial=0)) + 1)]
    first = 0
    for lane in range(1, len(lanes)):
        if row.kind != THREAD or not _nest(lanes[lane - 1], lanes[lane]):
            yield first, lane - 1
            first = lane
    yield first, len(lanes) - 1


def _nest(outer: Events, inner: Events) -> bool:
    """Whether an event of the outer lane encloses each event of the inner lane."""
    index = np.searchsorted(outer.start, inner.start, side="right") - 1
    if (index < 0).any():
        return False
    return bool(((outer.start[index] <= inner.start) & (inner.end <= outer.end[index])).all())


def _metadata(event_name: str, pid: int, tid: int | None, **args: Any) -> str:
    thread = {} if tid is None else {"tid": tid}
    return _text({"ph": "M", "name": event_name, "pid": pid, **thread, "args": args})


def _shown_name(name: str, kind: str) -> str:
    return f"idle: {CAUSE_TEXTS[name]}" if kind == IDLE else name


def _microseconds(nanoseconds: int) -> str:
    """Exact, which a float of a long trace would not be."""
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def _events(section: Section, track: _Track, names: list[str], keys: Names, zero: int) -> Iterator[str]:
    events = track.row.events.select(track.shows(track.row.events))
    kinds = list(keys.numbers)
    categories = [_category(track.row.kind, *key) for key in kinds]
    device = _number(section.rank.rank.device) if section.rank else None
    streams = {code: _number(kinds[code][0]) for code in set(events.stream.tolist()) if code != UNKNOWN}
    where = f',"pid":{track.pid},"tid":{track.tid}'
    for start, end, name, _, launch, call, size, stream in zip(*(column.tolist() for column in events), strict=True):
        args: dict[str, Any] = {}
        if track.row.kind in (STREAM, COPIES):
            args = {"device": device, "stream": streams.get(stream)}
            if size != UNKNOWN:
                args["bytes"] = size
            if launch != NO_TIME:
                args["launch to start (us)"] = (start - launch) / 1000
        elif track.row.kind == IDLE:
            args = {"cause": kinds[name][0]}
        if call != UNKNOWN:
            args["correlation"] = call + 1
        yield (
            f'{{"ph":"X","cat":"{categories[name]}","name":{names[name]},"ts":{_microseconds(start - zero)},'
            f'"dur":{_microseconds(end - start)}{where},"args":{_text(args)}}}'
        )


def _category(row: str, name: str, kind: str) -> str:
    if row == THREAD:
        return _CPU.get(kind) or ("cpu_op" if "::" in name else "cuda_runtime")
    if row == COPIES:
        return "gpu_memset" if kind == "memset" else "gpu_memcpy"
    return {STREAM: "kernel", STEPS: "step", IDLE: "idle"}[row]


def _number(text: str | None) -> int | str | None:
    return int(text) if text and text.isdecimal() and len(text) < 19 else text


def _callers(tracks: Iterator[_Track]) -> dict[int, tuple[int, int]]:
    """Process and thread of each call that launches work."""
    callers: dict[int, tuple[int, int]] = {}
    for track in tracks:
        if track.row.kind == THREAD:
            calls = track.row.events.call[track.shows(track.row.events)]
            callers |= dict.fromkeys(calls[calls != UNKNOWN].tolist(), (track.pid, track.tid))
    return callers


def _flows(track: _Track, callers: dict[int, tuple[int, int]], zero: int, numbers: Iterator[int]) -> Iterator[str]:
    """Arrows from the calls to the work that they launch, one each: an id ends with its first arrow."""
    events = track.row.events.select(track.shows(track.row.events))
    for start, launch, call in zip(events.start.tolist(), events.launch.tolist(), events.call.tolist(), strict=True):
        if call not in callers or not NO_TIME < launch <= start:
            continue
        pid, tid = callers[call]
        flow = f'"cat":"ac2g","name":"ac2g","id":{next(numbers)}'
        yield f'{{"ph":"s",{flow},"ts":{_microseconds(launch - zero)},"pid":{pid},"tid":{tid}}}'
        yield (f'{{"ph":"f","bp":"e",{flow},"ts":{_microseconds(start - zero)},"pid":{track.pid},"tid":{track.tid}}}')
