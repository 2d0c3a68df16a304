"""The rules that find and remove a reason for the time of a launch; REASONS lists them in their order."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from roofmodel.devices.device import Device
from roofmodel.devices.occupancy import WARP, block_limits
from roofmodel.numbers import units
from roofmodel.roofline.categories import category
from roofmodel.roofline.formats import format_in_name
from roofmodel.roofline.launches import (
    DRAM_REACHED,
    IMPOSSIBLE,
    STALLS,
    Launch,
    Removed,
    Terms,
    latency_share,
    stalls,
)  # fmt: skip
from roofmodel.roofline.points import flops_by_pipe

AT_CEILING = 0.85  # of its peak: nothing to win at the busiest unit, unless another reason costs the rest
BUSY = 0.6  # of the time: the busiest unit limits the launch (the threshold of Nsight Compute)
MATMULS = ("GEMM", "convolution", "attention")


# --- Before the launch, its thread blocks and warps -----------------------------------------------


def _with_less_waiting(
    launch: Launch, terms: Terms, share: float, evidence: str, waits: bool | None = None
) -> Removed | None:
    """Waiting takes a share of its time.

    Without utilization, a launch is known to wait if its work is known, or as `waits` says. Otherwise the reason is
    stated without its cost, if it could keep the launch from its ceiling.
    """
    known = launch.has_utilization or (bool(terms.busy) if waits is None else waits)
    if not known and share >= AT_CEILING:
        return None
    return Removed(terms._replace(waiting=terms.waiting * share), evidence, known)


def _with_more_warps(
    launch: Launch, terms: Terms, share: float, evidence: str, step: float | None = None
) -> Removed | None:
    """Waiting for latencies takes a share of its time, because more warps hide it; other stalls remain.

    `step` is that share after the next feasible step. Without the stalls of the warps, the cost is unknown.
    """
    hidden = latency_share(launch)
    if hidden is None:
        text = f"{evidence}; whether warps wait for latencies is unknown"
        if share >= AT_CEILING:
            return None
        return Removed(terms._replace(waiting=terms.waiting * share), text, known=False)
    if hidden < 0.5:
        return None

    def waiting(part: float) -> Terms:
        return terms._replace(waiting=terms.waiting * (1 - hidden * (1 - part)))

    return Removed(waiting(share), evidence, step=None if step is None else waiting(step))


def launch_gap(launch: Launch, terms: Terms) -> Removed | None:
    """Without the idle time before the launch."""
    text = f"idle for {units.seconds(terms.gap)} before each launch, on average"
    return Removed(terms._replace(gap=0.0), text) if terms.gap else None


def _blocks(launch: Launch) -> str:
    blocks, threads = launch.blocks or 0, launch.threads or WARP
    of_threads = f" of {'one thread' if threads == 1 else f'{threads} threads'}" * (threads < WARP)
    return f"{'one thread block' if blocks == 1 else units.count(blocks, 'thread block')}{of_threads}"


def few_blocks(launch: Launch, terms: Terms) -> Removed | None:
    """With a full wave, waiting takes blocks / (blocks that fit at once) of its time.

    The part of it that fills SMs which have a block already needs warps that wait for latencies.
    """
    sms, blocks = launch.multiprocessors, launch.blocks
    if blocks is None or (not sms and blocks > 1):
        return None
    if not sms:
        return Removed(terms, f"{_blocks(launch)}: it uses one SM", known=False)
    waves = launch.waves or (blocks / sms if blocks < sms else None)
    if waves is None or waves >= 1:
        return None
    where = f"on {sms} SMs" if blocks < sms or launch.waves is None else f"of {round(blocks / waves)} that fit at once"
    full = f": {units.significant(waves)} waves" if launch.waves else ""
    text = f"{_blocks(launch)} {where}{full}"
    idle = min(blocks / sms, 1.0)
    more_warps = _with_more_warps(launch, terms, waves / idle, text)
    if blocks >= sms:
        return more_warps
    if launch.has_utilization and more_warps is not None and more_warps.known:
        terms = more_warps.terms
        return Removed(terms._replace(waiting=terms.waiting * idle), text)
    known = launch.has_utilization or bool(terms.busy)
    if not known and waves >= AT_CEILING:
        return None
    return Removed(terms._replace(waiting=terms.waiting * idle), text, known)


def partial_warps(launch: Launch, terms: Terms) -> Removed | None:
    """With full warps, the same threads need fewer of them."""
    used = launch.used_lanes
    if used is None or used >= 0.9 or launch.blocks == 1:
        return None
    text = f"blocks of {units.count(launch.threads or 0, 'thread')}: {used:.0%} of the threads of their warps"
    busy = {unit: time * used if unit == "sm" else time for unit, time in terms.busy.items()}
    removed = terms._replace(waiting=terms.waiting * used, busy=busy)
    return Removed(removed, text, known=launch.has_utilization and (launch.waves or 0) >= 1)


def tail(launch: Launch, terms: Terms) -> Removed | None:
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


def achieved_occupancy(launch: Launch, terms: Terms) -> Removed | None:
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
    return _with_more_warps(launch, terms, share, text)


def limited_by(limiter: str) -> Callable[[Launch, Terms], Removed | None]:
    """A rule: the blocks of an SM are limited by its registers, its shared memory or the number of blocks."""

    def remove(launch: Launch, terms: Terms) -> Removed | None:
        """Up to the next limit, waiting for latencies falls in proportion to the blocks of an SM; a step is one block.

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
        if not launch.has_utilization and category(launch.kernel.name) in MATMULS:
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
        step, needs = _next_step(launch, limiter, round(own))
        return _with_more_warps(launch, terms, own / higher, evidence + needs, max(own / step, own / higher))

    return remove


def _next_step(launch: Launch, limiter: str, own: int) -> tuple[int, str]:
    """The blocks of an SM after the next feasible step, and what that step needs: one more block, or larger blocks."""
    if limiter == "block_size":
        return 2 * own, f"; {2 * (launch.threads or WARP)} threads per block would double the warps"
    step = own + 1
    capability, threads = launch.device and launch.device.compute_capability, launch.threads
    known, shared = launch.kernel.registers, launch.kernel.shared_bytes
    text = f"; next: {step} blocks per SM"
    if limiter == "registers" and capability and threads and known:
        for registers in range(known // 8 * 8, 0, -8):
            limits = block_limits(capability, threads, registers, shared or 0)
            if limits and limits.registers >= step:
                return step, f"{text} with at most {registers} registers per thread"
    if limiter == "shared_memory" and capability and threads and shared:
        for size in range(shared // 1024 * 1024, 0, -1024):
            limits = block_limits(capability, threads, known or 1, size)
            if limits and limits.shared_memory >= step:
                return step, f"{text} with at most {units.binary(size)} of shared memory per block"
    return step, text


# --- What the SMs compute -------------------------------------------------------------------------


FEW_FLOPS = 0.4  # of the peak: the pipes are busy with something else; sums without FMA reach half of it
ACTIVE_THREADS = "smsp__thread_inst_executed_per_inst_executed.ratio"
_FASTER = 1.1  # times the peak of the CUDA cores: GeForce's tensor cores are as fast in tf32 as fp32
_TENSOR = {"fp32": ("tensor_tf32", "tensor_fp16"), "fp16": ("tensor_fp16",), "fp64": ("tensor_fp64",)}
"""The tensor formats for the formats of CUDA cores, the closest one first."""
_LIBRARY_FP32 = re.compile(
    r"(?<![a-z0-9])sgemm|scudnn|_sgemm_|simt_s(gemm|fprop|dgrad|wgrad)|(gemm|fprop|dgrad|wgrad)_f32f32_f32f32_f32", re.I
)


def _tensor_pipe(device: Device, pipe: str) -> str | None:
    faster = (name for name in _TENSOR[pipe] if name in device.pipes)
    return next((name for name in faster if device.pipes[name].peak > _FASTER * device.pipes[pipe].peak), None)


def no_tensor_cores(launch: Launch, terms: Terms) -> Removed | None:
    """On tensor cores: the same share of their peak, the DRAM traffic, and casts where the format is narrower.

    A library's kernel of fp32 is known by its name; of another one, the FLOPs show that they are what it does.
    """
    device, flops, name = launch.device, flops_by_pipe(launch.kernel.flops), launch.kernel.name
    if category(name) not in MATMULS or device is None or device.vendor not in (None, "NVIDIA"):
        return None  # AMD's counters of fp32 include its matrix cores
    by_name = _LIBRARY_FP32.search(name) is not None
    vector = {pipe: flops.get(pipe) or 0.0 for pipe in _TENSOR}
    pipe = max(vector, key=lambda each: vector[each]) if any(vector.values()) else "fp32"
    tensor = _tensor_pipe(device, pipe) if pipe in device.pipes else None
    if tensor is None or any(value for each, value in flops.items() if each.startswith("tensor")):
        return None
    ratio = device.pipes[pipe].peak / device.pipes[tensor].peak
    work = vector[pipe] / launch.kernel.invocations
    if not work:
        peaks = [f"{each} {units.si(device.pipes[each].peak, 'FLOP/s')}" for each in (pipe, tensor)]
        text = f"fp32 on the CUDA cores, by its name; peaks: {', '.join(peaks)}"
        removed = terms._replace(waiting=terms.waiting * ratio)
        return Removed(removed, text, known=False) if by_name else None
    share = work / device.pipes[pipe].peak / launch.seconds
    if share > IMPOSSIBLE or (share < FEW_FLOPS and not by_name):
        return None
    casts = _cast_seconds(launch, device) if tensor == "tensor_fp16" and pipe == "fp32" else 0.0
    text = (
        f"{units.si(work, 'FLOP')} on the CUDA cores in {pipe}: {units.seconds(launch.seconds * ratio)} at the same "
        f"share of the peak of {tensor}{f', and {units.seconds(casts)} for casts to fp16' if casts else ''}"
    )
    removed = terms.with_busy(sm=work / device.pipes[tensor].peak, l1=0.0, l2=0.0)
    return Removed(removed._replace(waiting=terms.waiting * ratio, gap=terms.gap + casts), text)


def _cast_seconds(launch: Launch, device: Device) -> float:
    """The time to read the operands in 4 bytes and write them in 2; of all tensors, where the operands are unknown."""
    call = launch.kernel.call
    operands = sum(math.prod(shape) for shape in call.shapes if len(shape) >= 2) if call else 0
    elements = operands or launch.bytes.get("dram", 0.0) / 4
    return 6 * elements / (device.bandwidth * DRAM_REACHED)


def unaligned(launch: Launch, terms: Terms) -> Removed | None:
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
        return Removed(terms, text, known=False)
    removed = terms.with_busy(sm=max(tensor.values(), default=terms.busy.get("sm", 0.0)), l1=0.0, l2=0.0)
    if not {"l1", "l2"} & terms.busy.keys():  # the caches may be what warps wait for
        removed = removed._replace(waiting=min(removed.waiting, max(removed.busy.values())))
    return Removed(removed, text)


def double_precision(launch: Launch, terms: Terms) -> Removed | None:
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
    return Removed(terms.with_busy(sm=max(terms.busy["sm"] / 2, narrow)), text)


def divergence(launch: Launch, terms: Terms) -> Removed | None:
    """With all threads of a warp on the same path: active threads / those that the block has in its warps."""
    threads, lanes = launch.get(ACTIVE_THREADS), WARP * (launch.used_lanes or 1.0)
    if threads is None or not 0 < threads < 0.9 * lanes:
        return None
    of_warp = f"{units.significant(threads)} of {units.significant(lanes)} threads of a warp"
    text = f"{of_warp} execute an instruction on average"
    if "sm" not in terms.busy:
        return Removed(terms, text, known=False)
    return Removed(terms.with_busy(sm=terms.busy["sm"] * threads / lanes), text)


# --- Memory accesses ------------------------------------------------------------------------------


SECTOR = 32  # bytes
GLOBAL, LOCAL = (
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
    sectors, requests = launch.get(GLOBAL[op]), launch.get(GLOBAL[op].replace("sectors", "requests"))
    if not sectors or not requests:
        return None
    return 4.0 if sectors > 16 * requests else float(SECTOR) if sectors <= 4 * requests else None


def requested_bytes(launch: Launch) -> float | None:
    """Bytes that the threads load from and store to global memory; None if it was not collected."""
    parts = [(launch.get(GLOBAL[op]), _bytes_per_sector(launch, op)) for op in ("ld", "st")]
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


def local_memory(launch: Launch, terms: Terms) -> Removed | None:
    """Without local memory, L2 and DRAM move at most the bytes of global memory."""
    local, sectors = launch.total(*LOCAL.values()), launch.total(*GLOBAL.values())
    if not terms.busy or not local or local < 0.1 * (local + sectors):
        return None
    share = local / (local + sectors)
    text = f"{share:.0%} of the sectors are of local memory: spilled registers, or arrays indexed at run time"
    return Removed(terms.with_busy(**_capped(launch, terms, 1 - share, sectors * SECTOR)), text)


def uncoalesced(launch: Launch, terms: Terms) -> Removed | None:
    """With full sectors, no level moves more than the bytes that threads ask for."""
    size, sectors = requested_bytes(launch), launch.total(*GLOBAL.values())
    used = {op: each for op in GLOBAL if (each := _bytes_per_sector(launch, op)) and launch.get(GLOBAL[op]) != 0}
    few = {op: each for op, each in used.items() if each < 0.9 * SECTOR}
    names = {"ld": "loads", "st": "stores"}
    text = f"{' and '.join(f'{names[op]} use {units.significant(each)}' for op, each in few.items())}"
    text = f"{text} of the {SECTOR} bytes of a sector"
    if not size or not terms.busy:  # only the efficiency of the accesses is known
        return Removed(terms, text, known=False) if few and not sectors else None
    if size > 0.9 * sectors * SECTOR:
        return None
    share = size / (sectors * SECTOR)
    removed = terms.with_busy(**_capped(launch, terms, share, size))
    if not {"l1", "l2"} & terms.busy.keys():  # the caches may be what warps wait for
        removed = removed._replace(waiting=min(removed.waiting, terms.waiting * share))
    return Removed(removed, text)


SHARED = tuple(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st", "atom"))
SHARED_EFFICIENCY = "shared_efficiency"  # of nvprof: requested / required bytes of shared memory


def bank_conflicts(launch: Launch, terms: Terms) -> Removed | None:
    """Each conflict takes the L1 of one SM for one cycle."""
    efficiency = launch.get(SHARED_EFFICIENCY)
    if efficiency is not None and 0 < efficiency < 0.9:
        return Removed(terms, f"accesses to shared memory use {efficiency:.0%} of its banks", known=False)
    conflicts = launch.get("derived__memory_l1_wavefronts_shared_excessive")
    if conflicts is None:
        conflicts = launch.total(*SHARED) or launch.total("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")
    if not conflicts or not launch.cycles or not launch.multiprocessors or "l1" not in terms.busy:
        return None
    seconds = conflicts / launch.multiprocessors / launch.cycles * launch.seconds
    all_ = launch.get("memory_l1_wavefronts_shared", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    share = f"{min(conflicts / all_, 1):.0%} of the wavefronts of shared memory are" if all_ else units.si(conflicts)
    return Removed(terms.with_busy(l1=max(terms.busy["l1"] - seconds, 0.0)), f"{share} bank conflicts")


ATOMICS = "lts__d_atomic_input_cycles_active.{}.pct_of_peak_sustained_elapsed"


def atomics(launch: Launch, terms: Terms) -> Removed | None:
    """Atomics on few addresses keep one slice of L2 busy; without them, only the other units are."""
    busiest, mean = (launch.get(ATOMICS.format(which)) for which in ("max", "avg"))
    if busiest is None or mean is None or not terms.busy or busiest < 0.3 or busiest < 4 * mean:
        return None
    text = f"on few addresses: the busiest slice of L2 works on them {busiest:.0%} of the time, the mean one {mean:.0%}"
    return Removed(terms._replace(waiting=terms.waiting * min(max(terms.busy.values()) / launch.seconds, 1)), text)


# --- What is left ---------------------------------------------------------------------------------


NOTHING = "nothing here to win: "
BUSY_SMS = "SMs busy "  # with unknown work
CLOCK_TOLERANCE = 0.05
_UNITS = {"dram": "DRAM", "l2": "L2", "l1": "L1", "sm": "the SMs' pipes"}
_LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
MAX_PIPES = 3  # that a text names


def _named(launch: Launch, unit: str) -> str:
    return "L1 (LSU)" if unit == "l1" and launch.is_lsu_bound else _UNITS[unit]


def _flops_share(launch: Launch) -> float:
    """FLOPs of the busiest pipe / its peak."""
    return max(launch.pipe_seconds.values(), default=0.0) / launch.seconds


def _pipes(launch: Launch, share: float) -> str:
    """The pipes that are busy, by name, the busiest first; `the SMs' pipes` where the file does not break them down.

    The utilization of the SMs (`share`) may be that of a part which no counter names.
    """
    ranked = sorted(launch.pipes.items(), key=lambda item: -item[1])
    if not ranked or ranked[0][1] < AT_CEILING * share:
        return f"{_UNITS['sm']} at {share:.0%} of the peak"
    least = ranked[0][1] / 2
    (first, most), *others = [(name, used) for name, used in ranked[:MAX_PIPES] if used >= least]
    return f"{first} at {most:.0%} of the peak{''.join(f', {name} at {used:.0%}' for name, used in others)}"


def _shows_waste(launch: Launch, unit: str) -> bool:
    """Whether the counters would show work of a unit that could be avoided; work that is counted from shapes cannot.

    They do not show instructions and loads that larger tiles would save: pipes that are busy with few FLOPs, and a
    matrix product at the limit of a cache.
    """
    if not launch.kernel.counters:
        return True
    if unit == "sm":
        tensor = max((s for pipe, s in launch.pipe_seconds.items() if pipe.startswith("tensor_")), default=0.0)
        known = launch.get(ACTIVE_THREADS) is not None and launch.kernel.flops.fp32 is not None
        return (known and _flops_share(launch) >= FEW_FLOPS) or tensor >= AT_CEILING * launch.seconds
    if unit != "dram" and category(launch.kernel.name) in MATMULS and _flops_share(launch) < FEW_FLOPS:
        return False
    return requested_bytes(launch) is not None and (unit != "l1" or launch.get(SHARED[0]) is not None)


def bound(unit: str) -> Callable[[Launch, Terms], Removed | None]:
    """A rule: the launch is at the ceiling of this unit."""

    def remove(launch: Launch, terms: Terms) -> Removed | None:
        """At the ceiling of the busiest unit: its busy time."""
        if terms.busiest != unit or terms.busy[unit] < BUSY * launch.seconds:
            return None
        others = {_named(launch, name): seconds for name, seconds in terms.busy.items() if name != unit}
        nearest = max(others, key=lambda name: others[name], default="")
        then = f"; then {nearest}, {others[nearest] / launch.seconds:.0%}" if nearest else ""
        share = terms.busy[unit] / launch.seconds * (DRAM_REACHED if unit == "dram" else 1)
        at_ceiling = terms.busy[unit] >= AT_CEILING * launch.seconds
        counted = any(flops is not None for flops in launch.kernel.flops)
        if unit == "sm" and at_ceiling and launch.has_utilization and not counted:
            pipes = f" ({_pipes(launch, share)})" if launch.pipes else ""
            text = f"{BUSY_SMS}{share:.0%}{pipes}; collect FLOPs to see whether the work is useful"
            return Removed(terms._replace(waiting=0.0), text, known=False)
        nothing = NOTHING * (at_ceiling and _shows_waste(launch, unit))
        known = unit == "sm" and launch.device is not None and launch.kernel.flops.fp32 is not None
        few = f", FLOPs at {_flops_share(launch):.0%}" if known and _flops_share(launch) < FEW_FLOPS else ""
        without = f"{', '.join(terms.without)}: " if terms.without else ""
        at = f"{_named(launch, unit)} at {share:.0%} of the peak" if unit != "sm" else _pipes(launch, share)
        return Removed(terms._replace(waiting=0.0), f"{nothing}{without}{at}{few}{then}")

    return remove


def latency(launch: Launch, terms: Terms) -> Removed | None:
    """Without waiting: the busy time of the busiest unit."""
    if not terms.busy or max(terms.busy.values()) >= BUSY * launch.seconds:  # that unit is the limit
        return None
    if launch.get("lts__throughput.avg.pct_of_peak_sustained_elapsed") is None:
        return _neither(launch, terms)
    waits = stalls(launch)
    unit = terms.busiest or ""
    share = f"{terms.busy[unit] / launch.seconds:.0%} of the time ({_named(launch, unit)})"
    text = f"no unit is busy more than {share}"
    if terms.without:
        text = f"{', '.join(terms.without)}, no unit would be busy more than {share}"
    if waits and sum(waits.values()):
        named = {name: value for name, value in waits.items() if name != "misc"} or waits
        first = max(named, key=lambda name: named[name])
        text += f"; warps wait for {STALLS[first]} ({waits[first] / sum(waits.values()):.0%} of their stalls)"
        loads, instructions = launch.get(_LOADS), launch.get("smsp__inst_executed.sum")
        if first == "long_scoreboard" and loads and instructions:
            text += f", {waits[first] * instructions / loads:.0f} cycles for each load: independent loads overlap"
    return Removed(terms._replace(waiting=0.0), text)


def _neither(launch: Launch, terms: Terms) -> Removed | None:
    """Bytes, FLOPs and time without the utilization of the caches exclude DRAM and the pipes."""
    if "dram" not in terms.busy or "sm" not in terms.busy:
        return None
    pipe = max(launch.pipe_seconds, key=lambda name: launch.pipe_seconds[name], default="the SMs")
    shares = {"DRAM": terms.busy["dram"] * DRAM_REACHED, pipe: terms.busy["sm"]}
    text = " and ".join(f"{name} at {seconds / launch.seconds:.1%}" for name, seconds in shares.items())
    return Removed(terms, f"{text} of the peak do not limit it: warps wait for latencies or a cache", known=False)


def low_clock(launch: Launch, terms: Terms) -> Removed | None:
    """No saving: Nsight Compute locks the clock by default, which is not so in production."""
    clock, device = launch.kernel.clock, launch.device
    if not clock or device is None:
        return None
    pipe = max(launch.pipe_seconds, key=lambda name: launch.pipe_seconds[name], default="")
    boost = (device.pipes[pipe].clock if pipe else None) or device.clocks.get("boost")
    if not boost or clock > boost * (1 - CLOCK_TOLERANCE):
        return None
    text = f"SM clock {units.si(clock, 'Hz')} of {units.si(boost, 'Hz')}: locked (ncu: --clock-control none), or power"
    return Removed(terms, text, known=False)
