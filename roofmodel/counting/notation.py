"""The notation of operators: a line of text that names tensors and their axes, and its parser."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from roofmodel.algebra import Number, product

Sizes = Mapping[str, Number]
"""Axis -> how many elements: `{"b": 1, "t": 1024, "d": 1600, ...}`."""


# What an axis letter stands for.
AXES: dict[str, str] = {
    "b": "batch: sequences computed together",
    "t": "new tokens per sequence (the queries)",
    "u": "a GPU's part of these",
    "s": "tokens attended to (the keys): cached and new",
    "t:s": "query-key pairs that are computed",
    "l": "positions whose logits are computed",
    "d": "hidden size",
    "d'": "hidden size, as the output of a square matrix",
    "dt": "a GPU's part of the hidden size",
    "c": "channels",
    "C": "columns of a state space's first matrix",
    "z": "what a channel of a state space keeps",
    "q": "rank of a state space's time step, or of linear attention's decay and gate",
    "Q": "columns that choose time step, B and C",
    "m": "heads of a state space that share B and C",
    "mw": "for each head of values, what is written and what is forgotten",
    "j'": "chunks of tokens, as the source of a state",
    "j:j'": "pairs of chunks",
    "t:j": "tokens, each with its chunk's first state",
    "k": "key-value heads",
    "g": "query heads that share a key-value head",
    "h": "head size",
    "r": "elements of a head that rotary embedding turns",
    "h'": "size of a head's values, where it is not that of its keys",
    "hr": "head size of queries and keys: elements that do not turn, and those that do",
    "hg": "what one head of queries gets: query and gate",
    "hv": "keys and values that one head takes from the latent",
    "zk": "width of the latent that keys and values come from",
    "zq": "width of the latent that queries come from",
    "ki": "heads of the indexer",
    "hi": "head size of the indexer",
    "si": "tokens that the indexer keeps",
    "f": "width of the MLP, or of an expert",
    "a": "numbers that an activation has learned",
    "F": "twice that width: gate and up in one matrix",
    "L": "layers",
    "y": "width of a layer's own input",
    "x": "experts",
    "b:t:x": "token-expert pairs that the router chose",
    "b:t:X": "token-expert pairs of experts on any GPU",
    "e": "width of the token embedding, where it is not the hidden size",
    "v": "vocabulary",
    "V": "vocabulary of all GPUs",
    "p": "rows of a table of positions, of token types, of tasks",
    "w": "rows of a table of relative positions",
    "t+r": "tokens that a filter touches as it slides",
    "M": "rows of a plain matrix",
    "N": "columns of a plain matrix",
    "K": "what a plain matrix product sums over",
    "E": "elements of a vector",
    "X": "points along the first side of a grid",
    "Y": "points along its second side",
    "Z": "points along its third side",
    "W": "parameters of the whole model",
    "n": "classes of a classification head",
    "o": "channels that a filter gives",
    "i": "rows of a map of pixels",
    "j": "columns of a map of pixels",
    "i+r": "rows that a filter touches as it slides",
    "j+s": "columns that a filter touches as it slides",
}
OTHERWISE: dict[str, dict[str, str]] = {
    "r": {"i+r": "rows of a filter", "t+r": "tokens that a filter sees"},
    "s": {"j+s": "columns of a filter"},
    "g": {"i": "groups of channels that a filter keeps apart", "i+r": "groups of channels that a filter keeps apart"},
    "i": {"t+r": "channels that a filter over tokens reads"},
    "j": {"j'": "chunks of tokens", "t:j": "chunks of tokens"},
    "k": {"m": "heads of queries and keys"},
    "m": {"k": "heads of values that share queries and keys"},
    "C": {"h'": "columns of one matrix for queries, keys, values and gate"},
}
"""Letters that mean something else beside some other axis: that one -> what they mean there."""


@dataclass(frozen=True)
class Tensor:
    """A named tensor of a line, such as `W_up[d f]`."""

    name: str
    axes: tuple[str, ...]

    @property
    def is_parameter(self) -> bool:
        return self.name[0].isupper()

    @property
    def is_cached(self) -> bool:
        return self.name.startswith("cache.")

    def elements(self, sizes: Sizes) -> Number:
        """How many elements the tensor holds."""
        return product(sizes[axis] for axis in self.axes)

    def __str__(self) -> str:
        return f"{self.name}[{' '.join(self.axes)}]"


@dataclass(frozen=True)
class Line:
    """A parsed line: factors, terms added to their product, and outputs."""

    text: str
    factors: tuple[Tensor, ...]
    terms: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.factors + self.terms

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The axes a contraction runs over: those of its factors, pairs taking the place of t and s, i and r of i+r."""
        axes = list(dict.fromkeys(a for tensor in self.factors for axis in tensor.axes for a in axis.split("+")))
        joint = {axis for tensor in self.factors + self.outputs for axis in tensor.axes if ":" in axis}
        covered = joint.union(*(split_axes([axis]) for axis in joint))
        return tuple(axis for axis in axes if axis not in covered) + tuple(sorted(joint))

    @cached_property
    def contracted(self) -> tuple[str, ...]:
        """The axes summed over: shared by both factors, absent from the outputs. Empty: no contraction."""
        if len(self.factors) != 2 or "=>" in self.text:
            return ()
        kept = {axis for tensor in self.outputs for axis in split_axes(tensor.axes)}
        a, b = (split_axes(tensor.axes) for tensor in self.factors)
        return tuple(axis for axis in a if axis in b and axis not in kept)


NAME = re.compile(r"[A-Za-z][\w.]*(?=\[)")
_TENSOR = re.compile(r"\s*([A-Za-z][\w.]*)\[([\w':+\s]*)\]")
_PLUS = re.compile(r"\+(?![^\[]*\])")  # between tensors, not within one


@cache
def parse(text: str) -> Line:
    """Read `x[b t d] W[d f] + B[f] -> u[b t f]`. Raises ValueError that quotes the line."""
    left, arrow, right = text.replace("=>", "->").partition("->")
    if not arrow:
        raise ValueError(f"{text!r}: an operator needs '->' between what it reads and what it writes")
    products, *terms = _PLUS.split(left)
    return Line(
        text=text,
        factors=_tensors(products, text),
        terms=tuple(tensor for term in terms for tensor in _tensors(term, text)),
        outputs=_tensors(right, text),
    )


def _tensors(part: str, text: str) -> tuple[Tensor, ...]:
    found, position = [], 0
    while match := _TENSOR.match(part, position):
        found.append(Tensor(match.group(1), tuple(match.group(2).split())))
        position = match.end()
    if part[position:].strip() or not found:
        raise ValueError(f"{text!r}: {part[position:].strip()!r} is not a tensor such as x[b t d]")
    return tuple(found)


def split_axes(axes: Iterable[str]) -> tuple[str, ...]:
    """The single axes of joint (`t:s`) and sliding (`i+r`) axes."""
    """The single axes of joint (`t:s`) and sliding (`i+r`) axes."""
    return tuple(part for axis in axes for part in re.split("[:+]", axis))
