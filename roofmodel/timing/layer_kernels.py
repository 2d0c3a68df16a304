"""Kinds of kernels by operator: attention, absorbed projections, delta rules, causal filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import Sets
from roofmodel.numbers.algebra import Number
from roofmodel.timing.formula import FormulaDescription


class KernelFormula(NamedTuple):
    """A formula, and how its input follows from an operator; None where the input is that of a GEMM."""

    description: FormulaDescription
    function: Callable[..., Number]
    work: Callable[[Operator], Any] | None


PREFILLS = ("prefill_attention", "encoder_attention", "latent_prefill")
DECODES = ("decode_attention", "latent_decode")
"""The kinds of parameters of fused attention (`attention.py`): many queries per sequence, and one or a few."""
KINDS = (
    "latent_products", "causal_convolution", "causal_convolution_update", "delta_rule_prefill", "delta_rule_decode",
)  # fmt: skip
"""The kinds of parameters of the other kernels."""


def kernel_formula(kind: str) -> KernelFormula:
    """The formula of a kind of KINDS. Its modules are imported here, because few models have such kernels."""
    from roofmodel.timing import batched_gemm, recurrent

    update = KernelFormula(recurrent.STATE_UPDATE, recurrent.update_seconds, recurrent.update_work)
    return {
        "latent_products": KernelFormula(batched_gemm.DESCRIPTION, batched_gemm.seconds, None),
        "causal_convolution": KernelFormula(
            recurrent.CAUSAL_CONVOLUTION, recurrent.convolution_seconds, recurrent.convolution_work
        ),
        "causal_convolution_update": update,
        "delta_rule_prefill": KernelFormula(
            recurrent.DELTA_RULE, recurrent.delta_rule_seconds, recurrent.delta_rule_work
        ),
        "delta_rule_decode": update,
    }[kind]


SIMILAR = {
    "causal_conv1d_fn_qkv3": "causal_conv1d_fn",
    "chunk_kda": "chunk_gated_delta_rule",
    "chunk_kda_with_fused_gate": "chunk_gated_delta_rule",
    "flashkda_fwd": "chunk_gated_delta_rule_flashinfer",
    "fused_recurrent_kda": "fused_recurrent_gated_delta_rule_packed_decode",
    "fused_recurrent_kda_packed_decode": "fused_recurrent_gated_delta_rule_packed_decode",
    "fused_kda_decode": "fused_recurrent_gated_delta_rule_packed_decode",
    "kda_fused_decode": "fused_recurrent_gated_delta_rule_packed_decode",
    "fused_kda_decode_mtp_dspark": "fused_recurrent_gated_delta_rule_packed_decode",
    "fused_sigmoid_gating_delta_rule_update": "fused_recurrent_gated_delta_rule_packed_decode",
}
"""Kernels of Kimi's delta attention, which no table has, and the most similar kernel of the gated delta rule."""


def similar_kernel(implementation: str, sets: Sets[Any]) -> str:
    """The implementation, or the most similar one among the known; `sglang chunk_kda` names a framework and kernel.

    A kernel of another framework is more similar than another kernel.
    """
    framework, _, kernel = implementation.rpartition(" ")
    candidates = (implementation, f"{framework} {SIMILAR.get(kernel, kernel)}".strip())
    same_kernel = (name for name in sets if name.rpartition(" ")[2] == SIMILAR.get(kernel, kernel))
    return next((name for name in candidates if name in sets), next(same_kernel, implementation))


def kind(operator: Operator) -> str:
    """The kind of parameters of an operator: one of PREFILLS, DECODES and KINDS; empty for other operators.

    Naive latent attention of a decode is attention with keys and values of each head, as of other models.
    """
    if operator.kind == "attention" and "t:s" in operator.sizes:
        return _attention_kind(operator)
    if operator.kind == "bmm" and operator.parameters and operator.gemm is not None:
        return "latent_products"
    if _is_filter(operator):
        return "causal_convolution_update" if _is_update(operator) else "causal_convolution"
    if _is_delta_rule(operator):
        return "delta_rule_decode" if _is_update(operator) else "delta_rule_prefill"
    return ""


def _is_filter(operator: Operator) -> bool:
    """Whether this is a causal convolution over tokens, with activation and cache in one kernel."""
    filters_tokens = any({"c", "r", "t+r"} <= part.sizes.keys() for part in operator.parts)
    return operator.kind == "convolution" and filters_tokens


def _is_delta_rule(operator: Operator) -> bool:
    """Whether this is the fused scan of a delta rule; other scans have no measurements."""
    return operator.kind == "scan" and {"k", "m", "h", "h'", "r"} <= operator.sizes.keys() and bool(operator.parts)


def _is_update(operator: Operator) -> bool:
    """Whether a filter or scan updates its cache by one token."""
    if operator.kind == "scan":
        return "j" not in operator.sizes
    return any(tensor.is_cached for tensor in operator.reads) and _all(operator.sizes["t"] == 1)


def _attention_kind(operator: Operator) -> str:
    sizes = operator.sizes
    decodes = is_decode(operator)
    if "zk" in sizes and "h'" in sizes and decodes == is_absorbed(operator):
        return "latent_decode" if decodes else "latent_prefill"
    if not decodes and {"k", "g"} <= sizes.keys() and not operator.causal:
        return "encoder_attention"
    return "decode_attention" if decodes else "prefill_attention"


def is_decode(operator: Operator) -> bool:
    """Whether an attention has cached keys and few queries.

    These are one query per sequence, or, where a model verifies k drafted tokens, k + 1. Of an array, all elements must
    be decodes. One token without earlier keys is a prefill; the keys of cross-attention are those of the source.
    """
    sizes = operator.sizes
    has_keys = operator.name.startswith("cross_") or _all(sizes["s"] > sizes["t"])
    return has_keys and _all(sizes["t"] == 1 + sizes.get("drafts", 0))


def is_absorbed(operator: Operator) -> bool:
    """Whether an attention runs on latents."""
    return any("s" in tensor.axes and "zk" in tensor.axes for tensor in operator.reads)


def _all(condition: Any) -> bool:
    return bool(condition.all() if hasattr(condition, "all") else condition)
