"""Launches as a table of Nsight Compute holds them, before their metrics are read, and joining tables of one run.

To collect many metrics one may run a program once for each and get a file from every run. Such files describe
the same launches when each name occurs equally often in all of them and no metric is in two; they are joined by
name and occurrence (the order of different streams varies from run to run). All others stay side by side.
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
from roofmodel.profiles.kernel import Evidence, Extent

# A row of the raw page has these whatever was asked for: holding them in common is no sign of two measurements.
_ALWAYS = ("launch__", "device__", "nvlink__", "profiler__", "numa__", "sm__maximum_", "smsp__maximum_")


class Kind(NamedTuple):
    """What launches have in common: everything but their ids and their values. A table has few of these."""

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
class Table:
    """What stands under one header, in columns with an entry for each launch (in a summary: for each name).

    A launch takes some ten bytes and eight for each metric. `metrics` names all that were collected, those that
    nobody reads included.
    """

    file: str
    summary: bool
    prefix: str = ""  # of the ids of a file's second table
    kinds: list[Kind] = field(default_factory=list)
    ids: array[int] = field(default_factory=lambda: array("q"))
    kind: array[int] = field(default_factory=lambda: array("i"))  # which of `kinds` a launch is of
    values: dict[str, array[float]] = field(default_factory=dict)  # metric -> base units; NaN: was not collected
    metrics: set[str] = field(default_factory=set)
    evidence: list[Evidence] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def pad(self) -> None:
        """Say of the last launches that they lack the metrics that were not given to them."""
        for column in self.values.values():
            pad(column, len(self.ids))

    def own(self) -> set[str]:
        """The metrics that somebody asked for."""
        return {name for name in self.metrics if not name.startswith(_ALWAYS)}


def pad(column: array[float], length: int) -> None:
    """Say of the launches up to `length` that they lack a metric."""
    column.extend(repeat(nan, length - len(column)))


def join(tables: Iterable[Table]) -> tuple[list[Table], list[str]]:
    """Tables of one run become one; the rest is kept. Returns them, in order, and warnings.

    Raises ProfileError where a table fits two runs equally well: nothing would tell a right join from a wrong one.
    """
    runs: list[Table] = []
    warnings: list[str] = []
    for table in tables:
        fitting = [run for run in runs if _same_launches(run, table) and not run.own() & table.own()]
        if len(fitting) > 1:
            near = [run for run in fitting if _folder(run.file) == _folder(table.file)]
            if len(near) != 1:
                raise ProfileError(
                    f"{table.file}: its kernels are those of {' and of '.join(run.file for run in fitting)}, which are "
                    "two runs, and nothing tells to which of them it belongs; read one run at a time"
                )
            fitting = near
        if fitting:
            _merge(fitting[0], table)
            continue
        if twin := next((run for run in runs if _same_launches(run, table)), None):
            common = sorted(twin.own() & table.own())
            both = f"{table.file} and {twin.file}" if table.file != twin.file else f"two tables of {table.file}"
            warnings.append(
                f"{both} hold the same kernels and both have {common[0]}"
                f"{f' and {len(common) - 1} other metrics' if len(common) > 1 else ''}: "
                "taken as two measurements, not joined"
            )
        runs.append(table)
    return runs, warnings


def _folder(file: str) -> str:
    return file.replace("\\", "/").rpartition("/")[0]


def _same_launches(one: Table, other: Table) -> bool:
    if one.summary != other.summary or len(one.ids) != len(other.ids) or not one.own() or not other.own():
        return False
    capabilities = [{kind.capability for kind in table.kinds} - {None} for table in (one, other)]
    if all(capabilities) and capabilities[0] != capabilities[1]:
        return False
    fields = _comparable(one, other)
    return _census(one, fields) == _census(other, fields)


def _comparable(*tables: Table) -> tuple[str, ...]:
    """What identifies a launch in all of these tables: its name, and its extents and device where all give them."""
    given = (f for f in ("grid", "block", "device") if all(getattr(k, f) is not None for t in tables for k in t.kinds))
    return ("name", "invocations", *given)


def _keys(table: Table, fields: Sequence[str]) -> list[tuple[object, ...]]:
    """What identifies the launches of each kind."""
    return [tuple(getattr(kind, name) for name in fields) for kind in table.kinds]


def _census(table: Table, fields: Sequence[str]) -> Counter[tuple[object, ...]]:
    keys, census = _keys(table, fields), Counter[tuple[object, ...]]()
    for kind, launches in Counter(table.kind).items():
        census[keys[kind]] += launches
    return census


def _merge(run: Table, table: Table) -> None:
    """Give each launch of `run` the metrics of the launch of the same name and occurrence in `table`."""
    fields = _comparable(run, table)
    waiting: defaultdict[tuple[object, ...], deque[int]] = defaultdict(deque)
    keys = _keys(table, fields)
    for place, kind in enumerate(table.kind):
        waiting[keys[kind]].append(place)
    keys = _keys(run, fields)
    places = [waiting[keys[kind]].popleft() for kind in run.kind]  # of each launch of `run`, in `table`
    for name, column in table.values.items():
        values = array("d", map(column.__getitem__, places))
        run.values[name] = _same_values(name, run, table, values) if name in run.values else values
    pairs: dict[tuple[int, int], int] = {}
    kinds = zip(run.kind, map(table.kind.__getitem__, places), strict=True)
    run.kind = array("i", (pairs.setdefault(pair, len(pairs)) for pair in kinds))
    run.kinds = [_filled(run.kinds[own], table.kinds[other]) for own, other in pairs]
    run.metrics |= table.metrics
    run.evidence.extend(e for e in table.evidence if e not in run.evidence)
    run.warnings.extend(table.warnings)


def _same_values(name: str, run: Table, table: Table, values: array[float]) -> array[float]:
    """Values of a metric that both tables hold, where one of them has one. Raises ProfileError where they differ."""
    both = array("d")
    for launch, own, other in zip(run.ids, run.values[name], values, strict=True):
        if own != other and not isnan(own) and not isnan(other):
            raise ProfileError(
                f"{table.file}: {name} of launch {launch} of {run.file} is {own} there and {other} here; "
                "they seem to be different runs: read them one at a time"
            )
        both.append(other if isnan(own) else own)
    return both


def _filled(kind: Kind, other: Kind) -> Kind:
    """A kind with what only the other table says of it."""
    names = ("grid", "block", "device", "stream", "capability")
    lacking = {name: getattr(other, name) for name in names if getattr(kind, name) is None}
    return kind._replace(**lacking, nvtx=kind.nvtx or other.nvtx)
