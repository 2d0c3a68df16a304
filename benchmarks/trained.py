"""Published training steps with known settings, and our expected times and memory.

    python benchmarks/trained.py FOLDER

FOLDER has the tables `train_*.csv.gz`, whose README states their sources. Rows with LoRA or without a stated layout are
left out; so are NeMo's of long sequences, whose GPUs are not tp x pp x cp x dp as printed. `--rows` prints every row.

- `simumax`: Megatron-Core on eight B200s, models cut to a few layers, nothing overlapped (`--overlap none`), experts
  with capacity 1 (`--capacity 1`); memory is the largest that torch allocated. Its context parallelism is Ulysses'.
- `readme`: GPT models of Megatron-LM's README on H100s. Neither the microbatch (assumed: 1) nor the model chunks per
  stage (assumed: 1) are stated.
- `nemo`: NVIDIA's dense and MoE models in BF16.
- `narrow`: NVIDIA's dense models with GEMMs in fp8 (current scaling) and mxfp8, with gradients summed in bf16 as its
  performance recipes do. Pipelines of the 405B count embedding and loss as a layer each (its recipe:
  account_for_embedding_in_pipeline_split).
- `ring`: NVIDIA's Llama 3.1 of 2024 and 2025 with context parallelism, a ring (Megatron-Core's default), in bf16 and in
  fp8 (delayed scaling, counted as current scaling). The 405B is also cut to 7, 21 and 42 layers.
- `foundry`: MPT models on A100s by llm-foundry's FSDP (`--zero 3`), with RoCE of 25 GB/s per GPU between nodes.
- `torchtitan`: Llama-3.1-8B by FSDP2 on H100s with HBM2e, eager and compiled (without the loss), in bf16 and fp8
  (per tensor). Recomputation is by operator; long sequences have full recomputation and context parallelism by
  all-gathers (its default). Memory is what the allocator reserved.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture
from roofmodel.steps.estimate import Estimate, estimate

MPT = {"125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16),
       "3b": (32, 2560, 20), "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56),
       "70b": (80, 8192, 64)}  # fmt: skip
"""Layers, width and heads of llm-foundry's models (its scripts/train/yamls/pretrain)."""
GPT_OSS, LLAMA_70B, LLAMA_405B = "gpt-oss-120b", "meta-llama/Meta-Llama-3-70B", "meta-llama/Llama-3.1-405B"
NARROW = {"LLAMA3_8B": "meta-llama/Meta-Llama-3-8B", "LLAMA3_70B": LLAMA_70B, "LLAMA3.1_405B": LLAMA_405B}
RECIPES = {"FP8": "fp8", "FP8-CS": "fp8", "FP8-MX": "mxfp8", "MXFP8": "mxfp8"}
"""Recipes of NVIDIA's tables: current scaling and MXFP8."""
A100 = {"a100_80gb": "a100-sxm-80gb", "a100_40gb": "a100-sxm-40gb"}
RING = {"8b": "meta-llama/Llama-3.1-8B", "70b": "meta-llama/Llama-3.1-70B", "405b": LLAMA_405B}
GPUS_PER_NODE, H100_HBM2E = 8, "h100-sxm-96gb-hbm2e"
SIMUMAX = {"Llama-3-70B": LLAMA_70B, "DeepSeek-V2": "deepseek-v2"}
NEMOTRON = {
    "model_type": "nemotron", "architectures": ["NemotronForCausalLM"], "hidden_size": 18432, "num_hidden_layers": 96,
    "num_attention_heads": 96, "num_key_value_heads": 8, "intermediate_size": 73728, "vocab_size": 256000,
    "max_position_embeddings": 4096, "hidden_act": "relu2", "tie_word_embeddings": False,
}  # fmt: skip
"""Nemotron-4 340B (arXiv 2406.11704, table 1)."""


class TrainingRow(NamedTuple):
    """A published step: its table, model and options; measured seconds, and GiB of a GPU where they are stated."""

    table: str
    model: str
    arch: Architecture
    hw: str
    options: Mapping[str, Any]
    seconds: float
    memory: float | None = None

    def estimate(self, hw: str | None = None) -> Estimate:
        """Our estimate, on this device or on a device file of the same kind of card."""
        options = {"phase": "train", "dtype": "bf16", "memory_utilization": 1.0, **self.options}
        return estimate(self.arch, Device.load(hw or self.hw), **options)


def rows(folder: Path) -> Iterator[TrainingRow]:
    """All rows that we can express."""
    yield from _simumax(folder)
    yield from _readme(folder)
    yield from _nemo(folder)
    yield from _narrow(folder)
    yield from _ring(folder)
    yield from _foundry(folder)
    yield from _torchtitan(folder)


def _read(folder: Path, name: str) -> list[dict[str, str]]:
    with gzip.open(folder / f"{name}.csv.gz", "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _layers(model: str, layers: int, **changed: Any) -> Architecture:
    checkpoint = hub.packaged(model)
    assert checkpoint
    return architecture({**checkpoint.config, "num_hidden_layers": layers, **changed}, model, model)


def _simumax(folder: Path) -> Iterator[TrainingRow]:
    for row in _read(folder, "train_simumax_b200"):
        tp, pp, dp, ep, cp = (int(row[name]) for name in ("tp", "pp", "dp", "ep", "cp"))
        moe = ep > 1
        changed = {"first_k_dense_replace": int(row["dense_layers"] or 0)} if moe else {}
        options = {
            "batch": int(row["global_batch"]), "seq": int(row["seq"]), "micro_batch": 1, "tp": tp, "pp": pp, "dp": dp,
            "ep": ep, "cp": cp, "cp_kind": "ulysses" if cp > 1 else "ring", "zero": 1 if dp * cp > 1 else 0,
            "sequence_parallel": "on" if tp > 1 else "off", "engine": "megatron", "overlap": "none",
            **({"capacity": 1.0} if moe else {}),
        }  # fmt: skip
        arch = _layers(SIMUMAX[row["model"]], int(row["layers"]), **changed)
        table = "simumax MoE" if moe else "simumax dense" if cp == 1 else "simumax, context parallel"
        yield TrainingRow(
            table, row["model"], arch, "b200", options, float(row["step_ms"]) / 1e3, float(row["peak_allocated_gib"])
        )


def _readme(folder: Path) -> Iterator[TrainingRow]:
    for row in _read(folder, "train_megatron_readme"):
        layers, hidden, seq, vocab = (int(row[name]) for name in ("layers", "hidden", "seq", "vocab"))
        config = {
            "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": hidden, "n_layer": layers,
            "n_head": int(row["heads"]), "n_positions": seq, "vocab_size": vocab, "tie_word_embeddings": False,
            "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        }  # fmt: skip
        tp, pp, dp, batch = (int(row[name]) for name in ("tp", "pp", "dp", "gbs"))
        flops = 72 * batch * seq * layers * hidden**2 * (1 + seq / (6 * hidden) + vocab / (12 * layers * hidden))
        options = {
            "batch": batch, "seq": seq, "micro_batch": 1, "tp": tp, "pp": pp, "dp": dp, "zero": 1,
            "sequence_parallel": "on" if tp > 1 else "off", "engine": "megatron",
        }  # fmt: skip
        seconds = flops / (int(row["n_gpus"]) * float(row["tflops_per_gpu"]) * 1e12)
        yield TrainingRow("Megatron-LM's README", row["model"], _gpt(config), "h100", options, seconds)


def _gpt(config: dict[str, Any]) -> Architecture:
    return architecture(config, "gpt", "gpt")


def _nemo(folder: Path) -> Iterator[TrainingRow]:
    seen = set()
    for row in _read(folder, "train_dgxc"):
        title, step = row["title"], row["step_s"]
        if "Nemotron4 340b" not in title and "70b Finetuning SFT" not in title:
            continue
        if row["precision"] != "BF16" or not row["tp"] or (title[:20], row["n_gpus"], step) in seen:
            continue
        seen.add((title[:20], row["n_gpus"], step))
        name = "nemotron-340b" if "340b" in title else LLAMA_70B
        arch = architecture(NEMOTRON, name, name) if "340b" in title else hub.load(name)
        options = _megatron(row, "bf16")
        yield TrainingRow("NeMo dense", name, arch, "h100", options, float(step))
    arch = hub.load(GPT_OSS)
    for row in _read(folder, "train_megatron_bridge"):
        if row["precision"] != "BF16" or row["model"] != "GPT OSS 120B":
            continue
        pp, ep, gpus, batch, seq = (int(row[name]) for name in ("pp", "ep", "n_gpus", "gbs", "seq"))
        options = {
            "batch": batch, "seq": seq, "micro_batch": int(row["mbs"]), "pp": pp, "ep": ep, "dp": gpus // pp, "zero": 1,
            "engine": "megatron", "engine_option": "gradients=bf16", "weights": "bf16",
        }  # fmt: skip
        seconds = batch * seq / (float(row["tok_per_s_per_gpu"]) * gpus)
        yield TrainingRow("NeMo MoE", GPT_OSS, arch, "h100" if "H100" in row["system"] else "b200", options, seconds)


def _megatron(row: Mapping[str, str], dtype: str) -> dict[str, Any]:
    """The options of a row of NVIDIA's dense models."""
    tp, pp, cp = (int(row[name] or 1) for name in ("tp", "pp", "cp"))
    return {
        "dtype": dtype, "batch": int(row["gbs"]), "seq": int(row["seq"]), "micro_batch": int(row["mbs"] or 1), "tp": tp,
        "pp": pp, "vpp": int(row["vp"]) if pp > 1 else 1, "cp": cp, "dp": int(row["n_gpus"]) // (tp * pp * cp),
        "zero": 3 if row.get("fsdp", "0") != "0" else 1, "sequence_parallel": "on" if tp > 1 else "off",
        "engine": "megatron",
    }  # fmt: skip


def _narrow(folder: Path) -> Iterator[TrainingRow]:
    for row in _read(folder, "train_megatron_bridge"):
        if row["model"] not in NARROW or row["precision"] not in RECIPES or not row["fsdp"]:
            continue
        options = {**_megatron(row, RECIPES[row["precision"]]), "engine_option": "gradients=bf16"}
        name, hw = NARROW[row["model"]], "h100" if "H100" in row["system"] else "b200"
        if name == LLAMA_405B:
            options["stage_layers"] = ",".join(["1", *["2"] * (options["pp"] * options["vpp"] - 2), "1"])
        tokens = options["batch"] * options["seq"]
        seconds = tokens / (float(row["tok_per_s_per_gpu"]) * int(row["n_gpus"]))
        table = f"NeMo dense, {options['dtype']}{', context parallel' * (options['cp'] > 1)}"
        yield TrainingRow(table, name, hub.load(name), hw, options, seconds)


def _ring(folder: Path) -> Iterator[TrainingRow]:
    newest: dict[tuple[str, ...], dict[str, str]] = {}  # a later tag measures the same layout again
    for row in _read(folder, "train_dgxc"):
        if row["cp"] == "2":
            newest[row["title"].split()[2], row["precision"], row["n_gpus"]] = row
    for (model, precision, _), row in newest.items():
        name, layers = RING[model], row["layers"]
        arch = _layers(name, int(layers)) if layers else hub.load(name)
        options = _megatron(row, precision.lower())
        title = f"{name}, {layers} layers" if layers else name
        table = f"NeMo dense, {options['dtype']}, context parallel"
        yield TrainingRow(table, title, arch, "h100", options, float(row["step_s"]))


def _foundry(folder: Path) -> Iterator[TrainingRow]:
    for row in _read(folder, "train_llm_foundry"):
        layers, hidden, heads = MPT[row["Model"]]
        seq, gpus = int(row["SeqLen (T)"]), int(row["# GPUs"])
        config = {
            "model_type": "mpt", "architectures": ["MptForCausalLM"], "d_model": hidden, "n_layers": layers,
            "n_heads": heads, "max_seq_len": seq, "vocab_size": 50432, "expansion_ratio": 4,
        }  # fmt: skip
        batch = int(row["GlobalBatchSize"])
        options = {
            "batch": batch, "seq": seq, "micro_batch": int(row["MicroBatchSize"]), "dp": gpus, "zero": 3,
            "recompute": "full" if row["Activation Checkpointing"] == "True" else "none", "engine": "torch",
            "weights": "bf16" if row["MP Mode"] == "PURE" else "fp32",
        }  # fmt: skip
        seconds, hw = batch * seq / float(row["Throughput (T/s)"]), A100[row["GPU"]]
        table = "llm-foundry" if gpus <= GPUS_PER_NODE else "llm-foundry, several nodes"
        yield TrainingRow(table, row["Model"], architecture(config, "mpt", "mpt"), hw, options, seconds)


def _torchtitan(folder: Path) -> Iterator[TrainingRow]:
    for row in _read(folder, "train_pytorch_misc"):
        if "HBM2e" not in row["gpu"] or "rowwise" in row["precision"]:
            continue
        batch, seq, tp, cp, dp = (int(row[name]) for name in ("gbs", "seq", "tp", "cp", "fsdp"))
        compiled = "off" if row["compile"] == "no" else "model"
        options = {
            "dtype": row["precision"].split()[0], "batch": batch, "seq": seq, "micro_batch": int(row["local_batch"]),
            "tp": tp, "sequence_parallel": "on" if tp > 1 else "off", "dp": dp, "cp": cp,
            "cp_kind": "all-gather" if cp > 1 else "ring", "zero": 3, "engine": "torchtitan",
            "recompute": "full" if row["ac"] == "full" else "selective:op",
            "engine_option": "compile=async-tp" if "async" in row["notes"] else f"compile={compiled}",
        }  # fmt: skip
        seconds = batch * seq / (float(row["tok_per_s_per_gpu"]) * int(row["n_gpus"]))
        kind = {
            "eager": compiled == "off",
            "long": row["ac"] == "full",
            "tp": tp > 1 and "async" not in row["notes"],
            "async tp": "async" in row["notes"],
        }
        table = ", ".join(["torchtitan", options["dtype"], *(name for name, applies in kind.items() if applies)])
        memory = float(row["memory_gib"]) if row["memory_gib"] else None
        yield TrainingRow(table, row["model"], hub.load("llama-3.1-8b"), H100_HBM2E, options, seconds, memory)


class Judged(NamedTuple):
    """A row with the expected time relative to the measured one, and likewise its interval and its memory."""

    row: TrainingRow
    ratio: float
    low: float
    high: float
    memory: float | None


def judged(row: TrainingRow, hw: str | None = None) -> Judged:
    """A row beside its estimate."""
    found = row.estimate(hw)
    expected = found.phases[0].expected
    assert expected
    low, value, high = (float(each) / row.seconds for each in (expected.low, expected.value, expected.high))
    return Judged(row, value, low, high, row.memory and float(found.memory.total) / 2**30 / row.memory)


def table(results: list[Judged]) -> str:
    """Markdown: one line per table and device."""
    lines = [
        "| table | device | rows | mean error | bias | inside the interval | memory, mean error | bias |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, hw in dict.fromkeys((each.row.table, each.row.hw) for each in results):
        some = [each for each in results if (each.row.table, each.row.hw) == (name, hw)]
        inside = sum(each.low <= 1 <= each.high for each in some) / len(some)
        sizes = [each.memory for each in some if each.memory]
        errors = [[each.ratio - 1 for each in some], [size - 1 for size in sizes]]
        time, memory = (f"{fmean(map(abs, each)):.1%} | {fmean(each):+.1%}" if each else "— | —" for each in errors)
        lines.append(f"| {name} | {hw} | {len(some)} | {time} | {inside:.0%} | {memory} |")
    return "\n".join(lines)


def line(each: Judged) -> str:
    """A row as text."""
    shown = ("tp", "pp", "vpp", "cp", "dp", "ep", "batch", "seq", "micro_batch", "recompute")
    layout = " ".join(f"{name} {value}" for name in shown if (value := each.row.options.get(name)) not in (None, 1))
    memory = "" if each.memory is None else f" memory {each.memory - 1:+.1%}"
    return f"{each.row.table}: {each.row.model}, {layout}: {each.row.seconds:.3f} s, {each.ratio - 1:+.1%}{memory}"


def main() -> None:
    """Print the table, with `--rows` also every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder with train_*.csv.gz")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--b200", help="a device file for the rows of the B200, such as one with sustained rates")
    parser.add_argument("--only", default="", help="tables whose names contain this text")
    arguments = parser.parse_args()
    results = [
        judged(row, arguments.b200 if row.table.startswith("simumax") else None)
        for row in rows(arguments.folder)
        if arguments.only in row.table
    ]
    if arguments.rows:
        print(*map(line, results), "", sep="\n")
    print(table(results))


if __name__ == "__main__":
    main()
