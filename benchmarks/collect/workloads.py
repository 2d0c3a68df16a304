"""Models and workloads of the kit: packaged configs, reduced for trials, with few layers for ncu."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from roofmodel.models import hub

NAMES = {
    "gpt2-xl": "gpt2-xl", "llama": "llama-3.1-8b", "mixture": "OLMoE-1B-7B-0924",
    "bert-large": "bert-large-uncased", "resnet-50": "resnet-50",
}  # fmt: skip
SMALLER_MODELS = {"llama": "llama-3.2-1b"}  # if the default model does not fit
MIN_MEMORY = 30 * 2**30  # bytes of memory; below them the smaller model is used
SPARE_POSITIONS = 64  # extra positions of a static cache for the timed steps

SMALL: dict[str, dict[str, Any]] = {
    "gpt2": dict(n_embd=64, n_layer=2, n_head=4, vocab_size=512),
    "llama": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                  intermediate_size=128, vocab_size=512),
    "olmoe": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                  intermediate_size=32, num_experts=8, num_experts_per_tok=2, vocab_size=512),
    "bert": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=512),
    "resnet": dict(embedding_size=8, hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 1, 1], num_labels=10),
}  # fmt: skip
LAYERS = {"gpt2": "n_layer", **dict.fromkeys(("llama", "olmoe", "bert"), "num_hidden_layers")}
POSITIONS = {"gpt2": "n_positions", **dict.fromkeys(("llama", "olmoe"), "max_position_embeddings")}


class Work(NamedTuple):
    """A pass: `seq` new tokens per sequence, a decode after `context` tokens, or images of `image` pixels a side."""

    phase: str
    batch: int
    seq: int | None = None
    context: int | None = None
    image: int | None = None


def config_of(name: str, small: bool, memory: int | None, layers: int | None = None) -> dict[str, Any]:
    """The packaged config of a model, reduced for a trial or to `layers` layers; a smaller model if memory is short."""
    uses_smaller = name in SMALLER_MODELS and memory is not None and memory < MIN_MEMORY
    entry = hub.packaged(SMALLER_MODELS[name] if uses_smaller else NAMES[name])
    assert entry is not None
    kind = entry.config["model_type"]
    reduced = {LAYERS[kind]: layers} if layers is not None else {}
    return {**entry.config, **(SMALL[kind] if small else {}), **reduced}


def kind(config: Mapping[str, Any]) -> str:
    """`decoder`, `encoder` or `vision`, by the class in the config."""
    name: str = config["architectures"][0]
    return "vision" if "Image" in name else "decoder" if name.endswith(("CausalLM", "LMHeadModel")) else "encoder"


def works(config: Mapping[str, Any], small: bool) -> list[Work]:
    """The timed passes of a model, most important first; lengths stay within the model's positions."""
    if kind(config) == "vision":
        side = 32 if small else 224
        return [Work(phase, 2 if small else 64, image=side) for phase in ("forward", "train")]
    if kind(config) == "encoder":
        return [Work(phase, 2 if small else 16, 16 if small else 512) for phase in ("forward", "train")]
    if small:
        return [Work("prefill", 2, 16), Work("decode", 2, context=16), Work("train", 2, 16)]
    decodes = [Work("decode", batch, context=1024 - SPARE_POSITIONS) for batch in (1, 16, 64)]
    long = min(2048, config.get(POSITIONS[config["model_type"]], 2048))
    return [Work("prefill", 1, 1024), *decodes, Work("prefill", 8, long), Work("train", 1, 1024)]


def dtype(config: Mapping[str, Any], types: tuple[str, ...] | list[str], device: str) -> str:
    """The type that a model runs in: fp32 on a CPU, bf16 if its config and the GPU have it, else fp16."""
    if device == "cpu":
        return "fp32"
    return "bf16" if config.get("torch_dtype") == "bfloat16" and "bf16" in types else "fp16"
