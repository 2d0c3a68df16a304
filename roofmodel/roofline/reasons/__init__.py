"""Why a kernel takes the time that it takes: reasons with evidence, and the time that each of them costs.

A launch takes the longest of what its warps wait and of what each unit is busy:

    time = max(waiting, busy time of DRAM, of L2, of L1, of the pipes of the SMs)

The busy time of a unit is its utilization x the measured time; `waiting` is the measured time at first. A reason says
how these terms would be without it. The reasons are removed one after the other, in the order of REASONS, and each one
costs the difference of the time before and after; so their costs never add up to more than what separates the launch
from its busiest unit. A cost is an estimate of what the removal saves: it assumes that waiting falls in proportion,
and that nothing new becomes the limit. Where only a part of a removal is feasible, the cost is that of the next step.

To add a reason, add a row to REASONS: its name, the counters that it needs, and the function that removes it (of
`rules.py`). A counter that is not read yet also needs its name in `profiles/ncu/metric_names.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.numbers import units
from roofmodel.profiles.kernel import Kernel, ToolRule
from roofmodel.roofline.categories import category
from roofmodel.roofline.launches import LIMIT, Launch, Removed, Terms, stalls
from roofmodel.roofline.points import Reason
from roofmodel.roofline.reasons import rules
from roofmodel.roofline.reasons.rules import AT_CEILING, BUSY_SMS, NOTHING

__all__ = ["AT_CEILING", "BOUNDS", "NOTHING", "REASONS", "TITLES", "rank", "reasons", "text_of"]

SHORTEST = 1e-6  # seconds of an empty kernel, about
RELEVANT = 0.02  # of the time: smaller costs are no reasons
AGREES = 2  # times: two estimates of a saving agree
_L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"


class Rule(NamedTuple):
    """A reason as it is declared: how it is called, the counters without which nothing is known, what removes it."""

    name: str
    title: str
    needs: tuple[str, ...]
    remove: Callable[[Launch, Terms], Removed | None]
    removed: str = ""  # "without divergence": what is said of a launch without it


REASONS = (
    Rule("launch_gap", "the GPU is idle before it", (), rules.launch_gap),
    Rule("few_blocks", "too few thread blocks", (), rules.few_blocks),
    Rule("partial_warps", "partial warps", (), rules.partial_warps, "with full warps"),
    Rule("tail", "a partial last wave", (LIMIT + "registers",), rules.tail),
    Rule(
        "achieved_occupancy", "uneven or short thread blocks", ("sm__cycles_active.avg",), rules.achieved_occupancy,
    ),
    Rule(
        "registers", "occupancy limited by registers", (LIMIT + "registers",), rules.limited_by("registers"),
    ),
    Rule(
        "shared_memory", "occupancy limited by shared memory", (LIMIT + "shared_mem",),
        rules.limited_by("shared_memory"),
    ),
    Rule(
        "block_size", "occupancy limited by small thread blocks", (LIMIT + "blocks",), rules.limited_by("block_size"),
    ),
    Rule("no_tensor_cores", "no tensor cores", (), rules.no_tensor_cores, "on tensor cores"),
    Rule("unaligned", "unaligned rows of a GEMM", (), rules.unaligned, "with aligned rows"),
    Rule("double_precision", "double precision", (), rules.double_precision, "in fp32"),
    Rule("divergence", "divergent threads", (rules.ACTIVE_THREADS,), rules.divergence, "without divergence"),
    Rule("local_memory", "local memory", (rules.LOCAL["ld"],), rules.local_memory, "without local memory"),
    Rule(
        "uncoalesced", "uncoalesced or partial sectors", (rules.GLOBAL["ld"],), rules.uncoalesced,
        "with full sectors",
    ),
    Rule("bank_conflicts", "bank conflicts", (rules.SHARED[0],), rules.bank_conflicts, "without bank conflicts"),
    Rule("atomics", "atomics", (rules.ATOMICS.format("max"),), rules.atomics),
    Rule("dram_bound", "bound by DRAM", (), rules.bound("dram")),
    Rule("l2_bound", "bound by L2", (_L2,), rules.bound("l2")),
    Rule("l1_bound", "bound by L1", (_L2,), rules.bound("l1")),
    Rule("compute_bound", "bound by the SMs", (), rules.bound("sm")),
    Rule("latency", "latency", (_L2,), rules.latency),
    Rule("low_clock", "low clock", (), rules.low_clock),
)  # fmt: skip
TITLES = {rule.name: rule.title for rule in REASONS}
BOUNDS = ("dram_bound", "l2_bound", "l1_bound", "compute_bound")
_OCCUPANCY = ("achieved_occupancy", "registers", "shared_memory", "block_size")


def text_of(reason: Reason) -> str:
    """A reason in words: its title and its evidence."""
    if reason.evidence.startswith((NOTHING, BUSY_SMS)):
        return reason.evidence
    return f"{TITLES[reason.reason]} ({reason.evidence})"


def rank(reason: Reason) -> tuple[int, float]:
    """The place of a reason: the costliest first; an unknown cost counts as what the removal saves at most.

    An occupancy that may not limit the launch, and a clock, which the profiler may have locked, are never first.
    """
    last = 2 if reason.reason == "low_clock" else int(reason.reason in _OCCUPANCY and not reason.seconds)
    return last, -(reason.seconds or reason.most_seconds)


def reasons(kernel: Kernel, device: Device | None, gap: float = 0.0) -> list[Reason]:
    """The reasons for the time of a kernel, the costliest first; seconds over all of its invocations.

    `gap` is the idle time before one launch. A launch at its ceiling has that as its first reason, with a small cost.
    The costs of a kernel whose time is unknown are unknown.
    """
    launch = Launch(kernel, device, gap)
    if not kernel.seconds and not kernel.counters:
        return []
    terms, costly = launch.terms(), list[Reason]()
    invocations = kernel.invocations if kernel.seconds else 0
    bound: Reason | None = None
    # Collectives use few thread blocks on purpose and wait for other ranks.
    gap_only = category(kernel.name) == "communication"
    for rule in REASONS:
        if gap_only and rule.name != "launch_gap":
            continue
        removed = rule.remove(launch, terms)
        if removed is None:
            continue
        most = _cost(terms, removed.terms)
        cost = _cost(terms, removed.step or removed.terms) if removed.known else 0.0
        reason = Reason(
            rule.name, cost * invocations, removed.evidence, most * invocations, invocations * launch.seconds
        )
        if rule.name in BOUNDS and terms.busy[terms.busiest or ""] >= AT_CEILING * launch.seconds:
            bound = reason
        if cost > RELEVANT * (launch.seconds + gap) or not removed.known:
            costly.append(reason)
        if removed.known:
            changed = removed.terms.busy != terms.busy and rule.removed
            terms = removed.terms._replace(without=(*terms.without, rule.removed) if changed else terms.without)
    costly = sorted(_with_tool_rules(launch, costly, invocations), key=rank)
    if costly and costly[0].reason == "low_clock":
        costly = []
    if bound is not None and (not costly or costly[0].seconds < (1 - AT_CEILING) * (kernel.seconds or 0)):
        bound = next((reason for reason in costly if reason.reason == bound.reason), bound)  # with the tool's rule
        return [bound, *(reason for reason in costly if reason.reason != bound.reason)]
    return costly


def _with_tool_rules(launch: Launch, own: Sequence[Reason], invocations: int) -> Iterator[Reason]:
    """The reasons with what the rules of the profiler say of them, then the rules of which the counters show nothing.

    The tool's estimate is a cost only of a reason that needs counters which the file lacks, and not of an occupancy.
    """
    stated: dict[str, ToolRule] = {}
    for rule in launch.kernel.rules:
        known = stated.get(rule.reason)
        if known is None or (rule.saves or 0.0) > (known.saves or 0.0):
            stated[rule.reason] = rule
    if "latency" in stated and stalls(launch):  # the evidence of our own reason
        del stated["latency"]
    for reason in own:
        if reason.reason not in stated:
            yield reason
            continue
        rule = stated.pop(reason.reason)
        estimate = (rule.saves or 0.0) * launch.seconds * invocations
        differs = estimate and not reason.seconds / AGREES <= estimate <= reason.seconds * AGREES
        also = f", which estimates {units.seconds(estimate)}" if differs else ""
        yield reason._replace(evidence=f"{reason.evidence}; ncu: {rule.evidence}{also}")
    for name, rule in stated.items():
        estimate = (rule.saves or 0.0) * launch.seconds * invocations
        declared = next(each for each in REASONS if each.name == name)
        judged = declared.needs and launch.counters.keys() >= {*declared.needs}
        if name in BOUNDS or estimate < RELEVANT * launch.seconds * invocations:
            continue
        evidence, cost = f"ncu: {rule.evidence}", estimate
        if judged or name in _OCCUPANCY:
            why = "the counters show no such cost" if judged else "whether warps wait for latencies is unknown"
            evidence, cost = f"{evidence}, which estimates {units.seconds(estimate)}; {why}", 0.0
        most = 0.0 if judged else estimate
        yield Reason(name, cost, evidence, most, launch.seconds * invocations, source="ncu")


def _cost(before: Terms, after: Terms) -> float:
    """The time of a launch that the change of its terms saves."""
    return before.seconds - max(after.seconds, min(SHORTEST, before.seconds))
