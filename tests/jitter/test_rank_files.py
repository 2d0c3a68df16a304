"""`roof jitter` on Parquet files of ranks: in one process, in several processes, and on a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roofmodel
from roofmodel.errors import RoofError
from roofmodel.jitter import reduced_steps, runs
from roofmodel.jitter.answer import to_dict
from roofmodel.jitter.jitter import Jitter, jitter
from roofmodel.jitter.rank_files import StoredKernels
from roofmodel.jitter.reduced_steps import RankBatch, TimeSums, sum_ranks
from roofmodel.profiles.kernel import KernelTable
from roofmodel.sweep import processes
from tests.jitter.runs import Row, of_step, planted, tables, write, written
from tests.profiles.samples import measured

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """CSV files of eight ranks with a slow GPU and a late CPU."""
    return written(tmp_path_factory.mktemp("csv"), planted(("gpu", 2, 0.05), ("cpu", 5, 0.05), ranks=8, steps=6))


@pytest.fixture(scope="module")
def stored(files: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of their Parquet files."""
    folder = tmp_path_factory.mktemp("parquet")
    jitter(files, cache=str(folder))
    return folder


def result(found: Jitter) -> dict[str, Any]:
    """The result without file names."""
    content = to_dict(found)
    for rank in content["ranks"]:
        del rank["file"]
    del content["source"]
    return content


def copied(stored: Path, folder: Path) -> list[Path]:
    """A copy of the Parquet files, by rank."""
    return [Path(shutil.copy(path, folder)) for path in sorted(stored.iterdir())]


def test_parquet_files_give_the_result_of_their_profiler_files(files: list[str], stored: Path) -> None:
    expected = result(jitter(files))
    assert {(cause["kind"], *cause["ranks"]) for cause in expected["causes"]} == {("gpu", 2), ("cpu", 5)}
    assert result(jitter(files, cache=str(stored))) == expected
    assert result(jitter([str(stored)])) == expected


def test_step_tables_saved_as_parquet_give_the_result_of_their_csv(files: list[str], tmp_path: Path) -> None:
    import pandas

    for path in files[:3]:
        pandas.read_csv(path).to_parquet(tmp_path / f"{Path(path).stem}.parquet")
    assert result(jitter([str(tmp_path)])) == result(jitter(files[:3]))
    damaged = tmp_path / "rank001.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    found = jitter([str(tmp_path), files[3]])
    assert [rank.rank.number for rank in found.ranks] == [0, 2, 3]
    assert any("rank001.parquet" in str(warning) and "left out" in str(warning) for warning in found.warnings)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_step_table_without_a_column_is_named_with_the_column(files: list[str], tmp_path: Path, suffix: str) -> None:
    import pandas

    for number, path in enumerate(files[:3]):
        table = pandas.read_csv(path)
        if number == 2:
            table = table.drop(columns=["kernel_start", "crt_end"])
        name = tmp_path / f"rank{number}.{suffix}"
        table.to_csv(name, index=False) if suffix == "csv" else table.to_parquet(name)
    found = jitter([str(tmp_path)])
    assert [rank.rank.number for rank in found.ranks] == [0, 1]
    assert any(f"rank2.{suffix}: no columns crt_end, kernel_start; a table" in str(text) for text in found.warnings)


def test_ranks_of_one_file_per_step_give_the_same_result_from_parquet(tmp_path: Path) -> None:
    table_of = tables(planted(("input", 1, 0.1), ranks=3, steps=4))
    paths = [
        write(tmp_path / f"{rank}_{step}.csv", of_step(table, step))
        for rank, table in table_of.items()
        for step in range(4)
    ]
    assert result(jitter(paths, cache=str(tmp_path / "parquet"))) == result(jitter(paths))


def test_two_ranks_of_one_export_give_the_same_result_from_parquet(tmp_path: Path) -> None:
    export = str(measured("traces/nsys/two_ranks_training_h100.sqlite"))
    assert result(jitter([export], cache=str(tmp_path))) == result(jitter([export]))
    assert len(list(tmp_path.iterdir())) == 1


def test_an_interrupted_conversion_continues_with_the_missing_ranks(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def until_the_fourth(path: str) -> Any:
        read.append(path)
        if len(read) == 4:
            raise KeyboardInterrupt
        return original(path)

    original: Callable[[str], Any] = runs.reading.read_file
    monkeypatch.setattr(processes, "usable_processes", lambda wanted: 1)
    monkeypatch.setattr(runs.reading, "read_file", until_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        jitter(files, cache=str(tmp_path))
    complete = len(list(tmp_path.glob("*.parquet")))
    assert complete >= 3
    read.clear()
    monkeypatch.setattr(runs.reading, "read_file", lambda path: read.append(path) or original(path))
    assert result(jitter(files, cache=str(tmp_path))) == result(jitter(files, cache=None))
    assert len(set(read[: len(files) - complete])) == len(files) - complete
    assert len(list(tmp_path.iterdir())) == len(files)


def test_a_changed_profiler_file_is_converted_again(tmp_path: Path) -> None:
    folder, cache = tmp_path / "csv", tmp_path / "parquet"
    folder.mkdir()
    paths = written(folder, planted(("cpu", 2, 0.1), ranks=4, steps=4))
    assert [(cause.kind, cause.ranks) for cause in jitter(paths, cache=str(cache)).causes] == [("cpu", (2,))]
    before = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    written(folder, planted(("gpu", 1, 0.1), ranks=4, steps=4))
    os.utime(paths[3], ns=(0, 0))
    found = jitter(paths, cache=str(cache))
    assert [(cause.kind, cause.ranks) for cause in found.causes] == [("gpu", (1,))]
    assert before.keys() == set(cache.iterdir())
    assert all(path.stat().st_mtime_ns > time for path, time in before.items())


@pytest.mark.parametrize("place", [-20, 4, 0.5])
def test_a_damaged_parquet_file_is_named_and_the_other_ranks_are_compared(
    stored: Path, tmp_path: Path, place: float
) -> None:
    """The file is truncated, or one byte of a column is changed, which only the checksum of the page detects."""
    paths = copied(stored, tmp_path)
    data = bytearray(paths[7].read_bytes())
    if place == 0.5:
        data[len(data) // 4] ^= 0xFF
        paths[7].write_bytes(data)
    else:
        paths[7].write_bytes(data[: int(place)])
    found = jitter([str(tmp_path)])
    assert [rank.rank.number for rank in found.ranks] == list(range(7))
    assert any(paths[7].name in str(warning) and "left out" in str(warning) for warning in found.warnings)
    assert {(cause.kind, cause.ranks) for cause in found.causes} == {("gpu", (2,)), ("cpu", (5,))}


def test_a_damaged_parquet_file_in_the_cache_is_converted_again(files: list[str], stored: Path, tmp_path: Path) -> None:
    paths = copied(stored, tmp_path)
    paths[3].write_bytes(paths[3].read_bytes()[:1000])
    assert result(jitter(files, cache=str(tmp_path))) == result(jitter(files))


@pytest.mark.parametrize("rank", [0, 7])
def test_a_rank_with_damaged_times_is_left_out(stored: Path, tmp_path: Path, rank: int) -> None:
    """The alignment reads the times of rank 0; the sums read the times of all ranks."""
    from pyarrow import parquet

    paths = copied(stored, tmp_path)
    column = parquet.read_metadata(paths[rank]).row_group(0).column(4)  # start
    data = bytearray(paths[rank].read_bytes())
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 0xFF
    paths[rank].write_bytes(data)
    found = jitter([str(tmp_path)])
    assert [each.rank.number for each in found.ranks] == [number for number in range(8) if number != rank]
    assert any(paths[rank].name in str(warning) and "left out" in str(warning) for warning in found.warnings)


def test_the_alignment_reads_one_rank_per_sequence_of_kernels(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = StoredKernels.load_sequence

    def counted(kernels: StoredKernels) -> KernelTable:
        read.append(kernels.path)
        return original(kernels)

    monkeypatch.setattr(StoredKernels, "load_sequence", counted)
    assert len(jitter([str(stored)]).ranks) == 8
    assert len(read) == 1


def test_a_missing_rank_and_a_copied_rank_are_named(stored: Path, tmp_path: Path) -> None:
    paths = copied(stored, tmp_path)
    shutil.copy(paths[0], tmp_path / "copy.parquet")
    paths[6].unlink()
    found = jitter([str(tmp_path)])
    assert [rank.rank.number for rank in found.ranks] == [0, 1, 2, 3, 4, 5, 7]
    assert any("counts once" in str(warning) for warning in found.warnings)
    assert any("1 rank without a file: 6" in str(warning) for warning in found.warnings)


def test_a_rank_with_one_step_less_is_compared_in_the_other_steps_from_parquet(tmp_path: Path) -> None:
    table_of: dict[int, list[Row]] = tables(planted(ranks=4, steps=4))
    missing = of_step(table_of[2], 1)
    table_of[2] = [row for row in table_of[2] if row not in missing]
    paths = [write(tmp_path / f"rank{rank}.csv", table) for rank, table in table_of.items()]
    found = jitter(paths, cache=str(tmp_path / "parquet"))
    assert any("rank 2 does not have 1 step" in str(warning) for warning in found.warnings)
    assert result(found) == result(jitter(paths))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster": "local"}, r"cluster.* needs Parquet files of the ranks"),
        ({"cache": "{file}"}, "not a folder that can be written"),
    ],
)
def test_unusable_folders_and_clusters_are_refused(files: list[str], options: dict[str, str], message: str) -> None:
    options = {name: value.format(file=files[0]) for name, value in options.items()}
    with pytest.raises(RoofError, match=message):
        roofmodel.jitter(*files, **options)


# --- Several processes ----------------------------------------------------------------------------------------


def test_several_processes_give_the_result_of_one(
    files: list[str], stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduced_steps, "BATCH", 2)
    monkeypatch.setattr(processes, "usable_processes", lambda wanted: 1)
    expected = jitter([str(stored)])
    asked: list[int] = []
    monkeypatch.setattr(processes, "usable_processes", lambda wanted: asked.append(wanted) or 2)
    found = jitter([str(stored)])
    assert max(asked) == 2  # 8 ranks in 4 batches
    assert_equal(found, expected)
    assert_equal(jitter(files, cache=str(tmp_path)), jitter(files))


def assert_equal(found: Jitter, expected: Jitter) -> None:
    """Assert that all numbers are equal, bit for bit."""
    assert result(found) == result(expected)
    assert np.array_equal(found.lateness, expected.lateness)
    assert np.array_equal(found.clocks.offsets, expected.clocks.offsets)
    assert found.curves is not None
    assert expected.curves is not None
    for own, other in zip(found.curves.deviations, expected.curves.deviations, strict=True):
        assert np.array_equal(own, other)


def test_ranks_of_a_killed_process_are_computed_again(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = jitter([str(stored)])
    flag = tmp_path / "killed"
    monkeypatch.setenv("ROOF_TEST_KILL", str(flag))
    monkeypatch.setattr(reduced_steps, "BATCH", 2)
    monkeypatch.setattr(reduced_steps, "sum_ranks", kills_its_worker_once)
    monkeypatch.setattr(processes, "usable_processes", lambda wanted: 2)
    found = jitter([str(stored)])
    assert flag.exists()
    assert_equal(found, expected)


# --- Dask -----------------------------------------------------------------------------------------------------


def kills_its_worker_once(batch: RankBatch) -> TimeSums:
    """As `sum_ranks`, but the first worker with ranks from 4 on dies after its work."""
    found = sum_ranks(batch)
    flag = Path(os.environ["ROOF_TEST_KILL"])
    assert multiprocessing.parent_process() is not None or flag.exists()
    if batch.tasks[0].place >= 4 and not flag.exists():
        flag.touch()
        os._exit(1)
    return found


@pytest.mark.filterwarnings("default")  # Dask's own warnings are not errors
def test_a_killed_worker_loses_no_rank_and_counts_none_twice(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    flag = tmp_path / "killed"
    monkeypatch.setenv("ROOF_TEST_KILL", str(flag))  # inherited by the workers
    expected = result(jitter([str(stored)]))
    monkeypatch.setattr(reduced_steps, "BATCH", 2)
    monkeypatch.setattr(reduced_steps, "sum_ranks", kills_its_worker_once)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        found = jitter([str(stored)], cluster=cluster.scheduler_address)
    assert flag.exists()
    assert result(found) == expected


@pytest.mark.parametrize("columns", [("time", "loss"), ("dp_rank", "stage", "rank", "step", "start_ts", "duration")])
def test_another_parquet_file_is_refused_with_its_columns_and_the_files_that_are_read(
    tmp_path: Path, columns: tuple[str, ...]
) -> None:
    import pandas

    path = tmp_path / "other.parquet"
    pandas.DataFrame({column: [1] for column in columns}).to_parquet(path)
    with pytest.raises(RoofError) as raised:
        jitter([str(path)])
    text = str(raised.value)
    assert text.startswith(f"{path}: not a profiler export but a Parquet file ({', '.join(columns)}); supported: ")
    assert "Nsight Systems" in text
    assert "kernel_start, kernel_stream" in text  # a table of kernels
    assert "cache" in text  # files of ranks
    with pytest.raises(RoofError, match="not a profiler export but a Parquet file; supported tools: "):
        roofmodel.trace(path)
