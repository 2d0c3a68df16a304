"""Idle time before a launch, its thread blocks, and the warps that an SM holds."""

from __future__ import annotations

import math
from collections.abc import Callable

from roofmodel.devices.occupancy import WARP, block_limits
from roofmodel.numbers import units
from roofmodel.roofline.categories import category
from roofmodel.roofline.causes.rule import AT_CEILING, MATMULS, Removed, latency_share
from roofmodel.roofline.launches import Launch, Terms


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
