"""Thresholds of reasons and findings, with values just below and just above each."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.compare.compare import compare
from roofmodel.compare.comparison import (  # fmt: skip
    ComparisonRow,
    LayerMismatch,
    MeasuredGemm,
    ModelComparison,
    UnmatchedKernels,
    UnmatchedOperators,
)
from roofmodel.compare.diagnosis import findings, reasons
from roofmodel.counting.operator import Cost, Gemm
from roofmodel.roofline.formats import FormatMismatch
from tests.compare import traces

L2 = 40 * 2**20  # L2 of an A100 in bytes


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> ModelComparison:
    """GPT-2 with 141 tokens on an A100."""
    file = traces.write(tmp_path_factory.mktemp("gpt2") / "trace.json", traces.gpt2_eager(12))
    return compare("gpt2", [file], "a100", workload={"phase": "prefill", "seq": 141})


def row(comparison: ModelComparison, operator: str, **changes: Any) -> ComparisonRow:
    """The row of an operator without measured counters and with these changes."""
    found = next(each for each in comparison.rows if each.operators == (operator,))
    return found._replace(**{"measured_flops": None, "measured_bytes": None, **changes})


def flops_reasons(comparison: ModelComparison, operator: str, ratio: float) -> tuple[str, ...]:
    found = row(comparison, operator)
    return reasons(found._replace(measured_flops=ratio * float(found.cost.flops)), comparison)


def bytes_reasons(comparison: ModelComparison, ratio: float, **changes: Any) -> tuple[str, ...]:
    found = row(comparison, "mlp.up", **changes)
    return reasons(found._replace(measured_bytes=ratio * float(found.cost.bytes)), comparison)


# --- Reasons ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "has_reason"), [(1.0999, False), (1.1001, True), (0.9092, False), (0.9090, True)])
def test_flops_and_bytes_need_a_reason_from_a_factor_of_1_1(
    gpt2: ModelComparison, ratio: float, has_reason: bool
) -> None:
    """1 / 1.1 = 0.90909."""
    assert bool(flops_reasons(gpt2, "mlp.up", ratio)) == has_reason
    assert bool(bytes_reasons(gpt2, ratio)) == has_reason


@pytest.mark.parametrize(("matmul", "has_reason"), [(500, True), (499, False)])
def test_flops_need_a_reason_only_if_half_of_them_are_matmul_flops(
    gpt2: ModelComparison, matmul: int, has_reason: bool
) -> None:
    cost = Cost(matmul_flops=matmul, vector_flops=1000 - matmul)
    assert bool(reasons(row(gpt2, "mlp.up", cost=cost, measured_flops=2000.0), gpt2)) == has_reason


@pytest.mark.parametrize(("ratio", "padding"), [(1.728, False), (1.730, True), (1.910, True), (1.912, False)])
def test_padding_explains_flops_within_5_percent(gpt2: ModelComparison, ratio: float, padding: bool) -> None:
    """141 rows in 128 × 128 tiles are 256 rows: 256 / 141 = 1.8156; 1.8156 / 1.05 = 1.7291; 1.8156 / 0.95 = 1.9112."""
    (reason,) = flops_reasons(gpt2, "attention.qkv", ratio)
    assert reason.endswith("padding to 128 × 128 tiles") == padding


@pytest.mark.parametrize(("ratio", "masked"), [(1.804, False), (1.807, True), (2.205, True), (2.208, False)])
def test_masked_pairs_explain_flops_within_10_percent(gpt2: ModelComparison, ratio: float, masked: bool) -> None:
    """141² / (141 · 142 / 2) = 1.9859; 1.9859 / 1.1 = 1.8054; 1.9859 / 0.9 = 2.2066."""
    (reason,) = flops_reasons(gpt2, "attention.flash", ratio)
    assert reason.endswith("masked pairs are computed too") == masked


@pytest.mark.parametrize(
    ("operators", "limit"),
    [(("mlp.up",), 18.0), (("mlp.gate", "mlp.up"), 36.0), (("residual", "norm"), 18.0)],
)
def test_several_kernels_per_operator_are_a_reason_above_1_5(
    gpt2: ModelComparison, operators: tuple[str, ...], limit: float
) -> None:
    """12 layers × 1.5 kernels × operators; merged groups count as one operator."""
    for kernels, given in ((limit, False), (limit + 0.01, True)):
        found = row(gpt2, "mlp.up", operators=operators, occurrences=12, kernels=kernels)
        assert [reason.startswith("1.5 kernels per operator") for reason in reasons(found, gpt2)] == [True] * given


@pytest.mark.parametrize(("size", "fits"), [(L2 - 1, True), (L2, False)])
def test_low_dram_traffic_is_a_working_set_in_l2_only_if_it_fits(gpt2: ModelComparison, size: int, fits: bool) -> None:
    (reason,) = bytes_reasons(gpt2, 0.5, occurrences=3, kernels=3, cost=Cost(bytes_read=3 * size))
    assert reason.startswith("DRAM traffic is 50% of the count: ")
    assert reason.endswith("working set fits in L2") == fits


@pytest.mark.parametrize(("ratio", "more"), [(2.199, False), (2.201, True)])
def test_a_wider_format_explains_its_share_of_the_bytes(gpt2: ModelComparison, ratio: float, more: bool) -> None:
    """tf32 is stored in 32 bits, 2 × fp16; traffic above 2 × 1.1 has a second cause."""
    mismatched = gpt2._replace(format_mismatch=FormatMismatch("tf32", "fp16", "gemm_tf32f32"))
    (reason,) = bytes_reasons(mismatched, ratio)
    assert reason.partition(": ")[2].startswith("tf32 is 2 × as wide as fp16")
    assert reason.endswith(", and tiles read the matrices more than once") == more


# --- Findings ---------------------------------------------------------------------------------------


def kinds(comparison: ModelComparison, *rows: ComparisonRow, **changes: Any) -> list[str]:
    """Kinds of the findings of a pass with 1 s of kernel time and these rows; all kernels and operators are matched."""
    (passes,) = comparison.passes
    passes = passes._replace(seconds=1.0, span_seconds=None, idle_seconds=None)
    empty: dict[str, Any] = {"unmatched_kernels": (), "unmatched_operators": (), "gemms": (), "layer_mismatches": ()}
    changed = comparison._replace(**{"passes": (passes,), **empty, "rows": rows, **changes})
    return [finding.kind for finding in findings(changed)]


@pytest.mark.parametrize(("idle", "found"), [(0.0599, False), (0.0601, True)])
def test_idle_time_is_a_finding_above_6_percent_of_the_span(gpt2: ModelComparison, idle: float, found: bool) -> None:
    passes = gpt2.passes[0]._replace(seconds=1.0, span_seconds=1.0, idle_seconds=idle)
    assert ("idle" in kinds(gpt2, passes=(passes,))) == found


@pytest.mark.parametrize(("excess", "found"), [(0.0299, False), (0.0301, True)])
def test_excess_time_is_a_finding_above_3_percent_of_a_pass(gpt2: ModelComparison, excess: float, found: bool) -> None:
    slow = row(gpt2, "mlp.up", bound_seconds=0.1, expected_seconds=0.5, measured_seconds=0.5 + excess)
    assert ("slow" in kinds(gpt2, slow)) == found


@pytest.mark.parametrize(
    ("bound", "measured", "found"),
    [(0.8, 0.7601, False), (0.8, 0.7599, True), (0.5, 0.4701, False), (0.5, 0.4699, True)],
)
def test_a_row_is_too_fast_below_95_percent_of_its_bound_and_by_3_percent_of_a_pass(
    gpt2: ModelComparison, bound: float, measured: float, found: bool
) -> None:
    """0.95 × 0.8 = 0.76; 0.5 − 0.47 = 0.03."""
    fast = row(gpt2, "mlp.up", bound="compute", bound_seconds=bound, expected_seconds=bound, measured_seconds=measured)
    assert ("too fast" in kinds(gpt2, fast)) == found


@pytest.mark.parametrize(
    ("cost", "found"),
    [
        (Cost(bytes_read=12 * (L2 - 1)), False),
        (Cost(bytes_read=12 * L2), True),
        (Cost(bytes_read=12 * (L2 - 1), weight_bytes=L2 - 1), False),
        (Cost(bytes_read=12 * (L2 - 1), weight_bytes=L2), True),
        (Cost(bytes_read=12 * (L2 - 1), cache_bytes=L2), True),
    ],
)
def test_a_memory_bound_row_is_not_too_fast_if_its_data_fit_in_l2(
    gpt2: ModelComparison, cost: Cost, found: bool
) -> None:
    fast = row(
        gpt2, "mlp.up", cost=cost, occurrences=12, bound="memory", bound_seconds=0.8, expected_seconds=0.8,
        measured_seconds=0.4,
    )  # fmt: skip
    assert ("too fast" in kinds(gpt2, fast)) == found
    assert "too fast" in kinds(gpt2, fast._replace(bound="compute"))


@pytest.mark.parametrize(("seconds", "found"), [(0.0299, False), (0.0301, True)])
def test_unmatched_kernels_are_a_finding_above_3_percent(gpt2: ModelComparison, seconds: float, found: bool) -> None:
    halves = tuple(UnmatchedKernels("prefill", name, "other", 1, seconds / 2) for name in ("a", "b"))
    assert ("unmatched kernels" in kinds(gpt2, unmatched_kernels=halves)) == found


@pytest.mark.parametrize(("missing", "found"), [(0.0599, False), (0.0601, True)])
def test_unmatched_operators_are_a_finding_above_6_percent_of_the_bound(
    gpt2: ModelComparison, missing: float, found: bool
) -> None:
    rest = row(gpt2, "mlp.up", bound_seconds=1 - missing, expected_seconds=1.0, measured_seconds=1.0)
    operators = (UnmatchedOperators("prefill", "mlp.down", "", 12, missing, None),)
    assert ("unmatched operators" in kinds(gpt2, rest, unmatched_operators=operators)) == found


@pytest.mark.parametrize(("others", "found"), [(2, False), (3, True)])
def test_other_gemm_shapes_are_a_finding_if_most_gemms_have_them(
    gpt2: ModelComparison, others: int, found: bool
) -> None:
    """2 of 4 GEMMs are not the majority; 3 of 5 are."""
    right = [MeasuredGemm("prefill", Gemm(1, 141, 2304, 768), 141, True)] * 2
    other_weights = [MeasuredGemm("prefill", Gemm(1, 141, 3072, 1024), 141, False)] * others
    other_rows = [MeasuredGemm("prefill", Gemm(1, 282, 2304, 768), 141, True)] * others
    assert kinds(gpt2, gemms=(*right, *other_weights)) == ["weights"] * found
    assert kinds(gpt2, gemms=(*right, *other_rows)) == ["rows"] * found


def test_attention_without_a_kernel_is_a_finding_unless_some_row_has_attention(gpt2: ModelComparison) -> None:
    missing = (UnmatchedOperators("prefill", "attention.flash", "", 1, 0.0, None),)
    assert kinds(gpt2, unmatched_operators=missing) == ["attention"]
    assert kinds(gpt2, row(gpt2, "attention.flash", measured_seconds=None), unmatched_operators=missing) == []


def test_at_most_two_doubts_come_before_the_largest_costs(gpt2: ModelComparison) -> None:
    wrong = (MeasuredGemm("prefill", Gemm(1, 141, 3072, 1024), 141, False),)
    layers = (LayerMismatch("run", "prefill", 6, 12),)
    rows = [
        row(gpt2, operator, bound="compute", bound_seconds=bound, expected_seconds=bound, measured_seconds=0.5)
        for operator, bound in (("mlp.up", 0.8), ("mlp.down", 0.3), ("attention.qkv", 0.1))
    ]
    assert kinds(gpt2, *rows, gemms=wrong, layer_mismatches=layers) == ["weights", "layers", "slow"]
    assert kinds(gpt2, *rows) == ["too fast", "slow", "slow"]
    assert kinds(gpt2, *rows[1:]) == ["slow", "slow", "longest"]
