"""Errors on whole attention modules of sparse models: `python -m benchmarks.sparse_modules FOLDER [--into PAGE]`.

FOLDER has aiconfigurator's tables of modules (DSA, MSA, CSA, HCA), from the normed input to the output projection. A
module is predicted by the operators of the model's layer, with the heads of one GPU and the formats of the row; its
time is the sum of their kernels. Rows whose time is that of the host are left out: prefills that were launched eagerly,
below EAGER times, and references that no server runs.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import pages
from roofmodel.counting.block_context import BlockContext
from roofmodel.counting.layers.compressed_attention import compressed_attention
from roofmodel.counting.layers.latent_attention import latent_attention
from roofmodel.counting.layers.transformer import attention
from roofmodel.counting.operator import Operator
from roofmodel.counting.quantized_modules import unconverted
from roofmodel.counting.tensors import FORMATS, Widths, number_format
from roofmodel.counting.workload import Step
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.models.architecture import ReferenceCode
from roofmodel.models.hub import load
from roofmodel.models.layers import Attention, CompressedAttention, LatentAttention
from roofmodel.timing.engine import Timing
from roofmodel.timing.roofline import place

Array = np.ndarray[Any, np.dtype[Any]]
DEVICES = {"h100_sxm": "h100-sxm", "b200_sxm": "b200"}
MODULES = ("dsa", "msa", "csa", "hca")
PHASES = ("context", "generation")
MODELS = {"nvidia/GLM-5.2-NVFP4": "zai-org/GLM-5.2"}
"""A model of the tables -> the one whose layer it has."""
FORMAT_NAMES = {"bfloat16": "bf16", "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
EAGER = {("dsa", "sglang"): 4e-3, ("dsa", "vllm"): 5e-3, ("msa", "sglang"): 1.5e-3}
"""Seconds of a prefill up to which the host may be the limit, for modules that were launched eagerly."""
GRAPHS = {"h100_sxm": 256, "b200_sxm": 512}
"""The largest batch for which SGLang captured a graph of a decode."""
KEYS = ("framework", "model", "kernel", "gemm_type", "kv_dtype", "indexer", "compress_ratio")
"""Columns that are equal for rows that are counted together; the others are arrays."""


class Rows(NamedTuple):
    """Measured rows of one module that are counted together: `texts` by column, and columns of numbers."""

    module: str
    phase: str
    device: str
    texts: Mapping[str, str]
    columns: Mapping[str, Array]
    measured: Array

    @property
    def engine(self) -> str:
        return self.texts["framework"].partition(" ")[0]

    def select(self, rows: Array) -> Rows:
        """Some of the rows."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return self._replace(columns=columns, measured=self.measured[rows])


def read(folder: Path, module: str, phase: str, device: str) -> Iterator[Rows]:
    """The rows of a table in groups, without those in which the host is the limit."""
    path = folder / f"aic_{device}_{module}_{phase}.csv.gz"
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            groups.setdefault(tuple(row.get(key, "") for key in KEYS), []).append(row)
    for key, rows in groups.items():
        texts = dict(zip(KEYS, key, strict=True))
        columns = {name: np.array([int(row[name]) for row in rows]) for name in ("heads", "batch", "seq", "kv_len")}
        group = Rows(module, phase, device, texts, columns, np.array([float(row["latency_us"]) for row in rows]) / 1e6)
        kept = np.flatnonzero(limited_by_gpu(group))
        if len(kept):
            yield group.select(kept)


def limited_by_gpu(rows: Rows) -> Array:
    """Mask of the rows whose time is not that of the host, and of kernels that servers run."""
    kept = rows.columns["heads"] <= layer(rows).heads
    if rows.phase == "context":
        kept &= rows.measured > EAGER.get((rows.module, rows.engine), 0)
    elif rows.engine == "sglang" and rows.module in ("dsa", "msa"):
        kept &= rows.columns["batch"] <= GRAPHS[rows.device]
    if rows.module == "msa" and rows.engine == "trtllm":
        kept &= rows.device == "b200_sxm" and rows.phase == "generation"
    return np.asarray(kept)


@cache
def _model(name: str) -> Any:
    return load(MODELS.get(name, name))


def layer(rows: Rows) -> Any:
    """The attention of the model's layer."""
    parts = [
        branch.part
        for layer in _model(rows.texts["model"]).body.layers for sublayer in layer for branch in sublayer.branches
    ]  # fmt: skip
    if rows.module == "dsa":
        return next(part for part in parts if isinstance(part, LatentAttention))
    if rows.module == "msa":
        return next(part for part in parts if isinstance(part, Attention) and part.selection)
    ratio = int(rows.texts["compress_ratio"])
    return next(part for part in parts if isinstance(part, CompressedAttention) and part.ratio == ratio)


def operators(rows: Rows) -> list[Operator]:
    """The operators of a module, whose sizes are columns: the layer with the heads of a GPU."""
    model, part, columns = _model(rows.texts["model"]), layer(rows), rows.columns
    heads = columns["heads"]
    body = model.body
    weights = number_format(FORMAT_NAMES[rows.texts["gemm_type"]])
    kept = unconverted(model.quantization, len(body.layers)).names if weights.bits < 16 else frozenset[str]()
    if rows.texts["gemm_type"] == "nvfp4" or (rows.engine == "trtllm" and rows.module == "dsa"):
        kept |= {"W_k_up", "W_v_up", "W_kv_up"}
    gemm = {"bfloat16": None, "fp8_block": "fp8", "nvfp4": "fp4"}[rows.texts["gemm_type"]]
    kv = FORMATS[FORMAT_NAMES[rows.texts["kv_dtype"]]]
    widths = Widths(FORMATS["bf16"], weights, kv, gemm and FORMATS[gemm], kept)
    phase: Any = "decode" if rows.phase == "generation" else "prefill"
    cached = columns["kv_len"] - columns["seq"]
    step = Step(phase, columns["batch"], columns["seq"], cached, "flash", 1, widths)
    block = BlockContext(step, body.hidden, causal=True, input="x[b t d]", output="y[b t d]")
    if rows.module == "dsa":
        if rows.texts["indexer"] == "0":
            part = part._replace(indexer=None)
        found = latent_attention(part._replace(heads=heads), block)
        given = ("attention.q_down", "attention.kv_down") if rows.engine == "sglang" else ()
        return [operator for operator in found if operator.name not in given]
    if rows.module == "msa":
        kv_heads = np.maximum(1, heads // (part.heads // part.kv_heads))
        selection = part.selection._replace(heads=kv_heads)
        return [*attention(part._replace(heads=heads, kv_heads=kv_heads, selection=selection), block)]
    groups = heads * part.out_groups // part.heads
    return [*compressed_attention(part._replace(heads=heads, out_groups=groups), block)]


def kernel_name(rows: Rows) -> str:
    """The name of the sparse attention's parameters: its engine and kernel; empty for a dense kernel."""
    kernel = rows.texts["kernel"]
    for start in ("sglang_dsa_indexer_", "sglang_dsa_skip_indexer_", "sglang_minimax_"):
        kernel = kernel.removeprefix(start)
    return "" if "dense_mha" in kernel else f"{rows.engine} {kernel}"


def seconds_of(rows: Rows, parts: Sequence[Operator], device: Device) -> list[tuple[str, Array]]:
    """The expected seconds of the operators of a module by name; elementwise for the rows."""
    dtype = parts[0].widths.compute
    placed = [place(each.cost, device, each.compute_dtype(dtype), each.collective) for each in parts]
    runs = Timing(device, Engine.load(rows.engine), kernel_name(rows)).runs(parts, placed, dtype, ReferenceCode())
    shape = rows.measured.shape
    seconds = (
        each.bound_seconds if run.expected is None else run.expected[0] for each, run in zip(placed, runs, strict=True)
    )
    return [
        (part.name, np.broadcast_to(np.asarray(each, float), shape)) for part, each in zip(parts, seconds, strict=True)
    ]


def expected(rows: Rows, device: Device | None = None) -> Array:
    """The expected seconds of a module."""
    times = seconds_of(rows, operators(rows), device or Device.load(DEVICES[rows.device]))
    return np.sum([seconds for _, seconds in times], axis=0)


HEADER = "\n".join((
    "| module | phase | device | engine | rows | mean error | median error | bias |",
    "|---|---|---|---|---:|---:|---:|---:|",
))  # fmt: skip


def table(folder: Path) -> str:
    """Markdown: a line for each module, phase, device and engine."""
    lines = [HEADER]
    for module in MODULES:
        for phase in PHASES:
            for device in DEVICES:
                ratios: dict[str, list[Array]] = {}
                for rows in read(folder, module, phase, device):
                    ratios.setdefault(rows.engine, []).append(expected(rows) / rows.measured)
                for engine, several in sorted(ratios.items()):
                    errors = np.concatenate(several) - 1
                    cells = f"{np.abs(errors).mean():.0%} | {np.median(np.abs(errors)):.0%} | {errors.mean():+.0%}"
                    name = DEVICES[device].partition("-")[0]
                    lines.append(f"| {module.upper()} | {phase} | {name} | {engine} | {len(errors)} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Write the table to stdout or into pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="tables of measured modules")
    pages.add_option(parser)
    arguments = parser.parse_args()
    text = table(arguments.folder)
    sys.stdout.write(text + "\n")
    pages.replace_tables(arguments.into, [text])


if __name__ == "__main__":
    main()
