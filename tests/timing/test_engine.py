"""Operators as an inference engine runs them (fused GEMMs of one input, no separate launch for sums and rotary
embedding), and as a framework runs them (extra kernels)."""

from __future__ import annotations

from typing import Any

import pytest

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.engines.engine_file import Host
from roofmodel.measure.operations import OPERATIONS, PRECISIONS, widths
from roofmodel.models.hub import load
from roofmodel.options.values import Phase
from roofmodel.steps.estimate import estimate, latency_totals
from roofmodel.steps.options import workload
from roofmodel.steps.phase import phase_estimate, stage_time
from roofmodel.steps.placed import Placed
from roofmodel.timing.engine import Timing
from roofmodel.timing.parameter_sets import operator_format_key
from roofmodel.timing.timing import expect, expect_elementwise, gemm_work

A100 = Device.load("a100")


def placed(engine: str) -> dict[str, Placed]:
    found = estimate(load("llama-3.2-1b"), A100, phase="decode", batch=4, engine=engine)
    return {each.operator.name: each for each in found.phases[0].placed}


def test_q_k_and_v_take_the_time_of_one_gemm() -> None:
    """Width 2048, 32 heads and 8 key-value heads of size 64: one GEMM of 2048 + 512 + 512 = 3072 columns."""
    shape = {"m": 4, "n": 3072, "k": 2048}
    kernel = OPERATIONS["gemm"].operator(shape, widths(PRECISIONS["float16"]))
    fused = expect(kernel, A100, "fp16", "vllm_default")
    parts = [placed("vllm")[f"attention.{name}"].expected for name in "qkv"]
    assert fused is not None
    times = [part.value for part in parts if part is not None]
    assert sum(times) == pytest.approx(fused.value, rel=1e-9)
    assert times[0] == pytest.approx(fused.value * 2048 / 3072, rel=1e-9)


def test_rotary_embedding_takes_the_time_of_its_bytes_in_a_neighboring_kernel() -> None:
    fused, alone = placed("vllm")["attention.rotary"], placed("torch")["attention.rotary"]
    assert fused.expected is not None
    assert alone.expected is not None
    assert fused.expected.value == fused.placement.bound_seconds < alone.expected.value


def test_a_residual_add_in_the_kernel_of_the_next_norm_saves_the_read_of_the_sum() -> None:
    """The kernel reads 2 tensors of 4 tokens × 2048 in 16 bits and writes the sum and the normalized sum. The norm
    counts reading the sum and writing its output; the add counts the other two reads, without its write."""
    for name in ("residual.attention", "residual.mlp"):
        add = placed("vllm")[name]
        assert add.expected is not None
        assert add.expected.value == pytest.approx(2 * 4 * 2048 * 2 / A100.bandwidth)
        assert add.expected.value < add.placement.bound_seconds
        assert (add.run.implementation, add.run.evidence) == (None, "bound")


def test_an_engine_never_fuses_kernels_into_slower_ones() -> None:
    engine, eager = placed("vllm"), placed("torch")
    for name, one in engine.items():
        alone = eager[name].expected
        assert one.expected is not None
        assert alone is not None
        if one.run.absorbed:
            assert one.expected.value <= alone.value
    assert sum(engine[f"attention.{name}"].expected.value for name in "qkv") < sum(  # type: ignore[union-attr]
        eager[f"attention.{name}"].expected.value
        for name in "qkv"  # type: ignore[union-attr]
    )


def test_a_merged_gemm_takes_at_least_the_time_of_its_own_traffic() -> None:
    """Its input is read once, so that the sum of the operators' bounds may be larger. Shares are by columns."""
    for engine in ("vllm", "sglang", "trtllm"):
        (phase,) = estimate(load("llama-3.1-8b"), Device.load("h100"), phase="prefill", seq=4096, engine=engine).phases
        parts = [one for one in phase.placed if one.operator.name in ("mlp.gate", "mlp.up")]
        seconds = [one.expected.value for one in parts if one.expected]
        flops = sum(one.operator.matmul_flops for one in parts)
        assert seconds[0] == pytest.approx(seconds[1])
        assert sum(seconds) >= flops / 989.4e12
        assert {one.run.merged for one in parts} == {("mlp.gate", "mlp.up")}


def test_the_down_projections_of_latent_attention_run_as_one_gemm() -> None:
    """They do not follow each other: the norm and the up-projection of the queries are between them."""
    (phase,) = estimate(load("deepseek-v3"), Device.load("h200"), phase="decode", tp=8, engine="sglang").phases
    merged = {one.operator.name: one.run.merged for one in phase.placed if one.run.merged}
    assert merged["attention.q_down"] == merged["attention.kv_down"] == ("attention.q_down", "attention.kv_down")
    both = [one for one in phase.placed if one.operator.name in ("attention.q_down", "attention.kv_down")]
    columns = {one.operator.name: one.run.columns for one in both}
    assert columns == {"attention.q_down": (1536, 1536 + 576), "attention.kv_down": (576, 1536 + 576)}


def test_a_norm_runs_in_the_kernel_of_the_all_reduce_before_it() -> None:
    engine = Engine.load("trtllm")
    others = engine._replace(fuses=engine.fuses - {"all_reduce_norm"})
    device, arch = Device.load("h100"), load("llama-3.1-70b")
    (step,) = workload(arch, phase="decode", tp=8, batch=8)[0].steps()
    alone, fused = (
        {one.operator.name: one for one in phase_estimate(arch, device, step, each).placed} for each in (others, engine)
    )
    assert fused["norm.mlp"].run.absorbed == "all_reduce_norm"  # after attention.all_reduce and residual.attention
    assert fused["norm.mlp"].expected.value == fused["norm.mlp"].placement.bound_seconds  # type: ignore[union-attr]
    assert not alone["norm.mlp"].run.absorbed
    (step,) = workload(arch, phase="decode", batch=8)[0].steps()
    assert not any(one.run.absorbed == "all_reduce_norm" for one in phase_estimate(arch, device, step, engine).placed)


def test_the_activation_of_experts_runs_in_their_kernels() -> None:
    """The measured fused layers include it, so that it costs its bytes and no launch."""
    (phase,) = estimate(load("mixtral-8x7b-v0.1"), Device.load("h100"), phase="decode", tp=2).phases
    (activation,) = (one for one in phase.placed if one.operator.name == "mlp.expert_activation")
    assert activation.run.absorbed == "experts"
    assert activation.expected.value == activation.placement.bound_seconds  # type: ignore[union-attr]


@pytest.mark.parametrize(("batch", "kernel"), [(1, "vLLM_custom_graph"), (512, "vLLM_custom_graph"), (513, "NCCL")])
def test_an_engine_reduces_messages_up_to_a_size_with_its_own_kernel(batch: int, kernel: str) -> None:
    """Llama 3.1 70B: 8192 elements of 2 bytes per token; vLLM's own kernel reduces up to 8 MiB = 512 tokens."""
    (phase,) = estimate(load("llama-3.1-70b"), Device.load("h100"), phase="decode", batch=batch, tp=8).phases
    found = {one.run.implementation for one in phase.exchanges if one.operator.name.endswith("all_reduce")}
    assert found == {kernel}
    rows = roofmodel.sweep("llama-3.1-70b", "h100", phase="decode", batch=[batch, 7], tp=8).to_frame()
    assert rows.expected_seconds[0] == pytest.approx(phase.expected.value)  # type: ignore[union-attr]


def test_between_nodes_an_engine_uses_nccl() -> None:
    (phase,) = estimate(load("llama-3.1-70b"), Device.load("h100"), phase="decode", tp=16).phases
    assert {one.run.implementation for one in phase.exchanges} == {"NCCL"}


def test_the_host_of_a_serving_engine_is_added_or_overlaps() -> None:
    """1 ms a step, 50 us a sequence and 2 us a prompt token: 1.4 ms for a decode of 8 sequences; 1.4 + 8 × 100 × 0.002
    = 3 ms for their prompts of 100 tokens."""
    arch, vllm = load("gpt2"), Engine.load("vllm")._replace(host=Host())
    for overlapped in (False, True):
        engine = vllm._replace(host=Host(1e-3, 50e-6, 2e-6, overlapped))
        for phase, host in (("decode", 1.4e-3), ("prefill", 3e-3)):
            (step,) = workload(arch, phase=phase, batch=8, seq=100)[0].steps()
            found, without = (phase_estimate(arch, A100, step, each) for each in (engine, vllm))
            assert found.kernel_seconds == without.kernel_seconds
            assert found.expected is not None
            kernels = without.expected.value  # type: ignore[union-attr]
            assert found.expected.value == pytest.approx(max(kernels, host) if overlapped else kernels + host)


def test_an_overlapped_host_that_takes_longer_than_the_kernels_limits_the_step() -> None:
    """50 ms of a step, where the kernels of a decode take about 1 ms and those of 32 long prompts more than 200 ms."""
    arch, vllm = load("gpt2"), Engine.load("vllm")
    for overlapped in (False, True):
        engine = vllm._replace(host=Host(50e-3, overlapped=overlapped))
        for phase, batch in (("decode", 1), ("prefill", 256)):
            (step,) = workload(arch, phase=phase, batch=batch, seq=1024)[0].steps()
            found = phase_estimate(arch, A100, step, engine)
            assert found.host_bound is (overlapped and phase == "decode"), (overlapped, phase)
            assert not found.launch_bound


def test_a_generation_has_the_host_of_its_prefill_and_of_each_decode() -> None:
    arch, none = load("gpt2"), Engine.load("vllm")._replace(host=Host())
    (step,) = workload(arch, phase="generate", seq=100, new_tokens=10)[0].steps()
    engines = none._replace(host=Host(step=1e-3)), none
    found, without = (phase_estimate(arch, A100, step, each).expected for each in engines)
    assert found is not None
    assert without is not None
    assert found.value == pytest.approx(without.value + 11e-3)


@pytest.mark.parametrize(
    ("options", "name", "expected"),
    [
        ({}, "mlp.down", ("torch.nn.functional.linear", "measured")),
        ({"engine": "sglang"}, "mlp.down", ("sglang_torch_linear", "measured")),
        ({"engine": "trtllm"}, "mlp.down", ("torch_flow", "measured")),
        ({"engine": "torch"}, "mlp.down", ("any", "measured")),
        ({"engine": "sglang"}, "attention.flash", ("fa3", "measured")),
        ({"hw": "a100"}, "mlp.down", ("vllm_default", "measured")),
        ({"hw": "v100"}, "attention.flash", ("vllm_flash_attn", "borrowed")),
        ({"dtype": "fp32"}, "mlp.down", ("any", "borrowed")),
        ({}, "norm.mlp", ("norm", "borrowed")),  # elementwise kernels were measured on the A100
        ({"hw": "mi300x"}, "mlp.down", (None, "bound")),
    ],
)
def test_each_operator_states_its_kernel_and_what_its_time_is_from(
    options: dict[str, Any], name: str, expected: tuple[str | None, str]
) -> None:
    asked = {"hw": "h100", "phase": "decode", **options}
    ops = roofmodel.estimate("llama-3.1-8b", asked.pop("hw"), **asked).to_dict()["phases"][0]["ops"]
    (row,) = (row for row in ops if row["name"] == name)
    assert (row["implementation"], row["expected_from"]) == expected


@pytest.mark.parametrize(
    ("model", "hw", "options", "note"),
    [
        ("llama-3.1-8b", "a100", {"weights": "int4"}, "GEMM kernels of vLLM have no parameters for a100-sxm-80gb"),
        ("llama-3.1-8b", "h100", {}, None),
        ("llama-3.1-8b", "a100", {"engine": "trtllm"}, "decode attention kernels of TensorRT-LLM have no param"),
        ("llama-3.1-8b", "a100", {"engine": "torch"}, None),
    ],
)
def test_a_note_names_kernels_that_an_engine_borrows(
    model: str, hw: str, options: dict[str, Any], note: str | None
) -> None:
    notes = roofmodel.estimate(model, hw, phase="decode", **options).notes
    found = [text for text in map(str, notes) if "kernels of" in text and "have no parameters" in text]
    assert [text[: len(note or "")] for text in found] == ([note] if note else [])


def test_an_engine_changes_no_counts_and_no_bounds() -> None:
    documents = [
        roofmodel.estimate("mixtral-8x7b-v0.1", "h100", tp=2, engine=engine).to_dict()
        for engine in ("vllm", "sglang", "trtllm", "torch")
    ]
    roles = ("weights", "kv_cache", "activations", "total", "capacity")
    assert len({tuple(document["memory"][role] for role in roles) for document in documents}) == 1
    counted = ("spec", "gemm", "matmul_flops", "vector_flops", "bytes_read", "bytes_written", "bound_seconds")
    counts = [
        [
            {
                name: (sum(row["count"] for row in rows), *([row[key] for key in counted] for row in rows[:1]))
                for name in dict.fromkeys(row["name"] for row in phase["ops"])
                for rows in [[row for row in phase["ops"] if row["name"] == name]]
            }
            for phase in one["phases"]
        ]
        for one in documents
    ]
    assert all(other == counts[0] for other in counts)


def test_trtllm_0_9_expects_no_collapse_of_llama_2_70b() -> None:
    """NVIDIA measured 23.6 to 30.4 ms per token at batch 256 (ops/trtllm_e2e.csv.gz); no step of a smaller batch, with
    the same prompt, takes longer."""
    seconds = [
        roofmodel.estimate(
            "llama-2-70b-hf", "h100", tp=8, phase="decode", context=192, batch=batch, engine="trtllm@0.9"
        ).totals["decode"]["expected_seconds"]
        for batch in (160, 200, 256)
    ]
    assert seconds == sorted(seconds)
    assert seconds[-1] < 30.4e-3


def test_trtllm_0_9_splits_no_cache_among_thread_blocks() -> None:
    """A block reads the whole cache of its query head. One sequence of Llama 70B has a wave of 16 blocks on each of 4
    GPUs and of 8 blocks on each of 8, so that 6000 more tokens add the same time; a split cache would add little. NIM
    measured 6.4 and 8.5 ms for 7200 tokens (whole/served_nim.csv.gz)."""

    def attention_seconds(tp: int, context: int, engine: str) -> float:
        ops = roofmodel.estimate(
            "llama-3.1-70b", "a100", tp=tp, phase="decode", context=context, engine=engine
        ).to_dict()["phases"][0]["ops"]
        return sum(op["count"] * op["expected_seconds"] for op in ops if op["name"] == "attention.flash")

    four, eight, split = (
        attention_seconds(tp, 8000, engine) - attention_seconds(tp, 2000, engine)
        for tp, engine in ((4, "trtllm@0.9"), (8, "trtllm@0.9"), (8, "trtllm"))
    )
    assert four == pytest.approx(eight, rel=0.05)
    assert 6.4e-3 * 6000 / 7200 / 1.3 < four < 8.5e-3 * 6000 / 7200 * 1.3
    assert split < four / 5


def extra_kernels_by_operator(
    model: str = "bert-base-uncased", phase: Phase = "train", dtype: str = "fp16", engine: str = "torch"
) -> dict[str, dict[str, int]]:
    """Bytes of the extra kernels of each operator, for 2 x 128 tokens."""
    options = {"phase": phase, "batch": 2, "seq": 128, "dtype": dtype, "attention": "eager", "engine": engine}
    found = estimate(load(model), A100, **options).phases[0]
    return {p.operator.name: {kernel.name: kernel.bytes for kernel in p.extra_kernels} for p in found.placed}


SCORES = 2 * 12 * 128 * 128  # 2 sequences, 12 heads
ROWS = 2 * 128 * 768


def test_scaling_masking_and_dropout_of_scores_are_separate_kernels() -> None:
    training, forward = extra_kernels_by_operator(), extra_kernels_by_operator(phase="forward")
    in_and_out = 2 * 2 * SCORES  # read and write 2 bytes
    dropped = in_and_out + SCORES  # and a mask of 1 byte
    assert forward["attention.softmax"] == {"scale": in_and_out, "mask": in_and_out}
    assert training["attention.softmax"] == {"scale": in_and_out, "mask": in_and_out, "dropout": dropped}
    assert training["attention.softmax.grad"] == {"scale": in_and_out, "dropout": dropped}


def test_the_head_transposition_is_copied_once_forward_and_once_backward() -> None:
    copied = [
        (name, size)
        for kernels in extra_kernels_by_operator().values()
        for name, size in kernels.items()
        if name.startswith("copy")
    ]
    names = [f"copy {tensor}" for tensor in ("q", "k", "v", "o", "grad.q", "grad.k", "grad.v", "grad.o")]
    assert sorted(copied) == sorted((name, 2 * 2 * ROWS) for name in names)


def test_eager_attention_copies_shared_keys_and_values_for_each_query_head() -> None:
    """Llama 3.1, 256 tokens: 8 key-value heads of size 128 serve 32 query heads. `repeat_kv` reads each head and writes
    four copies; the GEMM reads all four, three more than the operator counts."""
    copied = {
        name: size
        for kernels in extra_kernels_by_operator("llama-3.1-8b", "forward").values()
        for name, size in kernels.items()
    }
    key_bytes, query_bytes = 2 * 256 * 8 * 128, 2 * 256 * 32 * 128
    assert copied["copy k"] == copied["copy v"] == key_bytes * (1 + 4 + 3)
    assert copied["copy q"] == copied["copy o"] == query_bytes * 2


def test_dropout_of_a_blocks_output_runs_forward_and_backward() -> None:
    training = extra_kernels_by_operator()
    dropped = {"dropout": 2 * 2 * ROWS + ROWS}
    for name in ("residual.attention", "attention.output.grad_weight", "residual.mlp", "mlp.down.grad_weight"):
        assert training[name] == dropped
    assert (
        sum("dropout" in kernels for kernels in training.values()) == 4 + 2
    )  # and of the scores, forward and backward
    assert training["norm.mlp.grad"] == {"gradients of gain and bias": 2 * 2 * ROWS}


def test_megatron_fuses_scale_mask_and_softmax_and_dropout_with_residual_sums() -> None:
    """Narayanan et al., arXiv 2104.04473, section 4.2; dropout of probabilities and the backward pass are unchanged."""
    fused, eager = extra_kernels_by_operator(engine="megatron@2021"), extra_kernels_by_operator()
    dropped = 2 * 2 * SCORES + SCORES
    assert fused["attention.softmax"] == fused["attention.softmax.grad"] == {"dropout": dropped}
    assert fused["residual.attention"] == fused["residual.mlp"] == {"dropout": ROWS}  # the mask, 1 byte per element
    assert not any(name.startswith("copy") for kernels in fused.values() for name in kernels)
    for name in ("attention.output.grad_weight", "mlp.down.grad_weight", "norm.mlp.grad", "head.loss"):
        assert fused[name] == eager[name]


def test_a_gemm_adds_the_gradient_of_a_weight_to_a_sum_in_fp32() -> None:
    """It reads and writes 4 bytes per weight, where the count has a written gradient of 2; the other GEMMs do not."""
    options: dict[str, Any] = {"phase": "train", "dtype": "bf16", "batch": 4, "seq": 64}
    for name in ("llama-3.2-1b", "deepseek-v2-lite"):
        operators = [
            each.operator for each in estimate(load(name), A100, engine="megatron", **options).phases[0].placed
        ]
        for engine in ("megatron", "torch"):
            timing = Timing(A100, Engine.load(engine))
            for operator in operators:
                counted, run = gemm_work(operator, "bf16"), gemm_work(timing.executed(operator), "bf16")
                if counted and run:
                    is_summed = engine == "megatron" and operator.name.endswith(".grad_weight")
                    weights = counted.batch * counted.m * counted.n
                    adding = counted._replace(bytes=counted.bytes + 6 * weights, c=4)
                    assert run == pytest.approx(adding if is_summed else counted)


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp8_block", "mxfp8", "tf32"])
def test_adding_to_a_sum_does_not_change_the_kernel_of_a_gradient(dtype: str) -> None:
    phase = estimate(load("llama-3.2-1b"), Device.load("b200"), phase="train", dtype=dtype, engine="megatron").phases[0]
    timing, compute = Timing(Device.load("b200"), Engine.load("megatron")), phase.step.widths.compute
    gradients = [each.operator for each in phase.placed if each.operator.name.endswith(".grad_weight")]
    for operator in gradients:
        run = timing.executed(operator)
        own = operator.compute_dtype(compute)
        assert run.compute_dtype(compute) == own
        assert operator_format_key(run, own) == operator_format_key(operator, own)
    assert len(gradients) > 5


def test_a_model_without_dropout_has_none() -> None:
    assert not any("dropout" in kernels for kernels in extra_kernels_by_operator("llama-3.2-1b").values())


@pytest.mark.parametrize(
    ("dtype", "forward", "gradient"),
    [
        # cast 2 + 4, reads and writes 4 + 4 instead of the counted 2 + 2; backward also writes and reads zeros, 4 + 4
        ("fp16", 10, 18),
        ("fp32", 0, 8),
    ],
)
def test_the_loss_is_in_fp32(dtype: str, forward: int, gradient: int) -> None:
    training, logits = extra_kernels_by_operator(dtype=dtype), 2 * 128 * 30522
    assert training["head.loss"] == {"in fp32": forward * logits}
    assert training["head.loss.grad"] == {"in fp32": gradient * logits}


def test_the_time_of_an_operator_includes_its_extra_kernels() -> None:
    found = estimate(load("bert-base-uncased"), A100, phase="train", batch=2, seq=128, attention="eager").phases[0]
    softmax = next(p for p in found.placed if p.operator.name == "attention.softmax")
    alone, scale = expect(softmax.operator, A100, "fp16"), expect_elementwise(2 * 2 * SCORES, A100, "fp16")
    dropout = expect_elementwise(5 * SCORES, A100, "fp16")
    assert alone
    assert scale
    assert dropout
    assert softmax.expected
    assert softmax.expected.value == pytest.approx(alone.value + 2 * scale.value + dropout.value)
    assert softmax.expected.high == pytest.approx(alone.high + 2 * scale.high + dropout.high)


def test_extra_kernels_use_the_format_of_the_tensors_not_of_the_gemms() -> None:
    """With 16-bit activations under fp8, the kernels that scale and mask the scores read 16 bits."""

    def softmax(**options: Any) -> Placed:
        found = estimate(
            load("bert-base-uncased"), Device.load("h100"), phase="forward", attention="eager", **options
        ).phases[0]
        return next(one for one in found.placed if one.operator.name == "attention.softmax")

    assert softmax(dtype="fp8", activations="fp16").expected == softmax(dtype="fp16").expected


@pytest.mark.parametrize(
    ("hw", "workload_options"),
    [
        ("rtx-pro-6000-server", {"phase": "decode", "tp": 4}),  # NCCL over PCIe
        ("h100", {"phase": "prefill", "tp": 8, "batch": 8, "seq": 4096}),  # 268 MB: NCCL
    ],
)
def test_a_norm_runs_in_a_kernel_of_its_own_where_the_engine_does_not_reduce(
    hw: str, workload_options: dict[str, Any]
) -> None:
    (phase,) = estimate(load("llama-3.1-8b"), Device.load(hw), engine="trtllm", **workload_options).phases
    norm = next(one for one in phase.placed if one.operator.name == "norm.mlp")
    assert norm.expected is not None
    assert norm.expected.value > norm.placement.bound_seconds


def test_a_set_for_which_the_engine_names_no_kernel_is_borrowed() -> None:
    """vLLM's file has no GEMMs with int4 weights for an A100; TensorRT-LLM's are used."""
    (phase,) = estimate(load("llama-3.1-8b"), Device.load("a100"), phase="decode", weights="int4").phases
    gemm = next(one for one in phase.placed if one.operator.name == "mlp.down")
    assert (gemm.run.evidence, gemm.run.formula is None) == ("borrowed", False)


def test_a_host_schedules_each_microbatch_of_a_pipeline() -> None:
    """Four stages with four microbatches of one sequence: four steps of the host."""
    host, pipeline = Engine.load("sglang").host, {"pp": 4, "batch": 4, "micro_batch": 1, "engine": "sglang"}
    (phase,) = estimate(load("llama-3.1-8b"), Device.load("h100"), phase="decode", **pipeline).phases
    assert phase.step.microbatches == 4
    assert host.step > 0
    assert float(phase.host_seconds("decode")) == pytest.approx(4 * (host.step + host.sequence))


@pytest.mark.parametrize(("phase", "prompt"), [("prefill", 1024), ("generate", 4096)])
def test_ttft_contains_what_a_request_takes_outside_the_steps(phase: str, prompt: int) -> None:
    """20 ms and 3 us for each prompt token under vLLM; the pass, TPOT and the rate do not contain them."""
    report = roofmodel.estimate("llama-3.1-8b", "h100", phase=phase, seq=prompt, batch=4)
    (found,) = report.estimate.phases
    totals = latency_totals(found)
    kernels = found.expected if phase == "prefill" else stage_time(found, "prefill").expected
    assert kernels is not None
    assert totals["ttft_seconds"] - kernels.value == pytest.approx(20e-3 + 3e-6 * prompt)
    if phase == "generate":
        assert found.expected is not None
        assert totals["e2e_seconds"] - found.expected.value == pytest.approx(20e-3 + 3e-6 * prompt)
        decodes = stage_time(found, "decodes").expected
        assert decodes is not None
        assert totals["tpot_seconds"] * (found.step.passes - 1) == pytest.approx(decodes.value)
