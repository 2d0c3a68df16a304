"""Read tables of kernels with their launch and NVTX range: one row per kernel, one file per GPU and step.

Columns: nvtx_text, nvtx_start, nvtx_end, device, crt_name, crt_start, crt_end, kernel_demangled_name, kernel_stream,
kernel_start, kernel_end, kernel_duration; times in nanoseconds. They are queries over Nsight Systems exports, saved as
CSV or Parquet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from roofmodel.errors import ProfileError
from roofmodel.files.text_files import printable
from roofmodel.profiles.timelines.timeline import (
    CALLS,
    KERNEL,
    OPERATORS,
    RANGES,
    RANK_IN_NAME,
    WORK,
    Timeline,
    empty,
    table,
)

_NUMBERS = ("nvtx_start", "nvtx_end", "crt_start", "crt_end", "kernel_start", "kernel_end")
_TEXTS = ("nvtx_text", "device", "crt_name", "kernel_demangled_name", "kernel_stream")
COLUMNS = tuple(sorted((*_NUMBERS, *_TEXTS)))
_PARQUET = b"PAR1"
_HEAD = 4096  # bytes in which the header must be


def recognize(file: BinaryIO) -> bool:
    """Whether a stream has most columns of such a table. Raises OSError for a damaged Parquet file."""
    columns = parquet_columns(file)
    if columns is None:
        file.seek(0)
        columns = _header(file.read(_HEAD))
    return _has_most(columns)


def parquet_columns(file: BinaryIO) -> list[str] | None:
    """The columns of a Parquet file; None for another file, and without pyarrow. Raises OSError if it is damaged."""
    if file.read(len(_PARQUET)) != _PARQUET:
        return None
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        return None
    try:
        return [printable(str(name)) for name in parquet.read_schema(file).names]
    except ArrowException as error:
        raise OSError(printable(str(error)).partition("\n")[0]) from None


def _columns(file: BinaryIO, parquet: bool) -> list[str]:
    if parquet:
        from pyarrow.parquet import read_schema

        columns = list(read_schema(file).names)
    else:
        columns = _header(file.read(_HEAD))
    file.seek(0)
    return columns


def _header(head: bytes) -> list[str]:
    first = head.split(b"\n", 1)[0].decode("utf-8-sig", "replace")
    return [column.strip().strip('"') for column in first.split(",")]


def _has_most(columns: Sequence[str]) -> bool:
    return 2 * len(_missing(columns)) < len(COLUMNS)


def _missing(columns: Sequence[str]) -> list[str]:
    return [column for column in COLUMNS if column not in columns]


def read(file: BinaryIO, name: str) -> Timeline:
    """The kernels, launches and ranges of a table. Raises ProfileError for a missing column or a damaged number."""
    import pandas

    file.seek(0)
    types = dict.fromkeys(_TEXTS, "category") | dict.fromkeys(_NUMBERS, np.int64)
    parquet = file.read(len(_PARQUET)) == _PARQUET
    file.seek(0)
    try:
        if missing_columns := _missing(_columns(file, parquet)):
            raise ProfileError(
                f"{name}: no column{'s' * (len(missing_columns) > 1)} {', '.join(missing_columns)}; a table of kernels "
                f"by step has the columns {', '.join(COLUMNS)}"
            )
        if parquet:
            rows = pandas.read_parquet(file, columns=list(types)).astype(dict.fromkeys(_TEXTS, str)).astype(types)
        else:
            rows = pandas.read_csv(file, dtype=types)
    except (ValueError, OverflowError, UnicodeDecodeError) as error:  # pyarrow's errors are ValueErrors
        raise ProfileError(f"{name}: a table of kernels by step, but damaged ({error}); export it again") from None
    if not len(rows):
        raise ProfileError(f"{name}: a table of kernels by step without rows; export it again")
    texts = {column: rows[column].cat.rename_categories(lambda text: printable(str(text))) for column in _TEXTS}
    ranks = {text: match[1] for text in texts["nvtx_text"].cat.categories if (match := RANK_IN_NAME.search(text))}
    several = len(set(ranks.values())) > 1  # then the rank is the process
    process = texts["nvtx_text"].map(ranks).map(lambda rank: f"rank {rank}").astype("category") if several else None
    of_process = {} if process is None else {"process": process}
    work = table(
        WORK, len(rows), of_process | {
            "kind": pandas.Categorical([KERNEL] * len(rows)), "start": rows["kernel_start"], "end": rows["kernel_end"],
            "device": texts["device"], "stream": texts["kernel_stream"], "name": texts["kernel_demangled_name"],
            "launch_start": rows["crt_start"], "launch_end": rows["crt_end"], "launch_call": texts["crt_name"],
        },
    )  # fmt: skip
    times = {"name": texts["crt_name"], "start": rows["crt_start"], "end": rows["crt_end"]}
    calls = table(CALLS, len(rows), of_process | times)
    marks = ~rows.duplicated(["nvtx_text", "nvtx_start", "nvtx_end"])
    times = {"name": texts["nvtx_text"], "start": rows["nvtx_start"], "end": rows["nvtx_end"]}
    ranges = table(RANGES, len(rows), of_process | times)[marks].reset_index(drop=True)
    order = np.lexsort((work["end"], work["start"]))
    work = work.iloc[order].reset_index(drop=True)
    rank = int(next(iter(ranks.values()))) if ranks and not several else None
    return Timeline("steps", name, work, calls, empty(OPERATORS), ranges, stated_rank=rank)
