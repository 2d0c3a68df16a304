"""Times of indexers and sparse attention: properties of the formulas, and limits that arithmetic gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from roofmodel.devices.calibration import IndexTiming, SparseTiming
from roofmodel.devices.device import Device
from roofmodel.models.hub import load
from roofmodel.steps.estimate import estimate
from roofmodel.timing.attention import AttentionWork
from roofmodel.timing.formula import Chip
from roofmodel.timing.sparse import IndexWork, index_seconds, sparse_seconds

CHIP = Chip(multiprocessors=100, peak=1e15, bandwidth=3e12, l2=50e6, port=1e13)
SPARSE = SparseTiming(latency=0, fill=0, pipe=1, padded=0, shares=1, rows=64, l2=1e9, combine=0, dram=1e9)
"""Only the tensor cores take time."""


def attention(queries: float, keys: float, kept: float = 2048) -> AttentionWork:
    """64 heads that share latents of 576 elements, of which 512 are the values."""
    pairs = queries * keys
    flops = 2 * 64 * pairs * (576 + 512)
    return AttentionWork(1, 64, 1, 576, queries, keys, pairs, flops, 1, 1, kept=kept)


def test_blocks_share_the_keys_of_a_query_only_where_the_kernel_does_so() -> None:
    """One query with 2048 keys is 32 parts of 64 keys: 32 of 100 SMs, or one."""
    shared, alone = (sparse_seconds(attention(1, 2048), CHIP, SPARSE._replace(shares=n)) for n in (1, 0))
    of_a_key = 2 * 64 * (576 + 512) / (1e15 / 100)
    assert shared == pytest.approx(64 * of_a_key)
    assert alone == pytest.approx(2048 * of_a_key)


def test_a_padded_kernel_takes_as_long_with_few_keys_as_with_all() -> None:
    few, many = attention(500, 16), attention(500, 2048)
    padded = SPARSE._replace(padded=1)
    assert sparse_seconds(few, CHIP, padded) == pytest.approx(sparse_seconds(many, CHIP, padded))
    assert sparse_seconds(few, CHIP, SPARSE) < sparse_seconds(many, CHIP, SPARSE) / 20


def test_scores_take_longer_with_more_keys_and_unshared_tiles_are_never_faster() -> None:
    keys = np.array([64.0, 1024, 4096, 65536])
    work = IndexWork(4, 8, keys, 8 * keys, 64, 128, 4 * keys * (128 + 8 * 4))
    shared = IndexTiming(latency=3e-6, pipe=0.5, fill=1e-6, dram=0.8, shares=1)
    times, unshared = (np.asarray(index_seconds(work, CHIP, shared._replace(shares=n))) for n in (1, 0))
    assert (np.diff(times) > 0).all()
    assert (unshared >= times).all()


@pytest.mark.parametrize(
    ("model", "dtype", "computed"),
    [
        ("deepseek-v3.2", "fp8", "fp8"),
        ("deepseek-v4-flash", "fp4", "fp8"),  # no engine multiplies them in fp4
        ("deepseek-v3.2", "fp16", "fp16"),
        ("minimax-m3", "fp8", "bf16"),  # of blocks of keys
    ],
)
def test_scores_of_tokens_are_bound_by_the_peak_of_fp8_with_any_kv_cache(model: str, dtype: Any, computed: str) -> None:
    device = Device.load("b200")
    (found,) = estimate(load(model), device, phase="prefill", seq=8192, dtype=dtype, kv="bf16").phases
    scores = next(each for each in found.placed if each.operator.name == "attention.index_scores")
    matmul_seconds = scores.placement.cost.matmul_flops / device.matmul_pipe(computed).peak
    assert scores.placement.matmul_seconds == pytest.approx(matmul_seconds)


@pytest.mark.parametrize(
    ("hw", "tp", "phase", "formats"),
    [
        ("h100", 8, "prefill", "fp16/fp8"),  # 16 of 128 heads
        ("h100", 4, "prefill", "fp16/fp16"),  # 32 heads: vLLM's MIN_HEADS_FOR_BF16_PREFILL
        ("h200", 2, "prefill", "fp16/fp16"),
        ("h100", 4, "decode", "fp16/fp8"),
        ("b200", 4, "prefill", "fp16/fp8"),  # of FlashInfer, which converts no cache
    ],
)
def test_a_prefill_with_many_heads_converts_its_cache_on_hopper(hw: str, tp: int, phase: Any, formats: str) -> None:
    model, device = load("deepseek-v3.2"), Device.load(hw)
    (found,) = estimate(model, device, phase=phase, seq=4096, tp=tp, engine="vllm", kv="fp8").phases
    core = next(each.run.formula for each in found.placed if each.operator.name == "attention.flash")
    assert core is not None
    assert core.kind.startswith("sparse_")
    assert core.format_key == formats
    assert not core.is_substitute


def test_another_kernel_runs_from_65536_queries_on_where_flashinfer_has_one() -> None:
    model, device = load("deepseek-v3.2"), Device.load("b200")
    runs = [
        next(each.run for each in found.placed if each.operator.name == "attention.flash")
        for batch in (15, 16)
        for found in estimate(model, device, phase="prefill", seq=4096, batch=batch, tp=8, engine="vllm").phases
    ]
    few, many = (run.formula for run in runs)
    assert few is not None
    assert many is not None
    assert (few.implementation, few.format_key) == ("vllm FLASHINFER_MLA_SPARSE", "fp16/fp16")
    assert (many.implementation, many.format_key) == ("vllm FLASHINFER_MLA_SPARSE 65536 queries", "fp16/fp16")
    assert {run.evidence for run in runs} == {"measured"}


@pytest.mark.parametrize("model", ["deepseek-v3.2", "deepseek-v4-flash", "minimax-m3"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_operators_of_sparse_layers_have_parameters_of_their_own(model: str, phase: Any) -> None:
    (found,) = estimate(load(model), Device.load("h100-sxm"), phase=phase, seq=4096, engine="vllm", kv="fp8").phases
    kinds = {each.run.formula.kind for each in found.placed if each.run and each.run.formula}
    ending = "prefill" if phase == "prefill" else "decode"
    keys = {"deepseek-v3.2": "sparse", "deepseek-v4-flash": "compressed", "minimax-m3": "block"}[model]
    assert {f"{keys}_{ending}", f"index_{ending}", "index_choose"} <= kinds
