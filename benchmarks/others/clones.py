"""Tools that are repositories and no packages, run from a clone of the reader's own, each as a process of its own.

LLM-Viewer (`472f71f`) puts a model's operators on a roofline; it says itself that only relations between its times
should be read. Calculon (`caa4b11`) finds how to train a model on thousands of GPUs; its efficiencies by size are of
the A100. LLMCompass (`2e015fd`) simulates an accelerator, to design one: minutes for a matrix product.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.others import NotHere, config_folder
from benchmarks.served import Served


def _run(path: Path | None, tool: str, repository: str, command: Sequence[str], given: str = "") -> str:
    """What a command prints in the clone. Raises NotHere with the reason where there is none, or it fails."""
    option = f"--{tool.lower()}"
    if path is None:
        raise NotHere(f"{tool}: git clone https://github.com/{repository}, then {option} PATH")
    environment = {**os.environ, "PYTHONPATH": ".", "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=path,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            check=True,
        )
    except OSError as error:
        raise NotHere(f"{tool}: {option} {path}: {error.strerror}") from None
    except subprocess.CalledProcessError as error:
        raise NotHere(f"{tool}: {option} {path}: {error.stderr.strip().rpartition(chr(10))[2]}") from None
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
        found = viewer.analyze(length, batch, bits, bits, bits, use_flashattention=True)
        return found["total_results"][phase]["inference_time"]
    print("=", json.dumps([seconds("prefill", prompt), seconds("decode", prompt + new // 2)]))
"""


def llm_viewer(path: Path | None, rows: Sequence[Served]) -> list[tuple[float, float]]:
    """Seconds to the first token and of a further one, of Llamas, with its fused attention, which is the better of its
    two. Its 8 bits are INT8, of the same peak as FP8."""
    with contextlib.ExitStack() as open_folders:
        folders = {model: open_folders.enter_context(config_folder(model)) for model in {row.model for row in rows}}
        asked = [
            (folders[r.model], VIEWED[r.hw], 8 if r.precision == "fp8" else 16, r.batch, r.prompt, r.new) for r in rows
        ]
        printed = _run(path, "LLM-Viewer", "hahnyuan/LLM-Viewer", ["-c", _VIEW], json.dumps(asked))
    found = [json.loads(line[1:]) for line in printed.splitlines() if line.startswith("=")]
    return [(first, other) for first, other in found]


# --- Calculon ---------------------------------------------------------------------------------------


def calculon(path: Path | None) -> dict[str, dict[str, float]]:
    """Seconds of training steps by its own validation on Megatron's published ones: model -> what is recomputed."""
    printed = _run(path, "Calculon", "calculon-ai/calculon", ["bin/calculon", "llm-validation"])
    steps = printed[printed.index("End-to-end") :].splitlines()
    cells = [line.split(",") for line in steps if line.startswith(("megatron", "gpt3", "turing"))]
    return {c[0].rpartition("-")[2]: {"full": float(c[3]), "selective": float(c[8])} for c in cells}


# --- LLMCompass -------------------------------------------------------------------------------------


class Simulated(NamedTuple):
    """An operator that LLMCompass measured on an A100, and how long its simulation says that it takes; seconds."""

    op: str
    shape: Mapping[str, int]
    measured: float
    simulated: float


LAUNCH = 21e-6  # seconds that its script adds to each simulated matrix product: what a call took on its host
_FIGURES = {"gemm": "ab/matmul", "softmax": "cf/softmax", "layernorm": "de/layernorm", "gelu": "g/gelu"}


def llmcompass(path: Path | None) -> list[Simulated]:
    """The operators of figure 5 of its paper, those that its scripts have simulated in this clone."""
    if path is None:
        raise NotHere(
            "LLMCompass: git clone https://github.com/PrincetonUniversity/LLMCompass, run its "
            "ae/figure5/run_figure5.sh (over an hour), then --llmcompass PATH"
        )
    found = []
    for op, figure in _FIGURES.items():
        simulated = path / "ae" / "figure5" / f"{figure}_A100_sim.csv"
        real = simulated.parent / "real_hardware" / simulated.name.replace("_sim", "")
        if not simulated.exists():
            raise NotHere(f"LLMCompass: --llmcompass {path}: no {simulated.name}; run its ae/figure5/run_figure5.sh")
        known = dict(_figure(op, simulated))
        found += [
            Simulated(op, dict(zip("mnk", shape, strict=False)), measured, known[shape])
            for shape, measured in _figure(op, real)
            if shape in known
        ]
    return found


def _figure(op: str, path: Path) -> list[tuple[tuple[int, ...], float]]:
    """Shapes and seconds. Matrix products are told with their time, the others by 10⁹ elements a second."""
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
