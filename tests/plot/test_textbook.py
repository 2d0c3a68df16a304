"""Textbook kernels and stated lines on a roofline: intensities derived by hand, and options that do not apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.errors import RoofError


def points(**options: Any) -> dict[str, dict[str, Any]]:
    document = roofmodel.plot(hw="a100-sxm-80gb", **options).to_dict()
    return {point["name"]: point for point in document["points"]}


def test_intensities_are_those_of_the_lectures() -> None:
    kernels = "matmul,triad,stencil7,stencil7-uncached,spmv,fft,nbody"
    by_name = points(model=kernels, n=1024, dtype="fp64")
    intensities = {name.removesuffix(" n=1024"): point["intensity"] for name, point in by_name.items()}
    # FLOPs per byte of 8-byte elements; spmv: 27 nonzeros of 12 bytes, a row end of 4, x and y of 8 bytes
    assert intensities == pytest.approx(
        {
            "matmul": 2 * 1024 / (3 * 8),
            "triad": 2 / 24,
            "stencil7": 7 / 16,
            "stencil7-uncached": 7 / 64,
            "spmv": 2 * 27 * 1024 / (27 * 1024 * 12 + 1025 * 4 + 2 * 1024 * 8),
            "fft": 5 * 10 / (2 * 16),  # 5 n log2 n, complex
            "nbody": 20 * 1024 / (7 * 8),  # 4 numbers of a body in, 3 out
        }
    )
    assert {point["bound"] for name, point in by_name.items() if name.startswith(("matmul", "nbody"))} == {"compute"}


def test_points_are_on_their_ceiling_at_each_size() -> None:
    by_name = points(model="matmul", n="256,512")
    # 256 / 3 FLOP/B is left of the ridge point, 312e12 / 2039e9 = 153; 512 / 3 is right of it
    assert by_name["matmul n=256"]["flops_per_second"] == pytest.approx(256 / 3 * 2039e9)
    assert by_name["matmul n=512"]["flops_per_second"] == pytest.approx(312e12)


def test_sizes_of_a_stated_line_may_follow_n() -> None:
    line = "A[i k] B[k j] -> C[i j]"
    by_name = points(line=line, size="i=n,j=n,k=64", n="512,4096")
    # 2 n n 64 FLOPs; A and B of n x 64, C of n x n, 2 bytes each
    assert {name: point["intensity"] for name, point in by_name.items()} == pytest.approx(
        {f"kernel n={n}": 2 * n * n * 64 / (2 * (2 * 64 * n + n * n)) for n in (512, 4096)}
    )
    assert [*points(line=line, size={"i": 512, "j": 512, "k": 64})] == ["kernel"]


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"model": "matmul", "batch": 4}, "batch is ignored: a kernel has none"),
        ({"model": "gpt2", "n": 4}, "n is ignored: there is no kernel"),
        ({"line": "A[i] -> B[i]", "size": "i=8", "n": 4}, "n is ignored: no axis has it"),
    ],
)
def test_options_that_do_not_apply_are_noted(options: dict[str, Any], note: str) -> None:
    assert any(note in each for each in roofmodel.plot(hw="a100", **options).notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "matmull"}, "did you mean 'matmul'"),
        ({"model": "gpt2", "line": "A[i] -> B[i]"}, "two subjects"),
        ({"line": "A[i] -> B[i]"}, "the size of i is missing"),
        ({"model": "matmul", "n": 0}, "n is 0"),
    ],
)
def test_other_requests_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RoofError, match=message):
        roofmodel.plot(hw="a100", **options)


def svg(tmp_path: Path, **options: Any) -> str:
    return roofmodel.plot(model="matmul", hw="a100", **options).save(tmp_path / "roofline.svg").read_text("utf-8")


def test_a_picture_without_answers_has_no_bounds_and_values(tmp_path: Path) -> None:
    answers = ("ridge point", "memory-bound", "compute-bound", "TB/s", "312 TFLOP/s", "FLOP/B", ">compute<")
    shown, hidden = svg(tmp_path, regions=True), svg(tmp_path, regions=True, hide_answers=True)
    assert [answer for answer in answers if answer not in shown] == []
    assert [answer for answer in answers if answer in hidden] == []
    assert "tensor_fp16" in hidden
    with pytest.raises(RoofError, match=r"shows all values"):
        roofmodel.plot(model="matmul", hw="a100", hide_answers=True).save(tmp_path / "roofline.html")
