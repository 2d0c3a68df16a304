"""Evaluates what recorded numbers wrote down, with Python's own operators: what the page's script does in a browser."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

from roofmodel.algebra import mean
from roofmodel.counting.number_formats import FORMATS
from roofmodel.tracing.trace import Fork, Trace, Traced

STEPS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "<": operator.lt, "<=": operator.le, "==": operator.eq, "neg": operator.neg,
    "min": lambda a, b: a if a <= b else b, "max": lambda a, b: a if a >= b else b,
    "ceil": lambda a, b: -(-a // b), "expm1": math.expm1, "mean": mean,
}  # fmt: skip

sys.setrecursionlimit(10_000)  # a sum over the operators of several kinds of layers is a long chain


class Sheet:
    """A trace under given inputs."""

    def __init__(self, trace: Trace, given: Callable[[str], Any]) -> None:
        self.trace, self.given = trace, given
        self.values: dict[int, Any] = {}

    def fill(self, value: Any) -> Any:
        """Data, forks and all, with its numbers in place of what is recorded."""
        while isinstance(value, Fork):
            value = value.yes if self.get(value.condition.index) else value.no
        if isinstance(value, Traced):
            return _plain(self.get(value.index))
        if isinstance(value, Mapping):
            return {key: self.fill(one) for key, one in value.items()}
        return [self.fill(one) for one in value] if isinstance(value, list | tuple) else value

    def get(self, index: int) -> Any:
        if index not in self.values:
            self.values[index] = self._value(*self.trace.nodes[index])
        return self.values[index]

    def _value(self, what: str, *places: Any) -> Any:
        if what in ("whole", "real", "text"):
            return places[0]
        if what == "input":
            return self.given(places[0])
        if what == "if":
            return self.get(places[1] if self.get(places[0]) else places[2])
        values = [self.get(place) for place in places]
        if None in values:
            return None
        if what == "bytes":
            return FORMATS[self.given(f"format|{values[0]}")].bytes(values[1])
        if what in STEPS:
            return reduce(STEPS[what], values) if len(values) > 1 else STEPS[what](*values)
        function = self.trace.functions[what]
        return Sheet(function.trace, lambda parameter: _plain(values[int(parameter)])).fill(function.result)


def _plain(value: Any) -> Any:
    """What no int is, of ints divided, as a float where it leaves the sheet."""
    return float(value) if isinstance(value, Fraction) else value
