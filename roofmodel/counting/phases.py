"""A phase -> its operators: one pass, the prefill and the decodes that generate text, or a training step.

Where GPUs share the work these are one GPU's, and so is the memory: those of its share of the architecture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

from roofmodel.algebra import Number, mean
from roofmodel.counting import blocks, memory
from roofmodel.counting.memory import Memory
from roofmodel.counting.operator import Operator
from roofmodel.counting.training import resident, training
from roofmodel.counting.workload import Step, Workload
from roofmodel.models.architecture import Architecture
from roofmodel.models.sharding import share


def operators(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """All operators of a phase, in order; where it has stages each operator names its own."""
    if step.phase == "train":
        passed = _pass(arch, step)
        return tuple(training(passed, memory.parameters(_own(arch, step), passed), step).operators)
    if step.phase != "generate":
        return _pass(arch, step)
    return _staged("prefill", arch, _prompt(step)) + _staged("decodes", arch, _decodes(step))


def need(arch: Architecture, work: Workload, weights: Number | None = None) -> Memory:
    """What the phase that needs most needs on the device at its peak; `weights` spares counting their bytes again."""
    weights = weights or weight_bytes(arch, work.steps()[0])
    return reduce(Memory.or_more, (peak(arch, step, weights) for step in work.steps()))


def peak(arch: Architecture, step: Step, weights: Number, found: Sequence[Operator] | None = None) -> Memory:
    """What a phase needs on the device at its peak; `found`, its operators, spares counting them again."""
    return reduce(Memory.or_more, (need for _, need in needs(arch, step, weights, found)))


def needs(
    arch: Architecture, step: Step, weights: Number, found: Sequence[Operator] | None = None
) -> Iterator[tuple[Step, Memory]]:
    """The passes of a phase that may need most, and what each needs at its own peak."""
    own = _own(arch, step)
    if step.phase == "train":
        passed = _pass(arch, step)
        count = memory.parameters(own, passed)
        yield step, resident(training(passed, count, step), memory.weight_bytes(own, passed), count, step)
        return
    for one in (_prompt(step), _last_decode(step)) if step.phase == "generate" else (step,):
        operators = found if found is not None and one is step else _pass(arch, one)
        yield one, memory.resident(own, one, operators, weights)


def weight_bytes(arch: Architecture, step: Step) -> Number:
    """Bytes of all weights, whatever a phase runs of them."""
    return memory.weight_bytes(_own(arch, step), whole(arch, step))


def whole(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """All operators that a model has: those of a pass that reads its source, if it has one, and all else."""
    return _pass(arch, step._replace(phase="forward", context=0, passes=1))


def uncached(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """Generation without a KV cache: each new token takes a forward pass over all tokens before it.

    Where a router chooses among experts, how many of them a pass touches is taken at the mean length. What an encoder
    gives is kept, but not the keys and values that the decoder makes of it.
    """
    prompt = step.context + step.tokens
    longer = step._replace(phase="forward", tokens=prompt + mean(step.passes - 1, 2), context=0, logit_positions=1)
    passes = _staged("", arch, longer)
    return tuple(replace(op, passes=1) if op.group.startswith("encoder ") else op for op in passes)


def _prompt(step: Step) -> Step:
    return step._replace(phase="prefill", passes=1)


def _decodes(step: Step) -> Step:
    """The decodes as a run: the first finds the prompt in the cache, and each of the others one token more."""
    prompt = step.context + step.tokens
    return step._replace(phase="decode", tokens=1, context=prompt, logit_positions=1, passes=step.passes - 1)


def _last_decode(step: Step) -> Step:
    run = _decodes(step)
    return run._replace(context=run.context + run.passes - 1, passes=1)


def _staged(stage: str, arch: Architecture, step: Step) -> tuple[Operator, ...]:
    return tuple(replace(op, stage=stage, passes=step.passes) for op in _pass(arch, step))


def _pass(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    return blocks.operators(_own(arch, step), step)


def _own(arch: Architecture, step: Step) -> Architecture:
    """What a GPU has of the architecture."""
    return share(arch, step.parallel.tp, step.parallel.within)
