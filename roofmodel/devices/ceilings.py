"""A device's ceilings under other conditions than its datasheet's: at another clock, or as far as benchmarks got.

Compute peaks are stated at a boost clock. Whoever holds the clock elsewhere (Nsight Compute locks it to base by
default) moves everything that the clock drives: pipes, L1 and L2. DRAM has a clock of its own and stays.
"""

from __future__ import annotations

from dataclasses import replace

from roofmodel.devices.device import Device, Level, Measured, Pipe


def with_ceilings(device: Device, clock: float | None = None, measured: bool = False) -> Device:
    """The device with the ceilings that hold at `clock` hertz; None: at the clocks that its file states.

    A ceiling scales with the clock that it is stated at; one that states none stays. `measured` puts what
    benchmarks reached in place of the datasheet's, where there is such a figure: its clock is not recorded, so
    that with a `clock` the lower of the two holds.
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
    """By pipe or level, the most that any benchmark in the device's file reached."""
    rising = sorted(device.measured, key=lambda m: m.value)
    return {m.ceiling: m for m in rising if m.ceiling in device.pipes or m.ceiling in device.levels}


def ceilings_without_clock(device: Device) -> list[str]:
    """The pipes and caches that state a ceiling and no clock, and so cannot be scaled."""
    pipes = [p.name for p in device.pipes.values() if p.clock is None]
    caches = [v.name for v in device.levels.values() if v.name != "dram" and v.bandwidth and v.clock is None]
    return pipes + caches
