"""Why a kernel is slow: each reason from counters worked out on paper."""

from __future__ import annotations

import pytest

from roofmodel import read_profile
from roofmodel.devices.device import Device
from roofmodel.profiles.kernel import Call, Evidence, Flops, Kernel, Profile, RecordedInputs, Traffic
from roofmodel.roofline.judged_kernels import not_judged, reasons_by_group, reasons_by_launch
from roofmodel.roofline.points import Reason
from roofmodel.roofline.reasons import AT_CEILING, NOTHING, REASONS, reasons
from tests import kernels as make
from tests.profiles.samples import MEASURED, needs_measured

H100 = Device.load("h100")
LIMIT = "launch__occupancy_limit_"
ELAPSED = ".avg.pct_of_peak_sustained_elapsed"


def stall(name: str) -> str:
    return f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio"


ON_LATENCY = {stall("long_scoreboard"): 10.0}


def kernel(name: str = "work", seconds: float = 1e-3, blocks: int = 132 * 8 * 10, **more: object) -> Kernel:
    """1 ms of blocks of 256 threads, 8 of which fill an SM: ten full waves at full occupancy; no unit is busy."""
    counters = {
        "launch__sm_count": 132, f"{LIMIT}registers": 8, f"{LIMIT}shared_mem": 32, f"{LIMIT}warps": 8,
        f"{LIMIT}blocks": 32, "sm__maximum_warps_per_active_cycle_pct": 1.0, "sm__cycles_active.avg": 1e6,
        "sm__cycles_elapsed.max": 1e6, f"gpu__dram_throughput{ELAPSED}": 0.1, f"lts__throughput{ELAPSED}": 0.1,
        f"l1tex__throughput{ELAPSED}": 0.1, f"sm__throughput{ELAPSED}": 0.1,
    }  # fmt: skip
    counters |= more.pop("counters", {})  # type: ignore[arg-type]
    values = {"occupancy": 1.0, "block": (256, 1, 1), "grid": (blocks, 1, 1), **more}
    return make.kernel("0", "a.csv", name, seconds=seconds, counters=counters, **values)  # type: ignore[arg-type]


def first(launch: Kernel) -> Reason:
    return reasons(launch, H100)[0]


def test_a_kernel_without_a_time_has_reasons_of_unknown_cost():
    (waiting,) = reasons(make.changed(kernel(), seconds=None), H100)
    assert (waiting.reason, waiting.seconds, waiting.affected_seconds) == ("latency", 0, 0)
    assert reasons(make.kernel("0", "a.csv", "work"), H100) == []


def test_a_busy_unit_has_nothing_to_win_if_the_counters_would_show_waste():
    coalesced = {
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 1e6, "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 0,
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 32,
    }  # fmt: skip
    busy = {f"lts__throughput{ELAPSED}": 0.9}
    assert first(kernel(counters=busy)).evidence == "L2 at 90% of the peak; then DRAM, 11%"
    at_l2 = first(kernel(counters=busy | coalesced))
    assert (at_l2.reason, at_l2.evidence) == ("l2_bound", f"{NOTHING}L2 at 90% of the peak; then DRAM, 11%")
    assert at_l2.seconds == pytest.approx(0.1e-3)  # 1 ms - 0.9 ms


@pytest.mark.parametrize(
    ("flops", "evidence"),
    [
        (33e9, f"{NOTHING}the SMs' pipes at 90% of the peak; then DRAM, 11%"),
        (6.7e9, "the SMs' pipes at 90% of the peak, FLOPs at 10%; then DRAM, 11%"),
    ],
)
def test_busy_pipes_with_few_flops_are_not_at_their_ceiling(flops: float, evidence: str):
    """A naive GEMM issues loads instead of FLOPs. The H100's peak in fp32 is 67 TFLOP/s: 33 of 67 GFLOP in 1 ms."""
    counters = {f"sm__throughput{ELAPSED}": 0.9, "smsp__thread_inst_executed_per_inst_executed.ratio": 32}
    launch = first(kernel(counters=counters, flops=Flops(fp32=flops)))
    assert (launch.reason, launch.evidence) == ("compute_bound", evidence)


def test_busy_pipes_without_known_flops_may_do_useful_work_or_not():
    """Neither a saving, nor nothing to win; a kernel without FLOPs, which were counted, is another case."""
    (unknown,) = reasons(kernel(counters={f"sm__throughput{ELAPSED}": 0.97}), H100)
    evidence = "SMs busy 97%; collect FLOPs to see whether the work is useful"
    assert unknown[:3] == ("compute_bound", 0.0, evidence)
    integers = first(kernel(counters={f"sm__throughput{ELAPSED}": 0.97}, flops=Flops(fp32=0)))
    assert (integers.reason, integers.seconds) == ("compute_bound", pytest.approx(0.03e-3))


def test_a_gemm_at_the_limit_of_a_cache_has_something_to_win():
    """Larger tiles load operands less often."""
    counters = {
        f"l1tex__throughput{ELAPSED}": 0.9, "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 1e6,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 0,
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 0,
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 32,
    }  # fmt: skip
    for name, prefix in (("matmul_kernel", ""), ("copy", NOTHING)):
        launch = first(kernel(name, counters=counters, flops=Flops(fp32=3e9)))
        assert (launch.reason, launch.evidence) == ("l1_bound", f"{prefix}L1 at 90% of the peak; then DRAM, 11%")


def test_a_collective_has_few_thread_blocks_on_purpose():
    ring = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", blocks=2)
    assert reasons(ring, H100) == []
    assert [each.reason for each in reasons(ring, H100, gap=1e-3)] == ["launch_gap"]


def test_flops_that_no_device_could_compute_in_the_time_are_not_at_a_ceiling():
    """Winograd's algorithm computes a convolution with fewer FLOPs than were counted: twice the fp32 peak."""
    convolution = kernel("winograd", flops=Flops(fp32=2 * 67e12 * 1e-3))
    assert first(convolution).evidence == "no unit is busy more than 11% of the time (DRAM)"


def test_half_a_wave_could_take_half_of_the_time():
    half = first(kernel(blocks=132 * 4, counters=ON_LATENCY))
    assert (half.reason, half.evidence) == ("few_blocks", "528 thread blocks of 1056 that fit at once: 0.5 waves")
    assert half.seconds == pytest.approx(0.5e-3)


def test_one_block_is_on_one_of_the_sms():
    one = first(kernel(blocks=1))
    assert one.evidence.startswith("one thread block on 132 SMs")
    assert one.seconds == pytest.approx(1e-3 - 0.1e-3 / 0.92)  # down to the traffic of DRAM, of which copies reach 92 %


def test_a_partial_last_wave_costs_what_is_missing_of_it():
    """2.5 waves take the time of 3; 0.5 / 3 of the time could be won."""
    busy = {f"sm__throughput{ELAPSED}": 2.5 / 3}
    tail = first(kernel(blocks=132 * 8 * 5 // 2, occupancy=2.5 / 3, counters=busy))
    assert (tail.reason, tail.evidence) == ("tail", "2640 thread blocks, 1056 at once: 3 waves, the last one of 528")
    assert tail.seconds == pytest.approx(1e-3 / 6)


@pytest.mark.parametrize(
    ("limiter", "reason"), [("registers", "registers"), ("shared_mem", "shared_memory"), ("blocks", "block_size")]
)
def test_the_limiter_of_the_occupancy_is_named(limiter: str, reason: str):
    """2 instead of 8 blocks on an SM: a quarter of the warps, so at most three quarters of the time.

    The next step is a third block, which saves a third of the time; of blocks, twice as many threads: half of it.
    """
    counters = {f"{LIMIT}{limiter}": 2, "sm__maximum_warps_per_active_cycle_pct": 0.25, **ON_LATENCY}
    launch = kernel(occupancy=0.25, blocks=132 * 2 * 10, counters=counters)
    limited = next(each for each in reasons(launch, H100) if each.reason == reason)
    assert limited.evidence.startswith("25.0% theoretical occupancy: 2 blocks per SM")
    assert limited.most_seconds == pytest.approx(0.75e-3)
    assert limited.seconds == pytest.approx(0.5e-3 if limiter == "blocks" else 1e-3 / 3)


def test_only_the_lowest_limit_is_a_reason_and_costs_at_most_up_to_the_next_one():
    counters = {f"{LIMIT}registers": 4, f"{LIMIT}shared_mem": 2, "sm__maximum_warps_per_active_cycle_pct": 0.25}
    found = reasons(kernel(occupancy=0.25, blocks=132 * 2 * 10, counters=counters | ON_LATENCY), H100)
    costs = {each.reason: each.most_seconds for each in found}
    assert "registers" not in costs
    assert costs["shared_memory"] == pytest.approx(0.5e-3)  # 2 -> 4 blocks


def test_the_next_step_states_the_registers_that_it_needs():
    """A third block of 8 warps: 24 warps in 4 parts, each with 16384 / 6 / 32 = 85 registers; a multiple of 8: 80."""
    counters = {f"{LIMIT}registers": 2, "sm__maximum_warps_per_active_cycle_pct": 0.25, **ON_LATENCY}
    found = reasons(kernel(occupancy=0.25, blocks=132 * 2 * 10, registers=128, counters=counters), H100)
    evidence = next(each.evidence for each in found if each.reason == "registers")
    assert "128 registers per thread; next: 3 blocks per SM with at most 80 registers per thread" in evidence


@pytest.mark.parametrize(
    ("waits", "share"),
    [({"lg_throttle": 9.0, "long_scoreboard": 1.0}, None), ({"long_scoreboard": 6.0, "mio_throttle": 4.0}, 0.6)],
)
def test_more_warps_save_only_what_their_latencies_cost(waits: dict[str, float], share: float | None):
    """Full queues are as full with more warps: two blocks instead of one save half of the share of the latencies."""
    counters = {f"{LIMIT}registers": 1, "sm__maximum_warps_per_active_cycle_pct": 0.125}
    counters |= {stall(name): value for name, value in waits.items()}
    found = {each.reason: each for each in reasons(kernel(occupancy=0.125, blocks=132 * 10, counters=counters), H100)}
    if share is None:
        assert "registers" not in found
    else:
        assert found["registers"].seconds == pytest.approx(1e-3 * share / 2)


def test_without_the_stalls_an_occupancy_promises_nothing_and_is_never_first():
    counters = {f"{LIMIT}registers": 2, "sm__maximum_warps_per_active_cycle_pct": 0.25}
    found = reasons(kernel(occupancy=0.25, blocks=132 * 2 * 10, counters=counters), H100)
    assert [(each.reason, each.seconds > 0) for each in found] == [("latency", True), ("registers", False)]


@pytest.mark.parametrize(("blocks", "limited"), [(64, False), (132, False), (133, True)])
def test_blocks_with_an_sm_each_are_not_limited_by_its_shared_memory(blocks: int, limited: bool):
    """One block fits into each of the 132 SMs: a second one would change nothing for 132 blocks or fewer."""
    counters = {f"{LIMIT}shared_mem": 1, "sm__maximum_warps_per_active_cycle_pct": 0.125}
    found = reasons(kernel(occupancy=0.125, blocks=blocks, counters=counters), H100)
    assert ("shared_memory" in {each.reason for each in found}) == limited


def recorded(name: str = "work", blocks: int = 132 * 2 * 10, **more: object) -> Kernel:
    """1 ms of blocks of 256 threads of 128 registers, as a timeline has them: 2 of them fit into an SM.

    128 x 32 = 4096 registers a warp: 4 warps in each of the 4 parts, 16 of 64 in all.
    """
    values = {"block": (256, 1, 1), "grid": (blocks, 1, 1), "registers": 128, "shared_bytes": 0, **more}
    return make.kernel("0", "t.json", name, seconds=1e-3, **values)  # type: ignore[arg-type]


def test_registers_of_a_timeline_limit_the_occupancy_at_a_cost_that_only_counters_tell():
    """2 of 8 blocks: three quarters of the time if warps wait; 0.4 ms of DRAM traffic is left."""
    busy = Traffic(dram=0.4e-3 * 0.92 * H100.bandwidth)
    (limited,) = reasons(recorded(bytes=busy), H100)
    assert limited.reason == "registers"
    assert limited.evidence.startswith(
        "25.0% theoretical occupancy: 2 blocks per SM, 128 registers per thread; next: 3"
    )
    assert (limited.seconds, limited.most_seconds) == (0, pytest.approx(0.6e-3))


def test_the_cost_of_an_occupancy_is_unknown_if_nothing_tells_whether_warps_wait():
    (limited,) = reasons(recorded(), H100)
    assert (limited.reason, limited.seconds) == ("registers", 0)
    (shared,) = reasons(recorded(registers=32, shared_bytes=100 << 10), H100)
    assert (shared.reason, shared.seconds) == ("shared_memory", 0)
    text = (
        "25.0% theoretical occupancy: 2 blocks per SM, 100 KiB of shared memory per block; next: 3 blocks per SM with"
    )
    assert shared.evidence.startswith(f"{text} at most 75 KiB")  # 228 KiB / 3, less 1 KiB of the driver


def test_few_warps_of_a_gemm_and_few_blocks_of_a_collective_are_no_reasons_without_counters():
    assert reasons(recorded("ampere_gemm_128x64_tn"), H100) == []
    assert reasons(recorded("ncclDevKernel_AllReduce_Sum_f16_RING_LL", blocks=24), H100) == []


def test_the_waves_of_a_timeline_follow_from_the_blocks_that_fit():
    """264 blocks at once: 660 blocks are 2.5 waves that take the time of 3."""
    (tail,) = reasons(recorded("ampere_gemm_128x64_tn", blocks=660), H100)
    assert (tail.reason, tail.evidence) == ("tail", "660 thread blocks, 264 at once: 3 waves, the last one of 132")
    assert tail.seconds == pytest.approx(1e-3 / 6)
    unknown = {each.reason: each.seconds for each in reasons(recorded(blocks=300), H100)}
    assert unknown == {"tail": 0, "registers": 0}  # blocks of the last wave may run faster
    late = {each.reason for each in reasons(recorded(blocks=264 * 20 + 1), H100)}
    assert late == {"registers"}  # the last wave is at most 1/21 of the time


def test_without_known_work_the_cost_of_idle_sms_is_unknown():
    """The kernel may be an empty one, whose time is that of a launch."""
    few = next(each for each in reasons(recorded(blocks=66), H100) if each.reason == "few_blocks")
    assert (few.seconds, few.evidence) == (0, "66 thread blocks on 132 SMs: 0.25 waves")


def test_a_timeline_needs_counters_only_for_what_its_launches_do_not_state():
    titles = not_judged(Profile("torch", ("t.json",), make.table([recorded()])), H100)
    assert "bank conflicts" in titles
    assert not {"a partial last wave", "occupancy limited by registers"} & {*titles}


def test_work_that_shapes_state_bounds_the_costs_of_both_lists():
    """An addition of 2²⁶ numbers: 3 x 256 MiB over DRAM take 0.24 of 0.3 ms on an H100."""
    size = (1 << 26,)
    inputs = RecordedInputs((size, size, ()), ("float", "float", "Scalar"), ("", "", "1"))
    call = Call(1, "aten::add", (size, size, ()), inputs)
    launch = make.changed(
        recorded("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >"),
        call=call, seconds=0.3e-3,
    )  # fmt: skip
    profile = Profile("torch", ("t.json",), make.table([launch]))
    (listed,) = reasons_by_group(profile, H100).values()
    assert listed == reasons_by_launch(profile, H100)(launch)
    assert listed[0].reason == "dram_bound"


def test_uncoalesced_loads_cost_the_bytes_that_nobody_asked_for():
    """1 M sectors of which 4 bytes are used: DRAM could move an eighth, if it is what limits the kernel."""
    counters = {
        f"gpu__dram_throughput{ELAPSED}": 0.92, "dram__bytes_read.sum": 32e6,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 1e6, "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 0,
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 4,
    }  # fmt: skip
    strided = first(kernel(counters=counters, bytes=Traffic(l2=32e6)))
    assert (strided.reason, strided.evidence) == ("uncoalesced", "loads use 4 of the 32 bytes of a sector")
    assert strided.seconds == pytest.approx(0.875e-3)


@needs_measured
def test_a_transposition_on_another_card_is_uncoalesced():
    """32 sectors for each request of a store; the tiled kernel of the same files takes 86 instead of 163 us."""
    path = MEASURED / "ncu/rtx5070_metrics_long_bom/transpose_naive.csv"
    naive = reasons(read_profile(path, hw="rtx5070").kernels[0], Device.load("rtx5070"))
    assert (naive[0].reason, naive[0].evidence) == ("uncoalesced", "stores use 4 of the 32 bytes of a sector")
    assert 77e-6 < naive[0].seconds < 2 * 77e-6


def test_a_bank_conflict_costs_a_cycle_of_one_l1():
    """0.6 of 1 M cycles on each of 132 SMs."""
    conflicts = {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 132 * 0.6e6}
    found = first(kernel(counters={f"l1tex__throughput{ELAPSED}": 1.0, **conflicts}))
    assert found.reason == "bank_conflicts"
    assert found.seconds == pytest.approx(0.6e-3)
    none = {"derived__memory_l1_wavefronts_shared_excessive": 0.0, **conflicts}
    assert first(kernel(counters={f"l1tex__throughput{ELAPSED}": 1.0, **none})).reason == "l1_bound"


def test_a_gemm_without_tensor_cores_could_take_the_time_of_its_flops_on_them():
    flops = 0.8 * 67e12 * 1e-3  # 80 % of the fp32 peak
    sgemm = first(kernel("sgemm", flops=Flops(fp32=flops, tensor_tf32=0)))
    assert sgemm.reason == "no_tensor_cores"
    assert sgemm.seconds == pytest.approx(1e-3 - 1e-3 * 0.1 / 0.8, rel=0.2)  # waiting falls as the busiest unit does
    assert not any(each.reason == "no_tensor_cores" for each in reasons(kernel("sum", flops=Flops(fp32=flops)), H100))


def test_fp32_has_the_tensor_cores_that_a_card_has():
    """A GeForce has 82.6 TFLOP/s in fp32 and in tf32, a T4 has no tf32: fp16, and casts of the operands."""
    for device, fp32 in (("rtx4090", 82.6e12), ("t4", 8.1e12), ("v100", 15.7e12)):
        sgemm = kernel("sgemm", flops=Flops(fp32=0.8 * fp32 * 1e-3), bytes=Traffic(dram=4e6))
        named = next(each for each in reasons(sgemm, Device.load(device)) if each.reason == "no_tensor_cores")
        assert "tensor_fp16" in named.evidence
        assert "for casts to fp16" in named.evidence
    assert "tensor_tf32" in first(kernel("sgemm", flops=Flops(fp32=0.8 * 67e9))).evidence


def test_a_library_gemm_of_fp32_keeps_its_share_of_the_peak():
    """512 x 784 x 2048 on a T4 in 678 us, measured: 30 % of 8.1 TFLOP/s. 65 TFLOP/s are 8 times as many: 84.5 us.

    Casts read 4 and write 2 bytes of (512 + 2048) x 784 elements, at 92 % of 320 GB/s: 41 us.
    """
    shapes = ((2048,), (512, 784), (784, 2048), (), ())
    counted = {"flops": Flops(fp32=2 * 512 * 784 * 2048, tensor_fp16=0), "bytes": Traffic(dram=4 * (512 + 2048) * 784)}
    launch = make.kernel(
        "0", "t.json", "volta_sgemm_128x64_tn", seconds=678.2e-6, call=Call(1, "aten::addmm", shapes),
        grid=(16, 8, 3), block=(128, 1, 1), registers=122, shared_bytes=12800, **counted,
    )  # fmt: skip
    found = reasons(launch, Device.load("t4"))[0]
    assert found.reason == "no_tensor_cores"
    assert "84.5 µs at the same share of the peak of tensor_fp16, and 40.9 µs for casts" in found.evidence


def test_an_fp32_gemm_is_known_by_its_name_without_its_flops():
    named = {name: reasons(recorded(name), H100) for name in ("ampere_sgemm_128x64_tn", "volta_scudnn_winograd_128")}
    assert all(found[0][:2] == ("no_tensor_cores", 0) for found in named.values())
    assert reasons(recorded("ampere_s1688gemm_128x64_tn"), H100) == []


def test_a_naive_gemm_has_another_limit_than_its_flops():
    naive = reasons(kernel("matmul_naive", flops=Flops(fp32=0.1 * 67e9, tensor_tf32=0)), H100)
    assert "no_tensor_cores" not in {each.reason for each in naive}


@pytest.mark.parametrize("device", ["l4", "b200"])
def test_a_gemm_in_fp16_has_no_reason_on_a_device_whose_vector_peak_in_fp16_is_unknown(device: str):
    hgemm = kernel("hgemm", flops=Flops(fp16=1e9, tensor_fp16=0))
    assert "no_tensor_cores" not in {each.reason for each in reasons(hgemm, Device.load(device))}


def test_fp32_flops_of_an_amd_gpu_may_be_of_its_matrix_cores():
    sgemm = kernel("sgemm", flops=Flops(fp32=0.8 * 163e12 * 1e-3, tensor_tf32=0))
    assert "no_tensor_cores" not in {each.reason for each in reasons(sgemm, Device.load("mi300x"))}


def test_two_elements_of_fp64_are_aligned():
    name, busy = "cutlass_80_tensorop_{}gemm_128x128_32x3_nn_align2", {f"l1tex__throughput{ELAPSED}": 0.8}
    double = reasons(kernel(name.format("d884"), flops=Flops(tensor_fp64=1e10), counters=busy), H100)
    assert "unaligned" not in {each.reason for each in double}
    half = reasons(kernel(name.format("h16816"), flops=Flops(tensor_fp16=1e10), counters=busy), H100)
    assert "unaligned" in {each.reason for each in half}


ALIGN1 = "cutlass_75_tensorop_f16_s1688gemm_f16_256x128_tn_align1"


def test_an_unaligned_gemm_of_a_trace_could_take_the_time_of_its_flops_on_tensor_cores():
    """98.9 of the 989 TFLOP/s of an H100: a tenth of 1 ms."""
    launch = make.kernel("0", "t.json", ALIGN1, seconds=1e-3, flops=Flops(tensor_fp16=989.4e12 * 0.1e-3))
    (unaligned,) = reasons(launch, H100)
    assert (unaligned.reason, unaligned.seconds) == ("unaligned", pytest.approx(0.9e-3, rel=1e-3))
    assert reasons(make.changed(launch, name=ALIGN1.replace("align1", "align8")), H100) == []


def test_without_flops_an_aligned_gemm_takes_the_time_in_which_the_sms_are_busy():
    """L1 is busy 0.9 ms and the SMs 0.3 ms: a third of the time. The fp32 kernels of cutlass always have align1."""
    counters = {f"l1tex__throughput{ELAPSED}": 0.9, f"sm__throughput{ELAPSED}": 0.3}
    unaligned = first(kernel(ALIGN1, counters=counters))
    assert (unaligned.reason, unaligned.seconds) == ("unaligned", pytest.approx(2e-3 / 3))
    simt = reasons(kernel("cutlass_80_simt_sgemm_128x128_8x4_nn_align1", counters=counters), H100)
    assert "unaligned" not in {each.reason for each in simt}
    (unknown,) = reasons(make.kernel("0", "t.sqlite", ALIGN1, seconds=1e-3), H100)
    assert (unknown.reason, unknown.seconds) == ("unaligned", 0)


def test_diverging_threads_cost_their_share_of_the_instructions():
    ratio = {"smsp__thread_inst_executed_per_inst_executed.ratio": 8, f"sm__throughput{ELAPSED}": 1.0}
    diverging = first(kernel(counters=ratio))
    assert (diverging.reason, diverging.evidence) == (
        "divergence",
        "8 of 32 threads of a warp execute an instruction on average",
    )
    assert diverging.seconds == pytest.approx(0.75e-3)


def test_a_low_clock_is_no_saving_and_never_first():
    """ncu locks the clock by default: production runs at another one."""
    busy = reasons(kernel(clock=0.99e9, counters={f"sm__throughput{ELAPSED}": 0.9}), H100)
    assert [each.reason for each in busy] == ["compute_bound", "low_clock"]
    assert busy[1].seconds == 0
    assert reasons(make.kernel("0", "a.csv", "work", seconds=1e-3, clock=0.99e9), H100) == []


def test_the_lsu_pipe_is_a_unit_of_l1():
    """The utilization of the SMs has that of the LSU pipe: both are equal, and no other pipe is as busy."""
    equal = {f"sm__throughput{ELAPSED}": 0.975, f"l1tex__throughput{ELAPSED}": 0.974}
    bound = first(kernel(clock=1.39e9, counters=equal))
    assert (bound.reason, bound.evidence.split(";")[0]) == ("l1_bound", "L1 (LSU) at 97% of the peak")
    tensor = equal | {f"sm__pipe_tensor_cycles_active{ELAPSED}": 0.974}
    assert first(kernel(counters=tensor, flops=Flops(fp32=0))).reason == "compute_bound"


def test_busy_pipes_have_their_names():
    counters = {
        f"sm__throughput{ELAPSED}": 0.803, f"sm__pipe_alu_cycles_active{ELAPSED}": 0.803,
        f"sm__inst_executed_pipe_alu{ELAPSED}": 0.4,
        f"sm__pipe_fp64_cycles_active{ELAPSED}": 0.756, f"sm__inst_executed_pipe_xu{ELAPSED}": 0.01,
    }  # fmt: skip
    assert first(kernel(counters=counters)).evidence.startswith("ALU at 80% of the peak, FP64 at 76%; then")


def test_units_that_a_removal_changed_are_worded_as_a_condition():
    """8 of 32 threads: without divergence, the pipes would be busy a quarter of the time."""
    counters = {"smsp__thread_inst_executed_per_inst_executed.ratio": 8, f"sm__throughput{ELAPSED}": 0.52}
    waiting = next(each for each in reasons(kernel(counters=counters), H100) if each.reason == "latency")
    assert waiting.evidence.startswith("without divergence, no unit would be busy more than 13% of the time")


def test_bytes_and_flops_exclude_dram_and_the_pipes_without_any_utilization():
    """0.5 % of 3.35 TB/s and 0.6 % of 67 TFLOP/s in 1 ms."""
    launch = make.kernel(
        "0", "a.csv", "basic", seconds=1e-3, bytes=Traffic(dram=16.75e6), flops=Flops(fp32=402e6),
        counters={"gpu__time_duration.sum": 1e-3},
    )  # fmt: skip
    (neither,) = reasons(launch, H100)
    assert (neither.reason, neither.seconds) == ("latency", 0)
    assert neither.evidence.startswith("DRAM at 0.5% and fp32 at 0.6% of the peak do not limit it")


def test_a_counter_that_is_no_utilization_does_not_tell_a_saving():
    """122 registers: 4 blocks per SM. Whether warps wait is in none of these counters."""
    counters = {f"{LIMIT}registers": 4, f"{LIMIT}warps": 12, f"{LIMIT}blocks": 16, "smsp__inst_executed.sum": 1e6}
    launch = make.kernel("0", "a.csv", "work", seconds=150e-6, grid=(3000, 1, 1), block=(128, 1, 1), counters=counters)
    assert [each.seconds for each in reasons(launch, Device.load("a10g"))] == [0]


def test_one_thread_is_said_in_these_words_even_on_an_unknown_device():
    """The mean SM is active 1 / 38 of the time: one of 38."""
    counters = {
        "sm__cycles_active.avg": 1e6 / 38, "sm__cycles_elapsed.max": 1e6, f"gpu__dram_throughput{ELAPSED}": 0.0171,
        f"lts__throughput{ELAPSED}": 0.009, "l1tex__throughput.avg.pct_of_peak_sustained_active": 0.0078,
    }  # fmt: skip
    launch = make.kernel("0", "a.txt", "add", seconds=0.575, grid=(1, 1, 1), block=(1, 1, 1), counters=counters)
    found = reasons(launch, None)[0]
    assert (found.reason, found.evidence) == ("few_blocks", "one thread block of one thread on 38 SMs")


def test_partial_warps_are_named():
    launch = kernel(block=(8, 1, 1), counters={f"sm__throughput{ELAPSED}": 0.8})
    found = first(launch)
    assert (found.reason, found.evidence) == ("partial_warps", "blocks of 8 threads: 25% of the threads of their warps")
    assert found.seconds == pytest.approx(0.75e-3)  # a quarter of the warps


def test_reasons_of_a_timeline_are_in_the_order_of_the_time_that_they_affect():
    """One launch of small blocks at 13 % of the time, then sixty of few blocks at 87 %."""
    small = recorded(block=(32, 1, 1), registers=32, blocks=132 * 64)
    few = recorded(block=(32, 1, 1), registers=32, blocks=7)
    launches = [make.changed(small, seconds=0.6e-3), *(make.changed(few, seconds=67e-6) for _ in range(60))]
    profile = Profile("nsys", ("t.sqlite",), make.table(launches))
    found = reasons_by_group(profile, H100)["work"]
    assert found[0].reason == "few_blocks"
    assert found[0].evidence.endswith("; 60 of 61 launches, 87% of the time")  # 60 x 67 us of 4.62 ms


def test_without_a_busy_unit_warps_wait():
    stalls = {f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio": value
              for name, value in (("long_scoreboard", 9.0), ("wait", 1.0))}  # fmt: skip
    waiting = first(kernel(counters=stalls))
    assert waiting.reason == "latency"
    assert "global or local memory (90% of their stalls)" in waiting.evidence


def test_costs_never_add_up_to_more_than_the_distance_from_the_busiest_unit():
    counters = {
        f"{LIMIT}registers": 2, "sm__maximum_warps_per_active_cycle_pct": 0.25, "sm__cycles_active.avg": 0.5e6,
        f"l1tex__throughput{ELAPSED}": 0.4, "smsp__thread_inst_executed_per_inst_executed.ratio": 8,
    }  # fmt: skip
    found = reasons(kernel(blocks=132, occupancy=0.1, clock=1.5e9, counters=counters), H100)
    assert len(found) >= 3
    assert sum(reason.seconds for reason in found) <= 1e-3 - 1e-6


def test_a_summary_multiplies_the_costs_of_one_launch():
    single, many = kernel(blocks=132 * 4), kernel(blocks=132 * 4, seconds=5e-3, invocations=5)
    assert first(many).seconds == pytest.approx(5 * first(single).seconds)


def test_idle_time_before_a_kernel_of_a_timeline_is_a_reason():
    """Kernels of 10 us at 0, 30 and 60 us: 20 us idle before the second and the third."""
    launches = make.columns(
        {"id": i, "file": "t.json", "name": "k", "device": "0", "start": i * 30e-6, "seconds": 10e-6} for i in range(3)
    )
    profile = Profile("torch", ("t.json",), launches)
    gap = reasons_by_group(profile, None)["k"][0]
    assert (gap.reason, gap.seconds) == ("launch_gap", pytest.approx(40e-6))
    assert gap.evidence == "idle for 13.3 µs before each launch, on average"  # 40 us / 3
    judge = reasons_by_launch(profile, None)
    assert [[each.reason for each in judge(launch)] for launch in launches] == [[], ["launch_gap"], ["launch_gap"]]


def test_what_the_counters_cannot_tell_is_listed():
    titles = not_judged(Profile("ncu", ("a.csv",), make.table([kernel()])), H100)
    assert "bank conflicts" in titles
    assert "a partial last wave" not in titles


@pytest.mark.parametrize(
    ("tool", "evidence", "device"),
    [("rocprof", (), None), ("torch", (), "mi300x"), ("torch", (Evidence("AMD Instinct MI250", amd=True),), None)],
)
def test_counters_of_nvidia_are_not_missed_on_an_amd_gpu(tool: str, evidence: tuple[Evidence, ...], device: str | None):
    launches = make.table([make.kernel("0", "a.csv", "k", seconds=1e-3)])
    assert not_judged(Profile(tool, ("a.csv",), launches, evidence), device and Device.load(device)) == []


def test_every_reason_is_declared_once():
    names = [rule.name for rule in REASONS]
    assert len(names) == len(set(names))
    assert 0 < AT_CEILING < 1
