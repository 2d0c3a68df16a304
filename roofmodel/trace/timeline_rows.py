"""Rows of a timeline: steps, idle stretches, GPU streams, copy engines and CPU threads, each with its events.

The page and the Perfetto file show the same rows. A row has lanes: events of one lane do not overlap, so nested calls
and concurrent kernels have a lane each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.profiles import nsys
from roofmodel.profiles.timelines.enclosing import rows_by_value
from roofmodel.profiles.timelines.timeline import UNKNOWN, Timeline
from roofmodel.roofline.categories import category
from roofmodel.trace import idle
from roofmodel.trace.ranks import Rank
from roofmodel.trace.steps import OPEN_END
from roofmodel.trace.trace import RankReport, RunAnalysis

if TYPE_CHECKING:
    import pandas

STEPS, IDLE, STREAM, COPIES, THREAD = "steps", "idle", "stream", "copies", "thread"
COPY_ENGINES = {"HtoD": "host to GPU", "DtoH": "GPU to host", "DtoD": "within a GPU", "PtoP": "between GPUs"}
Column = NDArray[np.int64]
Thread = tuple[str | None, str | None]  # process and thread


class Events(NamedTuple):
    """Columns of a row's events, sorted by lane and start. Times: nanoseconds from the file's first GPU activity."""

    start: Column
    end: Column
    name: Column  # index into the names
    lane: Column
    launch: Column  # start of the launching call; NO_TIME if unknown
    call: Column  # number of the launching call; on a CPU row the event's own number; UNKNOWN if it launches nothing
    bytes: Column  # of copies and memsets; UNKNOWN otherwise
    stream: Column  # index into the names, of GPU work; UNKNOWN otherwise

    def sorted_into_lanes(self, max_lanes: int | None) -> Events:
        """The events with their lanes; those of further lanes are left out."""
        order = np.lexsort((-self.end, self.start))
        ordered = self.select(order)
        placed = ordered._replace(lane=lanes(ordered.start, ordered.end))
        shown = np.arange(len(order)) if max_lanes is None else np.flatnonzero(placed.lane < max_lanes)
        return placed.select(shown[np.argsort(placed.lane[shown], kind="stable")])

    def select(self, which: NDArray[np.int64] | NDArray[np.bool_]) -> Events:
        return Events(*(column[which] for column in self))


NO_TIME = -(1 << 62)


@dataclass
class TimelineRow:
    """A row of the timeline. `launches`: of a CPU thread, whether it launches work; true for other rows."""

    kind: str
    label: str
    events: Events
    launches: bool = True


@dataclass(frozen=True)
class Section:
    """The rows of one rank, or of the CPU threads of one process."""

    label: str
    process: str | None
    rank: RankReport | None  # None: CPU threads
    rows: tuple[TimelineRow, ...]


@dataclass(frozen=True)
class Names:
    """Distinct names with their categories, in the order of their numbers."""

    numbers: dict[tuple[str, str], int]

    def number(self, name: str, kind: str) -> int:
        return self.numbers.setdefault((name, kind), len(self.numbers))

    def numbers_of(self, column: pandas.Series, kind: Callable[[str], str]) -> Column:
        """The numbers of a column of texts; UNKNOWN where the text is missing."""
        codes, texts = _coded(column)
        numbers = np.full(len(texts) + 1, UNKNOWN)  # the last for the code -1
        for code in np.unique(codes[codes >= 0]).tolist():
            numbers[code] = self.number(texts[code], kind(texts[code]))
        return np.asarray(numbers[codes])


@dataclass(frozen=True)
class TimelineRows:
    """All rows of a run, and the events that they leave out."""

    sections: tuple[Section, ...]
    names: Names
    short: int = 0  # events left out because they are short
    longest_short: int = 0  # nanoseconds; none of them is longer
    deep: int = 0  # events left out because their rows would need too many lanes

    @property
    def rows(self) -> list[TimelineRow]:
        return [row for section in self.sections for row in section.rows]


def timeline_rows(trace: RunAnalysis, max_events: int | None = None, max_lanes: int | None = None) -> TimelineRows:
    """The rows of all ranks and of the CPU threads of their processes.

    Of more than `max_events` events the longest are kept, GPU work before CPU events. A row has at most `max_lanes`.
    """
    names = Names({})
    sections = tuple(_sections(trace, names))
    gpu = [row for section in sections if section.rank for row in section.rows]
    cpu = [row for section in sections if not section.rank for row in section.rows]
    every = _count(*gpu, *cpu)
    longest_short = 0
    if max_events is not None and every > max_events:
        longest_short = _keep_longest(gpu, max_events)
        longest_short = max(longest_short, _keep_longest(cpu, max_events - _count(*gpu)))
    kept_count = _count(*gpu, *cpu)
    for row in (*gpu, *cpu):
        row.events = row.events.sorted_into_lanes(max_lanes)
    shown = tuple(replace(section, rows=tuple(row for row in section.rows if _count(row))) for section in sections)
    return TimelineRows(shown, names, every - kept_count, longest_short, deep=kept_count - _count(*gpu, *cpu))


def _count(*rows: TimelineRow) -> int:
    return sum(len(row.events.start) for row in rows)


def _keep_longest(rows: list[TimelineRow], number: int) -> int:
    """Keep the longest events of the rows, at most `number`; the length of the longest other one."""
    lengths = np.concatenate([np.empty(0, np.int64), *(row.events.end - row.events.start for row in rows)])
    if len(lengths) <= number:
        return 0
    order = np.argsort(-lengths, kind="stable")
    kept = np.zeros(len(lengths), dtype=bool)
    kept[order[:number]] = True
    first = 0
    for row in rows:
        size = len(row.events.start)
        row.events = row.events.select(kept[first : first + size])
        first += size
    return int(lengths[order[number]])


def lanes(starts: Column, ends: Column) -> Column:
    """For each event the lowest lane that is free; events are sorted by start, of equal starts the longest first.

    For calls that nest, this is their depth.
    """
    ends = np.maximum(ends, starts + 1)
    depth = np.arange(len(starts)) - np.searchsorted(np.sort(ends), starts, side="right")  # events that are open
    order = np.argsort(depth, kind="stable")
    same_lane = depth[order][1:] == depth[order][:-1]
    if not (same_lane & (ends[order][:-1] > starts[order][1:])).any():
        return np.asarray(depth, np.int64)
    free_from: list[int] = []  # of each lane
    lane_numbers = np.empty(len(starts), np.int64)
    for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        lane = next((lane for lane, free in enumerate(free_from) if free <= start), len(free_from))
        free_from[lane:] = [end, *free_from[lane + 1 :]]
        lane_numbers[i] = lane
    return lane_numbers


# --- Sections ---------------------------------------------------------------------------------------


def _sections(trace: RunAnalysis, names: Names) -> Iterator[Section]:
    several = len(trace.files) > 1
    calls = 0
    by_file: dict[int, list[RankReport]] = {}
    for report in trace.ranks:
        by_file.setdefault(id(report.rank.timeline), []).append(report)
    for reports in by_file.values():
        timeline = reports[0].rank.timeline
        where = f" of {trace.names[timeline.file]}" if several else ""
        threads = _Threads(timeline, reports, names, calls)
        calls += threads.number_of_calls
        last = {report.rank.process: report.rank.number for report in reports}
        for report in reports:
            rank = report.rank
            label = f"rank {rank.number}: {rank.label}{where}"
            yield Section(label, rank.process, report, tuple(_rank_rows(report, threads, names)))
            if last[rank.process] == rank.number:
                yield from threads.section(rank.process, where)
        for process in sorted(threads.processes - set(last), key=str):
            yield from threads.section(process, where)


def _rank_rows(report: RankReport, threads: _Threads, names: Names) -> Iterator[TimelineRow]:
    rank, origin = report.rank, report.rank.timeline.origin
    if steps := report.steps.steps:
        marks = [names.number(f"step {step.label}" if step.complete else f"step {step.label}, cut", STEPS)
                 for step in steps]  # fmt: skip
        yield TimelineRow(
            STEPS, "steps", _plain([s.start - origin for s in steps], [s.end - origin for s in steps], marks)
        )
    if report.idle:
        parts = [(part, names.number(cause, IDLE)) for cause, times in report.idle.items() for part in times.tolist()]
        starts, ends = [part[0] - origin for part, _ in parts], [part[1] - origin for part, _ in parts]
        yield TimelineRow(IDLE, "idle, by cause", _plain(starts, ends, [name for _, name in parts]))
    events = _gpu_events(rank, threads, names)
    streams, texts = _coded(rank.work["stream"])
    moves = rank.is_copy | rank.is_memset
    of_stream = rows_by_value(np.where(moves, UNKNOWN - 1, streams))
    of_stream.pop(UNKNOWN - 1, None)
    for code in sorted(of_stream, key=lambda code: _natural(texts, code)):
        label = f"stream {texts[code]}" if code >= 0 else "stream unknown"
        yield TimelineRow(STREAM, label, events.select(of_stream[code]))
    directions, texts = _coded(rank.work["direction"])
    for code in sorted(set(directions[rank.is_copy].tolist())):
        direction = texts[code] if code >= 0 else "direction unknown"
        label = f"copies {COPY_ENGINES.get(direction, direction.replace('_', ' '))}"
        yield TimelineRow(COPIES, label, events.select(rank.is_copy & (directions == code)))
    if rank.is_memset.any():
        yield TimelineRow(COPIES, "memsets", events.select(rank.is_memset))


def _natural(texts: list[str], code: int) -> tuple[bool, int, str]:
    text = texts[code] if code >= 0 else ""
    return code < 0, int(text) if text.isdecimal() else 1 << 40, text


def _plain(starts: Sequence[int] | Column, ends: Sequence[int] | Column, names: Sequence[int] | Column) -> Events:
    start, end, name = (np.asarray(values, np.int64) for values in (starts, ends, names))
    unknown = np.full(len(start), UNKNOWN)
    return Events(start, end, name, unknown, np.full(len(start), NO_TIME), unknown, unknown, unknown)


def _gpu_events(rank: Rank, threads: _Threads, names: Names) -> Events:
    work, origin = rank.work, rank.timeline.origin
    name = np.where(
        rank.is_kernel,
        names.numbers_of(work["name"].where(rank.is_kernel), category),
        np.where(
            rank.is_copy,
            names.numbers_of(work["name"].where(rank.is_copy), lambda _: "copy"),
            names.numbers_of(work["name"].where(rank.is_memset), lambda _: "memset"),
        ),
    )
    launch = work["launch_start"].to_numpy()
    return Events(
        start=rank.starts - origin,
        end=rank.ends - origin,
        name=name,
        lane=np.zeros(len(work), np.int64),
        launch=np.where(launch == UNKNOWN, NO_TIME, launch - origin),
        call=threads.calls_of(work),
        bytes=work["bytes"].to_numpy(),
        stream=names.numbers_of(work["stream"], lambda _: STREAM),
    )


# --- CPU threads ------------------------------------------------------------------------------------


class _Threads:
    """The events of the CPU threads of a file, and the numbers of the calls that launch work."""

    def __init__(self, timeline: Timeline, reports: list[RankReport], names: Names, first_call: int) -> None:
        self._timeline = timeline
        starts: dict[str | None, list[Column]] = {}
        for report in reports:
            launches = report.rank.work["launch_start"].to_numpy()
            for thread, mine in self._launched(report.rank.work):
                starts.setdefault(thread, []).append(launches[mine])
        self._calls = {thread: np.unique(np.concatenate(parts)) for thread, parts in starts.items()}  # by start
        sizes = [len(calls) for calls in self._calls.values()]
        self.number_of_calls = sum(sizes)
        self._first = dict(zip(self._calls, accumulate([first_call, *sizes[:-1]]), strict=True)) if sizes else {}
        self._rows = self._read(names, *_window(timeline, reports))

    @property
    def processes(self) -> set[str | None]:
        return {process for process, _ in self._rows}

    def calls_of(self, work: pandas.DataFrame) -> Column:
        """For each activity the number of the call that launched it, which is unique in the run; UNKNOWN without."""
        numbers = np.full(len(work), UNKNOWN)
        launches = work["launch_start"].to_numpy()
        for thread, mine in self._launched(work):
            numbers[mine] = self._numbers(thread, launches[mine])
        return numbers

    @staticmethod
    def _launched(work: pandas.DataFrame) -> Iterator[tuple[str | None, Column]]:
        """The threads that launched the work, and the indices of what each launched."""
        codes, texts = _coded(work["launch_thread"])
        launched_rows = np.flatnonzero(work["launch_start"] != UNKNOWN)
        for code, rows in rows_by_value(codes[launched_rows]).items():
            yield _text(texts, code), launched_rows[rows]

    def _numbers(self, thread: str | None, starts: Column) -> Column:
        """The numbers of the calls of a thread that start at these times; UNKNOWN for calls that launch nothing."""
        if thread not in self._calls:
            return np.full(len(starts), UNKNOWN)
        calls = self._calls[thread]
        index = np.minimum(np.searchsorted(calls, starts), len(calls) - 1)
        return np.where(calls[index] == starts, self._first[thread] + index, UNKNOWN)

    def section(self, process: str | None, where: str) -> Iterator[Section]:
        """The threads of a process that have events, those that launch work first."""
        mine = [(thread, row) for (owner, thread), row in self._rows.items() if owner == process]
        mine.sort(key=lambda item: (not item[1].launches, item[0] is None, item[0]))
        if mine:
            label = f"CPU, process {process}{where}" if process is not None else f"CPU{where}"
            yield Section(label, process, None, tuple(row for _, row in mine))

    def _read(self, names: Names, low: int, high: int) -> dict[Thread, TimelineRow]:
        origin, events_of_thread = self._timeline.origin, dict[Thread, list[Events]]()
        tables = (
            (self._timeline.ranges, "range"),
            (self._timeline.operators, "operator"),
            (self._timeline.calls, "CUDA call"),
        )
        for table, kind in tables:
            starts, ends = table["start"].to_numpy(), np.minimum(table["end"].to_numpy(), high)
            inside = np.flatnonzero((starts < high) & (ends >= low))
            processes, process_texts = _coded(table["process"])
            threads, thread_texts = _coded(table["thread"])
            numbers = names.numbers_of(table["name"].iloc[inside], partial(_cpu_category, kind))
            for part in rows_by_value(processes[inside] * (len(thread_texts) + 1) + threads[inside]).values():
                first = inside[part[0]]
                key = _text(process_texts, int(processes[first])), _text(thread_texts, int(threads[first]))
                events = _plain(starts[inside][part] - origin, ends[inside][part] - origin, numbers[part])
                if kind == "CUDA call":
                    events = events._replace(call=self._numbers(key[1], starts[inside][part]))
                events_of_thread.setdefault(key, []).append(events)
        return {key: self._row(key, parts) for key, parts in events_of_thread.items()}

    def _row(self, key: Thread, parts: list[Events]) -> TimelineRow:
        events = Events(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        return TimelineRow(THREAD, self._label(key[1]), events, launches=bool((events.call != UNKNOWN).any()))

    def _label(self, thread: str | None) -> str:
        if thread is None:
            return "all threads" if self._timeline.tool == "nsys" else "thread unknown"
        if self._timeline.tool == "nsys" and thread.isdecimal():
            return f"thread {nsys.thread_id(thread)}"
        return f"thread {thread}"


def _window(timeline: Timeline, reports: list[RankReport]) -> tuple[int, int]:
    """The time from which CPU events are shown: all of the file's, or from the first launch of the selected steps."""
    spans = [report.rank.span for report in reports]
    last = max((high for _, high in spans), default=0)
    if sum(len(report.rank.work) for report in reports) == len(timeline.work):
        for table in (timeline.calls, timeline.operators, timeline.ranges):
            ends = table["end"].to_numpy()
            last = max(last, int(ends[ends < OPEN_END].max(initial=last)))
        return -OPEN_END, last
    launches = np.concatenate([report.rank.work["launch_start"].to_numpy() for report in reports])
    first = min((low for low, _ in spans), default=0)
    return min(first, int(launches[launches != UNKNOWN].min(initial=first))), last


def _cpu_category(kind: str, name: str) -> str:
    if idle.LOADER.search(name):
        return "data loader"
    return "waiting for the GPU" if idle.SYNCHRONIZES.search(name) else kind


def _coded(column: pandas.Series) -> tuple[Column, list[str]]:
    """Codes and texts of a column; -1 for a missing text."""
    coded = column.astype("category").cat
    return coded.codes.to_numpy().astype(np.int64), [str(text) for text in coded.categories]


def _text(texts: list[str], code: int) -> str | None:
    return texts[code] if code >= 0 else None
