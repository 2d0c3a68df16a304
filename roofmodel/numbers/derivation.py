"""The derivation of a number: its formula line by line, with names and with values."""

from __future__ import annotations

import ast
import inspect
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, reduce
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from roofmodel.numbers.traced import LEAVES, OPERATIONS, Trace, Traced

SUM, PRODUCT, POWER, ATOM = range(4)
"""How tightly the parts of a text bind: a part that binds less tightly than its place needs brackets."""
DIGITS = 9
"""Significant digits of values in formulas."""
COMPARISONS: dict[str, tuple[Callable[[Any, Any], bool], str, str]] = {
    "<": (operator.lt, "<", "≥"), "<=": (operator.le, "≤", ">"),
    ">": (operator.gt, ">", "≤"), ">=": (operator.ge, "≥", "<"),
}  # fmt: skip
"""The function of a comparison, its sign, and the sign of its negation."""
VALUES: dict[str, Callable[..., Any]] = {
    **OPERATIONS,
    **{name: function for name, (function, *_) in COMPARISONS.items()},
    "and": lambda a, b: True,
    "given that": lambda condition, value: value,
    "part": lambda value, name, unit: value,
}
BINARY = {"+": ("+", SUM, SUM, SUM), "-": ("-", SUM, SUM, PRODUCT), "*": ("×", PRODUCT, PRODUCT, PRODUCT),
          "/": ("/", PRODUCT, PRODUCT, POWER), "**": ("^", POWER, ATOM, ATOM),
          "and": ("×", PRODUCT, PRODUCT, PRODUCT)}  # fmt: skip
"""An operation's sign, how tightly it binds, and how tightly its operands must."""
BRACKETS = {"//": ("⌊", "⌋"), "ceil": ("⌈", "⌉")}
UNITS = {"Number": "", "Seconds": "s", "Bytes": "B", "BytesPerSecond": "B/s", "FlopsPerSecond": "FLOP/s"}
"""The units of the types of algebra.py, for assignments that are lines."""
_LINE = "_line"


class DerivedNumber(Traced):
    """A traced number whose value is known."""

    __slots__ = ("value",)

    def __init__(self, derivation: DerivationTrace, index: int, value: Any) -> None:
        super().__init__(derivation, index)
        self.value = value

    def __bool__(self) -> bool:
        return bool(self.value)


class DerivedCondition(DerivedNumber):
    """A comparison, its negation, or two conditions that hold. `x * condition` is x where it holds, else 0."""

    __slots__ = ()


class DerivationStep(NamedTuple):
    """A line of a derivation: a name, its formula, the formula with values, the value.

    For a condition, the name is the condition, the value is True. An input has no formula.
    """

    name: str
    formula: str
    numbers: str
    value: Any
    unit: str = ""


class NumberText(NamedTuple):
    """The text of a number with names and with values, and how tightly it binds."""

    names: str
    values: str
    binds: int

    def within(self, place: int) -> tuple[str, str]:
        """Both texts, in brackets where the place needs them."""
        return (self.names, self.values) if self.binds >= place else (f"({self.names})", f"({self.values})")


class DerivationTrace(Trace):
    """A trace whose inputs have values."""

    exact = False

    def __init__(self) -> None:
        super().__init__()
        self._values: list[Any] = []  # by node
        self._texts: dict[int, NumberText] = {}
        self._steps: dict[int, dict[str, DerivationStep]] = {}

    def given(self, name: str, value: Any) -> Any:
        """An input by its name; 0 stays plain, so that formulas leave it out."""
        return self._write(("input", name, value), None) if value else value

    def with_lines(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function; each assignment with a unit in it, such as `load: Seconds = …`, names a line of the derivation,
        also in the functions of its module that it calls."""
        module = sys.modules[function.__module__]
        names = {**vars(module), _LINE: self.part}
        exec(_with_named_lines(module), names)
        function_with_lines: Callable[..., Any] = names[function.__name__]
        return function_with_lines

    def part(self, name: str, value: Any, unit: str = "") -> Any:
        """A number that later lines call by this name; constants are inputs, anything else stays as it is."""
        if isinstance(value, int | float):
            return self.given(name, value)
        return self.step("part", value, name, unit) if type(value) is DerivedNumber else value

    def _write(self, node: tuple[Any, ...], least: float | None) -> Traced:
        number = self._numbers.get((node, None))
        if number is None:
            operation, *operands = node
            value = (
                operands[-1]
                if operation in LEAVES
                else VALUES[operation](*(self._values[operand] for operand in operands))
            )
            kind = DerivedCondition if operation in COMPARISONS or operation == "and" else DerivedNumber
            number = self._numbers[node, None] = kind(self, len(self.nodes), value)
            self.nodes.append(node)
            self._values.append(value)
        return number

    # --- Arithmetic ---------------------------------------------------------------------------------

    def binary(self, operation: str, a: Any, b: Any) -> Any:
        """The result of an operation on two numbers; a condition and its negation share a node, so none is reused."""
        return self.computed(operation, a, b)

    def is_constant(self, value: Any, number: int) -> bool:
        """Whether the value is a constant that equals the number."""
        return not isinstance(value, Traced) and value == number

    def sum(self, a: Any, b: Any) -> Any:
        """`a + b` without terms that cancel; a condition counts as 1 or 0."""
        a, b = self._number(a), self._number(b)
        terms = self._uncancelled([*self._terms(a, 1), *self._terms(b, 1)])
        return super().sum(a, b) if terms is None else self._sum_of(terms)

    def difference(self, a: Any, b: Any) -> Any:
        """`a - b`; `1 - condition` is its negation, which the same line states. Other conditions count as 1 or 0."""
        if self.is_constant(a, 1) and isinstance(b, DerivedCondition):
            return DerivedCondition(self, b.index, not b.value)
        a, b = self._number(a), self._number(b)
        terms = self._uncancelled([*self._terms(a, 1), *self._terms(b, -1)])
        return super().difference(a, b) if terms is None else self._sum_of(terms)

    def _terms(self, value: Any, sign: int) -> Iterator[tuple[int, int]]:
        """The terms of a sum, in order: the node and the sign of each."""
        index = self.index(value)
        operation, *operands = self.nodes[index]
        if operation not in ("+", "-"):
            yield index, sign
            return
        left, right = (self._at(operand) for operand in operands)
        yield from self._terms(left, sign)
        yield from self._terms(right, sign if operation == "+" else -sign)

    def _uncancelled(self, terms: Sequence[tuple[int, int]]) -> list[tuple[int, int]] | None:
        """The terms without pairs of one node with both signs; None where there is no such pair."""
        remaining: list[tuple[int, int]] = []
        for index, sign in terms:
            if (index, -sign) in remaining:
                remaining.remove((index, -sign))
            else:
                remaining.append((index, sign))
        return remaining if len(remaining) < len(terms) else None

    def _sum_of(self, terms: Sequence[tuple[int, int]]) -> Any:
        """The sum of the terms; a positive one is first."""
        first = next((term for term in terms if term[1] > 0), None)
        if first is None:
            return -self._sum_of([(index, 1) for index, _ in terms]) if terms else 0
        others = list(terms)
        others.remove(first)
        add = (super().difference, super().sum)
        return reduce(lambda total, term: add[term[1] > 0](total, self._at(term[0])), others, self._at(first[0]))

    def _at(self, index: int) -> Any:
        """The number of a node; a constant for a node of a constant."""
        value = self._values[index]
        return value if self.nodes[index][0] in ("whole", "real") else DerivedNumber(self, index, value)

    def _number(self, value: Any) -> Any:
        """1, which then depends on the condition, for one that holds; 0 for one that fails; other values unchanged."""
        if not isinstance(value, DerivedCondition):
            return value
        return self.step("given that", value, 1) if value else 0

    def product(self, a: Any, b: Any) -> Any:
        """`a * b`; a number times a condition that holds is the number, which then depends on the condition.

        Of two conditions, one that fails decides.
        """
        if isinstance(a, DerivedCondition) and isinstance(b, DerivedCondition):
            return self.step("and", a, b) if a and b else b if a else a
        if isinstance(a, DerivedCondition) or isinstance(b, DerivedCondition):
            condition, value = (a, b) if isinstance(a, DerivedCondition) else (b, a)
            if not condition:
                return 0
            return self.step("given that", condition, value) if type(value) is DerivedNumber else value
        return super().product(a, b)

    def quotient(self, operation: str, a: Any, b: Any) -> Any:
        """`a / b`, `a // b`, or `a / b` rounded up."""
        return a if operation == "/" and self.is_constant(b, 1) else self.step(operation, a, b)

    def mean(self, total: Any, n: Any) -> Any:
        """`total / n`."""
        return self.quotient("/", total, n)

    def minimum(self, a: Any, b: Any) -> Any:
        """The smaller number; the derivation of the other one is not shown."""
        return a if _plain(a) <= _plain(b) else b

    def maximum(self, a: Any, b: Any) -> Any:
        """The larger number, with both in the text; 0 is left out where the other number is not negative."""
        other = b if self.is_constant(a, 0) else a
        if (self.is_constant(a, 0) or self.is_constant(b, 0)) and _plain(other) >= 0:
            return other
        return self.step("max", a, b)

    def comparison(self, operation: str, a: Any, b: Any) -> Any:
        """`a < b` and the like as a condition; of `a == b` the answer."""
        return _plain(a) == _plain(b) if operation == "==" else self.step(operation, a, b)

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        """`yes if condition else no`."""
        return yes if condition else no

    def trace_branches(self, function: Callable[[], Any]) -> Any:
        """The result of the function: every question has an answer."""
        return function()

    def call(self, function: Callable[..., Any], arguments: Any) -> Any:
        """The result of the function, with its lines."""
        return function(*arguments)

    # --- Text ---------------------------------------------------------------------------------------

    def steps(self, number: Any) -> list[DerivationStep]:
        """The lines that a number depends on, each after those that it uses."""
        return list(self._lines(number.index).values())

    def _lines(self, index: int) -> dict[str, DerivationStep]:
        if index not in self._steps:
            self._steps[index] = self._line(*self.nodes[index], value=self._values[index])
        return self._steps[index]

    def _line(self, operation: str, *operands: Any, value: Any) -> dict[str, DerivationStep]:
        if operation == "input":
            return {operands[0]: DerivationStep(operands[0], "", written(value), value)}
        if operation in LEAVES:
            return {}
        if operation == "part":
            inner, name, unit = operands[0], *(self._values[operand] for operand in operands[1:])
            text = self._text(inner)
            return {**self._lines(inner), name: DerivationStep(name, text.names, text.values, value, unit)}
        if operation == "given that":
            condition, inner = operands
            return {**self._lines(condition), **self._statements(condition), **self._lines(inner)}
        steps: dict[str, DerivationStep] = {}
        for operand in operands:
            steps |= {name: step for name, step in self._lines(operand).items() if name not in steps}
        return steps

    def _statements(self, condition: int) -> dict[str, DerivationStep]:
        """The comparisons of a condition, each as the line that holds."""
        operation, *operands = self.nodes[condition]
        if operation == "and":
            return {name: line for operand in operands for name, line in self._statements(operand).items()}
        text = self._text(condition)
        return {text.names: DerivationStep(text.names, "", text.values, True)}

    def _text(self, index: int) -> NumberText:
        if index not in self._texts:
            self._texts[index] = self._made_text(*self.nodes[index], value=self._values[index])
        return self._texts[index]

    def _made_text(self, operation: str, *operands: Any, value: Any) -> NumberText:
        if operation in LEAVES or operation == "part":
            number = written(value)
            name = operands[0] if operation == "input" else self._values[operands[1]] if operation == "part" else number
            return NumberText(name, number, ATOM)
        parts = [self._text(operand) for operand in operands]
        if operation == "given that":
            return parts[1]
        if operation in BINARY:
            sign, binds, *places = BINARY[operation]
        elif operation in COMPARISONS:
            _, *signs = COMPARISONS[operation]
            sign, binds, places = signs[not value], SUM, [SUM, SUM]
        elif operation in BRACKETS:
            sign, binds, places = "/", ATOM, [PRODUCT, POWER]
        elif operation == "max":
            names, values = (", ".join(texts) for texts in zip(*(part.within(SUM) for part in parts), strict=True))
            return NumberText(f"max({names})", f"max({values})", ATOM)
        elif operation == "neg":
            name, number = parts[0].within(ATOM)
            return NumberText(f"-{name}", f"-{number}", PRODUCT)
        else:
            return NumberText(f"{operation}({parts[0].names})", f"{operation}({parts[0].values})", ATOM)
        (left, left_value), (right, right_value) = (
            part.within(place) for part, place in zip(parts, places, strict=True)
        )
        opening, closing = BRACKETS.get(operation, ("", ""))
        return NumberText(
            f"{opening}{left} {sign} {right}{closing}", f"{opening}{left_value} {sign} {right_value}{closing}", binds
        )


def _plain(number: Any) -> Any:
    return number.value if isinstance(number, DerivedNumber) else number


def written(number: Any) -> str:
    """A value as formulas show it: 1024, 0.342, 1.19e-05, 3.12e+14."""
    return str(number) if isinstance(number, int) and abs(number) < 10**DIGITS else f"{float(number):.{DIGITS}g}"


# --- Lines ------------------------------------------------------------------------------------------


@cache
def _with_named_lines(module: ModuleType) -> CodeType:
    """The functions of a module, without decorators; each assignment with a unit calls `_line(name, value, unit)`."""
    tree = ast.parse(inspect.getsource(module))
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    tree.body = [_NamedLines().visit(each) for each in functions]
    code: CodeType = compile(ast.fix_missing_locations(tree), str(module.__file__), "exec")
    return code


class _NamedLines(ast.NodeTransformer):
    """Replaces `load: Seconds = value` by `load = _line("load", value, "s")`."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = []
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        unit = UNITS.get(ast.unparse(node.annotation))
        if unit is None or node.value is None or not isinstance(node.target, ast.Name):
            return node
        arguments = [ast.Constant(node.target.id), node.value, ast.Constant(unit)]
        return ast.copy_location(ast.Assign([node.target], ast.Call(ast.Name(_LINE, ast.Load()), arguments, [])), node)
