"""What the timing formulas need to know of a device: the ceilings that their parameters are relative to."""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.devices.device import Device

PORT = 64  # bytes a clock that a multiprocessor of NVIDIA's takes from L2, from Volta on


class Chip(NamedTuple):
    """A device as a kernel of one type sees it: base units, the datasheet's figures."""

    multiprocessors: int  # that it has
    peak: float  # FLOP/s of the pipe that multiplies
    bandwidth: float  # bytes per second of DRAM
    l2: float  # bytes that L2 holds; 0 where it is not known
    port: float  # bytes per second that all multiprocessors can take from L2: each 64 a clock, at boost


def chip(device: Device, dtype: str) -> Chip | None:
    """None where the file does not say how many multiprocessors there are, and at which clock. Raises WorkloadError for
    a lacking type."""
    clock = device.clocks.get("boost")
    if device.multiprocessors is None or clock is None:
        return None
    return Chip(
        multiprocessors=device.multiprocessors,
        peak=device.matmul_pipe(dtype).peak,
        bandwidth=device.bandwidth,
        l2=l2_bytes(device),
        port=device.multiprocessors * clock * PORT,
    )


def l2_bytes(device: Device) -> int:
    """The L2's capacity; 0 where it is not known."""
    capacity = device.levels["l2"].capacity if "l2" in device.levels else None
    return 0 if capacity is None else capacity
