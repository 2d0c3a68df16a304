from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.numbers import algebra
from roofmodel.numbers.traced import Fork, Trace, Traced, Undecided
from tests.evaluate_trace import TraceValues

SIZES = st.integers(0, 2**70)
POSITIVE = st.integers(1, 2**40)


def replayed(trace: Trace, result: Any, **inputs: Any) -> Any:
    return TraceValues(trace, inputs.__getitem__).fill(result)


def many(n: Any, m: Any, x: Any) -> list[Any]:
    """All operations of formulas; `x` is a float."""
    return [
        n + 0, 0 + n, n * 1, n * 0, n - m, 3 - n, n * m + 7, (n + m) // m, n % m, n / m, 2 / m, x**2.5, 2 ** (n % 64),
        -(-n // m), algebra.ceil_div(n, m), algebra.half(n * (n + 1)), algebra.minimum(n, m), algebra.maximum(n, 5),
        algebra.minimum(float("inf"), x), algebra.either(n > m, n, m), algebra.either(m <= n, "yes", "no"), n >= m,
        n != m, 1 - (x > n), x * (n < m), (x + n) // x, (x + n) % x, math.e**-x, sum([n, m, x]), math.prod([n, m, x]),
        *map(algebra.plain, (algebra.mean(n, m), 2 * algebra.mean(n, m) + n, algebra.mean(n, m) * x)),
        algebra.mean(n * m, m), -(-algebra.mean(n, m) // 3),
    ]  # fmt: skip


@given(n=SIZES, m=POSITIVE, x=st.floats(1e-3, 1e3))
def test_the_traced_formula_equals_the_python_result(n: int, m: int, x: float) -> None:
    trace = Trace()
    recorded = many(trace.input("n"), trace.input("m"), trace.input("x"))
    expected = many(n, m, x)
    found = replayed(trace, recorded, n=n, m=m, x=x)
    assert found == expected
    assert [isinstance(value, float) for value in found] == [isinstance(value, float) for value in expected]


def test_equal_steps_are_written_once() -> None:
    trace = Trace()
    n = trace.input("n")
    assert n * 2 + 1 == n * 2 + 1
    assert len(trace.nodes) == 5  # n, 2, n * 2, 1, n * 2 + 1
    assert (n * 2).index == (n * 2).index != (2 * n).index  # in Python's order


@given(n=SIZES, m=POSITIVE, x=st.floats(1e-3, 1e3))
def test_an_excerpt_of_a_derivation_has_only_the_requested_steps(n: int, m: int, x: float) -> None:
    trace, inputs = Trace(), {"n": n, "m": m, "x": x}
    recorded = [value for value in many(*map(trace.input, inputs)) if isinstance(value, Traced)]
    wanted = recorded[::3]
    part, used = Trace(), trace.excerpt(wanted)
    part.nodes = used.nodes
    assert len(part.nodes) < len(trace.nodes)
    small = TraceValues(part, inputs.__getitem__)
    assert [small.get(used.where[number.index]) for number in wanted] == [
        TraceValues(trace, inputs.__getitem__).get(number.index) for number in wanted
    ]


def test_an_excerpt_joins_a_sum_into_one_step_unless_its_parts_have_other_uses() -> None:
    trace = Trace()
    a, b, c, d = map(trace.input, "abcd")
    used = trace.excerpt([a + b + c + d])
    assert used.nodes == [*(("input", name) for name in "abcd"), ("+", 0, 1, 2, 3)]
    used = trace.excerpt([a + b + c, a + b + d, a + (b + c)])  # in Python's order: a + (b + c) is not a + b + c
    assert used.nodes[4:] == [("+", 0, 1), ("+", 4, 2), ("+", 4, 3), ("+", 1, 2), ("+", 0, 7)]
    assert trace.excerpt([a + b, a + b + c]).nodes[3:] == [("+", 0, 1), ("+", 3, 2)]  # a + b is a result itself


class Pair(NamedTuple):
    name: str
    size: Any


def test_a_condition_inside_a_branch_does_not_apply_outside_it() -> None:
    @algebra.trace_branches
    def priced(n: Any) -> Pair | None:
        return Pair("few", 2 * n) if n < 5 else Pair("many", n)

    trace = Trace()
    found = priced(trace.input("n"))
    assert [priced(4), priced(7)] == [("few", 8), ("many", 7)]
    assert [replayed(trace, found, n=n) for n in (4, 7)] == [["few", 8], ["many", 7]]

    @algebra.trace_branches
    def unknown(n: Any) -> Pair | None:
        return None if n < 5 else Pair("many", n)

    cases = trace.cases(lambda: unknown(trace.input("n")))  # the branches have nothing in common
    assert isinstance(cases, Fork)
    assert [replayed(trace, cases, n=n) for n in (4, 7)] == [None, ["many", 7]]


def test_both_branches_of_a_condition_are_traced() -> None:
    trace = Trace()
    n, m = trace.input("n"), trace.input("m")

    def size() -> Any:
        if n == 1:
            return "one"
        return "wide" if m > 10 and n > m else n * m

    cases = trace.cases(size)
    assert isinstance(cases, Fork)
    assert [replayed(trace, cases, n=a, m=b) for a, b in ((1, 99), (12, 11), (5, 11), (5, 2))] == [
        "one",
        "wide",
        55,
        10,
    ]


def test_lower_bounds_decide_conditions_where_they_can() -> None:
    trace = Trace()
    n, c = trace.input("n", least=1), trace.input("c", least=0)
    assert (n == 0, n < 1, n >= 1, n > 0, n <= 0, n == 0) == (False, False, True, True, False, False)
    assert bool(n * (c + 1))
    assert isinstance(c == 0, Traced)
    assert (trace.input("n", least=2) == 1) is False  # the current lower bound decides, not the first one
    with pytest.raises(Undecided):
        bool(c)


def test_an_unrecorded_decision_is_an_error() -> None:
    trace = Trace()
    n = trace.input("n")
    for careless in (lambda: max(n, 3), lambda: n in (1, 2), lambda: 1 if n else 0, lambda: not n > 3):
        with pytest.raises(Undecided):
            careless()
    for impossible in (float, int, math.sqrt, range):
        with pytest.raises(TypeError):
            impossible(n)  # type: ignore[arg-type]


def test_too_many_branches_are_refused() -> None:
    trace = Trace()
    inputs = [trace.input(str(i)) for i in range(12)]
    with pytest.raises(Undecided):
        trace.cases(lambda: [1 if n > 3 else 0 for n in inputs])


class Shape(NamedTuple):
    rows: Any
    columns: Any


@algebra.formula
def area(shape: Shape, scale: Any) -> Any:
    """A formula with a condition on a parameter."""
    return shape.rows * shape.columns * (2 if scale > 1 else 1)


def test_a_formula_is_written_once_and_called() -> None:
    trace = Trace()
    n = trace.input("n")
    results = [area(Shape(n, 4), n), area(Shape(7, n * 2), 0.5), area(Shape(3, 4), 1)]
    (formula,) = trace.functions.values()
    assert replayed(trace, results, n=5) == [40, 70, 12]
    assert len(formula.trace.nodes) == 8  # rows, columns, scale; 1, 1 < scale; rows * columns, 2, and that times 2
    assert results[2] == 12  # a call with plain numbers only is not traced
