"""A model as the counting layer reads it: layers, embedding and head, whatever config it came from.

Families translate a config into it; counting reads nothing else. Sizes are elements, and may be
ints or SymPy symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from roofmodel.algebra import Number
from roofmodel.models.convolutional import Network
from roofmodel.models.embeddings import Embedding, Patches
from roofmodel.models.layers import Layer, Part, parts
from roofmodel.models.norms_and_activations import Norm


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
