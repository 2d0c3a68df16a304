"""What the formulas of homework problems know of devices, formats and models: `bandwidth(device)`, `layers(model)`.

All values are in base units: FLOP/s, bytes per second, bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from roofmodel.counting import phases
from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import FORMATS
from roofmodel.devices.device import Device
from roofmodel.homework.formulas import SYMPY, Functions
from roofmodel.models import hub
from roofmodel.models.layers import MoE
from roofmodel.options.values import Phase
from roofmodel.steps.estimate import parameters as parameters_of
from roofmodel.steps.options import workload

_device = cache(Device.load)
_model = cache(hub.load)
FULL_NAMES: Mapping[str, Callable[[str], str]] = {
    "device": lambda name: _device(name).name,
    "model": lambda name: _model(name).name,
}
"""Draws whose text is the full name of what they name."""


def width(dtype: str) -> Any:
    """Bytes per element of a format."""
    if dtype not in FORMATS:
        raise ValueError(f"unknown format {dtype!r}; known: {', '.join(FORMATS)}")
    return FORMATS[dtype].bytes(1)


def gemm_peak(device: str, dtype: str) -> Any:
    """The dense peak of GEMMs in a format."""
    return exact(_device(device).matmul_pipe(dtype).peak)


def sparse_peak(device: str, dtype: str) -> Any:
    """The sparse peak of GEMMs in a format; the dense one where the device has none."""
    pipe = _device(device).matmul_pipe(dtype)
    return exact(_device(device).sparse_pipes.get(pipe.name, pipe).peak)


def vector_peak(device: str, dtype: str) -> Any:
    """The peak of the CUDA cores in fp32 or fp64."""
    return exact(_known(_device(device).vector_pipe(dtype), device, "peak").peak)


def bandwidth(device: str) -> Any:
    """The bandwidth of the DRAM."""
    return exact(_device(device).bandwidth)


def memory(device: str) -> int:
    """The size of the DRAM."""
    return int(_known(_device(device).capacity, device, "memory size"))


def link(device: str) -> Any:
    """The bandwidth to a neighbor in one direction."""
    return exact(_known(_device(device).link, device, "link"))


def parameters(model: str) -> int:
    """All parameters."""
    return int(parameters_of(_model(model))[0])


def layers(model: str) -> int:
    """Layers, or blocks."""
    return len(_model(model).stack.layers)


def hidden(model: str) -> int:
    """The hidden size."""
    return int(_model(model).stack.hidden)


def mlp_width(model: str) -> int:
    """The width of the MLP."""
    return _size(model, "mlp.up", "f")


def query_heads(model: str) -> int:
    """Query heads."""
    return _size(model, "attention", "k") * _size(model, "attention", "g")


def kv_heads(model: str) -> int:
    """Key-value heads."""
    return _size(model, "attention", "k")


def head_size(model: str) -> int:
    """The size of a head."""
    return _size(model, "attention", "h")


def vocabulary(model: str) -> int:
    """Rows of the embedding table."""
    return _size(model, "head.logits", "v")


def experts(model: str) -> int:
    """Experts of a layer."""
    return int(_moe(model).experts)


def active_experts(model: str) -> int:
    """Experts of a token."""
    return int(_moe(model).active)


@cache
def multiply_adds(model: str) -> int:
    """Multiply-adds of an image."""
    return int(sum(op.total.matmul_flops for op in _operators(model, "forward"))) // 2


def rounded(value: Any, digits: int) -> Fraction:
    """A number with so many significant digits."""
    return Fraction(f"{float(value):.{digits}g}")


FUNCTIONS: Functions = {
    **SYMPY,
    **{
        function.__name__: function
        for function in (
            width, gemm_peak, sparse_peak, vector_peak, bandwidth, memory, link, parameters, layers, hidden, mlp_width,
            query_heads, kv_heads, head_size, vocabulary, experts, active_experts, multiply_adds, rounded,
        )
    },
}  # fmt: skip


def exact(value: float) -> int | Fraction:
    """A float of the decimal digits that a file states."""
    number = Fraction(str(value)) if isinstance(value, float) else Fraction(value)
    return number.numerator if number.denominator == 1 else number


def _known(value: Any, device: str, quantity: str) -> Any:
    if value is None:
        raise ValueError(f"{device} has no {quantity}")
    return value


@cache
def _operators(model: str, phase: Phase) -> tuple[Operator, ...]:
    """The operators for one sequence, or one image."""
    architecture = _model(model)
    work, _notes = workload(architecture, phase=phase)
    return tuple(phases.operators(architecture, work.steps()[0]))


@cache
def _size(model: str, operator: str, axis: str) -> int:
    for op in _operators(model, "decode"):
        if operator in (op.name, op.kind):
            return int(op.sizes[axis])
    raise ValueError(f"{model} has no {operator}")


def _moe(model: str) -> MoE:
    for part in _model(model).stack.parts:
        if isinstance(part, MoE):
            return part
    raise ValueError(f"{model} has no experts")
