"""The reasons for the time of the kernels of a profile: launch by launch, or summed over groups of kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.numbers import units
from roofmodel.profiles.kernel import Kernel, KernelTable, Profile
from roofmodel.roofline.categories import category
from roofmodel.roofline.launches import LIMIT, Launch
from roofmodel.roofline.naming import short_names
from roofmodel.roofline.points import Reason, group_name
from roofmodel.roofline.reasons import BOUNDS, NOTHING, REASONS, rank, reasons

JUDGED = 2000  # launches: the longest ones of a profile
SHOWN = 8  # kernels in a list of reasons
LARGEST = 3  # kernels that such a list names even without a reason
NAME_WIDTH = 60  # characters
NVPROF_METRICS = (
    "nvprof --metrics dram_utilization,l2_utilization,issue_slot_utilization,gld_efficiency,gst_efficiency,"
    "shared_efficiency,warp_execution_efficiency,stall_memory_dependency"
)
WITH_COUNTERS = {rule.title for rule in REASONS if any(not need.startswith(LIMIT) for need in rule.needs)}


def reasons_by_group(profile: Profile, device: Device | None, by: str = "name") -> dict[str, list[Reason]]:
    """The reasons of the kernels grouped by a key of GROUPINGS, summed over their launches, the longest first."""
    profile = _counted(profile, device)
    idle = _idle(profile)
    kernels = profile.kernels.longest(len(profile.kernels) if idle else JUDGED)  # all gaps of a timeline count
    return summed_reasons(kernels, device, idle, by)


def reasons_by_launch(profile: Profile, device: Device | None) -> Callable[[Kernel], list[Reason]]:
    """A function that judges a kernel of a profile; none for launches that are not among the JUDGED longest ones."""
    counted = _counted(profile, device)
    idle = _idle(counted)
    shortest = 0.0 if len(profile.kernels) <= JUDGED else profile.kernels.longest(JUDGED)[-1].seconds or 0.0

    def judge(kernel: Kernel) -> list[Reason]:
        if (kernel.seconds or 0.0) < shortest:
            return []
        return reasons(counted.kernels[kernel.row], device, idle.get(kernel.row, 0.0))

    return judge


def _counted(profile: Profile, device: Device | None) -> Profile:
    """The profile with the work that the shapes of operators state, which only PyTorch records, or its rates."""
    if profile.tool == "ncu" and not any(profile.kernels.seconds()):
        from roofmodel.profiles.ncu.rates import with_rates

        return replace(profile, kernels=with_rates(profile.kernels, profile.evidence))
    if device is None or profile.tool != "torch":
        return profile
    from roofmodel.roofline.counted_kernels import with_counts

    return with_counts(profile, device)[0]


def not_judged(profile: Profile, device: Device | None) -> list[str]:
    """The titles of the reasons whose counters no kernel of a profile has; only NVIDIA GPUs have such counters."""
    amd = profile.tool == "rocprof" or any(each.amd for each in profile.evidence)
    if amd or (device is not None and device.vendor not in (None, "NVIDIA")):
        return []
    longest = profile.kernels.longest(JUDGED)
    known = {name for kernel in longest for name in Launch(kernel, device).counters}
    stated = {rule.reason for kernel in longest for rule in kernel.rules}  # by the tool itself
    return [rule.title for rule in REASONS if not known.issuperset(rule.needs) and rule.name not in stated]


def collecting(profile: Profile, device: Device | None) -> str:
    """What collects the missing counters. Nsight Compute supports Volta and later; for others there is nvprof."""
    if profile.tool == "nvprof" and float((device and device.compute_capability) or 0) < 7:
        return NVPROF_METRICS
    return "ncu --set full --page raw"


class Why(NamedTuple):
    """A kernel of a list of reasons: what it does by itself, without the idle time before it; costliest first."""

    name: str
    reasons: Sequence[Reason]
    none: str  # what is said without a reason
    lines: str = ""  # of source, that cost most

    @property
    def saves(self) -> float | None:
        """The time that removing the first reason saves, in seconds; None if it is unknown or nothing."""
        first = self.reasons[0] if self.reasons else None
        return None if first is None or first.evidence.startswith(NOTHING) else first.seconds or None


def listed_reasons(
    judged: Mapping[str, Sequence[Reason]], missing: Sequence[str], lines: Mapping[str, str] = MappingProxyType({})
) -> list[Why]:
    """The kernels of a list of reasons, of kernels by falling time; `missing` is that of `not_judged`.

    The LARGEST kernels are listed even without a reason, but for collectives, which wait for other ranks.
    """
    none = "no reason found" + " in its counters" * bool(missing)
    if set(missing) >= WITH_COUNTERS:
        none = "no reason found (the file does not state how busy its units were)"
    own = {name: [each for each in every if each.reason != "launch_gap"] for name, every in judged.items()}
    largest = [name for name in [*own][:LARGEST] if category(name) != "communication"]
    names = [name for name, every in own.items() if every or name in largest][:SHOWN]
    short = short_names(names, NAME_WIDTH)
    rows = [Why(shown, own[name], none, lines.get(name, "")) for name, shown in zip(names, short, strict=True)]
    return sorted(rows, key=lambda row: -(row.saves or 0.0))


def idle_before(judged: Mapping[str, Sequence[Reason]]) -> tuple[float, str, float] | None:
    """The idle time before all kernels, the kernel with the most of it, and that before this one; None without any."""
    idle = {name: each.seconds for name, every in judged.items() for each in every if each.reason == "launch_gap"}
    if not idle:
        return None
    most = max(idle, key=lambda name: idle[name])
    return sum(idle.values()), short_names([most], NAME_WIDTH)[0], idle[most]


def _idle(profile: Profile) -> dict[int, float]:
    if profile.tool == "ncu":  # which knows no start times
        return {}
    # rocprof runs kernels one by one while it counts; only the times of its kernel trace come with sizes of the grid
    one_by_one = profile.tool == "rocprof" and None in profile.kernels.cells("grid")
    return {} if one_by_one else gaps(profile.kernels, profile.copies)


def gaps(kernels: KernelTable, copies: KernelTable) -> dict[int, float]:
    """The idle time of its GPU before each kernel of a timeline, by row, and before each copy, by -1 - row.

    It is empty without start times.
    """
    last: dict[tuple[str, str | None, str | None], float] = {}
    idle = {}
    timed = [
        (
            start,
            seconds,
            (each.file, each.process, each.device),
            each.row if table is kernels else -1 - each.row,
        )
        for table in (kernels, copies)
        if table.has("start")
        for each in table
        if (start := each.start) is not None and (seconds := each.seconds) is not None
    ]
    for start, seconds, key, row in sorted(timed, key=itemgetter(0)):
        idle[row] = max(start - last.get(key, start), 0.0)
        last[key] = max(last.get(key, start), start + seconds)
    return idle


def summed_reasons(
    kernels: Sequence[Kernel], device: Device | None, idle: Mapping[int, float], by: str
) -> dict[str, list[Reason]]:
    """The reasons by group, summed over the launches; the evidence is of the launch that a reason costs most.

    Of launches with the same name, grid and block, the longest one is judged, and its costs are scaled to all of them.
    """
    alike: dict[tuple[object, ...], list[Kernel]] = {}
    for kernel in kernels:
        alike.setdefault((group_name(kernel, by), kernel.name, kernel.grid, kernel.block), []).append(kernel)
    groups: dict[str, dict[str, _Summed]] = {}
    totals: dict[str, tuple[int, float]] = {}  # of a group: launches and seconds
    leading: dict[str, str] = {}  # the first reason of the longest launch of a group, a bound if it is at a ceiling
    for (name, *_), launches in alike.items():
        longest = max(launches, key=lambda kernel: (kernel.seconds or 0.0) / kernel.invocations)
        own = groups.setdefault(str(name), {})
        number, seconds = sum(each.invocations for each in launches), sum(each.seconds or 0.0 for each in launches)
        before = totals.get(str(name), (0, 0.0))
        totals[str(name)] = before[0] + number, before[1] + seconds
        gap = sum(idle.get(kernel.row, 0.0) for kernel in launches) / len(launches)
        judged = reasons(longest, device, gap)
        if judged:
            leading.setdefault(str(name), judged[0].reason)
        for reason in judged:
            times = len(launches) if reason.reason == "launch_gap" else seconds / (longest.seconds or 1)
            scaled = reason._replace(
                seconds=reason.seconds * times, most_seconds=reason.most_seconds * times, affected_seconds=seconds
            )
            known = own.get(reason.reason)
            own[reason.reason] = known.plus(scaled, number) if known else _Summed(scaled, scaled, number)

    def order(name: str, reason: Reason) -> tuple[bool, tuple[int, float]]:
        at_ceiling = leading[name] in BOUNDS and reason.reason == leading[name]
        return not at_ceiling, rank(reason)

    return {
        name: sorted((each.reason(*totals[name]) for each in own.values()), key=partial(order, name))
        for name, own in groups.items()
    }


class _Summed(NamedTuple):
    """A reason of several kinds of launches of a group."""

    total: Reason
    costliest: Reason  # of one kind
    launches: int

    def plus(self, other: Reason, launches: int) -> _Summed:
        total = self.total._replace(
            seconds=self.total.seconds + other.seconds,
            most_seconds=self.total.most_seconds + other.most_seconds,
            affected_seconds=self.total.affected_seconds + other.affected_seconds,
        )
        return _Summed(total, min(self.costliest, other, key=rank), self.launches + launches)

    def reason(self, launches: int, seconds: float) -> Reason:
        """The sum, with the evidence of the costliest kind, and the part of the group that has it."""
        evidence, part = self.costliest.evidence, self.total.affected_seconds
        if self.launches < launches and seconds:
            evidence += (
                f"; {self.launches} of {units.count(launches, 'launch', 'es')}, {part / seconds:.0%} of the time"
            )
        return self.total._replace(evidence=evidence)
