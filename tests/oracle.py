"""Reference counts from the Hugging Face models: parameters, and FLOPs by the formulas of torch's FlopCounterMode.

Models are small, random and on the CPU. Attention is eager, because torch's counter does not count the inside of fused
kernels there.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import random
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, shape_wrapper

transformers.logging.set_verbosity_error()
warnings.filterwarnings("ignore", module="transformers")
torch.set_num_threads(1)  # tensors are tiny and tests run in parallel: threads would mostly wait


def build(config: dict[str, Any], device: str = "cpu") -> Any:
    """The model that a config's `architectures` names, with random weights."""
    options = {k: v for k, v in config.items() if k not in ("architectures", "model_type")}
    hf_config = transformers.AutoConfig.for_model(config["model_type"], **options)
    hf_config._attn_implementation = "eager"
    hf_config._experts_implementation = "eager"  # torch's counter does not count grouped GEMMs
    with torch.device(device):
        model = getattr(transformers, config["architectures"][0])(hf_config).eval()
    if config["model_type"] == "longcat_flash":
        _balance_zero_experts(model)
    return model


def _balance_zero_experts(model: Any) -> None:
    """Makes each token choose its mean number of experts that compute: the correction exceeds any score."""
    config = model.config
    computing, zero, active = config.n_routed_experts, config.zero_expert_num, config.moe_topk
    used, rest = divmod(active * computing, computing + zero)
    assert rest == 0
    chosen = [*range(used), *range(computing, computing + active - used)]
    for layer in getattr(model, "model", model).layers:
        layer.mlp.router.e_score_correction_bias[chosen] = 2.0  # scores are at most 1


class FlopCounter(TorchDispatchMode):
    """The total of torch's FlopCounterMode, by its formulas.

    FlopCounterMode also attributes FLOPs to modules and looks for a decomposition of every operator that it meets,
    which takes most of the time of a pass through a tiny model.
    """

    def __init__(self, formulas: dict[Any, Any]) -> None:
        super().__init__()
        self.formulas, self.total = formulas, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Avoids the import of torch._dynamo, which takes seconds; nothing is compiled."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _has_decomposition(func):
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        formula = self.formulas.get(func.overloadpacket)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=out)
        return out

    def get_total_flops(self) -> int:
        return self.total


@functools.cache
def _has_decomposition(func: Any) -> bool:
    """Whether torch decomposes the operator into others, which are then counted instead."""
    return bool(func._can_decompose())


@contextlib.contextmanager
def flop_counter() -> Iterator[FlopCounter]:
    """Torch's counter, with formulas for what it does not count right.

    * The triangular systems of the delta rule, which it does not count. Each is counted as the multiplication by the
      inverse, which exported classes compute instead.
    * The weight gradient of a grouped convolution, which it counts once for each group of channels.

    Flash attention is off, on the CPU too, because torch does not count its multiplications there.
    """
    solve, convolution = torch.ops.aten.linalg_solve_triangular, torch.ops.aten.convolution_backward
    formulas = {solve: _triangular_solve_flops, convolution: _convolution_gradient_flops}
    counter = FlopCounter(flop_registry | {op: shape_wrapper(formula) for op, formula in formulas.items()})
    is_enabled = torch.backends.cuda.flash_sdp_enabled()
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        with counter:
            yield counter
    finally:
        torch.backends.cuda.enable_flash_sdp(is_enabled)


def _convolution_gradient_flops(output_gradient: Any, _image: Any, weight: Any, *settings: Any, **_outputs: Any) -> int:
    """Each gradient has the FLOPs of the convolution: 2 per element of its output and of one channel's filter."""
    is_transposed, wanted = settings[4], settings[7]
    assert not is_transposed
    return int(2 * math.prod(output_gradient) * math.prod(weight[1:]) * sum(wanted[:2]))


def _triangular_solve_flops(system: Any, right: Any, *, out_shape: Any, **settings: bool) -> int:
    return int(2 * system[-1] * math.prod(right))


def parameters(model: Any) -> int:
    return sum(p.numel() for p in model.parameters()) - _unread_expert_rows(model.config)


def _unread_expert_rows(config: Any) -> int:
    """Gate and up weights of LongCat-Flash's zero experts, which its class stores and never reads.

    LongCat-Flash-Chat has 560 billion parameters without them, as its model card states, and 741 billion with them.
    """
    if config.model_type != "longcat_flash":
        return 0
    width = 2 * config.expert_ffn_hidden_size  # gate and up
    return int(config.num_layers * (config.zero_expert_num) * width * config.hidden_size)


def cache_argument(model: Any) -> str | None:
    """The name of the class's argument for a cache; None if it has none."""
    known = inspect.signature(model.forward).parameters
    return next((name for name in ("past_key_values", "cache_params") if name in known), None)


def accepts_cache(model: Any) -> bool:
    return cache_argument(model) is not None


def images(config: dict[str, Any], rng: random.Random) -> list[tuple[int, int]]:
    """Image sizes that the model accepts: its default size and another one. Only positions of squares are resized."""
    size, patch = config.get("image_size", 64), config.get("patch_size")
    own = (size, size) if isinstance(size, int) else tuple(size)
    if config["model_type"] not in ("vit", "deit"):
        return [own, (rng.randint(66, 99), rng.randint(66, 99))]
    return [own, (rng.randint(28, 60),) * 2] if isinstance(size, int) and isinstance(patch, int) else [own]


def image_flops(model: Any, batch: int, image: tuple[int, int]) -> int:
    """FLOPs of a batch of images; `image` is (rows, columns) in pixels."""
    pixels = torch.zeros(batch, model.config.num_channels, *image, device=next(model.parameters()).device)
    resized = {"interpolate_pos_encoding": True} if model.config.model_type in ("vit", "deit") else {}
    if getattr(model.config, "image_size", None) in (image[0], list(image), image):
        resized = {}
    with torch.no_grad(), flop_counter() as counter:
        model(pixel_values=pixels, **resized)
    return int(counter.get_total_flops())


def matmul_flops(model: Any, batch: int, tokens: int, context: int = 0, source: int = 0) -> int:
    """FLOPs of `tokens` new tokens per sequence after `context` cached ones.

    In an encoder-decoder these are tokens of the decoder. The encoder reads `source` tokens in the first pass only, not
    in a pass with a context.
    """
    model.requires_grad_(False)  # torch's tracker of modules fails on a parameter that is a module's input (DeBERTa)
    given = _source(model, batch, source) if source else {}
    with torch.no_grad():
        if context:
            cache = _cache(model, batch)
            if source:  # caches that grow as needed, because the config has the encoder's number of layers
                cache = transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())
            cache_inputs = {cache_argument(model) or "": cache}
            first = model(**_tokens(model, batch, context), **given, **cache_inputs)
            encoded = transformers.modeling_outputs.MoEModelOutput(first.encoder_last_hidden_state) if source else None
            given = cache_inputs | ({"encoder_outputs": encoded} if source else {})
        with flop_counter() as counter:
            model(**_tokens(model, batch, tokens, context), **given)
    return int(counter.get_total_flops()) - unselected_expert_flops(model.config, batch * tokens)


def _cache(model: Any, batch: int) -> Any:
    """An empty cache; MiniMax and xLSTM have classes of their own."""
    if model.config.model_type == "xlstm":
        own = transformers.models.xlstm.modeling_xlstm
        return own.xLSTMCache(model.config, batch, dtype=torch.float32)
    if model.config.model_type == "minimax":
        return transformers.models.minimax.modeling_minimax.MiniMaxCache()
    return transformers.DynamicCache(config=model.config)


def _ids(model: Any, batch: int, tokens: int) -> Any:
    return torch.randint(3, model.config.vocab_size, (batch, tokens), device=next(model.parameters()).device)


def _tokens(model: Any, batch: int, tokens: int, past: int = 0) -> dict[str, Any]:
    """New tokens, as arguments of the class."""
    ids = _ids(model, batch, tokens)
    if "decoder_input_ids" in inspect.signature(model.forward).parameters:
        return {"decoder_input_ids": ids}
    if cache_argument(model) == "cache_params":  # a state space model accepts no mask of earlier tokens
        return {"input_ids": ids}
    return {"input_ids": ids, "attention_mask": torch.ones(batch, past + tokens, dtype=torch.long, device=ids.device)}


def _source(model: Any, batch: int, tokens: int) -> dict[str, Any]:
    """The inputs of an encoder: tokens, or audio frames, two per position."""
    if model.main_input_name == "input_features":
        bands = model.config.num_mel_bins
        return {"input_features": torch.randn(batch, bands, 2 * tokens, device=next(model.parameters()).device)}
    ids = _ids(model, batch, tokens)
    ids[:, -1] = model.config.eos_token_id  # classifiers use its position
    return {"input_ids": ids}


def unselected_expert_flops(config: Any, tokens: int) -> int:
    """FLOPs of Llama 4's unselected experts: its code runs every expert on every token, with zeros if not selected.

    Gate, up and down projections of these experts, in each MoE layer.
    """
    if config.model_type != "llama4_text":
        return 0
    unselected = config.num_local_experts - config.num_experts_per_tok
    return len(config.moe_layers) * 3 * 2 * tokens * unselected * config.hidden_size * config.intermediate_size


def training_flops(model: Any, batch: int, tokens: int, source: int = 0) -> int:
    """FLOPs of forward and backward pass, with a loss on all outputs of the model."""
    given = _source(model, batch, source) if source else {}
    flops = _forward_and_backward(model, **_tokens(model, batch, tokens), **given)
    return flops - 3 * unselected_expert_flops(model.config, batch * tokens)


def image_training_flops(model: Any, batch: int, image: tuple[int, int]) -> int:
    """The same for images; `image` is (rows, columns) in pixels."""
    return _forward_and_backward(model, pixel_values=torch.zeros(batch, model.config.num_channels, *image))


def _forward_and_backward(model: Any, **inputs: Any) -> int:
    with flop_counter() as counter:
        given = model(**inputs)
        sum(t.float().sum() for t in given.values() if torch.is_tensor(t) and t.requires_grad).backward()
    return int(counter.get_total_flops())
