"""Tables of training operations: what is read, what is left out with a warning, and what is refused."""

from __future__ import annotations

import contextlib
import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest

import roofmodel
from roofmodel.errors import ProfileError
from roofmodel.profiles.operation_table import are_operation_tables, read_operations
from tests.jitter.pipelines.jobs import job, random_seconds, written
from tests.profiles.samples import measured


def rows() -> pandas.DataFrame:
    return job(random_seconds(0), dp=2, stages=2, steps=2)


@pytest.mark.parametrize(("name", "number"), [("ST", 6784), ("SE", 107_328)])
def test_published_traces_are_read_whole(name: str, number: int) -> None:
    path = measured(f"traces/stragglers/trace-{name}.parquet")
    assert are_operation_tables([path])
    found = read_operations(path)
    assert len(found.rows) == number
    assert not found.warnings


def test_times_are_seconds_from_start_to_end(tmp_path: Path) -> None:
    original = rows()
    found = read_operations(written(tmp_path, original)).rows
    assert found["end"].sum() == pytest.approx((original["start_ts"] + original["duration"]).sum())
    assert list(found["step"].unique()) == [0, 1]


def test_a_range_of_steps_excludes_its_end(tmp_path: Path) -> None:
    table = read_operations(written(tmp_path, job(random_seconds(0), steps=4)))
    assert set(table.between_steps(1, 3).rows["step"]) == {1, 2}


@pytest.mark.parametrize("column", ["stage", "duration", "mc"])
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    path = written(tmp_path, rows().drop(columns=column))
    assert are_operation_tables([path])
    with pytest.raises(ProfileError, match=f"no column '{column}'; a table of training operations has the columns"):
        read_operations(path)


def test_a_column_of_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"column 'duration' has .* values, not numbers"):
        read_operations(written(tmp_path, rows().astype({"duration": str})))


def test_a_fraction_as_step_is_refused(tmp_path: Path) -> None:
    table = rows().astype({"step": float})
    table.loc[3, "step"] = 0.5
    with pytest.raises(ProfileError, match=r"row 3: step is 0\.5, not an integer"):
        read_operations(written(tmp_path, table))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_rows_with_impossible_times_are_left_out_with_a_warning(tmp_path: Path, value: float) -> None:
    table = rows()
    table.loc[[5, 9], "duration"] = value
    found = read_operations(written(tmp_path, table))
    assert len(found.rows) == len(table) - 2
    assert "2 rows with a missing number or a negative duration" in found.warnings[0]
    assert "rows 5, 9, counted from 0" in found.warnings[0]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("column", ["step", "rank", "mb_id"])
@pytest.mark.parametrize("value", [1e30, -1e30, 2.0**63])
def test_integers_beyond_64_bits_are_left_out_with_a_warning(tmp_path: Path, column: str, value: float) -> None:
    table = rows().astype({column: float})
    table.loc[[5, 9], column] = value
    found = read_operations(written(tmp_path, table))
    assert len(found.rows) == len(table) - 2
    assert "rows 5, 9, counted from 0" in found.warnings[0]


def test_unsigned_integers_beyond_63_bits_are_left_out_with_a_warning(tmp_path: Path) -> None:
    table = rows().astype({"rank": np.uint64})
    table.loc[[5, 9], "rank"] = np.uint64(2**64 - 1)
    found = read_operations(written(tmp_path, table))
    assert len(found.rows) == len(table) - 2
    assert "rows 5, 9, counted from 0" in found.warnings[0]


def test_integer_columns_with_missing_values_are_read(tmp_path: Path) -> None:
    table = rows().astype({"step": "Int64"})
    table.loc[2, "step"] = pandas.NA
    found = read_operations(written(tmp_path, table))
    assert len(found.rows) == len(table) - 1
    assert found.warnings


def test_repeated_rows_are_used_once(tmp_path: Path) -> None:
    table = rows()
    found = read_operations(written(tmp_path, pandas.concat([table, table[:3]])))
    assert len(found.rows) == len(table)
    assert "3 rows are repeated" in found.warnings[0]


def test_contradictory_rows_are_left_out(tmp_path: Path) -> None:
    table = rows()
    found = read_operations(written(tmp_path, pandas.concat([table, table[4:5].assign(duration=9.0)])))
    assert len(found.rows) == len(table) - 1
    assert "2 rows contradict another row" in found.warnings[0]


def test_a_second_rank_of_a_worker_is_left_out(tmp_path: Path) -> None:
    table = rows()
    second = table[table["rank"] == 3].assign(rank=7)
    found = read_operations(written(tmp_path, pandas.concat([table, second])))
    assert len(found.rows) == len(table)
    assert "has operations of ranks 3 and 7; the lowest rank is analyzed, ranks 7 are left out" in found.warnings[0]


def test_a_copied_rank_is_named(tmp_path: Path) -> None:
    table = rows()
    table = table[table["dp_rank"] == 0]
    copy = table.assign(dp_rank=1, rank=table["rank"] + 1)
    found = read_operations(written(tmp_path, pandas.concat([table, copy])))
    assert [warning.split(": ", 1)[1] for warning in found.warnings] == [
        "ranks 0 and 1 of stage 0 have equal times: probably a copy",
        "ranks 2 and 3 of stage 1 have equal times: probably a copy",
    ]


def test_workers_with_the_same_rank_are_named(tmp_path: Path) -> None:
    (warning,) = read_operations(written(tmp_path, rows().replace({"rank": {3: 2}}))).warnings
    assert "rank 2 stands for dp_rank 0, stage 1 and dp_rank 1, stage 1" in warning


def test_a_table_without_usable_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="without usable rows"):
        read_operations(written(tmp_path, rows()[:0]))


def test_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    table = rows()
    shuffled = written(tmp_path, table.sample(frac=1, random_state=1), "shuffled.parquet")
    pandas.testing.assert_frame_equal(
        read_operations(written(tmp_path, table)).rows, read_operations(shuffled).rows, check_categorical=False
    )


def test_other_parquet_files_are_not_recognized(tmp_path: Path) -> None:
    path = tmp_path / "kernels.parquet"
    pandas.DataFrame({"name": ["gemm"], "start": [1], "step": [0]}).to_parquet(path)
    assert not are_operation_tables([path])
    path.write_text("ID,Kernel Name")
    assert not are_operation_tables([path])


@pytest.mark.parametrize("length", [10, 4000])
def test_a_truncated_file_is_refused(tmp_path: Path, length: int) -> None:
    path = written(tmp_path, rows())
    path.write_bytes(path.read_bytes()[:length])
    assert are_operation_tables([path])
    with pytest.raises(ProfileError, match="not a readable Parquet file"):
        read_operations(path)


def test_files_of_ranks_are_one_table_and_damaged_ones_are_left_out(tmp_path: Path) -> None:
    table = rows()
    paths = [written(tmp_path, table[table["rank"] == rank], f"rank{rank}.parquet") for rank in range(4)]
    found = read_operations(*paths)
    pandas.testing.assert_frame_equal(
        found.rows.drop(columns="file"), read_operations(written(tmp_path, table)).rows.drop(columns="file")
    )
    assert found.files == tuple(map(str, paths))
    assert [set(found.rows["rank"][found.rows["file"] == file]) for file in range(4)] == [{0}, {1}, {2}, {3}]
    paths[2].write_bytes(paths[2].read_bytes()[:500])
    assert are_operation_tables(paths)
    found = read_operations(*paths)
    assert set(found.rows["rank"]) == {0, 1, 3}
    assert "rank2.parquet: not a readable Parquet file" in found.warnings[0]
    assert "this file is left out" in found.warnings[0]


def test_compressed_files_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, rows())
    packed = tmp_path / "job.parquet.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert are_operation_tables([packed])
    pandas.testing.assert_frame_equal(read_operations(packed).rows, read_operations(path).rows)


def test_recognition_does_not_read_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ID,Kernel Name")))
    assert not are_operation_tables(["-"])
    assert sys.stdin.read() == "ID,Kernel Name"


def test_files_of_two_kinds_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "kernels.csv"
    other.write_text("ID,Kernel Name")
    with pytest.raises(ProfileError, match=r"kernels\.csv: not a table of training operations"):
        are_operation_tables([written(tmp_path, rows()), other])


def test_damaged_pages_cause_no_error_but_profile_error(tmp_path: Path) -> None:
    path = written(tmp_path, rows())
    content = path.read_bytes()
    for place in range(4, len(content), 97):
        path.write_bytes(content[:place] + bytes(8) + content[place + 8 :])
        with contextlib.suppress(ProfileError):
            read_operations(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="no such file"):
        are_operation_tables([tmp_path / "none.parquet"])
    with pytest.raises(ProfileError, match="no such file"):
        read_operations(tmp_path / "none.parquet")


def test_without_pyarrow_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, rows())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ProfileError, match="Parquet needs pyarrow: pip install pyarrow, or the extra `trace`"):
        read_operations(path)


def test_a_table_of_operations_among_profiles_is_refused_with_the_command_that_reads_it(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"roofmodel\.jitter\(\)") as refused:
        roofmodel.trace(written(tmp_path, rows()))
    assert "unknown binary format" not in str(refused.value)
