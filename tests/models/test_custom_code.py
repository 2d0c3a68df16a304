"""Families whose code comes with the checkpoint, compared with an equivalent family in transformers.

`test_catalog.py` compares the packaged checkpoints with their published parameters.
"""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.blocks import operators
from roofmodel.counting.passes import parameters
from roofmodel.counting.workload import Workload
from roofmodel.errors import ModelError
from roofmodel.models.config import architecture
from roofmodel.models.families import CUSTOM_CODE, FAMILIES

SHAPE = {
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "vocab_size": 70, "intermediate_size": 26,
    "max_position_embeddings": 64,
}  # fmt: skip
GLM = {
    "hidden_size": 48, "num_layers": 3, "num_attention_heads": 6, "padded_vocab_size": 70, "kv_channels": 8,
    "ffn_hidden_size": 26, "multi_query_attention": True, "multi_query_group_num": 2, "add_qkv_bias": True,
}  # fmt: skip
BLOCK_SPARSE = {
    "num_key_value_heads": 2, "head_dim": 8, "rotary_dim": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
    "dense_intermediate_size": 20, "shared_intermediate_size": 9, "moe_layer_freq": [0, 1, 1],
    "sparse_attention_config": {
        "sparse_attention_freq": [0, 1, 1], "sparse_num_index_heads": 2, "sparse_index_dim": 6,
        "sparse_block_size": 4, "sparse_topk_blocks": 2,
    },
}  # fmt: skip
KIMI = {
    "hidden_size": 48, "num_hidden_layers": 5, "num_attention_heads": 4, "vocab_size": 70, "intermediate_size": 26,
    "q_lora_rank": 10, "kv_lora_rank": 6, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 7,
    "linear_attn_config": {"full_attn_layers": [2, 5], "num_heads": 3, "head_dim": 5, "short_conv_kernel_size": 4},
    "num_experts": 6, "num_experts_per_token": 2, "moe_intermediate_size": 9, "num_shared_experts": 2,
    "first_k_dense_replace": 1,
}  # fmt: skip
# family -> a config with its own keys, and the same model as a config of the equivalent family
EQUIVALENTS = {
    "baichuan": (SHAPE, SHAPE | {"model_type": "llama"}),
    "qwen": (
        SHAPE | {"intermediate_size": 52, "kv_channels": 8},
        SHAPE | {"model_type": "qwen2", "num_key_value_heads": 6},
    ),
    "internlm2": (
        SHAPE | {"num_key_value_heads": 2, "bias": False},
        SHAPE | {"model_type": "llama", "num_key_value_heads": 2},
    ),
    "chatglm": (GLM, SHAPE | {"model_type": "glm", "num_key_value_heads": 2, "head_dim": 8}),
    "minicpm": (SHAPE, SHAPE | {"model_type": "granite", "tie_word_embeddings": True}),
    "mimo": (
        SHAPE | {"attention_bias": True, "num_key_value_heads": 6},
        SHAPE | {"model_type": "qwen2", "num_key_value_heads": 6},
    ),
    "nemotron-nas": (
        SHAPE | {"block_configs": [{"attention": {"n_heads_in_group": 3}, "ffn": {"ffn_mult": 5.25}}] * 3},
        SHAPE
        | {"model_type": "llama", "num_key_value_heads": 2, "intermediate_size": 256},  # 168, to a multiple of 256
    ),
    "kimi_k3_text": (KIMI, KIMI | {"model_type": "kimi_linear"}),
    "minimax_m3": (SHAPE | BLOCK_SPARSE, SHAPE | BLOCK_SPARSE | {"model_type": "minimax_m3_vl_text"}),
}


def read(config: dict[str, Any]) -> Any:
    return architecture(config, "drawn", "config.json")


def flops(arch: Any, phase: Any, context: int | None) -> int:
    work = Workload((phase,), batch=2, seq=11, context=context, attention="eager", logits="all")
    return sum(op.total.matmul_flops for op in operators(arch, work.steps()[0]))


def number_of_parameters(arch: Any) -> int:
    return parameters(arch, operators(arch, Workload(("forward",)).steps()[0]))


def test_every_custom_code_family_has_an_equivalent_in_transformers() -> None:
    assert EQUIVALENTS.keys() == CUSTOM_CODE.keys()
    assert CUSTOM_CODE.keys().isdisjoint(FAMILIES)


@pytest.mark.parametrize("model_type", EQUIVALENTS)
def test_a_custom_code_family_is_counted_as_its_equivalent(model_type: str) -> None:
    config, equivalent_config = EQUIVALENTS[model_type]
    arch, equivalent = read(config | {"model_type": model_type}), read(equivalent_config)
    assert number_of_parameters(arch) == number_of_parameters(equivalent)
    for phase, context in (("forward", None), ("prefill", None), ("prefill", 7), ("decode", 9)):
        assert flops(arch, phase, context) == flops(equivalent, phase, context)


def test_configs_of_the_first_qwen_may_have_the_key_names_of_gpt_2() -> None:
    names = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}
    names |= {"intermediate_size": "ffn_hidden_size", "max_position_embeddings": "n_positions"}
    config = EQUIVALENTS["qwen"][0] | {"model_type": "qwen"}
    assert read({names.get(key, key): value for key, value in config.items()}).stack == read(config).stack


def test_a_baichuan_config_without_positions_has_no_rotary_embedding() -> None:
    """The README of the 13B model states ALiBi instead of rotary embedding."""
    config = {key: value for key, value in SHAPE.items() if key != "max_position_embeddings"}
    (attention, *_) = read(config | {"model_type": "baichuan"}).stack.parts
    assert attention.alibi
    assert attention.rotary_dim == 0


def test_two_options_of_chatglm_add_its_biases() -> None:
    without_bias = GLM | {"model_type": "chatglm", "add_qkv_bias": False}
    qkv, mlp = 48 + 2 * 2 * 8, 2 * 26 + 48  # queries, two groups of keys and values; gate and up, down
    assert (
        number_of_parameters(read(without_bias | {"add_qkv_bias": True})) - number_of_parameters(read(without_bias))
        == 3 * qkv
    )
    assert number_of_parameters(read(without_bias | {"add_bias_linear": True})) - number_of_parameters(
        read(without_bias)
    ) == 3 * (qkv + 48 + mlp)


@pytest.mark.parametrize("extra", [{"num_experts": 8}, {"sparse_config": {"kernel_size": 32}}])
def test_a_minicpm_with_experts_or_sparse_attention_is_refused(extra: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=f"'{next(iter(extra))}' is .*, which is not supported for minicpm"):
        read(SHAPE | {"model_type": "minicpm"} | extra)


def test_the_text_model_of_internvl_is_read_from_llm_config() -> None:
    config = {"model_type": "internvl_chat", "architectures": ["InternVLChatModel"]}
    text = EQUIVALENTS["internlm2"][0] | {"model_type": "internlm2", "tie_word_embeddings": False}
    arch = read(config | {"llm_config": text})
    assert arch.stack == read(text).stack
    assert not arch.tied
    assert read(
        config | {"llm_config": SHAPE | {"model_type": "qwen2", "num_key_value_heads": 2, "tie_word_embeddings": True}}
    ).tied


KIMI_K3 = {
    "model_type": "kimi_linear", "mla_use_output_gate": True, "routed_expert_hidden_size": 20,
    "latent_moe_use_norm": True, "attn_res_block_size": 2, "hidden_act": "situ",
    "linear_attn_config": {**KIMI["linear_attn_config"], "use_full_rank_gate": True, "gate_lower_bound": -5.0},
}  # fmt: skip
"""What Kimi-K3 adds, at a small size, under the model_type of its config."""


def test_kimi_k3_adds_gates_a_latent_of_experts_and_attention_residuals() -> None:
    """Its tensors beside those of Kimi-Linear: vLLM's KimiLinearModel lists them."""
    own, plain = read(KIMI | KIMI_K3), read(KIMI | {"model_type": "kimi_linear"})
    d, gates = 48, 2 * 48 * 4 * 7  # g_proj of the two layers with latent attention
    linear = 3 * (d * 15 - (d * 5 + 5 * 15))  # of three layers: one matrix in place of two low-rank ones
    experts = 4 * (6 * 3 * 9 * (20 - d) + 2 * d * 20 + 20)  # down- and up-projection, norm
    residuals = (2 * 5 + 1) * 2 * d  # norm and query of each sublayer, and of the output
    assert number_of_parameters(own) - number_of_parameters(plain) == gates + linear + experts + residuals


def test_attention_residuals_multiply_each_sum_with_a_query_and_with_its_weight() -> None:
    """Sums before the sublayers of five layers in blocks of two, with the running one: none, then the finished ones."""
    steps = Workload(("forward",), batch=2, seq=11, attention="eager", logits="all").steps()
    found = [op for op in operators(read(KIMI | KIMI_K3), steps[0]) if op.name.startswith("residual.")]
    sums = [2, 2, 2, 2, 3, 3, 3, 3, 4, 4]  # the first sublayer reads the embedding; the last sums are the output's
    assert sum(op.total.matmul_flops for op in found) == sum(2 * 2 * 22 * 48 * n for n in sums)
    adds = sum(op.count for op in found if op.name in ("residual.linear", "residual.attention", "residual.mlp"))
    assert adds == 2 * 5 - 3  # layers 1, 3 and 5 start a sum with the output of their first sublayer
