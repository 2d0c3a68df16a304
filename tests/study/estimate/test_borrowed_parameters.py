"""Expected times on devices that take the A100's parameters, compared with published times of whole models.

Two engines that launch little: FasterTransformer's BERT (without those rows that remove padding), and llama.cpp on one
GeForce with 16-bit weights. Nothing was fitted to any of these devices.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from roofmodel import estimate
from roofmodel.models.hub import catalog

MEASURED = Path(os.environ.get("ROOF_MEASURED", Path(__file__).parents[4] / "shared" / "measured"))
TABLE = MEASURED / "ops" / "e2e.csv.gz"
ENGINES = ("; FT Latency (ms)", "; FT-FP16 Latency")
LLAMA = "meta-llama/Meta-Llama-3-8B"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    if not TABLE.exists():
        pytest.skip(f"{TABLE.name} is not there; ROOF_MEASURED says where the measured tables are")
    with gzip.open(TABLE, "rt") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BERT base without a head, which is what FasterTransformer times."""
    path = tmp_path_factory.mktemp("encoder") / "config.json"
    config = next(each for each in catalog() if each.id == "google-bert/bert-base-uncased").config
    path.write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    return path


def bert(rows: list[dict[str, str]], gpu: str, encoder: Path) -> Iterator[float]:
    """Expected over measured seconds of forward passes that are long enough not to be launches only."""
    for row in rows:
        if (row["gpu_norm"], row["model"], row["precision"]) != (gpu, "bert-base", "fp16"):
            continue
        batch, seq = int(row["batch"]), int(row["seq"])
        if row["notes"].endswith(ENGINES) and batch * seq >= 1024:
            report = estimate(encoder, gpu.lower(), batch=batch, seq=seq, runtime="graph")
            yield report.totals["forward"]["expected_seconds"] * 1e3 / float(row["value"])


@pytest.mark.parametrize(
    ("gpu", "off"), [("T4", 0.3), ("A10", 0.2)]
)  # too fast, both: 70 W and 150 W keep their clocks down
def test_bert_in_fastertransformer(rows: list[dict[str, str]], encoder: Path, gpu: str, off: float) -> None:
    ratios = list(bert(rows, gpu, encoder))
    assert len(ratios) >= 5
    assert median(ratios) == pytest.approx(1, abs=off)
    assert all(0.65 < ratio < 1.1 for ratio in ratios), ratios


@pytest.mark.parametrize(("gpu", "phase"), [("RTX3090", "prefill"), ("RTX3090", "decode"), ("RTX4090", "prefill")])
def test_llama_3_8b_in_llama_cpp(rows: list[dict[str, str]], gpu: str, phase: str) -> None:
    wanted = (gpu, "1.0", "llama-3-8b", phase, "F16", "1024")
    (row,) = [
        r for r in rows if tuple(r[k] for k in ("gpu_norm", "n_gpus", "model", "phase", "precision", "seq")) == wanted
    ]
    report = estimate(LLAMA, gpu.lower(), seq=1024, runtime="graph")
    assert report.totals[phase]["tokens_per_second"] == pytest.approx(float(row["value"]), rel=0.15)
