"""The kernels of profiler files, by device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from roofmodel.devices.device import Hardware
from roofmodel.errors import Text
from roofmodel.files.text_files import display_names, rename_files
from roofmodel.plot.ncu_command import collection_warnings
from roofmodel.profiles.kernel import Kernel, Profile
from roofmodel.roofline import points
from roofmodel.roofline.device import DeviceIdentification, UnknownDevice, identify
from roofmodel.roofline.inputs import read_runs


class DeviceProfile(NamedTuple):
    """The profile of one device; `identification` is None if the device is unknown."""

    profile: Profile
    identification: DeviceIdentification | None


class MeasuredKernels(NamedTuple):
    """The content of profiler files: one profile per device, and warnings."""

    runs: tuple[DeviceProfile, ...]
    warnings: tuple[Text, ...]

    @property
    def kernels(self) -> Sequence[Kernel]:
        """The kernels of all devices, device by device."""
        if len(self.runs) == 1:
            return self.runs[0].profile.kernels
        return [kernel for run in self.runs for kernel in run.profile.kernels]

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(file for run in self.runs for file in run.profile.files)

    @property
    def names(self) -> dict[str, str]:
        """The name of each file in results."""
        return display_names(self.files)

    @property
    def tool(self) -> str:
        """The tool that wrote the files; `ncu, nsys` for devices with different tools."""
        return ", ".join(dict.fromkeys(run.profile.tool for run in self.runs))


def kernels(files: Sequence[str], hw: Hardware | None, times: Sequence[str] = ()) -> MeasuredKernels:
    """Read profiler files (FILE or FILE@HW); times of the files in `times` replace theirs.

    Raises RoofError for a file that is not a profile. An unknown device is a warning here.
    """
    profiles: list[DeviceProfile] = []
    warnings: list[Text] = []
    for given_device, profile in read_runs(files, hw, times):
        warnings += profile.warnings
        try:
            identification = identify(profile.evidence, given_device, profile.files)
        except UnknownDevice as unknown:
            profiles.append(DeviceProfile(profile, None))
            warnings += [*collection_warnings(profile, given_device, None), unknown.reason]
        else:
            profiles.append(DeviceProfile(profile, identification))
            warnings += collection_warnings(profile, given_device, identification)
            warnings += identification.warnings
    measured = MeasuredKernels(tuple(profiles), ())
    return measured._replace(warnings=tuple(rename_files(text, measured.names) for text in warnings))


def total_seconds(measured: MeasuredKernels) -> float | None:
    """The summed time of all kernels; None if one has no time."""
    return points.total(seconds for run in measured.runs for seconds in run.profile.kernels.seconds())
