"""An Explanation as a document: each number's formula, with symbols, with numbers, and the value; and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from roofmodel import units
from roofmodel.algebra import Number, plain
from roofmodel.counting.operator import Line
from roofmodel.devices.calibration import Fit
from roofmodel.models.symbols import Source, settled
from roofmodel.prediction import reasons
from roofmodel.prediction.engine import Fused
from roofmodel.prediction.links import Crossing, route
from roofmodel.prediction.roofline import Placement
from roofmodel.prediction.timing import Expected, Formula
from roofmodel.study.explain import Axis, Counted, Explanation, Quantity, Section
from roofmodel.study.phase import PhaseEstimate
from roofmodel.views import formula
from roofmodel.views.document import (
    Block,
    Code,
    Document,
    Equation,
    Equations,
    Form,
    Heading,
    Paragraph,
    Table,
    said,
    worded,
)
from roofmodel.views.rows import describe_expectation, describe_largest, describe_phase, describe_rate
from roofmodel.worked import Step, written

MANY = 12  # terms from which a sum is not shown again with numbers


def document(explanation: Explanation) -> Document:
    """The whole of it: symbols, totals, memory, then operator by operator."""
    parts = (_opening, _totals, _operators, _formulas)
    blocks = [block for part in parts for block in part(explanation)]
    return Document(blocks, to_dict(explanation), explanation.notes)


def _opening(explanation: Explanation) -> Iterator[Block]:
    device, dtype = explanation.device, explanation.dtype
    on = f" on {device.name}" if device else ""
    yield Heading(f"{explanation.name}{on}", 1)
    words = f"{explanation.about}; {dtype}"
    if device:
        multiplies = any(
            counted.operator.matmul_flops for section in explanation.sections for counted in section.operators
        )
        pipe = (None if multiplies else device.vector_pipe(dtype)) or device.matmul_pipe(dtype)
        words += (
            f"; roofs: {units.si(pipe.peak, 'FLOP/s', 4)} ({pipe.name}), {units.si(device.bandwidth, 'B/s', 4)} DRAM, "
            f"ridge at {units.significant(pipe.peak / device.bandwidth)} FLOP/B"
        )
    yield Paragraph(words)
    yield symbols(explanation, _quantities(explanation))


def symbols(explanation: Explanation, quantities: Iterable[Quantity]) -> Table:
    """The symbols that these quantities have: what each is, its value, and the key or option that it came from."""
    import sympy

    used = set().union(*(sympy.sympify(quantity.symbolic).free_symbols for quantity in quantities))
    return Table(
        ("symbol", "what it is", "|value", "from"),
        [
            (Form(formula.text(name), formula.latex(name)), source.meaning, units.grouped(source.value), _from(source))
            for name, source in explanation.sources.items()
            if name in used
        ],
    )


def _quantities(explanation: Explanation) -> Iterator[Quantity]:
    """All that is shown as a formula."""
    yield from (*explanation.model, *explanation.memory)
    for section in explanation.sections:
        yield from section.totals
        for counted in section.operators:
            yield from (*counted.tensors("reads"), *counted.tensors("writes"))
            yield from (Quantity(axis.letter, axis.symbolic, axis.value, "") for axis in counted.axes)
            if counted.operator.collective:
                yield Quantity("sent", counted.symbolic.link_bytes, counted.operator.link_bytes, "B")


def _from(source: Source) -> str:
    return f"{source.origin} (default)" if source.assumed else source.origin


# --- Totals -----------------------------------------------------------------------------------------


def _totals(explanation: Explanation) -> Iterator[Block]:
    if explanation.model:
        yield Heading("parameters")
        yield Equations([_closed(quantity, explanation) for quantity in explanation.model])
    for section in explanation.sections:
        if section.totals:
            phase = section.phase
            yield Heading(describe_phase(phase) if phase else section.name)
            yield Equations([_closed(quantity, explanation) for quantity in section.totals])
            if phase:
                yield Equations(list(_times(section)))
    if explanation.memory:
        yield from _memory(explanation)


def _closed(quantity: Quantity, explanation: Explanation) -> Equation:
    """A total as its closed form: collected, with numbers, and what that is."""
    found, chosen = settled(formula.readable(quantity.symbolic), explanation.values)
    forms = _forms(formula.readable(found) if chosen else found, explanation, quantity.value, quantity.unit)
    if chosen:
        where = ", ".join(f"{formula.text(a)} = {formula.text(b)}" for a, b in chosen.items())
        forms.append(said(f"{forms.pop().text}, where {where}"))
    return Equation(quantity.name, forms)


def _forms(expression: Any, explanation: Explanation, value: Number, unit: str) -> list[Form]:
    """Symbols, numbers, value; what would be said twice is said once."""
    values = explanation.values
    forms = [Form(formula.text(expression), formula.latex(expression))]
    if _terms(expression) <= MANY:
        forms.append(Form(formula.text(expression, values), formula.latex(expression, values)))
    forms.append(amount(value, unit))
    return [form for i, form in enumerate(forms) if i == 0 or form.text != forms[i - 1].text]


def _terms(expression: Any) -> int:
    import sympy

    return len(sympy.Add.make_args(sympy.expand(expression)))


def amount(value: Number, unit: str) -> Form:
    """A count in full, and to three digits where it is long."""
    value = plain(value)
    whole = units.grouped(round(value)) if value == int(value) or value >= 1e5 else units.significant(value, 6)
    short = f" ({units.si(value, unit)})" if value >= 1e5 else ""
    return said(f"{whole} {unit}".rstrip() + short)


def _waits(phase: PhaseEstimate) -> str:
    """How long a stage waits, in words (`study/pipeline.py`)."""
    parts = f" / {phase.step.parallel.vpp} parts" if phase.step.parallel.vpp > 1 else ""
    once = f"(what a microbatch takes through all stages - through this one){parts}"
    again = "what a microbatch takes through all stages - microbatches × through this one, if positive"
    if phase.step.phase == "generate":
        return f"prefill: {once}; decodes: {again}"
    return again if phase.step.phase == "decode" else once


def _times(section: Section) -> Iterator[Equation]:
    """Bound and expectation of a phase, and the rates and fractions that follow from them."""
    phase = section.phase
    assert phase is not None
    bound, tokens = phase.bound_seconds, phase.sequences if phase.sees else phase.tokens
    waits, idle = " + wait for other stages" if phase.step.parallel.pp > 1 else "", phase.idle
    things = "images" if phase.sees else "tokens"
    if waits:
        yield Equation("wait for other stages", [said(_waits(phase)), said(units.seconds(idle.bound, 4))])
    yield Equation("bound", [said(f"Σ times × bound, over the operators{waits}"), said(units.seconds(bound, 4))])
    yield Equation(
        "rate at the bound", [said(f"{tokens} {things} / {units.seconds(bound, 4)}"), said(describe_rate(phase))]
    )
    expected, kernels = phase.expected, phase.kernel_seconds
    if expected is None or kernels is None or idle.expected is None:
        return
    if waits:
        wait = units.seconds(float(idle.expected.seconds), 4)
        yield Equation("wait expected", [said(_waits(phase)), said(wait)])
        waits = f" + {wait}"
    seconds = float(expected.seconds)
    words = "Σ times × expected"
    if phase.launch.seconds:
        words = f"max({words}, {phase.kernels} launches × {units.seconds(phase.launch.seconds)})"
        host = phase.kernels * phase.launch.seconds
        numbers = said(f"max({units.seconds(float(kernels.seconds), 4)}, {units.seconds(host, 4)}){waits}")
        yield Equation("expected", [said(f"{words}{waits}"), numbers, said(units.seconds(seconds, 4))])
    else:
        yield Equation("expected", [said(f"{words}{waits}"), said(units.seconds(seconds, 4))])
    yield Equation("that is", [said(describe_expectation(phase))])
    peak, bandwidth = phase.ceilings
    size, took = plain(phase.cost.bytes), units.seconds(seconds, 4)
    utilizations = {"MFU": ("of all pairs", phase.model_flops)}
    if phase.model_flops != phase.all_pairs_matmul_flops:
        utilizations["HFU"] = ("and of what is computed again", phase.all_pairs_matmul_flops)
    for name, (counted, flops) in utilizations.items():
        yield Equation(
            name,
            [
                said(f"matmul FLOPs {counted} / (expected × peak)"),
                said(f"{units.si(plain(flops), 'FLOP', 4)} / ({took} × {units.si(peak, 'FLOP/s', 4)})"),
                said(f"{plain(flops) / seconds / peak:.1%}"),
            ],
        )
    yield Equation(
        "MBU",
        [
            said("bytes / (expected × bandwidth)"),
            said(f"{units.si(size, 'B', 4)} / ({took} × {units.si(bandwidth, 'B/s', 4)})"),
            said(f"{size / seconds / bandwidth:.1%}"),
        ],
    )


def _memory(explanation: Explanation) -> Iterator[Block]:
    estimate = explanation.estimate
    yield Heading("memory at its peak")
    yield Equations([_closed(quantity, explanation) for quantity in explanation.memory])
    if explanation.peak:
        name, alive = explanation.peak
        yield Paragraph(f"most activations are alive at {name}: {', '.join(_tensor(tensor) for tensor in alive)}")
    total = sum(quantity.value for quantity in explanation.memory)
    words = f"together {units.binary(total)}"
    if estimate and estimate.device.capacity:
        words += f" of {units.binary(estimate.device.capacity)}: {'fits' if estimate.fits else 'does not fit'}"
    yield Paragraph(words)
    if estimate and (largest := describe_largest(estimate)):
        yield Paragraph(f"{largest}: the most for which this sum stays within the device's memory")


def _tensor(tensor: Quantity) -> str:
    return f"{tensor.name} {formula.text(formula.readable(tensor.symbolic))} = {units.si(plain(tensor.value), 'B')}"


# --- Operators --------------------------------------------------------------------------------------


def _operators(explanation: Explanation) -> Iterator[Block]:
    if any(section.totals for section in explanation.sections):
        yield Heading("axes")
        axes: dict[str, dict[str, None]] = {}
        for axis in (axis for s in explanation.sections for counted in s.operators for axis in counted.axes):
            axes.setdefault(axis.letter, {})[axis.meaning] = None
        yield Table(
            ("axis", "what it is"), [(_letter(letter), "; ".join(meanings)) for letter, meanings in axes.items()]
        )
    for section in explanation.sections:
        if section.name != section.operators[0].operator.name:  # a kernel is its own section
            yield Heading(f"{section.name}, operator by operator" if section.totals else section.name)
        for counted in section.operators:
            yield from _operator(counted, explanation, alone=not section.totals)


def _operator(counted: Counted, explanation: Explanation, alone: bool) -> Iterator[Block]:
    """One operator; `alone` with all that its expected time consists of."""
    operator = counted.operator
    stage = f"{operator.stage}: " if operator.stage else ""
    times = f" × {operator.count}" if operator.count > 1 else ""
    yield Heading(f"{stage}{operator.name}{times}", 3)
    yield Code("\n".join(line.text for line in operator.lines))
    if alone:
        yield Table(("axis", "what it is", "size", "|value", "from"), [_axis(a, explanation) for a in counted.axes])
    else:
        yield Paragraph(" · ".join(" = ".join(_size(axis)) for axis in counted.axes))
    yield Equations(list(_counts(counted, explanation)))
    if counted.placed:
        yield from _roofs(counted, counted.placed.placement, explanation, alone)


def _axis(axis: Axis, explanation: Explanation) -> list[str | Form]:
    """Letter, meaning, size in symbols, size, and the keys and options that the symbols came from."""
    import sympy

    found = formula.readable(axis.symbolic)
    sources = [explanation.sources[s] for s in sorted(sympy.sympify(found).free_symbols, key=str)]
    origin = ", ".join(dict.fromkeys(_from(source) for source in sources))
    size = Form(formula.text(found), formula.latex(found)) if sources else ""  # what is no symbol is the number beside
    return [_letter(axis.letter), axis.meaning, size, _number(axis.value), origin]


def _size(axis: Axis) -> list[str]:
    """`["c", "3D", "4800"]`: letter, symbols where it has any, number."""
    return list(dict.fromkeys((axis.letter, formula.text(formula.readable(axis.symbolic)), _number(axis.value))))


def _number(value: Number) -> str:
    value = plain(value)
    return str(int(value)) if value == int(value) else units.significant(value, 6)


def _counts(counted: Counted, explanation: Explanation) -> Iterator[Equation]:
    cost, symbolic = counted.operator.cost, counted.symbolic.cost
    if cost.matmul_flops:
        forms = _forms(formula.readable(symbolic.matmul_flops), explanation, cost.matmul_flops, "FLOP")
        by_axes = [_by_axes(line) for line in counted.operator.lines if line.contracted]
        joined = Form(" + ".join(form.text for form in by_axes), " + ".join(form.latex for form in by_axes))
        yield Equation("matmul FLOPs", [joined, *forms] if joined.text != forms[0].text else forms)
    if cost.vector_flops:
        expression = formula.readable(symbolic.vector_flops)
        yield Equation("vector FLOPs", _forms(expression, explanation, cost.vector_flops, "FLOP"))
    for way, name in (("reads", "bytes read"), ("writes", "bytes written")):
        tensors = counted.tensors(way)
        parts = [formula.readable(tensor.symbolic) for tensor in tensors]
        value = sum(tensor.value for tensor in tensors)
        named = Form(
            " + ".join(f"{t.name} {formula.text(part)}" for t, part in zip(tensors, parts, strict=True)),
            " + ".join(_braced(t.name, formula.latex(part)) for t, part in zip(tensors, parts, strict=True)),
        )
        yield Equation(name, [named, amount(value, "B")])
    if counted.operator.collective:
        sent = formula.readable(symbolic.link_bytes)
        yield Equation("bytes sent", _forms(sent, explanation, plain(cost.link_bytes), "B"))
    yield Equation(
        "intensity",
        [
            said(f"{units.si(plain(cost.flops), 'FLOP', 4)} / {units.si(plain(cost.bytes), 'B', 4)}"),
            said(f"{units.significant(plain(cost.intensity), 4)} FLOP/B"),
        ],
    )


def _braced(name: str, latex: str) -> str:
    return rf"\underbrace{{{latex}}}_{{{said(name).latex}}}"


def _by_axes(line: Line) -> Form:
    """`2·b·t·d·f`: a multiply-add for every point of the contraction's axes."""
    return Form("2·" + "·".join(line.axes), r"2\," + r"\,".join(_letter(axis).latex for axis in line.axes))


def _letter(axis: str) -> Form:
    """An axis, in letters that no symbol has."""
    return Form(axis, rf"\mathtt{{{axis}}}")


def _roofs(counted: Counted, placed: Placement, explanation: Explanation, alone: bool) -> Iterator[Block]:
    device, dtype, cost = explanation.device, explanation.dtype, placed.cost
    assert device is not None
    pipe, vector = device.matmul_pipe(dtype), device.vector_pipe(dtype)
    asked: list[tuple[str, str, float]] = []
    if cost.matmul_flops:
        ceiling = f"{units.si(plain(cost.matmul_flops), 'FLOP', 4)} / {units.si(pipe.peak, 'FLOP/s', 4)}"
        asked.append((f"compute, {pipe.name}", ceiling, placed.matmul_seconds))
    if cost.vector_flops and vector:
        ceiling = f"{units.si(plain(cost.vector_flops), 'FLOP', 4)} / {units.si(vector.peak, 'FLOP/s', 4)}"
        asked.append((f"compute, {vector.name}", ceiling, placed.vector_seconds))
    ceiling = f"{units.si(plain(cost.bytes), 'B', 4)} / {units.si(device.bandwidth, 'B/s', 4)}"
    asked.append(("memory, DRAM", ceiling, placed.memory_seconds))
    collective = counted.operator.collective
    if cost.link_bytes and (way := collective and route(collective, device)):
        ceiling = f"{units.si(plain(cost.link_bytes), 'B', 4)} / {units.si(way.bandwidth, 'B/s', 4)}"
        asked.append((f"communication, {way.link(device).name}, one way", ceiling, placed.link_seconds))
        if way.leaves and way.crossing:
            yield _crossing(way.crossing)
    yield Equations([Equation(name, [said(how), said(units.seconds(plain(time)))]) for name, how, time in asked])
    ordered = sorted((plain(time) for _, _, time in asked), reverse=True)
    binding = max((roof for roof in asked if roof[0].startswith(placed.bound)), key=lambda roof: roof[2])
    by = ""
    if len(ordered) > 1 and ordered[1]:
        tie = ordered[0] == ordered[1]
        by = (
            ", though another roof takes as long"
            if tie
            else f", by a factor {units.significant(ordered[0] / ordered[1])}"
        )
    words = f"{binding[0]} binds{by}: bound {units.seconds(ordered[0], 4)}"
    expected = counted.placed and counted.placed.expected
    if expected:
        low, high = (units.seconds(plain(value)) for value in (expected.low, expected.high))
        words += f"; expected {units.seconds(plain(expected.seconds), 4)} ({low} to {high})"
        if counted.placed and counted.placed.beside:
            kernels = (f"{kernel.name} ({units.si(plain(kernel.bytes), 'B', 4)})" for kernel in counted.placed.beside)
            words += f", with kernels that eager mode runs beside it: {', '.join(kernels)}"
        if counted.fused and counted.fused.rides:
            words += ", inside the kernel beside it: its bytes and no launch; at most as a kernel of its own"
        elif counted.fused and counted.fused.together:
            words += f", its columns' share of one product: {', '.join(counted.fused.together)}"
    yield Paragraph(words)
    if counted.formula and expected and not (counted.fused and counted.fused.rides):
        beside = bool(counted.placed and counted.placed.beside)
        yield from _expected(counted.formula, ordered[0], expected, beside, counted.fused)


def _crossing(found: Crossing) -> Equations:
    """How fast data cross from node to node, as if a ring sent all of them there."""
    leaving, staying = (units.significant(float(share), 4) for share in (found.leaving, found.staying))
    port, link = (units.si(rate, "B/s", 4) for rate in (found.port, found.inside))
    leaves = f"of each byte that a ring sends, {leaving} leaves a node by a port of {port}"
    stays = f"{staying} goes over a link of {link} within it"
    rate = f"1 / max({leaving} / {port}, {staying} / {link}) = {units.si(plain(found.bandwidth), 'B/s', 4)}"
    return Equations(
        [Equation(f"among {found.nodes} nodes", [said(f"{leaves}, {stays}")]), Equation("rate", [said(rate)])]
    )


def _expected(
    found: Formula, bound: float, expected: Expected, beside: bool = False, fused: Fused | None = None
) -> Iterator[Block]:
    """How the expected time comes about: what its formula was asked, its lines as they were evaluated, and the kernels
    beside it, or its share of a kernel, where there are any."""
    lines = reasons.steps(found)
    used = {step.name for step in lines}
    asked = [p for p in reasons.given(found) if p.name in used and not p.name.startswith(("chip.", "timing."))]
    yield Paragraph(f"expected for {', '.join(f'{p.name} = {written(p.value)}' for p in asked)}:")
    taken = {p.name for p in reasons.given(found)}
    forms = [_line(step) for step in lines if step.name not in taken]
    total = plain(lines[-1].value)
    named, valued = "max(seconds, bound)", f"max({written(total)}, {written(bound)})"
    if beside:
        others = plain(expected.seconds) - max(total, bound)
        named, valued = f"{named} + kernels beside", f"{valued} + {written(others)}"
    if fused and fused.together:
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


def _formulas(explanation: Explanation) -> Iterator[Block]:
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
            yield from _prose(reasons.stated(found))
            asked = [p for p in reasons.given(found) if not p.name.startswith(("chip.", "timing."))]
            yield Table(("asked", "what it is"), [(p.name, p.meaning) for p in asked])
            if fixed := reasons.constants(found):
                yield _table("fixed", fixed)
            yield _table("device", [p for p in reasons.given(found) if p.name.startswith("chip.")])
            shown.add(found.name)
        fit = found.fit
        yield Paragraph(
            f"Parameters of {', '.join(dict.fromkeys(names))}: fitted on {fit.source} ({fit.rows} rows), "
            f"{fit.error:.1%} off on {fit.held_out} others; the interval is × {fit.low:.3g} to × {fit.high:.3g}, and "
            "nothing is expected below its bound."
        )
        yield _table("fitted", [p for p in reasons.given(found) if p.name.startswith("timing.")])


def _prose(docstring: str) -> Iterator[Block]:
    """Paragraphs, and what is indented as it stands."""
    for part in docstring.split("\n\n"):
        yield Code(part) if part.startswith(" ") else Paragraph(" ".join(part.split()))


def _table(title: str, found: Sequence[reasons.Parameter]) -> Table:
    return Table((title, "|value", "what it is"), [(p.name, written(p.value), p.meaning) for p in found])


# --- JSON -------------------------------------------------------------------------------------------


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """The document `roofmodel.explain/1`: base units, unrounded, None for unknown."""
    return {
        "schema": "roofmodel.explain/1",
        "name": explanation.name,
        "about": explanation.about,
        "dtype": explanation.dtype,
        "hardware": explanation.device and explanation.device.id,
        "symbols": [
            {"symbol": symbol.name, "latex": formula.latex(symbol), **source._asdict()}
            for symbol, source in explanation.sources.items()
        ],
        "parameters": [describe_quantity(quantity) for quantity in explanation.model],
        "phases": [
            {
                "phase": section.name,
                "ops": [_op(counted) for counted in section.operators],
                "totals": [describe_quantity(quantity) for quantity in section.totals],
            }
            for section in explanation.sections
        ],
        "memory": [describe_quantity(quantity) for quantity in explanation.memory],
        "notes": list(explanation.notes),
    }


def describe_quantity(quantity: Quantity) -> dict[str, Any]:
    """A quantity for JSON: as it is written, in LaTeX, and for sympy.sympify."""
    expression = formula.readable(quantity.symbolic)
    return {
        "name": quantity.name,
        "formula": formula.text(expression),
        "latex": formula.latex(expression),
        "sympy": str(expression),
        "value": plain(quantity.value),
        "unit": quantity.unit,
    }


def _op(counted: Counted) -> dict[str, Any]:
    operator, symbolic, placed = counted.operator, counted.symbolic, counted.placed
    counts = {"matmul_flops": "FLOP", "vector_flops": "FLOP", "bytes_read": "B", "bytes_written": "B"}
    return {
        "name": operator.name,
        "stage": operator.stage or None,
        "count": operator.count,
        "times": formula.text(counted.times),
        "spec": operator.spec,
        "axes": [
            {"axis": a.letter, "meaning": a.meaning, "formula": formula.text(a.symbolic), "value": plain(a.value)}
            for a in counted.axes
        ],
        "counts": [
            describe_quantity(Quantity(name, getattr(symbolic.cost, name), getattr(operator.cost, name), unit))
            for name, unit in counts.items()
        ],
        "reads": [describe_quantity(tensor) for tensor in counted.tensors("reads")],
        "writes": [describe_quantity(tensor) for tensor in counted.tensors("writes")],
        "intensity": plain(operator.cost.intensity),
        "roofs": placed
        and {
            "matmul_seconds": plain(placed.placement.matmul_seconds),
            "vector_seconds": plain(placed.placement.vector_seconds),
            "memory_seconds": plain(placed.placement.memory_seconds),
        },
        "bound": placed and placed.placement.bound,
        "bound_seconds": placed and plain(placed.placement.bound_seconds),
        "expected_seconds": placed and placed.expected and plain(placed.expected.seconds),
        "expected_by": counted.formula
        and {
            "formula": counted.formula.name,
            "parameters": {p.name: p.value for p in reasons.parameters(counted.formula)},
            "source": counted.formula.fit.source,
            "together": [*counted.fused.together] if counted.fused else [],
            "columns": [*counted.fused.columns] if counted.fused and counted.fused.together else None,
            "rides": counted.fused.rides if counted.fused else False,
            "steps": [step._replace(value=plain(step.value))._asdict() for step in reasons.steps(counted.formula)],
        },
    }
