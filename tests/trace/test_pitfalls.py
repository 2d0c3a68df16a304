"""Common errors of trace tools: each test fails for a tool with the error."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import roofmodel
from roofmodel.profiles.columns import ColumnTable
from roofmodel.profiles.kernel import KernelTable
from roofmodel.profiles.timelines.timeline import (
    CALLS,
    KERNEL,
    RANGES,
    Timeline,
    with_launches,
)
from roofmodel.roofline.categories import category
from roofmodel.trace import intervals, steps
from roofmodel.trace.ranks import ranks
from roofmodel.trace.steps import OPEN_END
from roofmodel.trace.trace import trace
from roofmodel.trace.transfers import collective_name
from tests.trace.runs import Event, analyzed, event, launched, written

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


def test_the_time_of_a_step_is_neither_the_sum_of_kernels_nor_the_longest_stream(tmp_path: Path) -> None:
    (report,) = analyzed(
        tmp_path,
        event("user_annotation", "ProfilerStep#1", 100, 200),
        launched("a", 100, 150, 90),
        launched("b", 130, 160, 95, stream=13),
        launched("c", 170, 190, 97, stream=13),
    ).ranks
    (step,) = report.steps.steps
    assert step.length == 100_000  # the sum of the kernels is 100 us as well, the longest stream 50 us
    assert (step.compute_only, step.idle) == (80_000, 20_000)  # 100-160 and 170-190
    assert report.rank.kernel_seconds == pytest.approx(100e-6)


def test_a_finding_names_the_rank_with_the_largest_part_instead_of_rank_0(tmp_path: Path) -> None:
    busy = [launched("k", 100 + 50 * i, 149 + 50 * i, 60 + 50 * i) for i in range(20)]
    slow = [launched("k", 100 + 50 * i, 110 + 50 * i, 95 + 50 * i, device=1, process=43, thread=43) for i in range(20)]
    found = analyzed(tmp_path, *busy, *slow)
    assert len(found.ranks) == 2
    (finding,) = found.findings
    assert finding.kind == "launch_bound"
    assert finding.text.startswith("GPU 1, process 43: ")
    assert finding.seconds == pytest.approx(19 * 40e-6)


def test_a_reused_correlation_id_joins_the_last_call_before_the_kernel(tmp_path: Path) -> None:
    def use(start: float, thread: int) -> list[Event]:
        return [
            event("kernel", "k", start, start + 10, 0, 7, device=0, stream=7, correlation=5),
            event("cuda_runtime", "cudaLaunchKernel", start - 4, start - 1, 42, thread, correlation=5),
            event("cuda_driver", "cuLaunchKernel", start - 3, start - 2, 42, thread, correlation=5),  # inside the call
        ]

    (report,) = analyzed(tmp_path, use(100, 1), use(1100, 2)).ranks
    work = report.rank.frame
    assert (work["start"] - work["launch_start"]).tolist() == [4_000, 4_000]
    assert work["launch_thread"].tolist() == ["1", "2"]
    assert report.rank.clock_error is None


def launches_of(work: ColumnTable, calls: ColumnTable) -> Any:
    """The activities with their launches."""
    timeline = Timeline("nsys", "file", work, calls)
    return with_launches(timeline).work


@pytest.mark.parametrize("process", ["1", None])
def test_a_kernel_before_all_calls_of_its_id_joins_the_first_and_times_are_exact(process: str | None) -> None:
    """A float of 1.6e18 nanoseconds has steps of 256 ns; the kernel of another id has no launch."""
    epoch = 1_600_000_000_000_000_001
    work, calls = KernelTable(), ColumnTable(CALLS)
    for start, number in ((5, 7), (25, 7), (40, 7), (50, 8)):
        work.add(kind=KERNEL, start=epoch + start, end=epoch + start + 1, name="k", process=process, correlation=number)
    for start in (40, 10, 20):
        calls.add(name="cudaLaunchKernel", start=epoch + start, end=epoch + start + 3, process="1", correlation=7)
    joined = launches_of(work, calls)
    assert joined["launch_start"].tolist() == [epoch + 10, epoch + 20, epoch + 40, -1]
    assert joined["process"].tolist() == ["1"] * 4


def test_the_memory_for_a_reused_id_grows_with_its_uses() -> None:
    """All pairs of 5000 kernels and 5000 calls with one id are 25 million rows of several hundred bytes."""
    number = 5000
    work, calls = KernelTable(), ColumnTable(CALLS)
    for start in range(0, 10 * number, 10):
        work.add(kind=KERNEL, start=start + 5, end=start + 6, name="k", process="1", correlation=7)
        calls.add(name="cudaLaunchKernel", start=start, end=start + 1, process="1", correlation=7)
    tracemalloc.start()
    joined = launches_of(work, calls)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (joined["start"] - joined["launch_start"] == 5).all()
    assert peak < 100e6


def test_reused_ids_of_cuda_events_join_nothing(tmp_path: Path) -> None:
    def waits(start: float) -> list[Event]:
        return [
            event("cuda_sync", "Stream Wait Event", start, start + 40, 0, 7, stream=7, wait_on_cuda_event_id=3,
                  wait_on_stream=13, wait_on_cuda_event_record_corr_id=1),
            event("cuda_runtime", "cudaEventRecord", start, start + 1, correlation=900 + int(start)),
        ]  # fmt: skip

    plain = [launched("a", 100, 150, 90), launched("b", 200, 250, 180)]
    (expected,) = analyzed(tmp_path, *plain).ranks
    (found,) = analyzed(tmp_path, *plain, waits(140), waits(190)).ranks
    assert found.idle_by_cause == expected.idle_by_cause
    assert len(found.rank.work) == 2


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("overhead", "Activity Buffer Request"), ("overhead", "CUPTI activity buffer flush"),
        ("overhead", "Lazy Function Loading"), ("cuda_profiler_range", "range"), ("gpu_user_annotation", "step 1"),
        ("Trace", "PyTorch Profiler (0)"),
    ],
)  # fmt: skip
def test_rows_of_the_profiler_itself_are_not_gpu_work(category: str, name: str, tmp_path: Path) -> None:
    plain = [launched("a", 100, 150, 90), launched("b", 200, 250, 180)]
    row = event(category, name, 0, 5000, 0, 7, device=0, stream=7)
    (report,) = analyzed(tmp_path, *plain, row).ranks
    assert report.rank.work.cells("name") == ["a", "b"]
    assert report.rank.span == (100_000, 250_000)


def test_a_marked_step_cut_by_the_end_of_the_trace_is_not_averaged() -> None:
    work, marks = KernelTable(), ColumnTable(RANGES)
    for number in range(3):
        work.add(kind=KERNEL, start=1000 * number + 10, end=1000 * number + 500, name="k", device="0")
        marks.add(name=f"step {number}", start=1000 * number, end=1000 * number + 900 if number < 2 else OPEN_END)
    timeline = Timeline("nsys", "file", work, range_table=marks)
    (rank,) = ranks([timeline])
    found = steps.find(rank)
    assert [step.label for step in found.complete] == ["0", "1"]
    assert [step.complete for step in found.steps] == [True, True, False]


def test_processes_that_share_a_gpu_are_ranks_with_a_warning(tmp_path: Path) -> None:
    found = analyzed(
        tmp_path, launched("a", 100, 200, 10), launched("b", 150, 250, 20, process=43, thread=43, stream=13)
    )
    assert [intervals.length(each.rank.kernels) for each in found.ranks] == [100_000, 100_000]
    assert any("processes 42, 43 share GPU 0" in str(warning) for warning in found.warnings)


# --- Clocks -----------------------------------------------------------------------------------------


def test_kernels_before_their_launch_show_that_the_clocks_differ(tmp_path: Path) -> None:
    # each kernel starts 5 us after its launch; the GPU's clock loses 1 us per 100 us
    kernels = [
        launched("k", 100 * i + 5 - i, 100 * i + 45 - i, 100 * i)
        for i in range(1, 21)
    ]  # fmt: skip
    found = analyzed(tmp_path, *kernels)
    (report,) = found.ranks
    error = report.rank.clock_error
    assert error
    assert (error.largest, error.first_half, error.second_half) == (15_000, 5_000, 15_000)
    assert set(report.idle_by_cause) == {"unknown"}
    assert report.rank.launch_to_start_median_seconds is None
    assert report.queue_depth_median is None
    (finding,) = found.findings
    assert finding.kind == "idle"
    assert finding.text.endswith("for an unknown reason: the clocks of CPU and GPU differ")
    (text,) = [str(warning) for warning in found.warnings if "clocks of CPU and GPU differ" in str(warning)]
    assert "14 of 20 kernels" in text  # i >= 7: 2 us or more before the launch
    assert "by up to 15 µs" in text
    assert "10 µs more in the second half" in text


def test_rounding_to_microseconds_is_not_a_difference_of_the_clocks(tmp_path: Path) -> None:
    (report,) = analyzed(tmp_path, launched("k", 100, 150, 101), launched("k", 200, 250, 180)).ranks
    assert report.rank.clock_error is None


def test_the_output_says_that_the_clocks_of_files_are_not_aligned(tmp_path: Path) -> None:
    files = [written(tmp_path, launched("k", 100, 150, 90, device=n), name=f"{n}.json") for n in range(2)]
    console = Console(width=100, file=io.StringIO())
    console.print(roofmodel.trace(*files, one_run=True))
    assert "clocks of different files are not aligned" in console.file.getvalue()  # type: ignore[attr-defined]


# --- Collectives ------------------------------------------------------------------------------------


def reduces(starts: list[float], device: int) -> list[Event]:
    """All-reduces of 1 MB on two ranks; the i-th ends at 300 i + 100 us."""
    info = {"Collective name": "allreduce", "In msg nelems": 250_000, "dtype": "Float", "Group size": 2}
    return [
        each
        for i, start in enumerate(starts)
        for each in launched(
            REDUCE, start, 300 * i + 400, start - 20, device=device, process=42 + device, thread=42 + device, **info
        )
    ]


def test_the_wait_for_the_last_rank_does_not_count_as_transfer_time(tmp_path: Path) -> None:
    found = analyzed(tmp_path, reduces([110, 410, 710], 0), reduces([380, 680, 980], 1))
    early, late = (report.collectives[0] for report in found.ranks)
    assert (early.seconds, late.seconds) == (pytest.approx(870e-6), pytest.approx(60e-6))
    assert (early.waiting_seconds, late.waiting_seconds) == (pytest.approx(810e-6), 0)
    # 1 MB in 20 us on both ranks; with its wait, the first rank would have 3.4 GB/s
    assert early.bytes_per_second == pytest.approx(50e9)
    assert late.bytes_per_second == pytest.approx(50e9)
    assert "straggler" in [finding.kind for finding in found.findings]


def test_the_wait_between_ranks_of_different_files_is_unknown(tmp_path: Path) -> None:
    files = [
        written(tmp_path, reduces([110, 410, 710], 0), name="0.json"),
        written(tmp_path, reduces([380, 680, 980], 1), name="1.json"),
    ]
    found = trace(files)
    assert [report.collectives[0].waiting_seconds for report in found.ranks] == [None, None]
    assert "straggler" not in [finding.kind for finding in found.findings]


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "allreduce"),  # NCCL 2.4
        ("ncclReduceRingLLKernel_sum_f32(ncclColl)", "reduce"),
        ("ncclBroadcastRingLLKernel_copy_i8(ncclColl)", "broadcast"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "allreduce"),  # NCCL 2.8
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "sendrecv"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reducescatter"),  # 2.19
        ("ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs4K)", "allgather"),  # 2.28
        ("ncclDevKernel_Generic_4(ncclDevComm*, unsigned long, ncclWork*)", "other"),  # RCCL
        ("mscclKernel_Sum_float_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)", "other"),
        ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)", "dispatch"),
        ("void deep_ep::internode_ll::combine<false, 7168, 11, 9>(void*, void*, int*)", "combine"),
        ("_ZN7deep_ep9intranode7combineI13__nv_bfloat16Li8ELi768ELi4096EEEvPT_Pf", "combine"),
        ("void nvshmemi_alltoall_on_stream_kernel<float>(int, float*, float const*, unsigned long)", "alltoall"),
        ("barrier_on_stream_kernel_threadgroup(int, int)", "barrier"),
        ("void rdxn_on_stream_kernel<float, (rdxn_ops)4>(int, float*, float const*, unsigned long)", "allreduce"),
        ("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)", "allreduce"),
        ("void tensorrt_llm::kernels::twoShotAllReduceKernel<half, 8>(AllReduceParams)", "allreduce"),
        ("void c10d::symmetric_memory::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(...)", "allreduce"),
    ],
)
def test_kernels_of_communication_libraries_are_collectives(kernel: str, name: str) -> None:
    assert category(kernel) == "communication"
    assert collective_name(kernel) == name


@pytest.mark.parametrize(
    "kernel", ["void at::native::reduce_kernel<512, 1, at::native::ReduceOp>", "splitKreduce_kernel", "row_reduce"]
)
def test_reductions_on_one_gpu_are_not_collectives(kernel: str) -> None:
    assert category(kernel) != "communication"


def test_launches_are_kept_for_each_process_with_the_same_ids() -> None:
    work, calls = KernelTable(), ColumnTable(CALLS)
    for number, process in enumerate(("1", "2")):
        work.add(kind=KERNEL, start=1000 + number, end=2000, name="k", process=process, device="0", correlation=7)
        calls.add(name="cudaLaunchKernel", start=100 * (number + 1), end=150 * (number + 1), process=process,
                  thread=process, correlation=7)  # fmt: skip
    joined = with_launches(Timeline("nsys", "file", work, calls)).work
    assert joined[["process", "launch_thread", "launch_start"]].values.tolist() == [["1", "1", 100], ["2", "2", 200]]
