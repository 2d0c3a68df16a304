"""Homework problems: the given facts, the questions with their answers and formulas, and common mistakes.

The package computes each answer, in base units. `Question.formula` is the derivation on paper; a test checks that it
gives the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from roofmodel.counting.number_formats import FORMATS
from roofmodel.devices.device import Device
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number

Draw = Callable[[str, Sequence[Any]], Any]
"""`draw(name, options)`: one of the options, chosen by the name of the drawn quantity."""

UNITS = {
    "FLOP/B": 1, "GFLOP": 10**9, "GFLOP/s": 10**9, "TFLOP/s": 10**12, "us": 1e-6, "ms": 1e-3, "kB": 10**3, "MB": 10**6,
    "GB": 10**9, "%": 0.01, "tokens/s": 1, "images/s": 1, "sequences": 1, "rows": 1, "tokens": 1, "workers": 1,
}  # fmt: skip
"""The units of answers, in base units."""
CEILINGS = ("compute", "memory")
SYMBOLS = {
    "n": "the size", "b": "bytes per element", "P_peak": "the peak, in FLOP/s", "B_mem": "the bandwidth, in B/s",
    "t": "the measured time", "a": "fadd", "m": "fmul", "f": "ffma", "A": "hadd", "M": "hmul", "F": "hfma",
    "y": "DRAM bytes",
    "B": "sequences in the batch", "S": "tokens per sequence", "C": "tokens in the cache", "D": "the hidden size",
    "W": "the MLP width", "L": "layers", "K": "key-value heads", "h": "the head size", "V": "the vocabulary size",
    "N": "parameters", "Y": "the device memory",
    "B_img": "images in the batch", "X": "the image size in pixels per side", "r": "the filter size in pixels per side",
    "C_in": "input channels", "C_out": "output channels", "M_img": "multiply-adds per image",
    "u": "the achieved fraction of the peak", "t_dec": "the decoding time of an image", "w": "workers",
    "n_gpu": "GPUs", "T": "tokens", "B_link": "the link bandwidth, in B/s per direction",
    "E": "experts",
    "d_1": "the duration of the first GEMM", "s_2": "the start of the second GEMM",
    "d_2": "the duration of the second GEMM", "s_c": "the start of the all-reduce",
    "d_c": "the duration of the all-reduce", "t_step": "the time of a step", "t_load": "the loading time of a batch",
    "a_0": "the start of the all-reduce on rank 0", "a_1": "the start on rank 1", "a_2": "the start on rank 2",
    "a_3": "the start on rank 3",
    "e": "the end of the all-reduce",
    "b_0": "the start of the second GEMM on rank 0", "b_1": "its start on rank 1", "b_2": "its start on rank 2",
    "c_0": "the end of the first GEMM on rank 0", "c_1": "its end on rank 1", "c_2": "its end on rank 2",
}  # fmt: skip
"""The meanings of the symbols in formulas."""


class Mistake(NamedTuple):
    """A common mistake: the wrong answer as a multiple of the right one, and the hint for it."""

    factor: float
    hint: str


class Question(NamedTuple):
    """A question of a sheet; its answer is a number in base units, or one of the CEILINGS."""

    id: str
    text: str
    unit: str
    value: float | str
    formula: str  # in the names of `values`; for a ceiling: the intensity minus the ridge point
    values: Mapping[str, Number]
    mistakes: tuple[Mistake, ...] = ()
    tolerance: float = 0.02  # relative

    @property
    def expression(self) -> Any:
        """The formula as a SymPy expression, in which common factors cancel."""
        import sympy

        names = {name: sympy.Symbol(name, positive=True) for name in self.values}
        return sympy.sympify(self.formula, locals=names)

    @property
    def symbols(self) -> list[str]:
        """The names of the quantities in the expression, in the order of `values`."""
        used = {symbol.name for symbol in self.expression.free_symbols}
        return [name for name in self.values if name in used]


class Problem(NamedTuple):
    """The given facts, and the questions about them."""

    id: str
    title: str
    given: str
    questions: tuple[Question, ...]


FMA_AS_ONE_FLOP = Mistake(0.5, "half the answer: a multiply-add is two FLOPs")
FMA_AS_FOUR_FLOPS = Mistake(2.0, "twice the answer: a multiply-add is two FLOPs, not four")
FACTOR_OF_EIGHT = "a factor of eight: check bits and bytes"
IN_BITS, PER_BIT = Mistake(8.0, FACTOR_OF_EIGHT), Mistake(0.125, FACTOR_OF_EIGHT)
IN_GIB = Mistake(10**9 / 2**30, "this is in GiB (2^30 bytes); a GB is 10^9 bytes")
BINARY_BANDWIDTH = tuple(
    Mistake(factor, "a bandwidth in GB/s is 10^9 bytes per second, not 2^30")
    for factor in (2**30 / 10**9, 10**9 / 2**30)
)
DEVICES = ("v100-sxm2-32gb", "a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm", "h200")


def device_of(draw: Draw) -> Device:
    """One of DEVICES."""
    return Device.load(draw("device", DEVICES))


def width(dtype: str) -> Number:
    """Bytes per element."""
    return FORMATS[dtype].bytes(1)


def ceilings(device: Device, dtype: str) -> dict[str, Number]:
    """The two ceilings of a GEMM under their symbols: the peak in FLOP/s, the DRAM bandwidth in bytes per second."""
    return {"P_peak": device.matmul_pipe(dtype).peak, "B_mem": device.bandwidth}


def bandwidth(device: Device) -> str:
    """The DRAM bandwidth as text."""
    return f"{units.si(device.bandwidth, 'B/s', 4)} of DRAM bandwidth"
