"""The roofline bound: the least time in which a device can execute a cost.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52(4), 2009: attainable = min(peak, bandwidth x intensity). As time:

    bound = max(matmul FLOPs / pipe's peak, vector FLOPs / CUDA-core peak, bytes / DRAM bandwidth, sent bytes / link)

No measured kernel can be faster, unless its data comes from a cache.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from roofmodel.counting.operator import Collective, Cost
from roofmodel.devices.device import Device
from roofmodel.numbers.algebra import Number, either, maximum, plain
from roofmodel.timing.links import link_bandwidth, tree_share


class Placement(NamedTuple):
    """A cost on a device: the time under each ceiling, and the bound, which is the longest of them; all in seconds."""

    cost: Cost
    matmul_seconds: Number
    vector_seconds: Number
    memory_seconds: Number
    link_seconds: Number
    bound_seconds: Number

    @property
    def compute_seconds(self) -> Number:
        """The longer of the matmul and the vector time."""
        return maximum(self.matmul_seconds, self.vector_seconds)

    @property
    def bound(self) -> Number:
        """The ceiling that limits: `compute`, `memory` or `communication`; an array of words for arrays."""
        on_gpu = either(self.compute_seconds > self.memory_seconds, "compute", "memory")
        return either(self.link_seconds > maximum(self.compute_seconds, self.memory_seconds), "communication", on_gpu)


def place(
    cost: Cost, device: Device, dtype: str, collective: Collective | None = None, several: bool = False
) -> Placement:
    """The cost under the device's ceilings.

    Sent bytes use the links of `collective`, or the link to a neighbor where there is none. Raises WorkloadError where
    the device has no pipe for `dtype`. `several` states that the cost is of several collectives: each uses a ring.
    """
    vector_pipe = device.vector_pipe(dtype)
    matmul = plain(cost.matmul_flops) / device.matmul_pipe(dtype).peak
    vector = plain(cost.vector_flops) / vector_pipe.peak if vector_pipe else 0.0
    memory = plain(cost.bytes) / device.bandwidth
    rate = link_bandwidth(collective, device)
    share = 1.0 if collective is None or several else tree_share(collective, device, plain(cost.link_bytes))
    link = 0.0 if rate is None else cost.link_bytes / rate * share
    return Placement(cost, matmul, vector, memory, link, reduce(maximum, (matmul, vector, memory, link)))


def ridge(device: Device, dtype: str) -> float:
    """The ridge point: the arithmetic intensity, in FLOP per byte, at which the peak meets the DRAM ceiling."""
    return device.matmul_pipe(dtype).peak / device.bandwidth
