"""Architectures described in YAML instead of a Hugging Face config, read with a row like that of a family.

`examples/models/` has examples. `ROW` lists all keys; a dot separates a section from a key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from roofmodel.errors import ModelError, choices
from roofmodel.files.text_files import YamlValue, printable, read_yaml
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import DESCRIBED, architecture_from_row
from roofmodel.models.families import BERT_HEADS, LM, Family
from roofmodel.models.families.llama import one_full_in
from roofmodel.models.fields import FLAG, NORM_POSITION, POSITION_ENCODING, SIZE, ConfigLocation, Key, key


def _is_one_of(field: str, *words: str) -> Callable[[Any], bool]:
    return lambda f: f[field] in words


ROW = Family(
    "",
    classes={"language model": LM, "masked language model": BERT_HEADS["ForMaskedLM"], "none": ()},
    switches=dict(
        causal=(FLAG, key("causal", default=True, about="a token attends to itself and to earlier tokens only")),
        position_encoding=(POSITION_ENCODING, key("positions", default="rotary")),
        norm_position=(
            NORM_POSITION,
            key("norm_stands", default="before", about="before a block, after it, or on the residual sum"),
        ),
        bias=(FLAG, key("attention.bias", default=False)),
        full_every=(
            SIZE,
            key("attention.full_every", default=None, about="1 in this many layers attends beyond its window"),
        ),
    ),
    fields=dict(
        hidden=key("hidden_size"),
        layers=key("layers"),
        vocabulary=key("vocabulary"),
        tied=key("tied", about="the LM head shares the token embedding's matrix"),
        positions=key("max_tokens", default=None),
        position_table=_is_one_of("position_encoding", "learned"),
        sinusoidal_positions=_is_one_of("position_encoding", "sinusoidal"),
        alibi=_is_one_of("position_encoding", "alibi"),
        relative_keys=_is_one_of("position_encoding", "relative"),
        type_rows=key("token_types", default=0),
        embedding_norm=key("embedding_norm", default=False),
        head_bias=key("head_bias", default=False),
        labels=2,  # which no head reads
        norm=key("norm"),
        norm_affine=key("norm_gain", default=True),
        norm_bias=key("norm_bias", default=lambda f: f["norm_affine"] and f["norm"] == "layernorm"),
        pre_norm=_is_one_of("norm_position", "before", "both"),
        out_norm=_is_one_of("norm_position", "after", "both"),
        final_norm=key("final_norm", default=lambda f: not f["sum_norm"]),
        parallel=key("parallel", default=False, about="attention and MLP run in parallel"),
        parallel_norms=key("parallel_norms", default=2, about="2: one norm each; 1: one norm for both"),
        heads=key("attention.heads"),
        kv_heads=key("attention.kv_heads", default=lambda f: f["heads"]),
        head_dim=key("attention.head_dim", default=lambda f: f["hidden"] // f["heads"]),
        value_dim=key("attention.value_dim", default=lambda f: f["head_dim"]),
        fused_qkv=key("attention.fused", default=False, about="one matrix for queries, keys and values"),
        qkv_bias=key("attention.qkv_bias", default=lambda f: f["bias"]),
        out_bias=key("attention.out_bias", default=lambda f: f["bias"]),
        rotary=lambda f: int(f["position_encoding"] == "rotary"),
        rotary_dim=key("attention.rotary_dim", default=lambda f: f["head_dim"] * f["rotary"]),
        qk_norm=key("attention.norm", default=False, about="norms on the queries and keys of each head"),
        sinks=key("attention.sinks", default=False),
        window=key("attention.window", default=None),
        layer_types=lambda f: one_full_in(f["full_every"] or f["layers"] + 1)(f),
        latent=key("attention.latent", default=0, about="width of the latent that keys and values are computed from"),
        query_latent=key("attention.query_latent", default=None),
        mlp_width=key("mlp.width"),
        activation=key("mlp.activation"),
        gated=key("mlp.gated", default=False),
        fused_gate=key("mlp.fused", default=False, about="one matrix for gate and up"),
        mlp_bias=key("mlp.bias", default=False),
        experts=key("experts.count", default=0),
        experts_active=key("experts.active", default=1, about="experts per token (top-k)"),
        expert_width=key("experts.width", default=lambda f: f["mlp_width"]),
        fused_experts=key("experts.fused", default=lambda f: f["fused_gate"]),
        expert_bias=key("experts.bias", default=False),
        router_bias=key("experts.router_bias", default=False),
        correction=key("experts.correction", default=False, about="a learned bias per expert in the router's choice"),
        shared_width=key("experts.shared_width", default=0, about="width of the shared MLP, for all tokens"),
        shared_gate=key("experts.shared_gate", default=False),
        dense_first=key("experts.dense_first", default=0, about="layers at the start with an MLP instead of experts"),
        moe_every=key("experts.every", default=1, about="the last of every this many layers has experts"),
    ),
)
NEEDED = {"experts": ("count", "active")}


def load(path: Path) -> Architecture:
    """The architecture that a YAML file describes, named after the file. Raises ModelError with file and line."""
    root = read_yaml(path, ModelError, "a model's YAML")
    config, lines = _values(root)
    head = root.mapping().get("head")
    if head and head.text() not in ROW.classes:
        raise head.error(f"'head' is {head.text()!r}{choices(head.text(), ROW.classes)}")
    return architecture(config, printable(path.stem), ConfigLocation(str(path), lines))


def architecture(description: dict[str, Any], name: str, where: ConfigLocation) -> Architecture:
    """The architecture of a parsed description, whose `head` is known. Raises ModelError."""
    row = ROW._replace(encoder=description.get("causal") is False)
    config = {**description, "architectures": [description.get("head", next(iter(ROW.classes)))]}
    arch = architecture_from_row(config, name, where, DESCRIBED, row)
    return replace(arch, notes=())  # a default here is the format's, not another class's


def keys() -> dict[str, set[str]]:
    """The keys of each section; of the file, under an empty name."""
    names: dict[str, set[str]] = {"": {"head"}}
    for source in (*ROW.fields.values(), *(source for _, source in ROW.switches.values())):
        if isinstance(source, Key):
            section, _, name = source.names[0].rpartition(".")
            names.setdefault(section, set()).add(name)
            names[""] |= {section or name}
    return names


def _values(root: YamlValue) -> tuple[dict[str, Any], dict[str, int]]:
    """What a file says, as a config would, and the line of each key."""
    known_keys = keys()
    config: dict[str, Any] = {}
    lines = {}
    for name, entry in root.mapping(sorted(known_keys[""])).items():
        lines[name] = entry.line
        if name in known_keys:
            inside = entry.mapping(sorted(known_keys[name]), required=NEEDED.get(name, ()))
            config[name] = {key: entry.value() for key, entry in inside.items()}
            lines |= {entry.path: entry.line for entry in inside.values()}
        else:
            config[name] = entry.value()
    return config, lines
