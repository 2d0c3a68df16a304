"""Kinds of work by names of kernels and ranges from real files, and short names for legends that differ."""

from __future__ import annotations

import pytest

from roofmodel.roofline.naming import (
    Hint,
    anchor,
    auxiliary_role,
    direction,
    display_name,
    hint,
    is_expert_gemm,
    legend_names,
    short_name,
    words,
)
from tests.compare import traces

ANCHORS = {
    "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn": "GEMM",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute": "GEMM",
    "nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT": "GEMM",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x256_MI16x16x1": "GEMM",
    "void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, false>": "GEMM",
    "triton_tem_fused_mm_3": "GEMM",
    "fused_moe_kernel": "GEMM",
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<T>>>": "attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128": "attention",
    "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(PosEncodingMode)0, 2u, 4u>": "attention",
    "void mmha::masked_multihead_attention_kernel<uint16_t, Params, 128>": "attention",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)": "attention",
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<T>": "attention",
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x64x32": "convolution",
    "void cudnn::cnn::wgrad_alg1_engine<float, float, 128, 5, 5, 3, 3, 3>": "convolution",
    "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 16>>": "scan",
    **dict.fromkeys(
        (
            "chunk_gated_delta_rule_fwd_kernel_h_blockdim64",
            "chunk_fwd_kernel_o",
            "l2norm_fwd_kernel",
            "chunk_local_cumsum_scalar_kernel",
            "chunk_scaled_dot_kkt_fwd_kernel",
            "merge_16x16_to_64x64_inverse_kernel",
            "recompute_w_u_fwd_kernel",
            "fused_recurrent_gated_delta_rule_fwd_kernel",
            "chunk_kda_fwd_kernel_intra_sub_intra",
            "chunk_bwd_kernel_dqkwg",
            "prepare_wy_repr_bwd_kernel",
        ),
        "scan",
    ),  # flash-linear-attention
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>": None,  # writes the KV cache
    "triton_per_fused_add_mm_native_layer_norm_1": None,  # a fused elementwise kernel, although its name contains mm
    "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>": None,
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": None,
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false>": None,
}


@pytest.mark.parametrize("name", ANCHORS)
def test_kernel_names_give_the_anchor_kind(name: str) -> None:
    assert anchor(name) == ANCHORS[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>", {"add", "norm"}),
        ("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>", {"activation", "mul"}),
        ("triton_per_fused_add_native_layer_norm_1", {"add", "norm", "elementwise"}),
        (traces.ADD, {"add", "elementwise"}),
        (traces.COPY, {"copy", "elementwise"}),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", set()),
        ("kernel", set()),
    ],
)
def test_the_name_of_a_fused_kernel_gives_all_its_kinds_of_work(name: str, expected: set[str]) -> None:
    assert words(name) == expected


def test_kernel_names_give_direction_and_auxiliary_role() -> None:
    assert direction("void layer_norm_grad_input_kernel_vectorized<float>") == "backward"
    assert direction("void cutlass_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_64x64>") == "weight"
    assert direction("nvjet_tst_64x8_64x16") is None
    assert auxiliary_role(traces.SPLIT_K) == "finish"
    assert auxiliary_role("void cudnn::ops::nchwToNhwcKernel<float>") == "layout"
    assert auxiliary_role("cudnn::winograd_nonfused::winogradForwardOutput4x4") == "transform"
    assert is_expert_gemm("void cutlass::gemm::kernel::MoeFCGemm<T>")
    assert not is_expert_gemm(traces.GEMM)


def test_generic_kernels_are_displayed_with_their_function() -> None:
    assert display_name(traces.COPY) == "unrolled_elementwise_kernel (direct_copy)"
    assert display_name(traces.ARGMAX) == "reduce_kernel (ArgMax)"
    assert display_name("void vllm::rms_norm_kernel<c10::BFloat16>(T)") == "vllm::rms_norm_kernel"


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (("model", "model.layers.3", "model.layers.3.self_attn", "model.layers.3.self_attn.q_proj"),
         Hint(3, "attention", frozenset(["qkv", "q", "k", "v"]))),
        (("transformer.h.11.mlp.c_proj",), Hint(11, "mlp", frozenset({"down"}))),
        (("transformer.h.0.attn.c_proj",), Hint(0, "attention", frozenset({"output"}))),
        (("bert.encoder.layer.2.attention.output.dense",), Hint(2, "attention", frozenset({"output"}))),
        (("bert.encoder.layer.2.output.dense",), Hint(2, None, frozenset({"down"}))),
        (("decoder", "decoder.block.1"), Hint(1)),
        (("step 17", "forward", "layer 4", "attention"), Hint(4, "attention", stage="forward")),
        (("iteration 3", "backward"), Hint(stage="backward")),
        (("batch 3",), Hint()),
        (("lm_head",), Hint(None, "head", frozenset({"logits"}))),
        (("ProfilerStep#6",), Hint()),
    ],
)  # fmt: skip
def test_ranges_give_layer_place_and_operator(ranges: tuple[str, ...], expected: Hint) -> None:
    assert hint(ranges) == expected


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
