"""The times of an engine's steps between a few that are evaluated, for the simulation of a service.

Steps are evaluated on a grid: batches, three lengths of the cache, and numbers of prompt tokens, all with the code of
an estimate as arrays. Between these, times are interpolated linearly. A step with prompt tokens takes

    t(b, P) + k(b, P) (A - A(P)) + t(b, 0, c) - t(b, 0, mean c)

P: prompt tokens, A: their query-key pairs, in which the time of their attention is linear (k is its slope, from two
evaluations); c: the mean context of the b decodes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from roofmodel.counting.workload import PromptChunk
from roofmodel.plan.speculation import Speculation, generation_times
from roofmodel.plan.step_times import Array, ServingReplica, StepTimes

KINDS = ("seconds", "low", "high", "bound")
"""The times of a step: expected, with its interval, and the bound."""


class PromptShape(NamedTuple):
    """Prompt tokens of a step: `prompts` equal chunks of `tokens`, each after `context` cached tokens."""

    prompts: int
    tokens: int
    context: int

    @property
    def total(self) -> int:
        """Prompt tokens of the step."""
        return self.prompts * self.tokens

    @property
    def pairs(self) -> float:
        """Query-key pairs."""
        return self.total * (self.context + self.tokens / 2)


class StepTable:
    """Evaluated steps of a microbatch, and its time in between."""

    def __init__(
        self, served: ServingReplica, speculation: Speculation | None, largest: int, lengths: tuple[int, int, int],
        budget: int,
    ) -> None:  # fmt: skip
        """The steps of up to `largest` sequences; `lengths`: prompt tokens that are computed, those in the prefix
        cache, and new tokens. `budget`: prompt tokens of a step at most."""
        computed, cached, osl = lengths
        self.batches = batches(largest)
        self.contexts = [computed + cached + part * osl // 2 for part in range(3)]
        self.shapes = shapes(computed, cached, budget)
        tokens = [shape.total for shape in self.shapes]
        sizes = np.array(self.batches)
        every = [generation_times(served, speculation, context, sizes) for context in self.contexts]
        chunk = PromptChunk(*np.array(self.shapes).T)
        longer = chunk._replace(context=chunk.context + computed)
        own = [shape.pairs for shape in self.shapes]
        further = [shape.total * computed for shape in self.shapes]
        self._tables = dict[str, _StepTimes]()
        mixed, apart = every[1].mixed, every[1].prompts
        evaluated = [mixed(chunk), mixed(longer), *map(_pipelined, (apart(chunk), apart(longer)))]
        self.host = served.work.engine.host
        for kind in KINDS:
            at_contexts = np.array([_of(each.decode, kind, sizes.shape) for each in every]).T
            with_decodes, with_pairs = (_of(each, kind, (len(sizes), len(tokens))) for each in evaluated[:2])
            alone, alone_with_pairs = (_of(each, kind, (len(tokens),)) for each in evaluated[2:])
            rows = np.concatenate((alone[None, :], with_decodes))
            slopes = (np.concatenate((alone_with_pairs[None, :], with_pairs)) - rows) / np.array(further)
            self._tables[kind] = _StepTimes(self.batches, self.contexts, tokens, own, at_contexts, rows, slopes)

    def of(self, kind: str) -> _StepTimes:
        """The times of a kind as a function: see `simulation.StepSeconds`."""
        return self._tables[kind]


def _pipelined(prefill: StepTimes) -> StepTimes:
    """The step of a prefill that others precede and follow, without the time in which a pipeline fills and empties."""
    busy = 1 - prefill.idle / prefill.seconds
    return prefill._replace(**{kind: getattr(prefill, kind) * busy for kind in KINDS})


def _of(times: StepTimes, kind: str, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(getattr(times, kind), shape)


def batches(largest: int) -> list[int]:
    """Batches that are evaluated: four in each doubling."""
    sizes = {1, largest}
    size = 2.0
    while size < largest:
        sizes.add(int(size))
        size *= 2**0.25
    return sorted(sizes)


def shapes(computed: int, cached: int, budget: int) -> list[PromptShape]:
    """Prompt tokens that are evaluated: parts of a prompt, whole prompts, and as many as a step takes."""
    largest = min(computed, budget)
    parts = sorted({max(1, largest // part) for part in (64, 16, 4, 2, 1)})
    found = [PromptShape(1, tokens, cached + (computed - tokens) // 2) for tokens in parts]
    prompts = 2
    while prompts * computed <= budget:
        found.append(PromptShape(prompts, computed, cached))
        prompts *= 2
    if computed < budget:
        prompts = -(-budget // computed)
        found.append(PromptShape(prompts, budget // prompts, cached))
    return [*{shape.total: shape for shape in sorted(found, key=lambda shape: shape.total)}.values()]


class _StepTimes:
    """The times of one kind, in seconds. Rows of prompt tokens are for no decodes, then for each batch."""

    def __init__(
        self, batches: Sequence[int], contexts: Sequence[int], tokens: Sequence[int], pairs: Sequence[float],
        decode: Array, prompts: Array, slopes: Array,
    ) -> None:  # fmt: skip
        self.batches, self.contexts, self.tokens, self.pairs = [0, *batches], contexts, tokens, pairs
        self.decode, self.prompts, self.slopes = decode.tolist(), prompts.tolist(), slopes.tolist()
        self.rows: dict[int, tuple[list[float], list[float], list[float]]] = {}

    def __call__(self, decodes: int, context: float, tokens: int, pairs: float) -> float:
        """Seconds of a step."""
        row = self.rows.get(decodes)
        if row is None:
            row = self.rows[decodes] = self._row(decodes)
        decode, prompts, slopes = row
        seconds = _between(self.contexts, decode, context) if decodes else 0.0
        if not tokens:
            return seconds
        mean = decode[1] if decodes else 0.0
        with_prompts = _between(self.tokens, prompts, tokens)
        further = pairs - _between(self.tokens, self.pairs, tokens)
        return with_prompts + _between(self.tokens, slopes, tokens) * further + seconds - mean

    def _row(self, decodes: int) -> tuple[list[float], list[float], list[float]]:
        """The rows of a batch, between those of the two nearest evaluated ones."""
        if not decodes:
            return [0.0] * len(self.contexts), self.prompts[0], self.slopes[0]
        low = max(1, min(bisect_right(self.batches, decodes), len(self.batches) - 1) - 1)
        high = min(low + 1, len(self.batches) - 1)
        span = self.batches[high] - self.batches[low]
        part = (decodes - self.batches[low]) / span if span else 0.0

        def mixed(of_low: list[float], of_high: list[float]) -> list[float]:
            return [a + part * (b - a) for a, b in zip(of_low, of_high, strict=True)]

        return (
            mixed(self.decode[low - 1], self.decode[high - 1]), mixed(self.prompts[low], self.prompts[high]),
            mixed(self.slopes[low], self.slopes[high]),
        )  # fmt: skip


def _between(points: Sequence[float], values: Sequence[float], point: float) -> float:
    """The value at a point, linear between those of the two nearest ones and beyond the last two; the first value below
    the first point."""
    if len(points) == 1 or point <= points[0]:
        return values[0]
    high = min(bisect_right(points, point), len(points) - 1)
    low = high - 1
    return values[low] + (values[high] - values[low]) * (point - points[low]) / (points[high] - points[low])
