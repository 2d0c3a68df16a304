"""`roof measure`: a table of measured operations, made on this machine."""

from __future__ import annotations

import signal
from typing import Annotated, Any

import typer

from roofmodel.cli.doors import ignored, note, print_rich
from roofmodel.errors import WorkloadError, choices

app = typer.Typer(add_completion=False)


@app.command("measure")
def measure_command(
    output: Annotated[str, typer.Option("-o", "--output", help="FILE .csv: a row a measured operation.")],
    ops: Annotated[str | None, typer.Option(help="Only these, as in gemm,attn_context; all if absent.")] = None,
    dtype: Annotated[str | None, typer.Option(help="As in fp16,bf16; what the device has if absent.")] = None,
    model: Annotated[str | None, typer.Option(help="The shapes of this model's operators, instead of a sweep.")] = None,
    phase: Annotated[str | None, typer.Option(help="With --model, as for estimate.")] = None,
    batch: Annotated[int, typer.Option(help="With --model.")] = 1,
    seq: Annotated[int | None, typer.Option(help="With --model.")] = None,
    context: Annotated[int | None, typer.Option(help="With --model.")] = None,
    l2: Annotated[str, typer.Option("--l2", help="cold: caches emptied before each launch; or warm.")] = "cold",
    budget: Annotated[float, typer.Option(help="Seconds, after which it stops with what it has.")] = 120,
    device: Annotated[str | None, typer.Option(help="cuda or cpu; the GPU if there is one.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sizes that a sweep draws.")] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the rows that FILE, or a killed run, has.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a FILE that is there.")] = False,
) -> None:
    """Measure operations on this machine with torch, for `roof validate` and `roof calibrate`."""
    if l2 not in ("cold", "warm"):
        raise WorkloadError(f"--l2: unknown value {l2!r}{choices(l2, ('cold', 'warm'))}")
    if not budget > 0:
        raise WorkloadError(f"--budget {budget:g}: give seconds, more than 0")
    from roofmodel import __version__
    from roofmodel.study.benchmark import cases, measure, stopwatch
    from roofmodel.views.benchmark import measure as views
    from roofmodel.views.kit import files

    files.check(output, ("csv",))
    wanted = measure.chosen("--ops", ops, cases.KERNELS, cases.KERNELS)
    machine = stopwatch.machine(device)
    try:
        dtypes = measure.types(machine, wanted, dtype)
        if model is None:
            given = {"phase": phase, "batch": None if batch == 1 else batch, "seq": seq, "context": context}
            ignored((name for name, value in given.items() if value is not None), "only a --model has such a workload")
            planned = cases.sweep(wanted, dtypes, cases.Limits(*machine.largest), seed)
        else:
            planned = _of_model(model, wanted, dtypes, phase=phase, batch=batch, seq=seq, context=context)
        plan = measure.Plan(machine, planned, l2, budget, f"roof measure, roofmodel {__version__}")
        if machine.device == "cpu":
            note(f"measuring the CPU, {machine.evidence.name}{'' if device else ': torch sees no GPU'}")
        _run(plan, views.Growing(output, machine, resume, force))
    finally:
        machine.close()


def _of_model(model: str, ops: tuple[str, ...], dtypes: tuple[str, ...], **workload: Any) -> list[Any]:
    from roofmodel.models import hub
    from roofmodel.study.benchmark import cases

    planned, others = cases.of_model(hub.load(model), dtypes, **workload)
    if others:
        note(f"not measured, since torch has no single kernel or tables no name for it: {', '.join(others)}")
    return [case for case in planned if case.op in ops]


def _run(plan: Any, table: Any) -> None:
    """Measure until the plan or its budget ends, or somebody ends it; what is measured until then is kept."""
    from roofmodel.study.benchmark import measure
    from roofmodel.views.benchmark import measure as views

    done, failed, interrupted = [], dict[str, dict[str, None]](), False
    progress = views.Progress(len(plan.cases), plan.budget)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # batch systems end a job so
    try:
        for found in measure.measure(plan, table.known):
            progress.see(found.case)
            if isinstance(found, measure.Failed):
                failed.setdefault(found.reason, {})[" ".join(found.case.kind)] = None
            else:
                table.add(measure.row(found, plan))
                done.append(found)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.end()
        table.close()
    for reason, kinds in failed.items():
        note(f"not measured, all or some: {', '.join(kinds)}: {reason[:160]}")
    if not done and not table.known:
        raise WorkloadError(
            f"-o {table.target}: nothing was measured of {len(plan.cases)} cases, so nothing is written"
        )
    print_rich(views.summary(done, plan.machine.evidence.name, plan.l2))
    note(f"wrote {table.target}: {len(table.known) + len(done)} rows of {len(plan.cases)} cases")
    if interrupted:
        note("interrupted; --resume goes on")
        raise KeyboardInterrupt
    note(f"to go on: roof validate {table.target} --hw {_hardware(plan.machine)}")


def _hardware(machine: Any) -> str:
    """The device's name where its attributes tell, else what to put in its place."""
    from roofmodel.study.profile.device import UnknownDevice, identify

    try:
        return identify([machine.evidence], None, []).device.id
    except UnknownDevice:
        return "DEVICE.yaml"
