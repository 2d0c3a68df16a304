"""An Estimate's operators as the rows that people read, each with the letter that names it in pictures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from roofmodel.counting.operator import Cost
from roofmodel.study.estimate.estimate import Estimate
from roofmodel.study.estimate.phase import PhaseEstimate, Placed
from roofmodel.views.kit.operator_names import MERGED, kind, label, merged_label, title

ORDER = (
    *("embedding", "stem", "stage", "attention", "cross attention", "ssm", "linear", "convolution", "mlp", "input"),
    *("norm", "activation", "residual", "bias", "head", "communication", "optimizer"),
)
STACKS = "encoder ", ""  # what the groups of a stack's operators start with, in the order of the stacks


class Row(NamedTuple):
    """Operators that a person thinks of as one, over all their occurrences."""

    stage: str
    group: str
    label: str
    times: int
    cost: Cost
    bound: str
    seconds: float
    share: float
    expected: float | None  # seconds

    @property
    def flops_per_second(self) -> float:
        """What it does per second if it meets its bound."""
        return self.cost.flops / self.seconds  # type: ignore[no-any-return]


def rows(phase: PhaseEstimate) -> list[Row]:
    """The rows of a phase, stage by stage, in the order of the model; groups that merge are one row."""
    bundles: dict[tuple[str, str], list[Placed]] = {}
    for placed in phase.placed:
        operator = placed.operator
        name = operator.group if kind(operator.group) in MERGED else operator.name
        bundles.setdefault((operator.stage, name), []).append(placed)
    total = phase.bound_seconds
    found = [_row(name, bundle, total) for (_, name), bundle in bundles.items()]
    order = [stack + group for stack in STACKS for group in ORDER]
    stages = stages_of(found)
    return sorted(found, key=lambda row: (stages[row.stage], order.index(row.group.rstrip("0123456789"))))


def stages_of(found: Iterable[Row]) -> dict[str, int]:
    """The stages of a phase, numbered in order; the one stage of a phase without any has no name."""
    return {stage: number for number, stage in enumerate(dict.fromkeys(row.stage for row in found))}


def _row(name: str, bundle: list[Placed], total: float) -> Row:
    by_roof = {"compute": 0.0, "memory": 0.0, "communication": 0.0}
    for placed in bundle:
        by_roof[placed.placement.bound] += placed.seconds
    seconds = sum(by_roof.values())
    return Row(
        stage=bundle[0].operator.stage,
        group=bundle[0].operator.group,
        label=merged_label(name) or label(bundle[0].operator),
        times=sum(placed.operator.count for placed in bundle),
        cost=sum((placed.cost for placed in bundle), Cost()),
        bound=max(by_roof, key=lambda roof: by_roof[roof]),
        seconds=seconds,
        share=seconds / total,
        expected=None
        if any(placed.expected is None for placed in bundle)
        else sum(placed.operator.count * placed.expected.seconds for placed in bundle if placed.expected),
    )


def full_label(row: Row) -> str:
    """The label with its group, where it does not say it itself: `MLP: up`, `norms`."""
    merged = kind(row.group) in MERGED or row.label.startswith(row.group)
    return row.label if merged else f"{title(row.group)}: {row.label}"


# Letters that name rows in pictures, by phase and stage; without those that look like others (I and l, O and o).
SIGNS = {
    "capitals": "ABCDEFGHJKLMNPQRSTUVWXYZ",
    "small letters": "abcdefghijkmnpqrstuvwxyz",
    "Greek letters": "αβγδεζηθλμξπρστφχψω",
    "Greek capitals": "ΓΔΘΛΞΠΣΦΨΩ",
}


def signed(phase: int, found: list[Row]) -> list[tuple[str, Row]]:
    """Each row with its letter; rows without FLOPs, which no picture shows, have none.

    Where an alphabet is too short, its letters go to the rows that take most time.
    """
    signs: dict[int, str] = {}
    for stage in stages_of(found):
        letters = list(SIGNS.values())[script(phase, stage)]
        shown = [i for i, row in enumerate(found) if row.stage == stage and row.cost.flops]
        longest = sorted(shown, key=lambda i: -found[i].share)[: len(letters)]
        signs |= zip(sorted(longest), letters, strict=False)
    return [(signs.get(i, ""), row) for i, row in enumerate(found)]


def script(phase: int, stage: str) -> int:
    """Which of the alphabets, and of the marks, a phase or a stage of it has."""
    return {"decodes": 1, "backward": 1, "recomputation": 2, "optimizer": 3}.get(stage, phase)


def scripts(estimate: Estimate) -> list[tuple[str, str]]:
    """Each phase or stage with the alphabet of its rows, where there are several."""
    found = [(i, phase, stage) for i, phase in enumerate(estimate.phases) for stage in stages_of(rows(phase))]
    named = [(stage or phase.step.phase, list(SIGNS)[script(i, stage)]) for i, phase, stage in found]
    return named if len(named) > 1 else []
