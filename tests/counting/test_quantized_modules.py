"""Which weight matrices of a quantized checkpoint keep the working format, and what the checkpoint then weighs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.counting.quantized_modules import ROUTER, unconverted
from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.models.quantization import Quantization
from roofmodel.study.estimate.estimate import estimate
from tests.models.test_catalog import REAL_CONFIGS


@pytest.mark.parametrize(
    ("model", "published"),
    [
        # metadata.total_size in model.safetensors.index.json of openai/gpt-oss-*; the model card (arXiv 2508.10925,
        # table 1) gives 60.8 and 12.8 GiB
        ("gpt-oss-120b", 65_248_815_744),
        ("gpt-oss-20b", 13_761_264_768),
    ],
)
def test_the_weights_of_gpt_oss_have_the_size_of_the_published_checkpoint(model: str, published: int) -> None:
    assert roofmodel.estimate(model, "h100").to_dict()["memory"]["weights"] == published


def test_deepseek_v3_is_counted_in_fp8_with_block_scales_and_a_16_bit_router() -> None:
    arch = hub.load("deepseek-v3")
    matrices = 671_026_404_352 - 2 * 129_280 * 7168  # without token table and head
    router = 58 * 7168 * 256
    found = estimate(arch, Device.load("h200")).memory.weights
    # one byte per element and one fp32 scale per 128 x 128 elements; the router's two bytes; some small vectors
    assert found == pytest.approx(matrices * (1 + 4 / 128**2) + router + 2 * 2 * 129_280 * 7168, rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"ignored": ("model.layers.0.mlp",)}, set()),  # one layer of four
        ({"ignored": tuple(f"model.layers.{n}.mlp.gate_proj" for n in range(3))}, {"W_gate"}),
        ({"ignored": ("self_attn.o_proj",)}, {"W_out"}),
        (
            {"ignored": ("block_sparse_moe.experts",)},
            {f"W_expert_{name}" for name in ("gate", "up", "down", "gate_up")},
        ),
    ],
)
def test_a_matrix_is_kept_if_most_layers_keep_it(settings: dict[str, Any], kept: set[str]) -> None:
    found = unconverted(Quantization("fp8", "fp8", None, **settings), 4)
    assert {name for name in found.names - {ROUTER} if "gate_up" not in name or "expert" in name} >= kept
    assert bool(found.partly) == (not kept)


def test_the_matrices_of_the_targets_are_converted() -> None:
    found = unconverted(Quantization("compressed-tensors", "fp8", None, targets=("re:.*mlp.*",)), 4)
    assert {"W_q", "W_out", ROUTER} <= found.names
    assert not found.names & {"W_up", "W_expert_down", "W_shared_gate"}


def test_the_format_of_the_option_replaces_that_of_the_checkpoint() -> None:
    device = Device.load("h100")
    own, fp8, plain = (
        estimate(hub.load("gpt-oss-20b"), device, **options).memory.weights
        for options in ({}, {"weights": "fp8"}, {"weights": "fp16"})
    )
    assert own < fp8 < plain == 2 * 20_914_757_184


def test_training_and_autocast_use_no_format_of_the_checkpoint() -> None:
    for options in ({"phase": "train"}, {"runtime": "autocast"}):
        work = estimate(hub.load("gpt-oss-20b"), Device.load("h100"), **options).workload
        assert work.weights in (None, "fp32")
        assert not work.unconverted


@pytest.mark.parametrize(
    "model", ["moonshotai--Kimi-K2.5", "Qwen--Qwen3-30B-A3B-FP8", "Qwen--Qwen3-32B-FP8-Static-PerTensor"]
)
def test_the_workload_states_the_formats_of_a_real_config(model: str) -> None:
    file = REAL_CONFIGS / f"{model}.json"
    if not Path(file).exists():
        pytest.skip("no shared configs")
    report = roofmodel.estimate(file, "h200", tp=8)
    assert "(quantization_config)" in report.text("markdown")
    assert {note for note in report.to_dict()["notes"] if "stay fp16" in note}


@pytest.mark.parametrize(
    ("model", "dtype", "noted"), [("llama-3.1-8b", "bf16", False), ("t5-small", "fp32", True), ("gpt2", "fp16", False)]
)
def test_the_dtype_auto_is_the_torch_dtype_of_the_config(model: str, dtype: str, noted: bool) -> None:
    """A note states a checkpoint of another width than fp16; gpt2's config states none."""
    device = Device.load("h100")
    assert estimate(hub.load(model), device, dtype="auto").workload.dtype == dtype
    assert any("checkpoint is in" in str(note) for note in estimate(hub.load(model), device).notes) is noted
