"""Count measured kernels of encoders' attention, latent attention, linear attention, state spaces, indexers and
hyper-connections.

Shapes are columns, as in operations.py. `op`, `phase`, `kernel` and `part` are texts, `benchmark` is a Benchmark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from roofmodel.counting.block_context import BlockContext
from roofmodel.counting.layers.compressed_attention import compressed_attention
from roofmodel.counting.layers.hyper_connections import HyperConnections
from roofmodel.counting.layers.latent_attention import latent_attention
from roofmodel.counting.layers.linear_attention import delta_rule
from roofmodel.counting.layers.token_convolution import causal_filter
from roofmodel.counting.layers.transformer import attention
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.tensors import FORMATS, Widths
from roofmodel.counting.workload import Step
from roofmodel.errors import WorkloadError, choices, shorten
from roofmodel.models.architecture import Stack, Streams
from roofmodel.models.layers import Attention, CompressedAttention, Indexer, LatentAttention, Norm
from roofmodel.models.recurrent_layers import DeltaRule
from roofmodel.options.values import Phase

Columns = Mapping[str, Any]
"""Columns of numbers, or single numbers; and texts that are the same for all rows."""

PHASES = ("context", "generation", "verify")
BATCHED_GEMMS = {"mla_gen_pre": "attention.absorb_k", "mla_gen_post": "attention.absorb_v"}
SEPARATE_FILTERS = "qkv3"
"""End of the name of a kernel that filters queries, keys and values one after another."""
CHUNK = 64  # tokens; of all implementations
KEPT = 2048
"""Tokens that DeepSeek-V3.2 and GLM-5 keep."""
_NORM = Norm("rmsnorm", bias=False)


def encoder_attention(c: Columns, widths: Widths) -> Operator:
    """Fused bidirectional attention of an encoder: each of `seq` tokens attends to all of them."""
    step = Step("forward", c["batch"], c["seq"], 0, "flash", 1, widths)
    part = Attention(c["heads"], c["heads"], c["head_dim"])
    return _named("attention.flash", attention(part, _block(step, causal=False)))


def latent_core(c: Columns, widths: Widths) -> Operator:
    """Latent attention without projections: a prefill on keys and values of each head, a decode on the latents."""
    phase: Phase = "decode" if c["op"] == "mla_generation" else "prefill"
    step = Step(phase, c["batch"], c["seq"], c["kv_len"] - c["seq"], "flash", 1, widths)
    return _named("attention.flash", _latent_operators(step, c["heads"]))


def latent_batched_gemm(c: Columns, widths: Widths) -> Operator:
    """The batched GEMM before (`mla_gen_pre`) or after (`mla_gen_post`) an absorbed latent attention."""
    if c["part"] not in BATCHED_GEMMS:
        raise WorkloadError(f"mla_bmm: unknown part {shorten(c['part'])}{choices(c['part'], BATCHED_GEMMS)}")
    step = Step("decode", c["tokens"], 1, 1, "flash", 1, widths)
    return _named(BATCHED_GEMMS[c["part"]], _latent_operators(step, c["heads"]))


def _latent_operators(step: Step, heads: Any) -> Iterator[Operator]:
    """The operators of latent attention with these heads and the sizes of DeepSeek-V2 and V3."""
    part = LatentAttention(
        heads, latent=512, nope_dim=128, rotary_dim=64, value_dim=128, norm=Norm("rmsnorm", bias=False)
    )
    return latent_attention(part, _block(step))


def delta_rule_kernel(c: Columns, widths: Widths) -> Operator:
    """A kernel of the gated delta rule (gdn) or of Kimi's delta attention (kda): its causal filter or its scan.

    `benchmark` states what passes the filter, and the format of the state.
    """
    benchmark, is_filter = c["benchmark"], "conv" in c["kernel"]
    if benchmark.filters_keys and is_filter:
        return _filter(c, widths, c["k_heads"] * c["k_dim"])
    is_kda = c["op"] == "kda"
    if is_filter and benchmark.waits_for_filters and c["kernel"].endswith(SEPARATE_FILTERS):
        raise WorkloadError(f"{c['op']}: {c['kernel']} was launched without a graph: the time is the host's; skipped")
    mixer = DeltaRule(
        c["k_heads"], c["v_heads"], c["k_dim"], c["v_dim"], c["d_conv"], CHUNK, "silu",
        projections=(("q",), ("k",), ("v",)) if is_kda else (("qkv",),), decay_per_channel=is_kda,
    )  # fmt: skip
    state_widths = widths if is_filter else widths._replace(kv=FORMATS[benchmark.state])
    step = _step(c, state_widths, stateless=benchmark.stateless_prefill, is_filter=is_filter)
    return _named("linear.filter" if is_filter else "linear.scan", delta_rule(mixer, _block(step)))


def mamba2_filter(c: Columns, widths: Widths) -> Operator:
    """The causal convolution of Mamba 2."""
    if not c["kernel"]:
        raise WorkloadError("mamba2: kernel is empty; name the kernel, such as causal_conv1d_fn")
    if "conv" not in c["kernel"]:
        raise WorkloadError("mamba2: there is no formula of the scan that measurements could validate; skipped")
    return _filter(c, widths, c["heads"] * c["head_dim"] + 2 * c["groups"] * c["d_state"])


def _filter(c: Columns, widths: Widths, channels: Any) -> Operator:
    """A causal convolution over these channels, with its activation."""
    step = _step(c, widths, is_filter=True)
    build = Builder({**step.token_axes, "c": channels, "r": c["d_conv"]}, widths)
    (operator,) = causal_filter(build, step, "filter", False, "silu", "u[b t c]")
    return operator


def _step(c: Columns, widths: Widths, stateless: bool = False, is_filter: bool = False) -> Step:
    """The pass of a row; `stateless`: without a state before and after a prefill.

    The verification of `seq` draft tokens (`verify`) reads the state once. A scan writes it after each token: with as
    many reads as writes, that is (1 + seq) / 2 updates. A filter with a window of r tokens moves 2 r + 2 elements of a
    channel in an update; a verification reads and writes seq tokens, reads r elements of the window, and writes r once
    or after each token (`keeps_windows`).
    """
    if not c["phase"]:
        raise WorkloadError(f"{c['op']}: phase is empty; known: {', '.join(PHASES)}")
    if c["phase"] not in PHASES:
        raise WorkloadError(f"{c['op']}: unknown phase {shorten(c['phase'])}; known: {', '.join(PHASES)}")
    if c["phase"] == "context":
        return Step("forward" if stateless else "prefill", c["batch"], c["seq"], 0, "flash", 1, widths)
    updates: Any = 1
    if c["phase"] == "verify":
        tokens, window = c["seq"], c["d_conv"]
        windows = tokens if c["benchmark"].keeps_windows else 1
        updates = (2 * tokens + window * (1 + windows)) / (2 + 2 * window) if is_filter else (1 + tokens) / 2
    batch = c["batch"] * updates
    return Step("decode", batch, 1, 1, "flash", 1, widths)


def _block(step: Step, causal: bool = True) -> BlockContext:
    return BlockContext(step, 1, causal=causal, input="x[b t d]", output="a[b t d]")


def _named(name: str, operators: Iterator[Operator]) -> Operator:
    return next(operator for operator in operators if operator.name == name)


def index_scores(c: Columns, widths: Widths) -> Operator:
    """Scores of an indexer with `index_heads` heads of 128: of tokens, or of entries of `compress_ratio` tokens.

    `benchmark` states whether the tokens of all sequences are in one sequence.
    """
    if c["benchmark"].joins_sequences and np.all(c["compress_ratio"] > 1):
        tokens = c["batch"] * c["seq"]
        c = {**c, "batch": 1, "seq": tokens, "kv_len": tokens + c["kv_len"] - c["seq"]}
    return _named("attention.index_scores", _indexer(c, widths))


def index_choice(c: Columns, widths: Widths) -> Operator:
    """The choice of 2048 tokens for each query, among scores that differ."""
    if c["scores"] == "flat":
        raise WorkloadError("topk: scores are flat: equal scores take longer than those of a model; skipped")
    return _named("attention.index_choose", _indexer(c, widths))


def _indexer(c: Columns, widths: Widths) -> Iterator[Operator]:
    """The operators of an attention with an indexer; only the indexer's sizes are those of the table."""
    cached = c["kv_len"] - c["seq"]
    step = Step("prefill" if (c["seq"] > 1).any() else "decode", c["batch"], c["seq"], cached, "flash", 1, widths)
    block = BlockContext(step, 1, causal=True, input="x[b t d]", output="a[b t d]")
    indexer = Indexer(c.get("index_heads", 1), 128)
    if (ratio := int(np.max(c["compress_ratio"]))) > 1:
        part = CompressedAttention(1, 512, 64, 1024, 128, 1, 1, _NORM, ratio, True, index_topk=512, indexer=indexer)
        return compressed_attention(part, block)
    return latent_attention(
        LatentAttention(
            1, latent=512, nope_dim=128, rotary_dim=64, value_dim=128, norm=_NORM, query_latent=1, index_topk=KEPT,
            indexer=indexer,
        ),
        block,
    )  # fmt: skip


PARTS = {"pre": "collapse", "post": "expand"}


def streams(c: Columns, widths: Widths) -> Operator:
    """The kernel of hyper-connections before (`pre`) or after (`post`) a block."""
    if c["part"] not in PARTS:
        raise WorkloadError(f"mhc: unknown part {shorten(c['part'])}{choices(c['part'], PARTS)}")
    step = Step("forward", 1, c["tokens"], 0, "flash", 1, widths)
    spec = Streams(count=c["hc_mult"], sinkhorn=int(np.max(c["sinkhorn"])))
    embedding: Any = None  # the streams of a block do not depend on it
    stack = Stack(c["hidden"], True, embedding, (), _NORM, None)
    connections = HyperConnections(stack, spec, step)
    (operator,) = (
        connections.collapse("attention") if c["part"] == "pre" else connections.expand("attention", "y[b t d]")
    )
    return operator
