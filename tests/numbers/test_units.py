from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.numbers import units

PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
BINARY = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4, "Pi": 1024**5}
UNITS = ("FLOP/s", "FLOP/clock", "B/s", "B/clock", "B", "Hz", "bit")

EXACT = [
    ("80 GiB", "B", 85_899_345_920),  # 80 × 1024³
    ("40 MiB", "B", 41_943_040),  # 40 × 1024²
    ("192 KiB", "B", 196_608),  # 192 × 1024
    ("1 TiB", "B", 1_099_511_627_776),  # 1024⁴
    ("80 GB", "B", 80_000_000_000),
    ("2039 GB/s", "B/s", 2_039_000_000_000),
    ("1.555 TB/s", "B/s", 1_555_000_000_000),
    ("828.758 GB/s", "B/s", 828_758_000_000),
    ("312 TFLOP/s", "FLOP/s", 312_000_000_000_000),
    ("19.5 TFLOP/s", "FLOP/s", 19_500_000_000_000),
    ("7068.86 GFLOP/s", "FLOP/s", 7_068_860_000_000),
    ("1.5 PFLOP/s", "FLOP/s", 1_500_000_000_000_000),
    ("2048 FLOP/clock", "FLOP/clock", 2048),
    ("5120 B/clock", "B/clock", 5120),
    ("1410 MHz", "Hz", 1_410_000_000),
    ("1.597 GHz", "Hz", 1_597_000_000),
    ("5120 bit", "bit", 5120),
    ("0.5 kB", "B", 500),
    ("80GiB", "B", 85_899_345_920),  # a blank is usual, not needed
    ("  80   GiB\t", "B", 85_899_345_920),
    ("2.50 kB", "B", 2500),  # zeros at the end change nothing
    ("0 B", "B", 0),
]


@pytest.mark.parametrize(("text", "unit", "value"), EXACT, ids=[text for text, _, _ in EXACT])
def test_an_integral_quantity_is_an_exact_int(text: str, unit: str, value: int) -> None:
    parsed = units.parse(text, unit)
    assert parsed == value
    assert type(parsed) is int


def test_a_fractional_quantity_is_the_nearest_float() -> None:
    assert units.parse("0.3 B", "B") == 0.3
    assert units.parse("1.2345 kHz", "Hz") == 1234.5
    assert (units.parse("5min", "s"), units.parse("1.5 h", "s")) == (300, 5400)
    assert units.parse("2.5 KiB", "B") == 2560  # 2.5 × 1024
    assert units.parse("0.3 KiB", "B") == 307.2  # 0.3 × 1024


@pytest.mark.parametrize(
    ("integer", "floating", "unit"),
    [("624 TOP/s", "624 TFLOP/s", "FLOP/s"), ("4096 OP/clock", "4096 FLOP/clock", "FLOP/clock")],
)
def test_an_op_of_an_integer_pipe_counts_like_a_flop(integer: str, floating: str, unit: str) -> None:
    assert units.parse(integer, unit) == units.parse(floating, unit)


@pytest.mark.parametrize(("decimal", "binary"), [("k", "Ki"), ("M", "Mi"), ("G", "Gi"), ("T", "Ti"), ("P", "Pi")])
def test_decimal_and_binary_prefixes_are_never_mixed(decimal: str, binary: str) -> None:
    assert units.parse(f"1 {decimal}B", "B") == PREFIXES[decimal]
    assert units.parse(f"1 {binary}B", "B") == BINARY[binary]


WRONG = [
    ("2039 GB/s", "FLOP/s", ["'2039 GB/s'", "B/s", "FLOP/s", "312 TFLOP/s"]),
    ("312 TFLOP/s", "B/s", ["'312 TFLOP/s'", "FLOP/s", "2039 GB/s"]),
    ("80 GiB", "B/s", ["'80 GiB'", "2039 GB/s"]),
    ("80 GB/s", "B", ["'80 GB/s'", "B/s", "80 GiB"]),
    ("2048 FLOP/clock", "FLOP/s", ["'2048 FLOP/clock'", "FLOP/clock", "312 TFLOP/s"]),
    ("1410 MHz", "bit", ["'1410 MHz'", "Hz", "5120 bit"]),
    ("80 Gbit", "B", ["'80 Gbit'", "bit", "80 GiB"]),
]


@pytest.mark.parametrize(("text", "unit", "fragments"), WRONG, ids=[text for text, _, _ in WRONG])
def test_a_wrong_unit_is_refused_with_both_units_and_an_example(text: str, unit: str, fragments: list[str]) -> None:
    with pytest.raises(ValueError, match="expected a quantity in") as caught:
        units.parse(text, unit)
    assert all(fragment in str(caught.value) for fragment in fragments)


@pytest.mark.parametrize("value", [312, 312.5, 0, -1, "312", " 1.41 "])
@pytest.mark.parametrize("unit", UNITS)
def test_a_bare_number_is_refused_with_an_example(value: object, unit: str) -> None:
    with pytest.raises(ValueError, match=r"has no unit; write it as in '.+'") as caught:
        units.parse(value, unit)
    assert str(value) in str(caught.value)


UNKNOWN_UNITS = ["5 furlongs", "5 GB/h", "5 KB", "5 gb/s", "5 GIB", "5 GiB/s", "5 TiFLOP/s", "5 MiHz", "5 EB", "5 /s"]


@pytest.mark.parametrize("text", UNKNOWN_UNITS)
def test_a_unit_that_is_not_known_is_refused_and_quoted(text: str) -> None:
    """Among them `KB`, which could be 1000 or 1024, and binary prefixes of anything but bytes."""
    with pytest.raises(ValueError, match=r"unknown unit .*; write it as in '2039 GB/s'") as caught:
        units.parse(text, "B/s")
    assert repr(text.split()[1]) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("400 Gb/s", "50 GB/s"), ("400Gbit/s", "50 GB/s"), ("25 Gbps", "3.125 GB/s"), ("0.8 Tb/s", "100 GB/s")],
)
def test_bits_are_refused_with_the_equivalent_bytes(text: str, bytes_: str) -> None:
    """Datasheets state InfiniBand ports in bits: 400 Gb/s are 50 GB/s."""
    with pytest.raises(
        ValueError, match=rf"expected bytes per second, got bits per second: .*; write it as '{bytes_}'"
    ) as caught:
        units.parse(text, "B/s")
    assert repr(text) in str(caught.value)
    assert units.parse(bytes_, "B/s") > 0


NONSENSE = ["", " ", "GB/s", "-GB/s", "+5 GB/s", "1e3 GB/s", "1,555 GB/s", ".5 GB/s", "5. GB/s", "5 G B/s",
            "1.2.3 GB/s", "nan GB/s", "inf B/s", "0x10 B/s", "5 GB/s!", "5 GB/s\n6 GB/s", None, True, [],
            {}]  # fmt: skip


@pytest.mark.parametrize("text", NONSENSE, ids=repr)
def test_text_instead_of_a_quantity_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ValueError, match="is not a quantity; write a number and a unit as in '2039 GB/s'") as caught:
        units.parse(text, "B/s")
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["-5 GB/s", " -0.5 TB/s"])
def test_a_negative_quantity_is_refused_as_negative(text: str) -> None:
    with pytest.raises(ValueError, match="is below 0; write a quantity above 0 as in '2039 GB/s'") as caught:
        units.parse(text, "B/s")
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["9" * 400 + ".5 GB/s", "9" * 5000 + " GB/s"], ids=["400 digits", "5000 digits"])
def test_an_implausibly_large_number_is_a_value_error_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="2039 GB/s"):
        units.parse(text, "B/s")


@given(st.integers(0, 10**18), st.sampled_from(list(PREFIXES)), st.sampled_from(UNITS))
def test_whole_numbers_with_any_decimal_prefix_are_exact(number: int, prefix: str, unit: str) -> None:
    assert units.parse(f"{number} {prefix}{unit}", unit) == number * PREFIXES[prefix]


@given(st.integers(0, 10**18), st.sampled_from(list(BINARY)))
def test_whole_numbers_of_bytes_with_any_binary_prefix_are_exact(number: int, prefix: str) -> None:
    assert units.parse(f"{number} {prefix}B", "B") == number * BINARY[prefix]


@given(st.integers(0, 10**9), st.integers(0, 999))
def test_three_decimals_of_a_decimal_prefix_are_exact(whole: int, thousandths: int) -> None:
    assert units.parse(f"{whole}.{thousandths:03} GB/s", "B/s") == (1000 * whole + thousandths) * 10**6


# --- Writing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3_506_703_564_800, "", "3.51 T"),
        (312e12, "FLOP/s", "312 TFLOP/s"),
        (2_039_000_000_000, "B/s", "2.04 TB/s"),
        (1e15, "FLOP/s", "1 PFLOP/s"),
        (1234e15, "FLOP", "1230 PFLOP"),  # beyond the last prefix
        (1000, "B", "1 kB"),
        (999, "B", "999 B"),
        (12, "", "12"),
        (0, "B", "0 B"),
        (0, "", "0"),
        (0.125, "FLOP/B", "0.125 FLOP/B"),
        (-3_500_000, "B", "-3.5 MB"),
        # Three digits turn 999.95 into 1000: that is 1 of the next prefix.
        (999_950, "B", "1 MB"),
        (999_500, "B", "1 MB"),
        (999_499, "B", "999 kB"),
        (999.6, "B", "1 kB"),
        (999.4, "B", "999 B"),
        (999_950_000_000, "B/s", "1 TB/s"),
        (999_950_000_000_000, "FLOP/s", "1 PFLOP/s"),
    ],
)
def test_si_writes_three_digits_and_a_decimal_prefix(value: float, unit: str, text: str) -> None:
    assert units.si(value, unit) == text


def test_si_writes_as_many_digits_as_asked() -> None:
    assert units.si(1_410_000_000, "Hz", 4) == "1.41 GHz"
    assert units.si(1_597_300_000, "Hz", 4) == "1.597 GHz"
    assert units.si(999_950, "B", 4) == "1 MB"  # 999.95 has five digits: 1000.0 k, to four
    assert units.si(999_940, "B", 4) == "999.9 kB"


@given(st.integers(1, 10**18))
def test_si_reads_back_to_within_half_of_its_last_digit(value: int) -> None:
    read = units.parse(units.si(value, "B"), "B")
    assert abs(read - value) <= value * 0.005  # half a unit of the third digit of 1.00 at the most


@given(st.integers(1, 10**15 - 10**12))
def test_si_never_writes_a_thousand_of_a_prefix(value: int) -> None:
    assert 1 <= float(units.si(value, "B").split()[0]) < 1000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0116, "11.6 ms"),
        (1, "1 s"),
        (90.25, "90.2 s"),
        (7200, "7200 s"),
        (0.001, "1 ms"),
        (1e-6, "1 µs"),
        (1e-9, "1 ns"),
        (0, "0 ns"),
        (0.9996, "1 s"),
        (0.9994, "999 ms"),
        (0.9996e-3, "1 ms"),
        (0.9994e-3, "999 µs"),
        (0.9996e-6, "1 µs"),
        (0.9994e-6, "999 ns"),
    ],
)
def test_seconds_are_written_in_the_prefix_that_fits(value: float, text: str) -> None:
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (85_899_345_920, "80 GiB"),
        (41_943_040, "40 MiB"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (512, "512 B"),
        (0, "0 B"),
        (80_000_000_000, "74.5 GiB"),  # 80 × 10⁹ / 1024³ = 74.506
        (1_888_000 * 2**20, "1.8 TiB"),  # 1 888 000 / 1024² = 1.8005
        (5 * 2**50, "5 PiB"),
    ],
)
def test_memories_are_written_with_binary_prefixes(value: int, text: str) -> None:
    assert units.binary(value) == text


@given(st.integers(1, 2**60))
def test_binary_reads_back_to_within_half_of_its_last_digit(value: int) -> None:
    assert abs(units.parse(units.binary(value), "B") - value) <= value * 0.005


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0, 3, "0"),
        (1234.5, 3, "1230"),
        (0.12345, 3, "0.123"),
        (153.016, 3, "153"),
        (99.96, 3, "100"),
        (1_557_611_200, 4, "1558000000"),
        (-1234.5, 2, "-1200"),
        (123_456_789_012_345, 3, "123000000000000"),
        (0.0000123, 3, "0.0000123"),
    ],
)
def test_significant_digits_come_without_an_exponent(value: float, digits: int, text: str) -> None:
    assert units.significant(value, digits) == text


@given(st.floats(1e-4, 1e15, exclude_max=True), st.integers(1, 6))
def test_significant_keeps_the_value_to_the_digits_asked(value: float, digits: int) -> None:
    text = units.significant(value, digits)
    assert "e" not in text
    # Half a unit of the last digit kept, and the two roundings of a float on the way.
    assert abs(float(text) - value) <= value * (0.5 * 10 ** (1 - digits) + 1e-15)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1_557_611_200, "1 557 611 200"), (124_439_808, "124 439 808"), (999, "999"), (1000, "1 000"), (0, "0")],
)
def test_counts_are_grouped_by_thousands(value: int, text: str) -> None:
    assert units.grouped(value) == text


@given(st.integers(0, 10**30))
def test_grouping_changes_no_digit(value: int) -> None:
    assert int(units.grouped(value).replace(" ", "")) == value
