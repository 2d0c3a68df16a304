"""Counting conventions: formulas from the counting code with symbols, vector FLOP constants, number formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from roofmodel.counting import textbook_kernels, vector_flops
from roofmodel.counting.operator import Collective
from roofmodel.counting.tensors import FORMATS, Format
from roofmodel.counting.vector_flops import FlopCount
from roofmodel.counting.workload import Workload, attended, pairs, touched_experts
from roofmodel.errors import Message, Option, Text, joined
from roofmodel.models.layers import MLP, MoE
from roofmodel.models.symbols import symbol
from roofmodel.numbers.algebra import product
from roofmodel.options.workload import MEMORY_UTILIZATION


class Convention(NamedTuple):
    """A convention on which FLOP counters differ: its text, its formula if any, and the option that changes it."""

    point: str
    convention: str
    formula: Any = None
    switch: Text = ""


def points() -> Iterator[Convention]:
    """All conventions."""
    S, C, T, W, B, E, k = map(symbol, ("S", "C", "T", "W", "B", "E", "k"))
    flash, eager = (Workload(("prefill",), batch=B, seq=S, attention=how).step("prefill") for how in ("flash", "eager"))
    decode = Workload(("decode",), batch=B, context=C).step("decode")
    chunk = flash._replace(tokens=T, context=C)
    matmul = textbook_kernels.operator("matmul", symbol("n"), Workload(()).widths)
    moe = MoE(E, k, MLP(symbol("F"), "silu"))

    yield Convention("multiply-add", "2 FLOPs. A GEMM of n × n matrices:", matmul.matmul_flops)
    yield Convention(
        "matmul and vector FLOPs",
        "counted separately (matmul_flops, vector_flops), since they run on different pipes with different peaks; the "
        "constants of vector operations are listed below with their sources",
    )
    yield Convention(
        "causal attention, eager", "all pairs of query and key", pairs(eager, None, True), Option("attention", "eager")
    )
    yield Convention(
        "causal attention, fused",
        "only the pairs inside the causal mask (FlashAttention, arXiv 2205.14135); both counts are reported",
        pairs(flash, None, True),
        Option("attention", "flash"),
    )
    yield Convention(
        "a chunk of T tokens after C", "fused attention, T new and C cached tokens", pairs(chunk, None, True)
    )
    yield Convention("sliding window W", "fused prefill of S tokens", pairs(flash, W, True))
    yield Convention("a decode in a window", "the tokens inside the window, including the new one", attended(decode, W))
    yield Convention(
        "embedding", "a lookup: no FLOPs, only the bytes of the selected rows; same for position embeddings"
    )
    yield Convention(
        "LM head", "counted: at the last position in prefill, at all positions in forward", switch=Option("logits")
    )
    yield Convention(
        "grouped-query attention",
        "FLOPs count query heads, bytes count key-value heads: each key and value is read from DRAM once "
        "(arXiv 2305.13245)",
    )
    yield Convention("decode", "one new token per sequence; each attends to", attended(decode, None))
    yield Convention(
        "multi-head latent attention",
        "decode computes on the latents, as serving engines do, or expands them (DeepSeek-V2, arXiv 2405.04434)",
        switch=Option("mla"),
    )
    yield Convention(
        "mixture of experts",
        "FLOPs of the active experts of each token; weight bytes of the expected number of distinct experts for B × S "
        "tokens under uniform routing",
        touched_experts(moe, B * S),
    )
    yield Convention("head size, gated MLPs", "from the config's keys and the model's code, never guessed from ratios")
    yield Convention(
        "training",
        "forward pass, gradients of inputs and of weights, and recomputation are listed separately; the optimizer step "
        "is counted in bytes",
        switch=Option("recompute"),
    )
    yield Convention(
        "bytes",
        "compulsory DRAM traffic: each tensor is read or written once per kernel, a lower bound. Only attention fuses",
        switch=Option("attention"),
    )
    yield Convention(
        "element sizes",
        "by role: weights, activations, KV cache, gradients, optimizer; block formats include their scales",
        switch=Message(Option("weights"), " ", Option("kv"), " ", Option("activations")),
    )
    yield Convention(
        "several GPUs",
        "counts, times and memory are per GPU; batch and rates are for all GPUs. Tensor parallelism shards heads, MLP "
        "widths, experts and the vocabulary (Megatron-LM, arXiv 1909.08053); sequence parallelism shards the tokens of "
        "norms and residual adds; ZeRO stage 1 shards the optimizer state over replicas (arXiv 1910.02054)",
        switch=joined(" ", [Option(name) for name in ("tp", "dp", "ep", "sequence_parallel", "zero")]),
    )
    yield Convention(
        "pipeline parallelism",
        "counts and times are for a GPU of the slowest stage, memory is for the stage with the largest memory. The "
        "batch is split into microbatches. Idle time of a stage per pass: (time of a microbatch through all stages - "
        "through this stage) / interleaved parts; per decode step: time of a microbatch through all stages - "
        "microbatches x time through this stage. Transfers between stages do not overlap with computation",
        switch=Message(Option("pp"), " ", Option("vpp"), " ", Option("micro_batch")),
    )
    yield Convention(
        "collectives",
        "one all-reduce after attention and one after the MLP; training adds one before each in the backward pass. For "
        "X bytes each of n GPUs sends and receives the bytes below (ring algorithm, bus bandwidth of nccl-tests). "
        "Communication does not overlap with computation, except for gradients under DistributedDataParallel. Rank "
        "order: TP, DP, PP; traffic between nodes uses the device's network",
        Collective("all_reduce", symbol("n")).sent(symbol("X")),
    )
    yield Convention(
        "memory",
        "peak of weights, caches, activations and training state, against a share of the datasheet's memory size "
        f"(default: {MEMORY_UTILIZATION}, as in vLLM). The rest is for CUDA context and libraries (some hundred MB), "
        "fragmentation, and ECC (1/16 of GDDR; none of HBM)",
        switch=Option("memory_utilization"),
    )
    yield Convention("peaks", "dense; sparse peaks are named as such and are never a ceiling")
    yield Convention(
        "roofline",
        "bound = max(FLOPs / peak, bytes / bandwidth) of each operator (Williams, Waterman and Patterson 2009, "
        "doi:10.1145/1498765.1498785)",
    )
    yield Convention(
        "MFU, HFU",
        "MFU: matmul FLOPs of the model / (expected time × peak), including masked pairs (PaLM, arXiv 2204.02311, "
        "appendix B); HFU: executed matmul FLOPs, with recomputation and without masked pairs that a kernel skips",
    )
    yield Convention(
        "MBU",
        "compulsory bytes / (expected time × bandwidth) (model bandwidth utilization, Databricks, "
        "LLM Inference Performance Engineering, 2023)",
    )
    yield Convention("GB and GiB", "10⁹ and 2³⁰ bytes; vendors' memory sizes are binary")


class Constant(NamedTuple):
    """Vector FLOPs per element of an operation, and the source of the number."""

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
    """The number formats, and the bytes per element including its share of the block scale."""
    block = 128 * 128
    return [(form, form.bytes(product((block, block))) / block**2) for form in FORMATS.values()]
