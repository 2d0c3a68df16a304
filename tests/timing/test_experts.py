"""Expected times of MoE layers: by hand, the same for ints and arrays, never below the bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.counting import phases
from roofmodel.devices.calibration import ExpertsTiming
from roofmodel.devices.device import Device
from roofmodel.measure.operations import OPERATIONS, PRECISIONS, widths
from roofmodel.models.hub import load
from roofmodel.steps.options import workload
from roofmodel.timing import experts
from roofmodel.timing.experts import GroupedGemmWork, MoeWork
from roofmodel.timing.formula import Chip
from roofmodel.timing.roofline import place
from roofmodel.timing.timing import expect, formula, moe_work

A100, H100 = Device.load("a100"), Device.load("h100")
PLAIN = Chip(multiprocessors=100, peak=100e12, bandwidth=1e12, l2=0.0, port=1e12)
FREE = ExpertsTiming(0, 0, 1e9, 1e9, 1e9, 1e9, 0)
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
    """2 experts of 100 000 rows in tiles of 128 and 128 columns: 2 (100 000 / 128 + 1/2) x 4 tiles, and half a wave;
    each of 2 x 128 x 128 x 640 FLOP on a multiprocessor's 1 TFLOP/s. Tiles of 16 come to less: they end less unevenly.
    """
    product = GroupedGemmWork(experts=2, rows=200_000, n=512, k=600)
    waves = 2 * (100_000 / 16 + 0.5) * 4 / 100 + 0.5
    seconds = experts.gemm_seconds(product, PLAIN, FREE._replace(pipe=1.0))
    assert seconds == pytest.approx(waves * 2 * 16 * 128 * 640 / 1e12, rel=1e-4)


def test_the_start_and_end_of_a_tile_take_the_time_of_more_elements_of_k() -> None:
    """One wave of 8 default tiles: 640 elements of K, and 320 more."""
    product = GroupedGemmWork(experts=1, rows=64, n=512, k=640)
    timing = FREE._replace(pipe=1.0, default_tiles=1.0)
    short, long = (experts.gemm_seconds(product, PLAIN, timing._replace(fill=fill)) for fill in (0, 320))
    assert long == pytest.approx(1.5 * short)


def test_experts_with_the_same_number_of_rows_have_no_partial_tiles() -> None:
    """64 rows in a tile of 64: one tile, not 1 / (1 - exp(-1)); 65 rows: two tiles."""
    timing = FREE._replace(pipe=1.0, default_tiles=1.0)

    def waves(rows: int, even: bool) -> float:
        product = GroupedGemmWork(experts=100, rows=100 * rows, n=640, k=640, even=even)
        return experts.gemm_seconds(product, PLAIN, timing) / (2 * 64 * 64 * 640 / 1e12)

    assert waves(64, even=True) == pytest.approx(100 * 10 / 100 + 0.5)
    assert waves(65, even=True) == pytest.approx(2 * 100 * 10 / 100 + 0.5)
    assert waves(64, even=False) == pytest.approx(100 / (1 - math.exp(-1)) * 10 / 100 + 0.5)


def test_padded_weights_are_read_with_their_padding() -> None:
    """Matrices of 129 x 100, padded to 256 x 128: 65 536 bytes each at 1 TB/s."""
    product = GroupedGemmWork(experts=10, rows=10, n=129, k=100)
    seconds = experts.gemm_seconds(product, PLAIN, FREE._replace(dram=1.0, padded=128.0))
    assert seconds == pytest.approx(10 * 65536 / 1e12, rel=1e-3)


def test_routing_takes_its_whole_time_from_1024_pairs_on() -> None:
    product = GroupedGemmWork(experts=1, rows=1, n=1, k=1)
    timing = FREE._replace(routing=8e-6)
    works = [MoeWork((product,), tokens=pairs, pairs=pairs, token_bytes=0, row_bytes=0) for pairs in (128, 1024, 9999)]
    assert [experts.seconds(work, PLAIN, timing) for work in works] == pytest.approx([1e-6, 8e-6, 8e-6], rel=1e-3)


def test_tiles_are_loaded_at_the_bandwidth_of_l2() -> None:
    """One tile row of each of 100 experts, one wave and a half: 1.5 x 640 x (1 x 2 + 128 x 2) bytes x 100 at 2 TB/s.

    Of 1 row each, 1 / (1 - exp(-128)) = 1 tile of 128 rows; lower ones are no fewer, and one of 256 columns loads more.
    """
    product = GroupedGemmWork(experts=100, rows=100, n=128, k=640)
    seconds = experts.gemm_seconds(product, PLAIN, FREE._replace(l2=2.0))
    assert seconds == pytest.approx(1.5 * 640 * (2 + 256) * 100 / 2e12, rel=1e-3)


def test_default_tiles_depend_on_the_tokens_and_the_format() -> None:
    """The rule of `get_default_config` in SGLang and vLLM: M <= E, where E experts are on the GPU."""
    few, many = (GroupedGemmWork(experts=8, rows=64, n=512, k=640, few=few) for few in (True, False))
    assert experts.default_tile(few) == (16, 32)
    assert experts.default_tile(many) == (64, 64)
    assert experts.default_tile(few._replace(a=1.0, b=1.0)) == (64, 128)
    assert experts.default_tile(many._replace(a=1.0, b=1.0)) == (128, 256)
    assert experts.default_tile(many._replace(a=1.0, b=1.001)) == (64, 128)


def test_default_tiles_are_multiplied_in_waves() -> None:
    """8 experts of 8 rows: a tile of 64 rows each, 8 tiles of 64 columns: 64 of 100 multiprocessors, one wave."""
    timing = FREE._replace(pipe=1.0, default_tiles=1.0)
    seconds = experts.gemm_seconds(GroupedGemmWork(experts=8, rows=64, n=512, k=640), PLAIN, timing)
    assert seconds == pytest.approx((64 / 100 + 0.5) * 2 * 64 * 64 * 640 / 1e12, rel=1e-2)


def test_weights_that_do_not_fit_in_l2_are_read_again_for_every_512_rows() -> None:
    """1 expert of 1 MB: 1 us at 1 TB/s, 4 times for 2048 rows; half of each further time if L2 holds half of it."""
    timing = FREE._replace(dram=1.0, default_tiles=1.0)
    product = GroupedGemmWork(experts=1, rows=2048, n=500, k=1000)
    assert experts.gemm_seconds(product, PLAIN, timing) == pytest.approx(4e-6, rel=1e-3)
    assert experts.gemm_seconds(product, PLAIN._replace(l2=0.5e6), timing) == pytest.approx(2.5e-6, rel=1e-3)
    assert experts.gemm_seconds(product._replace(rows=100), PLAIN, timing) == pytest.approx(1e-6, rel=1e-3)


def test_l2_keeps_rows_between_kernels_that_fit() -> None:
    """Rows of 1 MB that are written and read again, 2 us at 1 TB/s: of these 3/4 remain in an L2 of 1 MB and more."""
    product = GroupedGemmWork(experts=1, rows=50, n=1, k=1)
    work = MoeWork((product,), tokens=50, pairs=50, token_bytes=0, row_bytes=2e6)
    timing = FREE._replace(rows=1.0, kept=0.75)
    times = [experts.seconds(work, PLAIN._replace(l2=l2), timing) for l2 in (0.0, 0.5e6, 1e6, 1e9)]
    assert times == pytest.approx([2e-6, 1.25e-6, 0.5e-6, 0.5e-6], rel=1e-3)


def test_the_time_of_an_moe_depends_on_launch_experts_and_rows() -> None:
    """30 us, 8 experts of 1 us, and 2000 + 100 x 50 bytes at 1 GB/s: 45 us."""
    product = GroupedGemmWork(experts=8, rows=50, n=1, k=1)
    timing = FREE._replace(latency=30e-6, expert=1e-6, rows=1e-3)
    whole = MoeWork((product, product), tokens=25, pairs=50, token_bytes=2000, row_bytes=5000)
    assert experts.seconds(whole, PLAIN, timing) == pytest.approx(45e-6, rel=1e-6)
    apart = [experts.separate_gemm_seconds(product, moved, PLAIN, timing) for moved in (2000, 5000)]
    assert sum(apart) == pytest.approx(45e-6, rel=1e-6)


@pytest.mark.parametrize(("way", "pairs"), [("dp", 64 * 128 * 8 / 8), ("tp", 64 * 128 * 8)])
def test_a_gpu_sorts_the_pairs_of_all_tokens_that_it_has(way: str, pairs: float) -> None:
    """64 sequences of 128 tokens, 8 of 128 experts each. Replicas send a GPU the rows of its 16 experts; GPUs of a
    tensor-parallel group have all tokens."""
    arch = load("qwen3-30b-a3b")
    options = {"phase": "prefill", "batch": 64, "seq": 128, "ep": 8, way: 8}
    gemm = next(
        op for op in phases.operators(arch, workload(arch, **options)[0].steps()[0]) if op.name == "mlp.expert_down"
    )
    found = formula(gemm, place(gemm.cost, H100, "fp16"), H100, "fp16")
    assert found
    slow, fast = (
        experts.separate_gemm_seconds(*found.arguments, found.parameters._replace(pair=pair)) for pair in (1e-6, 0.0)
    )
    assert slow - fast == pytest.approx(pairs * 1e-6 / 2, rel=1e-9)


def test_pairs_of_remote_experts_are_skipped_moved_or_computed() -> None:
    """Of 2 tokens with 4 pairs each 2 rows are here. Moved: all 8 pairs, 4 times the rows' bytes. Multiplied: those of
    the tokens that have an expert here: 2 (1 - (3/4)^4) = 1.367 tokens, 5.469 pairs; or of all tokens."""
    product = GroupedGemmWork(experts=2, rows=2, n=1, k=1)
    whole = MoeWork((product,), tokens=2, pairs=8, token_bytes=0, row_bytes=2e6)
    skipped, moved, multiplied, all_multiplied = (
        experts.seconds(whole, PLAIN, FREE._replace(rows=1.0, elsewhere=elsewhere)) for elsewhere in range(4)
    )
    assert skipped == pytest.approx(2e-6, rel=1e-4)
    assert moved == pytest.approx(8e-6, rel=1e-4)
    assert multiplied == pytest.approx(2e-6 * 2 * (1 - 0.75**4) * 4 / 2, rel=1e-4)
    assert all_multiplied == pytest.approx(moved, rel=1e-4)
    long = MoeWork((product._replace(rows=20_000),), tokens=20_000, pairs=80_000, token_bytes=0, row_bytes=0)
    times = [experts.seconds(long, PLAIN, FREE._replace(pipe=1.0, elsewhere=elsewhere)) for elsewhere in range(4)]
    assert times[0] == pytest.approx(times[1])
    assert times[1] < times[2] < times[3]
    idle = experts.gemm_seconds(product, PLAIN, FREE._replace(pipe=1e-3), idle=1e6)
    assert idle > 100 * experts.gemm_seconds(product, PLAIN, FREE._replace(pipe=1e-3))


def test_the_traffic_of_a_fused_moe_besides_weights_equals_its_operators() -> None:
    """6 rows of 4 experts: written as gate and up of 32 each, read, written once, read, written and read as 64; and a
    weight each in the sum. Tokens, 3 of 64, go in and come out."""
    row = {"tokens": 3, "hidden": 64, "inter": 32, "topk": 2, "experts": 8, "distribution": "balanced"}
    found = moe_work(OPERATIONS["moe"].operator(row, BF16), "bf16")
    assert found.row_bytes == 6 * 2 * (64 + 64 + 32 + 32 + 64 + 64 + 1)
    assert found.token_bytes == 2 * 2 * 3 * 64
    assert (found.tokens, found.pairs) == (3, 6)
    up, down = (GroupedGemmWork(6, 6, 64, k, few=True, even=True) for k in (64, 32))  # few: 3 tokens
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
