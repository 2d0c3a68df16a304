"""Output files: the suffix selects the format, and an existing file is replaced only when the new one is complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from roofmodel.errors import OutputError
from roofmodel.text_files import expand

PICTURES = ("png", "svg", "pdf")


def check(path: str, suffixes: Iterable[str]) -> Path:
    """The path to write, checked before any work is done.

    Raises OutputError for an unknown suffix, a missing folder, or a path that cannot be written.
    """
    target = expand(path)
    suffix = target.suffix.lower().lstrip(".")
    if suffix not in suffixes:
        known = ", ".join(f".{s}" for s in suffixes)
        what = f"unknown suffix {target.suffix!r}" if suffix else "has no suffix, which selects the format"
        raise OutputError(f"{path or repr(path)}: {what}; known: {known}")
    if not os.path.isdir(target.parent):
        raise OutputError(f"{path}: folder {str(target.parent)!r} does not exist; create it first")
    if os.path.isdir(target):
        raise OutputError(f"{path}: is a folder; name a file in it")
    try:
        target.stat()
    except FileNotFoundError:
        pass  # a new file
    except OSError as error:  # an invalid file name, or a folder without permission
        raise _cannot_write(target, error) from None
    return target


def write(path: str, draw: Callable[[Path, str], None] | None, texts: Mapping[str, Callable[[], str]]) -> Path:
    """Write one file in the format that its suffix selects; return its path.

    `draw(file, form)` draws a picture (None: no picture formats); `texts` maps other suffixes to functions that return
    the text. Raises OutputError.
    """
    target = check(path, (*(PICTURES if draw else ()), *texts))
    suffix = target.suffix.lower().lstrip(".")
    if draw and suffix in PICTURES:
        replace(target, lambda file: draw(file, suffix))
    else:
        content = texts[suffix]() + "\n"
        replace(target, lambda file: file.write_text(content, encoding="utf-8"))
    return target


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file in the same folder, then rename it to the target.

    A symbolic link is followed; a device or a pipe is written directly. Raises OutputError.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            write(target)
            return
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)  # mkstemp creates the file readable by its owner only
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(target: Path, error: OSError) -> OutputError:
    return OutputError(f"{target}: cannot be written ({error.strerror or error})")
