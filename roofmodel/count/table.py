"""A module's operators (roof count) as a table, JSON and CSV."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.count.count import Count, DispatchedOperator
from roofmodel.numbers import units
from roofmodel.report import encoding
from roofmodel.report.columns import bare


def document(count: Count) -> dict[str, Any]:
    """The document `roofmodel.count/1`: base units; FLOPs are null where an operator has no formula."""
    return {
        "schema": "roofmodel.count/1",
        "module": count.name,
        "inputs": list(count.inputs),
        "dtype": count.dtype,
        "hardware": count.device and count.device.id,
        "parameters": count.parameters,
        "layers": [layer._asdict() for layer in count.layers],
        "ops": [_op(op) for op in count.operators],
        "totals": {
            "matmul_flops": count.cost.matmul_flops,
            "vector_flops": count.cost.vector_flops,
            "bytes": count.cost.bytes,
            "bound_seconds": count.device and sum(op.placement.bound_seconds for op in count.operators if op.placement),
            "fvcore_multiply_adds": count.fvcore,
        },
        "memory": _memory(count),
        "uncounted": count.uncounted,
    }


def _memory(count: Count) -> dict[str, Any] | None:
    need = count.memory
    return need and {
        "weights": need.weights,
        "gradients": need.gradients,
        "optimizer": need.optimizer,
        "kept_activations": need.kept_activations,
        "total": need.total,
        "optimizer_name": need.optimizer_name,
    }


def _op(op: DispatchedOperator) -> dict[str, Any]:
    return {
        "module": op.module,
        "operator": op.operator,
        "shape": list(op.shape),
        "matmul_flops": op.cost.matmul_flops if op.known else None,
        "vector_flops": op.cost.vector_flops if op.known else None,
        "bytes_read": op.cost.bytes_read,
        "bytes_written": op.cost.bytes_written,
        "intensity": op.cost.intensity if op.known and op.cost.bytes else None,
        "bound": op.placement and op.placement.bound,
        "bound_seconds": op.placement and op.placement.bound_seconds,
    }


def as_json(count: Count) -> str:
    """One JSON document."""
    return encoding.as_json(document(count))


def as_csv(count: Count) -> str:
    """One line per operator in base units; unknown values are empty."""
    return encoding.as_csv([{**op, "shape": "x".join(map(str, op["shape"]))} for op in document(count)["ops"]])


def table(count: Count) -> RenderableType:
    """Operators in the order of their dispatch, below the module that calls them."""
    rows = bare()
    rows.add_column("operator", overflow="fold")
    for name in ("output", "FLOPs", "bytes", "FLOP/B"):
        rows.add_column(name, justify="right", no_wrap=True)
    if count.device:
        rows.add_column("bound by", no_wrap=True)
        rows.add_column("bound", justify="right", no_wrap=True)
    module = None
    for op in count.operators:
        if op.module != module:
            module = op.module
            rows.add_row(Text(module or "(root module)", style="blue"))
        cells = [
            f"  {op.operator}",
            "×".join(map(str, op.shape)),
            units.si(op.cost.flops) if op.known else Text("no formula", style="red"),
            units.si(op.cost.bytes, "B"),
            units.significant(op.cost.intensity) if op.known and op.cost.bytes else "",
        ]
        if op.placement:
            cells += [op.placement.bound, units.seconds(op.placement.bound_seconds)]
        rows.add_row(*cells)
    cost = count.cost
    totals = ["total", "", units.si(cost.flops), units.si(cost.bytes, "B"), ""]
    if count.device:
        bound = sum(op.placement.bound_seconds for op in count.operators if op.placement)
        totals += ["", units.seconds(bound)]
    rows.add_row(*totals, style="bold")
    top = Text.assemble(
        (count.name, "bold"),
        f" on {' '.join(count.inputs)}, {count.dtype} · {units.grouped(count.parameters)} parameters",
    )
    return Group(top, Text(), rows, *(Text(line, style="dim") for line in _notes(count)))


def _notes(count: Count) -> list[str]:
    lines = []
    if need := count.memory:
        lines.append(
            f"training with {need.optimizer_name}: {units.binary(need.total)} (weights {units.binary(need.weights)}, "
            f"gradients {units.binary(need.gradients)}, optimizer {units.binary(need.optimizer)}, activations kept for "
            f"the backward pass {units.binary(need.kept_activations)}), without temporary tensors"
        )
    elif count.memory_error:
        lines.append(f"training memory is unknown: {count.memory_error}")
    if count.fvcore is not None:
        macs = units.si(count.cost.matmul_flops / 2)
        theirs = units.si(count.fvcore)
        lines.append(f"multiply-adds: {macs} counted here, in GEMMs and convolutions; {theirs} by fvcore, with norms")
    if count.uncounted:
        names = ", ".join(f"{name} × {times}" for name, times in count.uncounted.items())
        lines.append(f"not counted, no formula: {names}; the totals lack their FLOPs")
    return lines
