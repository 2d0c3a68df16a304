"""The rows of a sweep that satisfy conditions, sorted by a column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from roofmodel.errors import Message, Option, Text, WorkloadError
from roofmodel.sweep.arrays import TEXT_COLUMNS, concatenated, full_column
from roofmodel.sweep.case import Columns
from roofmodel.sweep.conditions import Order, RowCondition, as_floats
from roofmodel.sweep.sweep import MAX_POINTS_IN_MEMORY, Sweep


def selected(sweep: Sweep, where: Sequence[RowCondition], sort: Order | None) -> Sweep:
    """The evaluated sweep with the rows that satisfy all conditions, in this order; the same sweep without either.

    Adds notes on points without a value in a column of a condition, and on conditions that no point satisfies. Raises
    WorkloadError for more rows than memory should hold.
    """
    if not where and sort is None:
        return sweep
    chosen_blocks, unknown, empty, rows = [], dict.fromkeys(where, 0), None, 0
    for block in sweep.blocks():
        holds = None
        for condition in where:
            holds = condition.holds(block) if holds is None else holds & condition.holds(block)
            unknown[condition] += _count_unknown(block, condition.column)
        chosen = block if holds is None else _select_points(block, holds)
        empty = empty or chosen
        if len(chosen["batch"]):
            chosen_blocks.append(chosen)
        rows += len(chosen["batch"])
        if rows > MAX_POINTS_IN_MEMORY:
            raise WorkloadError(
                f"more than {MAX_POINTS_IN_MEMORY} rows remain, which is too many to sort or select; narrow ",
                Option("where"), ", or sweep fewer values",
            )  # fmt: skip
    blocks = tuple(chosen_blocks) or ((empty,) if empty else ())
    if sort is not None and rows:
        blocks = (_sorted(blocks, sort),)
    notes = list(_notes(where, unknown, rows, sweep.points))
    return sweep._replace(rows=blocks, notes=(*sweep.notes, *notes), where=tuple(where), sort=sort)


def _notes(where: Sequence[RowCondition], unknown: dict[RowCondition, int], rows: int, points: int) -> Iterable[Text]:
    for condition in where:
        if unknown[condition]:
            yield Message(
                f"{condition.column} is unknown at {unknown[condition]} of {points} points; ", Option("where"),
                " leaves them out",
            )  # fmt: skip
    if where and not rows:
        yield f"none of {points} points satisfies {' and '.join(condition.text for condition in where)}"


def _count_unknown(block: Columns, column: str) -> int:
    if column in TEXT_COLUMNS:
        return 0
    import numpy

    return int(numpy.isnan(as_floats(full_column(block, column))).sum())


def _select_points(block: Columns, holds: Any) -> Columns:
    """The block with some of its points."""
    import numpy

    return {name: value[holds] if isinstance(value, numpy.ndarray) else value for name, value in block.items()}


def _sorted(blocks: Sequence[Columns], sort: Order) -> Columns:
    """All points in one block, sorted; points with equal values stay in the order of the grid."""
    import numpy

    table = {name: concatenated([full_column(block, name) for block in blocks]) for name in blocks[0]}
    column = table[sort.column]
    if sort.column in TEXT_COLUMNS:
        texts = [value or "" for value in column.tolist()]
        ranks = numpy.unique(numpy.array(texts), return_inverse=True)[1].astype(float)
        ranks[[not text for text in texts]] = numpy.nan
    else:
        ranks = as_floats(column)
    places = numpy.argsort(-ranks if sort.descending else ranks, kind="stable")  # NaN is last in both
    return {name: values[places] for name, values in table.items()}
