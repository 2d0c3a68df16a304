"""Ceilings of a device at another clock, or as measured by benchmarks.

Datasheets state compute peaks at the boost clock. Another clock (Nsight Compute locks the base clock by default) scales
all ceilings that depend on it: pipes, L1 and L2. DRAM has its own clock.
"""

from __future__ import annotations

from dataclasses import replace

from roofmodel.devices.device import Device, Level, Measured, Pipe


def with_ceilings(device: Device, clock: float | None = None, measured: bool = False) -> Device:
    """The device with its ceilings at `clock` hertz; None: at the clocks in its file.

    A ceiling scales with the clock that it is stated at; a ceiling without a clock does not change. `measured` replaces
    datasheet ceilings by measured ones where the file has them. The clock of a measurement is not recorded: with a
    `clock`, the lower of the measured and the scaled ceiling is used.
    """
    best = measured_ceilings(device) if measured else {}

    def ceiling(name: str, stated: float, own: float | None) -> float:
        scaled = stated * clock / own if clock and own else stated
        if name not in best:
            return scaled
        return min(best[name].value, scaled) if clock else best[name].value

    def pipe(p: Pipe) -> Pipe:
        return p._replace(peak=ceiling(p.name, p.peak, p.clock))

    def level(v: Level) -> Level:
        if v.bandwidth is None:
            return v._replace(bandwidth=best[v.name].value) if v.name in best else v
        return v._replace(bandwidth=ceiling(v.name, v.bandwidth, None if v.name == "dram" else v.clock))

    sparse = {
        name: p._replace(peak=p.peak * clock / p.clock) if clock and p.clock else p
        for name, p in device.sparse_pipes.items()
    }
    return replace(
        device,
        pipes={name: pipe(p) for name, p in device.pipes.items()},
        sparse_pipes=sparse,
        levels={name: level(v) for name, v in device.levels.items()},
    )


def measured_ceilings(device: Device) -> dict[str, Measured]:
    """Pipe or level -> the highest measurement of it in the device's file."""
    ascending = sorted(device.measured, key=lambda m: m.value)
    return {m.ceiling: m for m in ascending if m.ceiling in device.pipes or m.ceiling in device.levels}


def ceilings_without_clock(device: Device) -> list[str]:
    """The pipes and caches with a ceiling but no clock, which cannot be scaled."""
    pipes = [p.name for p in device.pipes.values() if p.clock is None]
    caches = [v.name for v in device.levels.values() if v.name != "dram" and v.bandwidth and v.clock is None]
    return pipes + caches
