"""The roofs as they are drawn: at which clock, the datasheet's or as far as benchmarks got.

What counters count does not depend on the clock; times, and with them every FLOP/s, do. Points belong under roofs at
the clock that they were measured at, which a file may tell: it is inferred and said, and `--clock measured` takes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roofmodel import units
from roofmodel.devices.ceilings import ceilings_without_clock, measured_ceilings, with_ceilings
from roofmodel.devices.device import Device, Pipe
from roofmodel.errors import Message, Option, ProfileError, Text, WorkloadError, choices
from roofmodel.profiles.kernel import Kernel
from roofmodel.profiles.ncu.metric_catalog import CLOCK
from roofmodel.study.profile.points import work

CEILINGS = ("datasheet", "measured")
NOTABLE = 0.02  # a clock this far off is worth a word; drivers round to 7.5 or 15 MHz


class Clock(NamedTuple):
    """The clock of the multiprocessors over some kernels, in hertz: cycles over seconds, and its extremes."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        text = _hertz(self.mean)
        if self.high / self.low - 1 < NOTABLE:
            return text
        return f"{text} (from {_hertz(self.low)} to {_hertz(self.high)})"


class Conditions(NamedTuple):
    """A device with the ceilings as drawn, and what was asked and inferred of them."""

    device: Device
    stated: Device  # with the ceilings of its file
    top: Pipe | None  # the highest roof in use that a clock drives, as stated
    clock: float | None  # hertz that the roofs were scaled to; None: they stand as stated
    counters: Clock | None  # what the kernels ran at; None where the files do not tell
    measured: bool  # whether benchmarks' ceilings were asked for
    notes: tuple[Text, ...] = ()

    @property
    def apart(self) -> float | None:
        """How far from the roofs' clock the kernels ran, where that is notable: -0.14 is 14 % below."""
        against = self.clock or (self.top and self.top.clock)
        if self.counters is None or not against:
            return None
        apart = self.counters.mean / against - 1
        return apart if abs(apart) > NOTABLE else None

    def __str__(self) -> str:
        """What a title adds to the device's name; nothing where roofs and clock are the datasheet's."""
        said = [f"roofs at {_hertz(self.clock)}"] if self.clock else []
        if self.counters and (apart := self.apart):
            said.append(f"kernels at {_hertz(self.counters.mean)} ({apart:+.0%})")
        if self.measured:
            said.append("measured ceilings")
        return "".join(f", {text}" for text in said)

    def moved(self, hertz: float) -> str:
        """What a clock makes of the highest roof in use, in words."""
        assert self.top is not None
        was = with_ceilings(self.stated, None, self.measured).pipes[self.top.name].peak
        now = with_ceilings(self.stated, hertz, self.measured).pipes[self.top.name].peak
        return f"{self.top.name} {units.si(was, 'FLOP/s')} to {units.si(now, 'FLOP/s')} ({now / was - 1:+.0%})"


def counters_clock(kernels: Iterable[Kernel]) -> Clock | None:
    """The clock of the kernels that tell it, each weighted with its time."""
    told = [(k.clock, k.seconds) for k in kernels if k.clock and k.seconds and 0 < k.clock < math.inf and k.seconds > 0]
    if not told:
        return None
    clocks = [clock for clock, _ in told]
    cycles = sum(clock * seconds for clock, seconds in told)
    return Clock(cycles / sum(seconds for _, seconds in told), min(clocks), max(clocks))


def settle(
    device: Device, clock: str, ceilings: str, kernels: Sequence[Kernel], may_be_locked: bool = False
) -> Conditions:
    """The device's roofs as asked: `clock` is boost, measured, a clock of the device's file, or a quantity.

    `may_be_locked`: the profiler holds clocks unless told otherwise, so that a file without one wants a word.
    Raises RoofError for a clock or a kind of ceilings that is not known, and for a clock that no kernel tells.
    """
    if ceilings not in CEILINGS:
        raise WorkloadError(Option("ceilings"), f": unknown ceilings {ceilings!r}{choices(ceilings, CEILINGS)}")
    counters = counters_clock(kernels)
    hertz = _asked(clock, device, counters)
    used = {pipe for kernel in kernels for pipe, flops in work(kernel.flops).items() if flops}
    driven = [pipe for pipe in device.pipes.values() if pipe.clock]
    top = max([p for p in driven if p.name in used] or driven, key=lambda pipe: pipe.peak, default=None)
    if hertz and top is None:
        raise WorkloadError(Option("clock"), f": the file of {device.id} names no clocks to scale its ceilings from")
    measured = ceilings == "measured"
    settled = Conditions(with_ceilings(device, hertz, measured), device, top, hertz, counters, measured)
    notes = [*(_scaled(settled) if hertz else _unscaled(settled, may_be_locked)), *([_kept(device)] * measured)]
    return settled._replace(notes=tuple(notes))


def _asked(text: str, device: Device, counters: Clock | None) -> float | None:
    """The clock to scale to, in hertz; None for the datasheet's own."""
    if text == "boost":
        return None
    if text == "measured":
        if counters is None:
            raise ProfileError(
                Option("clock", "measured"),
                f": no file tells the clock that {device.id} ran at; collect {CLOCK}, or give the clock, as in ",
                Option("clock", "1312MHz"),
            )
        return counters.mean
    if text in device.clocks:
        return device.clocks[text]
    if not text[:1].isdigit():
        known = ["measured", *dict.fromkeys(["boost", *device.clocks])]
        raise WorkloadError(Option("clock"), f": unknown clock {text!r}{choices(text, known)}, or one such as 1312MHz")
    try:
        hertz = units.parse(text, "Hz")
    except ValueError as error:
        raise WorkloadError(Option("clock"), f": {error}") from None
    top = max(device.clocks.values(), default=hertz)
    if not hertz or not top / 20 <= hertz <= top * 2:  # a slip of a prefix
        raise WorkloadError(Option("clock"), f": {text!r} is no clock of {device.id}, whose highest is {_hertz(top)}")
    return hertz


def _scaled(settled: Conditions) -> list[Text]:
    """What a clock that was asked for did to the roofs."""
    clock, counters = settled.clock, settled.counters
    assert clock is not None
    same = counters is not None and counters.mean == clock
    source = f"the clock that the kernels ran at, {counters}" if same else _hertz(clock)
    notes: list[Text] = [f"compute, L2 and L1 roofs are drawn at {source}: {settled.moved(clock)}"]
    if stay := ceilings_without_clock(settled.stated):
        notes.append(f"{', '.join(stay)}: the device's file names no clock, so that the roof stays as stated")
    if settled.apart:
        notes.append(f"the kernels ran at {counters}, and the roofs are drawn at {_hertz(clock)}")
    return notes


def _unscaled(settled: Conditions, may_be_locked: bool) -> list[Text]:
    """Whether the kernels ran at another clock than the roofs are stated at, and what that would change."""
    top, counters, apart = settled.top, settled.counters, settled.apart
    if top is None or top.clock is None:
        return []
    if counters is None and may_be_locked:
        return [
            Message(
                f"the clock that the kernels ran at is not in the file, the roofs are at {_hertz(top.clock)}; "
                f"Nsight Compute holds it at base by default: add {CLOCK}, or give ",
                Option("clock"),
            )
        ]
    if counters is None or apart is None:
        return []
    which, way = ("below", "down") if apart < 0 else ("above", "up")
    return [
        Message(
            f"the kernels ran at {counters}, {abs(apart):.0%} {which} the {_hertz(top.clock)} of the roofs; ",
            Option("clock", "measured"),
            f" would bring compute, L2 and L1 {way}: {settled.moved(counters.mean)}",
        )
    ]


def _kept(device: Device) -> Text:
    """Which ceilings a benchmark reached, by what, and which stay the datasheet's."""
    best = measured_ceilings(device)
    wanted = [*device.pipes, *device.levels]
    found = ", ".join(f"{name} ({best[name].by})" for name in wanted if name in best)
    missing = ", ".join(name for name in wanted if name not in best)
    if not found:
        return Message(
            Option("ceilings", "measured"), f": {device.id} has no measured ceiling; the datasheet's are drawn"
        )
    rest = f"; none is known, and the datasheet's drawn, for {missing}" if missing else ""
    return f"ceilings as benchmarks reached them: {found}{rest}"


def _hertz(value: float) -> str:
    return units.si(value, "Hz", 4)
