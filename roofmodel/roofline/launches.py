"""What counters tell of launches: the terms of their time, and the instruction roofline for kernels with few FLOPs.

    time = idle time before it + max(waiting, busy time of DRAM, of L2, of L1, of the pipes of the SMs)

The busy time of a unit is its utilization x the measured time, and at least its FLOPs or bytes at the device's ceiling.
The occupancy of a launch without counters follows from its registers, shared memory and block.

The instruction roofline shows warp instructions per second against memory transactions:

    intensity = warp instructions / transactions of a level (32 bytes each)
    attainable = min(SMs x schedulers x clock, transactions per second x intensity)

The global level has only the instructions that access global memory. Its intensity is 1 / sectors per request, which
shows the access pattern without any other counter: 1 / 4 if the threads of a warp read neighboring floats, 1 / 32 if
each reads another sector. (Ding and Williams, "An Instruction Roofline Model for GPUs", PMBS 2019.)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.devices.occupancy import WARP, block_limits, theoretical_occupancy
from roofmodel.profiles.kernel import STALLED_WARPS, Kernel
from roofmodel.roofline.categories import category
from roofmodel.roofline.points import LEVELS, flops_by_pipe, group_name

DRAM_REACHED = 0.92  # of the peak bandwidth, by copies (BabelStream: 3.08 of 3.35 TB/s on an H100 SXM)
IMPOSSIBLE = 1.2  # of the time: a unit that is busy longer did not do the counted work (Winograd, cached tensors)
_OTHER_PIPE = 0.5  # of its peak, by FLOPs: the SMs are busy with these
_SAME = 0.02  # of each other: two utilizations are of the same unit
_UTILIZATION = re.compile(r"(throughput|issue_active|cycles_active|inst_executed_pipe_\w+)\.(avg|sum)\.pct_of_peak")
_PIPE = re.compile(
    r"(sm__(?:inst_executed_pipe|pipe)_(\w+?)(?:_cycles_active)?)\.avg\.pct_of_peak_sustained_(?:active|elapsed)$"
)
PIPES = {
    "alu": "ALU", "fma": "FMA", "fmaheavy": "FMA heavy", "fp64": "FP64", "fp16": "FP16", "lsu": "LSU", "xu": "XU",
    "tex": "TEX", "adu": "ADU", "cbu": "CBU", "uniform": "uniform", "tma": "TMA", "shared": "tensor or FP64",
    "tensor": "tensor",
    "tensor_op_hmma": "tensor HMMA", "tensor_op_imma": "tensor IMMA", "tensor_op_dmma": "tensor FP64",
    "tensor_op_gmma": "tensor GMMA", "tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma": "tensor GMMA",
}  # fmt: skip
"""The pipes in names of counters -> their names in Nsight Compute. The shared one is for both FP64 and tensor cores."""
LIMIT, _THEORETICAL = "launch__occupancy_limit_", "sm__maximum_warps_per_active_cycle_pct"
_LIMITERS = {"registers": "registers", "shared_memory": "shared_mem", "block_size": "blocks", "barriers": "barriers"}


class Terms(NamedTuple):
    """What a launch consists of, in seconds; `gap` is the time before it in which the GPU is idle."""

    gap: float
    waiting: float
    busy: Mapping[str, float]  # by unit: dram, l2, l1, sm
    without: tuple[str, ...] = ()  # the reasons that were removed and changed busy times: "without divergence"

    @property
    def seconds(self) -> float:
        return self.gap + max(self.waiting, *self.busy.values(), 0.0)

    @property
    def busiest(self) -> str | None:
        """The unit with the longest busy time; None without any utilization."""
        return max(self.busy, key=lambda unit: self.busy[unit], default=None)

    def with_busy(self, **busy: float) -> Terms:
        """With other busy times; waiting falls as the longest of them does, because warps wait for units."""
        before, after = max(self.busy.values()), {**self.busy, **busy}
        return self._replace(busy=after, waiting=self.waiting * min(max(after.values()) / before, 1) if before else 0.0)


class Removed(NamedTuple):
    """A launch without a reason: the evidence for the reason, and the terms of the launch's time without it.

    A rule returns None where the reason does not apply.
    """

    terms: Terms
    evidence: str
    known: bool = True  # False: the file does not tell whether the launch would be that much faster
    step: Terms | None = None  # after the next feasible step, where `terms` are beyond reach; None: `terms` themselves


def _occupancy(kernel: Kernel, device: Device | None) -> dict[str, float]:
    """What Nsight Compute states of the occupancy, from a launch that another profiler recorded; empty if unknown."""
    capability = device and device.compute_capability
    if not capability or not kernel.block or kernel.registers is None or kernel.shared_bytes is None:
        return {}
    if category(kernel.name) == "communication":  # which waits for links, not for warps
        return {}
    threads = math.prod(kernel.block)
    limits = block_limits(capability, threads, kernel.registers, kernel.shared_bytes)
    if limits is None:
        return {}
    named = {LIMIT + _LIMITERS.get(name, name): float(blocks) for name, blocks in limits._asdict().items()}
    return {**named, _THEORETICAL: theoretical_occupancy(capability, threads, limits)}


class Launch:
    """The evidence of one launch: its counters, and the device that it ran on (None: unknown)."""

    def __init__(self, kernel: Kernel, device: Device | None, gap: float = 0.0) -> None:
        self.kernel, self.device, self.gap = kernel, device, gap
        self.counters = {**_occupancy(kernel, device), **kernel.counters}
        self.seconds = (kernel.seconds or 0.0) / kernel.invocations or 1.0  # of an unknown time, shares are known

    def get(self, *names: str) -> float | None:
        """The first of these counters that was collected."""
        return next((value for name in names if (value := self.counters.get(name)) is not None), None)

    def total(self, *names: str) -> float:
        """The sum of the counters that were collected."""
        return sum(self.counters.get(name) or 0.0 for name in names)

    @cached_property
    def has_utilization(self) -> bool:
        """Whether the file states how busy a unit was: other counters alone do not tell what limits a launch."""
        return any(_UTILIZATION.search(name) for name in self.kernel.counters)

    @property
    def multiprocessors(self) -> int | None:
        """The SMs; those of an unknown device follow from the share of the time in which one block keeps one busy."""
        known = self.get("launch__sm_count") or (self.device and self.device.multiprocessors)
        if not known and self.blocks == 1 and self.active:
            known = 1 / self.active
        return round(known) if known else None

    @property
    def blocks(self) -> int | None:
        return self.kernel.grid and math.prod(self.kernel.grid)

    @property
    def threads(self) -> int | None:
        """The threads of a block."""
        return self.kernel.block and math.prod(self.kernel.block)

    @property
    def used_lanes(self) -> float | None:
        """The threads of a block / those that its warps have."""
        return self.threads / (WARP * math.ceil(self.threads / WARP)) if self.threads else None

    @property
    def warps_per_block(self) -> int | None:
        return self.kernel.block and math.ceil(math.prod(self.kernel.block) / WARP)

    @property
    def limits(self) -> dict[str, float]:
        """What limits the thread blocks of an SM -> that number of blocks; empty if it was not collected."""
        limits = {name: self.get(LIMIT + metric) for name, metric in _LIMITERS.items()}
        slots = limits["block_size"] or math.inf  # a resource that is not used has the limit of the block slots
        return {name: blocks for name, blocks in limits.items() if blocks and (blocks < slots or name == "block_size")}

    @property
    def max_blocks(self) -> float | None:
        """The blocks of an SM that fill it with warps."""
        return self.get(LIMIT + "warps")

    @property
    def waves(self) -> float | None:
        """Thread blocks / those that run at once."""
        most = min([*self.limits.values(), *([self.max_blocks] if self.max_blocks else [])], default=None)
        if self.blocks is None or not self.multiprocessors or not most:
            return None
        return self.blocks / (self.multiprocessors * most)

    @property
    def theoretical_occupancy(self) -> float | None:
        return self.get(_THEORETICAL)

    @property
    def active(self) -> float | None:
        """The share of the time in which the mean SM has a thread block."""
        active, elapsed = self.get("sm__cycles_active.avg"), self.cycles
        return min(active / elapsed, 1.0) if active is not None and elapsed else None

    @property
    def cycles(self) -> float | None:
        """Cycles of the SM clock in one launch."""
        return self.get("sm__cycles_elapsed.max", "sm__cycles_elapsed.avg")

    @property
    def bytes(self) -> Mapping[str, float]:
        """Bytes of one launch by memory level, those that are known."""
        known = self.kernel.bytes._asdict().items()
        return {level: size / self.kernel.invocations for level, size in known if size is not None}

    def utilization(self, *names: str) -> float | None:
        """The share of its peak over the whole launch, of the first of these that was collected."""
        used = self.get(*(f"{name}.avg.pct_of_peak_sustained_elapsed" for name in names))
        if used is None and self.active is not None:
            part = self.get(*(f"{name}.avg.pct_of_peak_sustained_active" for name in names))
            used = None if part is None else part * self.active
        return used

    @cached_property
    def pipes(self) -> Mapping[str, float]:
        """The pipes of the SMs -> the share of the time in which they are busy, and that of the instruction issue."""
        found: dict[str, float] = {}
        for counter in self.kernel.counters:
            if (match := _PIPE.match(counter)) and (name := PIPES.get(match[2])):
                used = self.utilization(match[1])
                if used is not None:  # an instruction may keep its pipe busy for many cycles
                    found[name] = max(used, found.get(name, 0.0))
        if any(name.startswith("tensor ") for name in found):
            found.pop("tensor", None)
        if any((name.startswith("tensor") and name != PIPES["shared"]) or name == "FP64" for name in found):
            found.pop(PIPES["shared"], None)
        if found and (issue := self.utilization("smsp__issue_active")) is not None:
            found["instruction issue"] = issue
        return found

    @cached_property
    def is_lsu_bound(self) -> bool:
        """Whether the utilization of the SMs is that of the LSU pipe, which L1 serves: as high as that of L1."""
        sm, l1 = self.utilization("sm__throughput"), self.utilization("l1tex__throughput")
        if sm is None or l1 is None or abs(sm - l1) > _SAME * l1:
            return False
        others = max((used for name, used in self.pipes.items() if name != "LSU"), default=None)
        if others is None:  # without a breakdown, FLOPs show whether another pipe is busy
            return max(self.pipe_seconds.values(), default=0.0) < _OTHER_PIPE * self.seconds
        return others < (1 - _SAME) * sm

    def terms(self) -> Terms:
        """The measured time, and the busy times by the counters, by FLOPs and by bytes at the device's ceilings."""
        busy: dict[str, float] = {}

        def add(unit: str, seconds: float | None) -> None:
            if seconds is not None and seconds <= self.seconds * IMPOSSIBLE:
                busy[unit] = min(max(busy.get(unit, 0.0), seconds), self.seconds)

        def share(*names: str) -> float | None:
            used = self.utilization(*names)
            return None if used is None else used * self.seconds

        dram = share("gpu__dram_throughput", "dram__throughput")
        add("dram", None if dram is None else dram / DRAM_REACHED)
        add("l2", share("lts__throughput"))
        add("l1", share("l1tex__throughput"))
        if not self.is_lsu_bound:
            add("sm", share("sm__throughput"))
        add("sm", share("smsp__issue_active"))
        add("sm", max((used * self.seconds for name, used in self.pipes.items() if name != "LSU"), default=None))
        device = self.device
        bandwidths = {name: level.bandwidth for name, level in device.levels.items()} if device else {}
        for level, size in self.bytes.items():
            if bandwidth := bandwidths.get(level):
                add(level, size / bandwidth / (DRAM_REACHED if level == "dram" else 1))
        add("sm", max(self.pipe_seconds.values(), default=None))
        return Terms(self.gap, self.seconds, busy)

    @property
    def pipe_seconds(self) -> dict[str, float]:
        """FLOPs of one launch / peak, by pipe of the device."""
        device = self.device
        return {
            pipe: flops / self.kernel.invocations / device.pipes[pipe].peak
            for pipe, flops in flops_by_pipe(self.kernel.flops).items()
            if device and flops and pipe in device.pipes
        }


# --- What warps wait for -----------------------------------------------------------------------------


def stall(name: str) -> str:
    """The counter of the warps that wait for this, per issued instruction."""
    return STALLED_WARPS.format(name)


STALLS: Mapping[str, str] = {
    "long_scoreboard": "global or local memory", "short_scoreboard": "shared memory or special functions",
    "barrier": "a barrier", "wait": "a fixed latency of instructions", "lg_throttle": "the queue of global memory",
    "mio_throttle": "the queue of shared memory", "math_pipe_throttle": "a pipe", "drain": "stores at the end",
    "membar": "a memory barrier", "branch_resolving": "branches", "no_instruction": "instructions",
    "gmma": "tensor cores", "sleeping": "sleep", "imc_miss": "constants", "tex_throttle": "the texture queue",
    "dispatch_stall": "dispatch", "misc": "others",
}  # fmt: skip
"""What warps wait for."""
_HIDDEN_BY_WARPS = (
    "long_scoreboard", "short_scoreboard", "wait", "barrier", "branch_resolving", "no_instruction", "imc_miss",
)  # fmt: skip
"""Latencies. Full queues and busy pipes are no latencies: more warps wait for them as well."""


def stalls(launch: Launch) -> dict[str, float]:
    """What the warps of a launch wait for -> warps; empty if it was not collected."""
    return {name: value for name in STALLS if (value := launch.get(stall(name))) is not None}


def latency_share(launch: Launch) -> float | None:
    """The share of the stalls that more warps on an SM would hide; None if the stalls were not collected.

    Warps that are ready, but not selected, show that the SM has enough of them.
    """
    known = stalls(launch)
    total = sum(known.values()) + launch.total(stall("not_selected"))
    return sum(known.get(name, 0.0) for name in _HIDDEN_BY_WARPS) / total if total else None


# --- The instruction roofline -----------------------------------------------------------------------

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


def issue_peak(device: Device, clock: float | None = None) -> float | None:
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
        counters = kernel.counters
        instructions = counters.get("smsp__inst_executed.sum", counters.get("sm__inst_executed.sum"))
        if not instructions or not kernel.seconds:
            continue
        name = group_name(kernel, by)
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
    issue = issue_peak(device, clock)
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
