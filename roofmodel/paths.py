"""Paths as users write them, and files read with a limit."""

from __future__ import annotations

import os
from pathlib import Path

LARGEST_TEXT = 16 * 2**20
"""Bytes; a config or a device's file is a few kilobytes, so anything beyond this is something else."""


def expand(path: str | os.PathLike[str]) -> Path:
    """A path as the user wrote it, `~` replaced where it stands for somebody's home."""
    return Path(os.path.expanduser(path))  # unlike Path.expanduser, leaves an unknown ~name as it is


def read_text(path: Path) -> str:
    """A text file's content, decoded as UTF-8 with or without BOM.

    Raises OSError where it cannot be read, ValueError (UnicodeDecodeError among them) where it is no
    such text file.
    """
    with path.open("rb") as file:
        content = file.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise ValueError(f"larger than {LARGEST_TEXT // 2**20} MiB")
    return content.decode("utf-8-sig")
