"""Textbook kernels, and a kernel that the user states as a line, as points at their bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from roofmodel.counting import stated_operator, textbook_kernels
from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import OperatorLine
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.errors import Message, Option, Text, WorkloadError, ignored
from roofmodel.options.values import MAX_VALUE, Numbers
from roofmodel.options.workload import non_default_options
from roofmodel.roofline.points import Point, predicted_point
from roofmodel.steps.placed import Placed
from roofmodel.steps.textbook import check_kernel, default_dtype
from roofmodel.sweep import grid
from roofmodel.timing.roofline import place

DEFAULT_SIZE = 1024
MAX_SIZES = 100
CATEGORIES = {"gemm": "GEMM", "conv": "convolution"}


class TextbookKernels(NamedTuple):
    """Textbook kernels at each size n, or a stated line whose axes have a number or `n` as their size."""

    names: tuple[str, ...]  # of textbook kernels
    sizes: tuple[int, ...]
    dtype: str | None  # None: the default of each kernel
    line: OperatorLine | None = None
    axes: Mapping[str, object] = {}

    @property
    def title(self) -> str:
        """Their names, in a picture's title and file name."""
        return ", ".join(self.names) or stated_operator.NAME

    def description(self, device: Device) -> str:
        """`matmul (fp16), triad (fp64)`."""
        if self.line:
            return f"{self.line.text} with {', '.join(f'{a} = {n}' for a, n in self.axes.items())} ({self._dtype('')})"
        return ", ".join(f"{name} ({self._dtype(name, device)})" for name in self.names)

    def points(self, device: Device) -> list[Point]:
        """Each kernel and size at its bound on the device."""
        placed = [
            (name, Placed(operator, place(operator.cost, device, dtype)), dtype)
            for name, operator, dtype in self._operators(device)
        ]
        return [
            predicted_point(each, device, dtype)._replace(
                name=name, category=CATEGORIES.get(each.operator.kind, each.operator.kind)
            )
            for name, each, dtype in placed
        ]

    def _dtype(self, name: str, device: Device | None = None) -> str:
        return self.dtype or (default_dtype(name, device) if name else "fp16")

    def _operators(self, device: Device) -> Iterator[tuple[str, Operator, str]]:
        """Each kernel and size with the name of its point and its format."""
        for name in self.names or (stated_operator.NAME,):
            dtype = self._dtype("" if self.line else name, device)
            widths = Workload((), dtype=dtype).widths
            for n in self.sizes:
                if self.line:
                    axes = {axis: n if size == "n" else size for axis, size in self.axes.items()}
                    operator = stated_operator.operator(
                        self.line, stated_operator.stated_sizes(self.line, axes), widths
                    )
                else:
                    operator = textbook_kernels.operator(name, n, widths)
                varies = not self.line or "n" in self.axes.values()
                yield f"{name} n={n}" if varies else name, operator, dtype


def requested(
    model: str | None, n: Numbers | None, line: str | None, size: Mapping[str, object] | Sequence[str],
    options: Mapping[str, Any],
) -> tuple[TextbookKernels | None, list[Text]]:  # fmt: skip
    """The kernels that the options request, None if they request none; notes on options that do not apply.

    `model` may list textbook kernels, as in `matmul,triad`. Raises WorkloadError.
    """
    names = tuple(dict.fromkeys(name.strip() for name in (model or "").split(",")))
    dtype = options.get("dtype")
    if line is None and not set(names) <= textbook_kernels.KERNELS.keys():
        why = Message("there is no kernel in ", Option("model"), " or ", Option("line"))
        return None, [ignored(name, why) for name, value in (("n", n), ("size", size or None)) if value is not None]
    if line is not None and model is not None:
        raise WorkloadError(Option("model", model), " and ", Option("line"), " are two subjects; give one of them")
    check_kernel(1, dtype or "fp16")
    sizes = [DEFAULT_SIZE] if n is None else grid.numbers("n", n, 1, MAX_VALUE, MAX_SIZES)
    notes: list[Text] = [ignored(name, "a kernel has none") for name in non_default_options(options, used=("dtype",))]
    if line is None:
        notes += [ignored("size", Message("it is the size of an axis of ", Option("line")))] if size else []
        return TextbookKernels(names, tuple(sizes), dtype), notes
    axes = size if isinstance(size, Mapping) else stated_operator.parsed_sizes(size)
    if n is not None and "n" not in axes.values():
        notes.append(ignored("n", Message("no axis has it; try ", Option("size", "i=n"))))
        sizes = sizes[:1]
    kernels = TextbookKernels((), tuple(sizes), dtype, stated_operator.stated_line(line), axes)
    return kernels, notes
