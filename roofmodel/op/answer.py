"""The answer of `roof op`: cost, bound and expected time of one operation, and the terms of its formula."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from roofmodel.errors import Option
from roofmodel.numbers import units
from roofmodel.op.op import OneOperation
from roofmodel.report.document import Block, Document, Facts, Heading, Rows
from roofmodel.report.table import NUMBER, Cell, Column, Table
from roofmodel.timing.roofline import with_fp16_accumulation


class OperationNumber(NamedTuple):
    """A number of the answer; `part` is `result`, `term` (a line of the formula) or `input` (what the formula uses)."""

    part: str
    name: str
    value: Any
    unit: str
    formula: str = ""
    meaning: str = ""


_PREFIXED = ("FLOP", "FLOP/s", "B", "B/s")
"""Units with SI prefixes. The other units of inputs are counts, such as rows."""


def _value(line: OperationNumber) -> str:
    if line.part == "input" and line.unit not in ("s", *_PREFIXED):
        return str(line.value) if isinstance(line.value, int) else units.significant(line.value, 6)
    if line.unit == "s":
        return units.seconds(line.value)
    return units.si(line.value, line.unit) if line.unit else f"{line.value:.4g}"


def _formula(line: OperationNumber) -> Cell:
    return line.formula or (line.meaning, "dim")


NUMBERS = Table(
    "numbers",
    (
        Column("part", meaning="`result`, `term` (a line of the formula) or `input` (what the formula uses)"),
        Column("name", "term", wrap=True, meaning="the number"),
        Column("value", "value", NUMBER, text=_value, meaning="its value in the unit"),
        Column("unit", value=lambda line: line.unit or None, meaning="its unit; empty for a count"),
        Column("formula", "formula", text=_formula, wrap=True, meaning="the formula of a term"),
        Column("meaning", meaning="what an input is"),
    ),
)
"""The numbers of an operation."""


def document(operation: OneOperation) -> Document:
    """A summary, and the terms of the expected time's formula with what it uses."""
    sizes = ", ".join(f"{name} {value}" for name, value in operation.sizes.items())
    blocks: list[Block] = [Facts([*_summary(operation)])]
    if operation.steps:
        blocks += [Heading("formula of the expected time"), Rows(NUMBERS, [*_formula_lines(operation)])]
    return Document(
        f"{operation.kind} on {operation.device.name}: {sizes} · {operation.dtype}",
        blocks,
        partial(_data, operation),
        lambda: Rows(NUMBERS, [*_results(operation), *_formula_lines(operation)]),
    )


def _data(operation: OneOperation) -> dict[str, Any]:
    """The document `roofmodel.op/1`."""
    cost, run, expected = operation.operator.cost, operation.run, operation.drawn.expected
    return {
        "schema": "roofmodel.op/1",
        "op": operation.kind,
        "sizes": dict(operation.sizes),
        "dtype": operation.dtype,
        "hardware": operation.device.id,
        "engine": operation.engine.id,
        "engine_version": operation.engine.version,
        "flops": cost.matmul_flops + cost.vector_flops,
        "bytes": cost.bytes,
        "link_bytes": cost.link_bytes,
        "intensity": operation.intensity,
        "ridge": operation.ridge,
        "compute_bound_from": operation.compute_bound_from and {operation.growing: operation.compute_bound_from},
        "bound": str(operation.placed.bound),
        "bound_seconds": float(operation.placed.bound_seconds),
        "expected_seconds": expected and float(expected.value),
        "expected_low_seconds": expected and float(expected.low),
        "expected_high_seconds": expected and float(expected.high),
        "expected_bound": operation.expected_bound,
        "power_watts": operation.drawn.power_watts,
        "energy_joules": operation.drawn.energy_joules,
        "implementation": run.implementation,
        "expected_from": run.evidence,
        "terms": operation.terms,
        "measured_seconds": operation.measured,
        "notes": [str(note) for note in operation.notes],
    }


RESULTS = {
    "flops": "FLOP", "bytes": "B", "link_bytes": "B", "intensity": "FLOP/B", "ridge": "FLOP/B", "bound_seconds": "s",
    "expected_seconds": "s", "expected_low_seconds": "s", "expected_high_seconds": "s", "power_watts": "W",
    "energy_joules": "J", "measured_seconds": "s",
}  # fmt: skip
"""The results of the JSON document that are numbers, with their units."""


def _results(operation: OneOperation) -> Iterator[OperationNumber]:
    data = _data(operation)
    return (OperationNumber("result", name, data[name], unit) for name, unit in RESULTS.items())


def _formula_lines(operation: OneOperation) -> Iterator[OperationNumber]:
    """The terms in the order of their computation, then what they use."""
    for step in operation.steps:
        yield OperationNumber("term", step.name, step.value, step.unit, step.formula)
    expected, drawn = operation.run.expected, operation.drawn
    if operation.steps and expected and float(expected.value) != operation.terms.get("seconds"):
        yield OperationNumber("term", "expected", float(expected.value), "s", "max(seconds, bound)")
    if drawn.is_limited_by_power and drawn.expected:
        formula = "energy above idle / (power limit - idle)"
        yield OperationNumber("term", "sustained", float(drawn.expected.value), "s", formula)
    for each in operation.inputs:
        yield OperationNumber("input", each.name, each.value, each.unit, meaning=each.meaning)


def _summary(operation: OneOperation) -> Iterator[tuple[str, str]]:
    run, cost, bound = operation.run, operation.operator.cost, float(operation.placed.bound_seconds)
    flops = cost.matmul_flops + cost.vector_flops
    sent = [f"{units.si(cost.link_bytes, 'B')} sent by each GPU"] if cost.link_bytes else []
    counted = [units.si(flops, "FLOP")] if flops else []
    intensity = [f"{units.significant(operation.intensity)} FLOP/B"] if operation.intensity else []
    yield "cost", ", ".join((*counted, f"{units.si(cost.bytes, 'B')} read and written", *sent, *intensity))
    yield "bound", f"{units.seconds(bound)}, limited by {_CEILINGS[str(operation.placed.bound)]}"
    if expected := operation.drawn.expected:
        value, low, high = (units.seconds(float(seconds)) for seconds in expected)
        share = bound / float(expected.value)
        kernel = "" if run.implementation in (None, "any", operation.kind) else f", by {run.implementation}"
        limit = ", limited by power" * bool(operation.drawn.is_limited_by_power)
        yield "expected", f"{value} ({low} to {high}), {share:.0%} of the ceiling{kernel}{limit}"
    else:
        yield "expected", "no expected time: no parameters are fitted for this kind on this device"
    if operation.measured is not None:
        yield "measured", _measured(operation, operation.measured, operation.drawn.expected)
    if cost.matmul_flops and operation.placed.bound != "communication":
        yield "compute-bound", _compute_bound(operation)


def _compute_bound(operation: OneOperation) -> str:
    """What makes the operation compute-bound."""
    ridge = f"ridge point {units.significant(operation.ridge)} FLOP/B"
    if operation.compute_bound_from is not None:
        return f"{operation.growing} = {operation.compute_bound_from} or more ({ridge})"
    if operation.growing is not None:
        return f"at no {operation.growing}: the intensity stays below the {ridge}"
    if operation.kind == "attn_generation":
        return f"at no batch: each sequence reads its own KV cache ({ridge})"
    return f"above an intensity of {units.significant(operation.ridge)} FLOP/B, the ridge point"


MAX_CLOCK = 1.1
"""The highest clock of a card over its rated boost clock, which GeForce cards exceed by several percent."""
_CEILINGS = {"compute": "compute", "memory": "DRAM bandwidth", "communication": "the link's bandwidth"}


def _measured(operation: OneOperation, seconds: float, expected: Any) -> str:
    placed = operation.placed
    bound, compute = float(placed.bound_seconds), float(placed.compute_seconds)
    least = max(compute, float(placed.link_seconds)) if operation.fits_l2 else bound
    if least <= seconds < bound:
        judged = "faster than DRAM allows: the data come from the L2 cache"
    elif seconds >= least:
        judged = f"{bound / seconds:.0%} of the ceiling"
    elif least == compute and seconds >= least / MAX_CLOCK:
        faster = f"{units.significant(100 * (least / seconds - 1), 2)}% faster than the"
        judged = f"{faster} {'compute ' * (least < bound)}bound: the clock was above the rated boost clock"
    elif seconds >= float(placed.memory_seconds) and (
        explained := with_fp16_accumulation(operation.device, operation.dtype, compute, seconds)
    ):
        judged = explained
    else:
        return (
            f"{units.seconds(seconds)}, below the bound of {units.seconds(bound)}: faster than physically possible; "
            f"check the sizes, {Option('dtype')} and {Option('hw')}"
        )
    text = f"{units.seconds(seconds)}, {judged}"
    if expected is None:
        return text
    low, high = float(expected.low), float(expected.high)
    place = "inside" if low <= seconds <= high else "above" if seconds > high else "below"
    return f"{text}; {seconds / float(expected.value):.2f} times the expected time, {place} its interval"
