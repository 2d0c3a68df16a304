"""The roofline: the least time that a cost can take on a device.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52(4), 2009: attainable = min(peak, bandwidth x intensity). As time:

    bound = max(matmul FLOPs / pipe's peak, vector FLOPs / CUDA-core peak, bytes / DRAM bandwidth, sent bytes / link)

No measured kernel may beat it, unless its data comes from a cache.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from roofmodel.algebra import Number, either, maximum, plain
from roofmodel.counting.collective import Collective
from roofmodel.counting.operator import Cost
from roofmodel.devices.device import Device
from roofmodel.prediction.links import link_bandwidth


class Placement(NamedTuple):
    """A cost on a device: the time each roof asks for, in seconds, and the bound, the longest of them."""

    cost: Cost
    matmul_seconds: Number
    vector_seconds: Number
    memory_seconds: Number
    link_seconds: Number
    bound_seconds: Number

    @property
    def compute_seconds(self) -> Number:
        return maximum(self.matmul_seconds, self.vector_seconds)

    @property
    def bound(self) -> Number:
        """Which roof binds, as a word: `compute`, `memory`, or `communication`; a word each for arrays."""
        nearer = either(self.compute_seconds > self.memory_seconds, "compute", "memory")
        return either(self.link_seconds > maximum(self.compute_seconds, self.memory_seconds), "communication", nearer)


def place(cost: Cost, device: Device, dtype: str, collective: Collective | None = None) -> Placement:
    """The cost under the device's roofs; what is sent goes the way of a `collective`, or else to a neighbour.

    Raises WorkloadError where the device lacks the type.
    """
    vector_pipe = device.vector_pipe(dtype)
    matmul = plain(cost.matmul_flops) / device.matmul_pipe(dtype).peak
    vector = plain(cost.vector_flops) / vector_pipe.peak if vector_pipe else 0.0
    memory = plain(cost.bytes) / device.bandwidth
    rate = link_bandwidth(collective, device)
    link = 0.0 if rate is None else cost.link_bytes / rate
    return Placement(cost, matmul, vector, memory, link, reduce(maximum, (matmul, vector, memory, link)))


def ridge(device: Device, dtype: str) -> float:
    """The intensity, in FLOP per byte, at which the matmul roof meets the DRAM roof."""
    return device.matmul_pipe(dtype).peak / device.bandwidth
