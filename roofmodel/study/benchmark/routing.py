"""How many rows and experts a mixture's busiest GPU has, by the `distribution` that a table names.

`uniform` is a router that chooses evenly at random, which is what a model is counted with. `balanced` deals the tokens
out in turn. `power_law_1.2` is skewed as the benchmarks of aiconfigurator draw it: the experts' shares follow x^-1.2.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from roofmodel.algebra import ceil_div, maximum, minimum
from roofmodel.errors import WorkloadError, shorten

DRAWS = 16  # of shares, whose mean is taken: a benchmark's own draw is one of them
MOST_EXPERTS = 2**16  # that shares are drawn of

Array = np.ndarray[Any, np.dtype[Any]]


class Load(NamedTuple):
    """Of the busiest GPU."""

    rows: Any  # pairs of a token and an expert
    touched: Any  # experts that have a row


def busiest(distribution: str, tokens: Any, active: Any, experts: Any, gpus: Any) -> Load:
    """The load where each token chooses `active` of `experts` that are spread evenly over `gpus`.

    Columns or single numbers. Raises WorkloadError for a distribution that is not known.
    """
    rows = tokens * active / gpus
    if distribution in ("", "uniform"):
        return Load(rows, experts / gpus * (1 - (1 - active / experts) ** tokens))
    if distribution == "balanced":
        return Load(maximum(rows, 1), minimum(experts / gpus, ceil_div(rows, 1)))
    if found := re.fullmatch(r"power_law_(\d(?:\.\d+)?)", distribution):
        columns = np.broadcast_arrays(tokens, active, experts, gpus)
        load = _drawn(float(found[1]), *(column.ravel() for column in columns))
        return Load(*load.reshape(2, *columns[0].shape))
    raise WorkloadError(f"unknown distribution {shorten(distribution)}; known: balanced, uniform, power_law_1.2")


def _drawn(exponent: float, tokens: Array, active: Array, experts: Array, gpus: Array) -> Array:
    """Rows and touched experts as the mean of some draws, the same for the same shape."""
    load = np.empty((2, len(tokens)))
    if (experts > MOST_EXPERTS).any():
        raise WorkloadError(f"shares are drawn of at most {MOST_EXPERTS} experts")
    for count, parts in set(zip(experts.tolist(), gpus.tolist(), strict=True)):
        here = (experts == count) & (gpus == parts)
        cases, inverse = np.unique(np.stack((tokens[here], active[here])), axis=1, return_inverse=True)
        uniform = np.random.default_rng(0).random((DRAWS, int(count)))
        each = [_of_shares(_shares(exponent, uniform, t, t * k), t, t * k, int(parts)) for t, k in cases.T]
        load[:, here] = np.array(each).T[:, inverse.ravel()]
    return load


def _shares(exponent: float, uniform: Array, tokens: float, rows: float) -> Array:
    """Numbers of density x^-exponent between 1 and 0.8 tokens; between 0.01 and 2 where not every expert has a row."""
    few = rows <= uniform.shape[1]
    low, high = (0.01, 2.0) if few else (1.0, max(0.8 * tokens, 1.5))
    power = (1 - exponent) or 1e-6  # x^-1 is the limit
    return np.asarray(((high**power - low**power) * uniform + low**power) ** (1 / power))


def _of_shares(shares: Array, tokens: float, rows: float, gpus: int) -> tuple[float, float]:
    """Rows and touched experts of the GPU that has most rows, where the experts' are as their shares."""
    exact = shares / shares.sum(1, keepdims=True) * rows
    for _ in range(3):  # no expert has a token twice; the others take what is over
        over = np.maximum(exact - tokens, 0).sum(1, keepdims=True)
        exact = np.minimum(exact, tokens)
        room = np.where(exact < tokens, exact, 0)
        exact += over * room / np.maximum(room.sum(1, keepdims=True), 1e-9)
    each = np.round(exact)
    left = rows - each.sum(1, keepdims=True)
    place = np.argsort(np.argsort(-exact, axis=1), axis=1)
    each += np.sign(left) * (place < np.abs(left))  # what rounding left or took is the largest ones', one each
    draws, experts = each.shape
    held = -(-experts // gpus)  # by a GPU
    each = np.pad(each, ((0, 0), (0, held * gpus - experts))).reshape(draws, gpus, held)
    of_gpu = each.sum(2)
    touched = (each > 0).sum(2)[np.arange(draws), of_gpu.argmax(1)]
    return max(of_gpu.max(1).mean(), 1.0), max(touched.mean(), 1.0)
