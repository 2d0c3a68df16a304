"""Errors on published times of BERT and BART on one GPU, where the source states batch and length. No fit used a row.

No source states the host time per operator. In eager mode it is derived from batch 1 at the shortest length; rows with
batch 1 are then left out. BERT's head is left out. Where a source says fp32 on an Ampere GPU, its frameworks use TF32.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import RelativeErrors, by_name, median_cells, relative_errors
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture
from roofmodel.models.hub import catalog
from roofmodel.steps.estimate import estimate
from roofmodel.steps.phase import PhaseEstimate


class Reporter(NamedTuple):
    """A framework: the pattern of its rows in the table of published times, and how it ran the model."""

    framework: str
    source: str  # a pattern of the source and the notes
    phase: str
    engine: str
    attention: str


AUTOCAST = "torch.autocast"
"""PyTorch with the option `autocast`."""
REPORTERS = (
    Reporter("FasterTransformer", r"bert_guide.*; FT(-FP16)? Latency", "forward", "trtllm", "flash"),
    Reporter("AITemplate", r"03_bert.*\|AITemplate", "forward", "trtllm", "flash"),
    Reporter("PyTorch", r"03_bert.*\|PyTorch eager", "forward", "torch", "eager"),
    Reporter("TensorFlow", r"TensorFlow2?/LanguageModeling/BERT.*\|Inference", "forward", "torch", "eager"),
    Reporter("TensorFlow", r"TensorFlow2?/LanguageModeling/BERT.*\|Training", "train", "torch", "eager"),
    Reporter("PyTorch", r"lambdal", "train", "torch", "eager"),
    Reporter("PyTorch", r"PyTorch/LanguageModeling/BART.*Pre-training", "train", AUTOCAST, "eager"),
)
MODELS = {
    "bert-base": "google-bert/bert-base-uncased", "bert-large": "google-bert/bert-large-uncased",
    "bart-large": "facebook/bart-large",
}  # fmt: skip
REPORTED_ON = {
    "T4": "t4", "A10": "a10", "A100-SXM-80GB": "a100", "A100-SXM-40GB": "a100-sxm-40gb",
    "A100-PCIe-40GB": "a100-pcie-40gb", "A100-PCIe-80GB": "a100-pcie-80gb",
    "V100-?-16GB": "v100-sxm2-16gb", "V100-SXM2-?": "v100-sxm2-16gb",
    "V100-SXM2-16GB": "v100-sxm2-16gb", "V100-SXM2-32GB": "v100-sxm2-32gb",
}  # fmt: skip
TYPES = {"bf16": "bf16", "fp16": "fp16", "fp16-mixed": "fp16", "tf32": "tf32", "fp32": "fp32"}
COMPILED = "TensorFlow"  # its XLA-compiled graphs; no engine of ours models them


class Reported(NamedTuple):
    """One published time: how the model ran, and the seconds."""

    by: Reporter
    source: str
    hw: str
    model: str
    dtype: str
    batch: int
    seq: int
    seconds: float

    @property
    def device(self) -> str:
        """The device without form factor and memory size."""
        return self.hw.partition("-")[0]

    @property
    def label(self) -> str:
        """Framework and phase; the model only if it is not BERT."""
        other = "" if self.model.startswith("bert") else f" of {self.model} under {self.by.engine}"
        return f"{self.by.framework}, {self.by.phase}{other}"

    @property
    def eager_forward(self) -> bool:
        """Whether it is a forward pass in eager mode, which is launch-bound at small batches."""
        return self.by.engine == "torch" and self.by.phase == "forward"

    @property
    def autocast(self) -> bool:
        """Whether parameters are kept in fp32 and cast in each pass. TensorFlow's fp16 rows ran with automatic mixed
        precision (`--amp` in finetune_inference_benchmark.sh of the source).
        """
        return self.by.engine == AUTOCAST or (self.by.framework == COMPILED and self.dtype == "fp16")

    @property
    def launch_key(self) -> tuple[str, ...]:
        """Rows with the same key ran on one host in one format: they share the host time per operator."""
        return self.source, self.hw, self.model, self.dtype


def errors(folder: Path) -> list[tuple[Reported, RelativeErrors]]:
    """The relative errors of each row."""
    rows = list(_reported(folder))
    batch_1 = sorted((row for row in rows if row.eager_forward and row.batch == 1), key=lambda row: -row.seq)
    launch = {row.launch_key: row.seconds / _run(row).kernels for row in batch_1}  # the shortest length is kept
    return [
        (row, relative_errors(_run(row, launch.get(row.launch_key) if row.eager_forward else None), row.seconds))
        for row in rows
        if not (row.eager_forward and row.batch == 1)
    ]


def on_v100_and_a100(reported: list[tuple[Reported, RelativeErrors]], compiled: bool) -> list[RelativeErrors]:
    """The errors on V100 and A100: of XLA-compiled graphs, or of all other rows."""
    return [
        each for row, each in reported if row.device in ("a100", "v100") and (row.by.framework == COMPILED) == compiled
    ]


def table(reported: list[tuple[Reported, RelativeErrors]]) -> str:
    """Markdown: one line per device, framework and format; then all rows on V100 and A100."""
    lines = [
        "| device | run by | type | rows | median error of bound | median error of expected time | median bias |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    pairs = [((row.device, row.label, row.dtype), each) for row, each in reported]
    for name, some in sorted(by_name(pairs).items()):
        lines.append(f"| {' | '.join(name)} | {median_cells(some)} |")
    plain, compiled = on_v100_and_a100(reported, compiled=False), on_v100_and_a100(reported, compiled=True)
    lines.append(f"| a100, v100 | all | | {median_cells(plain + compiled)} |")
    lines.append(f"| a100, v100 | all except {COMPILED} | | {median_cells(plain)} |")
    return "\n".join(lines)


def _reported(folder: Path) -> Iterator[Reported]:
    with gzip.open(folder / "e2e.csv.gz", "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu_norm"] in REPORTED_ON and row["n_gpus"] in ("", "1.0")]
    for row in rows:
        by = next((r for r in REPORTERS if re.search(r.source, f"{row['source']} {row['notes']}|{row['notes']}")), None)
        batch, seq = row["batch"].partition(".")[0], row["seq"].partition(".")[0]
        is_supported = by and row["precision"] in TYPES and row["model"] in MODELS
        if not by or not is_supported or not (batch.isdigit() and seq.isdigit()) or row["metric"] == "latency_avg":
            continue
        hw, dtype = REPORTED_ON[row["gpu_norm"]], TYPES[row["precision"]]
        if dtype == "fp32" and hw.startswith("a1"):
            dtype = "tf32"
        seconds = float(row["value"]) / 1e3 if row["unit"] == "ms" else int(batch) / float(row["value"])
        yield Reported(by, row["source"], hw, row["model"], dtype, int(batch), int(seq), seconds)


def _run(row: Reported, launch: float | None = None) -> PhaseEstimate:
    """Estimate the pass of a row; `launch` is the host time per operator in seconds, None for that of PyTorch."""
    options = [f"autocast={row.dtype}"] * row.autocast + ([] if launch is None else [f"launch={1e6 * launch:.9f} us"])
    (phase,) = estimate(
        _model(row.model), Device.load(row.hw), phase=row.by.phase, batch=row.batch, seq=row.seq, dtype=row.dtype,
        engine="torch" if row.by.engine == AUTOCAST else row.by.engine, engine_option=options,
        attention=row.by.attention,
    ).phases  # fmt: skip
    return phase


@cache
def _model(name: str) -> Architecture:
    """A packaged model; BERT without its head and with positions for any length."""
    config = next(entry.config for entry in catalog() if entry.id == MODELS[name])
    if name.startswith("bert"):
        config = {**config, "architectures": ["BertModel"], "max_position_embeddings": 8192}
    return architecture(config, name, name)
