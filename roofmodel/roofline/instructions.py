"""The instruction roofline: warp instructions per second against memory transactions, for kernels with few FLOPs.

    intensity = warp instructions / transactions of a level (32 bytes each)
    attainable = min(SMs x schedulers x clock, transactions per second x intensity)

The global level has only the instructions that access global memory. Its intensity is 1 / sectors per request, which
shows the access pattern without any other counter: 1 / 4 if the threads of a warp read neighboring floats, 1 / 32 if
each reads another sector. (Ding and Williams, "An Instruction Roofline Model for GPUs", PMBS 2019.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.profiles.kernel import Kernel
from roofmodel.roofline.launch_terms import Launch
from roofmodel.roofline.points import GROUPINGS, LEVELS

TRANSACTION = 32  # bytes
WAVEFRONT = 128  # bytes of shared memory
SCHEDULERS = 4  # of an SM, each issues one warp instruction per cycle (compute capability 7.0 to 12.1; 6.0 has 2)
WALLS: Mapping[str, float] = {"one sector": 1.0, "neighboring floats": 1 / 4, "a sector each": 1 / 32}
"""Access patterns of the threads of a warp -> global memory instructions per sector."""
_REQUESTS = tuple(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st"))
_L1_SECTORS = tuple(
    f"l1tex__t_sectors_pipe_lsu_mem_{where}_op_{op}.sum"
    for where, ops in {"global": ("ld", "st", "red", "atom"), "local": ("ld", "st")}.items()
    for op in ops
)
_SECTORS = tuple(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st"))


class InstructionPoint(NamedTuple):
    """The warp instructions of a group of kernels at one level; `global` has those that access global memory."""

    name: str
    level: str
    instructions_per_second: float
    transactions: float
    intensity: float  # warp instructions per transaction
    attainable: float | None  # warp instructions per second; None without the bandwidth of the level
    bound: str | None  # "issue" or "memory"
    seconds: float
    limiting: bool  # whether the level is the memory level that is busy the longest

    @property
    def fraction(self) -> float | None:
        """Achieved / attainable."""
        return self.instructions_per_second / self.attainable if self.attainable else None


def peak(device: Device, clock: float | None = None) -> float | None:
    """Warp instructions per second at `clock` hertz (None: boost).

    None without the clock or the number of SMs, or below compute capability 7.0.
    """
    if float(device.compute_capability or 7) < 7:
        return None
    clock = clock or device.clocks.get("boost")
    return device.multiprocessors * SCHEDULERS * clock if device.multiprocessors and clock else None


def transactions_per_second(device: Device) -> dict[str, float]:
    """The ceilings of the memory levels whose bandwidth is known."""
    return {name: level.bandwidth / TRANSACTION for name, level in device.levels.items() if level.bandwidth}


def instruction_points(
    kernels: Iterable[Kernel], by: str, device: Device, clock: float | None = None
) -> list[InstructionPoint]:
    """The points of the kernels that have the counters, grouped as in a plot; the longest first.

    `device` has the ceilings at `clock` hertz (None: boost).
    """
    groups: dict[str, dict[str, float]] = {}
    longest: dict[str, Kernel] = {}
    for kernel in kernels:
        counters = kernel.counters or {}
        instructions = counters.get("smsp__inst_executed.sum", counters.get("sm__inst_executed.sum"))
        if not instructions or not kernel.seconds:
            continue
        name = GROUPINGS[by](kernel)
        sums = groups.setdefault(name, {})
        if kernel.seconds > (longest.setdefault(name, kernel).seconds or 0.0):
            longest[name] = kernel
        moved = {level: size / TRANSACTION for level in LEVELS if (size := getattr(kernel.bytes, level)) is not None}
        launches = kernel.invocations
        if "l1" not in moved and any(name in counters for name in _SECTORS):
            shared = counters.get("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", 0.0) * WAVEFRONT / TRANSACTION
            moved["l1"] = launches * (shared + sum(counters.get(name, 0.0) for name in _L1_SECTORS))
        moved["global"] = launches * sum(counters.get(name, 0.0) for name in _SECTORS)
        own = {"instructions": instructions * launches, "seconds": kernel.seconds} | moved
        own["requests"] = launches * sum(counters.get(name, 0.0) for name in _REQUESTS)
        for key, value in own.items():
            sums[key] = sums.get(key, 0.0) + value
    ranked = sorted(groups.items(), key=lambda item: -item[1]["seconds"])
    issue = peak(device, clock)
    return [p for name, sums in ranked for p in _points(name, sums, _limiting(longest[name], device), device, issue)]


def _limiting(kernel: Kernel, device: Device) -> str | None:
    """The memory level that is busy the longest."""
    busy = {level: seconds for level, seconds in Launch(kernel, device).terms().busy.items() if level in LEVELS}
    return max(busy, key=lambda level: busy[level], default=None)


def _points(
    name: str, sums: Mapping[str, float], limiting: str | None, device: Device, issue: float | None
) -> list[InstructionPoint]:
    ceilings = transactions_per_second(device)
    points = []
    for level in (*LEVELS, "global"):
        transactions = sums.get(level)
        instructions = sums["requests" if level == "global" else "instructions"]
        if not transactions or not instructions:
            continue
        intensity = instructions / transactions
        rate = ceilings.get("l1" if level == "global" else level)
        memory = None if rate is None else rate * intensity
        attainable = None if memory is None or issue is None else min(issue, memory)
        points.append(
            InstructionPoint(
                name=name,
                level=level,
                instructions_per_second=instructions / sums["seconds"],
                transactions=transactions,
                intensity=intensity,
                attainable=attainable,
                bound=None if memory is None or issue is None else "issue" if memory > issue else "memory",
                seconds=sums["seconds"],
                limiting=level == limiting,
            )
        )
    return points
