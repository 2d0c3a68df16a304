"""The layers of a transformer as data: norms, embeddings, token mixers, MLP and MoE blocks, and how a layer joins them.

Sizes are elements: ints, or SymPy symbols.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from roofmodel.numbers.algebra import Number, ceil_div, mean, minimum

if TYPE_CHECKING:
    from roofmodel.models.recurrent_layers import (
        ChannelMix,
        DeltaRule,
        GatedRecurrence,
        Lightning,
        Mamba2,
        MatrixMemory,
        ShortConvolution,
        TimeMix,
    )

    Recurrent = (
        ChannelMix | DeltaRule | GatedRecurrence | Lightning | Mamba2 | MatrixMemory | ShortConvolution | TimeMix
    )
else:
    Recurrent = Any  # their module is imported only for a model that has one


class Norm(NamedTuple):
    """A norm over the last axis; in a convolutional network, a batch norm with stored statistics.

    Layer norm: Ba et al., arXiv 1607.06450. RMS norm: Zhang and Sennrich, arXiv 1910.07467. Batch norm: Ioffe and
    Szegedy, arXiv 1502.03167.
    """

    kind: Literal["layernorm", "rmsnorm", "batchnorm"]
    gain: bool = True
    bias: bool = True


class HeadNorm(NamedTuple):
    """The norm of queries and keys. `gains`: all heads share one vector of gains, or each has its own.

    With `queries`, each query head has its own, and keys have none.
    """

    norm: Norm
    gains: Literal["shared", "each", "queries"] = "shared"


# Name in transformers (transformers.activations.ACT2FN) -> function that is counted
ACTIVATIONS = {
    **{name: name for name in ("linear", "relu", "relu2", "relu6", "leaky_relu", "tanh", "sigmoid", "mish")},
    **dict.fromkeys(("silu", "swish"), "silu"),
    **dict.fromkeys(("gelu", "gelu_10", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_accurate"), "gelu_new"),
    "gelu_fast": "gelu_fast",
    **dict.fromkeys(("gelu_pytorch_tanh", "gelu_python_tanh"), "gelu_tanh"),
    "quick_gelu": "gelu_quick",
    "situ": "situ",
    "xielu": "xielu",
}


class DisentangledAttention(NamedTuple):
    """Scores between content and relative positions, added to the content scores (DeBERTa, arXiv 2006.03654, eq. 4)."""

    rows: Number  # of the table of relative positions
    content_to_position: bool  # queries times the keys of positions
    position_to_content: bool  # keys times the queries of positions
    shared_projections: bool  # positions use the query and key matrices of the content


class BlockSelection(NamedTuple):
    """Block-sparse attention: an indexer selects, for each query, `blocks` of `block_size` consecutive keys.

    The block of the query is always one of them. The `heads` of the indexer have `head_dim` elements and share one key
    per token. Each selects for its own group of query heads.
    """

    heads: Number
    head_dim: Number
    block_size: Number
    blocks: Number
    norm: Norm  # of the indexer's queries and keys
    # a key of the indexer is the mean of a complete block; the tokens after the last one are always read, and all heads
    # have the same selection (Qwen4-Exp)
    pools: bool = False

    def cached(self, tokens: Number) -> tuple[Number, ...]:
        """The indexer's keys: of all tokens; or of complete blocks, and of the tokens after them."""
        if self.pools:
            return tokens // self.block_size * self.head_dim, self.block_size * self.head_dim
        return (tokens * self.head_dim,)


class RelativeLogits(NamedTuple):
    """A term of the scores that depends on the query and the distance: `width` numbers per query head times a matrix.

    The matrix has `rows` columns, one for each distance; the term is 0 beyond. A norm may limit the length of these
    numbers.
    """

    width: Number
    rows: Number
    norm: Norm | None = None


class ResidualFilter(NamedTuple):
    """A causal depthwise convolution over `taps` tokens, added to its input (Inkling)."""

    width: Number  # channels
    taps: Number

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """The last tokens, at any length."""
        return (self.width * self.taps,)


class NGrams(NamedTuple):
    """Rows of a table, chosen by hashes of the last tokens, added to all residual streams (Qwen4-Exp).

    A token reads a row for each of `tables` hashes. Queries from the streams gate them, and a filter of `taps` tokens
    at equal distances follows, which needs the last `reach` tokens.
    """

    rows: Number  # of all hashes
    tables: Number
    width: Number  # of a token's rows together
    channels: Number  # of all streams
    taps: Number
    reach: Number

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """The last tokens of the filter, at any length."""
        return (self.channels * self.reach,)


class ImageWindow(NamedTuple):
    """Windows of an image, of `pixels` x `pixels` each; those at its right and lower edge may be smaller."""

    patch: tuple[Number, Number]
    pixels: Number

    def pairs(self, image: tuple[Number, Number]) -> Number:
        """Pairs of patches in the same window: the sum of squares of windows is separable in rows and columns."""
        total: Number = 1
        for side, patch in zip(image, self.patch, strict=True):
            patches, window = side // patch, self.pixels // patch
            total = total * (patches // window * window**2 + (patches % window) ** 2)
        return total


class AttentionExperts(NamedTuple):
    """Query and output projections of which a router selects `active` for each token, out of `count` (JetMoe).

    Each has one head for every key-value head.
    """

    count: Number
    active: Number


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
    relative_keys: bool = False  # queries times keys of distances, from sines and cosines (Transformer-XL)
    window: Number | None = None  # each token attends to the last `window` tokens, itself included; encoders: both ways
    window_evicts: bool = True  # the KV cache drops tokens outside the window
    chunked: bool = False  # each token attends within its chunk of `window` tokens, instead of a sliding window
    norm: HeadNorm | None = None  # on queries and keys
    sinks: bool = False  # a learned logit per head is part of the softmax
    computed_sinks: bool = False  # a logit per token and head, computed from the token, is part of the softmax
    differential: bool = False  # halves of the heads are subtracted, with a learned factor (arXiv 2410.05258)
    disentangled: DisentangledAttention | None = None
    values_from_keys: bool = False  # values are the keys before norm and rotary embedding
    value_norm: Norm | None = None
    # scales the output of a head by one number, or by one per element; "queries": the query matrix computes the gate
    gate: Literal["", "head", "element", "queries"] = ""
    kv_sharing: Literal["", "source", "reuses"] = ""  # later layers reuse its keys and values; it reuses earlier ones
    selection: BlockSelection | None = None  # each query attends to selected blocks of keys
    inner_norm: Norm | None = None  # on the outputs of all heads together, before the gate and the output projection
    image_window: ImageWindow | None = None  # each patch attends to those in its window
    kv_taps: Number = 0  # tokens of a `ResidualFilter` each on keys and values; 0: none
    computed_taps: bool = False  # a number per tap, token and head, computed from the token, is added to these filters
    relative_logits: RelativeLogits | None = None
    experts: AttentionExperts | None = None

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """Keys, values and the indexer's key of all tokens, or of those in the window; none if it reuses others.

        With filters on keys and values, their last tokens, too.
        """
        if self.kv_sharing == "reuses":
            return ()
        if self.window is not None and self.window_evicts:
            tokens = minimum(tokens, self.window)
        filters = self.keys_and_values if self.kv_taps else ()
        return (
            *(tokens * size for size in self.keys_and_values),
            *(self.selection.cached(tokens) if self.selection else ()),
            *(self.kv_taps * size for size in filters),
        )

    @property
    def keys_and_values(self) -> tuple[Number, Number]:
        """Elements per token of the keys and of the values."""
        return self.kv_heads * self.head_dim, self.kv_heads * (self.value_dim or self.head_dim)


class CrossAttention(NamedTuple):
    """Attention of a decoder to its source: keys and values are computed from the encoder's output."""

    attention: Attention

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """Keys and values of the source tokens."""
        return self.attention.cached(source, source)


class Indexer(NamedTuple):
    """Small attention heads that select the tokens each query attends to. All heads share one key per token.

    Their queries are computed from the latent of the queries, or from the normed input if that has none.
    """

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
    # scales the output of a head by one number, or by one per element; "queries": the up-projection of queries computes
    # the gate of each element, and reads the latent before its norm, too
    gate: Literal["", "head", "element", "queries"] = ""
    sinks: bool = False  # a learned logit per head is part of the softmax
    query_scale: bool = False  # queries are scaled by position, with two learned numbers per head
    kv_sharing: Literal["", "source", "reuses"] = ""  # later layers reuse its latents; it reuses earlier ones
    down_bias: bool = False  # on the projections to the latents
    out_bias: bool = False
    index_topk: Number | None = None  # each query attends to at most this many tokens, selected by an indexer
    index_pool: Number | None = None  # tokens of a pool, if the indexer selects pools; an incomplete one is always read
    indexer: Indexer | None = None  # None: the layer attends to all tokens, or to those selected by the layer before
    window: Number | None = None  # each token attends to the last `window` tokens, itself included
    rotary_norm: bool = False  # on the shared rotary key

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """The latent, the shared rotary key and the indexer's key of all tokens, or of those in the window.

        No latent if it reuses another. With pools, the indexer has a key for each complete pool, and the keys and
        weights of the tokens after it.
        """
        if self.window is not None:
            tokens = minimum(tokens, self.window)
        own = () if self.kv_sharing == "reuses" else (self.latent, *((self.rotary_dim,) if self.rotary_dim else ()))
        latents = tuple(tokens * size for size in own)
        if self.indexer is None:
            return latents
        keys, pool = self.indexer.head_dim, self.index_pool
        return *latents, *((tokens * keys,) if pool is None else (tokens // pool * keys, 2 * pool * keys))


class CompressedAttention(NamedTuple):
    """Attention to one key-value head whose keys are the values, too: a window of tokens, and compressed entries.

    Each entry stands for `ratio` tokens: their weighted sum, with learned weights per element. With `overlaps`, it also
    has a share of the tokens of the entry before, and an indexer selects `index_topk` entries for each query
    (DeepSeek-V4: CSA); otherwise each query attends to all entries (HCA). Without a ratio there is only the window.
    """

    heads: Number
    head_dim: Number
    rotary_dim: Number
    query_latent: Number
    window: Number
    out_groups: Number  # groups of heads, each with its own first half of the output projection
    out_rank: Number  # outputs of a group
    norm: Norm  # of the query latent, of keys and of entries
    ratio: Number = 0
    overlaps: bool = False
    index_topk: Number | None = None
    indexer: Indexer | None = None

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """The window, the entries with the indexer's keys, and the tokens that are not yet compressed.

        As in DeepSeek's published code (`kv_state` and `score_state` of its compressor), these have both outputs of
        the compression for one entry, or for two that overlap.
        """
        window = (minimum(tokens, self.window) * self.head_dim,)
        if not self.ratio:
            return window
        sizes = (self.head_dim, *((self.indexer.head_dim,) if self.indexer else ()))
        entries, overlap = tokens // self.ratio, 1 + self.overlaps
        return (
            *window,
            *(entries * size for size in sizes),
            *(2 * (overlap * self.ratio) * (overlap * size) for size in sizes),
        )


class Mamba(NamedTuple):
    """Mamba: a state of `state` numbers per channel, after a causal convolution (arXiv 2312.00752)."""

    width: Number  # channels
    state: Number
    step_rank: Number  # of the projection that computes a channel's time step
    filter: Number  # tokens of the causal convolution
    activation: str
    filter_bias: bool = True
    bias: bool = False
    out_bias: bool = False
    norm: Norm | None = None  # on time step, B and C

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """The states and the last tokens of the convolution, at any length."""
        return self.width * self.state, self.width * self.filter


class LinearMixer(NamedTuple):
    """One square matrix in place of attention (Puzzle, arXiv 2411.19146, section 2)."""

    width: Number  # inputs
    bias: bool = False


class LinearMLP(NamedTuple):
    """One square matrix in place of an MLP (the same source)."""

    width: Number  # inputs
    bias: bool = False


class MLP(NamedTuple):
    """An up projection, an activation and a down projection; gated: a third matrix, or one fused with the up matrix."""

    width: Number
    activation: str
    gated: bool = False
    fused: bool = False  # one matrix holds gate and up
    bias: bool = False
    inner_norm: Norm | None = None  # before the down projection
    scale: bool = False  # a learned factor for the whole output
    sparse_gate: bool = False  # of the gate, only what exceeds mean and deviation by a threshold (Gemma 3n)


class LowRank(NamedTuple):
    """Two matrices by way of `rank` columns (LAuReL: Menghani et al., arXiv 2411.07501)."""

    rank: Number


class MoE(NamedTuple):
    """Mixture of experts: a router sends each token to `active` of `experts` MLPs; a shared MLP takes every token.

    With `zero_experts`, it chooses among these, too; they return the token itself (LongCat-Flash, arXiv 2509.01322).
    """

    experts: Number  # MLPs
    active: Number
    expert: MLP
    shared: MLP | None = None
    shared_gate: bool = False  # a scalar per token scales the output of the shared MLP
    weighted_shared: Number = 0  # experts of the shared MLP that the router weights, too
    router_scale: bool = False  # a learned factor for all weights of the router
    router_bias: bool = False
    correction: bool = False  # a learned number per expert corrects the router's scores
    router_norm: Norm | None = None  # the router reads the residual stream through its own norm
    latent: Number | None = None  # the experts' input and output width, if they have projections before and after
    latent_bias: bool = False
    latent_input_norm: Norm | None = None  # on the experts' input, after the first of them
    latent_norm: Norm | None = None  # on the experts' output, before the second of them
    expert_norm: Norm | None = None  # on the output of each expert
    sum_bias: bool = False  # on the weighted sum of the experts' outputs
    groups: int = 1  # of experts; a token has experts of `active_groups` of them
    active_groups: int = 1
    zero_experts: Number = 0  # experts without computation
    capacity: Number = 0  # tokens of a sequence that an expert takes; the others skip the block. 0: all

    @property
    def choices(self) -> Number:
        """All experts that the router chooses among."""
        return self.experts + self.zero_experts

    @property
    def active_mlps(self) -> Number:
        """MLPs of a token under uniform routing: the mean, if there are experts without computation."""
        return mean(self.active * self.experts, self.choices) if self.zero_experts else self.active

    @property
    def common_mlps(self) -> Number:
        """MLPs of a token where all tokens choose the same experts: that mean, rounded up."""
        return ceil_div(self.active * self.experts, self.choices) if self.zero_experts else self.active


class PerLayerGate(NamedTuple):
    """Adds the layer's slice of a `PerLayerEmbedding`, multiplied by a gate and projected to the hidden size."""

    layers: Number
    width: Number
    activation: str


class TokenConvolution(NamedTuple):
    """A convolution over `kernel` neighboring tokens, with its channels in `groups`."""

    kernel: Number
    groups: Number
    activation: str


Uncached = LinearMixer | LinearMLP | LowRank | MLP | MoE | PerLayerGate | TokenConvolution
"""Parts without a cache. The others have `cached`: elements of each cached tensor per sequence, by its length."""
Part = (
    Attention | LatentAttention | CompressedAttention | CrossAttention | Mamba | ResidualFilter | NGrams | Recurrent
    | Uncached
)  # fmt: skip


AttentionPart = Attention | LatentAttention | CompressedAttention
"""Self-attention; all other mixers are recurrent or convolutions."""


class PartKind(NamedTuple):
    """How a kind of part is built and sharded.

    * `prefixes`: an attribute has the value of the field of its name after one of these prefixes, or without any;
    * `sharded`: attributes that tensor parallelism divides, with their names in messages;
    * `replicated`: likewise, but a GPU has one at least, and several GPUs have the same;
    * `obstacle`: why the part cannot be sharded.
    """

    prefixes: tuple[str, ...] = ()
    sharded: Mapping[str, str] = {}
    replicated: Mapping[str, str] = {}
    obstacle: str = ""


KINDS: dict[str, PartKind] = {
    "Attention": PartKind(("attention_",), {"heads": "heads"}, {"kv_heads": "key-value heads"}),
    "BlockSelection": PartKind(("index_",), replicated={"heads": "heads of the indexer"}),
    "CrossAttention": PartKind(),
    "LatentAttention": PartKind(("latent_",), {"heads": "heads"}),
    "CompressedAttention": PartKind(
        ("compressed_",), {"heads": "heads", "out_groups": "groups of the output projection"}
    ),
    "Indexer": PartKind(("index_",)),
    "Mamba": PartKind(("inner_",), {"width": "channels of the state space"}),
    "Mamba2": PartKind(("inner_",), {"heads": "heads of the state space"}, {"groups": "groups of its heads"}),
    "GatedRecurrence": PartKind(("inner_",), dict.fromkeys(("heads", "width"), "heads of the recurrence")),
    "TimeMix": PartKind(("inner_",), {"width": "channels of the time mixing"}),
    "ChannelMix": PartKind(("mlp_",), {"width": "columns of the MLP"}),
    "DeltaRule": PartKind(("linear_",), dict.fromkeys(("value_heads", "heads"), "heads of linear attention")),
    "Lightning": PartKind(("linear_",), {"heads": "heads of linear attention"}),
    "MatrixMemory": PartKind(("linear_",), {"heads": "heads of linear attention"}),
    "ShortConvolution": PartKind((), {"width": "channels of the convolution"}),
    "ResidualFilter": PartKind(),
    "NGrams": PartKind(("ngram_",), obstacle="tables of n-grams"),
    "LinearMixer": PartKind(("out_",), {"width": "inputs of a linear layer"}),
    "LinearMLP": PartKind(("mlp_",), {"width": "inputs of a linear layer"}),
    "MLP": PartKind(("mlp_",), {"width": "columns of the MLP"}),
    "LowRank": PartKind(("laurel_",), obstacle="low-rank residuals"),
    "MoE": PartKind(("expert_",)),
    "PerLayerGate": PartKind(obstacle="per-layer embeddings"),
    "TokenConvolution": PartKind(("conv_",), obstacle="token convolutions"),
}
"""Each kind of part by the name of its class, and the parts within others, which are built and sharded with them."""


class Branch(NamedTuple):
    """A part of a sublayer with the norms around it."""

    part: Part
    before: Norm | None  # on its input; None: the branch shares the normed input of the branch before it
    after: Norm | None = None  # on its output, before the residual sum
    scale: bool = False  # a learned factor per channel on its output
    gate_rank: Number = 0  # of two matrices that compute a gate of its normed input from it; 0: no gate
    is_shortcut: bool = False  # its output is part of a later residual sum, that of the next layer's last sublayer
    filter: ResidualFilter | None = None  # on its output


class Sublayer(NamedTuple):
    """Parallel branches with the same input, and the residual sum of their outputs and that input.

    With attention residuals, the input is instead a mean of `earlier_sums` finished sums and the running one, weighted
    by attention (`counting/layers/attention_residuals.py`); a sublayer that `starts_sum` finishes the running sum.
    """

    branches: tuple[Branch, ...]
    after: Norm | None = None  # on the residual sum
    sum_norm: Norm | None = None  # on the sum of the branches, before the residual sum
    earlier_sums: int = 0
    starts_sum: bool = False
    adds_shortcut: bool = False  # the residual sum has the output of a branch of the layer before, too
    adds_input: bool = False  # the residual sum has the normed input of the branches, too
    separate_inputs: bool = False  # queries, keys and values each have a mean of sums and a norm of their own
    gated_sum: bool = False  # input and output have weights per channel, from one learned number each (Muse Spark)


Layer = tuple[Sublayer, ...]
"""Sublayers in sequence: attention and MLP in two of them, or in parallel in one."""


def parts(layer: Layer) -> tuple[Part, ...]:
    """Every part of a layer, in order, with the filters on their outputs."""
    branches = (branch for sub in layer for branch in sub.branches)
    return tuple(part for branch in branches for part in (branch.part, branch.filter) if part is not None)
