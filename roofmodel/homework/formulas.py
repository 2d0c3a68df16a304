"""The formulas of homework problems: `ceiling(3*b*P_peak/(2*B_mem))`, evaluated exactly.

A formula has numbers, names, `+ - * / // % **`, comparisons (1 or 0) and functions. Whole numbers and quotients of them
are exact. Only this grammar is evaluated, so that a file of problems cannot run code. simpleeval has the same grammar,
but its quotients of whole numbers are floats.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from roofmodel.errors import choices

Value = int | float | Fraction | str
Functions = Mapping[str, Callable[..., Any]]

SYMPY: Functions = {"Max": max, "Min": min, "ceiling": math.ceil, "floor": math.floor}
"""Functions of an answer's formula, by their names in SymPy, which writes the derivation."""
MAX_LENGTH, MAX_EXPONENT, MAX_BITS = 500, 64, 2048

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


def evaluate(formula: str, values: Mapping[str, Value], functions: Functions = SYMPY) -> Value:
    """The value of a formula. Raises ValueError, which quotes the invalid part."""
    try:
        value: Value = _whole(_value(_parsed(formula), values, functions))
        if isinstance(value, int | float | Fraction) and math.isinf(float(value)):  # raises OverflowError, too
            raise OverflowError
    except ZeroDivisionError:
        raise ValueError(f"{formula!r} divides by zero") from None
    except (TypeError, OverflowError, RecursionError):
        raise ValueError(f"{formula!r} has no value") from None
    if isinstance(value, complex):
        raise ValueError(f"{formula!r} has no real value")
    return value


def names(formula: str) -> set[str]:
    """The names of the quantities in a formula. Raises ValueError if it is none."""
    nodes = [*ast.walk(_parsed(formula))]
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called}


@cache
def _parsed(formula: str) -> ast.expr:
    if len(formula) > MAX_LENGTH:
        raise ValueError(f"a formula has at most {MAX_LENGTH} characters")
    try:
        return ast.parse(formula.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{formula!r} is not a formula; write it as in '2*n**3/P_peak'") from None


def _value(node: ast.expr, values: Mapping[str, Value], functions: Functions) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, str):
        return Fraction(str(node.value)) if isinstance(node.value, float) else node.value
    if isinstance(node, ast.Name):
        if node.id not in values:
            raise ValueError(f"unknown name {node.id!r}{choices(node.id, values)}")
        return values[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, values, functions)
    if isinstance(node, ast.BinOp):
        return _binary(node.op, _value(node.left, values, functions), _value(node.right, values, functions))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
        left, right = _value(node.left, values, functions), _value(node.comparators[0], values, functions)
        return int(_COMPARED[type(node.ops[0])](left, right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        name = node.func.id
        if name not in functions:
            raise ValueError(f"unknown function {name!r}{choices(name, functions)}")
        return functions[name](*(_value(argument, values, functions) for argument in node.args))
    raise ValueError(f"{ast.unparse(node)!r} is not allowed in a formula")


def _binary(op: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(left, str) or isinstance(right, str):
        raise ValueError(f"{left if isinstance(left, str) else right!r} is text, not a number")
    if isinstance(op, ast.Div):
        exact = isinstance(left, int | Fraction) and isinstance(right, int | Fraction)
        return Fraction(left, right) if exact else left / right
    if isinstance(op, ast.Pow):
        parts = (left.numerator, left.denominator) if isinstance(left, int | Fraction) else (0,)
        if abs(right) > MAX_EXPONENT or max(part.bit_length() for part in parts) * abs(right) > MAX_BITS:
            raise ValueError("a power in a formula is too large")
        return (Fraction(left) if isinstance(left, int) and right < 0 else left) ** right
    if type(op) not in _BINARY:
        raise ValueError("a formula has only + - * / // % and **")
    return _BINARY[type(op)](left, right)


def _whole(value: Any) -> Any:
    return value.numerator if isinstance(value, Fraction) and value.denominator == 1 else value
