"""Amdahl's and Gustafson's laws: fits of the serial fraction to speed-ups, with its interval.

With the serial fraction f, and efficiency = speed-up / n on n GPUs:

    Amdahl, strong scaling:   1 / speed-up = f + (1 - f) / n     (Amdahl, AFIPS 1967)
    Gustafson, weak scaling:  speed-up = n - f (n - 1)           (Gustafson, CACM 31(5), 1988)

Both are linear in f: y = f x with x = 1 - 1 / n, and y = 1 / speed-up - 1 / n or y = 1 - efficiency.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

from roofmodel.sweep.scaling_table import MeasuredRun

T_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
)  # fmt: skip
"""97.5 % quantiles of Student's t distribution for 1, 2, ... degrees of freedom; 1.96 for infinitely many."""

LEAST_POINTS = 3
"""Points on several GPUs from which the interval is shown. Of two, Student's quantile is 12.7."""


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
