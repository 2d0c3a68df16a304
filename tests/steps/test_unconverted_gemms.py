"""GEMMs whose weights a narrow format does not apply to: the router of an MoE layer, the head, and listed modules."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting import passes
from roofmodel.counting.tensors import FORMATS
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.models import hub
from roofmodel.plan.layouts import formats
from roofmodel.steps.estimate import estimate
from roofmodel.steps.options import workload
from roofmodel.steps.placed import Placed
from roofmodel.steps.similar_steps import SimilarSteps

H100 = Device.load("h100")
MIXTRAL = "mixtral-8x7b-v0.1"


def operators(model: str, **options: Any) -> dict[str, Placed]:
    found = estimate(hub.load(model), H100, **{"phase": "prefill", "tp": 4, **options})
    return {one.operator.name: one for one in found.phases[0].placed}


@pytest.mark.parametrize("options", [{"weights": "int4"}, {"weights": "fp8"}, {"dtype": "fp8", "activations": "bf16"}])
def test_a_narrow_weight_format_does_not_apply_to_routers(options: dict[str, Any]) -> None:
    """As in published quantized checkpoints, and in vLLM, whose gates have no quantization."""
    router = operators(MIXTRAL, **options)["mlp.router"].operator
    (weight,) = router.parameters
    assert router.bytes_of(weight) == 2 * 4096 * 8  # 16 bits, hidden size, experts


@pytest.mark.parametrize("dtype", ["fp8", "int8"])
@pytest.mark.parametrize("name", ["mlp.router", "head.logits"])
def test_a_gemm_with_16_bit_weights_and_activations_multiplies_in_16_bits(name: str, dtype: str) -> None:
    found = operators(MIXTRAL, dtype=dtype, activations="bf16", seq=4096)
    one, other = found[name], found["attention.output"]
    half, narrow = (H100.matmul_pipe(each).peak for each in ("bf16", dtype))
    assert one.placement.matmul_seconds == pytest.approx(one.operator.cost.matmul_flops / half)
    assert other.placement.matmul_seconds == pytest.approx(other.operator.cost.matmul_flops / narrow)
    in_16_bits = operators(MIXTRAL, dtype="bf16", seq=4096)[name]
    assert one.expected == in_16_bits.expected


@pytest.mark.parametrize("attention", ["flash", "eager"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_attention_on_16_bit_activations_and_kv_cache_multiplies_in_16_bits(phase: str, attention: str) -> None:
    options: dict[str, Any] = {"phase": phase, "seq": 8192, "kv": "bf16", "attention": attention}
    mixed = operators("llama-3.1-8b", dtype="fp8", activations="bf16", **options)
    half = operators("llama-3.1-8b", dtype="bf16", **options)
    names = ["attention.flash"] if attention == "flash" else ["attention.scores", "attention.mix"]
    for name in names:
        one = mixed[name]
        in_16_bits = one.operator.cost.matmul_flops / H100.matmul_pipe("bf16").peak
        assert one.placement.matmul_seconds == pytest.approx(in_16_bits)
        expected, expected_half = one.expected, half[name].expected
        assert expected
        assert expected_half
        assert expected.value == expected_half.value


def test_attention_with_an_8_bit_kv_cache_multiplies_in_8_bits() -> None:
    one = operators("llama-3.1-8b", dtype="fp8", activations="bf16", kv="fp8", phase="decode")["attention.flash"]
    assert one.placement.matmul_seconds == one.operator.cost.matmul_flops / H100.matmul_pipe("fp8").peak


def test_similar_training_steps_place_a_gemm_with_16_bit_weights_in_16_bits() -> None:
    arch = hub.load(MIXTRAL)
    (step,) = Workload(("train",), dtype="fp8", activations="bf16").steps()
    steps = SimilarSteps(arch, H100, step, Engine.load("megatron"))
    (head,) = (one for one in passes.one_pass(arch, step) if one.name == "head.logits")
    peak = H100.matmul_pipe("bf16").peak
    assert steps.placement(head).matmul_seconds == pytest.approx(head.cost.matmul_flops / peak)


@pytest.mark.parametrize("dtype", ["fp8", "int8"])
def test_below_16_bits_activations_have_16_bits_unless_given(dtype: str) -> None:
    """Engines quantize the inputs of a GEMM just before it; residuals, norms and the router stay in 16 bits."""
    found = operators("llama-3.1-8b", dtype=dtype, phase="prefill", seq=512)
    assert found["residual.mlp"].operator.cost.bytes_read == 2 * 2 * 512 * 4096  # bf16 as in the config
    assert found == operators("llama-3.1-8b", dtype=dtype, activations="bf16", phase="prefill", seq=512)
    narrow = operators("llama-3.1-8b", dtype=dtype, activations=dtype, phase="prefill", seq=512)
    assert narrow["residual.mlp"].operator.cost.bytes_read == 2 * 512 * 4096


def test_the_16_bits_are_those_that_the_device_multiplies() -> None:
    """The checkpoint is in bf16, which the T4 has no pipe for; the TPU has none for fp16."""
    for device, half in (("t4", "fp16"), ("tpu-v5e", "bf16"), ("h100", "bf16")):
        found = estimate(hub.load("llama-3.1-8b"), Device.load(device), dtype="int8")
        assert (found.workload.activations, found.workload.widths.dtype.name) == (half, half)


def test_an_estimate_and_a_plan_have_the_same_activations() -> None:
    arch, device, engine = hub.load("llama-3.1-8b"), Device.load("h100"), Engine.load("vllm")
    for form in formats(arch, device, engine, {"dtype": ["fp8", "bf16"]}):
        planned, _ = workload(arch, device, dtype=form.dtype, activations=form.activations)
        assert planned.widths.dtype == estimate(arch, device, dtype=form.dtype).workload.widths.dtype
    (given,) = formats(arch, device, engine, {"dtype": ["fp8"], "activations": ["fp8"], "kv": ["fp8"]})
    assert workload(arch, device, dtype="fp8", activations=given.activations)[0].widths.dtype.name == "fp8"


def test_formats_that_are_given_for_all_tensors_apply_to_all_gemms() -> None:
    for name in ("mlp.router", "head.logits"):
        one = operators(MIXTRAL, dtype="fp8", activations="fp8")[name]
        assert one.placement.matmul_seconds == one.operator.cost.matmul_flops / H100.matmul_pipe("fp8").peak
        assert one.operator.bytes_of(one.operator.parameters[0]) == FORMATS["fp8"].bytes(
            one.operator.parameters[0].elements(one.operator.sizes)
        )
