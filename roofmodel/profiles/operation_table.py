"""Read tables of training operations (Parquet): one row per operation of a rank in a step.

Columns: dp_rank, stage, rank, step, optype, start_ts, duration, seq_id, mc, mb_id, gmc; times in seconds. The layout is
that of the traces which ByteDance published with "Understanding Stragglers in Large Model Training Using What-if
Analysis" (arXiv 2505.05713). A worker is a pair of data-parallel rank and pipeline stage.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from roofmodel.errors import ProfileError
from roofmodel.files.file_names import printable
from roofmodel.numbers import units
from roofmodel.profiles.reading import InputFile, matching_files, opened_sources

if TYPE_CHECKING:
    import pandas

COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id", "gmc")
_INTEGERS = tuple(column for column in COLUMNS if column not in ("optype", "start_ts", "duration"))
_OPERATION = ["dp_rank", "stage", "step", "kind", "seq_id"]  # two rows with these equal are one operation
_LARGEST = 2**62  # integers from this absolute value on are damaged; it is exact as int64 and as float64
_RECOGNIZED = 6  # columns of this layout in a file that is meant as such a table


@dataclass(frozen=True)
class OperationTable:
    """The operations of a training job.

    `rows` has the integer columns dp_rank, stage, rank, step, seq_id, mc (model chunk within the stage), mb_id
    (microbatch) and gmc (chunk within the model), -1 where unknown, and file (index into `files`); kind, a category;
    start and end, in seconds.
    """

    files: tuple[str, ...]
    rows: pandas.DataFrame
    warnings: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """The files in a message."""
        return _label(self.files)

    def between_steps(self, first: int, last: int) -> OperationTable:
        """The operations of the steps from `first` up to, not including, `last`."""
        step = self.rows["step"]
        return replace(self, rows=self.rows[(step >= first) & (step < last)].reset_index(drop=True))


def are_operation_tables(paths: Iterable[str | Path]) -> bool:
    """Whether files are Parquet with most columns of this layout; damaged Parquet files are, if all other files are.

    Standard input and pipes are not tables, because Parquet is read from its end. Raises ProfileError if only some of
    the files are tables, and for any Parquet file without pyarrow.
    """
    files = [file for path in paths if str(path) != "-" for file in matching_files(str(path)) if file.is_file()]
    with opened_sources(files) as sources:
        kinds = {source.name: _is_operation_table(source) for source in sources}  # None: damaged
    tables, others = ([name for name, kind in kinds.items() if kind is expected] for expected in (True, False))
    if tables and others:
        raise ProfileError(f"{others[0]}: not a table of training operations as {tables[0]} is; give files of one kind")
    return bool(kinds) and not others


def read_operations(*paths: str | Path) -> OperationTable:
    """The operations of all files, ordered by step, dp_rank, stage and start.

    Files that are not readable, rows with a missing or negative time, repeated rows, and rows of a second rank of the
    same worker are left out, each with a warning. Raises ProfileError if no file is readable: each is damaged, lacks a
    column, has a column of another type, or has no usable rows.
    """
    import pandas

    warnings: list[str] = []
    errors: list[ProfileError] = []
    tables: dict[str, pandas.DataFrame] = {}
    with opened_sources(paths) as sources:
        for source in sources:
            try:
                tables[source.name] = _rows(source, warnings).assign(file=len(tables))
            except ProfileError as error:
                errors.append(error)
                warnings.append(f"{error}; this file is left out")
    if not tables:
        raise errors[0]
    rows = next(iter(tables.values()))
    if len(tables) > 1:
        rows = pandas.concat([table.astype({"kind": object}) for table in tables.values()])
    rows["kind"] = rows["kind"].astype("category")
    files = _label(tuple(tables))
    rows = _without_second_ranks(rows, files, warnings)
    rows = _without_repeated(rows, files, warnings)
    if not len(rows):
        raise ProfileError(f"{files}: a table of training operations without usable rows" + _reasons(warnings))
    warnings += _shared_ranks(rows, files) + _copied_ranks(rows, files)
    keys = [rows[name].to_numpy() for name in ("seq_id", "start", "stage", "dp_rank", "step")]
    order = np.lexsort([rows["kind"].cat.codes.to_numpy(), *keys])
    return OperationTable(tuple(tables), rows.iloc[order].reset_index(drop=True), tuple(warnings))


def _label(files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def _is_operation_table(source: InputFile) -> bool | None:
    """Whether a file has most columns of this layout; None for a damaged Parquet file."""
    with _opened(source) as file:
        if file.read(4) != b"PAR1":
            return False
    try:
        names = _schema_names(source)
    except _DamagedFile:
        return None
    return len(set(COLUMNS) & set(names)) >= _RECOGNIZED


@contextmanager
def _opened(source: InputFile) -> Iterator[BinaryIO]:
    try:
        with source.open() as file:  # Parquet is read from its end: decompressed files only in memory
            yield file if source.path is not None else io.BytesIO(file.read())
    except (OSError, EOFError, zlib.error) as error:
        raise _DamagedFile(f"{source.name}: cannot be read ({printable(str(error))})") from None


def _rows(source: InputFile, warnings: list[str]) -> pandas.DataFrame:
    """The usable rows of one file. Raises ProfileError."""
    names = _schema_names(source)
    if missing := [column for column in COLUMNS if column not in names]:
        raise ProfileError(
            f"{source.name}: no column {', '.join(map(repr, missing))}; a table of training operations has the columns "
            f"{', '.join(COLUMNS)}"
        )
    from pyarrow import ArrowException, parquet

    try:
        with _opened(source) as file:
            table = parquet.read_table(file, columns=list(COLUMNS)).to_pandas()
    except ArrowException as error:
        raise _damaged(source, error) from None
    return _typed(table, source.name, warnings)


def _reasons(warnings: Sequence[str]) -> str:
    return f" ({'; '.join(warnings)})" if warnings else ""


class _DamagedFile(ProfileError):
    """A Parquet file that is not readable."""


def _damaged(source: InputFile, error: Exception) -> ProfileError:
    reason = printable(str(error)).splitlines()[0]
    return _DamagedFile(f"{source.name}: not a readable Parquet file ({reason}); write or copy it again")


def _schema_names(source: InputFile) -> list[str]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ProfileError(f"{source.name}: Parquet needs pyarrow: pip install pyarrow, or the extra `trace`") from None
    try:
        with _opened(source) as file:
            return list(parquet.read_schema(file).names)
    except ArrowException as error:
        raise _damaged(source, error) from None


def _typed(table: pandas.DataFrame, file: str, warnings: list[str]) -> pandas.DataFrame:
    """The rows with complete numbers, with the column types of `OperationTable`."""
    import pandas

    texts = table["optype"].astype("category")
    if not all(isinstance(text, str) for text in texts.cat.categories):
        raise ProfileError(f"{file}: column 'optype' has {texts.cat.categories.dtype} values, not names of operations")
    numbers = {column: _numbers(table[column], file) for column in COLUMNS if column != "optype"}
    usable = texts.notna().to_numpy(copy=True)
    for column, values in numbers.items():
        if values.dtype.kind == "f":
            usable &= np.isfinite(values)
            if column in _INTEGERS and (broken := np.isfinite(values) & (values != np.round(values))).any():
                value = values[broken][0]
                raise ProfileError(f"{file}: row {int(np.argmax(broken))}: {column} is {value}, not an integer")
        if column in _INTEGERS:
            usable &= (values > -_LARGEST) & (values < _LARGEST)
        if column in ("duration", "step", "dp_rank", "stage"):
            usable &= values >= 0
    if bad := np.flatnonzero(~usable).tolist():
        warnings.append(
            f"{file}: {len(bad)} rows with a missing number or a negative duration, step or rank, or with a "
            f"step, rank or index of 2^62 or more, are left out (rows {units.listed(bad)}, counted from 0)"
        )
    rows = pandas.DataFrame({column: numbers[column][usable].astype(np.int64) for column in _INTEGERS})
    kinds = texts[usable].cat.remove_unused_categories()
    rows["kind"] = kinds.cat.reorder_categories(sorted(kinds.cat.categories)).array
    rows["start"] = numbers["start_ts"][usable].astype(np.float64)
    rows["end"] = rows["start"] + numbers["duration"][usable]
    return rows


def _numbers(column: pandas.Series[Any], file: str) -> NDArray[Any]:
    """The column as int64, as uint64 or, with fractions or missing values, as float64 with NaN."""
    kind = column.dtype.kind
    if kind not in "iuf" and not (kind == "O" and column.isna().all()):
        raise ProfileError(f"{file}: column {column.name!r} has {column.dtype} values, not numbers")
    if kind in "iu" and not column.hasnans:
        return column.to_numpy(np.int64 if kind == "i" else np.uint64)
    return column.to_numpy(np.float64, na_value=np.nan)


def _without_second_ranks(rows: pandas.DataFrame, file: str, warnings: list[str]) -> pandas.DataFrame:
    """One rank for each worker: the lowest, as tensor-parallel ranks run the same operations."""
    lowest = rows.groupby(["dp_rank", "stage"])["rank"].transform("min")
    if not (second := rows["rank"] != lowest).any():
        return rows
    row = rows[second].iloc[0]
    others = units.listed(sorted(set(rows["rank"][second])))
    warnings.append(
        f"{file}: dp_rank {row['dp_rank']}, stage {row['stage']} has operations of ranks {lowest[second].iloc[0]} and "
        f"{row['rank']}; the lowest rank is analyzed, ranks {others} are left out"
    )
    return rows[~second]


def _without_repeated(rows: pandas.DataFrame, file: str, warnings: list[str]) -> pandas.DataFrame:
    """Identical rows once; rows that contradict each other not at all."""
    if not (equal := rows.duplicated([*_OPERATION, "start", "end"])).any() and not rows.duplicated(_OPERATION).any():
        return rows
    if equal.any():
        warnings.append(f"{file}: {int(equal.sum())} rows are repeated; each is used once")
        rows = rows[~equal]
    if (different := rows.duplicated(_OPERATION, keep=False)).any():
        row = rows[different].iloc[0]
        warnings.append(
            f"{file}: {int(different.sum())} rows contradict another row of the same operation and are left out "
            f"(first: rank {row['rank']}, step {row['step']}, {printable(row['kind'])} {row['seq_id']})"
        )
        rows = rows[~different]
    return rows


def _shared_ranks(rows: pandas.DataFrame, file: str) -> list[str]:
    """A warning if workers have the same rank."""
    workers = rows[["rank", "dp_rank", "stage"]].drop_duplicates()
    shared = (
        workers[workers["rank"].duplicated(keep=False)].sort_values(["rank", "dp_rank", "stage"]).to_numpy().tolist()
    )
    if not shared:
        return []
    (rank, *first), (_, *second) = shared[:2]
    places = " and ".join(f"dp_rank {dp_rank}, stage {stage}" for dp_rank, stage in (first, second))
    return [f"{file}: rank {rank} stands for {places}: ranks in the results are ambiguous, dp_rank and stage are not"]


def _copied_ranks(rows: pandas.DataFrame, file: str) -> list[str]:
    """A warning for each rank whose times are all equal to those of a lower rank of the same stage."""
    from pandas import util

    times = util.hash_pandas_object(rows[["stage", "step", "kind", "seq_id", "start", "end"]], index=False)
    # Sums of hashes do not depend on the order of rows.
    sums = times.groupby([rows["stage"], rows["rank"]]).sum()
    originals: dict[int, int] = {}
    warnings = []
    for stage, rank, total in zip(*(sums.index.get_level_values(level) for level in (0, 1)), sums, strict=True):
        original = originals.setdefault(int(total), rank)
        if original != rank:
            warnings.append(f"{file}: ranks {original} and {rank} of stage {stage} have equal times: probably a copy")
    return warnings
