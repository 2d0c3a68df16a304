"""The pipes that kernels used."""

from __future__ import annotations

from collections.abc import Sequence

from roofmodel.devices.device import Device
from roofmodel.devices.parts import Pipe
from roofmodel.roofline import formats
from roofmodel.roofline.naming import anchor, auxiliary_role
from roofmodel.roofline.points import Point


def pipes_in_use(points: Sequence[Point], device: Device) -> list[Pipe]:
    """The pipes that points of single kernels used, by falling peak; all pipes of the device without points.

    If FLOPs of tensor cores were not counted, the names of GEMM kernels show which pipe was used. Kernels without FLOPs
    have the pipes of the formats in their names, or fp32.
    """
    drawn = [point for point in points if point.drawable]
    used = {device.pipes[point.pipe] for point in drawn if point.pipe}
    if points and not used:
        named = {formats.format_in_name(point.name) for point in points} & {*device.types}
        used = {device.matmul_pipe(name) for name in named if name}
        used = used or {pipe for name, pipe in device.pipes.items() if name == "fp32"}
    used = used or set(device.pipes.values())
    uncounted = [point.name for point in drawn if point.incomplete]
    if uncounted:
        format_names = {
            formats.format_in_name(name) or "fp16" for name in uncounted if anchor(name) and not auxiliary_role(name)
        } - {"fp32"}
        used |= {device.matmul_pipe(name) for name in format_names or {"fp16"} if name in device.types}
    return sorted(used, key=lambda pipe: -pipe.peak)
