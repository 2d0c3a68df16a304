"""Errors on models that TensorRT-LLM 0.9 served in static batches, on one GPU and with tensor parallelism.

No fit used a row. Mixtral is left out: the benchmark's prompts use few experts, so that batches of 32 take less time
than uniform routing allows; no row is faster than the bound of `--routing same` (tests/steps/test_routing.py).
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import RelativeErrors, by_name, mean_cells, relative_errors
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture
from roofmodel.models.hub import load
from roofmodel.steps.estimate import estimate
from roofmodel.steps.phase import PhaseEstimate

MODELS = {
    "GPTJ 6B": "gpt-j-6b",
    "LLaMA v2 7B": "llama-2-7b-hf",
    "LLaMA v2 13B": "llama-2-13b-hf",
    "Mistral 7B": "mistral-7b-v0.1",
}  # on one GPU
SHARDED = {"Falcon 180B": "falcon-180b", "LLaMA v2 70B": "llama-2-70b-hf"}
DEVICES = {
    "A100-SXM-80GB": "a100",
    "H100-SXM-80GB": "h100",
    "H100-NVL-94GB": "h100-nvl",
    "H200": "h200",
    "L40S": "l40s",
}
ACTIVATIONS = {"fp8": "fp16"}
"""The format of activations by the precision of GEMMs: TensorRT-LLM quantizes before each GEMM."""


class ServedBatch(NamedTuple):
    """A static batch: prompt and new tokens; measured TTFT and TPOT in seconds."""

    model: str
    hw: str
    precision: str
    batch: int
    prompt: int
    new: int
    ttft: float
    tpot: float
    gpus: int


class ServedErrors(NamedTuple):
    """The relative errors of a batch's TTFT and TPOT."""

    row: ServedBatch
    ttft: RelativeErrors
    tpot: RelativeErrors


def on_one_gpu(folder: Path) -> Iterator[ServedBatch]:
    """The batches of packaged models and devices on one GPU."""
    return (row for row in rows(folder, MODELS) if row.gpus == 1)


def on_several_gpus(folder: Path) -> Iterator[ServedBatch]:
    """The batches of packaged models and devices on 2 to 8 GPUs."""
    return (row for row in rows(folder, SHARDED) if row.gpus > 1)


def rows(folder: Path, models: dict[str, str]) -> Iterator[ServedBatch]:
    """The batches of these models, by the name in the table, on packaged devices."""
    with gzip.open(folder / "trtllm_e2e.csv.gz", "rt", newline="") as file:
        model_rows = [row for row in csv.DictReader(file) if row["model"] in models]
    for row in model_rows:
        if row["gpu_norm"] in DEVICES and row["precision"] in ("fp16", "fp8"):
            batch, prompt, new = (int(float(row[name])) for name in ("batch", "input_len", "output_len"))
            ttft, tpot = (float(row[name]) / 1e3 for name in ("ttft_ms", "tpot_ms"))
            model, hw = models[row["model"]], DEVICES[row["gpu_norm"]]
            yield ServedBatch(model, hw, row["precision"], batch, prompt, new, ttft, tpot, int(row["tp"]))


def phases(row: ServedBatch) -> tuple[PhaseEstimate, PhaseEstimate]:
    """The prefill, and the decode step in the middle of the generation, which takes the mean time of all steps."""
    model, device = loaded(row.model, row.hw)
    prefill, decode = (
        estimate(
            model, device, phase=phase, batch=row.batch, seq=row.prompt, context=context,
            dtype=row.precision, activations=ACTIVATIONS.get(row.precision),
            engine="trtllm@0.9", tp=row.gpus,
        ).phases[0]
        for phase, context in (("prefill", None), ("decode", row.prompt + row.new // 2))
    )  # fmt: skip
    return prefill, decode


@cache
def loaded(model: str, hw: str) -> tuple[Architecture, Device]:
    """A model and a device by name."""
    return load(model), Device.load(hw)


def errors(rows: Iterable[ServedBatch]) -> list[ServedErrors]:
    """The relative errors of each batch."""
    rows_with_phases = ((row, *phases(row)) for row in rows)
    return [
        ServedErrors(row, relative_errors(prefill, row.ttft), relative_errors(decode, row.tpot))
        for row, prefill, decode in rows_with_phases
    ]


def table_by_device(batch_errors: list[ServedErrors]) -> str:
    """Markdown: one line per device and precision."""
    pairs = [((each.row.hw, each.row.precision), each) for each in batch_errors]
    return _table("| device | precision |", "|---|---|", pairs)


def table_by_model(batch_errors: list[ServedErrors]) -> str:
    """Markdown: one line per model, device, number of GPUs and precision."""
    pairs = [((each.row.model, each.row.hw, str(each.row.gpus), each.row.precision), each) for each in batch_errors]
    return _table("| model | device | GPUs | precision |", "|---|---|---:|---|", pairs)


def _table(title: str, rule: str, pairs: list[tuple[tuple[str, ...], ServedErrors]]) -> str:
    lines = [
        f"{title} rows | TTFT error | bias | TPOT error | bias |",
        f"{rule}---:|---:|---:|---:|---:|",
    ]
    for name, some in sorted(by_name(pairs).items()):
        cells = (str(len(some)), mean_cells([each.ttft for each in some]), mean_cells([each.tpot for each in some]))
        lines.append(f"| {' | '.join(name)} | {' | '.join(cells)} |")
    return "\n".join(lines)
