"""Why a kernel takes the time that it takes: reasons with evidence, and the time that each of them costs.

A launch takes the longest of what its warps wait and of what each unit is busy:

    time = max(waiting, busy time of DRAM, of L2, of L1, of the pipes of the SMs)

The busy time of a unit is its utilization x the measured time; `waiting` is the measured time at first. A reason says
how these terms would be without it. The reasons are removed one after the other, in the order of REASONS, and each one
costs the difference of the time before and after; so their costs never add up to more than what separates the launch
from its busiest unit. A cost is an estimate of what the removal saves: it assumes that waiting falls in proportion,
and that nothing new becomes the limit.

To add a reason, add a row to REASONS: its name, the counters that it needs, and the function that removes it. A counter
that is not read yet also needs its name in `profiles/ncu/metric_names.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.devices.occupancy import WARP
from roofmodel.numbers import units
from roofmodel.profiles.kernel import Kernel
from roofmodel.roofline.categories import category
from roofmodel.roofline.formats import format_in_name
from roofmodel.roofline.launches import DRAM_REACHED, IMPOSSIBLE, LIMIT, Launch, Terms
from roofmodel.roofline.points import Reason, flops_by_pipe

SHORTEST = 1e-6  # seconds of an empty kernel, about
AT_CEILING = 0.85  # of its peak: nothing to win at the busiest unit, unless another reason costs the rest
BUSY = 0.6  # of the time: the busiest unit limits the launch (the threshold of Nsight Compute)
FEW_FLOPS = 0.4  # of the peak: the pipes are busy with something else; sums without FMA reach half of it
RELEVANT = 0.02  # of the time: smaller costs are no reasons
CLOCK_TOLERANCE = 0.05
SECTOR = 32  # bytes
MATMULS = ("GEMM", "convolution", "attention")
NOTHING = "nothing here to win: "
BUSY_SMS = "SMs busy "  # with unknown work


Removed = tuple[Terms, str] | None
"""The terms without a reason, and its evidence; the same terms if its cost is unknown; None if it does not apply."""


def _with_less_waiting(launch: Launch, terms: Terms, share: float, evidence: str, waits: bool | None = None) -> Removed:
    """Waiting takes a share of its time.

    Without counters, a launch is known to wait if its work is known, or as `waits` says. Otherwise the reason is stated
    without its cost, if it could keep the launch from its ceiling.
    """
    if launch.has_counters or (bool(terms.busy) if waits is None else waits):
        return terms._replace(waiting=terms.waiting * share), evidence
    return (terms, evidence) if share < AT_CEILING else None


# --- Before the launch, and its clock -----------------------------------------------------------------


def _launch_gap(launch: Launch, terms: Terms) -> Removed:
    text = f"idle for {units.seconds(terms.gap)} before each launch, on average"
    return (terms._replace(gap=0.0), text) if terms.gap else None


def _low_clock(launch: Launch, terms: Terms) -> Removed:
    """Waiting and the units of the SM's clock would take clock / boost clock of their time."""
    clock, device = launch.kernel.clock, launch.device
    if not clock or device is None:
        return None
    pipe = max(launch.pipe_seconds, key=lambda name: launch.pipe_seconds[name], default="")
    boost = (device.pipes[pipe].clock if pipe else None) or device.clocks.get("boost")
    if not boost or clock > boost * (1 - CLOCK_TOLERANCE):
        return None
    busy = {unit: seconds * (1 if unit == "dram" else clock / boost) for unit, seconds in terms.busy.items()}
    text = f"SM clock {units.si(clock, 'Hz')} of {units.si(boost, 'Hz')}: locked (ncu: --clock-control none), or power"
    return terms._replace(waiting=terms.waiting * clock / boost, busy=busy), text


# --- Thread blocks and warps --------------------------------------------------------------------------


def _blocks(launch: Launch) -> str:
    return units.count(launch.blocks or 0, "thread block")


def _few_blocks(launch: Launch, terms: Terms) -> Removed:
    """With a full wave, waiting takes blocks / (blocks that fit at once) of its time."""
    sms, blocks = launch.multiprocessors, launch.blocks
    if blocks is None or not sms:
        return None
    waves = launch.waves or (blocks / sms if blocks < sms else None)
    if waves is None or waves >= 1:
        return None
    where = f"on {sms} SMs" if blocks < sms or launch.waves is None else f"of {round(blocks / waves)} that fit at once"
    full = f": {units.significant(waves)} waves" if launch.waves else ""
    return _with_less_waiting(launch, terms, waves, f"{_blocks(launch)} {where}{full}")


def _tail(launch: Launch, terms: Terms) -> Removed:
    """Without the last, partial wave, waiting takes waves / ceil(waves); not less than the mean residency.

    Without counters that is only known of one or two blocks per SM: of more, those of the last wave run faster.
    """
    waves = launch.waves
    if waves is None or waves <= 1:
        return None
    share = max(waves / math.ceil(waves - 1e-9), _residency(launch) or 0)
    if share >= 1:
        return None
    at_once = round((launch.blocks or 0) / waves)
    last = (launch.blocks or 0) - at_once * (math.ceil(waves - 1e-9) - 1)
    text = f"{_blocks(launch)}, {at_once} at once: {math.ceil(waves - 1e-9)} waves, the last one of {last}"
    few = at_once <= 2 * (launch.multiprocessors or 0)
    waits = few and (bool(terms.busy) or category(launch.kernel.name) in MATMULS)
    return _with_less_waiting(launch, terms, share, text, waits=waits)


def _residency(launch: Launch) -> float | None:
    """Mean resident warps / those of the theoretical occupancy, over the whole launch."""
    achieved, most, active = launch.kernel.occupancy, launch.theoretical_occupancy, launch.active
    return None if achieved is None or not most or active is None else min(achieved * active / most, 1.0)


def _achieved_occupancy(launch: Launch, terms: Terms) -> Removed:
    """With all blocks as long as the mean one and no start and end, waiting takes residency / that of the grid."""
    residency, waves = _residency(launch), launch.waves
    if residency is None or waves is None:
        return None
    share = residency / (waves / math.ceil(waves))
    if share >= 1:
        return None
    text = (
        f"achieved occupancy {launch.kernel.occupancy:.1%} of {launch.theoretical_occupancy:.1%}, SMs active "
        f"{launch.active:.0%} of the time"
    )
    return terms._replace(waiting=terms.waiting * share), text


def _limited_by(limiter: str) -> Callable[[Launch, Terms], Removed]:
    def remove(launch: Launch, terms: Terms) -> Removed:
        """Up to the next limit, waiting falls in proportion to the blocks of an SM.

        Kernels of matrix products load the next tiles while they compute, so that few warps suffice: only counters tell
        whether these wait. Blocks of which each has an SM of its own do not share its resources.
        """
        limits, most = launch.limits, launch.max_blocks
        if launch.blocks and launch.multiprocessors and launch.blocks <= launch.multiprocessors:
            return None
        own = min(limits.values(), default=None)
        first = [name for name, blocks in limits.items() if blocks == own]
        if own is None or most is None or own >= most or first[0] != limiter or launch.waves is None:
            return None
        higher = min([blocks for blocks in limits.values() if blocks > own] + [most])
        if not launch.has_counters and category(launch.kernel.name) in MATMULS:
            return None
        known, shared, occupancy = launch.kernel.registers, launch.kernel.shared_bytes, launch.theoretical_occupancy
        shown = f"{occupancy:.1%} theoretical occupancy: " if occupancy else ""
        details = {
            "registers": f", {known} registers per thread" if known else "",
            "shared_memory": f", {units.binary(shared)} of shared memory per block" if shared else "",
            "block_size": f", the most that an SM takes, of {units.count(launch.warps_per_block or 0, 'warp')} each",
        }
        also = "".join(f", {name.replace('_', ' ')} allow no more" for name in first[1:])
        evidence = f"{shown}{units.count(round(own), 'block')} per SM{details.get(limiter, '')}{also}"
        return _with_less_waiting(launch, terms, own / higher, evidence)

    return remove


# --- What the SMs do ----------------------------------------------------------------------------------


def _no_tensor_cores(launch: Launch, terms: Terms) -> Removed:
    """On tensor cores: the same FLOPs at their peak, and the DRAM traffic. GeForce's in tf32 are as fast as fp32."""
    device, flops = launch.device, flops_by_pipe(launch.kernel.flops)
    vector = {pipe: flops.get(pipe) or 0.0 for pipe in ("fp32", "fp16", "fp64")}
    pipe = max(vector, key=lambda name: vector[name])
    tensor = {"fp32": "tensor_tf32", "fp16": "tensor_fp16", "fp64": "tensor_fp64"}[pipe]
    if category(launch.kernel.name) not in MATMULS or device is None or not {pipe, tensor} <= device.pipes.keys():
        return None
    if device.vendor not in (None, "NVIDIA"):  # AMD's counters of fp32 include its matrix cores
        return None
    on_tensor_cores = sum(value for name, value in flops.items() if name.startswith("tensor"))
    work = vector[pipe] / launch.kernel.invocations
    seconds, on_cuda_cores = work / device.pipes[tensor].peak, work / device.pipes[pipe].peak
    share = on_cuda_cores / launch.seconds
    if on_tensor_cores or not FEW_FLOPS <= share <= IMPOSSIBLE or seconds > 0.9 * on_cuda_cores:
        return None
    text = f"{units.si(work, 'FLOP')} on the CUDA cores in {pipe}: {units.seconds(seconds)} on {tensor}"
    return terms.with_busy(sm=seconds, l1=0.0, l2=0.0), text


def _unaligned(launch: Launch, terms: Terms) -> Removed:
    """With rows of a multiple of 16 bytes: the same FLOPs at the peak of the tensor cores, and the DRAM traffic.

    If FLOPs are unknown, the SMs are as busy as they are; without their utilization, the cost is unknown. Not for fp64,
    whose two elements are 16 bytes.
    """
    name, pipes = launch.kernel.name, launch.pipe_seconds
    tensor = {pipe: time for pipe, time in pipes.items() if pipe.startswith("tensor_") and pipe != "tensor_fp64"}
    match = re.search(r"align[a-c]?([12])(?!\d)", name)
    on_tensor_cores = tensor or (not pipes and "tensorop" in name and format_in_name(name) not in (None, "fp64"))
    if not on_tensor_cores or match is None or category(name) not in MATMULS:
        return None
    text = f"loads of {units.count(int(match[1]), 'element')} by the kernel's name: rows are not multiples of 16 bytes"
    if "sm" not in terms.busy and not tensor:
        return terms, text
    removed = terms.with_busy(sm=max(tensor.values(), default=terms.busy.get("sm", 0.0)), l1=0.0, l2=0.0)
    if not {"l1", "l2"} & terms.busy.keys():  # the caches may be what warps wait for
        removed = removed._replace(waiting=min(removed.waiting, max(removed.busy.values())))
    return removed, text


def _double_precision(launch: Launch, terms: Terms) -> Removed:
    """In fp32: half the registers and moves, and the same FLOPs at the fp32 peak."""
    seconds, device = launch.pipe_seconds, launch.device
    wide = sum(seconds.get(pipe, 0.0) for pipe in ("fp64", "tensor_fp64"))
    if device is None or "sm" not in terms.busy or "fp32" not in device.pipes or wide < 0.2 * launch.seconds:
        return None
    work = sum(getattr(launch.kernel.flops, pipe) or 0 for pipe in ("fp64", "tensor_fp64")) / launch.kernel.invocations
    narrow = work / device.pipes["fp32"].peak
    text = (
        f"{units.si(work, 'FLOP')} in fp64 take {units.seconds(wide)}, in fp32 {units.seconds(narrow)}, if it suffices "
        "(a constant such as 0.5 is fp64, 0.5f is fp32)"
    )
    return terms.with_busy(sm=max(terms.busy["sm"] / 2, narrow)), text


_ACTIVE_THREADS = "smsp__thread_inst_executed_per_inst_executed.ratio"


def _divergence(launch: Launch, terms: Terms) -> Removed:
    """With all threads of a warp on the same path: threads / 32 of the instructions."""
    threads = launch.get(_ACTIVE_THREADS)
    if threads is None or "sm" not in terms.busy or not 0 < threads < 0.9 * WARP:
        return None
    text = f"{units.significant(threads)} of {WARP} threads of a warp execute an instruction on average"
    return terms.with_busy(sm=terms.busy["sm"] * threads / WARP), text


# --- Memory -------------------------------------------------------------------------------------------


_GLOBAL, _LOCAL = (
    {op: f"l1tex__t_sectors_pipe_lsu_mem_{where}_op_{op}.sum" for op in ("ld", "st")} for where in ("global", "local")
)
_PER_SECTOR = {op: f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.ratio" for op in ("ld", "st")}


def _bytes_per_sector(launch: Launch, op: str) -> float | None:
    """Bytes of a sector that threads ask for; without that counter it follows from the sectors of a request.

    More than 16 sectors are more than 16 bytes of each thread need, so that each thread reads one of its own (4 bytes
    are assumed); 4 sectors or fewer are full. Between them, the size of the accesses decides: unknown.
    """
    if (known := launch.get(_PER_SECTOR[op])) is not None:
        return known
    sectors, requests = launch.get(_GLOBAL[op]), launch.get(_GLOBAL[op].replace("sectors", "requests"))
    if not sectors or not requests:
        return None
    return 4.0 if sectors > 16 * requests else float(SECTOR) if sectors <= 4 * requests else None


def _requested_bytes(launch: Launch) -> float | None:
    """Bytes that the threads load from and store to global memory; None if it was not collected."""
    parts = [(launch.get(_GLOBAL[op]), _bytes_per_sector(launch, op)) for op in ("ld", "st")]
    if any(sectors is None or (sectors and each is None) for sectors, each in parts):
        return None
    return sum((sectors or 0.0) * (each or 0.0) for sectors, each in parts)


def _capped(launch: Launch, terms: Terms, share: float, size: float) -> dict[str, float]:
    """Busy times of the memory if L1 has this share of its work, and no other level moves more than `size` bytes."""
    moved = launch.bytes
    dram = launch.total("dram__bytes_read.sum", "dram__bytes_write.sum") or moved.get("dram")
    l2 = moved.get("l2") or launch.total("lts__t_sectors.sum") * SECTOR
    busy = {"l1": share, "l2": min(size / l2, 1) if l2 else share, "dram": min(size / dram, 1) if dram else 1.0}
    return {unit: terms.busy[unit] * part for unit, part in busy.items() if unit in terms.busy}


def _local_memory(launch: Launch, terms: Terms) -> Removed:
    """Without local memory, L2 and DRAM move at most the bytes of global memory."""
    local, sectors = launch.total(*_LOCAL.values()), launch.total(*_GLOBAL.values())
    if not terms.busy or not local or local < 0.1 * (local + sectors):
        return None
    share = local / (local + sectors)
    text = f"{share:.0%} of the sectors are of local memory: spilled registers, or arrays indexed at run time"
    return terms.with_busy(**_capped(launch, terms, 1 - share, sectors * SECTOR)), text


def _uncoalesced(launch: Launch, terms: Terms) -> Removed:
    """With full sectors, no level moves more than the bytes that threads ask for."""
    size, sectors = _requested_bytes(launch), launch.total(*_GLOBAL.values())
    if not size or not terms.busy or size > 0.9 * sectors * SECTOR:
        return None
    used = {op: _bytes_per_sector(launch, op) for op in ("ld", "st") if launch.get(_GLOBAL[op])}
    names = {"ld": "loads", "st": "stores"}
    uses = (f"{names[op]} use {units.significant(each or 0)}" for op, each in used.items() if each != SECTOR)
    text = f"{' and '.join(uses)} of the {SECTOR} bytes of a sector"
    share = size / (sectors * SECTOR)
    removed = terms.with_busy(**_capped(launch, terms, share, size))
    if not {"l1", "l2"} & terms.busy.keys():  # the caches may be what warps wait for
        removed = removed._replace(waiting=min(removed.waiting, terms.waiting * share))
    return removed, text


_SHARED = tuple(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st", "atom"))


def _bank_conflicts(launch: Launch, terms: Terms) -> Removed:
    """Each conflict takes the L1 of one SM for one cycle."""
    conflicts = launch.get("derived__memory_l1_wavefronts_shared_excessive")
    if conflicts is None:
        conflicts = launch.total(*_SHARED) or launch.total("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")
    if not conflicts or not launch.cycles or not launch.multiprocessors or "l1" not in terms.busy:
        return None
    seconds = conflicts / launch.multiprocessors / launch.cycles * launch.seconds
    all_ = launch.get("memory_l1_wavefronts_shared", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    share = f"{min(conflicts / all_, 1):.0%} of the wavefronts of shared memory are" if all_ else units.si(conflicts)
    return terms.with_busy(l1=max(terms.busy["l1"] - seconds, 0.0)), f"{share} bank conflicts"


_ATOMICS = "lts__d_atomic_input_cycles_active.{}.pct_of_peak_sustained_elapsed"


def _atomics(launch: Launch, terms: Terms) -> Removed:
    """Atomics on few addresses keep one slice of L2 busy; without them, only the other units are."""
    busiest, mean = (launch.get(_ATOMICS.format(which)) for which in ("max", "avg"))
    if busiest is None or mean is None or not terms.busy or busiest < 0.3 or busiest < 4 * mean:
        return None
    text = f"on few addresses: the busiest slice of L2 works on them {busiest:.0%} of the time, the mean one {mean:.0%}"
    return terms._replace(waiting=terms.waiting * min(max(terms.busy.values()) / launch.seconds, 1)), text


# --- What is left -------------------------------------------------------------------------------------

_UNITS = {"dram": "DRAM", "l2": "L2", "l1": "L1", "sm": "the SMs' pipes"}
_LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_STALLS = {
    "long_scoreboard": "global or local memory", "short_scoreboard": "shared memory or special functions",
    "barrier": "a barrier", "wait": "a fixed latency of instructions", "lg_throttle": "the queue of global memory",
    "mio_throttle": "the queue of shared memory", "math_pipe_throttle": "a pipe", "drain": "stores at the end",
    "membar": "a memory barrier", "branch_resolving": "branches", "no_instruction": "instructions",
    "gmma": "tensor cores", "sleeping": "sleep", "imc_miss": "constants", "tex_throttle": "the texture queue",
    "dispatch_stall": "dispatch", "misc": "others",
}  # fmt: skip


def _flops_share(launch: Launch) -> float:
    """FLOPs of the busiest pipe / its peak."""
    return max(launch.pipe_seconds.values(), default=0.0) / launch.seconds


def _shows_waste(launch: Launch, unit: str) -> bool:
    """Whether the counters would show work of a unit that could be avoided; work that is counted from shapes cannot.

    They do not show instructions and loads that larger tiles would save: pipes that are busy with few FLOPs, and a
    matrix product at the limit of a cache.
    """
    if not launch.has_counters:
        return True
    if unit == "sm":
        tensor = max((s for pipe, s in launch.pipe_seconds.items() if pipe.startswith("tensor_")), default=0.0)
        known = launch.get(_ACTIVE_THREADS) is not None and launch.kernel.flops.fp32 is not None
        return (known and _flops_share(launch) >= FEW_FLOPS) or tensor >= AT_CEILING * launch.seconds
    if unit != "dram" and category(launch.kernel.name) in MATMULS and _flops_share(launch) < FEW_FLOPS:
        return False
    return _requested_bytes(launch) is not None and (unit != "l1" or launch.get(_SHARED[0]) is not None)


def _bound(unit: str) -> Callable[[Launch, Terms], Removed]:
    def remove(launch: Launch, terms: Terms) -> Removed:
        """At the ceiling of the busiest unit: its busy time."""
        if terms.busiest != unit or terms.busy[unit] < BUSY * launch.seconds:
            return None
        others = {_UNITS[name]: seconds for name, seconds in terms.busy.items() if name != unit}
        nearest = max(others, key=lambda name: others[name], default="")
        then = f"; then {nearest}, {others[nearest] / launch.seconds:.0%}" if nearest else ""
        share = terms.busy[unit] / launch.seconds * (DRAM_REACHED if unit == "dram" else 1)
        at_ceiling = terms.busy[unit] >= AT_CEILING * launch.seconds
        counted = any(flops is not None for flops in launch.kernel.flops)
        if unit == "sm" and at_ceiling and launch.has_counters and not counted:
            return terms, f"{BUSY_SMS}{share:.0%}; collect FLOPs to see whether the work is useful"
        nothing = NOTHING * (at_ceiling and _shows_waste(launch, unit))
        known = unit == "sm" and launch.device is not None and launch.kernel.flops.fp32 is not None
        few = f", FLOPs at {_flops_share(launch):.0%}" if known and _flops_share(launch) < FEW_FLOPS else ""
        return terms._replace(waiting=0.0), f"{nothing}{_UNITS[unit]} at {share:.0%} of the peak{few}{then}"

    return remove


def _latency(launch: Launch, terms: Terms) -> Removed:
    """Without waiting: the busy time of the busiest unit."""
    if launch.get("lts__throughput.avg.pct_of_peak_sustained_elapsed") is None or not terms.busy:
        return None
    if max(terms.busy.values()) >= BUSY * launch.seconds:  # that unit is the limit
        return None
    stalls = {name: value for name in _STALLS if (value := launch.get(_STALL.format(name))) is not None}
    unit = terms.busiest or ""
    text = f"no unit is busy more than {terms.busy[unit] / launch.seconds:.0%} of the time ({_UNITS[unit]})"
    if stalls and sum(stalls.values()):
        first = max(stalls, key=lambda name: stalls[name])
        text += f"; warps wait for {_STALLS[first]} ({stalls[first] / sum(stalls.values()):.0%} of their stalls)"
        loads, instructions = launch.get(_LOADS), launch.get("smsp__inst_executed.sum")
        if first == "long_scoreboard" and loads and instructions:
            text += f", {stalls[first] * instructions / loads:.0f} cycles for each load: independent loads overlap"
    return terms._replace(waiting=0.0), text


class Rule(NamedTuple):
    """A reason as it is declared: how it is called, the counters without which nothing is known, what removes it."""

    name: str
    title: str
    needs: tuple[str, ...]
    remove: Callable[[Launch, Terms], Removed]


REASONS = (
    Rule("launch_gap", "the GPU is idle before it", (), _launch_gap),
    Rule("few_blocks", "too few thread blocks", (), _few_blocks),
    Rule("tail", "a partial last wave", (LIMIT + "registers",), _tail),
    Rule("achieved_occupancy", "uneven or short thread blocks", ("sm__cycles_active.avg",), _achieved_occupancy),
    Rule(
        "registers", "occupancy limited by registers", (LIMIT + "registers",), _limited_by("registers"),
    ),
    Rule(
        "shared_memory", "occupancy limited by shared memory", (LIMIT + "shared_mem",), _limited_by("shared_memory"),
    ),
    Rule(
        "block_size", "occupancy limited by small thread blocks", (LIMIT + "blocks",), _limited_by("block_size"),
    ),
    Rule("no_tensor_cores", "no tensor cores", (), _no_tensor_cores),
    Rule("unaligned", "unaligned rows of a GEMM", (), _unaligned),
    Rule("double_precision", "double precision", (), _double_precision),
    Rule("divergence", "divergent threads", (_ACTIVE_THREADS,), _divergence),
    Rule("local_memory", "local memory", (_LOCAL["ld"],), _local_memory),
    Rule("uncoalesced", "uncoalesced or partial sectors", (_GLOBAL["ld"],), _uncoalesced),
    Rule("bank_conflicts", "bank conflicts", (_SHARED[0],), _bank_conflicts),
    Rule("atomics", "atomics", (_ATOMICS.format("max"),), _atomics),
    Rule("dram_bound", "bound by DRAM", (), _bound("dram")),
    Rule("l2_bound", "bound by L2", ("lts__throughput.avg.pct_of_peak_sustained_elapsed",), _bound("l2")),
    Rule("l1_bound", "bound by L1", ("lts__throughput.avg.pct_of_peak_sustained_elapsed",), _bound("l1")),
    Rule("compute_bound", "bound by the SMs", (), _bound("sm")),
    Rule("latency", "latency", ("lts__throughput.avg.pct_of_peak_sustained_elapsed",), _latency),
    Rule("low_clock", "low clock", (), _low_clock),
)  # fmt: skip
TITLES = {rule.name: rule.title for rule in REASONS}
BOUNDS = ("dram_bound", "l2_bound", "l1_bound", "compute_bound")


def reasons(kernel: Kernel, device: Device | None, gap: float = 0.0) -> list[Reason]:
    """The reasons for the time of a kernel, the costliest first; seconds over all of its invocations.

    `gap` is the idle time before one launch. A launch at its ceiling has that as its first reason, with a small cost.
    """
    launch = Launch(kernel, device, gap)
    if not launch.seconds:
        return []
    terms, costly = launch.terms(), list[Reason]()
    bound: Reason | None = None
    # Collectives use few thread blocks on purpose and wait for other ranks.
    gap_only = category(kernel.name) == "communication"
    for rule in REASONS:
        if gap_only and rule.name != "launch_gap":
            continue
        removed = rule.remove(launch, terms)
        if removed is None:
            continue
        cost = terms.seconds - max(removed[0].seconds, min(SHORTEST, terms.seconds))
        reason = Reason(rule.name, cost * kernel.invocations, removed[1])
        if rule.name in BOUNDS and terms.busy[terms.busiest or ""] >= AT_CEILING * launch.seconds:
            bound = reason
        if cost > RELEVANT * (launch.seconds + gap) or removed[0] is terms:
            costly.append(reason)
        terms = removed[0]
    costly.sort(key=lambda reason: -reason.seconds)
    if bound is not None and (not costly or costly[0].seconds < (1 - AT_CEILING) * (kernel.seconds or 0)):
        return [bound, *(reason for reason in costly if reason != bound)]
    return costly
