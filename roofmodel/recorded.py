"""Numbers that write down what is done to them: a formula that is run on them becomes data for others to evaluate.

    book = Book()
    n = book.input("n", least=1)
    cases = book.cases(lambda: half(n * (n + 1)))

This is the fourth reading of a formula, beside ints, arrays and symbols (algebra.py); the page of `roof explore`
evaluates in the browser what Python wrote down here, and has no formulas of its own. Nothing is simplified that could
change a digit: what is written down are Python's operations on ints and floats, in Python's order.

* Equal steps are written once.
* Where code asks about such a number (`if tokens == 1`), both answers are followed: `cases` gives the question, and
  what comes of either answer. Lower bounds of the inputs answer what they can.
* A function that is marked with `algebra.formula` is written down once, with parameters of its own, and called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

Result = TypeVar("Result")
Made = TypeVar("Made")
Node: TypeAlias = tuple[Any, ...]
"""What to do, and with what: other nodes by their number; of the LEAVES, `("input", name)`, `("whole", 5)`."""

LEAVES = ("input", "whole", "real", "text")
CHAINS = ("+", "max")
"""Steps that go on from one another: in an excerpt, `("+", a, b, c)` is `(a + b) + c`."""


class Fork(NamedTuple, Generic[Result]):
    """What a function gives where its result hangs on a condition."""

    condition: Recorded
    yes: Cases[Result]
    no: Cases[Result]


Cases: TypeAlias = Fork[Result] | Result
"""What a function gives: a result, or a fork between two of them."""


def results(cases: Cases[Result]) -> list[Result]:
    """All that a function may give."""
    return [*results(cases.yes), *results(cases.no)] if isinstance(cases, Fork) else [cases]


def each(cases: Cases[Result], function: Callable[[Any], Made]) -> Cases[Made]:
    """What another function makes of each of them."""
    if isinstance(cases, Fork):
        return Fork(cases.condition, each(cases.yes, function), each(cases.no, function))
    return function(cases)


class Undecided(Exception):
    """Code asked a question whose answer hangs on the inputs; only `Book.cases` sees it."""

    def __init__(self, condition: Recorded) -> None:
        super().__init__("a condition on a recorded number, outside of Book.cases")
        self.condition = condition


class Recorded:
    """A number that stands in a book. It may be compared, but only `Book.cases` can take a decision on it."""

    __slots__ = ("book", "index", "least")

    def __init__(self, book: Book, index: int, least: float | None) -> None:
        self.book, self.index, self.least = book, index, least

    def __add__(self, other: Any) -> Any:
        return self.book.sum(self, other)

    def __radd__(self, other: Any) -> Any:
        return self.book.sum(other, self)

    def __sub__(self, other: Any) -> Any:
        return self if _is(other, 0) else self.book.step("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.book.step("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return self.book.product(self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.book.product(other, self)

    def __truediv__(self, other: Any) -> Any:
        return self.book.quotient("/", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return 0.0 if _is(other, 0) else self.book.quotient("/", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self.book.quotient("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self.book.quotient("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return self.book.quotient("%", self, other)

    def __pow__(self, other: Any) -> Any:
        return self.book.step("**", self, other)

    def __rpow__(self, other: Any) -> Any:
        return self.book.step("**", other, self)

    def __neg__(self) -> Any:
        return self.book.step("neg", self)

    def __lt__(self, other: Any) -> Any:
        return False if _at_most(other, self.least) else self.book.comparison("<", self, other, same=False)

    def __le__(self, other: Any) -> Any:
        return False if _below(other, self.least) else self.book.comparison("<=", self, other, same=True)

    def __gt__(self, other: Any) -> Any:
        return True if _below(other, self.least) else self.book.comparison("<", other, self, same=False)

    def __ge__(self, other: Any) -> Any:
        return True if _at_most(other, self.least) else self.book.comparison("<=", other, self, same=True)

    def __eq__(self, other: Any) -> Any:
        return False if _below(other, self.least) else self.book.comparison("==", self, other, same=True)

    def __ne__(self, other: Any) -> Any:
        equal = self == other
        return 1 - equal if isinstance(equal, Recorded) else not equal

    def __hash__(self) -> int:
        return self.index

    def __bool__(self) -> bool:
        if self.least is not None and self.least > 0:
            return True
        return self.book.decide(self)


def _is(value: Any, number: int) -> bool:
    """Whether it is this very int: 1.0 times an int is a float, so that it is no 1."""
    return type(value) is int and value == number


def _below(value: Any, least: float | None) -> bool:
    return least is not None and isinstance(value, int | float) and value < least


def _at_most(value: Any, least: float | None) -> bool:
    return least is not None and isinstance(value, int | float) and value <= least


class Formula(NamedTuple):
    """A function of numbers, written down: a book whose inputs are numbered as its parameters are, and the result."""

    book: Book
    result: Cases[Any]


class Excerpt(NamedTuple):
    """What of a book is wanted: nodes, and where they stand here by where they stand in the book."""

    nodes: list[Node]
    where: Mapping[int, int]


class Book:
    """Where numbers are written down. `formulas` are the functions that are called, by name."""

    def __init__(self, formulas: dict[str, Formula] | None = None) -> None:
        self.nodes: list[Node] = []
        self.formulas: dict[str, Formula] = {} if formulas is None else formulas
        self._known: dict[tuple[Node, float | None], Recorded] = {}  # by what is known of it, too
        self._decided: Mapping[Recorded, bool] = {}

    def input(self, name: str, least: float | None = None) -> Recorded:
        """A number that is given later, and is at least so large."""
        return self._write(("input", name), least)

    def index(self, value: Any) -> int:
        """The number of the node that holds a value: a recorded number's, or that of a constant."""
        if isinstance(value, Recorded):
            return value.index
        kind = "text" if isinstance(value, str) else "whole" if isinstance(value, int) else "real"
        return self._write((kind, value), None).index

    def step(self, what: str, *values: Any, least: float | None = None) -> Recorded:
        """One operation on values."""
        return self._write((what, *map(self.index, values)), least)

    def _write(self, node: Node, least: float | None) -> Recorded:
        found = self._known.get((node, least))
        if found is None:
            found = self._known[node, least] = Recorded(self, len(self.nodes), least)
            self.nodes.append(node)
        return found

    def excerpt(self, wanted: Iterable[Recorded]) -> Excerpt:
        """What the wanted numbers are made from; of a chain, steps that only the next one goes on from are no nodes."""
        asked = Counter(number.index for number in wanted)
        for index, (what, *operands) in reversed(list(enumerate(self.nodes))):
            if asked[index] and what not in LEAVES:
                asked.update(operands)
        passed = {
            first
            for index, (what, first, *_) in enumerate(self.nodes)
            if asked[index] and what in CHAINS and asked[first] == 1 and self.nodes[first][0] == what
        }
        found, where, terms = list[Node](), dict[int, int](), dict[int, list[int]]()
        for index, (what, *operands) in enumerate(self.nodes):
            if not asked[index]:
                continue
            if what not in LEAVES:
                operands = [place for operand in operands for place in terms[operand]]
            if index in passed:
                terms[index] = operands
            else:
                where[index], terms[index] = len(found), [len(found)]
                found.append((what, *operands))
        return Excerpt(found, where)

    # --- Operations; zeros and ones of ints leave no trace -------------------------------------------

    def sum(self, a: Any, b: Any) -> Any:
        if _is(a, 0) or _is(b, 0):
            return b if _is(a, 0) else a
        low, high = _least(a), _least(b)
        return self.step("+", a, b, least=None if low is None or high is None else low + high)

    def product(self, a: Any, b: Any) -> Any:
        if _is(a, 0) or _is(b, 0):
            return 0
        if _is(a, 1) or _is(b, 1):
            return b if _is(a, 1) else a
        low, high = _least(a), _least(b)
        known = low is not None and high is not None and low >= 0 and high >= 0
        return self.step("*", a, b, least=low * high if known else None)  # type: ignore[operator]

    def quotient(self, what: str, a: Any, b: Any) -> Recorded:
        low, high = _least(a), _least(b)
        positive = low is not None and high is not None and low >= 0 and high > 0
        return self.step(what, a, b, least=0 if positive else None)

    def comparison(self, what: str, a: Any, b: Any, same: bool) -> Any:
        """`same` is the answer for a number beside itself."""
        return same if a is b else self.step(what, a, b)

    # --- Conditions ---------------------------------------------------------------------------------

    def decide(self, condition: Recorded) -> bool:
        """The answer that is being followed. Raises Undecided where none is yet."""
        if condition not in self._decided:
            raise Undecided(condition)
        return self._decided[condition]

    def cases(self, function: Callable[[], Result], limit: int = 64) -> Cases[Result]:
        """What a function of recorded numbers gives, whatever they turn out to be.

        The function is run anew for each answer to each question that it asks. Raises Undecided where it asks so many
        that more than `limit` results came of it.
        """
        left = limit

        def follow(decided: Mapping[Recorded, bool]) -> Cases[Result]:
            nonlocal left
            before, self._decided = self._decided, decided
            try:
                return function()
            except Undecided as question:
                if question.condition.book is not self or left <= 0:
                    raise
                left -= 1
                asked = question.condition
            finally:
                self._decided = before
            return Fork(asked, follow({**decided, asked: True}), follow({**decided, asked: False}))

        return follow(self._decided)

    def settled(self, function: Callable[[], Result]) -> Result:
        """What a function gives, where each answer gives numbers of the same build: each is a choice, as a step."""
        return _met(self.cases(function))

    # --- Functions ----------------------------------------------------------------------------------

    def call(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Recorded:
        """A call of a function of numbers and named tuples of them, which is written down at its first call."""
        name = f"{function.__module__}.{function.__qualname__}".removeprefix("roofmodel.")
        if name not in self.formulas:
            inside = Book(self.formulas)
            parameters = iter([inside.input(str(n)) for n, _ in enumerate(_numbers(arguments))])
            inner = [_filled(argument, parameters) for argument in arguments]
            self.formulas[name] = Formula(inside, inside.cases(lambda: function(*inner)))
        return self._write((name, *map(self.index, _numbers(arguments))), None)


def _least(value: Any) -> float | None:
    return value.least if isinstance(value, Recorded) else None if isinstance(value, str) else value


def _numbers(arguments: Sequence[Any]) -> Iterator[Any]:
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from _numbers(argument)
        else:
            yield argument


def _filled(argument: Any, parameters: Iterator[Any]) -> Any:
    """An argument of the same build, of parameters."""
    if not isinstance(argument, tuple):
        return next(parameters)
    parts = [_filled(part, parameters) for part in argument]
    return argument._make(parts) if hasattr(argument, "_make") else tuple(parts)


# --- What algebra.py asks of a library --------------------------------------------------------------


def book_of(arguments: Sequence[Any]) -> Book | None:
    """The book that a call's numbers stand in; None where none is recorded."""
    return next((number.book for number in _numbers(arguments) if isinstance(number, Recorded)), None)


def minimum(a: Any, b: Any) -> Any:
    """`a if a <= b else b`, as a step."""
    return _choice("min", a, b, float("inf"), min)


def maximum(a: Any, b: Any) -> Any:
    """`a if a >= b else b`, as a step."""
    return _choice("max", a, b, float("-inf"), max)


def _choice(what: str, a: Any, b: Any, never: float, among: Callable[[float, float], float]) -> Any:
    if a is b:
        return a
    if not isinstance(a, Recorded) and a == never:
        return b
    low, high, book = _least(a), _least(b), a.book if isinstance(a, Recorded) else b.book
    return book.step(what, a, b, least=None if low is None or high is None else among(low, high))


def mean(total: Any, n: Any) -> Any:
    """`total / n`, exact, as a step."""
    book = total.book if isinstance(total, Recorded) else n.book
    return total if _is(n, 1) else book.quotient("mean", total, n)


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`yes if condition else no`, as a step; of tuples of one build, a step for each of their numbers that differ."""
    if yes is no:
        return yes
    if isinstance(yes, tuple) and isinstance(no, tuple):
        return _filled(yes, map(partial(where, condition), _numbers(yes), _numbers(no)))
    if not all(isinstance(one, Recorded | int | float | str) for one in (yes, no)):
        raise Undecided(condition)
    same = not isinstance(yes, Recorded) and not isinstance(no, Recorded) and type(yes) is type(no) and yes == no
    return yes if same else condition.book.step("if", condition, yes, no)


def _met(cases: Cases[Result]) -> Result:
    return where(cases.condition, _met(cases.yes), _met(cases.no)) if isinstance(cases, Fork) else cases


def expm1(a: Any) -> Any:
    """e to the power of a number, less 1, as a step."""
    return a.book.step("expm1", a)
