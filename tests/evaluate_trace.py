"""Evaluates the formulas of a trace in Python, as the script of the explore page does in a browser."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

from roofmodel.counting.tensors import FORMATS
from roofmodel.numbers.algebra import mean
from roofmodel.numbers.traced import Fork, Trace, Traced

STEPS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "<": operator.lt, "<=": operator.le, "==": operator.eq, "neg": operator.neg,
    "min": lambda a, b: a if a <= b else b, "max": lambda a, b: a if a >= b else b,
    "ceil": lambda a, b: -(-a // b), "expm1": math.expm1, "mean": mean,
}  # fmt: skip

sys.setrecursionlimit(10_000)  # a sum over the operators of several kinds of layers is a long chain


class TraceValues:
    """The numbers of a trace for given inputs."""

    def __init__(self, trace: Trace, given: Callable[[str], Any]) -> None:
        self.trace, self.given = trace, given
        self.values: dict[int, Any] = {}

    def fill(self, value: Any) -> Any:
        """Data with traced numbers replaced by their values, and forks by the branch that applies."""
        while isinstance(value, Fork):
            value = value.yes if self.get(value.condition.index) else value.no
        if isinstance(value, Traced):
            return _plain(self.get(value.index))
        if isinstance(value, Mapping):
            return {key: self.fill(item) for key, item in value.items()}
        return [self.fill(item) for item in value] if isinstance(value, list | tuple) else value

    def get(self, index: int) -> Any:
        if index not in self.values:
            self.values[index] = self._value(*self.trace.nodes[index])
        return self.values[index]

    def _value(self, operation: str, *operands: Any) -> Any:
        if operation in STEPS:
            values = [self.values[operand] if operand in self.values else self.get(operand) for operand in operands]
            if None in values:
                return None
            step = STEPS[operation]
            return step(*values) if len(values) < 3 else reduce(step, values)
        if operation in ("whole", "real", "text"):
            return operands[0]
        if operation == "input":
            return self.given(operands[0])
        if operation == "if":
            return self.get(operands[1] if self.get(operands[0]) else operands[2])
        values = [self.get(operand) for operand in operands]
        if None in values:
            return None
        if operation == "bytes":
            return FORMATS[self.given(f"format|{values[0]}")].bytes(values[1])
        function = self.trace.functions[operation]
        return TraceValues(function.trace, lambda parameter: _plain(values[int(parameter)])).fill(function.result)


def _plain(value: Any) -> Any:
    """A fraction as a float; other values unchanged."""
    return float(value) if isinstance(value, Fraction) else value
