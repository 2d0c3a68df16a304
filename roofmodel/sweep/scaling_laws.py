"""Measured runs, and Amdahl's and Gustafson's laws: fits of the serial fraction to speed-ups, with its interval.

With the serial fraction f, and efficiency = speed-up / n on n GPUs:

    Amdahl, strong scaling:   1 / speed-up = f + (1 - f) / n     (Amdahl, AFIPS 1967)
    Gustafson, weak scaling:  speed-up = n - f (n - 1)           (Gustafson, CACM 31(5), 1988)

Both are linear in f: y = f x with x = 1 - 1 / n, and y = 1 / speed-up - 1 / n or y = 1 - efficiency.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import median
from typing import NamedTuple

from roofmodel.errors import Message, Option, WorkloadError, shorten
from roofmodel.files.text_files import expand, printable, read_text

T_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
)  # fmt: skip
"""97.5 % quantiles of Student's t distribution for 1, 2, ... degrees of freedom; 1.96 for infinitely many."""

LEAST_POINTS = 3
"""Points on several GPUs from which the interval is shown. Of two, Student's quantile is 12.7."""
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


class LawFit(NamedTuple):
    """A fitted law: its serial fraction with the 95 % interval; None for an interval from a single point."""

    law: str
    serial_fraction: float
    low: float | None
    high: float | None
    points: int

    @property
    def too_few_points(self) -> bool:
        """Whether the interval says nothing: of two points, or wider than all possible fractions."""
        wide = self.low is not None and self.high is not None and self.high - self.low > 1
        return self.points < LEAST_POINTS or wide

    def speedup(self, gpus: float) -> float:
        """The speed-up on this number of GPUs."""
        f = self.serial_fraction
        return 1 / (f + (1 - f) / gpus) if self.law == "amdahl" else gpus - f * (gpus - 1)


class Scaling(NamedTuple):
    """How a sweep scales, and the measured runs with the laws fitted to them and to the model's points."""

    mode: str
    share: str
    gpus: tuple[int, ...]
    measured: tuple[MeasuredRun, ...] = ()
    fits: tuple[tuple[str, LawFit], ...] = ()  # ("model" or "measured", fit)


LAWS = ("amdahl", "gustafson")


def fit(law: str, gpus: Sequence[float], speedups: Sequence[float]) -> LawFit | None:
    """The least-squares fit of a law to speed-ups against one GPU; None without a point on several GPUs."""
    pairs = [(n, speedup) for n, speedup in zip(gpus, speedups, strict=True) if n > 1]
    if not pairs:
        return None
    xs = [1 - 1 / n for n, _ in pairs]
    ys = [1 / speedup - 1 / n if law == "amdahl" else 1 - speedup / n for n, speedup in pairs]
    squares = sum(x * x for x in xs)
    fraction = sum(x * y for x, y in zip(xs, ys, strict=True)) / squares
    freedom = len(pairs) - 1
    if not freedom:
        return LawFit(law, fraction, None, None, 1)
    variance = sum((y - fraction * x) ** 2 for x, y in zip(xs, ys, strict=True)) / freedom
    quantile = T_QUANTILES[freedom - 1] if freedom <= len(T_QUANTILES) else 1.96
    margin = quantile * sqrt(variance / squares)
    return LawFit(law, fraction, fraction - margin, fraction + margin, len(pairs))


# --- The file of measured runs --------------------------------------------------------------------


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
