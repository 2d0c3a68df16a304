"""FLOP counts of other tools, derived from ours (tests/counting/test_against_fvcore.py runs fvcore itself)."""

from __future__ import annotations

from typing import Any

import pytest

import roofmodel
from roofmodel.errors import WorkloadError
from roofmodel.explain.reconcile import reconcile
from roofmodel.models import hub
from roofmodel.models.config import architecture

# Printed by the tools for models of these configs with random weights (torch 2.13, transformers 5.23), batch 2, 9
# tokens: calflops 0.3.2 and the FLOPs profiler of DeepSpeed 0.19.8; with eager attention, and with SDPA.
SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64},
    "llama": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 80, "vocab_size": 99,
    },
    "bert": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 80, "vocab_size": 99,
        "architectures": ["BertForMaskedLM"],
    },
    "opt": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 80, "vocab_size": 99,
        "word_embed_proj_dim": 32,
    },
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99},
    "mixtral": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 80, "vocab_size": 99, "num_local_experts": 4, "num_experts_per_tok": 2,
    },
    "vit": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 80, "image_size": 32,
        "patch_size": 8, "architectures": ["ViTForImageClassification"],
    },
}  # fmt: skip
PRINTED = {
    ("calflops", "eager"): {
        "gpt2": 1056528, "llama": 933840, "bert": 874512, "opt": 837648, "bloom": 1017360, "mixtral": 1499040,
        "vit": 1827664,
    },
    ("calflops", "flash"): {
        "gpt2": 1013760, "llama": 891072, "bert": 831744, "opt": 794880, "mixtral": 1456272, "vit": 1675072,
    },
    ("deepspeed", "eager"): {
        "gpt2": 1056528, "llama": 933840, "bert": 874512, "opt": 837648, "bloom": 1038096, "mixtral": 1499040,
        "vit": 1827664,
    },
    ("deepspeed", "flash"): {
        "gpt2": 1055232, "llama": 932544, "bert": 873216, "opt": 836352, "mixtral": 1497744, "vit": 1823040,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("tool", "attention", "model_type", "printed"),
    [(tool, how, name, value) for (tool, how), found in PRINTED.items() for name, value in found.items()],
)
def test_printed_counts_of_tools_are_derived_from_ours(
    tool: str, attention: str, model_type: str, printed: int
) -> None:
    arch = architecture({"model_type": model_type, **SMALL[model_type]}, "small", "config.json")
    tokens = {} if model_type == "vit" else {"seq": 9}
    found = reconcile(arch, tool, batch=2, attention=attention, **tokens)
    assert found.theirs.value == printed
    assert found.ours.value + sum(term.value for term in found.terms) == printed


@pytest.mark.parametrize(
    ("model", "printed"),
    [  # llm-flops 0.0.1: forward_flops(get_config(…), 1, 512).total for the models in its catalog
        ("gpt2-xl", 1675186176000),
        ("gpt2", 136446345216),
        ("meta-llama-3-8b", 7826478989312),
        ("mixtral-8x7b-v0.1", 13198140899328),
        ("llama-2-7b-hf", 6907221770240),
        ("mistral-7b-v0.1", 7422752063488),
        ("bert-base-uncased", 96922632192),
    ],
)
def test_llm_flops_counts_are_derived_from_ours(model: str, printed: int) -> None:
    assert reconcile(hub.load(model), "llm-flops", seq=512).theirs.value == printed


def test_fvcore_counts_half_of_gpt2_xl_and_its_layer_norms() -> None:
    found = reconcile(hub.load("gpt2-xl"), "fvcore", seq=1024, attention="eager")
    # 97 norms of 1024 x 1600 elements, 5 FLOPs each: 0.79 G, as in counting.md
    assert found.theirs.value == 3_506_703_564_800 // 2 + 5 * 97 * 1024 * 1600


def test_an_unchecked_family_is_noted() -> None:
    assert any("assumed to hold" in note for note in map(str, reconcile(hub.load("qwen3-8b"), "calflops").notes))
    assert not any("assumed" in note for note in map(str, reconcile(hub.load("gpt2"), "calflops").notes))


def test_an_unsupported_model_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"tool: unknown value 'ptflops'; did you mean 'calflops'"):
        roofmodel.reconcile("gpt2", "ptflops")  # type: ignore[arg-type]
    for model, tool in (("resnet-50", "deepspeed"), ("t5-small", "fvcore"), ("qwen3-coder-next", "calflops")):
        with pytest.raises(WorkloadError, match="is not supported"):
            reconcile(hub.load(model), tool)
