"""`roof hw` and its functions: the known devices, and the validation of a device's YAML file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from roofmodel.catalog.models_command import Listing, containing_entries, none_contains
from roofmodel.devices.device import Device, Hardware, device_name
from roofmodel.errors import LIST_HARDWARE, DeviceError, Option, RoofError, Text, WorkloadError
from roofmodel.options.signature import checked
from roofmodel.options.values import PathLike, path
from roofmodel.report.base import RenderedResult, Result
from roofmodel.report.command import CommandCall, CommandGroup, CommandLine
from roofmodel.report.document import Document
from roofmodel.report.printing import print_text, remark


class DeviceListing(Listing):
    """Result of `show_hardware`: a device, which `save` also writes as a YAML file."""

    FILES: ClassVar[Sequence[str]] = ("yaml", *Result.FILES)

    def __init__(self, document: Document, yaml: Callable[[], str], notes: Sequence[Text] = ()) -> None:
        super().__init__(document, notes=notes)
        self._yaml = yaml

    def _write(self, form: str, file: Path) -> None:
        if form == "yaml":
            file.write_text(self._yaml() + "\n", encoding="utf-8")
        else:
            super()._write(form, file)


class HardwareCheck(RenderedResult):
    """Result of `check_hardware`: a valid device file, with warnings for doubtful entries."""

    def __init__(self, file: str, device: Device, doubts: Sequence[str]) -> None:
        self.file = file
        self.device = device
        self.doubts = tuple(doubts)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Entries that do not agree with others of the file."""
        return tuple(f"{self.file}: {doubt}" for doubt in self.doubts)

    def __str__(self) -> str:
        doubts = len(self.doubts)
        count = f", {doubts} warning{'s' if doubts > 1 else ''}" if doubts else ""
        return f"{self.file}: {self.device.name}: valid{count}"

    def __rich__(self) -> Any:
        return str(self)


@checked
def list_hardware(containing: str | None = None) -> Listing:
    """List the packaged devices.

    A file that cannot be read becomes a warning. Raises DeviceError where no name contains the text.

    Args:
        containing: List only devices whose name contains this text.

    Examples:
        >>> "a100-sxm-80gb" in [device["name"] for device in list_hardware().data]
        True
    """
    from roofmodel.catalog import answer
    from roofmodel.devices import library

    devices, warnings = [], []
    for name in library.names():
        try:
            devices.append(Device.load(name))
        except RoofError as error:  # one invalid file of the user must not hide the others
            warnings.append(str(error))
    if containing is not None:
        chosen = containing_entries(containing, devices, lambda device: (device.id, device.name))
        if not chosen:
            names = (*library.ALIASES, *(device.id for device in devices))
            raise DeviceError(*none_contains("device", containing, names, LIST_HARDWARE))
        devices = chosen
    return Listing(answer.devices(devices, library.ALIASES), warnings=warnings)


def show_hardware(hw: Hardware | None = None, *, profile: PathLike | None = None) -> DeviceListing:
    """Show the ceilings of a device, with their sources.

    Raises RoofError.

    Args:
        hw: A packaged name or a YAML file.
        profile: Show the device of a profiler file. If no device file describes it, its ceilings are derived from the
            profile.

    Examples:
        >>> show_hardware("a100").data["name"]
        'NVIDIA A100 SXM4 80 GB'
    """
    from roofmodel.catalog import answer
    from roofmodel.devices import library
    from roofmodel.devices.derived import device_yaml

    if (hw is None) == (profile is None):
        raise WorkloadError("give either a device or a profiler file with ", Option("profile", "FILE"))
    if profile is None:
        assert hw is not None
        return DeviceListing(answer.device(Device.load(hw)), lambda: library.text(device_name(hw)))
    from roofmodel.roofline.device import identify
    from roofmodel.roofline.inputs import read_runs

    (run,) = read_runs([path("profile", profile)], None)
    identity = identify(run.profile.evidence, None, run.profile.files)
    device, name = identity.device, identity.known_name
    packaged = partial(library.text_at_clock, name or "", device.clocks.get("boost"))
    yaml = packaged if name else partial(device_yaml, device)
    return DeviceListing(answer.device(device), yaml, identity.warnings)


def check_hardware(file: PathLike) -> HardwareCheck:
    """Check a device's YAML file: units, names, sources, and whether its numbers are consistent.

    Raises DeviceError.

    Args:
        file: A device's YAML file.

    Examples:
        >>> check_hardware("examples/toy-gpu.yaml").warnings
        ()
    """
    from roofmodel.devices.ceilings import doubtful_entries

    device = Device.load(file)
    return HardwareCheck(os.fspath(file), device, doubtful_entries(device))


def _check(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    report = call()
    remark(report)
    print_text(str(report))


COMMAND = CommandGroup(
    "List and show the packaged devices, and check a device's YAML file.",
    (
        CommandLine(list_hardware, name="list", settings={"containing": {"metavar": "text"}}),
        CommandLine(show_hardware, name="show", settings={"profile": {"flags": ("--from",), "metavar": "FILE"}}),
        CommandLine(check_hardware, name="check", run=_check),
    ),
    examples=("roof hw list", "roof hw list h100", "roof hw show a100", "roof hw check own.yaml"),
)
