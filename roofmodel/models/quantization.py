"""The `quantization_config` of a checkpoint: number formats of weights and KV cache, and the modules that it converts.

Sources of the keys: the quantization configs of transformers (`utils/quantization_config.py`), of compressed-tensors
(`quantization/quant_config.py`) and of NVIDIA Model Optimizer (`hf_quant_config.json`). The formats are those of
counting/number_formats.py, by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from functools import cache
from typing import Any, NamedTuple

from roofmodel.errors import Message, Option, Text, shorten

Settings = Mapping[str, Any]

GROUP_SIZES = (32, 64, 128)
"""Group sizes for which there is an int4 format."""
EXPERTS_ONLY = "re:.*experts.*"
NVFP4_ALGORITHMS = ("NVFP4", "W4A16_NVFP4", "NVFP4_AWQ")
FP8_ALGORITHMS = ("FP8", "FP8_PB_WO", "FP8_PER_CHANNEL_PER_TOKEN")
LISTS = (
    "modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "llm_int8_skip_modules",
)  # fmt: skip
"""The keys that list modules which are not converted."""
OTHER_MODALITIES = re.compile("vis(ual|ion)|audio|mm_projector|multi_modal")
"""Modules that are not part of the text model."""
_DIGIT = re.compile(r"\d")
_EXPERT = re.compile(r"\bexperts\.\d+")
_LAYER = re.compile(r"(?:.*\.)?(?:layers|h|blocks)\.(\d+)\.(.+)")
_OTHER_LAYER_PATHS = {
    "model.decoder.layers": re.compile("decoder"), "transformer.h": re.compile(r"transformer|\bh\b"),
    "transformer.blocks": re.compile("transformer|blocks"), "gpt_neox.layers": re.compile("neox"),
}  # fmt: skip
"""Names of the list of layers other than model.layers -> a part of the patterns that contain them."""
_NO_MATRIX_OF_LAYERS = re.compile(
    r"norm|\bln_|embed|\bwte\b|\bwpe\b|rotary|bias|head|score|router|\bgate(\W|$)|conv1d|A_log|dt_|sinks|mtp|nextn|eh_proj"
)
"""Modules other than the weight matrices of the layers, which no format converts or which are not counted."""
_LAYERS_SEARCHED = 1000


class Quantization(NamedTuple):
    """What a `quantization_config` states: format names (None: as the working format), and the converted modules.

    `targets` and `ignored` are the config's own patterns of module names: `re:` and a regular expression, a name with
    `*`, or a part of a name between dots. Without targets, all linear layers are converted.
    """

    method: str
    weights: str | None
    kv: str | None
    targets: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Of modules in other formats than `weights`: the format and its targets."""

    def target_layers(self, targets: tuple[str, ...], modules: Sequence[str], layers: int) -> int:
        """The number of layers in which one of the modules matches one of the targets."""
        return layers - self._replace(targets=targets, ignored=()).unconverted_layers(modules, layers)

    def unconverted_layers(self, modules: Sequence[str], layers: int) -> int:
        """The number of layers in which a module keeps the working format.

        `modules` are its names in a layer, such as `self_attn.q_proj`; a pattern for one of them is enough.
        """
        for_all, for_one = _indexed(self.ignored)
        parts = {part for module in modules for part in _leading_parts(module)}
        found = {layer for part in parts for layer in for_one.get(part, ()) if layer < layers}
        by_layer = _DIGIT.search(" ".join((*for_all, *self.targets)))
        paths = _layer_paths((*for_all, *self.targets))
        targets, ignored = ([_regex(pattern).match for pattern in patterns] for patterns in (self.targets, for_all))
        for layer in range(layers if by_layer else 1):
            names = [f"{path}.{layer}.{module}" for path in paths for module in modules]
            is_target = not targets or any(match(name) for match in targets for name in names)
            if not is_target or any(match(name) for match in ignored for name in names):
                found |= {layer} if by_layer else set(range(layers))
        return len(found)

    def unmatched(self, modules: Sequence[str], layers: int) -> Unmatched:
        """The targets and the ignored names that match none of these modules of any layer.

        Ignored norms, embeddings, routers and heads are left out: no format converts them.
        """
        for_all, for_one = _indexed(self.ignored)
        parts = {part for module in modules for part in _leading_parts(module)}
        single = [name for name in for_one if _EXPERT.sub("experts.0", name) not in parts]
        ignored = [*_without_match(for_all, modules, layers), *single]
        return Unmatched(
            _without_match(self.targets, modules, layers),
            [name for name in ignored if not _NO_MATRIX_OF_LAYERS.search(name)],
        )


class Unmatched(NamedTuple):
    """Patterns of a `quantization_config` that match no weight matrix."""

    targets: list[str]
    ignored: list[str]


class _Weights(NamedTuple):
    """A weight format, and what is assumed where the formats have no exact equivalent."""

    format: str | None
    assumed: str = ""


def quantization(config: Settings, where: object) -> tuple[Quantization | None, tuple[Text, ...]]:
    """The quantization of a config, with a note on each setting that is not counted exactly; None without one."""
    settings = config.get("quantization_config")
    if not isinstance(settings, dict):
        return None, ()
    inner = settings.get("quantization")
    if isinstance(inner, dict) and "quant_algo" not in settings:  # Model Optimizer's hf_quant_config.json
        settings = {**settings, **inner}
    method = _method(settings)
    weights, groups = _weights(method, settings), _groups(settings)
    others = [] if weights.format is None else _other_groups(weights, settings)
    notes: list[Text] = []
    if weights.format is None:
        notes.append(
            Message(
                f"{where}: quantization_config ({method}): {weights.assumed}; weights are counted in the format of ",
                Option("dtype"), "; ", Option("weights"), " sets another format",
            )
        )  # fmt: skip
    elif weights.assumed:
        notes.append(f"{where}: quantization_config ({method}): {weights.assumed}")
    assumed = {other.assumed: None for other, _ in others if other.assumed and other.assumed != weights.assumed}
    notes += [f"{where}: quantization_config ({method}): {text}" for text in assumed]
    targets = tuple(name for group in groups for name in _names(group.get("targets")))
    targets = () if weights.format is None or "Linear" in targets else targets
    if method == "mxfp4":
        targets = (EXPERTS_ONLY,)  # transformers converts only the experts (Mxfp4GptOssExperts)
    listed = dict.fromkeys(name for key in LISTS for name in _names(settings.get(key)))
    ignored = tuple(name for name in listed if not OTHER_MODALITIES.search(name))
    formats = tuple((other.format, names) for other, names in others if other.format is not None)
    return Quantization(method, weights.format, _kv(settings), targets, ignored, formats), tuple(notes)


DTYPES = {
    "float64": "fp64", "float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
}  # fmt: skip
"""The number format of a `torch_dtype`."""


def checkpoint_dtype(config: Settings) -> str | None:
    """The format that a config's `torch_dtype` (since transformers 4.56 `dtype`) states; None without a known one."""
    stated = next((config[key] for key in ("torch_dtype", "dtype") if isinstance(config.get(key), str)), "")
    return DTYPES.get(stated.removeprefix("torch."))


def _method(settings: Settings) -> str:
    """The method's name; Model Optimizer's configs may state only their producer or their algorithm."""
    method, producer = settings.get("quant_method"), settings.get("producer")
    if method is None and ("quant_algo" in settings or (isinstance(producer, dict) and "name" in producer)):
        return "modelopt"
    return method if isinstance(method, str) else f"unknown method {shorten(method)}" if method else "unnamed method"


def _groups(settings: Settings) -> list[Settings]:
    """The `config_groups` of compressed-tensors."""
    groups = settings.get("config_groups")
    return [group for group in groups.values() if isinstance(group, dict)] if isinstance(groups, dict) else []


def _names(value: Any) -> Iterable[str]:
    return (name for name in value if isinstance(name, str)) if isinstance(value, list) else ()


def _weights(method: str, settings: Settings) -> _Weights:
    """The format of the converted weights."""
    match method:
        case "fp8" if "quant_algo" not in settings:
            return _fp8_block(settings.get("weight_block_size"))
        case "fbgemm_fp8":
            return _Weights("fp8")  # a scale per row: a few bytes per thousand elements
        case "gptq" | "awq" | "auto-round" | "intel/auto-round":
            return _integer(settings.get("bits", settings.get("w_bit")), settings.get("group_size"), symmetric=False)
        case "bitsandbytes":
            return _bitsandbytes(settings)
        case "compressed-tensors":
            return _compressed(settings)
        case "mxfp4":
            return _Weights("mxfp4")
        case "modelopt" | "modelopt_fp4" | "fp8":
            return _modelopt(settings)
    return _Weights(None, "the method is not supported")


def _fp8_block(block: Any) -> _Weights:
    if block is None:
        return _Weights("fp8")
    if block == [128, 128]:
        return _Weights("fp8_block")
    return _Weights("fp8", f"the scales of its blocks of {shorten(block)} elements are not counted")


def _integer(bits: Any, group: Any, symmetric: bool) -> _Weights:
    """Integers of 4 or 8 bits with a scale per group; without `symmetric` also a zero point."""
    if bits == 8:
        grouped = isinstance(group, int) and group > 0
        return _Weights("int8", f"the scales of groups of {group} are not counted" if grouped else "")
    if bits != 4:
        return _Weights(None, f"{shorten(bits)} bits are not supported")
    suffix = "_sym" if symmetric else ""
    if group in GROUP_SIZES:
        return _Weights(f"int4{suffix}" if group == 128 else f"int4_g{group}{suffix}")
    return _Weights(f"int4{suffix}", f"group_size {shorten(group)} is counted as groups of 128")


def _bitsandbytes(settings: Settings) -> _Weights:
    if settings.get("load_in_8bit") is True or settings.get("_load_in_8bit") is True:
        return _Weights("int8")
    if not (settings.get("load_in_4bit") is True or settings.get("_load_in_4bit") is True):
        return _Weights(None, "it states neither load_in_4bit nor load_in_8bit")
    form = "nf4_double" if settings.get("bnb_4bit_use_double_quant") is True else "nf4"
    if settings.get("bnb_4bit_quant_type") == "nf4":
        return _Weights(form)
    return _Weights(form, f"fp4 is counted as {form}, which has the same size")


def _compressed(settings: Settings) -> _Weights:
    """The format of the `weights` of the config groups: of the group for all linear layers, else of the first group."""
    groups = _weight_groups(settings)
    found = [_compressed_format(group["weights"]) for group in groups]
    if not found:
        return _Weights(None, "its config_groups describe no weights")
    of_all = dict.fromkeys(each.format for each, group in zip(found, groups, strict=True) if _is_for_all(group))
    if len(of_all) > 1:
        names = " and ".join(form or "unsupported" for form in of_all)
        return _Weights(None, f"all of its linear layers have different formats ({names}), which is not supported")
    return next((each for each in found if each.format is None), found[0])


def _weight_groups(settings: Settings) -> list[Settings]:
    """The groups that describe weights, those for all linear layers first."""
    groups = [group for group in _groups(settings) if isinstance(group.get("weights"), dict)]
    return sorted(groups, key=lambda group: not _is_for_all(group))


def _is_for_all(group: Settings) -> bool:
    """Whether a group is for all linear layers; modules that other groups name are in those groups.

    compressed-tensors matches the names of modules before their classes.
    """
    names = list(_names(group.get("targets")))
    return not names or "Linear" in names


def _other_groups(weights: _Weights, settings: Settings) -> list[tuple[_Weights, tuple[str, ...]]]:
    """The groups of modules with another format than `weights`, with their targets."""
    described = [
        (_compressed_format(group["weights"]), tuple(_names(group.get("targets"))))
        for group in _weight_groups(settings)
        if not _is_for_all(group)
    ]
    return [(form, targets) for form, targets in described if form.format != weights.format]


def _compressed_format(weights: Settings) -> _Weights:
    bits, kind, group = weights.get("num_bits"), weights.get("type"), weights.get("group_size")
    if kind == "int":
        if bits == 4 and weights.get("strategy") == "channel":
            group = "per channel"
        return _integer(bits, group, symmetric=weights.get("symmetric", True) is True)
    if kind == "float" and bits == 8:
        return _fp8_block(weights.get("block_structure") if weights.get("strategy") == "block" else None)
    if kind == "float" and bits == 4 and group in (16, 32):
        return _Weights("nvfp4" if group == 16 else "mxfp4")
    return _Weights(None, f"{shorten(bits)}-bit {shorten(kind)} weights are not supported")


def _modelopt(settings: Settings) -> _Weights:
    algorithm = settings.get("quant_algo")
    if algorithm in FP8_ALGORITHMS:
        return _Weights("fp8_block" if algorithm == "FP8_PB_WO" else "fp8")
    if algorithm in NVFP4_ALGORITHMS:
        return _Weights("nvfp4")
    if algorithm is None and _groups(settings):
        return _compressed(settings)
    return _Weights(None, f"quant_algo {shorten(algorithm)} is not supported")


def _kv(settings: Settings) -> str | None:
    """The format of the KV cache; None where the config does not quantize it."""
    scheme = settings.get("kv_cache_scheme", settings.get("kv_cache_quant_algo"))
    if isinstance(scheme, dict):
        kinds = {("float", 8): "fp8", ("int", 8): "int8", ("float", 4): "nvfp4"}
        bits = scheme.get("num_bits")
        return kinds.get((str(scheme.get("type")), bits)) if isinstance(bits, int) else None
    return {"FP8": "fp8", "INT8": "int8", "NVFP4": "nvfp4"}.get(str(scheme).upper())


# --- Patterns of module names -----------------------------------------------------------------------


@cache
def _indexed(patterns: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, set[int]]]:
    """The patterns that hold for all layers, and those of single layers as module -> layers."""
    of_all, some = [], dict[str, set[int]]()
    for pattern in patterns:
        single = None if pattern.startswith("re:") or "*" in pattern else _LAYER.fullmatch(pattern)
        if single:
            some.setdefault(single[2], set()).add(int(single[1]))
        else:
            of_all.append(pattern)
    return tuple(of_all), some


def _layer_paths(patterns: Iterable[str]) -> list[str]:
    """The names that the list of layers may have in these patterns."""
    text = " ".join(patterns)
    return ["model.layers", *(path for path, part in _OTHER_LAYER_PATHS.items() if part.search(text))]


def _without_match(patterns: Iterable[str], modules: Sequence[str], layers: int) -> list[str]:
    """The patterns that match none of these modules of any layer."""
    result = []
    for pattern in patterns:
        searched = range(min(layers, _LAYERS_SEARCHED) if _DIGIT.search(pattern) else 1)
        paths = _layer_paths([pattern])
        names = (f"{path}.{layer}.{module}" for layer in searched for path in paths for module in modules)
        if not any(map(_regex(pattern).match, names)):
            result.append(pattern)
    return result


def _leading_parts(module: str) -> list[str]:
    """`mlp.gate` -> `mlp`, `mlp.gate`."""
    words = module.split(".")
    return [".".join(words[: n + 1]) for n in range(len(words))]


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern. One that is not valid matches nothing."""
    try:
        if pattern.startswith("re:"):
            return re.compile(pattern[3:])
        if "*" in pattern:
            return re.compile(f"(?:{translate(pattern)})|(?:{translate(pattern + '.*')})")
        return re.compile(rf"(?:.*\.)?{re.escape(pattern)}(?:\..*)?\Z")
    except re.error:
        return re.compile(r"(?!)")
