"""Hugging Face `model_type` -> what its config keys mean. A family is a row of data, not a class.

A row says, for each field of `FIELDS`, which config key holds it (`key("n_embd", "hidden_size")`:
the first name that is there) or a constant that the family's code has built in (`True`, `"rmsnorm"`).
A field that a row leaves out takes the value in `FIELDS`. `default=` is that of the Hugging Face
config class, a value or a function of the fields before it; without one the key must be there.

To add a family, add a row to `FAMILIES`; the tests then compare it with the real class. `config.py`
reads a config through its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from roofmodel.models.architecture import Dense

REQUIRED = object()


class Key(NamedTuple):
    """A field that stands in the config: its names (where several are given they must agree), its default."""

    names: tuple[str, ...]
    default: Any = REQUIRED
    null: Any = REQUIRED  # what null means, where it does not mean the default

    @property
    def takes_null(self) -> bool:
        """Whether the class takes null: where it derives the default, has None for one, or gives null a sense."""
        return callable(self.default) or self.default is None or self.null is not REQUIRED


def key(*names: str, default: Any = REQUIRED, null: Any = REQUIRED) -> Key:
    """A field's key: `key("n_positions", "max_position_embeddings", default=1024)`."""
    return Key(names, default, null)


class Family(NamedTuple):
    """A row: the prefix of its class names, the heads by their suffix (the usual one first), the fields."""

    prefix: str
    classes: Mapping[str, tuple[Dense, ...]]
    fields: Mapping[str, Any]
    encoder: bool = False
    refuses: tuple[str, ...] = ()  # switches that, when true, add work that is not counted

    def like(self, prefix: str, classes: Mapping[str, tuple[Dense, ...]] | None = None, **fields: Any) -> Family:
        """The same row under another prefix, with other heads and some fields changed."""
        return self._replace(prefix=prefix, classes=classes or self.classes, fields={**self.fields, **fields})


# --- What values a field may have ------------------------------------------------------------------


class Kind(NamedTuple):
    """What a value must be, as a test and in words."""

    accepts: Callable[[Any], bool]
    wanted: str


def _whole(low: int, high: int) -> Kind:
    return Kind(lambda v: type(v) is int and low <= v <= high, f"a whole number from {low} to {high}")


# What transformers calls an activation (transformers.activations.ACT2FN) -> the function it is.
ACTIVATIONS = {
    **{name: name for name in ("linear", "relu", "relu2", "relu6", "leaky_relu", "tanh", "sigmoid", "mish")},
    **dict.fromkeys(("silu", "swish"), "silu"),
    **dict.fromkeys(("gelu", "gelu_10", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_accurate"), "gelu_tanh"),
    **dict.fromkeys(("gelu_pytorch_tanh", "gelu_python_tanh"), "gelu_tanh"),
    "quick_gelu": "gelu_quick",
}

# Upper limits are far beyond any model: they catch a slip of the keyboard, not a design.
SIZE, COUNT, LAYERS, LENGTH = _whole(1, 2**24), _whole(0, 2**24), _whole(1, 10_000), _whole(1, 2**40)
FLAG = Kind(lambda v: isinstance(v, bool), "true or false")
FRACTION = Kind(lambda v: type(v) in (int, float) and 0 <= v <= 1, "a number from 0 to 1")
ACTIVATION = Kind(lambda v: isinstance(v, str) and v in ACTIVATIONS, f"one of {', '.join(sorted(ACTIVATIONS))}")
WINDOWS = Kind(
    lambda v: isinstance(v, list) and all(t in ("full_attention", "sliding_attention") for t in v),
    "a list of 'full_attention' and 'sliding_attention', one a layer",
)
LABELS = Kind(lambda v: (isinstance(v, dict) and bool(v)) or SIZE.accepts(v), "the classes by number, or how many")
NORM = Kind(lambda v: v in ("layernorm", "rmsnorm"), "layernorm or rmsnorm")

# field -> what it may be, and its value where a row leaves it out
FIELDS: dict[str, tuple[Kind, Any]] = {
    "hidden": (SIZE, REQUIRED),
    "layers": (LAYERS, REQUIRED),
    "heads": (SIZE, REQUIRED),
    "vocabulary": (SIZE, REQUIRED),
    "kv_heads": (SIZE, lambda f: f["heads"]),
    "head_dim": (SIZE, lambda f: f["hidden"] // f["heads"]),
    "fused_qkv": (FLAG, False),
    "qkv_bias": (FLAG, False),
    "out_bias": (FLAG, False),
    "rotary": (FRACTION, 0),  # the fraction of a head that rotary embedding turns
    "alibi": (FLAG, False),
    "window": (LENGTH, None),  # how far back a layer that slides can see
    "window_used": (FLAG, True),
    "window_from": (COUNT, 0),  # the first layer that slides, unless the types say it
    "window_types": (WINDOWS, None),
    "mlp_width": (SIZE, lambda f: 4 * f["hidden"]),
    "gated": (FLAG, False),
    "mlp_bias": (FLAG, False),
    "activation": (ACTIVATION, REQUIRED),
    "norm": (NORM, "layernorm"),
    "norm_affine": (FLAG, True),
    "pre_norm": (FLAG, True),
    "final_norm_removed": (FLAG, False),  # a layer norm after the last layer comes with pre_norm
    "parallel": (FLAG, False),
    "embedding_width": (SIZE, lambda f: f["hidden"]),
    "embedding_norm": (FLAG, False),
    "positions": (LENGTH, None),  # as the config states them
    "position_table": (FLAG, False),  # whether they are rows of a learned table
    "position_extra": (COUNT, 0),  # rows of that table beyond `positions`
    "position_pad": (COUNT, None),  # the first this + 1 positions are never given to a token
    "types": (COUNT, 0),
    "tied": (FLAG, True),
    "labels": (LABELS, key("id2label", "num_labels", default=2, null=2)),
}
# The core sizes, which every config must have, as a message names them.
CORE = {
    "hidden": "hidden size",
    "layers": "number of layers",
    "heads": "number of attention heads",
    "vocabulary": "vocabulary size",
}

# --- Heads, by the suffix of the class's name -------------------------------------------------------

LM = (Dense("logits", "vocabulary", "logits", bias=False, tied=True),)
CAUSAL_HEADS = {
    "ForCausalLM": LM,
    "ForSequenceClassification": (Dense("score", "classes", "logits", bias=False),),
    "ForTokenClassification": (Dense("classifier", "classes", "tokens"),),
    "ForQuestionAnswering": (Dense("span", "classes", "tokens", classes=2),),
    "Model": (),
}

POOLER = Dense("pooler", "hidden", "first", activation="tanh")
CLASSIFIER = Dense("classifier", "classes", "first")
TRANSFORM = Dense("transform", "hidden", "tokens", activation="", norm=True, from_layers=True)
MASKED_LM = (TRANSFORM, Dense("logits", "vocabulary", "tokens", tied=True))
BERT_MASKED_LM = (TRANSFORM, MASKED_LM[1]._replace(spare_bias=True))
BERT_HEADS = {
    "ForMaskedLM": BERT_MASKED_LM,
    "ForSequenceClassification": (POOLER, CLASSIFIER),
    "ForTokenClassification": (CLASSIFIER._replace(rows="tokens"),),
    "ForQuestionAnswering": (Dense("span", "classes", "tokens"),),
    "Model": (POOLER,),
}

# --- The families ----------------------------------------------------------------------------------

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

FAMILIES: dict[str, Family] = {
    "gpt2": Family(
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
    ),
    "opt": Family(
        "OPT",
        classes={suffix: head for suffix, head in CAUSAL_HEADS.items() if suffix != "ForTokenClassification"},
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
            final_norm_removed=key("_remove_final_layer_norm", default=False),
            embedding_width=key("word_embed_proj_dim", default=lambda f: f["hidden"]),
            positions=key("max_position_embeddings", default=2048),
            position_table=True,
            position_extra=2,
            tied=key("tie_word_embeddings", default=True),
        ),
    ),
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
    "qwen2": LLAMA.like(
        "Qwen2",
        kv_heads=key("num_key_value_heads", default=32, null=lambda f: f["heads"]),
        qkv_bias=True,
        out_bias=False,
        window=key("sliding_window", default=4096, null=None),
        window_used=key("use_sliding_window", default=False),
        window_from=key("max_window_layers", default=28),
        window_types=key("layer_types", default=None),
        mlp_width=key("intermediate_size", default=22016),
        mlp_bias=False,
        positions=key("max_position_embeddings", default=32768),
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
