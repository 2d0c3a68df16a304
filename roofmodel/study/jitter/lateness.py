"""What makes each rank late in a step: seconds of its own computation and gaps, without waiting for other ranks.

Waiting in a collective, and gaps that end with a collective, are no part: a rank that waits is a victim.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from roofmodel.profiles.timelines.timeline import UNKNOWN
from roofmodel.study.jitter.alignment import StepKernels
from roofmodel.study.jitter.clocks import CollectiveTimes
from roofmodel.study.jitter.deviations import Floats, first_gaps, last_kernel

# Nanoseconds; both are choices of this project. Ranks leave a collective together within TOLERANCE, which is above the
# few microseconds by which the alignment of clocks is wrong. MAX_ESTIMATED_LATENCY limits the launch latency that a
# step shows: its shortest time from a launch to the start of the kernel. That time is usually below 10 us, but includes
# waiting in the queue if the GPU was never idle. The limit is lower than MAX_LAUNCH_LATENCY of study/trace/idle.py,
# which holds for each kernel, because it limits a minimum over kernels.
TOLERANCE = 20e3
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


def lateness(step: StepKernels, count: int, single: bool) -> tuple[Lateness, Lateness]:
    """The parts (`network` apart) up to the last collective of a step, and after it; `count` ranks in all.

    `single`: this is the only step, so that the gap before it is relative to the earliest rank. Delays after the last
    collective make the rank late in the next step.
    """
    own, launched = step.own_gaps.copy(), step.launches != UNKNOWN
    first = step.first
    if not step.follows:
        found = first_gaps(step) if single else None
        own[:, first] = 0 if found is None else found
    delays = step.starts - step.launches
    latency = min(int(delays[launched].min()), MAX_ESTIMATED_LATENCY) if launched.any() else 0
    late = launched & (step.launches + max(latency, 0) >= step.starts - own)
    if not step.follows:
        late[:, first] = launched[:, first]
    fetch = np.minimum(step.input, own)
    rest = own - fetch
    at_first = np.zeros(own.shape[1], bool)
    at_first[first] = True
    is_first = at_first & (late | ~launched)
    values = {
        "compute": np.where(step.collective, 0, step.durations),
        "extra": step.extra,
        "input": fetch,
        "first": np.where(is_first, rest, 0),
        "launch": np.where(late & ~at_first, rest, 0),
        "queued": np.where(launched & ~late, rest, 0),
        "unknown": np.where(~launched & ~at_first, rest, 0),
        "network": np.zeros(own.shape),
    }
    end = last_kernel(step) + 1

    def total(columns: slice) -> Lateness:
        sums = {}
        for name, each in values.items():
            sums[name] = np.full(count, np.nan)
            sums[name][list(step.ranks)] = each[:, columns].sum(axis=1) / 1e9
        return Lateness(**sums)

    return total(slice(0, end)), total(slice(end, None))


def added(before: Lateness | None, step: Lateness) -> Lateness:
    """The parts of a step with those after the last collective of the step before, for ranks that have that step."""
    return step if before is None else Lateness(*(s + np.nan_to_num(b) for b, s in zip(before, step, strict=True)))


def link_delays(step: CollectiveTimes, offsets: Floats, count: int) -> Floats:
    """Seconds by which each rank leaves collectives late, although no rank of its group started late; R values.

    Ranks that leave a collective together, within TOLERANCE, are a group. The transfer time of a group is from the
    start of its last rank to its end; what exceeds the median over ranks (of few ranks, the least one) is a delay of
    its links.
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
        group = np.cumsum(np.diff(ends[order, column], prepend=ends[order[0], column]) > TOLERANCE)
        last = np.full(int(group[-1]) + 1, -np.inf)
        np.maximum.at(last, group, starts[order, column])
        transfers = ends[order, column] - last[group]
        delays = np.minimum(transfers - middle(transfers), ends[order, column] - usual[column])
        delays[delays < TOLERANCE] = 0
        result[np.array(ranks)[order]] += delays / 1e9
    return result


def transfer_seconds(step: CollectiveTimes) -> float:
    """The shortest duration over ranks of each collective, summed: the last rank does not wait."""
    return float((step.ends - step.starts).min(axis=0).sum()) / 1e9 if step.ends.size else 0.0
