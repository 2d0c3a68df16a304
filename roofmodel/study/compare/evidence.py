"""Cost of matching a kernel with an operator, from its kind, FLOPs, time and shapes and the ranges around its launch.

The unit is the cost of an operator without a kernel. The values need not be exact: the order decides most matches, and
the costs decide between matches that the order allows (one kernel for gate and up, or for Q, K and V?).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from roofmodel.study.compare.alignment import NEVER, Costs, Pair
from roofmodel.study.compare.naming import Hint, of_experts
from roofmodel.study.compare.sequence import Occurrence

if TYPE_CHECKING:
    import numpy as np

    from roofmodel.study.compare.kernel_groups import KernelGroup

ALONE = 1.5  # an anchor kernel without an operator
LONGEST_RUN = 6  # operators of one kernel: Q, K and V, or their gradients

# Kind of kernel -> kind of operator -> cost of the match. Fused attention may be two GEMMs, a convolution may run as a
# GEMM, and the blocks of a scan are GEMMs.
KIND_COST = {
    "matrix product": {"matrix product": 0.0, "convolution": 0.5, "scan": 0.9},
    "attention": {"attention": 0.0, "bmm": 0.3},
    "convolution": {"convolution": 0.0},
    "scan": {"scan": 0.0, "bmm": 0.3},
}
# Cost of a further kernel of one operator: common for attention and experts, rare for a plain GEMM.
FURTHER_KERNEL = {"attention": 0.5, "grouped_gemm": 0.1, "scan": 0.3, "bmm": 0.6}
RARE_FURTHER_KERNEL = 1.0
FUSED = 0.05  # per additional operator of a fused kernel

TELLING = frozenset({"norm", "activation", "rotary", "gather", "routing", "softmax"})
"""Light work with one position in a layer or pass, which identifies the anchor after it."""
OUT_OF_PLACE = 0.25  # such work before an anchor that has none
MISSING = 0.1  # no such work before an anchor that has some: it may be fused

_PLACES = {"attention": "attention", "cross attention": "attention", "mlp": "mlp", "embedding": "embedding"}
_PLACES |= {"head": "head"}


class Anchors:
    """The anchors of all phases as arrays, and the cost of matching each with a kernel."""

    def __init__(self, sequences: Sequence[Sequence[Occurrence]], phases: Sequence[str]) -> None:
        import numpy as np

        self.sequences, self.phases = sequences, phases
        self._where = [  # anchor of a phase -> place in its sequence
            [place for place, occurrence in enumerate(sequence) if occurrence.anchor] for sequence in sequences
        ]
        self.lengths = [len(places) for places in self._where]
        self.size = sum(self.lengths)
        self.skips = np.ones(self.size)
        listed = [(phase, sequences[phase][p]) for phase, places in enumerate(self._where) for p in places]
        self._listed = listed
        self._weights = np.array([_weight(o) for _, o in listed])
        self._flops = np.array([float(o.placed.placement.cost.matmul_flops) for _, o in listed])
        self._seconds = np.array([o.seconds for _, o in listed])
        self._bounds = np.array([float(o.placed.placement.bound_seconds) for _, o in listed])
        slots = [(phase, o.layer, o.slot, o.placed.operator.stage) for phase, o in listed]
        self._slots = slots
        self._together = [
            np.array([len(set(slots[p : p + n])) == 1 and p + n <= len(slots) for p in range(len(slots))])
            for n in range(1, LONGEST_RUN + 1)
        ]
        while len(self._together) > 1 and not self._together[-1].any():
            self._together.pop()
        self._allowed: dict[Hint, np.ndarray] = {}
        self._ahead = [ahead for phase, places in enumerate(self._where) for ahead in _ahead(sequences[phase], places)]
        self._networks = any(o.placed.operator.group.startswith("stage") for _, o in listed)

    # --- Costs --------------------------------------------------------------------------------------

    def means(self, items: Sequence[KernelGroup]) -> Callable[[KernelGroup, frozenset[str]], Costs]:
        """A function from an item and the light work before it to costs; launches of one kernel use their mean time."""
        times: dict[object, list[float]] = {}
        for item in items:
            times.setdefault(_alike(item), []).append(item.seconds or 0.0)
        mean = {key: sum(each) / len(each) for key, each in times.items()}
        known: dict[object, Costs] = {}

        def costs(item: KernelGroup, before: frozenset[str]) -> Costs:
            key = _alike(item), item.hint, before
            if key not in known:
                known[key] = self._costs(item, mean[key[0]], before)
            return known[key]

        return costs

    def _costs(self, item: KernelGroup, seconds: float, before: frozenset[str]) -> Costs:
        import numpy as np

        kinds = KIND_COST[item.kind or "matrix product"]
        unlike = np.array([_lookup(kinds, o, NEVER) for _, o in self._listed])
        unlike = np.where(self.allowed(item.hint), unlike, NEVER)
        unlike += np.array([0.0 if agrees(item.direction, o) else 1.0 for _, o in self._listed])
        if of_experts(item.kernels[0].name):
            unlike += np.array([0.0 if o.placed.operator.kind == "grouped_gemm" else 1.0 for _, o in self._listed])
        placed = np.array([OUT_OF_PLACE * len(before - ahead) + MISSING * len(ahead - before) for ahead in self._ahead])
        runs = []
        for n, together in enumerate(self._together, 1):
            worst = np.max([_shifted(unlike, i, NEVER) for i in range(n)], axis=0)
            weights, flops, expected, bound = (
                np.sum([_shifted(a, i, 0.0) for i in range(n)], axis=0)
                for a in (self._weights, self._flops, self._seconds, self._bounds)
            )
            cost = self._size(item, flops) + self._time(seconds, expected, bound) + _shape(item, weights)
            runs.append(np.where(together, worst + placed + FUSED * (n - 1) + cost, NEVER))
        further = np.array([_lookup(FURTHER_KERNEL, o, RARE_FURTHER_KERNEL) for _, o in self._listed])
        return Costs(runs, np.where(unlike >= NEVER, NEVER, further + OUT_OF_PLACE * len(before)), ALONE)

    def _size(self, item: KernelGroup, flops: np.ndarray) -> np.ndarray:
        """Cost of a difference between measured and counted FLOPs; small, because padding may double them."""
        import numpy as np

        if not item.flops or item.kind == "attention":
            return np.zeros(len(flops))
        off: np.ndarray = np.abs(np.log2(item.flops / np.maximum(flops, 1.0)))
        return np.minimum(0.3, 0.1 * off, dtype=float)

    def _time(self, seconds: float, expected: np.ndarray, bound: np.ndarray) -> np.ndarray:
        """Cost of a difference in time; small, because the given workload may be wrong."""
        import numpy as np

        if not seconds:
            return np.zeros(len(bound))
        off = np.abs(np.log2(seconds / np.maximum(expected, 1e-12)))
        against: np.ndarray = np.minimum(0.2, 0.05 * off) + np.where(seconds < 0.8 * bound, 0.1, 0.0)
        return against

    def allowed(self, said: Hint) -> np.ndarray:
        """Which anchors the ranges around a launch allow; all if they allow none."""
        import numpy as np

        if said not in self._allowed:
            fits = np.array([self._fits(said, phase, o) for phase, o in self._listed], dtype=bool)
            self._allowed[said] = fits if fits.any() else np.ones(self.size, dtype=bool)
        found: np.ndarray = self._allowed[said]
        return found

    def _fits(self, said: Hint, phase: int, occurrence: Occurrence) -> bool:
        operator = occurrence.placed.operator
        place = _PLACES.get(operator.group.removeprefix("encoder "))
        if said.layer is not None and said.layer != occurrence.layer and not self._networks:
            return False
        if said.place and place and said.place != place:
            return False
        if said.roles and not said.roles & _roles(occurrence):
            return False
        if said.stage in ("forward", "backward", "optimizer"):
            return operator.stage in ("", said.stage, "recomputation")
        return not said.stage or self.phases[phase] not in ("prefill", "decode") or said.stage == self.phases[phase]

    # --- Places -------------------------------------------------------------------------------------

    def places(self, pair: Pair) -> tuple[int, ...]:
        """The operators of a pair as places in the sequence of its phase."""
        return tuple(self._where[pair.pattern][anchor] for anchor in pair.operators)

    def same_slot(self, one: Pair, other: Pair) -> bool:
        """Whether two pairs have operators of one pass and slot."""
        first = [sum(self.lengths[: pair.pattern]) + pair.operators[0] for pair in (one, other)]
        return one.step == other.step and self._slots[first[0]] == self._slots[first[1]]

    def is_attention(self, pair: Pair) -> bool:
        """Whether a pair is fused attention."""
        return self.sequences[pair.pattern][self.places(pair)[0]].work == "attention"

    def allows(self, pair: Pair, said: Hint) -> bool:
        """Whether ranges allow the first operator of a pair."""
        return self._fits(said, pair.pattern, self.sequences[pair.pattern][self.places(pair)[0]])

    def permits(self, item: KernelGroup, phase: int, place: int) -> bool:
        """Whether an item's ranges and name allow an operator of a sequence."""
        occurrence = self.sequences[phase][place]
        return agrees(item.direction, occurrence) and self._fits(item.hint, phase, occurrence)

    def light(self, one: Pair | None, other: Pair | None) -> tuple[tuple[int, int, int], ...]:
        """The light operators from the slot of one pair up to the next pair's: step, phase, place in its sequence."""
        if one is None:
            assert other is not None
            end = self.places(other)[0]
            before = [a for a in self._where[other.pattern] if a < end]
            return self._between(other, before[-1] if before else 0, end)
        begin = self.places(one)[0]
        whole = len(self.sequences[one.pattern])
        if other is None:
            after = [a for a in self._where[one.pattern] if a > self.places(one)[-1] and not self._slotted(one, a)]
            return self._between(one, begin, after[0] if after else whole)
        if other.step == one.step:
            return self._between(one, begin, self.places(other)[0])
        return self._between(one, begin, whole) + self._between(other, 0, self.places(other)[0])

    def _slotted(self, pair: Pair, place: int) -> bool:
        mine, other = (self.sequences[pair.pattern][p] for p in (self.places(pair)[0], place))
        return (mine.layer, mine.slot) == (other.layer, other.slot)

    def _between(self, pair: Pair, begin: int, end: int) -> tuple[tuple[int, int, int], ...]:
        sequence = self.sequences[pair.pattern]
        return tuple((pair.step, pair.pattern, p) for p in range(begin, end) if sequence[p].anchor is None)


def _ahead(sequence: Sequence[Occurrence], places: Sequence[int]) -> list[frozenset[str]]:
    """The marker work before each anchor of a pass; before the first, also what follows the last."""
    found = []
    for last, place in zip([-1, *places], places, strict=False):
        between = sequence[last + 1 : place] if last < place else ()
        found.append(TELLING & {occurrence.work for occurrence in between})
    return found


def _weight(occurrence: Occurrence) -> float:
    """Elements of the weight matrix that a GEMM reads or whose gradient it writes; 0 for other operators."""
    operator = occurrence.placed.operator
    if occurrence.anchor != "matrix product" or operator.gemm is None:
        return 0.0
    tensors = (*operator.lines[0].factors, *operator.lines[0].outputs)
    named = [tensor for tensor in tensors if tensor.name.removeprefix("grad.")[0].isupper()]
    return float(max((tensor.elements(operator.sizes) for tensor in named), default=0))


def _shape(item: KernelGroup, weights: np.ndarray) -> np.ndarray:
    """Cost by recorded shapes: the weight matrix must be one of the three matrices of the GEMM."""
    import numpy as np

    if not item.operand_sizes:
        return np.zeros(len(weights))
    same = np.isin(weights, item.operand_sizes)
    return np.where(same, -0.3, 0.6) * (weights > 0)


def agrees(direction: str | None, occurrence: Occurrence) -> bool:
    """Whether the direction in a kernel's name (forward, backward) agrees with an operator."""
    name, stage = occurrence.placed.operator.name, occurrence.placed.operator.stage
    if direction in ("input", "weight"):
        return name.endswith(f"grad_{direction}")
    return direction is None or (direction == "backward") == (stage == "backward")


def _roles(occurrence: Occurrence) -> set[str]:
    """Names of an operator in ranges: `mlp.expert_gate_up` is expert_gate_up, expert, gate or up."""
    last = occurrence.placed.operator.name.partition(".grad")[0].rpartition(".")[2]
    norm = {"head_norm"} if last.endswith("norm") and occurrence.placed.operator.group == "attention" else set()
    return {last, *last.split("_"), occurrence.work, *norm}


def _lookup(table: Mapping[str, float], occurrence: Occurrence, default: float) -> float:
    """The table entry of an operator's kind, else of its anchor kind."""
    return table.get(occurrence.placed.operator.kind, table.get(occurrence.anchor or "", default))


def _alike(item: KernelGroup) -> object:
    """A key that launches of one kernel on data of one size share."""
    main = max(item.kernels, key=lambda kernel: kernel.seconds or 0.0)
    return item.kind, item.direction, main.name, main.grid, item.flops, item.operand_sizes, len(item.kernels)


def _shifted(values: np.ndarray, by: int, fill: float) -> np.ndarray:
    """values[p + by] at p."""
    import numpy as np

    return values if by == 0 else np.concatenate([values[by:], np.full(min(by, len(values)), fill)])
