"""The table of conventions agrees with the counting code."""

from __future__ import annotations

from roofmodel.counting import vector_flops
from roofmodel.counting.tensors import FORMATS
from roofmodel.explain import conventions
from roofmodel.report import formula


def test_formulas_come_from_the_counting_code() -> None:
    shown = {p.point: formula.text(formula.readable(p.formula)) for p in conventions.points() if p.formula is not None}
    # counting.md: S(S+1)/2; a chunk C c0 + C(C+1)/2; a window W S - W(W-1)/2 for S >= W; min(W, context + 1)
    assert shown["causal attention, eager"] == "S²"
    assert shown["causal attention, fused"] == "S(S + 1)/2"
    assert shown["a chunk of T tokens after C"] == "T(2C + T + 1)/2"
    assert shown["sliding window W"] == "min(S, W)(2S − min(S, W) + 1)/2"
    assert shown["a decode in a window"] == "min(C, W − 1) + 1"
    assert shown["mixture of experts"] == "E(1 − (1 − k/E)^(BS))"


def test_every_constant_is_listed_with_its_source() -> None:
    constants = {constant.name: constant for constant in conventions.constants()}
    assert constants["norm: layernorm"].flops == vector_flops.NORM["layernorm"]
    assert "1607.06450" in constants["norm: layernorm"].why
    assert {f"activation: {name}" for name in vector_flops.ACTIVATION} <= {*constants}
    plain = {"add", "activation: linear", "activation: tanh"}  # zero or one FLOP: no source needed
    assert [name for name, constant in constants.items() if not constant.why and name not in plain] == []


def test_every_format_is_listed() -> None:
    assert [form.name for form, _ in conventions.formats()] == list(FORMATS)
    sizes = {form.name: size for form, size in conventions.formats()}
    assert sizes["int4"] == 0.5 + 20 / 8 / 128  # a 16-bit scale and a 4-bit zero point per 128 elements
