"""A phase -> its operators: one pass, the prefill and the decodes that generate text, or a training step."""

from __future__ import annotations

from dataclasses import replace

from roofmodel.algebra import mean
from roofmodel.counting import blocks, memory
from roofmodel.counting.memory import Memory
from roofmodel.counting.operator import Operator
from roofmodel.counting.training import resident, training
from roofmodel.counting.workload import Step, Workload
from roofmodel.models.architecture import Architecture


def operators(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """All operators of a phase, in order; where it has stages each operator names its own."""
    if step.phase == "train":
        passed = blocks.operators(arch, step)
        return tuple(training(passed, memory.parameters(arch, passed), step).operators)
    if step.phase != "generate":
        return blocks.operators(arch, step)
    return _staged("prefill", arch, _prompt(step)) + _staged("decodes", arch, _decodes(step))


def need(arch: Architecture, work: Workload) -> Memory:
    """What the phase that needs most needs on the device at its peak."""
    return max((peak(arch, step) for step in work.steps()), key=lambda peak: peak.total)


def peak(arch: Architecture, step: Step) -> Memory:
    """What a phase needs on the device at its peak."""
    if step.phase == "train":
        passed = blocks.operators(arch, step)
        count = memory.parameters(arch, passed)
        return resident(training(passed, count, step), memory.weight_bytes(arch, passed), count, step)
    passes = (_prompt(step), _last_decode(step)) if step.phase == "generate" else (step,)
    needs = (memory.resident(arch, one, blocks.operators(arch, one)) for one in passes)
    return max(needs, key=lambda need: need.total)


def uncached(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """Generation without a KV cache: each new token takes a forward pass over all tokens before it.

    Where a router chooses among experts, how many of them a pass touches is taken at the mean length.
    """
    prompt = step.context + step.tokens
    longer = step._replace(phase="forward", tokens=prompt + mean(step.passes - 1, 2), context=0, logit_positions=1)
    return _staged("", arch, longer)


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
    return tuple(replace(op, stage=stage, passes=step.passes) for op in blocks.operators(arch, step))
