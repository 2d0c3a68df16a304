"""The notation of operators: one line of text that names tensors and their axes.

    "x[b t d] W_up[d f] + B_up[f] -> u[b t f]"

Tensor names give the role of a tensor:

* `W_up`: a matrix of a linear layer, which quantized checkpoints quantize;
* `E_token`, `B_up`, `G_norm`: other parameters (tables, biases, gains), stored in the working format;
* `cache.k`: a tensor in the KV cache;
* `index.column`: 32-bit indices;
* `mask.p`: the dropout mask of `p`, 1 byte per element;
* anything else: an activation.

Axes and arrows:

* `t:s` is a joint axis: the (query, key) pairs that are computed. It replaces `t` and `s`. Its size is t x s if all
  pairs are computed, and less if a fused kernel skips masked pairs.
* `i+r` is a sliding axis: `x[b c i+r j+s] W[o c r s] -> y[b o i j]` is a convolution. The contraction runs over `i`
  (output positions) and `r` (filter positions). The size of `i+r` is the number of input rows that the filter covers,
  from which the bytes follow.
* `=>` instead of `->`: the operator states its FLOPs explicitly and is not a contraction, although an axis may be
  summed over (a weighted sum on the vector units, for example).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

from roofmodel.numbers.algebra import Number, product

Sizes = Mapping[str, Number]
"""Axis -> size: `{"b": 1, "t": 1024, "d": 1600, ...}`."""


# What an axis letter stands for.
AXES: dict[str, str] = {
    "b": "batch: sequences computed together",
    "t": "new tokens per sequence (queries)",
    "u": "new tokens per sequence on one GPU (sequence parallelism)",
    "s": "tokens attended to (keys): cached and new",
    "t:s": "query-key pairs that are computed",
    "l": "positions whose logits are computed",
    "d": "hidden size",
    "d'": "hidden size, as the output of a square matrix",
    "dt": "hidden size on one GPU",
    "c": "channels",
    "C": "columns of the input projection of a state-space model",
    "z": "state size per channel of a state-space model",
    "q": "rank of the time step (state-space models), or of decay and gate (linear attention)",
    "Q": "columns that give time step, B and C",
    "m": "heads of a state-space model that share B and C",
    "mw": "write strength and decay of each value head",
    "j'": "chunks of tokens, as the source of a state",
    "j:j'": "pairs of chunks",
    "t:j": "tokens, each with the initial state of its chunk",
    "k": "key-value heads",
    "g": "query heads per key-value head",
    "kd": "key-value heads in one half of the values",
    "gd": "query heads that use one of these",
    "h": "head size",
    "r": "rotary dimension: elements of a head that rotary embedding rotates",
    "h'": "head size of the values, where it differs from that of the keys",
    "hr": "head size of queries and keys: NoPE and rotary dimensions together",
    "hg": "query and gate of one query head",
    "hv": "key and value of one head, from the latent",
    "zk": "rank of the key-value latent",
    "zq": "rank of the query latent",
    "ki": "heads of the indexer",
    "hi": "head size of the indexer",
    "si": "tokens that the indexer keeps",
    "t:sb": "pairs of a query and a block of keys that is not ahead of it",
    "t:kb": "pairs of a query and a block that the indexer keeps",
    "f": "MLP width, or width of one expert",
    "a": "learned parameters of an activation function",
    "F": "twice the MLP width: gate and up in one matrix",
    "L": "layers",
    "y": "width of the per-layer inputs",
    "x": "experts",
    "b:t:x": "token-expert pairs that the router chose",
    "b:t:X": "token-expert pairs for the experts on all GPUs",
    "e": "width of the token embedding, where it differs from the hidden size",
    "v": "vocabulary size",
    "V": "vocabulary size over all GPUs",
    "p": "rows of the position, token-type or task table",
    "w": "rows of the relative-position table",
    "t+r": "tokens that a sliding filter covers",
    "M": "rows of a matrix",
    "N": "columns of a matrix",
    "K": "contracted dimension of a matrix multiplication",
    "E": "elements of a vector",
    "nz": "nonzeros per row of a sparse matrix",
    "E1": "rows of a sparse matrix, and one: the ends of its rows",
    "ri": "real and imaginary part",
    "xyzm": "coordinates and mass of a body",
    "xyz": "coordinates",
    "X": "points along the first dimension of a grid",
    "Y": "points along the second dimension of a grid",
    "Z": "points along the third dimension of a grid",
    "W": "parameters of the whole model",
    "Ws": "parameters whose optimizer state is on one GPU",
    "n": "classes of a classification head",
    "o": "output channels of a filter",
    "i": "rows of a feature map",
    "j": "columns of a feature map",
    "i+r": "rows that a sliding filter covers",
    "j+s": "columns that a sliding filter covers",
}
AXIS_OVERRIDES: dict[str, dict[str, str]] = {
    "r": {"i+r": "rows of a filter", "t+r": "tokens per filter"},
    "s": {"j+s": "columns of a filter"},
    "g": {
        "i": "groups of a grouped convolution",
        "i+r": "groups of a grouped convolution",
        **dict.fromkeys(("m", "z"), "groups of heads of a state-space model: each group shares B and C"),
    },
    "i": {"t+r": "input channels of a filter over tokens"},
    "j": {"j'": "chunks of tokens", "t:j": "chunks of tokens"},
    "k": {"m": "heads of queries and keys"},
    "m": {"k": "value heads per query-key head"},
    "C": {"h'": "columns of one matrix for queries, keys, values and gate"},
}
"""Letters with another meaning in operators that have a certain other axis: letter -> other axis -> meaning."""


class Tensor(NamedTuple):
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
        """Number of elements: the product of the axis sizes."""
        return product(sizes[axis] for axis in self.axes)

    def __str__(self) -> str:
        return f"{self.name}[{' '.join(self.axes)}]"


@dataclass(frozen=True)
class OperatorLine:
    """A parsed line: factors that are multiplied, terms that are added, outputs."""

    text: str
    factors: tuple[Tensor, ...]
    terms: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.factors + self.terms

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The loop axes of a contraction: the axes of its factors; `t:s` replaces t and s, `i+r` counts as i and r."""
        axes = list(dict.fromkeys(a for tensor in self.factors for axis in tensor.axes for a in axis.split("+")))
        joint = {axis for tensor in self.factors + self.outputs for axis in tensor.axes if ":" in axis}
        covered = joint.union(*(split_axes([axis]) for axis in joint))
        return tuple(axis for axis in axes if axis not in covered) + tuple(sorted(joint))

    @cached_property
    def contracted(self) -> tuple[str, ...]:
        """The axes summed over: those in both factors but in no output. Empty if the line is not a contraction."""
        if len(self.factors) != 2 or "=>" in self.text:
            return ()
        output_axes = {axis for tensor in self.outputs for axis in split_axes(tensor.axes)}
        a, b = (split_axes(tensor.axes) for tensor in self.factors)
        return tuple(axis for axis in a if axis in b and axis not in output_axes)


NAME = re.compile(r"[A-Za-z][\w.]*(?=\[)")
_TENSOR = re.compile(r"\s*([A-Za-z][\w.]*)\[([\w':+\s]*)\]")
_PLUS = re.compile(r"\+(?![^\[]*\])")  # between tensors, not inside brackets


@cache
def parse(text: str) -> OperatorLine:
    """Parse a line such as `x[b t d] W[d f] + B[f] -> u[b t f]`. Raises ValueError, which quotes the line."""
    left, arrow, right = text.replace("=>", "->").partition("->")
    if not arrow:
        raise ValueError(f"{text!r}: an operator needs '->' between its inputs and its outputs")
    factors, *terms = _PLUS.split(left)
    return OperatorLine(
        text=text,
        factors=_tensors(factors, text),
        terms=tuple(tensor for term in terms for tensor in _tensors(term, text)),
        outputs=_tensors(right, text),
    )


def _tensors(part: str, text: str) -> tuple[Tensor, ...]:
    tensors, position = [], 0
    while match := _TENSOR.match(part, position):
        tensors.append(Tensor(match.group(1), tuple(match.group(2).split())))
        position = match.end()
    if part[position:].strip() or not tensors:
        raise ValueError(f"{text!r}: {part[position:].strip()!r} is not a tensor such as x[b t d]")
    return tuple(tensors)


def split_axes(axes: Iterable[str]) -> tuple[str, ...]:
    """The single axes of joint (`t:s`) and sliding (`i+r`) axes."""
    return tuple(part for axis in axes for part in re.split("[:+]", axis))
