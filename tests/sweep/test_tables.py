"""The columns of the results of a sweep."""

from __future__ import annotations

from roofmodel.sweep.case import CEILINGS
from roofmodel.sweep.tables import BY_KEY


def test_the_meaning_of_bound_names_every_ceiling() -> None:
    assert all(f"`{ceiling}`" in BY_KEY["bound"].meaning for ceiling in CEILINGS)
