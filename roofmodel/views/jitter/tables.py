"""The comparison of ranks in the terminal: findings, ranks, steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel import units
from roofmodel.errors import Option
from roofmodel.study.jitter.jitter import Jitter
from roofmodel.views.kit.kernel_names import short_name
from roofmodel.views.profile.tables import FittingTable

MAX_ROWS = 16  # of ranks and of steps
TOOLS = {"steps": "tables of kernels by step"}
LEGEND = {
    "compute": "compute: kernels that all ranks share, collectives apart",
    "launch → start": "launch → start: median time from a kernel's launch on the CPU to its start",
    "deviation": "deviation: of the latest and of the earliest rank from the mean over ranks, before the step's last "
    "collective; the ranks part from the mean at the kernel",
}


def table(jitter: Jitter) -> RenderableType:
    """Everything, the findings first."""
    return Group(*_blocks(jitter))


def _blocks(jitter: Jitter) -> Iterator[RenderableType]:
    files = ", ".join([*jitter.names.values()][:3])
    if len(jitter.files) > 3:
        files += f" and {len(jitter.files) - 3} more"
    steps = units.count(len(jitter.steps), "step")
    yield Text(
        f"{files}: {units.count(len(jitter.ranks), 'rank')}, {steps} ({TOOLS.get(jitter.tool, jitter.tool)})",
        style="bold",
    )
    for number, finding in enumerate(jitter.findings, 1):
        yield Text(f"{number}. {finding}.")
    yield Text()
    yield Text(alignment_text(jitter), style="dim")
    yield Text()
    yield _ranks(jitter)
    yield from _more(len(jitter.ranks) - MAX_ROWS)
    yield Text()
    yield _steps(jitter)
    yield from _more(len(jitter.steps) - MAX_ROWS)


def alignment_text(jitter: Jitter) -> str:
    """How the kernels and the clocks of the ranks are matched."""
    text = f"{jitter.common_kernels} kernels compared, matched by the {jitter.aligned_by}"
    clocks = jitter.clocks
    if clocks.error_seconds is not None and clocks.start_skew_seconds is not None:
        low, high = clocks.start_skew_seconds
        text += (
            f"; collectives end within {units.seconds(clocks.error_seconds)} on all ranks (error of the aligned "
            f"clocks), and start {signed(low)} to {signed(high)} after rank {jitter.ranks[0].rank.number}"
        )
    return text


def signed(seconds: float) -> str:
    """Such as `+3.34 ms`."""
    return f"{'-' if seconds < 0 else '+'}{units.seconds(abs(seconds))}" if seconds else "0"


def _ranks(jitter: Jitter) -> RenderableType:
    shown = FittingTable(
        ("rank", "kernels", "compute", "launch → start", "latest", "mean deviation"),
        "rank",
        ("launch → start", "kernels"),
        LEGEND,
    )
    latest = [step.latest_rank for step in jitter.steps]
    known = [values[np.isfinite(values)] for values in jitter.lateness.T]
    means = [float(values.mean()) if len(values) else None for values in known]
    order = sorted(range(len(means)), key=lambda place: -(means[place] or 0))
    for place in sorted(order[:MAX_ROWS]):
        rank, compute = jitter.ranks[place]
        delay, mean = rank.launch_to_start_median_seconds, means[place]
        labels = [f"GPU {rank.device}"] * (rank.device is not None) + [f"process {rank.process}"] * bool(rank.process)
        count = latest.count(rank.number)
        shown.add(
            f"{rank.number}: {', '.join([*labels, jitter.names[rank.file]])}",
            str(rank.kernels),
            "–" if compute is None else units.seconds(compute, 4),
            "–" if delay is None else units.seconds(delay),
            units.count(count, "step") if count else "",
            "–" if mean is None else signed(mean),
        )
    return shown


def _steps(jitter: Jitter) -> RenderableType:
    titles = ("kernel", "step", "latest", "deviation", "earliest", "deviation of it", "from", "cause")
    shown = FittingTable(titles, "kernel", ("deviation of it", "earliest", "from"), LEGEND)
    worst = sorted(jitter.steps, key=lambda step: -step.latest_seconds)[:MAX_ROWS]
    for step in jitter.steps:
        if step in worst:
            shown.add(
                short_name(step.kernel_name) if step.kernel_name else "",
                str(step.step),
                str(step.latest_rank),
                signed(step.latest_seconds),
                str(step.earliest_rank),
                signed(step.earliest_seconds),
                "" if step.diverges_at_kernel is None else str(step.diverges_at_kernel),
                step.cause or "",
            )
    return shown


def _more(rest: int) -> Iterator[RenderableType]:
    if rest > 0:
        yield Text(f"and {rest} more with smaller deviations; {Option('format', 'json')} lists all", style="dim")
