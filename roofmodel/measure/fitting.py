"""Fit of the parameters of a timing formula to measured times: Levenberg-Marquardt from several starts.

The loss is soft L1 of expected / measured - 1, over the logarithms of the parameters, each within a factor of its
start. A formula is a minimum over candidates (tiles, splits). Its gradient is that of the best candidate, so that
derivatives are taken with the candidate of each row fixed, which costs little. The formulas have kinks and many local
minima: the fit tries all values of the discrete parameters, then random changes of the others, with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from roofmodel.devices.calibration import Timing

Array = np.ndarray[Any, np.dtype[Any]]

MAX_FIT_ROWS = 1500  # rows of a set that a fit uses at most; more rows do not change the result
MAX_SEARCH_ROWS = 1000  # rows that suffice to choose discrete parameters and a start
SPAN = 100.0  # each parameter stays within this factor of its start
LOSS_SCALES = (0.03, 0.01)  # residuals below it are squared in the loss; the second one ends close to the mean error
ITERATIONS, SEARCH_ITERATIONS = 25, 10
RANDOM_STARTS = 24
CHANGED_SHARE = 0.35  # of the parameters, in a random start
LEAST_GAIN = 2e-4  # of the mean error, for other values of parameters


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


class Space(NamedTuple):
    """The start of the parameters, upper limits by name, values of discrete parameters, and further starts.

    `combined` has values of several discrete parameters that belong together, such as the rules of one library.
    """

    start: Any
    upper: Mapping[str, float]
    discrete: Mapping[str, Sequence[float]]
    starts: Mapping[str, Sequence[float]]
    combined: Sequence[Mapping[str, float]] = ()

    @property
    def free(self) -> list[str]:
        """The names of the continuous parameters; those that start at 0 stay 0."""
        return [name for name, value in self.start._asdict().items() if value and name not in self.discrete]


def fit(rows: Sequence[FitRows], search_rows: Sequence[FitRows], space: Space) -> Any:
    """The fitted parameters; `search_rows` are some of the rows, for the search of a start."""
    random = np.random.default_rng(0)
    free = np.array(space.free)
    best, error = _descend(search_rows, space.start, space, LOSS_SCALES[0], ITERATIONS)

    def attempt(start: Any, gain: float = 0.0) -> None:
        nonlocal best, error
        found, reached = _descend(search_rows, start, space, LOSS_SCALES[0], SEARCH_ITERATIONS)
        if reached < error - gain:
            best, error = found, reached

    for together in space.combined:
        attempt(space.start._replace(**together))
    for name, values in {**space.starts, **space.discrete}.items():
        for value in values:
            if name in best._fields and getattr(best, name) != value and (name in space.discrete or name in free):
                attempt(best._replace(**{name: value}), LEAST_GAIN)
    for _ in range(RANDOM_STARTS):
        chosen = free[random.random(len(free)) < CHANGED_SHARE]
        factors = np.exp(random.normal(size=len(chosen)))
        attempt(best._replace(**{n: getattr(best, n) * f for n, f in zip(chosen.tolist(), factors, strict=True)}))
    for name, values in space.discrete.items():
        for value in values:
            if name in best._fields and getattr(best, name) != value:
                attempt(best._replace(**{name: value}), LEAST_GAIN)
    for scale in LOSS_SCALES:
        best, _ = _descend(rows, best, space, scale, ITERATIONS)
    return type(best)._make(float(f"{value:.3g}") for value in best)


def _descend(rows: Sequence[FitRows], start: Timing, space: Space, scale: float, iterations: int) -> tuple[Any, float]:
    """Parameters at a local minimum of the loss, and their mean absolute error."""
    names = space.free
    origin = np.log([getattr(space.start, name) for name in names])
    limits = np.log([space.upper.get(name, np.inf) for name in names])
    low, high = origin - np.log(SPAN), np.minimum(origin + np.log(SPAN), limits)

    def timing(point: Array) -> Any:
        return start._replace(**dict(zip(names, np.exp(point).tolist(), strict=True)))

    def loss(residuals: Array) -> float:
        return float((np.sqrt(1 + (residuals / scale) ** 2) - 1).mean())

    def residuals_at(point: Array) -> Array:
        return np.concatenate([each.ratios(timing(point)) for each in rows]) - 1

    point = np.clip(np.log([getattr(start, name) or getattr(space.start, name) for name in names]), low, high)
    residuals = residuals_at(point)
    value, damping = loss(residuals), 1e-2
    for _ in range(iterations):
        slopes = _slopes(rows, timing, point, high)
        weights = 1 / np.sqrt(1 + (residuals / scale) ** 2)
        matrix, gradient = (slopes * weights[:, None]).T @ slopes, slopes.T @ (weights * residuals)
        diagonal = np.diag(matrix) + 1e-6 * np.diag(matrix).max() + 1e-12
        for _ in range(6):
            tried = _step(point, matrix + damping * np.diag(diagonal), gradient, low, high)
            found = residuals_at(tried)
            if loss(found) < value:
                break
            damping *= 4
        else:
            break
        gain, value = 1 - loss(found) / value, loss(found)
        point, residuals, damping = tried, found, max(damping / 5, 1e-5)
        if gain < 1e-4:
            break
    return timing(point), float(np.abs(residuals).mean())


def _slopes(rows: Sequence[FitRows], timing: Callable[[Array], Any], point: Array, high: Array) -> Array:
    """The derivatives of expected / measured by the parameters, with the candidate of each row fixed."""
    here = timing(point)
    candidates = [each.best(here) for each in rows]

    def ratios(at: Array) -> Array:
        found = timing(at)
        return np.concatenate([each.ratios_of(best, found) for each, best in zip(rows, candidates, strict=True)])

    base, slopes = ratios(point), []
    for i in range(len(point)):
        step = 1e-3 if point[i] + 1e-3 <= high[i] else -1e-3
        moved = point.copy()
        moved[i] += step
        slopes.append((ratios(moved) - base) / step)
    return np.stack(slopes, axis=1)


def _step(point: Array, matrix: Array, gradient: Array, low: Array, high: Array) -> Array:
    """The point after a damped step; parameters at a limit that the step would cross stay there."""
    at_limit = np.zeros(len(point), bool)
    step = np.zeros(len(point))
    for _ in range(3):
        step[:] = 0
        step[~at_limit] = -np.linalg.solve(matrix[np.ix_(~at_limit, ~at_limit)], gradient[~at_limit])
        outside = ((point + step < low) & (point <= low + 1e-9)) | ((point + step > high) & (point >= high - 1e-9))
        if not (outside & ~at_limit).any():
            break
        at_limit |= outside
        if at_limit.all():
            return point
    return np.asarray(np.clip(point + np.clip(step, -1.5, 1.5), low, high))
