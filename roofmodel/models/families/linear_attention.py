"""Decoders most of whose layers have linear attention, by the gated delta rule. A row each."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families.latent import ACTIVE
from roofmodel.models.families.llama import LLAMA, PARTIAL
from roofmodel.models.families.mixtures import EXPERTS, SPARSE
from roofmodel.models.family import Family
from roofmodel.models.fields import SIZE, key

MIXER_WORDS = {"linear_attention": "delta_rule", "full_attention": "attention"}


def _mixers(types: Any) -> Any:
    if not isinstance(types, list) or not all(kind in MIXER_WORDS for kind in types):
        raise ValueError(f"a list of {' and '.join(map(repr, MIXER_WORDS))}, one a layer")
    return [MIXER_WORDS[kind] for kind in types]


def _one_full_in(f: Any) -> list[str]:
    """One layer in `full_attention_interval` has full attention, the last of them."""
    return ["linear_attention" if (layer + 1) % f["full_every"] else "full_attention" for layer in range(f["layers"])]


QWEN3_NEXT = LLAMA.like(
    "Qwen3Next",
    switches=dict(full_every=(SIZE, key("full_attention_interval", default=4))),
    kv_heads=key("num_key_value_heads", default=2),
    head_dim=key("head_dim", default=256),
    attention_gate="queries",
    rotary=key(*PARTIAL, default=0.25),
    qk_norm=True,
    mixers=key("layer_types", default=_one_full_in, read=_mixers),
    linear_heads=key("linear_num_key_heads", default=16),
    linear_value_heads=key("linear_num_value_heads", default=32),
    linear_head_dim=key("linear_key_head_dim", default=128),
    linear_value_dim=key("linear_value_head_dim", default=128),
    linear_matrices=(("qkv", "gate"), ("write", "forget")),
    filter=key("linear_conv_kernel_dim", default=4),
    chunk=64,  # whatever the config says
    mlp_width=key("intermediate_size", default=5632),
    mlp_bias=False,
    **SPARSE
    | dict(
        experts=key(*reversed(EXPERTS), default=512),
        experts_active=key(ACTIVE, default=10),
        expert_width=key("moe_intermediate_size", default=512),
    ),
    shared_width=key("shared_expert_intermediate_size", default=512),
    shared_gate=True,
    positions=key("max_position_embeddings", default=32768),
)

LINEAR_ATTENTION: dict[str, Family] = {"qwen3_next": QWEN3_NEXT}
