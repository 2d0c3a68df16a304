"""Interpret the metrics of many launches as arrays, and store the resulting kernels as columns.

A gigabyte of Nsight Compute CSV has half a million launches or more. One object per launch would take a kilobyte each
and minutes to create, so the data stay in columns from the file to the sums. `metrics.interpret` is written for one
launch; it processes many when its values are `LaunchArray`s instead of numbers.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from roofmodel.profiles.kernel import LIMITS, Flops, Kernel, KernelColumns, Traffic
from roofmodel.profiles.ncu import metric_names, metrics
from roofmodel.profiles.ncu.launch_tables import LaunchKind, LaunchTable

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]  # indices of launches in a table

Key = TypeVar("Key")

_CHUNK = 4096  # kernels created at a time


class LaunchArray(np.ndarray[Any, Any]):
    """A metric of many launches in place of one number; a branch on it requires all launches to agree."""

    def __bool__(self) -> bool:
        mask = np.asarray(self) != 0
        if mask.any() and not mask.all():
            raise DivergentBranch(mask)
        return bool(mask[0])

    def __round__(self, digits: int = 0) -> Any:
        return np.rint(self) if not digits else NotImplemented


class DivergentBranch(Exception):
    """A branch on which launches disagree: those in `mask` take it, the others do not."""

    def __init__(self, mask: npt.NDArray[np.bool_]) -> None:
        super().__init__()
        self.mask = mask


def launches_by(table: LaunchTable, key: Callable[[LaunchKind], Key]) -> Iterator[tuple[Key, Places]]:
    """Group the launches of a table by a key of their kind; yields each key with the indices of its launches."""
    keys = list(map(key, table.kinds))
    of_kind = np.frombuffer(table.kind, np.intc)
    for each in dict.fromkeys(keys):
        yield each, np.flatnonzero(np.array([other == each for other in keys])[of_kind])


def interpret_launches(
    table: LaunchTable, launches: Places, generation: str | None, averaged: bool
) -> Iterator[tuple[Places, metrics.LaunchMetrics]]:
    """Interpret the metrics of launches in groups that have the same metrics and take the same branches.

    Yields the launch indices of each group and its metrics, which are arrays over these launches.
    """
    columns = {
        name: np.frombuffer(column)[launches]
        for name, column in table.values.items()
        if metric_names.is_interpreted(name)
    }
    collected = np.zeros(len(launches), np.intp)  # one number per set of collected metrics
    for column in columns.values():
        collected = np.unique(2 * collected + np.isnan(column), return_inverse=True)[1]
    for number in range(collected.max(initial=-1) + 1):
        together = np.flatnonzero(collected == number)
        values = {
            name: column[together].view(LaunchArray)
            for name, column in columns.items()
            if not np.isnan(column[together[0]])
        }
        for places, meaning in _interpret_together(values, np.arange(len(together)), generation, averaged):
            yield launches[together[places]], meaning


def _interpret_together(
    values: Mapping[str, LaunchArray], places: Places, generation: str | None, averaged: bool
) -> Iterator[tuple[Places, metrics.LaunchMetrics]]:
    try:
        meaning = metrics.interpret(cast(Mapping[str, float], values), generation, averaged)
    except DivergentBranch as diverged:
        for mask in (diverged.mask, ~diverged.mask):
            some = {name: lanes[mask].view(LaunchArray) for name, lanes in values.items()}
            yield from _interpret_together(some, places[mask], generation, averaged)
    else:
        yield places, meaning


class LaunchCounters(Mapping[str, float]):
    """The metrics of one launch in base units, percentages as fractions; only those that were collected."""

    __slots__ = ("_columns", "_place")

    def __init__(self, columns: Mapping[str, array[float]], place: int) -> None:
        self._columns, self._place = columns, place

    def __getitem__(self, name: str) -> float:
        value = self._columns[name][self._place]
        if value != value:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name, column in self._columns.items() if column[self._place] == column[self._place])

    def __len__(self) -> int:
        return sum(1 for _ in self)


class TableKernels:
    """The kernels of one table: `table` describes its launches, `columns` holds their numbers (NaN: missing)."""

    def __init__(self, table: LaunchTable) -> None:
        self.table = table
        self.columns: dict[str, Floats] = {}
        times = np.array([kind.invocations for kind in table.kinds], np.float64)
        self.kind = np.frombuffer(table.kind, np.intc)
        self.times = times[self.kind]

    def fill(self, places: Places, meaning: metrics.LaunchMetrics) -> None:
        """Store the metrics of the launches at `places`, multiplied by their invocations."""
        times = self.times[places]
        self._put("seconds", places, meaning.seconds, times)
        for name in ("occupancy", "registers", "clock"):
            self._put(name, places, getattr(meaning, name), 1)
        for name, value in (meaning.flops._asdict() | meaning.bytes._asdict()).items():
            self._put(name, places, value, times)

    def _put(self, name: str, places: Places, value: float | None, times: Floats | int) -> None:
        if value is None:
            return
        if name not in self.columns:
            self.columns[name] = np.full(len(self.table.ids), np.nan)
        self.columns[name][places] = np.asarray(value) * times

    def drop_impossible_values(self) -> dict[str, int]:
        """Replace impossible values by NaN. Returns the number of such kernels by field."""
        counts = {}
        for name in LIMITS.keys() & self.columns.keys():
            column, launches = self.columns[name], self.times if name == "seconds" else 1
            impossible = column > LIMITS[name].maximum * launches  # the reader of rows refuses negative values
            column[impossible] = np.nan
            counts[name] = int(impossible.sum())
        return counts

    def kernels(self, start: int, stop: int) -> Iterator[Kernel]:
        """Create the kernels from index `start` to `stop`."""
        table = self.table
        kinds = map(table.kinds.__getitem__, table.kind[start:stop])
        flops, moved = (
            map(form._make, zip(*(self._cells(name, start, stop, whole=True) for name in form._fields), strict=False))
            for form in (Flops, Traffic)
        )
        numbers = (self._cells(name, start, stop) for name in ("seconds", "occupancy", "clock"))
        registers = self._cells("registers", start, stop, whole=True)
        rows = zip(table.ids[start:stop], kinds, flops, moved, registers, *numbers, strict=False)
        for place, (launch, kind, done, traffic, registers_, seconds, occupancy, clock) in enumerate(rows, start):
            yield Kernel(
                id=f"{table.prefix}{launch}",
                file=table.file,
                name=kind.name,
                process=kind.process,
                device=kind.device,
                stream=kind.stream,
                grid=kind.grid,
                block=kind.block,
                nvtx=kind.nvtx,
                invocations=kind.invocations,
                seconds=seconds,
                occupancy=occupancy,
                registers=registers_,
                clock=clock,
                flops=done,
                bytes=traffic,
                counters=LaunchCounters(table.values, place),
            )

    def _cells(self, name: str, start: int, stop: int, whole: bool = False) -> Iterable[Any]:
        """A column's numbers, None for NaN; with `whole`, integral values as int."""
        if name not in self.columns:
            return repeat(None)
        numbers = self.columns[name][start:stop].tolist()
        return (None if n != n else int(n) if whole and n.is_integer() else n for n in numbers)

    def summed(self) -> Iterator[Kernel]:
        """One kernel per name and NVTX range; launches without a time are summed separately."""
        numbers: dict[tuple[str, tuple[str, ...]], int] = {}
        of = np.array([numbers.setdefault((kind.name, kind.nvtx), len(numbers)) for kind in self.table.kinds], np.intp)
        seconds = self.columns.get("seconds", np.full(len(self.table.ids), np.nan))
        present, index = np.unique(2 * of[self.kind] + np.isnan(seconds), return_inverse=True)
        sums: dict[str, npt.NDArray[Any]] = {
            name: np.bincount(index, column, len(present)) for name, column in self.columns.items()
        }
        if "occupancy" in sums:
            resident, time = np.bincount(index, self.columns["occupancy"] * seconds), np.bincount(index, seconds)
            sums["occupancy"] = np.divide(resident, time, out=resident, where=time != 0)  # total time 0: keep 0
        for name in sums.keys() & {"registers", "clock"}:
            sums[name] = np.full(len(present), np.nan)
            np.fmax.at(sums[name], index, self.columns[name])
        sums["invocations"] = np.bincount(index, self.times, len(present))
        names = list(numbers)
        for place, key in enumerate(present.tolist()):
            cells = {name: None if n != n else n for name, column in sums.items() for n in [column[place].item()]}
            registers = cells.get("registers")
            name, nvtx = names[key // 2]
            yield Kernel(
                id=str(place),
                file=self.table.file,
                name=name,
                nvtx=nvtx,
                invocations=int(cells["invocations"] or 0),
                seconds=cells.get("seconds"),
                occupancy=cells.get("occupancy"),
                registers=None if registers is None else int(registers),
                clock=cells.get("clock"),
                flops=Flops._make(map(cells.get, Flops._fields)),
                bytes=Traffic._make(map(cells.get, Traffic._fields)),
            )


class ArrayKernels(KernelColumns):
    """The kernels of several tables, concatenated; each is created on access."""

    def __init__(self, parts: Sequence[TableKernels]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(len(part.table.ids) for part in self._parts)

    def __iter__(self) -> Iterator[Kernel]:
        for part in self._parts:
            for start in range(0, len(part.table.ids), _CHUNK):
                yield from part.kernels(start, start + _CHUNK)

    @overload
    def __getitem__(self, index: int) -> Kernel: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Kernel, ...]: ...

    def __getitem__(self, index: int | slice) -> Kernel | tuple[Kernel, ...]:
        if isinstance(index, slice):
            return tuple(map(self.__getitem__, range(*index.indices(len(self)))))
        place = range(len(self))[index]
        for part in self._parts:
            if place < len(part.table.ids):
                return next(part.kernels(place, place + 1))
            place -= len(part.table.ids)
        raise AssertionError("unreachable")

    def summed(self) -> tuple[Kernel, ...]:
        return tuple(kernel for part in self._parts for kernel in part.summed())

    def longest(self, limit: int) -> list[Kernel]:
        kernels: list[Kernel] = []
        for part in self._parts:
            seconds = np.nan_to_num(part.columns.get("seconds", np.zeros(len(part.table.ids))))
            for place in np.argsort(-seconds, kind="stable")[:limit].tolist():
                kernels += part.kernels(place, place + 1)
        return heapq.nlargest(limit, kernels, key=lambda kernel: kernel.seconds or 0)
