"""Counts of one launch from Nsight Compute metrics, collected as sums or as rates.

A rate times a time is a count: `.sum.per_cycle_elapsed` × cycles per second × seconds. If a part of a sum is missing,
the sum is None and a note names the missing metrics; a partial sum would be too low.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from roofmodel.errors import NCU_COMMAND
from roofmodel.profiles.kernel import ReaderWarning
from roofmodel.profiles.ncu import metric_catalog


def any_contains(parts: Iterable[str], names: Collection[str]) -> bool:
    """Whether any of the names contains any of the parts."""
    return any(part in name for part in parts for name in names)


def sum_metric_names(names: Iterable[str]) -> str:
    """The `.sum` metrics of these counters, as a list for a message."""
    return metric_list([f"{name}.sum" for name in names])


LISTED = 3  # metrics that a message names


def metric_list(names: Sequence[str]) -> str:
    """Metrics for a message; of a long list the first ones, and the command that prints all."""
    if len(names) <= LISTED:
        return ", ".join(names)
    return f"{', '.join(names[:LISTED])} and {len(names) - LISTED} more ({NCU_COMMAND} prints them all)"


@dataclass(frozen=True)
class Counters:
    """The metrics collected for one launch, and quantities derived from them; `notes` lists what is missing."""

    values: Mapping[str, float]
    generation: str | None
    averaged: bool
    notes: list[ReaderWarning]
    rates: bool  # whether any rate was collected; if not, the search for rates is skipped

    def note(self, text: str, category: Literal["times", "counters"] = "counters") -> None:
        """Add a note on unknown or approximate quantities."""
        self.notes.append(ReaderWarning(text, category))

    def first(self, *names: str) -> float | None:
        return next((self.values[name] for name in names if name in self.values), None)

    def seconds(self) -> float | None:
        """The duration: measured, or cycles ÷ cycles per second, as NERSC's roofline method computes it."""
        rollups = ("sum", "avg", "max", "min")  # equal, because a GPU has one such unit
        time = self.first(*(f"gpu__time_{kind}.{rollup}" for kind in ("duration", "active") for rollup in rollups))
        if time is None:
            for unit in ("sm", "smsp"):
                cycles = self.first(f"{unit}__cycles_elapsed.avg", f"{unit}__cycles_elapsed.max")
                rate = self.first(f"{unit}__cycles_elapsed.avg.per_second")
                if cycles is not None and rate:
                    if self.averaged:
                        self.note("times are approximate: mean cycles ÷ mean clock", "times")
                    return cycles / rate
            self.note(f"seconds unknown: no duration was collected; add {metric_catalog.DURATION}", "times")
        return time

    def clock(self, unit: str = "sm") -> float | None:
        """SM clock in hertz during the measurement."""
        units = dict.fromkeys((unit, "sm", "smsp", "gpc"))
        return self.first(*(f"{u}__cycles_elapsed.avg.per_second" for u in units), "SM Frequency")

    def count(self, name: str) -> float | None:
        """A counter's sum over the launch, collected as a sum or derived from a rate."""
        total = self.values.get(f"{name}.sum")
        return self.from_rate(name) if total is None else total

    def from_rate(self, name: str) -> float | None:
        """A counter's sum from its rate: per second × seconds, per cycle × cycles per second × seconds."""
        if not self.rates:
            return None
        per_second, per_cycle = self.values.get(f"{name}.sum.per_second"), self.per_cycle(name)
        if per_second is None and per_cycle is None:
            return None
        if per_second == 0 or per_cycle == 0:
            return 0
        unit, seconds = name.partition("__")[0], self._seconds_without_note()
        if per_second is None and per_cycle is not None and (clock := self.clock(unit)) is not None:
            per_second = per_cycle * clock
        count = per_second * seconds if per_second is not None and seconds is not None else None
        cycles = self.first(*(f"{u}__cycles_elapsed.avg" for u in (unit, "sm", "smsp")))
        if count is None and per_cycle is not None and cycles is not None:
            count = per_cycle * cycles
        if count is None:
            self.note(
                "counts unknown: only rates were collected, without clock and duration; "
                f"add {metric_catalog.CLOCK} and {metric_catalog.DURATION}"
            )
        elif self.averaged:
            self.note("some counts are approximate: mean rate × mean time; collect the .sum metrics for exact counts")
        else:
            self.note("some counts are rounded: rate × time, as printed; collect the .sum metrics for exact counts")
        return count

    def per_cycle(self, name: str) -> float | None:
        """A rate per cycle; a chart metric `derived__*_x2` holds it multiplied by the operations per instruction."""
        rate = self.values.get(f"{name}.sum.per_cycle_elapsed")
        charted = ((times, self.values.get(f"derived__{name}_x{times}")) for times in (2, 4))
        return (
            rate if rate is not None else next((value / times for times, value in charted if value is not None), None)
        )

    def _seconds_without_note(self) -> float | None:
        return Counters(self.values, self.generation, self.averaged, [], False).seconds()

    def sum_of(self, quantity: str, parts: Mapping[str, float], count: Callable[[str], float | None]) -> float | None:
        """Σ weight × count; None unless every part was collected. A note names missing parts if some were collected."""
        counts = {name: count(name) for name in parts}
        absent = [name for name, value in counts.items() if value is None]
        if not absent:
            return sum(parts[name] * value for name, value in counts.items() if value is not None)
        if len(absent) < len(parts):
            self.note(f"{quantity} unknown: some terms were not collected; add {sum_metric_names(absent)}")
        return None
