"""What makes each rank late in a step: seconds of its own computation and gaps, without waiting for other ranks.

Waiting in a collective, and gaps that end with a collective, are no part: a rank that waits is a victim. What a rank
waits in a collective is known from clocks that agree. They are aligned at the end of collectives, which all ranks leave
together. The ranks of one file have one clock, except in tables of kernels by step, which join the exports of several
hosts. The offset of a clock is the median, over its collectives, of the difference to the median over all ranks. The
rest is the error of the alignment. No library does this: HTA takes clocks as equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from roofmodel.jitter.deviations import Floats, StepKernels
from roofmodel.jitter.kernels import Integers
from roofmodel.profiles.timelines.timeline import UNKNOWN

ROUNDS = 3  # of the median over all ranks, which depends on the offsets


class CollectiveTimes(NamedTuple):
    """The collectives of one step; r ranks x n collectives, nanoseconds of the files' clocks."""

    ranks: tuple[int, ...]  # places in the list of ranks
    starts: Integers
    ends: Integers


class RankClocks(NamedTuple):
    """The clocks of all ranks relative to each other."""

    offsets: Floats  # nanoseconds to subtract from the times of each rank
    error_seconds: float | None  # largest difference between the ranks' ends of a collective; None without collectives
    start_skew_seconds: tuple[float, float] | None  # least and largest start, minus the first rank's start


def align(steps: Sequence[CollectiveTimes], time_bases: Sequence[str]) -> RankClocks:
    """The clocks; ranks with one time base have one clock, and are not shifted against each other."""
    count = len(time_bases)
    steps = [step for step in steps if step.ends.size]
    if not steps:
        return RankClocks(np.zeros(count), None, None)
    ranks_by_clock: dict[str, list[int]] = {}
    for rank, time_base in enumerate(time_bases):
        ranks_by_clock.setdefault(time_base, []).append(rank)
    groups = list(ranks_by_clock.values())
    if len(groups) > 1:
        matrix = _end_matrix(steps, count)
        offsets = _against_first(matrix, groups)
        for _ in range(ROUNDS):
            offsets = _refined(matrix, offsets, groups)
    else:
        offsets = np.zeros(count)
    offsets -= offsets[0]
    error, low, high = 0.0, 0.0, 0.0
    for step in steps:
        shift = offsets[list(step.ranks)][:, None]
        ends, starts = _relative(step.ends, step.ends) - shift, _relative(step.starts, step.ends) - shift
        error = max(error, float((ends.max(axis=0) - ends.min(axis=0)).max()))
        skew = starts - starts[0]
        low, high = min(low, float(skew.min())), max(high, float(skew.max()))
    return RankClocks(offsets, error / 1e9, (low / 1e9, high / 1e9))


def _relative(times: Integers, ends: Integers) -> Floats:
    """Differences to the first end of the first rank, which a float represents exactly."""
    return np.asarray(times - ends[0, 0], float)


def _end_matrix(steps: Sequence[CollectiveTimes], count: int) -> Floats:
    """The ends of N collectives on all ranks, N x R, relative to the first rank that has them; NaN for other ranks."""
    blocks = []
    for step in steps:
        ends = np.full((step.ends.shape[1], count), np.nan)
        ends[:, list(step.ranks)] = (step.ends - step.ends[0]).T
        blocks.append(ends)
    return np.concatenate(blocks)


def _against_first(ends: Floats, groups: list[list[int]]) -> Floats:
    """The median difference of each clock's ends to those of the first one.

    A clock without a common step with the first one is compared with one whose offset is known, until no further
    file has such a step. If then some are left, the first of them is the reference of the others.
    """
    present = ~np.isnan(ends)
    offsets = np.full(ends.shape[1], np.nan)
    offsets[groups[0]] = 0
    while (unknown := np.isnan(offsets)).any():
        usable = np.flatnonzero((present & ~unknown).any(axis=1) & (present & unknown).any(axis=1))
        reference = (present & ~unknown)[usable].argmax(axis=1)
        differences = ends[usable] - (ends[usable, reference] - offsets[reference])[:, None]
        for group in groups:
            values = differences[:, group]
            if unknown[group[0]] and not np.isnan(values).all():
                offsets[group] = np.nanmedian(values)
        if not len(usable):
            offsets[next(group for group in groups if unknown[group[0]])] = 0
    return offsets


def _refined(ends: Floats, offsets: Floats, groups: list[list[int]]) -> Floats:
    """The offsets against the median over all ranks."""
    differences = ends - np.nanmedian(ends - offsets, axis=1, keepdims=True)
    refined = offsets.copy()
    for group in groups:
        values = differences[:, group]
        if not np.isnan(values).all():
            refined[group] = np.nanmedian(values)
    return refined


# --- Parts of the lateness --------------------------------------------------------------------------

# Nanoseconds; choices of this project. Ranks leave a collective together within a tolerance: END_DEVIATIONS standard
# deviations of the ends of this run, between these limits. The upper one is above the few microseconds by which the
# alignment of clocks is wrong. MAX_ESTIMATED_LATENCY limits the launch latency that a step shows: its shortest time
# from a launch to the start of the kernel. That time is usually below 10 us, but includes waiting in the queue if the
# GPU was never idle. The limit is lower than MAX_LAUNCH_LATENCY of trace/idle.py, which holds for each kernel,
# because it limits a minimum over kernels.
MIN_TOLERANCE, MAX_TOLERANCE = 2e3, 20e3
END_DEVIATIONS = 6 * 1.4826  # times the median absolute deviation, which is 1 / 1.4826 standard deviations
MAX_ESTIMATED_LATENCY = 20_000


class Lateness(NamedTuple):
    """Seconds of each rank in one step; R values each, NaN for a rank that the step does not have."""

    compute: Floats  # kernels, collectives apart
    extra: Floats  # kernels that the other ranks do not have
    input: Floats  # gaps in which the launching thread fetches a batch
    first: Floats  # other gap before the first kernel of the step
    launch: Floats  # other gaps in which the next kernel was not launched yet
    queued: Floats  # gaps in which the next kernel was launched: it waited for another stream
    unknown: Floats  # gaps before kernels without a launch in the file
    network: Floats  # collectives that last longer after their last rank has started


# The parts that a rank sums for each of its steps, up to the last collective of the step and after it.
PARTS = ("compute", "extra", "input", "launch", "queued", "unknown")
# The parts of the gap before the first kernel, which counts only if all ranks of the step have the kernel before it.
FIRST_PARTS = ("input", "first", "queued")


def part_sums(step: StepKernels) -> dict[str, Integers]:
    """The parts of the lateness of a rank in N steps of one layout, in nanoseconds; N each.

    `inside_compute` is the part up to the last collective of the step, `tail_compute` the part after it; `first_input`
    is a part of the gap before the first kernel, which the other sums do not contain.
    """
    launched, first, end = step.launches != UNKNOWN, step.layout.first, step.layout.last + 1
    all_launched = bool(launched.all())
    delays = step.starts - step.launches
    least = (delays if all_launched else np.where(launched, delays, MAX_ESTIMATED_LATENCY)).min(axis=1)
    late = step.net_gaps >= delays - np.clip(least, 0, MAX_ESTIMATED_LATENCY)[:, None]
    if not all_launched:
        late &= launched
    fetch = np.minimum(step.input, step.net_gaps) if step.input.any() else np.zeros_like(step.input)
    rest = step.net_gaps - fetch
    is_first = late[:, first] | ~launched[:, first]
    sums = {
        "first_input": fetch[:, first].copy(),
        "first_first": np.where(is_first, rest[:, first], 0),
        "first_queued": np.where(is_first, 0, rest[:, first]),
    }
    fetch[:, first] = rest[:, first] = 0
    values = {
        "compute": np.where(step.collective, 0, step.durations),
        "extra": step.extra,
        "input": fetch,
        "gaps": rest,
        "launch": rest * late,
        "unknown": np.zeros_like(rest) if all_launched else rest * ~launched,
    }
    for name, each in values.items():
        if not each.any():  # often: without input, other kernels or unknown launches
            sums[f"inside_{name}"] = sums[f"tail_{name}"] = np.zeros(len(each), np.int64)
            continue
        sums[f"inside_{name}"], sums[f"tail_{name}"] = each[:, :end].sum(axis=1), each[:, end:].sum(axis=1)
    for place in ("inside", "tail"):
        gaps, launch, unknown = (sums[f"{place}_{name}"] for name in ("gaps", "launch", "unknown"))
        sums[f"{place}_queued"] = gaps - launch - unknown
    return sums


def end_tolerance(steps: Sequence[CollectiveTimes], offsets: Floats) -> float:
    """Nanoseconds between the ends of one collective on ranks that leave it together."""
    distances = []
    for step in steps:
        if step.ends.size and len(step.ranks) > 1:
            ends = (step.ends - step.ends[0, 0]) - offsets[list(step.ranks)][:, None]
            distances.append(np.abs(ends - np.median(ends, axis=0)).ravel())
    if not distances:
        return MAX_TOLERANCE
    return min(max(END_DEVIATIONS * float(np.median(np.concatenate(distances))), MIN_TOLERANCE), MAX_TOLERANCE)


def link_delays(step: CollectiveTimes, offsets: Floats, count: int, tolerance: float) -> Floats:
    """Seconds by which each rank leaves collectives late, although no rank of its group started late; R values.

    Ranks that leave a collective together, within the tolerance (ns), are a group. The transfer time of a group is from
    the start of its last rank to its end; what exceeds the median over ranks (of few ranks, the least one) is a delay
    of its links.
    """
    result = np.full(count, np.nan)
    ranks = list(step.ranks)
    result[ranks] = 0.0
    if not step.ends.size or len(ranks) < 2:
        return result
    shift = offsets[ranks][:, None]
    origin = step.ends[0, 0]
    starts, ends = (step.starts - origin) - shift, (step.ends - origin) - shift
    middle = np.median if len(ranks) > 3 else np.min
    usual = middle(ends, axis=0)
    for column in range(ends.shape[1]):
        order = np.argsort(ends[:, column], kind="stable")
        group = np.cumsum(np.diff(ends[order, column], prepend=ends[order[0], column]) > tolerance)
        last = np.full(int(group[-1]) + 1, -np.inf)
        np.maximum.at(last, group, starts[order, column])
        transfers = ends[order, column] - last[group]
        delays = np.minimum(transfers - middle(transfers), ends[order, column] - usual[column])
        delays[delays < tolerance] = 0
        result[np.array(ranks)[order]] += delays / 1e9
    return result


def transfer_seconds(step: CollectiveTimes) -> float:
    """The shortest duration over ranks of each collective, summed: the last rank does not wait."""
    return float((step.ends - step.starts).min(axis=0).sum()) / 1e9 if step.ends.size else 0.0
