"""An estimate as Markdown."""

from __future__ import annotations

from roofmodel.estimate.markdown import as_markdown
from tests.estimates import run


def test_markdown_has_a_table_a_phase_and_the_notes() -> None:
    text = as_markdown(run("gpt2"))
    assert text.count("| operator |") == 2
    assert "- warning: decode reaches 1025 tokens" in as_markdown(run("gpt2", context=1024))
    assert "warning" not in text
    assert "| TTFT | " in text
    assert " expected (" in text
