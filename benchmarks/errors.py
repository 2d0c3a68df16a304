"""Relative errors of the bound and the expected time of a phase; their means and medians as table cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import mean, median
from typing import NamedTuple, TypeVar

from roofmodel.steps.phase import PhaseEstimate

Name, Item = TypeVar("Name"), TypeVar("Item")


class RelativeErrors(NamedTuple):
    """Relative errors of a row, and whether the interval contains the measured time."""

    bound: float
    expected: float
    inside: bool


def relative_errors(phase: PhaseEstimate, measured: float) -> RelativeErrors:
    """The errors of a phase that took `measured` seconds."""
    assert phase.expected
    seconds, low, high = map(float, phase.expected)
    return RelativeErrors(float(phase.bound_seconds) / measured - 1, seconds / measured - 1, low <= measured <= high)


def by_name(pairs: Iterable[tuple[Name, Item]]) -> dict[Name, list[Item]]:
    """Items grouped by the name of their table line, in order of first appearance."""
    groups: dict[Name, list[Item]] = {}
    for name, item in pairs:
        groups.setdefault(name, []).append(item)
    return groups


def median_cells(rows: Sequence[RelativeErrors]) -> str:
    """Cells: rows, and the median errors of bound and expectation, and the bias."""
    return " | ".join((str(len(rows)), *_formatted(rows, median)))


def mean_cells(rows: Sequence[RelativeErrors]) -> str:
    """Cells: mean error of the expectation, bias."""
    return " | ".join(_formatted(rows, mean)[1:])


def summary_cells(rows: Sequence[RelativeErrors]) -> str:
    """Cells: rows; mean error of bound and expectation; bias; median error; share inside the interval."""
    bound, expected, bias = _formatted(rows, mean)
    inside = mean(row.inside for row in rows)
    return " | ".join((str(len(rows)), bound, expected, bias, _formatted(rows, median)[1], f"{inside:.0%}"))


def _formatted(rows: Iterable[RelativeErrors], of: Callable[[Iterable[float]], float]) -> tuple[str, str, str]:
    bound, expected, _ = zip(*rows, strict=True)
    return f"{of(map(abs, bound)):.0%}", f"{of(map(abs, expected)):.0%}", f"{of(expected):+.0%}"
