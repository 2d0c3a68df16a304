"""Multimodal configs: the text model, its head and its default sizes."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from roofmodel.counting.blocks import operators
from roofmodel.counting.passes import parameters
from roofmodel.counting.workload import Workload
from roofmodel.errors import ModelError
from roofmodel.models.config import architecture
from roofmodel.models.families.multimodal import COMPOSITES, SIZES

TEXT = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 50,
    "intermediate_size": 8, "head_dim": 8, "pad_token_id": 1,
}  # fmt: skip


def read(config: dict[str, Any], family: str | None = None) -> Any:
    return architecture(config, "drawn", "config.json", family)


# Settings that the other parts of a model need if the text model is as small as TEXT.
OTHER_PARTS: dict[str, dict[str, Any]] = {
    "aya_vision": {"vision_config": {"num_attention_heads": 16}},
    "dots3_note": {"vision_config": {"adapter_out_dim": 16}, "audio_config": {"adapter_out_dim": 16}},
    "fun_asr_nano": {"adaptor_config": {"hidden_size": 16, "intermediate_size": 4}},
    "granite4_vision": {"deepstack_layer_map": [], "downsample_rate": "1/4"},
    "granite_docling": {"vision_config": {"out_hidden_size": 16}},
    "muse_spark": {"audio_config": {"out_hidden_size": 16}},
    "inkling2": {"vision_config": {"text_hidden_size": 16}},
    "qwen2_5_omni": {"enable_audio_output": False},
    "qwen3_omni_moe": {"enable_audio_output": False},
}

BASE = {"rope_type": "default", "rope_theta": 10000.0}
TEXT_PARTS: dict[str, dict[str, Any]] = {
    "cohere_compass": {"rope_parameters": {"full_attention": BASE}},
    "cosmos3_edge": {"head_dim": 8, "rope_parameters": BASE | {"mrope_section": [2, 1, 1]}},
    "ernie4_5_vl_moe": {"rope_parameters": BASE | {"mrope_section": [1, 1, 2]}},
}
"""Settings that a text model as small as TEXT needs."""


CUSTOM_CODE = {"internvl_chat", "phi4mm"}  # not in transformers
FLAT = {"phi4_multimodal"}  # the keys of its text model are at the top level only
WITHOUT_THINKER = {"qwen3_asr"}  # its class expects text_config at the top level, unlike its checkpoints


def real(config: dict[str, Any]) -> Any:
    """The real multimodal model on the meta device, where weights have no values to initialize."""
    torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
    transformers = pytest.importorskip("transformers", reason="the oracle needs transformers: 'roofmodel[dev]'")
    initialization = pytest.importorskip("transformers.initialization")
    auto = transformers.models.auto.modeling_auto
    named = auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES | auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    settings = {key: value for key, value in config.items() if key != "model_type"}
    real_config = transformers.AutoConfig.for_model(config["model_type"], **settings)
    for part in {*real_config.sub_configs} - {"text_config", "thinker_config"}:
        for depth in (
            "num_hidden_layers",
            "encoder_layers",
            "depth",
        ):  # layers for images and sound, which are not counted
            if getattr(getattr(real_config, part), depth, 0):
                setattr(getattr(real_config, part), depth, 1)
    with torch.device("meta"), initialization.no_init_weights():
        model = getattr(transformers, named[config["model_type"]])(real_config)
    model.tie_weights()  # part of the initialization
    return model


def text_of(model: Any) -> tuple[Any, Any, Any]:
    """Layers, token table and head of the text model."""
    inner = getattr(model, "thinker", model)
    layers = inner.get_decoder() if hasattr(inner, "get_decoder") else inner.language_model
    return layers, inner.get_input_embeddings(), inner.get_output_embeddings()


@pytest.mark.parametrize("model_type", sorted(COMPOSITES.keys() - CUSTOM_CODE - FLAT))
def test_parameters_and_tying_of_a_text_model_equal_those_of_the_real_class(model_type: str) -> None:
    composite = COMPOSITES[model_type]
    tie_settings: list[dict[str, bool]] = [{}, {"tie_word_embeddings": True}, {"tie_word_embeddings": False}]
    for outer, inner in itertools.product(tie_settings, tie_settings):
        text = TEXT | TEXT_PARTS.get(model_type, {}) | inner | {"model_type": composite.text}
        config_of_text = {"text_config": text} | outer
        nested = (
            {composite.inside: config_of_text}
            if composite.inside and model_type not in WITHOUT_THINKER
            else config_of_text
        )
        config = {"model_type": model_type} | nested | OTHER_PARTS.get(model_type, {})
        parts = text_of(real(config))
        arch = read(config)
        assert arch.tied == (parts[1].weight is parts[2].weight)
        counted = operators(arch, Workload(("forward",)).steps()[0])
        sizes = {id(p): p.numel() for part in parts for p in part.parameters()}
        assert parameters(arch, counted) == sum(sizes.values())


@pytest.mark.parametrize("model_type", SIZES)
def test_default_sizes_of_a_text_model_are_those_of_its_class(model_type: str) -> None:
    transformers = pytest.importorskip("transformers", reason="the oracle needs transformers: 'roofmodel[dev]'")
    real = transformers.AutoConfig.for_model(model_type)
    assert {key: getattr(real, key) for key in SIZES[model_type]} == SIZES[model_type]


@pytest.mark.parametrize(
    "model_type", [name for name, known in COMPOSITES.items() if known.flat and name not in ("step3p7", "phi4mm")]
)
def test_a_flat_config_is_read_like_a_nested_one(model_type: str) -> None:
    """Also compared with the real class, except GLM-4.1V: its class ignores the keys of a flat config."""
    settings = TEXT | {"tie_word_embeddings": True}
    nested = read({"model_type": model_type, "text_config": settings, "tie_word_embeddings": True})
    flat = read({"model_type": model_type, "vision_config": {"hidden_size": 7}} | settings)
    assert (flat.stack, flat.tied, flat.head) == (nested.stack, nested.tied, nested.head)
    if model_type != "glm4v":
        layers, tokens, head = text_of(real({"model_type": model_type} | settings | OTHER_PARTS.get(model_type, {})))
        assert tokens.weight is head.weight
        assert parameters(flat, operators(flat, Workload(("forward",)).steps()[0])) == sum(
            p.numel() for name, p in layers.named_parameters() if not name.startswith("embed_tokens_extend")
        )


def test_the_text_model_of_qwen3_asr_is_read_from_its_thinker_config() -> None:
    text = TEXT | {"model_type": "qwen3_asr_text"}
    nested = read({"model_type": "qwen3_asr", "thinker_config": {"text_config": text}})
    assert nested.stack == read({"model_type": "qwen3_asr", "text_config": TEXT}).stack


def test_a_message_about_a_text_model_gives_its_path_in_the_config() -> None:
    config = {"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": {}}}
    with pytest.raises(
        ModelError,
        match=re.escape("config.json: thinker_config.text_config: the key 'hidden_size' (hidden size) is missing"),
    ):
        read(config)


def test_a_text_model_without_a_model_type_is_refused() -> None:
    with pytest.raises(ModelError, match="'yodel' has a text model without a model_type, which is unknown"):
        read({"model_type": "yodel", "text_config": TEXT})


@pytest.mark.parametrize("model_type", [[], {}, 7, True])
def test_a_model_type_that_is_not_a_string_is_refused(model_type: object) -> None:
    for config in (
        {"model_type": model_type, "text_config": TEXT},
        {"model_type": "yodel", "text_config": {"model_type": model_type}},
    ):
        with pytest.raises(ModelError, match="has a text model"):
            read(config)


def test_a_multimodal_model_with_an_unsupported_text_model_is_refused_with_the_reason() -> None:
    with pytest.raises(
        ModelError, match="of model_type 'reformer', which is not supported: it has attention to tokens"
    ):
        read({"model_type": "yodel", "text_config": TEXT | {"model_type": "reformer"}})


def test_a_note_says_that_only_the_text_model_is_counted() -> None:
    arch = read({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560}})
    assert arch.notes[0] == "config.json: only the text model of gemma3 is counted"
    assert "num_attention_heads = 8" in arch.notes[1]
    assert arch.stack.hidden == 2560


def test_an_unsupported_head_of_a_multimodal_model_is_refused() -> None:
    config = {"model_type": "gemma3", "text_config": TEXT, "architectures": ["Gemma3ForSequenceClassification"]}
    with pytest.raises(ModelError, match="'Gemma3ForSequenceClassification', a head that is not supported for gemma3"):
        read(config)
