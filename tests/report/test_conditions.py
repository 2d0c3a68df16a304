"""The conditions of `--where` and `--fail-if`."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.errors import WorkloadError
from roofmodel.numbers import units
from roofmodel.report.checks import judge
from roofmodel.report.conditions import Comparison, conditions
from roofmodel.sweep.selection import TYPES, holds

TIMES = st.tuples(st.integers(0, 10**6), st.sampled_from(["s", "ms", "us", "µs", "ns"])).map("{0[0]} {0[1]}".format)
SIZES = st.tuples(st.integers(0, 10**6), st.sampled_from(["B", "GB", "GiB"])).map("{0[0]}{0[1]}".format)
PERCENTAGES = st.integers(-1000, 1000).map("{}%".format)
FLAGS = st.sampled_from(["yes", "no", "true", "false", "0", "1"])
TEXTS = (
    st.text(st.characters(codec="utf-8", exclude_characters="\"'"), min_size=1)
    .map(str.strip)
    .filter(lambda text: text and "and" not in text)
)
QUOTED_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters='"')).map('"{}"'.format)
NAMES = {
    "tpot": TIMES, "expected_seconds": TIMES, "time": TIMES, "bound": TIMES, "memory": SIZES, "mfu": PERCENTAGES,
    "batch": st.integers().map(str), "fits": FLAGS, "model": QUOTED_TEXTS, "hw": st.sampled_from(["a100", "h100-sxm"]),
}  # fmt: skip
TEXT_SIGNS, FLAG_SIGNS = ("=", "==", "!=", "~", "!~"), ("=", "==", "!=")
SIGNS = dict.fromkeys(NAMES, (*FLAG_SIGNS, "<", "<=", ">", ">=")) | {
    "fits": FLAG_SIGNS, "model": TEXT_SIGNS, "hw": TEXT_SIGNS,
}  # fmt: skip
SPACES = st.sampled_from(["", " ", "\t", "  "])


def parsed(text: str) -> tuple[Comparison, ...]:
    """The comparisons of a condition on the rows of a sweep."""
    (condition,) = conditions("where", [text], TYPES)
    assert str(condition) == text.strip()
    return condition.comparisons


@st.composite
def written_comparisons(draw: st.DrawFn) -> tuple[str, str, str, str]:
    name = draw(st.sampled_from([*NAMES]))
    sign, value = draw(st.sampled_from(SIGNS[name])), draw(NAMES[name])
    return name, sign, value, f"{draw(SPACES)}{name}{draw(SPACES)}{sign}{draw(SPACES)}{value}{draw(SPACES)}"


@given(st.lists(written_comparisons(), min_size=1, max_size=4))
def test_a_condition_printed_back_parses_to_itself(written: list[tuple[str, str, str, str]]) -> None:
    comparisons = parsed(" and ".join(text for *_, text in written))
    assert [(each.name, each.sign) for each in comparisons] == [(name, sign) for name, sign, *_ in written]
    assert parsed(" and ".join(map(str, comparisons))) == comparisons
    assert [parsed(f"{name} {sign} {value}")[0].value for name, sign, value, _ in written] == [
        each.value for each in comparisons
    ]


@given(TEXTS)
def test_a_value_may_contain_anything_but_a_further_comparison(text: str) -> None:
    assert parsed(f"model= {text}")[0].value == text.lower()
    assert [each.value for each in parsed(f"model = '{text}' and model != \"{text} and x=1\"")] == [
        text.lower(), f"{text} and x=1".lower(),
    ]  # fmt: skip


@given(st.decimals(0, 10**6, places=3), st.sampled_from(["s", "ms", "us", "ns", "B", "kB", "GB", "GiB"]))
def test_a_quantity_is_that_of_units_and_may_have_a_sign(number: Any, unit: str) -> None:
    name, base = ("tpot", "s") if unit.endswith("s") else ("memory", "B")
    value = units.parse(f"{number}{unit}", base)
    assert [parsed(f"{name}>{sign}{number} {unit}")[0].value for sign in ("", "+", "-")] == [value, value, -value]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("mfu>=35%", 0.35),
        ("mfu>-35%", -0.35),
        ("mfu=0.5", 0.5),
        ("batch<2k", 2000),
        ("tokens/s>1.5e3", 1500),
        ("memory<70GiB", 70 * 2**30),
        ("fits=NO", False),
        ("fits=1", True),
        ("hw='A100'", "a100"),
    ],
)
def test_values_are_in_base_units(text: str, value: object) -> None:
    assert parsed(text)[0].value == value


def test_rates_and_clocks_may_leave_out_their_unit() -> None:
    types = {"flops_per_second": float, "clock": float}
    written = ["flops_per_second>2TFLOP/s", "flops/s>2T", "clock<1.5GHz", "clock<1.5G"]
    assert [each.comparisons[0].value for each in conditions("fail_if", written, types)] == [2e12, 2e12, 1.5e9, 1.5e9]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("time>1ms", ("expected_seconds", "bound_seconds")),
        ("bound>1ms", ("bound_seconds",)),
        ("bound=1ms", ("bound_seconds",)),
        ("bound=memory", ("bound",)),
        ("bound~mem", ("bound",)),
        ("latency<1s", ("expected_seconds",)),
        ("memory_fits=yes", ("fits",)),
        ("Device=a100", ("hardware",)),
    ],
)
def test_names_of_columns(text: str, columns: tuple[str, ...]) -> None:
    assert parsed(text)[0].columns == columns


@given(st.sampled_from([*TYPES]))
def test_each_column_has_its_own_name(column: str) -> None:
    assert conditions("where", [f"{column}=''"], {column: str, "time": str})[0].comparisons[0].columns == (column,)


@pytest.mark.parametrize(
    "row", [{"expected_seconds": 2.0, "bound_seconds": 1.0}, {"expected_seconds": None, "bound_seconds": 2.0}]
)
def test_time_is_the_expected_time_or_else_the_bound(row: dict[str, float | None]) -> None:
    assert [each.holds(row) for each in conditions("where", ["time=2s", "time<2s"], TYPES)] == [True, False]


def test_an_unknown_value_satisfies_nothing_unless_another_one_decides() -> None:
    (condition,) = conditions("where", ["tpot>1ms and model!=gpt2"], TYPES)
    values = {"known": 1.0, "less": 0.0, "none": None, "nan": float("nan")}
    rows = {name: {"tpot_seconds": value, "model": "opt"} for name, value in values.items()}
    assert {name: condition.holds(row) for name, row in rows.items()} == {
        "known": True, "less": False, "none": None, "nan": None,
    }  # fmt: skip
    assert condition.holds({"tpot_seconds": None, "model": "org/GPT2"}) is False
    assert condition.holds({"tpot_seconds": 1.0, "model": None}) is None


@pytest.mark.parametrize(
    ("text", "name", "is_named"),
    [
        ("org/gpt2", "gpt2", True),
        ("org/gpt2", "org/gpt2", True),
        ("org/gpt2", "org", False),
        ("saxpy(int, float)", "saxpy", True),
        ("saxpy(int, float)", "saxpy(int, float)", True),
        ("saxpy(int, float)", "axpy", False),
    ],
)
def test_a_whole_name_may_leave_out_the_organization_and_the_arguments(text: str, name: str, is_named: bool) -> None:
    same, other, part = conditions("where", [f"model={name}", f"model!={name}", f"model~{name}"], TYPES)
    assert (same.holds({"model": text}), other.holds({"model": text})) == (is_named, not is_named)
    assert part.holds({"model": text})


KNOWN_OR_NOT = {
    "model": st.sampled_from(["a", "b", None]),
    "expected_seconds": st.sampled_from([1e-3, 2e-3, None]),
    "bound_seconds": st.sampled_from([1e-3, 2e-3, None]),
    "memory_total": st.sampled_from([2**30, 2**31, None]),
    "mfu": st.sampled_from([0.25, 0.5, float("nan")]),
    "fits": st.sampled_from([True, False, None]),
    "batch": st.integers(1, 3),
}
LIMITS = {
    "model": ["a", "'b'", "org/a"], "time": ["1ms", "2ms"], "expected": ["1ms", "2ms"], "bound": ["1ms", "2ms"],
    "memory": ["1GiB", "1GB"], "mfu": ["25%", "0.5"], "fits": ["yes", "false"], "batch": ["2", "0.003k"],
}  # fmt: skip


@st.composite
def limits(draw: st.DrawFn, name: str) -> str:
    return f"{name}{draw(st.sampled_from(SIGNS.get(name, SIGNS['tpot'])))}{draw(st.sampled_from(LIMITS[name]))}"


@pytest.mark.parametrize("name", LIMITS)
@given(st.lists(st.fixed_dictionaries(KNOWN_OR_NOT), min_size=4, max_size=8), st.data())
def test_where_keeps_the_rows_that_fail_if_reports_as_satisfying(
    name: str, rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    others = data.draw(st.lists(st.sampled_from([*LIMITS]), max_size=1))
    text = " and ".join(data.draw(limits(each)) for each in (name, *others))
    block = {key: numpy.array([row[key] for row in rows], dtype=object) for key in KNOWN_OR_NOT}
    kept = numpy.logical_and.reduce([holds(comparison, block) for comparison in parsed(text)])
    types_known = {"model": "a", "fits": True} | dict.fromkeys(KNOWN_OR_NOT.keys() - {"model", "fits"}, 0.0)
    numbered = [{"number": str(number), **row} for number, row in enumerate(rows)]
    failed = judge([*numbered, {"number": "types", **types_known}], [text], naming=["number"]).failed
    satisfying = {line.partition(":")[0] for line in failed if not line.endswith("cannot be judged")}
    assert satisfying - {"types"} == {str(number) for number in range(len(rows)) if kept[number]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tpot", "'tpot' is not a comparison of a column with a value, such as 'tpot<20ms'"),
        ("", "'' is not a comparison"),
        ("tpot<1ms and fits", "'1ms and fits' is not a quantity"),
        ("tpt<20ms", "unknown column 'tpt'; did you mean 'tpot' or 'tp'? known: time, bound, fits, model, hardware"),
        ("tpot<20", "'tpot<20': '20' has no unit; write it as in '2.5 us'"),
        ("batch>1 and tpot<20GB", "'tpot<20GB': expected a quantity in s, got '20GB' in B"),
        ("fits>1", "'fits>1': fits has no order; use = or !="),
        ("fits=maybe", "'maybe' is neither true nor false"),
        ("fits~yes", "'fits~yes': fits is no text; use = or !="),
        ("bound<memory", "'bound<memory': bound has no order; use = or !="),
        ("batch<many", "'many' is not a number, such as 64 or 1.5k"),
        ("mfu>much", "'much' is not a number, such as 40%"),
        ("tpot~20", "'tpot~20': tpot_seconds is no text; use = or !="),
        ("mfu>1.5", "'mfu>1.5': mfu is a share; write a percentage: 1.5%, or 150% for 1.5 times"),
        ("mbu>1.5k", "'mbu>1.5k': mbu is a share; write a percentage: such as 40%"),
        ("batch<50%", "batch is no share; write a number without %"),
        ("tpot<<2ms", "'tpot<<2ms': '<2ms' is not a quantity"),
    ],
)
def test_an_invalid_condition_is_quoted_with_what_would_work(text: str, message: str) -> None:
    for option in ("where", "fail_if"):
        with pytest.raises(WorkloadError) as error:
            conditions(option, [text], TYPES)
        assert message in str(error.value)
        assert str(error.value).startswith(f"{option}: ")


def test_zero_needs_no_unit() -> None:
    ((below, above),) = (condition.comparisons for condition in conditions("where", ["tpot<0 and memory>=0.0"], TYPES))
    assert (below.value, above.value) == (0, 0)


def test_an_unknown_column_has_a_short_list_and_says_where_all_are() -> None:
    with pytest.raises(WorkloadError) as error:
        conditions("where", ["column_7x<1"], {f"column_{number}": int for number in range(50)})
    assert str(error.value).startswith("where: unknown column 'column_7x'; did you mean 'column_7'")
    assert str(error.value).endswith("column_11 and 38 more, the keys of .to_dict()")


def test_a_column_without_a_known_value_may_have_an_order() -> None:
    with pytest.raises(WorkloadError, match="'x<y z': 'y z' is not a number"):
        conditions("where", ["x<y z"], {"x": None})


@given(st.text(max_size=20))
def test_any_text_is_a_condition_or_an_error_that_names_the_option(text: str) -> None:
    errors = []
    try:
        parsed(text)
    except WorkloadError as error:
        errors.append(error.option)
    assert errors in ([], ["where"])
    with pytest.raises(WorkloadError) as no_comparison:
        conditions("where", [f"{text}!"], {})
    assert no_comparison.value.option == "where"
