"""Why an expected time is what it is: the formula as its module states it, its parameters, its lines with numbers."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

from roofmodel import worked
from roofmodel.prediction.timing import Formula
from roofmodel.remarks import remarks

ALONE = {
    "data": "bytes read and written",
    "compute_seconds": "seconds that the arithmetic takes at least, at the peak of its pipe",
    "moved": "bytes that move beside the weights",
    "link": "bytes per second of the link, in each direction",
}
"""What arguments of formulas are that are numbers by themselves."""


class Parameter(NamedTuple):
    """A number that a formula takes: as `steps` name it, and what it means."""

    name: str
    value: Any
    meaning: str


def stated(formula: Formula) -> str:
    """The formula in words, as the docstring of its module puts it."""
    return inspect.getdoc(_module(formula)) or ""


def parameters(formula: Formula) -> list[Parameter]:
    """The set that was fitted."""
    return list(_fields("", formula.parameters))


def given(formula: Formula) -> list[Parameter]:
    """All that the formula takes: what it was asked, the device's figures (`chip.`), and the set (`timing.`)."""
    found: list[Parameter] = []
    for name, value in _arguments(formula):
        prefix = f"{name}." if name in ("chip", "timing") else ""
        found += _fields(prefix, value) if hasattr(value, "_fields") else [Parameter(name, value, ALONE[name])]
    return found


def constants(formula: Formula) -> list[Parameter]:
    """The numbers that stand in the formula itself, whatever the device."""
    module = _module(formula)
    meanings = remarks(module)
    numbers = {name: value for name, value in vars(module).items() if name.isupper() and type(value) in (int, float)}
    return [Parameter(name, value, meanings[name]) for name, value in numbers.items()]


def steps(formula: Formula) -> list[worked.Step]:
    """The formula as it was evaluated, line by line; the last line is `seconds`, not yet held against the bound."""
    with worked.shown():
        arguments = [_named(name, value) for name, value in _arguments(formula)]
        time = worked.part("seconds", formula.function(*arguments), "s")
    return list(time.steps.values())


def _arguments(formula: Formula) -> Iterator[tuple[str, Any]]:
    names = inspect.signature(formula.function).parameters
    return zip(names, (*formula.asked, formula.parameters), strict=False)  # those behind have defaults


def _named(name: str, value: Any) -> Any:
    """An argument whose numbers know their names."""
    if not hasattr(value, "_fields"):
        return worked.leaf(name, value)
    prefix = f"{name}." if name in ("chip", "timing") else ""
    return type(value)(*(worked.leaf(f"{prefix}{field}", number) for field, number in value._asdict().items()))


def _fields(prefix: str, record: Any) -> Iterator[Parameter]:
    kind = type(record)
    meanings = remarks(importlib.import_module(kind.__module__), kind.__name__)
    for name, value in record._asdict().items():
        yield Parameter(f"{prefix}{name}", value, meanings.get(name, ""))


def _module(formula: Formula) -> Any:
    return importlib.import_module(f"roofmodel.prediction.{formula.name}")
