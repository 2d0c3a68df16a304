"""Configs that are not one family's own: of several parts, or of an unknown `model_type` that is read as another."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from roofmodel.errors import ModelError, shorten, suggest
from roofmodel.models.architecture import Architecture, Head
from roofmodel.models.families import FAMILIES, family_of
from roofmodel.models.families.composites import COMPOSITES, SIZES, Composite
from roofmodel.models.families.refused import REFUSED
from roofmodel.models.family import LM, Family
from roofmodel.models.fields import CORE, Key

Config = Mapping[str, Any]


# --- Several parts ----------------------------------------------------------------------------------


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
    if known and known.flat and text is None and _fits(FAMILIES[known.text], config):
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


# --- Another's model_type ---------------------------------------------------------------------------


# What a config must ask for by a key before a family that has it is offered; without it, none is where a config does.
PARTS = ("experts", "latent", "state", "inner_heads", "linear_heads", "filter", "layer_input", "borrowers", "keeps")
# Likewise, where the family would take a number of its own.
SIZED = ("kv_heads", "head_dim", "mlp_width", "expert_width", "unturned", "value_dim", "rotary_dim")
PLAIN = ("llama", "mixtral", "bert")  # what most others only add to
RMS = "rms_norm_eps"  # a key of configs whose norms are RMS norms


def _reads(family: Family) -> set[str]:
    """The keys that a family reads."""
    sources = [family.fields.get(field, usual) for field, (_, usual) in family.schema.items()]
    sources += [*family.source.values(), *(source for _, source in family.switches.values())]
    return {name.partition(".")[0] for source in sources if isinstance(source, Key) for name in source.names}


def _keyed(family: Family, fields: Iterable[str]) -> dict[str, Key]:
    """Those of the fields that a family reads from a config."""
    return {field: key for field in fields if isinstance(key := family.fields.get(field), Key)}


def _says(config: Config, key: Key) -> bool:
    return any(config.get(name) not in (None, 0, False) for name in key.names)


def _fits(family: Family, config: Config) -> bool:
    """Whether every core size is there under one of the family's names."""
    core = [family.fields.get(field) for field in CORE if field in family.schema]
    return all(isinstance(key, Key) and any(name in config for name in key.names) for key in core)


def _may_be(family: Family, config: Config) -> bool:
    """Whether nothing in the config speaks against a family, and no size of it would be the family's own."""
    named = config.get("architectures")
    if isinstance(named, list) and named and _head(str(named[0])) not in map(_head, family.classes):
        return False
    if family.source or family.fields.get("norm") == ("layernorm" if RMS in config else "rmsnorm"):
        return False
    if config.get("hidden_act") in ("silu", "swish") and not family.fields.get("gated"):
        return False  # what MLPs with it have in common
    asked = set(_keyed(family, PARTS))
    others = {part for other in FAMILIES.values() for part, key in _keyed(other, PARTS).items() if _says(config, key)}
    if not all(_says(config, key) for key in _keyed(family, PARTS).values()) or others - asked:
        return False
    return all(_says(config, key) or callable(key.default) for key in _keyed(family, SIZED).values())


def _head(name: str) -> str:
    """The kind of head that a class's name ends with; GPT-2's generation of classes has another word for one."""
    known = {suffix for family in FAMILIES.values() for suffix in family.classes if name.endswith(suffix)}
    return max(known, key=len, default="").replace("LMHeadModel", "ForCausalLM")


def offer(config: Config) -> str:
    """The families that a config of an unknown `model_type` may be, as the end of a message; nothing where none fits.

    Best are those that leave least unread, of these the plainest.
    """

    def strangeness(name: str) -> tuple[int, bool]:
        return len(_unread(FAMILIES[name], config)), name not in PLAIN

    fitting = [name for name, family in FAMILIES.items() if _fits(family, config) and _may_be(family, config)]
    best = sorted(fitting, key=strangeness)
    if not best:
        return ""
    return f"; its keys fit {' or '.join(best[:3])}, and --family {best[0]} would read them so;"


def _unread(family: Family, config: Config) -> list[str]:
    """The keys that say something to other families of the kind, and nothing to this one."""
    shapes = set().union(*(_reads(other) for other in FAMILIES.values() if other.encoder == family.encoder))
    known = _reads(family) | ({RMS} if family.fields.get("norm") == "rmsnorm" else set())
    return sorted(key for key in config if key in shapes - known and config[key] not in (None, False))


def as_family(config: Config, family: str, where: str) -> tuple[Config, tuple[str, ...]]:
    """The config under another family's `model_type`, and notes on what that assumes.

    Its head is the family's of the same suffix, or the usual one. Raises ModelError for an unknown family.
    """
    row = family_of(family)
    if row is None:
        near = suggest(family, FAMILIES) or ";"
        raise ModelError(f"--family: unknown family {shorten(family)}{near} `roof models families` lists all")
    named = config.get("architectures")
    name = str(named[0]) if isinstance(named, list) and named else ""
    suffix = next((suffix for suffix in row.classes if name.endswith(suffix)), next(iter(row.classes)))
    notes = [
        f"{where}: model_type {json.dumps(config.get('model_type'))} read as {family}: its layers, norms, biases and "
        f"defaults are assumed to be those of {row.prefix}{suffix}"
    ]
    if unread := _unread(row, config):
        notes.append(f"warning: {where}: {family} does not read {', '.join(unread)}")
    return {**config, "model_type": family, "architectures": [row.prefix + suffix]}, tuple(notes)
