"""Derivation of an operator as document blocks: its axes, counts, time at each ceiling and expected time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import OperatorLine
from roofmodel.devices.device import Device
from roofmodel.explain.expected_document import expected_time
from roofmodel.explain.explain import Axis, Explanation, SymbolicOperator
from roofmodel.explain.quantities import amount, describe_layers, forms, origin
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number, plain
from roofmodel.report import formula
from roofmodel.report.document import Block, Code, Equation, Equations, Form, Heading, Paragraph, TextTable
from roofmodel.report.latex import text_form
from roofmodel.steps.placed import Placed
from roofmodel.timing.engine import Run
from roofmodel.timing.roofline import NodeCrossing, Placement, Route, route

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
    yield Paragraph(_bound_by(ceilings, placement) + _expected(placed, counted.run))
    if timing and counted.formula and placed.expected and not (counted.run and counted.run.absorbed):
        bound, extra = plain(placement.bound_seconds), bool(placed.extra_kernels)
        yield from expected_time(counted.formula, bound, placed.expected, extra, counted.run)


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
    """`bound 1.2 ms, limited by memory, DRAM (3.01 × the time of the next ceiling)`"""
    longest, *others = sorted((ceiling.seconds for ceiling in ceilings), reverse=True)
    binding = max((c for c in ceilings if c.name.startswith(placement.bound)), key=lambda ceiling: ceiling.seconds)
    margin = ""
    if others and others[0]:
        factor = f" ({units.significant(longest / others[0])} × the time of the next ceiling)"
        margin = factor if longest > others[0] else " (another ceiling gives the same time)"
    return f"bound {units.seconds(longest, 4)}, limited by {binding.name}{margin}"


def _expected(placed: Placed, run: Run | None) -> str:
    """The expected time with its interval, extra kernels and fusion; empty where it is not known."""
    if placed.expected is None:
        return ""
    seconds, low, high = map(plain, placed.expected)
    words = f"; expected {units.seconds(seconds, 4)} ({units.seconds(low)} to {units.seconds(high)})"
    if placed.extra_kernels:
        traffic = (
            f"{units.si(plain(kernel.bytes), 'B', 4)} ({EXTRA_KERNELS.get(kernel.name, kernel.name)})"
            for kernel in placed.extra_kernels
        )
        words += f", including extra memory traffic: {', '.join(traffic)}"
    if run and run.absorbed:
        words += (
            ", fused into a neighboring kernel: the time of its bytes without a launch, at most that of a separate "
            "kernel"
        )
        words += "; the next norm does not read the sum" if placed.operator.group == "residual" else ""
    elif run and run.merged:
        words += f", its columns' share of one GEMM: {', '.join(run.merged)}"
    return words


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
