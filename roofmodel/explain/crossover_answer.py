"""The document and the JSON of a Crossover."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from roofmodel.errors import Command
from roofmodel.explain.crossover import (
    SYMBOLS,
    BoundChange,
    CeilingEquation,
    Changes,
    Crossover,
    DominantBound,
    Side,
    assumptions,
)
from roofmodel.explain.explain import Explanation, Quantity
from roofmodel.explain.operator_answer import describe_layers, symbols
from roofmodel.models.symbols import resolve_min_max, symbol
from roofmodel.numbers import units
from roofmodel.report import formula
from roofmodel.report.document import (
    Block,
    Document,
    Equation,
    Equations,
    Figure,
    Form,
    Heading,
    Paragraph,
    Rows,
    TextTable,
)
from roofmodel.report.latex import text_form
from roofmodel.report.table import Column, Table, joined
from roofmodel.steps.estimate import describe_gpus

NAMES = {
    "batch": "batch size",
    "seq": "sequence length",
    "context": "context length",
    "gpus": "number of GPUs",
    "n": "size n",
}


def document(
    crossover: Crossover, explained: Sequence[Block] = (), draw: Callable[[Path, str], None] | None = None
) -> Document:
    """The bounds, the equation of each change, the picture that `draw` draws, and the blocks of an explanation."""
    title = f"{subject(crossover)} on {crossover.device.name}: limiting ceiling by {NAMES[crossover.variable]}"
    alt = f"The times of compute, memory and links by {NAMES[crossover.variable]}"
    figure = [Figure(draw, alt)] if draw else []
    blocks = [*_blocks(crossover), *figure, *explained]
    return Document(
        title, blocks, lambda: to_dict(crossover), lambda: Rows(CHANGES, [*_lines(crossover)]), crossover.notes
    )


def _blocks(crossover: Crossover) -> Iterator[Block]:
    yield Paragraph(answer(crossover.subject, crossover.variable, crossover.operators))
    for change, derived in zip_longest(crossover.subject.changes, crossover.derived):
        yield from _derived(change, crossover.variable, derived)
    if crossover.dominant and _differs(crossover.dominant, crossover.subject):
        yield Paragraph(_dominant(crossover.dominant, crossover.variable))
    if crossover.operators:
        yield Heading("Operators")
        yield TextTable(
            ("operator", "bound by", f"|changes at {crossover.variable}", "to"),
            [_row(changes) for changes in crossover.operators],
        )


def subject(crossover: Crossover) -> str:
    """What the crossover is of, with a comma at the end."""
    if crossover.step is None:
        return f"{crossover.name}, {crossover.dtype},"
    words = [
        *([_named(crossover.subject)] if crossover.op else []),
        crossover.step.phase,
        crossover.dtype,
        *_fixed(crossover),
    ]
    return f"{crossover.name}: {', '.join(words)},"


def _fixed(crossover: Crossover) -> Iterator[str]:
    """The fixed sizes, under the names of their options."""
    step = crossover.step
    assert step is not None
    sizes = {"batch": step.batch, "seq": step.tokens if step.phase != "decode" else 0, "context": step.context}
    yield from (f"{name} {size}" for name, size in sizes.items() if name != crossover.variable and size)
    if crossover.variable != "gpus":
        yield from describe_gpus(step.parallel)


def answer(changes: Changes, variable: str, operators: Sequence[Changes]) -> str:
    """`memory-bound; compute-bound from n = 602.`"""
    sums = (
        "FLOPs, bytes and bytes sent"
        if any(operator.first == "communication" for operator in operators)
        else "FLOPs and bytes"
    )
    means = f"All operators together (total {sums}): " if operators else ""
    if not changes.changes:
        low, high = map(units.significant, changes.intensities)
        reach = f"{low} FLOP/B" if low == high else f"{low} to {high} FLOP/B"
        sizes = f"at any {NAMES[variable]}"
        if changes.searched:
            sizes = f"up to {variable} = {units.grouped(changes.searched)}, the largest {variable} searched"
        return f"{means}{changes.first}-bound {sizes}. Arithmetic intensity: {reach}."
    words = f"{means}{changes.first}-bound"
    for change in changes.changes:
        words += f"; {change.to}-bound from {variable} = {change.value}"
    return f"{words}."


def _differs(dominant: DominantBound, changes: Changes) -> bool:
    """Whether the sum of the operators' bounds has another limit than all operators together, at some size."""
    together = tuple((change.value, change.to) for change in changes.changes)
    return (dominant.first, tuple(dominant.changes)) != (changes.first, together)


def _dominant(dominant: DominantBound, variable: str) -> str:
    """The limit of most of the time if each operator takes its own bound."""
    changes = "".join(f", and {to}-bound from {variable} = {n}" for n, to in dominant.changes)
    return (
        "With a bound for each operator, as in roof estimate and roof sweep, most of the time is "
        f"{dominant.first}-bound{changes}."
    )


def _row(changes: Changes) -> tuple[str, str, str, str]:
    values = ", ".join(str(change.value) for change in changes.changes)
    return _named(changes), changes.first, values or "never", ", ".join(change.to for change in changes.changes)


def _named(changes: Changes) -> str:
    """`stage1.reduce, layers 1 to 2`: the layers distinguish operators of the same name."""
    return f"{changes.name}, {describe_layers(changes.layers)}" if changes.layers else changes.name


def _derived(change: BoundChange, variable: str, derived: Explanation | None) -> Iterator[Block]:
    """Both sides of the equation, in the model's symbols if derived, and its solution."""
    equation, name = change.equation, SYMBOLS[variable]
    if equation is None:
        words = f"{change.to}-bound from {variable} = {change.value}: communication moves to another link"
        yield Paragraph(f"{words}, so there is no single equation.")
        return
    exact = f"{change.exact:.6g}"
    in_symbols: list[Form] = []
    if derived is not None:
        quantities = [_counted(side, derived) for side in equation]
        others = {each: source for each, source in derived.sources.items() if each != symbol(name)}
        yield symbols(derived._replace(sources=others), quantities)
        in_symbols = [_resolved(quantity, derived) for quantity in quantities]
    works = [_work(side, first) for side, first in zip_longest(equation, in_symbols)]
    yield Equations([*works, *map(_time, equation)])
    meaning = "" if name == variable else f"{name} is the {NAMES[variable]}. "
    yield Paragraph(f"{meaning}Both times are equal at")
    yield Equations(
        [
            Equation("", [Form(equation_text(equation), _latex(equation))]),
            Equation(name, [Form(exact, exact) if change.solved else text_form(f"{exact} (by bisection)")]),
        ]
    )
    words = f"{change.to}-bound from {variable} = {change.value}"
    if variable == "gpus":
        words += ", the next number of GPUs by which the model is divisible"
    yield Paragraph(f"{words}.")


def _counted(side: Side, derived: Explanation) -> Quantity:
    """The work of one side of an equation, in the model's symbols."""
    counted = derived.sections[0].operators[0]
    symbolic, value = (getattr(op.cost, side.field) for op in (counted.symbolic, counted.operator))
    return Quantity(side.field, formula.readable(symbolic), value, "")


def _resolved(quantity: Quantity, derived: Explanation) -> Form:
    """A formula in symbols; each minimum or maximum is replaced by the argument that applies at the change."""
    resolved_formula, chosen = resolve_min_max(quantity.symbolic, derived.values)
    work = formula.readable(resolved_formula)
    if not chosen:
        return Form(formula.text(work), formula.latex(work))
    texts, latexes = (
        ", ".join(f"{write(extremum)} = {write(argument)}" for extremum, argument in chosen.items())
        for write in (formula.text, formula.latex)
    )
    return Form(f"{formula.text(work)} (where {texts})", rf"{formula.latex(work)}\ (\text{{where }}{latexes})")


def _work(side: Side, in_symbols: Form | None) -> Equation:
    work = formula.readable(side.work)
    number = Form(formula.text(work), formula.latex(work))
    return Equation(WORK[side.bound], [in_symbols, number] if in_symbols else [number])


def _time(side: Side) -> Equation:
    pipe = f" ({side.pipe})" if side.pipe else ""
    return Equation(side.bound, [text_form(f"{WORK[side.bound]} / {_rate(side)}{pipe}")])


WORK = {"compute": "FLOPs", "memory": "bytes", "communication": "bytes sent"}


def _rate(side: Side) -> str:
    return units.si(side.rate, "FLOP/s" if side.bound == "compute" else "B/s", 4)


def equation_text(equation: CeilingEquation) -> str:
    """`2n³ / 312 TFLOP/s = 6n² / 1.555 TB/s`."""
    return " = ".join(map(_text_of, equation))


def _text_of(side: Side) -> str:
    work = formula.readable(side.work)
    return f"{f'({formula.text(work)})' if work.is_Add else formula.text(work)} / {_rate(side)}"


def _latex(equation: CeilingEquation) -> str:
    left, right = (
        rf"\frac{{{formula.latex(formula.readable(side.work))}}}{{\text{{{_rate(side)}}}}}" for side in equation
    )
    return f"{left} = {right}"


def explained(crossover: Crossover) -> list[Block]:
    """For a GEMM, answers under other assumptions; otherwise the command that derives FLOPs and bytes."""
    if crossover.op in ("matmul", "matmul-accumulate"):
        return _assumptions(crossover)
    chosen = {"op": crossover.op, "phase": crossover.phase} if crossover.phase and crossover.op else {}
    options = chosen | {"hw": crossover.device.id}
    explain = Command(
        f"roof explain {crossover.name}{''.join(f' --{name} {value}' for name, value in options.items())}",
        f"roofmodel.explain({crossover.name!r}{''.join(f', {name}={value!r}' for name, value in options.items())})",
    )
    return [Paragraph(f"To derive the FLOPs and bytes: {explain}")]


def _assumptions(crossover: Crossover) -> list[Block]:
    """The compute-bound size of a GEMM under several assumptions."""
    rows = [
        (
            "4: A, B, C read, C written" if a.matrices == 4 else "3: A, B read, C written",
            str(a.element),
            f"{units.si(a.peak, 'FLOP/s', 4)} ({a.pipe})",
            units.si(a.bandwidth, "B/s", 4),
            f"{a.exact:.6g}",
            str(math.ceil(a.exact)),
        )
        for a in assumptions(crossover.device, crossover.dtype)
    ]
    peak, bandwidth, matrices, element = map(symbol, ("P", "W", "p", "b"))
    solution = matrices * element * peak / (2 * bandwidth)
    return [
        Heading("Assumptions"),
        Paragraph(
            "A GEMM of n × n matrices has 2n³ FLOPs and moves p matrices of n² elements with b bytes each. With peak P "
            "and bandwidth W it is compute-bound from the n at which both times are equal:"
        ),
        Equations(
            [
                Equation("", [Form("2n³/P = p b n²/W", r"\frac{2n^3}{P} = \frac{p\,b\,n^2}{W}")]),
                Equation("n", [Form(formula.text(solution), formula.latex(solution))]),
            ]
        ),
        TextTable(("matrices moved", "|bytes per element", "peak", "|bandwidth", "|n", "|first n"), rows),
        Paragraph(
            "The value 3328 in lectures for an A100 assumes 8-byte elements, four matrices moved, 1.5 TB/s, and the "
            "peak of 2-byte elements. The kernel matmul-accumulate reads C; matmul does not. The elements here are "
            f"{crossover.dtype}."
        ),
    ]


# --- Rows and JSON ----------------------------------------------------------------------------------


def to_dict(crossover: Crossover) -> dict[str, Any]:
    """The document `roofmodel.crossover/1`."""
    first = crossover.subject.changes[0] if crossover.subject.changes else None
    return {
        "schema": "roofmodel.crossover/1",
        "name": crossover.name,
        "hardware": crossover.device.id,
        "dtype": crossover.dtype,
        "phase": crossover.phase,
        "op": crossover.op,
        "variable": crossover.variable,
        **_change(first, crossover.subject.first),
        "changes": [_change(change) for change in crossover.subject.changes],
        "mostly": crossover.dominant
        and {
            "from": crossover.dominant.first,
            "changes": [{"value": value, "to": to} for value, to in crossover.dominant.changes],
        },
        "operators": [
            {
                "name": each.name,
                "layers": each.layers or None,
                **_change(each.changes[0] if each.changes else None, each.first),
            }
            for each in crossover.operators
        ],
        "notes": list(map(str, crossover.notes)),
    }


def _change(change: BoundChange | None, bound: str = "") -> dict[str, Any]:
    """A change, or the bound at all sizes."""
    return {
        "value": change and change.value,
        "exact": change and change.exact,
        "equation": change and change.equation and equation_text(change.equation),
        "latex": change and change.equation and _latex(change.equation),
        "from": change.before if change else bound,
        "to": change and change.to,
        "solved": change and change.solved,
    }


CHANGES = Table(
    "changes",
    (
        Column("operator", meaning="the operator, group or kernel; empty for all operators of a phase together"),
        Column("layers", flat=joined(" "), meaning="its layers, where several operators have its name"),
        Column("value", meaning="the size from which on another ceiling limits; empty without a change"),
        Column("exact", meaning="the size at which both times are equal"),
        Column("equation", meaning="the equation of the two times"),
        Column("from", meaning="the ceiling that limits below this size"),
        Column("to", meaning="the ceiling that limits from this size on"),
        Column("solved", meaning="whether the equation was solved exactly"),
    ),
)


def _lines(crossover: Crossover) -> Iterator[dict[str, Any]]:
    """A row for each change, or for an operator without one: first of the subject, then of each of its operators."""
    subject = crossover.subject
    for name, each in ((subject.name if crossover.op else None, subject), *((o.name, o) for o in crossover.operators)):
        for change in each.changes or (None,):
            yield {"operator": name, "layers": each.layers or None, **_change(change, each.first)}
