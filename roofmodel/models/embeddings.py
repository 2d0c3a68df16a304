"""What precedes the layers of a transformer: token and position tables, audio convolutions, image patches."""

from typing import Literal, NamedTuple

from roofmodel.models.norms_and_activations import Norm
from roofmodel.numbers.algebra import Number


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
    channels: Number
    special: tuple[str, ...]  # names of the special tokens
    norm: None = None

    def tokens(self, image: tuple[Number, Number]) -> Number:
        """Number of tokens for an image in pixels; pixels that do not fill a patch are dropped."""
        return len(self.special) + (image[0] // self.patch[0]) * (image[1] // self.patch[1])
