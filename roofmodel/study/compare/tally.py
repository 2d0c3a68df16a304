"""What was matched as rows, a pass at a time: operators beside the kernels that they are; and what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from roofmodel.counting.operator import Cost
from roofmodel.devices.device import Device
from roofmodel.profiles.kernel import Kernel
from roofmodel.study.compare.comparison import LeftKernels, LeftOperators, Row, Shaped
from roofmodel.study.compare.kernel_groups import product_of
from roofmodel.study.compare.matching import Matching, Unit
from roofmodel.study.compare.naming import sort, spoken
from roofmodel.study.compare.passes import Chosen
from roofmodel.study.compare.sequence import Occurrence
from roofmodel.study.profile.points import incomplete, total, work


class Tally(NamedTuple):
    """Kernels that were matched with the operators of phases, and the passes of them that count."""

    found: Matching
    sequences: Sequence[Sequence[Occurrence]]
    phases: Sequence[str]
    chosen: Chosen
    device: Device

    # --- Rows ---------------------------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """Operators that belong together, with their kernels."""
        bundles: dict[tuple[int, str, tuple[str, ...]], list[Unit]] = {}
        for unit in self._counting():
            stage = self._of(unit)[0].placed.operator.stage
            bundles.setdefault((unit.phase, stage, self._called(unit)), []).append(unit)
        for (phase, stage, names), units in bundles.items():
            yield self._row(phase, stage, names, units)

    def _counting(self) -> Iterator[Unit]:
        """The units of passes that count."""
        counting = {step for steps in self.chosen.steps.values() for step in steps}
        return (unit for unit in self.found.units if unit.step in counting)

    def _of(self, unit: Unit) -> list[Occurrence]:
        return [self.sequences[unit.phase][place] for place in unit.operators]

    def _called(self, unit: Unit) -> tuple[str, ...]:
        """What its operators are called together: a slot's, whichever of them it is; groups that merge are one."""
        names = (name for occurrence in self._of(unit) for name in _names(occurrence))
        return (unit.kind,) if unit.kind else tuple(dict.fromkeys(names))

    def _row(self, phase: int, stage: str, names: tuple[str, ...], units: Sequence[Unit]) -> Row:
        sequence, passes = self.sequences[phase], self.chosen.divisors[phase]
        found = {(unit.step, place): unit.passes for unit in units for place in unit.operators}
        times: Counter[int] = Counter()
        for (_, place), n in found.items():
            times[place] += n
        once = {sequence[place].placed.operator.name: sequence[place] for place in sorted(times)}
        each: Counter[str] = Counter()
        cost, bounds, expected = Cost(), dict.fromkeys(("compute", "memory", "communication"), 0.0), []
        for place, n in times.items():
            placed = sequence[place].placed
            each[names[0] if units[0].kind else _counted_as(sequence[place])] += n
            cost = cost + _mean(n, passes, placed.placement.cost)
            bounds[placed.placement.bound] += n / passes * float(placed.placement.bound_seconds)
            expected.append(None if placed.expected is None else n / passes * float(placed.expected.seconds))
        kernels = [kernel for unit in units for kernel in unit.item.kernels]
        seconds, moved = total(kernel.seconds for kernel in kernels), total(kernel.bytes.dram for kernel in kernels)
        partly = any(incomplete(kernel.flops, self.device) for kernel in kernels)
        done = sum(sum(work(kernel.flops).values()) for kernel in kernels)
        return Row(
            phase=self.phases[phase],
            operators=names,
            group=next(iter(once.values())).placed.operator.group,
            stage=stage,
            occurrences=max(each.values()) / passes,
            kernels=sum(kernel.invocations for kernel in kernels) / passes,
            cost=cost,
            bound=max(bounds, key=lambda roof: bounds[roof]),
            bound_seconds=sum(bounds.values()),
            expected_seconds=total(expected),
            measured_flops=None if partly else done / passes,
            measured_bytes=None if moved is None else moved / passes,
            measured_seconds=None if seconds is None else seconds / passes,
            names=_longest(kernels),
            work=tuple(once.values()),
        )

    # --- What is left -------------------------------------------------------------------------------

    def left_kernels(self) -> list[LeftKernels]:
        """Kernels without an operator, by name, those that take most time first."""
        bundles: dict[tuple[int, str, str], list[Kernel]] = {}
        for step, item in self.found.left:
            phase = self.found.phases[step] if step < len(self.found.phases) else 0
            if step in self.chosen.steps.get(phase, ()):
                for kernel in item.kernels:
                    bundles.setdefault((phase, spoken(kernel.name), sort(kernel.name)), []).append(kernel)
        found = []
        for (phase, name, kind), kernels in bundles.items():
            seconds, passes = total(kernel.seconds for kernel in kernels), self.chosen.divisors[phase]
            each = None if seconds is None else seconds / passes
            often = sum(kernel.invocations for kernel in kernels)
            found.append(LeftKernels(self.phases[phase], name, kind, often / passes, each))
        return sorted(found, key=lambda left: -(left.seconds or 0.0))

    def left_operators(self) -> Iterator[LeftOperators]:
        """Operators of which some occurrence found no kernel, in running order."""
        seen = {(unit.step, place) for unit in self.found.units for place in unit.operators}
        for phase, steps in self.chosen.steps.items():
            missing: Counter[str] = Counter()
            once: dict[str, Occurrence] = {}
            for place, occurrence in enumerate(self.sequences[phase]):
                if n := sum((step, place) not in seen for step in steps):
                    missing[occurrence.placed.operator.name] += n
                    once.setdefault(occurrence.placed.operator.name, occurrence)
            for name, n in missing.items():
                placed, times = once[name].placed, n / len(steps)
                yield LeftOperators(
                    phase=self.phases[phase],
                    operator=name,
                    stage=placed.operator.stage,
                    occurrences=times,
                    bound_seconds=times * float(placed.placement.bound_seconds),
                    expected_seconds=times * float(placed.expected.seconds) if placed.expected else None,
                )

    # --- Shapes -------------------------------------------------------------------------------------

    def shaped(self) -> Iterator[Shaped]:
        """Products of tokens with a matrix, in the layers, of which the file tells the shapes."""
        for unit in self._counting():
            together = self._of(unit)
            operator, there = together[0].placed.operator, product_of(unit.item.kernels[0])
            if there is None or together[0].layer is None or operator.stage not in ("", "forward"):
                continue
            gemms = [each.placed.operator.gemm for each in together if each.placed.operator.kind == "gemm"]
            told = operator.sizes.get("b", 0) * operator.sizes.get("t", 0)
            known = [gemm for gemm in gemms if gemm and gemm.m == told]
            if len(known) == len(together):
                fits = sum(float(gemm.n * gemm.k) for gemm in known) in unit.item.faces
                yield Shaped(self.phases[unit.phase], there, int(told), fits)


def _names(occurrence: Occurrence) -> list[str]:
    operator = occurrence.placed.operator
    return [operator.group] if _merges(operator.group) else occurrence.operators


def _counted_as(occurrence: Occurrence) -> str:
    """The name under which its occurrences are counted: operators of one slot each for itself."""
    operator = occurrence.placed.operator
    return operator.group if _merges(operator.group) else operator.name


def _merges(group: str) -> bool:
    """Whether operators of a group are one and the same thing in several places, and so one row."""
    return group.rpartition(" ")[2] in ("norm", "activation", "residual", "bias")


def _mean(times: int, passes: int, cost: Cost) -> Cost:
    """So many occurrences over so many passes; exact where each pass has as many."""
    whole, rest = divmod(times, passes)
    return (times / passes if rest else whole) * cost


def _longest(kernels: Sequence[Kernel]) -> tuple[str, ...]:
    """The names of kernels, those first that take most time."""
    seconds: dict[str, float] = {}
    for kernel in kernels:
        name = spoken(kernel.name)
        seconds[name] = seconds.get(name, 0.0) + (kernel.seconds or 0.0)
    return tuple(sorted(seconds, key=lambda name: -seconds[name]))
