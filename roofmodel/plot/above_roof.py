"""Explanations for points above their ceiling, which no correct measurement exceeds.

An explanation is another assumption about the same counters: another clock, accumulator or device, sparse peaks, cached
data.
Each assumption is computed; a point lists only the assumptions that put it below its ceiling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from roofmodel.devices import library
from roofmodel.devices.ceilings import with_ceilings
from roofmodel.devices.device import Device
from roofmodel.errors import DeviceError, cut
from roofmodel.numbers import units
from roofmodel.profiles.kernel import Evidence, Kernel
from roofmodel.roofline.ceilings import CLOCK_TOLERANCE, Ceilings
from roofmodel.roofline.device import DeviceIdentification, contradictions
from roofmodel.roofline.points import Point, points

TOLERANCE = 1.02  # clocks and times are rounded by this much
MAX_SAVED = 4  # a direct 3 x 3 convolution over Winograd's F(4 x 4, 3 x 3): 36 multiplications instead of 144
MAX_NAMES = 3  # names of points in one warning
_UNEXPLAINED = "no clock, sparsity, cache or known device explains it; check that bytes and times are of the same run"
_COUNTED_BYTES = (
    "bytes are counted from shapes: an expanded (broadcast) tensor, or one that is still in the L2 cache, moves fewer"
)
MAX_NAME = 76  # characters of a name in a warning


def with_findings(
    kernel_points: Sequence[Point],
    groups: Sequence[Kernel],
    evidence: Sequence[Evidence],
    identification: DeviceIdentification,
    ceilings: Ceilings,
) -> list[Point]:
    """The points of the groups; those above their ceiling with possible explanations as `finding`."""
    if not any(_exceeds(point) for point in kernel_points):
        return [*kernel_points]
    unscaled = points(groups, with_ceilings(ceilings.stated_device, None, ceilings.measured))  # without another clock
    assumptions = [(text, points(groups, device)) for text, device in _assumptions(ceilings)]
    others = (
        []
        if identification.source in ("attributes", "file")
        else [*_possible_devices(ceilings.stated_device, evidence)]
    )
    other_devices = [
        (other.id, points(groups, with_ceilings(other, ceilings.clock, ceilings.measured))) for other in others
    ]

    def explanation(index: int, point: Point) -> str | None:
        if not _exceeds(point):
            return None
        # the same groups give the same points in the same order on any device
        if ceilings.clock and not ceilings.kernel_clock and _within(unscaled[index]) and point.fraction:
            least = units.si(ceilings.clock * point.fraction, "Hz", 3)
            return f"the SM clock was above {units.si(ceilings.clock, 'Hz', 4)} (at least {least})"
        reasons = [text for text, assumed in assumptions if _within(assumed[index])]
        reasons += _count_explanation(point, ceilings)
        if names := [name for name, assumed in other_devices if _within(assumed[index])]:
            reasons.append(f"it ran on another device, such as {', '.join(names)} (below the ceilings there)")
        counted_bytes = point.counted and point.bound != "compute"
        return "; or ".join(reasons) or (_COUNTED_BYTES if counted_bytes else _UNEXPLAINED)

    return [point._replace(finding=explanation(index, point)) for index, point in enumerate(kernel_points)]


def finding_warnings(kernel_points: Sequence[Point], ceilings: Ceilings) -> list[str]:
    """One warning for all points above the same ceiling with the same explanation.

    A pipe's ceiling is the same for all memory levels, so a point above it is named once.
    """
    together: dict[tuple[str, str], list[Point]] = {}
    pairs: set[tuple[str, str]] = set()
    for point in kernel_points:
        ceiling = point.pipe if point.bound == "compute" and point.pipe else point.level
        if point.finding is not None and (point.name, ceiling) not in pairs:
            pairs.add((point.name, ceiling))
            together.setdefault((ceiling, point.finding), []).append(point)
    # a kernel may well exceed what a benchmark reached, or have fewer DRAM bytes than its tensors
    verdict = "" if ceilings.measured or any(point.counted for point in kernel_points) else ", which is impossible"
    return [
        f"{_subject(ceiling, above)}{verdict}; explanation: {finding}" for (ceiling, finding), above in together.items()
    ]


def _exceeds(point: Point) -> bool:
    return point.fraction is not None and point.fraction > TOLERANCE


def _within(point: Point) -> bool:
    return point.fraction is not None and point.fraction <= TOLERANCE


def _assumptions(ceilings: Ceilings) -> Iterator[tuple[str, Device]]:
    """The device under other assumptions, each with the explanation that it stands for."""
    if ceilings.measured:
        yield (
            "a measured ceiling is what a benchmark reached, not a limit (below the datasheet's ceiling)",
            with_ceilings(ceilings.stated_device, ceilings.clock),
        )
    ran_at = ceilings.kernel_clock
    at_kernel_clock = with_ceilings(ceilings.stated_device, ran_at.mean) if ran_at else ceilings.stated_device
    clocks = _ceiling_clocks(ceilings.device, ceilings.clock)
    if ran_at and any(ran_at.mean > clock * (1 + CLOCK_TOLERANCE) for clock in clocks):
        yield (
            f"the kernels ran at {ran_at}, above the clock of the ceilings (below the ceilings at the kernels' clock)",
            at_kernel_clock,
        )
    if narrow := ceilings.device.fp16_accumulation("fp16"):
        assumed = narrow._replace(name="tensor_fp16")
        yield (
            f"it accumulates in fp16, whose ceiling is {units.si(narrow.peak, 'FLOP/s')}",
            replace(ceilings.device, pipes={**ceilings.device.pipes, "tensor_fp16": assumed}),
        )
    if ceilings.device.sparse_pipes:
        sparse = replace(ceilings.device, pipes={**ceilings.device.pipes, **ceilings.device.sparse_pipes})
        yield "its matrices are 2:4 sparse, and the ceiling is for dense ones (below the sparse ceiling)", sparse


def _ceiling_clocks(device: Device, scaled_to: float | None) -> list[float]:
    """The clocks of the ceilings."""
    return [scaled_to] if scaled_to else [pipe.clock for pipe in device.pipes.values() if pipe.clock]


def _possible_devices(device: Device, evidence: Sequence[Evidence]) -> Iterator[Device]:
    """The other known devices that the files do not contradict.

    Without evidence: devices of the same compute capability. Devices of other vendors are excluded: they have no
    compute capability that could differ.
    """
    usable_evidence = [e for e in evidence if e.compute_capability or e.name]
    usable_evidence = usable_evidence or [Evidence(compute_capability=device.compute_capability)]
    for name in library.names():
        try:
            other = Device.load(name)
        except DeviceError:  # a damaged file in the user's folder, which `roof hw list` reports
            continue
        other_vendor = None not in (other.vendor, device.vendor) and other.vendor != device.vendor
        if other.id != device.id and not other_vendor and not any(contradictions(other, e) for e in usable_evidence):
            yield other


def _count_explanation(point: Point, ceilings: Ceilings) -> list[str]:
    """The explanation that the kernel had fewer FLOPs or bytes than were counted: by its algorithm, or by a cache.

    Counters measure DRAM bytes with a cold L2 cache, while the time may be measured with a warm one.
    """
    if point.counted and point.bound == "compute" and (point.fraction or 0) <= MAX_SAVED:
        return [
            "if it runs a convolution, Winograd's algorithm or an FFT takes fewer multiplications than were counted"
        ]
    cache, bandwidth = ceilings.device.last_cache, ceilings.device.bandwidth
    if point.level != "dram" or point.bound == "compute" or cache is None or not cache.capacity:
        return []
    assert point.fraction is not None
    assert point.seconds is not None
    launch_bytes = point.fraction * point.seconds * bandwidth / point.invocations  # minimum time x bandwidth
    if not cache.holds(launch_bytes):
        return []
    name = f"the {'L2 cache' if cache.name == 'l2' else cache.label} of {units.binary(cache.capacity)}"
    if point.counted:
        return [
            f"its tensors of {units.si(launch_bytes, 'B')} per launch fit in {name}, so that not all of their bytes "
            "came from DRAM"
        ]
    if cache.name != "l2":
        return [f"counters state what left L2, and its {units.si(launch_bytes, 'B')} per launch fit in {name}"]
    return [
        f"its {units.si(launch_bytes, 'B')} per launch fit in {name}, which may "
        "have been cold when bytes were counted and warm when time was measured"
    ]


def _subject(ceiling: str, kernel_points: list[Point]) -> str:
    worst = sorted(kernel_points, key=lambda point: -(point.fraction or 0))
    if len(kernel_points) == 1:
        return f"{cut(worst[0].name, MAX_NAME)} reaches {worst[0].fraction:.0%} of its {ceiling} ceiling"
    names = ", ".join(f"{cut(point.name, MAX_NAME)} ({point.fraction:.0%})" for point in worst[:MAX_NAMES])
    rest = f" and {len(kernel_points) - MAX_NAMES} more" if len(kernel_points) > MAX_NAMES else ""
    return f"{names}{rest} exceed their {ceiling} ceiling"
