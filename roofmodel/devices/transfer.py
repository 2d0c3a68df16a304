"""Parameter sets of another device, for a device that was not measured: scaled parameters and wider intervals.

The fraction of the DRAM bandwidth that a kernel reaches depends on the device. Two limits determine the rate at which a
kernel streams data: the DRAM, of whose bandwidth no kernel reaches all, and the loads that its threads keep in flight:
by Little's law, bytes in flight / latency. The second limit grows with the SMs and their clock, not with the bandwidth.
So a kernel that leaves DRAM bandwidth unused reaches a larger fraction of it on a device with more SMs per bandwidth,
and a smaller fraction on a device with faster memory and the same SMs.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot
from typing import Any, NamedTuple, Protocol

from roofmodel.devices.calibration import Calibration, DeferredSets, Fitted, Sets, Timing, differences_of
from roofmodel.devices.parts import Level, Pipe

ATTAINABLE = 0.9
"""The fraction of the DRAM bandwidth that a kernel with any number of loads in flight reaches.

The mean over seven GPUs and five kernels is 0.89 (RRZE-HPC/gpu-benches@1038c5d0, gpu-stream, its highest rates).
"""
SHARPNESS = 4
"""Exponent p of the two limits together: rate^-p = dram^-p + in_flight^-p.

With p from 3 to 8, gpu-stream's rates with 128 to 2048 threads per SM on one of its seven GPUs predict those of another
one with a mean error of 15 to 16 %; equal fractions of the bandwidth have 34 %.
"""
RESIDENT_THREADS = {"7.5": 1024, "8.6": 1536, "8.7": 1536, "8.9": 1536, "12.0": 1536, "12.1": 1536}
"""Most threads of an SM by compute capability (CUDA C++ programming guide, technical specifications)."""
USUAL_RESIDENT_THREADS = 2048


class StreamingDevice(Protocol):
    """A device, as far as this module reads it."""

    @property
    def compute_capability(self) -> str | None: ...
    @property
    def multiprocessors(self) -> int | None: ...
    @property
    def clocks(self) -> Mapping[str, float]: ...
    @property
    def bandwidth(self) -> float: ...


def transferred_fraction(fraction: float, device: StreamingDevice, source: StreamingDevice) -> float:
    """The fraction of its DRAM bandwidth that a kernel reaches on `device`, from that on `source`.

    The same fraction, where the kernel is limited by the DRAM of `source`, or where a device's file lacks the number of
    SMs or the boost clock.
    """
    here, there = _threads_per_bandwidth(device), _threads_per_bandwidth(source)
    if not 0 < fraction < ATTAINABLE or not here or not there or here == there:
        return fraction
    dram = ATTAINABLE**-SHARPNESS
    in_flight = (fraction**-SHARPNESS - dram) * (here / there) ** -SHARPNESS
    return float((dram + in_flight) ** (-1 / SHARPNESS))


def _threads_per_bandwidth(device: StreamingDevice) -> float:
    """Resident threads of all SMs × clock / DRAM bandwidth: what the loads in flight can reach; 0 where it is unknown.

    The latency of DRAM is about as many clocks on all of them (gpu-latency of the same source: 434 to 689).
    """
    clock, capability = device.clocks.get("boost"), device.compute_capability or ""
    if device.multiprocessors is None or clock is None:
        return 0.0
    threads = RESIDENT_THREADS.get(capability, USUAL_RESIDENT_THREADS)
    return device.multiprocessors * threads * clock / device.bandwidth


KINDS = Calibration._fields[2:]
"""All kinds of parameter sets."""
LINKS_OF_MACHINES = ("pcie", "sockets", "network")
"""Keys of collective sets whose fit is to several machines with other GPUs. The interval is that of a machine which was
left out of the fit, so it holds for another device too."""
SPREADS = {"device": 0.08, "architecture": 0.25, "instructions": 0.35, "memory": 0.6}
"""The error of the parameters of another device, by how the two devices differ: another device, another architecture,
other tensor instructions, another kind of memory (HBM or GDDR). 80 % of the natural logarithms of measured / expected
are within this number. The errors are independent of each other and of the error of the fit, so that squares add.

`benchmarks/leave_one_out.py`: with these numbers, the intervals of measured devices that are predicted with the
parameters of another one contain 75 to 92 % of the measurements.
"""
TENSOR_INSTRUCTIONS = {
    "7": "mma.sync", "8": "mma.sync", "12": "mma.sync", "9": "wgmma", "10": "tcgen05", "11": "tcgen05",
}  # fmt: skip
"""The PTX instructions of the fastest 16-bit GEMMs by the major compute capability."""


class CalibratedDevice(StreamingDevice, Protocol):
    """A device, as far as the transfer of parameter sets needs it."""

    @property
    def id(self) -> str: ...
    @property
    def generation(self) -> str | None: ...
    @property
    def calibration(self) -> Calibration | None: ...
    @property
    def levels(self) -> Mapping[str, Level]: ...
    @property
    def pipes(self) -> Mapping[str, Pipe]: ...
    @property
    def reached(self) -> Mapping[tuple[str, str, str], float]:
        """(tensor pipe, benchmark, source) -> measured fraction of the peak."""


def transferred(device: CalibratedDevice, source: CalibratedDevice, kinds: tuple[str, ...] = KINDS) -> Calibration:
    """The parameter sets of `source`, as a device without measurements of its own uses them.

    Parameters are fractions of the datasheet's ceilings, or times. Where the same GEMM benchmark ran on both devices,
    their `pipe` is scaled (see `_peak_ratio`). `dram` of STREAMING kinds is scaled by the SMs per bandwidth. Where the
    source itself uses sets of another device, the differences of both transfers widen its interval, each of them once.
    """
    calibration = source.calibration
    assert calibration is not None
    changes = _Changes(device, source)
    sets = {kind: _transferred_sets(kind, getattr(calibration, kind), changes) for kind in kinds}
    return Calibration(calibration.device, {calibration.device: [kind for kind in kinds if sets[kind]]}, **sets)


def _spread(differences: frozenset[str]) -> float:
    """The error of a transfer between devices with these differences."""
    return hypot(*(SPREADS[name] for name in differences))


class _Changes(NamedTuple):
    """What changes from the device that was measured (`source`) to the one that was not (`device`)."""

    device: CalibratedDevice
    source: CalibratedDevice

    @property
    def other_instructions(self) -> bool:
        """Whether the two devices have different tensor instructions."""
        return _tensor_instructions(self.device) != _tensor_instructions(self.source)

    @property
    def differences(self) -> frozenset[str]:
        """Keys of SPREADS."""
        device, source = self.device, self.source
        other_memory = _memory_family(device) != _memory_family(source)
        same_generation = device.generation is not None and device.generation == source.generation
        if device.compute_capability == source.compute_capability or (same_generation and not other_memory):
            return frozenset({"device"})
        differences = {"architecture": True, "instructions": self.other_instructions, "memory": other_memory}
        return frozenset({"device", *(name for name, differs in differences.items() if differs)})


def _tensor_instructions(device: CalibratedDevice) -> str:
    """The tensor instructions of a device; its compute capability where they are not known."""
    capability = device.compute_capability or ""
    return TENSOR_INSTRUCTIONS.get(capability.partition(".")[0], capability)


def _memory_family(device: CalibratedDevice) -> str:
    """HBM, GDDR, LPDDR … of any generation; empty where the file does not state it."""
    memory = device.levels.get("dram")
    return (memory.kind or "").rstrip("0123456789EeXx") if memory else ""


def _peak_ratio(device: CalibratedDevice, source: CalibratedDevice) -> float:
    """The ratio of the fractions of peak that two devices reach in the benchmarks that ran on both; at most 1.

    The power limit causes it: a card with little power for its peak lowers its clock in GEMMs. All formats share the
    power limit, so the mean over formats is used for each of them.
    """
    device_fractions, source_fractions = device.reached, source.reached
    common = device_fractions.keys() & source_fractions.keys()
    ratios = [device_fractions[benchmark] / source_fractions[benchmark] for benchmark in common]
    return min(sum(ratios) / len(ratios), 1.0) if ratios else 1.0


def _transferred_sets(kind: str, sets: Sets[Any], changes: _Changes) -> Sets[Any]:
    """Another device's sets of a kind, with scaled parameters and wider intervals.

    The intervals of LINKS_OF_MACHINES stay as they are.
    """

    def one_set(form: str, fitted: Fitted[Any], peak_ratio: float, spread: float) -> Fitted[Any]:
        timing, fit = fitted
        scaled = _scaled(timing, kind, changes, peak_ratio)
        return Fitted(scaled, fit if form in LINKS_OF_MACHINES else fit.with_spread(spread))

    def read() -> tuple[Sets[Any], frozenset[str]]:
        applied, peak_ratio = differences_of(sets), _peak_ratio(changes.device, changes.source)
        remaining = _spread(changes.differences - applied)
        wider = {
            name: {form: one_set(form, fitted, peak_ratio, remaining) for form, fitted in forms.items()}
            for name, forms in sets.items()
        }
        return wider, changes.differences | applied

    return DeferredSets(read) if sets else sets


STREAMING = (
    "elementwise", "causal_convolution", "causal_convolution_update", "delta_rule_decode", "kda_decode",
    "kda_convolution_update",
)  # fmt: skip
"""Kinds of kernels that move data and compute little: their `dram` depends on the device's SMs."""


def _scaled(timing: Timing, kind: str, changes: _Changes, peak_ratio: float) -> Timing:
    """The parameters for the other device."""
    values = timing._asdict()
    if kind in STREAMING:
        return timing._replace(dram=transferred_fraction(values["dram"], changes.device, changes.source))
    pipes = {name: peak_ratio * value for name, value in values.items() if name.partition("_")[0] == "pipe"}
    return timing._replace(**pipes)
