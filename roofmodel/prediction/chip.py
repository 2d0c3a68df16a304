"""What the timing formulas need to know of a device: the ceilings that their parameters are relative to."""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.devices.device import Device


class Chip(NamedTuple):
    """A device as a kernel of one type sees it: base units, the datasheet's figures."""

    multiprocessors: int
    peak: float  # FLOP/s of the pipe that multiplies
    bandwidth: float  # bytes per second of DRAM
    l2: float  # bytes; 0 where it is not known


def chip(device: Device, dtype: str) -> Chip | None:
    """None where the file does not say how many multiprocessors there are. Raises WorkloadError for a lacking type."""
    if device.multiprocessors is None:
        return None
    return Chip(device.multiprocessors, device.matmul_pipe(dtype).peak, device.bandwidth, l2_bytes(device))


def l2_bytes(device: Device) -> int:
    """The L2's capacity; 0 where it is not known."""
    capacity = device.levels["l2"].capacity if "l2" in device.levels else None
    return 0 if capacity is None else capacity
