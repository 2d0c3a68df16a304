"""Token mixers with a cache of fixed size: state spaces, linear attention, short convolutions.

Sizes are elements: ints, or SymPy symbols.
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.algebra import Number
from roofmodel.models.norms_and_activations import Norm


class Mamba(NamedTuple):
    """A state space of `state` numbers a channel, behind a causal filter `kernel` tokens wide (arXiv 2312.00752)."""

    width: Number  # channels
    state: Number
    rank: Number  # of the matrices that give a channel its time step
    kernel: Number
    activation: str
    kernel_bias: bool = True
    bias: bool = False
    out_bias: bool = False
    norm: Norm | None = None  # on time step, B and C

    @property
    def cached(self) -> Number:
        """What a sequence leaves in the cache, however long: the states, and the filter's last tokens."""
        return self.width * (self.state + self.kernel)


class Mamba2(NamedTuple):
    """A state space of `head_dim` x `state` a head, computed in chunks (arXiv 2405.21060); groups share B and C."""

    heads: Number
    head_dim: Number
    state: Number
    groups: Number
    kernel: Number
    chunk: Number
    activation: str
    kernel_bias: bool = True
    bias: bool = False
    out_bias: bool = False
    norm: bool = True  # the gate is a gated RMS norm

    @property
    def cached(self) -> Number:
        """What a sequence leaves in the cache, however long: the states, and the filter's last tokens."""
        width = self.heads * self.head_dim
        return width * self.state + (width + 2 * self.groups * self.state) * self.kernel


class ShortConvolution(NamedTuple):
    """A causal filter `kernel` tokens wide for each channel, between two gates that the token opens (LFM2)."""

    width: Number  # channels
    kernel: Number
    bias: bool = False  # of the filter and of the matrices around it

    @property
    def cached(self) -> Number:
        """What a sequence leaves in the cache, however long: the filter's last tokens."""
        return self.width * self.kernel


class DeltaRule(NamedTuple):
    """Linear attention by the gated delta rule (arXiv 2412.06464): a state of `head_dim` x `value_dim` a head.

    `heads` are those of queries and keys, each for as many of values. `matrices` says which of its inputs one matrix
    gives, by name: `qkv` (or `q`, `k`, `v`) that go through the filter, `gate`, `write` (how much of a value is
    written), `forget` (how fast the state decays).
    """

    heads: Number
    value_heads: Number
    head_dim: Number
    value_dim: Number
    kernel: Number  # of the causal filter
    chunk: Number
    activation: str
    matrices: tuple[tuple[str, ...], ...]
    gate: str = "silu"
    each: bool = False  # each element of a key decays at a pace of its own (Kimi, arXiv 2510.26692)
    bounded: bool = False  # by a sigmoid in place of a softplus
    rank: Number | None = None  # of what gives `forget` and `gate`, where that is not a matrix

    @property
    def filtered(self) -> Number:
        """Channels that go through the filter: queries, keys and values."""
        return 2 * self.heads * self.head_dim + self.value_heads * self.value_dim

    @property
    def cached(self) -> Number:
        """What a sequence leaves in the cache, however long: the states, and the filter's last tokens."""
        return self.value_heads * self.head_dim * self.value_dim + self.filtered * self.kernel


class Lightning(NamedTuple):
    """Linear attention whose heads fade at a pace that is fixed, in blocks of tokens (arXiv 2401.04658)."""

    heads: Number
    head_dim: Number
    block: Number
    activation: str

    @property
    def cached(self) -> Number:
        """What a sequence leaves in the cache, however long: a state a head."""
        return self.heads * self.head_dim**2
