"""Where the time of a run goes: per rank the parts of the wall time, copies, communication, idle time and steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from roofmodel.devices.device import Device, Hardware
from roofmodel.errors import Option, Text, WorkloadError
from roofmodel.files.text_files import display_names, rename_files
from roofmodel.numbers import units
from roofmodel.profiles.reading import expanded_files
from roofmodel.profiles.timelines.timeline import UNKNOWN, Timeline
from roofmodel.roofline.device import DeviceIdentification, UnknownDevice, identify
from roofmodel.trace import idle, intervals, steps
from roofmodel.trace.achieved import RankWork, RunRoofline, rank_work, run_roofline
from roofmodel.trace.findings import Finding, findings
from roofmodel.trace.groups import GroupTime, grouped
from roofmodel.trace.intervals import Intervals
from roofmodel.trace.ranks import CLOCK_TOLERANCE, ClockError, Rank, Run, SampledPower, power, ranks
from roofmodel.trace.several_runs import comparison, runs
from roofmodel.trace.several_runs.comparison import RunComparison
from roofmodel.trace.several_runs.run_summary import RunSummary, against_first, merged_groups
from roofmodel.trace.steps import Steps, StepWindow
from roofmodel.trace.transfers import (
    CollectiveCalls,
    Copies,
    PeerCopies,
    collectives,
    copies,
    peer_copies,
    waits,
    waits_by_rank,
)

TOP = 10  # kernels listed by default


class RankReport(NamedTuple):
    """The analysis of one rank."""

    rank: Rank
    steps: Steps
    copies: list[Copies]
    collectives: list[CollectiveCalls]
    idle: dict[str, Intervals]  # the idle time by cause, disjoint
    queue_depth_median: float | None  # kernels launched but not started, when a kernel starts
    power: SampledPower | None = None  # None: not sampled

    @property
    def idle_by_cause(self) -> dict[str, float]:
        """Idle seconds by cause; they sum to the rank's idle time."""
        return {cause: intervals.length(stretches) / 1e9 for cause, stretches in self.idle.items()}


@dataclass(frozen=True)
class RunAnalysis:
    """The analysis of a run, or of two runs: then the ranks before the change come first."""

    tool: str
    files: tuple[str, ...]
    identified: DeviceIdentification | None  # None: the device is unknown
    ranks: tuple[RankReport, ...]
    by: str
    groups: tuple[GroupTime, ...]
    top: tuple[GroupTime, ...]  # by name, over all ranks
    findings: tuple[Finding, ...]
    warnings: tuple[Text, ...]
    runs: tuple[RunSummary, ...] = ()  # without those that have no GPU work
    listed: int = TOP  # names that are listed
    roofline: RunRoofline | None = None  # None: the files have no shapes of operators
    reading: Text | None = None  # whether two arguments are one run or two, why, and the option for the opposite
    comparison: RunComparison | None = None
    peers: tuple[PeerCopies, ...] = ()

    @property
    def run_findings(self) -> list[Finding]:
        """Whether the runs do different work."""
        return [finding for finding in self.findings if finding.rank is None]

    @property
    def rank_findings(self) -> list[Finding]:
        """What limits the ranks; outputs number these findings."""
        return [finding for finding in self.findings if finding.rank is not None]

    @property
    def names(self) -> dict[str, str]:
        """The names of the files in results, without folders."""
        return display_names(self.files)


def trace(
    files: Sequence[str],
    *,
    before: Sequence[str] = (),
    one_run: bool = False,
    by: str = "group",
    top: int = TOP,
    steps_range: str | None = None,
    hw: Hardware | None = None,
) -> RunAnalysis:
    """Read the files of a run and analyze it; with the files of two runs (see `several_runs/runs.py`) compare them.

    `by` is a key of GROUPINGS; `steps_range` (`A:B`) selects the steps from A up to, not including, B. Raises RoofError
    for files that are not readable or that hold no run, and for invalid options.
    """
    if top < 1:
        raise WorkloadError(Option("top", top), " is not a positive number of kernels")
    wanted = None if steps_range is None else step_range(steps_range)
    input_runs = runs.read(files, before, one_run)
    timelines = [timeline for run in input_runs.runs for timeline in run]
    identified, device_warnings = _identified(timelines, hw)
    device = identified.device if identified else None
    sides = [_with_collectives(side, device) for side in _reports_by_run(input_runs, wanted)]
    every = [report for side in sides for report in side]
    works = [rank_work(each.rank, device) for each in every]
    compared = _comparison(sides, works, by) if len(sides) == 2 else None
    groups, by_name = _groups(every, works, by), _groups(every, works, "name")
    names = display_names(timeline.file for timeline in timelines)
    work_of = {each.rank.number: work for each, work in zip(every, works, strict=True)}
    summaries = against_first([_summary(side, work_of, groups, by_name) for side in sides if side])
    warnings = [
        *(text for timeline in timelines for text in timeline.warnings),
        *device_warnings,
        *(_repeated(files) if before or len(input_runs.runs) == 1 else ()),  # two equal arguments are two runs
        *(text for run in input_runs.runs for text in _different_devices(run)),
        *(text for report in every for text in _rank_warnings(report)),
        *_shared_gpus(every),
    ]
    return RunAnalysis(
        tool=timelines[0].tool,
        files=tuple(dict.fromkeys(timeline.file for timeline in timelines)),
        identified=identified,
        ranks=tuple(every),
        by=by,
        groups=groups,
        top=tuple(sorted(by_name, key=lambda row: -row.seconds)[:top]),
        findings=(*_different_work(summaries, compared), *_findings(sides, work_of, device)),
        warnings=tuple(dict.fromkeys(rename_files(warning, names) for warning in warnings)),
        runs=tuple(summaries),
        listed=top,
        roofline=run_roofline(works, sum(each.rank.kernel_seconds for each in every)),
        reading=input_runs.reading,
        comparison=compared,
        peers=tuple(peer_copies(each.rank for each in every)),
    )


def _repeated(files: Sequence[str]) -> Iterator[str]:
    """A warning for each file that is given more than once."""
    given = Counter(path for argument in files for path in expanded_files(argument))
    for path, number in given.items():
        if number > 1:
            yield f"{path} is given {number} times; the copies are ignored"


def _identified(timelines: Sequence[Timeline], hw: Hardware | None) -> tuple[DeviceIdentification | None, list[Text]]:
    """The device of the files, None if it is unknown, and warnings."""
    evidence = [replace(each, file=timeline.file) for timeline in timelines for each in timeline.evidence]
    try:
        identified = identify(evidence, hw, [timeline.file for timeline in timelines])
    except UnknownDevice as error:
        return None, [f"no device ceilings: {error.reason}"]
    return identified, list(identified.warnings)


def _reports_by_run(input_runs: runs.Runs, wanted: tuple[int, int] | None) -> list[list[RankReport]]:
    """The analysis of each rank that has GPU work, by run. No collectives yet."""
    labels: list[Run | None] = [None] if len(input_runs.runs) == 1 else ["before", "after"]
    if len(input_runs.runs) > 2:
        labels = [*range(1, len(input_runs.runs) + 1)]
    sides: list[list[Rank]] = []
    for run, label in zip(input_runs.runs, labels, strict=True):
        sides.append(ranks(run, label, first=sum(map(len, sides))))
    return [[_report(rank, wanted) for rank in side if len(rank.work)] for side in sides]


def _with_collectives(reports: Sequence[RankReport], device: Device | None) -> list[RankReport]:
    """The ranks of a run with their collectives, and the time that each rank waits in them for the others."""
    waiting = waits_by_rank(waits(each.rank for each in reports))
    return [
        each._replace(collectives=collectives(each.rank, device, waiting.get(each.rank.number))) for each in reports
    ]


def _comparison(sides: Sequence[Sequence[RankReport]], works: Sequence[RankWork | None], by: str) -> RunComparison:
    """The comparison of two runs; `works` are those of all ranks, in order."""
    first, second = ([(each.rank, each.steps) for each in side] for side in sides)
    return comparison.compare(first, second, by, _flops(works[: len(first)]), _flops(works[len(first) :]))


def _summary(
    side: Sequence[RankReport],
    works: Mapping[int, RankWork | None],
    groups: Sequence[GroupTime],
    by_name: Sequence[GroupTime],
) -> RunSummary:
    """The sums over the ranks of a run; `works` and the groups are those of the ranks of all runs."""
    numbers = [each.rank.number for each in side]
    totals = comparison.run_totals([(each.rank, each.steps) for each in side])
    idle_by_cause: Counter[str] = Counter()
    for each in side:
        idle_by_cause.update(each.idle_by_cause)
    return RunSummary(
        run=side[0].rank.run,
        files=tuple(dict.fromkeys(each.rank.timeline.file for each in side)),
        totals=totals._replace(flops=_flops(works[number] for number in numbers)),
        groups=tuple(merged_groups(row for row in groups if row.rank in numbers)),
        names=tuple(merged_groups(row for row in by_name if row.rank in numbers)),
        idle_by_cause=dict(idle_by_cause),
    )


def _different_work(summaries: Sequence[RunSummary], compared: RunComparison | None) -> Iterator[Finding]:
    """Whether runs do different work: of two as the comparison says it, of more each against the first one."""
    if compared is not None:
        if compared.different_work is not None:
            yield compared.different_work
    else:
        yield from (run.difference for run in summaries if run.difference is not None)


def _findings(
    sides: Sequence[Sequence[RankReport]], works: Mapping[int, RankWork | None], device: Device | None
) -> list[Finding]:
    """What limits each run: of two, the run after a change first; of more, most seconds first.

    `works` are by the number of the rank.
    """
    all_findings: list[Finding] = []
    for side in reversed(sides):
        ranks_of_side = [(each.rank, each.steps, each.copies, each.idle, works[each.rank.number]) for each in side]
        all_findings += findings(ranks_of_side, device)
    return sorted(all_findings, key=lambda finding: -finding.seconds) if len(sides) > 2 else all_findings


def _groups(reports: Sequence[RankReport], works: Sequence[RankWork | None], by: str) -> tuple[GroupTime, ...]:
    """The GPU work of each rank, grouped."""
    counted = zip(reports, works, strict=True)
    return tuple(row for each, work in counted for row in grouped(each.rank, each.steps, by, work))


def _report(rank: Rank, wanted: tuple[int, int] | None = None) -> RankReport:
    """The analysis of a rank, or of its steps in the range `wanted`; its collectives are added later.

    Raises WorkloadError if it has no such steps.
    """
    rank_steps = steps.find(rank)
    if wanted is not None:
        chosen = _chosen(rank, rank_steps, *wanted)
        windows = intervals.union([step.start for step in chosen], [step.end for step in chosen])
        rank, rank_steps = rank.restricted(windows), rank_steps._replace(steps=chosen)
    return RankReport(rank, rank_steps, copies(rank), [], idle.by_cause(rank), _queue_depth_median(rank), power(rank))


def _flops(works: Iterable[RankWork | None]) -> float | None:
    """The counted FLOPs of a run; None if none are known."""
    totals = [total for work in works if work is not None and (total := work.total()) is not None]
    return sum(total.flops for total in totals) if totals else None


def _queue_depth_median(rank: Rank) -> float | None:
    known = rank.is_kernel & (rank.launches != UNKNOWN)
    if not known.any() or rank.clock_error:
        return None
    starts = rank.starts[known]
    launched = np.searchsorted(np.sort(rank.launches[known]), starts, side="right")
    return float(np.median(launched - np.arange(1, len(starts) + 1)))


def _different_devices(timelines: Sequence[Timeline]) -> Iterator[str]:
    """A warning if two files of a run name different devices."""
    devices_of_files = [(timeline.file, {e.name for e in timeline.evidence if e.name}) for timeline in timelines]
    known_devices = [(file, names) for file, names in devices_of_files if names]
    for file, names in known_devices[1:]:
        if names.isdisjoint(known_devices[0][1]):
            first, second = (
                f"{name} on {', '.join(sorted(devices))}" for name, devices in (known_devices[0], (file, names))
            )
            yield f"different devices: {first} and {second}: probably not one run; give the files of one run"
            return


def _rank_warnings(report: RankReport) -> list[str]:
    rank = report.rank
    warnings = []
    if not len(rank.timeline.call_table) and len(rank.idle):
        warnings.append(
            f"{rank.timeline.file} has no CUDA calls of the CPU: the causes of idle time are unknown; "
            + {
                "nvprof": "collect with `nvprof --print-gpu-trace --print-api-trace`, or with Nsight Systems",
                "rocprof": "the database of `rocprofv3 --kernel-trace --memory-copy-trace --hip-trace` has them",
                "torch": "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
                "steps": "Nsight Systems exports (`nsys export --type sqlite`) have them",
            }.get(rank.timeline.tool, "export with `nsys export --type sqlite`")
        )
    if error := rank.clock_error:
        warnings.append(
            f"{rank.label}: {error.kernels} of {error.launched} kernels start before their launch, by up to "
            f"{units.seconds(error.largest / 1e9)}: the clocks of CPU and GPU differ by at least that much"
            + _drift(error)
            + ". The causes of idle time and the times from launch to start are unknown"
        )
    if cut := sum(not step.complete for step in report.steps.steps):
        are = f"{units.count(cut, 'step')} {'is' if cut == 1 else 'are'}"
        warnings.append(f"{rank.label}: {are} cut by the start or end of the trace and not averaged")
    return warnings


def _drift(error: ClockError) -> str:
    """How the error changes, if the GPU's clock drifts against the CPU's."""
    change = error.second_half - error.first_half
    if abs(change) <= CLOCK_TOLERANCE:
        return ""
    return f" (by {units.seconds(abs(change) / 1e9)} {'more' if change > 0 else 'less'} in the second half)"


def _shared_gpus(reports: Iterable[RankReport]) -> Iterator[str]:
    """Warnings about GPUs on which several processes of a file run."""
    processes: dict[tuple[int, str], list[str]] = {}
    for each in reports:
        if each.rank.device is not None and each.rank.process is not None:
            key = id(each.rank.timeline), each.rank.device
            processes.setdefault(key, []).append(each.rank.process)
    for (_, device), names in processes.items():
        if len(names) > 1:
            yield (
                f"processes {', '.join(names)} share GPU {device}: each is a rank of its own, and the GPU may run one "
                "of them in the idle time of another"
            )


def step_range(text: str) -> tuple[int, int]:
    """The steps of `--steps A:B`: from A up to, not including, B. Raises WorkloadError for another text."""
    match = re.fullmatch(r"(\d{0,9}):(\d{0,9})", text)
    if not match:
        raise WorkloadError(Option("steps", text), " is not a range of steps such as 2:5")
    low, high = int(match[1] or 0), int(match[2] or 10**9)
    if low >= high:
        meant = f"{high}:{low}" if low > high else f"{low}:{low + 1}"
        raise WorkloadError(Option("steps", text), f" is empty; did you mean {meant}?")
    return low, high


def _chosen(rank: Rank, rank_steps: Steps, low: int, high: int) -> list[StepWindow]:
    """The steps from `low` up to `high`. Raises WorkloadError if there are none."""
    numbered_steps = [step for step in rank_steps.steps if step.label.isdecimal()]
    chosen = [step for step in numbered_steps if low <= int(step.label) < high]
    if not chosen:
        listed = ", ".join(step.label for step in numbered_steps[:8]) or "none"
        raise WorkloadError(Option("steps", f"{low}:{high}"), f": {rank.label} has no such steps; it has {listed}")
    return chosen
