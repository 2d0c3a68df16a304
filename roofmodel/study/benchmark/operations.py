"""A measured operation, by name, shape and type -> its operator, from the same lines as a model's.

Shapes are columns: NumPy arrays with a value a row, so that one operator stands for thousands of rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from roofmodel.algebra import Number
from roofmodel.counting import vector_flops
from roofmodel.counting.attention import attention
from roofmodel.counting.block_context import BlockContext, norm
from roofmodel.counting.collective import Collective
from roofmodel.counting.feed_forward import experts, with_touched_experts
from roofmodel.counting.number_formats import FORMATS, Widths
from roofmodel.counting.operator import Builder, Operator, fuse
from roofmodel.counting.workload import Step
from roofmodel.errors import WorkloadError, choices, shorten
from roofmodel.models.attention import Attention
from roofmodel.models.layers import MLP, MoE
from roofmodel.models.norms_and_activations import Norm
from roofmodel.study.benchmark.routing import busiest

Columns = Mapping[str, Any]
"""Columns of numbers, or numbers; and words that all the rows share."""


class Precision(NamedTuple):
    """What a table's dtype means: the type of the arithmetic, of activations, and of weights."""

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
    "sq": Precision("int8", "int8", "int8"),  # SmoothQuant: 8 bits in; its output, of 16, is counted as 8: a bound
    "int8_wo": Precision("bf16", "bf16", "int8"),  # weight-only: the products are of 16 bits
    "int4_wo": Precision("bf16", "bf16", "int4"),
    "w4a16_mxfp4": Precision("bf16", "bf16", "mxfp4"),
    "fp8": Precision("fp8", "bf16", "fp8"),  # what is quantised on the way in is read at 16 bits
    "fp8_block": Precision("fp8", "bf16", "fp8_block"),
}


def gemm(c: Columns, widths: Widths) -> Operator:
    """y[m, n] = x[m, k] W[k, n]."""
    build = Builder({"M": c["m"], "N": c["n"], "K": c["k"]}, widths)
    return build.operator("gemm", "gemm", "x[M K] W_b[K N] -> y[M N]")


def attention_core(c: Columns, widths: Widths) -> Operator:
    """Causal attention of `seq` queries over the last of `kv_len` keys, fused; window 0: none."""
    unlimited = 2**40
    window = c["window"] + (c["window"] == 0) * unlimited if "window" in c else unlimited
    step = Step("prefill", c["batch"], c["seq"], c["kv_len"] - c["seq"], "flash", 1, widths)
    part = Attention(c["heads"], c["kv_heads"], c["head_dim"], window=window)
    found = attention(part, BlockContext(step, 1, causal=True, input="x[b t d]", output="a[b t d]"))
    return next(operator for operator in found if operator.name == "attention.flash")


def mixture(c: Columns, widths: Widths) -> Operator:
    """The busiest GPU's part of a mixture, fused: inter / moe_tp columns of experts / moe_ep experts.

    `distribution` says how the router spreads the tokens (`routing.py`); experts have a gate unless the name of
    the kernel says `nongated`.
    """
    gpus, gated = c.get("moe_ep", 1), "nongated" not in c.get("kernel", "")
    here, pairs = c["experts"] / gpus, c["tokens"] * c["topk"]
    load = busiest(c.get("distribution", ""), c["tokens"], c["topk"], c["experts"], gpus)
    expert = MLP(c["inter"] / c.get("moe_tp", 1), "silu" if gated else "relu2", gated=gated, fused=True)
    step = Step("forward", 1, c["tokens"], 0, "flash", 1, widths)
    moe = MoE(here, load.rows / c["tokens"], expert)
    found = experts(moe, BlockContext(step, c["hidden"], causal=True, input="x[b t d]", output="m[b t d]"))
    inside = [
        with_touched_experts(op, load.touched, here) if op.kind == "grouped_gemm" else op
        for op in found
        if op.name.startswith("mlp.expert") or op.name == "mlp.combine"
    ]
    fused = fuse("moe", "moe", inside, kind="moe")
    return replace(fused, sizes={**fused.sizes, "b:t:X": pairs})


def collective(c: Columns, widths: Widths) -> Operator:
    """One GPU's part of a collective over `elements`: of the whole that is summed, gathered or dealt out."""
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


def _moving(
    name: str, line: str, flops: int, kind: str = "elementwise", **axes: str
) -> Callable[[Columns, Widths], Operator]:
    """An operator of `flops` vector FLOPs per element of what it reads first; an axis is a column, or a product."""

    def operator(c: Columns, widths: Widths) -> Operator:
        sizes = {axis: _product(c, columns) for axis, columns in axes.items()}
        return Builder(sizes, widths).operator(name, kind, line, kind=kind, flops=flops)

    return operator


def _product(c: Columns, columns: str) -> Number:
    size: Number = 1
    for column in columns.split():
        size = size * c[column]
    return size


def _norm(kind: Norm, rows: str, width: str) -> Callable[[Columns, Widths], Operator]:
    def operator(c: Columns, widths: Widths) -> Operator:
        return norm(Builder({"M": c[rows], "N": c[width]}, widths), "x", kind, "x[M N]", "y[M N]")

    return operator


def _rotary(c: Columns, widths: Widths) -> Operator:
    """Queries and keys of one GPU turned in place."""
    heads = (c["heads"] + c["kv_heads"]) / c["tp"]
    build = Builder({"M": c["tokens"], "N": heads * c["head_dim"]}, widths)
    return build.operator("rotary", "elementwise", "x[M N] -> y[M N]", kind="elementwise", flops=vector_flops.ROTARY)


class Operation(NamedTuple):
    """How a table's `op` becomes an operator, and the columns that give its shape."""

    columns: tuple[str, ...]
    operator: Callable[[Columns, Widths], Operator]
    optional: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # columns of text, which rows that are computed together share; they may be absent
    alike: tuple[str, ...] = ()  # of the columns, those that they share too


_LAYERNORM, _RMSNORM = Norm("layernorm"), Norm("rmsnorm", bias=False)
_ATTENTION = ("batch", "heads", "kv_heads", "head_dim", "seq", "kv_len")
_TWO, _THREE = "x[M N] -> y[M N]", "x[M N] z[M N] -> y[M N]"
_SILU, _GELU = vector_flops.ACTIVATION["silu"], vector_flops.ACTIVATION["gelu"]

OPERATIONS: dict[str, Operation] = {
    "gemm": Operation(("m", "n", "k"), gemm),
    "attn_context": Operation(_ATTENTION, attention_core, ("window",), alike=("head_dim",)),
    "attn_generation": Operation(_ATTENTION, attention_core, ("window",), alike=("head_dim",)),
    "moe": Operation(
        ("tokens", "hidden", "inter", "topk", "experts"), mixture, ("moe_tp", "moe_ep"), ("distribution", "kernel")
    ),
    "nccl": Operation(("num_gpus", "elements"), collective, words=("collective",)),
    "custom_allreduce": Operation(("num_gpus", "elements"), collective, words=("collective",)),
    "softmax": Operation(("m", "n"), _moving("softmax", _TWO, vector_flops.SOFTMAX, "softmax", M="m", N="n")),
    "layernorm": Operation(("m", "n"), _norm(_LAYERNORM, "m", "n")),
    "gelu": Operation(("m", "n"), _moving("activation", _TWO, _GELU, M="m", N="n")),
    "emb": Operation(("tokens", "hidden"), _moving("rows", _TWO, 0, "gather", M="tokens", N="hidden")),
    "input_layernorm": Operation(("tokens", "hidden"), _norm(_RMSNORM, "tokens", "hidden")),
    "post_attention_layernorm": Operation(("tokens", "hidden"), _norm(_RMSNORM, "tokens", "hidden")),
    "add": Operation(("tokens", "hidden"), _moving("add", _THREE, vector_flops.ADD, M="tokens", N="hidden")),
    "mlp_act": Operation(
        ("tokens", "inter_per_gpu"), _moving("activation", _THREE, _SILU + 1, M="tokens", N="inter_per_gpu")
    ),
    "attn_rope": Operation(("tokens", "heads", "kv_heads", "head_dim", "tp"), _rotary),
}


def widths(precision: Precision, kv: str | None = None) -> Widths:
    """The formats of an operation's tensors; `kv`, a table's dtype, where keys and values have their own."""
    stored = PRECISIONS[kv].weights if kv else precision.activations
    return Widths(FORMATS[precision.activations], FORMATS[precision.weights], FORMATS[stored])
