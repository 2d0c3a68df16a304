"""Operators and peak memory of a phase: a single pass, text generation (prefill and decodes), or a training step.

With several GPUs, operators and memory are those of one GPU and its share of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, reduce

from roofmodel.counting import blocks, memory
from roofmodel.counting.dropout import with_dropout
from roofmodel.counting.memory import Memory
from roofmodel.counting.number_formats import FORMATS, Widths
from roofmodel.counting.operator import Operator
from roofmodel.counting.training import (
    InFlight,
    KeptTensors,
    TrainingPasses,
    TrainingStep,
    build_passes,
    build_training_step,
    forward_with_loss,
    gradient_bytes,
    kept_bytes,
    kept_tensors,
    training_memory,
)
from roofmodel.counting.workload import Step, Workload
from roofmodel.models.architecture import Architecture, Stack, StageSlice
from roofmodel.models.pipeline_stages import kinds_of_stages, parts_of_stage, stage
from roofmodel.models.sharding import shard
from roofmodel.numbers.algebra import Number, is_just, mean, minimum, trace_branches

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
        self._found = {self._key(step): tuple(found) for step, found in counted}

    def add(self, step: Step, found: Iterable[Operator]) -> None:
        """Add the operators of a pass without pipeline parallelism."""
        self._found[self._key(step)] = tuple(found)

    def __call__(self, arch: Architecture, step: Step) -> tuple[Operator, ...]:
        """The operators of a pass, on a GPU of the pipeline stage that the step names."""
        key = self._key(step)
        if key not in self._found:
            self._found[key] = one_pass(arch, key._replace(widths=step.widths))
        whole = tuple(op if op.widths == step.widths else op.with_widths(step.widths) for op in self._found[key])
        return whole if step.parallel.pp == 1 else blocks.stage_operators(whole, gpu_share(arch, step).stack, step)

    def _key(self, step: Step) -> Step:
        """The step without stages, and with one format for all tensors: neither changes the operators of the model."""
        return step._replace(parallel=step.parallel._replace(pp=1, vpp=1, stage=0), widths=ONE_FORMAT)


def operators(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """All operators of a phase in order; `Operator.stage` names the part of the phase, if the phase has parts."""
    if step.phase == "train":
        return tuple(training_step(arch, step).operators(step.microbatches))
    if step.phase != "generate":
        passed = one_pass(arch, step)
        return passed if is_just(step.microbatches, 1) else _repeated(passed, step.microbatches)
    return _staged("prefill", arch, prompt_step(step)) + _staged("decodes", arch, _decodes(step))


def operators_and_eager(arch: Architecture, step: Step) -> tuple[tuple[Operator, ...], tuple[Operator, ...]]:
    """The operators of a phase, and those that eager attention would run: both from one walk through the model."""
    if step.attention == "eager":
        found = operators(arch, step)
        return found, found
    if step.phase != "train":
        found = operators(arch, step)
        return found, _as_eager(found)
    return TrainingShare(arch, step).operators_and_eager(step)


def _as_eager(found: Iterable[Operator]) -> tuple[Operator, ...]:
    return tuple(eager for operator in found for eager in operator.as_eager())


def distinct_stages(arch: Architecture, step: Step) -> list[tuple[int, Step]]:
    """The step on a GPU of each pipeline stage; identical stages appear once, with their number."""
    pp, vpp = step.parallel.pp, step.parallel.vpp
    if is_just(pp, 1):
        return [(1, step)]
    kinds = kinds_of_stages(shard(arch, step.parallel.tp, step.parallel.expert_tp), pp, vpp)
    return [(many, step._replace(parallel=step.parallel._replace(stage=which))) for which, many in kinds.items()]


def peak_memory(arch: Architecture, work: Workload, weights: Number | None = None, *, walk: Walk = one_pass) -> Memory:
    """Peak bytes per GPU over all phases of a workload. Pass `weights` (bytes) if they are already counted."""
    return _peak_memory(arch, work.steps(), weights, walk=walk)


def phase_memory(
    arch: Architecture, step: Step, weights: Number, found: Sequence[Sequence[Operator]] | None = None
) -> Memory:
    """Peak bytes per GPU of a phase, in the pipeline stage that needs most.

    `weights` are the bytes of the weights, used only without pipeline parallelism. `found` are the operators of the
    phase on each of its distinct stages, in their order, if already counted.
    """
    return _peak_memory(arch, (step,), weights, walk=one_pass if found is None else _counted_walk(arch, step, found))


def _counted_walk(arch: Architecture, step: Step, found: Sequence[Sequence[Operator]]) -> Walk:
    """A walk that gives the operators that are already counted, if the phase is a single pass.

    Unlike CachedWalks, it does not compare steps: their sizes may be arrays.
    """
    if step.phase in ("train", "generate") or not is_just(step.microbatches, 1):
        return one_pass
    stages = [one.parallel.stage for _, one in distinct_stages(arch, step)]
    by_stage = dict(zip(stages, map(tuple, found), strict=True))

    def walk(share: Architecture, one: Step) -> tuple[Operator, ...]:
        return by_stage[one.parallel.stage] if one.phase == step.phase else one_pass(share, one)

    return walk


def _peak_memory(arch: Architecture, steps: Sequence[Step], weights: Number | None, *, walk: Walk) -> Memory:
    """Peak bytes per GPU over the steps of a workload, in the pipeline stage that needs most."""
    staged = distinct_stages(arch, steps[0])
    passes: list[Memory] = []
    for _, first in staged:
        if len(staged) > 1 or weights is None:
            weights = 0 if first.phase == "train" else weight_bytes(arch, first, walk=walk)  # training counts its own
        for step in steps:
            of_stage = step._replace(parallel=first.parallel)
            passes += (memory for _, memory in memory_by_pass(arch, of_stage, weights, walk=walk))
    return reduce(Memory.larger, passes)


def memory_by_pass(
    arch: Architecture, step: Step, weights: Number, *, walk: Walk = one_pass
) -> Iterator[tuple[Step, Memory]]:
    """The passes of a phase that can need the most memory, and the peak memory of each.

    For generation these are the prefill and the last decode.
    """
    if step.phase == "train":
        yield step, TrainingShare(arch, step, walk(arch, step)).memory(step)
        return
    share = gpu_share(arch, step)
    for one in (prompt_step(step), last_decode_step(step)) if step.phase == "generate" else (step,):
        yield one, memory.pass_memory(share, one, walk(arch, one), weights)


def training_step(arch: Architecture, step: Step) -> TrainingStep:
    """The operators of a training step, by part (forward, backward, ...)."""
    return TrainingShare(arch, step).training_step(step)


class TrainingShare:
    """The training step of one GPU, whose passes are built once for all kinds of recomputation and of optimizer.

    `passed` is its forward pass without the loss, and `whole` the forward pass of all layers, if already counted. Other
    steps must have the same layout, and the same sizes except the number of microbatches.
    """

    def __init__(
        self, arch: Architecture, step: Step, passed: Sequence[Operator] = (), whole: Sequence[Operator] = ()
    ) -> None:
        self._arch, self._step, self._whole, self._own = arch, step, whole, gpu_share(arch, step)
        if whole:
            passed = blocks.stage_operators(whole, self._own.stack, step)
        passed = passed or one_pass(arch, step)
        own_slice = self._own.stack.stage_slice if isinstance(self._own.body, Stack) else StageSlice()
        tied = memory.token_table_elements(passed) if arch.tied and own_slice.first != own_slice.last else None
        self._passes = build_passes(passed, memory.parameters(self._own, passed), step, tied)
        self._kept: dict[str, list[tuple[Number, Number]]] = {}  # by kind of recomputation, of each model chunk

    def training_step(self, step: Step) -> TrainingStep:
        """The operators of a training step, by part."""
        return build_training_step(self._passes, step)

    def operators_and_eager(self, step: Step) -> tuple[tuple[Operator, ...], tuple[Operator, ...]]:
        """The operators of a training step, and those that eager attention would run."""
        found = tuple(self.training_step(step).operators(step.microbatches))
        if step.attention == "eager":
            return found, found
        return found, tuple(build_training_step(self._eager_passes, step).operators(step.microbatches))

    @cached_property
    def _eager_passes(self) -> TrainingPasses:
        passes = self._passes
        return build_passes(_as_eager(passes.passed), passes.parameters, self._step, passes.tied)

    def memory(self, step: Step) -> Memory:
        """Peak bytes of a training step."""
        found, in_flight = self.training_step(step), [*self.microbatches_in_flight(step)]
        return training_memory(found, self._stored, step, in_flight, self._transient)

    @cached_property
    def _stored(self) -> Number:
        return memory.weight_bytes(self._own, self._passes.passed)

    @cached_property
    def _transient(self) -> Number:
        return gradient_bytes(self._passes.backward)

    @cached_property
    def _chunks(self) -> list[KeptTensors]:
        """What each model chunk of the pipeline stage keeps."""
        return [kept_tensors(with_dropout(forward, self._arch.code.dropout)) for forward in self._forward_of_chunks()]

    def _forward_of_chunks(self) -> Iterator[tuple[Operator, ...]]:
        parallel = self._step.parallel
        if is_just(parallel.pp, 1) or parallel.vpp == 1:
            yield self._passes.forward
            return
        shared = shard(self._arch, parallel.tp, parallel.expert_tp)
        for part in parts_of_stage(shared, parallel.stage, parallel.pp, parallel.vpp):
            counted = self._whole and blocks.stage_operators(self._whole, part.stack, self._step)
            yield forward_with_loss(counted or blocks.operators(part, self._step), self._step)

    def microbatches_in_flight(self, step: Step) -> Iterator[InFlight]:
        """The model chunks of a pipeline stage, each with the microbatches whose activations it keeps at the peak.

        1F1B schedule: of p stages, the last keeps one microbatch and the first keeps p. Interleaved schedule with v
        chunks per stage: each chunk takes p microbatches in turn, and a stage runs 2 (p - 1 - stage) + (v - 1) p
        forward passes before forward and backward alternate (Narayanan et al., arXiv 2104.04473, section 2.2). The
        first stage then keeps p v + p - 1 chunk activations.
        """
        if step.recompute not in self._kept:
            self._kept[step.recompute] = [kept_bytes(chunk, step.recompute) for chunk in self._chunks]
        (pp, vpp, which), kept = (step.parallel.pp, step.parallel.vpp, step.parallel.stage), self._kept[step.recompute]
        if is_just(pp, 1):
            yield InFlight(1, *kept[0])
        elif vpp == 1:
            yield InFlight(minimum(step.microbatches, pp - which), *kept[0])
        else:
            passed = (vpp - 1) * pp + 2 * (pp - 1 - which) + 1
            taken = [sum(n // pp % vpp == part for n in range(passed)) for part in range(vpp)]
            for many, chunk in zip(taken, kept, strict=True):
                yield InFlight(minimum(step.microbatches, many), *chunk)


@trace_branches
def weight_bytes(arch: Architecture, step: Step, *, walk: Walk = one_pass) -> Number:
    """Bytes of all weights on the GPU, including those that the phase does not use."""
    return memory.weight_bytes(gpu_share(arch, step), walk(arch, whole_model_step(step)))


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
    passes = _staged("", arch, longer)
    return tuple(replace(op, passes=step.microbatches) if op.group.startswith("encoder ") else op for op in passes)


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


def gpu_share(arch: Architecture, step: Step) -> Architecture:
    """The part of the architecture on one GPU (tensor, expert and pipeline parallelism)."""
    parallel = step.parallel
    return stage(shard(arch, parallel.tp, parallel.expert_tp), parallel.stage, parallel.pp, parallel.vpp)
