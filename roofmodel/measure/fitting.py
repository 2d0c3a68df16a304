"""Fit of the parameters of a kernel model to measured times, with `scipy.optimize.least_squares`.

The loss is soft L1 of expected / measured - 1, over the logarithms of the parameters. The formula of GEMMs is a minimum
over candidates (tiles, splits). Its gradient is that of the best candidate, so that derivatives are taken with the
candidate of each row fixed, which costs little. The formulas have kinks and local minima: the fit starts from several
points, drawn with a fixed seed, on some of the rows, and ends on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from roofmodel.devices.calibration import HEAD_SIZES, for_all_head_sizes, parameters, stated_parameters

Array = np.ndarray[Any, np.dtype[Any]]

MAX_FIT_ROWS, MAX_SEARCH_ROWS = 1500, 400
"""Rows of a set that a fit uses at most, and those that suffice to choose a start."""
LOSS_SCALES = (0.1, 0.03)
"""Residuals below it are squared in the loss; the second one ends close to the mean error."""
RANDOM_STARTS, SEARCH_STEPS, STEPS = 3, 12, 40
LEAST_GAIN = 0.01
"""Share of the error by which another value of a parameter with few values has to be better than its start."""


class FitRows(NamedTuple):
    """Measured rows with one formula: `seconds(parameters)`; `least` is the floor of the expected time.

    With candidates, `candidate_seconds(candidate, parameters)` has the time of a candidate, whose fields are numbers or
    arrays, and `seconds` is its minimum over all of them.
    """

    seconds: Callable[[Any], Array]
    candidate_seconds: Callable[[Sequence[Array], Any], Array] | None
    candidates: Sequence[Array]  # one array for each field of a candidate
    measured: Array
    least: Array

    def ratios(self, timing: Any) -> Array:
        """Expected / measured."""
        return np.asarray(np.maximum(self.seconds(timing), self.least) / self.measured)

    def best(self, timing: Any) -> Sequence[Array]:
        """The best candidate of each row."""
        if self.candidate_seconds is None:
            return ()
        times = self.candidate_seconds([field[:, None] for field in self.candidates], timing)
        best = times.argmin(0)
        return [field[best] for field in self.candidates]

    def ratios_of(self, candidate: Sequence[Array], timing: Any) -> Array:
        """Expected / measured with the given candidate of each row."""
        if self.candidate_seconds is None:
            return self.ratios(timing)
        return np.asarray(np.maximum(self.candidate_seconds(candidate, timing), self.least) / self.measured)


class _Point(NamedTuple):
    """Parameters, and the mean absolute error of the expected times."""

    timing: Any
    error: float


def fit(rows: Sequence[FitRows], search_rows: Sequence[FitRows], model: Any) -> Any:
    """The fitted parameters of a kernel model, to three digits; `search_rows` are some of the rows.

    A parameter on which no row depends keeps its start.
    """
    declared, random = parameters(model), np.random.default_rng(0)
    start: Any = model._make(parameter.start for parameter in declared.values())
    unmeasured = _head_sizes_without_rows(rows, start)
    free = [name for name, parameter in declared.items() if not parameter.values and name not in unmeasured]
    descend = partial(_descend, fixed=unmeasured)
    best = descend(search_rows, start, *_SEARCH)
    for _ in range(RANDOM_STARTS):
        factors = np.exp(random.normal(size=len(free))).tolist()
        moved = {name: getattr(start, name) * factor for name, factor in zip(free, factors, strict=True)}
        best = min(best, descend(search_rows, best.timing._replace(**moved), *_SEARCH), key=_error)
    for name, parameter in declared.items():
        others = [value for value in parameter.values if value != getattr(best.timing, name)]
        tried = [descend(search_rows, best.timing._replace(**{name: value}), *_SEARCH) for value in others]
        nearest = min(tried, key=_error, default=best)
        best = nearest if nearest.error < (1 - LEAST_GAIN) * best.error else best
    timing = best.timing
    for scale in LOSS_SCALES:
        timing = descend(rows, timing, scale, STEPS).timing
    timing = _with_all_head_sizes(timing, unmeasured)
    return type(timing)._make(
        value if parameter.values or value == parameter.start else float(f"{value:.3g}")
        for value, parameter in zip(timing, declared.values(), strict=True)
    )


def _head_sizes_without_rows(rows: Sequence[FitRows], timing: Any) -> set[str]:
    """The fields of parameters by head size on which no row depends."""
    names = [name for name in timing._fields if name.rpartition("_")[2].isdigit()]
    base = [each.seconds(timing) for each in rows]
    other = {name: timing._replace(**{name: 2 * getattr(timing, name)}) for name in names}
    return {
        name
        for name in names
        if all((each.seconds(other[name]) == before).all() for each, before in zip(rows, base, strict=True))
    }


def _with_all_head_sizes(timing: Any, unmeasured: set[str]) -> Any:
    """The parameters with values for the head sizes without rows."""
    for fields in stated_parameters(type(timing)).values():
        sizes = dict(zip(HEAD_SIZES, fields, strict=False))
        known_values = {size: getattr(timing, field) for size, field in sizes.items() if field not in unmeasured}
        if len(fields) > 1 and known_values:
            timing = timing._replace(**dict(zip(fields, for_all_head_sizes(known_values), strict=True)))
    return timing


_SEARCH = (LOSS_SCALES[0], SEARCH_STEPS)


def _error(point: _Point) -> float:
    return point.error


def _descend(rows: Sequence[FitRows], start: Any, scale: float, steps: int, fixed: Collection[str] = ()) -> _Point:
    """The parameters at a local minimum of the loss; those without an effect on these rows have their start."""
    from scipy.optimize import least_squares

    declared = parameters(type(start))
    names = [name for name, parameter in declared.items() if not parameter.values and name not in fixed]
    low, high = (np.log([declared[name].limits[end] for name in names]) for end in (0, 1))
    point = np.clip(np.log([getattr(start, name) for name in names]), low + 1e-6, high - 1e-6)

    def timing(point: Array) -> Any:
        return start._replace(**dict(zip(names, np.exp(point).tolist(), strict=True)))

    def residuals(point: Array) -> Array:
        return np.concatenate([each.ratios(timing(point)) for each in rows]) - 1

    def slopes(point: Array) -> Array:
        here = timing(point)
        best = [each.best(here) for each in rows]

        def ratios(at: Array) -> Array:
            candidate = timing(at)
            return np.concatenate([each.ratios_of(choice, candidate) for each, choice in zip(rows, best, strict=True)])

        base, steps = ratios(point), 1e-3 * np.eye(len(point))
        return np.stack([(ratios(point + step) - base) / 1e-3 for step in steps], axis=1)

    solution = least_squares(
        residuals, point, slopes, (low, high), loss="soft_l1", f_scale=scale, max_nfev=steps, ftol=1e-4, xtol=1e-4
    )
    best = timing(solution.x)
    ratios, without_effect = residuals(solution.x), [not np.abs(slope).any() for slope in solution.jac.T]
    for name, none in zip(names, without_effect, strict=True):
        reset = best._replace(**{name: declared[name].start})
        # Without a slope, a parameter may still exclude candidates, such as split K by a long time to add the parts.
        if none and np.array_equal(np.concatenate([each.ratios(reset) for each in rows]) - 1, ratios):
            best = reset
    return _Point(best, float(np.abs(ratios).mean()))
