"""What a problem of homework is: what is given, questions with answers, and the slips that a hint knows.

The answer to a question is the counting's, the roofline's or the profile reader's number, in base units. Beside it
stands the formula by which a student finds it on paper, and what common slips make of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from roofmodel import units
from roofmodel.algebra import Number
from roofmodel.counting.number_formats import FORMATS
from roofmodel.devices import library
from roofmodel.devices.device import Device

Draw = Callable[[str, Sequence[Any]], Any]
"""One of the options, by the name of what is drawn."""

UNITS = {
    "FLOP/B": 1, "GFLOP": 10**9, "GFLOP/s": 10**9, "TFLOP/s": 10**12, "us": 1e-6, "ms": 1e-3, "kB": 10**3, "MB": 10**6,
    "GB": 10**9, "%": 0.01, "tokens/s": 1, "images/s": 1, "sequences": 1, "rows": 1, "tokens": 1, "workers": 1,
}  # fmt: skip
"""What an answer may be asked in, in base units."""
ROOFS = ("compute", "memory")
SYMBOLS = {
    "n": "the size", "b": "bytes an element", "P_peak": "the peak, in FLOP/s", "B_mem": "the bandwidth, in B/s",
    "t": "the measured time", "a": "fadd", "m": "fmul", "f": "ffma", "A": "hadd", "M": "hmul", "F": "hfma",
    "y": "bytes of DRAM",
    "B": "sequences in the batch", "S": "tokens of each", "C": "tokens in the cache", "D": "the hidden size",
    "W": "the MLP's width", "L": "layers", "K": "key-value heads", "h": "the size of a head", "V": "the vocabulary",
    "N": "parameters", "Y": "the device's memory",
    "B_img": "images in the batch", "X": "places along a side of the image", "r": "those along a side of the filter",
    "C_in": "channels that come in", "C_out": "channels that go out", "M_img": "multiply-adds an image",
    "u": "the part of the peak that is reached", "t_dec": "the time to decode an image", "w": "workers",
    "n_gpu": "GPUs", "T": "tokens", "B_link": "the link, in B/s one way", "k_x": "experts that a token goes to",
}  # fmt: skip
"""What formulas call what."""


class Slip(NamedTuple):
    """A common mistake: what it makes of the answer, as a factor, and what to say of it."""

    factor: float
    hint: str


class Question(NamedTuple):
    """A blank of the sheet; its answer is a number in base units, or one of the ROOFS."""

    id: str
    text: str
    unit: str
    value: float | str
    formula: str  # in the names of `values`
    values: Mapping[str, Number]
    slips: tuple[Slip, ...] = ()
    tolerance: float = 0.02  # relative


class Problem(NamedTuple):
    """What is given, and the questions about it."""

    id: str
    title: str
    given: str
    questions: tuple[Question, ...]


FMA_ONCE = Slip(0.5, "half of it: a multiply-add is two FLOPs")
FMA_TWICE = Slip(2.0, "twice of it: a multiply-add is two FLOPs, and may be counted as four here")
BYTES_AS_BITS = "a factor of eight: bits and bytes"
MORE_BITS, FEWER_BITS = Slip(8.0, BYTES_AS_BITS), Slip(0.125, BYTES_AS_BITS)
IN_GIB = Slip(10**9 / 2**30, "this is GiB, 2^30 bytes; a GB is 10^9")
SLOWER, FASTER = (
    Slip(factor, "a bandwidth in GB/s is 10^9 bytes a second, not 2^30") for factor in (2**30 / 10**9, 10**9 / 2**30)
)
DEVICES = ("v100-sxm2-32gb", "a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm", "h200")


def device_of(draw: Draw) -> Device:
    """One of the lectures' devices."""
    return library.load(draw("device", DEVICES))


def width(dtype: str) -> Number:
    """Bytes of an element."""
    return FORMATS[dtype].bytes(1)


def roofs(device: Device, dtype: str) -> dict[str, Number]:
    """The two ceilings of matrix products, as formulas name them: FLOP/s and bytes per second."""
    return {"P_peak": device.matmul_pipe(dtype).peak, "B_mem": device.bandwidth}


def bandwidth(device: Device) -> str:
    """The DRAM's, in words."""
    return f"{units.si(device.bandwidth, 'B/s', 4)} from DRAM"
