"""Match the sends and receives of a pipeline with each other and with the computations whose data they transfer.

A trace of operations has the microbatch and the model chunk of computations only. The sends and receives of a worker
follow the order of its computations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from roofmodel.errors import ProfileError
from roofmodel.jitter.pipelines.schedules import BACKWARD, FORWARD, Schedule, StageOperations
from roofmodel.numbers import units

_CLOCK_ERROR = 5e-5  # seconds by which times of communication and computation may be off


def chain(waits: dict[int, list[int]], operations: Sequence[int]) -> None:
    """Each operation waits for the one before it."""
    for before, after in pairwise(operations):
        waits[after].append(before)


class _Direction(NamedTuple):
    """Transfers of activations or of their gradients."""

    compute: str
    send: str
    receive: str
    offset: int  # from the chunk that sends to the chunk that receives
    first_chunk: int  # receives nothing
    last_chunk: int  # sends nothing


class _Transfer(NamedTuple):
    """A send or receive and its computation."""

    operation: int
    computation: int
    has_partner: bool


class PointToPoint:
    """The sends and receives of a schedule. Operations are indices into `Schedule.operations`.

    Raises ProfileError if the file lacks a chunk of the model.
    """

    def __init__(self, schedule: Schedule, workers: Sequence[StageOperations]) -> None:
        self.schedule = schedule
        self.workers = workers
        self.warnings: list[str] = []
        self.chunk_of = self._chunks()
        if absent := units.listed_gaps(self.chunk_of.values()):
            raise ProfileError(f"no computations of model chunk {absent}; add the traces of all stages")

    def _chunks(self) -> dict[int, int]:
        """The chunk of the model of each computation.

        Without valid numbers of chunks: the stages in order, as often as a stage has chunks.
        """
        operations = self.schedule.operations
        computations = [index for worker in self.workers for index in worker.computations]
        places: dict[int, set[tuple[int, int]]] = {}
        for index in computations:
            operation = operations[index]
            places.setdefault(operation.global_chunk, set()).add((operation.stage, operation.model_chunk))
        if all(chunk >= 0 and len(pairs) == 1 for chunk, pairs in places.items()):
            return {index: operations[index].global_chunk for index in computations}
        if any(chunk >= 0 for chunk in places):
            self.warnings.append("gmc does not number the chunks of the model; they are numbered by mc and stage")
        return {
            index: max(operations[index].model_chunk, 0) * len(self.workers) + operations[index].stage
            for index in computations
        }

    def pairs(self, waits: dict[int, list[int]]) -> Iterator[tuple[int, int]]:
        """Sends with their receives; adds to `waits` what they wait for and what waits for them.

        Raises ProfileError if their numbers do not match.
        """
        last = max(self.chunk_of.values(), default=0)
        for direction in (
            _Direction(FORWARD, "forward-send", "forward-recv", 1, 0, last),
            _Direction(BACKWARD, "backward-send", "backward-recv", -1, last, 0),
        ):
            sent: dict[int, list[_Transfer]] = {}
            received: dict[int, list[_Transfer]] = {}
            for worker in self.workers:
                chain(waits, worker.of(direction.send))
                chain(waits, worker.of(direction.receive))
                sends, receives = self._sends(worker, direction), self._receives(worker, direction)
                for send in sends:
                    waits[send.operation].append(send.computation)
                computations = worker.of(direction.compute)
                for receive in receives:
                    waits[receive.computation].append(receive.operation)
                    # A worker launches a receive after the previous computation of the same kind.
                    waits[receive.operation] += computations[: computations.index(receive.computation)][-1:]
                sent[worker.stage] = [send for send in sends if send.has_partner]
                received[worker.stage] = [receive for receive in receives if receive.has_partner]
            yield from self._paired(sent, received, direction)

    def _sends(self, worker: StageOperations, direction: _Direction) -> list[_Transfer]:
        """The sends of a worker; those that end before the first computation transfer nothing."""
        sends = worker.of(direction.send)
        computations = worker.of(direction.compute)
        if len(sends) > len(computations) > 0:
            ends = self.schedule.ends[:, 0, 0]
            first = ends[computations].min() - _CLOCK_ERROR
            sends = [send for send in sends if ends[send] >= first]
        return self._assigned(worker, direction, direction.send, sends, direction.last_chunk, computations[:-1])

    def _receives(self, worker: StageOperations, direction: _Direction) -> list[_Transfer]:
        """The receives of a worker; those that start after the last computation transfer nothing."""
        receives = worker.of(direction.receive)
        computations = worker.of(direction.compute)
        if len(receives) > len(computations) > 0:
            starts = self.schedule.starts[:, 0, 0]
            last = starts[computations].max() + _CLOCK_ERROR
            receives = [receive for receive in receives if starts[receive] <= last]
        return self._assigned(worker, direction, direction.receive, receives, direction.first_chunk, computations[1:])

    def _assigned(
        self, worker: StageOperations, direction: _Direction, kind: str, indices: Sequence[int], edge: int,
        all_but_one: Sequence[int],
    ) -> list[_Transfer]:  # fmt: skip
        """Assign the computations of a worker to its sends or receives, in order.

        `edge` is the chunk without a neighbor in this direction. A profiler may record its sends and receives, which
        transfer nothing, with or without the one at the start or end of the step.
        """
        computations = worker.of(direction.compute)
        needed = [index for index in computations if self.chunk_of[index] != edge]
        assigned = next((each for each in (needed, computations, all_but_one) if len(each) == len(indices)), None)
        if assigned is None:
            raise ProfileError(
                f"stage {worker.stage} has {len(indices)} {kind} operations for {len(needed)} {direction.compute} "
                "operations that need one; record whole steps"
            )
        operations = self.schedule.operations
        if indices and not needed and all(operations[index].model_chunk <= 0 for index in computations):
            self.warnings.append(
                f"stage {worker.stage} has {kind} operations, but the file has no stage at the other end: in the "
                "replay they wait for no other rank"
            )
        return [
            _Transfer(index, computation, self.chunk_of[computation] != edge)
            for index, computation in zip(indices, assigned, strict=True)
        ]

    def _paired(
        self, sent: dict[int, list[_Transfer]], received: dict[int, list[_Transfer]], direction: _Direction
    ) -> Iterator[tuple[int, int]]:
        """Sends with receives of the same microbatch and the next chunk; in order if microbatches are not recorded."""

        def key(transfer: _Transfer, offset: int = 0) -> tuple[int, int]:
            microbatch = self.schedule.operations[transfer.computation].microbatch
            return self.chunk_of[transfer.computation] + offset, microbatch

        sends = [transfer for transfers in sent.values() for transfer in transfers]
        receives = {key(transfer): transfer.operation for transfers in received.values() for transfer in transfers}
        keys = [key(send, direction.offset) for send in sends]
        if len(receives) == sum(map(len, received.values())) == len(set(keys)) and receives.keys() == set(keys):
            yield from ((send.operation, receives[place]) for send, place in zip(sends, keys, strict=True))
            return
        for stage, own in sent.items():
            peer = (stage + direction.offset) % len(self.workers)
            if len(own) != len(received[peer]):
                raise ProfileError(
                    f"stage {stage} has {len(own)} {direction.send} operations, stage {peer} has "
                    f"{len(received[peer])} {direction.receive} operations; record whole steps of all ranks"
                )
            yield from ((send.operation, receive.operation) for send, receive in zip(own, received[peer], strict=True))
