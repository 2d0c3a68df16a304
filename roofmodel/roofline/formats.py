"""The number formats in which kernels multiply, by their counters or names, and the pipes of the device that they used.

fp16 and bf16 count as the same format: they have the same width and speed. A name with the formats of factors and sums,
such as `tf32f32`, means the format of the factors. An enumeration type among template arguments is a setting, not a
format: `(vllm::Fp8KVCacheDataType)0` stands for a cache that is not in fp8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from roofmodel.devices.device import Device
from roofmodel.devices.parts import Pipe
from roofmodel.errors import Message, Option
from roofmodel.profiles.kernel import Kernel
from roofmodel.roofline.naming import anchor, auxiliary_role

if TYPE_CHECKING:
    from roofmodel.counting.tensors import Widths
    from roofmodel.roofline.points import Point

_NAME_PATTERNS = (  # the first match counts
    ("fp8", r"fp8|e4m3|e5m2"),
    ("tf32", r"tf32"),
    ("bf16", r"bf16|bfloat16"),
    ("fp16", r"(?<![a-z])f16|fp16|half|hgemm|h884"),
    ("fp64", r"dgemm|d884|fp64|(?<![a-z])f64|<double"),
    ("fp32", r"sgemm|scudnn|fp32|(?<![a-z])f32|<float"),
)
_SETTING = re.compile(r"\([\w:]+\)\d+|LN\w+?E\d+E")  # demangled and mangled
_PIPES = {
    "fp8": "tensor_fp8",
    "tf32": "tensor_tf32",
    "bf16": "tensor_bf16",
    "fp16": "tensor_fp16",
    "fp64": "tensor_fp64",
}
_HALF = frozenset({"fp16", "bf16"})


class FormatMismatch(NamedTuple):
    """The format in which the kernels multiply, the given one (both as `--dtype` names them), and a kernel's name."""

    measured: str
    given: str
    kernel: str

    @property
    def width_ratio(self) -> float:
        """Bits of the measured format divided by bits of the given one."""
        from roofmodel.counting.tensors import FORMATS

        return FORMATS[self.measured].bits / FORMATS[self.given].bits

    @property
    def message(self) -> Message:
        """The warning, with the option that corrects it."""
        word = re.search(rf"\w*(?:{dict(_NAME_PATTERNS)[self.measured]})\w*", _without_settings(self.kernel))
        evidence = f"by the kernel name {word[0]}" if word else "by their counters"
        return Message(
            f"the kernels multiply in {self.measured} ({evidence}), but ", Option("dtype"),
            f" is {self.given}: FLOPs, bytes and bounds assume {self.given}; use ", Option("dtype", self.measured),
        )  # fmt: skip


def format_mismatch(kernels: Iterable[Kernel], widths: Widths) -> FormatMismatch | None:
    """The format in which the kernels spend most of their GEMM time, if it differs from the given formats."""
    seconds: dict[str, float] = {}
    longest: dict[str, tuple[float, str]] = {}
    for kernel in kernels:
        if (form := gemm_format(kernel)) is not None:
            kernel_seconds = float(kernel.invocations) if kernel.seconds is None else kernel.seconds
            seconds[form] = seconds.get(form, 0.0) + kernel_seconds
            longest[form] = max(longest.get(form, (0.0, "")), (kernel_seconds, kernel.name))
    given_formats = {
        form.name.partition("_")[0] for form in filter(None, (widths.dtype, widths.weights, widths.kv, widths.gemm))
    }
    given_formats |= _HALF if given_formats & _HALF else set()
    others = sum(kernel_seconds for form, kernel_seconds in seconds.items() if form not in given_formats)
    if not seconds or 2 * others <= sum(seconds.values()):
        return None
    measured = max(seconds.keys() - given_formats, key=lambda form: seconds[form])
    return FormatMismatch(measured, widths.dtype.name, longest[measured][1])


def gemm_format(kernel: Kernel) -> str | None:
    """The format of a GEMM, attention or convolution kernel; None for other kernels and for unknown formats."""
    if anchor(kernel.name) is None:
        return None
    counted = {name: getattr(kernel.flops, pipe) or 0.0 for name, pipe in _PIPES.items()}
    if any(counted.values()):
        return max(counted, key=lambda name: counted[name])
    return format_in_name(kernel.name)


def format_in_name(name: str) -> str | None:
    """The format in a kernel's name; None if it has none."""
    plain = _without_settings(name)
    return next((form for form, pattern in _NAME_PATTERNS if re.search(pattern, plain)), None)


def _without_settings(name: str) -> str:
    return _SETTING.sub("", name).lower()


def pipes_in_use(points: Sequence[Point], device: Device) -> list[Pipe]:
    """The pipes that points of single kernels used, by falling peak; all pipes of the device without points.

    If FLOPs of tensor cores were not counted, the names of GEMM kernels show which pipe was used. Kernels without FLOPs
    have the pipes of the formats in their names, or fp32.
    """
    drawn = [point for point in points if point.drawable]
    used = {device.pipes[point.pipe] for point in drawn if point.pipe}
    if points and not used:
        named = {format_in_name(point.name) for point in points} & {*device.types}
        used = {device.matmul_pipe(name) for name in named if name}
        used = used or {pipe for name, pipe in device.pipes.items() if name == "fp32"}
    used = used or set(device.pipes.values())
    uncounted = [point.name for point in drawn if point.incomplete]
    if uncounted:
        format_names = {
            format_in_name(name) or "fp16" for name in uncounted if anchor(name) and not auxiliary_role(name)
        } - {"fp32"}
        used |= {device.matmul_pipe(name) for name in format_names or {"fp16"} if name in device.types}
    return sorted(used, key=lambda pipe: -pipe.peak)
