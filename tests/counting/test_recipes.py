"""Training with GEMMs below 16 bits: what is narrow, the casts, and their memory."""

from __future__ import annotations

from typing import Any

import pytest

import roofmodel
from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models import hub
from roofmodel.steps.estimate import Estimate, estimate

LAYERS, TOKENS, D, HEADS_KV, F = 16, 512, 2048, 8 * 64, 8192
"""Llama-3.2-1B, whose head is the token table, with one sequence of 512 tokens."""
MATRICES = D * D + 2 * D * HEADS_KV + D * D + 3 * D * F  # Q, K, V, output; gate, up, down


def train(dtype: str, model: str = "llama-3.2-1b", hw: str = "b200", **options: Any) -> Estimate:
    settings = {"phase": "train", "dtype": dtype, "seq": TOKENS, "engine": "megatron", **options}
    return estimate(hub.load(model), Device.load(hw), **settings)


def operators(found: Estimate) -> list[Operator]:
    return found.phases[0].operators


def computed_in(found: Estimate) -> dict[str, str]:
    compute = found.workload.widths.compute
    return {op.name: op.compute_dtype(compute) for op in operators(found) if op.matmul_flops and not op.collective}


@pytest.mark.parametrize(
    ("recipe", "compute"), [("fp8", "fp8"), ("fp8_block", "fp8"), ("mxfp8", "fp8"), ("nvfp4", "fp4")]
)
def test_only_the_gemms_of_linear_layers_are_narrow(recipe: str, compute: str) -> None:
    formats = computed_in(train(recipe))
    layers = ("attention.q", "attention.output", "mlp.gate", "mlp.down")
    assert {formats[f"{name}{end}"] for name in layers for end in ("", ".grad_input", ".grad_weight")} == {compute}
    wide = (
        "attention.flash",
        "attention.flash.grad",
        "head.logits",
        "head.logits.grad_input",
        "head.logits.grad_weight",
    )
    assert {formats[name] for name in wide} == {"bf16"}


def test_the_router_stays_wide_and_the_experts_are_narrow() -> None:
    formats = computed_in(train("fp8", "Mixtral-8x7B-v0.1"))
    assert {formats[f"mlp.router{end}"] for end in ("", ".grad_input", ".grad_weight")} == {"bf16"}
    experts = {name for name in formats if name.startswith("mlp.expert_")}
    assert experts
    assert {formats[name] for name in experts} == {"fp8"}


def test_a_recipe_changes_no_flops_of_gemms() -> None:
    wide, narrow = ((sum(op.count * op.matmul_flops for op in operators(train(each)))) for each in ("bf16", "mxfp8"))
    assert wide == narrow


def test_a_cast_reads_16_bits_and_writes_two_copies() -> None:
    """The input of Q, K and V is cast once; so is each gradient, for both of its GEMMs. Blocks of 32 have a byte."""
    casts = {op.name: op for op in operators(train("mxfp8")) if ".cast_" in op.name}
    reads = sorted(op.cost.bytes_read for op in casts.values() if not op.name.endswith("_W"))
    values = [D, D, D, F, D, D, D, HEADS_KV, HEADS_KV, F, F]  # forward: n, o, n, m; backward: y, q, o, k, v, gate, up
    assert reads == sorted(2 * TOKENS * width for width in values)
    for op in casts.values():
        assert op.cost.bytes_written == op.cost.bytes_read / 2 * 2 * (1 + 1 / 32)


@pytest.mark.parametrize(("recipe", "reads"), [("fp8", True), ("fp8_block", False), ("mxfp8", False), ("nvfp4", True)])
def test_a_scale_per_tensor_needs_another_read(recipe: str, reads: bool) -> None:
    """The largest magnitude is known after all values are; blocks are scaled in the kernel that casts them."""
    found = operators(train(recipe))
    largest = {op.name.replace(".amax_", ".cast_"): op.cost.bytes_read for op in found if ".amax_" in op.name}
    casts = {op.name: op.cost.bytes_read for op in found if ".cast_" in op.name}
    assert largest == (casts if reads else {})


def test_weights_have_two_copies_that_are_written_once_per_step() -> None:
    wide, narrow = (train(each, batch=4, micro_batch=1) for each in ("bf16", "fp8"))
    assert narrow.memory.weights - wide.memory.weights == 2 * LAYERS * MATRICES
    casts = [op for op in operators(narrow) if op.name.endswith(".cast_W")]
    assert sum(op.count * op.cost.bytes_read for op in casts) == 2 * LAYERS * MATRICES
    assert {op.stage for op in casts} == {"optimizer"}


def test_sharded_weights_are_cast_in_every_microbatch_and_one_layer_has_copies() -> None:
    options = {"batch": 16, "micro_batch": 1, "dp": 4, "zero": 3}
    wide, narrow = (train(each, **options) for each in ("bf16", "fp8"))
    casts = [op for op in operators(narrow) if op.name.endswith(".cast_W")]
    assert sum(op.count * op.cost.bytes_read for op in casts) == 4 * 2 * LAYERS * MATRICES
    assert narrow.memory.weights == wide.memory.weights
    grown = narrow.memory.other - wide.memory.other
    assert grown >= 2 * MATRICES


def test_inputs_of_gemms_are_kept_narrow() -> None:
    """Per layer the inputs of Q, K and V, of the output projection, of gate and up, and of down."""
    wide, narrow = (train(each).memory.kept for each in ("bf16", "fp8"))
    assert wide - narrow == LAYERS * TOKENS * (3 * D + F)


def test_narrow_gemms_are_faster() -> None:
    seconds = {each: train(each, seq=8192, batch=4).phases[0].expected.value for each in ("bf16", "fp8", "nvfp4")}
    assert seconds["nvfp4"] < seconds["fp8"] < seconds["bf16"]


def test_documents_name_the_recipe() -> None:
    document = roofmodel.estimate("llama-3.2-1b", "b200", phase="train", dtype="mxfp8").to_dict()
    assert (document["workload"]["dtype"], document["workload"]["weights"]) == ("mxfp8", "bf16")
    assert any("GEMMs of the layers multiply in mxfp8" in note for note in document["notes"])


def test_in_inference_a_scaled_format_is_that_of_the_weights() -> None:
    scaled, both = (
        roofmodel.estimate("llama-3.2-1b", "h100", **options).to_dict()
        for options in ({"dtype": "fp8_block"}, {"dtype": "fp8", "weights": "fp8_block"})
    )
    assert scaled == both


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "mxfp8", "hw": "h100"}, 'multiply no blocks with scales; try dtype="fp8_block" or dtype="fp8"'),
        ({"dtype": "int8"}, 'training in int8 is not modeled; try dtype="bf16" or dtype="fp8"'),
        ({"dtype": "fp4"}, 'training in fp4 is not modeled; try dtype="bf16" or dtype="nvfp4"'),
        ({"dtype": "fp8", "lora": 8}, 'adapters beside GEMMs in fp8 are not modeled; try dtype="bf16"'),
        ({"dtype": "fp8", "hw": "a100"}, "has no pipe for 'fp8'"),
    ],
)
def test_recipes_that_are_not_possible_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        train(**options)
    assert message in str(error.value)
