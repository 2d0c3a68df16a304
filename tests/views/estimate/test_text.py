"""What is said of an estimate beside its tables."""

from __future__ import annotations

from roofmodel import units
from roofmodel.views.estimate.data import to_dict
from roofmodel.views.estimate.markdown import as_markdown
from roofmodel.views.estimate.text import describe_exchange, describe_training
from roofmodel.views.kit.workload_text import describe_parameters, describe_workload
from tests.views.estimates import run


def test_a_mixture_says_how_many_parameters_a_token_meets_and_how_its_latents_are_read() -> None:
    mixtral = run("mixtral-8x7b-v0.1")
    idle = 32 * 6 * 3 * 4096 * 14336  # in each layer 6 of 8 experts, of three matrices
    assert mixtral.active_parameters == mixtral.parameters - idle
    assert "46 702 792 704 parameters, 12 879 925 248 of them active; fp16" in as_markdown(mixtral)
    assert to_dict(mixtral)["model"]["active_parameters"] == 12_879_925_248
    assert describe_parameters(5, 5) == "5 parameters"
    assert "MLA absorbed in decode" in as_markdown(run("deepseek-v3"))
    assert "MLA naive" in as_markdown(run("deepseek-v3", mla="naive"))


def test_windows_are_said_where_the_tokens_reach_beyond() -> None:
    said = "window of 4096 tokens in 21 of 42 layers"  # every other layer of Gemma 2
    assert said in as_markdown(run("gemma-2-9b", phase="decode", context=4096))
    assert said not in as_markdown(run("gemma-2-9b", phase="decode", context=4095))


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
