"""What limits a run, in words, from the parts of the wall time; the largest part first."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.devices.device import Device
from roofmodel.errors import cut
from roofmodel.numbers import units
from roofmodel.profiles.timelines.enclosing import rows_by_value
from roofmodel.profiles.timelines.timeline import UNKNOWN
from roofmodel.trace import idle, intervals, transfers
from roofmodel.trace.achieved import RankWork
from roofmodel.trace.intervals import Intervals
from roofmodel.trace.ranks import Rank
from roofmodel.trace.steps import Steps
from roofmodel.trace.transfers import HOST_DIRECTIONS, HOST_LINKS, Copies

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
        for finding in (*_rank_findings(rank, steps, copies, stretches, device), *_kernel_findings(rank, work, device)):
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
    directions = rank.work.distinct("direction")
    moved = {
        directions[code]: rank.work.array("bytes")[rows]
        for code, rows in rows_by_value(rank.work.array("direction")).items()
        if code >= 0 and directions[code] in idle.MIGRATIONS
    }
    sizes = (
        f"{units.si(float(pages.sum()), 'B')} to the {'GPU' if direction == idle.MIGRATIONS[0] else 'CPU'} in "
        f"{units.count(len(pages), 'move')}"
        for direction, pages in moved.items()
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
    if in_one_gap and name in rank.timeline.operator_table.distinct("name"):
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
        if len(rank.timeline.call_table)
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
    loader, complete = idle.loader_time(rank), steps.steady
    if len(loader) and complete:
        within = intervals.covered(loader, [s.start for s in complete], [s.end for s in complete])
        fetch, step = float(within.mean()) / 1e9, sum(s.length for s in complete) / len(complete) / 1e9
        if 0 < fetch < step:
            text += f". The data loader takes {units.seconds(fetch)} of each step of {units.seconds(step)}. "
            if idle.loader_has_workers(rank):  # they load while the step runs: the time of a batch is not in the file
                more = step / (step - fetch)
                text += f"{more:.2g} times as many workers (num_workers={math.ceil(more)} instead of 1) would hide it"
            else:
                from roofmodel.steps.input_pipeline import workers_to_hide

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
    for group in transfers.waits(ranks):
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


# --- Findings about the kernels -------------------------------------------------------------------

SMALLEST = 0.05
"""Share of the wall time from which an estimate is a finding: a step varies by a few percent."""

_CONVERSION = re.compile(r"nchwToNhwc|nhwcToNchw")
# cuDNN's batch norms in NCHW (a mean per channel is a tensor of 1 × C × 1 × 1); those in NHWC are `batchnorm_*_nhwc_*`.
# Of fp32, cuDNN has no such kernels in NHWC.
_BATCH_NORM = re.compile(r"\bbn_(?P<kind>fw_inf|fw_tr|bw)\w*<\s*(?:__half|__nv_bfloat16)")
_PASSES = {"fw_inf": 1.0, "fw_tr": 3 / 2, "bw": 5 / 3}
"""Passes over memory of a batch norm / the counted ones. In training it reads its inputs once for the sums and once for
the result: x, x → y instead of x → y; and x, dy, x, dy → dx instead of x, dy → dx."""


def memory_format(rank: Rank, work: RankWork | None) -> tuple[float, str] | None:
    """Seconds that NHWC (channels_last) saves, and a text; None if they are less than 5 % of the wall time.

    The time of kernels that only convert between NCHW and NHWC; and of batch norms in NCHW the time above that of their
    passes over memory at the full DRAM bandwidth, where bytes and device are known. At most so much can be saved.
    """
    converts = _matching(rank, lambda name: float(bool(_CONVERSION.search(name)))) > 0
    seconds = (rank.ends - rank.starts) / 1e9
    conversion, norms = float(seconds[converts].sum()), 0.0
    if work is not None and work.minimum is not None:
        passes = _matching(rank, _passes)
        norm = (passes > 0) & work.known
        norms = float(np.maximum(seconds - passes * work.minimum, 0)[norm].sum())
    saved = conversion + norms
    if saved <= SMALLEST * rank.wall / 1e9:
        return None
    parts = []
    if conversion:
        kernels = units.count(int(converts.sum()), "kernel")
        parts.append(f"{kernels} that only convert between NCHW and NHWC take {units.seconds(conversion)}")
    if norms:
        parts.append(f"batch norms in NCHW take {units.seconds(norms)} more than their passes over DRAM")
    return saved, (
        f"the memory format of the images costs up to {units.seconds(saved)} ({saved / (rank.wall / 1e9):.0%} of the "
        f"wall time, an estimate): {'; '.join(parts)}. Use NHWC: model.to(memory_format=torch.channels_last), and the "
        "same for its input"
    )


def no_tensor_cores(rank: Rank, work: RankWork | None, device: Device | None) -> tuple[float, str] | None:
    """Seconds that fp16 or bf16 saves for fp32 GEMMs and convolutions on CUDA cores, and a text; None if less than 5 %.

    t' = t × (least time with the tensor cores' peak and half the bytes) / (least time now): each kernel reaches the
    same share of its ceiling as now, at most all of it. Casts are not counted, nor what other kernels save.
    """
    tensor_cores = device and device.pipes.get("tensor_fp16")
    if work is None or work.minimum is None or not device or not tensor_cores or not work.fp32_matmul.any():
        return None
    now = work.fp32_matmul & (work.minimum > 0)
    seconds, least = work.seconds[now], work.minimum[now]
    fast = np.maximum(work.flops[now] / tensor_cores.peak, work.bytes[now] / 2 / device.bandwidth)
    then = float(np.minimum(seconds, fast / np.minimum(least / seconds, 1)).sum())
    total = float(seconds.sum())
    wall = rank.wall / 1e9
    if total - then <= SMALLEST * wall:
        return None
    fp32, tf32 = device.pipes.get("fp32"), device.pipes.get("tensor_tf32")
    formats = "fp16 or bf16" if "tensor_bf16" in device.pipes else "fp16"
    text = (
        f"fp32 GEMMs and convolutions run on CUDA cores: {units.seconds(total)} of {units.seconds(wall)} "
        f"({total / wall:.0%}) in {units.count(int(now.sum()), 'kernel')}. In {formats} on tensor cores (torch."
        f"autocast) they take about {units.seconds(then)}, an estimate at the same share of the ceiling as now "
        f"({float(least.sum()) / total:.0%})"
    )
    if fp32 and tf32 and tf32.peak > 1.1 * fp32.peak:  # GeForce cards have the same peak in both
        text += (
            "; TF32 (torch.set_float32_matmul_precision('high'), torch.backends.cudnn.allow_tf32) saves a part of it "
            "without casts"
        )
    return total - then, text


def _passes(name: str) -> float:
    match = _BATCH_NORM.search(name)
    return _PASSES[match["kind"]] if match else 0.0


def _matching(rank: Rank, value: Callable[[str], float]) -> NDArray[np.float64]:
    """A value of the name for each activity of the rank."""
    values: NDArray[np.float64] = rank.work.mapped("name", value, 0.0, float)
    return values


def _kernel_findings(rank: Rank, work: RankWork | None, device: Device | None) -> Iterator[Finding]:
    """The memory format of images, and fp32 work that tensor cores could run.

    Both are estimates on paper, from the times and the counted work of a rank's kernels. The test compares them with
    the same training step of ResNet-50 measured in the three settings.
    """
    if estimate := memory_format(rank, work):
        yield Finding("memory_format", *estimate)
    if estimate := no_tensor_cores(rank, work, device):
        yield Finding("no_tensor_cores", *estimate)
