"""What all kinds of blocks use: their context (pass and tensors), norms, and communication between GPUs.

Communication is that of tensor and sequence parallelism within a layer, and of pipeline parallelism between stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from roofmodel.counting import vector_flops
from roofmodel.counting.operator import Builder, Collective, Operator, fuse
from roofmodel.counting.tensors import Sizes
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import Stack
from roofmodel.models.layers import Norm
from roofmodel.numbers.algebra import Number, ceil_div, is_just, mean, quotient


class BlockContext(NamedTuple):
    """What a block needs to build its operators: the pass, and its input and output tensors, both `hidden` wide.

    `input` and `output` are tensors with axes, such as `x[b t d]`. `residual` is the input of the layer's residual
    connection; `input` is the same tensor or its norm. `key_value_inputs` are those of keys and of values, if they have
    inputs of their own.
    """

    step: Step
    hidden: Number
    causal: bool
    input: str
    output: str
    residual: str = ""
    key_value_inputs: tuple[str, ...] = ()

    def build(self, **sizes: Number) -> Builder:
        """A builder with the axes of the pass, the hidden size, and the given axis sizes of the block."""
        return Builder({**self.step.token_axes, "d": self.hidden, **sizes}, self.step.widths)


def fused_or_eager(
    name: str,
    group: str,
    operators: Callable[[Step], Iterable[Operator]],
    step: Step,
    *,
    kind: str,
    causal: bool = True,
) -> Iterator[Operator]:
    """One fused kernel under flash attention, each operator by itself under eager attention.

    `operators` builds the operators of a step. The fused kernel carries what eager attention runs in its place, so
    that one walk through the model gives both counts.
    """
    if step.attention == "eager":
        yield from operators(step)
        return
    eager = step._replace(attention="eager")
    fused = fuse(name, group, operators(step), kind=kind)
    yield replace(fused, causal=causal, eager=lambda: tuple(operators(eager)))


def attention_sizes(sizes: Sizes, step: Step, keys_and_pairs: Callable[[Step], Sizes]) -> Sizes:
    """The sizes of an attention, from those of the projections beside it and those of keys and pairs in a step.

    GPUs that share a sequence have equal shares of its query-key pairs. Around a ring, a GPU has the keys of one GPU at
    a time; `ring` is the number of parts. After an all-gather, it has all keys; with Ulysses, all tokens of some heads.
    """
    parallel = step.parallel
    if is_just(parallel.cp, 1):
        return {**sizes, **keys_and_pairs(step)}
    whole = {**sizes, **keys_and_pairs(step.of_sequence)}
    if parallel.cp_kind == "ulysses":
        return {**whole, "t": parallel.cp * step.tokens, "k": quotient(sizes["k"], parallel.cp)}
    whole["t:s"] = mean(whole["t:s"], parallel.cp)
    if parallel.cp_kind == "ring":
        return {**whole, "s": step.tokens, "ring": parallel.cp}
    return {**whole, "halves": parallel.cp}


def share_sequence(
    build: Builder, sizes: Sizes, step: Step, queries: Sequence[str], keys: Sequence[str]
) -> Iterator[Operator]:
    """What the GPUs that share a sequence exchange before an attention of these `sizes`; nothing on a single GPU.

    The backward pass repeats a ring and an all-gather, because each GPU keeps only its own keys and values. The tensors
    have a token axis `t`.
    """
    parallel, own = step.parallel, " ".join(keys)
    if is_just(parallel.cp, 1):
        return
    if parallel.cp_kind == "ulysses":
        tensors = " ".join([*queries, *keys])
        yield from exchange_heads(build, step, "attention.heads", tensors)
    elif parallel.cp_kind == "ring":
        collective = Collective("ring", parallel.cp, parallel.tp, adds=True)
        yield build.exchange("attention.kv.ring", f"{own} => {own}", collective)
    else:
        collective = Collective("all_gather", parallel.cp, parallel.tp, adds=True)
        gathered = own.replace("[b t ", "[b s ")
        yield build._replace(sizes=sizes).exchange("attention.kv.all_gather", f"{own} => {gathered}", collective)


def exchange_heads(build: Builder, step: Step, place: str, tensors: str) -> Iterator[Operator]:
    """The all-to-all of Ulysses from some tokens of all heads to all tokens of some heads, or back."""
    parallel = step.parallel
    if not is_just(parallel.cp, 1) and parallel.cp_kind == "ulysses":
        collective = Collective("alltoall", parallel.cp, parallel.tp)
        yield build.exchange(f"{place}.alltoall", f"{tensors} => {tensors}", collective)


def norm(build: Builder, place: str, spec: Norm, source: str, target: str) -> Operator:
    """A norm over the last axis of `source`, with gain and bias if the norm has them."""
    axis = source.rpartition(" ")[2].rstrip("]")
    gain, bias = norm_parameters(place, spec, axis)
    return build.operator(
        f"norm.{place}", "norm", f"{source}{gain}{bias} -> {target}", kind="norm", flops=norm_flops(spec),
        function=spec.kind,
    )  # fmt: skip


def norm_parameters(place: str, spec: Norm, axes: str) -> tuple[str, str]:
    """Gain and bias as text for a line, each with a leading blank; empty if the norm has none."""
    return f" G_{place}[{axes}]" if spec.gain else "", f" B_{place}_norm[{axes}]" if spec.bias else ""


def norm_flops(spec: Norm) -> int:
    """Vector FLOPs per element, without gain and bias if the norm has none."""
    return vector_flops.NORM[spec.kind] - (spec.kind == "layernorm") * (not spec.bias) - (not spec.gain)


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
    part, times, width = _stage_shard(step), stack.stage_slice.received, _residual_width(stack, 0)
    yield from _stage_exchange(width, step, times, _stage_collective("receive", step), f"{part} -> {part}")
    if part == "x[b t dt]":
        collective = Collective("all_gather", step.parallel.tp)
        yield from _stage_exchange(width, step, times, collective, f"{part} -> x[b t d]")


def send_activations(stack: Stack, step: Step) -> Iterator[Operator]:
    """Sends the activations to the next pipeline stage; each tensor-parallel GPU sends a shard."""
    part, times, width = _stage_shard(step), stack.stage_slice.sent, _residual_width(stack, -1)
    if part == "x[b t dt]":
        collective = Collective("split", step.parallel.tp)
        yield from _stage_exchange(width, step, times, collective, f"x[b t d] -> {part}")
    yield from _stage_exchange(width, step, times, _stage_collective("send", step), f"{part} -> {part}")


def _stage_shard(step: Step) -> str:
    """The shard that one GPU sends to its peer, so that each element is sent once."""
    return f"x[b {step.parallel.rows} d]" if step.parallel.unsharded or step.parallel.sequence else "x[b t dt]"


def _stage_collective(name: str, step: Step) -> Collective:
    """The send or receive between neighboring pipeline stages, over the slowest link between any two of them."""
    return Collective(name, step.parallel.pp, step.parallel.gpus_of_stage(step.phase == "train"))


def _residual_width(stack: Stack, end: int) -> Number:
    """Elements per token between two pipeline stages, before the first layer (`end` 0) or after the last one (-1).

    They are those of all residual streams, or of the finished sums and the running one.
    """
    if stack.sums:
        return stack.hidden * (stack.layers[end][end].earlier_sums + 1)
    return stack.hidden * (stack.streams.count if stack.streams else 1)


def _stage_exchange(width: Number, step: Step, times: int, collective: Collective, line: str) -> Iterator[Operator]:
    """One exchange between stages, `times` per pass; nothing if it neither moves data nor has a gradient."""
    if times and (collective.moves or step.phase == "train"):
        sizes = {**step.token_axes, "d": width, "dt": ceil_div(width, step.parallel.tp)}
        yield replace(Builder(sizes, step.widths).exchange(f"stage.{collective.name}", line, collective), passes=times)
