"""What must be resident: weights, KV cache, live activations. All in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from roofmodel.algebra import Number, either, largest, minimum, quotient
from roofmodel.counting.notation import Tensor
from roofmodel.counting.number_formats import Format
from roofmodel.counting.operator import Operator
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import Architecture, Stack
from roofmodel.models.attention import Attention, CrossAttention, LatentAttention
from roofmodel.models.embeddings import Embedding
from roofmodel.models.layers import Part, parts
from roofmodel.models.recurrent import DeltaRule, Lightning, Mamba, Mamba2, ShortConvolution


class Memory(NamedTuple):
    """Peak bytes on the device, by role."""

    weights: Number
    kv_cache: Number
    activations: Number
    gradients: Number = 0
    optimizer: Number = 0
    kept: Number = 0  # of the activations, those that the forward pass keeps for the backward pass

    @property
    def total(self) -> Number:
        return self.weights + self.kv_cache + self.activations + self.gradients + self.optimizer

    def or_more(self, other: Memory) -> Memory:
        """This need, or the other one where it is larger."""
        return Memory(*(either(self.total >= other.total, *roles) for roles in zip(self, other, strict=True)))


def resident(arch: Architecture, step: Step, operators: Sequence[Operator], weights: Number) -> Memory:
    """What one pass needs on the device at its peak: the weights of the whole model, whatever the pass runs of it."""
    return Memory(
        weights=weights,
        kv_cache=kv_cache_bytes(arch, step),
        activations=activation_bytes(operators),
    )


def parameters(arch: Architecture, operators: Iterable[Operator]) -> Number:
    """How many parameters the operators name, each tensor once: tying is using the same name."""
    return sum(times * elements for times, elements, _ in _parameters(arch, operators))


def table_elements(operators: Iterable[Operator]) -> Number:
    """Elements of the table of tokens, embedding or head's matrix; 0 where no operator reads it."""
    found = (t.elements(op.sizes) for op in operators for t in op.parameters if t.name == "E_token")
    return next(found, 0)


def met_parameters(arch: Architecture, operators: Sequence[Operator]) -> Number:
    """How many parameters a token meets: all but those of the experts that the router does not either for it."""
    idle: Number = 0
    for operator in operators:
        if operator.kind == "grouped_gemm":
            held, sizes = sum(t.elements(operator.sizes) for t in operator.parameters), operator.sizes
            chosen = quotient(held * sizes["b:t:x"], sizes["b"] * sizes["t"] * sizes["x"])
            idle += arch.copies(operator.layers) * (held - chosen)
    return parameters(arch, operators) - idle


def weight_bytes(arch: Architecture, operators: Iterable[Operator]) -> Number:
    """Bytes of all parameters, each tensor once, in its role's format."""
    return sum(times * form.bytes(elements) for times, elements, form in _parameters(arch, operators))


def _parameters(arch: Architecture, operators: Iterable[Operator]) -> Iterator[tuple[int, Number, Format]]:
    """Each parameter tensor: how often, of how many elements, stored how.

    Layers have tensors of their own, unless they share them; outside them a name is one tensor, however many read it.
    """
    seen: set[tuple[str, tuple[int, ...] | None]] = set()
    for operator in operators:
        for tensor in operator.parameters:
            if (tensor.name, operator.layers) not in seen:
                seen.add((tensor.name, operator.layers))
                yield (
                    arch.copies(operator.layers),
                    tensor.elements(operator.sizes),
                    operator.widths.format(tensor),
                )
        widths = operator.widths
    for stack in (arch.encoder, arch.body):
        if isinstance(stack, Stack) and stack.unread:
            yield 1, stack.unread, widths.dtype
    for stage in arch.head.stages:
        if stage.spare_bias and isinstance(arch.stack.embedding, Embedding):  # held, although no operator reads it
            yield 1, arch.stack.embedding.vocabulary, widths.format(Tensor(f"B_{stage.name}_spare", ("v",)))


def kv_cache_bytes(arch: Architecture, step: Step) -> Number:
    """What is kept after the pass: keys and values of every token, or those a window still reaches; states."""
    if not (arch.causal and step.cached):
        return 0
    return sum(
        arch.times(layers) * step.widths.kv.bytes(step.microbatches * step.batch * elements)
        for layer, layers in arch.stack.kinds
        for part in parts(layer)
        for elements in _cached(part, step)
    )


def _cached(part: Part, step: Step) -> Iterator[Number]:
    """Elements that a part keeps of a sequence, by tensor."""
    if isinstance(part, Attention | LatentAttention | CrossAttention):
        yield from (_kept(part, step) * elements for elements in part.cached)
    elif isinstance(part, Mamba | Mamba2 | DeltaRule | Lightning | ShortConvolution):
        yield part.cached


def _kept(att: Attention | LatentAttention | CrossAttention, step: Step) -> Number:
    """Tokens of a sequence, or of its source, whose keys and values are in the cache after the pass."""
    if isinstance(att, CrossAttention):
        return step.source
    tokens = step.context + step.tokens
    if isinstance(att, LatentAttention) or att.window is None or not att.window_evicts:
        return tokens
    return minimum(tokens, att.window)


def _held_elsewhere(tensor: Tensor) -> bool:
    return tensor.is_parameter or tensor.is_cached


def activation_bytes(operators: Iterable[Operator], held: Callable[[Tensor], bool] = _held_elsewhere) -> Number:
    """The largest sum of activations alive at once, each operator writing to memory of its own.

    `held` tells the tensors that are accounted for elsewhere.

    Layers follow one another with the same names, so one layer of each kind stands for all.
    """
    return largest(sum(size for _, size in living) for living in alive(operators, held))


def alive(
    operators: Iterable[Operator], held: Callable[[Tensor], bool] = _held_elsewhere
) -> Iterator[list[tuple[str, Number]]]:
    """By operator, the activations alive while it runs and their bytes: what it reads, what waits, what it writes.

    An activation lives from the operator that writes it to the last that reads it before it is written again.
    """
    walk = list(operators)
    needed_after: list[set[str]] = []  # by operator, what later ones still read
    needed: set[str] = set()
    for operator in reversed(walk):
        needed_after.append(needed)
        needed = (needed - {t.name for t in operator.writes}) | {t.name for t in operator.reads}
    needed_after.reverse()

    waiting: dict[str, Number] = {}
    for operator, needed in zip(walk, needed_after, strict=True):
        read, written = (
            {t.name: operator.bytes_of(t) for t in tensors if not held(t)}
            for tensors in (operator.reads, operator.writes)
        )
        yield [*(read | waiting).items(), *written.items()]
        waiting = {name: size for name, size in (waiting | written).items() if name in needed}
