"""An Estimate as GitHub-flavored Markdown: the answers and a table of every operator for each phase."""

from __future__ import annotations

from roofmodel.counting.passes import NEED_WEIGHTS
from roofmodel.estimate.summary import summary
from roofmodel.estimate.tables import MEMORY_OF_A_GPU, OPERATOR_LINES, known_columns, markdown_lines
from roofmodel.estimate.text import describe_remarks
from roofmodel.report.encoding import escape_markdown
from roofmodel.report.table import MEMORY, Column
from roofmodel.steps.estimate import Estimate
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
        table = known_columns(OPERATOR_LINES, estimate)
        lines += ["", f"## {describe_phase(phase)}", "", *table.markdown(markdown_lines(phase))]
        for remark in describe_remarks(estimate, phase) if estimate.has_total else ():
            lines += ["", _sentence(remark)]
    lines += ["", "## memory", "", *_memory(estimate)]
    lines += ["", *(f"- {note}" for note in estimate.notes)]
    return "\n".join(map(escape_markdown, lines))


def _memory(estimate: Estimate) -> list[str]:
    device = (
        Column(None, "device", MEMORY, lambda _: estimate.device.capacity, unknown="unknown"),
        Column(None, "fits", text=lambda _: {True: "yes", False: "no", None: "unknown"}[estimate.fits]),
    )
    return MEMORY_OF_A_GPU._replace(columns=(*known_memory(estimate), *device)).markdown([estimate.memory])


def known_memory(estimate: Estimate) -> tuple[Column, ...]:
    """The columns of the memory table without those that an unknown weight format leaves out."""
    unknown = () if estimate.has_total else NEED_WEIGHTS
    return tuple(column for column in MEMORY_OF_A_GPU.columns if column.key not in unknown)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
