"""A device: its pipes (what computes), its memory levels (what feeds them), its links.

All values are in base units: FLOP/s, bytes per second, bytes, hertz. Peaks are dense; what a field
does not know is None.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from roofmodel.devices.calibration import Calibration
from roofmodel.errors import WorkloadError


class Pipe(NamedTuple):
    """A functional unit's ceiling. `peak` is what its source states, in FLOP/s."""

    name: str
    peak: float
    per_multiprocessor: float | None = None  # FLOP per clock of one multiprocessor
    clock: float | None = None  # hertz
    accumulator: str | None = None
    source: str | None = None
    per_clock: float | None = None  # FLOP per clock of the device, where it has no multiprocessors (a TPU)

    def computed(self, multiprocessors: int | None) -> float | None:
        """Clock x rate, of all multiprocessors where it has such: what the peak should be, in FLOP/s."""
        rate = self.per_clock
        if rate is None and multiprocessors is not None and self.per_multiprocessor is not None:
            rate = multiprocessors * self.per_multiprocessor
        return None if rate is None or self.clock is None else rate * self.clock


class Level(NamedTuple):
    """A memory level's ceiling. L2 and L1 bandwidths follow from bytes per clock where stated."""

    name: str
    bandwidth: float | None = None  # bytes per second
    capacity: int | None = None  # bytes; of all multiprocessors together for L1
    kind: str | None = None
    bus_bits: int | None = None
    clock: float | None = None
    transfers_per_clock: int | None = None
    source: str | None = None

    @property
    def data_rate(self) -> float | None:
        """Bus width x clock x transfers per clock, in bytes per second: what bandwidth should be."""
        if self.bus_bits is None or self.clock is None:
            return None
        return self.bus_bits / 8 * self.clock * (self.transfers_per_clock or 1)


class Link(NamedTuple):
    """A connection to other devices or the host; bandwidth is the total of both directions.

    `joins` is how many devices it connects with one another; None: all those of a node. A network connects nodes: what
    is `beyond` so many devices, each of which has a port of this bandwidth.
    """

    name: str
    bandwidth: float
    source: str | None = None
    joins: int | None = None
    beyond: int | None = None

    @property
    def parameters(self) -> str:
        """What parameters of collectives hold for it: those of a `network`, of `pcie`, where data pass the host, or of
        `any` other link of devices."""
        return "network" if self.beyond is not None else "pcie" if self.name == "pcie" else "any"


class Measured(NamedTuple):
    """A ceiling as a benchmark reached it, named like the pipe or level that it measures."""

    ceiling: str
    by: str
    value: float
    source: str | None = None


@dataclass(frozen=True)
class Device:
    """One device in one form factor. `id` is the file's stem, `name` the full name for print."""

    id: str
    name: str
    pipes: Mapping[str, Pipe]
    levels: Mapping[str, Level]
    vendor: str | None = None
    generation: str | None = None
    compute_capability: str | None = None
    form_factor: str | None = None
    multiprocessors: int | None = None
    clocks: Mapping[str, float] = field(default_factory=dict)
    sparse_pipes: Mapping[str, Pipe] = field(default_factory=dict)
    links: Mapping[str, Link] = field(default_factory=dict)
    measured: tuple[Measured, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    calibration: Calibration | None = None

    @classmethod
    def load(cls, name: str | os.PathLike[str]) -> Device:
        """A device by name, alias or path of a YAML file. Raises DeviceError."""
        from roofmodel.devices.library import load

        return load(name)

    @property
    def calibrated(self) -> bool:
        """Whether the timing model was fitted to measurements of this very device."""
        return self.calibration is not None and self.calibration.device == self.id

    @property
    def missing_timing_fields(self) -> list[str]:
        """What the timing model counts with and the file does not say, by its keys there."""
        needed = {"multiprocessors": self.multiprocessors, "clocks: boost": self.clocks.get("boost")}
        return [key for key, value in needed.items() if value is None]

    @property
    def bandwidth(self) -> float:
        """DRAM bandwidth in bytes per second."""
        bandwidth = self.levels["dram"].bandwidth
        assert bandwidth is not None  # the reader insists on it
        return bandwidth

    @property
    def inside(self) -> Link | None:
        """The fastest link among all devices of a node; of few, or between nodes, where there is no other; None where
        there is none at all."""
        ranks = {name: (one.beyond is None, one.joins is None, one.bandwidth) for name, one in self.links.items()}
        return self.links[max(ranks, key=ranks.__getitem__)] if ranks else None

    @property
    def bridge(self) -> Link | None:
        """A link of few devices that is faster than the one among all; None where there is none."""
        inside = self.inside
        found = [link for link in self.links.values() if link.joins and inside and link.bandwidth > inside.bandwidth]
        return max(found, key=lambda link: link.bandwidth, default=None)

    @property
    def network(self) -> Link | None:
        """The link between nodes; None where the file has none."""
        return next((link for link in self.links.values() if link.beyond is not None), None)

    @property
    def link(self) -> float | None:
        """Bytes per second to a neighbour, in one direction, over the fastest link; None where the file has none."""
        fastest = self.bridge or self.inside
        return fastest and fastest.bandwidth / 2

    @property
    def capacity(self) -> int | None:
        """DRAM in bytes."""
        return self.levels["dram"].capacity

    @property
    def types(self) -> set[str]:
        """The types that it has a pipe for."""
        return {name.removeprefix("tensor_") for name in self.pipes if not name.endswith("_acc16")}

    def matmul_pipe(self, dtype: str) -> Pipe:
        """The fastest dense pipe that multiplies matrices of this type.

        fp32 means fp32: on an A100 it runs on the CUDA cores, and tf32 is a type of its own.
        Raises WorkloadError, with the types the device has, where it has none for this one.
        """
        candidates = [self.pipes[n] for n in (f"tensor_{dtype}", dtype) if n in self.pipes]
        if not candidates:
            raise WorkloadError(f"{self.name} has no pipe for {dtype!r}; it has {', '.join(sorted(self.types))}")
        return max(candidates, key=lambda pipe: pipe.peak)

    def vector_pipe(self, dtype: str) -> Pipe | None:
        """The pipe of everything but matrix products; None where the file names none.

        Frameworks evaluate softmax, norms, activations and sums in fp32 whatever the tensors' type
        (PyTorch's opmath type), and in fp64 for fp64.
        """
        return self.pipes.get("fp64" if dtype == "fp64" else "fp32")
