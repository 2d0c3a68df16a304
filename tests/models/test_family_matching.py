"""Configs of an unknown model_type: the families that a message offers, and a config read as another family's."""

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


def offered(config: dict[str, Any]) -> list[str]:
    """The families that the message names, best first."""
    with pytest.raises(ModelError, match=re.escape("unknown model_type 'yodel'")) as caught:
        read(config)
    _, fits, rest = str(caught.value).partition("its keys fit ")
    names = rest.partition(",")[0].split(" or ")
    assert not fits or f"--family {names[0]} would read them so" in rest
    return names if fits else []


RMS = UNKNOWN | {"rms_norm_eps": 1e-6, "hidden_act": "silu"}


def test_an_unknown_model_type_is_offered_the_families_that_its_keys_fit() -> None:
    assert offered(RMS)[0] == "llama"
    assert offered(RMS | {"use_sliding_window": False, "max_window_layers": 9})[0] == "qwen2"
    assert offered(RMS | {"kv_lora_rank": 4, "q_lora_rank": 4}) == []  # latents are no Llama's, and lack their sizes


def test_a_mixture_is_offered_where_the_config_has_experts_and_nowhere_else() -> None:
    mixtures = {name for name, family in FAMILIES.items() if "experts" in family.fields}
    assert mixtures.isdisjoint(offered(RMS))
    assert offered(RMS | {"num_local_experts": 4, "num_experts_per_tok": 2})[0] == "mixtral"
    assert mixtures.issuperset(offered(RMS | {"num_experts": 4, "num_experts_per_tok": 2}))


@pytest.mark.parametrize("head", ["YodelForCausalLM", "YodelLMHeadModel"])
def test_an_encoder_is_never_offered_for_a_class_that_generates(head: str) -> None:
    for norm in ({}, {"rms_norm_eps": 1e-6}, {"layer_norm_eps": 1e-6}):
        names = offered(TEXT | norm | {"model_type": "yodel", "architectures": [head]})
        assert not any(FAMILIES[name].encoder or FAMILIES[name].source for name in names)


def test_no_family_is_offered_whose_norms_are_others_or_whose_head_is() -> None:
    assert not any(FAMILIES[name].fields.get("norm") == "layernorm" for name in offered(RMS))
    assert not any(FAMILIES[name].fields.get("norm") == "rmsnorm" for name in offered(UNKNOWN))
    assert offered(RMS | {"architectures": ["YodelForSegmentation"]}) == []


def test_no_family_is_offered_that_would_take_a_size_of_its_own() -> None:
    """Mistral has 8 key-value heads where a config does not say, Llama as many as heads; both a width of the MLP."""
    unsaid = {key: value for key, value in RMS.items() if key != "num_key_value_heads"}
    assert "mistral" not in offered(unsaid)
    assert "llama" in offered(unsaid)
    assert "llama" not in offered({key: value for key, value in RMS.items() if key != "intermediate_size"})


def test_another_family_is_only_taken_when_asked_for_and_says_what_it_assumes() -> None:
    arch = read(RMS | {"n_routed_experts": 4}, "llama")
    assert arch.stack == read(TEXT | {"model_type": "llama"}).stack
    assert arch.head.name == "LlamaForCausalLM"
    assert 'model_type "yodel" read as llama' in arch.notes[0]
    assert arch.notes[1].endswith("llama does not read n_routed_experts")


def test_an_unknown_family_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ModelError, match="--family: unknown family 'lama'; did you mean 'llama'"):
        read(UNKNOWN, "lama")
