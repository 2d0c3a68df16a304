"""A stream as a path, for libraries that open files themselves."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def on_disk(stream: BinaryIO, magic: bytes) -> Iterator[Path]:
    """Where the content of a stream, which begins with `magic`, lies: its own file, else a temporary copy.

    The file of a stream that is decompressed on the way begins otherwise, and a pipe has none.
    """
    name = getattr(stream, "name", None)
    if isinstance(name, str) and _begins(Path(name), magic):
        yield Path(name).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        stream.seek(0)
        with copy.open("wb") as out:
            shutil.copyfileobj(stream, out)
        yield copy


def _begins(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(magic)) == magic
