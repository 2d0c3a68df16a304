"""Encoder families: one stack of layers in which every token sees every other. A row each."""

from __future__ import annotations

from roofmodel.models.family import BERT_HEADS, BERT_MASKED_LM, CLASSIFIER, MASKED_LM, POOLER, TRANSFORM, Family
from roofmodel.models.fields import key

BERT = Family(
    "Bert",
    classes=BERT_HEADS
    | {
        "ForPreTraining": (POOLER, CLASSIFIER._replace(classes=2), *BERT_MASKED_LM),
        "ForNextSentencePrediction": (POOLER, CLASSIFIER._replace(classes=2)),
    },
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
        types=key("type_vocab_size", default=2),
        tied=key("tie_word_embeddings", default=True),
    ),
)

ENCODERS: dict[str, Family] = {
    "bert": BERT,
    "roberta": BERT.like(
        "Roberta",
        classes=BERT_HEADS | {"ForMaskedLM": (TRANSFORM._replace(activation="gelu"), BERT_MASKED_LM[1])},
        position_pad=key("pad_token_id", default=1, null=None),
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
        types=0,
    ),
}
