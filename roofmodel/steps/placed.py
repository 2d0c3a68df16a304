"""Operators of a phase with their bounds and expected times, and the sums over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from roofmodel.counting.operator import Cost, Operator
from roofmodel.devices.device import Device
from roofmodel.numbers.algebra import Number, either, maximum, plain
from roofmodel.timing.engine import Run
from roofmodel.timing.roofline import Energy, Placement, place
from roofmodel.timing.timing import Expected, independent_sum

if TYPE_CHECKING:
    from roofmodel.timing.extra_kernels import ExtraKernel

NO_TIME = Expected(0.0, 0.0, 0.0)


class Placed(NamedTuple):
    """An operator, with bound and expected time of one occurrence."""

    operator: Operator
    placement: Placement
    expected: Expected | None = None  # with the extra kernels that a framework runs for the operator
    run: Run = Run(None)  # how the engine runs it
    energy: Energy | None = None  # of one occurrence; None where the device states none

    @property
    def extra_kernels(self) -> tuple[ExtraKernel, ...]:
        """The kernels that a framework runs besides the operator's own."""
        return self.run.extra_kernels

    @property
    def is_fused(self) -> Any:
        """Whether it is a share of a fused kernel, with a time below its own bound."""
        if not (self.run.absorbed or self.run.merged) or self.expected is None:
            return False
        return self.expected.value < self.placement.bound_seconds

    @property
    def is_limited_by_power(self) -> Any:
        """Whether the power limit of the card makes it longer than its kernel takes alone."""
        if self.expected is None or self.run.expected is None or self.operator.collective:
            return False
        return self.expected.value > self.run.expected.value

    @property
    def energy_joules(self) -> Number | None:
        """The energy of a GPU in one occurrence."""
        return None if self.energy is None or self.expected is None else self.energy.total(plain(self.expected.value))

    @property
    def power_watts(self) -> Number | None:
        """The mean power of a GPU while it runs."""
        joules = self.energy_joules
        return None if joules is None or self.expected is None else joules / plain(self.expected.value)

    @property
    def expected_bound(self) -> Any:
        """What limits the expected time: `power`, or the ceiling of the bound; None without an expected time."""
        if self.expected is None:
            return None
        return either(self.is_limited_by_power, "power", self.placement.bound)

    @property
    def is_collective(self) -> bool:
        """Whether several GPUs exchange data, other than from one pipeline stage to the next."""
        collective = self.operator.collective
        return collective is not None and collective.name not in ("send", "receive")

    @property
    def cost(self) -> Cost:
        """The cost of all occurrences together."""
        return self.operator.count * self.placement.cost  # type: ignore[no-any-return]

    @property
    def seconds(self) -> Number:
        """The bound of all occurrences together."""
        return self.operator.count * self.placement.bound_seconds


class ReplicaTimes(NamedTuple):
    """Seconds per step that the wrapper of the replicas adds, and seconds of the exchange that it hides.

    None: unknown, because a part of it has no expected time. `hidden_in_layers` is the part of `hidden` in every
    microbatch.
    """

    copies: Expected | None = NO_TIME
    contention: Expected | None = NO_TIME
    waiting: Expected | None = NO_TIME  # for the slowest replica
    hidden: Expected | None = NO_TIME
    hidden_in_layers: Expected = NO_TIME

    @property
    def added(self) -> Expected | None:
        """All seconds that are added to those of the kernels."""
        parts = (self.copies, self.contention, self.waiting)
        known_parts = [each for each in parts if each is not None]
        return sum(known_parts, NO_TIME) if len(known_parts) == len(parts) else None


def placed(operators: Iterable[Operator], device: Device, dtype: str) -> tuple[Placed, ...]:
    """Operators with their bounds on the device, not yet with expected times (`timed`)."""
    return tuple(Placed(op, place(op.cost, device, op.compute_dtype(dtype), op.collective)) for op in operators)


def total_cost(placed: Iterable[Placed]) -> Cost:
    """The cost of all occurrences of all operators."""
    return sum((p.cost for p in placed), Cost())


def sum_of(placed: Iterable[Placed], hidden: Expected = NO_TIME) -> Expected | None:
    """The sum of the expected times over all occurrences of all operators; None where one is unknown.

    `hidden` is the time of collectives that overlaps with kernels.

    The intervals of kernels add: their errors have common causes, such as the version of the library. Only this sum
    contains 80 % of the measured steps on one GPU (docs/accuracy.md). Collectives were measured separately, on other
    machines, so that their errors are independent of those of the kernels.
    """
    kernels, exchanges = NO_TIME, None
    for each in placed:
        if each.expected is None:
            return None
        time = each.operator.count * each.expected
        if each.operator.collective is None:
            kernels = kernels + time
        else:
            exchanges = time if exchanges is None else exchanges + time
    return kernels if exchanges is None else independent_sum(kernels, exchanges + -1 * hidden)


def launches(placed: Iterable[Placed]) -> Number:
    """The number of kernels of these operators, over all occurrences."""
    return sum(each.operator.count for each in placed)


def seconds_by_kind(placed: Iterable[Placed]) -> tuple[Number, Number | None]:
    """The sums of the bounds over all occurrences: of collectives (None without any), and of the other operators with
    the sends between pipeline stages, for which the next stage waits."""
    others, exchanges = 0, None
    for each in placed:
        if not each.is_collective:
            others = others + each.seconds
        else:
            exchanges = each.seconds if exchanges is None else exchanges + each.seconds
    return others, exchanges


def total_seconds(placed: Iterable[Placed]) -> Number:
    """The bound of all operators: the larger of the sum of the collectives and that of the others, which overlap at
    best."""
    others, exchanges = seconds_by_kind(placed)
    return others if exchanges is None else maximum(others, exchanges)


def totals_of(placed: Sequence[Placed]) -> dict[str, Any]:
    """The totals that follow from the operators alone."""
    cost = total_cost(placed)
    return {
        "matmul_flops": cost.matmul_flops,
        "vector_flops": cost.vector_flops,
        "bytes": cost.bytes,
        "weight_bytes": cost.weight_bytes,
        "kv_cache_bytes": cost.cache_bytes,
        "link_bytes": plain(cost.link_bytes),
        "bound_seconds": total_seconds(placed),
    }
