"""Answers as people write them: notations of numbers, units of the same kind, equations, words, names of ceilings."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.homework.answers import BOTH, UNREAD, ReadAnswer, ceiling, number
from roofmodel.homework.homework import grade
from roofmodel.homework.problem import BASES, CEILING, Question, unit_of
from roofmodel.homework.submission import Entry
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


AROUND = [  # what stands around a value in the answers of a class
    ("n = 531", "rows", 531),
    ("t_1 = 1020 us", "us", 1020e-6),
    ("≥ 1020 us", "us", 1020e-6),
    ("n >= 531", "rows", 531),
    ("-> 1020 us", "us", 1020e-6),
    ("The answer is 1020 us.", "us", 1020e-6),
    ("H100: 1020 us", "us", 1020e-6),
    ("1020 us (memory bound)", "us", 1020e-6),
    ("1020us(memory bound)", "us", 1020e-6),
    ("1020 us, memory bound", "us", 1020e-6),
    ("1020 us - limited by memory", "us", 1020e-6),
    ("1020 memory bound", "us", 1020e-6),
    ("1020 us: memory bound", "us", 1020e-6),
    ("1020 us approx.", "us", 1020e-6),
    ("**1020**", "us", 1020e-6),
    ("t = **1020** us", "us", 1020e-6),
    ("_1020 us_", "us", 1020e-6),
    ("`1020 us`", "us", 1020e-6),
    ("“1020” us", "us", 1020e-6),
    ("[1020 us]", "us", 1020e-6),
    ("~~900~~ 1020 us", "us", 1020e-6),
    ("10.2·10² us", "us", 1020e-6),
    ("1.02 × 10⁻³ s", "us", 1020e-6),
    (r"$t = 1.02 \times 10^{3}\,\mu s$", "us", 1020e-6),
    (r"\frac{1}{12}", "FLOP/B", 1 / 12),
    ("1/12 = 0.0833", "FLOP/B", 0.0833),
    ("0.0833...", "FLOP/B", 0.0833),
    ("12 B/FLOP", "FLOP/B", 1 / 12),
    ("2 FLOPs/24 bytes", "FLOP/B", 1 / 12),
    ("24 bytes / 2 FLOPs", "FLOP/B", 1 / 12),
    ("0.17 FLOP·B⁻¹", "FLOP/B", 0.17),
    ("2 GFLOP / 4 ms", "GFLOP/s", 5e11),
    ("2^10", "rows", 1024),
    ("10^3 us", "us", 1e-3),
    ("four workers", "workers", 4),
    ("5k rows", "rows", 5000),
    ("3 million", "rows", 3_000_000),
    ("3 gigabytes", "GB", 3e9),
    ("3.2x", "times", 3.2),
    ("1020 US", "us", 1020e-6),
]


@pytest.mark.parametrize(("text", "unit", "value"), [*WRITTEN, *AROUND])
def test_a_number_is_read_as_people_write_it(text: str, unit: str, value: float) -> None:
    reading = number(text, unit)
    assert float(reading.meanings[0]) == pytest.approx(value, rel=1e-12)
    assert reading.certain  # such an answer is right or wrong


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("3 ms", "FLOP/B"), ("512 kB/s", "kB"), ("782 TFLOP", "TFLOP/s"), ("4 Gb", "GB"), ("nan", "us"), ("inf", "us"),
        ("1/0", "us"), ("1e308", "us"), ("1,23,4", "us"), ("1.2.3", "us"), ("", "us"), ("12 or 13", "us"),
        ("many", "rows"), ("1 2", "rows"), ("1" * 201, "rows"), ("0.08(3)", "FLOP/B"), ("5 GB/s per GPU", "GB/s"),
    ],
)  # fmt: skip
def test_a_text_without_a_clear_number_of_this_kind_is_left_to_the_lecturer(text: str, unit: str) -> None:
    reading = number(text, unit)
    assert (reading.meanings, reading.certain) == ((), False)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("5 images", "sequences", 5), ("n > 530", "rows", 530), ("531 x 531", "rows", 531**2), ("12-15", "rows", -3),
        ("7/(2*8)", "FLOP/B", 7 / 16), ("at most 1020 us", "us", 1020e-6), ("16/100", "%", 0.0016),
        ("1020 us at 3.35 TB/s", "us", 1020e-6), ("- 1020 us", "us", 1020e-6),
    ],
)  # fmt: skip
def test_a_number_in_unusual_words_is_right_or_left_to_the_lecturer(text: str, unit: str, value: float) -> None:
    reading = number(text, unit)
    assert float(reading.meanings[0]) == pytest.approx(value)
    assert not reading.certain


def test_a_comma_before_three_digits_separates_thousands_or_decimals() -> None:
    assert number("2,449", "rows").meanings == (2449, Fraction(2449, 1000))
    assert number("0,449", "rows").meanings == (Fraction(449, 1000),)


def test_a_point_before_three_digits_may_separate_thousands() -> None:
    assert number("2.449", "rows") == ReadAnswer((Fraction(2449, 1000),), (Fraction(2449),), True)


def test_an_equation_with_another_value_before_the_last_one_is_not_wrong() -> None:
    reading = number("1020 us ≈ 1 ms", "us")
    assert reading.meanings == (Fraction(1, 1000),)
    assert Fraction(1020, 10**6) in reading.doubtful


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("compute", "compute"), ("compute-bound", "compute"), ("Compute bound", "compute"), ("the memory", "memory"),
        ("memory-limited", "memory"), ("Bandwidth", "memory"), ("DRAM bandwidth-bound", "memory"), ("HBM", "memory"),
        ("memory (DRAM)", "memory"), ("memory bound.", "memory"), ("limited by memory", "memory"),
        ("**Memory**!", "memory"), ("memory_bound", "memory"), ("it is memory bound because 0.1 < 10", "memory"),
        ("memory, not compute", "memory"), ("memory rather than compute", "memory"), ("bound: memory", "memory"),
        ("compute (FP32 FLOPs)", "compute"), ("tensor cores", "compute"), ("memory: 0.08 < 10", "memory"),
        ("memory or compute", BOTH), ("compute/memory", BOTH), ("both", BOTH),
    ],
)  # fmt: skip
def test_a_ceiling_is_read_as_people_write_it(text: str, found: str) -> None:
    assert ceiling(text) == ReadAnswer((found,), certain=True)


@pytest.mark.parametrize("text", ["cpu", "", "shared memory", "L2", "memroy", "memory latency", "I do not know"])
def test_a_text_without_a_clear_ceiling_is_left_to_the_lecturer(text: str) -> None:
    assert ceiling(text) == UNREAD


def test_a_denied_ceiling_is_wrong_or_left_to_the_lecturer() -> None:
    assert ceiling("not memory bound") == ReadAnswer(doubtful=("compute",), certain=True)


def test_a_problem_lists_further_names_of_a_ceiling() -> None:
    assert ceiling("L2 cache") == UNREAD
    assert ceiling("L2 cache", {"memory": ["L2 cache"]}).meanings == ("memory",)


# --- No right answer is wrong -----------------------------------------------------------------------

BEFORE = [
    "", "n = ", "t=", "AI: ", "≈ ", "~", "ca. ", "about ", "≥ ", ">= ", "> ", "at least ", "it is ", "-> ", "= ",
    "I get ", "roughly ", "2*x/y = ", "max ", "• ", "(a) ", "1. ", "Answer: ", "between us: ",
]  # fmt: skip
AFTER = [
    "", ".", " (memory bound)", ", memory bound", "; see above", " - limited by DRAM", " approx", " !", "?", " (± 2 %)",
    " because the bytes take longer", " = answer", " // checked", " (rounded)", " or so", ", not 17", " each", " total",
]  # fmt: skip
MARKS = ["{}", "**{}**", "*{}*", "`{}`", "_{}_", "“{}”", "'{}'", "${}$", "({})", "[{}]", "  {}  ", "<b>{}</b>", "\t{}"]
UNITS = {
    "us": [("", 1), (" us", 1), ("us", 1), (" µs", 1), (" usec", 1), (" microseconds", 1), (" ms", 1e-3), (" s", 1e-6),
           (" mu s", 1), (r"\,\mu s", 1), (" US", 1), (" nanoseconds", 1e3)],
    "GB": [("", 1), (" GB", 1), ("GB", 1), (" gigabytes", 1), (" GByte", 1), (" MB", 1e3), (" GiB", 1e9 / 2**30)],
    "rows": [("", 1), (" rows", 1), (" Rows", 1), (" elements", 1), (" x", 1)],
    "FLOP/B": [("", 1), (" FLOP/B", 1), (" FLOPs/byte", 1), (" flops per byte", 1), (" Flop / Byte", 1), (" F/B", 1)],
    "%": [("", 1), ("%", 1), (" %", 1), (" percent", 1)],
}  # fmt: skip
NOTATIONS = [
    "{:.6g}", "{:.4e}", "{:,.3f}", "{:_.3f}", "{:.1f}", "{:.0f}", "{:.3f}", "{:.2E}", "{0:.5g} = {0:.5g}",
    "{:.4g}·10^0", "{:.4g} x 10^0", "{:.4g} × 10⁰",
]  # fmt: skip


def asked(unit: str, value: float | str, tolerance: float = 0.02) -> Question:
    """A question whose answer is a value in this unit."""
    scaled = value if isinstance(value, str) else float(value * unit_of(unit).factor)
    return Question("q", "?", unit, scaled, "x", {"x": 1}, {"x": "it"}, tolerance=tolerance)


@given(
    value=st.floats(1, 99_999), unit=st.sampled_from(sorted(UNITS)), before=st.sampled_from(BEFORE),
    after=st.sampled_from(AFTER), mark=st.sampled_from(MARKS), notation=st.sampled_from(NOTATIONS), data=st.data(),
)  # fmt: skip
def test_a_right_value_in_any_spelling_is_right_or_left_to_the_lecturer(
    value: float, unit: str, before: str, after: str, mark: str, notation: str, data: st.DataObject
) -> None:
    word, scale = data.draw(st.sampled_from(UNITS[unit]))
    digits = notation.format(value * scale)
    if float(f"{value * scale:.4g}") == 0 or abs(float(f"{value * scale:.1f}") / (value * scale) - 1) > 0.01:
        digits = f"{value * scale:.6g}"
    if ".0f" in notation and value * scale < 100:
        digits = f"{value * scale:.6g}"
    text = mark.format(f"{before}{digits}{word}{after}")
    graded = grade(asked(unit, value), Entry(text, "1001.md", 1))
    assert graded.right or not graded.understood, (text, graded.answer)
    swapped = grade(asked(unit, value), Entry(f"{before}{mark.format(digits)}{word}{after}", "1001.md", 1))
    assert swapped.right or not swapped.understood


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("n > 530", "rows", 531), ("1.020", "us", 1020), ("1020 us = 3 ms", "us", 1020), ("531 x 531", "rows", 531),
        ("16/100", "%", 16), ("12 or 13", "rows", 12), ("5 GB/s per GPU", "GB/s", 5), ("2*3*85", "us", 1020),
    ],
)  # fmt: skip
def test_an_answer_that_may_mean_the_right_value_is_unread_and_not_wrong(text: str, unit: str, value: float) -> None:
    graded = grade(asked(unit, value, tolerance=0), Entry(text, "1001.md", 1))
    assert (graded.right, graded.understood, graded.answer) == (False, False, text)


@given(
    value=st.floats(1, 9999), before=st.sampled_from([each for each in BEFORE if ">" not in each and each != "max "]),
    after=st.sampled_from([each for each in AFTER if "17" not in each and "or" not in each]),
)  # fmt: skip
def test_a_wrong_value_in_any_spelling_is_not_right(value: float, before: str, after: str) -> None:
    assert not grade(asked("us", value), Entry(f"{before}{value * 1.37:.6g} us{after}", "1001.md", 1)).right


CEILING_SPELLINGS = [
    "{}", "{}-bound", "{} bound", "{} limited", "limited by {}", "the {}", "it is {}", "**{}**", "{} (see the ridge)",
    "{} because AI < ridge", "{}, of course", "Bound by {}.", "{} ceiling", "{} roof", "I think {}", "{}!", "- {}",
    "{} since 3 < 10", "the kernel is {} bound", "{} - the intensity decides",
]  # fmt: skip


@given(
    spelling=st.sampled_from(CEILING_SPELLINGS), word=st.sampled_from(["memory", "Memory", "DRAM", "HBM", "bandwidth"]),
    mark=st.sampled_from(MARKS),
)  # fmt: skip
def test_a_ceiling_in_any_spelling_is_read(spelling: str, word: str, mark: str) -> None:
    entry = Entry(mark.format(spelling.format(word)), "1001.md", 1)
    assert grade(asked(CEILING, "memory"), entry).right
    graded = grade(asked(CEILING, "compute"), entry)
    assert (graded.right, graded.understood) == (False, True)


# --- Properties -------------------------------------------------------------------------------------

NUMBERS = st.integers(1, 10**9).map(lambda n: Fraction(n, 1000))
BASE_UNITS = sorted({"rows", "tokens/s", *BASES})


@given(value=NUMBERS, base=st.sampled_from(BASE_UNITS), data=st.data())
def test_a_number_in_any_unit_of_the_same_kind_has_the_same_meaning(
    value: Fraction, base: str, data: st.DataObject
) -> None:
    written, wanted = (data.draw(st.sampled_from(sorted(BASES.get(base, {"": 1})))) + base for _ in range(2))
    assert number(f"{float(value)!r} {written}", wanted).meanings == (value * unit_of(written).factor,)


@given(value=NUMBERS, unit=st.sampled_from(["GFLOP", "us", "FLOP/B", "%", "sequences"]))
def test_a_number_with_and_without_its_unit_has_the_same_meaning(value: Fraction, unit: str) -> None:
    assert number(f"{float(value)!r}", unit) == number(f"{float(value)!r} {unit}", unit)


@given(whole=st.integers(1000, 10**12))
def test_groups_of_thousands_do_not_change_a_number(whole: int) -> None:
    for text in (f"{whole:,}", units.grouped(whole), f"{whole:_}", f"{whole:,}".replace(",", "'")):
        assert number(text, "rows").meanings[0] == whole


@given(value=st.floats(1e-9, 1e18), unit=st.sampled_from(["FLOP/s", "B/s", "B", "FLOP"]))
def test_what_roof_prints_is_read_again(value: float, unit: str) -> None:
    printed = units.si(value, unit, 6)
    assert float(number(printed, unit).meanings[0]) == pytest.approx(value, rel=1e-5, abs=1e-12)


@given(seconds=st.floats(1e-8, 1e3))
def test_a_time_that_roof_prints_is_read_again(seconds: float) -> None:
    assert float(number(units.seconds(seconds, 6), "ms").meanings[0]) == pytest.approx(seconds, rel=1e-5)


@given(text=st.text(max_size=30), unit=st.sampled_from(["us", "GB", "%", "rows", "FLOP/B", "TFLOP/s"]))
def test_any_text_is_read_or_refused(text: str, unit: str) -> None:
    reading = number(text, unit)
    assert all(isinstance(each, int | Fraction) for each in (*reading.meanings, *reading.doubtful))
    assert {*ceiling(text).meanings} <= {"compute", "memory", BOTH}
