"""Gaps before the kernels of a rank, compared with their definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.jitter.kernels import compared_kernels, table_of
from roofmodel.jitter.ranks import rank_parts
from roofmodel.profiles.columns import ColumnTable
from roofmodel.profiles.kernel import KernelTable
from roofmodel.profiles.timelines.timeline import (
    RANGES,
    UNKNOWN,
    Timeline,
)
from tests.operations import operations

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
    columns = {"start": starts, "end": ends, "launch_start": zeros, "step": zeros}
    table = table_of(columns | {"communicates": collective, "main": main}, len(kernels))
    table.fill(name="k")
    found = compared_kernels([table])
    expected = []
    for place in np.flatnonzero(side):
        before = [ends[other] for other in range(place) if main[other]]
        if not main[place] or not before:
            expected.append((UNKNOWN, 0))
            continue
        finished = [end for end in ends[collective] if end <= starts[place]]
        expected.append((max(before), max(0, starts[place] - max(before + finished))))
    assert list(zip(found.array("previous_end"), found.array("net_gap"), strict=True)) == expected


def test_the_time_for_the_ranks_of_one_file_grows_with_their_number() -> None:
    """Six times as many ranks need six times the operations, and more where each rank reads the ranges of all."""

    def needed(number: int) -> int:
        timeline = _file_of_ranks(number)
        return operations(lambda: rank_parts(timeline))

    assert len(rank_parts(_file_of_ranks(10))) == 10  # imports
    assert needed(120) < 6.5 * needed(20)


def _file_of_ranks(number: int) -> Timeline:
    """Processes with a GPU each; a step of one kernel, and its thread in the data loader."""
    work, ranges = KernelTable(), ColumnTable(RANGES)
    for rank in range(number):
        place = {"process": str(rank)}
        ranges.add(name="ProfilerStep#1", start=0, end=1000, thread=f"thread {rank}", **place)
        ranges.add(name="enumerate(DataLoader)#next", start=5, end=100, thread=f"thread {rank}", **place)
        work.add(
            kind="kernel", name="k", start=500, end=600, device=str(rank), stream="7", launch_start=200,
            launch_thread=f"thread {rank}", **place,
        )  # fmt: skip
    return Timeline("nsys", "file", work, range_table=ranges)
