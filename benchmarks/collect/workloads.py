"""Models and workloads of the kit: packaged configs, reduced for trials, with few layers for ncu."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from roofmodel.models import hub

NAMES = {"gpt2-xl": "gpt2-xl", "llama": "llama-3.1-8b", "bert-large": "bert-large-uncased", "resnet-50": "resnet-50"}
SMALLER_MODELS = {"llama": "llama-3.2-1b"}  # if the default model does not fit
MIN_MEMORY = 30 * 2**30  # bytes of memory; below them the smaller model is used
SPARE_POSITIONS = 64  # extra positions of a static cache for the timed steps

SMALL: dict[str, dict[str, Any]] = {
    "gpt2": dict(n_embd=64, n_layer=2, n_head=4, vocab_size=512),
    "llama": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                  intermediate_size=128, vocab_size=512),
    "bert": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=512),
    "resnet": dict(embedding_size=8, hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 1, 1], num_labels=10),
}  # fmt: skip
LAYERS = {"gpt2": "n_layer", "llama": "num_hidden_layers", "bert": "num_hidden_layers"}


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
    """The timed passes of a model; contexts stay within GPT-2's 1024 positions."""
    if kind(config) == "vision":
        side = 32 if small else 224
        return [Work(phase, 2 if small else 64, image=side) for phase in ("forward", "train")]
    if kind(config) == "encoder":
        return [Work(phase, 2 if small else 16, 16 if small else 512) for phase in ("forward", "train")]
    if small:
        return [Work("prefill", 2, 16), Work("decode", 2, context=16), Work("train", 2, 16)]
    decodes = [Work("decode", batch, context=1024 - SPARE_POSITIONS) for batch in (1, 16)]
    return [Work("prefill", 1, 1024), *decodes, Work("prefill", 8, 1024), Work("train", 1, 1024)]


def dtype(types: tuple[str, ...] | list[str], device: str) -> str:
    """The type that a model runs in: fp32 on a CPU, bf16 if the GPU supports it, else fp16."""
    return "fp32" if device == "cpu" else "bf16" if "bf16" in types else "fp16"
