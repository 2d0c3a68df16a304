"""The columns of the tables of a run: ranks, steps, groups of GPU work, copies, collectives."""

from collections.abc import Callable
from typing import Any, NamedTuple

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
from roofmodel.trace import intervals
from roofmodel.trace.copies import HOST_DIRECTIONS, Copies
from roofmodel.trace.groups import LectureShares, lecture_shares
from roofmodel.trace.parts import PARTS
from roofmodel.trace.ranks import Rank
from roofmodel.trace.steps import StepWindow, total
from roofmodel.trace.trace import RankReport, RunAnalysis

SHARE_OF_WALL = Unit(lambda share: f"{share:.1%}" if share else "")
PARTS_LEGEND = (
    "compute, communication, copies: alone; overlap: computation during communication or copies; these and idle sum to "
    "the wall time"
)
ABOVE_CEILING = (
    "! above the ceiling: bytes are counted from shapes, and an expanded (broadcast) tensor or one in L2 moves fewer; "
    "or an algorithm (Winograd) takes fewer multiplications than were counted"
)


def _of_wall(part: str, window: str) -> Callable[[Any], float | None]:
    """The share of a part in the wall time of the field `window` of a row."""

    def share(row: Any) -> float | None:
        step = getattr(row, window)
        return getattr(step, part) / step.length if step.length else None

    return share


# --- Ranks ----------------------------------------------------------------------------------------


class RankRow(NamedTuple):
    """A rank with its wall time."""

    report: RankReport
    rank: Rank
    whole: StepWindow
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
    return lambda row: getattr(row.whole, part) / 1e9


def _busy(row: RankRow) -> float | None:
    return intervals.length(row.rank.kernels) / row.whole.length if row.whole.length else None


def _link_share(row: tuple[Copies, RankRow]) -> float | None:
    copies, link, rate = row[0], row[1].link, row[0].bytes_per_second
    return rate / link if copies.kind in HOST_DIRECTIONS and rate is not None and link else None


def _field(name: str) -> Callable[[tuple[Any, RankRow]], Any]:
    return lambda row: getattr(row[0], name)


RANK = Column(None, "rank", COUNT, lambda row: row[1].rank.number)
COPIES = Table(
    "copies",
    (
        Column("kind", "kind", NAME, _field("kind")),
        Column("memory", "memory", COUNT, _field("memory")),
        RANK,
        Column("count", "×", COUNT, _field("number")),
        Column("bytes", "bytes", BYTES, _field("bytes"), unknown="–"),
        Column("seconds", "time", SECONDS, _field("seconds")),
        Column("exposed_seconds", value=_field("exposed_seconds")),
        Column(None, "rate", BYTES_PER_SECOND, _field("bytes_per_second"), unknown="–"),
        Column("overlapped", "overlapped", PERCENT, _field("overlapped")),
        Column("bytes_per_second", value=_field("bytes_per_second")),
        Column("link_share", value=_link_share),
    ),
)
COLLECTIVES = Table(
    "collectives",
    (
        Column("name", "collective", NAME, _field("name")),
        RANK,
        Column("count", "×", COUNT, _field("number")),
        Column(None, "GPUs", COUNT, _field("group_size")),
        Column("seconds", "time", SECONDS, _field("seconds")),
        Column(
            None, "waiting", SECONDS, _field("waiting_seconds"), unknown="–",
            legend="waiting: part of the time before the last rank started; bandwidths leave it out",
        ),
        Column("exposed_seconds", "exposed", SECONDS, _field("exposed_seconds")),
        Column("bytes", "bytes", BYTES, _field("bytes"), priority=2),
        Column("bytes_per_second", "algorithm", BYTES_PER_SECOND, _field("bytes_per_second"), priority=1),
        Column(
            "bus_bytes_per_second", "bus", BYTES_PER_SECOND, _field("bus_bytes_per_second"),
            legend="algorithm, bus: bandwidths as in nccl-tests",
        ),
        Column("group_size", value=_field("group_size")),
        Column("link", value=_field("link")),
        Column(
            "link_share", "of link", COUNT, _field("link_share"),
            text=lambda row: None if row[0].link_share is None else f"{row[0].link_share:.0%} {row[0].link}",
            legend="of link: bus bandwidth over the link's rate in one direction",
        ),
        Column("waiting_seconds", value=_field("waiting_seconds")),
    ),
)  # fmt: skip

RANKS = Table(
    "ranks",
    (
        Column("rank", value="rank.number"),
        Column(None, "rank", NAME, lambda row: f"{row.rank.number}: {row.rank.label}"),
        Column(None, "wall", SECONDS, _part("length")),
        *(
            Column(
                None, part.title, SHARE_OF_WALL, _of_wall(name, "whole"),
                priority=4 if name == "overlap" else None, legend=PARTS_LEGEND if name == "overlap" else "",
            )
            for name, part in PARTS.items()
        ),
        Column(
            None, "busy", SHARE_OF_WALL, _busy, priority=3,
            legend="busy: share of the wall time in which a kernel runs",
        ),
        Column(None, "kernels", COUNT, "whole.kernels", priority=2),
        Column("file"),
        Column("process", value="rank.process"),
        Column("device", value="rank.device"),
        Column("run", value="rank.run"),
        Column("kernels", value=lambda row: int(row.rank.is_kernel.sum())),
        Column("kernel_seconds", value="rank.kernel_seconds"),
        Column("busy_seconds", value=_seconds(lambda rank: rank.kernels)),
        Column("span_seconds", value="rank.kernel_span_seconds"),
        Column("wall_seconds", value=_part("length")),
        Column("compute_only_seconds", value=_part("compute_only")),
        Column("compute_seconds", value=_seconds(lambda rank: rank.compute)),
        Column("communication_seconds", value=_seconds(lambda rank: rank.communication)),
        Column("communication_exposed_seconds", value=_seconds(lambda rank: rank.exposed_communication)),
        Column("communication_overlap", value="rank.overlap"),
        Column("overlap_seconds", value=_part("overlap")),
        Column("memory_mgmt_share", value="lecture.memory_mgmt"),
        Column("collective_share", value="lecture.collectives"),
        Column("copies_exposed_seconds", value=_seconds(lambda rank: rank.exposed_copies)),
        Column("copies", value=lambda row: COPIES.records((each, row) for each in row.report.copies)),
        Column("collectives", value=lambda row: COLLECTIVES.records((each, row) for each in row.report.collectives)),
        Column("idle_seconds", value=_seconds(lambda rank: rank.idle)),
        Column("idle_by_cause", value="report.idle_by_cause"),
        Column(
            "launch_to_start_median_seconds", "launch → start", SECONDS, "rank.launch_to_start_median_seconds",
            unknown="–", priority=1,
            legend="launch → start: median time from a kernel's launch on the CPU to its start",
        ),
        Column("queue_depth_median", value="report.queue_depth_median"),
        Column("mean_gap_seconds", value="rank.mean_gap_seconds"),
        Column("graph_kernels", value=lambda row: int(row.rank.in_graph.sum())),
        Column("graph_launches", value="rank.graph_launches"),
    ),
)  # fmt: skip


# --- Steps and groups -----------------------------------------------------------------------------


class StepRow(NamedTuple):
    """A step with its rank."""

    rank: Rank
    step: StepWindow


def _step_part(part: str) -> Callable[[StepRow], float]:
    return lambda row: getattr(row.step, part) / 1e9


def _step_share(part: str) -> Callable[[StepRow], str]:
    share = _of_wall(part, "step")
    return lambda row: SHARE_OF_WALL.write(share(row))


STEPS = Table(
    "steps",
    (
        Column("rank", value="rank.number"),
        Column("step", "step", NAME, "step.label"),
        Column("start_seconds", value=lambda row: (row.step.start - row.rank.timeline.origin) / 1e9),
        Column("seconds", "wall", SECONDS, lambda row: row.step.length / 1e9),
        *(
            Column(
                name, part.title, SHARE_OF_WALL, _step_part(name), _step_share(name),
                priority=2 if name == "overlap" else None,
            )
            for name, part in PARTS.items()
        ),
        Column("kernels", "kernels", COUNT, "step.kernels", priority=1),
        Column("complete", value="step.complete"),
    ),
)  # fmt: skip


def step_rows(trace: RunAnalysis) -> list[StepRow]:
    """A row for each rank and step; the parts sum to `seconds`."""
    return [StepRow(each.rank, step) for each in trace.ranks for step in each.steps.steps]


ACHIEVED = (
    Column("counted_seconds", value="achieved.seconds"),
    Column("flops", value="achieved.flops"),
    Column("bytes", value="achieved.bytes"),
    Column("flops_per_second", "FLOP/s", RATE, "achieved.flops_per_second", unknown="–"),
    Column("bytes_per_second", "B/s", RATE, "achieved.bytes_per_second", unknown="–", priority=6),
    Column("attainable_seconds", value="achieved.minimum_seconds"),
    Column(
        "fraction", "achieved", COUNT, "achieved.attainable_share", unknown="–",
        text=lambda row: _fraction(row.achieved and row.achieved.attainable_share),
        legend="FLOP/s, B/s: FLOPs and bytes counted from the recorded shapes of operators, over the measured time; "
        "achieved: share of the attainable performance",
    ),
    Column("bound", "bound by", value="achieved.bound", unknown="–"),
)  # fmt: skip
"""What kernels achieve against the ceilings; null where FLOPs and bytes, or the device, are unknown."""


def _fraction(share: float | None) -> str | None:
    return None if share is None else f"{share:.0%}{'!' * (share > 1)}"


def groups_table(key: str = "group", title: str = "group") -> Table:
    """GPU work by group or by name (GroupTime); the key and the title of the first column."""
    return Table(
        "groups",
        (
            Column(None, title, NAME, "group"),
            Column("rank", "rank", COUNT),
            Column(key, value="group"),
            Column("kernels", "×", COUNT, priority=5),
            Column("seconds", "time", SECONDS),
            Column(
                "share", "share", FINE_PERCENT,
                legend="share: of the summed time of the rank's GPU work, which counts overlapping work fully",
            ),
            *(Column(None, column.title, *column[2:]) for column in ACHIEVED if column.title),
            *(
                Column(f"{name}_seconds", name, SECONDS, name, priority=priority)
                for name, priority in (("mean", 4), ("median", 3), ("min", 1), ("max", 2))
            ),
            *(column._replace(title=None) for column in ACHIEVED),
        ),
        marks={"!": ABOVE_CEILING},
    )  # fmt: skip
