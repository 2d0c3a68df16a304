"""What `torch.autocast` adds to operators that run one by one: casts, and tensors of fp32 among those of 16 bits.

Autocast computes products in 16 bits, and norms, softmax and losses in fp32 (the lists of operators in
https://docs.pytorch.org/docs/stable/amp.html); everything else computes in the widest type that it reads. Parameters
and tables are fp32, and what of them a product takes is cast once. So a stream of rows that begins in an embedding and
is added to stays fp32, each product that reads a norm's result casts it, and each gradient goes back the same way.
Batch norms keep the type of what they read. Softmax reads fp16 as it is and gives fp32; bf16 is cast before
(aten/src/ATen/native/SoftMax.cpp, `half_to_float`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from roofmodel.algebra import largest
from roofmodel.counting.notation import Tensor
from roofmodel.counting.operator import Operator
from roofmodel.models.architecture import Code
from roofmodel.prediction.extra_kernels import TABLES, WIDE, ExtraKernel, Width, composed, is_composed

GEMM_KINDS = ("gemm", "bmm", "grouped_gemm", "attention", "conv")
AUTOCAST_FORMATS = ("bf16", "fp16")
"""The formats that autocast multiplies in: of 2 bytes, so that what is fp32 takes twice the bytes that are counted, and
a cast three times as many."""
POWER = "gelu_new"
"""What raises to a power, which autocast does in fp32."""
PARAMETER_FORMAT = "fp32"
"""The format of parameters, which autocast casts from."""


class TensorTypes(NamedTuple):
    """Of a forward operator, by tensor: whether what it reads, and what it writes, is fp32."""

    reads: dict[str, bool]
    writes: dict[str, bool]

    @property
    def wide(self) -> bool:
        """Whether it computes in fp32 what is no product."""
        return any(self.writes.values())

    @property
    def width(self) -> Width:
        """Of what several kernels compute; tables are fp32 in any case."""
        rows = [wide for name, wide in self.reads.items() if name not in TABLES]
        return "narrow" if not self.wide else "wide" if all(rows) else "mixed"


def casts(operators: Sequence[Operator], code: Code) -> Iterator[tuple[ExtraKernel, ...]]:
    """By operator, in order, the casts beside it, and what it moves more as some of it is fp32 (`in fp32`).

    Probabilities are dropped out in the type that softmax gives, or in that of the queries, to which most models' code
    casts them (`code.wide_softmax`). The loss is left to `eager.beside`, which has it in fp32 under any runtime. An
    optimizer counts what it keeps, and collectives count 16 bits of what they exchange between layers.
    """
    wide: dict[str, bool] = {}  # by tensor, what it was last written as
    forward: dict[tuple[object, ...], TensorTypes] = {}  # by name and layers: those of some may read another tensor
    wide_queries: dict[tuple[int, ...] | None, bool] = {}  # by layers
    summed: set[str] = set()  # of 16 bits, and added to what is fp32: their gradient arrives in fp32
    for operator in operators:
        name, gradient, _ = operator.name.partition(".grad")
        which, found = (name, operator.layers), list[ExtraKernel]()
        if operator.collective:
            wide.update(_written(operator, any(_read(operator, wide).values())))
        elif gradient and which in forward:
            types = forward[which]
            found += [composed(operator, types.width)] if is_composed(operator) else _backward(operator, types, summed)
        elif operator.kind != "optimizer" and not name.startswith("head.loss"):
            types = forward[which] = _types(operator, wide)
            wide.update(types.writes)
            if operator.lines[0].terms and types.wide:
                summed |= {tensor for tensor, is_wide in types.reads.items() if not is_wide}
            found += [composed(operator, types.width)] if is_composed(operator) else _forward(operator, types)
        if operator.kind == "bmm" and not gradient and operator.name.endswith("scores"):
            wide_queries[operator.layers] = forward[which].reads[operator.reads[0].name]
        dropped = code.drops_probabilities and operator.kind == "softmax" and operator.group.endswith("attention")
        if dropped and (wide_queries.get(operator.layers, True) or not code.wide_softmax):
            found.append(ExtraKernel("dropout in fp32", 2 * operator.bytes_of(operator.writes[0])))
        yield tuple(found)


def _types(operator: Operator, wide: dict[str, bool]) -> TensorTypes:
    reads = _read(operator, wide)
    if operator.kind in GEMM_KINDS:
        return TensorTypes(reads, _written(operator, False))
    with_parameters = operator.kind != "norm" and any(_is_stored_wide(operator, t) for t in operator.parameters)
    in_fp32 = operator.kind == "softmax" or operator.function == POWER or _is_in_fp32(operator) or with_parameters
    return TensorTypes(reads, _written(operator, in_fp32 or any(reads.values())))


def _read(operator: Operator, wide: dict[str, bool]) -> dict[str, bool]:
    """Of what is no parameter. What no operator has written is fp32: tables, images, rows from another stage."""
    return {t.name: not t.is_cached and wide.get(t.name, True) for t in operator.reads if not t.is_parameter}


def _written(operator: Operator, wide: bool) -> dict[str, bool]:
    return {tensor.name: wide for tensor in operator.writes}


def _converts(operator: Operator) -> bool:
    """Whether a softmax reads 16 bits and gives fp32 in one kernel."""
    return operator.widths.compute == "fp16"


def _is_in_fp32(operator: Operator) -> bool:
    """Whether what it reads is cast first: of a norm within a row, and of softmax, which converts fp16 itself. A batch
    norm has a gain for each channel, and rows beside it."""
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
    """Gradients have the type of their tensor: what was cast on the way there is cast on the way back."""
    parameters = [tensor for tensor in operator.writes if _of(tensor)[0].isupper()]
    if operator.kind in GEMM_KINDS:
        if operator.name.endswith(".grad_weight") and _of(operator.reads[0]) in summed:
            yield from _cast(operator, operator.reads[0])
        for tensor in operator.writes:
            if tensor in parameters or types.reads[_of(tensor)]:
                yield from _cast(operator, tensor)
        return
    if not types.wide:  # biases of products
        for tensor in parameters:
            yield from _cast(operator, tensor)
    if ".grad_sum_" in operator.name:  # gradients of what it read, from several operators
        yield from _in_fp32(operator, [t for t in (*operator.reads, *operator.writes) if types.reads[_of(t)]])
        return
    given = [tensor for tensor in operator.writes if types.wide and _of(tensor) in types.reads]
    narrow = [tensor for tensor in given if not types.reads[_of(tensor)]]
    if operator.kind == "softmax" and _converts(operator):
        given = [tensor for tensor in given if tensor not in narrow]  # converted as they are written
    else:
        for tensor in narrow:
            yield from _cast(operator, tensor)
    arrived = [tensor for tensor in operator.reads if tensor.name.startswith("grad.") and types.writes.get(_of(tensor))]
    kept = [t for t in operator.reads if types.reads.get(t.name) or types.writes.get(t.name)]
    if _is_in_fp32(operator):
        kept = [t for t in operator.reads if t.name in (types.reads | types.writes)]  # of what was read, the cast
    yield from _in_fp32(operator, [*arrived, *kept, *given])
    if types.wide and operator.kind == "norm":  # as the second pass, for gain and bias
        yield ExtraKernel("gradients of gain and bias in fp32", 2 * largest(map(operator.bytes_of, operator.writes)))


def _of(gradient: Tensor) -> str:
    """The name of the tensor that it is the gradient of."""
    return gradient.name.removeprefix("further.").removeprefix("grad.")


def after_casts(operator: Operator) -> Operator:
    """A product as its kernel runs, after the casts beside it: all that it reads and writes in 16 bits."""
    widths = operator.widths
    if operator.kind not in GEMM_KINDS or widths.weights.bits <= widths.dtype.bits:
        return operator
    return replace(operator, widths=widths._replace(weights=widths.dtype))


def _cast(operator: Operator, tensor: Tensor) -> Iterator[ExtraKernel]:
    """A cast between 16 bits and fp32; none of a parameter that is stored in 16 bits."""
    if _is_stored_wide(operator, tensor) or not _of(tensor)[0].isupper():
        narrow = operator.widths._replace(weights=operator.widths.dtype)
        yield ExtraKernel(f"cast {tensor.name}", 3 * replace(operator, widths=narrow).bytes_of(tensor))


def _is_stored_wide(operator: Operator, tensor: Tensor) -> bool:
    """Whether it is counted as fp32, as parameters are unless --weights says otherwise."""
    return operator.widths.format(tensor).bits == 8 * WIDE


def _in_fp32(operator: Operator, tensors: Sequence[Tensor]) -> Iterator[ExtraKernel]:
    """What is counted as 16 bits and has twice as many."""
    if tensors:
        yield ExtraKernel("in fp32", sum(operator.bytes_of(tensor) for tensor in tensors))
