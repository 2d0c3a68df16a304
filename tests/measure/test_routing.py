"""Load of the busiest GPU of an MoE layer: derived by hand, and compared with a simulation of the benchmarks."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.errors import WorkloadError
from roofmodel.measure.routing import ExpertGroups, _add_to_smallest, busiest_gpu


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


def _one_by_one(
    chance: random.Random, exponent: float, tokens: int, active: int, experts: int, gpus: int
) -> list[list[int]]:
    """Rows of each expert by GPU: shares by inversion, rounded; then the GPUs in turn correct the sum, row by row."""
    low, high, power = 1.0, 0.8 * tokens, 1 - exponent
    if tokens * active <= experts:
        low, high = 0.01, 2.0
    shares = [(low**power + (high**power - low**power) * chance.random()) ** (1 / power) for _ in range(experts)]
    each = [min(round(share / sum(shares) * tokens * active), tokens) for share in shares]
    per_gpu = experts // gpus
    by_gpu = [each[i * per_gpu : (i + 1) * per_gpu] for i in range(gpus)]
    gpu = 0
    while (missing := tokens * active - sum(map(sum, by_gpu))) != 0:
        rows = by_gpu[gpu % gpus]
        if missing > 0 and min(rows) < tokens:
            rows[rows.index(min(rows))] += 1
        elif missing < 0 < max(rows):
            rows[rows.index(max(rows))] -= 1
        gpu += 1
    return by_gpu


@pytest.mark.parametrize(
    ("tokens", "active", "experts", "gpus"), [(512, 8, 64, 1), (512, 8, 64, 8), (2, 8, 128, 4), (8, 8, 256, 1)]
)
def test_skewed_loads_agree_with_a_simple_simulation(tokens: int, active: int, experts: int, gpus: int) -> None:
    chance, rows, touched, runs = random.Random(5), 0.0, 0.0, 200
    for _ in range(runs):
        busiest = max(_one_by_one(chance, 1.2, tokens, active, experts, gpus), key=sum)
        rows, touched = rows + sum(busiest) / runs, touched + sum(n > 0 for n in busiest) / runs
    assert busiest_gpu("power_law_1.2", tokens, active, experts, gpus) == pytest.approx((rows, touched), rel=0.07)


@given(
    st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=1, max_size=3),
    st.integers(0, 40),
)
def test_missing_rows_go_to_the_smallest_counts_in_turn(counts: list[list[int]], added: int) -> None:
    """The result equals that of adding row by row, except for the order of GPUs after one GPU is full."""
    expected, gpu, limit = [list(rows) for rows in counts], 0, 5
    added = min(added, limit * 4 * len(counts) - sum(map(sum, counts)))
    for _ in range(added):
        while min(expected[gpu % len(counts)]) == limit:
            gpu += 1
        rows = expected[gpu % len(counts)]
        rows[rows.index(min(rows))] += 1
        gpu += 1
    limits = np.full((len(counts), 4), float(limit))
    found = _add_to_smallest(np.array([counts], dtype=float), np.array([float(added)]), limits)[0]
    assert found.sum() == sum(map(sum, expected))
    assert (found >= counts).all()
    assert found.max() <= limit
    if all(min(rows) < limit for rows in expected):
        assert np.sort(found, axis=1).tolist() == [sorted(rows) for rows in expected]


def test_groups_of_experts_move_balanced_tokens_to_the_first_gpu() -> None:
    """Each token prefers one expert in each of 8 groups of 32, but may use only 4 groups. All groups have equal scores,
    so it takes its preferred experts in the first 4 groups, and then the experts with the lowest indices (0 to 3 or 4).
    """
    groups = ExpertGroups(groups=8, chosen=4)
    rows = dict.fromkeys(range(256), 0)
    for token in range(64):
        preferred = [token % 32 + 32 * group for group in range(4)]
        others = [expert for expert in range(128) if expert not in preferred]
        for expert in (*preferred, *others[:4]):
            rows[expert] += 1
    first = [rows[expert] for expert in range(8)]  # of 32 GPUs
    assert busiest_gpu("balanced", 64, 8, 256, 32, groups) == (sum(first), 8)
    assert busiest_gpu("balanced", 64, 8, 256, 1, groups) == (512, 128)
    assert busiest_gpu("balanced", 64, 8, 256, 32) == (16, 8)


def test_groups_of_experts_keep_all_rows_of_skewed_tokens() -> None:
    rows, touched = busiest_gpu("power_law_1.2", 128, 8, 256, 1, ExpertGroups(groups=8, chosen=4))
    assert rows == 128 * 8
    assert 0 < touched <= 256


def test_skew_keeps_all_rows_and_touches_fewer_experts() -> None:
    rows, touched = busiest_gpu("power_law_1.2", 64, 8, 256, 1)
    assert rows == 64 * 8
    assert touched < busiest_gpu("uniform", 64, 8, 256, 1).touched
    assert busiest_gpu("power_law_1.2", 64, 8, 256, 8).rows > 64


def test_an_expert_gets_each_token_at_most_once() -> None:
    """With top-2 routing over 2 experts, each expert gets every token for any shares."""
    assert busiest_gpu("power_law_2.5", 100, 2, 2, 1) == pytest.approx((200, 2), rel=0.02)


def test_loads_of_columns_equal_those_of_single_numbers_and_gpus_need_not_divide_experts() -> None:
    shapes = [(1, 2, 10, 4), (300, 2, 10, 4), (50, 8, 64, 8)]
    for distribution, groups in (
        ("power_law_1", None), ("power_law_1", ExpertGroups(2, 1)), ("balanced", ExpertGroups(2, 1))
    ):  # fmt: skip
        shape_columns = (np.array(column, dtype=float) for column in zip(*shapes, strict=True))
        columns = busiest_gpu(distribution, *shape_columns, groups)
        for i, shape in enumerate(shapes):
            assert (columns.rows[i], columns.touched[i]) == busiest_gpu(distribution, *shape, groups)


def test_the_last_gpu_has_fewer_experts_where_the_gpus_do_not_divide_them() -> None:
    """One token uses all experts of one of two groups; 3 GPUs have 4, 4 and 2 of the 10 experts."""
    assert busiest_gpu("balanced", 1, 5, 10, 3, ExpertGroups(2, 1)) == (4, 4)
    assert busiest_gpu("balanced", 10, 5, 10, 3, ExpertGroups(2, 1)).rows == 40


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
