"""Number formats: bytes with scales, and the format of each kind of tensor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.counting.tensors import FORMATS, Tensor, Widths


@pytest.mark.parametrize(
    ("name", "elements", "expected"),
    [
        ("fp64", 3, 24),
        ("tf32", 3, 12),
        ("bf16", 3, 6),
        ("fp8", 3, 3),
        ("int4", 256, (256 * 4 + 2 * (16 + 4)) // 8),  # two groups, a 16-bit scale and a 4-bit zero point each
        ("nf4", 64, 64 // 2 + 4),  # one block, one fp32 scale
        ("mxfp4", 64, 64 // 2 + 2),  # two blocks, one byte of exponent each
        ("nvfp4", 64, 64 // 2 + 4),  # four blocks, one byte of scale each
        ("mxfp4", 33, 17 + 2),  # 16.5 bytes of elements and two exponents, whole bytes
    ],
)
def test_the_bytes_of_a_format_include_its_scales(name: str, elements: int, expected: int) -> None:
    assert FORMATS[name].bytes(elements) == expected


@given(st.sampled_from(sorted(FORMATS)), st.integers(1, 10**18))
def test_bytes_are_exact_ints_and_grow_with_elements(name: str, elements: int) -> None:
    size = FORMATS[name].bytes(elements)
    assert isinstance(size, int)
    assert FORMATS[name].bits * elements <= 8 * size < 2 * FORMATS[name].bits * (elements + 128)


def widths(weights: str, kv: str = "fp16") -> Widths:
    return Widths(FORMATS["fp16"], FORMATS[weights], FORMATS[kv])


@pytest.mark.parametrize("narrow", ["int4", "nf4", "mxfp4", "nvfp4", "int8", "fp8"])
def test_narrow_weight_formats_apply_only_to_matrices_of_layers(narrow: str) -> None:
    formats = widths(narrow)
    assert formats.format(Tensor("W_up", ("d", "f"))).name == narrow
    for name in ("E_token", "B_up", "G_mlp", "x"):
        assert formats.format(Tensor(name, ("d",))).name == "fp16"


def test_a_wide_weight_format_applies_to_all_weights() -> None:
    formats = widths("fp32")
    assert {formats.format(Tensor(name, ("d",))).name for name in ("W_up", "E_token", "B_up", "G_mlp")} == {"fp32"}
    assert formats.format(Tensor("x", ("d",))).name == "fp16"


def test_the_kv_cache_has_a_separate_format() -> None:
    assert widths("fp16", "fp8").format(Tensor("cache.k", ("b", "s"))).name == "fp8"
