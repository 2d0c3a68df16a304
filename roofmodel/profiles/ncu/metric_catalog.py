"""Nsight Compute metric names by compute capability: those that the readers use and that ncu is asked to collect.

The names are from the metric tables that NVIDIA ships (`libnvperf_host`, CUDA 12.9 and 13.5);
`tests/profiles/ncu/test_metric_catalog.py` checks them where that library is installed. `metrics.py` computes FLOPs
and bytes from these metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

# Chips of each compute capability whose tables were checked. Devices without dedicated DRAM (Jetson, Thor, GB10) have
# no DRAM counters and are excluded. Blackwell Ultra is 10.3, according to its chip names GB110 and GB112.
CHIPS: dict[str, tuple[str, ...]] = {
    "7.0": ("GV100",),
    "7.5": ("TU102", "TU104", "TU106"),  # TU116 and TU117 (GTX 16) have no tensor cores
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

# Vector operations (add, multiply, multiply-add) by pipe. Packed single precision: two lanes per instruction.
_LETTERS = {"fp64": "d", "fp32": "f", "fp16": "h"}
VECTOR = {pipe: (f"{letter}add", f"{letter}mul", f"{letter}fma") for pipe, letter in _LETTERS.items()}
PACKED_SINGLE = ("fadd2", "fmul2", "ffma2")
HAS_PACKED_SINGLE = ("10.0", "10.3")

# Tensor-core source types by compute capability ("8.9" before "8") and pipe.
FP16_SOURCES, _BF16_SOURCES, _TF32_SOURCES = ("fp16_dst_fp16", "fp16_dst_fp32"), ("bf16_dst_fp32",), ("tf32_dst_fp32",)
_AMPERE = dict(
    tensor_fp16=FP16_SOURCES,
    tensor_bf16=_BF16_SOURCES,
    tensor_tf32=_TF32_SOURCES,
    tensor_fp64=("fp64",),
    tensor_int8=("int8",),
)
_SEPARATE = {**_AMPERE, "tensor_fp8": ("fp8_dst_fp16", "fp8_dst_fp32")}
TENSOR: dict[str, dict[str, tuple[str, ...]]] = {
    "7.0": dict(tensor_fp16=FP16_SOURCES),
    "7.5": dict(tensor_fp16=("fp16_bf16_tf32_dst_fp32", "fp16_dst_fp16"), tensor_int8=("int8",)),
    "8": _AMPERE,
    "8.9": {**_AMPERE, "tensor_fp8": ("fp8",)},
    "9": {**_AMPERE, "tensor_fp16": ("fp16",), "tensor_fp8": ("fp8",)},
    "10": {
        **_AMPERE,
        "tensor_fp8": ("fp4_fp6_fp8_dst_fp16", "fp4_fp6_fp8_dst_fp32"),
    },  # one counter for fp4, fp6 and fp8
    "10.3": _SEPARATE,
    "12": _SEPARATE,
}
TENSOR["11"] = TENSOR["10"]
ASSIGNED_SOURCES = frozenset(part for types in TENSOR.values() for parts in types.values() for part in parts)

# Floats below 8 bits: they are collected, but `Flops` has no pipe for them. (Integers below 8 bits: not collected.)
_UNASSIGNED = ("fp4_dst_fp32", "fp4_fp6_dst_fp16", "fp4_fp6_dst_fp32")
SMALL_FLOATS: dict[str, tuple[str, ...]] = {"10": ("fp4_dst_fp32",), "10.3": _UNASSIGNED, "12": _UNASSIGNED}

# Instructions that process a source type, for exports without a total: (of a warp, of a warpgroup).
INSTRUCTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "9": {"int8": ("imma", "igmma"), "": ("hmma", "hgmma")},
    "10": {"int8": ("imma", "utcimma"), "fp4_fp6_fp8": ("utcqmma",), "": ("hmma", "utchmma")},
    "10.3": {"int8": ("imma",), "fp8": ("utcqmma",), "": ("hmma", "utchmma")},
    "12": {"int8": ("imma",), "": ("hmma",)},
}
INSTRUCTIONS["11"] = INSTRUCTIONS["10"]

_Row = TypeVar("_Row")


def row(table: Mapping[str, _Row], generation: str | None, absent: _Row) -> _Row:
    """A table's row for a compute capability or else for its major version; `absent` if the table has neither."""
    major = (generation or "").partition(".")[0]
    return table.get(generation or "", table.get(major, absent))


def tensor_operations(generation: str | None) -> tuple[str, ...]:
    """The metrics that count all tensor operations of a compute capability; empty if it is unknown."""
    return tuple(_source(part) for parts in row(TENSOR, generation, {}).values() for part in parts)


class MetricGroup(NamedTuple):
    """Metrics collected for one quantity, and the reason."""

    quantity: str
    metrics: tuple[str, ...]
    why: str


def collection(generation: str) -> tuple[MetricGroup, ...]:
    """The metrics that the readers need for a compute capability of `CHIPS`.

    Totals only: their parts (sparse and dense, by instruction) would cost further replay passes.
    """
    vector = [op for ops in VECTOR.values() for op in ops]
    weights = (
        "add + mul + 2 × fma over threads with a true predicate; packed half-precision instructions count two lanes"
    )
    if generation in HAS_PACKED_SINGLE:
        vector += PACKED_SINGLE
        weights += ", and so do fadd2, fmul2 and ffma2 (this generation only)"
    tensor = [*tensor_operations(generation), *map(_source, row(SMALL_FLOATS, generation, ()))]
    operations = "operations by type (multiply-add = 2), not included in the fma counters; since Nsight Compute 2023.2"
    if generation == "7.0":
        tensor.append(TENSOR_INSTRUCTIONS.format(unit="sm") + ".sum")
        operations += "; in older versions, 512 per instruction"
    return (
        MetricGroup("vector FLOPs", tuple(OPERATION.format(unit="smsp", op=op) + ".sum" for op in vector), weights),
        MetricGroup("tensor FLOPs", tuple(tensor), operations),
        MetricGroup("DRAM bytes", (f"{DRAM}.sum",), "reads and writes of device memory: the main roofline level"),
        MetricGroup(
            "L2 bytes",
            (f"{L2}.sum",),
            "requests of all L2 clients; lts2xbar of the roofline charts is a different quantity",
        ),
        MetricGroup(
            "L1 bytes", (f"{L1}.sum",), "requests to L1; lsu_writeback of the roofline charts is a different quantity"
        ),
        MetricGroup("time", (DURATION,), "needed for FLOP/s and bytes/s"),
        MetricGroup("clock", (CYCLES, CLOCK), "the actual SM clock, so that ceilings are compared at the same clock"),
        MetricGroup(
            "occupancy", (REGISTERS, OCCUPANCY), "registers and active warps: a reason for points below the ceiling"
        ),
    )


class MetricSection(NamedTuple):
    """A section of Nsight Compute, whose metrics it names itself on each chip."""

    name: str
    metrics: tuple[str, ...]  # of those that the reasons for a kernel's time need
    why: str


_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_OP = "l1tex__t_{what}_pipe_lsu_mem_{where}_op_{op}.sum"
SECTIONS = (
    MetricSection(
        "SpeedOfLight", (f"sm__throughput{_ELAPSED}", f"lts__throughput{_ELAPSED}", "sm__cycles_active.avg"),
        "how busy the SMs, L1, L2 and DRAM are: memory or compute",
    ),
    MetricSection(
        "Occupancy",
        tuple(f"launch__occupancy_limit_{name}" for name in ("registers", "shared_mem", "blocks", "warps")),
        "what limits the thread blocks of an SM",
    ),
    MetricSection("LaunchStats", ("launch__sm_count",), "grid, blocks, registers and waves"),
    MetricSection(
        "WarpStateStats", ("smsp__thread_inst_executed_per_inst_executed.ratio",),
        "what warps wait for, and the active threads of a warp",
    ),
)  # fmt: skip
"""The sections that tell memory, compute, occupancy and stalls apart."""
PIPES = MetricSection("ComputeWorkloadAnalysis", (), "each pipe by name: FP64, ALU, FMA, XU, LSU, tensor")


def diagnosis() -> tuple[MetricGroup, ...]:
    """The metrics that the reasons for a kernel's time need besides SECTIONS; the same on all chips of `CHIPS`."""
    both = ("ld", "st")
    return (
        MetricGroup(
            "memory accesses",
            (
                *(_OP.format(what="sectors", where=where, op=op) for where in ("global", "local") for op in both),
                *(_OP.format(what="requests", where="global", op=op) for op in both),
                *(f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.ratio" for op in both),
            ),
            "uncoalesced accesses, partial sectors, local memory (spills)",
        ),
        MetricGroup(
            "bank conflicts",
            (
                *(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in (*both, "atom")),
                "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
            ),
            "conflicts in shared memory, and all of its wavefronts",
        ),
        MetricGroup(
            "atomics",
            tuple(f"lts__d_atomic_input_cycles_active.{which}{_ELAPSED[4:]}" for which in ("avg", "max")),
            "whether atomics keep one slice of L2 busy",
        ),
        MetricGroup(
            "instructions", ("smsp__inst_executed.sum", "smsp__issue_active.avg.pct_of_peak_sustained_active"),
            "warp instructions, and how often one is issued",
        ),
    )  # fmt: skip


def _source(part: str) -> str:
    return TENSOR_OPERATIONS.format(unit="sm", of=f"src_{part}") + ".sum"
