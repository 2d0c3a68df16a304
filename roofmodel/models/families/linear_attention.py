"""Decoders with linear attention in most layers, mostly by the gated delta rule.

The other layers have gated attention (Qwen), attention with norms after it (OLMo), or latent attention (Kimi, Ling).
"""

from __future__ import annotations

from math import isqrt
from typing import Any

from roofmodel.models.families import CAUSAL_HEADS, LM, Family, heads
from roofmodel.models.families.latent_attention import ACTIVE, DEEPSEEK, NODE_LIMITED, SPARSE_LAYERS, sparse_from
from roofmodel.models.families.llama import LLAMA, OLMO2, PARTIAL
from roofmodel.models.families.mixture_of_experts import EXPERTS, MIXTRAL, SPARSE
from roofmodel.models.fields import COUNT, INDICES, SIZE, FieldType, key
from roofmodel.numbers.algebra import ceil_div

ROTARY_BASE = FieldType(lambda v: type(v) in (int, float) and v >= 0, "a number; null without rotary embedding")
LINEAR_CONFIG = "linear_attn_config"
CLASSIFIER_HEAD = CAUSAL_HEADS["ForSequenceClassification"]
HASHES = FieldType(lambda v: COUNT.accepts(v) and v <= 64, "a whole number from 0 to 64")
NGRAM_SIZE = FieldType(lambda v: SIZE.accepts(v) and v <= 64, "a whole number from 1 to 64")
TABLE_SIZE = FieldType(lambda v: type(v) is int and 1 <= v <= 10**8, "a whole number from 1 to 10^8")
OUTPUT_GATE = FieldType(lambda v: v in ("sigmoid", "silu"), "'sigmoid' or 'silu'")
ONE = FieldType(lambda v: v == 1, "1")
MAX_HASHES = 4096
MIXER_WORDS = {"linear_attention": "delta_rule", "full_attention": "attention"}


def mixers(types: Any) -> Any:
    """Mixers from `layer_types`. Raises ValueError for other words."""
    if not isinstance(types, list) or not all(kind in list(MIXER_WORDS) for kind in types):
        raise ValueError(f"a list of {' and '.join(map(repr, MIXER_WORDS))}, one per layer")
    return [MIXER_WORDS[kind] for kind in types]


def _one_full_in_four(f: Any) -> list[str]:
    """The last of every four layers has full attention; with fewer than four layers, the last one."""
    full = range(3, f["layers"], 4) or [f["layers"] - 1]
    return ["full_attention" if layer in full else "linear_attention" for layer in range(f["layers"])]


def _qwen4_mixers(types: Any) -> Any:
    """Mixers from `layer_types`, in which attention has two names."""
    if not isinstance(types, list):
        return mixers(types)
    return mixers(["full_attention" if kind == "indexed_attention" else kind for kind in types])


def _index_blocks(f: Any) -> Any:
    """Blocks that a query selects. A model with attention needs all sizes of the indexer."""
    names = {"indexer_n_heads": "indexer_heads", "indexer_head_dim": "indexer_dim", "indexer_budget": "budget"}
    if "attention" not in f["mixers"]:
        return None
    for name, field in (names | {"indexer_compress_ratio": "ratio"}).items():
        if not f[field]:
            raise ValueError(f"{name!r} is missing; attention needs the sizes of its indexer")
    if f["budget"] % f["ratio"]:
        raise ValueError(f"'indexer_budget' {f['budget']} is not divisible by 'indexer_compress_ratio' {f['ratio']}")
    return f["budget"] // f["ratio"]


def _primes(first: int, count: int) -> list[int]:
    """The `count` smallest primes from `first`."""
    found: list[int] = []
    number = max(first, 2)
    while len(found) < count:
        if all(number % divisor for divisor in range(2, isqrt(number) + 1)):
            found.append(number)
        number += 1
    return found


def _ngram_tables(f: Any) -> int:
    return (f["ngram_size"] - 1) * f["hashes_per_ngram"]  # type: ignore[no-any-return]


def _layers_with_ngrams(f: Any) -> list[dict[str, int]] | None:
    """The rows of each layer's table: a prime number for each hash, and their sum rounded up."""
    listed = sorted(set(f["ngram_layers"] or ()))
    if not listed:
        return None
    tables, padding = f["ngram_tables"], f["ngram_padding"]
    if not tables or f["ngram_width"] % tables:
        raise ValueError(f"'ple_embed_dim' {f['ngram_width']} is not divisible by the {tables} hashes of a token")
    if tables * len(listed) > MAX_HASHES:
        raise ValueError(f"{tables * len(listed)} hashes of n-grams are more than {MAX_HASHES}")
    if not 1 <= listed[0] <= listed[-1] <= f["layers"]:
        raise ValueError(f"'ple_layer_ids' must be numbers of layers, from 1 to {f['layers']}")
    if any(f["mixers"][layer - 1] != "delta_rule" for layer in listed):
        raise ValueError("'ple_layer_ids' must be layers with linear attention")
    primes = _primes(f["ngram_first"], tables * len(listed))
    rows = {
        layer: ceil_div(sum(primes[n * tables : (n + 1) * tables]), padding) * padding for n, layer in enumerate(listed)
    }
    return [{"ngram_rows": rows.get(layer + 1, 0)} for layer in range(f["layers"])]


def _lightning(types: Any) -> Any:
    return ["lightning" if mixer == "delta_rule" else mixer for mixer in mixers(types)]


def _every_other(f: Any) -> list[str]:
    return ["linear_attention" if layer % 2 else "full_attention" for layer in range(f["layers"])]


def _kimi_types(f: Any) -> list[str]:
    """Full attention in the layers that `linear_attn_config` lists (from 1); else in layers 4, 8, ... (from 0)."""
    full_layers = f["full_layers"]
    indices = range(4, f["layers"], 4) if full_layers is None else [layer - 1 for layer in full_layers]
    return ["full_attention" if layer in indices else "linear_attention" for layer in range(f["layers"])]


def _one_full_in(f: Any) -> list[str]:
    """The last of every `full_attention_interval` layers has full attention."""
    return ["linear_attention" if (layer + 1) % f["full_every"] else "full_attention" for layer in range(f["layers"])]


QWEN3_5 = LLAMA.like(
    "Qwen3_5",
    classes={"ForCausalLM": LM, "TextModel": (), "TextForSequenceClassification": CLASSIFIER_HEAD},
    config="Qwen3_5TextConfig",
    switches=dict(full_every=(SIZE, key("full_attention_interval", default=4))),
    kv_heads=key("num_key_value_heads", default=4),
    head_dim=key("head_dim", default=256),
    attention_gate="queries",
    rotary=key(*PARTIAL, default=0.25),
    qk_norm=True,
    mixers=key("layer_types", default=_one_full_in, read=mixers),
    linear_heads=key("linear_num_key_heads", default=16),
    linear_value_heads=key("linear_num_value_heads", default=32),
    linear_head_dim=key("linear_key_head_dim", default=128),
    linear_value_dim=key("linear_value_head_dim", default=128),
    linear_projections=(("qkv",), ("gate",), ("write",), ("forget",)),
    filter=key("linear_conv_kernel_dim", default=4),
    chunk=64,  # the class ignores the config
    mlp_width=key("intermediate_size", default=12288),
    mlp_bias=False,
    positions=key("max_position_embeddings", default=32768),
)
EXPERTS_WITH_SHARED: dict[str, Any] = SPARSE | dict(
    experts=key(*reversed(EXPERTS), default=256),
    experts_active=key(ACTIVE, default=8),
    expert_width=key("moe_intermediate_size", default=512),
    shared_width=key("shared_expert_intermediate_size", default=512),
    shared_gate=True,
    kv_heads=key("num_key_value_heads", default=2),
)

KIMI = DEEPSEEK.like(
    "KimiLinear",
    classes=heads("ForCausalLM", "Model"),
    switches=dict(
        n_shared=(COUNT, key("n_shared_experts", "num_shared_experts", default=1)),
        leading_dense=(COUNT, key("first_k_dense_replace", default=1)),
        full_layers=(INDICES, key(f"{LINEAR_CONFIG}.full_attn_layers", default=None)),
    ),
    query_latent=key("q_lora_rank", default=None),
    latent_rotary=False,
    mixers=key("layer_types", default=_kimi_types, read=mixers),
    linear_heads=key(f"{LINEAR_CONFIG}.num_heads", "linear_num_heads", default=32),
    linear_head_dim=key(f"{LINEAR_CONFIG}.head_dim", "linear_head_dim", default=128),
    linear_projections=(("q",), ("k",), ("v",), ("forget",), ("write",), ("gate",)),
    linear_decay_per_channel=True,
    linear_gate="sigmoid",
    linear_gate_rank=lambda f: f["linear_head_dim"],
    filter=key(f"{LINEAR_CONFIG}.short_conv_kernel_size", "linear_conv_kernel_dim", default=4),
    chunk=64,
    mlp_width=key("intermediate_size", default=9216),
    experts=key(*EXPERTS, default=256),
    experts_active=key(ACTIVE, "num_experts_per_token", default=8),
    expert_width=key("moe_intermediate_size", default=1024),
    dense_first=0,
    expert_layers=key("mlp_layer_types", default=sparse_from(lambda f: f["leading_dense"]), read=SPARSE_LAYERS),
    positions=key("max_position_embeddings", "model_max_length", default=1048576),
    tied=False,  # the class ignores the config
)

FACTOR = FieldType(lambda v: type(v) in (int, float) and 0 < v < 1000, "a positive number")


def _is_fused(mode: Any) -> bool:
    if mode not in ("single", "fused"):
        raise ValueError("'single' or 'fused'")
    return bool(mode == "fused")


def _memory_dim(factor: str) -> Any:
    """The head size of queries and keys, or of values."""

    def rule(f: Any) -> int:
        width = int(f["hidden"] * f[factor])
        if width == 0 or width % f["heads"]:
            raise ValueError(f"{width} channels are not divisible by {f['heads']} heads")
        return int(width // f["heads"])

    return rule


def _mlp_of_xlstm(f: Any) -> int:
    multiple = f["mlp_multiple"]
    width = int((f["hidden"] * f["mlp_factor"] + multiple - 1) // multiple * multiple)
    if not SIZE.accepts(width):
        raise ValueError(f"'ffn_proj_factor' {f['mlp_factor']} gives {width} columns")
    return width


FAMILIES: dict[str, Family] = {
    "minimax": MIXTRAL.like(
        "MiniMax",
        kv_heads=key("num_key_value_heads", default=8, null=lambda f: f["heads"]),
        refuses=("sliding_window",),  # the class fails with it when a cache is used
        window=None,
        mixers=key("layer_types", default=_every_other, read=_lightning),
        linear_heads=lambda f: f["heads"],
        linear_head_dim=lambda f: f["head_dim"],
        chunk=key("block_size", default=256),
        # the normed input also feeds the residual: one norm at the start, one after each residual add
        pre_norm=False,
        embedding_norm=True,
    ),
    # the published code of Kimi-K3 has the same model_type, and more
    "kimi_linear": KIMI._replace(
        variants={"kimi_k3_text": ("attn_res_block_size", "mla_use_output_gate", "latent_moe_use_norm")}
    ),
    "bailing_hybrid": KIMI.like(
        "BailingHybrid",
        switches=dict(
            n_shared=KIMI.switches["n_shared"],
            leading_dense=(COUNT, key("first_k_dense_replace", default=2)),
            full_every=(SIZE, key("layer_group_size", default=6)),
            head_dim_in_config=(SIZE, key("head_dim", default=128)),
        ),
        **NODE_LIMITED,
        query_latent=None,
        latent_rotary=True,
        latent_gate="head",
        mixers=key("layer_types", default=_one_full_in, read=mixers),
        linear_heads=lambda f: f["heads"],
        # the class overwrites `head_dim` with the head size of latent attention
        linear_head_dim=key("linear_head_dim", default=lambda f: f["head_dim_in_config"]),
        linear_gate_rank=None,
        linear_sigmoid_decay=key("kda_safe_gate", default=True),
        filter=key("short_conv_kernel_size", "linear_conv_kernel_dim", default=4),
        mlp_width=key("intermediate_size", default=6144),
        experts=key(*EXPERTS, default=512),
        expert_width=key("moe_intermediate_size", default=768),
        positions=key("max_position_embeddings", "model_max_length", default=262144),
    ),
    "qwen3_next": QWEN3_5.like(
        "Qwen3Next",
        classes=CAUSAL_HEADS,
        config="",
        linear_projections=(("qkv", "gate"), ("write", "forget")),
        mlp_width=key("intermediate_size", default=5632),
        **EXPERTS_WITH_SHARED
        | dict(experts=key(*reversed(EXPERTS), default=512), experts_active=key(ACTIVE, default=10)),
    ),
    "qwen3_5_text": QWEN3_5,
    "qwen3_5_moe_text": QWEN3_5.like(
        "Qwen3_5Moe",
        classes={"ForCausalLM": LM, "TextModel": ()},
        config="Qwen3_5MoeTextConfig",
        **EXPERTS_WITH_SHARED | dict(moe_every=1, dense_layers=[], mlp_width=1),  # no layer has a dense MLP
    ),
    "qwen4_exp_text": QWEN3_5.like(
        "Qwen4Exp",
        classes={"ForCausalLM": LM, "TextModel": ()},
        config="Qwen4ExpTextConfig",
        switches=dict(
            full_every=(SIZE, key("full_attention_interval", default=4)),
            gate_in_config=(OUTPUT_GATE, key("output_gate_type", default=None)),
            indexer_heads=(SIZE, key("indexer_n_heads", default=None)),
            indexer_keys=(ONE, key("indexer_kv_heads", default=None)),
            indexer_dim=(SIZE, key("indexer_head_dim", default=None)),
            budget=(SIZE, key("indexer_budget", default=None)),
            ratio=(SIZE, key("indexer_compress_ratio", default=None)),
            ngram_layers=(INDICES, key("ple_layer_ids", default=None)),
            ngram_size=(NGRAM_SIZE, key("ngram_size", default=3)),
            hashes_per_ngram=(HASHES, key("heads_per_ngram", default=8)),
            ngram_first=(TABLE_SIZE, key("ngram_vocab_size_base", default=20_000_000)),
            ngram_padding=(SIZE, key("make_ngram_vocab_size_divisible_by", default=128)),
        ),
        rotary=key(*PARTIAL, default=lambda f: 1),
        mixers=key("layer_types", default=_one_full_in, read=_qwen4_mixers),
        linear_gate=lambda f: f["gate_in_config"] or f["activation"],
        index_blocks=_index_blocks,
        index_block_size=lambda f: f["ratio"] or 1,
        index_pools=True,
        index_heads=lambda f: f["indexer_heads"] or 1,
        index_head_dim=lambda f: f["indexer_dim"] or 1,
        streams=key("hc_count", default=4),
        streams_rank=key("hc_lowrank", default=320),
        pre_norm=False,
        sum_norm=False,
        final_norm=False,
        layer_fields=_layers_with_ngrams,
        ngram_tables=_ngram_tables,
        ngram_width=key("ple_embed_dim", default=lambda f: f["hidden"]),
        ngram_taps=key("ple_conv_kernel_size", default=4),
        ngram_reach=lambda f: (f["ngram_taps"] - 1) * f["ngram_size"],
        **EXPERTS_WITH_SHARED
        | dict(
            kv_heads=key("num_key_value_heads", default=2),
            moe_every=1,
            dense_layers=[],
            mlp_width=1,  # no layer has a dense MLP
            experts=key(*reversed(EXPERTS), default=512),
            experts_active=key(ACTIVE, default=10),
        ),
    ),
    "olmo_hybrid": OLMO2.like(
        "OlmoHybrid",
        classes=heads("ForCausalLM", "Model"),
        switches=dict(theta=(ROTARY_BASE, key("rope_parameters.rope_theta", default=10000.0, null=0))),
        pre_norm=True,
        out_norm=False,
        post_norm_layers=lambda f: [int(mixer == "attention") for mixer in f["mixers"]],
        rotary=lambda f: int(f["theta"] != 0),
        mixers=key("layer_types", default=_one_full_in_four, read=mixers),
        linear_heads=key("linear_num_key_heads", default=lambda f: f["heads"]),
        linear_value_heads=key("linear_num_value_heads", default=lambda f: f["heads"]),
        linear_head_dim=key("linear_key_head_dim", default=lambda f: int(0.75 * f["hidden"] / f["linear_heads"])),
        linear_value_dim=key("linear_value_head_dim", default=lambda f: 2 * f["linear_head_dim"]),
        linear_projections=(("q",), ("k",), ("v",), ("gate",), ("write",), ("forget",)),
        filter=key("linear_conv_kernel_dim", default=4),
        chunk=64,
        positions=key("max_position_embeddings", default=65536),
    ),
    "xlstm": Family(
        "xLSTM",
        classes=heads("ForCausalLM", "Model"),
        refuses=("use_bias",),
        switches=dict(
            key_factor=(FACTOR, key("qk_dim_factor", default=0.5)),
            value_factor=(FACTOR, key("v_dim_factor", default=1.0)),
            mlp_factor=(FACTOR, key("ffn_proj_factor", default=2.667)),
            mlp_multiple=(SIZE, key("ffn_round_up_to_multiple_of", default=64)),
        ),
        fields=dict(
            hidden=key("hidden_size"),
            layers=key("num_hidden_layers"),
            heads=key("num_heads"),
            vocabulary=key("vocab_size"),
            mixers=lambda f: ["matrix_memory"] * f["layers"],
            linear_heads=lambda f: f["heads"],
            linear_head_dim=_memory_dim("key_factor"),
            linear_value_dim=_memory_dim("value_factor"),
            chunk=key("chunk_size", default=64),
            fused_qkv=key("weight_mode", default="single", read=_is_fused),
            fused_gate=key("weight_mode", default="single", read=_is_fused),
            norm="rmsnorm",
            mlp_width=_mlp_of_xlstm,
            gated=True,
            activation="silu",
            tied=False,  # the class ignores the config
        ),
    ),
}
