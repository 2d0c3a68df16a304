"""A device: its pipes (execution units), memory levels, links and calibration, and how its files are read.

All values are in base units: FLOP/s, bytes per second, bytes, hertz. Peaks are dense. An unknown value is None. Its
parameter sets are in `hardware/fitted/DEVICE.yaml`, or in the section `calibration` of a user's file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any

from roofmodel.devices import library
from roofmodel.devices.calibration import (
    HEAD_SIZES,
    SHARED,
    TIMINGS,
    Calibration,
    DeferredSets,
    Fit,
    Fitted,
    Parameter,
    Sets,
    Timing,
    for_all_head_sizes,
    is_seconds,
    parameters,
    sets_of_kind,
    stated_parameters,
)
from roofmodel.devices.parts import SUSTAINED, DeviceFile, Level, Link, Measured, Pipe, Power, Unaligned
from roofmodel.errors import LIST_HARDWARE, DeviceError, WorkloadError
from roofmodel.files.text_files import YamlValue, read_yaml
from roofmodel.numbers.algebra import maximum

DRIVER_SHARE = 0.985
"""What NVIDIA's driver leaves of DRAM: 0.983 to 0.990 on the cards without ECC in GDDR whose files state it."""


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
    power: Power | None = None
    unaligned: Unaligned | None = None
    stated_capacity: int | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    calibration: Calibration | None = None
    is_sustained: bool = False
    """Whether expected times are those under long load, at the rates that the card sustains under its power limit."""

    @classmethod
    def load(cls, name: Hardware) -> Device:
        """A device by name, alias or path of a YAML file; a Device as it is. Raises DeviceError."""
        if isinstance(name, Device):
            return name
        return _load(name, tuple(TIMINGS))

    @classmethod
    def describe(cls, name: str) -> Device:
        """A device by name, without the parameters of its timing model. Raises DeviceError."""
        return _load(name, ())

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
            if m.ceiling.startswith("tensor_") and m.ceiling in self.pipes and m.source and m.by != SUSTAINED
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
    def driver_capacity(self) -> float | None:
        """The bytes of DRAM that programs see, as the driver states them; where the file has no figure, DRIVER_SHARE of
        DRAM."""
        if self.stated_capacity is not None or self.capacity is None:
            return self.stated_capacity
        return DRIVER_SHARE * self.capacity

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

    def fp16_accumulation(self, dtype: str) -> Pipe | None:
        """The tensor cores with a sum in fp16, where they are faster than with one in fp32; None where they are not."""
        return self.pipes.get(f"tensor_{dtype}_acc16")

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
        power=file.power(),
        unaligned=file.unaligned(),
        stated_capacity=file.driver_capacity(),
        sources=file.sources,
    )
    if not kinds:
        return device
    fitted = library.fitted_file(path)
    sets = read_yaml(fitted, DeviceError, "a file of parameter sets") if fitted else file.calibration
    calibration = read_calibration(sets, file.like, device, _load, kinds, deferred)
    return replace(device, calibration=calibration) if calibration else device


LEAST_DIVISOR = 1e-6  # of the parameters that are no times: a formula may divide by them
Load = Callable[[str, tuple[str, ...]], Device]
"""Returns a device by its name, with its parameter sets of some kinds."""


def read_calibration(
    sets: YamlValue | None,
    like: YamlValue | None,
    device: Device,
    load: Load,
    kinds: tuple[str, ...] = tuple(TIMINGS),
    deferred: bool = False,
) -> Calibration | None:
    """The parameter sets of `kinds` of a device; None where it has none.

    `sets` are those that were fitted to measurements on the device. All other kinds are those of the device `like`,
    with wider intervals; only they are loaded, so that two devices can use different kinds of each other. `transfer.py`
    scales the parameters. Raises DeviceError; with `deferred`, errors in the other file are raised when these sets are
    first used (see `DeferredSets`).
    """
    entries = sets.mapping((*TIMINGS, "like")) if sets else {}
    if "like" in entries:
        name = entries["like"].text()
        raise entries["like"].error(
            f"'like' is now a key of the file: replace 'calibration: {{like: {name}}}' by 'like: {name}'"
        )
    if like is None and sets is None:
        return None
    own: dict[str, Any] = {kind: _sets(entries[kind], TIMINGS[kind]) for kind in kinds if kind in entries}
    if like is None:
        return Calibration(device.id, **own)
    missing = tuple(kind for kind in kinds if kind not in entries)
    find = cache(partial(_transferred, device, like, load, missing))
    if not entries:
        return find()
    reads = {kind: partial(sets_of_kind, find, kind) for kind in missing}
    others: dict[str, Any] = {kind: DeferredSets(read) if deferred else read()[0] for kind, read in reads.items()}
    source = like.text() if deferred or not missing else find().device
    return Calibration(device.id, {source: missing} if missing else {}, **own, **others)


class _RefersBackError(DeviceError):
    """The parameters of the device `like` are those of the device itself; the message has one file only."""


def _transferred(device: Device, like: YamlValue, load: Load, kinds: tuple[str, ...]) -> Calibration:
    """The sets of some kinds of the device that a file names by `like`."""
    name = like.text()
    refers_back = _RefersBackError(*like.error(f"like refers back to this file: {name}").args)
    if name == device.id:
        raise refers_back
    try:
        source = load(name, kinds)
    except (RecursionError, _RefersBackError):
        raise refers_back from None
    except DeviceError as error:
        raise like.error(f"{like.path}: ", *error.args) from None
    if source.calibration is None:
        calibrated = [each for each in library.names() if library.fitted_file(library.find(each))]
        raise like.error(f"{like.path}: {name} has no fitted parameters; calibrated devices: {', '.join(calibrated)}")
    from roofmodel.devices.transfer import transferred

    return transferred(device, source, kinds)


def _sets(node: YamlValue, timing: type[Timing]) -> Sets[Timing]:
    """The sets of a kind; the entry `fit` has the source and date of sets that do not state their own."""
    entries = node.mapping()
    shared = entries.pop("fit").mapping(SHARED) if "fit" in entries else {}
    return {
        name: {form: _fitted(entry, timing, shared) for form, entry in forms.mapping().items()}
        for name, forms in entries.items()
    }


def _fitted(node: YamlValue, timing: type[Timing], shared: Mapping[str, YamlValue]) -> Fitted[Timing]:
    declared, fields_by_name = parameters(timing), stated_parameters(timing)
    required = [name for name, fields in fields_by_name.items() if not declared[fields[0]].optional]
    entries = node.mapping((*fields_by_name, "fit"), required=(*required, "fit"))
    values: list[float] = []
    for name, fields in fields_by_name.items():
        if len(fields) > 1:
            by_size = entries[name].mapping(tuple(map(str, HEAD_SIZES)))
            values_by_size = {int(size): _value(entry, declared[fields[0]]) for size, entry in by_size.items()}
            if not values_by_size:
                raise entries[name].error(f"{entries[name].path} has no head size, such as {{128: ...}}")
            values += for_all_head_sizes(values_by_size)
        elif name in entries:
            values.append(_value(entries[name], declared[name]))
        else:
            values.append(declared[name].start)
    fit = {**shared, **entries["fit"].mapping(Fit._fields, [name for name in Fit._fields if name not in shared])}
    low, high = fit["low"].number(), fit["high"].number()
    if not low <= 1 <= high:  # factors on the expected time
        raise entries["fit"].error(
            f"{entries['fit'].path} has the interval {low:g} to {high:g}, which must contain 1, such as 0.9 to 1.1"
        )
    return Fitted(
        timing._make(values),
        Fit(
            fit["rows"].integer(0, 10**9), fit["held_out"].integer(0, 10**9),
            fit["error"].number(), low, high, fit["source"].text(), fit["date"].text(),
        ),
    )  # fmt: skip


def _value(node: YamlValue, parameter: Parameter) -> float:
    """The value of a parameter: a time with its unit, or a number."""
    if is_seconds(parameter):
        return 0.0 if node.text() == "0" else node.quantity("s")
    value = node.number()
    if value < LEAST_DIVISOR and value not in parameter.values:
        raise node.error(f"{node.path} is {value:g}; it must be at least {LEAST_DIVISOR:g}")
    return value
