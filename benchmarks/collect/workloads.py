"""Which models are run, on what: packaged configs, made small for trying out, cut to a few layers for ncu."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from roofmodel.models import hub

NAMES = {"gpt2-xl": "gpt2-xl", "llama": "llama-3.1-8b", "bert-large": "bert-large-uncased", "resnet-50": "resnet-50"}
LESSER = {"llama": "llama-3.2-1b"}  # where the usual one does not fit
LEAST = 30 * 2**30  # bytes of memory below which the lesser one is taken
ROOM = 64  # positions of a static cache beyond the context, for the steps that are timed

SMALL: dict[str, dict[str, Any]] = {
    "gpt2": dict(n_embd=64, n_layer=2, n_head=4, vocab_size=512),
    "llama": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                  intermediate_size=128, vocab_size=512),
    "bert": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=512),
    "resnet": dict(embedding_size=8, hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 1, 1], num_labels=10),
}  # fmt: skip
LAYERS = {"gpt2": "n_layer", "llama": "num_hidden_layers", "bert": "num_hidden_layers"}


class Work(NamedTuple):
    """A pass: `seq` new tokens a sequence, or a decode after `context` of them; images where `image` is their side."""

    phase: str
    batch: int
    seq: int | None = None
    context: int | None = None
    image: int | None = None


def config_of(name: str, small: bool, memory: int | None, layers: int | None = None) -> dict[str, Any]:
    """The packaged facts of a model, made small, or cut to so many layers. The lesser one where memory is short."""
    lesser = name in LESSER and memory is not None and memory < LEAST
    entry = hub.packaged(LESSER[name] if lesser else NAMES[name])
    assert entry is not None
    kind = entry.config["model_type"]
    cut = {LAYERS[kind]: layers} if layers is not None else {}
    return {**entry.config, **(SMALL[kind] if small else {}), **cut}


def kind(config: Mapping[str, Any]) -> str:
    """decoder, encoder or vision, by the class that the config names."""
    name: str = config["architectures"][0]
    return "vision" if "Image" in name else "decoder" if name.endswith(("CausalLM", "LMHeadModel")) else "encoder"


def works(config: Mapping[str, Any], small: bool) -> list[Work]:
    """What is timed of a model; contexts end within GPT-2's 1024 positions."""
    if kind(config) == "vision":
        side = 32 if small else 224
        return [Work(phase, 2 if small else 64, image=side) for phase in ("forward", "train")]
    if kind(config) == "encoder":
        return [Work(phase, 2 if small else 16, 16 if small else 512) for phase in ("forward", "train")]
    if small:
        return [Work("prefill", 2, 16), Work("decode", 2, context=16), Work("train", 2, 16)]
    decodes = [Work("decode", batch, context=1024 - ROOM) for batch in (1, 16)]
    return [Work("prefill", 1, 1024), *decodes, Work("prefill", 8, 1024), Work("train", 1, 1024)]


def dtype(types: tuple[str, ...] | list[str], device: str) -> str:
    """What a model runs in: fp32 on a CPU, bf16 where the GPU has it, else fp16."""
    return "fp32" if device == "cpu" else "bf16" if "bf16" in types else "fp16"
