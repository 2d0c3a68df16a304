"""Nsight Compute's CSV: all layouts and special cases in handwritten samples, and real exports checked by hand."""

import contextlib
import csv
import io
import re
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.errors import ProfileError
from roofmodel.profiles.kernel import Evidence
from roofmodel.profiles.ncu import metric_catalog
from roofmodel.profiles.ncu.device_attributes import nvtx_names
from roofmodel.profiles.reading import read as read_files
from tests.profiles import samples
from tests.profiles.ncu.samples import HEADER, LEAD, NEW, PRINT, RULES, launch, only, printed, read, read_file, row
from tests.profiles.samples import needs_measured

MEASURED = samples.MEASURED / "ncu"
BYTES, TIME = "dram__bytes.sum", "gpu__time_duration.sum"


# --- layouts ----------------------------------------------------------------------------------------------------


def test_long_rows_of_a_launch_become_one_kernel():
    kernel = only(
        HEADER + row(BYTES, "byte", "12,582,912") + row(TIME, "us", "41.60") + row("lts__t_bytes.sum", "", "n/a")
    )
    assert (kernel.bytes.dram, kernel.bytes.l2) == (12_582_912, None)
    assert kernel.seconds == pytest.approx(41.60e-6)
    assert (kernel.id, kernel.name, kernel.process, kernel.device, kernel.stream) == (
        "0",
        "gemm",
        "python3 (11)",
        "0",
        "7",
    )
    assert (kernel.grid, kernel.block) == ((64, 2, 1), (256, 1, 1))


def test_output_of_the_program_and_of_ncu_is_ignored_anywhere():
    text = "==PROF== Connected to process 11\nepoch 1, loss 0.5\n" + HEADER + row(BYTES, "byte", "1,000,000")
    text += '==WARNING== slow\nprogress "90%"\n\n' + row(BYTES, "byte", "2", 1) + "==PROF== Disconnected\nbye, 1, 2\n"
    assert [kernel.bytes.dram for kernel in read(text).kernels] == [1_000_000, 2]


def test_the_header_of_2020_has_no_extents():
    text = (
        LEAD
        + '"Kernel Name","Kernel Time","Context","Stream","Section Name","Metric Name","Metric Unit","Metric Value"\n'
    )
    text += (
        '"0","9","app","host","saxpy","2020-Apr-07 17:01:05","1","7","GPU Speed Of Light","Duration","usecond","8.5"\n'
    )
    kernel = only(text)
    assert kernel.seconds == pytest.approx(8.5e-6)
    assert kernel.grid is kernel.block is kernel.device is None


def test_labels_of_the_details_page_are_read_and_rules_are_not():
    sol, memory, occupancy = "GPU Speed Of Light Throughput", "Memory Workload Analysis", "Occupancy"
    text = HEADER.rstrip() + RULES
    text += row("Duration", "us", "20.00", section=sol).rstrip() + ",\n"  # one more cell, four fewer than the header
    text += row("Memory Throughput", "%", "61.83", section=sol) + row("SM Frequency", "Ghz", "1.99", section=sol)
    text += row("Memory Throughput", "Gbyte/s", "150.00", section=memory)
    text += row("Achieved Occupancy", "%", "15.18", section=occupancy)
    text += row("Registers Per Thread", "register/thread", "96", section="Launch Statistics")
    text += (
        launch()
        + ',"SpeedOfLight","","","","SOLBottleneck","OPT","a text, with\n""quotes"" and two lines","global","38.17"\n'
    )
    kernel = only(text)
    assert kernel.seconds == pytest.approx(20e-6)
    assert kernel.bytes.dram == pytest.approx(150e9 * 20e-6)  # Memory Throughput is dram__bytes.sum.per_second
    assert (kernel.clock, kernel.occupancy, kernel.registers) == (1.99e9, 0.1518, 96)


def test_the_roofline_chart_has_labels_that_repeat_in_its_items():
    header = HEADER.replace('"Section Name",', '"Section Name","Body Item Label",')

    def item(label: str, unit: str, value: str, of: str = "Single Precision Achieved Value") -> str:
        return f'{launch()},"GPU Speed Of Light Roofline Chart","{of}","{label}","{unit}","{value}"\n'

    text = header + item("Predicated-On FADD Thread Instructions Executed Per Cycle", "inst/cycle", "1.50")
    text += item("Predicated-On FMUL Thread Instructions Executed Per Cycle", "inst/cycle", "0")
    text += item("Predicated-On FFMA Thread Instructions Executed Per Cycle", "inst/cycle", "10.25", of="")
    text += item("Theoretical Predicated-On FFMA Operations", "inst", "43,520", of="Single Precision Roofline")
    text += item("SM Frequency", "Ghz", "2.00") + item("DRAM Bandwidth", "Gbyte/s", "150.00")
    text += item("SM Frequency", "Ghz", "2.00", of="Double Precision Achieved Value") + item(TIME, "us", "10.00", of="")
    kernel = only(text)
    assert kernel.flops.fp32 == pytest.approx((1.5 + 0 + 2 * 10.25) * 2e9 * 10e-6)
    assert kernel.bytes.dram == pytest.approx(150e9 * 10e-6)


ATTRIBUTES = {
    "display_name": "NVIDIA A100-SXM4-40GB",
    "compute_capability_major": "8",
    "compute_capability_minor": "0",
    "multiprocessor_count": "108",
    "l2_cache_size": "41,943,040",
    "total_memory": "42409000960",
    "global_memory_bus_width": "5120",
    "max_mem_frequency_khz": "1215000",
    "max_gpu_frequency_khz": "1410000",
}


def wide(values: dict[str, tuple[str, str]], lead: str = LEAD + NEW) -> str:
    columns = lead + "".join(f',"{name}"' for name in values) + "\n"
    units = ",".join(['""'] * lead.count(",") + ['""'] + [f'"{unit}"' for unit, _ in values.values()]) + "\n"
    return columns + units + launch() + "".join(f',"{value}"' for _, value in values.values()) + "\n"


def test_a_wide_row_is_a_launch_and_the_row_above_contains_units():
    text = wide(
        {BYTES: ("Mbyte", "12.58"), TIME: ("us", "41.60"), "launch__registers_per_thread": ("register/thread", "32")}
    )
    kernel = only(text)
    assert kernel.bytes.dram == pytest.approx(12.58e6)
    assert kernel.seconds == pytest.approx(41.6e-6)
    assert kernel.registers == 32


def test_device_attributes_of_the_raw_page_are_evidence():
    text = wide(
        {f"device__attribute_{name}": ("", value) for name, value in ATTRIBUTES.items()} | {BYTES: ("byte", "1")}
    )
    assert read(text).evidence == (
        Evidence(
            name="NVIDIA A100-SXM4-40GB",
            compute_capability="8.0",
            multiprocessors=108,
            l2_bytes=40 * 2**20,
            dram_bandwidth=2 * 1215e6 * 5120 / 8,  # two transfers per clock, 5120 bits, 8 bits per byte
            dram_bytes=42_409_000_960,
            clock=1_410_000_000,
        ),
    )


def test_a_wide_row_without_grid_and_block_gets_them_from_its_launch_metrics():
    dims = {f"launch__{kind}_dim_{axis}": ("", str(n)) for kind, n in (("grid", 6), ("block", 128)) for axis in "xyz"}
    lead = LEAD + '"Kernel Name","Kernel Time","Context","Stream"'
    header = lead + "".join(f',"{name}"' for name in (*dims, BYTES)) + "\n"
    units = ",".join(['""'] * (header.count(",") + 1)).removesuffix('""') + '"byte"\n'
    cells = '"0","1","app","host","k","2024-Nov-17 16:37:52","1","7"' + "".join(f',"{v}"' for _, v in dims.values())
    kernel = only(header + units + cells + ',"8"\n')
    assert (kernel.grid, kernel.block, kernel.bytes.dram) == ((6, 6, 6), (128, 128, 128), 8)


SUMMARY = (
    '"Process ID","Process Name","Host Name","Kernel Name","Block Size","Grid Size","Device","CC","Invocations",'
    '"Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'
)


def mean(metric: str, unit: str, average: str, times=14, name="gemm") -> str:
    head = f'"11","python3","host","{name}","(256, 1, 1)","(64, 2, 1)","0","8.0","{times}"'
    return f'{head},"A section","{metric}","{unit}","1.00","2.00","{average}"\n'


def test_a_summary_has_one_kernel_per_name_with_totals():
    text = (
        SUMMARY
        + mean("Duration", "us", "41.60")
        + mean(BYTES, "byte", "1,024.50")
        + mean(BYTES, "byte", "2.00", 3, "b")
    )
    gemm, other = read(text).kernels
    assert gemm.invocations == 14
    assert gemm.seconds == pytest.approx(14 * 41.60e-6)
    assert gemm.bytes.dram == 14 * 1024.5
    assert (other.invocations, other.bytes.dram, other.seconds) == (3, 6, None)


def test_a_summary_that_names_no_kernel_is_refused():
    with pytest.raises(ProfileError, match="per-kernel"):
        read('"Device","CC","Invocations","Section Name","Metric Name","Average"\n"0","8.0","3","s","m","1"\n')


# --- cells ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", ["n/a", "(!) n/a", "N/A", "no data", "", "nan"])
def test_a_missing_value_is_null_and_not_zero(nothing):
    kernel = only(HEADER + row(BYTES, "byte", nothing) + row(TIME, "ns", "5"))
    assert kernel.bytes.dram is None
    assert only(HEADER + row(BYTES, "byte", "0")).bytes.dram == 0


def test_instances_after_a_total_are_not_read():
    assert only(HEADER + row(BYTES, "byte", "158 (0: 100; 1: 58)")).bytes.dram == 158


def test_decimal_commas_in_a_file_are_recognized():
    kernel = only(HEADER + row(BYTES, "byte", "27.595.520") + row(TIME, "us", "1.234,50"))
    assert (kernel.bytes.dram, kernel.seconds) == (27_595_520, pytest.approx(1234.5e-6))
    assert only(HEADER + row(TIME, "us", "1,234") + row("Elapsed Cycles", "cycle", "65,77")).seconds == pytest.approx(
        1.234e-6
    )


def test_an_ambiguous_number_is_refused_with_its_line():
    with pytest.raises(ProfileError, match=r"file\.csv:2: gpu__time_duration\.sum: '1,234' may be 1234 or 1\.234"):
        read(HEADER + row(TIME, "us", "1,234"))
        # counts are whole numbers, so the mark separates thousands, in the whole file
    assert only(HEADER + row(BYTES, "byte", "1,234") + row(TIME, "us", "1,234")).seconds == pytest.approx(1234e-6)
    assert only(HEADER + row(BYTES, "byte", "1.234")).bytes.dram == 1234


def test_two_locales_in_one_file_are_an_error():
    with pytest.raises(ProfileError, match=r"file\.csv:3: .*another locale"):
        read(HEADER + row(BYTES, "byte", "12,582,912") + row(TIME, "us", "65,77"))


@pytest.mark.parametrize("damage", ["12,58,2", "1..2", "twelve", "0x10", "1e999"])
def test_text_instead_of_a_number_is_an_error_with_line_and_metric(damage):
    with pytest.raises(ProfileError, match=r"file\.csv:2: dram__bytes\.sum"):
        read(HEADER + row(BYTES, "byte", damage))


@pytest.mark.parametrize("unit", ["parsec", "us", ""])
def test_a_unit_that_does_not_fit_is_an_error(unit):
    with pytest.raises(ProfileError, match=r"file\.csv:2: dram__bytes\.sum"):
        read(HEADER + row(BYTES, unit, "12"))


def test_a_wide_table_without_units_is_refused():
    text = wide({TIME: ("us", "41.60")}).splitlines(keepends=True)
    with pytest.raises(ProfileError, match="no unit"):
        read(text[0] + text[2])


def test_equal_duplicates_collapse_and_unequal_ones_are_an_error():
    assert only(HEADER + row(BYTES, "byte", "7") * 2).bytes.dram == 7
    with pytest.raises(ProfileError, match=r"file\.csv:3: dram__bytes\.sum is '8', but .*\(line 2\) has 7 "):
        read(HEADER + row(BYTES, "byte", "7") + row(BYTES, "byte", "8"))
    with pytest.raises(ProfileError, match=r"dram__bytes\.sum is '8', but"):
        read(
            f'{LEAD}{NEW},"{BYTES}","{BYTES}"\n' + ",".join(['""'] * 11) + ',"byte","byte"\n' + launch() + ',"7","8"\n'
        )


def test_counters_that_explain_a_kernel_are_kept_and_never_refuse_a_file():
    """They are not needed for its FLOPs and bytes: an odd unit leaves one out, a second value is ignored."""
    multiprocessors, throughput = "launch__sm_count", "lts__throughput.avg.pct_of_peak_sustained_elapsed"
    rows = (
        row(multiprocessors, "", "132"),
        row(multiprocessors, "", "133"),
        row(throughput, "%", "27.66"),
        row("sm__cycles_active.avg", "us", "3"),
    )
    kernel = only(HEADER + row(BYTES, "byte", "1") + row(TIME, "ns", "1") + "".join(rows))
    assert kernel.counters is not None
    assert kernel.counters[multiprocessors] == 132
    assert kernel.counters[throughput] == pytest.approx(0.2766)
    assert kernel.counters.get("sm__cycles_active.avg") is None
    assert kernel.bytes.l2 is None  # a share of the peak is no count of bytes


@pytest.mark.parametrize(
    ("label", "unit", "value", "metric", "expected"),
    [
        ("Block Limit Registers", "block", "2", "launch__occupancy_limit_registers", 2),
        ("Theoretical Occupancy", "%", "16.67", "sm__maximum_warps_per_active_cycle_pct", 0.1667),
        ("L2 Cache Throughput", "%", "61.83", "lts__throughput.avg.pct_of_peak_sustained_elapsed", 0.6183),
        ("# SMs", "SM", "132", "launch__sm_count", 132),
    ],
)
def test_labels_of_occupancy_and_throughput_are_read(label, unit, value, metric, expected):
    kernel = only(HEADER + row(TIME, "ns", "1") + row(label, unit, value))
    assert kernel.counters is not None
    assert kernel.counters[metric] == pytest.approx(expected)


def test_a_repeated_launch_counts_once_with_a_warning():
    profile = read(HEADER + row(BYTES, "byte", "7") + row(BYTES, "byte", "9", 1) + row(BYTES, "byte", "7"))
    assert [kernel.bytes.dram for kernel in profile.kernels] == [7, 9]
    assert any("counted once" in text for text in profile.warnings)


def test_an_id_that_is_two_kernels_is_an_error():
    with pytest.raises(ProfileError, match=r"file\.csv:3: .*another kernel"):
        read(HEADER + row(BYTES, "byte", "7") + row(TIME, "ns", "8", name="other"))


def test_processes_may_use_the_same_ids():
    kernels = read(HEADER + row(BYTES, "byte", "7", process=1) + row(BYTES, "byte", "8", process=2)).kernels
    assert [(k.process, k.bytes.dram) for k in kernels] == [("python3 (1)", 7), ("python3 (2)", 8)]


def test_concatenated_files_may_repeat_the_header_and_restart_the_ids():
    part = HEADER + row(BYTES, "byte", "7") + row(BYTES, "byte", "9", 1)
    profile = read(part + "==PROF== Connected\n" + part.replace('"9"', '"10"'))
    assert [kernel.bytes.dram for kernel in profile.kernels] == [7, 9, 7, 10]
    assert len({kernel.id for kernel in profile.kernels}) == 4


def test_concatenated_files_of_one_run_are_joined():
    text = HEADER + row(BYTES, "byte", "7") + row(BYTES, "byte", "9", 1, name="b")
    text += HEADER + row(TIME, "ns", "20", 0, name="b", process=12) + row(TIME, "ns", "10", 1, process=12)
    gemm, other = read(text).kernels
    assert (gemm.bytes.dram, gemm.seconds) == (7, pytest.approx(10e-9))
    assert (other.bytes.dram, other.seconds) == (9, pytest.approx(20e-9))


# --- NVTX, encodings, names -------------------------------------------------------------------------------------

PUSH = '"thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"'
START = '"Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"'
TAIL = ":none:none:none:none:none:none"


def test_nvtx_ranges_are_named_outermost_first():
    header = LEAD + f"{PUSH},{START}," + HEADER.removeprefix(LEAD)
    cell = f'97844  ""<default domain>:step 3{TAIL}""  ""torch:aten::mm, fp16{TAIL}"" '
    process = f'1  ""<default domain>:training{TAIL}""'
    text = row(BYTES, "byte", "7").replace('"gemm"', f'"{cell}","{process}","gemm"')
    kernel = only(header + text)
    assert kernel.nvtx == ("training", "step 3", "aten::mm, fp16")
    assert kernel.name == "gemm"


def test_nvtx_names_may_contain_colons_and_quotes():
    assert nvtx_names(f'1  "d:a:b::c{TAIL}" "d:say "hi" now{TAIL}"') == ["a:b::c", 'say "hi" now']
    assert nvtx_names("") == []


def test_kernel_names_may_contain_commas_and_quotes():
    text = row(BYTES, "byte", "7").replace('"gemm"', '"void gemm<(int)4, ""x"">(float *, int)"')
    assert only(HEADER + text).name == 'void gemm<(int)4, "x">(float *, int)'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_encodings_and_line_ends_of_windows_are_read(encoding, newline):
    text = ("==PROF== Connected\n" + HEADER + row(BYTES, "byte", "12,582,912", name="größe")).replace("\n", newline)
    kernel = only(text.encode(encoding))
    assert (kernel.name, kernel.bytes.dram) == ("größe", 12_582_912)


def test_a_file_saved_again_without_quotes_is_read():
    text = "ID,Process ID,Process Name,Host Name,Kernel Name,Metric Name,Metric Unit,Metric Value\n"
    assert only(text + '0,1,app,host,"k<a, b>",dram__bytes.sum,byte,"12,582,912"\n').bytes.dram == 12_582_912
    assert any("truncated" in w for w in read(text + "0,1,app,host,k,dram__bytes.sum,byte,12").warnings)


def test_no_output_names_machines_or_folders():
    text = HEADER + row(BYTES, "byte", "7").replace("python3", "/home/someone/bin/python3") + row("nonsense", "", "8")
    profile = read(text)
    assert profile.kernels[0].process == "python3 (11)"
    assert not re.search("secret-host|someone", repr(profile))


def test_the_files_own_compute_capability_decides():
    count = row("sm__inst_executed_pipe_tensor.sum", "inst", "10", cc="7.0")
    assert only(HEADER + count).flops.tensor_fp16 == 5120
    profile = read(HEADER + count, generation="8.0")
    assert profile.kernels[0].flops.tensor_fp16 == 5120
    assert profile.evidence == (Evidence(compute_capability="7.0"),)  # the capability in the file, not the given one
    unknown = HEADER.replace(',"CC"', "") + count.replace(',"7.0"', "")
    assert only(unknown).flops.tensor_low == 5120
    assert only(unknown, generation="7.0").flops.tensor_fp16 == 5120


def test_a_warning_says_how_many_kernels_it_is_about():
    text = HEADER + row(BYTES, "byte", "7") + row(BYTES, "byte", "8", 1) + row(TIME, "ns", "9")
    assert any("gpu__time_duration.sum (1 of 2 kernels)" in warning for warning in read(text).warnings)


# --- what is no table -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not\n", "ERR_NVGPUCTRPERM.*--csv"),
        ("==PROF== Connected\n==WARNING== No kernels were profiled.\n", "no kernels were profiled"),
        ("==PROF== Connected\n==PROF== Report: /tmp/x.ncu-rep\n", "--import"),
        (HEADER, "no kernels were profiled"),
        (
            "  gemm (1, 1, 1)x(2, 1, 1)\n    Section: Occupancy\n    Metric Name  Metric Unit Metric Value\n",
            "printed text",
        ),
        (b"NVR\0\1\2\3", "report.*--import"),
    ],
)
def test_a_file_that_is_not_a_table_is_refused_with_a_command(text, says):
    with pytest.raises(ProfileError, match=says):
        read(text)


def test_an_error_message_next_to_a_table_is_a_warning():
    assert any("==ERROR==" in w for w in read("==ERROR== Failed\n" + HEADER + row(BYTES, "byte", "7")).warnings)


@pytest.mark.parametrize(
    "tail",
    [
        '"1","11","pyt',
        '"1","11","python3","host"\n',
        launch(1) + ',"s","dram__bytes.sum","byte","12,58',
        launch(1) + ',"s","dram__bytes.sum","byte","12"5"\n',
        '50%|##"1","11","python3","host","gemm","1","7"\n',
        launch(1) + ',"s","dram__bytes.sum","by\n' + row(BYTES, "byte", "8", 2),
    ],
)
def test_a_damaged_row_is_an_error_with_its_line(tail):
    with pytest.raises(ProfileError, match=r"file\.csv:3: "):
        read(HEADER + row(BYTES, "byte", "7") + tail)


def test_a_column_is_recognized_only_by_its_full_name():
    with pytest.raises(ProfileError, match=r"file\.csv:1: the table header has no column Kernel Name"):
        read("ID,Old Kernel Name,Metric Name,Metric Unit,Metric Value\n0,gemm,dram__bytes.sum,byte,8\n")


def test_a_quote_inside_a_cell_shifts_no_column():
    columns = "ID,Process ID,Process Name,Host Name,Kernel Name,Metric Name,Metric Unit,Metric Value\n"
    with pytest.raises(ProfileError, match=r"file\.csv:2: not a table row"):
        read(columns + '0,1,app,host,-"k<a, b>",dram__bytes.sum,byte,7\n')
    with pytest.raises(ProfileError, match=r"file\.csv:2: the row has 9 cells but the header 8"):
        read(columns + "0,1,app,host,k<a, b>,dram__bytes.sum,byte,7\n")


def test_columns_may_be_in_any_order():
    columns = "ID,Process ID,Metric Value,Metric Unit,Metric Name,CC,Kernel Name\n"
    assert only(columns + "0,1,7,byte,dram__bytes.sum,8.0,k\n").bytes.dram == 7
    with pytest.raises(ProfileError, match="damaged"):
        read(columns + "0,1,7,byte,dram__bytes.sum\n")


# --- mutilated files --------------------------------------------------------------------------------------------

GOOD = [
    HEADER
    + "".join(
        row(m, u, v, i) for i in range(4) for m, u, v in ((BYTES, "byte", f"1,{i}00,000"), (TIME, "us", f"{i}.25"))
    ),
    wide({BYTES: ("Mbyte", "12.58"), TIME: ("us", "41.60")}),
    SUMMARY + mean(TIME, "us", "41.60") + mean(BYTES, "byte", "1,024.50", name="b"),
    PRINT + printed("a", f"{BYTES}  byte  1,200,000", f"{TIME}  us  41.60") + printed("b", f"{TIME}  us  1,041.60"),
]


def facts(text: str | bytes) -> list[tuple]:
    data = text if isinstance(text, bytes) else text.encode()
    return [(k.id, k.name, k.seconds, k.bytes.dram) for k in read_file(io.BytesIO(data), "f").kernels]


@pytest.mark.parametrize("good", GOOD)
def test_a_truncated_file_is_an_error_or_read_up_to_the_cut(good):
    whole = {identity: numbers for identity, *numbers in facts(good)}
    for end in range(len(good)):
        try:
            found = facts(good[:end])
        except ProfileError:
            continue
        for identity, name, seconds, dram in found:
            true = whole[identity]
            assert name == true[0]
            assert seconds in (None, true[1])
            assert dram in (None, true[2])


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_mutilated_file_never_ends_in_a_traceback(data):
    good = data.draw(st.sampled_from(GOOD))
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(good))] * 2)))
    middle = data.draw(
        st.one_of(st.just(""), st.text(max_size=30), st.text('",0123456789.\n ', max_size=30), st.just(good))
    )
    try:
        found = facts(good[:start] + middle + good[end:])
    except ProfileError:
        return
    assert found


@given(st.integers(0, len(GOOD[0])), st.integers(1, 400))
@settings(max_examples=200, deadline=None)
def test_a_missing_part_of_a_file_is_an_error_or_leaves_correct_numbers(start, length):
    whole = {identity: numbers for identity, *numbers in facts(GOOD[0])}
    shortened = GOOD[0][:start] + GOOD[0][start + length :]
    lines = set(GOOD[0].splitlines())
    try:
        found = facts(shortened)
    except ProfileError:
        return
    if set(shortened.splitlines()) <= lines:  # only whole rows are missing: the others must be read correctly
        for identity, name, seconds, dram in found:
            assert name == whole[identity][0]
            assert seconds in (None, whole[identity][1])
            assert dram in (None, whole[identity][2])


@given(st.binary(max_size=3000))
@settings(max_examples=200, deadline=None)
def test_bytes_without_a_meaning_are_refused(junk):
    for data in (junk, HEADER.encode() + junk, junk + HEADER.encode(), b"\xff\xfe" + junk):
        with contextlib.suppress(ProfileError):
            facts(data)


@pytest.mark.parametrize(
    "text", ["x" * 10_000_000, '"' * 10_000_000, HEADER + '"' + "x" * 10_000_000, HEADER + "1" * 10_000_000]
)
def test_a_line_of_ten_megabytes_is_refused(text):
    with pytest.raises(ProfileError):
        facts(text)


@given(st.lists(st.sampled_from(range(4)), min_size=1, max_size=6))
@settings(max_examples=30, deadline=None)
def test_concatenated_files_have_the_kernels_of_all(times):
    parts = [HEADER + row(BYTES, "byte", str(n), 0) + row(TIME, "ns", str(n), 0) for n in times]
    assert [dram for *_, dram in facts("".join(parts))] == times


# --- real exports -----------------------------------------------------------------------------------------------

NERSC = "nersc_v100/TF-fp32-batch1-fw-noamp-732370/out.fp32.lag1.train."


@needs_measured
def test_nersc_twelve_files_of_a_v100_give_the_authors_own_table():
    profile = read_files(sorted(MEASURED.glob(NERSC + "*")), generation="7.0")
    assert len(profile.kernels) == 465
    (missing,) = profile.warnings  # their list of metrics has no fp64 metric
    assert missing.startswith("fp64 FLOPs unknown: not collected; add smsp__sass_thread_inst_executed_op_dadd")
    by_name = defaultdict(list)
    for kernel in profile.kernels:
        by_name[kernel.name].append(kernel)
    with (MEASURED / "nersc_v100" / "ORACLE_fp32-batch1-fw-noamp.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(by_name)
    for line in table:
        kernels = by_name[line["Kernel Name"]]
        assert len(kernels) == int(line["Count"])
        # the authors' time is Σ cycles ÷ mean rate, the reader's is Σ (cycles ÷ rate)
        cycles = sum(k.seconds * k.clock for k in kernels)
        assert cycles == pytest.approx(float(line["sm__cycles_elapsed.avg"]), rel=1e-9)
        assert cycles / (sum(k.clock for k in kernels) / len(kernels)) == pytest.approx(float(line["Time"]), rel=1e-9)
        assert sum(k.seconds for k in kernels) == pytest.approx(float(line["Time"]), rel=0.01)
        flops = sum(k.flops.fp32 + k.flops.fp16_legacy for k in kernels)
        assert flops == float(line["CC FLOPs"])
        assert sum(k.flops.tensor_fp16 for k in kernels) == float(line["TC FLOPs"])
        assert float(line["TC FLOPs"]) == 512 * float(line["sm__inst_executed_pipe_tensor.sum"])
        for level, column, total in (
            ("dram", "AI HBM", "dram__bytes.sum"),
            ("l2", "AI L2", "lts__t_bytes.sum"),
            ("l1", "AI L1", "l1tex__t_bytes.sum"),
        ):
            moved = sum(getattr(k.bytes, level) for k in kernels)
            assert moved == float(line[total])
            if moved:
                assert float(line["all FLOPs"]) / moved == pytest.approx(float(line[column]), rel=1e-12)


@needs_measured
def test_nersc_without_the_device_has_bounds_instead_of_tensor_flops():
    kernels = read_files([str(MEASURED / (NERSC + "*"))]).kernels
    assert len(kernels) == 465
    assert {k.flops.tensor_fp16 for k in kernels} == {None}
    assert all(k.flops.tensor_low <= k.flops.tensor_high for k in kernels)


@needs_measured
def test_a_raw_page_of_an_a100_names_the_tensor_counters_that_nobody_collected():
    profile = read_files([MEASURED / "a100_40_resnet18_raw_wide.csv"])
    assert len(profile.kernels) == 235
    first = profile.kernels[0]
    assert (first.grid, first.block, first.registers, first.device) == ((1568, 1, 1), (256, 1, 1), 32, "0")
    assert first.seconds == pytest.approx(9088e-9)
    assert first.bytes.dram == 611_712 + 0  # read + write
    assert first.flops.fp32 == 0 + 2 * 0 + 150_528  # fadd, ffma, fmul
    assert profile.evidence[0].name == "NVIDIA A100-SXM4-40GB"
    assert profile.evidence[0].dram_bandwidth == 1_555_200_000_000
    assert {k.flops.tensor_tf32 for k in profile.kernels} == {None}
    (missing,) = (warning for warning in profile.warnings if "tensor-core FLOPs" in warning)
    assert missing.count("sm__ops_path_tensor_src_") == 3  # a long list is summarized
    assert missing.endswith("more (roofmodel.ncu_command() prints them all)")
    assert "sm__ops_path_tensor_src_tf32_dst_fp32.sum" in metric_catalog.tensor_operations("8.0")


@needs_measured
def test_summaries_of_an_a100_total_their_invocations():
    b, a = read_files([MEASURED / "a100_summary_per_kernel_metrics.csv"]).kernels
    assert (a.name, b.name, a.invocations, b.invocations) == ("kernel_A", "kernel_B", 100, 100)
    assert b.bytes.dram == pytest.approx(100 * 32 * (402_339.36 + 0))  # sectors of 32 bytes
    assert a.bytes.dram == pytest.approx(100 * 32 * (806_261.76 + 15_106.60))
    b, a = read_files([MEASURED / "a100_summary_per_kernel_timing.csv"]).kernels
    assert b.seconds == pytest.approx(100 * 93_188.16e-9)
    assert a.seconds == pytest.approx(100 * 76_952.96e-9)


@needs_measured
def test_summaries_of_one_run_are_joined():
    b, a = read_files(sorted(MEASURED.glob("a100_summary_per_kernel_*.csv"))).kernels
    assert b.seconds == pytest.approx(100 * 93_188.16e-9)
    assert b.bytes.dram == pytest.approx(100 * 32 * 402_339.36)
    assert a.name == "kernel_A"


@needs_measured
def test_bytes_measured_on_an_rtx_5070_are_at_least_the_counted_ones():
    folder = MEASURED / "rtx5070_metrics_long_bom"
    with (folder / "timing.csv").open() as file:
        host = list(csv.DictReader(file))
    saxpy, naive = (read_files([folder / f"{name}.csv"]).kernels[0] for name in ("saxpy", "gemm_naive"))
    assert saxpy.bytes.dram == 134_221_568 + 43_631_104  # op_read + op_write
    assert saxpy.seconds == pytest.approx(292_928e-9)
    # x, y read and y written: 3 × 4 bytes per element; 128 MiB read, and of 64 MiB written 43.6 MB left the 48 MiB L2
    size = saxpy.grid[0] * saxpy.block[0]
    (row_of_it,) = {
        (r["theoretical_bytes"], r["flops"]) for r in host if r["kernel"] == "saxpy" and int(r["problem_size"]) == size
    }
    assert float(row_of_it[0]) == 12 * size
    assert 0.85 < saxpy.bytes.dram / float(row_of_it[0]) < 1
    times = [float(r["mean_ms"]) for r in host if r["kernel"] == "saxpy" and int(r["problem_size"]) == size]
    assert saxpy.seconds == pytest.approx(min(times) * 1e-3, rel=0.25)  # the host's clock, without the profiler's flush
    assert naive.bytes.dram == 54_207_744 + 26_601_216
    assert naive.occupancy == pytest.approx(0.6661)
    assert naive.flops == (None,) * 12  # not collected
    assert len(read_files([str(folder / "gemm_*.csv"), str(folder / "saxpy.csv")]).kernels) == 5  # different kernels


@needs_measured
def test_an_rtx_5090_gemm_in_labels_and_names():
    details = read_files([MEASURED / "rtx5090_dsocr" / "kernel_0003" / "ncu.details.csv"])
    (kernel,) = details.kernels
    assert kernel.seconds == pytest.approx(23.42e-6)
    assert kernel.bytes.dram == 3.35e6 + 0
    assert kernel.flops.tensor_bf16 == 1_275_068_416  # collected; the other types were not
    assert kernel.flops.tensor_fp16 is None
    assert (kernel.clock, kernel.occupancy) == (1.99e9, pytest.approx(0.1518))
    assert (kernel.grid, kernel.block) == ((152, 4, 1), (128, 1, 1))
    assert details.evidence == (Evidence(compute_capability="12.0"),)


@needs_measured
def test_an_rtx_5090_roofline_chart_has_rates_that_a_duration_makes_counts():
    folder = MEASURED / "rtx5090_dsocr" / "kernel_0003"
    chart, metrics = folder / "ncu.section_SpeedOfLight_RooflineChart.csv", folder / "ncu.metrics.csv"
    assert read_files([chart]).kernels[0].flops.fp32 is None
    (kernel,) = read_files([chart, metrics]).kernels  # no metric in common: one run
    # FADD 0, FMUL 13.26, FFMA 13.26 per cycle at 2.01 GHz in 23.42 µs
    assert kernel.flops.fp32 == pytest.approx((0 + 13.26 + 2 * 13.26) * 2.01e9 * 23.42e-6)


def test_a_number_below_zero_is_a_damaged_file():
    for metric, unit in (("gpu__time_duration.sum", "ns"), ("dram__bytes.sum", "byte")):
        with pytest.raises(
            ProfileError, match=rf"file.csv:3: {metric} is '-5', but counts and times cannot be negative"
        ):
            read(HEADER + row("sm__cycles_elapsed.avg", "cycle", "7") + row(metric, unit, "-5"))


def test_the_brackets_of_an_anonymous_namespace_are_restored():
    assert (
        only(HEADER + row("dram__bytes.sum", "byte", "7", name="unnamed>::saxpy(int)")).name == "<unnamed>::saxpy(int)"
    )
    templated = row("dram__bytes.sum", "byte", "7", name="void unnamed>::gemm<32>(<unnamed>::t)")
    assert only(HEADER + templated).name == "void <unnamed>::gemm<32>(<unnamed>::t)"


@needs_measured
def test_every_measured_table_is_read_and_names_no_machine():
    for file in [
        *MEASURED.glob("rtx5090_dsocr/*/*.csv"),
        *MEASURED.glob("a100_*.csv"),
        *MEASURED.glob("rtx5070*/gemm*.csv"),
    ]:
        profile = read_files([file])
        assert profile.kernels
        assert "127.0.0.1" not in repr(profile)


@needs_measured
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("err_nvgpuctrperm_a100pcie.txt", "ERR_NVGPUCTRPERM.*--csv"),
    ],
)
def test_real_files_without_a_table_are_refused_with_what_to_run(name, says):
    with pytest.raises(ProfileError, match=says):
        read_files([MEASURED / name])
