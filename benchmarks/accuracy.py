"""The accuracy table of the README, from a folder of measured operations: `python benchmarks/accuracy.py FOLDER`.

Bound and expectation of every row against its measurement. The parameters in `hardware/` were fitted on two thirds of
the cells of shapes of the aiconfigurator tables and of vidur's elementwise ones; `vidur_a100_gemm` is of a framework
that no fit has seen.
"""

from __future__ import annotations

import sys
from pathlib import Path

from roofmodel.devices.device import Device
from roofmodel.study.validate import validate

TABLES = {
    "aic_a100_sxm_gemm": ("a100", "GEMM, 16 bits and quantised"),
    "vidur_a100_gemm": ("a100", "GEMM of a framework not fitted to"),
    "aic_a100_sxm_attn_context": ("a100", "attention, prefill"),
    "aic_a100_sxm_attn_generation": ("a100", "attention, decode"),
    "vidur_a100_elementwise": ("a100", "norms, activations, sums, rows"),
    "aic_h100_sxm_gemm": ("h100", "GEMM, 16 and 8 bits"),
    "aic_h100_sxm_attn_context": ("h100", "attention, prefill"),
    "aic_h100_sxm_attn_generation": ("h100", "attention, decode"),
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


if __name__ == "__main__":
    sys.stdout.write(table(Path(sys.argv[1])) + "\n")
