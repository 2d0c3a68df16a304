"""The roofline bound: the least time in which a device can execute a cost, over its pipes, its memory and its links.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52(4), 2009: attainable = min(peak, bandwidth x intensity). As time:

    bound = max(matmul FLOPs / pipe's peak, vector FLOPs / CUDA-core peak, bytes / DRAM bandwidth, sent bytes / link)

No measured kernel can be faster, unless its data comes from a cache.

The links of a collective are those of a group of neighbors, of a node, or of the network. GPUs are placed so that a
group of neighbors is on one node where it fits. For an X-byte all-gather, reduce-scatter or half of an all-reduce over
n GPUs on N nodes with g GPUs each: every node receives and sends X (N - 1) / N bytes through the ports of all its GPUs,
and each GPU receives and sends X (g - 1) / g bytes inside its node. A ring sends more, (n - 1) / n over each link;
NCCL's trees do not, and are up to 1.8 times as fast on two nodes (`benchmarks/network_collectives.csv`). Where nodes
have different numbers of these GPUs, the node with the fewest has the fewest ports and limits. A send uses the sender's
own port. So does an all-to-all, except for the part that stays inside the node; that of an MoE layer sends a token once
to each node, where links inside the node pass it on.

Under long load there is one more ceiling, which changes expected times and no bound. A card's regulator acts on the
mean power of some tens of milliseconds, so that the power limit holds for all operators of a step together: a step
takes at least its energy above idle / (limit - idle) (`devices/parts.py`). What this adds to the sum of its kernels is
divided over the operators that alone would draw more than the limit. Those that wait for DRAM take no longer. A
sustained rate that the device's file states replaces the energy of its pipe: each operator takes at least its FLOPs or
bytes / this rate.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from roofmodel.counting.operator import ROUNDS, Collective, Cost
from roofmodel.devices.device import Device
from roofmodel.devices.parts import Link, stated_rates
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number, ceil_div, either, is_just, maximum, minimum, plain


class NodeCrossing(NamedTuple):
    """A collective between nodes.

    `nodes` is their number; `port` and `inside` are bytes per second and direction of a network port and of a link
    inside a node. For each byte that a GPU sends on a ring, `leaving` bytes leave the node with the fewest GPUs through
    each of its ports, and `staying` bytes pass each link inside a node.
    """

    nodes: Number
    port: float
    inside: float
    leaving: Number
    staying: Number

    @property
    def bandwidth(self) -> Number:
        """Effective bytes per second of each GPU and direction, for all bytes that it sends."""
        most = maximum(self.leaving / self.port, self.staying / self.inside)
        return 1 / maximum(most, 1e-15)  # a single GPU sends nothing


class Route(NamedTuple):
    """The path of a collective: bytes per second per GPU and direction; whether it uses the links of the smallest group
    of neighbors (`bridged`) or of the next larger one (`halved`), or leaves a node."""

    bandwidth: Number
    bridged: Number = False
    halved: Number = False
    leaves: Number = False
    crossing: NodeCrossing | None = None

    @property
    def nodes(self) -> Number:
        """The number of nodes."""
        return either(self.leaves, self.crossing.nodes, 1) if self.crossing else 1

    def links(self, device: Device) -> tuple[Link, ...]:
        """The links used: inside a node, unless each node has one GPU of the collective, and between nodes."""
        near = device.bridge if self.bridged else device.half if self.halved else device.inside
        far = device.network if self.leaves else None
        inside = far is None or (self.crossing is not None and self.crossing.staying > 0)
        return tuple(dict.fromkeys(link for link in (near if inside else None, far) if link))


def route(collective: Collective, device: Device) -> Route | None:
    """The path of a collective; None without a link. Elementwise for arrays of GPUs."""
    if device.inside is None:
        return None
    path = Route(device.inside.bandwidth / 2)
    if half := device.half:
        halved = collective.span <= half.joins
        path = path._replace(bandwidth=either(halved, half.bandwidth / 2, path.bandwidth), halved=halved)
    if bridge := device.bridge:
        bridged = collective.span <= bridge.joins
        path = path._replace(bandwidth=either(bridged, bridge.bandwidth / 2, path.bandwidth), bridged=bridged)
    if network := device.network:
        leaves = collective.span > network.beyond
        crossing = _crossing(collective, network, device.inside.bandwidth / 2)
        bandwidth = either(leaves, crossing.bandwidth, path.bandwidth)
        path = path._replace(bandwidth=bandwidth, leaves=leaves, crossing=crossing)
    return path


def _crossing(collective: Collective, network: Link, inside: float) -> NodeCrossing:
    gpus, port = collective.gpus, network.bandwidth / 2
    together = maximum(1, minimum(gpus, network.beyond // collective.rank_stride))  # GPUs of the collective per node
    nodes = ceil_div(gpus, together)
    fewest = gpus - (nodes - 1) * together  # GPUs on the last node
    others = maximum(1, gpus - 1)
    if collective.name in ("send", "receive", "ring"):  # to one neighbor
        return NodeCrossing(nodes, port, inside, 1, 0)
    if collective.active:  # a token once to each node that needs it, and there once to each GPU
        reached, of_nodes = (maximum(collective.destinations(groups), 1e-15) for groups in (gpus, nodes))
        leaving = of_nodes / reached
        return NodeCrossing(nodes, port, inside, leaving, maximum(1 - leaving, 0))
    if not ROUNDS[collective.name]:
        return NodeCrossing(nodes, port, inside, (gpus - fewest) / others, (together - 1) / others)
    leaving, staying = (gpus * (parts - 1) / (parts * others) for parts in (nodes, together))
    return NodeCrossing(nodes, port, inside, leaving / fewest, staying)


TREE_BYTES = 64 * 2**20
"""Smallest all-reduce of two bridged pairs over PCIe for which NCCL chooses a tree.

From NCCL 2.20's `src/graph/tuning.cc` for four GPUs (NVIDIA/nccl@b6475625): a ring's predicted bandwidth is 4 / 6 of
that of its channels, and a tree's is 0.46 of it, times a correction of 0.7 for 32 MiB and of 0.8 for 64 MiB. Assumed
here: the channels of a tree have twice the bandwidth, because a tree crosses PCIe once and a ring twice.
"""


def tree_share(collective: Collective, device: Device, sent: Number) -> Number:
    """Bytes that pass a PCIe link in NCCL's tree, per byte that a ring sends; 1 where NCCL uses a ring.

    `sent` is the number of bytes that a GPU sends on the ring. In the chain 0-1-2-3 of two bridged pairs only 1-2 is a
    PCIe link. The whole tensor passes it in each direction, where a ring sends 2 (n - 1) / n = 3 / 2 of it.
    """
    if collective.name != "all_reduce" or device.pairs_over_pcie is False:
        return 1.0
    two_pairs = (device.pairs_over_pcie == 1) * (collective.gpus == 4) * (collective.rank_stride == 1)
    return either(two_pairs * (sent >= 1.5 * TREE_BYTES), 2 / 3, 1.0)


def link_bandwidth(collective: Collective | None, device: Device) -> Number | None:
    """Bytes per second that a GPU sends, for a collective or to a neighbor; None without a link."""
    path = collective and route(collective, device)
    return device.link if collective is None else path and path.bandwidth


class Placement(NamedTuple):
    """A cost on a device: the time under each ceiling, and the bound, which is the longest of them; all in seconds."""

    cost: Cost
    matmul_seconds: Number
    vector_seconds: Number
    memory_seconds: Number
    link_seconds: Number
    bound_seconds: Number

    @property
    def compute_seconds(self) -> Number:
        """The longer of the matmul and the vector time."""
        return maximum(self.matmul_seconds, self.vector_seconds)

    @property
    def bound(self) -> Number:
        """The ceiling that limits: `compute`, `memory` or `communication`; an array of words for arrays."""
        on_gpu = either(self.compute_seconds > self.memory_seconds, "compute", "memory")
        return either(self.link_seconds > maximum(self.compute_seconds, self.memory_seconds), "communication", on_gpu)


def place(
    cost: Cost, device: Device, dtype: str, collective: Collective | None = None, several: bool = False
) -> Placement:
    """The cost under the device's ceilings.

    Sent bytes use the links of `collective`, or the link to a neighbor where there is none. Raises WorkloadError where
    the device has no pipe for `dtype`. `several` states that the cost is of several collectives: each uses a ring.
    """
    vector_pipe = device.vector_pipe(dtype)
    matmul = plain(cost.matmul_flops) / device.matmul_pipe(dtype).peak
    vector = plain(cost.vector_flops) / vector_pipe.peak if vector_pipe else 0.0
    memory = plain(cost.bytes) / device.bandwidth
    rate = link_bandwidth(collective, device)
    share = 1.0 if collective is None or several else tree_share(collective, device, plain(cost.link_bytes))
    link = 0.0 if rate is None else cost.link_bytes / rate * share
    return Placement(cost, matmul, vector, memory, link, reduce(maximum, (matmul, vector, memory, link)))


def ridge(device: Device, dtype: str) -> float:
    """The ridge point: the arithmetic intensity, in FLOP per byte, at which the peak meets the DRAM ceiling."""
    return device.matmul_pipe(dtype).peak / device.bandwidth


def with_fp16_accumulation(device: Device, dtype: str, compute_seconds: float, seconds: float) -> str | None:
    """What explains a GEMM that is faster than its ceiling: tensor cores that sum in fp16 instead of in fp32.

    `compute_seconds` is the least time with sums in fp32, `seconds` the time of the GEMM. None if the device has no
    such rate, or if the GEMM is faster than it allows.
    """
    narrow = device.fp16_accumulation(dtype)
    if narrow is None or seconds < compute_seconds * device.matmul_pipe(dtype).peak / narrow.peak:
        return None
    peak = units.si(narrow.peak, "FLOP/s")
    return f"above the ceiling with fp32 accumulation; with fp16 accumulation it is {peak}"


# --- Power and long load ----------------------------------------------------------------------------

SPREAD = (0.84, 1.12)
"""Measured / expected times at the power limit, 10th and 90th percentile: bf16 GEMMs of a B200 (docs/accuracy.md)."""
POWER_SPREAD = (0.75, 1.9)
"""The same of the power: kernels of a B200 of shapes that no fit saw."""


class Energy(NamedTuple):
    """The energy of an operator: the power of the card without work, and the joules of its work above that."""

    idle_watts: float
    work: Number

    def total(self, seconds: Number) -> Number:
        """The joules of an occurrence that takes so long."""
        return self.idle_watts * seconds + self.work


class Draw(NamedTuple):
    """What an operator draws each time that it runs under long load.

    `seconds`: the least time at the sustained rates that the device's file states. `budget_seconds`: its energy above
    idle in the other pipes / what the limit leaves above idle. `energy`: None where the device states none for a pipe
    that it uses.
    """

    seconds: Number
    budget_seconds: Number
    energy: Energy | None


def has_load_figures(device: Device) -> bool:
    """Whether a device's file states power or sustained rates."""
    return device.power is not None or bool(stated_rates(device.measured))


def has_sustained_rate(device: Device, dtype: str) -> bool:
    """Whether a device's file states a sustained rate or the energy of the pipe that multiplies in a format."""
    pipe = device.matmul_pipe(dtype).name
    return pipe in stated_rates(device.measured) or (device.power is not None and pipe in device.power.energy)


def sustained_flops(intensity: Number, device: Device, dtype: str) -> Number:
    """FLOP/s of GEMMs of this intensity in FLOP per byte under long load: the least of the roofline, the stated rate,
    and without a stated rate the power line of Choi et al."""
    pipe, stated, power = device.matmul_pipe(dtype), stated_rates(device.measured), device.power
    rate = minimum(minimum(pipe.peak, stated.get(pipe.name, pipe.peak)), intensity * device.bandwidth)
    if pipe.name in stated or power is None:
        return rate
    return minimum(rate, power.budget / (power.energy[pipe.name] + power.energy.get("dram", 0.0) / intensity))


def draw(cost: Cost, device: Device, dtype: str, expected: Number) -> Draw:
    """What an operator draws. In a time `expected` it reads at most the bytes that DRAM can send."""
    matmul, vector = device.matmul_pipe(dtype).name, device.vector_pipe(dtype)
    used = {matmul: plain(cost.matmul_flops), "dram": minimum(plain(cost.bytes), expected * device.bandwidth)}
    if vector is not None:
        used[vector.name] = used.get(vector.name, 0) + plain(cost.vector_flops)
    stated, seconds = stated_rates(device.measured), 0.0
    for name in used.keys() & stated.keys():
        seconds = maximum(seconds, used[name] / stated[name])
    if device.power is None:
        return Draw(seconds, 0.0, None)
    energy = {name: amount * device.power.energy.get(name, 0.0) for name, amount in used.items()}
    budgeted = sum(joules for name, joules in energy.items() if name not in stated)
    is_known = is_just(cost.matmul_flops, 0) or matmul in device.power.energy
    all_work = Energy(device.power.idle, plain(sum(energy.values()))) if is_known else None
    return Draw(seconds, budgeted / device.power.budget, all_work)
