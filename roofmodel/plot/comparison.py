"""Kernels before and after a change: faster, slower, new or gone, and what changed with their time.

Kernels are matched by name. A name that only one side has is matched with the name of the same category that the other
side launches in its place: between the same neighbors in the order of first launches, and as often. Where several
kernels of an operator of a framework are other ones, as after fp32 became AMP, all kernels of the operator are one
change; in a file without operators, those of a category of matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple

from roofmodel.errors import Option, ProfileError, WorkloadError
from roofmodel.numbers import units
from roofmodel.plot.measured import MeasuredKernels, total_seconds
from roofmodel.profiles.kernel import Kernel
from roofmodel.roofline.categories import category
from roofmodel.roofline.judged_kernels import reasons_by_group
from roofmodel.roofline.points import Reason, flops_by_pipe
from roofmodel.roofline.reasons import TITLES

Verdict = Literal["faster", "slower", "unchanged", "new", "gone", "unknown"]
UNCHANGED = 0.02  # of the time
EXPLAINS = 0.2  # of the change: the least that a reason contributes to it
SHARE_CHANGED = 0.1  # of the change: the least of it that a reason costs besides its old share of the time
NAMED = 2  # causes of a row


class MeasuredGroup(NamedTuple):
    """The launches of one name in one of the two profiles."""

    summed: Kernel
    longest: Kernel
    reasons: Sequence[Reason]


class KernelChange(NamedTuple):
    """One kernel before and after; None where it was not launched."""

    name: str
    before: MeasuredGroup | None
    after: MeasuredGroup | None

    @property
    def before_name(self) -> str | None:
        """The name before the change, if it was another one."""
        return self.before.summed.name if self.before and self.before.summed.name != self.name else None

    @property
    def before_seconds(self) -> float | None:
        return self.before and self.before.summed.seconds

    @property
    def after_seconds(self) -> float | None:
        return self.after and self.after.summed.seconds

    @property
    def change_seconds(self) -> float | None:
        """after - before; None if the time of a launch is unknown."""
        before, after = (0.0 if side is None else side.summed.seconds for side in (self.before, self.after))
        return None if before is None or after is None else after - before

    @property
    def relative_change(self) -> float | None:
        """after / before - 1."""
        if self.change_seconds is None or not self.before_seconds or self.after is None:
            return None
        return self.change_seconds / self.before_seconds

    @property
    def verdict(self) -> Verdict:
        if self.before is None or self.after is None:
            return "gone" if self.after is None else "new"
        change = self.change_seconds
        if change is None:
            return "unknown"
        if abs(change) <= UNCHANGED * (self.before_seconds or 0.0):
            return "unchanged"
        return "faster" if change < 0 else "slower"

    @property
    def is_operator(self) -> bool:
        """Whether it is a change of all kernels of an operator, of which the sides have different ones."""
        return self.before is not None and self.before.longest.name != self.before.summed.name

    @property
    def causes(self) -> list[str]:
        """What changed with the time: the numbers of launches, reasons that came or went, then counters."""
        change = self.change_seconds
        if self.verdict not in ("faster", "slower") or self.before is None or self.after is None or change is None:
            return []
        sides = self.before, self.after
        if self.is_operator:
            return [f"{self.before.longest.name} → {self.after.longest.name}", *_changed_counters(*sides, change > 0)]
        return [*_changed_reasons(*sides, change), *_changed_counters(*sides, change > 0)][:NAMED]


def compare_kernels(before: MeasuredKernels, after: MeasuredKernels) -> list[KernelChange]:
    """The kernels of two profiles of one device each, the largest change first.

    Raises WorkloadError for a profile of several devices, and ProfileError for one without kernels.
    """
    if max(len(before.runs), len(after.runs)) > 1:
        raise WorkloadError(
            Option("before"), " compares the kernels of one device; give the files of one device at a time"
        )
    for side in (before, after):
        if not len(side.kernels):
            why = "; ".join(str(text) for run in side.runs for text in run.profile.warnings)
            raise ProfileError(f"{', '.join(side.names.values())}: no kernels to compare{': ' * bool(why)}{why}")
    old, new = _groups(before), _groups(after)
    if operators := _operators_to_merge(before, after):
        old, new = _groups(before, operators), _groups(after, operators)
    changes = [KernelChange(name, old.get(old_name), new[name]) for name, old_name in _names(old, new)]
    matched = {change.before.summed.name for change in changes if change.before}
    changes += [KernelChange(name, group, None) for name, group in old.items() if name not in matched]
    return sorted(changes, key=lambda change: -abs(change.change_seconds or 0.0))


def _names(old: Mapping[str, MeasuredGroup], new: Mapping[str, MeasuredGroup]) -> Iterator[tuple[str, str]]:
    """Each new name with the old one that it is matched with; itself if it is new."""

    def is_rename(before: str, after: str) -> bool:
        launches = (old[before].summed.invocations, new[after].summed.invocations)
        return category(before) == category(after) and launches[0] == launches[1]

    before, after = list(old), list(new)
    common = set(before) & set(after)
    for kind, i, end, j, stop in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        others = [name for name in before[i:end] if name not in common]
        names = [name for name in after[j:stop] if name not in common]
        renamed = dict(zip(names, others, strict=True)) if kind == "replace" and len(others) == len(names) else {}
        for name in after[j:stop]:
            other = renamed.get(name, name)
            yield name, other if other == name or is_rename(other, name) else name


def _operators_to_merge(before: MeasuredKernels, after: MeasuredKernels) -> frozenset[str]:
    """The operators with kernels of their own on each side, and with several of them on one side."""
    names = [{kernel.name for kernel in side.kernels} for side in (before, after)]
    own: list[dict[str, set[str]]] = []
    for side, others in ((before, names[1]), (after, names[0])):
        own.append({})
        for kernel in side.kernels:
            if kernel.name not in others and (operator := _operator(kernel)):
                own[-1].setdefault(operator, set()).add(kernel.name)
    both = own[0].keys() & own[1].keys()
    return frozenset(name for name in both if max(len(own[0][name]), len(own[1][name])) > 1)


def _operator(kernel: Kernel) -> str:
    """The operator that launched a kernel; without one, the category of a matrix product, else an empty text."""
    if kernel.call:
        return kernel.call.name
    return of_name if (of_name := category(kernel.name)) in ("GEMM", "convolution", "attention") else ""


def _groups(measured: MeasuredKernels, operators: frozenset[str] = frozenset()) -> dict[str, MeasuredGroup]:
    """The launches by name, and those of `operators` by operator, in the order of the first launch of each."""
    ((profile, identification),) = measured.runs
    longest: dict[str, Kernel] = {}
    labels = []
    for kernel in profile.kernels:
        operator = _operator(kernel) if operators else ""
        label = operator if operator in operators else kernel.name
        labels.append(label)
        known = longest.setdefault(label, kernel)
        if _seconds(kernel) > _seconds(known):
            longest[label] = kernel
    judged = reasons_by_group(profile, identification.device if identification else None)
    sums = profile.kernels.grouped(labels)
    sums.set("name", list(dict.fromkeys(labels)))
    return {
        label: MeasuredGroup(total, longest[label], judged.get(longest[label].name, ()))
        for label, total in zip(longest, sums, strict=True)
    }


def _seconds(kernel: Kernel) -> float:
    return (kernel.seconds or 0.0) / kernel.invocations


def _changed_reasons(before: MeasuredGroup, after: MeasuredGroup, change: float) -> Iterator[str]:
    """The reasons that came, went, or cost another share of the time as it changed; the largest change first."""
    old, new = ({reason.reason: reason.seconds for reason in side.reasons} for side in (before, after))
    ratio = 1 + change / before.summed.seconds if before.summed.seconds else 1.0
    changes = {name: new.get(name, 0.0) - old.get(name, 0.0) for name in (*old, *new)}
    for name in sorted(changes, key=lambda name: -abs(changes[name])):
        besides_share = new.get(name, 0.0) - old.get(name, 0.0) * ratio
        scales = old.get(name) and new.get(name) and besides_share / change < SHARE_CHANGED
        if changes[name] / change >= EXPLAINS and not scales:
            yield f"{TITLES[name]} {_time(old.get(name))} → {_time(new.get(name))}"


def _time(seconds: float | None) -> str:
    return units.seconds(seconds) if seconds else "0"


def _flops(side: MeasuredGroup) -> float | None:
    flops = flops_by_pipe(side.summed.flops)
    return sum(flops.values()) if flops else None


def _blocks(side: MeasuredGroup) -> float | None:
    grid = side.longest.grid
    return None if grid is None else float(grid[0] * grid[1] * grid[2])


# What is compared: its name, its value, and whether more of it takes more (1), less (-1) or either time (0).
_COUNTERS: tuple[tuple[str, Callable[[MeasuredGroup], float | None], int], ...] = (
    ("launches", lambda side: side.summed.invocations, 1),
    ("FLOPs", _flops, 1),
    ("DRAM bytes", lambda side: side.summed.bytes.dram, 1),
    ("L2 bytes", lambda side: side.summed.bytes.l2, 1),
    ("L1 bytes", lambda side: side.summed.bytes.l1, 1),
    ("instructions of a launch", lambda side: side.longest.counters.get("smsp__inst_executed.sum"), 1),
    ("SM clock", lambda side: side.longest.clock, -1),
    ("occupancy", lambda side: side.summed.occupancy, -1),
    ("registers per thread", lambda side: side.summed.registers, 1),
    ("thread blocks of a launch", _blocks, 0),
)  # fmt: skip


def _changed_counters(before: MeasuredGroup, after: MeasuredGroup, slower: bool) -> Iterator[str]:
    """The counters that changed in the direction of the time, the largest ratio first."""
    changed = []
    for name, value, sign in _COUNTERS:
        old, new = value(before), value(after)
        if not old or not new or abs(new / old - 1) < UNCHANGED:
            continue
        if sign == 0 or (new > old) == (slower == (sign > 0)):
            ratio = f"({new / old - 1:+.0%})" if new < 10 * old else f"({new / old:.0f} times)"
            changed.append((max(new / old, old / new), f"{name} {units.si(old)} → {units.si(new)} {ratio}"))
    yield from (text for _, text in sorted(changed, key=lambda each: -each[0]))


def different_devices(before: MeasuredKernels, after: MeasuredKernels) -> list[str]:
    """A warning if both profiles identify their devices, and no device is in both; an assumed one is not identified."""
    old, new = (
        {
            run.identification.device.id: run.identification.device.name
            for run in side.runs
            if run.identification and run.identification.source != "assumed"
        }
        for side in (before, after)
    )
    if not old or not new or old.keys() & new.keys():
        return []
    names = (", ".join(side.values()) for side in (old, new))
    return ["the kernels ran on {} before and on {} after: the changes include that of the device".format(*names)]


_ONE_SIDED = {
    "new": ("before_launches", "before_seconds", "relative_change"),
    "gone": ("after_launches", "after_seconds", "relative_change"),
}


def rows_of_changes(
    rows: Sequence[Mapping[str, Any]], before: MeasuredKernels, after: MeasuredKernels
) -> list[Mapping[str, Any]]:
    """The rows of `--fail-if`: a new or gone kernel has no values of the other side; the last one is of all kernels."""
    judged = [{k: v for k, v in row.items() if k not in _ONE_SIDED.get(row["verdict"], ())} for row in rows]
    old, new = total_seconds(before), total_seconds(after)
    change = None if old is None or new is None else new - old
    relative = None if change is None or not old else change / old
    return [*judged, {"name": "all", "change_seconds": change, "relative_change": relative}]
