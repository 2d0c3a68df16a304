"""Ranks of a run, and the sets of time in which each of them computes, communicates, copies or idles.

A rank is one GPU of one process of one file: (file, process, device). Several processes may share a GPU, and a file may
hold several ranks. Per rank, with K the kernels' intervals, N the collectives' (communication) and C all other
kernels':

    kernel time = sum of the durations of K        busy time = length of the union of K
    overlap     = |N and C| / |N|                  exposed communication = N without C
    idle time   = time within the span of kernels, copies and memsets, or within the selected steps, in which none of
                  them runs
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.numbers import units
from roofmodel.profiles.kernel import KernelTable
from roofmodel.profiles.timelines.enclosing import rows_by_value
from roofmodel.profiles.timelines.timeline import (
    CLOCK,
    COPY,
    KERNEL,
    MEMSET,
    POWER,
    POWER_LIMIT,
    RANK_IN_NAME,
    TEMPERATURE,
    THROTTLED,
    UNKNOWN,
    WORK,
    Samples,
    Timeline,
)
from roofmodel.roofline.categories import category
from roofmodel.trace import intervals
from roofmodel.trace.intervals import Intervals

if TYPE_CHECKING:
    import pandas

CLOCK_TOLERANCE = 1000
"""Nanoseconds by which a kernel may start before its launch: older traces round times to microseconds."""


class ClockError(NamedTuple):
    """Kernels that start before their launch, which no kernel does: the clocks of CPU and GPU differ."""

    kernels: int
    launched: int  # kernels with a known launch
    first_half: int  # the CPU's clock is ahead by at least so many nanoseconds (negative: at most behind)
    second_half: int

    @property
    def largest(self) -> int:
        return max(self.first_half, self.second_half)


Run = Literal["before", "after"] | int
"""The run of a comparison to which a rank belongs, or the number of one of several runs."""


class Rank:
    """The GPU work of one rank, sorted by start; times in nanoseconds of its file's clock."""

    def __init__(
        self,
        number: int,
        timeline: Timeline,
        process: str | None,
        device: str | None,
        work: KernelTable,
        run: Run | None = None,
        selected_from: Rank | None = None,
        windows: Intervals | None = None,
    ):
        self.number, self.timeline, self.process, self.device = number, timeline, process, device
        self.work, self.run = work, run
        self.unrestricted = selected_from or self
        self._windows = windows
        self.is_kernel, self.is_copy, self.is_memset = (
            work.mapped("kind", kind.__eq__, False, bool) for kind in (KERNEL, COPY, MEMSET)
        )
        self.is_collective = self.is_kernel & work.mapped("name", _communicates, False, bool)
        self.in_graph = self.is_kernel & work.mapped("launch_call", _launches_graph, False, bool)
        self.starts, self.ends, self.launches = (work.array(column) for column in ("start", "end", "launch_start"))

    @property
    def label(self) -> str:
        """Such as `GPU 0, process 144`, or `after, GPU 0` in a comparison."""
        device = f"GPU {self.device}" if self.device is not None else None
        run = f"run {self.run}" if isinstance(self.run, int) else self.run
        parts = (run, device, f"process {self.process}" if self.process else None)
        return ", ".join(filter(None, parts)) or f"rank {self.number}"

    def restricted(self, windows: Intervals) -> Rank:
        """The rank with only the activities that start in the windows.

        Its sets of time also contain activities that start before a window and end in it.
        """
        place = np.searchsorted(windows[:, 0], self.starts, side="right") - 1
        inside = (place >= 0) & (self.starts < windows[np.maximum(place, 0), 1])
        work = self.work.select(np.flatnonzero(inside))
        return Rank(self.number, self.timeline, self.process, self.device, work, self.run, self, windows)

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """The work as a frame."""
        return self.work.frame(WORK)

    def _within(self, times: Intervals) -> Intervals:
        return times if self._windows is None else intervals.intersect(times, self._windows)

    def _set(self, mask: Any) -> Intervals:
        return intervals.union(self.starts[mask], self.ends[mask])

    @cached_property
    def kernels(self) -> Intervals:
        every = self.unrestricted
        return self._within(every._set(every.is_kernel))

    @cached_property
    def communication(self) -> Intervals:
        every = self.unrestricted
        return self._within(every._set(every.is_collective))

    @cached_property
    def compute(self) -> Intervals:
        every = self.unrestricted
        return self._within(every._set(every.is_kernel & ~every.is_collective))

    @cached_property
    def copies(self) -> Intervals:
        """Memory copies and memsets."""
        every = self.unrestricted
        return self._within(every._set(every.is_copy | every.is_memset))

    @cached_property
    def active(self) -> Intervals:
        return self._within(self.unrestricted._set(slice(None)))

    @property
    def span(self) -> tuple[int, int]:
        """From the start of the first activity to the end of the last, or from the first selected step to the last."""
        if self._windows is not None:
            return int(self._windows[0, 0]), int(self._windows[-1, 1])
        return (int(self.active[0, 0]), int(self.active[-1, 1])) if len(self.active) else (0, 0)

    @property
    def windows(self) -> Intervals:
        """The time that counts: the selected steps, or the span."""
        return np.array([self.span], np.int64) if self._windows is None else self._windows

    @property
    def wall(self) -> int:
        """The length of the windows in nanoseconds."""
        return intervals.length(self.windows)

    @cached_property
    def idle(self) -> Intervals:
        """The part of the windows without an activity."""
        return self._within(intervals.gaps(self.active, *self.span))

    @property
    def graph_launches(self) -> int:
        """Launches of CUDA graphs that ran kernels."""
        calls = np.stack([self.launches, self.work.array("correlation")])[:, self.in_graph]
        return int(np.unique(calls, axis=1).shape[1])

    @property
    def kernel_seconds(self) -> float:
        return float((self.ends - self.starts)[self.is_kernel].sum()) / 1e9

    @property
    def kernel_span_seconds(self) -> float:
        """From the start of the first kernel to the end of the last."""
        return float(self.kernels[-1, 1] - self.kernels[0, 0]) / 1e9 if len(self.kernels) else 0.0

    @property
    def mean_gap_seconds(self) -> float | None:
        """Mean time without a kernel between two consecutive kernels, 0 where they overlap; None below two kernels."""
        pairs = int(self.is_kernel.sum()) - 1
        return (self.kernel_span_seconds - intervals.length(self.kernels) / 1e9) / pairs if pairs > 0 else None

    @cached_property
    def exposed_communication(self) -> Intervals:
        """Communication without computation at the same time."""
        return intervals.subtract(self.communication, self.compute)

    @cached_property
    def exposed_copies(self) -> Intervals:
        """Copies without a kernel at the same time."""
        return intervals.subtract(self.copies, self.kernels)

    @cached_property
    def compute_only(self) -> Intervals:
        """Computation without communication or copies at the same time."""
        return intervals.subtract(self.compute, intervals.join(self.communication, self.copies))

    @property
    def overlap(self) -> float | None:
        """The share of the communication during which the rank also computes; None without communication."""
        total = intervals.length(self.communication)
        return 1 - intervals.length(self.exposed_communication) / total if total else None

    @cached_property
    def clock_error(self) -> ClockError | None:
        """How far the clocks of CPU and GPU differ at least; None if no kernel starts before its launch."""
        known = self.is_kernel & (self.launches != UNKNOWN)
        ahead = (self.launches - self.starts)[known]
        if not np.any(ahead > CLOCK_TOLERANCE):
            return None
        halves = [int(half.max()) for half in (ahead[: len(ahead) // 2], ahead[len(ahead) // 2 :]) if len(half)]
        return ClockError(int(np.count_nonzero(ahead > CLOCK_TOLERANCE)), len(ahead), halves[0], halves[-1])

    @property
    def launch_to_start_median_seconds(self) -> float | None:
        """Median time from the start of the launching call to the start of the kernel.

        None without launches, and if the clocks of CPU and GPU differ.
        """
        if self.clock_error:
            return None
        launched = self.is_kernel & (self.launches != UNKNOWN)
        if not launched.any():
            return None
        return float(np.median(self.starts[launched] - self.launches[launched])) / 1e9


def _communicates(name: str) -> bool:
    return category(name) == "communication"


def _launches_graph(call: str) -> bool:
    return "GraphLaunch" in call


def ranks(timelines: Iterable[Timeline], run: Run | None = None, first: int = 0) -> list[Rank]:
    """The ranks of all files.

    Numbers are those that the files of a run state, if each states another one; else they count from `first`, in the
    order of files, devices and processes. The ranks of several runs are always counted: each run may have a rank 0.
    """
    parts = [list(_split(each)) for each in timelines]
    numbers = [stated_rank(timeline, process, len(part)) for part in parts for timeline, process, *_ in part]
    every = [each for part in parts for each in part]
    if run is None and None not in numbers and len(set(numbers)) == len(numbers):
        stated_ranks = [Rank(number or 0, *part) for number, part in zip(numbers, every, strict=True)]
        return sorted(stated_ranks, key=lambda rank: rank.number)
    return [Rank(number, *part, run) for number, part in enumerate(every, first)]


def stated_rank(timeline: Timeline, process: str | None, ranks_of_file: int) -> int | None:
    """The rank that a file states for a process: of a table of steps its range, else the file or its name."""
    if timeline.tool == "steps" and (match := RANK_IN_NAME.search(process or "")):
        return int(match[1])
    return timeline.rank if ranks_of_file == 1 else None


def _split(timeline: Timeline) -> Iterator[tuple[Timeline, str | None, str | None, KernelTable]]:
    work = timeline.work_table
    devices = len(work.distinct("device")) + 1
    places = work.array("process").astype(np.int64) * devices + work.array("device")
    rows_of = {
        (work.cell("process", rows[0]), work.cell("device", rows[0])): rows for rows in rows_by_value(places).values()
    }
    for process, device in sorted(rows_of, key=lambda place: natural(*reversed(place))):
        yield timeline, process, device, work if len(rows_of) == 1 else work.select(rows_of[process, device])


def natural(*names: str | None) -> tuple[tuple[int, int | str], ...]:
    """Sort key of names such as a device and a process: numbers first, in numeric order."""
    return tuple((0, int(each)) if each and each.isdecimal() else (1, each or "") for each in names)


# --- Power: what the file samples of a rank's GPU -------------------------------------------------


class SampledPower(NamedTuple):
    """The GPU of a rank during its wall time: base units, degrees Celsius; None if not sampled.

    A GPU that several processes share has the energy of all of them.
    """

    joules: float
    mean_watts: float
    min_watts: float
    max_watts: float
    limit_watts: float | None
    min_clock: float | None
    max_clock: float | None
    max_celsius: float | None
    throttled: float | None  # the share of the samples in which power or temperature limits the clock

    def __str__(self) -> str:
        limit = f", limit {units.si(self.limit_watts, 'W')}" if self.limit_watts else ""
        least, most = units.si(self.min_watts, "W"), units.si(self.max_watts, "W")
        mean = units.si(self.mean_watts, "W")
        parts = [f"{units.si(self.joules, 'J')}, {mean} on average ({least} to {most}{limit})"]
        if self.min_clock is not None and self.max_clock is not None:
            parts.append(f"SM clock {units.si(self.min_clock, 'Hz')} to {units.si(self.max_clock, 'Hz')}")
        if self.max_celsius is not None:
            parts.append(f"up to {self.max_celsius:.0f} °C")
        if self.throttled:
            parts.append(f"power or temperature limits the clock in {self.throttled:.0%} of the samples")
        return "; ".join(parts)


def power(rank: Rank) -> SampledPower | None:
    """The energy of a rank's wall time; None without samples of power in it."""
    energy = joules(rank, rank.windows)
    if energy is None:
        return None
    watts, limits, clocks, celsius, throttled = (
        _inside(rank, quantity) for quantity in (POWER, POWER_LIMIT, CLOCK, TEMPERATURE, THROTTLED)
    )
    return SampledPower(
        joules=energy,
        mean_watts=energy / rank.wall * 1e9,
        min_watts=float(watts.min()),
        max_watts=float(watts.max()),
        limit_watts=float(limits.min()) if limits.size else None,
        min_clock=float(clocks.min()) if clocks.size else None,
        max_clock=float(clocks.max()) if clocks.size else None,
        max_celsius=float(celsius.max()) if celsius.size else None,
        throttled=float(throttled.mean()) if throttled.size else None,
    )


def joules(rank: Rank, windows: Intervals) -> float | None:
    """The integral of the power over these times, by trapezoids; before the first sample and after the last, its power.

    None unless each of the times has two samples: NVIDIA's driver updates the power every 20 to 100 ms.
    """
    samples = _samples(rank, POWER)
    if samples is None:
        return None
    total = 0.0
    for start, end in windows.tolist():
        first, last = np.searchsorted(samples.times, start, "right"), np.searchsorted(samples.times, end)
        inside, near = samples.times[first:last], slice(max(first - 1, 0), last + 1)
        if len(inside) < 2:
            return None
        times = np.concatenate(([start], inside, [end]))
        values = np.interp(times, samples.times[near], samples.values[near])
        total += float(np.sum((values[1:] + values[:-1]) / 2 * np.diff(times))) / 1e9
    return total or None  # 0 W: the GPU has no sensor


def _samples(rank: Rank, quantity: str) -> Samples | None:
    return rank.timeline.samples.get((rank.process, rank.device, quantity))


def _inside(rank: Rank, quantity: str) -> NDArray[np.float64]:
    """The samples within the wall time."""
    samples = _samples(rank, quantity)
    if samples is None:
        return np.empty(0)
    place = np.searchsorted(rank.windows[:, 0], samples.times, side="right") - 1
    inside: NDArray[np.float64] = samples.values[(place >= 0) & (samples.times < rank.windows[np.maximum(place, 0), 1])]
    return inside
