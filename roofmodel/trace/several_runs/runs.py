"""Whether the files of `roof trace` are the ranks of one run, or several runs.

A run has each rank once. So arguments (files, patterns or folders) are one run if all files state different ranks of
one number of ranks, or a number such as `rank3` in their names. Otherwise each argument is a run: two are before and
after a change. Different GPUs are not enough: a second run may use another GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from roofmodel.errors import Message, Option, ProfileError, Text, WorkloadError
from roofmodel.profiles.reading import expanded_files
from roofmodel.profiles.timelines import reading
from roofmodel.profiles.timelines.timeline import Timeline


class Runs(NamedTuple):
    """The files of each run; of two, the one before a change comes first."""

    runs: list[list[Timeline]]
    reading: Text | None = None  # why several arguments are one run or more, and the option for the opposite


def read(files: Sequence[str], before: Sequence[str] = (), one_run: bool = False) -> Runs:
    """Read files, patterns and folders. `before` are those of the run before a change; `one_run` forbids two runs.

    Raises RoofError for contradicting options, for files that are not readable, and for runs of different tools.
    """
    if before and one_run:
        raise WorkloadError(Option("one_run"), " contradicts ", Option("before"), ", which gives a second run")
    sides = [expanded_files(argument) for argument in files]
    if before:
        after = reading.read([path for side in sides for path in side])
        runs = Runs([reading.read([path for argument in before for path in expanded_files(argument)]), after])
        tools = list(dict.fromkeys(timeline.tool for run in runs.runs for timeline in run))
        if len(tools) > 1:
            raise ProfileError(f"the runs are of different tools ({', '.join(tools)}); give two runs of one tool")
        return runs
    timelines = reading.read([path for side in sides for path in side])
    if len(sides) < 2 or one_run:
        return Runs([timelines])
    places = [set(map(_place, side)) for side in sides]
    return _runs_of_arguments([[t for t in timelines if _place(t.file) in side] for side in places])


def _runs_of_arguments(arguments: list[list[Timeline]]) -> Runs:
    """One run or several, from the timelines of each of several arguments."""
    sides = [side for side in arguments if side]  # a file that is not a profile was skipped
    every = [timeline for side in sides for timeline in side]
    unique = list({id(timeline): timeline for timeline in every}.values())
    if len(sides) == 2 and list(map(id, sides[0])) == list(map(id, sides[1])):
        return Runs(sides, Message("both arguments are the same files: they are compared with themselves"))
    if len(sides) < 2 or len(unique) < len(every):
        return Runs([unique])
    unit, reason = _separation(sides)
    if reason is not None:
        decision = (
            f"two runs, because {reason}: the first is before and the second after a change; "
            if len(sides) == 2
            else f"{len(sides)} runs, in the order given, because {reason}; "
        )
        return Runs(sides, Message(decision, Option("one_run"), " analyzes them as the ranks of one run"))
    if len(sides) > 2:
        return Runs([unique])
    return Runs([unique], Message(
        f"one run, because the two arguments contain different {unit}s; to compare two runs, give the files "
        "of the first with ", Option("before"),
    ))  # fmt: skip


def _separation(sides: list[list[Timeline]]) -> tuple[str, str | None]:
    """What tells the ranks of one run apart (`rank` or `step`), and why several sides are not one run, if they are not.

    A file that states a rank may not state their number.
    """
    every = [timeline for side in sides for timeline in side]
    several = "both arguments contain" if len(sides) == 2 else "several arguments contain"
    ranks: list[set[Hashable]]
    if all(timeline.tool == "steps" for timeline in every):  # files of one GPU and one step each
        unit, ranks = "step", [{key for timeline in side for key in _steps(timeline)} for side in sides]
    elif all(timeline.rank is not None for timeline in every):
        unit, ranks = "rank", [{timeline.rank for timeline in side} for side in sides]
        if len(sizes := {timeline.world_size for timeline in every if timeline.world_size}) > 1:
            listed = " and ".join(map(str, sorted(sizes)))
            return unit, f"{several} ranks of runs of different sizes ({listed} ranks)"
    else:
        return "rank", "not all files state a rank"
    counts = Counter(rank for side in ranks for rank in side)
    repeated = sorted((rank for rank, count in counts.items() if count > 1), key=str)
    if not repeated:
        return unit, None
    return unit, f"{several} " + ("the same steps" if unit == "step" else f"rank {repeated[0]}")


def _gpus(timeline: Timeline) -> Iterable[Hashable]:
    devices = timeline.work_table.cells("device")
    return dict.fromkeys("of unknown number" if device is None else device for device in devices)


def _steps(timeline: Timeline) -> Iterable[Hashable]:
    names = dict.fromkeys(timeline.range_table.cells("name"))
    return [(gpu, name) for gpu in _gpus(timeline) for name in names]


def _place(file: str) -> object:
    """The same value for all names of a file."""
    return "standard input" if file == "-" else Path(file).resolve() if Path(file).exists() else file
