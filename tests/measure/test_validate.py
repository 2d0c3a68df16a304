"""Bounds of measured operations derived by hand, tables with errors, and the output of `roof validate`."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from rich.console import Console

from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.errors import ProfileError
from roofmodel.measure import table as table_module
from roofmodel.measure.operations import OPERATIONS, PRECISIONS
from roofmodel.measure.table import reason_lines
from roofmodel.measure.validate import errors, faster_experts, faster_than_bound, validate
from roofmodel.measure.validate_answer import MAX_LARGE_DOTS
from roofmodel.measure.validate_command import ValidationReport
from tests.profiles.samples import measured

A100, H100 = Device.load("a100"), Device.load("h100")
BANDWIDTH = 2039e9  # A100 80 GB
FP16, CUDA = 312e12, 19.5e12


def table(folder: Path, *rows: dict[str, object]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    file = folder / "table.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, columns)
        writer.writeheader()
        writer.writerows(rows)
    return str(file)


GEMM = {"op": "gemm", "dtype": "float16", "m": 1024, "n": 1024, "k": 1024, "latency_us": 10}
CONTEXT = {
    "op": "attn_context", "dtype": "bfloat16", "batch": 2, "heads": 8, "kv_heads": 2, "head_dim": 128, "seq": 4096,
    "kv_len": 4096, "window": 0, "latency_us": 1000,
}  # fmt: skip
GENERATION = CONTEXT | {"op": "attn_generation", "seq": 1, "kv_len": 1000, "latency_us": 20}
NCCL = {
    "op": "nccl", "dtype": "half", "collective": "all_reduce", "num_gpus": 4, "elements": 10**6, "latency_us": 50,
}  # fmt: skip
MOE = {
    "op": "moe", "dtype": "bfloat16", "tokens": 1, "hidden": 64, "inter": 32, "topk": 2, "experts": 8,
    "latency_us": 20,
}  # fmt: skip
PAIRS = 4096 * 4097 / 2  # each query attends to itself and all keys before it

BOUNDS = {
    "a square GEMM is compute-bound": (GEMM, 2 * 1024**3 / FP16),
    "a GEMM with one row is bound by reading its weights": (
        GEMM | {"m": 1}, 2 * (1024 + 1024**2 + 1024) / BANDWIDTH,
    ),
    "weights of 8 bits": (GEMM | {"m": 1, "dtype": "int8_wo"}, (2 * 1024 + 1024**2 + 2 * 1024) / BANDWIDTH),
    # 4 bits per weight, and 20 bits for scale and zero point per 128 weights
    "weights of 4 bits": (
        GEMM | {"m": 1, "dtype": "int4_wo"}, (2 * 1024 + 1024**2 * (4 + 20 / 128) / 8 + 2 * 1024) / BANDWIDTH,
    ),
    "causal attention": (CONTEXT, 2 * 8 * PAIRS * 128 * 4 / FP16),
    # keys and values of 1000 tokens and 2 heads, read once; queries and outputs of 8 heads
    "decode attention": (GENERATION, 2 * 2 * (2 * 1000 * 2 * 128 + 2 * 8 * 128) / BANDWIDTH),
    "keys and values of 8 bits": (
        GENERATION | {"kv_dtype": "fp8"}, 2 * (2 * 1000 * 2 * 128 + 2 * 2 * 8 * 128) / BANDWIDTH,
    ),
    "a sliding window": (
        GENERATION | {"window": 100}, 2 * 2 * (2 * 100 * 2 * 128 + 2 * 8 * 128) / BANDWIDTH,
    ),
    # one token reads two experts with three matrices each, two routing weights and x, and writes y
    "MoE": (MOE, 2 * (2 * 3 * 64 * 32 + 2 + 64 + 64) / BANDWIDTH),
    "MoE on four GPUs": (
        # of 2 experts per GPU, the token uses 2 (1 - (1 - 2/8)) = 0.5 on average
        MOE | {"moe_ep": 4}, 2 * (0.5 * 3 * 64 * 32 + 0.5 + 64 + 64) / BANDWIDTH,
    ),
    # 3 tokens with balanced routing give 6 rows in 6 experts
    "MoE with balanced routing": (
        MOE | {"tokens": 3, "distribution": "balanced"}, 2 * (6 * 3 * 64 * 32 + 6 + 2 * 3 * 64) / BANDWIDTH,
    ),
    "MoE without gated experts": (MOE | {"kernel": "my_nongated"}, 2 * (2 * 2 * 64 * 32 + 2 + 64 + 64) / BANDWIDTH),
    # each of four GPUs sends 3/4 of the 2 MB in the ring's reduce-scatter and again in its all-gather
    "an all-reduce": (NCCL, 2 * 1.5e6 / 300e9),
    "an all-gather": (NCCL | {"collective": "all_gather"}, 1.5e6 / 300e9),
    "a reduce-scatter of bytes": (NCCL | {"collective": "reduce_scatter", "dtype": "int8"}, 0.75e6 / 300e9),
    "an all-to-all": (NCCL | {"collective": "alltoall", "num_gpus": 2}, 1e6 / 300e9),
    "an engine's all-reduce": (NCCL | {"op": "custom_allreduce", "dtype": "bfloat16"}, 2 * 1.5e6 / 300e9),
    "softmax": ({"op": "softmax", "dtype": "half", "m": 64, "n": 1000, "latency_us": 5}, 2 * 2 * 64000 / BANDWIDTH),
    "layer norm": (
        {"op": "layernorm", "dtype": "half", "m": 64, "n": 1000, "latency_us": 5},
        2 * (2 * 64000 + 2 * 1000) / BANDWIDTH,
    ),
    "an addition": ({"op": "add", "dtype": "half", "tokens": 9, "hidden": 100, "latency_us": 5}, 2 * 2700 / BANDWIDTH),
}  # fmt: skip


def test_the_expected_time_of_a_row_does_not_depend_on_other_rows(tmp_path: Path) -> None:
    """One query per sequence is a decode, also next to rows with several queries."""
    decode, prefill = CONTEXT | {"seq": 1, "kv_len": 4096}, CONTEXT | {"seq": 16, "kv_len": 4096}
    both = validate(table(tmp_path, decode, prefill), A100).expected
    single = [validate(table(tmp_path, row), A100).expected[0] for row in (decode, prefill)]
    assert both.tolist() == single


@pytest.mark.parametrize("case", BOUNDS)
def test_a_bound_equals_the_one_derived_by_hand(case: str, tmp_path: Path) -> None:
    row, seconds = BOUNDS[case]
    found = validate(table(tmp_path, row), A100)
    assert found.skipped == {}
    assert found.bound[0] == pytest.approx(seconds, rel=1e-12, abs=0)


def test_errors_are_relative_to_the_measurement() -> None:
    found = errors(np.array([5.0, 30.0, 8.0]), np.array([10.0, 20.0, 10.0]))  # -50 %, +50 %, -20 %
    assert found == pytest.approx((0.4, 0.5, 0.5, -0.2 / 3))


def test_rows_without_a_bound_have_a_note_and_the_others_are_predicted(tmp_path: Path) -> None:
    rows = (
        GEMM, GEMM | {"op": "gem"}, GEMM | {"dtype": "fp7"}, GEMM | {"m": "?"}, GEMM | {"latency_us": 0},
        GEMM | {"dtype": "fp8"}, GEMM, MOE | {"distribution": "zipf"}, NCCL | {"collective": "all"},
    )  # fmt: skip
    found = validate(table(tmp_path, *rows), A100)
    assert [note[:24] for note in map(str, found.notes)] == [
        "", "unknown op 'gem'; did yo", "unknown dtype 'fp7'; did", "gemm: m is '?'; it must ",
        "gemm: latency_us is '0';", "NVIDIA A100 SXM4 80 GB h", "", "unknown distribution 'zi",
        "unknown collective 'all'",
    ]  # fmt: skip
    assert found.all_rows.n == 2
    assert sum(found.skipped.values()) == 7
    assert [*found.skipped_lines.values()][:3] == [[3], [4], [5]]
    assert validate(table(tmp_path, *rows), H100).all_rows.n == 3  # the H100 has fp8


@pytest.mark.parametrize(
    ("row", "note"),
    [
        (GEMM | {"n": 16.5}, "gemm: n is '16.5'; it must be a whole number from 1 to 1000000000000"),
        (GEMM | {"m": 1e30}, "gemm: m is '1e+30'; it must be a whole number from 1 to 1000000000000"),
        (GEMM | {"k": ""}, "gemm: k is ''; it must be a whole number from 1 to 1000000000000"),
        (
            GEMM | {"latency_us": -3},
            "gemm: latency_us is '-3'; it must be a number of microseconds from 0.001 to 1e+12",
        ),
        (
            GEMM | {"latency_us": "inf"},
            "gemm: latency_us is 'inf'; it must be a number of microseconds from 0.001 to 1e+12",
        ),
        (
            GEMM | {"latency_us": "nan"},
            "gemm: latency_us is 'nan'; it must be a number of microseconds from 0.001 to 1e+12",
        ),
        (
            GEMM | {"latency_us": "1e-308"},
            "gemm: latency_us is '1e-308'; it must be a number of microseconds from 0.001 to 1e+12",
        ),
        (
            GEMM | {"latency_us": "1e300"},
            "gemm: latency_us is '1e300'; it must be a number of microseconds from 0.001 to 1e+12",
        ),
        (GEMM | {"dtype": ""}, f"gemm: dtype is empty; known: {', '.join(PRECISIONS)}"),
        (MOE | {"topk": 1000}, "moe: topk is '1000'; it must be at most experts"),
        (MOE | {"moe_ep": 16}, "moe: moe_ep is '16'; it must be at most experts"),
        (CONTEXT | {"heads": 7}, "attn_context: heads is '7'; it must be a multiple of kv_heads"),
    ],
)
def test_the_note_of_a_skipped_row_quotes_the_cell(row: dict[str, object], note: str, tmp_path: Path) -> None:
    assert validate(table(tmp_path, GEMM, row), A100).notes == ["", note]


def test_a_size_may_be_written_with_a_decimal_point(tmp_path: Path) -> None:
    assert not validate(table(tmp_path, GEMM | {"n": "16.0"}), A100).skipped


@pytest.mark.parametrize("written", ["1_28", "\u0661\u0662\u0668", "\uff11\uff12\uff18"])
def test_digits_that_only_python_reads_are_no_size(written: str, tmp_path: Path) -> None:
    """`float` takes underscores and the digits of every script; a spreadsheet reads such cells as text."""
    rows = [{"op": "gemm", "dtype": "fp16", "m": m, "n": 128, "k": 128, "latency_us": 50} for m in ("128", written)]
    assert list(validate(table(tmp_path, *rows), A100).skipped_lines.values()) == [[3]]  # the header is line 1


def test_only_the_first_of_many_reasons_are_listed(tmp_path: Path) -> None:
    found = validate(table(tmp_path, GEMM, *(GEMM | {"m": -m} for m in range(30))), A100)
    first, *_, last = reason_lines(found.skipped_lines)
    assert first == "line 3: gemm: m is '0'; it must be a whole number from 1 to 1000000000000"
    assert last == "20 more lines, for 20 more reasons"


def test_a_table_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "MAX_TABLE", 2**20)
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"op,dtype,latency_us\n" + b"\n" * 2**22))
    for file in (str(path), "/dev/zero"):
        with pytest.raises(ProfileError, match=f"{file}: .*larger than 1 MiB"):
            validate(file, A100)


def test_a_table_without_any_bound_is_refused_with_the_reasons(tmp_path: Path) -> None:
    rows = [GEMM | {"op": "gem"}] * 5 + [GEMM | {"m": 0}]
    with pytest.raises(ProfileError, match=r"on a100-sxm-80gb: lines 2, 3, 4 … \(5\): unknown op .*; line 7: gemm: m"):
        validate(table(tmp_path, *rows), A100)
    (tmp_path / "empty.csv").write_text("op,dtype,latency_us\n")
    with pytest.raises(ProfileError, match="there are no rows below the header"):
        validate(str(tmp_path / "empty.csv"), A100)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("op;dtype;m;n;k;latency_us", "the columns are separated by semicolons; save the file with commas"),
        ("op\tdtype\tm\tn\tk\tlatency_us", "the columns are separated by tabs"),
        (
            "OP,dtype,m,n,k, latency_us",
            r"missing columns: op, latency_us \(it has 'OP', ' latency_us': use lower case",
        ),
        ("op,dtype,m,n,k,m,latency_us", "the header has the column 'm' 2 times; keep one"),
        ("kernel,us", "missing columns: op, dtype, latency_us; a table of measurements has"),
        (
            "op,dtype,m,n,k,latency_ms",
            r"missing columns: latency_us \(it has 'latency_ms': multiply its values by 1000 and rename the column to "
            r"latency_us, for microseconds\)",
        ),
        ("op,dtype,m,n,k,Latency_S", r"missing columns: latency_us \(it has 'Latency_S': multiply .* by 1000000 "),
        ("op,dtype,m,n,k,latency_ns", r"missing columns: latency_us \(it has 'latency_ns': divide .* by 1000 "),
    ],
)
def test_a_wrong_header_is_refused_with_what_is_wrong(header: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(f"{header}\ngemm;fp16;1;2;3;4,5\n")
    with pytest.raises(ProfileError, match=f"table.csv: {message}"):
        validate(str(tmp_path / "table.csv"), A100)


@pytest.mark.parametrize(
    ("gpu", "warns"),
    [
        ("NVIDIA A100-SXM4-80GB", False), ("A100-80GB(SXM or PCIe, unstated)", False), ("", False),
        ("H100-SXM5-80GB", True), ("A100 PCIe 80GB", True), ("A100-SXM4-40GB", True), ("AMD EPYC 7B13", True),
    ],
)  # fmt: skip
def test_rows_of_another_gpu_give_a_warning(gpu: str, warns: bool, tmp_path: Path) -> None:
    found = validate(table(tmp_path, GEMM | {"gpu": gpu}), A100)
    assert found.warnings == ((f"a100-sxm-80gb was given ({A100.name}), but table.csv has rows of {gpu}",) * warns)
    assert ValidationReport(found).to_dict()["warnings"] == list(found.warnings)


@pytest.mark.parametrize(
    ("rows", "faster", "warns"), [(10, 9, True), (10, 8, False), (9, 9, False), (30, 30, True)]
)  # fmt: skip
def test_many_rows_faster_than_the_bound_give_a_question_about_the_unit(
    rows: int, faster: int, warns: bool, tmp_path: Path
) -> None:
    times = [0.01] * faster + [10] * (rows - faster)  # the bound is 6.9 µs; 0.01 is 10 µs in ms
    found = validate(table(tmp_path, *(GEMM | {"latency_us": time} for time in times)), A100)
    question = f"{faster} of {rows} rows are faster than the bound: is latency_us in microseconds?"
    assert found.warnings == (question,) * warns


def save_lines(folder: Path, *lines: str) -> str:
    (folder / "lines.csv").write_text("\n".join(lines))
    return str(folder / "lines.csv")


HEADER, ROW = "op,dtype,m,n,k,latency_us,gpu", "gemm,fp16,1024,1024,1024,10,A100-SXM4-80GB"


def test_blank_lines_are_ignored_and_counted_as_lines(tmp_path: Path) -> None:
    wrong, fast = ROW.replace("gemm", "gem"), ROW.replace(",10,", ",5,")
    found = validate(save_lines(tmp_path, "", HEADER, ROW, "", "  ", wrong, fast, "", "", ""), A100)
    assert list(found.skipped_lines.values()) == [[6]]
    assert [text[:8] for text in faster_than_bound(found)] == ["line 7: "]
    ValidationReport(found).save(tmp_path / "out.csv")
    saved = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [(row["op"], row["latency_us"]) for row in saved] == [("gemm", "10"), ("gem", "10"), ("gemm", "5")]
    assert [bool(row["note"]) for row in saved] == [False, True, False]


def test_a_message_about_a_row_after_a_blank_line_has_its_line(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"lines\.csv:4: the row has 1 cells, but the header has 7"):
        validate(save_lines(tmp_path, HEADER, ROW, "", "gemm"), A100)


def test_a_row_after_a_cell_of_several_lines_has_its_line(tmp_path: Path) -> None:
    found = validate(save_lines(tmp_path, HEADER, ROW.replace("A100", '"A100\n') + '"', ROW, ROW.upper()), A100)
    assert list(found.skipped_lines.values()) == [[5]]


def test_a_file_of_blank_lines_is_empty(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="the file is empty"):
        validate(save_lines(tmp_path, "\ufeff", "", " "), A100)


def test_a_repeated_header_is_skipped_with_its_reason(tmp_path: Path) -> None:
    found = validate(save_lines(tmp_path, HEADER, ROW, HEADER, ROW), A100)
    assert list(reason_lines(found.skipped_lines)) == ["line 3: the row repeats the header"]
    assert found.warnings == ()
    assert found.all_rows.n == 2
    ValidationReport(found).save(tmp_path / "again.csv")
    again = validate(str(tmp_path / "again.csv"), A100)
    assert again.notes == found.notes == ["", "the row repeats the header", ""]
    assert again.table["gpu"] == ("A100-SXM4-80GB", "gpu", "A100-SXM4-80GB")


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_table_in_another_encoding_is_refused_with_a_remedy(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(f"{HEADER},größe\n{ROW},1\n".encode(encoding))
    with pytest.raises(ProfileError, match=r"table\.csv: .* \(not text in UTF-8; save it as UTF-8\)"):
        validate(str(tmp_path / "table.csv"), A100)


def test_the_saved_csv_has_every_row_in_order(tmp_path: Path) -> None:
    rows = [GEMM | {"m": m, "mine": f"a,{m}"} for m in (1, 2, 3)] + [GEMM | {"op": "fft", "mine": ""}]
    found = validate(table(tmp_path, *rows), A100)
    ValidationReport(found).save(tmp_path / "out.csv")
    saved = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["mine"] for row in saved] == ["a,1", "a,2", "a,3", ""]
    assert float(saved[0]["bound_us"]) == pytest.approx(2 * (1024 + 1024**2 + 1024) / BANDWIDTH * 1e6)
    assert saved[3]["bound_us"] == ""
    assert saved[3]["note"].startswith("unknown op 'fft'")
    assert saved[3]["expected_us"] == ""
    for row in saved[:3]:
        times = [float(row[name]) for name in ("bound_us", "expected_low_us", "expected_us", "expected_high_us")]
        assert times == sorted(times)


def test_the_saved_csv_keeps_users_columns_that_have_names_of_predictions(tmp_path: Path) -> None:
    users_table = {"note": "mine", "bound_us": "7", "roof_bound_us": "8"}
    ValidationReport(validate(table(tmp_path, GEMM | users_table), A100)).save(tmp_path / "out.csv")
    (row,) = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert {name: row[name] for name in users_table} == users_table
    assert float(row["roof_roof_bound_us"]) > 0
    assert row["roof_note"] == ""
    assert float(row["expected_us"]) > 0


def test_predictions_of_an_earlier_validation_are_replaced(tmp_path: Path) -> None:
    ValidationReport(validate(table(tmp_path, GEMM), A100)).save(tmp_path / "plain.csv")
    again = validate(str(tmp_path / "plain.csv"), Device.load("v100"))
    ValidationReport(again).save(tmp_path / "second.csv")
    header, row = csv.reader((tmp_path / "second.csv").read_text().splitlines())
    assert header == (tmp_path / "plain.csv").read_text().splitlines()[0].split(",")
    assert row[header.index("bound_us")] == repr(float(again.bound[0]) * 1e6)


@given(st.lists(st.integers(1, 5000), min_size=3, max_size=3), st.sampled_from(["float16", "int8_wo", "int4_wo", "sq"]))
def test_counts_of_many_rows_at_once_equal_those_of_single_rows(sizes: list[int], dtype: str) -> None:
    from roofmodel.measure.operations import PRECISIONS, widths

    form = widths(PRECISIONS[dtype])
    one = OPERATIONS["gemm"].operator(dict(zip("mnk", sizes, strict=True)), form).cost
    arrays = {name: np.array([7.0, size]) for name, size in zip("mnk", sizes, strict=True)}
    many = OPERATIONS["gemm"].operator(arrays, form).cost
    assert (many.flops[1], many.bytes[1]) == (one.flops, one.bytes)


def test_a_gzipped_table_is_read_and_other_files_are_refused(tmp_path: Path) -> None:
    plain = Path(table(tmp_path, GEMM))
    packed = tmp_path / "table.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert validate(str(packed), A100).bound.tolist() == validate(str(plain), A100).bound.tolist()
    (tmp_path / "cut.gz").write_bytes(packed.read_bytes()[:40])
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "ragged.csv").write_text("op,dtype,latency_us\ngemm,fp16\n")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    for name in ("cut.gz", "empty.csv", "other.csv", "ragged.csv", "binary.csv", "absent.csv", "."):
        with pytest.raises(ProfileError, match=r"table|the row has 2 cells, but the header has 3"):
            validate(str(tmp_path / name), A100)


def test_a_measurement_faster_than_its_bound_is_listed(tmp_path: Path) -> None:
    found = validate(table(tmp_path, GEMM, GEMM | {"latency_us": 3.4415}), A100)  # the bound is 6.883 us
    assert list(faster_than_bound(found)) == ["line 3: gemm float16 (m 1024, n 1024, k 1024) took 50% of its bound"]
    assert found.all_rows is not None
    assert found.all_rows.above_the_roof == 1


def test_the_document_has_the_keys_of_the_contract(tmp_path: Path) -> None:
    document = json.loads(ValidationReport(validate(table(tmp_path, GEMM, CONTEXT), A100)).text("json"))
    assert document["schema"] == "roofmodel.validate/1"
    assert set(document["bound"]) == {"mape", "median_ape", "p90_ape", "bias"}
    assert set(document["expected"]) == {*document["bound"], "inside_interval"}
    assert set(document["by_op"]) == {"gemm", "attn_context"}
    assert document["n"] == 2


def test_a_huge_error_does_not_break_the_table(tmp_path: Path) -> None:
    # a bound of 2 (10¹²)³ FLOP / 312 TFLOP/s = 6.41e27 µs, a stated time of 1e-3 µs: an error of 6.41e32 %
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(
        ValidationReport(validate(table(tmp_path, GEMM | dict.fromkeys("mnk", 10**12) | {"latency_us": 1e-3}), A100))
    )
    assert " >9999% " in (shown := console.export_text())
    assert "…" not in shown


def test_long_names_of_parameter_sets_stay_distinguishable(tmp_path: Path) -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    engine = NCCL | {"op": "custom_allreduce", "dtype": "bfloat16"}
    rows = ({**engine, "kernel": f"SGLang_CustomAllReduce_{mode}"} for mode in ("eager", "graph"))
    console.print(ValidationReport(validate(table(tmp_path, *rows), A100)))
    shown = console.export_text()
    assert "…" not in shown
    assert " eager " in shown
    assert " graph " in shown


def test_kernels_are_listed_by_format(tmp_path: Path) -> None:
    rows = [GEMM | {"kernel": "torch_flow", "dtype": dtype} for dtype in ("bfloat16", "fp8", "fp8_block", "fp8")]
    found = validate(table(tmp_path, *rows), H100)
    assert {name: part.n for name, part in found.by_kernel_and_format.items()} == {
        "gemm: torch_flow fp16/fp16": 1,
        "gemm: torch_flow fp8/fp8": 2,
        "gemm: torch_flow fp8/fp8_block": 1,
    }
    assert {name: part.n for name, part in found.by_set.items()} == {"gemm: torch_flow": 4}


def test_rows_have_their_own_formats_where_the_parameters_are_those_of_others(tmp_path: Path) -> None:
    """The GEMMs of A100's tables are in 16 and 8 bits: fp32 and tf32 have the parameters of fp16."""
    found = validate(table(tmp_path, *(GEMM | {"dtype": dtype} for dtype in ("float32", "tf32", "fp16"))), A100)
    labels = [name.removesuffix(" (default)") for name in found.by_kernel_and_format]
    assert sorted(labels) == [
        "gemm: any fp16/fp16", "gemm: any fp32/fp32, fit of fp16/fp16", "gemm: any tf32/tf32, fit of fp16/fp16",
    ]  # fmt: skip


def fit_source(device: Device) -> str:
    assert device.calibration is not None
    return device.calibration.gemm["any"]["fp16/fp16"].fit.source


def test_rows_of_the_fits_source_are_fitted_or_held_out(tmp_path: Path) -> None:
    """All rows of a matrix (n, k) are in the same part; a third of the matrices is held out."""
    shapes = [GEMM | {"m": 2**a, "n": 64 * b, "latency_us": 20} for a in range(4, 8) for b in range(1, 41)]
    twice = [row | {"m": int(row["m"]) + 1} for row in shapes]
    source = {"source": fit_source(H100), "kernel": "torch_flow"}
    once, both = (
        validate(table(tmp_path, *({**row, **source} for row in rows)), H100).by_fit
        for rows in (shapes, shapes + twice)
    )
    assert list(once) == list(both) == ["available to the fit", "held out from the fit"]
    assert 0.2 < once["held out from the fit"].n / len(shapes) < 0.5
    assert all(both[name].n == 2 * part.n for name, part in once.items())


def test_rows_of_other_sources_and_of_transferred_parameters_are_unknown_to_the_fit(tmp_path: Path) -> None:
    rows = [GEMM | {"m": 2**a} for a in range(12)]
    ours = validate(table(tmp_path, *({**row, "source": "our lab"} for row in rows)), H100)
    like = validate(table(tmp_path, *({**row, "source": fit_source(H100)} for row in rows)), Device.load("h200"))
    without = validate(table(tmp_path, *rows), H100)
    assert {name: part.n for name, part in ours.by_fit.items()} == {"from another source": 12}
    assert {name: part.n for name, part in like.by_fit.items()} == {"from another source": 12}
    assert without.by_fit == {}
    assert without.fit_sources == (fit_source(H100),)


@pytest.mark.parametrize("form", ["png", "svg", "pdf", "json"])
def test_files_of_each_format_are_written(form: str, tmp_path: Path) -> None:
    found = validate(table(tmp_path, GEMM, CONTEXT), A100)
    assert ValidationReport(found).save(tmp_path / f"out.{form}").stat().st_size > 100


def test_few_rows_have_large_dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[float] = []
    plot = Axes.plot

    def recording_plot(self: Any, *values: Any, **look: Any) -> Any:
        sizes.append(look.get("ms", 0))
        return plot(self, *values, **look)

    monkeypatch.setattr(Axes, "plot", recording_plot)
    for rows in (2, MAX_LARGE_DOTS + 1):
        ValidationReport(validate(table(tmp_path, *[GEMM] * rows), A100)).save(tmp_path / "out.svg")
    of_few_rows, _, of_many_rows, _ = sizes  # the dots, then the line
    assert of_few_rows > 2 * of_many_rows > 0


@pytest.mark.parametrize("name", ["gemm", "attn_context", "attn_generation"])
def test_no_measured_kernel_of_an_a100_is_faster_than_its_bound(name: str) -> None:
    """Counted bytes are compulsory and peaks are physical limits: a faster measurement would show a counting error."""
    found = validate(str(measured(f"ops/aic_a100_sxm_{name}.csv.gz")), A100)
    assert found.skipped == {}
    assert found.all_rows is not None
    assert found.all_rows.above_the_roof == 0


def test_moe_rows_faster_than_uniform_routing_allows_suggest_one_distribution(tmp_path: Path) -> None:
    row = MOE | {
        "tokens": 32,
        "hidden": 4096,
        "inter": 14336,
        "latency_us": 400,
    }  # 8 experts: 1.4 ms
    found = validate(table(tmp_path, row), Device.load("a100"))
    assert faster_experts(found)
    same = validate(table(tmp_path, row | {"distribution": "same"}), Device.load("a100"))
    assert not faster_experts(same)
    assert same.bound[0] == pytest.approx(found.bound[0] * 2 / 8, rel=0.02)


def test_an_engine_chooses_the_kernel_of_rows_that_name_none(tmp_path: Path) -> None:
    """H100: fp16 GEMMs have sets of vLLM, SGLang and TensorRT-LLM. A row with a kernel keeps it."""
    rows = ({"kernel": ""}, {"kernel": "torch_flow"})
    path = tmp_path / "rows.csv"
    lines = [f"gemm,float16,512,4096,4096,{row['kernel']},50" for row in rows]
    path.write_text("\n".join(["op,dtype,m,n,k,kernel,latency_us", *lines]) + "\n")
    found = validate(str(path), H100, Engine.load("sglang"))
    default, named = found.expected
    own = [validate(str(path), H100, Engine.load(name)).expected[0] for name in ("sglang", "trtllm")]
    assert (default, named) == (own[0], own[1])
    assert default != named


def test_equal_cells_of_a_table_are_one_text_in_memory(tmp_path: Path) -> None:
    """A million GEMMs took 1.05 GB, most of it for cells of columns with few values."""
    file = tmp_path / "gemms.csv"
    file.write_text("op,dtype,m,n,k,latency_us\n" + "gemm,bfloat16,16,4096,4096,10.5\n" * 3, encoding="utf-8")
    found = table_module.read(str(file))
    assert [len({*map(id, cells)}) for cells in found.values()] == [1] * 6
