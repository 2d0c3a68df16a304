"""The architecture of a model, in one form for all families: layers, embedding and head.

Families translate a config into it; the counting modules read nothing else. Sizes are elements: ints or SymPy symbols.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from roofmodel.errors import Text
from roofmodel.models.layers import Embedding, Layer, Norm, Part, Patches, parts
from roofmodel.numbers.algebra import Number

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


class Head(NamedTuple):
    """The operators after the last layer. `name` is the reference class, such as `GPT2LMHeadModel`."""

    name: str
    stages: tuple[HeadStage, ...]


class Fact(NamedTuple):
    """The value of a field and its config key.

    `assumed`: the config lacks the key or sets it to null, and the default of the config class is used.
    """

    value: object
    key: str | None  # None: fixed by the family's code
    assumed: bool = False


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
    "deberta-v2", "distilbert", "electra", "ernie", "esm", "falcon", "flint", "gpt2", "gpt_neo", "gpt_oss", "gptj",
    "codegen", "llama4_text", "m2m_100", "marian", "mbart", "megatron-bert", "mimo_v2_flash", "mpnet", "mt5",
    "nomic_bert", "openai-gpt", "pegasus", "roberta", "roformer", "t5", "umt5", "whisper", "xlm-roberta",
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
