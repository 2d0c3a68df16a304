"""The neutral description of a model: what its shapes and switches are, whoever named them.

Families translate a config into it; counting reads nothing else. Sizes are elements, and may be
ints or SymPy symbols.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from roofmodel.algebra import Number


class Attention(NamedTuple):
    """Multi-head attention: `heads` query heads share `kv_heads` key-value heads of `head_dim`."""

    heads: Number
    kv_heads: Number
    head_dim: Number
    fused: bool = False  # one matrix projects queries, keys and values
    qkv_bias: bool = False
    out_bias: bool = False
    rotary_dim: Number = 0  # elements of a head that rotary embedding turns; 0: none
    alibi: bool = False  # a bias per head and key is added to the scores
    window: Number | None = None  # each token attends to the last `window` tokens, itself included


class MLP(NamedTuple):
    """Two linear operators around an activation; three where a gate multiplies it."""

    width: Number
    activation: str
    gated: bool = False
    bias: bool = False


class Norm(NamedTuple):
    """A layer norm or RMS norm over the hidden size, with or without gain and bias."""

    kind: Literal["layernorm", "rmsnorm"]
    gain: bool = True
    bias: bool = True


class Layer(NamedTuple):
    """A transformer layer. `post_norm`: norms follow the residual sums instead of preceding the blocks.

    `parallel`: attention and MLP both read the layer's input, and one sum joins them.
    """

    attention: Attention
    mlp: MLP
    norm: Norm
    post_norm: bool = False
    parallel: bool = False


class Embedding(NamedTuple):
    """The tables at the entrance. `width` is the row of the token table (the hidden size, mostly)."""

    vocabulary: Number
    width: Number
    position_rows: Number = 0  # 0: no learned position table
    type_rows: Number = 0
    norm: bool = False


class Dense(NamedTuple):
    """One stage of a head: a linear operator, then maybe an activation and a norm.

    `out` says how wide it is, `rows` which positions it computes: every token, those whose logits
    are asked for, or only the first token of a sequence. `tied` reuses the token table as matrix.
    """

    name: str
    out: Literal["hidden", "vocabulary", "classes"]
    rows: Literal["tokens", "logits", "first"]
    bias: bool = True
    activation: str | None = None
    norm: bool = False
    tied: bool = False  # where the config ties
    classes: int | None = None  # None: as many as the config has labels
    from_layers: bool = False  # reads what the layers give, not the stage before
    spare_bias: bool = False  # untied, the reference code holds a second bias that it never reads


class Head(NamedTuple):
    """What follows the last layer, by the name of the reference class: `GPT2LMHeadModel`."""

    name: str
    stages: tuple[Dense, ...]


class Fact(NamedTuple):
    """Where a field came from: its value and its config key.

    `assumed`: the config does not set the key, or sets it to null, and the class's default stood in.
    """

    value: object
    key: str | None  # None: built into the family's code
    assumed: bool = False


@dataclass(frozen=True)
class Architecture:
    """A model, ready to be counted."""

    name: str
    model_type: str
    causal: bool  # a decoder, with prefill and decode; otherwise an encoder, with one forward pass
    hidden: Number
    embedding: Embedding
    layers: tuple[Layer, ...]
    final_norm: bool
    head: Head
    tied: bool  # the head's matrix is the token table
    max_tokens: int | None  # the longest sequence its positions allow; None: no limit (ALiBi)
    facts: dict[str, Fact]  # field of families.FIELDS -> where it came from
    notes: tuple[str, ...] = ()
