"""Load of the busiest GPU in expert parallelism: its rows and touched experts, by distribution of the tokens.

`uniform`: the router chooses experts uniformly at random, as in the counts of models. `balanced`: tokens go to the
experts in round-robin order. `same`: all tokens go to the same experts. `power_law_1.2`: skewed as in the benchmarks of
aiconfigurator; the shares of the experts have a density of x^-1.2.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from roofmodel.errors import WorkloadError, shorten
from roofmodel.numbers.algebra import ceil_div, maximum, minimum

DRAWS = 16  # random draws of the shares; the result is their mean, since a benchmark's own draw is unknown
GROUPED_DRAWS = 4  # with groups of experts, where a draw takes longer
MAX_EXPERTS = 2**16  # limits the memory of the draws

Array = np.ndarray[Any, np.dtype[Any]]


class Load(NamedTuple):
    """The load of one GPU."""

    rows: Any  # pairs of a token and an expert
    touched: Any  # experts with at least one row


class ExpertGroups(NamedTuple):
    """Routing that first chooses groups of experts, then experts of these groups, such as DeepSeek V3's."""

    groups: int
    chosen: int


def busiest_gpu(
    distribution: str, tokens: Any, active: Any, experts: Any, gpus: Any, groups: ExpertGroups | None = None
) -> Load:
    """The load of the busiest GPU if each token uses `active` of `experts`, which are sharded evenly over `gpus`.

    The arguments are columns or single numbers. `groups` changes the choice of balanced and skewed benchmarks, whose
    logits ignore the groups. Raises WorkloadError for an unknown distribution.
    """
    rows = tokens * active / gpus
    if distribution in ("", "uniform"):
        return Load(rows, experts / gpus * (1 - (1 - active / experts) ** tokens))
    if distribution == "same":
        touched = ceil_div(active, gpus)
        return Load(tokens * touched, touched)
    skewed = re.fullmatch(r"power_law_(\d(?:\.\d+)?)", distribution)
    if not skewed and distribution != "balanced":
        raise WorkloadError(
            f"unknown distribution {shorten(distribution)}; known: balanced, same, uniform, power_law_1.2"
        )
    if not skewed and groups is None:
        return Load(maximum(rows, 1), minimum(experts / gpus, ceil_div(rows, 1)))
    columns = np.broadcast_arrays(tokens, active, experts, gpus)
    load = _simulated(float(skewed[1]) if skewed else None, groups, *(column.ravel() for column in columns))
    return Load(*load.reshape(2, *columns[0].shape))


def _simulated(
    exponent: float | None, groups: ExpertGroups | None, tokens: Array, active: Array, experts: Array, gpus: Array
) -> Array:
    """Rows and touched experts of the busiest GPU, [2, cases]: means over draws with a fixed seed.

    Without an exponent the tokens are balanced.
    """
    load = np.empty((2, len(tokens)))
    if (experts > MAX_EXPERTS).any():
        raise WorkloadError(f"a power-law distribution supports at most {MAX_EXPERTS} experts")
    for count, num_gpus in set(zip(experts.tolist(), gpus.tolist(), strict=True)):
        here = (experts == count) & (gpus == num_gpus)
        cases, inverse = np.unique(np.stack((tokens[here], active[here])), axis=1, return_inverse=True)
        uniform = np.random.default_rng(0).random((GROUPED_DRAWS if groups else DRAWS, int(count)))
        experts_per_gpu = int(ceil_div(count, num_gpus))
        each = []
        for t, k in cases.T:
            if exponent is None:
                choices = [_balanced(int(t), int(k), int(count))]
            else:
                counts = _counts(_shares(exponent, uniform, t, t * k), t, t * k, int(num_gpus))
                busiest = counts[np.arange(len(counts)), counts.sum(2).argmax(1)]
                ordered = [_busiest_first(gpu_rows, int(count)) for gpu_rows in counts] if groups else []
                choices = [_choices(gpu_rows, int(t), int(k)) for gpu_rows in ordered]
            if groups:
                busiest = np.array([_in_groups(*choice, int(count), groups)[:experts_per_gpu] for choice in choices])
            each.append(_mean_load(busiest))
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


def _counts(shares: Array, tokens: float, rows: float, gpus: int) -> Array:
    """Rows of the experts, [draws, gpus, experts], in proportion to shares [draws, experts].

    As in `_generate_power_law_distribution` of aiconfigurator's collectors (ai-dynamo/aiconfigurator@095f58a5,
    collector/helper.py): the rows of each expert are rounded and limited to the number of tokens. The GPUs in turn
    give the missing rows to their experts with the fewest rows, and take excess rows from those with the most.
    """
    rounded = np.round(shares / shares.sum(1, keepdims=True) * rows)
    draws, experts = rounded.shape
    experts_per_gpu = -(-experts // gpus)
    places = gpus * experts_per_gpu
    limits = np.where(np.arange(places) < experts, tokens, 0).reshape(gpus, experts_per_gpu)
    counts = np.pad(rounded, ((0, 0), (0, places - experts))).reshape(draws, gpus, experts_per_gpu)
    counts = np.minimum(counts, limits)
    missing = rows - counts.sum((1, 2))
    counts = _add_to_smallest(counts, np.maximum(missing, 0), limits)
    return -_add_to_smallest(-counts, np.maximum(-missing, 0), 0 * limits)


def _busiest_first(counts: Array, experts: int) -> Array:
    """Rows [experts] from counts [gpus, experts] of one draw: the busiest GPU and the first one change places.

    If the GPUs do not divide the experts, the last GPUs have fewer; their empty places are left out.
    """
    order, busiest = np.arange(len(counts)), counts.sum(1).argmax()
    order[[0, busiest]] = busiest, 0
    places = np.arange(counts.size).reshape(counts.shape)[order].ravel()
    return np.asarray(counts.ravel()[places[places < experts]])


def _mean_load(counts: Array) -> tuple[float, float]:
    """Rows and touched experts of a GPU with counts [draws, experts], as means over the draws."""
    return max(counts.sum(1).mean(), 1.0), max((counts > 0).sum(1).mean(), 1.0)


def _add_to_smallest(counts: Array, added: Array, limits: Array) -> Array:
    """Add `added` [draws] to counts [draws, gpus, experts], one by one: the GPUs in turn, each to its smallest count.

    No count rises above its limit [gpus, experts].
    """
    while added.any():
        is_open = counts < limits
        takes = np.any(is_open, axis=2)
        turn, gpus = np.cumsum(takes, axis=1), np.maximum(takes.sum(1, keepdims=True), 1)
        share = takes * (added[:, None] // gpus + (turn <= added[:, None] % gpus))
        share = np.minimum(share, (is_open * (limits - counts)).sum(2))
        counts = np.where(is_open, _fill(np.where(is_open, counts, np.inf), share), counts)
        added = (added - share.sum(1)) * takes.any(1)
    return counts


def _fill(counts: Array, share: Array) -> Array:
    """Raise the smallest counts of each GPU to one level, some of them by one more, by `share` [draws, gpus] in all."""
    order = np.argsort(counts, axis=2)
    ordered = np.take_along_axis(np.minimum(counts, 2.0**53), order, axis=2)  # infinite where the limit is reached
    before = np.cumsum(ordered, axis=2) - ordered
    place = np.arange(counts.shape[2])
    raised = ((place * ordered - before) <= share[..., None]).sum(2)[..., None]  # at least one
    total = share + np.take_along_axis(before + ordered, raised - 1, axis=2)[..., 0]
    level, more = np.divmod(total[..., None], raised)
    filled = np.empty_like(counts)
    raised_counts = np.where((place < raised) & (share[..., None] > 0), level + (place < more), ordered)
    np.put_along_axis(filled, order, raised_counts, axis=2)
    return filled


def _balanced(tokens: int, active: int, experts: int) -> tuple[Array, Array]:
    """Experts [choices, active] of balanced tokens, and the number of tokens with each choice.

    As in `balanced_logits` of aiconfigurator's collectors: the experts of a token are a stride apart.
    """
    stride = ceil_div(experts, active)
    token, start = np.arange(min(tokens, experts)), 1.0
    if tokens < stride:
        start = stride / tokens
    chosen = (token[:, None] * start + np.arange(active) * stride) % experts
    return chosen.astype(int), tokens // len(token) + (token < tokens % len(token))


def _choices(counts: Array, tokens: int, active: int) -> tuple[Array, Array]:
    """Experts [choices, active] of tokens for given rows of each expert, and the number of tokens with each choice.

    As in `_assign_experts_from_counts` of aiconfigurator's collectors: the experts in the order of their rows, each
    repeated as often as it has rows, fill the first choice of all tokens, then the second and so on.
    """
    flat = counts.ravel()
    order = np.argsort(-flat, kind="stable")
    ends = np.cumsum(flat[order])
    first = np.unique(np.append(ends % tokens, 0))  # tokens at which an expert begins
    places = first[:, None] + tokens * np.arange(active)
    return order[np.searchsorted(ends, places, side="right")], np.diff(np.append(first, tokens))


def _in_groups(chosen: Array, tokens: Array, experts: int, groups: ExpertGroups) -> Array:
    """Rows of each expert if tokens prefer the experts `chosen` [choices, active], but may use `groups.chosen` groups.

    A group's score is the sum of its two largest (DeepSeek-V3's `noaux_tc`); the lowest index wins among equals.
    """
    wanted = np.zeros((len(chosen), experts), bool)
    np.put_along_axis(wanted, chosen, True, axis=1)
    size = experts // groups.groups
    score = np.minimum(wanted.reshape(-1, groups.groups, size).sum(2), 2)
    is_open = np.repeat(_largest(score, groups.chosen), size, axis=1)
    return np.asarray(tokens @ _largest(1 * is_open + (is_open & wanted), chosen.shape[1]))


def _largest(values: Array, count: int) -> Array:
    """Mask of the `count` largest integers of each row, with the lowest index among equals."""
    width = values.shape[1]
    keys = values * width - np.arange(width)
    return np.asarray(keys >= np.partition(keys, width - count, axis=1)[:, [width - count]])
