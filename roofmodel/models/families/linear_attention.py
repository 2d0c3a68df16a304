"""Decoders most of whose layers have linear attention, by the gated delta rule. A row each."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families.latent import ACTIVE
from roofmodel.models.families.llama import LLAMA, OLMO2, PARTIAL
from roofmodel.models.families.mixtures import EXPERTS, SPARSE
from roofmodel.models.family import CAUSAL_HEADS, LM, Family, heads
from roofmodel.models.fields import SIZE, Kind, key

ANGLE = Kind(lambda v: type(v) in (int, float) and v >= 0, "a number; null where nothing turns")
SCORE = CAUSAL_HEADS["ForSequenceClassification"]
MIXER_WORDS = {"linear_attention": "delta_rule", "full_attention": "attention"}


def _mixers(types: Any) -> Any:
    if not isinstance(types, list) or not all(kind in list(MIXER_WORDS) for kind in types):
        raise ValueError(f"a list of {' and '.join(map(repr, MIXER_WORDS))}, one a layer")
    return [MIXER_WORDS[kind] for kind in types]


def _one_full_in_four(f: Any) -> list[str]:
    """The last of each four has full attention, and so has the last of all where there are fewer."""
    full = range(3, f["layers"], 4) or [f["layers"] - 1]
    return ["full_attention" if layer in full else "linear_attention" for layer in range(f["layers"])]


def _one_full_in(f: Any) -> list[str]:
    """One layer in `full_attention_interval` has full attention, the last of them."""
    return ["linear_attention" if (layer + 1) % f["full_every"] else "full_attention" for layer in range(f["layers"])]


QWEN3_5 = LLAMA.like(
    "Qwen3_5",
    classes={"ForCausalLM": LM, "TextModel": (), "TextForSequenceClassification": SCORE},
    config="Qwen3_5TextConfig",
    switches=dict(full_every=(SIZE, key("full_attention_interval", default=4))),
    kv_heads=key("num_key_value_heads", default=4),
    head_dim=key("head_dim", default=256),
    attention_gate="queries",
    rotary=key(*PARTIAL, default=0.25),
    qk_norm=True,
    mixers=key("layer_types", default=_one_full_in, read=_mixers),
    linear_heads=key("linear_num_key_heads", default=16),
    linear_value_heads=key("linear_num_value_heads", default=32),
    linear_head_dim=key("linear_key_head_dim", default=128),
    linear_value_dim=key("linear_value_head_dim", default=128),
    linear_matrices=(("qkv",), ("gate",), ("write",), ("forget",)),
    filter=key("linear_conv_kernel_dim", default=4),
    chunk=64,  # whatever the config says
    mlp_width=key("intermediate_size", default=12288),
    mlp_bias=False,
    positions=key("max_position_embeddings", default=32768),
)
EXPERTS_BESIDE_ONE: dict[str, Any] = SPARSE | dict(
    experts=key(*reversed(EXPERTS), default=256),
    experts_active=key(ACTIVE, default=8),
    expert_width=key("moe_intermediate_size", default=512),
    shared_width=key("shared_expert_intermediate_size", default=512),
    shared_gate=True,
    kv_heads=key("num_key_value_heads", default=2),
)

LINEAR_ATTENTION: dict[str, Family] = {
    "qwen3_next": QWEN3_5.like(
        "Qwen3Next",
        classes=CAUSAL_HEADS,
        config="",
        linear_matrices=(("qkv", "gate"), ("write", "forget")),
        mlp_width=key("intermediate_size", default=5632),
        **EXPERTS_BESIDE_ONE
        | dict(experts=key(*reversed(EXPERTS), default=512), experts_active=key(ACTIVE, default=10)),
    ),
    "qwen3_5_text": QWEN3_5,
    "qwen3_5_moe_text": QWEN3_5.like(
        "Qwen3_5Moe",
        classes={"ForCausalLM": LM, "TextModel": ()},
        config="Qwen3_5MoeTextConfig",
        **EXPERTS_BESIDE_ONE | dict(moe_every=1, dense_layers=[], mlp_width=1),  # no layer has a dense MLP
    ),
    "olmo_hybrid": OLMO2.like(
        "OlmoHybrid",
        classes=heads("ForCausalLM", "Model"),
        switches=dict(theta=(ANGLE, key("rope_parameters.rope_theta", default=10000.0, null=0))),
        pre_norm=True,
        out_norm=False,
        norms_behind=lambda f: [int(mixer == "attention") for mixer in f["mixers"]],
        rotary=lambda f: int(f["theta"] != 0),
        mixers=key("layer_types", default=_one_full_in_four, read=_mixers),
        linear_heads=key("linear_num_key_heads", default=lambda f: f["heads"]),
        linear_value_heads=key("linear_num_value_heads", default=lambda f: f["heads"]),
        linear_head_dim=key("linear_key_head_dim", default=lambda f: int(0.75 * f["hidden"] / f["linear_heads"])),
        linear_value_dim=key("linear_value_head_dim", default=lambda f: 2 * f["linear_head_dim"]),
        linear_matrices=(("q",), ("k",), ("v",), ("gate",), ("write",), ("forget",)),
        filter=key("linear_conv_kernel_dim", default=4),
        chunk=64,
        positions=key("max_position_embeddings", default=65536),
    ),
}
