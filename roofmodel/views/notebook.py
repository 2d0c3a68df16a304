"""An Estimate in a notebook: what the terminal shows, as HTML."""

from __future__ import annotations

import io

from rich.console import Console

from roofmodel.study.estimate import Estimate
from roofmodel.views.terminal import EstimateView

_PAGE = "<pre style=\"font-family:Menlo,'DejaVu Sans Mono',Consolas,monospace;line-height:1.2\">{code}</pre>"


def mimebundle(estimate: Estimate) -> dict[str, str]:
    """The estimate as `text/plain` and `text/html`; text from configs is escaped by rich."""
    console = Console(record=True, file=io.StringIO(), width=100, force_jupyter=False, color_system="truecolor")
    console.print(EstimateView(estimate))
    html = console.export_html(inline_styles=True, code_format=_PAGE, clear=False)
    return {"text/plain": console.export_text(), "text/html": html}
