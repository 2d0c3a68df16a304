"""Power and energy of a step, and its times under long load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from roofmodel.devices.device import Device
from roofmodel.devices.power import Power, stated_rates
from roofmodel.errors import AnswerNote, Message, Option, Text, WorkloadError, ignored
from roofmodel.numbers.algebra import Number, either, maximum, minimum, plain
from roofmodel.options.values import Sustained
from roofmodel.steps.placed import Placed
from roofmodel.timing.roofline import POWER_SPREAD, SPREAD, Draw, draw, has_load_figures
from roofmodel.timing.timing import Expected


class LoadSettings(NamedTuple):
    """Whether a GPU is under long load, and its power limit in watts; None: that of its file."""

    sustained: Sustained | None = "off"
    power_limit: float | str | None = None


SHORT = LoadSettings()


class LoadOptions(Protocol):
    """The same options of a workload or a request."""

    @property
    def sustained(self) -> Sustained | None: ...
    @property
    def power_limit(self) -> float | str | None: ...


def under_load(device: Device, options: LoadOptions) -> Device:
    """The device under the load that checked options describe. Raises WorkloadError for too low a power limit."""
    device = replace(device, is_sustained=options.sustained == "on")
    if options.power_limit is None or device.power is None:
        return device
    limit, idle = float(options.power_limit), device.power.idle
    if limit <= idle:
        raise WorkloadError(
            Option("power_limit"), f" is {limit:g} W; {device.id} draws {idle:g} W at boost clock without work; try ",
            Option("power_limit", f"{device.power.limit:g}W"),
        )  # fmt: skip
    return replace(device, power=device.power._replace(limit=limit))


def load_notes(device: Device, options: LoadOptions) -> Iterator[Text]:
    """The options that change nothing on a device."""
    if device.power is None:
        why = f"the file of {device.id} states no power"
        if options.power_limit is not None:
            yield ignored("power_limit", why)
        if options.sustained in ("on", True) and not stated_rates(device.measured):
            yield ignored("sustained", f"{why} and no sustained rates")


def power_notes(device: Device, options: LoadOptions, phases: Iterable[tuple[str, float | None]]) -> Iterator[Text]:
    """What the power limit of a device means for phases, each with its mean watts (None if unknown)."""
    power = device.power
    if power is None:
        return
    beyond = [(name, watts) for name, watts in phases if watts is not None and watts > power.limit]
    if beyond and options.sustained == "off":
        names = " and ".join(f"{name} ({watts:.0f} W)" for name, watts in beyond)
        yield Message(
            f"{names} would exceed the limit of {power.limit:.0f} W if it lasts for seconds; ",
            Option("sustained", "on"), " has the times under this limit",
        )  # fmt: skip
    if options.power_limit is not None:
        yield AnswerNote(
            "energies of a FLOP and a byte are those at the limit in the device's file; a lower limit lowers clock and "
            "voltage and with them the energy, so that times under ", Option("power_limit"), " are upper bounds",
        )  # fmt: skip


def with_power(placed: Sequence[Placed], device: Device, dtype: str, generates: bool = False) -> list[Placed]:
    """The operators with their energies, and on a device under long load with the times that it sustains.

    The prefill and the decodes of generation are two loads; other phases are one. Exchanges between replicas, which
    overlap with other kernels, are no part of it.
    """
    if not has_load_figures(device):
        return [*placed]
    result, loads = [*placed], dict[str, list[int]]()
    for place, each in enumerate(placed):
        if each.expected is not None and not (each.operator.collective and each.operator.runs_once_per_step):
            loads.setdefault(each.operator.stage if generates else "", []).append(place)
    for places in loads.values():
        times = [time for place in places if (time := placed[place].expected)]
        draws = [
            draw(each.placement.cost, device, each.operator.compute_dtype(dtype), time.value)
            for each, time in zip([placed[place] for place in places], times, strict=True)
        ]
        if device.is_sustained:
            times = lengthened([placed[place].operator.count for place in places], times, draws)
        for place, time, drawn in zip(places, times, draws, strict=True):
            result[place] = placed[place]._replace(expected=time, energy=drawn.energy)
    return result


def lengthened(counts: Sequence[Number], times: Sequence[Expected], draws: Sequence[Draw]) -> list[Expected]:
    """The times of operators that run one after another, in a step that is repeated for long."""
    seconds = [maximum(time.value, each.seconds) for time, each in zip(times, draws, strict=True)]
    beyond = [maximum(each.budget_seconds - own, 0.0) for own, each in zip(seconds, draws, strict=True)]
    kernels, least, all_beyond = (
        sum(count * each for count, each in zip(counts, values, strict=True))
        for values in (seconds, [each.budget_seconds for each in draws], beyond)
    )
    share = maximum(least - kernels, 0.0) / maximum(all_beyond, 1e-30)
    return [
        _lengthened(time, own + share * more) for time, own, more in zip(times, seconds, beyond, strict=True)
    ]  # fmt: skip


def _lengthened(time: Expected, seconds: Number) -> Expected:
    """A longer time in an interval as wide as the evidence; the same time as it is."""
    is_longer = seconds > time.value
    low, high = (
        either(is_longer, maximum(end, spread * seconds), end) for end, spread in zip(time[1:], SPREAD, strict=True)
    )
    return time._replace(value=seconds, low=low, high=high)


ENERGY_KEYS = ("power_watts", "power_low_watts", "power_high_watts", "energy_joules", "joules_per_token")


def step_energy(
    placed: Iterable[Placed], expected: Expected | None, power: Power | None, gpus: Number, tokens: Number | None
) -> dict[str, Any]:
    """Mean watts of a GPU in a step of `expected` seconds with their interval, joules of one GPU, and joules of all
    GPUs for each of `tokens` new tokens, by their JSON keys; None if unknown. Without tokens there is no such key.

    A GPU that waits, for the host or for other GPUs, draws its power without work at boost clock.
    """
    unknown: dict[str, Any] = dict.fromkeys(ENERGY_KEYS if tokens is not None else ENERGY_KEYS[:-1])
    kernels = [each for each in placed if not each.operator.collective]
    work = [each.operator.count * each.energy.work for each in placed if each.energy is not None]
    if power is None or expected is None or any(each.energy is None for each in kernels):
        return unknown
    seconds = plain(expected.value)
    watts = power.idle + plain(sum(work)) / seconds
    low, high = (minimum(spread * watts, maximum(watts, power.limit)) for spread in POWER_SPREAD)
    values = (watts, low, high, watts * seconds, None if tokens is None else watts * seconds * gpus / tokens)
    return dict(zip(unknown, values, strict=False))
