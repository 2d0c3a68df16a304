"""The categories of kernels, from their names.

A name in a template argument says less than the name of the function: `NoPermute` is an argument of a GEMM of CUTLASS.
So the function's own name is searched first, then its namespaces, then its template arguments, the outer ones first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

_RETURN_TYPE = re.compile(r"^(?:\w+::)*(?:enable_if_t|\w+::type)\s+")  # without its template arguments


def base_name(name: str) -> str:
    """A kernel's name without return type, anonymous namespaces, template arguments and parameters.

    A name that is mangled by the Itanium C++ ABI: `_ZN3sgl4copyILi4EEEvv` is `sgl::copy`.
    """
    name = name.removesuffix(".kd")  # AMD's kernel descriptor
    if mangled := re.match(r"_Z(NK?)?(?=\d)", name):
        names = [*_source_names(name, mangled.end())]
        return "::".join(names if mangled[1] else names[:1]) or "unnamed"
    name = re.sub(r"(?:<unnamed>|\(anonymous namespace\)|\(anonymous\))::", "", name)
    name = re.sub(r"^(?:void|static)\s+", "", name)
    return _RETURN_TYPE.sub("", _without_brackets(name).strip()) or "unnamed"


def _source_names(mangled: str, at: int) -> Iterator[str]:
    """The names of a mangled name from this place on: each after its length, up to the template arguments."""
    while length := re.compile(r"[1-9]\d{0,5}").match(mangled, at):
        start, at = length.end(), length.end() + int(length[0])
        if not (name := mangled[start:at]).startswith("_GLOBAL__N"):
            yield name


def _without_brackets(text: str) -> str:
    """The text without `<…>` and `(…)`, in one pass: names may have thousands of nested brackets."""
    parts: list[str] = []
    opened: list[tuple[str, int]] = []  # the open brackets, and their places in `parts`
    pending = {"<": 0, "(": 0}  # the numbers of open brackets
    for part in re.split(r"([<>()])", text):
        begin = {">": "<", ")": "("}.get(part)
        if part in pending:
            opened.append((part, len(parts)))
            pending[part] += 1
        if begin is None or not pending[begin]:
            parts.append(part)
            continue
        bracket = ""
        while bracket != begin:  # brackets of the other kind that are still open are part of what is removed
            bracket, place = opened.pop()
            pending[bracket] -= 1
        del parts[place:]
    return "".join(parts)


# The first match on a lower-case part of a name decides. Patterns: kernels of the libraries that frameworks launch.
_CATEGORIES = (
    ("reduction", r"(?:block|warp|cta|thread|group)_?all_?reduce"),  # within one GPU
    (
        "communication",
        r"nccl|rccl|msccl|nvshmem|deep_?ep|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"
        r"|cross_device_reduce|_on_stream_kernel",  # the latter are NVSHMEM's
    ),
    ("memory", r"memcpy|memset|copy_device_to_device|copydevice|and_cache|(?:store|write|append|update|copy)\w*cache"),
    (
        "attention",
        r"flash|fmha|attention|attn|(?<![a-z])m?mha|sdpa|(?<![a-z])mla_|(?:batch|single)(?:decode|prefill)with"
        r"|(?<!\w)_fwd_(?:grouped_)?kernel",  # the latter are SGLang's
    ),
    ("norm", r"norm(?!al(?!ization))|\bbn_(?:fw|bw)"),
    # Before the names that they contain. `finalize` and `moe_sum` add the outputs of experts.
    ("reduction", r"pool|topk|finalize|moe_?sum"),
    ("layout", r"nchwtonhwc|nhwctonchw|im2col|compute\w*(?:offset|ind(?:ex|ices))"),  # for a convolution or a GEMM
    (
        "convolution",
        r"conv(?!er)|scudnn|winograd|wgrad|dgrad|cudnn.*(?:nhwc|nchw)|fprop|implicit_?gemm|igemm_(?:fwd|bwd|wrw)",
    ),
    (
        "GEMM",
        r"gemm|gemv|mat(?:rix_?)?mul|mul_mat|(?<![a-z])b?mm(?![a-z])|nvjet|xmma|hmma|s\d{4,5}|wgmma|split_?k|cijk_"
        r"|fused_moe|marlin|machete|wvsplitk",
    ),
    ("layout", r"transpose|permut|swapdimension|(?<!c)shuffle"),
    ("softmax", r"soft_?max"),
    ("reduction", r"reduc|argmax|argmin|scan|sort|dot_kernel|asum_kernel|nrm2_kernel|(?<!scalar)_sum(?:_|\b)"),
    ("optimizer", r"(?<!h)adam|sgd|optimizer|multi_tensor"),
    ("embedding", r"(?<!rotary_)embedding|index_?select|gather|scatter"),
    (
        "elementwise",
        r"elementwise|pointwise|vectorized|unrolled|activation|gelu|silu|relu|swiglu|act_and_mul|dropout|rotary|rope_"
        r"|_rope|cat(?:array|_)|_cat|quant|convert|cast|fill|clamp|axpy|triad|(?<![a-z])(?:copy|cpy|add|mul)",
    ),
)
# Names of libraries and frameworks, which say something only where nothing else does.
_LIBRARIES = (("GEMM", r"cutlass|cublas"), ("reduction", r"cub::"), ("elementwise", r"eigenmetakernel"))

WRAPPERS = ("kernel", "kernel2", "device_kernel", "_kernel_agent")  # templates of libraries that start any kernel

_MAX_DEPTH = 8  # of brackets that are told apart: some names have thousands

# Inductor's names list the fused operators, also those of neighboring kernels such as a convolution before its bias.
_INDUCTOR = re.compile(r"triton_(poi|red|per|for|mm|tem|bmm|convolution)_fused(\w*)")


@cache
def category(name: str) -> str:
    """The category of a kernel, from its name; `other` if no pattern matches."""
    lowered = name.lower()
    if match := _INDUCTOR.match(lowered):
        return _inductor_category(match[1], match[2])
    for table, parts in ((_CATEGORIES, _parts(lowered)), (_LIBRARIES, (lowered,))):
        for part in parts:
            for kind, pattern in table:
                if re.search(pattern, part):
                    return kind
    return "other"


def _inductor_category(template: str, operators: str) -> str:
    """The category of a kernel that Inductor generated, from its template and the operators that it fuses."""
    if template in ("poi", "for"):
        if re.search(r"(?<!rotary_)embedding|index_select|gather|scatter|index_put", operators):
            return "embedding"
        moved = re.sub(r"transpose|permute|view|clone|reshape|contiguous|unsafe|_to_copy|expand|[_t\d]", "", operators)
        return "elementwise" if moved or not re.search(r"transpose|permute", operators) else "layout"
    if template in ("red", "per"):
        return next((kind for kind in ("norm", "softmax") if kind in operators), "reduction")
    return next((kind for kind in ("attention", "convolution") if kind in template + operators), "GEMM")


def _parts(name: str) -> Iterator[str]:
    """A function's own name, this name with its namespaces, and its arguments by the depth of their brackets.

    The arguments precede the namespaces for a template that starts any kernel.
    """
    if mangled := re.match(r"_z(?:n[vk]*|l)?(?=\d)", name):
        path, rest = _mangled_path(name[mangled.end() :])
        if path[-1] not in WRAPPERS:
            yield from (path[-1], "::".join(path))
        yield rest
        yield "::".join(path)
        return
    base = base_name(name)
    own = base.rpartition("::")[2]
    yield own
    if own not in WRAPPERS:
        yield base
    arguments, depth = defaultdict[int, list[str]](list), 0
    for part in re.split(r"([<>()])", name):
        if part in ("<", "("):
            depth += 1
        elif part in (">", ")"):
            depth -= 1
        elif depth > 0:
            arguments[min(depth, _MAX_DEPTH)].append(part)
    for depth in sorted(arguments):
        yield " ".join(arguments[depth])
    yield base


def _mangled_path(text: str) -> tuple[list[str], str]:
    """The identifiers at the start of a mangled name, each after its length, and the rest."""
    path = []
    while match := re.match(r"(\d{1,4})(?=\D)", text):
        end = match.end() + int(match[1])
        path.append(text[match.end() : end])
        text = text[end:]
    return path or [text], text


def lecture_category(name: str) -> str:
    """The kernel's group in the profiling lecture (grouping `lecture`): four groups, in its order of precedence."""
    lowered = name.lower()
    if "gemm" in name:
        return "matrix-mul"
    # the slide's tool writes `[CUDA memcpy HtoD]`, PyTorch `Memcpy HtoD (Pageable -> Device)`
    copies = "CUDA memcpy" in name or "CUDA memset" in name or name.startswith(("Memcpy ", "Memset "))
    if copies or "nccl" in lowered or "copy_device_to_device" in lowered:
        return "memory_mgmt"
    if any(part in name for part in ("::native", "vectorized_elementwise", "_cpp1_ii", "reduce_kernel")):
        return "custom_ops"
    return "other"
