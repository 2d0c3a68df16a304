"""Encoder-decoder families: T5, BART, Whisper and their relatives.

The fields of a row describe the decoder; `source` has the fields that differ in the encoder.
"""

from __future__ import annotations

from typing import Any

from roofmodel.models.architecture import HeadStage
from roofmodel.models.families import LM, Family
from roofmodel.models.fields import (
    COUNT,
    DROPOUT_10_PERCENT,
    FLAG,
    LAYERS,
    NO_DROPOUT,
    SIZE,
    FieldType,
    key,
    same_dropout,
)
from roofmodel.models.layers import ACTIVATIONS

# The classifier reads the hidden state of the last token.
LAST = (HeadStage("dense", "hidden", "first", activation="tanh"), HeadStage("classifier", "classes", "first"))
SPAN = (HeadStage("span", "classes", "tokens"),)

PROJECTION = FieldType(
    lambda v: isinstance(v, str) and v.removeprefix("gated-") in ACTIVATIONS,
    f"one of {', '.join(sorted(ACTIVATIONS))}, with the prefix gated- for a gated MLP",
)


def _activation(f: Any) -> str:
    """T5's class uses the tanh approximation of gelu in a gated MLP."""
    word: str = f["projection"]
    return "gelu_new" if word == "gated-gelu" else word.removeprefix("gated-")


T5 = Family(
    "T5",
    classes={
        "ForConditionalGeneration": LM,
        "ForSequenceClassification": LAST,
        "ForTokenClassification": (HeadStage("classifier", "classes", "tokens"),),
        "ForQuestionAnswering": SPAN,
        "EncoderModel": (),
        "Model": (),
    },
    switches=dict(
        source_layers=(LAYERS, key("num_layers", "num_hidden_layers")),
        projection=(PROJECTION, key("feed_forward_proj", default="relu")),
    ),
    fields=dict(
        hidden=key("d_model", "hidden_size"),
        layers=key("num_decoder_layers", default=lambda f: f["source_layers"]),
        heads=key("num_heads", "num_attention_heads"),
        vocabulary=key("vocab_size"),
        head_dim=key("d_kv", "head_dim", default=64),
        relative_bias=True,
        relative_rows=key("relative_attention_num_buckets", default=32),
        norm="rmsnorm",
        mlp_width=key("d_ff", default=2048),
        gated=lambda f: f["projection"].startswith("gated-"),
        activation=_activation,
        # False: T5 v1.1 and its relatives, whose checkpoints have a separate head matrix, which transformers loads
        tied=key("tie_word_embeddings", default=True, null=True),
        embedding_dropout=same_dropout,
        activation_dropout=same_dropout,
        final_dropout=same_dropout,
        **DROPOUT_10_PERCENT,
    ),
    source=dict(layers=lambda f: f["source_layers"]),
    source_classes=("EncoderModel", "ForTokenClassification"),
)
MT5 = T5.like(
    "MT5",
    switches={**T5.switches, "projection": (PROJECTION, key("feed_forward_proj", default="gated-gelu"))},
    mlp_width=key("d_ff", default=1024),
)
BART = Family(
    "Bart",
    classes={
        "ForConditionalGeneration": LM,
        "ForSequenceClassification": LAST,
        "ForQuestionAnswering": SPAN,
        "Model": (),
    },
    fields=dict(
        hidden=key("d_model", "hidden_size"),
        layers=key("decoder_layers"),
        heads=key("decoder_attention_heads"),
        vocabulary=key("vocab_size"),
        qkv_bias=True,
        out_bias=True,
        pre_norm=False,
        mlp_width=key("decoder_ffn_dim", default=4096),
        mlp_bias=True,
        activation=key("activation_function", default="gelu"),
        embedding_norm=True,
        positions=key("max_position_embeddings", default=1024),
        position_table=True,
        position_extra=2,
        tied=key("tie_word_embeddings", default=True),
        labels=key("id2label", "num_labels", default=3, null=3),
        dropout=DROPOUT_10_PERCENT["dropout"],
        embedding_dropout=same_dropout,
        activation_dropout=key("activation_dropout", default=0.0, null=0.0),
    ),
    source=dict(
        layers=key("encoder_layers", "num_hidden_layers"),
        heads=key("encoder_attention_heads", "num_attention_heads"),
        mlp_width=key("encoder_ffn_dim", default=4096),
        # untied, each stack and the head have their own table, and the shared table is never used
        shared_token_table=lambda f: f["tied"],
        unused_parameters=lambda f: 0 if f["tied"] else f["vocabulary"] * f["hidden"],
    ),
)
MBART = BART.like(
    "MBart",
    pre_norm=True,
    labels=key("id2label", "num_labels", default=2, null=2),
)
PEGASUS = MBART.like(
    "Pegasus",
    classes={suffix: BART.classes[suffix] for suffix in ("ForConditionalGeneration", "Model")},
    embedding_norm=False,
    position_extra=0,
)


def _sparse_layers(sparse: str, layers: str) -> Any:
    """Switch: the second layer of each group has experts, or every layer; `sparse` is their number, about."""

    def rule(f: Any) -> list[int]:
        step = f[layers] // f[sparse] if f[sparse] else f[layers]
        return [int(step == 1 or (step > 1 and layer % step == 1)) for layer in range(f[layers])]

    return rule


FAMILIES: dict[str, Family] = {
    "t5": T5,
    "mt5": MT5,
    "umt5": MT5.like("UMT5", relative_table_per_layer=True),
    "switch_transformers": T5.like(
        "SwitchTransformers",
        classes={suffix: T5.classes[suffix] for suffix in ("ForConditionalGeneration", "EncoderModel", "Model")},
        switches=dict(
            source_layers=T5.switches["source_layers"],
            sparse_source=(COUNT, key("num_sparse_encoder_layers", default=3)),
            sparse=(COUNT, key("num_sparse_decoder_layers", default=3)),
        ),
        source=dict(expert_layers=_sparse_layers("sparse_source", "source_layers")),
        layers=key("num_decoder_layers", default=12, null=lambda f: f["source_layers"]),
        gated=False,
        activation=key("dense_act_fn", default="relu"),
        experts=key("num_experts", default=8),
        expert_capacity=key("expert_capacity", default=64),
        expert_layers=_sparse_layers("sparse", "layers"),
        router_bias=key("router_bias", default=False),
    ),
    "bart": BART,
    "mbart": MBART,
    "pegasus": PEGASUS,
    "marian": PEGASUS.like(
        "Marian",
        classes={"MTModel": LM, "Model": ()},
        switches=dict(
            source_vocabulary=(SIZE, key("vocab_size")),
            one_vocabulary=(FLAG, key("share_encoder_decoder_embeddings", default=True)),
        ),
        source=dict(
            vocabulary=lambda f: f["source_vocabulary"],
            shared_token_table=lambda f: f["tied"] and f["one_vocabulary"],
            unused_parameters=lambda f: f["vocabulary"] * f["hidden"] if f["one_vocabulary"] and not f["tied"] else 0,
        ),
        vocabulary=key("decoder_vocab_size", default=lambda f: f["source_vocabulary"]),
        pre_norm=False,
    ),
    "blenderbot": PEGASUS.like(
        "Blenderbot",
        source=dict(mlp_width=key("encoder_ffn_dim", default=10240)),
        mlp_width=key("decoder_ffn_dim", default=10240),
        positions=key("max_position_embeddings", default=128),
    ),
    "blenderbot-small": PEGASUS.like(
        "BlenderbotSmall",
        source=dict(mlp_width=key("encoder_ffn_dim", default=2048)),
        pre_norm=False,
        embedding_norm=True,
        mlp_width=key("decoder_ffn_dim", default=2048),
        positions=key("max_position_embeddings", default=512),
    ),
    "m2m_100": PEGASUS.like(
        "M2M100",
        activation=key("activation_function", default="relu"),
        sinusoidal_positions=True,
        **DROPOUT_10_PERCENT,
    ),
    "whisper": PEGASUS.like(
        "Whisper",
        source=dict(
            mlp_width=key("encoder_ffn_dim", default=1536),
            frame_convolutions=lambda f: [(f["mel_bins"], 3, 1, "gelu"), (f["hidden"], 3, 2, "gelu")],
            positions=key("max_source_positions", default=1500),
            padded_to_positions=True,
            shared_token_table=False,
            unused_parameters=0,
        ),
        switches=dict(mel_bins=(SIZE, key("num_mel_bins", default=80))),
        keys_without_bias=True,
        mlp_width=key("decoder_ffn_dim", default=1536),
        positions=key("max_target_positions", default=448),
        dropout=NO_DROPOUT["dropout"],
    ),
}
