"""A scaling table in the terminal: speed-up and efficiency by GPUs, expected and measured."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from roofmodel.errors import Option
from roofmodel.numbers import units
from roofmodel.report.table import COUNT, Column, Table
from roofmodel.sweep.columns import BY_KEY, TIME
from roofmodel.sweep.data import rows
from roofmodel.sweep.scaling_laws import LawFit, Scaling
from roofmodel.sweep.scaling_table import MeasuredRun
from roofmodel.sweep.sweep import Sweep

LAWS_OF_MODES = {"strong": "amdahl", "weak": "gustafson"}
LAW_NAMES = {"amdahl": "Amdahl", "gustafson": "Gustafson"}
VARYING = (
    "model",
    "hardware",
    "phase",
    "seq",
    "context",
    "dtype",
    "weights",
    "kv",
    "engine",
    "engine_option",
    "tp",
    "dp",
    "pp",
)


class ScalingView:
    """The rows of a scaling table, the measured runs, and the serial fractions of the fitted laws."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        scaling = self.sweep.scaling
        assert scaling is not None
        sweep_rows = list(rows(self.sweep))
        yield Text.assemble((heading(scaling, sweep_rows), "bold"))
        names = varying(sweep_rows, scaling)
        curves = [Column(None, name, text=lambda row, name=name: str(row[name] or "")) for name in names]  # type: ignore[misc]
        measured = {run.gpus: run for run in scaling.measured}
        run_column = Column(None, "measured", COUNT, text=lambda row: _measured(measured.get(row["gpus"])))
        yield Table("rows", (*curves, *SCALING_COLUMNS, run_column)).terminal(sweep_rows)
        yield from (Text(line, style="dim") for line in remarks(scaling, sweep_rows))


def _measured(run: MeasuredRun | None) -> str | None:
    if run is None:
        return None
    return f"{units.seconds(run.seconds)}, {run.efficiency:.1%}" if run.seconds is not None else f"{run.efficiency:.1%}"


def _bound(row: dict[str, Any]) -> str | None:
    """The bound where no time is expected."""
    unknown = row["expected_seconds"] is None and row["bound_seconds"] is not None
    return units.seconds(row["bound_seconds"]) if unknown else None


def _exposed(row: dict[str, Any]) -> float | None:
    kind = "" if row["expected_seconds"] is None else "expected_"
    exposed: float | None = row[f"{kind}communication_exposed_seconds"]
    return exposed


def _memory(row: dict[str, Any]) -> str | None:
    total = row["memory_total"]
    return None if total is None else units.binary(total) + "!" * (row["fits"] is False)


SCALING_COLUMNS = (
    BY_KEY["gpus"],
    Column(None, "batch", COUNT, "batch", priority=2),
    BY_KEY["expected_seconds"]._replace(title="time"),
    Column(None, "bound", COUNT, text=_bound),
    BY_KEY["speedup"],
    BY_KEY["efficiency"],
    Column(None, "exposed", TIME, _exposed),
    BY_KEY["communication_share"],
    BY_KEY["communication_hidden_seconds"],
    Column(None, "replicas", TIME, "expected_replica_seconds", priority=5),
    Column(None, "memory", COUNT, text=_memory, priority=3),
    BY_KEY["bound"]._replace(priority=1),
)


def heading(scaling: Scaling, sweep_rows: Sequence[dict[str, Any]]) -> str:
    """`gpt2 · a100-sxm-80gb · train · weak scaling over dp`."""
    return " · ".join([*filter(None, [subtitle(sweep_rows)]), f"{scaling.mode} scaling over {scaling.share}"])


def subtitle(sweep_rows: Sequence[dict[str, Any]]) -> str:
    """The model, device and phase, where all rows have the same: `gpt2 · a100-sxm-80gb · train`."""
    return " · ".join(str(sweep_rows[0][name]) for name in VARYING[:3] if len({row[name] for row in sweep_rows}) == 1)


def varying(sweep_rows: Sequence[dict[str, Any]], scaling: Scaling) -> list[str]:
    """The columns that distinguish curves."""
    return [name for name in VARYING if name != scaling.share and len({row[name] for row in sweep_rows}) > 1]


def remarks(scaling: Scaling, sweep_rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The serial fractions, the meaning of columns, and the reasons of rows without results."""
    yield (
        "exposed: time of communication without overlap; share: exposed / time; hidden: time of communication that "
        "overlaps with the backward pass"
    )
    if any(row["expected_replica_seconds"] for row in sweep_rows):
        yield (
            "replicas: copies of gradients into buckets, slowdown of the backward pass, and wait for the slowest GPU; "
            "the time includes them"
        )
    if any(row["fits"] is False for row in sweep_rows):
        yield "! does not fit in the usable memory"
    yield from _replica_memory({row["zero"] for row in sweep_rows if row["phase"] == "train" and (row["dp"] or 1) > 1})
    for of, law in sorted(scaling.fits, key=lambda each: (each[0] == "measured", not suits(each[1], scaling.mode))):
        if of == "measured" or suits(law, scaling.mode):
            yield f"{of}: {describe_fit(law, scaling.mode)}"
    yield from dict.fromkeys(f"– {row['note']}" for row in sweep_rows if row["bound_seconds"] is None and row["note"])


def _replica_memory(stages: Collection[int]) -> Iterator[str]:
    """What each replica stores in training, with these stages of ZeRO; nothing for no stage."""
    if 0 in stages:
        without = f" without {Option('zero', 1)}" if 1 in stages else ""
        yield f"memory{without}: each of the --dp replicas stores all gradients and all of the optimizer state"
    if 1 in stages:
        sharded = f" with {Option('zero', 1)}" if 0 in stages else ""
        yield f"memory{sharded}: each of the --dp replicas stores all gradients; they shard the optimizer state"


def describe_fit(law: LawFit, mode: str) -> str:
    """`Amdahl's law: serial fraction 4.1 % (95 %: 3.2 % to 5.0 %)`, with a remark on values outside 0 to 100 %."""
    suited = next(name for name, its_law in LAWS_OF_MODES.items() if its_law == law.law)
    text = f"{LAW_NAMES[law.law]}'s law{'' if suited == mode else f' (for {suited} scaling)'}"
    text += f": serial fraction {law.serial_fraction:.2%}"
    interval = "one point, no interval"
    if law.points > 1 and law.too_few_points:
        return f"{text} ({law.points} points: too few for an interval)"
    if law.low is not None and law.high is not None:
        interval = f"95 % interval {law.low:.2%} to {law.high:.2%}, {law.points} points"
    limits = impossible(law)
    return f"{text} ({interval})" + (f"; {limits}" if limits else "")


def impossible(law: LawFit) -> str:
    """What a serial fraction or an interval outside 0 to 100 % means; empty for one inside."""
    if law.serial_fraction > 1:
        return "above 100 %: slower than one GPU"
    if law.serial_fraction < 0:
        return "below 0 %: faster than ideal"
    if law.low is not None and law.high is not None and (law.low < 0 or law.high > 1):
        return "only 0 % to 100 % of the interval is possible"
    return ""


def suits(law: LawFit, mode: str) -> bool:
    """Whether a law describes this kind of scaling."""
    return law.law == LAWS_OF_MODES[mode]
