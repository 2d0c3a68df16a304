"""What serving engines reported about memory when they started, and what is expected of them:
`python -m benchmarks.engine_memory TABLE`.

The table is `engine_memory.csv` (public logs and issues). The constants of the engines' files are from their code, and
where only a log has them, from rows of several families. `--into docs/accuracy.md` updates the page.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import pages
from benchmarks.errors import by_name
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture
from roofmodel.models.hub import load
from roofmodel.steps.capacity import StartMemory, fewest_requests, server_starts
from roofmodel.steps.options import workload

GIB = 2**30
GPUS = {
    "H100 80GB": "h100-sxm", "H200": "h200", "A100 80GB": "a100-sxm-80gb", "A100 40GB": "a100-sxm-40gb", "T4": "t4",
    "A10": "a10", "RTX 3090": "rtx3090", "RTX 5090": "rtx5090", "RTX A6000": "rtx-a6000", "GB10": "gb10",
    "GB200": "gb200", "24 GB, not named": "rtx4090",
}  # fmt: skip
MODELS = {
    "meta-llama/Llama-3.1-8B": "llama-3.1-8b", "Llama-3.3-70B": "llama-3.3-70b-instruct",
    "Llama-3.1-70B": "llama-3.1-70b", "Llama-3-8B": "meta-llama-3-8b", "Llama-3.1-8B": "llama-3.1-8b",
    "llama-3.1-8b": "llama-3.1-8b", "Llama-2-70b": "llama-2-70b-hf", "Llama-2-7": "llama-2-7b-hf",
    "CodeLlama-7b": "codellama-7b-hf", "V2-Lite": "deepseek-v2-lite", "Qwen3-0.6B": "qwen3-0.6b",
    "Qwen3-4B": "qwen3-4b", "Qwen3-8B": "qwen3-8b", "Qwen3-14B": "qwen3-14b", "Qwen3-32B": "qwen3-32b",
    "Qwen3-30B-A3B": "qwen3-30b-a3b", "Qwen3-235B": "qwen3-235b-a22b", "Qwen1.5-MoE": "qwen1.5-moe-a2.7b",
    "Qwen3.6-35B-A3B": "qwen3.5-35b-a3b", "phi-2": "phi-2", "opt-125m": "opt-125m",
    "Mistral-Nemo": "mistral-nemo-base-2407", "Mistral-Small": "mistral-small-24b-base-2501",
    "DeepSeek-R1": "deepseek-v3", "DeepSeek-V3": "deepseek-v3",
}  # fmt: skip
"""A part of the model's name in the table -> a packaged model."""
LLAMA = {"model_type": "llama", "rms_norm_eps": 1e-5, "hidden_act": "silu", "torch_dtype": "bfloat16"}
CONFIGS: dict[str, dict[str, Any]] = {
    "CodeLlama-34b": LLAMA | {
        "hidden_size": 8192, "num_hidden_layers": 48, "num_attention_heads": 64, "num_key_value_heads": 8,
        "intermediate_size": 22016, "vocab_size": 32000,
    },
    "Yi-34B": LLAMA | {
        "hidden_size": 7168, "num_hidden_layers": 60, "num_attention_heads": 56, "num_key_value_heads": 8,
        "intermediate_size": 20480, "vocab_size": 64000,
    },
    "deepseek-coder-6.7b": LLAMA | {
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
        "intermediate_size": 11008, "vocab_size": 32256,
    },
    "Qwen1.5-7B": LLAMA | {
        "model_type": "qwen2", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 151936,
    },
}  # fmt: skip
"""Sizes of models that are not packaged, from their config.json."""
WEIGHTS = {
    "compressed-tensors fp8": "fp8", "fp8 (online)": "fp8", "fp8 (modelopt)": "fp8", "fp8": "fp8_block",
    "fp8 block": "fp8_block", "compressed-tensors int8 w8a8": "int8", "gptq_marlin int4": "int4_sym",
    "gptq int4": "int4", "bitsandbytes nf4": "nf4", "not stated": None, "": None,
}  # fmt: skip
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "": "bf16"}


class Start(NamedTuple):
    """A row of the table with what is expected of it."""

    row: dict[str, str]
    engine: str
    expected: StartMemory

    @property
    def errors(self) -> dict[str, float]:
        """Expected / reported - 1 of weights and KV tokens; missing where the row has none."""
        tokens = self.row["kv_tokens"]
        if not tokens and self.row["kv_cache_gib"] and float(self.row["kv_cache_gib"]) > 0:
            reported, expected = float(self.row["kv_cache_gib"]) * GIB, self.expected.kv_cache
        else:
            reported, expected = float(tokens or 0), self.expected.kv_tokens
        errors = {"KV tokens": expected / reported - 1} if reported else {}
        if weights := self.row["weights_gib"]:
            errors["weights"] = self.expected.weights / GIB / float(weights) - 1
        return errors


def engine_of(row: dict[str, str]) -> str:
    """The engine's file: of its version, or of the one that was current at the date of the row."""
    if row["engine"] == "vllm":
        version = row["version"].split(" ")[0].replace(".x", "")
        if not version:
            version = "0.6" if row["date"] < "2025-03" else "0.12" if row["date"] < "2026" else "0.15"
        return f"vllm@{'.'.join(version.split('.')[:2])}"
    return "sglang" if row["engine"] == "sglang" else "trtllm"


def starts(table: Path, skipped: Counter[str]) -> Iterator[Start]:
    """The rows with a known model, GPU and engine; `skipped` counts the others by reason."""
    for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines()):
        if row["gpu"] not in GPUS:
            skipped["GPU without a device file"] += 1
        elif not row["tp"]:
            skipped["layout not stated"] += 1
        elif row["engine"] == "trtllm" and "PyTorch" not in row["version"]:
            skipped["TensorRT-LLM's C++ runtime"] += 1
        elif (model := _model(row["model"])) is None:
            skipped["model that is neither packaged nor described here"] += 1
        else:
            yield _start(row, model)


@cache
def _model(name: str) -> Architecture | None:
    for part, config in CONFIGS.items():
        if part in name:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "config.json")
                path.write_text(json.dumps(config), encoding="utf-8")
                return load(str(path))
    packaged = next((model for part, model in MODELS.items() if part in name), None)
    return packaged and load(packaged)


def _start(row: dict[str, str], model: Architecture) -> Start:
    def number(key: str) -> int | None:
        stated = dict(each.split("=") for each in row["defaults"].split(" (")[0].split(", ") if "=" in each)
        text = row[key] or stated.get(key, "")
        return int(text) if text.isdigit() else None

    engine, device, kv = engine_of(row), Device.load(GPUS[row["gpu"]]), row["kv_dtype"]
    whole = engine == "vllm@0.6"
    max_len = number("max_model_len") or model.max_tokens or 4096
    fraction = row["memory_fraction"] or (0.9 if row["engine"] == "vllm" else None)
    weights = WEIGHTS[row["quantization"]]
    work, _ = workload(
        model, device, phase="decode", engine=engine, dtype=DTYPES[row["dtype"]],
        weights=weights, kv="fp8" if kv == "fp8" else None, tp=int(row["tp"] or 1), pp=int(row["pp"] or 1),
        memory_utilization=fraction and float(fraction), max_len=max_len,
        token_budget=None if whole else number("max_num_batched_tokens"), max_seqs=number("max_num_seqs"),
    )  # fmt: skip
    expected = fewest_requests(server_starts(model, device, work))
    assert expected is not None
    return Start(row, engine, expected)


LIMITS = {"weights": 0.02, "KV tokens": 0.05}
"""Errors within which a row counts as met."""


def table_of(some: Sequence[Start], *keys: str) -> str:
    """Markdown: one line for each value of these columns."""
    lines = [
        f"| {' | '.join(keys)} | rows | weights within 2 % | median error | KV tokens within 5 % | median error | "
        "refusals seen |",
        "|---" * len(keys) + "|---:" * 6 + "|",
    ]
    pairs = ((tuple(each.engine if key == "engine" else each.row[key] for key in keys), each) for each in some)
    for name, group in [*sorted(by_name(pairs).items()), (("all",) + ("",) * (len(keys) - 1), list(some))]:
        cells = []
        for quantity, limit in LIMITS.items():
            errors = [abs(each.errors[quantity]) for each in group if quantity in each.errors]
            met = sum(error <= limit for error in errors)
            cells += [f"{met} of {len(errors)}", f"{median(errors):.1%}"] if errors else ["", ""]
        refused = [each for each in group if each.row["fits"] == "false"]
        seen = sum(not each.expected.starts for each in refused)
        wrong = sum(not each.expected.starts for each in group if each.row["fits"] == "true")
        verdict = f"{seen} of {len(refused)}" + (f", and {wrong} that started" if wrong else "")
        lines.append(f"| {' | '.join(name)} | {len(group)} | {' | '.join(cells)} | {verdict} |")
    return "\n".join(lines)


def main() -> None:
    """Write the tables to stdout or into pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--rows", action="store_true", help="every row outside the limits")
    pages.add_option(parser)
    arguments = parser.parse_args()
    skipped: Counter[str] = Counter()
    found = list(starts(arguments.table, skipped))
    tables = [table_of(found, "engine"), table_of(found, "family")]
    left_out = "\n".join(f"{count} rows left out: {reason}" for reason, count in skipped.items())
    sys.stdout.write("\n\n".join([*tables, left_out]) + "\n")
    if arguments.rows:
        for each in found:
            if any(abs(error) > LIMITS[name] for name, error in each.errors.items()) or (
                each.row["fits"] == "false" and each.expected.starts
            ):
                errors = ", ".join(f"{name} {error:+.1%}" for name, error in each.errors.items())
                sys.stdout.write(f"{each.engine} {each.row['model']} {each.row['gpu']} tp {each.row['tp']}: {errors}\n")
    pages.replace_tables(arguments.into, tables)


if __name__ == "__main__":
    main()
