"""How long it takes to move data: elementwise work, norms, softmax, lookups, copies.

    latency + max(bytes / bandwidth, vector FLOPs / CUDA-core peak)

at the part of the DRAM bandwidth that such kernels reach, or at L2's where all of the data fits there and the kernel
before has just written it.
"""

from __future__ import annotations

from roofmodel.algebra import Number, formula, maximum, part
from roofmodel.devices.calibration import StreamTiming
from roofmodel.prediction.chip import Chip


@formula
def seconds(data: Number, compute_seconds: Number, chip: Chip, timing: StreamTiming) -> Number:
    """Seconds for `data` bytes read and written, and the bound of the arithmetic; elementwise for arrays."""
    fits = data <= chip.l2
    bandwidth = part("rate", timing.l2 * chip.port * fits + timing.dram * chip.bandwidth * (1 - fits), "B/s")
    return timing.latency + maximum(data / bandwidth, compute_seconds)
