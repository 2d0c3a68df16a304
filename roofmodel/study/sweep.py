"""A grid of workloads, models, devices and widths -> the totals that an estimate of each point has.

Batch, lengths and context are arrays: all of their combinations are counted and timed by one walk through the same
code that takes the ints of an estimate. Everything else (model, device, phase, formats, ...) makes a case of its own.
A block of points is evaluated at a time, so that memory stays bounded however large the grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

from roofmodel.algebra import Number, either, is_just, maximum
from roofmodel.counting import phases
from roofmodel.counting.workload import Parallel, Workload
from roofmodel.devices import library
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError, choices, shorten
from roofmodel.models.architecture import Architecture, Network
from roofmodel.study import grid
from roofmodel.study.estimate import CHOICES, LEAST, LONGEST, check_choice, options, within, workload
from roofmodel.study.notes import beyond, device_notes, timing_notes, use_notes
from roofmodel.study.parallel import GPUS, multiple
from roofmodel.study.phase import PhaseEstimate, totals
from roofmodel.study.pipeline import of_stages, paces, slowest

BLOCK = 2**15
"""Points that are evaluated together: a few arrays of them fit in a core's cache. Some hundred are alive at once."""
KEPT = 31 * 2**20
"""Bytes, of which the C library keeps twice as many for the next arrays: more than those of a block."""
NARROW = 2**60
"""Totals up to which int64 is exact: nothing on the way to a total is more than eight times as large."""

LENGTHS = ("batch", "seq", "decoder_seq", "context")
"""The options whose values become arrays."""
NAMED = (
    "dtype", "weights", "kv", "activations", "attention", "runtime", "logits", "mla", "optimizer", "recompute",
    "sequence_parallel",
)  # fmt: skip
FORMATTED = ("weights", "kv", "activations")
"""Of them, formats that are `dtype` where nothing else is said."""
COUNTS = ("matmul_flops", "vector_flops", "bytes", "weight_bytes", "kv_cache_bytes", "matmul_flops_all_pairs")
TOTALS = (
    *COUNTS, "link_bytes", "kernels", "bound_seconds", "communication_seconds", "expected_communication_seconds",
    "bubble_seconds", "expected_bubble_seconds",
    "expected_seconds", "expected_low_seconds", "expected_high_seconds", "bound_tokens_per_second",
    "bound_images_per_second", "tokens_per_second", "images_per_second", "mfu", "hfu", "mbu",
    "host_bound",
)  # fmt: skip
ROLES = ("weights", "kv_cache", "activations", "gradients", "optimizer", "total")
FOUND = (
    *TOTALS, "bound", "memory_share", *(f"memory_{role}" for role in ROLES), "fits", "dollars_per_million_tokens",
    "bound_dollars_per_million_tokens", "note",
)  # fmt: skip
COLUMNS = (
    "model", "hardware", "phase", *LENGTHS, "new_tokens", "image", *NAMED, *GPUS, "micro_batch", *FOUND,
)  # fmt: skip
"""Of a row. `bound` is the roof that most of the bound's time is due to, or overhead where the host's launches are
expected to take longer than the kernels; `memory_share` is memory's part of the bound. Counts, times and memory are
those of one GPU, rates those of all."""

Columns = dict[str, Any]
"""Column -> an array with an element a point, or what all points have in common; None for unknown."""


class Case(NamedTuple):
    """What the points of a part of the grid have in common, and the lengths that they combine."""

    labels: Mapping[str, Any]  # of the row: model, hardware, phase, ...
    lengths: tuple[tuple[int, ...], ...]  # by LENGTHS; empty where the option was not given or does not apply
    arch: Architecture
    device: Device
    price: float | None = None  # dollars an hour
    refused: str | None = None  # why there is nothing to count; else what follows
    work: Workload | None = None  # one phase; its lengths are the largest
    weights: Number = 0  # bytes, of the whole model
    narrow: bool = True  # whether int64 holds all counts
    fractional: bool = False  # whether some count is the expectation of a router that chooses evenly

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each length has."""
        return tuple(max(1, len(values)) for values in self.lengths)

    @property
    def points(self) -> int:
        return prod(self.shape)

    def blocks(self, most: int = BLOCK) -> Iterator[Case]:
        """Cases of at most so many points that make up this one, in order."""
        for cut in grid.blocks(self.shape, most):
            yield self._replace(lengths=tuple(v[piece] for v, piece in zip(self.lengths, cut, strict=True)))


class Sweep(NamedTuple):
    """A grid, ready to be evaluated."""

    cases: tuple[Case, ...]
    notes: tuple[str, ...]
    cluster: str | None = None  # of Dask: an address, or `local`
    found: tuple[Columns, ...] | None = None  # its rows, where they are kept

    @property
    def points(self) -> int:
        return sum(case.points for case in self.cases)

    def blocks(self) -> Iterator[Columns]:
        """The rows in the order of the grid, a block at a time, each evaluated when it is asked for."""
        if self.found is not None:
            return iter(self.found)
        pieces = (piece for case in self.cases for piece in case.blocks())
        if self.cluster is None:
            return map(evaluate, pieces)
        from roofmodel.study.cluster import evaluated

        return evaluated(evaluate, pieces, self.cluster)

    def kept(self) -> Sweep:
        """The same with all rows in memory, for whoever wants them more than once."""
        return self._replace(found=tuple(self.blocks()))


def sweep(
    models: Sequence[Architecture],
    devices: Sequence[Device],
    *,
    price: float | str | Mapping[str, float] | None = None,
    cluster: str | None = None,
    **asked: Any,
) -> Sweep:
    """The grid of all combinations of models, devices and the values of each option.

    The options are those of an estimate; each may say several values, as text (`1:256:*2`, `fp16,fp8`) or as a
    sequence. Combinations that cannot be, as of a type and a device that lacks it, are rows without totals, whose
    note says why. `price` is dollars an hour of every device, or by the names of devices (`a100=1.5,h100=3`).
    Raises WorkloadError for values that no option knows, and where no combination can be.
    """
    axes = {name: _axis(name, values) for name, values in asked.items() if values is not None}
    chosen_names = [name for name in axes if name not in LENGTHS]
    lengths = {name: tuple(axes[name]) for name in LENGTHS if name in axes}
    prices = _prices(price, devices)
    cases: dict[object, Case] = {}
    notes: dict[str, None] = {}
    for arch in models:
        notes |= dict.fromkeys(arch.notes)
        for device, values in product(devices, product(*(axes[name] for name in chosen_names))):
            chosen = dict(zip(chosen_names, values, strict=True))
            for case in _all_cases(arch, device, chosen, lengths, notes):
                key = (id(arch), id(device), tuple(case.labels.items()), case.lengths)  # files may share a name
                cases.setdefault(key, case._replace(price=prices.get(device.id)))
    if not cases:
        raise WorkloadError("nothing to sweep: no model, no device, or an option without a value; give one of each")
    refusals = [case.refused for case in cases.values() if case.refused]
    if len(refusals) == len(cases):
        raise WorkloadError(refusals[0])
    if prices and (others := {device.id for device in devices} - prices.keys()):
        notes[f"--price has none for {', '.join(sorted(others))}: what tokens cost there is not known"] = None
    return Sweep(tuple(cases.values()), tuple(notes), cluster)


def _axis(name: str, asked: object) -> list[Any]:
    """The values of an option. Raises WorkloadError for what it does not know."""
    if name in LEAST:
        return list(grid.numbers(name.replace("_", "-"), asked, LEAST[name], LONGEST))
    if name not in CHOICES:
        raise WorkloadError(f"unknown option {name!r}{choices(name, [o for o in options() if o in COLUMNS])}")
    values = grid.names(asked)
    for value in values:
        check_choice(name, value)
    return values


def _prices(asked: float | str | Mapping[str, float] | None, devices: Sequence[Device]) -> dict[str, float]:
    """Dollars an hour by device."""
    if isinstance(asked, str) and "=" in asked:
        asked = {name: price for name, _, price in (part.partition("=") for part in asked.split(","))}  # type: ignore[misc]
    if asked is None:
        return {}
    if not isinstance(asked, Mapping):
        return dict.fromkeys((device.id for device in devices), _price(asked))
    found = {library.load(name.strip()).id: _price(price) for name, price in asked.items()}
    if strangers := found.keys() - {device.id for device in devices}:
        raise WorkloadError(f"--price: {', '.join(sorted(strangers))} is no device of this sweep; see --hw")
    return found


def _price(asked: object) -> float:
    try:
        price = float(asked)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        price = -1.0
    if not 0 < price < float("inf"):
        raise WorkloadError(f"--price: {shorten(asked)} is no price; try --price 2.5, or --price a100=1.5,h100=3")
    return price


# --- Cases ------------------------------------------------------------------------------------------


def _all_cases(
    arch: Architecture, device: Device, chosen: Mapping[str, Any], lengths: Mapping[str, tuple[int, ...]],
    notes: dict[str, None],
) -> Iterator[Case]:  # fmt: skip
    """The cases of batches that can be dealt out to replicas and stages, and of those that cannot."""
    batches, ways = lengths.get("batch", (1,)), {way: chosen.get(way, 1) for way in GPUS}
    many = multiple(chosen.get("phase") == "train", Parallel(**ways), chosen.get("micro_batch"))
    apart = [tuple(n for n in batches if (n % many == 0) == even) for even in (True, False)]
    for some in filter(None, apart):
        yield from _cases(arch, device, chosen, {**lengths, "batch": some} if "batch" in lengths else lengths, notes)


def _cases(
    arch: Architecture, device: Device, chosen: Mapping[str, Any], lengths: Mapping[str, tuple[int, ...]],
    notes: dict[str, None],
) -> Iterator[Case]:  # fmt: skip
    """A case a phase; what a person should know of them goes to the notes."""
    if "phase" in chosen:
        yield _case(arch, device, chosen, lengths, notes)
        return
    for phase in ("prefill", "decode") if arch.causal else ("forward",):
        # where both are shown the context is the decode's
        applying = {name: values for name, values in lengths.items() if name != "context" or phase != "prefill"}
        yield _case(arch, device, {"phase": phase, **chosen}, applying, notes)


def _case(
    arch: Architecture, device: Device, chosen: Mapping[str, Any], lengths: Mapping[str, tuple[int, ...]],
    notes: dict[str, None],
) -> Case:  # fmt: skip
    """A phase with its lengths, those that apply. The largest of them are walked through here, as plain ints."""
    dtype = chosen.get("dtype", "fp16")
    labels = {"model": arch.name, "hardware": device.id, **dict.fromkeys(FORMATTED, dtype), **chosen}
    try:
        work, remarks = workload(arch, **{**chosen, **{name: max(values) for name, values in lengths.items()}})
        (step,) = work.steps()
        phase, weights = slowest(arch, device, step, work.runtime), phases.weight_bytes(arch, step)
        peak = phases.peak(arch, step, weights, phase.operators)
    except WorkloadError as error:
        return Case(labels, tuple(lengths.get(name, ()) for name in LENGTHS), arch, device, refused=str(error))
    notes |= dict.fromkeys([*remarks, *device_notes(device, work), *timing_notes(device, [phase]), *use_notes([phase])])
    smallest, _ = workload(arch, **{**chosen, **{name: min(values) for name, values in lengths.items()}})
    if slowest(arch, device, smallest.steps()[0], work.runtime).host_bound:
        notes[
            f"{step.phase} waits for the host where there is little work: its launches take as long on every device, "
            "so that these look alike there; see --runtime graph"
        ] = None
    if beyond(arch, work):
        notes[f"warning: points beyond the positions of {arch.name} are counted as if it had more, and marked"] = None
    unused = {
        *(["seq"] if arch.image else []),
        *([] if arch.encoder else ["decoder_seq"]),
        *(["context"] if work.context is None else []),
    }
    counts = [peak.total, *(value for name, value in totals(phase).items() if name in COUNTS)]
    return Case(
        {**labels, **_labels(arch, work)},
        tuple(() if name in unused else lengths.get(name, ()) for name in LENGTHS), arch, device, work=work,
        weights=weights, narrow=max(counts) < NARROW, fractional=any(isinstance(count, float) for count in counts),
    )  # fmt: skip


def _labels(arch: Architecture, work: Workload) -> dict[str, Any]:
    """The columns of a row that say what was asked for, lengths apart; None for what does not apply."""
    (phase,) = work.phases
    trains = phase == "train"
    return {
        **{name: getattr(work, name) for name in NAMED},
        "attention": None if isinstance(arch.body, Network) else work.attention,
        **work.parallel.ways,
        "micro_batch": work.micro_batch,
        "phase": phase,
        "new_tokens": work.new_tokens if phase == "generate" else None,
        "image": work.image[0] if work.image[0] == work.image[1] != 0 else None,  # others are the own of a model
        **{name: getattr(work, name) or work.dtype for name in FORMATTED},
        "logits": work.logits_of(phase),
        "optimizer": work.optimizer if trains else None,
        "recompute": work.recompute if trains else None,
    }


# --- Points -----------------------------------------------------------------------------------------

APART = {"seq": 1, "decoder_seq": 1, "context": 0}
"""Lengths at which a model does something else (one token needs no scan, an empty cache is not read): plain ints."""
ROOFS = ("memory", "compute", "communication", "overhead")


def evaluate(case: Case) -> Columns:
    """The rows of all points of a case, in order."""
    import numpy

    _keep_memory()
    places = [_apart(name, values) for name, values in zip(LENGTHS, case.lengths, strict=True)]
    parts = [(place, _part(case, place)) for place in product(*places)]
    table = dict.fromkeys(COLUMNS) | dict(case.labels)
    for name in parts[0][1]:
        values = [part[name] for _, part in parts]
        if any(value is not None for value in values):
            known = [float("nan") if value is None else value for value in values]
            column = numpy.empty(case.shape, numpy.result_type(*known))
            for (place, _), value in zip(parts, known, strict=True):
                column[numpy.ix_(*place) if len(parts) > 1 else ...] = value
            table[name] = column.ravel()
    return _finished(case, table)


@cache
def _keep_memory() -> None:
    """Makes glibc's malloc keep the memory of arrays that come and go, which it else gives back each time.

    Pages that are taken anew cost as much as what is computed in them. It learns from the largest piece that it ever
    gave back, of up to 32 MiB (mallopt(3), M_MMAP_THRESHOLD); nothing touches this one.
    """
    import numpy

    numpy.empty(KEPT, numpy.uint8)


def _apart(name: str, values: Sequence[int]) -> list[list[int]]:
    """The places of an axis, those whose length is special apart from the others."""
    special = [place for place, value in enumerate(values) if value == APART.get(name)]
    others = [place for place in range(max(1, len(values))) if place not in special]
    return [places for places in (special, others) if places]


def _part(case: Case, places: Sequence[Sequence[int]]) -> dict[str, Any]:
    """What is found at the points of these places, by column: arrays that combine as the axes do, or numbers."""
    import numpy

    numbers: dict[str, Number] = {"batch": 1} if case.work is None else {}
    for axis, (name, values, chosen) in enumerate(zip(LENGTHS, case.lengths, places, strict=True)):
        if len(chosen) == 1 and values:
            numbers[name] = values[chosen[0]]
        elif values:
            along = [-1 if other == axis else 1 for other in range(len(LENGTHS))]
            array = numpy.array([values[place] for place in chosen], dtype=numpy.int64 if case.narrow else object)
            numbers[name] = array.reshape(along)
    arch, device, work = case.arch, case.device, case.work
    if work is None:
        return numbers
    if arch.encoder and "decoder_seq" not in numbers:
        numbers["decoder_seq"] = within(arch.max_tokens, numbers.get("seq", work.seq))
    work = replace(work, **numbers)
    (step,) = work.steps()
    staged = of_stages(arch, device, step, work.runtime)
    found, peak = _slowest(staged), phases.peak(arch, step, case.weights, staged[0].operators)
    return {
        "batch": step.parallel.dp * step.microbatches * step.batch,
        "seq": work.seq if not is_just(step.tokens, 0) else None,
        "decoder_seq": work.decoder_seq,
        "context": step.context,
        **found,
        **{f"memory_{role}": getattr(peak, role) for role in ROLES},
        "fits": None if device.capacity is None else peak.total <= device.capacity,
        "note": beyond(arch, work),
    }


def _slowest(staged: Sequence[PhaseEstimate]) -> dict[str, Any]:
    """The totals on the stage of layers that takes longest, point by point."""
    (slow, *others), found = paces(staged), _totals(staged[0])
    for phase, pace in zip(staged[1:], others, strict=True):
        own = _totals(phase)
        found = {name: own[name] if old is None else either(pace > slow, own[name], old) for name, old in found.items()}
        slow = maximum(slow, pace)
    return found


def _totals(phase: PhaseEstimate) -> dict[str, Any]:
    """A phase's totals, and what part of its bound is due to which roof."""
    shares = {"memory": phase.memory_seconds, "link": phase.link_seconds, "bubble": phase.idle.bound}
    return {
        **totals(phase),
        **{f"{name}_share": seconds / phase.bound_seconds for name, seconds in shares.items()},
    }


def _finished(case: Case, table: Columns) -> Columns:
    """The table with the columns that follow from others, point by point."""
    import numpy

    if case.refused is not None:
        return table | {"note": case.refused}
    memory, link, bubble = table["memory_share"], table.pop("link_share"), table.pop("bubble_share")
    roof = numpy.argmax([memory, 1 - memory - link - bubble, link], axis=0)
    if table["host_bound"] is not None:
        roof[table["host_bound"]] = ROOFS.index("overhead")
    table["bound"] = numpy.array(ROOFS, dtype=object)[roof]
    if case.price is not None:
        assert case.work
        price = case.price * case.work.parallel.gpus
        for kind in ("", "bound_"):
            rate = table[f"{kind}tokens_per_second"]
            table[f"{kind}dollars_per_million_tokens"] = None if rate is None else price / 3600 * 1e6 / rate
    note = numpy.array([None, "beyond the model's positions"], dtype=object)
    table["note"] = note[table["note"].astype(int)] if table["note"].any() else None
    return table
