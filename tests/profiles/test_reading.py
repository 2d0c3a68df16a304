"""Reading of files: recognition by content; files of one run are joined, others stay separate."""

import contextlib
import gzip
import io
import json
import os
import sqlite3
import sys
import threading
from contextlib import closing
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.errors import ProfileError
from roofmodel.profiles import reading, streams
from roofmodel.profiles.reading import read
from roofmodel.profiles.timelines.timeline import Timeline
from roofmodel.roofline.categories import base_name
from roofmodel.roofline.points import group
from tests import kernels as make
from tests.profiles.ncu.samples import HEADER, row
from tests.profiles.samples import MEASURED, needs_measured

BYTES, TIME = "dram__bytes.sum", "gpu__time_duration.sum"
SAMPLE = HEADER + row(BYTES, "byte", "12,582,912") + row(TIME, "us", "41.60")


@pytest.fixture
def write(tmp_path):
    def written(name, content):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def torch_trace_of(arguments, dur=()):
    """A PyTorch trace of kernels with these arguments, 10 µs each unless `dur` has their durations."""
    lengths = list(dur) or [10] * len(arguments)
    events = [
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 100 * i, "dur": length, "pid": 0, "tid": 7, "args": args}
        for i, (args, length) in enumerate(zip(arguments, lengths, strict=True))
    ]
    return json.dumps({"schemaVersion": 1, "traceEvents": events})


def drams(*paths, **options):
    return [kernel.bytes.dram for kernel in read(paths, **options).kernels]


@pytest.mark.parametrize("name", ["a.csv", "no-suffix", "trace.json", "ncu.sqlite.gz"])
def test_the_tool_is_recognized_by_content_not_by_file_name(write, name):
    profile = read([write(name, SAMPLE)])
    assert profile.tool == "ncu"
    assert profile.kernels[0].bytes.dram == 12_582_912


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv"])
def test_gzip_is_recognized_by_its_content(write, name):
    assert drams(write(name, gzip.compress(SAMPLE.encode()))) == [12_582_912]


def test_a_damaged_gzip_is_refused(write):
    packed = gzip.compress((SAMPLE * 50).encode())
    for damaged in (packed[:-20], packed[: len(packed) // 2], packed[:50] + b"xxxx" + packed[54:], packed[:3]):
        with pytest.raises(ProfileError, match=r"a\.gz"):
            read([write("a.gz", damaged)])


def test_standard_input_is_a_dash(monkeypatch):
    for data in (SAMPLE.encode(), gzip.compress(SAMPLE.encode())):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        profile = read(["-"])
        assert profile.files == ("standard input",)
        assert profile.kernels[0].bytes.dram == 12_582_912


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_read_in_one_pass(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(SAMPLE.encode(),))
    writer.start()
    assert drams(pipe) == [12_582_912]
    writer.join()


def test_patterns_expand_to_files_in_order_without_duplicates(write, tmp_path):
    for name, value in (("out.2", "2"), ("out.1", "1"), ("out.3", "3")):
        write(name, HEADER + row(BYTES, "byte", value) + row(TIME, "ns", value))
    assert drams(tmp_path / "out.*", tmp_path / "out.1") == [1, 2, 3]
    write("odd[1].csv", SAMPLE)
    assert drams(tmp_path / "odd[1].csv") == [12_582_912]  # a file's name before it is a pattern


@pytest.mark.parametrize("path", ["absent.csv", "absent*.csv", "a\0b", "x" * 5000])
def test_a_missing_file_is_an_error(tmp_path, path):
    with pytest.raises(ProfileError):
        read([f"{tmp_path}/{path}"])


def test_a_folder_and_no_file_at_all_are_errors(tmp_path):
    with pytest.raises(ProfileError, match="folder"):
        read([tmp_path])
    with pytest.raises(ProfileError, match="no profiler file"):
        read([])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"PK\x03\x04rest", "zip"),
        (b"\x7fELF\0\0\0", "binary"),
        (b"kernel,mean_ms\nsaxpy,0.2\n", "not a profiler export"),
        (b"x" * 10_000_000, "not a profiler export"),
    ],
)
def test_text_of_no_known_tool_is_refused_without_a_quote(write, content, says):
    with pytest.raises(ProfileError, match=says) as caught:
        read([write("a.csv", content)])
    assert "Nsight Compute" in str(caught.value)
    assert "saxpy" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_table_of_measured_operations_names_the_command_that_reads_it(write):
    with pytest.raises(ProfileError, match=r"a table of measured operations; for its errors use roofmodel\.validate"):
        read([write("a.csv", b"op,dtype,m,n,k,latency_us\ngemm,fp16,1,1,1,2\n")])


def test_files_of_amd_profilers_are_named(write):
    with pytest.raises(ProfileError, match=r"this output of AMD's rocprof is not supported; .* CSV of rocprofv3"):
        read([write("results.csv", b"Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size\n0,2,64,64\n")])


@pytest.mark.parametrize("name", ["results.json", "results.pftrace"])
def test_other_outputs_of_rocprofv3_say_which_one_to_write(write, name):
    content = b'{\n "rocprofiler-sdk-tool": [{"metadata": {}}]}' if name.endswith("json") else b"\n\x1f\0\x08\x10"
    with pytest.raises(ProfileError, match="write a database or CSV instead: rocprofv3 --output-format rocpd"):
        read([write(name, content)])


def test_the_database_of_the_first_rocprof_is_refused_by_name(tmp_path):
    with closing(sqlite3.connect(tmp_path / "results.db")) as database:
        for table in ("HIP", "OPS", "COPY", "KERN"):
            database.execute(f"CREATE TABLE {table} (id INTEGER)")
        database.commit()
    with pytest.raises(ProfileError, match="a database of AMD's rocprof, which is not supported"):
        read([tmp_path / "results.db"])


def test_files_of_no_tool_among_profiler_files_are_skipped_with_a_warning(write):
    write("a.csv", "epoch,loss\n1,0.5\n")
    write("b.csv", "")
    profiler_file = write("c.csv", SAMPLE)
    for name in "defg":
        write(f"{name}.csv", "epoch,loss\n1,0.5\n")
    folder = profiler_file.parent
    profile = read([folder / "*.csv"])
    assert (len(profile.kernels), profile.files) == (1, (str(profiler_file),))
    assert profile.warnings[-2:] == (
        "a.csv, d.csv, e.csv and 2 more files: skipped: not a profiler export",
        "b.csv: skipped: the file is empty",
    )
    with pytest.raises(ProfileError, match=r"a\.csv: not a profiler export; supported tools: .* vllm bench serve"):
        read([folder / "a.csv", folder / "b.csv"])


def test_impossible_values_of_a_kernel_are_unknown_with_a_warning(write):
    good = {"est. achieved occupancy %": 40, "registers per thread": 32, "grid": [4, 1, 1], "block": [64, 1, 1]}
    damages = [
        {"est. achieved occupancy %": -5},
        {"est. achieved occupancy %": 500},
        {"registers per thread": -1},
        {"registers per thread": 10**9},
        {"grid": [0, 1, 1]},
        {"block": [-64, 1, 1]},
        {"grid": [2**31, 1, 1]},
    ]
    trace = torch_trace_of([good, *({**good, **damage} for damage in damages)], dur=[10, *[10] * 6, 1e13])
    profile = read([write("trace.json", trace)])
    first, *others = profile.kernels
    whole = (0.4, 32, (4, 1, 1), (64, 1, 1), 10e-6)
    fields = [(k.occupancy, k.registers, k.grid, k.block, k.seconds) for k in others]
    assert (first.occupancy, first.registers, first.grid, first.block, first.seconds) == whole
    expected = [[None if i == missing else v for i, v in enumerate(whole)] for missing in (0, 0, 1, 1, 2, 3, 2)]
    expected[-1][-1] = None  # 10¹³ µs are 116 days
    assert fields == list(map(tuple, expected))
    ending = "below zero or impossibly large: it is treated as unknown"
    assert profile.warnings == (
        f"1 kernel has a time {ending}",
        f"2 kernels have an occupancy {ending}",
        f"2 kernels have a number of registers {ending}",
    )


def test_the_limit_of_a_time_is_that_of_a_launch():
    """A summary has the time of all launches of a name: 1.5 million seconds are possible for two, not for one."""
    kernels = make.columns({"seconds": 1.5e6, "invocations": launches} for launches in (1, 2))
    warnings = kernels.without_impossible_values()
    assert [kernel.seconds for kernel in kernels] == [None, 1.5e6]
    assert len(warnings) == 1


def test_impossible_values_of_nsight_compute_are_unknown_with_a_warning(write):
    occupancy = "sm__warps_active.avg.pct_of_peak_sustained_active"
    rows = [row(TIME, "second", "2000000"), row(occupancy, "%", "500"), row(BYTES, "byte", "1")]
    rows += [row(TIME, "second", "2", 1), row(occupancy, "%", "50", 1), row(BYTES, "byte", "1", 1)]
    profile = read([write("a.csv", HEADER + "".join(rows))])
    assert [(k.seconds, k.occupancy, k.bytes.dram) for k in profile.kernels] == [(None, None, 1), (2, 0.5, 1)]
    assert sum("impossibly large" in text for text in profile.warnings) == 2


def test_a_trace_with_two_lists_of_events_is_refused(write):
    trace = torch_trace_of([{}])
    events = trace[trace.index('"traceEvents"') : -1]
    with pytest.raises(ProfileError, match="the key 'traceEvents' occurs more than once"):
        read([write("trace.json", f"{trace[:-1]}, {events}}}")])
    assert len(read([write("trace.json", trace.replace('"k"', '"traceEvents"'))]).kernels) == 1


def test_files_of_different_tools_are_refused(write, monkeypatch):
    toy = ModuleType("toy")
    toy.read = lambda stream, name: Timeline("toy", name, make.columns([{"file": name}]))
    monkeypatch.setitem(sys.modules, "roofmodel.profiles.toy", toy)
    of_toys = reading.ProfileFormat("Toy", lambda head: head.startswith(b"TOY"), "toy")
    monkeypatch.setattr(reading, "FORMATS", (*reading.FORMATS, of_toys))
    toys = [write("t1", "TOY"), write("t2", "TOY2")]
    assert [kernel.file for kernel in read(toys).kernels] == [str(path) for path in toys]
    with pytest.raises(ProfileError, match=r"different tools.*Nsight Compute.*Toy"):
        read([write("a.csv", SAMPLE), *toys])


# --- inputs without an end, and inputs that grow ---------------------------------------------------------------


def test_an_endless_device_file_is_refused_from_its_first_bytes():
    with pytest.raises(ProfileError, match="/dev/zero: an unknown binary format"):
        read(["/dev/zero"])


def test_an_endless_pipe_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MAX_COPY", 4 * 2**20)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write_without_end():
        with contextlib.suppress(BrokenPipeError), pipe.open("wb", buffering=0) as file:
            file.write(HEADER.encode())
            while True:
                file.write(row(BYTES, "byte", "1").encode() * 1000)

    thread = threading.Thread(target=write_without_end)
    thread.start()
    with pytest.raises(ProfileError, match="pipe: more than 4 MiB from a pipe or a compressed file; save the data"):
        read([pipe])
    thread.join()


@pytest.mark.parametrize(
    "start", ['{"traceEvents": [', HEADER, '"Start","Duration","Name","Device"\n', "SQLite format 3\0"]
)
def test_a_file_that_decompresses_to_very_much_is_refused(write, start):
    bomb = gzip.compress(start.encode() + b" " * 2**27)
    with pytest.raises(ProfileError, match="decompresses to more than 200 times its size"):
        read([write("bomb.gz", bomb)])


def test_very_regular_small_files_are_read_from_gzip(write):
    table = HEADER + "".join(row(BYTES, "byte", "1", i) for i in range(20_000))
    packed = gzip.compress(table.encode())
    assert len(table) > 50 * len(packed)
    assert len(read([write("a.csv.gz", packed)]).kernels) == 20_000


@pytest.mark.parametrize("deep", ["(" * 100_000 + ")" * 100_000, "f<" * 100_000 + ">" * 100_000, "()" * 100_000])
def test_a_kernel_name_of_100000_brackets_is_grouped(write, deep):
    table = HEADER + row(BYTES, "byte", "1", 0, name=deep) + row(BYTES, "byte", "1", 1, name=deep + "x")
    profile = read([write("a.csv", table)])
    assert len(group(profile.kernels, "base")) <= 2
    assert len(group(profile.kernels, "name")) == 2  # cut names that differ stay different
    base_name(deep)
    assert all(len(kernel.name) <= streams.MAX_NAME for kernel in profile.kernels)


# --- files of one run -------------------------------------------------------------------------------------------


def one_metric(metric, unit, *launches, process=11):
    rows = (row(metric, unit, str(v), i, name=name, process=process) for i, (name, v) in enumerate(launches))
    return HEADER + "".join(rows)


def test_files_with_one_metric_each_are_joined_by_name_and_occurrence(write):
    first = write("bytes", one_metric(BYTES, "byte", ("a", 1), ("b", 2), ("a", 3)))
    second = write("time", one_metric(TIME, "ns", ("b", 20), ("a", 10), ("a", 30), process=12))
    profile = read([first, second])
    found = [(k.name, k.bytes.dram, round(k.seconds * 1e9)) for k in profile.kernels]
    assert found == [("a", 1, 10), ("b", 2, 20), ("a", 3, 30)]
    assert profile.files == (str(first), str(second))


def test_a_sum_may_come_from_several_files(write):
    parts = (("fadd", 1), ("fmul", 2), ("ffma", 3))
    name = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    files = [write(op, one_metric(name.format(op), "inst", ("k", count))) for op, count in parts]
    assert read(files).kernels[0].flops.fp32 == 1 + 2 + 2 * 3
    assert read(files[:2]).kernels[0].flops.fp32 is None


def test_files_with_different_launch_counts_are_separate_runs(write):
    first = write("bytes", one_metric(BYTES, "byte", ("a", 1), ("b", 2)))
    second = write("time", one_metric(TIME, "ns", ("a", 10), ("a", 30)))
    assert [(k.bytes.dram, k.seconds is None) for k in read([first, second]).kernels] == [
        (1, True),
        (2, True),
        (None, False),
        (None, False),
    ]


def test_files_with_a_common_metric_are_separate_runs_with_a_warning(write):
    profile = read(
        [write("run1", one_metric(BYTES, "byte", ("a", 1))), write("run2", one_metric(BYTES, "byte", ("a", 2)))]
    )
    assert [kernel.bytes.dram for kernel in profile.kernels] == [1, 2]
    assert any("two measurements" in text for text in profile.warnings)


def test_files_exported_from_one_report_are_one_measurement(write):
    def export(dram, extra=""):
        return HEADER + row(BYTES, "byte", dram, 0, name="a") + row(BYTES, "byte", "2", 1, name="b") + extra

    times = row(TIME, "ns", "10", 0, name="a") + row(TIME, "ns", "20", 1, name="b")
    memory, speed = write("memory", export("1")), write("speed", export("1", times))
    for files in ([memory, speed], [speed, memory]):
        profile = read(files)
        assert [(k.bytes.dram, round(k.seconds * 1e9)) for k in profile.kernels] == [(1, 10), (2, 20)]
        assert not any("two measurements" in str(text) for text in profile.warnings)
    other_process, other_value = export("1").replace('"11"', '"12"'), export("3")
    for text in (other_process, other_value):
        assert len(read([memory, write("other", text)]).kernels) == 4


@needs_measured
def test_section_files_of_one_launch_are_one_launch():
    # All six files, the roofline chart's rates included, are exports of one launch of 23.42 µs.
    profile = read([MEASURED / "ncu" / "rtx5090_dsocr" / "kernel_0003" / "*.csv"])
    (kernel,) = profile.kernels
    assert kernel.seconds == pytest.approx(23.42e-6)
    assert (kernel.bytes.dram, kernel.occupancy) == (3.35e6, pytest.approx(0.1518))
    assert not any("two measurements" in str(text) for text in profile.warnings)


def test_two_runs_in_one_file_are_not_called_two_files(write):
    file = write("both", one_metric(BYTES, "byte", ("a", 1)) + one_metric(BYTES, "byte", ("a", 2)))
    profile = read([file])
    assert [kernel.bytes.dram for kernel in profile.kernels] == [1, 2]
    assert any(text.startswith(f"two tables of {file} contain the same kernels") for text in profile.warnings)


def test_launches_with_other_grids_do_not_match(write):
    other = one_metric(TIME, "ns", ("a", 10)).replace("(64, 2, 1)", "(65, 2, 1)")
    assert drams(write("bytes", one_metric(BYTES, "byte", ("a", 1))), write("time", other)) == [1, None]


def test_two_runs_in_separate_folders_stay_separate(write):
    for run in (1, 2):
        write(f"run{run}/bytes", one_metric(BYTES, "byte", ("a", run)))
        write(f"run{run}/time", one_metric(TIME, "ns", ("a", 10 * run)))
    folder = write("run1/bytes", one_metric(BYTES, "byte", ("a", 1))).parent.parent
    interleaved = [folder / f"run{run}" / name for name in ("bytes", "time") for run in (1, 2)]
    found = [(k.bytes.dram, round(k.seconds * 1e9)) for k in read(interleaved).kernels]
    assert found == [(1, 10), (2, 20)]


def test_a_file_that_fits_two_runs_is_refused(write):
    files = [write(f"bytes{run}", one_metric(BYTES, "byte", ("a", run))) for run in (1, 2)]
    with pytest.raises(ProfileError, match="one run at a time"):
        read([*files, write("time", one_metric(TIME, "ns", ("a", 10)))])


def test_metrics_of_every_raw_page_do_not_separate_files(write):
    registers = row("launch__registers_per_thread", "register/thread", "32", name="a")
    files = [
        write("bytes", one_metric(BYTES, "byte", ("a", 1)) + registers),
        write("time", one_metric(TIME, "ns", ("a", 10)) + registers),
    ]
    (kernel,) = read(files).kernels
    assert (kernel.bytes.dram, kernel.registers) == (1, 32)
    files[1].write_text(files[1].read_text().replace('"32"', '"40"'))
    with pytest.raises(ProfileError, match="launch__registers_per_thread"):
        read(files)


def test_the_compute_capability_is_passed_to_the_readers(write):
    path = write("tensor", one_metric("sm__inst_executed_pipe_tensor.sum", "inst", ("a", 10)).replace('"8.0"', '""'))
    assert read([path], generation="7.0").kernels[0].flops.tensor_fp16 == 5120


@given(st.permutations(range(6)))
@settings(max_examples=25, deadline=None)
def test_joining_does_not_depend_on_the_order_of_launches(tmp_path_factory, order):
    folder = tmp_path_factory.mktemp("run")
    (folder / "bytes").write_text(one_metric(BYTES, "byte", *((f"k{i}", i) for i in range(6))))
    (folder / "time").write_text(one_metric(TIME, "ns", *((f"k{i}", 10 * i) for i in order)))
    kernels = read([folder / "bytes", folder / "time"]).kernels
    assert [(k.name, k.bytes.dram, round(k.seconds * 1e9)) for k in kernels] == [(f"k{i}", i, 10 * i) for i in range(6)]


@pytest.mark.parametrize("mark", [";", "\t"])
@pytest.mark.parametrize("before", ["", "==PROF== Connected to process 1\n"])
def test_a_table_saved_by_a_spreadsheet_is_recognized(mark, before, tmp_path):
    path = tmp_path / "saved.csv"
    path.write_text(before + (HEADER + row("dram__bytes.sum", "byte", "7")).replace(",", mark))
    with pytest.raises(
        ProfileError, match=r"saved\.csv: its columns are separated by .*give the file that the profiler"
    ):
        reading.read([path])
