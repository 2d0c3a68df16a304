"""Llama and its relatives: RMS norms, rotary embedding, a gated MLP, few biases."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families import CAUSAL_HEADS, Family, heads
from roofmodel.models.fields import COUNT, FLAG, FULL, SIZE, SLIDING, key

PARTIAL = ("partial_rotary_factor", "rope_parameters.partial_rotary_factor")
PATTERN = ("sliding_window_pattern", "_sliding_window_pattern")
CLASSIFIERS = heads("ForCausalLM", "ForSequenceClassification", "ForTokenClassification", "Model")


def one_full_in(every: int) -> Any:
    """Layer types in which the last of every `every` layers has full attention and the others a sliding window."""
    return lambda f: [FULL if (layer + 1) % every == 0 else SLIDING for layer in range(f["layers"])]


def _one_full_in_pattern(f: Any) -> Any:
    return one_full_in(f["pattern"])(f)


def _late_window_layers(f: Any) -> list[str]:
    """Qwen: a sliding window in layers from `max_window_layers` on, if enabled."""
    has_window = f["uses_window"] and f["window"] is not None
    return [SLIDING if has_window and layer >= f["first_window_layer"] else FULL for layer in range(f["layers"])]


LLAMA = Family(
    "Llama",
    classes=CAUSAL_HEADS,
    fields=dict(
        hidden=key("hidden_size"),
        layers=key("num_hidden_layers"),
        heads=key("num_attention_heads"),
        vocabulary=key("vocab_size"),
        kv_heads=key("num_key_value_heads", default=lambda f: f["heads"]),
        head_dim=key("head_dim", default=lambda f: f["hidden"] // f["heads"]),
        qkv_bias=key("attention_bias", default=False),
        out_bias=key("attention_bias", default=False),
        rotary=1,
        mlp_width=key("intermediate_size", default=11008),
        gated=True,
        mlp_bias=key("mlp_bias", default=False),
        activation=key("hidden_act", default="silu"),
        norm="rmsnorm",
        positions=key("max_position_embeddings", default=2048),
        tied=key("tie_word_embeddings", default=False),
    ),
)

QWEN2 = LLAMA.like(
    "Qwen2",
    switches=dict(
        uses_window=(FLAG, key("use_sliding_window", default=False)),
        first_window_layer=(COUNT, key("max_window_layers", default=28)),
    ),
    kv_heads=key("num_key_value_heads", default=32, null=lambda f: f["heads"]),
    qkv_bias=True,
    out_bias=False,
    window=key("sliding_window", default=4096, null=None),
    layer_types=key("layer_types", default=_late_window_layers),
    mlp_width=key("intermediate_size", default=22016),
    mlp_bias=False,
    positions=key("max_position_embeddings", default=32768),
)
GEMMA = LLAMA.like(
    "Gemma",
    classes=CLASSIFIERS,
    refuses=("use_bidirectional_attention",),
    kv_heads=key("num_key_value_heads", default=16),
    head_dim=key("head_dim", default=256),
    mlp_width=key("intermediate_size", default=24576),
    mlp_bias=False,
    # old checkpoints say gelu by mistake; the class uses the tanh approximation
    activation=key("hidden_act", default="gelu_pytorch_tanh", read=lambda v: "gelu_new" if v == "gelu" else v),
    positions=key("max_position_embeddings", default=8192),
    tied=key("tie_word_embeddings", default=True),
)
GEMMA2 = GEMMA.like(
    "Gemma2",
    kv_heads=key("num_key_value_heads", default=4),
    window=key("sliding_window", default=4096, null=None),
    layer_types=key("layer_types", default=one_full_in(2)),
    out_norm=True,
    mlp_width=key("intermediate_size", default=9216),
    activation=key("hidden_activation", default="gelu_pytorch_tanh"),
)
COHERE = LLAMA.like(
    "Cohere",
    classes=heads("ForCausalLM", "Model"),
    head_dim=lambda f: f["hidden"] // f["heads"],
    norm="layernorm",
    norm_bias=False,
    qk_norm=key("use_qk_norm", default=False),
    qk_norm_gains="each",
    parallel=True,
    parallel_norms=1,
    mlp_width=key("intermediate_size", default=22528),
    mlp_bias=False,
    positions=key("max_position_embeddings", default=8192),
    tied=key("tie_word_embeddings", default=True),
)
OLMO = LLAMA.like(
    "Olmo",
    classes=heads("ForCausalLM", "ForSequenceClassification", "Model"),
    head_dim=lambda f: f["hidden"] // f["heads"],
    mlp_bias=False,
)
OLMO2 = OLMO.like("Olmo2", pre_norm=False, out_norm=True, qk_norm=True, qk_norm_gains="each")
GLM = LLAMA.like(
    "Glm",
    classes=CLASSIFIERS,
    kv_heads=key("num_key_value_heads", default=2, null=lambda f: f["heads"]),
    head_dim=key("head_dim", default=128, null=lambda f: f["hidden"] // f["heads"]),
    qkv_bias=key("attention_bias", default=True),
    out_bias=False,
    rotary=key(*PARTIAL, default=0.5),
    mlp_width=key("intermediate_size", default=13696),
    fused_gate=True,
    mlp_bias=False,
    positions=key("max_position_embeddings", default=131072),
)

FAMILIES: dict[str, Family] = {
    "llama": LLAMA,
    "mistral": LLAMA.like(
        "Mistral",
        kv_heads=key("num_key_value_heads", default=8),
        qkv_bias=False,
        out_bias=False,
        window=key("sliding_window", default=4096, null=None),
        mlp_width=key("intermediate_size", default=14336),
        mlp_bias=False,
        positions=key("max_position_embeddings", default=131072),
    ),
    "ministral": LLAMA.like(
        "Ministral",
        kv_heads=key("num_key_value_heads", default=8),
        qkv_bias=False,
        out_bias=False,
        window=key("sliding_window", default=4096, null=None),
        layer_types=key("layer_types", default=lambda f: [SLIDING if f["window"] else FULL] * f["layers"]),
        mlp_width=key("intermediate_size", default=14336),
        mlp_bias=False,
        positions=key("max_position_embeddings", default=131072),
    ),
    "qwen2": QWEN2,
    "qwen3": QWEN2.like(
        "Qwen3",
        head_dim=key("head_dim", default=128),
        qkv_bias=key("attention_bias", default=False),
        out_bias=key("attention_bias", default=False),
        qk_norm=True,
    ),
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA2.like(
        "Gemma3",
        config="Gemma3TextConfig",
        classes=heads("ForCausalLM"),
        switches=dict(pattern=(SIZE, key(*PATTERN, default=6))),
        layer_types=key("layer_types", default=_one_full_in_pattern),
        qk_norm=True,
        positions=key("max_position_embeddings", default=131072),
    ),
    "cohere": COHERE,
    "cohere2": COHERE.like(
        "Cohere2",
        switches=dict(pattern=(SIZE, key(*PATTERN, default=4))),
        head_dim=key("head_dim", default=lambda f: f["hidden"] // f["heads"]),
        window=key("sliding_window", default=4096, null=None),
        layer_types=key("layer_types", default=_one_full_in_pattern),
        rotary_layers=lambda f: [int(kind == SLIDING) for kind in f["layer_types"]],
        qk_norm=False,
    ),
    "olmo": OLMO.like("Olmo", norm="layernorm", norm_affine=False),
    "olmo2": OLMO2,
    "olmo3": OLMO2.like(
        "Olmo3",
        window=key("sliding_window", default=4096, null=None),
        layer_types=key("layer_types", default=one_full_in(4)),
    ),
    "granite": LLAMA.like("Granite", classes=heads("ForCausalLM", "Model")),
    "glm": GLM,
    "glm4": GLM.like("Glm4", out_norm=True),
    "phi": LLAMA.like(
        "Phi",
        classes=CLASSIFIERS,
        head_dim=lambda f: f["hidden"] // f["heads"],
        qkv_bias=True,
        out_bias=True,
        rotary=key(*PARTIAL, default=0.5),
        norm="layernorm",
        qk_norm=key("qk_layernorm", default=False),
        parallel=True,
        parallel_norms=1,
        mlp_width=key("intermediate_size", default=8192),
        gated=False,
        mlp_bias=True,
        activation=key("hidden_act", default="gelu_new"),
        head_bias=True,
        embedding_dropout=key("embd_pdrop", default=0.0, null=0.0),
    ),
    "phi3": LLAMA.like(
        "Phi3",
        classes=CLASSIFIERS,
        fused_qkv=True,
        qkv_bias=False,
        out_bias=False,
        rotary=key(*PARTIAL, default=1.0),
        window=key("sliding_window", default=None),
        mlp_width=key("intermediate_size", default=8192),
        fused_gate=True,
        mlp_bias=False,
        positions=key("max_position_embeddings", default=4096),
    ),
    "stablelm": LLAMA.like(
        "StableLm",
        classes=CLASSIFIERS,
        kv_heads=key("num_key_value_heads", default=32),
        head_dim=lambda f: f["hidden"] // f["heads"],
        qkv_bias=key("use_qkv_bias", default=False),
        out_bias=False,
        rotary=key(*PARTIAL, default=0.25),
        norm="layernorm",
        qk_norm=key("qk_layernorm", default=False),
        qk_norm_gains="each",
        qk_norm_bias=False,
        parallel=key("use_parallel_residual", default=False),
        parallel_norms=1,
        mlp_width=key("intermediate_size", default=6912),
        mlp_bias=False,
        attention_output_dropout=0.0,
        positions=key("max_position_embeddings", default=4096),
    ),
    "nemotron": LLAMA.like(
        "Nemotron",
        rotary=key(*PARTIAL, default=0.5),
        norm="layernorm",
        mlp_width=key("intermediate_size", default=24576),
        gated=False,
        activation=key("hidden_act", default="relu2"),
        positions=key("max_position_embeddings", default=4096),
    ),
    "smollm3": LLAMA.like(
        "SmolLM3",
        switches=dict(
            uses_window=(FLAG, key("use_sliding_window", default=False)),
            nope_every=(SIZE, key("no_rope_layer_interval", default=4)),
        ),
        kv_heads=key("num_key_value_heads", default=4, null=lambda f: f["heads"]),
        head_dim=key("head_dim", default=lambda f: f["hidden"] // f["heads"]),
        rotary_layers=key(
            "no_rope_layers",
            default=lambda f: [int((layer + 1) % f["nope_every"] != 0) for layer in range(f["layers"])],
        ),
        window=key("sliding_window", default=None),
        layer_types=key(
            "layer_types",
            default=lambda f: [
                SLIDING if f["uses_window"] and f["window"] and not rotary else FULL for rotary in f["rotary_layers"]
            ],
        ),
        positions=key("max_position_embeddings", default=32768),
        tied=key("tie_word_embeddings", default=True),
    ),
}
