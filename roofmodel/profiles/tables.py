"""Launches as a table of Nsight Compute holds them, before their metrics are read, and joining tables of one run.

To collect many metrics one may run a program once for each and get a file from every run. Such files describe
the same launches when each name occurs equally often in all of them and no metric is in two; they are joined by
name and occurrence (the order of different streams varies from run to run). All others stay side by side.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from roofmodel.errors import ProfileError
from roofmodel.profiles.kernel import Evidence, Extent

# A row of the raw page has these whatever was asked for: holding them in common is no sign of two measurements.
_ALWAYS = ("launch__", "device__", "nvlink__", "profiler__", "numa__", "sm__maximum_", "smsp__maximum_")


@dataclass(slots=True)
class Launch:
    """One row of a wide table, or the rows of one launch (in a summary: of one name) of a long one."""

    id: str
    name: str
    process: str | None = None
    device: str | None = None
    stream: str | None = None
    grid: Extent | None = None
    block: Extent | None = None
    capability: str | None = None
    nvtx: tuple[str, ...] = ()
    invocations: int = 1
    values: dict[str, float] = field(default_factory=dict)  # metric -> base units; what was not collected is not in it


@dataclass
class Table:
    """What stands under one header; `metrics` names all columns, those that nobody reads included."""

    file: str
    summary: bool
    launches: list[Launch] = field(default_factory=list)
    metrics: set[str] = field(default_factory=set)
    evidence: list[Evidence] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def own(self) -> set[str]:
        """The metrics that somebody asked for."""
        return {name for name in self.metrics if not name.startswith(_ALWAYS)}


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
            warnings.append(
                f"{table.file} and {twin.file} hold the same kernels and both have {common[0]}"
                f"{f' and {len(common) - 1} other metrics' if len(common) > 1 else ''}: "
                "taken as two measurements, not joined"
            )
        runs.append(table)
    return runs, warnings


def _folder(file: str) -> str:
    return file.replace("\\", "/").rpartition("/")[0]


def _same_launches(one: Table, other: Table) -> bool:
    if one.summary != other.summary or len(one.launches) != len(other.launches) or not one.own() or not other.own():
        return False
    capabilities = [{launch.capability for launch in table.launches} - {None} for table in (one, other)]
    if all(capabilities) and capabilities[0] != capabilities[1]:
        return False
    fields = _comparable(one, other)
    return Counter(_keys(one, fields)) == Counter(_keys(other, fields))


def _comparable(*tables: Table) -> tuple[str, ...]:
    """What identifies a launch in all of these tables: its name, and its extents and device where all give them."""
    given = (
        f for f in ("grid", "block", "device") if all(getattr(x, f) is not None for t in tables for x in t.launches)
    )
    return ("name", "invocations", *given)


def _keys(table: Table, fields: Sequence[str]) -> list[tuple[object, ...]]:
    return [tuple(getattr(launch, name) for name in fields) for launch in table.launches]


def _merge(run: Table, table: Table) -> None:
    """Give each launch of `run` the metrics of the launch of the same name and occurrence in `table`."""
    fields = _comparable(run, table)
    waiting: defaultdict[tuple[object, ...], deque[Launch]] = defaultdict(deque)
    for key, launch in zip(_keys(table, fields), table.launches, strict=True):
        waiting[key].append(launch)
    for key, launch in zip(_keys(run, fields), run.launches, strict=True):
        other = waiting[key].popleft()
        for name, value in other.values.items():
            if launch.values.setdefault(name, value) != value:
                raise ProfileError(
                    f"{table.file}: {name} of launch {other.id} is {value}, and {launch.values[name]} for the same "
                    f"launch in {run.file}; they seem to be different runs: read them one at a time"
                )
        for field_name in ("grid", "block", "device", "stream", "capability"):
            if getattr(launch, field_name) is None:
                setattr(launch, field_name, getattr(other, field_name))
        launch.nvtx = launch.nvtx or other.nvtx
    run.metrics |= table.metrics
    run.evidence.extend(e for e in table.evidence if e not in run.evidence)
    run.warnings.extend(table.warnings)
