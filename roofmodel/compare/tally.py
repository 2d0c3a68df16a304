"""Rows, unmatched kernels, unmatched operators and GEMM shapes of matched passes, as means per pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from roofmodel.compare.comparison import ComparisonRow, MeasuredGemm, UnmatchedKernels, UnmatchedOperators
from roofmodel.compare.kernel_groups import recorded_gemm
from roofmodel.compare.matching import MatchedUnit, Matching
from roofmodel.compare.passes import ChosenPasses
from roofmodel.compare.sequence import Occurrence
from roofmodel.counting.operator import Cost
from roofmodel.devices.device import Device
from roofmodel.profiles.kernel import Kernel
from roofmodel.roofline.naming import category_of, display_name
from roofmodel.roofline.points import flops_by_pipe, incomplete, total
from roofmodel.steps.placed import Placed, with_members
from roofmodel.timing.timing import Expected


class Tally(NamedTuple):
    """A matching of kernels with the operators of phases, and the passes to use.

    Operators that the engine computes in one kernel are compared as that kernel where the file has it, too: those
    without a kernel of their own belong to the row of the others, and the bound is that of what the kernel moves.
    """

    matching: Matching
    sequences: Sequence[Sequence[Occurrence]]
    phases: Sequence[str]
    chosen: ChosenPasses
    device: Device

    # --- Rows ---------------------------------------------------------------------------------------

    def rows(self) -> Iterator[ComparisonRow]:
        """One row per set of operators that share kernels."""
        fused = self._fused()
        grouped: dict[tuple[int, str, tuple[str, ...]], list[MatchedUnit]] = {}
        for unit in self._used_units():
            stage = self._occurrences(unit)[0].placed.operator.stage
            others = (other for place in unit.operators for other in fused.get((unit.step, place), ()))
            unit = unit._replace(operators=tuple(sorted({*unit.operators, *others})))
            grouped.setdefault((unit.phase, stage, self._row_names(unit)), []).append(unit)
        for (phase, stage, names), units in grouped.items():
            yield self._row(phase, stage, names, units)

    def _used_units(self) -> Iterator[MatchedUnit]:
        """The units of the passes to use."""
        used = {step for steps in self.chosen.steps.values() for step in steps}
        return (unit for unit in self.matching.units if unit.step in used)

    def _fused(self) -> dict[tuple[int, int], list[int]]:
        """By step and place of a matched operator: the places of those without a kernel that run in its kernel."""
        matched = self._matched()
        fused: dict[tuple[int, int], list[int]] = {}
        for phase, steps in self.chosen.steps.items():
            kernels: dict[tuple[int, int | None], list[int]] = {}
            for place, occurrence in enumerate(self.sequences[phase]):
                if occurrence.kernel:
                    kernels.setdefault(occurrence.kernel, []).append(place)
            for step, places in product(steps, kernels.values()):
                own = [place for place in places if (step, place) in matched]
                if own and len(own) < len(places):
                    main = min(own, key=lambda place: self.sequences[phase][place].is_fused)
                    fused[step, main] = [place for place in places if place not in own]
        return fused

    def _matched(self) -> set[tuple[int, int]]:
        return {(unit.step, place) for unit in self.matching.units for place in unit.operators}

    def _occurrences(self, unit: MatchedUnit) -> list[Occurrence]:
        return [self.sequences[unit.phase][place] for place in unit.operators]

    def _row_names(self, unit: MatchedUnit) -> tuple[str, ...]:
        """Names of all operators in the unit's slots; one name for a group that merges into one row."""
        names = (name for occurrence in self._occurrences(unit) for name in _names(occurrence))
        return (unit.kind,) if unit.kind else tuple(dict.fromkeys(names))

    def _row(self, phase: int, stage: str, names: tuple[str, ...], units: Sequence[MatchedUnit]) -> ComparisonRow:
        sequence, passes = self.sequences[phase], self.chosen.divisors[phase]
        passes_of = {(unit.step, place): unit.passes for unit in units for place in unit.operators}
        times: Counter[int] = Counter()
        for (_, place), n in passes_of.items():
            times[place] += n
        samples = {sequence[place].placed.operator.name: sequence[place] for place in sorted(times)}
        occurrences: Counter[str] = Counter()
        for place, n in times.items():
            occurrences[names[0] if units[0].kind else _counted_as(sequence[place])] += n
        cost, bounds, expected = Cost(), dict.fromkeys(("compute", "memory", "communication"), 0.0), []
        for placed, n in self._kernels(phase, passes_of):
            placement = placed.kernel or placed.placement
            cost = cost + _mean(n, passes, placement.cost)
            bounds[placement.bound] += n / passes * float(placement.bound_seconds)
            expected.append(None if placed.expected is None else n / passes * float(placed.expected.value))
        kernels = [kernel for unit in units for kernel in unit.kernel_group.kernels]
        seconds, dram_bytes = (
            total(kernel.seconds for kernel in kernels),
            total(kernel.bytes.dram for kernel in kernels),
        )
        uncounted = any(incomplete(kernel.flops, self.device) for kernel in kernels)
        flops = sum(sum(flops_by_pipe(kernel.flops).values()) for kernel in kernels)
        return ComparisonRow(
            phase=self.phases[phase],
            operators=names,
            group=next(iter(samples.values())).placed.operator.group,
            stage=stage,
            occurrences=max(occurrences.values()) / passes,
            kernels=sum(kernel.invocations for kernel in kernels) / passes,
            cost=cost,
            bound=max(bounds, key=lambda ceiling: bounds[ceiling]),
            bound_seconds=sum(bounds.values()),
            expected_seconds=total(expected),
            measured_flops=None if uncounted else flops / passes,
            measured_bytes=None if dram_bytes is None else dram_bytes / passes,
            measured_seconds=None if seconds is None else seconds / passes,
            kernel_names=_names_by_time(kernels),
            sample_occurrences=tuple(samples.values()),
        )

    def _kernels(self, phase: int, passes_of: Mapping[tuple[int, int], int]) -> Iterator[tuple[Placed, int]]:
        """What runs as one kernel of the engine, and how often; `passes_of` has the step and place of operators."""
        sequence = self.sequences[phase]
        together: dict[tuple[int, object], list[int]] = {}
        for step, place in passes_of:
            together.setdefault((step, sequence[place].kernel or place), []).append(place)
        times: Counter[tuple[int, ...]] = Counter()
        for (step, _), places in together.items():
            times[tuple(sorted(places, key=lambda place: sequence[place].is_fused))] += passes_of[step, places[0]]
        for (main, *others), n in times.items():
            if others and not sequence[main].is_fused:
                members = [sequence[place].placed for place in others]
                yield with_members(sequence[main].placed, members, self.device.bandwidth), n
            else:
                yield from ((_alone(sequence[place]), n) for place in (main, *others))

    # --- Unmatched ----------------------------------------------------------------------------------

    def unmatched_kernels(self) -> list[UnmatchedKernels]:
        """Kernels without an operator, grouped by name, longest time first."""
        grouped: dict[tuple[int, str, str], list[Kernel]] = {}
        for step, group in self.matching.unmatched:
            phase = self.matching.phases[step] if step < len(self.matching.phases) else 0
            if step in self.chosen.steps.get(phase, ()):
                for kernel in group.kernels:
                    grouped.setdefault((phase, display_name(kernel.name), category_of(kernel.name)), []).append(kernel)
        unmatched = []
        for (phase, name, category), kernels in grouped.items():
            seconds, passes = total(kernel.seconds for kernel in kernels), self.chosen.divisors[phase]
            mean = None if seconds is None else seconds / passes
            launches = sum(kernel.invocations for kernel in kernels)
            unmatched.append(UnmatchedKernels(self.phases[phase], name, category, launches / passes, mean))
        return sorted(unmatched, key=lambda each: -(each.seconds or 0.0))

    def unmatched_operators(self) -> Iterator[UnmatchedOperators]:
        """Operators with occurrences that have no kernel, in execution order."""
        matched = self._matched()
        matched |= {(step, place) for (step, _), places in self._fused().items() for place in places}
        for phase, steps in self.chosen.steps.items():
            missing: dict[tuple[str, str], list[tuple[float, Placed]]] = {}  # occurrences per pass, and the operator
            for place, occurrence in enumerate(self.sequences[phase]):
                if n := sum((step, place) not in matched for step in steps):
                    operator = occurrence.placed.operator
                    each = missing.setdefault((operator.stage, operator.name), [])
                    each.append((n / len(steps), occurrence.placed))
            for (stage, name), occurrences in missing.items():
                yield UnmatchedOperators(
                    phase=self.phases[phase],
                    operator=name,
                    stage=stage,
                    occurrences=sum(times for times, _ in occurrences),
                    bound_seconds=sum(times * float(placed.placement.bound_seconds) for times, placed in occurrences),
                    expected_seconds=total(
                        times * float(placed.expected.value) if placed.expected else None
                        for times, placed in occurrences
                    ),
                )

    # --- Shapes -------------------------------------------------------------------------------------

    def gemms(self) -> Iterator[MeasuredGemm]:
        """GEMMs of tokens and weights in the layers whose shapes the file records."""
        for unit in self._used_units():
            occurrences = self._occurrences(unit)
            operator, shape = occurrences[0].placed.operator, recorded_gemm(unit.kernel_group.kernels[0])
            if shape is None or occurrences[0].layer is None or operator.stage not in ("", "forward"):
                continue
            gemms = [each.placed.operator.gemm for each in occurrences if each.placed.operator.kind == "gemm"]
            rows = operator.sizes.get("b", 0) * operator.sizes.get("t", 0)
            of_tokens = [gemm for gemm in gemms if gemm and gemm.m == rows]
            if len(of_tokens) == len(occurrences):
                same_weights = sum(float(gemm.n * gemm.k) for gemm in of_tokens) in unit.kernel_group.operand_sizes
                yield MeasuredGemm(self.phases[unit.phase], shape, int(rows), same_weights)


def _alone(occurrence: Occurrence) -> Placed:
    """An operator in a kernel of its own: no faster than its bound, which its share of a fused kernel may be."""
    placed = occurrence.placed
    if occurrence.kernel is None or placed.expected is None:
        return placed
    least = placed.placement.bound_seconds
    return placed._replace(expected=Expected(*(max(time, least) for time in placed.expected)))


def _names(occurrence: Occurrence) -> list[str]:
    operator = occurrence.placed.operator
    return [operator.group] if _merges(operator.group) else occurrence.operators


def _counted_as(occurrence: Occurrence) -> str:
    """The name under which an occurrence is counted: its group if the group merges, else its operator."""
    operator = occurrence.placed.operator
    return operator.group if _merges(operator.group) else operator.name


def _merges(group: str) -> bool:
    """Whether the operators of a group share one row (norms, activations, residual adds, biases)."""
    return group.rpartition(" ")[2] in ("norm", "activation", "residual", "bias")


def _mean(times: int, passes: int, cost: Cost) -> Cost:
    """The cost of `times` occurrences divided by `passes`; integers stay integers if it divides evenly."""
    quotient, rest = divmod(times, passes)
    return (times / passes if rest else quotient) * cost


def _names_by_time(kernels: Sequence[Kernel]) -> tuple[str, ...]:
    """Kernel names by their total time, longest first."""
    seconds: dict[str, float] = {}
    for kernel in kernels:
        name = display_name(kernel.name)
        seconds[name] = seconds.get(name, 0.0) + (kernel.seconds or 0.0)
    return tuple(sorted(seconds, key=lambda name: -seconds[name]))
