"""Decoders with hyper-connections, that is several residual streams: DeepSeek-V4, Hunyuan 4 and GLM-5.3."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families import Family, heads
from roofmodel.models.families.latent_attention import (
    ACTIVE,
    DEEPSEEK_V32,
    INDEXER_PATTERN,
    ROUTED,
    SPARSE_LAYERS,
    indexer_types,
    layer_flags,
    sparse_from,
)
from roofmodel.models.families.linear_attention import KIMI, LINEAR_CONFIG, mixers
from roofmodel.models.families.llama import LLAMA
from roofmodel.models.fields import COUNT, SIZE, FieldType, key

WINDOW_ONLY, COMPRESSED, HEAVILY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
KINDS_BY_RATIO = {0: WINDOW_ONLY, 4: COMPRESSED, 128: HEAVILY}
ATTENTION_KINDS = FieldType(
    lambda v: isinstance(v, list) and all(kind in KINDS_BY_RATIO.values() for kind in v),
    f"a list of {', '.join(map(repr, KINDS_BY_RATIO.values()))}, one per layer",
)
RATIOS = FieldType(
    lambda v: isinstance(v, list) and all(ratio in tuple(KINDS_BY_RATIO) for ratio in v),
    "a list of 0 (only a window), 4 and 128 tokens per compressed entry, one per layer",
)
BOUND = FieldType(lambda v: type(v) in (int, float), "a number; null without a bound of the decay")


def _attention_kinds(f: Any) -> list[str]:
    """The kind of each layer: as listed; from the ratios of the published config; else as in the class."""
    layers = f["layers"]
    if f["listed_kinds"] is not None:
        return list(f["listed_kinds"])[:layers]
    if f["listed_ratios"] is not None:
        return [KINDS_BY_RATIO[ratio] for ratio in f["listed_ratios"][:layers]]
    return [COMPRESSED if layer >= 2 and layer % 2 else HEAVILY for layer in range(layers)]


def _ratios(f: Any) -> list[int]:
    ratios = {WINDOW_ONLY: 0, COMPRESSED: f["ratio"], HEAVILY: f["heavy_ratio"]}
    return [ratios[kind] for kind in _attention_kinds(f)]


def _one_indexed_in_four(f: Any) -> list[str]:
    return ["linear_attention" if layer % 4 != 3 else "indexed_attention" for layer in range(f["layers"])]


def _glm_mixers(types: Any) -> Any:
    """Mixers from `layer_types`, in which attention has two names."""
    renamed = {"indexed_attention": "full_attention"}
    if not isinstance(types, list) or not all(
        kind in ("linear_attention", *renamed, *renamed.values()) for kind in types
    ):
        raise ValueError("a list of 'linear_attention' and 'indexed_attention', one per layer")
    return mixers([renamed.get(kind, kind) for kind in types])


def _full_indexers(f: Any) -> list[str]:
    """The first layer, and then one in four, has its own indexer."""
    return ["full" if layer == 0 or (layer - 1) % 4 == 0 else "shared" for layer in range(f["layers"])]


FAMILIES: dict[str, Family] = {
    # the first layers choose experts by a table of token ids, a buffer, in place of the scores: the same work
    "deepseek_v4": LLAMA.like(
        "DeepseekV4",
        classes=heads("ForCausalLM", "Model"),
        switches=dict(
            listed_kinds=(ATTENTION_KINDS, key("layer_types", default=None)),
            listed_ratios=(RATIOS, key("compress_ratios", default=None)),
            ratio=(SIZE, key("compress_rates.compressed_sparse_attention", "compress_rate_csa", default=4)),
            heavy_ratio=(SIZE, key("compress_rates.heavily_compressed_attention", "compress_rate_hca", default=128)),
            rope_dim=(COUNT, key("qk_rope_head_dim", default=None)),
        ),
        refuses=("attention_bias",),  # the class ignores it
        kv_heads=1,
        head_dim=key("head_dim", default=512),
        query_latent=key("q_lora_rank", default=1024),
        rotary=key("partial_rotary_factor", default=lambda f: (f["rope_dim"] or f["head_dim"] / 8) / f["head_dim"]),
        window=key("sliding_window", default=128),
        compressed_ratio=_ratios,
        compressed_overlaps=lambda f: [int(kind == COMPRESSED) for kind in _attention_kinds(f)],
        compressed_out_groups=key("o_groups", default=8),
        compressed_out_rank=key("o_lora_rank", default=1024),
        index_topk=key("index_topk", default=512),
        index_heads=key("index_n_heads", default=64),
        index_head_dim=key("index_head_dim", default=128),
        streams=key("hc_mult", default=4),
        streams_sinkhorn=key("hc_sinkhorn_iters", default=20),
        mlp_width=lambda f: f["expert_width"],  # no layer has a dense MLP
        experts=key(*ROUTED, default=256),
        experts_active=key(ACTIVE, default=6),
        expert_width=key("moe_intermediate_size", "intermediate_size", default=2048),
        fused_experts=True,
        shared_width=lambda f: f["expert_width"],
        positions=key("max_position_embeddings", default=1048576),
    ),
    "hy_v4": DEEPSEEK_V32.like(
        "HYV4",
        nope_dim=key("qk_nope_head_dim", default=192),
        value_dim=key("v_head_dim", default=256),
        rotary_dim=key("qk_rope_head_dim", default=64),
        latent_gate="element",
        latent_sinks=True,
        index_heads=key("index_n_heads", default=16),
        index_layers=key("indexer_types", default=_full_indexers, read=layer_flags(full=1, shared=0)),
        streams=key("hc_mult", default=4),
        mlp_width=key("intermediate_size", default=6912),
        mlp_bias=False,
        expert_width=key("moe_intermediate_size", default=768),
        dense_first=1,
        expert_layers=key("mlp_layer_types", default=sparse_from(lambda f: 1), read=SPARSE_LAYERS),
        positions=key("max_position_embeddings", default=262144),
    ),
    "glm5_next_text": KIMI.like(
        "Glm5Next",
        classes={"TextModel": ()},
        config="Glm5NextTextConfig",
        switches=INDEXER_PATTERN
        | dict(
            decay_bound=(BOUND, key("linear_lower_bound", f"{LINEAR_CONFIG}.gate_lower_bound", default=-5.0, null=0))
        ),
        refuses=("qk_rope_head_dim",),  # so does the class
        query_latent=key("q_lora_rank", default=1536),
        nope_dim=key("qk_nope_head_dim", default=256),
        rotary_dim=0,
        value_dim=key("v_head_dim", default=256),
        index_topk=key("index_topk", default=2048),
        index_pool=key("index_kpool", default=16),
        index_heads=key("index_n_heads", default=32),
        index_head_dim=key("index_head_dim", default=128),
        index_layers=key("indexer_types", default=indexer_types, read=layer_flags(full=1, shared=0)),
        mixers=key("layer_types", default=_one_indexed_in_four, read=_glm_mixers),
        linear_heads=key(f"{LINEAR_CONFIG}.num_heads", "linear_num_heads", default=64),
        linear_sigmoid_decay=lambda f: f["decay_bound"] != 0,
        streams=key("hc_mult", default=4),
        streams_sinkhorn=key("hc_sinkhorn_iters", default=20),
        streams_head="mean",
        mlp_width=key("intermediate_size", default=12288),
        mlp_bias=False,
        experts=key(*ROUTED, default=288),
        expert_width=key("moe_intermediate_size", default=2048),
        expert_layers=key("mlp_layer_types", default=sparse_from(lambda f: 3), read=SPARSE_LAYERS),
    ),
}
