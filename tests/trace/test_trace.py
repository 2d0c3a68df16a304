"""`roof trace` on real traces, compared with numbers from their files, and on small runs derived by hand."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roofmodel
from roofmodel.errors import RoofError, WorkloadError
from roofmodel.profiles.timelines.reading import read
from roofmodel.trace import idle, intervals
from roofmodel.trace.findings import link_shares
from roofmodel.trace.groups import GROUPINGS, grouped
from roofmodel.trace.ranks import ranks
from roofmodel.trace.steps import find_period, total
from roofmodel.trace.trace import RankReport, RunAnalysis, trace
from roofmodel.trace.transfers import bus_factor, collective_name
from tests.printing import printed
from tests.profiles.samples import measured
from tests.trace.runs import STEP_TABLE, Event, analyzed, event, launched, written


def real(path: str, **options: object) -> RunAnalysis:
    return trace([str(measured(f"traces/{path}"))], **options)  # type: ignore[arg-type]


def kinds(found: RunAnalysis) -> list[str]:
    return [finding.kind for finding in found.findings]


def idle_microseconds(found: RunAnalysis) -> dict[str, float]:
    """The idle time of the first rank by cause."""
    return {cause: round(seconds * 1e6, 3) for cause, seconds in found.ranks[0].idle_by_cause.items()}


# --- Real traces ------------------------------------------------------------------------------------


def test_the_busy_time_of_two_training_ranks_equals_that_of_an_sql_query() -> None:
    found = real("nsys/two_ranks_training_h100.sqlite")
    first, second = (report.rank for report in found.ranks)
    assert [intervals.length(rank.kernels) for rank in (first, second)] == [270_863_484, 264_324_724]
    assert [intervals.length(rank.communication) for rank in (first, second)] == [17_172_652, 8_229_100]
    assert [rank.overlap for rank in (first, second)] == [0, 0]
    shares = [intervals.length(rank.kernels) / 1e9 / rank.kernel_span_seconds for rank in (first, second)]
    assert [round(share, 4) for share in shares] == [0.9033, 0.8850]
    delays = [rank.launch_to_start_median_seconds for rank in (first, second)]
    assert [round(delay * 1e6, 1) for delay in delays if delay] == [296.2, 225.8]


@pytest.mark.parametrize("rank", [0, 1])
def test_copies_limit_a_run_that_keeps_the_copy_engine_busy(rank: int) -> None:
    found = real("nsys/two_gpus_copying_h100.sqlite", hw="h100")
    copies = {(each.kind, each.memory): each for each in found.ranks[rank].copies}
    pinned = copies["HtoD", "pinned"]
    assert (pinned.number, pinned.bytes) == (223, 25_475_252_224)
    assert pinned.seconds == pytest.approx((0.920871273, 0.920756165)[rank], abs=1e-9)
    assert pinned.bytes_per_second == pytest.approx(27.66e9, rel=1e-3)
    assert copies["DtoD", "device"].number == 225
    finding = found.findings[0]
    assert finding.kind == "copy_bound"
    assert "43% of" in finding.text
    assert "PCIe link (64 GB/s)" in finding.text


def test_copies_of_an_unknown_device_are_compared_with_generations_of_pcie() -> None:
    found = real("nsys/two_gpus_copying_h100.sqlite")
    assert "43% of PCIe 5.0 x16" in found.findings[0].text
    assert any("device is unknown" in str(warning) for warning in found.warnings)


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (8e9, "50% of PCIe 3.0 x16 or 25% of PCIe 4.0 x16 or 12% of PCIe 5.0 x16"),
        (24e9, "75% of PCIe 4.0 x16 or 38% of PCIe 5.0 x16"),
        (48e9, "75% of PCIe 5.0 x16"),
        (65e9, "more than PCIe 5.0 x16"),
    ],
)
def test_a_rate_is_a_share_of_each_generation_of_pcie_that_reaches_it(rate: float, text: str) -> None:
    """16 lanes with 8, 16 or 32 Gbit/s: 16, 32 or 64 GB/s in one direction."""
    assert link_shares(rate, None) == text


def test_a_run_without_loader_workers_is_limited_by_its_input_pipeline() -> None:
    found = real("torch/kineto_resnet50_v100_no_workers.json.gz")
    (report,) = found.ranks
    assert report.rank.kernel_seconds == pytest.approx(0.591532, abs=1e-9)
    assert intervals.length(report.rank.kernels) / 1e9 / report.rank.kernel_span_seconds == pytest.approx(
        0.595, abs=5e-4
    )
    (copies,) = [each for each in report.copies if each.kind == "HtoD"]
    assert (copies.number, copies.memory) == (12, "pageable")
    assert copies.seconds == pytest.approx(11.492e-3, abs=1e-6)
    assert len(report.steps.complete) == 6
    assert all(0.16 < step.length / 1e9 < 0.185 for step in report.steps.complete)
    assert kinds(found)[0] == "input_bound"
    # 68.7 ms in the loader and 107.4 ms of other work: one worker suffices
    assert "DataLoader(num_workers=1)" in found.findings[0].text
    assert report.idle_by_cause["input"] == max(report.idle_by_cause.values())


@pytest.mark.parametrize(
    "path",
    [
        "nsys/two_ranks_training_h100.sqlite", "nsys/two_gpus_copying_h100.sqlite", "nsys/one_kernel_rtx_a4500.sqlite",
        "torch/kineto_resnet50_v100_no_workers.json.gz", "torch/nccl_parser_config_nccl_data.json.gz",
        "torch/amd_trace_mi250_minitoy_train_ROCm6_2_kineto.json.gz", "torch/sglang_Qwen3-8B_decode.json.gz",
        "torch/critical_path_alexnet_benchmark_result_2869224_1695835535_trace.json.gz",
    ],
)  # fmt: skip
def test_parts_sum_to_the_step_and_causes_to_the_idle_time(path: str) -> None:
    for report in real(path).ranks:
        _sums(report)


def _sums(report: RankReport) -> None:
    rank = report.rank
    assert sum(report.idle_by_cause.values()) * 1e9 == pytest.approx(intervals.length(rank.idle), abs=1)
    stretches = idle.by_cause(rank)
    assert intervals.join(*stretches.values()).tolist() == rank.idle.tolist()
    assert sum(map(intervals.length, stretches.values())) == intervals.length(rank.idle)  # causes do not overlap
    assert intervals.length(rank.active) + intervals.length(rank.idle) == rank.wall
    for step in report.steps.steps:
        parts = (step.compute_only, step.communication_exposed, step.copies_exposed, step.overlap, step.idle)
        assert sum(parts) == step.length == step.end - step.start
        assert min(parts) >= 0
    whole = sum(each.seconds for each in grouped(rank, report.steps, "name"))
    for by in GROUPINGS:
        rows = grouped(rank, report.steps, by)
        assert sum(each.seconds for each in rows) == pytest.approx(whole)
        assert sum(each.share for each in rows) == pytest.approx(1)


def test_collectives_have_the_bandwidth_of_their_message_sizes() -> None:
    (report,) = real("torch/nccl_parser_config_nccl_data.json.gz").ranks
    found = {each.name: each for each in report.collectives}
    reduce = found["allreduce"]
    assert reduce.bytes is not None
    assert reduce.bytes_per_second == pytest.approx(reduce.bytes / reduce.seconds)
    assert reduce.exposed_seconds <= reduce.seconds


# --- Small runs -------------------------------------------------------------------------------------


def test_kernels_on_two_streams_are_not_summed_as_wall_time(tmp_path: Path) -> None:
    found = analyzed(tmp_path, launched("a", 100, 200, 10), launched("b", 150, 250, 20, stream=13))
    (report,) = found.ranks
    assert report.rank.kernel_seconds == pytest.approx(200e-6)
    assert intervals.length(report.rank.kernels) == 150_000


def test_the_processes_of_one_gpu_are_two_ranks(tmp_path: Path) -> None:
    found = analyzed(
        tmp_path, launched("a", 100, 200, 10), launched("b", 150, 250, 20, process=43, thread=43, stream=13)
    )
    assert [(each.rank.process, each.rank.device) for each in found.ranks] == [("42", "0"), ("43", "0")]


def test_kernels_without_a_launch_belong_to_the_only_process_of_their_gpu(tmp_path: Path) -> None:
    found = analyzed(
        tmp_path,
        event("kernel", "launched before the trace began", 0, 50, 0, 7, device=0, stream=7),
        launched("a", 100, 200, 60, process=1),
        launched("b", 100, 200, 60, process=2, device=1),
    )
    ranks = [(report.rank.process, report.rank.device, len(report.rank.work)) for report in found.ranks]
    assert ranks == [("1", "0", 2), ("2", "1", 1)]


def test_the_kernels_of_a_cuda_graph_share_one_launch(tmp_path: Path) -> None:
    events = launched("a", 100, 110, 50)
    number = events[0]["args"]["correlation"]
    more = [event("kernel", name, start, start + 10, 0, 7, device=0, stream=7, correlation=number)
            for name, start in (("b", 112.0), ("c", 124.0))]  # fmt: skip
    (report,) = analyzed(tmp_path, events, more).ranks
    assert report.rank.launch_to_start_median_seconds == pytest.approx(62e-6)
    assert set(report.idle_by_cause) == {"queued"}


def test_exposed_communication_is_not_overlapped_by_computation(tmp_path: Path) -> None:
    found = analyzed(
        tmp_path,
        launched("gemm", 100, 200, 10),
        launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)", 150, 300, 20, stream=13),
    )
    rank = found.ranks[0].rank
    assert intervals.length(rank.exposed_communication) == 100_000
    assert rank.overlap == pytest.approx(50 / 150)
    assert kinds(found) == ["communication_bound"]


def test_the_cause_of_a_gap_is_the_activity_of_the_cpu_and_not_the_next_kernel(tmp_path: Path) -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    found = analyzed(
        tmp_path,
        launched("first", 100, 200, 50),
        event("user_annotation", loader, 190, 1190),
        launched("next", 1300, 1400, 1250),
        launched("queued", 1450, 1500, 1260),
    )
    # the loader, from the end of the first kernel; 110 us until the next kernel starts; a launched kernel
    assert idle_microseconds(found) == {"input": 990, "launch": 110, "queued": 50}
    assert kinds(found)[0] == "input_bound"


def test_idle_time_after_a_synchronization_is_attributed_to_it(tmp_path: Path) -> None:
    found = analyzed(
        tmp_path,
        launched("first", 100, 200, 50),
        event("cuda_runtime", "cudaStreamSynchronize", 60, 202),
        launched("next", 300, 400, 290),
    )
    assert found.ranks[0].idle_by_cause == {"synchronization": pytest.approx(100e-6)}
    assert kinds(found) == ["synchronization"]


@pytest.mark.parametrize(
    ("call", "waits"),
    [
        ("cuMemcpyHtoD_v2", True), ("cuMemcpy", True), ("cuMemcpy2DUnaligned_v2", True), ("cuMemcpyDtoH_v2_ptds", True),
        ("cuMemcpyHtoDAsync_v2", False), ("cuMemcpyAsync_ptsz", False), ("cuMemcpy3DPeerAsync", False),
        ("cudaMemcpy", True), ("cudaMemcpyAsync", False),
    ],
)  # fmt: skip
def test_only_copies_without_async_in_their_name_block_the_cpu(call: str, waits: bool) -> None:
    assert bool(idle.SYNCHRONIZES.search(call)) == waits


def test_a_kernel_that_starts_long_after_its_launch_was_waiting_in_the_queue(tmp_path: Path) -> None:
    # the call lasts from 250 to 252 us; an idle GPU starts a kernel within 50 us; the kernel starts at 10 ms
    found = analyzed(tmp_path, launched("first", 100, 200, 50), launched("next", 10_000, 10_100, 250))
    assert found.ranks[0].idle_by_cause == {"launch": pytest.approx(102e-6), "queued": pytest.approx(9698e-6)}
    (finding,) = found.findings
    assert finding.kind == "idle"
    assert "stream order" in finding.text


def test_a_graph_that_waits_for_an_event_is_not_attributed_to_the_cpu() -> None:
    # correlation 92158: launched at 42.6 us, the call returned, started at 463.3 ms after a hipStreamWaitEvent
    found = real("torch/sglang_Qwen3-8B_decode.json.gz")
    causes = found.ranks[0].idle_by_cause
    assert causes["queued"] == pytest.approx(463.5e-3, abs=1e-3)
    assert causes["launch"] < 1e-3
    assert kinds(found) == ["idle"]


def test_idle_time_in_allocations_is_attributed_to_them(tmp_path: Path) -> None:
    found = analyzed(
        tmp_path,
        launched("first", 100, 200, 50),
        event("cuda_runtime", "cudaMalloc", 60, 1000),
        event("cuda_runtime", "cudaFree", 1000, 1100),
        launched("next", 1210, 1300, 1200),
    )
    assert idle_microseconds(found) == {"allocation": 900, "launch": 110}
    assert kinds(found) == ["idle"]
    assert "allocates memory" in found.findings[0].text


def test_freeing_memory_synchronizes(tmp_path: Path) -> None:
    found = analyzed(
        tmp_path,
        launched("first", 100, 200, 50),
        event("cuda_runtime", "cudaFree", 60, 210),
        launched("next", 300, 400, 290),
    )
    assert idle_microseconds(found) == {"allocation": 10, "synchronization": 90}


def test_a_warm_up_is_not_attributed_to_slow_launches() -> None:
    # calls of 1 ms or more in the warm-up, summed over the events of the file: cudaFree 6.55 s, cudaMalloc 1.96 s,
    # cudaStreamCreateWithFlags 0.73 s, cudaHostAlloc 3.5 ms, and a cudaLaunchKernel of 3.06 s
    found = real("torch/critical_path_alexnet_benchmark_result_2869224_1695835535_trace.json.gz")
    assert found.ranks[0].idle_by_cause["allocation"] == pytest.approx(9.249 + 3.056, rel=0.005)
    assert "launch_bound" not in kinds(found)


def test_a_long_gap_at_the_end_of_the_selected_steps_has_its_operator(tmp_path: Path) -> None:
    kernels = [launched("k", 100 + 20 * i, 115 + 20 * i, 116 + 20 * (i - 1)) for i in range(10)]
    found = analyzed(
        tmp_path,
        event("user_annotation", "ProfilerStep#1", 90, 1000),
        event("user_annotation", "ProfilerStep#2", 1000, 1300),
        *kernels,
        event("cpu_op", "aten::convolution", 280, 1210),
        launched("last", 1200, 1300, 1198),
        steps_range="1:2",
    )
    (finding,) = found.findings
    assert "in 1 gap" in finding.text
    assert "aten::convolution 705 µs (100%)" in finding.text


@pytest.mark.parametrize(("begin", "named"), [(1117, False), (1097, True)])
def test_an_operator_with_more_than_a_tenth_of_the_idle_time_is_named(begin: int, named: bool, tmp_path: Path) -> None:
    """Other work from 295 to 1198 us, as the launch starts: a tenth of it are 90 us."""
    kernels = [launched("k", 100 + 20 * i, 115 + 20 * i, 116 + 20 * (i - 1)) for i in range(10)]
    found = analyzed(
        tmp_path, *kernels, event("cpu_op", "aten::convolution", begin, 1199), launched("last", 1200, 1300, 1198)
    )
    assert kinds(found) == ["cpu_bound"]
    assert ("aten::convolution" in found.findings[0].text) is named


def test_a_range_of_other_work_is_the_cause_and_not_the_short_synchronization_before_it(tmp_path: Path) -> None:
    """After each kernel of 1 ms: 10 us until the synchronization returns, 50 ms in the range, 20 us for the launch."""
    events: list[Event | list[Event]] = []
    for start in (1000.0 + 51_100 * number for number in range(5)):
        events += [
            launched("gemm", start + 20, start + 1020, start),
            event("cuda_runtime", "cudaDeviceSynchronize", start + 12, start + 1030),
            event("user_annotation", "read_weights_from_disk", start + 1060, start + 51_060),
        ]
    found = analyzed(tmp_path, *events)
    causes = found.ranks[0].idle_by_cause
    assert causes["cpu_work"] == pytest.approx(4 * 50e-3, rel=0.01)
    assert causes["synchronization"] < 4 * 20e-6
    assert kinds(found) == ["cpu_bound"]
    assert "in 4 gaps" in found.findings[0].text
    assert "read_weights_from_disk 200 ms (100%)" in found.findings[0].text


def test_an_operator_on_the_cpu_is_the_cause_and_named_by_its_outermost_name(tmp_path: Path) -> None:
    """Between two kernels 4 ms of aten::randn, which calls aten::normal_, and a launch."""
    events: list[Event | list[Event]] = []
    for start in (1000.0 + 5000 * number for number in range(10)):
        events += [
            launched("matmul", start, start + 800, start - 20),
            event("cpu_op", "aten::randn", start + 900, start + 4900),
            event("cpu_op", "aten::normal_", start + 930, start + 4890),
        ]
    found = analyzed(tmp_path, *events)
    assert kinds(found) == ["cpu_bound"]
    assert "aten::randn 36 ms (96%)" in found.findings[0].text
    assert "normal_" not in found.findings[0].text


def test_a_launch_of_milliseconds_loads_a_module(tmp_path: Path) -> None:
    kernel, call = launched("second", 10_300, 10_400, 300)
    found = analyzed(tmp_path, launched("first", 100, 200, 50), {**call, "dur": 9_900.0}, kernel)
    # from the start of the call at 300 us to its return at 10.2 ms
    assert found.ranks[0].idle_by_cause["allocation"] == pytest.approx(9.9e-3)
    (finding,) = found.findings
    assert finding.kind == "idle"
    assert "mostly cudaLaunchKernel" in finding.text


def test_host_code_without_a_name_is_not_called_slow_launches(tmp_path: Path) -> None:
    # one launch of 2 us per 300 us: CUDA calls take less than 1 % of the idle time
    launches = [launched("k", 1000 + 300 * i, 1010 + 300 * i, 995 + 300 * i) for i in range(20)]
    found = analyzed(tmp_path, *launches)
    assert kinds(found) == ["cpu_bound"]
    assert "code outside CUDA calls" in found.findings[0].text


@pytest.mark.parametrize("launch_follows", [True, False])
def test_moved_pages_of_managed_memory_end_a_gap_of_the_cpu(launch_follows: bool, tmp_path: Path) -> None:
    moved = event("gpu_memcpy", "Memcpy DtoH (Managed -> Pageable)", 1500, 1600, 0, 7, device=0, stream=7, bytes=4096)
    later = [launched("next", 3000, 3100, 2995)] if launch_follows else []
    (timeline,) = read([written(tmp_path, launched("first", 100, 500, 50), moved, *later)])
    copies = [row for row, kind in enumerate(timeline.work_table.cells("kind")) if kind == "copy"]
    timeline.work_table.update("direction", copies, ["unified_DtoH"])
    (rank,) = ranks([timeline])
    assert {cause: intervals.length(times) for cause, times in idle.by_cause(rank).items()} == {
        "cpu_work": 1_000_000 + (1_395_000 if launch_follows else 0), **({"launch": 5_000} if launch_follows else {})
    }  # fmt: skip


def test_moved_pages_of_a_real_file_end_a_gap_of_the_cpu() -> None:
    # vectorAdd with managed memory: after cudaDeviceSynchronize, the CPU checks the result, whose pages move
    (report,) = real("nsys/one_kernel_rtx_a4500.sqlite").ranks
    assert report.idle_by_cause["cpu_work"] == pytest.approx(1.55e-3, rel=0.01)
    assert "unknown" not in report.idle_by_cause


def test_page_faults_of_a_real_file_are_one_finding() -> None:
    """By SQL: 155 moves of 8 388 608 bytes to the GPU, 72 of 12 582 912 to the CPU, 1.10 ms in all, and the gaps."""
    found = real("nsys/one_kernel_rtx_a4500.sqlite")
    (faults,) = found.findings
    assert faults.kind == "managed_memory"
    assert faults.seconds == pytest.approx(1.10e-3 + 1.55e-3, rel=0.01)
    assert "8.39 MB to the GPU in 155 moves and 12.6 MB to the CPU in 72 moves" in faults.text


def test_kernels_of_cuda_graphs_need_no_advice_on_cuda_graphs(tmp_path: Path) -> None:
    def graph(start: float) -> list[Event]:
        work = [event("kernel", "k", start + n, start + n + 1, 0, 7, device=0, stream=7, correlation=int(start))
                for n in range(4)]  # fmt: skip
        return [*work, event("cuda_runtime", "cudaGraphLaunch", start - 10, start - 2, correlation=int(start))]

    found = analyzed(tmp_path, *(graph(100.0 * i) for i in range(1, 20)))
    assert kinds(found) == ["launch_bound"]
    assert "CUDA graphs, fused" not in found.findings[0].text
    assert "76 of 76 kernels are already in CUDA graphs" in found.findings[0].text


def test_idle_time_of_unknown_cause_is_a_finding() -> None:
    found = real("nvprof/nvprof_gputrace_tegraX1.csv")
    (finding,) = found.findings
    assert finding.kind == "idle"
    assert "(96%)" in finding.text
    assert "the file has no CUDA calls of the CPU" in finding.text


def test_copies_limit_a_run_only_if_they_are_its_largest_part(tmp_path: Path) -> None:
    copied = event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 900, 1100, 0, 7, device=0, stream=7, bytes=4096)
    added = analyzed(tmp_path, launched("first", 100, 900, 50), copied)
    assert kinds(added) == ["copy_bound"]
    assert added.findings[0].text.startswith("copies add 200 µs of 1 ms (20%)")
    limited = real("nsys/two_gpus_copying_h100.sqlite")
    (copies,) = [finding for finding in limited.findings if finding.kind == "copy_bound"]
    assert "copies limit the run" in copies.text


def test_a_slow_cpu_is_launch_bound(tmp_path: Path) -> None:
    launches = [launched("k", 100 + 50 * i, 110 + 50 * i, 95 + 50 * i) for i in range(20)]
    found = analyzed(tmp_path, *launches)
    assert kinds(found) == ["launch_bound"]
    assert found.findings[0].seconds == pytest.approx(19 * 40e-6)


def test_other_calls_on_other_threads_explain_nothing(tmp_path: Path) -> None:
    loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    found = analyzed(
        tmp_path,
        launched("first", 100, 200, 50),
        event("user_annotation", loader, 190, 1190, thread=99),
        launched("next", 1300, 1400, 1250),
    )
    assert set(found.ranks[0].idle_by_cause) == {"cpu_work", "launch"}


def test_a_file_without_cuda_calls_has_a_note_on_what_to_collect(tmp_path: Path) -> None:
    work = [event("kernel", "k", start, start + 10, 0, 7, device=0, stream=7) for start in (100.0, 200.0)]
    found = analyzed(tmp_path, work, event("cpu_op", "aten::mm", 90, 95))
    assert set(found.ranks[0].idle_by_cause) == {"unknown"}
    assert any("no CUDA calls" in str(warning) for warning in found.warnings)


def test_the_rank_that_starts_collectives_last_is_the_straggler(tmp_path: Path) -> None:
    early = [launched("ncclKernel_AllReduce", 100 + 300 * i, 300 + 300 * i, 50) for i in range(3)]
    late = [
        launched("ncclKernel_AllReduce", 250 + 300 * i, 300 + 300 * i, 60, device=1, process=43, thread=43)
        for i in range(3)
    ]
    found = analyzed(tmp_path, *early, *late)
    (straggler,) = [finding for finding in found.findings if finding.kind == "straggler"]
    assert straggler.seconds == pytest.approx(450e-6)
    assert straggler.text.startswith("GPU 1, process 43 starts 3 of 3 collectives last")


@pytest.mark.parametrize("recorded", [True, False])
def test_ranks_of_different_groups_do_not_wait_for_each_other(tmp_path: Path, recorded: bool) -> None:
    """GPUs 0 and 1 have an all-reduce, and GPUs 2 and 3 one 2 ms later. GPUs 1 and 3 start 20 us late."""
    events: list[Event | list[Event]] = []
    for gpu in range(4):
        group = [0, 1] if gpu < 2 else [2, 3]
        facts = {"Collective name": "allreduce", "Group size": 2, "Process Group Ranks": str(group)} if recorded else {}
        for i in range(5):
            start = 4000.0 * i + 2000 * (gpu // 2)
            events.append(
                launched("ncclKernel_AllReduce", start + 20 * (gpu % 2), start + 1000, 0, device=gpu, process=gpu + 1,
                         **facts)
            )  # fmt: skip
    found = analyzed(tmp_path, *events)
    waiting = [report.collectives[0].waiting_seconds for report in found.ranks]
    assert waiting == ([pytest.approx(100e-6), 0, pytest.approx(100e-6), 0] if recorded else [None] * 4)
    assert "straggler" not in kinds(found)


# --- Steps ------------------------------------------------------------------------------------------


def marked_step(number: int) -> list[Event]:
    """A step of 100 us with a kernel of 30 us."""
    start = 100.0 * number
    mark = event("user_annotation", f"ProfilerStep#{number}", start, start + 100)
    return [mark, *launched("k", start + 10, start + 40, start)]


def test_steps_are_read_from_marks_of_the_profiler(tmp_path: Path) -> None:
    (report,) = analyzed(tmp_path, marked_step(3), marked_step(4)).ranks
    assert [(step.label, step.length, step.compute_only, step.idle) for step in report.steps.steps] == [
        ("3", 100_000, 30_000, 70_000), ("4", 100_000, 30_000, 70_000),
    ]  # fmt: skip


def test_means_leave_out_the_warm_up_and_say_so(tmp_path: Path) -> None:
    """A first step of 900 us, then four of 100 us: 260 us with it."""
    first = [event("user_annotation", "ProfilerStep#1", 0, 900), *launched("k", 10, 890, 5)]
    starts = {n: 1000 * n for n in range(2, 6)}
    later = [
        [event("user_annotation", f"ProfilerStep#{n}", at, at + 100), *launched("k", at + 9, at + 90, at + 2)]
        for n, at in starts.items()
    ]
    path = written(tmp_path, first, *later)
    report = roofmodel.trace(path)
    steps = report.to_dict()["steps"]
    assert [step["warm_up"] for step in steps] == [True, False, False, False, False]
    assert "mean 100 µs without 1 warm-up step (260 µs with)" in printed(report, 140)
    equal = analyzed(tmp_path, *later).ranks[0].steps
    assert equal.steady == equal.complete


def test_a_table_of_steps_of_one_kernel_is_a_summary(tmp_path: Path) -> None:
    launches = [launched("k", 100 * i, 100 * i + 50 + i % 3, 100 * i - 10) for i in range(1, 60)]
    text = printed(roofmodel.trace(written(tmp_path, *launches)), 140)
    assert "one kernel" in text or "1 kernel" in text
    assert "shortest 100 µs, median 100 µs, longest 100 µs; JSON has each step" in text
    assert text.count("100 µs") < 10


def test_a_number_beyond_64_bits_is_no_number_of_a_step(tmp_path: Path) -> None:
    """Step numbers are columns of 64 bits in `roof jitter`; 2^63 has 19 digits."""
    events = [launched("gemm", 10.0 * n, 10.0 * n + 5, 10.0 * n - 1) for n in (1, 2)]
    for digits, source in ((18, "marks"), (24, None)):
        marked = [
            event("user_annotation", "ProfilerStep#" + "9" * (digits - 1) + str(n), 10.0 * n - 2, 10.0 * n + 7)
            for n in (1, 2)
        ]
        (rank,) = analyzed(tmp_path, *events, *marked).ranks
        assert rank.steps.source == source


def test_times_whose_difference_exceeds_64_bits_are_ignored_with_a_warning(tmp_path: Path) -> None:
    """8.9e15 us are 8.9e18 ns: twice as much, from the first to the last kernel, is above 2^63 = 9.2e18 ns."""
    far = [event("kernel", "gemm", start, start + 3, 0, 7, device=0) for start in (-8.9e15, 1.0, 8.9e15)]
    found = analyzed(tmp_path, *far)
    assert found.ranks[0].rank.is_kernel.sum() == 1
    assert any(str(text).startswith("2 events without a name, a time") for text in found.warnings)


def test_steps_without_marks_are_found_by_their_period_and_incomplete_ones_are_left_out(tmp_path: Path) -> None:
    events, time = [], 100.0
    for number in range(4):
        for name in ("embed", *["attention", "mlp"] * 6, "head", "adam"):
            if number == 0 and name == "embed":
                continue  # the trace starts inside a step
            events.append(launched(name, time, time + 10, time - 5))
            time += 11
        time += 200
    (report,) = analyzed(tmp_path, *events).ranks
    assert report.steps.source == "period"
    assert [step.kernels for step in report.steps.complete] == [15, 15]
    assert [step.complete for step in report.steps.steps] == [False, True, True, False]


@settings(max_examples=50)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=12), st.integers(3, 6))
def test_a_found_period_repeats_the_whole_sequence(step: list[int], repeats: int) -> None:
    codes = np.array(step * repeats)
    period = find_period(codes)
    assert period is not None
    assert (codes[:-period] == codes[period:]).mean() >= 0.95
    assert period <= len(step)


@pytest.mark.parametrize(("changed", "period"), [(4, 20), (5, None)])
def test_kernels_of_a_period_equal_those_of_the_next_one_but_for_a_twentieth(changed: int, period: int | None) -> None:
    """10 steps of 20 kernels have 180 pairs; a kernel of another kind differs from that before and after it."""
    codes = np.tile(np.arange(20), 10)
    codes[30 + 27 * np.arange(changed)] = 100 + np.arange(changed)  # 8 or 10 of 180 pairs: 4.4 % or 5.6 %
    assert find_period(codes) == period


def test_a_sequence_that_does_not_repeat_has_no_period() -> None:
    assert find_period(np.arange(100)) is None


def test_a_range_of_steps_restricts_all_results(tmp_path: Path) -> None:
    path = written(tmp_path, *map(marked_step, range(1, 6)))
    assert trace([path], steps_range="2:4").ranks[0].rank.kernel_seconds == pytest.approx(60e-6)
    for wrong in ("4:2", "x", "7:9", "3"):
        with pytest.raises(RoofError):
            trace([path], steps_range=wrong)


def test_a_range_of_steps_has_the_idle_time_at_the_start_and_end_of_its_steps(tmp_path: Path) -> None:
    """By hand, per step of 1000 us: 5 us, 495 us in the data loader, 5 us, a kernel of 400 us, 95 us."""
    events: list[Event | list[Event]] = []
    for start in (1000.0 * number for number in range(4)):
        events += [
            event("user_annotation", f"ProfilerStep#{start / 1000:.0f}", start, start + 1000),
            event("cpu_op", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start + 5, start + 500),
            launched("k", start + 505, start + 905, start + 500),
        ]
    found = trace([written(tmp_path, *events)], steps_range="2:3")
    (report,) = found.ranks
    (step,) = report.steps.steps
    assert total(report.rank) == step._replace(label="")
    assert (report.rank.wall, step.idle) == (1_000_000, 600_000)
    assert report.idle_by_cause == pytest.approx({"input": 495e-6, "launch": 105e-6})
    assert kinds(found) == ["input_bound"]
    _sums(report)


def test_steps_with_the_same_number_are_selected_without_those_between_them(tmp_path: Path) -> None:
    """For example two epochs, each with steps 0, 1 and 2."""
    events: list[Event | list[Event]] = []
    for place, label in enumerate((0, 1, 2, 0, 1, 2)):
        start = 1000.0 * place
        events.append(event("user_annotation", f"ProfilerStep#{label}", start, start + 1000))
        events.append(launched(f"k{label}", start + 100, start + 900, start + 10))
    found = trace([written(tmp_path, *events)], steps_range="1:2")
    (report,) = found.ranks
    assert [(row.group, row.kernels) for row in found.top] == [("k1", 2)]
    whole = total(report.rank)
    assert (report.rank.wall, whole.compute_only, whole.idle) == (2_000_000, 1_600_000, 400_000)
    _sums(report)


def test_work_of_the_previous_step_is_not_idle_time_of_a_selected_step(tmp_path: Path) -> None:
    """The kernel of each step runs from 600 us after its start until 200 us after its end."""
    events: list[Event | list[Event]] = []
    for start in (1000.0 * number for number in range(4)):
        events.append(event("user_annotation", f"ProfilerStep#{start / 1000:.0f}", start, start + 1000))
        events.append(launched("k", start + 600, start + 1200, start + 10))
    (report,) = trace([written(tmp_path, *events)], steps_range="1:2").ranks
    assert (report.rank.wall, intervals.length(report.rank.idle)) == (1_000_000, 400_000)
    assert report.rank.kernel_seconds == pytest.approx(600e-6)
    _sums(report)


# --- Other formats ----------------------------------------------------------------------------------

NVPROF_COLUMNS = (
    "Start,Duration,Grid X,Grid Y,Grid Z,Block X,Block Y,Block Z,Registers Per Thread,Static SMem,Dynamic SMem,Size,"
    "Throughput,SrcMemType,DstMemType,Device,Context,Stream,Name"
)
NVPROF_ROWS = (  # start in s, duration in ms, MB copied, stream, name
    (1.0, 2.0, "16.0", 7, "[CUDA memcpy HtoD]"),
    (1.002, 3.0, "", 7, "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"),
    (1.006, 1.0, "", 7, "void at::native::vectorized_elementwise_kernel<4>"),
    (1.0065, 1.5, "", 13, "ncclAllReduceRingLLKernel_sum_f32"),
)


def nvprof_trace() -> str:
    lines = ["==7== Profiling result:", ",".join(f'"{column}"' for column in NVPROF_COLUMNS.split(","))]
    lines.append("s,ms,,,,,,,,KB,B,MB,GB/s,,,,,,")
    for start, duration, size, stream, name in NVPROF_ROWS:
        memory = '"Pageable","Device"' if size else ","
        lines.append(f'{start},{duration},,,,,,,,,,{size},,{memory},"Tesla V100 (0)","1","{stream}","{name}"')
    return "\n".join([*lines, ""])


def test_an_nvprof_trace_has_the_groups_of_the_lecture_with_copies(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(nvprof_trace())
    found = trace([str(path)], by="lecture")
    groups = {row.group: row.seconds for row in found.groups}
    assert groups == pytest.approx({"matrix-mul": 3e-3, "custom_ops": 1e-3, "memory_mgmt": 3.5e-3})
    (copies,) = found.ranks[0].copies
    assert (copies.kind, copies.memory, copies.bytes) == ("HtoD", "pageable", 16 * 2**20)
    assert found.top[0].group == "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"
    assert found.ranks[0].rank.overlap == pytest.approx(0.5 / 1.5)


def test_a_table_of_kernels_by_step_has_its_steps_and_launches(tmp_path: Path) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(STEP_TABLE.split(","))
    for step in (1, 2, 3):
        base = step * 10_000
        for i in range(3):
            start = base + 500 + 1000 * i
            launch = base + 100 * i
            writer.writerow(
                [f"step {step}", base, base + 9_000, 0, "cudaLaunchKernel_v7000", launch, launch + 20,
                 f"kernel{i}", 7, start, start + 800, 800]
            )  # fmt: skip
    path = tmp_path / "steps.csv"
    path.write_text(out.getvalue())
    found = trace([str(path)])
    (report,) = found.ranks
    assert report.rank.device == "0"
    assert report.rank.kernel_seconds == pytest.approx(9 * 800e-9)
    assert [(step.label, step.length, step.compute_only) for step in report.steps.steps] == [
        (str(step), 9_000, 2_400) for step in (1, 2, 3)
    ]
    assert report.rank.launch_to_start_median_seconds == pytest.approx(1400e-9)


# --- Errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"ID","Process ID","Process Name","Host Name","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
         '"0","1","a","h","k","dram__bytes.sum","byte","1"\n', "counters"),
        ('"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,us,us,us,\n'
         '"GPU activities",100,1.0,1,1,1,1,"k"\n', "summary without the start"),
        ("", "empty"),
        ("hello\n", "not a profiler export"),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur"', "truncated"),
        ('{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", oops}]}', "not valid JSON"),
        ('{"traceEvents": [{"ph": "X", "cat": "zone", "name": "a", "ts": 1, "dur": 1}]}', "PyTorch"),
    ],
)  # fmt: skip
def test_files_without_a_run_are_refused_with_the_reason(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(RoofError, match=message) as error:
        trace([str(path)])
    assert str(path) in str(error.value)


def test_events_without_valid_times_are_ignored_with_a_warning(tmp_path: Path) -> None:
    broken = [event("kernel", "k", 5, 4, 0, 7), {"ph": "X", "cat": "kernel", "name": "k", "ts": "soon", "dur": 1}]
    found = analyzed(tmp_path, launched("a", 100, 200, 10), broken)
    assert intervals.length(found.ranks[0].rank.kernels) == 100_000
    assert "1 event without a name, a time or a valid duration: ignored" in found.warnings  # `soon` is no time
    assert "kernels and copies without a valid duration count as zero: 1" in found.warnings  # it is negative


def test_names_with_control_characters_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "a\tb", "ts": 1.5, "dur": 2, '
        '"pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}}]}'
    )
    assert trace([str(path)]).top[0].group == "a b"


def test_unknown_groupings_and_counts_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, launched("a", 100, 200, 10))
    with pytest.raises(WorkloadError, match="by: unknown value 'color'; known: group, lecture, name"):
        roofmodel.trace(path, by="color")  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="top=0 is not a positive number"):
        roofmodel.trace(path, top=0)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", "allreduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_half", "reducescatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)", "sendrecv"),
        ("void ncclAllGatherRingLLKernel_copy_i8", "allgather"),
    ],
)
def test_collectives_are_named_after_their_kernels(kernel: str, name: str) -> None:
    assert collective_name(kernel) == name


def test_bus_bandwidth_follows_the_definitions_of_nccl_tests() -> None:
    # doc/PERFORMANCE.md of nccl-tests: allreduce 2(n-1)/n, allgather and reducescatter (n-1)/n, broadcast 1
    assert math.isclose(bus_factor("allreduce", 8), 1.75)
    assert math.isclose(bus_factor("allgather", 8), 0.875)
    assert math.isclose(bus_factor("reducescatter", 4), 0.75)
    assert bus_factor("broadcast", 8) == 1


# --- Ranges of emit_nvtx ---------------------------------------------------------------------------------


def test_calls_of_one_operator_with_different_numbers_are_one_range_and_one_operator(tmp_path: Path) -> None:
    # the forms of torch.autograd.profiler.emit_nvtx(record_shapes=...)
    ranges = [
        "aten::mm, op_id = 7",
        "aten::mm, seq = 3, op_id = 8, sizes = [[2, 3], [3, 4]], input_op_ids = [[7, 0]]",
        "optimizer, fused",
    ]
    calls = [event("user_annotation", name, 100 * n, 100 * n + 50) for n, name in enumerate(ranges)]
    kernels = [launched("gemm", 100 * n + 20, 100 * n + 30, 100 * n + 10) for n in range(3)]
    by_range = analyzed(tmp_path, *calls, *kernels, by="nvtx")
    assert {(row.group, row.kernels) for row in by_range.groups} == {("aten::mm", 2), ("optimizer, fused", 1)}
    by_operator = analyzed(tmp_path, *calls, *kernels, by="operator")
    assert {(row.group, row.kernels) for row in by_operator.groups} == {("aten::mm", 2), ("(no operator)", 1)}


# --- Devices of a run ------------------------------------------------------------------------------------


def test_files_of_different_devices_are_probably_not_one_run(tmp_path: Path) -> None:
    kernels = launched("gemm", 20, 30, 10)
    files = [
        written(tmp_path, *kernels, name=f"{n}.json", deviceProperties=[{"id": 0, "name": name, "computeMajor": major,
                "computeMinor": 0}])
        for n, (name, major) in enumerate([("NVIDIA A100-SXM4-80GB", 8), ("NVIDIA H100 80GB HBM3", 9)])
    ]  # fmt: skip
    found = " ".join(map(str, trace(files, one_run=True).warnings))
    assert "different devices" in found
    assert "probably not one run" in found
    assert "0.json on NVIDIA A100-SXM4-80GB and 1.json on NVIDIA H100 80GB HBM3" in found
    assert "not one run" not in " ".join(map(str, trace(files[:1]).warnings))
