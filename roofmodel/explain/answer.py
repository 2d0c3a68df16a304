"""The answer of `roof explain`: the formula of each number, with symbols, with numbers, and the value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from roofmodel.estimate.answer import describe_expectation, describe_largest
from roofmodel.estimate.tables import replica_rows
from roofmodel.explain.explain import Explanation, Quantity, SymbolicOperator
from roofmodel.explain.operator_answer import (
    NUMBERS,
    NumberLine,
    describe_quantity,
    forms,
    formulas,
    number,
    operators,
    symbols,
)
from roofmodel.models.symbols import resolve_min_max
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number, plain
from roofmodel.report import formula
from roofmodel.report.document import Block, Document, Equation, Equations, Form, Heading, Paragraph, Rows
from roofmodel.report.latex import text_form
from roofmodel.steps.estimate import describe_phase, describe_rate, describe_usable_memory, energy_totals
from roofmodel.steps.phase import PhaseEstimate, StageTime
from roofmodel.steps.placed import launches, sum_of
from roofmodel.timing import derivation
from roofmodel.timing.timing import Expected


def document(explanation: Explanation, *, timing: bool = False) -> Document:
    """Symbols, totals and memory, then every operator; with `timing` also how each expected time is computed.

    The JSON document has the computation of the expected times in either case.
    """
    blocks = [*_opening(explanation), *_totals(explanation), *operators(explanation, timing)]
    if timing:
        blocks += formulas(explanation)
    on = f" on {explanation.device.name}" if explanation.device else ""
    return Document(
        f"{explanation.name}{on}",
        blocks,
        lambda: to_dict(explanation),
        lambda: Rows(NUMBERS, [*_numbers(explanation)]),
        explanation.notes,
    )


def _numbers(explanation: Explanation) -> Iterator[NumberLine]:
    """Parameters, totals and times of each phase, numbers of each operator, and memory."""
    yield from map(number, explanation.model)
    for section in explanation.sections:
        yield from (number(total, section.name) for total in section.totals)
        if section.totals and (phase := section.phase):
            yield from _seconds(section.name, None, phase.bound_seconds, phase.expected)
        for counted in section.operators:
            name = counted.operator.name
            yield NumberLine(section.name, name, "count", formula.text(counted.times), counted.operator.count, "")
            yield from (number(each, section.name, name) for each in _operator_quantities(counted))
            yield NumberLine(section.name, name, "intensity", None, plain(counted.operator.cost.intensity), "FLOP/B")
            if placed := counted.placed:
                yield from _seconds(section.name, name, placed.placement.bound_seconds, counted.expected)
    yield from map(number, explanation.memory)


def _seconds(phase: str, operator: str | None, bound: Number, expected: Expected | None) -> Iterator[NumberLine]:
    yield NumberLine(phase, operator, "bound_seconds", None, plain(bound), "s")
    if expected is not None:
        yield NumberLine(phase, operator, "expected_seconds", None, plain(expected.value), "s")


def _operator_quantities(counted: SymbolicOperator) -> Iterator[Quantity]:
    """FLOPs and bytes of an operator, and the bytes of each of its tensors."""
    yield from _op_counts(counted)
    for way in ("reads", "writes"):
        yield from (tensor._replace(name=f"{way} {tensor.name}") for tensor in counted.tensors(way))


def _opening(explanation: Explanation) -> Iterator[Block]:
    device, dtype = explanation.device, explanation.dtype
    words = f"{explanation.description}; {dtype}"
    if explanation.estimate:
        words += f"; {explanation.estimate.workload.engine.label}"
    if device:
        costs = [counted.operator.cost for section in explanation.sections for counted in section.operators]
        pipe = device.matmul_pipe(dtype)
        if not any(cost.matmul_flops for cost in costs):
            pipe = device.vector_pipe(dtype) or pipe
        ceilings = [f"{units.si(device.bandwidth, 'B/s', 4)} DRAM"]
        if any(cost.flops for cost in costs):  # without FLOPs no compute ceiling applies
            ridge = f"ridge point {units.significant(pipe.peak / device.bandwidth)} FLOP/B"
            ceilings = [f"{units.si(pipe.peak, 'FLOP/s', 4)} ({pipe.name})", *ceilings, ridge]
        words += f"; ceilings: {', '.join(ceilings)}"
    yield Paragraph(words)
    yield symbols(explanation, _quantities(explanation))


def _quantities(explanation: Explanation) -> Iterator[Quantity]:
    """All quantities that the document shows as formulas."""
    yield from (*explanation.model, *explanation.memory)
    for section in explanation.sections:
        yield from section.totals
        for counted in section.operators:
            yield from (*counted.tensors("reads"), *counted.tensors("writes"))
            yield from (Quantity(axis.letter, axis.symbolic, axis.value, "") for axis in counted.axes)
            if counted.operator.collective:
                yield Quantity("sent", counted.symbolic.link_bytes, counted.operator.link_bytes, "B")


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
                yield Equations(list(_times(phase)))
    if explanation.memory:
        yield from _memory(explanation)


def _closed(quantity: Quantity, explanation: Explanation) -> Equation:
    """A total in closed form: symbols, numbers, value."""
    resolved_formula, chosen = resolve_min_max(formula.readable(quantity.symbolic), explanation.values)
    written = forms(
        formula.readable(resolved_formula) if chosen else resolved_formula, explanation, quantity.value, quantity.unit
    )
    if chosen:
        where = ", ".join(f"{formula.text(a)} = {formula.text(b)}" for a, b in chosen.items())
        written.append(text_form(f"{written.pop().text}, where {where}"))
    return Equation(quantity.name, written)


def _times(phase: PhaseEstimate) -> Iterator[Equation]:
    """Bound and expected time of a phase, and the rates and utilizations that follow from them."""
    yield from _bound(phase)
    if phase.expected is not None:
        yield from _expected(phase, phase.expected)
        yield from _utilizations(phase, float(phase.expected.value))
        yield from _power(phase)


def _bound(phase: PhaseEstimate) -> Iterator[Equation]:
    waits, bound = "", units.seconds(phase.bound_seconds, 4)
    if phase.step.parallel.pp > 1:
        waits = " + wait for other stages"
        wait = units.seconds(phase.idle.bound, 4)
        yield Equation("wait for other stages", [*_waits(phase, lambda stage: stage.bound), text_form(wait)])
    if phase.hidden_bound:
        waits += f" - hidden communication ({units.seconds(phase.hidden_bound, 4)})"
    yield Equation("bound", [text_form(f"Σ times × bound, over the operators{waits}"), text_form(bound)])
    inputs = f"{phase.sequences} images" if phase.is_vision else f"{phase.tokens} tokens"
    yield Equation("rate at the bound", [text_form(f"{inputs} / {bound}"), text_form(describe_rate(phase))])


def _expected(phase: PhaseEstimate, expected: Expected) -> Iterator[Equation]:
    waits, words = "", "Σ times × expected"
    if phase.step.parallel.pp > 1 and phase.idle.expected:
        wait = units.seconds(float(phase.idle.expected.value), 4)
        numbers = _waits(phase, lambda stage: stage.expected.value if stage.expected else 0.0)
        yield Equation("wait expected", [*numbers, text_form(wait)])
        waits = f" + {wait}"
    for name, _, changed in replica_rows(phase):
        sign = "-" if changed is not None and changed < 0 else "+"
        words += "" if changed is None else f" {sign} {name} ({units.seconds(abs(changed), 4)})"
    numbers = []
    if phase.launch.value and phase.kernel_seconds:
        generates = phase.step.phase == "generate"
        parts = [phase.of_stage(stage) for stage in phase.stages] if generates else [phase.placed]
        sums = [sum_of(part) for part in parts] if generates else [phase.work_seconds]
        counts = [launches(part) for part in parts]
        times = [(kernels, many * phase.launch.value) for kernels, many in zip(sums, counts, strict=True)]
        maxima = [
            f"max({units.seconds(float(kernels.value), 4)}, {units.seconds(host, 4)})"
            for kernels, host in times
            if kernels
        ]
        launched = " and ".join(str(launches(part)) for part in parts)
        each = f"launches × {units.seconds(phase.launch.value)}"
        if generates:
            words = f"prefill + decodes, each max({words}, {each}) with {launched} launches"
        else:
            words = f"max({words}, {launched} {each})"
        numbers.append(text_form(f"{' + '.join(maxima)}{waits}"))
    seconds = text_form(units.seconds(float(expected.value), 4))
    yield Equation("expected", [text_form(f"{words}{waits}"), *numbers, seconds])
    yield Equation("in short", [text_form(describe_expectation(phase))])


def _waits(phase: PhaseEstimate, seconds: Callable[[StageTime], Number]) -> list[Form]:
    """How long a stage waits for others, in words and in numbers (`steps/phase.py`)."""
    step, words, numbers = phase.step, [], []
    parts = f" / {step.parallel.vpp} parts" if step.parallel.vpp > 1 else ""
    for part, *times in phase.stage_times:
        *_, through_all, behind = values = [plain(seconds(time)) for time in times]
        this_stage, all_stages, longer = (units.seconds(value, 4) for value in values)
        which = f"{part}: " if len(phase.stage_times) > 1 else ""
        if part in ("decode", "decodes"):
            words.append(f"{which}one microbatch through all stages - microbatches × one microbatch through this stage")
            words[-1] += ", if positive"
            numbers.append(f"{which}{all_stages} - {step.microbatches} × {this_stage}")
        else:
            words.append(f"{which}(one microbatch through all stages - through this stage){parts}")
            numbers.append(f"{which}({all_stages} - {this_stage}){parts}")
        if behind > 1e-9 * through_all:  # more than rounding
            words[-1] += " + how much longer the slowest stage takes"
            numbers[-1] += f" + {longer}"
    return [text_form("; ".join(words)), text_form("; ".join(numbers))]


def _utilizations(phase: PhaseEstimate, seconds: float) -> Iterator[Equation]:
    """MFU, HFU and MBU at the expected time; MFU and HFU as in appendix B of PaLM (arXiv 2204.02311)."""
    (peak, bandwidth), took, all_flops = phase.ceilings, units.seconds(seconds, 4), phase.mean_flops
    per_gpu = " per GPU" if phase.step.parallel.gpus > 1 else ""
    counted = {"MFU": (f"of the model{per_gpu}", all_flops.model)}
    if all_flops.all_pairs != all_flops.model and not phase.selects_keys:
        counted["MFU, all pairs"] = (f"of the model with masked pairs{per_gpu}", all_flops.all_pairs)
    if all_flops.executed != all_flops.model:
        counted["HFU"] = (f"executed{per_gpu}", all_flops.executed)
    for name, (which, flops) in counted.items():
        yield Equation(
            name,
            [
                text_form(f"matmul FLOPs {which} / (expected × peak)"),
                text_form(f"{units.si(plain(flops), 'FLOP', 4)} / ({took} × {units.si(peak, 'FLOP/s', 4)})"),
                text_form(f"{plain(flops) / seconds / peak:.1%}"),
            ],
        )
    size = plain(phase.cost.bytes)
    yield Equation(
        "MBU",
        [
            text_form("bytes / (expected × bandwidth)"),
            text_form(f"{units.si(size, 'B', 4)} / ({took} × {units.si(bandwidth, 'B/s', 4)})"),
            text_form(f"{size / seconds / bandwidth:.1%}"),
        ],
    )


def _power(phase: PhaseEstimate) -> Iterator[Equation]:
    """Energy and mean power at the expected time, and the time that the power limit allows where it limits (Choi et
    al., "A Roofline Model of Energy", IPDPS 2013)."""
    found, power = energy_totals(phase), phase.power
    if power is None or found["power_watts"] is None or phase.expected is None:
        return
    seconds = float(phase.expected.value)
    took, idle, work = units.seconds(seconds, 4), f"{power.idle:g} W", found["energy_joules"] - power.idle * seconds
    joules, watts = (
        units.si(found[f"{name}"], unit, 4) for name, unit in (("energy_joules", "J"), ("power_watts", "W"))
    )
    above = units.si(work, "J", 4)
    words = "Σ times × (FLOPs × energy of a FLOP + bytes × energy of a byte)"
    yield Equation("energy above idle", [text_form(words), text_form(above)])
    yield Equation(
        "energy", [text_form("idle × expected + energy above idle"), text_form(f"{idle} × {took} + {above}"),
                   text_form(joules)],
    )  # fmt: skip
    yield Equation("power", [text_form("energy / expected"), text_form(f"{joules} / {took}"), text_form(watts)])
    if phase.is_limited_by_power and work / power.budget > 0.999 * seconds:
        yield Equation(
            "limited by power",
            [text_form("energy above idle / (limit - idle)"), text_form(f"{above} / ({power.limit:g} W - {idle})"),
             text_form(units.seconds(work / power.budget, 4))],
        )  # fmt: skip


def _memory(explanation: Explanation) -> Iterator[Block]:
    estimate = explanation.estimate
    yield Heading("peak memory")
    yield Equations([_closed(quantity, explanation) for quantity in explanation.memory])
    if explanation.peak:
        name, alive = explanation.peak
        yield Paragraph(f"activations are largest at {name}: {', '.join(_tensor(tensor) for tensor in alive)}")
    total = sum(quantity.value for quantity in explanation.memory)
    words = f"together {units.binary(total)}"
    if estimate and estimate.device.capacity:
        words += f" of {describe_usable_memory(estimate)}: {'fits' if estimate.fits else 'does not fit'}"
    yield Paragraph(words)
    if estimate and estimate.device.capacity:
        yield Paragraph(f"largest batch for which this sum fits in the device's memory: {describe_largest(estimate)}")


def _tensor(tensor: Quantity) -> str:
    return f"{tensor.name} {formula.text(formula.readable(tensor.symbolic))} = {units.si(plain(tensor.value), 'B')}"


def to_dict(explanation: Explanation) -> dict[str, Any]:
    """The document `roofmodel.explain/1`: base units, unrounded, None for unknown."""
    return {
        "schema": "roofmodel.explain/1",
        "name": explanation.name,
        "about": explanation.description,
        "dtype": explanation.dtype,
        "hardware": explanation.device and explanation.device.id,
        "symbols": [
            {"symbol": symbol.name, "latex": formula.latex(symbol), **source._asdict(), "origin": str(source.origin)}
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
        "notes": list(map(str, explanation.notes)),
    }


def _op_counts(counted: SymbolicOperator) -> list[Quantity]:
    cost, symbolic = counted.operator.cost, counted.symbolic.cost
    names = {"matmul_flops": "FLOP", "vector_flops": "FLOP", "bytes_read": "B", "bytes_written": "B"}
    return [Quantity(name, getattr(symbolic, name), getattr(cost, name), unit) for name, unit in names.items()]


def _op(counted: SymbolicOperator) -> dict[str, Any]:
    operator, placed = counted.operator, counted.placed
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
        "counts": [describe_quantity(each) for each in _op_counts(counted)],
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
        "expected_seconds": (expected := counted.expected) and plain(expected.value),
        "fused_into": [*counted.fused_into] or None,
        "expected_by": counted.formula
        and {
            "formula": counted.formula.name,
            "parameters": {p.name: p.value for p in derivation.parameters(counted.formula)},
            "parameter_set": {
                "device": counted.formula.fitted_on,
                "kind": counted.formula.kind,
                "implementation": counted.formula.implementation,
                "formats": counted.formula.format_key,
            },
            "source": counted.formula.fit.source,
            "together": [*counted.run.merged] if counted.run else [],
            "columns": [*counted.run.columns] if counted.run and counted.run.merged else None,
            "rides": bool(counted.run and counted.run.absorbed),
            "steps": [step._replace(value=plain(step.value))._asdict() for step in derivation.steps(counted.formula)],
        },
    }
