"""Norms, and activation functions by the names that configs use."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Norm(NamedTuple):
    """A norm over the last axis; in a convolutional network, a batch norm with stored statistics.

    Layer norm: Ba et al., arXiv 1607.06450. RMS norm: Zhang and Sennrich, arXiv 1910.07467. Batch norm: Ioffe and
    Szegedy, arXiv 1502.03167.
    """

    kind: Literal["layernorm", "rmsnorm", "batchnorm"]
    gain: bool = True
    bias: bool = True


class HeadNorm(NamedTuple):
    """The norm of queries and keys. `gains`: all heads share one vector of gains, or each has its own."""

    norm: Norm
    gains: Literal["shared", "each"] = "shared"


# Name in transformers (transformers.activations.ACT2FN) -> function that is counted
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
