"""Expected times on devices that use parameters of the A100, compared with published times of whole models.

Two engines with few launches: FasterTransformer's BERT (without the rows that remove padding) and llama.cpp on one
GeForce with 16-bit weights. No parameter was fitted to these devices.
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

MEASURED = Path(os.environ.get("ROOF_MEASURED", Path(__file__).parents[3] / "shared" / "measured"))
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
    """BERT base without a head, as in FasterTransformer's benchmark."""
    path = tmp_path_factory.mktemp("encoder") / "config.json"
    config = next(each for each in catalog() if each.id == "google-bert/bert-base-uncased").config
    path.write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    return path


def bert(rows: list[dict[str, str]], gpu: str, encoder: Path) -> Iterator[float]:
    """Ratios of expected to measured times of forward passes that are long enough not to be launch-bound."""
    for row in rows:
        if (row["gpu_norm"], row["model"], row["precision"]) != (gpu, "bert-base", "fp16"):
            continue
        batch, seq = int(row["batch"]), int(row["seq"])
        if row["notes"].endswith(ENGINES) and batch * seq >= 1024:
            report = estimate(encoder, gpu.lower(), batch=batch, seq=seq, engine="vllm")
            yield report.totals["forward"]["expected_seconds"] * 1e3 / float(row["value"])


@pytest.mark.parametrize(
    ("gpu", "off"), [("T4", 0.35), ("A10", 0.25)]
)  # expected too fast: power limits of 70 W and 150 W lower the clocks
def test_expected_times_of_bert_are_within_a_limit_of_fastertransformers(
    rows: list[dict[str, str]], encoder: Path, gpu: str, off: float
) -> None:
    ratios = list(bert(rows, gpu, encoder))
    assert len(ratios) >= 5
    assert median(ratios) == pytest.approx(1, abs=off)
    assert all(0.6 < ratio < 1.1 for ratio in ratios), ratios


@pytest.mark.parametrize(("gpu", "phase"), [("RTX3090", "prefill"), ("RTX3090", "decode"), ("RTX4090", "prefill")])
def test_expected_times_of_llama_3_8b_are_within_a_limit_of_those_of_llama_cpp(
    rows: list[dict[str, str]], gpu: str, phase: str
) -> None:
    wanted = (gpu, "1.0", "llama-3-8b", phase, "F16", "1024")
    (row,) = [
        r for r in rows if tuple(r[k] for k in ("gpu_norm", "n_gpus", "model", "phase", "precision", "seq")) == wanted
    ]
    report = estimate(LLAMA, gpu.lower(), seq=1024, engine="vllm")
    assert report.totals[phase]["tokens_per_second"] == pytest.approx(float(row["value"]), rel=0.15)
