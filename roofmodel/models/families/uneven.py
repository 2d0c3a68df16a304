"""Decoders whose layers are not alike: heads of other numbers and sizes where they slide, keys that others lend."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families.llama import GEMMA2
from roofmodel.models.family import LM, Family
from roofmodel.models.fields import FLAG, FULL, SIZE, SLIDING, Kind, key

OVERRIDES = Kind(lambda v: isinstance(v, dict), "a mapping from layers to what is other there")
OF_HEADS = {"head_dim", "num_key_value_heads"}
EITHER_WAY = Kind(lambda v: v == "vision", "null or 'vision': tokens that see those ahead of them are not counted")


def _full_last(types: Any) -> Any:
    """The class has the last layer see everything, whatever the config says."""
    return [*types[:-1], FULL] if isinstance(types, list) and types else types


def _one_full_in_six(f: Any) -> list[str]:
    return _full_last([FULL if (layer + 1) % 6 == 0 else SLIDING for layer in range(f["layers"])])  # type: ignore[no-any-return]


def _alike(overrides: Any) -> Any:
    """`per_layer_config`, as the class writes it: layers by number -> what their heads have otherwise."""
    wanted = f"for each full layer the same {' and '.join(map(repr, sorted(OF_HEADS)))}, and nothing for others"
    if not isinstance(overrides, dict) or not all(str(layer).isdigit() for layer in overrides):
        raise ValueError(wanted)
    for found in overrides.values():
        if not isinstance(found, dict) or not OF_HEADS.issuperset(found) or found != next(iter(overrides.values())):
            raise ValueError(wanted)
        if not all(SIZE.accepts(size) for size in found.values()):
            raise ValueError(wanted)
    return {int(layer): found for layer, found in overrides.items()}


def _of_full_layers(name: str, alike: str, otherwise: Any) -> Any:
    """What the heads of full layers have: their own in `per_layer_config`, where the config has such a thing."""

    def rule(f: Any) -> Any:
        overrides = f["overrides"]
        if overrides is None:
            return otherwise(f)
        full = {layer for layer, kind in enumerate(f["layer_types"]) if kind == FULL}
        if overrides and set(overrides) != full:
            raise ValueError(f"'per_layer_config' has layers {sorted(overrides)}, but {sorted(full)} do not slide")
        return f[alike] if not overrides else next(iter(overrides.values())).get(name, f[alike])

    return rule


def _global_kv_heads(f: Any) -> Any:
    return f["global_kv_heads"] if f["values_of_keys"] and f["global_kv_heads"] else f["window_kv_heads"]


def _experts(f: Any) -> list[int]:
    """In all layers or in none; the sizes of experts then have no defaults."""
    sizes = {"num_experts": "experts", "top_k_experts": "experts_active", "moe_intermediate_size": "expert_width"}
    for name, field in sizes.items():
        if f["mixes"] and not f[field]:
            raise ValueError(f"'enable_moe_block' is true, but there is no {name!r}")
    return [int(f["mixes"])] * f["layers"]


GEMMA4 = GEMMA2.like(
    "Gemma4",
    classes={"ForCausalLM": LM, "TextModel": ()},
    config="Gemma4TextConfig",
    refuses=(),
    switches=dict(
        either_way=(EITHER_WAY, key("use_bidirectional_attention", default=None)),
        overrides=(OVERRIDES, key("per_layer_config", default=None, read=_alike)),
        global_head_dim=(SIZE, key("global_head_dim", default=512)),
        global_kv_heads=(SIZE, key("num_global_key_value_heads", default=None)),
        doubled=(FLAG, key("use_double_wide_mlp", default=False)),
        mixes=(FLAG, key("enable_moe_block", default=False)),
    ),
    kv_heads=_of_full_layers("num_key_value_heads", "window_kv_heads", _global_kv_heads),
    head_dim=_of_full_layers("head_dim", "window_head_dim", lambda f: f["global_head_dim"]),
    window_kv_heads=key("num_key_value_heads", default=4),
    window_head_dim=key("head_dim", default=256),
    rotary=1,  # a part of a full layer's heads turns by zero degrees, in the same kernel
    window=key("sliding_window", default=512),
    layer_types=key("layer_types", default=_one_full_in_six, read=_full_last),
    values_of_keys=key("attention_k_eq_v", default=False),
    qk_norm=True,
    value_norm=True,
    borrowers=key("num_kv_shared_layers", default=0),
    borrower_mlp_width=lambda f: (1 + f["doubled"]) * f["mlp_width"],
    mlp_width=key("intermediate_size", default=9216),
    experts=key("num_experts", default=None, null=0),
    experts_active=key("top_k_experts", default=None, null=0),
    expert_width=key("moe_intermediate_size", default=None, null=0),
    expert_layers=_experts,
    fused_experts=True,
    correction=True,  # it scales what the expert gives
    mlp_beside=True,
    layer_input=key("hidden_size_per_layer_input", default=256, null=0),
    layer_input_rows=key("vocab_size_per_layer_input", default=262144),
    positions=key("max_position_embeddings", default=131072),
)

UNEVEN: dict[str, Family] = {
    "gemma4_text": GEMMA4,
}
