"""Which files belong together, and to which device: FILE, FILE@HW, and --hw for those that name none.

The files of one device are one run: they are read together, and those of one metric each are joined. Files that
name no device, where --hw names none either, are one run as well, which must tell its device itself.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roofmodel.devices import library
from roofmodel.errors import DeviceError, Option, WorkloadError
from roofmodel.profiles import reading
from roofmodel.profiles.kernel import Profile
from roofmodel.study.profile.times import with_times


class Run(NamedTuple):
    """What one device did: the device's name as given (None: the files must tell it), and what was read."""

    hw: str | None
    profile: Profile


def read(files: Sequence[str], hw: str | None, times: Sequence[str] = ()) -> list[Run]:
    """Profiler files as a run a device, in the order given; `times` are files whose times replace theirs.

    Raises RoofError for no files, what is no profile, a device that is not known, times of a device without counters.
    """
    if not files:
        raise WorkloadError("no files; give those that a profiler wrote: of Nsight Compute or Systems, nvprof, PyTorch")
    if hw is not None:
        library.load(hw)  # a slip is one, even where every file names a device of its own
    counted, timed = _by_device(files, hw), _by_device(times, hw)
    if len(counted) == 1 and len(timed) == 1:
        timed = dict(zip(counted, timed.values(), strict=True))
    for device, stray in timed.items():
        if device not in counted:
            known = ", ".join(filter(None, counted))
            raise WorkloadError(
                Option("times", stray[0]),
                ": the device of these times is unclear; name one as in ",
                Option("times", "FILE@HW"),
                f"; the profiler files are of {known or 'a device without a name'}",
            )
    runs = []
    for device, paths in counted.items():
        # An old export does not name its device; what its counters mean depends on the one that was given.
        profile = reading.read(paths, library.load(device).compute_capability if device else None)
        if device in timed:
            profile = with_times(profile, reading.read(timed[device]))
        runs.append(Run(device, profile))
    return runs


def _by_device(files: Iterable[str], hw: str | None) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for file in files:
        path, device = split(file)
        device = hw if device is None else device
        found.setdefault(device and library.ALIASES.get(device.lower(), device), []).append(path)
    return found


def split(file: str) -> tuple[str, str | None]:
    """`a.csv@v100` -> (`a.csv`, `v100`); (`a.csv`, None) for a name without a device.

    A file or pattern that exists under the whole name is that file. Raises DeviceError for a device that is unknown.
    """
    path, at, device = file.rpartition("@")
    if not at or os.path.exists(file) or (glob.has_magic(file) and glob.glob(file, recursive=True)):
        return file, None
    if not path or not device:
        raise WorkloadError(f"{file}: there is no such file, and FILE@HW wants both, as in a.csv@v100")
    try:
        library.load(device)
    except DeviceError as error:
        raise DeviceError(f"{file}: there is no such file, and as FILE@HW: {error}") from None
    return path, device
