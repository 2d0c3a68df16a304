"""Compare two runs of one program, before and after a change: what became faster or slower, appeared or vanished.

Launches are matched by name and order: the n-th launch of a name in a step of a rank before the change is the n-th one
after it. Times are integer nanoseconds, so that for each group and in total, exactly,

    after - before = change of the matched launches + launches only after - launches only before
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from roofmodel.numbers import units
from roofmodel.roofline.categories import category
from roofmodel.trace.findings import Finding
from roofmodel.trace.groups import GROUPINGS
from roofmodel.trace.ranks import Rank
from roofmodel.trace.steps import PARTS, Steps, total

if TYPE_CHECKING:
    import pandas

SAME_WORK = 0.1
"""Largest relative change of runs that do the same work; a choice of this project."""
Verdict = Literal["faster", "slower", "unchanged", "appeared", "vanished", "fewer_launches", "more_launches"]


class GroupChange(NamedTuple):
    """Launches of one group, or of one name, in two runs. Times are sums of durations in nanoseconds."""

    group: str
    launches_before: int
    launches_after: int
    before: int
    after: int
    matched: int  # change of the launches that are in both runs
    appeared: int  # time of the launches that are only in the run after the change
    vanished: int  # time of the launches that are only in the run before it
    counterpart: str | None = None  # of a name in one run only: the name that the other run launches in its place

    @property
    def change(self) -> int:
        return self.after - self.before

    @property
    def verdict(self) -> Verdict:
        """What happened: the larger of both effects, other durations or another number of launches."""
        if not self.launches_before or not self.launches_after:
            return "vanished" if self.launches_before else "appeared"
        counts_differ = self.launches_before != self.launches_after
        if counts_differ and abs(self.appeared - self.vanished) > abs(self.matched):
            return "more_launches" if self.launches_after > self.launches_before else "fewer_launches"
        return "faster" if self.change < 0 else "slower" if self.change else "unchanged"


class RunTotals(NamedTuple):
    """Sums over the ranks of one run; nanoseconds."""

    ranks: int
    kernels: int  # launches, collectives included
    compute_kernels: int  # without collectives
    work: int  # durations of kernels, copies and memsets
    compute: int  # durations of kernels without collectives
    gemm: int  # durations of GEMMs and convolutions
    wall: int  # wall times; they are the sum of `parts`
    longest_wall: int  # of the rank with the longest one
    parts: dict[str, int]  # of the wall times, by PARTS
    steps: int  # complete ones
    step_mean: float | None  # without warm-up steps
    flops: float | None = None  # counted from the shapes of operators; None: unknown
    warm_up_steps: int = 0  # of all ranks, which the mean leaves out
    launches: Mapping[tuple[str, str], int] | None = None  # of computation, by name and grid; None: a grid is unknown


class RunComparison(NamedTuple):
    """Two runs of one program. The changes of `groups` sum to the change of the work, as those of `kernels` do."""

    before: RunTotals
    after: RunTotals
    groups: list[GroupChange]  # largest change first
    kernels: list[GroupChange]  # by name
    different_work: Finding | None

    @property
    def duration(self) -> tuple[str, float, float]:
        """What the runs are compared by, before and after, in nanoseconds: the mean step; the longest wall time of a
        rank if a run has no complete step."""
        if self.before.step_mean and self.after.step_mean:
            return "mean step", self.before.step_mean, self.after.step_mean
        return "wall time", float(self.before.longest_wall), float(self.after.longest_wall)

    @property
    def speedup(self) -> float | None:
        """The duration before / after."""
        _, before, after = self.duration
        return before / after if after else None


def compare(
    before: Sequence[tuple[Rank, Steps]],
    after: Sequence[tuple[Rank, Steps]],
    by: str,
    flops_before: float | None = None,
    flops_after: float | None = None,
) -> RunComparison:
    """Compare the ranks of two runs, in their order; `by` is the grouping of `groups`, a key of GROUPINGS."""
    matched, only_before, only_after = _match(_launches(before, by), _launches(after, by))
    totals = run_totals(before)._replace(flops=flops_before), run_totals(after)._replace(flops=flops_after)
    return RunComparison(
        *totals,
        groups=_changes("group", matched, only_before, only_after, {}),
        kernels=_changes("name", matched, only_before, only_after, _counterparts(only_before, only_after)),
        different_work=different_work(*totals),
    )


def different_work(before: RunTotals, after: RunTotals) -> Finding | None:
    """A finding if two runs do different work: if their FLOPs differ by more than SAME_WORK.

    Where one has no FLOPs, equal launches (names, grids and their numbers) are the same work. Other launches are not,
    if their number or GEMM times differ; with other numbers of GPUs also if the summed computation does: the same work,
    divided among more GPUs, takes the same summed time.
    """
    compared: list[tuple[str, float, float, Callable[[float], str]]] = [
        ("kernels (without collectives)", before.compute_kernels, after.compute_kernels, lambda n: f"{n:.0f}"),
        ("summed GEMM and convolution time", before.gemm, after.gemm, _time),
    ]
    if before.flops is not None and after.flops is not None:
        if not _differs(before.flops, after.flops):  # other kernels or formats for the same work
            return None
        compared.append(("FLOPs counted from shapes", before.flops, after.flops, units.si))
    elif before.launches is not None and before.launches == after.launches:
        return None
    if before.ranks != after.ranks:
        compared.append(("summed computation", before.compute, after.compute, _time))
    differing = [each for each in compared if _differs(each[1], each[2])]
    if not differing:
        return None
    listed = ", ".join(
        f"{quantity} {text(old)} → {text(new)} ({_ratio(old, new)})" for quantity, old, new, text in differing
    )
    gpus = f" on {before.ranks} → {after.ranks} GPUs" if before.ranks != after.ranks else ""
    steps = ""
    if before.steps != after.steps and before.steps and after.steps:
        steps = f" The runs have {before.steps} and {after.steps} complete steps: select the same number"
    text = (
        f"the runs do not do the same work{gpus}: {listed}. Do not read the difference of their times as a speed-up "
        "unless this is what the change is meant to do" + "." * bool(steps) + steps
    )
    return Finding("different_work", abs(after.gemm - before.gemm) / 1e9, text)


def _differs(old: float, new: float) -> bool:
    return abs(new - old) > SAME_WORK * old


def _ratio(old: float, new: float) -> str:
    if not old:
        return "none before"
    return f"{new / old:.1f} times" if new >= 2 * old else f"{(new - old) / old:+.0%}"


def _time(nanoseconds: float) -> str:
    return units.seconds(nanoseconds / 1e9)


def run_totals(run: Sequence[tuple[Rank, Steps]]) -> RunTotals:
    """The sums over the ranks of a run; FLOPs are unknown."""
    parts = dict.fromkeys(PARTS, 0)
    work = compute = gemm = longest = 0
    for rank, _ in run:
        window = total(rank)
        longest = max(longest, window.length)
        for part in PARTS:
            parts[part] += getattr(window, part)
        durations = rank.ends - rank.starts
        multiplies = rank.work.mapped("name", lambda name: category(name) in ("GEMM", "convolution"), False, bool)
        work += int(durations.sum())
        compute += int(durations[rank.is_kernel & ~rank.is_collective].sum())
        gemm += int(durations[rank.is_kernel & multiplies].sum())
    steady = [step.length for _, steps in run for step in steps.steady]
    launches: Counter[tuple[str, str]] = Counter()
    for rank, _ in run:
        names, grids = (rank.work.distinct(column) for column in ("name", "grid"))
        codes = np.stack([rank.work.array(column) for column in ("name", "grid")])
        known = rank.is_kernel & ~rank.is_collective & (codes >= 0).all(axis=0)
        pairs, counts = np.unique(codes[:, known], axis=1, return_counts=True)
        for (name, grid), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
            launches[names[name], grids[grid]] += count
    compute_kernels = sum(int(np.count_nonzero(rank.is_kernel & ~rank.is_collective)) for rank, _ in run)
    return RunTotals(
        ranks=len(run),
        kernels=sum(int(np.count_nonzero(rank.is_kernel)) for rank, _ in run),
        compute_kernels=compute_kernels,
        work=work,
        compute=compute,
        gemm=gemm,
        wall=sum(parts.values()),
        longest_wall=longest,
        parts=parts,
        steps=max((len(steps.complete) for _, steps in run), default=0),
        step_mean=sum(steady) / len(steady) if steady else None,
        warm_up_steps=sum(len(steps.complete) - len(steps.steady) for _, steps in run),
        launches=launches if launches.total() == compute_kernels else None,
    )


# --- Matching ---------------------------------------------------------------------------------------


def _launches(run: Sequence[tuple[Rank, Steps]], by: str) -> pandas.DataFrame:
    """The launches of all ranks in the order of their starts: place of the rank, step, name, group and duration."""
    import pandas

    tables = [pandas.DataFrame({"rank": [], "step": [], "name": [], "group": [], "time": np.empty(0, np.int64)})]
    for place, (rank, steps) in enumerate(run):
        numbers = np.full(len(rank.work), -1)
        for number, step in enumerate(steps.steps):
            numbers[(rank.starts >= step.start) & (rank.starts < step.end)] = number
        columns = {
            "rank": place,
            "step": numbers,
            "name": rank.work.cells("name"),
            "group": np.asarray(GROUPINGS[by](rank, steps), dtype=object),
            "time": rank.ends - rank.starts,
        }
        tables.append(pandas.DataFrame(columns))
    return pandas.concat([table for table in tables if len(table)] or tables, ignore_index=True)


def _match(
    before: pandas.DataFrame, after: pandas.DataFrame
) -> tuple[pandas.DataFrame, pandas.DataFrame, pandas.DataFrame]:
    """Pairs of launches (columns `_before` and `_after`), and the launches of each run without a partner.

    First within a step; the rest within a rank, because a launch near the end of a step may belong to the next one.
    """
    import pandas

    pairs = []
    for keys in (["rank", "step", "name"], ["rank", "name"]):
        sides = [side.assign(order=side.groupby(keys).cumcount(), row=side.index) for side in (before, after)]
        matches = sides[0].merge(sides[1], on=[*keys, "order"], suffixes=("_before", "_after"))
        before, after = before.drop(matches["row_before"]), after.drop(matches["row_after"])
        pairs.append(matches[["name", "group_before", "group_after", "time_before", "time_after"]])
    return pandas.concat(pairs, ignore_index=True), before, after


def _changes(
    key: Literal["group", "name"],
    matched: pandas.DataFrame,
    only_before: pandas.DataFrame,
    only_after: pandas.DataFrame,
    counterparts: dict[str, str],
) -> list[GroupChange]:
    """The changes by group or name, largest first. A launch that changes its group vanishes from one and appears."""
    import pandas

    old, new = (matched["name" if key == "name" else f"group_{side}"] for side in ("before", "after"))
    moved = (old != new).to_numpy()
    times_old, times_new = matched["time_before"], matched["time_after"]
    sides = [
        {"key": old, "launches_before": 1, "before": times_old, "vanished": times_old.where(moved, 0)},
        {"key": new, "launches_after": 1, "after": times_new, "appeared": times_new.where(moved, 0)},
    ]
    for side, single, rest in (("before", "vanished", only_before), ("after", "appeared", only_after)):
        sides.append({"key": rest[key], f"launches_{side}": 1, side: rest["time"], single: rest["time"]})
    columns = ["launches_before", "launches_after", "before", "after", "vanished", "appeared"]
    table = pandas.concat(
        [pandas.DataFrame(each).reindex(columns=["key", *columns], fill_value=0) for each in sides], ignore_index=True
    )
    sums = table.astype(dict.fromkeys(columns, np.int64)).groupby("key")[columns].sum()
    changes = []
    for group, values in zip(map(str, sums.index), sums.to_numpy().tolist(), strict=True):
        launches_before, launches_after, before, after, vanished, appeared = values
        paired = (after - appeared) - (before - vanished)
        other = None if launches_before and launches_after else counterparts.get(group)
        changes.append(
            GroupChange(group, launches_before, launches_after, before, after, paired, appeared, vanished, other)
        )
    return sorted(changes, key=lambda row: (-abs(row.change), row.group))


def _counterparts(only_before: pandas.DataFrame, only_after: pandas.DataFrame) -> dict[str, str]:
    """For names without a partner: the name of the same category that the other run launches in their place.

    Known where both runs have the same number of unmatched launches of a category on a rank: then the n-th of them
    belong together.
    """
    sides = []
    for side in (only_before, only_after):
        categories = {name: category(name) for name in side["name"].unique()}
        of_category: dict[tuple[int, str], list[str]] = {}
        for rank, name in zip(side["rank"], side["name"], strict=True):
            of_category.setdefault((rank, categories[name]), []).append(name)
        sides.append(of_category)
    votes: dict[str, Counter[str]] = {}
    for key in sides[0].keys() & sides[1].keys():
        if len(sides[0][key]) == len(sides[1][key]):
            for old, new in zip(sides[0][key], sides[1][key], strict=True):
                votes.setdefault(old, Counter())[new] += 1
                votes.setdefault(new, Counter())[old] += 1
    return {name: counter.most_common(1)[0][0] for name, counter in votes.items()}
