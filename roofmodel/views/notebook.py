"""Results in a notebook: what the terminal shows, as HTML."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

_PAGE = "<pre style=\"font-family:Menlo,'DejaVu Sans Mono',Consolas,monospace;line-height:1.2\">{code}</pre>"


def mimebundle(renderable: RenderableType) -> dict[str, str]:
    """What rich can render, as `text/plain` and `text/html`; text from configs is escaped by rich."""
    console = Console(record=True, file=io.StringIO(), width=100, force_jupyter=False, color_system="truecolor")
    console.print(renderable)
    html = console.export_html(inline_styles=True, code_format=_PAGE, clear=False)
    return {"text/plain": console.export_text(), "text/html": html}
