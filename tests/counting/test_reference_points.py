"""Counts of whole models, compared with published figures; each figure with its arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy

from roofmodel.counting import passes, phases
from roofmodel.counting.blocks import operators
from roofmodel.counting.operator import Cost, Operator
from roofmodel.counting.workload import Workload
from roofmodel.models.architecture import Architecture
from roofmodel.models.hub import load


def counted(arch: Architecture, phase: Any, **options: Any) -> tuple[Operator, ...]:
    return operators(arch, Workload((phase,), **options).steps()[0])


def total(ops: tuple[Operator, ...]) -> Cost:
    return sum((op.total for op in ops), Cost())


EVERY_FAMILY = (
    "gpt2", "opt-350m", "llama-3.2-1b", "mistral-7b-v0.1", "qwen2.5-0.5b", "pythia-70m", "bloom-560m",
    "bert-base-cased", "roberta-base", "distilbert-base-uncased",
)  # fmt: skip


GPT2_XL = load("gpt2-xl")
EAGER_ALL: dict[str, Any] = {"attention": "eager", "logits": "all"}


def test_gpt2_xl_has_the_published_parameters() -> None:
    d, layers, vocabulary, positions = 1600, 48, 50257, 1024
    block = (d * 3 * d + 3 * d) + (d * d + d) + (d * 4 * d + 4 * d) + (4 * d * d + d) + 4 * d
    assert vocabulary * d + positions * d + layers * block + 2 * d == 1_557_611_200
    assert passes.parameters(GPT2_XL, counted(GPT2_XL, "prefill")) == 1_557_611_200


def test_gpt2_xl_prefill_has_the_published_matmul_flops() -> None:
    s, d, layers, vocabulary = 1024, 1600, 48, 50257
    # 2BSD(12DL + 2SL + V): projections and MLP, scores and mix, head
    assert 2 * s * d * (12 * d * layers + 2 * s * layers + vocabulary) == 3_506_703_564_800
    assert total(counted(GPT2_XL, "prefill", **EAGER_ALL)).matmul_flops == 3_506_703_564_800


def test_gpt2_prefill_has_the_published_matmul_flops() -> None:
    assert total(counted(load("gpt2"), "prefill", **EAGER_ALL)).matmul_flops == 291_648_307_200


def test_the_intensity_of_the_key_projection_of_a_decode_is_about_the_batch_size() -> None:
    hidden = 4096  # a c x c matrix in fp16: 2 c^2 FLOPs, 2 c^2 bytes of weights, c elements read and c written
    arch = load("meta-llama/Llama-2-7b-hf")
    for batch in (1, 8):
        op = next(op for op in counted(arch, "decode", batch=batch) if op.name == "attention.k")
        assert op.matmul_flops == batch * 2 * hidden * hidden
        assert op.cost.bytes == 2 * hidden * hidden + 2 * batch * (hidden + hidden)
        assert op.cost.intensity == pytest.approx(batch, rel=2 * batch / hidden)


def test_decode_reads_the_cache_once_and_writes_one_token() -> None:
    arch = load("meta-llama/Llama-3.1-8B")
    ops = counted(arch, "decode", seq=4095)
    # K and V, 4095 cached tokens and the new one, 8 heads x 128, 32 layers, fp16
    assert total(ops).cache_bytes == 2 * 4096 * 1024 * 32 * 2
    written = sum(op.count * op.bytes_of(t) for op in ops for t in op.writes if t.is_cached)
    assert written == 2 * 1 * 1024 * 32 * 2


def test_memory_of_gpt2_xl_equals_that_derived_by_hand() -> None:
    step = Workload(("prefill",)).steps()[0]
    ops = operators(GPT2_XL, step)
    assert passes.weight_bytes(GPT2_XL, ops) == 2 * 1_557_611_200
    assert passes.kv_cache_bytes(GPT2_XL, step) == 2 * 1024 * 1600 * 48 * 2  # K and V, tokens, hidden, layers, fp16
    # The peak is in the MLP: the residual stream (d), the input (4d) and the output (4d) of the activation.
    assert passes.activation_bytes(ops) == 1024 * (1600 + 6400 + 6400) * 2


# `total_size` of the checkpoints' indices on the Hub. The checkpoints of Llama 2 also contain the frequencies of rotary
# embedding, 64 fp32 numbers per layer; current code computes them instead.
INDICES = {
    "meta-llama/Llama-2-7b-hf": 13_476_839_424 - 32 * 64 * 4,
    "meta-llama/Llama-2-13b-hf": 26_031_738_880 - 40 * 64 * 4,
    "meta-llama/Llama-2-70b-hf": 137_953_316_864 - 80 * 64 * 4,
    "mistralai/Mistral-7B-v0.1": 14_483_464_192,
    "mistralai/Mixtral-8x7B-v0.1": 93_405_585_408,
    "meta-llama/Llama-3.1-8B": 16_060_522_496,
}


@pytest.mark.parametrize("model", INDICES)
def test_the_bytes_of_the_weights_equal_the_total_size_of_the_checkpoint_index(model: str) -> None:
    arch, work = load(model), Workload(("decode",), dtype="bf16")
    assert phases.weight_bytes(arch, work.steps()[0]) == INDICES[model]


def test_eager_attention_of_a_long_prompt_peaks_at_the_scores() -> None:
    ops = counted(GPT2_XL, "prefill", seq=4096, **{"attention": "eager"})
    # scores and probabilities (25 heads x S x S each), and the residual stream; q is no longer needed
    assert passes.activation_bytes(ops) == (2 * 25 * 4096 * 4096 + 4096 * 1600) * 2


def test_a_window_limits_the_cache_and_the_keys_a_decode_reads() -> None:
    arch = load("mistralai/Mistral-7B-v0.1")  # window 4096, 8 heads x 128, 32 layers
    step = Workload(("decode",), context=10_000).steps()[0]
    assert passes.kv_cache_bytes(arch, step) == 2 * 4096 * 1024 * 32 * 2
    assert total(operators(arch, step)).cache_bytes == 2 * 4096 * 1024 * 32 * 2


@pytest.mark.parametrize("model", EVERY_FAMILY)
def test_work_is_linear_in_the_batch(model: str) -> None:
    arch = load(model)
    for phase in ("prefill", "decode") if arch.causal else ("forward",):
        one, many = (total(counted(arch, phase, batch=batch, seq=32)) for batch in (1, 7))
        assert many.matmul_flops == 7 * one.matmul_flops
        assert many.vector_flops == 7 * one.vector_flops
        assert many.cache_bytes == 7 * one.cache_bytes
        # the layers' weights are read once for any batch; rows of a table once per token
        tables = [
            sum(op.cost.weight_bytes for op in counted(arch, phase, batch=size, seq=32) if op.kind == "gather")
            for size in (1, 7)
        ]
        assert many.weight_bytes - tables[1] == one.weight_bytes - tables[0]


@pytest.mark.parametrize("model", EVERY_FAMILY)
@pytest.mark.parametrize("attention", ["flash", "eager"])
def test_ints_arrays_and_symbols_agree_on_whole_models(model: str, attention: Any) -> None:
    arch = load(model)
    batch, seq = [1, 3, 64], [7, 5000, 300]
    variables = sympy.symbols("B S", positive=True, integer=True)
    for phase in ("prefill", "decode") if arch.causal else ("forward",):

        def cost(b: Any, s: Any, phase: Any = phase) -> Cost:
            return total(counted(arch, phase, batch=b, seq=s, attention=attention))

        arrays = cost(np.array(batch, dtype=float), np.array(seq, dtype=float))
        symbols = cost(*variables)
        for i, (b, s) in enumerate(zip(batch, seq, strict=True)):
            ints = cost(b, s)
            for attribute in ("matmul_flops", "vector_flops", "bytes", "weight_bytes", "cache_bytes"):
                exact = getattr(ints, attribute)
                assert isinstance(exact, int)
                array = getattr(arrays, attribute)
                assert float(array[i] if np.ndim(array) else array) == pytest.approx(exact, rel=1e-12)
                assert (
                    sympy.sympify(getattr(symbols, attribute)).subs(dict(zip(variables, (b, s), strict=True))) == exact
                )


# --- Against the real models at full size, on the meta device -----------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "gpt2-xl"])
def test_counts_of_gpt2_at_full_size_equal_those_of_the_real_class(name: str) -> None:
    pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
    pytest.importorskip("transformers", reason="the oracle needs transformers: pip install 'roofmodel[dev]'")
    from roofmodel.models.hub import packaged
    from tests import oracle

    entry = packaged(name)
    assert entry is not None
    model = oracle.build(entry.config, device="meta")
    arch = load(name)
    assert passes.parameters(arch, counted(arch, "prefill")) == oracle.parameters(model)
    ours = total(counted(arch, "prefill", seq=1024, **EAGER_ALL)).matmul_flops
    assert ours == oracle.matmul_flops(model, 1, 1024)
    decode = total(counted(arch, "decode", context=500, **EAGER_ALL)).matmul_flops
    assert decode == oracle.matmul_flops(model, 1, 1, context=500)
