"""The CSV of AMD's profilers; the layouts are those of ROCm's documentation and of public repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

import roofmodel
from roofmodel.errors import ProfileError
from roofmodel.profiles.reading import read
from roofmodel.roofline.judged_kernels import reasons_by_group

TRACE = """\
"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",\
"Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",\
"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"
"KERNEL_DISPATCH","Agent 2",1,0,70,1,33,"Cijk_Ailk_Bljk_HHS_BH(int, float)",10,1000000,1100000,0,0,128,4,48,\
256,1,1,512,2,1
"KERNEL_DISPATCH","Agent 2",1,0,70,2,16,"copy<float>(float*, float const*)",11,1200000,1250000,0,0,8,4,16,\
64,1,1,6400,1,1
"""
COUNTER_COLUMNS = (
    '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id",'
    '"Kernel_Name","Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",'
    '"Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"\n'
)
NAMES = {1: "Cijk_Ailk_Bljk_HHS_BH(int, float)", 2: "copy<float>(float*, float const*)"}
AGENTS = """\
"Node_Id","Logical_Node_Id","Agent_Type","Cpu_Cores_Count","Cu_Count","Max_Engine_Clk_Fcompute","Name","Product_Name"
0,0,"CPU",192,192,0,"AMD EPYC 9654","AMD EPYC 9654"
2,2,"GPU",0,304,2100,"gfx942","AMD Instinct MI300X"
"""


def counters(*rows: tuple[int, str, float]) -> str:
    """A file of a pass: dispatch, counter and value; the times are longer than those of the trace."""
    lines = [
        f'{dispatch},{dispatch},"Agent 2",1,70,70,512,3,"{NAMES[dispatch]}",256,0,0,128,4,48,"{name}",{value:.6f},'
        f"{dispatch * 1000000},{dispatch * 1000000 + 500000}\n"
        for dispatch, name, value in rows
    ]
    return COUNTER_COLUMNS + "".join(lines)


@pytest.fixture
def files(tmp_path: Path):
    def write(**texts: str) -> list[Path]:
        for name, text in texts.items():
            (tmp_path / f"{name}.csv").write_text(text)
        return [tmp_path / f"{name}.csv" for name in texts]

    return write


def test_a_kernel_trace_has_names_times_and_sizes_in_workgroups(files) -> None:
    gemm, copy = read(files(trace=TRACE)).kernels
    assert (gemm.name, gemm.device, gemm.stream) == (NAMES[1], "2", "1")
    assert (gemm.seconds, copy.seconds) == pytest.approx((100e-6, 50e-6))
    assert (gemm.start, copy.start) == pytest.approx((0, 200e-6))
    assert (gemm.grid, gemm.block) == ((2, 2, 1), (256, 1, 1))  # AMD's grid of 512 x 2 counts work items
    assert gemm.registers == 128
    assert gemm.flops.tensor_fp16 is None


def test_a_workgroup_that_is_filled_in_part_counts_in_the_grid(files) -> None:
    """513 x 3 work items in workgroups of 256 x 2: the last of each row and column has fewer."""
    text = TRACE.replace("256,1,1,512,2,1", "256,2,1,513,3,1")
    assert text != TRACE
    assert read(files(trace=text)).kernels[0].grid == (3, 2, 1)


def test_passes_of_counters_are_joined_with_the_times_of_the_trace(files) -> None:
    mops = counters((1, "SQ_INSTS_VALU_MFMA_MOPS_F16", 1000), (2, "SQ_INSTS_VALU_MFMA_MOPS_F16", 0))
    sizes = counters(*((n, name, 10 * n) for n in (1, 2) for name in ("FETCH_SIZE", "WRITE_SIZE")))
    gemm, copy = read(files(mops=mops, trace=TRACE, sizes=sizes)).kernels
    assert gemm.seconds == pytest.approx(100e-6)  # not the 500 us under counters
    assert (gemm.flops.tensor_fp16, copy.flops.tensor_fp16) == (512 * 1000, 0)
    assert (gemm.bytes.dram, copy.bytes.dram) == (2 * 10 * 1024, 2 * 20 * 1024)  # kilobytes, read and written


def test_requests_to_memory_have_three_sizes_on_an_mi300(files) -> None:
    requests = {"RDREQ_sum": 100, "RDREQ_32B_sum": 10, "WRREQ_sum": 50, "WRREQ_64B_sum": 40}
    rows = [(1, f"TCC_EA0_{name}", value) for name, value in requests.items()]
    (kernel,) = read(files(a=counters(*rows, (1, "TCC_BUBBLE_sum", 60)))).kernels
    assert kernel.bytes.dram == 32 * 10 + 64 * 30 + 128 * 60 + 64 * 40 + 32 * 10
    (kernel,) = read(files(b=counters(*rows))).kernels
    assert kernel.bytes.dram is None  # without the 128-byte requests the sum would be too small
    rows = [(1, f"TCC_EA_{name}", value) for name, value in requests.items()]  # MI200 has none of them
    (kernel,) = read(files(c=counters(*rows))).kernels
    assert kernel.bytes.dram == 32 * 10 + 64 * 90 + 64 * 40 + 32 * 10


def test_vector_instructions_count_64_lanes_and_a_fused_one_two_operations(files) -> None:
    rows = [(1, f"SQ_INSTS_VALU_{kind}_F32", 10) for kind in ("ADD", "MUL", "TRANS", "FMA")]
    profile = read(files(a=counters(*rows)))
    assert profile.kernels[0].flops.fp32 == 64 * (10 + 10 + 10 + 2 * 10)
    assert profile.kernels[0].flops.fp64 is None
    assert "upper bound" in " ".join(profile.warnings)
    (kernel,) = read(files(b=counters(*rows[:3]))).kernels
    assert kernel.flops.fp32 is None  # FMA was not collected


def test_the_agents_name_the_device(files) -> None:
    trace, agents = files(trace=TRACE, agents=AGENTS)
    evidence = read([trace, agents]).evidence
    assert [each.name for each in evidence] == ["AMD Instinct MI300X"]
    sizes = counters(*((n, name, 10 * n) for n in (1, 2) for name in ("FETCH_SIZE", "WRITE_SIZE")))
    mops = counters((1, "SQ_INSTS_VALU_MFMA_MOPS_F16", 1000), (2, "SQ_INSTS_VALU_MFMA_MOPS_F16", 0))
    document = roofmodel.plot(trace, agents, *files(sizes=sizes, mops=mops)).to_dict()
    assert document["hardware"] == "mi300x"


def test_the_older_rocprof_has_a_row_for_each_launch_with_its_counters(files) -> None:
    text = (
        '"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr","arch_vgpr",'
        '"accum_vgpr","sgpr","wave_size","sig","obj","FETCH_SIZE","WRITE_SIZE","DispatchNs","BeginNs","EndNs",'
        '"CompleteNs","DurationNs"\n'
        '0,"bodyForce(Body*, float, int) [clone .kd]",0,0,0,36,36,65536,256,0,0,20,4,16,64,"0x0","0x7f",7.5,2.5,'
        "1591372809346673,1591372809872935,1591372836189584,1591372836215944,26316649\n"
    )
    (kernel,) = read(files(results=text)).kernels
    assert (kernel.name, kernel.device, kernel.process) == ("bodyForce(Body*, float, int)", "0", "36")
    assert kernel.seconds == pytest.approx(26316649e-9)
    assert kernel.bytes.dram == 10 * 1024


def test_a_summary_has_a_row_for_each_name(files) -> None:
    (kernel,) = read(files(stats=STATS)).kernels
    assert (kernel.name, kernel.invocations, kernel.seconds) == ("gemm(int)", 24, pytest.approx(10650240e-9))


def test_a_run_is_read_from_a_kernel_trace(files) -> None:
    (rank,) = roofmodel.trace(*files(trace=TRACE)).to_dict()["ranks"]
    assert (rank["kernels"], rank["device"]) == (2, "2")
    assert rank["busy_seconds"] == pytest.approx(150e-6)
    assert rank["wall_seconds"] == pytest.approx(250e-6)


COPIES = """\
"Kind","Direction","Stream_Id","Source_Agent_Id","Destination_Agent_Id","Correlation_Id","Start_Timestamp","End_Timestamp"
"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE",0,"Agent 0","Agent 2",3,900000,980000
"MEMORY_COPY","MEMORY_COPY_DEVICE_TO_HOST",0,"Agent 2","Agent 0",9,1300000,1310000
"""


def test_the_kernels_and_the_copies_of_a_run_are_one_timeline(files) -> None:
    """80 us of a copy, 20 us idle, then as above to 1250 us; 50 us idle, 10 us of a copy."""
    (rank,) = roofmodel.trace(*files(run_kernel_trace=TRACE, run_memory_copy_trace=COPIES)).to_dict()["ranks"]
    assert (rank["kernels"], rank["device"]) == (2, "2")
    assert rank["wall_seconds"] == pytest.approx(410e-6)
    assert rank["copies_exposed_seconds"] == pytest.approx(90e-6)
    profile = read(files(run_kernel_trace=TRACE, run_memory_copy_trace=COPIES))
    assert len(profile.kernels) == 2
    assert "2 memory copies and memsets are not listed as kernels" in profile.warnings


STATS = '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"gemm(int)",24,10650240,443760.0,88.70\n'


def test_a_summary_in_the_folder_of_a_trace_is_skipped(files, tmp_path) -> None:
    files(run_kernel_trace=TRACE, run_kernel_stats=STATS)
    document = roofmodel.trace(tmp_path).to_dict()
    assert [rank["kernels"] for rank in document["ranks"]] == [2]
    assert "run_kernel_stats.csv: skipped: a summary without start times" in document["warnings"]
    with pytest.raises(ProfileError, match="a summary without the start of each kernel"):
        roofmodel.trace(tmp_path / "run_kernel_stats.csv")


def test_the_tables_of_rocprof_compute_are_one_run(files, tmp_path) -> None:
    launch = "Dispatch_ID,Kernel_Name,GPU_ID"
    times = f"{launch},Start_Timestamp,End_Timestamp\n0,scale,0,1000,9000\n"
    top = "Kernel_Name,Count,Sum(ns),Mean(ns),Median(ns),Pct\nscale,1,8000,8000,8000,100\n"
    system = "workload_name,command,gpu_model,gpu_arch,cu_per_gpu,max_sclk\nw,./a,mi300x_a1,gfx942,304,2100\n"
    files(
        pmc_perf=times, timestamps=times, pmc_dispatch_info=f"{launch}\n0,scale,0\n", pmc_kernel_top=top, sysinfo=system
    )
    (rank,) = roofmodel.trace(tmp_path).to_dict()["ranks"]
    assert (rank["kernels"], rank["busy_seconds"]) == (1, pytest.approx(8e-6))


def test_a_copy_between_two_places_of_the_host_is_of_no_rank(files) -> None:
    copies = COPIES + '"MEMORY_COPY","MEMORY_COPY_HOST_TO_HOST",0,"Agent 0","Agent 0",10,1400000,1900000\n'
    (rank,) = roofmodel.trace(*files(run_kernel_trace=TRACE, run_memory_copy_trace=copies)).to_dict()["ranks"]
    assert rank["device"] == "2"
    assert rank["wall_seconds"] == pytest.approx(410e-6)  # as without it


def test_a_copy_between_gpus_has_both(files) -> None:
    copies = COPIES.replace("HOST_TO_DEVICE", "DEVICE_TO_DEVICE").replace(
        '"Agent 0","Agent 2",3', '"Agent 3","Agent 2",3'
    )
    copy, _ = read(files(run_kernel_trace=TRACE, run_memory_copy_trace=copies)).copies
    assert copy.copy is not None
    assert (copy.copy.direction, copy.copy.source, copy.copy.destination) == ("PtoP", "3", "2")


def test_the_idle_time_is_that_of_a_trace_because_kernels_that_are_counted_run_one_by_one(files) -> None:
    """100 us between the kernels of the trace; 500 us between those that are counted."""
    sizes = counters(*((n, name, 10 * n) for n in (1, 2) for name in ("FETCH_SIZE", "WRITE_SIZE")))
    counted = read(files(sizes=sizes))
    assert not any(each.reason == "launch_gap" for each in reasons_by_group(counted, None)[NAMES[2]])
    traced = read(files(sizes=sizes, trace=TRACE))
    (gap,) = (each for each in reasons_by_group(traced, None)[NAMES[2]] if each.reason == "launch_gap")
    assert gap.seconds == pytest.approx(100e-6)


def test_a_kernel_that_ends_before_it_starts_has_no_time_in_a_timeline(files) -> None:
    (trace,) = files(trace=TRACE.replace("1250000", "1150000"))
    document = roofmodel.trace(trace).to_dict()
    assert document["ranks"][0]["kernels"] == 1
    assert "1 kernel has a time below zero" in " ".join(document["warnings"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TRACE[:-10], "22 columns"),
        (TRACE.replace("1100000", "soon"), "trace.csv:2: .*soon"),
        (AGENTS, "no kernels; collect with rocprofv3 --kernel-trace"),
        (COUNTER_COLUMNS, "no kernels"),
        (counters((1, "FETCH_SIZE", 1)).replace("Counter_Value", "Value"), "trace.csv:2: .*'counter_value' is missing"),
        (TRACE.replace("Grid_Size_X", "Grid"), "trace.csv:2: .*'grid_size_x' is missing"),
        (counters((1, "FETCH_SIZE", -5)), "trace.csv:2: -5.000000 is not a count"),
        (TRACE.replace("copy<float>(float*, float const*)", " "), "trace.csv:3: the kernel has no name"),
        (counters((1, "FETCH_SIZE", float("nan"))), "trace.csv:2: nan is not a count"),
    ],
)
def test_damaged_files_and_files_without_kernels_are_refused(files, text: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        read(files(trace=text))


def workload(model: str = "MI300X_A1", prefix: str = "TCC_EA0") -> dict[str, str]:
    """The files of a workload folder of rocprof-compute: a copy of 1 MiB, launched twice, and a pass with both."""
    counters = {
        f"{prefix}_RDREQ_sum": 8192, f"{prefix}_RDREQ_32B_sum": 0, f"{prefix}_WRREQ_sum": 16384,
        f"{prefix}_WRREQ_64B_sum": 16384, "TCC_BUBBLE_sum": 8192, "TCP_TCC_READ_REQ_sum": 8192,
        "TCP_TCC_WRITE_REQ_sum": 16384, "TCP_TCC_ATOMIC_WITH_RET_REQ_sum": 0, "TCP_TCC_ATOMIC_WITHOUT_RET_REQ_sum": 0,
        "TCP_TOTAL_CACHE_ACCESSES_sum": 65536, "TCC_BUBBLE[0]": 64, "SQ_INSTS_VALU_MFMA_MOPS_F64": 3,
    }  # fmt: skip
    lead = "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,Kernel_Name"
    row = ',2,131072,256,0,0,4,"copy(double*, double*) (.kd)"'
    times = ((5000, 25000), (40000, 55000))
    merged = [f"{lead},{','.join(counters)},Start_Timestamp,End_Timestamp"]
    merged += [f"{n}{row},{','.join(map(str, counters.values()))},{a},{b}" for n, (a, b) in enumerate(times)]
    level = [f"{lead},SQ_WAVES,SQ_ACCUM_PREV_HIRES,Start_Timestamp,End_Timestamp"]
    level += [f"{n}{row},2048,77,{a},{b}" for n, (a, b) in enumerate(times)]
    system = f"workload_name,command,gpu_model,gpu_arch,cu_per_gpu,max_sclk\nrun,./copy -n 1,{model},gfx942,304,2100\n"
    return {
        "pmc_perf.csv": "\n".join(merged) + "\n", "SQ_LEVEL_WAVES.csv": "\n".join(level) + "\n", "sysinfo.csv": system,
        "roofline.csv": "device,HBMBw,HBMBwLow\n0,4000.5,3999.1\n",
        "pmc_kernel_top.csv": "Kernel_Name,Count,Sum(ns),Mean(ns),Median(ns),Pct\ncopy,2,35000,17500,17500,100\n",
    }  # fmt: skip


def workload_folder(folder: Path, *of: str) -> list[Path]:
    for name, text in workload(*of).items():
        (folder / name).write_text(text)
    return sorted(folder.iterdir())


def test_a_workload_folder_of_rocprof_compute_has_each_launch_once(tmp_path: Path) -> None:
    profile = read(workload_folder(tmp_path))
    assert [(kernel.name, kernel.seconds) for kernel in profile.kernels] == [
        ("copy(double*, double*)", pytest.approx(20e-6)),
        ("copy(double*, double*)", pytest.approx(15e-6)),
    ]
    assert profile.kernels[0].flops.tensor_fp64 == 512 * 3
    (device,) = profile.evidence
    assert (device.name, device.multiprocessors, device.clock) == ("AMD Instinct MI300X", 304, 2100e6)
    assert "roofline.csv: skipped: ceilings that rocprof-compute measured" in " ".join(profile.warnings)
    document = roofmodel.plot(*sorted(tmp_path.iterdir())).to_dict()
    assert document["hardware"] == "mi300x"


def test_a_copy_of_1_mib_moves_1_mib_in_each_direction_at_l2_and_memory(tmp_path: Path) -> None:
    """MI300 reads lines of 128 bytes: 8192 requests are 1 MiB, and so are 16384 writes of 64 bytes."""
    kernel = read(workload_folder(tmp_path)).kernels[0]
    assert kernel.bytes.dram == kernel.bytes.l2 == 2 * 2**20
    assert kernel.bytes.l1 == 64 * 65536


def test_an_mi200_reads_lines_of_64_bytes(tmp_path: Path) -> None:
    kernel = read(workload_folder(tmp_path, "MI200", "TCC_EA")).kernels[0]
    assert kernel.bytes.l2 == kernel.bytes.dram == 64 * (8192 + 16384)


def test_times_that_a_spreadsheet_rounded_are_unknown(tmp_path: Path) -> None:
    files = workload_folder(tmp_path)
    table = tmp_path / "pmc_perf.csv"
    table.write_text(table.read_text().replace(",5000,25000", ",8.1097E+14,8.1097E+14"))
    profile = read(files)
    assert [kernel.seconds for kernel in profile.kernels] == [None, pytest.approx(15e-6)]
    assert "a spreadsheet rounded them" in " ".join(profile.warnings)


def test_the_top_kernels_of_rocprof_compute_are_a_summary(tmp_path: Path) -> None:
    workload_folder(tmp_path)
    (kernel,) = read([tmp_path / "pmc_kernel_top.csv"]).kernels
    assert (kernel.name, kernel.invocations, kernel.seconds) == ("copy", 2, pytest.approx(35e-6))
