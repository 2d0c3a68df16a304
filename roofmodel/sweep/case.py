"""A case of a sweep: points that differ in batch and lengths only, evaluated in one pass over the model.

The lengths are arrays; the code of an ordinary estimate counts and times them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

from roofmodel.counting import phases
from roofmodel.counting.passes import NEED_NO_WEIGHTS, NEED_WEIGHTS
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.errors import Option
from roofmodel.models.architecture import Architecture
from roofmodel.numbers.algebra import Number, either, is_just, maximum, plain, whole
from roofmodel.options.workload import DECLARED, PARALLELISM, key_of
from roofmodel.steps.capacity import longest_sequence, needed_bytes, server_starts, usable_memory
from roofmodel.steps.estimate import energy_totals, latency_totals, totals
from roofmodel.steps.notes import exceeds_positions
from roofmodel.steps.options import limited_length
from roofmodel.steps.phase import PhaseEstimate, estimates_by_stage
from roofmodel.steps.placed import total_seconds
from roofmodel.sweep import grid
from roofmodel.sweep.tables import RESULTS, SCALING, SERVING

BLOCK = 2**15
"""Points per block: a few arrays of them fit in a core's cache. Some hundred arrays are alive at once."""
MALLOC_KEEPS_BYTES = 31 * 2**20
"""Size of the array whose release makes malloc keep freed memory: larger than the arrays of a block."""
INT64_EXACT = 2**60
"""Largest total for int64 counts: intermediate values are at most eight times as large."""

LENGTHS = ("batch", "seq", "decoder_seq", "context")
"""The options whose values become arrays."""
COUNT_OPTIONS = tuple(name for name, option in DECLARED.items() if option.kind == "count")
PARALLELISM_OPTIONS = tuple(name for name in COUNT_OPTIONS if DECLARED[name].group == PARALLELISM)
NAMED_OPTIONS = tuple(
    name for name, option in DECLARED.items() if option.kind in ("name", "settings") and name != "phase"
)
OPTION_COLUMNS = {
    key_of(name): name
    for name in (
        "phase", *LENGTHS, *(name for name in COUNT_OPTIONS if name not in PARALLELISM_OPTIONS), *NAMED_OPTIONS,
        *(name for name, option in DECLARED.items() if option.kind in ("time", "power")), *PARALLELISM_OPTIONS,
        *(name for name, option in DECLARED.items() if option.kind == "share"),
    )
}  # fmt: skip
"""The option of each column that states one."""
FORMAT_OPTIONS = ("weights", "kv", "activations")
"""The formats that default to `dtype`."""
COUNTS = ("matmul_flops", "vector_flops", "bytes", "weight_bytes", "kv_cache_bytes", "matmul_flops_all_pairs")
ROLES = ("weights", "kv_cache", "activations", "gradients", "optimizer", "logits", "other", "total")
RESULT_COLUMNS = tuple(RESULTS.csv_keys)
NEED_WEIGHT_BYTES = {
    "memory_share",
    *(name for name in RESULT_COLUMNS if name not in (*NEED_NO_WEIGHTS, "note") and not name.startswith("memory_")),
}
"""The columns that are unknown if the format of the weights is."""
ENGINE_COLUMNS = ("engine_version", "engine_file", "runtime", "launch_seconds")
"""What the engine of a row states of itself."""
COLUMNS = ("model", "hardware", *OPTION_COLUMNS, *ENGINE_COLUMNS, *RESULT_COLUMNS)
"""The columns of a row."""
SCALING_COLUMNS = tuple(SCALING.csv_keys)
SERVING_COLUMNS = tuple(SERVING.csv_keys)

BEYOND_POSITIONS = "beyond the model's positions"
POINT_NOTES = (None, BEYOND_POSITIONS)

Columns = dict[str, Any]
"""Column -> an array with one element per point, or the value of all points; None for unknown."""


class GridCase(NamedTuple):
    """The options that some points of the grid share, and the lengths that these points combine."""

    labels: Mapping[str, Any]  # of the row: model, hardware, phase, ...
    lengths: tuple[tuple[int, ...], ...]  # by LENGTHS; empty where the option was not given or does not apply
    arch: Architecture
    device: Device
    price: float | None = None  # dollars an hour
    refused: str | None = None  # why the combination is invalid; None for a valid one
    work: Workload | None = None  # one phase; its lengths are the largest
    weights: Number = 0  # bytes, of the whole model
    fits_int64: bool = True  # whether int64 holds all counts
    fractional: bool = False  # whether some count is the expected value of a router with uniform probabilities

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each length."""
        return tuple(max(1, len(values)) for values in self.lengths)

    @property
    def points(self) -> int:
        return prod(self.shape)

    def blocks(self, most: int = BLOCK) -> Iterator[GridCase]:
        """This case cut into cases of at most `most` points, in order."""
        for cut in grid.blocks(self.shape, most):
            yield self._replace(lengths=tuple(v[piece] for v, piece in zip(self.lengths, cut, strict=True)))


SPECIAL_LENGTHS = {"seq": 1, "decoder_seq": 1, "context": 0}
"""Lengths that change the operators (one token needs no scan, an empty cache is not read): evaluated as plain ints."""
CEILINGS = ("memory", "compute", "communication", "overhead")


def evaluate(case: GridCase) -> Columns:
    """The rows of all points of a case, in order."""
    import numpy

    _keep_memory()
    places = [_special_and_other(name, values) for name, values in zip(LENGTHS, case.lengths, strict=True)]
    parts = [(place, _part(case, place)) for place in product(*places)]
    table = dict.fromkeys(COLUMNS) | dict(case.labels)
    for name in parts[0][1]:
        values = [part[name] for _, part in parts]
        if any(value is not None for value in values):
            figures = [float("nan") if value is None else value for value in values]
            column = numpy.empty(case.shape, numpy.result_type(*figures))
            for (place, _), value in zip(parts, figures, strict=True):
                column[numpy.ix_(*place) if len(parts) > 1 else ...] = value
            table[name] = column.ravel() if column.dtype != object else _without_fractions(column.ravel())
    return _with_derived_columns(case, table)


def _without_fractions(column: Any) -> Any:
    """An array of exact numbers, with ints and floats in place of Fractions: files and tables have no others."""
    import numpy

    return numpy.array([plain(whole(value)) for value in column], dtype=object)


@cache
def _keep_memory() -> None:
    """Make glibc's malloc keep the memory of temporary arrays instead of returning it to the system each time.

    New pages cost as much time as the computation in them. The threshold follows the largest block ever freed, up to
    32 MiB (mallopt(3), M_MMAP_THRESHOLD); this array is never written.
    """
    import numpy

    numpy.empty(MALLOC_KEEPS_BYTES, numpy.uint8)


def _special_and_other(name: str, values: Sequence[int]) -> list[list[int]]:
    """The indices of an axis, in two lists: the special length and the other lengths. Empty lists are left out."""
    special = [place for place, value in enumerate(values) if value == SPECIAL_LENGTHS.get(name)]
    others = [place for place in range(max(1, len(values))) if place not in special]
    return [places for places in (special, others) if places]


def _part(case: GridCase, places: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The columns at the points with these indices: arrays that broadcast along the axes, or numbers."""
    import numpy

    numbers: dict[str, Number] = {"batch": 1} if case.work is None else {}
    for axis, (name, values, chosen) in enumerate(zip(LENGTHS, case.lengths, places, strict=True)):
        if len(chosen) == 1 and values:
            numbers[name] = values[chosen[0]]
        elif values:
            along = [-1 if other == axis else 1 for other in range(len(LENGTHS))]
            array = numpy.array([values[place] for place in chosen], dtype=numpy.int64 if case.fits_int64 else object)
            numbers[name] = array.reshape(along)
    arch, device, work = case.arch, case.device, case.work
    if work is None:
        return numbers
    if arch.encoder and "decoder_seq" not in numbers:
        numbers["decoder_seq"] = limited_length(arch.max_tokens, numbers.get("seq", work.seq))
    work = work._replace(**numbers)
    (step,) = work.steps()
    staged = estimates_by_stage(arch, device, step, work.engine)
    slowest = slowest_values(staged)
    peak = phases.phase_memory(arch, step, case.weights, [phase.operators for phase in staged])
    knows_weights, fits = work.weights_known, None
    if device.capacity is not None and knows_weights:
        starts = server_starts(arch, device, case.work or work, max_len=longest_sequence(work))
        fits = needed_bytes(starts, peak) <= usable_memory(device, work)
    return {
        "batch": step.parallel.dp * step.microbatches * step.batch,
        "seq": work.seq if not is_just(step.tokens, 0) else None,
        "decoder_seq": work.decoder_seq,
        "context": step.context,
        **slowest,
        **{
            f"memory_{role}": getattr(peak, role) if knows_weights or role not in NEED_WEIGHTS else None
            for role in ROLES
        },
        "fits": fits,
        "note": 1 * exceeds_positions(arch, work),  # index in POINT_NOTES
    }


def slowest_values(
    staged: Sequence[PhaseEstimate], values: Callable[[PhaseEstimate], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Values of the pipeline stage with the longest bound, point by point; its totals by default."""
    values = values or _totals
    longest, slowest = total_seconds(staged[0].placed), values(staged[0])
    for phase in staged[1:]:
        seconds, of_phase = total_seconds(phase.placed), values(phase)
        is_slower = seconds > longest
        slowest = {name: _slower_value(is_slower, of_phase[name], old) for name, old in slowest.items()}
        longest = maximum(longest, seconds)
    return slowest


def _slower_value(is_slower: Any, totals: Any, old: Any) -> Any:
    """The value of the slower of two stages; NaN where that stage has none, None where neither has one."""
    if totals is None and old is None:
        return None
    return either(is_slower, *(float("nan") if figure is None else figure for figure in (totals, old)))


def _totals(phase: PhaseEstimate) -> dict[str, Any]:
    """A phase's totals, and the part of its bound that each ceiling limits."""
    shares = {"memory": phase.memory_seconds, "link": phase.link_seconds, "bubble": phase.idle.bound}
    phase_totals = totals(phase)
    return {
        **phase_totals,
        **latency_totals(phase),
        **energy_totals(phase),
        **{f"{name}_share": seconds / phase_totals["bound_seconds"] for name, seconds in shares.items()},
    }


def _with_derived_columns(case: GridCase, table: Columns) -> Columns:
    """The table with the derived columns, point by point."""
    import numpy

    if case.refused is not None:
        return table | {"note": case.refused}
    memory, link, bubble = table["memory_share"], table.pop("link_share"), table.pop("bubble_share")
    ceiling = numpy.argmax([memory, 1 - memory - link - bubble, link], axis=0)
    if table["host_bound"] is not None:
        ceiling[table["host_bound"]] = CEILINGS.index("overhead")
    table["bound"] = numpy.array(CEILINGS, dtype=object)[ceiling]
    if case.price is not None:
        assert case.work
        price = case.price * case.work.parallel.gpus
        for kind in ("", "bound_"):
            rate = table[f"{kind}tokens_per_second"]
            table[f"{kind}dollars_per_million_tokens"] = None if rate is None else price / 3600 * 1e6 / rate
    notes = numpy.array(POINT_NOTES, dtype=object)
    table["note"] = notes[table["note"].astype(int)] if table["note"].any() else None
    if case.work is None or case.work.weights_known:
        return table
    return table | dict.fromkeys(NEED_WEIGHT_BYTES) | {"note": f"unknown weight format; give {Option('weights')}"}
