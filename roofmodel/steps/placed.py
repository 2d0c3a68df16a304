"""Operators of a phase with bounds, expected times, power and energy; their sums, and their times under long load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import groupby
from operator import add
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from roofmodel.counting.operator import Cost, Operator
from roofmodel.devices.device import Device
from roofmodel.devices.parts import Power, stated_rates
from roofmodel.errors import AnswerNote, Message, Option, Text, WorkloadError, ignored
from roofmodel.numbers.algebra import Number, either, maximum, minimum, plain
from roofmodel.options.values import Sustained
from roofmodel.timing.engine import Run
from roofmodel.timing.roofline import POWER_SPREAD, SPREAD, Draw, Energy, Placement, draw, has_load_figures, place
from roofmodel.timing.timing import Expected, independent_sum

if TYPE_CHECKING:
    from roofmodel.timing.extra_kernels import ExtraKernel

NO_TIME = Expected(0.0, 0.0, 0.0)


class Placed(NamedTuple):
    """An operator, with bound and expected time of one occurrence.

    In the rows of `by_kernel`, an operator that runs in the kernels of others has `fused_into`, their names, and no
    expected time; the row of a kernel that computes several operators has its whole time, and what `kernel` moves.
    """

    operator: Operator
    placement: Placement
    expected: Expected | None = None  # with the extra kernels that a framework runs for the operator
    run: Run = Run(None)  # how the engine runs it
    energy: Energy | None = None  # of one occurrence; None where the device states none
    fused_into: tuple[str, ...] = ()
    kernel: Placement | None = None
    computes: tuple[str, ...] = ()  # the operators of `kernel`
    hidden: Expected = NO_TIME  # of an exchange: what kernels beside it hide in inference (`overlap.py`)

    @property
    def extra_kernels(self) -> tuple[ExtraKernel, ...]:
        """The kernels that a framework runs besides the operator's own."""
        return self.run.extra_kernels

    @property
    def kernel_placement(self) -> Placement | None:
        """What its kernel must move, with the other operators that the kernel computes; None in another's kernel."""
        return None if self.fused_into else self.kernel or self.placement

    @property
    def evidence(self) -> str:
        """What its expected time is from; `fused` where the time is that of another row."""
        return "fused" if self.fused_into else self.run.evidence

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
        return either(self.is_limited_by_power, "power", (self.kernel or self.placement).bound)

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

    None: unknown, because a part of it has no expected time. `saved_in_layers` is what overlap saves in the
    layers in every microbatch.
    """

    copies: Expected | None = NO_TIME
    contention: Expected | None = NO_TIME
    waiting: Expected | None = NO_TIME  # for the slowest replica
    hidden: Expected | None = NO_TIME
    saved_in_layers: Expected = NO_TIME

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

    `hidden` is the time of collectives that overlaps with kernels, besides what each one states.

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
            if each.hidden is not NO_TIME:
                time = time + -each.operator.count * each.hidden
            exchanges = time if exchanges is None else exchanges + time
    return kernels if exchanges is None else independent_sum(kernels, exchanges + -1 * hidden)


def hidden_of(placed: Iterable[Placed]) -> Expected:
    """What kernels hide of the collectives among these operators, over all occurrences."""
    return sum((each.operator.count * each.hidden for each in placed if each.hidden is not NO_TIME), NO_TIME)


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


# --- One row for each kernel ------------------------------------------------------------------------

_Occurrence = tuple[int, int | None]
"""The place of an operator among those of a phase, and the layer; None outside layers."""


def by_kernel(placed: Sequence[Placed], bandwidth: Number) -> list[list[Placed]]:
    """The rows of each operator, with the time of a fused kernel in those of its main operator; totals do not change.

    An operator has several rows where the kernels of its occurrences compute different operators, such as the norm of
    the first layer, which no residual add precedes. `bandwidth` is that of DRAM, in bytes per second.
    """
    members: dict[_Occurrence, list[Placed]] = {}
    names: dict[int, dict[str, None]] = {}  # of the main operators
    for (index, _), main in main_occurrences(placed).items():
        members.setdefault(main, []).append(placed[index])
        names.setdefault(index, {})[placed[main[0]].operator.name] = None
    rows: list[list[Placed]] = []
    for index, each in enumerate(placed):
        if index in names:
            rows.append([each._replace(expected=None, fused_into=tuple(names[index]))])
            continue
        parts: dict[tuple[int, ...], list[int | None]] = {}
        for layer in _layers_of(each):
            parts.setdefault(tuple(map(id, members.get((index, layer), ()))), []).append(layer)
        rows.append([])
        for layers in parts.values():
            of_part = members.get((index, layers[0]), ())
            part = each if len(parts) == 1 else _in_layers(each, layers)
            rows[-1].append(with_members(part, of_part, bandwidth) if of_part else part)
    return rows


def main_occurrences(placed: Sequence[Placed]) -> dict[_Occurrence, _Occurrence]:
    """The main operator in whose kernel each fused occurrence runs, such as a residual add in a norm."""
    order = _Order(placed)
    fused = {
        (index, layer): main
        for index, each in enumerate(placed)
        if each.run.absorbed or (each.run.merged and each.operator.name != each.run.merged[0])
        for layer in order.layers[index]
        if (main := order.main(index, layer)) is not None
    }
    mains = {}
    for occurrence, main in fused.items():
        while main in fused:  # a residual add in a norm in an all-reduce
            main = fused[main]
        mains[occurrence] = main
    return mains


def _layers_of(placed: Placed) -> tuple[int | None, ...]:
    return placed.operator.layers or (None,)


def _in_layers(placed: Placed, layers: Iterable[int | None]) -> Placed:
    own = tuple(layer for layer in layers if layer is not None)
    return placed._replace(operator=replace(placed.operator, layers=own))


def with_members(main: Placed, others: Sequence[Placed], bandwidth: Number) -> Placed:
    """An operator whose kernel computes others, too, with the time of all, and what the kernel must move."""
    every = [main, *others]
    saved = sum(_saved_bytes(other) for other in others)
    cost = sum((each.placement.cost for each in every), Cost())
    matmul, vector, memory, link = (sum(times) for times in zip(*(each.placement[1:-1] for each in every), strict=True))
    memory = memory - saved / bandwidth
    least = reduce(maximum, (matmul, vector, memory, link))
    energies = [each.energy for each in every if each.energy is not None]
    work = sum(energy.work for energy in energies)
    return main._replace(
        expected=_sum_of([each.expected for each in every]),
        run=main.run._replace(expected=_sum_of([each.run.expected for each in every])),
        energy=Energy(energies[0].idle_watts, work) if len(energies) == len(every) else None,
        computes=tuple(dict.fromkeys(each.operator.name for each in every)),
        kernel=Placement(replace(cost, bytes_read=cost.bytes_read - saved), matmul, vector, memory, link, least),
    )


def _sum_of(times: Sequence[Expected | None]) -> Expected | None:
    known_times = [time for time in times if time is not None]
    return reduce(add, known_times) if len(known_times) == len(times) else None


def _saved_bytes(fused: Placed) -> Number:
    """Bytes that a kernel does not read: the sum of a residual add, in registers, or the input that GEMMs share."""
    operator = fused.operator
    if fused.run.merged:
        return operator.bytes_of(operator.reads[0])
    return operator.bytes_of(operator.writes[0]) if operator.group == "residual" else 0


class _Order:
    """The order in which the operators of a phase run: layer by layer, each with its operators in order."""

    def __init__(self, placed: Sequence[Placed]) -> None:
        self.placed = placed
        self.layers = [*map(_layers_of, placed)]
        self._in_layer = [frozenset(layers) for layers in self.layers]
        self._spans: list[tuple[range, list[int | None], dict[int | None, int]]] = []  # places, layers, their ranks
        for _, run in groupby(range(len(placed)), key=lambda index: _span(placed[index].operator)):
            places = [*run]
            layers: list[int | None] = [
                *sorted({layer for index in places for layer in placed[index].operator.layers or ()})
            ]
            span = range(places[0], places[-1] + 1), layers, {layer: rank for rank, layer in enumerate(layers)}
            self._spans += [span] * len(places)

    def main(self, index: int, layer: int | None) -> _Occurrence | None:
        """The occurrence whose kernel computes this operator in this layer."""
        run, operators = self.placed[index].run, [each.operator for each in self.placed]
        if run.merged:
            return self._neighbor(index, layer, -1, lambda other: operators[other].name == run.merged[0])
        found = None
        if run.absorbed == "residual":
            found = self._neighbor(index, layer, 1, lambda other: operators[other].kind == "norm")
        elif run.absorbed == "all_reduce_norm":
            found = self._neighbor(index, layer, -1, lambda other: operators[other].collective is not None)
        elif run.absorbed == "rotary":
            found = self._neighbor(index, layer, 1, self._is_kernel)
        return found or self._neighbor(index, layer, -1, self._is_kernel)

    def _is_kernel(self, index: int) -> bool:
        return not self.placed[index].run.absorbed and self.placed[index].operator.collective is None

    def _neighbor(
        self, index: int, layer: int | None, step: Literal[1, -1], accepts: Callable[[int], bool]
    ) -> _Occurrence | None:
        """The next occurrence of an accepted operator: in this layer, in the one after it, or outside; -1: before."""
        span, layers, ranks = self._spans[index]
        for other in span[index - span.start :: step][1:]:
            if layer in self._in_layer[other] and accepts(other):
                return other, layer
        rank = ranks[layer] + step if layer is not None else -1
        if 0 <= rank < len(layers):
            for other in span[::step]:
                if layers[rank] in self._in_layer[other] and accepts(other):
                    return other, layers[rank]
        for other in range(span.stop, len(self.placed)) if step == 1 else range(span.start - 1, -1, -1):
            if accepts(other) and self.placed[other].operator.stage == self.placed[index].operator.stage:
                return other, self.layers[other][0 if step == 1 else -1]
        return None


def _span(operator: Operator) -> tuple[str, bool, bool]:
    return operator.stage, operator.layers is not None, operator.group.startswith("encoder ")


class LoadSettings(NamedTuple):
    """Whether a GPU is under long load, and its power limit in watts; None: that of its file."""

    sustained: Sustained | None = "off"
    power_limit: float | str | None = None


SHORT = LoadSettings()


class LoadOptions(Protocol):
    """The same options of a workload or a request."""

    @property
    def sustained(self) -> Sustained | None: ...
    @property
    def power_limit(self) -> float | str | None: ...


def under_load(device: Device, options: LoadOptions) -> Device:
    """The device under the load that checked options describe. Raises WorkloadError for too low a power limit."""
    device = replace(device, is_sustained=options.sustained == "on")
    if options.power_limit is None or device.power is None:
        return device
    limit, idle = float(options.power_limit), device.power.idle
    if limit <= idle:
        raise WorkloadError(
            Option("power_limit"), f" is {limit:g} W; {device.id} draws {idle:g} W at boost clock without work; try ",
            Option("power_limit", f"{device.power.limit:g}W"),
        )  # fmt: skip
    return replace(device, power=device.power._replace(limit=limit))


def load_notes(device: Device, options: LoadOptions) -> Iterator[Text]:
    """The options that change nothing on a device."""
    if device.power is None:
        why = f"the file of {device.id} states no power"
        if options.power_limit is not None:
            yield ignored("power_limit", why)
        if options.sustained in ("on", True) and not stated_rates(device.measured):
            yield ignored("sustained", f"{why} and no sustained rates")


def power_notes(device: Device, options: LoadOptions, phases: Iterable[tuple[str, float | None]]) -> Iterator[Text]:
    """What the power limit of a device means for phases, each with its mean watts (None if unknown)."""
    power = device.power
    if power is None:
        return
    beyond = [(name, watts) for name, watts in phases if watts is not None and watts > power.limit]
    if beyond and options.sustained == "off":
        names = " and ".join(f"{name} ({watts:.0f} W)" for name, watts in beyond)
        yield Message(
            f"{names} would exceed the limit of {power.limit:.0f} W if it lasts for seconds; ",
            Option("sustained", "on"), " has the times under this limit",
        )  # fmt: skip
    if options.power_limit is not None:
        yield AnswerNote(
            "energies of a FLOP and a byte are those at the limit in the device's file; a lower limit lowers clock and "
            "voltage and with them the energy, so that times under ", Option("power_limit"), " are upper bounds",
        )  # fmt: skip


def with_power(placed: Sequence[Placed], device: Device, dtype: str, generates: bool = False) -> list[Placed]:
    """The operators with their energies, and on a device under long load with the times that it sustains.

    The prefill and the decodes of generation are two loads; other phases are one. Exchanges between replicas, which
    overlap with other kernels, are no part of it.
    """
    if not has_load_figures(device):
        return [*placed]
    result, loads = [*placed], dict[str, list[int]]()
    for position, each in enumerate(placed):
        if each.expected is not None and not (each.operator.collective and each.operator.runs_once_per_step):
            loads.setdefault(each.operator.stage if generates else "", []).append(position)
    for places in loads.values():
        times = [time for position in places if (time := placed[position].expected)]
        draws = [
            draw(each.placement.cost, device, each.operator.compute_dtype(dtype), time.value)
            for each, time in zip([placed[position] for position in places], times, strict=True)
        ]
        if device.is_sustained:
            times = lengthened([placed[position].operator.count for position in places], times, draws)
        for position, time, drawn in zip(places, times, draws, strict=True):
            result[position] = placed[position]._replace(expected=time, energy=drawn.energy)
    return result


def lengthened(counts: Sequence[Number], times: Sequence[Expected], draws: Sequence[Draw]) -> list[Expected]:
    """The times of operators that run one after another, in a step that is repeated for long."""
    seconds = [maximum(time.value, each.seconds) for time, each in zip(times, draws, strict=True)]
    beyond = [maximum(each.budget_seconds - own, 0.0) for own, each in zip(seconds, draws, strict=True)]
    kernels, least, all_beyond = (
        sum(count * each for count, each in zip(counts, values, strict=True))
        for values in (seconds, [each.budget_seconds for each in draws], beyond)
    )
    share = maximum(least - kernels, 0.0) / maximum(all_beyond, 1e-30)
    return [
        _lengthened(time, own + share * more) for time, own, more in zip(times, seconds, beyond, strict=True)
    ]  # fmt: skip


def _lengthened(time: Expected, seconds: Number) -> Expected:
    """A longer time in an interval as wide as the evidence; the same time as it is."""
    is_longer = seconds > time.value
    low, high = (
        either(is_longer, maximum(end, spread * seconds), end) for end, spread in zip(time[1:], SPREAD, strict=True)
    )
    return time._replace(value=seconds, low=low, high=high)


ENERGY_KEYS = ("power_watts", "power_low_watts", "power_high_watts", "energy_joules", "joules_per_token")


def step_energy(
    placed: Iterable[Placed], expected: Expected | None, power: Power | None, gpus: Number, tokens: Number | None
) -> dict[str, Any]:
    """Mean watts of a GPU in a step of `expected` seconds with their interval, joules of one GPU, and joules of all
    GPUs for each of `tokens` new tokens, by their JSON keys; None if unknown. Without tokens there is no such key.

    A GPU that waits, for the host or for other GPUs, draws its power without work at boost clock.
    """
    unknown: dict[str, Any] = dict.fromkeys(ENERGY_KEYS if tokens is not None else ENERGY_KEYS[:-1])
    kernels = [each for each in placed if not each.operator.collective]
    work = [each.operator.count * each.energy.work for each in placed if each.energy is not None]
    if power is None or expected is None or any(each.energy is None for each in kernels):
        return unknown
    seconds = plain(expected.value)
    watts = power.idle + plain(sum(work)) / seconds
    low, high = (minimum(spread * watts, maximum(watts, power.limit)) for spread in POWER_SPREAD)
    values = (watts, low, high, watts * seconds, None if tokens is None else watts * seconds * gpus / tokens)
    return dict(zip(unknown, values, strict=False))
