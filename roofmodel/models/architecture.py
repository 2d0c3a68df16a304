"""The neutral description of a model: what its shapes and switches are, whoever named them.

Families translate a config into it; counting reads nothing else. Sizes are elements, and may be
ints or SymPy symbols.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from roofmodel.algebra import Number


class Norm(NamedTuple):
    """A layer norm or RMS norm over the width of what it reads, with or without gain and bias."""

    kind: Literal["layernorm", "rmsnorm"]
    gain: bool = True
    bias: bool = True


class HeadNorm(NamedTuple):
    """The norm of queries and keys. `gains`: one row that all heads share, or a row for each head."""

    norm: Norm
    gains: Literal["shared", "each"] = "shared"


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
    window_evicts: bool = True  # the cache forgets what the window has left behind
    norm: HeadNorm | None = None
    sinks: bool = False  # a learned logit per head joins the softmax


class MLP(NamedTuple):
    """Two linear operators around an activation; three where a gate multiplies it, or two of them in one matrix."""

    width: Number
    activation: str
    gated: bool = False
    fused: bool = False  # one matrix holds gate and up
    bias: bool = False


class MoE(NamedTuple):
    """A router sends each token to `active` of `experts` MLPs; a shared one, if any, takes every token."""

    experts: Number
    active: Number
    expert: MLP
    shared: MLP | None = None
    shared_gate: bool = False  # a scalar per token weighs the shared one
    router_bias: bool = False


Part = Attention | MLP | MoE


class Branch(NamedTuple):
    """A part with the norms around it."""

    part: Part
    before: Norm | None  # on what it reads; without one it reads what the branch beside it reads
    after: Norm | None = None  # on what it gives, ahead of the sum


class Sublayer(NamedTuple):
    """Branches that read the same input, side by side, and the sum that joins them to it."""

    branches: tuple[Branch, ...]
    after: Norm | None = None  # on the sum


Layer = tuple[Sublayer, ...]
"""Sublayers, one after another: attention and MLP in two of them, or side by side in one."""


class Embedding(NamedTuple):
    """The tables at the entrance. `width` is the row of the token table (the hidden size, mostly)."""

    vocabulary: Number
    width: Number
    position_rows: Number = 0  # 0: no position table
    fixed_positions: bool = False  # rows of sines and cosines, not learned
    type_rows: Number = 0
    norm: Norm | None = None


class Dense(NamedTuple):
    """One stage of a head: a linear operator, then maybe an activation and a norm.

    `out` says how wide it is, `rows` which positions it computes: every token, those whose logits
    are asked for, or only the first token of a sequence. `tied` reuses the token table as matrix.
    """

    name: str
    out: Literal["hidden", "vocabulary", "classes"]
    rows: Literal["tokens", "logits", "first"]
    bias: bool | None = True  # None: as the config's head has it
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


class Stack(NamedTuple):
    """Layers that follow one another, with what stands before and after them."""

    hidden: Number
    causal: bool  # each token sees itself and those before it
    embedding: Embedding
    layers: tuple[Layer, ...]
    norm: Norm  # the kind of norm that heads use
    final_norm: Norm | None

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part of every layer."""
        return tuple(branch.part for layer in self.layers for sub in layer for branch in sub.branches)


@dataclass(frozen=True)
class Architecture:
    """A model, ready to be counted."""

    name: str
    model_type: str
    stack: Stack
    head: Head
    tied: bool  # the head's matrix is the token table
    max_tokens: int | None  # the longest sequence its positions allow; None: no limit (ALiBi)
    facts: dict[str, Fact]  # field of families.FIELDS -> where it came from
    notes: tuple[str, ...] = ()

    @property
    def causal(self) -> bool:
        """A decoder, with prefill and decode; otherwise an encoder, with one forward pass."""
        return self.stack.causal
