"""`--fail-if`: the rows of a result that satisfy conditions, for a check in CI.

with checking(["tpot>20ms", "op.expected>1ms and op.group=mlp"]) as checks:
    present(report, "table")  # judges the report before anything is written
checks.failed  # the rows that satisfy a condition or cannot be judged, a line each
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from roofmodel.report.printing import result_check

if TYPE_CHECKING:
    from roofmodel.report.conditions import Condition, Row

FAILED = 3
"""The exit status if a row satisfies a condition, or cannot be judged."""


class Judgement(NamedTuple):
    """The rows that satisfy a condition or cannot be judged, a line each, and warnings."""

    failed: list[str]
    warnings: list[str]


def judge(
    rows: Sequence[Row],
    texts: Iterable[str],
    naming: Sequence[str] = (),
    identifying: Sequence[str] = (),
    short_names: Callable[[Sequence[str]], Sequence[str]] | None = None,
) -> Judgement:
    """Apply conditions to rows. Raises WorkloadError for an invalid one.

    A row has only the columns that apply to it; a condition on others passes it over. If the condition compares one of
    the `identifying` columns, it asks for these rows, and a value that they lack is unknown.

    A line begins with the row's texts in the columns `naming` and the values in `identifying`, as `RenderedResult`
    declares them. A text that no row has, such as the name of a kernel that did not run, is a warning.
    """
    from roofmodel.report.conditions import check_syntax, conditions, is_known

    judgement = Judgement([], [])
    if not rows:
        check_syntax("fail_if", texts)
        return judgement
    types: dict[str, type | None] = {}
    for row in rows:
        for column, value in row.items():
            if types.get(column) is None:
                types[column] = type(value) if is_known(value) else None
    for condition in conditions("fail_if", texts, types):
        failed = [*_failed(rows, condition, identifying)]
        names = [*dict.fromkeys(row["name"] for row in rows)] if failed and short_names else []
        short = dict(zip(names, short_names(names), strict=True)) if short_names else {}
        judgement.failed.extend(f"{_name(row, naming, identifying, short)}: {why}" for row, why in failed)
        judgement.warnings.extend(
            f"warning: --fail-if: no row has {each}"
            for each in condition.comparisons
            if each.selects_text and not any(map(each.holds, filter(each.applies_to, rows)))
        )
    return judgement


def _failed(rows: Sequence[Row], condition: Condition, identifying: Sequence[str]) -> Iterator[tuple[Row, str]]:
    """The rows that fail, and why."""
    comparisons = condition.comparisons
    asked = {column for each in comparisons for column in each.columns} & {*identifying}
    for row in rows:
        if asked.isdisjoint(row) and not all(each.applies_to(row) for each in comparisons):
            continue
        holds = condition.holds(row)
        if holds is not False:
            shown = [each for each in comparisons if not each.is_text] or comparisons
            values = ", ".join(each.shown(row) for each in shown)
            yield row, f"{values}: {'cannot be judged' if holds is None else condition}"


def _name(row: Row, naming: Sequence[str], identifying: Sequence[str], short_names: Mapping[str, str]) -> str:
    """The texts that name a row, and the values that identify it."""
    texts = {column: str(value) for column, value in row.items() if isinstance(value, str)}
    names = {column: texts[column] for column in naming or [*texts][:2] if column in texts}
    if short_names:
        names["name"] = short_names[row["name"]]
    more = {column: row[column] for column in identifying if row.get(column) is not None and column not in names}
    numbers = (
        f"{column.replace('_', ' ')} {value:g}" if isinstance(value, float) else f"{column.replace('_', ' ')} {value}"
        for column, value in more.items()
    )
    return ", ".join((" ".join(names.values()) or "row", *numbers))


@contextmanager
def checking(texts: Sequence[str]) -> Iterator[Judgement]:
    """Within this context, results that are presented are judged by these conditions."""
    judgement = Judgement([], [])
    token = result_check.set(partial(_check, texts, judgement))
    try:
        yield judgement
    finally:
        result_check.reset(token)


def _check(texts: Sequence[str], judgement: Judgement, report: Any) -> None:
    judged = judge(report.rows_to_check(), texts, report.naming, report.identifying, report.short_names)
    judgement.failed.extend(judged.failed)
    judgement.warnings.extend(judged.warnings)
