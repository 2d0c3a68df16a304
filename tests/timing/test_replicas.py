"""Data-parallel training: buckets, the exposed part of the exchange, the slowest replica."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.timing.collectives import (
    BUCKET_BYTES,
    FIRST_BUCKET_BYTES,
    REPLICA_SPREAD,
    buckets,
    contention_seconds,
    exposed_seconds,
    slowest_of,
)


@given(st.floats(1, 1e12))
def test_the_buckets_together_contain_all_gradients(size: float) -> None:
    found = buckets(size)
    assert found.total == pytest.approx(size)
    assert 0 < found.first <= FIRST_BUCKET_BYTES
    assert 0 < found.last <= BUCKET_BYTES * (1 + 1e-9)


def test_gradients_of_less_than_two_first_buckets_are_split_in_two_halves() -> None:
    assert buckets(2**20) == (2**19, 0, 2**19)
    assert buckets(3 * 2**20) == (2**20, 0, 2 * 2**20)  # first buckets have 1 MiB, others 25 MiB


def test_a_fast_exchange_exposes_the_last_bucket_only() -> None:
    sizes = buckets(FIRST_BUCKET_BYTES + 3 * BUCKET_BYTES)
    assert (sizes.full, sizes.last) == (2, BUCKET_BYTES)
    assert exposed_seconds(sizes, 0.001, 0.01, 0.01, backward=1.0) == pytest.approx(0.01)


def test_a_slow_exchange_starts_when_its_buckets_are_ready() -> None:
    sizes = buckets(FIRST_BUCKET_BYTES + 3 * BUCKET_BYTES)
    # first bucket: from 0.1 to 1.1 s; second: ready at 26/76 of 7.6 s = 2.6 s; the third and the last follow it
    assert exposed_seconds(sizes, 1, 20, 20, backward=7.6) == pytest.approx(2.6 + 3 * 20 - 7.6)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 10), st.floats(1, 1e10))
def test_the_exposed_part_is_neither_negative_nor_more_than_the_exchange(
    first: float, full: float, last: float, backward: float, size: float
) -> None:
    sizes = buckets(size)
    exposed = exposed_seconds(sizes, first, full, last, backward)
    assert 0 <= exposed <= (first + sizes.full * full + last) * (1 + 1e-9) + 1e-9


def test_the_slowest_replica_is_slower_the_more_replicas_there_are() -> None:
    # expected maxima of 2, 4, 8 and 16 standard normal variables: 0.564, 1.029, 1.424, 1.766
    for replicas, maximum in ((2, 0.564), (4, 1.029), (8, 1.424), (16, 1.766)):
        assert slowest_of(replicas) == pytest.approx(REPLICA_SPREAD * maximum, rel=0.05)
    assert slowest_of(1) == 0


def test_contention_is_the_share_of_the_sms_and_the_dram_traffic() -> None:
    # 150 GB/s need 12 channels, so 12 of 80 SMs for 10 ms; DRAM traffic: 3 x 90 MB at 900 GB/s
    found = contention_seconds(0.01, 90e6, 150e9, 80, 900e9)
    assert found == pytest.approx(0.01 * 12 / 80 + 0.0003)
