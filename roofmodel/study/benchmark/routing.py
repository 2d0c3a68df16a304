"""Load of the busiest GPU in expert parallelism: its rows and touched experts, by distribution of the tokens.

`uniform`: the router chooses experts uniformly at random, as in the counts of models. `balanced`: tokens go to the
experts in round-robin order. `same`: all tokens go to the same experts. `power_law_1.2`: skewed as in the benchmarks of
aiconfigurator; the shares of the experts have a density of x^-1.2.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from roofmodel.algebra import ceil_div, maximum, minimum
from roofmodel.errors import WorkloadError, shorten

DRAWS = 16  # random draws of the shares; the result is their mean, since a benchmark's own draw is unknown
MAX_EXPERTS = 2**16  # limits the memory of the draws

Array = np.ndarray[Any, np.dtype[Any]]


class Load(NamedTuple):
    """The load of one GPU."""

    rows: Any  # pairs of a token and an expert
    touched: Any  # experts with at least one row


def busiest_gpu(distribution: str, tokens: Any, active: Any, experts: Any, gpus: Any) -> Load:
    """The load of the busiest GPU if each token uses `active` of `experts`, which are sharded evenly over `gpus`.

    The arguments are columns or single numbers. Raises WorkloadError for an unknown distribution.
    """
    rows = tokens * active / gpus
    if distribution in ("", "uniform"):
        return Load(rows, experts / gpus * (1 - (1 - active / experts) ** tokens))
    if distribution == "balanced":
        return Load(maximum(rows, 1), minimum(experts / gpus, ceil_div(rows, 1)))
    if distribution == "same":
        touched = ceil_div(active, gpus)
        return Load(tokens * touched, touched)
    if found := re.fullmatch(r"power_law_(\d(?:\.\d+)?)", distribution):
        columns = np.broadcast_arrays(tokens, active, experts, gpus)
        load = _power_law(float(found[1]), *(column.ravel() for column in columns))
        return Load(*load.reshape(2, *columns[0].shape))
    raise WorkloadError(f"unknown distribution {shorten(distribution)}; known: balanced, same, uniform, power_law_1.2")


def _power_law(exponent: float, tokens: Array, active: Array, experts: Array, gpus: Array) -> Array:
    """Rows and touched experts of the busiest GPU, [2, cases]: means over draws with a fixed seed."""
    load = np.empty((2, len(tokens)))
    if (experts > MAX_EXPERTS).any():
        raise WorkloadError(f"a power-law distribution supports at most {MAX_EXPERTS} experts")
    for count, num_gpus in set(zip(experts.tolist(), gpus.tolist(), strict=True)):
        here = (experts == count) & (gpus == num_gpus)
        cases, inverse = np.unique(np.stack((tokens[here], active[here])), axis=1, return_inverse=True)
        uniform = np.random.default_rng(0).random((DRAWS, int(count)))
        each = [_mean_load(_shares(exponent, uniform, t, t * k), t, t * k, int(num_gpus)) for t, k in cases.T]
        load[:, here] = np.array(each).T[:, inverse.ravel()]
    return load


def _shares(exponent: float, uniform: Array, tokens: float, rows: float) -> Array:
    """Shares [draws, experts] with density x^-exponent, by inversion of its distribution function.

    The range is 1 to 0.8 * tokens, or 0.01 to 2 if there are at most as many rows as experts.
    """
    sparse = rows <= uniform.shape[1]
    low, high = (0.01, 2.0) if sparse else (1.0, max(0.8 * tokens, 1.5))
    power = (1 - exponent) or 1e-6  # exponent 1 as a limit
    return np.asarray(((high**power - low**power) * uniform + low**power) ** (1 / power))


def _mean_load(shares: Array, tokens: float, rows: float, gpus: int) -> tuple[float, float]:
    """Rows and touched experts of the GPU with the most rows, if rows are proportional to shares [draws, experts]."""
    exact = shares / shares.sum(1, keepdims=True) * rows
    for _ in range(3):  # an expert gets each token at most once; the excess goes to the other experts
        excess = np.maximum(exact - tokens, 0).sum(1, keepdims=True)
        exact = np.minimum(exact, tokens)
        unfilled = np.where(exact < tokens, exact, 0)
        exact += excess * unfilled / np.maximum(unfilled.sum(1, keepdims=True), 1e-9)
    per_expert = np.round(exact)
    remainder = rows - per_expert.sum(1, keepdims=True)
    rank = np.argsort(np.argsort(-exact, axis=1), axis=1)
    per_expert += np.sign(remainder) * (rank < np.abs(remainder))  # one row each to or from the largest experts
    draws, experts = per_expert.shape
    experts_per_gpu = -(-experts // gpus)
    padding = ((0, 0), (0, experts_per_gpu * gpus - experts))
    per_expert = np.pad(per_expert, padding).reshape(draws, gpus, experts_per_gpu)
    per_gpu = per_expert.sum(2)
    touched = (per_expert > 0).sum(2)[np.arange(draws), per_gpu.argmax(1)]
    return max(per_gpu.max(1).mean(), 1.0), max(touched.mean(), 1.0)
