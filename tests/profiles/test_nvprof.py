import csv
import io
import re

import pytest
from hypothesis import given, settings

from roofmodel.devices.device import Device
from roofmodel.errors import ProfileError
from roofmodel.profiles import nvprof, signatures
from roofmodel.profiles.kernel import Evidence
from roofmodel.roofline.judged_kernels import collecting
from roofmodel.roofline.reasons import reasons
from tests.profiles.samples import assert_error_or_table, content, measured, mutilations, profile_of, read_text

HEADER = (
    '"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread",'
    '"Static SMem","Dynamic SMem","Size","Throughput","SrcMemType","DstMemType","Device","Context","Stream","Name"'
)
TRACE = f"""==7== NVPROF is profiling process 7, command: ./secret-host/app --user someone
==7== Profiling application: ./secret-host/app --user someone
==7== Profiling result:
{HEADER}
s,ms,,,,,,,,KB,B,MB,GB/s,,,,,,
9.245914,41.306943,64,1,1,1024,1,1,14,1.500000,64,,,,,"Tesla V100-SXM2 (3)","1","7","void init(double*, int)"
9.287300,0.500000,128,2,1,256,1,1,32,0.000000,0,,,,,"Tesla V100-SXM2 (3)","1","14","void f<int=4, float>(float*, int)"
"""
COPY = '9.3,7.0,,,,,,,,,,366.210938,8.657959,"Pageable","Device","Tesla V100-SXM2 (3)","1","7","[CUDA memcpy HtoD]"\n'
SUMMARY = """==7== Profiling result:
"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"
,%,ms,,us,us,us,
"GPU activities",80.000000,4.000000,8,500.000000,400.000000,600.000000,"sgemm, the 1st"
"GPU activities",20.000000,1.000000,2,500.000000,400.000000,600.000000,"[CUDA memcpy DtoH]"
"API calls",99.000000,900.000000,3,300000.000000,1.000000,800000.000000,"cudaMalloc"
"""
METRICS = """==9== NVPROF is profiling process 9, command: ./app
==9== Warning: Some kernel(s) will be replayed on device 0 in order to collect all events/metrics.
==9== Profiling result:
==9== Metric result:
"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"
"Tesla K20c (0)","stencil(float*, int)",3,"flop_count_sp","Floating Point Operations(Single Precision)",100,120,110
"Tesla K20c (0)","stencil(float*, int)",3,"flop_count_dp","Floating Point Operations(Double Precision)",0,0,0
"Tesla K20c (0)","stencil(float*, int)",3,"dram_read_transactions","Device Memory Read Transactions",9,11,10
"Tesla K20c (0)","stencil(float*, int)",3,"dram_write_transactions","Device Memory Write Transactions",4,6,5
"Tesla K20c (0)","stencil(float*, int)",3,"l2_read_transactions","L2 Read Transactions",20,20,20
"Tesla K20c (0)","stencil(float*, int)",3,"l2_write_transactions","L2 Write Transactions",30,30,30
"Tesla K20c (0)","stencil(float*, int)",3,"achieved_occupancy","Achieved Occupancy",0.5,0.5,0.5
"Tesla K20c (0)","stencil(float*, int)",3,"gld_throughput","Global Load Throughput",12.3GB/s,12.3GB/s,12.3GB/s
"Tesla K20c (0)","stencil(float*, int)",3,"sm_efficiency","Multiprocessor Activity",45.1%,45.1%,45.1%
"Tesla K20c (0)","stencil(float*, int)",3,"tensor_precision_fu_utilization","Tensor",Low (2),Low (2),Low (2)
"""
TEXT_TRACE = """==7== Profiling result:
   Start  Duration            Grid Size      Block Size     Regs*    SSMem*    DSMem*      Size  Throughput  SrcMemType  DstMemType           Device   Context    Stream  Name
326.63ms  1.6782ms          (32768 1 1)      (1024 1 1)        14  8.0000KB      512B         -           -           -           -     TITAN Xp (0)         1         7  void init<double>(double*, double) [128]
1.07555s     928ns                    -               -         -         -         -  2.0000KB  2.0553GB/s      Device    Pageable     TITAN Xp (0)         1         7  [CUDA memcpy DtoH]

Regs: Number of registers used per CUDA thread. This number includes registers used internally.
"""  # noqa: E501
TEXT_SUMMARY = """==7== Profiling result:
            Type  Time(%)      Time     Calls       Avg       Min       Max  Name
 GPU activities:   75.00%  3.0000ms         2  1.5000ms  1.4000ms  1.6000ms  void gemm<int=2>(float*,  int)
                   25.00%  1.0000ms         1  1.0000ms  1.0000ms  1.0000ms  [CUDA memcpy HtoD]
      API calls:   99.00%  1.2000e+03s      4  300.00s  1.0000us  1.1e+03s  cudaFree
                    1.00%  1.0000ms         1  1.0000ms  1.0000ms  1.0000ms  cudaMalloc
"""
TEXT_METRICS = """==7== Metric result:
Invocations                               Metric Name                        Metric Description         Min         Max         Avg
Device "Tesla K40c (1)"
    Kernel: foo(int, float*)
          4                             flop_count_sp  Floating Point Operations(Single Precision)   1.0e+06     1.0e+06     1.0e+06
    Kernel: bar(void)
          1                             flop_count_sp  Floating Point Operations(Single Precision)        10          10          10
"""  # noqa: E501


def read(text):
    return read_text(profile_of(nvprof.read), text)


def test_a_trace_row_takes_its_units_from_the_units_row():
    first, kernel = read(TRACE).kernels
    assert first.seconds == 0.041306943  # 41.306943 ms
    assert first.start == 9.245914  # s
    assert (first.shared_bytes, kernel.shared_bytes) == (1536 + 64, 0)  # 1.5 KiB static, 64 B dynamic
    assert kernel.seconds == 0.0005  # 0.5 ms
    assert (kernel.grid, kernel.block, kernel.registers) == ((128, 2, 1), (256, 1, 1), 32)
    assert (kernel.stream, kernel.process, kernel.name) == ("14", "7", "void f<int=4, float>(float*, int)")


@pytest.mark.parametrize(("unit", "seconds"), [("s", 0.5), ("ms", 0.5e-3), ("us", 0.5e-6), ("ns", 0.5e-9)])
def test_units_are_chosen_for_each_file(unit, seconds):
    assert read(TRACE.replace("s,ms,", f"s,{unit},")).kernels[1].seconds == pytest.approx(seconds, rel=1e-15)


def test_units_change_where_files_are_concatenated():
    both = read(TRACE + TRACE.replace("s,ms,", "s,us,")).kernels
    assert [k.seconds for k in both] == [0.041306943, 0.0005, 0.000041306943, 0.5e-6]
    assert len({k.id for k in both}) == 4


def test_the_device_is_the_ordinal_that_ends_its_name():
    profile = read(TRACE)
    assert {kernel.device for kernel in profile.kernels} == {"3"}
    assert profile.evidence == (Evidence(name="Tesla V100-SXM2"),)


def test_copies_and_sets_are_counted_but_are_not_kernels():
    profile = read(TRACE + COPY + COPY.replace("memcpy HtoD", "memset"))
    assert profile.kernels == read(TRACE).kernels
    assert "2 memory copies and memsets are not listed as kernels" in profile.warnings
    assert not any("copies" in warning for warning in read(TRACE).warnings)
    only = read("\n".join(line for line in (TRACE + COPY).splitlines() if "void" not in line) + "\n")
    assert (only.kernels, only.warnings) == ((), ("1 memory copy or memset is not listed as kernels",))


def test_columns_are_found_by_name_whatever_their_order_and_number():
    text = '"Duration","Name","Correlation_ID","Device","Start"\nus,,,,ms\n12.5,"k",17,"GTX 1080 (1)",3\n'
    (kernel,) = read(text).kernels
    assert (kernel.seconds, kernel.start, kernel.name, kernel.device) == (12.5e-6, 0.003, "k", "1")
    assert kernel.grid is None


def test_an_imported_profile_has_a_preamble_without_a_process():
    assert [k.process for k in read(TRACE.replace("==7==", "========")).kernels] == [None, None]


def test_a_summary_has_kernels_without_copies_and_api_calls():
    profile = read(SUMMARY)
    (gemm,) = profile.kernels
    assert (gemm.name, gemm.invocations, gemm.seconds) == ("sgemm, the 1st", 8, 0.004)  # 4 ms = 8 x 500 us
    assert profile.warnings == ("2 memory copies and memsets are not listed as kernels",)


def test_before_cuda_9_api_calls_have_a_separate_section():
    text = """==7== Profiling result:
"Time(%)","Time","Calls","Avg","Min","Max","Name"
%,us,,us,us,us,
100.0,30.0,3,10.0,9.0,11.0,"k"

==7== API calls:
"Time(%)","Time","Calls","Avg","Min","Max","Name"
%,ms,,ms,ms,ms,
99.0,500.0,5,100.0,9.0,11.0,"cudaMalloc"
"""
    (kernel,) = read(text).kernels
    assert (kernel.name, kernel.invocations, kernel.seconds) == ("k", 3, 30e-6)


def test_a_trace_and_its_summary_are_not_added_up():
    profile = read(TRACE + SUMMARY)
    assert len(profile.kernels) == 2
    assert any("summary is ignored" in warning for warning in profile.warnings)


def test_metric_totals_are_averages_times_invocations():
    (kernel,) = read(METRICS).kernels
    assert kernel.invocations == 3
    assert kernel.flops.fp32 == 110 * 3
    assert kernel.bytes.dram == (10 + 5) * 32 * 3  # read and write transactions of 32 bytes
    assert kernel.bytes.l2 == (20 + 30) * 32 * 3
    assert kernel.occupancy == 0.5  # averages are not multiplied by invocations


def test_collected_and_zero_is_not_the_same_as_not_collected():
    (kernel,) = read(METRICS).kernels
    assert kernel.flops.fp64 == 0
    assert kernel.flops.fp16 is None
    assert kernel.bytes.l1 is None
    assert kernel.seconds is None


def test_unused_metrics_and_missing_tensor_metrics_give_warnings():
    warnings = " ".join(read(METRICS).warnings)
    assert "gld_throughput, sm_efficiency" in warnings
    assert "cannot count tensor-core operations" in warnings


def test_bytes_are_preferred_to_transactions_and_carry_binary_suffixes():
    text = METRICS.replace("dram_read_transactions", "dram_read_bytes").replace(",9,11,10\n", ",1KB,3KB,2KB\n")
    assert read(text).kernels[0].bytes.dram is None  # reads in bytes and writes in transactions: not a pair
    text = text.replace("dram_write_transactions", "dram_write_bytes")
    assert read(text).kernels[0].bytes.dram == (2 * 1024 + 5) * 3


def test_reads_without_writes_leave_dram_unknown_with_a_warning():
    profile = read("\n".join(line for line in METRICS.splitlines() if "dram_write" not in line) + "\n")
    assert profile.kernels[0].bytes.dram is None
    assert any("only the reads or only the writes of dram" in warning for warning in profile.warnings)


def test_single_precision_flops_follow_from_adds_multiplies_and_fused_ones():
    rows = "".join(
        f'"GPU (0)","k",2,"flop_count_sp_{part}","Floating Point",{n},{n},{n}\n'
        for part, n in (("add", 5), ("mul", 7), ("fma", 11))
    )
    header = METRICS.splitlines()[4]
    assert read(f"{header}\n{rows}").kernels[0].flops.fp32 == (5 + 7 + 2 * 11) * 2


def test_equal_repetitions_of_a_metric_collapse_and_unequal_ones_are_refused():
    row = METRICS.splitlines()[5]
    assert read(METRICS + row + "\n").kernels[0].flops.fp32 == 330
    with pytest.raises(ProfileError, match=r"sample:16: 'flop_count_sp' of 'stencil"):
        read(METRICS + row.replace("110", "111") + "\n")


def test_a_metric_that_was_not_collected_in_every_launch_stays_unknown():
    # nvprof may skip a launch: the average of 2 of 3 launches does not contain the third
    profile = read(METRICS.replace('3,"flop_count_sp"', '2,"flop_count_sp"').replace('3,"sm_eff', '1,"sm_eff'))
    (kernel,) = profile.kernels
    assert (kernel.invocations, kernel.flops.fp32, kernel.flops.fp64) == (3, None, 0)
    assert kernel.bytes.dram == (10 + 5) * 32 * 3
    (lost,) = [warning for warning in profile.warnings if "every launch" in warning]
    assert "flop_count_sp" in lost
    assert "sm_efficiency" not in lost


def test_an_overflowed_metric_stays_unknown():
    profile = read(METRICS.replace("100,120,110", "<OVERFLOW>,<OVERFLOW>,<OVERFLOW>"))
    assert profile.kernels[0].flops.fp32 is None
    assert any("no value" in warning for warning in profile.warnings)


def test_a_metric_below_zero_is_a_damaged_file():
    line = 1 + next(i for i, text in enumerate(METRICS.splitlines()) if "100,120,110" in text)
    with pytest.raises(ProfileError, match=rf"sample:{line}: .*flop_count_sp is '-110'"):
        read(METRICS.replace("100,120,110", "100,120,-110"))


def test_event_counters_are_listed_but_not_summed():
    profile = read(
        '==7== Event result:\n"Device","Kernel","Invocations","Event Name","Min","Max","Avg","Total"\n'
        '"Tesla K40c (0)","k",4,"warps_launched",8,8,8,32\n'
    )
    assert [(k.name, k.invocations, k.flops.fp32) for k in profile.kernels] == [("k", 4, None)]
    assert any("warps_launched" in warning for warning in profile.warnings)


def test_a_wide_table_has_one_launch_a_row_and_descriptions_as_headings():
    profile = read(
        '==7== Profiling result:\n"Device","Context","Stream","Kernel","Correlation_ID",'
        '"Floating Point Operations(Single Precision)","dram_read_bytes","Total bytes written from L2 cache to DRAM"\n'
        '"Tesla P100 (2)","1","7","k(int) [41]",41,1000,64,32\n"Tesla P100 (2)","1","7","k(int) [42]",42,3000,64,32\n'
    )
    assert [(k.name, k.device, k.flops.fp32, k.bytes.dram) for k in profile.kernels] == [
        ("k(int)", "2", 1000, 64 + 32),
        ("k(int)", "2", 3000, 64 + 32),
    ]


def test_a_text_trace_is_read_with_the_units_of_its_suffixes():
    profile = read(TEXT_TRACE)
    (kernel,) = profile.kernels
    assert (kernel.name, kernel.seconds, kernel.start) == ("void init<double>(double*, double)", 1.6782e-3, 0.32663)
    assert (kernel.grid, kernel.block, kernel.registers) == ((32768, 1, 1), (1024, 1, 1), 14)
    assert kernel.shared_bytes == 8192 + 512
    assert profile.warnings == ("1 memory copy or memset is not listed as kernels",)


def test_the_type_in_a_text_summary_applies_to_the_following_rows():
    gemm, second = read(TEXT_SUMMARY.replace("[CUDA memcpy HtoD]", "second")).kernels
    assert (gemm.name, gemm.invocations, gemm.seconds) == ("void gemm<int=2>(float*,  int)", 2, 0.003)
    assert (second.name, second.seconds) == ("second", 0.001)


def test_output_of_programs_between_tables_of_a_log_is_ignored():
    between = "\n\n=====\n>>>\ncommit: 5fa54a5\n12 bodies\n<<<\n\n==8== NVPROF is profiling process 8, command: ./app\n"
    profile = read(TEXT_SUMMARY + between + TEXT_SUMMARY.replace("==7==", "==8=="))
    assert [(k.process, k.seconds) for k in profile.kernels] == [("7", 0.003), ("8", 0.003)]


def test_a_damaged_row_within_a_text_table_is_refused_with_its_line():
    with pytest.raises(ProfileError, match="sample:4: the row has 5 cells but the header 7"):
        read(TEXT_SUMMARY.replace("25.00%  1.0000ms         1  1.0000ms  1.0000ms  1.0000ms", "25.00%  1.0000ms  1  1"))


def test_text_metrics_belong_to_the_device_and_kernel_above_them():
    foo, bar = read(TEXT_METRICS).kernels
    assert (foo.name, foo.device, foo.invocations, foo.flops.fp32) == ("foo(int, float*)", "1", 4, 4e6)
    assert (bar.name, bar.flops.fp32) == ("bar(void)", 10)


def test_page_faults_are_left_out_with_a_warning():
    fault = '9.3,,,,,,,,,,,4.0,,,,"Tesla V100-SXM2 (3)",,,"[Unified Memory GPU page faults]"\n'
    profile = read(TRACE + fault)
    assert len(profile.kernels) == 2
    assert any(warning.startswith("1 rows that are not kernels") for warning in profile.warnings)


def test_lost_records_give_a_warning():
    lost = "==7== Warning: 12 records have invalid timestamps due to insufficient device buffer space.\n"
    assert any("dropped 12 records" in w for w in read(TRACE.replace(HEADER, lost + HEADER)).warnings)


def test_notes_and_output_between_rows_do_not_end_a_table():
    lines = TRACE.splitlines()
    text = "\n".join([*lines[:6], "==7== Warning: something", "epoch done", lines[6], ""])
    profile = read(text)
    assert len(profile.kernels) == 2
    assert any("skipped between the rows: 1 line outside" in str(warning) for warning in profile.warnings)


def test_the_recorded_command_line_does_not_reach_the_profile():
    assert "secret" not in repr(read(TRACE))
    assert "someone" not in repr(read(TRACE))


def test_a_trace_without_its_units_row_is_refused():
    with pytest.raises(ProfileError, match=r"sample:5: the row of units below the header is missing"):
        read(TRACE.replace("s,ms,,,,,,,,KB,B,MB,GB/s,,,,,,\n", ""))


@pytest.mark.parametrize("kept", ["2.5,0.04", '"half a na'])
def test_a_trace_truncated_in_its_last_row_is_read_without_that_row(kept):
    whole = read(TRACE)
    cut = read(TRACE + kept)
    assert cut.kernels == whole.kernels
    assert any("truncated in its last row" in warning for warning in cut.warnings)


def test_a_summary_with_the_unit_in_each_cell_needs_no_row_of_units():
    """nvprof's table as rewritten by other programs."""
    (kernel,) = read(
        "Time(%),Time,Calls,Avg,Min,Max,Name\n47.79%,542.36ms,45,12.052ms,12.007ms,12.110ms,saxpy\n"
    ).kernels
    assert (kernel.seconds, kernel.invocations) == (0.54236, 45)
    with pytest.raises(ProfileError, match="the row of units below the header is missing"):
        read("Time(%),Time,Calls,Avg,Min,Max,Name\n47.79,542.36,45,12.052,12.007,12.110,saxpy\n")


def test_decimal_commas_are_refused_with_what_would_work():
    with pytest.raises(ProfileError, match=r"sample:6: .*LC_ALL=C"):
        read(TRACE.replace("9.245914,41.306943", "9,245914,41,306943"))


UNQUOTED = "Time(%),Time,Calls,Avg,Min,Max,Name\n"


def test_commas_in_the_unquoted_last_column_are_part_of_the_name():
    found = read(f"{UNQUOTED}20.92%,237.43ms,150,1.5829ms,1.5103ms,2.1174ms,k1(float*, float*, int)\n")
    (kernel,) = found.kernels
    assert (kernel.name, kernel.invocations, kernel.seconds) == ("k1(float*, float*, int)", 150, 0.23743)
    with pytest.raises(ProfileError, match=r"sample:2: .*LC_ALL=C"):
        read(f"{UNQUOTED}20,92%,237,43ms,150,1,5829ms,1,5103ms,2,1174ms,k1(float*)\n")


PASCAL = """==7== Profiling result:
==7== Metric result:
Invocations                               Metric Name                            Metric Description         Min         Max         Avg
Device "GeForce GTX 1070 (0)"
    Kernel: void rows(float*)
          1                            gld_efficiency                 Global Memory Load Efficiency      50.00%      50.00%      50.00%
          1                         shared_efficiency                      Shared Memory Efficiency      25.00%      25.00%      25.00%
          1                          dram_utilization                     Device Memory Utilization     Low (2)     Low (2)     Low (2)
          1                   stall_memory_dependency                  Issue Stall Reasons (Data Req)     80.00%      80.00%      80.00%
"""  # noqa: E501


def test_metrics_of_nvprof_explain_kernels_of_cards_that_ncu_does_not_support():
    found = read(PASCAL)
    (kernel,) = found.kernels
    counters = kernel.counters
    assert counters["smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"] == 16  # half of 32 bytes
    assert counters["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"] == 0.2
    assert counters["smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"] == 0.8
    why = {each.reason: each.evidence for each in reasons(kernel, None)}
    assert why["uncoalesced"] == "loads use 16 of the 32 bytes of a sector"
    assert why["bank_conflicts"] == "accesses to shared memory use 25% of its banks"
    assert not any("unused" in text for text in found.warnings)
    assert collecting(found, None).startswith("nvprof --metrics")
    assert "ncu" in collecting(found, Device.load("v100"))


def test_a_quoted_number_is_read_only_if_unambiguous():
    assert read(TRACE.replace("41.306943", '"1,234,567.5"')).kernels[0].seconds == 1234.5675
    assert read(TRACE.replace("41.306943", '"1,234.5"')).kernels[0].seconds == 1.2345
    for ambiguous in ("1,234", "27.595.520", "65,77"):
        with pytest.raises(ProfileError, match=rf"sample:6: '{re.escape(ambiguous)}' .*LC_ALL=C"):
            read(TRACE.replace("41.306943", f'"{ambiguous}"'))


def test_a_possibly_truncated_last_number_gives_a_warning():
    cut = METRICS.partition(",110\n")[0] + ",11"
    assert any("has no line end" in warning for warning in read(cut).warnings)
    assert not any("has no line end" in warning for warning in read(METRICS).warnings)


def test_an_unknown_activity_type_in_a_summary_is_refused():
    with pytest.raises(ProfileError, match=r"sample:4: 'GPU activity' is not a known type"):
        read(SUMMARY.replace("GPU activities", "GPU activity", 1))


def test_reads_and_writes_of_different_kernels_are_not_added():
    other = METRICS.replace(
        '"Tesla K20c (0)","stencil(float*, int)",3,"dram_read', '"Tesla (0)","stencil(float*, int)",3,"dram_read'
    )
    assert any("only the reads or only the writes of dram" in warning for warning in read(other).warnings)


def test_a_truncated_row_is_refused_with_its_line():
    with pytest.raises(ProfileError, match=r"sample:7: the row has"):
        read(TRACE[:-60] + "\n")


def test_a_print_without_a_table_is_refused_with_what_to_collect():
    with pytest.raises(ProfileError, match="--print-gpu-trace"):
        read("==7== NVPROF is profiling process 7, command: ./app\n==7== Profiling result:\n")


def test_a_run_without_kernels_is_an_empty_profile_with_a_warning():
    profile = read("==7== Profiling result:\nNo kernels were profiled.\n")
    assert profile.kernels == ()
    assert "recorded no kernels" in profile.warnings[0]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_a_powershell_redirect_is_decoded(encoding):
    data = TRACE.replace("\n", "\r\n").encode(encoding)
    assert signatures.nvprof(data[:200])
    assert [k.seconds for k in profile_of(nvprof.read)(io.BytesIO(data), "sample").kernels] == [0.041306943, 0.0005]


@pytest.mark.parametrize("text", [TRACE, SUMMARY, METRICS, TEXT_TRACE, TEXT_SUMMARY, TEXT_METRICS])
def test_output_of_nvprof_is_recognized_by_its_content(text):
    assert signatures.nvprof(text.encode())
    assert signatures.nvprof("\n".join(line for line in text.splitlines() if line[:2] != "==").encode())


@pytest.mark.parametrize("text", [TRACE, SUMMARY, METRICS])
def test_quotes_may_be_missing_around_simple_names(text):
    quoted = text.replace("int=4, float>(float*, int)", "int>").replace(", the 1st", "").replace("(float*, int)", "")
    quoted = quoted.replace("(double*, int)", "")
    bare = quoted.replace('"', "")
    assert signatures.nvprof(bare.encode())
    assert read(bare) == read(quoted)
    if text is METRICS:  # the name is not the last column
        with pytest.raises(ProfileError, match="names with commas but without quotes"):
            read(text.replace('"', ""))
    else:
        assert [each.name for each in read(text.replace('"', "")).kernels] == [each.name for each in read(text).kernels]


def test_files_of_other_tools_are_not_recognized():
    ncu = '==PROF== Connected to process 11\n"ID","Process ID","Process Name","Host Name","Kernel Name","Metric Name"\n'
    nsys = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    for other in (ncu, nsys, '{"traceEvents": []}', "", "Name,Profile,Memory_footprint,SM_usage,Duration\n"):
        assert not signatures.nvprof(other.encode())


@settings(max_examples=400, deadline=None)
@given(mutilations((TRACE + SUMMARY).encode()))
def test_a_mutilated_trace_gives_an_error_or_a_table(data):
    signatures.nvprof(data)
    assert_error_or_table(profile_of(nvprof.read), data)


@settings(max_examples=200, deadline=None)
@given(mutilations((METRICS + TEXT_METRICS).encode()))
def test_mutilated_metrics_give_an_error_or_a_table(data):
    assert_error_or_table(profile_of(nvprof.read), data)


@settings(max_examples=200, deadline=None)
@given(mutilations((TEXT_TRACE + TEXT_SUMMARY).encode()))
def test_mutilated_text_gives_an_error_or_a_table(data):
    assert_error_or_table(profile_of(nvprof.read), data)


def test_the_measured_trace_equals_its_rows():
    path = measured("traces/nvprof/nvprof_gputrace_tegraX1.csv")
    rows = list(csv.DictReader(line for line in path.read_text().splitlines() if not line.startswith("==")))[1:]
    with path.open("rb") as file:
        assert signatures.nvprof(path.read_bytes()[:65536])
        profile = profile_of(nvprof.read)(file, path.name)
    launched = [row for row in rows if row["Grid X"]]  # the 9 other rows are copies and memsets
    assert (len(launched), len(rows)) == (4, 13)
    assert [k.name for k in profile.kernels] == [row["Name"] for row in launched]
    total_ms = sum(float(row["Duration"]) for row in launched)  # ms, by the row of units
    assert sum(k.seconds for k in profile.kernels) == pytest.approx(total_ms / 1e3, rel=1e-12)
    assert profile.warnings == ("9 memory copies and memsets are not listed as kernels",)


def test_the_measured_text_trace_equals_its_lines():
    path = measured("traces/nvprof/nvprof_gputrace_text_titanxp_babelstream.txt")
    units = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    lines = re.findall(r"^\s*[\d.]+[mun]?s\s+([\d.]+)([mun]?s)\s.*\[\d+\]$", path.read_text(), re.MULTILINE)
    copies = len(re.findall(r"\[CUDA memcpy DtoH\]", path.read_text()))
    profile = profile_of(nvprof.read)(io.BytesIO(content(path)), path.name)
    assert (len(profile.kernels), len(lines), copies) == (501, 501, 103)
    assert sum(k.seconds for k in profile.kernels) == pytest.approx(sum(float(n) * units[u] for n, u in lines))
    assert profile.warnings == ("103 memory copies and memsets are not listed as kernels",)


def test_the_measured_run_without_kernels_is_empty_and_says_so():
    path = measured("traces/nvprof/nvprof_summary_text_titanxp.txt")
    profile = profile_of(nvprof.read)(io.BytesIO(content(path)), path.name)
    assert profile.kernels == ()
    assert any("recorded no kernels" in warning for warning in profile.warnings)
