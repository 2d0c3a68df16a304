"""Read the files of a run into timelines; the tool is recognized by the content."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from roofmodel.errors import Option, ProfileError
from roofmodel.files.text_files import display_names
from roofmodel.profiles.reading import InputFile, opened_sources, profiler_files, recognized
from roofmodel.profiles.signatures import is_sqlite
from roofmodel.profiles.timelines import activity_tables, step_table
from roofmodel.profiles.timelines.timeline import UNKNOWN, Timeline, count_joined

Read = Callable[[BinaryIO, str], Timeline]
_LISTED = 6  # columns of an unknown Parquet file in a message
_ROCPROF = "AMD's rocprof"
_OF_ONE_RUN = re.compile(
    r"_?(?:kernel_trace|memory_copy_trace|agent_info|pmc_\w+|timestamps|sysinfo)\.csv(?:\.gz)?$"
)  # of rocprofv3 and rocprof-compute


def _nsys(file: BinaryIO, name: str, with_samples: bool = False) -> Timeline:
    if is_sqlite(file):
        from roofmodel.profiles import nsys

        return _with_warnings(nsys.read_timeline(file, name, with_samples))
    return activity_tables.read_nsys_stats(file, name)


def _torch(file: BinaryIO, name: str) -> Timeline:
    from roofmodel.profiles import torch_trace

    return _with_warnings(torch_trace.read_timeline(file, name))


def _rocprof(file: BinaryIO, name: str, others: Iterable[InputFile] = ()) -> Timeline:
    if is_sqlite(file):
        from roofmodel.profiles import rocprof_database

        timeline = rocprof_database.read_timeline(file, name)
        return _with_warnings(timeline) if len(timeline.calls) else timeline  # without calls no launch is known
    with ExitStack() as streams:
        more = [(streams.enter_context(other.open()), other.name) for other in others]
        return activity_tables.read_rocprof([(file, name), *more])


def _with_warnings(timeline: Timeline) -> Timeline:
    """With warnings about launches and durations that the file should have and lacks."""
    warnings = []
    kernels, joined = count_joined(timeline)
    if joined < kernels:
        text = "their operator, range and the cause of idle time before them are unknown"
        warnings.append(f"{kernels - joined} of {kernels} kernels have no launch in the file: {text}")
    if untimed := int((timeline.work["untimed"] != UNKNOWN).sum()):
        warnings.append(f"{untimed} activities have no valid duration: their durations count as zero")
    return replace(timeline, warnings=(*timeline.warnings, *warnings))


READERS: Mapping[str, Read] = {
    "Nsight Systems": _nsys,
    "nvprof": activity_tables.read_nvprof,
    _ROCPROF: _rocprof,
    "the PyTorch profiler": _torch,
}


def read(paths: Iterable[str | Path]) -> list[Timeline]:
    """The timelines of the files, one each, without samples. A warning names skipped files: of no known tool, or
    summaries beside files with the times of single kernels.

    rocprofv3 writes the kernels and the copies of a run as two tables, which are one timeline.

    Raises ProfileError for a file without the times of single kernels, a damaged file, and files of different tools.
    """
    with opened_sources(paths) as sources:
        if not sources:
            raise ProfileError("no file given; expected files of Nsight Systems, nvprof or the PyTorch profiler")
        tables = [source for source in sources if _is_step_table(source)]
        others = [source for source in sources if source not in tables]
        recognized_files, skipped = profiler_files(others) if others and not tables else ([], [])
        files: list[tuple[InputFile, Read]] = [(source, step_table.read) for source in tables]
        runs: dict[str, list[InputFile]] = {}
        for (tool, _), source in recognized_files:
            if tool not in READERS:
                raise _counters_only(source, tool)
            if tool == _ROCPROF:
                runs.setdefault(_OF_ONE_RUN.sub("", source.name), []).append(source)
            else:
                files.append((source, READERS[tool]))
        files += [(first, partial(_rocprof, others=others)) for first, *others in runs.values()]
        timelines, summaries = _without_summaries(files)
        tools = list(
            dict.fromkeys([timeline.tool for timeline in timelines] + ["another tool"] * bool(tables and others))
        )
        if len(tools) > 1:
            raise ProfileError(f"files of different tools ({', '.join(tools)}); give the files of one tool")
    return [replace(timelines[0], warnings=(*timelines[0].warnings, *skipped, *summaries)), *timelines[1:]]


def _without_summaries(files: Iterable[tuple[InputFile, Read]]) -> tuple[list[Timeline], list[str]]:
    """The timelines of the files, and a warning for each summary. Raises ProfileError if all are summaries."""
    timelines, summaries = list[Timeline](), dict[str, activity_tables.SummaryError]()
    for source, reader in files:
        try:
            timelines.append(_timeline(source, reader))
        except activity_tables.SummaryError as error:
            summaries[source.name] = error
    if not timelines:
        raise next(iter(summaries.values()))
    shown = display_names(summaries)
    return timelines, [f"{shown[name]}: skipped: a summary without start times" for name in summaries]


def read_file(path: str | Path) -> Timeline:
    """The timeline of one file, or of standard input, with the samples of clock and power.

    Raises ProfileError if it cannot be read.
    """
    with opened_sources([path]) as (source, *_):
        reader = _reader(source)
        return _timeline(source, partial(_nsys, with_samples=True) if reader is _nsys else reader)


def _reader(source: InputFile) -> Read:
    if _is_step_table(source):
        return step_table.read
    if (columns := _parquet_columns(source)) is not None:
        raise _unknown_parquet(source, columns)
    tool, _ = recognized(source)
    if tool not in READERS:
        raise _counters_only(source, tool)
    return READERS[tool]


def _counters_only(source: InputFile, tool: str) -> ProfileError:
    return ProfileError(
        f"{source.name}: a file of {tool} has counters but not the times of a whole run; "
        f"use files of {', '.join(READERS)}"
    )


def _parquet_columns(source: InputFile) -> list[str] | None:
    """The columns of an intact Parquet file; None for another file, and without pyarrow."""
    with source.open() as stream:
        return step_table.parquet_columns(stream)


def _unknown_parquet(source: InputFile, columns: Sequence[str]) -> ProfileError:
    more = f" and {len(columns) - _LISTED} more" if len(columns) > _LISTED else ""
    return ProfileError(
        f"{source.name}: not a profiler export but a Parquet file ({', '.join(columns[:_LISTED])}{more}); supported: "
        f"files of {', '.join(READERS)}, tables of kernels (columns {', '.join(step_table.COLUMNS)}), files that ",
        Option("cache"), " wrote",
    )  # fmt: skip


def _is_step_table(source: InputFile) -> bool:
    try:
        with source.open() as stream:
            return step_table.recognize(stream)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(source, error) from None


def _timeline(source: InputFile, reader: Read) -> Timeline:
    try:
        with source.open() as stream:
            return reader(stream, source.name)
    except OverflowError:
        raise ProfileError(f"{source.name}: it contains times that no run has; export it again") from None
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(source, error) from None


def _unreadable(source: InputFile, error: Exception) -> ProfileError:
    return ProfileError(f"{source.name}: cannot be read: {error or 'the file is damaged'}")
