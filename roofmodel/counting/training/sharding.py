"""Exchanges of data-parallel replicas in a training step, and what sharded replicas keep in memory.

ZeRO (Rajbhandari et al., arXiv 1910.02054, section 5) shards over n replicas, per parameter in mixed precision:

    stage 1   optimizer state   gradients reduce-scattered and updated weights all-gathered once per step
    stage 2   gradients, too    gradients reduce-scattered in every microbatch, weights all-gathered once per step
    stage 3   weights, too      weights all-gathered before a block runs, gradients reduce-scattered after it

Stage 3 is PyTorch's fully sharded data parallel (FSDP; Zhao et al., arXiv 2304.11277). A block is a layer. Parameters
outside layers form the root: it is gathered once per microbatch and stays until the end of the backward pass, as
`fully_shard` keeps it. Layers are gathered again in the backward pass unless they stay gathered (`--no-reshard`).
Replicas may form groups that shard (`--hsdp`): gradients are then also all-reduced between the groups, shard by shard.

Memory, as PyTorch's FSDP2 allocates it (torch/distributed/fsdp/_fully_shard, checked with its FSDPMemTracker): a
gathered layer, the buffer with the next one, which is gathered meanwhile, the gradients of a layer, and the buffer from
which those of the previous layer are reduced. G, D and R are the bytes of one layer that is gathered, of its gradients,
and of the buffer that is reduced; a are those of the activations that one layer keeps. The peak is the largest of

    2 G                start of the backward pass: all activations
    2 G + R - a        the first layer is done, and its gradients are reduced
    2 G + R + D - 2 a  end of the second layer: its activations are freed, its gradients complete
    3 G - a            end of the forward pass
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from roofmodel.counting.operator import Builder, Collective, Operator
from roofmodel.counting.tensors import FORMATS, Format
from roofmodel.counting.workload import Step
from roofmodel.numbers.algebra import Number, ceil_div, is_just, largest, quotient

PREFIX = "shards."
"""Of the names of exchanges that run in every microbatch."""


class Block(NamedTuple):
    """Parameters of one GPU that are gathered together, in each of `layers`; None: outside layers."""

    layers: tuple[int, ...] | None
    elements: Number
    trained: Number  # of these
    of_head: Number = 0  # trained ones that operators after the layers read, whose gradients come first


class ReplicatedParameters(NamedTuple):
    """Parameters of one GPU that the same `gpus` replicas have, whose ranks differ by `rank_stride`.

    `elements` are the trained ones. With `group`, only so many replicas shard them.
    """

    prefix: str  # of the names of its operators
    elements: Number
    gpus: Number
    rank_stride: Number
    zero: int
    group: Number | None = None
    blocks: tuple[Block, ...] = ()  # with zero 2 or 3

    @property
    def is_sharded(self) -> bool:
        """Whether the replicas shard the optimizer state."""
        return self.zero > 0 and not is_just(self.shards, 1)

    @property
    def shards(self) -> Number:
        """The replicas that shard."""
        return self.gpus if self.group is None else self.group

    @property
    def updated(self) -> Number:
        """The parameters that one GPU updates."""
        return ceil_div(self.elements, self.shards) if self.is_sharded else self.elements

    @property
    def sizes(self) -> dict[str, Number]:
        """The sizes of the axes of its operators."""
        return {"W": self.elements, **({"Ws": self.updated} if self.is_sharded else {})}


def parameter_sets(passed: Sequence[Operator], parameters: Number, step: Step) -> tuple[ReplicatedParameters, ...]:
    """One set of all trained parameters; two sets if the experts are sharded over replicas.

    Then the second set has the experts, each of which is on `dp / replicas` GPUs, and the first set the rest.
    """
    parallel, sets = step.parallel, []
    has_blocks = parallel.zero > 1
    if parallel.experts_span_replicas and (has_blocks or not step.adapters):
        replicas = parallel.replicas
        experts = sum(
            op.count * tensor.elements(op.sizes)
            for op in passed
            if of_experts(op)
            for tensor in op.parameters
            if tensor.is_adapter or not step.adapters
        )
        parameters, copies = parameters - experts, quotient(parallel.weight_copies, replicas)
        group = None if parallel.hsdp is None else quotient(parallel.hsdp, replicas)
        blocks = parameter_blocks(passed, step, experts=True) if has_blocks else ()
        stride = parallel.tp * replicas
        sets.append(ReplicatedParameters("expert_", experts, copies, stride, parallel.zero, group, blocks))
    blocks = parameter_blocks(passed, step, experts=False if sets else None) if has_blocks else ()
    rest = ReplicatedParameters(
        "", parameters, parallel.weight_copies, parallel.tp, parallel.zero, parallel.hsdp, blocks
    )  # fmt: skip
    return rest, *sets


def of_experts(operator: Operator) -> bool:
    """Whether GPUs share its parameters by experts; attention experts are on all GPUs."""
    return operator.kind == "grouped_gemm" and operator.group.endswith("mlp")


def parameter_blocks(passed: Sequence[Operator], step: Step, *, experts: bool | None) -> tuple[Block, ...]:
    """The blocks of a forward pass in order: the root first, then layers, those with the same operators as one block.

    `experts`: only the parameters of the experts, or only others; None: all.
    """
    sizes: dict[tuple[bool, tuple[int, ...] | None], list[Number]] = {}  # by encoder or not, and layers
    seen: set[tuple[str, bool, tuple[int, ...] | None]] = set()
    last = max((place for place, op in enumerate(passed) if op.layers is not None), default=-1)
    after: Number = 0
    for place, op in enumerate(passed):
        if experts is not None and of_experts(op) != experts:
            continue
        key = (op.group.startswith("encoder "), op.layers)
        for tensor in op.parameters:
            elements = tensor.elements(op.sizes)
            trained = elements if tensor.is_adapter or not step.adapters else 0
            if place > last >= 0:
                after += trained
            if (tensor.name, *key) not in seen:
                seen.add((tensor.name, *key))
                found = sizes.setdefault(key, [0, 0])
                found[0], found[1] = found[0] + elements, found[1] + trained
    of_layer: dict[tuple[bool, int], list[tuple[bool, tuple[int, ...] | None]]] = {}
    root: list[Number] = [0, 0]
    for key, (elements, trained) in sizes.items():
        if key[1] is None:
            root = [root[0] + elements, root[1] + trained]
        for layer in key[1] or ():
            of_layer.setdefault((key[0], layer), []).append(key)
    alike: dict[tuple[tuple[bool, tuple[int, ...] | None], ...], list[int]] = {}
    for (_, layer), keys in of_layer.items():
        alike.setdefault(tuple(keys), []).append(layer)
    blocks = [
        Block(tuple(layers), sum(sizes[key][0] for key in keys), sum(sizes[key][1] for key in keys))
        for keys, layers in alike.items()
    ]
    outside = [Block(None, root[0], root[1], after)] if any(root) else []
    return (*outside, *blocks)


# --- Exchanges --------------------------------------------------------------------------------------


def exchanged_gradients(sets: Sequence[ReplicatedParameters], step: Step, tied: Number | None) -> Iterator[Operator]:
    """The exchange of gradients after the backward pass; with stages 2 and 3 of ZeRO that of tied tables alone.

    Gradients have the number format of the weights. A tied token table has a gradient on the first and on the last
    pipeline stage (Megatron-LM's embedding group). Frameworks overlap the exchange with the backward pass, bucket by
    bucket (`steps/replicas.py`).
    """
    once = [each for each in sets if each.zero < 2]
    if tied is not None:  # between the first and the last stage
        once.append(ReplicatedParameters("tied_", tied, 2, ceil_div(step.parallel.gpus, 2), 0))
    for each in once:
        name, axis = ("reduce_scatter", "Ws") if each.is_sharded else ("all_reduce", "W")
        if not is_just(each.gpus, 1):
            text = f"grad.W_all[W] -> grad.W_all[{axis}]"
            collective = Collective(name, each.gpus, each.rank_stride)
            yield _exchange(f"gradients.{each.prefix}{name}", text, each.sizes, collective, step)


def gathered_weights(sets: Sequence[ReplicatedParameters], step: Step) -> Iterator[Operator]:
    """The all-gather of the weights over the replicas after each has updated its shard; none if weights are sharded."""
    for each in sets:
        if each.is_sharded and each.zero < 3:
            collective, text = Collective("all_gather", each.shards, each.rank_stride), "W_all[Ws] -> W_all[W]"
            gather = _exchange(f"weights.{each.prefix}all_gather", text, each.sizes, collective, step)
            yield replace(gather, stage="optimizer")


def gathered_blocks(sets: Sequence[ReplicatedParameters], step: Step, *, backward: bool = False) -> Iterator[Operator]:
    """The all-gathers of the blocks of sharded weights in a forward or in a backward pass."""
    for each in sets:
        if not (each.is_sharded and each.zero == 3) or (backward and not step.parallel.reshards):
            continue
        collective = Collective("all_gather", each.shards, each.rank_stride)
        for block in each.blocks:
            if not (backward and block.layers is None):
                name = f"{PREFIX}{each.prefix}{'root_' * (block.layers is None)}all_gather"
                sizes = {"Wb": block.elements, "Wbs": ceil_div(block.elements, each.shards)}
                build = Builder(sizes, step.widths)
                yield replace(build.exchange(name, "W_all[Wbs] -> W_all[Wb]", collective), layers=block.layers)


def reduced_blocks(sets: Sequence[ReplicatedParameters], step: Step) -> Iterator[Operator]:
    """The reduce-scatters of the gradients of blocks in a backward pass, the root last; with groups of replicas also
    the all-reduces of their shards between the groups."""
    widths = step.trained_widths._replace(weights=reduced_format(step))
    for each in sets:
        if each.zero < 2:
            continue
        groups = quotient(each.gpus, each.shards)
        for block in (*(block for block in each.blocks if block.layers), *_roots(each)):
            if is_just(block.trained, 0):
                continue
            name = f"{PREFIX}{each.prefix}{'root_' * (block.layers is None)}"
            build = Builder({"Wb": block.trained, "Wbs": ceil_div(block.trained, each.shards)}, widths)
            if each.is_sharded:
                collective = Collective("reduce_scatter", each.shards, each.rank_stride)
                scatter = build.exchange(f"{name}reduce_scatter", "grad.W_all[Wb] -> grad.W_all[Wbs]", collective)
                yield replace(scatter, layers=block.layers)
            if not is_just(groups, 1):
                collective = Collective("all_reduce", groups, each.rank_stride * each.shards)
                reduce = build.exchange(f"{name}all_reduce", "grad.W_all[Wbs] -> grad.W_all[Wbs]", collective)
                yield replace(reduce, layers=block.layers)


def _roots(each: ReplicatedParameters) -> Iterator[Block]:
    return (block for block in each.blocks if block.layers is None)


def _exchange(name: str, text: str, sizes: dict[str, Number], collective: Collective, step: Step) -> Operator:
    return Builder(sizes, step.trained_widths).exchange(name, text, collective)


# --- Memory -----------------------------------------------------------------------------------------


def wider(form: Format, other: str | None) -> Format:
    """The wider of two number formats; the first one where the other is None."""
    return form if other is None else max(form, FORMATS[other], key=lambda each: each.bits)


def reduced_format(step: Step) -> Format:
    """The number format in which gradients are summed and kept."""
    return wider(step.trained_widths.weights, step.gradients)


def sharded_bytes(sets: Sequence[ReplicatedParameters], stored: Number, expert_bytes: Number) -> Number:
    """Bytes of the weights that a GPU stores, of `stored` for all blocks; `expert_bytes` of them are of experts that
    are sharded over replicas."""
    rest, *experts = sets
    if rest.zero < 3:
        return stored
    total = ceil_div(stored - expert_bytes, rest.shards)
    return total + sum(ceil_div(expert_bytes, each.shards) for each in experts)


def buffer_bytes(sets: Sequence[ReplicatedParameters], step: Step, layer_bytes: Number, restored: Number) -> Number:
    """Peak bytes of gathered weights, of gradients before they are reduced, and of the buffers of both.

    `layer_bytes` are those of the activations that one layer keeps, `restored` those that its recomputation restores.
    """
    if sets[0].zero < 2 or not any(each.is_sharded for each in sets):
        return 0
    root = [block for each in sets for block in _roots(each)]
    of_layer = [_largest_layer(each.blocks) for each in sets]
    widths, elements, trained = step.widths.weights, sum(of[0] for of in of_layer), sum(of[1] for of in of_layer)
    full, reduced = widths.bytes(trained), reduced_format(step).bytes(trained)
    total = step.widths.others.bytes(sum(block.of_head for block in root))
    one_done, two_done = reduced - layer_bytes - restored, reduced + full - 2 * layer_bytes - restored
    if sets[0].zero == 2:
        return total + largest([0, one_done, two_done])
    gathered = widths.bytes(elements)
    total += step.widths.others.bytes(sum(block.elements for block in root))
    if step.parallel.reshards:
        return total + 2 * gathered + largest([0, one_done, two_done, gathered - layer_bytes - restored])
    in_layers = sum(len(block.layers or ()) * block.elements for each in sets for block in each.blocks)
    buffers = [gathered, 2 * gathered - layer_bytes - restored, one_done, two_done - gathered]
    return total + widths.bytes(in_layers) + largest(buffers)


def _largest_layer(blocks: Iterable[Block]) -> tuple[Number, Number]:
    """The parameters of the largest layer, and the trained ones of it."""
    layers = [block for block in blocks if block.layers is not None]
    return largest(block.elements for block in layers), largest(block.trained for block in layers)
