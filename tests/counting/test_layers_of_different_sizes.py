"""Layers of different sizes, by hand: Llama Nemotron, whose search replaces or removes attention and MLPs."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.blocks import operators
from roofmodel.counting.passes import parameters
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.errors import ModelError
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture
from roofmodel.steps.estimate import estimate

D, HEADS, H, V = 768, 6, 128, 50
LINEAR, NONE = {"replace_with_linear": True}, {"no_op": True}
BLOCKS = [
    ({"n_heads_in_group": 3}, {"ffn_mult": 1.5}),  # 2 key-value heads; an MLP of 768 columns
    ({"n_heads_in_group": 1}, {"ffn_mult": 0.51}),  # 6 key-value heads; 261 columns, rounded up to 512
    (NONE, {"ffn_mult": 0.5}),  # 256 columns
    (LINEAR, NONE),
    ({"n_heads_in_group": 6}, LINEAR),  # 1 key-value head
    (NONE, NONE),
]
KV_HEADS, WIDTHS, LINEARS, NORMS = (2, 6, 1), (768, 512, 256), 2, 2 + 2 + 1 + 1 + 2 + 0 + 1  # the last one is final


def model(blocks: list[Any], **settings: Any) -> Architecture:
    config = {
        "model_type": "nemotron-nas", "hidden_size": D, "num_hidden_layers": len(blocks), "num_attention_heads": HEADS,
        "vocab_size": V, "block_configs": [{"attention": attention, "ffn": ffn} for attention, ffn in blocks],
    }  # fmt: skip
    return architecture(config | settings, "drawn", "config.json")


def test_each_layer_has_the_matrices_that_its_block_states() -> None:
    attention = sum(2 * D * HEADS * H + 2 * D * heads * H for heads in KV_HEADS)
    matrices = attention + sum(3 * D * width for width in WIDTHS) + LINEARS * D * D
    counted = operators(model(BLOCKS), Workload(("forward",)).steps()[0])
    assert parameters(model(BLOCKS), counted) == matrices + NORMS * D + 2 * V * D
    tokens = 7
    work = Workload(("prefill",), 1, tokens, attention="eager", logits="all")
    pairs = len(KV_HEADS) * 2 * 2 * HEADS * H * tokens**2  # scores and weighted sum
    assert sum(op.total.matmul_flops for op in operators(model(BLOCKS), work.steps()[0])) == (
        2 * tokens * (matrices + V * D) + pairs
    )


def test_biases_of_attention_and_mlp_are_those_of_the_linear_layers() -> None:
    own = {bias: operators(model([(LINEAR, LINEAR)], **{bias: True}), Workload(("forward",)).steps()[0]) for bias in (
        "attention_bias", "mlp_bias"
    )}  # fmt: skip
    biases = {bias: {t.name for op in found for t in op.parameters if t.name[0] == "B"} for bias, found in own.items()}
    assert biases == {"attention_bias": {"B_attention_linear"}, "mlp_bias": {"B_mlp_linear"}}


def test_layers_without_attention_have_no_cache() -> None:
    found = estimate(model(BLOCKS), Device.load("h100"), phase="decode", context=99)
    assert found.memory.kv_cache == 2 * 100 * 2 * sum(KV_HEADS) * H  # fp16, 100 tokens, keys and values


def test_two_gpus_have_half_of_each_linear_layer() -> None:
    one, two = (
        {
            p.operator.name: p.operator
            for p in estimate(model([(LINEAR, LINEAR)]), Device.load("h100"), tp=tp).phases[0].placed
        }
        for tp in (1, 2)
    )
    for name in ("attention.linear", "mlp.linear"):
        assert 2 * two[name].matmul_flops == one[name].matmul_flops
    assert "attention.all_reduce" in two


def test_a_pipeline_may_begin_with_a_layer_that_computes_nothing() -> None:
    blocks = [(NONE, NONE), (NONE, NONE), *BLOCKS[:2]]
    one, two = (estimate(model(blocks), Device.load("h100"), phase="prefill", pp=pp).phases[0] for pp in (1, 2))
    layers = {p.operator.name for p in one.placed if p.operator.layers}
    assert layers == {p.operator.name for p in two.placed if p.operator.layers}


def test_a_block_for_each_layer_is_needed() -> None:
    with pytest.raises(ModelError, match=r"'?block_configs'? has 6 entries, but num_hidden_layers 5"):
        model(BLOCKS, num_hidden_layers=5)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (({"n_heads_in_group": 4}, NONE), "layer 0: 'n_heads_in_group' 4 does not divide 6 heads"),
        (({"n_heads_in_group": None}, NONE), "a positive 'n_heads_in_group' in each block .*: layer 0"),
        ((NONE, {"ffn_mult": "2"}), "a positive 'ffn_mult' in each block .*: layer 0"),
        ((NONE, {"ffn_mult": 0.001}), "layer 0: 'ffn_mult' 0.001 gives 0 columns"),
        ((NONE, {"no_op": 1}), "true or false for 'no_op' .*: layer 0"),
        (({"n_heads_in_group": 1, "window_length": 64}, NONE), "without .*window_length.*, which are not supported"),
        ((NONE, None), "the objects 'attention' and 'ffn'; that of layer 0 is another"),
        ((NONE, NONE), "no layer has attention or an MLP"),
    ],
)
def test_a_block_that_the_class_refuses_is_an_error(block: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        model([block])
