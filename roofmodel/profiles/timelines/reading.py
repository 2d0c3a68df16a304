"""Read the files of a run into timelines; the tool is recognized by the content."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roofmodel.errors import Option, ProfileError
from roofmodel.files.text_files import display_names
from roofmodel.profiles.reading import (
    FORMATS,
    NCU,
    InputFile,
    ProfileFormat,
    opened_sources,
    profiler_files,
    recognized,
)
from roofmodel.profiles.timelines import step_table
from roofmodel.profiles.timelines.timeline import Timeline, count_joined

_LISTED = 6  # columns of an unknown Parquet file in a message
STEPS = ProfileFormat("steps", lambda head: False, "timelines.step_table")
_TOOLS = ", ".join(dict.fromkeys(form.tool for form in FORMATS if form.tool != NCU))
_OF_ONE_RUN = re.compile(
    r"_?(?:kernel_trace|memory_copy_trace|agent_info|pmc_\w+|timestamps|sysinfo)\.csv(?:\.gz)?$"
)  # of rocprofv3 and rocprof-compute


class SummaryError(ProfileError):
    """A file without the start of each kernel."""


def _checked(timeline: Timeline) -> Timeline:
    """With the single kernels of a table, or with warnings about what the file should have and lacks."""
    if timeline.how_to_collect:
        return _with_starts(timeline)
    if timeline.tool == "rocprof" and not len(timeline.call_table):
        return timeline  # no launch is known
    warnings = []
    kernels, joined = count_joined(timeline)
    if joined < kernels:
        text = "their operator, range and the cause of idle time before them are unknown"
        warnings.append(f"{kernels - joined} of {kernels} kernels have no launch in the file: {text}")
    if untimed := len(timeline.work_table) - timeline.work_table.cells("untimed").count(None):
        warnings.append(f"kernels and copies without a valid duration count as zero: {untimed}")
    return replace(timeline, warnings=(*timeline.warnings, *warnings))


def _with_starts(timeline: Timeline) -> Timeline:
    """The single kernels and copies of a table, by start. Raises SummaryError if none has a start and a time."""
    work = timeline.work_table
    impossible = work.without_impossible_values()
    every = zip(work.launches(), work.cells("start"), work.seconds(), strict=True)
    rows = [
        row for row, (launches, start, seconds) in enumerate(every) if launches == 1 and None not in (start, seconds)
    ]
    if not rows:
        text = f"a summary without the start of each kernel; {timeline.how_to_collect}"
        raise SummaryError(f"{timeline.file}: {text}")
    work = work.select(sorted(rows, key=work.stored("start").__getitem__))
    return replace(timeline, work_table=work, warnings=(*timeline.warnings, *impossible))


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
        files: dict[str, tuple[ProfileFormat, list[InputFile]]] = {source.name: (STEPS, [source]) for source in tables}
        for form, source in recognized_files:
            _refuse_counters(source, form)
            key = _OF_ONE_RUN.sub("", source.name) if form.joined else source.name
            files.setdefault(key, (form, []))[1].append(source)
        timelines, summaries = _without_summaries(files.values())
        tools = list(
            dict.fromkeys([timeline.tool for timeline in timelines] + ["another tool"] * bool(tables and others))
        )
        if len(tools) > 1:
            raise ProfileError(f"files of different tools ({', '.join(tools)}); give the files of one tool")
    return [replace(timelines[0], warnings=(*timelines[0].warnings, *skipped, *summaries)), *timelines[1:]]


def _without_summaries(files: Iterable[tuple[ProfileFormat, list[InputFile]]]) -> tuple[list[Timeline], list[str]]:
    """The timelines of the files, and a warning for each summary. Raises ProfileError if all are summaries."""
    timelines, summaries = list[Timeline](), dict[str, SummaryError]()
    for form, sources in files:
        try:
            timelines.append(_timeline(form, sources))
        except SummaryError as error:
            summaries[sources[0].name] = error
    if not timelines:
        raise next(iter(summaries.values()))
    shown = display_names(summaries)
    return timelines, [f"{shown[name]}: skipped: a summary without start times" for name in summaries]


def read_file(path: str | Path) -> Timeline:
    """The timeline of one file, or of standard input, with the samples of clock and power.

    Raises ProfileError if it cannot be read.
    """
    with opened_sources([path]) as (source, *_):
        if _is_step_table(source):
            return _timeline(STEPS, [source])
        if (columns := _parquet_columns(source)) is not None:
            raise _unknown_parquet(source, columns)
        form = recognized(source)
        _refuse_counters(source, form)
        return _timeline(form, [source], **({"with_samples": True} if form.module == "nsys" else {}))


def _refuse_counters(source: InputFile, form: ProfileFormat) -> None:
    if form.tool == NCU:
        raise ProfileError(
            f"{source.name}: a file of {form.tool} has counters but not the times of a whole run; use files of {_TOOLS}"
        )


def _parquet_columns(source: InputFile) -> list[str] | None:
    """The columns of an intact Parquet file; None for another file, and without pyarrow."""
    with source.open() as stream:
        return step_table.parquet_columns(stream)


def _unknown_parquet(source: InputFile, columns: Sequence[str]) -> ProfileError:
    more = f" and {len(columns) - _LISTED} more" if len(columns) > _LISTED else ""
    return ProfileError(
        f"{source.name}: not a profiler export but a Parquet file ({', '.join(columns[:_LISTED])}{more}); supported: "
        f"files of {_TOOLS}, tables of kernels (columns {', '.join(step_table.COLUMNS)}), files that ",
        Option("cache"), " wrote",
    )  # fmt: skip


def _is_step_table(source: InputFile) -> bool:
    try:
        with source.open() as stream:
            return step_table.recognize(stream)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(source, error) from None


def _timeline(form: ProfileFormat, sources: Sequence[InputFile], **options: Any) -> Timeline:
    try:
        (timeline,) = form.read(sources, **options)
    except OverflowError:
        raise ProfileError(f"{sources[0].name}: it contains times that no run has; export it again") from None
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(sources[0], error) from None
    return _checked(timeline)


def _unreadable(source: InputFile, error: Exception) -> ProfileError:
    return ProfileError(f"{source.name}: cannot be read: {error or 'the file is damaged'}")
