"""Configs of an unknown `model_type`: which families their keys fit, and a config read as another family's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from roofmodel.errors import LIST_FAMILIES, Message, ModelError, Option, Text, WarningNote, shorten, suggest
from roofmodel.models.families import FAMILIES, Family, family_of
from roofmodel.models.fields import Key

Config = Mapping[str, Any]

# A family with one of these fields is suggested only if the config sets its key, and the other way around.
DISTINCTIVE_FIELDS = (
    "experts",
    "latent",
    "state",
    "inner_heads",
    "linear_heads",
    "filter",
    "per_layer_input",
    "kv_shared_layers",
    "index_topk",
    "index_blocks",
)
# A family that would use its own default for one of these sizes is not suggested.
SIZE_FIELDS = ("kv_heads", "head_dim", "mlp_width", "expert_width", "nope_dim", "value_dim", "rotary_dim")
PREFERRED = ("llama", "mixtral", "bert")  # most other families extend these
OFF = "its counts may be 0.7 to 1.5 times the right ones"
"""What was seen of models of new families: the keys of a config do not show all of its operators."""
RMS_NORM_KEY = "rms_norm_eps"


def _keys_of(family: Family) -> set[str]:
    """The config keys that a family reads."""
    sources = [family.fields.get(field, usual) for field, (_, usual) in family.schema.items()]
    sources += [*family.source.values(), *(source for _, source in family.switches.values())]
    return {name.partition(".")[0] for source in sources if isinstance(source, Key) for name in source.names}


def _key_fields(family: Family, fields: Iterable[str]) -> dict[str, Key]:
    """The given fields that a family reads from a config, with their keys."""
    return {field: key for field in fields if isinstance(key := family.fields.get(field), Key)}


def _sets(config: Config, key: Key) -> bool:
    return any(config.get(name) not in (None, 0, False) for name in key.names)


def _is_plausible(family: Family, config: Config) -> bool:
    """Whether nothing in the config contradicts a family, and no size would be the family's own default."""
    names = config.get("architectures")
    if isinstance(names, list) and names and _head_suffix(str(names[0])) not in map(_head_suffix, family.classes):
        return False
    if family.source or family.fields.get("norm") == ("layernorm" if RMS_NORM_KEY in config else "rmsnorm"):
        return False
    if config.get("hidden_act") in ("silu", "swish") and not family.fields.get("gated"):
        return False  # in all families, an MLP with SiLU is gated
    distinctive = set(_key_fields(family, DISTINCTIVE_FIELDS))
    others = {
        part
        for other in FAMILIES.values()
        for part, key in _key_fields(other, DISTINCTIVE_FIELDS).items()
        if _sets(config, key)
    }
    if not all(_sets(config, key) for key in _key_fields(family, DISTINCTIVE_FIELDS).values()) or others - distinctive:
        return False
    return all(_sets(config, key) or callable(key.default) for key in _key_fields(family, SIZE_FIELDS).values())


def _head_suffix(name: str) -> str:
    """The known head suffix of a class name; `LMHeadModel` of older classes counts as `ForCausalLM`."""
    suffixes = {suffix for family in FAMILIES.values() for suffix in family.classes if name.endswith(suffix)}
    return max(suffixes, key=len, default="").replace("LMHeadModel", "ForCausalLM")


def matching_families(config: Config) -> Text:
    """The families whose keys fit a config of an unknown `model_type`, as the end of a message; empty if none does.

    Families that ignore the fewest keys come first.
    """

    def rank(name: str) -> tuple[int, bool]:
        return len(_ignored_keys(FAMILIES[name], config)), name not in PREFERRED

    fitting = [
        name for name, family in FAMILIES.items() if family.has_core_sizes(config) and _is_plausible(family, config)
    ]
    best = sorted(fitting, key=rank)
    if not best:
        return ""
    likely = " or ".join(best[:3])
    return Message(
        f"; its keys match {likely}: ", Option("family", best[0]), f" reads it as {best[0]}, and {OFF};"
    )  # fmt: skip


def _ignored_keys(family: Family, config: Config) -> list[str]:
    """The keys of a config that similar families read and this one does not."""
    relevant = set().union(*(_keys_of(other) for other in FAMILIES.values() if other.encoder == family.encoder))
    known_keys = _keys_of(family) | ({RMS_NORM_KEY} if family.fields.get("norm") == "rmsnorm" else set())
    return sorted(key for key in config if key in relevant - known_keys and config[key] not in (None, False))


def as_family(config: Config, family: str, where: str) -> tuple[Config, tuple[Text, ...]]:
    """The config with another family's `model_type`, and notes on what that assumes.

    The head is the family's head with the same suffix, else its usual one. Raises ModelError for an unknown family.
    """
    row = family_of(family)
    if row is None:
        near = suggest(family, FAMILIES) or ";"
        raise ModelError(Option("family"), f": unknown family {shorten(family)}{near} ", LIST_FAMILIES, " lists them")
    class_names = config.get("architectures")
    name = str(class_names[0]) if isinstance(class_names, list) and class_names else ""
    suffix = next((suffix for suffix in row.classes if name.endswith(suffix)), next(iter(row.classes)))
    notes: list[Text] = [
        WarningNote(
            f"{where}: model_type {json.dumps(config.get('model_type'))} is read as {family}: layers, norms, biases "
            f"and defaults of {row.prefix}{suffix} are assumed, and {OFF}"
        )
    ]
    if ignored := _ignored_keys(row, config):
        notes.append(WarningNote(f"{where}: {family} ignores {', '.join(ignored)}"))
    return {**config, "model_type": family, "architectures": [row.prefix + suffix]}, tuple(notes)
