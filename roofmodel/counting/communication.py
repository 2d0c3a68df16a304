"""Exchanges between GPUs that share a layer (tensor and sequence parallelism) or hold different pipeline stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofmodel.algebra import ceil_div
from roofmodel.counting.collective import Collective
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import Stack


def summed(build: Builder, step: Step, place: str, tensor: str) -> Iterator[Operator]:
    """The all-reduce of what each of the GPUs that share a layer has computed of a sum; none on a single GPU."""
    if not step.parallel.alone:
        collective = Collective("all_reduce", step.parallel.tp)
        yield build.exchange(f"{place}.all_reduce", f"{tensor} -> {tensor}", collective)


def added_up(build: Builder, step: Step, place: str, tensor: str) -> Iterator[Operator]:
    """The same of what a layer goes on with: of all its tokens, or by each GPU of its part of them."""
    if not step.parallel.sequence:
        yield from summed(build, step, place, tensor)
    else:
        collective = Collective("reduce_scatter", step.parallel.tp)
        yield build.exchange(f"{place}.reduce_scatter", f"{tensor} -> {of_a_gpu(tensor, step)}", collective)


def of_a_gpu(tensor: str, step: Step) -> str:
    """What of a tensor of all tokens a GPU has between the parts of a layer."""
    return tensor.replace("[b t ", f"[b {step.parallel.rows} ")


def all_tokens(build: Builder, step: Step, place: str, tensor: str, whole: str) -> Iterator[Operator]:
    """What all of these GPUs have of a tensor, where each had a part of its tokens; ahead of the gradients of weights
    it is gathered again, as only that part is kept."""
    collective = Collective("all_gather", step.parallel.tp, adds=True)
    yield build.exchange(f"{place}.all_gather", f"{tensor} -> {whole}", collective)


def shared(build: Builder, step: Step, place: str, tensor: str) -> Iterator[Operator]:
    """Where each of these GPUs goes on with its own part of a tensor that all have: its gradient is a sum."""
    if step.phase == "train" and not step.parallel.alone:
        collective = Collective("replicate", step.parallel.tp)
        yield build.exchange(f"{place}.replicate", f"{tensor} -> {tensor}", collective)


def received(stack: Stack, step: Step) -> Iterator[Operator]:
    """What parts of a stage start from: the activations of the stage before, whose gradients go back to it.

    Each of the GPUs that share a layer gets a part of them, and gathers the others' (Narayanan et al., arXiv
    2104.04473, section 4.1).
    """
    part = _of_a_hop(step)
    yield from _hop(stack, step, stack.held.received, _next("receive", step), f"{part} -> {part}")
    if part == "x[b t dt]":
        collective = Collective("all_gather", step.parallel.tp)
        yield from _hop(stack, step, stack.held.received, collective, f"{part} -> x[b t d]")


def sent(stack: Stack, step: Step) -> Iterator[Operator]:
    """What parts of a stage give to the next one, each GPU the part that it has kept of what all have."""
    part = _of_a_hop(step)
    if part == "x[b t dt]":
        collective = Collective("split", step.parallel.tp)
        yield from _hop(stack, step, stack.held.sent, collective, f"x[b t d] -> {part}")
    yield from _hop(stack, step, stack.held.sent, _next("send", step), f"{part} -> {part}")


def _of_a_hop(step: Step) -> str:
    """What one GPU sends to one, so that together they send each number once."""
    return f"x[b {step.parallel.rows} d]" if step.parallel.alone or step.parallel.sequence else "x[b t dt]"


def _next(name: str, step: Step) -> Collective:
    """What goes from stage to stage, which may be any two neighbours of them: the slowest hop sets the pace."""
    return Collective(name, step.parallel.pp, step.parallel.of_a_stage(step.phase == "train"))


def _hop(stack: Stack, step: Step, times: int, collective: Collective, line: str) -> Iterator[Operator]:
    """One step between stages, for so many parts; none where it does nothing and nothing needs its gradient."""
    if times and (collective.moves or step.phase == "train"):
        sizes = {**step.token_axes, "d": stack.hidden, "dt": ceil_div(stack.hidden, step.parallel.tp)}
        yield replace(Builder(sizes, step.widths).exchange(f"stage.{collective.name}", line, collective), passes=times)
