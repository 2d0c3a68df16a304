"""Widths: how many bytes an element takes, by the role of its tensor.

A format is bits per element plus, for block formats, the scale that each block of elements carries.
Sources: int4 as GPTQ and AWQ checkpoints store it, groups of 128 with an fp16 scale and a 4-bit zero
point (arXiv 2210.17323, 2306.00978); nf4 as bitsandbytes stores it without double quantisation,
blocks of 64 with an fp32 scale (QLoRA, arXiv 2305.14314); fp8_block as DeepSeek-V3's, tiles of 128 x 128 with an
fp32 scale (arXiv 2412.19437, section 3.3); mxfp4, blocks of 32 with an 8-bit shared
exponent (OCP Microscaling Formats specification v1.0).
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.algebra import Number, ceil_div, either
from roofmodel.counting.notation import Tensor


class Format(NamedTuple):
    """A number format: bits an element, and the block that shares a scale, if any."""

    name: str
    bits: int
    block: int = 0
    scale_bits: int = 0

    def bytes(self, elements: Number) -> Number:
        """Bytes that so many elements take, scales included; exact for ints."""
        if self.block == 0 and self.bits % 8 == 0:
            return elements * (self.bits // 8)
        scales = ceil_div(elements, self.block) * self.scale_bits if self.block else 0
        return ceil_div(elements * self.bits + scales, 8)


FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format("fp64", 64),
        Format("fp32", 32),
        Format("tf32", 32),  # computed with 19 bits, stored as fp32
        Format("bf16", 16),
        Format("fp16", 16),
        Format("fp8", 8),
        Format("fp8_block", 8, block=128 * 128, scale_bits=32),
        Format("int8", 8),
        Format("int4", 4, block=128, scale_bits=16 + 4),
        Format("nf4", 4, block=64, scale_bits=32),
        Format("mxfp4", 4, block=32, scale_bits=8),
    )
}
COMPUTE_FORMATS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
"""Formats that arithmetic is done in (`--dtype`); the others only store (`--weights`, `--kv`)."""


class Widths(NamedTuple):
    """The format of each role.

    A weight format narrower than 16 bits applies to the matrices of linear operators (named `W_...`),
    as quantised checkpoints have it: the embedding tables, the matrix before the logits, norms and
    biases keep the working format.
    """

    dtype: Format  # the working format: of what goes from operator to operator
    weights: Format
    kv: Format
    products: Format | None = None  # that products are computed in; None: the working format

    @property
    def compute(self) -> str:
        """The name of the format that products are computed in."""
        return (self.products or self.dtype).name

    def format(self, tensor: Tensor) -> Format:
        """The format that a tensor is stored in; a gradient in that of its tensor."""
        if tensor.is_cached:
            return self.kv
        if tensor.name.startswith("state."):
            return self.state
        name = tensor.name.removeprefix("grad.")
        if name.startswith("W_"):
            return self.weights
        return self.others if name[0].isupper() else self.dtype

    @property
    def others(self) -> Format:
        """The format of parameters other than the matrices of linear operators."""
        found: Format = either(self.weights.bits >= 16, self.weights, self.dtype)
        return found

    @property
    def state(self) -> Format:
        """The format of the optimizer's state: fp32, or wider where the weights are."""
        return max(self.weights, FORMATS["fp32"], key=lambda form: form.bits)

    def bytes(self, tensor: Tensor, elements: Number) -> Number:
        """Bytes that so many elements of a tensor take."""
        return self.format(tensor).bytes(elements)
