"""Mixture of attention heads: a router selects the query and output projections of each token.

Each attention expert has a query matrix and an output matrix for all key-value heads; keys and values are computed from
every token and shared by all experts. Sources: Zhang et al., arXiv 2210.05144, section 3; JetMoeMoA of transformers.
"""

from __future__ import annotations

from collections.abc import Iterator

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import BlockContext
from roofmodel.counting.expert_load import expert_load, with_touched_experts
from roofmodel.counting.operator import Builder, Operator
from roofmodel.models.layers import MLP, AttentionExperts, MoE
from roofmodel.numbers.algebra import product


def projections(
    experts: AttentionExperts, block: BlockContext, build: Builder, keys: str, values: str
) -> Iterator[Operator]:
    """The router, the queries of the chosen experts, and the matrix that computes `keys` and `values`."""
    x, build = block.input, _with_pairs(experts, block, build)
    yield build.operator("attention.router", "attention", f"{x} W_attention_router[d x] -> head_r[b t x]")
    yield build.operator(
        "attention.choose", "attention", "head_r[b t x] -> head_weight[b:t:x]", kind="routing",
        flops=vector_flops.SOFTMAX + vector_flops.CHOOSE,
    )  # fmt: skip
    yield _grouped(experts, block, build, "q", f"{x} W_attention_expert_q[x d k h] -> q[b:t:x k h]")
    both = build._replace(sizes={**build.sizes, "c": 2 * product(build.sizes[axis] for axis in "kh")})
    yield both.operator("attention.k_v", "attention", f"{x} W_kv[d c] -> {keys} {values}")


def output(experts: AttentionExperts, block: BlockContext, build: Builder) -> Iterator[Operator]:
    """The output projections of the chosen experts, their weighted sum, and the bias that all of them share."""
    build, y = _with_pairs(experts, block, build), "head_y[b:t:x d]"
    yield _grouped(experts, block, build, "output", f"o[b:t:x k h] W_attention_expert_out[x k h d] -> {y}")
    line = f"{y} head_weight[b:t:x] => {block.output}"
    yield build.operator("attention.combine", "attention", line, kind="elementwise", flops=2)
    line = f"{block.output} + B_out[d] -> {block.output}"
    yield build.operator("attention.add_bias", "attention", line, kind="elementwise")


def _with_pairs(experts: AttentionExperts, block: BlockContext, build: Builder) -> Builder:
    """The builder with the pairs of a token and an expert; a GPU has those of all of its tokens."""
    pairs = block.step.batch * block.step.tokens * experts.active
    return build._replace(sizes={**build.sizes, "x": experts.count, "b:t:x": pairs, "b:t:X": pairs})


def _grouped(experts: AttentionExperts, block: BlockContext, build: Builder, name: str, line: str) -> Operator:
    """A grouped GEMM, which reads only the matrices that at least one token chose."""
    operator, step = build.operator(f"attention.{name}", "attention", line, kind="grouped_gemm"), block.step
    choices = MoE(experts.count, experts.active, MLP(0, "linear"))  # of the same router, over other matrices
    load = expert_load(choices, step.routing._replace(capacity=None), step.batch * step.tokens, 1)
    return with_touched_experts(operator, load.touched, experts.count)
