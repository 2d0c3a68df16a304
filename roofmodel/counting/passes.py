"""One pass through the model on one GPU: its operators, and its memory (weights, KV cache, live activations)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from roofmodel.counting import blocks
from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import FORMATS, Format, Tensor, Widths
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import Architecture, Embedding, Stack, shard, stage
from roofmodel.models.layers import Uncached, parts
from roofmodel.numbers.algebra import Number, either, largest, quotient

ONE_FORMAT = Widths(FORMATS["fp16"], FORMATS["fp16"], FORMATS["fp16"])
Walk = Callable[[Architecture, Step], tuple[Operator, ...]]
"""A function that gives the operators of one pass on one GPU: `one_pass`, or a cache such as `CachedWalks`."""


def one_pass(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """The operators of one pass on one GPU, from one walk through its share of the model."""
    share = gpu_share(arch, step)
    if step.chunk is None:
        return blocks.operators(share, step)
    from roofmodel.counting.mixed_step import mixed_operators

    return tuple(mixed_operators(share, step, step.chunk))


class CachedWalks:
    """The operators of one pass on one GPU; walks the model once for all pipeline stages and all number formats.

    `counted` has the operators of passes without pipeline parallelism that are already known, by step.
    """

    def __init__(self, counted: Iterable[tuple[Step, Iterable[Operator]]] = ()) -> None:
        self._operators = {self._key(step): tuple(operators) for step, operators in counted}

    def add(self, step: Step, operators: Iterable[Operator]) -> None:
        """Add the operators of a pass without pipeline parallelism."""
        self._operators[self._key(step)] = tuple(operators)

    def __call__(self, arch: Architecture, step: Step) -> tuple[Operator, ...]:
        """The operators of a pass, on a GPU of the pipeline stage that the step names."""
        key = self._key(step)
        if key not in self._operators:
            self._operators[key] = one_pass(arch, key._replace(widths=step.widths))
        operators = tuple(
            op if op.widths == step.widths else op.with_widths(step.widths) for op in self._operators[key]
        )
        if step.parallel.pp == 1:
            return operators
        return blocks.stage_operators(operators, gpu_share(arch, step).stack, step)

    def _key(self, step: Step) -> Step:
        """The step without stages, and with one format for all tensors: neither changes the operators of the model."""
        return step._replace(parallel=step.parallel._replace(pp=1, vpp=1, stage=0, stage_layers=()), widths=ONE_FORMAT)


def gpu_share(arch: Architecture, step: Step) -> Architecture:
    """The part of the architecture on one GPU (tensor, expert and pipeline parallelism)."""
    parallel = step.parallel
    return stage(
        shard(arch, parallel.tp, parallel.expert_tp), parallel.stage, parallel.pp, parallel.vpp, parallel.stage_layers
    )


def as_eager(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """The operators that eager attention would run."""
    return tuple(eager for operator in operators for eager in operator.as_eager())


class Memory(NamedTuple):
    """Peak bytes on a GPU, by role."""

    weights: Number
    kv_cache: Number
    activations: Number
    gradients: Number = 0
    optimizer: Number = 0
    kept: Number = 0  # part of `activations`: what the forward pass keeps for the backward pass
    logits: Number = 0  # in training: what the loss keeps of them, and their gradient; 0 where the peak is later
    other: Number = 0  # in training: the buckets of DistributedDataParallel, the buffers of sharded replicas

    @property
    def total(self) -> Number:
        roles = self.weights, self.kv_cache, self.activations, self.gradients, self.optimizer, self.logits, self.other
        return sum(roles)

    def larger(self, other: Memory) -> Memory:
        """The one with the larger total; elementwise for arrays."""
        return Memory(*(either(self.total >= other.total, *roles) for roles in zip(self, other, strict=True)))


NEED_WEIGHTS = ("weights", "total")
"""What is unknown of a memory if the format of the weights is."""
NEED_NO_WEIGHTS = (
    "matmul_flops", "vector_flops", "matmul_flops_all_pairs", "kv_cache_bytes", "link_bytes", "kernels",
    "communication_seconds", "expected_communication_seconds",
)  # fmt: skip
"""What is known of a pass if the format of the weights is not: without the bytes of the weights, it has no times."""


def without_weights(totals: Mapping[str, Any]) -> dict[str, Any]:
    """The totals of a pass, with None for what depends on the bytes of the weights."""
    return {name: value if name in NEED_NO_WEIGHTS else None for name, value in totals.items()}


def pass_memory(arch: Architecture, step: Step, operators: Sequence[Operator], weights: Number) -> Memory:
    """Peak memory of one pass. `weights` are the bytes of all weights on the GPU, whether the pass uses them or not."""
    return Memory(
        weights=weights,
        kv_cache=kv_cache_bytes(arch, step),
        activations=activation_bytes(operators),
    )


def parameters(arch: Architecture, operators: Iterable[Operator]) -> Number:
    """Number of parameters of the operators. Tensors with the same name are tied and count once."""
    return sum(times * elements for times, elements, _ in _parameters(arch, operators))


def token_table_elements(operators: Iterable[Operator]) -> Number:
    """Elements of the token embedding table `E_token` (also the matrix of a tied head); 0 if no operator reads it."""
    tables = (t.elements(op.sizes) for op in operators for t in op.parameters if t.name == "E_token")
    return next(tables, 0)


def active_parameters(arch: Architecture, operators: Sequence[Operator]) -> Number:
    """Number of parameters used per token: all except those of the experts that the router does not choose.

    With experts that compute nothing, the mean over tokens, rounded.
    """
    idle: Number = 0
    for operator in operators:
        if operator.kind == "grouped_gemm":
            stored, sizes = sum(t.elements(operator.sizes) for t in operator.parameters), operator.sizes
            chosen = quotient(stored * sizes["b:t:x"], sizes["b"] * sizes["t"] * sizes["x"])
            idle += arch.copies(operator.layers) * (stored - chosen)
    used = parameters(arch, operators) - idle
    return round(used) if hasattr(used, "denominator") else used  # a symbol has none


def weight_bytes(arch: Architecture, operators: Iterable[Operator]) -> Number:
    """Bytes of all parameters, each tensor once, in the number format of its role."""
    return sum(times * form.bytes(elements) for times, elements, form in _parameters(arch, operators))


def _parameters(arch: Architecture, operators: Iterable[Operator]) -> Iterator[tuple[int, Number, Format]]:
    """Each parameter tensor once: number of copies, elements, number format.

    Each layer has its own tensors unless layers share weights. Outside layers, a name is one tensor.
    """
    names: set[tuple[str, tuple[int, ...] | None]] = set()
    for operator in operators:
        for tensor in operator.parameters:
            if (tensor.name, operator.layers) not in names:
                names.add((tensor.name, operator.layers))
                yield (
                    arch.copies(operator.layers),
                    tensor.elements(operator.sizes),
                    operator.widths.format(tensor),
                )
        widths = operator.widths
    for stack in (arch.encoder, arch.body):
        if isinstance(stack, Stack) and stack.unused_parameters:
            yield 1, stack.unused_parameters, widths.dtype
    for own in arch.head.stages:
        if own.unused_bias and isinstance(arch.stack.embedding, Embedding):  # stored, although no operator reads it
            yield 1, arch.stack.embedding.vocabulary, widths.format(Tensor(f"B_{own.name}_spare", ("v",)))


def kv_cache_bytes(arch: Architecture, step: Step) -> Number:
    """Bytes of the cache after the pass: keys and values of all tokens, or of those in the window; recurrent states."""
    if not (arch.causal and step.cached):
        return 0
    return sum(
        arch.times(layers) * step.widths.kv.bytes(step.microbatches * step.batch * elements)
        for layer, layers in arch.stack.kinds
        for part in parts(layer)
        if not isinstance(part, Uncached)
        for elements in part.cached(step.context + step.tokens, step.source)
    )


def _is_parameter_or_cache(tensor: Tensor) -> bool:
    return tensor.is_parameter or tensor.is_cached


def activation_bytes(
    operators: Iterable[Operator], excluded: Callable[[Tensor], bool] = _is_parameter_or_cache
) -> Number:
    """Peak bytes of live activations, if no operator writes in place.

    Tensors for which `excluded` is true do not count. All layers of a kind use the same tensor names, so one layer of
    each kind is enough.
    """
    return largest(sum(size for _, size in live) for live in live_activations(operators, excluded))


def live_activations(
    operators: Iterable[Operator], excluded: Callable[[Tensor], bool] = _is_parameter_or_cache
) -> Iterator[list[tuple[str, Number]]]:
    """The activations that are live while each operator runs, as names and bytes: its inputs, waiting tensors, outputs.

    An activation is live from the operator that writes it to the last operator that reads it before the next write.
    """
    ordered = list(operators)
    needed_after: list[set[str]] = []  # for each operator, the tensors that later operators read
    needed: set[str] = set()
    for operator in reversed(ordered):
        needed_after.append(needed)
        needed = (needed - {t.name for t in operator.writes}) | {t.name for t in operator.reads}
    needed_after.reverse()

    waiting: dict[str, Number] = {}
    for operator, needed in zip(ordered, needed_after, strict=True):
        inputs, outputs = (
            {t.name: operator.bytes_of(t) for t in tensors if not excluded(t)}
            for tensors in (operator.reads, operator.writes)
        )
        yield [*(inputs | waiting).items(), *outputs.items()]
        waiting = {name: size for name, size in (waiting | outputs).items() if name in needed}
