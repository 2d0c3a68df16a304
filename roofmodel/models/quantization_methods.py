"""The format in which a checkpoint stores the weights that it converts, by method of its `quantization_config`.

Sources of the keys and of their defaults: the quantization configs of transformers (`utils/quantization_config.py`) and
the modules that they create (`integrations/`), of compressed-tensors (`quantization/quant_config.py`), of NVIDIA Model
Optimizer (`hf_quant_config.json`), of AMD Quark (`QConfig`), of ExLlamaV2 (`bits`, `head_bits`) and of MLX (`bits`,
`group_size`). A format that has no name is its mean bits per weight, scales included, such as `4.5bit`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import log2
from typing import Any, NamedTuple

from roofmodel.errors import shorten

Settings = Mapping[str, Any]

GROUP_SIZES = (32, 64, 128)
"""Group sizes for which there is an int4 format."""
NVFP4_ALGORITHMS = ("NVFP4", "W4A16_NVFP4", "NVFP4_AWQ", "NVFP4_SVDQUANT")
MXFP4_ALGORITHMS = ("MXFP4", "W4A8_MXFP4_FP8", "W4A16_MXFP4")
FP8_ALGORITHMS = ("FP8", "FP8_PB_WO", "FP8_PER_CHANNEL_PER_TOKEN")
INT4_ALGORITHMS = ("W4A16_AWQ", "W4A8_AWQ", "INT4_AWQ", "W4A16")
INT8_ALGORITHMS = ("INT8", "INT8_SQ", "W8A16", "W8A8_SQ_PER_CHANNEL")
SCALE = 16
"""Bits of a scale or zero point in the format of the activations."""
BITS_OF_TYPES = {"float8": 8, "float8_e4m3fn": 8, "fp8": 8, "int8": 8, "int4": 4, "int2": 2}
MX_SCALE = Fraction(8, 32)
"""Bits per weight of the shared exponents of OCP's microscaling formats: 8 bits for each block of 32."""
QUANTO_GROUP = 128
"""Weights of optimum-quanto's groups (`quantize_weight` in integrations/quanto.py has no other)."""
TORCHAO_GROUP = 128
"""The default group size of torchao's `Int4WeightOnlyConfig`."""


class StoredWeights(NamedTuple):
    """A weight format by name, None if unknown, and what is assumed or unknown."""

    format: str | None
    assumed: str = ""


UNKNOWN_METHOD = StoredWeights(None, "the method is not supported")


class _Invalid(ValueError):
    """A setting that must be a number, and is none."""


def stored_weights(method: str, settings: Settings) -> StoredWeights:
    """The format of the converted weights."""
    try:
        return _stored_weights(method, settings)
    except _Invalid as error:
        return StoredWeights(None, str(error))


def _number(settings: Settings, key: str, default: int) -> Any:
    """A positive number of the settings. Raises _Invalid for another value."""
    value = settings.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**32:
        raise _Invalid(f"{key} {shorten(value)} is not supported")
    return value


def _stored_weights(method: str, settings: Settings) -> StoredWeights:
    match method:
        case "fp8" if "quant_algo" not in settings:
            return _fp8_block(settings.get("weight_block_size"), settings.get("scale_fmt"))
        case "mxfp8":
            return mean_bits(8 + MX_SCALE)
        case "fbgemm_fp8":
            return StoredWeights("fp8")  # a scale per row: a few bytes per thousand elements
        case "gptq" | "awq" | "auto-round" | "intel/auto-round":
            bits, group = settings.get("bits", settings.get("w_bit")), settings.get("group_size")
            return integers(bits, group, symmetric=False)
        case "bitsandbytes":
            return _bitsandbytes(settings)
        case "compressed-tensors":
            return _compressed(settings)
        case "mxfp4" | "nvfp4":
            return StoredWeights(method)
        case "modelopt" | "modelopt_fp4" | "modelopt_mixed" | "fp8":
            return _modelopt(settings)
        case "hqq":
            return hqq(_part(settings, "quant_config"))
        case "aqlm":
            return _aqlm(settings)
        case "vptq":
            return _vptq(settings)
        case "quanto" | "eetq":
            return _typed(settings.get("weights", "int8"), QUANTO_GROUP)
        case "torchao":
            return _torchao(settings)
        case "bitnet":
            return mean_bits(2)  # ternary, four weights in a byte (integrations/bitnet.py); one scale per matrix
        case "spqr":
            # 3-bit scales and zero points of rows of 16 weights, four 16-bit numbers for each tile of 16 × 16 of them
            weights = mean_bits(_number(settings, "bits", 3) + Fraction(2 * 3, 16) + Fraction(4 * SCALE, 16 * 16))
            return weights._replace(assumed="weights that are stored apart as outliers are not counted")
        case "higgs":
            return _grouped(settings.get("bits", 4), settings.get("group_size", 256), SCALE)
        case "mlx" | "metal":
            mode = settings.get("mode", "affine")
            if mode in ("mxfp4", "nvfp4"):
                return StoredWeights(mode)
            if mode == "mxfp8":
                return mean_bits(8 + MX_SCALE)
            return _grouped(settings.get("bits", 4), settings.get("group_size", 64), 2 * SCALE)  # scale and bias
        case "sinq":
            return _grouped(settings.get("nbits", 4), settings.get("group_size", 64), 2 * SCALE)
        case "exl2" | "exl3":
            return mean_bits(settings.get("bits"))  # the mean over all layers, scales included
        case "fp_quant":
            return _typed(settings.get("forward_dtype", "nvfp4"), 0)
        case "fouroversix":
            return _typed(settings.get("weight_dtype") or settings.get("dtype", "nvfp4"), 0)
        case "gemma":
            return mean_bits(settings.get("num_bits", 4))  # one scale per row
        case "quark":
            return quark(_part(settings, "global_quant_config").get("weight"))
    return UNKNOWN_METHOD


def mean_bits(bits: Any) -> StoredWeights:
    """The format of so many bits per weight; 8 bits are int8."""
    if isinstance(bits, bool) or not isinstance(bits, int | float | Fraction) or not 1 <= bits < 16:
        shown = float(bits) if isinstance(bits, Fraction) else bits
        return StoredWeights(None, f"{shorten(shown)} bits are not supported")
    return StoredWeights("int8" if bits == 8 else f"{float(bits):.3f}".rstrip("0").rstrip(".") + "bit")


def _grouped(bits: Any, group: Any, added: int) -> StoredWeights:
    """So many bits per weight, and `added` bits for each group; without groups only for each row, a few bytes."""
    per_row = mean_bits(bits)
    return per_row if per_row.format is None or not _is_size(group) else mean_bits(bits + Fraction(added) / group)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _part(settings: Settings, key: str) -> Settings:
    """A dictionary within the settings; empty if there is none."""
    section = settings.get(key)
    return section if isinstance(section, dict) else {}


def _fp8_block(block: Any, scale_format: Any = None) -> StoredWeights:
    if block is None:
        return StoredWeights("fp8")
    if block == [128, 128]:
        return StoredWeights("fp8_block")
    if isinstance(block, list) and len(block) == 2 and all(map(_is_size, block)):
        return mean_bits(8 + Fraction(8 if scale_format == "ue8m0" else 32, block[0] * block[1]))
    return StoredWeights("fp8", f"the scales of its blocks of {shorten(block)} elements are not counted")


def integers(bits: Any, group: Any, symmetric: bool) -> StoredWeights:
    """Integers of 2 to 8 bits with a 16-bit scale per group; without `symmetric` also a zero point as wide as they."""
    if bits == 8:
        return StoredWeights("int8", f"the scales of groups of {group} are not counted" if _is_size(group) else "")
    if bits != 4:
        if bits not in (2, 3, 5, 6, 7):
            return StoredWeights(None, f"{shorten(bits)} bits are not supported")
        return _grouped(bits, group, SCALE if symmetric else SCALE + bits)
    suffix = "_sym" if symmetric else ""
    if group in GROUP_SIZES:
        return StoredWeights(f"int4{suffix}" if group == 128 else f"int4_g{group}{suffix}")
    return StoredWeights(f"int4{suffix}", f"group_size {shorten(group)} is counted as groups of 128")


def _bitsandbytes(settings: Settings) -> StoredWeights:
    if settings.get("load_in_8bit") is True or settings.get("_load_in_8bit") is True:
        return StoredWeights("int8")
    if not (settings.get("load_in_4bit") is True or settings.get("_load_in_4bit") is True):
        return StoredWeights(None, "it states neither load_in_4bit nor load_in_8bit")
    form = "nf4_double" if settings.get("bnb_4bit_use_double_quant") is True else "nf4"
    if settings.get("bnb_4bit_quant_type") == "nf4":
        return StoredWeights(form)
    return StoredWeights(form, f"fp4 is counted as {form}, which has the same size")


def _typed(name: Any, group: int) -> StoredWeights:
    """The format of a type's name; integers below 8 bits have a 16-bit scale and shift in groups."""
    if name in ("nvfp4", "mxfp4"):
        return StoredWeights(name)
    bits = BITS_OF_TYPES.get(str(name))
    if bits == 8:
        return StoredWeights("int8" if name == "int8" else "fp8")
    return StoredWeights(None, f"{shorten(name)} weights are not supported") if bits is None else _grouped(
        bits, group, 2 * SCALE
    )  # fmt: skip


def hqq(config: Settings) -> StoredWeights:
    """HQQ: a scale and a zero point per group, of 16 bits unless quantized; a word has ten weights of 3 bits."""
    weights = _part(config, "weight_quant_params") or config
    bits, group = weights.get("nbits", 4), weights.get("group_size", 64)
    added = sum(_number(_part(config, f"{kind}_quant_params"), "nbits", SCALE) for kind in ("scale", "zero"))
    return _grouped(Fraction(32, 10) if bits == 3 else bits, group, added)


def _aqlm(settings: Settings) -> StoredWeights:
    """AQLM: so many codes for each group of weights; the codebooks of a matrix have no size here."""
    names = {"in_group_size": 8, "out_group_size": 1, "num_codebooks": 1, "nbits_per_codebook": 16}
    inner, outer, codebooks, bits = (_number(settings, name, default) for name, default in names.items())
    entries = f"{codebooks} × 2^{bits} × {inner * outer}"
    weights = mean_bits(codebooks * bits / (inner * outer))
    return weights._replace(assumed=f"the codebooks of each matrix ({entries} numbers of 16 bits) are not counted")


def _vptq(settings: Settings) -> StoredWeights:
    """VPTQ: an index of a centroid for each vector of weights, and one of a residual; the mean over the matrices."""
    layers = [*_part(settings, "config_for_layers").values(), *_part(settings, "shared_layer_config").values()]
    bits, weights = 0.0, 0
    for layer in layers:
        try:
            length = layer["vector_lens"][-1]
            indices = [layer[name][-1] for name in ("num_centroids", "num_res_centroids") if layer[name][-1] > 1]
            size = max(layer.get("in_features", 1), 1) * max(layer.get("out_features", 1), 1)
            bits += size * sum(map(log2, indices)) / length
        except (TypeError, KeyError, IndexError, AttributeError, ZeroDivisionError, OverflowError, ValueError):
            return StoredWeights(None, "its layers state no vector_lens and num_centroids")
        weights += size
    if not weights:
        return StoredWeights(None, "it describes no layers")
    return mean_bits(bits / weights)._replace(assumed="its codebooks are not counted")


def _torchao(settings: Settings) -> StoredWeights:
    """torchao: the name of a config such as `int4_weight_only` or `Int4WeightOnlyConfig`, and its group size."""
    kind, arguments = settings.get("quant_type"), _part(settings, "quant_type_kwargs")
    if isinstance(kind, dict):
        described = _part(kind, "default")
        kind, arguments = described.get("_type"), _part(described, "_data")
    name = str(kind).lower().replace("_", "")
    granularity = _part(arguments, "weight_granularity") or _part(arguments, "granularity")
    group = arguments.get("group_size", _part(granularity, "_data").get("group_size"))
    if name.startswith(("float8", "fp8", "a16w8float", "int8dynamicactivationint8", "int8weightonly", "int8static")):
        return StoredWeights("int8" if name.startswith("int8") else "fp8")
    if "nvfp4" in name:
        return StoredWeights("nvfp4")
    if name.startswith("mx"):
        return StoredWeights("mxfp4") if "float4" in str(arguments.get("weight_dtype", "float4")) else mean_bits(
            8 + MX_SCALE
        )  # fmt: skip
    if "int4weightonly" in name:
        return integers(4, group or TORCHAO_GROUP, symmetric=False)
    if "int8dynamicactivationint4weight" in name or "float8dynamicactivationint4weight" in name:
        return integers(4, group or 32, symmetric=True)
    if bits := re.search(r"int([1-8])\b", str(arguments.get("weight_dtype", arguments.get("dtype", "")))):
        width = int(bits[1])
        return StoredWeights("int8") if width == 8 else integers(width, group, symmetric=True)
    return StoredWeights(None, f"quant_type {shorten(kind)} is not supported")


def quark(weight: Any) -> StoredWeights:
    """The format of Quark's `weight`, which may be a list of successive quantizations; the last one is stored."""
    weight = weight[-1] if isinstance(weight, list) and weight else weight
    if not isinstance(weight, dict):
        return StoredWeights(None, "its global_quant_config describes no weights")
    name, group = str(weight.get("dtype")), weight.get("group_size")
    if name.startswith(("fp8", "float8")):
        return StoredWeights("fp8") if "e8m0" not in str(weight.get("scale_format")) else mean_bits(8 + MX_SCALE)
    if name.startswith(("fp4", "mxfp4", "mx")):
        return StoredWeights("mxfp4")
    if match := re.fullmatch(r"u?int([2-8])", name):
        signed = not name.startswith("u") and weight.get("symmetric", True) is not False
        return integers(int(match[1]), group, symmetric=signed)
    return StoredWeights(None, f"{shorten(weight.get('dtype'))} weights are not supported")


def _compressed(settings: Settings) -> StoredWeights:
    """The format of the `weights` of the config groups: of the group for all linear layers, else of the first group."""
    groups = weight_groups(settings)
    formats = [compressed_format(group["weights"]) for group in groups]
    if not formats:
        return StoredWeights(None, "its config_groups describe no weights")
    of_all = dict.fromkeys(each.format for each, group in zip(formats, groups, strict=True) if is_for_all(group))
    if len(of_all) > 1:
        names = " and ".join(form or "unsupported" for form in of_all)
        return StoredWeights(None, f"all of its linear layers have different formats ({names}), which is not supported")
    return next((each for each in formats if each.format is None), formats[0])


def config_groups(settings: Settings) -> list[Settings]:
    """The `config_groups` of compressed-tensors."""
    groups = settings.get("config_groups")
    return [group for group in groups.values() if isinstance(group, dict)] if isinstance(groups, dict) else []


def names_in(value: Any) -> Iterable[str]:
    """The texts of a list; none for another value."""
    return (name for name in value if isinstance(name, str)) if isinstance(value, list) else ()


def weight_groups(settings: Settings) -> list[Settings]:
    """The groups that describe weights, those for all linear layers first."""
    groups = [group for group in config_groups(settings) if isinstance(group.get("weights"), dict)]
    return sorted(groups, key=lambda group: not is_for_all(group))


def is_for_all(group: Settings) -> bool:
    """Whether a group is for all linear layers; modules that other groups name are in those groups.

    compressed-tensors matches the names of modules before their classes.
    """
    names = list(names_in(group.get("targets")))
    return not names or "Linear" in names


def compressed_format(weights: Settings) -> StoredWeights:
    """The format of the `weights` of a group of compressed-tensors."""
    bits, kind, group = weights.get("num_bits"), weights.get("type"), weights.get("group_size")
    if kind == "int":
        if bits == 4 and weights.get("strategy") == "channel":
            group = "per channel"
        return integers(bits, group, symmetric=weights.get("symmetric", True) is True)
    if kind == "float" and bits == 8:
        return _fp8_block(weights.get("block_structure") if weights.get("strategy") == "block" else None)
    if kind == "float" and bits == 4 and group in (16, 32):
        return StoredWeights("nvfp4" if group == 16 else "mxfp4")
    return StoredWeights(None, f"{shorten(bits)}-bit {shorten(kind)} weights are not supported")


def _modelopt(settings: Settings) -> StoredWeights:
    algorithm = settings.get("quant_algo")
    if algorithm is None and config_groups(settings):
        return _compressed(settings)
    weights = modelopt_format(algorithm, settings)
    return weights if weights else StoredWeights(None, f"quant_algo {shorten(algorithm)} is not supported")


def modelopt_format(algorithm: Any, settings: Settings) -> StoredWeights | None:
    """The format of one of Model Optimizer's algorithms; None for an unknown one."""
    if algorithm in FP8_ALGORITHMS:
        return StoredWeights("fp8_block" if algorithm == "FP8_PB_WO" else "fp8")
    if algorithm in NVFP4_ALGORITHMS:
        return StoredWeights("nvfp4")
    if algorithm in MXFP4_ALGORITHMS:
        return StoredWeights("mxfp4")
    if algorithm in INT8_ALGORITHMS:
        return StoredWeights("int8")
    if algorithm in INT4_ALGORITHMS:
        return integers(4, settings.get("group_size", 128), symmetric=True)
    return mean_bits(8 + MX_SCALE) if algorithm == "MXFP8" else None
