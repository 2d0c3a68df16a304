"""Texts of results as the command line prints them, and the first bytes of pictures."""

from __future__ import annotations

import io
from typing import Any

MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
"""The first bytes of pictures, by suffix."""


def printed(result: Any, width: int = 100) -> str:
    """A report or a table, printed by rich without colors in a terminal of this width."""
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width, color_system=None, highlight=False).print(result)
    return out.getvalue()
