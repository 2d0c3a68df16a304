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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import isnan, nan
from typing import NamedTuple

from roofmodel.errors import ProfileError
from roofmodel.profiles.kernel import Evidence, Extent, ReaderWarning
from roofmodel.profiles.ncu.metric_names import is_interpreted

# The raw page always has these metrics, so two tables that share them are not two measurements.
_ALWAYS_EXPORTED = ("launch__", "device__", "nvlink__", "profiler__", "numa__", "sm__maximum_", "smsp__maximum_")


class LaunchKind(NamedTuple):
    """The attributes of a launch except id and metrics. Many launches share one, so a table has few of them."""

    name: str
    process: str | None = None
    device: str | None = None
    grid: Extent | None = None
    block: Extent | None = None
    stream: str | None = None
    capability: str | None = None
    nvtx: tuple[str, ...] = ()
    invocations: int = 1


@dataclass
class LaunchTable:
    """The rows under one header, as columns with one entry per launch (in a summary: per kernel name).

    A launch takes about ten bytes plus eight per metric. `metrics` names all collected metrics, including those that
    are not read.
    """

    file: str
    summary: bool
    prefix: str = ""  # of the ids, for the second and later tables of a file
    kinds: list[LaunchKind] = field(default_factory=list)
    ids: array[int] = field(default_factory=lambda: array("q"))
    kind: array[int] = field(default_factory=lambda: array("i"))  # index into `kinds` for each launch
    values: dict[str, array[float]] = field(default_factory=dict)  # metric -> values in base units; NaN: not collected
    metrics: set[str] = field(default_factory=set)
    evidence: list[Evidence] = field(default_factory=list)
    warnings: list[ReaderWarning] = field(default_factory=list)

    def pad(self) -> None:
        """Fill the columns with NaN up to the number of launches."""
        for column in self.values.values():
            pad(column, len(self.ids))

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
        or len(first.ids) != len(second.ids)
        or not first.requested_metrics()
        or not second.requested_metrics()
    ):
        return False
    capabilities = [{kind.capability for kind in table.kinds} - {None} for table in (first, second)]
    if all(capabilities) and capabilities[0] != capabilities[1]:
        return False
    fields = _comparable(first, second)
    return _launch_counts(first, fields) == _launch_counts(second, fields)


def _same_measurement(run: LaunchTable, table: LaunchTable) -> bool:
    """Whether tables of two files with the same launches are exports of one report.

    Processes, launch IDs and all values of shared metrics are equal then. Equal tables within one file are runs whose
    output was appended to it.
    """
    if run.file == table.file:
        return False
    places = _matching_places(run, table)
    for kind, launch, place in zip(run.kind, run.ids, places, strict=True):
        process = run.kinds[kind].process
        if process is None or (process, launch) != (table.kinds[table.kind[place]].process, table.ids[place]):
            return False
    shared = filter(is_interpreted, run.values.keys() & table.values.keys())
    return all(
        own == other or isnan(own) or isnan(other)
        for name in shared
        for own, other in zip(run.values[name], map(table.values[name].__getitem__, places), strict=True)
    )


def _matching_places(run: LaunchTable, table: LaunchTable) -> list[int]:
    """For each launch of `run`, the index of the launch of `table` with the same name and occurrence."""
    fields = _comparable(run, table)
    waiting: defaultdict[tuple[object, ...], deque[int]] = defaultdict(deque)
    keys = _keys(table, fields)
    for place, kind in enumerate(table.kind):
        waiting[keys[kind]].append(place)
    keys = _keys(run, fields)
    return [waiting[keys[kind]].popleft() for kind in run.kind]


def _comparable(*tables: LaunchTable) -> tuple[str, ...]:
    """Fields that identify a launch: its name, and grid, block and device if all tables have them."""
    fields = (f for f in ("grid", "block", "device") if all(getattr(k, f) is not None for t in tables for k in t.kinds))
    return ("name", "invocations", *fields)


def _keys(table: LaunchTable, fields: Sequence[str]) -> list[tuple[object, ...]]:
    """The identifying fields of each kind of launch."""
    return [tuple(getattr(kind, name) for name in fields) for kind in table.kinds]


def _launch_counts(table: LaunchTable, fields: Sequence[str]) -> Counter[tuple[object, ...]]:
    keys, census = _keys(table, fields), Counter[tuple[object, ...]]()
    for kind, launches in Counter(table.kind).items():
        census[keys[kind]] += launches
    return census


def _merge(run: LaunchTable, table: LaunchTable) -> None:
    """Add to each launch of `run` the metrics of the launch with the same name and occurrence in `table`."""
    places = _matching_places(run, table)
    for name, column in table.values.items():
        values = array("d", map(column.__getitem__, places))
        run.values[name] = _merged_values(name, run, table, values) if name in run.values else values
    pairs: dict[tuple[int, int], int] = {}
    kinds = zip(run.kind, map(table.kind.__getitem__, places), strict=True)
    run.kind = array("i", (pairs.setdefault(pair, len(pairs)) for pair in kinds))
    run.kinds = [_with_missing_fields(run.kinds[own], table.kinds[other]) for own, other in pairs]
    run.metrics |= table.metrics
    run.evidence.extend(e for e in table.evidence if e not in run.evidence)
    run.warnings.extend(table.warnings)


def _merged_values(name: str, run: LaunchTable, table: LaunchTable, values: array[float]) -> array[float]:
    """Values of a metric that is in both tables. Raises ProfileError if the values of a launch differ."""
    both = array("d")
    for launch, own, other in zip(run.ids, run.values[name], values, strict=True):
        if own != other and not isnan(own) and not isnan(other) and is_interpreted(name):
            raise ProfileError(
                f"{table.file}: {name} of launch {launch} is {other}, but {own} in {run.file}; "
                "the files seem to be of different runs: give them one at a time"
            )
        both.append(other if isnan(own) else own)
    return both


def _with_missing_fields(kind: LaunchKind, other: LaunchKind) -> LaunchKind:
    """A kind with its missing fields taken from the other table."""
    names = ("grid", "block", "device", "stream", "capability")
    lacking = {name: getattr(other, name) for name in names if getattr(kind, name) is None}
    return kind._replace(**lacking, nvtx=kind.nvtx or other.nvtx)
