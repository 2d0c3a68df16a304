"""Numbers of any kind: int, NumPy array, SymPy symbol, recorded number, worked number.

One formula serves all of them: ints give exact counts, arrays a sweep in one call, symbols the
derivation, recorded numbers what a browser evaluates (recorded.py), worked numbers what a reader
does (worked.py). Plain `+ - *` already work on all of them; the few functions that do not live here
and look at what they are given. The libraries are never
imported by this module: if a value is an array or a symbol, its library is loaded already.

Counts in arrays are int64, or Python's ints as objects where 64 bits are too few, and as exact as a plain int; times
are float64.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from functools import cache, reduce, wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

Number: TypeAlias = Any
"""An int, a float, a Fraction; a NumPy array of them, or Shares; a SymPy expression; a recorded number."""


_PLAIN = (int, float)  # looked at first: a whole model asks thousands of times, and nearly always of these


_LIBRARIES = {
    "roofmodel.worked": ["Worked"],
    "roofmodel.recorded": ["Recorded"],
    "sympy": ["Basic"],
    "numpy": ["ndarray", "generic"],
}
"""Their types of numbers; where several meet, the first understands all of them."""


def _recorded() -> Any:
    return sys.modules.get("roofmodel.recorded")


def _library(*values: Number) -> Any:
    """The library that understands these values: SymPy, NumPy, recorded.py, or None for plain numbers."""
    return _library_of(*map(type, values))


@cache
def _library_of(*types: type) -> Any:
    """The same by their types, which are looked at once: a library of whose types there is a value is loaded."""
    for name, kinds in _LIBRARIES.items():
        library = sys.modules.get(name)
        known = tuple(getattr(library, kind) for kind in kinds) if library else ()
        if any(issubclass(each, known) for each in types):
            return library
    return None


def _arrays(*values: Number) -> Any:
    """NumPy where it is the library that understands these values, else None."""
    library = _library(*values)
    return library if library is sys.modules.get("numpy") else None


def product(values: Iterable[Number]) -> Number:
    """The product of the values; 1 for none. Ints go ahead of arrays of ints, which take longer."""
    found = list(values)
    if _arrays(*found) and all(isinstance(v, int) or getattr(v, "dtype", None) == "int64" for v in found):
        found.sort(key=lambda value: not isinstance(value, int))
    return math.prod(found)


def minimum(a: Number, b: Number) -> Number:
    """The smaller of two numbers, elementwise for arrays, `Min` for symbols."""
    if type(a) in _PLAIN and type(b) in _PLAIN:
        return a if a <= b else b
    library = _library(a, b)
    if library is None:
        return min(a, b)
    return library.Min(a, b) if library.__name__ == "sympy" else library.minimum(a, b)


def maximum(a: Number, b: Number) -> Number:
    """The larger of two numbers, elementwise for arrays, `Max` for symbols."""
    if type(a) in _PLAIN and type(b) in _PLAIN:
        return a if a >= b else b
    library = _library(a, b)
    if library is None:
        return max(a, b)
    return library.Max(a, b) if library.__name__ == "sympy" else library.maximum(a, b)


def largest(values: Iterable[Number]) -> Number:
    """The largest of so many numbers, 0 for none; of symbols, `Max` as it stands: which it is, numbers tell."""
    found = list(values)
    library = _library(*found)
    if library is not None and library.__name__ == "sympy":
        return library.Max(*dict.fromkeys(found), evaluate=False) if len(set(found)) > 1 else found[0]
    return reduce(maximum, found, 0)


def ceil_div(a: Number, b: Number) -> Number:
    """`a / b` rounded up; exact for ints."""
    library = _library(a, b)
    if library is not None and library.__name__ == "sympy":
        return library.ceiling(a / b)
    if library is not None and library.__name__ == "roofmodel.worked":
        return library.ceiling(a, b)
    if _arrays(a) and a.dtype.kind == "f":
        return library.ceil(a / b)
    return -(-a // b)


def doublings(n: Number) -> Number:
    """How often 1 is doubled to reach n or more, up to 2^20."""
    return sum(either(n > 2**power, 1, 0) for power in range(20))


def lowered(best: Number, least: Callable[..., Number], function: Callable[..., Number], *values: Number) -> Number:
    """`function(best, *values)`, which is `best` or less, and `best` where that is no more than `least(*values)`.

    All of them are numbers, or arrays that combine to one shape. Where most may be less all are asked for.
    """
    if _stands_for_one(best):
        return function(best, *values)
    hopeful = least(*values) < best
    numpy = _arrays(hopeful)
    if numpy is None or hopeful.ndim == 0:
        return function(best, *values) if hopeful else best
    count = numpy.count_nonzero(hopeful)
    if count == 0 or 2 * count > hopeful.size:
        return function(best, *values) if count else best
    shape = numpy.broadcast_shapes(*map(numpy.shape, (best, hopeful, *values)))
    best, there = numpy.array(numpy.broadcast_to(best, shape)), numpy.broadcast_to(hopeful, shape)
    best[there] = function(best[there], *(numpy.broadcast_to(v, shape)[there] if _arrays(v) else v for v in values))
    return best


def power(base: Number, exponent: Number) -> Number:
    """`base` to the power of `exponent`; for arrays as Python has it, since the last bit of NumPy's may be another."""
    numpy = _arrays(base, exponent)
    if numpy is None:
        return base**exponent
    return numpy.asarray(numpy.frompyfunc(pow, 2, 1)(base, exponent), dtype=float)[()]  # [()]: of no axes, a number


def expm1(a: Number) -> Number:
    """e to the power of `a`, less 1: exact where `a` is small, which the difference is not."""
    library = _library(a)
    return math.expm1(a) if library is None else library.expm1(a)


class Shares:
    """Ints of an array over a common denominator: what a Fraction is to an int.

    It is what the mean over a run of passes needs: sums, products with ints, division rounded down.
    """

    __array_ufunc__ = None  # an array that meets one leaves the arithmetic to it

    def __init__(self, numerators: Number, denominator: int) -> None:
        self.numerators, self.denominator = numerators, denominator

    def __add__(self, other: Number) -> Number:
        if not isinstance(other, Shares):
            if not _counts(other):
                return plain(self) + other  # as a Fraction and a float are a float
            return Shares(self.numerators + other * self.denominator, self.denominator)
        common = math.lcm(self.denominator, other.denominator)
        summands = (each.numerators * (common // each.denominator) for each in (self, other))
        return Shares(sum(summands), common)

    def __mul__(self, other: Number) -> Number:
        if not isinstance(other, int):
            return Shares(self.numerators * other, self.denominator) if _counts(other) else plain(self) * other
        common = math.gcd(other, self.denominator)
        numerators, denominator = self.numerators * (other // common), self.denominator // common
        return numerators if denominator == 1 else Shares(numerators, denominator)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Shares:
        return Shares(-self.numerators, self.denominator)

    def __floordiv__(self, other: int) -> Number:
        return self.numerators // (self.denominator * other)

    def __truediv__(self, other: Number) -> Number:
        return self.numerators / (self.denominator * other)


def part(name: str, value: Number, unit: str = "") -> Number:
    """The value, by this name where a formula is shown as it is evaluated (worked.py)."""
    worked = sys.modules.get("roofmodel.worked")
    return worked.part(name, value, unit) if worked is not None and worked.active else value


def mean(total: Number, n: Number) -> Number:
    """`total / n`, exact: of ints an int where they divide and else a Fraction, of arrays of ints Shares."""
    if _stands_for_one(total) or _stands_for_one(n):
        return _recorded().mean(total, n)
    if is_just(n, 1):
        return total
    if isinstance(n, int) and _counts(total) and _arrays(total):
        return Shares(total, n)
    if isinstance(total, float) or _library(total, n):
        return total / n
    from fractions import Fraction

    return whole(Fraction(total, n))


def whole(a: Number) -> Number:
    """A Fraction that is a whole number as the int that it is; anything else as it stands."""
    return a.numerator if getattr(a, "denominator", None) == 1 else a


def plain(a: Number) -> Number:
    """A Fraction as a float, for JSON and the like; an array as floats, as times have it; else as it stands."""
    if isinstance(a, int | float) or _stands_for_one(a):
        return a
    if isinstance(a, Shares):
        return plain(a.numerators) / a.denominator
    return a.astype(float) if _arrays(a) else float(a)


def quotient(a: Number, b: Number) -> Number:
    """`a / b` where b is known to divide a; ints stay ints, and symbols cancel."""
    return a // b if _counts(a) and _counts(b) else a / b


def _counts(a: Number) -> bool:
    """Whether it is an int, or an array of them."""
    return isinstance(a, int) or _stands_for_one(a) or bool(_arrays(a) and a.dtype.kind != "f")


def half(a: Number) -> Number:
    """`a / 2` for a number known to be even; ints stay ints."""
    return quotient(a, 2)


def is_just(a: Number, n: int) -> bool:
    """Whether a number is the int n; an array or a symbol, which stands for many, is not."""
    known = isinstance(a, int) or getattr(a, "is_Integer", False)  # SymPy's, of what cancels
    return bool(a == n) if known or _stands_for_one(a) else False


def _stands_for_one(a: Number) -> bool:
    """Whether it is a recorded number: an int that is not known yet."""
    return (recorded := _recorded()) is not None and isinstance(a, recorded.Recorded)


def either(condition: Number, yes: Number, no: Number) -> Number:
    """`yes if condition else no`, elementwise for arrays; also of words."""
    library = _library(condition)
    return (yes if condition else no) if library is None else library.where(condition, yes, no)


_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def settled(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Marks a function that may ask about numbers, but gives numbers of one build whatever they are: of recorded
    numbers its questions stay inside."""

    @wraps(function)
    def called(*arguments: _Parameters.args, **others: _Parameters.kwargs) -> _Result:
        book = (recorded := _recorded()) and recorded.book_of((*arguments, *others.values()))
        return book.settled(lambda: function(*arguments, **others)) if book else function(*arguments, **others)

    return called


def formula(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Marks a function of numbers, and of named tuples of numbers, that recorded numbers take as one step."""

    @wraps(function)
    def called(*arguments: _Parameters.args, **others: _Parameters.kwargs) -> _Result:
        book = (recorded := _recorded()) and recorded.book_of(arguments)
        return book.call(function, arguments) if book else function(*arguments, **others)

    return called
