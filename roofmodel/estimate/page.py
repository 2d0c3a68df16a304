"""An Estimate as one HTML file without scripts: the answers, the picture, every operator with its expected time."""

from __future__ import annotations

from html import escape

from roofmodel.estimate import picture
from roofmodel.estimate.markdown import known_memory
from roofmodel.estimate.summary import summary
from roofmodel.estimate.tables import MEMORY_OF_A_GPU, OPERATOR_LINES, known_columns, markdown_lines
from roofmodel.estimate.text import describe_remarks
from roofmodel.report.page import IMAGE_SOURCES, page_file, render_page, svg
from roofmodel.steps.estimate import Estimate
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.workload_text import describe_phase, describe_workload


def html(estimate: Estimate) -> str:
    """The page."""
    title = f"{estimate.architecture.name} on {estimate.device.name}"
    answers = "".join(
        f'<tr><th scope="row">{escape(label)}</th><td>{escape(" ".join(text.split()))}</td></tr>'
        for label, text in summary(estimate)
    )
    notes = "".join(f"<li>{escape(str(note))}</li>" for note in estimate.notes)
    return render_page(
        page_file("estimate", "page.html"),
        title=title,
        style=page_file("estimate", "page.css"),
        sources=[IMAGE_SOURCES],
        heading=escape(title),
        about=escape(describe_workload(estimate)),
        answers=answers,
        picture=svg(lambda path: picture.draw(estimate, path, "svg")) if estimate.has_total else "",
        phases="\n".join(_phase(estimate, phase) for phase in estimate.phases),
        memory=MEMORY_OF_A_GPU._replace(columns=known_memory(estimate)).html([estimate.memory]),
        notes=f"<h2>Notes</h2><ul>{notes}</ul>" if notes else "",
    )


def _phase(estimate: Estimate, phase: PhaseEstimate) -> str:
    remarks = "".join(f'<p class="note">{escape(remark)}</p>' for remark in describe_remarks(estimate, phase))
    table = known_columns(OPERATOR_LINES, estimate).html([*markdown_lines(phase)])
    return f"<h2>{escape(describe_phase(phase))}</h2>\n{table}{remarks}"
