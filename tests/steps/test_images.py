"""The phase of a vision tower, and the tokens that images add to a prompt."""

from __future__ import annotations

from typing import Any

import pytest

import roofmodel
from roofmodel.errors import RoofError

MODEL = "qwen3-vl-2b-instruct"
TOKENS = 1024 // 32 * (768 // 32)
"""Of an image of 1024 x 768 pixels: patches of 16 x 16, of which 2 x 2 become one token."""


def document(model: Any = MODEL, **options: Any) -> dict[str, Any]:
    return roofmodel.estimate(model, "h100", **options).to_dict()


def test_images_lengthen_the_prompt_by_their_tokens() -> None:
    with_images = document(seq=1000, images=2, image="1024x768", phase="prefill")
    assert with_images["phases"] == document(seq=1000 + 2 * TOKENS, phase="prefill")["phases"]
    assert (with_images["workload"]["images"], with_images["workload"]["image"]) == (2, [768, 1024])
    assert any(f"the prompt has {1000 + 2 * TOKENS} tokens: 1000 of text" in note for note in with_images["notes"])


def test_a_decode_attends_to_the_tokens_of_images() -> None:
    assert (
        document(seq=1000, image="1024x768", phase="decode")["phases"]
        == document(seq=1000 + TOKENS, phase="decode")["phases"]
    )


def test_the_vision_phase_reads_all_images_of_a_batch() -> None:
    one, six = (document(phase="vision", image="1024x768", **many) for many in ({}, {"batch": 2, "images": 3}))
    (one_phase,), (six_phase,) = one["phases"], six["phases"]
    assert one_phase["phase"] == six_phase["phase"] == "vision"
    assert 6 * one_phase["totals"]["matmul_flops"] == six_phase["totals"]["matmul_flops"]
    assert one["model"]["parameters"] == six["model"]["parameters"]
    # 1024 x 768 patches of 3 x 2 x 16 x 16 numbers, hidden size 1024, as for any tower of the same config
    patches = 4 * TOKENS
    patch_embedding = next(op for op in one_phase["ops"] if op["name"] == "embedding.patches")
    assert patch_embedding["matmul_flops"] == 2 * patches * (3 * 2 * 16 * 16) * 1024


def test_more_pixels_are_more_work() -> None:
    sizes = [document(phase="vision", image=side)["phases"][0]["totals"] for side in (256, 512, 1024, 2048)]
    for name in ("matmul_flops", "bytes", "bound_seconds", "expected_seconds"):
        assert [size[name] for size in sizes] == sorted(size[name] for size in sizes)
    assert all(size["bound_seconds"] <= size["expected_seconds"] for size in sizes)


def test_a_text_model_ignores_images_with_a_note() -> None:
    with_images = document("gpt2", images=2, phase="decode")
    assert any("images is ignored: openai-community/gpt2 does not read images" in n for n in with_images["notes"])
    assert with_images["phases"] == document("gpt2", phase="decode")["phases"]


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("gpt2", {"phase": "vision"}, 'phase="vision": the config of openai-community/gpt2 has no vision tower'),
        (MODEL, {"phase": "vision", "image": "1024x"}, 'pixels of a side, or width x height; try image="1024x768"'),
        (MODEL, {"image": "0x768"}, "image is '0x768'"),
        (MODEL, {"images": 0}, "images is 0"),
        (MODEL, {"phase": "vision", "image": "10x2001"}, "more than 200 × the other"),
    ],
)
def test_an_invalid_request_says_what_works(model: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RoofError) as error:
        document(model, **options)
    assert message in str(error.value)


def test_only_an_estimate_has_the_vision_phase() -> None:
    with pytest.raises(RoofError, match="is a phase of `roof estimate` only"):
        roofmodel.sweep(MODEL, "h100", phase="vision")
