"""The `quantization_config` of a checkpoint: number formats of weights and KV cache, and the modules that it converts.

The formats are those of counting/tensors.py, by name; quantization_methods.py reads them, and has the sources of
the keys.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from functools import cache
from typing import NamedTuple

from roofmodel.errors import AnswerNote, Option, Text, shorten
from roofmodel.models.quantization_methods import (
    Settings,
    StoredWeights,
    compressed_format,
    config_groups,
    hqq,
    integers,
    is_for_all,
    mean_bits,
    modelopt_format,
    names_in,
    quark,
    stored_weights,
    weight_groups,
)

EXPERTS_ONLY = "re:.*experts.*"
LISTS = (
    "modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules", "llm_int8_skip_modules", "exclude",
    "skip_modules", "linear_weights_not_to_quantize",
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
    tables: tuple[tuple[str, str], ...] = ()
    """Of a converted head or token table: its tensor and its format."""
    is_known: bool = True
    """Whether the weight format is known. Then `weights` is not None."""

    def target_layers(self, targets: tuple[str, ...], modules: Sequence[str], layers: int) -> int:
        """The number of layers in which one of the modules matches one of the targets."""
        return len(_matching_layers(targets, modules, layers))

    def unconverted_layers(self, modules: Sequence[str], layers: int) -> int:
        """The number of layers in which a module keeps the working format.

        `modules` are its names in a layer, such as `self_attn.q_proj`; a pattern for one of them is enough.
        """
        unconverted = _matching_layers(self.ignored, modules, layers)
        if self.targets:
            unconverted = unconverted | (set(range(layers)) - _matching_layers(self.targets, modules, layers))
        return len(unconverted)

    def unmatched(self, modules: Sequence[str], layers: int) -> Unmatched:
        """The targets and the ignored names that match none of these modules of any layer.

        Ignored norms, embeddings, routers and heads are left out: no format converts them.
        """
        targets, ignored = (_without_match(patterns, modules, layers) for patterns in (self.targets, self.ignored))
        return Unmatched(targets, [name for name in ignored if not _NO_MATRIX_OF_LAYERS.search(name)])


class Unmatched(NamedTuple):
    """Patterns of a `quantization_config` that match no weight matrix."""

    targets: list[str]
    ignored: list[str]


def quantization(config: Settings, where: object) -> tuple[Quantization | None, tuple[Text, ...]]:
    """The quantization of a config, with a note on each setting that is not counted exactly; None without one."""
    settings = config.get("quantization_config")
    if not isinstance(settings, dict):
        settings = config.get("quantization")  # MLX states it here, and often in both places
    if not isinstance(settings, dict):
        return None, ()
    inner = settings.get("quantization")
    if isinstance(inner, dict) and "quant_algo" not in settings:  # Model Optimizer's hf_quant_config.json
        settings = {**settings, **inner}
    if "expert_dtype" in config:  # the class puts it there, too
        settings = {"expert_dtype": config["expert_dtype"], **settings}
    method = _method(settings)
    if method == "fp8" and _expert_format(settings):  # the lists are those of the experts' conversion
        settings = {key: settings[key] for key in settings.keys() & _DEEPSEEK_V4_KEYS}
    if method == "bitnet" and settings.get("quantization_mode") == "online":
        return None, (f"{where}: quantization_config (bitnet): the checkpoint is quantized while it runs",)
    weights, others = _weights_and_groups(method, settings)
    place = f"{where}: quantization_config ({method})"
    if weights.format is None:
        why = AnswerNote(
            f"{place}: {weights.assumed}, so memory, bounds and times are unknown; ",
            "unknown weight format; give ",
            Option("weights"),
        )
        return Quantization(method, None, _kv(settings), is_known=False), (why,)
    assumed = {each.assumed: None for each in (weights, *(other for other, _ in others)) if each.assumed}
    notes = [f"{place}: {text}" for text in assumed]
    listed = dict.fromkeys(name for key in LISTS for name in names_in(settings.get(key)))
    listed |= dict.fromkeys(_excluded(settings))
    ignored = tuple(name.removesuffix(".weight") for name in listed if not OTHER_MODALITIES.search(name))
    formats = tuple((other.format, names) for other, names in others if other.format not in (None, weights.format))
    targets = _targets(method, settings)
    tables = tuple(_tables(method, settings, weights.format))
    return Quantization(method, weights.format, _kv(settings), targets, ignored, formats, tables), tuple(notes)


Groups = list[tuple[StoredWeights, tuple[str, ...]]]
"""Formats, and the patterns of the modules that have them."""


def _weights_and_groups(method: str, settings: Settings) -> tuple[StoredWeights, Groups]:
    """The main format of the converted weights, and the modules in other formats."""
    modules = _named_modules(method, settings)
    if method.startswith("modelopt") and modules and settings.get("quant_algo") in ("MIXED_PRECISION", None):
        main = Counter(form for _, form in modules).most_common(1)[0][0]
    elif method == "hqq" and modules:  # a format for each kind of layer, and none for the others
        main = modules[0][1]
    else:
        main = stored_weights(method, settings)
    if experts := _expert_format(settings):
        modules = [*modules, (EXPERTS_ONLY, StoredWeights(experts))]
    groups: dict[StoredWeights, dict[str, None]] = {}
    for name, form in modules:
        groups.setdefault(form, {})[name] = None
    stated_groups = [(form, tuple(names)) for form, names in groups.items()]
    described = [
        (compressed_format(group["weights"]), tuple(names_in(group.get("targets"))))
        for group in weight_groups(settings)
        if not is_for_all(group)
    ]
    return main, stated_groups + [(form, names) for form, names in described if form.format != main.format]


_DEEPSEEK_V4_KEYS = {"quant_method", "weight_block_size", "scale_fmt", "expert_dtype", "moe_quant_algo"}


def _expert_format(settings: Settings) -> str | None:
    """The format of experts in a checkpoint whose other linear layers are in fp8; None if it states none.

    DeepSeek-V4 has fp4 with a shared exponent for each 32 weights (`inference/convert.py`); NVIDIA's has nvfp4.
    """
    if settings.get("moe_quant_algo") == "NVFP4":
        return "nvfp4"
    return "mxfp4" if settings.get("expert_dtype") == "fp4" else None


def _named_modules(method: str, settings: Settings) -> list[tuple[str, StoredWeights]]:
    """The patterns of single modules for which the config states a format."""
    return [(name, form) for name, form in _settings_by_module(method, settings) if form.format is not None]


def _settings_by_module(method: str, settings: Settings) -> Iterator[tuple[str, StoredWeights]]:
    def settings_of(key: str) -> Iterator[tuple[str, Settings]]:
        section = settings if key == "" else settings.get(key)
        if isinstance(section, dict):
            yield from ((name, each) for name, each in section.items() if isinstance(each, dict))

    if method.startswith("modelopt"):
        for name, each in settings_of("quantized_layers"):
            yield _EXPERT.sub("experts.0", name), modelopt_format(each.get("quant_algo"), each) or StoredWeights(None)
    elif method == "mlx":
        yield from ((name, stored_weights("mlx", each)) for name, each in settings_of("") if "bits" in each)
    elif method == "gptq":
        for name, each in settings_of("dynamic"):
            if not name.startswith("-:"):
                both = {"group_size": settings.get("group_size"), "bits": settings.get("bits"), **each}
                yield f"re:{name.removeprefix('+:')}", stored_weights(method, both)
    elif method in ("auto-round", "intel/auto-round"):
        for name, each in settings_of("extra_config"):
            if not _keeps_format(each):
                yield name, integers(each.get("bits"), each.get("group_size", settings.get("group_size")), False)
    elif method == "hqq":
        for name, each in settings_of("quant_config"):
            if isinstance(each.get("weight_quant_params"), dict):
                yield name, hqq(each)
    elif method == "quark":
        yield from (
            (name, quark(each["weight"])) for name, each in settings_of("layer_quant_config") if each.get("weight")
        )
    elif method == "gemma":
        for name, each in settings_of("module_quant_configs"):
            yield f"re:.*(?:{name})", mean_bits(each.get("num_bits", settings.get("num_bits", 4)))


def _keeps_format(module: Settings) -> bool:
    """Whether the settings of a module state at least 16 bits, that is no conversion."""
    bits = module.get("bits")
    return isinstance(bits, int) and bits >= 16


def _excluded(settings: Settings) -> Iterator[str]:
    """The patterns of modules that settings by module exclude: GPTQModel's, auto-round's and MLX's."""
    by_pattern, by_name = settings.get("dynamic"), settings.get("extra_config")
    if isinstance(by_pattern, dict):
        yield from (f"re:{name[2:]}" for name in by_pattern if name.startswith("-:"))
    if isinstance(by_name, dict):
        yield from (name for name, each in by_name.items() if isinstance(each, dict) and _keeps_format(each))
    yield from (name for name, each in settings.items() if each is False and "." in name)


def _targets(method: str, settings: Settings) -> tuple[str, ...]:
    """The patterns of the modules that are converted; empty if all linear layers are."""
    if method == "mxfp4":
        return (EXPERTS_ONLY,)  # transformers converts only the experts (Mxfp4GptOssExperts)
    if method == "hqq" or (method.startswith("modelopt") and settings.get("quant_algo") == "MIXED_PRECISION"):
        return tuple(dict.fromkeys(name for name, _ in _named_modules(method, settings)))
    targets = tuple(name for group in config_groups(settings) for name in names_in(group.get("targets")))
    return () if "Linear" in targets else targets


def _tables(method: str, settings: Settings, weights: str) -> Iterator[tuple[str, str]]:
    """The formats of the head's own matrix and of the token table, where the checkpoint converts them."""
    head, everything = "E_logits", ("E_logits", "E_token")
    if method in ("exl2", "exl3") and (form := mean_bits(settings.get("head_bits")).format):
        yield head, form
    elif settings.get("lm_head") is True or settings.get("quant_lm_head") is True:
        yield head, weights
    elif method == "mlx" or settings.get("include_input_output_embeddings") is True:
        yield from ((table, weights) for table in everything)
    elif settings.get("quantize_embeddings") is True:
        yield "E_token", weights


def _method(settings: Settings) -> str:
    """The method's name; Model Optimizer's configs may state only their producer or their algorithm, MLX's none."""
    method, producer = settings.get("quant_method"), settings.get("producer")
    if method is None and {"bits", "group_size"} <= settings.keys():
        return "mlx"
    if method is None and ("quant_algo" in settings or (isinstance(producer, dict) and "name" in producer)):
        return "modelopt"
    return method if isinstance(method, str) else f"unknown method {shorten(method)}" if method else "unnamed method"


def _kv(settings: Settings) -> str | None:
    """The format of the KV cache; None where the config does not quantize it."""
    scheme = settings.get("kv_cache_scheme", settings.get("kv_cache_quant_algo"))
    if scheme is None and "fp8" in str(settings.get("kv_cache_quant_config")):  # Quark
        return "fp8"
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


def _matching_layers(patterns: tuple[str, ...], modules: Sequence[str], layers: int) -> set[int]:
    """The layers in which one of the modules matches one of the patterns."""
    for_all, for_one = _indexed(patterns)
    parts = {part for module in modules for part in _leading_parts(module)}
    matches = {layer for part in parts for layer in for_one.get(part, ()) if layer < layers}
    by_layer, paths, regexes = _DIGIT.search(" ".join(for_all)), _layer_paths(for_all), [*map(_regex, for_all)]
    for layer in range(layers if by_layer else 1):
        names = [f"{path}.{layer}.{module}" for path in paths for module in modules]
        if any(regex.match(name) for regex in regexes for name in names):
            matches |= {layer} if by_layer else set(range(layers))
    return matches


def _without_match(patterns: tuple[str, ...], modules: Sequence[str], layers: int) -> list[str]:
    """The patterns that match none of these modules of any layer."""
    for_all, for_one = _indexed(patterns)
    result = []
    for pattern in for_all:
        searched = range(min(layers, _LAYERS_SEARCHED) if _DIGIT.search(pattern) else 1)
        paths = _layer_paths([pattern])
        names = (f"{path}.{layer}.{module}" for layer in searched for path in paths for module in modules)
        if not any(map(_regex(pattern).match, names)):
            result.append(pattern)
    parts = {part for module in modules for part in _leading_parts(module)}
    return result + [name for name in for_one if _EXPERT.sub("experts.0", name) not in parts]


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
