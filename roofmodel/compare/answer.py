"""The answer of `roof compare`: a table for each phase, what did not match, and what was found, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from roofmodel.compare.columns import ROWS, compared_rows, duration, row_label
from roofmodel.compare.comparison import ComparisonFinding, ComparisonRow, FoundPasses, ModelComparison
from roofmodel.compare.diagnosis import reasons
from roofmodel.counting.workload import UNIFORM
from roofmodel.errors import Message, Option, Text
from roofmodel.numbers import units
from roofmodel.report.document import Block, Document, Figure, Heading, Items, Paragraph, Rows
from roofmodel.roofline.points import total
from roofmodel.steps.estimate import describe_phase, describe_workload
from roofmodel.timing.roofline import with_fp16_accumulation

MAX_LISTED = 8  # unmatched kernels, and rows with reasons, in a terminal
CATEGORIES = 3  # of unmatched kernels that a finding lists


def document(comparison: ModelComparison, most: int | None = MAX_LISTED) -> Document:
    """Rows of each phase by excess time, unmatched kernels and operators, and the findings.

    At most `most` kernels are listed, and as many rows with reasons; None: all.
    """
    estimate, device = comparison.estimate, comparison.identified.device
    source = {
        "given": "",
        "attributes": ", by the file's attributes",
        "assumed": ", ASSUMED",
        "file": ", from the file",
    }[comparison.identified.source]
    title = f"{estimate.architecture.name} on {device.name}"
    matched = f"matched by {', '.join(comparison.matched_by)}"
    blocks: list[Block] = [
        Paragraph(f"{describe_workload(estimate)} · {comparison.profile.tool}, {matched}", dim=True),
        Figure(partial(_draw, comparison), f"{title}: the bound, the expected and the achieved time of each operator"),
    ]
    for passes in comparison.passes:
        rows = [row for row in comparison.rows if row.phase == passes.phase]
        blocks += [Heading(_heading(comparison, passes, rows)), Rows(ROWS, compared_rows(comparison, passes.phase))]
        blocks += [Paragraph(line, dim=True) for line in _reasons(comparison, rows, most)]
        blocks += [Paragraph(line, dim=True) for line in _unmatched(comparison, passes.phase, most)]
    if texts := finding_texts(comparison):
        blocks += [Heading("Findings", only_page=True), Items(texts, numbered=True)]
    return Document(
        f"{title} ({device.id}{source})",
        blocks,
        partial(_data, comparison),
        lambda: Rows(ROWS, compared_rows(comparison)),
    )


def _draw(comparison: ModelComparison, path: Path, form: str) -> None:
    from roofmodel.compare.picture import draw

    draw(comparison, finding_texts(comparison), path, form)


def _data(comparison: ModelComparison) -> dict[str, Any]:
    from roofmodel.compare.data import to_dict

    return to_dict(comparison, finding_texts(comparison))


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


def _reasons(comparison: ModelComparison, rows: Sequence[ComparisonRow], most: int | None) -> Iterator[str]:
    by_row = [(row_label(comparison, row), reasons(row, comparison)) for row in rows]
    lines = [f"{name}: {'; '.join(texts)}" for name, texts in by_row if texts]
    yield from lines[:most]
    if rest := len(lines[most:]) if most else 0:
        yield f"{rest} more rows have reasons; all are in {Option('format', 'json')}"


def _unmatched(comparison: ModelComparison, phase: str, most: int | None) -> Iterator[str]:
    kernels = [each for each in comparison.unmatched_kernels if each.phase == phase]
    if kernels:
        names = [f"{each.name} × {units.significant(each.kernels)} {duration(each.seconds)}" for each in kernels]
        sum_seconds = duration(total(each.seconds for each in kernels))
        yield f"kernels without an operator, {sum_seconds}: {_listed(names, most)}"
    operators = [each for each in comparison.unmatched_operators if each.phase == phase]
    if operators:
        names = [f"{each.operator} × {units.significant(each.occurrences)}" for each in operators]
        yield f"operators without a kernel (fused into others, or not in the file): {_listed(names, most and 2 * most)}"


def _listed(names: Sequence[str], most: int | None) -> str:
    more = f"; {len(names) - most} more in {Option('format', 'json')}" if most and len(names) > most else ""
    return "; ".join(names[:most]) + more


# --- The findings, in sentences -------------------------------------------------------------------


def finding_texts(comparison: ModelComparison) -> list[str]:
    """One sentence per finding, most important first."""
    return [str(_SENTENCES[finding.kind](comparison, finding)) for finding in comparison.findings]


def _weights(comparison: ModelComparison, finding: ComparisonFinding) -> Text:
    return (
        f"{finding.share:.0%} of the GEMMs in the file have weight sizes that {_model(comparison)} does not have "
        f"({finding.detail}): check that the file is of this model, complete and on one GPU"
    )


def _rows(comparison: ModelComparison, finding: ComparisonFinding) -> Text:
    given_rows = next(gemm.given_rows for gemm in comparison.gemms if gemm.phase == finding.phase)
    workload, rows = comparison.estimate.workload, int(finding.detail)
    tokens = 1 if finding.phase == "decode" else workload.seq
    fix: Text = Message(Option("batch", rows // tokens))
    if finding.phase != "decode" and not comparison.estimate.architecture.image:
        fix = Message(Option("batch"), " and ", Option("seq"), f" whose product is {rows}")
    elif rows % tokens:
        fix = Message(Option("batch"), " and ", Option("image"), " of the file")
    return Message(
        f"GEMMs in the file have {rows} rows of tokens, but the given workload has {given_rows}: all predicted figures "
        "are of another workload; use ",
        fix,
    )


def _layers(comparison: ModelComparison, finding: ComparisonFinding) -> Text:
    mismatch = next(layers for layers in comparison.layer_mismatches if layers.phase == finding.phase)
    model, check = _model(comparison), "check that the file is of this model"
    if mismatch.kind == "named":
        return f"ranges in the file name layer {mismatch.measured}, but {model} has {mismatch.expected} layers: {check}"
    if mismatch.kind == "end":
        return (
            f"the file ends after {mismatch.measured} layers and one more GEMM, which may be the head, but "
            f"{model} has {mismatch.expected} layers: {check} and complete"
        )
    follow = f"{mismatch.measured} layers follow an embedding lookup in the file"
    return f"{follow}, but {model} has {mismatch.expected}: {check}"


def _attention(comparison: ModelComparison, finding: ComparisonFinding) -> Text:
    return (
        f"no kernel in the file looks like attention, but a {_step(finding)} of {_model(comparison)} has "
        f"{finding.detail} attention operators: check that the file is of this model"
    )


def _too_fast(comparison: ModelComparison, finding: ComparisonFinding) -> Text:
    row = _row(finding)
    device, dtype = comparison.identified.device, comparison.estimate.workload.dtype
    if row.bound == "compute" and (
        explained := with_fp16_accumulation(device, dtype, row.bound_seconds, row.measured_seconds or 0.0)
    ):
        return f"{row_label(comparison, row)}: {duration(row.measured_seconds)}, {explained}"
    return Message(
        f"{row_label(comparison, row)}: {duration(row.measured_seconds)}, below the bound of "
        f"{duration(row.bound_seconds)}, faster than physically possible: check ",
        Option("batch"), ", ", Option("seq"), ", ", Option("context"), ", ", Option("dtype"), " and ", Option("hw"),
        *_routing_hint(comparison, row),
    )  # fmt: skip


def _routing_hint(comparison: ModelComparison, row: ComparisonRow) -> Iterator[Text]:
    """The option that explains experts that are faster than the bound: identical prompts use few experts."""
    if comparison.estimate.workload.routing.name == UNIFORM.name and any("expert_" in name for name in row.operators):
        yield "; if the prompts are identical, use "
        yield Option("routing", "same")


def _run(comparison: ModelComparison, finding: ComparisonFinding) -> Text:
    return finding.detail


def _idle(comparison: ModelComparison, finding: ComparisonFinding) -> Text:
    return (
        f"the GPU is idle between kernels for {duration(finding.seconds)} of the "
        f"{duration(_passes(comparison, finding).span_seconds)} of a {_step(finding)} ({finding.share:.0%}); if it "
        "is launch-bound, use CUDA graphs or a larger batch"
    )


def _unmatched_kernels(comparison: ModelComparison, finding: ComparisonFinding) -> Text:
    seconds: dict[str, float] = {}
    for kernels in comparison.unmatched_kernels:
        if kernels.phase == finding.phase:
            seconds[kernels.category] = seconds.get(kernels.category, 0.0) + (kernels.seconds or 0.0)
    longest = sorted(seconds, key=lambda category: -seconds[category])[:CATEGORIES]
    listed = ", ".join(f"{category} {duration(seconds[category])}" for category in longest)
    return (
        f"kernels without an operator in the model take {duration(finding.seconds)}, {finding.share:.0%} of the kernel "
        f"time of a {_step(finding)}: {listed}"
    )


def _unmatched_operators(comparison: ModelComparison, finding: ComparisonFinding) -> Text:
    share = f"{finding.share:.0%} of the bound of a {_step(finding)} ({duration(finding.seconds)})"
    if _passes(comparison, finding).partial:
        return f"the file covers only part of a {_step(finding)}: operators with {share} are not in it"
    return (
        f"operators with {share} have no kernel, mainly {finding.detail}: they are fused into other kernels or not in "
        "the file"
    )


def _slow(comparison: ModelComparison, finding: ComparisonFinding) -> Text:
    row = _row(finding)
    expected = row.expected_seconds is not None
    reference = "expected time" if expected else "bound"
    reference_seconds = row.expected_seconds if expected else row.bound_seconds
    causes = "; ".join(reasons(row, comparison))
    return (
        f"{row_label(comparison, row)}: {duration(row.measured_seconds)}, {duration(finding.seconds)} above the "
        f"{reference} of {duration(reference_seconds)}; the difference is {finding.share:.0%} of the kernel time of a "
        f"{_step(finding)}" + (f" ({causes})" if causes else "")
    )


def _longest(comparison: ModelComparison, finding: ComparisonFinding) -> Text:
    row = _row(finding)
    expected = "" if row.expected_seconds is None else f", expected {duration(row.expected_seconds)}"
    return (
        f"{row_label(comparison, row)}: {finding.share:.0%} of the kernel time of a {_step(finding)}, the "
        f"largest share: {duration(row.measured_seconds)}, bound {duration(row.bound_seconds)}{expected}"
    )


_SENTENCES: Mapping[str, Callable[[ModelComparison, ComparisonFinding], Text]] = {
    "weights": _weights,
    "rows": _rows,
    "layers": _layers,
    "attention": _attention,
    "too fast": _too_fast,
    "run": _run,
    "idle": _idle,
    "unmatched kernels": _unmatched_kernels,
    "unmatched operators": _unmatched_operators,
    "slow": _slow,
    "longest": _longest,
}


def _model(comparison: ModelComparison) -> str:
    return comparison.estimate.architecture.name


def _step(finding: ComparisonFinding) -> str:
    return "training step" if finding.phase == "train" else f"{finding.phase} pass"


def _row(finding: ComparisonFinding) -> ComparisonRow:
    assert finding.row is not None
    return finding.row


def _passes(comparison: ModelComparison, finding: ComparisonFinding) -> FoundPasses:
    return next(passes for passes in comparison.passes if passes.phase == finding.phase)
