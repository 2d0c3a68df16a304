"""Bounds: the largest time over all ceilings.

Bandwidth of collectives between nodes with different numbers of their GPUs, derived by hand.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.counting.operator import Collective, Cost
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.timing.roofline import place, ridge, route

A100 = Device.load("a100")  # 312 TFLOP/s fp16, 19.5 fp32 on CUDA cores, 2039 GB/s


def test_the_bound_is_the_largest_of_three_times() -> None:
    assert place(Cost(matmul_flops=312 * 10**12), A100, "fp16").bound_seconds == 1
    assert place(Cost(vector_flops=195 * 10**11), A100, "fp16").bound_seconds == 1
    assert (
        place(Cost(link_bytes=300 * 10**9), A100, "fp16").bound_seconds == 1
    )  # NVLink's 600 GB/s count both directions
    assert place(Cost(bytes_read=2000 * 10**9, bytes_written=39 * 10**9), A100, "fp16").bound_seconds == 1


def test_the_limiting_ceiling_is_named() -> None:
    assert place(Cost(matmul_flops=10**12, bytes_read=10), A100, "fp16").bound == "compute"
    assert place(Cost(vector_flops=10**12, bytes_read=10), A100, "fp16").bound == "compute"
    assert place(Cost(matmul_flops=10, bytes_read=10**9), A100, "fp16").bound == "memory"
    assert place(Cost(bytes_read=10**9, link_bytes=10**9), A100, "fp16").bound == "communication"


def test_the_ridge_point_is_peak_over_bandwidth() -> None:
    assert ridge(A100, "fp16") == 312e12 / 2039e9


@given(st.integers(1, 10**15), st.integers(1, 10**12))
def test_a_cost_is_compute_bound_exactly_above_the_ridge_point(flops: int, size: int) -> None:
    placed = place(Cost(matmul_flops=flops, bytes_read=size), A100, "fp16")
    assert (placed.bound == "compute") == (flops / 312e12 > size / 2039e9)
    assert placed.bound_seconds >= max(flops / 312e12, size / 2039e9)


@pytest.mark.parametrize(
    ("device", "dtype", "pipe"),
    [
        ("a100", "fp16", "tensor_fp16"),
        ("a100", "tf32", "tensor_tf32"),
        ("a100", "fp32", "fp32"),  # the CUDA cores: tf32 is a separate type
        ("a100", "fp64", "tensor_fp64"),
        ("v100", "fp32", "fp32"),
        ("h100", "fp8", "tensor_fp8"),
    ],
)
def test_a_type_runs_on_its_fastest_dense_pipe(device: str, dtype: str, pipe: str) -> None:
    assert Device.load(device).matmul_pipe(dtype).name == pipe


@pytest.mark.parametrize(("device", "dtype"), [("v100", "bf16"), ("v100", "tf32"), ("a100", "fp8"), ("v100", "int8")])
def test_an_unsupported_format_is_refused_with_the_supported_ones(device: str, dtype: str) -> None:
    with pytest.raises(WorkloadError, match=dtype) as caught:
        Device.load(device).matmul_pipe(dtype)
    assert "fp16" in str(caught.value)


PORT = 10e9  # bytes per second and direction of a GPU's port; links inside a node are 30 times as fast


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
