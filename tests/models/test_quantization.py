"""`quantization_config`: formats of published checkpoints, and modules that stay unconverted."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.tensors import FORMATS, number_format
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


def torchao(kind: str, **data: Any) -> dict[str, Any]:
    """A config as transformers writes it, from torchao's `config_to_dict`."""
    return {"quant_method": "torchao", "quant_type": {"default": {"_type": kind, "_version": 1, "_data": data}}}


def vptq(vector: int, centroids: int, residual: int) -> dict[str, Any]:
    layer = {"vector_lens": [-1, vector], "num_centroids": [-1, centroids], "num_res_centroids": [-1, residual]}
    return {"quant_method": "vptq", "config_for_layers": {"model.layers.0.mlp.up_proj": layer}}


def hqq(bits: int, group: int, **more: Any) -> dict[str, Any]:
    return {
        "quant_method": "hqq",
        "quant_config": {"weight_quant_params": {"nbits": bits, "group_size": group}, **more},
    }


def quark(dtype: str, **more: Any) -> dict[str, Any]:
    return {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": dtype, **more}}}


BY_32 = {"_type": "PerGroup", "_data": {"group_size": 32}}
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
    ("settings", "bits"),
    [
        # integers with a 16-bit scale and a zero point of their width: GPTQ packs 32 of 3 bits into three words
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, 3 + (16 + 3) / 128),
        ({"quant_method": "gptq", "bits": 2, "group_size": 64}, 2 + (16 + 2) / 64),
        (hqq(4, 64), 4 + 32 / 64),  # scale and zero point of 16 bits
        (hqq(8, 64), 8 + 32 / 64),
        (hqq(3, 64), 32 / 10 + 32 / 64),  # ten 3-bit weights in a word of 32 bits
        (hqq(4, 64, scale_quant_params={"nbits": 8}, zero_quant_params={"nbits": 8}), 4 + 16 / 64),
        # one code of 16 bits for 8 weights; two of 8 bits; AqlmConfig's defaults are the first
        ({"quant_method": "aqlm"}, 2),
        ({"quant_method": "aqlm", "num_codebooks": 2, "nbits_per_codebook": 8, "in_group_size": 8}, 2),
        ({"quant_method": "aqlm", "num_codebooks": 1, "nbits_per_codebook": 16, "in_group_size": 16}, 1),
        (vptq(8, 65536, -1), 2),  # one of 2^16 centroids for 8 weights
        (vptq(8, 65536, 256), 3),  # and one of 2^8 for their residual
        ({"quant_method": "quanto", "weights": "int8"}, 8),
        ({"quant_method": "quanto", "weights": "float8"}, 8),
        ({"quant_method": "quanto", "weights": "int4"}, 4 + 32 / 128),
        ({"quant_method": "quanto", "weights": "int2"}, 2 + 32 / 128),
        ({"quant_method": "eetq", "weights": "int8"}, 8),
        ({"quant_method": "bitnet", "linear_class": "autobitlinear"}, 2),  # four ternary weights in a byte
        ({"quant_method": "spqr", "bits": 3, "beta1": 16, "beta2": 16}, 3 + 6 / 16 + 64 / 256),
        ({"quant_method": "higgs", "bits": 4, "group_size": 256}, 4 + 16 / 256),
        ({"quant_method": "higgs", "bits": 2, "group_size": 64}, 2 + 16 / 64),
        ({"quant_method": "exl2", "bits": 4.65, "head_bits": 6}, 4.65),
        ({"bits": 4, "group_size": 64}, 4 + 32 / 64),  # MLX: scale and bias of 16 bits
        ({"bits": 8, "group_size": 32}, 9),
        ({"bits": 4, "group_size": 32, "mode": "mxfp4"}, 4 + 8 / 32),
        ({"quant_method": "metal", "bits": 2, "group_size": 64}, 2 + 32 / 64),
        ({"quant_method": "sinq", "nbits": 4, "group_size": 64}, 4 + 32 / 64),
        ({"quant_method": "gemma", "num_bits": 4}, 4),
        ({"quant_method": "fp_quant", "forward_dtype": "mxfp4"}, 4 + 8 / 32),
        ({"quant_method": "fouroversix", "dtype": "nvfp4"}, 4 + 8 / 16),
        ({"quant_method": "nvfp4"}, 4 + 8 / 16),
        ({"quant_method": "mxfp8"}, 8 + 8 / 32),
        ({"quant_method": "fp8", "weight_block_size": [1, 32], "scale_fmt": "ue8m0"}, 8 + 8 / 32),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ", "group_size": 128}, 4 + 16 / 128),
        (quark("fp8_e4m3", qscheme="per_tensor"), 8),
        (quark("int4", qscheme="per_group", group_size=128), 4 + 16 / 128),
        (quark("uint4", qscheme="per_group", group_size=128), 4 + 20 / 128),
        (quark("fp4", qscheme="per_group", group_size=32, scale_format="e8m0"), 4 + 8 / 32),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, 8),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 64}},
         4 + 20 / 64),
        (torchao("Int4WeightOnlyConfig", group_size=128), 4 + 20 / 128),
        (torchao("Int8WeightOnlyConfig"), 8),
        (torchao("Int8DynamicActivationInt8WeightConfig"), 8),
        (torchao("Float8DynamicActivationFloat8WeightConfig"), 8),
        (torchao("NVFP4InferenceConfig"), 4 + 8 / 16),
        (torchao("IntxWeightOnlyConfig", weight_dtype={"_data": "int3"}, granularity=BY_32),
         3 + 16 / 32),
        (torchao("Int8DynamicActivationIntxWeightConfig", weight_dtype={"_data": "int4"}, weight_granularity=BY_32),
         4 + 16 / 32),
    ],
)  # fmt: skip
def test_the_bits_of_a_weight_are_those_of_the_method(settings: dict[str, Any], bits: float) -> None:
    """As the config classes of transformers 5.23 state them, and the modules that they create."""
    found, _ = read(settings)
    assert found.weights is not None
    stored = number_format(found.weights)
    assert 8 * stored.bytes(10**9) == pytest.approx(bits * 10**9, rel=4e-4)  # names have three decimals


@pytest.mark.parametrize("bits", [None, "4", -1, 0, True, [4], {}, 1e300, float("nan")])
@pytest.mark.parametrize("method", ["exl2", "hqq", "higgs", "spqr", "aqlm", "sinq", "gemma", "metal", "gptq"])
def test_invalid_bits_are_an_unknown_format(method: str, bits: Any) -> None:
    settings = dict.fromkeys(("bits", "nbits", "num_bits", "nbits_per_codebook"), bits)
    found, _ = read({"quant_method": method, "group_size": bits, "quant_config": settings, **settings})
    assert not found.is_known


@pytest.mark.parametrize(
    ("settings", "tables"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}, {"E_logits": "int4"}),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": False}, {}),
        ({"quant_method": "exl2", "bits": 4.65, "head_bits": 6}, {"E_logits": "6bit"}),
        ({"bits": 4, "group_size": 64}, {"E_logits": "4.5bit", "E_token": "4.5bit"}),
        ({"quant_method": "gemma", "num_bits": 4, "quantize_embeddings": True}, {"E_token": "4bit"}),
        (torchao("Int8WeightOnlyConfig") | {"include_input_output_embeddings": True},
         {"E_logits": "int8", "E_token": "int8"}),
    ],
)  # fmt: skip
def test_a_converted_head_or_token_table_is_stated(settings: dict[str, Any], tables: dict[str, str]) -> None:
    assert dict(read(settings)[0].tables) == tables


@pytest.mark.parametrize(
    ("settings", "module", "form"),
    [
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {r"+:.*\.down_proj": {"bits": 8}}},
            "mlp.down_proj", "int8",
        ),
        ({"bits": 4, "group_size": 64, "model.layers.0.mlp.gate": {"bits": 8, "group_size": 64}}, "mlp.gate", "8.5bit"),
        (
            quark("fp8_e4m3") | {"layer_quant_config": {"*self_attn*": {"weight": {"dtype": "fp4"}}}},
            "self_attn.q_proj", "mxfp4",
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
                "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
                "model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "NVFP4", "group_size": 16},
                "model.layers.0.mlp.experts.1.up_proj": {"quant_algo": "NVFP4", "group_size": 16},
            }},
            "self_attn.q_proj", "fp8",
        ),
    ],
)  # fmt: skip
def test_single_modules_have_formats_of_their_own(settings: dict[str, Any], module: str, form: str) -> None:
    found, _ = read(settings)
    ((name, targets),) = found.groups
    assert (name, found.target_layers(targets, [module], 1)) == (form, 1)
    assert found.weights != form


@pytest.mark.parametrize(
    "settings",
    [
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {r"-:.*\.q_proj": {}}},
        {"quant_method": "auto-round", "bits": 4, "extra_config": {"model.layers.0.self_attn.q_proj": {"bits": 16}}},
        {"bits": 4, "group_size": 64, "model.layers.0.self_attn.q_proj": False},
        quark("int8") | {"exclude": ["*q_proj"]},
        {"quant_method": "aqlm", "linear_weights_not_to_quantize": ["model.layers.0.self_attn.q_proj.weight"]},
        hqq(4, 64) | {"skip_modules": ["q_proj"]},
    ],
)
def test_excluded_modules_keep_the_working_format(settings: dict[str, Any]) -> None:
    found, _ = read(settings)
    assert found.unconverted_layers(["self_attn.q_proj"], 1) == 1
    assert found.unconverted_layers(["self_attn.k_proj"], 1) == 0


def test_an_online_quantization_stores_weights_in_the_working_format() -> None:
    found, (note,) = quantization(
        {"quantization_config": {"quant_method": "bitnet", "quantization_mode": "online"}}, "config.json"
    )
    assert found is None
    assert "while it runs" in str(note)


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
        ({"quant_method": "fp8", "weight_block_size": [1, "x"]}, "fp8", "the scales of its blocks of"),
        ({"quant_method": "gptq", "bits": 1, "group_size": 128}, None, "1 bits are not supported"),
        ({"quant_method": "fp8", "quant_algo": "MIXED_PRECISION"}, None, "'MIXED_PRECISION' is not supported"),
        ({"quant_method": "modelopt", "quant_algo": "W3A8"}, None, "'W3A8' is not supported"),
        ({"quant_method": "gguf"}, None, "the method is not supported"),
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
    assert ("unknown weight format; give weights" in text) == (weights is None)
    assert found.is_known == (weights is not None)


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


def test_with_a_group_in_an_unsupported_format_the_weight_format_is_unknown() -> None:
    settings = compressed(num_bits=8, type="float")
    settings["config_groups"]["group_1"] = {"targets": list(EXPERTS), "weights": {"num_bits": 1, "type": "int"}}
    found, (text,) = read(settings)
    assert (found.weights, found.is_known, found.groups) == (None, False, ())
    assert "1 bits are not supported" in text


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
