"""Decoding of bytes to lines, cells and numbers: accepted spellings, and refusal of ambiguous ones."""

import io
from decimal import Decimal

import pytest

from roofmodel.errors import ProfileError
from roofmodel.profiles.cell_values import (
    LocaleNumbers,
    is_missing,
    parse_count_any_locale,
    parse_extent,
    parse_number,
    parse_seconds,
    parse_unit,
    readings,
    split_device,
)
from roofmodel.profiles.streams import Lines, decode, split

# --- bytes and lines --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_lines_and_files_are_decoded_equally(encoding):
    content = "==7== größe\r\na,b\n".encode(encoding)
    assert decode(content) == "==7== größe\r\na,b\n"
    with Lines(io.BytesIO(content), "f") as lines:
        assert [(lines.where, line) for line in lines] == [("f:1", "==7== größe\n"), ("f:2", "a,b\n")]


def test_a_stream_stays_open_after_its_lines():
    stream = io.BytesIO(b"a\nb\n")
    with Lines(stream, "f") as lines:
        assert lines.next() == "a\n"
    assert not stream.closed


def test_cells_may_contain_quoted_commas_quotes_and_line_ends():
    assert split('1,"k<a, b>" ,2\n') is None  # more after the closing quote: damaged
    assert split('1,"k<a, b>","say ""hi""","two\nlines", 5 \n') == ["1", "k<a, b>", 'say "hi"', "two\nlines", "5"]
    assert split('1,"cut') is None


# --- numbers ----------------------------------------------------------------------------------------------------


def test_a_number_has_one_value_per_possible_decimal_mark():
    assert readings("1,234") == {".": 1234, ",": Decimal("1.234")}
    assert readings("1,234.5") == {".": Decimal("1234.5")}
    assert readings("27.595.520") == {",": 27_595_520}
    assert readings("12") == {".": 12, ",": 12}
    assert readings("1,23,456") == readings("1 234") == readings("٣") == readings("1e999") == {}


@pytest.mark.parametrize("text", ["1,234", "27.595.520", "65,77", "1 234", "41.31 234", "12n/a58", "0x10"])
def test_a_number_format_that_the_tool_never_writes_is_refused(text):
    with pytest.raises(ValueError, match="not a number that can be read unambiguously"):
        parse_number(text)


def test_numbers_are_exact():
    assert parse_number("1,234,567.1") == Decimal("1234567.1")
    assert parse_seconds("0.3", "us") == 0.3e-6
    assert parse_seconds("-", "us") is None


@pytest.mark.parametrize("unit", ["us", "\u00b5s", "\u03bcs"])  # ASCII, micro sign, Greek letter mu
def test_microseconds_are_read_with_every_letter_mu(unit):
    assert parse_seconds("41.6", unit) == 41.6e-6


def test_counts_are_read_with_any_thousands_separator():
    assert [parse_count_any_locale(text) for text in ("41,943,040", "1.234", "1 234", "7")] == [
        41_943_040,
        1234,
        1234,
        7,
    ]
    assert {parse_count_any_locale(text) for text in ("8.0", "1,2", "", "٣", "9" * 30, None)} == {None}


@pytest.mark.parametrize("text", ["n/a", "(!) n/a", "N/A (0: n/a)", "<OVERFLOW>", "-", "", "nan"])
def test_missing_data_is_unknown_for_every_tool(text):
    assert is_missing(text)
    assert parse_number(text) is None


# --- units, sizes, devices --------------------------------------------------------------------------------------


def test_extents_of_all_tools_are_read():
    for text in ("(64, 2, 1)", "(64 2 1)", " 64    2    1", "64;2;1"):
        assert parse_extent(text) == (64, 2, 1)
    assert parse_extent("(64, 2)") is parse_extent("-") is parse_extent("(64n 2 1)") is None


def test_a_device_name_may_end_with_its_ordinal():
    assert split_device("Tesla V100-SXM2 (3)") == ("Tesla V100-SXM2", "3")
    assert split_device("GeForce (TM)") == ("GeForce (TM)", None)


@pytest.mark.parametrize(
    ("text", "factor", "of"),
    [
        ("nsecond", 1e-9, "s"),
        ("us", 1e-6, "s"),
        ("\u00b5s", 1e-6, "s"),  # micro sign
        ("\u03bcs", 1e-6, "s"),  # Greek letter mu
        ("msecond", 1e-3, "s"),
        ("s", 1, "s"),
        ("byte", 1, "byte"),
        ("Kbyte", 1e3, "byte"),
        ("Mbyte", 1e6, "byte"),
        ("Gbyte/second", 1e9, "byte/s"),
        ("Gbyte/s", 1e9, "byte/s"),
        ("byte/nsecond", 1e9, "byte/s"),
        ("cycle/nsecond", 1e9, "/s"),
        ("cycle/second", 1, "/s"),
        ("hz", 1, "/s"),
        ("Ghz", 1e9, "/s"),
        ("inst/cycle", 1, ""),
        ("register/thread", 1, ""),
        ("%", 0.01, "%"),
        ("", 1, ""),
        ("KiB", 1024, "byte"),
    ],
)
def test_units_of_all_generations_are_read(text, factor, of):
    found = parse_unit(text)
    assert found is not None
    assert found == (pytest.approx(factor), of)


@pytest.mark.parametrize("text", ["parsec", "Xbyte", "byte/parsec", "/", "s/"])
def test_an_unknown_unit_is_none(text):
    assert parse_unit(text) is None


def test_one_unambiguous_number_determines_the_locale():
    english, german = LocaleNumbers("f"), LocaleNumbers("f")
    english.detect_locale("1,234.5", 1)
    german.detect_locale("65,77", 1)
    assert english.value("1,234", 2, "m") == 1234
    assert german.value("1,234", 2, "m") == 1.234
    assert english.value("1.234", 2, "m") == 1.234
    assert german.value("27.595.520", 2, "m") == 27_595_520


def test_an_ambiguous_number_is_quoted_with_both_readings():
    with pytest.raises(ProfileError, match=r"'1,234' may be 1234 or 1\.234: the file does not show its locale"):
        LocaleNumbers("a.csv").value("1,234", 3, "dram__bytes.sum")
