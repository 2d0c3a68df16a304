"""Number formats, and the format of each tensor by its role (weights, KV cache, activations, optimizer state).

A format has bits per element and, for block formats, a scale per block. Sources:

* int4 as in GPTQ and AWQ checkpoints: groups of 128 with an fp16 scale and a 4-bit zero point (arXiv 2210.17323,
  2306.00978); int4_g32 and int4_g64 have groups of that size, and the _sym formats have no zero point, as in symmetric
  compressed-tensors checkpoints;
* nf4 as in bitsandbytes without double quantization: blocks of 64 with an fp32 scale (QLoRA, arXiv 2305.14314);
  nf4_double: with it, the scales have 8 bits; their own scales, one fp32 number per 256 of them, are not counted;
* fp8_block as in DeepSeek-V3: tiles of 128 x 128 with an fp32 scale (arXiv 2412.19437, section 3.3);
* mxfp4: blocks of 32 with an 8-bit shared exponent (OCP Microscaling Formats specification v1.0);
* 4.5bit, or any such number: the mean of a format that has no name, scales included;
* nvfp4: blocks of 16 with an fp8 (e4m3) scale (NVIDIA Blackwell architecture technical brief); the second scale, one
  fp32 number per tensor, is not counted.
"""

from __future__ import annotations

from typing import NamedTuple, get_args

from roofmodel.counting.notation import Tensor
from roofmodel.numbers.algebra import Number, ceil_div, either
from roofmodel.options.values import ComputeFormat, mean_bits


class Format(NamedTuple):
    """A number format: bits per element, and size and scale bits of its blocks, if any."""

    name: str
    bits: int
    block: int = 0
    scale_bits: int = 0

    def bytes(self, elements: Number) -> Number:
        """Bytes of `elements` elements, including scales; exact for ints."""
        if self.block == 0 and self.bits % 8 == 0:
            return elements * (self.bits // 8)
        scales = ceil_div(elements, self.block) * self.scale_bits if self.block else 0
        return ceil_div(elements * self.bits + scales, 8)


FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format("fp64", 64),
        Format("fp32", 32),
        Format("tf32", 32),  # 19 bits in arithmetic, stored as fp32
        Format("bf16", 16),
        Format("fp16", 16),
        Format("fp8", 8),
        Format("fp8_block", 8, block=128 * 128, scale_bits=32),
        Format("int8", 8),
        Format("fp4", 4),  # in arithmetic; weights are stored as nvfp4 or mxfp4, with scales
        Format("int4", 4, block=128, scale_bits=16 + 4),
        Format("int4_g64", 4, block=64, scale_bits=16 + 4),
        Format("int4_g32", 4, block=32, scale_bits=16 + 4),
        Format("int4_sym", 4, block=128, scale_bits=16),
        Format("int4_g64_sym", 4, block=64, scale_bits=16),
        Format("int4_g32_sym", 4, block=32, scale_bits=16),
        Format("nf4", 4, block=64, scale_bits=32),
        Format("nf4_double", 4, block=64, scale_bits=8),
        Format("mxfp4", 4, block=32, scale_bits=8),
        Format("nvfp4", 4, block=16, scale_bits=8),
    )
}
COMPUTE_FORMATS: tuple[str, ...] = get_args(ComputeFormat)
"""Formats for arithmetic; the others are for storage only."""


def number_format(name: str) -> Format:
    """The format of a name: one of FORMATS, or a mean such as `4.65bit`. Raises KeyError for another name."""
    bits = mean_bits(name)
    if bits is None:
        return FORMATS[name]
    width, rest = divmod(bits.numerator, bits.denominator)
    return Format(name, width, block=bits.denominator, scale_bits=rest) if rest else Format(name, width)


INDEX = Format("int32", 32)
"""The format of row and column indices of a sparse matrix."""
MASK = Format("bool", 8)
"""The format of a dropout mask."""


class Widths(NamedTuple):
    """The number format of each role of a tensor.

    A weight format narrower than 16 bits applies only to the matrices of linear layers (named `W_...`), as in
    quantized checkpoints. Embedding tables, the matrix before the logits, norms and biases keep the working format, and
    so do the matrices named in `unconverted` (quantized_modules.py). Checkpoints with several formats have those of
    single matrices in `by_matrix`, and that of a converted head or token table.
    """

    dtype: Format  # the working format: that of activations
    weights: Format
    kv: Format
    gemm: Format | None = None  # the compute format of GEMMs; None: the working format
    unconverted: frozenset[str] = frozenset()  # weight matrices that a quantized checkpoint does not convert
    by_matrix: tuple[tuple[str, Format], ...] = ()  # matrices in other formats

    @property
    def compute(self) -> str:
        """The name of the compute format of GEMMs."""
        return (self.gemm or self.dtype).name

    @property
    def gemm_input(self) -> Format:
        """The format in which a GEMM reads its input: the compute format, if it is narrower than the working format."""
        return self.dtype if self.gemm is None or self.gemm.bits >= self.dtype.bits else self.gemm

    def unconverted_compute(self, gemm: str) -> str:
        """The format in which GEMMs with weights in the working format compute, where others compute in `gemm`."""
        return gemm if FORMATS[gemm].bits >= 16 else self.dtype.name

    def attention_compute(self, gemm: str) -> str:
        """The format in which attention computes: at least 16 bits where its inputs and the KV cache have as many."""
        return self.unconverted_compute(gemm) if min(self.dtype.bits, self.kv.bits) >= 16 else gemm

    def compute_format(self, name: str) -> Format:
        """The format `name`, in which an operator computes."""
        return self.dtype if self.dtype.name == name else FORMATS[name]

    def format(self, tensor: Tensor) -> Format:
        """The storage format of a tensor; a gradient has the format of its tensor."""
        if tensor.is_cached:
            return self.kv
        if tensor.name.startswith("index."):
            return INDEX
        if tensor.name.startswith("mask."):
            return MASK
        if tensor.name.startswith("state."):
            return self.state
        name = tensor.name.removeprefix("grad.")
        if self.by_matrix and name not in self.unconverted and (own_format := dict(self.by_matrix).get(name)):
            return own_format
        if name.startswith("W_") and name not in self.unconverted:
            return self.weights
        return self.others if name[0].isupper() else self.dtype

    def keeps_working_format(self, tensor: Tensor) -> bool:
        """Whether a tensor is a parameter to which a weight format below 16 bits does not apply."""
        name = tensor.name
        is_converted = (name.startswith("W_") or name in dict(self.by_matrix)) and name not in self.unconverted
        return tensor.is_parameter and not is_converted

    @property
    def others(self) -> Format:
        """The format of parameters other than the matrices of linear layers."""
        other_format: Format = either(self.weights.bits >= 16, self.weights, self.dtype)
        return other_format

    @property
    def state(self) -> Format:
        """The format of the optimizer state: fp32, or that of the weights if it is wider."""
        return max(self.weights, FORMATS["fp32"], key=lambda form: form.bits)

    def bytes(self, tensor: Tensor, elements: Number) -> Number:
        """Bytes of `elements` elements of a tensor."""
        return self.format(tensor).bytes(elements)
