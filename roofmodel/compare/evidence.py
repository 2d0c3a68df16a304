"""Cost of matching a kernel with an operator, from its kind, FLOPs, time and shapes and the ranges around its launch.

The unit is the cost of an operator without a kernel. The values need not be exact: the order decides most matches, and
the costs decide between matches that the order allows (one kernel for gate and up, or for Q, K and V?).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from roofmodel.compare.alignment import IMPOSSIBLE, AlignedItem, PairingCosts
from roofmodel.compare.sequence import Occurrence
from roofmodel.roofline.naming import Hint, is_expert_gemm

if TYPE_CHECKING:
    import numpy as np

    from roofmodel.compare.kernel_groups import WorkGroup

UNMATCHED_KERNEL = 1.5  # an anchor kernel without an operator
MAX_FUSED_OPERATORS = 6  # operators of one kernel: Q, K and V, or their gradients

# Kind of kernel -> kind of operator -> cost of the match. Fused attention may be two GEMMs, a convolution may run as a
# GEMM, and the blocks of a scan are GEMMs.
KIND_COST = {
    "GEMM": {"GEMM": 0.0, "convolution": 0.5, "scan": 0.9},
    "attention": {"attention": 0.0, "bmm": 0.3},
    "convolution": {"convolution": 0.0},
    "scan": {"scan": 0.0, "bmm": 0.3},
}
# Cost of a further kernel of one operator: common for attention and experts, rare for a plain GEMM.
FURTHER_KERNEL = {"attention": 0.5, "grouped_gemm": 0.1, "scan": 0.3, "bmm": 0.6}
RARE_FURTHER_KERNEL = 1.0
FUSED_OPERATOR = 0.05  # per additional operator of a fused kernel

MARKER_WORK = frozenset({"norm", "activation", "rotary", "gather", "routing", "softmax"})
"""Light work with one position in a layer or pass, which identifies the anchor after it."""
UNEXPECTED_MARKER = 0.25  # cost of marker work in the file that the model does not have before this anchor
MISSING_MARKER = 0.1  # cost of marker work of the model that is missing in the file; it may be fused

_PLACES = {"attention": "attention", "cross attention": "attention", "mlp": "mlp", "embedding": "embedding"}
_PLACES |= {"head": "head"}


class Anchors:
    """The anchors of all phases as arrays, and the cost of matching each with a kernel."""

    def __init__(self, sequences: Sequence[Sequence[Occurrence]], phases: Sequence[str]) -> None:
        import numpy as np

        self.sequences, self.phases = sequences, phases
        self._anchor_places = [  # anchor of a phase -> place in its sequence
            [place for place, occurrence in enumerate(sequence) if occurrence.anchor] for sequence in sequences
        ]
        self.lengths = [len(places) for places in self._anchor_places]
        self.size = sum(self.lengths)
        self.skips = np.ones(self.size)
        listed = [(phase, sequences[phase][p]) for phase, places in enumerate(self._anchor_places) for p in places]
        self._anchors = listed
        self._weights = np.array([_weight(o) for _, o in listed])
        self._flops = np.array([float(o.placed.placement.cost.matmul_flops) for _, o in listed])
        self._seconds = np.array([o.seconds for _, o in listed])
        self._bounds = np.array([float(o.placed.placement.bound_seconds) for _, o in listed])
        slots = [(phase, o.layer, o.slot, o.placed.operator.stage) for phase, o in listed]
        self._slots = slots
        self._share_slot = [
            np.array([len(set(slots[p : p + n])) == 1 and p + n <= len(slots) for p in range(len(slots))])
            for n in range(1, MAX_FUSED_OPERATORS + 1)
        ]
        while len(self._share_slot) > 1 and not self._share_slot[-1].any():
            self._share_slot.pop()
        self._allowed: dict[Hint, np.ndarray] = {}
        self._markers = [
            markers
            for phase, places in enumerate(self._anchor_places)
            for markers in _markers_before(sequences[phase], places)
        ]
        self._convolutional = any(o.placed.operator.group.startswith("stage") for _, o in listed)

    # --- Costs --------------------------------------------------------------------------------------

    def cost_function(self, groups: Sequence[WorkGroup]) -> Callable[[WorkGroup, frozenset[str]], PairingCosts]:
        """The costs as a function of a kernel group and the marker work before it; equal launches share a mean time."""
        times: dict[object, list[float]] = {}
        for group in groups:
            times.setdefault(_launch_key(group), []).append(group.seconds or 0.0)
        mean = {key: sum(each) / len(each) for key, each in times.items()}
        cache: dict[object, PairingCosts] = {}

        def costs(group: WorkGroup, markers: frozenset[str]) -> PairingCosts:
            key = _launch_key(group), group.hint, markers
            if key not in cache:
                cache[key] = self._costs(group, mean[key[0]], markers)
            return cache[key]

        return costs

    def _costs(self, group: WorkGroup, seconds: float, markers: frozenset[str]) -> PairingCosts:
        import numpy as np

        kinds = KIND_COST[group.kind or "GEMM"]
        kind_cost = np.array([_lookup(kinds, o, IMPOSSIBLE) for _, o in self._anchors])
        kind_cost = np.where(self.allowed_anchors(group.hint), kind_cost, IMPOSSIBLE)
        kind_cost += np.array([0.0 if direction_agrees(group.direction, o) else 1.0 for _, o in self._anchors])
        if is_expert_gemm(group.kernels[0].name):
            kind_cost += np.array([0.0 if o.placed.operator.kind == "grouped_gemm" else 1.0 for _, o in self._anchors])
        marker_cost = np.array(
            [UNEXPECTED_MARKER * len(markers - own) + MISSING_MARKER * len(own - markers) for own in self._markers]
        )
        runs = []
        for n, same_slot in enumerate(self._share_slot, 1):
            worst_kind = np.max([_shifted(kind_cost, i, IMPOSSIBLE) for i in range(n)], axis=0)
            weights, flops, expected, bound = (
                np.sum([_shifted(a, i, 0.0) for i in range(n)], axis=0)
                for a in (self._weights, self._flops, self._seconds, self._bounds)
            )
            cost = (
                self._flops_cost(group, flops) + self._time_cost(seconds, expected, bound) + _shape_cost(group, weights)
            )
            runs.append(np.where(same_slot, worst_kind + marker_cost + FUSED_OPERATOR * (n - 1) + cost, IMPOSSIBLE))
        further = np.array([_lookup(FURTHER_KERNEL, o, RARE_FURTHER_KERNEL) for _, o in self._anchors])
        return PairingCosts(
            runs,
            np.where(kind_cost >= IMPOSSIBLE, IMPOSSIBLE, further + UNEXPECTED_MARKER * len(markers)),
            UNMATCHED_KERNEL,
        )

    def _flops_cost(self, group: WorkGroup, flops: np.ndarray) -> np.ndarray:
        """Cost of a difference between measured and counted FLOPs; small, because padding may double them."""
        import numpy as np

        if not group.flops or group.kind == "attention":
            return np.zeros(len(flops))
        log_ratio: np.ndarray = np.abs(np.log2(group.flops / np.maximum(flops, 1.0)))
        return np.minimum(0.3, 0.1 * log_ratio, dtype=float)

    def _time_cost(self, seconds: float, expected: np.ndarray, bound: np.ndarray) -> np.ndarray:
        """Cost of a difference in time; small, because the given workload may be wrong."""
        import numpy as np

        if not seconds:
            return np.zeros(len(bound))
        log_ratio = np.abs(np.log2(seconds / np.maximum(expected, 1e-12)))
        cost: np.ndarray = np.minimum(0.2, 0.05 * log_ratio) + np.where(seconds < 0.8 * bound, 0.1, 0.0)
        return cost

    def allowed_anchors(self, hint: Hint) -> np.ndarray:
        """Which anchors the ranges around a launch allow; all if they allow none."""
        import numpy as np

        if hint not in self._allowed:
            mask = np.array([self._hint_allows(hint, phase, o) for phase, o in self._anchors], dtype=bool)
            self._allowed[hint] = mask if mask.any() else np.ones(self.size, dtype=bool)
        allowed: np.ndarray = self._allowed[hint]
        return allowed

    def _hint_allows(self, hint: Hint, phase: int, occurrence: Occurrence) -> bool:
        operator = occurrence.placed.operator
        place = _PLACES.get(operator.group.removeprefix("encoder "))
        if hint.layer is not None and hint.layer != occurrence.layer and not self._convolutional:
            return False
        if hint.place and place and hint.place != place:
            return False
        if hint.roles and not hint.roles & _roles(occurrence):
            return False
        if hint.stage in ("forward", "backward", "optimizer"):
            return operator.stage in ("", hint.stage, "recomputation")
        return not hint.stage or self.phases[phase] not in ("prefill", "decode") or hint.stage == self.phases[phase]

    # --- Places -------------------------------------------------------------------------------------

    def places(self, pair: AlignedItem) -> tuple[int, ...]:
        """The operators of a pair as places in the sequence of its phase."""
        return tuple(self._anchor_places[pair.pattern][anchor] for anchor in pair.operators)

    def same_slot(self, first: AlignedItem, second: AlignedItem) -> bool:
        """Whether two pairs have operators of one pass and slot."""
        anchors = [sum(self.lengths[: pair.pattern]) + pair.operators[0] for pair in (first, second)]
        return first.step == second.step and self._slots[anchors[0]] == self._slots[anchors[1]]

    def is_attention(self, pair: AlignedItem) -> bool:
        """Whether a pair is fused attention."""
        return self.sequences[pair.pattern][self.places(pair)[0]].work == "attention"

    def allows_pair(self, pair: AlignedItem, hint: Hint) -> bool:
        """Whether ranges allow the first operator of a pair."""
        return self._hint_allows(hint, pair.pattern, self.sequences[pair.pattern][self.places(pair)[0]])

    def allows_operator(self, group: WorkGroup, phase: int, place: int) -> bool:
        """Whether the ranges and name of a kernel group allow an operator of a sequence."""
        occurrence = self.sequences[phase][place]
        return direction_agrees(group.direction, occurrence) and self._hint_allows(group.hint, phase, occurrence)

    def light_operators(
        self, first: AlignedItem | None, second: AlignedItem | None
    ) -> tuple[tuple[int, int, int], ...]:
        """The light operators from the slot of the first pair up to the slot of the second: step, phase, place."""
        if first is None:
            assert second is not None
            end = self.places(second)[0]
            before = [a for a in self._anchor_places[second.pattern] if a < end]
            return self._light_in_range(second, before[-1] if before else 0, end)
        begin = self.places(first)[0]
        pass_end = len(self.sequences[first.pattern])
        if second is None:
            after = [
                a
                for a in self._anchor_places[first.pattern]
                if a > self.places(first)[-1] and not self._in_slot(first, a)
            ]
            return self._light_in_range(first, begin, after[0] if after else pass_end)
        if second.step == first.step:
            return self._light_in_range(first, begin, self.places(second)[0])
        return self._light_in_range(first, begin, pass_end) + self._light_in_range(second, 0, self.places(second)[0])

    def _in_slot(self, pair: AlignedItem, place: int) -> bool:
        first, second = (self.sequences[pair.pattern][p] for p in (self.places(pair)[0], place))
        return (first.layer, first.slot) == (second.layer, second.slot)

    def _light_in_range(self, pair: AlignedItem, begin: int, end: int) -> tuple[tuple[int, int, int], ...]:
        sequence = self.sequences[pair.pattern]
        return tuple((pair.step, pair.pattern, p) for p in range(begin, end) if sequence[p].anchor is None)


def _markers_before(sequence: Sequence[Occurrence], places: Sequence[int]) -> list[frozenset[str]]:
    """The marker work before each anchor of a pass; the work after the last anchor counts before the first."""
    markers = []
    for last, place in zip([-1, *places], places, strict=False):
        between = sequence[last + 1 : place] if last < place else ()
        markers.append(MARKER_WORK & {occurrence.work for occurrence in between})
    return markers


def _weight(occurrence: Occurrence) -> float:
    """Elements of the weight matrix that a GEMM reads or whose gradient it writes; 0 for other operators."""
    operator = occurrence.placed.operator
    if occurrence.anchor != "GEMM" or operator.gemm is None:
        return 0.0
    tensors = (*operator.lines[0].factors, *operator.lines[0].outputs)
    matrices = [tensor for tensor in tensors if tensor.name.removeprefix("grad.")[0].isupper()]
    return float(max((tensor.elements(operator.sizes) for tensor in matrices), default=0))


def _shape_cost(group: WorkGroup, weights: np.ndarray) -> np.ndarray:
    """Cost by recorded shapes: the weight matrix must be one of the three matrices of the GEMM."""
    import numpy as np

    if not group.operand_sizes:
        return np.zeros(len(weights))
    has_weight = np.isin(weights, group.operand_sizes)
    return np.where(has_weight, -0.3, 0.6) * (weights > 0)


def direction_agrees(direction: str | None, occurrence: Occurrence) -> bool:
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


def _launch_key(group: WorkGroup) -> object:
    """A key that launches of one kernel on data of one size share."""
    main = max(group.kernels, key=lambda kernel: kernel.seconds or 0.0)
    return group.kind, group.direction, main.name, main.grid, group.flops, group.operand_sizes, len(group.kernels)


def _shifted(values: np.ndarray, by: int, fill: float) -> np.ndarray:
    """values[p + by] at p."""
    import numpy as np

    return values if by == 0 else np.concatenate([values[by:], np.full(min(by, len(values)), fill)])
