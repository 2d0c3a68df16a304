"""The energy of operators, and their times under long load (`devices/power.py`).

The card's regulator acts on the mean power of some tens of milliseconds. So the power limit holds for all operators of
a step together: a step takes at least its energy above idle / (limit - idle). What this adds to the sum of its kernels
is divided over the operators that alone would draw more than the limit. Those that wait for DRAM take no longer.

A sustained rate that the device's file states replaces the energy of its pipe: each operator takes at least its FLOPs
or bytes / this rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from roofmodel.counting.operator import Cost
from roofmodel.devices.device import Device
from roofmodel.devices.power import stated_rates
from roofmodel.numbers.algebra import Number, either, is_just, maximum, minimum, plain
from roofmodel.timing.timing import Expected

SPREAD = (0.84, 1.12)
"""Measured / expected times at the power limit, 10th and 90th percentile: bf16 GEMMs of a B200 (docs/accuracy.md)."""
POWER_SPREAD = (0.75, 1.9)
"""The same of the power: kernels of a B200 of shapes that no fit saw."""


class Energy(NamedTuple):
    """The energy of an operator: the power of the card without work, and the joules of its work above that."""

    idle_watts: float
    work: Number

    def total(self, seconds: Number) -> Number:
        """The joules of an occurrence that takes so long."""
        return self.idle_watts * seconds + self.work


class Draw(NamedTuple):
    """What an operator draws each time that it runs under long load.

    `seconds`: the least time at the sustained rates that the device's file states. `budget_seconds`: its energy above
    idle in the other pipes / what the limit leaves above idle. `energy`: None where the device states none for a pipe
    that it uses.
    """

    seconds: Number
    budget_seconds: Number
    energy: Energy | None


def has_load_figures(device: Device) -> bool:
    """Whether a device's file states power or sustained rates."""
    return device.power is not None or bool(stated_rates(device.measured))


def has_sustained_rate(device: Device, dtype: str) -> bool:
    """Whether a device's file states a sustained rate or the energy of the pipe that multiplies in a format."""
    pipe = device.matmul_pipe(dtype).name
    return pipe in stated_rates(device.measured) or (device.power is not None and pipe in device.power.energy)


def sustained_flops(intensity: Number, device: Device, dtype: str) -> Number:
    """FLOP/s of GEMMs of this intensity in FLOP per byte under long load: the least of the roofline, the stated rate,
    and without a stated rate the power line of Choi et al."""
    pipe, stated, power = device.matmul_pipe(dtype), stated_rates(device.measured), device.power
    rate = minimum(minimum(pipe.peak, stated.get(pipe.name, pipe.peak)), intensity * device.bandwidth)
    if pipe.name in stated or power is None:
        return rate
    return minimum(rate, power.budget / (power.energy[pipe.name] + power.energy.get("dram", 0.0) / intensity))


def draw(cost: Cost, device: Device, dtype: str, expected: Number) -> Draw:
    """What an operator draws. In a time `expected` it reads at most the bytes that DRAM can send."""
    matmul, vector = device.matmul_pipe(dtype).name, device.vector_pipe(dtype)
    used = {matmul: plain(cost.matmul_flops), "dram": minimum(plain(cost.bytes), expected * device.bandwidth)}
    if vector is not None:
        used[vector.name] = used.get(vector.name, 0) + plain(cost.vector_flops)
    stated, seconds = stated_rates(device.measured), 0.0
    for name in used.keys() & stated.keys():
        seconds = maximum(seconds, used[name] / stated[name])
    if device.power is None:
        return Draw(seconds, 0.0, None)
    energy = {name: amount * device.power.energy.get(name, 0.0) for name, amount in used.items()}
    budgeted = sum(joules for name, joules in energy.items() if name not in stated)
    is_known = is_just(cost.matmul_flops, 0) or matmul in device.power.energy
    all_work = Energy(device.power.idle, plain(sum(energy.values()))) if is_known else None
    return Draw(seconds, budgeted / device.power.budget, all_work)


def under_load(counts: Sequence[Number], times: Sequence[Expected], draws: Sequence[Draw]) -> list[Expected]:
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
    return Expected(seconds, low, high)
