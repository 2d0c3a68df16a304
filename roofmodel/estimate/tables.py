"""The tables of an estimate: their columns, and the lines of a phase for the terminal and for Markdown."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from roofmodel.counting.operator import Cost
from roofmodel.estimate.rows import OperatorRow, full_label, replica_rows, rows
from roofmodel.numbers.algebra import plain
from roofmodel.report.operator_names import kind, title
from roofmodel.report.table import (
    BAR,
    BYTES,
    COUNT,
    FINE_PERCENT,
    FLOP,
    MEMORY,
    NUMBER,
    PERCENT,
    SECONDS,
    Cell,
    Column,
    Table,
    joined,
)
from roofmodel.steps.estimate import Estimate
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.placed import Placed

GEMM_SIZES = ("batch", "m", "n", "k")


def _gemm(placed: Placed) -> dict[str, Any] | None:
    gemm = placed.operator.gemm
    return gemm and {side: plain(size) for side, size in gemm._asdict().items()}


def _layers(placed: Placed) -> list[int] | None:
    layers = placed.operator.layers
    return None if layers is None else list(layers)


OPERATORS = Table(
    "ops",
    (
        Column("name", value="operator.name", meaning="the operator, such as `mlp.up`"),
        Column(
            "stage",
            value=lambda row: row.operator.stage or None,
            meaning="the part of a training step or of a pass in several parts; null for a pass in one part",
        ),
        Column("group", value="operator.group", meaning="the part of the model, such as `attention`"),
        Column(
            "layers", only="json", value=_layers, meaning="the layers that contain the operator; null outside layers"
        ),
        Column(
            "count",
            value="operator.count",
            meaning="the number of occurrences; the other values of the row are for one occurrence",
        ),
        Column("kind", value="operator.kind", meaning="the kind of kernel"),
        Column("spec", value="operator.spec", meaning="the operator's line, from which its numbers follow"),
        Column(
            "gemm",
            only="json",
            value=_gemm,
            meaning="`batch` GEMMs of m × k by k × n (`batch`, `m`, `n`, `k`); null for other operators",
        ),
        Column("matmul_flops", value="placement.cost.matmul_flops", meaning="FLOPs of matrix multiplications"),
        Column("vector_flops", value="placement.cost.vector_flops", meaning="all other FLOPs"),
        Column(
            "bytes_read",
            value="placement.cost.bytes_read",
            meaning="compulsory DRAM traffic: the tensors that the operator reads",
        ),
        Column(
            "bytes_written",
            value="placement.cost.bytes_written",
            meaning="compulsory DRAM traffic: the tensors that it writes",
        ),
        Column(
            "link_bytes",
            value="placement.cost.link_bytes",
            meaning="for a collective, the bytes through a GPU's link in each direction",
        ),
        Column("intensity", value="placement.cost.intensity", meaning="all FLOPs / all bytes"),
        Column("bound", value="placement.bound", meaning="the limiting ceiling"),
        Column("bound_seconds", value="placement.bound_seconds", meaning="the least time at the device's ceilings"),
        Column(
            "expected_seconds",
            value="expected.value",
            meaning="the expected time; null on a device without a timing model",
        ),
        Column(
            "implementation",
            value="run.implementation",
            meaning="the kernel whose parameters gave the expected time; null if none",
        ),
        Column(
            "expected_from",
            value="run.evidence",
            meaning="`measured` (parameters of this device, implementation and format), `borrowed` (other ones), "
            "`bound` (none)",
        ),
        Column(
            "fused",
            value="is_fused",
            meaning="whether the expected time is a share of a fused kernel's, below the operator's own bound",
        ),
        Column("gemm", only="csv", value=_gemm, flat=GEMM_SIZES, meaning="the sizes of the GEMMs"),
        Column("layers", only="csv", value=_layers, flat=joined(" "), meaning="as in JSON, as text"),
    ),
)
"""A row for one occurrence of each operator (Placed). Sizes of decodes are means over all decodes: not always whole."""

MEMORY_OF_A_GPU = Table(
    "memory",
    (
        Column("weights", "weights", MEMORY, meaning="bytes of the weights in their format"),
        Column("kv_cache", "KV cache", MEMORY, meaning="bytes of the KV cache and of recurrent states"),
        Column(
            "activations", "activations", MEMORY, meaning="bytes of the activations that are alive at the same time"
        ),
        Column("gradients", "gradients", MEMORY, meaning="in training: bytes of the gradients"),
        Column("optimizer", "optimizer", MEMORY, meaning="in training: bytes of the optimizer's state"),
        Column("kept_activations", value="kept", meaning="the part of `activations` that the backward pass needs"),
        Column("total", "total", MEMORY, meaning="the sum at the peak over the phases shown"),
    ),
)
"""One row (Memory)."""


# --- The table of a phase -------------------------------------------------------------------------


class EstimateLine(NamedTuple):
    """A line of the table of a phase; what a line does not have is empty or None."""

    label: str
    letter: str = ""  # in the chart
    times: int | None = None  # occurrences
    cost: Cost | None = None
    bound: str = ""
    seconds: float | None = None
    share: float | None = None  # of the phase's bound
    length: float = 0  # of the share's bar, from 0 to 1
    expected: float | None = None
    color: str = ""  # of the label and of the share
    bold: bool = False


STYLES = {
    "embedding": "cyan",
    "stem": "cyan",
    "stage": "blue",
    "attention": "blue",
    "ssm": "bright_blue",
    "linear": "bright_blue",
    "convolution": "red",
    "mlp": "yellow",
    "input": "yellow",
    "norm": "green",
    "activation": "green",
    "residual": "green",
    "bias": "green",
    "head": "magenta",
    "communication": "bright_red",
    "optimizer": "red",
}


def style(row: OperatorRow) -> str:
    """The color of an operator's group."""
    return STYLES[kind(row.group)]


def _share(line: EstimateLine) -> Cell | None:
    text = None if line.share is None else PERCENT.write(line.share)
    return (text, line.color) if text and line.color else text


def _bar(line: EstimateLine) -> Cell | None:
    return (BAR.write(line.length), line.color) if line.length else None


def _operators(label_title: str, count: Column) -> tuple[Column, ...]:
    """The columns of a phase's table; `label_title` is the title of the labels, `count` the column of occurrences."""
    return (
        Column(None, "", only="terminal", text=lambda line: (line.letter, f"bold {line.color}")),
        Column(None, label_title, text=lambda line: (line.label, line.color) if line.color else line.label),
        count,
        Column(None, "×", COUNT, "times", only="markdown"),
        Column(None, "FLOPs", FLOP, "cost.flops", priority=5),
        Column(None, "bytes", BYTES, "cost.bytes", priority=4),
        Column(None, "FLOP/B", NUMBER, "cost.intensity", priority=2),
        Column(None, "bound by", value="bound", priority=1),
        Column(None, "bound", SECONDS, "seconds"),
        Column(None, "", BAR, text=_bar, only="terminal", priority=0),
        Column(None, "share", PERCENT, only="terminal", text=_share),
        Column(None, "share of bound", FINE_PERCENT, "share", only="markdown"),
        Column(None, "expected", SECONDS, "expected", priority=6),
    )


def _bold(line: EstimateLine) -> str:
    return "bold" if line.bold else ""


OPERATOR_LINES = Table(
    "phase",
    _operators(
        "operator",
        Column(
            None,
            "×",
            COUNT,
            only="terminal",
            priority=3,
            text=lambda line: f"× {line.times}" if line.times and line.times > 1 else "",
        ),
    ),
    style=_bold,
)
GROUP_LINES = Table(
    "phase",
    _operators("group", Column(None, "ops", COUNT, "times", only="terminal", priority=3)),
    style=_bold,
)


def known_columns(table: Table, estimate: Estimate) -> Table:
    """The table without the columns that need the bytes of the weights, if their format is unknown."""
    if estimate.has_total:
        return table
    needing = ("bytes", "FLOP/B", "bound by", "bound", "", "share", "share of bound", "expected")
    return table.without(*needing)


def terminal_lines(
    phase: PhaseEstimate, lettered_rows: Sequence[tuple[str, OperatorRow]], ops: bool
) -> Iterator[EstimateLine]:
    """A line per row, subtotals above the rows of a stage, the wait for other pipeline stages, the total."""
    longest = max(row.share for _, row in lettered_rows)  # fills the bar
    sizes = Counter((row.stage, row.group) for _, row in lettered_rows)
    stage, group, indent = "", "", ""
    for letter, row in lettered_rows:
        alone = sizes[row.stage, row.group] == 1
        if row.stage != stage:
            stage, group = row.stage, ""
            of_stage = [other for _, other in lettered_rows if other.stage == stage]
            if indent := "  " * (len(of_stage) > 1):
                yield _subtotal(stage, of_stage)
        if row.group != group and not alone:
            yield EstimateLine(f"{indent}{title(row.group)}", color=style(row))
        group = row.group
        label = full_label(row) if ops else row.label
        if not indent and stage not in ("", label):  # the only row of its stage
            label = f"{stage}: {label}"
        line = _line(row, f"{indent}{label}" if alone else f"{indent}  {row.label}")
        yield line._replace(letter=letter, length=row.share / longest, color=style(row))
    yield from _totals(phase)


def markdown_lines(phase: PhaseEstimate) -> Iterator[EstimateLine]:
    """A line for each operator, then the total."""
    for row in rows(phase):
        yield _line(row, f"{row.stage}: {full_label(row)}" if row.stage else full_label(row))
    yield from _totals(phase)


def _line(row: OperatorRow, label: str) -> EstimateLine:
    return EstimateLine(
        label,
        times=row.times,
        cost=row.cost,
        bound=row.bound,
        seconds=row.seconds,
        share=row.share,
        expected=None if row.expected is None else float(row.expected),
    )


def _subtotal(stage: str, stage_rows: Sequence[OperatorRow]) -> EstimateLine:
    """The sums of the costs, bounds and expected times of a stage."""
    expected_times = [row.expected for row in stage_rows if row.expected is not None]
    return EstimateLine(
        stage,
        cost=sum((row.cost for row in stage_rows), Cost()),
        seconds=sum(row.seconds for row in stage_rows),
        share=sum(row.share for row in stage_rows),
        expected=float(sum(expected_times)) if len(expected_times) == len(stage_rows) else None,
        bold=True,
    )


def _totals(phase: PhaseEstimate) -> Iterator[EstimateLine]:
    """The wait for other pipeline stages, what data-parallel training adds, the total."""
    idle, pipelined = phase.idle, phase.step.parallel.pp > 1
    extra = [*replica_rows(phase)]
    if pipelined:
        yield _added(phase, "wait for other stages", idle.bound, idle.expected and float(idle.expected.value))
    for name, bound, expected in extra:
        yield _added(phase, name, bound or None, expected or None)
    kernels, waits = phase.work_seconds, idle.expected
    # the wait of a launch-bound pipeline consists of launches, the rows above of kernels: the two do not add up
    together = None if pipelined and phase.host_bound else kernels and waits and kernels.value + waits.value
    yield EstimateLine(
        "kernels total" if (phase.host_bound or phase.exposed_host_seconds) and not pipelined else "total",
        cost=phase.cost,
        seconds=phase.bound_seconds,
        expected=None if together is None else float(together),
        bold=True,
    )


def _added(phase: PhaseEstimate, name: str, bound: Any, expected: float | None) -> EstimateLine:
    share = None if bound is None else bound / phase.bound_seconds
    return EstimateLine(name, seconds=bound, share=share, expected=expected)
