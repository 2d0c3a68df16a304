"""Crossover of a kernel, an operator or a phase: the size at which its bound changes, such as from memory to compute.

The roofline bound (Williams et al. 2009, doi:10.1145/1498765.1498785) is evaluated on a grid of sizes, so the result
agrees with `roof estimate` at every size. Between two sizes with different bounds, the equation of the two times is
solved: exactly if it is polynomial, else by bisection. If both times are equal at an integer, that integer is the
answer, although the earlier bound still applies there. Over `gpus`, the sizes are the tensor-parallel sizes by which
the model is divisible.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise
from typing import Any, NamedTuple, get_args

from roofmodel.counting import phases, textbook_kernels
from roofmodel.counting.operator import Collective, Cost, Operator
from roofmodel.counting.tensors import FORMATS
from roofmodel.counting.workload import Step, Workload
from roofmodel.devices.device import Device
from roofmodel.errors import Message, Option, Text, WarningNote, WorkloadError, choices, ignored
from roofmodel.explain.explain import Explanation, explain, matching_names
from roofmodel.models.architecture import Architecture
from roofmodel.models.symbols import symbol
from roofmodel.numbers.algebra import Number, minimum
from roofmodel.options.values import MAX_VALUE, CrossoverVariable, Phase
from roofmodel.options.workload import non_default_options
from roofmodel.steps.notes import exceeds_positions, length_notes, link_notes
from roofmodel.steps.options import DEFAULT_SEQ, workload
from roofmodel.steps.parallelism import possible_tp, refuse_stages
from roofmodel.steps.textbook import check_kernel, default_dtype, load_model
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


VARIABLES: tuple[str, ...] = get_args(CrossoverVariable)
SYMBOLS = {"batch": "B", "seq": "S", "context": "C", "gpus": "N_tp", "n": "n"}
OPTION_NAMES = {"gpus": "tp"}  # of variables whose option has another name


class DominantBound(NamedTuple):
    """The bound with the largest share of a phase's summed bound time: at the smallest size, and its changes."""

    first: str
    changes: tuple[tuple[int, str], ...]


class Crossover(NamedTuple):
    """The changes of the bound of a phase, of operators or of a kernel over one variable."""

    name: str
    variable: str
    dtype: str
    device: Device
    subject: Changes
    operators: tuple[Changes, ...] = ()  # each operator, if the subject has several
    dominant: DominantBound | None = None  # if the subject has several operators
    step: Step | None = None  # for a model, at the smallest size
    op: str | None = None
    notes: tuple[Text, ...] = ()
    derived: tuple[Explanation, ...] = ()  # of a single operator, at each change

    @property
    def phase(self) -> Phase | None:
        return self.step and self.step.phase


def crossover(
    model: str | os.PathLike[str], device: Device, *, over: str | None = None, op: str | None = None,
    family: str | None = None, derive: bool = False, **options: Any,
) -> Crossover:  # fmt: skip
    """The changes of the bound over `batch`, `seq`, `context` or `gpus`; for a textbook kernel over its size.

    With `derive`, a single operator is also derived in the model's symbols. Raises RoofError.
    """
    if isinstance(model, str) and model in textbook_kernels.KERNELS:
        return _kernel_crossover(model, device, over, op, options)
    over = over or "batch"
    if over not in VARIABLES:
        raise WorkloadError(Option("over"), f": unknown variable {over!r}{choices(over, VARIABLES)}")
    return _model_crossover(load_model(model, family), device, over, op, options, derive)


def _kernel_crossover(
    name: str, device: Device, over: str | None, op: str | None, options: dict[str, Any]
) -> Crossover:
    dtype = options.get("dtype") or default_dtype(name, device)
    check_kernel(1, dtype)
    widths = Workload((), dtype=dtype).widths
    unused = [
        *non_default_options(options, used=("dtype",)),
        *(["op"] if op else []),
        *(["over"] if over not in (None, "n") else []),
    ]
    return Crossover(
        name,
        "n",
        dtype,
        device,
        changes(name, lambda n: textbook_kernels.operator(name, n, widths).cost, symbol("n"), device, dtype),
        op=name,
        notes=tuple(ignored(option, f"{name} is a kernel") for option in unused),
    )


# --- A model ----------------------------------------------------------------------------------------


def _model_crossover(
    arch: Architecture, device: Device, over: str, op: str | None, options: dict[str, Any], derive: bool
) -> Crossover:
    varies = OPTION_NAMES.get(over, over)
    notes: list[Text] = (
        [ignored(varies, "it is the variable")]
        if varies in non_default_options(options, used=("dtype",)) and over != "context"
        else []
    )
    counted = _OperatorsBySize(arch, device, _with_phase(arch, over, options), over)
    work, remarks = counted.sized(counted.start)
    refuse_stages(work, "a crossover covers a pass through all layers")
    notes += [*arch.notes, *(remark for remark in remarks if Message(remark).parts[:1] != (Option(over),))]
    gpus = work.communicating_gpus // work.parallel.tp * counted.sizes[-1] if counted.sizes else work.communicating_gpus
    notes += link_notes(device, gpus)
    operators, (phase,) = counted.at(counted.start), work.phases
    names = [operator.name for operator in operators]

    def over_sizes(name: str, cost: Costs, indices: Sequence[int]) -> Changes:
        collective = counted.collective_of(indices)
        return changes(name, cost, counted.symbol, device, work.dtype, counted.start, counted.sizes, collective)

    def changes_of(index: int) -> Changes:
        name, layers = names[index], operators[index].layers or ()
        operator_changes = over_sizes(name, counted.cost_of_one(index), (index,))
        return operator_changes._replace(layers=layers) if names.count(name) > 1 else operator_changes

    wanted = set(names) if op is None else matching_names(op, operators)
    indices = [i for i, name in enumerate(names) if name in wanted]
    each, dominant = tuple(map(changes_of, indices)), None
    if op is not None and len(each) == 1:
        (subject,), each, op = each, (), names[indices[0]]
    else:
        subject = over_sizes(op or phase, counted.cost_of(indices), indices)
        dominant = _dominant(counted, indices, device, work.dtype)
    if len({link_bandwidth(each.collective, device) for each in operators if each.collective}) > 1 and len(indices) > 1:
        notes.append(
            "collectives use several links; their bytes are converted to the link with the most bytes, by bandwidth"
        )
    notes += _position_warnings(arch, counted, subject, each)
    notes = list(dict.fromkeys(notes))
    changed = subject.changes if derive and not each else ()
    derived = tuple(counted.derived(names[indices[0]], change.value) for change in changed)
    (step,) = work.steps()
    return Crossover(arch.name, over, work.dtype, device, subject, each, dominant, step, op, tuple(notes), derived)


def _with_phase(arch: Architecture, over: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options with their phase. Raises WorkloadError if the variable does not apply."""
    phase = options.get("phase") or _default_phase(arch, over)
    if over == "context" and phase not in ("prefill", "decode", "generate"):
        other = Option("over", "batch" if arch.image else "seq")
        raise WorkloadError(Option("over", "context"), f": {phase} reads no KV cache; use ", other)
    if over == "seq" and arch.image:
        raise WorkloadError(Option("over", "seq"), f": {arch.name} reads images; use ", Option("over", "batch"))
    if over == "batch" and options.get("dp", 1) != 1:
        raise WorkloadError(
            Option("over", "batch"),
            ": ",
            Option("dp", options["dp"]),
            " only splits the batch over replicas; use ",
            Option("dp", 1),
        )
    # any length works, since it is the variable
    context = {"context": options.get("context") or DEFAULT_SEQ} if over == "context" else {}
    return {**options, **context, "phase": phase}


def _dominant(counted: _OperatorsBySize, indices: Sequence[int], device: Device, dtype: str) -> DominantBound:
    """The dominant bound as `roof sweep` names it, from the bound times that `roof estimate` sums."""

    def bound(n: int) -> str:
        seconds: dict[str, float] = {}
        for operator in (counted.at(n)[index] for index in indices):
            placed = place(operator.cost, device, operator.compute_dtype(dtype), operator.collective)
            seconds[placed.bound] = seconds.get(placed.bound, 0.0) + operator.count * placed.bound_seconds
        return max(seconds, key=lambda name: seconds[name])

    sizes = counted.sizes or list(grid_sizes(counted.start))
    values = (
        (high if counted.sizes else first_size(bound, low, high)) for low, high in changed_intervals(bound, sizes)
    )
    return DominantBound(bound(counted.start), tuple((value, bound(value)) for value in values))


def _position_warnings(
    arch: Architecture, counted: _OperatorsBySize, subject: Changes, others: Sequence[Changes] = ()
) -> Iterator[Text]:
    """Warnings for changes at sizes beyond the model's position embeddings."""
    if exceeds_positions(arch, first := counted.sized(counted.start)[0]):  # for every variable
        yield from length_notes(arch, first)
        return
    for change in subject.changes:
        yield from length_notes(arch, counted.sized(change.value)[0])
    far = [
        other.name
        for other in others
        if any(exceeds_positions(arch, counted.sized(each.value)[0]) for each in other.changes)
    ]
    if far:
        yield WarningNote(
            f"{', '.join(dict.fromkeys(far))} change at a {counted.over} beyond the position limit of "
            f"{arch.name}; counted without the limit"
        )


def _default_phase(arch: Architecture, over: str) -> Phase:
    """The phase for a variable: decode for `batch`, `context` and `gpus`, prefill for `seq`."""
    if not arch.generates:
        return "forward"
    return "prefill" if over == "seq" else "decode"


class _OperatorsBySize:
    """The operators of a phase as a function of one variable, which is an int or a symbol."""

    def __init__(self, arch: Architecture, device: Device, options: dict[str, Any], over: str) -> None:
        self.arch, self.device, self.options, self.over = arch, device, options, over
        self.symbol = symbol(SYMBOLS[over])
        self.sizes = _gpu_counts(arch, options) if over == "gpus" else None  # None: all integers from `start`
        # one token may have other operators; one GPU has no communication
        self.start = self.sizes[0] if self.sizes else 2 if over == "seq" else 1
        self.at = cache(self._operators_at)

    def _operators_at(self, n: Number) -> tuple[Operator, ...]:
        work = self.sized(n)[0] if isinstance(n, int) else self._symbolic()
        return phases.operators(self.arch, work.steps()[0])

    def sized(self, n: int) -> tuple[Workload, tuple[Text, ...]]:
        """The workload at a size, with its notes."""
        return workload(self.arch, self.device, **{**self.options, OPTION_NAMES.get(self.over, self.over): n})

    def _symbolic(self) -> Workload:
        """The workload with the variable as a symbol; the default decoder length follows the encoder length."""
        work = self.sized(self.start)[0]
        if self.over == "gpus":
            return work._replace(parallel=work.parallel._replace(tp=self.symbol))
        changed: dict[str, Any] = {self.over: self.symbol}
        if self.over == "seq" and self.arch.encoder and not self.options.get("decoder_seq"):
            limit = self.arch.max_tokens
            changed["decoder_seq"] = self.symbol if limit is None else minimum(self.symbol, limit)
        return work._replace(**changed)

    def derived(self, op: str, n: int) -> Explanation:
        """The derivation of an operator at a size, in the model's symbols."""
        return explain(self.arch, op=op, **{**self.options, OPTION_NAMES.get(self.over, self.over): n})

    def cost_of(self, indices: Sequence[int]) -> Costs:
        """The cost of all occurrences of some operators; bytes on other links are converted to the main link."""
        main_collective = self.collective_of(indices)

        def converted(index: int, n: Number, main_bandwidth: Number | None) -> Cost:
            operator, own = self.at(n)[index], self.collective_of((index,))(n)
            cost: Cost = operator.count * operator.cost
            bandwidth = link_bandwidth(own, self.device)
            if own is None or bandwidth is None or main_bandwidth is None or bandwidth == main_bandwidth:
                return cost
            return replace(cost, link_bytes=cost.link_bytes * Fraction(main_bandwidth) / Fraction(bandwidth))

        def summed(n: Number) -> Cost:
            main_bandwidth = link_bandwidth(main_collective(n), self.device)
            return sum((converted(index, n, main_bandwidth) for index in indices), Cost())

        return summed

    def cost_of_one(self, index: int) -> Costs:
        """The cost of one occurrence of an operator."""
        return lambda n: self.at(n)[index].cost

    def collective_of(self, indices: Sequence[int]) -> Collectives:
        """The collective of some operators that sends most bytes; for a symbolic size the one of the smallest size."""

        def main(n: Number) -> Collective | None:
            operators_at_size = map(self.at(n if isinstance(n, int) else self.start).__getitem__, indices)
            sent = [operator for operator in operators_at_size if operator.collective]
            return max(sent, key=lambda op: op.count * op.cost.link_bytes).collective if sent else None

        return main


def _gpu_counts(arch: Architecture, options: dict[str, Any]) -> tuple[int, ...]:
    """The tensor-parallel sizes by which the model is divisible, for the given expert parallelism."""
    dp, ep = (options.get(name, 1) for name in ("dp", "ep"))
    gpu_counts = tuple(tp for tp in possible_tp(arch, dp, ep) if tp > 1 and tp % ep == 0)
    if not gpu_counts:
        raise WorkloadError(
            Option("over", "gpus"),
            f": {arch.name} is not divisible by any number of GPUs; use ",
            Option("over", "batch"),
        )
    return gpu_counts
