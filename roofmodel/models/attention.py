"""The attention blocks of a layer: multi-head, cross and multi-head latent attention (MLA).

Sizes are elements: ints, or SymPy symbols.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from roofmodel.algebra import Number
from roofmodel.models.norms_and_activations import HeadNorm, Norm


class Disentangled(NamedTuple):
    """Scores between content and relative position beside those of contents (DeBERTa, arXiv 2006.03654, eq. 4)."""

    rows: Number  # of the table of relative positions
    to_position: bool  # queries times the keys of positions
    to_content: bool  # keys times the queries of positions
    shared: bool  # positions go through the matrices of the content


class Attention(NamedTuple):
    """Multi-head attention: `heads` query heads share `kv_heads` key-value heads of `head_dim`."""

    heads: Number
    kv_heads: Number
    head_dim: Number
    value_dim: Number | None = None  # of a head's values, where it is not that of its queries and keys
    fused: bool = False  # one matrix projects queries, keys and values
    qkv_bias: bool = False
    bare_keys: bool = False  # keys have no bias although queries and values have one
    out_bias: bool = False
    rotary_dim: Number = 0  # elements of a head that rotary embedding turns; 0: none
    alibi: bool = False  # a bias per head and key is added to the scores
    relative_bias: bool = False  # so is a bias per head, query and key, looked up once for all layers
    relative_rows: Number = 0  # or in a table of the layer's own, with so many rows
    window: Number | None = None  # each token attends to the last `window` tokens, itself included; encoders: ahead too
    window_evicts: bool = True  # the cache forgets what the window has left behind
    chunked: bool = False  # the window does not slide: a token sees those of its own chunk of `window` tokens
    norm: HeadNorm | None = None
    sinks: bool = False  # a learned logit per head joins the softmax
    disentangled: Disentangled | None = None
    values_of_keys: bool = False  # values are the keys ahead of norm and rotation
    value_norm: Norm | None = None
    # a number for each head, or for each of its elements, scales what it gives; that may be of the matrix of queries
    gate: Literal["", "head", "element", "queries"] = ""
    sharing: Literal["", "lends", "borrows"] = ""  # later layers attend to its keys and values; or it to an earlier's

    @property
    def cached(self) -> tuple[Number, ...]:
        """What a token leaves in the KV cache, by tensor: keys and values; nothing where they are another layer's."""
        if self.sharing == "borrows":
            return ()
        return self.kv_heads * self.head_dim, self.kv_heads * (self.value_dim or self.head_dim)


class CrossAttention(NamedTuple):
    """Attention of a decoder to its source: keys and values come from what the encoder gives."""

    attention: Attention

    @property
    def cached(self) -> tuple[Number, ...]:
        """What a token of the source leaves in the KV cache, by tensor: keys and values."""
        return self.attention.cached


class Indexer(NamedTuple):
    """Small heads that say which tokens a query attends to. All of them read the same key of a token."""

    heads: Number
    head_dim: Number


class LatentAttention(NamedTuple):
    """Keys and values of all heads from one latent a token, and one rotary key that all heads share.

    A head's queries and keys have `unturned` elements from the latents and `rotary_dim` that turn.
    """

    heads: Number
    latent: Number
    unturned: Number
    rotary_dim: Number
    value_dim: Number
    norm: Norm  # of the latents
    query_latent: Number | None = None  # queries too go through a latent
    turns: bool = True  # or the key that all heads share does not turn either
    gated: bool = False  # a sigmoid for each head, on what it gives
    down_bias: bool = False  # on the way down to the latents
    out_bias: bool = False
    keeps: Number | None = None  # a query attends to so many tokens at most, those that an indexer chose
    indexer: Indexer | None = None  # None: all tokens, or those that the layer before has chosen

    @property
    def cached(self) -> tuple[Number, ...]:
        """What a token leaves in the KV cache, by tensor: the latent, the rotary key, the indexer's key."""
        return self.latent, self.rotary_dim, *((self.indexer.head_dim,) if self.indexer else ())
