"""Costs derived from the specification line of an operator."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.counting.operator import Builder, Cost, Gemm, Operator, fuse
from roofmodel.counting.tensors import AXES, FORMATS, Widths, parse

FP16 = Widths(FORMATS["fp16"], FORMATS["fp16"], FORMATS["fp16"])
SIZES = {"b": 2, "t": 3, "s": 5, "t:s": 11, "d": 8, "k": 2, "g": 4, "h": 6, "f": 7, "c": 30, "v": 13}


def build(text: str, vector: int = 0) -> Operator:
    return Builder(SIZES, FP16).operator("op", "group", text, flops=vector)


def test_the_cost_of_a_linear_operator_follows_from_its_line() -> None:
    op = build("x[b t d] W_up[d f] + B_up[f] -> u[b t f]")
    assert op.matmul_flops == 2 * (2 * 3) * 8 * 7  # 2 M N K
    assert op.vector_flops == 2 * 3 * 7  # one addition per output
    assert op.cost.bytes_read == 2 * (2 * 3 * 8 + 8 * 7 + 7)  # x, W, B in fp16
    assert op.cost.bytes_written == 2 * (2 * 3 * 7)
    assert op.cost.weight_bytes == 2 * (8 * 7 + 7)
    assert [str(p) for p in op.parameters] == ["W_up[d f]", "B_up[f]"]
    assert op.gemm == Gemm(batch=1, m=6, n=7, k=8)


def test_grouped_query_attention_reads_keys_once_and_multiplies_by_query_heads() -> None:
    op = build("q[b t k g h] cache.k[b s k h] -> a[b k g t:s]")
    assert op.matmul_flops == 2 * (2 * 2 * 4 * 6) * 11  # b k g h, and 11 query-key pairs instead of 3 x 5
    assert op.cost.cache_bytes == 2 * (2 * 5 * 2 * 6)  # key-value heads, not query heads
    assert op.gemm == Gemm(batch=4, m=3 * 4, n=5, k=6)  # the queries of a group share a tile


def test_a_fused_projection_counts_the_columns_of_its_matrix_once() -> None:
    op = build("x[b t d] W_qkv[d c] -> q[b t k g h] cache.k[b t k h] cache.v[b t k h]")
    assert op.matmul_flops == 2 * 6 * 8 * 30
    assert op.cost.bytes_written == 2 * 6 * (2 * 4 * 6 + 2 * 2 * 6)


def test_sums_and_norms_are_not_contractions() -> None:
    assert build("x[b t d] y[b t d] -> x[b t d]", vector=1).matmul_flops == 0
    op = build("x[b t d] G_n[d] -> n[b t d]", vector=4)
    assert (op.matmul_flops, op.vector_flops, op.gemm) == (0, 4 * 48, None)


def test_an_operator_in_place_reads_what_it_overwrites() -> None:
    op = build("x[b t d] y[b t d] -> x[b t d]", vector=1)
    assert (op.cost.bytes_read, op.cost.bytes_written) == (2 * 2 * 48, 2 * 48)


def test_a_gather_reads_rows_and_has_the_parameters_of_the_table() -> None:
    op = Builder(SIZES, FP16).gather("rows", "embedding", "E_token[v d] -> x[b t d]")
    assert op.cost.bytes_read == op.cost.bytes_written == 2 * (2 * 3 * 8)
    assert op.cost.flops == 0
    assert op.parameters[0].elements(SIZES) == 13 * 8


def test_every_axis_has_a_meaning() -> None:
    assert all(AXES.values())


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("x[b t d] W[d f]", "'->'"),
        ("x[b t d] W d f -> u[b t f]", "'W d f'"),
        ("-> u[b]", "not a tensor"),
        ("x[b -> u[b]", "not a tensor"),
    ],
)
def test_a_malformed_line_is_quoted(text: str, fragment: str) -> None:
    with pytest.raises(ValueError, match=r"not a tensor|needs '->'") as caught:
        parse(text)
    assert fragment in str(caught.value)
    assert text.strip() in str(caught.value)


# --- Fusion -----------------------------------------------------------------------------------------

CHAIN = (
    ("q[b t k g h] cache.k[b s k h] -> a[b k g t:s]", 0),
    ("a[b k g t:s] -> p[b k g t:s]", 7),
    ("p[b k g t:s] cache.v[b s k h] -> o[b t k g h]", 0),
)


def test_fused_attention_reads_q_k_v_and_writes_o() -> None:
    fused = fuse("flash", "attention", [build(text, vector) for text, vector in CHAIN], kind="attention")
    assert [t.name for t in fused.reads] == ["q", "cache.k", "cache.v"]
    assert [t.name for t in fused.writes] == ["o"]


def test_fused_experts_read_only_the_weights_of_those_that_a_token_uses() -> None:
    """4 rows of 2 tokens for 6 experts, of which 3 have rows: 3 matrices of 8 x 7 and 3 of 7 x 8."""
    build = Builder({"b:t:x": 4, "x": 6, "d": 8, "f": 7}, FP16)
    up = build.operator("up", "mlp", "n[b:t:x d] W_up[x d f] -> u[b:t:x f]", kind="grouped_gemm")
    down = build.operator("down", "mlp", "u[b:t:x f] W_down[x f d] -> y[b:t:x d]", kind="grouped_gemm")
    parts = [replace(up, touched={"W_up": 3 * 8 * 7}), replace(down, touched={"W_down": 3 * 7 * 8})]
    fused = fuse("moe", "mlp", parts, kind="moe")
    assert fused.cost.bytes_read == 2 * (4 * 8 + 3 * 8 * 7 + 3 * 7 * 8)  # n and the weights; u stays inside
    assert fused.cost.weight_bytes == 2 * 2 * 3 * 8 * 7
    assert fused.cost.bytes_written == 2 * 4 * 8


@st.composite
def chains(draw: st.DrawFn) -> list[Operator]:
    """Random sequences of operators over a few tensors of one shape, with reads, overwrites and unused results."""
    names = st.sampled_from(["x", "y", "z", "w"])
    texts = draw(st.lists(st.tuples(names, names, names), min_size=1, max_size=6))
    return [build(f"{a}[b t d] {b}[b t d] -> {c}[b t d]", 1) for a, b, c in texts if a != b] or [build(CHAIN[1][0])]


@given(chains())
def test_fusion_never_adds_bytes_and_keeps_flops(parts: list[Operator]) -> None:
    fused = fuse("f", "g", parts, kind="k")
    separate = sum((part.cost for part in parts), Cost())
    assert fused.cost.bytes_read <= separate.bytes_read
    assert fused.cost.bytes_written <= separate.bytes_written
    assert fused.cost.flops == separate.flops


@given(chains())
def test_a_grouped_convolution_of_one_group_is_a_convolution(parts: list[Operator]) -> None:
    assert fuse("f", "g", parts[:1], kind="k").cost == parts[0].cost


# --- Costs, and one formula for ints, arrays and symbols ---------------------------------------------

costs = st.builds(Cost, *[st.integers(0, 10**20)] * 6)


@given(costs, costs, st.integers(0, 1000))
def test_costs_add_and_scale(a: Cost, b: Cost, times: int) -> None:
    assert a + b == b + a
    assert times * (a + b) == times * a + times * b
    assert 2 * a == a + a
    assert a + Cost() == a


@settings(deadline=None)  # the first import of sympy
@given(st.lists(st.integers(1, 2000), min_size=4, max_size=4))
def test_ints_arrays_and_symbols_agree(values: list[int]) -> None:
    names = ("b", "t", "d", "f")
    text = "x[b t d] W_up[d f] + B_up[f] -> u[b t f]"

    def cost(sizes: dict[str, object]) -> Cost:
        return Builder(sizes, FP16).operator("op", "g", text).cost

    exact = cost(dict(zip(names, values, strict=True)))
    arrays = cost({name: np.array([value], dtype=float) for name, value in zip(names, values, strict=True)})
    variables = {name: sympy.Symbol(name, positive=True) for name in names}
    symbolic = cost(dict(variables))
    substitutions = {variables[name]: value for name, value in zip(names, values, strict=True)}
    for attribute in ("matmul_flops", "vector_flops", "bytes_read", "bytes_written", "weight_bytes"):
        expected = getattr(exact, attribute)
        assert isinstance(expected, int)
        assert math.isclose(float(getattr(arrays, attribute)[0]), expected, rel_tol=1e-12)
        assert getattr(symbolic, attribute).subs(substitutions) == expected
