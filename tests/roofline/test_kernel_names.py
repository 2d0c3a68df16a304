"""Names of kernels in legends: short, and different for different kernels."""

from __future__ import annotations

import pytest

from roofmodel.roofline.kernel_names import legend_names, short_name

XMMA = (
    "void xmma_cudnn::gemm::kernel<xmma_cudnn::implicit_gemm::{kind}::Kernel_traits<xmma_cudnn::Ampere_hmma_tf32_traits"
    "<unsigned int, float>, xmma_cudnn::Cta_tile<xmma_cudnn::Ampere, (int)64, (int){tile}, (int)64>>>(T1::Params)"
)
GEMV = (
    "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, float, (bool)0, (int){variant}, "
    "cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<const __nv_bfloat16>, float>>(T13)"
)
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::{function}, Array<char *, 2>>(int)"
IMPLICIT = "sm80_xmma_fprop_implicit_gemm_{kind}_f32_nhwckrsc_nchw_tilesize{tile}_stage5_kernel_cudnn"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void cutlass::Kernel2<cutlass_80_s16816gemm_64x64>(Params)", "cutlass_80_s16816gemm_64x64"),
        (XMMA.format(kind="dgrad", tile=32), "xmma_cudnn::implicit_gemm::dgrad"),
        (GEMV.format(variant=7), "cublasGemv"),
        (ELEMENTWISE.format(function="CUDAFunctor_add<float>"), "elementwise (add)"),
        (
            ELEMENTWISE.format(function="<unnamed>::launch_clamp(at::TensorIteratorBase &)::[lambda() (instance 1)]"),
            "elementwise (launch_clamp)",
        ),
        ("void gemm<float, 128>(float const*)", "gemm"),
        ("cutlass::Kernel2", "cutlass::Kernel2"),  # no template arguments
        ("kernel<float, (int)3>(int)", "kernel"),
    ],
)
def test_a_wrapper_is_named_by_its_template_argument(name: str, short: str) -> None:
    assert short_name(name) == short


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (
            [XMMA.format(kind=kind, tile=tile) for kind, tile in (("dgrad", 32), ("dgrad", 128), ("wgrad", 32))],
            ["implicit_gemm::dgrad 32", "implicit_gemm::dgrad 128", "implicit_gemm::wgrad"],
        ),
        ([GEMV.format(variant=variant) for variant in (6, 7)], ["cublasGemv 6", "cublasGemv 7"]),
        (
            [ELEMENTWISE.format(function=f"CUDAFunctor_add<{kind}>") for kind in ("float", "long")],
            ["elementwise (add) float", "elementwise (add) long"],
        ),
        (
            [IMPLICIT.format(kind="tf32", tile=tile) for tile in ("64x32x64", "128x64x32")],
            ["sm80_xmma_fp… tilesize64x32x64", "sm80_xmma_f… tilesize128x64x32"],
        ),
        (
            [f"f<{a}, 0, {b}, {c}>(int)" for a, b, c in ((1, 2, 3), (1, 4, 3), (1, 4, 5), (2, 4, 5))],
            ["f 1 2", "f 1 4 3", "f 1 4 5", "f 2"],
        ),
        (["a(int)", "b(int)"], ["a", "b"]),
        (["f<1>", "f< 1 >"], ["f #1", "f #2"]),  # the same words
    ],
)
def test_equal_names_are_extended_until_they_differ(names: list[str], shown: list[str]) -> None:
    found = legend_names({name: short_name(name) for name in names}, 30)
    assert list(found.values()) == shown
    assert all(len(name) <= 30 for name in found.values())


def test_names_with_many_brackets_are_shortened_in_bounded_time() -> None:
    assert len(legend_names({name: short_name(name) for name in ("kernel<" * 30_000, "kernel<f(" * 30_000)}, 20)) == 2
