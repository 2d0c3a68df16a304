"""Documents with formulas, rendered for a terminal, as Markdown, and as LaTeX with amsmath.

A document is a list of blocks. Views create the blocks; this module renders them. Writers of Markdown (mdutils) and of
LaTeX (pylatex) know one form each, and none for a terminal: three of them would need this list of blocks, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from roofmodel.errors import Command, Message, Option
from roofmodel.files import output_files
from roofmodel.report import encoding
from roofmodel.report.columns import bare


class Heading(NamedTuple):
    """The title of a document (level 1), a section, an operator."""

    text: str
    level: int = 2


class Paragraph(NamedTuple):
    """One or more sentences."""

    text: str


class Code(NamedTuple):
    """Text in a monospaced font, such as the line of an operator."""

    text: str


class Form(NamedTuple):
    """A formula or value, in Unicode and in LaTeX."""

    text: str
    latex: str


class Equation(NamedTuple):
    """A name and the forms that it equals: formula, numbers, value. Without a name the form is an equation."""

    name: str
    forms: Sequence[Form]


class Equations(NamedTuple):
    """A list of equations, one per line."""

    lines: Sequence[Equation]


class TextTable(NamedTuple):
    """Column titles and rows; a title that starts with `|` right-aligns its column, and a Form is a formula."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Form]]


Block = Heading | Paragraph | Code | Equations | TextTable


FORMS = {"md": "markdown", "tex": "latex", "json": "json"}
"""The format of a text by the suffix of its file."""
SUFFIXES = (*FORMS, "pdf")


class Document(NamedTuple):
    """The output of a command: blocks to render, data for JSON, and notes for stderr."""

    blocks: Sequence[Block]
    data: Any
    notes: Sequence[str | Option | Command | Message] = ()

    @property
    def title(self) -> str:
        return next(block.text for block in self.blocks if isinstance(block, Heading))

    def render(self, form: str) -> str:
        """The document as `json`, `markdown` or `latex`."""
        if form == "json":
            return encoding.as_json(self.data)
        return markdown(self.blocks) if form == "markdown" else latex(self.blocks)

    def save(self, path: str) -> Path:
        """Write the document to a .md, .tex, .json or .pdf file; return its path. Raises OutputError."""
        texts = {suffix: partial(self.render, form) for suffix, form in FORMS.items()}
        target = output_files.check(path, SUFFIXES)
        if output_files.form(target, SUFFIXES) != "pdf":
            return output_files.write(path, None, texts)
        from roofmodel.report.pdf import write_pdf

        output_files.replace(target, lambda file: write_pdf(self.render("latex"), file))
        return target


def text_form(text: str, unit: str = "") -> Form:
    """Plain text, with a unit if given, as a Form."""
    full = f"{text} {unit}".rstrip()
    return Form(full, latex_text(full))


# --- In a terminal ----------------------------------------------------------------------------------


def rich(blocks: Sequence[Block]) -> RenderableType:
    """The blocks as a renderable for `console.print`."""
    parts: list[RenderableType] = []
    for block in blocks:
        if isinstance(block, Heading):
            parts += [*([Text()] if parts else []), Text(block.text, style="bold" if block.level < 3 else "bold cyan")]
        elif isinstance(block, Paragraph):
            parts.append(Text(block.text))
        elif isinstance(block, Code):
            parts.append(Text(block.text, style="green"))
        elif isinstance(block, Equations):
            parts.append(_RichEquations(block.lines))
        else:
            parts.append(_rich_table(block))
    return Group(*parts)


class _RichEquations:
    """Equations after their names; an equation that is too long for one line has one line per form."""

    def __init__(self, lines: Sequence[Equation]) -> None:
        self.lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = RichTable.grid(padding=(0, 1))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        available = options.max_width - 2 - max(cell_len(line.name) for line in self.lines)
        for name, forms in self.lines:
            long = sum(cell_len(form.text) + 3 for form in forms) - 3 > available
            body = Text("\n= " if long else " = ").join(Text(form.text) for form in forms[:-1])
            body.append(("\n= " if long else " = ") if len(forms) > 1 else "").append(forms[-1].text, style="bold")
            grid.add_row(name, body)
        yield grid


def _rich_table(block: TextTable) -> RichTable:
    table = bare()
    for title in block.columns:
        table.add_column(title.strip("|"), justify="right" if title.startswith("|") else "left", overflow="fold")
    for row in block.rows:
        table.add_row(*(Text(_text(cell)) for cell in row))
    return table


# --- Markdown ---------------------------------------------------------------------------------------


def markdown(blocks: Sequence[Block]) -> str:
    """The blocks in GitHub-flavored Markdown, with formulas between dollar signs."""
    return "\n\n".join("\n".join(_markdown(block)) for block in blocks)


def _markdown(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * block.level} {encoding.escape_markdown(block.text)}"
    elif isinstance(block, Paragraph):
        yield encoding.escape_markdown(block.text)
    elif isinstance(block, Code):
        yield f"```\n{block.text}\n```"
    elif isinstance(block, Equations):
        yield "$$\n\\begin{aligned}"
        yield " \\\\\n".join(_aligned(equation) for equation in block.lines)
        yield "\\end{aligned}\n$$"
    else:
        yield f"| {' | '.join(title.strip('|') for title in block.columns)} |"
        yield f"|{'|'.join('---:' if title.startswith('|') else '---' for title in block.columns)}|"
        for row in block.rows:
            yield f"| {' | '.join(_markdown_cell(cell) for cell in row)} |"


def _markdown_cell(cell: str | Form) -> str:
    return f"${cell.latex}$" if isinstance(cell, Form) else encoding.escape_markdown(cell).replace("|", r"\|")


# --- LaTeX ------------------------------------------------------------------------------------------

PREAMBLE = r"""\documentclass{article}
\usepackage[a4paper,margin=2cm]{geometry}
\usepackage{amsmath}
\usepackage{longtable}
\setlength{\parindent}{0pt}
\allowdisplaybreaks
\begin{document}
"""
SECTIONS = {1: "section*", 2: "subsection*", 3: "subsubsection*"}


def latex(blocks: Sequence[Block]) -> str:
    """The blocks as a complete LaTeX file."""
    return PREAMBLE + "\n\n".join("\n".join(_latex(block)) for block in blocks) + "\n\\end{document}"


def _latex(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield rf"\{SECTIONS[block.level]}{{{escape_latex(block.text)}}}"
    elif isinstance(block, Paragraph):
        yield escape_latex(block.text) + r"\par\medskip"
    elif isinstance(block, Code):
        ascii_text = block.text.encode("ascii", encoding.ASCII_FALLBACK).decode("ascii")  # verbatim: ASCII only
        ascii_text = ascii_text.replace(r"\end{verbatim}", r"\end {verbatim}")  # which ends at this text anywhere
        yield f"{{\\footnotesize\n\\begin{{verbatim}}\n{ascii_text}\n\\end{{verbatim}}}}"
    elif isinstance(block, Equations):
        yield r"\begin{align*}"
        yield " \\\\\n".join(_aligned(equation) for equation in block.lines)
        yield r"\end{align*}"
    else:
        widths = _widths(block)
        spec = "".join(
            rf"p{{{width}\linewidth}}" if width else "r" if title.startswith("|") else "l"
            for title, width in zip(block.columns, widths, strict=True)
        )
        yield rf"{{\small\begin{{longtable}}{{{spec}}}"
        yield " & ".join(escape_latex(title.strip("|")) for title in block.columns) + r" \\ \hline"
        for row in block.rows:
            yield " & ".join(f"${c.latex}$" if isinstance(c, Form) else escape_latex(c) for c in row) + r" \\"
        yield r"\end{longtable}}"


def _text(cell: str | Form) -> str:
    return cell.text if isinstance(cell, Form) else cell


WIDE = 40  # characters; a wider column wraps its text


def _widths(block: TextTable) -> list[float | None]:
    """The widths of wide columns as fractions of the line; None for other columns."""
    columns = [[title.strip("|"), *(_text(row[i]) for row in block.rows)] for i, title in enumerate(block.columns)]
    longest = [max(map(len, column)) for column in columns]
    wide = [n for n in longest if n > WIDE]
    available = 0.9 - 0.011 * sum(n for n in longest if n <= WIDE)
    return [round(max(available, 0.3) * n / sum(wide), 2) if n > WIDE else None for n in longest]


LINE = 66  # characters of a formula that fit on one line
_COMMAND = re.compile(r"\\(?:text|mathrm|operatorname|frac|bigl|bigr|cdot|left|right|,|;|quad)\s*|[{}^_]")


def _aligned(equation: Equation) -> str:
    """`name &= formula \\\\ &= value`: on one line if it fits, else at least one line per form."""
    if not equation.name:  # the form is an equation
        return rf"&{equation.forms[0].latex}"
    name = latex_text(equation.name)
    single_line = " = ".join(form.latex for form in equation.forms)
    if _length(single_line) <= LINE:
        return f"{name} &= {single_line}"
    return f"{name} " + " \\\\\n".join(f"&= {_broken(form.latex)}" for form in equation.forms)


def _length(latex: str) -> int:
    return len(_COMMAND.sub("", latex))


def _broken(latex: str) -> str:
    """A formula broken into lines at its plus and minus signs."""
    lines, line = [], ""
    for part in _summands(latex):
        if line and _length(line + part) > LINE:
            lines.append(line)
            line = ""
        line += part
    return " \\\\\n&\\quad {}".join([*lines, line])


def _summands(latex: str) -> Iterator[str]:
    """The parts of a formula between plus and minus signs that are outside braces."""
    start = depth = 0
    for index, letter in enumerate(latex):
        depth += (letter == "{") - (letter == "}")
        if depth == 0 and index > start and (latex.startswith((" + ", " - "), index)):
            yield latex[start:index]
            start = index
    yield latex[start:]


_TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "_": r"\_", "#": r"\#", "%": r"\%", "&": r"\&", "$": r"\$",
    "^": r"\^{}", "~": r"\~{}", "<": r"\ensuremath{<}", ">": r"\ensuremath{>}", "|": r"\ensuremath{|}",
    "×": r"\ensuremath{\times}", "·": r"\ensuremath{\cdot}", "−": r"\ensuremath{-}", "≥": r"\ensuremath{\ge}",
    "≤": r"\ensuremath{\le}", "≈": r"\ensuremath{\approx}", "→": r"\ensuremath{\to}", "µ": r"\ensuremath{\mu}",
    "π": r"\ensuremath{\pi}", "β": r"\ensuremath{\beta}", "Σ": r"\ensuremath{\Sigma}", "⌈": r"\ensuremath{\lceil}",
    "⌉": r"\ensuremath{\rceil}", "⌊": r"\ensuremath{\lfloor}", "⌋": r"\ensuremath{\rfloor}", "…": r"\dots{}",
    "–": r"\textendash{}", "ᵀ": r"\ensuremath{^T}", "√": r"\ensuremath{\surd}",
    **{sign: rf"\ensuremath{{^{digit}}}" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Plain text for LaTeX: its special characters escaped, characters beyond ASCII as commands."""
    plain_text = "".join(_TEX.get(letter, letter if ord(letter) < 0x180 else "?") for letter in text)
    return plain_text.replace("--", "-{}-")  # without the braces, TeX prints a dash


def latex_text(text: str) -> str:
    r"""Plain text within a formula, as in `\text{W}\_\text{up}`.

    Characters that need a command are outside `\text`, in which MathJax, the renderer of notebooks and code hosts,
    accepts no commands.
    """
    pieces = enumerate(_SPECIAL.split(text))
    return "".join(
        _formula_commands(piece) if index % 2 else rf"\text{{{_escape_piece(piece)}}}"
        for index, piece in pieces
        if piece
    )


_AS_TEXT = "{}$–"  # characters that LaTeX and MathJax accept within \text
_SPECIAL = re.compile(rf"([{re.escape(''.join(_TEX.keys() - set(_AS_TEXT)))}]+)")
# commands in formulas that differ from those in text
_IN_FORMULAS = {"^": r"\hat{\ }", "~": r"\sim", "\\": r"\backslash", "…": r"\dots"}


def _formula_commands(letters: str) -> str:
    return "".join(_IN_FORMULAS.get(letter, _TEX[letter].removeprefix(r"\ensuremath")) for letter in letters)


def _escape_piece(piece: str) -> str:
    return escape_latex(piece).replace(_TEX["–"], "–").replace("-{}-", r"-}\text{-")
