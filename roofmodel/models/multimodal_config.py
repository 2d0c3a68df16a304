"""Multimodal configs: the text model within one, its head, and whether it ties the token table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from roofmodel.errors import ModelError, Text, shorten
from roofmodel.models.architecture import Architecture, Head
from roofmodel.models.families import FAMILIES, family_of
from roofmodel.models.families.multimodal import COMPOSITES, SIZES, Composite
from roofmodel.models.family import LM, Family
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
    whole = config.get("model_type")
    known = COMPOSITES.get(whole) if isinstance(whole, str) else None
    holder, place = _holder(config, known)
    text = holder.get(known.named if known else "text_config")
    if known and known.flat and text is None and FAMILIES[known.text].has_core_sizes(config):
        text, place = {key: value for key, value in config.items() if key != "model_type"}, ""
    if not isinstance(text, dict):
        if known is None:
            return None
        raise ModelError(f"{where}: lacks {place!r}, the config of the text model of {whole}")
    from roofmodel.models.families.unsupported import UNSUPPORTED

    if isinstance(whole, str) and whole in UNSUPPORTED:
        raise ModelError(f"{where}: model_type {whole!r} is not supported: its text model has {UNSUPPORTED[whole]}")
    part = text.get("model_type") or (known.text if known else None)
    if not isinstance(part, str) or (family := family_of(part)) is None:
        reason = UNSUPPORTED.get(part) if isinstance(part, str) else None
        why = f"not supported: it has {reason}" if reason else "unknown or not supported"
        what = f"of model_type {shorten(part)}" if part else "without a model_type"
        raise ModelError(f"{where}: model_type {shorten(whole)} has a text model {what}, which is {why}")
    missing = {key: size for key, size in SIZES.get(part, {}).items() if text.get(key) is None}
    tied, assumption = _tied(holder, text, known, family)
    notes = [f"{where}: only the text model of {whole} is counted"]
    if missing:
        sizes = ", ".join(f"{key} = {size}" for key, size in missing.items())
        notes.append(f"{where}: not in {place}, so the defaults of {family.config_class} are used: {sizes}")
    if assumption:
        notes.append(f"{where}: {whole} is an unknown multimodal model: {assumption}")
    # the enclosing config decides about head and tying, whatever the text model would have alone
    text_config = {**text, **missing, "model_type": part, "tie_word_embeddings": tied}
    text_config["architectures"] = [family.prefix + next(iter(family.classes))]
    # the class sets the key: image and prompt attend to each other, and generated tokens to all before them
    if whole == "paligemma" and text_config.pop("use_bidirectional_attention", None) is not False:
        notes.append(f"{where}: paligemma attends in both directions within a prompt; causal attention is counted")
    for key in ("torch_dtype", "dtype"):
        if text_config.get(key) is None and config.get(key) is not None:
            text_config[key] = config[key]
    if "quantization_config" in config:
        text_config["quantization_config"] = config["quantization_config"]
    at = f"{where}: {place}" if place else where
    return TextConfig(text_config, at, str(whole), config.get("architectures"), tied, tuple(notes))


def _holder(config: Config, known: Composite | None) -> tuple[Config, str]:
    """The config that contains the text config (the whole one if no part does), and the path to it for messages."""
    inside, named = (known.inside, known.named) if known else ("", "text_config")
    if isinstance(config.get(inside), dict):
        return config[inside], f"{inside}.{named}"
    return config, named


def _tied(holder: Config, text: Config, known: Composite | None, family: Family) -> tuple[bool, str]:
    """Whether the head reuses the token table, and the assumption behind it for an unknown model (else empty)."""
    usual = family.fields["tied"]
    inner = bool(text.get("tie_word_embeddings", usual.default if isinstance(usual, Key) else usual))
    whole = holder.get("tie_word_embeddings")
    if known is None:
        tied = inner if whole is None else bool(whole)
        return tied, f"its head is assumed to {'reuse the token table' if tied else 'have its own matrix'}"
    outer = known.tied if whole is None else bool(whole)
    return {"whole": outer, "text": inner, "either": outer or inner, "neither": False}[known.tied_by], ""


def text_head(arch: Architecture, text: TextConfig, where: str) -> Head:
    """The head of the multimodal model on its text model: next-token logits. Raises ModelError for another head."""
    named = text.architectures[0] if isinstance(text.architectures, list) and text.architectures else None
    if named is not None and not str(named).endswith(("ForConditionalGeneration", "ForCausalLM", "ChatModel")):
        raise ModelError(
            f"{where}: 'architectures' names {shorten(named)}, a head that is not supported for {text.whole}"
        )
    stage = LM[0]._replace(tied=text.tied, bias=False)
    return Head(named or f"{text.whole} (its usual head)", (stage,))
