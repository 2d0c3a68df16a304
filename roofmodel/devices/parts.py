"""Parts of a device: pipes (execution units), memory levels, links, measured ceilings, power; the reader of its YAML.

All values are in base units: FLOP/s, bytes per second, bytes, hertz, watts, joules. Peaks are dense. An unknown value
is None. The calibration of a device is read in `device.py`.

Choi, Bedard, Fowler and Vuduc, "A Roofline Model of Energy", IPDPS 2013: a FLOP and a byte cost energy, so that the
power of a kernel is

    P = idle + energy of a FLOP x FLOP/s + energy of a byte x bytes/s

A card whose mean power exceeds its limit lowers its clock. So a load that lasts takes at least its energy above
idle / (limit - idle).

A file may also state a rate that a card sustains at a site, whatever the reason: it is a ceiling of each kernel.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from roofmodel.errors import DeviceError, shorten
from roofmodel.files.text_files import YamlValue, printable, read_yaml
from roofmodel.numbers.units import si

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


class Pipe(NamedTuple):
    """The ceiling of an execution unit. `peak` is the figure of its source, in FLOP/s."""

    name: str
    peak: float
    per_multiprocessor: float | None = None  # FLOP per clock of one SM
    clock: float | None = None  # hertz
    accumulator: str | None = None
    source: str | None = None
    per_clock: float | None = None  # FLOP per clock of the whole device, where it has no SMs (a TPU)

    def computed(self, multiprocessors: int | None) -> float | None:
        """The peak from clock x FLOP per clock (x SMs), in FLOP/s, to check `peak`; None without these."""
        rate = self.per_clock
        if rate is None and multiprocessors is not None and self.per_multiprocessor is not None:
            rate = multiprocessors * self.per_multiprocessor
        return None if rate is None or self.clock is None else rate * self.clock


class Level(NamedTuple):
    """The ceiling of a memory level. Bandwidths of L2 and L1 come from bytes per clock where the file has those."""

    name: str
    bandwidth: float | None = None  # bytes per second
    capacity: int | None = None  # bytes; for L1 of all SMs together
    kind: str | None = None
    bus_bits: int | None = None
    clock: float | None = None
    transfers_per_clock: int | None = None
    source: str | None = None

    @property
    def label(self) -> str:
        """The name as people write it: `DRAM`, `L2`, `Infinity Cache`."""
        return "Infinity Cache" if self.name == "infinity_cache" else self.name.upper()

    def holds(self, size: float) -> bool:
        """Whether so many bytes are known to fit."""
        return self.capacity is not None and size <= self.capacity

    @property
    def data_rate(self) -> float | None:
        """Bus width x clock x transfers per clock, in bytes/s, to check `bandwidth`; None without these."""
        if self.bus_bits is None or self.clock is None:
            return None
        return self.bus_bits / 8 * self.clock * (self.transfers_per_clock or 1)


class Link(NamedTuple):
    """A connection to other devices or the host; bandwidth is the total of both directions.

    `joins` is the number of neighboring devices that it connects; None: all devices of a node. In a mesh, where the
    bandwidth depends on the group, each size of group has a link. A network connects nodes: `beyond` is the number of
    devices per node, each of which has a network port of this bandwidth. `to_host` marks a link that connects a device
    with its CPU only, such as NVLink-C2C.
    """

    name: str
    bandwidth: float
    source: str | None = None
    joins: int | None = None
    beyond: int | None = None
    to_host: bool = False

    @property
    def parameters(self) -> str:
        """The key of its collective parameters: `network`, `sockets` (between the CPUs of a node), `pcie` (through the
        host), or `any` other link."""
        if self.beyond is not None:
            return "network"
        return next((key for key in ("sockets", "pcie") if self.name.startswith(key)), "any")

    @property
    def label(self) -> str:
        """The name; for a link between the CPUs of a node with what it is."""
        return f"{self.name} (over PCIe, between CPU sockets)" if self.parameters == "sockets" else self.name


class Measured(NamedTuple):
    """A measured ceiling; `ceiling` names the pipe or level, `by` the benchmark."""

    ceiling: str
    by: str
    value: float
    source: str | None = None


class Unaligned(NamedTuple):
    """The share of the tensor cores' rate that GEMMs reach whose rows are not multiples of 16 bytes, as measured."""

    rows_of_4_bytes: float
    rows_of_2_bytes: float
    source: str | None = None


PIPE_TYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
# Tensor cores of GeForce cards are twice as fast with fp16 accumulation, which frameworks do not use.
ACCUMULATING_FP16 = ("tensor_fp16_acc16", "tensor_fp8_acc16")
PIPES = tuple(f"tensor_{t}" for t in PIPE_TYPES) + ACCUMULATING_FP16 + PIPE_TYPES
LEVELS = ("dram", "infinity_cache", "l2", "l1")
_CAPABILITY = re.compile(r"\d{1,2}\.\d")

_TOP = (
    "name", "vendor", "generation", "compute_capability", "form_factor", "multiprocessors", "clocks",
    "pipes", "sparse_pipes", "memory", "links", "measured", "power", "unaligned_gemms", "source", "sources", "like",
    "calibration",
)  # fmt: skip
_PIPE = ("peak", "per_multiprocessor", "per_clock", "clock", "accumulator", "source")
_LEVEL = {
    "dram": ("kind", "capacity", "bandwidth", "bus", "clock", "transfers_per_clock", "source"),
    "infinity_cache": ("capacity", "bandwidth", "source"),  # of AMD, between L2 and DRAM
    "l2": ("capacity", "bandwidth", "bandwidth_per_clock", "clock", "source"),
    "l1": ("capacity_per_multiprocessor", "bandwidth_per_clock_per_multiprocessor", "clock", "source"),
}


class DeviceFile:
    """The sections of a device's YAML file. Raises DeviceError with file and line, FileNotFoundError without a file."""

    def __init__(self, path: Path) -> None:
        top = read_yaml(path, DeviceError, "a device's YAML").mapping(_TOP, required=("name", "pipes", "memory"))
        self._top = top
        self.id = printable(path.stem)
        self.clocks = {n: p.quantity("Hz") for n, p in top["clocks"].mapping().items()} if "clocks" in top else {}
        self.multiprocessors = top["multiprocessors"].integer() if "multiprocessors" in top else None
        self.sources = {n: p.text() for n, p in top["sources"].mapping().items()} if "sources" in top else {}
        self._sources = _Sources(self.sources, _Sources(self.sources).name(top))
        self.pipes, self.sparse_pipes = self._pipes("pipes"), self._pipes("sparse_pipes")
        if not self.pipes:
            raise top["pipes"].error("pipes is empty; give at least one, such as tensor_fp16")
        self.name = top["name"].text()
        self.like = top.get("like")
        self.calibration = top.get("calibration")

    def text(self, key: str) -> str | None:
        """The text of a key, such as `vendor`."""
        return self._top[key].text() if key in self._top else None

    @property
    def compute_capability(self) -> str | None:
        """NVIDIA's version of the chip's instructions, such as `9.0`."""
        if "compute_capability" not in self._top:
            return None
        node = self._top["compute_capability"]
        if not _CAPABILITY.fullmatch(text := node.text()):
            raise node.error(f'compute_capability is {shorten(text)}; write a version in quotes, such as "9.0"')
        return text

    def levels(self) -> dict[str, Level]:
        """The memory levels."""
        return {
            n: _level(n, p, self.clocks, self.multiprocessors, self._sources)
            for n, p in self._top["memory"].mapping((*LEVELS, "driver"), required=("dram",)).items()
            if n != "driver"
        }

    def driver_capacity(self) -> int | None:
        """The bytes of DRAM that the driver leaves to programs; None if not stated."""
        memory = self._top["memory"].mapping()
        if "driver" not in memory:
            return None
        entries = memory["driver"].mapping(("capacity", "source"), required=("capacity", "source"))
        self._sources.name(entries)
        return int(entries["capacity"].quantity("B"))

    def links(self) -> dict[str, Link]:
        """The links to other devices and to the host."""
        return _links(self._top["links"], self._sources) if "links" in self._top else {}

    def measured(self) -> tuple[Measured, ...]:
        """The measured ceilings."""
        return (
            tuple(_measured(p, self._sources) for p in self._top["measured"].items()) if "measured" in self._top else ()
        )

    def power(self) -> Power | None:
        """The power limit and the energies of FLOPs and bytes."""
        return _power(self._top["power"], self.clocks, self._sources) if "power" in self._top else None

    def unaligned(self) -> Unaligned | None:
        """What GEMMs with rows that are not multiples of 16 bytes reach of the tensor cores' rate."""
        if "unaligned_gemms" not in self._top:
            return None
        shares = ("rows_of_4_bytes", "rows_of_2_bytes")
        entries = self._top["unaligned_gemms"].mapping(Unaligned._fields, required=shares)
        of_4, of_2 = (_share(entries[name]) for name in shares)
        return Unaligned(of_4, of_2, self._sources.name(entries))

    def _pipes(self, section: str) -> dict[str, Pipe]:
        if section not in self._top:
            return {}
        pipes = self._top[section].mapping(PIPES)
        return {n: _pipe(n, p, self.clocks, self.multiprocessors, self._sources) for n, p in pipes.items()}


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


class _Sources(NamedTuple):
    """The sources of a file by name, and the one of all figures that do not name theirs."""

    texts: dict[str, str]
    usual: str | None = None

    def name(self, entries: dict[str, YamlValue]) -> str | None:
        """The name of the source of a figure."""
        if "source" not in entries:
            return self.usual
        name = entries["source"].text()
        if name not in self.texts:
            texts = ", ".join(self.texts) or "nothing"
            raise entries["source"].error(f"source {name!r} is not defined under 'sources', which has: {texts}")
        return name


def _pipe(name: str, node: YamlValue, clocks: dict[str, float], multiprocessors: int | None, sources: _Sources) -> Pipe:
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
        source=sources.name(entries),
        per_clock=device_rate.quantity("FLOP/clock") if device_rate else None,
    )
    _plausible(entries["peak"], pipe.peak, pipe.computed(multiprocessors), HOW_PEAK)
    return pipe


def _level(
    name: str, node: YamlValue, clocks: dict[str, float], multiprocessors: int | None, sources: _Sources
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
        source=sources.name(entries),
    )
    if "bandwidth" in entries and bandwidth is not None:
        _plausible(entries["bandwidth"], bandwidth, level.data_rate, HOW_BANDWIDTH)
    return level


def _share(node: YamlValue) -> float:
    value = node.number()
    if not 0 < value <= 1:
        raise node.error(f"{node.path} is {node.text()!r}; it must be a fraction above 0, at most 1")
    return float(value)


HOW_PEAK, HOW_BANDWIDTH = "multiprocessors x clock x rate", "bus x clock x transfers"


def _plausible(node: YamlValue, value: float, computed: float | None, how: str) -> None:
    """Refuse a figure that differs from its own factors by more than a factor of two, such as a wrong unit prefix."""
    if computed is not None and not 0.5 <= computed / value <= 2:
        unit = "B/s" if how == HOW_BANDWIDTH else "FLOP/s"
        raise node.error(f"{node.path} is {node.text()!r}, but {how} gives {si(computed, unit)}; one of them is wrong")


def _at_least_one(node: YamlValue | None, value: float | None) -> int | None:
    """A whole number of bytes or bits. Raises DeviceError for less than one."""
    if node is not None and value is not None and value < 1:
        raise node.error(f"{node.path} is {node.text()!r}; it must be at least one whole byte or bit")
    return None if value is None else int(value)


def _links(node: YamlValue, sources: _Sources) -> dict[str, Link]:
    links = {name: _link(name, entry, sources) for name, entry in node.mapping().items()}
    if len(networks := [name for name, link in links.items() if link.beyond is not None]) > 1:
        raise node.error(f"{node.path} has several networks between nodes, {', '.join(networks)}; keep one")
    return links


def _link(name: str, node: YamlValue, sources: _Sources) -> Link:
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
    return Link(name, entries["bandwidth"].quantity("B/s"), sources.name(entries), joins, beyond, to is not None)


def _measured(node: YamlValue, sources: _Sources) -> Measured:
    entries = node.mapping(("ceiling", "by", "value", "source"), required=("ceiling", "by", "value"))
    ceiling = entries["ceiling"].text()
    if ceiling not in PIPES + LEVELS:
        ceilings = ", ".join(LEVELS + PIPES)
        raise entries["ceiling"].error(f"ceiling {ceiling!r} is neither a pipe nor a memory level: {ceilings}")
    unit = "B/s" if ceiling in LEVELS else "FLOP/s"
    return Measured(ceiling, entries["by"].text(), entries["value"].quantity(unit), sources.name(entries))


def _power(node: YamlValue, clocks: dict[str, float], sources: _Sources) -> Power:
    entries = node.mapping(("limit", "idle", "clock", "energy", "source"), required=("limit", "idle", "energy"))
    values = {name: entries[name] for name in ("limit", "idle")}
    energies = entries["energy"].mapping(("dram", *PIPES))
    figures, of_figures = dict[str, float](), dict[str, str | None]()
    own = sources._replace(usual=sources.name(entries))
    for name, each in (values | energies).items():
        stated = each.mapping(("value", "source"), required=("value",)) if each.is_mapping else {"value": each}
        unit = "W" if name in values else "J/B" if name == "dram" else "J/FLOP"
        figures[name], of_figures[name] = stated["value"].quantity(unit), own.name(stated)
    limit, idle = (figures.pop(name) for name in values)
    if idle >= limit:
        raise values["idle"].error(f"{node.path}: idle, {idle:g} W, must be below limit, {limit:g} W")
    return Power(limit, idle, _clock(entries, clocks), figures, of_figures)
