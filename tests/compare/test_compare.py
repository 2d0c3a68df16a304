"""Comparisons of a profile with an estimate: sums, values derived by hand, real traces, errors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.compare.answer import finding_texts
from roofmodel.compare.compare import compare
from roofmodel.compare.comparison import ComparisonRow, ModelComparison
from roofmodel.compare.diagnosis import reasons
from roofmodel.compare.matching import Matching
from roofmodel.compare.passes import ChosenPasses
from roofmodel.compare.sequence import in_order
from roofmodel.compare.tally import Tally
from roofmodel.errors import ProfileError, WorkloadError
from tests.compare import traces
from tests.compare.traces import Launch
from tests.profiles.samples import measured as measured_file
from tests.profiles.samples import needs_measured


def comparison_of(
    folder: Path, launches: list[Launch], model: str = "gpt2", hw: str = "a100", **options: Any
) -> ModelComparison:
    """A comparison with a trace of these launches."""
    workload = {name: options.pop(name) for name in [*options] if name not in ("steps", "device", "family")}
    file = traces.write(folder / "trace.json", launches)
    return compare(model, [file], hw, workload={"phase": "prefill", "batch": 1, **workload}, **options)


def row(found: ModelComparison, *operators: str) -> ComparisonRow:
    return next(each for each in found.rows if each.operators == operators)


# --- Times and counts ----------------------------------------------------------------------------------------


def test_a_row_is_the_mean_of_its_kernels_over_the_passes(tmp_path: Path) -> None:
    launches = [*traces.gpt2_eager(12, 40), *traces.gpt2_eager(12, 50)]
    found = comparison_of(tmp_path, launches)
    up = row(found, "mlp.up")
    assert (up.occurrences, up.kernels) == (12, 12)
    assert up.measured_seconds == pytest.approx(12 * (40 + 50) / 2 * 1e-6)
    assert up.cost.matmul_flops == 12 * 2 * 1024 * 768 * 3072  # 12 layers, 2 T D F
    assert found.passes[0].used == 2


def test_matched_and_unmatched_times_add_up_to_the_pass(tmp_path: Path) -> None:
    launches = [*traces.gpt2_eager(12), Launch(traces.ARGMAX, 25, "")]
    found = comparison_of(tmp_path, launches)
    (passes,) = found.passes
    matched = sum(each.measured_seconds or 0 for each in found.rows)
    unmatched = sum(each.seconds or 0 for each in found.unmatched_kernels)
    assert matched + unmatched == pytest.approx(sum(launch.microseconds for launch in launches) * 1e-6)
    assert passes.seconds == pytest.approx(matched + unmatched)
    assert [each.name for each in found.unmatched_kernels] == ["reduce_kernel (ArgMax)"]
    assert not found.unmatched_operators
    bound = found.estimate.phases[0].bound_seconds
    assert sum(each.bound_seconds for each in found.rows) == pytest.approx(bound)


def test_idle_time_is_the_time_without_a_running_kernel(tmp_path: Path) -> None:
    launches = list(traces.gpt2_eager(12))
    found = comparison_of(tmp_path, launches)  # with a gap of 1 µs after each kernel
    (passes,) = found.passes
    assert passes.idle_seconds == pytest.approx((len(launches) - 1) * 1e-6, rel=1e-3)
    assert passes.span_seconds == pytest.approx((passes.seconds or 0) + (passes.idle_seconds or 0))


def test_kernels_without_an_operator_are_not_idle_time(tmp_path: Path) -> None:
    launches = list(traces.gpt2_eager(12))
    up = [place for place, launch in enumerate(launches) if launch.truth == "mlp.up"]
    for place in reversed(up):
        launches.insert(place + 1, Launch(traces.ARGMAX, 200, ""))
    found = comparison_of(tmp_path, launches)
    assert sum(each.seconds or 0 for each in found.unmatched_kernels) == pytest.approx(12 * 200e-6)
    (passes,) = found.passes
    assert passes.idle_seconds == pytest.approx((len(launches) - 1) * 1e-6, rel=1e-3)  # the gaps after each kernel


def test_the_bound_of_unmatched_operators_is_that_of_each_occurrence() -> None:
    """Layers with a window of 4096 and without one have different bounds for 8192 tokens."""
    estimate = roofmodel.estimate("gemma-2-9b", "a100", phase="prefill", seq=8192).estimate
    nothing = Matching(units=(), unmatched=(), phases=(0,))
    chosen = ChosenPasses({0: (0,)}, {0: 1}, (), ())
    tally = Tally(nothing, [in_order(estimate.phases[0])], ["prefill"], chosen, estimate.device)
    found = {each.operator: each for each in tally.unmatched_operators()}
    attention = [placed for placed in estimate.phases[0].placed if placed.operator.name == "attention.flash"]
    first, second = (placed.placement.bound_seconds for placed in attention)
    assert first < 0.9 * second
    assert found["attention.flash"].occurrences == 42
    assert found["attention.flash"].bound_seconds == pytest.approx(21 * (first + second))
    assert sum(each.bound_seconds for each in found.values()) == pytest.approx(estimate.phases[0].bound_seconds)
    expected = sum(each.expected_seconds or 0 for each in found.values())
    assert expected == pytest.approx(
        sum(p.operator.count * p.expected.value for p in estimate.phases[0].placed if p.expected)
    )


def test_a_fused_kernel_has_the_cost_of_all_its_operators(tmp_path: Path) -> None:
    found = comparison_of(tmp_path, list(traces.compiled_gpt2(12, 40)))
    fused = row(found, "residual", "norm")
    residuals = [p for p in found.estimate.phases[0].placed if p.operator.group == "residual"]
    norms = [p for p in found.estimate.phases[0].placed if p.operator.group == "norm"]
    first = next(
        p for p in norms if p.operator.name == "norm.attention"
    )  # the norm of layer 0 is fused with the embedding
    counted = sum(p.cost.bytes for p in (*residuals, *norms)) - first.placement.cost.bytes
    assert fused.cost.bytes == counted - 24 * 1024 * 768 * 2  # norms have the sums of residual adds in registers
    assert fused.kernels == 24


@pytest.mark.parametrize("name", ["fused_add_rms_norm_kernel", "rms_norm_kernel"])
def test_an_operator_that_the_engine_computes_in_another_kernel_is_compared_as_that_kernel(
    name: str, tmp_path: Path
) -> None:
    """vLLM adds the residual in the norm. A norm whose name does not say so has the whole expected time as well."""
    launches = [
        launch._replace(name=launch.name.replace("fused_add_rms_norm_kernel", name))
        for launch in traces.vllm_decode(16, 20)
    ]
    found = comparison_of(tmp_path, launches, "llama-3.2-1b", "h100", phase="decode", dtype="bf16")
    assert not [each for each in found.unmatched_operators if "residual" in each.operator]
    light = [p for p in found.estimate.phases[0].placed if p.operator.group in ("norm", "residual")]
    rows = [each for each in found.rows if "norm" in each.operators]
    expected = sum(p.operator.count * p.expected.value for p in light if p.expected)
    assert sum(each.expected_seconds or 0 for each in rows) == pytest.approx(expected)
    assert sum(each.cost.vector_flops for each in rows) == sum(p.cost.vector_flops for p in light)


@pytest.mark.parametrize(
    ("launches", "model", "options"),
    [
        (traces.vllm_decode(16, 20), "llama-3.2-1b", {"phase": "decode", "batch": 64}),
        (traces.vllm_decode(16, 400), "llama-3.2-1b", {"phase": "prefill", "seq": 8192}),
        (traces.mixtral_vllm(32, 900), "mixtral-8x7b-v0.1", {"phase": "prefill", "seq": 8192}),
        (traces.compiled_gpt2(12, 40), "gpt2", {"phase": "prefill"}),
        (traces.gpt2_eager(12, 400), "gpt2", {"phase": "prefill", "batch": 64, "engine": "vllm"}),
    ],
)
def test_no_row_is_expected_below_its_bound(
    launches: Iterable[Launch], model: str, options: dict[str, Any], tmp_path: Path
) -> None:
    found = comparison_of(tmp_path, [*launches], model, "h100", **options)
    assert found.rows
    for each in found.rows:
        assert (each.expected_seconds or 0) >= each.bound_seconds * (1 - 1e-9), each.operators


def test_a_warm_up_pass_is_left_out_with_a_note(tmp_path: Path) -> None:
    found = comparison_of(tmp_path, [*traces.gpt2_eager(12, 400), *(3 * list(traces.gpt2_eager(12, 40)))])
    assert (found.passes[0].detected, found.passes[0].used) == (4, 3)
    assert row(found, "mlp.up").measured_seconds == pytest.approx(12 * 40e-6)
    assert any("1 of 4 prefill passes are left out" in str(note) for note in found.notes)


def test_given_steps_merge_the_detected_passes(tmp_path: Path) -> None:
    found = comparison_of(tmp_path, 4 * list(traces.gpt2_eager(12, 40)), steps=2)
    assert row(found, "mlp.up").measured_seconds == pytest.approx(2 * 12 * 40e-6)
    assert row(found, "mlp.up").cost.matmul_flops == 2 * 12 * 2 * 1024 * 768 * 3072  # the matches do not change
    assert any("steps=2: the kernels form 4 prefill passes; 2 count as one" in str(note) for note in found.notes)


@pytest.mark.parametrize("steps", [3, 1000000])
def test_steps_that_do_not_divide_the_detected_passes_are_refused(steps: int, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=f"steps={steps}: the kernels form 2 prefill passes, .*; use steps=2"):
        comparison_of(tmp_path, 2 * list(traces.gpt2_eager(12, 40)), steps=steps)


def test_a_partial_pass_does_not_count_as_a_given_step(tmp_path: Path) -> None:
    launches = list(traces.gpt2_eager(12, 40))
    found = comparison_of(tmp_path, [*launches, *launches, *launches[: len(launches) // 2]], steps=2)
    assert row(found, "mlp.up").measured_seconds == pytest.approx(12 * 40e-6)


def test_prefill_and_decode_of_one_file_have_separate_rows(tmp_path: Path) -> None:
    prefill = traces.llama_eager(16, traces.GEMM, [traces.FLASH], 120)
    decode = list(traces.llama_eager(16, traces.GEMV, [traces.FLASH_SPLIT, traces.FLASH_COMBINE], 14))
    found = comparison_of(tmp_path, [*prefill, *(4 * decode)], "meta-llama/Llama-3.2-1B", phase=None)
    assert [(each.phase, each.used) for each in found.passes] == [("prefill", 1), ("decode", 4)]
    down = {each.phase: each.measured_seconds for each in found.rows if each.operators == ("mlp.down",)}
    assert down == {"prefill": pytest.approx(16 * 120e-6), "decode": pytest.approx(16 * 14e-6)}


@pytest.mark.parametrize(
    ("launches", "phase"),
    [
        (traces.llama_eager(16, traces.GEMM, [traces.FLASH], 120), "prefill"),
        (traces.llama_eager(16, traces.GEMV, [traces.FLASH_SPLIT, traces.FLASH_COMBINE], 14), "decode"),
    ],
)  # up: 2048 × 8192 weights of 2 bytes take 17 µs at 2 TB/s; 1024 tokens × 34 MFLOP take 110 µs at 312 TFLOP/s
def test_a_given_phase_that_contradicts_the_times_has_a_note(launches: Any, phase: str, tmp_path: Path) -> None:
    all_launches = list(launches)
    for given, other in (("prefill", "decode"), ("decode", "prefill")):
        found = comparison_of(tmp_path, all_launches, "meta-llama/Llama-3.2-1B", phase=given)
        doubting_notes = [note for note in map(str, found.notes) if f"fit {other} better than {given}" in note]
        assert bool(doubting_notes) == (given != phase)


# --- Findings ---------------------------------------------------------------------------------------


def test_the_row_with_the_largest_excess_is_the_first_finding(tmp_path: Path) -> None:
    launches = [
        launch._replace(microseconds=900 if launch.truth == "mlp.down" else launch.microseconds)
        for launch in traces.gpt2_eager(12)
    ]
    found = comparison_of(tmp_path, launches)
    assert found.rows[0].operators == ("mlp.down",)
    first = found.findings[0]
    assert (first.kind, first.row) == ("slow", found.rows[0])
    expected = found.rows[0].expected_seconds
    assert expected is not None
    assert first.seconds == pytest.approx(12 * 900e-6 - expected)


def test_a_kernel_faster_than_its_bound_is_a_finding(tmp_path: Path) -> None:
    found = comparison_of(tmp_path, list(traces.gpt2_eager(12, 1.0)), batch=64)
    assert found.findings[0].kind == "too fast"


def test_experts_faster_than_uniform_routing_allows_suggest_the_same_experts(tmp_path: Path) -> None:
    launches = [*traces.mixtral_vllm(32, 150)] * 2
    found = comparison_of(tmp_path, launches, "mixtral-8x7b-v0.1", phase="decode", batch=32)
    assert 'if the prompts are identical, use routing="same"' in next(t for t in finding_texts(found) if "faster" in t)
    same = comparison_of(tmp_path, launches, "mixtral-8x7b-v0.1", phase="decode", batch=32, routing="same")
    assert not [text for text in finding_texts(same) if "routing" in text]


def test_recorded_shapes_reveal_another_length_or_model(tmp_path: Path) -> None:
    def shaped(hidden: int) -> list[Launch]:
        return [
            launch._replace(call=("aten::addmm", ((3 * hidden,), (141, hidden), (hidden, 3 * hidden))))
            if launch.truth == "attention.qkv"
            else launch
            for launch in traces.gpt2_eager(12)
        ]

    longer = comparison_of(tmp_path, shaped(768), seq=1024).findings[0]
    assert (longer.kind, longer.detail) == ("rows", "141")
    with pytest.raises(ProfileError, match=r"the kernels do not match .*gpt2: .* other weight .* \(1024 × 3072\)"):
        comparison_of(tmp_path, shaped(1024), seq=1024)


def test_one_fitting_weight_size_makes_other_sizes_a_doubt(tmp_path: Path) -> None:
    calls = {
        "attention.qkv": ("aten::addmm", ((3072,), (141, 1024), (1024, 3072))),
        "mlp.up": ("aten::addmm", ((3072,), (141, 768), (768, 3072))),
        "mlp.down": ("aten::addmm", ((1024,), (141, 4096), (4096, 1024))),
    }
    launches = [x._replace(call=calls.get(x.truth, x.call)) for x in traces.gpt2_eager(12)]
    found = comparison_of(tmp_path, launches).findings[0]
    assert (found.kind, found.share) == ("weights", pytest.approx(2 / 3))


# --- Counters ---------------------------------------------------------------------------------------

METRICS = (
    "gpu__time_duration.sum", "dram__bytes.sum", "sm__ops_path_tensor_src_fp16_dst_fp32.sum",
    "sm__ops_path_tensor_src_fp16_dst_fp16.sum",
)  # fmt: skip
VECTOR = tuple(
    f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum"
    for op in ("fadd", "fmul", "ffma", "dadd", "dmul", "dfma", "hadd", "hmul", "hfma")
)


def ncu(path: Path, kernels: list[tuple[str, float, float, float]]) -> str:
    """An export of Nsight Compute: name, nanoseconds, DRAM bytes and tensor FLOPs of each kernel."""
    columns = (
        "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
        "Device", "CC", *METRICS, *VECTOR,
    )  # fmt: skip
    rows = [columns, ("",) * 11 + ("ns", "byte", "", "") + ("inst",) * len(VECTOR)]
    for i, (name, *figures) in enumerate(kernels):
        launch = (str(i), "11", "python3", "127.0.0.1", name, "1", "7", "(128, 1, 1)", "(64, 1, 1)", "0", "8.0")
        rows.append((*launch, *map(str, figures), *("0",) * (1 + len(VECTOR))))
    path.write_text("".join(",".join(f'"{cell}"' for cell in each) + "\n" for each in rows), encoding="utf-8")
    return str(path)


def test_padding_and_l2_explain_differences_from_the_counts(tmp_path: Path) -> None:
    """141 tokens are padded to two tiles of 128 rows: 1.81 times the FLOPs, bias included."""
    flops = 2 * 256 * 768 * 2304
    dram_bytes = 1_000_000  # the count is about 4.3 MB; the rest stays in the L2 of 40 MB
    kernels = [
        (launch.name, launch.microseconds * 1e3, dram_bytes, flops if launch.truth == "attention.qkv" else 0)
        for launch in traces.gpt2_eager(12)
    ]
    found = compare("gpt2", [ncu(tmp_path / "ncu.csv", kernels)], "a100", workload={"phase": "prefill", "seq": 141})
    qkv = row(found, "attention.qkv")
    assert qkv.measured_flops == 12 * flops
    assert qkv.measured_bytes == 12 * dram_bytes
    first, second = reasons(qkv, found)
    assert pytest.approx(1.814, abs=1e-3) == 256 * 768 * 2304 * 2 / (141 * 768 * 2304 * 2 + 141 * 2304)
    assert first == "1.81 × the counted FLOPs: padding to 128 × 128 tiles"
    counted = qkv.cost.bytes
    assert second.startswith(f"DRAM traffic is {12 * dram_bytes / counted:.0%} of the count: the 4.")


# --- Real files -------------------------------------------------------------------------------------


@needs_measured
def test_bert_small_on_an_h100_is_matched_completely(tmp_path: Path) -> None:
    """60 kernels, 307.2 µs; 4 layers, hidden size 512, 8 heads, MLP width 2048; the traced GEMMs have 141 rows."""
    config = {
        "architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 8, "intermediate_size": 2048, "vocab_size": 30522, "max_position_embeddings": 512,
        "type_vocab_size": 2,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    file = str(measured_file("traces/torch/gaunernst_bert-small-uncased__1016001.json.gz"))
    found = compare(str(tmp_path), [file], None, workload={"dtype": "bf16", "seq": 141})
    assert found.identified.device.id == "h100-sxm"
    assert not found.unmatched_operators
    assert sum(each.kernels for each in found.rows) == 58  # two kernels check the mask
    assert found.passes[0].seconds == pytest.approx(307.2e-6, abs=0.05e-6)
    assert {(gemm.shape.m, gemm.same_weights) for gemm in found.gemms} == {(141, True)}
    qkv = row(found, "attention.q", "attention.k", "attention.v")
    assert (qkv.occurrences, qkv.kernels) == (4, 12)
    other = compare(str(tmp_path), [file], None, workload={"dtype": "bf16", "seq": 512})
    assert (other.findings[0].kind, other.findings[0].detail) == ("rows", "141")


@needs_measured
def test_a_vision_transformer_on_an_h100_is_matched_completely() -> None:
    file = str(measured_file("traces/torch/Falconsai_nsfw_image_detection__1016002.json.gz"))
    found = compare("google/vit-base-patch16-224", [file], None, workload={"dtype": "bf16", "batch": 4})
    assert found.passes[0].seconds == pytest.approx(1220.9e-6, abs=0.05e-6)
    assert not found.unmatched_operators
    assert row(found, "attention.flash").kernels == 12
    assert row(found, "embedding.patches").kernels == 4  # the convolution and its layout conversions


@needs_measured
def test_an_sglang_decode_on_an_mi300x_is_matched_completely() -> None:
    file = str(measured_file("traces/torch/sglang_Qwen3-8B_decode.json.gz"))
    workload = {"dtype": "bf16", "batch": 32, "phase": "decode", "context": 1024}
    found = compare("Qwen/Qwen3-8B", [file], None, workload=workload)
    assert found.passes[0].seconds == pytest.approx(9765.4e-6, abs=0.1e-6)
    assert not found.unmatched_operators
    kernels = {each.operators: each.kernels for each in found.rows}
    assert kernels[("attention.q", "attention.k", "attention.v")] == 36
    assert kernels[("mlp.gate", "mlp.up")] == 36
    assert kernels[("attention.flash",)] == 72  # attention split over the keys, and its reduction
    assert kernels[("residual", "norm")] == 72


@needs_measured
def test_a_file_that_ends_inside_the_backward_pass_is_a_partial_training_step() -> None:
    file = str(measured_file("ncu/a100_40_resnet18_raw_wide.csv"))
    found = compare("microsoft/resnet-18", [file], None, workload={"dtype": "tf32", "batch": 2, "phase": "train"})
    assert found.passes[0].partial
    convolutions = {each.operators[0] for each in found.rows if each.sample_occurrences[0].anchor == "convolution"}
    assert {f"stage{n}.{name}" for n in (1, 2, 3, 4) for name in ("first", "second")} <= convolutions
    assert not [each for each in found.unmatched_operators if each.stage == "forward"]
    assert {"stem.convolution.grad_weight", "optimizer.step"} <= {each.operator for each in found.unmatched_operators}


# --- Errors and doubts ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "assumed"),
    [
        ({"phase": "decode", "batch": 1}, "context=1024"),
        ({"phase": "decode", "seq": 512}, "batch=1"),  # the context equals the prompt
        ({"phase": "prefill", "batch": 4}, "seq=1024"),
        ({"phase": "prefill", "batch": 4, "seq": 512}, None),
    ],
)
def test_a_file_without_shapes_has_a_warning_with_the_assumed_rest_of_a_workload(
    given: dict[str, Any], assumed: str | None, tmp_path: Path
) -> None:
    file = traces.write(tmp_path / "trace.json", traces.gpt2_eager(12))
    found = compare("gpt2", [file], "a100", workload=given)
    warnings = [note for note in map(str, found.notes) if note.startswith("the file records no shapes of GEMMs")]
    assert warnings == ([] if assumed is None else [
        f"the file records no shapes of GEMMs, and the workload is not given completely; assumed: {assumed}"
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"phase": "decode"}, "batch=N and context=N"),
        ({"phase": "prefill"}, "batch=N and seq=N"),
        ({}, "batch=N and seq=N"),
    ],
)
def test_a_profile_of_an_unknown_workload_is_refused_with_the_options_to_give(
    given: dict[str, Any], options: str, tmp_path: Path
) -> None:
    file = traces.write(tmp_path / "trace.json", traces.gpt2_eager(12))
    with pytest.raises(WorkloadError, match=f"batch and lengths are unknown: .*; give {options}"):
        compare("gpt2", [file], "a100", workload=given)


@pytest.mark.parametrize(
    ("annotation", "phase", "batch", "length"),
    [
        ("execute_context_2(1024)_generation_0(0)", "prefill", 2, 512),  # vLLM
        ("execute_context_0(0)_generation_8(8)", "decode", 8, None),
        ("step[prefill bs=4 toks=2048]", "prefill", 4, 512),  # SGLang
        ("step[EXTEND bs=1 toks=300]", "prefill", 1, 300),
        ("step[decode bs=16]", "decode", 16, None),
    ],
)
def test_annotations_of_serving_engines_state_the_workload(
    annotation: str, phase: str, batch: int, length: int | None, tmp_path: Path
) -> None:
    launches = [each._replace(ranges=(annotation,)) for each in traces.gpt2_eager(12)]
    file = traces.write(tmp_path / "trace.json", launches)
    found = compare("gpt2", [file], "a100", workload={"phase": phase})
    work = found.estimate.workload
    assert (work.batch, work.seq) == (batch, length or 1024)
    assert found.passes[0].kernels == len(launches)  # "generation" in the name of a prefill does not make it a decode
    assert not found.unmatched_operators
    assert any(annotation in str(note) for note in found.notes)


def two_annotated_passes(folder: Path, *annotations: str) -> str:
    passes = (each._replace(ranges=(label,)) for label in annotations for each in traces.gpt2_eager(12))
    return traces.write(folder / "trace.json", passes)


def test_an_annotation_of_one_phase_is_not_applied_to_the_other(tmp_path: Path) -> None:
    """The batch of the decodes was that of the prefill, too."""
    file = two_annotated_passes(tmp_path, "step[prefill bs=1 toks=512]", "step[decode bs=16]")
    with pytest.raises(
        WorkloadError, match='different batches or lengths; give phase="prefill" or phase="decode", or batch'
    ):
        compare("gpt2", [file], "a100", workload={})
    found = compare("gpt2", [file], "a100", workload={"batch": 2})
    assert found.estimate.workload.batch == 2
    assert any(
        'assumed: seq=1024; for the file\'s own, give phase="prefill" or' in note for note in map(str, found.notes)
    )
    work = compare("gpt2", [file], "a100", workload={"phase": "prefill"}).estimate.workload
    assert (work.batch, work.seq) == (1, 512)


def test_an_annotation_that_all_steps_share_needs_no_phase(tmp_path: Path) -> None:
    file = two_annotated_passes(tmp_path, "step[decode bs=16]", "step[decode bs=16]")
    assert compare("gpt2", [file], "a100", workload={}).estimate.workload.batch == 16


def test_what_an_annotation_does_not_state_is_listed_as_assumed(tmp_path: Path) -> None:
    """The context of a decode was 1024 without a word."""
    file = two_annotated_passes(tmp_path, "step[decode bs=16]")
    notes = [*map(str, compare("gpt2", [file], "a100", workload={"phase": "decode"}).notes)]
    assert any("batch=16: from step[decode bs=16]" in note for note in notes)
    assert any(note.endswith("assumed: context=1024") for note in notes)
    given = compare("gpt2", [file], "a100", workload={"phase": "decode", "context": 300}).notes
    assert not any("assumed" in str(note) for note in given)


def test_recorded_shapes_state_the_workload(tmp_path: Path) -> None:
    calls = {"attention.qkv": ("aten::addmm", ((2304,), (600, 768), (768, 2304)))}
    launches = [x._replace(call=calls.get(x.truth, x.call)) for x in traces.gpt2_eager(12)]
    file = traces.write(tmp_path / "trace.json", launches)

    def work(**given: Any) -> tuple[Any, Any]:
        found = compare("gpt2", [file], "a100", workload={"phase": "prefill", **given}).estimate.workload
        return found.batch, found.seq

    assert work() == (1, 600)
    assert work(batch=4) == (4, 150)
    assert work(seq=200) == (3, 200)
    assert work(batch=2, seq=512) == (2, 512)
    attention = ("aten::scaled_dot_product_attention", 3 * ((4, 12, 150, 64),))
    launches = [x._replace(call=attention) if x.truth == "attention.flash" else x for x in launches]
    traces.write(tmp_path / "trace.json", launches)
    assert work() == (4, 150)


def test_recorded_shapes_replace_the_warning_about_an_assumed_workload(tmp_path: Path) -> None:
    call = ("aten::addmm", ((2304,), (141, 768), (768, 2304)))
    launches = [x._replace(call=call) if x.truth == "attention.qkv" else x for x in traces.gpt2_eager(12)]
    assert not any("assumed" in str(note) for note in comparison_of(tmp_path, launches).notes)


@needs_measured
def test_a_profile_of_a_smaller_model_is_refused_with_its_weight_sizes() -> None:
    """BERT small has hidden size 512 and MLP width 2048; GPT-2 has no such GEMMs."""
    file = str(measured_file("traces/torch/gaunernst_bert-small-uncased__1016001.json.gz"))
    with pytest.raises(ProfileError, match=r"do not match .*gpt2: .* \(512 × 512, 512 × 2048, 2048 × 512\)"):
        compare("gpt2", [file], "a100", workload={"phase": "prefill", "batch": 1})


def test_a_profile_of_another_model_is_refused_with_its_kernel_categories(tmp_path: Path) -> None:
    file = traces.write(tmp_path / "t.json", [Launch(traces.ADD, 3, "")] * 4)
    with pytest.raises(ProfileError, match=r"the kernels do not match .* \(its kernels: 4 elementwise\)"):
        compare("gpt2", [file], "a100", workload={})


@pytest.mark.parametrize(
    ("passes", "model", "layers"),
    [(1, "distilgpt2", 6), (3, "distilgpt2", 6), (2, "gpt2-medium", 24), (5, "gpt2-medium", 24), (3, "gpt2-xl", 48)],
)
def test_a_model_with_another_layer_count_is_doubted(passes: int, model: str, layers: int, tmp_path: Path) -> None:
    """The 12 layers of GPT-2 match as two passes of 6 layers; two passes match as one pass of 24 layers."""
    found = comparison_of(tmp_path, [*traces.gpt2_eager(12)] * passes, model)
    assert [(each.kind, each.measured, each.expected) for each in found.layer_mismatches] == [("run", 12, layers)]
    assert finding_texts(found)[0].startswith("12 layers follow an embedding lookup in the file, ")


@pytest.mark.parametrize("model", ["gpt2-medium", "gpt2-xl"])
def test_a_file_that_ends_after_fewer_layers_and_a_head_is_doubted(model: str, tmp_path: Path) -> None:
    """The head is matched with the first GEMM of layer 12. A file that ends inside a layer may be part of a pass."""
    found = comparison_of(tmp_path, [*traces.gpt2_eager(12)], model)
    assert [(each.kind, each.measured) for each in found.layer_mismatches] == [("end", 12)]
    assert "the file ends after 12 layers and one more GEMM, which may be the head" in finding_texts(found)[0]
    assert not comparison_of(tmp_path, [*traces.gpt2_eager(12)][:70], model).layer_mismatches


def test_more_layers_than_the_model_has_are_doubted(tmp_path: Path) -> None:
    """36 layers match as one pass of 32 layers and four layers of the next pass."""
    found = comparison_of(tmp_path, [*traces.vllm_decode(36, 40.0)], "llama-3.1-8b", phase="decode")
    assert [(each.kind, each.measured, each.expected) for each in found.layer_mismatches] == [("run", 36, 32)]


def test_a_layer_number_in_ranges_that_the_model_lacks_is_doubted(tmp_path: Path) -> None:
    launches = [*traces.marked(traces.gpt2_eager(12), 12)]
    assert not comparison_of(tmp_path, launches, "gpt2").layer_mismatches
    (named,) = comparison_of(tmp_path, launches, "distilgpt2").layer_mismatches
    assert (named.kind, named.measured, named.expected) == ("named", 11, 6)


@pytest.mark.parametrize(("cut", "end"), [(0, None), (60, None), (0, 200), (60, 200), (0, 100)])
def test_parts_of_a_profile_of_the_model_are_not_doubted(cut: int, end: int | None, tmp_path: Path) -> None:
    assert not comparison_of(tmp_path, ([*traces.gpt2_eager(12)] * 3)[cut:end]).layer_mismatches


def test_profiles_of_several_devices_need_the_device_option(tmp_path: Path) -> None:
    launches = list(traces.gpt2_eager(12))
    traces.write(tmp_path / "a.json", launches)
    traces.write(tmp_path / "b.json", launches, device=1)
    files = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    with pytest.raises(ProfileError, match=r"kernels of 2 devices: 0 \(\d+ kernels\), 1 .*device=.0."):
        compare("gpt2", files, "a100", workload={"phase": "prefill", "batch": 1})
    found = compare("gpt2", files, "a100", device="1", workload={"phase": "prefill", "batch": 1})
    assert sum(each.kernels for each in found.rows) == len(launches)
    with pytest.raises(WorkloadError, match='device="7": the files have no kernels of this device; known: 0, 1'):
        compare("gpt2", files, "a100", device="7", workload={"phase": "prefill", "batch": 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps=0 is not a number of passes"),
        ({"steps": 2, "workload": {}}, 'steps needs phase: use phase="prefill" or phase="decode"'),
        ({"workload": {"phase": "generate"}}, 'phase="generate": compare takes one kind of pass'),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    file = traces.write(tmp_path / "t.json", traces.gpt2_eager(12))
    with pytest.raises(WorkloadError, match=message):
        compare("gpt2", [file], "a100", **{"workload": {"phase": "prefill"}, **options})


@needs_measured
def test_recorded_rows_of_an_image_model_differ_from_those_of_the_given_batch() -> None:
    file = str(measured_file("traces/torch/Falconsai_nsfw_image_detection__1016002.json.gz"))
    found = compare("google/vit-base-patch16-224", [file], "h100", workload={"batch": 1})
    assert finding_texts(found)[0].endswith(
        "788 rows of tokens, but the given workload has 197: all predicted figures are of another workload; use batch=4"
    )  # 4 images of 14 × 14 patches and a class token
    assert not any(
        "rows of tokens" in words
        for words in finding_texts(compare("google/vit-base-patch16-224", [file], "h100", workload={}))
    )


@needs_measured
@pytest.mark.parametrize(
    ("model", "file", "batch"),
    [
        ("google/vit-base-patch16-224", "traces/torch/Falconsai_nsfw_image_detection__1016002.json.gz", 4),
        ("resnet-50", "traces/torch/kineto_resnet50_v100_no_workers.json.gz", 32),  # (32, 3, 224, 224)
    ],
)
def test_recorded_shapes_state_the_batch_of_an_image_model(model: str, file: str, batch: int) -> None:
    assert compare(model, [str(measured_file(file))], "v100", workload={}).estimate.workload.batch == batch


@needs_measured
def test_a_profile_of_images_without_shapes_is_refused_with_the_batch_to_give() -> None:
    file = str(measured_file("ncu/a100_40_resnet18_raw_wide.csv"))
    with pytest.raises(WorkloadError, match=r"the batch is unknown: the file records no shapes.*; give batch=N"):
        compare("microsoft/resnet-18", [file], None, workload={"dtype": "tf32", "phase": "train"})


# --- Python -----------------------------------------------------------------------------------------


def test_the_report_equals_the_output_of_the_command(tmp_path: Path) -> None:
    file = traces.write(tmp_path / "t.json", traces.gpt2_eager(12))
    report = roofmodel.compare("gpt2", file, hw="a100", phase="prefill", batch=1)
    document = report.to_dict()
    assert document["schema"] == "roofmodel.compare/1"
    assert document["totals"] == report.totals
    assert document["findings"] == report.findings
    assert len(report.to_frame()) == len(document["rows"])
    assert "text/html" in report._repr_mimebundle_()
    report.save(tmp_path / "t.svg")
    assert "predicted and achieved" in (tmp_path / "t.svg").read_text(encoding="utf-8")


def test_a_run_that_waits_for_its_data_loader_has_a_finding() -> None:
    file = str(measured_file("traces/torch/kineto_resnet50_v100_no_workers.json.gz"))
    workload = {"phase": "train", "batch": 32, "dtype": "fp32", "optimizer": "momentum"}
    found = compare("resnet-50", [file], None, workload=workload)
    text = finding_texts(found)[0]
    assert text.startswith("the input pipeline limits the run")
    assert "DataLoader(num_workers=1)" in text
    # each step of about 176 ms has 63 to 73 ms in DataLoader.__next__
    assert "The data loader takes 69.3 ms of each step of 175 ms" in text
