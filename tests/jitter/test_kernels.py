"""Gaps before the kernels of a rank, compared with their definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.jitter.kernels import KernelTable, compared_kernels
from roofmodel.profiles.timelines.timeline import UNKNOWN

Kernel = tuple[
    int, int, bool, bool
]  # time since the start of the previous kernel, duration, on the main stream, collective
KERNELS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30), st.booleans(), st.booleans()), min_size=1)


@given(KERNELS)
def test_gaps_end_at_the_start_of_a_kernel_and_own_gaps_begin_at_the_last_collective(kernels: list[Kernel]) -> None:
    begins, durations, main, collective = (np.array(values) for values in zip(*kernels, strict=True))
    starts = np.cumsum(begins)
    ends = starts + durations
    side = main | collective  # other kernels are not compared
    zeros = np.zeros(len(kernels), np.int64)
    table = KernelTable(("k",), zeros.astype(np.int32), starts, ends, zeros, collective, main, zeros)
    found = compared_kernels([table])
    expected = []
    for place in np.flatnonzero(side):
        before = [ends[other] for other in range(place) if main[other]]
        if not main[place] or not before:
            expected.append((UNKNOWN, 0))
            continue
        finished = [end for end in ends[collective] if end <= starts[place]]
        expected.append((max(before), max(0, starts[place] - max(before + finished))))
    assert list(zip(found.previous_ends, found.net_gaps, strict=True)) == expected
