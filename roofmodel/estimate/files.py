"""An Estimate as text and as files: table formats, pictures and the roofline page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from roofmodel.files import output_files
from roofmodel.steps.estimate import Estimate

SUFFIXES = (*output_files.PICTURES, "html", "json", "csv", "md")
"""The suffixes of the files that `save` writes."""
FORMATS = ("json", "csv", "markdown")
"""The formats of `as_text`."""


def as_text(estimate: Estimate, form: str) -> str:
    """The estimate in one of FORMATS."""
    from roofmodel.estimate import data, markdown

    writers: dict[str, Callable[[Estimate], str]] = {
        "json": data.as_json,
        "csv": data.as_csv,
        "markdown": markdown.as_markdown,
    }
    return writers[form](estimate)


def save(estimate: Estimate, path: str) -> Path:
    """Write the estimate to a file; its suffix, one of SUFFIXES, selects the format.

    An existing file is replaced only when the new one is complete. Raises OutputError.
    """
    from roofmodel.estimate import page, picture

    return output_files.write(
        path,
        draw=lambda file, form: picture.draw(estimate, file, form),
        texts={
            "html": lambda: page.html(estimate),
            "json": lambda: as_text(estimate, "json"),
            "csv": lambda: as_text(estimate, "csv"),
            "md": lambda: as_text(estimate, "markdown"),
        },
    )
