"""Multimodal configs: the text model within one, its head, and whether it ties the token table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from roofmodel.errors import ModelError, Text, shorten
from roofmodel.models.architecture import Architecture, Head
from roofmodel.models.families import FAMILIES, LM, Family, family_of
from roofmodel.models.families.multimodal import COMPOSITES, SIZES, Composite
from roofmodel.models.fields import Key

Config = Mapping[str, Any]


class TextConfig(NamedTuple):
    """The text model within a multimodal config, and what the enclosing config states about it."""

    config: Config
    where: str
    whole: str  # model_type of the multimodal config
    architectures: Any
    tied: bool
    notes: tuple[Text, ...]


def text_part(config: Config, where: str) -> TextConfig | None:
    """The text model of a multimodal config; None for the config of a text model. Raises ModelError."""
    model_type = config.get("model_type")
    composite = COMPOSITES.get(model_type) if isinstance(model_type, str) else None
    holder, place = _holder(config, composite)
    text = holder.get(composite.named if composite else "text_config")
    if composite and composite.flat and text is None and FAMILIES[composite.text].has_core_sizes(config):
        text, place = {key: value for key, value in config.items() if key != "model_type"}, ""
    if not isinstance(text, dict):
        if composite is None:
            return None
        raise ModelError(f"{where}: lacks {place!r}, the config of the text model of {model_type}")
    from roofmodel.models.families.unsupported import UNSUPPORTED

    if isinstance(model_type, str) and model_type in UNSUPPORTED:
        raise ModelError(
            f"{where}: model_type {model_type!r} is not supported: its text model has {UNSUPPORTED[model_type]}"
        )
    part = text.get("model_type") or (composite.text if composite else None)
    if not isinstance(part, str) or (family := family_of(part)) is None:
        reason = UNSUPPORTED.get(part) if isinstance(part, str) else None
        why = f"not supported: it has {reason}" if reason else "unknown or not supported"
        kind = f"of model_type {shorten(part)}" if part else "without a model_type"
        raise ModelError(f"{where}: model_type {shorten(model_type)} has a text model {kind}, which is {why}")
    missing = {key: size for key, size in SIZES.get(part, {}).items() if text.get(key) is None}
    tied, assumption = _tied(holder, text, composite, family)
    notes = [f"{where}: only the text model of {model_type} is counted"]
    if missing:
        sizes = ", ".join(f"{key} = {size}" for key, size in missing.items())
        notes.append(f"{where}: not in {place}, so the defaults of {family.config_class} are used: {sizes}")
    if assumption:
        notes.append(f"{where}: {model_type} is an unknown multimodal model: {assumption}")
    # the enclosing config decides about head and tying, whatever the text model would have alone
    text_config = {**text, **missing, "model_type": part, "tie_word_embeddings": tied}
    text_config["architectures"] = [family.prefix + next(iter(family.classes))]
    # the class sets the key: image and prompt attend to each other, and generated tokens to all before them
    if model_type == "paligemma" and text_config.pop("use_bidirectional_attention", None) is not False:
        notes.append(f"{where}: paligemma attends in both directions within a prompt; causal attention is counted")
    for key in ("torch_dtype", "dtype"):
        if text_config.get(key) is None and config.get(key) is not None:
            text_config[key] = config[key]
    if "quantization_config" in config:
        text_config["quantization_config"] = config["quantization_config"]
    at = f"{where}: {place}" if place else where
    return TextConfig(text_config, at, str(model_type), config.get("architectures"), tied, tuple(notes))


def _holder(config: Config, composite: Composite | None) -> tuple[Config, str]:
    """The config that contains the text config (the whole one if no part does), and the path to it for messages."""
    inside, key = (composite.inside, composite.named) if composite else ("", "text_config")
    if isinstance(config.get(inside), dict):
        return config[inside], f"{inside}.{key}"
    return config, key


def _tied(holder: Config, text: Config, composite: Composite | None, family: Family) -> tuple[bool, str]:
    """Whether the head reuses the token table, and the assumption behind it for an unknown model (else empty)."""
    usual = family.fields["tied"]
    inner = bool(text.get("tie_word_embeddings", usual.default if isinstance(usual, Key) else usual))
    flag = holder.get("tie_word_embeddings")
    if composite is None:
        tied = inner if flag is None else bool(flag)
        return tied, f"its head is assumed to {'reuse the token table' if tied else 'have its own matrix'}"
    outer = composite.tied if flag is None else bool(flag)
    return {"whole": outer, "text": inner, "either": outer or inner, "neither": False}[composite.tied_by], ""


def text_head(arch: Architecture, text: TextConfig, where: str) -> Head:
    """The head of the multimodal model on its text model: next-token logits. Raises ModelError for another head."""
    class_name = text.architectures[0] if isinstance(text.architectures, list) and text.architectures else None
    if class_name is not None and not str(class_name).endswith(
        ("ForConditionalGeneration", "ForCausalLM", "ChatModel")
    ):
        raise ModelError(
            f"{where}: 'architectures' names {shorten(class_name)}, a head that is not supported for {text.whole}"
        )
    stage = LM[0]._replace(tied=text.tied, bias=False)
    return Head(class_name or f"{text.whole} (its usual head)", (stage,))
