"""A transformer layer: its sublayers, their branches, and the MLP and MoE blocks.

Sizes are elements: ints, or SymPy symbols.
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.algebra import Number
from roofmodel.models.attention import Attention, CrossAttention, LatentAttention
from roofmodel.models.norms_and_activations import Norm
from roofmodel.models.recurrent import DeltaRule, Lightning, Mamba, Mamba2, ShortConvolution


class MLP(NamedTuple):
    """Two linear operators around an activation; three where a gate multiplies it, or two of them in one matrix."""

    width: Number
    activation: str
    gated: bool = False
    fused: bool = False  # one matrix holds gate and up
    bias: bool = False


class MoE(NamedTuple):
    """A router sends each token to `active` of `experts` MLPs; a shared one, if any, takes every token."""

    experts: Number
    active: Number
    expert: MLP
    shared: MLP | None = None
    shared_gate: bool = False  # a scalar per token weighs the shared one
    router_bias: bool = False
    correction: bool = False  # a learned number per expert joins the choice
    router_norm: Norm | None = None  # the router reads what the layer carries along, through a norm of its own


class LayerInput(NamedTuple):
    """A gate on one of the inputs that the embedding gives `layers` of (`LayerInputs`), and the way up to the layer."""

    layers: Number
    width: Number
    activation: str


class TokenConvolution(NamedTuple):
    """A filter over `kernel` neighbouring tokens, whose channels fall into `groups` that it keeps apart."""

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
    | LayerInput
    | TokenConvolution
)


class Branch(NamedTuple):
    """A part with the norms around it."""

    part: Part
    before: Norm | None  # on what it reads; without one it reads what the branch beside it reads
    after: Norm | None = None  # on what it gives, ahead of the sum


class Sublayer(NamedTuple):
    """Branches that read the same input, side by side, and the sum that joins them to it."""

    branches: tuple[Branch, ...]
    after: Norm | None = None  # on the sum
    together: Norm | None = None  # on the sum of what the branches give, ahead of that


Layer = tuple[Sublayer, ...]
"""Sublayers, one after another: attention and MLP in two of them, or side by side in one."""


def parts(layer: Layer) -> tuple[Part, ...]:
    """Every part of a layer."""
    return tuple(branch.part for sub in layer for branch in sub.branches)
