"""Tensors and values among the recorded arguments of a PyTorch operator, with the bytes of each tensor."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from roofmodel.profiles.kernel import RecordedInputs, Sizes

# C++ names of element types (c10/core/ScalarType.h) -> bytes per element, and the name of the number format.
_TYPES: dict[str, tuple[int, str]] = {
    "double": (8, "fp64"), "float": (4, "fp32"), "c10::half": (2, "fp16"), "c10::bfloat16": (2, "bf16"),
    "c10::float8_e4m3fn": (1, "fp8"), "c10::float8_e5m2": (1, "fp8"), "c10::float8_e4m3fnuz": (1, "fp8"),
    "c10::float8_e5m2fnuz": (1, "fp8"), "signed char": (1, "int8"), "unsigned char": (1, "uint8"), "char": (1, "int8"),
    "bool": (1, "bool"), "short": (2, "int16"), "int": (4, "int32"), "long": (8, "int64"), "long int": (8, "int64"),
    "long long": (8, "int64"), "unsigned int": (4, "uint32"), "unsigned long": (8, "uint64"),
}  # fmt: skip
FLOATS = ("fp64", "fp32", "fp16", "bf16", "fp8")
_MAX_ELEMENTS = 2**62


class NotCounted(Exception):
    """FLOPs or bytes of an operator do not follow from its recorded arguments; the message is the reason."""


class RecordedTensor(NamedTuple):
    """A tensor argument."""

    shape: Sizes
    form: str  # fp16, int64, ...
    width: int  # bytes per element
    strides: Sizes = ()  # empty: not recorded

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes in memory: elements that several indices share (strides of 0, overlapping windows) count once."""
        if len(self.strides) != len(self.shape) or not self.elements:
            return self.elements * self.width
        distinct = math.prod(size for size, stride in zip(self.shape, self.strides, strict=True) if stride)
        reach = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return min(distinct, reach) * self.width


class Arguments:
    """The arguments of one operator by position.

    `list_type` is the C++ type of the tensors in lists, which the file does not record; None: unknown. `caller` has the
    arguments of the operator that called this one.
    """

    def __init__(
        self, inputs: RecordedInputs, list_type: str | None = None, caller: RecordedInputs | None = None
    ) -> None:
        self._inputs, self._list_type, self._caller = inputs, list_type, caller

    @property
    def caller(self) -> Arguments:
        """The arguments of the calling operator. Raises NotCounted if they are not recorded."""
        if self._caller is None:
            raise NotCounted("the shapes of the operator that called it are not recorded")
        return Arguments(self._caller)

    def optional(self, index: int) -> RecordedTensor | None:
        """A tensor; None for an argument that is missing or is no tensor."""
        shape, kind = self._entry(index)
        width, form = _TYPES.get(kind, (0, ""))
        sizes = tuple(size for size in shape if isinstance(size, int))
        if not width or len(sizes) != len(shape) or math.prod(sizes) > _MAX_ELEMENTS:
            return None
        strides = self._inputs.strides[index] if index < len(self._inputs.strides) else ()
        return RecordedTensor(sizes, form, width, tuple(stride for stride in strides if isinstance(stride, int)))

    def tensor(self, index: int) -> RecordedTensor:
        """A tensor. Raises NotCounted if it is missing."""
        if (argument := self.optional(index)) is None:
            kind = self._entry(index)[1]
            if not self._inputs.types:
                raise NotCounted("the types of its arguments are not recorded")
            raise NotCounted(f"complex numbers ({kind})" if "complex" in kind else f"argument {index} is no tensor")
        return argument

    def tensors(self, index: int) -> list[RecordedTensor]:
        """The tensors of a list. Raises NotCounted if their sizes or their element type are unknown."""
        shapes, kind = self._entry(index)
        if "list" not in kind or not shapes or isinstance(shapes[0], int):
            raise NotCounted("the sizes of its list of tensors are not recorded")
        if self._list_type is None:
            raise NotCounted("the element type of its list of tensors is not recorded")
        width, form = _TYPES[self._list_type]
        strides = self._inputs.strides[index] if index < len(self._inputs.strides) else ()
        strides = strides if len(strides) == len(shapes) else ((),) * len(shapes)
        return [RecordedTensor(shape, form, width, each) for shape, each in zip(shapes, strides, strict=True)]  # type: ignore[arg-type]

    def value(self, index: int) -> str:
        """The text of a value; empty if it was not recorded."""
        return self._inputs.values[index] if index < len(self._inputs.values) else ""

    def flag(self, index: int) -> bool:
        """A truth value. Raises NotCounted if it was not recorded."""
        if self.value(index) not in ("True", "False"):
            raise NotCounted("its options are not recorded (PyTorch before 2.1)")
        return self.value(index) == "True"

    def integers(self, index: int) -> tuple[int, ...]:
        """A list of integers, or one integer. Raises NotCounted if it was not recorded."""
        text = self.value(index)
        if not re.fullmatch(r"\[?(-?\d{1,15}(, ?)?)*\]?", text, re.ASCII) or not text:
            raise NotCounted("its options are not recorded (PyTorch before 2.1)")
        return tuple(map(int, re.findall(r"-?\d+", text)))

    def __len__(self) -> int:
        return len(self._inputs.types)

    def _entry(self, index: int) -> tuple[Sizes | tuple[Sizes, ...], str]:
        if index >= min(len(self._inputs.shapes), len(self._inputs.types)):
            return (), ""
        return self._inputs.shapes[index], self._inputs.types[index].lower()


class Work(NamedTuple):
    """FLOPs and bytes of one operator. `form` is the number format of its matrix multiplications or elements."""

    matmul_flops: int
    vector_flops: int
    bytes: int
    form: str
    kernels: int = 1  # matrix kernels that a library launches for it: 2 for the gradients of a convolution
