"""`roof kernels` and `roofmodel.read_profile`: the kernels of profiler files, and why each is slow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from roofmodel.devices.device import Hardware
from roofmodel.errors import Option, OutputError, WorkloadError
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import PathLike, ProgressCallback, no_progress
from roofmodel.report.base import Result
from roofmodel.report.command import CommandLine
from roofmodel.report.document import Document

if TYPE_CHECKING:
    from pathlib import Path

    from roofmodel.plot.comparison import KernelChange
    from roofmodel.plot.measured import MeasuredKernels
    from roofmodel.profiles.kernel import Kernel


def names_for_checks(names: Sequence[str]) -> Sequence[str]:
    """Names of kernels in the messages of `--fail-if`."""
    from roofmodel.roofline.judged_kernels import NAME_WIDTH
    from roofmodel.roofline.naming import short_names

    return short_names(names, NAME_WIDTH)


class ProfileReport(Result):
    """Result of `read_profile`: the measured kernels of profiler files."""

    FILES: ClassVar[Sequence[str]] = (*Result.FILES, "parquet")
    naming = ("hardware", "name")
    short_names = staticmethod(names_for_checks)

    def __init__(self, measured: MeasuredKernels, before: MeasuredKernels | None = None, source: bool = False) -> None:
        self.measured, self.before, self.source = measured, before, source

    def answer(self) -> Document:
        """The tables of `roof kernels`: the kernels; with `before`, their changes."""
        from roofmodel.plot.answer import changes, kernels

        if self.before:
            return changes(self.before, self.measured, self.changes, self.warnings)
        return kernels(self.measured, self.warnings, source=self.source)

    def complete(self) -> Document:
        from roofmodel.plot.answer import changes, kernels

        if self.before:
            return changes(self.before, self.measured, self.changes, self.warnings, most=None)
        return kernels(self.measured, self.warnings, most=None, source=self.source)

    @cached_property
    def changes(self) -> Sequence[KernelChange]:
        """The kernels compared with those of `before`, the largest change first; empty without it."""
        from roofmodel.plot.comparison import compare_kernels

        return compare_kernels(self.before, self.measured) if self.before else ()

    @property
    def kernels(self) -> Sequence[Kernel]:
        """The kernels: seconds, FLOPs by pipe, bytes by memory level; None for a metric that was not collected."""
        return self.measured.kernels

    @property
    def warnings(self) -> tuple[str, ...]:
        """Data that the files lack, the metrics to collect, and whether the device changed."""
        warnings = self.measured.warnings
        if self.before:
            from roofmodel.plot.comparison import different_devices

            warnings = (*different_devices(self.before, self.measured), *warnings, *self.before.warnings)
        return tuple(dict.fromkeys(map(str, warnings)))

    def rows_to_check(self) -> Sequence[Mapping[str, Any]]:
        """The rows of `--fail-if`: the kernels; with `before`, their changes, and `all`."""
        rows = super().rows_to_check()
        if not self.before:
            return rows
        from roofmodel.plot.comparison import rows_of_changes

        return rows_of_changes(rows, self.before, self.measured)

    def _write(self, form: str, file: Path) -> None:
        """Parquet has the columns of the CSV. Raises OutputError without pyarrow."""
        if form != "parquet":
            super()._write(form, file)
            return
        try:
            self.to_frame().to_parquet(file, engine="pyarrow", index=False)
        except ImportError:
            raise OutputError("Parquet needs pyarrow: pip install pyarrow, or use .csv") from None

    def __repr__(self) -> str:
        measured = self.measured
        return f"<ProfileReport of {', '.join(measured.files)}: {len(measured.kernels)} kernels, by {measured.tool}>"


@checked
def read_profile(
    *files: PathLike,
    hw: Hardware | None = None,
    times: PathLike | Iterable[PathLike] = (),
    before: PathLike | Iterable[PathLike] = (),
    source: bool = False,
    progress: ProgressCallback = no_progress,
) -> ProfileReport:
    """Read profiler files (ncu, nvprof, nsys, rocprof, PyTorch): the kernels, and why each is slow.

    Files of one device form one run. Raises RoofError for a file that is not a profile.

    Args:
        *files: Profiler files or patterns; - for stdin; FILE@HW sets the device of a file.
        hw: The device, if the files do not state it or state it wrongly.
        times: Take the times from this nsys, nvprof or PyTorch file, not from `files`.
        before: Files or patterns of the same program before a change; compare the kernels with theirs.
        source: List the three lines of source that cost most under each reason (reports of ncu with counters of SASS).
        progress: Called with a file's name, the bytes that were read, and its size.

    Examples:
        >>> saxpy = next(k for k in read_profile("examples/ncu_by_hand.csv", hw="a100").kernels if "saxpy" in k.name)
        >>> f"{saxpy.flops.fp32:.0f} FLOP in {saxpy.seconds * 1e6:.0f} us"
        '33554432 FLOP in 120 us'
    """
    from roofmodel.plot.measured import kernels
    from roofmodel.profiles.reading import report_progress

    timed, old = values.paths("times", times), values.paths("before", before)
    if timed and old:
        raise WorkloadError(
            Option("times"), " replaces the times of one side only, so ", Option("before"), " cannot compare them; "
            "leave out one of the two",
        )  # fmt: skip
    with report_progress(progress):
        measured = kernels(values.paths("files", files), hw, timed)
        return ProfileReport(measured, kernels(old, hw) if old else None, source)


COMMAND = CommandLine(
    read_profile,
    checks=("kernels", "seconds>2ms"),
    examples=(
        "roof kernels ncu.csv",
        "roof kernels trace.json --hw a100 -o kernels.csv",
        "roof kernels counters.csv --times times.sqlite",
        "roof kernels new.csv --before old.csv --fail-if 'relative_change>5%'",
    ),
)
