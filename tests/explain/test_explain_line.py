"""Kernels that the user specifies as a line."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofmodel
from roofmodel.counting.stated_operator import operator, parsed_sizes, single_axes, stated_line, stated_sizes
from roofmodel.counting.workload import Workload
from roofmodel.errors import ModelError, RoofError, WorkloadError

FP64 = Workload((), dtype="fp64").widths


def counts(line: str, **sizes: int) -> tuple[int, int, int]:
    """Matmul FLOPs, vector FLOPs and bytes in fp64."""
    cost = operator(stated_line(line), sizes, FP64).cost
    return cost.matmul_flops, cost.vector_flops, cost.bytes


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("A[i k] B[k j] -> C[i j]", (2 * 3 * 5 * 7, 0, 8 * (3 * 7 + 7 * 5 + 3 * 5))),
        ("A[i, k] B[k, j] -> C[i, j]", (2 * 3 * 5 * 7, 0, 8 * (3 * 7 + 7 * 5 + 3 * 5))),
        ("A[i k] B[k j] + C[i j] -> C[i j]", (2 * 3 * 5 * 7, 3 * 5, 8 * (3 * 7 + 7 * 5 + 2 * 3 * 5))),
        ("x[k] y[k] -> z[i]", None),  # no input has the axis i
        ("A[i k] x[k] -> y[i]", (2 * 3 * 7, 0, 8 * (3 * 7 + 7 + 3))),
        ("x[i] -> y[i]", (0, 0, 8 * 2 * 3)),  # a copy
        ("a[] x[i] + y[i] -> y[i]", (0, 2 * 3, 8 * (1 + 3 * 3))),  # a is a number
        ("x[k] y[k] -> s[]", (2 * 7, 0, 8 * (2 * 7 + 1))),
        ("x[i k] -> y[i]", (0, 3 * 7, 8 * (3 * 7 + 3))),  # a sum: one addition per element
        ("x[i] y[j] -> A[i j]", (0, 3 * 5, 8 * (3 + 5 + 3 * 5))),  # an outer product
        ("x[i] y[i] + z[i] -> z[i]", (0, 2 * 3, 8 * 4 * 3)),  # a multiplication and an addition
        ("A[i k] B[k j] d[k] -> C[i j]", (0, 3 * 3 * 5 * 7, 8 * (3 * 7 + 7 * 5 + 7 + 3 * 5))),
    ],
)
def test_counts_of_a_line_equal_those_derived_by_hand(line: str, expected: tuple[int, int, int] | None) -> None:
    """i = 3, j = 5, k = 7; 8 bytes per element."""
    if expected is None:
        with pytest.raises(WorkloadError, match="no input has the axis i of z"):
            stated_line(line)
        return
    parsed = stated_line(line)
    sizes = {axis: size for axis, size in {"i": 3, "j": 5, "k": 7}.items() if f"{axis}" in parsed.text}
    assert counts(line, **sizes) == expected


@given(st.integers(1, 50), st.integers(1, 9), st.integers(1, 8), st.integers(1, 8))
def test_a_sliding_axis_is_a_convolution(i: int, r: int, c: int, o: int) -> None:
    """The output of np.convolve in mode "valid" has i elements for an input of i + r - 1."""
    inputs = i + r - 1
    assert len(np.convolve(np.ones(inputs), np.ones(r), "valid")) == (i if inputs >= r else r - inputs + 1)
    matmul, vector, size = counts("x[c i+r] W[o c r] -> y[o i]", i=i, r=r, c=c, o=o)
    assert (matmul, vector, size) == (2 * i * r * c * o, 0, 8 * (c * inputs + o * c * r + o * i))


@pytest.mark.parametrize("einsum", ["ik,kj->ij", "bij,bjk->bik", "ij,ij->", "i,j->ij", "ijk->i"])
def test_flops_of_an_einsum_equal_those_of_its_loop(einsum: str) -> None:
    """numpy.einsum_path counts the loop over all indices: one FLOP per factor, and one more for a sum."""
    left, right = einsum.split("->")
    sizes = dict(zip(sorted(set(left) - {","}), (3, 5, 7, 11), strict=False))
    factors = [f"{name}[{' '.join(axes)}]" for name, axes in zip("xyz", left.split(","), strict=False)]
    matmul, vector, _ = counts(f"{' '.join(factors)} -> out[{' '.join(right)}]", **sizes)
    arrays = [np.empty([sizes[axis] for axis in axes]) for axes in left.split(",")]
    report = np.einsum_path(einsum, *arrays, optimize=False)[1]
    numpy_flops = float(next(line for line in report.splitlines() if "Naive FLOP count" in line).split(":")[1])
    points = np.prod([*sizes.values()])
    summed = set(left) - {","} != set(right)
    assert matmul + vector == (len(factors) - 1 + summed) * points
    assert numpy_flops == pytest.approx(
        max(1, len(factors) - 1) * points + summed * points * (len(factors) > 1), rel=0.01
    )


def test_a_line_of_a_matmul_equals_the_packaged_kernel() -> None:
    from_line = roofmodel.explain(line="a[M K] b[K N] -> c[M N]", size="M=512,K=512,N=512", hw="a100").to_dict()
    packaged = roofmodel.explain("matmul", "a100", n=512).to_dict()
    for key in ("bound_seconds", "expected_seconds", "intensity", "bound"):
        assert from_line["phases"][0]["ops"][0][key] == packaged["phases"][0]["ops"][0][key]
    assert [symbol["origin"] for symbol in from_line["symbols"]] == ["size"] * 3


def test_axes_have_meanings_and_formulas() -> None:
    (op,) = roofmodel.explain(line="A[i k] B[k j] -> C[i j]", size={"i": 4, "j": 5, "k": 6}).to_dict()["phases"][0][
        "ops"
    ]
    assert {axis["axis"]: axis["meaning"] for axis in op["axes"]} == {
        "i": "axis of A and C", "k": "axis of A and B, summed over", "j": "axis of B and C",
    }  # fmt: skip
    assert op["counts"][0]["sympy"] == "2*i*j*k"


def test_spmv_is_memory_bound_on_all_devices() -> None:
    """CSR in fp64 with 27 nonzeros per row: 27 (8 + 4) + 4 + 8 + 8 bytes and 54 FLOPs per row, and one row offset."""
    n = 10**6
    (op,) = roofmodel.explain("spmv", "a100", n=n, dtype="fp64").to_dict()["phases"][0]["ops"]
    assert op["bound"] == "memory"
    assert op["intensity"] == pytest.approx(54 * n / (344 * n + 4))
    assert roofmodel.crossover("spmv", "a100", dtype="fp64").to_dict()["value"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"line": "A[i k] B[k j] -> C[i j]", "size": "i=3"}, 'size: the size of k, j is missing; add size="k=1024"'),
        ({"line": "x[i] -> y[i]", "size": "i=3,z=4"}, "size: the line has no axis 'z'; its axes are i"),
        ({"line": "x[i] -> y[i]", "size": "i=0"}, "size: i is 0; it must be a whole number from 1"),
        ({"line": "x[i] -> y[i]", "size": {"i": 2.5}}, "size: i is 2.5; it must be a whole number"),
        ({"line": "x[i] -> y[i]", "size": "i=-1"}, "size: i is -1; it must be a whole number from 1"),
        ({"line": "x[i] -> y[i]", "size": "i"}, "size: 'i' is not AXIS=SIZE; try size=\"i=4096\""),
        ({"line": "x[i]", "size": "i=3"}, "line: 'x[i]': an operator needs '->'"),
        ({"line": "x -> y", "size": "i=3"}, "is not a tensor such as x[b t d]; try 'A[i k] B[k j] -> C[i j]'"),
        ({"line": "x[] -> y[]", "size": ""}, "no tensor has an axis; try 'A[i k] B[k j] -> C[i j]'"),
        ({"line": "x[i 3] -> y[i]", "size": "i=3"}, "x[i 3] needs axes that are names, such as x[i k]"),
        ({"line": "x[i] -> y[i]", "size": "i=3", "dtype": "fp3"}, "dtype: unknown value 'fp3'"),
        ({"line": "x[i] -> y[i]" * 100, "size": "i=3"}, "line is longer than 500 characters"),
        ({"line": "x[i] -> y[i]", "size": "i=3", "model": "gpt2"}, "gpt2 and line are two subjects"),
    ],
)
def test_an_invalid_line_or_size_is_quoted_with_what_would_work(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        roofmodel.explain(**options)
    assert message in str(error.value)


def test_options_of_models_are_ignored_with_a_note() -> None:
    found = roofmodel.explain(line="x[i] -> y[i]", size="i=3", batch=4, n=5)
    assert [note.split(":")[0] for note in found.to_dict()["notes"]] == ["batch is ignored", "n is ignored"]
    assert "size is ignored" in roofmodel.explain("saxpy", size="i=3").to_dict()["notes"][0]
    with pytest.raises(ModelError, match="no model; give one such as gpt2-xl"):
        roofmodel.explain()


@given(st.text(alphabet="xyzAB[]ijk ->+:;,'", max_size=40))
def test_any_text_is_a_line_or_a_clear_error(text: str) -> None:
    with contextlib.suppress(RoofError):
        parsed = stated_line(text)
        operator(parsed, stated_sizes(parsed, dict.fromkeys(single_axes(parsed), 2)), FP64)


def test_sizes_are_texts_with_one_or_several_axes() -> None:
    assert parsed_sizes(["i=4096, k=512", "j=7"]) == {"i": 4096, "k": 512, "j": 7}
