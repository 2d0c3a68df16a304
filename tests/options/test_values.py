"""Each type of option values has the values that its function accepts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

import pytest

from roofmodel.counting.tensors import FORMATS
from roofmodel.explain.reconcile import TOOLS
from roofmodel.options import values as option_values
from roofmodel.roofline import points
from roofmodel.trace import groups


@pytest.mark.parametrize(
    ("values", "accepted"),
    [
        (option_values.StorageFormat, FORMATS),
        (option_values.KernelGrouping, points.GROUPINGS),
        (option_values.RunGrouping, groups.GROUPINGS),
        (option_values.FlopCounter, TOOLS),
    ],
)
def test_a_type_has_the_values_that_its_function_accepts(values: Any, accepted: Iterable[str]) -> None:
    assert get_args(values) == tuple(accepted)
