"""How long GPUs take to exchange data: all-reduce, all-gather, reduce-scatter, all-to-all.

    latency + steps x step + min(bytes / (link x early), late + bytes / (link x bandwidth))

`bytes` pass a GPU's link in each direction, as nccl-tests counts them for its bus bandwidth. A ring of n GPUs takes
n - 1 steps, an all-reduce twice as many, an all-to-all one: everybody sends to everybody at once. Between nodes data
go up and down a tree of them, so that their number doubles with each step. Short messages carry
their flags with the data (NCCL's LL and LL128) or are read straight from the other GPU's memory, which wastes
bandwidth; long ones pay for a start and then run at the link's. The parameters are `CollectiveTiming`, fitted by
`roof calibrate`. The same code takes ints and arrays.
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.algebra import Number, doublings, either, minimum, part
from roofmodel.devices.calibration import CollectiveTiming


class CollectiveWork(NamedTuple):
    """A collective: how many GPUs, how often around their ring, and bytes over a GPU's link in each direction."""

    gpus: Number  # that take part
    rounds: int  # around their ring; 0: everybody sends to everybody at once
    bytes: Number  # that pass a GPU's link, in each direction
    nodes: Number = 1  # that they are on


def seconds(exchange: CollectiveWork, link: Number, timing: CollectiveTiming) -> Number:
    """Seconds, with a link of so many bytes per second in each direction; elementwise for arrays."""
    around = exchange.rounds * (exchange.gpus - 1) if exchange.rounds else 1
    across = exchange.rounds * doublings(exchange.nodes) if exchange.rounds else 1
    steps = part("steps", either(exchange.nodes > 1, across, around))
    short = part("short", exchange.bytes / (link * timing.early), "s")
    long = part("long", timing.late + exchange.bytes / (link * timing.bandwidth), "s")
    return timing.latency + steps * timing.step + minimum(short, long)
