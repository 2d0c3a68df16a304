"""Gemma 4: KV caches that layers share and per-layer inputs, with bytes and memory derived by hand.

    B = 2 sequences, T = 3 new tokens, D = hidden size 8, 2 query heads and 1 key-value head, of size 4 in layers with
    a sliding window (2 tokens) and of size 6 in layers with full attention; F = MLP width 10, V = vocabulary of 11, 5
    elements of a per-layer input

Layer 0 has a sliding window, layer 1 full attention. Layers 2 and 3 have the same and use the keys and values of layers
0 and 1. Everything is in fp16.
"""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting import passes, phases
from roofmodel.counting.blocks import operators
from roofmodel.counting.operator import Operator
from roofmodel.counting.training import step as training
from roofmodel.counting.workload import Workload
from roofmodel.errors import ModelError
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture
from roofmodel.steps.options import workload

SLIDING, FULL = "sliding_attention", "full_attention"
CONFIG: dict[str, Any] = {
    "model_type": "gemma4_text", "hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 4, "global_head_dim": 6, "sliding_window": 2, "vocab_size": 11,
    "intermediate_size": 10, "layer_types": [SLIDING, FULL] * 2, "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 5, "vocab_size_per_layer_input": 12,
}  # fmt: skip
EXPERTS = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 3}


def read(**more: Any) -> Architecture:
    return architecture(CONFIG | more, "x", "x")


def counted(phase: Any = "prefill", **more: Any) -> list[Operator]:
    return list(operators(read(**more), Workload((phase,), 2, 3, context=7 if phase == "decode" else None).steps()[0]))


def test_layers_with_a_shared_kv_cache_have_only_queries() -> None:
    found = {(op.name, op.layers) for op in counted()}
    assert {layers for name, layers in found if name == "attention.q"} == {(0,), (1,), (2,), (3,)}
    assert {layers for name, layers in found if name in ("attention.k", "attention.v")} == {(0,), (1,)}
    step = Workload(("decode",), 2, context=7).steps()[0]
    # B, keys and values: 2 tokens of 4 elements with a sliding window, all 8 tokens of 6 elements with full attention
    assert passes.kv_cache_bytes(read(), step) == 2 * 2 * 2 * (2 * 4 + 8 * 6)


def test_a_decode_reads_a_shared_kv_cache_in_each_layer_that_uses_it() -> None:
    cache_bytes = {op.layers: op.cost.cache_bytes for op in counted("decode") if op.name == "attention.flash"}
    sliding, full = 2 * 2 * 2 * 2 * 4, 2 * 2 * 2 * 8 * 6
    assert cache_bytes == {(0,): sliding, (1,): full, (2,): sliding, (3,): full}


def test_without_a_cache_shared_keys_and_values_stay_until_their_last_use() -> None:
    found = counted("forward")
    live = dict(zip(((op.name, op.layers) for op in found), passes.live_activations(found), strict=True))
    after_layer_1 = dict(live["mlp.up", (1,)])
    assert after_layer_1["window_k"] == after_layer_1["window_v"] == 2 * (2 * 3 * 4)  # B T, 1 head of 4
    assert after_layer_1["full_k"] == after_layer_1["full_v"] == 2 * (2 * 3 * 6)
    assert not {"window_k", "full_k"} & set(dict(live["mlp.up", (3,)]))


def test_per_layer_inputs_are_stored_together_and_each_layer_reads_its_own() -> None:
    found = counted("forward")
    live = dict(zip(((op.name, op.layers) for op in found), passes.live_activations(found), strict=True))
    assert dict(live["mlp.up", (3,)])["inputs"] == 2 * (2 * 3 * 4 * 5)  # B T, 4 layers of 5
    times = next(op for op in found if op.name == "layer_input.times")
    assert times.cost.bytes == 3 * 2 * (2 * 3 * 5)  # reads the gate and the layer's input, writes their product
    lookup = next(op for op in found if op.name == "embedding.layers")
    assert (lookup.cost.bytes_read, lookup.parameters[0].elements(lookup.sizes)) == (2 * (2 * 3 * 4 * 5), 12 * 4 * 5)


def test_training_stores_a_shared_kv_cache_once() -> None:
    """Stored activations with shared keys and values, compared with the same model without `num_kv_shared_layers`."""
    kept = {}
    for sharing_layers in (0, 2):
        forward = counted("forward", num_kv_shared_layers=sharing_layers)
        kept[sharing_layers] = training.kept_bytes(training.kept_tensors(forward), "none")[0]
    # layers 2 and 3 no longer store k and v before and after their norms
    assert kept[0] - kept[2] == 2 * (2 * 2) * (2 * 3) * (4 + 6)
    with_inputs, without_inputs = (
        training.kept_bytes(training.kept_tensors(counted("forward", **more)), "none")[0]
        for more in ({}, {"hidden_size_per_layer_input": 0})
    )
    # per token: all inputs, before and after their norm; per token and layer: input of the gate (the residual sum),
    # output of the gate, its product with the layer's input, and output of the up projection before its norm
    per_token, per_token_and_layer = 2 * (4 * 5), 8 + 5 + 5 + 8
    assert with_inputs - without_inputs == 2 * (2 * 3) * (per_token + 4 * per_token_and_layer)


def test_each_input_of_a_layer_has_its_own_gradient() -> None:
    step = Workload(("train",), 2, 3).steps()[0]
    found = {op.name: op for op in phases.operators(read(), step)}
    assert "layer_input.times.grad_sum_inputs" not in found
    # five tensors of B T 5: output gradient, gate, input, gradients of gate and input
    assert found["layer_input.times.grad"].cost.bytes == 5 * 2 * (2 * 3 * 5)


def test_experts_parallel_to_an_mlp_have_separate_norms() -> None:
    norms = [op.name for op in counted(**EXPERTS) if op.kind == "norm" and op.layers == (3,)]
    assert norms[norms.index("norm.mlp") :] == [
        *("norm.mlp", "norm.mlp_output", "norm.experts", "norm.router", "norm.experts_output"),
        *("norm.experts_together", "norm.layer_input_output"),
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_bidirectional_attention": "all"}, "'use_bidirectional_attention' is 'all'; it must be null or"),
        (
            {"per_layer_config": {"1": {"head_dim": 6}}},
            "'per_layer_config' has layers [1], but full_attention is in [1, 3]",
        ),
        ({"per_layer_config": {"1": {"head_dim": 6}, "3": {"head_dim": 8}}}, "the same 'head_dim', 'num"),
        ({"per_layer_config": {"1": {"intermediate_size": 6}}}, "'per_layer_config' is"),
        ({"num_kv_shared_layers": 3}, "leaves 1 layers with their own keys and values"),
        ({"num_kv_shared_layers": 9}, "leaves 0 layers with their own keys and values"),
        ({"enable_moe_block": True}, "'num_experts' is missing"),
        (EXPERTS | {"top_k_experts": None}, "'top_k_experts' is missing"),
        ({"num_key_value_heads": 3}, "num_attention_heads 2 is not divisible by"),
    ],
)
def test_an_inconsistent_config_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as error:
        read(**settings)
    assert message in str(error.value)


@pytest.mark.parametrize("ways", [{"tp": 2}, {"pp": 2}])
def test_layer_inputs_are_not_sharded(ways: dict[str, int]) -> None:
    with pytest.raises(Exception, match=r"per-layer embeddings|input for every layer"):
        workload(read(), **ways)


def test_layers_that_share_a_kv_cache_stay_in_one_stage() -> None:
    with pytest.raises(Exception, match="keys and values of earlier ones"):
        workload(read(hidden_size_per_layer_input=0), pp=2)
