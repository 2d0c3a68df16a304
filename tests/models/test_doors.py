"""Configs of several parts, and configs read as another family's."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from roofmodel.errors import ModelError
from roofmodel.models.config import architecture
from roofmodel.models.families.composites import COMPOSITES, SIZES

TEXT = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 50,
    "intermediate_size": 8, "head_dim": 8, "pad_token_id": 1,
}  # fmt: skip
UNKNOWN = {"model_type": "yodel", "architectures": ["YodelForCausalLM"], **TEXT}


def read(config: dict[str, Any], family: str | None = None) -> Any:
    return architecture(config, "drawn", "config.json", family)


@pytest.mark.parametrize("model_type", COMPOSITES)
def test_a_text_part_ties_its_head_where_the_real_class_of_the_whole_does(model_type: str) -> None:
    torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
    transformers = pytest.importorskip("transformers", reason="the oracle needs transformers: 'roofmodel[dev]'")
    words: list[dict[str, bool]] = [{}, {"tie_word_embeddings": True}, {"tie_word_embeddings": False}]
    for outer, inner in itertools.product(words, words):
        config = {"text_config": TEXT | inner | {"model_type": COMPOSITES[model_type].text}} | outer
        with torch.device("meta"):
            real = transformers.AutoModelForImageTextToText.from_config(
                transformers.AutoConfig.for_model(model_type, **config)
            )
        tied = real.get_output_embeddings().weight is real.get_input_embeddings().weight
        assert read({"model_type": model_type} | config).tied == tied


@pytest.mark.parametrize("model_type", SIZES)
def test_the_sizes_that_a_text_part_may_lack_are_those_of_its_class(model_type: str) -> None:
    transformers = pytest.importorskip("transformers", reason="the oracle needs transformers: 'roofmodel[dev]'")
    real = transformers.AutoConfig.for_model(model_type)
    assert {key: getattr(real, key) for key in SIZES[model_type]} == SIZES[model_type]


def test_the_text_part_is_said_to_be_a_part() -> None:
    arch = read({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560}})
    assert arch.notes[0] == "config.json: the text part of a gemma3 model: its other parts are not counted"
    assert "num_attention_heads = 8" in arch.notes[1]
    assert arch.stack.hidden == 2560


def test_a_head_that_a_text_part_cannot_have_is_refused() -> None:
    config = {"model_type": "gemma3", "text_config": TEXT, "architectures": ["Gemma3ForSequenceClassification"]}
    with pytest.raises(ModelError, match="'Gemma3ForSequenceClassification', a head that is not counted for gemma3"):
        read(config)


def test_an_unknown_model_type_is_offered_the_families_that_its_keys_fit() -> None:
    with pytest.raises(ModelError, match=re.escape("unknown model_type 'yodel'")) as caught:
        read(UNKNOWN)
    assert "--family" in str(caught.value)


def test_another_family_is_only_taken_when_asked_for_and_says_what_it_assumes() -> None:
    arch = read(UNKNOWN | {"n_routed_experts": 4}, "llama")
    assert arch.stack == read(TEXT | {"model_type": "llama"}).stack
    assert arch.head.name == "LlamaForCausalLM"
    assert 'model_type "yodel" read as llama' in arch.notes[0]
    assert arch.notes[1].endswith("llama does not read n_routed_experts")


def test_an_unknown_family_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ModelError, match="--family: unknown family 'lama'; did you mean 'llama'"):
        read(UNKNOWN, "lama")
