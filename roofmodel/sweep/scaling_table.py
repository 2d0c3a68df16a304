"""Reader of measured scaling tables: CSV with the number of GPUs and the time or rate of each run."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from roofmodel.errors import Message, Option, WorkloadError, shorten
from roofmodel.files.text_files import expand, printable, read_text

TIMES = {"seconds": 1.0, "time_s": 1.0, "milliseconds": 1e-3, "time_ms": 1e-3, "microseconds": 1e-6}
"""Columns of times, and their unit in seconds."""
RATES = ("throughput", "rate", "images_per_second", "tokens_per_second", "samples_per_second")
"""Columns of the rate of all GPUs together."""


class MeasuredRun(NamedTuple):
    """A measured number of GPUs: the median time of its rows, or of 1 / rate; speed-up against one GPU."""

    gpus: int
    seconds: float | None
    speedup: float

    @property
    def efficiency(self) -> float:
        """Speed-up per GPU."""
        return self.speedup / self.gpus


def read_runs(path: str, mode: str) -> tuple[MeasuredRun, ...]:
    """The measured runs, by number of GPUs. Raises WorkloadError for a file of another form.

    Speed-ups are relative to the smallest number of GPUs, which is taken as that many times as fast as one GPU. The
    work of a run grows with the number of GPUs in weak scaling (`mode`).
    """
    where = printable(path)
    try:
        text = read_text(expand(path))
    except (OSError, ValueError) as error:
        raise WorkloadError(Option("measured"), f": {where}: {getattr(error, 'strerror', None) or error}") from None
    rows = [(line, row) for line, row in enumerate(csv.reader(io.StringIO(text)), 1) if any(map(str.strip, row))]
    header = [name.strip().lower() for name in rows[0][1]] if rows else []
    value_columns = [name for name in (*TIMES, *RATES) if name in header]
    if "gpus" not in header or not value_columns:
        raise WorkloadError(
            Option("measured"),
            f": {where}: needs the columns gpus and seconds (or {', '.join([*TIMES, *RATES][1:])}); "
            f"it has {', '.join(map(shorten, header)) or 'no header'}",
        )  # fmt: skip
    values: dict[int, list[float]] = {}
    for line, row in rows[1:]:
        cells = dict(zip(header, map(str.strip, row), strict=False))
        gpus = _number(where, line, "gpus", cells)
        if gpus != int(gpus):
            raise _bad_cell(where, line, "gpus", cells["gpus"])
        values.setdefault(int(gpus), []).append(_number(where, line, value_columns[0], cells))
    if not values:
        raise WorkloadError(Option("measured"), f": {where}: has no rows below its header")
    return _runs({gpus: median(values[gpus]) for gpus in sorted(values)}, TIMES.get(value_columns[0]), mode)


def _runs(medians: Mapping[int, float], unit: float | None, mode: str) -> tuple[MeasuredRun, ...]:
    seconds = {gpus: value * unit for gpus, value in medians.items()} if unit else {}
    work = {gpus: gpus if mode == "weak" else 1 for gpus in medians}
    rates = {gpus: work[gpus] / seconds[gpus] if unit else value for gpus, value in medians.items()}
    first = next(iter(medians))
    return tuple(MeasuredRun(gpus, seconds.get(gpus), first * rates[gpus] / rates[first]) for gpus in medians)


def _number(where: str, line: int, column: str, cells: Mapping[str, str]) -> float:
    try:
        value = float(cells.get(column, ""))
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise _bad_cell(where, line, column, cells.get(column, ""))
    return value


def _bad_cell(where: str, line: int, column: str, text: str) -> WorkloadError:
    return WorkloadError(
        Message(Option("measured"), f": {where}:{line}: {column} is {shorten(text)}; it must be a number above 0")
    )
