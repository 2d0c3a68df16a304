"""The kind of an operator's kernel, and the parameter set that its expected time uses: the one of its formats, or the
nearest one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log2
from typing import Any, NamedTuple, Protocol

from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import Sizes, number_format
from roofmodel.devices.calibration import MAX_TRANSFER_ERROR, Fit, Fitted, Sets, Timing
from roofmodel.engines.engine_file import AllReduce
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
SPARSE = (
    "sparse_prefill", "sparse_decode", "compressed_prefill", "compressed_decode", "block_prefill", "block_decode",
)  # fmt: skip
"""The kinds of attention to keys that an indexer chose, by these keys: tokens with one latent (DeepSeek-V3.2), windows
and compressed entries (DeepSeek-V4), blocks (MiniMax-M3)."""
KINDS = (
    "latent_products", "causal_convolution", "causal_convolution_update", "delta_rule_prefill", "delta_rule_decode",
    "kda_prefill", "kda_decode", "kda_convolution_update", "index_prefill", "index_decode", "index_choose", *SPARSE,
    "streams_collapse", "streams_expand",
)  # fmt: skip
"""The kinds of parameters of the other kernels."""


def kernel_formula(kind: str) -> KernelFormula:
    """The formula of a kind of KINDS. Its modules are imported here, because few models have such kernels."""
    if kind in SPARSE or kind.startswith(("index_", "streams_")):
        from roofmodel.timing import attention, sparse

        if kind in SPARSE:
            return KernelFormula(sparse.SPARSE, sparse.sparse_seconds, attention.work)
        if kind.startswith("streams_"):
            return KernelFormula(sparse.STREAMS, sparse.streams_seconds, sparse.streams_work)
        if kind == "index_choose":
            return KernelFormula(sparse.CHOICE, sparse.choice_seconds, sparse.choice_work)
        return KernelFormula(sparse.INDEX, sparse.index_seconds, sparse.index_work)
    from roofmodel.timing import batched_gemm, recurrent

    if kind == "latent_products":
        return KernelFormula(batched_gemm.DESCRIPTION, batched_gemm.seconds, None)
    if kind == "causal_convolution":
        return KernelFormula(recurrent.CAUSAL_CONVOLUTION, recurrent.convolution_seconds, recurrent.convolution_work)
    if kind.endswith("_prefill"):
        return KernelFormula(recurrent.DELTA_RULE, recurrent.delta_rule_seconds, recurrent.delta_rule_work)
    return KernelFormula(recurrent.STATE_UPDATE, recurrent.update_seconds, recurrent.update_work)


def kind(operator: Operator) -> str:
    """The kind of parameters of an operator: one of PREFILLS, DECODES and KINDS; empty for other operators.

    Naive latent attention of a decode is attention with keys and values of each head, as of other models.
    """
    if operator.kind == "attention" and "t:s" in operator.sizes:
        return _attention_kind(operator)
    if operator.kind == "routing" and operator.name.endswith("index_choose"):
        return "index_choose"
    if operator.kind == "elementwise" and operator.group == "residual" and operator.parts:
        return "streams_collapse" if operator.name.endswith("_collapse") else "streams_expand"
    if operator.kind == "bmm" and operator.parameters and operator.gemm is not None and "zk" in operator.sizes:
        return "latent_products"
    if _is_filter(operator):
        if not _is_update(operator):
            return "causal_convolution"
        return "kda_convolution_update" if _has_separate_inputs(operator) else "causal_convolution_update"
    if _is_delta_rule(operator):
        rule = "kda" if _decays_per_channel(operator) else "delta_rule"
        return f"{rule}_decode" if _is_update(operator) else f"{rule}_prefill"
    return ""


def _is_filter(operator: Operator) -> bool:
    """Whether this is a causal convolution over tokens, with activation and cache in one kernel."""
    filters_tokens = any({"c", "r", "t+r"} <= part.sizes.keys() for part in operator.parts)
    return operator.kind == "convolution" and filters_tokens


def _is_delta_rule(operator: Operator) -> bool:
    """Whether this is the fused scan of a delta rule; other scans have no measurements."""
    return operator.kind == "scan" and {"k", "m", "h", "h'", "r"} <= operator.sizes.keys() and bool(operator.parts)


def _has_separate_inputs(operator: Operator) -> bool:
    """Whether a filter reads queries, keys and values apart, as that of Kimi's delta attention."""
    return "u" not in {tensor.name for tensor in operator.reads}


def _decays_per_channel(operator: Operator) -> bool:
    """Whether each element of a key has its own decay, as in Kimi's delta attention (KDA, arXiv 2510.26692)."""
    tensors = (tensor for line in operator.lines for tensor in (*line.outputs, *line.factors, *line.terms))
    return any(tensor.name == "decay" and "h" in tensor.axes for tensor in tensors)


def _is_update(operator: Operator) -> bool:
    """Whether a filter or scan updates its cache by one token."""
    if operator.kind == "scan":
        return "j" not in operator.sizes
    return any(tensor.is_cached for tensor in operator.reads) and _all(operator.sizes["t"] == 1)


def _attention_kind(operator: Operator) -> str:
    sizes = operator.sizes
    decodes = is_decode(operator)
    if "ki" in sizes:
        return "index_decode" if _has_few_queries(sizes) else "index_prefill"
    if "sparse" in sizes:
        keys = "compressed" if "og" in sizes else "sparse" if "zk" in sizes else "block"
        return f"{keys}_{'decode' if decodes else 'prefill'}"
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
    return has_keys and _has_few_queries(sizes)


def _has_few_queries(sizes: Sizes) -> bool:
    """Whether each sequence has one query, or those of the drafted tokens that a model verifies."""
    return _all(sizes["t"] == 1 + sizes.get("drafts", 0))


def computed_format(kind: str, operator: Operator) -> str:
    """The format in which engines run an indexer or sparse attention with weights in any format; empty: the operator's.

    Indexers of tokens multiply in fp8, those of blocks in 16 bits; so does sparse attention, after it has converted the
    keys.
    """
    if operator.scores_indexed_tokens:
        return "fp8"
    return "bf16" if kind in (*SPARSE, "index_prefill", "index_decode") else ""


class KernelVariant(NamedTuple):
    """The set of another kernel that an implementation runs where `applies` (elementwise for arrays)."""

    applies: Any
    implementation: str
    format_key: str


def sparse_variant(operator: Operator, implementation: str, key: str) -> KernelVariant | None:
    """The other kernel of an implementation of sparse attention to tokens in a prefill; None for most.

    With an fp8 cache and at least 32 heads on a GPU, vLLM converts the cache to 16 bits and runs the kernel of 16 bits;
    with fewer heads, which that kernel pads, it runs the kernel of fp8 (vllm/v1/attention/backends/mla/
    flashmla_sparse.py, MIN_HEADS_FOR_BF16_PREFILL). From 65536 queries on, FlashInfer's attention on a B200 takes 0.3
    to 0.9 times as long per query (aiconfigurator@095f58a5); CUDA limits two of the sizes of a grid to 65535 blocks.
    """
    sizes, kernel = operator.sizes, implementation.rpartition(" ")[2]
    if kernel == "FLASHMLA_SPARSE" and key == "fp16/fp8":
        return KernelVariant(sizes["k"] * sizes.get("g", 1) >= 32, implementation, "fp16/fp16")
    if kernel == "FLASHINFER_MLA_SPARSE":
        return KernelVariant(sizes["b"] * sizes["t"] >= 65536, f"{implementation} 65536 queries", key)
    return None


def is_absorbed(operator: Operator) -> bool:
    """Whether an attention runs on latents."""
    return any("s" in tensor.axes and "zk" in tensor.axes for tensor in operator.reads)


def _all(condition: Any) -> bool:
    return bool(condition.all() if hasattr(condition, "all") else condition)


class ParameterSet(NamedTuple):
    """Fitted parameters, their fit, implementation and format key; `is_substitute` if the operator has another key."""

    timing: Any
    fit: Fit
    implementation: str
    format_key: str
    is_substitute: bool = False


class Preference(Protocol):
    """Which kernels are preferred, by kind of parameters and format key, the first one most; the own all-reduce;
    whether the embedding is padded."""

    def implementations(self, kind: str, key: str) -> tuple[str, ...]: ...
    def expert_parallel(self, key: str) -> tuple[str, ...]: ...
    @property
    def all_reduce(self) -> AllReduce | None: ...
    @property
    def pads_vocabulary(self) -> bool: ...


Implementation = str | Preference
"""The name of a parameter set, as the column `kernel` of a table of measurements has it, or the kernels of an
engine."""


def names_of(implementation: Implementation, kind: str, key: str) -> tuple[str, ...]:
    """The preferred implementations of a kind of kernel."""
    return (implementation,) if isinstance(implementation, str) else implementation.implementations(kind, key)


def names_for_experts(operator: Operator, implementation: Implementation, key: str) -> tuple[str, ...]:
    """The preferred implementations of experts: of those that GPUs shard first, where the operator is of such a GPU.

    Each GPU then has a part of the token-expert pairs of its tokens (`b:t:X`), or gets pairs from other GPUs.
    """
    usual = names_of(implementation, "experts", key)
    if isinstance(implementation, str) or not (own := implementation.expert_parallel(key)):
        return usual
    pairs = operator.sizes.get("b:t:X")
    sharded = pairs is None or _all(pairs != operator.sizes["b:t:x"])
    return (*own, *usual) if sharded else usual


def choose_set(sets: Sets[Timing], implementation: str | tuple[str, ...], key: str) -> ParameterSet | None:
    """The parameter set for an implementation and a format key, or the nearest one; None where there are no sets.

    Several implementations are in order of preference. Sets are ranked by, in this order: same formats; mean error of
    at most MAX_TRANSFER_ERROR; same compute format with a stored format of similar width; preferred implementation;
    same stored format; order in the file, whose first set is the default. A set for another format key gets a wider
    interval.
    """
    wanted_names = (implementation,) if isinstance(implementation, str) else implementation
    for each in wanted_names:
        if key in (sets_by_key := sets.get(each, {})):
            return ParameterSet(*sets_by_key[key], each, key)
    if key == "sockets" and sets and not any(key in by_key for by_key in sets.values()):
        substitute = choose_set(sets, implementation, "pcie")
        return substitute and substitute._replace(fit=substitute.fit.wider(2), is_substitute=True)
    candidates = [(name, other, fitted_set) for name, by_key in sets.items() for other, fitted_set in by_key.items()]
    if not candidates:
        return None

    ranks = {each: rank for rank, each in reversed([*enumerate(wanted_names)])}

    def distance(candidate: tuple[str, str, Fitted[Timing]]) -> tuple[bool, bool, float, int, bool]:
        name, other, (_, fit) = candidate
        wanted, offered = key.split("/"), other.split("/")
        width = _width_distance(*wanted[1:2], *offered[1:2]) if wanted[0] == offered[0] else inf  # same compute format
        poor = fit.error > MAX_TRANSFER_ERROR
        rank = ranks.get(name, len(wanted_names))
        return wanted != offered, poor, width, rank, wanted[1:] != offered[1:]

    name, other, (timing, fit) = min(candidates, key=distance)
    if other == key:
        return ParameterSet(timing, fit, name, key)
    return ParameterSet(timing, fit.wider(2), name, other, is_substitute=True)


def _width_distance(stored: str = "", other: str = "") -> float:
    """How many times the width of one format doubles or halves to that of the other; 0 for unknown formats."""
    try:
        return abs(log2(number_format(stored).bits / number_format(other).bits))
    except KeyError:
        return 0.0


def operator_format_key(operator: Operator, dtype: str) -> str:
    """The format key of an operator's kernel: compute format / weight format, such as `fp16/int4`.

    For attention: compute format / KV cache format.
    """
    widths, line = operator.widths, operator.lines[0]
    if computed := computed_format(kind(operator), operator):
        return format_key(computed, widths.kv.name if computed == "bf16" else computed)
    if operator.kind == "routing":
        return format_key("fp32", "fp32")
    if operator.kind != "attention":
        matrix = next((tensor for tensor in line.factors if tensor.is_parameter), None) if line.contracted else None
        if line.contracted and line.outputs[0].name.startswith("grad."):
            name = line.factors[1].name.removeprefix("grad.")
            if name in dict(widths.by_matrix):  # of a training recipe, also without a weight
                matrix = line.factors[1]
        return format_key(dtype, widths.format(matrix).name if matrix else dtype)
    return format_key(dtype, widths.kv.name)


def format_key(dtype: str, stored: str) -> str:
    """The key of a parameter set: compute format / stored format, such as `fp16/int4`; bf16 shares fp16's sets."""
    return "/".join("fp16" if name == "bf16" else name for name in (dtype, stored))
