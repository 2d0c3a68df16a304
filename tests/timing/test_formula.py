"""What the timing formulas share: streams from L2 and DRAM."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.timing.formula import Chip, dram_share, stream_seconds

L2 = 10_000_000
CHIP = Chip(multiprocessors=100, peak=1.0, bandwidth=1e12, l2=L2, port=1e12)
SHARES = st.floats(0.05, 1)
BYTES = st.integers(1, 10 * L2)


def test_more_bytes_than_a_slow_l2_holds_take_no_less_time_than_those_that_it_holds() -> None:
    """10 MB from half of L2's 1 TB/s take 20 us, as 20 MB from the 1 TB/s of DRAM do; 30 MB take 30 us."""
    sizes = (L2, L2 + 1, 15_000_000, 20_000_000, 30_000_000)
    found = [stream_seconds(size, size, CHIP, dram=1.0, l2=0.5) for size in sizes]
    assert found == pytest.approx([20e-6, 20e-6, 20e-6, 20e-6, 30e-6])


def test_bytes_in_a_fast_l2_need_no_dram() -> None:
    """5 MB at 1 TB/s of L2; 20 MB at a quarter of DRAM's 1 TB/s."""
    found = [stream_seconds(size, size, CHIP, dram=0.25, l2=1.0) for size in (5_000_000, 20_000_000)]
    assert found == pytest.approx([5e-6, 80e-6])


def test_a_repeated_kernel_reads_from_dram_what_l2_loses_between_its_capacity_and_twice_of_it() -> None:
    assert [dram_share(size, 10) for size in (0, 10, 11, 15, 20, 40)] == pytest.approx([0, 0, 0.1, 0.5, 1, 1])


@given(BYTES, BYTES, SHARES, SHARES)
def test_more_bytes_never_take_less_time(one: int, other: int, dram: float, l2: float) -> None:
    few, many = (stream_seconds(size, size, CHIP, dram, l2) for size in sorted((one, other)))
    assert few <= many * (1 + 1e-9)
