"""Synthetic traces in which the operators of each kernel are known.

Kernel names are shortened names of the frameworks. A launch has the form (name, microseconds, truth): truth is the name
of an operator, several names for a fused kernel, or "" for a kernel without an operator.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple


class Launch(NamedTuple):
    """A kernel, its time, and the operators that it computes."""

    name: str
    microseconds: float
    truth: str
    ranges: tuple[str, ...] = ()
    call: tuple[str, Sequence[Sequence[int]]] | None = None  # aten::mm and the shapes of its arguments


def write(path: Path, launches: Iterable[Launch], gap: float = 1.0, device: int = 0, one_call: bool = False) -> str:
    """A Kineto trace of consecutive launches, `gap` microseconds apart; with `one_call`, all belong to one call."""
    events: list[dict[str, object]] = []
    now = 1000.0
    for i, launch in enumerate(launches):
        arguments = {"device": device, "stream": 7, "correlation": i, "grid": [1, 1, 1], "block": [128, 1, 1]}
        if launch.call:
            number = 1 if one_call else i + 1
            arguments["External id"] = number
            dims = [list(shape) for shape in launch.call[1]]
            events.append(
                {"ph": "X", "cat": "cpu_op", "name": launch.call[0], "pid": 1, "tid": 1, "ts": now - 900, "dur": 0.5,
                 "args": {"External id": number, "Input Dims": dims, "Input type": ["float"] * len(dims)}}
            )  # fmt: skip
        events.append(
            {"ph": "X", "cat": "kernel", "name": launch.name, "pid": 0, "tid": 7, "ts": now,
             "dur": launch.microseconds, "args": arguments}
        )  # fmt: skip
        events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": now - 900.0,
             "dur": 0.5, "args": {"correlation": i}}
        )  # fmt: skip
        for label in launch.ranges:
            events.append(
                {"ph": "X", "cat": "user_annotation", "name": label, "pid": 1, "tid": 1, "ts": now - 900.4, "dur": 0.8}
            )
        now += launch.microseconds + gap
    properties = [{"id": device, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108, "computeMajor": 8, "computeMinor": 0}]
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}))
    return str(path)


# --- Names ------------------------------------------------------------------------------------------

GEMM = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
GEMM_SMALL = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_64x2_tn_align8>(Params)"
GEMV = "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __half, __half, __half, float>"
SPLIT_K = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __half, float, __half, false>(cublasSplitKParams)"
FLASH = (
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)"
)
FLASH_SPLIT = "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(Flash_fwd_params)"
FLASH_COMBINE = "void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(Flash_fwd_params)"
LAYER_NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float>(int, float)"


def elementwise(functor: str, kind: str = "vectorized_elementwise_kernel<4, ") -> str:
    """A generic PyTorch kernel that applies a function to every element."""
    return f"void at::native::{kind}at::native::{functor}, std::array<char*, 3ul>>(int, at::native::{functor})"


ADD = elementwise("CUDAFunctor_add<c10::Half>")
MUL = elementwise("BinaryFunctor<c10::Half, c10::Half, c10::Half, at::native::binary_internal::MulFunctor<float>>")
COPY = elementwise("direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}", "unrolled_elementwise_kernel<")
GELU = elementwise("GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}")
SILU = elementwise("(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}")
NEG = elementwise("neg_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}")
POW = elementwise("(anonymous namespace)::pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase&)")
RSQRT = elementwise("rsqrt_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}")
ADD_EPS = elementwise("CUDAFunctorOnSelf_add<float>")
MEAN = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>>>(R)"
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 4, 64>(T)"
GATHER = "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::Half, long, unsigned int, 2>(T)"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<c10::Half, c10::Half, float, 10, false>(T)"
ARGMAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>(R)"


# --- Programs ---------------------------------------------------------------------------------------


def gpt2_eager(layers: int, microseconds: float = 40.0) -> Iterator[Launch]:
    """Hugging Face's GPT-2 in eager mode, with PyTorch's flash attention."""
    yield Launch(GATHER, 4, "embedding.token")
    yield Launch(GATHER, 4, "embedding.position")
    yield Launch(ADD, 3, "embedding.add_position")
    for _ in range(layers):
        yield Launch(LAYER_NORM, 5, "norm.attention")
        yield Launch(GEMM, microseconds, "attention.qkv")
        yield Launch(FLASH, microseconds, "attention.flash")
        yield Launch(GEMM_SMALL, microseconds / 2, "attention.output")
        yield Launch(ADD, 3, "residual.attention")
        yield Launch(LAYER_NORM, 5, "norm.mlp")
        yield Launch(GEMM, microseconds, "mlp.up")
        yield Launch(GELU, 6, "mlp.activation")
        yield Launch(GEMM, microseconds, "mlp.down")
        yield Launch(ADD, 3, "residual.mlp")
    yield Launch(LAYER_NORM, 5, "norm.final")
    yield Launch(GEMV, 60, "head.logits")


def rms_norm(position: str) -> Iterator[Launch]:
    """Hugging Face's RMSNorm: kernels for the square, the mean, the root and two multiplications, and casts."""
    yield Launch(COPY, 3, "")
    for name in (POW, MEAN, ADD_EPS, RSQRT, MUL):
        yield Launch(name, 3, f"norm.{position}")
    yield Launch(COPY, 3, "")
    yield Launch(MUL, 3, f"norm.{position}")


def llama_eager(layers: int, gemm: str, attention: Sequence[str], microseconds: float) -> Iterator[Launch]:
    """Hugging Face's Llama in eager mode: a concatenated KV cache, a rotary embedding of ten kernels."""
    yield Launch(GATHER, 4, "embedding.token")
    for _ in range(layers):
        yield from rms_norm("attention")
        for name in "qkv":
            yield Launch(gemm, microseconds / 3, f"attention.{name}")
        for _ in range(2):
            yield Launch(MUL, 3, "attention.rotary")
            yield Launch(NEG, 3, "attention.rotary")
            yield Launch(CAT, 3, "")
            yield Launch(MUL, 3, "attention.rotary")
            yield Launch(ADD, 3, "attention.rotary")
        yield Launch(CAT, 8, "")
        yield Launch(CAT, 8, "")
        for name in attention:
            yield Launch(name, microseconds / len(attention), "attention.flash")
        yield Launch(gemm, microseconds / 2, "attention.output")
        yield Launch(ADD, 3, "residual.attention")
        yield from rms_norm("mlp")
        yield Launch(gemm, microseconds, "mlp.gate")
        yield Launch(SILU, 5, "mlp.activation")
        yield Launch(gemm, microseconds, "mlp.up")
        yield Launch(MUL, 5, "mlp.activation")
        yield Launch(gemm, microseconds, "mlp.down")
        yield Launch(ADD, 3, "residual.mlp")
    yield from rms_norm("final")
    yield Launch(gemm, 2 * microseconds, "head.logits")
    yield Launch(ARGMAX, 20, "")


def vllm_decode(layers: int, microseconds: float) -> Iterator[Launch]:
    """vLLM: fused projections, norms that add the residual, paged attention in two kernels, split-K."""
    norm = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16*, float, int, int)"
    yield Launch(
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long)", 4, "embedding.token"
    )
    yield Launch("void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, float, int, int)", 4, "norm.attention")
    for layer in range(layers):
        yield Launch("nvjet_tst_64x8_64x16_2x4_h_bz_TNT", microseconds / 2, "attention.q attention.k attention.v")
        yield Launch("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)", 4, "attention.rotary")
        yield Launch("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(T)", 3, "")
        yield Launch(FLASH_SPLIT, microseconds, "attention.flash")
        yield Launch(FLASH_COMBINE, 3, "attention.flash")
        yield Launch("nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT", microseconds / 2, "attention.output")
        yield Launch(SPLIT_K, 3, "attention.output")
        yield Launch(norm, 4, "residual.attention norm.mlp")
        yield Launch("nvjet_tst_128x8_64x12_2x1_v_bz_TNT", microseconds * 2, "mlp.gate mlp.up")
        yield Launch("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>(T)", 5, "mlp.activation")
        yield Launch("nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT", microseconds, "mlp.down")
        yield Launch(SPLIT_K, 3, "mlp.down")
        yield Launch(norm, 4, f"residual.mlp {'norm.final' if layer == layers - 1 else 'norm.attention'}")
    yield Launch("nvjet_tst_192x8_64x8_4x1_v_bz_TNN", microseconds * 3, "head.logits")
    yield Launch("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>(T)", 30, "")
    yield Launch(ARGMAX, 20, "")


def compiled_gpt2(layers: int, microseconds: float) -> Iterator[Launch]:
    """torch.compile: Inductor fuses the elementwise operators between GEMMs and lists them in the kernel name."""
    yield Launch(
        "triton_per_fused_add_embedding_native_layer_norm_0", 6,
        "embedding.token embedding.position embedding.add_position norm.attention",
    )  # fmt: skip
    for layer in range(layers):
        after = "norm.final" if layer == layers - 1 else "norm.attention"
        yield Launch(GEMM, microseconds, "attention.qkv")
        yield Launch(FLASH, microseconds, "attention.flash")
        yield Launch(GEMM_SMALL, microseconds / 2, "attention.output")
        yield Launch("triton_per_fused_add_native_layer_norm_1", 5, "residual.attention norm.mlp")
        yield Launch(GEMM, microseconds, "mlp.up")
        yield Launch("triton_poi_fused_add_mul_pow_tanh_2", 6, "mlp.activation")
        yield Launch(GEMM, microseconds, "mlp.down")
        yield Launch("triton_per_fused_add_native_layer_norm_3", 5, f"residual.mlp {after}")
    yield Launch(GEMV, 60, "head.logits")


def mixtral_vllm(layers: int, microseconds: float) -> Iterator[Launch]:
    """vLLM's MoE: a router, two launches of the fused experts, and the sorting around them."""
    yield Launch("void at::native::vectorized_gather_kernel<16, long>(char*)", 4, "embedding.token")
    norm = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)"
    yield Launch("void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)", 4, "norm.attention")
    for layer in range(layers):
        yield Launch(GEMM, microseconds / 2, "attention.q attention.k attention.v")
        yield Launch("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)", 4, "attention.rotary")
        yield Launch("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(T)", 3, "")
        yield Launch("kernel_unified_attention_2d", microseconds, "attention.flash")
        yield Launch(GEMM, microseconds / 2, "attention.output")
        yield Launch(norm, 4, "residual.attention norm.mlp")
        yield Launch(GEMM_SMALL, 6, "mlp.router")
        yield Launch("void vllm::moe::topkGatingSoftmax<4, 8, 4, 16>(float const*)", 4, "mlp.choose")
        yield Launch("void vllm::moe::moe_align_block_size_kernel<int>(int*)", 4, "mlp.choose")
        yield Launch("fused_moe_kernel", 4 * microseconds, "mlp.expert_gate_up")
        yield Launch("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>(T)", 5, "mlp.expert_activation")
        yield Launch("fused_moe_kernel", 2 * microseconds, "mlp.expert_down")
        yield Launch("void vllm::moe::moe_sum_kernel<c10::BFloat16, 2>(T)", 4, "mlp.combine")
        yield Launch(norm, 4, f"residual.mlp {'norm.final' if layer == layers - 1 else 'norm.attention'}")
    yield Launch(GEMM, microseconds, "head.logits")


def gpt2_training(layers: int, microseconds: float) -> Iterator[Launch]:
    """A step of PyTorch: forward, backward through autograd, a fused Adam."""
    yield from gpt2_eager(layers, microseconds)
    yield Launch(
        "void (anonymous namespace)::cunn_SoftMaxForward<8, c10::Half, float, LogSoftMaxForward>(T)", 90, "head.loss"
    )
    yield Launch(
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>(T)", 8, "head.loss"
    )
    yield Launch(
        "void at::native::(anonymous namespace)::nll_loss_backward_reduce_cuda_kernel_2d<float>(T)", 8, "head.loss.grad"
    )
    yield Launch("void at::native::(anonymous namespace)::cunn_SoftMaxBackward<8, c10::Half>(T)", 90, "head.loss.grad")
    yield from gemm_gradients("head.logits", 120)
    yield from norm_gradients("norm.final")
    reduce = (
        "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::Half, at::native::sum_functor<float>>>(R)"
    )
    for _ in range(layers):
        yield from gemm_gradients("mlp.down", microseconds)
        yield Launch(reduce, 5, "mlp.down.grad_B_down")
        yield Launch(elementwise("GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&)"), 8, "mlp.activation.grad")
        yield from gemm_gradients("mlp.up", microseconds)
        yield Launch(reduce, 5, "mlp.up.grad_B_up")
        yield from norm_gradients("norm.mlp")
        yield Launch(ADD, 3, "norm.mlp.grad_sum_x")
        yield from gemm_gradients("attention.output", microseconds / 2)
        yield Launch(reduce, 5, "attention.output.grad_B_out")
        for part in ("dot_do_o", "dq_dk_dv_loop_seqk_parallel", "convert_dq"):
            yield Launch(
                f"void pytorch_flash::flash_bwd_{part}_kernel<Flash_bwd_kernel_traits<64>>(T)",
                20,
                "attention.flash.grad",
            )
        yield from gemm_gradients("attention.qkv", microseconds)
        yield Launch(reduce, 5, "attention.qkv.grad_B_qkv")
        yield from norm_gradients("norm.attention")
        yield Launch(ADD, 3, "norm.attention.grad_sum_x")
    yield Launch(
        "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<c10::Half>(T)",
        9,
        "embedding.position.grad_weight",
    )
    yield Launch(
        "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<c10::Half>(T)",
        9,
        "embedding.token.grad_weight",
    )
    for _ in range(6):
        yield Launch(
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(T)",
            50,
            "optimizer.step",
        )


def gemm_gradients(operator: str, microseconds: float) -> Iterator[Launch]:
    """The gradients of a GEMM's input and weight, in autograd's order."""
    yield Launch(GEMM.replace("_tn", "_nn"), microseconds, f"{operator}.grad_input")
    yield Launch(GEMM.replace("_tn", "_nt"), microseconds, f"{operator}.grad_weight")


def norm_gradients(operator: str) -> Iterator[Launch]:
    """The gradients of a layer norm's input, gain and bias."""
    yield Launch(
        "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::Half>(T)",
        7,
        f"{operator}.grad",
    )
    yield Launch(
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<c10::Half>(T)",
        9,
        f"{operator}.grad",
    )


def eager_attention(layers: int, microseconds: float) -> Iterator[Launch]:
    """GPT-2 with attention as two GEMMs, a mask and a softmax."""
    for launch in gpt2_eager(layers, microseconds):
        if launch.truth != "attention.flash":
            yield launch
            continue
        yield Launch(GEMM_SMALL, microseconds, "attention.scores")
        yield Launch(MUL, 9, "attention.softmax")
        yield Launch(
            elementwise("where_kernel_impl(at::TensorIterator&)::{lambda()#1}", "elementwise_kernel<128, 4, "),
            9,
            "attention.softmax",
        )
        yield Launch(SOFTMAX, 12, "attention.softmax")
        yield Launch(GEMM_SMALL, microseconds, "attention.mix")


def hf_experts(layers: int, experts: int, microseconds: float) -> Iterator[Launch]:
    """Hugging Face's MoE in eager mode: a loop over experts, with a gather and a scatter for each."""
    yield Launch(GATHER, 4, "embedding.token")
    for _ in range(layers):
        yield Launch("void at::native::(anonymous namespace)::rms_norm_kernel<c10::Half>(T)", 4, "norm.attention")
        for name in "qkv":
            yield Launch(GEMM, microseconds / 3, f"attention.{name}")
        yield Launch("void rotary_kernel<c10::Half>(T)", 4, "attention.rotary")
        yield Launch(FLASH, microseconds, "attention.flash")
        yield Launch(GEMM, microseconds / 2, "attention.output")
        yield Launch(ADD, 3, "residual.attention")
        yield Launch("void at::native::(anonymous namespace)::rms_norm_kernel<c10::Half>(T)", 4, "norm.mlp")
        yield Launch(GEMM_SMALL, 6, "mlp.router")
        yield Launch(SOFTMAX, 4, "")
        yield Launch("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(T)", 9, "mlp.choose")
        for _ in range(experts):
            yield Launch("void at::native::(anonymous namespace)::index_elementwise_kernel<128, 4>(T)", 4, "")
            yield Launch(GEMM, microseconds, "mlp.expert_gate_up")
            yield Launch(SILU, 3, "mlp.expert_activation")
            yield Launch(MUL, 3, "mlp.expert_activation")
            yield Launch(GEMM, microseconds, "mlp.expert_down")
            yield Launch(
                "void at::native::(anonymous namespace)::indexAddLargeIndex<c10::Half, long>(T)", 5, "mlp.combine"
            )
        yield Launch(ADD, 3, "residual.mlp")
    yield Launch("void at::native::(anonymous namespace)::rms_norm_kernel<c10::Half>(T)", 4, "norm.final")
    yield Launch(GEMM, microseconds, "head.logits")


def megatron(layers: int, microbatches: int, microseconds: float) -> Iterator[Launch]:
    """Megatron-LM with Transformer Engine: gradients accumulate over microbatches, then a reduction and Adam."""
    norm = "void transformer_engine::normalization::ln_fwd_tuned_kernel<Kernel_traits<c10::BFloat16>>(FwdParams)"
    back = "void transformer_engine::normalization::ln_bwd_tuned_kernel<Kernel_traits<c10::BFloat16>>(BwdParams)"
    finish = (
        "void transformer_engine::normalization::ln_bwd_finalize_tuned_kernel<Kernel_traits<c10::BFloat16>>(BwdParams)"
    )
    gemm = "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT"
    bias = "void transformer_engine::bias_dropout_add_fused_kernel<c10::BFloat16>(T)"
    for _ in range(microbatches):
        yield Launch(GATHER, 4, "embedding.token")
        yield Launch(GATHER, 4, "embedding.position")
        yield Launch(ADD, 3, "embedding.add_position")
        for _ in range(layers):
            yield Launch(norm, 5, "norm.attention")
            yield Launch(gemm, microseconds, "attention.qkv")
            yield Launch(
                "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128",
                microseconds,
                "attention.flash",
            )
            yield Launch(gemm, microseconds / 2, "attention.output")
            yield Launch(bias, 5, "residual.attention")
            yield Launch(norm, 5, "norm.mlp")
            yield Launch(gemm, microseconds, "mlp.up")
            yield Launch("void transformer_engine::gelu_kernel<c10::BFloat16>(T)", 6, "mlp.activation")
            yield Launch(gemm, microseconds, "mlp.down")
            yield Launch(bias, 5, "residual.mlp")
        yield Launch(norm, 5, "norm.final")
        yield Launch(gemm, 4 * microseconds, "head.logits")
        yield Launch("void fused_vocab_parallel_cross_entropy_kernel<float>(T)", 60, "head.loss")
        yield Launch("void fused_vocab_parallel_cross_entropy_backward_kernel<float>(T)", 60, "head.loss.grad")
        yield Launch(gemm, 4 * microseconds, "head.logits.grad_input")
        yield Launch(gemm, 4 * microseconds, "head.logits.grad_weight")
        yield Launch(back, 7, "norm.final.grad")
        yield Launch(finish, 4, "norm.final.grad")
        for _ in range(layers):
            for operator in ("mlp.down", "mlp.up"):
                if operator == "mlp.up":
                    yield Launch(
                        "void transformer_engine::dgelu_dbias_kernel_backward<c10::BFloat16>(T)",
                        6,
                        "mlp.activation.grad",
                    )
                yield Launch(gemm, microseconds, f"{operator}.grad_input")
                yield Launch(gemm, microseconds, f"{operator}.grad_weight")
            yield Launch(back, 7, "norm.mlp.grad")
            yield Launch(finish, 4, "norm.mlp.grad")
            yield Launch(ADD, 3, "norm.mlp.grad_sum_x")
            yield Launch(gemm, microseconds / 2, "attention.output.grad_input")
            yield Launch(gemm, microseconds / 2, "attention.output.grad_weight")
            yield Launch(
                "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128",
                2 * microseconds,
                "attention.flash.grad",
            )
            yield Launch(gemm, microseconds, "attention.qkv.grad_input")
            yield Launch(gemm, microseconds, "attention.qkv.grad_weight")
            yield Launch(back, 7, "norm.attention.grad")
            yield Launch(finish, 4, "norm.attention.grad")
            yield Launch(ADD, 3, "norm.attention.grad_sum_x")
        yield Launch(
            "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<c10::BFloat16>(T)",
            9,
            "embedding.token.grad_weight",
        )
    yield Launch("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 900, "")
    yield Launch(
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctorMaster<float>>(long)", 300, "optimizer.step"
    )


def tensorrt_llm_decode(layers: int, microseconds: float) -> Iterator[Launch]:
    """TensorRT-LLM: fused projections; masked multi-head attention applies rotary embedding to K and stores it."""
    norm = "void tensorrt_llm::kernels::generalRmsNorm<__half, __half, __half, false>(T)"
    yield Launch(
        "void tensorrt_llm::kernels::lookup_kernel<__half, int>(__half*, int const*, __half const*)",
        4,
        "embedding.token",
    )
    for _ in range(layers):
        yield Launch(norm, 4, "norm.attention")
        yield Launch(
            "sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize96x64x32_stage5_warpsize2x2x1_tensor16x8x16_kernel",
            microseconds / 2,
            "attention.q attention.k attention.v",
        )
        yield Launch(
            "void mmha::masked_multihead_attention_kernel<uint16_t, uint16_t, Multihead_attention_params, 128>(T)",
            microseconds,
            "attention.flash",
        )
        yield Launch(
            "sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize32x32x64_stage6_kernel", microseconds / 2, "attention.output"
        )
        yield Launch("__myl_Add_0xabcdef0123456789", 4, "residual.attention")
        yield Launch(norm, 4, "norm.mlp")
        yield Launch("sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize96x64x32_stage5_kernel", microseconds, "mlp.gate")
        yield Launch("sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize96x64x32_stage5_kernel", microseconds, "mlp.up")
        yield Launch("__myl_SiluMul_0x0123456789abcdef", 5, "mlp.activation")
        yield Launch("sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize32x32x64_stage6_kernel", microseconds, "mlp.down")
        yield Launch("__myl_Add_0xabcdef0123456789", 4, "residual.mlp")
    yield Launch(norm, 4, "norm.final")
    yield Launch(
        "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_kernel", 3 * microseconds, "head.logits"
    )
    yield Launch("void tensorrt_llm::kernels::topKSamplingKernel<float>(T)", 30, "")


def marked(launches: Iterable[Launch], layers: int) -> Iterator[Launch]:
    """Launches of GPT-2 in the ranges of `roofmodel.nvtx.mark`, with uninformative kernel names."""
    modules = {
        "embedding.token": "wte",
        "embedding.position": "wpe",
        "norm.attention": "h.{}.ln_1",
        "attention.qkv": "h.{}.attn.c_attn",
        "attention.flash": "h.{}.attn",
        "attention.output": "h.{}.attn.c_proj",
        "residual.attention": "h.{}",
        "norm.mlp": "h.{}.ln_2",
        "mlp.up": "h.{}.mlp.c_fc",
        "mlp.activation": "h.{}.mlp.act",
        "mlp.down": "h.{}.mlp.c_proj",
        "residual.mlp": "h.{}",
        "norm.final": "ln_f",
    }
    layer = -1
    for launch in launches:
        layer = (layer + 1) % layers if launch.truth == "norm.attention" else layer
        path = "lm_head"
        if launch.truth in modules:
            path = f"transformer.{modules[launch.truth]}".format(layer)
        parts = path.split(".")
        nested = tuple(".".join(parts[: n + 1]) for n in range(len(parts)))
        yield launch._replace(ranges=("GPT2LMHeadModel", *nested))


def deepseek_vllm(layers: int, microseconds: float, shared_first: bool) -> Iterator[Launch]:
    """vLLM's DeepSeek V2: absorbed MLA, and shared experts before the router or after the routed experts."""
    norm = "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)"
    activate = "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>(T)"
    yield Launch("void at::native::vectorized_gather_kernel<16, long>(char*)", 4, "embedding.token")
    yield Launch("void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)", 4, "norm.attention")
    for layer in range(layers):
        yield Launch("nvjet_tst_64x8_64x16_2x4_h_bz_TNT", microseconds, "attention.q")
        yield Launch("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", microseconds / 2, "attention.kv_down")
        yield Launch("void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)", 4, "attention.kv_norm")
        yield Launch(
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_nn_bmm>(T)", 6, "attention.absorb_k"
        )
        yield Launch("void vllm::rotary_embedding_kernel<c10::BFloat16, false>(long const*)", 4, "attention.rotary")
        yield Launch("void vllm::concat_and_cache_mla_kernel<__nv_bfloat16>(T)", 3, "")
        yield Launch(
            "void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8>>(T)", 9, "attention.flash"
        )
        yield Launch("void flash_fwd_splitkv_mla_combine_kernel<cutlass::bfloat16_t>(T)", 3, "attention.flash")
        yield Launch(
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_nn_bmm>(T)", 6, "attention.absorb_v"
        )
        yield Launch("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", microseconds, "attention.output")
        yield Launch(norm, 4, "residual.attention norm.mlp")
        if layer == 0:
            yield Launch("nvjet_tst_128x8_64x12_2x1_v_bz_TNT", 4 * microseconds, "mlp.gate mlp.up")
            yield Launch(activate, 5, "mlp.activation")
            yield Launch("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 2 * microseconds, "mlp.down")
        else:
            shared = [
                Launch("nvjet_tst_128x8_64x12_2x1_v_bz_TNT", microseconds, "mlp.shared_gate mlp.shared_up"),
                Launch(activate, 5, "mlp.shared_activation"),
                Launch("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", microseconds, "mlp.shared_down"),
            ]
            yield from shared if shared_first else ()
            yield Launch("nvjet_tst_16x8_64x16_4x1_v_bz_TNT", 4, "mlp.router")
            yield Launch("void vllm::moe::topkGatingSoftmax<6, 64, 4, 16>(float const*)", 4, "mlp.choose")
            yield Launch("void vllm::moe::moe_align_block_size_kernel<int>(int*)", 4, "mlp.choose")
            yield Launch("fused_moe_kernel", 4 * microseconds, "mlp.expert_gate_up")
            yield Launch(activate, 5, "mlp.expert_activation")
            yield Launch("fused_moe_kernel", 2 * microseconds, "mlp.expert_down")
            yield Launch("void vllm::moe::moe_sum_kernel<c10::BFloat16, 6>(T)", 4, "mlp.combine")
            yield from () if shared_first else shared
            yield Launch(ADD, 4, "mlp.shared_add")
        yield Launch(norm, 4, f"residual.mlp {'norm.final' if layer == layers - 1 else 'norm.attention'}")
    yield Launch("nvjet_tst_192x8_64x8_4x1_v_bz_TNN", microseconds * 3, "head.logits")
    yield Launch(ARGMAX, 20, "")


def compiled_llama(layers: int, microseconds: float) -> Iterator[Launch]:
    """torch.compile on Llama: norms fused with the residual sums before them, named after aten operators."""
    norm = "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_4"
    yield Launch("triton_red_fused__to_copy_add_embedding_mean_mul_pow_rsqrt_0", 6, "embedding.token norm.attention")
    for layer in range(layers):
        for name in "qkv":
            yield Launch(GEMM, microseconds / 3, f"attention.{name}")
        yield Launch("triton_poi_fused__to_copy_add_cat_cos_mul_neg_sin_1", 5, "attention.rotary")
        yield Launch("triton_poi_fused__to_copy_add_cat_cos_mul_neg_sin_2", 4, "attention.rotary")
        yield Launch("triton_poi_fused_clone_expand_3", 4, "")
        yield Launch(FLASH, microseconds, "attention.flash")
        yield Launch(GEMM, microseconds / 2, "attention.output")
        yield Launch(norm, 6, "residual.attention norm.mlp")
        yield Launch(GEMM, microseconds, "mlp.gate")
        yield Launch(GEMM, microseconds, "mlp.up")
        yield Launch("triton_poi_fused_mul_silu_5", 6, "mlp.activation")
        yield Launch(GEMM, microseconds, "mlp.down")
        yield Launch(norm, 6, f"residual.mlp {'norm.final' if layer == layers - 1 else 'norm.attention'}")
    yield Launch(GEMM, 2 * microseconds, "head.logits")


def mamba(layers: int, microseconds: float) -> Iterator[Launch]:
    """Mamba with the kernels of its authors: a convolution along the tokens, and the scan."""
    yield Launch(GATHER, 4, "embedding.token")
    for _ in range(layers):
        yield Launch("_layer_norm_fwd_1pass_kernel", 5, "norm.ssm")
        yield Launch(GEMM, microseconds, "ssm.input")
        yield Launch(
            "void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4, true, c10::Half>>(T)",
            6,
            "ssm.filter",
        )
        yield Launch(GEMM_SMALL, 6, "ssm.select")
        yield Launch(GEMM_SMALL, 6, "ssm.step")
        yield Launch(
            "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 16, 1, true>>(T)", 30, "ssm.scan"
        )
        yield Launch(GEMM, microseconds, "ssm.output")
        yield Launch(ADD, 3, "residual.ssm")
    yield Launch("_layer_norm_fwd_1pass_kernel", 5, "norm.final")
    yield Launch(GEMM, microseconds, "head.logits")


def linear_attention(layers: int, microseconds: float) -> Iterator[Launch]:
    """Three layers of the delta rule (flash-linear-attention) per layer of gated attention."""
    norm = "_layer_norm_fwd_1pass_kernel"
    scan = (
        "l2norm_fwd_kernel", "l2norm_fwd_kernel", "chunk_local_cumsum_scalar_kernel", "chunk_scaled_dot_kkt_fwd_kernel",
        "merge_16x16_to_64x64_inverse_kernel", "recompute_w_u_fwd_kernel",
        "chunk_gated_delta_rule_fwd_kernel_h_blockdim64", "chunk_fwd_kernel_o",
    )  # fmt: skip
    yield Launch(GATHER, 4, "embedding.token")
    for layer in range(layers):
        mixer = "attention" if layer % 4 == 3 else "linear"
        yield Launch(norm, 5, f"norm.{mixer}")
        if mixer == "linear":
            yield Launch(GEMM, microseconds, "linear.qkv")
            yield Launch(GEMM, microseconds / 2, "linear.gate")
            yield Launch(GEMM_SMALL, 5, "linear.write")
            yield Launch(GEMM_SMALL, 5, "linear.forget")
            yield Launch(
                "void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4>>(T)", 6, "linear.filter"
            )
            yield from (Launch(kernel, 8, "linear.scan") for kernel in scan)
            yield Launch("_layer_norm_fwd_kernel", 5, "linear.norm")
        else:
            for name, share in (("q", 1), ("k", 4), ("v", 4)):
                yield Launch(GEMM, microseconds / share, f"attention.{name}")
            yield Launch("void rms_norm_kernel", 3, "attention.q_norm")
            yield Launch("void rms_norm_kernel", 3, "attention.k_norm")
            yield Launch("rotary_fwd_kernel", 4, "attention.rotary")
            yield Launch(FLASH, microseconds, "attention.flash")
            yield Launch("triton_poi_fused_mul_sigmoid_3", 3, "attention.gate")
        yield Launch(GEMM, microseconds / 2, f"{mixer}.output")
        yield Launch(ADD, 3, f"residual.{mixer}")
        yield Launch(norm, 5, "norm.mlp")
        yield Launch(GEMM, microseconds, "mlp.gate")
        yield Launch(GEMM, microseconds, "mlp.up")
        yield Launch("void swiglu_fwd_kernel<c10::Half>(T)", 4, "mlp.activation")
        yield Launch(GEMM, microseconds, "mlp.down")
        yield Launch(ADD, 3, "residual.mlp")
    yield Launch(norm, 5, "norm.final")
    yield Launch(GEMM, 2 * microseconds, "head.logits")


def llama_training(layers: int, microseconds: float, fused: bool) -> Iterator[Launch]:
    """A training step of Llama with separate projections (Hugging Face) or fused ones (training frameworks)."""
    norm = "void at::native::(anonymous namespace)::rms_norm_kernel<c10::Half>(T)"
    back = "void at::native::(anonymous namespace)::rms_norm_backward_kernel<c10::Half>(T)"
    qkv, gated = [["attention.q"], ["attention.k"], ["attention.v"]], [["mlp.gate"], ["mlp.up"]]
    if fused:
        qkv, gated = [["attention.q", "attention.k", "attention.v"]], [["mlp.gate", "mlp.up"]]
    yield Launch(GATHER, 4, "embedding.token")
    for _ in range(layers):
        yield Launch(norm, 4, "norm.attention")
        for operators in qkv:
            yield Launch(GEMM, microseconds, " ".join(operators))
        yield Launch("rotary_fwd_kernel", 4, "attention.rotary")
        yield Launch(FLASH, microseconds, "attention.flash")
        yield Launch(GEMM, microseconds, "attention.output")
        yield Launch(ADD, 3, "residual.attention")
        yield Launch(norm, 4, "norm.mlp")
        for operators in gated:
            yield Launch(GEMM, microseconds, " ".join(operators))
        yield Launch("void swiglu_fwd_kernel<c10::Half>(T)", 4, "mlp.activation")
        yield Launch(GEMM, microseconds, "mlp.down")
        yield Launch(ADD, 3, "residual.mlp")
    yield Launch(norm, 4, "norm.final")
    yield Launch(GEMM, 2 * microseconds, "head.logits")
    yield Launch("liger_cross_entropy_kernel", 90, "head.loss")
    yield Launch("liger_cross_entropy_backward_kernel", 90, "head.loss.grad")
    yield from gemm_gradients("head.logits", 2 * microseconds)
    yield Launch(back, 5, "norm.final.grad")
    for _ in range(layers):
        yield from gemm_gradients("mlp.down", microseconds)
        yield Launch("void swiglu_bwd_kernel<c10::Half>(T)", 4, "mlp.activation.grad")
        yield from gradients_of(gated, microseconds)
        yield Launch(back, 5, "norm.mlp.grad")
        yield Launch(ADD, 3, "norm.mlp.grad_sum_x")
        yield from gemm_gradients("attention.output", microseconds)
        for part in ("dot_do_o", "dq_dk_dv_loop_seqk_parallel", "convert_dq"):
            yield Launch(f"void flash_bwd_{part}_kernel<Flash_bwd_kernel_traits<128>>(T)", 20, "attention.flash.grad")
        yield Launch("rotary_bwd_kernel", 4, "attention.rotary.grad")
        yield from gradients_of(qkv, microseconds)
        yield Launch(back, 5, "norm.attention.grad")
        yield Launch(ADD, 3, "norm.attention.grad_sum_x")
    yield Launch("void embedding_backward_feature_kernel<c10::Half>(T)", 9, "embedding.token.grad_weight")
    for _ in range(6):
        yield Launch("void multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(T)", 50, "optimizer.step")


def gradients_of(gemms: Sequence[Sequence[str]], microseconds: float) -> Iterator[Launch]:
    """Gradients of GEMMs with one input, in reverse order; their input gradients are summed."""
    for operators in reversed(gemms):
        for of in ("input", "weight"):
            yield Launch(GEMM, microseconds, " ".join(f"{name}.grad_{of}" for name in reversed(operators)))
    for name in list(reversed([operators[0] for operators in gemms]))[1:]:
        yield Launch(ADD, 3, f"{name}.grad_sum_n")
