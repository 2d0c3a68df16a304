"""Nsight Compute metric names: which are read, in which units, and the metric behind each label.

The details page prints labels instead of names; the names here are from Nsight Compute's section files.
"""

from __future__ import annotations

import re
from functools import cache

from roofmodel.profiles.ncu import metric_catalog

_METRICS_READ = re.compile(
    r"(derived__)?(sm|smsp)__sass_thread_inst_executed_op_[dfh](add|mul|fma)2?_pred_on(\.sum(\.per_second|\.per_cycle_elapsed)?|_x\d)$"
    r"|(sm|smsp)__ops_path_tensor_(?!\w*realtime)(op_\w+_)?src_\w+\.sum(\.per_second|\.per_cycle_elapsed)?$"
    r"|(sm|smsp)__inst_executed_pipe_tensor(_op_([hid]mma|gmma|hmma_type_hfma2))?(_subpipe_\w+)?(_v2)?\.sum(\.per_second|\.per_cycle_elapsed)?$"
    r"|(dram|lts__t|l1tex__t)_{1,2}(bytes|sectors)(_op)?(_read|_write)?\.sum(\.per_second)?$"
    r"|lts__lts2xbar_cycles_active\.sum|l1tex__lsu_writeback_active\w*\.sum"
    r"|gpu__time_(duration|active)\.(sum|avg|max|min)$"
    r"|(sm|smsp|gpc)__cycles_elapsed\.(avg|max)(\.per_second)?$"
    rf"|({re.escape(metric_catalog.OCCUPANCY)}|{re.escape(metric_catalog.REGISTERS)}|SM Frequency)$"
)

_DIAGNOSTIC = re.compile(
    r"launch__(sm_count|occupancy_limit_\w+)$|sm__maximum_warps_per_active_cycle_pct$|sm__cycles_active\.avg$"
    r"|(dram|lts|sm|gpu__dram)_{1,2}throughput\.avg\.pct_of_peak_sustained_elapsed$"
    r"|l1tex__throughput\.avg\.pct_of_peak_sustained_(active|elapsed)$"
    r"|smsp__issue_active\.avg\.pct_of_peak_sustained_(active|elapsed)$"
    r"|sm__(pipe_\w+_cycles_active|inst_executed_pipe_\w+)\.avg\.pct_of_peak_sustained_(active|elapsed)$"
    r"|(sm|smsp)__inst_executed\.sum$|smsp__thread_inst_executed_per_inst_executed\.ratio$"
    r"|l1tex__t_(sectors|requests)_pipe_lsu_mem_(global|local)_op_(ld|st|red|atom)\.sum$"
    r"|smsp__sass_average_data_bytes_per_sector_mem_global_op_(ld|st)\.ratio$"
    r"|(memory_l1_wavefronts_shared|derived__memory_l1_wavefronts_shared_excessive)$"
    r"|l1tex__data_bank_conflicts_pipe_lsu_mem_shared(_op_(ld|st|atom))?\.sum$"
    r"|l1tex__data_pipe_lsu_wavefronts_mem_shared\.sum$"
    r"|lts__d_atomic_input_cycles_active\.(avg|max)\.pct_of_peak_sustained_elapsed$"
    r"|smsp__average_warps_issue_stalled_(?!\w*not_issued)\w+_per_issue_active\.ratio$"
)


@cache
def is_interpreted(name: str) -> bool:
    """Whether `metrics.interpret` reads this metric."""
    return _METRICS_READ.match(name) is not None


def is_read(name: str) -> bool:
    """Whether this metric is stored: for `metrics.interpret`, or to explain why a kernel is slow."""
    return is_interpreted(name) or _DIAGNOSTIC.match(name) is not None


def dimension(name: str) -> str:
    """The dimension of a metric: 's', 'byte', 'byte/s', '/s', '%' or '' (a count), as `cell_values.parse_unit` does."""
    if name.startswith("gpu__time"):
        return "s"
    if name == "SM Frequency":
        return "/s"
    if ".pct" in name or name.endswith("_pct"):
        return "%"
    rate = "/s" if name.endswith("per_second") else ""
    return ("byte" if re.search(r"__(t_)?bytes|data_bytes", name) else "") + rate


_LABELS = {
    ("Duration", "s"): metric_catalog.DURATION,
    ("Registers Per Thread", ""): metric_catalog.REGISTERS,
    ("Achieved Occupancy", "%"): metric_catalog.OCCUPANCY,
    # Memory Throughput is a percentage in one section and dram__bytes.sum.per_second in another; the unit differs
    ("Memory Throughput", "byte/s"): f"{metric_catalog.DRAM}.sum.per_second",
    ("DRAM Bandwidth", "byte/s"): f"{metric_catalog.DRAM}.sum.per_second",
    # why a kernel is slow
    ("# SMs", ""): "launch__sm_count",
    ("Block Limit SM", ""): "launch__occupancy_limit_blocks",
    ("Block Limit Registers", ""): "launch__occupancy_limit_registers",
    ("Block Limit Shared Mem", ""): "launch__occupancy_limit_shared_mem",
    ("Block Limit Warps", ""): "launch__occupancy_limit_warps",
    ("Block Limit Barriers", ""): "launch__occupancy_limit_barriers",
    ("Theoretical Occupancy", "%"): "sm__maximum_warps_per_active_cycle_pct",
    ("Elapsed Cycles", ""): "sm__cycles_elapsed.max",
    ("SM Active Cycles", ""): "sm__cycles_active.avg",
    ("DRAM Throughput", "%"): "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    ("L2 Cache Throughput", "%"): "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    ("L1/TEX Cache Throughput", "%"): "l1tex__throughput.avg.pct_of_peak_sustained_active",
    ("Compute (SM) Throughput", "%"): "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ("One or More Eligible", "%"): "smsp__issue_active.avg.pct_of_peak_sustained_active",
    ("Avg. Active Threads Per Warp", ""): "smsp__thread_inst_executed_per_inst_executed.ratio",
}
_PER_CYCLE = re.compile(r"Predicated-On ([DFH](?:ADD|MUL|FMA)) Thread Instructions Executed Per Cycle\Z")
_IDENTIFIER = re.compile(r"\b\w+__[\w.]+")


def canonical(label: str, measured_in: str, section: str, item: str) -> str:
    """The metric name for a name or label of the details page.

    `measured_in` is the dimension of the cell, `section` and `item` are the columns Section Name and Body Item Label.
    An ambiguous label is returned unchanged, so it is not read.
    """
    if match := _IDENTIFIER.search(label):  # also "Duration (gpu__time_duration.sum)"
        return match.group()
    if match := _PER_CYCLE.match(label):
        return metric_catalog.OPERATION.format(unit="smsp", op=match.group(1).lower()) + ".sum.per_cycle_elapsed"
    if label == "SM Frequency":
        if item.endswith("Achieved Value"):
            return "smsp__cycles_elapsed.avg.per_second"
        return label if section.startswith("GPU Speed Of Light") and "Roofline" not in section else f"{section}/{label}"
    return _LABELS.get((label, measured_in), label)


def capability(text: str | None) -> str | None:
    """`8.0`, `80`, `sm_80`, `8,0` -> `8.0`; None for anything else."""
    match = re.fullmatch(r"(?:sm_|cc)?(\d{1,2})[.,]?(\d)[a-z]?", (text or "").strip().lower())
    return f"{int(match.group(1))}.{match.group(2)}" if match else None
