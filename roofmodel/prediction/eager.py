"""How long the operators of a phase take as a framework runs them: one by one, with kernels beside them.

Eager: PyTorch's own kernels, and those that no operator counts (`beside`). Autocast: the same under `torch.autocast`,
which casts (`casting.py`). Megatron: the same, but for kernels that Megatron-LM fuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

from roofmodel.algebra import either, largest, maximum
from roofmodel.counting.notation import Tensor
from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Code
from roofmodel.prediction.casting import after_casts, casts
from roofmodel.prediction.extra_kernels import WIDE, ExtraKernel, composed, is_composed
from roofmodel.prediction.roofline import Placement
from roofmodel.prediction.timing import Expected, expect, expect_elementwise

MASK = 1  # bytes that dropout keeps of an element: whether it stayed


def as_executed(operator: Operator, runtime: str) -> Operator:
    """What the kernel of an operator computes: autocast has cast its parameters before."""
    return after_casts(operator) if runtime == "autocast" else operator


def expect_eager(
    operator: Operator, placed: Placement, kernels: Sequence[ExtraKernel], device: Device, dtype: str
) -> Expected | None:
    """The expected time of one occurrence of an operator, with the kernels beside it."""
    time = expect(operator, device, dtype, placed=placed)
    for kernel in kernels:
        more = expect_elementwise(kernel.bytes, device, dtype)
        time = time and more and time + more
    return time


def extra_kernels(
    operators: Sequence[Operator], code: Code, runtime: str = "eager"
) -> Iterator[tuple[ExtraKernel, ...]]:
    """By operator, in order, the kernels that PyTorch's eager mode runs beside it.

    Attention scales the scores and adds the mask in kernels of their own (transformers' `eager_attention_forward`); the
    gradient of scaling is one more. Most models' code has the softmax in fp32 and casts what it gives back. Its batched
    products want the rows of a head together, so that queries, keys, values and what comes of them are copied, as are
    their gradients (`torch.matmul`); keys and values that query heads share are copied for each of them (`repeat_kv`),
    and read so, or added up. A norm's backward pass reads its input and gradient once more for gain and bias
    (`native_layer_norm_backward`). Other norms, rotary embedding, gates and some activations are several kernels
    (`beside.composed`). Dropout reads, writes and keeps a mask, forward and backward (`native_dropout`); what is
    dropped of the embedding is left out. The gradients of what a product gave in one matrix, queries, keys and values
    say, are joined again. The loss is computed in fp32, and its gradient filled with zeros first.

    Fused as in Megatron-LM (Narayanan et al., arXiv 2104.04473, section 4.2), one kernel scales, masks and normalises
    scores, tensors lie so that products of heads need no copies, and what a block adds to the rows is dropped out by
    the kernel that adds it, which writes the mask beside.
    """
    fused = runtime == "megatron"
    cast = casts(operators, code) if runtime == "autocast" else repeat(())
    added = {tensor.name for operator in operators for tensor in _added(operator) if code.drops_rows}
    several_of = (operator.writes for operator in operators if operator.kind == "gemm" and len(operator.writes) > 1)
    split = {f"grad.{''.join(tensor.name for tensor in writes)}" for writes in several_of}
    copied: set[tuple[object, ...]] = set()
    for operator, casting in zip(operators, cast, strict=False):
        found = [] if fused else list(_copies(operator, copied))
        gradient, first = operator.name.endswith(".grad"), operator.writes[0]
        several = not fused and is_composed(operator)
        if operator.kind == "softmax" and operator.group.endswith("attention"):
            apart = () if fused else ("scale",) if gradient else ("scale", "mask")
            found += [ExtraKernel(name, 2 * operator.bytes_of(first)) for name in apart]
            if code.wide_softmax and runtime == "eager" and not _is_wide(operator):
                found.append(_softmax_in_fp32(operator, gradient))
            found += [_dropout(operator, first)] * code.drops_probabilities
        elif operator.kind == "softmax" and operator.name.startswith("head.loss"):
            found.append(_in_fp32(operator, first, gradient))
        elif several and runtime == "eager":  # under autocast `casts` has them, by their types
            found.append(composed(operator, "wide" if _is_wide(operator) else "narrow"))
        elif operator.kind == "norm" and gradient and not several:
            found.append(
                ExtraKernel("gradients of gain and bias", 2 * largest(map(operator.bytes_of, operator.writes)))
            )
        found += [_dropout(operator, tensor, fused) for tensor in _added(operator) if tensor.name in added]
        if operator.name.endswith(".grad_weight"):
            arriving = operator.reads[0]
            if arriving.name in split and not fused:
                found.append(ExtraKernel(f"join {arriving.name}", 2 * operator.bytes_of(arriving)))
            found += [_dropout(operator, arriving)] * (arriving.name.removeprefix("grad.") in added)
        yield (*found, *casting)


def _is_wide(operator: Operator) -> bool:
    """Whether rows are fp32 or wider. One question for all: a page writes each answer down apart."""
    return operator.widths.dtype.bits >= 8 * WIDE


def _added(operator: Operator) -> tuple[Tensor, ...]:
    """Of a residual sum, what a block gives to it."""
    return operator.reads[1:] if operator.name.split(".")[-2:-1] == ["residual"] else ()


def _dropout(operator: Operator, tensor: Tensor, fused: bool = False) -> ExtraKernel:
    """What dropout moves of a tensor; fused with the kernel that has it, its mask alone."""
    mask = MASK * tensor.elements(operator.sizes)
    return ExtraKernel("dropout", mask if fused else 2 * operator.bytes_of(tensor) + mask)


def _copies(operator: Operator, copied: set[tuple[object, ...]]) -> Iterator[ExtraKernel]:
    """Of a product of attention, the copies of what has rows of heads, of each tensor once."""
    if operator.kind != "bmm" or not operator.group.endswith("attention"):
        return
    for tensor in (*operator.reads, *operator.writes):
        which = operator.stage == "recomputation", operator.group, operator.layers, tensor.name
        if "h" in tensor.axes and which not in copied:
            copied.add(which)
            # Once for each query head that shares it; its product reads all of these, and counts one.
            sharing = operator.sizes.get("g", 1) if "k" in tensor.axes and "g" not in tensor.axes else 1
            yield ExtraKernel(f"copy {tensor.name}", 2 * sharing * operator.bytes_of(tensor))


def _softmax_in_fp32(operator: Operator, gradient: bool) -> ExtraKernel:
    """Of a softmax of 16 bits that is computed in fp32, what its operator does not count.

    Scores are cast, read and written in fp32, and cast back: 6 + 8 + 6 bytes each where the operator counts 4; backward
    6 + 12 + 6 for 6. That CUDA's kernel reads fp16 without the first cast is left out: formats go by their bits here,
    so that `roof explore` need not know their names.
    """
    return ExtraKernel(
        "softmax in fp32", (24 - 6 if gradient else 20 - 4) * operator.writes[0].elements(operator.sizes)
    )


def _in_fp32(operator: Operator, logits: Tensor, gradient: bool) -> ExtraKernel:
    """Of a loss over so many logits, what its operator does not count.

    Narrow logits are cast, and what the operator reads and writes is as wide as the loss. The gradient that arrives is
    zeros but for the token that came: they are written, and read.
    """
    elements, narrow = logits.elements(operator.sizes), operator.bytes_of(logits)
    wide = maximum(WIDE * elements, narrow)
    cast = either(narrow < wide, narrow + wide, 0)
    return ExtraKernel("in fp32", cast + 2 * (wide - narrow) + 2 * wide * gradient)
