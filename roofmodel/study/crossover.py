"""Where a bound changes: the size from which on another roof binds an operator, or a phase taken as a whole.

Over `gpus`, the GPUs that share every layer, the sizes are those that the model can be dealt out to.

Which roof binds is asked of the counts themselves, size by size, so that the answer is what `roof estimate` says at
that size and at the one before. The place between the two comes from the equation of both roofs' times, counted with a
symbol: solved exactly where it is a polynomial, by bisection where it is not. Where both take the same time at a whole
number, that number is the answer, although the old roof still binds at it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from roofmodel.algebra import Number, minimum
from roofmodel.counting import kernels, phases
from roofmodel.counting.collective import Collective
from roofmodel.counting.operator import Cost, Operator
from roofmodel.counting.widths import FORMATS
from roofmodel.counting.workload import Phase, Workload
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError, choices
from roofmodel.models.architecture import Architecture
from roofmodel.models.symbols import symbol
from roofmodel.prediction.links import link_rate
from roofmodel.prediction.roofline import place
from roofmodel.study import estimate as study
from roofmodel.study.explain import Explanation, explain, loaded, meant
from roofmodel.study.notes import beyond, length_notes, link_notes
from roofmodel.study.parallel import possible, refuse_stages

VARIABLES = ("batch", "seq", "context", "gpus")
SYMBOLS = {"batch": "B", "seq": "S", "context": "C", "gpus": "N_tp", "n": "n"}
OPTIONS = {"gpus": "tp"}  # by variable, where the option has another name
LARGEST = study.LONGEST
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


class Mostly(NamedTuple):
    """Which roof most of a phase's bound time is under, its operators one after the other: at first, and from where."""

    first: str
    changes: tuple[tuple[int, str], ...]


class Crossover(NamedTuple):
    """Of a model's phase, some or one of its operators, or a kernel: the changes along a variable."""

    name: str
    variable: str
    dtype: str
    device: Device
    subject: Changes
    operators: tuple[Changes, ...] = ()  # where the subject is several, one by one
    mostly: Mostly | None = None  # where it is several
    phase: str | None = None
    op: str | None = None
    notes: tuple[str, ...] = ()
    derived: tuple[Explanation, ...] = ()  # of one operator, at each of its changes, in the model's symbols


def crossover(
    model: str | os.PathLike[str], device: Device, *, over: str | None = None, op: str | None = None,
    family: str | None = None, derive: bool = False, **options: Any,
) -> Crossover:  # fmt: skip
    """Where the roof changes over `batch`, `seq`, `context` or `gpus`; a plain kernel's over its size.

    With `derive`, one operator is derived as well. Raises RoofError.
    """
    if isinstance(model, str) and model in kernels.KERNELS:
        return _of_kernel(model, device, over, op, options)
    over = over or "batch"
    if over not in VARIABLES:
        raise WorkloadError(f"--over: unknown variable {over!r}{choices(over, VARIABLES)}")
    return _of_model(loaded(model, family), device, over, op, options, derive)


def _of_kernel(name: str, device: Device, over: str | None, op: str | None, options: dict[str, Any]) -> Crossover:
    dtype = options.get("dtype", "fp16")
    study.check("n", 1, dtype)
    widths = Workload((), dtype=dtype).widths
    idle = [*study.given(options), *(["op"] if op else []), *(["over"] if over not in (None, "n") else [])]
    return Crossover(
        name,
        "n",
        dtype,
        device,
        changes(name, lambda n: kernels.operator(name, n, widths).cost, symbol("n"), device, dtype),
        op=name,
        notes=tuple(f"--{option} is ignored: {name} is a kernel" for option in idle),
    )


# --- A model ----------------------------------------------------------------------------------------


def _of_model(
    arch: Architecture, device: Device, over: str, op: str | None, options: dict[str, Any], derive: bool
) -> Crossover:
    phase = options.get("phase") or _usual(arch, over)
    if over == "context" and phase not in ("prefill", "decode", "generate"):
        raise WorkloadError(f"--over context: {phase} reads no KV cache; try --over {'batch' if arch.image else 'seq'}")
    if over == "seq" and arch.image:
        raise WorkloadError(f"--over seq: {arch.name} reads images; try --over batch")
    varies = OPTIONS.get(over, over)
    notes = (
        [f"--{varies} is ignored: it is what varies"] if varies in study.given(options) and over != "context" else []
    )
    if over == "context":
        options = {**options, "context": options.get("context") or study.DEFAULT_SEQ}  # any length: it is what varies
    options = {**options, "phase": phase}
    if over == "batch" and options.get("dp", 1) != 1:
        raise WorkloadError(f"--over batch: --dp {options['dp']} only deals the batch out; try --dp 1: one replica")
    counted = _Counted(arch, device, options, over)
    work, remarks = counted.sized(counted.start)
    refuse_stages(work, "crossovers are those of a pass through all layers")
    notes += [*arch.notes, *(remark for remark in remarks if not remark.startswith(f"--{over} "))]
    most = work.joined // work.parallel.tp * counted.sizes[-1] if counted.sizes else work.joined
    notes += link_notes(device, most)
    operators = counted.at(counted.start)
    names = [operator.name for operator in operators]

    def found(index: int) -> Changes:
        name, layers = names[index], operators[index].layers or ()
        one = changes(
            name, counted.cost_of_one(index), counted.symbol, device, work.dtype,
            counted.start, counted.sizes, counted.way_of((index,)),
        )  # fmt: skip
        return one._replace(layers=layers) if names.count(name) > 1 else one

    wanted = set(names) if op is None else meant(op, names)
    which = [i for i, name in enumerate(names) if name in wanted]
    each, mostly = tuple(map(found, which)), None
    if op is not None and len(each) == 1:
        (whole,), each, op = each, (), names[which[0]]
    else:
        whole = changes(
            op or phase, counted.cost_of(which), counted.symbol, device, work.dtype,
            counted.start, counted.sizes, counted.way_of(which),
        )  # fmt: skip
        mostly = _mostly(counted, which, device, work.dtype)
    if len({link_rate(each.collective, device) for each in operators if each.collective}) > 1 and len(which) > 1:
        notes.append("bytes that go another way than most are counted as so many more, or fewer, on that one")
    notes += _beyond(arch, counted, whole, each)
    notes = list(dict.fromkeys(notes))
    changed = whole.changes if derive and not each else ()
    derived = tuple(counted.derived(names[which[0]], change.value) for change in changed)
    return Crossover(arch.name, over, work.dtype, device, whole, each, mostly, phase, op, tuple(notes), derived)


def _mostly(counted: _Counted, which: Sequence[int], device: Device, dtype: str) -> Mostly:
    """As `roof estimate` adds operators up, and `roof sweep` names a roof."""

    def bound(n: int) -> str:
        seconds: dict[str, float] = {}
        for operator in (counted.at(n)[index] for index in which):
            placed = place(operator.cost, device, dtype, operator.collective)
            seconds[placed.bound] = seconds.get(placed.bound, 0.0) + operator.count * placed.bound_seconds
        return max(seconds, key=lambda roof: seconds[roof])

    asked = counted.sizes or list(_ladder(counted.start))
    cells = _cells(bound, asked)
    values = ((high if counted.sizes else _first(bound, low, high)) for low, high in cells)
    return Mostly(bound(counted.start), tuple((value, bound(value)) for value in values))


def _beyond(arch: Architecture, counted: _Counted, subject: Changes, others: Sequence[Changes] = ()) -> Iterator[str]:
    """What is to be known of changes at sizes that the model has no positions for."""
    if beyond(arch, first := counted.sized(counted.start)[0]):  # whatever varies
        yield from length_notes(arch, first)
        return
    for change in subject.changes:
        yield from length_notes(arch, counted.sized(change.value)[0])
    far = [one.name for one in others if any(beyond(arch, counted.sized(each.value)[0]) for each in one.changes)]
    if far:
        yield (
            f"warning: {', '.join(dict.fromkeys(far))} change where {counted.over} is beyond the positions of "
            f"{arch.name}; counted as if it had more"
        )


def _usual(arch: Architecture, over: str) -> Phase:
    """The phase that a variable is about: many sequences and long caches are a decode's."""
    if not arch.causal:
        return "forward"
    return "prefill" if over == "seq" else "decode"


class _Counted:
    """The operators of a phase at each size of a variable, or with a symbol in its place."""

    def __init__(self, arch: Architecture, device: Device, options: dict[str, Any], over: str) -> None:
        self.arch, self.device, self.options, self.over = arch, device, options, over
        self.symbol = symbol(SYMBOLS[over])
        self.sizes = _shares(arch, options) if over == "gpus" else None  # None: all from the first on
        # a pass over a single token may be another pass; a single GPU has nothing to exchange
        self.start = self.sizes[0] if self.sizes else 2 if over == "seq" else 1
        self.at = cache(self._at)

    def _at(self, n: Number) -> tuple[Operator, ...]:
        work = self.sized(n)[0] if isinstance(n, int) else self._symbolic()
        return phases.operators(self.arch, work.steps()[0])

    def sized(self, n: int) -> tuple[Workload, tuple[str, ...]]:
        """The workload at a size, with its notes."""
        return study.workload(self.arch, **{**self.options, OPTIONS.get(self.over, self.over): n})

    def _symbolic(self) -> Workload:
        """With the variable as the only symbol; a decoder's prompt that is as long as its source follows it."""
        work = self.sized(self.start)[0]
        if self.over == "gpus":
            return replace(work, parallel=work.parallel._replace(tp=self.symbol))
        changed: dict[str, Any] = {self.over: self.symbol}
        if self.over == "seq" and self.arch.encoder and not self.options.get("decoder_seq"):
            limit = self.arch.max_tokens
            changed["decoder_seq"] = self.symbol if limit is None else minimum(self.symbol, limit)
        return replace(work, **changed)

    def derived(self, op: str, n: int) -> Explanation:
        """An operator at a size, in the model's symbols, the variable among them."""
        return explain(self.arch, op=op, **{**self.options, OPTIONS.get(self.over, self.over): n})

    def cost_of(self, which: Sequence[int]) -> Costs:
        """Of all occurrences of some operators; what goes another way than most is worth more or fewer bytes there."""
        most = self.way_of(which)

        def worth(index: int, n: Number) -> Cost:
            operator, own = self.at(n)[index], self.way_of((index,))(n)
            cost: Cost = operator.count * operator.cost
            rate, usual = link_rate(own, self.device), link_rate(most(n), self.device)
            if own is None or rate is None or usual is None or rate == usual:
                return cost
            return replace(cost, link_bytes=cost.link_bytes * Fraction(usual) / Fraction(rate))

        return lambda n: sum((worth(index, n) for index in which), Cost())

    def cost_of_one(self, index: int) -> Costs:
        """Of one occurrence of an operator."""
        return lambda n: self.at(n)[index].cost

    def way_of(self, which: Sequence[int]) -> Ways:
        """The way that most of what some operators send goes; in equations that of the smallest size."""

        def most(n: Number) -> Collective | None:
            found = map(self.at(n if isinstance(n, int) else self.start).__getitem__, which)
            sent = [operator for operator in found if operator.collective]
            return max(sent, key=lambda op: op.count * op.cost.link_bytes).collective if sent else None

        return most


def _shares(arch: Architecture, options: dict[str, Any]) -> tuple[int, ...]:
    """The numbers of GPUs that can share the model's layers, and its experts as asked."""
    dp, ep = (options.get(name, 1) for name in ("dp", "ep"))
    found = tuple(tp for tp in possible(arch, dp, ep) if tp > 1 and tp % ep == 0)
    if not found:
        raise WorkloadError(f"--over gpus: no number of GPUs can share {arch.name}'s layers evenly; try --over batch")
    return found


# --- Where it changes -------------------------------------------------------------------------------


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
    asked = sizes or sorted({*_ladder(start), *_suspects(cost, way, variable, device, dtype, start)})
    for low, high in _cells(bound, asked):
        if not sizes:
            high = _first(bound, low, high)
            low = high - 1
        equation, exact, solved = _between(cost, way, variable, device, dtype, (low, high))
        value = math.ceil(exact) if exact and solved and not sizes else high
        found.append(Change(value, exact, bound(low), bound(high), equation, solved))
    return Changes(name, bound(start), tuple(found), (float(cost(start).intensity), float(cost(asked[-1]).intensity)))


def _ladder(start: int) -> Iterator[int]:
    """Sizes that are asked, a quarter apart."""
    n = float(start)
    while n < LARGEST:
        yield int(n)
        n = max(n + 1, n * GRID)


def _cells(bound: Callable[[int], str], asked: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring sizes that gave different answers."""
    answers = [bound(size) for size in asked]
    for (low, before), (high, after) in pairwise(zip(asked, answers, strict=True)):
        if before != after:
            yield low, high


def _first(bound: Callable[[int], str], low: int, high: int) -> int:
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
            yield from (n for n in range(math.floor(root) - 1, math.ceil(root) + 2) if start <= n < LARGEST)


def _sides(cost: Cost, way: Collective | None, device: Device, dtype: str) -> list[Side]:
    """What each roof takes: of compute that of matrix products, and that of vector work."""
    pipe, vector = device.matmul_pipe(dtype), device.vector_pipe(dtype)
    sides = [Side("compute", "matmul_flops", cost.matmul_flops, pipe.peak, pipe.name)]
    if vector:
        sides.append(Side("compute", "vector_flops", cost.vector_flops, vector.peak, vector.name))
    sides.append(Side("memory", "bytes", cost.bytes, device.bandwidth))
    if link := link_rate(way, device):
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
    if len({link_rate(way(n), device) for n in (*sizes, variable)}) > 1:
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
    cost = kernels.operator(name, variable, Workload((), dtype=form).widths).cost
    compute = Side("compute", "matmul_flops", cost.matmul_flops, peak, pipe)
    equation = Equation(compute, Side("memory", "bytes", cost.bytes, bandwidth))
    (exact,) = _roots(equation, variable)
    return Assumption(passes, element, pipe, peak, bandwidth, exact)
