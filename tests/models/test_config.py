from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from typing import Any

import pytest

import roofmodel
from roofmodel.errors import ModelError
from roofmodel.models.architecture import DROPOUT_FIELDS, Architecture, Fact
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES
from roofmodel.models.fields import Key
from roofmodel.steps.estimate import parameters
from tests.draws import NEEDED
from tests.models import keys

WHERE = "some/config.json"

GPT2 = {"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 100}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "vocab_size": 100,
    "intermediate_size": 96,
}
QWEN2 = LLAMA | {"model_type": "qwen2", "num_key_value_heads": 2}
MISTRAL = LLAMA | {"model_type": "mistral"}
BERT = {k: v for k, v in LLAMA.items() if k != "intermediate_size"} | {"model_type": "bert"}
NEOX = LLAMA | {"model_type": "gpt_neox"}
DEEPSEEK = LLAMA | {"model_type": "deepseek_v3", "moe_intermediate_size": 32}
CHATGLM = {
    "model_type": "chatglm", "hidden_size": 64, "num_layers": 3, "num_attention_heads": 8, "padded_vocab_size": 100,
}  # fmt: skip
ALBERT = LLAMA | {"model_type": "albert"}


def read(config: dict[str, Any]) -> Architecture:
    return architecture(config, "a model", WHERE)


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {k: v for k, v in config.items() if k not in keys}


# --- Refused configs --------------------------------------------------------------------------------

DELETE = object()
MIXTRAL: dict[str, Any] = {
    "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "num_local_experts": 8,
}  # fmt: skip
BAD: list[tuple[str, dict[str, Any], dict[str, Any], list[str]]] = [
    # name of the case, valid config, changed keys, texts in the message apart from the file
    ("no model_type", GPT2, {"model_type": DELETE}, ["'model_type'", "'gpt2'"]),
    ("model_type null", GPT2, {"model_type": None}, ["'model_type'", "'gpt2'"]),
    ("model_type a number", GPT2, {"model_type": 512}, ["'model_type'", "512", "'gpt2'"]),
    ("model_type a list", GPT2, {"model_type": ["gpt2"]}, ["'model_type'", "['gpt2']"]),
    (
        "model_type a typo",
        GPT2,
        {"model_type": "gpt-2"},
        ["'gpt-2'", "did you mean 'gpt2'?", "roofmodel.list_families()"],
    ),
    ("model_type unknown", GPT2, {"model_type": "yodel"}, ["'yodel'", "roofmodel.list_families()"]),
    ("model_type refused", GPT2, {"model_type": "reformer"}, ["'reformer'", "not supported", "LSH"]),
    ("model_type endless", GPT2, {"model_type": "x" * 10**6}, ["unknown model_type 'xxx", "…"]),
    ("hidden not divisible", GPT2, {"n_embd": 50}, ["n_embd 50", "n_head 4", "divides"]),
    ("hidden not divisible (llama)", LLAMA, {"hidden_size": 65},
     ["hidden_size 65", "num_attention_heads 8", "head_dim"]),
    ("hidden not divisible, null head_dim", LLAMA, {"hidden_size": 65, "head_dim": None}, ["hidden_size 65"]),
    ("kv heads do not divide", LLAMA, {"num_key_value_heads": 3}, ["num_attention_heads 8", "num_key_value_heads 3"]),
    ("more kv heads than heads", LLAMA, {"num_key_value_heads": 16},
     ["num_attention_heads 8", "num_key_value_heads 16"]),
    ("kv heads zero", LLAMA, {"num_key_value_heads": 0}, ["'num_key_value_heads' is 0", "whole number from 1"]),
    ("head_dim zero", LLAMA, {"head_dim": 0}, ["'head_dim' is 0", "whole number from 1"]),
    ("head_dim text", LLAMA, {"head_dim": "64"}, ["'head_dim' is the text '64'; it must be a whole number"]),
    ("dropout text", GPT2, {"resid_pdrop": "0.1"},
     ["'resid_pdrop' is the text '0.1'; it must be a number from 0 to 1"]),
    ("MLP negative", LLAMA, {"intermediate_size": -1}, ["'intermediate_size' is -1", "whole number from 1"]),
    ("MLP a list", LLAMA, {"intermediate_size": [1, 2]}, ["'intermediate_size' is [1, 2]", "whole number"]),
    ("positions a float", GPT2, {"n_positions": 1024.0}, ["'n_positions' is 1024.0", "whole number"]),
    ("a flag in words", LLAMA, {"tie_word_embeddings": "false"}, ["'tie_word_embeddings' is 'false'", "true or false"]),
    ("a flag as number", LLAMA, {"attention_bias": 1}, ["'attention_bias' is 1", "true or false"]),
    ("a fraction above one", NEOX, {"rotary_pct": 25}, ["'rotary_pct' is 25", "from 0 to 1"]),
    ("a fraction that is no number", NEOX, {"rotary_pct": float("nan")}, ["'rotary_pct' is nan", "from 0 to 1"]),
    ("a fraction nested", NEOX, {"rope_parameters": {"partial_rotary_factor": -1}},
     ["'rope_parameters.partial_rotary_factor' is -1", "from 0 to 1"]),
    ("activation unknown", LLAMA, {"hidden_act": "swiglu"}, ["'hidden_act' is 'swiglu'", "silu", "gelu"]),
    ("activation a number", LLAMA, {"hidden_act": 3}, ["'hidden_act' is 3", "silu"]),
    ("activation a list", LLAMA, {"hidden_act": ["silu"]}, ["'hidden_act' is ['silu']", "silu"]),
    ("window negative", MISTRAL, {"sliding_window": -4}, ["'sliding_window' is -4", "whole number from 0"]),
    ("too few layer types", QWEN2, {"layer_types": ["full_attention"] * 2},
     ["'layer_types' has 2 entries", "num_hidden_layers 3"]),
    ("layer types unknown", QWEN2, {"layer_types": ["linear_attention"] * 3},
     ["'layer_types' is ['linear_attention'", "'full_attention' and 'sliding_attention'"]),
    ("layer types no list", QWEN2, {"layer_types": "full_attention"}, ["'layer_types' is 'full_attention'", "a list"]),
    ("two names disagree", GPT2, {"hidden_size": 64}, ["'n_embd' is 48 but 'hidden_size' is 64", "keep one"]),
    ("two names of the layers", GPT2, {"num_hidden_layers": 3}, ["'n_layer' is 2 but 'num_hidden_layers' is 3"]),
    ("two names of the heads", GPT2, {"num_attention_heads": 8}, ["'n_head' is 4 but 'num_attention_heads' is 8"]),
    ("the second name wrong", GPT2, {"hidden_size": "48"}, ["'hidden_size' is the text '48'", "whole number"]),
    ("labels disagree", BERT, {"id2label": {"0": "no", "1": "yes"}, "num_labels": 3},
     ["'id2label' is 2 but 'num_labels' is 3", "keep one"]),
    ("more experts active than there are", MIXTRAL, {"num_experts_per_tok": 20},
     ["num_experts_per_tok 20", "num_local_experts 8"]),
    ("more groups of experts active than there are", DEEPSEEK, {"topk_group": 12, "n_group": 8},
     ["topk_group 12", "n_group 8"]),
    ("labels a word", BERT, {"num_labels": "two"},
     ["'num_labels' is 'two'", "a mapping of class index to name, or the number of classes"]),
    ("labels none", BERT, {"id2label": {}},
     ["'id2label' is {}", "a mapping of class index to name, or the number of classes"]),
    ("latent attention without rotary elements", DEEPSEEK, {"qk_rope_head_dim": 0},
     ["'qk_rope_head_dim' is 0", "a whole number from 1"]),
    ("kind of norm a list", CHATGLM, {"rmsnorm": []}, ["'rmsnorm' is []", "true or false"]),
    ("kind of norm a mapping", CHATGLM, {"rmsnorm": {}}, ["'rmsnorm' is {}", "true or false"]),
    ("kind of norm a word", CHATGLM, {"rmsnorm": "layernorm"}, ["'rmsnorm' is 'layernorm'", "true or false"]),
    ("too many layers in the groups of a model", ALBERT, {"inner_group_num": 10**6},
     ["inner_group_num 1000000 × num_hidden_layers 3 are more than 10000 layers", "use fewer"]),
    ("cross attention", GPT2, {"add_cross_attention": True}, ["'add_cross_attention' is true", "gpt2"]),
    ("cross attention (bert)", BERT, {"add_cross_attention": True}, ["'add_cross_attention' is true", "bert"]),
    ("bert as decoder", BERT, {"is_decoder": True}, ["'is_decoder' is true", "bert"]),
    ("architectures text", GPT2, {"architectures": "GPT2LMHeadModel"},
     ["'architectures' is 'GPT2LMHeadModel'", "a list of class names"]),
    ("architectures of numbers", GPT2, {"architectures": [1]}, ["'architectures' is [1]", "a list of class names"]),
    ("head a typo", GPT2, {"architectures": ["GPT2LMHedModel"]},
     ["'GPT2LMHedModel'", "did you mean 'GPT2LMHeadModel'", "GPT2Model"]),
    ("head of another family", GPT2, {"architectures": ["T5ForConditionalGeneration"]},
     ["'T5ForConditionalGeneration'", "known: GPT2LMHeadModel"]),
    ("head that is not supported", GPT2, {"architectures": ["GPT2DoubleHeadsModel"]},
     ["'GPT2DoubleHeadsModel'", "not supported for gpt2", "GPT2LMHeadModel"]),
    ("head alone", BERT, {"architectures": ["ForFoo"]}, ["bert has no head 'ForFoo'", "known: ForMaskedLM"]),
]  # fmt: skip


@pytest.mark.parametrize(("good", "change", "fragments"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_an_invalid_config_is_refused_with_file_key_and_a_remedy(
    good: dict[str, Any], change: dict[str, Any], fragments: list[str]
) -> None:
    config = {k: v for k, v in (good | change).items() if v is not DELETE}
    with pytest.raises(ModelError) as caught:
        read(config)
    message = str(caught.value)
    assert message.startswith(f"{WHERE}: ")
    assert [fragment for fragment in fragments if fragment not in message] == []
    assert len(message) < 500
    assert "\n" not in message


FAMILIES_WITH_SIZES = [name for name, family in FAMILIES.items() if not family.network]  # a network has lists of sizes


def good(model_type: str) -> dict[str, Any]:
    """A config with only the core sizes of a family, under their first names."""
    sizes = {"hidden": 64, "layers": 2, "heads": 32, "vocabulary": 100, "widths": [8] * 4, "depths": [1] * 4}
    if model_type == "mamba2":
        sizes["hidden"] = 4096  # the default 128 heads of size 64 are twice as wide
    core = {key.names[0]: sizes[keys.kind_of_size(field)] for field, key in keys.sizes(model_type).items()}
    return {"model_type": model_type} | core | NEEDED.get(model_type, {})


@pytest.mark.parametrize("model_type", FAMILIES_WITH_SIZES)
def test_a_missing_core_size_is_named_in_the_error(model_type: str) -> None:
    wording = {"hidden": "hidden size", "layers": "layers", "heads": "attention heads", "vocabulary": "vocabulary"}
    for field, key in keys.sizes(model_type).items():
        with pytest.raises(ModelError) as caught:
            read(without(good(model_type), *key.names))
        message = str(caught.value)
        assert message.startswith(f"{WHERE}: the key ")
        assert ") is missing; it must be " in message
        assert all(repr(name) in message for name in key.names)
        assert wording[keys.kind_of_size(field)] in message
        assert "whole number" in message


def in_a_config(value: object) -> str:
    """A value as JSON and YAML write it, in place of Python's None and True; sizes and texts are the same."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)


INVALID_SIZES = [0, -1, -(10**30), "768", "", 1.5, 768.0, float("inf"), True, False, None, [768], {}, 10**30, 10**9_999]


@pytest.mark.parametrize("model_type", FAMILIES_WITH_SIZES)
def test_an_invalid_core_size_is_refused(model_type: str) -> None:
    """One test for all values: ten thousand separate tests would take longer than the reading."""
    for key in keys.sizes(model_type).values():
        others = without(good(model_type), *key.names)
        for name, value in itertools.product(key.names, INVALID_SIZES):
            shown = "thousands of digits" if value == 10**9_999 else in_a_config(value)
            with pytest.raises(ModelError) as caught:
                read(others | {name: value})
            message = str(caught.value)
            assert message.startswith(f"{WHERE}: {name!r} is ")
            assert shown in message
            assert "it must be a whole number from 1 to " in message


INVALID_STAGE_SIZES = [0, -1, "8", 8, 1.5, [], [0], [8, "8"], [8, None], [8, 10**30], {}, [[8]]]


@pytest.mark.parametrize("value", INVALID_STAGE_SIZES, ids=repr)
@pytest.mark.parametrize("name", ["hidden_sizes", "depths"])
def test_invalid_stage_sizes_are_refused(name: str, value: object) -> None:
    with pytest.raises(ModelError, match=re.escape(f"{WHERE}: {name!r} is ")) as caught:
        read(good("resnet") | {name: value})
    assert "a list of sizes, one per stage" in str(caught.value)


@pytest.mark.parametrize("name", ["hidden_sizes", "depths"])
def test_missing_stages_are_named_in_the_error(name: str) -> None:
    with pytest.raises(ModelError, match=re.escape(f"{WHERE}: the key {name!r} (")):
        read(without(good("resnet"), name))


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ModelError, match=re.escape("'hidden_sizes' of 4, 'depths' of 3 stages")):
        read(good("resnet") | {"depths": [1, 1, 1]})
    with pytest.raises(ModelError, match="'num_stages' of 3"):
        read(good("convnext") | {"num_stages": 3})


@pytest.mark.parametrize("value", [0, -1, "224", [224], [224, 0], [224, 224, 3], 224.5, True, {}, None], ids=repr)
@pytest.mark.parametrize("name", ["image_size", "patch_size"])
def test_an_invalid_image_or_patch_size_is_refused(name: str, value: object) -> None:
    with pytest.raises(ModelError) as caught:
        read(good("vit") | {name: value})
    remedy = "it must be pixels per side, or a list of two: rows and columns"
    assert str(caught.value) == f"{WHERE}: {name!r} is {in_a_config(value)}; {remedy}"


@pytest.mark.parametrize("depth", [10, 500, 5000])
def test_a_deeply_nested_value_is_refused(depth: int) -> None:
    nested: Any = 1
    for _ in range(depth):
        nested = [nested]
    with pytest.raises(ModelError, match="'n_embd' is "):
        read(GPT2 | {"n_embd": nested})


@pytest.mark.parametrize("model_type", FAMILIES_WITH_SIZES)
def test_an_odd_value_of_any_key_is_read_or_refused(model_type: str) -> None:
    """A list or a mapping cannot be looked up in a dict, and nothing may be repeated 10**30 times."""
    fields = keys.sources(model_type).values()
    for name in {name for key in fields if isinstance(key, Key) for name in key.names}:
        for value in ([[]], [{}], [[[[]], 10**30]], {}, {"a": [[]]}, 10**30, "x", None, -1.5):
            outer, _, inner = name.partition(".")
            with contextlib.suppress(ModelError):
                read(good(model_type) | {outer: {inner: value} if inner else value})


@pytest.mark.parametrize(("value", "written"), [(None, "null"), (True, "true")])
def test_a_refused_value_is_written_as_the_config_has_it(value: Any, written: str) -> None:
    config = {"model_type": "gpt2", "n_embd": 8, "n_layer": value, "n_head": 2, "vocab_size": 10, "n_positions": 8}
    with pytest.raises(ModelError, match=f"'n_layer' is {written}; it must be a whole number"):
        architecture(config, "x", "x")


# --- Accepted configs ----------------------------------------------------------------------------------


def test_a_given_head_size_need_not_divide_the_hidden_size() -> None:
    arch = read(LLAMA | {"hidden_size": 65, "head_dim": 16})
    attention = arch.stack.parts[0]
    assert (arch.stack.hidden, attention.heads, attention.head_dim) == (65, 8, 16)


def test_a_head_size_in_the_config_takes_precedence_over_hidden_over_heads() -> None:
    assert read(LLAMA).stack.parts[0].head_dim == 8  # 64 / 8
    assert read(LLAMA | {"head_dim": 32}).stack.parts[0].head_dim == 32


@pytest.mark.parametrize(
    ("config", "field", "key"),
    [
        (GPT2, "hidden", "n_embd"),
        (without(GPT2, "n_embd") | {"hidden_size": 48}, "hidden", "hidden_size"),
        (GPT2 | {"hidden_size": 48}, "hidden", "n_embd"),  # both keys with equal values
        (GPT2 | {"hidden_size": None}, "hidden", "n_embd"),  # null is ignored
    ],
    ids=["usual", "other", "both", "other is null"],
)
def test_the_config_key_of_a_field_is_recorded(config: dict[str, Any], field: str, key: str) -> None:
    assert read(config).facts[field] == Fact(48, key)


def test_equal_values_under_two_names_do_not_contradict() -> None:
    assert read(GPT2 | {"n_positions": 77, "max_position_embeddings": 77}).max_tokens == 77
    both = read(NEOX | {"rotary_pct": 1, "rope_parameters": {"partial_rotary_factor": 1.0}})
    assert both.stack.parts[0].rotary_dim == 8  # 100 % of the head size 64 / 8


def test_missing_keys_have_their_defaults_and_one_note_names_them() -> None:
    arch = read(GPT2 | {"architectures": ["GPT2LMHeadModel"]})
    assert arch.stack.parts[1].width == 4 * 48  # n_inner null: 4 × n_embd
    assert arch.stack.parts[1].activation == "gelu_new"
    assert arch.max_tokens == 1024
    assert arch.tied
    (note,) = arch.notes
    assert note.startswith(f"{WHERE}: ")
    assert "GPT2Config" in note
    for stated in (
        "n_inner = 192",
        'activation_function = "gelu_new"',
        "n_positions = 1024",
        "tie_word_embeddings = true",
    ):
        assert stated in note
    assert "n_embd" not in note
    assert "id2label" not in note  # a language model has no labels


def test_a_default_without_effect_is_not_in_the_note() -> None:
    minimax = MIXTRAL | {"model_type": "minimax_m2", "head_dim": 16}
    (defaults_note,) = (note for note in map(str, read(minimax).notes) if "the defaults of" in note)
    assert "partial_rotary_factor = 1" in defaults_note
    arch = read(minimax | {"rotary_dim": 8})
    assert arch.stack.parts[0].rotary_dim == 8
    assert "partial_rotary_factor" not in " ".join(arch.notes)
    # Qwen2 without sliding windows does not use the first layer with a window
    assert "max_window_layers" not in " ".join([*map(str, read(QWEN2).notes)])
    assert "max_window_layers = 28" in " ".join([*map(str, read(QWEN2 | {"use_sliding_window": True}).notes)])
    with pytest.raises(ModelError, match="'max_window_layers' is the text 'all'"):  # refused although unused
        read(QWEN2 | {"max_window_layers": "all"})
    # a default of a network's layout is recorded too
    resnet = {"model_type": "resnet", "hidden_sizes": [8, 16], "depths": [1, 1]}
    assert read(resnet).facts["downsample_early"].assumed


def test_the_note_names_labels_only_for_a_head_that_uses_them() -> None:
    arch = read(GPT2 | {"architectures": ["GPT2ForSequenceClassification"]})
    assert "id2label = 2" in arch.notes[0]


def test_a_complete_config_has_no_note() -> None:
    complete = GPT2 | {
        "architectures": ["GPT2LMHeadModel"],
        "n_inner": None,
        "activation_function": "relu",
        "n_positions": 64,
        "tie_word_embeddings": False,
    }
    assert read(complete).notes == ()


def test_a_config_without_architectures_has_the_default_head_and_a_note() -> None:
    for config in (GPT2, GPT2 | {"architectures": None}, GPT2 | {"architectures": []}):
        arch = read(config)
        assert arch.head.name == "GPT2LMHeadModel"
        (note,) = [note for note in arch.notes if "architectures" in note]
        assert note == f"{WHERE}: no 'architectures'; the usual head of gpt2 is assumed, GPT2LMHeadModel"


def test_an_old_spelling_of_the_class_is_accepted() -> None:
    assert read(LLAMA | {"architectures": ["LLaMAForCausalLM"]}).head.name == "LlamaForCausalLM"


@pytest.mark.parametrize(
    ("labels", "count"),
    [
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, 3),
        ({"num_labels": 5}, 5),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}, "num_labels": 3}, 3),
        ({"id2label": None, "num_labels": 4}, 4),
        ({"id2label": None}, 2),
        ({}, 2),
    ],
    ids=str,
)
def test_the_number_of_labels_is_read(labels: dict[str, Any], count: int) -> None:
    arch = read(BERT | {"architectures": ["BertForSequenceClassification"]} | labels)
    assert [stage.classes for stage in arch.head.stages if stage.out == "classes"] == [count]


def test_each_label_adds_a_row_and_a_bias(tmp_path: Any) -> None:
    import json

    counts = []
    for labels in (2, 7):
        file = tmp_path / f"{labels}.json"
        config = BERT | {"architectures": ["BertForSequenceClassification"], "num_labels": labels}
        file.write_text(json.dumps(config), encoding="utf-8")
        counts.append(roofmodel.estimate(str(file), "a100").to_dict()["model"]["parameters"])
    assert counts[1] - counts[0] == 5 * (64 + 1)  # 5 more classes × (hidden 64 + a bias)


def test_null_of_an_optional_key_is_the_default() -> None:
    assert read(LLAMA | {"num_key_value_heads": None}).stack.parts[0].kv_heads == 8  # one per query head
    assert read(GPT2 | {"n_inner": None}).stack.parts[1].width == 192


def test_irrelevant_keys_are_ignored() -> None:
    extra = {
        "initializer_range": 0.02,
        "rope_scaling": {"factor": 8.0},
        "x": [{}],
        "n_ctx": "?",
    }
    assert read(GPT2 | extra) == read(GPT2)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"base_model_name_or_path": "x", "peft_type": "LORA", "r": 8}, "the config of an adapter"),
        ({"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.6.0"}, "a config of diffusers"),
        ({"word_embedding_dimension": 768}, "the config of a pooling layer"),
        ({"dim": 4096, "n_layers": 32, "n_heads": 32}, "in its publisher's own format"),
    ],
)
def test_another_file_of_a_checkpoint_is_refused_by_its_kind(config: dict[str, Any], kind: str) -> None:
    with pytest.raises(ModelError, match=f"{WHERE}: is .*{kind}"):
        read(config)


def test_a_model_without_moe_layers_has_no_assumed_experts() -> None:
    hybrid = good("nemotron_h") | {"hybrid_override_pattern": "M*-M", "num_hidden_layers": 4}
    assert not any("experts" in note for note in map(str, read(hybrid).notes))
    assert any(
        "n_routed_experts = 8" in note for note in map(str, read(hybrid | {"hybrid_override_pattern": "M*EM"}).notes)
    )


def test_an_unsupported_feature_is_accepted_if_switched_off() -> None:
    assert read(GPT2 | {"add_cross_attention": False}) == read(GPT2)
    assert read(BERT | {"is_decoder": None}) == read(BERT)


def test_a_misspelled_model_type_is_refused_with_the_right_name() -> None:
    for model_type in FAMILIES.keys() - {"t5"}:  # too short for a suggestion
        with pytest.raises(ModelError, match=re.escape(f"did you mean '{model_type}'")):
            read({"model_type": f"{model_type[:-1]}_{model_type[-1]}"})


def test_optional_fields_refuse_implausible_values() -> None:
    """Text, lists and numbers of 31 digits are refused, and the message names the key: for every key of every family
    one of them, for every key all of them."""
    fractions = ("rotary", "layer_scale", *DROPOUT_FIELDS)
    tested = Counter[str]()
    for model_type, family in FAMILIES.items():
        for field, source in keys.sources(model_type).items():
            if not isinstance(source, Key) or field in family.switches:
                continue
            for name in (name for name in source.names if "." not in name):
                values = ("?", [[]], 10**30, -1, 0.5 if field not in fractions else 1.5)
                for invalid in [values[tested[name] % len(values)]] if tested[name] else values:
                    with pytest.raises(ModelError, match=re.escape(repr(name))):
                        read(good(model_type) | {name: invalid})
                tested[name] += 1


def test_a_convolutional_network_of_a_million_blocks_is_refused_at_once() -> None:
    config = good("resnet") | {"depths": [3, 4, 10**6, 3]}
    with pytest.raises(ModelError, match="'depths' sums to 1000010 blocks; at most 1000"):
        read(config)


def test_a_stage_too_narrow_for_a_bottleneck_is_refused() -> None:
    """A bottleneck has a quarter of the channels; a quarter of one is less than one channel."""
    config = {"architectures": ["ResNetForImageClassification"], "model_type": "resnet", "depths": [1, 1]}
    with pytest.raises(ModelError, match="'hidden_sizes' contains 1; a bottleneck block"):
        read(config | {"hidden_sizes": [256, 1]})
    read(config | {"hidden_sizes": [256, 1], "layer_type": "basic"})


DENSE = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip


def test_a_dense_granite_hybrid_with_zero_experts_equals_its_class() -> None:
    """As in ibm-granite/granite-4.0-350m: num_local_experts and num_experts_per_tok are 0."""
    pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
    from tests import oracle

    config = DENSE | {
        "model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"], "num_local_experts": 0,
        "num_experts_per_tok": 0, "shared_intermediate_size": 128, "layer_types": ["attention", "attention"],
    }  # fmt: skip
    arch = architecture(config, "x", "config.json")
    assert parameters(arch)[0] == oracle.parameters(oracle.build(config))


def test_null_is_causal_attention_in_gemma_4_unified() -> None:
    config = DENSE | {
        "model_type": "gemma4_unified_text", "architectures": ["Gemma4UnifiedForCausalLM"], "head_dim": 16,
    }  # fmt: skip
    null, vision = (
        architecture(config | {"use_bidirectional_attention": value}, "x", "config.json") for value in (None, "vision")
    )
    assert null.stack == vision.stack
    with pytest.raises(ModelError, match="use_bidirectional_attention"):
        architecture(config | {"use_bidirectional_attention": "all"}, "x", "config.json")


@pytest.mark.parametrize("stated", [{}, {"use_bidirectional_attention": True}, {"use_bidirectional_attention": None}])
def test_paligemma_is_counted_with_a_note_on_its_prompts(stated: dict[str, Any]) -> None:
    """Its class sets use_bidirectional_attention of the text model to true."""
    config = {"model_type": "paligemma", "text_config": DENSE | {"model_type": "gemma", "head_dim": 16} | stated}
    arch = architecture(config, "x", "config.json")
    assert [note for note in map(str, arch.notes) if "both directions within a prompt" in note]
