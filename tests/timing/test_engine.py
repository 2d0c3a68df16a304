"""Operators as an inference engine runs them (fused GEMMs of one input, no separate launch for sums and rotary
embedding), and as a framework runs them (extra kernels)."""

from __future__ import annotations

from typing import Any

import pytest

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.measure.operations import OPERATIONS, PRECISIONS, widths
from roofmodel.models.hub import load
from roofmodel.options.values import Phase
from roofmodel.steps.estimate import estimate
from roofmodel.steps.placed import Placed
from roofmodel.timing.timing import expect, expect_elementwise

A100 = Device.load("a100")


def placed(runtime: str) -> dict[str, Placed]:
    found = estimate(load("llama-3.2-1b"), A100, phase="decode", batch=4, runtime=runtime)
    return {each.operator.name: each for each in found.phases[0].placed}


def test_q_k_and_v_take_the_time_of_one_gemm() -> None:
    """Width 2048, 32 heads and 8 key-value heads of size 64: one GEMM of 2048 + 512 + 512 = 3072 columns."""
    shape = {"m": 4, "n": 3072, "k": 2048}
    fused = expect(OPERATIONS["gemm"].operator(shape, widths(PRECISIONS["float16"])), A100, "fp16")
    parts = [placed("graph")[f"attention.{name}"].expected for name in "qkv"]
    assert fused is not None
    times = [part.value for part in parts if part is not None]
    assert sum(times) == pytest.approx(fused.value, rel=1e-9)
    assert times[0] == pytest.approx(fused.value * 2048 / 3072, rel=1e-9)


def test_sums_and_rotary_embedding_take_the_time_of_their_bytes_in_a_cuda_graph() -> None:
    graph, eager = placed("graph"), placed("eager")
    fused = [name for name in graph if name.endswith("rotary") or graph[name].operator.group == "residual"]
    assert fused
    for name in fused:
        in_graph, in_eager = graph[name], eager[name]
        assert in_graph.expected is not None
        assert in_eager.expected is not None
        assert in_graph.expected.value == in_graph.placement.bound_seconds < in_eager.expected.value


def test_a_cuda_graph_never_increases_expected_times() -> None:
    graph, eager = placed("graph"), placed("eager")
    for name, in_graph in graph.items():
        in_eager = eager[name].expected
        assert in_graph.expected is not None
        assert in_eager is not None
        assert in_graph.placement.bound_seconds <= in_graph.expected.value <= in_eager.value
    assert graph["mlp.down"].expected == eager["mlp.down"].expected
    assert graph["attention.flash"].expected == eager["attention.flash"].expected


def extra_kernels_by_operator(
    model: str = "bert-base-uncased", phase: Phase = "train", dtype: str = "fp16", runtime: str = "eager"
) -> dict[str, dict[str, int]]:
    """Bytes of the extra kernels of each operator, for 2 x 128 tokens."""
    options = {"phase": phase, "batch": 2, "seq": 128, "dtype": dtype, "attention": "eager", "runtime": runtime}
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
    fused, eager = extra_kernels_by_operator(runtime="megatron"), extra_kernels_by_operator()
    dropped = 2 * 2 * SCORES + SCORES
    assert fused["attention.softmax"] == fused["attention.softmax.grad"] == {"dropout": dropped}
    assert fused["residual.attention"] == fused["residual.mlp"] == {"dropout": ROWS}  # the mask, 1 byte per element
    assert not any(name.startswith("copy") for kernels in fused.values() for name in kernels)
    for name in ("attention.output.grad_weight", "mlp.down.grad_weight", "norm.mlp.grad", "head.loss"):
        assert fused[name] == eager[name]


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


def test_trtllm_0_9_shares_the_reads_of_groups_of_8_only() -> None:
    def attention(model: str, engine: str, **options: Any) -> float:
        settings = {"phase": "decode", "batch": 64, "context": 2048, "runtime": "graph", "engine": engine, **options}
        (phase,) = estimate(load(model), Device.load("h100"), **settings).phases
        found = next(one for one in phase.placed if one.operator.kind == "attention")
        assert found.expected
        return float(found.expected.value)

    # Falcon 180B on 8 GPUs: 29 query heads share a key-value head of size 64; keys and values in fp16
    elements = 64 * 2048 * 64 * 2
    clocks = 29 * elements * (2 / 34 + 1 / 38)
    trtllm = attention("falcon-180b", "trtllm-0.9", tp=8)
    assert trtllm == pytest.approx(clocks / (132 * 1.98e9), rel=0.01)
    assert trtllm > 2 * attention("falcon-180b", "current", tp=8)
    # Mistral 7B: 4 query heads share each of 8 key-value heads of size 128
    elements = 64 * 2048 * 8 * 128 * 2
    clocks = 4 * elements * (2 / 34 + 1 / 38)
    trtllm = attention("mistral-7b-v0.1", "trtllm-0.9")
    assert trtllm == pytest.approx(clocks / (132 * 1.98e9), rel=0.01)
    assert trtllm > 1.2 * attention("mistral-7b-v0.1", "current")
    for model in ("llama-2-70b-hf", "llama-2-7b-hf"):  # groups of 8 and 1
        assert attention(model, "trtllm-0.9", tp=8) == attention(model, "current", tp=8)


def test_all_reduces_of_3_to_8_megabytes_are_slower_in_trtllm_0_9() -> None:
    def reduction(batch: int, engine: str) -> float:
        (phase,) = estimate(
            load("falcon-180b"), Device.load("h100"), phase="decode", batch=batch, seq=128, tp=8, runtime="graph",
            engine=engine,
        ).phases  # fmt: skip
        found = next(one for one in phase.exchanges if one.operator.name.endswith("all_reduce"))
        assert found.expected
        return float(found.expected.value)

    # 8 x 393 kB = 3.1 MB to 8 MB; with 14848 elements of 2 bytes per token these are batches of 106 to 269
    for batch, extra in ((64, 0), (128, 8 * 36.5e-6), (256, 8 * 36.5e-6), (512, 0)):
        assert reduction(batch, "trtllm-0.9") - reduction(batch, "current") == pytest.approx(extra, abs=1e-12)


def test_trtllm_0_9_runs_16_bit_gemms_of_one_hopper_gpu_without_hopper_instructions() -> None:
    """With the A100's parameters, fp16 on one H100 is slower. fp8, 8 GPUs and an A100 are unchanged."""

    def seconds(engine: str, hw: str = "h100", **options: Any) -> float:
        settings = {"phase": "prefill", "batch": 8, "seq": 512, "runtime": "graph", "engine": engine, **options}
        return float(estimate(load("mistral-7b-v0.1"), Device.load(hw), **settings).phases[0].expected.value)

    assert seconds("trtllm-0.9") > 1.1 * seconds("current")
    for options in ({"dtype": "fp8", "activations": "fp16"}, {"hw": "a100"}, {"tp": 8, "seq": 16}):
        assert seconds("trtllm-0.9", **options) == pytest.approx(seconds("current", **options), rel=0.02)


def test_a_note_names_the_parameters_of_16_bit_gemms_in_trtllm_0_9() -> None:
    note = '16-bit GEMMs of engine="trtllm-0.9" on one Hopper GPU use the parameters of a100-sxm-80gb'

    def has_note(**options: Any) -> bool:
        settings = {"hw": "h100", "phase": "decode", "runtime": "graph", "engine": "trtllm-0.9", **options}
        return note in map(str, estimate(load("gpt2-xl"), Device.load(settings.pop("hw")), **settings).notes)

    assert has_note()
    assert has_note(phase="generate", new_tokens=4)
    assert has_note(dtype="fp8", activations="fp16")  # the head's GEMM has 16 bits
    without_note: list[dict[str, Any]] = [
        {"engine": "current"}, {"runtime": "eager"}, {"hw": "a100"}, {"dtype": "fp8"}, {"tp": 5},
    ]  # fmt: skip
    assert not any(has_note(**options) for options in without_note)


@pytest.mark.parametrize(("hw", "has_note"), [("b200", True), ("l40s", True), ("a100", False), ("h100", False)])
def test_a_note_states_that_trtllm_0_9_has_no_parameters_for_a_device(hw: str, has_note: bool) -> None:
    """It was measured on A100, H100 and H200."""
    options = {"phase": "decode", "runtime": "graph", "engine": "trtllm-0.9"}
    notes = [*map(str, estimate(load("llama-3.1-8b"), Device.load(hw), **options).notes)]
    assert any('engine="trtllm-0.9" has no parameters for' in note for note in notes) == has_note
    current = estimate(load("llama-3.1-8b"), Device.load(hw), **(options | {"engine": "current"}))
    assert not any("engine" in str(note) for note in current.notes)


def test_on_a_device_without_parameters_trtllm_0_9_uses_the_gemms_of_current_libraries() -> None:
    def gemms(engine: str) -> list[Any]:
        options = {"phase": "decode", "runtime": "graph", "engine": engine}
        (phase,) = estimate(load("llama-3.1-8b"), Device.load("b200"), **options).phases
        return [one.expected for one in phase.placed if one.operator.kind == "gemm"]

    assert gemms("trtllm-0.9") == gemms("current")


def test_a_sweep_has_the_note_on_16_bit_gemms_in_trtllm_0_9() -> None:
    options = {"phase": ["decode"], "runtime": ["graph"], "engine": ["trtllm-0.9"]}
    notes = roofmodel.sweep("gpt2-xl", "h100", **options).notes
    assert any("use the parameters of a100-sxm-80gb" in str(note) for note in notes)
