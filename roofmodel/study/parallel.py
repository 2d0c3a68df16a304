"""Whether a model can be shared among GPUs as asked, and how."""

from __future__ import annotations

from collections.abc import Iterator

from roofmodel.counting.workload import Parallel
from roofmodel.errors import WorkloadError
from roofmodel.models.architecture import Architecture, MoE, Network
from roofmodel.models.sharding import MOST, obstacles

GPUS = ("tp", "dp", "pp", "ep")
"""The options that say how GPUs share the work."""


def parallel(arch: Architecture, batch: int, asked: Parallel) -> tuple[Parallel, tuple[str, ...]]:
    """What the options ask for, with notes on what does not apply.

    Raises WorkloadError, with what would work, where something cannot be dealt out evenly.
    """
    tp, dp, pp, ep = asked.ways.values()
    if pp != 1:
        raise WorkloadError(f"--pp {pp}: stages of layers on GPUs of their own are not counted yet; try --pp 1")
    notes = []
    if ep != 1 and not has_experts(arch):
        notes.append(f"--ep is ignored: {arch.name} has no experts")
        ep = 1
    if not nested(tp, dp, ep):
        could = ", ".join(
            str(n) for n in range(1, tp * dp + 1) if nested(tp, dp, n) and not any(obstacles(arch, tp, n))
        )
        raise WorkloadError(
            f"--ep {ep}: experts are dealt out among GPUs that share a layer (--tp {tp}) or among whole replicas of "
            f"those (--dp {dp}), so that one must divide the other; {f'try --ep {could}' if could else 'try --ep 1'}"
        )
    if found := list(dict.fromkeys(obstacles(arch, tp, ep))):
        if isinstance(arch.body, Network):
            raise WorkloadError(f"--tp {tp}: {arch.name} has {found[0]} to share; try --dp {tp}")
        what = f"--tp {tp}" + (f" --ep {ep}" if ep > 1 else "")
        raise WorkloadError(
            f"{what}: {arch.name} has {' and '.join(found)}, which cannot be dealt out evenly; {_instead(arch, asked)}"
        )
    if batch % dp:
        below = batch - batch % dp
        could = " or ".join(f"--batch {n}" for n in (below, below + dp) if n)
        raise WorkloadError(
            f"--dp {dp}: --batch {batch} counts the sequences of all replicas, and cannot be dealt out evenly; "
            f"try {could}"
        )
    return Parallel(tp, dp, pp, ep, across=ep > tp), tuple(notes)


def has_experts(arch: Architecture) -> bool:
    """Whether a router chooses among experts anywhere."""
    return not isinstance(arch.body, Network) and any(isinstance(part, MoE) for part in arch.stack.parts)


def nested(tp: int, dp: int, ep: int) -> bool:
    """Whether the GPUs that experts are dealt out among are a part of those that share a layer, or whole replicas."""
    return tp % ep == 0 or (ep % tp == 0 and (tp * dp) % ep == 0)


def possible(arch: Architecture, dp: int = 1, ep: int = 1) -> Iterator[int]:
    """The values of --tp that a model allows, beside others of --dp and --ep."""
    return (tp for tp in range(1, MOST + 1) if nested(tp, dp, ep) and not any(obstacles(arch, tp, ep)))


def dealt(arch: Architecture) -> dict[int, list[int]]:
    """By values of --ep, those of --tp beside which everything can be dealt out evenly; --dp decides which nest."""
    counts = range(1, MOST + 1)
    found = {
        ep: [tp for tp in counts if not any(obstacles(arch, tp, ep))] for ep in (counts if has_experts(arch) else (1,))
    }
    return {ep: tps for ep, tps in found.items() if tps}


def _instead(arch: Architecture, asked: Parallel) -> str:
    """The numbers of GPUs that would work."""
    tps = ", ".join(map(str, possible(arch, asked.dp, asked.ep)))
    if tps:
        return f"--tp {tps} would work" + (f" with --ep {asked.ep}" if asked.ep > 1 else "")
    return "try --tp 1 --ep 1"
