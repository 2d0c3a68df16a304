"""Writing an Estimate to a file whose format follows the suffix; whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from roofmodel.errors import OutputError
from roofmodel.study.estimate.estimate import Estimate
from roofmodel.text_files import expand

PICTURES = ("png", "svg", "pdf")
ESTIMATES = (*PICTURES, "html", "json", "csv", "md")  # what `save` writes


def check(path: str, suffixes: Iterable[str]) -> Path:
    """The path, if its suffix is one of these and its folder is there: asked before any work is done."""
    target = expand(path)
    suffix = target.suffix.lower().lstrip(".")
    if suffix not in suffixes:
        known = ", ".join(f".{s}" for s in suffixes)
        what = f"unknown suffix {target.suffix!r}" if suffix else "has no suffix to tell the format"
        raise OutputError(f"-o {path}: {what}; known: {known}")
    if not os.path.isdir(target.parent):
        raise OutputError(f"-o {path}: there is no folder {str(target.parent)!r}; make it first")
    if os.path.isdir(target):
        raise OutputError(f"-o {path}: is a folder; give a file in it")
    try:
        target.stat()
    except FileNotFoundError:
        pass  # as it should be
    except OSError as error:  # a name that no file can have, a folder that may not be entered
        raise _refusal(target, error) from None
    return target


def save(estimate: Estimate, path: str) -> Path:
    """Write the estimate; an existing file is replaced only when the new one is complete."""
    from roofmodel.views.estimate import data, markdown, picture
    from roofmodel.views.kit import page

    return write(
        path,
        draw=lambda file, form: picture.draw(estimate, file, form),
        texts={
            "html": lambda: page.of_estimate(estimate),
            "json": lambda: data.as_json(estimate),
            "csv": lambda: data.as_csv(estimate),
            "md": lambda: markdown.as_markdown(estimate),
        },
    )


def write(path: str, draw: Callable[[Path, str], None] | None, texts: Mapping[str, Callable[[], str]]) -> Path:
    """Write a picture by `draw(file, form)`, or one of the texts, as the suffix says; None: there is no picture."""
    target = check(path, (*(PICTURES if draw else ()), *texts))
    suffix = target.suffix.lower().lstrip(".")
    if draw and suffix in PICTURES:
        replace(target, lambda file: draw(file, suffix))
    else:
        content = texts[suffix]() + "\n"
        replace(target, lambda file: file.write_text(content, encoding="utf-8"))
    return target


def replace(asked: Path, write: Callable[[Path], object]) -> None:
    """Write beside the target, then rename over it. A link is followed; a device or pipe is written to as it is."""
    target = Path(os.path.realpath(asked))
    try:
        if target.exists() and not target.is_file():
            write(target)
            return
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(handle)
        beside = Path(name)
        try:
            write(beside)
            mask = os.umask(0)
            os.umask(mask)
            beside.chmod(0o666 & ~mask)  # mkstemp's own mode would hide the file from everyone else
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise _refusal(asked, error) from None


def _refusal(target: Path, error: OSError) -> OutputError:
    return OutputError(f"-o {target}: cannot be written ({error.strerror or error})")
