"""What must be resident: weights, KV cache, live activations. All in bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from roofmodel.algebra import Number, maximum, minimum
from roofmodel.counting.operator import Operator, Tensor
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import Architecture


class Memory(NamedTuple):
    """Peak bytes on the device, by role."""

    weights: Number
    kv_cache: Number
    activations: Number
    gradients: Number = 0
    optimizer: Number = 0

    @property
    def total(self) -> Number:
        return self.weights + self.kv_cache + self.activations + self.gradients + self.optimizer


def parameters(arch: Architecture, operators: Iterable[Operator]) -> Number:
    """How many parameters the operators name, each tensor once: tying is using the same name."""
    used = sum(operator.count * tensor.elements(operator.sizes) for operator, tensor in _parameters(operators))
    return used + sum(arch.embedding.vocabulary for stage in arch.head.stages if stage.spare_bias)


def weight_bytes(operators: Iterable[Operator]) -> Number:
    """Bytes of all parameters, each tensor once, in its role's format."""
    return sum(
        operator.count * operator.widths.bytes(tensor, tensor.elements(operator.sizes))
        for operator, tensor in _parameters(operators)
    )


def _parameters(operators: Iterable[Operator]) -> Iterable[tuple[Operator, Tensor]]:
    """Each parameter with an operator that reads it; layers have their own, the rest is shared by name."""
    seen: dict[tuple[str, tuple[int, ...] | None], tuple[Operator, Tensor]] = {}
    for operator in operators:
        for tensor in operator.parameters:
            seen.setdefault((tensor.name, operator.layers), (operator, tensor))
    return seen.values()


def kv_cache_bytes(arch: Architecture, step: Step) -> Number:
    """Keys and values kept after the pass: every token's, or those a window still reaches."""
    if not (arch.causal and step.cached):
        return 0
    total: Number = 0
    for layer in arch.layers:
        att = layer.attention
        tokens = step.context + step.tokens
        if att.window is not None:
            tokens = minimum(tokens, att.window)
        total += 2 * step.widths.kv.bytes(step.batch * tokens * att.kv_heads * att.head_dim)
    return total


def activation_bytes(operators: Iterable[Operator]) -> Number:
    """The largest sum of activations alive at once, each operator writing to memory of its own.

    An activation lives from the operator that writes it to the last that reads it before it is
    written again. Layers follow one another with the same names, so one layer of each kind stands
    for all.
    """
    walk = list(operators)
    needed_after: list[set[str]] = []  # by operator, what later ones still read
    needed: set[str] = set()
    for operator in reversed(walk):
        needed_after.append(needed)
        needed = (needed - {t.name for t in operator.writes}) | {t.name for t in operator.reads}
    needed_after.reverse()

    alive: dict[str, Number] = {}
    peak: Number = 0
    for operator, needed in zip(walk, needed_after, strict=True):
        read, written = (
            {t.name: operator.bytes_of(t) for t in tensors if not (t.is_parameter or t.is_cached)}
            for tensors in (operator.reads, operator.writes)
        )
        peak = maximum(peak, sum((alive | read).values()) + sum(written.values()))
        alive = {name: size for name, size in (alive | written).items() if name in needed}
    return peak
