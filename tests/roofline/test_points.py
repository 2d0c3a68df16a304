"""Measured kernels as points: sums, intensities, fractions, unknown values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.profiles.kernel import Flops, Kernel, Traffic
from roofmodel.roofline.panel import Panel
from roofmodel.roofline.points import (
    base_name,
    category,
    group,
    incomplete,
    lecture_category,
    points,
    predicted_points,
)
from roofmodel.steps.estimate import estimate
from tests import kernels as make

A100 = Device.load("a100")  # 312 TFLOP/s tensor fp16, 19.5 fp32, 2039 GB/s


def kernel(name: str = "k", seconds: float | None = 1e-3, **more: Any) -> Kernel:
    return make.kernel(id="0", file="f", name=name, seconds=seconds, **more)


def test_a_kernel_at_half_of_its_memory_ceiling() -> None:
    # 1 GB in 1 ms of 2.039 GB possible: 1 / 2.039; 2 GFLOP per 1 GB: 2 FLOP/B, 2 TFLOP/s of 4.078 attainable
    k = kernel(flops=Flops(fp32=2e9, tensor_fp16=0), bytes=Traffic(dram=1e9))
    (point,) = points(group(make.table([k]), "name"), A100)
    assert point.intensity == 2
    assert point.flops_per_second == pytest.approx(2e12)
    assert point.attainable == pytest.approx(2 * 2039e9)
    assert point.fraction == pytest.approx(1 / 2.039)
    assert (point.bound, point.pipe, point.level, point.share) == ("memory", "fp32", "dram", 1)
    assert point.incomplete is False


def test_a_tensor_core_kernel_is_compared_with_the_peak_of_its_pipe() -> None:
    k = kernel(flops=Flops(fp32=1e9, tensor_fp16=156e9), bytes=Traffic(dram=1e6))
    (point,) = points(group(make.table([k]), "name"), A100)
    assert (point.bound, point.pipe) == ("compute", "tensor_fp16")
    assert point.fraction == pytest.approx(0.5)  # 156 GFLOP take 0.5 ms at 312 TFLOP/s; the fp32 FLOPs take less


def test_without_tensor_counters_a_point_is_a_lower_bound() -> None:
    k = kernel(flops=Flops(fp32=1e9), bytes=Traffic(dram=1e9))
    assert points(group(make.table([k]), "name"), A100)[0].incomplete is True


@pytest.mark.parametrize(
    ("flops", "lower_bound"),
    [
        (Flops(tensor_bf16=0), True),  # fp32 and fp16 are unknown
        (Flops(fp32=0, tensor_fp16=0), True),  # fp64, fp16 and other tensor types are unknown
        (Flops(fp64=0, fp32=0, fp16=0, tensor_low=0, tensor_high=0), False),  # no tensor instruction of any type
        (Flops(fp32=7, tensor_low=0, tensor_high=0), False),
        (Flops(fp32=7, tensor_low=512, tensor_high=8192), True),
        (Flops(tensor_fp16=7), True),
    ],
)
def test_flops_of_some_pipes_are_a_lower_bound(flops: Flops, lower_bound: bool) -> None:
    assert incomplete(flops, A100) is incomplete(flops, None) is lower_bound


def test_uncounted_flops_make_only_a_memory_bound_unknown() -> None:
    # of 2 ms, 1 GB takes 0.49 ms and 30 GFLOP of fp32 take 1.54 ms; uncounted tensor FLOPs only add compute time
    small = kernel(seconds=2e-3, flops=Flops(fp32=1e9), bytes=Traffic(dram=1e9))
    large = kernel(seconds=2e-3, flops=Flops(fp32=30e9), bytes=Traffic(dram=1e9))
    assert [points(group(make.table([k]), "name"), A100)[0].bound for k in (small, large)] == [
        None,
        "compute",
    ]


@pytest.mark.parametrize("name", ["nchwToNhwcKernel", "vectorized_elementwise_kernel", "cunn_SoftMaxForward"])
def test_a_kernel_that_only_moves_data_is_memory_bound_without_flop_counters(name: str) -> None:
    k = kernel(name, seconds=2e-3, bytes=Traffic(dram=1e9))  # 1 GB in 2 ms: 500 GB/s
    (point,) = points(group(make.table([k]), "name"), A100)
    assert (point.bound, point.incomplete, point.bytes_per_second) == ("memory", True, 5e11)


def test_each_collected_level_has_a_point() -> None:
    k = kernel(flops=Flops(fp32=1e9), bytes=Traffic(dram=1e8, l1=1e9))
    found = points(group(make.table([k]), "name"), A100)
    assert [(p.level, p.intensity) for p in found] == [("dram", 10), ("l1", 1)]


def test_the_infinity_cache_has_a_ceiling_wherever_dram_has_one() -> None:
    """Its bytes are in those of DRAM. L2 has a ceiling if it has points, L1 only with a stated bandwidth."""
    k = kernel(flops=Flops(fp32=2e9), bytes=Traffic(dram=1e9, l2=2e9, l1=3e9))

    def ceilings(hw: str, *kernels: Kernel) -> dict[str, float | None]:
        device = Device.load(hw)
        panel = Panel(device, "given", points(group(make.table([*kernels]), "name"), device))
        return {level.label: level.bandwidth for level in panel.levels}

    assert ceilings("mi300x") == {"DRAM": 5.3e12, "Infinity Cache": 17.2e12}
    assert [*ceilings("mi300x", k)] == ["DRAM", "Infinity Cache", "L2"]
    assert [*ceilings("mi250x", k)] == ["DRAM"]
    assert [*ceilings("a100")] == ["DRAM"]


def test_a_value_that_one_launch_lacks_is_unknown_for_the_group() -> None:
    both = [kernel(flops=Flops(fp32=1.0), bytes=Traffic(dram=1.0)), kernel(bytes=Traffic(dram=1.0))]
    (g,) = group(make.table(both), "name")
    assert g.flops.fp32 is None
    assert g.bytes.dram == 2
    assert group(make.table([kernel(seconds=None)]), "name")[0].seconds is None


def test_occupancy_is_weighted_by_time_and_registers_are_the_maximum() -> None:
    long, short = kernel(seconds=3e-3, occupancy=0.2, registers=64), kernel(occupancy=1.0, registers=128)
    (g,) = group(make.table([long, short]), "name")
    assert g.occupancy == pytest.approx((3 * 0.2 + 1 * 1.0) / 4)
    assert g.registers == 128
    (g,) = group(make.table([long, kernel()]), "name")
    assert (g.occupancy, g.registers) == (None, 64)


def test_a_group_without_time_or_bytes_has_no_point() -> None:
    assert points(group(make.table([kernel(seconds=None, bytes=Traffic(dram=1.0))]), "name"), A100) == []
    assert points(group(make.table([kernel(flops=Flops(fp32=1.0))]), "name"), A100) == []


def test_bounds_and_unpacked_counts_are_not_added_to_the_flops() -> None:
    k = kernel(flops=Flops(fp16=8, fp16_legacy=4, tensor_low=100, tensor_high=400), bytes=Traffic(dram=1))
    assert points(group(make.table([k]), "name"), A100)[0].intensity == 8


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(1e-9, 1)), min_size=1, max_size=20))
def test_groups_keep_the_time_and_the_launches(launches: list[tuple[str, float]]) -> None:
    kernels = [kernel(name, seconds) for name, seconds in launches]
    for by in ("name", "base", "nvtx", "category", "lecture"):
        groups = group(make.table(kernels), by)
        assert sum(g.seconds or 0 for g in groups) == pytest.approx(sum(seconds for _, seconds in launches))
        assert sum(g.invocations for g in groups) == len(launches)
        assert [g.seconds for g in groups] == sorted((g.seconds for g in groups), reverse=True)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("void gemm<(int)4, float>(float *, int)", "gemm"),
        ("void at::native::vectorized_kernel<4, F<float>, Array<char*, 3>>(int)", "at::native::vectorized_kernel"),
        ("volta_sgemm_128x64_nn", "volta_sgemm_128x64_nn"),
        ("f(g(h))", "f"),
        ("<>", "unnamed"),
        ("std::enable_if<!T7, void>::type internal::gemvx::kernel<int, (bool)0>(T13)", "internal::gemvx::kernel"),
        ("void std::enable_if_t<(A == 4), void> ns::scale<float>(float*)", "ns::scale"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD"),
        ("<unnamed>::saxpy_kernel(float, const float *)", "saxpy_kernel"),
        ("void at::(anonymous namespace)::max_pool<float, (int)4>(int)", "at::max_pool"),
    ],
)  # fmt: skip
def test_a_base_name_has_no_types_and_parameters(name: str, base: str) -> None:
    assert base_name(name) == base


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn", "GEMM"),
        ("void pytorch_flash::flash_fwd_kernel<...>", "attention"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "communication"),
        ("void cudnn::ops::nchwToNhwcKernel<float>", "layout"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>", "norm"),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>", "softmax"),
        ("Memcpy HtoD (Pageable -> Device)", "memory"),
        ("volta_scudnn_128x64_relu_small_nn_v1", "convolution"),
        ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(...)", "reduction"),
        ("void cudnn::gemm::computeOffsetsKernel(cudnn::gemm::ComputeOffsetsParams)", "layout"),
        ("void cudnn::cnn::im2col4d_kernel<float, int>", "layout"),
        ("void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>", "reduction"),
        ("void cudnn::pooling_fw_4d_kernel<float, float, cudnn::averpooling_func<float>>", "reduction"),
        ("void at::native::(anonymous namespace)::adaptive_average_pool<float>", "reduction"),
        ("void at::native::(anonymous namespace)::indexSelectLargeIndex<float>", "embedding"),
        ("my_own_kernel", "other"),
    ],
)
def test_a_category_follows_from_the_name(name: str, kind: str) -> None:
    assert category(name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("volta_sgemm_128x64_nn", "matrix-mul"),
        ("[CUDA memcpy HtoD]", "memory_mgmt"),
        ("ncclBroadcastRingLLKernel_copy_i8(ncclColl)", "memory_mgmt"),
        ("void at::native::reduce_kernel<512>", "custom_ops"),
        ("splitKreduce_kernel", "custom_ops"),  # the rule of the lecture
        ("_ZN2at6native12embedding", "other"),
        ("gemv2T_kernel_val", "other"),
        # as the slide's `CUDA memcpy` and `CUDA memset`, in PyTorch's spelling
        ("Memcpy HtoD (Pageable -> Device)", "memory_mgmt"),
        ("Memset (Device)", "memory_mgmt"),
    ],
)
def test_the_groups_of_the_lecture_follow_the_rule_of_its_slide(name: str, kind: str) -> None:
    assert lecture_category(name) == kind


def test_predicted_operators_are_exactly_on_their_ceilings() -> None:
    for point in predicted_points(estimate(hub.load("gpt2"), A100)):
        assert point.predicted
        assert point.fraction == pytest.approx(1)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("resnet-18", {"stage1.first": "convolution", "stem.pool": "reduction", "head.classifier": "head"}),
        ("convnext-tiny-224", {"stage1.depthwise": "convolution", "stage1.scale": "elementwise"}),
    ],
)
def test_operators_of_a_convolutional_network_have_the_categories_of_kernels(
    model: str, expected: dict[str, str]
) -> None:
    found = {p.name: p.category for p in predicted_points(estimate(hub.load(model), A100, phase="forward"))}
    assert {name: found[f"forward: {name}"] for name in expected} == expected
    assert not any(category.startswith("st") for category in found.values())  # stem, stage1, ...


def test_a_predicted_collective_is_bound_by_communication() -> None:
    bounds = {
        p.name: p.bound for p in predicted_points(estimate(hub.load("llama-2-7b-hf"), A100, phase="prefill", tp=4))
    }
    assert bounds["prefill: mlp.all_reduce"] == "communication"
    assert (bounds["prefill: mlp.gate"], bounds["prefill: norm.mlp"]) == ("compute", "memory")


@pytest.mark.parametrize("hw", ["a100", "v100", "h100"])
def test_no_predicted_operator_is_above_the_ceiling_of_its_pipe(hw: str) -> None:
    device = Device.load(hw)
    found = predicted_points(estimate(hub.load("gpt2"), device, seq=1024))
    assert any(p.name == "prefill: attention.flash" for p in found)
    for p in found:
        assert p.flops_per_second is not None
        assert p.attainable is not None
        assert p.intensity is not None
        ceiling = min(device.pipes[p.pipe].peak, device.bandwidth * p.intensity) if p.pipe else 0
        assert p.flops_per_second <= ceiling * (1 + 1e-9)
        assert p.attainable <= ceiling * (1 + 1e-9)


def test_attainable_performance_of_two_pipes_is_the_higher_peak() -> None:
    # both pipes at their peaks for 1 ms: 312 + 19.5 GFLOP
    k = kernel(flops=Flops(fp32=19.5e9, tensor_fp16=312e9), bytes=Traffic(dram=1e6))
    (point,) = points(group(make.table([k]), "name"), A100)
    assert point.fraction == pytest.approx(1)
    assert point.attainable == 312e12


def test_a_batch_norm_of_cudnn_is_a_norm_although_its_name_ends_in_a_layout() -> None:
    assert category("void cudnn::detail::bn_fw_tr_1C11_kernel_NCHW<float, float>") == "norm"
    assert category("at::native::distribution_elementwise_kernel<normal_kernel>") == "elementwise"
