"""Runs with planted delays, written as the per-step tables of the lecture on jitter."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.many_ranks import COLUMNS, Plant, Run, rows
from roofmodel.jitter.jitter import Jitter, jitter

Row = tuple[object, ...]


def planted(*plants: tuple[str, int, float], **sizes: int) -> Run:
    """A run of 16 ranks, 120 kernels and 10 steps with planted delays: kind, rank and share of the step."""
    return Run(**{"ranks": 16, "kernels": 120, "steps": 10} | sizes)._replace(
        plants=[Plant(*plant) for plant in plants]
    )


def tables(run: Run) -> dict[int, list[Row]]:
    """The rows of each rank."""
    found: dict[int, list[Row]] = {}
    for rank, table in rows(run, range(run.ranks)):
        found.setdefault(rank, []).extend(table)
    return found


def write(path: Path, table: Iterable[Row]) -> str:
    """Write rows as CSV; return the path."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *table])
    return str(path)


def written(folder: Path, run: Run, change: Callable[[dict[int, list[Row]]], None] = lambda _: None) -> list[str]:
    """Write a file per rank, after a change of the tables; return the paths."""
    found = tables(run)
    change(found)
    return [write(folder / f"rank{rank:03}.csv", table) for rank, table in found.items()]


def analyzed(folder: Path, *plants: tuple[str, int, float], **sizes: int) -> Jitter:
    """The comparison of the ranks of a run."""
    return jitter(written(folder, planted(*plants, **sizes)))


def of_step(table: Sequence[Row], step: int) -> list[Row]:
    """The rows of one step."""
    return [row for row in table if f"step{2000 + step}-" in str(row[0])]
