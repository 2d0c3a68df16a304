"""Alignment of launched kernels with the operators of repeated passes, by dynamic programming.

Needleman and Wunsch, J. Mol. Biol. 48, 1970, over a pattern that repeats (wraparound alignment: Fischetti et al.,
Information Processing Letters 46, 1993). The alignment finds the number of passes in a file, where each begins, and
which pattern (prefill or decode) it follows. An item may take several consecutive operators (a fused kernel), an
operator may take several items (split K), and either may stay unmatched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

NEVER = 1e6
WITHIN = 2.0  # cost of a file that begins or ends inside a pass

_EXTRA, _ALONE = 0, -1  # moves; n > 0 takes a run of n operators


class Costs(NamedTuple):
    """Costs of pairing one item with each operator of the concatenated patterns; NEVER for impossible pairs.

    `runs[n - 1][p]`: taking operators p to p + n - 1 together. `extra[p]`: being a further kernel of operator p.
    `alone`: staying unmatched.
    """

    runs: Sequence[np.ndarray]
    extra: np.ndarray
    alone: float


class Pair(NamedTuple):
    """An item and its operators; no operators if it stays unmatched."""

    item: int
    step: int  # which pass, counted from 0
    pattern: int
    operators: tuple[int, ...]  # places in its pattern
    extra: bool = False  # a further kernel of an operator that already has one


class Alignment(NamedTuple):
    """One pair per item, and the total cost."""

    pairs: list[Pair]
    cost: float


def align(
    items: int, costs: Callable[[int], Costs], lengths: Sequence[int], skips: np.ndarray, repeats: bool = True
) -> Alignment:
    """The cheapest pairing of `items` items with passes over patterns of these lengths; one pass unless `repeats`.

    `skips` is the cost of leaving each operator of the patterns unmatched; `costs(i)` are those of item i.
    """
    import numpy as np

    track = _Track(lengths, skips, repeats)
    best = np.full(track.size, WITHIN if repeats else np.inf)
    best[track.starts] = 0.0
    best, _ = track.skipped(best)
    moves = np.empty((items, track.size), np.int8)
    origins = np.empty((items, track.size), np.int32)
    for i in range(items):
        cost = costs(i)
        reached = best + cost.alone
        move = np.full(track.size, _ALONE, np.int8)
        for n, run in enumerate(cost.runs, 1):
            found = np.full(track.size, np.inf)
            found[track.after(n)] = best[track.before(n)] + track.run(run, n)
            better = found < reached
            reached, move = np.where(better, found, reached), np.where(better, n, move).astype(np.int8)
        found = np.full(track.size, np.inf)
        found[track.after(1)] = best[track.after(1)] + cost.extra
        better = found < reached
        reached, move = np.where(better, found, reached), np.where(better, _EXTRA, move).astype(np.int8)
        moves[i] = move
        best, origins[i] = track.skipped(reached)
    if repeats:
        best += WITHIN
        best[[*track.starts, *track.ends]] -= WITHIN
    else:
        best[: track.ends[0]] = np.inf
    last = int(np.argmin(best))
    return Alignment(track.path(last, moves, origins), float(best[last]))


class _Track:
    """The states between operators of all patterns. Any pattern may follow the end of a pattern."""

    def __init__(self, lengths: Sequence[int], skips: np.ndarray, repeats: bool) -> None:
        import numpy as np

        self.lengths, self.repeats = tuple(lengths), repeats
        self.size = sum(lengths) + len(lengths)
        self.starts = np.cumsum([0, *(n + 1 for n in lengths[:-1])])
        self.ends = self.starts + np.array(lengths)
        self.paid, first = [], 0  # cost of skipping all operators up to a state
        for n in lengths:
            self.paid.append(np.concatenate([[0.0], np.cumsum(skips[first : first + n])]))
            first += n
        self._np = np
        self._before: dict[int, np.ndarray] = {}
        self._within: dict[int, np.ndarray] = {}

    def before(self, n: int) -> np.ndarray:
        """The states before a run of n operators, for all patterns."""
        if n not in self._before:
            parts = [self._np.arange(s, s + max(0, k - n + 1)) for s, k in zip(self.starts, self.lengths, strict=True)]
            self._before[n] = self._np.concatenate(parts)
        found: np.ndarray = self._before[n]
        return found

    def after(self, n: int) -> np.ndarray:
        """The states after a run of n operators."""
        return self.before(n) + n

    def run(self, cost: np.ndarray, n: int) -> np.ndarray:
        """The costs of runs of n operators that stay within their pattern."""
        if n not in self._within:
            firsts = self._np.cumsum([0, *self.lengths[:-1]])
            parts = [self._np.arange(f, f + max(0, k - n + 1)) for f, k in zip(firsts, self.lengths, strict=True)]
            self._within[n] = self._np.concatenate(parts)
        found: np.ndarray = cost[self._within[n]]
        return found

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
        for start, end, paid in zip(self.starts, self.ends, self.paid, strict=True):
            part = slice(start, end + 1)
            bare = best[part] - paid
            least = np.minimum.accumulate(bare)
            where = np.maximum.accumulate(np.where(bare <= least, np.arange(len(bare)), 0))
            best[part] = least + paid
            origin[part] = origin[part][where]

    def path(self, state: int, moves: np.ndarray, origins: np.ndarray) -> list[Pair]:
        """The pairs on the cheapest path, traced back from the last state."""
        found, back = [], 0
        for i in range(len(moves) - 1, -1, -1):
            came = int(origins[i][state])
            pattern, new = self._pattern(came), self._pattern(state)
            if pattern != new or came > state:
                back += 1
            move = int(moves[i][came])
            place = came - int(self.starts[pattern])
            taken = tuple(range(place - max(move, 1), place)) if move != _ALONE else ()
            found.append(Pair(i, back, pattern, taken, move == _EXTRA))
            state = came - max(move, 0)
        return [pair._replace(step=back - pair.step) for pair in reversed(found)]

    def _pattern(self, state: int) -> int:
        return int(self._np.searchsorted(self.starts, state, side="right")) - 1
