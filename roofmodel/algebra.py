"""Numbers of any kind: int, NumPy array, SymPy symbol, recorded number.

One formula serves all of them: ints give exact counts, arrays a sweep in one call, symbols the
derivation, recorded numbers what a browser evaluates (recorded.py). Plain `+ - *` already work on all of
them; the few functions that do not live here and look at what they are given. The libraries are never
imported by this module: if a value is an array or a symbol, its library is loaded already.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from functools import reduce, wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

Number: TypeAlias = Any
"""An int, a float, a NumPy array (float64), a SymPy expression or a recorded number."""


_PLAIN = (int, float)  # looked at first: a whole model asks thousands of times, and nearly always of these


def _recorded() -> Any:
    return sys.modules.get("roofmodel.recorded")


def _library(*values: Number) -> Any:
    """The library that understands these values: SymPy, NumPy, recorded.py, or None for plain numbers."""
    sympy, numpy, recorded = sys.modules.get("sympy"), sys.modules.get("numpy"), _recorded()
    if recorded is not None and any(isinstance(v, recorded.Recorded) for v in values):
        return recorded
    if sympy is not None and any(isinstance(v, sympy.Basic) for v in values):
        return sympy
    if numpy is not None and any(isinstance(v, numpy.ndarray | numpy.generic) for v in values):
        return numpy
    return None


def product(values: Iterable[Number]) -> Number:
    """The product of the values; 1 for none."""
    return math.prod(values)


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


def ceil_div(a: Number, b: int) -> Number:
    """`a / b` rounded up; exact for ints."""
    if type(a) in _PLAIN:
        return -(-a // b)
    library = _library(a)
    if library in (None, _recorded()):
        return -(-a // b)
    return library.ceiling(a / b) if library.__name__ == "sympy" else library.ceil(a / b)


def mean(total: Number, n: Number) -> Number:
    """`total / n`; exact for ints: an int, or a Fraction where they do not divide."""
    if not (isinstance(total, int) and isinstance(n, int)):
        return total / n
    from fractions import Fraction

    return whole(Fraction(total, n))


def whole(a: Number) -> Number:
    """A Fraction that is a whole number as the int that it is; anything else as it stands."""
    return a.numerator if getattr(a, "denominator", None) == 1 else a


def plain(a: Number) -> Number:
    """A Fraction as a float, for JSON and the like; anything else as it stands."""
    return a if isinstance(a, int | float) or _stands_for_one(a) else float(a)


def quotient(a: Number, b: Number) -> Number:
    """`a / b` where b is known to divide a; an int stays an int, and symbols cancel."""
    return a // b if all(isinstance(n, int) or _stands_for_one(n) for n in (a, b)) else a / b


def half(a: Number) -> Number:
    """`a / 2` for a number known to be even; an int stays an int."""
    return quotient(a, 2)


def is_just(a: Number, n: int) -> bool:
    """Whether a number is the int n; an array or a symbol, which stands for many, is not."""
    return bool(a == n) if isinstance(a, int) or _stands_for_one(a) else False


def _stands_for_one(a: Number) -> bool:
    """Whether it is a recorded number: an int that is not known yet."""
    return (recorded := _recorded()) is not None and isinstance(a, recorded.Recorded)


def either(condition: Number, yes: Number, no: Number) -> Number:
    """`yes if condition else no`, elementwise for arrays; also of words."""
    library = _library(condition)
    return (yes if condition else no) if library is None else library.where(condition, yes, no)


_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def formula(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Marks a function of numbers, and of named tuples of numbers, that recorded numbers take as one step."""

    @wraps(function)
    def called(*arguments: _Parameters.args, **others: _Parameters.kwargs) -> _Result:
        book = (recorded := _recorded()) and recorded.book_of(arguments)
        return book.call(function, arguments) if book else function(*arguments, **others)

    return called
