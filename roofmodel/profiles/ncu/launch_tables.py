"""Tables of launches with their raw Nsight Compute metrics, and joining the tables of one program.

To collect many metrics, a user may run a program several times with different metrics, which gives a file per run.
Such tables are joined if each kernel name occurs equally often in them and no metric is in two of them. Launches are
matched by name and occurrence, because the order of launches on different streams varies.

A user may also export one report several times, section by section. Such files share metrics; they are joined if
processes, launch IDs and all values of shared metrics are equal. Other tables stay separate.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import isnan, nan
from typing import Any

from roofmodel.errors import ProfileError
from roofmodel.profiles.kernel import Evidence, KernelTable, ReaderWarning
from roofmodel.profiles.ncu.metric_names import is_interpreted

# The raw page always has these metrics, so two tables that share them are not two measurements.
_ALWAYS_EXPORTED = ("launch__", "device__", "nvlink__", "profiler__", "numa__", "sm__maximum_", "smsp__maximum_")


@dataclass
class LaunchTable:
    """The rows under one header: a launch each or, in a summary, a kernel name.

    The launches have the metrics that are read, in base units; `metrics` names all that were collected.
    """

    file: str
    summary: bool
    launches: KernelTable = field(default_factory=KernelTable)
    metrics: set[str] = field(default_factory=set)
    evidence: list[Evidence] = field(default_factory=list)
    warnings: list[ReaderWarning] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.launches.declare(capability=str)

    def requested_metrics(self) -> set[str]:
        """The metrics that the user asked ncu for."""
        return {name for name in self.metrics if not name.startswith(_ALWAYS_EXPORTED)}


def pad(column: array[float], length: int) -> None:
    """Extend a column with NaN to `length`."""
    column.extend(repeat(nan, length - len(column)))


def join(tables: Iterable[LaunchTable]) -> tuple[list[LaunchTable], list[ReaderWarning]]:
    """Join tables that describe the same launches. Returns the tables, in order, and warnings.

    Raises ProfileError if a table fits two others equally well.
    """
    runs: list[LaunchTable] = []
    warnings: list[ReaderWarning] = []
    for table in tables:
        same_launches = [run for run in runs if _same_launches(run, table)]
        fitting = [
            run
            for run in same_launches
            if not run.requested_metrics() & table.requested_metrics() or _same_measurement(run, table)
        ]
        if len(fitting) > 1:
            near = [run for run in fitting if _folder(run.file) == _folder(table.file)]
            if len(near) != 1:
                raise ProfileError(
                    f"{table.file}: ambiguous: its kernels match {' and '.join(run.file for run in fitting)}; "
                    "give the files of one run at a time"
                )
            fitting = near
        if fitting:
            _merge(fitting[0], table)
            continue
        if same_launches:
            other = same_launches[0]
            common = sorted(other.requested_metrics() & table.requested_metrics())
            both = f"{table.file} and {other.file}" if table.file != other.file else f"two tables of {table.file}"
            more = f" and {len(common) - 1} other metrics" if len(common) > 1 else ""
            text = f"{both} contain the same kernels and both have {common[0]}{more}: they are kept as two measurements"
            warnings.append(ReaderWarning(text))
        runs.append(table)
    return runs, warnings


def _folder(file: str) -> str:
    return file.replace("\\", "/").rpartition("/")[0]


def _same_launches(first: LaunchTable, second: LaunchTable) -> bool:
    if (
        first.summary != second.summary
        or len(first.launches) != len(second.launches)
        or not first.requested_metrics()
        or not second.requested_metrics()
    ):
        return False
    capabilities = [{*table.launches.cells("capability")} - {None} for table in (first, second)]
    if all(capabilities) and capabilities[0] != capabilities[1]:
        return False
    columns = _comparable(first, second)
    return Counter(_keys(first, columns)) == Counter(_keys(second, columns))


def _same_measurement(run: LaunchTable, table: LaunchTable) -> bool:
    """Whether tables of two files with the same launches are exports of one report.

    Processes, launch IDs and all values of shared metrics are equal then. Equal tables within one file are runs whose
    output was appended to it.
    """
    if run.file == table.file:
        return False
    places = _matching_places(run, table)
    others = list(_keys(table, ("process", "number")))
    for key, place in zip(_keys(run, ("process", "number")), places, strict=True):
        if key[0] is None or key != others[place]:
            return False
    shared = filter(is_interpreted, {*run.launches.metrics} & {*table.launches.metrics})
    return all(
        own == other or isnan(own) or isnan(other)
        for name in shared
        for own, other in zip(run.launches.stored(name), _at(table, name, places), strict=True)
    )


def _at(table: LaunchTable, metric: str, places: Sequence[int]) -> Iterator[float]:
    return map(table.launches.stored(metric).__getitem__, places)


def _matching_places(run: LaunchTable, table: LaunchTable) -> list[int]:
    """For each launch of `run`, the index of the launch of `table` with the same name and occurrence."""
    columns = _comparable(run, table)
    waiting: defaultdict[tuple[object, ...], deque[int]] = defaultdict(deque)
    for place, key in enumerate(_keys(table, columns)):
        waiting[key].append(place)
    return [waiting[key].popleft() for key in _keys(run, columns)]


def _comparable(*tables: LaunchTable) -> tuple[str, ...]:
    """Columns that identify a launch: its name, and grid, block and device if all tables have them."""
    known = (name for name in ("grid", "block", "device") if all(None not in t.launches.cells(name) for t in tables))
    return ("name", "invocations", *known)


def _keys(table: LaunchTable, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """These cells of each launch."""
    return zip(*map(table.launches.cells, columns), strict=True)


def _merge(run: LaunchTable, table: LaunchTable) -> None:
    """Add to each launch of `run` the metrics of the launch with the same name and occurrence in `table`."""
    places = _matching_places(run, table)
    known = {*run.launches.metrics}
    for name in table.launches.metrics:
        run.launches.declare(**{name: float})
        values = array("d", _at(table, name, places))
        run.launches.put(name, _merged_values(name, run, table, values) if name in known else values)
    for name in ("grid", "block", "device", "stream", "capability", "nvtx"):
        others = table.launches.cells(name)
        pairs = zip(run.launches.cells(name), places, strict=True)
        run.launches.set(name, [own or others[place] for own, place in pairs])
    if table.launches.has("rules"):
        others = table.launches.cells("rules")
        every = zip(run.launches.cells("rules"), places, strict=True)
        run.launches.set("rules", [own or others[place] for own, place in every])
    run.metrics |= table.metrics
    run.evidence.extend(e for e in table.evidence if e not in run.evidence)
    run.warnings.extend(table.warnings)


def _merged_values(name: str, run: LaunchTable, table: LaunchTable, values: array[float]) -> array[float]:
    """Values of a metric that is in both tables. Raises ProfileError if the values of a launch differ."""
    both = array("d")
    every = zip(run.launches.cells("number"), run.launches.stored(name), values, strict=True)
    for launch, own, other in every:
        if own != other and not isnan(own) and not isnan(other) and is_interpreted(name):
            raise ProfileError(
                f"{table.file}: {name} of launch {launch} is {other}, but {own} in {run.file}; "
                "the files seem to be of different runs: give them one at a time"
            )
        both.append(other if isnan(own) else own)
    return both
