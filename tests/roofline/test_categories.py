"""Categories of kernels, from names of real files."""

from __future__ import annotations

import pytest

from roofmodel.roofline.categories import base_name, category
from tests.operations import operations

GEMM_WITH_NOPERMUTE = (
    "void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::MmaPipelined<cutlass::gemm::GemmShape"
    "<(int)128, (int)128, (int)32>, cutlass::transform::threadblock::PredicatedTileIterator<cutlass::MatrixShape"
    "<(int)128, (int)32>, float, cutlass::layout::RowMajor, (int)1, cutlass::layout::NoPermute>, "
    "cutlass::NumericArrayConverter<cutlass::half_t, float, (int)32>>>>(T1::Params)"
)
CASES = {
    # The function's name precedes its template arguments; of a wrapper, the outer arguments precede the inner ones.
    GEMM_WITH_NOPERMUTE: "GEMM",
    "void cutlass::Kernel<cutlass::conv::kernel::ImplicitGemmConvolution<layout::NoPermute>>(T1)": "convolution",
    "void xmma_cudnn::gemm::kernel<xmma_cudnn::implicit_gemm::dgrad::Kernel_traits<float>>(T1)": "convolution",
    "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<cutlass::gemm::Gemm>>>(T1)": "attention",
    "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS_9NoPermuteEEEEvT_": "convolution",
    "void at::native::reduce_kernel<512, 1, ReduceOp<float, at::native::NormTwoOps<float>>>(T1)": "reduction",
    "void reduce_1Block_kernel<float, 128, 7, cublasGemvTensorStridedBatched<float>>(float*)": "reduction",
    "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, (bool)0>(T13)": "GEMM",
    # Composable Kernel: `cshuffle` is how a GEMM or a convolution writes its result.
    "void ck::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle<ck::GridwiseGemm_xdl_cshuffle<int>>(T1)": "convolution",
    "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<int>>(T1)": "GEMM",
    # One block's or warp's sum is no collective.
    "void block_all_reduce_sum_f32_f32_kernel<(int)256>(float *, float *, int)": "reduction",
    "void WarpAllReduceKernel<SumOp<float>>(float *)": "reduction",
    "void vllm::cross_device_reduce_1stage<__half, 2>(T1)": "communication",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": "communication",
    # gpt-oss in vLLM (triton_kernels, TensorRT-LLM) and other experts
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu": "GEMM",
    "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_bA32_bB32_t128x8x512_s3_et128x8_swiGlu_dynBatch_sm100f": "GEMM",
    "void marlin_moe_wna16::Marlin<__nv_bfloat16, 8>(T1)": "GEMM",
    "fused_moe_kernel": "GEMM",
    "_finalize_matmul_scatter_bf16": "reduction",  # adds the experts' outputs
    "void tensorrt_llm::kernels::finalizeMoeRoutingKernel<float>(T1)": "reduction",
    "_topk_forward": "reduction",
    "kernel_unified_attention_3d": "attention",
    "_fwd_grouped_kernel_stage1": "attention",
    # Inductor lists the fused operators, also those of neighbors.
    "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_transpose_4": "reduction",
    "triton_per_fused_native_layer_norm_transpose_4": "norm",
    "triton_per_fused__softmax_transpose_5": "softmax",
    "triton_poi_fused_convolution_relu_3": "elementwise",
    "triton_poi_fused__scaled_dot_product_flash_attention_add_transpose_3": "elementwise",
    "triton_poi_fused_clone_transpose_1": "layout",
    "triton_poi_fused_embedding_0": "embedding",
    "triton_tem_fused_addmm_relu_t_12": "GEMM",
    "triton_tem_fused_flex_attention_0": "attention",
    # Words inside other words
    "void at::native::convert_kernel<float>(T1)": "elementwise",
    "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)": "elementwise",
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(T1)": "memory",
    "void conv_transpose2d_kernel<float>(float*)": "convolution",
    "_ZL9mul_mat_qIL9ggml_type2ELi128ELb1EEvPKcS2_": "GEMM",  # llama.cpp
}


@pytest.mark.parametrize("name", CASES)
def test_the_name_of_a_function_gives_its_category_before_its_template_arguments(name: str) -> None:
    assert category(name) == CASES[name]


def test_a_hadamard_transform_is_no_optimizer() -> None:
    assert category("fast_hadamard_transform_kernel") != "optimizer"


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_ZN3sgl4copyILi4EEEvv", "sgl::copy"),
        ("_Z4copyIfEvPT_S1_i", "copy"),
        ("_Z3sum5Plain", "sum"),  # its argument is a class
        ("_ZN12_GLOBAL__N_14copyIfEEvPT_", "copy"),
        ("_ZN7sgl_hip10activation11act_and_mulI14__hip_bfloat16EEvPT_.kd", "sgl_hip::activation::act_and_mul"),
        ("_Zebra", "_Zebra"),
    ],
)  # fmt: skip
def test_the_base_of_a_mangled_name_is_what_c_filt_prints_before_the_template_arguments(mangled: str, name: str):
    assert base_name(mangled) == name


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("f<", ">"), ("()", "")])
def test_the_operations_for_a_name_of_brackets_grow_with_their_number(opening: str, closing: str) -> None:
    def needed(number: int) -> int:
        return operations(lambda: base_name(opening * number + closing * number))

    assert needed(8000) < 5 * needed(2000)
