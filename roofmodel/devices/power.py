"""The power of a card, and the rates that it sustains under long load.

Choi, Bedard, Fowler and Vuduc, "A Roofline Model of Energy", IPDPS 2013: a FLOP and a byte cost energy, so that the
power of a kernel is

    P = idle + energy of a FLOP x FLOP/s + energy of a byte x bytes/s

A card whose mean power exceeds its limit lowers its clock. So a load that lasts takes at least its energy above
idle / (limit - idle).

A file may also state a rate that a card sustains at a site, whatever the reason: it is a ceiling of each kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

SUSTAINED = "sustained"
"""The name in `by` of a measured ceiling under long load."""


class Power(NamedTuple):
    """The power limit of a card and its power at boost clock without work, in watts, and the energies above that.

    `energy` has the joules of a FLOP by pipe, and of a byte of `dram`, at `clock` (hertz; None if unknown). `sources`
    has the sources of `limit`, `idle`, and each energy.
    """

    limit: float
    idle: float
    clock: float | None = None
    energy: Mapping[str, float] = {}
    sources: Mapping[str, str | None] = {}

    @property
    def budget(self) -> float:
        """The watts that work may draw."""
        return self.limit - self.idle


class MeasuredCeiling(Protocol):
    """A measured ceiling, as far as this module reads it."""

    @property
    def ceiling(self) -> str: ...
    @property
    def by(self) -> str: ...
    @property
    def value(self) -> float: ...


def stated_rates(measured: Iterable[MeasuredCeiling]) -> dict[str, float]:
    """Pipe or memory level -> the sustained rate that a device's file states; the lowest of several."""
    descending = sorted(measured, key=lambda each: -each.value)
    return {each.ceiling: each.value for each in descending if each.by == SUSTAINED}
