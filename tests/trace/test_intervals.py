"""Sets of time intervals, compared with sets of integers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roofmodel.trace import intervals
from roofmodel.trace.intervals import Intervals

Pairs = list[tuple[int, int]]
PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=8)


def covering(pairs: Pairs) -> tuple[Intervals, set[int]]:
    """The set as intervals and as the integers that it contains."""
    starts, lengths = [p[0] for p in pairs], [p[1] for p in pairs]
    points = {t for start, length in pairs for t in range(start, start + length)}
    return intervals.union(starts, [s + n for s, n in zip(starts, lengths, strict=True)]), points


def points(found: Intervals) -> set[int]:
    return {t for start, end in found.tolist() for t in range(start, end)}


@given(PAIRS, PAIRS)
def test_set_operations_equal_those_of_integer_sets(first: Pairs, second: Pairs) -> None:
    (a, in_a), (b, in_b) = covering(first), covering(second)
    assert points(a) == in_a
    assert points(intervals.join(a, b)) == in_a | in_b
    assert points(intervals.intersect(a, b)) == in_a & in_b
    assert points(intervals.subtract(a, b)) == in_a - in_b
    assert intervals.length(a) == len(in_a)


@given(PAIRS, st.integers(0, 50), st.integers(0, 20))
def test_windows_equal_those_of_integer_sets(pairs: Pairs, start: int, length: int) -> None:
    found, inside = covering(pairs)
    window = set(range(start, start + length))
    assert points(intervals.gaps(found, start, start + length)) == window - inside
    assert points(intervals.clip(found, start, start + length)) == window & inside
    assert intervals.covered(found, [start], [start + length])[0] == len(window & inside)


@given(PAIRS)
def test_intervals_are_sorted_and_do_not_touch(pairs: Pairs) -> None:
    found = covering(pairs)[0]
    assert (found[:, 0] < found[:, 1]).all()
    assert (found[1:, 0] > found[:-1, 1]).all()
