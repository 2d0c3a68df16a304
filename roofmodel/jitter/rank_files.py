"""Parquet files with the kernels of the ranks of one profiler file, for runs that do not fit in memory.

One row per kernel, sorted by rank and start: step (-1: none), name, main (whether on the main stream), collective,
start, end and launch (-1: unknown), input (in some files: how long the launching thread fetches a batch before the
kernel); times in nanoseconds. A row group belongs to one rank. The metadata of the file have the ranks, the digests of
their sequences of kernels, and the state of the profiler file. Needs pyarrow.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from roofmodel.errors import ProfileError
from roofmodel.files.text_files import printable
from roofmodel.jitter.kernels import table_of
from roofmodel.jitter.ranks import RankPart
from roofmodel.jitter.sequences import KernelSequence, SequencesByStep, sequences_by_step
from roofmodel.profiles.kernel import KernelTable

if TYPE_CHECKING:
    import pyarrow

VERSION = 2  # of the layout; files of other versions are written again
SUFFIX = ".parquet"
_KEY = b"roofmodel.jitter"  # of the metadata
_MAGIC, _FOOTER = b"PAR1", 8  # a Parquet file ends with its metadata, their length (4 bytes), and the magic again
_ROWS = 8192  # least number of rows of a row group: a single step can be read without the others
_DELTA = {"step", "start", "end", "launch", "input"}  # columns whose differences are small: 7 bytes per row
_COLUMNS = {
    "step": "step", "name": "name", "main": "main", "collective": "communicates", "start": "start", "end": "end",
    "launch": "launch_start", "input": "input",
}  # fmt: skip
"""The columns of a Parquet file, and those of a table of kernels."""
_SEQUENCE = ("step", "name", "main", "collective")
_PART = ("process", "device", "stated_rank", "ranks_of_file", "kernels", "start", "marked", "fingerprint")
_SAMPLED = ("clock", "power")  # which files of this version may lack


class SourceState(NamedTuple):
    """A profiler file at the time of its conversion. It is converted again if its size or time of change differ."""

    name: str  # without folders, which may name people
    size: int
    modified: int  # nanoseconds


class RankFile(NamedTuple):
    """The content of a Parquet file of ranks."""

    tool: str
    warnings: tuple[str, ...]  # about the profiler file
    parts: tuple[RankPart, ...]
    state: SourceState


class DamagedRankFile(ProfileError):
    """A Parquet file of ranks that cannot be read."""

    def __init__(self, file: str, reason: object) -> None:
        text = printable(str(reason)).partition("\n")[0] or "it is damaged"
        super().__init__(f"{file}: not a readable Parquet file ({text}); delete it and convert the rank again")
        self.file, self.reason = file, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return DamagedRankFile, (self.file, str(self.reason))


@dataclass(frozen=True)
class StoredKernels:
    """The kernels of a rank in a Parquet file: the row groups from `first` up to, not including, `last`."""

    path: str
    first: int
    last: int
    sequences: SequencesByStep = field(default_factory=dict, repr=False)

    def load(self, steps: frozenset[int] | None = None) -> KernelTable:
        """The kernels; with `steps` from the first to the last kernel of these marked steps. Raises DamagedRankFile."""
        with _readable(self.path) as file:
            groups = list(range(self.first, self.last))
            if steps is not None:
                groups = [group for group in groups if _has_step(file.metadata.row_group(group), steps)]
            return _table(file, groups, file.schema_arrow.names, steps)

    def load_sequence(self) -> KernelTable:
        """The names, streams and steps of the kernels. Raises DamagedRankFile."""
        with _readable(self.path) as file:
            return _table(file, list(range(self.first, self.last)), _SEQUENCE)


def state_of(path: str) -> SourceState:
    """The present state of a profiler file. Raises OSError."""
    status = os.stat(path)
    return SourceState(os.path.basename(path), status.st_size, status.st_mtime_ns)


def stored_path(path: str, folder: str) -> Path:
    """The Parquet file of a profiler file: files of one name in different folders have different ones."""
    place = blake2b(os.path.realpath(path).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    return Path(folder, f"{Path(path).name.partition('.')[0] or 'rank'}-{place}{SUFFIX}")


def is_rank_file(path: str) -> bool:
    """Whether a file is a Parquet file of ranks, by the key in its metadata; `read` checks the rest."""
    try:
        with open(path, "rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return False
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _FOOTER))
            end = file.read(_FOOTER)
            length = int.from_bytes(end[:4], "little")
            if not end.endswith(_MAGIC) or length > size - _FOOTER:
                return False
            file.seek(size - _FOOTER - length)
            return _KEY in file.read(length)
    except OSError:
        return False


def read(path: str, file: str | None = None) -> RankFile:
    """The ranks of a Parquet file; `file` is the name of their file in results (default: the path).

    Raises DamagedRankFile, and ProfileError for a layout of another version.
    """
    with _readable(path) as opened:
        try:
            metadata = json.loads((opened.metadata.metadata or {})[_KEY])
            if metadata["version"] != VERSION:
                raise ProfileError(f"{path}: written by another version of roof; convert the profiler files again")
            state = SourceState(**metadata["source"])
            parts = tuple(
                RankPart(
                    file=file or path,
                    source_name=state.name,
                    tool=metadata["tool"],
                    source=_stored(path, part),
                    **{name: part[name] for name in _PART},
                    **{name: part.get(name) for name in _SAMPLED},
                )
                for part in metadata["parts"]
            )
            return RankFile(metadata["tool"], tuple(metadata["warnings"]), parts, state)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedRankFile(path, error) from None


def _stored(path: str, part: dict[str, Any]) -> StoredKernels:
    first, last = part["row_groups"]
    return StoredKernels(path, first, last, _sequences(part["sequences"]))


def write(path: Path, ranks: RankFile) -> None:
    """Write a Parquet file of ranks whose kernels are in memory. The file is complete or does not exist."""
    from pyarrow import parquet

    pieces: list[pyarrow.Table] = []
    parts = []
    tables = [part.source for part in ranks.parts if isinstance(part.source, KernelTable)]
    fetches = any(table.has("input") for table in tables)
    for part, table in zip(ranks.parts, tables, strict=True):
        first, stored = len(pieces), table.copy()
        stored.set_array("name", table.array("name"), map(_storable, table.distinct("name")))
        if fetches and not table.has("input"):
            stored.put("input", np.zeros(len(table), np.int64))
        pieces += list(_pieces(stored))
        own = {"row_groups": [first, len(pieces)], "sequences": _sequence_data(sequences_by_step([stored])[0])}
        parts.append({name: getattr(part, name) for name in (*_PART, *_SAMPLED)} | own)
    metadata = {
        "version": VERSION, "source": ranks.state._asdict(), "tool": ranks.tool, "warnings": list(ranks.warnings),
        "parts": parts,
    }  # fmt: skip
    schema = pieces[0].schema.with_metadata({_KEY: json.dumps(metadata)})
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file, parquet.ParquetWriter(
            file, schema, compression="none", use_dictionary=["name"],
            column_encoding=dict.fromkeys(set(schema.names) & _DELTA, "DELTA_BINARY_PACKED"),
            write_statistics=["step"], write_page_checksum=True,
        ) as writer:  # fmt: skip
            for piece in pieces:
                writer.write_table(piece.cast(schema), row_group_size=len(piece))
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _pieces(table: KernelTable) -> Iterator[pyarrow.Table]:
    """The row groups of a rank: whole steps, as far as the kernels of a step follow each other."""
    import pyarrow

    columns = {column: table.array(name) for column, name in _COLUMNS.items() if table.has(name)}
    texts = np.array(table.distinct("name"), object)
    edges = [0]
    for edge in (np.flatnonzero(np.diff(columns["step"])) + 1).tolist():
        if edge - edges[-1] >= _ROWS and len(table) - edge >= _ROWS:
            edges.append(edge)
    edges.append(len(table))
    for begin, end in pairwise(edges):
        rows = {column: values[begin:end] for column, values in columns.items()}
        used, indices = np.unique(rows["name"], return_inverse=True)
        names = pyarrow.DictionaryArray.from_arrays(
            pyarrow.array(indices.astype(np.int32)), pyarrow.array(texts[used].tolist())
        )
        yield pyarrow.table(rows | {"name": names})


def _sequence_data(sequences: SequencesByStep) -> list[Any]:
    """Sequences as JSON: each different one, and the steps that have it (null: all kernels)."""
    steps: dict[KernelSequence, list[int | None]] = {}
    for step, sequence in sequences.items():
        steps.setdefault(sequence, []).append(step)
    return [[each.main.hex(), each.collectives, numbers] for each, numbers in steps.items()]


def _sequences(data: Any) -> SequencesByStep:
    return {
        step: sequence
        for main, collectives, steps in data
        for sequence in [KernelSequence(bytes.fromhex(main), tuple((code, number) for code, number in collectives))]
        for step in steps
    }


def _storable(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


@contextmanager
def _readable(path: str) -> Iterator[Any]:
    """An open Parquet file. Raises DamagedRankFile."""
    try:
        from pyarrow import ArrowException, OSFile, parquet
    except ImportError:
        raise ProfileError(f"{path}: Parquet needs pyarrow: pip install pyarrow, or the extra `parquet`") from None
    try:
        with (
            OSFile(path) as stream,
            parquet.ParquetFile(stream, read_dictionary=["name"], page_checksum_verification=True) as file,
        ):
            yield file
    except (ArrowException, OSError) as error:
        raise DamagedRankFile(path, error) from None


def _has_step(group: Any, steps: frozenset[int]) -> bool:
    statistics = group.column(0).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return any(statistics.min <= step <= statistics.max for step in steps)


def _table(
    file: Any, groups: Sequence[int], columns: Sequence[str], steps: frozenset[int] | None = None
) -> KernelTable:
    table = file.read_row_groups(list(groups), columns=list(columns), use_threads=False)
    if steps is not None:
        rows = np.flatnonzero(np.isin(table.column("step").to_numpy(), list(steps)))
        table = table.slice(int(rows[0]), int(rows[-1] - rows[0]) + 1) if len(rows) else table.slice(0, 0)
    kernels = table_of(
        {_COLUMNS[column]: table.column(column).to_numpy() for column in _COLUMNS.keys() & {*columns} - {"name"}},
        len(table),
    )
    if len(table):
        names = table.column("name").combine_chunks()
        kernels.put("name", names.indices.to_numpy(), names.dictionary.to_pylist())
    return kernels
