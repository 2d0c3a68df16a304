"""Gemma 3n by hand: streams of which a layer computes one, low-rank residuals, and gates above a threshold."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models.config import architecture
from roofmodel.steps.estimate import estimate

D, LAYERS, STREAMS, RANK, WIDTHS, Y, TOKENS = 32, 2, 3, 5, [24, 40], 6, 20
CONFIG: dict[str, Any] = {
    "model_type": "gemma3n_text", "hidden_size": D, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 50, "vocab_size_per_layer_input": 50,
    "intermediate_size": WIDTHS, "hidden_size_per_layer_input": Y, "num_kv_shared_layers": 0, "laurel_rank": RANK,
    "altup_num_inputs": STREAMS, "activation_sparsity_pattern": [0.95, 0.0],
    "layer_types": ["full_attention", "full_attention"],
}  # fmt: skip


def _operators(**options: Any) -> dict[tuple[str, int | None], Operator]:
    arch = architecture(CONFIG, "x", "x")
    found = estimate(arch, Device.load("h100"), phase="prefill", seq=TOKENS, **options).phases[0].placed
    return {(p.operator.name, layer): p.operator for p in found for layer in p.operator.layers or (None,)}


def test_a_layer_predicts_all_streams_and_corrects_them() -> None:
    found, stream = _operators(), TOKENS * D
    predicted, corrected = found["residual.predict", 0], found["residual.correct", 0]
    assert predicted.matmul_flops == 2 * stream * STREAMS * STREAMS
    assert predicted.vector_flops == stream * STREAMS  # each stream is added to its prediction
    # the error of the first; for each stream, times a coefficient, add; coefficients plus one
    assert corrected.vector_flops == stream + 2 * stream * STREAMS + TOKENS * STREAMS
    assert corrected.cost.bytes_written == 2 * stream * STREAMS
    routers = [found[f"residual.{place}_route", 0].parameters for place in ("predict", "correct")]
    assert routers[0] == routers[1]  # the same matrix
    assert found["residual.layer_input", 0].vector_flops == stream * (STREAMS - 1)


def test_streams_begin_and_end_as_projections_with_the_length_of_the_first() -> None:
    found = _operators()
    for name in ("embedding.streams", "residual.streams"):
        assert found[f"{name}_project", None].matmul_flops == 2 * TOKENS * (STREAMS - 1) * D * D
    assert found["embedding.streams", None].vector_flops == TOKENS * D * (4 * (STREAMS - 1) + 2)
    assert found["residual.streams_mean", None].vector_flops == TOKENS * D * (4 * (STREAMS - 1) + 2 + STREAMS)


def test_the_first_residual_sum_has_the_normed_input_and_its_low_rank_residual() -> None:
    found = _operators()
    assert found["laurel.left", 0].matmul_flops == found["laurel.right", 0].matmul_flops == 2 * TOKENS * D * RANK
    names = [tensor.name for tensor in found["residual.laurel", 0].reads]
    assert names == ["x", "a", "l", "n"]
    assert found["residual.laurel", 0].vector_flops == 3 * TOKENS * D


def test_mlps_have_widths_and_thresholds_of_their_own() -> None:
    found = _operators()
    assert [found["mlp.down", layer].sizes["f"] for layer in range(LAYERS)] == WIDTHS
    assert found["mlp.threshold", 0].vector_flops == 6 * TOKENS * WIDTHS[0]
    assert ("mlp.threshold", 1) not in found


def test_gpus_cannot_share_layers_with_inputs_of_their_own() -> None:
    with pytest.raises(WorkloadError, match="low-rank residuals and per-layer embeddings"):
        _operators(tp=2)
