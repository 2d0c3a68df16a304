"""Decoders with multi-head latent attention: DeepSeek V2 and V3 and their relatives."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families import Family, heads
from roofmodel.models.families.llama import CLASSIFIERS, LLAMA
from roofmodel.models.fields import COUNT, FLAG, FULL, LAYER_FLAGS, SIZE, SLIDING, FieldType, key

ROUTED = ("n_routed_experts", "num_experts", "num_local_experts")
ACTIVE = "num_experts_per_tok"
SHARED: dict[str, Any] = dict(n_shared=(COUNT, key("n_shared_experts", default=1, null=0)))


def expert_groups(groups: int | None, active: int | None) -> dict[str, Any]:
    """Fields of group-limited routing, with the defaults of the config class; null: no limit."""
    return dict(
        expert_groups=key("n_group", default=groups, null=None),
        experts_active_groups=key("topk_group", default=active, null=None),
    )


NODE_LIMITED = expert_groups(8, 4)
"""A token has experts on at most 4 nodes (DeepSeek-V3, arXiv 2412.19437, section 2.1.2)."""


def shared_width(f: Any) -> int:
    """The shared experts are one MLP with the sum of their widths."""
    return int(f["n_shared"] * f["expert_width"])


def layer_flags(**flags: int) -> Any:
    """A list of words, one per layer, as a list of 0 and 1."""

    def read(values: Any) -> list[int]:
        if not isinstance(values, list) or not all(isinstance(v, str) and v in flags for v in values):
            raise ValueError(f"a list of {' and '.join(map(repr, flags))}, one per layer")
        return [flags[value] for value in values]

    return read


SPARSE_LAYERS = layer_flags(sparse=1, dense=0)
PATTERN = FieldType(
    lambda v: isinstance(v, list) and all(kind in ("full", "shared") for kind in v),
    "'FSS', say, or a list of 'full' and 'shared', one per layer",
)


def sparse_from(first: Any) -> Any:
    """`sparse` for layers from `first` on, which have experts; `dense` for the others."""
    return lambda f: ["dense" if layer < first(f) else "sparse" for layer in range(f["layers"])]


def _sparse_every(f: Any) -> list[str]:
    """`sparse` for each layer from the first one with experts on whose number is a multiple."""
    first, every = f["sparse_first"], f["sparse_every"]
    flags = every if isinstance(every, list) else [layer % max(every, 1) == 0 for layer in range(f["layers"])]
    return ["sparse" if layer >= first and flag else "dense" for layer, flag in enumerate(flags)]


def _pattern(value: Any) -> Any:
    if isinstance(value, str) and set(value) <= set("FS"):
        return ["full" if letter == "F" else "shared" for letter in value]
    return value


def indexer_types(f: Any) -> list[str]:
    """`full` for layers whose indexer selects tokens: one in `index_every`, after the offset; else `shared`."""
    if f["index_pattern"]:
        return list(f["index_pattern"])
    return [
        "full" if max(layer - f["index_from"] + 1, 0) % max(f["index_every"], 1) == 0 else "shared"
        for layer in range(f["layers"])
    ]


LATENT = LLAMA.like(
    "Youtu",
    classes=heads("ForCausalLM", "Model"),
    kv_heads=lambda f: f["heads"],
    head_dim=lambda f: f["nope_dim"] + f["rotary_dim"],
    nope_dim=key("qk_nope_head_dim", default=128),
    rotary_dim=key("qk_rope_head_dim", default=64),
    value_dim=key("v_head_dim", default=128),
    latent=key("kv_lora_rank", default=512),
    query_latent=key("q_lora_rank", default=1536, null=None),
    mlp_width=key("intermediate_size", default=6144),
    mlp_bias=False,
    positions=key("max_position_embeddings", default=131072),
    tied=key("tie_word_embeddings", default=True),
)
DEEPSEEK = LATENT.like(
    "DeepseekV3",
    classes=CLASSIFIERS,
    switches=SHARED,
    mlp_width=key("intermediate_size", default=18432),
    experts=key(*ROUTED, default=256),
    experts_active=key(ACTIVE, default=8),
    expert_width=key("moe_intermediate_size", default=2048),
    fused_experts=True,
    shared_width=shared_width,
    dense_first=key("first_k_dense_replace", default=3),
    positions=key("max_position_embeddings", default=4096),
    tied=key("tie_word_embeddings", default=False),
)
SPARSE_EVERY = SHARED | dict(
    sparse_first=(COUNT, key("first_k_dense_replace", default=1)),
    sparse_every=(COUNT, key("moe_layer_freq", default=1)),
)
INDEXER_PATTERN = SHARED | dict(
    index_pattern=(PATTERN, key("index_topk_pattern", default=None, read=_pattern)),
    index_every=(COUNT, key("index_topk_freq", default=1)),
    index_from=(COUNT, key("index_skip_topk_offset", default=2)),
)
DEEPSEEK_V32 = DEEPSEEK.like(
    "DeepseekV32",
    classes=heads("ForCausalLM", "Model"),
    query_latent=key("q_lora_rank", default=1536),
    index_topk=key("index_topk", default=2048),
    index_heads=key("index_n_heads", default=64),
    index_head_dim=key("index_head_dim", default=128),
    expert_layers=key("mlp_layer_types", default=sparse_from(lambda f: f["dense_first"]), read=SPARSE_LAYERS),
    positions=key("max_position_embeddings", default=163840),
)

COUNT_OR_FLAGS = FieldType(
    lambda v: COUNT.accepts(v) or LAYER_FLAGS.accepts(v), "a whole number, or a list of 0 and 1, one per layer"
)
INDEXED = "indexed_attention"
DOTS_KINDS = FieldType(
    lambda v: isinstance(v, list) and (all(k in (FULL, SLIDING) for k in v) or all(k in (INDEXED, SLIDING) for k in v)),
    f"a list of {SLIDING!r} and either {INDEXED!r} or {FULL!r}, one per layer",
)
DOTS_WINDOW_SIZES = {
    "heads": ("num_attention_heads", 64), "latent": ("kv_lora_rank", 1024), "query_latent": ("q_lora_rank", 1024),
    "nope_dim": ("qk_nope_head_dim", 192), "value_dim": ("v_head_dim", 128),
}  # fmt: skip
"""Field -> its config key, which has the prefix `swa_` for sliding-window layers, and its default in these layers."""
DOTS_SIZES = FieldType(
    lambda v: (
        isinstance(v, dict) and all(isinstance(sizes, dict) and sizes == next(iter(v.values())) for sizes in v.values())
    ),
    "an object with the sizes of each sliding-window layer, which are the same in all of them",
)


def _dots_kinds(f: Any) -> list[str]:
    """The kind of each layer: as listed, else as in the class. Published configs call layers with an indexer full."""
    kinds = f["listed_kinds"] or [
        SLIDING if f["uses_windows"] and layer >= 2 and layer % 4 != 1 else INDEXED for layer in range(f["layers"])
    ]
    if f["uses_index"] is None and f["layer_sizes"] is not None:
        return list(kinds)
    own = FULL if f["uses_index"] is False else INDEXED
    return [kind if kind == SLIDING else own for kind in kinds]


def _window_size(field: str, name: str, default: Any) -> Any:
    """A size of sliding-window layers: from the sizes by layer, which omit those that the other layers have, too."""

    def size(f: Any) -> Any:
        if f["layer_sizes"]:
            return next(iter(f["layer_sizes"].values())).get(name, f[field])
        return default(f) if callable(default) else default

    return size


def _dots_window_sizes() -> dict[str, Any]:
    return {
        f"window_{field}": key(f"swa_{name}", default=_window_size(field, name, default))
        for field, (name, default) in DOTS_WINDOW_SIZES.items()
    }


FAMILIES: dict[str, Family] = {
    "deepseek_v2": DEEPSEEK.like(
        "DeepseekV2",
        classes=heads("ForCausalLM", "ForSequenceClassification", "Model"),
        switches=dict(n_shared=(COUNT, key("n_shared_experts", default=2))),
        mlp_width=key("intermediate_size", default=11008),
        mlp_bias=key("mlp_bias", default=False),
        experts=key(*ROUTED, default=64),
        experts_active=key(ACTIVE),
        expert_width=key("moe_intermediate_size", default=1407),
        dense_first=key("first_k_dense_replace", default=0),
        positions=key("max_position_embeddings", default=2048),
        **expert_groups(None, None),
    ),
    "deepseek_v3": DEEPSEEK.like("DeepseekV3", **NODE_LIMITED),
    "deepseek_v32": DEEPSEEK_V32.like("DeepseekV32", **NODE_LIMITED),
    "glm_moe_dsa": DEEPSEEK_V32.like(
        "GlmMoeDsa",
        switches=INDEXER_PATTERN,
        nope_dim=key("qk_nope_head_dim", default=192),
        value_dim=key("v_head_dim", default=256),
        query_latent=key("q_lora_rank", default=2048),
        index_heads=key("index_n_heads", default=32),
        index_layers=key("indexer_types", default=indexer_types, read=layer_flags(full=1, shared=0)),
        mlp_width=key("intermediate_size", default=12288),
        positions=key("max_position_embeddings", default=202752),
    ),
    "glm4_moe_lite": DEEPSEEK.like(
        "Glm4MoeLite",
        classes=heads("ForCausalLM", "Model"),
        nope_dim=key("qk_nope_head_dim", default=192),
        value_dim=key("v_head_dim", default=256),
        query_latent=key("q_lora_rank", default=768, null=None),
        mlp_width=key("intermediate_size", default=10240),
        experts=key(*ROUTED, default=64),
        experts_active=key(ACTIVE, default=4),
        expert_width=key("moe_intermediate_size", default=1536),
        dense_first=0,
        expert_layers=key("mlp_layer_types", default=sparse_from(lambda f: 1), read=SPARSE_LAYERS),
        positions=key("max_position_embeddings", default=202752),
    ),
    "axk1": DEEPSEEK.like(
        "AXK1",
        switches=SPARSE_EVERY,
        **NODE_LIMITED,
        experts=key(*ROUTED, default=192),
        dense_first=1,
        expert_layers=key("mlp_layer_types", default=_sparse_every, read=SPARSE_LAYERS),
        expert_out_norm=True,
        positions=key("max_position_embeddings", default=32768),
    ),
    "axk2": DEEPSEEK_V32.like(
        "AXK2",
        classes=heads("ForCausalLM", "ForSequenceClassification", "ForTokenClassification", "Model"),
        switches=SPARSE_EVERY,
        **expert_groups(None, None),
        nope_dim=key("qk_nope_head_dim", default=64),
        rotary_dim=key("qk_rope_head_dim", default=32),
        value_dim=key("v_head_dim", default=64),
        latent=key("kv_lora_rank", default=128),
        query_latent=key("q_lora_rank", default=384),
        latent_gate="queries",
        index_heads=key("index_n_heads", default=16),
        norm_gate_rank=key("gated_norm_rank", default=16),
        mlp_width=key("intermediate_size", default=5120),
        experts=key(*ROUTED, default=128),
        expert_width=key("moe_intermediate_size", default=512),
        dense_first=1,
        expert_layers=key("mlp_layer_types", default=_sparse_every, read=SPARSE_LAYERS),
        positions=key("max_position_embeddings", default=131072),
    ),
    "mistral4": DEEPSEEK.like(
        "Mistral4",
        nope_dim=key("qk_nope_head_dim", default=64),
        latent=key("kv_lora_rank", default=256),
        query_latent=key("q_lora_rank", default=1024, null=None),
        mlp_width=key("intermediate_size", default=12288),
        experts=key(*ROUTED, default=128),
        experts_active=key(ACTIVE, default=4),
        dense_first=key("first_k_dense_replace", default=0),
        positions=key("max_position_embeddings", default=1048576),
    ),
    "minicpm3": LATENT.like(
        "MiniCPM3",
        classes=heads("ForCausalLM", "ForSequenceClassification", "Model"),
        nope_dim=key("qk_nope_head_dim", default=64),
        rotary_dim=key("qk_rope_head_dim", default=32),
        value_dim=key("v_head_dim", default=lambda f: f["hidden"] // f["heads"]),
        latent=key("kv_lora_rank", default=256),
        query_latent=key("q_lora_rank", default=768, null=None),
        mlp_width=key("intermediate_size", default=6400),
        mlp_bias=key("mlp_bias", default=False),
        positions=key("max_position_embeddings", default=32768),
    ),
    "youtu": LATENT,
    "dots3_note_text": DEEPSEEK_V32.like(
        "Dots3Note",
        classes=heads("ForCausalLM") | {"TextModel": ()},
        config="Dots3NoteTextConfig",
        switches=SPARSE_EVERY
        | dict(
            sparse_every=(COUNT_OR_FLAGS, key("moe_layer_freq", default=1)),
            listed_kinds=(DOTS_KINDS, key("layer_types", default=None)),
            uses_index=(FLAG, key("use_dsa", default=None)),
            uses_windows=(FLAG, key("use_sliding_window", default=True)),
            window_head=(SIZE, key("swa_head_dim", default=256)),
            span=(SIZE, key("sliding_window", "sliding_window_size", default=None)),
            topk=(SIZE, key("index_topk", default=2048)),
            layer_sizes=(DOTS_SIZES, key("per_layer_config", default=None)),
            shared_each=(
                SIZE,
                key("moe_shared_expert_intermediate_size", "shared_experts_intermediate_size", default=1536),
            ),
        ),
        **_dots_window_sizes(),
        window_kv_heads=lambda f: f["window_heads"],
        window_rotary_dim=key(
            "swa_qk_rope_head_dim",
            default=_window_size("rotary_dim", "qk_rope_head_dim", lambda f: f["window_head"] - f["window_nope_dim"]),
        ),
        window=lambda f: f["span"] or 512,
        layer_types=lambda f: [SLIDING if kind == SLIDING else FULL for kind in _dots_kinds(f)],
        query_latent=key("q_lora_rank", default=1024),
        latent_gate="head",
        latent_rotary_norm=True,
        index_topk=lambda f: f["topk"] if INDEXED in _dots_kinds(f) else None,
        mlp_width=key("intermediate_size", default=13824),
        expert_width=key("moe_intermediate_size", default=1536),
        shared_width=lambda f: f["n_shared"] * f["shared_each"],
        dense_first=1,
        expert_layers=key("mlp_layer_types", default=_sparse_every, read=SPARSE_LAYERS),
        positions=key("max_position_embeddings", default=524288),
        **expert_groups(1, 1),
    ),
    # the class numbers 2 layers of attention and MLP for each of its own, whose experts are beside both
    "longcat_flash": DEEPSEEK.like(
        "LongcatFlash",
        classes=heads("ForCausalLM", "Model"),
        switches={},
        refuses=("router_bias",),
        layers=key("num_layers"),
        layers_per_group=2,
        query_latent=key("q_lora_rank", default=1536),
        mlp_width=key("ffn_hidden_size", "intermediate_size", default=12288),
        experts=key(*ROUTED[::2], default=512),
        experts_active=key("moe_topk", ACTIVE, default=12),
        zero_experts=key("zero_expert_num", default=256),
        shortcut_experts=True,
        expert_width=key("expert_ffn_hidden_size", "moe_intermediate_size", default=2048),
        shared_width=0,
        dense_first=0,
        positions=key("max_position_embeddings", default=131072),
    ),
    "mistral_large4_text": DEEPSEEK_V32.like(
        "MistralLarge4",
        classes={"TextModel": ()},
        config="MistralLarge4TextConfig",
        switches=INDEXER_PATTERN | dict(rotary_every=(SIZE, key("no_rope_layer_interval", default=4))),
        nope_dim=key("qk_nope_head_dim", default=64),
        query_latent=None,
        latent_query_scale=True,
        # a layer without rotary embedding has as many elements more that need none
        rotary_layers=key(
            "no_rope_layers", default=lambda f: [int((i + 1) % f["rotary_every"] != 0) for i in range(f["layers"])]
        ),
        latent_sources=key("kv_source_layers", default=lambda f: [*range(f["layers"])]),
        index_heads=key("index_n_heads", default=32),
        index_layers=key("indexer_types", default=indexer_types, read=layer_flags(full=1, shared=0)),
        mlp_width=key("intermediate_size", default=24576),
        experts=key(*ROUTED, default=128),
        experts_active=key(ACTIVE, default=4),
        expert_width=key("moe_intermediate_size", default=6144),
        dense_first=key("first_k_dense_replace", default=1),
        positions=key("max_position_embeddings", default=1048576),
    ),
}
