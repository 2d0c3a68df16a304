"""Kernels that eager mode runs beside an operator, and operators that transformers runs as several kernels.

An operator counts what must be read and written once. PyTorch runs a kernel for every line of a model's code: of
`x * cos + rotate_half(x) * sin` five, each of which reads and writes. What they move is the code of transformers 5.23,
line by line, and of autograd, as torch's own dispatcher tells (`tests/prediction/test_beside.py`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from roofmodel.algebra import Number, maximum, quotient
from roofmodel.counting import vector_flops
from roofmodel.counting.notation import Tensor
from roofmodel.counting.operator import Operator

WIDE = 4  # bytes of an element of fp32
Width = Literal["narrow", "wide", "mixed"]
"""Of vector work: in the working format, in fp32, or, under autocast, of 16 bits that become fp32."""


class ExtraKernel(NamedTuple):
    """A kernel that eager mode runs beside an operator: what it does, and the bytes that it reads and writes."""

    name: str
    bytes: Number


class Traffic(NamedTuple):
    """Bytes that vector work moves an element, forward and backward: so many, and so many times an element's width."""

    forward: tuple[int, int]
    backward: tuple[int, int]


NATIVE = Traffic((0, 2), (0, 3))
"""An activation that is one kernel: read and written; the gradient that arrives, what it read, and what it gives."""
GATE = Traffic((0, 3), (0, 6))
"""A product of two: both read and one written; of each the gradient, from what arrives and from the other."""
TABLES = ("cos", "sin")
COMPOSED: dict[str, dict[Width, Traffic]] = {
    # cast, square, mean, times the inverse root, cast, gain: both casts and the rows between them in fp32
    "rmsnorm": {
        "narrow": Traffic((28, 4), (76, 8)),
        "wide": Traffic((0, 7), (0, 23)),
        "mixed": Traffic((38, 0), (108, 0)),
    },
    # two products, half negated, halves joined, a sum
    "rotary": {
        "narrow": Traffic((0, 10), (0, 14)),
        "wide": Traffic((0, 10), (0, 14)),
        "mixed": Traffic((30, 0), (48, 0)),
    },
    # x / 2 (1 + tanh(c (x + a x^3))): a power, tanh, and six of sums and products; a power is fp32 under autocast
    "gelu_new": {
        "narrow": Traffic((0, 18), (0, 28)),
        "wide": Traffic((0, 18), (0, 28)),
        "mixed": Traffic((70, 0), (112, 0)),
    },
    # x / 2 (1 + tanh(x c (1 + a x x))): no power, eight products and sums beside tanh
    "gelu_fast": dict.fromkeys(("narrow", "wide", "mixed"), Traffic((0, 21), (0, 36))),
    # x sigmoid(1.702 x): two products and a sigmoid
    "gelu_quick": dict.fromkeys(("narrow", "wide", "mixed"), Traffic((0, 7), (0, 14))),
    # max(x, 0), squared
    "relu2": dict.fromkeys(("narrow", "wide", "mixed"), Traffic((0, 4), (0, 10))),
}
"""By what an operator computes (`vector_flops.py`), what several kernels move of it."""
PARTIAL_ROTARY: dict[Width, Traffic] = {
    "narrow": Traffic((0, 2), (0, 6)), "wide": Traffic((0, 2), (0, 6)), "mixed": Traffic((7, 0), (16, 0)),
}  # fmt: skip
"""Where rotary embedding turns a part of each head: that part is joined to the rest, and gradients of
both are put into zeros and added."""


def is_composed(operator: Operator) -> bool:
    """Whether transformers runs it as several kernels; gradients from several operators are added by one."""
    gated = operator.function in vector_flops.ACTIVATION and _is_gated(operator)
    return (operator.function in COMPOSED or gated) and ".grad_" not in operator.name


def composed(operator: Operator, width: Width) -> ExtraKernel:
    """What the kernels of such an operator move, less what it counts."""
    gradient = operator.name.endswith(".grad")
    bytes_of, rows = operator.widths.dtype.bytes, _rows(operator)
    elements = sum(tensor.elements(operator.sizes) for tensor in _results(operator))
    moves = [COMPOSED.get(operator.function, {}).get(width, NATIVE)]
    if operator.function in vector_flops.ACTIVATION and _is_gated(operator):
        moves.append(GATE)
    fixed, times = (sum(part) for part in zip(*(each[gradient] for each in moves), strict=True))
    element = maximum(WIDE, bytes_of(1)) if width == "wide" else bytes_of(1)
    total = (fixed + times * element) * elements
    if operator.function == "rotary" and any("h" in tensor.axes for tensor in operator.writes):
        turned, size = operator.sizes["r"], operator.sizes["h"]
        if turned != size:
            fixed, times = PARTIAL_ROTARY[width][gradient]
            total = quotient(total * turned, size) + (fixed + times * element) * elements
    return ExtraKernel("in several kernels", total - sum(operator.bytes_of(tensor) for tensor in rows))


def _is_gated(operator: Operator) -> bool:
    """Whether an activation takes in two factors, or both in one tensor; a gradient, whether it gives such."""
    parts = operator.writes if operator.name.endswith(".grad") else operator.reads
    return len([t for t in parts if not _is_stored(t)]) == 2


def _results(operator: Operator) -> tuple[Tensor, ...]:
    """What has the elements that are computed: all that rotary embedding turns, else one tensor."""
    found = tuple(tensor for tensor in operator.writes if not _is_stored(tensor))
    return found if operator.function == "rotary" else found[-1:]


def _rows(operator: Operator) -> tuple[Tensor, ...]:
    """What the operator reads and writes but for parameters and tables."""
    moved = (*operator.reads, *operator.writes)
    return tuple(t for t in moved if not _is_stored(t) and t.name not in TABLES)


def _is_stored(tensor: Tensor) -> bool:
    """Whether it is a parameter, or the gradient of one."""
    return tensor.name.removeprefix("grad.")[0].isupper()
