"""Sums of metrics, each with its arithmetic; a missing part gives null and a note."""

import io
import re

import pytest

from roofmodel.plot.ncu_command import collect
from roofmodel.profiles.ncu.metric_catalog import tensor_operations
from roofmodel.profiles.ncu.metric_names import canonical, capability, dimension, is_read
from roofmodel.profiles.ncu.metrics import interpret
from tests.profiles.ncu.samples import HEADER, read_file, row

OP = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
TENSOR = "sm__ops_path_tensor_{}.sum"
TIME = {"gpu__time_duration.sum": 1e-3}


def ops(**counts: float) -> dict[str, float]:
    return {OP.format(name): count for name, count in counts.items()}


def tensor(**counts: float) -> dict[str, float]:
    return {TENSOR.format(name): count for name, count in counts.items()}


def commanded_metrics(hw: str) -> list[str]:
    """The metrics in the command that `roof ncu-command` prints."""
    command = collect(["python"], hw).command
    return command[command.index("--metrics") + 1].split(",")


@pytest.mark.parametrize(("letter", "pipe"), [("d", "fp64"), ("f", "fp32")])
def test_flops_are_adds_and_multiplies_and_twice_the_multiply_adds(letter, pipe):
    values = ops(**{f"{letter}add": 3, f"{letter}mul": 5, f"{letter}fma": 7})
    assert getattr(interpret(values).flops, pipe) == 3 + 5 + 2 * 7


def test_half_precision_flops_are_between_one_and_two_lanes():
    flops = interpret(ops(hadd=3, hmul=5, hfma=7)).flops
    assert flops.fp16_legacy == 3 + 5 + 2 * 7
    assert flops.fp16 == 2 * 3 + 2 * 5 + 4 * 7


@pytest.mark.parametrize("absent", ["fadd", "fmul", "ffma"])
def test_an_incomplete_sum_is_null_and_a_note_names_the_missing_part(absent):
    counts = {"fadd": 1, "fmul": 2, "ffma": 3}
    del counts[absent]
    meaning = interpret(ops(**counts))
    assert meaning.flops.fp32 is None
    assert any(OP.format(absent) in note for note in meaning.notes)


def test_uncollected_is_null_and_zero_is_zero():
    meaning = interpret(ops(dadd=0, dmul=0, dfma=0))
    assert meaning.flops.fp64 == 0
    assert meaning.flops.fp32 is None
    assert meaning.bytes.dram is None


def test_the_prefix_of_2020_counts_the_same():
    values = {f"sm__sass_thread_inst_executed_op_f{op}_pred_on.sum": 1 for op in ("add", "mul", "fma")}
    assert interpret(values).flops.fp32 == 1 + 1 + 2


def test_packed_single_precision_of_blackwell_counts_two_lanes():
    scalar = ops(fadd=1, fmul=1, ffma=1)
    assert interpret(scalar | ops(fadd2=10, fmul2=20, ffma2=30), "10.0").flops.fp32 == 4 + 2 * (10 + 20) + 4 * 30
    without = interpret(scalar, "10.0")
    assert without.flops.fp32 == 4
    assert any("ffma2" in note for note in without.notes)
    assert interpret(scalar | ops(ffma2=30), "10.0").flops.fp32 is None  # fadd2 and fmul2 are missing
    assert not any("ffma2" in note for note in interpret(scalar, "12.0").notes)  # GB202 has no packed instructions


def test_tensor_operations_count_with_weight_one():
    # an n³ GEMM reports 2n³
    flops = interpret(tensor(src_tf32_dst_fp32=2 * 64**3), "8.0").flops
    assert flops.tensor_tf32 == 2 * 64**3
    assert flops.tensor_bf16 is None


def test_half_precision_tensor_operations_have_two_accumulators_on_ampere():
    both = tensor(src_fp16_dst_fp16=1000, src_fp16_dst_fp32=500)
    assert interpret(both, "8.6").flops.tensor_fp16 == 1500
    alone = interpret(tensor(src_fp16_dst_fp32=500), "8.0")
    assert alone.flops.tensor_fp16 is None
    assert any(TENSOR.format("src_fp16_dst_fp16") in note for note in alone.notes)


def test_total_and_sparsity_and_instructions_are_never_added_up():
    values = tensor(src_bf16_dst_fp32=100, src_bf16_dst_fp32_sparsity_on=40, src_bf16_dst_fp32_sparsity_off=60)
    values |= tensor(op_hmma_src_bf16_dst_fp32=70, op_hgmma_src_bf16_dst_fp32=30)
    assert interpret(values, "9.0").flops.tensor_bf16 == 100


def test_sparse_and_dense_counts_give_a_total_only_together():
    both = tensor(src_bf16_dst_fp32_sparsity_on=40, src_bf16_dst_fp32_sparsity_off=60)
    assert interpret(both, "8.0").flops.tensor_bf16 == 40 + 60
    one = interpret(tensor(src_bf16_dst_fp32_sparsity_off=60), "8.0")
    assert one.flops.tensor_bf16 is None
    assert any("sparsity_on" in note for note in one.notes)


def test_instruction_counts_give_a_total_only_if_all_of_the_device_were_collected():
    hopper = tensor(op_hmma_src_fp16=7, op_hgmma_src_fp16=30)
    assert interpret(hopper, "9.0").flops.tensor_fp16 == 37
    one = interpret(tensor(op_hgmma_src_fp16=30), "9.0")
    assert one.flops.tensor_fp16 is None
    assert any("op_hmma_src_fp16" in note for note in one.notes)
    assert interpret(tensor(op_hmma_src_tf32_dst_fp32=5), "12.0").flops.tensor_tf32 == 5  # the only one of 12.0
    nowhere = interpret(tensor(op_hmma_src_tf32_dst_fp32=5))
    assert nowhere.flops.tensor_tf32 is None
    assert any("device" in note for note in nowhere.notes)


def test_metric_names_identify_the_generation_without_other_evidence():
    assert interpret(tensor(src_fp16=9)).flops.tensor_fp16 == 9  # Hopper's name, without accumulator
    turing = tensor(src_fp16_bf16_tf32_dst_fp32=5, src_fp16_dst_fp16=4)
    assert interpret(turing).flops.tensor_fp16 == 9
    assert interpret(turing, "7.5").flops.tensor_fp16 == 9
    eight = tensor(src_fp8_dst_fp16=1, src_fp8_dst_fp32=2)
    assert interpret(eight, "12.0").flops.tensor_fp8 == interpret(eight).flops.tensor_fp8 == 3
    assert interpret(eight, "10.3").flops.tensor_fp8 == 3  # GB110 has separate counters, GB100 a common one
    blackwell = tensor(src_fp4_fp6_fp8_dst_fp16=1, src_fp4_fp6_fp8_dst_fp32=2)
    assert interpret(blackwell, "10.0").flops.tensor_fp8 == interpret(blackwell, "10.3").flops.tensor_fp8 == 3


def test_four_bit_operations_are_named_and_not_added_to_other_formats():
    assert any("int4" in note for note in interpret(tensor(src_int4=8, src_int8=1), "8.0").notes)
    assert not any("int4" in note for note in interpret(tensor(src_int4=0, src_int8=1), "8.0").notes)


def test_totals_named_as_in_another_generation_are_used():
    assert interpret(tensor(src_fp16=9), "8.0").flops.tensor_fp16 == 9
    both = tensor(src_fp16=9, src_fp16_dst_fp32=5)  # Hopper's name, and one of the A100's names
    assert interpret(both, "8.0").flops.tensor_fp16 is None
    assert interpret(both, "9.0").flops.tensor_fp16 == 9


def test_a_tensor_instruction_is_512_flops_on_a_v100_and_a_range_elsewhere():
    count = {"sm__inst_executed_pipe_tensor.sum": 1000}
    v100 = interpret(count, "7.0").flops
    assert (v100.tensor_fp16, v100.tensor_low, v100.tensor_high) == (512_000, None, None)
    for generation, low, high in ((None, 512, 8192), ("7.5", 512, 2048), ("8.0", 512, 8192), ("8.9", 512, 8192)):
        meaning = interpret(count, generation)
        assert (meaning.flops.tensor_low, meaning.flops.tensor_high) == (1000 * low, 1000 * high)
        assert meaning.flops.tensor_fp16 is None
        assert any("bounds" in note and "sm__ops_path_tensor_src_" in note for note in meaning.notes)


def test_hopper_tensor_instructions_have_bounds_only_if_their_count_is_zero():
    meaning = interpret({"sm__inst_executed_pipe_tensor.sum": 5}, "9.0")
    assert set(meaning.flops) == {None}
    assert any("sm__ops_path_tensor_src_fp16.sum" in note for note in meaning.notes)
    none = interpret({"sm__inst_executed_pipe_tensor.sum": 0}, "9.0").flops
    assert (none.tensor_low, none.tensor_high) == (0, 0)


def test_vector_work_of_the_tensor_pipe_is_not_tensor_work():
    values = {
        "sm__inst_executed_pipe_tensor_op_hmma.sum": 10,
        "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum": 4,
    }
    flops = interpret(values, "8.0").flops
    assert (flops.tensor_low, flops.tensor_high) == (6 * 1024, 6 * 4096)


def test_vector_flops_without_a_tensor_metric_say_so():
    notes = interpret(ops(fadd=1, fmul=1, ffma=1), "8.0").notes
    (missing,) = (note for note in notes if "no tensor metric was collected" in note)
    assert TENSOR.format("src_fp16_dst_fp16") in missing
    assert missing.endswith("and 3 more (roofmodel.ncu_command() prints them all)")
    assert TENSOR.format("src_tf32_dst_fp32") in commanded_metrics("a100")  # one of the A100's three names
    assert not any("tensor" in note for note in interpret(ops(fadd=1, fmul=1, ffma=1), "6.1").notes)  # no tensor cores


def test_an_uncollected_metric_is_null_with_a_note_that_names_it():
    alone = interpret({**ops(fadd=1, fmul=1, ffma=1), **tensor(src_tf32_dst_fp32=5), "dram__bytes.sum": 7}, "8.0")
    assert (alone.flops.fp64, alone.flops.fp16, alone.flops.tensor_fp16) == (None, None, None)
    assert (alone.bytes.l2, alone.bytes.l1) == (None, None)
    text = " ".join(alone.notes)
    for pipe in ("fp64, fp16 FLOPs unknown", "tensor_fp16, tensor_bf16, tensor_fp64, tensor_int8 FLOPs unknown"):
        assert pipe in text
    added = set(re.findall(r"\w+__\w+\.sum", text))
    assert added >= {OP.format("dfma"), OP.format("dadd"), "lts__t_bytes.sum", "l1tex__t_bytes.sum"}
    assert "roofmodel.ncu_command() prints them all" in text  # the message does not list the metrics of fp16
    assert OP.format("hfma") in commanded_metrics("a100")
    assert TENSOR.format("src_bf16_dst_fp32") in added
    # metrics that were collected are not requested again
    assert not added & {OP.format("ffma"), "dram__bytes.sum", TENSOR.format("src_tf32_dst_fp32")}


def test_notes_have_the_category_of_what_is_unknown():
    untimed = interpret(ops(fadd=1), "8.0").notes
    assert {note.partition(" ")[0]: note.category for note in untimed} == {
        "seconds": "times",
        "fp32": "counters",
        "tensor-core": "counters",
        "fp64,": "counters",
        "DRAM,": "counters",
    }
    timed = read_file(io.BytesIO((HEADER + row("dram__bytes.sum", "byte", "1")).encode()), "f").warnings
    assert {"times", "counters"} == {warning.category for warning in timed}


def test_rates_become_counts_through_clock_and_time():
    rates = {f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum.per_cycle_elapsed": 2.0 for op in ("fadd", "fmul")}
    rates["derived__smsp__sass_thread_inst_executed_op_ffma_pred_on_x2"] = 10.0  # 5 per cycle, times 2
    rates["smsp__cycles_elapsed.avg.per_second"] = 1e9
    rates["sm__ops_path_tensor_src_fp16.sum.per_cycle_elapsed"] = 100.0
    rates["sm__cycles_elapsed.avg.per_second"] = 2e9
    meaning = interpret(rates | TIME, "9.0")
    assert meaning.flops.fp32 == pytest.approx((2 + 2 + 2 * 5) * 1e9 * 1e-3)  # the clock of smsp
    assert meaning.flops.tensor_fp16 == pytest.approx(100 * 2e9 * 1e-3)  # the clock of sm
    assert any("rate × time" in note for note in meaning.notes)


def test_rates_without_a_time_give_no_counts():
    meaning = interpret({"dram__bytes.sum.per_second": 1e12})
    assert meaning.bytes.dram is None
    assert any("gpu__time_duration.sum" in note for note in meaning.notes)
    assert interpret({"dram__bytes.sum.per_second": 1e12} | TIME).bytes.dram == 1e9


def test_dram_bytes_need_reads_and_writes():
    assert interpret({"dram__bytes.sum": 96}).bytes.dram == 96
    for read, write in (("dram__bytes_read", "dram__bytes_write"), ("dram__bytes_op_read", "dram__bytes_op_write")):
        assert interpret({f"{read}.sum": 64, f"{write}.sum": 32}).bytes.dram == 64 + 32
        alone = interpret({f"{read}.sum": 64})
        assert alone.bytes.dram is None
        assert any(f"{write}.sum" in note for note in alone.notes)
    sectors = {"dram__sectors_read.sum": 2, "dram__sectors_write.sum": 1}
    assert interpret(sectors).bytes.dram == (2 + 1) * 32


def test_caches_are_counted_in_bytes_or_sectors_and_never_in_chart_cycles():
    assert interpret({"lts__t_bytes.sum": 64, "l1tex__t_sectors.sum": 3}).bytes[1:] == (64, 3 * 32)
    chart = interpret({"lts__lts2xbar_cycles_active.sum": 7, "l1tex__lsu_writeback_active_mem_lg.sum": 7})
    assert chart.bytes[1:] == (None, None)
    assert any("lts__t_bytes.sum" in note for note in chart.notes)
    assert is_read("l1tex__lsu_writeback_active_mem_lg.sum")


def test_time_is_the_duration_or_cycles_over_rate():
    assert interpret({"gpu__time_duration.sum": 2e-6, "gpu__time_active.avg": 3e-6}).numbers["seconds"] == 2e-6
    assert interpret({"gpu__time_active.avg": 3e-6}).numbers["seconds"] == 3e-6
    cycles = {"sm__cycles_elapsed.avg": 1300.0, "sm__cycles_elapsed.avg.per_second": 1.3e9}
    assert interpret(cycles).numbers["seconds"] == pytest.approx(1e-6)
    assert interpret(cycles).numbers["clock"] == 1.3e9
    assert any("gpu__time_duration.sum" in note for note in interpret({}).notes)


def test_labels_are_read_only_where_they_are_unambiguous():
    sol = "GPU Speed Of Light Throughput"
    assert canonical("Duration", "s", sol, "") == "gpu__time_duration.sum"
    assert canonical("Duration", "", sol, "") == "Duration"
    assert canonical("Memory Throughput", "%", sol, "") == "Memory Throughput"  # a share of the peak
    assert canonical("Memory Throughput", "byte/s", "Memory Workload Analysis", "") == "dram__bytes.sum.per_second"
    assert canonical("Duration (gpu__time_duration.sum)", "s", sol, "") == "gpu__time_duration.sum"
    assert canonical("dram__bytes.sum", "byte", sol, "") == "dram__bytes.sum"
    theoretical = "Theoretical Predicated-On FFMA Thread Instructions Executed"
    assert not is_read(canonical(theoretical, "", sol, ""))  # the device's peak, not the kernel's work
    achieved = canonical("Predicated-On FADD Thread Instructions Executed Per Cycle", "", sol, "")
    assert achieved == "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed"


@pytest.mark.parametrize(
    "name",
    [
        "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
        "derived__sm__sass_thread_inst_executed_op_ffma_pred_on_x2.sum.peak_sustained",
        "sm__ops_path_tensor_src_fp16_realtime.sum",
        "dram__bytes.sum.pct_of_peak_sustained_elapsed",
        "dram__bytes.sum.peak_sustained",
    ],
)
def test_peaks_and_shares_are_not_work(name):
    assert not is_read(name)


def test_every_requested_metric_is_read():
    for generation in ("7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"):
        names = tensor_operations(generation)
        assert names
        assert all(is_read(name) and dimension(name) == "" for name in names)
        flops = interpret(dict.fromkeys(names, 1.0), generation).flops
        assert sum(f or 0 for f in flops) == len(names)  # each counter in exactly one pipe


@pytest.mark.parametrize(
    ("text", "expected"), [("8.0", "8.0"), ("80", "8.0"), ("sm_90a", "9.0"), ("12.0", "12.0"), ("8,6", "8.6")]
)
def test_compute_capabilities_are_read_in_common_spellings(text, expected):
    assert capability(text) == expected


@pytest.mark.parametrize("text", ["", None, "None.None", "ampere", "8"])
def test_text_without_a_compute_capability_is_none(text):
    assert capability(text) is None
