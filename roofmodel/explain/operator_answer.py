"""The derivation of operators as document blocks: quantities, axes, counts, times at the ceilings, expected times."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import OperatorLine
from roofmodel.devices.calibration import HEAD_SIZES, Fit
from roofmodel.devices.device import Device
from roofmodel.explain.explain import Axis, Explanation, Quantity, SymbolicOperator
from roofmodel.models.symbols import SymbolSource
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number, plain
from roofmodel.numbers.derivation import DerivationStep, written
from roofmodel.report import formula
from roofmodel.report.document import Block, Code, Equation, Equations, Form, Heading, Paragraph, TextTable
from roofmodel.report.latex import latex_text, text_form
from roofmodel.report.table import Column, Table
from roofmodel.steps.placed import Placed
from roofmodel.timing import derivation
from roofmodel.timing.attention import AttentionWork
from roofmodel.timing.engine import KernelTime
from roofmodel.timing.formula import FormulaDescription
from roofmodel.timing.roofline import NodeCrossing, Placement, Route, route
from roofmodel.timing.timing import Expected, Formula


class NumberLine(NamedTuple):
    """A derived number; `phase` and `operator` are None where it is of the whole model."""

    phase: str | None
    operator: str | None
    name: str
    symbols: str | None
    value: Number | None
    unit: str


NUMBERS = Table(
    "numbers",
    (
        Column("phase", meaning="the phase or kernel; empty for the whole model"),
        Column("operator", meaning="the operator; empty for a total"),
        Column("name", meaning="what the number is"),
        Column("symbols", meaning="its formula"),
        Column("value", meaning="its value in the unit"),
        Column("unit", meaning="its unit; empty for a count"),
    ),
)
"""The numbers of a derivation."""


def number(quantity: Quantity, phase: str | None = None, operator: str | None = None) -> NumberLine:
    """A quantity as a line of the table of numbers."""
    symbols = formula.text(formula.readable(quantity.symbolic))
    return NumberLine(phase, operator, quantity.name, symbols, plain(quantity.value), quantity.unit)


MAX_TERMS = 12  # longer sums are not repeated with numbers


def symbols(explanation: Explanation, quantities: Iterable[Quantity]) -> TextTable:
    """A table of the symbols in these quantities: meaning, value, and config key or option."""
    import sympy

    used = set().union(*(sympy.sympify(quantity.symbolic).free_symbols for quantity in quantities))
    return TextTable(
        ("symbol", "meaning", "|value", "source"),
        [
            (Form(formula.text(name), formula.latex(name)), source.meaning, units.grouped(source.value), origin(source))
            for name, source in explanation.sources.items()
            if name in used
        ],
    )


def origin(source: SymbolSource) -> str:
    """The config key or option of a symbol, marked if it has its default."""
    return f"{source.origin} (default)" if source.assumed else str(source.origin)


def forms(expression: Any, explanation: Explanation, value: Number, unit: str) -> list[Form]:
    """The formula in symbols, in numbers, and its value, without repetitions."""
    values = explanation.values
    all_forms = [Form(formula.text(expression), formula.latex(expression))]
    if _terms(expression) <= MAX_TERMS:
        all_forms.append(Form(formula.text(expression, values), formula.latex(expression, values)))
    all_forms.append(amount(value, unit))
    return [form for i, form in enumerate(all_forms) if i == 0 or form.text != all_forms[i - 1].text]


def _terms(expression: Any) -> int:
    import sympy

    return len(sympy.Add.make_args(sympy.expand(expression)))


def amount(value: Number, unit: str) -> Form:
    """A count in full; long counts also with three digits and a prefix."""
    value = plain(value)
    digits = units.grouped(round(value)) if value == int(value) or value >= 1e5 else units.significant(value, 6)
    short = f" ({units.si(value, unit)})" if value >= 1e5 else ""
    return text_form(f"{digits} {unit}".rstrip() + short)


def describe_quantity(quantity: Quantity) -> dict[str, Any]:
    """A quantity for JSON: its formula as text, in LaTeX and for sympy.sympify, and its value."""
    expression = formula.readable(quantity.symbolic)
    return {
        "name": quantity.name,
        "formula": formula.text(expression),
        "latex": formula.latex(expression),
        "sympy": str(expression),
        "value": plain(quantity.value),
        "unit": quantity.unit,
    }


def describe_layers(layers: Sequence[int]) -> str:
    """`layer 3`, `layers 1 to 4`, `layers 0, 2, … 40`: they distinguish operators of the same name."""
    first, last = layers[0], layers[-1]
    if first == last:
        return f"layer {first}"
    if len(layers) == last - first + 1:
        return f"layers {first} to {last}"
    if len(layers) <= 3:
        return f"layers {', '.join(map(str, layers))}"
    return f"layers {first}, {layers[1]}, … {last}"


EXTRA_KERNELS = {"in several kernels": "several kernels compute the operator", "in fp32": "tensors in fp32"}
"""What the names of extra kernels mean that are not the name of a kernel."""


def operators(explanation: Explanation, timing: bool) -> Iterator[Block]:
    """The operators by phase; for whole phases a table of all axes first. `timing`: with their timing models."""
    if any(section.totals for section in explanation.sections):
        yield Heading("axes")
        axes: dict[str, dict[str, None]] = {}
        for axis in (axis for s in explanation.sections for counted in s.operators for axis in counted.axes):
            axes.setdefault(axis.letter, {})[axis.meaning] = None
        yield TextTable(
            ("axis", "meaning"), [(_letter(letter), "; ".join(meanings)) for letter, meanings in axes.items()]
        )
    for section in explanation.sections:
        if section.name != section.operators[0].operator.name:  # a kernel is its own section
            yield Heading(f"{section.name}, by operator" if section.totals else section.name)
        for counted, heading in zip(section.operators, _headings(section.operators), strict=True):
            yield Heading(heading, 3)
            yield from _operator(counted, explanation, not section.totals, timing)


def _headings(operators: Sequence[SymbolicOperator]) -> list[str]:
    """`forward: attention.flash × 21`; with the layers where operators of several layers have the same name."""

    names = Counter((counted.operator.stage, counted.operator.name) for counted in operators)

    def heading(operator: Operator) -> str:
        stage = f"{operator.stage}: " if operator.stage else ""
        times = f" × {operator.count}" if operator.count > 1 else ""
        is_repeated = names[operator.stage, operator.name] > 1
        layers = f", {describe_layers(operator.layers)}" if is_repeated and operator.layers else ""
        return f"{stage}{operator.name}{times}{layers}"

    return [heading(counted.operator) for counted in operators]


def _operator(counted: SymbolicOperator, explanation: Explanation, alone: bool, timing: bool) -> Iterator[Block]:
    """One operator; `alone`: with its own table of axes. `timing`: with the evaluation of its timing model."""
    operator = counted.operator
    yield Code("\n".join(line.text for line in operator.lines))
    if alone:
        yield TextTable(("axis", "meaning", "size", "|value", "source"), [_axis(a, explanation) for a in counted.axes])
    else:
        yield Paragraph(" · ".join(" = ".join(_size(axis)) for axis in counted.axes))
    yield Equations(list(_counts(counted, explanation)))
    if counted.placed:
        yield from _times(counted, counted.placed, explanation, timing)


def _axis(axis: Axis, explanation: Explanation) -> list[str | Form]:
    """Letter, meaning, size in symbols, size, and the config keys and options of the symbols."""
    import sympy

    expression = formula.readable(axis.symbolic)
    sources = [explanation.sources[s] for s in sorted(sympy.sympify(expression).free_symbols, key=str)]
    origins = ", ".join(dict.fromkeys(map(origin, sources)))
    # a plain number is in the next column
    size = Form(formula.text(expression), formula.latex(expression)) if sources else ""
    return [_letter(axis.letter), axis.meaning, size, _number(axis.value), origins]


def _size(axis: Axis) -> list[str]:
    """`["c", "3D", "4800"]`: letter, symbols where it has any, number."""
    return list(dict.fromkeys((axis.letter, formula.text(formula.readable(axis.symbolic)), _number(axis.value))))


def _number(value: Number) -> str:
    value = plain(value)
    return str(int(value)) if value == int(value) else units.significant(value, 6)


def _counts(counted: SymbolicOperator, explanation: Explanation) -> Iterator[Equation]:
    cost, symbolic = counted.operator.cost, counted.symbolic.cost
    if cost.matmul_flops:
        written = forms(formula.readable(symbolic.matmul_flops), explanation, cost.matmul_flops, "FLOP")
        by_axes = [_by_axes(line) for line in counted.operator.lines if line.contracted]
        joined = Form(" + ".join(form.text for form in by_axes), " + ".join(form.latex for form in by_axes))
        yield Equation("matmul FLOPs", [joined, *written] if joined.text != written[0].text else written)
    if cost.vector_flops:
        expression = formula.readable(symbolic.vector_flops)
        yield Equation("vector FLOPs", forms(expression, explanation, cost.vector_flops, "FLOP"))
    for way, name in (("reads", "bytes read"), ("writes", "bytes written")):
        tensors = counted.tensors(way)
        parts = [formula.readable(tensor.symbolic) for tensor in tensors]
        value = sum(tensor.value for tensor in tensors)
        in_symbols = Form(
            " + ".join(f"{t.name} {formula.text(part)}" for t, part in zip(tensors, parts, strict=True)),
            " + ".join(_braced(t.name, formula.latex(part)) for t, part in zip(tensors, parts, strict=True)),
        )
        yield Equation(name, [in_symbols, amount(value, "B")])
    if counted.operator.collective:
        sent = formula.readable(symbolic.link_bytes)
        yield Equation("bytes sent", forms(sent, explanation, plain(cost.link_bytes), "B"))
    yield Equation(
        "intensity",
        [
            text_form(f"{units.si(plain(cost.flops), 'FLOP', 4)} / {units.si(plain(cost.bytes), 'B', 4)}"),
            text_form(f"{units.significant(plain(cost.intensity), 4)} FLOP/B"),
        ],
    )


def _braced(name: str, latex: str) -> str:
    return rf"\underbrace{{{latex}}}_{{{text_form(name).latex}}}"


def _by_axes(line: OperatorLine) -> Form:
    """`2·b·t·d·f`: one multiply-add for each combination of the contraction's axes."""
    return Form("2·" + "·".join(line.axes), r"2\," + r"\,".join(_letter(axis).latex for axis in line.axes))


def _letter(axis: str) -> Form:
    """The letter of an axis, in a typeface that no symbol has."""
    return Form(axis, rf"\mathtt{{{axis}}}")


# --- Times ------------------------------------------------------------------------------------------


class _Ceiling(NamedTuple):
    """A ceiling: its name, the time at it as a quotient, and that time in seconds."""

    name: str
    quotient: str
    seconds: float


def _times(counted: SymbolicOperator, placed: Placed, explanation: Explanation, timing: bool) -> Iterator[Block]:
    """The time at each ceiling, the ceiling that bounds the operator, and the expected time."""
    device, collective, placement = explanation.device, counted.operator.collective, placed.placement
    assert device is not None
    way = route(collective, device) if collective and placement.cost.link_bytes else None
    if way and way.leaves and way.crossing:
        yield _crossing(way.crossing)
    ceilings = list(_ceilings(placement, device, counted.operator.compute_dtype(explanation.dtype), way))
    yield Equations([Equation(c.name, [text_form(c.quotient), text_form(units.seconds(c.seconds))]) for c in ceilings])
    yield Paragraph(_bound_by(ceilings, placement) + _expected(placed, counted))
    if timing and counted.formula and placed.expected and not counted.fused_into:
        yield from _timing(counted, placed)


def _timing(counted: SymbolicOperator, placed: Placed) -> Iterator[Block]:
    """The evaluation of an operator's time: of its kernel, or of the parts of an exchange; its time under long load."""
    run, row = placed.run, placed
    if run.merged and counted.kernels:
        row = max(counted.kernels, key=lambda row: row.operator.count)
    assert counted.formula is not None
    assert row.expected is not None
    time = row.run.expected or row.expected
    kernels = run.kernels or (KernelTime(1, counted.formula, placed.placement.bound_seconds, time),)
    if len(kernels) == 1 and kernels[0].count == 1:
        others = [name for name in row.computes if name not in run.merged] if run.merged else []
        more = "extra kernels" if placed.extra_kernels else " + ".join(others)
        yield from expected_time(kernels[0].formula, plain(kernels[0].bound), time, more)
    else:
        parts = [each for each in kernels if each.count]
        for each in parts:
            yield from expected_time(each.formula, plain(each.bound), each.expected, name="one part")
        terms = " + ".join(f"{written(each.count)} × {written(plain(each.expected.value))}" for each in parts)
        yield Equations([Equation("expected", [text_form(terms), text_form(units.seconds(plain(time.value), 4))])])
    if row.is_limited_by_power:
        yield Equations([Equation("under long load", [text_form(units.seconds(plain(row.expected.value), 4))])])


def _ceilings(placement: Placement, device: Device, dtype: str, way: Route | None) -> Iterator[_Ceiling]:
    """The ceilings that apply to this cost."""
    cost, matmul, vector = placement.cost, device.matmul_pipe(dtype), device.vector_pipe(dtype)

    def ceiling(name: str, amount: Number, unit: str, rate: Number, seconds: Number) -> _Ceiling:
        quotient = f"{units.si(plain(amount), unit, 4)} / {units.si(rate, f'{unit}/s', 4)}"
        return _Ceiling(name, quotient, plain(seconds))

    if cost.matmul_flops:
        yield ceiling(f"compute, {matmul.name}", cost.matmul_flops, "FLOP", matmul.peak, placement.matmul_seconds)
    if cost.vector_flops and vector:
        yield ceiling(f"compute, {vector.name}", cost.vector_flops, "FLOP", vector.peak, placement.vector_seconds)
    yield ceiling("memory, DRAM", cost.bytes, "B", device.bandwidth, placement.memory_seconds)
    if way:
        name = f"communication, {' and '.join(link.label for link in way.links(device))}, per direction"
        yield ceiling(name, placement.link_seconds * way.bandwidth, "B", way.bandwidth, placement.link_seconds)


def _bound_by(ceilings: Sequence[_Ceiling], placement: Placement) -> str:
    """`bound 1.2 ms, limited by memory, DRAM; the next ceiling, compute, tensor_fp16, takes 0.4 ms`"""
    first, *others = sorted(ceilings, key=lambda ceiling: ceiling.seconds, reverse=True)
    binding = max((c for c in ceilings if c.name.startswith(placement.bound)), key=lambda ceiling: ceiling.seconds)
    margin = ""
    if others and others[0].seconds:
        equal = first.seconds == others[0].seconds
        longer = f"the next ceiling, {others[0].name}, takes {units.seconds(others[0].seconds)}"
        margin = f"; {'another ceiling takes as long' if equal else longer}"
    return f"bound {units.seconds(first.seconds, 4)}, limited by {binding.name}{margin}"


def _expected(placed: Placed, counted: SymbolicOperator) -> str:
    """The expected time with its interval, extra kernels and fusion; empty where it is not known."""
    if counted.fused_into:
        return f"; no time of its own: computed in the kernel of {' or '.join(counted.fused_into)}"
    if placed.expected is None:
        return ""
    merged = counted.run is not None and bool(counted.run.merged)
    words = "" if merged else _time(placed.expected)
    if placed.extra_kernels:
        traffic = (
            f"{units.si(plain(kernel.bytes), 'B', 4)} ({EXTRA_KERNELS.get(kernel.name, kernel.name)})"
            for kernel in placed.extra_kernels
        )
        words += f", including extra memory traffic: {', '.join(traffic)}"
    for row in counted.kernels:
        if row.kernel is not None and row.expected is not None:
            others = [name for name in row.computes if name != placed.operator.name]
            bound = units.seconds(plain(row.kernel.bound_seconds), 4)
            words += f"; in one kernel with {' and '.join(others)}: bound {bound}{_time(row.expected)}"
    return words


def _time(expected: Expected) -> str:
    """`; expected 1.2 ms (1.1 ms to 1.4 ms)`"""
    seconds, low, high = map(plain, expected)
    return f"; expected {units.seconds(seconds, 4)} ({units.seconds(low)} to {units.seconds(high)})"


def _crossing(crossing: NodeCrossing) -> Equations:
    """The rate at which GPUs of several nodes exchange data, from the shares that leave a node and that stay."""
    leaving, staying = (units.significant(float(share), 4) for share in (crossing.leaving, crossing.staying))
    port, link = (units.si(rate, "B/s", 4) for rate in (crossing.port, crossing.inside))
    leaves = f"of the bytes sent, the share {leaving} leaves the node over a port of {port}"
    stays = f"{staying} stays within the node on a link of {link}"
    rate = f"1 / max({leaving} / {port}, {staying} / {link}) = {units.si(plain(crossing.bandwidth), 'B/s', 4)}"
    return Equations(
        [
            Equation(f"among {crossing.nodes} nodes", [text_form(f"{leaves}, {stays}")]),
            Equation("rate", [text_form(rate)]),
        ]
    )


def expected_time(
    formula: Formula, bound: float, expected: Expected, others: str = "", name: str = "expected"
) -> Iterator[Block]:
    """The evaluation of an expected time: inputs, lines with numbers, and what else is in it (`others`)."""
    lines = derivation.steps(formula)
    used, input_names = {step.name for step in lines}, {p.name for p in derivation.inputs(formula)}
    inputs = (f"{p.name} = {written(p.value)} ({p.meaning})" for p in _operator_inputs(formula) if p.name in used)
    yield Paragraph(f"expected time, with {', '.join(inputs)}:")
    forms = [_line(step) for step in lines if step.name not in input_names]
    total = plain(lines[-1].value)
    in_symbols, in_numbers = "max(seconds, bound)", f"max({written(total)}, {written(bound)})"
    if others:
        more = plain(expected.value) - max(total, bound)
        in_symbols, in_numbers = f"{in_symbols} + {others}", f"{in_numbers} + {written(more)}"
    seconds = text_form(units.seconds(plain(expected.value), 4))
    forms.append(Equation(name, [text_form(in_symbols), text_form(in_numbers), seconds]))
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
        origin = f"fitted to {fit.source} ({fit.rows} rows)" if fit.rows else f"not fitted: {fit.source}"
        rows = f"{fit.held_out} held-out rows" if fit.held_out else "these rows, of which none was held out"
        yield Paragraph(
            f"Parameters of {', '.join(dict.fromkeys(names))}: {formula.kind}, {formula.implementation}, "
            f"{formula.format_key}{other} in {formula.fitted_on}.yaml; {origin}; mean error {fit.error:.1%} on {rows}; "
            f"interval × {fit.low:.3g} to × {fit.high:.3g}. An expected time is never below its bound."
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
