"""What the machine is and how it stands: device, driver, versions, limits of clock and power: environment.json."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from roofmodel.study.identify import GENERATION_ALIAS, UnknownDevice, identify
from roofmodel.study.stopwatch import Machine, machine

PACKAGES = ("torch", "transformers", "triton", "numpy", "roofmodel")
STATE = (
    "name", "driver_version", "vbios_version", "pstate", "persistence_mode", "ecc.mode.current", "mig.mode.current",
    "clocks.max.sm", "clocks.max.memory", "clocks.applications.graphics", "power.limit", "power.default_limit",
    "memory.total", "memory.used", "pcie.link.gen.current", "pcie.link.width.current",
)  # fmt: skip
VARIABLES = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "NVIDIA_TF32_OVERRIDE")


def main(folder: Path) -> None:
    """Each figure is asked for apart: an old driver lacks some, and a missing one must not cost the others."""
    watch = machine()
    document = {
        "schema": "roofmodel.environment/1",
        "device": {
            **{name: value for name, value in vars(watch.evidence).items() if value is not None},
            "types": watch.dtypes,
            "framework": watch.framework,
        },
        "hardware": hardware(watch),
        "state": {name: _state(name) for name in STATE} if shutil.which("nvidia-smi") else {},
        "host": {"cpu": _cpu(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.release()}"},
        "python": sys.version.split()[0],
        "packages": {name: _version(name) for name in PACKAGES},
        "cudnn": _cudnn(),
        "tools": {name: _tool(name) for name in ("ncu", "nsys", "nvprof", "nvcc")},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    (folder / "environment.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document, indent=1))


def read(folder: Path) -> dict[str, Any]:
    """What `main` has written, which it does now where it has not been asked to."""
    file = folder / "environment.json"
    if not file.exists():
        main(folder)
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


def hardware(watch: Machine) -> str | None:
    """What roof calls the device: the one that its attributes match, else the usual one of its generation."""
    try:
        return identify([watch.evidence], None, []).device.id
    except UnknownDevice:
        return GENERATION_ALIAS.get(watch.evidence.compute_capability or "")


def _state(name: str) -> str:
    return _output("nvidia-smi", "-i", gpu(), f"--query-gpu={name}", "--format=csv,noheader")


def gpu() -> str:
    """What nvidia-smi calls the first GPU that CUDA sees."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"


def _tool(name: str) -> str | None:
    """The line of what a tool says of itself that holds its version."""
    if not shutil.which(name):
        return None
    lines = _output(name, "--version").splitlines()
    return next((line for line in lines if "ersion" in line or "elease" in line), lines[-1] if lines else "")


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({type(error).__name__})"
    return (done.stdout or done.stderr).strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cudnn() -> Any:
    import torch

    return torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None


def _cpu() -> str:
    from roofmodel.study.stopwatch import Cpu

    return Cpu().evidence.name or platform.machine()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
