"""Predictions of tools that are repositories without a package: each runs from the reader's clone, in a new process.

LLM-Viewer (`472f71f`) shows a model's operators on a roofline; its authors state that only ratios of its times are
meaningful. Calculon (`caa4b11`) plans the training of a model on thousands of GPUs; its efficiencies by size are those
of the A100. LLMCompass (`2e015fd`) simulates accelerators to design them: minutes per GEMM.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.others import ToolMissing, config_folder
from benchmarks.served import ServedBatch


def _run(path: Path | None, tool: str, repository: str, command: Sequence[str], stdin: str = "") -> str:
    """What a command prints in the clone. Raises ToolMissing without a clone, or if the command fails."""
    option = f"--{tool.lower()}"
    if path is None:
        raise ToolMissing(f"{tool}: git clone https://github.com/{repository}, then {option} PATH")
    environment = {**os.environ, "PYTHONPATH": ".", "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=path,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=True,
        )
    except OSError as error:
        raise ToolMissing(f"{tool}: {option} {path}: {error.strerror}") from None
    except subprocess.CalledProcessError as error:
        raise ToolMissing(f"{tool}: {option} {path}: {error.stderr.strip().rpartition(chr(10))[2]}") from None
    return done.stdout


# --- LLM-Viewer -------------------------------------------------------------------------------------

VIEWED = {"a100": "nvidia_A100_80G", "h100": "nvidia_H100_SXM"}
_VIEW = """
import json, sys
sys.path.insert(0, ".")
from model_analyzer import ModelAnalyzer
for folder, hardware, bits, batch, prompt, new in json.load(sys.stdin):
    viewer = ModelAnalyzer(folder, hardware, "configs/Llama.py")
    def seconds(phase, length):
        analysis = viewer.analyze(length, batch, bits, bits, bits, use_flashattention=True)
        return analysis["total_results"][phase]["inference_time"]
    print("=", json.dumps([seconds("prefill", prompt), seconds("decode", prompt + new // 2)]))
"""


def llm_viewer(path: Path | None, rows: Sequence[ServedBatch]) -> list[tuple[float, float]]:
    """TTFT and TPOT in seconds of Llama models, with its fused attention (more accurate than its other one).

    Its 8-bit format is INT8, which has the same peak as FP8.
    """
    with contextlib.ExitStack() as open_folders:
        folders = {model: open_folders.enter_context(config_folder(model)) for model in {row.model for row in rows}}
        cases = [
            (folders[r.model], VIEWED[r.hw], 8 if r.precision == "fp8" else 16, r.batch, r.prompt, r.new) for r in rows
        ]
        printed = _run(path, "LLM-Viewer", "hahnyuan/LLM-Viewer", ["-c", _VIEW], json.dumps(cases))
    latencies = [json.loads(line[1:]) for line in printed.splitlines() if line.startswith("=")]
    return [(prefill, decode) for prefill, decode in latencies]


# --- Calculon ---------------------------------------------------------------------------------------


def calculon(path: Path | None) -> dict[str, dict[str, float]]:
    """Seconds per training step by its own validation on Megatron-LM: model -> kind of recomputation -> seconds."""
    printed = _run(path, "Calculon", "calculon-ai/calculon", ["bin/calculon", "llm-validation"])
    steps = printed[printed.index("End-to-end") :].splitlines()
    cells = [line.split(",") for line in steps if line.startswith(("megatron", "gpt3", "turing"))]
    return {c[0].rpartition("-")[2]: {"full": float(c[3]), "selective": float(c[8])} for c in cells}


def calculon_search(path: Path | None, sizes: Mapping[str, int], gpus: int, batch: int) -> tuple[int, dict[str, Any]]:
    """The number of candidates, and the best execution and its statistics, of its search on A100s with 80 GB.

    Searched without offloading to the host and without overlap of communication, neither of which `roof plan` searches.
    `sizes` are those of its model files.
    """
    with tempfile.TemporaryDirectory() as folder:
        model, system, best = (Path(folder) / f"{name}.json" for name in ("model", "system", "best"))
        model.write_text(json.dumps(sizes))
        if path is not None and (own := path / "systems" / "a100_80g.json").exists():
            device = json.loads(own.read_text())
            device["mem2"]["GiB"] = 0
            system.write_text(json.dumps(device))
        command = ["bin/calculon", "llm-optimal-execution", str(model), str(gpus), str(batch), "float16", str(system)]
        printed = _run(
            path, "Calculon", "calculon-ai/calculon", [*command, str(best), "-m", "--no-tp-overlap", "--no-dp-overlap"]
        )
        count = int(printed.partition("Total executions: ")[2].split()[0])
        return count, json.loads(best.read_text())["0"]


# --- LLMCompass -------------------------------------------------------------------------------------


class Simulated(NamedTuple):
    """An operator that LLMCompass measured on an A100: measured and simulated seconds."""

    op: str
    shape: Mapping[str, int]
    measured: float
    simulated: float


LAUNCH = 21e-6  # seconds that its script adds to each simulated GEMM: the time of a call on its host
_FIGURES = {"gemm": "ab/matmul", "softmax": "cf/softmax", "layernorm": "de/layernorm", "gelu": "g/gelu"}


def llmcompass(path: Path | None) -> list[Simulated]:
    """The operators of figure 5 of its paper that its scripts have simulated in this clone."""
    if path is None:
        raise ToolMissing(
            "LLMCompass: git clone https://github.com/PrincetonUniversity/LLMCompass, run its "
            "ae/figure5/run_figure5.sh (over an hour), then --llmcompass PATH"
        )
    operators = []
    for op, figure in _FIGURES.items():
        simulated = path / "ae" / "figure5" / f"{figure}_A100_sim.csv"
        real = simulated.parent / "real_hardware" / simulated.name.replace("_sim", "")
        if not simulated.exists():
            raise ToolMissing(
                f"LLMCompass: --llmcompass {path}: no {simulated.name}; run its ae/figure5/run_figure5.sh"
            )
        simulated_seconds = dict(_figure(op, simulated))
        operators += [
            Simulated(op, dict(zip("mnk", shape, strict=False)), measured, simulated_seconds[shape])
            for shape, measured in _figure(op, real)
            if shape in simulated_seconds
        ]
    return operators


def _figure(op: str, path: Path) -> list[tuple[tuple[int, ...], float]]:
    """Shapes and seconds. The file states times of GEMMs, and 10⁹ elements per second of the others."""
    rows = []
    with path.open(newline="") as file:
        for *cells, rate in csv.reader(file, skipinitialspace=True):
            if op == "gemm":
                *sizes, time = cells
                rows.append((tuple(map(int, sizes)), float(time.removesuffix("ms")) / 1e3))
            else:
                m, *n = map(int, cells)
                shape = (m, *n) if n else (1, m)
                rows.append((shape, shape[0] * shape[1] / float(rate) / 1e9))
    return rows
