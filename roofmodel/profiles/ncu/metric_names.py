"""What Nsight Compute calls a metric: which names are read, their units, and the names behind labels.

The details page prints labels; what the section files put under each is its name here.
"""

from __future__ import annotations

import re

from roofmodel.profiles.ncu import metric_catalog

_WANTED = re.compile(
    r"(derived__)?(sm|smsp)__sass_thread_inst_executed_op_[dfh](add|mul|fma)2?_pred_on(\.sum(\.per_second|\.per_cycle_elapsed)?|_x\d)$"
    r"|(sm|smsp)__ops_path_tensor_(?!\w*realtime)(op_\w+_)?src_\w+\.sum(\.per_second|\.per_cycle_elapsed)?$"
    r"|(sm|smsp)__inst_executed_pipe_tensor(_op_([hid]mma|gmma|hmma_type_hfma2))?(_subpipe_\w+)?(_v2)?\.sum(\.per_second|\.per_cycle_elapsed)?$"
    r"|(dram|lts__t|l1tex__t)_{1,2}(bytes|sectors)(_op)?(_read|_write)?\.sum(\.per_second)?$"
    r"|lts__lts2xbar_cycles_active\.sum|l1tex__lsu_writeback_active\w*\.sum"
    r"|gpu__time_(duration|active)\.(sum|avg|max|min)$"
    r"|(sm|smsp|gpc)__cycles_elapsed\.(avg|max)(\.per_second)?$"
    r"|sm__warps_active\.avg\.pct_of_peak_sustained_active$|launch__registers_per_thread$|SM Frequency$"
)


def wanted(name: str) -> bool:
    """Whether a metric is one that `metrics.interpret` reads; the others need not be kept."""
    return _WANTED.match(name) is not None


def dimension(name: str) -> str:
    """What unit a metric's value is in: 's', 'byte', 'byte/s', '/s', '%' or '' (a count), as `cells.unit` says it."""
    if name.startswith("gpu__time"):
        return "s"
    if name == "SM Frequency":
        return "/s"
    if ".pct" in name:
        return "%"
    rate = "/s" if name.endswith("per_second") else ""
    return ("byte" if "__bytes" in name or "__t_bytes" in name else "") + rate


_LABELS = {
    ("Duration", "s"): metric_catalog.DURATION,
    ("Registers Per Thread", ""): metric_catalog.REGISTERS,
    ("Achieved Occupancy", "%"): metric_catalog.OCCUPANCY,
    # Memory Throughput is a share of the peak in one section and dram__bytes.sum.per_second in another: the unit tells
    ("Memory Throughput", "byte/s"): f"{metric_catalog.DRAM}.sum.per_second",
    ("DRAM Bandwidth", "byte/s"): f"{metric_catalog.DRAM}.sum.per_second",
}
_PER_CYCLE = re.compile(r"Predicated-On ([DFH](?:ADD|MUL|FMA)) Thread Instructions Executed Per Cycle\Z")
_IDENTIFIER = re.compile(r"\b\w+__[\w.]+")


def canonical(label: str, measured_in: str, section: str, item: str) -> str:
    """The metric behind what the details page prints: itself, or what the section files put under that label.

    `measured_in` is the dimension of the cell, `section` and `item` the columns Section Name and Body Item Label.
    A label that is ambiguous stays as it is, and so is not read.
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
    """`8.0`, `80`, `sm_80`, `8,0` -> `8.0`; None for what is no compute capability."""
    match = re.fullmatch(r"(?:sm_|cc)?(\d{1,2})[.,]?(\d)[a-z]?", (text or "").strip().lower())
    return f"{int(match.group(1))}.{match.group(2)}" if match else None
