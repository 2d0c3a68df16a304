"""The rows of a sweep that satisfy conditions, sorted by a column."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from roofmodel.errors import Message, Option, Text, WorkloadError
from roofmodel.report.conditions import Comparison, Condition, columns_named
from roofmodel.sweep.case import COLUMNS, SCALING_COLUMNS, SERVING_COLUMNS, Columns
from roofmodel.sweep.data import TEXT_COLUMNS, concatenated, full_column
from roofmodel.sweep.sweep import MAX_POINTS_IN_MEMORY, Order, Sweep
from roofmodel.sweep.tables import BY_KEY, FLAG


def _types(names: Iterable[str]) -> dict[str, type]:
    is_flag = {name: BY_KEY[name].unit is FLAG for name in BY_KEY}
    return {name: str if name in TEXT_COLUMNS else bool if is_flag.get(name) else float for name in names}


TYPES = _types((*COLUMNS, *SCALING_COLUMNS))
SERVING_TYPES = TYPES | _types(SERVING_COLUMNS)
"""The types of the columns, and of those of `--phase serve`."""


def order(text: str | None, types: Mapping[str, type]) -> Order | None:
    """The order in `tpot`, or `-tokens_per_second` for the largest first. Raises WorkloadError for no column."""
    if text is None:
        return None
    name = text.strip()
    columns = columns_named("sort", name.removeprefix("-"), types, is_size=True)
    return Order(columns, name.startswith("-"), name)


def selected(sweep: Sweep, where: Sequence[Condition], sort: Order | None) -> Sweep:
    """The evaluated sweep with the rows that satisfy all conditions, in this order; the same sweep without either.

    Adds notes on points without a value in a column of a condition, and on conditions that no point satisfies. Raises
    WorkloadError for more rows than memory should hold.
    """
    if not where and sort is None:
        return sweep
    comparisons = [comparison for condition in where for comparison in condition.comparisons]
    chosen_blocks, unknown, empty, rows = [], dict.fromkeys(comparisons, 0), None, 0
    for block in sweep.blocks():
        chosen = block
        if comparisons:
            chosen = _select_points(block, reduce(operator.and_, (holds(each, block) for each in comparisons)))
        for each in comparisons:
            unknown[each] += _count_unknown(block, each.columns)
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


def _notes(where: Sequence[Condition], unknown: dict[Comparison, int], rows: int, points: int) -> Iterable[Text]:
    for comparison, count in unknown.items():
        if count:
            name = " and ".join(comparison.columns)
            yield Message(f"{name} is unknown at {count} of {points} points; ", Option("where"), " leaves them out")
    if where and not rows:
        yield f"none of {points} points satisfies {' and '.join(map(str, where))}"


def _count_unknown(block: Columns, columns: Sequence[str]) -> int:
    if columns[0] in TEXT_COLUMNS:
        return 0
    import numpy

    return int(numpy.isnan(_numbers(block, columns)).sum())


def holds(comparison: Comparison, block: Columns) -> Any:
    """A bool for each point of a block: whether it satisfies the comparison. False where the value is unknown."""
    import numpy

    if comparison.is_text:
        values = full_column(block, comparison.columns[0]).tolist()
        return numpy.array([value is not None and comparison.holds_for(value) for value in values], dtype=bool)
    numbers = _numbers(block, comparison.columns)
    return comparison.holds_for(numbers) & ~numpy.isnan(numbers)


def _numbers(block: Columns, columns: Sequence[str]) -> Any:
    """For each point the value of the first of these columns that has one, as a float; NaN if none has."""
    import numpy

    arrays = [_as_floats(full_column(block, column)) for column in columns]
    return reduce(lambda first, other: numpy.where(numpy.isnan(first), other, first), arrays)


def _as_floats(column: Any) -> Any:
    """A column as floats, NaN for unknown."""
    import numpy

    if column.dtype != object:
        return column.astype(float)
    return numpy.array([float("nan") if value is None else float(value) for value in column.tolist()])


def _select_points(block: Columns, holds: Any) -> Columns:
    """The block with some of its points."""
    import numpy

    return {name: value[holds] if isinstance(value, numpy.ndarray) else value for name, value in block.items()}


def _sorted(blocks: Sequence[Columns], sort: Order) -> Columns:
    """All points in one block, sorted; points with equal values stay in the order of the grid."""
    import numpy

    table = {name: concatenated([full_column(block, name) for block in blocks]) for name in blocks[0]}
    if sort.columns[0] in TEXT_COLUMNS:
        texts = [value or "" for value in table[sort.columns[0]].tolist()]
        ranks = numpy.unique(numpy.array(texts), return_inverse=True)[1].astype(float)
        ranks[[not text for text in texts]] = numpy.nan
    else:
        ranks = _numbers(table, sort.columns)
    places = numpy.argsort(-ranks if sort.descending else ranks, kind="stable")  # NaN is last in both
    return {name: values[places] for name, values in table.items()}
