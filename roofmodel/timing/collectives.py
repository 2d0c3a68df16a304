"""Expected time of a collective: all-reduce, all-gather, reduce-scatter, all-to-all, send and receive."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from roofmodel.devices.calibration import CollectiveTiming
from roofmodel.numbers.algebra import Number, Seconds, doublings, either, minimum
from roofmodel.timing.formula import FormulaDescription

DESCRIPTION = FormulaDescription(
    name="collectives",
    title="collectives",
    summary="Time of a collective: a latency, one per step, and the bytes that pass each GPU's link.",
    equation="latency + steps × hop + min(low_latency, high_bandwidth)",
    terms=(
        (
            "steps",
            "within a node: n - 1 around a ring of n GPUs, twice as many for an all-reduce, 1 for an all-to-all; "
            "between nodes: up and down a tree, so the number grows with log2(nodes)",
        ),
        (
            "low_latency",
            "bytes / (link × low_latency_bandwidth): NCCL's LL and LL128 protocols, or reads from the other GPU",
        ),
        ("high_bandwidth", "startup + bytes / (link × bandwidth): NCCL's Simple protocol, or two-shot kernels"),
    ),
    notes=(
        "Bytes are those that pass one GPU's link in each direction, as nccl-tests counts them for its bus bandwidth.",
        "The low-latency protocol sends flags with the data, which wastes bandwidth. The other one starts later: "
        "messages of startup × link × bandwidth bytes reach half of its bandwidth.",
        "Two bridged pairs of GPUs that communicate over PCIe use a tree for an all-reduce from 64 MiB: 2/3 of a "
        "ring's bytes pass the PCIe link (NCCL, src/graph/tuning.cc).",
    ),
    source="nccl-tests, PERFORMANCE.md (bus bandwidth). Parameters: CollectiveTiming, fitted by `roof calibrate`.",
)


class CollectiveWork(NamedTuple):
    """The size of a collective."""

    gpus: Annotated[Number, "GPUs that take part"]
    rounds: Annotated[int, "rounds of the ring: 2 for an all-reduce; 0 for an all-to-all, which has one step"]
    bytes: Annotated[Number, "bytes that pass one GPU's link in each direction", "B"]
    nodes: Annotated[Number, "nodes of these GPUs"] = 1


def seconds(work: CollectiveWork, link: Number, timing: CollectiveTiming) -> Number:
    """Seconds of a collective over a link of `link` bytes per second and direction; elementwise for arrays."""
    around = work.rounds * (work.gpus - 1) if work.rounds else 1
    across = work.rounds * doublings(work.nodes) if work.rounds else 1
    steps: Number = either(work.nodes > 1, across, around)
    low_latency: Seconds = work.bytes / (link * timing.low_latency_bandwidth)
    high_bandwidth: Seconds = timing.startup + work.bytes / (link * timing.bandwidth)
    return timing.latency + steps * timing.hop + minimum(low_latency, high_bandwidth)
