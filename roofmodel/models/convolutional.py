"""Convolutional networks: their steps, residual blocks and stages."""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.algebra import Number
from roofmodel.models.norms_and_activations import Norm

Sides = Number | tuple[Number, Number]
"""Pixels a side; rows and columns where they differ."""


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
