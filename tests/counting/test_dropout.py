"""Dropout in training memory, compared with the real classes in training mode and with published formulas."""

from __future__ import annotations

import random
from typing import Any

import pytest

from roofmodel.counting import passes, phases
from roofmodel.counting.training.dropout import with_dropout
from roofmodel.counting.workload import Workload
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES
from tests import draws

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")

from transformers import CONFIG_MAPPING  # noqa: E402

from tests import oracle  # noqa: E402

B, T, SOURCE = 2, 5, 7
BOTH_KINDS = [  # families with other dropout than that of attention probabilities, and Llama
    "albert", "bart", "bert", "biogpt", "bloom", "codegen", "distilbert", "emu3_text_model", "esm", "gpt2", "gpt_neo",
    "gpt_neox", "gptj", "llama", "m2m_100", "marian", "modernbert", "mpt", "nemotron_h", "opt", "persimmon", "phi",
    "phi3", "seed_oss", "stablelm", "starcoder2", "t5", "umt5", "xglm",
]  # fmt: skip


def inputs(model_type: str) -> dict[str, Any]:
    """Token ids for a model; an encoder-decoder has a source."""
    ids = torch.full((B, T), 3)
    if FAMILIES[model_type].source:
        return {"input_ids": torch.full((B, SOURCE), 3), "decoder_input_ids": ids, "use_cache": False}
    return {"input_ids": ids}


def train(model_type: str, **options: Any) -> Workload:
    lengths = {"seq": SOURCE, "decoder_seq": T} if FAMILIES[model_type].source else {"seq": T}
    return Workload(("train",), **{"batch": B, "dtype": "fp32", "attention": "eager", **lengths, **options})


@pytest.mark.parametrize("model_type", BOTH_KINDS)
def test_dropout_masks_have_as_many_elements_as_in_the_real_class(
    model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All dropout probabilities of the config are 10 %; layers are not dropped."""
    dropped = 0

    def count(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        nonlocal dropped
        dropped += x.numel() if training and p > 0 else 0
        return x

    default = CONFIG_MAPPING[model_type]().to_dict()
    keys = [key for key, value in default.items() if "drop" in key and type(value) is float]
    config = draws.config(model_type, random.Random(1)) | {key: 0.1 * ("layerdrop" not in key) for key in keys}
    if model_type == "mpt":
        config["attn_config"] = {"attn_pdrop": 1}  # the class accepts whole numbers only
    config["architectures"] = [FAMILIES[model_type].prefix + "Model"]
    if "Model" not in FAMILIES[model_type].classes:
        config["architectures"] = [FAMILIES[model_type].prefix + next(iter(FAMILIES[model_type].classes))]
    model = oracle.build(config).train()
    monkeypatch.setattr(torch.nn.functional, "dropout", count)
    model(**inputs(model_type))

    arch, step = architecture(config, "x", "x"), train(model_type).steps()[0]
    added = [op for op in with_dropout(passes.one_pass(arch, step), arch.code.dropout) if op.kind == "dropout"]
    assert sum(op.count * op.writes[1].elements(op.sizes) for op in added) == dropped > 0


def saved(config: dict[str, Any], attention: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes that autograd saves in a forward pass of the real class in training mode, without parameters.

    Dropout runs the kernel that PyTorch uses on GPUs, `native_dropout`. On CPUs, PyTorch would multiply by a mask of
    the tensor's own format.
    """
    model = oracle.build(config).train()
    model.set_attn_implementation(attention)
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    storages: dict[int, Any] = {}

    def native(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return torch.native_dropout(x, p, training)[0] if training and p > 0 else x

    def pack(tensor: Any) -> Any:
        pointer = tensor.untyped_storage().data_ptr()
        if (tensor.is_floating_point() or tensor.dtype == torch.bool) and pointer not in parameters:
            storages[pointer] = tensor
        return tensor

    with monkeypatch.context() as patched, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        patched.setattr(torch.nn.functional, "dropout", native)
        output = model(**inputs(config["model_type"]))
    assert output is not None
    return sum(tensor.untyped_storage().nbytes() for tensor in storages.values())


SIZES = {
    "gpt2": {"n_embd": 32, "n_head": 4, "vocab_size": 11, "n_positions": 16, "activation_function": "gelu"},
    "bert": {
        "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 11, "intermediate_size": 128,
        "max_position_embeddings": 16,
    },
    "t5": {"d_model": 32, "num_heads": 4, "d_kv": 8, "d_ff": 128, "vocab_size": 11},
    "bart": {
        "d_model": 32, "vocab_size": 11, "max_position_embeddings": 16, "activation_dropout": 0.1,
        "attention_dropout": 0.1, "encoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_attention_heads": 4,
        "decoder_ffn_dim": 128,
    },
}  # fmt: skip
DEPTH = {
    "gpt2": ("n_layer",), "bert": ("num_hidden_layers",), "t5": ("num_layers", "num_decoder_layers"),
    "bart": ("encoder_layers", "decoder_layers"),
}  # fmt: skip


PROBABILITIES = ("attn_pdrop", "attention_probs_dropout_prob", "attention_dropout")


def config_of(model_type: str, layers: int, attention: str, dropout: bool = True) -> dict[str, Any]:
    """A tiny model of the family, with or without dropout.

    Under sdpa, attention probabilities are not dropped: PyTorch has no fused kernel for it on CPUs.
    """
    default = CONFIG_MAPPING[model_type]().to_dict()
    sizes = {**SIZES[model_type], **dict.fromkeys(DEPTH[model_type], layers)}
    dropped = [key for key, value in {**default, **sizes}.items() if "drop" in key and type(value) is float]
    off = [key for key in dropped if not dropout or (attention == "sdpa" and key in PROBABILITIES)]
    name = FAMILIES[model_type].prefix + "Model"
    return {"model_type": model_type, **sizes, **dict.fromkeys(off, 0.0), "architectures": [name]}


def kept(config: dict[str, Any], attention: str) -> int:
    """Counted bytes of stored activations."""
    work = train(config["model_type"], attention="eager" if attention == "eager" else "flash")
    return int(phases.peak_memory(architecture(config, "x", "x"), work).kept)


@pytest.mark.parametrize(
    ("model_type", "attention"),
    [("gpt2", "eager"), ("bert", "eager"), ("bart", "eager"), ("bert", "sdpa"), ("bart", "sdpa")],
)
def test_stored_activations_with_dropout_equal_those_of_autograd(
    model_type: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The families whose kernels match our operators; autograd also saves mean and deviation of each norm."""
    config = config_of(model_type, 3, attention)
    assert kept(config, attention) == pytest.approx(saved(config, attention, monkeypatch), rel=0.05)


@pytest.mark.parametrize(
    ("model_type", "attention"),  # one key sets all probabilities of T5, so its sdpa has no fused kernel on CPUs
    [*((name, "eager") for name in SIZES), *((name, "sdpa") for name in SIZES if name != "t5")],
)
def test_dropout_adds_the_bytes_that_it_adds_in_autograd(
    model_type: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drops, keeps_all = (config_of(model_type, 2, attention, dropout) for dropout in (True, False))
    real = saved(drops, attention, monkeypatch) - saved(keeps_all, attention, monkeypatch)
    assert kept(drops, attention) - kept(keeps_all, attention) == real > 0
