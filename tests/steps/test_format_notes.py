"""Notes on kernels whose formats have no fitted parameters."""

from __future__ import annotations

from typing import Any

import pytest

import roofmodel


def format_notes(report: Any) -> list[str]:
    return [note for note in report.to_dict()["notes"] if "no parameters for" in note and "wider interval" in note]


@pytest.mark.parametrize(
    ("model", "hw", "options", "notes"),
    [
        (
            "llama-3.1-8b", "h100", {"weights": "fp8_block"},
            ["GEMM kernels have no parameters for fp16 with fp8_block weights on h100-sxm; those of fp16 are used"],
        ),
        (
            "llama-3.1-8b", "a100", {"dtype": "bf16", "weights": "int4", "kv": "fp8"},
            [
                "prefill attention and decode attention kernels have no parameters for bf16 with fp8 KV cache on "
                "a100-sxm-80gb; those of bf16 are used"
            ],
        ),
        (
            "mixtral-8x7b-v0.1", "a100", {"weights": "nf4", "phase": "decode"},
            [
                "GEMM and MoE kernels have no parameters for fp16 with nf4 weights on a100-sxm-80gb; those of fp16 "
                "with int4 weights are used"
            ],
        ),
    ],
)  # fmt: skip
def test_a_note_states_which_kernels_use_parameters_of_other_formats(
    model: str, hw: str, options: dict[str, Any], notes: list[str]
) -> None:
    found = format_notes(roofmodel.estimate(model, hw, **options))
    assert found == [f"{note}, with a wider interval" for note in notes]


def test_the_note_on_fp4_weights_names_the_difference_to_the_fitted_format() -> None:
    """fp4 alone is a format of arithmetic; the measured kernels read weights with scales."""
    found = roofmodel.estimate("llama-3.1-8b", "b200", dtype="fp4", kv="fp16", activations="fp16")
    assert format_notes(found) == [
        "GEMM kernels have no parameters for fp4 weights without scales on b200; those of fp4 with nvfp4 weights are "
        'used, with a wider interval (weights="nvfp4" counts the scales)'
    ]
    scaled = roofmodel.estimate("llama-3.1-8b", "b200", dtype="fp4", weights="nvfp4", kv="fp16", activations="fp16")
    assert not format_notes(scaled)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("llama-3.1-8b", {}),
        ("llama-3.1-8b", {"dtype": "bf16", "phase": "train"}),
        ("mixtral-8x7b-v0.1", {"weights": "int4", "dtype": "bf16"}),
        ("bert-base-uncased", {"seq": 100}),
        ("gpt2", {"phase": "train", "engine_option": "autocast=fp16"}),  # its kernels read 16-bit casts
    ],
)
def test_no_such_note_where_the_formats_have_parameters(model: str, options: dict[str, Any]) -> None:
    assert format_notes(roofmodel.estimate(model, "a100", **options)) == []


def test_a_plan_has_the_notes_of_its_candidates() -> None:
    report = roofmodel.plan(
        "llama-3.1-8b", "h100", gpus=1, isl=64, osl=8, dtype="bf16", weights="fp8_block", kv="fp8", mode="mixed"
    )
    (note,) = [str(note) for note in report.to_dict()["warnings"] if "no parameters" in str(note)]
    assert note == (
        "GEMM kernels have no parameters for bf16 with fp8_block weights on h100-sxm; those of bf16 are used, with a "
        "wider interval"
    )
