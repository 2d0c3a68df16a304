"""Measure operations on this machine, as rows of a table for `roof validate` and `roof calibrate`.

`cases.py` chooses the cases, `torch_calls.py` runs them, `stopwatch.py` times them. And loops of seconds, for the rates
that a card sustains and the energies of FLOPs and bytes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple, Protocol

from roofmodel.errors import Option, WorkloadError, choices, shorten
from roofmodel.measure.cases import DTYPES, KERNELS, BenchmarkCase
from roofmodel.measure.operations import OPERATIONS
from roofmodel.measure.stopwatch import Machine, MeasuredTime, Reading
from roofmodel.measure.torch_calls import prepare
from roofmodel.numbers.units import si

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


# --- Sustained rates and energies (devices/parts.py) ------------------------------------------------

GEMM_ROWS, COPY_ROWS, COPY_COLUMNS = 8192, 65536, 8192
"""Sizes of the loops: square GEMMs, and x + z of 16-bit tensors of 1 GiB each, which no L2 holds."""
SETTLING = 0.25  # the share of a loop that is not counted: the regulator has settled then
BATCH_SECONDS = 0.1  # of launches without a wait
IDLE_SECONDS = 2e-3  # between two tiny kernels that keep the clock high


class Meter(Protocol):
    """The energy counter of a GPU."""

    limit_watts: float

    def joules(self) -> float: ...
    def hertz(self) -> float: ...


class SustainedLoop(NamedTuple):
    """A loop of the same operation: FLOP/s or bytes per second (0: no work), mean power, median clock; `other` is what
    its DRAM traffic moves in bytes per second."""

    name: str  # a pipe, `dram`, `idle` (tiny kernels at boost clock) or `deep idle`
    rate: float
    watts: float
    hertz: float
    other: float = 0.0


def sustained_loops(machine: Machine, meter: Meter, seconds: float, rows: int = GEMM_ROWS) -> Iterator[SustainedLoop]:
    """Loops of `seconds` each: GEMMs in each format with tensor cores, a pass over DRAM, tiny kernels, and nothing."""
    for dtype in machine.dtypes:
        if dtype == "fp32":
            continue
        case = BenchmarkCase("gemm", dtype, "torch", (("m", rows), ("n", rows), ("k", rows)))
        yield _loop(f"tensor_{dtype}", case, machine, meter, seconds)
    dtype = next(each for each in ("bf16", "fp16", "fp32") if each in machine.dtypes)
    shape = (("tokens", COPY_ROWS * rows // GEMM_ROWS), ("hidden", COPY_COLUMNS))
    yield _loop("dram", BenchmarkCase("add", dtype, "torch", shape), machine, meter, seconds)
    tiny = prepare(BenchmarkCase("add", dtype, "torch", (("tokens", 1), ("hidden", 8))), machine.device)

    def wait_between() -> None:
        tiny()
        time.sleep(IDLE_SECONDS)

    yield SustainedLoop("idle", 0.0, *_watts_and_hertz(lambda: machine.elapsed(wait_between), meter, seconds)[1:])
    yield SustainedLoop("deep idle", 0.0, *_watts_and_hertz(lambda: time.sleep(BATCH_SECONDS), meter, seconds)[1:])


def _loop(name: str, case: BenchmarkCase, machine: Machine, meter: Meter, seconds: float) -> SustainedLoop:
    run = prepare(case, machine.device)
    launches = max(1, int(BATCH_SECONDS / max(min(machine.elapsed(run) for _ in range(3)), 1e-6)))

    def batch() -> None:
        for _ in range(launches):
            run()

    batches_per_second, watts, hertz = _watts_and_hertz(lambda: machine.elapsed(batch), meter, seconds)
    cost, per_second = case.operator.cost, launches * batches_per_second
    if name == "dram":
        return SustainedLoop(name, per_second * float(cost.bytes), watts, hertz)
    return SustainedLoop(name, per_second * float(cost.matmul_flops), watts, hertz, per_second * float(cost.bytes))


def _watts_and_hertz(run: Callable[[], object], meter: Meter, seconds: float) -> tuple[float, float, float]:
    """Runs per second, mean watts and median clock of a loop after it has settled."""
    end = time.monotonic() + SETTLING * seconds
    while time.monotonic() < end:
        run()
    begin, joules, runs, clocks = time.monotonic(), meter.joules(), 0, []
    while time.monotonic() - begin < (1 - SETTLING) * seconds or not runs:
        run()
        runs += 1
        clocks.append(meter.hertz())
    took = time.monotonic() - begin
    return runs / took, (meter.joules() - joules) / took, median(clocks)


def power_yaml(loops: Sequence[SustainedLoop], limit_watts: float, source: str) -> str:
    """The lines of a device's file that follow from the loops: `power`, and what was measured as comments.

    A GEMM's energy is that above idle without the one of its DRAM traffic. Raises WorkloadError where a loop drew no
    more than idle.
    """
    by_name = {each.name: each for each in loops}
    idle = by_name["idle"].watts
    if any(each.rate and each.watts <= idle for each in loops):
        raise WorkloadError(f"a loop drew no more than the {idle:.0f} W without work: is this GPU busy or shared?")
    dram = (by_name["dram"].watts - idle) / by_name["dram"].rate
    energy = {
        each.name: f"{(each.watts - idle - dram * each.other) / each.rate * 1e12:.3g} pJ/FLOP"
        for each in loops if each.name.startswith("tensor_")
    } | {"dram": f"{dram * 1e12:.3g} pJ/B"}  # fmt: skip
    gemms = [each for each in loops if each.name.startswith("tensor_")]
    clock = f"clock: {min(each.hertz for each in gemms) / 1e6:.0f} MHz, " if gemms else ""
    lines = [
        f"power: {{limit: {limit_watts:g} W, idle: {idle:.3g} W, {clock}source: loops, energy: {{"
        + ", ".join(f"{name}: {value}" for name, value in energy.items())
        + "}}",
        f'# sources: {{loops: "{source}"}}',
    ]
    for each in loops:
        unit = "B/s" if each.name == "dram" else "FLOP/s"
        rate = f"{si(each.rate, unit)}, " if each.rate else ""
        lines.append(f"# {each.name}: {rate}{each.watts:.0f} W, {each.hertz / 1e6:.0f} MHz")
    return "\n".join(lines) + "\n"
