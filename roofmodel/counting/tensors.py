"""Tensors: the notation of operators, a line of text that names tensors and their axes; and number formats.

    "x[b t d] W_up[d f] + B_up[f] -> u[b t f]"

Tensor names give the role of a tensor:

* `W_up`: a matrix of a linear layer, which quantized checkpoints quantize;
* `H_mix`: a matrix that quantized checkpoints keep in the working format;
* `LoraA_up`, `LoraB_up`: the matrices of a low-rank adapter, stored in the working format;
* `E_token`, `B_up`, `G_norm`: other parameters (tables, biases, gains), stored in the working format;
* `cache.k`: a tensor in the KV cache;
* `index.column`: 32-bit indices;
* `mask.p`: the dropout mask of `p`, 1 byte per element;
* anything else: an activation.

Axes and arrows:

* `t:s` is a joint axis: the (query, key) pairs that are computed. It replaces `t` and `s`. Its size is t x s if all
  pairs are computed, and less if a fused kernel skips masked pairs.
* `i+r` is a sliding axis: `x[b c i+r j+s] W[o c r s] -> y[b o i j]` is a convolution. The contraction runs over `i`
  (output positions) and `r` (filter positions). The size of `i+r` is the number of input rows that the filter covers,
  from which the bytes follow.
* `=>` instead of `->`: the operator states its FLOPs explicitly and is not a contraction, although an axis may be
  summed over (a weighted sum on the vector units, for example).

A number format has bits per element and, for block formats, a scale per block. Sources:

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

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple, get_args

from roofmodel.numbers.algebra import Number, ceil_div, either, product
from roofmodel.options.values import ComputeFormat, mean_bits

Sizes = Mapping[str, Number]
"""Axis -> size: `{"b": 1, "t": 1024, "d": 1600, ...}`."""


# What an axis letter stands for.
AXES: dict[str, str] = {
    "b": "batch: sequences computed together",
    "t": "new tokens per sequence (queries)",
    "u": "new tokens per sequence on one GPU (sequence parallelism)",
    "s": "tokens attended to (keys): cached and new",
    "t:s": "query-key pairs that are computed",
    "l": "positions whose logits are computed",
    "d": "hidden size",
    "d'": "hidden size, as the output of a square matrix",
    "dt": "hidden size on one GPU",
    "c": "channels",
    "C": "columns of the input projection of a state-space model",
    "cm": "channels of one head of a recurrence",
    "cm'": "channels of one head, as the output of a square matrix",
    "n3": "numbers of a state: numerator, denominator, largest exponent",
    "z": "state size per channel of a state-space model",
    "q": "rank of the time step (state-space models), or of decay and gate (linear attention)",
    "Q": "columns that give time step, B and C",
    "m": "heads of a state-space model that share B and C",
    "mw": "write strength and decay of each value head",
    "j'": "chunks of tokens, as the source of a state",
    "j:j'": "pairs of chunks",
    "t:j": "tokens, each with the initial state of its chunk",
    "k": "key-value heads",
    "g": "query heads per key-value head",
    "kd": "key-value heads in one half of the values",
    "gd": "query heads that use one of these",
    "h": "head size",
    "r": "rotary dimension: elements of a head that rotary embedding rotates",
    "h'": "head size of the values, where it differs from that of the keys",
    "hr": "head size of queries and keys: NoPE and rotary dimensions together",
    "hg": "query and gate of one query head",
    "hv": "key and value of one head, from the latent",
    "zk": "rank of the key-value latent",
    "zq": "rank of the query latent",
    "zn": "the query latent before and after its norm",
    "hk": "query and gate of one head, from these latents",
    "ng": "rank of the gate on a normed input",
    "ns": "residual streams (hyper-connections)",
    "ns'": "residual streams, as the output of a square matrix",
    "nr": "rows of a table of n-grams",
    "nt": "rows of a token in it: hashes",
    "nw": "width of such a row",
    "ne": "width of the rows of a token together",
    "rc": "earlier tokens that a filter covers",
    "ng'": "rank of the gates on residual streams",
    "nu": "residual streams except the first",
    "np": "coefficients that predict each stream from all of them",
    "rr": "rank of a low-rank residual",
    "hw": "weights of a hyper-connection",
    "hs": "factors of these weights",
    "rs": "residual sums: the finished ones and the running one",
    "ra": "scores of a residual sum: one for each mean",
    "og": "groups of the output projection",
    "ho": "inputs of one of these groups: the heads of a group",
    "ro": "outputs of one of these groups",
    "ce": "columns of a compression",
    "m'": "tokens of a compressed entry",
    "te": "compressed entries that the new tokens complete",
    "se": "compressed entries",
    "t:se": "pairs of a query and a compressed entry that are computed",
    "t:sk": "pairs of a query and a compressed entry that the indexer keeps",
    "ki": "heads of the indexer",
    "hi": "head size of the indexer",
    "t:si": "pairs of a query and a token that the indexer keeps",
    "t:sb": "pairs of a query and a block of keys that is not ahead of it",
    "t:kb": "pairs of a query and a block that the indexer keeps",
    "f": "MLP width, or width of one expert",
    "a": "learned parameters of an activation function",
    "F": "twice the MLP width: gate and up in one matrix",
    "L": "layers",
    "y": "width of the per-layer inputs",
    "x": "experts",
    "xs": "shared experts that the router weights",
    "xr": "experts and shared experts that the router scores",
    "one": "a single number",
    "zx": "latent that the experts read and write",
    "b:t:x": "token-expert pairs that the router chose",
    "b:t:X": "token-expert pairs for the experts on all GPUs",
    "e": "width of the token embedding, where it differs from the hidden size",
    "v": "vocabulary size",
    "V": "vocabulary size over all GPUs",
    "p": "rows of the position, token-type or task table",
    "w": "rows of the relative-position table, or distances with a term of the scores",
    "wr": "numbers per query head from which these terms are computed",
    "t+r": "tokens that a sliding filter covers",
    "rt": "taps of a filter that are computed from a token",
    "M": "rows of a matrix",
    "N": "columns of a matrix",
    "K": "contracted dimension of a matrix multiplication",
    "E": "elements of a vector",
    "rl": "rank of a low-rank adapter",
    "nz": "nonzeros per row of a sparse matrix",
    "E1": "rows of a sparse matrix, and one: the ends of its rows",
    "ri": "real and imaginary part",
    "xyzm": "coordinates and mass of a body",
    "xyz": "coordinates",
    "X": "points along the first dimension of a grid",
    "Y": "points along the second dimension of a grid",
    "Z": "points along the third dimension of a grid",
    "W": "parameters of the whole model",
    "Ws": "parameters whose optimizer state is on one GPU",
    "Wb": "parameters of a layer, or of all that is outside layers",
    "Wbs": "those that one GPU stores",
    "n": "classes of a classification head",
    "o": "output channels of a filter",
    "i": "rows of a feature map",
    "j": "columns of a feature map",
    "i+r": "rows that a sliding filter covers",
    "j+s": "columns that a sliding filter covers",
}
AXIS_OVERRIDES: dict[str, dict[str, str]] = {
    "r": {"i+r": "rows of a filter", "t+r": "tokens per filter"},
    "s": {"j+s": "columns of a filter"},
    "g": {
        "i": "groups of a grouped convolution",
        "i+r": "groups of a grouped convolution",
        **dict.fromkeys(("m", "z"), "groups of heads of a state-space model: each group shares B and C"),
    },
    "i": {"t+r": "input channels of a filter over tokens"},
    "j": {"j'": "chunks of tokens", "t:j": "chunks of tokens"},
    "k": {"m": "heads of queries and keys"},
    "m": {"k": "value heads per query-key head"},
    "C": {"h'": "columns of one matrix for queries, keys, values and gate"},
}
"""Letters with another meaning in operators that have a certain other axis: letter -> other axis -> meaning."""


class Tensor(NamedTuple):
    """A named tensor of a line, such as `W_up[d f]`."""

    name: str
    axes: tuple[str, ...]

    @property
    def is_parameter(self) -> bool:
        return self.name[0].isupper()

    @property
    def is_adapter(self) -> bool:
        """Whether the tensor is a parameter of a low-rank adapter."""
        return self.name.startswith("Lora")

    @property
    def is_cached(self) -> bool:
        return self.name.startswith("cache.")

    def elements(self, sizes: Sizes) -> Number:
        """Number of elements: the product of the axis sizes."""
        return product(sizes[axis] for axis in self.axes)

    def __str__(self) -> str:
        return f"{self.name}[{' '.join(self.axes)}]"


@dataclass(frozen=True)
class OperatorLine:
    """A parsed line: factors that are multiplied, terms that are added, outputs."""

    text: str
    factors: tuple[Tensor, ...]
    terms: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.factors + self.terms

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The loop axes of a contraction: the axes of its factors; `t:s` replaces t and s, `i+r` counts as i and r."""
        axes = list(dict.fromkeys(a for tensor in self.factors for axis in tensor.axes for a in axis.split("+")))
        joint = {axis for tensor in self.factors + self.outputs for axis in tensor.axes if ":" in axis}
        covered = joint.union(*(split_axes([axis]) for axis in joint))
        return tuple(axis for axis in axes if axis not in covered) + tuple(sorted(joint))

    @cached_property
    def contracted(self) -> tuple[str, ...]:
        """The axes summed over: those in both factors but in no output. Empty if the line is not a contraction."""
        if len(self.factors) != 2 or "=>" in self.text:
            return ()
        output_axes = {axis for tensor in self.outputs for axis in split_axes(tensor.axes)}
        a, b = (split_axes(tensor.axes) for tensor in self.factors)
        return tuple(axis for axis in a if axis in b and axis not in output_axes)


NAME = re.compile(r"[A-Za-z][\w.]*(?=\[)")
_TENSOR = re.compile(r"\s*([A-Za-z][\w.]*)\[([\w':+\s]*)\]")
_PLUS = re.compile(r"\+(?![^\[]*\])")  # between tensors, not inside brackets


@cache
def parse(text: str) -> OperatorLine:
    """Parse a line such as `x[b t d] W[d f] + B[f] -> u[b t f]`. Raises ValueError, which quotes the line."""
    left, arrow, right = text.replace("=>", "->").partition("->")
    if not arrow:
        raise ValueError(f"{text!r}: an operator needs '->' between its inputs and its outputs")
    factors, *terms = _PLUS.split(left)
    return OperatorLine(
        text=text,
        factors=_tensors(factors, text),
        terms=tuple(tensor for term in terms for tensor in _tensors(term, text)),
        outputs=_tensors(right, text),
    )


def _tensors(part: str, text: str) -> tuple[Tensor, ...]:
    tensors, position = [], 0
    while match := _TENSOR.match(part, position):
        tensors.append(Tensor(match.group(1), tuple(match.group(2).split())))
        position = match.end()
    if part[position:].strip() or not tensors:
        raise ValueError(f"{text!r}: {part[position:].strip()!r} is not a tensor such as x[b t d]")
    return tuple(tensors)


def split_axes(axes: Iterable[str]) -> tuple[str, ...]:
    """The single axes of joint (`t:s`) and sliding (`i+r`) axes."""
    return tuple(part for axis in axes for part in re.split("[:+]", axis))


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
        Format("mxfp8", 8, block=32, scale_bits=8),
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
STATE_FORMATS: dict[str, Format] = {
    "fp32": FORMATS["fp32"], "bf16": FORMATS["bf16"], "int8": Format("int8", 8, block=256, scale_bits=32),
}  # fmt: skip
"""The formats of an optimizer's moments. int8 as in bitsandbytes: blocks of 256 with an fp32 scale, the largest
magnitude (Dettmers et al., arXiv 2110.02861, section 2; block size as in its release 0.49 and in torchao)."""


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
    moments: Format | None = None  # of the optimizer; None: `state`

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

    def index_compute(self, gemm: str) -> str:
        """The format of a fused indexer's scores of tokens: engines store its keys in fp8 and multiply in it where
        GEMMs compute in fp8 or fp4, with a KV cache of any format (DeepGEMM, fp8_mqa_logits)."""
        return "fp8" if gemm in ("fp8", "fp4") else self.attention_compute(gemm)

    def compute_format(self, name: str) -> Format:
        """The format `name`, in which an operator computes."""
        return self.dtype if self.dtype.name == name else FORMATS[name]

    def format(self, tensor: Tensor) -> Format:
        """The storage format of a tensor; a gradient has the format of its tensor, if it has none of its own."""
        if tensor.is_cached:
            return self.kv
        if tensor.name.startswith("index."):
            return INDEX
        if tensor.name.startswith("mask."):
            return MASK
        if tensor.name.startswith("state."):
            return self.state if tensor.name == "state.master" else self.moments or self.state
        name = tensor.name.removeprefix("grad.")
        if self.by_matrix and name not in self.unconverted:
            own_formats = dict(self.by_matrix)
            if own_format := own_formats.get(tensor.name) or own_formats.get(name):
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
        """The format of master weights, and by default of the moments: fp32, or that of the weights if it is wider."""
        return max(self.weights, FORMATS["fp32"], key=lambda form: form.bits)

    def bytes(self, tensor: Tensor, elements: Number) -> Number:
        """Bytes of `elements` elements of a tensor."""
        return self.format(tensor).bytes(elements)
