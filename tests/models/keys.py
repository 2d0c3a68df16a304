"""The config keys of a family's fields, for tests over all of them."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families import family_of
from roofmodel.models.fields import CORE, REQUIRED, Key


def sources(model_type: str) -> dict[str, Any]:
    """The keys of each field by name, switches and `encoder_layers` of an encoder-decoder included."""
    family = family_of(model_type)
    assert family is not None
    own = {field: family.fields.get(field, usual) for field, (_, usual) in family.schema.items()}
    switches = {name: source for name, (_, source) in family.switches.items()}
    return switches | own | {f"encoder_{field}": source for field, source in family.source.items()}


def sizes(model_type: str) -> dict[str, Key]:
    """The keys of the core sizes, which every config must have, by field; `what` says what such a field counts."""
    return {
        field: source
        for field, source in sources(model_type).items()
        if what(field) in CORE and isinstance(source, Key) and source.default is REQUIRED
    }


def what(field: str) -> str:
    """`layers` of `encoder_layers`."""
    return field.rpartition("_")[2]
