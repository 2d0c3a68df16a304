"""The real Hugging Face models, as strangers to check against: parameters and FlopCounterMode.

Models are small, random and on the CPU; attention is eager, since torch's counter sees nothing
inside a fused kernel there.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

transformers.logging.set_verbosity_error()
warnings.filterwarnings("ignore", module="transformers")


def build(config: dict[str, Any], device: str = "cpu") -> Any:
    """The model that a config's `architectures` names, with random weights."""
    options = {k: v for k, v in config.items() if k not in ("architectures", "model_type")}
    hf_config = transformers.AutoConfig.for_model(config["model_type"], **options)
    hf_config._attn_implementation = "eager"
    hf_config._experts_implementation = "eager"  # torch's counter sees nothing inside a grouped matmul either
    with torch.device(device):
        return getattr(transformers, config["architectures"][0])(hf_config).eval()


def parameters(model: Any) -> int:
    return sum(p.numel() for p in model.parameters())


def takes_a_cache(model: Any) -> bool:
    return "past_key_values" in inspect.signature(model.forward).parameters


def matmul_flops(model: Any, batch: int, tokens: int, context: int = 0) -> int:
    """FLOPs of `tokens` new tokens per sequence after `context` cached ones."""
    device = next(model.parameters()).device
    vocabulary = model.config.vocab_size

    def ids(length: int) -> Any:
        return torch.randint(2, vocabulary, (batch, length), device=device)

    def inputs(length: int, past: int) -> dict[str, Any]:
        return {
            "input_ids": ids(length),
            "attention_mask": torch.ones(batch, past + length, dtype=torch.long, device=device),
        }

    extra: dict[str, Any] = {}
    with torch.no_grad():
        if context:
            extra["past_key_values"] = transformers.DynamicCache(config=model.config)
            model(**inputs(context, 0), **extra)
        counter = FlopCounterMode(display=False)
        with counter:
            model(**inputs(tokens, context), **extra)
    return int(counter.get_total_flops())
