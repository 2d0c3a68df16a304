"""A run in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing read.

Format: "Trace Event Format" (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). Times are
microseconds; events of one thread must nest; a flow event binds to the slice that is open at its time, so all events
are sorted by time. Categories and arguments are those of the PyTorch profiler, so that its readers, `roof trace` too,
recognize kernels, copies, calls and operators.
"""

from __future__ import annotations

import gzip
import heapq
import io
import json
from collections.abc import Iterable, Iterator
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from roofmodel.errors import cut
from roofmodel.profiles.timelines.timeline import MEMSET, UNKNOWN
from roofmodel.trace import lanes
from roofmodel.trace.lanes import NO_TIME, Lane, Marker, Section
from roofmodel.trace.trace import RunAnalysis
from roofmodel.version import __version__

if TYPE_CHECKING:
    import pandas

MARKER_NAME = 80  # characters
_CPU = {
    lanes.CALL: "cuda_runtime", lanes.OPERATOR: "cpu_op", lanes.RANGE: "user_annotation",
    lanes.LOADER: "user_annotation",
}  # fmt: skip
PHASES = "Xisf"  # of events at one time, in this order: an arrow begins and ends at a slice that is open
Line = tuple[int, str]
"""An event, with its place in the order of the file."""


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
    for line in _lines([*lanes.sections(trace)], [*lanes.markers(trace)]):
        yield separator + line.encode(errors="replace")
        separator = b",\n"
    yield b"\n]}\n"


_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class _Track(NamedTuple):
    """A thread of the file: spans of a lane that nest."""

    pid: int
    tid: int
    lane: str  # its kind
    device: str | None  # of a rank
    spans: pandas.DataFrame


def _lines(sections: Iterable[Section], markers: Iterable[Marker]) -> Iterator[str]:
    tids, used_ids = count(1), set[int]()
    tracks, marked = list[_Track](), list[tuple[int, int, Marker]]()
    for order, section in enumerate(sections):
        pid = _process_id(section, used_ids)
        yield _metadata("process_name", pid, None, name=section.label)
        yield _metadata("process_sort_index", pid, None, sort_index=order)
        if mine := [each for each in markers if section.report and each.rank is section.report.rank]:
            tid = next(tids)
            yield from _thread(pid, tid, "findings")
            marked += [(pid, tid, each) for each in mine]
        for lane in section.lanes:
            for number, spans in enumerate(_nested(lane), 1):
                tid = next(tids)
                yield from _thread(pid, tid, lane.label if number == 1 else f"{lane.label}, concurrent ({number})")
                device = section.report.rank.device if section.report else None
                tracks.append(_Track(pid, tid, lane.kind, device, spans))
    zero = min([0, *(int(track.spans["start"].iloc[0]) for track in tracks)])
    callers = _callers(tracks)
    streams, first = list[Iterator[Line]](), 1
    for track in tracks:
        streams += [_slices(track, zero), *_flows(track, callers, zero, first)]
        first += len(track.spans)
    instants = sorted((_instant(*each, zero) for each in marked), key=itemgetter(0))
    yield from (line for _, line in heapq.merge(*streams, instants, key=itemgetter(0)))


def _process_id(section: Section, used_ids: set[int]) -> int:
    """A positive number that no other section has; that of its process for CPU threads, where it is free."""
    process = section.process or ""
    own = int(process) if section.report is None and process.isdecimal() and len(process) < 10 else 0
    pid = own if own and own not in used_ids else next(number for number in count(1) if number not in used_ids)
    used_ids.add(pid)
    return pid


def _nested(lane: Lane) -> list[pandas.DataFrame]:
    """The spans of a lane, divided so that those of one part nest; only calls of a CPU thread enclose others."""
    open_ends: list[list[int]] = []  # of each part, the outermost first
    parts = np.zeros(len(lane.spans), np.int64)
    times = zip(lane.spans["start"].tolist(), lane.spans["end"].tolist(), strict=True)
    for place, (start, end) in enumerate(times):
        for part, ends in enumerate(open_ends):  # noqa: B007
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or (lane.kind == lanes.THREAD and end <= ends[-1]):
                break
        else:
            part = len(open_ends)
            open_ends.append([])
        open_ends[part].append(end)
        parts[place] = part
    return [lane.spans[parts == part] for part in range(len(open_ends))]


def _thread(pid: int, tid: int, label: str) -> Iterator[str]:
    yield _metadata("thread_name", pid, tid, name=label)
    yield _metadata("thread_sort_index", pid, tid, sort_index=tid)


def _metadata(event_name: str, pid: int, tid: int | None, **args: Any) -> str:
    thread = {} if tid is None else {"tid": tid}
    return _text({"ph": "M", "name": event_name, "pid": pid, **thread, "args": args})


def _microseconds(nanoseconds: int) -> str:
    """Exact, which a float of a long trace would not be."""
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def _order(time: int, phase: str) -> int:
    return len(PHASES) * time + PHASES.index(phase)


def _instant(pid: int, tid: int, marker: Marker, zero: int) -> Line:
    event = {
        "ph": "i", "s": "t", "cat": "finding", "name": cut(f"{marker.number}. {marker.text}", MARKER_NAME), "pid": pid,
        "tid": tid, "args": {"kind": marker.kind, "finding": marker.text},
    }  # fmt: skip
    at = marker.time - zero
    return _order(at, "i"), f'{{"ts":{_microseconds(at)},{_text(event)[1:]}'


def _slices(track: _Track, zero: int) -> Iterator[Line]:
    of_gpu = track.lane in (lanes.STREAM, lanes.COPIES)
    where = f',"pid":{track.pid},"tid":{track.tid}'
    names: dict[str, str] = {}  # encoded once
    device = _number(track.device)
    for start, end, name, kind, launch, call, size, stream, *_ in _rows(track.spans):
        args: dict[str, Any] = {}
        if of_gpu:
            args = {"device": device, "stream": _number(stream)}
            if launch != NO_TIME:
                args["launch to start (us)"] = (start - launch) / 1000
        elif track.lane == lanes.IDLE:
            args = {"cause": kind}
        if size != UNKNOWN:
            args["bytes"] = size
        if call != UNKNOWN:
            args["correlation"] = call + 1
        if name not in names:
            names[name] = _text(name)
        yield (
            _order(start - zero, "X"),
            f'{{"ph":"X","cat":"{_category(track.lane, name, kind)}","name":{names[name]},'
            f'"ts":{_microseconds(start - zero)},"dur":{_microseconds(end - start)}{where},"args":{_text(args)}}}',
        )


def _rows(spans: pandas.DataFrame) -> Iterator[tuple[Any, ...]]:
    """The values of `lanes.SPANS` of each span."""
    return zip(*(spans[column].tolist() for column in lanes.SPANS), strict=True)


def _category(lane: str, name: str, kind: str) -> str:
    if lane == lanes.THREAD:
        return _CPU.get(kind) or ("cpu_op" if "::" in name else "cuda_runtime")
    if lane == lanes.COPIES:
        return "gpu_memset" if kind == MEMSET else "gpu_memcpy"
    return {lanes.STREAM: "kernel", lanes.STEPS: "step", lanes.IDLE: "idle", lanes.PEERS: "peer_copy"}[lane]


def _number(text: str | None) -> int | str | None:
    return int(text) if text and text.isdecimal() and len(text) < 19 else text


def _callers(tracks: Iterable[_Track]) -> np.ndarray:
    """Process and thread by the number of the call; 0 for a call that the file does not have. Shape (calls, 2)."""
    calls = [(track, track.spans["call"].to_numpy()) for track in tracks]
    callers = np.zeros((max([0, *(int(numbers.max()) for _, numbers in calls)]) + 1, 2), np.int64)
    for track, numbers in calls:
        if track.lane == lanes.THREAD:
            callers[numbers[numbers != UNKNOWN]] = track.pid, track.tid
    return callers


def _flows(track: _Track, callers: np.ndarray, zero: int, first: int) -> Iterator[Iterator[Line]]:
    """Arrows from the calls to the work that they launch, numbered from `first`, and of copies from rank to rank."""
    start, launch, call, peer, sends = (
        track.spans[column].to_numpy() for column in ("start", "launch", "call", "peer", "sends")
    )
    here = np.array([track.pid, track.tid])
    if track.lane in (lanes.STREAM, lanes.COPIES):
        launched = (call != UNKNOWN) & (callers[call, 0] > 0) & (launch > NO_TIME) & (launch <= start)
        numbers = np.arange(first, first + np.count_nonzero(launched))
        yield _ends("s", "ac2g", launch[launched] - zero, numbers, callers[call[launched]])
        yield _ends("f", "ac2g", start[launched] - zero, numbers, here)
    for phase, chosen in (("s", sends), ("f", ~sends)):
        copied = (peer != UNKNOWN) & chosen
        yield _ends(phase, "peer", start[copied] - zero, peer[copied] + 1, here)


def _ends(phase: str, name: str, times: np.ndarray, numbers: np.ndarray, tracks: np.ndarray) -> Iterator[Line]:
    """The starts or the ends of arrows, in order of time."""
    order = np.argsort(times, kind="stable")
    pids, tids = np.broadcast_to(tracks, (len(times), 2))[order].T.tolist() if len(order) else ([], [])
    binding = '"bp":"e",' if phase == "f" else ""
    kind = f'"ph":"{phase}",{binding}"cat":"{name}","name":"{name}"'
    for at, number, pid, tid in zip(times[order].tolist(), numbers[order].tolist(), pids, tids, strict=True):
        yield (
            _order(at, phase),
            f'{{{kind},"id":{number},"ts":{_microseconds(at)},"pid":{pid},"tid":{tid}}}',
        )
