"""Casts under autocast, compared with the casts of torch when transformers' models run under the same policy.

Without a GPU `torch.autocast("cuda")` does nothing, so `Autocast` applies what torch documents for CUDA
(https://docs.pytorch.org/docs/stable/amp.html): which operators take 16 bits and which fp32. What follows of it, which
tensor is cast where and back again, and which type the rest computes in, is torch's own, on the meta device.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from typing import Any

import pytest

from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models.config import architecture
from roofmodel.models.hub import load
from roofmodel.prediction.casting import GEMM_KINDS
from roofmodel.study.estimate.estimate import estimate
from roofmodel.study.estimate.placed import Placed

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

A100 = Device.load("a100")
BATCH, SEQ, LAYERS = 2, 128, 3
F = torch.nn.functional
IN_16_BITS = {F.linear, torch.matmul, torch.Tensor.matmul, torch.bmm, torch.addmm, torch.baddbmm, F.conv2d}
IN_FP32 = {F.layer_norm, torch.pow, torch.Tensor.pow}
GIVES_FP32 = {F.softmax, torch.softmax, torch.Tensor.softmax}

WIDE = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4, "num_hidden_layers": LAYERS}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "BertModel": ("BertConfig", {**WIDE, "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}),
    "ViTModel": ("ViTConfig", {**WIDE, "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}),
    "GPT2Model": (
        "GPT2Config",
        {
            "n_embd": 256, "n_head": 4, "n_layer": LAYERS, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
            "activation_function": "gelu",
        },
    ),
}  # fmt: skip

LLAMA = {**WIDE, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 512}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "LlamaModel": ("LlamaConfig", LLAMA),
    "Qwen3Model": ("Qwen3Config", LLAMA),
    "GPTNeoXModel": ("GPTNeoXConfig", {**WIDE, "rotary_pct": 0.25, "hidden_dropout": 0.0}),
    "GPT2Model": ("GPT2Config", {**MODELS["GPT2Model"][1], "activation_function": "gelu_new"}),
}


class Autocast(TorchFunctionMode):  # type: ignore[misc]
    """CUDA's policy: parameters are cast once, other tensors at each use."""

    def __init__(self) -> None:
        super().__init__()
        self.cached: dict[Any, Any] = {}

    def low(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            return value
        if not isinstance(value, torch.nn.Parameter):
            return value.to(torch.bfloat16)
        if value not in self.cached:
            self.cached[value] = value.to(torch.bfloat16)
        return self.cached[value]

    def __torch_function__(self, what: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if what in IN_16_BITS:
            args, kwargs = tree_map(self.low, args), tree_map(self.low, kwargs)
        elif what in IN_FP32:
            args = tree_map(lambda value: value.float() if isinstance(value, torch.Tensor) else value, args)
        elif what in GIVES_FP32:
            kwargs = {**kwargs, "dtype": torch.float32}
        return what(*args, **kwargs)


class Moved(TorchDispatchMode):  # type: ignore[misc]
    """Bytes that kernels read and write, by kernel; expanded tensors count with their stored size."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, what: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = what(*args, **(kwargs or {}))
        name = what.overloadpacket.__name__
        if not what.is_view and name not in ("detach", "_unsafe_view", "empty"):
            tensors = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, torch.Tensor)]
            self.bytes[name] += sum(held(tensor) for tensor in tensors)
        return out


def held(tensor: Any) -> int:
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return int(math.prod(sizes) * tensor.element_size())


@functools.cache
def torch_moves(model: str, others: bool = False, autocast: bool = True) -> Counter[str]:
    """Traffic of each kernel of a layer's training step: the difference of two models that differ by a layer."""
    name, settings = (OTHERS if others else MODELS)[model]
    found = []
    for layers in (LAYERS, LAYERS - 1):
        config = getattr(transformers, name)(
            **{**settings, ("n_layer" if "n_layer" in settings else "num_hidden_layers"): layers}
        )
        config._attn_implementation = "eager"
        with torch.device("meta"), Moved() as moved:
            module = getattr(transformers, model)(config).train()
            if not autocast:
                module = module.to(torch.bfloat16)
            moved.bytes.clear()
            with Autocast() if autocast else contextlib.nullcontext():
                if "ViT" in model:
                    given = module(torch.zeros(BATCH, 3, 224, 224)).last_hidden_state
                else:
                    tokens = torch.zeros(BATCH, SEQ, dtype=torch.long)
                    told = {} if "Bert" in model else {"use_cache": False, "position_ids": torch.arange(SEQ)[None]}
                    mask = torch.zeros(BATCH, 1, SEQ, SEQ, dtype=torch.bfloat16)
                    given = module(tokens, attention_mask=mask, **told).last_hidden_state
            given.backward(torch.empty_like(given))
        found.append(moved.bytes)
    return found[0] - found[1]


@functools.cache
def ours(model: str, others: bool = False, runtime: str = "autocast") -> tuple[Placed, ...]:
    """The operators of a layer's training step, with their extra kernels."""
    name, settings = (OTHERS if others else MODELS)[model]
    config = getattr(transformers, name)(**settings).to_dict() | {"architectures": [model]}
    size = {} if "ViT" in model else {"seq": SEQ}
    options = {"phase": "train", "batch": BATCH, "dtype": "bf16", "attention": "eager", "runtime": runtime}
    found = estimate(architecture(config, model, model), A100, **options, **size).phases[0].placed
    return tuple(one for one in found if one.operator.layers and len(one.operator.layers) == LAYERS)


def moved(model: str, *endings: str, kernel: str = "in fp32") -> int:
    """Bytes of a layer's operators with this suffix: as counted, and the part in fp32."""
    found = [one for one in ours(model) if one.operator.name.endswith(endings)]
    assert found
    wide = sum(other.bytes for one in found for other in one.extra_kernels if other.name == kernel)
    return sum(one.operator.cost.bytes for one in found) + wide


@pytest.mark.parametrize("model", MODELS)
def test_the_traffic_of_casts_equals_that_of_torch(model: str) -> None:
    cast = sum(kernel.bytes for one in ours(model) for kernel in one.extra_kernels if kernel.name.startswith("cast "))
    assert cast == torch_moves(model)["_to_copy"]


@pytest.mark.parametrize("model", MODELS)
def test_norms_and_softmax_move_fp32_data(model: str) -> None:
    tokens = 14 * 14 + 1 if "ViT" in model else SEQ
    statistics = 2 * 2 * 4 * BATCH * tokens  # of two norms: mean and deviation of each row, which torch keeps
    torch_s = torch_moves(model)
    assert moved(model, "norm.attention", "norm.mlp") + statistics == torch_s["native_layer_norm"]
    gradients = moved(model, "norm.attention.grad", "norm.mlp.grad") + statistics
    assert gradients == torch_s["native_layer_norm_backward"]
    assert moved(model, "attention.softmax") == torch_s["_softmax"]
    assert moved(model, "attention.softmax.grad") == torch_s["_softmax_backward_data"]
    assert moved(model, "mlp.activation") == torch_s["gelu"]  # in 16 bits, as the product before it


@pytest.mark.parametrize("runtime", ["eager", "autocast"])
@pytest.mark.parametrize("model", OTHERS)
def test_the_traffic_of_a_layer_equals_that_of_torch(model: str, runtime: str) -> None:
    """Except GEMMs, and a norm's second pass, which torch counts as one kernel."""
    products, torch_s = ("mm", "addmm", "bmm", "baddbmm"), torch_moves(model, True, runtime == "autocast")
    torch_s = sum(moved for kernel, moved in torch_s.items() if kernel not in products)
    found = ours(model, True, runtime)
    own = sum(one.operator.cost.bytes for one in found if one.operator.kind not in GEMM_KINDS)
    beside = sum(
        kernel.bytes for one in found for kernel in one.extra_kernels if not kernel.name.startswith("gradients of")
    )
    assert own + beside == pytest.approx(torch_s, rel=0.02)


def test_a_residual_stream_in_fp32_stays_fp32() -> None:
    """GPT-2 adds two blocks a layer: it reads and writes fp32 and reads block outputs in 16 bits, 4 + 2 + 4 bytes."""
    assert moved("GPT2Model", "residual.attention", "residual.mlp") == 2 * (4 + 2 + 4) * BATCH * SEQ * 256


def by_name(model: str, dtype: str, **options: Any) -> dict[str, dict[str, int]]:
    asked = {"phase": "train", "batch": 2, "dtype": dtype, "attention": "eager", "runtime": "autocast"} | options
    found = estimate(load(model), A100, **asked).phases[0].placed
    return {one.operator.name: {kernel.name: kernel.bytes for kernel in one.extra_kernels} for one in found}


def test_softmax_reads_fp16_and_its_dropout_is_in_fp32() -> None:
    """The kernel converts (`half_to_float`): no cast before it or after its gradient; its output is read as fp32."""
    scores = 2 * 12 * 128 * 128
    found = by_name("bert-base-uncased", "fp16", seq=128)
    assert found["attention.softmax"]["in fp32"] == 2 * scores  # written
    assert found["attention.softmax.grad"]["in fp32"] == 2 * 2 * scores  # the gradient and the probabilities, read
    assert not any(name.startswith("cast") for name in found["attention.softmax"] | found["attention.softmax.grad"])
    dropout = found["attention.softmax"]["dropout"] + found["attention.softmax"]["dropout in fp32"]
    assert dropout == (4 + 4 + 1) * scores
    assert found["attention.mix"]["cast p"] == found["attention.mix.grad_p"]["cast grad.p"] == 6 * scores


def test_batch_norms_keep_16_bits() -> None:
    """In a convolutional network only the image and the parameters are cast."""
    found = by_name("resnet-18", "fp16")
    names = {name for kernels in found.values() for name in kernels if not name.startswith("gradients")}
    assert "cast image" in names
    assert all(name.removeprefix("cast ").removeprefix("grad.")[0].isupper() for name in names - {"cast image"})


def test_weights_given_in_16_bits_are_not_cast() -> None:
    found = by_name("gpt2", "bf16", seq=128, weights="bf16")
    assert not any(
        name.startswith(("cast W", "cast grad.W", "cast B")) for kernels in found.values() for name in kernels
    )


def test_parameters_are_fp32_and_training_keeps_16_bytes_of_each() -> None:
    """torch: 4 of the weight, 4 of its gradient, 8 of Adam's moments."""
    options = {"phase": "train", "batch": 1, "seq": 8, "dtype": "bf16", "runtime": "autocast"}
    found = estimate(load("gpt2"), A100, **options)
    assert found.workload.weights == "fp32"
    need = found.memory
    assert need.weights + need.gradients + need.optimizer == 16 * 124_439_808


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dtype": "fp32"}, 'computes GEMMs in bf16 or fp16, not in fp32; try dtype="bf16"'),
        ({"dtype": "fp8"}, "not in fp8"),
        (
            {"dtype": "bf16", "activations": "fp32"},
            'activations: runtime="autocast" keeps some activations in dtype and others in fp32',
        ),
    ],
)
def test_unsupported_options_of_autocast_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(WorkloadError, match=told):
        estimate(load("gpt2"), A100, phase="train", runtime="autocast", **options)
