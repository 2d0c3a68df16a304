"""Texts with formulas: in a terminal, as Markdown, as LaTeX that compiles."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.errors import Option
from roofmodel.explain import answer as explanation
from roofmodel.explain.explain import explain
from roofmodel.models import hub
from roofmodel.report import latex as latex_module
from roofmodel.report.document import (
    Code,
    Document,
    Equation,
    Equations,
    Form,
    Heading,
    Paragraph,
    Rows,
    TextTable,
)
from roofmodel.report.html import html
from roofmodel.report.latex import escape_latex, latex, text_form
from roofmodel.report.markdown import markdown
from roofmodel.report.table import COUNT, Column, Table
from roofmodel.report.terminal import TerminalDocument
from tests.printing import printed

BLOCKS = [
    Code("x[b t] -> y[b t]  # 100 %\n\nmore → text"),
    Equations([Equation("matmul FLOPs", [Form("2BSD", "2BSD"), Form("2 · 1", r"2 \cdot 1"), text_form("2 FLOP")])]),
    TextTable(("name", "|value", "formula"), [("a|b", "12", Form("D²", "D^{2}"))]),
]


DOCUMENT = Document("a_b & c", BLOCKS, dict)


def shown(width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    console.print(TerminalDocument(DOCUMENT))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_an_equation_that_is_too_long_has_a_line_for_each_form() -> None:
    assert "matmul FLOPs 2BSD = 2 · 1 = 2 FLOP" in re.sub(" +", " ", shown(60))
    assert [line.strip() for line in shown(30).splitlines() if line.strip().startswith("=")] == ["= 2 · 1", "= 2 FLOP"]


def test_a_terminal_has_fewer_headings_and_rows_than_a_page() -> None:
    table = Table("rows", [Column(None, "row", COUNT, lambda row: row)])
    blocks = [
        Paragraph("42 ms", bold=True),
        Heading("Rows", only_page=True),
        Rows(table, range(7, 10), 2, formats=["json"]),
    ]
    document = Document("title", blocks, dict)
    console = Console(file=io.StringIO(), width=80)
    console.print(TerminalDocument(document))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines == ["title", "42 ms", "", "row", "  7", "  8", f"and 1 more; {Option('format', 'json')} lists all"]
    assert markdown(document).split("\n\n")[1:3] == ["**42 ms**", "## Rows"]
    page = html(document)
    assert '<p class="bold">42 ms</p>\n<h2>Rows</h2>' in page
    assert "<td>9</td>" in page


def test_a_paragraph_on_a_column_is_shown_with_the_column() -> None:
    """At 7 columns, `aa` and its blank leave 4 for `bbbbb`, which a narrow terminal may leave out; no row has a `c`."""
    table = Table("t", [Column("a", "aa"), Column("b", "bbbbb", priority=1), Column("c", "c")])
    legends = [Paragraph(f"on {title}", columns=(title,)) for title in ("aa", "bbbbb", "c")]
    document = Document("t", [Rows(table, [{"a": "x", "b": "y", "c": None}]), *legends], dict)

    def explained(width: int) -> list[str]:
        console = Console(file=io.StringIO(), width=width)
        console.print(TerminalDocument(document))
        return re.findall("^on .*(?=\n)", console.file.getvalue(), re.MULTILINE)  # type: ignore[attr-defined]

    assert (explained(7), explained(8)) == (["on aa"], ["on aa", "on bbbbb"])
    assert re.findall("on .*", markdown(document)) == ["on aa", "on bbbbb"]


def test_markdown_has_formulas_between_dollars_and_escapes_bars() -> None:
    text = markdown(DOCUMENT)
    assert "# a_b &amp; c" in text
    assert r"\text{matmul FLOPs} &= 2BSD = 2 \cdot 1 = \text{2 FLOP}" in text
    assert "| a\\|b | 12 | $D^{2}$ |" in text


def test_latex_special_characters_are_escaped() -> None:
    assert escape_latex("50% of W_up & {x} ~ --seq · 2³") == (
        r"50\% of W\_up \& \{x\} \~{} -{}-seq \ensuremath{\cdot} 2\ensuremath{^3}"
    )


def compiled(text: str, folder: Path) -> str:
    """The output of pdflatex for a file; skips without pdflatex."""
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed: apt-get install texlive-latex-base")
    (folder / "page.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (folder / "page.pdf").stat().st_size > 10_000
    return done.stdout


def test_the_blocks_compile(tmp_path: Path) -> None:
    compiled(latex(DOCUMENT), tmp_path)


@pytest.mark.parametrize("model", ["gpt2-xl", "mixtral-8x7b-v0.1", "deepseek-v3", "resnet-50", "matmul"])
def test_a_derivation_compiles_with_amsmath(model: str, tmp_path: Path) -> None:
    log = compiled(roofmodel.explain(model, "a100").to_latex(), tmp_path)
    wide = [float(points) for points in re.findall(r"Overfull \\hbox \((\d+)\.", log)]
    assert max(wide, default=0) < 120  # points: a formula may stick out a little, not leave the page (margins 57)


def test_the_conventions_compile(tmp_path: Path) -> None:
    from roofmodel.explain import conventions

    compiled(latex(conventions.document()), tmp_path)


def test_a_derivation_is_saved_by_the_suffix(tmp_path: Path) -> None:
    derivation = roofmodel.explain("saxpy", dtype="fp64")
    for suffix, begins in (("tex", "\\documentclass"), ("md", "# saxpy"), ("json", "{")):
        file = tmp_path / f"saxpy.{suffix}"
        derivation.save(file)
        assert file.read_text(encoding="utf-8").startswith(begins)
    assert json.loads((tmp_path / "saxpy.json").read_text())["schema"] == "roofmodel.explain/1"
    with pytest.raises(roofmodel.OutputError, match=r"unknown suffix '\.png'; known: \.html, \.json, \.csv, \.md"):
        derivation.save(tmp_path / "saxpy.png")


def test_text_in_formulas_has_no_commands_that_mathjax_would_show() -> None:
    assert latex_module.latex_text("of W_up, 2 × 50%") == r"\text{of W}\_\text{up, 2 }{\times}\text{ 50}\%"
    everything = "".join(latex_module._TEX)
    for piece in re.findall(r"\\text\{((?:[^{}]|\\[{}])*)\}", latex_module.latex_text(f"a {everything} b -- c")):
        assert not re.search(r"\\[^{}$]", piece)


def test_names_of_unknown_origin_are_only_text(tmp_path: Path) -> None:
    """Names with a tag, with a closing delimiter, and with a lone surrogate."""
    name = r"m<img src=x onerror=alert(1)>&lt; \end{verbatim}\input{x}"
    shown = Document(name, [Paragraph(name), TextTable(("a",), [(name,)]), Code(name)], dict)
    *text, code = markdown(shown).split("```", 1)
    assert "<" not in text[0]
    assert text[0].count("m&lt;img") == text[0].count("&amp;lt;") == 3
    assert name in code  # between its fences it is none
    assert latex(shown).count(r"\end{verbatim}") == 1
    assert "<img" not in html(shown)
    assert html(shown).count("&lt;img") == 5  # the title in the head, too
    folder = tmp_path / "m<img src=x>"
    folder.mkdir()
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100, "n_positions": 1024}
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    document = roofmodel.estimate(str(folder), "a100", phase="prefill", seq=8).text("markdown")
    assert "<" not in document
    assert "m&lt;img src=x>" in document


def test_markdown_reads_no_emphasis_in_a_name() -> None:
    name = "void __kernel__<float*>(float* x, int*) a_b _c"
    escaped = "void &#95;&#95;kernel&#95;&#95;&lt;float&#42;>(float&#42; x, int&#42;) a_b &#95;c"
    text = markdown(Document(name, [TextTable((name,), [(name,)])], dict))
    assert text.splitlines() == [f"# {escaped}", "", f"| {escaped} |", "|---|", f"| {escaped} |"]


def test_a_table_without_rows_is_left_out() -> None:
    table = Rows(Table("rows", [Column("name", "name")]), [])
    document = Document("title", [Paragraph("before"), table, Paragraph("after")], dict)
    assert markdown(document) == "# title\n\nbefore\n\nafter"
    assert "<table" not in html(document)
    assert "longtable}{" not in latex(document)


def test_no_table_of_a_derivation_is_empty() -> None:
    # a collective asks nothing of the chip
    found = explanation.document(explain(hub.load("gpt2"), Device.load("a100"), phase="decode", tp=2))
    assert all(block.rows for block in found.blocks if isinstance(block, TextTable))


def test_the_title_of_a_column_counts_for_the_width_that_is_left() -> None:
    """A column is as wide as its title: 20 characters leave less of the line than 2."""
    wide, narrow = (
        latex(Document("", [TextTable((title, "text"), [("a", "b" * 60)])], dict)) for title in ("t" * 20, "tt")
    )
    assert r"p{0.68\linewidth}" in wide  # 0.9 - 20 x 0.011
    assert r"p{0.88\linewidth}" in narrow


def test_rows_that_stand_out_are_bold_and_names_keep_their_indents(tmp_path: Path) -> None:
    table = Table("t", [Column("a", "a"), Column("b", "b", COUNT)], style=lambda row: "bold" if row["b"] > 1 else "")
    document = Document("t", [Rows(table, [{"a": "sum_x", "b": 2}, {"a": "  part|*", "b": 1}])], dict)
    assert markdown(document).splitlines()[-2:] == ["| **sum_x** | **2** |", r"| &nbsp;&nbsp;part\|&#42; | 1 |"]
    text = latex(document)
    assert "\\textbf{sum\\_x} & \\textbf{2} \\\\\n~~part" in text
    assert '<tr class="bold"><td class="word">sum_x</td><td>2</td></tr><tr><td class="word">  part|*</td>' in html(
        document
    )
    compiled(text, tmp_path)


def test_a_table_whose_long_column_would_be_narrow_has_a_block_for_each_row() -> None:
    """At 80 columns 20 + 20 + 20 and three blanks leave 17 for the texts; at 110, 47."""
    names = [letter * 20 for letter in "abc"]
    rows = [(names[0], "long " * 30, names[1], names[2]), ("d", "short", "", "e")]
    document = Document("title", [TextTable(("topic", "text", "more", "|option"), rows)], dict)

    def shown(width: int) -> list[str]:
        return [line.rstrip() for line in printed(TerminalDocument(document), width).splitlines()]

    assert shown(80)[1:3] == [names[0], "  text    " + "long " * 13 + "long"]
    assert shown(80)[-3:] == ["d", "  text    short", "  option  e"]
    assert shown(110)[1].split() == ["topic", "text", "more", "option"]
