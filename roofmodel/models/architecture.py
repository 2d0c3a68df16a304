"""The neutral description of a model: what its shapes and switches are, whoever named them.

Families translate a config into it; counting reads nothing else. Sizes are elements, and may be
ints or SymPy symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from roofmodel.algebra import Number


class Norm(NamedTuple):
    """A layer norm or RMS norm over the width of what it reads, with or without gain and bias.

    A batch norm, in a convolutional network: with the means and variances that training found.
    """

    kind: Literal["layernorm", "rmsnorm", "batchnorm"]
    gain: bool = True
    bias: bool = True


class HeadNorm(NamedTuple):
    """The norm of queries and keys. `gains`: one row that all heads share, or a row for each head."""

    norm: Norm
    gains: Literal["shared", "each"] = "shared"


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
    correction: bool = False  # a learned number per expert joins the choice
    router_norm: Norm | None = None  # the router reads what the layer carries along, through a norm of its own


class Mamba(NamedTuple):
    """A state space of `state` numbers a channel, behind a causal filter `kernel` tokens wide (arXiv 2312.00752)."""

    width: Number  # channels
    state: Number
    rank: Number  # of the matrices that give a channel its time step
    kernel: Number
    activation: str
    kernel_bias: bool = True
    bias: bool = False
    out_bias: bool = False
    norm: Norm | None = None  # on time step, B and C

    @property
    def cached(self) -> Number:
        """What a sequence leaves in the cache, however long: the states, and the filter's last tokens."""
        return self.width * (self.state + self.kernel)


class Mamba2(NamedTuple):
    """A state space of `head_dim` x `state` a head, computed in chunks (arXiv 2405.21060); groups share B and C."""

    heads: Number
    head_dim: Number
    state: Number
    groups: Number
    kernel: Number
    chunk: Number
    activation: str
    kernel_bias: bool = True
    bias: bool = False
    out_bias: bool = False
    norm: bool = True  # the gate is a gated RMS norm

    @property
    def cached(self) -> Number:
        """What a sequence leaves in the cache, however long: the states, and the filter's last tokens."""
        width = self.heads * self.head_dim
        return width * self.state + (width + 2 * self.groups * self.state) * self.kernel


class ShortConvolution(NamedTuple):
    """A causal filter `kernel` tokens wide for each channel, between two gates that the token opens (LFM2)."""

    width: Number  # channels
    kernel: Number
    bias: bool = False  # of the filter and of the matrices around it

    @property
    def cached(self) -> Number:
        """What a sequence leaves in the cache, however long: the filter's last tokens."""
        return self.width * self.kernel


class DeltaRule(NamedTuple):
    """Linear attention by the gated delta rule (arXiv 2412.06464): a state of `head_dim` x `value_dim` a head.

    `heads` are those of queries and keys, each for as many of values. `matrices` says which of its inputs one matrix
    gives, by name: `qkv` (or `q`, `k`, `v`) that go through the filter, `gate`, `write` (how much of a value is
    written), `forget` (how fast the state decays).
    """

    heads: Number
    value_heads: Number
    head_dim: Number
    value_dim: Number
    kernel: Number  # of the causal filter
    chunk: Number
    activation: str
    matrices: tuple[tuple[str, ...], ...]
    gate: str = "silu"
    each: bool = False  # each element of a key decays at a pace of its own (Kimi, arXiv 2510.26692)
    bounded: bool = False  # by a sigmoid in place of a softplus
    rank: Number | None = None  # of what gives `forget` and `gate`, where that is not a matrix

    @property
    def filtered(self) -> Number:
        """Channels that go through the filter: queries, keys and values."""
        return 2 * self.heads * self.head_dim + self.value_heads * self.value_dim

    @property
    def cached(self) -> Number:
        """What a sequence leaves in the cache, however long: the states, and the filter's last tokens."""
        return self.value_heads * self.head_dim * self.value_dim + self.filtered * self.kernel


class Lightning(NamedTuple):
    """Linear attention whose heads fade at a pace that is fixed, in blocks of tokens (arXiv 2401.04658)."""

    heads: Number
    head_dim: Number
    block: Number
    activation: str

    @property
    def cached(self) -> Number:
        """What a sequence leaves in the cache, however long: a state a head."""
        return self.heads * self.head_dim**2


class LayerInput(NamedTuple):
    """A gate on one of the inputs that the embedding gives `layers` of (`LayerInputs`), and the way up to the layer."""

    layers: Number
    width: Number
    activation: str


class TokenConvolution(NamedTuple):
    """A filter over `kernel` neighbouring tokens, whose channels fall into `groups` that it keeps apart."""

    kernel: Number
    groups: Number
    activation: str


Part = (
    Attention
    | LatentAttention
    | CrossAttention
    | Mamba
    | Mamba2
    | DeltaRule
    | Lightning
    | ShortConvolution
    | MLP
    | MoE
    | LayerInput
    | TokenConvolution
)


class Branch(NamedTuple):
    """A part with the norms around it."""

    part: Part
    before: Norm | None  # on what it reads; without one it reads what the branch beside it reads
    after: Norm | None = None  # on what it gives, ahead of the sum


class Sublayer(NamedTuple):
    """Branches that read the same input, side by side, and the sum that joins them to it."""

    branches: tuple[Branch, ...]
    after: Norm | None = None  # on the sum
    together: Norm | None = None  # on the sum of what the branches give, ahead of that


Layer = tuple[Sublayer, ...]
"""Sublayers, one after another: attention and MLP in two of them, or side by side in one."""


class Projection(NamedTuple):
    """A matrix takes the embedding to the hidden size: the token rows alone, their sums, or the sums once normed."""

    after: Literal["tokens", "sums", "norm"]
    bias: bool = False
    back: bool = False  # another one takes what the layers give back to the embedding's width


class Filter(NamedTuple):
    """A convolution along a sequence of frames, and the activation behind it: one frame out for `stride` frames in."""

    channels: Number  # of a frame that it reads
    taps: Number  # frames that it sees at once
    stride: Number
    activation: str


class LayerInputs(NamedTuple):
    """Inputs of each layer's own: rows of a second table by token, added to what a matrix makes of the first's."""

    rows: Number
    layers: Number
    width: Number  # of one layer's
    norm: Norm  # on what the matrix gives for a layer


class Embedding(NamedTuple):
    """The tables at the entrance. `width` is the row of the token table (the hidden size, mostly).

    Where there are `filters` it reads frames, not tokens; what the last filter gives counts as tokens from there on.
    """

    vocabulary: Number
    width: Number
    position_rows: Number = 0  # 0: no position table
    fixed_positions: bool = False  # rows of sines and cosines, not learned
    type_rows: Number = 0
    task_rows: Number = 0
    norm: Norm | None = None
    projection: Projection | None = None
    relative_rows: Number = 0  # of the table of relative positions that all layers share: a bias per head, or vectors
    relative_norm: Norm | None = None  # on those vectors
    filters: tuple[Filter, ...] = ()
    padded: bool = False  # to as many tokens as there are positions, whatever the source
    shared: bool = True  # in an encoder-decoder, the encoder's: its token table is the decoder's
    layer_inputs: LayerInputs | None = None


Sides = Number | tuple[Number, Number]
"""Pixels a side; rows and columns where they differ."""


class Patches(NamedTuple):
    """The entrance of a transformer that sees: each patch of the image a token, behind a few learned tokens."""

    image: tuple[Number, Number]  # rows and columns of pixels that the position table is made for
    patch: tuple[Number, Number]
    channels: Number
    special: tuple[str, ...]  # the learned tokens by name
    norm: None = None

    def tokens(self, image: tuple[Number, Number]) -> Number:
        """How many tokens an image becomes; pixels that fill no patch are left out."""
        return len(self.special) + (image[0] // self.patch[0]) * (image[1] // self.patch[1])


class Dense(NamedTuple):
    """One stage of a head: a linear operator, then maybe an activation and a norm.

    `out` says how wide it is, `rows` which positions it computes: every token, those whose logits
    are asked for, or only the first token of a sequence (or another one). `tied` reuses the token table as matrix.
    """

    name: str
    out: Literal["hidden", "embedding", "vocabulary", "classes", "pooler"]
    rows: Literal["tokens", "logits", "first"]
    bias: bool | str = True  # or the field that says so
    activation: str | None = None  # a function, or the field that names it
    norm: bool = False
    tied: bool = False  # where the config ties
    classes: int | None = None  # None: as many as the config has labels, or as the pooler is wide
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


class Held(NamedTuple):
    """What a GPU holds of a stack, where others hold other layers: its entrance, its end, and how many parts."""

    first: bool = True
    last: bool = True
    parts: int = 1  # that do not follow one another

    @property
    def received(self) -> int:
        """How many of its parts start from what another GPU computed."""
        return self.parts - self.first

    @property
    def sent(self) -> int:
        """How many of its parts another GPU goes on with."""
        return self.parts - self.last


class Stack(NamedTuple):
    """Layers that follow one another, with what stands before and after them."""

    hidden: Number
    causal: bool  # each token sees itself and those before it
    embedding: Embedding | Patches
    layers: tuple[Layer, ...]
    norm: Norm  # the kind of norm that heads use
    final_norm: Norm | None
    unread: Number = 0  # parameters that the class holds although its code never reads them
    shared: tuple[int, ...] | None = None  # for each layer, which set of parameters it uses; None: each its own
    alike: tuple[tuple[int, ...], ...] | None = None  # those layers that it has, by index; None: those that are equal
    held: Held = Held()

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part of every layer."""
        return tuple(part for layer in self.layers for part in parts(layer))

    @property
    def kinds(self) -> Iterator[tuple[Layer, tuple[int, ...]]]:
        """Layers that are alike, with the indices of their occurrences."""
        if self.alike is not None:
            return ((self.layers[indices[0]], indices) for indices in self.alike)
        where: dict[Layer, list[int]] = {}
        for index, layer in enumerate(self.layers):
            where.setdefault(layer, []).append(index)
        return ((layer, tuple(indices)) for layer, indices in where.items())


def parts(layer: Layer) -> tuple[Part, ...]:
    """Every part of a layer."""
    return tuple(branch.part for sub in layer for branch in sub.branches)


# --- Convolutional networks -------------------------------------------------------------------------


class Convolution(NamedTuple):
    """A filter that slides over a map of pixels, `stride` pixels at a time, and gives `out` channels at each place."""

    name: str
    out: Number
    kernel: Sides = 1
    stride: Sides = 1
    padding: Number = 0  # pixels around the map that count as zero
    groups: Number = 1  # of channels, convolved apart; as many as channels: depthwise
    bias: bool = False


class Pool(NamedTuple):
    """The largest value of each window of `kernel` x `kernel` pixels."""

    kernel: Number
    stride: Number
    padding: Number = 0


class Activation(NamedTuple):
    """An elementwise function, by the name that vector.ACTIVATION has for it."""

    function: str


class Scale(NamedTuple):
    """A learned factor for each channel."""


class ResponseNorm(NamedTuple):
    """Each channel's norm over all pixels, divided by the mean of those, scales it (ConvNeXt V2)."""


PixelStep = Convolution | Norm | Activation | Pool | Scale | ResponseNorm


class Residual(NamedTuple):
    """A block: a path of steps, and a sum that carries the block's input past it, by a shortcut where shapes change."""

    path: tuple[PixelStep, ...]
    shortcut: tuple[PixelStep, ...] = ()
    after: tuple[PixelStep, ...] = ()  # on the sum


class Stage(NamedTuple):
    """Blocks that follow one another, after the steps that lead into them."""

    blocks: tuple[Residual, ...]
    entry: tuple[PixelStep, ...] = ()


class Network(NamedTuple):
    """A convolutional network: a stem, stages, the mean over all pixels."""

    image: tuple[Number, Number]  # rows and columns of pixels, where none are asked for
    channels: Number
    stem: tuple[PixelStep, ...]
    stages: tuple[Stage, ...]
    width: Number  # channels of the last stage
    final_norm: Norm | None = None  # on the means


# ----------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """How a body was laid out, for who lays it out again from other numbers: a derivation does, from symbols.

    `facts` are its fields; `rules` are, by field, the functions of other fields that gave those that no key gave.
    """

    facts: Mapping[str, Fact]
    rules: Mapping[str, Callable[[Mapping[str, Any]], Any]]
    lay_out: Callable[[Mapping[str, Any]], Stack | Network]


NARROW_SOFTMAX = frozenset({
    "albert", "bart", "bert", "biogpt", "blenderbot", "blenderbot-small", "camembert", "data2vec-text",
    "deberta-v2", "distilbert", "electra", "ernie", "esm", "falcon", "flint", "gpt2", "gpt_neo", "gpt_oss", "gptj",
    "codegen", "llama4_text", "m2m_100", "marian", "mbart", "megatron-bert", "mimo_v2_flash", "mpnet", "mt5",
    "nomic_bert", "openai-gpt", "pegasus", "roberta", "roformer", "t5", "umt5", "whisper", "xlm-roberta",
})  # fmt: skip
"""Families whose code in transformers 5.23 computes the softmax of attention in the type of its scores; others' has
fp32."""


class Code(NamedTuple):
    """What a model's code does that no operator counts: training drops out at random of attention's probabilities, and
    of what a block adds to the rows; softmax is computed in fp32."""

    drops_probabilities: bool = False
    drops_rows: bool = False
    wide_softmax: bool = False


@dataclass(frozen=True)
class Architecture:
    """A model, ready to be counted."""

    name: str
    model_type: str
    body: Stack | Network
    head: Head
    tied: bool  # the head's matrix is the token table
    max_tokens: int | None  # the longest sequence its positions allow; None: no limit (ALiBi)
    facts: dict[str, Fact]  # field of families.FIELDS -> where it came from
    notes: tuple[str, ...] = ()
    encoder: Stack | None = None  # of an encoder-decoder, the one that reads the source; `stack` is the decoder
    max_source: int | None = None  # the longest source that the encoder's positions allow
    plan: Plan | None = field(default=None, compare=False, repr=False)  # of the body
    encoder_plan: Plan | None = field(default=None, compare=False, repr=False)

    @property
    def padded_to(self) -> int | None:
        """Tokens that every source is padded to, however long it is; None: it is taken as it is."""
        table = self.encoder and self.encoder.embedding
        return self.max_source if isinstance(table, Embedding) and table.padded else None

    @property
    def stack(self) -> Stack:
        """The layers of a transformer, where it is one."""
        assert isinstance(self.body, Stack)
        return self.body

    def times(self, layers: tuple[int, ...] | None) -> Number:
        """How often what stands in these layers occurs; None, for what stands outside of the layers: once."""
        return 1 if layers is None else len(layers)

    def copies(self, layers: tuple[int, ...] | None) -> Number:
        """How many sets of parameters these layers have; None, for what stands outside of the layers: one."""
        shared = self.body.shared if isinstance(self.body, Stack) else None
        return self.times(layers) if layers is None or shared is None else len({shared[layer] for layer in layers})

    @property
    def causal(self) -> bool:
        """It decodes, after a prefill; otherwise one forward pass is all."""
        return isinstance(self.body, Stack) and self.body.causal

    @property
    def code(self) -> Code:
        """What its code does; what its training drops out, as the config has it."""
        probabilities, rows = (
            name in self.facts and bool(self.facts[name].value) for name in ("attention_dropout", "dropout")
        )
        return Code(probabilities, rows, self.model_type not in NARROW_SOFTMAX)

    @property
    def image(self) -> tuple[Number, Number] | None:
        """Rows and columns of pixels of the images that it is made for; None: it reads text."""
        if isinstance(self.body, Network):
            return self.body.image
        return self.body.embedding.image if isinstance(self.body.embedding, Patches) else None
