"""Encoder families with bidirectional attention: BERT, RoBERTa, DeBERTa, ModernBERT and others."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families import BERT_HEADS, BERT_MASKED_LM, CLASSIFIER, LM, MASKED_LM, POOLER, TRANSFORM, Family
from roofmodel.models.fields import (
    COUNT,
    DROPOUT_10_PERCENT,
    FLAG,
    FULL,
    LENGTH_OR_DEFAULT,
    NO_DROPOUT,
    POSITION_KIND,
    SIZE,
    SLIDING,
    WINDOW,
    key,
    same_dropout,
)

PRE_TRAINING = {
    "ForPreTraining": (POOLER, CLASSIFIER._replace(classes=2), *BERT_MASKED_LM),
    "ForNextSentencePrediction": (POOLER, CLASSIFIER._replace(classes=2)),
}
# With a factorized embedding, the head's transform has the embedding width.
NARROW = TRANSFORM._replace(out="embedding")
ROBERTA_HEADS = BERT_HEADS | {"ForMaskedLM": (TRANSFORM._replace(activation="gelu"), BERT_MASKED_LM[1])}
TRANSFORMED = TRANSFORM._replace(bias="transform_bias")

BERT = Family(
    "Bert",
    classes=BERT_HEADS | PRE_TRAINING,
    encoder=True,
    refuses=("is_decoder", "add_cross_attention"),
    fields=dict(
        hidden=key("hidden_size"),
        layers=key("num_hidden_layers"),
        heads=key("num_attention_heads"),
        vocabulary=key("vocab_size"),
        qkv_bias=True,
        out_bias=True,
        mlp_width=key("intermediate_size", default=3072),
        mlp_bias=True,
        activation=key("hidden_act", default="gelu"),
        pre_norm=False,
        embedding_norm=True,
        positions=key("max_position_embeddings", default=512),
        position_table=True,
        type_rows=key("type_vocab_size", default=2),
        tied=key("tie_word_embeddings", default=True),
        embedding_dropout=same_dropout,
        **DROPOUT_10_PERCENT,
    ),
)
ROBERTA = BERT.like("Roberta", classes=ROBERTA_HEADS, padding_position=key("pad_token_id", default=1, null=None))


def _terms(value: Any) -> tuple[str, ...] | None:
    words = value.lower().split("|") if isinstance(value, str) else value
    return tuple(str(word).strip() for word in words) if isinstance(words, list | tuple) else None


def _is_normed(value: Any) -> bool:
    words = {word.strip() for word in str(value).lower().split("|")}
    if not words <= {"none", "layer_norm"}:
        raise ValueError("'none' or 'layer_norm'")
    return "layer_norm" in words


def _relative_rows(f: Any) -> int:
    """DeBERTa: rows for distances in both directions; `buckets`, else the largest distance, limits their number."""
    if not f["relative"]:
        return 0
    limits = (f["buckets"], f["max_distance"])
    distances: int = next((limit for limit in limits if limit > 0), f["positions"])
    return 2 * distances


MODERN_BERT = BERT.like(
    "ModernBert",
    classes={
        "ForMaskedLM": (TRANSFORMED, MASKED_LM[1]._replace(bias="head_bias")),
        "ForSequenceClassification": (TRANSFORMED._replace(rows="first"), CLASSIFIER),
        "ForTokenClassification": (TRANSFORMED, CLASSIFIER._replace(rows="tokens")),
        "ForQuestionAnswering": (TRANSFORMED, *BERT_HEADS["ForQuestionAnswering"]),
        "Model": (),
    },
    switches=dict(
        window_width=(WINDOW, key("local_attention", default=128)),
        full_every=(SIZE, key("global_attn_every_n_layers", default=3)),
    ),
    fused_qkv=True,
    qkv_bias=key("attention_bias", default=False),
    out_bias=key("attention_bias", default=False),
    rotary=1,
    window=lambda f: f["window_width"] // 2 + 1,
    layer_types=key(
        "layer_types",
        default=lambda f: [SLIDING if layer % f["full_every"] else FULL for layer in range(f["layers"])],
    ),
    mlp_width=key("intermediate_size", default=1152),
    mlp_bias=key("mlp_bias", default=False),
    gated=True,
    fused_gate=True,
    activation=key("hidden_activation", default="gelu"),
    norm_bias=key("norm_bias", default=False),
    pre_norm=True,
    first_norm=False,
    positions=key("max_position_embeddings", default=8192),
    position_table=False,
    type_rows=0,
    head_bias=key("decoder_bias", default=True),
    transform_bias=key("classifier_bias", default=False),
    transform_activation=key("classifier_activation", default="gelu"),
    dropout=0.0,
    attention_dropout=NO_DROPOUT["attention_dropout"],
    attention_output_dropout=lambda f: f["attention_dropout"],
    embedding_dropout=key("embedding_dropout", default=0.0, null=0.0),
    activation_dropout=key("mlp_dropout", default=0.0, null=0.0),
)

FAMILIES: dict[str, Family] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "camembert": ROBERTA.like("Camembert"),
    "xlm-roberta": ROBERTA.like("XLMRoberta"),
    "data2vec-text": ROBERTA.like("Data2VecText"),
    "ernie": BERT.like(
        "Ernie",
        switches=dict(
            uses_tasks=(FLAG, key("use_task_id", default=False)),
            task_types=(COUNT, key("task_type_vocab_size", default=3)),
        ),
        task_rows=lambda f: f["task_types"] if f["uses_tasks"] else 0,
    ),
    "megatron-bert": BERT.like(
        "MegatronBert",
        mlp_width=key("intermediate_size", default=4096),
        pre_norm=True,
        embedding_norm=False,
    ),
    "electra": BERT.like(
        "Electra",
        classes={
            "ForMaskedLM": (NARROW._replace(activation="gelu"), MASKED_LM[1]),
            "ForPreTraining": (
                TRANSFORM._replace(norm=False),
                CLASSIFIER._replace(rows="tokens", classes=1),
            ),
            "ForSequenceClassification": (POOLER._replace(activation="gelu"), CLASSIFIER),
            "ForTokenClassification": BERT_HEADS["ForTokenClassification"],
            "ForQuestionAnswering": BERT_HEADS["ForQuestionAnswering"],
            "Model": (),
        },
        mlp_width=key("intermediate_size", default=1024),
        embedding_width=key("embedding_size", default=128),
    ),
    "albert": BERT.like(
        "Albert",
        classes=BERT_HEADS
        | {
            "ForMaskedLM": (NARROW, BERT_MASKED_LM[1]),
            "ForPreTraining": (POOLER, CLASSIFIER, NARROW, BERT_MASKED_LM[1]),
        },
        parameter_groups=key("num_hidden_groups", default=1),
        layers_per_group=key("inner_group_num", default=1),
        mlp_width=key("intermediate_size", default=16384),
        activation=key("hidden_act", default="gelu_new"),
        embedding_width=key("embedding_size", default=128),
        embedding_projected=True,
        dropout=0.0,
        attention_dropout=NO_DROPOUT["attention_dropout"],
        attention_output_dropout=NO_DROPOUT["dropout"],
        embedding_dropout=lambda f: f["attention_output_dropout"],
    ),
    "mpnet": BERT.like(
        "MPNet",
        classes=ROBERTA_HEADS,
        type_rows=0,
        padding_position=1,
        relative_bias=True,
        relative_rows=key("relative_attention_num_buckets", default=32),
    ),
    "roformer": BERT.like(
        "RoFormer",
        classes=BERT_HEADS
        | {
            "ForMaskedLM": (NARROW, BERT_MASKED_LM[1]),
            "ForSequenceClassification": (POOLER._replace(activation="activation"), CLASSIFIER),
            "Model": (),
        },
        refuses=("is_decoder", "add_cross_attention", "rotary_value"),
        rotary=1,
        positions=key("max_position_embeddings", default=1536),
        position_table=False,
        unused_parameters=lambda f: f["positions"] * f["head_dim"],  # sines and cosines, a parameter of the class
        embedding_width=key("embedding_size", default=lambda f: f["hidden"]),
    ),
    "esm": BERT.like(
        "Esm",
        classes={suffix: ROBERTA_HEADS[suffix] for suffix in ROBERTA_HEADS if suffix != "ForQuestionAnswering"}
        | {"ForMaskedLM": (TRANSFORM, MASKED_LM[1])},
        refuses=("is_decoder", "add_cross_attention", "is_folding_model"),
        switches=dict(
            position_kind=(POSITION_KIND, key("position_embedding_type", default="absolute")),
            padding_id=(COUNT, key("pad_token_id", default=None)),
        ),
        activation="gelu",
        rotary=lambda f: int(f["position_kind"] == "rotary"),
        pre_norm=True,
        embedding_norm=key("emb_layer_norm_before", default=None, null=False),
        positions=key("max_position_embeddings", default=1026),
        position_table=lambda f: f["position_kind"] == "absolute",
        padding_position=lambda f: f["padding_id"] if f["position_table"] else None,
        type_rows=0,
        unused_parameters=lambda f: f["layers"] * f["heads"] + 1,  # contact head: linear on attention scores
        embedding_dropout=0.0,
    ),
    "deberta-v2": BERT.like(
        "DebertaV2",
        classes=BERT_HEADS
        | {
            "ForMaskedLM": (NARROW, BERT_MASKED_LM[1]),
            "Model": (),
        },
        switches=dict(
            relative=(FLAG, key("relative_attention", default=False)),
            buckets=(LENGTH_OR_DEFAULT, key("position_buckets", default=-1)),
            max_distance=(LENGTH_OR_DEFAULT, key("max_relative_positions", default=-1)),
            legacy=(FLAG, key("legacy", default=True)),
            tied_by_config=(FLAG, key("tie_word_embeddings", default=True)),
        ),
        head_dim=key("attention_head_size", default=lambda f: f["hidden"] // f["heads"]),
        mlp_width=key("intermediate_size", default=6144),
        disentangled=key("pos_att_type", default=None, null=(), read=_terms),
        disentangled_shared_projections=key("share_att_key", default=False),
        relative_rows=_relative_rows,
        relative_norm=key("norm_rel_ebd", default="none", read=_is_normed),
        unused_parameters=lambda f: 2 * f["hidden"] if f["relative_norm"] and not f["relative_rows"] else 0,
        conv_kernel=key("conv_kernel_size", default=0),
        conv_groups=key("conv_groups", default=1),
        conv_activation=key("conv_act", default="tanh"),
        position_table=key("position_biased_input", default=True),
        type_rows=key("type_vocab_size", default=0),
        embedding_width=key("embedding_size", default=lambda f: f["hidden"]),
        embedding_projected_after="sums",
        embedding_projected_bias=False,
        tied=lambda f: f["tied_by_config"] or not f["legacy"],
        pooler_activation=key("pooler_hidden_act", default="gelu"),
    ),
    "modernbert-decoder": MODERN_BERT.like(
        "ModernBertDecoder",
        classes={
            "ForCausalLM": (TRANSFORMED._replace(rows="logits"), LM[0]),
            "ForSequenceClassification": (
                TRANSFORMED._replace(rows="logits"),
                CLASSIFIER._replace(rows="logits", bias="transform_bias"),
            ),
            "Model": (),
        },
        encoder=False,
        refuses=(),
        fused_qkv=False,
        window=lambda f: f["window_width"] // 2,
    ),
    "modernbert": MODERN_BERT,
    "nomic_bert": BERT.like(
        "NomicBert",
        classes={suffix: BERT_HEADS[suffix] for suffix in BERT_HEADS if suffix != "ForQuestionAnswering"}
        | {"Model": ()},
        head_dim=key("head_dim", default=lambda f: f["hidden"] // f["heads"]),
        qkv_bias=False,
        out_bias=False,
        rotary=1,
        mlp_bias=False,
        gated=True,
        activation=key("hidden_act", default="silu"),
        positions=key("max_position_embeddings", default=2048),
        position_table=False,
        **NO_DROPOUT,
    ),
    "distilbert": BERT.like(
        "DistilBert",
        classes=BERT_HEADS
        | {
            "ForMaskedLM": MASKED_LM,
            "ForSequenceClassification": (POOLER._replace(activation="relu"), CLASSIFIER),
            "Model": (),
        },
        hidden=key("dim", "hidden_size"),
        layers=key("n_layers", "num_hidden_layers"),
        heads=key("n_heads", "num_attention_heads"),
        mlp_width=key("hidden_dim", default=3072),
        activation=key("activation", default="gelu"),
        type_rows=0,
        attention_output_dropout=0.0,
    ),
}
