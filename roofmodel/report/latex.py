"""A document as LaTeX with amsmath, and as PDF, typeset by the user's pdflatex."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from roofmodel.errors import OutputError
from roofmodel.files.text_files import ASCII_FALLBACK
from roofmodel.report.document import (
    Block,
    Code,
    Document,
    Equation,
    Equations,
    Facts,
    Figure,
    Form,
    Heading,
    Items,
    Paragraph,
    Rows,
    TextTable,
    one_line,
)

PREAMBLE = r"""\documentclass{article}
\usepackage[a4paper,margin=2cm]{geometry}
\usepackage{amsmath}
\usepackage{longtable}
\setlength{\parindent}{0pt}
\allowdisplaybreaks
\begin{document}
"""
SECTIONS = {1: "section*", 2: "subsection*", 3: "subsubsection*"}


def latex(document: Document) -> str:
    """The document as a complete LaTeX file. A figure is only in pages and in files of its own."""
    blocks = [Heading(document.title, 1), *document.printed()]
    texts = ("\n".join(_lines(block)) for block in blocks if not isinstance(block, Figure))
    return PREAMBLE + "\n\n".join(texts) + "\n\\end{document}"


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield rf"\{SECTIONS[block.level]}{{{escape_latex(block.text)}}}"
    elif isinstance(block, Paragraph):
        yield escape_latex(block.text) + r"\par\medskip"
    elif isinstance(block, Items):
        name = "enumerate" if block.numbered else "itemize"
        yield rf"\begin{{{name}}}"
        yield from (rf"\item {escape_latex(line)}" for line in block.lines)
        yield rf"\end{{{name}}}"
    elif isinstance(block, Code):
        ascii_text = block.text.encode("ascii", ASCII_FALLBACK).decode("ascii")  # verbatim: ASCII only
        ascii_text = ascii_text.replace(r"\end{verbatim}", r"\end {verbatim}")  # which ends at this text anywhere
        yield f"{{\\footnotesize\n\\begin{{verbatim}}\n{ascii_text}\n\\end{{verbatim}}}}"
    elif isinstance(block, Facts):
        yield from _table(TextTable(("", ""), [(label, one_line(text)) for label, text in block.lines]))
    elif isinstance(block, Equations):
        yield r"\begin{align*}"
        yield " \\\\\n".join(aligned(equation) for equation in block.lines)
        yield r"\end{align*}"
    elif isinstance(block, TextTable):
        yield from _table(block)
    elif isinstance(block, Rows):
        table, legends = block.as_text_table()
        yield from _table(table, block.bold())
        if legends:
            yield escape_latex("; ".join(legends)) + r"\par\medskip"


def _table(table: TextTable, bold: Sequence[bool] | None = None) -> Iterator[str]:
    if not table.columns:  # a table without rows
        return
    spec = "".join(
        rf"p{{{width}\linewidth}}" if width else "r" if title.startswith("|") else "l"
        for title, width in zip(table.columns, _widths(table), strict=True)
    )
    yield rf"{{\small\begin{{longtable}}{{{spec}}}"
    if any(table.columns):
        yield " & ".join(escape_latex(title.strip("|")) for title in table.columns) + r" \\ \hline"
    for row, stands_out in zip(table.rows, bold or [False] * len(table.rows), strict=True):
        yield " & ".join(_cell(cell, stands_out) for cell in row) + r" \\"
    yield r"\end{longtable}}"


def _cell(cell: str | Form, bold: bool) -> str:
    if isinstance(cell, Form):
        return f"${cell.latex}$"
    text = escape_latex(cell.lstrip(" "))
    return "~" * (len(cell) - len(cell.lstrip(" "))) + (rf"\textbf{{{text}}}" if bold and text else text)


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


def aligned(equation: Equation) -> str:
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


def text_form(text: str, unit: str = "") -> Form:
    """Plain text, with a unit if given, as a Form."""
    full = f"{text} {unit}".rstrip()
    return Form(full, latex_text(full))


# --- PDF ----------------------------------------------------------------------------------------------

SECONDS = 120
RUNS = 4  # at most, until the columns of long tables have their final widths


def check_pdflatex() -> str:
    """The path of pdflatex. Raises OutputError without it."""
    program = shutil.which("pdflatex")
    if program is None:
        raise OutputError(
            "a .pdf of a text needs pdflatex, which is not installed; install TeX Live (Debian, Ubuntu: apt install "
            "texlive-latex-recommended; macOS: MacTeX; Windows: MiKTeX), or write .tex or .md"
        )
    return program


def write_pdf(latex: str, path: Path) -> None:
    """Typeset a complete LaTeX file into a PDF file. Raises OutputError if pdflatex is missing or fails."""
    program = check_pdflatex()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "text.tex").write_text(latex, encoding="utf-8")
        command = [program, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "text.tex"]
        for _ in range(RUNS):
            try:
                run = subprocess.run(command, cwd=folder, capture_output=True, timeout=SECONDS, check=False)
            except subprocess.TimeoutExpired:
                raise OutputError(f"pdflatex did not end within {SECONDS} s; write .tex or .md") from None
            if run.returncode:
                lines = run.stdout.decode("utf-8", "replace").splitlines()
                error = next((line for line in lines if line.startswith("!")), "! unknown error")
                raise OutputError(f"pdflatex: {error[1:].strip()}; write .tex to see the text")
            if b"Rerun LaTeX" not in run.stdout:
                break
        path.write_bytes((Path(folder) / "text.pdf").read_bytes())
