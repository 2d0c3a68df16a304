"""The alignment against what a search through all pairings finds, and on patterns that are plain to see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.study.compare.alignment import NEVER, WITHIN, Costs, Pair, align


def costs_of(letters: str, pattern: str) -> list[Costs]:
    """A letter is its own operator for nothing; others cost too much; two letters in one: capitals take two."""
    found = []
    for letter in letters:
        single = np.array([0.0 if letter == p else NEVER for p in pattern])
        double = np.array(
            [0.0 if letter == p.upper() and i + 1 < len(pattern) else NEVER for i, p in enumerate(pattern)]
        )
        found.append(Costs([single, double], single + 0.5, 1.5))
    return found


def aligned(letters: str, *patterns: str) -> list[tuple[int, int, tuple[int, ...]]]:
    whole = "".join(patterns)
    costs = costs_of(letters, whole)
    pairs = align(len(letters), costs.__getitem__, [len(p) for p in patterns], np.ones(len(whole))).pairs
    return [(pair.step, pair.pattern, pair.operators) for pair in pairs]


def test_a_pattern_that_repeats_is_cut_where_it_begins() -> None:
    assert aligned("abcabc", "abc") == [
        (0, 0, (0,)),
        (0, 0, (1,)),
        (0, 0, (2,)),
        (1, 0, (0,)),
        (1, 0, (1,)),
        (1, 0, (2,)),
    ]


def test_a_fused_item_takes_a_run_and_a_stranger_none() -> None:
    assert aligned("Axc", "abc") == [(0, 0, (0, 1)), (0, 0, ()), (0, 0, (2,))]


def test_a_further_item_belongs_to_the_operator_before_it() -> None:
    assert aligned("abbc", "abc") == [(0, 0, (0,)), (0, 0, (1,)), (0, 0, (1,)), (0, 0, (2,))]


def test_each_pass_is_of_the_pattern_that_fits() -> None:
    assert [(step, pattern) for step, pattern, _ in aligned("abcaddabc", "abc", "add")] == [
        *[(0, 0)] * 3, *[(1, 1)] * 3, *[(2, 0)] * 3,
    ]  # fmt: skip


def test_an_item_that_is_nothing_alone_leaves_everything_unpaired() -> None:
    assert aligned("xyz", "abc") == [(0, 0, ())] * 3


@given(st.text("abxAB", max_size=6), st.text("ab", min_size=1, max_size=3))
def test_no_pairing_is_cheaper(letters: str, pattern: str) -> None:
    costs = costs_of(letters, pattern)
    found = align(len(letters), costs.__getitem__, [len(pattern)], np.ones(len(pattern)))
    assert paid(found.pairs, costs, len(pattern)) == pytest.approx(found.cost)
    assert found.cost == pytest.approx(cheapest(costs, len(pattern)))


def paid(pairs: list[Pair], costs: list[Costs], length: int) -> float:
    """What a pairing costs: its items, and the operators that it skips."""
    whole, done, step = 0.0, 0, 0
    for pair, cost in zip(pairs, costs, strict=True):
        if not pair.operators:
            whole += cost.alone
            continue
        first, last = pair.operators[0], pair.operators[-1] + 1
        if pair.extra:
            whole += float(cost.extra[first])
            assert (pair.step, last) == (step, done)
            continue
        skipped = first - done if pair.step == step else length - done + first
        at_start = whole == sum(c.alone for c in costs[: pair.item])
        whole += min(float(skipped), WITHIN) if at_start else skipped
        whole += float(cost.runs[len(pair.operators) - 1][first])
        done, step = last, pair.step
    return whole + (0.0 if done in (0, length) else min(WITHIN, length - done))


def cheapest(costs: list[Costs], length: int) -> float:
    """The least cost over all ways, by following every one: a state is how many operators of a pass are done."""
    states = {done: min(WITHIN, float(done)) for done in range(length + 1)}
    for cost in costs:
        after: dict[int, float] = {}
        for done, so_far in states.items():
            ways = [(done, cost.alone)] + ([(done, float(cost.extra[done - 1]))] if done else [])
            ways += [(done + n, float(run[done])) for n, run in enumerate(cost.runs, 1) if done + n <= length]
            for state, price in ways:
                after[state] = min(after.get(state, np.inf), so_far + price)
        for _ in range(2):  # once to the end of the pass, once from the start of the next
            for done in range(length):
                if done in after:
                    after[done + 1] = min(after.get(done + 1, np.inf), after[done] + 1)
            if length in after:
                after[0] = min(after.get(0, np.inf), after[length])
        states = after
    return min(so_far + (0.0 if state in (0, length) else WITHIN) for state, so_far in states.items())
