"""Extra kernels of eager mode: kernels beyond one per operator, and operators that transformers splits into several.

An operator counts compulsory traffic: each tensor is read or written once. PyTorch runs one kernel for each operation
in a model's code: `x * cos + rotate_half(x) * sin` is five kernels, each of which reads and writes. The traffic is
counted from the code of transformers 5.23 and from autograd, and is checked with torch's dispatcher
(`tests/timing/test_extra_kernels.py`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from roofmodel.counting import vector_flops
from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import Tensor
from roofmodel.numbers.algebra import Number, is_just, maximum, product, quotient

WIDE = 4  # bytes of an element of fp32
Width = Literal["narrow", "wide", "mixed"]
"""Format of vector work: the working format, fp32, or, under autocast, 16 bits that become fp32."""


class ExtraKernel(NamedTuple):
    """A kernel that eager mode runs in addition to an operator's own: its name, and its bytes read and written.

    `runs` is 0 or 1; while a formula is traced, it can depend on the number format.
    """

    name: str
    bytes: Number
    runs: Number = 1


class ElementTraffic(NamedTuple):
    """Bytes per element, forward and backward, each as (fixed bytes, multiple of the element's width)."""

    forward: tuple[int, int]
    backward: tuple[int, int]


NATIVE = ElementTraffic((0, 2), (0, 3))
"""An activation in one kernel: input, output; backward: output gradient, input, input gradient."""
GATE = ElementTraffic((0, 3), (0, 6))
"""A multiplication of two tensors: both read, one written; backward the gradient of each."""
TABLES = ("cos", "sin")
COMPOSED: dict[str, dict[Width, ElementTraffic]] = {
    # cast, square, mean, multiply by the inverse root, cast, gain: fp32 between the casts
    "rmsnorm": {
        "narrow": ElementTraffic((28, 4), (76, 8)),
        "wide": ElementTraffic((0, 7), (0, 23)),
        "mixed": ElementTraffic((38, 0), (108, 0)),
    },
    # 2 multiplications, negation of one half, concatenation of the halves, addition
    "rotary": {
        "narrow": ElementTraffic((0, 10), (0, 14)),
        "wide": ElementTraffic((0, 10), (0, 14)),
        "mixed": ElementTraffic((30, 0), (48, 0)),
    },
    # x / 2 (1 + tanh(c (x + a x^3))): power, tanh, 6 additions and multiplications; autocast computes powers in fp32
    "gelu_new": {
        "narrow": ElementTraffic((0, 18), (0, 28)),
        "wide": ElementTraffic((0, 18), (0, 28)),
        "mixed": ElementTraffic((70, 0), (112, 0)),
    },
    # x / 2 (1 + tanh(x c (1 + a x x))): no power, 8 additions and multiplications, tanh
    "gelu_fast": dict.fromkeys(("narrow", "wide", "mixed"), ElementTraffic((0, 21), (0, 36))),
    # x sigmoid(1.702 x): 2 multiplications, sigmoid
    "gelu_quick": dict.fromkeys(("narrow", "wide", "mixed"), ElementTraffic((0, 7), (0, 14))),
    # max(x, 0), squared
    "relu2": dict.fromkeys(("narrow", "wide", "mixed"), ElementTraffic((0, 4), (0, 10))),
}
"""Function of an operator (`vector_flops.py`) -> traffic of its kernels."""
PARTIAL_ROTARY: dict[Width, ElementTraffic] = {
    "narrow": ElementTraffic((0, 2), (0, 6)), "wide": ElementTraffic((0, 2), (0, 6)),
    "mixed": ElementTraffic((7, 0), (16, 0)),
}  # fmt: skip
"""Rotary embedding of a part of each head: concatenation with the rest; backward, zero-padded gradients are added."""


def is_composed(operator: Operator) -> bool:
    """Whether transformers runs the operator as several kernels; one kernel adds gradients from several operators."""
    gated = operator.function in vector_flops.ACTIVATION and _is_gated(operator)
    return (operator.function in COMPOSED or gated) and ".grad_" not in operator.name


def composed(operator: Operator, width: Width) -> ExtraKernel:
    """The traffic of such an operator's kernels beyond the bytes that the operator counts."""
    gradient = operator.name.endswith(".grad")
    bytes_of, rows = operator.widths.dtype.bytes, _rows(operator)
    elements = sum(tensor.elements(operator.sizes) for tensor in _results(operator))
    moves = [COMPOSED.get(operator.function, {}).get(width, NATIVE)]
    if operator.function in vector_flops.ACTIVATION and _is_gated(operator):
        moves.append(GATE)
    fixed, multiple = (sum(part) for part in zip(*(each[gradient] for each in moves), strict=True))
    element = maximum(WIDE, bytes_of(1)) if width == "wide" else bytes_of(1)
    total = (fixed + multiple * element) * elements
    if operator.function == "rotary" and any("h" in tensor.axes for tensor in operator.writes):
        rotated, size = operator.sizes["r"], operator.sizes["h"]
        if rotated != size:
            fixed, multiple = PARTIAL_ROTARY[width][gradient]
            total = quotient(total * rotated, size) + (fixed + multiple * element) * elements
    return ExtraKernel("in several kernels", total - sum(operator.bytes_of(tensor) for tensor in rows))


TENSOR_CORE_FORMATS = ("fp16", "bf16", "tf32")
NCHW = "nchw"
"""The extra kernels of a convolutional network whose tensors are in NCHW."""
ALIGNED_PIXELS = 8
"""A 1 x 1 convolution multiplies pixels by channels without a conversion if its rows of pixels, which are contiguous in
NCHW, are a multiple of 8 (16 bytes in 16 bits, the alignment that tensor cores need).

Measured forward convolutions on an H100 and an H200 take as long in NCHW as in NHWC at 56 x 56 and 28 x 28 pixels, and
1.6 to 3.2 times as long at 14 x 14 and 7 x 7 (tests/data/gpu/h100/layouts.csv)."""
NORM_PERCENT = 243
"""Time of cuDNN's 16-bit batch norms in NCHW in percent of their time in NHWC.

83.6 and 34.4 ms in two training steps of ResNet-50 on an H100 (trace-resnet50-fp16-NCHW.json.gz and -NHWC beside that
table). In fp32 both run the same kernels."""


def kernel_in_nchw(operator: Operator, is_training: bool) -> ExtraKernel | None:
    """What an operator of a convolutional network takes more in NCHW than in NHWC; None if nothing.

    Tensor cores read and write NHWC, so that cuDNN converts each tensor of a convolution but the filter: it is read and
    written once more. A batch norm of a training step in 16 bits is slower. It reads its inputs twice, for the
    statistics and for its result: 3 passes forward and 5 backward, of which 2 and 3 are counted.
    """
    if operator.kind == "norm" and is_training and operator.widths.compute in ("fp16", "bf16"):
        counted = sum(operator.bytes_of(t) for t in (*operator.reads, *operator.writes) if not _is_stored(t))
        passes, of = (5, 3) if operator.name.endswith(".grad") else (3, 2)
        return ExtraKernel("batch norm in NCHW", quotient(counted * passes * (NORM_PERCENT - 100), of * 100))
    if operator.kind != "conv" or operator.widths.compute not in TENSOR_CORE_FORMATS:
        return None
    sizes = operator.sizes
    pixels = product(sizes[axis] for axis in ("i", "j") if axis in sizes)
    is_gemm = all(is_just(sizes.get(axis, 1), 1) for axis in ("r", "s")) and sizes.get("i") == sizes.get("i+r")
    if is_gemm and not pixels % ALIGNED_PIXELS:
        return None
    moved = [tensor for tensor in (*operator.reads, *operator.writes) if not _is_stored(tensor)]
    return ExtraKernel("NCHW to NHWC and back", 2 * sum(map(operator.bytes_of, moved)))


def _is_gated(operator: Operator) -> bool:
    """Whether an activation multiplies two inputs; for a gradient, whether it writes two gradients."""
    parts = operator.writes if operator.name.endswith(".grad") else operator.reads
    return len([t for t in parts if not _is_stored(t)]) == 2


def _results(operator: Operator) -> tuple[Tensor, ...]:
    """The tensors whose elements are computed: all outputs of rotary embedding, else one output."""
    results = tuple(tensor for tensor in operator.writes if not _is_stored(tensor))
    return results if operator.function == "rotary" else results[-1:]


def _rows(operator: Operator) -> tuple[Tensor, ...]:
    """The tensors that the operator reads and writes, without parameters and tables."""
    moved = (*operator.reads, *operator.writes)
    return tuple(t for t in moved if not _is_stored(t) and t.name not in TABLES)


def _is_stored(tensor: Tensor) -> bool:
    """Whether the tensor is a parameter or its gradient."""
    return tensor.name.removeprefix("grad.")[0].isupper()
