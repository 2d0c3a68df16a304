"""A sweep over workloads, models, devices and formats: the totals of an estimate at each point of the grid.

Batch, lengths and context are arrays: one pass over the model counts and times all their combinations. Each
combination of the other options (model, device, phase, formats, ...) is a case. Points are evaluated in blocks, so that
memory stays bounded for any size of the grid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple, get_args

from roofmodel.counting import phases
from roofmodel.counting.workload import Parallel, Routing, Workload
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.engines.former_options import removed_option
from roofmodel.errors import AnswerNote, Message, Option, Text, WarningNote, WorkloadError, choices, joined, shorten
from roofmodel.models.architecture import Architecture
from roofmodel.options.values import (
    SERVE,
    Declared,
    RoutingMode,
    as_sequence,
    checked_value,
    engine_layout,
    settings_axis,
)
from roofmodel.options.workload import DECLARED, REMOVED, Options, key_of
from roofmodel.report.conditions import Condition
from roofmodel.steps.estimate import totals
from roofmodel.steps.notes import (  # fmt: skip
    device_notes,
    exceeds_positions,
    halves_notes,
    kernel_notes,
    weight_format_notes,
)
from roofmodel.steps.options import check_kernels, default_engine, engine_figures, options_in_effect, workload
from roofmodel.steps.parallelism import GPUS
from roofmodel.steps.phase import slowest_stage
from roofmodel.steps.placed import power_notes, under_load
from roofmodel.steps.routing import read_routing, routing_notes
from roofmodel.sweep import grid
from roofmodel.sweep.case import (
    COLUMNS,
    COUNTS,
    FORMAT_OPTIONS,
    INT64_EXACT,
    LENGTHS,
    SCALING_COLUMNS,
    SERVING_COLUMNS,
    Columns,
    GridCase,
    evaluate,
)
from roofmodel.sweep.scaling_laws import Scaling
from roofmodel.sweep.tables import SERVICE_OPTIONS

MAX_CASES = 10_000
"""Limit of the combinations of models, devices and options other than batch and lengths. Each takes some 10 ms."""
MAX_POINTS_IN_MEMORY = 10**6
"""Limit of the points that are kept for a second output; a point takes about 500 bytes. More are computed again."""


class Order(NamedTuple):
    """The column that the rows are sorted by; unknown values are last in either direction."""

    columns: tuple[str, ...]  # the value of a row is that of the first that is known
    descending: bool
    text: str


class Sweep(NamedTuple):
    """The cases of a grid, evaluated on demand."""

    cases: tuple[GridCase, ...]
    notes: tuple[Text, ...]
    cluster: str | None = None  # a Dask scheduler's address, or `local`
    rows: tuple[Columns, ...] | None = None  # by block; None until they are in memory
    where: tuple[Condition, ...] = ()  # the conditions that `rows` satisfy
    sort: Order | None = None  # of `rows`; None: the order of the grid
    scaling: Scaling | None = None  # of a sweep over numbers of GPUs
    serving: bool = False  # whether the points are services: `--phase serve`
    progress: Callable[[str, int, int], None] = lambda subject, done, total: None  # called after each evaluated block

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its rows."""
        further = SCALING_COLUMNS if self.scaling else SERVING_COLUMNS if self.serving else ()
        return (*COLUMNS, *further)

    @property
    def points(self) -> int:
        return sum(case.points for case in self.cases)

    @property
    def row_count(self) -> int:
        """The number of rows: the points, or those that satisfy the conditions."""
        return self.points if self.rows is None else sum(len(block["batch"]) for block in self.rows)

    def blocks(self) -> Iterator[Columns]:
        """The rows in the order of the grid, block by block, each evaluated on demand."""
        if self.rows is not None:
            return iter(self.rows)
        pieces = (piece for case in self.cases for piece in case.blocks())
        if self.cluster is None:
            return self._reported(map(evaluate, pieces))
        from roofmodel.sweep.dask_cluster import evaluate_on_cluster

        return self._reported(evaluate_on_cluster(evaluate, pieces, self.cluster))

    def _reported(self, blocks: Iterator[Columns]) -> Iterator[Columns]:
        done = 0
        for block in blocks:
            done += len(block["batch"])
            self.progress("points", done, self.points)
            yield block

    def in_memory(self) -> Sweep:
        """The sweep with all rows in memory, for repeated use; unchanged above MAX_POINTS_IN_MEMORY points."""
        return self if self.points > MAX_POINTS_IN_MEMORY else self._replace(rows=tuple(self.blocks()))


def sweep(
    models: Sequence[Architecture],
    devices: Sequence[Device],
    *,
    price: float | str | Mapping[str, float] | None = None,
    cluster: str | None = None,
    progress: Callable[[str, int, int], None] = lambda subject, done, total: None,
    largest: Mapping[str, Any] | None = None,
    **options: Any,
) -> Sweep:
    """The grid of all combinations of models, devices and the values of each option.

    The options are the options of an estimate; each accepts several values, as text (`1:256:*2`, `fp16,fp8`) or as a
    sequence. An invalid combination, such as a format that the device lacks, is a row without totals, whose note gives
    the reason. `price` is in dollars per hour: one number for all devices, or one for each (`a100=1.5,h100=3`).
    `progress` is called with "points", the number of evaluated points, and the number of all. `largest` has options of
    the largest layout, whose default engine all points use, where it is not part of the grid. Raises WorkloadError for
    an invalid value, and if no combination is valid.
    """
    axes = {name: axis(name, values, DECLARED) for name, values in options.items() if values is not None}
    chosen_names = [name for name in axes if name not in LENGTHS]
    largest = {name: max(axes[name]) for name in ("tp", "dp", "pp") if axes.get(name)} | dict(largest or {})
    lengths = {name: tuple(axes[name]) for name in LENGTHS if name in axes}
    _check_cases(len(models) * len(devices), {name: len(axes[name]) for name in chosen_names})
    for name in axes.get("engine", ()):
        check_kernels(Engine.load(name), devices)
    prices = prices_by_device(price, devices)
    cases: dict[object, GridCase] = {}
    notes: dict[Text, None] = {}
    for arch in models:
        notes |= dict.fromkeys(arch.notes)
        for device, values in product(devices, product(*(axes[name] for name in chosen_names))):
            chosen = dict(zip(chosen_names, values, strict=True))
            for case in _all_cases(arch, device, _with_engine(arch, chosen, largest), lengths, notes):
                key = (id(arch), id(device), tuple(case.labels.items()), case.lengths)  # files may share a name
                cases.setdefault(key, case._replace(price=prices.get(device.id)))
    if not cases:
        raise WorkloadError(
            "nothing to sweep: no model, no device, or an option without a value; give at least one of each"
        )
    refusals = [case.refused for case in cases.values() if case.refused]
    if len(refusals) == len(cases):
        raise WorkloadError(refusals[0])
    if prices and (others := {device.id for device in devices} - prices.keys()):
        notes[
            Message(Option("price"), f" is missing for {', '.join(sorted(others))}: their cost per token is unknown")
        ] = None
    return Sweep(tuple(cases.values()), tuple(notes), cluster, progress=progress)


def _check_cases(systems: int, values: Mapping[str, int]) -> None:
    """Raises WorkloadError for more than MAX_CASES combinations of models, devices and options other than lengths."""
    if (count := systems * prod(values.values())) > MAX_CASES:
        several = sorted((name for name in values if values[name] > 1), key=lambda name: -values[name])
        suggestion: list[Text] = [" of ", joined(", ", [Option(name) for name in several])] if several else []
        raise WorkloadError(
            f"{count} combinations of models, devices and options other than batch and lengths; at most {MAX_CASES} "
            "are possible; give fewer values",
            *suggestion,
        )


def axis(name: str, axis_values: object, declared: Mapping[str, Declared]) -> list[Any]:
    """The values of one of these options. Raises WorkloadError for invalid ones."""
    if name in REMOVED:
        raise removed_option(name, axis_values)
    if name not in declared:
        raise WorkloadError(f"unknown option {name!r}{choices(name, declared)}")
    option = declared[name]
    if option.kind == "settings":
        return [*settings_axis(name, axis_values)]
    if option.kind == "count":
        limit = grid.MAX_VALUES if name in LENGTHS else MAX_CASES
        return grid.numbers(name, axis_values, option.minimum, int(option.maximum), limit)
    if option.kind == "power":
        return grid.powers(name, axis_values)
    if option.check is engine_layout:  # a text is one layout, which has commas itself
        several = [axis_values] if isinstance(axis_values, Mapping) else as_sequence(axis_values)
    else:
        several = grid.names(axis_values)
    values = [checked_value(name, value, option) for value in several]
    return _routings(values) if name == "routing" else values


def _routings(axis_values: Iterable[object]) -> list[Routing | str]:
    """Each value of the option `routing`: a mode as text, a file as a Routing whose name no other value has."""
    routings = list(dict.fromkeys(map(read_routing, axis_values)))
    names = Counter([*get_args(RoutingMode), *(routing.name for routing in routings if routing.shares)])
    unique = [routing._replace(name=routing.given) if names[routing.name] > 1 else routing for routing in routings]
    return [routing if routing.shares else routing.name for routing in unique]


def prices_by_device(prices: float | str | Mapping[str, float] | None, devices: Sequence[Device]) -> dict[str, float]:
    """Dollars per hour, by device."""
    if isinstance(prices, str) and "=" in prices:
        prices = {name: price for name, _, price in (part.partition("=") for part in prices.split(","))}  # type: ignore[misc]
    if prices is None:
        return {}
    if not isinstance(prices, Mapping):
        return dict.fromkeys((device.id for device in devices), _price(prices))
    by_device = {Device.load(name.strip()).id: _price(price) for name, price in prices.items()}
    if unknown := by_device.keys() - {device.id for device in devices}:
        raise WorkloadError(Option("price"), f": {', '.join(sorted(unknown))} is not a device of ", Option("hw"))
    return by_device


def _price(value: object) -> float:
    try:
        price = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        price = -1.0
    if not 0 < price < float("inf"):
        raise WorkloadError(
            Option("price"),
            f": {shorten(value)} is not a valid price; try ",
            Option("price", "2.5"),
            ", or ",
            Option("price", "a100=1.5,h100=3"),
        )
    return price


def of_services(options: Mapping[str, Any]) -> bool:
    """Whether the points are services: `--phase serve`. Raises WorkloadError for its options in another sweep, and for
    other phases beside it."""
    phases_of = grid.names(options["phase"]) if options.get("phase") is not None else []
    given = [Option(name, options[name]) for name in SERVICE_OPTIONS if options.get(name) is not None]
    if SERVE not in phases_of and given:
        raise WorkloadError(given[0], " needs ", Option("phase", SERVE))
    if SERVE in phases_of and len(phases_of) > 1:
        raise WorkloadError(
            Option("phase", SERVE), " cannot be swept with other phases, whose rows have other totals; sweep it alone"
        )
    return SERVE in phases_of


# --- Cases ------------------------------------------------------------------------------------------


def _with_engine(arch: Architecture, chosen: Mapping[str, Any], largest: Mapping[str, Any]) -> dict[str, Any]:
    """The options with an engine: without one, the default of the largest layout, so that layouts are comparable."""
    if chosen.get("engine") is not None:
        return dict(chosen)
    phase: Any = chosen.get("phase") or ("decode" if arch.generates else "forward")
    options = Options(**{"data_parallel": chosen.get("data_parallel"), **largest})
    return {**chosen, "engine": default_engine(arch, (phase,), options)}


def _all_cases(
    arch: Architecture, device: Device, chosen: Mapping[str, Any], lengths: Mapping[str, tuple[int, ...]],
    notes: dict[Text, None],
) -> Iterator[GridCase]:  # fmt: skip
    """The cases of batches that can be divided evenly among replicas and stages, then of the other batches."""
    batches, sizes = lengths.get("batch", (1,)), {option: chosen.get(option, 1) for option in GPUS}
    divisor = Parallel(**sizes).batch_divisor(chosen.get("phase") == "train", chosen.get("micro_batch"))
    groups = [tuple(n for n in batches if (n % divisor == 0) == even) for even in (True, False)]
    for some in filter(None, groups):
        yield from _cases(arch, device, chosen, {**lengths, "batch": some} if "batch" in lengths else lengths, notes)


def _cases(
    arch: Architecture, device: Device, chosen: Mapping[str, Any], lengths: Mapping[str, tuple[int, ...]],
    notes: dict[Text, None],
) -> Iterator[GridCase]:  # fmt: skip
    """A case per phase. Adds warnings and remarks to `notes`."""
    if "phase" in chosen:
        yield _case(arch, device, chosen, lengths, notes)
        return
    for phase in ("prefill", "decode") if arch.generates else ("forward",):
        # with both phases, --context applies to decode only
        applying = {name: values for name, values in lengths.items() if name != "context" or phase != "prefill"}
        yield _case(arch, device, {"phase": phase, **chosen}, applying, notes)


def _case(
    arch: Architecture, device: Device, chosen: Mapping[str, Any], lengths: Mapping[str, tuple[int, ...]],
    notes: dict[Text, None],
) -> GridCase:  # fmt: skip
    """A phase with the lengths that apply. Evaluates the largest lengths as plain ints, for notes and checks."""
    dtype = chosen.get("dtype", "fp16")
    columns = {key_of(name): value for name, value in chosen.items()}
    columns |= {"engine_option": _settings_text(columns.get("engine_option") or ())}
    if "routing" in columns:
        columns["routing"] = getattr(chosen["routing"], "name", chosen["routing"])
    labels = {"model": arch.name, "hardware": device.id, **dict.fromkeys(("dtype", *FORMAT_OPTIONS), dtype), **columns}
    try:
        work, remarks = workload(arch, device, **{**chosen, **{name: max(values) for name, values in lengths.items()}})
        device = under_load(device, work.options)
        (step,) = work.steps()
        phase, weights = slowest_stage(arch, device, step, work.engine), phases.weight_bytes(arch, step)
        counted = [phase.operators] if step.parallel.pp == 1 else None  # with a pipeline, those of one stage only
        peak = phases.phase_memory(arch, step, weights, counted)
    except WorkloadError as error:
        return GridCase(labels, tuple(lengths.get(name, ()) for name in LENGTHS), arch, device, refused=str(error))
    formats = weight_format_notes(arch, work, phase.operators)
    routed = routing_notes(arch, work.routing, work.parallel.ep)
    timed = [*kernel_notes(device, work, [phase]), *power_notes(device, work.options, [])]
    notes |= dict.fromkeys([*remarks, *device_notes(device, work), *formats, *routed, *timed])
    smallest, _ = workload(arch, device, **{**chosen, **{name: min(values) for name, values in lengths.items()}})
    of_smallest = slowest_stage(arch, device, smallest.steps()[0], work.engine)
    notes |= dict.fromkeys(halves_notes(work, [of_smallest, phase]))
    if of_smallest.launch_bound:
        notes[
            AnswerNote(
                f"{step.phase} is launch-bound at small sizes: the host's launches take the same time on every "
                "device; see ",
                Option("engine_option", "launch=graph"),
            )
        ] = None
    if exceeds_positions(arch, work):
        notes[
            WarningNote(f"points beyond the maximum positions of {arch.name} are marked; the limit is not enforced")
        ] = None
    unused = {
        *(["seq"] if arch.image else []),
        *([] if arch.encoder else ["decoder_seq"]),
        *(["context"] if work.context is None else []),
    }
    counts = [peak.total, *(value for name, value in totals(phase).items() if name in COUNTS)]
    return GridCase(
        {**labels, **labels_of(arch, work)},
        tuple(() if name in unused else lengths.get(name, ()) for name in LENGTHS), arch, device, work=work,
        weights=weights, fits_int64=max(counts) < INT64_EXACT,
        fractional=any(isinstance(count, float) for count in counts),
    )  # fmt: skip


def labels_of(arch: Architecture, work: Workload) -> dict[str, Any]:
    """The columns of the options except lengths; None for options that do not apply."""
    values = options_in_effect(arch, work)
    image = values["image"]
    values["image"] = image[0] if image and image[0] == image[1] else None  # not square: fixed by the model
    values["engine_option"] = _settings_text(work.engine.settings)
    columns = {key_of(name): value for name, value in values.items() if name not in LENGTHS}
    return columns | engine_figures(work.engine)


def _settings_text(settings: Sequence[tuple[str, str]]) -> str | None:
    return ",".join(f"{key}={value}" for key, value in settings) or None
