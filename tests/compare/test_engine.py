"""The engine that the kernels of a profile show."""

from __future__ import annotations

from typing import Any

import pytest

import roofmodel
from roofmodel.compare.compare import engine_of
from tests import kernels as make


def kernel(name: str, nvtx: tuple[str, ...] = ()) -> Any:
    return make.kernel("1", "file", name, nvtx=nvtx)


@pytest.mark.parametrize(
    ("names", "engine"),
    [
        (["ampere_fp16_s16816gemm_fp16_128x64_ldg8", "void at::native::vectorized_elementwise_kernel<4>()"], "torch"),
        (["void vllm::act_and_mul_kernel<c10::Half>()", "void at::native::copy_kernel()"], "vllm"),
        (["sgl_kernel::rms_norm", "void tensorrt_llm::kernels::fusedMoe()"], "sglang"),
        (["void tensorrt_llm::kernels::mmha::masked_multihead_attention_kernel<>()"], "trtllm"),
        (["void transformer_engine::normalization::ln_fwd_tuned_kernel<>()", "at::native::x"], "megatron"),
        (["ampere_fp16_s16816gemm_fp16_128x64_ldg8"], None),
        (["void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>()"], "torch"),
        (["my_vllm_kernel", "at::nativefoo"], None),  # parts of other words
        (["void vllm::rms_norm_kernel()", "sgl_kernel::rms_norm"], None),  # neither runs the other's kernels
    ],
)
def test_the_names_of_kernels_show_the_engine(names: list[str], engine: str | None) -> None:
    assert engine_of([kernel(name) for name in names]) == engine


def test_a_range_of_an_engine_shows_it() -> None:
    assert engine_of([kernel("nvjet_hsh_128x128", ("vllm.forward", "layers.0"))]) == "vllm"


def test_a_given_engine_replaces_that_of_the_file() -> None:
    options: dict[str, Any] = {"phase": "prefill", "seq": 512}
    found, given = (
        roofmodel.compare("gpt2", "examples/gpt2_trace_by_hand.json.gz", **options, **engine)
        for engine in ({}, {"engine": "sglang"})
    )
    assert found.comparison.estimate.workload.engine.id == "torch"  # its kernels are those of at::native
    assert given.comparison.estimate.workload.engine.id == "sglang"
