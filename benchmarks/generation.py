"""Errors on text generation that others measured on several A100s, within a node and across nodes.

No fit used a row. FasterTransformer's guide states times of whole requests: a prompt and its new tokens, with tensor
parallelism and, on 24 GPUs, three pipeline stages. The prefill produces the first token (ParallelGpt.cc), so a request
with n new tokens has n - 1 decode steps. With pipeline stages it splits a batch into micro-batches, by a rule that
differs between its versions: requests with more than 2048 prompt tokens, whose times show a split, are left out.
gpt-fast's README states tokens per second at batch 1, for 200 tokens after a prompt of a few tokens.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import RelativeErrors, by_name, median_cells, relative_errors
from benchmarks.megatron import gpt
from roofmodel.devices.device import Device
from roofmodel.models.hub import load
from roofmodel.steps.estimate import estimate

GPTS = {"gpt-89b": (48, 12288, 96), "megatron-530b": (105, 20480, 128)}  # layers, width, heads, as in the guide
STAGES = {24: 3}  # pipeline stages by number of GPUs
MAX_UNSPLIT_TOKENS = 2048  # prompt tokens of the largest batch whose time shows no split into micro-batches
LLAMAS = {
    "llama-2-7b": "llama-2-7b-hf",
    "llama-2-70b": "llama-2-70b-hf",
    "llama-3.1-70b": "llama-3.1-70b",
    "llama-3.1-405b": "llama-3.1-405b",
}
WEIGHTS = {"bf16": "bf16", "int8-weight": "int8", "int4-weight": "int4"}


class Generated(NamedTuple):
    """One measured run, its number of GPUs and pipeline stages, and its relative errors."""

    framework: str
    model: str
    weights: str
    gpus: int
    stages: int
    errors: RelativeErrors

    @property
    def name(self) -> tuple[str, ...]:
        """The first cells of its line of the table."""
        if self.model in LLAMAS:
            return "Llama 2 and 3.1, 7b to 405b", self.framework, self.weights, "1 to 8"
        gpus = f"{self.gpus // self.stages} × {self.stages}" if self.stages > 1 else str(self.gpus)
        return self.model, self.framework, self.weights, gpus


def table(rows: list[Generated]) -> str:
    """Markdown: one line per model and number of GPUs (FasterTransformer) or weight format (gpt-fast), and all rows."""
    lines = [
        "| model | run by | weights | GPUs | rows | median error of bound | median error of expected time "
        "| median bias |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, some in by_name((row.name, row.errors) for row in rows).items():
        lines.append(f"| {' | '.join(name)} | {median_cells(some)} |")
    lines.append(f"| all | | | | {median_cells([row.errors for row in rows])} |")
    return "\n".join(lines)


def generated(folder: Path) -> Iterator[Generated]:
    """The requests of FasterTransformer and the decode steps of gpt-fast, each row once."""
    with gzip.open(folder / "e2e.csv.gz", "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu_norm"].startswith("A100")]
    keys: set[tuple[str, ...]] = set()
    for row in rows:
        key = row["n_gpus"], row["model"], row["batch"], row["seq"], row["precision"], row["value"]
        if key in keys:  # gpt-fast's README repeats some rows in its next table
            continue
        keys.add(key)
        if row["model"] in GPTS and "Megatron Latency" not in row["notes"]:
            yield from _request(row)
        elif row["model"] in LLAMAS and row["metric"] == "throughput" and "gpt-fast" in row["source"]:
            yield _decode_step(row)


def _request(row: dict[str, str]) -> Iterator[Generated]:
    gpus, batch = int(float(row["n_gpus"])), int(row["batch"])
    prompt, new = map(int, row["seq"].split("+"))
    stages = STAGES.get(gpus, 1)
    if stages > 1 and batch * prompt > MAX_UNSPLIT_TOKENS:
        return
    (phase,) = estimate(
        gpt(row["model"], *GPTS[row["model"]]), Device.load("a100"), phase="generate", batch=batch, seq=prompt,
        new_tokens=new - 1, tp=gpus // stages, pp=stages, engine="trtllm",
    ).phases  # fmt: skip
    errors = relative_errors(phase, float(row["value"]) / 1e3)
    yield Generated("FasterTransformer", row["model"], row["precision"], gpus, stages, errors)


def _decode_step(row: dict[str, str]) -> Generated:
    gpus = int(float(row["n_gpus"]))
    (phase,) = estimate(
        load(LLAMAS[row["model"]]), Device.load("a100"), phase="decode", batch=1, context=100, dtype="bf16",
        weights=WEIGHTS[row["precision"]], tp=gpus, engine="vllm",
    ).phases  # fmt: skip
    errors = relative_errors(phase, 1 / float(row["value"]))
    return Generated("gpt-fast", row["model"], WEIGHTS[row["precision"]], gpus, 1, errors)
