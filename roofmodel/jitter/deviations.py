"""Deviations of each rank from the mean over ranks, by kernel: duration, gap, time to the end, launch to start.

The definitions are of A. Zulfiqar and R. Knight, "Scaling the Transformer Model Implementation in PyTorch Across
Multiple Nodes" (NVIDIA, 2020). For rank r and kernel i of a step:

    duration     end - start; 0 for collectives, whose time is mostly waiting
    gap          i > 0 on the main stream: start - end of the kernel before it on this stream (with the time of
                 kernels in between that other ranks do not have)
                 collectives on other streams: 0
                 i = 0: see `first_gaps`
    time to end  sum of gap + duration of the kernels 0 to i
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.jitter.kernels import Integers
from roofmodel.jitter.step_kernels import StepKernels
from roofmodel.options.values import FirstGap
from roofmodel.profiles.timelines.timeline import UNKNOWN

Floats = NDArray[np.float64]


class Deviations(NamedTuple):
    """R ranks x K kernels, in seconds: value - mean over ranks."""

    durations: Floats
    gaps: Floats
    times_to_end: Floats
    launch_to_start: Floats | None  # None without launches
    last: int  # the kernel before the last collective: where the lateness of ranks is compared

    @property
    def lateness(self) -> Floats:
        """Deviation of the time to the end at kernel `last`; R."""
        return np.asarray(self.times_to_end[:, self.last])

    @property
    def latest(self) -> int:
        return int(self.lateness.argmax())

    @property
    def earliest(self) -> int:
        return int(self.lateness.argmin())

    def diverges_at(self, rank: int, threshold: float) -> int | None:
        """The first kernel at which a rank is late by more than the threshold (seconds); see `first_beyond`."""
        return first_beyond(self.times_to_end[rank, : self.last + 1], threshold)


def first_beyond(times_to_end: Floats, threshold: float) -> int | None:
    """Index of the first deviation of a rank that exceeds the threshold (seconds).

    None if the last deviation does not exceed it: the rank is not late.
    """
    if not len(times_to_end) or times_to_end[-1] <= threshold:
        return None
    return int(np.argmax(times_to_end > threshold))


def deviations(step: StepKernels, first: Integers) -> Deviations:
    """The deviations in one step on R ranks; `first` is the gap before the first kernel in nanoseconds, R."""
    gaps = kernel_gaps(step, first)
    launched = (step.launches != UNKNOWN).all(axis=0)
    delays = np.where(launched, step.starts - step.launches, np.nan) if launched.any() else None
    return Deviations(
        durations=_deviation(step.durations),
        gaps=_deviation(gaps),
        times_to_end=_deviation(times_to_end(step, gaps)),
        launch_to_start=None if delays is None else _deviation(delays),
        last=step.layout.last,
    )


def _deviation(values: Floats | Integers) -> Floats:
    return np.asarray((values - values.mean(axis=0)) / 1e9)


def kernel_gaps(step: StepKernels, first: Integers) -> Integers:
    """The gap before each kernel in nanoseconds, N x K; `first` is the gap before the first kernel, N."""
    gaps = gaps_to_previous_kernel(step)
    gaps[:, step.layout.first] = first
    return gaps + step.extra


def gaps_to_previous_kernel(step: StepKernels) -> Integers:
    """From the end of the kernel before on the main stream to the start, in nanoseconds; N x K.

    0 for kernels on other streams, and for the first kernel if the files do not have the one before.
    """
    known = step.layout.main & (step.previous_ends != UNKNOWN)
    return np.where(known, np.maximum(step.starts - step.previous_ends, 0), 0)


def first_gaps(
    starts: Integers, collective_ends: Integers, first_gap: FirstGap = "same-step", previous: Integers | None = None
) -> Integers | None:
    """The gap before the first kernel of the main stream, in nanoseconds; R. None without collectives.

    `starts` are the starts of this kernel, `collective_ends` the ends of the step's last collective, UNKNOWN without
    one. same-step: X is the time from the first kernel's start to the end of the step's last collective, which all
    ranks leave together, and the gap is max X - X: the rank that starts first has 0. previous-step: the gap is the time
    from the end of the previous step's last collective (`previous`) to the start; without a previous step as same-step.
    Neither needs clocks that agree between ranks.
    """
    if first_gap == "previous-step" and previous is not None and not (previous == UNKNOWN).any():
        return starts - previous
    if (collective_ends == UNKNOWN).any():
        return None
    distances = collective_ends - starts
    return np.asarray(distances.max() - distances)


def last_collective_ends(step: StepKernels) -> Integers:
    """The end of the last collective of each row; N. UNKNOWN without collectives."""
    if not step.collective.any():
        return np.full(len(step.starts), UNKNOWN)
    return np.asarray(step.ends[:, step.collective].max(axis=1))


def times_to_end(step: StepKernels, gaps: Integers) -> Integers:
    """Sum of gap and duration up to each kernel, with the durations of collectives set to zero; N x K, nanoseconds."""
    return np.asarray(np.cumsum(gaps + np.where(step.collective, 0, step.durations), axis=1))
