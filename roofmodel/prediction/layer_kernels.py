"""Kernels with a timing formula of their own: attention of encoders, latent attention, delta rules, causal filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from roofmodel.algebra import Number
from roofmodel.counting.operator import Operator
from roofmodel.prediction import batched_gemm, latent_attention, recurrent, tiled_attention
from roofmodel.prediction.formula import FormulaDescription


class KernelFormula(NamedTuple):
    """A formula, and how its input follows from an operator; None where the input is that of a GEMM."""

    description: FormulaDescription
    function: Callable[..., Number]
    work: Callable[[Operator], Any] | None


FORMULAS = {
    "encoder": KernelFormula(tiled_attention.DESCRIPTION, tiled_attention.seconds, tiled_attention.work),
    "latent_context": KernelFormula(tiled_attention.DESCRIPTION, tiled_attention.seconds, tiled_attention.work),
    "latent_generation": KernelFormula(latent_attention.DESCRIPTION, latent_attention.seconds, latent_attention.work),
    "latent_products": KernelFormula(batched_gemm.DESCRIPTION, batched_gemm.seconds, None),
    "filter": KernelFormula(recurrent.FILTER, recurrent.filter_seconds, recurrent.filter_work),
    "filter_update": KernelFormula(recurrent.RECURRENCE, recurrent.recurrence_seconds, recurrent.update_work),
    "chunks": KernelFormula(recurrent.CHUNKS, recurrent.chunk_seconds, recurrent.chunk_work),
    "recurrence": KernelFormula(recurrent.RECURRENCE, recurrent.recurrence_seconds, recurrent.update_work),
}
"""The formulas by kind of parameters."""


def kind(operator: Operator) -> str:
    """The kind of parameters of an operator with a formula here; empty for other operators.

    A decode is one query over more keys. Naive latent attention of a decode is attention with keys and values of each
    head, as of other models.
    """
    if operator.kind == "attention" and "t:s" in operator.sizes:
        return _attention_kind(operator)
    if operator.kind == "bmm" and operator.parameters and operator.gemm is not None:
        return "latent_products"
    if recurrent.is_filter(operator):
        return "filter_update" if recurrent.is_update(operator) else "filter"
    if recurrent.is_delta_rule(operator):
        return "recurrence" if recurrent.is_update(operator) else "chunks"
    return ""


def _attention_kind(operator: Operator) -> str:
    sizes = operator.sizes
    decodes = _all(sizes["t"] == 1) and _all(sizes["s"] > 1)
    if "zk" in sizes and "h'" in sizes:
        if latent_attention.is_absorbed(operator):
            return "latent_generation" if decodes else ""
        return "" if decodes else "latent_context"
    if not decodes and {"k", "g"} <= sizes.keys() and not operator.causal:
        return "encoder"
    return ""


def _all(condition: Any) -> bool:
    return bool(condition.all() if hasattr(condition, "all") else condition)
