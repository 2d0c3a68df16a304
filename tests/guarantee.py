"""The cases of `test_against_transformers.py`, which compares families with the transformers classes; their table.

`docs/families.md` shows the table; `scripts/docs` writes it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from roofmodel.models.families import FAMILIES

DRAWS, OF_CLASS = 4, 2  # random configs for each family and for each class, at least
TRAINED = 3  # training steps for each family; its heads take turns

IMAGE_FAMILIES = [name for name, family in FAMILIES.items() if family.network or "patch" in family.fields]
TEXT_FAMILIES = [name for name in FAMILIES if name not in IMAGE_FAMILIES]


def classes(model_types: Iterable[str]) -> list[Any]:
    """Every head of these families, several times, as pytest's parameters: model_type, suffix, draw."""
    return [
        pytest.param(model_type, suffix, draw, id=f"{model_type}-{suffix}-{draw}")
        for model_type in model_types
        for suffix in FAMILIES[model_type].classes
        for draw in range(max(OF_CLASS, -(-DRAWS // len(FAMILIES[model_type].classes))))
    ]


def trained(model_types: Iterable[str]) -> list[Any]:
    """The heads whose training steps are compared, as pytest's parameters: model_type, suffix, draw."""
    return [
        pytest.param(model_type, suffix, draw, id=f"{model_type}-{draw}")
        for model_type in model_types
        for draw, suffix in enumerate(_in_turn(model_type))
    ]


def _in_turn(model_type: str) -> Iterator[str]:
    heads = list(FAMILIES[model_type].classes)
    return (heads[draw % len(heads)] for draw in range(TRAINED))


def passes(model_type: str, suffix: str) -> tuple[str, ...]:
    """The passes whose FLOPs are compared. A class without a cache has no pass after a context."""
    import transformers

    from tests import oracle

    family = FAMILIES[model_type]
    if model_type in IMAGE_FAMILIES or family.encoder or suffix in family.source_classes:
        return ("forward",)
    cached = oracle.accepts_cache(getattr(transformers, family.prefix + suffix))
    return ("forward", "prefill", *(("chunked prefill", "decode") if cached else ()))


def table() -> Iterator[str]:
    """The lines of the table, in Markdown: a row for each family, or more where its heads differ in their passes."""
    yield "| model_type | classes | FLOPs of | training step of |"
    yield "|---|---|---|---|"
    for model_type in sorted(FAMILIES):
        family = FAMILIES[model_type]
        bundles: dict[tuple[str, ...], list[str]] = {}
        for suffix in family.classes:
            bundles.setdefault(passes(model_type, suffix), []).append(suffix)
        trains = set(_in_turn(model_type))
        for compared, suffixes in bundles.items():
            named = _classes(family.prefix, suffixes)
            stepped = _classes("", [suffix for suffix in suffixes if suffix in trains])
            yield f"| {model_type} | {named} | {', '.join(compared)} | {stepped} |"


def _classes(prefix: str, suffixes: list[str]) -> str:
    """`Llama…: ForCausalLM, Model`."""
    listed = ", ".join(suffixes)
    return f"{prefix}…: {listed}" if prefix else listed


def summary() -> str:
    """The number of families and classes that are tested."""
    count = sum(len(family.classes) for family in FAMILIES.values())
    return f"{len(FAMILIES)} families with {DRAWS} random configs or more, {count} classes with {OF_CLASS} or more"
