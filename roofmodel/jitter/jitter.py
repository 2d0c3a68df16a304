"""Which rank of a run is late, from which kernel on, and why."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from roofmodel.errors import Option, ProfileError, Text, WorkloadError, cut
from roofmodel.files import output_files
from roofmodel.files.text_files import display_names, rename_files
from roofmodel.jitter import kernel_tables
from roofmodel.jitter.alignment import LAST_STEP, Begins, Difference, KernelAlignment
from roofmodel.jitter.causes import SIGNIFICANT, Cause
from roofmodel.jitter.deviations import Floats
from roofmodel.jitter.lateness import RankClocks
from roofmodel.jitter.rank_files import is_rank_file
from roofmodel.jitter.ranks import ComparedRank, marked_steps
from roofmodel.jitter.reduced_steps import ReducedSteps, StepCurves, StepSummary
from roofmodel.jitter.runs import check_cache, compare_ranks, mapped_pieces, read_run
from roofmodel.numbers import units
from roofmodel.options.values import FirstGap, seconds_of
from roofmodel.profiles.reading import expanded_files
from roofmodel.trace.trace import step_range

# Choices of this project, without an external source.
# Share of the step time between the ends of one collective from which a warning follows. Ranks leave a collective
# within microseconds; ranks that are matched at different steps leave it up to a whole step apart.
APART = 0.1
MARK_STEPS = "Mark the steps: call step() of torch.profiler.profile after each, or open an NVTX range such as `step 5`"
MAX_NAME = 60  # characters of a kernel's name in a warning
OTHER_STREAMS = 0.01  # share of the kernel time from which a warning names streams that are not compared


class RankSummary(NamedTuple):
    """A rank and its totals over all steps."""

    rank: ComparedRank
    common_compute_seconds: float | None  # None if no step of it is compared
    launch_to_start_median_seconds: float | None  # None without launches
    compute_seconds: float  # of all kernels, collectives apart


@dataclass(frozen=True)
class Jitter:
    """The comparison of the ranks of a run."""

    tool: str
    files: tuple[str, ...]
    ranks: tuple[RankSummary, ...]
    aligned_by: str
    common_kernels: int  # in all steps
    difference: Difference | None
    clocks: RankClocks
    threshold: float
    first_gap: str
    step_seconds: float  # median over steps
    steps: tuple[StepSummary, ...]
    lateness: Floats  # deviation of the time to the end, steps x ranks, in seconds; NaN for a missing step
    curves: StepCurves | None  # of the step with the largest deviation
    causes: tuple[Cause, ...]
    findings: tuple[str, ...]
    warnings: tuple[Text, ...]

    @property
    def names(self) -> dict[str, str]:
        """The names of the files in results, without folders."""
        return display_names(self.files)

    @property
    def mean_deviations(self) -> list[float | None]:
        """The mean over steps of the lateness of each rank, in seconds; None for a rank without a compared step."""
        values_by_rank = [values[np.isfinite(values)] for values in self.lateness.T]
        return [float(values.mean()) if len(values) else None for values in values_by_rank]

    def latest_ranks(self, count: int) -> list[int]:
        """The places of the ranks with the largest mean deviations, at most `count`, by number of the rank."""
        means = self.mean_deviations
        return sorted(sorted(range(len(means)), key=lambda place: -(means[place] or 0))[:count])

    def worst_steps(self, count: int) -> list[int]:
        """The places of the steps with the largest deviations, at most `count`, in the order of the steps."""
        return sorted(sorted(range(len(self.steps)), key=lambda place: -self.steps[place].latest_seconds)[:count])


def jitter(
    files: Sequence[str],
    *,
    steps_range: str | None = None,
    threshold: str | float | None = None,
    first_gap: FirstGap = "same-step",
    cache: str | None = None,
    cluster: str | None = None,
    kernels: str | None = None,
) -> Jitter:
    """Read the files of a run and compare its ranks. A folder means all its files.

    `steps_range` (`A:B`) selects the steps from A up to, not including, B; `threshold` is the deviation (`100us`, or
    seconds) from which a rank is late, by default that of `causes.late_threshold`; `first_gap` is a definition of
    `deviations.first_gaps`. `cache` is a folder for Parquet files with the kernels of each file; `cluster` the address
    of a Dask scheduler, or `local`; `kernels` a CSV file to write with all compared kernels of all ranks and steps.
    Raises RoofError if fewer than two ranks can be compared, and for invalid options.
    """
    low, high = (0, LAST_STEP) if steps_range is None else step_range(steps_range)
    folder = None if cache is None else check_cache(cache)
    if kernels is not None:
        output_files.check(kernels, ["csv"])
        output_files.check_not_input(kernels, files)
    late = None if threshold is None else seconds_of("threshold", threshold, "100us")
    options = _Options(late, first_gap, steps_range, low, high, folder, cluster, kernels)
    repeated = _repeated(files)
    expanded = [file for argument in files for file in expanded_files(str(argument))]
    stored = [file for file in expanded if is_rank_file(file)]
    if cluster is not None and cache is None and len(stored) < len(expanded):
        raise WorkloadError(
            Option("cluster"), " needs Parquet files of the ranks, in a folder that all workers can read: add ",
            Option("cache", "FOLDER"),
        )  # fmt: skip
    return _kernel_jitter(expanded, frozenset(stored), options, repeated)


class _Options(NamedTuple):
    """The checked options of a comparison."""

    threshold: float | None  # seconds; None: the default
    first_gap: FirstGap
    steps_range: str | None  # as given
    low: int  # the first step
    high: int  # the step after the last
    cache: str | None  # folder
    cluster: str | None  # address
    kernels: str | None  # CSV file for the kernels


def _kernel_jitter(files: Sequence[str], stored: frozenset[str], options: _Options, warnings: Sequence[str]) -> Jitter:
    """The comparison of the ranks of profiler files. Raises RoofError if they have no common steps."""
    with mapped_pieces(options.cluster) as map_pieces:
        run = read_run(files, stored, options.cache, map_pieces, warnings)
        alignment, reduced, damaged = compare_ranks(
            run, options.low, options.high, options.threshold, options.first_gap, map_pieces
        )
        if options.kernels is not None and reduced.steps:
            kernel_tables.write(alignment, options.first_gap, map_pieces, options.kernels)
    if not reduced.steps:
        raise _nothing_common(alignment, options.steps_range)
    every: list[Text] = [*run.warnings, *damaged]
    every += _alignment_warnings(alignment, reduced)
    labels = display_names(run.files)
    delays = [sums.launch_to_start_median_seconds for sums in reduced.of_rank]
    compute = [sums.compute_seconds for sums in reduced.of_rank]
    return Jitter(
        tool=run.tool,
        files=run.files,
        ranks=tuple(map(RankSummary, alignment.ranks, reduced.compute_seconds(), delays, compute)),
        aligned_by=_aligned_by(alignment),
        common_kernels=alignment.common_kernels,
        difference=alignment.difference,
        clocks=reduced.clocks,
        threshold=reduced.threshold,
        first_gap=options.first_gap,
        step_seconds=reduced.step_seconds,
        steps=reduced.steps,
        lateness=reduced.lateness,
        curves=reduced.curves,
        causes=tuple(reduced.causes),
        findings=tuple(_findings(reduced, alignment.ranks)),
        warnings=tuple(dict.fromkeys(rename_files(warning, labels) for warning in every)),
    )


def _repeated(files: Sequence[str]) -> list[str]:
    """Warnings about files that are given twice."""
    paths = [str(file) for file in files if not re.search(r"[*?\[]", str(file)) and str(file) != "-"]
    by_path: dict[str, list[str]] = {}
    for file in paths:
        by_path.setdefault(os.path.realpath(file), []).append(file)
    return [f"{same[0]}: given {len(same)} times; it counts once" for same in by_path.values() if len(same) > 1]


def _aligned_by(alignment: KernelAlignment) -> str:
    if alignment.marked:
        return "kernels of marked steps"
    return "sequence of kernels" + (", steps found as its repeating part" if alignment.found_steps else "")


def _nothing_common(alignment: KernelAlignment, steps_range: str | None) -> ProfileError | WorkloadError:
    if steps_range is not None:
        steps = sorted(set().union(*map(marked_steps, alignment.ranks)))
        there = f"; the files have {units.count(len(steps), 'step')} ({units.listed(steps)})" if steps else ""
        return WorkloadError(Option("steps", steps_range), f": at least two ranks must have such a step{there}")
    ranks = ", ".join(f"rank {rank.number} of {rank.file}" for rank in alignment.ranks[:3])
    return ProfileError(f"{ranks}: the sequences of kernels have nothing in common; give ranks that do the same work")


def _alignment_warnings(alignment: KernelAlignment, reduced: ReducedSteps) -> list[str]:
    warnings = []
    if (difference := alignment.difference) is not None:
        warnings.append(difference_text(difference))
    missing = alignment.missing
    for rank in dict.fromkeys(number for numbers in missing.values() for number in numbers):
        without = [step for step, numbers in missing.items() if rank in numbers]
        warnings.append(
            f"rank {rank} does not have {units.count(len(without), 'step')} that other ranks have "
            f"({units.listed(without)}); there it is not compared"
        )
    warnings += _begin_warnings(alignment.begins)
    for rank, steps in alignment.left_out.items():
        if rank in alignment.begins.ended:
            continue
        where = f" in {units.count(steps, 'step')}" if alignment.marked else ""
        warnings.append(
            f"rank {rank} is not compared{where}: fewer than half of its kernels are those of the other ranks"
        )
    numbers = [rank.number for rank in alignment.ranks]
    absent = sorted(set(range(max(numbers) + 1)) - set(numbers))
    if absent and len(absent) < len(numbers):
        warnings.append(f"{units.count(len(absent), 'rank')} without a file: {units.listed(absent)}")
    others = [
        sums for sums in reduced.of_rank
        if sums.other_seconds > OTHER_STREAMS * (sums.other_seconds + sums.compared_seconds)
    ]  # fmt: skip
    if others:
        worst = max(others, key=lambda sums: sums.other_seconds)
        warnings.append(
            f"kernels on other streams than the main one are not compared: {units.seconds(worst.other_seconds)} on "
            f"rank {alignment.ranks[worst.place].number}"
        )
    if (error := reduced.clocks.error_seconds) is not None and error > APART * reduced.step_seconds > 0:
        warnings.append(
            f"collectives do not end together on all ranks: they end up to {units.seconds(error)} apart. The ranks may "
            "be matched at different steps, or the collectives are of different groups of ranks"
            + ("" if alignment.marked else f". {MARK_STEPS}")
        )
    if reduced.clocks.error_seconds is None and len({rank.time_base for rank in alignment.ranks}) > 1:
        warnings.append("the ranks have no common collectives: their clocks cannot be aligned")
    return warnings


def _begin_warnings(begins: Begins) -> list[str]:
    """Warnings about ranks without marks that begin at different steps, or whose first step is not known."""
    warnings = []
    for steps in sorted(set(begins.dropped.values())):
        ranks = [number for number, dropped in begins.dropped.items() if dropped == steps]
        amount = f"{steps:.3g} step{'' if steps == 1 else 's'}" if steps else "kernels"
        warnings.append(
            f"the ranks begin at different steps, as the times between collectives show: the first {amount} of "
            f"{_ranks_text(ranks)} {'are' if steps != 1 else 'is'} not compared, because another rank begins later"
        )
    warnings += [
        f"rank {number} ends before the last rank begins; it is not compared" for number in sorted(begins.ended)
    ]
    if begins.unknown:
        warnings.append(
            f"{_ranks_text(list(begins.unknown))} {'has' if len(begins.unknown) == 1 else 'have'} fewer collectives "
            f"than the rank with the most (by up to {max(begins.unknown.values())}), steps are not marked, and the "
            "times between collectives do not show at which step each rank begins: the ranks are compared from their "
            f"first kernels on. {MARK_STEPS}"
        )
    return warnings


def _ranks_text(numbers: Sequence[int]) -> str:
    return f"rank{'' if len(numbers) == 1 else 's'} {units.listed(numbers)}"


def difference_text(difference: Difference) -> str:
    """The first difference between the sequences, in words."""
    where = f"kernel {difference.kernel}" + ("" if difference.step is None else f" of step {difference.step}")
    if difference.name is None or difference.expected is None:
        more = abs(difference.kernels - difference.expected_kernels)
        which = "fewer" if difference.name is None else "more"
        text = f"rank {difference.rank} has {more} {which} than the other ranks"
    else:
        own, others = (cut(name, MAX_NAME) for name in (difference.name, difference.expected))
        text = f"rank {difference.rank} runs {own}, other ranks {others}"
        if difference.kernels != difference.expected_kernels:
            text += f" ({difference.kernels} kernels, {difference.expected_kernels} on other ranks)"
    return f"the sequences of kernels differ from {where} on: {text}; the common kernels are compared"


def _findings(reduced: ReducedSteps, ranks: Sequence[ComparedRank]) -> list[str]:
    """The result in words: the causes by their cost, the latest rank, and whether kernels are the cause."""
    findings = [cause.evidence for cause in reduced.causes]
    findings.append(_latest_finding(reduced.steps, reduced.threshold))
    if not any(
        cause.kind in ("gpu", "workload", "random") or "longer kernels" in cause.evidence for cause in reduced.causes
    ):
        findings.append(_kernels_finding(reduced, ranks))
    if not reduced.causes:
        findings.append(f"no rank is late by more than noise explains and {SIGNIFICANT:.1%} of the step")
    return findings


def _kernels_finding(reduced: ReducedSteps, ranks: Sequence[ComparedRank]) -> str:
    """Whether kernels can be the cause where no cause names them: a small part of the step excludes them."""
    place, seconds = reduced.slowest_compute()
    share = seconds / reduced.step_seconds if reduced.step_seconds else 0.0
    excluded = "kernels are not the cause" if share < SIGNIFICANT else "kernels are not excluded as a cause"
    return (
        f"{excluded}: the computation of rank {ranks[place].number}, the slowest, is {units.seconds(seconds)} per step "
        f"longer than the median ({share:.1%} of the step)"
    )


def _latest_finding(steps: Sequence[StepSummary], threshold: float) -> str:
    """The rank that is most often the latest, and the largest deviation of a rank."""
    latest = [step.latest_rank for step in steps if step.has_latest]
    if not latest:
        return "no rank is later than the others in any step"
    most = max(dict.fromkeys(latest), key=latest.count)
    worst = max(steps, key=lambda step: step.latest_seconds)
    times, every = latest.count(most), units.count(len(steps), "step")
    often = (
        f"rank {most} is the latest in {times} of {every}"
        if times > len(steps) / 2 or len(set(latest)) == 1
        else f"no rank is the latest in more than {times} of {every}"
    )
    below = ""
    if worst.latest_seconds < threshold:
        below = f", below the threshold of {units.seconds(threshold)}"
    return (
        f"{often}; the largest deviation is {units.seconds(worst.latest_seconds)}, of rank {worst.latest_rank} in step "
        f"{worst.step}{below}"
    )
