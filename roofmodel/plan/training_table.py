"""A training plan as a terminal table, as a JSON document and as rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from roofmodel.files import output_files
from roofmodel.numbers import units
from roofmodel.plan.data import interval, shortage
from roofmodel.plan.table import candidate_table, ties_legend
from roofmodel.plan.training import TrainingPlan
from roofmodel.plan.training_candidate import training_layout
from roofmodel.plan.training_ranking import RankedTraining
from roofmodel.report.encoding import as_csv, as_json

SUFFIXES = FORMATS = ("json", "csv")
EXPENDABLE = ("idle", "communication", "ties", "memory", "device")
LEFT = ("device", "layout", "recompute")
LEGENDS = {
    "SP": "SP: sequence parallelism",
    "MFU": "MFU: FLOPs of the model / peak FLOP/s of all GPUs during the step",
}
"""The meaning of each column that its title does not explain."""


class TrainingPlanView:
    """The heading, a row for each candidate, then the reasons."""

    def __init__(self, plan: TrainingPlan) -> None:
        self.plan = plan

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        run = self.plan.run
        words = [
            self.plan.model, f"{run.gpus} × {' or '.join(self.plan.devices)}", run.dtype,
            f"batch {run.batch} of {run.seq} tokens", f"{units.si(run.tokens)} tokens in {units.si(run.steps)} steps",
        ]  # fmt: skip
        yield Text(" · ".join(words), style="bold")
        yield Text(f"{units.grouped(self.plan.searched)} candidates in {self.plan.layouts} layouts")
        if not self.plan.ranked:
            return
        cells = [_cells(one, len(self.plan.devices) > 1) for one in self.plan.ranked]
        table, kept = candidate_table(cells, EXPENDABLE, LEFT, options.max_width)
        yield table
        yield from (Text(f"{one.rank}  {one.reason}") for one in self.plan.ranked)
        yield from (Text(line, style="dim") for title, line in LEGENDS.items() if title in kept)
        if "ties" in kept:
            prices = {one.candidate.price for one in self.plan.ranked}
            by_price = len(prices) > 1 and None not in prices
            yield Text(ties_legend("price" if by_price else "step time"), style="dim")


def _cells(one: RankedTraining, several_devices: bool) -> dict[str, str]:
    found, choices = one.candidate, one.candidate.choices
    return {
        "": str(one.rank),
        "device": found.device if several_devices else "",
        "layout": training_layout(found),
        "SP": choices.sequence_parallel if choices.sequence_parallel == "on" else "",
        "ZeRO": str(choices.zero) if choices.zero else "",
        "recompute": choices.recompute,
        "microbatch": str(found.micro_batch),
        "step": units.seconds(found.step.value),
        "MFU": "" if found.mfu is None else f"{found.mfu:.0%}",
        "days": units.significant(found.days.value),
        "$": "" if found.dollars is None else units.si(found.dollars),
        "memory": units.binary(float(found.memory)),
        "communication": f"{found.shares.communication:.0%}",
        "idle": f"{found.shares.idle:.0%}",
        "ties": units.ranges(one.ties_with) if one.ties_with else "",
    }


def document(plan: TrainingPlan) -> dict[str, Any]:
    """The document `roofmodel.plan/1` of a training run."""
    run = plan.run
    return {
        "schema": "roofmodel.plan/1",
        "model": plan.model,
        "devices": list(plan.devices),
        "workload": {
            "phase": "train", "gpus": run.gpus, "tokens": run.tokens, "batch": run.batch, "seq": run.seq,
            "steps": run.steps, "dtype": run.dtype, "attention": run.attention,
            "memory_utilization": run.memory_utilization,
        },
        "searched": plan.searched,
        "layouts": plan.layouts,
        "candidates": rows(plan),
        "shortage": plan.shortage and shortage(plan.shortage),
        "warnings": [str(note) for note in plan.notes],
    }  # fmt: skip


def rows(plan: TrainingPlan) -> list[dict[str, Any]]:
    """A row for each candidate, in order."""
    return [_row(one) for one in plan.ranked]


def _row(one: RankedTraining) -> dict[str, Any]:
    found, choices, shares = one.candidate, one.candidate.choices, one.candidate.shares
    return {
        "rank": one.rank,
        "hardware": found.device,
        **found.layout._asdict(),
        "vpp": choices.vpp,
        "batch": found.run.batch,
        "micro_batch": found.micro_batch,
        "recompute": choices.recompute,
        "sequence_parallel": choices.sequence_parallel,
        "zero": choices.zero,
        "dtype": found.run.dtype,
        **interval("step", "seconds", found.step),
        **interval("tokens_per_second_per_gpu", "", found.per_gpu),
        "tokens_per_second": found.run.gpus * found.per_gpu.value,
        "mfu": found.mfu,
        **interval("days", "", found.days),
        "dollars": found.dollars,
        "memory": found.memory,
        "usable_memory": found.usable,
        "fits": None if found.usable is None else True,
        "ties_with": list(one.ties_with),
        "bound_by": shares.bound_by,
        "communication_share": shares.communication,
        "bubble_share": shares.idle,
        "bound_share": shares.ceiling_share,
        "reason": one.reason,
    }


def flat_rows(plan: TrainingPlan) -> list[dict[str, Any]]:
    """The same rows, with the ranks of ties as text."""
    return [{**one, "ties_with": " ".join(map(str, one["ties_with"]))} for one in rows(plan)]


def as_text(plan: TrainingPlan, form: str) -> str:
    """The text of a format."""
    return as_json(document(plan)) if form == "json" else as_csv(flat_rows(plan))


def save(plan: TrainingPlan, path: str) -> Path:
    """Write the file, in the format that the suffix names."""
    return output_files.write(path, None, {"json": lambda: as_text(plan, "json"), "csv": lambda: as_text(plan, "csv")})
