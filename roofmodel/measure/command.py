"""`roof measure` and `roofmodel.measure`: a table of operations measured on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from roofmodel.errors import Text
from roofmodel.numbers.units import si
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import BenchmarkDevice, L2State, Model, PathLike, Phase, ProgressCallback, no_progress
from roofmodel.report.base import RenderedResult
from roofmodel.report.command import CommandCall, CommandLine
from roofmodel.report.printing import ignored, print_line, print_rich, remark
from roofmodel.report.table import BYTES_PER_SECOND, COUNT, SECONDS, Column, Table, Unit

if TYPE_CHECKING:
    from pathlib import Path

    from roofmodel.measure.measure import Done, SustainedLoop
    from roofmodel.measure.measured_table import Measurement

BUDGET: float = 120  # seconds
OF_TABLE = ("ops", "dtype", "model", "phase", "batch", "seq", "context", "l2", "budget", "seed", "resume", "force")
"""The options that only apply to a table of operations."""


def _highest(quantity: str) -> Callable[[tuple[Any, Sequence[Done]]], float | None]:
    """The highest rate of FLOPs or bytes among the measurements of a kernel."""
    return lambda row: max(getattr(d.case.operator.cost, quantity) / d.timing.seconds for d in row[1]) or None


KERNELS = Table(
    "kernels",
    (
        *(
            Column(None, title, value=lambda row, place=place: row[0][place], wrap=True)  # type: ignore[misc]
            for place, title in enumerate(("operation", "format", "kernel"))
        ),
        Column(None, "rows", COUNT, lambda row: len(row[1])),
        Column(None, "shortest", SECONDS, lambda row: min(done.timing.seconds for done in row[1])),
        Column(None, "highest FLOP/s", Unit(lambda rate: si(rate, "FLOP/s")), _highest("flops")),
        Column(None, "highest B/s", BYTES_PER_SECOND, _highest("bytes")),
    ),
)
"""A row for each kind of case, with its measurements."""


class MeasureReport(RenderedResult):
    """Result of `measure`: the rows that were measured and written."""

    def __init__(self, measurement: Measurement) -> None:
        self.measurement = measurement

    @property
    def path(self) -> Path:
        """The CSV table that was written."""
        return self.measurement.path

    @property
    def interrupted(self) -> bool:
        """Whether the run was interrupted (Ctrl-C, SIGTERM) before its plan or budget ended."""
        return self.measurement.interrupted

    def _messages(self) -> Iterable[Text]:
        """Cases that failed, and the command that continues."""
        return self.measurement.notes

    def __rich__(self) -> Any:
        """By operation, format and kernel: rows, shortest time, and highest achieved FLOP/s and bandwidth."""
        from rich.console import Group
        from rich.text import Text as RichText

        measured, name, l2 = (
            self.measurement.done,
            str(self.measurement.plan.machine.evidence.name),
            self.measurement.plan.l2,
        )
        parts: dict[tuple[str, str, str], list[Done]] = {}
        for done in measured:
            parts.setdefault(done.case.kind, []).append(done)
        return Group(
            RichText.assemble((name, "bold"), f", L2 {l2}"),
            KERNELS.terminal(sorted(parts.items())),
            RichText("FLOP/s and B/s: counted FLOPs and bytes (each tensor moves once) / measured time", style="dim"),
        )

    def __repr__(self) -> str:
        return f"<MeasureReport {self.path}: {self.measurement.rows} rows>"


class SustainedReport(RenderedResult):
    """Result of `measure` with `sustained`: the loops, and the file with the lines for a device's YAML."""

    def __init__(self, path: Path, loops: Sequence[SustainedLoop], text: str) -> None:
        self.path, self.loops, self.text = path, loops, text

    def __rich__(self) -> Any:
        """The lines for a device's file."""
        from rich.text import Text as RichText

        return RichText(self.text.rstrip())

    def __repr__(self) -> str:
        return f"<SustainedReport {self.path}: {len(self.loops)} loops>"


LOOP_SECONDS = 20.0


def _measure_sustained(output: str, device: BenchmarkDevice | None, progress: ProgressCallback) -> SustainedReport:
    """Loops of each format on the GPU. Raises WorkloadError without a GPU that counts its energy."""
    from roofmodel.errors import Option, WorkloadError
    from roofmodel.files import output_files
    from roofmodel.measure import stopwatch
    from roofmodel.measure.measure import power_yaml, sustained_loops
    from roofmodel.version import __version__

    target = output_files.check(output, ("yaml", "yml"))
    machine = stopwatch.machine(device)
    try:
        if not isinstance(machine, stopwatch.Gpu):
            raise WorkloadError(Option("sustained"), " measures a GPU, and torch finds none")
        meter = stopwatch.EnergyMeter(machine.id)
        loops = []
        for number, loop in enumerate(sustained_loops(machine, meter, LOOP_SECONDS), 1):
            loops.append(loop)
            progress(loop.name, number, None)
        source = f"roof measure --sustained, roofmodel {__version__}, {machine.framework}"
        text = f"# {machine.evidence.name}\n" + power_yaml(loops, meter.limit_watts, source)
    finally:
        machine.close()
    output_files.replace(target, lambda file: file.write_text(text, encoding="utf-8"))
    return SustainedReport(target, loops, text)


@checked
def measure(
    output: PathLike,
    *,
    ops: str | None = None,
    dtype: str | None = None,
    model: Model | None = None,
    phase: Phase | None = None,
    batch: int = 1,
    seq: int | None = None,
    context: int | None = None,
    l2: L2State = "cold",
    budget: float = BUDGET,
    device: BenchmarkDevice | None = None,
    seed: int = 0,
    resume: bool = False,
    force: bool = False,
    sustained: bool = False,
    progress: ProgressCallback = no_progress,
) -> MeasureReport | SustainedReport:
    """Measure operations on this machine with torch, for `validate` and `calibrate`.

    An interrupt (Ctrl-C) ends the run; its rows are kept. Raises RoofError.

    Args:
        output: FILE .csv: one row per measured operation. With `sustained` .yaml: lines for the file of a device.
        ops: Operations to measure, such as gemm,attn_context (default: all).
        dtype: Formats, such as fp16,bf16 (default: all that the device supports).
        model: Measure the operators of this model instead of random shapes.
        phase: With `model`: as for estimate.
        batch: With `model`: as for estimate.
        seq: With `model`: as for estimate.
        context: With `model`: as for estimate.
        l2: State of the L2 cache at a launch; cold: flushed.
        budget: Seconds after which the run stops and keeps its rows.
        device: Where the operations run (default: cuda if a GPU is found).
        seed: Seed of the random shapes.
        resume: Continue an interrupted run that wrote to FILE.
        force: Replace an existing FILE.
        sustained: Measure instead what the GPU sustains: GEMMs and a pass over DRAM, 20 s each, and their energy.
        progress: Called after each case with its text, the number of finished cases and of all cases.

    Examples:
        >>> measure("rows.csv", ops="gemm", budget=60)  # doctest: +SKIP
    """
    from roofmodel.measure.measured_table import run as study
    from roofmodel.models import hub

    if sustained:
        return _measure_sustained(values.path("output", output), device, progress)
    architecture = None if model is None else hub.load(model, None)
    measurement = study(
        values.path("output", output), ops=ops, dtype=dtype, architecture=architecture,
        workload={"phase": phase, "batch": batch, "seq": seq, "context": context}, l2=l2, budget=budget, device=device,
        seed=seed, resume=resume, force=force, progress=progress,
    )  # fmt: skip
    return MeasureReport(measurement)


def _run(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    """Measure with progress on stderr, and print a summary."""
    from roofmodel.report import printing

    arguments = call.given
    unused = (
        [] if "model" in arguments else [name for name in ("phase", "batch", "seq", "context") if name in arguments]
    )
    with printing.measuring_progress(arguments.get("budget", BUDGET)) as callback:
        report = call(progress=callback)
    print_rich(report)
    if isinstance(report, SustainedReport):
        print_line(f"wrote {report.path}: copy these lines into the file of your device")
        remark(report, ignored([name for name in arguments if name in OF_TABLE], "it does not apply to --sustained"))
        return
    print_line(f"wrote {report.path}: {report.measurement.rows} rows of {report.measurement.cases} cases")
    remark(report, ignored(unused, "it needs --model"))
    if report.interrupted:
        raise KeyboardInterrupt


COMMAND = CommandLine(
    measure,
    settings={"output": {"flags": ("-o", "--output")}},
    run=_run,
    about="Measure operations on this machine with torch, for `roof validate` and `roof calibrate`.",
    examples=(
        "roof measure -o measured.csv",
        "roof measure --ops gemm,attn_context --dtype fp16 --budget 600 -o measured.csv",
        "roof measure --model gpt2-xl --phase decode --batch 8 -o gpt2-xl.csv",
        "roof measure --sustained -o power.yaml",
    ),
)
