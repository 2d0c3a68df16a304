"""Peak memory of inference compared with TensorRT-LLM (`peak_mem_gb` of the end-to-end table).

The counted memory is a close lower bound: the engine also needs about 0.6 GB for its runtime, and it allocates the
whole KV cache and the buffers of the prefill together; roofmodel counts tensors that are live at the same time.
"""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from roofmodel.counting import phases
from roofmodel.counting.passes import Memory
from roofmodel.counting.workload import Workload
from roofmodel.models import hub

TABLE = Path(os.environ.get("ROOF_MEASURED", Path(__file__).parents[3] / "shared" / "measured")) / "ops"
TABLE /= "trtllm_e2e.csv.gz"
MODELS = {"LLaMA v2 7B": "Llama-2-7b-hf", "LLaMA v2 13B": "Llama-2-13b-hf"}


class Run(NamedTuple):
    """A measured run on one GPU in fp16."""

    batch: int
    prompt: int
    measured: float  # bytes
    counted: Memory


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    if not TABLE.exists():
        pytest.skip(f"{TABLE.name} is not there; ROOF_MEASURED says where the measured tables are")
    found = []
    with gzip.open(TABLE, "rt") as file:
        for row in csv.DictReader(file):
            if row["model"] in MODELS and (row["tp"], row["precision"]) == ("1", "fp16") and row["peak_mem_gb"]:
                batch, prompt, new = (int(float(row[name])) for name in ("batch", "input_len", "output_len"))
                work = Workload(("generate",), batch, prompt, new_tokens=new)
                counted = phases.peak_memory(hub.load(MODELS[row["model"]]), work)
                found.append(Run(batch, prompt, float(row["peak_mem_gb"]) * 1e9, counted))
    assert len(found) > 50
    return found


def test_the_counted_memory_is_a_close_lower_bound(runs: list[Run]) -> None:
    assert all(0.92 < run.counted.total / run.measured < 1 for run in runs)


def test_the_difference_beyond_small_buffers_is_a_constant_runtime(runs: list[Run]) -> None:
    """Two models, caches of 256 to 4224 tokens: weights and cache agree with all digits of the table."""
    rest = [run.measured - run.counted.total for run in runs if (run.batch, run.prompt) == (1, 128)]
    assert len(rest) > 5
    assert max(rest) - min(rest) < 0.02e9
    assert 0.5e9 < min(rest) < 0.6e9
