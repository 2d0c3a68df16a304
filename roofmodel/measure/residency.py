"""Which rows of a table may have their data in the L2 cache, because the benchmark repeats one operation."""

from __future__ import annotations

import numpy as np

from roofmodel.devices.device import Device
from roofmodel.engines.engine import Benchmark
from roofmodel.measure.operations import OPERATIONS
from roofmodel.measure.table import Array, RowGroup
from roofmodel.numbers.algebra import Number
from roofmodel.timing.formula import chip, dram_share, l2_bytes
from roofmodel.timing.roofline import Placement
from roofmodel.timing.timing import gemm_work


def repeated(group: RowGroup) -> int:
    """1 where L2 may keep data from one launch to the next; 0 where the table says that the benchmark evicts them."""
    return int(group.l2 != "cold")


def copies(group: RowGroup, device: Device) -> tuple[Number, Number]:
    """How many copies of A and B a GEMM benchmark uses in turn."""
    work, benchmark = gemm_work(group.operator, group.compute), group.benchmark if group.op == "gemm" else Benchmark()
    if group.l2 == "warm" or work is None:
        return 1, 1
    of_a, of_b = benchmark.gemm_copies
    stored = group.operator.widths.format(group.operator.lines[0].factors[1])
    if stored.name in benchmark.single_weights:
        return of_a, 1
    if benchmark.fills_l2:
        return of_a, np.clip(np.ceil(l2_bytes(device) / (work.n * work.k * stored.bits / 8)), 1, of_b)
    return of_a, of_b


def least_seconds(group: RowGroup, placed: Placement, device: Device) -> Array:
    """The bound in seconds, without the DRAM time of data that may be in L2."""
    if OPERATIONS[group.op].warm and repeated(group):
        return _least_from_l2(placed, device, group.compute)
    streamed = 1 - repeated(group) * (1 - dram_share(np.asarray(placed.cost.bytes, dtype=float), l2_bytes(device)))
    least = np.maximum(placed.memory_seconds * streamed, np.maximum(placed.compute_seconds, placed.link_seconds))
    return np.asarray(least)


def _least_from_l2(placed: Placement, device: Device, dtype: str) -> Array:
    """The bound in seconds of a call that is repeated on the same operands.

    Only the bytes that L2 cannot hold come from DRAM, and a state is written where it was read. All bytes pass the
    ports between L2 and the SMs.
    """
    data, repeated_bytes = (np.asarray(b, dtype=float) for b in (placed.cost.bytes, _larger_direction(placed)))
    missing = data * np.maximum(1 - l2_bytes(device) / repeated_bytes, 0)
    ceilings = chip(device, dtype)
    ports = data / ceilings.port if ceilings else 0.0
    return np.asarray(np.maximum(np.maximum(placed.compute_seconds, missing / device.bandwidth), ports))


def _larger_direction(placed: Placement) -> Array:
    return np.asarray(np.maximum(placed.cost.bytes_read, placed.cost.bytes_written))
