"""Strong and weak scaling: a sweep over numbers of GPUs, with speed-up, efficiency and the share of communication.

    speed-up(n) = rate(n) / rate(1)        efficiency(n) = speed-up(n) / n

The rate is sequences or images per second, by the expected times, or by the bounds where there are none. Strong scaling
keeps the batch of all GPUs; weak scaling multiplies it by the number of GPUs. Without one GPU among the numbers, the
smallest number n0 takes its place, as n0 times as fast as one. A single replica trains without a wrapper, also if
data_parallel is given, so that the baseline does not depend on the wrapper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import lcm
from typing import Any

from roofmodel.devices.device import Device
from roofmodel.errors import Message, Option, Text, WorkloadError
from roofmodel.models.architecture import Architecture
from roofmodel.options.values import MAX_VALUE
from roofmodel.options.workload import valid
from roofmodel.sweep import grid
from roofmodel.sweep.case import COLUMNS, RESULT_COLUMNS, SCALING_COLUMNS, Columns, GridCase
from roofmodel.sweep.data import block_of, full_column, known_values
from roofmodel.sweep.scaling_laws import LAWS, LawFit, MeasuredRun, Scaling, fit
from roofmodel.sweep.sweep import Sweep, sweep

SHARES = ("dp", "tp", "pp", "ep")
MAX_ROWS = 20_000
"""Limit of the rows of a scaling table, which are kept in memory."""
MAX_GPUS = 2**20
DEFAULT_GPUS = "1,2,4,8"


def scaling_sweep(
    models: Sequence[Architecture],
    devices: Sequence[Device],
    mode: str,
    gpus: object,
    share: str | None = None,
    measured: Callable[[str], tuple[MeasuredRun, ...]] | None = None,
    *,
    price: float | str | Mapping[str, float] | None = None,
    progress: Callable[[str, int, int], None] = lambda subject, done, total: None,
    **options: Any,
) -> Sweep:
    """The sweep over the numbers of GPUs, evaluated.

    `share` is the parallelism of further GPUs: data, tensor, pipeline or expert (default: data parallelism in
    training, else tensor parallelism). `measured` reads the measured runs for a mode. Raises WorkloadError for invalid
    values, and if no number of GPUs is possible.
    """
    share = share or ("dp" if options.get("phase") == "train" else "tp")
    counts = sorted(grid.numbers("gpus", gpus, 1, MAX_GPUS))
    runs = measured(mode) if measured else ()
    for value in grid.names(options["data_parallel"]) if options.get("data_parallel") is not None else ():
        valid("data_parallel", value)
    fixed = _fixed_sizes(options, share)
    batches = _batches(options, mode, share, counts)
    cases: list[GridCase] = []
    notes: dict[Text, None] = {}
    rows: list[dict[str, Any]] = []
    wrappers = grid.names(options["data_parallel"]) if options.get("data_parallel") is not None else [None]
    largest = {**_largest(share, counts, fixed), "data_parallel": wrappers[0]}
    for done, count in enumerate(counts, 1):
        sizes = _sizes(share, count, fixed)
        scaled = [batch * count for batch in batches] if mode == "weak" else batches
        try:
            point_options = {**options, **sizes, "batch": scaled}
            if share in ("dp", "ep") and sizes["dp"] == 1 and options.get("phase") == "train":
                point_options["data_parallel"] = None
            part = sweep(models, devices, price=price, largest=largest, **point_options)
        except WorkloadError as error:
            if count == counts[-1] and not rows:
                raise
            notes[Message(f"{count} GPUs: {error}")] = None
            continue
        if part.points + len(rows) > MAX_ROWS:
            raise WorkloadError(f"more than {MAX_ROWS} rows; a scaling table needs fewer values")
        cases += part.cases
        notes |= dict.fromkeys(part.notes)
        rows += [row | {"gpus": count} for block in part.blocks() for row in _rows(block)]
        progress("points", done, len(counts))
    with_scaling(rows, mode)
    comparable = [row for row in rows if row["speedup"] is not None]
    fits: list[tuple[str, LawFit]] = []
    curves = {_series(row, mode) for row in comparable}
    if len(curves) == 1:
        fits += _fits("model", [row["gpus"] for row in comparable], [row["speedup"] for row in comparable])
    fits += _fits("measured", [run.gpus for run in runs], [run.speedup for run in runs])
    notes |= dict.fromkeys(
        _baseline_notes("model", min((row["gpus"] for row in comparable), default=1), Option("gpus"))
    )
    notes |= dict.fromkeys(_baseline_notes("measured", min((r.gpus for r in runs), default=1), Option("measured")))
    if missing := [str(run.gpus) for run in runs if run.gpus not in counts]:
        gpu_counts = ", ".join(missing)
        text = f"measured runs on {gpu_counts} GPUs have no row in the table; add {gpu_counts} to "
        notes[Message(text, Option("gpus"))] = None
    settings = Scaling(mode, share, tuple(counts), runs, tuple(fits))
    return Sweep(tuple(cases), tuple(notes), rows=(block_of(rows, (*COLUMNS, *SCALING_COLUMNS)),), scaling=settings)


def check_unscaled(*, columns: Sequence[str], **options: object) -> None:
    """Raises WorkloadError for options and columns of scaling in a sweep that does not scale."""
    names: list[Text] = [Option(name, value) for name, value in options.items() if value is not None]
    names += [f"the column {name}" for name in columns if name in SCALING_COLUMNS]
    if names:
        raise WorkloadError(names[0], " needs ", Option("scaling", "strong"), " or ", Option("scaling", "weak"))


def check_without_cluster(cluster: str | None, reason: Option) -> None:
    """Raises WorkloadError for a cluster: a scaling table and a sweep of services are computed in one process."""
    if cluster is not None:
        raise WorkloadError(Option("cluster", cluster), " does not apply to ", reason, "; remove the option")


def _fixed_sizes(options: Mapping[str, Any], share: str) -> dict[str, int]:
    """The given parallel sizes, one value each. Raises WorkloadError for the shared one and for several values."""
    sizes = {}
    for name in ("tp", "dp", "pp"):
        if (value := options.get(name)) is None:
            continue
        values = grid.numbers(name, value, 1, MAX_VALUE)
        if name == share or len(values) > 1:
            other = "is set by" if name == share else "must have one value with"
            raise WorkloadError(Option(name, value), f" {other} ", Option("gpus"), "; remove the option")
        sizes[name] = values[0]
    return sizes


def _sizes(share: str, count: int, fixed: Mapping[str, int]) -> dict[str, int]:
    """The parallel sizes for a number of GPUs. Raises WorkloadError if the other sizes do not divide it."""
    others = 1
    for size in fixed.values():
        others *= size
    if count % others:
        raise WorkloadError(
            Option("gpus", count), f" is not divisible by the {others} GPUs of ",
            Message(*[Option(name, size) for name, size in fixed.items()][:1]), "; give multiples",
        )  # fmt: skip
    ways = count // others
    return {**fixed, **({"dp": ways, "ep": ways} if share == "ep" else {share: ways})}


def _largest(share: str, counts: Sequence[int], fixed: Mapping[str, int]) -> dict[str, int]:
    """The parallel sizes of the largest layout that decide the default engine."""
    return {**fixed, ("dp" if share == "ep" else share): max(counts)}


def _batches(options: Mapping[str, Any], mode: str, share: str, counts: Sequence[int]) -> list[int]:
    """The batches; of one GPU in weak scaling. Default in strong data parallelism: the smallest that all can divide."""
    if options.get("batch") is not None:
        return grid.numbers("batch", options["batch"], 1, MAX_VALUE)
    return [lcm(*counts)] if mode == "strong" and share in ("dp", "ep") else [1]


def _rows(block: Columns) -> Iterable[dict[str, Any]]:
    columns = [known_values(full_column(block, name)) for name in COLUMNS]
    return (dict(zip(COLUMNS, values, strict=True)) for values in zip(*columns, strict=True))


def _series(row: Mapping[str, Any], mode: str) -> tuple[Any, ...]:
    """What the points of one curve share."""
    same = [name for name in COLUMNS if name not in (*RESULT_COLUMNS, *SHARES, "data_parallel", "batch", "micro_batch")]
    batch = row["batch"] / row["gpus"] if mode == "weak" else row["batch"]
    return (*(row[name] for name in same), batch)


def with_scaling(rows: Sequence[dict[str, Any]], mode: str) -> None:
    """Add the scaling columns to the rows, in place; None where a time is unknown."""
    first: dict[object, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["gpus"]):
        row.update(dict.fromkeys(name for name in SCALING_COLUMNS if name != "gpus"))
        seconds = _seconds(row)
        if seconds is None:
            continue
        base = first.setdefault(_series(row, mode), row)
        reference = _seconds(base)
        if reference is None:
            continue
        rate = (row["batch"] / seconds) / (base["batch"] / reference)
        row["speedup"], row["efficiency"] = base["gpus"] * rate, base["gpus"] * rate / row["gpus"]
        kind = "expected_" if row["expected_seconds"] is not None else ""
        sent, exposed = row[f"{kind}communication_seconds"], row[f"{kind}communication_exposed_seconds"]
        row["communication_share"] = exposed / seconds
        row["communication_hidden_seconds"] = sent - exposed


def _seconds(row: Mapping[str, Any]) -> float | None:
    """The expected time of a point, or its bound; None for an invalid point."""
    seconds = row["bound_seconds"] if row["expected_seconds"] is None else row["expected_seconds"]
    return None if seconds is None else float(seconds)


def _baseline_notes(of: str, smallest: int, option: Option) -> Iterable[Text]:
    if smallest > 1:
        yield Message(
            f"{of}: speed-up and efficiency are relative to {smallest} GPUs (speed-up {smallest:.2f}); "
            "no law is fitted, because it needs 1 GPU in ", option,
        )  # fmt: skip


def _fits(of: str, gpus: Sequence[int], speedups: Sequence[float]) -> list[tuple[str, LawFit]]:
    if 1 not in gpus:
        return []
    return [(of, law_fit) for law in LAWS if (law_fit := fit(law, gpus, speedups))]
