from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.numbers import algebra

HUGE = 10**40 + 7  # far beyond the 53 bits of a float
SIZES = st.integers(0, 2**40)
POSITIVE = st.integers(1, 2**20)

n, m = sympy.symbols("n m", integer=True, nonnegative=True)

TWO_NUMBERS: list[tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = [
    (algebra.minimum, min),
    (algebra.maximum, max),
]


@pytest.mark.parametrize(("function", "truth"), TWO_NUMBERS, ids=["minimum", "maximum"])
@settings(deadline=None)  # sympy is slow the first time
@given(a=SIZES, b=SIZES)
def test_ints_arrays_and_symbols_agree_on_the_extremes(
    function: Callable[[Any, Any], Any], truth: Callable[[int, int], int], a: int, b: int
) -> None:
    expected = truth(a, b)
    assert function(a, b) == expected
    both = numpy.array([a, b], dtype=float)  # SIZES are exact in a float64
    assert function(both, both[::-1]).tolist() == [expected, expected]
    assert function(both, a).tolist() == [truth(a, a), expected]  # elementwise against a plain number
    assert function(a, both).tolist() == [truth(a, a), expected]
    assert function(n, m).subs({n: a, m: b}) == expected
    assert function(n, b).subs(n, a) == expected
    assert function(a, m).subs(m, b) == expected


@settings(deadline=None)  # sympy is slow the first time
@given(a=SIZES, b=POSITIVE)
def test_ints_arrays_and_symbols_agree_on_division_rounded_up(a: int, b: int) -> None:
    expected = -((-Fraction(a, b)).__floor__())
    assert algebra.ceil_div(a, b) == expected
    assert algebra.ceil_div(numpy.array([a, a + b], dtype=float), b).tolist() == [expected, expected + 1]
    assert algebra.ceil_div(n, b).subs(n, a) == expected


@settings(deadline=None)  # sympy is slow the first time
@given(a=SIZES)
def test_ints_arrays_and_symbols_agree_on_halves(a: int) -> None:
    assert algebra.half(2 * a) == a
    assert algebra.half(numpy.array([2.0 * a])).tolist() == [a]
    assert algebra.half(2 * n).subs(n, a) == a


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 1000), max_size=5))
def test_ints_arrays_and_symbols_agree_on_products(factors: list[int]) -> None:
    expected = 1
    for factor in factors:
        expected = expected * factor
    assert algebra.product(factors) == expected
    symbols = sympy.symbols(f"x:{len(factors)}") if factors else ()
    symbolic = sympy.sympify(algebra.product(symbols))
    assert symbolic.subs(dict(zip(symbols, factors, strict=True))) == expected
    arrays = [numpy.array([factor, 1], dtype=float) for factor in factors]
    assert numpy.array_equal(algebra.product(arrays), numpy.array([expected, 1]) if arrays else 1)


WHOLES = st.lists(st.integers(0, 2**30), min_size=1, max_size=4)


@settings(deadline=None)
@given(WHOLES, st.integers(1, 2**20), st.sampled_from(["int64", "object"]))
def test_arrays_of_ints_divide_like_ints(values: list[int], divisor: int, kind: str) -> None:
    array = numpy.array(values, dtype=kind)
    assert algebra.ceil_div(array, divisor).tolist() == [-(-value // divisor) for value in values]
    assert algebra.half(2 * array).tolist() == values
    assert algebra.half(2 * array).dtype == array.dtype


@settings(deadline=None)
@given(WHOLES, st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 50), st.sampled_from(["int64", "object"]))
def test_array_fractions_equal_fractions_elementwise(
    totals: list[int], n: int, other: int, factor: int, kind: str
) -> None:
    array = numpy.array(totals, dtype=kind)
    shares, fractions = algebra.mean(array, n), [Fraction(total, n) for total in totals]
    assert algebra.ceil_div(shares, factor).tolist() == [-(-f // factor) for f in fractions]
    assert algebra.plain(shares).tolist() == [float(f) for f in fractions]
    # n times a mean over n passes is the total, also after multiplications and additions
    assert (n * (factor * shares)).tolist() == [factor * total for total in totals]
    assert (n * (array * shares)).tolist() == [total * total for total in totals]
    assert (n * (factor + shares)).tolist() == [n * factor + total for total in totals]
    assert (shares + 0.5).tolist() == [float(f) + 0.5 for f in fractions]  # a Fraction + a float is a float
    assert (0.1 * shares).tolist() == [0.1 * float(f) for f in fractions]
    pairs = [(algebra.maximum, max), (algebra.minimum, min)]
    for extreme, own in pairs:
        assert extreme(shares, factor).tolist() == [own(float(f), factor) for f in fractions]
        assert extreme(0, shares).tolist() == [own(0, float(f)) for f in fractions]
    assert algebra.either(array > 0, shares, 0).tolist() == [float(f) if f > 0 else 0 for f in fractions]
    both = sum([shares, algebra.mean(array + 1, other)])
    assert (n * other * both).tolist() == [other * total + n * (total + 1) for total in totals]


def test_a_mean_of_an_array_is_exact_where_a_float_would_not_be() -> None:
    total = numpy.array([2**60 + 1])
    assert (3 * algebra.mean(total, 3)).tolist() == [2**60 + 1]


@settings(deadline=None)
@given(st.floats(0, 1), st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
def test_powers_of_arrays_are_those_of_numbers_to_the_last_bit(base: float, exponents: list[int]) -> None:
    assert algebra.power(base, numpy.array(exponents)).tolist() == [base**n for n in exponents]
    assert algebra.power(base, exponents[0]) == base ** exponents[0]


def test_a_condition_selects_elementwise() -> None:
    assert algebra.either(3 > 2, 1, 2) == 1
    assert algebra.either(numpy.array([True, False]), 1, numpy.array([5, 6])).tolist() == [1, 6]


def test_an_empty_product_is_one() -> None:
    assert algebra.product([]) == 1
    assert algebra.product(iter(())) == 1


def test_huge_ints_stay_exact() -> None:
    assert algebra.minimum(HUGE, HUGE + 1) == HUGE
    assert algebra.maximum(HUGE, HUGE + 1) == HUGE + 1
    assert algebra.half(2 * HUGE) == HUGE
    assert algebra.ceil_div(3 * HUGE, 3) == HUGE
    assert algebra.ceil_div(3 * HUGE + 1, 3) == HUGE + 1
    assert algebra.product([HUGE, HUGE]) == HUGE**2


def test_ints_stay_ints() -> None:
    for value in (
        algebra.minimum(3, 4),
        algebra.maximum(3, 4),
        algebra.half(8),
        algebra.ceil_div(7, 2),
        algebra.product([2, 3]),
    ):
        assert type(value) is int


def test_symbols_stay_symbols() -> None:
    assert algebra.minimum(n, 4) == sympy.Min(n, 4)
    assert algebra.maximum(4, n) == sympy.Max(n, 4)
    assert algebra.half(n * (n + 1)) == n * (n + 1) / 2  # S(S+1)/2 pairs
    assert algebra.ceil_div(n, 8) == sympy.ceiling(n / 8)


def test_plain_numbers_never_load_numpy_or_sympy() -> None:
    program = (
        "import sys\n"
        "from roofmodel.numbers import algebra\n"
        "algebra.minimum(1, 2), algebra.maximum(1, 2), algebra.half(4), algebra.ceil_div(5, 2), algebra.product([1])\n"
        "print(sorted({'numpy', 'sympy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("size", [3, algebra.SMALL_ARRAY + 1])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_the_smallest_of_several_candidates_is_that_of_each_element(size: int, shape: tuple[int, ...]) -> None:
    """Ceilings of n / row times row + column: the candidates are read once as arrays, or one after another."""
    candidates = [(1, 9), (4, 2), (16, 0)]

    def cost(n: Any) -> Callable[[Any], Any]:
        return lambda candidate: algebra.ceil_div(n, candidate[0]) * candidate[0] + candidate[1]

    numbers = numpy.arange(size).reshape(shape)
    found = algebra.smallest(cost(numbers), candidates, (numbers, 2.0))
    assert found.shape == numbers.shape
    each = [min(-(-n // rows) * rows + more for rows, more in candidates) for n in range(size)]
    assert found.ravel().tolist() == each
    assert [algebra.smallest(cost(n), candidates, (n,)) for n in range(3)] == each[:3]
