"""The search space of a calibration."""

from __future__ import annotations

import pytest

from roofmodel.measure.search_space import DISCRETE, INITIAL, WITHOUT_CHOICE


@pytest.mark.parametrize("kind", INITIAL)
def test_only_parameters_that_start_at_one_of_their_values_are_discrete(kind: str) -> None:
    """Kinds may use one name for different parameters: `kept` is a fraction in MoE layers, and bytes in delta rules."""
    start = INITIAL[kind]
    discrete = DISCRETE.keys() & set(start._fields) - set(WITHOUT_CHOICE.get(kind, ()))
    assert {name: getattr(start, name) for name in discrete if getattr(start, name) not in DISCRETE[name]} == {}
