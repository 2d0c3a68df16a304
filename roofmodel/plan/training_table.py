"""A training plan as a terminal table, as a JSON document and as rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from roofmodel.engines.engine import Engine
from roofmodel.files import output_files
from roofmodel.numbers import units
from roofmodel.plan.columns import TRAINING_CANDIDATES as CANDIDATES
from roofmodel.plan.data import engine_keys, shortage
from roofmodel.plan.table import ties_legend
from roofmodel.plan.training import TrainingPlan
from roofmodel.report.encoding import as_json

SUFFIXES = FORMATS = ("json", "csv")
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
            self.plan.model, f"at most {run.gpus} × {' or '.join(self.plan.devices)}", run.dtype,
            Engine.load(run.engine, run.engine_option).label,
            f"batch {run.batch} of {run.seq} tokens", f"{units.si(run.tokens)} tokens in {units.si(run.steps)} steps",
        ]  # fmt: skip
        yield Text(" · ".join(words), style="bold")
        yield Text(f"{units.grouped(self.plan.searched)} candidates in {self.plan.layouts} layouts")
        if not self.plan.ranked:
            return
        columns = CANDIDATES if len(self.plan.devices) > 1 else CANDIDATES.without("device")
        table = columns.terminal(self.plan.ranked)
        yield table
        titles = table.titles(options.max_width)
        yield from (Text(f"{entry.rank}  {entry.reason}") for entry in self.plan.ranked)
        yield from (Text(line, style="dim") for title, line in LEGENDS.items() if title in titles)
        if "ties" in titles:
            prices = {entry.candidate.price for entry in self.plan.ranked}
            by_price = len(prices) > 1 and None not in prices
            yield Text(ties_legend("price" if by_price else "step time"), style="dim")


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
            "memory_utilization": run.memory_utilization, **engine_keys(run.engine, run.engine_option),
        },
        "searched": plan.searched,
        "layouts": plan.layouts,
        "complete": plan.complete,
        "candidates": CANDIDATES.records(plan.ranked),
        "shortage": plan.shortage and shortage(plan.shortage),
        "warnings": [str(note) for note in plan.notes],
    }  # fmt: skip


def as_text(plan: TrainingPlan, form: str) -> str:
    """The text of a format."""
    return as_json(document(plan)) if form == "json" else CANDIDATES.csv(plan.ranked)


def save(plan: TrainingPlan, path: str) -> Path:
    """Write the file, in the format that the suffix names."""
    return output_files.write(path, None, {"json": lambda: as_text(plan, "json"), "csv": lambda: as_text(plan, "csv")})
