"""How we count, point by point; formulas are what the counting code itself makes of symbols, constants its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from roofmodel.algebra import product
from roofmodel.counting import textbook_kernels, vector_flops
from roofmodel.counting.collective import Collective
from roofmodel.counting.feed_forward import touched_experts
from roofmodel.counting.number_formats import FORMATS, Format
from roofmodel.counting.vector_flops import FlopCount
from roofmodel.counting.workload import Workload, attended, pairs
from roofmodel.models.layers import MLP, MoE
from roofmodel.models.symbols import symbol


class Point(NamedTuple):
    """A point that users of such tools quarrel about: what we do, as a formula where there is one; how to switch it."""

    point: str
    convention: str
    formula: Any = None
    switch: str = ""


def points() -> Iterator[Point]:
    """The conventions."""
    S, C, T, W, B, E, k = map(symbol, ("S", "C", "T", "W", "B", "E", "k"))
    flash, eager = (Workload(("prefill",), batch=B, seq=S, attention=how).step("prefill") for how in ("flash", "eager"))
    decode = Workload(("decode",), batch=B, context=C).step("decode")
    chunk = flash._replace(tokens=T, context=C)
    matmul = textbook_kernels.operator("matmul", symbol("n"), Workload(()).widths)
    moe = MoE(E, k, MLP(symbol("F"), "silu"))

    yield Point("multiply-add", "2 FLOPs: n × n matrices take", matmul.matmul_flops)
    yield Point(
        "matmul and vector work",
        "counted apart (matmul_flops, vector_flops): they run on different pipes, under different roofs; the constants "
        "of vector work stand below, each with its source",
    )
    yield Point("causal attention, eager", "all pairs of query and key", pairs(eager, None, True), "--attention eager")
    yield Point(
        "causal attention, fused", "the pairs that the mask leaves; both figures are shown", pairs(flash, None, True),
        "--attention flash",
    )  # fmt: skip
    yield Point("a chunk of T tokens after C", "fused, likewise", pairs(chunk, None, True))
    yield Point("sliding window W", "fused prefill of S tokens", pairs(flash, W, True))
    yield Point("a decode in a window", "the tokens that it attends to, the new one included", attended(decode, W))
    yield Point("embedding", "a gather: no FLOPs, and the rows that are looked up; tables of positions likewise")
    yield Point("LM head", "counted; a prefill's at its last position, a forward pass's at all", switch="--logits")
    yield Point(
        "grouped queries", "FLOPs by query heads, bytes by key-value heads: each key and value is read from DRAM once"
    )
    yield Point("decode", "one new token a sequence; it attends to so many", attended(decode, None))
    yield Point(
        "latent attention", "a decode runs over the latents, as serving engines do, or expands them", switch="--mla"
    )
    yield Point(
        "mixture of experts",
        "FLOPs of the experts that tokens choose; weights of the experts that any of B × S tokens is expected to "
        "choose, if the router chooses evenly",
        touched_experts(moe, B * S),
    )
    yield Point("head size, gates", "from the config's own keys and the family's code; never guessed from ratios")
    yield Point(
        "training", "forward, gradients of inputs and of weights, and what is computed again, each listed; the "
        "optimizer's step as bytes", switch="--recompute",
    )  # fmt: skip
    yield Point(
        "bytes", "compulsory DRAM traffic, each tensor once: a lower bound. Only attention fuses", switch="--attention"
    )
    yield Point(
        "widths", "by role: weights, activations, KV cache, gradients, optimizer; formats of blocks with their scales",
        switch="--weights --kv --activations",
    )  # fmt: skip
    yield Point(
        "several GPUs",
        "counts, times and memory are those of one GPU, the batch and the rates those of all; GPUs that share every "
        "layer deal out heads, the widths of MLPs and experts, and the vocabulary, as Megatron-LM does; the tokens of "
        "norms and sums where asked",
        switch="--tp --dp --ep --sequence-parallel",
    )
    yield Point(
        "stages of layers",
        "counts and times are those of a GPU of the stage that takes longest, memory that of the fullest stage; a "
        "batch follows through in parts, and a stage waits while the first and the last are elsewhere: (what one takes "
        "through all stages - through this one) / parts that take turns; in decodes, what one takes through all stages "
        "- microbatches x through this one; what it sends is not hidden",
        switch="--pp --vpp --micro-batch",
    )
    yield Point(
        "collectives",
        "an all-reduce behind attention and one behind the MLP, in training one ahead of each as well; of X bytes "
        "each of n GPUs sends, and receives, as nccl-tests counts; nothing of it is hidden behind other work. GPUs "
        "that share a layer are neighbours, then replicas, then stages: what leaves a node goes over a known network",
        Collective("all_reduce", symbol("n")).sent(symbol("X")),
    )
    yield Point(
        "memory",
        "weights, caches, activations and what training keeps, at their peak, beside the datasheet's memory; nothing "
        "is set aside for a context and libraries (some hundred MB), gaps between allocations, and ECC, where it is on "
        "(a sixteenth of GDDR; HBM has room for it); where less than a tenth is left, a note says so",
    )
    yield Point("peaks", "dense; sparse ones are named so and never a roof")
    yield Point(
        "MFU, HFU", "the model's matmul FLOPs / (expected time × peak), masked pairs included, as papers count; HFU: "
        "with what is computed again",
    )  # fmt: skip
    yield Point("MBU", "compulsory bytes / (expected time × bandwidth)")
    yield Point("GB and GiB", "10⁹ and 2³⁰ bytes; vendors' memory sizes are binary")


class Constant(NamedTuple):
    """Vector FLOPs an element, and what they are."""

    name: str
    flops: int
    why: str


def constants() -> Iterator[Constant]:
    """All constants of `counting/vector_flops.py`, with the operations that they count."""
    for name, value in vars(vector_flops).items():
        entries = value.items() if isinstance(value, dict) else [("", value)]
        for key, flops in entries:
            if isinstance(flops, FlopCount):
                label = name.lower().replace("_", " ")
                yield Constant(f"{label}: {key}" if key else label, flops, flops.operations)


def formats() -> list[tuple[Format, float]]:
    """The formats, and the bytes of an element with its share of the scale."""
    block = 128 * 128
    return [(form, form.bytes(product((block, block))) / block**2) for form in FORMATS.values()]
