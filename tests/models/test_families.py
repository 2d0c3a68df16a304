"""Every family compared with its Hugging Face classes: key names, defaults, heads, activations.

The expected values are attributes of the real config objects, never values of this package.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from roofmodel.counting.vector_flops import ACTIVATION
from roofmodel.models.architecture import Fact, Network
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES
from roofmodel.models.families.latent_attention import DOTS_WINDOW_SIZES
from roofmodel.models.fields import REQUIRED, Key
from roofmodel.models.layers import ACTIVATIONS
from tests import draws
from tests.models import keys

transformers = pytest.importorskip(
    "transformers", reason="the real classes need transformers: pip install 'roofmodel[dev]'"
)
huggingface_hub = pytest.importorskip(
    "huggingface_hub", reason="transformers' errors need huggingface_hub: pip install 'roofmodel[dev]'"
)
pytest.importorskip("torch", reason="the real activations need torch: pip install 'roofmodel[dev]'")

# By the last word of a field (`layers` of `encoder_layers`). No core size equals a default of any family. 64 heads are
# divisible by all default numbers of key-value heads (8, 32).
CORE_SIZES = {"hidden": 1920, "layers": 5, "heads": 64, "vocabulary": 60_000}
NETWORK_SIZES = {"widths": [32, 64, 128, 320], "depths": [1, 2, 3, 1]}
SIZES_OF = {
    "gpt_neo": {"layers": 24},  # its default lists the kinds of 24 layers
    "bitnet": {"heads": 60},  # divisible by its default of 5 key-value heads
    "switch_transformers": {"layers": 12},  # its default for the decoder
    "helium": {"heads": 40},  # divisible by its default of 20 key-value heads
    "gemma3n_text": {"layers": 35},  # by default, 15 of them use the keys and values of others
    "nemotron_h": {"layers": 4},  # its default lists 4 layers
    "mamba2": {"hidden": 4096},  # 8192 channels = the default 128 heads of size 64
}
# Keys that modeling code reads although the config class does not declare them.
UNDECLARED = {
    # its config class moves these to `per_layer_config`
    "dots3_note_text": {f"swa_{name}" for name, _ in DOTS_WINDOW_SIZES.values()} | {"swa_qk_rope_head_dim"},
    "deberta-v2": {"attention_head_size", "embedding_size", "share_att_key", "norm_rel_ebd"}
    | {"conv_kernel_size", "conv_groups", "conv_act"},
}
MISSING = object()

FAMILY_NAMES = list(FAMILIES)


def _fields_with_defaults(model_type: str) -> list[str]:
    """The fields that a config may omit, except switches."""
    return [
        field
        for field, source in keys.sources(model_type).items()
        if isinstance(source, Key) and source.default is not REQUIRED and field not in FAMILIES[model_type].switches
    ]


def _names(model_type: str, field: str) -> tuple[str, ...]:
    source = keys.sources(model_type)[field]
    assert isinstance(source, Key)
    return source.names


def _core(model_type: str) -> dict[str, Any]:
    """Only the core sizes, by the family's keys."""
    sizes = {_names(model_type, field)[0]: size for field, size in _sizes(model_type).items()}
    return sizes | draws.NEEDED.get(model_type, {})


def _sizes(model_type: str) -> dict[str, Any]:
    if FAMILIES[model_type].network:
        return NETWORK_SIZES
    known = CORE_SIZES | SIZES_OF.get(model_type, {})
    return {field: known[keys.kind_of_size(field)] for field in keys.sizes(model_type)}


def _real(model_type: str, **settings: Any) -> Any:
    return transformers.AutoConfig.for_model(model_type, **_core(model_type), **settings)


def _ours(model_type: str, **settings: Any) -> dict[str, Fact]:
    config = {"model_type": model_type, **_core(model_type), **settings}
    return architecture(config, "drawn", "config.json").facts


def _attribute(config: Any, name: str) -> Any:
    """`config.a`, or `config.a["b"]` for a name such as `rope_parameters.partial_rotary_factor`."""
    config.allow_global_per_layer_attribute_access = (
        True  # if layers differ: the value of the layers without an exception
    )
    value = config
    for part in name.split("."):
        value = value.get(part, MISSING) if isinstance(value, dict) else getattr(value, part, MISSING)
        if value is MISSING:
            return MISSING
    return value


# Families share these fields, which list the names in all classes.
DROPPED = ("dropout", "attention_dropout", "attention_output_dropout")
LEFT_OPEN = object()  # the modeling code decides; configs drawn at random (tests/draws.py) also omit the key


def _derived(model_type: str, field: str, real: Any) -> Any:
    """The value of the key in the real config class."""
    source = keys.sources(model_type)[field]
    if field == "window" and "uses_window" in FAMILIES[model_type].switches:
        # None while use_sliding_window is off
        return _real(model_type, use_sliding_window=True).sliding_window
    if field == "labels":
        return len(real.id2label)
    values = [v for name in source.names if (v := _attribute(real, name)) is not MISSING]
    if field in DROPPED:
        values = values[:1] or [0.0]  # a class without any of these names has no dropout
    undeclared = not values and set(source.names) <= UNDECLARED.get(model_type, set())
    if undeclared or (callable(source.default) and set(map(str, values)) <= {"None"}):
        return LEFT_OPEN
    assert values, f"{type(real).__name__} has none of {source.names}"
    assert all(value == values[0] for value in values)
    if source.default is None and values[0] is None:
        return source.null if source.null is not REQUIRED else None
    return source.read(values[0]) if source.read else values[0]


@pytest.mark.parametrize("model_type", FAMILY_NAMES)
def test_defaults_equal_those_of_the_real_config_class(model_type: str) -> None:
    facts, real = _ours(model_type), _real(model_type)
    for field in _fields_with_defaults(model_type):
        fact, expected = facts[field], _derived(model_type, field, real)
        assert fact.assumed, field
        if expected is not LEFT_OPEN:
            assert (fact.value, type(fact.value)) == (expected, type(expected)), field


@pytest.mark.parametrize("model_type", FAMILY_NAMES)
def test_a_config_saved_by_the_real_class_has_each_core_size_under_one_known_name(model_type: str) -> None:
    saved = _real(model_type).to_dict()
    for field, size in _sizes(model_type).items():
        assert [saved[name] for name in _names(model_type, field) if name in saved] == [size]


@pytest.mark.parametrize("model_type", FAMILY_NAMES)
def test_every_name_of_a_core_size_means_the_same_to_the_real_class(model_type: str) -> None:
    for field, size in _sizes(model_type).items():
        names = _names(model_type, field)
        for name in names:
            settings = _core(model_type)
            del settings[names[0]]
            settings[name] = size
            real = transformers.AutoConfig.for_model(model_type, **settings)
            values = [value for n in names if (value := _attribute(real, n)) is not MISSING]
            assert values == [size] * len(values) != []
            ours = architecture({"model_type": model_type, **settings}, "drawn", "config.json")
            assert ours.facts[field] == Fact(size, name)


@pytest.mark.parametrize("model_type", FAMILY_NAMES)
def test_a_config_saved_by_the_real_class_is_read_without_a_contradiction(model_type: str) -> None:
    arch = architecture(_real(model_type).to_dict(), "written", "config.json")
    sizes = _sizes(model_type)
    if isinstance(arch.body, Network):
        assert [len(stage.blocks) for stage in arch.body.stages] == sizes["depths"]
        assert arch.body.width == sizes["widths"][-1]
        return
    known = CORE_SIZES | SIZES_OF.get(model_type, {})
    for stack in filter(None, (arch.stack, arch.encoder)):
        per_group = arch.facts["layers_per_group"].value if "layers_per_group" in arch.facts else 1
        assert (stack.hidden, len(stack.layers)) == (known["hidden"], known["layers"] * per_group)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("first", [0, 2, 5, 28])
def test_qwen2_has_sliding_windows_in_the_layers_of_the_real_class(used: bool, first: int) -> None:
    settings = {"use_sliding_window": used, "max_window_layers": first}
    real = _real("qwen2", **settings)
    arch = architecture({"model_type": "qwen2", **_core("qwen2"), **settings}, "drawn", "config.json")
    sliding = [part.window is not None for part in arch.stack.parts[::2]]
    assert sliding == [layer == "sliding_attention" for layer in real.layer_types]


@pytest.mark.parametrize("model_type", FAMILY_NAMES)
def test_null_has_the_meaning_of_the_real_class(model_type: str) -> None:
    """For classes that accept null. Null may have another meaning than a missing key."""
    defaults = _real(model_type)
    for field in _fields_with_defaults(model_type):
        if field in ("labels", "rotary", "layer_types"):
            continue
        name = _names(model_type, field)[0]
        if field in DROPPED:
            name = next((n for n in _names(model_type, field) if _attribute(defaults, n) is not MISSING), name)
        try:
            real = _real(model_type, **{name: None})
        except (huggingface_hub.errors.StrictDataclassError, TypeError, ZeroDivisionError):
            continue  # the class rejects null
        if field == "window":
            assert getattr(real, name) in (None, 0)
            assert _ours(model_type, **{name: None})["window"].value is None
            continue
        expected = _derived(model_type, field, real)
        if expected is LEFT_OPEN or expected is None:
            continue  # the class keeps null; its modeling code interprets it, or fails
        assert _ours(model_type, **{name: None})[field].value == expected, field


@pytest.mark.parametrize("model_type", FAMILY_NAMES)
def test_every_head_is_a_class_of_transformers_with_this_config(model_type: str) -> None:
    mapped = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    for suffix in FAMILIES[model_type].classes:
        real = getattr(transformers, FAMILIES[model_type].prefix + suffix)
        assert real.config_class.model_type == model_type or mapped[model_type] == real.__name__


@pytest.mark.parametrize("model_type", FAMILY_NAMES)
def test_the_config_class_named_in_notes_exists(model_type: str) -> None:
    assert type(_real(model_type)).__name__ == FAMILIES[model_type].config_class


# Keys of the real config classes that change neither shapes nor work. The test fails for a new, unlisted key.
CHANGES_NO_SHAPE = re.compile(
    r".*(dropout|dropout_prob|pdrop|drop|_eps|epsilon|_token_id|_coef|jitter_noise)|init_(std|device)|lambda_std_dev|initializer_range"
    r"|use_cache|rope_parameters|pretraining_tp|slow_but_exact|is_decoder|apply_residual_connection_post_layernorm"
    r"|.*_multipliers?|logits?_scal(e|ing)|.*_softcapping|query_pre_attn_scalar|clip_qkv|swiglu_(alpha|limit|limits|limits_shared)"
    r"|scale_(attn|attention|embedding).*|attention_softmax_in_fp32|reorder_and_upcast_attn|norm_topk_prob"
    r"|output_router_logits|original_max_position_embeddings|n_ctx|attention_layers|sinusoidal_pos_embds"
    r"|n_group|topk_group|topk_method|moe_norm_min|enable_moe_fp32_combine"  # selection of experts
    r"|(moe_)?rout(ed|er)_scaling_factor|route_scale|use_expert_bias|expert_selection_fn|shared_expert_combination_strategy"
    r"|attn_scale|attn_temperature_tuning|floor_scale|attention_value_scale|scale_(emb|depth)|mup_enabled|dim_model_base"
    r"|rope_interleave|num_nextn_predict_layers|num_mtp_layers|mtp_.*types?"  # MTP layers are not counted
    r"|qk_head_dim"  # derived from other keys
    r"|initializer_factor|relative_attention_max_distance|dense_act_fn|is_gated_act|dropout_rate|scale_decoder_outputs"
    r"|.*suppress_tokens|encoder_no_repeat_ngram_size|apply_spec_augment|mask_(time|feature)_.*|median_filter_width"
    r"|use_weighted_layer_sum|classifier_proj_size"  # only WhisperForAudioClassification, which is not supported
    r"|summary_.*"  # only GPT2DoubleHeadsModel, which is not supported
    r"|drop_path_rate|stage_names|_?out_(features|indices)|encoder_stride"  # backbones and masked images
    r"|rope_(theta|scaling)|vocab_list|esmfold_config|pooler_hidden_size|is_folding_model"
    r"|sparse_pred.*|classifier_pooling|deterministic_flash_attn|initializer_cutoff_factor"
    r"|time_step_(scale|min|max|init_scheme|floor|limit)|rescale_prenorm_residual|residual_in_fp32"
    r"|use_mambapy|use_mamba_kernels|use_associative_scan|mamba_norm_before_gate|num_logits_to_keep|mixer_rms_eps|z_loss_coefficient"
    r"|(full_attn|linear_attn|mlp)_(alpha|beta)_factor"
    r"|num_expert_group|moe_renormalize|kda_lower_bound|mtp_loss_scaling_factor"
    r"|qk_scale_factor|output_multiplier|rope_scaling_layers|scoring_func|compress_rope_theta|hc_magnitude|learnable_sink_init"
    r"|logits_soft_cap|(final_)?w_init_variance_scale"
    r"|linear_(a_log|dt)_.*|linear_allow_neg_eigval"  # initialization, and a factor of 2
    r"|attn_config|embedding_fraction|expansion_ratio|learned_pos_emb|no_bias|norm_type",  # ignored by mpt's class
)
# Keys that the code of this family ignores although other families read them.
LATENT = {"head_dim", "num_key_value_heads"}  # derived from the keys of the latents; all heads have the same size
NOT_READ = {
    "phimoe": {"num_experts_per_tok"},
    "jetmoe": {"num_attention_heads"},  # derived
    "gpt_bigcode": {"num_key_value_heads"},
    "qwen3_vl_moe_text": {"sliding_window"},
    "qwen3_omni_moe_text": {"sliding_window"},
    "deepseek_v32": LATENT | {"mlp_bias", "layer_types"},
    "glm_moe_dsa": LATENT | {"mlp_bias", "layer_types"},
    "youtu": LATENT | {"embedding_initializer_range"},
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "mistral4", "minicpm3"), LATENT),
    "mamba2": {"time_step_rank"},
    "kimi_linear": LATENT | {"tie_word_embeddings"},
    "bailing_hybrid": LATENT | {"tie_word_embeddings", "linear_num_heads"},
    "step3p5": {"hidden_act"},
    # all layers have experts, a shared one of their size, and one key-value head
    "deepseek_v4": {"num_key_value_heads", "n_shared_experts", "mlp_layer_types"},
    "axk1": LATENT,
    "dots3_note_text": LATENT | {"mlp_bias"},
    "longcat_flash": LATENT,
    "axk2": LATENT | {"layer_types"},
    "modernbert-decoder": {"sliding_window"},  # half of `local_attention`
    "cohere_compass_text": {"head_dim", "pooling"},  # pooling: of the classifier, which is not supported
    "cosmos3_edge_text": {"tie_word_embeddings"},
    "switch_transformers": {"encoder_sparse_step", "decoder_sparse_step"}  # derived from the numbers of layers
    | {"add_cross_attention", "add_router_probs", "router_dtype", "router_ignore_padding_tokens"},
    # kernels and their formats; the code ignores `add_out_norm`
    "xlstm": {
        "embedding_dim",
        "num_blocks",
        "mode",
        "add_out_norm",
        "return_last_states",
        "max_inference_chunksize",
        "eps",
    }
    | {"chunkwise_kernel", "sequence_kernel", "step_kernel", "autocast_kernel_dtype", "inference_state_dtype"}
    | {"norm_reduction_force_float32", "gate_soft_cap", "output_logit_soft_cap", "tie_word_embeddings"},
    "rwkv": {"context_length", "rescale_every"},  # of a kernel; factors of weights
    "recurrent_gemma": {"head_dim"},  # always the hidden size / heads
    "mllama_text_model": {"tie_word_embeddings"},
    "molmo2_text": {"tie_word_embeddings"},
    "ernie4_5_vl_moe_text": {"tie_word_embeddings"},
    "muse_glimmer_text": {"tie_word_embeddings"},
    "muse_spark_text": {"tie_word_embeddings", "residual_gate_temperature"},
    "glm5_next_text": LATENT
    | {"first_k_dense_replace", "mlp_bias", "swiglu_limit", "index_kpool_always_select_tail", "tie_word_embeddings"},
    "inkling_text": {"log_scaling_n_floor", "log_scaling_alpha", "shared_expert_sink", "unpadded_vocab_size"}
    | {"logits_mup_width_multiplier", "rms_norm_eps_moe_gate", "chain_hidden_post_norm", "mtp_hidden_states_first"}
    | {"mtp_local_layer_ids", "tie_word_embeddings", "number_of_conv_states"},
    # all experts have an activation of the class's own
    "inkling2_text": {"hidden_act", "log_scaling_n_floor", "log_scaling_alpha", "unpadded_vocab_size"}
    | {"qk_l2_clip_threshold", "rel_l2_clip_threshold", "mlp_gate_softcap", "mlp_up_softcap"}
    | {"tie_word_embeddings", "number_of_conv_states"},
    "hy_v4": LATENT | {"layer_types"},
    "mistral_large4_text": LATENT | {"layer_types"},
    "dbrx": {"tie_word_embeddings", "num_key_value_heads"},  # the latter: a copy of `attn_config.kv_n_heads`
    "minimax_m3_vl_text": {"hidden_act", "index_local_blocks"},
    "qwen4_exp_text": {
        "number_of_conv_states",
        "split_ngram_parts",
        "seed",
    },  # of the checkpoint's parts, of the hashes
    "gemma3n_text": {"altup_coef_clip", "altup_active_idx"},  # every stream costs the same
    "nemotron_h": {"attention_bias", "expand", "mamba_proj_bias", "n_shared_experts", "sliding_window"}
    | {"tie_word_embeddings", "moe_shared_expert_overlap", "mamba_ssm_cache_dtype"},
}


@pytest.mark.parametrize("model_type", FAMILY_NAMES)
def test_every_key_of_the_real_config_class_is_read_or_changes_no_shape(model_type: str) -> None:
    family = FAMILIES[model_type]
    sources = keys.sources(model_type).values()
    read = {name.split(".")[0] for source in sources if isinstance(source, Key) for name in source.names}
    saved = set(_real(model_type).to_dict()) - set(transformers.PretrainedConfig().to_dict())
    unknown = saved - read - set(family.refuses) - NOT_READ.get(model_type, set())
    assert {key for key in unknown if not CHANGES_NO_SHAPE.fullmatch(key)} == set()


@pytest.mark.parametrize("model_type", FAMILY_NAMES)
def test_every_unsupported_switch_is_off_by_default_in_the_real_class(model_type: str) -> None:
    for switch in FAMILIES[model_type].refuses:
        assert not getattr(_real(model_type), switch, False)


TRANSFORMERS_ACTIVATIONS = [name for name in ACTIVATIONS if name != "situ"]  # Kimi-K3's code has its own


@pytest.mark.parametrize("name", TRANSFORMERS_ACTIVATIONS)
def test_every_activation_exists_in_transformers_and_has_a_cost(name: str) -> None:
    from transformers.activations import ACT2FN

    assert name in ACT2FN
    assert ACTIVATIONS[name] in ACTIVATION


@pytest.mark.parametrize("name", TRANSFORMERS_ACTIVATIONS)
def test_an_activations_formula_equals_its_function(name: str) -> None:
    """`gelu_fast` may replace `gelu_new`, because both compute the same numbers."""
    import torch
    from transformers.activations import ACT2FN

    canonical = {"gelu_tanh": "gelu_pytorch_tanh", "gelu_quick": "quick_gelu"}.get(ACTIVATIONS[name], ACTIVATIONS[name])
    x = torch.linspace(-9, 9, 1001, dtype=torch.float64)
    torch.testing.assert_close(ACT2FN[name](x), ACT2FN[canonical](x), rtol=0, atol=1e-6)


def test_a_null_window_switches_the_window_off_as_in_the_real_class() -> None:
    arch = architecture({"model_type": "mistral", **_core("mistral"), "sliding_window": None}, "drawn", "config.json")
    assert _real("mistral", sliding_window=None).sliding_window is None
    assert {part.window for part in arch.stack.parts[::2]} == {None}
