"""Where a bound changes: the size from which on another roof binds an operator, or a phase taken as a whole.

Over `gpus`, the GPUs that share every layer, the sizes are those that the model can be dealt out to. How a change is
found is told in `changes.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from roofmodel.algebra import Number, minimum
from roofmodel.counting import phases, textbook_kernels
from roofmodel.counting.collective import Collective
from roofmodel.counting.operator import Cost, Operator
from roofmodel.counting.workload import Phase, Step, Workload
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError, choices
from roofmodel.models.architecture import Architecture
from roofmodel.models.symbols import symbol
from roofmodel.prediction.links import link_bandwidth
from roofmodel.prediction.roofline import place
from roofmodel.study.derive.bound_changes import Changes, Costs, Ways, cells, changes, first_size, ladder
from roofmodel.study.derive.explain import Explanation, explain, loaded, meant
from roofmodel.study.estimate.notes import beyond, length_notes, link_notes
from roofmodel.study.estimate.options import DEFAULT_SEQ, check_kernel, given, workload
from roofmodel.study.estimate.parallelism import possible, refuse_stages

VARIABLES = ("batch", "seq", "context", "gpus")
SYMBOLS = {"batch": "B", "seq": "S", "context": "C", "gpus": "N_tp", "n": "n"}
OPTIONS = {"gpus": "tp"}  # by variable, where the option has another name


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
    step: Step | None = None  # of a model, at the least size
    op: str | None = None
    notes: tuple[str, ...] = ()
    derived: tuple[Explanation, ...] = ()  # of one operator, at each of its changes, in the model's symbols

    @property
    def phase(self) -> Phase | None:
        return self.step and self.step.phase


def crossover(
    model: str | os.PathLike[str], device: Device, *, over: str | None = None, op: str | None = None,
    family: str | None = None, derive: bool = False, **options: Any,
) -> Crossover:  # fmt: skip
    """Where the roof changes over `batch`, `seq`, `context` or `gpus`; a plain kernel's over its size.

    With `derive`, one operator is derived as well. Raises RoofError.
    """
    if isinstance(model, str) and model in textbook_kernels.KERNELS:
        return _of_kernel(model, device, over, op, options)
    over = over or "batch"
    if over not in VARIABLES:
        raise WorkloadError(f"--over: unknown variable {over!r}{choices(over, VARIABLES)}")
    return _of_model(loaded(model, family), device, over, op, options, derive)


def _of_kernel(name: str, device: Device, over: str | None, op: str | None, options: dict[str, Any]) -> Crossover:
    dtype = options.get("dtype", "fp16")
    check_kernel(1, dtype)
    widths = Workload((), dtype=dtype).widths
    idle = [*given(options), *(["op"] if op else []), *(["over"] if over not in (None, "n") else [])]
    return Crossover(
        name,
        "n",
        dtype,
        device,
        changes(name, lambda n: textbook_kernels.operator(name, n, widths).cost, symbol("n"), device, dtype),
        op=name,
        notes=tuple(f"--{option} is ignored: {name} is a kernel" for option in idle),
    )


# --- A model ----------------------------------------------------------------------------------------


def _of_model(
    arch: Architecture, device: Device, over: str, op: str | None, options: dict[str, Any], derive: bool
) -> Crossover:
    varies = OPTIONS.get(over, over)
    notes = [f"--{varies} is ignored: it is what varies"] if varies in given(options) and over != "context" else []
    counted = _Counted(arch, device, _asked(arch, over, options), over)
    work, remarks = counted.sized(counted.start)
    refuse_stages(work, "crossovers are those of a pass through all layers")
    notes += [*arch.notes, *(remark for remark in remarks if not remark.startswith(f"--{over} "))]
    most = work.joined // work.parallel.tp * counted.sizes[-1] if counted.sizes else work.joined
    notes += link_notes(device, most)
    operators, (phase,) = counted.at(counted.start), work.phases
    names = [operator.name for operator in operators]

    def along(name: str, cost: Costs, which: Sequence[int]) -> Changes:
        way = counted.way_of(which)
        return changes(name, cost, counted.symbol, device, work.dtype, counted.start, counted.sizes, way)

    def found(index: int) -> Changes:
        name, layers = names[index], operators[index].layers or ()
        one = along(name, counted.cost_of_one(index), (index,))
        return one._replace(layers=layers) if names.count(name) > 1 else one

    wanted = set(names) if op is None else meant(op, names)
    which = [i for i, name in enumerate(names) if name in wanted]
    each, mostly = tuple(map(found, which)), None
    if op is not None and len(each) == 1:
        (whole,), each, op = each, (), names[which[0]]
    else:
        whole = along(op or phase, counted.cost_of(which), which)
        mostly = _mostly(counted, which, device, work.dtype)
    if len({link_bandwidth(each.collective, device) for each in operators if each.collective}) > 1 and len(which) > 1:
        notes.append("bytes that go another way than most are counted as so many more, or fewer, on that one")
    notes += _beyond(arch, counted, whole, each)
    notes = list(dict.fromkeys(notes))
    changed = whole.changes if derive and not each else ()
    derived = tuple(counted.derived(names[which[0]], change.value) for change in changed)
    (step,) = work.steps()
    return Crossover(arch.name, over, work.dtype, device, whole, each, mostly, step, op, tuple(notes), derived)


def _asked(arch: Architecture, over: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options with their phase. Raises WorkloadError, with what would work, where the variable cannot vary."""
    phase = options.get("phase") or _usual(arch, over)
    if over == "context" and phase not in ("prefill", "decode", "generate"):
        raise WorkloadError(f"--over context: {phase} reads no KV cache; try --over {'batch' if arch.image else 'seq'}")
    if over == "seq" and arch.image:
        raise WorkloadError(f"--over seq: {arch.name} reads images; try --over batch")
    if over == "batch" and options.get("dp", 1) != 1:
        raise WorkloadError(f"--over batch: --dp {options['dp']} only deals the batch out; try --dp 1: one replica")
    some = (
        {"context": options.get("context") or DEFAULT_SEQ} if over == "context" else {}
    )  # any length: it is what varies
    return {**options, **some, "phase": phase}


def _mostly(counted: _Counted, which: Sequence[int], device: Device, dtype: str) -> Mostly:
    """As `roof estimate` adds operators up, and `roof sweep` names a roof."""

    def bound(n: int) -> str:
        seconds: dict[str, float] = {}
        for operator in (counted.at(n)[index] for index in which):
            placed = place(operator.cost, device, dtype, operator.collective)
            seconds[placed.bound] = seconds.get(placed.bound, 0.0) + operator.count * placed.bound_seconds
        return max(seconds, key=lambda roof: seconds[roof])

    asked = counted.sizes or list(ladder(counted.start))
    values = ((high if counted.sizes else first_size(bound, low, high)) for low, high in cells(bound, asked))
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
        return workload(self.arch, **{**self.options, OPTIONS.get(self.over, self.over): n})

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

        def worth(index: int, n: Number, usual: Number | None) -> Cost:
            operator, own = self.at(n)[index], self.way_of((index,))(n)
            cost: Cost = operator.count * operator.cost
            rate = link_bandwidth(own, self.device)
            if own is None or rate is None or usual is None or rate == usual:
                return cost
            return replace(cost, link_bytes=cost.link_bytes * Fraction(usual) / Fraction(rate))

        def summed(n: Number) -> Cost:
            usual = link_bandwidth(most(n), self.device)
            return sum((worth(index, n, usual) for index in which), Cost())

        return summed

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
