"""The tables of a run: ranks, steps, groups of GPU work, copies, collectives; the parts of the wall time in them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from roofmodel.numbers import units
from roofmodel.report import marks
from roofmodel.report.table import (
    BYTES,
    BYTES_PER_SECOND,
    COUNT,
    FINE_PERCENT,
    NAME,
    PERCENT,
    RATE,
    SECONDS,
    Column,
    Table,
    Unit,
)
from roofmodel.roofline.naming import KERNEL_NAME
from roofmodel.trace import intervals
from roofmodel.trace.groups import LectureShares, lecture_shares
from roofmodel.trace.ranks import Rank, joules
from roofmodel.trace.steps import StepWindow, total
from roofmodel.trace.trace import RankReport, RunAnalysis
from roofmodel.trace.transfers import HOST_DIRECTIONS, Copies

# --- Parts of the wall time, and causes of idle time ----------------------------------------------


class Part(NamedTuple):
    """How outputs show a part of the wall time."""

    title: str  # column of a table
    legend: str  # legend of the picture
    color: str
    meaning: str  # of its seconds


PARTS = {
    "compute_only": Part(
        "compute", "compute alone", marks.BLUE, "computation without communication or copies at the same time"
    ),
    "communication_exposed": Part(
        "communication", "communication exposed", marks.ORANGE, "communication without computation"
    ),
    "copies_exposed": Part("copies", "copies exposed", marks.PURPLE, "copies and memsets while no kernel runs"),
    "overlap": Part("overlap", "compute, overlapped", marks.SKY, "computation during communication or copies"),
    "idle": Part("idle", "idle", "0.85", "time within the span of kernels, copies and memsets without any"),
}
COMPUTATION = ("compute_only", "overlap")
COMPUTATION_FIRST = sorted(PARTS, key=lambda part: part not in COMPUTATION)  # for stacked bars
OUTSIDE = "outside"
"""The idle time of a step that is outside the span of GPU work, so that nothing in the file ends it: no cause."""
CAUSE_TEXTS = {
    "input": "data loader",
    "synchronization": "after the CPU waited for the GPU",
    "launch": "the CPU launches too slowly",
    "cpu_work": "the CPU does other work",
    "other_rank": "the CPU waits for other ranks",
    "allocation": "the CPU allocates memory or loads modules",
    "queued": "kernels launched but not started (stream order, events, other devices)",
    "unknown": "unknown",
    OUTSIDE: "before the first or after the last GPU work of the file",
}


def describe_causes(idle_by_cause: Mapping[str, float]) -> str:
    """The causes of idle time with their seconds, the largest first: `data loader 12 ms; unknown 1 µs`."""
    causes = sorted(idle_by_cause.items(), key=lambda item: -item[1])
    return "; ".join(f"{CAUSE_TEXTS[cause]} {units.seconds(seconds)}" for cause, seconds in causes)


# --- Ranks, copies, collectives -------------------------------------------------------------------

ENERGY = Unit(lambda value: units.si(value, "J"))
MAX_ROWS = 12  # of groups, names, and steps of a rank
SHARE_OF_WALL = Unit(lambda share: f"{share:.1%}" if share else "")
PARTS_LEGEND = (
    "compute, communication, copies: alone; overlap: computation during communication or copies; these and idle sum to "
    "the wall time"
)
ABOVE_CEILING = {
    "!": "! above the ceiling: bytes are counted from shapes, and an expanded (broadcast) tensor or one in L2 moves "
    "fewer",
    "*": "* above the ceiling: an algorithm (Winograd, FFT) takes fewer multiplications than were counted",
}
"""The mark of a memory-bound row, and of a compute-bound one."""


def _share(part: str, window: str) -> Callable[[Any], str]:
    """The share of a part in the wall time of the field `window` of a row."""

    def share(row: Any) -> str:
        step = getattr(row, window)
        return SHARE_OF_WALL.write(getattr(step, part) / step.length if step.length else None)

    return share


class RankRow(NamedTuple):
    """A rank with its wall time."""

    report: RankReport
    rank: Rank
    window: StepWindow
    lecture: LectureShares | None
    file: str
    link: float | None  # bytes per second between CPU and GPU


def rank_rows(trace: RunAnalysis) -> list[RankRow]:
    """A row for each rank."""
    link = trace.identified.device.host_bandwidth if trace.identified else None
    return [
        RankRow(
            each, each.rank, total(each.rank), lecture_shares(each.rank), trace.names[each.rank.timeline.file], link
        )
        for each in trace.ranks
    ]


def _seconds(of: Callable[[Rank], Any]) -> Callable[[RankRow], float]:
    """The length of some intervals of a rank."""
    return lambda row: intervals.length(of(row.rank)) / 1e9


def _part(part: str) -> Callable[[RankRow], float]:
    return lambda row: getattr(row.window, part) / 1e9


def _busy(row: RankRow) -> str:
    wall = row.window.length
    return SHARE_OF_WALL.write(intervals.length(row.rank.kernels) / wall if wall else None)


def _link_share(row: tuple[Copies, RankRow]) -> float | None:
    copies, link, rate = row[0], row[1].link, row[0].bytes_per_second
    return rate / link if copies.kind in HOST_DIRECTIONS and rate is not None and link else None


def _field(name: str) -> Callable[[tuple[Any, RankRow]], Any]:
    return lambda row: getattr(row[0], name)


RANK = Column(None, "rank", COUNT, lambda row: row[1].rank.number)
COPIES = Table(
    "copies",
    (
        Column("kind", "kind", NAME, _field("kind"), meaning="the direction, such as `HtoD`, or `memset`"),
        Column(
            "memory", "memory", COUNT, _field("memory"),
            meaning="the kind of host memory: `pinned`, `pageable` …; null if unknown",
        ),
        RANK,
        Column("count", "×", COUNT, _field("number"), meaning="the number of copies"),
        Column("bytes", "bytes", BYTES, _field("bytes"), unknown="–", meaning="their bytes; null if not recorded"),
        Column("seconds", "time", SECONDS, _field("seconds"), meaning="the sum of their durations"),
        Column("exposed_seconds", value=_field("exposed_seconds"), meaning="time without a kernel"),
        Column(
            "bytes_per_second", "rate", BYTES_PER_SECOND, _field("bytes_per_second"), unknown="–",
            meaning="bytes / seconds",
        ),
        Column(
            "overlapped", "overlapped", PERCENT, _field("overlapped"), meaning="the share of the time with a kernel"
        ),
        Column("link_share", value=_link_share, meaning="this rate / the rate of the link between CPU and GPU"),
    ),
)  # fmt: skip
PEERS = Table(
    "peer_copies",
    (
        Column("run", meaning="as in `ranks[]`"),
        Column(
            "source_device", value="source",
            meaning="the devices, as the file numbers them; null if it does not state them",
        ),
        Column(
            "destination_device", value="destination",
            meaning="the devices, as the file numbers them; null if it does not state them",
        ),
        Column("count", value="number", meaning="the number of copies"),
        Column("bytes", meaning="their bytes; null if not recorded"),
        Column("seconds", meaning="the sum of their durations"),
        Column("bytes_per_second", meaning="bytes / seconds"),
    ),
)  # fmt: skip
COLLECTIVES = Table(
    "collectives",
    (
        Column("name", "collective", NAME, _field("name"), meaning="the collective; one row for each group size"),
        RANK,
        Column("count", "×", COUNT, _field("number"), meaning="the number of collectives"),
        Column(
            "group_size", "GPUs", COUNT, _field("group_size"),
            meaning="the number of ranks of the group; null if unknown",
        ),
        Column(
            "seconds", "time", SECONDS, _field("seconds"),
            meaning="the sum of their durations, with the wait for the last rank",
        ),
        Column(
            "waiting_seconds", "waiting", SECONDS, _field("waiting_seconds"), unknown="–",
            legend="waiting: part of the time before the last rank started; bandwidths leave it out",
            meaning="the part of `seconds` before the last rank of the file started; null if the file has one rank",
        ),
        Column(
            "exposed_seconds", "exposed", SECONDS, _field("exposed_seconds"), meaning="the part without computation"
        ),
        Column("bytes", "bytes", BYTES, _field("bytes"), priority=2, meaning="bytes of the tensors of a rank"),
        Column(
            "bytes_per_second", "algorithm", BYTES_PER_SECOND, _field("bytes_per_second"), priority=1,
            meaning="algorithm and bus bandwidth as in nccl-tests",
        ),
        Column(
            "bus_bytes_per_second", "bus", BYTES_PER_SECOND, _field("bus_bytes_per_second"),
            legend="algorithm, bus: bandwidths as in nccl-tests",
            meaning="algorithm and bus bandwidth as in nccl-tests",
        ),
        Column(
            "link", value=_field("link"),
            meaning="the link of the device that the group uses, by the span of its ranks; null if unknown",
        ),
        Column(
            "link_share", "of link", COUNT, _field("link_share"),
            text=lambda row: None if row[0].link_share is None else f"{row[0].link_share:.0%} {row[0].link}",
            legend="of link: bus bandwidth over the link's rate in one direction",
            meaning="bus bandwidth / the link's rate in one direction",
        ),
    ),
)  # fmt: skip

_IDENTITY = "its file, process and GPU"
RANKS = Table(
    "ranks",
    (
        Column("rank", value="rank.number", meaning="a GPU of a process of a file"),
        Column(None, "rank", NAME, lambda row: f"{row.rank.number}: {row.rank.label}"),
        Column(
            "wall_seconds", "wall", SECONDS, _part("length"),
            meaning="from the start of the first kernel, copy or memset to the end of the last, or the selected steps. "
            "It is the sum of `compute_only_seconds`, `communication_exposed_seconds`, `copies_exposed_seconds`, "
            "`overlap_seconds` and `idle_seconds`",
        ),
        *(
            Column(
                f"{name}_seconds", part.title, SHARE_OF_WALL, _part(name), _share(name, "window"),
                priority=4 if name == "overlap" else None, legend=PARTS_LEGEND if name == "overlap" else "",
                meaning=part.meaning,
            )
            for name, part in PARTS.items()
        ),
        Column(
            "busy_seconds", "busy", SHARE_OF_WALL, _seconds(lambda rank: rank.kernels), _busy, priority=3,
            legend="busy: share of the wall time in which a kernel runs",
            meaning="the time in which at least one kernel runs: the union of their intervals",
        ),
        Column(
            "kernels", "kernels", COUNT, lambda row: int(row.rank.is_kernel.sum()), priority=2,
            meaning="the number of kernels",
        ),
        Column("file", meaning=_IDENTITY),
        Column("process", value="rank.process", meaning=_IDENTITY),
        Column("device", value="rank.device", meaning=_IDENTITY),
        Column(
            "run", value="rank.run",
            meaning="`before` or `after` in a comparison of two runs, the number of one of several runs; else null",
        ),
        Column("kernel_seconds", value="rank.kernel_seconds", meaning="the sum of their durations"),
        Column(
            "span_seconds", value="rank.kernel_span_seconds",
            meaning="from the start of the first kernel to the end of the last",
        ),
        Column(
            "compute_seconds", value=_seconds(lambda rank: rank.compute),
            meaning="the union of all kernels except collectives",
        ),
        Column(
            "communication_seconds", value=_seconds(lambda rank: rank.communication),
            meaning="the union of the collectives",
        ),
        Column("communication_overlap", value="rank.overlap", meaning="its share (0 to 1) with computation"),
        Column(
            "memory_mgmt_share", value="lecture.memory_mgmt",
            meaning="the share of communication in the summed time of the GPU work, as the profiling lecture counts it "
            "(with copies and memsets)",
        ),
        Column("collective_share", value="lecture.collectives", meaning="the share of collectives alone"),
        Column(
            "copies", value=lambda row: COPIES.records((each, row) for each in row.report.copies),
            meaning="copies and memsets by direction and kind of host memory, below",
        ),
        Column(
            "collectives", value=lambda row: COLLECTIVES.records((each, row) for each in row.report.collectives),
            meaning="collectives by name and group size, below",
        ),
        Column(
            "idle_by_cause", value="report.idle_by_cause",
            meaning="the idle seconds by cause: `input`, `synchronization`, `launch`, `cpu_work`, `other_rank`, "
            "`queued`, `allocation`, `unknown`, each only if it occurs",
        ),
        Column(
            "launch_to_start_median_seconds", "launch → start", SECONDS, "rank.launch_to_start_median_seconds",
            unknown="–", priority=1,
            legend="launch → start: median time from a kernel's launch on the CPU to its start",
            meaning="median time from the launching call to the kernel's start",
        ),
        Column(
            "queue_depth_median", value="report.queue_depth_median",
            meaning="median number of kernels that are launched but not started when a kernel starts",
        ),
        Column(
            "mean_gap_seconds", value="rank.mean_gap_seconds",
            meaning="mean time without a kernel between two consecutive kernels",
        ),
        Column(
            "graph_kernels", value=lambda row: int(row.rank.in_graph.sum()), meaning="kernels that CUDA graphs launched"
        ),
        Column(
            "power", value=lambda row: row.report.power and row.report.power._asdict(),
            meaning="energy and power of its GPU during the wall time, from samples: `joules`, `mean_watts`, "
            "`min_watts`, `max_watts`, `limit_watts`, `min_clock`, `max_clock` (Hz), `max_celsius`, and `throttled`, "
            "the share of the samples in which power or temperature limits the clock; null without samples",
        ),
        Column("graph_launches", value="rank.graph_launches", meaning="launches of these graphs"),
    ),
)  # fmt: skip


# --- Steps and groups -----------------------------------------------------------------------------


class StepRow(NamedTuple):
    """A step with its rank."""

    rank: Rank
    step: StepWindow


def _step_part(part: str) -> Callable[[StepRow], float]:
    return lambda row: getattr(row.step, part) / 1e9


def _step_joules(row: StepRow) -> float | None:
    return joules(row.rank, np.array([[row.step.start, row.step.end]]))


STEPS = Table(
    "steps",
    (
        Column("rank", value="rank.number", meaning="the rank"),
        Column("step", "step", NAME, "step.label", meaning="the step, as the trace marks it, or its number"),
        Column(
            "start_seconds", value=lambda row: (row.step.start - row.rank.timeline.origin) / 1e9,
            meaning="its start, from the first activity of the file",
        ),
        Column("seconds", "wall", SECONDS, lambda row: row.step.length / 1e9, meaning="its wall time"),
        *(
            Column(
                name, part.title, SHARE_OF_WALL, _step_part(name), _share(name, "step"),
                priority=2 if name == "overlap" else None,
                meaning="the parts of the step; they sum to `seconds`",
            )
            for name, part in PARTS.items()
        ),
        Column("kernels", "kernels", COUNT, "step.kernels", priority=1, meaning="its number of kernels"),
        Column(
            "joules", "energy", ENERGY, _step_joules,
            meaning="the energy of its GPU; null with fewer than two samples of power in the step",
        ),
        Column("complete", value="step.complete", meaning="false for a step that the trace cuts"),
        Column(
            "warm_up", value="step.warm_up",
            meaning="true for first steps that take more than 1.5 times as long as later ones; means leave them out",
        ),
    ),
)  # fmt: skip


def step_rows(trace: RunAnalysis) -> list[StepRow]:
    """A row for each rank and step; the parts sum to `seconds`."""
    return [StepRow(each.rank, step) for each in trace.ranks for step in each.steps.steps]


ACHIEVED = (
    Column(
        "counted_seconds", value="achieved.seconds", meaning="the time of the kernels whose FLOPs and bytes are known"
    ),
    Column(
        "flops", value="achieved.flops",
        meaning="their FLOPs and bytes, counted from the recorded shapes of operators; null if unknown",
    ),
    Column(
        "bytes", value="achieved.bytes",
        meaning="their FLOPs and bytes, counted from the recorded shapes of operators; null if unknown",
    ),
    Column(
        "flops_per_second", "FLOP/s", RATE, "achieved.flops_per_second", unknown="–",
        meaning="FLOPs, and bytes, / `counted_seconds`",
    ),
    Column(
        "bytes_per_second", "B/s", RATE, "achieved.bytes_per_second", unknown="–", priority=6,
        meaning="FLOPs, and bytes, / `counted_seconds`",
    ),
    Column(
        "attainable_seconds", value="achieved.minimum_seconds",
        meaning="the least time for these FLOPs and bytes on the device; null without a device",
    ),
    Column(
        "fraction", "achieved", COUNT, "achieved.attainable_share", unknown="–",
        text=lambda row: row.achieved and _fraction(row.achieved.attainable_share, row.achieved.bound),
        legend="FLOP/s, B/s: FLOPs and bytes counted from the recorded shapes of operators, over the measured time; "
        "achieved: share of the attainable performance",
        meaning="`attainable_seconds` / `counted_seconds`",
    ),
    Column("bound", "bound by", value="achieved.bound", unknown="–", meaning="`compute` or `memory`"),
)  # fmt: skip
"""What kernels achieve against the ceilings; null where FLOPs and bytes, or the device, are unknown."""


def _fraction(share: float | None, bound: str | None) -> str | None:
    mark = "*" if bound == "compute" else "!"
    return None if share is None else f"{share:.0%}{mark * (share > 1)}"


def groups_table(key: str = "group", title: str = "group") -> Table:
    """GPU work by group or by name (GroupTime); the key and the title of the first column."""
    return Table(
        "groups",
        (
            Column(None, title, KERNEL_NAME if title == "name" else NAME, "group"),
            Column("rank", "rank", COUNT, meaning="the rank"),
            Column(key, value="group", meaning=f"the {key} of GPU work"),
            Column("kernels", "×", COUNT, priority=5, meaning="the number of launches"),
            Column("seconds", "time", SECONDS, meaning="the sum of their durations"),
            Column(
                "share", "share", FINE_PERCENT,
                legend="share: of the summed time of the rank's GPU work, which counts overlapping work fully",
                meaning="its share of the summed time of the rank's GPU work",
            ),
            *(Column(None, column.title, *column[2:]) for column in ACHIEVED if column.title),
            *(
                Column(f"{name}_seconds", name, SECONDS, name, priority=priority, meaning="of the durations")
                for name, priority in (("mean", 4), ("median", 3), ("min", 1), ("max", 2))
            ),
            *(column._replace(title=None) for column in ACHIEVED),
        ),
        marks=ABOVE_CEILING,
    )  # fmt: skip
