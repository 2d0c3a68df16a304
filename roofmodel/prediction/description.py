"""Text of the timing formulas, which `roof explain` prints: equation, terms, constants and parameters with meanings."""

from __future__ import annotations

from types import ModuleType
from typing import Annotated, NamedTuple, get_origin, get_type_hints


class FormulaDescription(NamedTuple):
    """A timing formula as text.

    `name` is the formula's name in JSON output. `terms` are (name, meaning) pairs of the equation. `constants` names
    the module constants that the formula uses; their values and meanings stand at their definitions.
    """

    name: str
    title: str
    summary: str
    equation: str
    terms: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""
    constants: tuple[str, ...] = ()


def meanings(owner: type | ModuleType) -> dict[str, str]:
    """Name -> meaning of a record's fields or a module's constants that are declared as `Annotated[type, meaning]`."""
    hints = get_type_hints(owner, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}
