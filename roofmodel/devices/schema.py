"""Reader of a device's YAML file, and the checks of `roof hw check`."""

from __future__ import annotations

from pathlib import Path

from roofmodel.devices import calibration_reader
from roofmodel.devices.device import Device, Level, Link, Measured, Pipe
from roofmodel.errors import DeviceError
from roofmodel.file_names import printable
from roofmodel.text_files import YamlValue, read_yaml
from roofmodel.units import si

PIPE_TYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
# Tensor cores of GeForce cards are twice as fast with fp16 accumulation, which frameworks do not use.
ACCUMULATING_FP16 = ("tensor_fp16_acc16", "tensor_fp8_acc16")
PIPES = tuple(f"tensor_{t}" for t in PIPE_TYPES) + ACCUMULATING_FP16 + PIPE_TYPES
LEVELS = ("dram", "l2", "l1")
TOLERANCE = 0.025  # datasheets round: 33.45 TFLOP/s becomes 34 TFLOP/s

_TOP = (
    "name", "vendor", "generation", "compute_capability", "form_factor", "multiprocessors", "clocks",
    "pipes", "sparse_pipes", "memory", "links", "measured", "sources", "calibration",
)  # fmt: skip
_PIPE = ("peak", "per_multiprocessor", "per_clock", "clock", "accumulator", "source")
_LEVEL = {
    "dram": ("kind", "capacity", "bandwidth", "bus", "clock", "transfers_per_clock", "source"),
    "l2": ("capacity", "bandwidth", "bandwidth_per_clock", "clock", "source"),
    "l1": ("capacity_per_multiprocessor", "bandwidth_per_clock_per_multiprocessor", "clock", "source"),
}


def load_file(path: Path) -> Device:
    """Read and validate one file. Raises DeviceError with file and line."""
    top = read_yaml(path, DeviceError, "a device's YAML").mapping(_TOP, required=("name", "pipes", "memory"))
    clocks = {n: p.quantity("Hz") for n, p in top["clocks"].mapping().items()} if "clocks" in top else {}
    multiprocessors = top["multiprocessors"].integer() if "multiprocessors" in top else None
    sources = {n: p.text() for n, p in top["sources"].mapping().items()} if "sources" in top else {}

    def pipes(section: str) -> dict[str, Pipe]:
        if section not in top:
            return {}
        return {n: _pipe(n, p, clocks, multiprocessors, sources) for n, p in top[section].mapping(PIPES).items()}

    found = pipes("pipes")
    if not found:
        raise top["pipes"].error("pipes is empty; give at least one, such as tensor_fp16")

    def text(key: str) -> str | None:
        return top[key].text() if key in top else None

    device = Device(
        id=printable(path.stem),
        name=top["name"].text(),
        vendor=text("vendor"),
        generation=text("generation"),
        compute_capability=text("compute_capability"),
        form_factor=text("form_factor"),
        multiprocessors=multiprocessors,
        clocks=clocks,
        pipes=found,
        sparse_pipes=pipes("sparse_pipes"),
        levels={
            n: _level(n, p, clocks, multiprocessors, sources)
            for n, p in top["memory"].mapping(LEVELS, required=("dram",)).items()
        },
        links=_links(top["links"], sources) if "links" in top else {},
        measured=tuple(_measured(p, sources) for p in top["measured"].items()) if "measured" in top else (),
        sources=sources,
    )
    return calibration_reader.read(top["calibration"], device, Device.load) if "calibration" in top else device


def _clock(entries: dict[str, YamlValue], clocks: dict[str, float]) -> float | None:
    """A clock: a name from `clocks`, or a quantity."""
    if "clock" not in entries:
        return None
    name = entries["clock"].text()
    if name in clocks:
        return clocks[name]
    if name[0].isdigit():
        return entries["clock"].quantity("Hz")
    raise entries["clock"].error(f"clock {name!r} is not among clocks: {', '.join(clocks) or 'none are named'}")


def _source(entries: dict[str, YamlValue], sources: dict[str, str]) -> str | None:
    if "source" not in entries:
        return None
    name = entries["source"].text()
    if name not in sources:
        raise entries["source"].error(
            f"source {name!r} is not defined under 'sources', which has: {', '.join(sources) or 'nothing'}"
        )
    return name


def _pipe(
    name: str, node: YamlValue, clocks: dict[str, float], multiprocessors: int | None, sources: dict[str, str]
) -> Pipe:
    entries = node.mapping(_PIPE, required=("peak",))
    rate, device_rate = entries.get("per_multiprocessor"), entries.get("per_clock")
    if rate and device_rate:
        raise device_rate.error(f"{node.path} has both a rate per SM and a rate of the device; keep one of them")
    pipe = Pipe(
        name=name,
        peak=entries["peak"].quantity("FLOP/s"),
        per_multiprocessor=rate.quantity("FLOP/clock") if rate else None,
        clock=_clock(entries, clocks),
        accumulator=entries["accumulator"].text() if "accumulator" in entries else None,
        source=_source(entries, sources),
        per_clock=device_rate.quantity("FLOP/clock") if device_rate else None,
    )
    _plausible(entries["peak"], pipe.peak, pipe.computed(multiprocessors), _HOW_PEAK)
    return pipe


def _level(
    name: str, node: YamlValue, clocks: dict[str, float], multiprocessors: int | None, sources: dict[str, str]
) -> Level:
    entries = node.mapping(_LEVEL[name], required=("bandwidth",) if name == "dram" else ())
    clock = _clock(entries, clocks)

    def quantity(key: str, unit: str) -> int | float | None:
        return entries[key].quantity(unit) if key in entries else None

    bandwidth, capacity = quantity("bandwidth", "B/s"), quantity("capacity", "B")
    per_clock = quantity("bandwidth_per_clock", "B/clock")
    if name == "l1":
        if multiprocessors is None:
            raise node.error(f"{node.path} is stated per multiprocessor, but the file lacks 'multiprocessors'")
        each = quantity("bandwidth_per_clock_per_multiprocessor", "B/clock")
        size = quantity("capacity_per_multiprocessor", "B")
        per_clock = each * multiprocessors if each else None
        capacity = size * multiprocessors if size else None
    if bandwidth is None and per_clock is not None:
        if clock is None:
            raise node.error(f"{node.path} has a bandwidth per clock, but lacks the key 'clock'")
        bandwidth = per_clock * clock
    bus = quantity("bus", "bit")
    level = Level(
        name=name,
        bandwidth=bandwidth,
        capacity=_at_least_one(entries.get("capacity"), capacity),
        kind=entries["kind"].text() if "kind" in entries else None,
        bus_bits=_at_least_one(entries.get("bus"), bus),
        clock=clock,
        transfers_per_clock=entries["transfers_per_clock"].integer() if "transfers_per_clock" in entries else None,
        source=_source(entries, sources),
    )
    if "bandwidth" in entries and bandwidth is not None:
        _plausible(entries["bandwidth"], bandwidth, level.data_rate, _HOW_BANDWIDTH)
    return level


_HOW_PEAK, _HOW_BANDWIDTH = "multiprocessors x clock x rate", "bus x clock x transfers"


def _plausible(node: YamlValue, stated: float, computed: float | None, how: str) -> None:
    """Refuse a figure that differs from its own factors by more than a factor of two, such as a wrong unit prefix."""
    if computed is not None and not 0.5 <= computed / stated <= 2:
        unit = "B/s" if how == _HOW_BANDWIDTH else "FLOP/s"
        raise node.error(f"{node.path} is {node.text()!r}, but {how} gives {si(computed, unit)}; one of them is wrong")


def _at_least_one(node: YamlValue | None, value: float | None) -> int | None:
    """A whole number of bytes or bits. Raises DeviceError for less than one."""
    if node is not None and value is not None and value < 1:
        raise node.error(f"{node.path} is {node.text()!r}; it must be at least one whole byte or bit")
    return None if value is None else int(value)


def _links(node: YamlValue, sources: dict[str, str]) -> dict[str, Link]:
    found = {name: _link(name, entry, sources) for name, entry in node.mapping().items()}
    if len(networks := [name for name, link in found.items() if link.beyond is not None]) > 1:
        raise node.error(f"{node.path} has several networks between nodes, {', '.join(networks)}; keep one")
    return found


def _link(name: str, node: YamlValue, sources: dict[str, str]) -> Link:
    entries = node.mapping(("bandwidth", "joins", "beyond", "to", "source"), required=("bandwidth",))
    joins, beyond = (entries[key].integer() if key in entries else None for key in ("joins", "beyond"))
    if joins is not None and beyond is not None:
        raise node.error(
            f"{node.path} has both joins ({joins}) and beyond ({beyond}); "
            "keep joins for a link in a node, beyond for a network"
        )
    if joins == 1:
        raise entries["joins"].error(f"{entries['joins'].path} is {joins}; it must be 2 or more")
    if (to := entries.get("to")) is not None:
        if to.text() != "host":
            raise to.error(f"{to.path} is {to.text()}; the only value is host, for a link to the CPU")
        if joins is not None or beyond is not None:
            raise to.error(f"{node.path} goes to the host, so it has neither joins nor beyond")
    return Link(name, entries["bandwidth"].quantity("B/s"), _source(entries, sources), joins, beyond, to is not None)


def _measured(node: YamlValue, sources: dict[str, str]) -> Measured:
    entries = node.mapping(("ceiling", "by", "value", "source"), required=("ceiling", "by", "value"))
    ceiling = entries["ceiling"].text()
    if ceiling not in PIPES + LEVELS:
        known = ", ".join(LEVELS + PIPES)
        raise entries["ceiling"].error(f"ceiling {ceiling!r} is neither a pipe nor a memory level: {known}")
    unit = "B/s" if ceiling in LEVELS else "FLOP/s"
    return Measured(ceiling, entries["by"].text(), entries["value"].quantity(unit), _source(entries, sources))


def doubtful_entries(device: Device) -> list[str]:
    """Valid but doubtful entries: numbers that their own factors contradict, and numbers without a source."""
    found = []
    for pipe in (*device.pipes.values(), *device.sparse_pipes.values()):
        if pipe.source is None:
            found.append(f"pipe {pipe.name}: no source")
        found += _disagreement(
            f"pipe {pipe.name}: peak", pipe.peak, pipe.computed(device.multiprocessors), "FLOP/s", _HOW_PEAK
        )
    for level in device.levels.values():
        if level.source is None:
            found.append(f"memory {level.name}: no source")
        if level.bandwidth:
            found += _disagreement(
                f"memory {level.name}: bandwidth", level.bandwidth, level.data_rate, "B/s", _HOW_BANDWIDTH
            )
    if device.calibration and device.missing_timing_fields:
        found.append(f"calibration: no expected times without {' and '.join(device.missing_timing_fields)}")
    return found


def _disagreement(what: str, stated: float, computed: float | None, unit: str, how: str) -> list[str]:
    if computed is None or abs(computed / stated - 1) <= TOLERANCE:
        return []
    return [
        f"{what} is stated as {si(stated, unit, 4)}, but {how} gives {si(computed, unit, 4)} "
        f"({computed / stated - 1:+.1%})"
    ]
