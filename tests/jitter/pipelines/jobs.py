"""Simulated pipeline-parallel training jobs, independent of the replay: starts rise until all dependencies hold."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pandas

from roofmodel.jitter.pipelines.schedules import select
from roofmodel.jitter.pipelines.what_if import Replay, replay_selection
from roofmodel.profiles.operation_table import COLUMNS, OperationTable, read_operations

Key = tuple[int, int, str, int]  # data-parallel rank, stage, kind, index within the kind
Seconds = Callable[[Key, int], float]  # seconds of an operation in a step


def compute_order(stage: int, stages: int, chunks: int, microbatches: int) -> list[tuple[str, int, int]]:
    """(direction, model chunk, microbatch) in order: 1F1B, or Megatron's interleaved schedule for several chunks."""
    total = chunks * microbatches
    if chunks == 1:
        warm_up = min(stages - stage - 1, total)
        virtual = [(0, k) for k in range(total)]
    else:
        assert microbatches % stages == 0
        warm_up = min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)
        virtual = [
            (k % (stages * chunks) // stages, k // (stages * chunks) * stages + k % stages) for k in range(total)
        ]
    forward = [("forward", chunk, microbatch) for chunk, microbatch in virtual]
    backward = [("backward", chunks - 1 - chunk, microbatch) for chunk, microbatch in virtual]
    steady = [each for pair in zip(forward[warm_up:], backward, strict=False) for each in pair]
    return [*forward[:warm_up], *steady, *backward[total - warm_up :]]


def job(
    seconds: Seconds, *, dp: int = 1, stages: int = 2, chunks: int = 1, microbatches: int = 2, steps: int = 1,
    recorded_edges: bool = False, tail: bool = True,
) -> pandas.DataFrame:  # fmt: skip
    """The rows of a job. `recorded_edges` adds sends and receives at both ends of the model, which transfer nothing."""
    rows = []
    for step in range(steps):
        rows += _step(seconds, step, dp, stages, chunks, microbatches, recorded_edges, tail)
    table = pandas.DataFrame(rows, columns=list(COLUMNS))
    return table.astype({"optype": "category"})


def _step(
    seconds: Seconds, step: int, dp: int, stages: int, chunks: int, microbatches: int, recorded_edges: bool, tail: bool
) -> list[tuple[object, ...]]:
    waits: dict[Key, list[Key]] = {}
    groups: list[list[Key]] = []
    place: dict[Key, tuple[int, int, int]] = {}
    transfers: dict[tuple[int, str, int, int], dict[str, Key]] = {}
    last_chunk = stages * chunks - 1
    shared: dict[tuple[int, str], list[Key]] = {}
    for d in range(dp):
        ends: list[Key] = []
        for s in range(stages):
            count: dict[str, int] = {}
            last: dict[str, Key] = {}

            def add(
                kind: str, after: list[Key], d: int = d, s: int = s,
                count: dict[str, int] = count, last: dict[str, Key] = last,
            ) -> Key:  # fmt: skip
                key = (d, s, kind, count.get(kind, 0))
                count[kind] = key[3] + 1
                stream = "compute" if kind.endswith("compute") else kind
                waits[key] = [*after, *([last[stream]] if stream in last else [])]
                last[stream] = key
                return key

            gather = add("params-all-gather", []) if tail else None
            if gather:
                place[gather] = (0, -1, -1)
                shared.setdefault((s, "parameters"), []).append(gather)
            previous: dict[str, Key] = {}
            for direction, chunk, microbatch in compute_order(s, stages, chunks, microbatches):
                model_chunk = chunk * stages + s
                source = model_chunk - 1 if direction == "forward" else model_chunk + 1
                target = model_chunk + 1 if direction == "forward" else model_chunk - 1
                after = [gather] if gather and direction == "forward" and direction not in previous else []
                posted = [previous[direction]] if direction in previous else []
                if 0 <= source <= last_chunk or recorded_edges:
                    received = add(f"{direction}-recv", posted)
                    after = [*after, received]
                    if 0 <= source <= last_chunk:
                        transfers.setdefault((d, direction, model_chunk, microbatch), {})["recv"] = received
                    else:
                        groups.append([received])
                compute = add(f"{direction}-compute", after)
                place[compute] = (chunk, microbatch, model_chunk)
                previous[direction] = compute
                if 0 <= target <= last_chunk or recorded_edges:
                    sent = add(f"{direction}-send", [compute])
                    if 0 <= target <= last_chunk:
                        transfers.setdefault((d, direction, target, microbatch), {})["send"] = sent
                    else:
                        groups.append([sent])
            if tail:
                end = add("gc", [last["compute"]])
                end = add("layernorm-grads-all-reduce", [end])
                if s in (0, stages - 1):
                    end = add("embedding-grads-all-reduce", [end])
                    ends.append(end)
                end = add("grads-reduce-scatter", [end])
                place[end] = (0, -1, -1)
                shared.setdefault((s, "gradients"), []).append(end)
                end = add("optimizer-clip-main-grad", [end])
                shared.setdefault((-1, "clip"), []).append(end)
                add("optimizer", [end])
        if ends:
            groups.append(ends)
    groups += shared.values()  # all data-parallel ranks; for gradient clipping, also all stages
    groups += [list(pair.values()) for pair in transfers.values()]
    group_of = {key: group for group in groups for key in group}
    start = dict.fromkeys(waits, 0.0)
    end_of = {key: seconds(key, step) for key in waits}
    changed = True
    while changed:
        changed = False
        for key, before in waits.items():
            start[key] = max((end_of[each] for each in before), default=0.0)
            finish = max(start[each] for each in group_of.get(key, [key])) + seconds(key, step)
            changed |= finish > end_of[key]
            end_of[key] = max(finish, end_of[key])
    return [
        (key[0], key[1], key[1] * dp + key[0], step, key[2], start[key], end_of[key] - start[key], key[3],
         *place.get(key, (-1, -1, -1)))
        for key in waits
    ]  # fmt: skip


def random_seconds(seed: int) -> Seconds:
    """Random times between 10 and 100 ms, one for each operation and step."""

    def seconds(key: Key, step: int) -> float:
        return random.Random(f"{seed} {key} {step}").uniform(0.01, 0.1)

    return seconds


def written(folder: Path, rows: pandas.DataFrame, name: str = "job.parquet") -> Path:
    """Write a file with these rows; return its path."""
    path = folder / name
    rows.to_parquet(path, index=False)
    return path


def table(folder: Path, rows: pandas.DataFrame) -> OperationTable:
    """The rows, written and read."""
    return read_operations(written(folder, rows))


def rebuilt(operations: OperationTable) -> Replay:
    """The replay of a table of operations."""
    return replay_selection(operations.file, select(operations))
