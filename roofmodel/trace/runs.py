"""Whether the files of `roof trace` are the ranks of one run, or two runs: before and after a change.

Two arguments (files, patterns or folders) are two runs if a rank occurs in both, because a run has each rank once:
the rank that the files state, or a number such as `rank3` in their names; else the GPU. More arguments are one run.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from roofmodel.errors import Message, Option, ProfileError, Text, WorkloadError
from roofmodel.profiles.reading import expanded_files
from roofmodel.profiles.timelines import reading
from roofmodel.profiles.timelines.timeline import RANK_IN_NAME, Timeline


class Runs(NamedTuple):
    """The files of one run (`before` is empty) or of two runs."""

    after: list[Timeline]
    before: list[Timeline]
    reading: Text | None = None  # why two arguments are one run or two, and the option for the opposite


def read(files: Sequence[str], before: Sequence[str] = (), one_run: bool = False) -> Runs:
    """Read files, patterns and folders. `before` are those of the run before a change; `one_run` forbids two runs.

    Raises RoofError for contradicting options, for files that are not readable, and for runs of different tools.
    """
    if before and one_run:
        raise WorkloadError(Option("one_run"), " contradicts ", Option("before"), ", which gives a second run")
    sides = [expanded_files(argument) for argument in files]
    if before:
        after = reading.read([path for side in sides for path in side])
        runs = Runs(after, reading.read([path for argument in before for path in expanded_files(argument)]))
        tools = list(dict.fromkeys(timeline.tool for run in (runs.before, runs.after) for timeline in run))
        if len(tools) > 1:
            raise ProfileError(f"the runs are of different tools ({', '.join(tools)}); give two runs of one tool")
        return runs
    timelines = reading.read([path for side in sides for path in side])
    if len(sides) != 2 or one_run:
        return Runs(timelines, [])
    return _runs_of_arguments([[t for t in timelines if _place(t.file) in map(_place, side)] for side in sides])


def _runs_of_arguments(sides: list[list[Timeline]]) -> Runs:
    """One run or two, from the timelines of each of two arguments."""
    first, second = sides
    if not first or not second:  # a file that is not a profile was skipped
        return Runs(first + second, [])
    unique = list({id(timeline): timeline for timeline in first + second}.values())
    if list(map(id, first)) == list(map(id, second)):
        return Runs(second, first, Message("both arguments are the same files: they are compared with themselves"))
    if len(unique) < len(first) + len(second):
        return Runs(unique, [])
    what, ranks = _ranks(sides)
    if common := sorted(ranks[0] & ranks[1], key=str):
        shown = f"{what} {common[0]}" if what else "the same steps"
        return Runs(second, first, Message(
            f"two runs, because both arguments contain {shown}: the first is before and the second after a change; ",
            Option("one_run"), " analyzes them as the ranks of one run",
        ))  # fmt: skip
    return Runs(unique, [], Message(
        f"one run, because the two arguments contain different {what or 'step'}s; to compare two runs, give the files "
        "of the first with ", Option("before"),
    ))  # fmt: skip


def _ranks(sides: list[list[Timeline]]) -> tuple[str, list[set[Hashable]]]:
    """What identifies the ranks of the timelines (`rank`, `GPU`, or empty for steps), and the ranks of each side."""
    every = [timeline for side in sides for timeline in side]
    if all(timeline.tool == "steps" for timeline in every):  # files of one GPU and one step each
        return "", [{key for timeline in side for key in _steps(timeline)} for side in sides]
    if all(_stated_rank(timeline) is not None for timeline in every):
        return "rank", [{_stated_rank(timeline) for timeline in side} for side in sides]
    return "GPU", [{gpu for timeline in side for gpu in _gpus(timeline)} for side in sides]


def _stated_rank(timeline: Timeline) -> int | None:
    """The rank that the file states, or that its name contains."""
    found = RANK_IN_NAME.search(Path(timeline.file).name)
    return timeline.stated_rank if timeline.stated_rank is not None else int(found[1]) if found else None


def _gpus(timeline: Timeline) -> Iterable[Hashable]:
    return timeline.work["device"].astype(object).fillna("of unknown number").unique().tolist()


def _steps(timeline: Timeline) -> Iterable[Hashable]:
    return [(gpu, text) for gpu in _gpus(timeline) for text in timeline.ranges["name"].astype(object).unique()]


def _place(file: str) -> object:
    """The same value for all names of a file."""
    return "standard input" if file == "-" else Path(file).resolve() if Path(file).exists() else file
