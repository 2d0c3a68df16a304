"""The architecture of a model, in one form for all families: layers, embedding and head; and its share on one GPU.

Families translate a config into it; the counting modules read nothing else. Sizes are elements: ints or SymPy symbols.

Tensor and expert parallelism are as in Megatron-LM (Shoeybi et al., arXiv 1909.08053, section 3): heads, MLP width and
vocabulary are sharded; norms and routers are replicated. If there are fewer key-value heads than GPUs, each is
replicated on several GPUs; the same holds for the groups of a state space and for the heads of an indexer that selects
blocks. Latents are replicated on all. The vocabulary is padded to a multiple of the GPUs. The width of an expert is
sharded over the GPUs that share the expert.

In a pipeline, consecutive layers go to `pp` stages as evenly as possible, or to `pp * vpp` runs of which a stage has
every pp-th: the interleaved schedule of Narayanan et al. (arXiv 2104.04473, section 2.2). The first run has the
embedding, the last one the head. If the number of layers is not divisible, runs before the last have one layer more, as
in vLLM.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from roofmodel.errors import Text
from roofmodel.models.layers import (
    KINDS,
    Attention,
    LatentAttention,
    Layer,
    MoE,
    Norm,
    Part,
    parts,
)
from roofmodel.numbers.algebra import Number, ceil_div, is_just, maximum, quotient

if TYPE_CHECKING:
    from roofmodel.models.convolutional import PixelStep, Stage
    from roofmodel.models.quantization import Quantization


class HeadStage(NamedTuple):
    """One stage of a head: a linear operator, optionally with an activation and a norm.

    `out` is its output width. `rows` are the positions it computes: every token, the tokens whose logits are needed
    (`--logits`), or one token per sequence ("first"). `tied` reuses the token table as matrix.
    """

    name: str
    out: Literal["hidden", "embedding", "vocabulary", "classes", "pooler"]
    rows: Literal["tokens", "logits", "first"]
    bias: bool | str = True  # or the name of the field that decides
    activation: str | None = None  # a function, or the name of the field that gives it
    norm: bool = False
    tied: bool = False  # if the config ties the head to the token table
    classes: int | None = None  # None: the number of labels, or the width of the pooler
    input_from_layers: bool = False  # its input is the output of the layers, not of the stage before
    unused_bias: bool = False  # if not tied, the reference class stores a second bias that it never uses


class Projector(NamedTuple):
    """Makes tokens of a text model from the patches of a vision tower, without its special tokens.

    `merge` x `merge` neighboring patches become one token: their concatenation, or their mean if it `pools`. The
    matrices follow: outputs, bias, activation of each.
    """

    matrices: tuple[tuple[Number, bool, str | None], ...]
    merge: int = 1
    pools: bool = False
    norm: Norm | None = None
    norm_after_merge: bool = False


class Head(NamedTuple):
    """The operators after the last layer. `name` is the reference class, such as `GPT2LMHeadModel`."""

    name: str
    stages: tuple[HeadStage, ...]
    projectors: tuple[Projector, ...] = ()  # of a vision tower


class Fact(NamedTuple):
    """The value of a field and its config key.

    `assumed`: the config lacks the key or sets it to null, and the default of the config class is used.
    """

    value: object
    key: str | None  # None: fixed by the family's code
    assumed: bool = False


class Streams(NamedTuple):
    """Hyper-connections: `count` residual streams in place of one.

    With `sinkhorn` iterations a matrix mixes the streams at each block (0: no mixing). After the last layer, `head`
    makes one stream of them: by learned weights, or by their mean. With a `rank`, two matrices with so many columns
    between them compute a gate of each element of the streams in place of their weights (Qwen4-Exp).
    """

    count: Number
    sinkhorn: int = 0
    head: Literal["weights", "mean"] = "weights"
    rank: Number = 0


class Projection(NamedTuple):
    """A matrix from the width of the token table to the hidden size, and the point at which it is applied."""

    after: Literal["tokens", "sums", "norm"]  # the token lookup, the sum with other embeddings, or the norm of that sum
    bias: bool = False
    projects_back: bool = False  # a second matrix takes the last layer's output back to the embedding's width


class FrameConvolution(NamedTuple):
    """A convolution along a sequence of audio frames with an activation: one output frame per `stride` input frames."""

    channels: Number  # of an input frame
    taps: Number  # frames in the kernel
    stride: Number
    activation: str


class PerLayerEmbedding(NamedTuple):
    """A second token table with one row slice per layer, added to a projection of the token embedding (Gemma 4)."""

    rows: Number
    layers: Number
    width: Number  # per layer
    norm: Norm  # on the projection, per layer


class Embedding(NamedTuple):
    """The embedding tables. `width` is the row length of the token table, in most models the hidden size.

    With `frame_convolutions` the input is audio frames; each output frame of the last convolution counts as a token.
    """

    vocabulary: Number
    width: Number
    position_rows: Number = 0  # 0: no position table
    fixed_positions: bool = False  # sines and cosines, not learned
    type_rows: Number = 0
    task_rows: Number = 0
    norm: Norm | None = None
    projection: Projection | None = None
    relative_rows: Number = 0  # of the relative-position table that all layers share: a bias per head, or vectors
    relative_norm: Norm | None = None  # on those vectors
    frame_convolutions: tuple[FrameConvolution, ...] = ()
    padded_to_positions: bool = False  # every source is padded to the full number of positions
    shared_with_decoder: bool = True  # for an encoder: the decoder uses the same token table
    per_layer: PerLayerEmbedding | None = None


class Patches(NamedTuple):
    """Patch embedding of a vision transformer: one token per image patch, after the learned special tokens."""

    image: tuple[Number, Number]  # rows and columns of pixels that the position table is made for
    patch: tuple[Number, Number]
    channels: Number  # of all frames that a patch spans
    special: tuple[str, ...]  # names of the special tokens
    bias: bool = True
    positions: bool = True  # a learned table of positions
    norm: Norm | None = None  # on the sum of tokens and positions

    def tokens(self, image: tuple[Number, Number]) -> Number:
        """Number of tokens for an image in pixels; pixels that do not fill a patch are dropped."""
        return len(self.special) + (image[0] // self.patch[0]) * (image[1] // self.patch[1])


class AlternatingUpdates(NamedTuple):
    """AltUp: `count` residual streams, of which a layer computes one (Baykal et al., arXiv 2301.13310).

    Before a layer, each stream is predicted from all of them; after it, each is corrected by the layer's output.
    """

    count: Number
    scales_output: bool = True  # the layer's own input reads the corrected stream times a learned factor per channel


class ResidualSums(NamedTuple):
    """Attention residuals: each sum has the outputs of `layers` layers, and blocks read a weighted mean of all sums.

    With `normed`, it is the mean of the normed sums, and the norm has no gain (Inkling 2).
    """

    layers: int
    normed: bool = False


class StageSlice(NamedTuple):
    """The part of a stack on one pipeline stage: whether it has the first and the last layer, in how many runs."""

    first: bool = True
    last: bool = True
    parts: int = 1  # runs of consecutive layers

    @property
    def received(self) -> int:
        """Number of its runs of layers that receive their input from another GPU."""
        return self.parts - self.first

    @property
    def sent(self) -> int:
        """Number of its runs of layers that send their output to another GPU."""
        return self.parts - self.last


class Stack(NamedTuple):
    """The layers of a transformer, with its embedding and final norm."""

    hidden: Number
    causal: bool  # each token attends to itself and earlier tokens
    embedding: Embedding | Patches
    layers: tuple[Layer, ...]
    norm: Norm  # the norm that head stages use
    final_norm: Norm | None
    streams: Streams | None = None  # hyper-connections; None: one residual stream
    updates: AlternatingUpdates | None = None
    sums: ResidualSums | None = None  # attention residuals; None: one sum of the outputs of all layers
    unused_parameters: Number = 0  # stored by the reference class, but never used
    shared: tuple[int, ...] | None = None  # per layer, the index of its parameter set; None: no sharing
    # the layers that it has, as groups of identical ones by index; None: all layers, grouped by equality
    layer_groups: tuple[tuple[int, ...], ...] | None = None
    stage_slice: StageSlice = StageSlice()

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part of every layer."""
        return tuple(part for layer in self.layers for part in parts(layer))

    @property
    def kinds(self) -> Iterator[tuple[Layer, tuple[int, ...]]]:
        """Distinct layers, each with the indices at which it occurs."""
        if self.layer_groups is not None:
            return ((self.layers[indices[0]], indices) for indices in self.layer_groups)
        where: dict[Layer, list[int]] = {}
        for index, layer in enumerate(self.layers):
            where.setdefault(layer, []).append(index)
        return ((layer, tuple(indices)) for layer, indices in where.items())


class Network(NamedTuple):
    """A convolutional network: a stem, stages, and average pooling over all pixels."""

    image: tuple[Number, Number]  # default input size: rows and columns of pixels
    channels: Number
    stem: "tuple[PixelStep, ...]"
    stages: "tuple[Stage, ...]"
    width: Number  # channels of the last stage
    final_norm: Norm | None = None  # on the pooled channels


class BuildPlan(NamedTuple):
    """What is needed to build a body again from other values, such as the symbols of a derivation.

    `facts` has the value of each field, `rules` the functions that computed fields without a config key from others.
    """

    facts: Mapping[str, Fact]
    rules: Mapping[str, Callable[[Mapping[str, Any]], Any]]
    build: Callable[[Mapping[str, Any]], Stack | Network]


SOFTMAX_IN_SCORE_DTYPE = frozenset({
    "albert", "bart", "bert", "biogpt", "blenderbot", "blenderbot-small", "camembert", "data2vec-text",
    "ctrl", "deberta-v2", "deepseek_v4", "distilbert", "electra", "ernie", "esm", "falcon", "flint", "gpt2", "gpt_neo",
    "gpt_neox_japanese", "gpt_oss", "gptj", "hy_v4", "codegen", "llama4_text", "m2m_100", "marian", "mbart",
    "megatron-bert", "mimo_v2_flash", "mpnet", "mt5", "nomic_bert", "openai-gpt", "pegasus", "roberta", "roformer",
    "switch_transformers", "t5", "umt5", "whisper", "xlm-roberta",
})  # fmt: skip
"""Families whose attention softmax in transformers 5.23 runs in the dtype of the scores. All others use fp32."""


class Dropout(NamedTuple):
    """The tensors to which the reference code applies dropout in training."""

    probabilities: bool = False  # of attention
    block_output: bool = False  # of blocks other than attention
    attention_output: bool = False
    embedding: bool = False
    activation: bool = False  # inside an MLP, after its activation function
    final: bool = False  # after the final norm


DROPOUT_FIELDS = (
    "attention_dropout", "dropout", "attention_output_dropout", "embedding_dropout", "activation_dropout",
    "final_dropout",
)  # fmt: skip
"""The fields of a config with the probabilities, in the order of `Dropout`."""


class ReferenceCode(NamedTuple):
    """Properties of the reference code outside the operators: dropout in training, and the dtype of softmax."""

    dropout: Dropout = Dropout()
    fp32_softmax: bool = False


class VisionSource(NamedTuple):
    """The multimodal config from which `models/vision.py` reads the vision tower when it is needed."""

    config: Mapping[str, Any]
    name: str
    where: str


@dataclass(frozen=True)
class Architecture:
    """A model: all the information that counting needs."""

    name: str
    model_type: str
    body: Stack | Network
    head: Head
    tied: bool  # the head reuses the token table as its matrix
    max_tokens: int | None  # the longest sequence its positions allow; None: no limit (ALiBi)
    facts: dict[str, Fact]  # by field of `fields.FIELDS`
    notes: tuple[Text, ...] = ()
    encoder: Stack | None = None  # of an encoder-decoder, whose decoder is `stack`
    max_source: int | None = None  # the longest source sequence that the encoder's positions allow
    quantization: "Quantization | None" = None  # of the checkpoint
    dtype: str | None = None  # the format of the checkpoint's parameters, as the config states it
    plan: BuildPlan | None = field(default=None, compare=False, repr=False)  # of the body
    vision: VisionSource | None = field(default=None, compare=False, repr=False)  # of a multimodal model
    encoder_plan: BuildPlan | None = field(default=None, compare=False, repr=False)

    @property
    def padded_to(self) -> int | None:
        """Tokens that every source is padded to, at any length (Whisper); None: no padding."""
        table = self.encoder and self.encoder.embedding
        return self.max_source if isinstance(table, Embedding) and table.padded_to_positions else None

    @property
    def stack(self) -> Stack:
        """The layers of a transformer; a convolutional network has none."""
        assert isinstance(self.body, Stack)
        return self.body

    def times(self, layers: tuple[int, ...] | None) -> Number:
        """How often an operator of these layers occurs; None: an operator outside the layers, which occurs once."""
        return 1 if layers is None else len(layers)

    def copies(self, layers: tuple[int, ...] | None) -> Number:
        """Number of parameter sets in these layers; None: an operator outside the layers, which has one."""
        shared = self.body.shared if isinstance(self.body, Stack) else None
        return self.times(layers) if layers is None or shared is None else len({shared[layer] for layer in layers})

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The distinct parts of its layers, those of the encoder too."""
        layers = (*self.stack.layers, *(self.encoder.layers if self.encoder else ()))
        return tuple(dict.fromkeys(part for layer in dict.fromkeys(layers) for part in parts(layer)))

    @property
    def causal(self) -> bool:
        """Whether a token attends only to earlier ones, or has no later ones, as in a decoder."""
        return isinstance(self.body, Stack) and self.body.causal

    @property
    def generates(self) -> bool:
        """Whether it generates tokens: a prefill, then decode steps. Otherwise it runs one forward pass.

        A decoder that classifies its input does not.
        """
        return self.causal and not any(stage.out == "classes" for stage in self.head.stages)

    @property
    def code(self) -> ReferenceCode:
        """Properties of the reference code, with the dropout that the config states."""
        dropout = Dropout(*(name in self.facts and bool(self.facts[name].value) for name in DROPOUT_FIELDS))
        return ReferenceCode(dropout, self.model_type not in SOFTMAX_IN_SCORE_DTYPE)

    @property
    def image(self) -> tuple[Number, Number] | None:
        """Rows and columns of pixels of its default input image; None for a text model."""
        if isinstance(self.body, Network):
            return self.body.image
        return self.body.embedding.image if isinstance(self.body.embedding, Patches) else None


MAX_SUGGESTED_GPUS = 64  # the largest number of GPUs that a message suggests
MAX_SUGGESTED_EXPERT_GPUS = 1024  # the same for expert parallelism


def has_experts(arch: Architecture) -> bool:
    """Whether any layer is an MoE layer."""
    return not isinstance(arch.body, Network) and any(isinstance(part, MoE) for part in arch.parts)


def shard(arch: Architecture, tp: Number, within: Number) -> Architecture:
    """The shard of one of `tp` GPUs; `within` of them share each expert.

    An MoE keeps the number of all its experts. Sizes must be divisible: see `obstacles`.
    """
    if is_just(tp, 1):
        return arch
    body = arch.body if isinstance(arch.body, Network) else _stack(arch.body, tp, within)
    return replace(arch, body=body, encoder=arch.encoder and _stack(arch.encoder, tp, within))


def _stack(stack: Stack, tp: Number, within: Number) -> Stack:
    table = stack.embedding
    if isinstance(table, Embedding):
        table = table._replace(vocabulary=ceil_div(table.vocabulary, tp))

    kinds = list(stack.kinds)
    layers = {index: shared for layer, indices in kinds for shared in [_layer(layer, tp, within)] for index in indices}
    return stack._replace(
        embedding=table,
        unused_parameters=stack.unused_parameters and ceil_div(stack.unused_parameters, tp),
        layers=tuple(layers[index] for index in sorted(layers)),
        layer_groups=tuple(indices for _, indices in kinds),  # the same groups: sharding makes no other layers equal
    )


def _layer(layer: Layer, tp: Number, within: Number) -> Layer:
    return tuple(
        sub._replace(branches=tuple(branch._replace(part=_part(branch.part, tp, within)) for branch in sub.branches))
        for sub in layer
    )


def _part(part: Part, tp: Number, within: Number) -> Part:
    """The shard of a part, with those of the parts within it; `within` GPUs share each expert."""
    kind = KINDS[type(part).__name__]
    shares = {name: quotient(getattr(part, name), tp) for name in kind.sharded}
    shares |= {name: _replicated_share(getattr(part, name), tp) for name in kind.replicated}
    for name, inner in zip(part._fields, part, strict=True):
        if type(inner).__name__ in KINDS:
            shares[name] = _part(inner, within if name == "expert" else tp, within)
    return part._replace(**shares)


def _replicated_share(count: Number, gpus: Number) -> Number:
    """How many of `count` items a GPU has: at least one, replicated if there are fewer items than GPUs."""
    return maximum(1, quotient(count, gpus))


# --- Divisibility -----------------------------------------------------------------------------------


def obstacles(arch: Architecture, tp: int, ep: int) -> Iterator[str]:
    """Sizes that are not divisible by this number of GPUs, such as `25 heads`; nothing if all are."""
    if isinstance(arch.body, Network):
        if tp > 1:
            yield "no transformer layers"
        return
    for part in arch.parts:
        yield from _obstacles_of_part(part, tp, ep)


def _obstacles_of_part(part: Part, tp: int, ep: int) -> Iterator[str]:
    kind = KINDS[type(part).__name__]
    if kind.obstacle and tp > 1:
        yield kind.obstacle
    if isinstance(part, MoE):
        within = max(1, tp // ep)  # GPUs that share an expert
        sharded = [("experts", part.experts, ep), ("columns of an expert", part.expert.width, within)]
        if part.expert_norm and within > 1:
            yield "experts with a norm on their output"  # which needs the sum over the columns of an expert
        sharded += [("columns of the shared expert", part.shared.width, tp)] if part.shared else []
        yield from (f"{size} {name}" for name, size, gpus in sharded if size % gpus)
        return
    sizes = {name: (getattr(part, attribute), False) for attribute, name in kind.sharded.items()}
    sizes |= {name: (getattr(part, attribute), True) for attribute, name in kind.replicated.items()}
    if isinstance(part, Attention) and part.kv_heads == part.heads:
        del sizes["key-value heads"]
    if isinstance(part, Attention) and part.experts:  # a GPU has the same heads of each of them
        sizes["key-value heads"] = part.kv_heads, False
    yield from (
        f"{size} {name}" for name, (size, shared) in sizes.items() if size % tp and not (shared and tp % size == 0)
    )
    for inner in part:
        if type(inner).__name__ in KINDS:
            yield from _obstacles_of_part(inner, tp, ep)  # type: ignore[arg-type]


def pipeline_runs(layers: int, pp: int, vpp: int, sizes: Sequence[int] = ()) -> tuple[range, ...]:
    """The layers of each run, in the order of the model; run n belongs to stage n modulo pp.

    `sizes` are the layers of each run; without them, they are as equal as possible.
    """
    runs = pp * vpp
    each, remainder = divmod(layers, runs)
    sizes = sizes or [each + (runs - 1 - remainder <= n < runs - 1) for n in range(runs)]
    return tuple(range(start, end) for start, end in pairwise(accumulate(sizes, initial=0)))


def stage(arch: Architecture, which: int, pp: int, vpp: int, sizes: Sequence[int] = ()) -> Architecture:
    """The layers of one stage, all of its runs together."""
    return _with_layers(arch, pipeline_runs(len(arch.stack.layers), pp, vpp, sizes)[which::pp]) if pp > 1 else arch


def parts_of_stage(
    arch: Architecture, which: int, pp: int, vpp: int, sizes: Sequence[int] = ()
) -> tuple[Architecture, ...]:
    """The runs of one stage, each as an architecture of its own; runs with the same layers are one object."""
    kinds = _kinds_by_layer(arch)
    distinct: dict[object, Architecture] = {}
    parts = []
    for run in pipeline_runs(len(kinds), pp, vpp, sizes)[which::pp]:
        key = _layers_of((run,), kinds)
        if key not in distinct:
            distinct[key] = _with_layers(arch, (run,))
        parts.append(distinct[key])
    return tuple(parts)


def kinds_of_stages(arch: Architecture, pp: int, vpp: int, sizes: Sequence[int] = ()) -> dict[int, int]:
    """The distinct stages, each by the index of its first occurrence, with the number of its occurrences.

    It reads each layer once, so that its time does not grow with layers x stages.
    """
    kinds = _kinds_by_layer(arch)
    runs = pipeline_runs(len(kinds), pp, vpp, sizes)
    first_index: dict[object, int] = {}
    counts: dict[int, int] = {}
    for which in range(pp):
        index = first_index.setdefault(_layers_of(runs[which::pp], kinds), which)
        counts[index] = counts.get(index, 0) + 1
    return counts


def _kinds_by_layer(arch: Architecture) -> dict[int, int]:
    """The number of the kind of each layer."""
    return {layer: kind for kind, (_, indices) in enumerate(arch.stack.kinds) for layer in indices}


def _layers_of(runs: tuple[range, ...], kinds: dict[int, int]) -> tuple[StageSlice, frozenset[tuple[int, int]]]:
    """How many layers of each kind these runs have, and which part of the stack they are: equal for equal runs."""
    layers = Counter(kinds[layer] for run in runs for layer in run)
    return _slice(runs, len(kinds)), frozenset(layers.items())


def _with_layers(arch: Architecture, runs: tuple[range, ...]) -> Architecture:
    """The architecture with the layers of these runs only."""
    stack, layers = arch.stack, {layer for run in runs for layer in run}
    stage_slice = _slice(runs, len(stack.layers))
    groups = (tuple(layer for layer in indices if layer in layers) for _, indices in stack.kinds)
    stack = stack._replace(
        layer_groups=tuple(filter(None, groups)),
        final_norm=stack.final_norm if stage_slice.last else None,
        unused_parameters=sum(_unused_before(stack, run.stop) - _unused_before(stack, run.start) for run in runs),
        stage_slice=stage_slice,
    )
    return replace(arch, body=stack, head=arch.head if stage_slice.last else arch.head._replace(stages=()))


def _unused_before(stack: Stack, layer: int) -> Number:
    """The unused parameters before a layer, if all layers have the same share."""
    return stack.unused_parameters * layer // len(stack.layers)


def _slice(runs: tuple[range, ...], layers: int) -> StageSlice:
    """The part of a stack of `layers` layers that these runs are."""
    return StageSlice(any(0 in run for run in runs), any(layers - 1 in run for run in runs), len(runs))


def pipeline_obstacles(arch: Architecture) -> Iterator[str]:
    """Reasons why a model cannot run in a pipeline; nothing if it can."""
    if isinstance(arch.body, Network):
        yield "has no transformer layers"
        return
    if arch.encoder:
        yield "is an encoder-decoder: every decoder layer reads the encoder's output"
    if arch.stack.shared is not None:
        yield "has layers that share their parameters"
    table = arch.stack.embedding
    if isinstance(table, Embedding) and table.relative_rows:
        yield "has relative positions that all layers share"
    if isinstance(table, Embedding) and table.per_layer:
        yield "has an embedding with an input for every layer"
    if any(sublayer.adds_shortcut for layer, _ in arch.stack.kinds for sublayer in layer):
        yield "has experts whose output is added after the next layer"
    if any(isinstance(part, Attention | LatentAttention) and part.kv_sharing for part in arch.stack.parts):
        yield "has layers that reuse the keys and values of earlier ones"
