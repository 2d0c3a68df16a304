"""An estimate as Markdown."""

from __future__ import annotations

from roofmodel.estimate.command import Report
from tests.estimates import run


def test_markdown_has_a_table_a_phase_and_the_notes() -> None:
    text = Report(run("gpt2")).text("markdown")
    assert text.count("| operator |") == 2
    assert "- warning: decode reaches 1025 tokens" in Report(run("gpt2", context=1024)).text("markdown")
    assert "warning" not in text
    assert "| TTFT | " in text
    assert " expected (" in text
