"""The weight matrices that a quantized checkpoint does not convert, from the module names of its config."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from roofmodel.models.quantization import Quantization

_MLP = ("mlp", "feed_forward", "block_sparse_moe", "ffn")
_MLP_MATRICES = {"gate": ("gate_proj", "w1"), "up": ("up_proj", "w3"), "down": ("down_proj", "w2")}
# Names of one family or a few: OPT, Phi, GPT-2 and StarCoder2, GPT-J, GPT-NeoX, BLOOM and Falcon, MPT
_OTHER_MLP_NAMES = {
    "up": ("fc1", "mlp.fc1", "mlp.c_fc", "mlp.fc_in", "mlp.dense_h_to_4h", "ffn.up_proj"),
    "down": ("fc2", "mlp.fc2", "mlp.c_proj", "mlp.fc_out", "mlp.dense_4h_to_h", "ffn.down_proj"),
    "gate_up": ("mlp.dense_h_to_4h",),
}  # fmt: skip
_FUSED_QKV = (
    "self_attn.qkv_proj", "attn.c_attn", "attn.Wqkv", "attention.wqkv", "attention.query_key_value",
    "self_attention.query_key_value",
)  # fmt: skip
_OTHER_ATTENTION_NAMES = {
    **{name: (f"attn.{name}_proj", f"attention.{name}_proj", *_FUSED_QKV) for name in ("q", "k", "v")},
    "qkv": _FUSED_QKV,
    "out": (
        "self_attn.out_proj", "self_attn.dense", "attn.c_proj", "attn.out_proj", "attention.wo", "attention.dense",
        "self_attention.dense",
    ),
}  # fmt: skip
_DEEPSEEK_V4_NAMES = {
    "q_down": "wq_a", "q_up": "wq_b", "kv": "wkv", "out_down": "wo_a", "out": "wo_b", "index_q": "indexer.wq_b",
}  # fmt: skip
"""Names in `attn` of DeepSeek's published code."""


def _modules() -> dict[str, tuple[str, ...]]:
    """Weight matrix -> names of its module in a layer, in the naming of transformers and of common checkpoints."""
    attention = {
        "q": ("q_proj",), "k": ("k_proj",), "v": ("v_proj",), "qkv": ("qkv_proj", "q_proj"), "out": ("o_proj",),
        "gate_heads": ("g_proj",), "q_down": ("q_a_proj",), "q_up": ("q_b_proj", "q_gate_proj"),
        "kv_down": ("kv_a_proj_with_mqa",), "kv_up": ("kv_b_proj",), "k_up": ("kv_b_proj",), "v_up": ("kv_b_proj",),
        "index_q": ("indexer.wq_b", "indexer.q_proj"), "index_k": ("indexer.wk", "indexer.k_proj"),
        "index_weights": ("indexer.weights_proj", "indexers_proj"),
    }  # fmt: skip
    modules_by_matrix = {
        f"W_{name}": tuple(f"self_attn.{module}" for module in modules) for name, modules in attention.items()
    }
    matrices = {**_MLP_MATRICES, "gate_up": ("gate_up_proj", "gate_proj")}
    for name, modules in matrices.items():
        modules_by_matrix[f"W_{name}"] = tuple(f"{block}.{module}" for block in _MLP for module in modules)
        modules_by_matrix[f"W_expert_{name}"] = tuple(
            f"{block}.experts.0.{module}" for block in _MLP for module in modules
        )
        modules_by_matrix[f"W_shared_{name}"] = tuple(
            f"{block}.{shared}.{module}"
            for block in _MLP for shared in ("shared_experts", "shared_expert") for module in modules
        )  # fmt: skip
    modules_by_matrix |= {"W_kv": ("self_attn.kv_proj",), "W_out_down": ("self_attn.o_a_proj",)}
    for name, module in _DEEPSEEK_V4_NAMES.items():
        modules_by_matrix[f"W_{name}"] += (f"attn.{module}",)
    for name, others in {**_OTHER_ATTENTION_NAMES, **_OTHER_MLP_NAMES}.items():
        modules_by_matrix[f"W_{name}"] += others
    linear = {
        "qkv": ("in_proj_qkvz", "in_proj_qkv", "q_proj"), "out": ("out_proj", "o_proj"),
        "gate": ("in_proj_qkvz", "in_proj_z", "g_proj"), "q": ("q_proj",), "k": ("k_proj",), "v": ("v_proj",),
    }  # fmt: skip
    modules_by_matrix |= {
        f"W_linear_{name}": tuple(f"linear_attn.{module}" for module in modules) for name, modules in linear.items()
    }
    modules_by_matrix |= {f"W_ssm_{name}": (f"mixer.{name}_proj", f"mamba.{name}_proj") for name in ("in", "out")}
    modules_by_matrix["W_shared_scalar"] = tuple(f"{block}.shared_expert_gate" for block in _MLP)
    return modules_by_matrix


MODULES = _modules()
GROUPS = {
    "attention": "self_attn", "linear attention": "linear_attn", "gates of shared experts": "shared_expert_gate",
    "shared experts": "shared_expert", "experts": ".experts.", "state-space layers": "mixer", "MLP": "",
}  # fmt: skip
"""Name of a group of matrices in texts -> part of the module names; the first that fits."""

TABLES = {"E_token": "embeddings", "E_logits": "head"}
"""The token table and the head's own matrix, which few quantized checkpoints convert -> their names in texts."""
ROUTERS = frozenset({"W_router", "W_attention_router"})
"""The matrices of routers. No published quantized checkpoint converts them."""


class Unconverted(NamedTuple):
    """The weight matrices that keep the working format: those named here in all layers, `partly` in some layers.

    Matrices that most layers do not convert count as not converted in any layer, and the others as converted in all.
    """

    names: frozenset[str] = frozenset()
    partly: frozenset[str] = frozenset()


def group_of(name: str) -> str:
    """The group of a weight matrix, such as attention."""
    if name in ROUTERS:
        return "router"
    if name in TABLES:
        return TABLES[name]
    module = MODULES.get(name, (name,))[0]
    return next(group for group, part in GROUPS.items() if part in module)


@cache
def unconverted(quantization: Quantization | None, layers: int) -> Unconverted:
    """The matrices that a quantized checkpoint of this number of layers does not convert; without one, the router."""
    if quantization is None:
        return Unconverted(ROUTERS)
    names, partly = set(ROUTERS), set[str]()
    for name, modules in MODULES.items():
        count = quantization.unconverted_layers(modules, layers)
        if 2 * count >= layers and count:
            names.add(name)
        elif count:
            partly.add(name)
    return Unconverted(frozenset(names), frozenset(partly))


class GroupFormats(NamedTuple):
    """The formats of weight matrices that are not in a checkpoint's main format, as pairs of matrix and format.

    A matrix that a group contains in most layers has its format in all layers; `partly` are those of fewer layers,
    which have the main format.
    """

    formats: tuple[tuple[str, str], ...] = ()
    partly: frozenset[str] = frozenset()


@cache
def group_formats(quantization: Quantization | None, layers: int) -> GroupFormats:
    """The matrices in other formats, of a quantized checkpoint of this number of layers with groups of modules."""
    if quantization is None or not quantization.groups:
        return GroupFormats()
    formats, partly = dict[str, str](), set[str]()
    for form, targets in quantization.groups:
        for name, modules in MODULES.items():
            count = quantization.target_layers(targets, modules, layers)
            if 2 * count >= layers and count:
                formats.setdefault(name, form)
            elif count:
                partly.add(name)
    return GroupFormats(tuple(formats.items()), frozenset(partly - formats.keys()))
