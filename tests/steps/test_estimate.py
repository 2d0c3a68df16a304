"""Estimates: times, memory, notes and errors."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.errors import WorkloadError
from roofmodel.estimate.answer import describe_largest
from roofmodel.models import hub
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES
from roofmodel.steps.estimate import Estimate, describe_workload, estimate
from roofmodel.steps.placed import by_kernel
from tests import draws

MIXED: dict[str, Any] = {"dtype": "fp8", "activations": "fp16"}
TOY = Path(__file__).parents[2] / "examples" / "toy-gpu.yaml"


def run(model: str = "gpt2-xl", hw: str = "a100", **options: Any) -> Estimate:
    return estimate(hub.load(model), Device.load(hw), **options)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_operator_of_every_family_has_bound_and_expected_time(model_type: str) -> None:
    config = draws.config(model_type, random.Random(1))
    device = Device.load("h100")
    for phase in (None, "train"):
        for report in estimate(architecture(config, "x", "x"), device, phase=phase).phases:
            for placed in report.placed:
                assert placed.expected is not None, placed.operator.name
                assert 0 <= placed.expected.low <= placed.expected.value <= placed.expected.high
            for row in chain.from_iterable(by_kernel(report.placed, device.bandwidth)):
                if row.kernel_placement is None:
                    assert row.fused_into
                    assert row.expected is None
                else:
                    assert row.expected is not None
                    assert row.expected.value >= row.kernel_placement.bound_seconds >= 0, row.operator.name


def test_source_and_prompt_of_an_encoder_decoder_have_equal_default_lengths() -> None:
    work = run("t5-small", seq=300).workload
    assert (work.seq, work.decoder_seq) == (300, 300)
    work = run("t5-small", seq=300, decoder_seq=5).workload
    assert (work.seq, work.decoder_seq, work.decode_context) == (300, 5, 5)
    for limited, expected in (("opus-mt-en-de", (512, 512)), ("whisper-tiny", (1500, 448))):
        work = run(limited).workload
        assert (work.seq, work.decoder_seq) == expected


def test_memory_of_a_decode_includes_the_weights_of_the_encoder() -> None:
    alone, both = run("t5-small", phase="decode"), run("t5-small")
    assert alone.parameters == both.parameters == 60_506_624
    assert alone.memory.weights == both.memory.weights == 2 * 60_506_624  # fp16


def test_a_source_of_an_unusual_length_gives_a_warning() -> None:
    (padded,) = [
        note for note in map(str, run("whisper-tiny", seq=10, decoder_seq=4, phase="prefill").notes) if "pads" in note
    ]
    assert "1500" in padded
    (long,) = [note for note in map(str, run("opus-mt-en-de", seq=513, decoder_seq=4).notes) if "warning" in note]
    assert "seq=512" in long


def test_a_decoder_has_two_phases_and_an_encoder_one() -> None:
    assert [p.step.phase for p in run().phases] == ["prefill", "decode"]
    assert [p.step.phase for p in run("bert-base-uncased").phases] == ["forward"]


def test_the_prompt_defaults_to_1024_or_the_models_limit() -> None:
    assert run("llama-3.1-8b").workload.seq == 1024
    assert run("bert-base-uncased").workload.seq == 512
    # RoBERTa numbers positions from pad_token_id + 1 = 2: 514 rows, 512 tokens
    assert run("roberta-base").workload.seq == 512


def test_gemms_may_use_a_narrower_format_than_activations() -> None:
    """GPT-2: 12 layers with 4 matrices of 768 x 768 (3 fused) and 2 of 768 x 3072 in 8 bits; all else in 16 bits."""
    mixed, half = (run("gpt2", "h100", phase="prefill", **options) for options in (MIXED, {}))
    assert mixed.memory.weights == half.memory.weights - 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    assert mixed.memory.kv_cache == half.memory.kv_cache / 2
    found, plain = ({one.operator.name: one for one in each.phases[0].placed} for each in (mixed, half))
    assert found["norm.mlp"].cost == plain["norm.mlp"].cost
    up, wide = found["mlp.up"], plain["mlp.up"]
    assert up.cost.bytes == wide.cost.bytes - 12 * 768 * 3072
    assert up.placement.compute_seconds == pytest.approx(wide.placement.compute_seconds / 2, rel=1e-3)


def test_engines_quantize_in_the_kernel_that_writes_the_input(tmp_path: Path) -> None:
    """The same kernels, with and without a kernel of its own that quantizes."""
    unfused = tmp_path / "unfused.yaml"
    unfused.write_text("like: trtllm\nfuses: []\n", encoding="utf-8")
    separate, fused = (
        next(one.expected for one in found.phases[0].placed if one.operator.name == "mlp.down")
        for engine in (str(unfused), "trtllm")
        for found in [run("llama-3.1-8b", "h100", phase="prefill", seq=4096, engine=engine, **MIXED)]
    )
    assert separate is not None
    assert fused is not None
    # 4096 x 14336 elements, read in 16 bits and written in 8: 176 MB, at 3.35 TB/s or less
    assert separate.value - fused.value > 3 * 4096 * 14336 / 3.35e12


def test_the_phase_is_the_sum_of_its_operators_over_their_occurrences() -> None:
    for phase in run(batch=3, seq=100).phases:
        assert phase.bound_seconds == pytest.approx(sum(p.seconds for p in phase.placed), rel=1e-12)
        assert phase.cost.matmul_flops == sum(p.operator.count * p.operator.matmul_flops for p in phase.placed)


def test_the_bound_of_every_operator_is_its_largest_ceiling_time() -> None:
    for phase in run().phases:
        for placed in phase.placed:
            cost = placed.placement.cost
            roofs = (cost.matmul_flops / 312e12, cost.vector_flops / 19.5e12, cost.bytes / 2039e9)
            assert placed.placement.bound_seconds == pytest.approx(max(roofs), rel=1e-12)


def test_throughput_counts_the_new_tokens() -> None:
    totals = roofmodel.estimate("gpt2-xl", "a100", batch=4, seq=256).totals
    for phase, tokens in (("prefill", 4 * 256), ("decode", 4)):
        seconds = totals[phase]["bound_seconds"]
        assert totals[phase]["bound_tokens_per_second"] == pytest.approx(tokens / seconds)


def test_flash_attention_counts_fewer_flops_and_states_the_eager_count() -> None:
    flash, eager = run(attention="flash").phases[0], run(attention="eager").phases[0]
    assert flash.cost.matmul_flops < eager.cost.matmul_flops == flash.all_pairs_matmul_flops
    # 48 layers x 25 heads x 2 GEMMs x 2 x 64 FLOPs, for the 1024 x 1023 / 2 masked pairs
    masked = 48 * 25 * 2 * 2 * 64 * (1024 * 1023 // 2)
    assert eager.cost.matmul_flops - flash.cost.matmul_flops == masked


def test_logits_of_only_the_last_position_reduce_the_flops_of_the_head() -> None:
    last, everything = run(logits="last").phases[0], run(logits="all").phases[0]
    assert everything.cost.matmul_flops - last.cost.matmul_flops == 2 * 1023 * 1600 * 50257


@pytest.mark.parametrize("options", [{}, {"context": 8000, "attention": "eager"}])
def test_memory_is_that_of_the_phase_with_the_largest_peak(options: dict[str, Any]) -> None:
    """Not the sum of the peaks of all roles: the peaks of activations (prefill) and cache (decode) differ in time."""
    both = run(**options).memory
    prefill = run(phase="prefill", attention=options.get("attention", "flash")).memory
    decode = run(phase="decode", **options).memory
    assert both in (prefill, decode)
    assert both.total == max(prefill.total, decode.total)
    assert decode.kv_cache == 2 * (options.get("context", 1024) + 1) * 1600 * 48 * 2


@pytest.mark.parametrize("architectures", [["BertForMaskedLM"], ["BertForPreTraining"], ["BertModel"]])
def test_fp16_weights_are_two_bytes_per_parameter_including_unused_ones(architectures: list[str]) -> None:
    config = {
        "model_type": "bert", "architectures": architectures, "hidden_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 3, "vocab_size": 99, "intermediate_size": 40, "tie_word_embeddings": False,
    }  # fmt: skip
    report = estimate(architecture(config, "x", "x"), Device.load("a100"))
    assert report.memory.weights == 2 * report.parameters


@pytest.mark.parametrize(("model", "hw", "fits"), [("gpt2-xl", "a100", True), ("llama-3.1-70b", "a100", False)])
def test_fits_compares_with_the_devices_memory(model: str, hw: str, fits: bool) -> None:
    assert run(model, hw).fits is fits


def test_a_70b_model_fits_with_int4_weights_and_their_scales() -> None:
    report = run("llama-3.1-70b", weights="int4")
    table = 128256 * 8192  # token table, head and norms stay in fp16
    norms = (2 * 80 + 1) * 8192
    matrices = 70_553_706_496 - 2 * table - norms
    assert report.memory.weights == matrices * 532 // 128 // 8 + 2 * (2 * table + norms)  # 128 x 4 + 16 + 4 bits
    assert report.fits is True


def test_a_length_beyond_the_positions_is_counted_with_a_warning_that_states_the_limit() -> None:
    (note,) = [n for n in map(str, run(seq=2000).notes) if n.startswith("warning")]
    assert "prefill reaches 2000 and decode 2001 tokens" in note
    assert "positions for 1024" in note
    assert not [n for n in map(str, run(seq=1000).notes) if n.startswith("warning")]
    assert not [n for n in map(str, run("bloom-560m", seq=100_000).notes) if n.startswith("warning")]  # ALiBi: no limit


@pytest.mark.parametrize(
    ("model", "options", "word"),
    [
        ("gpt2", {"mla": "naive"}, "mla"),
        ("gpt2", {"decoder_seq": 7}, "decoder_seq"),
        ("gpt2", {"image": 224}, "image"),
        ("gpt2", {"new_tokens": 5}, "new_tokens"),
        ("gpt2", {"recompute": "full"}, "recompute"),
        ("gpt2", {"optimizer": "sgd"}, "optimizer"),
        ("gpt2", {"states": "bf16"}, "states"),
        ("gpt2", {"lora": 8}, "lora"),
        ("bert-base-uncased", {"context": 5}, "context"),
        ("bert-base-uncased", {"kv": "fp8"}, "kv"),
        ("bert-base-uncased", {"logits": "last"}, "logits"),
    ],
)
def test_an_option_that_does_not_apply_is_ignored_with_a_note(model: str, options: dict[str, Any], word: str) -> None:
    report, plain = run(model, **options), run(model)
    assert report.phases[0].cost == plain.phases[0].cost
    assert [note for note in map(str, report.notes) if note.startswith(f"{word} is ignored")]


def test_defaults_of_options_that_do_not_apply_have_no_note() -> None:
    quiet = run("gpt2", seq=10, mla="absorbed", decoder_seq=None, image=None, engine="torch", recompute="none", tp=1)
    assert [note for note in map(str, quiet.notes) if "ignored" in note] == []


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ({"batch": 0}, ["batch", "0", "from 1"]),
        ({"batch": 2.0}, ["batch", "2.0"]),
        ({"batch": True}, ["batch", "True"]),
        ({"seq": -3}, ["seq", "-3"]),
        ({"seq": 2**41}, ["seq", str(2**41)]),
        ({"context": -1}, ["context", "-1", "from 0"]),
        ({"dtype": "fp12"}, ["dtype", "'fp12'", "fp16"]),
        ({"dtype": "int4"}, ["dtype", "'int4'"]),  # only a storage format
        ({"activations": "fp8"}, ['activations="fp8"', 'dtype="fp16"', 'try dtype="fp8"']),
        ({"activations": "int4"}, ["activations", "'int4'", "fp16"]),
        ({"weights": "int3"}, ["weights", "'int3'", "int4"]),
        ({"attention": "flsh"}, ["attention", "'flash'"]),
        ({"logits": "first"}, ["logits", "last, all"]),
        ({"phase": "prefil"}, ["phase", "'prefill'"]),
        ({"phase": "train", "dtype": "int8"}, ['dtype="int8": training in int8', 'dtype="bf16"', 'dtype="fp8"']),
        ({"phase": "train", "weights": "int4"}, ['weights="int4"', 'weights="bf16"']),
        ({"phase": "train", "optimizer": "adma"}, ["optimizer", "'adam'"]),
        ({"phase": "train", "recompute": "half"}, ["recompute", "none, selective, full"]),
        ({"phase": "train", "states": "fp8"}, ["states", "fp32, bf16, int8"]),
        ({"phase": "train", "optimizer": "adam8bit", "states": "bf16"}, ['states="bf16"', "int8", 'optimizer="adam"']),
        ({"phase": "train", "weights": "int4"}, ["weights", "lora=16"]),
        ({"phase": "train", "lora": 0}, ["lora", "from 1"]),
        ({"phase": "train", "lora_targets": "q_proj"}, ['lora_targets="q_proj"', "lora=16"]),
        ({"phase": "train", "lora": 8, "tp": 2}, ["lora=8", "tp=1"]),
        ({"phase": "train", "lora": 8, "lora_targets": "o_prj"}, ["lora_targets", "'o_prj'", "'o_proj'", "all-linear"]),
        ({"measured": "3s"}, ['measured="3s"', 'phase="train"']),
        ({"phase": "train", "measured": "3images/s"}, ["measured", "7.4s", "12000tokens/s"]),
        ({"phase": "train", "measured": "0tokens/s"}, ["measured", "7.4s", "12000tokens/s"]),
        ({"phase": "train", "measured": -3}, ["measured", "above 0", "7.4s"]),
        ({"mla": "fast"}, ["mla", "absorbed, naive"]),
        ({"tp": 0}, ["tp", "0", "from 1"]),
        ({"tp": 5}, ["tp=5", "12 heads", "3072 columns of the MLP", "try tp=1, 2, 3, 4, 6, 12"]),
        ({"dp": 2}, ["dp=2", "batch=1", "try batch=2"]),
        ({"dp": 4, "batch": 6}, ["dp=4", "try batch=4 or batch=8"]),
        ({"pp": 13}, ["pp=13", "12 layers", "at most pp=12 works"]),
        ({"micro_batch": 2}, ["micro_batch=2", "batch=1", "try batch=2"]),
        ({"phase": "generate", "new_tokens": 0}, ["new_tokens", "0", "from 1"]),
        ({"bach": 2}, ["'bach'", "'batch'"]),
    ],
)
def test_invalid_option_values_are_refused(options: dict[str, Any], fragments: list[str]) -> None:
    with pytest.raises(WorkloadError) as caught:
        run("gpt2", **options)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_generation_is_one_phase_that_also_states_its_cost_without_a_cache() -> None:
    (phase,) = roofmodel.estimate("gpt2", "a100", phase="generate", seq=20, new_tokens=30).to_dict()["phases"]
    assert {op["stage"] for op in phase["ops"]} == {"prefill", "decodes"}
    assert {op["count"] for op in phase["ops"] if op["name"] == "mlp.up"} == {12, 12 * 30}
    for key in ("matmul_flops", "vector_flops"):
        assert sum(op["count"] * op[key] for op in phase["ops"]) == phase["totals"][key] < phase["without_cache"][key]
    assert phase["totals"]["bound_tokens_per_second"] == pytest.approx(30 / phase["totals"]["bound_seconds"])


def test_the_warning_of_a_generation_beyond_the_positions_states_the_longest_prompt() -> None:
    (warning,) = [n for n in map(str, run(phase="generate", seq=1000, new_tokens=100).notes) if n.startswith("warning")]
    assert "1100 tokens" in warning
    assert "(seq=924 is within the limit)" in warning


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({}, []),  # a prompt of 1024 tokens, then a decode
        ({"seq": 1024}, []),
        ({"context": 1024}, ["decode reaches 1025 tokens"]),
        ({"seq": 1025}, ["prefill reaches 1025 and decode 1026 tokens"]),
        ({"phase": "decode", "context": 1024}, ["decode reaches 1025 tokens"]),
    ],
)
def test_only_given_lengths_have_a_warning(options: dict[str, Any], warned: list[str]) -> None:
    warnings = [note for note in map(str, run("gpt2", **options).notes) if note.startswith("warning: ")]
    assert [note.removeprefix("warning: ").partition(", but")[0] for note in warnings] == warned
    assert all("has positions for 1024; the limit is not enforced" in note for note in warnings)


def test_a_training_step_has_its_stages_and_the_memory_of_each_role() -> None:
    document = roofmodel.estimate("gpt2", "a100", phase="train", attention="eager", recompute="full").to_dict()
    (phase,) = document["phases"]
    work = document["workload"]
    assert (phase["phase"], work["optimizer"], work["recompute"], work["logits"]) == ("train", "adam", "full", "all")
    assert list(dict.fromkeys(op["stage"] for op in phase["ops"])) == [
        "forward", "recomputation", "backward", "optimizer",
    ]  # fmt: skip
    assert document["model"]["parameters"] == 124_439_808
    memory = document["memory"]
    assert (memory["weights"], memory["gradients"], memory["optimizer"]) == tuple(n * 124_439_808 for n in (2, 2, 12))
    roles = ("weights", "kv_cache", "activations", "gradients", "optimizer", "logits", "other")
    assert memory["total"] == sum(memory[role] for role in roles)


@pytest.mark.parametrize("model", ["bert-base-uncased", "falcon-mamba-7b", "resnet-18"])
def test_encoders_state_space_models_and_convolutional_networks_have_a_training_step(model: str) -> None:
    (phase,) = run(model, phase="train").phases
    assert {placed.operator.stage for placed in phase.placed} == {"forward", "backward", "optimizer"}


def test_a_measured_step_has_its_rate_and_mfu_and_its_ratio_to_the_expected_step() -> None:
    asked: dict[str, Any] = {"phase": "train", "batch": 8, "dp": 2, "seq": 1024, "dtype": "bf16"}
    plain = roofmodel.estimate("gpt2-xl", "a100", **asked).totals["train"]
    for given in ("2s", 2, "2048tokens/s", "2.048k tokens/s"):  # 8 x 1024 tokens in 2 s on 2 GPUs
        report = roofmodel.estimate("gpt2-xl", "a100", **asked, measured=given)
        measured = report.totals["train"]["measured"]
        assert measured["step_seconds"] == pytest.approx(2)
        assert measured["tokens_per_second_per_gpu"] == pytest.approx(2048)
        assert measured["mfu"] == pytest.approx(plain["mfu"] * plain["expected_seconds"] / 2)
        assert measured["to_expected"] == pytest.approx(2 / plain["expected_seconds"])
        assert report.to_dict()["phases"][0]["totals"]["measured"] == measured
    assert "2.05 k tokens/s per GPU, MFU" in str(report.text("markdown"))
    assert "measured" not in plain


def test_a_server_has_no_measured_step() -> None:
    with pytest.raises(WorkloadError, match="does not apply to phase"):
        roofmodel.estimate("gpt2", "h100", phase="serve", concurrency=1, isl=8, osl=8, measured="3s")


def test_a_measured_step_of_images_has_no_token_rate() -> None:
    asked: dict[str, Any] = {"phase": "train", "batch": 32}
    totals = roofmodel.estimate("resnet-50", "v100", **asked, measured="1s").totals["train"]["measured"]
    assert totals["tokens_per_second_per_gpu"] is None
    with pytest.raises(WorkloadError, match="reads no tokens"):
        roofmodel.estimate("resnet-50", "v100", **asked, measured="100tokens/s")


@pytest.mark.parametrize(
    ("model", "why"), [("resnet-50", "convolutional network"), ("flan-t5-large", "encoder-decoder")]
)
def test_models_without_adapters_are_an_error(model: str, why: str) -> None:
    with pytest.raises(WorkloadError, match=why):
        run(model, phase="train", lora=8)


def test_documents_state_the_adapters_in_effect() -> None:
    options: dict[str, Any] = {"phase": "train", "dp": 2, "batch": 2}
    plain, options = roofmodel.estimate("gpt2", "a100", **options), options | {"lora": 8}
    for given, targets in ((None, "all-linear"), ("qkv_proj,o_proj", "qkv_proj+o_proj")):
        report = roofmodel.estimate("gpt2", "a100", **options, lora_targets=given)
        workload = report.to_dict()["workload"]
        assert (workload["lora"], workload["lora_targets"]) == (8, targets)
        assert "LoRA of rank 8 on" in str(report.text("markdown"))
        assert report.totals["train"]["bound_seconds"] < plain.totals["train"]["bound_seconds"]
        assert report.totals["train"]["expected_seconds"] > report.totals["train"]["bound_seconds"]


def test_documents_state_the_format_of_the_moments_in_effect() -> None:
    for options, states in (
        ({}, "fp32"), ({"optimizer": "adam8bit"}, "int8"), ({"states": "bf16"}, "bf16"), ({"optimizer": "sgd"}, None),
    ):  # fmt: skip
        assert roofmodel.estimate("gpt2", "a100", phase="train", **options).to_dict()["workload"]["states"] == states


def test_training_notes_ignored_options_and_options_without_effect() -> None:
    notes = [*map(str, run("gpt2", phase="train", context=5, kv="fp8", recompute="selective").notes)]
    for beginning in ("context is ignored", "kv is ignored", 'recompute="selective" changes nothing'):
        assert [note for note in notes if note.startswith(beginning)]
    (reason,) = [
        n for n in map(str, run("mamba-130m-hf", phase="train", recompute="selective").notes) if "recompute" in n
    ]
    assert reason.endswith("has no attention")


def test_a_decode_may_start_from_an_empty_cache() -> None:
    decode = run("gpt2", phase="decode", context=0).phases[0]
    assert decode.step.context == 0
    assert decode.cost.cache_bytes == 2 * 1 * 768 * 12 * 2  # the new token's own keys and values


def test_without_calibration_expected_times_are_none_with_a_note() -> None:
    report = roofmodel.estimate("gpt2", TOY).to_dict()
    for phase in report["phases"]:
        for key in ("expected_seconds", "expected_low_seconds", "expected_high_seconds", "tokens_per_second", "mfu"):
            assert phase["totals"][key] is None
    assert report["hardware"]["calibrated"] is False
    assert any("is not calibrated, so it has no expected times" in note for note in report["notes"])


@pytest.mark.parametrize("phase", ["prefill", "decode", "forward", "train", "generate"])
@pytest.mark.parametrize("model", ["gpt2", "llama-3.1-8b", "mixtral-8x7b-v0.1", "mamba-130m-hf", "deepseek-v2-lite"])
def test_an_expected_time_is_the_sum_of_its_kernels_and_its_host_and_above_the_bound(model: str, phase: str) -> None:
    engine = {"engine": "torch", "engine_option": "launch=graph"} if phase == "train" else {"engine": "vllm@0.12"}
    for totals, ops in (
        (found["totals"], found["ops"])
        for found in roofmodel.estimate(model, "a100", phase=phase, seq=64, **engine).to_dict()["phases"]
    ):
        steps, of_engine = {"train": 0, "generate": 1 + 128}.get(phase, 1), Engine.load("vllm@0.12").host
        host = steps * (of_engine.step + of_engine.sequence)
        kernels = sum(op["count"] * op["expected_seconds"] for op in ops if not op["fused_into"])
        assert totals["expected_seconds"] == pytest.approx(kernels + host)
        assert totals["bound_seconds"] <= totals["expected_low_seconds"] - host <= kernels
        assert kernels <= totals["expected_high_seconds"] - host
        assert 0 < totals["mfu"] < 1
        assert 0 < totals["mbu"] < 1
        assert totals["kernels"] == sum(op["count"] for op in ops)


def test_mfu_counts_unmasked_or_all_pairs_and_hfu_counts_executed_flops() -> None:
    """MFU without masked pairs, `mfu_all_pairs` with them (PaLM, appendix B); HFU counts executed FLOPs.

    GPT-2 on 2 × 128 tokens: 12 layers with 12 × 768² weights, a head of 768 × 50257. A GEMM of attention over n pairs
    of tokens has 2 × 768 n FLOPs. MFU: 2 GEMMs forward and 4 backward, over 2 × 128 × 129 / 2 or 2 × 128² pairs. HFU:
    2 more with recomputation and 5 backward, because flash attention recomputes the scores, over the unmasked pairs.
    """
    layers, head = 2 * 256 * 12 * 12 * 768**2, 2 * 256 * 768 * 50257
    all_pairs, unmasked = (12 * 2 * 768 * pairs for pairs in (2 * 128**2, 128 * 129))
    cases: list[tuple[dict[str, Any], int]] = [
        ({"recompute": "full"}, 4 * layers + 3 * head + (2 + 2 + 5) * unmasked),
        ({"recompute": "full", "attention": "eager"}, 4 * layers + 3 * head + (2 + 2 + 4) * all_pairs),
        ({}, 3 * (layers + head) + (2 + 5) * unmasked),
    ]
    for asked, executed in cases:
        totals = roofmodel.estimate("gpt2", "a100", phase="train", batch=2, seq=128, **asked).totals["train"]
        done = totals["expected_seconds"] * 312e12
        assert totals["mfu"] * done == pytest.approx(3 * (layers + head) + 6 * unmasked)
        assert totals["mfu_all_pairs"] * done == pytest.approx(3 * (layers + head) + 6 * all_pairs)
        assert totals["hfu"] * done == pytest.approx(executed)


@pytest.mark.parametrize("layout", [{"pp": 4}, {"pp": 2, "tp": 2}, {"dp": 4}, {"pp": 3, "attention": "eager"}])
def test_mfu_counts_the_whole_model_over_all_gpus(layout: dict[str, Any]) -> None:
    """The layout divides the FLOPs of the model over its GPUs, also where one stage has the head and takes longer."""
    same: dict[str, Any] = {"phase": "train", "dtype": "bf16", "batch": 24, "seq": 512, "micro_batch": 1}
    alone = roofmodel.estimate("llama-3.2-1b", "h100", **same).totals["train"]
    spread = roofmodel.estimate("llama-3.2-1b", "h100", **same, **layout).totals["train"]
    gpus = layout.get("tp", 1) * layout.get("pp", 1) * layout.get("dp", 1)
    for key in ("mfu", "mfu_all_pairs"):
        assert spread[key] * spread["expected_seconds"] * gpus == pytest.approx(alone[key] * alone["expected_seconds"])
    assert spread["mfu"] <= spread["hfu"] <= 1


@pytest.mark.parametrize(
    ("model", "phase"), [("deepseek-v3.2", "train"), ("deepseek-v3.2", "prefill"), ("MiniMax-M3", "prefill")]
)
def test_attention_to_selected_keys_has_no_masked_pairs_to_count(model: str, phase: str) -> None:
    options: dict[str, Any] = {"tp": 4, "phase": phase, "dtype": "bf16", "seq": 8192}
    report = roofmodel.estimate(model, "b300", **options)
    assert report.totals[phase]["mfu_all_pairs"] is None
    assert report.totals[phase]["mfu"] > 0
    assert "masked pairs" not in report.text("markdown")


def test_mfu_is_below_100_percent_where_that_of_all_pairs_is_above() -> None:
    """Llama 3.1 8B, 32 layers: Q and output 4096², K and V 4096 × 1024, MLP 3 × 4096 × 14336; head of one token."""
    seq = 131072
    totals = roofmodel.estimate("llama-3.1-8b", "h100", phase="prefill", seq=seq, engine="vllm").totals["prefill"]
    weights = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    attention = 32 * 2 * 2 * 4096 * seq * (seq + 1) // 2
    executed = 2 * seq * weights + attention + 2 * 4096 * 128256
    assert totals["hfu"] * totals["expected_seconds"] * 989.4e12 == pytest.approx(executed)
    assert totals["mfu"] == totals["hfu"] < 1 < totals["mfu_all_pairs"]


def test_an_eager_step_may_be_launch_bound() -> None:
    """A decode of gpt2 has about 156 small kernels. The host takes 40 us for each launch, longer than any kernel."""
    (eager,) = run("gpt2", phase="decode", seq=8, engine="torch").phases
    (graph,) = run("gpt2", phase="decode", seq=8, engine="vllm").phases
    assert eager.host_bound
    assert not graph.host_bound
    assert eager.expected is not None
    assert graph.expected is not None
    assert eager.expected.value == pytest.approx(40e-6 * eager.kernels)
    assert graph.expected.value < eager.expected.value
    assert eager.bound_seconds == graph.bound_seconds


@pytest.mark.parametrize("model", ["olmoe-1b-7b-0924", "mixtral-8x7b-v0.1", "deepseek-v2-lite"])
def test_gradients_of_expert_gemms_take_about_as_long_as_the_gemms(model: str) -> None:
    """Both gradients have the FLOPs of the forward GEMM. A wrong GEMM shape made them four times as slow."""
    (train,) = run(model, phase="train", seq=4096).phases
    seconds = {p.operator.name: p.expected.value for p in train.placed if p.expected}
    forward = [name for name in seconds if "expert_" in name and not name.endswith(("activation", "grad"))]
    gemms = [name for name in forward if f"{name}.grad_input" in seconds]
    assert gemms
    for name in gemms:
        for gradient in ("grad_input", "grad_weight"):
            assert 0.4 < seconds[f"{name}.{gradient}"] / seconds[name] < 2.5


@pytest.mark.parametrize("launch", ["12us", "12 µs"])
def test_a_given_launch_overhead_replaces_that_of_the_engine(launch: str) -> None:
    (usual,) = run("gpt2", phase="decode", seq=8, engine="torch").phases
    (slow,) = run("gpt2", phase="decode", seq=8, engine="torch", engine_option={"launch": launch}).phases
    assert usual.expected == pytest.approx((usual.kernels * 40e-6, usual.kernels * 20e-6, usual.kernels * 60e-6))
    assert slow.kernels == usual.kernels
    assert slow.kernel_seconds == usual.kernel_seconds
    assert slow.expected is not None
    assert slow.expected.value == pytest.approx(slow.kernels * 12e-6)
    assert slow.expected.low == pytest.approx(slow.kernels * 12e-6)  # a step takes at least as long as its launches
    assert slow.expected.high == pytest.approx(slow.kernels * 12e-6 * 1.17)  # 15 passes of BERT, 90 % of them


def test_without_launch_overhead_a_step_takes_its_kernel_time() -> None:
    for launch in ("0 us", "graph"):
        (fast,) = run("gpt2", phase="decode", seq=8, engine="torch", engine_option=f"launch={launch}").phases
        assert fast.expected == fast.kernel_seconds


def test_a_launch_bound_step_has_the_interval_of_launch_overhead() -> None:
    (eager,) = run("gpt2", phase="decode", seq=8, engine="torch").phases
    assert eager.expected is not None
    assert eager.expected.low < eager.expected.value < eager.expected.high


def test_transferred_parameters_give_a_note() -> None:
    assert any(
        "a100-sxm-80gb parameters scaled to its datasheet are used" in note
        for note in map(str, run("gpt2", hw="v100").notes)
    )
    assert any(
        "h100-sxm parameters scaled to its datasheet are used" in note
        for note in map(str, run("gpt2", hw="h200").notes)
    )
    assert not any("parameters scaled" in note for note in map(str, run("gpt2", hw="a100").notes))


@pytest.mark.parametrize(
    ("model", "options", "kinds"),
    [
        ("resnet-50", {}, "elementwise"),
        ("gpt2", {"phase": "prefill"}, "prefill attention and elementwise"),
        ("gpt2", {"phase": "decode"}, "decode attention and elementwise"),
        ("mixtral-8x7b-v0.1", {"phase": "decode"}, "decode attention, MoE and elementwise"),
    ],
)
def test_the_note_on_transferred_parameters_names_the_kernels_of_the_model(
    model: str, options: dict[str, Any], kinds: str
) -> None:
    """The V100's file has GEMMs of its own."""
    notes = map(str, run(model, hw="v100", **options).notes)
    assert [note.split(" kernels are")[0] for note in notes if "parameters scaled" in note] == [kinds]


@pytest.mark.parametrize(("layout", "communicates"), [({}, False), ({"tp": 2}, True), ({"pp": 2}, True)])
def test_the_notes_on_transferred_parameters_name_collectives_only_on_several_gpus(
    layout: dict[str, Any], communicates: bool
) -> None:
    notes = map(str, roofmodel.estimate("llama-3.1-8b", "l40s", **layout).notes)
    transferred = [text.partition(" kernels")[0] for text in notes if "are not calibrated on l40s" in text]
    assert transferred == ["elementwise", *(["collective"] if communicates else [])]


def test_an_uncalibrated_operator_leaves_only_totals_unknown() -> None:
    whole = Device.load("v100")
    assert whole.calibration
    device = replace(whole, calibration=whole.calibration._replace(collectives={}))
    found = estimate(hub.load("llama-3.1-8b"), device, phase="prefill", tp=2)
    assert found.phases[0].expected is None
    assert any(placed.expected for placed in found.phases[0].placed)
    assert any(
        "no totals of expected times: v100-sxm2-32gb is not calibrated for communication" in n
        for n in map(str, found.notes)
    )
    assert estimate(hub.load("llama-3.1-8b"), whole, phase="prefill", tp=2).phases[0].expected


def test_a_note_explains_an_unknown_expected_time_of_a_stage() -> None:
    """The last stage is the slowest and has no send; the sends of earlier stages are not calibrated."""
    device = Device.load("a100")
    assert device.calibration is not None
    alone = replace(device, calibration=device.calibration._replace(collectives={}))
    found = estimate(hub.load("gpt2-xl"), alone, phase="decode", pp=4)
    assert all(one.expected for one in found.phases[0].placed)
    assert found.phases[0].expected is None
    assert any(
        "no expected time of decode: stages wait for transfers between stages" in note for note in map(str, found.notes)
    )


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ({"multiprocessors": None}, "multiprocessors"),
        ({"clocks": {}}, "clocks: boost"),
        ({"multiprocessors": None, "clocks": {"base": 1e9}}, "multiprocessors and clocks: boost"),
    ],
)
def test_missing_fields_of_a_calibrated_device_give_a_note(missing: dict[str, Any], named: str) -> None:
    found = estimate(hub.load("gpt2"), replace(Device.load("a100"), **missing))
    assert not any(phase.expected for phase in found.phases)
    assert any(f"no expected times: a100-sxm-80gb's file lacks {named}, " in note for note in map(str, found.notes))


@pytest.mark.parametrize(
    ("hw", "share", "fragment"),
    [("a100", 0.89, ""), ("a100", 0.91, "fragmentation; it fits with"), ("a100", 1.001, ""),
     ("l4", 0.89, ""), ("l4", 0.91, "fragmentation, ECC if enabled (")],
)  # fmt: skip
def test_memory_above_the_utilization_gives_a_warning(hw: str, share: float, fragment: str) -> None:
    """GDDR has no extra memory for ECC bits."""
    device, needed = Device.load(hw), run("gpt2", engine="torch").memory.total
    dram = device.levels["dram"]._replace(capacity=int(needed / share))
    found = estimate(hub.load("gpt2"), replace(device, levels={**device.levels, "dram": dram}), engine="torch")
    assert found.fits is (share < 0.9)
    warnings = [note for note in map(str, found.notes) if "left for memory that is not counted" in note]
    assert len(warnings) == bool(fragment)
    assert all(fragment in note for note in warnings)


@pytest.mark.parametrize(
    ("model", "options", "text"),
    [
        ("gpt2", {"phase": "prefill", "seq": 1}, "fp16, flash attention, vLLM 0.24, logits of the last position"),
        ("llama-3.1-8b", {"phase": "forward"}, "fp16, flash attention, PyTorch 2.9, logits of all positions"),
        ("mamba-130m-hf", {"phase": "decode", "kv": "fp8"}, "fp16, state fp8, fused scan, vLLM 0.24"),
        ("mamba-130m-hf", {"phase": "decode", "attention": "eager"}, "fp16, eager scan, vLLM 0.24"),
    ],
)
def test_the_workload_text_has_only_options_of_the_model(model: str, options: dict[str, Any], text: str) -> None:
    assert describe_workload(roofmodel.estimate(model, "a100", **options).estimate) == text


def test_no_batch_is_suggested_if_none_fits() -> None:
    asked: dict[str, Any] = {"phase": "decode", "context": 540000}  # 131 kB per token: 71 GB
    report = roofmodel.estimate("llama-3.1-8b", "a100", **asked, engine="torch")
    assert str(describe_largest(report.estimate)).startswith("0, no batch fits; longest context at batch 1: 467")
    assert 467_000 < (0.9 * 80 * 2**30 - 2 * 8_030_261_248) / 131_072 < 468_000  # all usable memory
    for engine in ("vllm", "sglang", "trtllm"):
        served = roofmodel.estimate("llama-3.1-8b", "a100", **asked, engine=engine)
        longest = served.estimate.largest_context
        assert served.estimate.largest_batch == 0
        assert longest is not None
        for context, fits in ((longest, True), (longest + 1, False)):
            found = roofmodel.estimate("llama-3.1-8b", "a100", phase="decode", context=context, engine=engine).estimate
            assert found.fits is fits, engine


def test_a_note_names_the_options_of_fp8_gemms_for_a_checkpoint_in_fp8_blocks() -> None:
    options = {"tp": 8, "batch": 4, "phase": "prefill"}
    note = next(str(note) for note in run("deepseek-v3", "h200", **options).notes if "GEMMs" in str(note))
    assert "GEMMs are counted in fp16" in note
    assert 'dtype="fp8" activations="fp16" kv="fp16"' in note
    faster = run("deepseek-v3", "h200", dtype="fp8", activations="fp16", kv="fp16", **options)
    assert faster.phases[0].bound_seconds < run("deepseek-v3", "h200", **options).phases[0].bound_seconds
    assert not any("GEMMs are counted in" in str(note) for note in faster.notes)
    on_a100 = run("deepseek-v3", "a100", **options)  # without fp8 tensor cores
    assert not any("GEMMs are counted in" in str(note) for note in on_a100.notes)


def test_a_decoder_that_classifies_text_runs_one_forward_pass() -> None:
    estimated = run("gpt2@ForSequenceClassification")
    assert [phase.step.phase for phase in estimated.phases] == ["forward"]
    for phase in ("prefill", "decode", "generate"):
        with pytest.raises(WorkloadError, match="classifies text and has no such phase"):
            run("gpt2@ForSequenceClassification", phase=phase)


def test_kinds_of_kernels_are_joined_by_and() -> None:
    notes = map(str, run("bert-base-uncased", "v100").notes)
    assert any(note.startswith("elementwise and encoder attention kernels are not calibrated") for note in notes)
