"""Derivation of an expected time: the formula's inputs, parameters and constants, and its evaluation line by line."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from roofmodel.numbers.derivation import DerivationStep, DerivationTrace
from roofmodel.timing.formula import Meaning, meanings
from roofmodel.timing.timing import Formula

SCALAR_INPUTS = {
    "data": Meaning("bytes read and written", "B"),
    "compute_seconds": Meaning("lower bound of the arithmetic's time, in seconds: FLOPs at the peak of its pipe", "s"),
    "moved": Meaning("bytes read and written apart from the weights", "B"),
    "link": Meaning("link bandwidth per GPU and direction, in bytes per second", "B/s"),
}
"""Meanings of the formula arguments that are plain numbers, not records."""


class NamedNumber(NamedTuple):
    """A number that a formula uses: its name in `steps`, its meaning and its unit (empty for a count or a ratio)."""

    name: str
    value: Any
    meaning: str
    unit: str = ""


def parameters(formula: Formula) -> list[NamedNumber]:
    """The fitted parameters."""
    return list(fields("", formula.parameters))


def inputs(formula: Formula) -> list[NamedNumber]:
    """All inputs: the operator's sizes, the device's figures (`chip.`) and the fitted parameters (`timing.`)."""
    numbers: list[NamedNumber] = []
    for name, value in _arguments(formula):
        prefix = f"{name}." if name in ("chip", "timing") else ""
        numbers += (
            fields(prefix, value) if hasattr(value, "_fields") else [NamedNumber(name, value, *SCALAR_INPUTS[name])]
        )
    return numbers


def constants(formula: Formula) -> list[NamedNumber]:
    """The constants of the formula, which are the same on every device."""
    module = sys.modules[formula.function.__module__]
    texts = meanings(module)
    return [NamedNumber(name, getattr(module, name), *texts[name]) for name in formula.description.constants]


def steps(formula: Formula) -> list[DerivationStep]:
    """The evaluation of the formula, line by line; the last line is `seconds`, before it is clamped to the bound."""
    derivation = DerivationTrace()
    arguments = [_named(derivation, name, value) for name, value in _arguments(formula)]
    time = derivation.part("seconds", derivation.with_lines(formula.function)(*arguments), "s")
    return derivation.steps(time)


def _arguments(formula: Formula) -> Iterator[tuple[str, Any]]:
    names = inspect.signature(formula.function).parameters
    return zip(names, (*formula.arguments, formula.parameters), strict=False)  # later arguments keep their defaults


def _named(derivation: DerivationTrace, name: str, value: Any, nested: bool = False) -> Any:
    """An argument whose numbers carry their names; those of a record in a list are numbered: `gemms.1.rows`."""
    if hasattr(value, "_fields"):
        prefix = f"{name}." if nested or name in ("chip", "timing") else ""
        return type(value)(*(_named(derivation, f"{prefix}{field}", each) for field, each in value._asdict().items()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_named(derivation, f"{name}.{place}", each, nested=True) for place, each in enumerate(value, 1)]
    return derivation.given(name, value)


def fields(prefix: str, record: Any) -> Iterator[NamedNumber]:
    """The numbers of a record, their names after a prefix such as `chip.`."""
    texts = meanings(type(record))
    for name, value in record._asdict().items():
        yield NamedNumber(f"{prefix}{name}", value, *texts.get(name, ("",)))
