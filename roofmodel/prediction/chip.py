"""Device figures that the timing formulas use: SMs, peak, DRAM bandwidth, L2 capacity and L2 port bandwidth."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from roofmodel.devices.device import Device

PORT = 64  # bytes per clock between L2 and one SM, on NVIDIA GPUs since Volta


class Chip(NamedTuple):
    """The figures of a device for kernels of one compute format, in base units, from the datasheet."""

    multiprocessors: Annotated[int, "number of SMs"]
    peak: Annotated[float, "peak of the pipe that multiplies, in FLOP/s"]
    bandwidth: Annotated[float, "DRAM bandwidth, in bytes per second"]
    l2: Annotated[float, "capacity of L2 in bytes; 0: unknown"]
    port: Annotated[
        float, "bandwidth from L2 to all SMs, in bytes per second: 64 bytes per clock and SM, at boost clock"
    ]


def chip(device: Device, dtype: str) -> Chip | None:
    """The figures for kernels of `dtype`; None where the device's file lacks the number of SMs or the boost clock.

    Raises WorkloadError where the device has no pipe for `dtype`.
    """
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
    """The capacity of L2 in bytes; 0 where it is unknown."""
    capacity = device.levels["l2"].capacity if "l2" in device.levels else None
    return 0 if capacity is None else capacity
