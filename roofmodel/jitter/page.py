"""The comparison of ranks as one HTML file without scripts: findings, picture, tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from roofmodel.files import output_files
from roofmodel.jitter import data, picture
from roofmodel.jitter.columns import rank_rows, ranks_table, steps_table
from roofmodel.jitter.jitter import Jitter
from roofmodel.jitter.tables import alignment_text
from roofmodel.report import encoding
from roofmodel.report.document import Rows
from roofmodel.report.html import IMAGE_SOURCES, page_file, render_page, rows_html, svg
from roofmodel.report.table import Table

MAX_ROWS = 200  # of a table


def html(jitter: Jitter) -> str:
    """The page."""
    warnings = "".join(f"<li>{escape(str(warning))}</li>" for warning in jitter.warnings)
    title = f"Which rank is late: {', '.join([*jitter.names.values()][:3])}"
    return render_page(
        page_file("jitter", "page.html"),
        title=title,
        style=page_file("report", "page_of_tables.css"),
        sources=[IMAGE_SOURCES],  # the heat maps in the picture
        heading=escape(title),
        findings="".join(f"<li>{escape(finding)}.</li>" for finding in jitter.findings),
        alignment=escape(alignment_text(jitter)),
        picture=svg(lambda path: picture.draw(jitter, path, "svg", with_findings=False)),  # the page lists them
        steps=_table(
            steps_table(jitter), jitter.steps, jitter.worst_steps(MAX_ROWS), "steps with the largest deviations"
        ),
        ranks=_table(
            ranks_table(),
            rank_rows(jitter),
            jitter.latest_ranks(MAX_ROWS),
            "ranks with the largest mean deviations",
        ),
        warnings=f"<h2>Warnings</h2><ul>{warnings}</ul>" if warnings else "",
    )


def save(jitter: Jitter, path: str) -> Path:
    """Write a picture (png, svg, pdf), a page (html) or the data (json, csv), by the suffix."""
    return output_files.write(
        path,
        draw=lambda file, form: picture.draw(jitter, file, form),
        texts={
            "html": lambda: html(jitter),
            "json": lambda: encoding.as_json(data.document(jitter)),
            "csv": lambda: data.as_csv(jitter),
        },
    )


def _table(table: Table, rows: Sequence[Any], chosen: Sequence[int], which: str) -> str:
    """The chosen rows, and a note if they are not all."""
    if not rows:
        return ""
    note = f'<p class="note">The {len(chosen)} {which}; the JSON output has all {len(rows)}.</p>'
    return rows_html(Rows(table, [rows[place] for place in chosen])) + (note if len(chosen) < len(rows) else "")
