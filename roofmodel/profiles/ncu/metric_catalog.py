"""Nsight Compute's metric names by compute capability: what the readers look for, and what to ask ncu to collect.

Each name was looked up in the metric tables that NVIDIA ships (`libnvperf_host`, CUDA 12.9 and 13.5), and
`tests/profiles/test_catalogue.py` looks them up again wherever that library is at hand. What a metric means, and how
several become FLOPs and bytes, is in `metrics.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

# The chips behind a compute capability, whose tables were read. Devices without DRAM of their own (Jetson, Thor,
# GB10) count no DRAM bytes and are left out. Blackwell Ultra is 10.3 by its chips' names, GB110 and GB112.
CHIPS: dict[str, tuple[str, ...]] = {
    "7.0": ("GV100",),
    "7.5": ("TU102", "TU104", "TU106"),  # TU116 and TU117, the GTX 16, have no tensor cores
    "8.0": ("GA100",),
    "8.6": ("GA102", "GA103", "GA104", "GA106", "GA107"),
    "8.9": ("AD102", "AD103", "AD104", "AD106", "AD107"),
    "9.0": ("GH100",),
    "10.0": ("GB100", "GB102"),
    "10.3": ("GB110", "GB112"),
    "12.0": ("GB202", "GB203", "GB205", "GB206", "GB207"),
}

DURATION = "gpu__time_duration.sum"
CYCLES, CLOCK = "sm__cycles_elapsed.avg", "sm__cycles_elapsed.avg.per_second"
REGISTERS = "launch__registers_per_thread"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
DRAM, L2, L1 = "dram__bytes", "lts__t_bytes", "l1tex__t_bytes"
TENSOR_INSTRUCTIONS = "{unit}__inst_executed_pipe_tensor"
TENSOR_OPERATIONS = "{unit}__ops_path_tensor_{of}"
OPERATION = "{unit}__sass_thread_inst_executed_op_{op}_pred_on"

# Vector operations: (add, multiply, multiply-add) of a pipe. Packed single precision does two lanes an instruction.
_LETTERS = {"fp64": "d", "fp32": "f", "fp16": "h"}
VECTOR = {pipe: (f"{letter}add", f"{letter}mul", f"{letter}fma") for pipe, letter in _LETTERS.items()}
PACKED_SINGLE = ("fadd2", "fmul2", "ffma2")
HAS_PACKED_SINGLE = ("10.0", "10.3")

# Source types of the tensor cores by compute capability ("8.9" before "8"), and the pipe they belong to.
HALF, _BRAIN, _TF32 = ("fp16_dst_fp16", "fp16_dst_fp32"), ("bf16_dst_fp32",), ("tf32_dst_fp32",)
_AMPERE = dict(tensor_fp16=HALF, tensor_bf16=_BRAIN, tensor_tf32=_TF32, tensor_fp64=("fp64",), tensor_int8=("int8",))
_SEPARATE = {**_AMPERE, "tensor_fp8": ("fp8_dst_fp16", "fp8_dst_fp32")}
TENSOR: dict[str, dict[str, tuple[str, ...]]] = {
    "7.0": dict(tensor_fp16=HALF),
    "7.5": dict(tensor_fp16=("fp16_bf16_tf32_dst_fp32", "fp16_dst_fp16"), tensor_int8=("int8",)),
    "8": _AMPERE,
    "8.9": {**_AMPERE, "tensor_fp8": ("fp8",)},
    "9": {**_AMPERE, "tensor_fp16": ("fp16",), "tensor_fp8": ("fp8",)},
    "10": {**_AMPERE, "tensor_fp8": ("fp4_fp6_fp8_dst_fp16", "fp4_fp6_fp8_dst_fp32")},  # inseparable there
    "10.3": _SEPARATE,
    "12": _SEPARATE,
}
TENSOR["11"] = TENSOR["10"]
PLACED = frozenset(part for types in TENSOR.values() for parts in types.values() for part in parts)

# Floats below 8 bits, which have no pipe of ours; nor have the small integers, which are read and not asked for.
_APART = ("fp4_dst_fp32", "fp4_fp6_dst_fp16", "fp4_fp6_dst_fp32")
SMALL_FLOATS: dict[str, tuple[str, ...]] = {"10": ("fp4_dst_fp32",), "10.3": _APART, "12": _APART}

# Instructions that do the work of a source type, where a total is not exported: (of one warp, of a group of warps).
INSTRUCTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "9": {"int8": ("imma", "igmma"), "": ("hmma", "hgmma")},
    "10": {"int8": ("imma", "utcimma"), "fp4_fp6_fp8": ("utcqmma",), "": ("hmma", "utchmma")},
    "10.3": {"int8": ("imma",), "fp8": ("utcqmma",), "": ("hmma", "utchmma")},
    "12": {"int8": ("imma",), "": ("hmma",)},
}
INSTRUCTIONS["11"] = INSTRUCTIONS["10"]

_Row = TypeVar("_Row")


def row(table: Mapping[str, _Row], generation: str | None, absent: _Row) -> _Row:
    """A table's row for a compute capability: its own, or that of its major version; `absent` if it has neither."""
    major = (generation or "").partition(".")[0]
    return table.get(generation or "", table.get(major, absent))


def tensor_operations(generation: str | None) -> tuple[str, ...]:
    """The metrics that count all tensor operations of a compute capability; none where it is not known."""
    return tuple(_source(part) for parts in row(TENSOR, generation, {}).values() for part in parts)


class Group(NamedTuple):
    """Metrics that are collected together, what they give, and why they are needed."""

    what: str
    metrics: tuple[str, ...]
    why: str


def collection(generation: str) -> tuple[Group, ...]:
    """All that the readers need of a launch on a device of `CHIPS`, and nothing else.

    Totals only: their parts (sparse and dense, by instruction) would be counted twice and cost further passes.
    """
    vector = [op for ops in VECTOR.values() for op in ops]
    weights = "add + mul + 2 × fma of threads whose predicate is true; a packed half instruction does two lanes"
    if generation in HAS_PACKED_SINGLE:
        vector += PACKED_SINGLE
        weights += ", and so do fadd2, fmul2 and ffma2, which only this generation has"
    tensor = [*tensor_operations(generation), *map(_source, row(SMALL_FLOATS, generation, ()))]
    operations = "operations by type, 2 a multiply-add, which fma counters miss; since Nsight Compute 2023.2"
    if generation == "7.0":
        tensor.append(TENSOR_INSTRUCTIONS.format(unit="sm") + ".sum")
        operations += "; before it, 512 an instruction"
    return (
        Group("vector FLOPs", tuple(OPERATION.format(unit="smsp", op=op) + ".sum" for op in vector), weights),
        Group("tensor FLOPs", tuple(tensor), operations),
        Group("DRAM bytes", (f"{DRAM}.sum",), "reads and writes of device memory: the roofline's own level"),
        Group("L2 bytes", (f"{L2}.sum",), "requests of all clients of L2; the charts' lts2xbar is another quantity"),
        Group("L1 bytes", (f"{L1}.sum",), "requests to L1; the charts' lsu_writeback is another quantity"),
        Group("time", (DURATION,), "without a time there is no FLOP/s"),
        Group("clock", (CYCLES, CLOCK), "at which clock it ran, so that the roofs can be compared at the same"),
        Group("occupancy", (REGISTERS, OCCUPANCY), "registers and active warps: why a point stays below its roof"),
    )


def _source(part: str) -> str:
    return TENSOR_OPERATIONS.format(unit="sm", of=f"src_{part}") + ".sum"
