"""The roofline page: an interactive HTML file of points under a device's ceilings, drawn by Plotly, self-contained.

Python writes the table, the texts and the data; `page.js` draws the chart, filters and sorts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

from roofmodel.errors import OutputError
from roofmodel.numbers import units
from roofmodel.report.html import IMAGE_SOURCES, SCRIPT_SOURCES, page_file, render_page
from roofmodel.report.marks import SeriesStyle
from roofmodel.roofline.judged_kernels import Why, listed_reasons
from roofmodel.roofline.naming import names_of_points
from roofmodel.roofline.panel import (
    TAIL_NOTE,
    Panel,
    categories,
    point_style,
    provenance,
    view,
)
from roofmodel.roofline.points import Point
from roofmodel.roofline.reasons import TITLES
from roofmodel.version import __version__

SYMBOLS = {
    "o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross", "X": "x",
    "*": "star",
}  # fmt: skip
"""The names of the shapes of `report/marks.py` in Plotly."""
LEVEL_SYMBOLS = {"l2": ("line-ns-open", "|"), "l1": ("x-thin-open", "×")}
"""The marks of a point at its intensity of L2 and of L1 traffic, in Plotly and as characters; as in pictures."""
LEVEL_SIZE = 0.7  # of these marks, in font sizes
NAMED = 6  # points with their name in the chart: so many with the most time, measured and predicted each
MAX_NAME = 22  # characters of such a name


def html(heading: str, sources: Sequence[str], panels: Sequence[Panel], warnings: Sequence[str]) -> str:
    """The page as HTML. `sources` describe the origin of the points: files, a model, a workload.

    Raises OutputError if plotly is not installed.
    """
    everything = [(i, point) for i, panel in enumerate(panels) for point in panel.points]
    window = view(panels)
    at_dram = sorted((p for _, p in everything if p.level == "dram"), key=lambda p: -(p.share or 0))
    # for several devices, names of predicted points would cover the names of the ceilings that they are on
    named_kinds = (False, True) if len(panels) == 1 else (False,)
    longest = [p for which in named_kinds for p in [p for p in at_dram if p.predicted is which][:NAMED]]
    short = names_of_points(longest, MAX_NAME)
    shown = {point: short[point.name] for point in longest}
    data = {
        "across": [math.log10(window.left), math.log10(window.right)],
        "up": [math.log10(window.bottom), math.log10(window.top)],
        "ticks": {
            "across": [(x, units.significant(x)) for x in _ticks(-9, 9)],
            "up": [(y, units.si(y, "FLOP/s")) for y in _ticks(-3, 18)],
        },
        "ceilings": [_ceilings(i, panels) for i in range(len(panels))],
        "points": [
            _mark(n, i, panels[i].device.id, point, shown.get(point, ""), point_style(panels, i, point.category))
            for n, (i, point) in enumerate(everything)
        ],
    }
    columns = _columns(point for _, point in everything)
    names = [panel.device.id if len(panels) > 1 else "" for panel in panels]
    return render_page(
        page_file("roofline", "page.html"),
        title=heading,
        sources=[SCRIPT_SOURCES, IMAGE_SOURCES],
        heading=escape(heading),
        provenance=escape(provenance(panels, sources)),
        toggles="\n".join(_toggles(panels)),
        warnings=_warnings(warnings),
        why="\n".join(_why(panels)),
        tail=TAIL_NOTE if any(point.unpacked for _, point in everything) else "",
        groups=escape(panels[0].groups),
        styled="device" if len(panels) > 1 else "kind of work",
        header=_header(columns, panels[0].item, len(panels) > 1),
        rows="\n".join(_row(n, i, names[i], point, columns) for n, (i, point) in enumerate(everything)),
        footer=f"roofmodel {__version__}; drawn by Plotly.js.",
        style=page_file("roofline", "page.css"),
        script=page_file("roofline", "page.js"),
        plotly=_plotly(),
        # without "<" no name can close the script element
        data=json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
    )


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise OutputError(
            "an .html page needs plotly, which is not installed: pip install plotly, or write .png, .svg or .pdf"
        ) from None
    return str(get_plotlyjs())


# --- Data of the chart ------------------------------------------------------------------------------


def _ticks(low: int, high: int) -> list[float]:
    return [float(f"{digit}e{power}") for power in range(low, high) for digit in (1, 2, 5)]


def _ceilings(index: int, panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """The ceilings of a device: name, rate (FLOP/s or B/s), and the tokens of the checkboxes that show it."""
    panel, several = panels[index], len(panels) > 1
    prefix = f"{panel.device.id} " if several else ""
    color = point_style(panels, index, "").color if several else None  # None: the color of text
    shared = {"device": index, "color": color}

    def ceiling(kind: str, name: str, rate: float, text: str, main: bool) -> dict[str, Any]:
        tokens = [_token(kind, name), _token("device", index)]
        return {
            **shared,
            "kind": kind,
            "name": name,
            "rate": rate,
            "text": f"{prefix}{text}",
            "main": main,
            "tokens": tokens,
        }

    pipes = sorted(panel.device.pipes.values(), key=lambda pipe: -pipe.peak)
    return [
        *(
            ceiling("pipe", p.name, p.peak, f"{p.name} {units.si(p.peak, 'FLOP/s', 4)}", p == panel.pipes[0])
            for p in pipes
        ),
        *(
            ceiling("level", v.name, v.bandwidth, f"{v.label} {units.si(v.bandwidth, 'B/s', 4)}", v.name == "dram")
            for v in panel.device.levels.values()
            if v.bandwidth
        ),
    ]


def _mark(number: int, index: int, device: str, point: Point, name: str, style: SeriesStyle) -> dict[str, Any]:
    """A point as `page.js` draws it; without x if it has no FLOPs. Sizes are in font sizes."""
    placed = bool(point.intensity and point.flops_per_second)
    above = point.finding is not None
    sign = "↑" if point.incomplete else ""
    if name:
        part = "" if point.predicted or point.fraction is None else f" {'≥' * point.incomplete}{point.fraction:.0%}"
        sign = f"{name}{part}"
    if point.level in LEVEL_SYMBOLS:
        symbol, size = LEVEL_SYMBOLS[point.level][0], LEVEL_SIZE
    else:
        symbol = SYMBOLS[style.shape] + ("-open" if point.predicted else "")
        size = max(0.55, 4 * math.sqrt(point.share or 0))  # so that the area is proportional to the share
    return {
        "id": number,
        "name": point.name,
        "x": point.intensity if placed else None,
        "y": point.flops_per_second,
        "low": point.unpacked,
        "size": size,
        "symbol": symbol,
        "hollow": point.predicted,
        "opacity": 0.9,
        "color": style.color,
        "above": above,
        "sign": f"above the ceiling {point.fraction:.0%}" if above else sign,
        "tokens": _tokens(index, point),
        "facts": _facts(device, point),
    }


def _toggles(panels: Sequence[Panel]) -> Iterator[str]:
    """Checkboxes, which are also the legend: memory levels, pipes, categories, marks and devices."""
    devices = [panel.device for panel in panels]
    levels = {level.name: level.label for d in devices for level in d.levels.values() if level.bandwidth}
    pipes = {p.name: p.peak for d in devices for p in d.pipes.values()}
    shown = {pipe.name for panel in panels for pipe in panel.pipes}
    shown |= {"dram"} if len(panels) > 1 else {level.name for level in panels[0].levels}
    several = len(panels) > 1
    marks = dict.fromkeys(_mark_kind(p) for panel in panels for p in panel.points)
    signs = {name: f'<span class="swatch">{sign}</span>' for name, (_, sign) in LEVEL_SYMBOLS.items()}
    yield from _boxes("Memory", [("level", n, label, signs.get(n, ""), n in shown) for n, label in levels.items()])
    yield from _boxes("Pipes", [("pipe", n, n, "", n in shown) for n in sorted(pipes, key=lambda n: -pipes[n])])
    yield from _boxes(
        "Work",
        [("work", k, k, "" if several else _swatch(point_style(panels, 0, k)), True) for k in categories(panels)],
    )
    yield from _boxes("Marks", [("kind", kind, kind, "", True) for kind in marks])
    yield from _boxes(
        "Devices", [("device", i, d.name, _swatch(point_style(panels, i, "")), True) for i, d in enumerate(devices)]
    )


def _swatch(style: SeriesStyle) -> str:
    return f'<span class="swatch" style="color:{style.color}">{style.glyph}</span>'


def _boxes(title: str, boxes: Sequence[tuple[str, object, str, str, bool]]) -> Iterator[str]:
    """A set of checkboxes, each with token group, token, label, swatch and state; none for a single box."""
    if len(boxes) > 1:
        yield f"<fieldset><legend>{title}</legend>"
        for group, item, label, swatch, checked in boxes:
            on = " checked" if checked else ""
            box = f'<input type="checkbox" value="{escape(_token(group, item))}" autocomplete="off"{on}>'
            yield f"<label>{box} {swatch} {escape(label)}</label>"
        yield "</fieldset>"


def _tokens(index: int, point: Point) -> list[str]:
    """The tokens of the checkboxes that show a point."""
    pairs = [("device", index), ("level", point.level), ("kind", _mark_kind(point)), ("work", point.category)]
    return [_token(group, item) for group, item in (*pairs, *([("pipe", point.pipe)] if point.pipe else []))]


def _token(group: str, item: object) -> str:
    return f"{group}:{item}".replace(" ", "-")  # spaces separate tokens


def _mark_kind(point: Point) -> str:
    return "predicted" if point.predicted else "measured"


# --- Table and point details -----------------------------------------------------------------------


class PointColumn(NamedTuple):
    """A column of the table, also shown as a line of a point's details."""

    title: str
    field: str
    write: Callable[[Any], str]
    word: bool = False  # sorted alphabetically
    least: bool = False  # a lower bound if not all FLOPs were counted

    def text(self, point: Point) -> str:
        """The value with its unit; empty if unknown, `?` if it depends on FLOPs that were not collected."""
        value = getattr(point, self.field)
        if self.field == "fraction" and point.predicted:
            return "at its bound"
        if value is None:
            return "?" if self.field == "bound" and point.incomplete else ""
        return f"≥ {self.write(value)}" if self.least and point.incomplete else self.write(value)


COLUMNS = (
    PointColumn("launches", "invocations", units.grouped),
    PointColumn("time", "seconds", units.seconds),
    PointColumn("share", "share", "{:.1%}".format),
    PointColumn("memory", "level", str.upper, word=True),
    PointColumn("intensity", "intensity", lambda x: f"{units.significant(x)} FLOP/B", least=True),
    PointColumn("performance", "flops_per_second", lambda x: units.si(x, "FLOP/s"), least=True),
    PointColumn("bandwidth", "bytes_per_second", lambda x: units.si(x, "B/s")),
    PointColumn("attainable", "attainable", lambda x: units.si(x, "FLOP/s")),
    PointColumn("share of the ceiling", "fraction", "{:.1%}".format, least=True),
    PointColumn("bound by", "bound", str, word=True),
    PointColumn("pipe", "pipe", str, word=True),
    PointColumn("work", "category", str, word=True),
    PointColumn("occupancy", "occupancy", "{:.0%}".format),
    PointColumn("registers", "registers", str),
    PointColumn("why", "reasons", lambda reasons: reasons[0].evidence if reasons else "", word=True),
)


def _facts(device: str, point: Point) -> list[tuple[str, str]]:
    """The known values of a point as (title, text), and notes on it."""
    facts = [("device", device), *((column.title, column.text(point)) for column in COLUMNS)]
    notes = [] if point.finding is None else [f"above its ceiling: {point.finding}"]
    if point.predicted:
        notes.append("predicted, at its bound")
    if point.incomplete:
        notes.append("a lower bound: not all FLOPs were counted")
    if point.unpacked:
        across, up = units.significant(point.unpacked[0]), units.si(point.unpacked[1], "FLOP/s")
        notes.append(f"{across} FLOP/B and {up} if each fp16 instruction processes one value, not two")
    return [*((title, text) for title, text in facts if text), *(("note", note) for note in notes)]


def _columns(points: Iterable[Point]) -> list[PointColumn]:
    """The columns for which at least one point has a value."""
    all_points = list(points)
    return [column for column in COLUMNS if any(getattr(p, column.field) not in (None, ()) for p in all_points)]


def _why(panels: Sequence[Panel]) -> Iterator[str]:
    """A table of the longest kernels of each device with their first reasons, as in the terminal."""
    heads = ("kernel", *["device"] * (len(panels) > 1), "reason", "evidence", "saves")
    rows = [
        (row.name, *[panel.device.id] * (len(panels) > 1), *_first_reason(row))
        for panel in panels
        for row in listed_reasons({p.name: p.reasons for p in panel.points if not p.predicted}, panel.not_judged)
    ]
    if rows:
        yield '<table id="why">\n<caption>Why (saves: an estimate of the time that removing the reason saves)</caption>'
        yield f"<thead><tr>{''.join(f'<th scope=col>{head}</th>' for head in heads)}</tr></thead>\n<tbody>"
        for row in rows:
            yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
        yield "</tbody>\n</table>"


def _first_reason(row: Why) -> tuple[str, str, str]:
    """The title of a kernel's first reason, its evidence, and what its removal saves."""
    if not row.reasons:
        return row.none, "", ""
    first = row.reasons[0]
    return TITLES[first.reason], first.evidence, units.seconds(row.saves) if row.saves else "–"


def _header(columns: Iterable[PointColumn], item: str, several: bool) -> str:
    cells = [f'<th scope="col" class="word"><button>{name}</button></th>' for name in (item, *["device"] * several)]
    cells += [f'<th scope="col"{_class(c)}><button>{c.title}</button></th>' for c in columns]
    return "\n".join(cells)


def _row(number: int, index: int, device: str, point: Point, columns: Iterable[PointColumn]) -> str:
    """A row of the table; `device` is empty for a page of one device."""
    name = escape(point.name)
    flag = ' <span class="above">above the ceiling</span>' if point.finding is not None else ""
    cells = [f'<th scope="row" class="word" data-value="{name}"><button title="{name}">{name}{flag}</button></th>']
    if device:
        cells.append(f'<td class="word" data-value="{escape(device)}">{escape(device)}</td>')
    for column in columns:
        value = getattr(point, column.field)
        raw = escape(column.text(point) if column.field == "reasons" else "" if value is None else str(value))
        cells.append(f'<td{_class(column)} data-value="{raw}">{escape(column.text(point))}</td>')
    tokens = escape(" ".join(_tokens(index, point)))
    return f'<tr data-point="{number}" data-tokens="{tokens}">{"".join(cells)}</tr>'


def _class(column: PointColumn) -> str:
    return ' class="word"' if column.word else ""


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "\n".join(f"<li>{escape(warning.removeprefix('warning: '))}</li>" for warning in warnings)
    return f'<section class="warnings" aria-label="Warnings">\n<ul>\n{items}\n</ul>\n</section>'
