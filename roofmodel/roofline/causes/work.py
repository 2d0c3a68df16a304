"""What the SMs compute: tensor cores, number formats, divergence."""

from __future__ import annotations

import math
import re

from roofmodel.devices.device import Device
from roofmodel.devices.occupancy import WARP
from roofmodel.numbers import units
from roofmodel.roofline.categories import category
from roofmodel.roofline.causes.rule import MATMULS, Removed
from roofmodel.roofline.formats import format_in_name
from roofmodel.roofline.launches import DRAM_REACHED, IMPOSSIBLE, Launch, Terms
from roofmodel.roofline.points import flops_by_pipe

FEW_FLOPS = 0.4  # of the peak: the pipes are busy with something else; sums without FMA reach half of it
ACTIVE_THREADS = "smsp__thread_inst_executed_per_inst_executed.ratio"
_FASTER = 1.1  # times the peak of the CUDA cores: GeForce's tensor cores are as fast in tf32 as fp32
_TENSOR = {"fp32": ("tensor_tf32", "tensor_fp16"), "fp16": ("tensor_fp16",), "fp64": ("tensor_fp64",)}
"""The tensor formats for the formats of CUDA cores, the closest one first."""
_LIBRARY_FP32 = re.compile(
    r"(?<![a-z0-9])sgemm|scudnn|_sgemm_|simt_s(gemm|fprop|dgrad|wgrad)|(gemm|fprop|dgrad|wgrad)_f32f32_f32f32_f32", re.I
)


def _tensor_pipe(device: Device, pipe: str) -> str | None:
    faster = (name for name in _TENSOR[pipe] if name in device.pipes)
    return next((name for name in faster if device.pipes[name].peak > _FASTER * device.pipes[pipe].peak), None)


def no_tensor_cores(launch: Launch, terms: Terms) -> Removed | None:
    """On tensor cores: the same share of their peak, the DRAM traffic, and casts where the format is narrower.

    A library's kernel of fp32 is known by its name; of another one, the FLOPs show that they are what it does.
    """
    device, flops, name = launch.device, flops_by_pipe(launch.kernel.flops), launch.kernel.name
    if category(name) not in MATMULS or device is None or device.vendor not in (None, "NVIDIA"):
        return None  # AMD's counters of fp32 include its matrix cores
    by_name = _LIBRARY_FP32.search(name) is not None
    vector = {pipe: flops.get(pipe) or 0.0 for pipe in _TENSOR}
    pipe = max(vector, key=lambda each: vector[each]) if any(vector.values()) else "fp32"
    tensor = _tensor_pipe(device, pipe) if pipe in device.pipes else None
    if tensor is None or any(value for each, value in flops.items() if each.startswith("tensor")):
        return None
    ratio = device.pipes[pipe].peak / device.pipes[tensor].peak
    work = vector[pipe] / launch.kernel.invocations
    if not work:
        text = f"fp32 on the CUDA cores, by its name; {tensor} has {1 / ratio:.1f} times the peak"
        removed = terms._replace(waiting=terms.waiting * ratio)
        return Removed(removed, text, known=False) if by_name else None
    share = work / device.pipes[pipe].peak / launch.seconds
    if share > IMPOSSIBLE or (share < FEW_FLOPS and not by_name):
        return None
    casts = _cast_seconds(launch, device) if tensor == "tensor_fp16" and pipe == "fp32" else 0.0
    text = (
        f"{units.si(work, 'FLOP')} on the CUDA cores in {pipe}: {units.seconds(launch.seconds * ratio)} at the same "
        f"share of the peak of {tensor}{f', and {units.seconds(casts)} for casts to fp16' if casts else ''}"
    )
    removed = terms.with_busy(sm=work / device.pipes[tensor].peak, l1=0.0, l2=0.0)
    return Removed(removed._replace(waiting=terms.waiting * ratio, gap=terms.gap + casts), text)


def _cast_seconds(launch: Launch, device: Device) -> float:
    """The time to read the operands in 4 bytes and write them in 2; of all tensors, where the operands are unknown."""
    call = launch.kernel.call
    operands = sum(math.prod(shape) for shape in call.shapes if len(shape) >= 2) if call else 0
    elements = operands or launch.bytes.get("dram", 0.0) / 4
    return 6 * elements / (device.bandwidth * DRAM_REACHED)


def unaligned(launch: Launch, terms: Terms) -> Removed | None:
    """With rows of a multiple of 16 bytes: the same FLOPs at the peak of the tensor cores, and the DRAM traffic.

    If FLOPs are unknown, the SMs are as busy as they are; without their utilization, the cost is unknown. Not for fp64,
    whose two elements are 16 bytes.
    """
    name, pipes = launch.kernel.name, launch.pipe_seconds
    tensor = {pipe: time for pipe, time in pipes.items() if pipe.startswith("tensor_") and pipe != "tensor_fp64"}
    match = re.search(r"align[a-c]?([12])(?!\d)", name)
    on_tensor_cores = tensor or (not pipes and "tensorop" in name and format_in_name(name) not in (None, "fp64"))
    if not on_tensor_cores or match is None or category(name) not in MATMULS:
        return None
    text = f"loads of {units.count(int(match[1]), 'element')} by the kernel's name: rows are not multiples of 16 bytes"
    if "sm" not in terms.busy and not tensor:
        return Removed(terms, text, known=False)
    removed = terms.with_busy(sm=max(tensor.values(), default=terms.busy.get("sm", 0.0)), l1=0.0, l2=0.0)
    if not {"l1", "l2"} & terms.busy.keys():  # the caches may be what warps wait for
        removed = removed._replace(waiting=min(removed.waiting, max(removed.busy.values())))
    return Removed(removed, text)


def double_precision(launch: Launch, terms: Terms) -> Removed | None:
    """In fp32: half the registers and moves, and the same FLOPs at the fp32 peak."""
    seconds, device = launch.pipe_seconds, launch.device
    wide = sum(seconds.get(pipe, 0.0) for pipe in ("fp64", "tensor_fp64"))
    if device is None or "sm" not in terms.busy or "fp32" not in device.pipes or wide < 0.2 * launch.seconds:
        return None
    work = sum(getattr(launch.kernel.flops, pipe) or 0 for pipe in ("fp64", "tensor_fp64")) / launch.kernel.invocations
    narrow = work / device.pipes["fp32"].peak
    text = (
        f"{units.si(work, 'FLOP')} in fp64 take {units.seconds(wide)}, in fp32 {units.seconds(narrow)}, if it suffices "
        "(a constant such as 0.5 is fp64, 0.5f is fp32)"
    )
    return Removed(terms.with_busy(sm=max(terms.busy["sm"] / 2, narrow)), text)


def divergence(launch: Launch, terms: Terms) -> Removed | None:
    """With all threads of a warp on the same path: active threads / those that the block has in its warps."""
    threads, lanes = launch.get(ACTIVE_THREADS), WARP * (launch.used_lanes or 1.0)
    if threads is None or not 0 < threads < 0.9 * lanes:
        return None
    of_warp = f"{units.significant(threads)} of {units.significant(lanes)} threads of a warp"
    text = f"{of_warp} execute an instruction on average"
    if "sm" not in terms.busy:
        return Removed(terms, text, known=False)
    return Removed(terms.with_busy(sm=terms.busy["sm"] * threads / lanes), text)
