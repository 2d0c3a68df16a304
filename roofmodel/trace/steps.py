"""Steps of a run: the marks of the profiler or of NVTX, else a repeating sequence of kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Literal, NamedTuple

import numpy as np

from roofmodel.profiles.columns import ColumnTable
from roofmodel.profiles.timelines.timeline import UNKNOWN, Timeline
from roofmodel.trace import intervals
from roofmodel.trace.ranks import Rank

_MARK = re.compile(
    r"(?:ProfilerStep#|(?:\w+[ _./-])?(?:step|iter|iteration|batch|train_step|training_step)[ _#:=./-]*)(\d{1,18})"
    r"(?:[ _-]rank[ _=-]?\d+\b.*)?",
    re.I,
)  # 18 digits fit in 64 bits; the suffix: `epoch1_step2003-rank0-640_8`, as in the lecture on jitter
WARM_UP = 1.5  # times the median of the later steps; a choice of this project
MIN_STEPS = 3  # of a repeating sequence
SAME = 0.95  # share of the kernels that must equal the kernel one period later
OPEN_END = 1 << 62  # later ends mean that the range was open when the trace ended
MAX_PER_STEP = 16  # launches in a step of the rarest kind of kernel, at most
MAX_CANDIDATES = 40  # periods that are tried

PARTS = ("compute_only", "communication_exposed", "copies_exposed", "overlap", "idle")
"""The parts of a wall time, which sum to it: fields of Step."""


class StepWindow(NamedTuple):
    """A window of a rank's time, or several, divided into parts; nanoseconds. `length` is the sum of the parts."""

    label: str
    start: int
    end: int
    compute_only: int
    communication_exposed: int
    copies_exposed: int
    overlap: int
    idle: int
    kernels: int
    complete: bool = True  # false for a step that the start or the end of the trace cuts
    warm_up: bool = False  # one of the first steps, and longer than the later ones

    @property
    def length(self) -> int:
        return self.compute_only + self.communication_exposed + self.copies_exposed + self.overlap + self.idle


class Steps(NamedTuple):
    """The steps of a rank; `source` says how they were found."""

    steps: list[StepWindow]
    source: Literal["marks", "period"] | None = None

    @property
    def complete(self) -> list[StepWindow]:
        return [step for step in self.steps if step.complete]

    @property
    def steady(self) -> list[StepWindow]:
        """The complete steps after the warm-up, which means are of."""
        return [step for step in self.complete if not step.warm_up]


def find(rank: Rank) -> Steps:
    """The steps of a rank; none if the file has no marks and its kernels do not repeat.

    Marks are intervals of the CPU: the GPU may still run kernels of the step before. Where most kernels start after the
    mark that launched them has ended, and in steps found by period, a step is the window from the start of its first
    kernel to that of the next step.
    """
    if step_marks := marks(rank):
        return Steps(_with_warm_up([window(rank, *mark) for mark in _on_gpu(rank, step_marks)]), "marks")
    periods = _with_warm_up(_by_period(rank))
    return Steps(periods, "period" if periods else None)


def _with_warm_up(windows: list[StepWindow]) -> list[StepWindow]:
    """The steps, of which the first ones are marked as warm-up: each is much longer than the median of those after it.

    At most half of the steps are: of two steps, nothing tells which one is usual.
    """
    lengths = [step.length for step in windows if step.complete]
    number = 0
    while 2 * (number + 1) < len(lengths) and lengths[number] > WARM_UP * median(lengths[number + 1 :]):
        number += 1
    complete = [step for step in windows if step.complete][:number]
    return [step._replace(warm_up=True) if step in complete else step for step in windows] if number else windows


def marks(rank: Rank) -> list[tuple[str, int, int, bool]]:
    """The marks of the steps, in order of time: number, start, end, and whether the mark ended; [] without marks.

    The marks of the thread with the most of them count, of the rank's process if it has marks.
    """
    low, high = rank.span
    for table in ("range_table", "operator_table"):
        threads = rank.timeline.once(_marked_threads, table)
        marked = threads.get(rank.process) or threads.get(None, [])
        ended = ((label, start, end if end < OPEN_END else max(high, start), end < OPEN_END)
                 for label, start, end in marked)  # fmt: skip
        if step_marks := [mark for mark in ended if mark[2] > low and mark[1] < high]:
            return step_marks
    return []


def window(rank: Rank, label: str, start: int, end: int, complete: bool = True) -> StepWindow:
    """The parts of the time from `start` to `end`; they sum to it."""
    compute, communication, copies = (
        intervals.clip(each, start, end) for each in (rank.compute, rank.communication, rank.copies)
    )
    others = intervals.join(communication, copies)
    compute_only = intervals.length(intervals.subtract(compute, others))
    exposed_copies = intervals.subtract(copies, intervals.join(compute, communication))
    idle = end - start - intervals.length(intervals.join(compute, others))
    kernels = np.count_nonzero(rank.is_kernel[slice(*np.searchsorted(rank.starts, [start, end]))])
    return StepWindow(
        label=label,
        start=start,
        end=end,
        compute_only=compute_only,
        communication_exposed=intervals.length(intervals.subtract(communication, compute)),
        copies_exposed=intervals.length(exposed_copies),
        overlap=intervals.length(compute) - compute_only,
        idle=idle,
        kernels=int(kernels),
        complete=complete,
    )


def mean_seconds(steps: Sequence[StepWindow]) -> float:
    """The mean wall time of steps."""
    return sum(step.length for step in steps) / len(steps) / 1e9


def total(rank: Rank) -> StepWindow:
    """The parts of the wall time of a rank; of selected steps, their sums."""
    windows = [window(rank, "", *pair) for pair in rank.windows.tolist()]
    parts = {part: sum(getattr(each, part) for each in windows) for part in (*PARTS, "kernels")}
    start, end = rank.span
    return StepWindow(label="", start=start, end=end, **parts)


def _marked_threads(timeline: Timeline, table: str) -> dict[str | None, list[tuple[str, int, int]]]:
    """Number, start and end of the marks of the thread with the most, in order, of each process and of all (None)."""
    events: ColumnTable = getattr(timeline, table)
    numbers = {code: match[1] for code, name in enumerate(events.distinct("name")) if (match := _MARK.fullmatch(name))}
    if not numbers:
        return {}
    codes, starts, ends = (events.array(column) for column in ("name", "start", "end"))
    rows = np.flatnonzero(np.isin(codes, list(numbers)))
    rows_of_thread: dict[tuple[str | None, str | None], list[int]] = {}
    for row in rows.tolist():
        rows_of_thread.setdefault((events.cell("process", row), events.cell("thread", row)), []).append(row)
    most: dict[str | None, list[int]] = {}
    for place in sorted(rows_of_thread, key=lambda place: [(text is None, text or "") for text in place]):
        mine = rows_of_thread[place]
        for key in {place[0], None}:
            if key not in most or len(mine) > len(most[key]):
                most[key] = mine
    marks_of_process: dict[str | None, list[tuple[str, int, int]]] = {}
    for process, mine in most.items():
        outermost = marks_of_process[process] = []
        ordered = np.array(mine)[np.argsort(starts[mine])]
        for code, start, end in zip(*(column[ordered].tolist() for column in (codes, starts, ends)), strict=True):
            if not outermost or start >= outermost[-1][2]:  # not a mark inside a mark
                outermost.append((numbers[code], start, end))
    return marks_of_process


def _on_gpu(rank: Rank, step_marks: list[tuple[str, int, int, bool]]) -> list[tuple[str, int, int, bool]]:
    """The marks, or the windows of the work that they launched if most of it starts after its mark has ended."""
    starts, ends = (np.array([mark[field] for mark in step_marks]) for field in (1, 2))
    launches = rank.launches
    step = np.searchsorted(starts, launches, "right") - 1
    inside = rank.is_kernel & (launches != UNKNOWN) & (step >= 0) & (launches < ends[step])
    late = inside & (rank.starts >= ends[step])
    if 2 * np.count_nonzero(late) <= np.count_nonzero(inside):
        return step_marks
    with_work, first = np.unique(step[inside], return_index=True)  # starts are sorted
    edges = [*rank.starts[inside][first].tolist(), int(rank.ends[inside].max())]
    windows = zip(with_work.tolist(), pairwise(edges), strict=True)
    return [(step_marks[each][0], start, end, step_marks[each][3]) for each, (start, end) in windows if start < end]


def _by_period(rank: Rank) -> list[StepWindow]:
    """Steps between the starts of the kernel after the longest gap of each period of the kernel sequence."""
    kernels = np.flatnonzero(rank.is_kernel)
    codes = rank.work.array("name")[kernels]
    period = find_period(codes)
    if period is None:
        return []
    starts, ends = rank.starts[kernels], rank.ends[kernels]
    before = np.concatenate([[0], starts[1:] - np.maximum.accumulate(ends)[:-1]])
    full_length = len(codes) // period * period
    phase = int(np.argmax(np.median(before[:full_length].reshape(-1, period), axis=0)))
    first = np.arange(phase, len(codes), period)
    edges = [int(starts[i]) for i in first]
    windows = [window(rank, str(n), *pair) for n, pair in enumerate(pairwise(edges))]
    low, high = rank.span
    if edges[0] > low:
        windows.insert(0, window(rank, "before the first", low, edges[0], complete=False))
    windows.append(window(rank, str(len(edges) - 1), edges[-1], high, complete=False))
    return windows


def find_period(codes: np.ndarray) -> int | None:
    """The length of the sequence that repeats at least MIN_STEPS times; None if there is none.

    A step's sequence repeats exactly; the layers inside a step also repeat, but for the kernels between them, so the
    shortest of the best periods is the step.
    """
    if len(codes) < 2 * MIN_STEPS:
        return None
    kinds, counts = np.unique(codes, return_counts=True)
    rare = kinds[np.argsort(counts, kind="stable")][:MAX_CANDIDATES]
    candidates: set[int] = set()
    for kind in rare:
        positions = np.flatnonzero(codes == kind)
        for per_step in range(1, min(MAX_PER_STEP, len(positions) - 1) + 1):  # launches of this kind in a step
            candidates.update(np.unique(positions[per_step:] - positions[:-per_step]).tolist()[:MAX_CANDIDATES])
    scores = {
        period: float((codes[:-period] == codes[period:]).mean())
        for period in candidates
        if period * MIN_STEPS <= len(codes)
    }
    best = max(scores.values(), default=0.0)
    if best < SAME:
        return None
    return min(period for period, score in scores.items() if score >= best - 0.002)
