"""The contents of a collected folder: `python -m benchmarks.collect.report FOLDER [HW]`. HW is the device's name or
YAML file, if the folder does not name it.

Prints the parts and their outcomes, measured and datasheet ceilings, measured, bound and expected times of models, and
roof commands for the next steps.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roofmodel.devices.device import Device
from roofmodel.errors import RoofError
from roofmodel.models import hub
from roofmodel.numbers.units import seconds, si
from roofmodel.steps.estimate import estimate
from roofmodel.steps.phase import PhaseEstimate


def main(folder: Path, hw: str | None = None) -> None:
    """Print the report. Raises RoofError for an unknown device."""
    environment = _json(folder / "environment.json")
    hw = hw or environment.get("hardware")
    print(f"{environment.get('device', {}).get('name', 'unknown device')}, {hw or 'not in hardware/'}\n")
    for part in _json(folder / "manifest.json").get("parts", []):
        took = f" in {part['seconds']:.0f} s" if "seconds" in part else ""
        why = f": {part['message']}" if part.get("message") else ""
        print(f"{part['name']:<20} {part['status']}{took}{why}")
    device = Device.load(hw) if hw else None
    for lines in (ceilings(folder, device), models(folder, device), next_steps(folder, hw or "HW")):
        print()
        for line in lines:
            print(line)


def ceilings(folder: Path, device: Device | None) -> Iterator[str]:
    """Each figure, and its share of the datasheet value."""
    for each in _json(folder / "ceilings.json").get("ceilings", []):
        name, unit = each["ceiling"], each["unit"]
        value = seconds(each["value"]) if unit == "s" else si(each["value"], unit)
        datasheet = None
        if device is not None:
            level = device.levels.get(name)
            compute_pipe = device.pipes.get(pipe(name, device.compute_capability))
            datasheet = level.bandwidth if level else compute_pipe.peak if compute_pipe else None
        part = f"{each['value'] / datasheet:6.0%} of {si(datasheet, unit)}" if datasheet else ""
        clock = f"at {each['sm_mhz']:.0f} MHz" if "sm_mhz" in each else ""
        yield f"{name:<8} {each['by']:<18} {value:>14} {part:<26} {clock}".rstrip()


def pipe(dtype: str, capability: str | None) -> str:
    """The pipe of a type: a tensor pipe, except for fp32 and for fp64 on GPUs whose tensor cores are not faster."""
    if capability is None or dtype == "fp32" or (dtype == "fp64" and capability not in ("8.0", "9.0")):
        return dtype
    return f"tensor_{dtype}"


def models(folder: Path, device: Device | None) -> Iterator[str]:
    """Measured time of each step, its bound, and its expected time (kernels, and host launches in eager mode)."""
    columns = "".join(f"{name:>10}" for name in ("measured", "bound", "expected"))
    yield f"{'model':<11} {'phase':<8} {'runtime':<7} {'batch':>5}{columns}  error"
    for row in _steps(folder):
        head = f"{row['model']:<11} {row['phase']:<8} {row['runtime']:<7} {row['batch']:>5}"
        yield f"{head} {_compared(row, folder, device)}"


def _compared(row: dict[str, str], folder: Path, device: Device | None) -> str:
    if not row["seconds"]:
        return row["status"]
    measured = float(row["seconds"])
    if device is None:
        return f"{seconds(measured):>9}"
    try:
        phase = predicted(row, folder, device)
    except RoofError as error:
        return f"{seconds(measured):>9} {error}"
    expected = phase.expected if row["runtime"] == "eager" else phase.kernel_seconds
    bound = f"{seconds(measured):>9} {seconds(float(phase.bound_seconds)):>9}"
    if expected is None:
        return bound
    return f"{bound} {seconds(float(expected.value)):>9} {expected.value / measured - 1:+7.0%}"


def predicted(row: dict[str, str], folder: Path, device: Device) -> PhaseEstimate:
    """The estimate of the step, from the config of the measured model."""
    numbers = {name: int(row[name]) for name in ("batch", "seq", "context", "image") if row[name]}
    arch = hub.load(folder / row["config"])
    return estimate(arch, device, phase=row["phase"], dtype=row["dtype"], **numbers).phases[0]


def next_steps(folder: Path, hw: str) -> Iterator[str]:
    """Commands for the existing files."""
    for table in sorted(folder.glob("operators-*.csv")):
        yield f"roof validate {table} --hw {hw}"
    if cold := sorted(folder.glob("operators-[!w]*.csv")):
        yield f"roof calibrate {' '.join(map(str, cold))} --hw {hw} -o my-{Path(hw).stem}.yaml"
    for counters in sorted(folder.glob("ncu-*.raw-base.csv")):
        yield f"roof plot {counters} --hw {hw} --by nvtx"
    first: dict[tuple[str, str], dict[str, str]] = {}
    for row in _steps(folder):  # the first of each phase was traced, and profiled by ncu on two layers
        first.setdefault((row["model"], row["phase"]), row)
    for (model, phase), row in first.items():
        options = [
            f"--{name} {row[name]}" for name in ("phase", "batch", "seq", "context", "image", "dtype") if row[name]
        ]
        files = {
            row["config"]: folder / f"trace-{model}-{phase}.json.gz",
            f"configs/{model}-2-layers.json": folder / f"ncu-{model}-{phase}.raw-base.csv",
        }
        for config, file in files.items():
            if file.exists():
                yield f"roof compare {folder / config} {file} --hw {hw} {' '.join(options)}"


def _steps(folder: Path) -> Iterator[dict[str, str]]:
    """The rows of all models' tables."""
    for file in sorted(folder.glob("model-*.csv")):
        with file.open(newline="", encoding="utf-8") as text:
            yield from (row for row in csv.DictReader(text) if None not in row.values())  # not a partial row


def _json(file: Path) -> dict[str, Any]:
    """A document of the folder; empty if its part did not write it."""
    try:
        document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return document


def command(arguments: list[str] | None = None) -> int:
    """Exit status 2, with the reason on stderr, for an unknown folder or device."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.collect.report", description="Print the results of a folder."
    )
    parser.add_argument("folder", type=Path, help="folder of collect_gpu.sh; unpack a .tar.gz first")
    parser.add_argument("hw", nargs="?", help="device name or YAML file (default: as in the folder)")
    options = parser.parse_args(arguments)
    if not (options.folder / "manifest.json").exists():
        packed = "; unpack it with tar xzf" if options.folder.is_file() else ""
        print(f"{options.folder}: not a folder of the kit, because it has no manifest.json{packed}", file=sys.stderr)
        return 2
    try:
        main(options.folder, options.hw)
    except RoofError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(command())
