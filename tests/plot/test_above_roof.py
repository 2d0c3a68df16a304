"""Points above a ceiling, and possible explanations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.plot.above_roof import finding_warnings, with_findings
from roofmodel.profiles.kernel import Evidence, Flops, Kernel, Traffic
from roofmodel.roofline.ceilings import choose_ceilings
from roofmodel.roofline.device import DeviceIdentification
from roofmodel.roofline.points import group, points
from tests import kernels as make
from tests.profiles.samples import measured as measured_file
from tests.profiles.samples import needs_measured


def kernel(
    name: str = "fast", seconds: float = 1e-3, dram: float = 1e6, clock: float | None = None, **flops: float
) -> Kernel:
    return make.kernel(
        "0", "f", name, seconds=seconds, clock=clock, flops=Flops(**{"tensor_fp16": 0, **flops}), bytes=Traffic(dram)
    )


def findings(
    kernels: Kernel | list[Kernel], hw: str = "a100", *, how: Any = "attributes", evidence: tuple[Evidence, ...] = (),
    clock: str = "boost", ceilings: str = "datasheet", counted: bool = False,
) -> list[str]:  # fmt: skip
    kernels = kernels if isinstance(kernels, list) else [kernels]
    chosen = choose_ceilings(Device.load(hw), clock, ceilings, kernels)
    groups = [*group(make.table(kernels), "name")]
    found = [point._replace(counted=counted) for point in points(groups, chosen.device)]
    identification = DeviceIdentification(chosen.stated_device, how)
    return finding_warnings(with_findings(found, groups, evidence, identification, chosen), chosen)


def test_a_point_below_its_ceiling_has_no_finding() -> None:
    assert findings(kernel(dram=2.039e9)) == []  # the A100 moves 2.039 GB in 1 ms


def test_a_clock_above_that_of_the_ceilings_is_an_explanation() -> None:
    # 1030 GFLOP in 1 ms are 104 % of 989.4 TFLOP/s (at 1.83 GHz) and 96 % of the ceiling at 1.98 GHz, 1070.5 TFLOP/s
    (text,) = findings(kernel(clock=1.98e9, tensor_fp16=1030e9), "h100")
    assert text == (
        "fast reaches 104% of its tensor_fp16 ceiling, which is impossible; explanation: "
        "the kernels ran at 1.98 GHz, above the clock of the ceilings (below the ceilings at the kernels' clock)"
    )
    # the point also exceeds the ceiling at 1.84 GHz, 994.8 TFLOP/s
    (text,) = findings(kernel(clock=1.84e9, tensor_fp16=1030e9), "h100")
    assert "clock of the ceilings" not in text


def test_fp16_accumulation_is_an_explanation_on_a_geforce() -> None:
    """250 TFLOP/s on an RTX 4090: above 165.2 with fp32 accumulation, below 330.3 with fp16 accumulation."""
    (text,) = findings(kernel(tensor_fp16=250e9), "rtx4090")
    assert "it accumulates in fp16, whose ceiling is 330 TFLOP/s" in text
    (text,) = findings(kernel(tensor_fp16=400e9), "rtx4090")
    assert "accumulates in fp16" not in text


def test_a_requested_clock_below_the_kernels_is_an_explanation() -> None:
    # 15 GFLOP in 1 ms are 108 % of the fp32 ceiling at 1 GHz, 19.5 / 1.41 = 13.83 TFLOP/s, and 77 % of that at 1.41 GHz
    (text,) = findings(kernel(clock=1.41e9, fp32=15e9), clock="1GHz")
    assert "reaches 108%" in text
    assert "the kernels ran at 1.41 GHz, above the clock of the ceilings" in text


def test_without_a_measured_clock_the_lowest_possible_clock_is_stated() -> None:
    # ceiling at 1.1 GHz: 312 x 1.1 / 1.41 = 243.4 TFLOP/s; 137.4 GFLOP in 0.55 ms are 249.9: 102.7 %, at least 1.13 GHz
    gemm = kernel(seconds=550e-6, dram=150e6, tensor_fp16=137438953472)
    (text,) = findings(gemm, clock="1.1GHz")
    assert text.endswith("which is impossible; explanation: the SM clock was above 1.1 GHz (at least 1.13 GHz)")


def test_a_point_above_a_compute_ceiling_has_one_warning_for_all_memory_levels() -> None:
    two_levels = make.changed(kernel(tensor_fp16=400e9), bytes=Traffic(dram=1e6, l2=1e7))
    (text,) = findings(two_levels)
    assert "128% of its tensor_fp16 ceiling" in text


def test_sparse_matrices_are_an_explanation_above_a_dense_ceiling() -> None:
    # 400 GFLOP in 1 ms: 128 % of 312 TFLOP/s, 64 % of 624
    (text,) = findings(kernel(tensor_fp16=400e9))
    assert "reaches 128%" in text
    assert "its matrices are 2:4 sparse" in text
    # 640 GFLOP exceed both
    (text,) = findings(kernel(tensor_fp16=640e9))
    assert "sparse matrices" not in text
    assert "2:4" not in text


def test_bytes_that_fit_in_the_l2_are_an_explanation() -> None:
    # 12 MB take 5.885 µs at 2039 GB/s but took 4 µs: 147 %; the L2 has 41.9 MB
    (text,) = findings(kernel(seconds=4e-6, dram=12e6))
    assert text.startswith(
        "fast reaches 147% of its dram ceiling, which is impossible; explanation: its 12 MB per launch fit in the L2"
    )
    # ten launches of 12 MB fit one by one; 60 MB do not fit
    ten = [kernel(seconds=4e-6, dram=12e6) for _ in range(10)]
    assert "its 12 MB per launch" in findings(ten)[0]
    assert "fit in the L2" not in findings(kernel(seconds=20e-6, dram=60e6))[0]


def test_bytes_that_fit_in_the_infinity_cache_are_an_explanation_on_an_mi300x() -> None:
    """100 MB in 10 us are 10 TB/s, 189 % of DRAM's 5.3 and below the 17.2 of the cache, which has 268 MB."""
    (text,) = findings(kernel(seconds=10e-6, dram=100e6), "mi300x")
    assert "reaches 189% of its dram ceiling" in text
    assert "counters state what left L2, and its 100 MB per launch fit in the Infinity Cache of 256 MiB" in text
    assert "Infinity Cache" not in findings(kernel(seconds=50e-6, dram=500e6), "mi300x")[0]
    (text,) = findings(kernel(seconds=10e-6, dram=100e6), "mi300x", counted=True)
    assert "its tensors of 100 MB per launch fit in the Infinity Cache of 256 MiB" in text


def test_another_device_of_the_generation_is_an_explanation() -> None:
    # 1.8 GB in 1 ms are 116 % of 1555 GB/s, 88 % of 2039 and 93 % of 1935
    (text,) = findings(kernel(dram=1.8e9), "a100-sxm-40gb", how="assumed")
    # only devices of the same generation
    assert "another device, such as a100-pcie-80gb, a100-sxm-80gb (below the ceilings there)" in text
    # no doubt about a device identified by the attributes in the file
    assert "another device" not in findings(kernel(dram=1.8e9), "a100-sxm-40gb")[0]


def test_the_device_that_the_file_names_is_an_explanation() -> None:
    h100 = Evidence(name="NVIDIA H100 80GB HBM3", compute_capability="9.0")
    (text,) = findings(kernel(dram=3e9), "a100", how="given", evidence=(h100,))  # 147 % of 2039 GB/s, 90 % of 3350
    assert "such as h100-sxm (below" in text


def test_a_point_may_exceed_a_measured_ceiling() -> None:
    # 1.9 GB in 1 ms: 106 % of the 1794 GB/s of the triad, 93 % of the datasheet's 2039
    (text,) = findings(kernel(dram=1.9e9), ceilings="measured")
    assert text == (
        "fast reaches 106% of its dram ceiling; explanation: "
        "a measured ceiling is what a benchmark reached, not a limit (below the datasheet's ceiling)"
    )


def test_the_warning_of_a_point_without_an_explanation_says_so() -> None:
    (text,) = findings(kernel(dram=3e9))  # 147 %, too large for the L2
    assert text.startswith(
        "fast reaches 147% of its dram ceiling, which is impossible; explanation: no clock, sparsity, cache or known"
    )


def test_points_with_the_same_explanation_share_a_warning_worst_first() -> None:
    (text,) = findings(
        [kernel(name, dram=size * 2.039e9) for name, size in zip("abcd", (1.1, 1.4, 1.2, 1.3), strict=True)]
    )
    assert text.startswith("b (140%), d (130%), c (120%) and 1 more exceed their dram ceiling")


def test_an_expanded_tensor_is_an_explanation_for_counted_bytes_above_the_ceiling() -> None:
    (text,) = findings(kernel(dram=3e9), counted=True)
    assert "an expanded (broadcast) tensor" in text
    assert "no clock" not in text


def test_warnings_cut_long_names_of_kernels() -> None:
    name = "void at::native::unrolled_elementwise_kernel<" + 40 * "at::native::BUnaryFunctor, " + ">"
    (text,) = findings(kernel(name, dram=3e9))
    assert text.startswith("void at::native::unrolled_elementwise_kernel<at::native::BUnary")
    assert text.index("… reaches 147%") < 80


@needs_measured
def test_the_picture_itself_says_why_points_are_above_their_ceiling(tmp_path: Path) -> None:
    """A training step of ResNet-50 on a V100: Winograd's GEMMs reach 228 % of the fp32 ceiling by counted FLOPs."""
    file = measured_file("traces/torch/kineto_resnet50_v100_no_workers.json.gz")
    roofmodel.plot(str(file)).save(tmp_path / "plot.svg")
    picture = re.sub(r"\s+", " ", (tmp_path / "plot.svg").read_text(encoding="utf-8"))
    assert "above its ceiling (mostly: if it runs a convolution, Winograd" in picture
