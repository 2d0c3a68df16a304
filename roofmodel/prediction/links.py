"""Over which link GPUs exchange, and how fast: neighbours over a bridge, those of a node over its links, others over
the network between nodes.

GPUs are placed so that a group of neighbours is on one node, where it has room there. Of a whole X that n GPUs sum,
gather or deal out, on N nodes of g each, every node must take in and give away (N - 1) / N, by the ports of its GPUs
together, and each GPU (g - 1) / g within its node; of an all-reduce twice as much. A ring sends more, (n - 1) / n over
each link, but NCCL's trees do not: on two nodes they are up to 1.8 times as fast
(`benchmarks/network_collectives.csv`). Where nodes have not as many of them each, the one of the fewest has the fewest
ports. What one GPU sends to one, it sends by its own port; so it does what everybody sends to everybody, but for the
part that stays within the node.
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.algebra import Number, ceil_div, either, maximum, minimum
from roofmodel.counting.collective import ROUNDS, Collective
from roofmodel.devices.device import Device, Link


class NodeCrossing(NamedTuple):
    """A collective among nodes: how many they are, a port's and a link's bytes per second in one direction; and of what
    a ring sends for each GPU, how much leaves the node of the fewest GPUs by each of its ports, and how much each link
    within a node passes."""

    nodes: Number
    port: float
    inside: float
    leaving: Number
    staying: Number

    @property
    def bandwidth(self) -> Number:
        """Bytes per second of each GPU in each direction, as if all that it sends left the node."""
        most = maximum(self.leaving / self.port, self.staying / self.inside)
        return 1 / maximum(most, 1e-15)  # of a single GPU, which sends nothing


class Route(NamedTuple):
    """A way of data: bytes per second of each GPU in each direction; whether it is a bridge, or leaves a node."""

    bandwidth: Number
    bridged: Number = False
    leaves: Number = False
    crossing: NodeCrossing | None = None

    @property
    def nodes(self) -> Number:
        """How many of them it joins."""
        return either(self.leaves, self.crossing.nodes, 1) if self.crossing else 1

    def links(self, device: Device) -> tuple[Link, ...]:
        """The links that it goes over: within a node, unless it joins GPUs of one each, and between nodes."""
        near = device.bridge if self.bridged else device.inside
        far = device.network if self.leaves else None
        inside = far is None or (self.crossing is not None and self.crossing.staying > 0)
        return tuple(dict.fromkeys(link for link in (near if inside else None, far) if link))


def route(collective: Collective, device: Device) -> Route | None:
    """How a collective goes; None where the device's file has no link. Elementwise for arrays of GPUs."""
    if device.inside is None:
        return None
    found = Route(device.inside.bandwidth / 2)
    if bridge := device.bridge:
        bridged = collective.span <= bridge.joins
        found = found._replace(bandwidth=either(bridged, bridge.bandwidth / 2, found.bandwidth), bridged=bridged)
    if network := device.network:
        leaves = collective.span > network.beyond
        crossing = _crossing(collective, network, device.inside.bandwidth / 2)
        bandwidth = either(leaves, crossing.bandwidth, found.bandwidth)
        found = found._replace(bandwidth=bandwidth, leaves=leaves, crossing=crossing)
    return found


def _crossing(collective: Collective, network: Link, inside: float) -> NodeCrossing:
    gpus, port = collective.gpus, network.bandwidth / 2
    together = maximum(1, minimum(gpus, network.beyond // collective.apart))  # of them in a node
    nodes = ceil_div(gpus, together)
    fewest = gpus - (nodes - 1) * together  # in the last one
    others = maximum(1, gpus - 1)
    if collective.name in ("send", "receive"):
        return NodeCrossing(nodes, port, inside, 1, 0)
    if not ROUNDS[collective.name]:
        return NodeCrossing(nodes, port, inside, (gpus - fewest) / others, (together - 1) / others)
    leaving, staying = (gpus * (parts - 1) / (parts * others) for parts in (nodes, together))
    return NodeCrossing(nodes, port, inside, leaving / fewest, staying)


def link_bandwidth(collective: Collective | None, device: Device) -> Number | None:
    """Bytes per second that a GPU sends: the way of a collective, or else to a neighbour; None where no link is."""
    found = collective and route(collective, device)
    return device.link if collective is None else found and found.bandwidth
