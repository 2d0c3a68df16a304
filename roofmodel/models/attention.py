"""Attention blocks of a layer: multi-head, cross and multi-head latent attention (MLA).

Sizes are elements: ints, or SymPy symbols.
"""

from typing import Literal, NamedTuple

from roofmodel.models.norms_and_activations import HeadNorm, Norm
from roofmodel.numbers.algebra import Number


class DisentangledAttention(NamedTuple):
    """Scores between content and relative positions, added to the content scores (DeBERTa, arXiv 2006.03654, eq. 4)."""

    rows: Number  # of the table of relative positions
    content_to_position: bool  # queries times the keys of positions
    position_to_content: bool  # keys times the queries of positions
    shared_projections: bool  # positions use the query and key matrices of the content


class BlockSelection(NamedTuple):
    """Block-sparse attention: an indexer selects, for each query, `kept` blocks of `size` consecutive keys.

    The block of the query is always one of them. The `heads` of the indexer have `head_dim` elements and share one key
    per token. Each selects for its own group of query heads.
    """

    heads: Number
    head_dim: Number
    size: Number
    kept: Number
    norm: Norm  # of the indexer's queries and keys


class Attention(NamedTuple):
    """Multi-head attention: `heads` query heads share `kv_heads` key-value heads of `head_dim`."""

    heads: Number
    kv_heads: Number
    head_dim: Number
    value_dim: Number | None = None  # head size of the values, if it differs from `head_dim`
    fused: bool = False  # one matrix projects queries, keys and values
    qkv_bias: bool = False
    keys_without_bias: bool = False  # `qkv_bias` holds for queries and values only
    out_bias: bool = False
    rotary_dim: Number = 0  # elements of a head with rotary embedding
    alibi: bool = False  # a bias per head and key is added to the scores
    relative_bias: bool = False  # a bias per head, query and key is added to the scores, from one table for all layers
    relative_rows: Number = 0  # rows of that table, if the layer has its own
    window: Number | None = None  # each token attends to the last `window` tokens, itself included; encoders: both ways
    window_evicts: bool = True  # the KV cache drops tokens outside the window
    chunked: bool = False  # each token attends within its chunk of `window` tokens, instead of a sliding window
    norm: HeadNorm | None = None  # on queries and keys
    sinks: bool = False  # a learned logit per head is part of the softmax
    differential: bool = False  # halves of the heads are subtracted, with a learned factor (arXiv 2410.05258)
    disentangled: DisentangledAttention | None = None
    values_from_keys: bool = False  # values are the keys before norm and rotary embedding
    value_norm: Norm | None = None
    # scales the output of a head by one number, or by one per element; "queries": the query matrix computes the gate
    gate: Literal["", "head", "element", "queries"] = ""
    kv_sharing: Literal["", "source", "reuses"] = ""  # later layers reuse its keys and values; it reuses earlier ones
    selection: BlockSelection | None = None  # each query attends to selected blocks of keys

    @property
    def cached(self) -> tuple[Number, ...]:
        """Elements per token in the KV cache: keys, values, the indexer's key. Empty if it reuses another layer's."""
        if self.kv_sharing == "reuses":
            return ()
        return *self.keys_and_values, *((self.selection.head_dim,) if self.selection else ())

    @property
    def keys_and_values(self) -> tuple[Number, Number]:
        """Elements per token of the keys and of the values."""
        return self.kv_heads * self.head_dim, self.kv_heads * (self.value_dim or self.head_dim)


class CrossAttention(NamedTuple):
    """Attention of a decoder to its source: keys and values are computed from the encoder's output."""

    attention: Attention

    @property
    def cached(self) -> tuple[Number, ...]:
        """Elements per source token in the KV cache: keys, values."""
        return self.attention.cached


class Indexer(NamedTuple):
    """Small attention heads that select the tokens each query attends to. All heads share one key per token."""

    heads: Number
    head_dim: Number


class LatentAttention(NamedTuple):
    """Multi-head latent attention: keys and values of all heads come from one latent vector per token.

    A head's queries and keys have `nope_dim` elements from the latent, without rotary embedding, and `rotary_dim`
    more. All heads share the keys of the latter.
    """

    heads: Number
    latent: Number
    nope_dim: Number
    rotary_dim: Number
    value_dim: Number
    norm: Norm  # of the latents
    query_latent: Number | None = None  # size of the latent of the queries, if they have one
    rotary: bool = True  # whether rotary embedding is applied to the `rotary_dim` elements
    gated: bool = False  # a sigmoid per head scales its output
    down_bias: bool = False  # on the projections to the latents
    out_bias: bool = False
    index_topk: Number | None = None  # each query attends to at most this many tokens, selected by an indexer
    indexer: Indexer | None = None  # None: the layer attends to all tokens, or to those selected by the layer before

    @property
    def cached(self) -> tuple[Number, ...]:
        """Elements per token in the KV cache: the latent, the shared rotary key, the indexer's key."""
        return self.latent, self.rotary_dim, *((self.indexer.head_dim,) if self.indexer else ())
