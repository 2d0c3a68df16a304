"""GPT-2 and what grew from it: layer norms with biases, an MLP without a gate. A row each."""

from __future__ import annotations

from typing import Any

from roofmodel.models.family import CAUSAL_HEADS, LM, Family, heads
from roofmodel.models.fields import FLAG, FULL, SIZE, SLIDING, key


def _neo_types(types: Any) -> list[str]:
    """[[["global", "local"], 12]] -> twelve times a full layer and a sliding one."""
    kinds = {"global": FULL, "local": SLIDING}
    try:
        return [kinds[kind] for pattern, times in types for kind in list(pattern) * times]
    except (TypeError, ValueError, KeyError):
        raise ValueError("a list such as [[['global', 'local'], 12]]") from None


GPT2 = Family(
    "GPT2",
    classes={"LMHeadModel": LM} | {suffix: head for suffix, head in CAUSAL_HEADS.items() if head != LM},
    refuses=("add_cross_attention",),
    fields=dict(
        hidden=key("n_embd", "hidden_size"),
        layers=key("n_layer", "num_hidden_layers"),
        heads=key("n_head", "num_attention_heads"),
        vocabulary=key("vocab_size"),
        fused_qkv=True,
        qkv_bias=True,
        out_bias=True,
        mlp_width=key("n_inner", default=lambda f: 4 * f["hidden"]),
        mlp_bias=True,
        activation=key("activation_function", default="gelu_new"),
        positions=key("n_positions", "max_position_embeddings", default=1024),
        position_table=True,
        tied=key("tie_word_embeddings", default=True),
    ),
)

GPTJ = GPT2.like(
    "GPTJ",
    classes=heads("ForCausalLM", "ForSequenceClassification", "Model")
    | {"ForQuestionAnswering": (CAUSAL_HEADS["ForQuestionAnswering"][0]._replace(classes=None),)},
    fused_qkv=False,
    qkv_bias=False,
    out_bias=False,
    rotary_dim=key("rotary_dim", default=64, null=lambda f: f["head_dim"]),
    parallel=True,
    parallel_norms=1,
    positions=key("n_positions", "max_position_embeddings", default=2048),
    position_table=False,
    tied=key("tie_word_embeddings", default=False),
    head_bias=True,
)

GPTS: dict[str, Family] = {
    "gpt2": GPT2,
    "gptj": GPTJ,
    "codegen": GPTJ.like("CodeGen", classes=heads("ForCausalLM", "Model"), fused_qkv=True),
    "gpt_bigcode": GPT2.like(
        "GPTBigCode",
        classes=heads("ForCausalLM", "ForSequenceClassification", "ForTokenClassification", "Model"),
        switches=dict(multi_query=(FLAG, key("multi_query", default=True))),
        kv_heads=lambda f: 1 if f["multi_query"] else f["heads"],
        activation=key("activation_function", default="gelu_pytorch_tanh"),
    ),
    "gpt_neo": GPT2.like(
        "GPTNeo",
        classes=CAUSAL_HEADS,
        refuses=(),
        hidden=key("hidden_size"),
        layers=key("num_layers", "num_hidden_layers"),
        heads=key("num_heads", "num_attention_heads"),
        fused_qkv=False,
        qkv_bias=False,
        window=key("window_size", default=256),
        window_evicts=False,
        layer_types=key("attention_types", default=None, null=[[["global", "local"], 12]], read=_neo_types),
        mlp_width=key("intermediate_size", default=lambda f: 4 * f["hidden"]),
        positions=key("max_position_embeddings", default=2048),
    ),
    "opt": Family(
        "OPT",
        classes={suffix: head for suffix, head in CAUSAL_HEADS.items() if suffix != "ForTokenClassification"},
        switches=dict(final_norm_removed=(FLAG, key("_remove_final_layer_norm", default=False))),
        fields=dict(
            hidden=key("hidden_size"),
            layers=key("num_hidden_layers"),
            heads=key("num_attention_heads"),
            vocabulary=key("vocab_size"),
            qkv_bias=key("enable_bias", default=True),
            out_bias=key("enable_bias", default=True),
            mlp_width=key("ffn_dim", default=3072),
            mlp_bias=key("enable_bias", default=True),
            activation=key("activation_function", default="relu"),
            norm_affine=key("layer_norm_elementwise_affine", default=True),
            pre_norm=key("do_layer_norm_before", default=True),
            final_norm=lambda f: f["pre_norm"] and not f["final_norm_removed"],
            embedding_width=key("word_embed_proj_dim", default=lambda f: f["hidden"]),
            positions=key("max_position_embeddings", default=2048),
            position_table=True,
            position_extra=2,
            tied=key("tie_word_embeddings", default=True),
        ),
    ),
    "gpt_neox": Family(
        "GPTNeoX",
        classes=CAUSAL_HEADS,
        fields=dict(
            hidden=key("hidden_size"),
            layers=key("num_hidden_layers"),
            heads=key("num_attention_heads"),
            vocabulary=key("vocab_size"),
            fused_qkv=True,
            qkv_bias=key("attention_bias", default=True),
            out_bias=key("attention_bias", default=True),
            rotary=key("rotary_pct", "rope_parameters.partial_rotary_factor", default=0.25),
            mlp_width=key("intermediate_size", default=24576),
            mlp_bias=True,
            activation=key("hidden_act", default="gelu"),
            parallel=key("use_parallel_residual", default=True),
            positions=key("max_position_embeddings", default=2048),
            tied=key("tie_word_embeddings", default=False),
        ),
    ),
    "bloom": Family(
        "Bloom",
        classes=CAUSAL_HEADS,
        fields=dict(
            hidden=key("hidden_size", "n_embed"),
            layers=key("n_layer", "num_hidden_layers"),
            heads=key("n_head", "num_attention_heads"),
            vocabulary=key("vocab_size"),
            fused_qkv=True,
            qkv_bias=True,
            out_bias=True,
            alibi=True,
            mlp_bias=True,
            activation="gelu_new",
            embedding_norm=True,
            tied=key("tie_word_embeddings", default=True),
        ),
    ),
    "falcon": Family(
        "Falcon",
        classes=CAUSAL_HEADS,
        switches=dict(
            new=(FLAG, key("new_decoder_architecture", default=False)),
            multi_query=(FLAG, key("multi_query", default=True)),
            kv_heads_of_new=(SIZE, key("num_kv_heads", default=None)),
            norms=(SIZE, key("num_ln_in_parallel_attn", default=None)),
        ),
        fields=dict(
            hidden=key("hidden_size", "n_embed"),
            layers=key("num_hidden_layers"),
            heads=key("num_attention_heads"),
            vocabulary=key("vocab_size"),
            kv_heads=lambda f: (
                f["kv_heads_of_new"] or f["heads"] if f["new"] else 1 if f["multi_query"] else f["heads"]
            ),
            fused_qkv=True,
            qkv_bias=key("bias", default=False),
            out_bias=key("bias", default=False),
            alibi=key("alibi", default=False),
            rotary=lambda f: 0 if f["alibi"] else 1,
            parallel=key("parallel_attn", default=True),
            parallel_norms=lambda f: f["norms"] or (2 if f["new"] else 1),
            mlp_width=key("ffn_hidden_size", default=lambda f: 4 * f["hidden"]),
            mlp_bias=key("bias", default=False),
            activation=key("activation", default="gelu"),
            positions=key("max_position_embeddings", default=2048),
            tied=key("tie_word_embeddings", default=True),
        ),
    ),
    "mpt": Family(
        "Mpt",
        classes=CAUSAL_HEADS,
        fields=dict(
            hidden=key("d_model", "hidden_size"),
            layers=key("n_layers", "num_hidden_layers"),
            heads=key("n_heads", "num_attention_heads"),
            vocabulary=key("vocab_size"),
            fused_qkv=True,
            alibi=True,
            norm_bias=False,
            activation="gelu",
            positions=key("max_seq_len", default=2048),
            tied=key("tie_word_embeddings", default=True),
        ),
    ),
    "biogpt": Family(
        "BioGpt",
        classes=heads("ForCausalLM", "ForTokenClassification", "ForSequenceClassification", "Model"),
        fields=dict(
            hidden=key("hidden_size"),
            layers=key("num_hidden_layers"),
            heads=key("num_attention_heads"),
            vocabulary=key("vocab_size"),
            qkv_bias=True,
            out_bias=True,
            mlp_width=key("intermediate_size", default=4096),
            mlp_bias=True,
            activation=key("hidden_act", default="gelu"),
            positions=key("max_position_embeddings", default=1024),
            position_table=True,
            position_extra=2,
            tied=key("tie_word_embeddings", default=True),
        ),
    ),
    "xglm": Family(
        "XGLM",
        classes=heads("ForCausalLM", "Model"),
        refuses=("add_cross_attention",),
        fields=dict(
            hidden=key("d_model", "hidden_size"),
            layers=key("num_layers", "num_hidden_layers"),
            heads=key("attention_heads", "num_attention_heads"),
            vocabulary=key("vocab_size"),
            qkv_bias=True,
            out_bias=True,
            mlp_width=key("ffn_dim", default=4096),
            mlp_bias=True,
            activation=key("activation_function", default="gelu"),
            positions=key("max_position_embeddings", default=2048),
            position_table=True,
            position_fixed=True,
            position_extra=2,
            tied=key("tie_word_embeddings", default=True),
        ),
    ),
    "starcoder2": Family(
        "Starcoder2",
        classes=heads("ForCausalLM", "ForSequenceClassification", "ForTokenClassification", "Model"),
        fields=dict(
            hidden=key("hidden_size"),
            layers=key("num_hidden_layers"),
            heads=key("num_attention_heads"),
            vocabulary=key("vocab_size"),
            kv_heads=key("num_key_value_heads", default=2),
            qkv_bias=key("use_bias", default=True),
            out_bias=key("use_bias", default=True),
            rotary=1,
            window=key("sliding_window", default=None),
            mlp_width=key("intermediate_size", default=12288),
            mlp_bias=key("use_bias", default=True),
            activation=key("hidden_act", default="gelu_pytorch_tanh"),
            positions=key("max_position_embeddings", default=4096),
            tied=key("tie_word_embeddings", default=True),
        ),
    ),
}
