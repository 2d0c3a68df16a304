"""BERT, and BART, as others published them on one GPU, where batch and length are stated. No fit has seen a row.

What its host takes for an operator, no source states: in eager mode the batch of one tells, at the shortest length, and
batches of one are left out, as are BERT's heads. Where a source says fp32 on an Ampere GPU, its frameworks use TF32.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import Off, by_name, medians, off
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture
from roofmodel.models.hub import catalogue
from roofmodel.study.estimate.estimate import estimate
from roofmodel.study.estimate.phase import PhaseEstimate


class Reporter(NamedTuple):
    """Whose rows of the table of what others published: how to know them, and how they ran the model."""

    who: str
    source: str  # that these are in, as a pattern, with the notes behind it
    phase: str
    runtime: str
    attention: str


REPORTERS = (
    Reporter("FasterTransformer", r"bert_guide.*; FT(-FP16)? Latency", "forward", "graph", "flash"),
    Reporter("AITemplate", r"03_bert.*\|AITemplate", "forward", "graph", "flash"),
    Reporter("PyTorch", r"03_bert.*\|PyTorch eager", "forward", "eager", "eager"),
    Reporter("TensorFlow", r"TensorFlow2?/LanguageModeling/BERT.*\|Inference", "forward", "eager", "eager"),
    Reporter("TensorFlow", r"TensorFlow2?/LanguageModeling/BERT.*\|Training", "train", "eager", "eager"),
    Reporter("PyTorch", r"lambdal", "train", "eager", "eager"),
    Reporter("PyTorch", r"PyTorch/LanguageModeling/BART.*Pre-training", "train", "autocast", "eager"),
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
COMPILED = "TensorFlow"  # its graphs, by XLA, which no runtime here stands for


class Reported(NamedTuple):
    """A row of theirs: who ran what, and the seconds that it took."""

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
        """Without its form and memory."""
        return self.hw.partition("-")[0]

    @property
    def told(self) -> str:
        """Who ran it, and what; BERT is not named."""
        other = "" if self.model.startswith("bert") else f" of {self.model} under {self.by.runtime}"
        return f"{self.by.who}, {self.by.phase}{other}"

    @property
    def launched(self) -> bool:
        """Whether a host launches a forward pass, operator by operator, so that small batches wait for it."""
        return self.by.runtime == "eager" and self.by.phase == "forward"

    @property
    def machine(self) -> tuple[str, ...]:
        """The same for rows that one host launched, in one format."""
        return self.source, self.hw, self.model, self.dtype


def errors(folder: Path) -> list[tuple[Reported, Off]]:
    """How far bound and expectation are off, row by row."""
    rows = list(_reported(folder))
    ones = sorted((row for row in rows if row.launched and row.batch == 1), key=lambda row: -row.seq)
    launch = {row.machine: row.seconds / _run(row).kernels for row in ones}  # the last one is the shortest
    return [
        (row, off(_run(row, launch.get(row.machine) if row.launched else None), row.seconds))
        for row in rows
        if not (row.launched and row.batch == 1)
    ]


def judged(found: list[tuple[Reported, Off]], compiled: bool) -> list[Off]:
    """Those of V100 and A100, of TensorFlow's compiled graphs or of all others."""
    return [one for row, one in found if row.device in ("a100", "v100") and (row.by.who == COMPILED) == compiled]


def table(found: list[tuple[Reported, Off]]) -> str:
    """Markdown: a line a device, framework and format; below, all of V100 and A100."""
    lines = [
        "| device | run by | type | rows | median error of bound | median error of expected time | median bias |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    named = [((row.device, row.told, row.dtype), one) for row, one in found]
    for name, some in sorted(by_name(named).items()):
        lines.append(f"| {' | '.join(name)} | {medians(some)} |")
    plain, compiled = judged(found, False), judged(found, True)
    lines.append(f"| a100, v100 | all | | {medians(plain + compiled)} |")
    lines.append(f"| a100, v100 | all except {COMPILED} | | {medians(plain)} |")
    return "\n".join(lines)


def _reported(folder: Path) -> Iterator[Reported]:
    with gzip.open(folder / "e2e.csv.gz", "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu_norm"] in REPORTED_ON and row["n_gpus"] in ("", "1.0")]
    for row in rows:
        by = next((r for r in REPORTERS if re.search(r.source, f"{row['source']} {row['notes']}|{row['notes']}")), None)
        batch, seq = row["batch"].partition(".")[0], row["seq"].partition(".")[0]
        known = by and row["precision"] in TYPES and row["model"] in MODELS
        if not by or not known or not (batch.isdigit() and seq.isdigit()) or row["metric"] == "latency_avg":
            continue
        hw, dtype = REPORTED_ON[row["gpu_norm"]], TYPES[row["precision"]]
        if dtype == "fp32" and hw.startswith("a1"):
            dtype = "tf32"
        seconds = float(row["value"]) / 1e3 if row["unit"] == "ms" else int(batch) / float(row["value"])
        yield Reported(by, row["source"], hw, row["model"], dtype, int(batch), int(seq), seconds)


def _run(row: Reported, launch: float | None = None) -> PhaseEstimate:
    """The pass of that row, by a host that takes so many seconds an operator; None: the usual one."""
    (found,) = estimate(
        _model(row.model), Device.load(row.hw), phase=row.by.phase, batch=row.batch, seq=row.seq, dtype=row.dtype,
        runtime=row.by.runtime, attention=row.by.attention, launch=launch,
    ).phases  # fmt: skip
    return found


@cache
def _model(name: str) -> Architecture:
    """One as its config has it; BERT without a head, as long as asked for."""
    config = next(entry.config for entry in catalogue() if entry.id == MODELS[name])
    if name.startswith("bert"):
        config = {**config, "architectures": ["BertModel"], "max_position_embeddings": 8192}
    return architecture(config, name, name)
