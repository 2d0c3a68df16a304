"""A LaTeX document as PDF, typeset by the user's pdflatex."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from roofmodel.errors import OutputError

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
