"""A Crossover as a document, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from roofmodel import units
from roofmodel.models.symbols import resolve_min_max, symbol
from roofmodel.study.derive.bound_changes import Change, Changes, Equation, Side, assumptions
from roofmodel.study.derive.crossover import SYMBOLS, Crossover, Mostly
from roofmodel.study.derive.explain import Explanation, Quantity
from roofmodel.views.derive.quantities import symbols
from roofmodel.views.kit import formula
from roofmodel.views.kit.document import Block, Document, Equations, Form, Heading, Paragraph, Table, said
from roofmodel.views.kit.document import Equation as Line
from roofmodel.views.kit.workload_text import describe_gpus


def document(found: Crossover, explained: Sequence[Block] = ()) -> Document:
    """What binds on either side, and the equation that says where it changes; then what was asked to be explained."""
    return Document([*_blocks(found), *explained], to_dict(found), found.notes)


def _blocks(found: Crossover) -> Iterator[Block]:
    yield Heading(f"{_what(found)} on {found.device.name}: the roof over {_variable(found)}", 1)
    yield Paragraph(_answer(found.subject, found.variable, found.operators))
    for change, derived in zip_longest(found.subject.changes, found.derived):
        yield from _derived(change, found.variable, derived)
    if found.mostly:
        yield Paragraph(_added_up(found.mostly, found.variable))
    if found.operators:
        yield Heading("operator by operator")
        yield Table(
            ("operator", "binds at first", f"|changes at {found.variable}", "to"),
            [_row(changes) for changes in found.operators],
        )


def _what(found: Crossover) -> str:
    if found.step is None:
        return f"{found.name}, {found.dtype},"
    words = [*([_named(found.subject)] if found.op else []), found.step.phase, found.dtype, *_fixed(found)]
    return f"{found.name}: {', '.join(words)},"


def _fixed(found: Crossover) -> Iterator[str]:
    """What does not vary, as options call it."""
    step = found.step
    assert step is not None
    sizes = {"batch": step.batch, "seq": step.tokens if step.phase != "decode" else 0, "context": step.context}
    yield from (f"{name} {size}" for name, size in sizes.items() if name != found.variable and size)
    if found.variable != "gpus":
        yield from describe_gpus(step.parallel)


def _variable(found: Crossover) -> str:
    return "its size n" if found.variable == "n" else f"--{found.variable}"


def _answer(changes: Changes, variable: str, operators: Sequence[Changes]) -> str:
    """`memory binds up to 601, compute from n = 602 on.`"""
    sent = ", and all that it sends" if any(one.first == "communication" for one in operators) else ""
    means = f"as a whole (all its FLOPs against all its bytes{sent}) " if operators else ""
    if not changes.changes:
        low, high = map(units.significant, changes.intensities)
        reach = f"{low} FLOP/B" if low == high else f"{low} FLOP/B at first, {high} in the end"
        return f"{means}{changes.first} binds at every {variable}: no crossover. The intensity is {reach}."
    words = f"{means}{changes.first} binds at first"
    for change in changes.changes:
        words += f", {change.to} from {variable} = {change.value} on"
    return f"{words}."


def _added_up(mostly: Mostly, variable: str) -> str:
    words = "Operators run one after another: as roof estimate and roof sweep add them up, most of the time is "
    words += f"{mostly.first}'s"
    if not mostly.changes:
        return f"{words} at every {variable}."
    return f"{words} at first, " + ", ".join(f"{to}'s from {variable} = {n} on" for n, to in mostly.changes) + "."


def _row(changes: Changes) -> tuple[str, str, str, str]:
    values = ", ".join(str(change.value) for change in changes.changes)
    return _named(changes), changes.first, values or "never", ", ".join(change.to for change in changes.changes)


def _named(changes: Changes) -> str:
    """`stage1.reduce, layers 1 to 2`: with its layers where its name does not tell it apart."""
    if not changes.layers:
        return changes.name
    first, last = changes.layers[0], changes.layers[-1]
    if first == last:
        return f"{changes.name}, layer {first}"
    between = " to " if len(changes.layers) == last - first + 1 else f", {changes.layers[1]}, … "
    return f"{changes.name}, layers {first}{between}{last}"


def _derived(change: Change, variable: str, derived: Explanation | None) -> Iterator[Block]:
    """Both sides, in the model's symbols first where these are asked for, the equation, and its solution."""
    equation, name = change.equation, SYMBOLS[variable]
    if equation is None:
        words = f"{change.to} binds from {variable} = {change.value} on, where what is exchanged goes another way"
        yield Paragraph(f"{words}: one equation does not tell both sides.")
        return
    exact = f"{change.exact:.6g}"
    in_symbols: list[Form] = []
    if derived is not None:
        named = [_counted(side, derived) for side in equation]
        others = {each: source for each, source in derived.sources.items() if each != symbol(name)}
        yield symbols(derived._replace(sources=others), named)
        in_symbols = [_settled(quantity, derived) for quantity in named]
    works = [_work(side, first) for side, first in zip_longest(equation, in_symbols)]
    yield Equations([*works, *map(_time, equation)])
    yield Paragraph("Both take the same time where")
    yield Equations(
        [
            Line("", [Form(_text(equation), _latex(equation))]),
            Line(name, [Form(exact, exact) if change.solved else said(f"{exact}, by bisection")]),
        ]
    )
    words = f"so that {change.to} binds from {variable} = {change.value} on"
    if variable == "gpus":
        words += ", the first number after that among which the model can be dealt out"
    yield Paragraph(f"{words}.")


def _counted(side: Side, derived: Explanation) -> Quantity:
    """What a side of an equation counts, in the model's symbols."""
    counted = derived.sections[0].operators[0]
    symbolic, value = (getattr(op.cost, side.counts) for op in (counted.symbolic, counted.operator))
    return Quantity(side.counts, formula.readable(symbolic), value, "")


def _settled(quantity: Quantity, derived: Explanation) -> Form:
    """A formula in symbols; of a minimum or the like the part that holds at the change, and why."""
    found, chosen = resolve_min_max(quantity.symbolic, derived.values)
    work = formula.readable(found)
    if not chosen:
        return Form(formula.text(work), formula.latex(work))
    texts, latexes = (
        ", ".join(f"{write(one)} = {write(other)}" for one, other in chosen.items())
        for write in (formula.text, formula.latex)
    )
    return Form(f"{formula.text(work)} (where {texts})", rf"{formula.latex(work)}\ (\text{{where }}{latexes})")


def _work(side: Side, in_symbols: Form | None) -> Line:
    work = formula.readable(side.work)
    number = Form(formula.text(work), formula.latex(work))
    return Line(WORK[side.roof], [in_symbols, number] if in_symbols else [number])


def _time(side: Side) -> Line:
    ceiling = f" ({side.ceiling})" if side.ceiling else ""
    return Line(side.roof, [said(f"{WORK[side.roof]} / {_rate(side)}{ceiling}")])


WORK = {"compute": "FLOPs", "memory": "bytes", "communication": "bytes sent"}


def _rate(side: Side) -> str:
    return units.si(side.rate, "FLOP/s" if side.roof == "compute" else "B/s", 4)


def _text(equation: Equation) -> str:
    return " = ".join(map(_text_of, equation))


def _text_of(side: Side) -> str:
    work = formula.readable(side.work)
    return f"{f'({formula.text(work)})' if work.is_Add else formula.text(work)} / {_rate(side)}"


def _latex(equation: Equation) -> str:
    left, right = (
        rf"\frac{{{formula.latex(formula.readable(side.work))}}}{{\text{{{_rate(side)}}}}}" for side in equation
    )
    return f"{left} = {right}"


def explained(found: Crossover) -> list[Block]:
    """Of a matrix product, the assumptions that lectures make; of another kernel, why nothing changes."""
    if found.op in ("matmul", "matmul-accumulate"):
        return _assumptions(found)
    return [
        Paragraph(
            f"How the FLOPs and bytes come about: roof explain {found.name}"
            f"{f' --op {found.op} --phase {found.phase}' if found.phase and found.op else ''} --hw {found.device.id}"
        )
    ]


def _assumptions(found: Crossover) -> list[Block]:
    """The same question as lectures ask it, side by side."""
    rows = [
        (
            "C read as well, so 4" if a.passes == 4 else "3: A, B in, C out",
            str(a.element),
            f"{units.si(a.peak, 'FLOP/s', 4)} ({a.pipe})",
            units.si(a.bandwidth, "B/s", 4),
            f"{a.exact:.6g}",
            str(math.ceil(a.exact)),
        )
        for a in assumptions(found.device, found.dtype)
    ]
    peak, bandwidth, passes, element = map(symbol, ("P", "W", "p", "b"))
    solution = passes * element * peak / (2 * bandwidth)
    return [
        Heading("what an answer rests on"),
        Paragraph(
            "A product of n × n matrices does 2n³ FLOPs over p matrices of n² elements of b bytes. Under a peak P and "
            "a bandwidth W it is bound by compute from the n on where both take the same time:"
        ),
        Equations(
            [
                Line("", [Form("2n³/P = p b n²/W", r"\frac{2n^3}{P} = \frac{p\,b\,n^2}{W}")]),
                Line("n", [Form(formula.text(solution), formula.latex(solution))]),
            ]
        ),
        Table(("matrices that pass", "|bytes an element", "peak", "|bandwidth", "|n", "|first n"), rows),
        Paragraph(
            "Lectures that say 3328 for an A100 take elements of 8 bytes, four passes, and 1.5 TB/s, under the peak of "
            "elements of 2 bytes. A kernel that accumulates reads C; matmul here is one that does not "
            f"(matmul-accumulate does), and its elements are as wide as {found.dtype} is."
        ),
    ]


# --- JSON -------------------------------------------------------------------------------------------


def to_dict(found: Crossover) -> dict[str, Any]:
    """The document `roofmodel.crossover/1`."""
    first = found.subject.changes[0] if found.subject.changes else None
    return {
        "schema": "roofmodel.crossover/1",
        "name": found.name,
        "hardware": found.device.id,
        "dtype": found.dtype,
        "phase": found.phase,
        "op": found.op,
        "variable": found.variable,
        **_change(first, found.subject.first),
        "changes": [_change(change) for change in found.subject.changes],
        "mostly": found.mostly
        and {
            "from": found.mostly.first,
            "changes": [{"value": value, "to": to} for value, to in found.mostly.changes],
        },
        "operators": [
            {
                "name": each.name,
                "layers": each.layers or None,
                **_change(each.changes[0] if each.changes else None, each.first),
            }
            for each in found.operators
        ],
        "notes": list(found.notes),
    }


def _change(change: Change | None, binds: str = "") -> dict[str, Any]:
    """A change, or what binds at every size."""
    return {
        "value": change and change.value,
        "exact": change and change.exact,
        "equation": change and change.equation and _text(change.equation),
        "latex": change and change.equation and _latex(change.equation),
        "from": change.before if change else binds,
        "to": change and change.to,
        "solved": change and change.solved,
    }
