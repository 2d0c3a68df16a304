"""Expected times of MoE layers: by hand, the same for ints and arrays, never below the bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.devices.calibration import ExpertsTiming
from roofmodel.devices.device import Device
from roofmodel.engines.engine import benchmark_of
from roofmodel.measure.operations import OPERATIONS, PRECISIONS, widths
from roofmodel.timing import experts
from roofmodel.timing.experts import GroupedGemmWork, MoeWork
from roofmodel.timing.formula import Chip
from roofmodel.timing.roofline import place
from roofmodel.timing.timing import expect, moe_work

A100, H100 = Device.load("a100"), Device.load("h100")
PLAIN = Chip(multiprocessors=100, peak=100e12, bandwidth=1e12, l2=0.0, port=1e12)
FREE = ExpertsTiming(
    latency=0, routing=0, expert=0, pipe=1e9, l2=1e9, dram=1e9, rows=1e9, fill=0, tile_rows=16.0
)  # fmt: skip
BF16 = widths(PRECISIONS["bfloat16"])
SHAPES = st.fixed_dictionaries(
    {
        "tokens": st.integers(1, 20000), "hidden": st.integers(1, 8192), "inter": st.integers(1, 16384),
        "experts": st.integers(8, 300), "topk": st.integers(1, 8), "moe_ep": st.integers(1, 8),
    }
)  # fmt: skip


def test_experts_of_one_row_stream_their_weights() -> None:
    """16 matrices of 1000 x 1000 at 2 bytes and half of 1 TB/s: 64 us."""
    product = GroupedGemmWork(experts=16, rows=16, n=1000, k=1000)
    assert experts.gemm_seconds(product, PLAIN, FREE._replace(dram=0.5)) == pytest.approx(64e-6, rel=1e-6)


def test_many_rows_are_multiplied_in_waves() -> None:
    """2 experts of 100 000 rows in tiles of 16 rows and 64 columns: 2 (100 000 / 16 + 1/2) x 8 tiles, and half a wave;
    each of 2 x 16 x 64 x 600 FLOP on an SM's 1 TFLOP/s. Higher tiles come to more: they end less evenly.
    """
    product = GroupedGemmWork(experts=2, rows=200_000, n=512, k=600)
    waves = 2 * (100_000 / 16 + 0.5) * 8 / 100 + 0.5
    seconds = experts.gemm_seconds(product, PLAIN, FREE._replace(pipe=1.0))
    assert seconds == pytest.approx(waves * 2 * 16 * 64 * 600 / 1e12, rel=1e-4)


def test_the_start_and_end_of_a_tile_take_the_time_of_more_elements_of_k() -> None:
    product = GroupedGemmWork(experts=1, rows=64, n=512, k=640)
    timing = FREE._replace(pipe=1.0)
    short, long = (experts.gemm_seconds(product, PLAIN, timing._replace(fill=fill)) for fill in (0, 320))
    assert long == pytest.approx(1.5 * short)  # (640 + 320) / 640


def test_experts_with_the_same_number_of_rows_have_no_partial_tiles() -> None:
    """64 rows in a tile of 64: one tile, not 1 / (1 - exp(-1)); 65 rows: two tiles."""
    timing = FREE._replace(pipe=1.0, tile_rows=64.0)

    def waves(rows: int, even: bool) -> float:
        product = GroupedGemmWork(experts=100, rows=100 * rows, n=640, k=640, even=even)
        return experts.gemm_seconds(product, PLAIN, timing) / (2 * 64 * 64 * 640 / 1e12)

    assert waves(64, even=True) == pytest.approx(100 * 10 / 100 + 0.5)
    assert waves(65, even=True) == pytest.approx(2 * 100 * 10 / 100 + 0.5)
    assert waves(64, even=False) == pytest.approx(100 / (1 - math.exp(-1)) * 10 / 100 + 0.5)


def test_tiles_are_loaded_at_the_bandwidth_of_l2() -> None:
    """One tile of each of 100 experts, one wave and a half: 1.5 x 640 x (1 x 2 + 64 x 2) bytes x 100 at 2 TB/s."""
    product = GroupedGemmWork(experts=100, rows=100, n=64, k=640)
    seconds = experts.gemm_seconds(product, PLAIN, FREE._replace(l2=2.0))
    assert seconds == pytest.approx(1.5 * 640 * (2 + 128) * 100 / 2e12, rel=1e-3)


def test_a_layer_with_more_tokens_than_experts_has_higher_tiles() -> None:
    """8 experts of 1 row: 8 tiles of 64 columns each, in 64 of 100 SMs. A tile of 16 rows, or of 64."""
    timing = FREE._replace(pipe=1.0, tile_rows=64.0)
    few, many = (
        experts.gemm_seconds(GroupedGemmWork(experts=8, rows=8, n=512, k=640, small_batch=few), PLAIN, timing)
        for few in (True, False)
    )
    assert few == pytest.approx((64 / 100 + 0.5) * 2 * 16 * 64 * 640 / 1e12, rel=1e-6)
    assert many == pytest.approx(4 * few)


def test_a_layer_with_more_tokens_than_experts_sorts_them_in_further_kernels() -> None:
    product = GroupedGemmWork(experts=1, rows=1, n=1, k=1)
    timing = FREE._replace(latency=30e-6, routing=8e-6)
    few, many = (MoeWork((product._replace(small_batch=few),), moved=0) for few in (True, False))
    assert experts.seconds(few, PLAIN, timing) == pytest.approx(30e-6, rel=1e-6)
    assert experts.seconds(many, PLAIN, timing) == pytest.approx(38e-6, rel=1e-6)


def test_l2_keeps_the_weights_of_a_repeated_layer_that_fit() -> None:
    """2 MB at 1 TB/s: all of it from DRAM without L2, half of it where L2 keeps 4/3 MB, none where it keeps 2 MB."""
    work = MoeWork((GroupedGemmWork(experts=1, rows=1, n=1000, k=1000),), moved=0, repeated=1)
    timing = FREE._replace(dram=1.0)
    times = [experts.seconds(work, PLAIN._replace(l2=l2), timing) for l2 in (0.0, 4e6 / 3, 2e6)]
    assert times == pytest.approx([2e-6, 1e-6, 0.0], abs=1e-9)
    assert experts.seconds(work._replace(repeated=0), PLAIN._replace(l2=2e7), timing) == pytest.approx(2e-6)


def test_the_time_of_an_moe_depends_on_launch_experts_and_rows() -> None:
    """30 us, 8 experts of 1 us, and 7000 bytes at 1 GB/s: 45 us."""
    product = GroupedGemmWork(experts=8, rows=50, n=1, k=1)
    timing = FREE._replace(latency=30e-6, expert=1e-6, rows=1e-3)
    assert experts.seconds(MoeWork((product, product), moved=7000), PLAIN, timing) == pytest.approx(45e-6, rel=1e-6)
    apart = [experts.separate_gemm_seconds(product, moved, PLAIN, timing) for moved in (2000, 5000)]
    assert sum(apart) == pytest.approx(45e-6, rel=1e-6)


@pytest.mark.parametrize(("kernel", "rows"), [("sglang_fused_moe_triton", 16), ("moe_torch_flow_cutlass", 2)])
def test_all_kernels_but_those_of_cutlass_move_a_row_for_each_pair_of_all_gpus(kernel: str, rows: int) -> None:
    """2 tokens with 8 pairs each, of which an eighth is on this GPU: 2 rows here, 16 in all."""
    row = {"tokens": 2, "hidden": 64, "inter": 32, "topk": 8, "experts": 64, "moe_ep": 8, "distribution": "balanced"}
    found = moe_work(OPERATIONS["moe"].operator(row | {"kernel": kernel}, BF16), "bf16")
    assert found.gemms[0].rows == 2
    assert found.moved == rows * 2 * (64 + 64 + 32 + 32 + 64 + 64 + 1) + 2 * 2 * 2 * 64


def test_older_benchmarks_of_sglang_run_all_pairs_of_the_tokens_that_have_an_expert_on_the_gpu() -> None:
    """Of 100 tokens with 2 of 8 experts, a GPU with 4 has 100 pairs; 1 - (1 - 1/2)^2 of the tokens have one there."""
    row = {"tokens": 100, "hidden": 64, "inter": 32, "topk": 2, "experts": 8, "moe_ep": 2, "distribution": "balanced"}
    found = moe_work(OPERATIONS["moe"].operator(row | {"benchmark": benchmark_of("sglang 0.5.10")}, BF16), "bf16")
    assert found.gemms[0].rows == pytest.approx(75 * 2)
    assert moe_work(OPERATIONS["moe"].operator(row, BF16), "bf16").gemms[0].rows == 100


def test_the_traffic_of_a_fused_moe_besides_weights_equals_its_operators() -> None:
    """6 rows of 4 experts: written as gate and up of 32 each, read, written once, read, written and read as 64; and a
    weight each in the sum. Tokens, 3 of 64, go in and come out."""
    row = {"tokens": 3, "hidden": 64, "inter": 32, "topk": 2, "experts": 8, "distribution": "balanced"}
    found = moe_work(OPERATIONS["moe"].operator(row, BF16), "bf16")
    assert found.moved == 6 * 2 * (64 + 64 + 32 + 32 + 64 + 64 + 1) + 2 * 2 * 3 * 64
    up, down = (GroupedGemmWork(6, 6, 64, k, small_batch=True, even=True) for k in (64, 32))  # few: 3 tokens
    assert found.gemms == [up, down]


@settings(deadline=None)
@given(SHAPES, st.sampled_from(["balanced", "uniform", "power_law_1.2"]))
def test_no_expectation_is_below_its_bound(shape: dict[str, int], distribution: str) -> None:
    operator = OPERATIONS["moe"].operator(shape | {"distribution": distribution}, BF16)
    for device, kernel in ((A100, "sglang_fused_moe_triton"), (H100, "")):
        expected = expect(operator, device, "bf16", kernel)
        assert expected is not None
        assert place(operator.cost, device, "bf16").bound_seconds <= expected.low
        assert expected.low <= expected.value <= expected.high
        assert math.isfinite(expected.high)


@settings(deadline=None, max_examples=30)
@given(st.lists(SHAPES, min_size=1, max_size=5), st.sampled_from(["balanced", "uniform", "power_law_1.01"]))
def test_arrays_have_the_expected_times_of_ints(shapes: list[dict[str, int]], distribution: str) -> None:
    columns = {name: np.array([shape[name] for shape in shapes], dtype=float) for name in shapes[0]}
    many = expect(OPERATIONS["moe"].operator(columns | {"distribution": distribution}, BF16), A100, "bf16")
    assert many is not None
    for i, shape in enumerate(shapes):
        one = expect(OPERATIONS["moe"].operator(shape | {"distribution": distribution}, BF16), A100, "bf16")
        assert one is not None
        assert many.value[i] == pytest.approx(one.value, rel=1e-9)


def test_the_operators_of_an_moe_add_up_to_the_fused_moe() -> None:
    """The two GEMMs share the fixed time; activation and sum use the elementwise parameters."""
    for tokens in (1, 64, 4096):
        row = {"tokens": tokens, "hidden": 4096, "inter": 14336, "topk": 2, "experts": 8}
        fused = OPERATIONS["moe"].operator(row, BF16)
        whole, parts = expect(fused, A100, "bf16"), [expect(part, A100, "bf16") for part in fused.parts]
        assert whole is not None
        assert sum(part.value for part in parts if part) == pytest.approx(whole.value, rel=0.1)
