"""Energy, power and what lowered the clock of a rank's GPU, from the samples that a file has."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.numbers import units
from roofmodel.profiles.timelines.timeline import CLOCK, POWER, POWER_LIMIT, TEMPERATURE, THROTTLED, Samples
from roofmodel.trace.intervals import Intervals
from roofmodel.trace.ranks import Rank


class Power(NamedTuple):
    """The GPU of a rank during its wall time: base units, degrees Celsius; None if not sampled.

    A GPU that several processes share has the energy of all of them.
    """

    joules: float
    mean_watts: float
    min_watts: float
    max_watts: float
    limit_watts: float | None
    min_clock: float | None
    max_clock: float | None
    max_celsius: float | None
    throttled: float | None  # the share of the samples in which power or temperature limits the clock

    def __str__(self) -> str:
        limit = f", limit {units.si(self.limit_watts, 'W')}" if self.limit_watts else ""
        least, most = units.si(self.min_watts, "W"), units.si(self.max_watts, "W")
        mean = units.si(self.mean_watts, "W")
        parts = [f"{units.si(self.joules, 'J')}, {mean} on average ({least} to {most}{limit})"]
        if self.min_clock is not None and self.max_clock is not None:
            parts.append(f"SM clock {units.si(self.min_clock, 'Hz')} to {units.si(self.max_clock, 'Hz')}")
        if self.max_celsius is not None:
            parts.append(f"up to {self.max_celsius:.0f} °C")
        if self.throttled:
            parts.append(f"power or temperature limits the clock in {self.throttled:.0%} of the samples")
        return "; ".join(parts)


def power(rank: Rank) -> Power | None:
    """The energy of a rank's wall time; None without samples of power in it."""
    energy = joules(rank, rank.windows)
    if energy is None:
        return None
    watts, limits, clocks, celsius, throttled = (
        _inside(rank, quantity) for quantity in (POWER, POWER_LIMIT, CLOCK, TEMPERATURE, THROTTLED)
    )
    return Power(
        joules=energy,
        mean_watts=energy / rank.wall * 1e9,
        min_watts=float(watts.min()),
        max_watts=float(watts.max()),
        limit_watts=float(limits.min()) if limits.size else None,
        min_clock=float(clocks.min()) if clocks.size else None,
        max_clock=float(clocks.max()) if clocks.size else None,
        max_celsius=float(celsius.max()) if celsius.size else None,
        throttled=float(throttled.mean()) if throttled.size else None,
    )


def joules(rank: Rank, windows: Intervals) -> float | None:
    """The integral of the power over these times, by trapezoids; before the first sample and after the last, its power.

    None unless each of the times has two samples: NVIDIA's driver updates the power every 20 to 100 ms.
    """
    samples = _samples(rank, POWER)
    if samples is None:
        return None
    total = 0.0
    for start, end in windows.tolist():
        first, last = np.searchsorted(samples.times, start, "right"), np.searchsorted(samples.times, end)
        inside, near = samples.times[first:last], slice(max(first - 1, 0), last + 1)
        if len(inside) < 2:
            return None
        times = np.concatenate(([start], inside, [end]))
        values = np.interp(times, samples.times[near], samples.values[near])
        total += float(np.sum((values[1:] + values[:-1]) / 2 * np.diff(times))) / 1e9
    return total or None  # 0 W: the GPU has no sensor


def _samples(rank: Rank, quantity: str) -> Samples | None:
    return rank.timeline.samples.get((rank.process, rank.device, quantity))


def _inside(rank: Rank, quantity: str) -> NDArray[np.float64]:
    """The samples within the wall time."""
    samples = _samples(rank, quantity)
    if samples is None:
        return np.empty(0)
    place = np.searchsorted(rank.windows[:, 0], samples.times, side="right") - 1
    inside: NDArray[np.float64] = samples.values[(place >= 0) & (samples.times < rank.windows[np.maximum(place, 0), 1])]
    return inside
