"""Results in a notebook: what the terminal shows, as HTML; pictures, small enough to be kept in the notebook."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console, RenderableType

_PAGE = "<pre style=\"font-family:Menlo,'DejaVu Sans Mono',Consolas,monospace;line-height:1.2\">{code}</pre>"


def mimebundle(renderable: RenderableType) -> dict[str, str]:
    """What rich can render, as `text/plain` and `text/html`; text from configs is escaped by rich."""
    console = Console(record=True, file=io.StringIO(), width=100, force_jupyter=False, color_system="truecolor")
    console.print(renderable)
    html = console.export_html(inline_styles=True, code_format=_PAGE, clear=False)
    return {"text/plain": console.export_text(), "text/html": html}


class Picture(NamedTuple):
    """A picture as the bytes of a PNG, which a notebook shows."""

    png: bytes

    def _repr_png_(self) -> bytes:
        return self.png

    def __repr__(self) -> str:
        return "<Picture>"  # no size: that varies with fonts and versions, and stands in notebooks' outputs


COLOURS = 256  # of the palette: a third of the bytes, and no difference to be seen


def picture(save: Callable[[Path], object], dpi: int) -> Picture:
    """What `save` draws into a file, at so many dots an inch."""
    from matplotlib import rc_context
    from PIL import Image

    with TemporaryDirectory() as folder:
        file, png = Path(folder, "drawn.png"), io.BytesIO()
        with rc_context({"savefig.dpi": dpi}):
            save(file)
        with Image.open(file) as drawn:
            colours = drawn.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
            colours.save(png, "PNG", optimize=True)
    return Picture(png.getvalue())
