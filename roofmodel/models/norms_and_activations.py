"""Norms of a model, and the activation functions that configs name."""

from __future__ import annotations

from typing import Literal, NamedTuple


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


# What transformers calls an activation (transformers.activations.ACT2FN) -> the function it is.
ACTIVATIONS = {
    **{name: name for name in ("linear", "relu", "relu2", "relu6", "leaky_relu", "tanh", "sigmoid", "mish")},
    **dict.fromkeys(("silu", "swish"), "silu"),
    **dict.fromkeys(("gelu", "gelu_10", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_accurate"), "gelu_new"),
    "gelu_fast": "gelu_fast",
    **dict.fromkeys(("gelu_pytorch_tanh", "gelu_python_tanh"), "gelu_tanh"),
    "quick_gelu": "gelu_quick",
    "xielu": "xielu",
}
