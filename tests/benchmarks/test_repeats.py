"""Tests of benchmarks/repeats.py on small tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from benchmarks import repeats

KERNEL = {"gpu": "H100", "source": "test", "kernel": ""}


@pytest.fixture(autouse=True)
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "DEVICES", {"h100": "h100_sxm"})


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_constant_ratio_between_frameworks_is_no_error(tmp_path: Path) -> None:
    """vLLM takes 1.5 times as long for each shape, except for one that takes 3 times as long.

    Scaled by the median, the other framework predicts 9 of 10 shapes exactly, and one with errors of 100 and 50 %.
    """
    shapes = [{"m": 2**i, "n": 4096, "k": 4096} for i in range(10)]
    rows = [
        {**KERNEL, "op": "gemm", "dtype": "bfloat16", **shape, "latency_us": 1000.0 * factor, "framework": framework}
        for i, shape in enumerate(shapes)
        for framework, factor in (("sglang 0.5", 1.0), ("vllm 0.24", 3.0 if i == 0 else 1.5))
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "aic_h100_sxm_gemm.csv.gz", index=False)
    gemms = repeats.gemms(tmp_path)
    (row,) = repeats.by_pair(gemms)
    assert cells(row)[:3] == ["h100", "20", "7.5%"]


def test_errors_by_framework_are_those_of_unseen_rows(tmp_path: Path) -> None:
    """SGLang's times are half of the expected ones, so all its errors are 100 %; vLLM's are equal to them."""
    rows = [
        {
            **KERNEL,
            "op": "gemm",
            "dtype": "bfloat16",
            "m": 2**i,
            "n": 4096,
            "k": 4096,
            "latency_us": 1e3,
            "framework": by,
        }
        for i in range(10)
        for by in ("sglang 0.5", "vllm 0.24")
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "aic_h100_sxm_gemm.csv.gz", index=False)
    gemms = repeats.gemms(tmp_path)
    found = gemms["h100"]
    found["measured"] = found.expected / found.framework.map({"sglang 0.5": 2.0, "vllm 0.24": 1.0})
    sglang, vllm = map(cells, repeats.by_framework(gemms))
    unseen = int(found.unseen.sum()) // 2
    assert 0 < unseen < 10
    assert sglang == ["h100", "sglang 0.5", str(unseen), "100.0%", "100.0%", "100%", "0% (10 shapes)"]
    assert vllm[:6] == ["h100", "vllm 0.24", str(unseen), "0.0%", "0.0%", "0%"]


def test_slow_rows_are_compared_with_the_same_shapes_on_another_chip() -> None:
    """12 of 20 shapes take 1.5 times as long as expected on a B200; a B300, without one of them, 1.1 times as long."""
    shapes = [{"framework": "vllm 0.24", "m": 2**i, "n": 64, "k": 64, "expected": 1.0} for i in range(20)]
    slow = pd.DataFrame([shape | {"measured": 1.5 if i < 12 else 1.0} for i, shape in enumerate(shapes)])
    other = pd.DataFrame([shape | {"measured": 1.1} for shape in shapes[1:]])
    found = [*map(cells, repeats.by_chip({"b200": slow, "b300": other, "h100": slow}))]
    assert found == [["b200", "vllm 0.24", "12", "b300", "11", "1.10"]]


@pytest.mark.parametrize(("steps", "concentration", "above"), [(1.0, "1.00", "0.20 µs"), (1.25, "0.00", "")])
def test_times_at_multiples_of_the_interval_are_concentrated(
    tmp_path: Path, steps: float, concentration: str, above: str
) -> None:
    shape = {"batch": 1, "heads": 32, "kv_heads": 8, "head_dim": 128, "seq": 1, "kv_len": 1024, "window": 0}
    rows = [
        {
            **KERNEL, "op": "attn_generation", "dtype": "bfloat16", "kv_dtype": "bfloat16", **shape,
            "latency_us": 2.048 * steps * (4 + i % 8) + 0.2, "framework": "sglang 0.5",
        }
        for i in range(400)
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "aic_h100_sxm_attn_generation.csv.gz", index=False)
    (row,) = repeats.graphs(tmp_path)
    assert cells(row)[3:] == [concentration, above]
