"""Group the steps of a training job by the sequence of operations that all data-parallel ranks execute in them.

A pipeline is all stages of one data-parallel rank. Steps with equal sequences form a `Schedule`: arrays of times that a
replay evaluates at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.errors import ProfileError
from roofmodel.numbers import units
from roofmodel.profiles.operation_table import OperationTable

if TYPE_CHECKING:
    import pandas

FORWARD, BACKWARD = "forward-compute", "backward-compute"
POINT_TO_POINT = ("forward-send", "forward-recv", "backward-send", "backward-recv")
PARAMETERS, GRADIENTS, SEPARATE_GRADIENTS = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
EMBEDDING_GRADIENTS, NORM_GRADIENTS = "embedding-grads-all-reduce", "layernorm-grads-all-reduce"
CLIP, OPTIMIZER, GARBAGE_COLLECTION = "optimizer-clip-main-grad", "optimizer", "gc"
COMPUTE = (FORWARD, BACKWARD, OPTIMIZER, GARBAGE_COLLECTION)
COMMUNICATION = (
    *POINT_TO_POINT, PARAMETERS, GRADIENTS, SEPARATE_GRADIENTS, EMBEDDING_GRADIENTS, NORM_GRADIENTS, CLIP
)  # fmt: skip

_COMPLETE_SHARE = 0.5  # a data-parallel rank that lacks operations in more of the steps is left out


class PipelineOperation(NamedTuple):
    """An operation of a pipeline; `number` counts those of its kind on its stage in a step."""

    kind: str
    stage: int
    number: int
    model_chunk: int  # within the stage; -1: unknown, as in the next two
    microbatch: int
    global_chunk: int  # within the model


class Schedule(NamedTuple):
    """Steps in which all pipelines execute the same operations."""

    operations: tuple[PipelineOperation, ...]  # of one pipeline, by stage; computations by start
    steps: NDArray[np.int64]
    dp_ranks: NDArray[np.int64]
    starts: NDArray[np.float64]  # (operations, steps, dp_ranks), seconds
    ends: NDArray[np.float64]


class StageOperations(NamedTuple):
    """The operations of one stage as indices into `Schedule.operations`."""

    stage: int
    by_kind: dict[str, list[int]]
    computations: list[int]  # in order

    def of(self, *kinds: str) -> list[int]:
        """The operations of some kinds, one kind after the other."""
        return [index for kind in kinds for index in self.by_kind.get(kind, [])]


class PartialWorker(NamedTuple):
    """A worker with all its computations, of a data-parallel rank that lacks other operations: it is compared only."""

    dp_rank: int
    stage: int
    rank: int
    operations: int  # in the steps of all schedules
    seconds: tuple[NDArray[np.float64], ...]  # of each schedule: (operations, steps); NaN except for its computations


class ReplaySelection(NamedTuple):
    """The part of a job that can be replayed, and further workers that can be compared."""

    schedules: tuple[Schedule, ...]
    ranks: dict[tuple[int, int], int]  # (dp_rank, stage) -> rank
    warnings: tuple[str, ...]  # what is left out
    partial: tuple[PartialWorker, ...] = ()


class _Pipelines(NamedTuple):
    """The rows of a table in blocks: one block per step and data-parallel rank."""

    rows: pandas.DataFrame
    bounds: NDArray[np.int64]  # first row of each block, and the number of rows
    steps: NDArray[np.int64]
    dp_ranks: NDArray[np.int64]
    sequences: NDArray[np.int64]  # (steps, dp_ranks): number of the sequence of operations, -1 without rows
    blocks: NDArray[np.int64]  # (steps, dp_ranks): number of the block, -1 without rows


def operations_by_stage(operations: Sequence[PipelineOperation]) -> list[StageOperations]:
    """The operations of each stage, by stage."""
    stages: dict[int, StageOperations] = {}
    for index, operation in enumerate(operations):
        stage = stages.setdefault(operation.stage, StageOperations(operation.stage, {}, []))
        stage.by_kind.setdefault(operation.kind, []).append(index)
        if operation.kind in (FORWARD, BACKWARD):
            stage.computations.append(index)
    return [stages[stage] for stage in sorted(stages)]


def select(table: OperationTable) -> ReplaySelection:
    """The steps and data-parallel ranks whose operations are complete.

    A data-parallel rank that lacks operations in most steps is left out, and then each step in which another one does.
    The workers of such a rank are `partial` if they have their computations in all other steps. Raises ProfileError if
    nothing remains.
    """
    file = table.file
    warnings: list[str] = []
    rows = _known_kinds(table, warnings)
    pipelines = _pipelines(rows)
    if gaps := units.listed_gaps(pipelines.dp_ranks.tolist()):
        warnings.append(f"{file}: no operations of dp_rank {gaps}; the results have only the other ranks")
    workers = rows.drop_duplicates(["dp_rank", "stage"])
    ranks = {(int(dp), int(stage)): int(rank) for dp, stage, rank in workers[["dp_rank", "stage", "rank"]].to_numpy()}
    complete = _complete_sequences(pipelines)
    usable = np.where(np.isin(pipelines.sequences, complete), pipelines.sequences, -1)
    common = np.array([_most_common(row) for row in usable])
    equal = (usable == common[:, None]) & (common[:, None] >= 0)
    kept_ranks = equal.mean(0) >= _COMPLETE_SHARE
    incomplete: dict[int, str] = {}  # data-parallel rank -> warning
    for column in np.flatnonzero(~kept_ranks):
        reason = _first_difference(pipelines, ~equal[:, column], [int(column)], ranks)
        incomplete[int(pipelines.dp_ranks[column])] = (
            f"{file}: dp_rank {pipelines.dp_ranks[column]} is left out of the replay: operations are missing in "
            f"{int((~equal[:, column]).sum())} of {len(common)} steps ({reason})"
        )
    kept_steps = equal[:, kept_ranks].all(1) & (common >= 0)
    if not kept_ranks.any() or not kept_steps.any():
        reason = _first_difference(pipelines, ~kept_steps, list(range(len(kept_ranks))), ranks)
        raise ProfileError(f"{file}: no step has all operations of all ranks ({reason}); record whole steps")
    if not kept_steps.all():
        reason = _first_difference(pipelines, ~kept_steps, np.flatnonzero(kept_ranks).tolist(), ranks)
        lost = pipelines.steps[~kept_steps]
        steps = f"{units.count(len(lost), 'step')} ({units.listed(lost)})"
        warnings.append(f"{file}: the replay and the comparison leave out {steps}: {reason}")
    columns = np.flatnonzero(kept_ranks)
    schedules = tuple(
        _schedule(pipelines, np.flatnonzero(kept_steps & (common == sequence)), columns)
        for sequence in dict.fromkeys(common[kept_steps].tolist())
    )
    if not any(operation.kind in (FORWARD, BACKWARD) for operation in schedules[0].operations):
        raise ProfileError(f"{file}: no step has the computations of all ranks; record whole steps")
    replayed = {key: rank for key, rank in ranks.items() if key[0] not in incomplete}
    others = {key: rank for key, rank in ranks.items() if key[0] in incomplete}
    partial = _partial_workers(pipelines, schedules, others)
    for dp_rank, warning in incomplete.items():
        compared = [worker.rank for worker in partial if worker.dp_rank == dp_rank]
        rest = sorted({rank for (own, _), rank in others.items() if own == dp_rank} - set(compared))
        texts = [f"its {_ranks_are(compared)} compared"] if compared else []
        texts += [f"its {_ranks_are(rest)} not compared, because computations are missing"] if rest else []
        warnings.append("; ".join([warning, *texts]))
    return ReplaySelection(schedules, replayed, tuple(warnings), partial)


def _ranks_are(ranks: Sequence[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {units.listed(sorted(ranks))} {'is' if len(ranks) == 1 else 'are'}"


def _partial_workers(
    pipelines: _Pipelines, schedules: Sequence[Schedule], ranks: dict[tuple[int, int], int]
) -> tuple[PartialWorker, ...]:
    """The workers of `ranks` that have the same computations as the schedules, in all their steps."""
    if not ranks:
        return ()
    kinds = pipelines.rows["kind"].astype(str).to_numpy()
    stages, chunks, starts, ends = (pipelines.rows[name].to_numpy() for name in ("stage", "mc", "start", "end"))
    workers = []
    for (dp_rank, stage), rank in ranks.items():
        column = int(np.searchsorted(pipelines.dp_ranks, dp_rank))
        rows_of_worker, seconds, complete = 0, [], True
        for schedule in schedules:
            times = np.full((len(schedule.operations), len(schedule.steps)), np.nan)
            for place, row in enumerate(np.searchsorted(pipelines.steps, schedule.steps)):
                block = int(pipelines.blocks[row, column])
                low, high = (0, 0) if block < 0 else pipelines.bounds[block : block + 2].tolist()
                own = low + np.flatnonzero(stages[low:high] == stage)
                rows_of_worker += len(own)
                for kind in (FORWARD, BACKWARD):
                    numbers = [i for i, op in enumerate(schedule.operations) if (op.kind, op.stage) == (kind, stage)]
                    numbers.sort(key=lambda index: schedule.operations[index].number)
                    computing = own[kinds[own] == kind]
                    expected = [schedule.operations[index].model_chunk for index in numbers]
                    complete &= bool(numbers) and chunks[computing].tolist() == expected
                    if complete:
                        times[numbers, place] = (ends - starts)[computing]
            seconds.append(times)
        if complete:
            workers.append(PartialWorker(dp_rank, stage, rank, rows_of_worker, tuple(seconds)))
    return tuple(workers)


def _known_kinds(table: OperationTable, warnings: list[str]) -> pandas.DataFrame:
    rows = table.rows
    known = rows["kind"].isin((*COMPUTE, *COMMUNICATION))
    if not known.all():
        names = ", ".join(repr(name) for name in rows["kind"][~known].unique())
        warnings.append(f"{table.file}: {int((~known).sum())} operations of unknown kinds are left out: {names}")
    if not (known & rows["kind"].isin((FORWARD, BACKWARD))).any():
        raise ProfileError(f"{table.file}: no {FORWARD} or {BACKWARD} operations to replay")
    return rows[known]


def _pipelines(rows: pandas.DataFrame) -> _Pipelines:
    kinds = np.array([*COMPUTE, *COMMUNICATION])
    code = np.searchsorted(kinds, rows["kind"].astype(str), sorter=np.argsort(kinds))
    code = np.argsort(kinds)[code]
    step, dp_rank, stage = (rows[name].to_numpy() for name in ("step", "dp_rank", "stage"))
    order = np.lexsort((rows["start"], rows["seq_id"], code, stage, dp_rank, step))
    rows, step, dp_rank = rows.iloc[order], step[order], dp_rank[order]
    first = np.flatnonzero(np.diff(step, prepend=-1) | np.diff(dp_rank, prepend=-1))
    bounds = np.append(first, len(rows))
    steps, step_index = np.unique(step[first], return_inverse=True)
    dp_ranks, dp_index = np.unique(dp_rank[first], return_inverse=True)
    signature = np.stack([stage[order], code[order], rows["mc"].to_numpy()], axis=1)
    numbers: dict[bytes, int] = {}
    sequences = np.full((len(steps), len(dp_ranks)), -1)
    blocks = np.full_like(sequences, -1)
    for block, (low, high) in enumerate(pairwise(bounds)):
        place = step_index[block], dp_index[block]
        sequences[place] = numbers.setdefault(signature[low:high].tobytes(), len(numbers))
        blocks[place] = block
    return _Pipelines(rows, bounds, steps, dp_ranks, sequences, blocks)


def _counts(pipelines: _Pipelines, block: int) -> Counter[tuple[int, str]]:
    """Operations by stage and kind."""
    rows = pipelines.rows.iloc[pipelines.bounds[block] : pipelines.bounds[block + 1]]
    return Counter(zip(rows["stage"].tolist(), rows["kind"].tolist(), strict=True))


def _complete_sequences(pipelines: _Pipelines) -> list[int]:
    """The sequences with the kinds of operations that the most common one has; steps may differ in microbatches."""
    flat = pipelines.sequences.ravel()
    numbers, first = np.unique(flat, return_index=True)
    kinds = {
        int(number): set(_counts(pipelines, int(pipelines.blocks.ravel()[index])))
        for number, index in zip(numbers, first, strict=True)
        if number >= 0
    }
    everywhere = max(kinds.values(), key=len)
    largest = [number for number, own_kinds in kinds.items() if own_kinds == everywhere]
    common = _most_common(flat[np.isin(flat, largest)])
    return [number for number, own_kinds in kinds.items() if own_kinds == kinds[common]]


def _most_common(sequences: NDArray[np.int64]) -> int:
    """The most common number that is not negative, the lowest of equally common ones; -1 if there is none."""
    numbers, counts = np.unique(sequences[sequences >= 0], return_counts=True)
    return int(numbers[np.argmax(counts)]) if len(numbers) else -1


def _first_difference(
    pipelines: _Pipelines, steps: NDArray[np.bool_], columns: Sequence[int], ranks: dict[tuple[int, int], int]
) -> str:
    """What the first incomplete pipeline of these steps lacks, compared with the most common sequence of the job."""
    reference = _most_common(pipelines.sequences[np.isin(pipelines.sequences, _complete_sequences(pipelines))])
    expected = _counts(pipelines, int(pipelines.blocks[pipelines.sequences == reference][0]))
    for row in np.flatnonzero(steps):
        for column in columns:
            if pipelines.sequences[row, column] == reference:
                continue
            step, dp_rank = pipelines.steps[row], int(pipelines.dp_ranks[column])
            if (block := int(pipelines.blocks[row, column])) < 0:
                return f"step {step} has no operations of dp_rank {dp_rank}"
            counts = _counts(pipelines, block)
            for stage, kind in sorted({*expected, *counts}):
                if counts[stage, kind] != expected[stage, kind]:
                    rank = ranks.get((dp_rank, stage))
                    worker = f"stage {stage} of dp_rank {dp_rank}" if rank is None else f"rank {rank}"
                    return (
                        f"in step {step}, {worker} has {counts[stage, kind]} {kind} operations, "
                        f"{expected[stage, kind]} expected"
                    )
            return f"in step {step}, dp_rank {dp_rank} has other model chunks"
    return "the steps differ in their operations"


def _schedule(pipelines: _Pipelines, steps: NDArray[np.intp], columns: NDArray[np.intp]) -> Schedule:
    blocks = pipelines.blocks[np.ix_(steps, columns)]
    lows = pipelines.bounds[blocks]
    length = int(pipelines.bounds[blocks[0, 0] + 1] - lows[0, 0])
    index = lows[None] + np.arange(length)[:, None, None]
    starts, ends = (pipelines.rows[name].to_numpy()[index] for name in ("start", "end"))
    first = pipelines.rows.iloc[index[:, 0, 0]]
    counts: Counter[tuple[str, int]] = Counter()
    operations = []
    numbers = first[["stage", "mc", "mb_id", "gmc"]].to_numpy().tolist()
    for kind, (stage, *place) in zip(first["kind"].astype(str), numbers, strict=True):
        operations.append(PipelineOperation(kind, stage, counts[kind, stage], *place))
        counts[kind, stage] += 1
    # The order of computations on a worker, by their mean start: the same for all steps and data-parallel ranks.
    mean_starts = starts.mean((1, 2))
    computing = [operation.kind in (FORWARD, BACKWARD) for operation in operations]
    order = np.lexsort((np.where(computing, mean_starts, 0), ~np.array(computing), first["stage"]))
    return Schedule(
        tuple(operations[index] for index in order),
        pipelines.steps[steps],
        pipelines.dp_ranks[columns],
        starts[order],
        ends[order],
    )
