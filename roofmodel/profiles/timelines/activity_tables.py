"""Read tables of GPU activities as timelines: GPU traces of nvprof, of `nsys stats` and of AMD's rocprofv3.

They have kernels, copies and memsets with their times, but no CUDA calls, operators or ranges.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

from roofmodel.errors import ProfileError
from roofmodel.profiles import signatures
from roofmodel.profiles.kernel import Kernel, Profile, without_impossible_values
from roofmodel.profiles.timelines.timeline import (
    CALLS,
    COPY,
    KERNEL,
    MEMSET,
    OPERATORS,
    RANGES,
    WORK,
    TableBuilder,
    Timeline,
    empty,
)


class SummaryError(ProfileError):
    """A file without the start of each kernel."""


HEAD = 1 << 20  # bytes from which nvprof's databases are recognized


def read_nvprof(file: BinaryIO, name: str) -> Timeline:
    """The activities of `nvprof --print-gpu-trace`, or of nvprof's own profile.

    Raises ProfileError for a summary, which has no times of starts.
    """
    head = file.read(HEAD)
    file.seek(0)
    if signatures.nvprof_database(head):
        from roofmodel.profiles import nvprof_database

        return nvprof_database.read_timeline(file, name)
    from roofmodel.profiles import nvprof

    return _timeline(nvprof.read(file, name), name, "collect with `nvprof --csv --print-gpu-trace`")


def read_nsys_stats(file: BinaryIO, name: str) -> Timeline:
    """The activities of `nsys stats --report cuda_gpu_trace`. Raises ProfileError for a summary."""
    from roofmodel.profiles import nsys_stats

    return _timeline(
        nsys_stats.read(file, name), name, "collect with `nsys stats --report cuda_gpu_trace --format csv`"
    )


def read_rocprof(files: Iterable[tuple[BinaryIO, str]]) -> Timeline:
    """The kernels and copies of a run of rocprofv3 or of the older rocprof. Raises ProfileError for a summary."""
    from roofmodel.profiles import rocprof

    profile = rocprof.read_all(files)
    return _timeline(profile, profile.files[0], "collect with `rocprofv3 --kernel-trace`")


def _timeline(profile: Profile, name: str, how_to_collect: str) -> Timeline:
    activities, impossible = without_impossible_values((*profile.kernels, *profile.copies))
    single = [each for each in activities if each.invocations == 1]
    timed = [each for each in single if each.start is not None and each.seconds is not None]
    if not timed:
        raise SummaryError(f"{name}: a summary without the start of each kernel; {how_to_collect}")
    work = TableBuilder(WORK)
    for activity in sorted(timed, key=lambda each: each.start or 0):
        work.add(**_cells(activity))
    warnings = tuple(str(text) for text in (*profile.warnings, *impossible) if "not listed as kernels" not in text)
    tables = (empty(CALLS), empty(OPERATORS), empty(RANGES))
    return Timeline(profile.tool, name, work.frame(), *tables, profile.evidence, warnings)


def _cells(activity: Kernel) -> dict[str, int | str | None]:
    start = round((activity.start or 0) * 1e9)
    cells: dict[str, int | str | None] = {
        "kind": KERNEL,
        "start": start,
        "end": start + round((activity.seconds or 0) * 1e9),
        "process": activity.process,
        "device": activity.device,
        "stream": activity.stream,
        "name": activity.name,
    }
    if activity.copy is not None:
        size = activity.copy
        kind = MEMSET if "memset" in activity.name else COPY
        cells |= {"kind": kind, "bytes": size.bytes, "direction": size.direction, "memory": size.memory}
        if size.direction == "PtoP":
            cells |= {"source": size.source, "destination": size.destination}
    return cells
