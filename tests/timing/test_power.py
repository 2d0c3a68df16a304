"""Energy of operators, and their times under long load."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofmodel
from roofmodel.counting.operator import Cost
from roofmodel.devices.device import Device
from roofmodel.devices.parts import Measured, Power
from roofmodel.errors import RoofError
from roofmodel.steps.placed import lengthened
from roofmodel.timing.roofline import Draw, draw, has_sustained_rate, sustained_flops
from roofmodel.timing.timing import Expected
from tests.profiles.samples import MEASURED, needs_measured

B200 = Device.load("b200")
CARD = replace(B200, power=Power(limit=500, idle=100, energy={"tensor_bf16": 1e-12, "fp32": 1e-11, "dram": 1e-10}))
SITE = replace(B200, measured=(*B200.measured, Measured("tensor_bf16", "sustained", 1100e12)))
GEMM: dict[str, Any] = {"m": 8192, "n": 8192, "k": 8192, "dtype": "bf16"}

SECONDS = st.floats(1e-6, 1)
OPERATORS = st.lists(st.tuples(st.integers(1, 100), SECONDS, SECONDS), min_size=1, max_size=6)


def times_and_draws(operators: list[tuple[int, float, float]]) -> tuple[list[int], list[Expected], list[Draw]]:
    counts, seconds, needed = zip(*operators, strict=True)
    return [*counts], [Expected(t, 0.9 * t, 1.2 * t) for t in seconds], [Draw(0.0, each, None) for each in needed]


def test_energy_is_that_of_flops_on_their_pipes_and_of_bytes() -> None:
    cost = Cost(matmul_flops=3 * 10**12, vector_flops=10**11, bytes_read=10**9, bytes_written=10**9)
    drawn = draw(cost, CARD, "bf16", expected=1.0)
    assert drawn.energy is not None
    assert drawn.energy.work == pytest.approx(3.0 + 1.0 + 0.2)  # 3 TFLOP at 1 pJ, 0.1 at 10 pJ, 2 GB at 100 pJ
    assert drawn.budget_seconds == pytest.approx(4.2 / 400)  # 500 W less 100 W without work


def test_a_kernel_reads_no_more_than_dram_can_send_in_its_time() -> None:
    """The traffic of an operator in another kernel is that kernel's."""
    cost = Cost(bytes_read=10**12)
    energy = draw(cost, CARD, "bf16", expected=1e-3).energy
    assert energy is not None
    assert energy.work == pytest.approx(1e-3 * CARD.bandwidth * 1e-10)


def test_the_energy_of_a_pipe_without_a_stated_one_is_unknown() -> None:
    assert draw(Cost(matmul_flops=1), CARD, "fp8", expected=1.0).energy is None
    assert draw(Cost(bytes_read=1), CARD, "fp8", expected=1.0).energy is not None


@given(OPERATORS)
def test_a_step_takes_its_kernels_or_its_share_of_the_budget(operators: list[tuple[int, float, float]]) -> None:
    counts, times, draws = times_and_draws(operators)
    longer = lengthened(counts, times, draws)
    kernels = sum(count * each.value for count, each in zip(counts, times, strict=True))
    budget = sum(count * each.budget_seconds for count, each in zip(counts, draws, strict=True))
    total = sum(count * each.value for count, each in zip(counts, longer, strict=True))
    assert total == pytest.approx(max(kernels, budget))


@given(OPERATORS)
def test_only_operators_that_draw_more_than_the_limit_take_longer(operators: list[tuple[int, float, float]]) -> None:
    counts, times, draws = times_and_draws(operators)
    for before, each, after in zip(times, draws, lengthened(counts, times, draws), strict=True):
        assert before.value <= after.value <= max(before.value, each.budget_seconds) * (1 + 1e-9)
        assert after.low <= after.value <= after.high
        if each.budget_seconds <= before.value:
            assert after == before


def test_bounds_do_not_change_and_the_power_of_a_gemm_that_repeats_is_the_limit() -> None:
    """8192³: 1.0995 TFLOP × 0.49 pJ + 0.403 GB × 47 pJ = 0.558 J in 700 W."""
    short, long = (roofmodel.op("gemm", "b200", **GEMM, sustained=sustained).to_dict() for sustained in (False, True))
    assert short["bound_seconds"] == long["bound_seconds"]
    assert long["expected_seconds"] == pytest.approx((2 * 8192**3 * 0.49e-12 + 3 * 2 * 8192**2 * 47e-12) / 700)
    assert (short["expected_bound"], long["expected_bound"]) == ("compute", "power")
    assert long["power_watts"] == pytest.approx(1000)
    assert short["power_watts"] > 1000  # as long as the clock is high
    assert long["energy_joules"] == pytest.approx(1000 * long["expected_seconds"])


def test_a_lower_power_limit_makes_it_slower_and_is_long_load_by_itself() -> None:
    times = [roofmodel.op("gemm", "b200", **GEMM, power_limit=f"{watts}W").expected_seconds for watts in (700, 1000)]
    assert times[0] == pytest.approx(times[1] * 700 / 400)
    assert times[1] == roofmodel.op("gemm", "b200", **GEMM, sustained="on").expected_seconds


def test_a_card_without_power_ignores_its_options_with_a_note() -> None:
    plain = roofmodel.op("gemm", "a100", **GEMM)
    limited = roofmodel.op("gemm", "a100", **GEMM, power_limit=250, sustained="on")
    assert limited.expected_seconds == plain.expected_seconds
    assert limited.to_dict()["power_watts"] is limited.to_dict()["energy_joules"] is None
    assert any("states no power" in str(note) for note in limited.operation.notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"power_limit": "300W"}, "draws 300 W"),
        ({"power_limit": "3 m"}, "700 W"),
        ({"power_limit": 0}, "above 0"),
        ({"power_limit": True}, "above 0"),
        ({"sustained": "yes"}, "off"),
    ],
)
def test_invalid_options_say_what_would_work(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RoofError, match=message):
        roofmodel.op("gemm", "b200", **GEMM, **options)


def test_a_stated_rate_is_a_ceiling_of_each_operator_in_place_of_its_energy() -> None:
    found = roofmodel.op("gemm", SITE, **GEMM, sustained=True).to_dict()
    assert found["expected_seconds"] == pytest.approx(2 * 8192**3 / 1100e12)
    assert found["expected_bound"] == "power"
    alone = replace(SITE, power=None)
    assert roofmodel.op("gemm", alone, **GEMM, sustained=True).expected_seconds == found["expected_seconds"]
    assert roofmodel.op("gemm", alone, **GEMM).expected_seconds < found["expected_seconds"]


@given(st.floats(0.01, 1e5))
def test_the_power_line_lies_under_the_roofline_and_at_the_limit_where_it_does(intensity: float) -> None:
    rate = sustained_flops(intensity, B200, "bf16")
    roof = min(2250e12, intensity * B200.bandwidth)
    power = 300 + rate * (0.49e-12 + 47e-12 / intensity)
    assert rate <= roof
    assert power <= 1000 * (1 + 1e-9)
    assert rate == pytest.approx(roof) or power == pytest.approx(1000)
    assert sustained_flops(intensity, SITE, "bf16") == pytest.approx(min(roof, 1100e12))


def test_a_sustained_ceiling_is_drawn_only_where_the_file_states_one() -> None:
    assert has_sustained_rate(B200, "bf16")
    assert has_sustained_rate(replace(SITE, power=None), "bf16")
    assert not has_sustained_rate(B200, "fp4")
    assert not has_sustained_rate(Device.load("a100"), "bf16")


def loops(table: str, least: float) -> list[dict[str, str]]:
    """The GEMMs of a table that take `least` seconds or more."""
    with gzip.open(MEASURED / "ops" / table, "rt", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if float(row["latency_us"]) >= least * 1e6 and row["batch"] == "1"]


def errors(rows: list[dict[str, str]], device: Device, sustained: bool) -> list[float]:
    found = []
    for row in rows:
        sizes = {name: int(row[name]) for name in "mnk"}
        time = roofmodel.op("gemm", device, **sizes, dtype="bf16", engine="torch", sustained=sustained).expected_seconds
        assert time is not None
        found.append(abs(time * 1e6 / float(row["latency_us"]) - 1))
    return found


@needs_measured
def test_loops_of_another_site_are_predicted_with_its_stated_rate() -> None:
    """Its B200 sustains 1100 TFLOP/s, 30 % less than elsewhere; the file states the rate, no fit saw the rows."""
    rows = loops("training/simumax_b200_sxm_gemm.csv.gz", least=1e-3)[::4]
    assert mean(errors(rows, B200, sustained=False)) > 0.3
    assert mean(errors(rows, SITE, sustained=True)) < 0.08
