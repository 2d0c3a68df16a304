"""Measure operations on this machine, as rows of a table for `roof validate` and `roof calibrate`.

`cases.py` chooses the cases, `torch_calls.py` runs them, `stopwatch.py` times them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from roofmodel.errors import Option, WorkloadError, choices, shorten
from roofmodel.measure.cases import DTYPES, KERNELS, BenchmarkCase
from roofmodel.measure.operations import OPERATIONS
from roofmodel.measure.stopwatch import Machine, MeasuredTime, Reading
from roofmodel.measure.torch_calls import prepare

_SHAPES = tuple(dict.fromkeys(c for op in KERNELS for c in (*OPERATIONS[op].columns, *OPERATIONS[op].optional)))
COLUMNS = (
    "gpu", "op", "dtype", "kv_dtype", *_SHAPES, "latency_us", "latency_min_us", "repeats", "kernel", "l2",
    "sm_mhz", "memory_mhz", "watts", "celsius", "source", "framework",
)  # fmt: skip
MAX_FAILURES = 3  # after this many failures without a success, other cases of the same kind are not tried


class Done(NamedTuple):
    """A measured case, with the clocks after it."""

    case: BenchmarkCase
    timing: MeasuredTime
    clocks: Reading


class Failed(NamedTuple):
    """A case that failed on this machine, with the reason."""

    case: BenchmarkCase
    reason: str


class MeasurementPlan(NamedTuple):
    """The cases of a run and its settings: `l2` is cold or warm, `budget` in seconds, `source` goes into the table."""

    machine: Machine
    cases: Sequence[BenchmarkCase]
    l2: str
    budget: float
    source: str


def chosen(option: str, text: str | None, known_words: Iterable[str], default: Iterable[str]) -> tuple[str, ...]:
    """The words of an option such as `gemm,softmax`. Raises WorkloadError for one that is not known."""
    if text is None:
        return tuple(default)
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        if word not in known_words:
            raise WorkloadError(Option(option), f": unknown {shorten(word)}{choices(word, known_words)}")
    return words


def types(machine: Machine, ops: Sequence[str], text: str | None) -> tuple[str, ...]:
    """The types to measure in: those asked for, else all that the machine has and the operations are measured in.

    Raises WorkloadError for one that is not known, or that none of the operations has.
    """
    dtypes = chosen("dtype", text, DTYPES, machine.dtypes)
    if not any(dtype in KERNELS[op][0] for op in ops for dtype in dtypes):
        has = dict.fromkeys(dtype for op in ops for dtype in KERNELS[op][0])
        raise WorkloadError(Option("dtype", text), f": {', '.join(ops)} is measured in {', '.join(has)} only")
    return dtypes


def measure(plan: MeasurementPlan, identities: Container[tuple[str, ...]] = ()) -> Iterator[Done | Failed]:
    """Measure each case whose identity is not in `identities`, until the next one could exceed the budget.

    Raises WorkloadError if the device stops working, as a GPU does after an illegal memory access.
    """
    begin, longest = time.monotonic(), 0.0
    failures: Counter[tuple[str, ...]] = Counter()
    for case in plan.cases:
        if identity(case, plan.l2) in identities or failures[case.kind] >= MAX_FAILURES:
            continue
        start = time.monotonic()
        if start - begin + longest > plan.budget:
            return
        outcome = _measured_case(case, plan)
        failures[case.kind] += 1 if isinstance(outcome, Failed) else -len(plan.cases)
        longest = max(longest, time.monotonic() - start)
        yield outcome


def _measured_case(case: BenchmarkCase, plan: MeasurementPlan) -> Done | Failed:
    machine = plan.machine
    try:
        timing = machine.time(prepare(case, machine.device), cold=plan.l2 == "cold")
        return Done(case, timing, machine.read_clocks())
    except Exception as error:  # no error of one case may stop the other cases
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
    try:
        machine.recover()
    except RuntimeError as error:
        raise WorkloadError(f"{case}: {reason}; the device has stopped working ({error})") from None
    return Failed(case, reason)


def row(done: Done, plan: MeasurementPlan) -> dict[str, object]:
    """A row of the table with all COLUMNS; cells that do not apply are empty. `gpu` may be a CPU."""
    case, clocks = done.case, done.clocks._asdict()
    return {
        **dict.fromkeys(COLUMNS, ""),
        "gpu": plan.machine.evidence.name,
        "op": case.op,
        "dtype": case.dtype,
        "kv_dtype": case.dtype if case.op.startswith("attn_") else "",
        **case.sizes,
        "latency_us": f"{done.timing.seconds * 1e6:.4f}",
        "latency_min_us": f"{done.timing.least * 1e6:.4f}",
        "repeats": done.timing.repeats,
        "kernel": case.kernel,
        "l2": plan.l2,
        **{name: "" if value is None else f"{value:g}" for name, value in clocks.items()},
        "source": plan.source,
        "framework": plan.machine.framework,
    }


_IDENTITY = ("op", "dtype", "kernel", "l2", *_SHAPES)


def identity(case: BenchmarkCase, l2: str) -> tuple[str, ...]:
    """The cells that identify the row of this case: those of the columns `_IDENTITY`."""
    cells: dict[str, object] = {**case._asdict(), **case.sizes, "l2": l2}
    return tuple(str(cells.get(column, "")) for column in _IDENTITY)


def identity_of_row(cells: dict[str, str]) -> tuple[str, ...]:
    """The same cells of a row that was read from a file."""
    return tuple(cells[column] for column in _IDENTITY)
