"""Configs of an unknown model_type: suggested families, and configs read as another family."""

from __future__ import annotations

import re
from typing import Any

import pytest

from roofmodel.errors import ModelError
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES

TEXT = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 50,
    "intermediate_size": 8, "head_dim": 8, "pad_token_id": 1,
}  # fmt: skip
UNKNOWN = {"model_type": "yodel", "architectures": ["YodelForCausalLM"], **TEXT}


def read(config: dict[str, Any], family: str | None = None) -> Any:
    return architecture(config, "drawn", "config.json", family)


def suggested(config: dict[str, Any]) -> list[str]:
    """The families that the message suggests, best match first."""
    with pytest.raises(ModelError, match=re.escape("unknown model_type 'yodel'")) as caught:
        read(config)
    _, separator, rest = str(caught.value).partition("its keys match ")
    names = rest.partition(":")[0].split(" or ")
    assert not separator or f': family="{names[0]}" reads it as {names[0]}' in rest
    return names if separator else []


WITH_RMSNORM = UNKNOWN | {"rms_norm_eps": 1e-6, "hidden_act": "silu"}


def test_families_whose_keys_the_config_has_are_suggested() -> None:
    assert suggested(WITH_RMSNORM)[0] == "llama"
    assert suggested(WITH_RMSNORM | {"use_sliding_window": False, "max_window_layers": 9})[0] == "qwen2"
    assert (
        suggested(WITH_RMSNORM | {"kv_lora_rank": 4, "q_lora_rank": 4}) == []
    )  # MLA, so not Llama; sizes of the MLA families are missing


def test_moe_families_are_suggested_only_for_configs_with_experts() -> None:
    moe_families = {name for name, family in FAMILIES.items() if "experts" in family.fields}
    assert moe_families.isdisjoint(suggested(WITH_RMSNORM))
    assert suggested(WITH_RMSNORM | {"num_local_experts": 4, "num_experts_per_tok": 2})[0] == "mixtral"
    assert moe_families.issuperset(suggested(WITH_RMSNORM | {"num_experts": 4, "num_experts_per_tok": 2}))


@pytest.mark.parametrize("head", ["YodelForCausalLM", "YodelLMHeadModel"])
def test_an_encoder_is_never_suggested_for_a_generating_class(head: str) -> None:
    for norm in ({}, {"rms_norm_eps": 1e-6}, {"layer_norm_eps": 1e-6}):
        names = suggested(TEXT | norm | {"model_type": "yodel", "architectures": [head]})
        assert not any(FAMILIES[name].encoder or FAMILIES[name].source for name in names)


def test_families_with_another_norm_or_head_are_not_suggested() -> None:
    assert not any(FAMILIES[name].fields.get("norm") == "layernorm" for name in suggested(WITH_RMSNORM))
    assert not any(FAMILIES[name].fields.get("norm") == "rmsnorm" for name in suggested(UNKNOWN))
    assert suggested(WITH_RMSNORM | {"architectures": ["YodelForSegmentation"]}) == []


def test_families_that_would_use_their_own_default_size_are_not_suggested() -> None:
    """Without the key, Mistral has 8 key-value heads, Llama as many as query heads; both have a default MLP width."""
    without_kv_heads = {key: value for key, value in WITH_RMSNORM.items() if key != "num_key_value_heads"}
    assert "mistral" not in suggested(without_kv_heads)
    assert "llama" in suggested(without_kv_heads)
    assert "llama" not in suggested({key: value for key, value in WITH_RMSNORM.items() if key != "intermediate_size"})


def test_reading_a_config_as_another_family_notes_the_assumptions() -> None:
    arch = read(WITH_RMSNORM | {"n_routed_experts": 4}, "llama")
    assert arch.stack == read(TEXT | {"model_type": "llama"}).stack
    assert arch.head.name == "LlamaForCausalLM"
    assert 'model_type "yodel" is read as llama' in str(arch.notes[0])
    assert "0.7 to 1.5 times" in str(arch.notes[0])
    assert str(arch.notes[1]).endswith("llama ignores n_routed_experts")


def test_an_unknown_family_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ModelError, match="family: unknown family 'lama'; did you mean 'llama'"):
        read(UNKNOWN, "lama")
