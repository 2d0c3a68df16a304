"""The comparison of ranks as one HTML file without scripts: findings, picture, tables."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from roofmodel.files import output_files
from roofmodel.jitter import data, picture
from roofmodel.jitter.jitter import Jitter
from roofmodel.jitter.pipelines.what_if import WhatIf
from roofmodel.jitter.tables import alignment_text, slowdown_rows, what_if_text
from roofmodel.numbers import units
from roofmodel.report import encoding
from roofmodel.report.page import IMAGE_SOURCES, page_file, render_page

MAX_ROWS = 200  # of a table
_TEXTS = ("file", "process", "host", "kernel_name", "cause", "kept", "name")


def html(jitter: Jitter) -> str:
    """The page."""
    warnings = "".join(f"<li>{escape(str(warning))}</li>" for warning in jitter.warnings)
    title = f"Which rank is late: {', '.join([*jitter.names.values()][:3])}"
    steps, ranks = data.step_rows(jitter), data.rank_rows(jitter)
    return render_page(
        page_file("jitter", "page.html"),
        title=title,
        style=page_file("jitter", "page.css"),
        sources=[IMAGE_SOURCES],  # the heat maps in the picture
        heading=escape(title),
        findings="".join(f"<li>{escape(finding)}.</li>" for finding in jitter.findings),
        alignment=escape(alignment_text(jitter)),
        picture=_svg(jitter),
        what_if="" if jitter.what_if is None else "\n".join(_what_if(jitter.what_if)),
        steps=_table(steps, jitter.worst_steps(MAX_ROWS), "steps with the largest deviations"),
        ranks=_table(ranks, jitter.latest_ranks(MAX_ROWS), "ranks with the largest mean deviations"),
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


def _what_if(found: WhatIf) -> list[str]:
    rows = [{"kept": group, "name": name, "slowdown": f"{value:.4f}"} for group, name, value in slowdown_rows(found)]
    note = "Slowdown if only this keeps its recorded time and all other operations take their ideal time."
    table = _table(rows, range(min(len(rows), MAX_ROWS)), "first rows")
    return ["<h2>What if</h2>", f"<p>{escape(what_if_text(found))}</p>", f'<p class="note">{note}</p>', table]


def _svg(jitter: Jitter) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "jitter.svg")
        picture.draw(jitter, path, "svg")
        text = path.read_text(encoding="utf-8")
    return text[text.index("<svg") :]


def _table(rows: Sequence[Mapping[str, Any]], chosen: Sequence[int], which: str) -> str:
    """The chosen rows, and a note if they are not all."""
    if not rows:
        return ""
    head = "".join(
        f'<th class="word">{escape(_title(key))}</th>' if key in _TEXTS else f"<th>{escape(_title(key))}</th>"
        for key in rows[0]
    )
    body = "".join(f"<tr>{''.join(_cell(key, value) for key, value in rows[place].items())}</tr>" for place in chosen)
    note = f'<p class="note">The {len(chosen)} {which}; the JSON output has all {len(rows)}.</p>'
    more = note if len(chosen) < len(rows) else ""
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _title(key: str) -> str:
    return key.removesuffix("_seconds").replace("_", " ")


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "<td>–</td>"
    if key in _TEXTS:
        return f'<td class="word">{escape(str(value))}</td>'
    if key.endswith("_seconds"):
        sign = "-" if value < 0 else ""
        return f"<td>{sign}{escape(units.seconds(abs(value)) if value else '0')}</td>"
    return f"<td>{escape(str(value))}</td>"
