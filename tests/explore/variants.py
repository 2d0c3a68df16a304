"""Variants of a model that are enough to show that its estimates are traced correctly."""

from __future__ import annotations

from collections.abc import Iterator

from roofmodel.explore.traced_estimate import Variant, variants
from roofmodel.models.architecture import Architecture


def each_option_once(arch: Architecture) -> Iterator[Variant]:
    """In each phase the default variant, then those with an option that no earlier one has, instead of all pairs.

    The last variants come first: eager attention, whose training has fewer cases, with recomputation.
    """
    every = list(variants(arch))
    for phase in dict.fromkeys(variant.phase for variant in every):
        default, *others = (variant for variant in every if variant.phase == phase)
        yield default
        seen = set(enumerate(default))
        for variant in reversed(others):
            if not seen.issuperset(enumerate(variant)):
                seen.update(enumerate(variant))
                yield variant


def without_training(arch: Architecture) -> Iterator[Variant]:
    """Each option once in all phases but training, which has most of the cases."""
    return (variant for variant in each_option_once(arch) if variant.phase != "train")
