"""Which format kernels multiply in, by their counters or their names, beside the one that was told.

fp16 and bf16 are not told apart: they are as wide and as fast. A kernel that names both its factors' format and that of
its sums, as `tf32f32` does, is of the former. The type of an enumeration among template arguments names a setting, not
a format: `(vllm::Fp8KVCacheDataType)0` stands for a cache that is not in fp8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from roofmodel.counting.number_formats import FORMATS, Widths
from roofmodel.profiles.kernel import Kernel
from roofmodel.study.compare.naming import anchor

_NAMES = (  # the first that holds
    ("fp8", r"fp8|e4m3|e5m2"),
    ("tf32", r"tf32"),
    ("bf16", r"bf16|bfloat16"),
    ("fp16", r"(?<![a-z])f16|fp16|half|hgemm|h884"),
    ("fp64", r"dgemm|d884|fp64|(?<![a-z])f64|<double"),
    ("fp32", r"sgemm|scudnn|fp32|(?<![a-z])f32|<float"),
)
_SETTING = re.compile(r"\([\w:]+\)\d+|LN\w+?E\d+E")  # as C++ prints it, and mangled
_PIPES = {
    "fp8": "tensor_fp8",
    "tf32": "tensor_tf32",
    "bf16": "tensor_bf16",
    "fp16": "tensor_fp16",
    "fp64": "tensor_fp64",
}
_HALF = frozenset({"fp16", "bf16"})


class Other(NamedTuple):
    """Kernels in another format than was told, as `--dtype` calls both; one of them, and how much wider it is."""

    named: str
    told: str
    kernel: str

    @property
    def wider(self) -> float:
        return FORMATS[self.named].bits / FORMATS[self.told].bits

    def __str__(self) -> str:
        word = re.search(rf"\w*(?:{dict(_NAMES)[self.named]})\w*", _plain(self.kernel))
        by = f"as {word[0]} says" if word else "by their counters"
        return (
            f"the kernels multiply in {self.named}, {by}, and {self.told} was told: FLOPs, "
            f"bytes and bounds are of {self.told}; give --dtype {self.named}"
        )


def other(kernels: Iterable[Kernel], widths: Widths) -> Other | None:
    """The format that most of the time of products is spent in, where it is another one than was told."""
    seconds: dict[str, float] = {}
    examples: dict[str, tuple[float, str]] = {}
    for kernel in kernels:
        if (said := multiplies_in(kernel)) is not None:
            took = float(kernel.invocations) if kernel.seconds is None else kernel.seconds
            seconds[said] = seconds.get(said, 0.0) + took
            examples[said] = max(examples.get(said, (0.0, "")), (took, kernel.name))
    told = {form.name.partition("_")[0] for form in filter(None, widths)}
    told |= _HALF if told & _HALF else set()
    if not seconds or 2 * sum(took for name, took in seconds.items() if name not in told) <= sum(seconds.values()):
        return None
    named = max(seconds.keys() - told, key=lambda name: seconds[name])
    return Other(named, widths.dtype.name, examples[named][1])


def multiplies_in(kernel: Kernel) -> str | None:
    """The format of a kernel of products, attention or convolutions; None for other kernels, and where nothing says."""
    if anchor(kernel.name) is None:
        return None
    counted = {name: getattr(kernel.flops, pipe) or 0.0 for name, pipe in _PIPES.items()}
    if any(counted.values()):
        return max(counted, key=lambda name: counted[name])
    return spelt(kernel.name)


def spelt(name: str) -> str | None:
    """The format that a kernel's name says; None where it says none."""
    return next((form for form, pattern in _NAMES if re.search(pattern, _plain(name))), None)


def _plain(name: str) -> str:
    return _SETTING.sub("", name).lower()
