"""Decoders whose code ships with the checkpoint, not with transformers: known families under other config keys.

These rows cannot be tested against a class of a pinned version. Tests compare them with the published parameter counts
of their checkpoints (`configs/`), and with the equivalent family in transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roofmodel.models.families import LM, Family, heads
from roofmodel.models.families.linear_attention import KIMI, LINEAR_CONFIG
from roofmodel.models.families.llama import GLM, LLAMA, QWEN2
from roofmodel.models.families.mixture_of_experts import FAMILIES as MOE
from roofmodel.models.fields import COUNT, FLAG, SIZE, FieldType, key
from roofmodel.numbers.algebra import ceil_div


def _negated(flag: Any) -> Any:
    return not flag if isinstance(flag, bool) else flag


def _half(width: Any) -> Any:
    """Qwen's code divides the width between gate and up."""
    return width // 2 if type(width) is int else width


def _word(if_true: str, if_false: str) -> Callable[[Any], str]:
    """The reader of a flag in place of which a field has one of two words."""

    def read(flag: Any) -> str:
        if not isinstance(flag, bool):
            raise ValueError(FLAG.expected)
        return if_true if flag else if_false

    return read


def _mtp_parameters(f: Any) -> int:
    """Parameters of a layer for multi-token prediction, which the forward pass of MiMo's class does not run.

    It has a layer of the model, three more norms, and a projection of a token embedding and a hidden state.
    """
    hidden, query, kv = f["hidden"], f["heads"] * f["head_dim"], f["kv_heads"] * f["head_dim"]
    attention = hidden * (2 * query + 2 * kv) + query + 2 * kv
    return int(attention + 3 * hidden * f["mlp_width"] + 5 * hidden + 2 * hidden * hidden)


BLOCK_FORM = "a list of one object per layer, with the objects 'attention' and 'ffn'"
PARTS_OF_BLOCK = {"attention": "n_heads_in_group", "ffn": "ffn_mult"}  # with the key of their size
UNSUPPORTED_IN_BLOCKS = "sparsify", "window_length", "num_sink_tokens", "unshifted_sink"


def _blocks(blocks: Any) -> Any:
    """`block_configs` of DeciLM, whose sizes are valid; `_layers_of_blocks` needs the fields of the model, too."""
    if not isinstance(blocks, list):
        raise ValueError(BLOCK_FORM)
    for layer, block in enumerate(blocks):
        parts = {name: block.get(name) for name in PARTS_OF_BLOCK} if isinstance(block, dict) else {}
        for name, size in PARTS_OF_BLOCK.items():
            part = parts.get(name)
            if not isinstance(part, dict):
                raise ValueError(f"{BLOCK_FORM}; that of layer {layer} is another")
            if any(part.get(name) for name in UNSUPPORTED_IN_BLOCKS):
                raise ValueError(f"without {', '.join(UNSUPPORTED_IN_BLOCKS)}, which are not supported: layer {layer}")
            flags = [part.get(name, False) for name in ("no_op", "replace_with_linear")]
            if not all(map(FLAG.accepts, flags)):
                raise ValueError(f"with true or false for 'no_op' and 'replace_with_linear': layer {layer}")
            valid = SIZE.accepts if size == "n_heads_in_group" else MULTIPLE.accepts
            if not any(flags) and not valid(part.get(size)):
                raise ValueError(f"with a positive {size!r} in each block that has attention or an MLP: layer {layer}")
    return blocks


def _mixers_of_blocks(blocks: Any) -> list[str]:
    """The mixer of each layer; empty: none."""
    parts = [block["attention"] for block in _blocks(blocks)]
    return ["" if part.get("no_op") else "linear" if part.get("replace_with_linear") else "attention" for part in parts]


def _layers_of_blocks(f: Any) -> list[dict[str, Any]]:
    """The key-value heads and the MLP of each layer."""
    if not any(not part.get("no_op") for block in f["blocks"] for part in (block["attention"], block["ffn"])):
        raise ValueError("no layer has attention or an MLP")
    layers = []
    for layer, (block, mixer) in enumerate(zip(f["blocks"], f["mixers"], strict=True)):
        ffn, is_linear, group = block["ffn"], bool(block["ffn"].get("replace_with_linear")), 1
        if mixer == "attention":
            group = block["attention"]["n_heads_in_group"]
        if f["heads"] % group:
            raise ValueError(f"layer {layer}: 'n_heads_in_group' {group} does not divide {f['heads']} heads")
        own = {
            "kv_heads": f["heads"] // group,
            "mlp": not ffn.get("no_op"),
            "mlp_kind": "linear" if is_linear else "mlp",
        }
        if own["mlp"] and not is_linear:
            own["mlp_width"] = 256 * ceil_div(int(2 * round(ffn["ffn_mult"], 6) * f["hidden"] / 3), 256)
            if not SIZE.accepts(own["mlp_width"]):
                raise ValueError(f"layer {layer}: 'ffn_mult' {ffn['ffn_mult']} gives {own['mlp_width']} columns")
        layers.append(own)
    return layers


MULTIPLE = FieldType(lambda v: type(v) in (int, float) and 0 < v < 10_000, "a positive number")
FAMILIES: dict[str, Family] = {
    # the 13B model has no rotary embedding: its configs have no max_position_embeddings
    "baichuan": LLAMA.like(
        "Baichuan",
        classes=heads("ForCausalLM", "Model"),
        kv_heads=lambda f: f["heads"],
        head_dim=lambda f: f["hidden"] // f["heads"],
        fused_qkv=True,
        qkv_bias=False,
        out_bias=False,
        alibi=lambda f: f["positions"] is None,
        rotary=lambda f: 0 if f["alibi"] else 1,
        mlp_bias=False,
        positions=key("max_position_embeddings", default=None),
    ),
    "qwen": LLAMA.like(
        "QWen",
        classes={"LMHeadModel": LM, "Model": ()},
        hidden=key("hidden_size", "n_embd"),
        layers=key("num_hidden_layers", "n_layer"),
        heads=key("num_attention_heads", "n_head"),
        kv_heads=lambda f: f["heads"],
        head_dim=key("kv_channels", default=128),
        fused_qkv=True,
        qkv_bias=True,
        out_bias=key("no_bias", default=True, read=_negated),
        mlp_width=key("intermediate_size", "ffn_hidden_size", default=22016, read=_half),
        mlp_bias=key("no_bias", default=True, read=_negated),
        activation="silu",
        positions=key("max_position_embeddings", "n_positions", default=8192),
    ),
    "internlm2": LLAMA.like(
        "InternLM2",
        classes=heads("ForCausalLM", "ForSequenceClassification", "Model"),
        head_dim=lambda f: f["hidden"] // f["heads"],
        fused_qkv=True,
        qkv_bias=key("bias", default=True),
        out_bias=key("bias", default=True),
        mlp_bias=False,
    ),
    "chatglm": GLM.like(
        "ChatGLM",
        classes={"ForConditionalGeneration": LM, "Model": LM},  # the inner class contains the head
        switches=dict(
            grouped=(FLAG, key("multi_query_attention", default=False)),
            kv_groups=(SIZE, key("multi_query_group_num", default=1)),
            biased=(FLAG, key("add_bias_linear", default=False)),
            qkv_biased=(FLAG, key("add_qkv_bias", default=False)),
        ),
        layers=key("num_layers", "num_hidden_layers"),
        vocabulary=key("padded_vocab_size"),
        kv_heads=lambda f: f["kv_groups"] if f["grouped"] else f["heads"],
        head_dim=key("kv_channels", default=128),
        fused_qkv=True,
        qkv_bias=lambda f: f["biased"] or f["qkv_biased"],
        out_bias=lambda f: f["biased"],
        rotary=0.5,
        norm=key("rmsnorm", default=True, read=_word("rmsnorm", "layernorm")),
        final_norm=key("post_layer_norm", default=True),
        mlp_width=key("ffn_hidden_size", default=13696),
        mlp_bias=lambda f: f["biased"],
        activation="silu",
        positions=key("seq_length", default=2048),
    ),
    # its factors on embedding, residual sums and logits are neither parameters nor kernels, as in Granite
    "minicpm": LLAMA.like(
        "MiniCPM",
        classes=heads("ForCausalLM", "ForSequenceClassification", "Model"),
        refuses=("num_experts", "sparse_config"),
        head_dim=lambda f: f["hidden"] // f["heads"],
        mlp_bias=False,
        tied=key("tie_word_embeddings", default=True),
    ),
    # transformers has the same decoder in its multimodal class
    "minimax_m3": MOE["minimax_m3_vl_text"].like("MiniMaxM3", classes=heads("ForCausalLM", "Model")),
    "mimo": QWEN2.like(
        "MiMo",
        classes=heads("ForCausalLM", "Model"),
        switches={**QWEN2.switches, "mtp": (COUNT, key("num_nextn_predict_layers", default=0))},
        unused_parameters=lambda f: f["mtp"] * _mtp_parameters(f),
    ),
    # Kimi-K3's text model; its config says kimi_linear
    "kimi_k3_text": KIMI.like(
        "KimiLinear",
        latent_gate=key("mla_use_output_gate", default=False, read=_word("element", "")),
        linear_full_gate=key(f"{LINEAR_CONFIG}.use_full_rank_gate", default=False),
        linear_sigmoid_decay=key(f"{LINEAR_CONFIG}.gate_lower_bound", default=False, null=False, read=bool),
        expert_latent=key("routed_expert_hidden_size", default=None),
        expert_latent_norm=key("latent_moe_use_norm", default=False),
        layers_per_sum=key("attn_res_block_size", default=0, null=0),
        # the first sublayer has a query and a norm for one sum, which its code does not use
        unused_parameters=lambda f: 2 * f["hidden"] if f["layers_per_sum"] else 0,
    ),
    # layers of different sizes that a search has found (Puzzle, arXiv 2411.19146)
    "nemotron-nas": LLAMA.like(
        "DeciLM",
        classes=heads("ForCausalLM", "Model"),
        switches=dict(
            blocks=(FieldType(lambda v: isinstance(v, list), BLOCK_FORM), key("block_configs", read=_blocks))
        ),
        kv_heads=lambda f: f["heads"],
        head_dim=lambda f: f["hidden"] // f["heads"],
        mixers=key("block_configs", read=_mixers_of_blocks),
        layer_fields=_layers_of_blocks,
        mlp_width=lambda f: max(layer.get("mlp_width", 1) for layer in f["layer_fields"]),
        positions=key("max_position_embeddings", default=2048),
    ),
}
