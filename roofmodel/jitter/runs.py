"""Read the files of a run and compare its ranks, on this machine or on a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from roofmodel.errors import Option, ProfileError, WorkloadError
from roofmodel.jitter import rank_files
from roofmodel.jitter.alignment import (
    Begins,
    KernelAlignment,
    KernelSelection,
    RankSequences,
    align_kernels,
    begin_together,
    stored_sequences,
)
from roofmodel.jitter.kernels import Integers
from roofmodel.jitter.ranks import ComparedRank, RankPart, compared_ranks, rank_parts
from roofmodel.jitter.reduced_steps import (
    BATCH,
    DamagedRanks,
    GapTask,
    MapPieces,
    ReducedSteps,
    SequenceTask,
    read_collectives,
    read_sequences,
    reduce_steps,
    sum_gaps,
)
from roofmodel.numbers import units
from roofmodel.options.values import FirstGap
from roofmodel.profiles.reading import current_progress, report_progress
from roofmodel.profiles.timelines import reading
from roofmodel.sweep.processes import in_processes

PIECES_PER_PROCESS = 2  # files to convert, or batches of ranks, for which another process is worth its start
SEQUENCE_BATCH = 32  # ranks per call of the function that reads sequences


class RunRanks(NamedTuple):
    """The ranks of a run, from intact files."""

    tool: str
    files: tuple[str, ...]
    ranks: list[ComparedRank]
    warnings: tuple[str, ...]


# --- Where the ranks are computed -----------------------------------------------------------------------------


@contextmanager
def mapped_pieces(cluster: str | None) -> Iterator[MapPieces]:
    """A function that applies another one to pieces: in processes of this machine, or on a Dask cluster.

    Raises WorkloadError if the cluster cannot be used.
    """
    if cluster is not None:
        from roofmodel.sweep.dask_cluster import connected

        with connected(cluster) as evaluate:
            yield evaluate
        return
    yield lambda function, pieces: in_processes(function, tuple(pieces), PIECES_PER_PROCESS)


# --- Reading ----------------------------------------------------------------------------------------------------


class ConvertTask(NamedTuple):
    """A profiler file, and the folder for its Parquet file."""

    path: str
    folder: str


class ReadFile(NamedTuple):
    """The ranks of a file, or the error."""

    tool: str
    parts: tuple[RankPart, ...]
    warnings: tuple[str, ...]
    error: ProfileError | None = None


def read_run(
    files: Sequence[str],
    stored: Collection[str],
    cache: str | None,
    map_pieces: MapPieces,
    known_warnings: Sequence[str] = (),
) -> RunRanks:
    """The ranks of profiler files, and of those that are `stored` in Parquet files of ranks.

    With `cache`, the kernels of each profiler file are written to a Parquet file in this folder, and read from there
    until the profiler file changes. Files that cannot be read are left out with a warning. Raises ProfileError if none
    can be read, for files of different tools, and for fewer than two ranks.
    """
    unique = list({file if file == "-" else os.path.realpath(file): file for file in reversed(files)}.values())[::-1]
    contents = {file: read_stored(file) for file in unique if file in stored}
    others = [file for file in unique if file not in contents]
    if cache is None:
        contents |= {file: _read(file) for file in others}
    else:
        regular = [file for file in others if os.path.isfile(file)]
        contents |= zip(regular, _converted(regular, cache, map_pieces), strict=True)
        contents |= {file: _read(file) for file in others if file not in contents}
    intact = {file: contents[file] for file in unique if contents[file].error is None}
    errors = [contents[file].error for file in unique if contents[file].error is not None]
    if not intact and errors[0] is not None:
        raise errors[0]
    tools = list(dict.fromkeys(each.tool for each in intact.values()))
    if len(tools) > 1:
        raise ProfileError(f"files of different tools ({', '.join(tools)}); give the files of one tool")
    left_out = [*known_warnings, *(f"{error}; this file is left out" for error in errors)]
    left_out += [f"{file}: no kernels; this file is left out" for file, each in intact.items() if not each.parts]
    ranks = compared_ranks((part for each in intact.values() for part in each.parts), left_out)
    if len(ranks) < 2:
        raise _too_few_ranks(files, len(ranks), left_out if len(files) > 1 else ())
    warnings = [*left_out, *(f"{file}: {text}" for file, each in intact.items() for text in each.warnings)]
    return RunRanks(tools[0], tuple(intact), ranks, tuple(warnings))


def _read(path: str) -> ReadFile:
    try:
        timeline = reading.read_file(path)
    except ProfileError as error:
        return ReadFile("", (), (), error)
    return ReadFile(timeline.tool, tuple(rank_parts(timeline)), timeline.warnings)


def read_stored(path: str, file: str | None = None) -> ReadFile:
    """The ranks of a Parquet file of ranks; `file` is its name in results."""
    try:
        stored = rank_files.read(path, file)
    except ProfileError as error:
        return ReadFile("", (), (), error)
    return ReadFile(stored.tool, stored.parts, stored.warnings)


def _converted(files: Sequence[str], folder: str, map_pieces: MapPieces) -> Iterator[ReadFile]:
    """The ranks of each file. The progress of several files is the size of the converted ones."""
    tasks = [ConvertTask(file, folder) for file in files]
    if len(files) < 2:
        yield from map_pieces(convert, tasks)
        return
    report, sizes = current_progress(), [os.path.getsize(file) for file in files]
    with report_progress(lambda name, done, total: None):
        for number, content in enumerate(map_pieces(convert, tasks), 1):
            report(f"{len(files)} files", sum(sizes[:number]), sum(sizes))
            yield content


def convert(task: ConvertTask) -> ReadFile:
    """The ranks of a profiler file, from a Parquet file that is written unless it has the present state of the file."""
    stored = rank_files.stored_path(task.path, task.folder)
    try:
        state = rank_files.state_of(task.path)
    except OSError as error:
        return ReadFile("", (), (), ProfileError(f"{task.path}: cannot be read: {error.strerror}"))
    if rank_files.is_rank_file(str(stored)):
        try:
            rank_file = rank_files.read(str(stored), task.path)
        except ProfileError:
            rank_file = None
        if rank_file is not None and rank_file.state == state:
            return ReadFile(rank_file.tool, rank_file.parts, rank_file.warnings)
    content = _read(task.path)
    if content.error is not None or not content.parts:
        return content
    rank_files.write(stored, rank_files.RankFile(content.tool, content.warnings, content.parts, state))
    return read_stored(str(stored), task.path)


def check_cache(folder: str) -> str:
    """The folder for Parquet files, which is created. Raises WorkloadError if it cannot be used."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise WorkloadError(Option("cache"), " needs pyarrow: pip install pyarrow, or the extra `parquet`") from None
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkloadError(Option("cache", folder), f": not a folder that can be written ({error.strerror})") from None
    if not os.access(folder, os.W_OK):
        raise WorkloadError(Option("cache", folder), ": the folder is read-only; name another one")
    return folder


def _too_few_ranks(files: Sequence[str], ranks: int, left_out: Sequence[str]) -> ProfileError:
    """The error about a run that has too few ranks for a comparison; `left_out` says why files or ranks are missing."""
    why = f": {left_out[-1]}" if left_out else ""
    return ProfileError(
        f"{', '.join(map(str, files[:3]))}: {units.count(ranks, 'rank')} with kernels, and a comparison needs at least "
        f"two; give the files of all ranks{why}"
    )


# --- Comparing --------------------------------------------------------------------------------------------------


class RankComparison(NamedTuple):
    """The ranks whose kernels can be read, compared."""

    alignment: KernelAlignment
    reduced: ReducedSteps
    warnings: tuple[str, ...]


def compare_ranks(
    run: RunRanks, low: int, high: int, threshold: float | None, first_gap: FirstGap, map_pieces: MapPieces
) -> RankComparison:
    """Compare the ranks of a run in the steps from `low` up to, not including, `high`.

    Parquet files that are damaged are found only now; the comparison starts again without their ranks. Raises
    ProfileError if fewer than two ranks are left.
    """
    ranks, warnings = run.ranks, list[str]()
    while True:
        try:
            alignment = _align(ranks, low, high, map_pieces)
            return RankComparison(alignment, reduce_steps(alignment, threshold, first_gap, map_pieces), tuple(warnings))
        except (DamagedRanks, rank_files.DamagedRankFile) as error:
            damaged = error.damaged if isinstance(error, DamagedRanks) else _places(error, ranks)
            warnings += [f"{text}; rank {ranks[place].number} is left out" for place, text in damaged.items()]
            ranks = [rank for place, rank in enumerate(ranks) if place not in damaged]
        if len(ranks) < 2:
            raise _too_few_ranks(run.files, len(ranks), warnings)


def _places(error: rank_files.DamagedRankFile, ranks: Sequence[ComparedRank]) -> dict[int, str]:
    """The places of the ranks of a damaged file."""
    return {
        place: str(error)
        for place, rank in enumerate(ranks)
        if any(isinstance(each, rank_files.StoredKernels) and each.path == error.file for each in rank.sources)
    }


def _align(ranks: Sequence[ComparedRank], low: int, high: int, map_pieces: MapPieces) -> KernelAlignment:
    marked = all(rank.marked for rank in ranks)
    begins = Begins({}, {})
    if not marked and all(len(rank.sources) == 1 for rank in ranks):
        groups = [[ranks[place] for place in places] for places in _groups(range(len(ranks)), BATCH)]
        collectives = [each for group in map_pieces(read_collectives, groups) for each in group]
        ranks, begins = begin_together(ranks, collectives)
    stored = {place: stored_sequences(rank, marked, low, high) for place, rank in enumerate(ranks)}
    first = {
        sequence: place
        for place, each in reversed(stored.items())
        for sequence in (() if each is None else each.by_step.values())
    }
    needed = {place for place, each in stored.items() if each is None} | set(first.values())
    tasks = [
        SequenceTask(tuple(places), tuple(ranks[place] for place in places), marked, low, high)
        for places in _groups(sorted(needed), SEQUENCE_BATCH)
    ]
    computed_sequences = {place: each for group in map_pieces(read_sequences, tasks) for place, each in group.items()}
    _check_readable({place: each for place, each in computed_sequences.items() if isinstance(each, str)})
    every = [each for _, each in sorted((stored | computed_sequences).items())]
    sequences = [each for each in every if isinstance(each, RankSequences)]

    def gaps(selections: dict[int, KernelSelection]) -> Integers:
        pieces = [
            GapTask(tuple(group), tuple(ranks[place] for place in group), tuple(selections[place] for place in group))
            for group in _groups(list(selections), BATCH)
        ]
        total, damaged = np.zeros((), np.int64), dict[int, str]()
        for each, unreadable in map_pieces(sum_gaps, pieces):
            total, damaged = total + each, damaged | unreadable
        _check_readable(damaged)
        return total

    return replace(align_kernels(ranks, sequences, gaps, low, high), begins=begins)


def _groups(places: Sequence[int], size: int) -> list[Sequence[int]]:
    return [places[begin : begin + size] for begin in range(0, len(places), size)]


def _check_readable(damaged: dict[int, str]) -> None:
    if damaged:
        raise DamagedRanks(damaged)
