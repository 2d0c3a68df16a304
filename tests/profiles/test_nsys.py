import csv
import gzip
import io
import re
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, settings

from roofmodel.errors import ProfileError
from roofmodel.profiles import nsys, signatures, streams
from roofmodel.profiles.kernel import Evidence
from roofmodel.profiles.timelines.reading import read_file
from tests.profiles.samples import assert_error_or_table, content, measured, mutilations, profile_of, read_text

# globalTid = hardware, virtual machine, process, thread: 8 + 8 + 24 + 24 bits
HOST = 1 << 56 | 2 << 48
PID = 4321
PROCESS = HOST | PID << 24
MAIN, AUTOGRAD, WORKER = PROCESS | 1, PROCESS | 2, PROCESS | 3

STRINGS = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)"
KERNEL = (
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, "
    "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, "
    "registersPerThread INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, "
    "gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, "
    "blockZ INTEGER)"
)
RUNTIME = (
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, "
    "correlationId INTEGER, nameId INTEGER, returnValue INTEGER)"
)
NVTX = (
    "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, "
    "endGlobalTid INTEGER, textId INTEGER, domainId INTEGER)"
)
GPU = (
    "CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, busLocation TEXT, l2CacheSize INTEGER, "
    "totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, cuDevice INTEGER, "
    "computeMajor INTEGER, computeMinor INTEGER)"
)
A100 = dict(
    name="NVIDIA A100-SXM4-40GB",
    l2CacheSize=40 << 20,
    totalMemory=42 * 10**9,
    memoryBandwidth=1555200000000,
    clockRate=1410000000,
    smCount=108,
    computeMajor=8,
    computeMinor=0,
)
A100_EVIDENCE = Evidence("NVIDIA A100-SXM4-40GB", "8.0", 108, 40 << 20, 1555200000000, 42 * 10**9, 1410000000)


class Export:
    """Builder of an SQLite export; required columns without a value are 0."""

    def __init__(self, *tables):
        self.database = sqlite3.connect(":memory:")
        for table in tables:
            self.database.execute(table)

    def __del__(self):
        self.database.close()

    def add(self, table, **row):
        for _, column, kind, required, *_ in self.database.execute(f"PRAGMA table_info({table})").fetchall():
            if required and column not in row:
                row[column] = "" if kind == "TEXT" else 0
        marks = ",".join("?" * len(row))
        self.database.execute(f"INSERT INTO {table} ({','.join(row)}) VALUES ({marks})", tuple(row.values()))
        return self

    def string(self, value):
        known = self.database.execute("SELECT id FROM StringIds WHERE value = ?", (value,)).fetchone()
        if known:
            return known[0]
        return self.database.execute(
            "INSERT INTO StringIds (id, value) SELECT coalesce(max(id), 10) + 1, ? FROM StringIds RETURNING id",
            (value,),
        ).fetchone()[0]

    def kernel(self, name="k", start=5000, end=6000, launched=None, thread=MAIN, **row):
        correlation = row.setdefault("correlationId", 100 + start)
        process = thread >> 24 << 24
        row = dict(deviceId=0, streamId=7, globalPid=process, registersPerThread=32) | row
        sizes = dict(gridX=64, gridY=2, gridZ=1, blockX=256, blockY=1, blockZ=1)
        text = self.string(name)
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, demangledName=text, shortName=text, **sizes | row)
        if launched is not None:
            call = dict(globalTid=thread, correlationId=correlation, nameId=self.string("cudaLaunchKernel"))
            self.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=launched, end=launched + 5, returnValue=0, **call)
        return self

    def range(self, label, start, end, thread=MAIN, kind=59, registered=False):
        text = dict(textId=self.string(label)) if registered else dict(text=label)
        return self.add("NVTX_EVENTS", start=start, end=end, eventType=kind, globalTid=thread, **text)

    def bytes(self):
        self.database.commit()
        return self.database.serialize()

    def read(self):
        return profile_of(nsys.read)(io.BytesIO(self.bytes()), "sample")


def export(*more):
    return Export(STRINGS, KERNEL, *more)


def traced():
    return export(RUNTIME, NVTX)


def nvtx(export):
    return [kernel.nvtx for kernel in export.read().kernels]


# The SQLite export


def test_a_kernel_has_its_name_sizes_and_exact_time():
    (kernel,) = export().kernel("void gemm<(int)4>(float *)", start=1_500_000_001, end=1_500_041_602).read().kernels
    assert kernel.name == "void gemm<(int)4>(float *)"
    assert kernel.seconds == 41_601e-9
    assert kernel.start == 1.500000001
    assert (kernel.grid, kernel.block, kernel.registers) == ((64, 2, 1), (256, 1, 1), 32)
    assert (kernel.device, kernel.stream, kernel.process) == ("0", "7", str(PID))


def test_the_shared_memory_of_a_block_is_static_and_dynamic_and_unknown_without_one_of_them():
    file = (
        export().kernel(start=1, end=2, staticSharedMemory=16, dynamicSharedMemory=4096).kernel(dynamicSharedMemory=8)
    )
    assert [kernel.shared_bytes for kernel in file.read().kernels] == [16 + 4096, None]


def test_a_database_is_read_in_place_and_not_copied(tmp_path, monkeypatch):
    """An export may have many GB. A compressed one is copied, because SQLite reads files only."""
    path, packed = tmp_path / "run.sqlite", tmp_path / "run.sqlite.gz"
    path.write_bytes(export().kernel().bytes())
    packed.write_bytes(gzip.compress(path.read_bytes()))
    copies = []
    folder = streams.tempfile.TemporaryDirectory
    monkeypatch.setattr(streams.tempfile, "TemporaryDirectory", lambda: copies.append(1) or folder())
    assert len(read_file(str(path)).work_table) == 1
    assert not copies
    assert len(read_file(str(packed)).work_table) == 1
    assert copies == [1]


def test_kernels_are_in_the_order_of_their_starts():
    kernels = export().kernel("b", start=200, end=300).kernel("a", start=100, end=150).read().kernels
    assert [(k.id, k.name) for k in kernels] == [("0", "a"), ("1", "b")]


def test_ranges_enclose_the_launch_and_never_the_kernel():
    # The launch at 1500 is in `step`; by the time the kernel runs, at 5000, the thread is in `next`.
    sample = traced().kernel(launched=1500).range("step", 1000, 2000).range("next", 4000, 9000)
    assert nvtx(sample) == [("step",)]


def test_ranges_nest_outermost_first_and_end_before_their_end():
    sample = traced().range("inner", 1200, 1600).range("step", 1000, 2000).range("closed", 1100, 1500)
    assert nvtx(sample.kernel(launched=1500)) == [("step", "inner")]  # `closed` ends where the launch starts


def test_a_range_still_open_lasts_to_the_end_of_the_trace():
    assert nvtx(traced().kernel(launched=10**9).range("all", 0, None)) == [("all",)]


def test_labels_come_as_text_or_as_a_registered_string():
    sample = traced().range("plain", 0, 9000).range("registered", 1, 9000, registered=True).kernel(launched=10)
    assert nvtx(sample) == [("plain", "registered")]


def test_marks_domains_and_categories_are_not_ranges():
    sample = traced().kernel(launched=10)
    for kind in (33, 34, 75):
        sample.range(f"type {kind}", 0, 9000, kind=kind)
    assert nvtx(sample) == [()]


def test_start_end_ranges_apply_to_every_thread_of_their_process():
    sample = traced().range("epoch", 0, 9000, thread=WORKER, kind=60).range("step", 5, 9000)
    assert nvtx(sample.kernel(launched=10)) == [("epoch", "step")]


def test_imported_ranges_count_as_well():
    assert nvtx(traced().range("imported", 0, 9000, kind=70).kernel(launched=10)) == [("imported",)]


def test_backward_kernels_get_the_range_of_the_only_other_thread_with_a_note():
    profile = traced().range("step", 0, 9000).kernel(launched=10, thread=AUTOGRAD).read()
    assert profile.kernels[0].nvtx == ("step",)
    assert any(
        re.match(r"launched by a thread without NVTX ranges .*: 1 kernel, assigned", str(w)) for w in profile.warnings
    )


def test_with_several_open_threads_backward_kernels_get_no_range():
    sample = traced().range("step", 0, 9000).range("load", 0, 9000, thread=WORKER)
    profile = sample.kernel(launched=10, thread=AUTOGRAD).read()
    assert profile.kernels[0].nvtx == ()
    assert any("assigned to no range" in warning for warning in profile.warnings)


def test_equal_correlations_of_two_processes_are_kept_apart():
    other = HOST | 77 << 24 | 1
    sample = traced().range("mine", 0, 9000).range("theirs", 0, 9000, thread=other)
    sample.kernel("m", start=100, end=110, correlationId=5, launched=10)
    sample.kernel("t", start=200, end=210, correlationId=5, launched=20, thread=other)
    kernels = sample.read().kernels
    assert [(k.name, k.process, k.nvtx) for k in kernels] == [("m", str(PID), ("mine",)), ("t", "77", ("theirs",))]


def test_all_kernels_of_a_graph_share_its_launch():
    sample = traced().range("replay", 0, 50).kernel("a", start=100, end=110, correlationId=9, launched=10)
    assert nvtx(sample.kernel("b", start=110, end=120, correlationId=9)) == [("replay",), ("replay",)]


def test_a_kernel_without_a_traced_launch_is_kept_with_a_warning():
    profile = traced().range("step", 0, 9000).kernel().read()
    assert [k.nvtx for k in profile.kernels] == [()]
    assert any("1 of 1 kernels have no launch in the file" in warning for warning in profile.warnings)


def test_kernels_that_name_no_process_join_the_only_one():
    table = KERNEL.replace(" globalPid INTEGER,", "")
    sample = Export(STRINGS, table, RUNTIME, NVTX).range("step", 0, 9000)
    text = sample.string("k")
    sample.add("CUPTI_ACTIVITY_KIND_KERNEL", start=50, end=60, demangledName=text, correlationId=3, deviceId=0)
    sample.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=10, end=11, globalTid=MAIN, correlationId=3)
    (kernel,) = sample.read().kernels
    assert (kernel.nvtx, kernel.process, kernel.grid) == (("step",), str(PID), None)


def test_the_short_name_is_used_if_the_demangled_one_is_missing():
    sample = export().kernel("real name")
    sample.database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = NULL")
    assert sample.read().kernels[0].name == "real name"


def test_a_device_is_joined_by_its_cuda_ordinal_and_not_by_its_id():
    sample = export(GPU).kernel(deviceId=3)
    sample.add("TARGET_INFO_GPU", id=0, cuDevice=3, **A100)
    sample.add("TARGET_INFO_GPU", id=3, cuDevice=0, **A100 | dict(name="Quadro", smCount=20))
    profile = sample.read()
    assert profile.evidence == (A100_EVIDENCE,)
    assert profile.kernels[0].device == "3"


def test_a_device_is_joined_through_its_process_where_the_ordinal_is_not_given():
    sample = export(GPU, "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER)")
    sample.kernel(deviceId=0).add("TARGET_INFO_CUDA_DEVICE", gpuId=2, cudaId=0, pid=PID)
    sample.add("TARGET_INFO_GPU", id=2, **A100).add("TARGET_INFO_GPU", id=0, **A100 | dict(name="Quadro"))
    assert sample.read().evidence == (A100_EVIDENCE,)


def test_all_commands_join_the_device_by_its_cuda_ordinal():
    """`roof trace` took the first of all GPUs of the export."""
    sample = export(GPU).kernel(deviceId=0)
    sample.add("TARGET_INFO_GPU", id=0, cuDevice=1, **A100 | dict(name="NVIDIA A40", smCount=84))
    sample.add("TARGET_INFO_GPU", id=1, cuDevice=0, **A100)
    assert nsys.read(io.BytesIO(sample.bytes()), "sample").evidence == (A100_EVIDENCE,)


def test_calls_without_work_of_the_gpu_are_not_a_missing_option():
    """In WSL, nsys records the launches but not the kernels."""
    sample = export(RUNTIME)
    sample.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=1, end=2, globalTid=MAIN, correlationId=1, nameId=1)
    with pytest.raises(ProfileError, match="no kernels but 1 CUDA call of the CPU: nsys did not trace the GPU"):
        sample.read()


def test_an_adapter_that_cannot_run_cuda_is_no_candidate():
    """Windows lists its software renderer and other vendors' GPUs with zeros, also as CUDA device 0."""
    sample = export(GPU).kernel(deviceId=0).add("TARGET_INFO_GPU", id=0, cuDevice=0, **A100)
    nothing = dict.fromkeys(A100, 0) | dict(name="Microsoft Basic Render Driver")
    sample.add("TARGET_INFO_GPU", id=1, cuDevice=0, **nothing)
    profile = sample.read()
    assert (profile.evidence, profile.warnings) == ((A100_EVIDENCE,), ())


def test_gpus_without_a_join_identify_the_device_only_if_they_are_equal():
    sample = export(GPU).kernel().add("TARGET_INFO_GPU", id=0, **A100).add("TARGET_INFO_GPU", id=1, **A100)
    assert sample.read().evidence == (A100_EVIDENCE,)
    profile = sample.add("TARGET_INFO_GPU", id=2, **A100 | dict(name="Quadro")).read()
    assert profile.evidence == ()
    assert any("specify the device" in warning for warning in profile.warnings)


def test_attributes_that_are_zero_are_unknown():
    sample = export(GPU).kernel().add("TARGET_INFO_GPU", id=0, name="GPU", memoryBandwidth=0, smCount=0)
    assert sample.read().evidence == (Evidence(name="GPU"),)


def test_environment_paths_and_users_never_leave_the_export():
    sample = export("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)", GPU).kernel()
    sample.add("META_DATA_CAPTURE", name="ENV", value="TOKEN=hush")
    sample.database.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
    sample.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="hush").string("/home/hush")
    sample.add("TARGET_INFO_GPU", id=0, cuDevice=0, **A100)
    assert "hush" not in repr(sample.read())


def test_without_kernels_the_message_says_how_to_collect_them():
    for sample in (Export(STRINGS), export()):
        with pytest.raises(ProfileError, match="nsys profile --trace=cuda,nvtx --cuda-graph-trace=node"):
            sample.read()


def test_graphs_traced_as_one_launch_give_a_warning():
    graphs = "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER)"
    sample = Export(STRINGS, graphs).add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=1, end=2)
    with pytest.raises(ProfileError, match="no kernels but 1 CUDA graphs traced as a whole"):
        sample.read()
    sample.database.execute(KERNEL)
    assert any("traced as a whole" in warning for warning in sample.kernel().read().warnings)


def test_copies_are_counted_in_a_warning():
    sample = export("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER)").kernel()
    sample.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=1)
    assert any(warning.startswith("1 memory copy or memset is") for warning in sample.read().warnings)


def test_a_kernel_that_ends_before_it_starts_has_no_time():
    profile = export().kernel(start=10, end=5).read()
    assert profile.kernels[0].seconds is None
    assert any("1 kernel with a missing or negative duration" in warning for warning in profile.warnings)


def test_a_foreign_database_is_refused_with_its_kind():
    with pytest.raises(ProfileError, match="not an nsys export"):
        Export("CREATE TABLE t (a)").read()
    with pytest.raises(ProfileError, match="nvprof --csv --print-gpu-trace -i FILE"):
        Export("CREATE TABLE StringTable (_id_ INTEGER, value TEXT)").read()


def test_a_file_on_disk_is_read_in_place_and_not_changed(tmp_path):
    path = tmp_path / "name with ? and #.sqlite"
    path.write_bytes(export().kernel().bytes())
    path.chmod(0o400)
    before = path.stat().st_mtime_ns
    with path.open("rb") as file:
        assert len(profile_of(nsys.read)(file, "sample").kernels) == 1
    assert path.stat().st_mtime_ns == before
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


SQLITE = (
    export(RUNTIME, NVTX, GPU).kernel(launched=10).range("step", 0, 900).add("TARGET_INFO_GPU", id=0, **A100).bytes()
)


@settings(max_examples=300, deadline=None)
@given(mutilations(SQLITE))
def test_a_mutilated_database_gives_an_error_or_a_table(data):
    assert_error_or_table(profile_of(nsys.read), data)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "start"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "start"),
        ("TARGET_INFO_GPU", "smCount"),
        ("TARGET_INFO_CUDA_DEVICE", "gpuId"),
    ],
)
def test_a_number_that_is_none_is_refused_with_its_table(table, column):
    sample = export(GPU, RUNTIME, NVTX, "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INT)")
    sample.kernel(launched=4000).range("step", 0, 9000).add("TARGET_INFO_GPU", id=2, **A100)
    sample.add("TARGET_INFO_CUDA_DEVICE", gpuId=2, cudaId=0, pid=PID)
    sample.database.execute(f"UPDATE {table} SET {column} = 'abc'")
    with pytest.raises(ProfileError, match=f"sample: the table {table} has a missing or invalid number"):
        sample.read()


def test_a_message_on_a_damaged_database_does_not_quote_it():
    with pytest.raises(ProfileError, match=r"cannot be read \(SQLITE_\w+\)") as caught:
        profile_of(nsys.read)(
            io.BytesIO(SQLITE.replace(b"CREATE TABLE NVTX_EVENTS (", b"CREATE TABLE NVTX\x1bEVENTS !")), "sample"
        )
    assert "NVTX" not in str(caught.value)


def test_a_damaged_schema_that_is_not_utf_8_is_refused():
    damaged = export().kernel().bytes().replace(b"CREATE TABLE StringIds", b"CREATE T\xeaBLE StringIds")
    with pytest.raises(ProfileError, match="sample: the SQLite database cannot be read"):
        profile_of(nsys.read)(io.BytesIO(damaged), "sample")


def schema(name):
    """The empty tables of a real export of one version of nsys."""
    text = measured(f"traces/nsys_schemas/nsys_{name}.sql").read_text()
    return Export(*re.findall(r"CREATE TABLE.*?^\);", text, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize(
    ("name", "has_nvtx"), [("ckl_report2", False), ("memfusion_report1", True), ("resnet50", True)]
)
def test_every_measured_schema_is_read(name, has_nvtx):
    # The schema of this version, with rows of the test: two kernels of 30 and 70 ns.
    sample = schema(name)
    sample.kernel("a", start=100, end=130, launched=10).kernel("b", start=200, end=270, launched=20)
    if has_nvtx:  # nsys creates the table only for a run with ranges
        sample.range("forward", 5, 15, registered=True)
    sample.add("TARGET_INFO_GPU", id=0, cuDevice=0, **A100)
    profile = sample.read()
    assert [(k.name, k.seconds) for k in profile.kernels] == [("a", 30e-9), ("b", 70e-9)]
    assert [k.nvtx for k in profile.kernels] == [("forward",) if has_nvtx else (), ()]
    assert profile.evidence == (A100_EVIDENCE,)


def test_a_measured_schema_without_kernels_is_refused_with_what_to_collect():
    with pytest.raises(ProfileError, match=r"no kernels .*nsys profile --trace=cuda"):
        schema("miniGEMM_report1").read()


def test_the_measured_export_equals_its_row():
    path = measured("traces/nsys/one_kernel_rtx_a4500.sqlite")
    raw = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    ((start, end),) = raw.execute("SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall()
    with path.open("rb") as file:
        profile = profile_of(nsys.read)(file, path.name)
    (kernel,) = profile.kernels
    assert kernel.seconds == (end - start) / 1e9 == pytest.approx(1.448e-3, abs=5e-7)
    assert kernel.process == str(raw.execute("SELECT pid FROM TARGET_INFO_CUDA_DEVICE").fetchone()[0])
    raw.close()
    assert profile.evidence[0].name == "NVIDIA RTX A4500"
    assert profile.evidence[0].dram_bandwidth == 640.08e9
    assert (
        profile_of(nsys.read)(io.BytesIO(content(path)), path.name) == profile
    )  # the same from a stream without a file


# The CSV of `nsys stats`

SUM = """Generating SQLite file report.sqlite from report.nsys-rep
Processing [report.sqlite] with [/opt/reports/cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,3000,3,1000.0,1000.0,900,1100,81.6,"void f<(int)4, float>(float *, int)"
25.0,1000,1,1000.0,1000.0,1000,1000,0.0,saxpy
"""
API = """Processing [report.sqlite] with [/opt/reports/cuda_api_sum.py]...

Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
99.0,900000,4,225000.0,1.0,1,800000,1.0,cudaMalloc

"""
GPU_TRACE = """Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),\
Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name
1000,500,101,160,1,2,256,1,1,32,0.000,0.000,,,,,NVIDIA A10G (1),1,,7,"burn(float *, int, int)"
9000,4000,102,,,,,,,,,,0.262,62.500,Pageable,Device,NVIDIA A10G (1),1,,13,[CUDA memcpy Host-to-Device]
"""
EXEC = """API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),Total Dur (ns),\
PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name
43703966,78512,,,43769847,75200,141081,11,12,2,cuLaunchKernelEx, 148    1    1, 256    1    1,k(int)
"""


def read(text):
    return read_text(profile_of(nsys.read), text)


def test_a_summary_has_instances_and_total_time():
    f, saxpy = read(SUM).kernels
    assert (f.name, f.invocations, f.seconds) == ("void f<(int)4, float>(float *, int)", 3, 3000e-9)  # 3 x 1000 ns
    assert (saxpy.name, saxpy.invocations, saxpy.seconds) == ("saxpy", 1, 1000e-9)


def test_api_calls_in_the_same_file_are_not_kernels():
    assert [kernel.name for kernel in read(API + SUM + "\n" + API).kernels] == [
        "void f<(int)4, float>(float *, int)",
        "saxpy",
    ]


def test_ranges_in_the_same_file_are_not_kernels():
    ranges = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range\n"
    assert len(read(SUM + "\n" + ranges + "50.0,77,1,77.0,77.0,77,77,0.0,PushPop,:step\n").kernels) == 2


def test_older_headings_and_other_units_are_read():
    old = 'Time(%),Total Time (us),Instances,Average,Minimum,Maximum,Name\n100.0,12.5,2,6.25,6,7,"k"\n'
    assert [(k.invocations, k.seconds) for k in read(old).kernels] == [(2, 12.5e-6)]


def test_a_heading_without_a_unit_means_nanoseconds_and_gives_a_warning():
    profile = read(
        "API Start,Kernel Start,Kernel Dur,PID,DevId,GridXYZ,BlockXYZ,Kernel Name\n1,5,80,9,0,1 1 1,32 1 1,k\n"
    )
    assert profile.kernels[0].seconds == 80e-9
    assert any("nanoseconds" in warning for warning in profile.warnings)


def test_old_summaries_by_grid_and_block_keep_grid_and_block():
    text = SUM.replace("StdDev (ns),Name", "StdDev (ns),GridXYZ,BlockXYZ,Name")
    text = text.replace("81.6,", "81.6, 896    1    1, 128    2    1,").replace(",0.0,saxpy", ",0.0,1 1 1,32 1 1,saxpy")
    f, saxpy = read(text).kernels
    assert (f.grid, f.block, f.seconds) == ((896, 1, 1), (128, 2, 1), 3000e-9)
    assert saxpy.block == (32, 1, 1)


def test_a_gpu_trace_has_launches_and_counts_copies():
    profile = read(GPU_TRACE)
    (burn,) = profile.kernels
    assert (burn.seconds, burn.start, burn.grid, burn.block) == (500e-9, 1000e-9, (160, 1, 2), (256, 1, 1))
    assert (burn.registers, burn.device, burn.stream) == (32, "1", "7")
    assert profile.warnings == ("1 memory copy or memset is not listed as kernels",)
    assert profile.evidence == (Evidence(name="NVIDIA A10G"),)


def test_an_execution_trace_has_process_device_and_sizes():
    (kernel,) = read(EXEC).kernels
    assert (kernel.seconds, kernel.start) == (75200e-9, 43769847e-9)
    assert (kernel.process, kernel.device, kernel.grid, kernel.block) == ("11", "2", (148, 1, 1), (256, 1, 1))


def test_reports_on_the_same_kernels_are_not_added_up():
    profile = read(SUM + "\n" + GPU_TRACE + "\n" + EXEC)
    assert [kernel.name for kernel in profile.kernels] == ["burn(float *, int, int)"]
    assert sum("is ignored" in warning for warning in profile.warnings) == 2


def test_a_file_with_other_reports_only_is_refused_with_what_to_collect():
    with pytest.raises(ProfileError, match=r"no report with kernels.*--report cuda_gpu_trace"):
        read(API)


PRINTED = """\
[6/8] Executing 'cuda_api_sum' stats report

 Time (%)  Total Time (ns)  Num Calls    Avg (ns)    Name
 --------  ---------------  ---------  -----------  ----------
    100.0          482,472          1    482,472.0  cudaMalloc

[7/8] Executing 'cuda_gpu_kern_sum' stats report

 Time (%)  Total Time (ns)  Instances   Avg (ns)           Name
 --------  ---------------  ---------  -----------  ------------------
     95.0        3,481,709          3  1,160,569.7  add<(int)4, true>(float *, int)
      5.0          182,472          1    182,472.0  scale(float *)

"""
PRINTED_2020 = """\
CUDA Kernel Statistics (nanoseconds)

Time(%)      Total Time   Instances         Average  Name
-------  --------------  ----------  --------------  ----------------
  100.0         3664181           4        916045.3  scale(float *)

CUDA Memory Operation Statistics (nanoseconds)
"""


def test_a_printed_table_is_read_by_the_widths_of_its_columns():
    add, scale = read(PRINTED).kernels
    assert (add.name, add.invocations, add.seconds) == ("add<(int)4, true>(float *, int)", 3, 3_481_709e-9)
    assert (scale.name, scale.invocations, scale.seconds) == ("scale(float *)", 1, 182_472e-9)
    (old,) = read(PRINTED_2020).kernels
    assert (old.name, old.invocations, old.seconds) == ("scale(float *)", 4, 3_664_181e-9)
    assert signatures.nsys(PRINTED.encode())
    assert signatures.nsys(PRINTED_2020.encode())


def test_a_line_of_dashes_between_the_rows_of_a_csv_is_skipped():
    profile = read(SUM + "------ ------\n" + SUM.splitlines(keepends=True)[-1])
    assert [kernel.name for kernel in profile.kernels] == ["void f<(int)4, float>(float *, int)", "saxpy", "saxpy"]
    assert "skipped between the rows: 1 line outside of tables" in profile.warnings


def test_a_damaged_row_is_refused_with_its_line():
    with pytest.raises(ProfileError, match=r"sample:2: the row has open quotes"):
        read(GPU_TRACE[: GPU_TRACE.index("int)")])
    with pytest.raises(ProfileError, match=r"sample:5: 'many' is not a number"):
        read(SUM.replace("3000", "many"))
    with pytest.raises(ProfileError, match=r"sample:11: the row has cells that are not below the header"):
        read(PRINTED.replace("3,481,709   ", "3481709"))
    with pytest.raises(ProfileError, match=r"sample:5: .* has no number of instances"):
        read(SUM.replace("3000,3,", "3000,,"))


@pytest.mark.parametrize("text", [SUM, GPU_TRACE, EXEC, API, PRINTED])
def test_output_of_nsys_stats_is_recognized_by_its_content(text):
    assert signatures.nsys(text.encode())
    assert signatures.nsys(text.encode("utf-16"))


def test_files_of_other_tools_are_not_recognized():
    nvprof = '"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,us,us,us,\n'
    ncu = '"ID","Process ID","Process Name","Host Name","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
    durations = "Name,Profile,Memory_footprint,SM_usage,Duration\nk,-1,0,1,6144\n"
    for other in (nvprof, ncu, durations, '{"traceEvents": []}', ""):
        assert not signatures.nsys(other.encode())


@settings(max_examples=300, deadline=None)
@given(mutilations((SUM + "\n" + GPU_TRACE + "\n" + EXEC + "\n" + PRINTED).encode()))
def test_a_mutilated_print_gives_an_error_or_a_table(data):
    signatures.nsys(data)
    assert_error_or_table(profile_of(nsys.read), data)


def test_the_measured_summary_equals_its_rows():
    path = measured("traces/nsys/nsys_rtx5090_cuda_gpu_kern_sum.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    profile = profile_of(nsys.read)(io.BytesIO(content(path)), path.name)
    assert len(profile.kernels) == len(rows) == 113
    assert sum(k.invocations for k in profile.kernels) == sum(int(row["Instances"]) for row in rows)
    total_ns = sum(int(row["Total Time (ns)"]) for row in rows)
    assert sum(k.seconds for k in profile.kernels) == pytest.approx(total_ns / 1e9, rel=1e-12)


def test_text_without_durations_of_a_tool_is_not_recognized():
    head = content(measured("traces/kernel_durations_v100/bert_2_fwd.csv"))[:65536]
    assert not signatures.nsys(head)


# --- databases of unknown origin --------------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"


@pytest.mark.parametrize(
    "schema",
    [
        f"{STRINGS}; CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {ENDLESS} i AS start, i AS end FROM n",
        f"CREATE VIEW StringIds AS {ENDLESS} i AS id, 'k' AS value FROM n; {KERNEL}",
        f"{STRINGS}; CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_KERNEL USING fts5(start)",
    ],
)
def test_views_and_virtual_tables_are_not_read(tmp_path, schema):
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(schema)
    with path.open("rb") as file, pytest.raises(ProfileError, match=r"no table StringIds|contains no kernels"):
        profile_of(nsys.read)(file, "x.sqlite")


def test_a_computed_column_is_not_read(tmp_path):
    path = tmp_path / "x.sqlite"
    kernels = KERNEL.replace("shortName INTEGER", "shortName AS (zeroblob(900000000))")
    with closing(sqlite3.connect(path)) as database:
        database.executescript(f"{STRINGS}; INSERT INTO StringIds VALUES (1, 'k'); {kernels}")
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, demangledName) VALUES (0, 1, 1)")
        database.commit()
    with path.open("rb") as file:
        assert [kernel.name for kernel in profile_of(nsys.read)(file, "x.sqlite").kernels] == ["k"]


def test_a_database_with_more_rows_than_bytes_is_refused(tmp_path):
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(f"PRAGMA page_size = 4096; {STRINGS}; {KERNEL}")
        database.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, demangledName) VALUES (0, 1, 1)", [()] * 1000
        )
        database.execute("INSERT INTO StringIds VALUES (1, 'k')")
        database.commit()
        (root,) = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'"
        ).fetchone()
    content = bytearray(path.read_bytes())
    page = (root - 1) * 4096
    assert content[page] == 5  # an inner page of a table
    # Let the inner page have 1500 entries, all of which are its first child.
    content[page + 3 : page + 5] = (1500).to_bytes(2, "big")
    content[page + 12 : page + 12 + 3000] = content[page + 12 : page + 14] * 1500
    path.write_bytes(content)
    with path.open("rb") as file, pytest.raises(ProfileError, match="the SQLite database cannot be read"):
        profile_of(nsys.read)(file, "x.sqlite")
