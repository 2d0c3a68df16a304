"""Replay training steps with given times of the operations: when each step would have ended.

A replay has no launch delays: an operation starts when all operations for which it waits have ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.jitter.pipelines.dependencies import Task

_VALUES = 1 << 23  # times in memory at once (64 MiB)


class Scenario(NamedTuple):
    """Which operations keep their recorded time; all others take the ideal time of their kind.

    Booleans that broadcast to (operations, dp_ranks).
    """

    recorded: NDArray[np.bool_]


def step_seconds(
    tasks: Sequence[Task], recorded: NDArray[np.float64], ideal: NDArray[np.float64], scenarios: Sequence[Scenario]
) -> NDArray[np.float64]:
    """Seconds of each step in each scenario: (scenarios, steps).

    `recorded` are the seconds of the operations, (operations, steps, dp_ranks); `ideal` those of their kinds,
    (operations,).
    """
    operations, _, dp_ranks = recorded.shape
    chunk = max(1, _VALUES // max(1, recorded.size))
    return np.concatenate(
        [
            _step_seconds(tasks, recorded, ideal, np.stack(masks))
            for masks in _chunks([np.broadcast_to(each.recorded, (operations, dp_ranks)) for each in scenarios], chunk)
        ]
    )


def _chunks(masks: Sequence[NDArray[np.bool_]], size: int) -> Iterator[Sequence[NDArray[np.bool_]]]:
    for first in range(0, len(masks), size):
        yield masks[first : first + size]


def _step_seconds(
    tasks: Sequence[Task], recorded: NDArray[np.float64], ideal: NDArray[np.float64], masks: NDArray[np.bool_]
) -> NDArray[np.float64]:
    scenarios, operations, dp_ranks = masks.shape
    shape = scenarios, recorded.shape[1], dp_ranks
    ends: list[NDArray[np.float64]] = [np.empty(0)] * operations
    last = np.zeros(shape)
    for task in tasks:
        start = np.zeros(shape)
        for before in task.waits_for:
            np.maximum(start, ends[before], out=start)
        if task.all_dp_ranks:
            start = np.broadcast_to(start.max(-1, keepdims=True), shape)
        for member in task.members:
            keeps = masks[:, member, None, :]
            ends[member] = start + np.where(keeps, recorded[member], ideal[member])
            np.maximum(last, ends[member], out=last)
    return last.max(-1)  # type: ignore[no-any-return]
