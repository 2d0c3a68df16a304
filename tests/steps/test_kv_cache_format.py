"""The default format of the KV cache: `--dtype`, or what the `quantization_config` of a checkpoint states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.models import hub
from roofmodel.plan.layouts import formats

LLAMA = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1000, "torch_dtype": "bfloat16",
    "max_position_embeddings": 4096,
}  # fmt: skip
ELEMENTS = 2 * 1024 * 2 * 1024  # K and V, 1024 tokens, 2 layers, 8 heads × 128
QUANTIZED = {"quant_method": "fp8"}
STATED = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}


def checkpoint(folder: Path, quantization: dict[str, Any] | None) -> str:
    (folder / "config.json").write_text(
        json.dumps(LLAMA | ({"quantization_config": quantization} if quantization else {}))
    )
    return str(folder)


@pytest.mark.parametrize(
    ("quantization", "options", "bits"),
    [
        (QUANTIZED, {"dtype": "fp8"}, 16),  # vLLM's `kv_cache_dtype=auto` is the model's format
        (QUANTIZED, {"dtype": "int8"}, 16),
        (QUANTIZED, {"dtype": "fp8", "kv": "fp8"}, 8),
        (QUANTIZED, {"dtype": "fp32"}, 32),
        (QUANTIZED, {"dtype": "auto"}, 16),
        (STATED, {"dtype": "fp8"}, 8),
        (STATED, {"dtype": "bf16"}, 8),
        (None, {"dtype": "fp8"}, 8),
    ],
)
def test_the_cache_of_a_quantized_checkpoint_has_16_bits_unless_its_config_states_another_format(
    tmp_path: Path, quantization: dict[str, Any] | None, options: dict[str, Any], bits: int
) -> None:
    report = roofmodel.estimate(checkpoint(tmp_path, quantization), "h100", phase="prefill", **options)
    assert report.to_dict()["memory"]["kv_cache"] == ELEMENTS * bits / 8
    noted = [note for note in report.to_dict()["notes"] if "does not quantize the KV cache" in note]
    assert len(noted) == (quantization is QUANTIZED and bits == 16 and options["dtype"] != "auto")
    assert all("bf16" in note for note in noted)


def test_a_forward_pass_has_no_note_on_the_cache(tmp_path: Path) -> None:
    for quantization in (QUANTIZED, STATED):
        report = roofmodel.estimate(checkpoint(tmp_path, quantization), "h100", phase="forward", dtype="fp8")
        assert not [note for note in report.to_dict()["notes"] if "kv" in note.lower()]


def test_a_plan_searches_the_cache_format_of_the_checkpoint(tmp_path: Path) -> None:
    stated = STATED | {"kv_cache_quant_algo": "INT8"}
    for quantization, kv in ((QUANTIZED, {"bf16", "fp8"}), (stated, {"int8", "fp8"})):
        model = hub.load(checkpoint(tmp_path, quantization))
        assert {form.kv for form in formats(model, Device.load("h100"), Engine.load("vllm"), {})} == kv


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"dtype": "fp8", "activations": "fp8"},
            "norms and biases are counted in fp8; quantized checkpoints keep them in 16 bits, as ",
        ),
        ({"dtype": "bf16"}, "norms and biases stay bf16, as in quantized checkpoints"),
    ],
)
def test_a_note_states_the_format_of_unquantized_tensors(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    in_blocks = QUANTIZED | {"weight_block_size": [128, 128]}
    notes = roofmodel.estimate(checkpoint(tmp_path, in_blocks), "h100", **options).to_dict()["notes"]
    assert [note for note in notes if text in note]


def test_the_notes_on_parameters_name_the_format_of_the_cache(tmp_path: Path) -> None:
    notes = roofmodel.estimate(checkpoint(tmp_path, QUANTIZED), "h100", dtype="fp8", activations="fp8").to_dict()[
        "notes"
    ]
    found = [note for note in notes if "KV cache on" in note]
    assert found
    assert all("fp8 with bf16 KV cache" in note for note in found)
