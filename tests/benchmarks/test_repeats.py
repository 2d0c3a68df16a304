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
