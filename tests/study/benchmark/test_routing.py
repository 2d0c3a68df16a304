"""How many rows the busiest GPU of a mixture has: by hand, and against a plain simulation of what benchmarks draw."""

from __future__ import annotations

import random

import numpy as np
import pytest

from roofmodel.errors import WorkloadError
from roofmodel.study.benchmark.routing import busiest


def test_tokens_dealt_in_turn_fill_experts_one_after_the_other() -> None:
    assert busiest("balanced", 3, 2, 8, 1) == (6, 6)  # 6 pairs, an expert each
    assert busiest("balanced", 100, 2, 8, 1) == (200, 8)
    assert busiest("balanced", 100, 2, 8, 4) == (50, 2)
    assert busiest("balanced", 1, 2, 64, 32) == (1, 1)  # 2 pairs on 32 GPUs: the busiest has one


def test_a_router_at_random_leaves_some_experts_without_a_row() -> None:
    """An expert of 8 is missed by a token that chooses 2 with 3/4, by three of them with 27/64."""
    assert busiest("uniform", 3, 2, 8, 1) == pytest.approx((6, 8 * 37 / 64))
    assert busiest("", 3, 2, 8, 2) == pytest.approx((3, 4 * 37 / 64))


@pytest.mark.parametrize(("tokens", "active", "experts", "gpus"), [(512, 8, 64, 1), (512, 8, 64, 8), (2, 8, 128, 4)])
def test_skewed_loads_are_those_of_a_plain_simulation(tokens: int, active: int, experts: int, gpus: int) -> None:
    """Shares of density x^-1.2 by inversion; rounding's rest to the largest; the GPU that has most rows."""
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
        held = experts // gpus
        most = max((each[i * held : (i + 1) * held] for i in range(gpus)), key=sum)
        rows, touched = rows + sum(most) / runs, touched + sum(n > 0 for n in most) / runs
    assert busiest("power_law_1.2", tokens, active, experts, gpus) == pytest.approx((rows, touched), rel=0.15)


def test_skew_leaves_all_rows_and_fewer_experts() -> None:
    rows, touched = busiest("power_law_1.2", 64, 8, 256, 1)
    assert rows == 64 * 8
    assert touched < busiest("uniform", 64, 8, 256, 1).touched
    assert busiest("power_law_1.2", 64, 8, 256, 8).rows > 64


def test_no_expert_has_a_token_twice() -> None:
    """Two experts of two: each has every token, whatever the shares say."""
    assert busiest("power_law_2.5", 100, 2, 2, 1) == pytest.approx((200, 2), rel=0.02)


def test_columns_are_as_single_numbers_and_experts_need_not_divide() -> None:
    shapes = [(1, 2, 10, 4), (300, 2, 10, 4), (50, 8, 64, 8)]
    many = busiest("power_law_1", *(np.array(column, dtype=float) for column in zip(*shapes, strict=True)))
    for i, shape in enumerate(shapes):
        assert (many.rows[i], many.touched[i]) == busiest("power_law_1", *shape)


@pytest.mark.parametrize(
    ("distribution", "experts", "message"),
    [("zipf", 8, "unknown distribution 'zipf'; known: balanced"), ("power_law_1.2", 10**9, "at most 65536 experts")],
)
def test_what_cannot_be_drawn_is_refused(distribution: str, experts: int, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        busiest(distribution, 1, 2, experts, 1)
