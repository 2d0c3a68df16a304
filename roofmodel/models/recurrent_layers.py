"""Recurrent layers as data: state spaces, linear attention and short convolutions, whose caches do not grow.

Sizes are elements: ints, or SymPy symbols.
"""

from typing import NamedTuple

from roofmodel.numbers.algebra import Number


class Mamba2(NamedTuple):
    """Mamba-2: `head_dim` x `state` numbers per head, computed in chunks (arXiv 2405.21060); groups share B and C."""

    heads: Number
    head_dim: Number
    state: Number
    groups: Number
    filter: Number  # tokens of the causal convolution
    chunk: Number
    activation: str
    filter_bias: bool = True
    bias: bool = False
    out_bias: bool = False
    gate_norm: bool = True  # the gate is a gated RMS norm

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """The states and the last tokens of the convolution, at any length."""
        width = self.heads * self.head_dim
        return width * self.state, (width + 2 * self.groups * self.state) * self.filter


class GatedRecurrence(NamedTuple):
    """RG-LRU (Griffin, arXiv 2402.19427): one state per channel, whose gates each head computes from its channels."""

    heads: Number
    width: Number  # channels
    filter: Number  # tokens of the causal convolution
    activation: str  # of the gate on the output

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """The states and the last tokens of the convolution, at any length."""
        return self.width, self.width * self.filter


class TimeMix(NamedTuple):
    """RWKV's time mixing: per channel a mean of values with decaying weights, exp(key) (arXiv 2305.13048)."""

    hidden: Number
    width: Number  # channels

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """The last token, and numerator, denominator and largest exponent per channel, at any length."""
        return self.hidden, 3 * self.width


class ChannelMix(NamedTuple):
    """RWKV's MLP: it reads a mix of the token and the one before; a gate scales its output (arXiv 2305.13048)."""

    hidden: Number
    width: Number
    activation: str

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """The last token, at any length."""
        return (self.hidden,)


class ShortConvolution(NamedTuple):
    """A causal depthwise convolution over `filter` tokens, between two input-dependent gates (LFM2)."""

    width: Number  # channels
    filter: Number
    filter_bias: bool = False  # of the convolution and of the projections before and after it

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """The last tokens of the convolution, at any length."""
        return (self.width * self.filter,)


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
    filter: Number  # tokens of the causal convolution
    chunk: Number
    activation: str
    projections: tuple[tuple[str, ...], ...]
    gate: str = "silu"
    decay_per_channel: bool = False  # one decay per element of a key instead of one per head (Kimi, arXiv 2510.26692)
    sigmoid_decay: bool = False  # the decay is bounded by a sigmoid; otherwise by a softplus
    gate_rank: Number | None = None  # of the low-rank projections for `forget` and `gate`; None: full matrices
    full_gate: bool = False  # the projection for `gate` is a full matrix in any case

    @property
    def filtered(self) -> Number:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.heads * self.head_dim + self.value_heads * self.value_dim

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """The states and the last tokens of the convolution, at any length."""
        return self.value_heads * self.head_dim * self.value_dim, self.filtered * self.filter


class Lightning(NamedTuple):
    """Lightning attention: linear attention with a fixed decay per head, in blocks of tokens (arXiv 2401.04658)."""

    heads: Number
    head_dim: Number
    chunk: Number
    activation: str

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """A state per head, at any length."""
        return (self.heads * self.head_dim**2,)


class MatrixMemory(NamedTuple):
    """mLSTM: linear attention with an input gate and a forget gate per head (xLSTM, arXiv 2405.04517, section 2.3)."""

    heads: Number
    head_dim: Number
    value_dim: Number
    chunk: Number
    fused: bool = False  # one matrix for queries, keys, values and the gate on the output; one for the other gates

    def cached(self, tokens: Number, source: Number) -> tuple[Number, ...]:
        """A state, its normalizer and the largest exponent per head, at any length."""
        return self.heads * self.head_dim * self.value_dim, self.heads * self.head_dim, self.heads
