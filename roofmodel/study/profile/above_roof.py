"""Points above their roof: impossible as it stands, so each with the reasons that would explain it.

A reason is another reading of the same counters, under which the points stand below their roof: another clock,
the sparse pipes, another device. Each is tried; what it is said of, it does explain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from roofmodel import units
from roofmodel.devices import library
from roofmodel.devices.ceilings import with_ceilings
from roofmodel.devices.device import Device
from roofmodel.errors import DeviceError
from roofmodel.profiles.kernel import Evidence
from roofmodel.study.profile.ceilings import NOTABLE, Conditions
from roofmodel.study.profile.device import Identified, contradictions
from roofmodel.study.profile.points import Group, Point, points

SLACK = 1.02  # clocks and times are rounded by as much
NAMED = 3  # points of one reason that are named
_UNEXPLAINED = "no clock, sparsity, cache or known device explains it; are its bytes and its time of one run?"


def explained(
    found: Sequence[Point], groups: list[Group], evidence: Sequence[Evidence], identified: Identified, drawn: Conditions
) -> list[Point]:
    """The points of the groups, those above their roof with the reasons as their `finding`."""
    if not any(_above(point) for point in found):
        return [*found]
    stated = points(groups, with_ceilings(drawn.stated, None, drawn.measured))  # without another clock
    readings = [(why, points(groups, device)) for why, device in _readings(drawn)]
    others = [] if identified.how == "attributes" else [*_candidates(drawn.stated, evidence)]
    elsewhere = [(other.id, points(groups, with_ceilings(other, drawn.clock, drawn.measured))) for other in others]

    def why(index: int, point: Point) -> str | None:
        if not _above(point):
            return None
        # the same groups give the same points in the same order, whatever the device
        if drawn.clock and not drawn.counters and _below(stated[index]) and point.fraction:
            least = units.si(drawn.clock * point.fraction, "Hz", 3)
            return f"it ran at a clock above {units.si(drawn.clock, 'Hz', 4)} (at least {least})"
        reasons = [text for text, there in readings if _below(there[index])]
        reasons += _cached(point, drawn)
        if names := [name for name, there in elsewhere if _below(there[index])]:
            reasons.append(f"it ran on another device, such as {', '.join(names)}, under whose roof it stands below")
        return "; or ".join(reasons) or _UNEXPLAINED

    return [point._replace(finding=why(index, point)) for index, point in enumerate(found)]


def lines(found: Sequence[Point], drawn: Conditions) -> list[str]:
    """A line for each set of points that stand above their roof for the same reasons, the worst first.

    A pipe's roof is one whatever the level: a point above it is named once.
    """
    together: dict[tuple[str, str], list[Point]] = {}
    said: set[tuple[str, str]] = set()
    for point in found:
        roof = point.pipe if point.bound == "compute" and point.pipe else point.level
        if point.finding is not None and (point.name, roof) not in said:
            said.add((point.name, roof))
            together.setdefault((roof, point.finding), []).append(point)
    # what a benchmark reached, another kernel may well exceed
    verdict = "" if drawn.measured else ", which no kernel can"
    return [f"{_which(roof, those)}{verdict}: {why}" for (roof, why), those in together.items()]


def _above(point: Point) -> bool:
    return point.fraction is not None and point.fraction > SLACK


def _below(point: Point) -> bool:
    return point.fraction is not None and point.fraction <= SLACK


def _readings(drawn: Conditions) -> Iterator[tuple[str, Device]]:
    """The device under other conditions that may have been meant, each with the reason in words."""
    if drawn.measured:
        yield (
            "a benchmark's best is no limit, and under the datasheet's roof it stands below",
            with_ceilings(drawn.stated, drawn.clock),
        )
    ran = drawn.counters
    at_its_clock = with_ceilings(drawn.stated, ran.mean) if ran else drawn.stated
    if ran and any(ran.mean > clock * (1 + NOTABLE) for clock in _clocks(drawn.device, drawn.clock)):
        yield (
            f"the kernels ran at {ran}, above the clock of the roofs, and under the roof at theirs it stands below",
            at_its_clock,
        )
    if drawn.device.sparse_pipes:
        sparse = replace(drawn.device, pipes={**drawn.device.pipes, **drawn.device.sparse_pipes})
        yield "the roof is that of dense matrices, and under that of 2:4 sparse ones it stands below", sparse


def _clocks(device: Device, scaled_to: float | None) -> list[float]:
    """The clocks that the roofs stand at."""
    return [scaled_to] if scaled_to else [pipe.clock for pipe in device.pipes.values() if pipe.clock]


def _candidates(device: Device, evidence: Sequence[Evidence]) -> Iterator[Device]:
    """The other known devices that the files may be of: what they say decides, else its own generation; of no
    other vendor, whose devices have no compute capability that could differ.
    """
    seen = [e for e in evidence if e.compute_capability or e.name]
    seen = seen or [Evidence(compute_capability=device.compute_capability)]
    for name in library.names():
        try:
            other = library.load(name)
        except DeviceError:  # one damaged file of the user's own, which `roof hw list` reports
            continue
        strange = None not in (other.vendor, device.vendor) and other.vendor != device.vendor
        if other.id != device.id and not strange and not any(contradictions(other, e) for e in seen):
            yield other


def _cached(point: Point, drawn: Conditions) -> list[str]:
    """Bytes at DRAM's roof that fit in the L2: counted in a run that missed it, timed in one that hit."""
    l2, bandwidth = drawn.device.levels.get("l2"), drawn.device.bandwidth
    if point.level != "dram" or point.bound == "compute" or l2 is None or not l2.capacity:
        return []
    assert point.fraction is not None
    assert point.seconds is not None
    each = point.fraction * point.seconds * bandwidth / point.invocations  # least time x bandwidth: its bytes
    if each > l2.capacity:
        return []
    return [
        f"its {units.si(each, 'B')} a launch fit in the L2 of {units.binary(l2.capacity)}, which may have been cold "
        "when the bytes were counted and warm when the time was taken"
    ]


def _which(roof: str, found: list[Point]) -> str:
    worst = sorted(found, key=lambda point: -(point.fraction or 0))
    if len(found) == 1:
        return f"{worst[0].name} stands at {worst[0].fraction:.0%} of its {roof} roof"
    names = ", ".join(f"{point.name} ({point.fraction:.0%})" for point in worst[:NAMED])
    rest = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"{names}{rest} stand above their {roof} roof"
