"""Profiler files, read and placed: which kernels, on which device, and where they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roofmodel import units
from roofmodel.devices.device import Device
from roofmodel.errors import Message, Option, ProfileError, Text, WorkloadError, ignored, warnings_in
from roofmodel.models import hub
from roofmodel.profiles.kernel import NO_FLOPS, NO_TRAFFIC, Kernel, Profile
from roofmodel.profiles.ncu.metric_catalog import CHIPS
from roofmodel.study.estimate.estimate import Estimate, estimate
from roofmodel.study.estimate.options import given
from roofmodel.study.profile import inputs as runs
from roofmodel.study.profile import points
from roofmodel.study.profile.above_roof import explained, lines
from roofmodel.study.profile.ceilings import Conditions, settle
from roofmodel.study.profile.device import Identified, UnknownDevice, identify
from roofmodel.study.profile.ncu_command import advice
from roofmodel.study.profile.points import incomplete


class Measured(NamedTuple):
    """A device's profile; `identified` is None where nothing tells the device and nothing needs it."""

    profile: Profile
    identified: Identified | None


class Kernels(NamedTuple):
    """What several files hold: a profile a device, and what they leave open."""

    runs: tuple[Measured, ...]
    warnings: tuple[Text, ...]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Of all devices, one device after the other."""
        return tuple(kernel for run in self.runs for kernel in run.profile.kernels)

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(file for run in self.runs for file in run.profile.files)

    @property
    def tool(self) -> str:
        """The tool that wrote the files; `ncu, nsys` where devices were profiled with different ones."""
        return ", ".join(dict.fromkeys(run.profile.tool for run in self.runs))


def kernels(files: Sequence[str], hw: str | None, times: Sequence[str] = ()) -> Kernels:
    """Read profiler files (FILE or FILE@HW), `times` replacing their times.

    Raises ProfileError for what is no profile; a device that nobody knows is a warning here.
    """
    found: list[Measured] = []
    warnings: list[Text] = []
    for named, profile in runs.read(files, hw, times):
        warnings += profile.warnings
        try:
            identified = identify(profile.evidence, named, profile.files)
        except UnknownDevice as unknown:
            found.append(Measured(profile, None))
            warnings += [*_to_collect(profile, named, None), unknown.what]
        else:
            found.append(Measured(profile, identified))
            warnings += [*_to_collect(profile, named, identified.device), *identified.warnings]
    return Kernels(tuple(found), tuple(warnings))


class Roofline(NamedTuple):
    """One device: its roofs as drawn, and the points under them."""

    identified: Identified
    drawn: Conditions
    files: tuple[str, ...]
    points: tuple[points.Point, ...]
    predicted: Estimate | None = None  # what the predicted points are of

    @property
    def device(self) -> Device:
        """The device with the ceilings as drawn."""
        return self.drawn.device


class Placed(NamedTuple):
    """What one picture shows: a roofline a device, and the model that was predicted on each."""

    rooflines: tuple[Roofline, ...]
    model: str | None
    warnings: tuple[Text, ...]
    by: str = "name"  # what the kernels are grouped by
    notes: tuple[Text, ...] = ()  # on options that do not apply

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(file for roofline in self.rooflines for file in roofline.files)

    @property
    def stem(self) -> str:
        """What a picture of it is called: the first file's name, else the model's."""
        name = self.files[0] if self.files and self.files[0] != "standard input" else self.model or "kernels"
        return name.rpartition("/")[2]


def place(
    files: Sequence[str],
    hw: str | None = None,
    *,
    by: str = "name",
    model: str | None = None,
    family: str | None = None,
    workload: Mapping[str, Any] | None = None,
    times: Sequence[str] = (),
    clock: str = "boost",
    ceilings: str = "datasheet",
) -> Placed:
    """Measured kernels (FILE or FILE@HW), grouped `by`, and a model's operators on each device, as points.

    `times` are files with better times, `clock` and `ceilings` as `conditions.settle` takes them.
    Raises RoofError: no device is known, nothing is given, a file is no profile.
    """
    if not files and (model is None or hw is None):
        raise WorkloadError(
            "nothing to plot; give profiler files, or ",
            Option("model", "MODEL"),
            " ",
            Option("hw", "HW"),
            ", or all of them",
        )
    architecture = None if model is None else hub.load(model, family)
    rooflines: list[Roofline] = []
    idle = [*(["family"] if family else []), *given(workload or {}, used=())] if architecture is None else []
    unused = [ignored(option, Message("there is no ", Option("model"))) for option in idle]
    warnings: list[Text] = []
    read = runs.read(files, hw, times) if files else []
    for run in read or [runs.Run(hw, Profile("", (), ()))]:
        identified = identify(run.profile.evidence, run.hw, run.profile.files)
        counted = run.profile.tool == "ncu" and not times
        kernels: Sequence[Kernel] = run.profile.summed()
        if any(kernel.clock for kernel in kernels):
            kernels = run.profile.kernels  # each has its own
        drawn = settle(identified.device, clock, ceilings, kernels, may_be_locked=counted)
        found, said = _measured(run.profile, by, identified, drawn, run.hw) if files else ([], [])
        report = None
        said = [*run.profile.warnings, *identified.warnings, *drawn.notes, *said]
        if architecture is not None:
            report = estimate(architecture, drawn.device, **(workload or {}))
            found += points.predicted(report)
            said += warnings_in(report.notes)
        rooflines.append(Roofline(identified, drawn, run.profile.files, tuple(found), report))
        warnings += [Message(f"{identified.device.id}: ", text) for text in said] if len(read) > 1 else said
    return Placed(tuple(rooflines), model, tuple(warnings), by, tuple(unused))


def _measured(
    profile: Profile, by: str, identified: Identified, drawn: Conditions, hw: str | None
) -> tuple[list[points.Point], list[Text]]:
    """A profile's points under the roofs as drawn, and what is to be said of them."""
    groups = points.group(profile.summed(), by)
    found = points.points(groups, drawn.device)
    if all(point.intensity is None for point in found):
        raise ProfileError(
            f"{', '.join(profile.files[:3])}: nothing to place on a roofline, {_lacking(profile)}; 'roof kernels' "
            f"shows what there is; {advice(hw or identified.device.id)}"
        )
    found = explained(found, groups, profile.evidence, identified, drawn)
    return found, [*_missing(profile, found), *_to_collect(profile, hw, identified.device), *lines(found, drawn)]


def _lacking(profile: Profile) -> str:
    """What keeps every kernel of a profile off the roofline."""
    if not profile.kernels:
        return "for it holds no kernels"
    if all(kernel.bytes == NO_TRAFFIC for kernel in profile.summed()):
        return "for no bytes were collected"
    if all(kernel.flops == NO_FLOPS for kernel in profile.summed()):
        return "for no FLOPs were collected"
    return "for no kernel has FLOPs, bytes and a time"


def _missing(profile: Profile, found: Sequence[points.Point]) -> list[Text]:
    """Why a picture has fewer points than the file has kernels, and what to collect."""
    notes: list[Text] = []
    timeless = sum(kernel.invocations for kernel in profile.summed() if kernel.seconds is None)
    if timeless:
        them = f"{units.count(timeless, 'kernel launch', 'es')} without a time"
        notes.append(f"{them} left out; add the metric gpu__time_duration.sum")
    instant = sum(kernel.invocations for kernel in profile.summed() if kernel.seconds == 0)
    if instant:
        them = f"{units.count(instant, 'kernel launch', 'es')} of no time at all"
        notes.append(f"{them} left out: without time there is no FLOP/s")
    if any(point.incomplete for point in found):
        notes.append(
            "not all FLOPs were counted, on tensor cores or other pipes: what is marked (≥, in the picture an arrow) "
            "is a lower bound"
        )
    return notes


def _to_collect(profile: Profile, hw: str | None, device: Device | None) -> list[Text]:
    """How to collect what the counters of a profile lack; nothing where they lack nothing."""
    known = device is None or device.compute_capability in CHIPS
    lacking = any(
        None in (kernel.seconds, *kernel.bytes, kernel.flops.fp64, kernel.flops.fp32, kernel.flops.fp16)
        or incomplete(kernel.flops, device)
        for kernel in profile.summed()
    )
    return [advice(hw or (device.id if device else None))] if profile.tool == "ncu" and known and lacking else []
