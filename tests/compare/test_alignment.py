"""Alignment of kernels with repeated patterns of operators, compared with an exhaustive search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.compare.alignment import IMPOSSIBLE, PARTIAL_PASS, AlignedItem, PairingCosts, align


def costs_of(letters: str, pattern: str) -> list[PairingCosts]:
    """A letter matches its operator at no cost; a capital letter matches two; other matches are impossible."""
    found = []
    for letter in letters:
        single = np.array([0.0 if letter == p else IMPOSSIBLE for p in pattern])
        double = np.array(
            [0.0 if letter == p.upper() and i + 1 < len(pattern) else IMPOSSIBLE for i, p in enumerate(pattern)]
        )
        found.append(PairingCosts([single, double], single + 0.5, 1.5))
    return found


def aligned(letters: str, *patterns: str) -> list[tuple[int, int, tuple[int, ...]]]:
    pattern = "".join(patterns)
    costs = costs_of(letters, pattern)
    pairs = align(len(letters), costs.__getitem__, [len(p) for p in patterns], np.ones(len(pattern))).pairs
    return [(pair.step, pair.pattern, pair.operators) for pair in pairs]


def test_each_repetition_of_a_pattern_is_a_pass() -> None:
    assert aligned("abcabc", "abc") == [
        (0, 0, (0,)),
        (0, 0, (1,)),
        (0, 0, (2,)),
        (1, 0, (0,)),
        (1, 0, (1,)),
        (1, 0, (2,)),
    ]


def test_a_fused_kernel_is_matched_with_several_operators_and_an_unknown_kernel_with_none() -> None:
    assert aligned("Axc", "abc") == [(0, 0, (0, 1)), (0, 0, ()), (0, 0, (2,))]


def test_a_second_kernel_of_an_operator_is_matched_with_it() -> None:
    assert aligned("abbc", "abc") == [(0, 0, (0,)), (0, 0, (1,)), (0, 0, (1,)), (0, 0, (2,))]


def test_each_pass_follows_the_pattern_that_fits_it() -> None:
    assert [(step, pattern) for step, pattern, _ in aligned("abcaddabc", "abc", "add")] == [
        *[(0, 0)] * 3, *[(1, 1)] * 3, *[(2, 0)] * 3,
    ]  # fmt: skip


def test_unknown_kernels_stay_unmatched() -> None:
    assert aligned("xyz", "abc") == [(0, 0, ())] * 3


@given(st.text("abxAB", max_size=6), st.text("ab", min_size=1, max_size=3))
def test_no_other_alignment_costs_less(letters: str, pattern: str) -> None:
    costs = costs_of(letters, pattern)
    found = align(len(letters), costs.__getitem__, [len(pattern)], np.ones(len(pattern)))
    assert cost_of(found.pairs, costs, len(pattern)) == pytest.approx(found.cost)
    assert found.cost == pytest.approx(lowest_cost(costs, len(pattern)))


def cost_of(pairs: list[AlignedItem], costs: list[PairingCosts], length: int) -> float:
    """The cost of an alignment: its pairs, unmatched kernels and skipped operators."""
    total, done, step = 0.0, 0, 0
    for pair, cost in zip(pairs, costs, strict=True):
        if not pair.operators:
            total += cost.unmatched
            continue
        first, last = pair.operators[0], pair.operators[-1] + 1
        if pair.extra:
            total += float(cost.extra[first])
            assert (pair.step, last) == (step, done)
            continue
        skipped = first - done if pair.step == step else length - done + first
        at_start = total == sum(c.unmatched for c in costs[: pair.item])
        total += min(float(skipped), PARTIAL_PASS) if at_start else skipped
        total += float(cost.runs[len(pair.operators) - 1][first])
        done, step = last, pair.step
    return total + (0.0 if done in (0, length) else min(PARTIAL_PASS, length - done))


def lowest_cost(costs: list[PairingCosts], length: int) -> float:
    """The lowest cost over all alignments. A state is the number of completed operators of the current pass."""
    states = {done: min(PARTIAL_PASS, float(done)) for done in range(length + 1)}
    for cost in costs:
        after: dict[int, float] = {}
        for done, cost_so_far in states.items():
            transitions = [(done, cost.unmatched)] + ([(done, float(cost.extra[done - 1]))] if done else [])
            transitions += [
                (done + n, float(run_costs[done])) for n, run_costs in enumerate(cost.runs, 1) if done + n <= length
            ]
            for state, added_cost in transitions:
                after[state] = min(after.get(state, np.inf), cost_so_far + added_cost)
        for _ in range(2):  # first to the end of the pass, then from the start of the next pass
            for done in range(length):
                if done in after:
                    after[done + 1] = min(after.get(done + 1, np.inf), after[done] + 1)
            if length in after:
                after[0] = min(after.get(0, np.inf), after[length])
        states = after
    return min(cost_so_far + (0.0 if state in (0, length) else PARTIAL_PASS) for state, cost_so_far in states.items())
