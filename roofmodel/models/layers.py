"""A transformer layer: its sublayers, their branches, and the MLP and MoE blocks.

Sizes are elements: ints, or SymPy symbols.
"""

from typing import NamedTuple

from roofmodel.models.attention import Attention, CrossAttention, LatentAttention
from roofmodel.models.norms_and_activations import Norm
from roofmodel.models.recurrent import DeltaRule, Lightning, Mamba, Mamba2, ShortConvolution
from roofmodel.numbers.algebra import Number


class MLP(NamedTuple):
    """An up projection, an activation and a down projection; gated: a third matrix, or one fused with the up matrix."""

    width: Number
    activation: str
    gated: bool = False
    fused: bool = False  # one matrix holds gate and up
    bias: bool = False


class MoE(NamedTuple):
    """Mixture of experts: a router sends each token to `active` of `experts` MLPs; a shared MLP takes every token."""

    experts: Number
    active: Number
    expert: MLP
    shared: MLP | None = None
    shared_gate: bool = False  # a scalar per token scales the output of the shared MLP
    router_bias: bool = False
    correction: bool = False  # a learned number per expert corrects the router's scores
    router_norm: Norm | None = None  # the router reads the residual stream through its own norm
    groups: int = 1  # of experts; a token has experts of `active_groups` of them
    active_groups: int = 1


class PerLayerGate(NamedTuple):
    """Adds the layer's slice of a `PerLayerEmbedding`, multiplied by a gate and projected to the hidden size."""

    layers: Number
    width: Number
    activation: str


class TokenConvolution(NamedTuple):
    """A convolution over `kernel` neighboring tokens, with its channels in `groups`."""

    kernel: Number
    groups: Number
    activation: str


Part = (
    Attention
    | LatentAttention
    | CrossAttention
    | Mamba
    | Mamba2
    | DeltaRule
    | Lightning
    | ShortConvolution
    | MLP
    | MoE
    | PerLayerGate
    | TokenConvolution
)


class Branch(NamedTuple):
    """A part of a sublayer with the norms around it."""

    part: Part
    before: Norm | None  # on its input; None: the branch shares the normed input of the branch before it
    after: Norm | None = None  # on its output, before the residual sum


class Sublayer(NamedTuple):
    """Parallel branches with the same input, and the residual sum of their outputs and that input."""

    branches: tuple[Branch, ...]
    after: Norm | None = None  # on the residual sum
    sum_norm: Norm | None = None  # on the sum of the branches, before the residual sum


Layer = tuple[Sublayer, ...]
"""Sublayers in sequence: attention and MLP in two of them, or in parallel in one."""


def parts(layer: Layer) -> tuple[Part, ...]:
    """Every part of a layer, in order."""
    return tuple(branch.part for sub in layer for branch in sub.branches)
