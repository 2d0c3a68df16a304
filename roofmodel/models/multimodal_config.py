"""Multimodal configs: the text model within one, its head, and whether it ties the token table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from roofmodel.errors import ModelError, shorten
from roofmodel.models.architecture import Architecture, Head
from roofmodel.models.families import FAMILIES, family_of
from roofmodel.models.families.multimodal import COMPOSITES, SIZES, Composite
from roofmodel.models.families.unsupported import REFUSED
from roofmodel.models.family import LM, Family
from roofmodel.models.fields import Key

Config = Mapping[str, Any]


class Text(NamedTuple):
    """The text part of a config of several parts, and what the whole says of it."""

    config: Config
    where: str
    whole: str  # the whole's model_type
    architectures: Any
    tied: bool
    notes: tuple[str, ...]


def text_part(config: Config, where: str) -> Text | None:
    """The text part; None where the config is a text model's own."""
    whole = config.get("model_type")
    known = COMPOSITES.get(whole) if isinstance(whole, str) else None
    holder, place = _holder(config, known)
    text = holder.get(known.named if known else "text_config")
    if known and known.flat and text is None and FAMILIES[known.text].has_core_sizes(config):
        text, place = {key: value for key, value in config.items() if key != "model_type"}, ""
    if not isinstance(text, dict):
        if known is None:
            return None
        raise ModelError(f"{where}: lacks {place!r}, the part of a {whole} model that is counted")
    if isinstance(whole, str) and whole in REFUSED:
        raise ModelError(f"{where}: model_type {whole!r} is not counted: its text part has {REFUSED[whole]}")
    part = text.get("model_type") or (known.text if known else None)
    if not isinstance(part, str) or (family := family_of(part)) is None:
        reason = REFUSED.get(part) if isinstance(part, str) else None
        why = f"not counted: it has {reason}" if reason else "unknown, or not counted yet"
        what = f"of model_type {shorten(part)}" if part else "without a model_type"
        raise ModelError(f"{where}: model_type {shorten(whole)} has a text part {what}, which is {why}")
    lacking = {key: size for key, size in SIZES.get(part, {}).items() if text.get(key) is None}
    tied, guess = _tied(holder, text, known, family)
    notes = [f"{where}: the text part of a {whole} model: its other parts are not counted"]
    if lacking:
        sizes = ", ".join(f"{key} = {size}" for key, size in lacking.items())
        notes.append(f"{where}: not in {place}, so {family.config_class}'s defaults hold: {sizes}")
    if guess:
        notes.append(f"{where}: {whole} is not known: {guess}")
    # head and tying are the whole's, whatever the text part would have alone
    own = {**text, **lacking, "model_type": part, "tie_word_embeddings": tied}
    own["architectures"] = [family.prefix + next(iter(family.classes))]
    if "quantization_config" in config:
        own["quantization_config"] = config["quantization_config"]
    at = f"{where}: {place}" if place else where
    return Text(own, at, str(whole), config.get("architectures"), tied, tuple(notes))


def _holder(config: Config, known: Composite | None) -> tuple[Config, str]:
    """The part that has the text part in it, the whole where no other has; and the text part's place in print."""
    inside, named = (known.inside, known.named) if known else ("", "text_config")
    if isinstance(config.get(inside), dict):
        return config[inside], f"{inside}.{named}"
    return config, named


def _tied(holder: Config, text: Config, known: Composite | None, family: Family) -> tuple[bool, str]:
    """Whether the head's matrix is the token table, and what was guessed to say so."""
    usual = family.fields["tied"]
    inner = bool(text.get("tie_word_embeddings", usual.default if isinstance(usual, Key) else usual))
    whole = holder.get("tie_word_embeddings")
    if known is None:
        tied = inner if whole is None else bool(whole)
        return tied, f"its head is taken to {'reuse the token table' if tied else 'have a matrix of its own'}"
    outer = known.tied if whole is None else bool(whole)
    return {"whole": outer, "text": inner, "either": outer or inner, "neither": False}[known.tied_by], ""


def text_head(arch: Architecture, text: Text, where: str) -> Head:
    """The head of the whole, on the text part: logits of the next token. Raises ModelError for another head."""
    named = text.architectures[0] if isinstance(text.architectures, list) and text.architectures else None
    if named is not None and not str(named).endswith(("ForConditionalGeneration", "ForCausalLM", "ChatModel")):
        raise ModelError(
            f"{where}: 'architectures' names {shorten(named)}, a head that is not counted for {text.whole}"
        )
    stage = LM[0]._replace(tied=text.tied, bias=False)
    return Head(named or f"{text.whole} (its usual head)", (stage,))
