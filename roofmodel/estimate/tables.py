"""The tables of an estimate: operators with their columns, memory, and the lines of the table of a phase."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from roofmodel.counting.operator import Cost
from roofmodel.numbers.algebra import Number, plain
from roofmodel.report.operator_names import MERGED, kind, label, merged_label, title
from roofmodel.report.table import (
    BAR,
    BYTES,
    COUNT,
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
            "kernel_bound_seconds",
            value="kernel_placement.bound_seconds",
            meaning="the bound of all that its kernel computes; null for an operator in another one's kernel",
        ),
        Column(
            "expected_seconds",
            value="expected.value",
            meaning="the expected time of its kernel; null for an operator in another one's kernel, and on a device "
            "without a timing model",
        ),
        Column(
            "expected_bound",
            value="expected_bound",
            meaning="what limits the expected time: `power` where its power limit or sustained rate makes it longer, "
            "else `bound`",
        ),
        Column("power_watts", value="power_watts", meaning="mean power of a GPU while it runs; null if unknown"),
        Column("energy_joules", value="energy_joules", meaning="energy of a GPU in one occurrence; null if unknown"),
        Column(
            "implementation",
            value=lambda row: None if row.fused_into else row.run.implementation,
            meaning="the kernel whose parameters gave the expected time; null if none",
        ),
        Column(
            "expected_from",
            value="evidence",
            meaning="`measured` (parameters of this device, implementation and format), `borrowed` (other ones), "
            "`bound` (none), `fused` (in the row of another operator)",
        ),
        Column("fused", value=lambda row: bool(row.fused_into), meaning="whether it runs in another operator's kernel"),
        Column(
            "fused_into",
            value=lambda row: [*row.fused_into] or None,
            flat=joined(" "),
            meaning="the operators in whose kernels it runs, which have its time; null for others",
        ),
        Column("gemm", only="csv", value=_gemm, flat=GEMM_SIZES, meaning="the sizes of the GEMMs"),
        Column("layers", only="csv", value=_layers, flat=joined(" "), meaning="as in JSON, as text"),
    ),
)
"""A row for one occurrence of each operator (Placed, of `PhaseEstimate.kernel_rows`).

Sizes of decodes are means over all decodes: not always whole."""

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
        Column(
            "logits",
            "logits",
            MEMORY,
            meaning="in training: bytes that the loss keeps, and of the logits' gradient; 0 where the peak is later",
        ),
        Column(
            "other",
            "other",
            MEMORY,
            meaning="in training: bytes of the buckets of DistributedDataParallel, or of gathered weights and of "
            "gradients before they are reduced",
        ),
        Column("kept_activations", value="kept", meaning="the part of `activations` that the backward pass needs"),
        Column("total", "total", MEMORY, meaning="the sum at the peak over the phases shown"),
    ),
)
"""One row (Memory)."""


# --- Rows: operators, or groups of operators -----------------------------------------------------

ORDER = (
    *("embedding", "stage", "attention", "cross attention", "ssm", "linear", "convolution", "mlp", "input"),
    *("norm", "activation", "residual", "bias", "projector", "head", "communication", "optimizer"),
)
STACK_PREFIXES = "encoder ", ""  # of the groups of each stack, in the order of the stacks


class OperatorRow(NamedTuple):
    """Operators that are shown as one row; costs and times are sums over all their occurrences."""

    stage: str  # of the phase, such as `backward`; empty where a phase has no stages
    group: str
    label: str
    times: int  # occurrences
    cost: Cost
    kernels: (
        Cost  # of their kernels, with what these compute of other rows; nothing where all run in other rows' kernels
    )
    bound: str  # compute, memory or communication: the ceiling with the largest share of `seconds`
    seconds: float | None  # the bound of the kernels; None without any
    counted: float  # the bound of the operators by themselves; totals are sums of these
    share: float  # of the phase's bound
    expected: float | None  # seconds of the kernels
    names: frozenset[str]  # of the operators
    fused_into: tuple[str, ...]  # the operators of other rows whose kernels compute these

    @property
    def has_mark(self) -> bool:
        """Whether it has a place on a roofline: FLOPs, in kernels of its own."""
        return bool(self.kernels.flops)

    @property
    def flops_per_second(self) -> float:
        """FLOP/s of the kernels at their bound."""
        assert self.seconds is not None
        return self.kernels.flops / self.seconds  # type: ignore[no-any-return]


def rows(phase: PhaseEstimate) -> list[OperatorRow]:
    """One row per operator, by stage and in the model's order; norms and residual adds are one row each."""
    return _rows(phase, lambda group, name: group if kind(group) in MERGED else name)


def group_rows(phase: PhaseEstimate) -> list[OperatorRow]:
    """One row per group, such as attention or the MLP, by stage and in the model's order."""
    operator_rows = _rows(phase, lambda group, _: group)
    return [row._replace(label=_group_label(phase, row)) for row in operator_rows]


def _group_label(phase: PhaseEstimate, row: OperatorRow) -> str:
    names = {placed.operator.name for placed in phase.placed if placed.operator.group == row.group}
    language_model = row.group == "head" and "head.logits" in names
    return "LM head" if language_model else merged_label(row.group) or title(row.group)


def _rows(phase: PhaseEstimate, key: Callable[[str, str], str]) -> list[OperatorRow]:
    """Rows of the operators with the same stage and the same `key(group, name)`."""
    bundles: dict[tuple[str, str], list[Placed]] = {}
    for placed in phase.kernel_rows:
        operator = placed.operator
        bundles.setdefault((operator.stage, key(operator.group, operator.name)), []).append(placed)
    total = phase.bound_seconds
    operator_rows = [_row(name, bundle, total) for (_, name), bundle in bundles.items()]
    order = [prefix + group for prefix in STACK_PREFIXES for group in ORDER]
    stages = stages_of(operator_rows)

    def place(row: OperatorRow) -> tuple[int, int]:
        group = row.group.rstrip("0123456789").replace(
            "stem", "stage"
        )  # in the model's order, a backward's is reversed
        return stages[row.stage], order.index(group)

    return sorted(operator_rows, key=place)


def stages_of(operator_rows: Iterable[OperatorRow]) -> dict[str, int]:
    """The stages of a phase, numbered in order; the one stage of a phase without any has no name."""
    return {stage: number for number, stage in enumerate(dict.fromkeys(row.stage for row in operator_rows))}


def _row(name: str, bundle: list[Placed], total: float) -> OperatorRow:
    by_ceiling, kernels = {"compute": 0.0, "memory": 0.0, "communication": 0.0}, Cost()
    own = [placed for placed in bundle if not placed.fused_into]
    for placed in own:
        if (kernel := placed.kernel_placement) is not None:
            by_ceiling[kernel.bound] += placed.operator.count * kernel.bound_seconds
            kernels = kernels + placed.operator.count * kernel.cost
    seconds = sum(by_ceiling.values())
    names = frozenset(placed.operator.name for placed in bundle)
    return OperatorRow(
        stage=bundle[0].operator.stage,
        group=bundle[0].operator.group,
        label=merged_label(name) or label(bundle[0].operator),
        times=sum(placed.operator.count for placed in bundle),
        cost=sum((placed.cost for placed in bundle), Cost()),
        kernels=kernels,
        bound=max(by_ceiling, key=lambda ceiling: by_ceiling[ceiling]) if own else "",
        seconds=seconds if own else None,
        counted=sum(placed.seconds for placed in bundle),
        share=seconds / total,
        expected=None
        if not own or any(placed.expected is None for placed in own)
        else sum(placed.operator.count * placed.expected.value for placed in own if placed.expected),
        names=names,
        fused_into=()
        if own
        else tuple(dict.fromkeys(main for placed in bundle for main in placed.fused_into if main not in names)),
    )


def full_label(row: OperatorRow) -> str:
    """The label with its group, unless it names the group itself: `MLP: up`, `norms`, `LM head`."""
    complete = kind(row.group) in MERGED or row.label.startswith(row.group) or row.label.endswith(row.group)
    return row.label if complete else f"{title(row.group)}: {row.label}"


def with_letters(tables: Sequence[Sequence[OperatorRow]]) -> list[list[tuple[str, OperatorRow]]]:
    """The rows of all phases of a roofline with their letters; see `marks.letters`."""
    from roofmodel.report.marks import letters

    drawn = [row for table in tables for row in table if row.has_mark]
    assigned_letters = iter(letters([({0: (row.kernels.intensity, row.flops_per_second)}, row.share) for row in drawn]))
    return [[(next(assigned_letters) if row.has_mark else "", row) for row in table] for table in tables]


def replica_rows(phase: PhaseEstimate) -> Iterator[tuple[str, Number, float | None]]:
    """What overlap and data-parallel training change in the totals: name, seconds of the bound, expected seconds."""
    replicas, hidden = phase.replicas, phase.hidden_seconds
    if hidden is None or hidden.value or phase.hidden_bound:
        yield "hidden communication", -phase.hidden_bound, hidden and -float(hidden.value)
    for name, added in (
        ("copies of shards" if phase.step.parallel.zero > 1 else "copies of gradients", replicas.copies),
        ("contention", replicas.contention),
        ("wait for slowest GPU", replicas.waiting),
    ):
        if added is not None and added.value:
            yield name, 0.0, float(added.value)


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
    fused_into: str = ""  # the row that has the time
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
    "projector": "magenta",
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


def _expected(line: EstimateLine) -> Cell | None:
    if line.fused_into:
        return f"in {line.fused_into}"
    return None if line.expected is None else SECONDS.write(line.expected)


def _bar(line: EstimateLine) -> Cell | None:
    return (BAR.write(line.length), line.color) if line.length else None


def _operators(label_title: str, count: Column) -> tuple[Column, ...]:
    """The columns of a phase's table; `label_title` is the title of the labels, `count` the column of occurrences."""
    return (
        Column(None, "", only="terminal", text=lambda line: (line.letter, f"bold {line.color}")),
        Column(None, label_title, text=lambda line: (line.label, line.color) if line.color else line.label),
        count,
        Column(None, "FLOPs", FLOP, "cost.flops", priority=4),
        Column(None, "bytes", BYTES, "cost.bytes", priority=3),
        Column(None, "FLOP/B", NUMBER, "cost.intensity", priority=1),
        Column(None, "bound by", value="bound", priority=5),
        Column(None, "bound", SECONDS, "seconds"),
        Column(None, "", BAR, text=_bar, only="terminal", priority=0),
        Column(None, "share", PERCENT, text=_share),
        Column(None, "expected", SECONDS, text=_expected, priority=6),
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
            priority=2,
            text=lambda line: f"× {line.times}" if line.times and line.times > 1 else "",
        ),
    ),
    style=_bold,
)
GROUP_LINES = Table(
    "phase",
    _operators("group", Column(None, "ops", COUNT, "times", priority=2)),
    style=_bold,
)


def known_columns(table: Table, estimate: Estimate) -> Table:
    """The table without the columns that need the bytes of the weights, if their format is unknown."""
    if estimate.has_total:
        return table
    needing = ("bytes", "FLOP/B", "bound by", "bound", "", "share", "expected")
    return table.without(*needing)


def phase_lines(
    phase: PhaseEstimate, lettered_rows: Sequence[tuple[str, OperatorRow]], ops: bool
) -> Iterator[EstimateLine]:
    """A line per row, subtotals above the rows of a stage, the wait for other pipeline stages, the total."""
    longest = max(row.share for _, row in lettered_rows)  # fills the bar
    labels = {(row.stage, name): _short(row.label) for _, row in lettered_rows for name in row.names}
    sizes = Counter((row.stage, row.group) for _, row in lettered_rows)
    stage, group, indent = "", "", ""
    for letter, row in lettered_rows:
        alone = sizes[row.stage, row.group] == 1
        if row.stage != stage:
            stage, group = row.stage, ""
            of_stage = [other for _, other in lettered_rows if other.stage == stage]
            if indent := "  " * (len(of_stage) > 1):
                yield _subtotal(stage, of_stage, phase.bound_seconds)
        if row.group != group and not alone:
            yield EstimateLine(f"{indent}{title(row.group)}", color=style(row))
        group = row.group
        label = full_label(row) if ops else row.label
        if not indent and stage not in ("", label):  # the only row of its stage
            label = f"{stage}: {label}"
        line = _line(row, f"{indent}{label}" if alone else f"{indent}  {row.label}")
        mains = dict.fromkeys(labels[row.stage, name] for name in row.fused_into)
        line = line._replace(fused_into=" and ".join(mains))
        yield line._replace(letter=letter, length=row.share / longest, color=style(row))
    yield from _totals(phase)


def _short(label: str) -> str:
    """The label, or its first word, so that the column stays narrow; `indexer: keys` is one of several."""
    return label if len(label) < 12 or ":" in label else label.split()[0].rstrip(",")


def _line(row: OperatorRow, label: str) -> EstimateLine:
    return EstimateLine(
        label,
        times=row.times,
        cost=row.cost,
        bound=row.bound,
        seconds=row.seconds,
        share=None if row.seconds is None else row.share,
        expected=None if row.expected is None else float(row.expected),
    )


def _subtotal(stage: str, stage_rows: Sequence[OperatorRow], total: Number) -> EstimateLine:
    """The sums of the costs, bounds and expected times of a stage."""
    own = [row for row in stage_rows if row.seconds is not None]
    expected_times = [row.expected for row in own if row.expected is not None]
    bound = sum(row.counted for row in stage_rows)
    return EstimateLine(
        stage,
        cost=sum((row.cost for row in stage_rows), Cost()),
        seconds=bound,
        share=bound / total,
        expected=float(sum(expected_times)) if len(expected_times) == len(own) else None,
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
