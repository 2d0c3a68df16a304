"""Fit the parameters of every measured device again: `python -m benchmarks.fit FOLDER [DEVICE…] [--kind KIND…]`.

FOLDER has the tables of measured operations. `hardware/fitted/DEVICE.yaml` is written whole; with `--kind`, the other
kinds stay as they are. Sets of other sources stay: of collectives over PCIe and networks, and of convolutions.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from roofmodel.devices import library
from roofmodel.devices.calibration import TIMINGS, Calibration
from roofmodel.devices.calibration_writer import fitted_file
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.measure.calibrate import calibrate

AICONFIGURATOR = "aiconfigurator@095f58a5"
SPARSE_PARTS = {
    stem: tuple(f"sparse/aic_{stem}_{op}.csv.gz" for op in ("mqa_logits", "topk", "mhc", "kda"))
    for stem in ("h100_sxm", "b200_sxm")
}
TABLES = {
    "a100-sxm-80gb": {
        AICONFIGURATOR: ("aic_a100_sxm_*",),
        "microsoft/vidur@7d475133": ("vidur_a100_elementwise*",),
    },
    "h100-sxm": {AICONFIGURATOR: ("aic_h100_sxm_*", *SPARSE_PARTS["h100_sxm"])},
    "b200": {AICONFIGURATOR: ("aic_b200_sxm_*", *SPARSE_PARTS["b200_sxm"])},
    "b300": {AICONFIGURATOR: ("aic_b300_sxm_*",)},
    "gb200": {AICONFIGURATOR: ("aic_gb200_*",)},
    "l40s": {AICONFIGURATOR: ("aic_l40s_*",)},
    "rtx-pro-6000-server": {AICONFIGURATOR: ("aic_rtx_pro_6000_server_*",)},
    "v100-sxm2-32gb": {"DeepBench@da81ba78": ("deepbench_v100_gemm*",)},
}
"""The measured devices; the source of their tables, and the tables by name."""


def refit(folder: Path, name: str, kinds: tuple[str, ...]) -> list[str]:
    """Fit the sets of these kinds of a device to its tables, and write its file; the errors, one line a set."""
    device, start, remarks = Device.load(name), time.perf_counter(), list[str]()
    sources = TABLES[name]
    sets: dict[str, Any] = {kind: {} for kind in TIMINGS}
    for source, patterns in sources.items():
        paths = [str(path) for pattern in patterns for path in sorted(folder.glob(pattern))]
        try:
            fitted = calibrate(paths, replace(device, calibration=None), source, kinds=kinds)
        except WorkloadError as error:  # these tables have no operations of the kinds
            remarks.append(f"{source}: {error}")
            continue
        remarks += fitted.remarks
        for kind in kinds:
            for kernel, forms in getattr(fitted.fitted, kind).items():
                sets[kind].setdefault(kernel, {}).update(forms)
    # after the fitted ones
    for kind, kernel, key, fitted_set in device.calibration.sets() if device.calibration else ():
        if kind not in kinds or fitted_set.fit.source not in sources:
            sets[kind].setdefault(kernel, {})[key] = fitted_set
    for kind in kinds:  # the default implementation stays the first
        before = [*getattr(device.calibration, kind, {})]
        sets[kind] = dict(
            sorted(sets[kind].items(), key=lambda item: before.index(item[0]) if item[0] in before else len(before))
        )
    calibration = Calibration(name, **sets)
    path = library.shipped_folder() / "fitted" / f"{name}.yaml"
    path.write_text(fitted_file(name, calibration), encoding="utf-8")
    return [f"{name}: {time.perf_counter() - start:.0f} s", *lines(calibration), *remarks]


def lines(calibration: Calibration) -> Iterator[str]:
    """The errors of the sets of a device, one line each."""
    for kind, kernel, key, (_, fit) in calibration.sets():
        yield (
            f"  {kind} {kernel} {key}: {fit.error:.1%} of {fit.held_out} rows of models that the fit did not use, "
            f"interval {fit.low:.2f} to {fit.high:.2f}"
        )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("devices", nargs="*", metavar="DEVICE", default=[*TABLES])
    parser.add_argument("--kind", action="append", choices=[*TIMINGS], dest="kinds")
    arguments = parser.parse_args()
    kinds = tuple(arguments.kinds or TIMINGS)
    names = [library.find(name).stem for name in arguments.devices]
    with ProcessPoolExecutor() as pool:
        for error_lines in pool.map(refit, [arguments.folder] * len(names), names, [kinds] * len(names)):
            sys.stdout.write("\n".join(error_lines) + "\n")


if __name__ == "__main__":
    main()
