"""Tables: what columns give in a terminal, in JSON, CSV and Markdown."""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import roofmodel
from roofmodel.report.document import Document, Rows
from roofmodel.report.html import rows_html
from roofmodel.report.markdown import markdown
from roofmodel.report.table import BYTES, COUNT, MIN_NAME_WIDTH, NAME, PERCENT, SECONDS, Column, Table, joined
from tests.printing import printed


class Cost(NamedTuple):
    bytes: Any


class Kernel(NamedTuple):
    name: str
    seconds: float | None
    cost: Cost | None
    grid: tuple[int, ...] = (1, 2)
    sizes: dict[str, int] | None = None


KERNELS = Table(
    "kernels",
    (
        Column("name", "kernel", NAME),
        Column("seconds", "time", SECONDS, priority=1, legend="time: of one launch"),
        Column("bytes", "bytes", BYTES, "cost.bytes", priority=0, unknown="–"),
        Column(None, "share", PERCENT, lambda row: 0.5),
        Column("grid", flat=joined("x")),
        Column("sizes", flat=("m", "n")),
    ),
    marks={"–": "– not collected", "?": "? unknown"},
)
ROWS = [Kernel("gemm", 2e-3, Cost(Fraction(3, 2)), sizes={"m": 3, "n": 4}), Kernel("copy", None, None)]


def test_records_have_base_units_and_none_for_unknown() -> None:
    assert KERNELS.records(ROWS) == [
        {"name": "gemm", "seconds": 2e-3, "bytes": 1.5, "grid": (1, 2), "sizes": {"m": 3, "n": 4}},
        {"name": "copy", "seconds": None, "bytes": None, "grid": (1, 2), "sizes": None},
    ]


def test_the_rows_may_be_dicts() -> None:
    assert Table("t", [Column("a"), Column("c", value="b.c")]).records([{"a": 1, "b": {"c": 2}}]) == [{"a": 1, "c": 2}]


def test_a_csv_has_no_lists_and_no_records() -> None:
    assert KERNELS.csv(ROWS).splitlines() == [
        "name,seconds,bytes,grid,sizes_m,sizes_n", "gemm,0.002,1.5,1x2,3,4", "copy,,,1x2,,",
    ]  # fmt: skip


def test_a_csv_and_a_data_frame_without_rows_have_the_columns() -> None:
    assert KERNELS.csv([]) == "name,seconds,bytes,grid,sizes_m,sizes_n"
    assert list(KERNELS.frame([]).columns) == list(KERNELS.frame(ROWS).columns) == KERNELS.csv([]).split(",")


def test_markdown_aligns_numbers_right_and_makes_rows_with_a_style_bold() -> None:
    table = KERNELS._replace(style=lambda row: "bold" if row.name == "copy" else "")
    assert markdown(Document("kernels", [Rows(table, ROWS)], dict)).splitlines() == [
        "# kernels",
        "",
        "| kernel | time | bytes | share |",
        "|---|---:|---:|---:|",
        "| gemm | 2 ms | 1.5 B | 50% |",
        "| **copy** |  | **–** | **50%** |",
        "",
        "– not collected; time: of one launch",
    ]


def test_html_has_the_columns_and_legends_of_a_terminal() -> None:
    html = rows_html(Rows(KERNELS, [*ROWS, Kernel("<b>", None, None)]))
    head, *lines = re.findall("<tr>(.*?)</tr>", html)
    assert re.findall("<th.*?>(.*?)</th>", head) == ["kernel", "time", "bytes", "share"]
    assert lines[0] == '<th scope="row" class="word">gemm</th><td>2 ms</td><td>1.5 B</td><td>50%</td>'
    assert lines[2].startswith('<th scope="row" class="word">&lt;b&gt;</th>')
    assert html.endswith('<p class="note">– not collected; time: of one launch</p>')


@pytest.mark.parametrize(
    ("width", "titles"),  # 18 for the name, 4 + 5 + 5 for the others, a blank between two columns
    [(35, ["kernel", "time", "bytes", "share"]), (34, ["kernel", "time", "share"]), (28, ["kernel", "share"])],
)
def test_the_columns_with_the_lowest_priority_are_left_out_first(width: int, titles: list[str]) -> None:
    lines = printed(KERNELS.terminal(ROWS), width).splitlines()
    assert lines[0].split() == titles
    left_out = ", ".join(title for title in ("time", "bytes") if title not in titles)
    if left_out:  # it is the last line, wrapped to the width
        assert " ".join(" ".join(lines).split()).endswith(f"not shown at {width} columns: {left_out}")
    else:
        assert "not shown" not in "".join(lines)


@pytest.mark.parametrize("width", [40, 55, 70, 160])
def test_names_keep_a_minimum_width_and_numbers_are_never_cut(width: int) -> None:
    names = ("void cutlass::gemm::kernel<128, 128>(float*)", "copy")
    lines = printed(KERNELS.terminal([ROWS[0]._replace(name=name) for name in names]), width).splitlines()
    assert all(len(line) <= width for line in lines)
    long, short = (line.split() for line in lines[1:3])
    assert short[:3] == ["copy", "2", "ms"]
    assert long[-5:] == short[-5:] == ["2", "ms", "1.5", "B", "50%"]
    assert len(lines[1].partition("2 ms")[0].rstrip()) >= MIN_NAME_WIDTH


def test_a_column_in_which_nothing_is_known_is_left_out() -> None:
    assert printed(KERNELS.terminal(ROWS[1:]), 60).split() == ["kernel", "share", "copy", "50%"]


def test_a_line_end_in_a_name_does_not_shift_the_rows_below() -> None:
    table = Table("rows", [Column("name", "name"), Column("number", "number", COUNT)])
    lines = printed(table.terminal([{"name": "a\nb", "number": 1}, {"name": "c", "number": 2}]), 40).splitlines()
    assert [line.split() for line in lines] == [["name", "number"], ["a", "b", "1"], ["c", "2"]]


def test_a_table_without_rows_prints_nothing() -> None:
    assert printed(KERNELS.terminal([]), 60).strip() == ""


def test_a_legend_is_below_the_columns_and_marks_that_are_there() -> None:
    table = KERNELS.terminal([*ROWS, Kernel("is_it?", 1.0, None)])
    assert printed(table, 60).splitlines()[-1].rstrip() == "– not collected; time: of one launch"
    assert "of one launch" not in printed(table, 28)


def test_without_leaves_out_columns_by_key_or_title() -> None:
    table, _ = Rows(KERNELS.without("seconds", "share", "grid", "sizes"), ROWS[:1]).as_text_table()
    assert table.columns == ["kernel", "|bytes"]


def test_every_column_of_a_file_has_a_meaning() -> None:
    """A call `Column(None, …)` declares a column that no file has; all others need the argument `meaning`."""
    package = Path(roofmodel.__file__).parent
    lacking, found = [], 0
    for path in package.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Column":
                key = ast.unparse(call.args[0])
                found += key != "None"
                if key != "None" and "meaning" not in {keyword.arg for keyword in call.keywords}:
                    lacking.append(f"{path.relative_to(package)}:{call.lineno}: {key}")
    assert found > 100
    assert lacking == []


def test_long_layouts_wrap_in_a_narrow_terminal_and_the_rank_stays() -> None:
    long = "tp 2 pp 4 ep 2 → tp 4 pp 2 ep 4"
    row = {"": "1", "layout": long, "formats": "bf16 weights fp8_block kv fp8", "TPOT": "45.2 ms", "MFU": "50%"}
    wrapped = ("layout", "formats")
    table = Table("t", [Column(None, title, value=title, wrap=title in wrapped) for title in row])
    text = printed(table.terminal([row]), 50)
    assert "…" not in text
    assert all(word in text for word in ("1", "ep 2 →", "tp 4", "fp8_block", "45.2 ms", "50%"))
