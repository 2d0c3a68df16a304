"""The timeline page: streams, copy engines and CPU threads of a run, with its idle stretches, in one HTML file.

Python arranges the events (timeline_rows.py) and packs them as columns; the scripts of this folder unpack and draw
them on a canvas. Names come from files of unknown authors: the scripts insert them as text, never as markup.
"""

from __future__ import annotations

import gzip
import json
import struct
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

import numpy as np

from roofmodel.errors import Option
from roofmodel.numbers import units
from roofmodel.profiles.timelines.timeline import UNKNOWN
from roofmodel.report import marks
from roofmodel.report.page import SCRIPT_SOURCES, page_file, render_page
from roofmodel.roofline.kernel_names import short_name
from roofmodel.roofline.panel import category_color
from roofmodel.trace.columns import PEERS, RANKS, rank_rows
from roofmodel.trace.parts import CAUSE_COLORS, CAUSE_TEXTS, largest_part
from roofmodel.trace.timeline_rows import (
    IDLE,
    NO_TIME,
    STEPS,
    STREAM,
    Column,
    TimelineRow,
    TimelineRows,
    timeline_rows,
)
from roofmodel.trace.trace import RunAnalysis
from roofmodel.version import __version__

MAX_EVENTS = 1_000_000  # about 4 bytes each in the page
SCRIPTS = ("timeline_data.js", "timeline_draw.js", "timeline_page.js")  # unpack, draw, handle input
MAX_LANES = 40  # of a row
MAX_NAME = 300  # characters of a name in the page
CPU_COLORS = {
    "CUDA call": "#A7A7A7", "operator": "#8FB4D9", "range": "#C9BD8B", "data loader": "#F0A787",
    "waiting for the GPU": "#C7A2D8",
}  # fmt: skip
GPU_COLORS = {"copy": marks.PURPLE, "memset": marks.GRAY, STEPS: "#D0D0D0"}


def html(trace: RunAnalysis) -> tuple[str, list[str]]:
    """The page, and notes on what it leaves out."""
    rows = timeline_rows(trace, MAX_EVENTS, MAX_LANES)
    notes = [*_left_out(rows)]
    files = ", ".join([*trace.names.values()][:3]) + (
        f" and {len(trace.files) - 3} more" if len(trace.files) > 3 else ""
    )
    device = f" on {trace.identified.device.name}" if trace.identified else ""
    count = sum(len(row.events.start) for row in rows.rows)
    about = f"{units.count(len(trace.ranks), 'rank')}{device} · {trace.tool} · {units.grouped(count)} events"
    if len(trace.files) > 1:
        about += " · time 0: the first GPU activity of each file, whose clocks may differ"
    text = render_page(
        page_file("trace", "timeline_page.html"),
        title=f"{files}: timeline",
        sources=[SCRIPT_SOURCES],
        heading=escape(files),
        about=escape(about),
        findings=_findings(trace),
        notes=_notes([*notes, *map(str, trace.warnings)]),
        parts=RANKS.html(rank_rows(trace)) + (PEERS.html(trace.peers) if trace.peers else ""),
        open="open" if len(trace.ranks) <= 4 else "",
        style=page_file("trace", "timeline_page.css"),
        script="\n".join(page_file("trace", name) for name in SCRIPTS),
        footer=f"roofmodel {__version__}",
        data=packed(rows),
    )
    return text, notes


def _findings(trace: RunAnalysis) -> str:
    if not trace.findings:
        text = largest_part(trace.ranks)
        return f"<p>{escape(text[0].upper() + text[1:])}.</p>"
    items = "\n".join(f"<li>{escape(finding.text)}.</li>" for finding in trace.findings)
    return f'<ol id="findings">\n{items}\n</ol>'


def _left_out(rows: TimelineRows) -> Iterator[str]:
    if rows.short:
        yield (
            f"the timeline leaves out the {units.grouped(rows.short)} shortest events, none longer than "
            f"{units.seconds(rows.longest_short / 1e9)}; {Option('steps')} limits the run to some steps"
        )
    if rows.deep:
        yield f"the timeline leaves out {units.grouped(rows.deep)} events that more than {MAX_LANES - 1} others enclose"


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "\n".join(f"<li>{escape(note.removeprefix('warning: '))}</li>" for note in notes)
    return f'<section class="warnings" aria-label="Notes">\n<ul>\n{items}\n</ul>\n</section>'


# --- Data of the page ---------------------------------------------------------------------------------


def packed(rows: TimelineRows) -> str:
    """The events as base64 of gzip of: length of the header (4 bytes, little-endian), header as JSON, columns.

    A column is a sequence of integers above a minimum. Its planes follow each other: the lowest byte of all values,
    then the next byte of all values. Equal bytes are then neighbors, which compress well. The header's entry of a
    column is [minimum, planes]; a stored 0 means that the value is unknown, v means minimum + v - 1.
    """
    header: dict[str, Any] = {
        "rows": [
            {"section": number, "kind": row.kind, "label": row.label, "launches": row.launches,
             "lanes": np.bincount(row.events.lane).tolist()}
            for number, section in enumerate(rows.sections) for row in section.rows
        ],
        "sections": [section.label for section in rows.sections],
        "names": [_name(*key) for key in rows.names.numbers],
        "categories": list(dict.fromkeys(kind for _, kind in rows.names.numbers)),
        "colors": {kind: _color(kind) for _, kind in rows.names.numbers},
        "causes": {cause: [text, CAUSE_COLORS[cause]] for cause, text in CAUSE_TEXTS.items()},
    }  # fmt: skip
    columns, described = [], {}
    for name, (values, known) in _columns(rows.rows).items():
        planes, described[name] = _planes(values, known)
        columns.append(planes)
    header["columns"] = described
    kinds = {kind: number for number, kind in enumerate(header["categories"])}
    header["kinds"] = [kinds[kind] for _, kind in rows.names.numbers]
    text = json.dumps(header, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")
    data = b"".join([struct.pack("<I", len(text)), text, *columns])
    return b64encode(gzip.compress(data, 6, mtime=0)).decode()


def _columns(rows: Iterable[TimelineRow]) -> dict[str, tuple[Column, np.ndarray]]:
    """Values and which of them are known, of the events of all rows in their order.

    `gap` is the time since the end of the event before in the lane; for the first event, its start.
    """
    gaps, every = [np.empty(0, np.int64)], []
    for row in rows:
        events = row.events
        before = np.concatenate([[0], np.where(events.lane[1:] == events.lane[:-1], events.end[:-1], 0)])
        gaps.append(events.start - before[: len(events.start)])
        every.append(events)
    if not every:
        return {}
    start, end, name, _, launch, call, size, stream = (np.concatenate(part) for part in zip(*every, strict=True))
    all_known = np.ones(len(start), dtype=bool)
    return {
        "gap": (np.concatenate(gaps), all_known),
        "duration": (end - start, all_known),
        "name": (name, all_known),
        "delay": (start - launch, launch != NO_TIME),
        "call": (call, call != UNKNOWN),
        "bytes": (size, size != UNKNOWN),
        "stream": (stream, stream != UNKNOWN),
    }


def _planes(values: Column, known: np.ndarray) -> tuple[bytes, list[int]]:
    """The bytes of a column, and its description [minimum, planes]."""
    low = int(values[known].min()) if known.any() else 0
    stored = np.where(known, values - low + 1, 0).astype("<u8")
    count = (int(stored.max(initial=0)).bit_length() + 7) // 8
    return stored.view(np.uint8).reshape(-1, 8)[:, :count].T.tobytes(), [low, count]


def _name(name: str, kind: str) -> str | list[str]:
    """A name, or [name, short name] where they differ."""
    if kind in (STEPS, IDLE, STREAM, *CPU_COLORS):
        return name[:MAX_NAME]
    short = short_name(name)
    return name[:MAX_NAME] if short == name else [name[:MAX_NAME], short[:MAX_NAME]]


def _color(kind: str) -> str:
    return CPU_COLORS.get(kind) or GPU_COLORS.get(kind) or category_color(kind)
