"""Config keys of a family's fields, for tests that cover all keys."""

from __future__ import annotations

from typing import Any

from roofmodel.models import yaml_description
from roofmodel.models.config import DESCRIBED
from roofmodel.models.families import family_of
from roofmodel.models.fields import CORE, REQUIRED, Key


def sources(model_type: str) -> dict[str, Any]:
    """Field name -> its config keys, including switches and `encoder_layers` of an encoder-decoder."""
    family = yaml_description.ROW if model_type == DESCRIBED else family_of(model_type)
    assert family is not None
    fields = {field: family.fields.get(field, default) for field, (_, default) in family.schema.items()}
    switches = {name: source for name, (_, source) in family.switches.items()}
    return switches | fields | {f"encoder_{field}": source for field, source in family.source.items()}


def sizes(model_type: str) -> dict[str, Key]:
    """Field name -> config keys of the core sizes, which every config must have."""
    return {
        field: source
        for field, source in sources(model_type).items()
        if kind_of_size(field) in CORE and isinstance(source, Key) and source.default is REQUIRED
    }


def kind_of_size(field: str) -> str:
    """The kind of size that a field counts: `layers` for `encoder_layers`."""
    return field.rpartition("_")[2]
