"""Dropout in a training step: the tensors that it acts on, and the masks that it keeps for the backward pass.

PyTorch's `native_dropout` writes the scaled tensor and a mask of 1 byte per element, and its gradient reads the mask
only. Fused attention (FlashAttention) keeps the state of its random number generator instead of a mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import Tensor, parse
from roofmodel.models.architecture import Dropout

RESIDUAL_STREAM = ("x", "source")  # of a decoder or the only stack, of an encoder


def with_dropout(passed: Sequence[Operator], dropout: Dropout) -> tuple[Operator, ...]:
    """The operators of a forward pass with an operator for each dropout, to count what the pass keeps.

    The added operators have no FLOPs. Their time is counted by `timing/reference_code.py`.
    """
    return tuple(_inserted(passed, dropout)) if any(dropout) else tuple(passed)


def _inserted(passed: Sequence[Operator], dropout: Dropout) -> Iterator[Operator]:
    embedded = set(_ends_of_embeddings(passed)) if dropout.embedding else set()
    for place, operator in enumerate(passed):
        yield from (_dropout(operator, tensor) for tensor in dropped_branches(operator, dropout))
        yield operator
        softmax = operator.kind == "softmax" and operator.group.endswith("attention")
        if (
            (dropout.probabilities and softmax)
            or (dropout.activation and operator.name.endswith("mlp.activation"))
            or (dropout.final and operator.name.endswith("norm.final"))
            or place in embedded
        ):
            yield _dropout(operator, operator.writes[0])


def dropped_branches(operator: Operator, dropout: Dropout) -> tuple[Tensor, ...]:
    """The outputs of blocks on which dropout acts before this operator adds them to the residual stream."""
    if operator.name.split(".")[-2:-1] != ["residual"] or operator.name.endswith("_branches"):
        return ()
    return tuple(
        tensor
        for tensor in operator.reads[1:]
        if (dropout.attention_output if tensor.name == "a" else dropout.block_output)
    )


def _ends_of_embeddings(passed: Sequence[Operator]) -> Iterator[int]:
    """For each stack, the index of the operator that writes the embedding, before a projection to the hidden size."""
    last = None
    for place, operator in enumerate(passed):
        if operator.layers is not None:
            if last is not None:
                yield last
            last = None
        elif "embedding" in operator.name and not operator.name.endswith("embedding.project"):
            last = place if operator.writes[0].name in RESIDUAL_STREAM else last


def _dropout(operator: Operator, tensor: Tensor) -> Operator:
    """Dropout of a tensor, in the layers and the group of an operator that reads or writes it."""
    mask = Tensor(f"mask.{tensor.name}", tensor.axes)
    return replace(
        operator, name=f"{operator.name}.dropout", kind="dropout", lines=(parse(f"{tensor} -> {tensor} {mask}"),),
        matmul_flops=0, vector_flops=0, touched={}, keeps="mask", parts=(), collective=None, function="", eager=None,
    )  # fmt: skip
