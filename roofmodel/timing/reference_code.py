"""The kernels that an engine runs besides those of the operators: `extra_kernels` of its file.

Under `torch.autocast` there are also its casts (`casting.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import MASK, Format, Tensor
from roofmodel.counting.training.dropout import dropped_branches
from roofmodel.engines.engine import Engine
from roofmodel.models.architecture import Dropout, ReferenceCode
from roofmodel.numbers.algebra import Number, either, largest, maximum, trace_branches
from roofmodel.timing.extra_kernels import NCHW, WIDE, ExtraKernel, composed, is_composed, kernel_in_nchw


def extra_kernels(
    operators: Sequence[Operator], code: ReferenceCode, engine: Engine
) -> Iterator[tuple[ExtraKernel, ...]]:
    """The extra kernels of an engine, operator by operator, in order. In PyTorch's eager mode:

    - `scale_and_mask`: attention scales the scores and adds the mask in separate kernels (transformers'
      `eager_attention_forward`); the gradient of scaling is another. `fp32_softmax`: most models compute the softmax in
      fp32 and cast its output.
    - `attention_copies`: batched GEMMs of attention need the rows of a head contiguous: queries, keys, values, their
      outputs and gradients are copied (`torch.matmul`). Keys and values of grouped-query attention are repeated for
      each query head (`repeat_kv`).
    - `norm_gradients`: the backward pass of a norm reads its input and gradient again for gain and bias
      (`native_layer_norm_backward`).
    - `composed`: other norms, rotary embedding, gates and some activations are several kernels
      (`extra_kernels.composed`).
    - `dropout` reads, writes and stores a mask, forward and backward (`native_dropout`). Dropout after the embedding,
      after the final norm and inside MLPs is not counted. Without `residual_dropout`, the kernel of a residual add
      applies dropout and writes the mask.
    - `joined_gradients`: gradients of the outputs of one fused GEMM (queries, keys and values) are concatenated.
    - `nchw`: convolutional networks in NCHW (`--memory-format`) convert tensors and run slower norms.
    - `fp32_loss`: the loss is computed in fp32, and its gradient is first filled with zeros.
    """
    runs = engine.extra_kernels
    cast: Iterable[tuple[ExtraKernel, ...]] = repeat(())
    if engine.autocast:
        from roofmodel.timing.casting import cast_kernels

        cast = cast_kernels(operators, code)
    dropout = code.dropout if "dropout" in runs else Dropout()
    added = {tensor.name for operator in operators for tensor in dropped_branches(operator, dropout)}
    several_of = (operator.writes for operator in operators if operator.kind == "gemm" and len(operator.writes) > 1)
    split = {f"grad.{''.join(tensor.name for tensor in writes)}" for writes in several_of}
    copied: set[tuple[object, ...]] = set()
    is_training = any(operator.name.endswith(".grad") for operator in operators)
    for operator, casting in zip(operators, cast, strict=False):
        kernels = list(_copies(operator, copied)) if "attention_copies" in runs else []
        gradient, first = operator.name.endswith(".grad"), operator.writes[0]
        several = "composed" in runs and is_composed(operator)
        if operator.kind == "softmax" and operator.group.endswith("attention"):
            apart = () if "scale_and_mask" not in runs else ("scale",) if gradient else ("scale", "mask")
            kernels += [ExtraKernel(name, 2 * operator.bytes_of(first)) for name in apart]
            wide = _is_wide(operator.widths.dtype)
            if "fp32_softmax" in runs and code.fp32_softmax and not engine.autocast and wide is not True:
                kernels.append(_softmax_in_fp32(operator, gradient, either(wide, 0, 1)))
            kernels += [_dropout(operator, first)] * dropout.probabilities
        elif operator.kind == "softmax" and operator.name.startswith("head.loss"):
            kernels += [_in_fp32(operator, first, gradient)] * ("fp32_loss" in runs)
        elif several:
            if not engine.autocast:  # under autocast `cast_kernels` counts them
                kernels.append(_composed(operator, operator.widths.dtype))
        elif operator.kind == "norm" and gradient and "norm_gradients" in runs:
            kernels.append(
                ExtraKernel("gradients of gain and bias", 2 * largest(map(operator.bytes_of, operator.writes)))
            )
        if NCHW in runs and (slower := kernel_in_nchw(operator, is_training)):
            kernels.append(slower)
        fused = "residual_dropout" not in runs
        kernels += [_dropout(operator, tensor, fused) for tensor in dropped_branches(operator, dropout)]
        if operator.name.endswith(".grad_weight"):
            arriving = operator.reads[0]
            if arriving.name in split and "joined_gradients" in runs:
                kernels.append(ExtraKernel(f"join {arriving.name}", 2 * operator.bytes_of(arriving)))
            kernels += [_dropout(operator, arriving)] * (arriving.name.removeprefix("grad.") in added)
        yield (*kernels, *casting)


def _is_wide(working: Format) -> bool:
    """Whether rows are fp32 or wider; a condition while a formula is traced."""
    return working.bits >= 8 * WIDE


@trace_branches
def _composed(operator: Operator, working: Format) -> ExtraKernel:
    """The kernels of an operator that transformers splits into several, in the working format."""
    return composed(operator, "wide" if _is_wide(working) else "narrow")


def _dropout(operator: Operator, tensor: Tensor, fused: bool = False) -> ExtraKernel:
    """The traffic of dropout on a tensor; where it is fused into another kernel, the mask only."""
    mask = MASK.bytes(tensor.elements(operator.sizes))
    return ExtraKernel("dropout", mask if fused else 2 * operator.bytes_of(tensor) + mask)


def _copies(operator: Operator, copied: set[tuple[object, ...]]) -> Iterator[ExtraKernel]:
    """The copies of tensors with head rows for attention's batched GEMMs, each tensor once."""
    if operator.kind != "bmm" or not operator.group.endswith("attention"):
        return
    stage = operator.stage if operator.stage in ("decodes", "recomputation") else ""  # a backward pass reads the copies
    for tensor in (*operator.reads, *operator.writes):
        which = stage, operator.group, operator.layers, tensor.name
        if "h" in tensor.axes and which not in copied:
            copied.add(which)
            # Once for each query head that shares it: the GEMM reads all copies, and its operator counts one.
            sharing = operator.sizes.get("g", 1) if "k" in tensor.axes and "g" not in tensor.axes else 1
            yield ExtraKernel(f"copy {tensor.name}", 2 * sharing * operator.bytes_of(tensor))


def _softmax_in_fp32(operator: Operator, gradient: bool, runs: Number) -> ExtraKernel:
    """The extra traffic of a softmax that is computed in fp32 on 16-bit tensors.

    Scores are cast, read and written in fp32, and cast back: 6 + 8 + 6 bytes per element, where the operator counts 4;
    backward 6 + 12 + 6, where it counts 6. CUDA's kernel reads fp16 without the first cast, which is ignored here,
    because `roof explore` distinguishes formats by their width only.
    """
    return ExtraKernel(
        "softmax in fp32", (24 - 6 if gradient else 20 - 4) * operator.writes[0].elements(operator.sizes), runs
    )


def _in_fp32(operator: Operator, logits: Tensor, gradient: bool) -> ExtraKernel:
    """The extra traffic of a loss that is computed in fp32.

    Narrower logits are cast, and the loss reads and writes fp32. The incoming gradient is zero except at the target
    token; its zeros are written and read.
    """
    elements, narrow = logits.elements(operator.sizes), operator.bytes_of(logits)
    wide = maximum(WIDE * elements, narrow)
    cast = either(narrow < wide, narrow + wide, 0)
    return ExtraKernel("in fp32", cast + 2 * (wide - narrow) + 2 * wide * gradient)
