"""Names of operators."""

from __future__ import annotations

import random
from itertools import product

from roofmodel.devices.device import Device
from roofmodel.models.config import architecture
from roofmodel.report.operator_names import LABELS, label
from roofmodel.steps.estimate import estimate
from tests import draws
from tests.estimates import MODELS, run

FILTERS = {
    "model_type": "lfm3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128,
    "intermediate_size": 32, "layer_types": ["conv", "full_attention"],
}  # fmt: skip


def test_the_exchange_of_a_sharded_optimizer_has_labels() -> None:
    phases = run("mixtral-8x7b-v0.1", phase="train", dp=4, ep=2, batch=4, zero=1).phases
    operators = [placed.operator for phase in phases for placed in phase.placed]
    found = {one.name: label(one) for one in operators if one.name.startswith(("gradients.", "weights."))}
    assert found == {
        "gradients.reduce_scatter": "reduce-scatter of gradients",
        "gradients.expert_reduce_scatter": "reduce-scatter of expert gradients",
        "weights.all_gather": "all-gather of updated weights",
        "weights.expert_all_gather": "all-gather of updated expert weights",
    }


def test_every_label_is_of_an_operator_that_exists() -> None:
    names = set()
    for model in MODELS:
        for attention in ("flash", "eager"):
            for phase in (*run(model, attention=attention, seq=8).phases, *run(model, image=64).phases):
                names |= {placed.operator.name for placed in phase.placed}
    for mla in ("absorbed", "naive"):
        names |= {placed.operator.name for phase in run("DeepSeek-V3", mla=mla).phases for placed in phase.placed}
    for family, seed in product(
        (
            "deepseek_v32",
            "deepseek_v4",
            "glm5_next_text",
            "inkling_text",
            "inkling2_text",
            "jetmoe",
            "gemma3n_text",
            "qwen4_exp_text",
            "axk2",
            "longcat_flash",
            "dots3_note_text",
            "afmoe",
            "minimax",
            "minimax_m3_vl_text",
        ),
        (1, 3),
    ):
        arch = architecture(draws.config(family, random.Random(seed)), "drawn", "config.json")
        for phase in estimate(arch, Device.load("h100")).phases:
            names |= {placed.operator.name for placed in phase.placed}
    shared = [("gpt2", 2), ("t5-small", 2), ("DeepSeek-V3", 2), ("DeepSeek-V2-Lite", 2), ("mamba-130m-hf", 2)]
    shared += [("gemma-4-26B-A4B-it", 2), ("gemma-4-E2B-it", 1), ("qwen3-coder-next", 2)]
    shared += [("kimi-linear-48b-a3b-instruct", 2), ("kimi-k3", 2)]
    of_several = [run(name, phase="train", tp=tp, dp=2, batch=2, seq=8) for name, tp in shared]
    of_several += [run("gpt2", tp=2), run("mixtral-8x7b-v0.1", dp=2, ep=2, batch=2)]
    of_several += [run("gpt2", phase="train", tp=2, pp=2, vpp=2, batch=2)]
    of_several += [run("gpt2", phase="train", tp=2, sequence_parallel="on")]
    of_several += [run("mixtral-8x7b-v0.1", phase="train", dp=4, ep=2, batch=4, zero=zero) for zero in (0, 1)]
    of_several += [run("mixtral-8x7b-v0.1", phase="train", dp=8, ep=2, batch=8, hsdp=4)]
    of_several += [run("gpt2", phase="train", cp=2, cp_kind=kind, seq=8) for kind in ("ring", "all-gather", "ulysses")]
    filters = architecture(FILTERS, "x", "x")
    of_several += [estimate(filters, Device.load("h100"), phase="train", tp=2, seq=8)]
    for each in of_several:
        found = [placed.operator.name for phase in each.phases for placed in phase.placed]
        names |= {name.replace("cross_", "") for name in found}
        names |= {name.removesuffix(".grad").replace("cross_", "") for name in found}
    assert set(LABELS) <= names
