"""Crossover of a kernel, an operator or a phase: the size at which its bound changes.

Over `gpus`, the sizes are the tensor-parallel sizes by which the model is divisible. `bound_changes.py` finds the
changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple, get_args

from roofmodel.counting import phases, textbook_kernels
from roofmodel.counting.operator import Collective, Cost, Operator
from roofmodel.counting.workload import Step, Workload
from roofmodel.devices.device import Device
from roofmodel.errors import Message, Option, Text, WarningNote, WorkloadError, choices, ignored
from roofmodel.explain.bound_changes import (
    Changes,
    Collectives,
    Costs,
    changed_intervals,
    changes,
    first_size,
    grid_sizes,
)
from roofmodel.explain.explain import Explanation, explain, matching_names
from roofmodel.models.architecture import Architecture
from roofmodel.models.symbols import symbol
from roofmodel.numbers.algebra import Number, minimum
from roofmodel.options.values import CrossoverVariable, Phase
from roofmodel.options.workload import non_default_options
from roofmodel.steps.notes import exceeds_positions, length_notes, link_notes
from roofmodel.steps.options import DEFAULT_SEQ, workload
from roofmodel.steps.parallelism import possible_tp, refuse_stages
from roofmodel.steps.textbook import check_kernel, default_dtype, load_model
from roofmodel.timing.roofline import link_bandwidth, place

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
