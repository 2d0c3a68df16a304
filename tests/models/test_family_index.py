"""The index of families is complete and imports no unused families."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

from roofmodel.models import families
from roofmodel.models.families.multimodal import COMPOSITES

INDEX = families.MODEL_TYPES | families.CUSTOM_CODE_MODEL_TYPES
DATA_MODULES = {"multimodal", "unsupported", "vision_towers"}  # modules with no family of MODEL_TYPES
PRINT_LOADED_FAMILIES = """
import sys
from roofmodel.models import hub
hub.load({model!r})
prefix = "roofmodel.models.families."
print(*(name.removeprefix(prefix) for name in sys.modules if name.startswith(prefix)))
"""


def test_every_module_with_families_is_in_the_index() -> None:
    modules = {module.name for module in pkgutil.iter_modules(families.__path__)}
    assert INDEX.keys() == modules - DATA_MODULES


@pytest.mark.parametrize("module", INDEX)
def test_the_index_lists_exactly_the_families_of_each_module(module: str) -> None:
    assert INDEX[module] == tuple(import_module(f"roofmodel.models.families.{module}").FAMILIES)


def test_no_model_type_is_in_two_modules() -> None:
    listed = [model_type for names in INDEX.values() for model_type in names]
    assert len(listed) == len(set(listed))


def test_no_model_type_is_both_multimodal_and_text() -> None:
    """`config.architecture` relies on this: it reads a text model without importing the table of multimodal models."""
    assert COMPOSITES.keys().isdisjoint({*families.FAMILIES, *families.CUSTOM_CODE})


@pytest.mark.parametrize(("model", "loaded"), [("gpt2-xl", {"gpt"}), ("llama-3.1-8b", {"llama"})])
def test_loading_a_model_imports_the_module_of_its_family_only(model: str, loaded: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINT_LOADED_FAMILIES.format(model=model)], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == loaded


def test_a_family_can_be_added_and_removed() -> None:
    index = families.FamilyIndex({"gpt": ("gpt2",)})
    index["my-gpt"] = index["gpt2"].like("MyGPT")
    assert [*index] == ["gpt2", "my-gpt"]
    assert index["my-gpt"].prefix == "MyGPT"
    del index["my-gpt"]
    assert "my-gpt" not in index
