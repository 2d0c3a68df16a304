"""Load of the busiest GPU of an MoE layer: derived by hand, and compared with a simulation of the benchmarks."""

from __future__ import annotations

import random

import numpy as np
import pytest

from roofmodel.errors import WorkloadError
from roofmodel.study.benchmark.routing import busiest_gpu


def test_balanced_tokens_go_to_the_experts_in_round_robin_order() -> None:
    assert busiest_gpu("balanced", 3, 2, 8, 1) == (6, 6)  # 6 pairs, one per expert
    assert busiest_gpu("balanced", 100, 2, 8, 1) == (200, 8)
    assert busiest_gpu("balanced", 100, 2, 8, 4) == (50, 2)
    assert busiest_gpu("balanced", 1, 2, 64, 32) == (1, 1)  # 2 pairs on 32 GPUs: the busiest GPU has one


def test_a_gpu_has_all_rows_of_an_expert_that_all_tokens_use() -> None:
    assert busiest_gpu("same", 10, 2, 8, 1) == (20, 2)
    assert busiest_gpu("same", 10, 2, 8, 2) == (10, 1)
    assert busiest_gpu("same", 10, 2, 8, 8) == (10, 1)
    assert busiest_gpu("same", 10, 6, 8, 4) == (20, 2)


def test_uniform_routing_leaves_some_experts_without_a_row() -> None:
    """A token with 2 of 8 experts misses an expert with probability 3/4; three tokens miss it with 27/64."""
    assert busiest_gpu("uniform", 3, 2, 8, 1) == pytest.approx((6, 8 * 37 / 64))
    assert busiest_gpu("", 3, 2, 8, 2) == pytest.approx((3, 4 * 37 / 64))


@pytest.mark.parametrize(("tokens", "active", "experts", "gpus"), [(512, 8, 64, 1), (512, 8, 64, 8), (2, 8, 128, 4)])
def test_skewed_loads_agree_with_a_simple_simulation(tokens: int, active: int, experts: int, gpus: int) -> None:
    """Shares have the density x^-1.2 (by inversion); the largest takes the remainder; the busiest GPU counts."""
    chance, low, high = random.Random(5), 1.0, 0.8 * tokens
    if tokens * active <= experts:
        low, high = 0.01, 2.0
    rows, touched, runs = 0.0, 0.0, 400
    for _ in range(runs):
        shares = [(low**-0.2 + (high**-0.2 - low**-0.2) * chance.random()) ** -5 for _ in range(experts)]
        each = [round(share / sum(shares) * tokens * active) for share in shares]
        largest = sorted(range(experts), key=lambda i: -shares[i])
        left = tokens * active - sum(each)
        for i in largest[: abs(left)]:
            each[i] += 1 if left > 0 else -1
        per_gpu = experts // gpus
        busiest = max((each[i * per_gpu : (i + 1) * per_gpu] for i in range(gpus)), key=sum)
        rows, touched = rows + sum(busiest) / runs, touched + sum(n > 0 for n in busiest) / runs
    assert busiest_gpu("power_law_1.2", tokens, active, experts, gpus) == pytest.approx((rows, touched), rel=0.15)


def test_skew_keeps_all_rows_and_touches_fewer_experts() -> None:
    rows, touched = busiest_gpu("power_law_1.2", 64, 8, 256, 1)
    assert rows == 64 * 8
    assert touched < busiest_gpu("uniform", 64, 8, 256, 1).touched
    assert busiest_gpu("power_law_1.2", 64, 8, 256, 8).rows > 64


def test_an_expert_gets_each_token_at_most_once() -> None:
    """With top-2 routing over 2 experts each expert gets every token, whatever the shares are."""
    assert busiest_gpu("power_law_2.5", 100, 2, 2, 1) == pytest.approx((200, 2), rel=0.02)


def test_loads_of_columns_equal_those_of_single_numbers_and_gpus_need_not_divide_experts() -> None:
    shapes = [(1, 2, 10, 4), (300, 2, 10, 4), (50, 8, 64, 8)]
    columns = busiest_gpu("power_law_1", *(np.array(column, dtype=float) for column in zip(*shapes, strict=True)))
    for i, shape in enumerate(shapes):
        assert (columns.rows[i], columns.touched[i]) == busiest_gpu("power_law_1", *shape)


@pytest.mark.parametrize(
    ("distribution", "experts", "message"),
    [("zipf", 8, "unknown distribution 'zipf'; known: balanced"), ("power_law_1.2", 10**9, "at most 65536 experts")],
)
def test_an_unknown_distribution_or_too_many_experts_are_refused(distribution: str, experts: int, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        busiest_gpu(distribution, 1, 2, experts, 1)


def test_skewed_loads_are_drawn_for_at_most_65536_experts() -> None:
    assert busiest_gpu("power_law_1.2", 1, 1, 65536, 1).rows == 1
    with pytest.raises(WorkloadError, match="at most 65536 experts"):
        busiest_gpu("power_law_1.2", 1, 1, 65537, 1)
