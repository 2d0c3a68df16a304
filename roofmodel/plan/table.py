"""The terminal table of a plan: the best candidates, the reason for each, and what would raise its rate."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from roofmodel.engines.engine import Engine
from roofmodel.numbers import units
from roofmodel.plan.columns import CANDIDATES
from roofmodel.plan.options import MTP
from roofmodel.plan.plan import ServingPlan
from roofmodel.plan.ranking import SHARED_ERROR, Ranked


class PlanView:
    """The heading, a row for each candidate, then the reasons."""

    def __init__(self, plan: ServingPlan) -> None:
        self.plan = plan

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(heading(self.plan), style="bold")
        yield Text(f"{units.grouped(self.plan.searched)} candidates in {self.plan.layouts} layouts and formats")
        if not self.plan.ranked:
            return
        hidden = ["device"] * (len(self.plan.devices) == 1)
        hidden += ["longest gap"] * (self.plan.service.targets.tpot is None)
        hidden += ["gpus used"] * all(entry.candidate.gpus == self.plan.service.gpus for entry in self.plan.ranked)
        table = CANDIDATES.without(*hidden).terminal(self.plan.ranked)
        yield table
        titles = table.titles(options.max_width)
        yield from (Text(line) for line in _reasons(self.plan.ranked))
        counted = [title for title in ("tokens/s/GPU", "$/M") if title in titles]
        if any(entry.candidate.prefill for entry in self.plan.ranked):
            yield Text("→: prefill engines → decode engines", style="dim")
        if not all(entry.candidate.meets for entry in self.plan.ranked):
            yield Text("!: misses a target", style="dim")
        if "longest gap" in titles:
            yield Text("longest gap: between two tokens at most, in a step with a chunk of a prompt", style="dim")
        if "GPUs" in titles and any(entry.candidate.gpus_needed for entry in self.plan.ranked):
            yield Text("GPUs: how many meet the targets at the required rate", style="dim")
        if self.plan.service.targets.requests is not None:
            yield from (Text(line, style="dim") for line in _rate_legends(titles))
        if counted:
            yield Text(f"{' and '.join(counted)}: only output tokens are counted", style="dim")
        if "ties" in titles:
            yield Text(ties_legend("rate"), style="dim")


def _rate_legends(titles: Collection[str]) -> Iterator[str]:
    """What latencies mean where a rate is required."""
    if "TTFT" in titles:
        yield (
            "TTFT: prefill at the required rate, without the wait (at the full batch if the wait is ∞); TPOT: at the "
            "full batch"
        )
    if "wait" in titles:
        yield (
            "wait: mean time in the queue before the prefill, with all GPUs in use, if requests arrive at random at "
            "the required rate; the limit of TTFT applies to wait + TTFT; ∞: the queue grows without limit"
        )


def ties_legend(quantity: str) -> str:
    """What the column of ties means, where candidates are compared by this quantity."""
    return (
        f"ties: ranks whose intervals of the {quantity} do not separate; errors on one device are assumed to have a "
        f"correlation of {SHARED_ERROR}"
    )


def heading(plan: ServingPlan) -> str:
    """The model, devices, request lengths, targets and speculative decoding of a plan as text."""
    service = plan.service
    words = [plan.model, f"{service.gpus} × {' or '.join(plan.devices)}"]
    words += [Engine.load(service.engine, service.engine_option).label]
    words += [f"isl {service.traffic.isl}", f"osl {service.traffic.osl}"]
    first = "TTFT" if service.targets.requests is None else "wait + TTFT"
    for label, seconds in ((first, service.targets.ttft), ("TPOT", service.targets.tpot)):
        words += [f"{label} ≤ {units.seconds(seconds)}"] if seconds is not None else []
    if service.targets.requests is not None:
        words.append(f"{units.significant(service.targets.requests)} requests/s")
    if (drafts := service.speculation) is not None:
        tokens = f"{drafts.tokens} token{'s' if drafts.tokens > 1 else ''}"
        source = MTP if drafts.is_mtp else drafts.draft.name
        words.append(f"drafts: {source}, {tokens}, acceptance {units.significant(drafts.acceptance)}")
    return " · ".join(words)


def _reasons(entries: tuple[Ranked, ...]) -> Iterator[str]:
    """A line for each candidate; for the first one also what would raise its rate."""
    for entry in entries:
        if entry.reason:
            yield f"{entry.rank}  {entry.reason}"
        if entry.rank == 1:
            yield f"   a higher rate needs {entry.limit}"
