"""Count measured operations: from name, shape and format to the operator, with the formulas that count models.

Shapes are columns: NumPy arrays with one value per row, so that one operator covers thousands of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import BlockContext, norm
from roofmodel.counting.expert_load import with_touched_experts
from roofmodel.counting.layers.transformer import attention, experts
from roofmodel.counting.operator import Builder, Collective, Operator, fuse
from roofmodel.counting.tensors import FORMATS, Widths
from roofmodel.counting.workload import Step
from roofmodel.engines.engine_file import Benchmark
from roofmodel.errors import WorkloadError, choices, shorten
from roofmodel.measure.layer_kernels import (
    Columns,
    delta_rule_kernel,
    encoder_attention,
    index_choice,
    index_scores,
    latent_batched_gemm,
    latent_core,
    mamba2_filter,
    streams,
)
from roofmodel.measure.routing import ExpertGroups, busiest_gpu
from roofmodel.models.layers import MLP, Attention, MoE, Norm
from roofmodel.numbers.algebra import minimum


class Precision(NamedTuple):
    """The meaning of a table's dtype: the formats of the arithmetic, the activations and the weights."""

    compute: str
    activations: str
    weights: str


PRECISIONS: dict[str, Precision] = {
    **{name: Precision("fp16", "fp16", "fp16") for name in ("fp16", "float16", "half", "float16(fp32 acc)")},
    **{name: Precision("bf16", "bf16", "bf16") for name in ("bf16", "bfloat16")},
    **{name: Precision("fp32", "fp32", "fp32") for name in ("fp32", "float32", "float")},
    "tf32": Precision("tf32", "tf32", "tf32"),
    "fp64": Precision("fp64", "fp64", "fp64"),
    "int8": Precision("int8", "int8", "int8"),
    "sq": Precision("int8", "int8", "int8"),  # SmoothQuant: its 16-bit output is counted as 8-bit (a lower bound)
    "int8_wo": Precision("bf16", "bf16", "int8"),  # weight-only: GEMMs in 16 bits
    "int4_wo": Precision("bf16", "bf16", "int4"),
    "w4a16_mxfp4": Precision("bf16", "bf16", "mxfp4"),
    "fp8": Precision("fp8", "bf16", "fp8"),  # the input is read in 16 bits and quantized
    "fp8_e4m3": Precision("fp8", "bf16", "fp8"),
    "fp8_block": Precision("fp8", "bf16", "fp8_block"),
    "nvfp4": Precision("fp4", "bf16", "nvfp4"),
    "mxfp4": Precision("fp4", "bf16", "mxfp4"),
    "w4a8_mxfp4_mxfp8": Precision("fp8", "bf16", "mxfp4"),  # multiplied at the rate of fp8
    "w4a8_nvfp4_fp8": Precision("fp8", "bf16", "nvfp4"),
}


def gemm(c: Columns, widths: Widths) -> Operator:
    """y[m, n] = x[m, k] W[k, n]."""
    build = Builder({"M": c["m"], "N": c["n"], "K": c["k"]}, widths)
    return build.operator("gemm", "gemm", "x[M K] W_b[K N] -> y[M N]")


def attention_core(c: Columns, widths: Widths) -> Operator:
    """Fused causal attention of `seq` queries, at the last of `kv_len` positions; window 0 means no sliding window."""
    unlimited = 2**40
    window = c["window"] + (c["window"] == 0) * unlimited if "window" in c else unlimited
    step = Step("prefill", c["batch"], c["seq"], c["kv_len"] - c["seq"], "flash", 1, widths)
    part = Attention(c["heads"], c["kv_heads"], c["head_dim"], window=window)
    operators = attention(part, BlockContext(step, 1, causal=True, input="x[b t d]", output="a[b t d]"))
    operator = next(operator for operator in operators if operator.name == "attention.flash")
    return replace(operator, sizes={**operator.sizes, "windowed": 1 * (c["window"] > 0)}) if "window" in c else operator


NON_GATED = ((128, 2688, 1856, 6), (512, 4096, 2688, 22), (512, 1024, 2688, 22), (512, 8192, 5120, 22))
"""experts, hidden, inter and topk of models whose experts have no gate: Nemotron 3 Nano, Super and Ultra (relu2).

Super computes its experts in a latent space of 1024.
"""
KERNELS_OF_ALL_PAIRS = ("moe_torch_flow_triton",)
"""Kernels that multiply all pairs on each GPU: TensorRT-LLM's Triton kernel. Inferred from the measured times."""

KERNELS_OF_OWN_PAIRS = ("cutlass",)
"""Parts of the names of kernels whose tensors between the GEMMs have rows for the GPU's own experts only; those of
others have a row for each token-expert pair, also for those whose expert is on another GPU."""

GROUPED = (256, 7168, 2048, 8)
"""experts, hidden, inter and topk of DeepSeek V3, whose router limits each token to 4 of 8 groups of experts."""
GROUPS = ExpertGroups(groups=8, chosen=4)


def without_gates(c: Columns) -> Any:
    """Mask of the rows whose sizes are those of a model with experts without gates."""
    return sum(_has_sizes(c, *sizes) for sizes in NON_GATED)


def with_groups(c: Columns) -> Any:
    """Mask of the rows whose sizes are those of the model with groups of experts."""
    return _has_sizes(c, *GROUPED)


def _has_sizes(c: Columns, experts: int, hidden: int, inter: int, topk: int) -> Any:
    return (c["experts"] == experts) & (c["hidden"] == hidden) & (c["inter"] == inter) & (c["topk"] == topk)


def moe(c: Columns, widths: Widths) -> Operator:
    """A fused MoE layer on the busiest GPU: experts / moe_ep experts with inter / moe_tp columns each.

    `distribution` is the distribution of tokens over experts (`routing.py`). Experts are gated unless the kernel's name
    contains `nongated` or the sizes are those of a model without gates; all rows are of one kind. `benchmark` states
    how the rows were measured.
    """
    gpus, benchmark = c.get("moe_ep", 1), c.get("benchmark", Benchmark())
    gated = "nongated" not in c.get("kernel", "") and (benchmark.gates_all_experts or not np.any(without_gates(c)))
    experts_per_gpu, pairs = c["experts"] / gpus, c["tokens"] * c["topk"]
    distribution = c.get("distribution", "")
    groups = GROUPS if benchmark.routes_by_groups and np.any(with_groups(c)) else None
    load = busiest_gpu(distribution, c["tokens"], c["topk"], c["experts"], gpus, groups)
    tokens, kernel = c["tokens"], c.get("kernel", "")
    if benchmark.multiplies_reached_tokens:
        pairs = pairs * (1 - (1 - minimum(load.rows / pairs, 1)) ** c["topk"])
    if benchmark.multiplies_reached_tokens or kernel.startswith(KERNELS_OF_ALL_PAIRS):
        load, tokens = load._replace(rows=pairs), pairs / minimum(c["topk"], experts_per_gpu)
    expert = MLP(c["inter"] / c.get("moe_tp", 1), "silu" if gated else "relu2", gated=gated, fused=True)
    step = Step("forward", 1, tokens, 0, "flash", 1, widths)
    layer = MoE(experts_per_gpu, load.rows / tokens, expert)
    operators = experts(layer, BlockContext(step, c["hidden"], causal=True, input="x[b t d]", output="m[b t d]"))
    inside = [
        with_touched_experts(op, load.touched, experts_per_gpu) if op.kind == "grouped_gemm" else op
        for op in operators
        if op.name.startswith("mlp.expert") or op.name == "mlp.combine"
    ]
    fused = fuse("moe", "moe", inside, kind="moe")
    even = int(distribution == "balanced" and groups is None)
    if any(name in kernel for name in KERNELS_OF_OWN_PAIRS):
        pairs = load.rows
    return replace(fused, sizes={**fused.sizes, "b:t:X": pairs, "even": even})


def collective(c: Columns, widths: Widths) -> Operator:
    """A collective, counted on one GPU; `elements` is the size of the whole tensor (all-gather: of the result)."""
    name = c.get("collective", "")
    if name not in COLLECTIVES:
        raise WorkloadError(f"unknown collective {shorten(name)}{choices(name, COLLECTIVES)}")
    build = Builder({"N": c["elements"], "K": c["elements"] / c["num_gpus"]}, widths)
    return build.exchange(name, COLLECTIVES[name], Collective(name, c["num_gpus"]))


COLLECTIVES = {
    "all_reduce": "x[N] -> y[N]",
    "all_gather": "x[K] -> y[N]",
    "reduce_scatter": "x[N] -> y[K]",
    "alltoall": "x[N] -> y[N]",
}


def _elementwise(
    name: str, line: str, flops: int, kind: str = "elementwise", **axes: str
) -> Callable[[Columns, Widths], Operator]:
    """An operator with `flops` vector FLOPs per element of its first input; `axes` maps each axis to its column."""

    def operator(c: Columns, widths: Widths) -> Operator:
        sizes = {axis: c[column] for axis, column in axes.items()}
        return Builder(sizes, widths).operator(name, kind, line, kind=kind, flops=flops)

    return operator


def _norm(kind: Norm, rows: str, width: str) -> Callable[[Columns, Widths], Operator]:
    def operator(c: Columns, widths: Widths) -> Operator:
        return norm(Builder({"M": c[rows], "N": c[width]}, widths), "x", kind, "x[M N]", "y[M N]")

    return operator


def _rotary(c: Columns, widths: Widths) -> Operator:
    """Rotary embedding of one GPU's queries and keys, in place."""
    heads = (c["heads"] + c["kv_heads"]) / c["tp"]
    build = Builder({"M": c["tokens"], "N": heads * c["head_dim"]}, widths)
    return build.operator("rotary", "elementwise", "x[M N] -> y[M N]", kind="elementwise", flops=vector_flops.ROTARY)


class TableOperation(NamedTuple):
    """The shape columns of a table's `op`, and the function that counts it."""

    columns: tuple[str, ...]
    operator: Callable[[Columns, Widths], Operator]
    optional: tuple[str, ...] = ()
    text_columns: tuple[str, ...] = ()  # optional texts; rows that are counted together have the same
    required_texts: tuple[str, ...] = ()  # those of `columns` that are texts; such rows have the same, too
    warm: bool = False  # the tables repeat each call on the same operands: what fits in L2 is read from there
    by_engine: bool = False  # frameworks have different kernels with the same name
    label: str = ""  # in the names of parameter sets, where another operation has kernels with the same names
    dtype: str = ""  # of a table without that column


_LAYERNORM, _RMSNORM = Norm("layernorm"), Norm("rmsnorm", bias=False)
_ATTENTION = ("batch", "heads", "kv_heads", "head_dim", "seq", "kv_len")
_LATENT = ("batch", "heads", "seq", "kv_len")
_DELTA = ("batch", "seq", "d_conv", "k_heads", "k_dim", "v_heads", "v_dim", "phase")
_MAMBA2 = ("batch", "seq", "heads", "head_dim", "groups", "d_state", "d_conv", "phase", "kernel")
_INDEXER = ("batch", "seq", "kv_len", "compress_ratio")
_COLLECTIVE = ("num_gpus", "elements", "collective")
_UNARY, _BINARY = "x[M N] -> y[M N]", "x[M N] z[M N] -> y[M N]"
_SILU, _GELU = vector_flops.ACTIVATION["silu"], vector_flops.ACTIVATION["gelu"]
_DELTA_RULE = TableOperation(
    _DELTA, delta_rule_kernel, text_columns=("kernel",), required_texts=("phase",), warm=True, by_engine=True,
    dtype="bfloat16",
)  # fmt: skip
_CAUSAL_FILTER = TableOperation(
    _MAMBA2, mamba2_filter, required_texts=("phase", "kernel"), warm=True, by_engine=True, label="mamba2",
    dtype="bfloat16",
)  # fmt: skip

OPERATIONS: dict[str, TableOperation] = {
    "gemm": TableOperation(("m", "n", "k"), gemm),
    "attn_context": TableOperation(_ATTENTION, attention_core, ("window",)),
    "attn_generation": TableOperation(_ATTENTION, attention_core, ("window",)),
    "attn_encoder": TableOperation(("batch", "heads", "head_dim", "seq"), encoder_attention, warm=True),
    "mla_context": TableOperation(_LATENT, latent_core, warm=True),
    "mla_generation": TableOperation(_LATENT, latent_core, warm=True),
    "mla_bmm": TableOperation(("tokens", "heads", "part"), latent_batched_gemm, required_texts=("part",), warm=True),
    "gdn": _DELTA_RULE,
    "kda": _DELTA_RULE,
    "mamba2": _CAUSAL_FILTER,
    "mqa_logits": TableOperation((*_INDEXER, "index_heads"), index_scores, by_engine=True, dtype="fp8"),
    "topk": TableOperation(_INDEXER, index_choice, text_columns=("scores",), by_engine=True, dtype="fp8"),
    "mhc": TableOperation(
        ("hidden", "tokens", "hc_mult", "sites", "sinkhorn", "part"),
        streams,
        required_texts=("part",),
        dtype="bfloat16",
    ),
    "moe": TableOperation(
        ("tokens", "hidden", "inter", "topk", "experts"), moe, ("moe_tp", "moe_ep"), ("distribution", "kernel")
    ),
    "nccl": TableOperation(_COLLECTIVE, collective, required_texts=("collective",)),
    "custom_allreduce": TableOperation(_COLLECTIVE, collective, required_texts=("collective",)),
    "softmax": TableOperation(
        ("m", "n"), _elementwise("softmax", _UNARY, vector_flops.SOFTMAX, "softmax", M="m", N="n")
    ),
    "layernorm": TableOperation(("m", "n"), _norm(_LAYERNORM, "m", "n")),
    "gelu": TableOperation(("m", "n"), _elementwise("activation", _UNARY, _GELU, M="m", N="n")),
    "emb": TableOperation(("tokens", "hidden"), _elementwise("rows", _UNARY, 0, "gather", M="tokens", N="hidden")),
    "input_layernorm": TableOperation(("tokens", "hidden"), _norm(_RMSNORM, "tokens", "hidden")),
    "post_attention_layernorm": TableOperation(("tokens", "hidden"), _norm(_RMSNORM, "tokens", "hidden")),
    "add": TableOperation(("tokens", "hidden"), _elementwise("add", _BINARY, vector_flops.ADD, M="tokens", N="hidden")),
    "mlp_act": TableOperation(
        ("tokens", "inter_per_gpu"), _elementwise("activation", _BINARY, _SILU + 1, M="tokens", N="inter_per_gpu")
    ),
    "attn_rope": TableOperation(("tokens", "heads", "kv_heads", "head_dim", "tp"), _rotary),
}


AT_MOST = (("topk", "experts"), ("moe_ep", "experts"), ("kv_heads", "heads"), ("seq", "kv_len"))
"""Pairs of sizes of which the first is at most the second."""


def widths(precision: Precision, kv: str | None = None) -> Widths:
    """The formats of an operation's tensors; `kv` is the dtype of the KV cache if it differs."""
    stored = PRECISIONS[kv].weights if kv else precision.activations
    return Widths(FORMATS[precision.activations], FORMATS[precision.weights], FORMATS[stored])
