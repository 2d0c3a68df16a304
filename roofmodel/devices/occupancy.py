"""The thread blocks that an SM holds at once, by the rules of NVIDIA's occupancy calculator."""

import math
from typing import NamedTuple

WARP = 32  # threads
REGISTERS = 65536  # of an SM
_REGISTER_UNIT = 256  # registers, in which a warp gets them


class Multiprocessor(NamedTuple):
    """What an SM of a compute capability holds at most."""

    warps: int
    blocks: int
    shared_bytes: int


_KIB = 1024
_HOPPER, _SMALL_BLACKWELL = Multiprocessor(64, 32, 228 * _KIB), Multiprocessor(48, 24, 100 * _KIB)
MULTIPROCESSORS = {
    "5.0": Multiprocessor(64, 32, 64 * _KIB),
    "5.2": Multiprocessor(64, 32, 96 * _KIB),
    "5.3": Multiprocessor(64, 32, 64 * _KIB),
    "6.0": Multiprocessor(64, 32, 64 * _KIB),
    "6.1": Multiprocessor(64, 32, 96 * _KIB),
    "6.2": Multiprocessor(64, 32, 64 * _KIB),
    "7.0": Multiprocessor(64, 32, 96 * _KIB),
    "7.2": Multiprocessor(64, 32, 96 * _KIB),
    "7.5": Multiprocessor(32, 16, 64 * _KIB),
    "8.0": Multiprocessor(64, 32, 164 * _KIB),
    "8.6": Multiprocessor(48, 16, 100 * _KIB),
    "8.7": Multiprocessor(48, 16, 164 * _KIB),
    "8.9": Multiprocessor(48, 24, 100 * _KIB),
    "9.0": _HOPPER,
    "10.0": _HOPPER,
    "10.3": _HOPPER,
    "11.0": Multiprocessor(48, 24, 228 * _KIB),
    "12.0": _SMALL_BLACKWELL,
    "12.1": _SMALL_BLACKWELL,
}
"""By compute capability: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""


class BlockLimits(NamedTuple):
    """The thread blocks that fit into an SM by each of its resources; names as in `roofline.reasons`."""

    warps: int
    block_size: int
    registers: int
    shared_memory: int


def block_limits(compute_capability: str, threads: int, registers: int, shared_bytes: int) -> BlockLimits | None:
    """The limits of a kernel; None for a compute capability that is not in the table, and for a block that never fits.

    `threads`, and `shared_bytes` (static and dynamic, without what the driver reserves), are of a block, `registers` of
    a thread. L1 and shared memory use one memory: the driver gives a kernel as much shared memory as its blocks need,
    so the largest size counts. Barriers and clusters may limit a kernel further.

    Source: cuda_occupancy.h of CUDA 13. A warp gets registers in units of 256 from its quarter of the SM (6.0: half).
    A block gets shared memory in units of 256 bytes, from 8.0 on of 128 bytes and 1 KiB more.
    """
    if compute_capability not in MULTIPROCESSORS:
        return None
    sm, major = MULTIPROCESSORS[compute_capability], int(compute_capability.partition(".")[0])
    warps = math.ceil(threads / WARP)
    parts = 2 if compute_capability == "6.0" else 4
    of_warp = _rounded_up(max(registers, 1) * WARP, _REGISTER_UNIT)
    reserved, unit = (_KIB, 128) if major >= 8 else (0, 256)
    of_block = _rounded_up(shared_bytes + reserved, unit)
    limits = BlockLimits(
        warps=sm.warps // warps,
        block_size=sm.blocks,
        registers=REGISTERS // parts // of_warp * parts // warps,
        shared_memory=sm.shared_bytes // of_block if of_block else sm.blocks,
    )
    return limits if min(limits) else None


def theoretical_occupancy(compute_capability: str, threads: int, limits: BlockLimits) -> float:
    """Resident warps / those that an SM holds at most."""
    return min(limits) * math.ceil(threads / WARP) / MULTIPROCESSORS[compute_capability].warps


def _rounded_up(number: int, unit: int) -> int:
    return math.ceil(number / unit) * unit
