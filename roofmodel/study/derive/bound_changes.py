"""At which size another roof binds something whose cost is known at every size.

Which roof binds is asked of the counts themselves, size by size, so that the answer is what `roof estimate` says at
that size and at the one before. The place between the two comes from the equation of both roofs' times, counted with a
symbol: solved exactly where it is a polynomial, by bisection where it is not. Where both take the same time at a whole
number, that number is the answer, although the old roof still binds at it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from roofmodel.algebra import Number
from roofmodel.counting import textbook_kernels
from roofmodel.counting.collective import Collective
from roofmodel.counting.number_formats import FORMATS
from roofmodel.counting.operator import Cost
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.models.symbols import symbol
from roofmodel.prediction.links import link_bandwidth
from roofmodel.prediction.roofline import place
from roofmodel.study.estimate.options import LONGEST

GRID = 1.25  # sizes that are asked grow by so much; what changes and changes back in between is found by its equation

Costs = Callable[[Number], Cost]
"""What something costs at a size: an int, or a symbol."""

Ways = Callable[[Number], Collective | None]
"""Which way goes what is sent at a size; None: to a neighbour."""


class Side(NamedTuple):
    """What a roof takes: work in the variable, over a ceiling as a number; `ceiling` by name."""

    roof: str  # compute, memory or communication
    counts: str  # which figure of a Cost that work is
    work: Any
    rate: float
    ceiling: str = ""


class Equation(NamedTuple):
    """Two roofs that take the same time."""

    left: Side
    right: Side


class Change(NamedTuple):
    """`value` is the first size at which `to` binds; `exact` the real number at which both take the same time, of which
    there is none, nor an equation, where what is exchanged goes another way from there on."""

    value: int
    exact: float | None
    before: str
    to: str
    equation: Equation | None
    solved: bool  # else by bisection


class Changes(NamedTuple):
    """What binds at the smallest size, and where that changes; FLOPs per byte at the smallest and the largest."""

    name: str
    first: str
    changes: tuple[Change, ...]
    intensities: tuple[float, float]
    layers: tuple[int, ...] = ()  # of an operator that stands in several layers in other sizes


def _to_a_neighbour(_: Number) -> None:
    """The way of kernels, which send nothing."""


def changes(
    name: str, cost: Costs, variable: Any, device: Device, dtype: str, start: int = 1,
    sizes: Sequence[int] | None = None, way: Ways = _to_a_neighbour,
) -> Changes:  # fmt: skip
    """All changes of the roof from `start` on, over all whole numbers; or over these sizes."""

    def bound(n: int) -> str:
        return str(place(cost(n), device, dtype, way(n)).bound)

    found = []
    asked = sizes or sorted({*ladder(start), *_suspects(cost, way, variable, device, dtype, start)})
    for low, high in cells(bound, asked):
        if not sizes:
            high = first_size(bound, low, high)
            low = high - 1
        equation, exact, solved = _between(cost, way, variable, device, dtype, (low, high))
        value = math.ceil(exact) if exact and solved and not sizes else high
        found.append(Change(value, exact, bound(low), bound(high), equation, solved))
    return Changes(name, bound(start), tuple(found), (float(cost(start).intensity), float(cost(asked[-1]).intensity)))


def ladder(start: int) -> Iterator[int]:
    """Sizes that are asked, a quarter apart."""
    n = float(start)
    while n < LONGEST:
        yield int(n)
        n = max(n + 1, n * GRID)


def cells(bound: Callable[[int], str], asked: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring sizes that gave different answers."""
    answers = [bound(size) for size in asked]
    for (low, before), (high, after) in pairwise(zip(asked, answers, strict=True)):
        if before != after:
            yield low, high


def first_size(bound: Callable[[int], str], low: int, high: int) -> int:
    """The smallest size above `low` at which another roof binds, by halving."""
    before = bound(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bound(middle) == before else (low, middle)
    return high


def _suspects(cost: Costs, way: Ways, variable: Any, device: Device, dtype: str, start: int) -> Iterator[int]:
    """The sizes around each solution of the equations: where something might change that the grid steps over."""
    for pair in combinations(_sides(cost(variable), way(variable), device, dtype), 2):
        for root in _roots(Equation(*pair), variable):
            yield from (n for n in range(math.floor(root) - 1, math.ceil(root) + 2) if start <= n < LONGEST)


def _sides(cost: Cost, way: Collective | None, device: Device, dtype: str) -> list[Side]:
    """What each roof takes: of compute that of matrix products, and that of vector work."""
    pipe, vector = device.matmul_pipe(dtype), device.vector_pipe(dtype)
    sides = [Side("compute", "matmul_flops", cost.matmul_flops, pipe.peak, pipe.name)]
    if vector:
        sides.append(Side("compute", "vector_flops", cost.vector_flops, vector.peak, vector.name))
    sides.append(Side("memory", "bytes", cost.bytes, device.bandwidth))
    if link := link_bandwidth(way, device):
        sides.append(Side("communication", "link_bytes", cost.link_bytes, link))
    return sides


def _difference(equation: Equation) -> Any:
    """Seconds of the one roof less seconds of the other, times both ceilings."""
    import sympy

    (left, one), (right, other) = ((sympy.sympify(side.work), sympy.Rational(side.rate)) for side in equation)
    return sympy.expand(left * other - right * one)


def _roots(equation: Equation, variable: Any) -> list[float]:
    """The positive solutions, where the equation is a quotient of polynomials; none otherwise."""
    import sympy

    difference = sympy.numer(sympy.together(_difference(equation)))
    if not difference.has(variable) or not difference.is_polynomial(variable):
        return []
    return [float(root) for root in sympy.Poly(difference, variable).real_roots() if root.is_positive]


def _between(
    cost: Costs, way: Ways, variable: Any, device: Device, dtype: str, sizes: tuple[int, int]
) -> tuple[Equation | None, float | None, bool]:
    """The equation of the roofs that bind at either size, where they meet in between, and whether that was solved."""
    low, high = sizes
    if len({link_bandwidth(way(n), device) for n in (*sizes, variable)}) > 1:
        return None, None, False
    found = [_binding(cost(n), way(n), device, dtype) for n in sizes]
    sides = _sides(cost(variable), way(variable), device, dtype)
    equation = Equation(*(side for i, side in enumerate(sides) if i in found))
    for root in _roots(equation, variable):
        if low - 1e-9 <= root <= high:
            return equation, root, True
    difference = _difference(equation)
    before, after = float(low), float(high)
    sign = difference.subs(variable, after) > 0
    for _ in range(60):
        middle = (before + after) / 2
        before, after = (before, middle) if (difference.subs(variable, middle) > 0) == sign else (middle, after)
    return equation, after, False


def _binding(cost: Cost, way: Collective | None, device: Device, dtype: str) -> int:
    """Which of the sides takes longest; of those that take the same, the one that `place` names."""
    sides, bound = _sides(cost, way, device, dtype), place(cost, device, dtype, way).bound
    return max(range(len(sides)), key=lambda i: (sides[i].roof == bound, sides[i].work / sides[i].rate))


# --- What a lecture's figure rests on ---------------------------------------------------------------


class Assumption(NamedTuple):
    """One way to ask from which n on a product of n x n matrices is bound by compute, and the answer."""

    passes: int
    element: int  # bytes
    pipe: str
    peak: float
    bandwidth: float
    exact: float


SLIDES = {1555e9: 1.5e12}  # bandwidths as the lecture rounds them


def assumptions(device: Device, dtype: str) -> Iterator[Assumption]:
    """The same question under the assumptions that lectures make, one after the other, down to what is asked here."""
    pipe, bandwidth = device.matmul_pipe(dtype), device.bandwidth
    rounded = [SLIDES[bandwidth]] if bandwidth in SLIDES else []
    element = FORMATS[dtype].bits // 8
    for passes, size in dict.fromkeys(((4, 8), (4, element), (3, element))):
        for speed in (*rounded, bandwidth):
            yield _assumed(passes, size, pipe.name, pipe.peak, speed)
    if dtype != "fp64" and any(name in device.pipes for name in ("fp64", "tensor_fp64")):
        double = device.matmul_pipe("fp64")
        yield _assumed(4, 8, double.name, double.peak, bandwidth)


def _assumed(passes: int, element: int, pipe: str, peak: float, bandwidth: float) -> Assumption:
    """2 n^3 / peak = passes n^2 element / bandwidth, solved on the kernel's own line."""
    variable, form = symbol("n"), {8: "fp64", 4: "fp32", 2: "fp16", 1: "fp8"}[element]
    name = {3: "matmul", 4: "matmul-accumulate"}[passes]
    cost = textbook_kernels.operator(name, variable, Workload((), dtype=form).widths).cost
    compute = Side("compute", "matmul_flops", cost.matmul_flops, peak, pipe)
    equation = Equation(compute, Side("memory", "bytes", cost.bytes, bandwidth))
    (exact,) = _roots(equation, variable)
    return Assumption(passes, element, pipe, peak, bandwidth, exact)
