"""A phase -> its operators: one pass, the prefill and the decodes that generate text, or a training step.

Where GPUs share the work these are one GPU's, and so is the memory: those of its share of the architecture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

from roofmodel.algebra import Number, is_just, mean, minimum
from roofmodel.counting import blocks, memory
from roofmodel.counting.memory import Memory
from roofmodel.counting.operator import Operator
from roofmodel.counting.training import InFlight, Training, resident, training
from roofmodel.counting.workload import Step, Workload
from roofmodel.models.architecture import Architecture, Held, Stack
from roofmodel.models.pipeline_stages import kinds_of_stages, parts_of_stage, stage
from roofmodel.models.sharding import share


def operators(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """All operators of a phase, in order; where it has stages each operator names its own."""
    if step.phase == "train":
        return tuple(trained(arch, step).operators(step.microbatches))
    if step.phase != "generate":
        passed = _pass(arch, step)
        return passed if is_just(step.microbatches, 1) else _repeated(passed, step.microbatches)
    return _staged("prefill", arch, _prompt(step)) + _staged("decodes", arch, _decodes(step))


def stages(arch: Architecture, step: Step) -> list[tuple[int, Step]]:
    """The same step on a GPU of each stage of layers, of those that are alike once, and how many those are."""
    pp, vpp = step.parallel.pp, step.parallel.vpp
    if is_just(pp, 1):
        return [(1, step)]
    kinds = kinds_of_stages(share(arch, step.parallel.tp, step.parallel.within), pp, vpp)
    return [(many, step._replace(parallel=step.parallel._replace(stage=which))) for which, many in kinds.items()]


def need(arch: Architecture, work: Workload, weights: Number | None = None) -> Memory:
    """What the phase that needs most needs on the device at its peak; `weights` spares counting their bytes again."""
    weights = weights or weight_bytes(arch, work.steps()[0])
    return reduce(Memory.or_more, (peak(arch, step, weights) for step in work.steps()))


def peak(arch: Architecture, step: Step, weights: Number, found: Sequence[Operator] | None = None) -> Memory:
    """What a phase needs on the device at its peak, in the stage that needs most.

    If there is one stage, `weights` are its bytes, and `found`, its operators, spares counting them again.
    """
    if len(staged := stages(arch, step)) == 1:
        of_stages = [needs(arch, step, weights, found)]
    else:
        of_stages = [needs(arch, one, weight_bytes(arch, one)) for _, one in staged]
    return reduce(Memory.or_more, (need for of_stage in of_stages for _, need in of_stage))


def needs(
    arch: Architecture, step: Step, weights: Number, found: Sequence[Operator] | None = None
) -> Iterator[tuple[Step, Memory]]:
    """The passes of a phase that may need most, and what each needs at its own peak."""
    own = _own(arch, step)
    if step.phase == "train":
        whole = trained(arch, step)
        in_bytes = memory.weight_bytes(own, whole.passed)
        yield step, resident(whole, in_bytes, whole.parameters, step, [*_in_flight(arch, step, whole)])
        return
    for one in (_prompt(step), _last_decode(step)) if step.phase == "generate" else (step,):
        alone = found is not None and one is step and is_just(step.microbatches, 1)
        operators = found if found is not None and alone else _pass(arch, one)
        yield one, memory.resident(own, one, operators, weights)


def trained(arch: Architecture, step: Step) -> Training:
    """A training step, by its parts."""
    own, passed = _own(arch, step), _pass(arch, step)
    held = own.stack.held if isinstance(own.body, Stack) else Held()
    tied = memory.table_elements(passed) if arch.tied and held.first != held.last else None
    return training(passed, memory.parameters(own, passed), step, tied)


def _in_flight(arch: Architecture, step: Step, whole: Training) -> Iterator[InFlight]:
    """The parts of a stage, and how many microbatches have passed each where the first one's gradients arrive.

    The last of p stages has one microbatch in flight, the first one p of them (1F1B). With v parts a stage, each takes
    p microbatches in turn, and 2 (p - 1 - stage) + (v - 1) p of them pass before forward and backward alternate
    (Narayanan et al., arXiv 2104.04473, section 2.2): the first stage has p v + p - 1 parts in flight.
    """
    pp, vpp, which = step.parallel.pp, step.parallel.vpp, step.parallel.stage
    if is_just(pp, 1):
        yield InFlight(1, whole.forward)
    elif vpp == 1:
        yield InFlight(minimum(step.microbatches, pp - which), whole.forward)
    else:
        passed = (vpp - 1) * pp + 2 * (pp - 1 - which) + 1
        taken = [sum(n // pp % vpp == part for n in range(passed)) for part in range(vpp)]
        shared = share(arch, step.parallel.tp, step.parallel.within)
        for many, part in zip(taken, parts_of_stage(shared, which, pp, vpp), strict=True):
            found = blocks.operators(part, step)
            yield InFlight(minimum(step.microbatches, many), training(found, 0, step).forward)


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
    return tuple(replace(op, passes=step.microbatches) if op.group.startswith("encoder ") else op for op in passes)


def _prompt(step: Step) -> Step:
    return step._replace(phase="prefill", passes=1)


def _decodes(step: Step) -> Step:
    """The decodes as a run: the first finds the prompt in the cache, and each of the others one token more."""
    prompt = step.context + step.tokens
    return step._replace(phase="decode", tokens=1, context=prompt, logit_positions=1, passes=step.passes - 1)


def _last_decode(step: Step) -> Step:
    run = _decodes(step)
    return run._replace(context=run.context + run.passes - 1, passes=1)


def _staged(name: str, arch: Architecture, step: Step) -> tuple[Operator, ...]:
    return tuple(replace(op, stage=name) for op in _repeated(_pass(arch, step), step.microbatches * step.passes))


def _repeated(passed: tuple[Operator, ...], times: Number) -> tuple[Operator, ...]:
    return tuple(replace(op, passes=times * op.passes) for op in passed)


def _pass(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    return blocks.operators(_own(arch, step), step)


def _own(arch: Architecture, step: Step) -> Architecture:
    """What a GPU has of the architecture."""
    parallel = step.parallel
    return stage(share(arch, parallel.tp, parallel.within), parallel.stage, parallel.pp, parallel.vpp)
