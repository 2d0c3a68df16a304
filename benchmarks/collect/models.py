"""Whole models with random weights, from packaged configs, and their steps as calls without arguments.

Dropout is off, weights and arithmetic have one type, attention is torch's (`scaled_dot_product_attention`). `roof
estimate` counts the same, except for training: here AdamW's state has this type, there it has fp32 and master weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import transformers

from benchmarks.collect.workloads import SPARE_POSITIONS, Work, kind

if not transformers.utils.is_torch_available():
    raise ImportError(
        f"transformers {transformers.__version__} does not support torch {torch.__version__}; "
        "install 'transformers>=4.57,<5', which supports torch 2.4 and newer"
    )
transformers.logging.set_verbosity_error()


class RandomModel(NamedTuple):
    """A model, its config, device and type."""

    model: Any
    config: dict[str, Any]
    device: str
    dtype: str


FORMATS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def build(config: Mapping[str, Any], device: str, dtype: str) -> RandomModel:
    """The Hugging Face class that the config names, with random weights on the device."""
    facts = {k: v for k, v in config.items() if k not in ("architectures", "model_type", "torch_dtype")}
    model_config = transformers.AutoConfig.for_model(config["model_type"], **facts)
    for name in vars(model_config).copy():
        if name.endswith(("dropout", "pdrop", "dropout_prob")):
            setattr(model_config, name, 0.0)
    if config["model_type"] != "resnet":
        model_config._attn_implementation = "sdpa"
    default_dtype = torch.get_default_dtype()
    torch.set_default_dtype(FORMATS[dtype])
    try:
        with torch.device(device):
            model = getattr(transformers, config["architectures"][0])(model_config).eval()
    finally:
        torch.set_default_dtype(default_dtype)
    return RandomModel(model, dict(config), device, dtype)


def step(built: RandomModel, work: Work) -> Callable[[], object]:
    """One pass of the workload, always on the same data."""
    if work.phase == "decode":
        return _decode(built, work)
    inputs = _inputs(built, work)
    if work.phase == "train":
        return _train(built, inputs)
    if kind(built.config) == "decoder":
        inputs |= dict(use_cache=True, **_last_logits(built.model))

    def forward() -> object:
        with torch.no_grad():
            return built.model(**inputs)

    return forward


def _inputs(built: RandomModel, work: Work) -> dict[str, Any]:
    if work.image is not None:
        shape = (work.batch, 3, work.image, work.image)
        return dict(pixel_values=torch.randn(shape, device=built.device, dtype=FORMATS[built.dtype]))
    return dict(input_ids=_tokens(built, work.batch, work.seq or 1))


def _tokens(built: RandomModel, *shape: int) -> torch.Tensor:
    return torch.randint(built.config["vocab_size"], shape, device=built.device)


def _last_logits(model: Any) -> dict[str, int]:
    """The argument for logits of the last position only. Raises NotImplementedError if there is none, since `roof
    estimate` counts one position."""
    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        raise NotImplementedError(
            f"transformers {transformers.__version__} cannot compute logits of the last position only; use >=4.57"
        )
    return dict(logits_to_keep=1)


def _decode(built: RandomModel, work: Work) -> Callable[[], object]:
    """Decode of one token after `context`, with a static cache. Each step writes the next position; attention reads the
    spare positions too, masked."""
    context = work.context or 0
    # Needed below transformers 4.56.
    old_arguments: dict[str, Any] = dict(max_batch_size=work.batch, device=built.device, dtype=FORMATS[built.dtype])
    cache = transformers.StaticCache(
        config=built.model.config, max_cache_len=context + SPARE_POSITIONS, **old_arguments
    )
    token, position = _tokens(built, work.batch, 1), torch.full((work.batch, 1), context, device=built.device)
    inputs: dict[str, Any] = dict(past_key_values=cache, use_cache=True)
    has_cache_position = "cache_position" in inspect.signature(built.model.forward).parameters  # below transformers 5
    with torch.no_grad():
        first = dict(cache_position=torch.arange(context, device=built.device)) if has_cache_position else {}
        built.model(input_ids=_tokens(built, work.batch, context), **inputs, **first, **_last_logits(built.model))
    if has_cache_position:
        inputs["cache_position"] = position[0]

    def decode() -> object:
        with torch.no_grad():
            return built.model(input_ids=token, position_ids=position, **inputs)

    return decode


def _train(built: RandomModel, inputs: dict[str, Any]) -> Callable[[], object]:
    """Forward with loss, backward, AdamW."""
    if "pixel_values" in inputs:
        labels = torch.randint(built.model.config.num_labels, (len(inputs["pixel_values"]),), device=built.device)
    else:
        labels = inputs["input_ids"]
    built.model.train()
    on_gpu = built.device == "cuda"
    optimizer = torch.optim.AdamW(built.model.parameters(), lr=1e-5, fused=on_gpu, capturable=on_gpu)

    def train() -> object:
        loss = built.model(**inputs, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return train
