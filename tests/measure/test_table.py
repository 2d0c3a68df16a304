"""Operands that L2 may keep between two launches of a benchmark."""

from __future__ import annotations

import numpy as np
import pytest

from roofmodel.devices.device import Device
from roofmodel.measure.table import Table, copies, groups

L40S = Device.load("l40s")
MIB = 2**20


def gemms(framework: str, *shapes: tuple[str, int, int], source: str = "aiconfigurator@0", l2: str = "") -> Table:
    """A table of GEMMs with M = 16; each has a format, N and K."""
    rows = [("gemm", dtype, "16", str(n), str(k), "50", source, framework, l2) for dtype, n, k in shapes]
    names = ("op", "dtype", "m", "n", "k", "latency_us", "source", "framework", "l2")
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def copies_of(table: Table) -> list[tuple[float, list[float]]]:
    """The copies of A and of B in each group of rows."""
    found = [copies(group, L40S) for group in groups(table)[0]]
    return [(float(np.max(of_a)), np.ravel(of_b).tolist()) for of_a, of_b in found]


def test_tensorrt_llm_uses_as_many_copies_of_weights_as_fill_l2_and_at_most_five() -> None:
    """Copies that fill 96 MiB of L2, 16-bit weights: 12 of 8 MiB, 3 of 32 MiB, 2.7 of 36 MiB, one of 128 MiB."""
    shapes = [("bfloat16", n * MIB // 2 // 1024, 1024) for n in (8, 32, 36, 128)]
    assert copies_of(gemms("trtllm 1.3.0rc20", *shapes)) == [(1, [5, 3, 3, 1])]
    assert copies_of(gemms("trtllm 1.3.0rc20", ("fp8", 32 * 1024, 1024))) == [(1, [3])]  # 32 MiB in 8 bits
    assert copies_of(gemms("trtllm 1.0.0", *shapes)) == [(1, [5])]


def test_vllm_has_one_copy_of_a_and_since_0_19_one_weight_in_block_formats() -> None:
    shapes = [("bfloat16", 1024, 1024), ("fp8_block", 1024, 1024), ("nvfp4", 1024, 1024)]
    assert copies_of(gemms("vllm 0.24.0", *shapes)) == [(1, [6]), (1, [1]), (1, [1])]
    assert copies_of(gemms("vllm 0.14.0", *shapes)) == [(1, [6])] * 3


@pytest.mark.parametrize(
    ("framework", "source", "l2", "expected"),
    [
        ("sglang 0.5.14", "aiconfigurator@0", "", (6, [6])),
        ("sglang 0.5.14", "mine", "", (1, [5])),  # the benchmark is unknown: mostly from DRAM
        ("torch 2.9", "mine", "warm", (1, [1])),
    ],
)
def test_copies_of_other_benchmarks(framework: str, source: str, l2: str, expected: tuple[float, list[float]]) -> None:
    assert copies_of(gemms(framework, ("bfloat16", 1024, 1024), source=source, l2=l2)) == [expected]
