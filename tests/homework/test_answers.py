"""Answers as people write them: notations of numbers, units of the same kind, names of ceilings."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.homework.answers import ceiling, readings
from roofmodel.homework.problem import BASES, unit_of
from roofmodel.numbers import units

WRITTEN = [
    ("138.9 µs", "us", 138.9e-6),
    ("138.9 μs", "us", 138.9e-6),  # the Greek letter
    ("2120 us", "ms", 2120e-6),
    ("2.5 microseconds", "us", 2.5e-6),
    ("3 s", "ms", 3),
    ("782 TFLOPS", "TFLOP/s", 782e12),
    ("782 tflops", "TFLOP/s", 782e12),
    ("0.782 PFLOP/s", "TFLOP/s", 782e12),
    ("782e12 flops per second", "TFLOP/s", 782e12),
    ("1.2 TFLOPs", "GFLOP", 1.2e12),
    ("2,449", "rows", 2449),
    ("2,449 rows", "rows", 2449),
    ("1,234.5", "us", 1234.5e-6),
    ("1.234,5", "us", 1234.5e-6),
    ("3,5", "us", 3.5e-6),
    ("69 000 000", "rows", 69_000_000),
    ("69\u202f000", "rows", 69_000),
    ("512 KiB", "kB", 512 * 1024),
    ("512 kb", "kB", 512_000),
    ("26 gb", "GB", 26e9),
    ("1/12", "FLOP/B", 1 / 12),
    ("1 / 12 flops per byte", "FLOP/B", 1 / 12),
    ("1.5 × 10^3", "us", 1.5e-3),
    ("1.5*10**3 us", "us", 1.5e-3),
    ("1.5e3", "us", 1.5e-3),
    ("≈ 139", "us", 139e-6),
    ("16 %", "%", 0.16),
    ("16 percent", "%", 0.16),
    ("12 tok/s", "tokens/s", 12),
    ("12 tokens per second", "tokens/s", 12),
    ("1 worker", "workers", 1),
    ("-5", "us", -5e-6),
]


@pytest.mark.parametrize(("text", "unit", "value"), WRITTEN)
def test_a_number_is_read_as_people_write_it(text: str, unit: str, value: float) -> None:
    assert float(readings(text, unit)[0]) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("3 ms", "FLOP/B"), ("512 kB/s", "kB"), ("782 TFLOP", "TFLOP/s"), ("4 Gb", "GB"), ("5 images", "sequences"),
        ("nan", "us"), ("inf", "us"), ("1/0", "us"), ("1e308", "us"), ("1,23,4", "us"), ("1.2.3", "us"), ("", "us"),
        ("12 or 13", "us"), ("many", "rows"), ("1 2", "rows"), ("1" * 101, "rows"),
    ],
)  # fmt: skip
def test_a_text_without_a_clear_number_of_this_kind_is_refused(text: str, unit: str) -> None:
    assert readings(text, unit) == []


def test_a_comma_before_three_digits_separates_thousands_or_decimals() -> None:
    assert readings("2,449", "rows") == [2449, Fraction(2449, 1000)]
    assert readings("0,449", "rows") == [Fraction(449, 1000)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("compute", "compute"), ("compute-bound", "compute"), ("Compute bound", "compute"), ("the memory", "memory"),
        ("memory-limited", "memory"), ("Bandwidth", "memory"), ("DRAM bandwidth-bound", "memory"),
        ("cpu", None), ("compute or memory", None), ("", None),
    ],
)  # fmt: skip
def test_a_ceiling_is_read_as_people_write_it(text: str, found: str | None) -> None:
    assert ceiling(text) == found


NUMBERS = st.integers(1, 10**9).map(lambda n: Fraction(n, 1000))
BASE_UNITS = sorted({"rows", "tokens/s", *BASES})


@given(number=NUMBERS, base=st.sampled_from(BASE_UNITS), data=st.data())
def test_a_number_in_any_unit_of_the_same_kind_has_the_same_meaning(
    number: Fraction, base: str, data: st.DataObject
) -> None:
    written, asked = (data.draw(st.sampled_from(sorted(BASES.get(base, {"": 1})))) + base for _ in range(2))
    assert readings(f"{float(number)!r} {written}", asked) == [number * unit_of(written).factor]


@given(number=NUMBERS, unit=st.sampled_from(["GFLOP", "us", "FLOP/B", "%", "sequences"]))
def test_a_number_with_and_without_its_unit_has_the_same_meaning(number: Fraction, unit: str) -> None:
    assert readings(f"{float(number)!r}", unit) == readings(f"{float(number)!r} {unit}", unit)


@given(whole=st.integers(1000, 10**12))
def test_groups_of_thousands_do_not_change_a_number(whole: int) -> None:
    for text in (f"{whole:,}", units.grouped(whole), f"{whole:_}", f"{whole:,}".replace(",", "'")):
        assert readings(text, "rows")[0] == whole


@given(value=st.floats(1e-9, 1e18), unit=st.sampled_from(["FLOP/s", "B/s", "B", "FLOP"]))
def test_what_roof_prints_is_read_again(value: float, unit: str) -> None:
    printed = units.si(value, unit, 6)
    assert float(readings(printed, unit)[0]) == pytest.approx(value, rel=1e-5, abs=1e-12)


@given(seconds=st.floats(1e-8, 1e3))
def test_a_time_that_roof_prints_is_read_again(seconds: float) -> None:
    assert float(readings(units.seconds(seconds, 6), "ms")[0]) == pytest.approx(seconds, rel=1e-5)


@given(text=st.text(max_size=30), unit=st.sampled_from(["us", "GB", "%", "rows", "FLOP/B", "TFLOP/s"]))
def test_any_text_is_read_or_refused(text: str, unit: str) -> None:
    assert all(isinstance(reading, int | Fraction) for reading in readings(text, unit))
    assert ceiling(text) in ("compute", "memory", None)
