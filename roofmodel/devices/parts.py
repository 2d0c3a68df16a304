"""Parts of a device: pipes (execution units), memory levels, links, and measurements of their ceilings.

All values are in base units: FLOP/s, bytes per second, bytes, hertz. Peaks are dense. An unknown value is None.
"""

from typing import NamedTuple


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
