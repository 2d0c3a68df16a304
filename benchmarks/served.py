"""Models that TensorRT-LLM 0.9 served in static batches, on one GPU and on several that share every layer.

No fit has seen a row. Mixtral's are left out: its batches of 32 take less time than it takes to read the experts that
they would meet if the router chose evenly. The benchmark's sequences are alike.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import Off, by_name, means, off
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture
from roofmodel.models.hub import load
from roofmodel.study.estimate.estimate import estimate
from roofmodel.study.estimate.phase import PhaseEstimate

MODELS = {
    "GPTJ 6B": "gpt-j-6b",
    "LLaMA v2 7B": "llama-2-7b-hf",
    "LLaMA v2 13B": "llama-2-13b-hf",
    "Mistral 7B": "mistral-7b-v0.1",
}  # on one GPU
SHARED = {"Falcon 180B": "falcon-180b", "LLaMA v2 70B": "llama-2-70b-hf"}
DEVICES = {
    "A100-SXM-80GB": "a100",
    "H100-SXM-80GB": "h100",
    "H100-NVL-94GB": "h100-nvl",
    "H200": "h200",
    "L40S": "l40s",
}
ACTIVATIONS = {"fp8": "fp16"}
"""What goes from operator to operator, where products take narrower numbers: TensorRT-LLM quantises ahead of each."""


class Served(NamedTuple):
    """A static batch: tokens in and out; seconds to the first and of each further one."""

    model: str
    hw: str
    precision: str
    batch: int
    prompt: int
    new: int
    first: float
    further: float
    gpus: int


class Pair(NamedTuple):
    """How far the first token and the further ones of a batch are off."""

    row: Served
    first: Off
    further: Off


def alone(folder: Path) -> Iterator[Served]:
    """Those of the models and devices that are packaged, on one GPU."""
    return (row for row in _rows(folder, MODELS) if row.gpus == 1)


def together(folder: Path) -> Iterator[Served]:
    """Those on several."""
    return (row for row in _rows(folder, SHARED) if row.gpus > 1)


def _rows(folder: Path, models: dict[str, str]) -> Iterator[Served]:
    with gzip.open(folder / "trtllm_e2e.csv.gz", "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] in models]
    for row in rows:
        if row["gpu_norm"] in DEVICES and row["precision"] in ("fp16", "fp8"):
            batch, prompt, new = (int(float(row[name])) for name in ("batch", "input_len", "output_len"))
            first, further = (float(row[name]) / 1e3 for name in ("ttft_ms", "tpot_ms"))
            model, hw = models[row["model"]], DEVICES[row["gpu_norm"]]
            yield Served(model, hw, row["precision"], batch, prompt, new, first, further, int(row["tp"]))


def phases(row: Served) -> tuple[PhaseEstimate, PhaseEstimate]:
    """Its prefill, and its decode at the middle of what is generated, where that takes the mean time."""
    model, device = _loaded(row.model, row.hw)
    prefill, decode = (
        estimate(
            model, device, phase=phase, batch=row.batch, seq=row.prompt, context=context,
            dtype=row.precision, activations=ACTIVATIONS.get(row.precision), runtime="graph", tp=row.gpus,
        ).phases[0]
        for phase, context in (("prefill", None), ("decode", row.prompt + row.new // 2))
    )  # fmt: skip
    return prefill, decode


@cache
def _loaded(model: str, hw: str) -> tuple[Architecture, Device]:
    return load(model), Device.load(hw)


def pairs(rows: Iterable[Served]) -> list[Pair]:
    """How far they are off, one by one."""
    found = ((row, *phases(row)) for row in rows)
    return [Pair(row, off(prefill, row.first), off(decode, row.further)) for row, prefill, decode in found]


def on_one(found: list[Pair]) -> str:
    """Markdown: a line a device and precision."""
    named = [((pair.row.hw, pair.row.precision), pair) for pair in found]
    return _table("| device | precision |", "|---|---|", named)


def on_several(found: list[Pair]) -> str:
    """Markdown: a line a model, device, number of GPUs and precision."""
    named = [((pair.row.model, pair.row.hw, str(pair.row.gpus), pair.row.precision), pair) for pair in found]
    return _table("| model | device | GPUs | precision |", "|---|---|---:|---|", named)


def _table(title: str, rule: str, named: list[tuple[tuple[str, ...], Pair]]) -> str:
    lines = [
        f"{title} rows | TTFT error | bias | TPOT error | bias |",
        f"{rule}---:|---:|---:|---:|---:|",
    ]
    for name, some in sorted(by_name(named).items()):
        cells = " | ".join((str(len(some)), means([p.first for p in some]), means([p.further for p in some])))
        lines.append(f"| {' | '.join(name)} | {cells} |")
    return "\n".join(lines)
