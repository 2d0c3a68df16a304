"""Functions of numbers of any kind: ints and floats, NumPy arrays, SymPy expressions, traced numbers.

One formula serves all of them: ints give exact counts, arrays a sweep in one call, symbols the derivation, traced
numbers (traced.py) the formulas of the explorable page and the lines of `roof explain`. `+ - *` work on all of them.
The functions here dispatch on the type of their arguments, to one backend class per kind of number. No backend imports
its library: if a value is an array or a symbol, its library is loaded already.

Counts in arrays are int64, or Python ints as objects where 64 bits are too few: exact, as ints are. Times are float64.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, reduce, wraps
from typing import Any, ClassVar, ParamSpec, TypeAlias, TypeVar

Number: TypeAlias = Any
"""An int, a float, a Fraction; a NumPy array of them, or an ArrayFraction; a SymPy expression; a traced number."""

Seconds: TypeAlias = Number
Bytes: TypeAlias = Number
BytesPerSecond: TypeAlias = Number
FlopsPerSecond: TypeAlias = Number
"""Numbers with a unit. In a timing formula, an assignment with one of these types, or with Number, is a line of its
derivation, as in `load: Seconds = loaded / rate` (derivation.py)."""


SMALL_ARRAY = 4096
"""Elements of an array up to which a call of NumPy takes longer than its work: a loop is then one call on an array with
one more axis."""


# --- Backends ---------------------------------------------------------------------------------------


class Backend:
    """The functions for one kind of number. This base class serves ints, floats and Fractions."""

    module: ClassVar[str] = "builtins"
    """The module of the number types. The backend applies only once something else has imported it."""

    @classmethod
    def types(cls, module: Any) -> tuple[type, ...]:
        """The types of its numbers."""
        return (object,)

    def __init__(self, module: Any) -> None:
        self.library = module

    def minimum(self, a: Number, b: Number) -> Number:
        return min(a, b)

    def maximum(self, a: Number, b: Number) -> Number:
        return max(a, b)

    def largest(self, values: list[Number]) -> Number:
        return reduce(maximum, values, 0)

    def product(self, values: list[Number]) -> Number:
        return math.prod(values)

    def smallest(
        self, function: Callable[[Sequence[Number]], Number], candidates: Sequence[Sequence[Number]],
        numbers: Iterable[Number],
    ) -> Number:  # fmt: skip
        best: Number = float("inf")
        for candidate in candidates:
            best = minimum(best, function(candidate))
        return best

    def ceil_div(self, a: Number, b: Number) -> Number:
        return -(-a // b)

    def power(self, base: Number, exponent: Number) -> Number:
        return base**exponent

    def expm1(self, a: Number) -> Number:
        return math.expm1(a)

    def log2(self, a: Number) -> Number:
        return a.bit_length() - 1 if isinstance(a, int) and a.bit_count() == 1 else math.log2(a)

    def subsets(self, size: Number, among: Number) -> Number:
        count: Number = 1.0
        for chosen in range(int(size)):
            count = count * maximum(among - chosen, 0) / (chosen + 1)
        return count

    def either(self, condition: Number, yes: Number, no: Number) -> Number:
        return yes if condition else no

    def mean(self, total: Number, n: Number) -> Number:
        if isinstance(total, float):
            return total / n
        from fractions import Fraction  # imports decimal, which a plain estimate does not need

        return whole(Fraction(total, n))

    def plain(self, a: Number) -> Number:
        return float(a)

    def is_count(self, a: Number) -> bool:
        """Whether the number is an int, or stands for ints, so that exact division gives an int."""
        return isinstance(a, int)

    def is_just(self, a: Number, n: int) -> bool:
        return isinstance(a, int) and a == n


class ArrayBackend(Backend):
    """NumPy arrays and scalars, and ArrayFraction, the exact quotient of int arrays."""

    module = "numpy"

    @classmethod
    def types(cls, module: Any) -> tuple[type, ...]:
        return (module.ndarray, module.generic, ArrayFraction)

    def minimum(self, a: Number, b: Number) -> Number:
        return self.library.minimum(_without_fractions(a), _without_fractions(b))

    def maximum(self, a: Number, b: Number) -> Number:
        return self.library.maximum(_without_fractions(a), _without_fractions(b))

    def product(self, values: list[Number]) -> Number:
        if all(isinstance(v, int) or getattr(v, "dtype", None) == "int64" for v in values):
            values = sorted(values, key=lambda value: not isinstance(value, int))  # multiplying ints is faster
        return math.prod(values)

    def smallest(
        self, function: Callable[[Sequence[Number]], Number], candidates: Sequence[Sequence[Number]],
        numbers: Iterable[Number],
    ) -> Number:  # fmt: skip
        arrays = [each for each in numbers if not isinstance(each, (int, float))]
        are_small = all(isinstance(each, self.library.ndarray) and each.size <= SMALL_ARRAY for each in arrays)
        if not arrays or not are_small or any(each.dtype == object for each in arrays):
            return super().smallest(function, candidates, arrays)
        axes = (1,) * max(each.ndim for each in arrays)
        columns = [self.library.array(column).reshape(-1, *axes) for column in zip(*candidates, strict=True)]
        return function(columns).min(axis=0)

    def ceil_div(self, a: Number, b: Number) -> Number:
        return self.library.ceil(a / b) if getattr(a, "dtype", self.library.dtype(int)).kind == "f" else -(-a // b)

    def power(self, base: Number, exponent: Number) -> Number:
        # By Python's pow: the last bit of NumPy's can differ. [()] makes a number of an array without axes.
        power = self.library.frompyfunc(pow, 2, 1)(base, exponent)
        return self.library.asarray(power, dtype=float)[()]

    def expm1(self, a: Number) -> Number:
        return self.library.expm1(a)

    def either(self, condition: Number, yes: Number, no: Number) -> Number:
        return self.library.where(condition, _without_fractions(yes), _without_fractions(no))

    def mean(self, total: Number, n: Number) -> Number:
        return ArrayFraction(total, n) if isinstance(n, int) and is_count(total) else total / n

    def plain(self, a: Number) -> Number:
        return plain(a.numerators) / a.denominator if isinstance(a, ArrayFraction) else a.astype(float)

    def is_count(self, a: Number) -> bool:
        return not isinstance(a, ArrayFraction) and bool(a.dtype.kind != "f")

    def is_just(self, a: Number, n: int) -> bool:
        return False  # an array stands for many numbers


class SymbolBackend(Backend):
    """SymPy expressions."""

    module = "sympy"

    @classmethod
    def types(cls, module: Any) -> tuple[type, ...]:
        return (module.Basic,)

    def minimum(self, a: Number, b: Number) -> Number:
        return self.library.Min(a, b)

    def maximum(self, a: Number, b: Number) -> Number:
        return self.library.Max(a, b)

    def largest(self, values: list[Number]) -> Number:
        if len(set(values)) == 1:
            return values[0]
        return self.library.Max(*dict.fromkeys(values), evaluate=False)

    def ceil_div(self, a: Number, b: Number) -> Number:
        return self.library.ceiling(a / b)

    def expm1(self, a: Number) -> Number:
        return self.library.exp(a) - 1

    def log2(self, a: Number) -> Number:
        from sympy.codegen.cfunctions import log2

        return log2(a)

    def subsets(self, size: Number, among: Number) -> Number:
        return self.library.binomial(among, size)

    def either(self, condition: Number, yes: Number, no: Number) -> Number:
        return self.library.Piecewise((yes, condition), (no, True))

    def mean(self, total: Number, n: Number) -> Number:
        return total / n

    def is_just(self, a: Number, n: int) -> bool:
        return bool(a.is_Integer and a == n)  # where symbols cancel


class TracedBackend(Backend):
    """Traced numbers: their trace does the arithmetic."""

    module = "roofmodel.numbers.traced"

    @classmethod
    def types(cls, module: Any) -> tuple[type, ...]:
        return (module.Traced,)

    def _trace(self, *values: Number) -> Any:
        return self.library.trace_of(values)

    def minimum(self, a: Number, b: Number) -> Number:
        return self._trace(a, b).minimum(a, b)

    def maximum(self, a: Number, b: Number) -> Number:
        return self._trace(a, b).maximum(a, b)

    def ceil_div(self, a: Number, b: Number) -> Number:
        return self._trace(a, b).ceil_div(a, b)

    def expm1(self, a: Number) -> Number:
        return a.trace.step("expm1", a)

    def either(self, condition: Number, yes: Number, no: Number) -> Number:
        return condition.trace.where(condition, yes, no)

    def mean(self, total: Number, n: Number) -> Number:
        return self._trace(total, n).mean(total, n)

    def plain(self, a: Number) -> Number:
        return a

    def is_count(self, a: Number) -> bool:
        return bool(a.trace.exact)

    def is_just(self, a: Number, n: int) -> bool:
        return bool(a == n)


BACKENDS: list[type[Backend]] = [TracedBackend, SymbolBackend, ArrayBackend, Backend]
"""Where numbers of several kinds meet, the first of their backends handles all of them."""
_PLAIN = (int, float)  # checked first: nearly all numbers of an estimate are of these types


def _backend(*values: Number) -> Backend:
    return _backend_of(*map(type, values))


@cache
def _backend_of(*types: type) -> Backend:
    """The backend for values of these types. A library that defines one of them is loaded, as there is a value."""
    for backend in BACKENDS:
        library = sys.modules.get(backend.module)
        if library and any(issubclass(each, backend.types(library)) for each in types):
            return backend(library)
    return Backend(None)


# --- Functions --------------------------------------------------------------------------------------


def product(values: Iterable[Number]) -> Number:
    """The product of the values; 1 for none."""
    values = list(values)
    return _backend(*values).product(values)


def minimum(a: Number, b: Number) -> Number:
    """The smaller of two numbers; elementwise for arrays."""
    if type(a) in _PLAIN and type(b) in _PLAIN:
        return a if a <= b else b
    return _backend(a, b).minimum(a, b)


def maximum(a: Number, b: Number) -> Number:
    """The larger of two numbers; elementwise for arrays."""
    if type(a) in _PLAIN and type(b) in _PLAIN:
        return a if a >= b else b
    return _backend(a, b).maximum(a, b)


def largest(values: Iterable[Number]) -> Number:
    """The largest of the values, 0 for none; of symbols an unevaluated `Max`, since only their values decide."""
    values = list(values)
    return _backend(*values).largest(values)


def smallest(
    function: Callable[[Sequence[Number]], Number], candidates: Sequence[Sequence[Number]], numbers: Iterable[Number]
) -> Number:
    """The smallest `function(candidate)`, which depends on these numbers; of small arrays all candidates at once."""
    return _backend(*numbers).smallest(function, candidates, numbers)


def ceil_div(a: Number, b: Number) -> Number:
    """`a / b` rounded up; exact for ints."""
    if type(a) in _PLAIN and type(b) in _PLAIN:
        return -(-a // b)
    return _backend(a, b).ceil_div(a, b)


def doublings(n: Number) -> Number:
    """The smallest k up to 20 with 2^k >= n."""
    return sum(either(n > 2**power, 1, 0) for power in range(20))


def power(base: Number, exponent: Number) -> Number:
    """`base ** exponent`; for arrays with the same last bit as for floats."""
    return _backend(base, exponent).power(base, exponent)


def expm1(a: Number) -> Number:
    """e^a - 1, precise for small a."""
    return _backend(a).expm1(a)


def log2(a: Number) -> Number:
    """The logarithm to base 2: an int for an int that is a power of 2."""
    return _backend(a).log2(a)


def subsets(size: Number, among: Number) -> Number:
    """The number of ways to choose `size` of `among` things, which may be a mean; 0 where there are fewer."""
    return _backend(size).subsets(size, among)


def either(condition: Number, yes: Number, no: Number) -> Number:
    """`yes if condition else no`, elementwise for arrays; also for words."""
    return _backend(condition).either(condition, yes, no)


# --- Exact division ---------------------------------------------------------------------------------


class ArrayFraction:
    """A fraction for each element of an int array, over a common denominator: what a Fraction is to an int.

    The mean over several passes needs sums, differences, products with ints, division rounded down and comparison.
    """

    __array_ufunc__ = None  # NumPy arrays leave the arithmetic with it to this class

    def __init__(self, numerators: Number, denominator: int) -> None:
        self.numerators, self.denominator = numerators, denominator

    def __add__(self, other: Number) -> Number:
        if not isinstance(other, ArrayFraction):
            if not is_count(other):
                return plain(self) + other  # a Fraction and a float make a float
            return ArrayFraction(self.numerators + other * self.denominator, self.denominator)
        common = math.lcm(self.denominator, other.denominator)
        summands = (each.numerators * (common // each.denominator) for each in (self, other))
        return ArrayFraction(sum(summands), common)

    def __mul__(self, other: Number) -> Number:
        if not isinstance(other, int):
            return ArrayFraction(self.numerators * other, self.denominator) if is_count(other) else plain(self) * other
        common = math.gcd(other, self.denominator)
        numerators, denominator = self.numerators * (other // common), self.denominator // common
        return numerators if denominator == 1 else ArrayFraction(numerators, denominator)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> ArrayFraction:
        return ArrayFraction(-self.numerators, self.denominator)

    def __sub__(self, other: Number) -> Number:
        return self + -other

    def __floordiv__(self, other: int) -> Number:
        return self.numerators // (self.denominator * other)

    def __truediv__(self, other: Number) -> Number:
        return self.numerators / (self.denominator * other)

    def __gt__(self, other: Number) -> Number:
        return self.numerators > other * self.denominator


def _without_fractions(number: Number) -> Number:
    """The number, with an ArrayFraction as an array of floats."""
    return plain(number) if isinstance(number, ArrayFraction) else number


def mean(total: Number, n: Number) -> Number:
    """`total / n`, exact: an int where n divides the total, else a Fraction; for int arrays an ArrayFraction."""
    if isinstance(n, int) and n == 1:
        return total
    return _backend(total, n).mean(total, n)


def whole(a: Number) -> Number:
    """A Fraction with denominator 1 as an int; anything else unchanged."""
    return a.numerator if getattr(a, "denominator", None) == 1 else a


def plain(a: Number) -> Number:
    """A Fraction as a float, an array as floats; ints, floats and traced numbers unchanged."""
    return a if isinstance(a, int | float) else _backend(a).plain(a)


def quotient(a: Number, b: Number) -> Number:
    """`a / b` where b is known to divide a: ints stay ints, symbols cancel."""
    return a // b if is_count(a) and is_count(b) else a / b


def is_count(a: Number) -> bool:
    """Whether the number is an int, an int array, or a traced number that can be an int."""
    return type(a) is int or _backend(a).is_count(a)


def half(a: Number) -> Number:
    """`a / 2` for an even number: ints stay ints."""
    return quotient(a, 2)


def is_just(a: Number, n: int) -> bool:
    """Whether a number is the int n; False for arrays and symbols, which stand for many numbers."""
    return bool(a == n) if type(a) is int else _backend(a).is_just(a, n)


# --- Functions that traced numbers handle as a whole ------------------------------------------------

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def _trace_of(arguments: Iterable[Any]) -> Any:
    tracing = sys.modules.get(TracedBackend.module)
    return tracing and tracing.trace_of(arguments)


def trace_branches(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Mark a function whose branches all give numbers of the same structure: its branches stay inside a trace, as
    choices between numbers."""

    @wraps(function)
    def called(*arguments: _Parameters.args, **others: _Parameters.kwargs) -> _Result:
        trace = _trace_of((*arguments, *others.values()))
        if trace is None:
            return function(*arguments, **others)
        result: _Result = trace.trace_branches(lambda: function(*arguments, **others))
        return result

    return called


def formula(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Mark a function of numbers and named tuples of numbers that a trace stores once and calls."""

    @wraps(function)
    def called(*arguments: _Parameters.args, **others: _Parameters.kwargs) -> _Result:
        trace = _trace_of(arguments)
        if trace is None:
            return function(*arguments, **others)
        result: _Result = trace.call(function, arguments)
        return result

    return called
