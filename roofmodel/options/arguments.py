"""Arguments of the Python functions: several values as a list, paths as text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from roofmodel.errors import Option, RoofError, shorten

PathLike = str | os.PathLike[str]
Model = PathLike
"""A packaged name, the path of a config.json or its folder, or a Hub id."""
ProgressCallback = Callable[[str, int, int | None], None]
"""Called with the current part of the work, the amount that is complete, and the whole amount (None: unknown)."""


def no_progress(subject: str, done: int, total: int | None) -> None:
    """The callback that ignores progress."""


def as_sequence(value: Any) -> Sequence[Any]:
    """The value in a list, or the values of a list, a tuple or another iterable that is not text."""
    return [*value] if isinstance(value, Iterable) and not isinstance(value, str | bytes) else [value]


MAX_RESOLUTION = 1000  # dots per inch: a picture of 11000 × 6200 dots


def resolution(dpi: int) -> int:
    """Dots per inch of a picture. Raises RoofError for a value that is not a whole number from 1 to MAX_RESOLUTION."""
    if type(dpi) is not int or not 1 <= dpi <= MAX_RESOLUTION:
        raise RoofError(Option("dpi"), f" is {shorten(dpi)}; give a whole number from 1 to {MAX_RESOLUTION}")
    return dpi


def words(name: str, value: Iterable[str]) -> list[str]:
    """A list of text. Raises RoofError for another type, such as a single text."""
    values = as_sequence(value)
    if isinstance(value, str) or not all(isinstance(word, str) for word in values):
        raise RoofError(Option(name), f" is {shorten(value)}; give a list of text")
    return list(values)


def path(name: str, value: PathLike) -> str:
    """A path as text. Raises RoofError for another type."""
    if not isinstance(value, str | os.PathLike):
        raise RoofError(Option(name), f" is {shorten(value)}; give a path")
    return os.fspath(value)


def paths(name: str, values: PathLike | Iterable[PathLike] | None) -> list[str]:
    """One or several paths as a list of text. Raises RoofError for another type."""
    return [] if values is None else [path(name, value) for value in as_sequence(values)]
