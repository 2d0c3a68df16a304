"""What a rule is, and what several rules share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from roofmodel.roofline.launches import Launch, Terms

AT_CEILING = 0.85  # of its peak: nothing to win at the busiest unit, unless another reason costs the rest
BUSY = 0.6  # of the time: the busiest unit limits the launch (the threshold of Nsight Compute)
MATMULS = ("GEMM", "convolution", "attention")


class Removed(NamedTuple):
    """A launch without a reason: the evidence for the reason, and the terms of the launch's time without it.

    A rule returns None where the reason does not apply.
    """

    terms: Terms
    evidence: str
    known: bool = True  # False: the file does not tell whether the launch would be that much faster
    step: Terms | None = None  # after the next feasible step, where `terms` are beyond reach; None: `terms` themselves


class Rule(NamedTuple):
    """A reason as it is declared: how it is called, the counters without which nothing is known, what removes it."""

    name: str
    title: str
    needs: tuple[str, ...]
    remove: Callable[[Launch, Terms], Removed | None]
    removed: str = ""  # "without divergence": what is said of a launch without it


def stall(name: str) -> str:
    """The counter of the warps that wait for this, per issued instruction."""
    return f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio"


STALLS: Mapping[str, str] = {
    "long_scoreboard": "global or local memory", "short_scoreboard": "shared memory or special functions",
    "barrier": "a barrier", "wait": "a fixed latency of instructions", "lg_throttle": "the queue of global memory",
    "mio_throttle": "the queue of shared memory", "math_pipe_throttle": "a pipe", "drain": "stores at the end",
    "membar": "a memory barrier", "branch_resolving": "branches", "no_instruction": "instructions",
    "gmma": "tensor cores", "sleeping": "sleep", "imc_miss": "constants", "tex_throttle": "the texture queue",
    "dispatch_stall": "dispatch", "misc": "others",
}  # fmt: skip
"""What warps wait for."""
_HIDDEN_BY_WARPS = (
    "long_scoreboard", "short_scoreboard", "wait", "barrier", "branch_resolving", "no_instruction", "imc_miss",
)  # fmt: skip
"""Latencies. Full queues and busy pipes are no latencies: more warps wait for them as well."""


def stalls(launch: Launch) -> dict[str, float]:
    """What the warps of a launch wait for -> warps; empty if it was not collected."""
    return {name: value for name in STALLS if (value := launch.get(stall(name))) is not None}


def latency_share(launch: Launch) -> float | None:
    """The share of the stalls that more warps on an SM would hide; None if the stalls were not collected.

    Warps that are ready, but not selected, show that the SM has enough of them.
    """
    known = stalls(launch)
    total = sum(known.values()) + launch.total(stall("not_selected"))
    return sum(known.get(name, 0.0) for name in _HIDDEN_BY_WARPS) / total if total else None
