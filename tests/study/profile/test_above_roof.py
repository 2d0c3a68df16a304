"""Points above their roof, each with the reason that its numbers allow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from roofmodel.devices.device import Device
from roofmodel.profiles.kernel import Evidence, Flops, Kernel, Traffic
from roofmodel.study.profile.above_roof import explained, lines
from roofmodel.study.profile.ceilings import settle
from roofmodel.study.profile.device import Identified
from roofmodel.study.profile.points import group, points


def kernel(
    name: str = "fast", seconds: float = 1e-3, dram: float = 1e6, clock: float | None = None, **flops: float
) -> Kernel:
    return Kernel(
        "0", "f", name, seconds=seconds, clock=clock, flops=Flops(**{"tensor_fp16": 0, **flops}), bytes=Traffic(dram)
    )


def findings(
    kernels: Kernel | list[Kernel], hw: str = "a100", *, how: Any = "attributes", evidence: tuple[Evidence, ...] = (),
    clock: str = "boost", ceilings: str = "datasheet",
) -> list[str]:  # fmt: skip
    kernels = kernels if isinstance(kernels, list) else [kernels]
    drawn = settle(Device.load(hw), clock, ceilings, kernels)
    groups = group(kernels, "name")
    found = points(groups, drawn.device)
    return lines(explained(found, groups, evidence, Identified(drawn.stated, how), drawn), drawn)


def test_below_the_roof_there_is_nothing_to_say() -> None:
    assert findings(kernel(dram=2.039e9)) == []  # the A100 moves 2.039 GB in 1 ms


def test_a_clock_above_the_roofs() -> None:
    # 1030 GFLOP in 1 ms against 989.4 TFLOP/s, stated at 1.83 GHz: 104 %; at 1.98 GHz the roof is 1070.5, 96 %
    (text,) = findings(kernel(clock=1.98e9, tensor_fp16=1030e9), "h100")
    assert text == (
        "fast stands at 104% of its tensor_fp16 roof, which no kernel can: "
        "the kernels ran at 1.98 GHz, above the clock of the roofs, and under the roof at theirs it stands below"
    )
    # at 1.84 GHz the roof is 994.8, and the point still above
    (text,) = findings(kernel(clock=1.84e9, tensor_fp16=1030e9), "h100")
    assert "clock of the roofs" not in text


def test_roofs_that_were_asked_for_at_a_clock_below_the_kernels() -> None:
    # fp32 at 1 GHz: 19.5 / 1.41 = 13.83 TFLOP/s, and 15 GFLOP in 1 ms are 108 %; at 1.41 GHz 77 %
    (text,) = findings(kernel(clock=1.41e9, fp32=15e9), clock="1GHz")
    assert "stands at 108%" in text
    assert "the kernels ran at 1.41 GHz, above the clock of the roofs" in text


def test_roofs_below_a_clock_that_no_file_tells() -> None:
    # 312 TFLOP/s at 1.41 GHz are 243.4 at 1.1; 137.4 + 0.02 GFLOP in 0.55 ms are 249.9: 102.7 %, so at least 1.13 GHz
    gemm = kernel(seconds=550e-6, dram=150e6, tensor_fp16=137438953472)
    (text,) = findings(gemm, clock="1.1GHz")
    assert text.endswith("which no kernel can: it ran at a clock above 1.1 GHz (at least 1.13 GHz)")


def test_a_pipes_roof_is_named_once_for_all_levels() -> None:
    both = replace(kernel(tensor_fp16=400e9), bytes=Traffic(dram=1e6, l2=1e7))
    (text,) = findings(both)
    assert "128% of its tensor_fp16 roof" in text


def test_a_sparse_kernel_under_a_dense_roof() -> None:
    # 400 GFLOP in 1 ms: 128 % of 312 TFLOP/s, 64 % of 624
    (text,) = findings(kernel(tensor_fp16=400e9))
    assert "stands at 128%" in text
    assert "under that of 2:4 sparse ones it stands below" in text
    # 640 are above both
    (text,) = findings(kernel(tensor_fp16=640e9))
    assert "sparse ones" not in text


def test_bytes_that_fit_in_the_l2() -> None:
    # 12 MB take 5.885 µs at 2039 GB/s, and took 4: 147 %; the L2 holds 41.9 MB
    (text,) = findings(kernel(seconds=4e-6, dram=12e6))
    assert text.startswith(
        "fast stands at 147% of its dram roof, which no kernel can: its 12 MB a launch fit in the L2"
    )
    # ten launches of 12 MB are no larger each; 60 MB in 20 µs do not fit
    ten = [kernel(seconds=4e-6, dram=12e6) for _ in range(10)]
    assert "its 12 MB a launch" in findings(ten)[0]
    assert "fit in the L2" not in findings(kernel(seconds=20e-6, dram=60e6))[0]


def test_another_device_of_the_generation() -> None:
    # 1.8 GB in 1 ms: 116 % of 1555 GB/s; 88 % of 2039 and 93 % of 1935
    (text,) = findings(kernel(dram=1.8e9), "a100-sxm-40gb", how="assumed")
    assert "another device, such as a100-pcie-80gb, a100-sxm-80gb, under whose roof" in text  # no MI300X, no TPU
    # what the file's attributes told is not doubted
    assert "another device" not in findings(kernel(dram=1.8e9), "a100-sxm-40gb")[0]


def test_another_device_by_what_the_file_says() -> None:
    h100 = Evidence(name="NVIDIA H100 80GB HBM3", compute_capability="9.0")
    (text,) = findings(kernel(dram=3e9), "a100", how="given", evidence=(h100,))  # 147 % of 2039 GB/s, 90 % of 3350
    assert "such as h100-sxm, under" in text


def test_above_what_a_benchmark_reached_is_no_wonder() -> None:
    # 1.9 GB in 1 ms: 106 % of the 1794 GB/s of the triad, 93 % of the datasheet's 2039
    (text,) = findings(kernel(dram=1.9e9), ceilings="measured")
    assert text == (
        "fast stands at 106% of its dram roof: "
        "a benchmark's best is no limit, and under the datasheet's roof it stands below"
    )


def test_what_nothing_explains_is_said_to_be_so() -> None:
    (text,) = findings(kernel(dram=3e9))  # 147 %, too large for the L2
    assert text.startswith(
        "fast stands at 147% of its dram roof, which no kernel can: no clock, sparsity, cache or known"
    )


def test_points_of_one_reason_share_a_line_the_worst_first() -> None:
    (text,) = findings(
        [kernel(name, dram=size * 2.039e9) for name, size in zip("abcd", (1.1, 1.4, 1.2, 1.3), strict=True)]
    )
    assert text.startswith("b (140%), d (130%), c (120%) and 1 more stand above their dram roof")
