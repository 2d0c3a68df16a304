"""What limits a run, in words, from the parts of the wall time; the largest part first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.errors import cut
from roofmodel.numbers import units
from roofmodel.profiles.timelines.timeline import UNKNOWN
from roofmodel.steps.input_pipeline import workers_to_hide
from roofmodel.trace import communication, idle, intervals
from roofmodel.trace.achieved import RankWork
from roofmodel.trace.copies import HOST_DIRECTIONS, HOST_LINKS, Copies
from roofmodel.trace.intervals import Intervals
from roofmodel.trace.kernel_findings import kernel_findings
from roofmodel.trace.ranks import Rank
from roofmodel.trace.steps import Steps

# Shares of a rank's wall time from which a part is reported. They are choices of this project, without an external
# source. Waiting for the loader, other work of the CPU, page faults, synchronization or a late rank can be removed, and
# steps of one run vary by a few percent, so 5 % is the smallest part that is more than noise. Launches, communication
# and copies are never zero in a run; from 15 % on, hiding half of them saves more than those 5 %. The same holds for
# other idle time.
INPUT, SYNCHRONIZATION, STRAGGLER, CPU_WORK, MANAGED, LAUNCH, COMMUNICATION, COPY, IDLE = (
    0.05, 0.05, 0.05, 0.05, 0.05, 0.15, 0.15, 0.15, 0.15
)  # fmt: skip

MENTIONED, MOST_NAMED = 0.1, 3  # the share of idle time from which an operator or range is named, and how many are
NEGLIGIBLE = 0.01  # share of the other idle time below which a cause is not named

OTHER_CAUSES = {
    "queued": "before kernels that are already launched and wait for other work (stream order, events, other devices)",
    "other_rank": "while the CPU waits for other ranks (a barrier, a collective on the CPU)",
    "allocation": "while the CPU allocates memory, loads modules or creates streams: leave the warm-up out of the "
    "trace, or keep the memory for later use",
}
"""Causes of idle time without a kind of their own, in words."""


class Finding(NamedTuple):
    """A part of a rank's wall time that could be saved, at most `seconds`."""

    kind: str  # such as input_bound; docs/reference/json.md lists them
    seconds: float
    text: str
    rank: Rank | None = None  # None: of runs


def findings(
    ranks: Iterable[tuple[Rank, Steps, list[Copies], dict[str, Intervals], RankWork | None]], device: Device | None
) -> list[Finding]:
    """The findings of all ranks, most seconds first; of equal kinds the rank with the most.

    A rank comes with its steps, its copies, its idle time by cause, and the work of its kernels.
    """
    by_kind: dict[str, Finding] = {}
    every = list(ranks)
    for rank, steps, copies, stretches, work in every:
        prefix = f"{rank.label}: " if len(every) > 1 or rank.run else ""
        of_kernels = (Finding(*estimate) for estimate in kernel_findings(rank, work, device))
        for finding in (*_rank_findings(rank, steps, copies, stretches, device), *of_kernels):
            longest = by_kind.get(finding.kind)
            if longest is None or finding.seconds > longest.seconds:
                by_kind[finding.kind] = finding._replace(text=prefix + finding.text, rank=rank)
    if late := _straggler([rank for rank, *_ in every]):
        by_kind[late.kind] = late
    return sorted(by_kind.values(), key=lambda finding: -finding.seconds)


def _rank_findings(
    rank: Rank, steps: Steps, copies: list[Copies], stretches: dict[str, Intervals], device: Device | None
) -> Iterator[Finding]:
    wall = rank.wall / 1e9
    if not wall:
        return
    causes = {cause: intervals.length(times) / 1e9 for cause, times in stretches.items()}
    if (seconds := causes.get("input", 0)) > INPUT * wall:
        yield Finding("input_bound", seconds, _input_text(rank, steps, seconds, wall))
    cpu_work, copying = stretches.get("cpu_work", intervals.NONE), rank.exposed_copies
    migrations, faults = idle.migrations(rank), idle.before_migrations(rank, cpu_work)
    moving = (intervals.length(migrations) + intervals.length(faults)) / 1e9
    if moving > MANAGED * wall:
        yield Finding("managed_memory", moving, _managed_text(rank, moving, wall))
        cpu_work, copying = intervals.subtract(cpu_work, faults), intervals.subtract(copying, migrations)
    exposed = intervals.length(copying) / 1e9
    if exposed > COPY * wall:
        yield Finding("copy_bound", exposed, _copy_text(rank, copies, exposed, wall, device))
    exposed = intervals.length(rank.exposed_communication) / 1e9
    if exposed > COMMUNICATION * wall:
        communication_seconds = intervals.length(rank.communication) / 1e9
        yield Finding(
            "communication_bound",
            exposed,
            f"communication takes {_of_wall(exposed, wall)} without computation at the same time "
            f"({units.seconds(communication_seconds)} in all, {rank.overlap or 0:.0%} overlapped). Collectives also "
            "wait for the last rank: compare the ranks before changing the network",
        )
    if (seconds := causes.get("synchronization", 0)) > SYNCHRONIZATION * wall:
        yield Finding(
            "synchronization",
            seconds,
            f"the GPU idles {_of_wall(seconds, wall)} after the CPU waited for it (cudaStreamSynchronize, .item(), "
            "copies to the CPU), because no kernels were queued when the CPU continued. Synchronize less often",
        )
    if (seconds := intervals.length(cpu_work) / 1e9) > CPU_WORK * wall:
        yield Finding("cpu_bound", seconds, _cpu_text(rank, cpu_work, wall))
    if (seconds := causes.get("launch", 0)) > LAUNCH * wall:
        yield Finding("launch_bound", seconds, _launch_text(rank, seconds, wall))
    others = {cause: causes[cause] for cause in (*OTHER_CAUSES, "unknown") if causes.get(cause)}
    if (seconds := sum(others.values())) > IDLE * wall:
        yield Finding("idle", seconds, _idle_text(rank, stretches, others, wall))


def _managed_text(rank: Rank, seconds: float, wall: float) -> str:
    moved = rank.work[rank.work["direction"].isin(idle.MIGRATIONS)].groupby("direction", observed=True)["bytes"]
    sizes = (
        f"{units.si(float(pages.sum()), 'B')} to the {'GPU' if direction == idle.MIGRATIONS[0] else 'CPU'} in "
        f"{units.count(len(pages), 'move')}"
        for direction, pages in moved
    )
    return (
        f"page migrations of managed memory, and the idle time before them, take {_of_wall(seconds, wall)}: "
        f"{' and '.join(sizes)}. Prefetch the memory (cudaMemPrefetchAsync), or copy it explicitly"
    )


def _cpu_text(rank: Rank, times: Intervals, wall: float) -> str:
    seconds = intervals.length(times) / 1e9
    gaps = intervals.covered(times, rank.idle[:, 0], rank.idle[:, 1]) / 1e9
    text = (
        f"the GPU idles {_of_wall(seconds, wall)}, in {units.count(int((gaps > 0).sum()), 'gap')}, while the CPU does "
        "other work before it launches: "
    )
    names = idle.names_of(rank, times)
    if not (work := _described(names, seconds)):
        return (
            f"{text}code outside CUDA calls. Mark it with NVTX ranges or record_function to see its name. Run it "
            "earlier, in another thread or on the GPU"
        )
    name, time = names[0]
    in_one_gap = min(time, gaps.max()) > (1 - MENTIONED) * seconds
    if in_one_gap and name in rank.timeline.operators["name"].cat.categories:
        return f"{text}{work}. Probably set-up at its first call: start the profiler after a warm-up"
    return f"{text}{work}. Run it earlier, in another thread or on the GPU"


def _described(names: list[tuple[str, float]], seconds: float) -> str:
    """The names that take more than a tenth of the time, with their times."""
    large = [(name, time) for name, time in names if time > MENTIONED * seconds][:MOST_NAMED]
    return ", ".join(f"{cut(name, 60)} {units.seconds(time)} ({time / seconds:.0%})" for name, time in large)


def _launch_text(rank: Rank, seconds: float, wall: float) -> str:
    text = f"the GPU idles {_of_wall(seconds, wall)} because the CPU launches kernels"
    kernels, of_graphs = int(rank.is_kernel.sum()), int(rank.in_graph.sum())
    mean = rank.kernel_seconds / kernels if kernels else 0
    text += f" more slowly than the GPU runs them ({kernels} kernels of {units.seconds(mean)} on average). "
    if 2 * of_graphs > kernels:
        return f"{text}{of_graphs} of {kernels} kernels are already in CUDA graphs: shorten the CPU's work between them"
    return f"{text}CUDA graphs, fused kernels (torch.compile) or larger batches help"


def _idle_text(rank: Rank, stretches: dict[str, Intervals], causes: dict[str, float], wall: float) -> str:
    """Idle time by the causes that have no kind of their own, the largest first."""
    reason = (
        "the clocks of CPU and GPU differ"
        if rank.clock_error
        else "the file has no launch of the work that follows"
        if len(rank.timeline.calls)
        else "the file has no CUDA calls of the CPU"
    )
    words = OTHER_CAUSES | {"unknown": f"for an unknown reason: {reason}"}
    if call := "allocation" in causes and idle.call_of(rank, stretches["allocation"]):
        words["allocation"] += f" (mostly {call})"
    ordered = sorted(causes, key=causes.__getitem__, reverse=True)
    idles = sum(causes.values())
    ordered = [cause for cause in ordered if causes[cause] > NEGLIGIBLE * idles]
    text = f"the GPU idles {_of_wall(idles, wall)}"
    if len(ordered) == 1:
        return f"{text} {words[ordered[0]]}"
    return f"{text}: " + "; ".join(f"{units.seconds(causes[cause])} {words[cause]}" for cause in ordered)


def _of_wall(seconds: float, wall: float) -> str:
    return f"{units.seconds(seconds)} of {units.seconds(wall)} ({seconds / wall:.0%})"


def _input_text(rank: Rank, steps: Steps, seconds: float, wall: float) -> str:
    text = f"the input pipeline limits the run: the GPU idles {_of_wall(seconds, wall)} while the CPU fetches batches"
    loader, complete = idle.loader_time(rank), steps.complete
    if len(loader) and complete:
        within = intervals.covered(loader, [s.start for s in complete], [s.end for s in complete])
        fetch, step = float(within.mean()) / 1e9, sum(s.length for s in complete) / len(complete) / 1e9
        if 0 < fetch < step:
            text += f". The data loader takes {units.seconds(fetch)} of each step of {units.seconds(step)}. "
            if idle.loader_has_workers(rank):  # they load while the step runs: the time of a batch is not in the file
                more = step / (step - fetch)
                text += f"{more:.2g} times as many workers (num_workers={math.ceil(more)} instead of 1) would hide it"
            else:
                workers = workers_to_hide(fetch, step - fetch)
                text += (
                    f"{units.count(workers, 'worker process', 'es')} (DataLoader(num_workers={workers})) would hide it"
                )
            text += f", and a step would take about {units.seconds(step - fetch)}"
    return text


def _copy_text(rank: Rank, copies: list[Copies], exposed: float, wall: float, device: Device | None) -> str:
    longest = max(copies, key=lambda each: each.exposed_seconds)
    busy = intervals.length(rank.kernels) / 1e9
    memory = f", {longest.memory} memory" if longest.memory else ""
    limits = exposed >= max(busy, intervals.length(rank.idle) / 1e9)
    text = (
        f"copies {'limit the run: they take' if limits else 'add'} {_of_wall(exposed, wall)} while no kernel runs; "
        f"kernels run {busy / wall:.1%} of the time. Longest: {longest.kind}{memory}, {units.seconds(longest.seconds)}"
    )
    if (rate := longest.bytes_per_second) and longest.kind in HOST_DIRECTIONS:
        text += f" at {units.si(rate, 'B/s')}, {link_shares(rate, device)}"
    return text


def link_shares(rate: float, device: Device | None) -> str:
    """A rate as a share of the device's host link, or of the PCIe generations if the device is unknown."""
    if device and (link := device.host_bandwidth):
        return f"{rate / link:.0%} of {device.name}'s PCIe link ({units.si(link, 'B/s')})"
    reachable = [(name, peak) for name, peak in HOST_LINKS.items() if rate <= peak]
    return " or ".join(f"{rate / peak:.0%} of {name}" for name, peak in reachable) or "more than PCIe 5.0 x16"


def _straggler(ranks: list[Rank]) -> Finding | None:
    """The rank that starts collectives last, if the others wait long for it; only for ranks of one file (one clock)."""
    stragglers = []
    for group in communication.waits(ranks):
        each = group.waits[:, (group.waits != UNKNOWN).all(axis=0)]
        if not each.shape[1]:
            continue
        total = each.sum(axis=1) / 1e9  # of each rank
        on_time = each == 0
        last = int(total.argmin())
        waiting = group.ranks[int(total.argmax())]
        longest = float(total.max())
        if longest > STRAGGLER * waiting.wall / 1e9:
            stragglers.append(
                Finding(
                    "straggler",
                    longest,
                    f"{group.ranks[last].label} starts {int(on_time[last].sum())} of {each.shape[1]} "
                    f"collectives last; {waiting.label} waits {_of_wall(longest, waiting.wall / 1e9)} for it",
                    waiting,
                )
            )
    return max(stragglers, key=lambda finding: finding.seconds, default=None)
