"""The operators of a pass one by one, in the order in which they run: layer after layer, backwards in the gradients.

An estimate holds an operator once, with the layers in which it stands. Kernels come one by one, so that whoever
compares both needs the operators so, too. Products that read one input (queries, keys and values; gate and up) share a
`slot`: frameworks run them as one kernel or as several, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from roofmodel.prediction.stream import stream_kind
from roofmodel.study.estimate.phase import PhaseEstimate, Placed

# Kinds of operators that have a kernel of their own in every framework, in an order that no framework changes.
ANCHORS = {
    "gemm": "matrix product",
    "bmm": "matrix product",
    "grouped_gemm": "matrix product",
    "attention": "attention",
    "conv": "convolution",  # of pixels
    "convolution": "convolution",  # along the tokens
    "scan": "scan",
}


class Occurrence(NamedTuple):
    """One occurrence of an operator in a pass."""

    placed: Placed
    layer: int | None
    slot: str  # those of one layer and slot may run together

    @property
    def anchor(self) -> str | None:
        """The kind of kernel that it must have; None for light work, which fuses into others."""
        return ANCHORS.get(self.placed.operator.kind)

    @property
    def work(self) -> str:
        """What sort of work it is, in one word, as names of kernels say it."""
        operator = self.placed.operator
        if self.anchor:
            return self.anchor
        if operator.kind == "elementwise":
            if operator.name.endswith("combine"):
                return "combine"
            return "activation" if operator.group == "activation" else stream_kind(operator)
        return operator.kind

    @property
    def operators(self) -> list[str]:
        """The names of all operators of its slot; of gradients too, each of what."""
        names, grad, of = self.slot.partition(".grad")
        return [name + grad + of for name in names.split(" + ")]

    @property
    def seconds(self) -> float:
        """What it is expected to take; where nothing is expected, its bound."""
        expected = self.placed.expected
        return float(expected.seconds if expected else self.placed.placement.bound_seconds)


def in_order(phase: PhaseEstimate) -> list[Occurrence]:
    """All occurrences of a phase's operators in running order."""
    slots = _slots([placed for placed in phase.placed if placed.operator.stage in ("", "forward")])
    return [
        Occurrence(placed, layer, slots.get(name, name) + suffix)
        for placed, layer in _walk(phase)
        for name, suffix in [_forward(placed)]
    ]


def orders(phases: Sequence[PhaseEstimate]) -> list[list[list[Occurrence]]]:
    """The orders in which phases may run, that of the reference code first.

    Serving engines have experts that all tokens share ahead of the router. Where products of one input run as one, so
    do their gradients: those of the inputs, then those of the matrices.
    """
    found = [[in_order(phase) for phase in phases]]
    for change in (_shared_first, _gradients_together):
        for order in list(found):
            changed = [change(sequence) for sequence in order]
            found += [changed] if changed != order else []
    return found


def _gradients_together(sequence: Sequence[Occurrence]) -> list[Occurrence]:
    """The gradients of products that share a slot: of their inputs, of their matrices, then all else among them."""
    found: list[Occurrence] = []
    for slot, run in groupby(sequence, key=lambda occurrence: _of_slot(occurrence)):
        together = list(run)
        if slot and len({o.placed.operator.name for o in together}) > 2:
            together.sort(key=lambda o: (o.anchor is None, o.placed.operator.name.endswith("grad_weight")))
        found += together
    return found


def _of_slot(occurrence: Occurrence) -> object:
    """The same for gradients of products that share a slot, and for what stands among them; None for all else."""
    name, grad, _ = occurrence.slot.partition(".grad")
    return (occurrence.layer, name) if grad and " + " in name else None


def _shared_first(sequence: Sequence[Occurrence]) -> list[Occurrence]:
    """Each layer's shared experts ahead of its router; their sum with the others stays where it is."""
    found: list[Occurrence] = []
    for occurrence in sequence:
        name = occurrence.placed.operator.name
        if name.startswith("mlp.shared_") and name != "mlp.shared_add":
            router = max(i for i, each in enumerate(found) if each.placed.operator.name == "mlp.router")
            found.insert(router, occurrence)
        else:
            found.append(occurrence)
    return found


def _walk(phase: PhaseEstimate) -> Iterator[tuple[Placed, int | None]]:
    """Spans of layers, each layer with all of its operators; what is computed again runs ahead of its gradients."""
    again: list[Placed] = []
    for (stage, in_layers, _), run in groupby(phase.placed, key=_span):
        span = list(run)
        if stage == "recomputation":
            again += span
        elif not in_layers:
            yield from ((placed, None) for placed in span)
        else:
            first = [p for p in again if _span(p)[2] == _span(span[0])[2]] if stage == "backward" else []
            layers = sorted({layer for placed in span for layer in placed.operator.layers or ()})
            for layer in reversed(layers) if stage == "backward" else layers:
                for placed in (*first, *span):
                    if layer in (placed.operator.layers or ()):
                        yield placed, layer


def _span(placed: Placed) -> tuple[str, bool, bool]:
    operator = placed.operator
    return operator.stage, operator.layers is not None, operator.group.startswith("encoder ")


def _forward(placed: Placed) -> tuple[str, str]:
    """The operator that it is, or is a gradient of, and of what: no kernel makes those of input and matrix at once."""
    name, grad, of = placed.operator.name.partition(".grad")
    return name, grad + of


def _slots(placed: Sequence[Placed]) -> dict[str, str]:
    """Operator -> what it may run together with: products of one input, all products of experts, eager attention's."""
    found: dict[str, str] = {}
    for _, run in groupby(_anchors(placed), key=_together):
        names = [p.operator.name for p in run]
        found |= dict.fromkeys(names, " + ".join(dict.fromkeys(names)))
    return found


def _anchors(placed: Iterable[Placed]) -> Iterator[Placed]:
    return (p for p in placed if p.operator.kind in ANCHORS)


def _together(placed: Placed) -> object:
    operator = placed.operator
    if operator.kind == "grouped_gemm":
        return "experts", operator.layers
    if operator.kind == "bmm":
        return operator.group, operator.layers
    if operator.kind == "gemm" and operator.gemm is not None:
        return operator.lines[0].factors[0], operator.layers
    return operator.name
