"""`roof explore`: a page with sliders for models and devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmodel.explore.api import explore
from roofmodel.report.command import CommandCall, command
from roofmodel.report.printing import save


def _save(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    from roofmodel.report import progress

    with progress.derivation_progress() as callback:
        page = call(progress=callback)
    save(page, output)


app = command(
    explore,
    files=".html: one file that contains all data.",
    settings={"models": {"metavar": "MODEL…"}},
    run=_save,
    examples=(
        "roof explore gpt2-xl -o gpt2-xl.html",
        "roof explore llama-3.1-8b mixtral-8x7b-v0.1 --hw h100,h200 -o models.html",
        "roof explore ./config.json --family llama -o own.html",
    ),
)
