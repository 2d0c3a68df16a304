"""More decoders similar to Llama."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families import LM, Family, heads
from roofmodel.models.families.gpt import GPT2
from roofmodel.models.families.llama import CLASSIFIERS, GEMMA2, LLAMA, PARTIAL, one_full_in
from roofmodel.models.families.llama import FAMILIES as LLAMA_FAMILIES
from roofmodel.models.fields import COUNT, DROPOUT_10_PERCENT, FULL, SLIDING, key

MODEL = heads("ForCausalLM", "Model")


def _period(value: Any) -> Any:
    return len(value) if isinstance(value, str) else value


def _even(value: Any) -> Any:
    if value is not None and (type(value) is not int or value % 2):
        raise ValueError("an even number")
    return value


def _exaone_types(f: Any) -> list[str]:
    """One full-attention layer per `sliding_window_pattern`, which may also be text such as LLLG."""
    if not f["window"]:
        return [FULL] * f["layers"]
    return one_full_in(f["pattern"])(f)  # type: ignore[no-any-return]


def _rotary_layers(thetas: Any) -> Any:
    """Flags from the rotary base of each layer; 0 means no rotary embedding."""
    if not isinstance(thetas, list) or not all(type(theta) in (int, float) for theta in thetas):
        raise ValueError("a list of rotary base frequencies, one per layer, or 0")
    return [int(theta != 0) for theta in thetas]


EXAONE4 = LLAMA.like(
    "Exaone4",
    switches=dict(pattern=(COUNT, key("sliding_window_pattern", default=4, null=4, read=_period))),
    kv_heads=key("num_key_value_heads", default=32),
    qkv_bias=False,
    out_bias=False,
    window=key("sliding_window", default=4096, null=None),
    layer_types=key("layer_types", default=_exaone_types),
    rotary_layers=lambda f: [int(not f["window"] or kind == SLIDING) for kind in f["layer_types"]],
    pre_norm=False,
    out_norm=True,
    final_norm=True,
    qk_norm=True,
    mlp_width=key("intermediate_size", default=16384),
    mlp_bias=False,
)
HUNYUAN = LLAMA.like(
    "HunYuanDenseV1",
    classes=heads("ForCausalLM", "ForSequenceClassification", "Model"),
    qk_norm=True,
    mlp_bias=False,
)

GRANITE_SWA = LLAMA.like(
    "GraniteSWA",
    classes=MODEL,
    kv_heads=key("num_key_value_heads", default=4, null=lambda f: f["heads"]),
    sinks=True,
    window=key("sliding_window", default=128, null=None),
    layer_types=key("layer_types", default=lambda f: [SLIDING if layer % 4 else FULL for layer in range(f["layers"])]),
    rotary_layers=key("layer_rope_theta", default=lambda f: [1] * f["layers"], read=_rotary_layers),
    mlp_width=key("intermediate_size", default=8192),
    positions=key("max_position_embeddings", default=8192),
    tied=key("tie_word_embeddings", default=True),
)

FAMILIES: dict[str, Family] = {
    "openai-gpt": GPT2.like(
        "OpenAIGPT",
        classes={"LMHeadModel": LM} | heads("ForSequenceClassification", "Model"),
        refuses=(),
        mlp_width=lambda f: 4 * f["hidden"],
        pre_norm=False,
        activation=key("afn", default="gelu", read=lambda v: "gelu_new" if v == "gelu" else v),
        positions=key("n_positions", "max_position_embeddings", default=512),
    ),
    "ministral3": LLAMA_FAMILIES["mistral"].like(
        "Ministral3",
        head_dim=key("head_dim", default=128, null=lambda f: f["hidden"] // f["heads"]),
        window=key("sliding_window", default=None),
        positions=key("max_position_embeddings", default=262144),
    ),
    "seed_oss": LLAMA.like(
        "SeedOss",
        kv_heads=key("num_key_value_heads", default=8, null=lambda f: f["heads"]),
        head_dim=key("head_dim", default=128, null=lambda f: f["hidden"] // f["heads"]),
        qkv_bias=key("attention_bias", default=True),
        out_bias=key("attention_out_bias", default=False),
        mlp_width=key("intermediate_size", default=27648),
        positions=key("max_position_embeddings", default=524288),
        **DROPOUT_10_PERCENT,
    ),
    "arcee": LLAMA.like(
        "Arcee",
        mlp_width=key("intermediate_size", default=18432),
        gated=False,
        activation=key("hidden_act", default="relu2"),
        positions=key("max_position_embeddings", default=4096),
    ),
    "jais2": LLAMA.like(
        "Jais2",
        classes=MODEL,
        qkv_bias=key("attention_bias", default=True),
        out_bias=key("attention_bias", default=True),
        norm="layernorm",
        mlp_width=key("intermediate_size", default=26624),
        gated=False,
        mlp_bias=key("mlp_bias", default=True),
        activation=key("hidden_act", default="relu2"),
        positions=key("max_position_embeddings", default=8192),
    ),
    "helium": LLAMA.like(
        "Helium",
        classes=CLASSIFIERS,
        kv_heads=key("num_key_value_heads", default=20),
        head_dim=key("head_dim", default=128),
        out_bias=False,
        mlp_width=key("intermediate_size", default=7040),
        positions=key("max_position_embeddings", default=4096),
    ),
    "exaone4": EXAONE4,
    "ernie4_5": LLAMA.like(
        "Ernie4_5",
        classes=MODEL,
        kv_heads=key("num_key_value_heads", default=2, null=lambda f: f["heads"]),
        head_dim=key("head_dim", default=128, null=lambda f: f["hidden"] // f["heads"]),
        qkv_bias=key("use_bias", default=False),
        out_bias=key("use_bias", default=False),
        mlp_width=key("intermediate_size", default=3072),
        mlp_bias=key("use_bias", default=False),
        positions=key("max_position_embeddings", default=131072),
        tied=key("tie_word_embeddings", default=True),
    ),
    "bitnet": LLAMA.like(
        "BitNet",
        classes=MODEL,
        kv_heads=key("num_key_value_heads", default=5, null=lambda f: f["heads"]),
        head_dim=lambda f: f["hidden"] // f["heads"],
        inner_norm=True,
        mlp_width=key("intermediate_size", default=6912),
        mlp_bias=False,
        activation=key("hidden_act", default="relu2"),
    ),
    "hunyuan_v1_dense": HUNYUAN,
    "cwm": LLAMA.like(
        "Cwm",
        classes=MODEL,
        kv_heads=key("num_key_value_heads", default=8),
        head_dim=key("head_dim", default=128),
        qkv_bias=False,
        out_bias=False,
        window=key("sliding_window", default=8192),
        layer_types=key(
            "layer_types",
            default=lambda f: [SLIDING if layer % 4 else FULL for layer in range(f["layers"])],
        ),
        mlp_width=key("intermediate_size", default=21504),
        positions=key("max_position_embeddings", default=131072),
    ),
    "granite_swa": GRANITE_SWA,
    "hyperclovax": LLAMA.like("HyperCLOVAX", classes=MODEL, out_norm=key("use_post_norm", default=True)),
    "internlm3": LLAMA.like(
        "Llama",
        config="InternLM3Config",
        classes=heads("ForCausalLM"),
        kv_heads=key("num_key_value_heads", default=2, null=lambda f: f["heads"]),
        head_dim=key("head_dim", default=128, null=lambda f: f["hidden"] // f["heads"]),
        qkv_bias=key("attention_bias", "qkv_bias", default=False),
        out_bias=key("attention_bias", "qkv_bias", default=False),
        mlp_bias=key("mlp_bias", "bias", default=False),
        mlp_width=key("intermediate_size", default=10240),
        positions=key("max_position_embeddings", default=32768),
    ),
    "iquestcoder": LLAMA.like(
        "Llama",
        config="IQuestCoderConfig",
        classes=heads("ForCausalLM"),
        refuses=("use_sliding_window",),
        kv_heads=key("num_key_value_heads", default=8, null=lambda f: f["heads"]),
        head_dim=key("head_dim", default=128, null=lambda f: f["hidden"] // f["heads"]),
        mlp_width=key("intermediate_size", default=27648),
        positions=key("max_position_embeddings", default=131072),
    ),
    "emu3_text_model": LLAMA.like(
        "Emu3",
        config="Emu3TextConfig",
        classes={"ForCausalLM": LM, "TextModel": ()},
        kv_heads=key("num_key_value_heads", default=8, null=lambda f: f["heads"]),
        mlp_width=key("intermediate_size", default=14336),
        positions=key("max_position_embeddings", default=9216),
        dropout=key("attention_dropout", default=0.1, null=0.0),
        attention_dropout=key("attention_dropout", default=0.1, null=0.0),
    ),
    "apertus": LLAMA.like(
        "Apertus",
        classes=heads("ForCausalLM", "ForTokenClassification", "Model"),
        head_dim=lambda f: f["hidden"] // f["heads"],
        qk_norm=True,
        mlp_width=key("intermediate_size", default=14336),
        gated=False,
        mlp_bias=False,
        activation=key("hidden_act", default="xielu"),
        positions=key("max_position_embeddings", default=65536),
    ),
    "vaultgemma": GEMMA2.like("VaultGemma", classes=MODEL, refuses=(), out_norm=False),
    "nanochat": LLAMA.like(
        "NanoChat",
        classes=MODEL,
        norm_affine=False,
        qk_norm=True,
        qk_norm_gains="none",
        mlp_width=key("intermediate_size", default=8192),
        gated=False,
        mlp_bias=False,
        activation=key("hidden_act", default="relu2"),
    ),
    "persimmon": LLAMA.like(
        "Persimmon",
        classes=CLASSIFIERS,
        kv_heads=lambda f: f["heads"],
        head_dim=lambda f: f["hidden"] // f["heads"],
        fused_qkv=True,
        qkv_bias=True,
        out_bias=True,
        rotary=key(*PARTIAL, default=0.5),
        norm="layernorm",
        qk_norm=key("qk_layernorm", default=True),
        mlp_width=key("intermediate_size", default=16384),
        gated=False,
        mlp_bias=True,
        activation=key("hidden_act", default="relu2"),
        attention_output_dropout=0.0,
        positions=key("max_position_embeddings", default=16384),
    ),
    "diffllama": LLAMA.like(
        "DiffLlama",
        classes=CLASSIFIERS,
        refuses=("attention_dropout",),
        kv_heads=key("num_key_value_heads", default=lambda f: f["heads"], read=_even),
        differential=True,
        mlp_width=key("intermediate_size", default=8192),
        mlp_bias=False,
    ),
    "qwen3_vl_text": LLAMA_FAMILIES["qwen3"].like(
        "Qwen3VL",
        classes={"TextModel": ()},
        switches={},
        config="Qwen3VLTextConfig",
        window=None,
        layer_types=lambda f: [FULL] * f["layers"],
        positions=key("max_position_embeddings", default=128000),
        tied=False,
    ),
}
