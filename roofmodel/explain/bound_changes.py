"""Sizes at which the bound of a cost changes, for example from memory-bound to compute-bound.

The roofline bound (Williams et al. 2009, doi:10.1145/1498765.1498785) is evaluated on a grid of sizes, so the result
agrees with `roof estimate` at every size. Between two sizes with different bounds, the equation of the two times is
solved: exactly if it is polynomial, else by bisection. If both times are equal at an integer, that integer is the
answer, although the earlier bound still applies there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from roofmodel.counting import textbook_kernels
from roofmodel.counting.operator import Collective, Cost
from roofmodel.counting.tensors import FORMATS
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.models.symbols import symbol
from roofmodel.numbers.algebra import Number
from roofmodel.options.workload import MAX_VALUE
from roofmodel.timing.roofline import Placement, link_bandwidth, place

GRID = 1.25  # ratio of grid sizes; solutions of the equations are added to the grid

FAR = 10**36  # a size far beyond every change of the bound

Costs = Callable[[Number], Cost]
"""The cost at a size, which is an int or a symbol."""

Collectives = Callable[[Number], Collective | None]
"""The collective that determines the link bandwidth at a size; None for a transfer to a neighbor or none."""


class Side(NamedTuple):
    """The time of a ceiling: work as a function of the variable, divided by a rate."""

    bound: str  # compute, memory or communication
    field: str  # the field of Cost that is the work
    work: Any
    rate: float
    pipe: str = ""  # for compute


class CeilingEquation(NamedTuple):
    """Two ceilings whose times are equal."""

    left: Side
    right: Side


class BoundChange(NamedTuple):
    """A change of the bound at the integer size `value`; `exact` is the real solution of the equation.

    Both are None if the bound changes because the communication moves to another link.
    """

    value: int
    exact: float | None
    before: str
    to: str
    equation: CeilingEquation | None
    solved: bool  # else by bisection


class Changes(NamedTuple):
    """The bound at the smallest size, its changes, and the intensity at the smallest and the largest size."""

    name: str
    first: str
    changes: tuple[BoundChange, ...]
    intensities: tuple[float, float]
    placed: Callable[[int], Placement]  # the times under the ceilings at a size
    sizes: Sequence[int]  # at which the bound was evaluated
    searched: int | None = None  # the largest size, if the bound differs at much larger ones
    layers: tuple[int, ...] = ()  # if operators of the same name have other sizes in other layers


def _no_collective(_: Number) -> None:
    """For kernels on one GPU."""


def changes(
    name: str, cost: Costs, variable: Any, device: Device, dtype: str, start: int = 1,
    sizes: Sequence[int] | None = None, collective: Collectives = _no_collective,
) -> Changes:  # fmt: skip
    """All changes of the bound over the integers from `start`, or over the given sizes."""

    def placed(n: int) -> Placement:
        return place(cost(n), device, dtype, collective(n), several=True)

    def bound(n: int) -> str:
        return str(placed(n).bound)

    bound_changes = []
    candidates = sizes or sorted(
        {*grid_sizes(start), *_sizes_near_solutions(cost, collective, variable, device, dtype, start)}
    )
    for low, high in changed_intervals(bound, candidates):
        if not sizes:
            high = first_size(bound, low, high)
            low = high - 1
        equation, exact, solved = _change_between(cost, collective, variable, device, dtype, (low, high))
        value = math.ceil(exact) if exact and solved and not sizes else high
        bound_changes.append(BoundChange(value, exact, bound(low), bound(high), equation, solved))
    is_last = sizes or _bound_far(cost, collective, variable, device, dtype) == bound(candidates[-1])
    intensities = float(cost(start).intensity), float(cost(candidates[-1]).intensity)
    return Changes(
        name, bound(start), tuple(bound_changes), intensities, placed, candidates, None if is_last else MAX_VALUE
    )


def grid_sizes(start: int) -> Iterator[int]:
    """Grid sizes from `start`, each about 25 % larger than the last."""
    n = float(start)
    while n < MAX_VALUE:
        yield int(n)
        n = max(n + 1, n * GRID)


def changed_intervals(bound: Callable[[int], str], sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Adjacent sizes with different bounds."""
    answers = [bound(size) for size in sizes]
    for (low, before), (high, after) in pairwise(zip(sizes, answers, strict=True)):
        if before != after:
            yield low, high


def first_size(bound: Callable[[int], str], low: int, high: int) -> int:
    """The smallest size above `low` with another bound, by binary search."""
    before = bound(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bound(middle) == before else (low, middle)
    return high


def _sizes_near_solutions(
    cost: Costs, collective: Collectives, variable: Any, device: Device, dtype: str, start: int
) -> Iterator[int]:
    """The sizes next to each solution of the equations, so that the grid misses no change."""
    for pair in combinations(_sides(cost(variable), collective(variable), device, dtype), 2):
        for root in _roots(CeilingEquation(*pair), variable):
            yield from (n for n in range(math.floor(root) - 1, math.ceil(root) + 2) if start <= n < MAX_VALUE)


def _sides(cost: Cost, collective: Collective | None, device: Device, dtype: str) -> list[Side]:
    """The time of each ceiling; compute has one for matmul FLOPs and one for vector FLOPs."""
    pipe, vector = device.matmul_pipe(dtype), device.vector_pipe(dtype)
    sides = [Side("compute", "matmul_flops", cost.matmul_flops, pipe.peak, pipe.name)]
    if vector:
        sides.append(Side("compute", "vector_flops", cost.vector_flops, vector.peak, vector.name))
    sides.append(Side("memory", "bytes", cost.bytes, device.bandwidth))
    if link := link_bandwidth(collective, device):
        sides.append(Side("communication", "link_bytes", cost.link_bytes, link))
    return sides


def _difference(equation: CeilingEquation) -> Any:
    """The difference of both times, multiplied by both rates."""
    import sympy

    (left_work, left_rate), (right_work, right_rate) = (
        (sympy.sympify(side.work), sympy.Rational(side.rate)) for side in equation
    )
    return sympy.expand(left_work * right_rate - right_work * left_rate)


def _roots(equation: CeilingEquation, variable: Any) -> list[float]:
    """The positive solutions if the equation is a quotient of polynomials, else none."""
    import sympy

    difference = sympy.numer(sympy.together(_difference(equation)))
    if not difference.has(variable) or not difference.is_polynomial(variable):
        return []
    return [float(root) for root in sympy.Poly(difference, variable).real_roots() if root.is_positive]


def _change_between(
    cost: Costs, collective: Collectives, variable: Any, device: Device, dtype: str, sizes: tuple[int, int]
) -> tuple[CeilingEquation | None, float | None, bool]:
    """The equation of the bounds at both sizes, its solution between them, and whether it was solved exactly."""
    low, high = sizes
    if len({link_bandwidth(collective(n), device) for n in (*sizes, variable)}) > 1:
        return None, None, False
    limiting_sides = [_binding(cost(n), collective(n), device, dtype) for n in sizes]
    sides = _sides(cost(variable), collective(variable), device, dtype)
    equation = CeilingEquation(*(side for i, side in enumerate(sides) if i in limiting_sides))
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


def _bound_far(cost: Costs, collective: Collectives, variable: Any, device: Device, dtype: str) -> str:
    """The bound at the size FAR, which may be larger than options allow: from the formula of the cost."""
    import sympy

    sides = _sides(cost(variable), collective(variable), device, dtype)
    return max(sides, key=lambda side: float(sympy.sympify(side.work).subs(variable, FAR)) / side.rate).bound


def _binding(cost: Cost, collective: Collective | None, device: Device, dtype: str) -> int:
    """The index of the longest side; if several are equal, the one that `place` names."""
    sides, bound = _sides(cost, collective, device, dtype), place(cost, device, dtype, collective, several=True).bound
    return max(range(len(sides)), key=lambda i: (sides[i].bound == bound, sides[i].work / sides[i].rate))


# --- Assumptions of textbook answers ----------------------------------------------------------------


class Assumption(NamedTuple):
    """Assumptions about a GEMM of n x n matrices, and the n from which it is compute-bound."""

    matrices: int  # read and written
    element: int  # bytes
    pipe: str
    peak: float
    bandwidth: float
    exact: float


ROUNDED_BANDWIDTHS = {1555e9: 1.5e12}  # as lectures round them


def assumptions(device: Device, dtype: str) -> Iterator[Assumption]:
    """The compute-bound size under the assumptions that lectures make, and under those of this package."""
    pipe, bandwidth = device.matmul_pipe(dtype), device.bandwidth
    rounded = [ROUNDED_BANDWIDTHS[bandwidth]] if bandwidth in ROUNDED_BANDWIDTHS else []
    element = FORMATS[dtype].bits // 8
    for matrices, size in dict.fromkeys(((4, 8), (4, element), (3, element))):
        for speed in (*rounded, bandwidth):
            yield _assumed(matrices, size, pipe.name, pipe.peak, speed)
    if dtype != "fp64" and any(name in device.pipes for name in ("fp64", "tensor_fp64")):
        double = device.matmul_pipe("fp64")
        yield _assumed(4, 8, double.name, double.peak, bandwidth)


def _assumed(matrices: int, element: int, pipe: str, peak: float, bandwidth: float) -> Assumption:
    """Solve 2 n^3 / peak = matrices n^2 element / bandwidth, with the counts of the textbook kernel."""
    variable, form = symbol("n"), {8: "fp64", 4: "fp32", 2: "fp16", 1: "fp8"}[element]
    name = {3: "matmul", 4: "matmul-accumulate"}[matrices]
    cost = textbook_kernels.operator(name, variable, Workload((), dtype=form).widths).cost
    compute = Side("compute", "matmul_flops", cost.matmul_flops, peak, pipe)
    equation = CeilingEquation(compute, Side("memory", "bytes", cost.bytes, bandwidth))
    (exact,) = _roots(equation, variable)
    return Assumption(matrices, element, pipe, peak, bandwidth, exact)
