"""A comparison as a terminal table with unmatched kernels and operators and findings; and saved to a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.compare import columns, data
from roofmodel.compare.comparison import ComparisonRow, FoundPasses, ModelComparison
from roofmodel.compare.diagnosis import reasons
from roofmodel.compare.text import duration, finding_texts, row_label
from roofmodel.errors import Option
from roofmodel.files import output_files
from roofmodel.numbers import units
from roofmodel.roofline.points import total
from roofmodel.steps.estimate import describe_phase, describe_workload

SUFFIXES = (*output_files.PICTURES, "json", "csv")
MAX_LISTED = 8  # unmatched kernels, and rows with reasons


def table(comparison: ModelComparison) -> RenderableType:
    """Rows of each phase by excess time, unmatched kernels and operators, and the findings."""
    return Group(*_blocks(comparison))


def _blocks(comparison: ModelComparison) -> Iterator[RenderableType]:
    estimate, device = comparison.estimate, comparison.identified.device
    source = {
        "given": "",
        "attributes": ", by the file's attributes",
        "assumed": ", ASSUMED",
        "file": ", from the file",
    }[comparison.identified.source]
    yield Text(f"{estimate.architecture.name} on {device.name} ({device.id}{source})", style="bold")
    matched = f"matched by {', '.join(comparison.matched_by)}"
    yield Text(f"{describe_workload(estimate)} · {comparison.profile.tool}, {matched}", style="dim")
    for passes in comparison.passes:
        rows = [row for row in comparison.rows if row.phase == passes.phase]
        yield Text()
        yield Text(_heading(comparison, passes, rows), style="bold")
        yield columns.ROWS.terminal(columns.compared_rows(comparison, passes.phase))
        yield from _reasons(comparison, rows)
        yield from _unmatched(comparison, passes.phase)
    yield Text()
    for number, sentence in enumerate(finding_texts(comparison), 1):
        yield Text(f"{number}. {sentence}")


def _heading(comparison: ModelComparison, passes: FoundPasses, rows: Sequence[ComparisonRow]) -> str:
    phase = next(describe_phase(phase) for phase in comparison.estimate.phases if phase.step.phase == passes.phase)
    count = f"{passes.used} of {passes.detected}" if passes.detected != passes.used else f"{passes.used}"
    used = f"{count} pass" if passes.detected == 1 else f"{count} passes"
    used = "part of a pass" if passes.partial else used if passes.used == 1 else f"mean of {used}"
    span = f" in a span of {duration(passes.span_seconds)}" if passes.span_seconds else ""
    expected, measured = total(row.expected_seconds for row in rows), total(row.measured_seconds for row in rows)
    sums = [
        f"bound {duration(sum(row.bound_seconds for row in rows))}",
        *([] if expected is None else [f"expected {duration(expected)}"]),
        *([] if measured is None else [f"achieved {duration(measured)}"]),
    ]
    kernels = f"{units.significant(passes.kernels)} kernels, {duration(passes.seconds)}{span}"
    return f"{phase}: {used}, {kernels}; matched operators: {', '.join(sums)}"


def _reasons(comparison: ModelComparison, rows: Sequence[ComparisonRow]) -> Iterator[RenderableType]:
    by_row = [(row_label(comparison, row), reasons(row, comparison)) for row in rows]
    lines = [f"{name}: {'; '.join(texts)}" for name, texts in by_row if texts]
    for line in lines[:MAX_LISTED]:
        yield Text(line, style="dim")
    if len(lines) > MAX_LISTED:
        yield Text(
            f"{len(lines) - MAX_LISTED} more rows have reasons; all are in {Option('format', 'json')}", style="dim"
        )


def _unmatched(comparison: ModelComparison, phase: str) -> Iterator[RenderableType]:
    kernels = [each for each in comparison.unmatched_kernels if each.phase == phase]
    if kernels:
        names = [f"{each.name} × {units.significant(each.kernels)} {duration(each.seconds)}" for each in kernels]
        sum_seconds = duration(total(each.seconds for each in kernels))
        yield Text(f"kernels without an operator, {sum_seconds}: {_listed(names, MAX_LISTED)}", style="dim")
    operators = [each for each in comparison.unmatched_operators if each.phase == phase]
    if operators:
        names = [f"{each.operator} × {units.significant(each.occurrences)}" for each in operators]
        text = f"operators without a kernel (fused into others, or not in the file): {_listed(names, 2 * MAX_LISTED)}"
        yield Text(text, style="dim")


def _listed(names: Sequence[str], limit: int) -> str:
    more = f"; {len(names) - limit} more in {Option('format', 'json')}" if len(names) > limit else ""
    return "; ".join(names[:limit]) + more


def save(comparison: ModelComparison, path: str) -> Path:
    """Write a picture (png, svg, pdf) or the data (json, csv), by the suffix."""
    from roofmodel.compare import picture

    return output_files.write(
        path,
        draw=lambda file, form: picture.draw(comparison, file, form),
        texts={"json": lambda: data.as_json(comparison), "csv": lambda: data.as_csv(comparison)},
    )
