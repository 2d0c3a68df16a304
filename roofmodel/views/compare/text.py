"""A comparison in plain words: what a row is called, and the findings that close it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from roofmodel import units
from roofmodel.study.compare.comparison import Comparison, Passes, Row
from roofmodel.study.compare.diagnosis import Finding, findings, why
from roofmodel.views.kit.operator_names import label, merged_label, title


def called(found: Comparison, row: Row) -> str:
    """A row as a person calls it: `attention: Q, K, V projection`, `residual adds + norms`."""
    known = {placed.operator.name: placed.operator for phase in found.estimate.phases for placed in phase.placed}
    parts = [merged_label(name) or (label(known[name]) if name in known else name) for name in row.operators]
    words = [part.rpartition(" ") for part in parts]
    if len(parts) > 1 and len({last for _, _, last in words}) == 1 and all(first for first, _, _ in words):
        parts = [f"{', '.join(first for first, _, _ in words)} {words[0][2]}"]
    merged = any("." not in name for name in row.operators)
    text = (" + " if merged else ", ").join(parts)
    place = "" if merged or text.startswith(row.group) else f"{title(row.group)}: "
    return place + text + (" (backward)" if row.stage == "backward" and ": d" not in text else "")


def took(seconds: float | None) -> str:
    """A time, or a dash where nobody knows it."""
    return "–" if seconds is None else units.seconds(seconds)


def percent(part: float) -> str:
    """A part as a percentage; a small one is not none."""
    return "<1%" if 0 < part < 0.005 else f"{part:.0%}"


def closing(found: Comparison) -> list[str]:
    """The findings in plain words, each with its number."""
    return [_WORDS[finding.kind](found, finding) for finding in findings(found)]


def _model(found: Comparison, finding: Finding) -> str:
    return (
        f"{finding.share:.0%} of the products in the file have matrices of other sizes than "
        f"{found.estimate.architecture.name}'s ({finding.detail}): is it a profile of that model, whole, on one GPU?"
    )


def _layers(found: Comparison, finding: Finding) -> str:
    said = next(layers for layers in found.doubtful if layers.phase == finding.phase)
    name = found.estimate.architecture.name
    if said.kind == "named":
        return f"ranges in the file name layer {said.many}, and {name} has {said.whole}: is it a profile of that model?"
    if said.kind == "end":
        return (
            f"the file ends after {said.many} of {name}'s {said.whole} layers and one more product, as a model of "
            f"{said.many} layers ends with its head: is it a profile of that model, whole?"
        )
    return (
        f"in the file {said.many} layers follow an embedding, up to the next or to the end, where {name} has "
        f"{said.whole}: is it a profile of that model?"
    )


def _attention(found: Comparison, finding: Finding) -> str:
    return (
        f"no kernel in the file looks like attention, of which a {finding.phase} pass of "
        f"{found.estimate.architecture.name} has {finding.detail}: is it a profile of that model?"
    )


def _shape(found: Comparison, finding: Finding) -> str:
    told = next(product.told for product in found.shaped if product.phase == finding.phase)
    work, rows = found.estimate.workload, int(finding.detail)
    each = 1 if finding.phase == "decode" else work.seq
    if finding.phase != "decode" and not found.estimate.architecture.image:
        give = f"the --batch and --seq whose product is {rows}"
    else:
        give = f"--batch {rows // each}" if rows % each == 0 else "the --batch and --image of the file"
    return (
        f"the products in the file take {finding.detail} rows of tokens, not {told} as told: every figure here is of "
        f"another workload; give {give}"
    )


def _impossible(found: Comparison, finding: Finding) -> str:
    row = finding.row
    assert row is not None
    return (
        f"{called(found, row)}: {took(row.measured_seconds)}, less than the bound of {took(row.bound_seconds)}, as no "
        "kernel can: workload, type or device are others; check --batch, --seq, --context, --dtype and --hw"
    )


def _idle(found: Comparison, finding: Finding) -> str:
    return (
        f"the GPU stands idle for {took(finding.seconds)} of the {took(_pass(found, finding).span_seconds)} of a "
        f"{finding.phase} pass ({finding.share:.0%}), between kernels; where it waits for launches, CUDA graphs or "
        "larger batches help"
    )


def _left_kernels(found: Comparison, finding: Finding) -> str:
    return (
        f"kernels that are no operator of the model take {took(finding.seconds)}, {finding.share:.0%} of the kernels' "
        f"time in a {finding.phase} pass: {finding.detail}"
    )


def _left_operators(found: Comparison, finding: Finding) -> str:
    if _pass(found, finding).partial:
        return (
            f"the file holds but a part of a {finding.phase} pass: operators with {finding.share:.0%} of its bound "
            f"({took(finding.seconds)}) are not in it"
        )
    return (
        f"operators with {finding.share:.0%} of the bound of a {finding.phase} pass ({took(finding.seconds)}) found no "
        f"kernel of their own, {finding.detail} above all: they are fused into others, or not in the file"
    )


def _row(found: Comparison, finding: Finding) -> str:
    row = finding.row
    assert row is not None
    known = row.expected_seconds is not None
    against = f"{took(row.expected_seconds)} was expected"
    against = against if known else f"{took(row.bound_seconds)} is its bound"
    reasons = "; ".join(why(row, found))
    return (
        f"{called(found, row)}: {took(row.measured_seconds)} where {against}: {took(finding.seconds)} lost, "
        f"{finding.share:.0%} of the kernels' time in a {finding.phase} pass" + (f" ({reasons})" if reasons else "")
    )


def _most(found: Comparison, finding: Finding) -> str:
    row = finding.row
    assert row is not None
    expected = "" if row.expected_seconds is None else f", expected {took(row.expected_seconds)}"
    return (
        f"{called(found, row)}: most of the kernels' time in a {finding.phase} pass, {finding.share:.0%}: "
        f"{took(row.measured_seconds)}, bound {took(row.bound_seconds)}{expected}"
    )


_WORDS: Mapping[str, Callable[[Comparison, Finding], str]] = {
    "model": _model,
    "layers": _layers,
    "attention": _attention,
    "shape": _shape,
    "impossible": _impossible,
    "idle": _idle,
    "left kernels": _left_kernels,
    "left operators": _left_operators,
    "row": _row,
    "most": _most,
}


def _pass(found: Comparison, finding: Finding) -> Passes:
    return next(passes for passes in found.passes if passes.phase == finding.phase)
