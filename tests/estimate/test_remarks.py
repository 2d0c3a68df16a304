"""The sentences of an estimate."""

from __future__ import annotations

from fractions import Fraction

from roofmodel.devices.device import Device
from roofmodel.estimate.answer import describe_exchange, describe_masked_pairs, describe_training
from roofmodel.estimate.command import Report
from roofmodel.estimate.data import to_dict
from roofmodel.models.config import architecture
from roofmodel.numbers import units
from roofmodel.steps.estimate import describe_parameters, describe_workload, estimate
from tests.estimates import run


def test_the_workload_names_the_active_parameters_and_how_mla_is_computed() -> None:
    mixtral = run("mixtral-8x7b-v0.1")
    idle = 32 * 6 * 3 * 4096 * 14336  # in each layer 6 of 8 experts, with three matrices each
    assert mixtral.active_parameters == mixtral.parameters - idle
    assert "46 702 792 704 parameters, 12 879 925 248 of them active" in Report(mixtral).text("markdown")
    assert to_dict(mixtral)["model"]["active_parameters"] == 12_879_925_248
    assert describe_parameters(5, 5) == "5 parameters"
    assert "MLA absorbed in decode" in Report(run("deepseek-v3")).text("markdown")
    assert "MLA naive" in Report(run("deepseek-v3", mla="naive")).text("markdown")


def test_sliding_windows_are_named_where_the_workload_exceeds_them() -> None:
    window = "window of 4096 tokens in 21 of 42 layers"  # every other layer of Gemma 2
    assert window in Report(run("gemma-2-9b", phase="decode", context=4096)).text("markdown")
    assert window not in Report(run("gemma-2-9b", phase="decode", context=4095)).text("markdown")


def test_a_training_step_is_compared_with_6_times_parameters_times_tokens() -> None:
    """6 x 37.6e9 x 1024 = 231e12: each token is routed to 8 of 256 experts and the shared one."""
    remarks = {}
    for model in ("deepseek-v3", "mamba-130m-hf", "resnet-18", "t5-small"):
        found = run(model, phase="train", seq=1024)
        remarks[model] = describe_training(found, found.phases[0]) or ""
    rule = "6 × active parameters (37.6 G) × tokens, which ignores attention, gives 231 TFLOP"
    assert rule in remarks["deepseek-v3"]
    assert "6 × parameters × tokens" in remarks["mamba-130m-hf"]
    assert [model for model, text in remarks.items() if "rule" not in text] == ["resnet-18", "t5-small"]
    assert [model for model, text in remarks.items() if "flash" in text] == ["deepseek-v3", "t5-small"]


def test_the_workload_names_sequence_parallelism() -> None:
    shared = {"phase": "train", "tp": 2, "batch": 2}
    assert describe_workload(run("gpt2", **shared, sequence_parallel="on")).endswith("(tp 2, sequence-parallel)")
    assert describe_workload(run("gpt2", **shared)).endswith("(tp 2)")


def test_the_bytes_that_a_gpu_sends_are_in_a_remark() -> None:
    """All-reduces of 1024 × 768 activations, one of the embedding and two in each of 12 layers: each of two GPUs sends
    half of them twice. The all-gather of the last token's 50257 logits: each GPU sends half of them."""
    (phase, _) = run("gpt2", tp=2).phases
    sent = (1 + 2 * 12) * 1024 * 768 * 2 + 25129 * 2
    assert phase.cost.link_bytes == sent
    assert f"each GPU sends {units.si(sent, 'B')} over its links" in str(describe_exchange(phase))
    assert describe_exchange(run("gpt2").phases[0]) is None


def test_the_bytes_that_a_gpu_sends_of_a_last_token_are_a_fraction_in_training() -> None:
    """With `--logits last` each GPU holds an eighth of one position's logits: no whole number of bytes in all."""
    (phase,) = run("llama-3.1-8b", phase="train", logits="last", tp=8).phases
    sent = phase.cost.link_bytes
    assert isinstance(sent, Fraction)
    assert sent.denominator > 1
    assert f"each GPU sends {float(sent) / 1e9:.3g} GB" in (describe_exchange(phase) or "")


def test_the_gemm_flops_of_a_scan_are_stated_as_a_part_of_all() -> None:
    """Mamba-2 computes chunks of a prompt as GEMMs; a decode, and every scan of Mamba, has vector FLOPs only."""
    config = {
        "model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "num_heads": 80, "head_dim": 64,
        "state_size": 128, "n_groups": 1, "expand": 2, "conv_kernel": 4, "chunk_size": 256, "vocab_size": 50288,
    }  # fmt: skip
    prefill, decode = estimate(architecture(config, "x", "x"), Device.load("b200"), batch=64).phases
    pairs = 4 * 256 * 257 // 2  # causal, in 4 chunks of 256 tokens
    # of a sequence: scores (1 group x 128), scores times values (80 heads x 64), states and their outputs
    scan = 64 * 64 * 2 * (pairs * 128 + pairs * 80 * 64 + 2 * 1024 * 80 * 64 * 128)
    assert sum(p.cost.matmul_flops for p in prefill.placed if p.operator.name == "ssm.scan") == scan
    counted, reference = (units.si(n, "FLOP") for n in (prefill.cost.matmul_flops, prefill.all_pairs_matmul_flops))
    assert describe_masked_pairs(prefill) == (
        f"GEMM FLOPs: {counted}, {units.si(scan, 'FLOP')} of them in ssm.scan; "
        f"the reference code, without fused kernels: {reference}"
    )
    for phase in (decode, *run("mamba-130m-hf").phases):
        assert "none in ssm.scan (vector FLOPs only)" in str(describe_masked_pairs(phase))


def test_the_gemm_flops_of_causal_attention_are_those_without_masked_pairs() -> None:
    (prefill, _) = run("gpt2").phases
    assert prefill.all_pairs_matmul_flops > prefill.cost.matmul_flops
    assert describe_masked_pairs(prefill) == (
        f"GEMMs take {units.si(prefill.cost.matmul_flops, 'FLOP')}; eager attention, which also computes masked token "
        f"pairs, takes {units.si(prefill.all_pairs_matmul_flops, 'FLOP')}"
    )
