"""Derivations of counts as JSON (`roofmodel.explain/1`)."""

from __future__ import annotations

from typing import Any

from roofmodel.explain.explain import Explanation, Quantity, SymbolicOperator
from roofmodel.explain.quantities import describe_quantity
from roofmodel.numbers.algebra import plain
from roofmodel.report import formula
from roofmodel.timing import derivation


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


def _op(counted: SymbolicOperator) -> dict[str, Any]:
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
        "expected_seconds": placed and placed.expected and plain(placed.expected.value),
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
