"""The accuracy tables of the README, from a folder of measured operations: `python benchmarks/accuracy.py FOLDER`.

Bound and expectation of every row against its measurement. The parameters in `hardware/` were fitted on two thirds of
the cells of shapes of the aiconfigurator tables and of vidur's elementwise ones; `vidur_a100_gemm` is of a framework
that no fit has seen.
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

from roofmodel.devices.device import Device
from roofmodel.models.hub import load
from roofmodel.study.estimate import estimate
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
SERVERS = {"A100-SXM-80GB": "a100", "H100-SXM-80GB": "h100", "H200": "h200"}


def served(folder: Path) -> str:
    """Markdown: whole models as TensorRT-LLM served them, static batches on one GPU; no fit has seen them.

    A decode is expected at the middle of what is generated, where it takes the mean time.
    """
    with gzip.open(folder / "trtllm_e2e.csv.gz", "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["tp"] == "1" and row["model"] in SERVED]
    off: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        if row["gpu_norm"] not in SERVERS or row["precision"] not in ("fp16", "fp8"):
            continue
        prompt, new, batch = (int(float(row[name])) for name in ("input_len", "output_len", "batch"))
        phases = {"prefill": (None, "ttft_ms"), "decode": (prompt + new // 2, "tpot_ms")}
        pair = []
        for phase, (context, column) in phases.items():
            found = estimate(
                load(SERVED[row["model"]]), Device.load(SERVERS[row["gpu_norm"]]), phase=phase, batch=batch, seq=prompt,
                context=context, dtype=row["precision"], runtime="graph",
            )  # fmt: skip
            assert found.phases[0].expected
            pair.append(float(found.phases[0].expected.seconds) / (float(row[column]) / 1e3) - 1)
        off.setdefault((SERVERS[row["gpu_norm"]], row["precision"]), []).append((pair[0], pair[1]))
    lines = [
        "| device | precision | rows | time to first token off by | bias | time per output token off by | bias |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for (hw, precision), pairs in sorted(off.items()):
        cells = [
            f"{sum(map(abs, errors)) / len(errors):.0%} | {sum(errors) / len(errors):+.0%}"
            for errors in zip(*pairs, strict=True)
        ]
        lines.append(f"| {hw} | {precision} | {len(pairs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sys.stdout.write(f"{table(folder)}\n\n{served(folder)}\n")
