"""Derivation of expected times as document blocks: the formula as text, and its evaluation line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from roofmodel.devices.calibration import HEAD_SIZES, Fit
from roofmodel.explain.explain import Explanation
from roofmodel.numbers import units
from roofmodel.numbers.algebra import plain
from roofmodel.numbers.derivation import DerivationStep, written
from roofmodel.report.document import (
    Block,
    Code,
    Equation,
    Equations,
    Form,
    Heading,
    Paragraph,
    TextTable,
)
from roofmodel.report.latex import latex_text, text_form
from roofmodel.timing import derivation
from roofmodel.timing.attention import AttentionWork
from roofmodel.timing.engine import Run
from roofmodel.timing.formula import FormulaDescription
from roofmodel.timing.timing import Expected, Formula


def expected_time(
    formula: Formula, bound: float, expected: Expected, extra: bool = False, run: Run | None = None
) -> Iterator[Block]:
    """The evaluation of an expected time: inputs, lines with numbers, extra kernels, or the share of a merged GEMM."""
    lines = derivation.steps(formula)
    used, input_names = {step.name for step in lines}, {p.name for p in derivation.inputs(formula)}
    inputs = (f"{p.name} = {written(p.value)} ({p.meaning})" for p in _operator_inputs(formula) if p.name in used)
    yield Paragraph(f"expected time, with {', '.join(inputs)}:")
    forms = [_line(step) for step in lines if step.name not in input_names]
    total = plain(lines[-1].value)
    in_symbols, in_numbers = "max(seconds, bound)", f"max({written(total)}, {written(bound)})"
    if extra:
        others = plain(expected.value) - max(total, bound)
        in_symbols, in_numbers = f"{in_symbols} + extra kernels", f"{in_numbers} + {written(others)}"
    if run and run.merged:
        own, every = run.columns
        share = written(own / every)
        forms.append(Equation("share", [_calculation(f"{written(own)} / {written(every)}"), _calculation(share)]))
        in_symbols, in_numbers = "seconds × share", f"{written(total)} × {share}"
        least = plain(expected.value * every / own)
        if least > (1 + 1e-12) * total:
            forms.append(Equation("least", [_calculation(written(least))]))  # the bound of the whole GEMM
            in_symbols, in_numbers = "max(seconds, least) × share", f"max({written(total)}, {written(least)}) × {share}"
    seconds = text_form(units.seconds(plain(expected.value), 4))
    forms.append(Equation("expected", [text_form(in_symbols), text_form(in_numbers), seconds]))
    yield Equations(forms)


def _line(step: DerivationStep) -> Equation:
    if step.value is True:
        return Equation("since", [_calculation(step.name), _calculation(step.numbers)])
    value = plain(step.value)
    shown = (
        units.seconds(value, 6) if step.unit == "s" else units.si(value, step.unit, 6) if step.unit else written(value)
    )
    forms = dict.fromkeys((step.formula, step.numbers, shown))
    return Equation(step.name, [_calculation(form) for form in forms if form])


def _calculation(text: str) -> Form:
    """A line of a calculation: a page may break it at its signs."""
    return Form(
        text,
        re.sub(
            r"(.+?)(?: ([+-]) |$)", lambda match: latex_text(match[1]) + (f" {match[2]} " if match[2] else ""), text
        ),
    )


def formulas(explanation: Explanation) -> Iterator[Block]:
    """The formulas of the expected times, once for all operators, each with the fitted parameters that it used."""
    used: dict[tuple[FormulaDescription, str, str, Fit], tuple[Formula, list[str]]] = {}
    for section in explanation.sections:
        for counted in section.operators:
            if formula := counted.formula:
                key = (formula.description, formula.implementation, formula.format_key, formula.fit)
                names = used.setdefault(key, (formula, []))[1]
                names.append(" ".join(dict.fromkeys((section.name, counted.operator.name))))
    shown = set()
    for formula, names in used.values():
        if formula.description not in shown:
            yield from _described(formula)
            shown.add(formula.description)
        fit, other = formula.fit, ", the nearest fitted formats" if formula.is_substitute else ""
        yield Paragraph(
            f"Parameters of {', '.join(dict.fromkeys(names))}: {formula.kind}, {formula.implementation}, "
            f"{formula.format_key}{other} in {formula.fitted_on}.yaml; fitted to {fit.source} ({fit.rows} rows); mean "
            f"error {fit.error:.1%} on {fit.held_out} held-out rows; interval × {fit.low:.3g} to × {fit.high:.3g}. "
            "An expected time is never below its bound."
        )
        fitted = [p for p in derivation.inputs(formula) if p.name.startswith("timing.")]
        yield _table("fitted", [p for p in fitted if _is_of_its_head_size(p.name, formula)])


def _is_of_its_head_size(name: str, formula: Formula) -> bool:
    """Whether the formula uses a parameter: of those by head size, such as `timing.pipe_128`, only one."""
    size = name.rpartition("_")[2]
    work = formula.arguments[0]
    if not size.isdigit() or not isinstance(work, AttentionWork):
        return True
    return int(size) == next((each for each in HEAD_SIZES if each >= work.head_size), HEAD_SIZES[-1])


def _described(formula: Formula) -> Iterator[Block]:
    """A formula as text, with its inputs, constants and the device's figures."""
    text = formula.description
    yield Heading(f"expected times of {text.title}")
    yield Paragraph(text.summary)
    yield Code(text.equation)
    if text.terms:
        yield TextTable(("term", "meaning"), text.terms)
    yield from map(Paragraph, text.notes)
    yield Paragraph(f"Source: {text.source}")
    yield TextTable(("input", "meaning"), [(p.name, p.meaning) for p in _operator_inputs(formula)])
    if fixed := derivation.constants(formula):
        yield _table("constant", fixed)
    if chip := [p for p in derivation.inputs(formula) if p.name.startswith("chip.")]:
        yield _table("device", chip)


def _operator_inputs(formula: Formula) -> list[derivation.NamedNumber]:
    """The inputs of a formula that come from the operator, without those of the device and the fit."""
    return [p for p in derivation.inputs(formula) if not p.name.startswith(("chip.", "timing."))]


def _table(title: str, numbers: Sequence[derivation.NamedNumber]) -> TextTable:
    return TextTable((title, "|value", "meaning"), [(p.name, written(p.value), p.meaning) for p in numbers])
