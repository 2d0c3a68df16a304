"""The pipes whose ceilings a plot has."""

from __future__ import annotations

import pytest

from roofmodel.devices.device import Device
from roofmodel.profiles.kernel import Flops, Kernel, Traffic
from roofmodel.roofline.pipes import pipes_in_use
from roofmodel.roofline.points import group, points


@pytest.mark.parametrize(
    ("name", "pipes"),
    [
        ("void copy_kernel(float*)", ["fp32"]),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", ["tensor_fp16"]),
    ],
)
def test_kernels_without_flops_have_the_ceiling_of_the_format_in_their_names(name: str, pipes: list[str]) -> None:
    """Not the highest one of the device, which is int8 on T4."""
    device = Device.load("t4")
    kernel = Kernel(
        id="0", file="f", name=name, seconds=1e-3, flops=Flops(fp32=0, tensor_fp16=0), bytes=Traffic(dram=1e6)
    )
    assert [pipe.name for pipe in pipes_in_use(points(group([kernel], "name"), device), device)] == pipes


def test_without_kernels_all_pipes_are_shown() -> None:
    device = Device.load("t4")
    assert len(pipes_in_use([], device)) == len(device.pipes)
