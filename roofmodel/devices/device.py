"""A device: its pipes (execution units), memory levels and links.

All values are in base units: FLOP/s, bytes per second, bytes, hertz. Peaks are dense. An unknown value is None.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from pathlib import Path

from roofmodel.devices import calibration_reader, library
from roofmodel.devices.calibration import Calibration
from roofmodel.devices.parts import Level, Link, Measured, Pipe, Unaligned
from roofmodel.devices.schema import DeviceFile
from roofmodel.errors import LIST_HARDWARE, DeviceError, WorkloadError
from roofmodel.files.text_files import read_yaml
from roofmodel.numbers.algebra import maximum


@dataclass(frozen=True)
class Device:
    """One device in one form factor. `id` is the stem of its file, `name` the full name to print."""

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
    unaligned: Unaligned | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    calibration: Calibration | None = None

    @classmethod
    def load(cls, name: Hardware) -> Device:
        """A device by name, alias or path of a YAML file; a Device as it is. Raises DeviceError."""
        if isinstance(name, Device):
            return name
        return _load(name, tuple(calibration_reader.TIMINGS))

    @property
    def calibrated(self) -> bool:
        """Whether the timing model was fitted to measurements of this device, not of a similar one."""
        return self.calibration is not None and self.calibration.device == self.id

    @property
    def reached(self) -> dict[tuple[str, str, str], float]:
        """(tensor pipe, benchmark, source) -> measured fraction of the peak."""
        return {
            (m.ceiling, m.by, self.sources[m.source]): m.value / self.pipes[m.ceiling].peak
            for m in self.measured
            if m.ceiling.startswith("tensor_") and m.ceiling in self.pipes and m.source
        }

    @property
    def missing_timing_fields(self) -> list[str]:
        """The keys that the timing model needs and the file lacks."""
        needed = {"multiprocessors": self.multiprocessors, "clocks: boost": self.clocks.get("boost")}
        return [key for key, value in needed.items() if value is None]

    @property
    def bandwidth(self) -> float:
        """DRAM bandwidth in bytes per second."""
        bandwidth = self.levels["dram"].bandwidth
        assert bandwidth is not None  # the reader requires it
        return bandwidth

    @property
    def inside(self) -> Link | None:
        """The fastest link among all devices of a node; without one, another link; None without any link."""
        between = {name: link for name, link in self.links.items() if not link.to_host}
        ranks = {name: (link.beyond is None, link.joins is None, link.bandwidth) for name, link in between.items()}
        return self.links[max(ranks, key=ranks.__getitem__)] if ranks else None

    @property
    def bridge(self) -> Link | None:
        """The link among the smallest group of devices of a node, such as a bridge of two; None where there is none."""
        return next(iter(self._groups), None)

    @property
    def half(self) -> Link | None:
        """The link among the next larger group of devices of a node, such as half of it; None where there is none."""
        return next(iter(self._groups[1:]), None)

    @property
    def _groups(self) -> list[Link]:
        """Links among some devices of a node, from the smallest group."""
        links = [link for link in self.links.values() if link.joins and link != self.inside]
        return sorted(links, key=lambda link: link.joins or 0)

    @property
    def pairs_over_pcie(self) -> bool:
        """Whether bridges join pairs of devices, and two pairs communicate over PCIe."""
        bridge, pairs = self.bridge, self.half or self.inside
        joined = bridge is not None and bridge.joins == 2 and bridge.parameters == "any"
        return joined and pairs is not None and pairs.parameters == "pcie" and (pairs.joins or 4) >= 4

    @property
    def network(self) -> Link | None:
        """The link between nodes; None where the file has none."""
        return next((link for link in self.links.values() if link.beyond is not None), None)

    @property
    def host_link(self) -> Link | None:
        """The link to the CPU: one that only goes there, else PCIe; None where the file has neither."""
        return next((link for link in self.links.values() if link.to_host), self.links.get("pcie"))

    @property
    def host_bandwidth(self) -> float | None:
        """Bytes per second between CPU and device in one direction; None where the file has no such link."""
        link = self.host_link
        return link.bandwidth / 2 if link else None

    @property
    def link(self) -> float | None:
        """Bytes per second to a neighbor in one direction, over the fastest link; None without any link."""
        bandwidths = [link.bandwidth for link in (self.bridge, self.inside) if link]
        return reduce(maximum, bandwidths) / 2 if bandwidths else None

    @property
    def last_cache(self) -> Level | None:
        """The cache in front of DRAM: AMD's Infinity Cache, else L2; None where the file has neither."""
        return self.levels.get("infinity_cache", self.levels.get("l2"))

    @property
    def capacity(self) -> int | None:
        """DRAM in bytes."""
        return self.levels["dram"].capacity

    @property
    def shares_memory(self) -> bool:
        """Whether the GPU is part of a system on a chip, whose memory (LPDDR) it shares with the CPU."""
        return (self.levels["dram"].kind or "").startswith("LPDDR")

    @property
    def types(self) -> set[str]:
        """The number formats that it has a pipe for."""
        return {name.removeprefix("tensor_") for name in self.pipes if not name.endswith("_acc16")}

    def matmul_pipe(self, dtype: str) -> Pipe:
        """The fastest dense pipe for GEMMs in the format `dtype`.

        fp32 is not tf32: on an A100 it runs on the CUDA cores. Raises WorkloadError, with the formats of the device,
        where it has no pipe for `dtype`.
        """
        candidates = [self.pipes[n] for n in (f"tensor_{dtype}", dtype) if n in self.pipes]
        if not candidates:
            raise WorkloadError(f"{self.name} has no pipe for {dtype!r}; supported: {', '.join(sorted(self.types))}")
        return max(candidates, key=lambda pipe: pipe.peak)

    def vector_pipe(self, dtype: str) -> Pipe | None:
        """The pipe of all operators that are no GEMMs; None where the file has none.

        Frameworks evaluate softmax, norms, activations and sums in fp32 for all tensor formats (PyTorch's opmath type),
        except in fp64 for fp64.
        """
        return self.pipes.get("fp64" if dtype == "fp64" else "fp32")


Hardware = str | os.PathLike[str] | Device
"""A device's name, alias or YAML file, or the Device itself."""


def device_name(hw: Hardware) -> str:
    """The name or path as given; the id of a Device."""
    return hw.id if isinstance(hw, Device) else os.fspath(hw)


def _load(name: str | os.PathLike[str], kinds: tuple[str, ...]) -> Device:
    """A device with the parameter sets of some kinds. Raises DeviceError."""
    path = library.find(name)
    try:
        return _shipped(path, kinds) if path.parent == library.shipped_folder() else _read(path, kinds)
    except FileNotFoundError:
        reason = f"{os.fspath(name)}: no such file; give a device's YAML file or a name of "
        raise DeviceError(reason, LIST_HARDWARE) from None


@cache
def _shipped(path: Path, kinds: tuple[str, ...]) -> Device:
    """The device of a file that comes with roofmodel; a process reads it once for the same kinds."""
    return _read(path, kinds, deferred=True)


def _read(path: Path, kinds: tuple[str, ...], deferred: bool = False) -> Device:
    file = DeviceFile(path)
    device = Device(
        id=file.id,
        name=file.name,
        vendor=file.text("vendor"),
        generation=file.text("generation"),
        compute_capability=file.compute_capability,
        form_factor=file.text("form_factor"),
        multiprocessors=file.multiprocessors,
        clocks=file.clocks,
        pipes=file.pipes,
        sparse_pipes=file.sparse_pipes,
        levels=file.levels(),
        links=file.links(),
        measured=file.measured(),
        unaligned=file.unaligned(),
        sources=file.sources,
    )
    fitted = library.fitted_file(path)
    sets = read_yaml(fitted, DeviceError, "a file of parameter sets") if fitted else file.calibration
    calibration = calibration_reader.read(sets, file.like, device, _load, kinds, deferred)
    return replace(device, calibration=calibration) if calibration else device
