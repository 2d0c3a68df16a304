"""Parts of convolutional networks: steps, residual blocks and stages; `architecture.Network` is made of them."""

from typing import NamedTuple

from roofmodel.models.layers import Norm
from roofmodel.numbers.algebra import Number

Sides = Number | tuple[Number, Number]
"""Pixels per side; rows and columns if they differ."""


class Convolution(NamedTuple):
    """A 2D convolution with `out` output channels."""

    name: str
    out: Number
    kernel: Sides = 1
    stride: Sides = 1
    padding: Number = 0  # pixels of zeros on each side
    groups: Number = 1  # of channels; as many as channels: depthwise
    bias: bool = False


class Pool(NamedTuple):
    """Max pooling over windows of `kernel` x `kernel` pixels."""

    kernel: Number
    stride: Number
    padding: Number = 0


class Activation(NamedTuple):
    """An elementwise function, by its name in `counting.vector_flops.ACTIVATION`."""

    function: str


class Scale(NamedTuple):
    """A learned factor per channel."""


class ResponseNorm(NamedTuple):
    """Global response normalization: each channel is scaled by its norm over all pixels, relative to the mean norm."""


PixelStep = Convolution | Norm | Activation | Pool | Scale | ResponseNorm


class Residual(NamedTuple):
    """A residual block: a path of steps, and a shortcut that is not the identity where the shape changes."""

    path: tuple[PixelStep, ...]
    shortcut: tuple[PixelStep, ...] = ()
    after: tuple[PixelStep, ...] = ()  # on the sum


class Stage(NamedTuple):
    """Residual blocks in sequence, after the steps in `entry`."""

    blocks: tuple[Residual, ...]
    entry: tuple[PixelStep, ...] = ()
