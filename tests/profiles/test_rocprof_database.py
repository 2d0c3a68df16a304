"""Databases of AMD's profilers; the schemas are those of rocprofiler-sdk (rocpd 3) and rocmProfileData (RPD 2)."""

from __future__ import annotations

import io
import json
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings

import roofmodel
from roofmodel.errors import ProfileError
from roofmodel.profiles import rocprof, signatures
from roofmodel.profiles.kernel import Profile
from roofmodel.profiles.reading import read
from roofmodel.profiles.timelines import reading as timelines
from roofmodel.profiles.timelines.kernels import profile
from roofmodel.roofline.judged_kernels import reasons_by_group
from tests.profiles.samples import assert_error_or_table, mutilations

GUID = "_0000b9f1_ca88"
ROCPD = {
    "string": "id string", "info_process": "id pid", "info_agent": "id type name product_name extdata",
    "info_kernel_symbol": "id kernel_name display_name arch_vgpr_count", "event": "id category_id stack_id extdata",
    "info_pmc": "id name", "pmc_event": "id event_id pmc_id value",
    "region": "id pid tid start end name_id event_id",
    "kernel_dispatch": "id pid tid agent_id kernel_id dispatch_id queue_id stream_id start end workgroup_size_x "
    "workgroup_size_y workgroup_size_z grid_size_x grid_size_y grid_size_z event_id",
    "memory_copy": "id pid tid start end name_id dst_agent_id src_agent_id size queue_id stream_id event_id",
}  # fmt: skip
RPD = {
    "string": "id string", "api": "id pid tid start end apiName_id args_id", "api_ops": "id api_id op_id",
    "op": "id gpuId queueId start end description_id opType_id",
    "kernelapi": "api_ptr_id gridX gridY gridZ workgroupX workgroupY workgroupZ", "copyapi": "api_ptr_id size kind",
}  # fmt: skip
GPU = json.dumps({"cu_count": 304, "max_engine_clk_fcompute": 2100, "num_xcc": 8})


def database(path: Path, tables: dict[str, str], suffix: str, rows: dict[str, list[tuple[object, ...]]]) -> Path:
    with sqlite3.connect(path) as connection:
        for table, columns in tables.items():
            names = ", ".join(f'"{column}"' for column in columns.split())
            connection.execute(f'CREATE TABLE "rocpd_{table}{suffix}" ({names})')
            for row in rows.get(table, []):
                marks = ", ".join("?" * len(row))
                connection.execute(f'INSERT INTO "rocpd_{table}{suffix}" VALUES ({marks})', row)
        connection.execute(f'CREATE VIEW IF NOT EXISTS kernels AS SELECT * FROM "rocpd_string{suffix}"')
    connection.close()
    return path


def rocpd(path: Path, counters: dict[str, list[float]] | None = None, guid: str = GUID) -> Path:
    """A copy to the GPU and a GEMM within the range `step`. `counters`: values of each instance, of the GEMM."""
    strings = enumerate(
        ["KERNEL_DISPATCH", "MEMORY_COPY", "HIP_RUNTIME_API_EXT", "MARKER_CORE_RANGE_API", "MEMORY_COPY_HOST_TO_DEVICE",
         "hipLaunchKernel", "hipMemcpyAsync", "step", "roctxThreadRangeA"], 1)  # fmt: skip
    names = [*(counters or {})]
    return database(path, ROCPD, guid, {
        "string": [*strings], "info_process": [(70, 70)],
        "info_agent": [(0, "CPU", "EPYC", "EPYC", "{}"), (2, "GPU", "gfx942", "AMD Instinct MI300X", GPU)],
        "info_kernel_symbol": [(33, "_Z4gemmv.kd", "gemm()", 128)],
        "event": [(1, 4, 5, "{}"), (2, 3, 6, "{}"), (3, 3, 7, "{}"), (4, 2, 6, "{}"), (5, 1, 7, "{}"),
                  (6, 4, 8, '{"message": "gemm"}')],
        "region": [(1, 70, 71, 1_000_000, 1_090_000, 8, 1), (2, 70, 71, 1_010_000, 1_020_000, 7, 2),
                   (3, 70, 71, 1_030_000, 1_040_000, 6, 3), (4, 70, 71, 1_025_000, 1_045_000, 9, 6)],
        "memory_copy": [(1, 70, 71, 1_100_000, 1_110_000, 5, 2, 0, 4096, None, 0, 4)],
        "kernel_dispatch": [(1, 70, 71, 2, 33, 1, 1, 0, 1_200_000, 1_300_000, 256, 1, 1, 512, 2, 1, 5)],
        "info_pmc": [*enumerate(names)],
        "pmc_event": [(0, 5, i, value) for i, name in enumerate(names) for value in (counters or {})[name]],
    })  # fmt: skip


def in_schema_4(path: Path) -> Path:
    """The database of `rocpd`, with places and times in tables of their own."""
    tracks = {"kernel_dispatch": (70, 71, 2, 1, 0), "memory_copy": (70, 71, 2, None, 0), "region": (70, 71)}
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE rocpd_track{GUID} (id, pid, tid, agent_id, queue_id, stream_id)")
        connection.execute(f"CREATE TABLE rocpd_timestamp{GUID} (id, value)")
        for number, (table, place) in enumerate(tracks.items()):
            name, moved = f"rocpd_{table}{GUID}", ["pid", "tid", "agent_id", "queue_id", "stream_id", "start", "end"]
            track = (number, *place, *(None,) * (5 - len(place)))
            connection.execute(f"INSERT INTO rocpd_track{GUID} VALUES (?, ?, ?, ?, ?, ?)", track)
            for column in ("track_id", "start_id", "end_id"):
                connection.execute(f"ALTER TABLE {name} ADD COLUMN {column}")
            for column, shift in (("start", 10 * number), ("end", 10 * number + 100)):
                connection.execute(f'INSERT INTO rocpd_timestamp{GUID} SELECT id + {shift}, "{column}" FROM {name}')
                connection.execute(f"UPDATE {name} SET {column}_id = id + {shift}, track_id = {number}")
            for column in set(moved) & set(ROCPD[table].split()):
                connection.execute(f'ALTER TABLE {name} DROP COLUMN "{column}"')
    connection.close()
    return path


def rpd(path: Path) -> Path:
    """A copy from the GPU, and two kernels: one launched with 512 work items, one with 2 workgroups, of 256 each."""
    strings = ["", "CopyDeviceToHost", "KernelExecution", "hipExtModuleLaunchKernel", "hipLaunchKernel", "UserMarker",
               "hipMemcpyWithStream", "gemm", "copy", "step"]  # fmt: skip
    return database(path, RPD, "", {
        "string": [*enumerate(strings, 1)],
        "api": [(1, 70, 71, 0, 9000, 6, 10), (2, 70, 71, 1000, 2000, 4, 1), (3, 70, 71, 3000, 4000, 5, 1),
                (4, 70, 71, 5000, 6000, 7, 1)],
        "api_ops": [(1, 2, 1), (2, 3, 2), (3, 4, 3)],
        "op": [(1, 2, 0, 10_000, 30_000, 8, 3), (2, 2, 0, 30_000, 35_000, 9, 3), (3, 2, 0, 40_000, 41_000, 1, 2)],
        "kernelapi": [(2, 512, 1, 1, 256, 1, 1), (3, 2, 1, 1, 256, 1, 1)], "copyapi": [(4, 64, 2)],
    })  # fmt: skip


with tempfile.TemporaryDirectory() as folder:
    SQLITE = rocpd(Path(folder, "seed.db"), {"FETCH_SIZE": [10.0]}).read_bytes()
    RPD_SQLITE = rpd(Path(folder, "seed.rpd")).read_bytes()


def test_a_kernel_of_rocpd_has_its_launch_range_sizes_and_device(tmp_path: Path) -> None:
    profile = read([rocpd(tmp_path / "70_results.db")])
    (gemm,) = profile.kernels
    assert (gemm.name, gemm.process, gemm.device, gemm.registers) == ("gemm()", "70", "2", 128)
    assert gemm.seconds == pytest.approx(100e-6)
    assert gemm.nvtx == ("step", "gemm")  # one by its name, one by its message
    assert gemm.start is not None
    assert gemm.launch == pytest.approx(gemm.start - 170e-6)  # of hipLaunchKernel: 1030 us, and the kernel: 1200 us
    assert (gemm.grid, gemm.block) == ((2, 2, 1), (256, 1, 1))  # 512 x 2 work items
    (evidence,) = profile.evidence
    assert (evidence.name, evidence.multiprocessors, evidence.clock) == ("AMD Instinct MI300X", 304, 2100e6)
    assert "1 memory copy or memset is not listed as kernels" in profile.warnings


def test_a_workgroup_that_is_filled_in_part_counts_in_the_grid(tmp_path: Path) -> None:
    """513 x 3 work items in workgroups of 256 x 2: the last of each row and column has fewer."""
    path = rocpd(tmp_path / "70_results.db")
    with sqlite3.connect(path) as connection:
        sizes = "grid_size_x = 513, grid_size_y = 3, workgroup_size_y = 2"
        connection.execute(f"UPDATE rocpd_kernel_dispatch{GUID} SET {sizes}")
    connection.close()
    assert read([path]).kernels[0].grid == (3, 2, 1)


@pytest.mark.parametrize("schema", [3, 4])
def test_a_timeline_of_rocpd_has_copies_and_launches(tmp_path: Path, schema: int) -> None:
    path = rocpd(tmp_path / "70_results.db")
    (timeline,) = timelines.read([path if schema == 3 else in_schema_4(path)])
    copy, gemm = timeline.work.to_dict("records")
    assert (copy["direction"], copy["bytes"], copy["device"], copy["launch_call"]) == (
        "HtoD",
        4096,
        "2",
        "hipMemcpyAsync",
    )
    assert (gemm["launch_start"], gemm["launch_call"]) == (1_030_000, "hipLaunchKernel")
    (rank,) = roofmodel.trace(tmp_path / "70_results.db").to_dict()["ranks"]
    assert (rank["kernels"], rank["wall_seconds"]) == (1, pytest.approx(200e-6))


def test_counters_of_rocpd_are_summed_over_instances_and_joined_over_passes(tmp_path: Path) -> None:
    """The trace has the times of production; one pass counts memory, another one the matrix cores on two dies."""
    files = [
        rocpd(tmp_path / "trace.db"),
        rocpd(tmp_path / "bytes.db", {"FETCH_SIZE": [10.0], "WRITE_SIZE": [6.0]}),
        rocpd(tmp_path / "flops.db", {"SQ_INSTS_VALU_MFMA_MOPS_F16": [1000.0, 2000.0]}),
    ]
    (gemm,) = read(files).kernels
    assert gemm.bytes.dram == 16 * 1024
    assert gemm.flops.tensor_fp16 == 512 * 3000
    assert gemm.grid == (2, 2, 1)
    (counted,) = read(files[1:]).kernels
    assert counted.bytes.dram == 16 * 1024
    document = roofmodel.plot(*files).to_dict()
    assert document["hardware"] == "mi300x"


def test_a_database_of_two_processes_has_the_kernels_of_both(tmp_path: Path) -> None:
    """Each process has tables with its GUID, and numbers its dispatches from 1."""
    rocpd(tmp_path / "merged.db")
    rocpd(tmp_path / "merged.db", {"FETCH_SIZE": [10.0], "WRITE_SIZE": [6.0]}, guid="_0001")
    assert sorted(kernel.bytes.dram or 0 for kernel in read([tmp_path / "merged.db"]).kernels) == [0, 16 * 1024]


def test_a_copy_between_gpus_has_both(tmp_path: Path) -> None:
    path = rocpd(tmp_path / "70_results.db")
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE rocpd_info_agent{GUID} SET type = 'GPU'")
    connection.close()
    (timeline,) = timelines.read([path])
    copy = timeline.work.to_dict("records")[0]
    assert (copy["direction"], copy["source"], copy["destination"], copy["device"]) == ("PtoP", "0", "2", "2")


def changed(path: Path, *commands: str) -> Path:
    with sqlite3.connect(path) as connection:
        for command in commands:
            connection.execute(command)
    connection.close()
    return path


def test_a_copy_between_two_places_of_the_host_is_of_no_rank(tmp_path: Path) -> None:
    of_host = f"INSERT INTO rocpd_memory_copy{GUID} VALUES (2, 70, 71, 1400000, 1900000, 10, 0, 0, 64, NULL, 0, 4)"
    label = f"INSERT INTO rocpd_string{GUID} VALUES (10, 'MEMORY_COPY_HOST_TO_HOST')"
    (rank,) = roofmodel.trace(changed(rocpd(tmp_path / "70_results.db"), label, of_host)).to_dict()["ranks"]
    assert (rank["device"], rank["wall_seconds"]) == ("2", pytest.approx(200e-6))
    older = changed(rpd(tmp_path / "trace.rpd"), "UPDATE rocpd_string SET string = 'CopyHostToHost' WHERE id = 2")
    (rank,) = roofmodel.trace(older).to_dict()["ranks"]
    assert (rank["kernels"], rank["wall_seconds"]) == (2, pytest.approx(25e-6))  # without the copy at 40 us


@pytest.mark.parametrize(
    ("change", "table"),
    [
        (f"UPDATE rocpd_pmc_event{GUID} SET value = -4.0", f"rocpd_pmc_event{GUID}"),
        (f"UPDATE rocpd_kernel_dispatch{GUID} SET start = NULL", f"rocpd_kernel_dispatch{GUID}"),
        (f"UPDATE rocpd_memory_copy{GUID} SET start = 'soon'", f"rocpd_memory_copy{GUID}"),
    ],
)
def test_a_number_that_is_none_is_refused_with_its_table(change: str, table: str, tmp_path: Path) -> None:
    path = changed(rocpd(tmp_path / "70_results.db", {"FETCH_SIZE": [10.0]}), change)
    with pytest.raises(ProfileError, match=f"70_results.db: the table {table} has a missing or invalid number"):
        read([path])


def test_barriers_and_markers_of_rpd_are_no_kernels(tmp_path: Path) -> None:
    commands = [
        "INSERT INTO rocpd_string VALUES (11, 'Barrier'), (12, 'Marker')",
        "INSERT INTO rocpd_op VALUES (4, 2, 0, 35000, 39000, 1, 11), (5, 2, 0, 39000, 39500, 1, 12)",
        "UPDATE rocpd_op SET description_id = 1 WHERE id = 2",  # a kernel without its name
    ]
    profile = read([changed(rpd(tmp_path / "trace.rpd"), *commands)])
    assert [kernel.name for kernel in profile.kernels] == ["gemm", "unnamed kernel"]


def test_idle_time_is_not_judged_while_kernels_are_counted_one_by_one(tmp_path: Path) -> None:
    def gaps(file: Path) -> Iterator[float]:
        return (each.seconds for each in reasons_by_group(read([file]), None)["gemm()"] if each.reason == "launch_gap")

    assert [*gaps(rocpd(tmp_path / "trace.db"))] == [pytest.approx(90e-6)]  # from the copy's end to the kernel
    assert [*gaps(rocpd(tmp_path / "counted.db", {"FETCH_SIZE": [1.0]}))] == []


def test_rpd_states_grids_in_work_items_or_workgroups_by_the_call_that_launched_the_kernel(tmp_path: Path) -> None:
    gemm, copy = read([rpd(tmp_path / "trace.rpd")]).kernels
    assert (gemm.name, copy.name) == ("gemm", "copy")
    assert gemm.grid == copy.grid == (2, 1, 1)
    assert gemm.block == copy.block == (256, 1, 1)
    assert gemm.nvtx == copy.nvtx == ("step",)
    assert (gemm.seconds, copy.seconds) == (pytest.approx(20e-6), pytest.approx(5e-6))
    (timeline,) = timelines.read([tmp_path / "trace.rpd"])
    last = timeline.work.to_dict("records")[-1]
    assert (last["kind"], last["direction"], last["bytes"]) == ("copy", "DtoH", 64)


def test_a_database_without_kernels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="contains no kernels and no copies; profile again with `rocprofv3"):
        read([database(tmp_path / "empty.db", ROCPD, GUID, {})])
    with pytest.raises(ProfileError, match="a database of AMD's profilers without kernels"):
        read([database(tmp_path / "strings.db", {"string": ROCPD["string"]}, GUID, {})])


def _profile(file: io.BytesIO, name: str) -> Profile:
    return profile(rocprof.read_all([(file, name)]))


@settings(max_examples=300, deadline=None)
@given(mutilations(SQLITE) | mutilations(RPD_SQLITE))
def test_a_mutilated_database_gives_an_error_or_a_table(data: bytes) -> None:
    if signatures.rocprof(data):
        assert_error_or_table(_profile, data)
