"""Results in a notebook: terminal output as HTML, and pictures as small PNGs."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console, RenderableType

_PAGE = "<pre style=\"font-family:Menlo,'DejaVu Sans Mono',Consolas,monospace;line-height:1.2\">{code}</pre>"


def mimebundle(renderable: RenderableType) -> dict[str, str]:
    """A rich renderable as `text/plain` and `text/html`; rich escapes the text."""
    console = Console(record=True, file=io.StringIO(), width=100, force_jupyter=False, color_system="truecolor")
    console.print(renderable)
    html = console.export_html(inline_styles=True, code_format=_PAGE, clear=False)
    return {"text/plain": console.export_text(), "text/html": html}


class Picture(NamedTuple):
    """A PNG, which a notebook displays."""

    png: bytes

    def _repr_png_(self) -> bytes:
        return self.png

    def __repr__(self) -> str:
        return "<Picture>"  # no size, so that saved notebooks do not vary with fonts and versions


PALETTE = 256  # colors: a third of the bytes without a visible difference


def picture(save: Callable[[Path], object], dpi: int) -> Picture:
    """The picture that `save` draws into a file, at `dpi` dots per inch."""
    from roofmodel.report.canvas import import_matplotlib

    import_matplotlib()
    from matplotlib import rc_context
    from PIL import Image

    with TemporaryDirectory() as folder:
        file, png = Path(folder, "drawn.png"), io.BytesIO()
        with rc_context({"savefig.dpi": dpi}):
            save(file)
        with Image.open(file) as drawn:
            reduced = drawn.convert("RGB").quantize(PALETTE, Image.Quantize.MAXCOVERAGE)
            reduced.save(png, "PNG", optimize=True)
    return Picture(png.getvalue())
