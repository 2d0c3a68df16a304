"""Crossovers: derived by hand for kernels, and compared with `estimate` on both sides of each change."""

from __future__ import annotations

import csv
import io
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.explain import crossover
from roofmodel.explain import crossover_answer as views
from roofmodel.report.markdown import markdown
from roofmodel.timing.roofline import place


def found(*arguments: Any, **options: Any) -> dict[str, Any]:
    return roofmodel.crossover(*arguments, **options).to_dict()


def test_square_matrices_on_the_a100_cross_at_602() -> None:
    # 2 n^3 / 312e12 = 3 n^2 2 / 1555e9: n = 3 x 312e12 / 1555e9
    answer = found("matmul", "a100-sxm-40gb", dtype="fp16")
    assert answer["schema"] == "roofmodel.crossover/1"
    assert (answer["variable"], answer["value"], answer["from"], answer["to"]) == ("n", 602, "memory", "compute")
    assert answer["exact"] == pytest.approx(3 * 312e12 / 1555e9, rel=1e-12)
    assert answer["equation"] == "2n³ / 312 TFLOP/s = 6n² / 1.555 TB/s"
    assert answer["latex"] == r"\frac{2n^{3}}{\text{312 TFLOP/s}} = \frac{6n^{2}}{\text{1.555 TB/s}}"


def test_the_crossovers_of_lectures_follow_from_their_assumptions() -> None:
    rows = list(crossover.assumptions(Device.load("a100-sxm-40gb"), "fp16"))
    answers = {(row.matrices, row.element, row.bandwidth, row.pipe): math.ceil(row.exact) for row in rows}
    # matrices x bytes / 2 x peak / bandwidth, as in counting.md
    assert answers == {
        (4, 8, 1.5e12, "tensor_fp16"): 3328,
        (4, 8, 1555e9, "tensor_fp16"): 3211,
        (4, 2, 1.5e12, "tensor_fp16"): 832,
        (4, 2, 1555e9, "tensor_fp16"): 803,
        (3, 2, 1.5e12, "tensor_fp16"): 624,
        (3, 2, 1555e9, "tensor_fp16"): 602,
        (4, 8, 1555e9, "tensor_fp64"): 201,
    }


@pytest.mark.parametrize(
    ("kernel", "dtype", "intensity"),
    [("saxpy", "fp64", "0.0833"), ("triad", "fp64", "0.0833"), ("stencil7", "fp64", "0.438")],
)
def test_kernels_of_one_intensity_never_cross(kernel: str, dtype: str, intensity: str) -> None:
    derivation = roofmodel.crossover(kernel, "v100", dtype=dtype)
    answer = derivation.to_dict()
    assert (answer["value"], answer["exact"], answer["equation"]) == (None, None, None)
    assert (answer["from"], answer["to"]) == ("memory", None)
    assert f"memory-bound at any size n. Arithmetic intensity: {intensity} FLOP/B" in derivation.to_markdown()


def test_a_projection_crosses_at_the_ridge_point() -> None:
    # q projection of a decode of llama 2: 2 B D^2 / P = (2 D^2 + 4 B D) / W, D = 4096
    peak, width, size = 312e12, 2039e9, 4096
    expected = 2 * size**2 / (2 * size**2 * width / peak - 4 * size)
    answer = found("llama-2-7b-hf", "a100", over="batch", op="attention.q")
    assert answer["exact"] == pytest.approx(expected, rel=1e-9)
    assert answer["value"] == math.ceil(expected)


def bounds(model: str, hw: str, **options: Any) -> dict[str | None, str]:
    """Operator -> its bound in `estimate`; None -> the bound of the totals of the phase."""
    (phase,) = roofmodel.estimate(model, hw, **options).to_dict()["phases"]
    device, totals = Device.load(hw), phase["totals"]
    vector = device.vector_pipe("fp16")
    assert vector is not None
    compute = max(totals["matmul_flops"] / device.matmul_pipe("fp16").peak, totals["vector_flops"] / vector.peak)
    of_totals = "compute" if compute > totals["bytes"] / device.bandwidth else "memory"
    return {None: of_totals, **{op["name"]: op["bound"] for op in phase["ops"]}}


@settings(deadline=None, max_examples=6, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    model=st.sampled_from(["gpt2", "llama-3.1-8b", "mixtral-8x7b-v0.1", "gemma-2-9b", "deepseek-v3", "t5-small"]),
    hw=st.sampled_from(["v100", "a100", "h100", "rtx4090", "t4"]),
    over=st.sampled_from(["batch", "seq", "context"]),
    phase=st.sampled_from(["prefill", "decode"]),
    batch=st.integers(1, 64),
    attention=st.sampled_from(["flash", "eager"]),
    data=st.data(),
)
def test_the_bound_changes_at_the_size_at_which_it_changes_in_estimate(
    model: str, hw: str, over: str, phase: str, batch: int, attention: str, data: st.DataObject
) -> None:
    options: dict[str, Any] = {"phase": phase, "attention": attention, "seq": 128}
    if over != "batch":
        options["batch"] = batch
    answer = found(model, hw, over=over, **options)
    subjects = [(None, answer), *((op["name"], op) for op in answer["operators"])]
    names = [name for name, _ in subjects]
    sizes = [2, 10**8, *data.draw(st.lists(st.floats(1, 26).map(lambda power: int(2**power)), min_size=4, max_size=4))]
    estimated = cache(lambda size: bounds(model, hw, **options | {over: size}))
    for op, subject in subjects:
        if names.count(op) > 1 or subject["exact"] == subject["value"]:
            continue
        if subject["value"] is None:  # no crossover: the same bound at all sizes
            for size in sizes:
                assert estimated(size)[op] == subject["from"], (op, size)
            continue
        for size, bound in ((subject["value"] - 1, subject["from"]), (subject["value"], subject["to"])):
            assert estimated(size)[op] == bound, (op, size)


def test_moe_operators_are_solved_by_bisection() -> None:
    # the expected number of distinct experts is not polynomial in the batch
    answer = found("mixtral-8x7b-v0.1", "h100", over="batch", op="expert_down")
    assert answer["solved"] is False
    assert answer["value"] - 1 < answer["exact"] <= answer["value"]


def test_a_size_with_equal_times_is_the_crossover(tmp_path: Path) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text("name: Toy\npipes:\n  fp16: {peak: 100 TFLOP/s}\nmemory:\n  dram: {bandwidth: 1 TB/s}\n")
    answer = found("matmul", file)  # n/3 = 100
    assert (answer["value"], answer["exact"]) == (300, 300.0)


@pytest.mark.parametrize("model", ["gemma-2-2b", "Mistral-7B-v0.1"])
def test_prefills_with_a_sliding_window_are_derived_and_have_a_crossover_over_their_tokens(model: str) -> None:
    value = found(model, "h100", over="seq", op="attention.flash")["value"]
    around = [bounds(model, "h100", phase="prefill", seq=size)["attention.flash"] for size in (value - 1, value)]
    assert around == ["memory", "compute"]
    assert roofmodel.explain(model, op="attention.flash", hw="h100", phase="prefill", seq=5000).to_markdown()


def test_a_phase_lists_its_operators() -> None:
    answer = found("bert-base-uncased", "a100", over="seq")
    assert answer["phase"] == "forward"
    by_name = {op["name"]: op for op in answer["operators"]}
    assert by_name["residual.mlp"]["value"] is None
    assert by_name["mlp.up"]["value"] is not None


def test_over_gpus_only_divisors_are_used_and_estimate_agrees() -> None:
    """Meta-Llama-3-8B has 32 heads and 8 KV heads: 2, 4, 8, ... GPUs."""
    answer = found("Meta-Llama-3-8B", "h100", over="gpus", phase="prefill", batch=4)
    assert [(change["from"], change["to"]) for change in answer["changes"]] == [
        ("compute", "memory"), ("memory", "communication"),
    ]  # fmt: skip
    for change in answer["changes"]:
        for tp, bound in ((change["value"] // 2, change["from"]), (change["value"], change["to"])):
            phase = roofmodel.estimate("Meta-Llama-3-8B", "h100", phase="prefill", batch=4, tp=tp).estimate.phases[0]
            assert place(phase.cost, Device.load("h100"), "fp16").bound == bound
        if change["exact"] is None:
            assert change["value"] // 2 == 8  # the largest size within a node
        else:
            assert change["value"] // 2 <= change["exact"] <= change["value"]


def test_operators_over_gpus_are_those_of_a_sharded_model() -> None:
    answer = found("Meta-Llama-3-8B", "h100", over="gpus", phase="prefill", batch=4)
    by_name = {op["name"]: op for op in answer["operators"]}
    assert by_name["attention.all_reduce"]["from"] == "communication"
    assert (
        by_name["attention.k"]["value"] == 4
    )  # columns of k per GPU: 512 with 2 GPUs, 256 with 4; ridge point 295 FLOP/B


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"over": "batch", "dp": 2}, 'over="batch": dp=2 only splits the batch over replicas; use dp=1'),
        ({"over": "width"}, "unknown value 'width'; known: batch, seq, context, gpus"),
        ({"over": "context", "phase": "train"}, "train reads no KV cache"),
        ({"op": "nothing"}, "unknown operator 'nothing'"),
        ({"model": "resnet-18", "over": "context"}, 'forward reads no KV cache; use over="batch"'),
        ({"model": "softmax"}, "unknown model 'softmax'.* and no kernel of that name; known kernels: matmul, .*saxpy"),
        ({"model": "matmull"}, "and no kernel of that name; did you mean 'matmul'.* known kernels: matmul, "),
    ],
)
def test_an_impossible_crossover_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(roofmodel.RoofError, match=message):
        roofmodel.crossover(options.pop("model", "gpt2"), "a100", **options)


@pytest.mark.parametrize(
    ("options", "notes"),
    [
        ({"over": "batch", "batch": 4, "context": 9}, ["batch is ignored: it is the variable"]),
        ({"over": "seq", "seq": 4, "op": "mlp.up"}, ["seq is ignored: it is the variable"]),
        # 1536 S (S + 1) / 989.4e12 = 6144 S / 3.35e12
        ({"over": "seq", "op": "attention.flash"}, ["warning: prefill reaches 1181 tokens, but openai-community/gpt2 "
         "has positions for 1024; the limit is not enforced"]),
        ({"over": "batch"}, []),
        ({"over": "batch", "context": 1024}, ["warning: decode reaches 1025 tokens, but openai-community/gpt2 has "
         "positions for 1024; the limit is not enforced (context=1023 is within the limit)"]),
    ],
)  # fmt: skip
def test_ignored_options_and_position_limits_are_noted(options: dict[str, Any], notes: list[str]) -> None:
    assert found("gpt2", "h100", **options)["notes"] == notes


def test_operators_of_the_same_name_are_shown_with_their_layers() -> None:
    answer = roofmodel.crossover("resnet-50", "h100", op="stage1")
    text = answer.to_markdown()
    assert "stage1.reduce, layer 0 |" in text
    assert "stage1.reduce, layers 1 to 2 |" in text
    known = [op for op in answer.to_dict()["operators"] if op["name"] == "stage1.reduce"]
    both = roofmodel.crossover("resnet-50", "h100", op="stage1.reduce")
    assert both.to_dict()["operators"] == known
    assert "stage1.reduce, layer 0 |" in both.to_markdown()


def test_the_crossover_of_a_group_is_given_for_the_group_and_for_each_operator() -> None:
    answer = roofmodel.crossover("llama-3.1-8b", "a100", op="mlp", context=512).to_dict()
    assert [op["name"] for op in answer["operators"]] == ["mlp.gate", "mlp.up", "mlp.activation", "mlp.down"]
    # per layer and sequence, 2 bytes per element: three GEMMs with matrices of 4096 x 14336 (2 FLOPs per weight) move
    # 3 (4096 + 14336) elements besides the weights; the activation moves 3 x 14336
    weights, moved = 3 * 4096 * 14336, 3 * (4096 + 14336) + 3 * 14336
    exact = 2 * weights / (2 * weights / 312e12 - 2 * moved / 2.039e12) / 2.039e12
    assert answer["exact"] == pytest.approx(exact)


@pytest.mark.parametrize("context", [128, 512, 2048])
def test_the_dominant_bound_equals_that_of_a_sweep(context: int) -> None:
    options: dict[str, Any] = {"phase": "decode", "context": context}
    answer = roofmodel.crossover("llama-3.1-8b", "a100", over="batch", **options).to_dict()["mostly"]
    rows = roofmodel.sweep("llama-3.1-8b", "a100", batch=list(range(1, 300)), engine="vllm", **options).to_dict()[
        "rows"
    ]
    before = answer["from"]
    changes = {change["value"]: change["to"] for change in answer["changes"]}
    for row in rows:
        before = changes.get(row["batch"], before)
        assert row["bound"] == before, row["batch"]


def test_the_assumptions_are_written_as_markdown() -> None:
    answer = crossover.crossover("matmul", Device.load("a100-sxm-40gb"))
    text = markdown(views.document(answer, views.explained(answer)))
    assert "| 3328 | 3328 |" in text
    assert "| 601.929 | 602 |" in text


def test_an_operators_equation_shows_the_models_symbols_first() -> None:
    answer = crossover.crossover("llama-3.1-8b", Device.load("a100"), op="mlp.up", derive=True)
    text = markdown(views.document(answer, views.explained(answer)))
    assert "&= 2BDF = 117440512B" in text  # 2 x 4096 x 14336
    assert r"&= 2\bigl(BD + BF + DF\bigr) = 36864B + 117440512" in text  # 2 (4096 + 14336), and the matrix in 2 bytes
    assert "hidden_size" in text
    other = crossover.crossover("llama-3.1-8b", Device.load("a100"), op="mlp.up")
    assert "BDF" not in markdown(views.document(other))


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("llama-3.1-8b", {"op": "attention.flash", "over": "seq"}),
        ("mistral-7b-v0.1", {"op": "attention.flash", "over": "seq"}),  # shorter than the window
        ("mixtral-8x7b-v0.1", {"op": "mlp.expert_down"}),
        ("llama-3.1-8b", {"op": "attention.output", "over": "gpus", "batch": 512}),
        ("t5-base", {"op": "mlp.up", "over": "seq", "phase": "prefill"}),
    ],
)
def test_symbols_evaluate_to_the_numbers_of_the_equation(model: str, options: dict[str, Any]) -> None:
    answer = crossover.crossover(model, Device.load("h100-sxm"), derive=True, **options)
    (change,), (derived,) = answer.subject.changes, answer.derived
    symbolic = derived.sections[0].operators[0].symbolic.cost
    for side in change.equation:
        number = side.work.subs(crossover.symbol(crossover.SYMBOLS[answer.variable]), change.value)
        assert float(getattr(symbolic, side.field).subs(derived.values)) == pytest.approx(float(number), rel=1e-12)


def test_in_latex_an_equation_is_a_display_equation() -> None:
    text = roofmodel.crossover("matmul", "a100").to_latex()
    assert r"&\frac{2n^{3}}{\text{312 TFLOP/s}} = \frac{6n^{2}}{\text{2.039 TB/s}}" in text
    assert r"\text{n} &= 459.049" in text
    assert "at} &=" not in text
    assert "compute-bound from n = 460." in text


def test_the_title_states_fixed_sizes_and_the_answer_states_the_sums() -> None:
    """Eight GeForce GPUs communicate over PCIe: 32 GB/s per direction against 1008 GB/s of DRAM bandwidth."""
    shared = roofmodel.crossover("llama-2-70b-hf", "rtx4090", over="batch", tp=8, phase="prefill", seq=64).to_markdown()
    assert "prefill, fp16, seq 64, one of 8 GPUs (tp 8), on" in shared
    assert "communication-bound from batch = 3" in shared
    assert "All operators together (total FLOPs, bytes and bytes sent): memory-bound; " in shared
    alone = roofmodel.crossover("gpt2", "a100", over="batch").to_markdown()
    assert "decode, fp16, context 1024, on" in alone
    assert "bytes sent" not in alone


def test_kernels_on_vectors_and_grids_are_in_fp64_by_default_and_matrices_in_fp16() -> None:
    """Williams et al. and STREAM count 8 bytes a number: saxpy has 2 FLOPs in 24 bytes."""
    assert roofmodel.crossover("saxpy", "a100").to_dict()["dtype"] == "fp64"
    assert roofmodel.crossover("matmul", "a100").to_dict()["dtype"] == "fp16"
    assert roofmodel.explain("stencil7").to_dict()["dtype"] == "fp64"


def test_the_picture_shows_each_change_with_its_equation(tmp_path: Path) -> None:
    report = roofmodel.crossover("matmul", "a100-sxm-40gb", dtype="fp16")
    text = report.save(tmp_path / "crossover.svg").read_text("utf-8")
    for shown in ("602", "2n³ / 312 TFLOP/s = 6n² / 1.555 TB/s", "compute", "memory"):
        assert shown in text
    assert report.save(tmp_path / "crossover.md").read_text("utf-8").startswith("# matmul")


def test_an_fft_is_compute_bound_from_where_its_logarithm_reaches_the_ridge_point() -> None:
    # 5 n log2(n) / 1.29e12 = 32 n / 1008e9: log2(n) = 32 / 5 x 1.29e12 / 1008e9
    answer = found("fft", "rtx4090", dtype="fp64")
    peak = Device.load("rtx4090").vector_pipe("fp64")
    assert peak is not None
    assert answer["exact"] == pytest.approx(2 ** (32 / 5 * peak.peak / 1008e9), rel=1e-6)
    assert answer["equation"] == "5n·log2(n) / 1.29 TFLOP/s = 32n / 1.008 TB/s"


def test_a_search_that_ends_before_the_change_says_where_it_ended() -> None:
    # the intensity 5 log2(n) / 32 reaches the ridge point 9.7e12 / 2039e9 at n = 1.5e9, beyond the largest n
    report = roofmodel.crossover("fft", "a100", dtype="fp64")
    assert report.to_dict()["value"] is None
    assert "memory-bound up to n = 1 000 000 000, the largest n searched" in report.to_markdown()


def test_the_picture_names_a_change_without_its_equation_where_it_does_not_fit(tmp_path: Path) -> None:
    report = roofmodel.crossover("gpt2-xl", "a100", op="mlp")
    text = report.save(tmp_path / "crossover.svg").read_text("utf-8")
    assert "compute-bound from batch = 196<" in text


@pytest.mark.parametrize(
    ("model", "op", "named"),
    [
        ("gpt2", "attention.qkv", "attention.qkv"),
        ("gpt2", "mlp", "mlp"),
        ("gpt2", None, ""),
        ("matmul", None, "matmul"),
    ],
)
def test_the_first_row_names_what_was_asked_for(model: str, op: str | None, named: str) -> None:
    first = csv.DictReader(io.StringIO(roofmodel.crossover(model, "a100", op=op).text("csv")))
    assert next(first)["operator"] == named


def test_the_second_verdict_is_left_out_where_it_is_the_first() -> None:
    """By the totals a prefill of llama-3.1-8b is compute-bound from another length than by most of its operators."""
    words = "With a bound for each operator"
    assert words not in roofmodel.crossover("gpt2", "a100", phase="decode").to_markdown()
    prefill = roofmodel.crossover("llama-3.1-8b", "h100", phase="prefill", over="seq")
    (change,) = prefill.to_dict()["mostly"]["changes"]
    assert change["value"] != prefill.to_dict()["value"]
    assert f"most of the time is memory-bound, and compute-bound from seq = {change['value']}." in prefill.to_markdown()
