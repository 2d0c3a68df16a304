"""FLOPs and bytes of kernels, counted from the shapes that a PyTorch trace recorded for their operators.

A kernel belongs to the innermost operator around its launch that has a formula. The work of an operator counts once:

* of the kernels of an operator, the one that runs the matrix multiplications (the longest GEMM, convolution or
  attention kernel; the gradients of a convolution have two) has all the work. The other kernels are auxiliary.
* a vector operator with several kernels distributes its work by their times;
* if an inner operator runs the matrix multiplication (aten::linear calls aten::addmm), kernels that the outer operator
  launches are auxiliary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.devices.parts import Pipe
from roofmodel.errors import WorkloadError
from roofmodel.profiles.kernel import Call, Flops, Profile, RecordedInputs, Traffic
from roofmodel.roofline.categories import category
from roofmodel.roofline.formats import format_in_name
from roofmodel.roofline.naming import anchor, auxiliary_role
from roofmodel.roofline.recorded_inputs import Arguments, NotCounted, Work

NO_SHAPES = "the shapes of its operator are not recorded"
NO_OPERATOR = "no operator launched it"
IN_GRAPH = "launched by a CUDA graph, which has no operators"
COMMUNICATION = "communication"
AUXILIARY = "auxiliary kernel: the work is counted at the main kernel of "
_MAX_WORK = 10**30  # FLOPs or bytes of one operator; larger ones come from damaged files
_CALLED_BY = "cudnn_convolution_backward_"  # their calling operator has the shapes that they lack
_LIST_TYPES = {"fp64": "double", "fp32": "float", "fp16": "c10::half", "bf16": "c10::bfloat16"}
_WIDTH_TYPES = {"1": "bool", "2": "c10::half", "4": "float", "8": "double"}


class Operators(NamedTuple):
    """Operators of a trace by index. `parents` has the index of the calling operator, or -1."""

    names: Sequence[str]
    inputs: Sequence[RecordedInputs | None]
    parents: Sequence[int]


class KernelWork(NamedTuple):
    """The work of one kernel. `reason` says why it is unknown; auxiliary kernels have a reason too."""

    matmul_flops: float = 0.0
    vector_flops: float = 0.0
    bytes: float = 0.0
    form: str = ""  # number format of its matrix multiplications or elements
    reason: str | None = None

    @property
    def known(self) -> bool:
        return self.reason is None

    @property
    def auxiliary(self) -> bool:
        """Whether it is auxiliary: the work of its operator is counted at another kernel."""
        return self.reason is not None and self.reason.startswith(AUXILIARY)


def count_kernels(
    names: Sequence[str], seconds: Sequence[float], launched_by: Sequence[int], operators: Operators,
    in_graphs: frozenset[int] = frozenset(),
) -> list[KernelWork]:  # fmt: skip
    """The work of each kernel, from its name, time, and the index of its innermost operator (-1: none).

    `in_graphs` has the indices of kernels that a CUDA graph launched.
    """
    result = [KernelWork()] * len(names)
    counter = _Counter(operators)
    groups: dict[int, list[int]] = {}
    for i, (name, operator) in enumerate(zip(names, launched_by, strict=True)):
        counted_by = counter.owner(operator, name) if operator >= 0 and i not in in_graphs else NO_OPERATOR
        if _communicates(name):
            counted_by = COMMUNICATION
        elif i in in_graphs:
            counted_by = IN_GRAPH
        if isinstance(counted_by, str):
            result[i] = KernelWork(reason=counted_by)
        else:
            groups.setdefault(counted_by, []).append(i)
    outer = counter.callers(owner for owner in groups if counter.works[owner].matmul_flops)
    for owner, kernels in groups.items():
        work, label = counter.works[owner], operators.names[owner]
        if work.matmul_flops and owner in outer:
            shares: Mapping[int, float] = {}
            label = f"an operator that {label} calls"
        else:
            shares = _shares(work, kernels, names, seconds)
        for i in kernels:
            result[i] = KernelWork(reason=f"{AUXILIARY}{label}")
            if share := shares.get(i):
                form = "tf32" if work.form == "fp32" and format_in_name(names[i]) == "tf32" else work.form
                result[i] = KernelWork(work.matmul_flops * share, work.vector_flops * share, work.bytes * share, form)
    return result


class _Counter:
    """The work of operators, with what was computed before."""

    def __init__(self, operators: Operators) -> None:
        self._operators = operators
        self._known: dict[tuple[object, ...], Work | str] = {}
        self._owners: dict[tuple[int, str | None], int | str] = {}
        self.works: dict[int, Work] = {}

    def owner(self, operator: int, kernel: str) -> int | str:
        """The innermost operator with a known work, from `operator` outward; else why there is none.

        It looks at each operator once, so that its time does not grow with the depth of the nesting.
        """
        list_type, parents = _list_type(kernel), self._operators.parents
        without_work: list[tuple[int, str]] = []
        current = operator
        while current >= 0 and current not in self.works and (current, list_type) not in self._owners:
            outcome = self._work(current, list_type)
            if isinstance(outcome, Work):
                self.works[current] = outcome
            else:
                without_work.append((current, outcome))
                current = parents[current]
        found = current if current in self.works else self._owners.get((current, list_type), NO_OPERATOR)
        for inner, reason in reversed(without_work):
            if isinstance(found, str) and (found == NO_OPERATOR or reason != NO_SHAPES):
                found = reason
            self._owners[inner, list_type] = found
        return found

    def _work(self, operator: int, list_type: str | None) -> Work | str:
        table = self._operators
        name, inputs, parent = table.names[operator], table.inputs[operator], table.parents[operator]
        if inputs is None:
            return NO_SHAPES
        caller = table.inputs[parent] if _CALLED_BY in name and parent >= 0 else None
        key = (name, id(inputs), list_type, id(caller))
        if key not in self._known:
            self._known[key] = _count(name, Arguments(inputs, list_type, caller))
        return self._known[key]

    def callers(self, operators: Iterable[int]) -> set[int]:
        """All operators that call one of these, directly or not."""
        ancestors: set[int] = set()
        for operator in operators:
            current = self._operators.parents[operator]
            while current >= 0 and current not in ancestors:
                ancestors.add(current)
                current = self._operators.parents[current]
        return ancestors


def _count(name: str, args: Arguments) -> Work | str:
    from roofmodel.roofline import matrix_operators, vector_operators

    namespace, _, plain = name.rpartition("::")
    plain = plain if plain.startswith("__") else plain.rstrip("_")
    if namespace != "aten":
        return f"no formula for {name}"
    try:
        matrix = matrix_operators.FORMULAS.get(plain)
        work = matrix(args) if matrix else vector_operators.work(plain, args)
    except NotCounted as reason:
        return f"{name}: {reason}"
    if work is None:
        return f"no formula for {name}"
    if max(work.matmul_flops, work.vector_flops, work.bytes) > _MAX_WORK:
        return f"{name}: its recorded sizes are impossible"
    return work if work.bytes else f"{name}: its recorded tensors are empty"


def _shares(work: Work, kernels: Sequence[int], names: Sequence[str], seconds: Sequence[float]) -> Mapping[int, float]:
    """The share of each kernel in the work of its operator; auxiliary kernels are left out."""
    main: Sequence[Sequence[int]] = [kernels]
    if work.matmul_flops and len(kernels) > 1:
        by_name: dict[str, list[int]] = {}
        for i in [i for i in kernels if _multiplies(names[i])] or kernels:
            by_name.setdefault(names[i], []).append(i)
        main = sorted(by_name.values(), key=lambda each: -sum(seconds[i] for i in each))[: work.kernels]
    shares: dict[int, float] = {}
    for members in main:
        total_seconds = sum(seconds[i] for i in members)
        for i in members:
            shares[i] = (seconds[i] / total_seconds if total_seconds else 1 / len(members)) / len(main)
    return shares


@cache
def _multiplies(kernel: str) -> bool:
    return anchor(kernel) is not None and auxiliary_role(kernel) is None


@cache
def _communicates(kernel: str) -> bool:
    return category(kernel) == "communication"


@cache
def _list_type(kernel: str) -> str | None:
    """The element type of lists of tensors, from the template arguments of the kernel; None if they do not show it."""
    if width := re.search(r"OpaqueType<(\d)", kernel):
        return _WIDTH_TYPES.get(width[1])
    return _LIST_TYPES.get(format_in_name(kernel) or "")


# --- On a device ------------------------------------------------------------------------------------


def flops_by_pipe(work: KernelWork, device: Device) -> dict[str, float]:
    """The FLOPs of a kernel by pipe: matrix multiplications on the fastest pipe of their format, else on CUDA cores."""
    vector = device.vector_pipe(work.form)
    try:
        matmul: Pipe | None = device.matmul_pipe(work.form)
    except WorkloadError:  # such as bf16 on a V100, which converts it to fp32
        matmul = vector
    by_pipe: dict[str, float] = {}
    for pipe, flops in ((matmul, work.matmul_flops), (vector, work.vector_flops)):
        if flops and pipe:
            by_pipe[pipe.name] = by_pipe.get(pipe.name, 0.0) + flops
    return by_pipe


def with_counts(profile: Profile, device: Device) -> tuple[Profile, list[KernelWork]]:
    """A profile whose kernels have FLOPs and DRAM bytes counted from shapes, and the work of each kernel.

    The profile is unchanged, and the list empty, if it has counters or no operator has recorded shapes. Pipes that a
    kernel does not use get 0, which means that no counter is missing.
    """
    calls = profile.kernels.cells("call")
    if not any(call and call.inputs for call in calls) or any(map(profile.kernels.has, Traffic._fields)):
        return profile, []
    launched_by, operators = _operators(calls)
    names = profile.kernels.cells("name")
    seconds = [each or 0.0 for each in profile.kernels.seconds()]
    graphs = frozenset(i for i, call in enumerate(calls) if call and call.in_graph)
    works = count_kernels(names, seconds, launched_by, operators, graphs)
    zeros = {pipe: 0.0 for pipe in ("fp64", "fp32", "fp16", *device.pipes) if pipe in Flops._fields}
    columns: dict[str, list[float | None]] = {name: [None] * len(works) for name in (*zeros, "dram")}
    for row, work in enumerate(works):
        if work.known:
            flops = dict(zeros)
            for pipe, number in flops_by_pipe(work, device).items():
                field = pipe if pipe in Flops._fields else "fp32"  # the matrix units of AMD for fp32
                flops[field] += number
            for name, value in (*flops.items(), ("dram", work.bytes)):
                columns[name][row] = value
    kernels = profile.kernels.copy()
    for name, cells in columns.items():
        kernels.set(name, cells)
    return replace(profile, kernels=kernels), works


def _operators(calls: Sequence[Call | None]) -> tuple[list[int], Operators]:
    """The operator of each kernel as an index (-1: none) into the operators that launched kernels and their callers."""
    places: dict[int, int] = {}  # by identity: numbers of operators repeat in files of several processes
    table: list[Call] = []
    parents: list[int] = []

    def place(call: Call | None) -> int:
        chain = []
        while call is not None and id(call) not in places:
            chain.append(call)
            call = call.parent
        index = -1 if call is None else places[id(call)]
        for each in reversed(chain):
            parents.append(index)
            index = places[id(each)] = len(table)
            table.append(each)
        return index

    launched_by = [place(call) for call in calls]
    return launched_by, Operators([call.name for call in table], [call.inputs for call in table], parents)
