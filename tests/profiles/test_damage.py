"""Damage of a line, cell or byte is reported, and does not change the numbers of other lines.

The content of a file is a multiset of facts, one for each figure of each kernel. The oracle of a damaged row is the
file without that row: all of its facts must be read, or the file is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.errors import ProfileError
from roofmodel.profiles import reading
from roofmodel.profiles.kernel import Kernel, Profile
from tests.profiles.fuzz import check
from tests.profiles.seeds import SEEDS, TEXTS

# Lines with one kernel, or with one metric of a kernel. Other lines (headers, units, titles, the kernel of the metrics
# below it, the common type of the rows of a summary) concern several kernels, so their damage may change several.
ROWS = {
    "ncu-long": r'"\d+","11"', "ncu-long-european": r'"\d+","11"', "ncu-bare": r"\d+,11,", "ncu-wide": r'"0",',
    "ncu-summary": r'"11"', "nvprof-trace": r"\d", "nvprof-summary": r'"GPU', "nvprof-metrics": r'"Tesla',
    "nvprof-text-trace": r"\d", "nvprof-text-metrics": r" +\d", "nsys-summary": r"\d", "nsys-trace": r"\d",
    "nsys-launches": r"\d",
}  # fmt: skip
TABLES = {name: TEXTS[name] for name in ROWS}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "file"


def read(text: str, file: Path) -> Profile:
    file.write_text(text, encoding="utf-8", newline="")
    return reading.read([file])


def facts(kernels: Iterator[Kernel] | tuple[Kernel, ...]) -> Counter[tuple[object, ...]]:
    """Every figure of every kernel by name; None for uncollected metrics."""
    found: Counter[tuple[object, ...]] = Counter()
    for kernel in kernels:
        figures = {"seconds": kernel.seconds, "occupancy": kernel.occupancy}
        figures |= kernel.flops._asdict() | kernel.bytes._asdict()
        found.update((kernel.name, what, value) for what, value in figures.items() if value is not None)
    return found


def facts_and_warnings(text: str, file: Path) -> tuple[Counter[tuple[object, ...]], tuple[str, ...]] | None:
    """The figures and the warnings of a file; None if it is refused."""
    try:
        profile = read(text, file)
    except ProfileError:
        return None
    return facts(tuple(profile.kernels)), profile.warnings


def test_every_fuzzer_seed_is_refused_or_gives_plausible_numbers(file: Path) -> None:
    for content in SEEDS.values():
        check(content, file)


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_row_changes_no_other(name: str, data: st.DataObject, file: Path) -> None:
    lines = TABLES[name].splitlines(keepends=True)
    rows = [i for i, line in enumerate(lines) if re.match(ROWS[name], line)]
    at = data.draw(st.sampled_from(rows))
    line, end_of_line = lines[at][:-1], lines[at][-1:]
    start = data.draw(st.integers(0, len(line) - 1))
    end = data.draw(st.sampled_from((start, start + 1, start + 2)))
    new = data.draw(st.sampled_from([*'",\n-09. ', "", '""', '","']) | st.text(max_size=2))
    damaged = facts_and_warnings(
        "".join([*lines[:at], line[:start] + new + line[end:] + end_of_line, *lines[at + 1 :]]), file
    )
    if damaged is None:
        return
    without = facts_and_warnings("".join(lines[:at] + lines[at + 1 :]), file)
    whole = facts_and_warnings(TABLES[name], file)
    assert whole is not None
    new_warnings = set(damaged[1]) - set(whole[1])
    if without is not None:
        lost = without[0] - damaged[0]
        # If nvprof counted one metric of a kernel in more launches than the other metrics, these are unknown.
        counted = name == "nvprof-metrics" and bool(new_warnings) and all(str(kernel) in line for kernel, _, _ in lost)
        assert not lost or counted
        # a damaged row of a copy may be read as the row of a kernel
        assert (damaged[0] - whole[0]).total() <= max(1, (whole[0] - without[0]).total())
    if damaged[0] < whole[0]:
        assert new_warnings, "figures are missing without a warning"


@pytest.mark.parametrize("name", TABLES)
def test_a_missing_line_adds_no_number(name: str, file: Path) -> None:
    lines = TABLES[name].splitlines(keepends=True)
    whole = facts(tuple(read(TABLES[name], file).kernels))
    for at in range(len(lines)):
        lacking = facts_and_warnings("".join(lines[:at] + lines[at + 1 :]), file)
        assert lacking is None or lacking[0] <= whole


@pytest.mark.parametrize("name", TABLES)
def test_a_truncated_file_is_refused_or_read_up_to_the_cut_or_gives_a_warning(name: str, file: Path) -> None:
    text = TABLES[name]
    whole = facts(tuple(read(text, file).kernels))
    for end in range(len(text)):
        found = facts_and_warnings(text[:end], file)
        warned = found is not None and any("has no line end" in warning for warning in found[1])
        assert found is None or found[0] <= whole or warned, text[:end]


PAIRS = [(one, other) for one, other in permutations(TABLES, 2) if one.partition("-")[0] == other.partition("-")[0]]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_concatenated_files_have_the_data_of_both_or_a_warning(one: str, other: str, file: Path) -> None:
    both = facts(tuple(read(TABLES[one], file).kernels)) + facts(tuple(read(TABLES[other], file).kernels))
    known = {warning for name in (one, other) for warning in read(TABLES[name], file).warnings}
    found = facts_and_warnings(TABLES[one] + TABLES[other], file)
    if found is not None:
        assert found[0] <= both
        assert found[0] == both or set(found[1]) - known


STRANGERS = [(one, other) for one, other in permutations(TABLES, 2) if one.partition("-")[0] != other.partition("-")[0]]


@pytest.mark.parametrize(("one", "other"), STRANGERS)
def test_concatenated_files_of_two_tools_are_refused(one: str, other: str, file: Path) -> None:
    with pytest.raises(ProfileError, match="contains tables of"):
        read(TABLES[one] + TABLES[other], file)


# A cell with a number, its quantity, and the factor to base units.
CELLS = {
    "ncu-long": ("1,012,583.25", "dram", 10**3),
    "ncu-long-european": ("1.012.583,25", "dram", 10**3),
    "ncu-wide": ("1,012.58", "dram", 10**6),
    "ncu-summary": ("41.60", "seconds", 14e-6),  # a mean of 14 launches
    "nvprof-trace": ("0.500000", "seconds", 1e-3),
    "nvprof-summary": ("4.000000", "seconds", 1e-3),
    "nvprof-metrics": (",110\n", "fp32", 3),  # a mean of 3 launches
    "nvprof-text-trace": ("1.6782", "seconds", 1e-3),
    "nvprof-text-metrics": (" 10\n", "fp32", 1),
    "nsys-summary": ("3000", "seconds", 1e-9),
    "nsys-trace": (",500,", "seconds", 1e-9),
    "nsys-launches": ("75200", "seconds", 1e-9),
    "torch": ("1.5", "seconds", 1e-6),
}


def readings(text: str) -> set[Decimal]:
    """The number in a text with a decimal point or comma; the other mark is ignored. `5%` is 0.05."""
    total = re.sub(r"\(.*\)\s*$", "", text).strip()
    total, parts = (total[:-1].rstrip(), 100) if total.endswith("%") else (total, 1)
    plain = re.sub(r"(?<=\d)[\s'’](?=\d)", "", total)
    found = set()
    for mark, other in ((".", ","), (",", ".")):
        written = plain.replace(other, "").replace(mark, ".")
        if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", written, re.ASCII):
            found.add(Decimal(written) / parts)
    return found


@pytest.mark.parametrize("name", CELLS)
@settings(max_examples=150, deadline=None)
@given(text=st.one_of(st.text("0123456789.,", max_size=12), st.text("0123456789.,-+eE ()/na%'x٣", max_size=12)))
def test_a_cell_is_a_number_or_empty_or_an_error(name: str, text: str, file: Path) -> None:
    cell, what, scale = CELLS[name]
    number, rounded = cell.strip(", \n"), 5.01e-10 if name == "torch" else 0  # seconds; whole nanoseconds in traces
    damaged = facts_and_warnings(TEXTS[name].replace(cell, cell.replace(number, text), 1), file)
    if damaged is None:
        return
    whole = facts(tuple(read(TEXTS[name], file).kernels))
    gained = damaged[0] - whole
    assert sum(gained.values()) <= 1
    for _, changed, value in gained:
        assert changed == what
        assert any(value == pytest.approx(float(r) * scale, rel=1e-12, abs=rounded) for r in readings(text)), text
