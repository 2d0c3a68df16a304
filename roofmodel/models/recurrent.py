"""Token mixers with a cache of fixed size: state spaces, linear attention, short convolutions.

Sizes are elements: ints, or SymPy symbols.
"""

from typing import NamedTuple

from roofmodel.models.norms_and_activations import Norm
from roofmodel.numbers.algebra import Number


class Mamba(NamedTuple):
    """Mamba: a state of `state` numbers per channel, after a causal convolution (arXiv 2312.00752)."""

    width: Number  # channels
    state: Number
    rank: Number  # of the projection that computes a channel's time step
    kernel: Number  # tokens of the causal convolution
    activation: str
    kernel_bias: bool = True
    bias: bool = False
    out_bias: bool = False
    norm: Norm | None = None  # on time step, B and C

    @property
    def cached(self) -> Number:
        """Elements per sequence in the cache, at any length: the states, the convolution's last tokens."""
        return self.width * (self.state + self.kernel)


class Mamba2(NamedTuple):
    """Mamba-2: `head_dim` x `state` numbers per head, computed in chunks (arXiv 2405.21060); groups share B and C."""

    heads: Number
    head_dim: Number
    state: Number
    groups: Number
    kernel: Number  # tokens of the causal convolution
    chunk: Number
    activation: str
    kernel_bias: bool = True
    bias: bool = False
    out_bias: bool = False
    norm: bool = True  # the gate is a gated RMS norm

    @property
    def cached(self) -> Number:
        """Elements per sequence in the cache, at any length: the states, the convolution's last tokens."""
        width = self.heads * self.head_dim
        return width * self.state + (width + 2 * self.groups * self.state) * self.kernel


class ShortConvolution(NamedTuple):
    """A causal depthwise convolution over `kernel` tokens, between two input-dependent gates (LFM2)."""

    width: Number  # channels
    kernel: Number
    bias: bool = False  # of the convolution and of the projections before and after it

    @property
    def cached(self) -> Number:
        """Elements per sequence in the cache, at any length: the convolution's last tokens."""
        return self.width * self.kernel


class DeltaRule(NamedTuple):
    """Linear attention by the gated delta rule (arXiv 2412.06464): a state of `head_dim` x `value_dim` per head.

    `heads` counts query and key heads; each serves the same number of value heads. `projections` lists the input
    matrices by what each computes: `qkv` (or `q`, `k`, `v`), which go through the convolution, `gate`, `write` (how
    much of a value is written) and `forget` (how fast the state decays).
    """

    heads: Number
    value_heads: Number
    head_dim: Number
    value_dim: Number
    kernel: Number  # tokens of the causal convolution
    chunk: Number
    activation: str
    projections: tuple[tuple[str, ...], ...]
    gate: str = "silu"
    decay_per_channel: bool = False  # one decay per element of a key instead of one per head (Kimi, arXiv 2510.26692)
    sigmoid_decay: bool = False  # the decay is bounded by a sigmoid; otherwise by a softplus
    gate_rank: Number | None = None  # of the low-rank projections for `forget` and `gate`; None: full matrices

    @property
    def filtered(self) -> Number:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.heads * self.head_dim + self.value_heads * self.value_dim

    @property
    def cached(self) -> Number:
        """Elements per sequence in the cache, at any length: the states, the convolution's last tokens."""
        return self.value_heads * self.head_dim * self.value_dim + self.filtered * self.kernel


class Lightning(NamedTuple):
    """Lightning attention: linear attention with a fixed decay per head, in blocks of tokens (arXiv 2401.04658)."""

    heads: Number
    head_dim: Number
    block: Number
    activation: str

    @property
    def cached(self) -> Number:
        """Elements per sequence in the cache, at any length: a state per head."""
        return self.heads * self.head_dim**2
