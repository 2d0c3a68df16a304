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
from roofmodel.profiles.columns import UNKNOWN, ColumnTable
from roofmodel.profiles.kernel import KERNEL, KernelTable
from roofmodel.profiles.timelines.timeline import CALLS, RANGES, RANK_IN_NAME, Timeline

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
    numbers = {rank: number for number, rank in enumerate(dict.fromkeys(ranks.values()))}
    of_text = [numbers[ranks[text]] if text in ranks else UNKNOWN for text in texts["nvtx_text"].cat.categories]
    process = np.array([*of_text, UNKNOWN])[texts["nvtx_text"].cat.codes]
    order = np.lexsort((rows["kernel_end"], rows["kernel_start"]))
    marks = np.flatnonzero(~rows.duplicated(["nvtx_text", "nvtx_start", "nvtx_end"]))
    work, calls, ranges = KernelTable(), ColumnTable(CALLS), ColumnTable(RANGES)
    of_work = {
        "start": "kernel_start", "end": "kernel_end", "device": "device", "stream": "kernel_stream",
        "name": "kernel_demangled_name", "launch_start": "crt_start", "launch_end": "crt_end",
        "launch_call": "crt_name",
    }  # fmt: skip
    of_calls = {"name": "crt_name", "start": "crt_start", "end": "crt_end"}
    of_ranges = {"name": "nvtx_text", "start": "nvtx_start", "end": "nvtx_end"}
    for table, columns, chosen in (
        (work, of_work, order), (calls, of_calls, np.arange(len(rows))), (ranges, of_ranges, marks)
    ):  # fmt: skip
        table.extend(len(chosen))
        for column, read_from in columns.items():
            if read_from in texts:
                table.set_array(column, texts[read_from].cat.codes.to_numpy()[chosen], texts[read_from].cat.categories)
            else:
                table.set_array(column, rows[read_from].to_numpy()[chosen])
        if several:
            table.set_array("process", process[chosen], [f"rank {rank}" for rank in numbers])
    work.fill(kind=KERNEL)
    rank = int(next(iter(ranks.values()))) if ranks and not several else None
    return Timeline("steps", name, work, calls, range_table=ranges, stated_rank=rank)
