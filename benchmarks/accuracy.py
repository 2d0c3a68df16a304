"""The accuracy tables of the README, from a folder of measured operations: `python benchmarks/accuracy.py FOLDER`.

Bound and expectation of every row against its measurement. The parameters in `hardware/` were fitted on two thirds of
the cells of shapes of the aiconfigurator tables and of vidur's elementwise ones; `vidur_a100_gemm` is of a framework
that no fit has seen.
"""

from __future__ import annotations

import csv
import gzip
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import generation
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture
from roofmodel.models.hub import catalogue, load
from roofmodel.study.estimate import estimate
from roofmodel.study.phase import PhaseEstimate
from roofmodel.study.validate import validate

TABLES = {
    "aic_a100_sxm_gemm": ("a100", "GEMM, 16 bits and quantised"),
    "vidur_a100_gemm": ("a100", "GEMM of a framework not fitted to"),
    "aic_a100_sxm_attn_context": ("a100", "attention, prefill"),
    "aic_a100_sxm_attn_generation": ("a100", "attention, decode"),
    "aic_a100_sxm_moe": ("a100", "mixtures of experts, fused"),
    "aic_a100_sxm_nccl": ("a100", "NCCL's collectives, 2 to 8 GPUs"),
    "aic_a100_sxm_custom_allreduce": ("a100", "all-reduce of engines"),
    "vidur_a100_elementwise": ("a100", "norms, activations, sums, rows"),
    "llmcompass_a100_elementwise": ("a100", "softmax, norm, GELU of PyTorch, launch included"),
    "deepbench_v100_gemm": ("v100", "GEMM, 32 and 16 bits, launch included"),
    "aic_h100_sxm_gemm": ("h100", "GEMM, 16 and 8 bits"),
    "aic_h100_sxm_attn_context": ("h100", "attention, prefill"),
    "aic_h100_sxm_attn_generation": ("h100", "attention, decode"),
    "aic_h100_sxm_moe": ("h100", "mixtures of experts, fused"),
    "aic_h100_sxm_nccl": ("h100", "NCCL's collectives, 2 to 8 GPUs"),
    "aic_h100_sxm_custom_allreduce": ("h100", "all-reduce of engines"),
}


def table(folder: Path) -> str:
    """Markdown: a line a table of measurements."""
    lines = [
        "| device | measured | rows | bound off by | expectation off by | median | inside the interval |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, (hw, what) in TABLES.items():
        part = validate(str(folder / f"{name}.csv.gz"), Device.load(hw)).whole
        assert part
        assert part.expected
        assert part.inside_interval
        lines.append(
            f"| {hw} | {what} | {part.n} | {part.bound.mape:.0%} | {part.expected.mape:.1%} "
            f"| {part.expected.median_ape:.1%} | {part.inside_interval:.0%} |"
        )
    return "\n".join(lines)


SERVED = {
    "GPTJ 6B": "gpt-j-6b",
    "LLaMA v2 7B": "llama-2-7b-hf",
    "LLaMA v2 13B": "llama-2-13b-hf",
    "Mistral 7B": "mistral-7b-v0.1",
}
SERVERS = {
    "A100-SXM-80GB": "a100",
    "H100-SXM-80GB": "h100",
    "H100-NVL-94GB": "h100-nvl",
    "H200": "h200",
    "L40S": "l40s",
}


SHARED = {"Falcon 180B": "falcon-180b", "LLaMA v2 70B": "llama-2-70b-hf"}
ACTIVATIONS = {"fp8": "fp16"}
"""What goes from operator to operator, where products take narrower numbers: TensorRT-LLM quantises ahead of each."""


class Served(NamedTuple):
    """A static batch of TensorRT-LLM's: tokens in and out; seconds to the first and of each further one."""

    model: str
    hw: str
    precision: str
    batch: int
    prompt: int
    new: int
    first: float
    further: float
    gpus: int


def served_rows(folder: Path) -> Iterator[Served]:
    """Those of the models and devices that are packaged, on one GPU; no fit has seen them."""
    return (row for row in _rows(folder, SERVED) if row.gpus == 1)


def _rows(folder: Path, models: dict[str, str]) -> Iterator[Served]:
    with gzip.open(folder / "trtllm_e2e.csv.gz", "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] in models]
    for row in rows:
        if row["gpu_norm"] in SERVERS and row["precision"] in ("fp16", "fp8"):
            batch, prompt, new = (int(float(row[name])) for name in ("batch", "input_len", "output_len"))
            first, further = (float(row[name]) / 1e3 for name in ("ttft_ms", "tpot_ms"))
            model, hw = models[row["model"]], SERVERS[row["gpu_norm"]]
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


def served(folder: Path) -> str:
    """Markdown: whole models as TensorRT-LLM served them."""
    off: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in served_rows(folder):
        off.setdefault((row.hw, row.precision), []).append(_off(row))
    return _whole_models("| device | precision |", "|---|---|", off)


def shared(folder: Path) -> str:
    """Markdown: the same on several GPUs that share every layer.

    Mixtral's rows are left out: its batches of 32 take less time than it takes to read the experts that they would
    meet if the router chose evenly. The benchmark's sequences are alike.
    """
    off: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in _rows(folder, SHARED):
        if row.gpus > 1:
            off.setdefault((row.model, row.hw, str(row.gpus), row.precision), []).append(_off(row))
    return _whole_models("| model | device | GPUs | precision |", "|---|---|---:|---|", off)


def _off(row: Served) -> tuple[float, float]:
    """How far the expected times of prefill and decode are off."""
    pair = []
    for phase, measured in zip(phases(row), (row.first, row.further), strict=True):
        assert phase.expected
        pair.append(float(phase.expected.seconds) / measured - 1)
    return pair[0], pair[1]


def _whole_models(title: str, rule: str, off: dict[tuple[str, ...], list[tuple[float, float]]]) -> str:
    lines = [
        f"{title} rows | time to first token off by | bias | time per output token off by | bias |",
        f"{rule}---:|---:|---:|---:|---:|",
    ]
    for what, pairs in sorted(off.items()):
        cells = [
            f"{sum(map(abs, errors)) / len(errors):.0%} | {sum(errors) / len(errors):+.0%}"
            for errors in zip(*pairs, strict=True)
        ]
        lines.append(f"| {' | '.join(what)} | {len(pairs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


class Reported(NamedTuple):
    """Rows of the table of what others published: who, whose rows, and how they ran the model."""

    who: str
    source: str  # that these are in, as a pattern, with the notes behind it
    phase: str
    runtime: str
    attention: str


REPORTED = (
    Reported("FasterTransformer", r"bert_guide.*; FT(-FP16)? Latency", "forward", "graph", "flash"),
    Reported("AITemplate", r"03_bert.*\|AITemplate", "forward", "graph", "flash"),
    Reported("PyTorch", r"03_bert.*\|PyTorch eager", "forward", "eager", "eager"),
    Reported("TensorFlow", r"TensorFlow2?/LanguageModeling/BERT.*\|Inference", "forward", "eager", "eager"),
    Reported("TensorFlow", r"TensorFlow2?/LanguageModeling/BERT.*\|Training", "train", "eager", "eager"),
    Reported("PyTorch", r"lambdal", "train", "eager", "eager"),
)
REPORTERS = {
    "T4": "t4", "A10": "a10", "A100-SXM-80GB": "a100", "A100-SXM-40GB": "a100-sxm-40gb",
    "A100-PCIe-40GB": "a100-pcie-40gb", "A100-PCIe-80GB": "a100-pcie-80gb",
    "V100-?-16GB": "v100-sxm2-16gb", "V100-SXM2-?": "v100-sxm2-16gb",
    "V100-SXM2-16GB": "v100-sxm2-16gb", "V100-SXM2-32GB": "v100-sxm2-32gb",
}  # fmt: skip
TYPES = {"fp16": "fp16", "fp16-mixed": "fp16", "tf32": "tf32", "fp32": "fp32"}


def published(folder: Path) -> str:
    """Markdown: BERT as others ran it on one GPU, where batch and length are stated; no fit has seen it, but for
    the batches of one in eager mode, which say what a launch takes (`timing.EAGER_LAUNCH`).

    Heads are left out. Where a source says fp32 on an Ampere GPU, its frameworks use TF32.
    """
    with gzip.open(folder / "e2e.csv.gz", "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu_norm"] in REPORTERS and row["n_gpus"] in ("", "1.0")]
    off: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in rows:
        ran = next((r for r in REPORTED if re.search(r.source, f"{row['source']} {row['notes']}|{row['notes']}")), None)
        batch, seq = row["batch"].partition(".")[0], row["seq"].partition(".")[0]
        known = ran and row["precision"] in TYPES and row["model"] in ("bert-base", "bert-large")
        if not ran or not known or not (batch.isdigit() and seq.isdigit()) or row["metric"] == "latency_avg":
            continue
        hw, dtype = REPORTERS[row["gpu_norm"]], TYPES[row["precision"]]
        if dtype == "fp32" and hw.startswith("a1"):
            dtype = "tf32"
        measured = float(row["value"]) / 1e3 if row["unit"] == "ms" else int(batch) / float(row["value"])
        (found,) = estimate(
            _encoder(row["model"]), Device.load(hw), phase=ran.phase, batch=int(batch), seq=int(seq),
            dtype=dtype, runtime=ran.runtime, attention=ran.attention,
        ).phases  # fmt: skip
        assert found.expected
        pair = float(found.expected.seconds) / measured - 1, float(found.bound_seconds) / measured - 1
        off.setdefault((hw.partition("-")[0], f"{ran.who}, {ran.phase}", dtype), []).append(pair)
    lines = [
        "| device | BERT in | type | rows | bound off by, median | expectation off by, median | bias, median |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for (hw, who, dtype), pairs in sorted(off.items()):
        expected, bound = zip(*pairs, strict=True)
        errors = f"{median(map(abs, bound)):.0%} | {median(map(abs, expected)):.0%} | {median(expected):+.0%}"
        lines.append(f"| {hw} | {who} | {dtype} | {len(pairs)} | {errors} |")
    return "\n".join(lines)


@cache
def _encoder(name: str) -> Architecture:
    """BERT without a head, as long as asked for."""
    config = next(entry.config for entry in catalogue() if entry.id == f"google-bert/{name}-uncased")
    return architecture({**config, "architectures": ["BertModel"], "max_position_embeddings": 8192}, name, name)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    tables = table(folder), served(folder), shared(folder), generation.table(folder), published(folder)
    sys.stdout.write("\n\n".join(tables) + "\n")
