"""Ceilings of a device at another clock, as measured by benchmarks, and compared with their own factors.

Datasheets state compute peaks at the boost clock. Another clock (Nsight Compute locks the base clock by default) scales
all ceilings that depend on it: pipes, L1 and L2. DRAM has its own clock.
"""

from __future__ import annotations

from dataclasses import replace

from roofmodel.devices.device import Device
from roofmodel.devices.parts import HOW_BANDWIDTH, HOW_PEAK, SUSTAINED, Level, Measured, Pipe
from roofmodel.numbers.units import si

TOLERANCE = 0.025  # datasheets round: 33.45 TFLOP/s becomes 34 TFLOP/s


def with_ceilings(device: Device, clock: float | None = None, measured: bool = False) -> Device:
    """The device with its ceilings at `clock` hertz; None: at the clocks in its file.

    A ceiling scales with the clock that it is stated at; a ceiling without a clock does not change. `measured` replaces
    datasheet ceilings by measured ones where the file has them. The clock of a measurement is not recorded: with a
    `clock`, the lower of the measured and the scaled ceiling is used.
    """
    best = measured_ceilings(device) if measured else {}

    def ceiling(name: str, value: float, own: float | None) -> float:
        scaled = value * clock / own if clock and own else value
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


def with_boost_clock(device: Device, clock: float) -> Device:
    """The device with another boost clock, in hertz, such as that of a laptop's power limit or of an overclocked card.

    Only for a device with one clock, which all its ceilings except DRAM's are stated at.
    """
    scaled = with_ceilings(device, clock)
    pipes, sparse = (
        {name: p._replace(clock=clock) if p.clock else p for name, p in section.items()}
        for section in (scaled.pipes, scaled.sparse_pipes)
    )
    levels = {n: v._replace(clock=clock) if v.clock and n != "dram" else v for n, v in scaled.levels.items()}
    return replace(scaled, clocks={"boost": clock}, pipes=pipes, sparse_pipes=sparse, levels=levels)


def measured_ceilings(device: Device) -> dict[str, Measured]:
    """Pipe or level -> the highest measurement of it in the device's file, sustained rates apart."""
    ascending = sorted((m for m in device.measured if m.by != SUSTAINED), key=lambda m: m.value)
    return {m.ceiling: m for m in ascending if m.ceiling in device.pipes or m.ceiling in device.levels}


def ceilings_without_clock(device: Device) -> list[str]:
    """The pipes and caches with a ceiling but no clock, which cannot be scaled."""
    pipes = [p.name for p in device.pipes.values() if p.clock is None]
    caches = [v.name for v in device.levels.values() if v.name != "dram" and v.bandwidth and v.clock is None]
    return pipes + caches


def doubtful_entries(device: Device) -> list[str]:
    """Valid but doubtful entries: numbers that their own factors contradict, and numbers without a source."""
    doubts = []
    for pipe in (*device.pipes.values(), *device.sparse_pipes.values()):
        if pipe.source is None:
            doubts.append(f"pipe {pipe.name}: no source")
        doubts += _disagreement(
            f"pipe {pipe.name}: peak", pipe.peak, pipe.computed(device.multiprocessors), "FLOP/s", HOW_PEAK
        )
    for level in device.levels.values():
        if level.source is None:
            doubts.append(f"memory {level.name}: no source")
        if level.bandwidth:
            doubts += _disagreement(
                f"memory {level.name}: bandwidth", level.bandwidth, level.data_rate, "B/s", HOW_BANDWIDTH
            )
    if device.calibration and device.missing_timing_fields:
        doubts.append(f"calibration: no expected times without {' and '.join(device.missing_timing_fields)}")
    return doubts


def _disagreement(name: str, value: float, computed: float | None, unit: str, how: str) -> list[str]:
    if computed is None or abs(computed / value - 1) <= TOLERANCE:
        return []
    return [
        f"{name} is stated as {si(value, unit, 4)}, but {how} gives {si(computed, unit, 4)} "
        f"({computed / value - 1:+.1%})"
    ]
