"""Operators and peak memory of a phase: a single pass, text generation (prefill and decodes), or a training step.

With several GPUs, operators and memory are those of one GPU and its share of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from roofmodel.counting import passes
from roofmodel.counting.operator import Operator
from roofmodel.counting.passes import Memory, Walk, as_eager, gpu_share, one_pass
from roofmodel.counting.workload import Step, Workload
from roofmodel.models.architecture import Architecture, kinds_of_stages, shard
from roofmodel.numbers.algebra import Number, is_just, mean, trace_branches, whole


def operators(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """All operators of a phase in order; `Operator.stage` names the part of the phase, if the phase has parts."""
    if step.phase == "train":
        return tuple(training_step(arch, step).operators(step.microbatches))
    if step.phase != "generate":
        passed = one_pass(arch, step)
        return passed if is_just(step.microbatches, 1) else _repeated(passed, step.microbatches)
    return _staged("prefill", arch, prompt_step(step)) + _staged("decodes", arch, _decodes(step))


if TYPE_CHECKING:
    from roofmodel.counting.training.step import TrainingStep


def operators_and_eager(arch: Architecture, step: Step) -> tuple[tuple[Operator, ...], tuple[Operator, ...]]:
    """The operators of a phase, and those that eager attention would run: both from one walk through the model."""
    if step.attention == "eager":
        counted_operators = operators(arch, step)
        return counted_operators, counted_operators
    if step.phase != "train":
        counted_operators = operators(arch, step)
        return counted_operators, as_eager(counted_operators)
    from roofmodel.counting.training.share import TrainingShare

    return TrainingShare(arch, step).operators_and_eager(step)


def model_flops(operators: Sequence[Operator]) -> Number:
    """Matmul FLOPs of all occurrences, without what the backward pass recomputes: layers, and scores inside a fused
    attention."""
    total: Number = 0
    for op in operators:
        flops = op.matmul_flops
        if op.stage == "backward" and op.parts:
            flops = sum(part.matmul_flops for part in op.parts if ".grad" in part.name)
        if op.stage != "recomputation":
            total = total + whole(op.count * flops)
    return total


def distinct_stages(arch: Architecture, step: Step) -> list[tuple[int, Step]]:
    """The step on a GPU of each pipeline stage; identical stages appear once, with their number."""
    pp, vpp = step.parallel.pp, step.parallel.vpp
    if is_just(pp, 1):
        return [(1, step)]
    shared = shard(arch, step.parallel.tp, step.parallel.expert_tp)
    kinds = kinds_of_stages(shared, pp, vpp, step.parallel.stage_layers)
    return [(many, step._replace(parallel=step.parallel._replace(stage=which))) for which, many in kinds.items()]


def peak_memory(arch: Architecture, work: Workload, weights: Number | None = None, *, walk: Walk = one_pass) -> Memory:
    """Peak bytes per GPU over all phases of a workload. Pass `weights` (bytes) if they are already counted."""
    return _peak_memory(arch, work.steps(), weights, walk=walk)


def phase_memory(
    arch: Architecture, step: Step, weights: Number, walks: Sequence[Sequence[Operator]] | None = None
) -> Memory:
    """Peak bytes per GPU of a phase, in the pipeline stage that needs most.

    `weights` are the bytes of the weights, used only without pipeline parallelism. `walks` are the operators of the
    phase on each of its distinct stages, in their order, if already counted.
    """
    return _peak_memory(arch, (step,), weights, walk=one_pass if walks is None else _counted_walk(arch, step, walks))


def _counted_walk(arch: Architecture, step: Step, walks: Sequence[Sequence[Operator]]) -> Walk:
    """A walk that gives the operators that are already counted, if the phase is a single pass.

    Unlike CachedWalks, it does not compare steps: their sizes may be arrays.
    """
    if step.phase in ("train", "generate") or not is_just(step.microbatches, 1):
        return one_pass
    stages = [stage_step.parallel.stage for _, stage_step in distinct_stages(arch, step)]
    by_stage = dict(zip(stages, map(tuple, walks), strict=True))

    def walk(share: Architecture, stage_step: Step) -> tuple[Operator, ...]:
        return by_stage[stage_step.parallel.stage] if stage_step.phase == step.phase else one_pass(share, stage_step)

    return walk


def _peak_memory(arch: Architecture, steps: Sequence[Step], weights: Number | None, *, walk: Walk) -> Memory:
    """Peak bytes per GPU over the steps of a workload, in the pipeline stage that needs most."""
    return reduce(Memory.larger, (memory for _, memory in stage_memories(arch, steps, weights, walk=walk)))


def stage_memories(
    arch: Architecture, steps: Sequence[Step], weights: Number | None = None, *, walk: Walk = one_pass
) -> Iterator[tuple[int, Memory]]:
    """Peak bytes per GPU of each distinct pipeline stage over the steps of a workload, with the number of stages."""
    staged = distinct_stages(arch, steps[0])
    for many, first in staged:
        if len(staged) > 1 or weights is None:
            weights = 0 if first.phase == "train" else weight_bytes(arch, first, walk=walk)  # training counts its own
        of_stage = (step._replace(parallel=first.parallel) for step in steps)
        peaks = (memory for step in of_stage for _, memory in memory_by_pass(arch, step, weights, walk=walk))
        yield many, reduce(Memory.larger, peaks)


def memory_by_pass(
    arch: Architecture, step: Step, weights: Number, *, walk: Walk = one_pass
) -> Iterator[tuple[Step, Memory]]:
    """The passes of a phase that can need the most memory, and the peak memory of each.

    For generation these are the prefill and the last decode.
    """
    if step.phase == "train":
        from roofmodel.counting.training.share import TrainingShare

        yield step, TrainingShare(arch, step, walk(arch, step)).memory(step)
        return
    share = gpu_share(arch, step)
    for pass_step in (prompt_step(step), last_decode_step(step)) if step.phase == "generate" else (step,):
        yield pass_step, passes.pass_memory(share, pass_step, walk(arch, pass_step), weights)


def training_step(arch: Architecture, step: Step) -> TrainingStep:
    """The operators of a training step, by part (forward, backward, ...)."""
    from roofmodel.counting.training.share import TrainingShare

    return TrainingShare(arch, step).training_step(step)


@trace_branches
def weight_bytes(arch: Architecture, step: Step, *, walk: Walk = one_pass) -> Number:
    """Bytes of all weights on the GPU, including those that the phase does not use."""
    return passes.weight_bytes(gpu_share(arch, step), walk(arch, whole_model_step(step)))


def whole_model_step(step: Step) -> Step:
    """A pass that reads every parameter: the step's own prefill or forward pass if it starts without a cache."""
    if step.phase == "generate":
        step = prompt_step(step)
    return step if step.phase in ("prefill", "forward") and not step.resumed else _forward_step(step)


def model_operators(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """One forward pass that runs every operator of the model, including the encoder if there is one."""
    return one_pass(arch, _forward_step(step))


def _forward_step(step: Step) -> Step:
    return step._replace(phase="forward", context=0, passes=1, chunk=None)


def operators_without_cache(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """Operators of generation without a KV cache: each new token needs a forward pass over all tokens before it.

    For MoE models, the number of experts used per pass is that at the mean length. The encoder runs once; the decoder
    recomputes the keys and values of the encoder output in every pass.
    """
    prompt = step.context + step.tokens
    longer = step._replace(phase="forward", tokens=prompt + mean(step.passes - 1, 2), context=0, logit_positions=1)
    repeated = _staged("", arch, longer)
    return tuple(replace(op, passes=step.microbatches) if op.group.startswith("encoder ") else op for op in repeated)


def prompt_step(step: Step) -> Step:
    """The prefill of generation."""
    return step._replace(phase="prefill", passes=1)


def _decodes(step: Step) -> Step:
    """All decodes as one step: the first reads the prompt from the cache, each later one reads one token more."""
    prompt = step.context + step.tokens
    return step._replace(phase="decode", tokens=1, context=prompt, logit_positions=1, passes=step.passes - 1)


def first_decode_step(step: Step) -> Step:
    """The first decode of generation, whose cache has the prompt."""
    return _decodes(step)._replace(passes=1)


def last_decode_step(step: Step) -> Step:
    """The last decode of generation, whose cache has all but the last token."""
    run = _decodes(step)
    return run._replace(context=run.context + run.passes - 1, passes=1)


def _staged(name: str, arch: Architecture, step: Step) -> tuple[Operator, ...]:
    return tuple(replace(op, stage=name) for op in _repeated(one_pass(arch, step), step.microbatches * step.passes))


def _repeated(passed: tuple[Operator, ...], times: Number) -> tuple[Operator, ...]:
    return tuple(replace(op, passes=times * op.passes) for op in passed)
