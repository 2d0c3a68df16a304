"""What is explained of an expected time: its formula, stated once, and the lines that it was evaluated by."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from roofmodel import units
from roofmodel.algebra import plain
from roofmodel.devices.calibration import Fit
from roofmodel.prediction import derivation
from roofmodel.prediction.engine import Fused
from roofmodel.prediction.timing import Expected, Formula
from roofmodel.study.derive.explain import Explanation
from roofmodel.views.kit.document import Block, Code, Equation, Equations, Form, Heading, Paragraph, Table, said, worded
from roofmodel.worked import Step, written


def expected_time(
    found: Formula, bound: float, expected: Expected, beside: bool = False, fused: Fused | None = None
) -> Iterator[Block]:
    """How the expected time comes about: what its formula was asked, its lines as they were evaluated, and the kernels
    beside it, or its share of a kernel, where there are any."""
    lines = derivation.steps(found)
    used, taken = {step.name for step in lines}, {p.name for p in derivation.given(found)}
    asked = (f"{p.name} = {written(p.value)}" for p in _asked(found) if p.name in used)
    yield Paragraph(f"expected for {', '.join(asked)}:")
    forms = [_line(step) for step in lines if step.name not in taken]
    total = plain(lines[-1].value)
    named, valued = "max(seconds, bound)", f"max({written(total)}, {written(bound)})"
    if beside:
        others = plain(expected.seconds) - max(total, bound)
        named, valued = f"{named} + kernels beside", f"{valued} + {written(others)}"
    if fused and fused.merged:
        own, every = fused.columns
        share = written(own / every)
        forms.append(Equation("share", [_calculation(f"{written(own)} / {written(every)}"), _calculation(share)]))
        named, valued = "max(seconds × share, bound)", f"max({written(total)} × {share}, {written(bound)})"
    seconds = said(units.seconds(plain(expected.seconds), 4))
    forms.append(Equation("expected", [said(named), said(valued), seconds]))
    yield Equations(forms)


def _line(step: Step) -> Equation:
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
        re.sub(r"(.+?)(?: ([+-]) |$)", lambda found: worded(found[1]) + (f" {found[2]} " if found[2] else ""), text),
    )


def formulas(explanation: Explanation) -> Iterator[Block]:
    """The formulas of expected times, each with the set of parameters that applied: stated once for all operators."""
    told: dict[tuple[str, Fit], tuple[Formula, list[str]]] = {}
    for section in explanation.sections:
        for counted in section.operators:
            if found := counted.formula:
                names = told.setdefault((found.name, found.fit), (found, []))[1]
                names.append(" ".join(dict.fromkeys((section.name, counted.operator.name))))
    shown = set()
    for found, names in told.values():
        if found.name not in shown:
            yield Heading(f"expected times, by prediction/{found.name}.py")
            yield from _prose(derivation.stated(found))
            yield Table(("asked", "what it is"), [(p.name, p.meaning) for p in _asked(found)])
            if fixed := derivation.constants(found):
                yield _table("fixed", fixed)
            if chip := [p for p in derivation.given(found) if p.name.startswith("chip.")]:
                yield _table("device", chip)
            shown.add(found.name)
        fit, other = found.fit, f", in {found.stands_in}, which stands in here" if found.stands_in else ""
        yield Paragraph(
            f"Parameters of {', '.join(dict.fromkeys(names))}: fitted on {fit.source} ({fit.rows} rows{other}), "
            f"{fit.error:.1%} off on {fit.held_out} others; the interval is × {fit.low:.3g} to × {fit.high:.3g}, and "
            "nothing is expected below its bound."
        )
        yield _table("fitted", [p for p in derivation.given(found) if p.name.startswith("timing.")])


def _asked(found: Formula) -> list[derivation.Parameter]:
    """What a formula is told of an operator: neither the device nor what was fitted."""
    return [p for p in derivation.given(found) if not p.name.startswith(("chip.", "timing."))]


def _prose(docstring: str) -> Iterator[Block]:
    """Paragraphs, and what is indented as it stands."""
    for part in docstring.split("\n\n"):
        yield Code(part) if part.startswith(" ") else Paragraph(" ".join(part.split()))


def _table(title: str, found: Sequence[derivation.Parameter]) -> Table:
    return Table((title, "|value", "what it is"), [(p.name, written(p.value), p.meaning) for p in found])
