"""The accuracy tables of docs/accuracy.md, from a folder of measurements:
`python benchmarks/accuracy.py FOLDER`.

Operations: bound and expectation of every row against its measurement. The parameters in `hardware/` were fitted on two
thirds of the cells of shapes of the aiconfigurator tables and of vidur's elementwise ones; `vidur_a100_gemm` is of a
framework that was not used for fitting. No whole model (`served`, `generation`, `published`) was used for fitting.
`--into docs/accuracy.md` updates the page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import generation, pages, published, served
from benchmarks.errors import RelativeErrors, summary_cells
from roofmodel.devices.device import Device
from roofmodel.measure.table import Array, groups, held_out
from roofmodel.measure.validate import Validation, errors, validate

TABLES = {
    "aic_a100_sxm_gemm": ("a100", "GEMM, 16-bit and quantized"),
    "vidur_a100_gemm": ("a100", "GEMM, a framework that no fit used"),
    "aic_a100_sxm_attn_context": ("a100", "attention, prefill"),
    "aic_a100_sxm_attn_generation": ("a100", "attention, decode"),
    "aic_a100_sxm_moe": ("a100", "MoE, fused"),
    "aic_a100_sxm_nccl": ("a100", "NCCL collectives, 2 to 8 GPUs"),
    "aic_a100_sxm_custom_allreduce": ("a100", "all-reduce of inference engines"),
    "vidur_a100_elementwise": ("a100", "norms, activations, residual adds, lookups"),
    "llmcompass_a100_elementwise": ("a100", "softmax, norm, GELU of PyTorch, with launch"),
    "deepbench_v100_gemm": ("v100", "GEMM, 32 and 16 bits, with launch"),
    "aic_h100_sxm_gemm": ("h100", "GEMM, 16-bit and 8-bit"),
    "aic_h100_sxm_attn_context": ("h100", "attention, prefill"),
    "aic_h100_sxm_attn_generation": ("h100", "attention, decode"),
    "aic_h100_sxm_moe": ("h100", "MoE, fused"),
    "aic_h100_sxm_nccl": ("h100", "NCCL collectives, 2 to 8 GPUs"),
    "aic_h100_sxm_custom_allreduce": ("h100", "all-reduce of inference engines"),
    "aic_b200_sxm_gemm": ("b200", "GEMM, 16-bit and quantized"),
    "aic_b200_sxm_attn_context": ("b200", "attention, prefill"),
    "aic_b200_sxm_attn_generation": ("b200", "attention, decode"),
    "aic_b200_sxm_moe": ("b200", "MoE, fused"),
    "aic_gb200_gemm": ("gb200", "GEMM, 16-bit and quantized"),
    "aic_gb200_attn_context": ("gb200", "attention, prefill"),
    "aic_gb200_attn_generation": ("gb200", "attention, decode"),
    "aic_gb200_moe": ("gb200", "MoE, fused"),
    "aic_b300_sxm_gemm": ("b300", "GEMM, 16-bit and quantized"),
    "aic_b300_sxm_attn_context": ("b300", "attention, prefill"),
    "aic_b300_sxm_attn_generation": ("b300", "attention, decode"),
    "aic_b300_sxm_moe": ("b300", "MoE, fused"),
    "aic_l40s_gemm": ("l40s", "GEMM, 16-bit and quantized"),
    "aic_l40s_attn_context": ("l40s", "attention, prefill"),
    "aic_l40s_attn_generation": ("l40s", "attention, decode"),
    "aic_l40s_moe": ("l40s", "MoE, fused"),
    "aic_rtx_pro_6000_server_gemm": ("rtx-pro-6000-server", "GEMM, 16-bit and quantized"),
    "aic_rtx_pro_6000_server_attn_context": ("rtx-pro-6000-server", "attention, prefill"),
    "aic_rtx_pro_6000_server_attn_generation": ("rtx-pro-6000-server", "attention, decode"),
    "aic_rtx_pro_6000_server_moe": ("rtx-pro-6000-server", "MoE, fused"),
    "aic_h100_sxm_mla_context": ("h100", "latent attention, prefill"),
    "aic_h100_sxm_mla_generation": ("h100", "latent attention, decode"),
    "aic_h100_sxm_mla_bmm": ("h100", "batched GEMMs of latent attention"),
    "aic_h100_sxm_attn_encoder": ("h100", "attention of encoders"),
    "aic_h100_sxm_gdn": ("h100", "gated delta rule, kernel by kernel"),
    "sparse/aic_h100_sxm_kda": ("h100", "Kimi's delta attention, kernel by kernel"),
    "aic_h100_sxm_mamba2": ("h100", "causal convolution of Mamba 2"),
    "aic_b200_sxm_mla_context": ("b200", "latent attention, prefill"),
    "aic_b200_sxm_mla_generation": ("b200", "latent attention, decode"),
    "aic_b200_sxm_mla_bmm": ("b200", "batched GEMMs of latent attention"),
    "aic_b200_sxm_attn_encoder": ("b200", "attention of encoders"),
    "aic_b200_sxm_gdn": ("b200", "gated delta rule, kernel by kernel"),
    "sparse/aic_b200_sxm_kda": ("b200", "Kimi's delta attention, kernel by kernel"),
    "aic_b200_sxm_mamba2": ("b200", "causal convolution of Mamba 2"),
    "aic_l40s_mla_context": ("l40s", "latent attention, prefill"),
    "aic_l40s_mla_generation": ("l40s", "latent attention, decode"),
    "aic_l40s_mla_bmm": ("l40s", "batched GEMMs of latent attention"),
    "aic_l40s_attn_encoder": ("l40s", "attention of encoders"),
    "aic_l40s_gdn": ("l40s", "gated delta rule, kernel by kernel"),
    "aic_l40s_mamba2": ("l40s", "causal convolution of Mamba 2"),
    "aic_rtx_pro_6000_server_mla_context": ("rtx-pro-6000-server", "latent attention, prefill"),
    "aic_rtx_pro_6000_server_mla_generation": ("rtx-pro-6000-server", "latent attention, decode"),
    "aic_rtx_pro_6000_server_mla_bmm": ("rtx-pro-6000-server", "batched GEMMs of latent attention"),
    "aic_rtx_pro_6000_server_attn_encoder": ("rtx-pro-6000-server", "attention of encoders"),
    "aic_rtx_pro_6000_server_gdn": ("rtx-pro-6000-server", "gated delta rule, kernel by kernel"),
    "aic_rtx_pro_6000_server_mamba2": ("rtx-pro-6000-server", "causal convolution of Mamba 2"),
}
NEW = ("vidur_a100_gemm",)  # tables of which no fit used a row


OPERATIONS_HEADER = "\n".join((
    "| device | measured | rows | error of bound | error of expected time | on unseen rows | median error "
    "| within the interval |",
    "|---|---|---:|---:|---:|---:|---:|---:|",
))  # fmt: skip
MODELS_HEADER = "\n".join((
    "| whole models | rows | error of bound | error of expected time | bias | median error | within the interval |",
    "|---|---:|---:|---:|---:|---:|---:|",
))  # fmt: skip


class ModelErrors(NamedTuple):
    """One source of measured models: its rows of the summary table, and its own table."""

    summary: str
    table: str


def operations(folder: Path) -> str:
    """Markdown: one row per table of measurements."""
    return "\n".join([OPERATIONS_HEADER, *(operation_row(folder, name) for name in TABLES)])


def operation_row(folder: Path, name: str) -> str:
    """Markdown: the row of one table of measurements."""
    hw, title = TABLES[name]
    validation = validate(str(folder / f"{name}.csv.gz"), Device.load(hw))
    part, rows = validation.all_rows, unseen(validation, name)
    assert part
    assert part.expected
    assert part.inside_interval
    return (
        f"| {hw} | {title} | {part.n} | {part.bound.mape:.0%} | {part.expected.mape:.1%} "
        f"| {errors(validation.expected[rows], validation.measured[rows]).mape:.1%} "
        f"| {part.expected.median_ape:.1%} | {part.inside_interval:.0%} |"
    )


def unseen(validation: Validation, name: str) -> Array:
    """The rows that no fit used: a third of the models, or all rows of a new table."""
    rows = np.full(len(validation.expected), name in NEW)
    for group in groups(validation.table)[0]:
        rows[group.rows] |= held_out(group.op, group.shape)
    return np.flatnonzero(rows & ~np.isnan(validation.expected))


def models(folder: Path) -> list[str]:
    """Markdown: a summary of whole models, then a table for each source."""
    sources = [errors_of(folder) for errors_of in SOURCES.values()]
    return ["\n".join([MODELS_HEADER, *(each.summary for each in sources)]), *(each.table for each in sources)]


def _summary(rows: Mapping[str, Sequence[RelativeErrors]]) -> str:
    return "\n".join(f"| {name} | {summary_cells(errors)} |" for name, errors in rows.items())


def _one_gpu(folder: Path) -> ModelErrors:
    pairs = served.errors(served.on_one_gpu(folder))
    first, further = [pair.ttft for pair in pairs], [pair.tpot for pair in pairs]
    summary = _summary({"served on one GPU: TTFT": first, "served on one GPU: TPOT": further})
    return ModelErrors(summary, served.table_by_device(pairs))


def _several_gpus(folder: Path) -> ModelErrors:
    pairs = served.errors(served.on_several_gpus(folder))
    first, further = [pair.ttft for pair in pairs], [pair.tpot for pair in pairs]
    summary = _summary({"served on 2 to 8 GPUs: TTFT": first, "served on 2 to 8 GPUs: TPOT": further})
    return ModelErrors(summary, served.table_by_model(pairs))


def _generation(folder: Path) -> ModelErrors:
    rows = list(generation.generated(folder))
    return ModelErrors(_summary({"requests on 1 to 32 A100s": [row.errors for row in rows]}), generation.table(rows))


def _published(folder: Path) -> ModelErrors:
    rows = published.errors(folder)
    summary = {
        "BERT and BART on V100 and A100": published.on_v100_and_a100(rows, compiled=False),
        "BERT on V100 and A100, compiled by XLA": published.on_v100_and_a100(rows, compiled=True),
    }
    return ModelErrors(_summary(summary), published.table(rows))


SOURCES: dict[str, Callable[[Path], ModelErrors]] = {
    "served on one GPU": _one_gpu,
    "served on several GPUs": _several_gpus,
    "generation": _generation,
    "published": _published,
}


def main() -> None:
    """Write the tables to stdout or into pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="tables of measurements")
    pages.add_option(parser)
    arguments = parser.parse_args()
    tables = [operations(arguments.folder), *models(arguments.folder)]
    sys.stdout.write("\n\n".join(tables) + "\n")
    pages.replace_tables(arguments.into, tables)


if __name__ == "__main__":
    main()
