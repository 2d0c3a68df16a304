"""The machine interface's document, and the rows that people read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from roofmodel import units
from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.models.config import architecture
from roofmodel.study.estimate import Estimate, estimate
from roofmodel.views import picture
from roofmodel.views.estimate_data import to_dict
from roofmodel.views.estimate_words import describe_exchange, describe_parameters, describe_training, describe_workload
from roofmodel.views.markdown import as_markdown
from roofmodel.views.operator_names import LABELS
from roofmodel.views.rows import rows, signed
from tests import draws

MODELS = ("gpt2", "opt-350m", "llama-3.2-1b", "mistral-7b-v0.1", "qwen2.5-0.5b", "pythia-70m", "bloom-560m",
          "bert-base-cased", "roberta-base", "distilbert-base-uncased", "resnet-18",
          "vit-base-patch16-224", "mpnet-base", "deberta-v3-small", "mamba-130m-hf", "falcon-mamba-7b",
          "t5-small", "whisper-tiny", "qwen3.5-9b", "olmo-hybrid-7b")  # fmt: skip


def run(model: str, **options: Any) -> Estimate:
    return estimate(hub.load(model), Device.load("v100"), **options)


def test_the_document_has_the_keys_of_the_contract() -> None:
    document = to_dict(run("gpt2"))
    assert document["schema"] == "roofmodel.estimate/1"
    assert {"name", "model_type", "head", "parameters"} <= set(document["model"])
    assert {"name", "calibrated"} <= set(document["hardware"])
    assert {"batch", "seq", "context", "dtype"} <= set(document["workload"])
    assert set(document["memory"]) >= {"weights", "kv_cache", "activations", "gradients", "optimizer", "total", "fits"}
    for phase in document["phases"]:
        assert {"phase", "ops", "totals"} <= set(phase)
        assert {
            "matmul_flops", "vector_flops", "bytes", "weight_bytes", "kv_cache_bytes", "bound_seconds",
            "expected_seconds", "expected_low_seconds", "expected_high_seconds", "bound_tokens_per_second",
            "tokens_per_second", "mfu", "mbu",
        } <= set(phase["totals"])  # fmt: skip
        for op in phase["ops"]:
            assert {
                "name", "layers", "count", "kind", "spec", "matmul_flops", "vector_flops", "bytes_read",
                "bytes_written", "intensity", "bound", "bound_seconds", "expected_seconds",
            } <= set(op)  # fmt: skip
            assert op["count"] == (1 if op["layers"] is None else len(op["layers"]))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("attention", ["flash", "eager"])
def test_rows_add_up_to_the_phase(model: str, attention: str) -> None:
    for phase in run(model, attention=attention, seq=64).phases:
        found = rows(phase)
        assert sum(row.share for row in found) == pytest.approx(1, rel=1e-12)
        assert sum(row.cost.matmul_flops for row in found) == phase.cost.matmul_flops
        assert sum(row.cost.bytes for row in found) == phase.cost.bytes
        assert sum(row.times for row in found) == sum(p.operator.count for p in phase.placed)


def test_one_row_stands_for_48_layers() -> None:
    found = {row.label: row.times for row in rows(run("gpt2-xl").phases[0])}
    assert found["q, k, v projection"] == 48
    assert found["norms"] == 2 * 48 + 1


def test_blocks_of_a_stage_stand_once_with_their_filter() -> None:
    found = {(row.group, row.label): row.times for row in rows(run("resnet-50").phases[0])}
    assert found["stage3", "spatial 3×3"] == 6  # one of them strides
    assert found["stage3", "shortcut 1×1"] == 1
    assert found["stem", "convolution 7×7"] == 1
    assert found["residual", "residual sums"] == 3 + 4 + 6 + 3


def test_a_network_counts_images_where_others_count_tokens() -> None:
    document = to_dict(run("resnet-50", batch=32))
    totals = document["phases"][0]["totals"]
    assert document["workload"]["image"] == [224, 224]
    assert document["workload"]["seq"] is None
    assert totals["bound_tokens_per_second"] is None
    assert totals["bound_images_per_second"] == 32 / totals["bound_seconds"]
    text = as_markdown(run("resnet-50", batch=32))
    assert "forward: 32 images of 224 × 224 pixels" in text
    assert "images/s" in text
    assert "token" not in text.partition("\n- ")[0]
    patches = to_dict(run("vit-base-patch16-224", image=384))
    assert patches["workload"]["seq"] == 577  # (384 / 16)², and the class token


def test_layers_that_differ_stand_apart() -> None:
    arch = hub.packaged("qwen2.5-0.5b")
    assert arch is not None
    config = arch.config | {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 20}
    ops = to_dict(estimate(architecture(config, "x", "x"), Device.load("v100"), seq=64))["phases"][0]["ops"]
    flash = [op["layers"] for op in ops if op["name"] == "attention.flash"]
    assert flash == [list(range(20)), list(range(20, 24))]


FILTERS = {
    "model_type": "lfm3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128,
    "intermediate_size": 32, "layer_types": ["conv", "full_attention"],
}  # fmt: skip


def test_every_label_is_of_an_operator_that_exists() -> None:
    names = set()
    for model in MODELS:
        for attention in ("flash", "eager"):
            for phase in (*run(model, attention=attention, seq=8).phases, *run(model, image=64).phases):
                names |= {placed.operator.name for placed in phase.placed}
    for mla in ("absorbed", "naive"):
        names |= {placed.operator.name for phase in run("DeepSeek-V3", mla=mla).phases for placed in phase.placed}
    for family in ("deepseek_v32", "afmoe"):
        arch = architecture(draws.config(family, random.Random(1)), "drawn", "config.json")
        for phase in estimate(arch, Device.load("h100")).phases:
            names |= {placed.operator.name for placed in phase.placed}
    shared = [("gpt2", 2), ("t5-small", 2), ("DeepSeek-V3", 2), ("DeepSeek-V2-Lite", 2), ("mamba-130m-hf", 2)]
    shared += [("gemma-4-26B-A4B-it", 2), ("gemma-4-E2B-it", 1), ("qwen3-coder-next", 2)]
    shared.append(("kimi-linear-48b-a3b-instruct", 2))
    of_several = [run(name, phase="train", tp=tp, dp=2, batch=2, seq=8) for name, tp in shared]
    of_several += [run("gpt2", tp=2), run("mixtral-8x7b-v0.1", dp=2, ep=2, batch=2)]
    of_several += [run("gpt2", phase="train", tp=2, pp=2, vpp=2, batch=2)]
    of_several += [run("gpt2", phase="train", tp=2, sequence_parallel="on")]
    of_several += [run("mixtral-8x7b-v0.1", phase="train", dp=4, ep=2, batch=4)]
    filters = architecture(FILTERS, "x", "x")
    of_several += [estimate(filters, Device.load("h100"), phase="train", tp=2, seq=8)]
    for each in of_several:
        found = [placed.operator.name for phase in each.phases for placed in phase.placed]
        names |= {name.replace("cross_", "") for name in found}
        names |= {name.removesuffix(".grad").replace("cross_", "") for name in found}
    assert set(LABELS) <= names


def test_a_mixture_says_how_many_parameters_a_token_meets_and_how_its_latents_are_read() -> None:
    mixtral = run("mixtral-8x7b-v0.1")
    idle = 32 * 6 * 3 * 4096 * 14336  # in each layer 6 of 8 experts, of three matrices
    assert mixtral.active_parameters == mixtral.parameters - idle
    assert "46 702 792 704 parameters, 12 879 925 248 of them active; fp16" in as_markdown(mixtral)
    assert to_dict(mixtral)["model"]["active_parameters"] == 12_879_925_248
    assert describe_parameters(5, 5) == "5 parameters"
    assert "latents absorbed in decodes" in as_markdown(run("deepseek-v3"))
    assert "latents expanded" in as_markdown(run("deepseek-v3", mla="naive"))


def test_windows_are_said_where_the_tokens_reach_beyond() -> None:
    said = "21 of 42 layers see 4096 tokens"  # every other layer of Gemma 2
    assert said in as_markdown(run("gemma-2-9b", phase="decode", context=4096))
    assert said not in as_markdown(run("gemma-2-9b", phase="decode", context=4095))


def test_markdown_has_a_table_a_phase_and_the_notes() -> None:
    text = as_markdown(run("gpt2"))
    assert text.count("| operator |") == 2
    assert "- warning: decode reaches 1025 tokens" in text
    assert "Expected " in text


def test_a_training_step_is_told_beside_the_rule_of_thumb_where_each_token_meets_all() -> None:
    """6 x 37.6e9 x 1024 = 231e12: a token meets 8 of 256 experts and the shared one."""
    told = {}
    for model in ("deepseek-v3", "mamba-130m-hf", "resnet-18", "t5-small"):
        found = run(model, phase="train", seq=1024)
        told[model] = describe_training(found, found.phases[0]) or ""
    rule = "6 × parameters that a token meets (37.6 G) × tokens, which knows no attention, gives 231 TFLOP"
    assert rule in told["deepseek-v3"]
    assert "6 × parameters × tokens" in told["mamba-130m-hf"]
    assert [model for model, text in told.items() if "rule" not in text] == ["resnet-18", "t5-small"]
    assert [model for model, text in told.items() if "flash" in text] == ["deepseek-v3", "t5-small"]


def test_where_letters_run_out_the_rows_that_take_most_time_have_them(tmp_path: Path) -> None:
    drawn = run("deepseek-v3", phase="train", seq=1024)
    picture.draw(drawn, tmp_path / "marks without letters.png", "png")
    found = signed(0, rows(drawn.phases[0]))
    for stage in ("forward", "backward"):
        shown = [(sign, row) for sign, row in found if row.stage == stage and row.cost.flops]
        letters = [sign for sign, _ in shown if sign]
        assert letters == sorted(set(letters))
        assert min(row.share for sign, row in shown if sign) >= max(row.share for sign, row in shown if not sign)


def test_the_workload_says_that_sequences_are_dealt_out() -> None:
    shared = {"phase": "train", "tp": 2, "batch": 2}
    assert describe_workload(run("gpt2", **shared, sequence_parallel="on")).endswith("(tp 2, sequence-parallel)")
    assert describe_workload(run("gpt2", **shared)).endswith("(tp 2)")


def test_what_a_gpu_sends_is_told_beside_its_bytes() -> None:
    """The rows of 1024 tokens, and two sums a layer of 12, of 768 numbers each: of two GPUs each sends half, twice; of
    the last token half of the 50257 logits."""
    (phase, _) = run("gpt2", tp=2).phases
    sent = (1 + 2 * 12) * 1024 * 768 * 2 + 25129 * 2
    assert phase.cost.link_bytes == sent
    assert f"each GPU sends {units.si(sent, 'B')} to others" in str(describe_exchange(phase))
    assert describe_exchange(run("gpt2").phases[0]) is None
