"""Kinds of work by kernel names, and parts of the model by NVTX range names.

Frameworks share no names, only words. A name without a known word gives no information.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from roofmodel.roofline.categories import base_name, category
from roofmodel.roofline.serving_steps import serving_step

MAX_SEARCHED_CHARACTERS = 400  # of a name that are searched; template names may have thousands
ANCHOR_KINDS = ("GEMM", "attention", "convolution", "scan")

# Cache writes and attention metadata, whose names also contain attention.
_CACHES = re.compile(r"and_cache|(?:store|write|append|update|copy)\w*cache")
_NO_ANCHOR = re.compile(rf"{_CACHES.pattern}|kv_indices|metadata|triton_(?:poi|red|per|for)_")
_SCANS = re.compile(
    r"selective_scan|chunk_scan|chunk_state|chunk_cumsum|bmm_chunk|state_passing|selective_state_update|"
    r"gated_delta_rule|chunk_(?:fwd|bwd)_kernel|scaled_dot_kkt|solve_tril|_inverse_kernel|recompute_w_u|wy_repr|local_cumsum|"
    r"kda_|l2norm"
)

# Words of light work. The name of a fused kernel may have several.
_WORDS = {
    "norm": r"norm(?!al)|bn_(?:fw|bw)|\bln_|gammabeta|rsqrt|pow_|welford|var_mean",
    "softmax": r"softmax|nll_loss|cross_entropy|logsumexp",
    "add": r"(?<!self_)add(?!r|mm)|residual",
    "activation": r"gelu|silu|swish|sigmoid|swiglu|geglu|glu|relu|tanh|act_and_mul|activation|clamp|threshold",
    "rotary": r"rotary|rope|(?:^|[_:])(?:neg|sin|cos)(?:_|$)",
    "gather": r"(?<!rotary_)embedding|lookup|index_?select|gather",
    "scatter": r"embedding\w*backward|scatter|index_put|index_add|embedding_bag_bw",
    "optimizer": r"adam|sgd|lamb(?!da)|optimizer|multi_tensor",
    "pool": r"pool|meanops|mean",
    "reduction": r"reduce|sum_functor|columnsum|_sum",
    "routing": r"topk|moe_align|router|routing|gating|sort",
    "combine": r"moe_sum|combine|finalize|index_?add|unpermute",
    "copy": r"copy|clone|expand|memset|fill|cat(?:array|_)|_cat|cast|contiguous|transpose|permute|nchw|nhwc|cache|"
    r"float_kernel",
    "mul": r"mul",
    "index": r"<long|long,|bool>|compare|<bool|arange|iota|with_index|index_elementwise",
    "elementwise": r"elementwise|unrolled|triton_poi|triton_red|triton_per|functor",
}

_LAMBDA = re.compile(r"[\[{]lambda")  # followed by types without information
_DIRECTIONS = (
    ("weight", r"wgrad"),
    ("input", r"dgrad"),
    ("backward", r"bwd|backward|_bw_|_grad|threshold_kernel"),
    ("forward", r"fwd|forward|_fw_|fprop"),
)

# A kernel that completes or prepares the anchor before it.
_FINISH = re.compile(
    r"split_?k_?reduce|epilogue::|globalkernel|_reduce_kernel|reduce_segments|combine|stage2|stage_2|merge_|"
    r"cublasgemmt?helper|split_?k_?init"
)
_LAYOUT = re.compile(
    r"nchwtonhwc|nhwctonchw|compute\w*offset|scalepackedtensor|convertfilter|flip_filter|im2col|col2im|fft2d|"
    r"winograd\w*(?:data|filter|output|delta|tiles)"
)
_CONVOLUTION_LAYOUTS = re.compile(r"im2col|fft2d|winograd")  # layout changes for a convolution that runs as a GEMM


@cache
def anchor(name: str) -> str | None:
    """The anchor kind of a kernel (launched in the model's order by every framework); None for other kernels."""
    lowered, base = name.lower(), base_name(name).lower()
    if _NO_ANCHOR.search(base) or auxiliary_role(name) in ("layout", "transform"):
        return None
    if _SCANS.search(lowered):
        return "scan"
    kind = category(name)
    return kind if kind in ANCHOR_KINDS else None


@cache
def is_expert_gemm(name: str) -> bool:
    """Whether a kernel name shows an expert GEMM."""
    return bool(re.search(r"moe|expert|matmul_ogs|grouped_?gemm|group_?gemm|ragged|ptrarray", name.lower()))


@cache
def words(name: str) -> frozenset[str]:
    """The kinds of light work in a kernel's name."""
    lowered = _LAMBDA.split(name.lower())[0]
    if category(name) == "communication":
        return frozenset()
    return frozenset(kind for kind, pattern in _WORDS.items() if re.search(pattern, lowered))


_FUNCTION = re.compile(
    r"(\w+?)_?(?:kernel_(?:cuda|impl)|kernelimpl|kernelcudaimpl|functor(?:onself)?|ops)(?:_(\w+))?\b", re.I
)
_GENERIC = re.compile(r"elementwise_kernel|reduce_kernel|multi_tensor_apply|_scan|unrolled")


@cache
def display_name(name: str) -> str:
    """A kernel's base name; for generic PyTorch kernels with the function that they apply."""
    base = base_name(name)
    if _GENERIC.search(base):
        functions = [
            part
            for m in _FUNCTION.finditer(_LAMBDA.split(name[:MAX_SEARCHED_CHARACTERS])[0])
            for part in (m[2] or m[1],)
        ]
        functions = [
            function
            for function in functions
            if function.lower() not in ("cuda", "unary", "binary", "aunary", "bunary", "gpu", "reduce")
        ]
        if functions:
            return f"{base.rpartition('::')[2]} ({functions[-1]})"
    return base


@cache
def category_of(name: str) -> str:
    """The category of a kernel; copies and casts are separate from other elementwise work."""
    kind = category(name)
    name_words = words(name)
    if _CACHES.search(base_name(name).lower()):
        return "copies and casts"
    if "copy" in name_words and kind in ("elementwise", "memory", "layout", "other", "optimizer"):
        return "copies and casts"
    return "elementwise" if kind == "optimizer" and "optimizer" not in name_words else kind


@cache
def direction(name: str) -> str | None:
    """`forward`, `backward`, or the gradient that a kernel name shows (`input`, `weight`); else None."""
    lowered = name.lower()
    for label, pattern in _DIRECTIONS:
        if re.search(pattern, lowered):
            return label
    return None


@cache
def auxiliary_role(name: str) -> str | None:
    """`finish` for a kernel that completes the anchor before it; `layout` for layout changes around a convolution, or
    `transform` if the convolution runs as a plain GEMM; else None."""
    lowered = name.lower()
    if _LAYOUT.search(lowered) and _CONVOLUTION_LAYOUTS.search(lowered):
        return "transform"
    return "layout" if _LAYOUT.search(lowered) else "finish" if _FINISH.search(lowered) else None


# --- Ranges -----------------------------------------------------------------------------------------


class Hint(NamedTuple):
    """The layer and the operator that the ranges around a launch name; None if they name none."""

    layer: int | None = None
    place: str | None = None  # attention, mlp, embedding, head
    roles: frozenset[str] = frozenset()  # possible last parts of the operator name
    stage: str | None = None  # forward, backward, optimizer, prefill, decode

    @property
    def exact(self) -> bool:
        """Whether the innermost range names one operator, to which all kernels in it belong."""
        return bool(self.roles)


NO_HINT = Hint()

_PLACES = (
    ("attention", r"attn|attention|mha|sdpa"),
    ("mlp", r"mlp|ffn|feed_?forward|experts?|moe|intermediate"),
    ("embedding", r"embed\w*|wte|wpe"),
    ("head", r"lm_head|logits|classifier|cls|score|pooler"),
)
# The words of a module's name -> the last parts of the names of the operators that it may be.
_ROLES = (
    (r"c_attn|qkv\w*|wqkv|query_key_value|in_proj\w*|q_proj|k_proj|v_proj|query|key|value|to_[qkv]", "qkv q k v"),
    (r"rotary\w*|rope", "rotary"),
    (r"flash\w*|sdpa|scaled_dot_product\w*|core_attention|attention_core", "flash scores softmax mix"),
    (r"o_proj|out_proj|to_out|wo|linear_proj", "output"),
    (r"q_norm|k_norm|q_layernorm|k_layernorm", "head_norm"),
    (r"gate_up_proj|gate_proj|up_proj|c_fc|fc1|lin1|wi|wi_0|wi_1|dense_h_to_4h|linear_fc1|w1|w3|fc_in", "up gate"),
    (r"act|act_fn|activation|activation_fn|intermediate_act_fn|gelu", "activation"),
    (r"down_proj|fc2|lin2|dense_4h_to_h|linear_fc2|w2|fc_out", "down"),
    (r"lm_head|logits|embed_out", "logits"),
    (r"wte|embed_tokens|word_embeddings|tok_embeddings", "token"),
    (r"wpe|position_embeddings", "position add_position"),
)
_STAGES = (
    ("backward", r"\w*backward\d*|bwd"),
    ("optimizer", r"optimizer|adamw?|optim"),
    ("prefill", r"prefill|prompt|context_phase"),
    ("decode", r"decode|generation|generation_phase"),
    ("forward", r"forward|fwd"),
)
_NORMS = re.compile(r"(?:\w*_)?(?:layer_?norm|rms_?norm|norm|ln)\w*", re.I)
_LAYER = re.compile(
    r"(?:(?<![a-z])(?:layers?|blocks?|h|transformerlayer)|(?-i:[a-z\d](?:Layer|Block)))[._\s\[#:-]*(\d+)", re.I
)


@cache
def hint(ranges: tuple[str, ...]) -> Hint:
    """The hint of nested ranges, outermost first; inner ranges take precedence.

    Module paths (`model.layers.3.self_attn.q_proj`, as `roofmodel.nvtx.mark` gives them) and plain words
    (`layer 3`, `attention`, `backward`) are understood.
    """
    layer = place = stage = None
    roles: frozenset[str] = frozenset()
    for outer, label in zip(("", *ranges), ranges, strict=False):
        if outer and label.startswith(f"{outer}."):  # a submodule, which names its own role
            roles = frozenset()
        if step := serving_step(label):
            stage = step.phase
            continue
        parts = [part for part in re.split(r"[^A-Za-z0-9_]+", label[:MAX_SEARCHED_CHARACTERS].lower()) if part]
        if match := _LAYER.search(label[:MAX_SEARCHED_CHARACTERS]):
            layer = int(match[1])
        stage = _first(_STAGES, parts) or stage
        inner = _first(_PLACES, parts)
        named_roles = _roles(parts, inner or place)
        if inner and inner != place:
            place, roles = inner, frozenset()
        roles = named_roles or roles
    return Hint(layer, place, roles, stage)


def _first(table: Sequence[tuple[str, str]], parts: Sequence[str]) -> str | None:
    """The entry of the table that matches the last known part of a path."""
    for part in reversed(parts):
        for entry, pattern in table:
            if re.fullmatch(rf"(?:\w*_)?(?:{pattern})(?:_\w*)?", part):
                return entry
    return None


def _roles(parts: Sequence[str], place: str | None) -> frozenset[str]:
    """The roles that the last part of a path names; `c_proj` and `dense` depend on their parents."""
    last = parts[-1] if parts else ""
    for pattern, roles in _ROLES:
        if re.fullmatch(pattern, last):
            return frozenset(roles.split())
    if last in ("c_proj", "proj"):
        return frozenset({"output"} if place == "attention" else {"down"} if place == "mlp" else ())
    before = parts[-2] if len(parts) > 1 else ""
    if last == "decoder" and before in ("predictions", "lm_head"):
        return frozenset({"logits"})
    if last == "dense":
        if before == "intermediate":
            return frozenset({"up"})
        if before == "output":
            return frozenset({"output"} if "attention" in parts else {"down"})
    return frozenset({"norm"}) if _NORMS.fullmatch(last) else frozenset()
