"""The fields of the family-independent model description: type, default and config keys of each; their checks.

A family gives for each field the config keys that may hold it (`key("n_embd", "hidden_size")`: the first key that is
present), a constant of its code (`True`, `"rmsnorm"`), or a function of other fields. A field that the family does not
give takes its default in `FIELDS`. `check` then tests that the sizes of a config fit together.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from roofmodel.errors import ModelError
from roofmodel.models.architecture import Fact
from roofmodel.models.layers import ACTIVATIONS
from roofmodel.numbers.algebra import ceil_div

Fields = Mapping[str, Any]
"""The fields of one stack or network, by name."""
REQUIRED = object()


class Key(NamedTuple):
    """The config keys of a field and its default. If several keys are present, their values must agree."""

    names: tuple[str, ...]
    default: Any = REQUIRED
    null: Any = REQUIRED  # the meaning of null, if it is not the default
    read: Callable[[Any], Any] | None = None  # config value -> field value; raises ValueError with what it must be
    about: str = ""  # the key's meaning, for the documentation of models in YAML

    @property
    def takes_null(self) -> bool:
        """Whether the config class accepts null: its default is derived or None, or null has a meaning of its own."""
        return callable(self.default) or self.default is None or self.null is not REQUIRED


def key(
    *names: str,
    default: Any = REQUIRED,
    null: Any = REQUIRED,
    read: Callable[[Any], Any] | None = None,
    about: str = "",
) -> Key:
    """A field's key: `key("n_positions", "max_position_embeddings", default=1024)`.

    `default` is the default of the Hugging Face config class: a value, or a function of other fields. Without a
    default the key is required.
    """
    return Key(names, default, null, read, about)


class FieldType(NamedTuple):
    """The check of a value, and its description for an error message."""

    accepts: Callable[[Any], bool]
    expected: str


def _whole(low: int, high: int) -> FieldType:
    return FieldType(lambda v: type(v) is int and low <= v <= high, f"a whole number from {low} to {high}")


def _one_of(*words: str) -> FieldType:
    return FieldType(lambda v: v in words, f"{', '.join(words[:-1])} or {words[-1]}")


LAYER_TYPES = FULL, SLIDING = "full_attention", "sliding_attention"


def _expert_layers(f: Any) -> list[int]:
    """1 for each MoE layer: every `moe_every`-th layer after the first dense ones."""
    return [
        int(i >= f["dense_first"] and i not in f["dense_layers"] and (i + 1) % f["moe_every"] == 0)
        for i in range(f["layers"])
    ]


def _window_value_dim(f: Any) -> Any:
    return f["window_head_dim"] if f["value_dim"] == f["head_dim"] else f["value_dim"]


def _window_rotary_dim(f: Any) -> Any:
    """The same rotary fraction for heads of the sliding-window layers, which may have another size."""
    if f["window_head_dim"] == f["head_dim"]:
        return f["rotary_dim"]
    return int(f["window_head_dim"] * f["rotary"])


# The upper limits are far above any model; they catch typing errors.
MAX_LAYERS = 10_000
SIZE, COUNT, LAYERS, LENGTH = _whole(1, 2**24), _whole(0, 2**24), _whole(1, MAX_LAYERS), _whole(1, 2**40)
LENGTH_OR_DEFAULT = _whole(-1, 2**40)  # 0 and -1: the default of the model's code
WINDOW = _whole(0, 2**40)  # 0 and null: no window
FLAG = FieldType(lambda v: isinstance(v, bool), "true or false")
FRACTION = FieldType(lambda v: type(v) in (int, float) and 0 <= v <= 1, "a number from 0 to 1")
ACTIVATION = FieldType(lambda v: isinstance(v, str) and v in ACTIVATIONS, f"one of {', '.join(sorted(ACTIVATIONS))}")
LAYER_TYPE_LIST = FieldType(
    lambda v: isinstance(v, list) and all(t in LAYER_TYPES for t in v),
    f"a list of {' and '.join(map(repr, LAYER_TYPES))}, one per layer",
)
INDICES = FieldType(lambda v: isinstance(v, list) and all(map(COUNT.accepts, v)), "a list of layer indices, from 0")
MIXERS = FieldType(lambda v: isinstance(v, list), "a list of mixers, one per layer")
MATRICES = FieldType(lambda v: isinstance(v, tuple), "a tuple of input names per matrix")
LAYER_FLAGS = FieldType(
    lambda v: isinstance(v, list) and all(flag in (0, 1) for flag in v), "a list of 0 and 1, one per layer"
)
LAYER_FIELDS = FieldType(lambda v: isinstance(v, list), "a mapping of fields per layer")
LAYER_SIZES = FieldType(lambda v: isinstance(v, list) and all(map(COUNT.accepts, v)), "a list of sizes, one per layer")
LABELS = FieldType(
    lambda v: (isinstance(v, dict) and bool(v)) or SIZE.accepts(v),
    "a mapping of class index to name, or the number of classes",
)
NORM = _one_of("layernorm", "rmsnorm")
NORM_GAINS = _one_of("shared", "each", "queries", "none")
FILTERS = FieldType(lambda v: isinstance(v, list), "a list of filters: channels, taps, stride, activation")
DISENTANGLED_TERMS = FieldType(
    lambda v: isinstance(v, tuple) and all(term in ("c2p", "p2c") for term in v), "'c2p', 'p2c' or both, joined by '|'"
)
GATE = FieldType(lambda v: v in ("", "head", "element", "queries"), "'', 'head', 'element' or 'queries'")
ODD_OR_ZERO = FieldType(lambda v: COUNT.accepts(v) and (v == 0 or v % 2), "an odd number, or 0")
NUMBER_OR_AUTO = FieldType(lambda v: v == "auto" or SIZE.accepts(v), "a whole number, or 'auto'")
POSITION_KIND = _one_of("absolute", "rotary")
PROJECTED = _one_of("tokens", "sums", "norm")
MLP_KIND = _one_of("mlp", "linear", "channel_mix")
STREAMS_HEAD = _one_of("weights", "mean")
# Of a model described in YAML: the position encoding; the position of the norms.
POSITION_ENCODING = _one_of("rotary", "learned", "sinusoidal", "alibi", "relative", "none")
NORM_POSITION = _one_of("before", "after", "both", "sum")


def pair(sides: Any) -> tuple[int, int]:
    """Rows and columns of pixels from a config value such as `224` or `[224, 320]`."""
    numbers = tuple(sides) if isinstance(sides, list | tuple) else (sides, sides)
    if len(numbers) != 2 or not all(map(SIZE.accepts, numbers)):
        raise ValueError(SIDES.expected)
    return numbers


SIDES = FieldType(lambda v: isinstance(v, tuple), "pixels per side, or a list of two: rows and columns")
WIDTHS = FieldType(
    lambda v: isinstance(v, list) and bool(v) and all(map(SIZE.accepts, v)), "a list of sizes, one per stage"
)
TOKENS = FieldType(lambda v: isinstance(v, tuple), "names of learned tokens")

# Dropout probabilities of block outputs and of attention probabilities, by the key names of the config classes.
NO_DROPOUT: dict[str, Any] = dict(
    dropout=key(
        "hidden_dropout_prob", "hidden_dropout", "resid_pdrop", "resid_dropout", "residual_dropout", "dropout",
        "dropout_rate", default=0.0, null=0.0,
    ),
    attention_dropout=key(
        "attention_probs_dropout_prob", "attention_dropout", "attn_pdrop", "dropout_rate", default=0.0, null=0.0
    ),
)  # fmt: skip
DROPOUT_10_PERCENT = {field: source._replace(default=0.1) for field, source in NO_DROPOUT.items()}


def same_dropout(f: Any) -> Any:
    """The dropout probability of block outputs, for another place where the class uses it."""
    return f["dropout"]


# field -> type and default
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
    "keys_without_bias": (FLAG, False),  # no key bias, although queries and values have one
    "out_bias": (FLAG, False),
    "alibi": (FLAG, False),
    "relative_keys": (FLAG, False),
    "relative_bias": (FLAG, False),
    "relative_table_per_layer": (FLAG, False),  # each layer has a bias table of its own
    "disentangled": (DISENTANGLED_TERMS, ()),  # scores between content and relative position: c2p, p2c or both
    "disentangled_shared_projections": (FLAG, False),  # positions use the content's projection matrices
    "value_dim": (SIZE, lambda f: f["head_dim"]),
    "rotary": (FRACTION, 0),  # fraction of a head with rotary embedding
    "rotary_dim": (COUNT, lambda f: int(f["head_dim"] * f["rotary"])),
    "sinks": (FLAG, False),  # a learned logit per head that takes part in the softmax
    "computed_sinks": (FLAG, False),  # one that is computed from each token
    "attention_experts": (FLAG, False),  # a router selects query and output projections, as many as experts of an MLP
    "differential": (FLAG, False),  # the second half of the heads is subtracted from the first
    # sliding-window layers
    "window_heads": (SIZE, lambda f: f["heads"]),
    "window_kv_heads": (SIZE, lambda f: f["kv_heads"]),
    "window_head_dim": (SIZE, lambda f: f["head_dim"]),
    "window_value_dim": (SIZE, _window_value_dim),
    "window_latent": (COUNT, lambda f: f["latent"]),
    "window_query_latent": (SIZE, lambda f: f["query_latent"]),
    "window_nope_dim": (SIZE, lambda f: f["nope_dim"]),
    "window_rotary_dim": (COUNT, _window_rotary_dim),
    "window_sinks": (FLAG, lambda f: f["sinks"]),
    "window": (WINDOW, None),  # tokens that a sliding-window layer attends to
    "window_evicts": (FLAG, True),  # whether the cache of such a layer drops tokens outside the window
    "chunked": (FLAG, False),  # chunked attention instead: a token attends within its chunk of `window` tokens
    "layer_types": (LAYER_TYPE_LIST, lambda f: [SLIDING if f["window"] else FULL] * f["layers"]),
    "rotary_layers": (LAYER_FLAGS, None),  # the layers with rotary embedding, if not all
    "values_from_keys": (FLAG, False),  # in the full-attention layers
    "value_norm": (FLAG, False),  # has no gain
    "kv_taps": (COUNT, 0),  # tokens of the filters on keys and values
    "computed_taps": (FLAG, False),  # a part of them is computed from each token
    "window_computed_taps": (FLAG, lambda f: f["computed_taps"]),
    "separate_inputs": (FLAG, False),  # queries, keys and values have inputs of their own, except in a window
    "relative_logits_norm": (FLAG, False),
    "relative_logits_width": (COUNT, 0),  # numbers per head from which a term for each distance is computed; 0: none
    "relative_logits_rows": (COUNT, 0),  # distances with such a term
    "window_relative_logits_rows": (COUNT, lambda f: f["relative_logits_rows"]),
    "out_taps": (COUNT, 0),  # tokens of the filters on the outputs of blocks
    "attention_gate": (GATE, ""),  # on the heads' outputs, per head or per element; or computed by the query projection
    # this many last layers reuse keys and values of the last layer of their type that has its own
    "kv_shared_layers": (COUNT, 0),
    "kv_shared_mlp_width": (SIZE, lambda f: f["mlp_width"]),
    # multi-head latent attention
    "latent": (COUNT, 0),
    "query_latent": (SIZE, None),
    "nope_dim": (SIZE, lambda f: f["head_dim"] - f["rotary_dim"]),  # head elements without rotary embedding
    "latent_rotary": (FLAG, True),  # whether the key part shared by all heads has rotary embedding
    "latent_gate": (GATE, ""),  # on the heads' outputs, per head or per element
    "latent_sinks": (FLAG, False),
    "latent_query_scale": (FLAG, False),  # queries are scaled by position, with two learned numbers per head
    "latent_rotary_norm": (FLAG, False),  # on the key part that all heads share
    "latent_sources": (INDICES, None),  # per layer, the layer whose latents it uses, if not its own
    "index_topk": (SIZE, None),  # tokens that the indexer selects for each query
    "index_pool": (SIZE, None),  # tokens of a pool, if it selects pools
    "index_blocks": (SIZE, None),  # blocks of keys that the indexer selects for each query
    "index_block_size": (SIZE, 1),  # keys of a block
    "index_pools": (FLAG, False),  # its keys are means of complete blocks, and all heads have one selection
    "index_heads": (SIZE, 1),
    "index_head_dim": (SIZE, 1),
    "index_layers": (LAYER_FLAGS, None),  # the layers with their own indexer, if not all
    # attention to a window and to compressed entries (DeepSeek-V4)
    "compressed_ratio": (LAYER_SIZES, None),  # tokens of an entry, per layer; 0: only the window
    "compressed_overlaps": (LAYER_FLAGS, None),  # the layers whose entries overlap and that have an indexer
    "compressed_out_groups": (SIZE, 1),  # groups of the output projection
    "compressed_out_rank": (SIZE, 1),  # outputs of a group
    # hyper-connections
    "streams": (COUNT, 0),  # residual streams; 0: a plain residual connection
    "streams_sinkhorn": (COUNT, 0),  # iterations for the matrix that mixes them; 0: no mixing
    "streams_rank": (COUNT, 0),  # of the matrices that gate each element of the streams; 0: a weight per stream
    "ngram_rows": (COUNT, 0),  # of the table of hashed n-grams of a layer; 0: none
    "ngram_tables": (COUNT, 0),  # hashes of a token
    "ngram_width": (COUNT, 0),  # of a token's rows together
    "ngram_taps": (COUNT, 0),  # of the filter after them
    "ngram_reach": (COUNT, 0),  # earlier tokens that it covers
    "streams_head": (STREAMS_HEAD, "weights"),
    "altup_streams": (COUNT, 0),  # residual streams of which a layer computes one; 0: a plain residual connection
    "altup_scale": (FLAG, True),  # a learned factor per channel on what the layer's input reads
    "layers_per_sum": (COUNT, 0),  # of attention residuals; 0: a plain residual connection
    "normed_sums": (FLAG, False),  # blocks read the mean of normed sums
    # norms
    "norm": (NORM, "layernorm"),
    "norm_affine": (FLAG, True),
    "norm_bias": (FLAG, lambda f: f["norm_affine"] and f["norm"] == "layernorm"),
    "pre_norm": (FLAG, True),  # on the input of a block
    "first_norm": (FLAG, lambda f: f["pre_norm"]),  # on the input of the first block
    "out_norm": (FLAG, False),  # on the output of a block, before the residual add
    "mixer_out_norm_gain": (FLAG, lambda f: f["norm_affine"]),
    "gated_sum": (FLAG, False),  # learned weights per channel in the residual sum
    "norm_gate_rank": (COUNT, 0),  # of the gate on the normed input of attention and experts; 0: none
    "expert_out_norm": (FLAG, False),  # on the output of the experts, in addition
    "inner_norm": (FLAG, False),  # within attention and MLP, before the output projection
    "heads_norm": (FLAG, False),  # on the output of each head, without gain
    "sum_norm": (FLAG, lambda f: not (f["pre_norm"] or f["out_norm"])),  # on the residual sum
    "post_norm_layers": (LAYER_FLAGS, None),  # the layers with the norm on the block output instead, if any
    "final_norm": (FLAG, lambda f: not f["sum_norm"]),
    "qk_norm": (FLAG, False),  # on queries and keys per head
    "qk_norm_gains": (NORM_GAINS, "shared"),
    "qk_norm_rotary_only": (FLAG, False),  # only in layers with rotary embedding
    "qk_norm_bias": (FLAG, lambda f: f["norm_bias"]),
    # state spaces and other mixers than attention
    "mixers": (MIXERS, lambda f: ["attention"] * f["layers"]),  # per layer; `a+b`: both in parallel; empty: none
    "inner_width": (SIZE, lambda f: 2 * f["hidden"]),  # channels
    "state": (SIZE, 16),  # state elements per channel
    "filter": (SIZE, 4),  # width of the causal convolution in tokens
    "filter_bias": (FLAG, True),
    "inner_bias": (FLAG, False),
    "inner_out_bias": (FLAG, lambda f: f["inner_bias"]),
    "step_rank": (SIZE, lambda f: ceil_div(f["hidden"], 16)),
    "selection_norm": (FLAG, False),  # on the time step, B and C
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
    "linear_projections": (MATRICES, ()),  # which inputs share one projection matrix
    "linear_gate": (ACTIVATION, "silu"),
    "linear_decay_per_channel": (FLAG, False),  # a decay per key element, not per head
    "linear_sigmoid_decay": (FLAG, False),  # sigmoid instead of softplus
    "linear_gate_rank": (SIZE, None),  # rank of the decay and gate projections, if they are low-rank
    "linear_full_gate": (FLAG, False),  # the gate projection is a full matrix in any case
    # blocks
    "layer_fields": (LAYER_FIELDS, None),  # per layer, the fields whose values differ there
    "mlp": (FLAG, True),
    "mlp_kind": (MLP_KIND, "mlp"),  # `linear`: one square matrix in place of an MLP
    "parallel": (FLAG, False),  # attention and MLP run in parallel
    "parallel_norms": (SIZE, 2),  # 2: a norm each; 1: one norm for both
    "mlp_width": (SIZE, lambda f: 4 * f["hidden"]),
    "gated": (FLAG, False),
    "fused_gate": (FLAG, False),  # gate and up projections are one matrix
    "mlp_bias": (FLAG, False),
    "sparse_gate": (FLAG, False),  # the MLP drops gates below a threshold
    "laurel_rank": (SIZE, 1),
    "mlp_scale": (FLAG, False),  # a learned factor for the output of a dense MLP
    "activation": (ACTIVATION, REQUIRED),
    "dropout": (FRACTION, NO_DROPOUT["dropout"]),
    "attention_dropout": (FRACTION, NO_DROPOUT["attention_dropout"]),
    "attention_output_dropout": (FRACTION, lambda f: f["dropout"]),
    "embedding_dropout": (FRACTION, 0.0),
    "activation_dropout": (FRACTION, 0.0),  # inside the MLP
    "final_dropout": (FRACTION, 0.0),  # after the final norm
    "conv_kernel": (ODD_OR_ZERO, 0),  # width of the token convolution after the first layer; 0: none
    "conv_groups": (SIZE, 1),
    "conv_activation": (ACTIVATION, "tanh"),
    # MoE; with 0 experts all layers are dense
    "experts": (COUNT, 0),
    "experts_active": (SIZE, 1),
    "expert_capacity": (COUNT, 0),  # tokens of a sequence that an expert takes; 0: all
    "zero_experts": (COUNT, 0),  # further experts that compute nothing
    # the experts of a group of layers are beside the MLP of the first; their output is added after the last
    "shortcut_experts": (FLAG, False),
    "expert_groups": (SIZE, None),
    "experts_active_groups": (SIZE, None),  # groups of which a token has experts; None: all
    "expert_width": (SIZE, lambda f: f["mlp_width"]),
    "expert_bias": (FLAG, False),
    "expert_latent": (SIZE, None),  # their input and output width, with projections before and after all experts
    "expert_latent_bias": (FLAG, False),
    "expert_latent_input_norm": (FLAG, False),  # on the experts' input, after the projection
    "expert_latent_norm": (FLAG, False),  # on the experts' output, before the projection
    "expert_norm": (FLAG, False),  # on the output of each expert
    "expert_sum_bias": (FLAG, False),  # on their weighted sum
    "fused_experts": (FLAG, lambda f: f["fused_gate"]),  # gate and up of an expert are one matrix
    "router_bias": (FLAG, False),
    "correction": (FLAG, False),  # a learned bias per expert is added for the top-k selection
    "shared_width": (COUNT, 0),  # width of the shared experts; 0: none
    "shared_gate": (FLAG, False),
    "weighted_shared": (COUNT, 0),  # shared experts that the router weights, too
    "router_scale": (FLAG, False),  # a learned factor for all its weights
    "dense_first": (COUNT, 0),  # the first layers that are dense
    "moe_every": (SIZE, 1),  # the last of every `moe_every` layers has experts
    "dense_layers": (INDICES, []),
    # layers that share parameters
    "parameter_groups": (SIZE, lambda f: f["layers"]),  # groups of layers; all layers of a group share parameters
    "layers_per_group": (SIZE, 1),  # layers with their own parameters within a group
    "unused_parameters": (COUNT, 0),  # parameters of the class that its code never uses
    "expert_layers": (LAYER_FLAGS, lambda f: _expert_layers(f)),  # the layers with experts
    # a dense MLP in parallel with the experts, with norms on each and on the router
    "mlp_with_experts": (FLAG, False),
    # embedding and head
    "embedding_width": (SIZE, lambda f: f["hidden"]),
    "embedding_projected": (FLAG, lambda f: f["embedding_width"] != f["hidden"]),
    "embedding_projected_after": (PROJECTED, "norm"),  # the stages that still have the embedding width
    "embedding_projected_bias": (FLAG, True),
    "embedding_projected_back": (FLAG, False),  # projected back after the last layer
    "embedding_norm": (FLAG, False),
    "embedding_norm_gain": (FLAG, lambda f: f["norm_affine"]),
    "per_layer_input": (COUNT, 0),  # width of the per-layer embedding; 0: none
    "per_layer_vocabulary": (COUNT, lambda f: f["vocabulary"]),
    "positions": (LENGTH, None),  # maximum positions in the config
    "position_table": (FLAG, False),  # whether positions are rows of a learned table
    "sinusoidal_positions": (FLAG, False),  # rows of sines and cosines; no parameters
    "position_extra": (COUNT, 0),  # rows of that table beyond `positions`
    "padding_position": (COUNT, None),  # positions up to and including this one are reserved for padding
    "type_rows": (COUNT, 0),
    "task_rows": (COUNT, 0),
    "relative_rows": (COUNT, 0),  # rows of the relative-position table: a bias per head each, or a vector
    "relative_norm": (FLAG, False),  # on the relative-position vectors
    "frame_convolutions": (FILTERS, []),  # convolutions over audio frames, in order
    "padded_to_positions": (FLAG, False),  # each source is padded to all positions
    # images, for vision models
    "image": (SIDES, None),
    "patch": (SIDES, None),
    "patch_bias": (FLAG, True),
    "patch_norm": (FLAG, False),  # on the patches with their positions
    "image_positions": (FLAG, True),  # a learned table of positions
    "image_window": (COUNT, 0),  # pixels per side of the windows of sliding-window layers; 0: none
    "block_scale": (FLAG, False),  # a learned factor per channel on the output of a block
    "channels": (SIZE, 3),
    "special_tokens": (TOKENS, ()),
    "pooler_width": (SIZE, lambda f: f["hidden"]),
    "tied": (FLAG, True),
    "shared_token_table": (FLAG, True),  # encoder and decoder share one token table
    "head_bias": (FLAG, False),
    "transform_bias": (FLAG, True),  # of the stage before the head's last stage
    "transform_activation": (ACTIVATION, lambda f: f["activation"]),
    "pooler_activation": (ACTIVATION, "tanh"),
    "labels": (LABELS, key("id2label", "num_labels", default=2, null=2)),
}
ACTIVATION_FIELDS = {name for name, (kind, _) in FIELDS.items() if kind is ACTIVATION}
# The fields of a convolutional network; a function of the family builds its stages from them.
NETWORK_FIELDS: dict[str, tuple[FieldType, Any]] = {
    "widths": (WIDTHS, REQUIRED),  # channels per stage
    "depths": (WIDTHS, REQUIRED),  # blocks per stage
    "image": (SIDES, (224, 224)),
    "channels": (SIZE, key("num_channels", default=3)),
    "activation": (ACTIVATION, REQUIRED),
    "layer_scale": (FRACTION, 0),  # initial value of the learned factor per channel; 0: none
    "response_norm": (FLAG, False),
    "labels": FIELDS["labels"],
}
# The core sizes, which every config must have, with their names in messages.
CORE = {
    "hidden": "hidden size",
    "layers": "number of layers",
    "heads": "number of attention heads",
    "vocabulary": "vocabulary size",
    "widths": "channels of the stages",
    "depths": "blocks of the stages",
}


class ConfigLocation(NamedTuple):
    """A config file in messages, with the line of each key if known."""

    file: str
    lines: Mapping[str, int] = {}

    def __str__(self) -> str:
        return self.file

    def at(self, *keys: str | None) -> str:
        """The file and line of the first of these keys that has one (or whose section has one): `my.yaml:12`."""
        places = [place for key in keys if key for place in (key, key.rpartition(".")[0])]
        line = next((self.lines[place] for place in places if place in self.lines), None)
        return self.file if line is None else f"{self.file}:{line}"


MAX_DEPTH = 1000  # blocks of a convolutional network; published ones have at most 50


def check(fields: Fields, facts: Mapping[str, Fact], where: ConfigLocation) -> None:
    """Raise ModelError for sizes of a transformer that contradict each other."""
    checked = _CheckedFields(fields, facts, where)
    _check_heads(checked)
    _check_layers(checked)
    _check_latent_sources(checked)
    _check_experts_and_positions(checked)
    _check_mixers(checked)


class _CheckedFields(NamedTuple):
    """The fields of a config, and their config keys and lines for messages."""

    fields: Fields
    facts: Mapping[str, Fact]
    where: ConfigLocation

    def named(self, field: str) -> str:
        """The config key of a field and its value: `num_attention_heads 25`."""
        return f"{self.facts[field].key or field} {self.fields[field]}"

    def at(self, *names: str) -> str:
        """The file, and the line of the first of these fields that has one."""
        return self.where.at(*(self.facts[name].key for name in names))


def _check_heads(checked: _CheckedFields) -> None:
    """Heads divide the hidden size, and key-value heads divide the query heads."""
    fields, facts, _ = checked
    named, at = checked.named, checked.at
    derived = fields["head_dim"] == fields["hidden"] // fields["heads"]
    if derived and (facts["head_dim"].key is None or facts["head_dim"].assumed) and fields["hidden"] % fields["heads"]:
        hint = " or set head_dim" if facts["head_dim"].key else ""
        raise ModelError(
            f"{at('heads')}: {named('hidden')} is not divisible by {named('heads')}; "
            f"use a number of heads that divides it{hint}"
        )
    for heads, kv_heads in (("heads", "kv_heads"), ("window_heads", "window_kv_heads")):
        if fields[heads] % fields[kv_heads]:
            raise ModelError(
                f"{at(kv_heads, heads)}: {named(heads)} is not divisible by {named(kv_heads)}; "
                "each key-value head must serve the same number of query heads"
            )
    if fields["latent"] and fields["latent_rotary"] and not fields["rotary_dim"]:
        raise ModelError(
            f"{at('rotary_dim')}: {facts['rotary_dim'].key!r} is 0; it must be a whole number from 1: the size of the "
            "key part that all heads share"
        )


def _check_layers(checked: _CheckedFields) -> None:
    """Groups of layers have a layer each, and lists have one entry per layer."""
    fields, facts, where = checked
    named, at = checked.named, checked.at
    before_sharing = fields["layers"] - fields["kv_shared_layers"]
    types = fields["layer_types"]
    if fields["kv_shared_layers"] and set(types[: max(before_sharing, 0)]) != set(types):
        raise ModelError(
            f"{at('kv_shared_layers')}: {named('kv_shared_layers')} leaves {max(before_sharing, 0)} layers with "
            "their own keys and values; these must include every layer type"
        )
    if fields["layers"] * fields["layers_per_group"] > MAX_LAYERS:
        raise ModelError(
            f"{at('layers_per_group')}: {named('layers_per_group')} × {named('layers')} are more than {MAX_LAYERS} "
            "layers; use fewer"
        )
    if fields["parameter_groups"] > fields["layers"]:
        raise ModelError(
            f"{where}: {named('parameter_groups')} parameter groups are more than {named('layers')}; "
            "use at most one group per layer"
        )
    for field in (
        "mixers", "layer_fields", "layer_types", "rotary_layers", "index_layers", "expert_layers", "post_norm_layers",
        "compressed_ratio", "compressed_overlaps", "latent_sources",
    ):  # fmt: skip
        value = fields[field]
        if value is not None and len(value) != fields["layers"]:
            count = f"{facts[field].key or field!r} has {len(value)} entries"
            raise ModelError(f"{at(field)}: {count}, but {named('layers')}; give one entry per layer")


def _check_latent_sources(checked: _CheckedFields) -> None:
    """A layer uses the latents of itself or of an earlier layer, which has its own and the same kind of positions."""
    fields, rotary = checked.fields, checked.fields["rotary_layers"]
    for layer, source in enumerate(fields["latent_sources"] or ()):
        at = f"{checked.at('latent_sources')}: {checked.facts['latent_sources'].key!r}: layer {layer}"
        if source > layer or fields["latent_sources"][source] != source:
            raise ModelError(
                f"{at} has the source {source}; it must be {layer} or an earlier layer that is its own source"
            )
        if rotary and rotary[source] != rotary[layer]:
            raise ModelError(f"{at} has the source {source}; only one of the two has rotary embedding")


def _check_experts_and_positions(checked: _CheckedFields) -> None:
    """A token has at most all experts, and a position table has a number of rows."""
    fields, facts, _ = checked
    if fields["experts"] and fields["experts_active"] > fields["experts"] + fields["zero_experts"]:
        raise ModelError(
            f"{checked.at('experts_active', 'experts')}: {checked.named('experts_active')} cannot be more than "
            f"{checked.named('experts')}"
        )
    if (fields["experts_active_groups"] or 0) > (fields["expert_groups"] or fields["experts_active_groups"] or 0):
        raise ModelError(
            f"{checked.at('experts_active_groups')}: {checked.named('experts_active_groups')} cannot be more than "
            f"{checked.named('expert_groups')}"
        )
    if fields["position_table"] and fields["positions"] is None:
        raise ModelError(
            f"{checked.at('positions')}: lacks {facts['positions'].key!r}, the number of rows of the position table"
        )


def _check_mixers(checked: _CheckedFields) -> None:
    """Heads of state spaces and of linear attention divide their channels and groups."""
    fields, _, where = checked
    named, at = checked.named, checked.at
    if any("mamba2" in mixer for mixer in fields["mixers"]):
        if fields["inner_heads"] * fields["inner_head_dim"] != fields["inner_width"]:
            raise ModelError(
                f"{where}: {named('inner_heads')} times {named('inner_head_dim')} is not the "
                f"{fields['inner_width']} channels of the state space; the heads must divide these channels"
            )
        if fields["inner_heads"] % fields["inner_groups"]:
            raise ModelError(
                f"{where}: {named('inner_heads')} is not divisible by {named('inner_groups')}; "
                "each group must have the same number of heads"
            )
    if "recurrence" in fields["mixers"] and fields["inner_width"] % fields["inner_heads"]:
        raise ModelError(
            f"{at('inner_width', 'heads')}: {named('inner_width')} is not divisible by {named('heads')}; "
            "each head must have the same number of channels"
        )
    if fields["linear_value_heads"] % fields["linear_heads"]:
        raise ModelError(
            f"{at('linear_value_heads', 'linear_heads')}: {named('linear_value_heads')} is not divisible by "
            f"{named('linear_heads')}; each key head must serve the same number of value heads"
        )


def check_stages(fields: Fields, facts: Mapping[str, Fact], where: ConfigLocation) -> None:
    """Raise ModelError for a network whose lists do not have one entry per stage, or that is too deep or too narrow."""
    counts = {facts[name].key: len(fields[name]) for name in ("widths", "depths")}
    if "stages" in fields:
        counts[facts["stages"].key] = fields["stages"]
    if len(set(counts.values())) > 1:
        lengths = ", ".join(f"{key!r} of {count}" for key, count in counts.items())
        raise ModelError(f"{where}: {lengths} stages; all lists must have one entry per stage")
    if sum(fields["depths"]) > MAX_DEPTH:
        key = facts["depths"].key or "depths"
        raise ModelError(
            f"{where.at(key)}: {key!r} sums to {sum(fields['depths'])} blocks; at most {MAX_DEPTH} are supported"
        )
    if fields.get("block") == "bottleneck" and min(fields["widths"]) < 4:
        key = facts["widths"].key or "widths"
        raise ModelError(
            f"{where.at(key)}: {key!r} contains {min(fields['widths'])}; a bottleneck block computes with a quarter of "
            "the channels, so each stage needs at least 4"
        )
