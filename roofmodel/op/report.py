"""The result of `op`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from roofmodel.errors import Option, Text
from roofmodel.numbers import units
from roofmodel.numbers.derivation import DerivationStep
from roofmodel.options import values
from roofmodel.options.values import PathLike
from roofmodel.report.base import FileResult, TextResult
from roofmodel.report.encoding import as_json

if TYPE_CHECKING:
    from pathlib import Path

    from roofmodel.op.op import OneOperation
    from roofmodel.timing.derivation import NamedNumber


def _value(step: DerivationStep | NamedNumber) -> str:
    if step.unit == "s":
        return units.seconds(step.value)
    return units.si(step.value, step.unit) if step.unit else f"{step.value:.4g}"


def _input(number: NamedNumber) -> str:
    if number.unit in ("s", *_PREFIXED):
        return _value(number)
    return str(number.value) if isinstance(number.value, int) else units.significant(number.value, 6)


_PREFIXED = ("FLOP", "FLOP/s", "B", "B/s")
"""Units of inputs with SI prefixes. The other units are counts, such as rows."""


class OpReport(TextResult, FileResult):
    """Result of `op`: one operation on a device."""

    def __init__(self, operation: OneOperation) -> None:
        self.operation = operation

    @property
    def bound_seconds(self) -> float:
        """The least time at the device's ceilings."""
        return float(self.operation.placed.bound_seconds)

    @property
    def expected_seconds(self) -> float | None:
        """The expected time; None where no parameters are fitted."""
        expected = self.operation.run.expected
        return expected and float(expected.value)

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof op --format json` prints."""
        operation = self.operation
        cost, run, expected = operation.operator.cost, operation.run, operation.run.expected
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
            "bound_seconds": self.bound_seconds,
            "expected_seconds": self.expected_seconds,
            "expected_low_seconds": expected and float(expected.low),
            "expected_high_seconds": expected and float(expected.high),
            "implementation": run.implementation,
            "expected_from": run.evidence,
            "terms": operation.terms,
            "measured_seconds": operation.measured,
            "notes": list(self.notes),
        }

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {"json": lambda: as_json(self.to_dict())}

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        return ("json",)

    def save(self, path: PathLike) -> Path:
        """Write the document (json)."""
        from roofmodel.files import output_files

        return output_files.write(values.path("path", path), None, self._texts())

    def _messages(self) -> Iterable[Text]:
        return self.operation.notes

    def __repr__(self) -> str:
        operation = self.operation
        return f"<OpReport of {operation.kind} on {operation.device.id}: bound {units.seconds(self.bound_seconds)}>"

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text as RichText

        from roofmodel.report.columns import bare

        operation = self.operation
        sizes = ", ".join(f"{name} {value}" for name, value in operation.sizes.items())
        head = RichText.assemble((operation.kind, "bold"), f" on {operation.device.name}: {sizes} · {operation.dtype}")
        lines = [RichText.assemble((f"{name:<14}", "dim"), text) for name, text in self._lines()]
        if not operation.steps:
            return Group(head, *lines)
        terms = bare()
        for name in ("term", "value", "formula"):
            terms.add_column(name, justify="right" if name == "value" else "left", overflow="fold")
        for step in operation.steps:
            terms.add_row(step.name, _value(step), step.formula)
        if operation.run.expected and float(operation.run.expected.value) != operation.terms.get("seconds"):
            terms.add_row("expected", units.seconds(float(operation.run.expected.value)), "max(seconds, bound)")
        for each in operation.inputs:
            terms.add_row(each.name, _input(each), RichText(each.meaning, style="dim"))
        return Group(head, *lines, RichText(), terms)

    def _lines(self) -> Iterator[tuple[str, str]]:
        """The lines of the summary: name and text."""
        operation, run = self.operation, self.operation.run
        cost, bound = operation.operator.cost, self.bound_seconds
        flops = cost.matmul_flops + cost.vector_flops
        sent = [f"{units.si(cost.link_bytes, 'B')} sent by each GPU"] if cost.link_bytes else []
        counted = [units.si(flops, "FLOP")] if flops else []
        intensity = [f"{units.significant(operation.intensity)} FLOP/B"] if operation.intensity else []
        yield "cost", ", ".join((*counted, f"{units.si(cost.bytes, 'B')} read and written", *sent, *intensity))
        yield "bound", f"{units.seconds(bound)}, limited by {_CEILINGS[str(operation.placed.bound)]}"
        if run.expected:
            value, low, high = (units.seconds(float(seconds)) for seconds in run.expected)
            share = bound / float(run.expected.value)
            kernel = "" if run.implementation in (None, "any", operation.kind) else f", by {run.implementation}"
            yield "expected", f"{value} ({low} to {high}), {share:.0%} of the ceiling{kernel}"
        else:
            yield "expected", "no expected time: no parameters are fitted for this kind on this device"
        if operation.measured is not None:
            yield "measured", _measured(operation, operation.measured, run.expected)
        if cost.matmul_flops and operation.placed.bound != "communication":
            yield "compute-bound", self._compute_bound()

    def _compute_bound(self) -> str:
        """What makes the operation compute-bound."""
        operation = self.operation
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
