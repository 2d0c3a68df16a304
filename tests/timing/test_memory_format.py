"""Convolutional networks in NCHW: conversions around convolutions, slower batch norms, a measured step."""

from __future__ import annotations

import pytest

from roofmodel import estimate
from roofmodel.counting import phases
from roofmodel.models import hub
from roofmodel.steps.options import workload
from roofmodel.timing.extra_kernels import kernel_in_nchw


def kernels_in_nchw(is_training: bool = True, dtype: str = "fp16") -> dict[str, int]:
    """Bytes of the extra kernels of ResNet-50 with two images, by the first operator of each name."""
    architecture = hub.load("resnet-50")
    work, _ = workload(architecture, phase="train" if is_training else "forward", batch=2, dtype=dtype)
    found: dict[str, int] = {}
    for operator in phases.operators(architecture, work.steps()[0]):
        kernel = kernel_in_nchw(operator, is_training)
        found.setdefault(operator.name, 0 if kernel is None else int(kernel.bytes))
    return found


def test_tensor_cores_convert_each_tensor_of_a_convolution_but_the_filter() -> None:
    found = kernels_in_nchw()
    tensor = 2 * 64 * 56 * 56 * 2  # two images, 64 channels of 56 x 56 pixels, 2 bytes
    assert found["stage1.spatial"] == found["stage1.spatial.grad_weight"] == 2 * (tensor + tensor)  # read and written
    assert found["stage1.expand"] == 0  # 1 x 1 over 56 x 56 pixels, a multiple of 8
    assert found["stage4.expand"] == 2 * (2 * 49 * 512 + 2 * 49 * 2048) * 2  # 7 x 7 pixels are not
    assert not any(kernels_in_nchw(dtype="fp32").values())


def test_batch_norms_are_slower_in_nchw_in_training_only() -> None:
    found = kernels_in_nchw()
    tensor = 2 * 64 * 112 * 112 * 2
    # forward 3 passes, backward 5, of 2 and 3 that are counted; 143 % more
    assert found["norm.stem_convolution"] == 2 * tensor * 3 // 2 * 143 // 100
    assert found["norm.stem_convolution.grad"] == 3 * tensor * 5 // 3 * 143 // 100
    assert kernels_in_nchw(is_training=False)["norm.stem_convolution"] == 0


def test_a_step_in_nchw_takes_as_much_longer_as_a_lecture_measured() -> None:
    # 350 and 230 ms for a step of 256 images on a V100 with AMP (Samsung SDS, 2021), which no constant is from
    nchw, nhwc = (
        estimate("resnet-50", "v100", phase="train", batch=256, dtype="fp16", memory_format=name).totals["train"]
        for name in ("nchw", "nhwc")
    )
    assert nchw["expected_seconds"] / nhwc["expected_seconds"] == pytest.approx(350 / 230, rel=0.1)
    assert nchw["bound_seconds"] == nhwc["bound_seconds"]


def test_the_memory_format_of_a_transformer_is_ignored_with_a_note() -> None:
    report = estimate("gpt2", "a100", memory_format="nchw")
    assert any("memory_format is ignored" in note for note in report.notes)
    assert report.totals == estimate("gpt2", "a100").totals
