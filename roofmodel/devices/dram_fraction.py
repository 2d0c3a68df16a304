"""The fraction of the DRAM bandwidth that a kernel reaches on another device.

Two limits determine the rate at which a kernel streams data: the DRAM, of whose bandwidth no kernel reaches all, and
the loads that its threads keep in flight: by Little's law, bytes in flight / latency. The second limit grows with the
SMs and their clock, not with the bandwidth. So a kernel that leaves DRAM bandwidth unused reaches a larger fraction of
it on a device with more SMs per bandwidth, and a smaller fraction on a device with faster memory and the same SMs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

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
