"""Kinds of work by kernel names, parts of the model and workloads by NVTX range names, short names for legends.

Frameworks share no names, only words. A name without a known word gives no information. Serving engines annotate the
workload of a step:

vLLM:    execute_context_1(512)_generation_0(0)     requests and tokens of prefill, then of decode
SGLang:  step[prefill bs=4 toks=2048], step[decode bs=8], step[EXTEND bs=1 toks=512]
         (https://github.com/sgl-project/sglang/pull/23419)
ATOM:    prefill[bs=1 tok=1024 ctx=1024 ...], decode[bs=64 tok=64 ...] (https://github.com/ROCm/ATOM/pull/477)

A short name has no boilerplate, but the template argument that identifies the kernel.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from roofmodel.report.table import NAME, shorten
from roofmodel.roofline.categories import WRAPPERS, base_name, category

if TYPE_CHECKING:
    from roofmodel.roofline.points import Point

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


_VLLM = re.compile(r"execute_context_(\d{1,9})\((\d{1,9})\)_generation_(\d{1,9})\((\d{1,9})\)")
_OTHERS = re.compile(r"(?:step\[)?(prefill|extend|decode)[ \[]bs=(\d{1,9})(?:[^\]]*?\btoks?=(\d{1,9}))?", re.I)
_OTHER_MODE = re.compile(r"step\[\w+[^\]]*\]", re.I)  # such as `step[mixed bs=8 ext=512 dec=7]`


class ServingStep(NamedTuple):
    """The phase (None: both, or another one), the requests, and the prompt tokens of all of them (None: not stated)."""

    phase: str | None
    batch: int
    tokens: int | None = None


@cache
def serving_step(label: str) -> ServingStep | None:
    """The step that an annotation states; None for other labels."""
    if match := _VLLM.match(label):
        prompts, tokens, decodes, _ = map(int, match.groups())
        if prompts and decodes:
            return ServingStep(None, prompts + decodes)
        return ServingStep("prefill", prompts, tokens) if prompts else ServingStep("decode", decodes)
    if match := _OTHERS.match(label):
        phase = "decode" if match[1].lower() == "decode" else "prefill"
        return ServingStep(phase, int(match[2]), int(match[3]) if match[3] and phase == "prefill" else None)
    return ServingStep(None, 0) if _OTHER_MODE.match(label) else None


# --- Short names ------------------------------------------------------------------------------------

MAX_SPLIT_CHARACTERS = 20_000  # of a name that are split into words or arguments; some names have megabytes
MAX_WORDS = 4  # that are added to names that would be equal
MAX_ADDED_SHARE = 0.6  # of the width, for these words
_ELEMENTWISE = re.compile(r"(?:\w+::)*(?:\w+_)?(elementwise|reduce)_kernel(?= |$)")
_GENERIC_TYPE = re.compile(
    r"(?:const |unsigned |signed )*"
    r"(?:int|long|short|char|bool|double|void|(?:\w+::)?\w*(?:half|float)\d*(?:_t)?)[ *&]*",
    re.IGNORECASE,
)


def short_name(name: str) -> str:
    """`void cutlass::Kernel2<cutlass_80_s16816gemm>(Params)` as `cutlass_80_s16816gemm`."""
    if name.startswith(("Memcpy", "Memset")):
        return name  # the memory is in parentheses
    base = display_name(name)
    last = base.rpartition("::")[2]
    if last.lower() in WRAPPERS:
        return next(map(_without_suffix, _named_arguments(name, last)), base)
    if match := _ELEMENTWISE.match(base):
        function = base[match.end() :] or next((f" ({a})" for a in map(_last_part, _named_arguments(name, last))), "")
        return f"{match[1]}{function}" if function else base
    return base


def legend_names(names: Mapping[str, str], width: int) -> dict[str, str]:
    """Names of at most `width` characters that differ; `names` maps full names to short ones.

    Where short names are equal after they are cut, the first words that differ between the full names follow.
    """
    different: dict[str, list[str]] = {name: [] for name in names}
    for last in [False] * MAX_WORDS + [True]:
        equal = defaultdict(list)
        for name, short in names.items():
            equal[_with_words(short, different[name], width)].append(name)
        for group in (group for group in equal.values() if len(group) > 1):
            for i, (name, words) in enumerate(zip(group, _differences(group), strict=True), 1):
                if last:
                    different[name] = [f"#{i}"]
                else:
                    different[name] += [word for word in words if word not in different[name]][:1]
    return {name: _with_words(short, different[name], width) for name, short in names.items()}


def short_names(names: Sequence[str], width: int) -> list[str]:
    """Short names of kernels, in at most `width` characters, that differ if the names do."""
    short = legend_names({name: short_name(name) for name in names}, width)
    return [short[name] for name in names]


KERNEL_NAME = NAME._replace(shorten=short_names)
"""The unit of a table's column of kernels."""


def names_of_points(points: Iterable[Point], width: int) -> dict[str, str]:
    """The names of points as `legend_names` gives them; predicted operators keep their names."""
    return legend_names({p.name: p.name if p.predicted else short_name(p.name) for p in points}, width)


def _with_words(short: str, words: Sequence[str], width: int) -> str:
    if not words:
        return shorten(short, width)
    added = shorten(" ".join(words), int(width * MAX_ADDED_SHARE))
    return f"{shorten(short, width - len(added) - 1)} {added}"


def _differences(names: Sequence[str]) -> list[list[str]]:
    """The words of each name that the others do not have at the same place, or, with other lengths, do not have."""
    split = [re.findall(r"[^\W_]+", name[:MAX_SPLIT_CHARACTERS]) for name in names]
    if len({len(words) for words in split}) == 1:
        places = [place for place, words in enumerate(zip(*split, strict=True)) if len(set(words)) > 1]
        return [[words[place] for place in places] for words in split]
    common = set.intersection(*map(set, split))
    return [[word for word in dict.fromkeys(words) if word not in common] for words in split]


def _named_arguments(name: str, template: str) -> Iterator[str]:
    """The base names of a template's arguments that are neither numbers nor basic types."""
    _, _, rest = name[:MAX_SPLIT_CHARACTERS].partition(f"{template}<")
    depth, start = 0, 0
    for match in re.finditer(r"[<>(),]", rest):
        sign, end = match[0], match.start()
        if depth == 0 and sign in ",>":
            text = rest[start:end].strip()
            if not re.match(r"\(|-?\d|true\b|false\b", text) and not _GENERIC_TYPE.fullmatch(text):
                yield base_name(text.partition("::[lambda")[0].partition("::{lambda")[0])
            start = end + 1
        depth += (sign in "<(") - (sign in ">)")
        if depth < 0:
            return


def _without_suffix(name: str) -> str:
    return re.sub(r"(?:::Kernel_traits|_?Params(?:Ex)?)$", "", name)


def _last_part(name: str) -> str:
    return name.rpartition("::")[2]
