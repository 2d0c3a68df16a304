"""The rows of an estimate's tables and pictures: one per operator or per group, each with its letter in a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from roofmodel.counting.operator import Cost
from roofmodel.numbers.algebra import Number
from roofmodel.report.marks import letters
from roofmodel.report.operator_names import MERGED, kind, label, merged_label, title
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.placed import Placed

ORDER = (
    *("embedding", "stage", "attention", "cross attention", "ssm", "linear", "convolution", "mlp", "input"),
    *("norm", "activation", "residual", "bias", "head", "communication", "optimizer"),
)
STACK_PREFIXES = "encoder ", ""  # of the groups of each stack, in the order of the stacks


class OperatorRow(NamedTuple):
    """Operators that are shown as one row; costs and times are sums over all their occurrences."""

    stage: str  # of the phase, such as `backward`; empty where a phase has no stages
    group: str
    label: str
    times: int  # occurrences
    cost: Cost
    bound: str  # compute, memory or communication: the ceiling with the largest share of `seconds`
    seconds: float  # the bound
    share: float  # of the phase's bound
    expected: float | None  # seconds

    @property
    def flops_per_second(self) -> float:
        """FLOP/s at the bound."""
        return self.cost.flops / self.seconds  # type: ignore[no-any-return]


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
    for placed in phase.placed:
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
    by_ceiling = {"compute": 0.0, "memory": 0.0, "communication": 0.0}
    for placed in bundle:
        by_ceiling[placed.placement.bound] += placed.seconds
    seconds = sum(by_ceiling.values())
    return OperatorRow(
        stage=bundle[0].operator.stage,
        group=bundle[0].operator.group,
        label=merged_label(name) or label(bundle[0].operator),
        times=sum(placed.operator.count for placed in bundle),
        cost=sum((placed.cost for placed in bundle), Cost()),
        bound=max(by_ceiling, key=lambda ceiling: by_ceiling[ceiling]),
        seconds=seconds,
        share=seconds / total,
        expected=None
        if any(placed.expected is None for placed in bundle)
        else sum(placed.operator.count * placed.expected.value for placed in bundle if placed.expected),
    )


def full_label(row: OperatorRow) -> str:
    """The label with its group, unless it names the group itself: `MLP: up`, `norms`, `LM head`."""
    complete = kind(row.group) in MERGED or row.label.startswith(row.group) or row.label.endswith(row.group)
    return row.label if complete else f"{title(row.group)}: {row.label}"


def with_letters(tables: Sequence[Sequence[OperatorRow]]) -> list[list[tuple[str, OperatorRow]]]:
    """The rows of all phases of a roofline with their letters; see `marks.letters`. Rows without FLOPs have no mark."""
    drawn = [row for table in tables for row in table if row.cost.flops]
    assigned_letters = iter(letters([({0: (row.cost.intensity, row.flops_per_second)}, row.share) for row in drawn]))
    return [[(next(assigned_letters) if row.cost.flops else "", row) for row in table] for table in tables]


def replica_rows(phase: PhaseEstimate) -> Iterator[tuple[str, Number, float | None]]:
    """What data-parallel training changes in the totals: name, seconds of the bound, expected seconds."""
    replicas = phase.replicas
    if replicas.hidden is None or replicas.hidden.value or replicas.hidden_bound:
        yield "hidden communication", -replicas.hidden_bound, replicas.hidden and -float(replicas.hidden.value)
    for name, added in (
        ("copies of gradients", replicas.copies),
        ("contention", replicas.contention),
        ("wait for slowest GPU", replicas.waiting),
    ):
        if added is not None and added.value:
            yield name, 0.0, float(added.value)
