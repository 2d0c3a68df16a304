"""Configs of an unknown `model_type`: which families their keys fit, and a config read as another family's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from roofmodel.errors import ModelError, shorten, suggest
from roofmodel.models.families import FAMILIES, family_of
from roofmodel.models.family import Family
from roofmodel.models.fields import Key

Config = Mapping[str, Any]

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

    fitting = [name for name, family in FAMILIES.items() if family.has_core_sizes(config) and _may_be(family, config)]
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
