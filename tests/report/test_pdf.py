"""Texts as PDF, typeset by pdflatex."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import roofmodel
from roofmodel.errors import OutputError
from roofmodel.report.latex import write_pdf

needs_pdflatex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex (TeX Live)")


@needs_pdflatex
def test_a_derivation_and_the_sheets_of_a_class_are_written_as_pdf(tmp_path: Path) -> None:
    derivation = roofmodel.explain("matmul", "a100").save(tmp_path / "matmul.pdf")
    roster = tmp_path / "roster.csv"
    roster.write_text("student\nAda\n")
    roofmodel.homework_class(roster, tmp_path / "sheets", "rooflines", suffix="pdf")
    for file in (derivation, tmp_path / "sheets" / "Ada.pdf"):
        assert file.read_bytes().startswith(b"%PDF-")


@needs_pdflatex
def test_an_error_of_latex_is_named_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"^pdflatex: .+; write \.tex to see the text$"):
        write_pdf(r"\documentclass{article}\begin{document}\nosuch\end{document}", tmp_path / "text.pdf")
    assert not [*tmp_path.iterdir()]


def test_without_pdflatex_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    roster = tmp_path / "roster.csv"
    roster.write_text("student\nAda\n")
    with pytest.raises(OutputError, match=r"needs pdflatex.*texlive"):
        roofmodel.homework_class(roster, tmp_path / "sheets", suffix="pdf")
    assert not (tmp_path / "key.json").exists()
