"""Kernels of profiler files, their device, and their points on its roofline."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from roofmodel.devices.device import Device, Hardware
from roofmodel.devices.parts import Pipe
from roofmodel.errors import Command, Message, Option, ProfileError, Text, WorkloadError, ignored, warnings_in
from roofmodel.files.text_files import display_names, expand, rename_files
from roofmodel.numbers import units
from roofmodel.options.values import Numbers
from roofmodel.options.workload import non_default_options
from roofmodel.plot.above_roof import finding_warnings, with_findings
from roofmodel.plot.ncu_command import collection_advice, collection_warnings
from roofmodel.plot.stated_flops import StatedFlops, refuse_unused, stated_flops, with_stated_flops
from roofmodel.profiles.kernel import Flops, Kernel, KernelTable, Profile, Traffic
from roofmodel.roofline import points
from roofmodel.roofline.ceilings import Ceilings, choose_ceilings
from roofmodel.roofline.device import DeviceIdentification, identify
from roofmodel.roofline.formats import pipes_in_use
from roofmodel.roofline.inputs import DeviceRun, read_runs
from roofmodel.roofline.judged_kernels import JUDGED, collecting, not_judged, reasons_by_group
from roofmodel.roofline.launches import InstructionPoint, instruction_points

if TYPE_CHECKING:
    from roofmodel.roofline.counted_kernels import KernelWork
    from roofmodel.steps.estimate import Estimate

MAX_REASONS = 3  # why kernels have no FLOPs, in one warning
KERNELS = Command("'roof kernels'", "roofmodel.read_profile")


class Roofline(NamedTuple):
    """The ceilings of one device, and the points below them."""

    identification: DeviceIdentification
    ceilings: Ceilings
    files: tuple[str, ...]  # their names in results
    points: tuple[points.Point, ...]
    pipes: tuple[Pipe, ...]  # in use, by falling peak; does not depend on the grouping of the kernels
    predicted: Estimate | str = ""  # the estimate of the predicted points, or the textbook kernels
    counted: bool = False  # FLOPs and bytes are counted from the shapes of operators
    not_judged: tuple[str, ...] = ()  # the titles of the reasons that the files' counters cannot tell
    instructions: tuple[InstructionPoint, ...] = ()  # of the instruction roofline
    collecting: str = ""  # what collects the counters of these reasons

    @property
    def device(self) -> Device:
        """The device with the ceilings of this roofline."""
        return self.ceilings.device


class RooflinePlot(NamedTuple):
    """The content of a roofline plot: one roofline per device, and the name of the predicted model."""

    rooflines: tuple[Roofline, ...]
    model: str | None
    warnings: tuple[Text, ...]
    by: str = "name"  # the grouping of the kernels
    notes: tuple[Text, ...] = ()  # about options that do not apply
    instructions: bool = False  # whether the instruction roofline is shown
    regions: bool = False  # whether the picture shows the regions of the roofline
    hide_answers: bool = False  # whether the picture has no bounds and values

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(file for roofline in self.rooflines for file in roofline.files)

    @property
    def stem(self) -> str:
        """The default file name of the picture, without suffix: the first file's name, else the model's."""
        name = self.files[0] if self.files and self.files[0] != "standard input" else self.model or "kernels"
        return name.rpartition("/")[2].replace(", ", "-")


def place(
    files: Sequence[str],
    hw: Hardware | None = None,
    *,
    by: str = "name",
    model: str | None = None,
    family: str | None = None,
    workload: Mapping[str, Any] | None = None,
    times: Sequence[str] = (),
    clock: str = "boost",
    ceilings: str = "datasheet",
    flops: Sequence[str] = (),
    n: Numbers | None = None,
    line: str | None = None,
    size: Mapping[str, object] | Sequence[str] = (),
    instructions: bool = False,
) -> RooflinePlot:
    """Measured kernels (FILE or FILE@HW), grouped `by`, and a model's operators on each device, as points.

    Instead of a model, `model` lists textbook kernels, or `line` states a kernel; see `textbook.requested`.
    Times of the files in `times` replace theirs; FLOPs that `flops` states (see `stated_flops`) replace measured ones;
    `clock` and `ceilings` are as for `choose_ceilings`. Raises RoofError for no input, an unknown device, a file that
    is not a profile, or `instructions` without their counters.
    """
    if instructions and not files:
        raise WorkloadError(Option("instructions"), " needs a profile of ncu: a model has no warp instructions")
    if not files and ((model is None and line is None) or hw is None):
        raise WorkloadError(
            "nothing to plot; give profiler files, or ", Option("model", "MODEL"), " ", Option("hw", "HW"), ", or both"
        )
    statements, used = stated_flops(flops), set[StatedFlops]()
    textbook, architecture, notes = None, None, list[Text]()
    if model is not None or line is not None or n is not None or size:  # measured kernels do not need the estimator
        from roofmodel.plot.textbook import requested
        from roofmodel.steps.textbook import load_model

        textbook, notes = requested(model, n, line, size, workload or {})
        architecture = None if model is None or textbook else load_model(model, family)
    rooflines: list[Roofline] = []
    if architecture is None and textbook is None:
        unused = [*(["family"] if family else []), *non_default_options(workload or {})]
        notes += [ignored(option, Message("there is no ", Option("model"))) for option in unused]
    warnings: list[Text] = []
    runs = read_runs(files, hw, times) if files else []
    names = display_names(file for run in runs for file in run.profile.files)
    for run in runs or [DeviceRun(hw, Profile("", (), KernelTable()))]:
        identification = identify(run.profile.evidence, run.hw, run.profile.files)
        may_be_locked = run.profile.tool == "ncu" and not times
        profile, works = run.profile, list["KernelWork"]()
        if profile.tool == "ncu" and not any(profile.kernels.seconds()):
            from roofmodel.profiles.ncu.rates import with_rates

            profile = replace(profile, kernels=with_rates(profile.kernels, profile.evidence, seconds=1.0))
        only_rates = profile.kernels is not run.profile.kernels
        chosen = choose_ceilings(identification.device, clock, ceilings, profile.kernels, may_be_locked)
        if profile.tool == "torch":  # which records shapes
            from roofmodel.roofline.counted_kernels import with_counts

            profile, works = with_counts(profile, chosen.device)
        judged = reasons_by_group(run.profile if only_rates else profile, identification.device, by) if files else {}
        missing = tuple(not_judged(profile, identification.device)) if files else ()
        warps = tuple(instruction_points(profile.kernels.longest(JUDGED), by, chosen.device, chosen.clock))
        if statements:
            profile, remarks, matched = with_stated_flops(profile, statements, chosen.device)
            notes += remarks
            used |= matched
        placed_points, point_warnings = (
            _measured_points(profile, by, identification, chosen, run.hw, instructions) if files else ([], [])
        )
        point_warnings += _count_warnings(profile, works)
        placed_points = [point._replace(reasons=tuple(judged.get(point.name, ()))) for point in placed_points]
        if only_rates:
            placed_points = [point._replace(seconds=None, share=None) for point in placed_points]
        single = placed_points if by == "name" else points.points(_groups(profile, "name"), chosen.device)
        report: Estimate | str = ""
        run_warnings: list[Text] = [*run.profile.warnings, *identification.warnings, *chosen.notes, *point_warnings]
        if architecture is not None:
            from roofmodel.steps.estimate import estimate

            report = estimate(architecture, chosen.device, **(workload or {}))
            predicted = points.predicted_points(report)
            placed_points, single = [*placed_points, *predicted], [*single, *predicted]
            run_warnings += warnings_in(report.notes)
        if textbook:
            predicted, report = textbook.points(chosen.device), textbook.description(chosen.device)
            placed_points, single = [*placed_points, *predicted], [*single, *predicted]
        pipes = tuple(pipes_in_use(single, chosen.device))
        shown_files = tuple(names[file] for file in run.profile.files)
        rooflines.append(
            Roofline(
                identification,
                chosen,
                shown_files,
                tuple(placed_points),
                pipes,
                report,
                bool(works),
                missing,
                warps,
                collecting(run.profile, identification.device),
            )
        )
        device = f"{identification.device.id}: " if len(runs) > 1 else ""
        run_warnings = [rename_files(text, names) for text in run_warnings]
        warnings += [Message(device, text) if device else text for text in run_warnings]
    if instructions and not any(roofline.instructions for roofline in rooflines):
        raise ProfileError(
            f"{', '.join(list(names.values())[:3])}: no kernel has the counters of the instruction roofline: collect "
            "smsp__inst_executed.sum, dram__bytes.sum and gpu__time_duration.sum, or use ncu --set full"
        )
    refuse_unused(statements, used, (name for run in runs for name in run.profile.kernels.distinct("name")))
    if architecture is not None and os.path.exists(expand(str(model))):
        model = architecture.name
    model = textbook.title if textbook else model
    return RooflinePlot(tuple(rooflines), model, tuple(warnings), by, tuple(notes), instructions)


def _measured_points(
    profile: Profile,
    by: str,
    identification: DeviceIdentification,
    ceilings: Ceilings,
    hw: Hardware | None,
    instructions: bool,
) -> tuple[list[points.Point], list[Text]]:
    """A profile's points, and warnings about them. Raises ProfileError if no kernel has a point and one is needed."""
    groups = _groups(profile, by)
    placed_points = points.points(groups, ceilings.device)
    if profile.tool == "torch":  # which has no counters
        placed_points = [point._replace(counted=True) for point in placed_points]
    if not instructions and all(point.intensity is None for point in placed_points):
        raise ProfileError(
            f"{', '.join(profile.files[:3])}: no kernel can be placed on a roofline: {_missing_input(profile)}; "
            f"{KERNELS} lists the kernels; ",
            collection_advice(hw or identification.known_name),
        )
    placed_points = with_findings(placed_points, groups, profile.evidence, identification, ceilings)
    return placed_points, [
        *_omission_warnings(profile, placed_points),
        *collection_warnings(profile, hw, identification),
        *finding_warnings(placed_points, ceilings),
    ]


def _groups(profile: Profile, by: str) -> list[Kernel]:
    """The kernels of a profile by group, longest first; kernels whose FLOPs could not be counted apart."""
    if profile.tool != "torch":
        return [*points.group(profile.kernels, by)]
    sizes = profile.kernels.cells("dram")
    sides = ([row for row, size in enumerate(sizes) if (size is None) is unknown] for unknown in (False, True))
    groups = [group for rows in sides for group in points.group(profile.kernels.select(rows), by)]
    return sorted(groups, key=lambda group: -(group.seconds or 0))


def _count_warnings(profile: Profile, works: Sequence[KernelWork]) -> list[Text]:
    """That FLOPs and bytes are counted, and why some kernels have none."""
    if not works:
        return []
    unknown: dict[str, list[float]] = {}
    seconds = [each or 0 for each in profile.kernels.seconds()]
    for time, work in zip(seconds, works, strict=True):
        if work.reason is not None:
            unknown.setdefault(work.reason, []).append(time)
    notes: list[Text] = [
        "FLOPs and bytes are counted from the recorded shapes of operators, not measured: DRAM traffic differs where "
        "tensors stay in a cache or are read more than once"
    ]
    if unknown:
        total = sum(seconds)
        share = sum(map(sum, unknown.values())) / total if total else 0
        reasons = sorted(unknown.items(), key=lambda item: -sum(item[1]))
        listed = "; ".join(f"{reason} ({len(times)})" for reason, times in reasons[:MAX_REASONS])
        more = f"; and {len(reasons) - MAX_REASONS} more" if len(reasons) > MAX_REASONS else ""
        number = sum(map(len, unknown.values()))
        notes.append(
            f"omitted: {number} of {units.count(len(works), 'kernel')} ({share:.0%} of the time) without FLOPs and "
            f"bytes: {listed}{more}"
        )
    return notes


def _missing_input(profile: Profile) -> str:
    """The reason if no kernel of a profile can be drawn."""
    if not len(profile.kernels):
        return "the file has no kernels"
    if profile.tool == "torch":
        if any(call and call.inputs for call in profile.kernels.cells("call")):
            return "FLOPs and bytes of none of its operators can be counted from their shapes"
        return (
            "the trace has no shapes of operators, from which FLOPs and bytes are counted; record them with "
            "`torch.profiler.profile(record_shapes=True)`"
        )
    if not any(any(value is not None for value in profile.kernels.cells(level)) for level in Traffic._fields):
        return "no bytes were collected"
    if not any(any(value is not None for value in profile.kernels.cells(pipe)) for pipe in Flops._fields):
        return "no FLOPs were collected"
    return "no kernel has FLOPs, bytes and a time"


def _omission_warnings(profile: Profile, placed_points: Sequence[points.Point]) -> list[Text]:
    """Warnings about kernels without a point and about points that are lower bounds."""
    notes: list[Text] = []
    seconds, launches_of = profile.kernels.seconds(), profile.kernels.launches()
    timeless = sum(number for number, time in zip(launches_of, seconds, strict=True) if time is None)
    if timeless:
        launches = units.count(timeless, "kernel launch", "es")
        notes.append(f"omitted: {launches} without a time; collect gpu__time_duration.sum")
    instant = sum(number for number, time in zip(launches_of, seconds, strict=True) if time == 0)
    if instant:
        launches = units.count(instant, "kernel launch", "es")
        notes.append(f"omitted: {launches} with a time of 0, because FLOP/s is undefined")
    if any(point.incomplete for point in placed_points):
        notes.append(
            "FLOPs of some pipes (such as tensor cores) were not counted: values marked ≥ (in the picture with an "
            "arrow) are lower bounds"
        )
    return notes
