"""A run's files, read and placed: which kernels, on which device, and where they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roofmodel.devices import library
from roofmodel.errors import ProfileError, WorkloadError
from roofmodel.models import hub
from roofmodel.profiles import reading
from roofmodel.profiles.kernel import NO_FLOPS, NO_TRAFFIC, Profile
from roofmodel.study import points
from roofmodel.study.estimate import estimate
from roofmodel.study.identify import Identified, identify
from roofmodel.study.pairing import with_times


class Measured(NamedTuple):
    """A profile and its device; None where nothing tells the device and nothing needs it."""

    profile: Profile
    identified: Identified | None
    warnings: tuple[str, ...]


def kernels(paths: Sequence[str], hw: str | None, times: str | None = None) -> Measured:
    """Read profiler files, `times` replacing their times.

    Raises ProfileError for what is no profile; a device that nobody knows is a warning here.
    """
    profile = _read(paths, hw, times)
    try:
        identified = identify(profile.evidence, hw, profile.files)
    except ProfileError as unknown:
        return Measured(profile, None, (*profile.warnings, str(unknown)))
    return Measured(profile, identified, (*profile.warnings, *identified.warnings))


class Placed(NamedTuple):
    """Points under the roofs of a device, and the files and the model that they came from."""

    files: tuple[str, ...]
    model: str | None
    identified: Identified
    points: tuple[points.Point, ...]
    warnings: tuple[str, ...]

    @property
    def stem(self) -> str:
        """What a picture of it is called: the first file's name, else the model's."""
        name = self.files[0] if self.files and self.files[0] != "standard input" else self.model or "kernels"
        return name.rpartition("/")[2]


def place(
    paths: Sequence[str],
    hw: str | None,
    by: str,
    model: str | None = None,
    workload: Mapping[str, Any] | None = None,
    times: str | None = None,
) -> Placed:
    """Measured kernels, grouped `by`, and a model's operators, as points; `times` is a file with better times.

    Raises RoofError: no device is known, nothing is given, a file is no profile.
    """
    if not paths and (model is None or hw is None):
        raise WorkloadError("nothing to plot; give profiler files, or --model MODEL --hw HW, or all of them")
    profile = _read(paths, hw, times) if paths else None
    files = profile.files if profile else ()
    identified = identify(profile.evidence if profile else (), hw, files)
    found, warnings = [], [*identified.warnings]
    if profile:
        found += points.points(points.group(profile.kernels, by), identified.device)
        if all(point.intensity is None for point in found):
            raise ProfileError(
                f"{', '.join(files[:3])}: nothing to place on a roofline, {_lacking(profile)}; 'roof kernels' shows "
                f"what there is; {_COLLECT}"
            )
        warnings = [*profile.warnings, *warnings, *_missing(profile, found), *points.findings(found)]
    if model is not None:
        report = estimate(hub.load(model), identified.device, **(workload or {}))
        found += points.predicted(report)
        warnings += [note for note in report.notes if note.startswith("warning")]
    return Placed(files, model, identified, tuple(found), tuple(warnings))


def _read(paths: Sequence[str], hw: str | None, times: str | None) -> Profile:
    # An old export does not name its device; what its counters mean depends on the one that was given.
    generation = library.load(hw).compute_capability if hw is not None else None
    profile = reading.read(paths, generation)
    return profile if times is None else with_times(profile, reading.read([times]))


def _lacking(profile: Profile) -> str:
    """What keeps every kernel of a profile off the roofline."""
    if not profile.kernels:
        return "for it holds no kernels"
    if all(kernel.bytes == NO_TRAFFIC for kernel in profile.kernels):
        return "for no bytes were collected"
    if all(kernel.flops == NO_FLOPS for kernel in profile.kernels):
        return "for no FLOPs were collected"
    return "for no kernel has FLOPs, bytes and a time"


def _missing(profile: Profile, found: Sequence[points.Point]) -> list[str]:
    """Why a picture has fewer points than the file has kernels, and what to collect."""
    notes = []
    timeless = sum(kernel.invocations for kernel in profile.kernels if kernel.seconds is None)
    if timeless:
        notes.append(f"{timeless} kernel launches have no time and are left out; add the metric gpu__time_duration.sum")
    if any(point.incomplete for point in found):
        notes.append(
            "work on tensor cores was not counted: what is marked ≥, or has an arrow in the picture, is a lower bound"
        )
    return notes


_COLLECT = "collect with Nsight Compute: ncu --csv --page raw --set roofline"
