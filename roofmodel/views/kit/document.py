"""A text with formulas, in three renderings: for a terminal, as Markdown, as LaTeX that amsmath suffices for.

A document is a list of blocks. What a view wants to say it says once, in blocks; how they look is decided here.
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

from roofmodel.errors import Message, Option
from roofmodel.views.kit import encoding, files
from roofmodel.views.kit.columns import bare


class Heading(NamedTuple):
    """The title of a document (level 1), a section, an operator."""

    text: str
    level: int = 2


class Paragraph(NamedTuple):
    """A sentence or more."""

    text: str


class Code(NamedTuple):
    """What is to be read letter by letter, such as an operator's line."""

    text: str


class Form(NamedTuple):
    """One way to write a quantity: in Unicode, and in LaTeX."""

    text: str
    latex: str


class Equation(NamedTuple):
    """A quantity, and what it equals: formula, the same with numbers, the value; without a name, an equation itself."""

    name: str
    forms: Sequence[Form]


class Equations(NamedTuple):
    """Equations one below another."""

    lines: Sequence[Equation]


class Table(NamedTuple):
    """Columns by title, those after a `|` on the right, and rows; a cell that is a Form is a formula."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Form]]


Block = Heading | Paragraph | Code | Equations | Table


class Document(NamedTuple):
    """What a command shows: blocks for people, data for programs, notes beside them."""

    blocks: Sequence[Block]
    data: Any
    notes: Sequence[str | Option | Message] = ()

    @property
    def title(self) -> str:
        return next(block.text for block in self.blocks if isinstance(block, Heading))

    def written(self, form: str) -> str:
        """As `json`, `markdown` or `latex`."""
        if form == "json":
            return encoding.as_json(self.data)
        return markdown(self.blocks) if form == "markdown" else latex(self.blocks)

    def save(self, path: str) -> Path:
        """Write it to a file: .md, .tex or .json. Raises OutputError."""
        forms = {"md": "markdown", "tex": "latex", "json": "json"}
        texts = {suffix: partial(self.written, form) for suffix, form in forms.items()}
        return files.write(path, None, texts)


def said(text: str, unit: str = "") -> Form:
    """A value in words, with its unit, as a form."""
    full = f"{text} {unit}".rstrip()
    return Form(full, worded(full))


# --- In a terminal ----------------------------------------------------------------------------------


def rich(blocks: Sequence[Block]) -> RenderableType:
    """For `console.print`."""
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
    """Equations side by side with their names; one that is too long for its line has a line for each form."""

    def __init__(self, lines: Sequence[Equation]) -> None:
        self.lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = RichTable.grid(padding=(0, 1))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        room = options.max_width - 2 - max(cell_len(line.name) for line in self.lines)
        for name, forms in self.lines:
            long = sum(cell_len(form.text) + 3 for form in forms) - 3 > room
            body = Text("\n= " if long else " = ").join(Text(form.text) for form in forms[:-1])
            body.append(("\n= " if long else " = ") if len(forms) > 1 else "").append(forms[-1].text, style="bold")
            grid.add_row(name, body)
        yield grid


def _rich_table(block: Table) -> RichTable:
    table = bare()
    for title in block.columns:
        table.add_column(title.strip("|"), justify="right" if title.startswith("|") else "left", overflow="fold")
    for row in block.rows:
        table.add_row(*(Text(_text(cell)) for cell in row))
    return table


# --- Markdown ---------------------------------------------------------------------------------------


def markdown(blocks: Sequence[Block]) -> str:
    """GitHub-flavoured, formulas between dollars."""
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
    """A whole file."""
    return PREAMBLE + "\n\n".join("\n".join(_latex(block)) for block in blocks) + "\n\\end{document}"


def _latex(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield rf"\{SECTIONS[block.level]}{{{tex(block.text)}}}"
    elif isinstance(block, Paragraph):
        yield tex(block.text) + r"\par\medskip"
    elif isinstance(block, Code):
        ascii_text = block.text.encode("ascii", encoding.ASCII_FALLBACK).decode("ascii")  # verbatim: ASCII only
        ascii_text = ascii_text.replace(r"\end{verbatim}", r"\end {verbatim}")  # and ends at this, wherever it stands
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
        yield " & ".join(tex(title.strip("|")) for title in block.columns) + r" \\ \hline"
        for row in block.rows:
            yield " & ".join(f"${c.latex}$" if isinstance(c, Form) else tex(c) for c in row) + r" \\"
        yield r"\end{longtable}}"


def _text(cell: str | Form) -> str:
    return cell.text if isinstance(cell, Form) else cell


WIDE = 40  # letters from which a column of a page is a paragraph


def _widths(block: Table) -> list[float | None]:
    """The share of the page that wide columns have."""
    longest = [max((len(_text(row[i])) for row in block.rows), default=0) for i in range(len(block.columns))]
    wide = [n for n in longest if n > WIDE]
    room = 0.9 - 0.011 * sum(n for n in longest if n <= WIDE)
    return [round(max(room, 0.3) * n / sum(wide), 2) if n > WIDE else None for n in longest]


LINE = 66  # letters of a formula that a line of the page holds
_COMMAND = re.compile(r"\\(?:text|mathrm|operatorname|frac|bigl|bigr|cdot|left|right|,|;|quad)\s*|[{}^_]")


def _aligned(equation: Equation) -> str:
    """`name &= formula \\\\ &= value`: in one line where that has room, else a line a form, or more."""
    if not equation.name:  # an equation by itself
        return rf"&{equation.forms[0].latex}"
    name = worded(equation.name)
    whole = " = ".join(form.latex for form in equation.forms)
    if _letters(whole) <= LINE:
        return f"{name} &= {whole}"
    return f"{name} " + " \\\\\n".join(f"&= {_broken(form.latex)}" for form in equation.forms)


def _letters(latex: str) -> int:
    return len(_COMMAND.sub("", latex))


def _broken(latex: str) -> str:
    """A formula in lines, broken at its plus and minus signs."""
    lines, line = [], ""
    for part in _summands(latex):
        if line and _letters(line + part) > LINE:
            lines.append(line)
            line = ""
        line += part
    return " \\\\\n&\\quad {}".join([*lines, line])


def _summands(latex: str) -> Iterator[str]:
    """The parts of a formula that a line may break between: at signs, not within braces."""
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


def tex(text: str) -> str:
    """Plain text for LaTeX: its own signs escaped, those that it lacks in ASCII put as formulas."""
    plain_text = "".join(_TEX.get(letter, letter if ord(letter) < 0x180 else "?") for letter in text)
    return plain_text.replace("--", "-{}-")  # which TeX would make a dash


def worded(text: str) -> str:
    r"""Plain text within a formula.

    Signs that need a command stand between pieces of text, as in `\text{W}\_\text{up}`: MathJax, by which notebooks and
    code hosts show formulas, takes no commands within them.
    """
    pieces = enumerate(_SIGNS.split(text))
    return "".join(
        _signs(piece) if index % 2 else rf"\text{{{_letters_of(piece)}}}" for index, piece in pieces if piece
    )


_AS_TEXT = "{}$–"  # what both take within a piece of text
_SIGNS = re.compile(rf"([{re.escape(''.join(_TEX.keys() - set(_AS_TEXT)))}]+)")
_IN_FORMULAS = {"^": r"\hat{\ }", "~": r"\sim", "\\": r"\backslash", "…": r"\dots"}  # commands other than in a text's


def _signs(letters: str) -> str:
    return "".join(_IN_FORMULAS.get(letter, _TEX[letter].removeprefix(r"\ensuremath")) for letter in letters)


def _letters_of(piece: str) -> str:
    return tex(piece).replace(_TEX["–"], "–").replace("-{}-", r"-}\text{-")
