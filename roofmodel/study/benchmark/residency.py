"""Which rows of a table may have their data in the L2 cache, because the benchmark repeats one operation."""

from __future__ import annotations

import numpy as np

from roofmodel.devices.device import Device
from roofmodel.prediction.formula import l2_bytes
from roofmodel.prediction.roofline import Placement
from roofmodel.study.benchmark.table import Array, RowGroup


def repeated(group: RowGroup) -> int:
    """1 where L2 may keep data from one launch to the next; 0 where the table says that the benchmark evicts them."""
    return int(group.l2 != "cold")


def least_seconds(group: RowGroup, placed: Placement, device: Device) -> Array:
    """The bound in seconds, without the DRAM time of rows whose data may be in L2."""
    resident = (np.asarray(placed.cost.bytes) <= l2_bytes(device)) & bool(repeated(group))
    least = np.maximum(placed.memory_seconds * ~resident, np.maximum(placed.compute_seconds, placed.link_seconds))
    return np.asarray(least)
