"""Casts under autocast, compared with torch's casts when transformers' models run under the same policy.

Without a GPU, `torch.autocast("cuda")` does nothing. `Autocast` therefore applies the documented policy for CUDA
(https://docs.pytorch.org/docs/stable/amp.html): which operators compute in 16 bits and which in fp32. All casts and
the types of all other operators follow from torch's own rules on the meta device.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from typing import Any

import pytest

from roofmodel.devices.device import Device
from roofmodel.errors import RoofError
from roofmodel.models.config import architecture
from roofmodel.models.hub import load
from roofmodel.steps.estimate import estimate
from roofmodel.steps.placed import Placed
from roofmodel.timing.casting import GEMM_KINDS

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
WITH_FP32_OUTPUT = {F.softmax, torch.softmax, torch.Tensor.softmax}

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
OTHER_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
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

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in IN_16_BITS:
            args, kwargs = tree_map(self.low, args), tree_map(self.low, kwargs)
        elif function in IN_FP32:
            args = tree_map(lambda value: value.float() if isinstance(value, torch.Tensor) else value, args)
        elif function in WITH_FP32_OUTPUT:
            kwargs = {**kwargs, "dtype": torch.float32}
        return function(*args, **kwargs)


class KernelTraffic(TorchDispatchMode):  # type: ignore[misc]
    """Bytes that each kernel reads and writes; expanded tensors count with their stored size."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, kernel: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = kernel(*args, **(kwargs or {}))
        name = kernel.overloadpacket.__name__
        if not kernel.is_view and name not in ("detach", "_unsafe_view", "empty"):
            tensors = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, torch.Tensor)]
            self.bytes[name] += sum(stored_bytes(tensor) for tensor in tensors)
        return out


def stored_bytes(tensor: Any) -> int:
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return int(math.prod(sizes) * tensor.element_size())


@functools.cache
def torch_traffic(model: str, with_other_models: bool = False, autocast: bool = True) -> Counter[str]:
    """Traffic of each kernel in a layer's training step: the difference of models with 3 and with 2 layers."""
    name, settings = (OTHER_MODELS if with_other_models else MODELS)[model]
    traffic = []
    for layers in (LAYERS, LAYERS - 1):
        config = getattr(transformers, name)(
            **{**settings, ("n_layer" if "n_layer" in settings else "num_hidden_layers"): layers}
        )
        config._attn_implementation = "eager"
        with torch.device("meta"), KernelTraffic() as kernels:
            module = getattr(transformers, model)(config).train()
            if not autocast:
                module = module.to(torch.bfloat16)
            kernels.bytes.clear()
            with Autocast() if autocast else contextlib.nullcontext():
                if "ViT" in model:
                    output = module(torch.zeros(BATCH, 3, 224, 224)).last_hidden_state
                else:
                    tokens = torch.zeros(BATCH, SEQ, dtype=torch.long)
                    inputs = {} if "Bert" in model else {"use_cache": False, "position_ids": torch.arange(SEQ)[None]}
                    mask = torch.zeros(BATCH, 1, SEQ, SEQ, dtype=torch.bfloat16)
                    output = module(tokens, attention_mask=mask, **inputs).last_hidden_state
            output.backward(torch.empty_like(output))
        traffic.append(kernels.bytes)
    return traffic[0] - traffic[1]


@functools.cache
def placed_operators(model: str, with_other_models: bool = False, autocast: bool = True) -> tuple[Placed, ...]:
    """The operators of a layer's training step, with their extra kernels."""
    name, settings = (OTHER_MODELS if with_other_models else MODELS)[model]
    config = getattr(transformers, name)(**settings).to_dict() | {"architectures": [model]}
    length = {} if "ViT" in model else {"seq": SEQ}
    options = {"phase": "train", "batch": BATCH, "dtype": "bf16", "attention": "eager"}
    options |= {"engine_option": "autocast=bf16"} if autocast else {}
    found = estimate(architecture(config, model, model), A100, **options, **length).phases[0].placed
    return tuple(one for one in found if one.operator.layers and len(one.operator.layers) == LAYERS)


def bytes_of(model: str, *endings: str, kernel: str = "in fp32") -> int:
    """Bytes of a layer's operators whose names have one of these endings, with the additional bytes of this kernel."""
    found = [one for one in placed_operators(model) if one.operator.name.endswith(endings)]
    assert found
    additional = sum(extra.bytes for one in found for extra in one.extra_kernels if extra.name == kernel)
    return sum(one.operator.cost.bytes for one in found) + additional


@pytest.mark.parametrize("model", MODELS)
def test_the_traffic_of_casts_equals_that_of_torch(model: str) -> None:
    cast = sum(
        kernel.bytes
        for one in placed_operators(model)
        for kernel in one.extra_kernels
        if kernel.name.startswith("cast ")
    )
    assert cast == torch_traffic(model)["_to_copy"]


@pytest.mark.parametrize("model", MODELS)
def test_norms_and_softmax_move_fp32_data(model: str) -> None:
    tokens = 14 * 14 + 1 if "ViT" in model else SEQ
    statistics = 2 * 2 * 4 * BATCH * tokens  # two norms: torch stores mean and deviation of each row
    torch_bytes = torch_traffic(model)
    assert bytes_of(model, "norm.attention", "norm.mlp") + statistics == torch_bytes["native_layer_norm"]
    gradients = bytes_of(model, "norm.attention.grad", "norm.mlp.grad") + statistics
    assert gradients == torch_bytes["native_layer_norm_backward"]
    assert bytes_of(model, "attention.softmax") == torch_bytes["_softmax"]
    assert bytes_of(model, "attention.softmax.grad") == torch_bytes["_softmax_backward_data"]
    assert bytes_of(model, "mlp.activation") == torch_bytes["gelu"]  # in 16 bits, like the output of the GEMM before it


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("model", OTHER_MODELS)
def test_the_traffic_of_a_layer_equals_that_of_torch(model: str, autocast: bool) -> None:
    """Without GEMMs and the gradients of gain and bias, which torch computes in the kernel of the norm's gradient."""
    gemms = ("mm", "addmm", "bmm", "baddbmm")
    kernels = torch_traffic(model, True, autocast)
    expected = sum(size for kernel, size in kernels.items() if kernel not in gemms)
    found = placed_operators(model, True, autocast)
    counted = sum(one.operator.cost.bytes for one in found if one.operator.kind not in GEMM_KINDS)
    extra = sum(
        kernel.bytes for one in found for kernel in one.extra_kernels if not kernel.name.startswith("gradients of")
    )
    assert counted + extra == pytest.approx(expected, rel=0.02)


def test_a_residual_stream_in_fp32_stays_fp32() -> None:
    """GPT-2 has two residual sums per layer. Each reads and writes fp32 and reads a 16-bit output: 4 + 2 + 4 bytes."""
    assert bytes_of("GPT2Model", "residual.attention", "residual.mlp") == 2 * (4 + 2 + 4) * BATCH * SEQ * 256


def extra_kernels_by_operator(model: str, dtype: str, **options: Any) -> dict[str, dict[str, int]]:
    settings = {"phase": "train", "batch": 2, "engine_option": f"autocast={dtype}", "attention": "eager"} | options
    found = estimate(load(model), A100, **settings).phases[0].placed
    return {one.operator.name: {kernel.name: kernel.bytes for kernel in one.extra_kernels} for one in found}


def test_softmax_reads_fp16_and_its_dropout_is_in_fp32() -> None:
    """The kernel converts (`half_to_float`), so no cast runs before it or after its gradient. Its output is fp32."""
    scores = 2 * 12 * 128 * 128
    found = extra_kernels_by_operator("bert-base-uncased", "fp16", seq=128)
    assert found["attention.softmax"]["in fp32"] == 2 * scores  # written
    assert found["attention.softmax.grad"]["in fp32"] == 2 * 2 * scores  # the gradient and the probabilities, read
    assert not any(name.startswith("cast") for name in found["attention.softmax"] | found["attention.softmax.grad"])
    dropout = found["attention.softmax"]["dropout"] + found["attention.softmax"]["dropout in fp32"]
    assert dropout == (4 + 4 + 1) * scores
    assert found["attention.mix"]["cast p"] == found["attention.mix.grad_p"]["cast grad.p"] == 6 * scores


def test_batch_norms_keep_16_bits() -> None:
    """A convolutional network casts only the image and the parameters."""
    found = extra_kernels_by_operator("resnet-18", "fp16")
    names = {name for kernels in found.values() for name in kernels if not name.startswith("gradients")}
    assert "cast image" in names
    assert all(name.removeprefix("cast ").removeprefix("grad.")[0].isupper() for name in names - {"cast image"})


def test_weights_given_in_16_bits_are_not_cast() -> None:
    found = extra_kernels_by_operator("gpt2", "bf16", seq=128, weights="bf16")
    assert not any(
        name.startswith(("cast W", "cast grad.W", "cast B")) for kernels in found.values() for name in kernels
    )


def test_training_stores_16_bytes_per_parameter() -> None:
    """As in torch, all fp32: 4 for the weight, 4 for its gradient, 8 for Adam's moments."""
    options = {"phase": "train", "batch": 1, "seq": 8, "engine_option": "autocast=bf16"}
    found = estimate(load("gpt2"), A100, **options)
    assert found.workload.weights == "fp32"
    need = found.memory
    assert need.weights + need.gradients + need.optimizer == 16 * 124_439_808


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "tf32"}, 'engine_option="autocast=bf16" computes GEMMs in bf16, not in tf32; try dtype="bf16"'),
        ({"dtype": "fp8"}, "not in fp8"),
        (
            {"dtype": "bf16", "activations": "fp32"},
            'activations="fp32": engine_option="autocast=bf16" keeps some activations in bf16 and others in fp32',
        ),
        ({"engine_option": "autocast=fp8"}, "engine_option: autocast has no format 'fp8'; known: bf16, fp16"),
    ],
)
def test_unsupported_options_of_autocast_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RoofError, match=message):
        estimate(load("gpt2"), A100, **{"phase": "train", "engine_option": "autocast=bf16", **options})
