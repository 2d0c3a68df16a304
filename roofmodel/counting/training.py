"""A training step: forward, what is computed again, backward, optimizer; and what it keeps in memory.

Mixed precision as in ZeRO (Rajbhandari et al., arXiv 1910.02054, section 3.1): with Adam 16 bytes a parameter, 2 of
weights, 2 of gradients and 12 of optimizer state, which are the fp32 master weights and two moments. (Megatron-LM adds
gradients up in fp32 and comes to 18.) Weights of 32 bits or more are their own masters: 16 bytes as well, 4 + 4 + 8.

Recomputation as in Korthikanti et al., arXiv 2205.05198: `selective` drops the scores and the softmax of attention,
`full` keeps the input of each layer alone. Dropout is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from roofmodel.algebra import Number, ceil_div, is_just, largest, maximum, quotient
from roofmodel.counting import memory, vector_flops
from roofmodel.counting.backward import arrives, backward, differentiable, kept
from roofmodel.counting.collective import Collective
from roofmodel.counting.communication import summed
from roofmodel.counting.notation import Tensor
from roofmodel.counting.number_formats import Widths
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Optimizer, Recompute, Step

STATES: dict[str, tuple[str, ...]] = {"adam": ("m", "v"), "momentum": ("m",), "sgd": ()}
CORE = ("bmm", "softmax")  # the kinds of attention's operators on scores, whose size is the square of the length


class Training(NamedTuple):
    """The operators of a training step, by stage; those of one microbatch, and behind them those of the whole step."""

    forward: tuple[Operator, ...]
    recomputed: tuple[Operator, ...]
    backward: tuple[Operator, ...]
    exchanged: tuple[Operator, ...]
    update: Operator | None
    passed: Sequence[Operator]  # the pass without a loss that it was made from
    parameters: Number  # that a GPU has

    def operators(self, microbatches: Number) -> Iterator[Operator]:
        """All of them in order, each naming its stage."""
        stages = (self.forward, self.recomputed, self.backward)
        for name, stage in zip(("forward", "recomputation", "backward"), stages, strict=True):
            done = filter(does_something, stage)
            yield from (replace(op, stage=name, passes=microbatches * op.passes) for op in done)
        yield from (replace(operator, stage="backward") for operator in self.exchanged)
        if self.update:
            yield self.update


def once(operator: Operator) -> bool:
    """Whether a step does it once, however many microbatches it takes."""
    return operator.stage == "optimizer" or operator.name.startswith("gradients.")


def training(passed: Sequence[Operator], parameters: Number, step: Step, tied: Number | None = None) -> Training:
    """The training step whose forward pass, without a loss, is given.

    Of the `parameters` so many are `tied` to those of another stage, if any.
    """
    logits = [t for t in passed[-1].writes if t.name == "logits"]
    losses = [cross_entropy(passed[-1])] if logits else []
    totals = exchanged_totals(passed[-1], step) if logits else ()
    anew = [op for op, wanted in zip(passed, differentiable(passed), strict=True) if again(op, wanted, step.recompute)]
    if step.recompute == "full":  # gathered ahead of products, and ahead of the gradients of their weights
        anew = [replace(op, passes=2 * op.passes) if op.layers and _gathers(op) else op for op in anew]
    return Training(
        forward=(*passed, *losses, *totals),
        recomputed=tuple(anew),
        backward=(*map(cross_entropy_gradient, losses), *backward(passed)),
        exchanged=tuple(exchanged_gradients(passed, parameters, step, tied)),
        update=step.optimizer and update(parameters, step.widths, step.optimizer),
        passed=passed,
        parameters=parameters,
    )


def does_something(operator: Operator) -> bool:
    """Whether there is anything to do forward: some collectives mark a tensor for its gradient alone."""
    return operator.collective is None or operator.collective.moves


def again(operator: Operator, wanted: set[str], recompute: Recompute) -> bool:
    """Whether the backward pass computes an operator again instead of keeping what it gave; or gathers it again, where
    GPUs keep a part of a sequence each."""
    if _gathers(operator):
        return True
    if operator.layers is None or recompute == "none" or not does_something(operator):
        return False
    core = operator.group.endswith("attention") and operator.kind in CORE
    return recompute == "full" or (core and bool(wanted))


def _gathers(operator: Operator) -> bool:
    """Whether it gathers parts of a sequence, of which each GPU keeps its own."""
    return operator.collective is not None and operator.collective.adds


def cross_entropy(head: Operator) -> Operator:
    """The loss at every position: log-softmax of the logits, of which one is picked."""
    (logits,) = head.writes
    text = f"{logits} -> log_p[{' '.join(logits.axes)}]"
    build = Builder(head.sizes, head.widths)
    return build.operator("head.loss", "head", text, kind="softmax", vector=vector_flops.SOFTMAX, keeps="outputs")


def exchanged_totals(head: Operator, step: Step) -> Iterator[Operator]:
    """What GPUs that share a vocabulary exchange for the loss: a token's largest logit, its sum of exponentials, and
    the logit that came (Megatron-LM, arXiv 1909.08053, section 3)."""
    (logits,) = head.writes
    rows = " ".join(axis for axis in logits.axes if axis != "v")
    for what in ("largest", "sum", "target"):
        yield from summed(Builder(head.sizes, head.widths), step, f"head.loss_{what}", f"{what}[{rows}]")


def exchanged_gradients(
    passed: Sequence[Operator], parameters: Number, step: Step, tied: Number | None
) -> Iterator[Operator]:
    """The all-reduce of all gradients over the replicas, in the format of the weights, behind the backward pass.

    An expert that is dealt out over several replicas is on fewer GPUs than there are replicas: its gradients are
    summed over those. The table of tokens that the first stage embeds with and the last one has as its head's matrix
    has a gradient on both (Megatron-LM's embedding group). Frameworks run the all-reduce bucket by bucket beside the
    backward pass; here nothing of it is hidden.
    """
    parallel, groups = step.parallel, []
    if parallel.across:
        experts = sum(
            op.count * tensor.elements(op.sizes)
            for op in passed
            if op.kind == "grouped_gemm"
            for tensor in op.parameters
        )
        parameters = parameters - experts
        holders = quotient(parallel.dp, parallel.replicas)
        groups.append(("expert_all_reduce", experts, holders, parallel.tp * parallel.replicas))
    if tied is not None:
        groups.append(("tied_all_reduce", tied, 2, ceil_div(parallel.gpus, 2)))  # the first and the last of all
    for name, elements, gpus, apart in (("all_reduce", parameters, parallel.dp, parallel.tp), *groups):
        if not is_just(gpus, 1):
            build, collective = Builder({"W": elements}, step.widths), Collective("all_reduce", gpus, apart)
            yield build.exchange(f"gradients.{name}", "grad.W_all[W] -> grad.W_all[W]", collective)


def cross_entropy_gradient(loss: Operator) -> Operator:
    """p - 1 at the token that came, p elsewhere: an exponential and a difference."""
    (logits,), (log_p,) = loss.reads, loss.writes
    text = f"{log_p} -> grad.{logits}"
    return Builder(loss.sizes, loss.widths).operator("head.loss.grad", "head", text, kind="softmax", vector=2)


# --- Optimizer --------------------------------------------------------------------------------------


def update(parameters: Number, widths: Widths, optimizer: Optimizer) -> Operator:
    """The step of the optimizer: gradient and state in, weights and state out, all parameters in one kernel."""
    states = _states(widths, optimizer)
    state = "".join(f" state.{name}[W]" for name in states)
    text = f"grad.W_all[W]{'' if 'master' in states else ' W_all[W]'}{state} -> W_all[W]{state}"
    build = Builder({"W": parameters}, widths)
    step = build.operator(
        "optimizer.step", "optimizer", text, kind="optimizer", vector=vector_flops.OPTIMIZER[optimizer]
    )
    return replace(step, stage="optimizer")


def state_bytes(parameters: Number, widths: Widths, optimizer: Optimizer) -> Number:
    """What an optimizer keeps of so many parameters."""
    return len(_states(widths, optimizer)) * widths.state.bytes(parameters)


def _states(widths: Widths, optimizer: Optimizer) -> tuple[str, ...]:
    masters = ("master",) if widths.weights.bits < 32 else ()
    return (*masters, *STATES[optimizer])


# --- Memory -----------------------------------------------------------------------------------------


class InFlight(NamedTuple):
    """Operators of a forward pass, and how many microbatches have run them before the first goes back."""

    microbatches: Number
    forward: Sequence[Operator]


def resident(
    training: Training, weights: Number, parameters: Number, step: Step, parts: Sequence[InFlight]
) -> memory.Memory:
    """What a training step needs at its peak.

    That is where the backward pass starts: all that was kept is there still, of the parts of a stage for each
    microbatch in flight. The gradients of activations that live at once come on top, and what one layer computes again.
    """
    found = [(many, *kept_bytes(forward, step.recompute)) for many, forward in parts]
    keeping, anew = sum(many * kept for many, kept, _ in found), largest(again for _, _, again in found)
    transient = memory.activation_bytes(training.backward, held=lambda tensor: not _is_passing(tensor))
    return memory.Memory(
        weights=weights,
        kv_cache=0,
        activations=keeping + anew + transient,
        gradients=step.widths.weights.bytes(parameters),
        optimizer=state_bytes(parameters, step.widths, step.optimizer) if step.optimizer else 0,
        kept=keeping,
    )


def _is_passing(tensor: Tensor) -> bool:
    """Whether it is the gradient of an activation; that of a parameter stays until the optimizer has read it."""
    return "grad." in tensor.name and not tensor.name.removeprefix("grad.")[0].isupper()


def kept_bytes(passed: Sequence[Operator], recompute: Recompute) -> tuple[Number, Number]:
    """Activations that live from the forward to the backward pass; and those of one layer that are computed again.

    Every layer keeps what its gradients read and what its recomputation starts from, each version of a tensor once.
    """
    writers: dict[str, tuple[Operator, bool]] = {}  # who wrote a tensor last, and whether it is computed again
    keeping: dict[tuple[str, int], Number] = {}
    anew: dict[object, dict[tuple[str, int], Number]] = {}
    gathered: dict[object, Number] = {}
    passed = [operator for operator in passed if does_something(operator) or arrives(operator)]
    rewritten = {(_layers(operator), t.name) for operator in passed for t in operator.writes}
    for operator, wanted in zip(passed, differentiable(passed), strict=True):
        before, repeated = dict(writers), again(operator, wanted, recompute)
        writers |= {t.name: (operator, repeated) for t in operator.writes}
        needed = dict.fromkeys(kept(operator, wanted), True)
        if repeated:
            needed = dict.fromkeys((t for t in operator.reads if not t.is_parameter), False) | needed
        for tensor, by_gradient in needed.items():
            given = operator.keeps == "outputs" and tensor in operator.writes
            writer, anew_too = (operator, repeated) if given else before.get(tensor.name, (None, False))
            if writer is None:  # a constant
                continue
            version, size = (tensor.name, id(writer)), operator.widths.bytes(tensor, tensor.elements(operator.sizes))
            inside = anew_too and (repeated or _gathers(writer)) and _layers(writer) == _layers(operator)
            if inside and _gathers(writer):  # one at a time
                gathered[_layers(operator)] = maximum(gathered.get(_layers(operator), 0), size)
            elif not inside:  # a layer that writes the tensor anew has its own, others share it
                times = operator.count if (_layers(operator), tensor.name) in rewritten else 1
                keeping[version] = maximum(keeping.get(version, 0), times * size)
            elif by_gradient:
                anew.setdefault(_layers(operator), {})[version] = size
    layers = {**anew, **gathered}
    return sum(keeping.values()), largest(sum(anew.get(each, {}).values()) + gathered.get(each, 0) for each in layers)


def _layers(operator: Operator) -> tuple[bool, tuple[int, ...] | None]:
    """The layers that an operator stands in; those of an encoder are not those of the decoder."""
    return operator.group.startswith("encoder "), operator.layers
