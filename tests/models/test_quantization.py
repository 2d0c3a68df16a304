"""`quantization_config`: formats of published checkpoints, and modules that stay unconverted."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.number_formats import FORMATS
from roofmodel.models.quantization import Quantization, quantization


def read(settings: dict[str, Any]) -> tuple[Quantization, tuple[str, ...]]:
    found, notes = quantization({"quantization_config": settings}, "config.json")
    assert found is not None
    return found, tuple(map(str, notes))


def compressed(**weights: Any) -> dict[str, Any]:
    """A config of compressed-tensors with one group of all linear layers."""
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


BNB = {"quant_method": "bitsandbytes", "load_in_4bit": True}


@pytest.mark.parametrize(
    ("settings", "weights", "kv"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4", None),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "int4_g32", None),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "int4_g64", None),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}, "int4", None),
        (BNB | {"bnb_4bit_quant_type": "nf4"}, "nf4", None),
        (BNB | {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}, "nf4_double", None),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False}, "int8", None),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block", None),
        ({"quant_method": "fp8"}, "fp8", None),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fp8", None),
        ({"quant_method": "mxfp4"}, "mxfp4", None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}, "nvfp4", "fp8"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}}, "fp8", None),
        # Qwen3-32B-FP8-Static-PerTensor, without quant_method
        ({"quant_algo": "FP8", "kv_cache_scheme": "FP8", "producer": {"name": "modelopt"}}, "fp8", "fp8"),
        (compressed(num_bits=8, type="float", strategy="channel"), "fp8", None),
        (compressed(num_bits=8, type="float", strategy="block", block_structure=[128, 128]), "fp8_block", None),
        (compressed(num_bits=8, type="int", strategy="channel"), "int8", None),
        (compressed(num_bits=4, type="int", strategy="group", group_size=32, symmetric=True), "int4_g32_sym", None),
        (compressed(num_bits=4, type="int", strategy="group", group_size=128, symmetric=False), "int4", None),
        (compressed(num_bits=4, type="float", strategy="group", group_size=32), "mxfp4", None),
        (compressed(num_bits=4, type="float", strategy="tensor_group", group_size=16), "nvfp4", None),
        (
            compressed(num_bits=8, type="float", strategy="tensor")
            | {"kv_cache_scheme": {"num_bits": 8, "type": "float"}},
            "fp8",
            "fp8",
        ),
    ],
)
def test_a_quantization_with_an_exact_format_has_no_note(
    settings: dict[str, Any], weights: str, kv: str | None
) -> None:
    found, notes = read(settings)
    assert (found.weights, found.kv, notes) == (weights, kv, ())
    assert weights in FORMATS


@pytest.mark.parametrize(
    ("settings", "weights", "note"),
    [
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 1024},
            "int4",
            "group_size 1024 is counted as groups of 128",
        ),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "int8", "the scales of groups of 128 are not counted"),
        (BNB | {"bnb_4bit_quant_type": "fp4"}, "nf4", "fp4 is counted as nf4"),
        ({"quant_method": "fp8", "weight_block_size": [1, 32]}, "fp8", "the scales of its blocks of [1, 32] elements"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, None, "3 bits are not supported"),
        ({"quant_method": "fp8", "quant_algo": "MIXED_PRECISION"}, None, "'MIXED_PRECISION' is not supported"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, None, "'W4A8_AWQ' is not supported"),
        ({"quant_method": "aqlm"}, None, "the method is not supported"),
        ({"quant_method": ["?"], "bits": {}}, None, "the method is not supported"),
        (compressed(), None, "'None'-bit"),
        ({"quant_method": "compressed-tensors"}, None, "describe no weights"),
    ],
)
def test_a_quantization_without_an_exact_format_has_a_note_on_the_assumed_format(
    settings: dict[str, Any], weights: str | None, note: str
) -> None:
    found, (text,) = read(settings)
    assert found.weights == weights
    assert note.replace("'None'", "None") in text
    assert ("counted in the format of" in text) == (weights is None)


@pytest.mark.parametrize("bits", [[8], {"a": 8}, "8", None, True, 3])
def test_a_kv_cache_scheme_with_invalid_bits_is_ignored(bits: Any) -> None:
    found, _ = read({"quant_method": "fp8", "kv_cache_scheme": {"type": "float", "num_bits": bits}})
    assert found.kv is None


def test_two_formats_of_the_same_modules_are_not_supported() -> None:
    settings = compressed(num_bits=8, type="float")
    settings["config_groups"]["group_1"] = {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}
    found, (text,) = read(settings)
    assert found.weights is None
    assert "different formats (fp8 and nvfp4)" in text


NVFP4 = {"num_bits": 4, "type": "float", "group_size": 16}
EXPERTS = ("re:.*mlp.experts.*",)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_group_with_module_names_takes_precedence_over_the_group_of_all_linear_layers(reverse: bool) -> None:
    """compressed-tensors matches names before classes, in any order of the groups."""
    groups = [
        ("group_0", {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}),
        ("group_1", {"targets": list(EXPERTS), "weights": NVFP4}),
    ]
    settings = {"quant_method": "compressed-tensors", "config_groups": dict(reversed(groups) if reverse else groups)}
    found, notes = read(settings)
    assert (found.weights, found.targets, found.groups) == ("fp8", (), (("nvfp4", EXPERTS),))
    assert notes == ()


def test_without_a_group_of_all_linear_layers_the_first_group_is_the_main_one() -> None:
    settings = {"quant_method": "compressed-tensors", "config_groups": {
        "group_0": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"}},
        "group_1": {"targets": list(EXPERTS), "weights": NVFP4},
    }}  # fmt: skip
    found, _ = read(settings)
    assert (found.weights, found.targets) == ("fp8", ("re:.*self_attn.*", *EXPERTS))
    assert found.groups == (("nvfp4", EXPERTS),)


def test_a_group_in_an_unsupported_format_leaves_all_weights_in_the_working_format() -> None:
    settings = compressed(num_bits=8, type="float")
    settings["config_groups"]["group_1"] = {"targets": list(EXPERTS), "weights": {"num_bits": 3, "type": "int"}}
    found, (text,) = read(settings)
    assert found.weights is None
    assert found.groups == ()
    assert "3 bits are not supported" in text


def test_a_config_without_quantization_has_none() -> None:
    assert quantization({}, "x") == quantization({"quantization_config": None}, "x") == (None, ())


@pytest.mark.parametrize(
    ("pattern", "module", "layers"),
    [
        ("gate", "mlp.gate", 4),  # MiniMax-M2: part of the name
        ("gate", "mlp.gate_proj", 0),
        ("mlp.gate", "mlp.gate", 4),
        ("model.layers.1.mlp.gate", "mlp.gate", 1),
        ("model.layers.1.mlp", "mlp.gate_proj", 1),
        ("model.layers.9.mlp", "mlp.gate_proj", 0),  # a layer that the model does not have
        ("model.layers.*.self_attn", "self_attn.q_proj", 4),  # gpt-oss
        ("re:.*self_attn.*", "self_attn.q_proj", 4),  # Kimi-K2.5
        (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "mlp.gate_proj", 4),
        (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "mlp.experts.0.gate_proj", 0),
        (r"re:.*layers\.[01]\..*", "mlp.gate_proj", 2),
        ("re:(", "mlp.gate_proj", 0),  # not a regular expression
        ("lm_head", "mlp.gate_proj", 0),
    ],
)
def test_a_pattern_matches_modules_of_some_layers(pattern: str, module: str, layers: int) -> None:
    quantized, _ = read({"quant_method": "fp8", "modules_to_not_convert": [pattern]})
    assert quantized.unconverted_layers([module], 4) == layers


def test_modules_of_other_modalities_are_ignored() -> None:
    quantized, _ = read({"quant_method": "fp8", "ignored_layers": ["model.visual.blocks.0.mlp"]})
    assert quantized.ignored == ()
