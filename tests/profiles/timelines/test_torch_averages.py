"""The printed table of PyTorch's key_averages."""

from __future__ import annotations

import io

import pytest

from roofmodel.errors import ProfileError
from roofmodel.profiles import signatures
from roofmodel.profiles.timelines import torch_averages
from roofmodel.profiles.timelines.kernels import profile

COLUMNS = ("Name", "Self CPU", "CPU total", "Self CUDA", "Self CUDA %", "CUDA total", "# of Calls")
ROWS = (
    ("aten::mm", "1.000ms", "2.000ms", "3.000ms", "60.00%", "3.000ms", "10"),
    ("cudaLaunchKernel", "100.000us", "100.000us", "0.000us", "0.00%", "0.000us", "10"),
    ("ampere_sgemm_128x64_tn", "0.000us", "0.000us", "3.000ms", "60.00%", "3.000ms", "10"),
    ("Memcpy HtoD (Pinned -> Device)", "0.000us", "0.000us", "2.000ms", "40.00%", "2.000ms", "4"),
)


def table(*rows: tuple[str, ...], columns: tuple[str, ...] = COLUMNS) -> bytes:
    """As PyTorch prints it: right-aligned cells, two blanks between them, and lines of dashes around the header."""
    widths = [max(len(row[i]) for row in (columns, *rows)) for i in range(len(columns))]
    dashes = "  ".join("-" * width for width in widths) + "  \n"
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (columns, *rows)]
    body = "".join(f"{line}  \n" for line in lines[1:])
    return f"{dashes}{lines[0]}  \n{dashes}{body}{dashes}Self CUDA time total: 5.000ms\n".encode()


def read(content: bytes):
    assert signatures.key_averages(content)
    return profile(torch_averages.read(io.BytesIO(content), "averages.txt"))


def test_kernels_have_rows_of_their_own_and_operators_repeat_their_times():
    found = read(table(*ROWS))
    (gemm,) = found.kernels
    assert (gemm.name, gemm.invocations, gemm.seconds) == ("ampere_sgemm_128x64_tn", 10, pytest.approx(3e-3))
    (copy,) = found.copies
    assert (copy.direction, copy.invocations, copy.seconds) == ("HtoD", 4, pytest.approx(2e-3))
    assert "export_chrome_trace" in found.warnings[0]


def test_a_table_without_rows_of_kernels_has_its_operators():
    found = read(table(*ROWS[:2]))
    assert [each.name for each in found.kernels] == ["aten::mm"]
    assert any("operators are listed" in text for text in found.warnings)


def test_cut_names_are_told_with_the_option_that_prints_them():
    assert any("max_name_column_width=None" in text for text in read(table(("void k<3, ...", *ROWS[2][1:]))).warnings)


def test_a_time_that_is_none_is_refused_with_its_line():
    with pytest.raises(ProfileError, match=r"averages.txt:4: '3.000' is not a time"):
        read(table(("k", "0.000us", "0.000us", "3.000", "60.00%", "3.000ms", "10")))


def test_a_table_of_the_cpu_alone_is_not_taken_for_one_of_a_gpu():
    columns = ("Name", "Self CPU", "CPU total", "# of Calls")
    assert not signatures.key_averages(table(("aten::mm", "1.000ms", "2.000ms", "10"), columns=columns))
