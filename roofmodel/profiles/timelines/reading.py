"""Read the files of a run into timelines; the tool is recognized by the content."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from roofmodel.errors import ProfileError
from roofmodel.profiles import nsys
from roofmodel.profiles.reading import opened_sources, recognized
from roofmodel.profiles.timelines import activity_tables, nsys_tables, step_table, torch_events
from roofmodel.profiles.timelines.timeline import Timeline

Read = Callable[[BinaryIO, str], Timeline]


def _nsys(file: BinaryIO, name: str) -> Timeline:
    return nsys_tables.read(file, name) if nsys.is_database(file) else activity_tables.read_nsys_stats(file, name)


READERS: Mapping[str, Read] = {
    "Nsight Systems": _nsys,
    "nvprof": activity_tables.read_nvprof,
    "the PyTorch profiler": torch_events.read,
}


def read(paths: Iterable[str | Path]) -> list[Timeline]:
    """The timelines of the files, one each. Raises ProfileError for a file without the times of single kernels."""
    found = []
    with opened_sources(paths) as sources:
        if not sources:
            raise ProfileError("no file given; expected files of Nsight Systems, nvprof or the PyTorch profiler")
        for source in sources:
            with source.open() as stream:
                reader: Read | None = step_table.read if step_table.recognize(stream) else None
            if reader is None:
                tool, _ = recognized(source)
                if tool not in READERS:
                    raise ProfileError(
                        f"{source.name}: a file of {tool} has counters but not the times of a whole run; "
                        f"use files of {', '.join(READERS)}"
                    )
                reader = READERS[tool]
            try:
                with source.open() as stream:
                    found.append(reader(stream, source.name))
            except ModuleNotFoundError:
                raise ProfileError(
                    f"{source.name}: PyTorch traces need ijson: pip install ijson, or the extra `trace`"
                ) from None
            except (OSError, EOFError, zlib.error) as error:
                raise ProfileError(f"{source.name}: cannot be read: {error}") from None
    if len(tools := list(dict.fromkeys(timeline.tool for timeline in found))) > 1:
        raise ProfileError(f"files of different tools ({', '.join(tools)}); give the files of one tool")
    return found
