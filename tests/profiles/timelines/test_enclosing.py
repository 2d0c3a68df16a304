"""Ranges that enclose a launch, compared with their definition: every range is compared with every launch."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.profiles.columns import ColumnTable
from roofmodel.profiles.kernel import KernelTable
from roofmodel.profiles.timelines import enclosing
from roofmodel.profiles.timelines.timeline import RANGES
from tests.operations import operations


class Range(NamedTuple):
    process: str | None
    thread: str | None
    start: int
    end: int
    name: str


class Launch(NamedTuple):
    process: str | None
    thread: str | None
    time: int


def tables(ranges: list[Range], launches: list[Launch]) -> tuple[KernelTable, ColumnTable]:
    of_ranges, work = ColumnTable(RANGES), KernelTable()
    for each in ranges:
        of_ranges.add(**each._asdict())
    for process, thread, moment in launches:
        work.add(process=process, launch_thread=thread, launch_start=moment, start=1000, end=1001)
    return work, of_ranges


def defined(ranges: list[Range], launch: Launch) -> tuple[str, ...]:
    enclosed = [r for r in ranges if r.process == launch.process and r.start <= launch.time < r.end]
    threads = {r.thread for r in enclosed} - {None}
    if launch.thread in threads:
        threads = {launch.thread}
    elif len(threads) > 1:
        threads = set()
    kept = [r for r in enclosed if r.thread is None or r.thread in threads]
    return tuple(r.name for r in sorted(kept, key=lambda r: (r.start, -r.end)))


PLACES = st.sampled_from([None, "1", "2", "3"])
TIMES = st.integers(0, 30)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(PLACES, PLACES, TIMES, st.integers(1, 30)), max_size=14),
    st.lists(st.tuples(PLACES, PLACES, TIMES), max_size=6),
)
def test_the_ranges_of_a_launch_are_those_of_the_definition(spans: list[Any], launched: list[Any]) -> None:
    """Ranges nest, overlap and repeat; two of equal start and end have no order, so each span occurs once."""
    distinct = {(process, start, start + length): thread for process, thread, start, length in spans}
    ranges = [Range(key[0], thread, *key[1:], f"range {i}") for i, (key, thread) in enumerate(distinct.items())]
    launches = [Launch(*each) for each in launched]
    work, events = tables(ranges, launches)
    found = enclosing.names_outermost_first(work, events, enclosing.place(work, events))
    expected = [defined(ranges, launch) for launch in launches]
    assert found == expected
    assert enclosing.innermost_names(work, events) == [names[-1] if names else None for names in expected]


@pytest.mark.parametrize("after", [0, 10**6])
def test_the_time_for_nested_ranges_grows_with_their_number(after: int) -> None:
    """Launches inside all ranges, or after their ends. Four times as many of both need four times the operations."""

    def needed(number: int) -> int:
        ranges = [Range("p", "1", i, 2 * number + 10**5 - i, "r") for i in range(number)]
        work, events = tables(ranges, [Launch("p", "1", number + after + i) for i in range(number)])
        return operations(lambda: enclosing.innermost_names(work, events))

    assert needed(4000) < 5 * needed(1000)


def test_the_time_for_overlapping_ranges_grows_with_their_number() -> None:
    """Ten ranges are open at each launch; all ranges before are parents of each other."""

    def needed(number: int) -> int:
        ranges = [Range("p", "1", i, i + 10, "r") for i in range(number)]
        work, events = tables(ranges, [Launch("p", "1", i) for i in range(number)])
        found = enclosing.place(work, events)
        assert enclosing.names_outermost_first(work, events, found)[-1] == 10 * ("r",)
        return operations(lambda: enclosing.names_outermost_first(work, events, found))

    assert needed(2000) < 5 * needed(500)
