"""The answer of `roof count`: a module's operators and training memory, or the summary of its layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from roofmodel.count.count import Count, DispatchedOperator
from roofmodel.counting.operator import Cost
from roofmodel.counting.tensors import FORMATS
from roofmodel.numbers import units
from roofmodel.report.document import Block, Document, Heading, Paragraph, Rows
from roofmodel.report.table import BYTES, COUNT, NAME, NUMBER, SECONDS, Cell, Column, Table, joined


def document(count: Count, sort: str | None = None) -> Document:
    """Operators in the order of their dispatch, below the module that calls them; or by a value of `SORTABLE`."""
    title = f"{count.name} on {' '.join(count.inputs)}, {count.dtype} · {units.grouped(count.parameters)} parameters"
    blocks: list[Block] = [Heading("operators"), Rows(LINES, [*_lines(count, sort)])]
    return _document(count, title, [*blocks, *(Paragraph(line, dim=True) for line in _notes(count))])


def summary(count: Count) -> Document:
    """Layers, parameters and sizes, as torchsummary prints them; its sizes are those of `--dtype fp32`."""
    sizes = summary_bytes(count)
    named = dict(zip(("input", "forward/backward pass", "parameters"), sizes.values(), strict=True))
    lines = [
        f"parameters: {units.grouped(count.parameters)}, trainable {units.grouped(count.trainable)}, "
        f"not trainable {units.grouped(count.parameters - count.trainable)}",
        *(f"{name}: {size / 2**20:.2f} MiB" for name, size in {**named, "total": sum(sizes.values())}.items()),
    ]
    title = f"{count.name} on {' '.join(count.inputs)}, {count.dtype}"
    return _document(
        count, title, [Heading("modules"), Rows(SUMMARY, [*enumerate(count.modules, 1)]), *map(Paragraph, lines)]
    )


def _document(count: Count, title: str, blocks: Sequence[Block]) -> Document:
    return Document(title, blocks, partial(_data, count), lambda: Rows(OPERATORS, count.operators))


def _data(count: Count) -> dict[str, Any]:
    """The document `roofmodel.count/1`: base units; FLOPs are null where an operator has no formula."""
    return {
        "schema": "roofmodel.count/1",
        "module": count.name,
        "inputs": list(count.inputs),
        "dtype": count.dtype,
        "hardware": count.device and count.device.id,
        "parameters": count.parameters,
        "layers": MODULES.records(count.layers),
        "summary": {
            "modules": MODULES.records(count.modules),
            "trainable_parameters": count.trainable,
            **summary_bytes(count),
        },
        "ops": OPERATORS.records(count.operators),
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


class ModuleLine(NamedTuple):
    """A line of the terminal's table: a module, an operator below it, or the total."""

    label: str
    operator: DispatchedOperator | None = None
    cost: Cost | None = None  # of the total
    bound_seconds: float | None = None  # of the total


def _known(field: str) -> Callable[[DispatchedOperator], Any]:
    """A field of the cost; None where an operator has no formula."""
    return lambda op: getattr(op.cost, field) if op.known else None


def _intensity(op: DispatchedOperator) -> float | None:
    return op.cost.intensity if op.known and op.cost.bytes else None


OPERATORS = Table(
    "ops",
    (
        Column("module", meaning="the path of the module that called the operator; empty for the root"),
        Column("operator", meaning="the torch operator"),
        Column("shape", value=lambda op: list(op.shape), flat=joined("x"), meaning="the shape of its output"),
        Column(
            "matmul_flops",
            value=_known("matmul_flops"),
            meaning="FLOPs of matrix multiplications and convolutions; null for an operator without a formula",
        ),
        Column("vector_flops", value=_known("vector_flops"), meaning="all other FLOPs; null without a formula"),
        Column("bytes_read", value="cost.bytes_read", meaning="bytes of the tensors that it reads"),
        Column("bytes_written", value="cost.bytes_written", meaning="bytes of the tensors that it writes"),
        Column("intensity", value=_intensity, meaning="all FLOPs / all bytes; null without a formula"),
        Column("bound", value="placement.bound", meaning="the limiting ceiling; null without `--hw`"),
        Column(
            "bound_seconds",
            value="placement.bound_seconds",
            meaning="the least time at the device's ceilings; null without `--hw`",
        ),
    ),
)
"""A row for each dispatched operator; FLOPs are null where an operator has no formula."""


def _label(line: ModuleLine) -> Cell:
    return line.label if line.operator or line.cost else (line.label, "blue")


def _flops(line: ModuleLine) -> Cell | None:
    if line.operator and not line.operator.known:
        return "no formula", "red"
    cost = line.operator.cost if line.operator else line.cost
    return None if cost is None else units.si(cost.flops)


def _bytes(line: ModuleLine) -> Any:
    cost = line.operator.cost if line.operator else line.cost
    return None if cost is None else cost.bytes


def _bound_seconds(line: ModuleLine) -> float | None:
    placement = line.operator and line.operator.placement
    return placement.bound_seconds if placement else line.bound_seconds


MODULES = Table(
    "modules",
    (
        Column("path", meaning="the path of the module"),
        Column("kind", meaning="its class"),
        Column("shape", value=lambda module: list(module.shape), meaning="the shape of its first output"),
        Column("parameters", meaning="its parameters, without those of its submodules"),
    ),
)


def summary_bytes(count: Count) -> dict[str, float]:
    """The bytes that torchsummary prints: inputs; outputs of all modules, each with its gradient; parameters."""
    element = FORMATS[count.dtype].bits / 8
    return {
        "input_bytes": element * count.input_elements,
        "forward_backward_bytes": 2 * element * sum(math.prod(m.shape) for m in count.modules if m.shape),
        "parameter_bytes": element * count.parameters,
    }


SUMMARY = Table(
    "modules",
    (
        Column(None, "layer (type)", text=lambda row: f"{row[1].kind}-{row[0]}"),
        Column(None, "output shape", text=lambda row: str([-1, *row[1].shape[1:]])),
        Column(None, "parameters", COUNT, text=lambda row: units.grouped(row[1].parameters)),
        Column(None, "path", NAME, text=lambda row: row[1].path),
    ),
)
"""Rows of a number and a module."""


SORTABLE: dict[str, Callable[[DispatchedOperator], float]] = {
    "intensity": lambda op: _intensity(op) or 0.0,
    "flops": lambda op: op.cost.flops,
    "bytes": lambda op: op.cost.bytes,
}


LINES = Table(
    "ops",
    (
        Column(None, "operator", text=_label, wrap=True),
        Column(None, "output", COUNT, text=lambda line: line.operator and "×".join(map(str, line.operator.shape))),
        Column(None, "FLOPs", COUNT, text=_flops),
        Column(None, "bytes", BYTES, _bytes),
        Column(None, "FLOP/B", NUMBER, lambda line: line.operator and _intensity(line.operator)),
        Column(None, "bound by", value="operator.placement.bound"),
        Column(None, "bound", SECONDS, _bound_seconds),
    ),
    style=lambda line: "bold" if line.cost else "",
)


def _lines(count: Count, sort: str | None) -> Iterator[ModuleLine]:
    """Operators in the order of their dispatch, below the module that calls them, or sorted; the total."""
    module = None
    for op in sorted(count.operators, key=lambda op: -SORTABLE[sort](op)) if sort else ():
        yield ModuleLine(f"{op.operator} {op.module}".rstrip(), op)
    for op in () if sort else count.operators:
        if op.module != module:
            module = op.module
            yield ModuleLine(module or "(root module)")
        yield ModuleLine(f"  {op.operator}", op)
    bound = sum(op.placement.bound_seconds for op in count.operators if op.placement) if count.device else None
    yield ModuleLine("total", None, count.cost, bound)


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
        theirs = f"{units.si(count.fvcore)} by fvcore, with norms"
        if not count.fvcore and count.cost.matmul_flops:
            theirs = "fvcore does not count these operators"
        lines.append(f"multiply-adds: {macs} counted here, in GEMMs and convolutions; {theirs}")
    if count.uncounted:
        names = ", ".join(f"{name} × {times}" for name, times in count.uncounted.items())
        lines.append(f"not counted, no formula: {names}; the totals lack their FLOPs")
    return lines
