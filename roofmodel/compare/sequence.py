"""The operators of a pass one by one in execution order: layer after layer, and backward in the gradients.

An estimate lists an operator once with its layers, but kernels are listed per launch. GEMMs that read one input (Q, K
and V; gate and up) share a `slot`: frameworks run them as one kernel or several, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.placed import Placed, main_occurrences
from roofmodel.timing.formula import elementwise_kind

# Kinds of operators with their own kernel in every framework, always in the model's order.
ANCHORS = {
    "gemm": "GEMM",
    "bmm": "GEMM",
    "grouped_gemm": "GEMM",
    "attention": "attention",
    "conv": "convolution",  # of pixels
    "convolution": "convolution",  # along the tokens
    "scan": "scan",
}


class Occurrence(NamedTuple):
    """One occurrence of an operator in a pass."""

    placed: Placed
    layer: int | None
    slot: str  # operators of one layer and slot may run together
    kernel: tuple[int, int | None] | None = None  # what the occurrences of one fused kernel have in common
    is_fused: bool = False  # it runs in the kernel of another occurrence

    @property
    def anchor(self) -> str | None:
        """The kind of its kernel; None for light work, which may be fused."""
        return ANCHORS.get(self.placed.operator.kind)

    @property
    def work(self) -> str:
        """The kind of work, in a word that kernel names use."""
        operator = self.placed.operator
        if self.anchor:
            return self.anchor
        if operator.kind == "elementwise":
            if operator.name.endswith("combine"):
                return "combine"
            return "activation" if operator.group == "activation" else elementwise_kind(operator)
        return operator.kind

    @property
    def operators(self) -> list[str]:
        """The names of all operators of its slot, with the suffix of a gradient."""
        names, grad, of = self.slot.partition(".grad")
        return [name + grad + of for name in names.split(" + ")]

    @property
    def seconds(self) -> float:
        """Expected time; the bound if there is no expected time."""
        expected = self.placed.expected
        return float(expected.value if expected else self.placed.placement.bound_seconds)


def in_order(phase: PhaseEstimate) -> list[Occurrence]:
    """All occurrences of a phase's operators in execution order."""
    slots = _slots([placed for placed in phase.placed if placed.operator.stage in ("", "forward")])
    indices, mains = {id(placed): index for index, placed in enumerate(phase.placed)}, main_occurrences(phase.placed)
    kernels = set(mains.values())
    occurrences = []
    for placed, layer in _walk(phase):
        name, suffix = _forward(placed)
        place = indices[id(placed)], layer
        kernel = place if place in kernels else mains.get(place)
        occurrences.append(Occurrence(placed, layer, slots.get(name, name) + suffix, kernel, place in mains))
    return occurrences


def orders(phases: Sequence[PhaseEstimate]) -> list[list[list[Occurrence]]]:
    """Possible execution orders of the phases, the order of the reference code first.

    Serving engines run shared experts before the router. If GEMMs of one input run as one kernel, so do their
    gradients: first of the inputs, then of the weights.
    """
    variants = [[in_order(phase) for phase in phases]]
    for change in (_shared_first, _gradients_together):
        for order in list(variants):
            changed = [change(sequence) for sequence in order]
            variants += [changed] if changed != order else []
    return variants


def _gradients_together(sequence: Sequence[Occurrence]) -> list[Occurrence]:
    """Reorder the gradients of GEMMs that share a slot: of inputs, of weights, then the light work among them."""
    reordered: list[Occurrence] = []
    for slot, run in groupby(sequence, key=lambda occurrence: _gradient_slot(occurrence)):
        ordered = list(run)
        if slot and len({o.placed.operator.name for o in ordered}) > 2:
            ordered.sort(key=lambda o: (o.anchor is None, o.placed.operator.name.endswith("grad_weight")))
        reordered += ordered
    return reordered


def _gradient_slot(occurrence: Occurrence) -> object:
    """A key that the gradients of one slot and the light work among them share; None for other work."""
    name, grad, _ = occurrence.slot.partition(".grad")
    return (occurrence.layer, name) if grad and " + " in name else None


def _shared_first(sequence: Sequence[Occurrence]) -> list[Occurrence]:
    """Move each layer's shared experts before its router; the sum with the routed experts stays."""
    reordered: list[Occurrence] = []
    for occurrence in sequence:
        name = occurrence.placed.operator.name
        if name.startswith("mlp.shared_") and name != "mlp.shared_add":
            router = max(i for i, each in enumerate(reordered) if each.placed.operator.name == "mlp.router")
            reordered.insert(router, occurrence)
        else:
            reordered.append(occurrence)
    return reordered


def _walk(phase: PhaseEstimate) -> Iterator[tuple[Placed, int | None]]:
    """Each layer with all of its operators; recomputation runs before the gradients."""
    recomputed: list[Placed] = []
    for (stage, in_layers, _), run in groupby(phase.placed, key=_span):
        span = list(run)
        if stage == "recomputation":
            recomputed += span
        elif not in_layers:
            yield from ((placed, None) for placed in span)
        else:
            first = [p for p in recomputed if _span(p)[2] == _span(span[0])[2]] if stage == "backward" else []
            layers = sorted({layer for placed in span for layer in placed.operator.layers or ()})
            for layer in reversed(layers) if stage == "backward" else layers:
                for placed in (*first, *span):
                    if layer in (placed.operator.layers or ()):
                        yield placed, layer


def _span(placed: Placed) -> tuple[str, bool, bool]:
    operator = placed.operator
    return operator.stage, operator.layers is not None, operator.group.startswith("encoder ")


def _forward(placed: Placed) -> tuple[str, str]:
    """The forward operator and the gradient suffix; no kernel computes input and weight gradients together."""
    name, grad, of = placed.operator.name.partition(".grad")
    return name, grad + of


def _slots(placed: Sequence[Placed]) -> dict[str, str]:
    """Operator -> its slot: GEMMs of one input, all expert GEMMs, or the GEMMs of eager attention."""
    slots: dict[str, str] = {}
    for _, run in groupby(_anchors(placed), key=_slot_key):
        names = [p.operator.name for p in run]
        slots |= dict.fromkeys(names, " + ".join(dict.fromkeys(names)))
    return slots


def _anchors(placed: Iterable[Placed]) -> Iterator[Placed]:
    return (p for p in placed if p.operator.kind in ANCHORS)


def _slot_key(placed: Placed) -> object:
    operator = placed.operator
    if operator.kind == "grouped_gemm":
        return "experts", operator.layers
    if operator.kind == "bmm":
        return operator.group, operator.layers
    if operator.kind == "gemm" and operator.gemm is not None:
        return operator.lines[0].factors[0], operator.layers
    return operator.name
