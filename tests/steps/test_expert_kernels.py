"""The kernel that vLLM calls for the experts of a quantized model, and a narrower format that comes out slower."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.devices.device import Device
from roofmodel.models.hub import load
from roofmodel.steps.estimate import Estimate, estimate

TRITON, CUTLASS = "vllm_fp8moe_triton_tritonexperts", "vllm_fp8moe_flashinfer_cutlass_flashinferexperts"


def decode(hw: str = "h100", **options: Any) -> Estimate:
    return estimate(load("qwen3-235b-a22b"), Device.load(hw), phase="decode", tp=8, batch=64, seq=1024, **options)


def experts_kernel(found: Estimate) -> str | None:
    (phase,) = found.phases
    return next(
        each.run.implementation for each in phase.placed if each.run and each.operator.name == "mlp.expert_down"
    )


@pytest.mark.parametrize(("ep", "kernel"), [(1, TRITON), (8, CUTLASS)])
def test_block_scaled_experts_run_on_triton_with_tp_and_on_cutlass_with_ep(ep: int, kernel: str) -> None:
    """vllm/model_executor/layers/fused_moe/oracle/fp8.py, _get_priority_backends, on Hopper."""
    assert experts_kernel(decode(dtype="fp8", weights="fp8_block", ep=ep)) == kernel


def test_an_option_chooses_a_kernel_also_with_expert_parallelism() -> None:
    found = decode(dtype="fp8", weights="fp8_block", ep=8, engine_option="moe=triton")
    assert experts_kernel(found) == TRITON


def test_experts_in_fp8_are_not_slower_than_in_bf16() -> None:
    """Their weights are half as many bytes, and a decode reads them once."""
    times = [decode("h200", **options).phases[0].expected for options in ({"dtype": "bf16"}, {"dtype": "fp8"})]
    assert times[0] is not None
    assert times[1] is not None
    assert 0.5 * times[0].value < times[1].value < times[0].value


def test_a_narrower_format_that_is_expected_slower_is_said() -> None:
    """The table's calls of this kernel read weights at a fifth of the bandwidth."""
    slow = decode("h200", dtype="fp8", engine_option="moe=vllm_modeloptfp8moe")
    fast = decode("h200", dtype="bf16").phases[0].expected
    assert fast is not None
    (warning,) = (str(note) for note in slow.notes if "is expected to take" in str(note))
    assert f"and {1e3 * fast.value:.3g} ms in bf16" in warning
    assert not any("is expected to take" in str(note) for note in decode("h200", dtype="fp8").notes)
