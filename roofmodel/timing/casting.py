"""Extra kernels under `torch.autocast`: casts between 16 bits and fp32, and operators that read or write fp32.

Autocast computes GEMMs in 16 bits, and norms, softmax and losses in fp32 (the lists of operators in
https://docs.pytorch.org/docs/stable/amp.html). All other operators compute in the widest format of their inputs.
Parameters and tables are fp32; a GEMM's parameters are cast once. The residual stream therefore stays fp32 from the
embedding on, each GEMM that reads the output of a norm casts it, and each gradient is cast in the opposite direction.
Batch norms keep the format of their input. Softmax reads fp16 directly and writes fp32; bf16 is cast first
(aten/src/ATen/native/SoftMax.cpp, `half_to_float`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import Tensor
from roofmodel.models.architecture import ReferenceCode
from roofmodel.numbers.algebra import largest
from roofmodel.timing.extra_kernels import TABLES, WIDE, ExtraKernel, Width, composed, is_composed

GEMM_KINDS = ("gemm", "bmm", "grouped_gemm", "attention", "conv")
FP32_ACTIVATION = "gelu_new"
"""The activation with a power, which autocast computes in fp32."""


class TensorTypes(NamedTuple):
    """For each tensor that a forward operator reads or writes: whether it is fp32."""

    reads: dict[str, bool]
    writes: dict[str, bool]

    @property
    def wide(self) -> bool:
        """Whether an operator that is no GEMM computes in fp32."""
        return any(self.writes.values())

    @property
    def width(self) -> Width:
        """The format of an operator that runs as several kernels; tables are always fp32."""
        rows = [wide for name, wide in self.reads.items() if name not in TABLES]
        return "narrow" if not self.wide else "wide" if all(rows) else "mixed"


def cast_kernels(operators: Sequence[Operator], code: ReferenceCode) -> Iterator[tuple[ExtraKernel, ...]]:
    """The casts of each operator, in order, and its additional bytes for fp32 tensors (`in fp32`).

    Dropout on attention probabilities runs in the output format of softmax, or in the format of the queries, to which
    most models cast them (`code.fp32_softmax`). The loss is not counted here: `reference_code.extra_kernels` computes
    it in fp32 in every engine. An optimizer counts its own state. Collectives between layers count 16 bits per element.
    """
    wide: dict[str, bool] = {}  # tensor -> whether it was last written as fp32
    forward: dict[tuple[object, ...], TensorTypes] = {}  # by name and layers, which may read different tensors
    wide_queries: dict[tuple[int, ...] | None, bool] = {}  # by layers
    summed: set[str] = set()  # 16-bit tensors added to fp32 tensors: their gradient arrives in fp32
    for operator in operators:
        name, gradient, _ = operator.name.partition(".grad")
        which, kernels = (name, operator.layers), list[ExtraKernel]()
        if operator.collective:
            wide.update(_written(operator, any(_read(operator, wide).values())))
        elif gradient and which in forward:
            types = forward[which]
            kernels += (
                [composed(operator, types.width)] if is_composed(operator) else _backward(operator, types, summed)
            )
        elif operator.kind != "optimizer" and not name.startswith("head.loss"):
            types = forward[which] = _types(operator, wide)
            wide.update(types.writes)
            if operator.lines[0].terms and types.wide:
                summed |= {tensor for tensor, is_wide in types.reads.items() if not is_wide}
            kernels += [composed(operator, types.width)] if is_composed(operator) else _forward(operator, types)
        if operator.kind == "bmm" and not gradient and operator.name.endswith("scores"):
            wide_queries[operator.layers] = forward[which].reads[operator.reads[0].name]
        dropped = code.dropout.probabilities and operator.kind == "softmax" and operator.group.endswith("attention")
        if dropped and (wide_queries.get(operator.layers, True) or not code.fp32_softmax):
            kernels.append(ExtraKernel("dropout in fp32", 2 * operator.bytes_of(operator.writes[0])))
        yield tuple(kernels)


def _types(operator: Operator, wide: dict[str, bool]) -> TensorTypes:
    reads = _read(operator, wide)
    if operator.kind in GEMM_KINDS:
        return TensorTypes(reads, _written(operator, False))
    with_parameters = operator.kind != "norm" and any(_is_stored_wide(operator, t) for t in operator.parameters)
    in_fp32 = (
        operator.kind == "softmax" or operator.function == FP32_ACTIVATION or _is_in_fp32(operator) or with_parameters
    )
    return TensorTypes(reads, _written(operator, in_fp32 or any(reads.values())))


def _read(operator: Operator, wide: dict[str, bool]) -> dict[str, bool]:
    """Formats of the inputs, without parameters. Inputs that no operator wrote (tables, images) are fp32."""
    return {t.name: not t.is_cached and wide.get(t.name, True) for t in operator.reads if not t.is_parameter}


def _written(operator: Operator, wide: bool) -> dict[str, bool]:
    return {tensor.name: wide for tensor in operator.writes}


def _converts(operator: Operator) -> bool:
    """Whether a softmax reads 16 bits and writes fp32 in one kernel."""
    return operator.widths.compute == "fp16"


def _is_in_fp32(operator: Operator) -> bool:
    """Whether inputs are cast to fp32 first: for norms over a row, and for softmax except in fp16.

    A batch norm, whose gain is per channel, keeps the format of its input.
    """
    if operator.kind == "softmax":
        return not _converts(operator)
    gains = operator.parameters[:1]
    return operator.kind == "norm" and all(gain.axes[-1:] == operator.reads[0].axes[-1:] for gain in gains)


def _forward(operator: Operator, types: TensorTypes) -> Iterator[ExtraKernel]:
    if operator.kind in GEMM_KINDS:
        for tensor in operator.reads:
            if tensor.is_parameter or types.reads[tensor.name]:
                yield from _cast(operator, tensor)
        return
    wide = [tensor for tensor in operator.reads if types.reads.get(tensor.name)]
    if _is_in_fp32(operator):
        for tensor in (narrow := [t for t in operator.reads if not types.reads.get(t.name, True)]):
            yield from _cast(operator, tensor)
        wide += narrow
    yield from _in_fp32(operator, [*wide, *(t for t in operator.writes if types.writes[t.name])])


def _backward(operator: Operator, types: TensorTypes, summed: set[str]) -> Iterator[ExtraKernel]:
    """A gradient has the format of its tensor, so that each forward cast has a cast in the backward pass."""
    parameters = [tensor for tensor in operator.writes if _of(tensor)[0].isupper()]
    if operator.kind in GEMM_KINDS:
        if operator.name.endswith(".grad_weight") and _of(operator.reads[0]) in summed:
            yield from _cast(operator, operator.reads[0])
        for tensor in operator.writes:
            if tensor in parameters or types.reads[_of(tensor)]:
                yield from _cast(operator, tensor)
        return
    if not types.wide:  # biases of GEMMs
        for tensor in parameters:
            yield from _cast(operator, tensor)
    if ".grad_sum_" in operator.name:  # the sum of a tensor's gradients from several operators
        yield from _in_fp32(operator, [t for t in (*operator.reads, *operator.writes) if types.reads[_of(t)]])
        return
    results = [tensor for tensor in operator.writes if types.wide and _of(tensor) in types.reads]
    narrow = [tensor for tensor in results if not types.reads[_of(tensor)]]
    if operator.kind == "softmax" and _converts(operator):
        results = [tensor for tensor in results if tensor not in narrow]  # the kernel writes them in 16 bits
    else:
        for tensor in narrow:
            yield from _cast(operator, tensor)
    arrived = [tensor for tensor in operator.reads if tensor.name.startswith("grad.") and types.writes.get(_of(tensor))]
    operands = [t for t in operator.reads if types.reads.get(t.name) or types.writes.get(t.name)]
    if _is_in_fp32(operator):
        # The kernel reads the cast copies.
        operands = [t for t in operator.reads if t.name in (types.reads | types.writes)]
    yield from _in_fp32(operator, [*arrived, *operands, *results])
    if types.wide and operator.kind == "norm":  # the second pass, for gain and bias
        yield ExtraKernel("gradients of gain and bias in fp32", 2 * largest(map(operator.bytes_of, operator.writes)))


def _of(gradient: Tensor) -> str:
    """The name of the tensor that a gradient belongs to."""
    return gradient.name.removeprefix("further.").removeprefix("grad.")


def after_casts(operator: Operator) -> Operator:
    """A GEMM as its kernel runs, after the casts: all its tensors have 16 bits."""
    widths = operator.widths
    if operator.kind not in GEMM_KINDS or widths.weights.bits <= widths.dtype.bits:
        return operator
    return replace(operator, widths=widths._replace(weights=widths.dtype))


def _cast(operator: Operator, tensor: Tensor) -> Iterator[ExtraKernel]:
    """A cast between 16 bits and fp32; none for a parameter that is stored in 16 bits."""
    if _is_stored_wide(operator, tensor) or not _of(tensor)[0].isupper():
        narrow = operator.widths._replace(weights=operator.widths.dtype)
        yield ExtraKernel(f"cast {tensor.name}", 3 * replace(operator, widths=narrow).bytes_of(tensor))


def _is_stored_wide(operator: Operator, tensor: Tensor) -> bool:
    """Whether a tensor is counted as fp32, the default of parameters under autocast."""
    return operator.widths.format(tensor).bits == 8 * WIDE


def _in_fp32(operator: Operator, tensors: Sequence[Tensor]) -> Iterator[ExtraKernel]:
    """The additional bytes of tensors that are counted with 16 bits but are fp32."""
    if tensors:
        yield ExtraKernel("in fp32", sum(operator.bytes_of(tensor) for tensor in tensors))
