"""The analysis of a run as one HTML file without scripts: the lines and tables of the terminal, and the picture."""

from __future__ import annotations

from html import escape

from roofmodel.report.html import IMAGE_SOURCES, html_blocks, page_file, render_page, svg
from roofmodel.trace import picture, tables
from roofmodel.trace.trace import RunAnalysis


def html(trace: RunAnalysis) -> str:
    """The page: what limits the run, the picture, then the tables."""
    heading, *blocks = tables.blocks(trace)
    answer = [*html_blocks(blocks)]
    if trace.ranks:
        first = next((place for place, part in enumerate(answer) if part.startswith(("<h2", "<div"))), len(answer))
        answer.insert(first, svg(lambda path: picture.draw(trace, path, "svg", with_findings=False)))
    warnings = "".join(f"<li>{escape(str(warning))}</li>" for warning in trace.warnings)
    return render_page(
        page_file("trace", "page.html"),
        title=picture.title(trace),
        style=page_file("report", "page_of_tables.css"),
        sources=[IMAGE_SOURCES],
        heading=escape(picture.title(trace)),
        about=escape(str(heading)),
        answer="\n".join(answer),
        warnings=f"<h2>Warnings</h2><ul>{warnings}</ul>" if warnings else "",
    )
