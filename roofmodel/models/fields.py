"""The fields of the neutral description: what each may be, and where in a config it stands.

A family says for each field which config key holds it (`key("n_embd", "hidden_size")`: the first name that is
there), or a constant that its code has built in (`True`, `"rmsnorm"`), or a function of other fields. A
field that it leaves out takes the value in `FIELDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from roofmodel.algebra import ceil_div
from roofmodel.models.norms_and_activations import ACTIVATIONS

Fields = Mapping[str, Any]
"""The fields of one stack or network, by name."""
REQUIRED = object()


class Key(NamedTuple):
    """A field that stands in the config: its names (where several are given they must agree), its default."""

    names: tuple[str, ...]
    default: Any = REQUIRED
    null: Any = REQUIRED  # what null means, where it does not mean the default
    read: Callable[[Any], Any] | None = None  # the config's word -> the field's; ValueError says what it must be
    about: str = ""  # the key's meaning, for the documentation of models in YAML

    @property
    def takes_null(self) -> bool:
        """Whether the class takes null: where it derives the default, has None for one, or gives null a sense."""
        return callable(self.default) or self.default is None or self.null is not REQUIRED


def key(
    *names: str,
    default: Any = REQUIRED,
    null: Any = REQUIRED,
    read: Callable[[Any], Any] | None = None,
    about: str = "",
) -> Key:
    """A field's key: `key("n_positions", "max_position_embeddings", default=1024)`.

    `default` is that of the Hugging Face config class, in its own words: a value, or a function of other fields.
    Without one the key must be there.
    """
    return Key(names, default, null, read, about)


class FieldType(NamedTuple):
    """What a value must be, as a test and in words."""

    accepts: Callable[[Any], bool]
    expected: str


def _whole(low: int, high: int) -> FieldType:
    return FieldType(lambda v: type(v) is int and low <= v <= high, f"a whole number from {low} to {high}")


def _one_of(*words: str) -> FieldType:
    return FieldType(lambda v: v in words, f"{', '.join(words[:-1])} or {words[-1]}")


LAYER_TYPES = FULL, SLIDING = "full_attention", "sliding_attention"


def _expert_layers(f: Any) -> list[int]:
    """Of the layers that may have experts, one in `moe_every`."""
    return [
        int(i >= f["dense_first"] and i not in f["dense_layers"] and (i + 1) % f["moe_every"] == 0)
        for i in range(f["layers"])
    ]


def _window_value_dim(f: Any) -> Any:
    return f["window_head_dim"] if f["value_dim"] == f["head_dim"] else f["value_dim"]


def _window_rotary_dim(f: Any) -> Any:
    """The same fraction of a head of another size."""
    if f["window_head_dim"] == f["head_dim"]:
        return f["rotary_dim"]
    return int(f["window_head_dim"] * f["rotary"])


# Upper limits are far beyond any model: they catch a slip of the keyboard, not a design.
SIZE, COUNT, LAYERS, LENGTH = _whole(1, 2**24), _whole(0, 2**24), _whole(1, 10_000), _whole(1, 2**40)
REACH = _whole(-1, 2**40)  # 0 and -1: as the code has it
WINDOW = _whole(0, 2**40)  # 0 as well as null: none
FLAG = FieldType(lambda v: isinstance(v, bool), "true or false")
FRACTION = FieldType(lambda v: type(v) in (int, float) and 0 <= v <= 1, "a number from 0 to 1")
ACTIVATION = FieldType(lambda v: isinstance(v, str) and v in ACTIVATIONS, f"one of {', '.join(sorted(ACTIVATIONS))}")
TYPES = FieldType(
    lambda v: isinstance(v, list) and all(t in LAYER_TYPES for t in v),
    f"a list of {' and '.join(map(repr, LAYER_TYPES))}, one a layer",
)
INDICES = FieldType(
    lambda v: isinstance(v, list) and all(COUNT.accepts(i) for i in v), "a list of layers by number, from 0"
)
MIXERS = FieldType(lambda v: isinstance(v, list), "a list of mixers, one a layer")
MATRICES = FieldType(lambda v: isinstance(v, tuple), "names of inputs, those of each matrix together")
LAYER_FLAGS = FieldType(
    lambda v: isinstance(v, list) and all(flag in (0, 1) for flag in v), "a list of 0 and 1, one a layer"
)
LABELS = FieldType(lambda v: (isinstance(v, dict) and bool(v)) or SIZE.accepts(v), "the classes by number, or how many")
NORM = _one_of("layernorm", "rmsnorm")
GAINS = _one_of("shared", "each", "none")
FILTERS = FieldType(lambda v: isinstance(v, list), "a list of filters: channels, taps, stride, activation")
TERMS = FieldType(
    lambda v: isinstance(v, tuple) and all(term in ("c2p", "p2c") for term in v), "'c2p', 'p2c' or both, joined by '|'"
)
GATE = FieldType(lambda v: v in ("", "head", "element", "queries"), "'', 'head', 'element' or 'queries'")
ODD = FieldType(lambda v: COUNT.accepts(v) and (v == 0 or v % 2), "an odd number, or 0")
NUMBER_OR_AUTO = FieldType(lambda v: v == "auto" or SIZE.accepts(v), "a whole number, or 'auto'")
PLACES = _one_of("absolute", "rotary")
PROJECTED = _one_of("tokens", "sums", "norm")
# Of an architecture told in YAML: how tokens know their places; where norms stand.
PLACED = _one_of("rotary", "learned", "sinusoidal", "alibi", "none")
STANDS = _one_of("before", "after", "both", "sum")


def pair(sides: Any) -> tuple[int, int]:
    """Rows and columns of pixels, from a config's `224` or `[224, 320]`."""
    found = tuple(sides) if isinstance(sides, list | tuple) else (sides, sides)
    if len(found) != 2 or not all(map(SIZE.accepts, found)):
        raise ValueError(SIDES.expected)
    return found


SIDES = FieldType(lambda v: isinstance(v, tuple), "a number of pixels a side, or a list of two: rows and columns")
WIDTHS = FieldType(
    lambda v: isinstance(v, list) and bool(v) and all(map(SIZE.accepts, v)), "a list of sizes, one a stage"
)
TOKENS = FieldType(lambda v: isinstance(v, tuple), "names of learned tokens")

# What training drops out of what blocks give, and of attention's probabilities, by the names that classes have for it.
DROPPED_NONE: dict[str, Any] = dict(
    dropout=key(
        "hidden_dropout_prob", "hidden_dropout", "resid_pdrop", "resid_dropout", "residual_dropout", "dropout",
        "dropout_rate", default=0.0, null=0.0,
    ),
    attention_dropout=key(
        "attention_probs_dropout_prob", "attention_dropout", "attn_pdrop", "dropout_rate", default=0.0, null=0.0
    ),
)  # fmt: skip
DROPPED_TENTH = {field: source._replace(default=0.1) for field, source in DROPPED_NONE.items()}

# field -> what it may be, and its value where a row leaves it out
FIELDS: dict[str, tuple[FieldType, Any]] = {
    "hidden": (SIZE, REQUIRED),
    "layers": (LAYERS, REQUIRED),
    "heads": (SIZE, REQUIRED),
    "vocabulary": (SIZE, REQUIRED),
    # attention
    "kv_heads": (SIZE, lambda f: f["heads"]),
    "head_dim": (SIZE, lambda f: f["hidden"] // f["heads"]),
    "fused_qkv": (FLAG, False),
    "qkv_bias": (FLAG, False),
    "keys_without_bias": (FLAG, False),  # no bias on keys, although queries and values have one
    "out_bias": (FLAG, False),
    "alibi": (FLAG, False),
    "relative_bias": (FLAG, False),
    "relative_table_per_layer": (FLAG, False),  # looked up in each layer anew, in a table of its own
    "disentangled": (TERMS, ()),  # scores between content and relative position, one way or both
    "disentangled_shared_projections": (FLAG, False),  # through the matrices of the content
    "value_dim": (SIZE, lambda f: f["head_dim"]),
    "rotary": (FRACTION, 0),  # the fraction of a head that rotary embedding turns
    "rotary_dim": (COUNT, lambda f: int(f["head_dim"] * f["rotary"])),
    "sinks": (FLAG, False),  # a learned logit per head that takes part in the softmax
    # of the layers that slide
    "window_heads": (SIZE, lambda f: f["heads"]),
    "window_kv_heads": (SIZE, lambda f: f["kv_heads"]),
    "window_head_dim": (SIZE, lambda f: f["head_dim"]),
    "window_value_dim": (SIZE, _window_value_dim),
    "window_rotary_dim": (COUNT, _window_rotary_dim),
    "window_sinks": (FLAG, lambda f: f["sinks"]),
    "window": (WINDOW, None),  # how far back a layer that slides can see
    "window_evicts": (FLAG, True),  # whether the cache of such a layer forgets what the window has left behind
    "chunked": (FLAG, False),  # such a layer does not slide: a token sees those of its own chunk of `window` tokens
    "layer_types": (TYPES, lambda f: [SLIDING if f["window"] else FULL] * f["layers"]),
    "rotary_layers": (LAYER_FLAGS, None),  # the layers that turn at all, if not every one
    "values_from_keys": (FLAG, False),  # in the layers that do not slide
    "value_norm": (FLAG, False),  # without a gain
    "attention_gate": (GATE, ""),  # on what heads give, each or each element of it; or from the matrix of queries
    "kv_shared_layers": (
        COUNT,
        0,
    ),  # so many layers at the end attend to the keys and values of the last one of their kind
    "kv_shared_mlp_width": (SIZE, lambda f: f["mlp_width"]),
    # latent attention, where keys and values come from a latent
    "latent": (COUNT, 0),
    "query_latent": (SIZE, None),
    "nope_dim": (SIZE, lambda f: f["head_dim"] - f["rotary_dim"]),  # elements of a head that come from the latents
    "latent_rotary": (FLAG, True),  # whether the key that all heads share turns
    "latent_gate": (FLAG, False),  # on what heads give, a number each
    "index_topk": (SIZE, None),  # an indexer chooses so many tokens for each query
    "index_heads": (SIZE, 1),
    "index_head_dim": (SIZE, 1),
    "index_layers": (LAYER_FLAGS, None),  # the layers with an indexer of their own, if not every one
    # norms
    "norm": (NORM, "layernorm"),
    "norm_affine": (FLAG, True),
    "norm_bias": (FLAG, lambda f: f["norm_affine"] and f["norm"] == "layernorm"),
    "pre_norm": (FLAG, True),  # on what a block reads
    "first_norm": (FLAG, lambda f: f["pre_norm"]),  # on what the very first block reads
    "out_norm": (FLAG, False),  # on what a block gives, ahead of the residual sum
    "sum_norm": (FLAG, lambda f: not (f["pre_norm"] or f["out_norm"])),  # on the residual sum
    "post_norm_layers": (LAYER_FLAGS, None),  # the layers whose norms are on what blocks give instead, if any
    "final_norm": (FLAG, lambda f: not f["sum_norm"]),
    "qk_norm": (FLAG, False),  # on the heads' queries and keys
    "qk_norm_gains": (GAINS, "shared"),
    "qk_norm_rotary_only": (FLAG, False),  # in the layers that turn
    "qk_norm_bias": (FLAG, lambda f: f["norm_bias"]),
    # state spaces, and other mixers than attention
    "mixers": (MIXERS, lambda f: ["attention"] * f["layers"]),  # each layer's; `mamba2+attention` has both side by side
    "inner_width": (SIZE, lambda f: 2 * f["hidden"]),  # channels
    "state": (SIZE, 16),  # what a channel keeps
    "filter": (SIZE, 4),  # tokens wide
    "filter_bias": (FLAG, True),
    "inner_bias": (FLAG, False),
    "inner_out_bias": (FLAG, lambda f: f["inner_bias"]),
    "step_rank": (SIZE, lambda f: ceil_div(f["hidden"], 16)),
    "selection_norm": (FLAG, False),  # on time step, B and C
    "selection_norm_gain": (FLAG, True),
    "inner_activation": (ACTIVATION, lambda f: f["activation"]),
    "inner_heads": (SIZE, 1),
    "inner_head_dim": (SIZE, lambda f: f["inner_width"] // f["inner_heads"]),
    "inner_groups": (SIZE, 1),
    "chunk": (SIZE, 256),
    "gate_norm": (FLAG, True),
    # linear attention
    "linear_heads": (SIZE, 1),  # of queries and keys
    "linear_value_heads": (SIZE, lambda f: f["linear_heads"]),
    "linear_head_dim": (SIZE, 1),
    "linear_value_dim": (SIZE, lambda f: f["linear_head_dim"]),
    "linear_projections": (MATRICES, ()),  # which of its inputs one matrix gives
    "linear_gate": (ACTIVATION, "silu"),
    "linear_decay_per_channel": (FLAG, False),  # each element of a key decays at a pace of its own
    "linear_sigmoid_decay": (FLAG, False),  # by a sigmoid in place of a softplus
    "linear_gate_rank": (SIZE, None),  # of what gives decay and gate, where that is not a matrix
    # blocks
    "mlp": (FLAG, True),
    "parallel": (FLAG, False),  # attention and MLP side by side
    "parallel_norms": (SIZE, 2),  # with a norm each, or one for both
    "mlp_width": (SIZE, lambda f: 4 * f["hidden"]),
    "gated": (FLAG, False),
    "fused_gate": (FLAG, False),  # one matrix holds gate and up
    "mlp_bias": (FLAG, False),
    "activation": (ACTIVATION, REQUIRED),
    "dropout": (FRACTION, DROPPED_NONE["dropout"]),
    "attention_dropout": (FRACTION, DROPPED_NONE["attention_dropout"]),
    "conv_kernel": (ODD, 0),  # of the filter over tokens behind the first layer; 0: none
    "conv_groups": (SIZE, 1),
    "conv_activation": (ACTIVATION, "tanh"),
    # mixture of experts; without experts all layers have an MLP
    "experts": (COUNT, 0),
    "experts_active": (SIZE, 1),
    "expert_width": (SIZE, lambda f: f["mlp_width"]),
    "expert_bias": (FLAG, False),
    "fused_experts": (FLAG, lambda f: f["fused_gate"]),  # one matrix holds gate and up of an expert
    "router_bias": (FLAG, False),
    "correction": (FLAG, False),  # a learned number per expert joins the router's choice
    "shared_width": (COUNT, 0),  # of the MLP that takes every token; 0: none
    "shared_gate": (FLAG, False),
    "dense_first": (COUNT, 0),  # so many layers at the start keep an MLP
    "moe_every": (SIZE, 1),  # one layer in so many has experts, the last of them
    "dense_layers": (INDICES, []),
    # layers that have their parameters in common
    "parameter_groups": (
        SIZE,
        lambda f: f["layers"],
    ),  # the layers fall into so many runs, each the same parameters over again
    "layers_per_group": (SIZE, 1),  # each being so many layers
    "unused_parameters": (COUNT, 0),  # parameters that the class holds although its code never reads them
    "expert_layers": (LAYER_FLAGS, lambda f: _expert_layers(f)),  # the layers with experts
    "mlp_with_experts": (FLAG, False),  # experts have an MLP beside them, each with norms, and the router with one
    # embedding and head
    "embedding_width": (SIZE, lambda f: f["hidden"]),
    "embedding_projected": (FLAG, lambda f: f["embedding_width"] != f["hidden"]),
    "embedding_projected_after": (PROJECTED, "norm"),  # what is still of the embedding's width
    "embedding_projected_bias": (FLAG, True),
    "embedding_projected_back": (FLAG, False),  # after the last layer
    "embedding_norm": (FLAG, False),
    "per_layer_input": (COUNT, 0),  # width of what each layer is given from tables of its own; 0: nothing
    "per_layer_vocabulary": (COUNT, lambda f: f["vocabulary"]),
    "positions": (LENGTH, None),  # as the config states them
    "position_table": (FLAG, False),  # whether they are rows of a learned table
    "sinusoidal_positions": (FLAG, False),  # rows of sines and cosines, which are no parameters
    "position_extra": (COUNT, 0),  # rows of that table beyond `positions`
    "padding_position": (COUNT, None),  # the first this + 1 positions are never given to a token
    "type_rows": (COUNT, 0),
    "task_rows": (COUNT, 0),
    "relative_rows": (COUNT, 0),  # of the table of relative positions: a bias per head in each, or a vector
    "relative_norm": (FLAG, False),  # on those vectors
    "frame_convolutions": (FILTERS, []),  # at the entrance of audio, one after another
    "padded_to_positions": (FLAG, False),  # each source is padded to the positions that there are
    # images, for a model that reads no tokens
    "image": (SIDES, None),
    "patch": (SIDES, None),
    "channels": (SIZE, 3),
    "special_tokens": (TOKENS, ()),
    "pooler_width": (SIZE, lambda f: f["hidden"]),
    "tied": (FLAG, True),
    "shared_token_table": (FLAG, True),  # encoder and decoder read one token table
    "head_bias": (FLAG, False),
    "transform_bias": (FLAG, True),  # of the stage ahead of a head's last
    "transform_activation": (ACTIVATION, lambda f: f["activation"]),
    "pooler_activation": (ACTIVATION, "tanh"),
    "labels": (LABELS, key("id2label", "num_labels", default=2, null=2)),
}
# The fields of a convolutional network, which a function of its family lays out.
NETWORK_FIELDS: dict[str, tuple[FieldType, Any]] = {
    "widths": (WIDTHS, REQUIRED),  # channels of the stages
    "depths": (WIDTHS, REQUIRED),  # blocks of the stages
    "image": (SIDES, (224, 224)),
    "channels": (SIZE, key("num_channels", default=3)),
    "activation": (ACTIVATION, REQUIRED),
    "layer_scale": (FRACTION, 0),  # what a learned factor a channel starts from; 0: none
    "response_norm": (FLAG, False),
    "labels": FIELDS["labels"],
}
# The core sizes, which every config must have, as a message names them.
CORE = {
    "hidden": "hidden size",
    "layers": "number of layers",
    "heads": "number of attention heads",
    "vocabulary": "vocabulary size",
    "widths": "channels of the stages",
    "depths": "blocks of the stages",
}
