"""Arguments of the Python functions, checked and loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from roofmodel.devices.device import Device, Hardware
from roofmodel.errors import DeviceError, Option, RoofError, choices, shorten

if TYPE_CHECKING:
    from roofmodel.models.architecture import Architecture

PathLike = str | os.PathLike[str]
Model = PathLike
"""A packaged name, the path of a config.json or its folder, or a Hub id."""
ProgressCallback = Callable[[str, int, int | None], None]
"""Called with the current part of the work, the amount that is complete, and the whole amount (None: unknown)."""


def no_progress(what: str, done: int, total: int | None) -> None:
    """The callback that ignores progress."""


def architecture(model: Model, family: str | None) -> Architecture:
    """A model by name or path. Raises ModelError."""
    from roofmodel.models import hub

    return hub.load(model, text("family", family))


def device(hw: Hardware) -> Device:
    """A device by name or path, or as it is. Raises DeviceError."""
    return Device.load(hw)


def optional_device(hw: Hardware | None) -> Device | None:
    """A device, or None without one. Raises DeviceError."""
    return None if hw is None else device(hw)


def given_hardware(hw: Hardware | None) -> Hardware | None:
    """The argument `hw`, which may be missing. Raises DeviceError for another type than a name, a path or a Device."""
    if not (hw is None or isinstance(hw, str | os.PathLike | Device)):
        raise DeviceError(f"{shorten(hw)} is no device; give a name such as 'a100' or a YAML file")
    return hw


def operator_name(op: str | None) -> str | None:
    """The name of an operator, from its name or from its label in a table."""
    from roofmodel.report.operator_names import operator_name as name_of

    name = text("op", op)
    return name_of(name) if name else name


def as_sequence(given: Any) -> Sequence[Any]:
    """The value in a list, or the values of a list, a tuple or another iterable that is not text."""
    return [*given] if isinstance(given, Iterable) and not isinstance(given, str | bytes) else [given]


def check_texts(**given: object) -> None:
    """Raises RoofError for an argument that is neither text nor None."""
    for name, value in given.items():
        if not (value is None or isinstance(value, str)):
            raise RoofError(Option(name), f" is {shorten(value)}; give text")


def check_required_texts(**given: object) -> None:
    """Raises RoofError for an argument that is not text."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise RoofError(Option(name), f" is {shorten(value)}; give text")


def check_count(**given: object) -> None:
    """Raises RoofError for an argument that is neither a whole number nor None."""
    for name, value in given.items():
        if not (value is None or type(value) is int):
            raise RoofError(Option(name), f" is {shorten(value)}; give a whole number")


def text(name: str, value: str | None) -> str | None:
    """The argument. Raises RoofError if it is neither text nor None."""
    check_texts(**{name: value})
    return value


def one_of(name: str, value: str, known: Iterable[str]) -> str:
    """The argument. Raises RoofError, which lists the known values, for another one."""
    names = list(known)
    check_required_texts(**{name: value})
    if value not in names:
        raise RoofError(Option(name), f": unknown value {shorten(value)}{choices(value, names)}")
    return value


MAX_RESOLUTION = 1000  # dots per inch: a picture of 11000 × 6200 dots


def resolution(dpi: int) -> int:
    """Dots per inch of a picture. Raises RoofError for a value that is not a whole number from 1 to MAX_RESOLUTION."""
    if type(dpi) is not int or not 1 <= dpi <= MAX_RESOLUTION:
        raise RoofError(Option("dpi"), f" is {shorten(dpi)}; give a whole number from 1 to {MAX_RESOLUTION}")
    return dpi


def words(name: str, value: Iterable[str]) -> list[str]:
    """A list of text. Raises RoofError for another type, such as a single text."""
    found = as_sequence(value)
    if isinstance(value, str) or not all(isinstance(word, str) for word in found):
        raise RoofError(Option(name), f" is {shorten(value)}; give a list of text")
    return list(found)


def path(name: str, value: PathLike) -> str:
    """A path as text. Raises RoofError for another type."""
    if not isinstance(value, str | os.PathLike):
        raise RoofError(Option(name), f" is {shorten(value)}; give a path")
    return os.fspath(value)


def paths(name: str, given: PathLike | Iterable[PathLike] | None) -> list[str]:
    """One or several paths as a list of text. Raises RoofError for another type."""
    return [] if given is None else [path(name, value) for value in as_sequence(given)]
