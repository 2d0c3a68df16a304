"""The memory format and fp32 work that tensor cores could run: the same training step in three settings on an H100."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import roofmodel
from roofmodel.trace.command import TraceReport

H100 = Path(__file__).parents[1] / "data" / "gpu" / "h100"


@cache
def report(setting: str) -> TraceReport:
    """Two steps of ResNet-50 with a batch of 256; see tests/data/gpu/README.md."""
    return roofmodel.trace(H100 / f"trace-resnet50-{setting}.json.gz")


def kernel_findings(setting: str) -> dict[str, float]:
    kinds = "memory_format", "no_tensor_cores"
    return {each.kind: each.seconds for each in report(setting).analyzed.findings if each.kind in kinds}


def kernel_seconds(setting: str) -> float:
    return sum(each.rank.kernel_seconds for each in report(setting).analyzed.ranks)


def test_each_setting_has_the_finding_that_the_next_one_mends() -> None:
    assert list(kernel_findings("fp32-NCHW")) == ["no_tensor_cores"]
    assert list(kernel_findings("fp16-NCHW")) == ["memory_format"]
    assert kernel_findings("fp16-NHWC") == {}


def test_the_saving_of_tensor_cores_is_near_the_measured_one() -> None:
    measured = kernel_seconds("fp32-NCHW") - kernel_seconds("fp16-NCHW")  # 409 ms, of which 370 ms GEMMs, convolutions
    assert kernel_findings("fp32-NCHW")["no_tensor_cores"] == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize(
    ("device", "said"), [("h100-sxm", ["bf16", "TF32"]), ("v100-sxm2-16gb", []), ("rtx4090", ["bf16"])]
)
def test_only_formats_of_the_device_that_are_faster_are_advised(device: str, said: list[str]) -> None:
    """A V100 has neither bf16 nor TF32; TF32 of a GeForce card has the peak of fp32."""
    found = roofmodel.trace(H100 / "trace-resnet50-fp32-NCHW.json.gz", hw=device).analyzed.findings
    (text,) = (each.text for each in found if each.kind == "no_tensor_cores")
    assert [name for name in ("bf16", "TF32") if name in text] == said


def test_the_saving_of_nhwc_is_near_the_measured_one() -> None:
    measured = kernel_seconds("fp16-NCHW") - kernel_seconds("fp16-NHWC")  # 82 ms
    assert kernel_findings("fp16-NCHW")["memory_format"] == pytest.approx(measured, rel=0.1)
