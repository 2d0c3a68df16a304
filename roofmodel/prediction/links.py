"""Over which link GPUs exchange, and how fast: neighbours over a bridge, those of a node over its links, others over
the network between nodes.

Of a whole X that g GPUs on each of N nodes, n in all, sum, gather or deal out, each node must take in and give away
(N - 1) / N, by the ports of its g GPUs together, and each GPU (g - 1) / g within its node; of an all-reduce twice as
much. A ring sends more, (n - 1) / n over each link, but NCCL's trees do not: on two nodes they are up to 1.8 times as
fast (`benchmarks/network_collectives.csv`). What one GPU sends to one, it sends by its own port; so it does what
everybody sends to everybody, but for the part that stays within the node.
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.algebra import Number, ceil_div, either, maximum, minimum
from roofmodel.counting.collective import ROUNDS, Collective
from roofmodel.devices.device import Device, Link


class Route(NamedTuple):
    """A way of data: bytes per second of each GPU in each direction, as if all that it sends went this way; whether it
    is a bridge, or leaves a node; and how many nodes it joins."""

    bandwidth: Number
    bridged: Number = False
    leaves: Number = False
    nodes: Number = 1

    def link(self, device: Device) -> Link:
        """The link that it goes over."""
        found = device.network if self.leaves else device.bridge if self.bridged else device.inside
        assert found is not None  # it is where the route was found
        return found


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
        together = maximum(1, network.beyond // collective.apart)  # of them in a node
        outside = _outside(collective, together, device.inside.bandwidth / 2, network.bandwidth / 2)
        found = found._replace(
            bandwidth=either(leaves, outside, found.bandwidth),
            leaves=leaves,
            nodes=either(leaves, ceil_div(collective.gpus, together), 1),
        )
    return found


def _outside(collective: Collective, together: Number, inside: float, port: float) -> Number:
    """Bytes per second of what a collective sends in all, where so many of its GPUs are on each node."""
    gpus, others = collective.gpus, maximum(1, collective.gpus - 1)
    if collective.name == "send":
        return port
    if not ROUNDS[collective.name]:
        return minimum(inside, port * others / maximum(1, gpus - together))
    nodes = ceil_div(gpus, together)
    leaving, staying = (gpus * (parts - 1) / (parts * others) for parts in (nodes, together))  # of what a ring sends
    return 1 / maximum(leaving / (together * port), staying / inside)


def link_rate(collective: Collective | None, device: Device) -> Number | None:
    """Bytes per second that a GPU sends: the way of a collective, or else to a neighbour; None where no link is."""
    found = collective and route(collective, device)
    return device.link if collective is None else found and found.bandwidth
