"""Nsight Compute's printed text: metrics by name and by label are read, other text is refused."""

import pytest

from roofmodel.errors import ProfileError
from tests.profiles.ncu.samples import PRINT, PRINT_RULE, printed, read

OLD_TABLE = f"    {'-' * 70} {'-' * 15} {'-' * 30}\n"


def test_metrics_by_name_are_read_launch_by_launch():
    text = (
        PRINT
        + printed(
            "void gemm<(int)4, (bool)0>(float *, int)",
            "dram__bytes.sum                      Mbyte        12.58",
            "gpu__time_duration.sum                  us        41.60",
            "sm__inst_executed_pipe_tensor.sum     inst       36,864",
        )
        + printed("copy", "dram__bytes.sum  Kbyte  1.50", "gpu__time_duration.sum (!) n/a")
    )
    gemm, copy = read(text).kernels
    assert gemm.name == "void gemm<(int)4, (bool)0>(float *, int)"
    assert (gemm.grid, gemm.block, gemm.stream, gemm.device) == ((64, 2, 1), (256, 1, 1), "7", "0")
    assert gemm.process == "python3 (11)"
    assert gemm.bytes.dram == pytest.approx(12.58e6)
    assert gemm.seconds == pytest.approx(41.6e-6)
    assert gemm.flops.tensor_fp16 == 36_864 * 512  # a V100, by its compute capability
    assert (copy.name, copy.bytes.dram, copy.seconds) == ("copy", 1500, None)
    assert "secret-host" not in str(read(text))
    assert "someone" not in str(read(text))


def test_the_print_of_2020_has_a_date_in_place_of_extents_and_no_header():
    dated = ", 2020-Apr-07 17:01:05, Context 1, Stream 31"
    rows = (f"dram__bytes_read.sum{'Mbyte':>66}{'9.45':>31}", f"dram__bytes_write.sum{'Kbyte':>65}{'256.00':>31}")
    old = printed("add(float*, int)", *rows, where=dated, table=OLD_TABLE)
    (kernel,) = read("[9] app@127.0.0.1\n" + old).kernels
    assert (kernel.name, kernel.grid, kernel.stream) == ("add(float*, int)", None, "31")
    assert kernel.bytes.dram == 9_450_000 + 256_000


def test_decimal_commas_in_printed_text_are_recognized():
    (kernel,) = read(
        PRINT + printed("k", "dram__bytes.sum  byte  27.595.520", "gpu__time_duration.sum us 65,77")
    ).kernels
    assert (kernel.bytes.dram, kernel.seconds) == (27_595_520, pytest.approx(65.77e-6))


DETAILS = """\
[11] app@secret-host
  add(float *, int) (3, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.9
    Section: GPU Speed Of Light Throughput
    ----------------------- ------------ ------------
    Metric Name              Metric Unit Metric Value
    ----------------------- ------------ ------------
    DRAM Frequency          cycle/second      (!) nan
    SM Frequency                     Ghz         1.38
    Memory Throughput                  %         1.35
    Duration                          us         5.66
    Compute (SM) Throughput            %         0.35
    ----------------------- ------------ ------------

    OPT   This kernel grid is too small to fill the resources of this device: Duration  5 us.

    Section: Memory Workload Analysis
    ----------------- ------------ ------------
    Metric Name        Metric Unit Metric Value
    ----------------- ------------ ------------
    Memory Throughput Gbyte/second         2.00
    ----------------- ------------ ------------

    Section: Launch Statistics
    -------------------- --------------- ---------------
    Metric Name              Metric Unit    Metric Value
    -------------------- --------------- ---------------
    Registers Per Thread register/thread              16
    # SMs                             SM             132
    -------------------- --------------- ---------------

    Section: Occupancy
    ------------------------------- ----------- ------------
    Achieved Occupancy                        %        15.02
    ------------------------------- ----------- ------------

"""
SUMMARY = """\
[11] app@secret-host
  add(float *, int) (3, 1, 1)x(256, 1, 1), Device 0, CC 8.9, Invocations 14
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- -------- -------- --------
    Metric Name             Metric Unit  Minimum  Maximum  Average
    ----------------------- ----------- -------- -------- --------
    Elapsed Cycles                cycle 3,805.00 4,478.00 3,939.50
    Duration                         us     1.73     2.11     1.86
    ----------------------- ----------- -------- -------- --------

"""


def test_labels_of_the_details_page_are_read_with_their_section_and_unit():
    """The traffic is 2.00 GB/s × 5.66 µs; the percentage with the same label is another metric."""
    (kernel,) = read(DETAILS).kernels
    assert (kernel.seconds, kernel.clock, kernel.registers) == (pytest.approx(5.66e-6), pytest.approx(1.38e9), 16)
    assert kernel.bytes.dram == pytest.approx(2e9 * 5.66e-6)
    assert kernel.occupancy == pytest.approx(0.1502)
    assert [evidence.multiprocessors for evidence in read(DETAILS).evidence] == [132]
    assert "secret-host" not in str(read(DETAILS))


def test_a_printed_summary_states_the_mean_over_its_invocations():
    (kernel,) = read(SUMMARY).kernels
    assert (kernel.name, kernel.invocations, kernel.seconds) == ("add(float *, int)", 14, pytest.approx(14 * 1.86e-6))
    assert (kernel.grid, kernel.block) == ((3, 1, 1), (256, 1, 1))


def test_a_label_that_contradicts_its_metric_is_refused():
    labels = f"{PRINT_RULE}    Duration{'us':>34}{'99.00':>13}\n{PRINT_RULE}"
    with pytest.raises(ProfileError, match=r"is .99\.00., but an earlier row"):
        read(PRINT + printed("k", "gpu__time_duration.sum  us  41.60") + labels)


@pytest.mark.parametrize("line", ["_" * 10_000_000, "a__" + " b" * 5_000_000, "  x" + ")x(1, 1" * 1_000_000])
def test_a_line_of_ten_megabytes_takes_no_time(line):
    (kernel,) = read(PRINT + printed("k", line, "dram__bytes.sum byte 5")).kernels
    assert kernel.bytes.dram == 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (printed("k", f"Block Size{'thread':>32}{'256':>13}"), "without metrics that are read; run the line of"),
        (printed("k", where=""), "Nsight Compute log without a table"),
        # Launches in a form that is not known must not give their metrics to the launch before.
        (
            printed("a", "dram__bytes.sum byte 1,000,000")
            + printed("b", "dram__bytes.sum byte 5", where=", Context 1"),
            r"file\.csv:\d+: the metric 'dram__bytes.sum' has no launch above it.*--csv",
        ),
        (printed("a", "dram__bytes.sum byte 12x4"), r"file\.csv:\d+.*12x4"),
        (printed("a", "dram__bytes.sum furlong 4"), r"file\.csv:\d+.*furlong"),
        (
            printed("a", "dram__bytes.sum byte 1", "dram__bytes.sum byte 2"),
            r"is '2', but an earlier row of the same launch .* has 1 in base units",
        ),
    ],
)
def test_an_ambiguous_cell_is_refused_with_its_line(text, says):
    with pytest.raises(ProfileError, match=says):
        read(PRINT + text)
