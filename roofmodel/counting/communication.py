"""Communication between GPUs: tensor and sequence parallelism within a layer, pipeline parallelism between stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofmodel.counting.collective import Collective
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import Stack
from roofmodel.numbers.algebra import ceil_div


def all_reduce(build: Builder, step: Step, place: str, tensor: str) -> Iterator[Operator]:
    """The all-reduce of partial sums under tensor parallelism; nothing on a single GPU."""
    if not step.parallel.unsharded:
        collective = Collective("all_reduce", step.parallel.tp)
        yield build.exchange(f"{place}.all_reduce", f"{tensor} -> {tensor}", collective)


def sum_block_output(build: Builder, step: Step, place: str, tensor: str) -> Iterator[Operator]:
    """The sum of a block's partial outputs: an all-reduce, or a reduce-scatter under sequence parallelism."""
    if not step.parallel.sequence:
        yield from all_reduce(build, step, place, tensor)
    else:
        collective = Collective("reduce_scatter", step.parallel.tp)
        yield build.exchange(f"{place}.reduce_scatter", f"{tensor} -> {tokens_of_gpu(tensor, step)}", collective)


def tokens_of_gpu(tensor: str, step: Step) -> str:
    """The tensor with the tokens of one GPU, as it is outside the blocks under sequence parallelism."""
    return tensor.replace("[b t ", f"[b {step.parallel.rows} ")


def gather_tokens(build: Builder, step: Step, place: str, tensor: str, gathered: str) -> Iterator[Operator]:
    """The all-gather of tokens under sequence parallelism.

    The backward pass repeats it for the weight gradients, since each GPU keeps only its own tokens.
    """
    collective = Collective("all_gather", step.parallel.tp, adds=True)
    yield build.exchange(f"{place}.all_gather", f"{tensor} -> {gathered}", collective)


def replicated_input(build: Builder, step: Step, place: str, tensor: str) -> Iterator[Operator]:
    """Marks a replicated tensor from which each GPU computes its shard: its gradient is an all-reduce.

    Training only; no forward communication.
    """
    if step.phase == "train" and not step.parallel.unsharded:
        collective = Collective("replicate", step.parallel.tp)
        yield build.exchange(f"{place}.replicate", f"{tensor} -> {tensor}", collective)


def receive_activations(stack: Stack, step: Step) -> Iterator[Operator]:
    """Receives the activations of the previous pipeline stage; the backward pass returns their gradients.

    Each tensor-parallel GPU receives a shard and all-gathers the rest (Narayanan et al., arXiv 2104.04473, section
    4.1).
    """
    part = _stage_shard(step)
    yield from _stage_exchange(
        stack, step, stack.stage_slice.received, _stage_collective("receive", step), f"{part} -> {part}"
    )
    if part == "x[b t dt]":
        collective = Collective("all_gather", step.parallel.tp)
        yield from _stage_exchange(stack, step, stack.stage_slice.received, collective, f"{part} -> x[b t d]")


def send_activations(stack: Stack, step: Step) -> Iterator[Operator]:
    """Sends the activations to the next pipeline stage; each tensor-parallel GPU sends a shard."""
    part = _stage_shard(step)
    if part == "x[b t dt]":
        collective = Collective("split", step.parallel.tp)
        yield from _stage_exchange(stack, step, stack.stage_slice.sent, collective, f"x[b t d] -> {part}")
    yield from _stage_exchange(
        stack, step, stack.stage_slice.sent, _stage_collective("send", step), f"{part} -> {part}"
    )


def _stage_shard(step: Step) -> str:
    """The shard that one GPU sends to its peer, so that each element is sent once."""
    return f"x[b {step.parallel.rows} d]" if step.parallel.unsharded or step.parallel.sequence else "x[b t dt]"


def _stage_collective(name: str, step: Step) -> Collective:
    """The send or receive between neighboring pipeline stages, over the slowest link between any two of them."""
    return Collective(name, step.parallel.pp, step.parallel.gpus_of_stage(step.phase == "train"))


def _stage_exchange(stack: Stack, step: Step, times: int, collective: Collective, line: str) -> Iterator[Operator]:
    """One exchange between stages, `times` per pass; nothing if it neither moves data nor has a gradient."""
    if times and (collective.moves or step.phase == "train"):
        sizes = {**step.token_axes, "d": stack.hidden, "dt": ceil_div(stack.hidden, step.parallel.tp)}
        yield replace(Builder(sizes, step.widths).exchange(f"stage.{collective.name}", line, collective), passes=times)
