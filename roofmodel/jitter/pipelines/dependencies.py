"""Dependencies between the operations of a pipeline in a training step, in the order of a replay.

The rules are those of "Understanding Stragglers in Large Model Training Using What-if Analysis" (arXiv 2505.05713):
a worker executes its computations in one stream and each kind of send and receive in a stream of its own; a
computation waits for its receive, a send for its computation; a send and its receive, and the participants of a
collective, transfer data when the last of them is launched.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.errors import ProfileError
from roofmodel.jitter.pipelines.point_to_point import PointToPoint, chain
from roofmodel.jitter.pipelines.schedules import (
    BACKWARD,
    CLIP,
    EMBEDDING_GRADIENTS,
    FORWARD,
    GARBAGE_COLLECTION,
    GRADIENTS,
    NORM_GRADIENTS,
    OPTIMIZER,
    PARAMETERS,
    SEPARATE_GRADIENTS,
    PipelineOperation,
    Schedule,
    StageOperations,
    operations_by_stage,
)
from roofmodel.numbers import units

# The collectives in which all data-parallel ranks take part.
_DATA_PARALLEL = (PARAMETERS, GRADIENTS, SEPARATE_GRADIENTS, CLIP)


class Task(NamedTuple):
    """Operations that transfer data together, or a single operation."""

    members: tuple[int, ...]  # indices into `Schedule.operations`
    waits_for: tuple[int, ...]  # the operations that end before the task starts
    all_dp_ranks: bool  # the task starts when the last data-parallel rank is ready


class Dependencies(NamedTuple):
    """The tasks of a pipeline; each follows the tasks for which it waits."""

    tasks: tuple[Task, ...]
    warnings: tuple[str, ...]


def dependencies(schedule: Schedule) -> Dependencies:
    """The dependencies of a schedule. Raises ProfileError for a missing stage and for a send without its receive."""
    operations = schedule.operations
    workers = operations_by_stage(operations)
    if absent := units.listed_gaps(worker.stage for worker in workers):
        raise ProfileError(f"no operations of stage {absent}; add the traces of its ranks to replay the pipeline")
    waits: dict[int, list[int]] = defaultdict(list)
    for worker in workers:
        chain(waits, worker.computations)
        chain(waits, worker.of(PARAMETERS, GRADIENTS))
        _wait_for_parameters(waits, worker, operations)
        _wait_for_gradients(waits, worker, operations)
    matcher = PointToPoint(schedule, workers)
    partners: list[tuple[int, ...]] = list(matcher.pairs(waits))
    for kind in (EMBEDDING_GRADIENTS, CLIP):
        sequences = [worker.of(kind) for worker in workers if worker.of(kind)]
        partners += zip(*sequences, strict=False) if sequences else []
    return Dependencies(_ordered(operations, waits, partners), tuple(matcher.warnings))


def transfer_seconds(schedule: Schedule, tasks: Iterable[Task]) -> NDArray[np.float64]:
    """Seconds of each operation from the start of its task: (operations, steps, dp_ranks).

    A computation takes its duration; a communication counts from the start of its last participant to its own end.
    """
    seconds = np.empty_like(schedule.starts)
    for task in tasks:
        members = list(task.members)
        start = schedule.starts[members].max(0)
        if task.all_dp_ranks:
            start = start.max(-1, keepdims=True)
        # Clocks of ranks differ slightly: a participant can end before the last one starts.
        seconds[members] = np.maximum(schedule.ends[members] - start, 0)
    return seconds


def _wait_for_parameters(
    waits: dict[int, list[int]], worker: StageOperations, operations: Sequence[PipelineOperation]
) -> None:
    """The first forward computation of a model chunk waits for the parameters of the chunk."""
    forward = worker.of(FORWARD)
    last = {operations[index].model_chunk: index for index in worker.of(PARAMETERS)}
    for chunk, gathered in last.items():
        of_chunk = [index for index in forward if operations[index].model_chunk == chunk] or forward
        if of_chunk:
            waits[of_chunk[0]].append(gathered)


def _wait_for_gradients(
    waits: dict[int, list[int]], worker: StageOperations, operations: Sequence[PipelineOperation]
) -> None:
    """Operations after the last computation run one after the other.

    A separate all-reduce of gradients means that the others overlap with computations: each waits for the last backward
    computation of its model chunk.
    """
    gradients, separate = worker.of(GRADIENTS), worker.of(SEPARATE_GRADIENTS)
    collected = worker.of(GARBAGE_COLLECTION)
    before = worker.computations[-1:]
    for index in collected:
        waits[index] += before
    before = collected or before
    if separate:
        first = {operations[index].model_chunk: index for index in reversed(gradients)}
        backward = worker.of(BACKWARD)
        for chunk, reduced in first.items():
            of_chunk = [index for index in backward if operations[index].model_chunk == chunk] or backward
            waits[reduced] += of_chunk[-1:]
        before = [*gradients[-1:], *before]
        gradients = []
    for index in [*worker.of(NORM_GRADIENTS, EMBEDDING_GRADIENTS), *gradients, *separate, *worker.of(CLIP, OPTIMIZER)]:
        waits[index] += before
        before = [index]


def _ordered(
    operations: Sequence[PipelineOperation], waits: dict[int, list[int]], partners: Sequence[tuple[int, ...]]
) -> tuple[Task, ...]:
    """Tasks in an order in which each follows the tasks for which it waits. Raises ProfileError for a cycle."""
    grouped = {index for members in partners for index in members}
    groups = [*partners, *((index,) for index in range(len(operations)) if index not in grouped)]
    tasks = [
        Task(
            tuple(members),
            tuple(sorted({before for index in members for before in waits[index]})),
            operations[members[0]].kind in _DATA_PARALLEL,
        )
        for members in groups
    ]
    task_of = {index: number for number, task in enumerate(tasks) for index in task.members}
    followers: dict[int, list[int]] = defaultdict(list)
    missing = []
    for number, task in enumerate(tasks):
        before = {task_of[index] for index in task.waits_for}
        missing.append(len(before))
        for earlier in before:
            followers[earlier].append(number)
    ready = deque(number for number, count in enumerate(missing) if not count)
    order = []
    while ready:
        number = ready.popleft()
        order.append(tasks[number])
        for later in followers[number]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    if len(order) < len(tasks):
        stuck = operations[next(task for number, task in enumerate(tasks) if missing[number]).members[0]]
        raise ProfileError(
            f"the dependencies of {stuck.kind} {stuck.number} on stage {stuck.stage} form a cycle: the order of the "
            "computations does not fit a pipeline; check stage, mc and mb_id"
        )
    return tuple(order)
