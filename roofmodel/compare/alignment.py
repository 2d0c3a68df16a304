"""Alignment of launched kernels with the operators of repeated passes, by dynamic programming.

Needleman and Wunsch, J. Mol. Biol. 48, 1970, over a pattern that repeats (wraparound alignment: Fischetti et al.,
Information Processing Letters 46, 1993). The alignment finds the number of passes in a file, where each begins, and
which pattern (prefill or decode) it follows. An item may take several consecutive operators (a fused kernel), an
operator may take several items (split K), and either may stay unmatched. Libraries for sequences (Biopython, parasail)
pair one item with one, by a fixed table of costs, and have no pattern that repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

IMPOSSIBLE = 1e6
PARTIAL_PASS = 2.0  # cost of a file that begins or ends inside a pass

_EXTRA, _UNMATCHED = 0, -1  # moves; n > 0 takes a run of n operators


class PairingCosts(NamedTuple):
    """Costs of pairing one item with each operator of the concatenated patterns; IMPOSSIBLE if they cannot be a pair.

    `runs[n - 1][p]`: taking operators p to p + n - 1 together. `extra[p]`: being a further kernel of operator p.
    `unmatched`: staying unmatched.
    """

    runs: Sequence[np.ndarray]
    extra: np.ndarray
    unmatched: float


class AlignedItem(NamedTuple):
    """An item and its operators; no operators if it stays unmatched."""

    item: int
    step: int  # which pass, counted from 0
    pattern: int
    operators: tuple[int, ...]  # places in its pattern
    extra: bool = False  # a further kernel of an operator that already has one


class OperatorAlignment(NamedTuple):
    """One pair per item, and the total cost."""

    pairs: list[AlignedItem]
    cost: float


def align(
    items: int, costs: Callable[[int], PairingCosts], lengths: Sequence[int], skips: np.ndarray, repeats: bool = True
) -> OperatorAlignment:
    """The cheapest pairing of `items` items with passes over patterns of these lengths; one pass unless `repeats`.

    `skips` is the cost of leaving each operator of the patterns unmatched; `costs(i)` are the costs of item i.
    """
    import numpy as np

    states = _States(lengths, skips, repeats)
    best = np.full(states.size, PARTIAL_PASS if repeats else np.inf)
    best[states.starts] = 0.0
    best, _ = states.skipped(best)
    moves = np.empty((items, states.size), np.int8)
    origins = np.empty((items, states.size), np.int32)
    for i in range(items):
        cost = costs(i)
        reached = best + cost.unmatched
        move = np.full(states.size, _UNMATCHED, np.int8)
        for n, run in enumerate(cost.runs, 1):
            candidate = np.full(states.size, np.inf)
            candidate[states.after(n)] = best[states.before(n)] + states.run(run, n)
            better = candidate < reached
            reached, move = np.where(better, candidate, reached), np.where(better, n, move).astype(np.int8)
        candidate = np.full(states.size, np.inf)
        candidate[states.after(1)] = best[states.after(1)] + cost.extra
        better = candidate < reached
        reached, move = np.where(better, candidate, reached), np.where(better, _EXTRA, move).astype(np.int8)
        moves[i] = move
        best, origins[i] = states.skipped(reached)
    if repeats:
        best += PARTIAL_PASS
        best[[*states.starts, *states.ends]] -= PARTIAL_PASS
    else:
        best[: states.ends[0]] = np.inf
    last = int(np.argmin(best))
    return OperatorAlignment(states.path(last, moves, origins), float(best[last]))


class _States:
    """The states between operators of all patterns. Any pattern may follow the end of a pattern."""

    def __init__(self, lengths: Sequence[int], skips: np.ndarray, repeats: bool) -> None:
        import numpy as np

        self.lengths, self.repeats = tuple(lengths), repeats
        self.size = sum(lengths) + len(lengths)
        self.starts = np.cumsum([0, *(n + 1 for n in lengths[:-1])])
        self.ends = self.starts + np.array(lengths)
        self.skip_costs, anchor = [], 0  # cost of skipping all operators up to a state
        for n in lengths:
            self.skip_costs.append(np.concatenate([[0.0], np.cumsum(skips[anchor : anchor + n])]))
            anchor += n
        self._np = np
        self._before: dict[int, np.ndarray] = {}
        self._within: dict[int, np.ndarray] = {}

    def before(self, n: int) -> np.ndarray:
        """The states before a run of n operators, for all patterns."""
        if n not in self._before:
            parts = [self._np.arange(s, s + max(0, k - n + 1)) for s, k in zip(self.starts, self.lengths, strict=True)]
            self._before[n] = self._np.concatenate(parts)
        states: np.ndarray = self._before[n]
        return states

    def after(self, n: int) -> np.ndarray:
        """The states after a run of n operators."""
        return self.before(n) + n

    def run(self, cost: np.ndarray, n: int) -> np.ndarray:
        """The costs of runs of n operators that stay within their pattern."""
        if n not in self._within:
            firsts = self._np.cumsum([0, *self.lengths[:-1]])
            parts = [self._np.arange(f, f + max(0, k - n + 1)) for f, k in zip(firsts, self.lengths, strict=True)]
            self._within[n] = self._np.concatenate(parts)
        run_costs: np.ndarray = cost[self._within[n]]
        return run_costs

    def skipped(self, reached: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lowest cost of each state if operators may be skipped, and the state it is reached from."""
        best, origin = reached.copy(), self._np.arange(self.size, dtype=self._np.int32)
        self._forward(best, origin)
        if not self.repeats:
            return best, origin
        end = self.ends[int(self._np.argmin(best[self.ends]))]
        for start in self.starts:  # one pass ends, the next begins
            if best[end] < best[start]:
                best[start], origin[start] = best[end], origin[end]
        self._forward(best, origin)
        return best, origin

    def _forward(self, best: np.ndarray, origin: np.ndarray) -> None:
        np = self._np
        for start, end, skip_cost in zip(self.starts, self.ends, self.skip_costs, strict=True):
            part = slice(start, end + 1)
            before_skips = best[part] - skip_cost
            lowest = np.minimum.accumulate(before_skips)
            source = np.maximum.accumulate(np.where(before_skips <= lowest, np.arange(len(before_skips)), 0))
            best[part] = lowest + skip_cost
            origin[part] = origin[part][source]

    def path(self, state: int, moves: np.ndarray, origins: np.ndarray) -> list[AlignedItem]:
        """The pairs on the cheapest path, traced back from the last state."""
        pairs, passes_back = [], 0
        for i in range(len(moves) - 1, -1, -1):
            previous = int(origins[i][state])
            pattern, new_pattern = self._pattern(previous), self._pattern(state)
            if pattern != new_pattern or previous > state:
                passes_back += 1
            move = int(moves[i][previous])
            place = previous - int(self.starts[pattern])
            operators = tuple(range(place - max(move, 1), place)) if move != _UNMATCHED else ()
            pairs.append(AlignedItem(i, passes_back, pattern, operators, move == _EXTRA))
            state = previous - max(move, 0)
        return [pair._replace(step=passes_back - pair.step) for pair in reversed(pairs)]

    def _pattern(self, state: int) -> int:
        return int(self._np.searchsorted(self.starts, state, side="right")) - 1
