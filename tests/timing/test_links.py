"""Bandwidth of collectives between nodes with different numbers of their GPUs, derived by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofmodel.counting.operator import Collective
from roofmodel.devices.device import Device
from roofmodel.timing.links import route

PORT = 10e9  # bytes per second and direction of a GPU's port; links inside a node are 30 times as fast
A100 = Device.load("a100")


def bandwidth(name: str, gpus: int) -> float:
    assert A100.network is not None
    assert A100.network.beyond == 8
    links = {**A100.links, "infiniband": A100.network._replace(bandwidth=2 * PORT)}
    path = route(Collective(name, gpus), replace(A100, links=links))
    assert path is not None
    return float(path.bandwidth)


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter", "all_reduce"])
def test_the_ports_of_the_node_with_the_fewest_gpus_limit_a_ring(name: str) -> None:
    """Nodes of 8 and 4 GPUs: half of the X bytes pass the 4 ports of the second, while a GPU sends 11/12 of X."""
    seconds_per_byte = (1 / 2) / (4 * PORT)
    assert bandwidth(name, 12) == pytest.approx((11 / 12) / seconds_per_byte)
    assert bandwidth(name, 16) == pytest.approx((15 / 16) / ((1 / 2) / (8 * PORT)))


def test_a_gpu_on_the_node_with_the_fewest_sends_most_of_an_all_to_all_out_of_it() -> None:
    """Of 12 GPUs, one of the 4 on the second node sends to 11 others, 8 of them on the first node."""
    assert bandwidth("alltoall", 12) == pytest.approx(PORT * 11 / 8)
    assert bandwidth("alltoall", 16) == pytest.approx(PORT * 15 / 8)
