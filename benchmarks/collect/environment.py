"""The machine: device, driver, versions, clock and power limits; writes environment.json.

Quick facts come first; the file is written again after each query that may take long or fail.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from benchmarks.collect.parts import write_text
from roofmodel.errors import Option, WorkloadError
from roofmodel.measure.stopwatch import Machine, cpu_name, machine
from roofmodel.roofline.device import GENERATION_ALIAS, UnknownDevice, identify

PACKAGES = ("torch", "transformers", "triton", "numpy", "roofmodel")
STATE = (
    "name", "driver_version", "vbios_version", "pstate", "persistence_mode", "ecc.mode.current", "mig.mode.current",
    "clocks.max.sm", "clocks.max.memory", "clocks.applications.graphics", "power.limit", "power.default_limit",
    "memory.total", "memory.used", "pcie.link.gen.current", "pcie.link.width.current",
)  # fmt: skip
UNKNOWN = "unknown"  # start of the text for a fact that a tool did not give; the reason follows
VARIABLES = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "NVIDIA_TF32_OVERRIDE")


def main(folder: Path, small: bool) -> int:
    """Exit status 1, with the reason as the last line, if torch finds no working GPU and `small` is off."""
    document: dict[str, Any] = {
        "schema": "roofmodel.environment/1",
        "host": {"cpu": cpu_name(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.release()}"},
        "python": sys.version.split()[0],
        "packages": {name: _version(name) for name in PACKAGES},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    problem = ""

    def collect_facts(**more: object) -> None:
        document.update(more)
        write_text(folder / "environment.json", json.dumps(document, indent=1) + "\n")

    collect_facts()
    try:
        collect_facts(**_device(small))
    except WorkloadError as error:
        problem = str(error).removeprefix(f"{Option('device', 'cuda')}: ").partition(f"; {Option('device', 'cpu')}")[0]
    except Exception as error:  # a broken torch: the other facts are collected all the same
        traceback.print_exc()
        problem = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    if problem:
        collect_facts(problem=problem)
    collect_facts(state=_state())
    collect_facts(tools={name: _tool(name) for name in ("ncu", "nsys", "nvprof", "nvcc")})
    if problem:
        print(f"error: {problem}; for a trial without a GPU, use --small")
    return int(bool(problem))


def read(folder: Path, small: bool) -> dict[str, Any]:
    """The document of `main`, which runs now if there is none or it lacks the device."""
    file = folder / "environment.json"
    if not file.exists() or "device" not in json.loads(file.read_text(encoding="utf-8")):
        main(folder, small)
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


def _device(small: bool) -> dict[str, Any]:
    """The device's attributes by torch, and its id in roofmodel."""
    watch = machine(None if small else "cuda")
    try:
        attributes = {name: value for name, value in vars(watch.evidence).items() if value is not None}
        return {
            "device": {**attributes, "types": watch.dtypes, "framework": watch.framework},
            "hardware": hardware(watch),
            "cudnn": _cudnn(),
        }
    finally:
        watch.close()


def hardware(watch: Machine) -> str | None:
    """The id of the device in roofmodel: by its attributes, else the common device of its generation."""
    try:
        return identify([watch.evidence], None, []).device.id
    except UnknownDevice:
        return GENERATION_ALIAS.get(watch.evidence.compute_capability or "")


def _state() -> dict[str, str]:
    """All values in one query, because each may take seconds; one by one if an old driver does not know a value."""
    if not shutil.which("nvidia-smi"):
        return {}
    ask = ("nvidia-smi", "-i", gpu(), "--format=csv,noheader")
    answer = _output(*ask, f"--query-gpu={','.join(STATE)}")
    values = answer.split(", ")
    if len(values) == len(STATE):
        return dict(zip(STATE, values, strict=True))
    if answer.startswith(UNKNOWN):
        return {"nvidia-smi": answer}
    return {name: _output(*ask, f"--query-gpu={name}") for name in STATE}


def gpu() -> str:
    """The name in nvidia-smi of the first GPU that is visible to CUDA."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"


def _tool(name: str) -> str | None:
    """The line of a tool's output that has its version."""
    if not shutil.which(name):
        return None
    lines = _output(name, "--version").splitlines()
    return next((line for line in lines if "ersion" in line or "elease" in line), lines[-1] if lines else "")


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{UNKNOWN} ({type(error).__name__})"
    return (done.stdout or done.stderr).strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cudnn() -> Any:
    import torch

    return torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--small" in sys.argv))
