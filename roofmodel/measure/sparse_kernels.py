"""Count measured kernels of indexers and of hyper-connections. Shapes are columns, as in operations.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from roofmodel.counting.block_context import BlockContext
from roofmodel.counting.layers.compressed_attention import compressed_attention
from roofmodel.counting.layers.hyper_connections import HyperConnections
from roofmodel.counting.layers.latent_attention import latent_attention
from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import Widths
from roofmodel.counting.workload import Step
from roofmodel.errors import WorkloadError, choices, shorten
from roofmodel.measure.layer_kernels import Columns
from roofmodel.models.architecture import Stack
from roofmodel.models.layers import CompressedAttention, Indexer, LatentAttention, Norm, Streams

KEPT = 2048
"""Tokens that DeepSeek-V3.2 and GLM-5 keep."""
_NORM = Norm("rmsnorm", bias=False)


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


def _named(name: str, operators: Iterator[Operator]) -> Operator:
    return next(operator for operator in operators if operator.name == name)
