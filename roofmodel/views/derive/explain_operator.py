"""What is explained of an operator: its axes, its counts, and the times that the roofs allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from roofmodel import units
from roofmodel.algebra import Number, plain
from roofmodel.counting.notation import Line
from roofmodel.devices.device import Device
from roofmodel.prediction.engine import Fused
from roofmodel.prediction.links import NodeCrossing, Route, route
from roofmodel.prediction.roofline import Placement
from roofmodel.study.derive.explain import Axis, Counted, Explanation
from roofmodel.study.estimate.phase import Placed
from roofmodel.views.derive.explain_expected import expected_time
from roofmodel.views.derive.quantities import amount, forms, origin
from roofmodel.views.kit import formula
from roofmodel.views.kit.document import Block, Code, Equation, Equations, Form, Heading, Paragraph, Table, said


def operators(explanation: Explanation) -> Iterator[Block]:
    """Phase by phase; where these are whole, the letters of all axes first, told once."""
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
        yield from _roofs(counted, counted.placed, explanation)


def _axis(axis: Axis, explanation: Explanation) -> list[str | Form]:
    """Letter, meaning, size in symbols, size, and the keys and options that the symbols came from."""
    import sympy

    found = formula.readable(axis.symbolic)
    sources = [explanation.sources[s] for s in sorted(sympy.sympify(found).free_symbols, key=str)]
    origins = ", ".join(dict.fromkeys(map(origin, sources)))
    size = Form(formula.text(found), formula.latex(found)) if sources else ""  # what is no symbol is the number beside
    return [_letter(axis.letter), axis.meaning, size, _number(axis.value), origins]


def _size(axis: Axis) -> list[str]:
    """`["c", "3D", "4800"]`: letter, symbols where it has any, number."""
    return list(dict.fromkeys((axis.letter, formula.text(formula.readable(axis.symbolic)), _number(axis.value))))


def _number(value: Number) -> str:
    value = plain(value)
    return str(int(value)) if value == int(value) else units.significant(value, 6)


def _counts(counted: Counted, explanation: Explanation) -> Iterator[Equation]:
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
        named = Form(
            " + ".join(f"{t.name} {formula.text(part)}" for t, part in zip(tensors, parts, strict=True)),
            " + ".join(_braced(t.name, formula.latex(part)) for t, part in zip(tensors, parts, strict=True)),
        )
        yield Equation(name, [named, amount(value, "B")])
    if counted.operator.collective:
        sent = formula.readable(symbolic.link_bytes)
        yield Equation("bytes sent", forms(sent, explanation, plain(cost.link_bytes), "B"))
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


# --- Times ------------------------------------------------------------------------------------------


class _Roof(NamedTuple):
    """What it is called, the time that it asks for as a quotient, and that in seconds."""

    name: str
    quotient: str
    seconds: float


def _roofs(counted: Counted, placed: Placed, explanation: Explanation) -> Iterator[Block]:
    """What each roof asks for, which of them binds, and what is expected."""
    device, collective, found = explanation.device, counted.operator.collective, placed.placement
    assert device is not None
    way = route(collective, device) if collective and found.cost.link_bytes else None
    if way and way.leaves and way.crossing:
        yield _crossing(way.crossing)
    roofs = list(_asking(found, device, explanation.dtype, way))
    yield Equations([Equation(roof.name, [said(roof.quotient), said(units.seconds(roof.seconds))]) for roof in roofs])
    yield Paragraph(_binding(roofs, found) + _expected(placed, counted.fused))
    if counted.formula and placed.expected and not (counted.fused and counted.fused.absorbed):
        bound, extra = plain(found.bound_seconds), bool(placed.extra_kernels)
        yield from expected_time(counted.formula, bound, placed.expected, extra, counted.fused)


def _asking(found: Placement, device: Device, dtype: str, way: Route | None) -> Iterator[_Roof]:
    """The roofs that are over this cost."""
    cost, matmul, vector = found.cost, device.matmul_pipe(dtype), device.vector_pipe(dtype)

    def roof(name: str, amount: Number, unit: str, rate: Number, seconds: Number) -> _Roof:
        quotient = f"{units.si(plain(amount), unit, 4)} / {units.si(rate, f'{unit}/s', 4)}"
        return _Roof(name, quotient, plain(seconds))

    if cost.matmul_flops:
        yield roof(f"compute, {matmul.name}", cost.matmul_flops, "FLOP", matmul.peak, found.matmul_seconds)
    if cost.vector_flops and vector:
        yield roof(f"compute, {vector.name}", cost.vector_flops, "FLOP", vector.peak, found.vector_seconds)
    yield roof("memory, DRAM", cost.bytes, "B", device.bandwidth, found.memory_seconds)
    if way:
        name = f"communication, {' and '.join(link.name for link in way.links(device))}, one way"
        yield roof(name, cost.link_bytes, "B", way.bandwidth, found.link_seconds)


def _binding(roofs: Sequence[_Roof], found: Placement) -> str:
    """`memory, DRAM binds, by a factor 3.01: bound 1.2 ms`"""
    longest, *others = sorted((roof.seconds for roof in roofs), reverse=True)
    binding = max((roof for roof in roofs if roof.name.startswith(found.bound)), key=lambda roof: roof.seconds)
    by = ""
    if others and others[0]:
        factor = f", by a factor {units.significant(longest / others[0])}"
        by = factor if longest > others[0] else ", though another roof takes as long"
    return f"{binding.name} binds{by}: bound {units.seconds(longest, 4)}"


def _expected(placed: Placed, fused: Fused | None) -> str:
    """The expected time and its interval, and what other kernels have to do with it; empty where it is not known."""
    if placed.expected is None:
        return ""
    seconds, low, high = map(plain, placed.expected)
    words = f"; expected {units.seconds(seconds, 4)} ({units.seconds(low)} to {units.seconds(high)})"
    if placed.extra_kernels:
        kernels = (f"{kernel.name} ({units.si(plain(kernel.bytes), 'B', 4)})" for kernel in placed.extra_kernels)
        words += f", with kernels that run beside it: {', '.join(kernels)}"
    if fused and fused.absorbed:
        words += ", inside the kernel beside it: its bytes and no launch; at most as a kernel of its own"
    elif fused and fused.merged:
        words += f", its columns' share of one product: {', '.join(fused.merged)}"
    return words


def _crossing(found: NodeCrossing) -> Equations:
    """How fast GPUs of several nodes exchange, of all that they send, whether it leaves a node or not."""
    leaving, staying = (units.significant(float(share), 4) for share in (found.leaving, found.staying))
    port, link = (units.si(rate, "B/s", 4) for rate in (found.port, found.inside))
    leaves = f"of each byte sent, {leaving} leaves a node by a port of {port}"
    stays = f"{staying} goes over a link of {link} within it"
    rate = f"1 / max({leaving} / {port}, {staying} / {link}) = {units.si(plain(found.bandwidth), 'B/s', 4)}"
    return Equations(
        [Equation(f"among {found.nodes} nodes", [said(f"{leaves}, {stays}")]), Equation("rate", [said(rate)])]
    )
