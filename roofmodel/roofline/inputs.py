"""Profiler files by device, given as FILE@HW or FILE with --hw, and times that replace those of their kernels.

The files of one device are one run: they are read together, and files of one metric each are joined. Files without a
given device are one run, whose device must follow from the files.

Collecting counters slows a run down, so its times may come from another run. Launches are matched in order among those
with the same base name, grid and block. Full names do not match, because tools write template arguments differently. If
the numbers of such launches differ, each gets their mean time.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from roofmodel.devices import library
from roofmodel.devices.device import Device, Hardware, device_name
from roofmodel.errors import DeviceError, Option, ProfileError, WorkloadError
from roofmodel.profiles import reading
from roofmodel.profiles.kernel import Kernel, Profile, ReaderWarning
from roofmodel.roofline.categories import base_name


class DeviceRun(NamedTuple):
    """The profile of one device, and the device as given (None: not given)."""

    hw: Hardware | None
    profile: Profile


def read_runs(files: Sequence[str], hw: Hardware | None, times: Sequence[str] = ()) -> list[DeviceRun]:
    """Read profiler files: one run per device, in the given order; times of the files in `times` replace theirs.

    Raises RoofError for no files, a file that is not a profile, an unknown device, times without a device to match.
    """
    if not files:
        raise WorkloadError(
            "no files given; expected files of Nsight Compute, Nsight Systems, nvprof or the PyTorch profiler"
        )
    if hw is not None:
        Device.load(hw)  # raises for an unknown device, even if every file has its own FILE@HW
    default_device = None if hw is None else device_name(hw)
    counted, timed = _by_device(files, default_device), _by_device(times, default_device)
    if len(counted) == 1 and len(timed) == 1:
        timed = dict(zip(counted, timed.values(), strict=True))
    for device, stray in timed.items():
        if device not in counted:
            devices = ", ".join(filter(None, counted))
            raise WorkloadError(
                Option("times", stray[0]),
                ": the device of these times is unclear; name one as in ",
                Option("times", "FILE@HW"),
                f"; the profiler files are of {devices or 'a device without a name'}",
            )
    runs = []
    for name, paths in counted.items():
        run_device = hw if isinstance(hw, Device) and name == hw.id else name
        # The meaning of some counters depends on the device, which old exports do not name.
        profile = reading.read(paths, Device.load(run_device).compute_capability if run_device else None)
        if name in timed:
            profile = with_times(profile, reading.read(timed[name]))
        runs.append(DeviceRun(run_device, profile))
    return runs


def _by_device(files: Iterable[str], hw: str | None) -> dict[str | None, list[str]]:
    by_device: dict[str | None, list[str]] = {}
    for file in files:
        path, device = split_device(file)
        by_device.setdefault(_resolved(hw if device is None else device), []).append(path)
    return by_device


def _resolved(device: str | None) -> str | None:
    """The name of a device in place of its alias."""
    return device and library.ALIASES.get(device.lower(), device)


def split_device(file: str) -> tuple[str, str | None]:
    """`a.csv@v100` -> (`a.csv`, `v100`); (`a.csv`, None) for a name without a device.

    An existing file or pattern with @ in its name is that file. Raises DeviceError for an unknown device.
    """
    path, at, device = file.rpartition("@")
    if not at or os.path.exists(file) or (glob.has_magic(file) and glob.glob(file, recursive=True)):
        return file, None
    if not path or not device:
        raise WorkloadError(f"{file}: no such file; FILE@HW needs a file and a device, as in a.csv@v100")
    try:
        Device.load(device)
    except DeviceError as error:
        raise DeviceError(f"{file}: no such file; read as FILE@HW: ", *error.args) from None
    return path, device


Key = tuple[object, ...]


def with_times(counted: Profile, timed: Profile) -> Profile:
    """The kernels of `counted` with the times and clocks of `timed`, and warnings about launches without a match.

    A kernel without a match keeps its own time. Warnings that do not apply to the result are dropped: about times of
    `counted`, about counters of `timed`. Raises ProfileError if no kernel has a match.
    """
    shapes = all(kernel.grid and kernel.block for kernel in (*counted.kernels, *timed.kernels))
    times = _by_key(timed.kernels, shapes)
    rows: list[int] = []  # of `counted`, with their times and clocks
    seconds: list[float | None] = []
    clocks: list[float | None] = []
    averaged, unmatched = 0, 0
    for key, launches in _by_key(counted.kernels, shapes).items():
        matches = [kernel for kernel in times.get(key, []) if kernel.seconds is not None]
        rows += (kernel.row for kernel in launches)
        if not matches:
            unmatched += sum(kernel.invocations for kernel in launches)
            seconds += (kernel.seconds for kernel in launches)
            clocks += (kernel.clock for kernel in launches)
            continue
        counted_launches, timed_launches = (sum(kernel.invocations for kernel in side) for side in (launches, matches))
        if len(launches) == len(matches) and counted_launches == timed_launches:
            seconds += (kernel.seconds for kernel in matches)
            clocks += (kernel.clock for kernel in matches)
        else:
            averaged += counted_launches
            mean = sum(kernel.seconds or 0 for kernel in matches) / timed_launches
            seconds += (mean * kernel.invocations for kernel in launches)
            clocks += (None for kernel in launches)
    kernels = counted.kernels.select(rows)
    kernels.set("seconds", seconds)
    kernels.set("clock", clocks)
    total = sum(counted.kernels.launches())
    if unmatched == total:
        raise ProfileError(
            f"{', '.join(timed.files)}: no kernel has the name{', grid and block' if shapes else ''} of a kernel in "
            f"{', '.join(counted.files)}; give times of the same program"
        )
    warnings = []
    if averaged:
        warnings.append(
            f"{averaged} of {total} launches have the mean time of launches with the same name"
            f"{', grid and block' if shapes else ''}: the number of launches differs between the two runs"
        )
    if unmatched:
        files = ", ".join(timed.files)
        warnings.append(f"{unmatched} of {total} launches have no match in {files} and keep their own time")
    return replace(
        counted,
        files=(*counted.files, *timed.files),
        kernels=kernels,
        evidence=(*counted.evidence, *timed.evidence),
        warnings=(
            *(warning for warning in counted.warnings if unmatched or warning.category != "times"),
            *(warning for warning in timed.warnings if warning.category != "counters"),
            *(ReaderWarning(text, "times") for text in warnings),
        ),
    )


def _by_key(kernels: Iterable[Kernel], shapes: bool) -> dict[Key, list[Kernel]]:
    by_key: dict[Key, list[Kernel]] = {}
    for kernel in kernels:
        name = base_name(kernel.name)
        by_key.setdefault((name, kernel.grid, kernel.block) if shapes else (name,), []).append(kernel)
    return by_key
