"""The trace of formulas of unknown inputs: each operation once, questions with both answers, functions as calls."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from roofmodel.numbers import algebra

Result = TypeVar("Result")
Mapped = TypeVar("Mapped")
Node: TypeAlias = tuple[Any, ...]
"""An operation and its operands, which are indices of other nodes; or one of the LEAVES: `("input", name)`,
`("whole", 5)`, `("real", 0.5)`, `("text", "fp16")`."""

LEAVES = ("input", "whole", "real", "text")
CHAINS = ("+", "max")
"""Operations that an excerpt joins: `("+", a, b, c)` is `(a + b) + c`."""
OPERATIONS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "neg": operator.neg, "ceil": lambda a, b: -(-a // b), "mean": algebra.mean,
    "<": operator.lt, "<=": operator.le, "==": operator.eq,
    "min": lambda a, b: a if a <= b else b, "max": lambda a, b: a if a >= b else b, "expm1": math.expm1,
    "if": lambda condition, yes, no: yes if condition else no,
}  # fmt: skip


# --- Results that depend on conditions --------------------------------------------------------------


class Fork(NamedTuple, Generic[Result]):
    """The results of a function that depend on a condition."""

    condition: Traced
    yes: Cases[Result]
    no: Cases[Result]


Cases: TypeAlias = Fork[Result] | Result
"""The result of a function, or a fork of two."""


def results(cases: Cases[Result]) -> list[Result]:
    """All results that a function can have."""
    return [*results(cases.yes), *results(cases.no)] if isinstance(cases, Fork) else [cases]


def map_cases(cases: Cases[Result], function: Callable[[Any], Mapped]) -> Cases[Mapped]:
    """The cases with `function` applied to each result."""
    if isinstance(cases, Fork):
        return Fork(cases.condition, map_cases(cases.yes, function), map_cases(cases.no, function))
    return function(cases)


class Undecided(Exception):
    """Code branched on a number whose value is unknown. `Trace.cases` catches it and follows both branches."""

    def __init__(self, condition: Traced) -> None:
        super().__init__("a branch on a traced number, outside of Trace.cases")
        self.condition = condition


# --- Numbers ----------------------------------------------------------------------------------------


class Traced:
    """A number in a trace: the index of its node, and its lower bound if one is known."""

    __slots__ = ("index", "least", "trace")

    def __init__(self, trace: Trace, index: int, least: float | None = None) -> None:
        self.trace, self.index, self.least = trace, index, least

    def __add__(self, other: Any) -> Any:
        return self.trace.binary("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return self.trace.binary("+", other, self)

    def __sub__(self, other: Any) -> Any:
        return self.trace.binary("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.trace.binary("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return self.trace.binary("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.trace.binary("*", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self.trace.binary("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.trace.binary("/", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self.trace.binary("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self.trace.binary("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return self.trace.binary("%", self, other)

    def __pow__(self, other: Any) -> Any:
        return self.trace.binary("**", self, other)

    def __rpow__(self, other: Any) -> Any:
        return self.trace.binary("**", other, self)

    def __neg__(self) -> Any:
        return self.trace.step("neg", self)

    def __lt__(self, other: Any) -> Any:
        return self.trace.binary("<", self, other)

    def __le__(self, other: Any) -> Any:
        return self.trace.binary("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return self.trace.binary(">", self, other)

    def __ge__(self, other: Any) -> Any:
        return self.trace.binary(">=", self, other)

    def __eq__(self, other: Any) -> Any:
        return self.trace.binary("==", self, other)

    def __ne__(self, other: Any) -> Any:
        equal = self == other
        return 1 - equal if isinstance(equal, Traced) else not equal

    def __hash__(self) -> int:
        return self.index

    def __bool__(self) -> bool:
        if self.least is not None and self.least > 0:
            return True
        return self.trace.decide(self)


class TracedFunction(NamedTuple):
    """A function of numbers: a trace whose inputs are its parameters by position ("0", "1", ...), and its result."""

    trace: Trace
    result: Cases[Any]


class Excerpt(NamedTuple):
    """A part of a trace: its nodes, and their new indices by their indices in the trace."""

    nodes: list[Node]
    where: Mapping[int, int]


# --- Traces -----------------------------------------------------------------------------------------


class Trace:
    """The arithmetic of formulas of unknown inputs. `functions` are the traced functions that it calls, by name."""

    exact = True
    """Whether divisions of ints stay exact: `algebra.mean` and `algebra.quotient` record them as such."""

    def __init__(self, functions: dict[str, TracedFunction] | None = None) -> None:
        self.nodes: list[Node] = []
        self.functions: dict[str, TracedFunction] = {} if functions is None else functions
        self._numbers: dict[tuple[Node, float | None], Traced] = {}  # two lower bounds make two numbers
        self._binary: dict[tuple[Any, ...], Any] = {}  # results by operation and operands
        self._decided: Mapping[Traced, bool] = {}

    def input(self, name: str, least: float | None = None) -> Traced:
        """An unknown number that is at least `least`."""
        return self._write(("input", name), least)

    def index(self, value: Any) -> int:
        """The index of a traced number's node, or of the node of a constant."""
        if isinstance(value, Traced):
            return value.index
        if isinstance(value, int):
            return self._write(("whole", int(value)), None).index  # a decided condition is 0 or 1
        return self._write(("text" if isinstance(value, str) else "real", value), None).index

    def step(self, operation: str, *values: Any, least: float | None = None) -> Any:
        """The number that an operation gives."""
        return self._write((operation, *map(self.index, values)), least)

    def _write(self, node: Node, least: float | None) -> Traced:
        number = self._numbers.get((node, least))
        if number is None:
            number = self._numbers[node, least] = Traced(self, len(self.nodes), least)
            self.nodes.append(node)
        return number

    # --- Arithmetic ---------------------------------------------------------------------------------

    def binary(self, operation: str, a: Any, b: Any) -> Any:
        """The result of an operation on two numbers, at least one of them traced; computed once for each pair."""
        key = (
            operation,
            a.index if type(a) is Traced else (type(a), a),
            b.index if type(b) is Traced else (type(b), b),
        )
        number = self._binary.get(key)
        if number is None:
            number = self._binary[key] = self.computed(operation, a, b)
        return number

    def computed(self, operation: str, a: Any, b: Any) -> Any:
        """The result of an operation on two numbers."""
        match operation:
            case "+":
                return self.sum(a, b)
            case "-":
                return self.difference(a, b)
            case "*":
                return self.product(a, b)
            case "/" if self.is_constant(a, 0):
                return 0.0
            case "/" | "//" | "%":
                return self.quotient(operation, a, b)
            case "**":
                return self.step("**", a, b)
            case _:
                return self.comparison(operation, a, b)

    def is_constant(self, value: Any, number: int) -> bool:
        """Whether the value is this int, so that x + 0 or x * 1 is x; false for 1.0: an int times 1.0 is a float."""
        return type(value) is int and value == number

    def sum(self, a: Any, b: Any) -> Any:
        """`a + b`."""
        if self.is_constant(a, 0) or self.is_constant(b, 0):
            return b if self.is_constant(a, 0) else a
        low, high = _least(a), _least(b)
        return self.step("+", a, b, least=None if low is None or high is None else low + high)

    def difference(self, a: Any, b: Any) -> Any:
        """`a - b`."""
        return a if self.is_constant(b, 0) else self.step("-", a, b)

    def product(self, a: Any, b: Any) -> Any:
        """`a * b`."""
        if self.is_constant(a, 0) or self.is_constant(b, 0):
            return 0
        if self.is_constant(a, 1) or self.is_constant(b, 1):
            return b if self.is_constant(a, 1) else a
        low, high = _least(a), _least(b)
        is_known = low is not None and high is not None and low >= 0 and high >= 0
        return self.step("*", a, b, least=low * high if is_known else None)  # type: ignore[operator]

    def quotient(self, operation: str, a: Any, b: Any) -> Any:
        """`a / b`, `a // b`, `a % b`, or a mean."""
        low, high = _least(a), _least(b)
        positive = low is not None and high is not None and low >= 0 and high > 0
        return self.step(operation, a, b, least=0 if positive else None)

    def ceil_div(self, a: Any, b: Any) -> Any:
        """`a / b`, rounded up."""
        return self.quotient("ceil", a, b)

    def mean(self, total: Any, n: Any) -> Any:
        """`total / n`, exact."""
        return total if self.is_constant(n, 1) else self.quotient("mean", total, n)

    def minimum(self, a: Any, b: Any) -> Any:
        """`a if a <= b else b`."""
        return self._extreme("min", a, b, math.inf, min)

    def maximum(self, a: Any, b: Any) -> Any:
        """`a if a >= b else b`."""
        return self._extreme("max", a, b, -math.inf, max)

    def _extreme(self, operation: str, a: Any, b: Any, neutral: float, among: Callable[[float, float], float]) -> Any:
        if a is b:
            return a
        if not isinstance(a, Traced) and a == neutral:
            return b
        low, high = _least(a), _least(b)
        return self.step(operation, a, b, least=None if low is None or high is None else among(low, high))

    def comparison(self, operation: str, a: Any, b: Any) -> Any:
        """`a < b` and the like: a bool where the lower bound of `a` decides it."""
        if a is b:
            return operation in ("<=", ">=", "==")
        if a.least is not None and isinstance(b, int | float):
            if b < a.least:
                return operation in (">", ">=")
            if b == a.least and operation in ("<", ">="):
                return operation == ">="
        return self.step(operation.replace(">", "<"), b, a) if ">" in operation else self.step(operation, a, b)

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        """`yes if condition else no`; for tuples of the same structure, a choice for each number that differs."""
        if yes is no:
            return yes
        if isinstance(yes, tuple) and isinstance(no, tuple):
            return _filled(yes, map(partial(self.where, condition), _numbers(yes), _numbers(no)))
        if not all(isinstance(branch, Traced | int | float | str) for branch in (yes, no)):
            raise Undecided(condition)
        same = not isinstance(yes, Traced) and not isinstance(no, Traced) and type(yes) is type(no) and yes == no
        return yes if same else self.step("if", condition, yes, no)

    # --- Branches -----------------------------------------------------------------------------------

    def decide(self, condition: Traced) -> bool:
        """The answer that is being followed. Raises Undecided where there is none yet."""
        if condition not in self._decided:
            raise Undecided(condition)
        return self._decided[condition]

    def cases(self, function: Callable[[], Result], limit: int = 64) -> Cases[Result]:
        """The results of a function of traced numbers, with the conditions that each depends on.

        The function runs again for each answer to each question that it asks. Raises Undecided where that gives more
        than `limit` results.
        """
        remaining = limit

        def follow(decided: Mapping[Traced, bool]) -> Cases[Result]:
            nonlocal remaining
            before, self._decided = self._decided, decided
            try:
                return function()
            except Undecided as question:
                if question.condition.trace is not self or remaining <= 0:
                    raise
                remaining -= 1
                condition = question.condition
            finally:
                self._decided = before
            return Fork(condition, follow({**decided, condition: True}), follow({**decided, condition: False}))

        return follow(self._decided)

    def trace_branches(self, function: Callable[[], Result]) -> Result:
        """The result of a function whose branches all give numbers of the same structure: each number is a choice."""

        def merged(cases: Cases[Result]) -> Result:
            if isinstance(cases, Fork):
                return self.where(cases.condition, merged(cases.yes), merged(cases.no))  # type: ignore[no-any-return]
            return cases

        return merged(self.cases(function))

    def call(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """The call of a function of numbers and named tuples of numbers, which is traced at its first call."""
        name = f"{function.__module__}.{function.__qualname__}".removeprefix("roofmodel.")
        if name not in self.functions:
            inside = Trace(self.functions)
            parameters = iter([inside.input(str(n)) for n, _ in enumerate(_numbers(arguments))])
            inner = [_filled(argument, parameters) for argument in arguments]
            self.functions[name] = TracedFunction(inside, inside.cases(lambda: function(*inner)))
        return self.step(name, *_numbers(arguments))

    # --- Replay -------------------------------------------------------------------------------------

    def excerpt(self, wanted: Iterable[Traced]) -> Excerpt:
        """The nodes that the wanted numbers depend on; chains whose parts nothing else uses are joined."""
        uses = Counter(number.index for number in wanted)
        for index, (operation, *operands) in reversed(list(enumerate(self.nodes))):
            if uses[index] and operation not in LEAVES:
                uses.update(operands)
        joined = {
            first
            for index, (operation, first, *_) in enumerate(self.nodes)
            if uses[index] and operation in CHAINS and uses[first] == 1 and self.nodes[first][0] == operation
        }
        nodes, where, terms = list[Node](), dict[int, int](), dict[int, list[int]]()
        for index, (operation, *operands) in enumerate(self.nodes):
            if not uses[index]:
                continue
            if operation not in LEAVES:
                operands = [place for operand in operands for place in terms[operand]]
            if index in joined:
                terms[index] = operands
            else:
                where[index], terms[index] = len(nodes), [len(nodes)]
                nodes.append((operation, *operands))
        return Excerpt(nodes, where)

    def evaluator(self, result: Any) -> Callable[[Mapping[str, Any]], Any]:
        """A function from the inputs by name to the value of a result: a traced number, cases, or a tuple of these.

        It evaluates both results of a condition, so neither may fail for inputs that lead to the other.
        """
        used = self.excerpt(_traced_numbers(result))

        def evaluate(inputs: Mapping[str, Any]) -> Any:
            values: list[Any] = []
            for operation, *operands in used.nodes:
                if operation == "input":
                    values.append(inputs[operands[0]])
                elif operation in LEAVES:
                    values.append(operands[0])
                else:
                    values.append(self._applied(operation, [values[operand] for operand in operands]))
            return filled(result, values)

        def filled(value: Any, values: Sequence[Any]) -> Any:
            if isinstance(value, Traced):
                return values[used.where[value.index]]
            if isinstance(value, Fork):
                return filled(value.yes if filled(value.condition, values) else value.no, values)
            if isinstance(value, tuple):
                return _filled_with(value, [filled(part, values) for part in value])
            return value

        return evaluate

    def _applied(self, operation: str, values: list[Any]) -> Any:
        if operation in CHAINS:
            return reduce(OPERATIONS[operation], values)
        if operation in OPERATIONS:
            return OPERATIONS[operation](*values)
        function = self.functions[operation]
        return function.trace.evaluate(function.result, {str(n): value for n, value in enumerate(values)})

    def evaluate(self, result: Any, inputs: Mapping[str, Any]) -> Any:
        """The value of a result for these inputs (see `evaluator`)."""
        return self.evaluator(result)(inputs)


def trace_of(arguments: Iterable[Any]) -> Trace | None:
    """The trace of the numbers in a call's arguments; None where none is traced."""
    return next((number.trace for number in _numbers(arguments) if isinstance(number, Traced)), None)


def _least(value: Any) -> float | None:
    return value.least if isinstance(value, Traced) else None if isinstance(value, str) else value


def _numbers(arguments: Iterable[Any]) -> Iterator[Any]:
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from _numbers(argument)
        else:
            yield argument


def _traced_numbers(result: Any) -> Iterator[Traced]:
    return (number for number in _numbers((result,)) if isinstance(number, Traced))  # a Fork is a tuple


def _filled(argument: Any, numbers: Iterator[Any]) -> Any:
    """A copy of a tuple's structure with these numbers."""
    if not isinstance(argument, tuple):
        return next(numbers)
    return _filled_with(argument, [_filled(part, numbers) for part in argument])


def _filled_with(value: tuple[Any, ...], parts: Sequence[Any]) -> Any:
    return value._make(parts) if hasattr(value, "_make") else tuple(parts)
