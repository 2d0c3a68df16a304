"""The fit of a kernel model's parameters finds those of times that follow from them."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest

from roofmodel.devices.calibration import Parameter
from roofmodel.measure.fitting import FitRows, fit

LENGTHS = np.arange(1.0, 41.0)


class Halved(NamedTuple):
    """A work is done at once, or in two halves at the same time with a fixed cost."""

    rate: Annotated[float, Parameter("time per unit of work", "s", 1.0)]
    halving: Annotated[float, Parameter("fixed time of halving", "s", 5.0, low=5.0)]
    idle: Annotated[float, Parameter("what no row depends on", "s", 7.0)]


def seconds(candidate: Sequence[Any], timing: Halved) -> Any:
    (halves,) = candidate
    return timing.rate * LENGTHS / np.where(halves, 2, 1) + np.where(halves, timing.halving, 0)


def rows(measured: Any) -> list[FitRows]:
    halves = np.array([0.0, 1.0])

    def best(timing: Halved) -> Any:
        return seconds([halves[:, None]], timing).min(0)

    return [FitRows(best, seconds, [halves], measured, 0 * LENGTHS)]


def test_a_fit_finds_the_parameters_of_its_rows_and_leaves_the_others_at_their_start() -> None:
    """With a rate of 2 and a cost of 10, works of more than 10 units are halved."""
    measured = rows(np.minimum(2 * LENGTHS, LENGTHS + 10))
    found = fit(measured, measured, Halved)
    assert found == pytest.approx((2, 10, 7), rel=0.01)


def test_a_cost_that_excludes_a_candidate_keeps_a_value_that_excludes_it() -> None:
    """Works of up to 40 units are not halved at a rate of 2, so halving costs at least 40; its start is 5."""
    measured = rows(2 * LENGTHS)
    found = fit(measured, measured, Halved)
    assert found.rate == pytest.approx(2, rel=0.01)
    assert found.halving > 39
