"""What precedes the layers of a transformer: token and position tables, audio filters, image patches."""

from __future__ import annotations

from typing import Literal, NamedTuple

from roofmodel.algebra import Number
from roofmodel.models.norms_and_activations import Norm


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
