"""Operators and memory of a training step: forward pass, recomputation, backward pass, optimizer.

Mixed precision as in ZeRO (Rajbhandari et al., arXiv 1910.02054, section 3.1): Adam needs 16 bytes per parameter: 2 for
the weight, 2 for the gradient and 12 for the optimizer state (fp32 master weight and two moments). Megatron-LM sums
gradients in fp32 and needs 18, or 6 + 12 / replicas with ZeRO stage 1 (docs/user-guide/features/dist_optimizer.md);
`Step.gradients` is this format. Weights of 32 bits or more need no master copy: 4 + 4 + 8 = 16 bytes. `--states` is
the format of the moments: in bf16, Adam needs 12. The Adam of bitsandbytes (`adam8bit`) updates weights of any format
in place, without a master copy, and keeps moments of 8 bits with a scale per 256: 2 + 2 + 2 x (1 + 4 / 256) bytes. It
keeps those of tensors with fewer than 4096 elements (norms, biases) in fp32, which is not counted.

ZeRO stage 1 (section 5.1) divides the optimizer state by the number of replicas: 2 + 2 + 12 / replicas bytes. Each
replica updates its shard of the weights, so gradients are reduce-scattered and updated weights are all-gathered, which
together send as many bytes as an all-reduce (section 7.2.1). `sharding.py` has the exchanges of all stages.

With low-rank adapters, only these have gradients and states (`layers/adapters.py`).

`recomputation.py` says what the backward pass recomputes; `dropout.py` counts the masks of dropout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import all_reduce
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.passes import Memory, activation_bytes
from roofmodel.counting.tensors import STATE_FORMATS, Format, Tensor, Widths
from roofmodel.counting.training.backward import backward, differentiable, kept, receives_from_stage
from roofmodel.counting.training.recomputation import (
    gathers_tokens,
    is_core_attention,
    recomputed_operators,
    runs_forward,
    saves_result,
)
from roofmodel.counting.training.sharding import (
    ReplicatedParameters,
    buffer_bytes,
    exchanged_gradients,
    gathered_blocks,
    gathered_weights,
    parameter_sets,
    reduced_blocks,
    reduced_format,
    sharded_bytes,
    wider,
)
from roofmodel.counting.workload import Step
from roofmodel.numbers.algebra import Number, ceil_div, either, largest, maximum
from roofmodel.options.values import Optimizer

MOMENTS: dict[str, tuple[str, ...]] = {"adam": ("m", "v"), "adam8bit": ("m", "v"), "momentum": ("m",), "sgd": ()}
"""The moments of each optimizer, one value per parameter each."""


class TrainingStep(NamedTuple):
    """The operators of a training step: `forward`, `recomputed`, `backward` per microbatch, the rest per step."""

    forward: tuple[Operator, ...]
    recomputed: tuple[Operator, ...]
    backward: tuple[Operator, ...]
    exchanged: tuple[Operator, ...]
    update: Operator | None
    gathered: tuple[Operator, ...]  # weights that other replicas updated, and their narrow copies
    parameters: Number  # of one GPU that are trained
    updated: Number  # of these, the parameters whose optimizer state the GPU has
    sets: tuple[ReplicatedParameters, ...]

    def operators(self, microbatches: Number) -> Iterator[Operator]:
        """All operators of the step in order, each with its stage name."""
        stages = (self.forward, self.recomputed, self.backward)
        for name, stage in zip(("forward", "recomputation", "backward"), stages, strict=True):
            done = filter(runs_forward, stage)
            yield from (op.in_stage(name, microbatches * op.passes) for op in done)
        yield from (replace(operator, stage="backward") for operator in self.exchanged)
        if self.update:
            yield self.update
        yield from self.gathered


class TrainingPasses(NamedTuple):
    """The forward and the backward pass of a training step; they depend neither on recomputation nor on the optimizer.

    `parameters` are those of the GPU that are trained; `tied` of them are also on another pipeline stage, if any.
    """

    passed: tuple[Operator, ...]  # the forward pass without the loss
    differentiated: list[set[str]]  # for each of these operators, the inputs that need a gradient
    forward: tuple[Operator, ...]
    backward: tuple[Operator, ...]
    parameters: Number
    tied: Number | None = None


def build_passes(
    passed: Sequence[Operator], parameters: Number, step: Step, tied: Number | None = None
) -> TrainingPasses:
    """The passes of a training step for a forward pass without a loss."""
    if step.recipe is not None:
        from roofmodel.counting.training.recipes import RECIPES, with_narrow_gradients, with_narrow_inputs

        passed = tuple(with_narrow_inputs(passed, RECIPES[step.recipe]))
    forward = forward_with_loss(passed, step)
    losses = [operator for operator in forward[len(passed) :] if operator.collective is None]
    gradients = (*map(cross_entropy_gradient, losses), *backward(passed))
    if step.recipe is not None:
        gradients = tuple(with_narrow_gradients(gradients, passed, RECIPES[step.recipe]))
    return TrainingPasses(tuple(passed), differentiable(passed), forward, gradients, parameters, tied)


def forward_with_loss(passed: Sequence[Operator], step: Step) -> tuple[Operator, ...]:
    """The forward pass with the loss at the logits, if it computes any."""
    if not any(tensor.name == "logits" for tensor in passed[-1].writes):
        return tuple(passed)
    return (*passed, cross_entropy(passed[-1]), *exchanged_totals(passed[-1], step))


def build_training_step(passes: TrainingPasses, step: Step) -> TrainingStep:
    """The training step for its forward and backward pass."""
    sets = parameter_sets(passes.passed, passes.parameters, step)
    is_sharded = any(each.is_sharded for each in sets)
    updated = sum(each.updated for each in sets) if is_sharded else None
    recomputed = [
        op
        for op, repeated in zip(passes.passed, recomputed_operators(*passes[:2], step.recompute), strict=True)
        if repeated
    ]
    if step.recompute == "full":  # gathered for the GEMM and again for its weight gradient
        recomputed = [
            replace(op, passes=2 * op.passes) if op.layers and gathers_tokens(op) else op for op in recomputed
        ]
    forward, backward_pass = passes.forward, passes.backward
    casts_of_weights: tuple[Operator, ...] = ()
    if step.recipe is not None:
        from roofmodel.counting.training.recipes import RECIPES, weight_casts, with_casts

        recipe = RECIPES[step.recipe]
        casts_of_weights = tuple(weight_casts(passes.passed, recipe))
        if step.parallel.zero == 3:
            forward, casts_of_weights = (*casts_of_weights, *forward), ()
        forward, backward_pass = (tuple(with_casts(each, recipe)) for each in (forward, backward_pass))
        recomputed = [*with_casts(recomputed, recipe)]
    return TrainingStep(
        forward=(*gathered_blocks(sets, step), *forward),
        recomputed=tuple(recomputed),
        backward=(*gathered_blocks(sets, step, backward=True), *backward_pass, *reduced_blocks(sets, step)),
        exchanged=tuple(exchanged_gradients(sets, step, passes.tied)),
        update=step.optimizer and optimizer_step(passes.parameters, step.trained_widths, step.optimizer, updated),
        gathered=(
            *(gathered_weights(sets, step) if step.optimizer else ()),
            *(replace(cast, stage="optimizer") for cast in casts_of_weights),
        ),
        parameters=passes.parameters,
        updated=passes.parameters if updated is None else updated,
        sets=sets,
    )


def cross_entropy(head: Operator) -> Operator:
    """The loss at every position: the log-softmax of the logits, from which the target is picked."""
    (logits,) = head.writes
    text = f"{logits} -> log_p[{' '.join(logits.axes)}]"
    build = Builder(head.sizes, head.widths)
    return build.operator("head.loss", "head", text, kind="softmax", flops=vector_flops.SOFTMAX, keeps="outputs")


def exchanged_totals(head: Operator, step: Step) -> Iterator[Operator]:
    """All-reduces of the loss if the vocabulary is sharded: largest logit, sum of exponentials, logit of the target.

    Source: Megatron-LM, arXiv 1909.08053, section 3.
    """
    (logits,) = head.writes
    rows = " ".join(axis for axis in logits.axes if axis != "v")
    for name in ("largest", "sum", "target"):
        yield from all_reduce(Builder(head.sizes, head.widths), step, f"head.loss_{name}", f"{name}[{rows}]")


def cross_entropy_gradient(loss: Operator) -> Operator:
    """Gradient of the loss with respect to the logits: p - 1 at the target, p elsewhere, where p = exp(log_p).

    2 FLOPs per logit: one exponential and one subtraction.
    """
    (logits,), (log_p,) = loss.reads, loss.writes
    text = f"{log_p} -> grad.{logits}"
    return Builder(loss.sizes, loss.widths).operator("head.loss.grad", "head", text, kind="softmax", flops=2)


# --- Optimizer --------------------------------------------------------------------------------------


def optimizer_step(parameters: Number, widths: Widths, optimizer: Optimizer, updated: Number | None = None) -> Operator:
    """The update of all parameters as one kernel: reads gradients and state, writes weights and state.

    `updated`: the number of parameters that the GPU updates, if the replicas shard the optimizer state.
    """
    states, widths = _states(widths, optimizer), widths._replace(moments=moment_format(widths, optimizer))
    axis = "W" if updated is None else "Ws"
    state = "".join(f" state.{name}[{axis}]" for name in states)
    text = f"grad.W_all[{axis}]{'' if 'master' in states else f' W_all[{axis}]'}{state} -> W_all[{axis}]{state}"
    build = Builder({"W": parameters, **({} if updated is None else {axis: updated})}, widths)
    flops: int = vector_flops.OPTIMIZER["adam" if optimizer == "adam8bit" else optimizer]
    if widths.moments == STATE_FORMATS["int8"]:
        flops += vector_flops.QUANTIZED_STATE * len(MOMENTS[optimizer])
    step = build.operator("optimizer.step", "optimizer", text, kind="optimizer", flops=flops)
    return replace(step, stage="optimizer")


def optimizer_state_bytes(parameters: Number, widths: Widths, optimizer: Optimizer) -> Number:
    """Bytes of the optimizer state, including fp32 master weights where the weights are narrower."""
    masters = len(_states(widths, optimizer)) - len(MOMENTS[optimizer])
    moments = len(MOMENTS[optimizer]) * moment_format(widths, optimizer).bytes(parameters)
    return masters * widths.state.bytes(parameters) + moments


def _states(widths: Widths, optimizer: Optimizer) -> tuple[str, ...]:
    """Master weights, if the optimizer needs them, and its moments."""
    masters = ("master",) if widths.weights.bits < 32 and optimizer != "adam8bit" else ()
    return (*masters, *MOMENTS[optimizer])


def moment_format(widths: Widths, optimizer: Optimizer) -> Format:
    """The number format of the moments."""
    return STATE_FORMATS["int8"] if optimizer == "adam8bit" else widths.moments or widths.state


# --- Memory -----------------------------------------------------------------------------------------


class KeptTensors(NamedTuple):
    """A forward pass with the inputs of each operator that need a gradient, and the tensors that its gradients read."""

    operators: Sequence[Operator]
    differentiated: Sequence[set[str]]
    kept: Sequence[tuple[Tensor, ...]]


class InFlight(NamedTuple):
    """A model chunk of a pipeline stage: the number of microbatches whose activations it keeps at the peak.

    `kept` are the bytes of the activations of one microbatch; `restored` those that recomputing one layer restores.
    """

    microbatches: Number
    kept: Number
    restored: Number


class ModelStates(NamedTuple):
    """Bytes of weights, gradients and optimizer state of a GPU."""

    weights: Number
    gradients: Number
    optimizer: Number


def model_states(
    passes: TrainingPasses, weights: Number, step: Step, expert_weights: Number = 0, copies: Number = 0
) -> ModelStates:
    """The bytes of a GPU that do not depend on the microbatch. `weights` are the bytes of all weights before they are
    sharded, `expert_weights` those of experts that are sharded over replicas, and `copies` those of narrow copies of
    all weights, which only the gathered layer has if weights are sharded."""
    sets = parameter_sets(passes.passed, passes.parameters, step)
    updated = sum(each.updated for each in sets)
    return ModelStates(
        weights=sharded_bytes(sets, weights, expert_weights) + (0 if step.parallel.zero == 3 else copies),
        gradients=reduced_format(step).bytes(updated if step.parallel.zero > 1 else passes.parameters),
        optimizer=optimizer_state_bytes(updated, step.trained_widths, step.optimizer) if step.optimizer else 0,
    )


def training_memory(
    passes: TrainingPasses,
    weights: Number,
    step: Step,
    parts: Sequence[InFlight],
    transient: Number,
    expert_weights: Number = 0,
    copies: Number = 0,
) -> Memory:
    """Peak memory of a training step, in the backward pass, with the bytes of weights as in `model_states`.

    The activations are those kept by all microbatches in flight. When the backward pass starts, there are also the
    result of the loss and the gradient of the logits. Later these are freed, and there are the live gradients of
    activations (`transient`) and what the recomputation of one layer restores. The buckets of DistributedDataParallel
    are copies of all gradients (its `gradient_as_bucket_view=False`).
    """
    states = model_states(passes, weights, step, expert_weights, copies)
    sets = parameter_sets(passes.passed, passes.parameters, step)
    stored = sum(part.microbatches * part.kept for part in parts)
    layers = sum(len(block.layers or ()) for block in sets[0].blocks)
    of_layer = ceil_div(sum(part.kept for part in parts), max(layers, 1))
    restored = largest(part.restored for part in parts)
    later, logits = restored + transient, logit_bytes(passes.forward, step)
    buffers = buffer_bytes(sets, step, of_layer, restored)
    if step.parallel.zero == 3:  # then only one layer has copies
        buffers = buffers + ceil_div(copies, max(layers, 1))
    return Memory(
        weights=states.weights,
        kv_cache=0,
        activations=stored + either(later > logits, later, 0),
        gradients=states.gradients,
        optimizer=states.optimizer,
        kept=stored,
        logits=either(later > logits, 0, logits),
        other=states.gradients if step.parallel.wrapper == "ddp" else buffers,
    )


def logit_bytes(forward: Sequence[Operator], step: Step) -> Number:
    """Bytes of what the loss keeps of the logits, and of their gradient."""
    losses = (operator for operator in forward if operator.name == "head.loss")
    elements = ((loss.widths, loss.writes[0].elements(loss.sizes)) for loss in losses)
    return sum(wider(widths.dtype, step.logits).bytes(n) + widths.dtype.bytes(n) for widths, n in elements)


def gradient_bytes(backward_pass: Sequence[Operator]) -> Number:
    """Peak bytes of the live gradients of activations, without that of the logits."""
    later = [operator for operator in backward_pass if not operator.name.startswith("head.loss")]
    return activation_bytes(later, excluded=lambda t: not _is_activation_gradient(t) or t.name == "grad.logits")


def _is_activation_gradient(tensor: Tensor) -> bool:
    """Whether the tensor is the gradient of an activation. Parameter gradients stay until the optimizer reads them."""
    return "grad." in tensor.name and not tensor.name.removeprefix("grad.")[0].isupper()


def kept_tensors(forward: Sequence[Operator]) -> KeptTensors:
    """The tensors that the gradients of a forward pass read, operator by operator."""
    run = [operator for operator in forward if runs_forward(operator) or receives_from_stage(operator)]
    differentiated = differentiable(run)
    return KeptTensors(run, differentiated, [kept(*each) for each in zip(run, differentiated, strict=True)])


def kept_bytes(forward: KeptTensors, recompute: str) -> tuple[Number, Number]:
    """Bytes of the activations kept from forward to backward pass, and of what recomputing one layer restores.

    What the loss keeps is not among them (`logit_bytes`).

    Each layer keeps the inputs of its gradients and of its recomputation, each version of a tensor once.
    """
    writers: dict[str, tuple[Operator, bool]] = {}  # the last writer of a tensor, and whether it is recomputed
    stored: dict[tuple[str, int], Number] = {}
    recomputed: dict[object, dict[tuple[str, int], Number]] = {}
    gathered: dict[object, dict[int, dict[str, Number]]] = {}  # by layers and by exchange
    rewritten = {(_layers(operator), t.name) for operator in forward.operators for t in operator.writes}
    repeats = recomputed_operators(forward.operators, forward.differentiated, recompute)
    for operator, repeated, reads in zip(forward.operators, repeats, forward.kept, strict=True):
        before = dict(writers)
        writers |= {t.name: (operator, repeated) for t in operator.writes}
        needed = {} if operator.name == "head.loss" else dict.fromkeys(reads, True)
        if repeated:
            needed = dict.fromkeys((t for t in operator.reads if not t.is_parameter), False) | needed
        for tensor, by_gradient in needed.items():
            is_result = operator.keeps != "inputs" and tensor in operator.writes
            writer, writer_repeated = (operator, repeated) if is_result else before.get(tensor.name, (None, False))
            if writer is None:  # a constant
                continue
            version, size = (tensor.name, id(writer)), operator.widths.bytes(tensor, tensor.elements(operator.sizes))
            released = repeated or not is_core_attention(writer)
            inside = writer_repeated and released and _layers(writer) == _layers(operator)
            if inside and gathers_tokens(writer):  # the tensors of only one exchange are live at a time
                gathered.setdefault(_layers(operator), {}).setdefault(id(writer), {})[tensor.name] = size
            elif not inside:  # a layer that writes the tensor has its own version; other layers share one
                times = operator.count if (_layers(operator), tensor.name) in rewritten else 1
                stored[version] = maximum(stored.get(version, 0), times * size)
            elif by_gradient:
                recomputed.setdefault(_layers(operator), {})[version] = size
        if saves_result(operator, repeated, recompute):
            sizes = {t.name: operator.widths.bytes(t, t.elements(operator.sizes)) for t in operator.writes}
            stored |= {(name, id(operator)): operator.count * size for name, size in sizes.items()}
    layers = {**recomputed, **gathered}
    largest_layer = largest(
        sum(recomputed.get(each, {}).values())
        + largest(sum(sizes.values()) for sizes in gathered.get(each, {0: {}}).values())
        for each in layers
    )
    return sum(stored.values()), largest_layer


def _layers(operator: Operator) -> tuple[bool, tuple[int, ...] | None]:
    """The layers of an operator, as a key that separates encoder and decoder."""
    return operator.group.startswith("encoder "), operator.layers
