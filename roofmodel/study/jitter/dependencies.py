"""Dependencies between the operations of a pipeline in a training step, in the order of a replay.

The rules are those of "Understanding Stragglers in Large Model Training Using What-if Analysis" (arXiv 2505.05713):
a worker executes its computations in one stream and each kind of send and receive in a stream of its own; a
computation waits for its receive, a send for its computation; a send and its receive, and the participants of a
collective, transfer data when the last of them is launched.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.errors import ProfileError
from roofmodel.profiles.operation_table import listed
from roofmodel.study.jitter.schedules import (
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
    Operation,
    Schedule,
)

# The collectives in which all data-parallel ranks take part.
_DATA_PARALLEL = (PARAMETERS, GRADIENTS, SEPARATE_GRADIENTS, CLIP)
_CLOCK_ERROR = 5e-5  # seconds between clocks of ranks, when a send or receive is compared with a computation


class Task(NamedTuple):
    """Operations that transfer data together, or a single operation."""

    members: tuple[int, ...]  # indices into `Schedule.operations`
    waits_for: tuple[int, ...]  # the operations that end before the task starts
    all_dp_ranks: bool  # the task starts when the last data-parallel rank is ready


class Dependencies(NamedTuple):
    """The tasks of a pipeline; each follows the tasks for which it waits."""

    tasks: tuple[Task, ...]
    warnings: tuple[str, ...]


class _Worker(NamedTuple):
    """The operations of one stage as indices, by kind and in order."""

    stage: int
    by_kind: dict[str, list[int]]
    computations: list[int]

    def of(self, *kinds: str) -> list[int]:
        return [index for kind in kinds for index in self.by_kind.get(kind, [])]


def dependencies(schedule: Schedule) -> Dependencies:
    """The dependencies of a schedule. Raises ProfileError for a missing stage and for a send without its receive."""
    operations = schedule.operations
    workers = _workers(operations)
    if absent := sorted(set(range(workers[-1].stage)) - {worker.stage for worker in workers}):
        raise ProfileError(
            f"no operations of stage {listed(absent)}; add the traces of its ranks to replay the pipeline"
        )
    warnings: list[str] = []
    waits: dict[int, list[int]] = defaultdict(list)
    partners: list[tuple[int, ...]] = []
    for worker in workers:
        _chain(waits, worker.computations)
        _chain(waits, worker.of(PARAMETERS, GRADIENTS))
        _wait_for_parameters(waits, worker, operations)
        _wait_for_gradients(waits, worker, operations)
    partners += _point_to_point(waits, workers, schedule, warnings)
    for kind in (EMBEDDING_GRADIENTS, CLIP):
        sequences = [worker.of(kind) for worker in workers if worker.of(kind)]
        partners += zip(*sequences, strict=False) if sequences else []
    return Dependencies(_ordered(operations, waits, partners), tuple(warnings))


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


def _workers(operations: Sequence[Operation]) -> list[_Worker]:
    workers: dict[int, _Worker] = {}
    for index, operation in enumerate(operations):
        worker = workers.setdefault(operation.stage, _Worker(operation.stage, defaultdict(list), []))
        worker.by_kind[operation.kind].append(index)
        if operation.kind in (FORWARD, BACKWARD):
            worker.computations.append(index)
    return [workers[stage] for stage in sorted(workers)]


def _chain(waits: dict[int, list[int]], indices: Sequence[int]) -> None:
    for before, after in pairwise(indices):
        waits[after].append(before)


def _wait_for_parameters(waits: dict[int, list[int]], worker: _Worker, operations: Sequence[Operation]) -> None:
    """The first forward computation of a model chunk waits for the parameters of the chunk."""
    forward = worker.of(FORWARD)
    last = {operations[index].model_chunk: index for index in worker.of(PARAMETERS)}
    for chunk, gathered in last.items():
        of_chunk = [index for index in forward if operations[index].model_chunk == chunk] or forward
        if of_chunk:
            waits[of_chunk[0]].append(gathered)


def _wait_for_gradients(waits: dict[int, list[int]], worker: _Worker, operations: Sequence[Operation]) -> None:
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


class _Transfer(NamedTuple):
    """A send or receive and its computation."""

    operation: int
    computation: int | None
    has_partner: bool


def _point_to_point(
    waits: dict[int, list[int]], workers: Sequence[_Worker], schedule: Schedule, warnings: list[str]
) -> Iterator[tuple[int, ...]]:
    """Sends with their receives; adds what they wait for and what waits for them."""
    operations = schedule.operations
    stages = len(workers)
    chunks = 1 + max((_chunk(operations[i], stages) for worker in workers for i in worker.computations), default=0)
    for compute, send, receive, offset in (
        (FORWARD, "forward-send", "forward-recv", 1),
        (BACKWARD, "backward-send", "backward-recv", -1),
    ):
        sends, receives = {}, {}
        for worker in workers:
            _chain(waits, worker.of(send))
            _chain(waits, worker.of(receive))
            last_chunk = chunks - 1
            sends[worker.stage] = _transfers(
                worker, send, compute, last_chunk if offset > 0 else 0, stages, schedule, warnings
            )
            receives[worker.stage] = _transfers(
                worker, receive, compute, 0 if offset > 0 else last_chunk, stages, schedule, warnings
            )
            for transfer in sends[worker.stage]:
                if transfer.computation is not None:
                    waits[transfer.operation].append(transfer.computation)
            computations = worker.of(compute)
            for transfer in receives[worker.stage]:
                if transfer.computation is not None:
                    waits[transfer.computation].append(transfer.operation)
                    # A worker launches a receive after the previous computation of the same kind.
                    position = computations.index(transfer.computation)
                    waits[transfer.operation] += computations[:position][-1:]
        for worker in workers:
            peer = (worker.stage + offset) % stages
            sent = [transfer for transfer in sends[worker.stage] if transfer.has_partner]
            received = [transfer for transfer in receives[peer] if transfer.has_partner]
            yield from _paired(sent, received, operations, (send, worker.stage), (receive, peer), offset, stages)


def _chunk(operation: Operation, stages: int) -> int:
    """The chunk of the model that an operation computes."""
    if operation.global_chunk >= 0:
        return operation.global_chunk
    return max(operation.model_chunk, 0) * stages + operation.stage


def _transfers(
    worker: _Worker, kind: str, compute: str, edge: int, stages: int, schedule: Schedule, warnings: list[str]
) -> list[_Transfer]:
    """Assign the computations of a worker to its sends or receives of one kind, in order.

    `edge` is the chunk of the model that has no neighbor in this direction. A profiler may record operations of this
    chunk which transfer nothing, and such operations at the ends of a step. Raises ProfileError if the numbers do not
    match.
    """
    operations = schedule.operations
    computations, found = worker.of(compute), worker.of(kind)
    needed = [index for index in computations if _chunk(operations[index], stages) != edge]
    receives = kind.endswith("recv")
    empty: list[int] = []
    if len(found) > len(computations) and computations:
        empty = [index for index in found if _outside(schedule, index, computations, receives)]
        found = [index for index in found if index not in empty]
    if len(found) == len(needed):
        assigned = needed
    elif len(found) == len(computations):
        assigned = computations
        if not needed and all(operations[index].model_chunk <= 0 for index in computations):
            warnings.append(
                f"stage {worker.stage} has {kind} operations, but the file has no stage at the other end: in the "
                "replay they wait for no other rank"
            )
    elif len(found) == len(computations) - 1:  # the one of the edge chunk at the start or the end is not recorded
        assigned = computations[1:] if receives else computations[:-1]
    else:
        raise ProfileError(
            f"stage {worker.stage} has {len(found)} {kind} operations for {len(needed)} {compute} operations that "
            "need one; record whole steps"
        )
    paired = [
        _Transfer(index, computation, _chunk(operations[computation], stages) != edge)
        for index, computation in zip(found, assigned, strict=True)
    ]
    return [*paired, *(_Transfer(index, None, False) for index in empty)]


def _outside(schedule: Schedule, index: int, computations: Sequence[int], receives: bool) -> bool:
    """Whether a receive starts after all computations have started, or a send ends before one has ended."""
    starts, ends = schedule.starts[:, 0, 0], schedule.ends[:, 0, 0]
    if receives:
        return bool(starts[index] > starts[list(computations)].max() + _CLOCK_ERROR)
    return bool(ends[index] < ends[list(computations)].min() - _CLOCK_ERROR)


def _paired(
    sent: Sequence[_Transfer], received: Sequence[_Transfer], operations: Sequence[Operation],
    send: tuple[str, int], receive: tuple[str, int], offset: int, stages: int,
) -> list[tuple[int, ...]]:  # fmt: skip
    """Sends with receives of the same microbatch and the neighboring chunk; in order where those are not recorded."""
    if len(sent) != len(received):
        raise ProfileError(
            f"stage {send[1]} has {len(sent)} {send[0]} operations, stage {receive[1]} has {len(received)} "
            f"{receive[0]} operations; record whole steps of all ranks"
        )

    def key(transfer: _Transfer, shift: int) -> tuple[int, int]:
        operation = operations[transfer.computation]  # type: ignore[index]  # those with a partner have one
        return _chunk(operation, stages) + shift, operation.microbatch

    by_key = {key(transfer, 0): transfer.operation for transfer in received}
    keys = [key(transfer, offset) for transfer in sent]
    if len(by_key) == len(received) and set(keys) == set(by_key):
        return [(transfer.operation, by_key[found]) for transfer, found in zip(sent, keys, strict=True)]
    return [(one.operation, other.operation) for one, other in zip(sent, received, strict=True)]


def _ordered(
    operations: Sequence[Operation], waits: dict[int, list[int]], partners: Sequence[tuple[int, ...]]
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
