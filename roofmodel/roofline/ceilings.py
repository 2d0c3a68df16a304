"""The ceilings of a roofline: their clock, and whether they are the datasheet's or measured by benchmarks.

Counts do not depend on the clock; times, and with them FLOP/s, do. Points should be compared with ceilings at the clock
of their measurement. If a file contains that clock, a note states it, and `--clock measured` scales the ceilings to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roofmodel.devices.ceilings import ceilings_without_clock, measured_ceilings, with_ceilings
from roofmodel.devices.device import Device
from roofmodel.devices.parts import Pipe
from roofmodel.errors import Message, Option, ProfileError, Text, WorkloadError, choices
from roofmodel.numbers import units
from roofmodel.profiles.kernel import Kernel
from roofmodel.profiles.ncu.metric_catalog import CLOCK
from roofmodel.roofline.points import flops_by_pipe

CLOCK_TOLERANCE = 0.02  # a smaller difference is not reported: drivers round to 7.5 or 15 MHz


class KernelClock(NamedTuple):
    """The SM clock during some kernels, in hertz: cycles divided by seconds, and the extremes."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        text = _hertz(self.mean)
        if self.high / self.low - 1 < CLOCK_TOLERANCE:
            return text
        return f"{text} (from {_hertz(self.low)} to {_hertz(self.high)})"


class Ceilings(NamedTuple):
    """A device with the ceilings of a roofline, and how they were chosen."""

    device: Device
    stated_device: Device  # with the ceilings of its file
    reference_pipe: Pipe | None  # the fastest pipe in use that has a clock, as in the device's file
    clock: float | None  # hertz that the ceilings were scaled to; None: not scaled
    kernel_clock: KernelClock | None  # clock of the kernels; None if the files do not contain it
    measured: bool  # whether benchmarks' ceilings were requested
    notes: tuple[Text, ...] = ()

    @property
    def clock_deviation(self) -> float | None:
        """The kernels' clock relative to the clock of the ceilings if it differs: -0.14 is 14 % below."""
        ceiling_clock = self.clock or (self.reference_pipe and self.reference_pipe.clock)
        if self.kernel_clock is None or not ceiling_clock:
            return None
        deviation = self.kernel_clock.mean / ceiling_clock - 1
        return deviation if abs(deviation) > CLOCK_TOLERANCE else None

    def __str__(self) -> str:
        """What a title adds to the device's name; empty for the datasheet's ceilings and clock."""
        parts = [f"ceilings at {_hertz(self.clock)}"] if self.clock else []
        if self.kernel_clock and (deviation := self.clock_deviation):
            parts.append(f"kernels at {_hertz(self.kernel_clock.mean)} ({deviation:+.0%})")
        if self.measured:
            parts.append("measured ceilings")
        return "".join(f", {text}" for text in parts)

    def effect_of_clock(self, hertz: float) -> str:
        """The effect of a clock on the ceiling of the reference pipe, in words."""
        assert self.reference_pipe is not None
        name = self.reference_pipe.name
        before = with_ceilings(self.stated_device, None, self.measured).pipes[name].peak
        after = with_ceilings(self.stated_device, hertz, self.measured).pipes[name].peak
        return f"{name} {units.si(before, 'FLOP/s')} to {units.si(after, 'FLOP/s')} ({after / before - 1:+.0%})"


def kernel_clock(kernels: Iterable[Kernel]) -> KernelClock | None:
    """The mean clock of the kernels that have one, weighted by time; None if none has one."""
    timed = [
        (k.clock, k.seconds) for k in kernels if k.clock and k.seconds and 0 < k.clock < math.inf and k.seconds > 0
    ]
    if not timed:
        return None
    clocks = [clock for clock, _ in timed]
    cycles = sum(clock * seconds for clock, seconds in timed)
    return KernelClock(cycles / sum(seconds for _, seconds in timed), min(clocks), max(clocks))


def choose_ceilings(
    device: Device, clock: str, source: str, kernels: Sequence[Kernel], may_be_locked: bool = False
) -> Ceilings:
    """The device's ceilings at a `clock`: boost, measured, a clock of the device's file, or a quantity.

    `source` is datasheet or measured. `may_be_locked`: the profiler locks clocks by default, so a file without a clock
    gets a note. Raises RoofError for an unknown clock, and for `measured` if no kernel has a clock.
    """
    ran_at = kernel_clock(kernels)
    hertz = _requested_clock(clock, device, ran_at)
    used = {pipe for kernel in kernels for pipe, flops in flops_by_pipe(kernel.flops).items() if flops}
    clocked = [pipe for pipe in device.pipes.values() if pipe.clock]
    reference = max([p for p in clocked if p.name in used] or clocked, key=lambda pipe: pipe.peak, default=None)
    if hertz and reference is None:
        raise WorkloadError(
            Option("clock"), f": the file of {device.id} has no clocks, so its ceilings cannot be scaled"
        )
    measured = source == "measured"
    chosen = Ceilings(with_ceilings(device, hertz, measured), device, reference, hertz, ran_at, measured)
    clock_notes = _notes_on_scaling(chosen) if hertz else _notes_on_deviation(chosen, may_be_locked)
    return chosen._replace(notes=(*clock_notes, *([_note_on_measured_ceilings(device)] if measured else [])))


def _requested_clock(text: str, device: Device, ran_at: KernelClock | None) -> float | None:
    """The clock to scale to, in hertz; None for the datasheet's own."""
    if text == "boost":
        return None
    if text == "measured":
        if ran_at is None:
            raise ProfileError(
                Option("clock", "measured"),
                f": no file contains the clock of the kernels on {device.id}; collect {CLOCK}, or give one, as in ",
                Option("clock", "1312MHz"),
            )
        return ran_at.mean
    if text in device.clocks:
        return device.clocks[text]
    if not text[:1].isdigit():
        known_clocks = ["measured", *dict.fromkeys(["boost", *device.clocks])]
        raise WorkloadError(
            Option("clock"), f": unknown clock {text!r}{choices(text, known_clocks)}, or a quantity such as 1312MHz"
        )
    try:
        hertz = units.parse(text, "Hz")
    except ValueError as error:
        raise WorkloadError(Option("clock"), f": {error}") from None
    highest = max(device.clocks.values(), default=hertz)
    if not hertz or not highest / 20 <= hertz <= highest * 2:  # a wrong unit prefix
        raise WorkloadError(
            Option("clock"), f": {text!r} is not a clock of {device.id}; its highest clock is {_hertz(highest)}"
        )
    return hertz


def _notes_on_scaling(chosen: Ceilings) -> list[Text]:
    """The effect of a requested clock on the ceilings."""
    clock, ran_at = chosen.clock, chosen.kernel_clock
    assert clock is not None
    same = ran_at is not None and ran_at.mean == clock
    source = f"the clock of the kernels, {ran_at}" if same else _hertz(clock)
    notes: list[Text] = [f"compute, L2 and L1 ceilings are scaled to {source}: {chosen.effect_of_clock(clock)}"]
    if unscaled := ceilings_without_clock(chosen.stated_device):
        notes.append(f"not scaled, because the device's file has no clock for them: {', '.join(unscaled)}")
    if chosen.clock_deviation:
        notes.append(f"the kernels ran at {ran_at}, but the ceilings are at {_hertz(clock)}")
    return notes


def _notes_on_deviation(chosen: Ceilings, may_be_locked: bool) -> list[Text]:
    """Whether kernels and ceilings have different clocks, and how scaling would change the ceilings."""
    reference, ran_at, deviation = chosen.reference_pipe, chosen.kernel_clock, chosen.clock_deviation
    if reference is None or reference.clock is None:
        return []
    if ran_at is None and may_be_locked:
        return [
            Message(
                f"the file does not contain the clock of the kernels; the ceilings are at {_hertz(reference.clock)}. "
                f"Nsight Compute locks the base clock by default: collect {CLOCK}, or give ",
                Option("clock"),
            )
        ]
    if ran_at is None or deviation is None:
        return []
    relation, change = ("below", "lowers") if deviation < 0 else ("above", "raises")
    return [
        Message(
            f"the kernels ran at {ran_at}, {abs(deviation):.0%} {relation} the {_hertz(reference.clock)} "
            "of the ceilings; ",
            Option("clock", "measured"),
            f" {change} the compute, L2 and L1 ceilings: {chosen.effect_of_clock(ran_at.mean)}",
        )
    ]


def _note_on_measured_ceilings(device: Device) -> Text:
    """Which ceilings were measured, with the benchmark, and which are the datasheet's."""
    best = measured_ceilings(device)
    names = [*device.pipes, *device.levels]
    measured_texts = ", ".join(f"{name} ({best[name].by})" for name in names if name in best)
    missing = ", ".join(name for name in names if name not in best)
    if not measured_texts:
        return Message(
            Option("ceilings", "measured"), f": {device.id} has no measured ceiling; the datasheet's are used"
        )
    return f"measured ceilings: {measured_texts}" + (f"; datasheet ceilings: {missing}" if missing else "")


def _hertz(value: float) -> str:
    return units.si(value, "Hz", 4)
