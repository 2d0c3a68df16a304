"""The lanes of a run: steps, idle time by cause, GPU streams, copies and CPU threads, each with its spans.

The picture and the Perfetto file show these lanes. The spans of a lane may overlap (concurrent kernels, nested calls).
Times are nanoseconds from the first GPU activity of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from roofmodel.profiles import nsys
from roofmodel.profiles.timelines.timeline import COPY, MEMSET, UNKNOWN, Timeline
from roofmodel.trace import idle, intervals
from roofmodel.trace.intervals import Intervals
from roofmodel.trace.ranks import Rank, natural
from roofmodel.trace.steps import OPEN_END
from roofmodel.trace.tables import CAUSE_TEXTS, OUTSIDE
from roofmodel.trace.trace import RankReport, RunAnalysis

if TYPE_CHECKING:
    import pandas

STEPS, IDLE, STREAM, COPIES, PEERS, THREAD = "steps", "idle", "stream", "copies", "peers", "thread"
"""Kinds of lanes."""
COMPUTE, COMMUNICATION = "compute", "communication"
PEER = "peer"
CALL, OPERATOR, RANGE, LOADER, WAITING = "CUDA call", "operator", "range", "data loader", "waiting for the GPU"
"""Kinds of spans: of streams, of copies that another rank records, of CPU threads. Causes are those of idle time."""
COPY_DIRECTIONS = {"HtoD": "host to GPU", "DtoH": "GPU to host", "DtoD": "within a GPU", "PtoP": "between GPUs"}
NO_TIME = -(1 << 62)
SPANS = {
    "start": 0, "end": 0, "name": "", "kind": "",
    "launch": NO_TIME,  # start of the launching call
    "call": UNKNOWN,  # number of the launching call; of a CUDA call its own, if it launches work
    "bytes": UNKNOWN,  # of copies and memsets
    "stream": None,  # of GPU work
    "peer": UNKNOWN,  # number of a copy between two ranks: each has a span with it
    "sends": False,  # whether this rank is the source of that copy
}  # fmt: skip
"""The columns of spans, with the values of what is unknown."""


class Lane(NamedTuple):
    """A row of the timeline; its spans are sorted by start, of equal starts the longest first."""

    kind: str
    label: str
    spans: pandas.DataFrame


class Section(NamedTuple):
    """The lanes of one rank, or of the CPU threads of one process."""

    label: str
    process: str | None
    report: RankReport | None  # None: CPU threads
    lanes: tuple[Lane, ...]


class Marker(NamedTuple):
    """A finding at the longest interval that it is about."""

    number: int
    kind: str
    text: str
    rank: Rank
    time: int
    has_interval: bool  # false: the time is the start of the rank


def sections(trace: RunAnalysis, reports: Sequence[RankReport] | None = None) -> Iterator[Section]:
    """The lanes of the ranks (default: all), and after the last rank of a process those of its CPU threads."""
    by_file: dict[int, list[RankReport]] = {}
    for report in trace.ranks if reports is None else reports:
        by_file.setdefault(id(report.rank.timeline), []).append(report)
    first_call = first_peer = 0
    for mine in by_file.values():
        timeline = mine[0].rank.timeline
        where = f" of {trace.names[timeline.file]}" if len(trace.files) > 1 else ""
        numbers = _call_numbers(timeline, first_call)
        first_call += len(numbers)
        work = {report.rank.number: _work(report.rank, numbers) for report in mine}
        peers, first_peer = _copies_of_others([report.rank for report in mine], work, first_peer)
        threads = _threads(timeline, numbers, *_window(timeline, mine))
        last = {report.rank.process: report.rank.number for report in mine}
        for report in mine:
            rank = report.rank
            lanes = _rank_lanes(report, work[rank.number], peers.get(rank.number, []))
            yield Section(f"rank {rank.number}: {rank.label}{where}", rank.process, report, tuple(lanes))
            if last[rank.process] == rank.number:
                yield from _cpu_section(threads.pop(rank.process, []), rank.process, where)
        for process, lanes_of_process in sorted(threads.items(), key=lambda item: natural(item[0])):
            yield from _cpu_section(lanes_of_process, process, where)


def _cpu_section(lanes: Sequence[Lane], process: str | None, where: str) -> Iterator[Section]:
    if lanes:
        label = f"CPU, process {process}{where}" if process is not None else f"CPU{where}"
        yield Section(label, process, None, tuple(lanes))


def markers(trace: RunAnalysis) -> Iterator[Marker]:
    """The findings on ranks, at the longest interval that they are about, else at the start of the rank."""
    reports = {id(report.rank): report for report in trace.ranks}
    for number, finding in enumerate(trace.rank_findings, 1):
        report = reports[id(finding.rank)]
        times = _times_of(finding.kind, report)
        longest = times[np.argmax(times[:, 1] - times[:, 0]), 0] if len(times) else report.rank.span[0]
        time = int(longest) - report.rank.timeline.origin
        yield Marker(number, finding.kind, finding.text, report.rank, time, len(times) > 0)


_CAUSE_OF_FINDING = {
    "input_bound": "input", "synchronization": "synchronization", "cpu_bound": "cpu_work", "launch_bound": "launch",
}  # fmt: skip


def _times_of(kind: str, report: RankReport) -> Intervals:
    """The intervals that a kind of finding is about; none if it is about kernels or the whole run."""
    rank = report.rank
    if kind in _CAUSE_OF_FINDING:
        return report.idle.get(_CAUSE_OF_FINDING[kind], intervals.NONE)
    if kind == "idle":
        others = (times for cause, times in report.idle.items() if cause not in _CAUSE_OF_FINDING.values())
        return max(others, key=intervals.length, default=intervals.NONE)
    if kind == "managed_memory":
        return idle.migrations(rank)
    if kind == "copy_bound":
        return rank.exposed_copies
    return rank.exposed_communication if kind in ("communication_bound", "straggler") else intervals.NONE


# --- Ranks ------------------------------------------------------------------------------------------


def _spans(number: int, **columns: object) -> pandas.DataFrame:
    """The spans with these columns, sorted."""
    import pandas

    frame = pandas.DataFrame({**SPANS, **columns}, index=range(number))
    return _sorted(frame)


def _sorted(spans: pandas.DataFrame) -> pandas.DataFrame:
    return spans.take(np.lexsort((-spans["end"], spans["start"])))


def _rank_lanes(report: RankReport, work: pandas.DataFrame, peers: Sequence[pandas.DataFrame]) -> Iterator[Lane]:
    import pandas

    rank, origin = report.rank, report.rank.timeline.origin
    if steps := report.steps.steps:
        names = [f"step {step.label}" if step.complete else f"step {step.label}, cut" for step in steps]
        times = np.array([(step.start, step.end) for step in steps]) - origin
        yield Lane(STEPS, "steps", _spans(len(steps), start=times[:, 0], end=times[:, 1], name=names, kind=STEPS))
    if causes := report.idle | _outside(report):
        times = np.concatenate([*causes.values()]) - origin
        kinds = np.repeat([*causes], [len(each) for each in causes.values()])
        names = [f"idle: {CAUSE_TEXTS[kind]}" for kind in kinds]
        spans = _spans(len(times), start=times[:, 0], end=times[:, 1], name=names, kind=kinds)
        yield Lane(IDLE, "idle, by cause", spans)
    kernels = work[rank.is_kernel]
    streams = kernels.groupby("stream", dropna=False, sort=False)
    for stream, spans in sorted(streams, key=lambda item: (not isinstance(item[0], str), natural(str(item[0])))):
        yield Lane(STREAM, f"stream {stream}" if isinstance(stream, str) else "stream unknown", _sorted(spans))
    directions = rank.frame["direction"].astype(object).fillna("direction unknown")
    for direction, spans in work[rank.is_copy].groupby(directions[rank.is_copy]):
        name = COPY_DIRECTIONS.get(direction, direction.replace("_", " "))
        yield Lane(COPIES, f"copies {name}", _sorted(spans))
    if rank.is_memset.any():
        yield Lane(COPIES, "memsets", _sorted(work[rank.is_memset]))
    if peers:
        yield Lane(PEERS, "copies by other ranks", _sorted(pandas.concat(peers)))


def _outside(report: RankReport) -> dict[str, Intervals]:
    """The time of steps before the first GPU activity of the rank, and after its last."""
    (low, high), steps = report.rank.span, report.steps.steps
    edges = [(min(step.start for step in steps), low), (high, max(step.end for step in steps))] if steps else []
    times = [edge for edge in edges if edge[0] < edge[1]]
    return {OUTSIDE: np.array(times, np.int64)} if times else {}


def _work(rank: Rank, numbers: pandas.Series) -> pandas.DataFrame:
    """The spans of all GPU work of a rank, in the order of `rank.work`."""
    import pandas

    work, origin, launch = rank.frame, rank.timeline.origin, rank.launches
    compute = np.where(rank.is_collective, COMMUNICATION, COMPUTE)
    columns = {
        "start": rank.starts - origin,
        "end": rank.ends - origin,
        "name": _texts(work["name"]),
        "kind": np.where(rank.is_copy, COPY, np.where(rank.is_memset, MEMSET, compute)),
        "launch": np.where(launch == UNKNOWN, NO_TIME, launch - origin),
        "call": _calls(numbers, work["launch_thread"], work["launch_start"]),
        "bytes": work["bytes"].to_numpy(),
        "stream": work["stream"].astype(object).where(work["stream"].notna(), None),
    }
    return pandas.DataFrame({**SPANS, **columns}, index=work.index)


def _copies_of_others(
    ranks: Sequence[Rank], work: dict[int, pandas.DataFrame], first: int
) -> tuple[dict[int, list[pandas.DataFrame]], int]:
    """The copies between two ranks of a file, as spans of the rank that does not record them, and the next number.

    Numbers the copies in `work`.
    """
    peers: dict[int, list[pandas.DataFrame]] = {}
    for rank in ranks:
        spans = work[rank.number]
        copied = rank.frame[rank.frame["direction"] == "PtoP"]
        for (source, destination), copies in copied.groupby(["source", "destination"], observed=True):
            others = [each for each in ranks if {each.device} == {source, destination} - {rank.device}]
            if not others:
                continue
            other = min(others, key=lambda each: each.process != rank.process)
            spans.loc[copies.index, "peer"] = range(first, first + len(copies))
            spans.loc[copies.index, "sends"] = rank.device == source
            mirrored = spans.loc[copies.index]
            peers.setdefault(other.number, []).append(
                mirrored.assign(kind=PEER, launch=NO_TIME, call=UNKNOWN, sends=~mirrored["sends"])
            )
            first += len(copies)
    return peers, first


def _texts(column: pandas.Series) -> pandas.Series:
    return column.astype(object).where(column.notna(), "unknown")


# --- CPU threads ------------------------------------------------------------------------------------


def _call_numbers(timeline: Timeline, first: int) -> pandas.Series:
    """The numbers of the calls that launch work, by thread and start."""
    import pandas

    launched = timeline.work.loc[timeline.work["launch_start"] != UNKNOWN, ["launch_thread", "launch_start"]]
    calls = pandas.MultiIndex.from_frame(launched.astype({"launch_thread": object}).drop_duplicates())
    return pandas.Series(np.arange(first, first + len(calls)), calls)


def _calls(numbers: pandas.Series, threads: pandas.Series, starts: pandas.Series) -> np.ndarray:
    """The numbers of the calls of these threads that start at these times; UNKNOWN for calls that launch nothing."""
    import pandas

    keys = pandas.MultiIndex.from_arrays([threads.astype(object), starts])
    return numbers.reindex(keys, fill_value=UNKNOWN).to_numpy()


def _threads(timeline: Timeline, numbers: pandas.Series, low: int, high: int) -> dict[str | None, list[Lane]]:
    """The lanes of the CPU threads by process, those that launch work first; events between these times."""
    import pandas

    frames = []
    for table, kind in ((timeline.ranges, RANGE), (timeline.operators, OPERATOR), (timeline.calls, CALL)):
        inside = table[(table["start"] < high) & (table["end"] >= low)]
        kinds = np.array([_cpu_kind(kind, name) for name in inside["name"].cat.categories] + [kind], object)
        columns = {
            "start": inside["start"] - timeline.origin,
            "end": np.minimum(inside["end"], high) - timeline.origin,
            "name": _texts(inside["name"]),
            "kind": kinds[inside["name"].cat.codes],
            "call": _calls(numbers, inside["thread"], inside["start"]) if kind == CALL else UNKNOWN,
            "process": inside["process"].astype(object),
            "thread": inside["thread"].astype(object),
        }
        frames.append(pandas.DataFrame({**SPANS, **columns}, index=inside.index))
    every = pandas.concat(frames, ignore_index=True)
    lanes: dict[str | None, list[tuple[bool, Lane]]] = {}
    for (process, thread), spans in every.groupby(["process", "thread"], dropna=False):
        name, launches = thread if isinstance(thread, str) else None, bool((spans["call"] != UNKNOWN).any())
        lane = Lane(THREAD, _thread_label(timeline, name), _sorted(spans))
        lanes.setdefault(process if isinstance(process, str) else None, []).append((not launches, lane))
    return {process: [lane for _, lane in sorted(mine, key=lambda item: item[0])] for process, mine in lanes.items()}


def _thread_label(timeline: Timeline, thread: str | None) -> str:
    if thread is None:
        return "all threads" if timeline.tool == "nsys" else "thread unknown"
    is_number = timeline.tool == "nsys" and thread.isdecimal()
    return f"thread {nsys.thread_id(thread) if is_number else thread}"


def _window(timeline: Timeline, reports: Sequence[RankReport]) -> tuple[int, int]:
    """The time of the CPU events: all of the file's, or from the first launch of the selected steps."""
    spans = [report.rank.span for report in reports]
    last = max(high for _, high in spans)
    if all(report.rank.unrestricted is report.rank for report in reports):
        for table in (timeline.calls, timeline.operators, timeline.ranges):
            ends = table["end"].to_numpy()
            last = max(last, int(ends[ends < OPEN_END].max(initial=last)))
        return -OPEN_END, last
    launches = np.concatenate([report.rank.launches for report in reports])
    first = min(low for low, _ in spans)
    return min(first, int(launches[launches != UNKNOWN].min(initial=first))), last


def _cpu_kind(kind: str, name: str) -> str:
    if idle.LOADER.search(name):
        return LOADER
    return WAITING if idle.SYNCHRONIZES.search(name) else kind
