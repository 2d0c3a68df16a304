"""nvprof's own profiles: SQLite databases with CUPTI's activity tables.

Written with the tables of a file of CUDA 9, as https://github.com/rasolca/profiling_tools (scripts/nvprof_db.py)
lists them; columns that are not read are left out. A thread is two numbers in 12 bytes, as NVIDIA's PyProf decodes it,
and a metric has CUPTI's number (19923062: achieved_occupancy on one GPU) and a double.
"""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

import pytest

import roofmodel
from roofmodel.errors import ProfileError
from tests.printing import printed


def written(path: Path) -> str:
    """A saxpy of 20 us after a copy of 1 MiB in 100 us, on a V100."""
    with sqlite3.connect(path) as database:
        database.executescript(
            """
            CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT);
            INSERT INTO StringTable VALUES (1, '_Z5saxpyifPKfPf'), (2, 'Tesla V100-SXM2-16GB');
            CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (_id_ INTEGER PRIMARY KEY, registersPerThread INT,
                staticSharedMemory INT, dynamicSharedMemory INT,
                start INT, end INT, deviceId INT, contextId INT, streamId INT, gridX INT, gridY INT, gridZ INT,
                blockX INT, blockY INT, blockZ INT, correlationId INT, name INT);
            INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
                VALUES (1, 16, 1024, 512, 2000000, 2020000, 0, 1, 7, 4096, 1, 1, 256, 1, 1, 5, 1);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (_id_ INTEGER PRIMARY KEY, copyKind INT, srcKind INT, dstKind INT,
                bytes INT, start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT);
            INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1, 1, 1, 3, 1048576, 1800000, 1900000, 0, 1, 7, 4);
            CREATE TABLE CUPTI_ACTIVITY_KIND_DEVICE (_id_ INTEGER PRIMARY KEY, globalMemoryBandwidth INT,
                globalMemorySize INT, l2CacheSize INT, coreClockRate INT, numMultiprocessors INT,
                computeCapabilityMajor INT, computeCapabilityMinor INT, id INT, name INT);
            INSERT INTO CUPTI_ACTIVITY_KIND_DEVICE
                VALUES (1, 898048000, 16945512448, 6291456, 1530000, 80, 7, 0, 0, 2);
            """
        )
    database.close()
    return str(path)


def with_calls(path: Path) -> str:
    """The same run with its CUDA calls, a range around the launch, and a metric of the kernel.

    The copy is synchronous: its call returns 60 us after its end, and 15 us before the launch of the kernel.
    """
    file, thread = written(path), struct.pack("<iq", 42, 140_000_000_000_000)
    with sqlite3.connect(file) as database:
        for table in ("RUNTIME", "DRIVER"):
            database.execute(
                f"CREATE TABLE CUPTI_ACTIVITY_KIND_{table}(_id_ INTEGER PRIMARY KEY AUTOINCREMENT, cbid INT NOT NULL, "
                "start INT NOT NULL, end INT NOT NULL, processId INT NOT NULL, threadId INT NOT NULL, "
                "correlationId INT NOT NULL, returnValue INT NOT NULL)"
            )
        database.executescript(
            """
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
                (1, 31, 1790000, 1960000, 42, 140000000000000, 4, 0),
                (2, 211, 1975000, 1980000, 42, 140000000000000, 5, 0),
                (3, 999, 2100000, 2101000, 42, 140000000000000, 6, 0);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER(_id_ INTEGER PRIMARY KEY AUTOINCREMENT, flags INT NOT NULL,
                timestamp INT NOT NULL, id INT NOT NULL, objectKind INT NOT NULL, objectId BLOB NOT NULL,
                name INT NOT NULL, domain INT NOT NULL);
            INSERT INTO StringTable VALUES (3, 'step 1');
            CREATE TABLE CUPTI_ACTIVITY_KIND_METRIC(_id_ INTEGER PRIMARY KEY AUTOINCREMENT, id INT NOT NULL,
                value BLOB NOT NULL, correlationId INT NOT NULL, flags INT NOT NULL);
            """
        )
        marks = [(2, 1_900_000, 1, 2, thread, 3, 0), (4, 2_200_000, 1, 2, thread, 0, 0)]
        columns = "flags, timestamp, id, objectKind, objectId, name, domain"
        database.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_MARKER ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", marks)
        metric = (19923062, struct.pack("<d", 0.5), 5, 0)
        database.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_METRIC (id, value, correlationId, flags) VALUES (?, ?, ?, ?)", metric
        )
    database.close()
    return file


def with_environment(path: Path) -> str:
    """The run with samples of its GPU: `data` is five numbers of 4 bytes, as in CUpti_ActivityEnvironment.

    Power in mW at 1.7, 1.85, 1.95 and 2.1 ms: 100, 100, 200, 200 W of at most 250 W; the clock falls to 1.2 GHz at the
    power cap (reason 4), and is unsupported at 1.97 ms.
    """
    file = with_calls(path)
    speed, temperature, power = 1, 2, 3
    samples = [
        (1_700_000, power, (100_000, 250_000)), (1_850_000, power, (100_000, 250_000)),
        (2_100_000, power, (200_000, 250_000)), (1_950_000, power, (200_000, 250_000)),
        (1_860_000, speed, (1530, 877, 3, 16, 0)), (1_960_000, speed, (1200, 877, 3, 16, 4)),
        (1_970_000, speed, (1300, 877, 3, 16, 0x40000000)), (1_980_000, temperature, (64,)),
        (1_985_000, 4, (30,)),
    ]  # fmt: skip
    with sqlite3.connect(file) as database:
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_ENVIRONMENT(_id_ INTEGER PRIMARY KEY, deviceId INT NOT NULL, "
            "timestamp INT NOT NULL, environmentKind INT NOT NULL, data BLOB NOT NULL)"
        )
        database.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_ENVIRONMENT VALUES (NULL, 0, ?, ?, ?)",
            [(time, kind, struct.pack("<5I", *(*numbers, 0, 0, 0, 0)[:5])) for time, kind, numbers in samples],
        )
    database.close()
    return file


def test_the_energy_of_a_run_is_the_integral_of_the_sampled_power(tmp_path: Path) -> None:
    """1.8 to 2.02 ms: 100 W for 50 us, 150 W on average for 100 us, 200 W for 70 us."""
    report = roofmodel.trace(with_environment(tmp_path / "run.nvprof"))
    (rank,), (step,) = report.to_dict()["ranks"], report.to_dict()["steps"]
    energy = 100 * 50e-6 + 150 * 100e-6 + 200 * 70e-6
    assert rank["power"] == {
        "joules": pytest.approx(energy), "mean_watts": pytest.approx(energy / 220e-6), "min_watts": 100,
        "max_watts": 200, "limit_watts": 250, "min_clock": 1.2e9, "max_clock": 1.53e9, "max_celsius": 64,
        "throttled": 0.5,
    }  # fmt: skip
    assert step["joules"] == pytest.approx(175 * 50e-6 + 200 * 250e-6)  # 1.9 to 2.2 ms, from 150 W on
    text = printed(report, width=200)
    assert "energy of the GPU of rank 0: 0.034 J, 155 W on average (100 W to 200 W, limit 250 W)" in text
    assert "power or temperature limits the clock in 50% of the samples" in text


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE CUPTI_ACTIVITY_KIND_ENVIRONMENT",
        "UPDATE CUPTI_ACTIVITY_KIND_ENVIRONMENT SET data = zeroblob(20) WHERE environmentKind = 3",  # no sensor
        "DELETE FROM CUPTI_ACTIVITY_KIND_ENVIRONMENT WHERE timestamp = 1950000",  # one sample within the run
    ],
)
def test_without_two_samples_of_a_power_there_is_no_energy(change: str, tmp_path: Path) -> None:
    file = with_environment(tmp_path / "run.nvprof")
    with sqlite3.connect(file) as database:
        database.execute(change)
    database.close()
    report = roofmodel.trace(file)
    (rank,) = report.to_dict()["ranks"]
    assert rank["power"] is None
    assert "energy" not in printed(report)


def test_a_run_without_calls_has_its_energy_though_its_process_is_unknown(tmp_path: Path) -> None:
    file = with_environment(tmp_path / "run.nvprof")
    with sqlite3.connect(file) as database:
        database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME")
    database.close()
    (rank,) = roofmodel.trace(file).to_dict()["ranks"]
    assert rank["process"] is None
    assert rank["power"]["joules"] == pytest.approx(100 * 50e-6 + 150 * 100e-6 + 200 * 70e-6)  # as with the calls


def test_calls_of_nvprof_launch_its_kernels_and_its_ranges_enclose_them(tmp_path: Path) -> None:
    profile = roofmodel.read_profile(with_calls(tmp_path / "run.nvprof"))
    (kernel,) = profile.kernels
    assert (kernel.nvtx, kernel.process) == (("step 1",), "42")
    assert kernel.launch == pytest.approx(175e-6)  # from the start of the copy
    (text,) = [str(each) for each in profile.warnings if "metrics" in str(each)]
    assert text.startswith("1 values of metrics")
    assert "nvprof -i FILE --csv --print-gpu-trace" in text


def test_a_synchronous_copy_of_nvprof_explains_the_gap_after_it(tmp_path: Path) -> None:
    """The gap is 1,900 to 2,000 us: the CPU waited at its begin, and launched only then."""
    (rank,) = roofmodel.trace(with_calls(tmp_path / "run.nvprof")).to_dict()["ranks"]
    causes = {cause: seconds for cause, seconds in rank["idle_by_cause"].items() if seconds}
    assert causes == {"synchronization": pytest.approx(100e-6)}
    assert rank["launch_to_start_median_seconds"] == pytest.approx(25e-6)


@pytest.mark.parametrize("name", ["run.nvprof", "run.nvvp"])
def test_a_profile_of_nvprof_is_read_from_its_database(name: str, tmp_path: Path) -> None:
    profile = roofmodel.read_profile(written(tmp_path / name))
    (kernel,) = profile.kernels
    assert (kernel.name, kernel.grid, kernel.block, kernel.registers) == (
        "_Z5saxpyifPKfPf",
        (4096, 1, 1),
        (256, 1, 1),
        16,
    )
    assert kernel.shared_bytes == 1024 + 512
    assert kernel.seconds == pytest.approx(20e-6)
    assert profile.to_dict()["hardware"] == "v100-sxm2-16gb"
    assert profile.to_dict()["source"]["tool"] == "nvprof"


def test_a_profile_of_nvprof_has_a_timeline(tmp_path: Path) -> None:
    (rank,) = roofmodel.trace(written(tmp_path / "run.nvprof")).to_dict()["ranks"]
    assert rank["busy_seconds"] == pytest.approx(20e-6)
    assert rank["idle_seconds"] == pytest.approx(100e-6)  # between the copy and the kernel
    (copy,) = rank["copies"]
    assert (copy["kind"], copy["memory"], copy["bytes"]) == ("HtoD", "pageable", 1048576)


def test_times_since_1970_are_exact_and_arrays_are_device_memory(tmp_path: Path) -> None:
    """A float of 1.6e9 seconds has steps of 238 ns. CUPTI's copyKind 3 is HtoA and 4 AtoH, to and from an array."""
    file, epoch = written(tmp_path / "run.nvprof"), 1_600_000_000_000_000_000
    with sqlite3.connect(file) as database:
        database.executescript(
            f"""
            UPDATE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL SET start = {epoch} + start, end = {epoch} + end;
            UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET start = {epoch + 1}, end = {epoch + 11}, copyKind = 3;
            INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY
                VALUES (2, 4, 3, 1, 64, {epoch + 21}, {epoch + 31}, 0, 1, 7, 6);
            """
        )
    database.close()
    profile = roofmodel.read_profile(file)
    assert [each.start for each in profile.kernels] == [1999999e-9]  # 2,000,000 ns after 1 ns
    (rank,) = roofmodel.trace(file).to_dict()["ranks"]
    assert rank["idle_seconds"] == pytest.approx(10e-9 + 1999969e-9, abs=1e-13)  # 11 to 21 ns, 31 to 2,000,000 ns
    assert {(copy["kind"], copy["memory"]) for copy in rank["copies"]} == {("HtoD", "pageable"), ("DtoH", "pageable")}


def test_a_damaged_profile_of_nvprof_is_an_error(tmp_path: Path) -> None:
    file = Path(written(tmp_path / "run.nvprof"))
    content = file.read_bytes()
    file.write_bytes(content[:6000])
    with pytest.raises(ProfileError, match="nvprof"):
        roofmodel.read_profile(str(file))
