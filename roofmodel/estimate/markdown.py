"""An Estimate as GitHub-flavored Markdown: the answers and a table of every operator for each phase."""

from __future__ import annotations

from collections.abc import Iterator

from roofmodel.estimate.rows import full_label, replica_rows, rows, signed_seconds
from roofmodel.estimate.summary import summary
from roofmodel.estimate.text import describe_remarks
from roofmodel.numbers import units
from roofmodel.report.encoding import escape_markdown
from roofmodel.steps.estimate import Estimate
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.workload_text import describe_parameters, describe_phase, describe_workload


def as_markdown(estimate: Estimate) -> str:
    """The answers, a table of every operator for each phase, memory, notes."""
    arch, size = estimate.architecture, describe_parameters(estimate.parameters, estimate.active_parameters)
    lines = [
        f"# {arch.name} on {estimate.device.name}",
        "",
        f"{arch.head.name}, {size}; {describe_workload(estimate)}.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {label} | {' '.join(text.split())} |" for label, text in summary(estimate)),
    ]
    for phase in estimate.phases:
        lines += ["", f"## {describe_phase(phase)}", "", *_table(phase)]
        for remark in describe_remarks(estimate, phase):
            lines += ["", _sentence(remark)]
    lines += ["", "## memory", "", *_memory(estimate)]
    lines += ["", *(f"- {note}" for note in estimate.notes)]
    return "\n".join(map(escape_markdown, lines))


def _table(phase: PhaseEstimate) -> Iterator[str]:
    yield "| operator | × | FLOPs | bytes | FLOP/B | bound by | bound | share of bound | expected |"
    yield "|---|---:|---:|---:|---:|---|---:|---:|---:|"
    for row in rows(phase):
        label = f"{row.stage}: {full_label(row)}" if row.stage else full_label(row)
        yield (
            f"| {label} | {row.times} | {units.si(row.cost.flops)} | {units.si(row.cost.bytes, 'B')} "
            f"| {units.significant(row.cost.intensity)} | {row.bound} "
            f"| {units.seconds(row.seconds)} | {row.share:.1%} "
            f"| {units.seconds(row.expected) if row.expected else ''} |"
        )
    if phase.step.parallel.pp > 1:
        bound, waits = phase.idle.bound, phase.idle.expected
        yield (
            f"| wait for other stages | | | | | | {units.seconds(bound)} | {bound / phase.bound_seconds:.1%} "
            f"| {units.seconds(float(waits.value)) if waits else ''} |"
        )
    for name, bound, expected in replica_rows(phase):
        yield (
            f"| {name} | | | | | | {signed_seconds(bound)} | {f'{bound / phase.bound_seconds:.1%}' if bound else ''} "
            f"| {signed_seconds(expected)} |"
        )
    cost = phase.cost
    yield (
        f"| **total** | | **{units.si(cost.flops)}** | **{units.si(cost.bytes, 'B')}** "
        f"| **{units.significant(cost.intensity)}** | | **{units.seconds(phase.bound_seconds)}** | | |"
    )


def _memory(estimate: Estimate) -> Iterator[str]:
    mem, capacity = estimate.memory, estimate.device.capacity
    yield "| weights | KV cache | activations | gradients | optimizer | total | device | fits |"
    yield "|---:|---:|---:|---:|---:|---:|---:|---|"
    yield (
        f"| {units.binary(mem.weights)} | {units.binary(mem.kv_cache)} | {units.binary(mem.activations)} "
        f"| {units.binary(mem.gradients)} | {units.binary(mem.optimizer)} "
        f"| {units.binary(mem.total)} | {units.binary(capacity) if capacity else 'unknown'} "
        f"| {({True: 'yes', False: 'no', None: 'unknown'})[estimate.fits]} |"
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
