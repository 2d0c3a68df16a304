"""Calibration: fit the parameters of the timing model to tables of measurements, and validate them on held-out rows.

`fitting.py` fits. A third of the models is held out, with all their rows: of the matrices of GEMMs, the heads of
attention, the experts of MoE layers (`table.MODEL_COLUMNS`). Errors and intervals are those of all rows, each third
with parameters that are fitted to the other two; where a set has one model, of thirds of its shapes. Rows that are
faster than their bound and sets with too few rows are not fitted; remarks list them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from importlib.util import find_spec
from itertools import count
from math import inf
from typing import Any, NamedTuple

import numpy as np

from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import (
    MAX_TRANSFER_ERROR,
    TIMINGS,
    Calibration,
    Fit,
    Fitted,
    Sets,
    Timing,
    parameters,
    stated_parameters,
)
from roofmodel.devices.device import Device
from roofmodel.errors import DeviceError, WorkloadError
from roofmodel.measure.fitting import MAX_FIT_ROWS, MAX_SEARCH_ROWS, FitRows, fit
from roofmodel.measure.table import (
    HOST_CLOCK,
    Array,
    RowGroup,
    copies,
    groups,
    least_seconds,
    line_numbers,
    read,
    reason_lines,
    repeated,
    row_lines,
    seconds,
    skipped,
    thirds,
    thirds_of_cells,
)
from roofmodel.timing import gemm, parameter_sets
from roofmodel.timing.formula import elementwise_kind
from roofmodel.timing.parameter_sets import operator_format_key
from roofmodel.timing.roofline import place, route
from roofmodel.timing.timing import formula

ROWS_PER_PARAMETER = 3  # at least, else the set is not fitted
MIN_BOUND_FRACTION = 0.95  # a time below this fraction of its bound is wrong; clocks differ by less
DEFAULT_FORMATS = "fp16/fp16"
CHOICES = {"gemm": gemm}  # the modules whose formulas are a minimum over candidates, by kind of parameters
# Example lines of a device's file for fields that the timing model needs.
FIELD_EXAMPLES = {"multiprocessors": "multiprocessors: 108", "clocks: boost": "clocks: {boost: 1410 MHz}"}
# The kind of parameters by operation of the table; the operator decides for all others (`parameter_sets.kind`).
KINDS = {
    "gemm": "gemm", "moe": "experts", "nccl": "collectives", "custom_allreduce": "collectives",
}  # fmt: skip

_NO_FIT = Fit(0, 0, 0.0, 1.0, 1.0, "", "")


class Calibrated(NamedTuple):
    """The calibration of the device, its sets that were fitted to the tables, and remarks on what was not fitted."""

    calibration: Calibration
    fitted: Calibration
    remarks: tuple[str, ...]


class Sample(NamedTuple):
    """Measurements of one operation, format and kernel: an operator whose sizes are columns, and measured seconds."""

    group: RowGroup
    measured: Array
    third: Array  # of the models, by row; the fit does not use the rows of third 0
    places: Array  # of the rows in the group, before rows were left out

    def select(self, rows: Array) -> Sample:
        """The sample with only these rows (numbers or mask)."""
        operator = _select_rows(self.group.operator, rows)
        return Sample(
            self.group._replace(operator=operator, rows=self.group.rows[rows]),
            self.measured[rows],
            self.third[rows],
            self.places[rows],
        )


def _select_rows(operator: Operator, rows: Array) -> Operator:
    def select(values: Any) -> Any:
        return values[rows] if np.ndim(values) else values

    return replace(
        operator,
        sizes={axis: select(size) for axis, size in operator.sizes.items()},
        matmul_flops=select(operator.matmul_flops),
        vector_flops=select(operator.vector_flops),
        touched={name: select(elements) for name, elements in operator.touched.items()},
        collective=operator.collective and operator.collective._replace(gpus=select(operator.collective.gpus)),
        parts=tuple(_select_rows(part, rows) for part in operator.parts),
    )


def calibrate(
    paths: list[str],
    device: Device,
    source: str,
    progress: Callable[[str, int, int | None], None] = lambda subject, done, total: None,
    kinds: Sequence[str] = tuple(TIMINGS),
) -> Calibrated:
    """Fit a parameter set for each operation and format of the tables, with a third of the models held out.

    It needs scipy. A set takes some seconds; `progress` is called before each fit with its name and number of rows, the
    number of finished fits, and None. Only sets of `kinds` are fitted. Raises ProfileError if a file is not a table of
    measurements, DeviceError if the device's file lacks a field of the timing model, WorkloadError if nothing can be
    fitted.
    """
    if find_spec("scipy") is None:
        raise WorkloadError("calibrating needs scipy: pip install scipy")
    if device.missing_timing_fields:
        example = FIELD_EXAMPLES[device.missing_timing_fields[0]]
        raise DeviceError(
            f"{device.id}: the timing model needs '{example.partition(':')[0]}', which the device's file lacks; "
            f"add the device's value, such as '{example}'"
        )
    remarks: list[str] = []
    fits = count()

    def begin(subject: str) -> None:
        progress(subject, next(fits), None)

    samples, fitter = _samples(paths, device, remarks), _Fitter(device, source, remarks, begin)
    sets: dict[str, Any] = {kind: fitter.sets(kind, samples[kind], TIMINGS[kind]) for kind in kinds}
    if not any(sets.values()):
        raise WorkloadError("; ".join(("nothing to fit", *(remarks or ["the tables have no valid row"]))))
    fitted, before = Calibration(device.id, **sets), device.calibration
    others = {kind for of_device in before.transferred.values() for kind in of_device} if before else set()
    for kind in TIMINGS:
        # Another device's collectives remain for links that were not measured; its kernels do not run here.
        if before and (kind not in others or (kind == "collectives" and sets.get(kind))):
            sets[kind] = _with_previous(sets.get(kind, {}), getattr(before, kind))
    return Calibrated(Calibration(device.id, **sets), fitted, tuple(remarks))


def _samples(paths: list[str], device: Device, remarks: list[str]) -> dict[str, list[Sample]]:
    """The measurements by kind of parameters; adds skipped and suspect rows to `remarks`."""
    measured: dict[str, list[Sample]] = {}
    for path in paths:
        table = read(path)
        times, (found_groups, notes) = seconds(table), groups(table)
        row_line = np.array(row_lines(table))
        remarks += [f"{path}: {text}" for text in reason_lines(skipped(notes.tolist(), row_line.tolist()))]
        for group in (group for group in found_groups if group.l2 != "warm"):  # the timing model assumes data in DRAM
            name = f"{path}: " + " ".join(filter(None, (group.op, group.compute, group.kernel)))
            try:
                placed = place(group.operator.cost, device, group.compute, group.operator.collective)
                suspect = times[group.rows] < MIN_BOUND_FRACTION * least_seconds(group, placed, device)
            except WorkloadError as error:
                remarks.append(f"{name}: {error}")
                continue
            if suspect.any():
                lines = line_numbers(row_line[group.rows[suspect]].tolist())
                remarks.append(f"{name}: {lines}: not fitted, because more than 5 % faster than the bound")
            count = len(group.rows)
            sample = Sample(group, times[group.rows], thirds(group.op, group.shape), np.arange(count))
            fitted = ~suspect & ~_has_single_tokens(group)
            measured.setdefault(_kind(group), []).append(sample.select(np.flatnonzero(fitted)))
    samples: dict[str, list[Sample]] = {kind: measured.get(kind, []) for kind in TIMINGS}
    for kind in ("streams_collapse", "streams_expand"):  # those of all engines move the same bytes
        samples[kind] = [sample._replace(group=sample.group._replace(kernel="")) for sample in samples[kind]]
    samples["elementwise"] = [
        sample
        if sample.group.kernel.endswith(HOST_CLOCK)
        else sample._replace(group=sample.group._replace(kernel=elementwise_kind(sample.group.operator)))
        for sample in samples.get("elementwise", ())
    ]
    return samples


def _kind(group: RowGroup) -> str:
    """The kind of parameters of a group."""
    return KINDS.get(group.op) or parameter_sets.kind(group.operator) or "elementwise"


def _has_single_tokens(group: RowGroup) -> Array:
    """Mask of the prefills of one token: libraries run other kernels for them than for longer prompts."""
    is_prefill = _kind(group) in (*parameter_sets.PREFILLS, "index_prefill") and "seq" in group.shape
    return group.shape["seq"] == 1 if is_prefill else np.zeros(len(group.rows), bool)


def _with_previous(fitted: Sets[Timing], before: Sets[Timing]) -> Sets[Timing]:
    """The fitted sets of a kind, then the previous ones of kernels, formats and links that were not fitted."""
    names = dict.fromkeys([*fitted, *before])
    return {name: {**fitted.get(name, {}), **before.get(name, {}), **fitted.get(name, {})} for name in names}


def _by_form(sample: Sample, device: Device) -> Iterator[tuple[str, Sample]]:
    """The key of the parameter set and its rows: the formats, or for collectives the link that each row uses."""
    operator = sample.group.operator
    if operator.collective is None:
        yield operator_format_key(operator, sample.group.compute), sample
    elif path := route(operator.collective, device):
        link_of_row = np.select(
            [path.leaves, path.bridged, path.halved], [3, 1, 2], np.zeros(len(sample.measured), int)
        )
        for number, link in enumerate((device.inside, device.bridge, device.half, device.network)):
            if link and (link_of_row == number).any():
                yield link.parameters, sample.select(np.flatnonzero(link_of_row == number))


class _Fitter(NamedTuple):
    device: Device
    source: str
    remarks: list[str]
    begin: Callable[[str], None]

    def sets(self, kind: str, samples: list[Sample], model: type[Timing]) -> Sets[Timing]:
        """The fitted sets of a kind by implementation and formats, the default implementation first."""
        by_name: dict[str, dict[str, list[Sample]]] = {"any": {}} if kind == "gemm" else {}
        for form, sample in (each for mixed in samples for each in _by_form(mixed, self.device)):
            kernels = [sample.group.kernel or "any"]
            if kind == "gemm" and sample.group.kernel.endswith(HOST_CLOCK):
                kernels = ["any"]  # a table without kernels
            elif kind == "gemm" and form == DEFAULT_FORMATS:
                # All frameworks use cuBLAS for 16-bit GEMMs, in different versions, so one set covers all of them as
                # well. For other formats each framework has its own kernels.
                kernels.append("any")
            for kernel in dict.fromkeys(kernels):
                by_name.setdefault(kernel, {}).setdefault(form, []).append(sample)
        fitted_sets: dict[str, dict[str, Fitted[Timing]]] = {}
        for name, forms in by_name.items():
            for form, form_samples in sorted(forms.items()):
                rows, required = (
                    sum(len(s.measured) for s in form_samples),
                    ROWS_PER_PARAMETER * len(stated_parameters(model)),
                )
                if rows >= required:
                    self.begin(f"{kind} {name} {form}: {rows} rows")
                if fitted := self.fit(form_samples, model, kind):
                    fitted_sets.setdefault(name, {})[form] = fitted
                    if fitted.fit.error > MAX_TRANSFER_ERROR:
                        self.remarks.append(
                            f"{kind} {name} {form}: error {fitted.fit.error:.0%} on held-out rows; "
                            "other kernels, formats and devices will not use this set"
                        )
                elif name != "any" or list(by_name) == ["any"]:  # else the remark on its own name covers the rows
                    why = f"it needs {required}" if rows < required else "all of them are of one third of the shapes"
                    self.remarks.append(f"{kind} {name} {form}: not fitted: it has {rows} rows; {why}")
        return {name: fitted_sets[name] for name in self._default_first(kind, by_name, fitted_sets)}

    def _default_first(
        self, kind: str, by_name: dict[str, dict[str, list[Sample]]], fitted_sets: Sets[Timing]
    ) -> list[str]:
        """The implementations, the default one first: `any` or `add`, else the one with the most rows.

        For GEMMs and experts, the order in the device's file comes before the number of rows. The order decides only
        among kernels that the engine's file does not name.

        For attention, filters and delta rules it is the fastest relative to its bound with at least a tenth of the
        largest number of rows, because engines choose the fastest of several implementations.
        """
        rows = {name: sum(each.fit.rows for each in forms.values()) for name, forms in fitted_sets.items()}
        ranks: dict[str, float] = {name: -count for name, count in rows.items()}
        if kind not in ("gemm", "experts", "collectives", "elementwise"):
            speed = {name: self._bound_fraction([s for some in by_name[name].values() for s in some]) for name in rows}
            ranks = {name: -speed[name] * (rows[name] > max(rows.values()) / 10) for name in rows}
        in_file: dict[str, int] = {}
        if kind in ("gemm", "experts") and self.device.calibration is not None:
            in_file = {name: place for place, name in enumerate(getattr(self.device.calibration, kind))}
        return sorted(fitted_sets, key=lambda name: (name not in ("any", "add"), in_file.get(name, inf), ranks[name]))

    def fit(self, samples: list[Sample], model: type[Timing], kind: str) -> Fitted[Timing] | None:
        """A fitted set with its errors; None if there are too few rows."""
        if sum(len(s.measured) for s in samples) < ROWS_PER_PARAMETER * len(stated_parameters(model)):
            return None
        if len(_thirds(samples)) == 1:  # one model, or models that happen to be in one third
            samples = [s._replace(third=thirds_of_cells(s.group.shape)[s.places]) for s in samples]
        thirds = _thirds(samples)
        if len(thirds) == 1:
            return None
        fits = {third: self._fit_without(third, samples, model, kind) for third in (0, *thirds)}
        timing = fits[0]  # without a row in third 0, that of all rows
        ratios = np.concatenate([self._unseen(third, samples, fits[third], kind) for third in thirds])
        low, high = np.quantile(1 / ratios, (0.1, 0.9), method="weibull")  # few rows: the smallest and largest
        low, high = min(low, 1.0), max(high, 1.0)  # the interval contains the expected time
        error, low, high = (float(f"{value:.3g}") for value in (np.abs(ratios - 1).mean(), low, high))
        today = date.today().isoformat()
        rows = sum(int((s.third > 0).sum()) for s in samples)
        return Fitted(timing, Fit(rows, len(ratios), error, low, high, self.source, today))

    def _fit_without(self, third: int, samples: list[Sample], model: type[Timing], kind: str) -> Timing:
        """The parameters fitted to the other thirds."""
        limits = (MAX_FIT_ROWS, MAX_SEARCH_ROWS)
        rows, search_rows = (self._rows(_without(third, samples, limit), kind, model) for limit in limits)
        timing: Timing = fit(rows, search_rows, model)
        return timing

    def _bound_fraction(self, samples: list[Sample]) -> float:
        """The mean of bound / measured."""
        placed = [(place(s.group.operator.cost, self.device, s.group.compute), s.measured) for s in samples]
        return float(np.concatenate([each.bound_seconds / measured for each, measured in placed]).mean())

    def _rows(self, samples: list[Sample], kind: str, model: type[Timing]) -> list[FitRows]:
        """The formulas of the samples as functions of the parameters."""
        start = model._make(parameter.start for parameter in parameters(model).values())
        only: dict[str, Any] = {kind: {"any": {"any": Fitted(start, _NO_FIT)}}}
        device = replace(self.device, calibration=Calibration(self.device.id, **only))
        choices = CHOICES.get(kind)
        fit_rows = []
        for group, measured, *_ in samples:
            placed = place(group.operator.cost, device, group.compute, group.operator.collective)
            by = formula(
                group.operator, placed, device, group.compute, repeated=repeated(group), copies=copies(group, device)
            )
            assert by is not None
            least = np.broadcast_to(least_seconds(group, placed, device), measured.shape)
            fit_rows.append(
                FitRows(
                    partial(_applied, by.function, by.arguments),
                    partial(_candidate_applied, choices.candidate_seconds, by.arguments) if choices else None,
                    [np.array(field, float) for field in zip(*choices.CANDIDATES, strict=True)] if choices else [],
                    measured,
                    least,
                )
            )
        return fit_rows

    def _unseen(self, third: int, samples: list[Sample], timing: Timing, kind: str) -> Array:
        """Expected / measured of the rows of a third."""
        of_third = [s.select(np.flatnonzero(s.third == third)) for s in samples if (s.third == third).any()]
        return np.concatenate([rows.ratios(timing) for rows in self._rows(of_third, kind, type(timing))])


def _applied(function: Callable[..., Array], arguments: tuple[Any, ...], timing: Any) -> Array:
    return function(*arguments, timing)


def _candidate_applied(
    function: Callable[..., Array], arguments: tuple[Any, ...], candidate: Sequence[Array], timing: Any
) -> Array:
    work, *others = arguments
    return function(work, candidate, *others, timing)


def _thirds(samples: list[Sample]) -> list[int]:
    """The thirds that have rows."""
    return sorted({int(third) for s in samples for third in np.unique(s.third)})


def _without(third: int, samples: list[Sample], limit: int) -> list[Sample]:
    """At most `limit` rows of the other thirds, in even steps."""
    usable = [np.flatnonzero(s.third != third) for s in samples]
    step = max(1, -(-sum(len(rows) for rows in usable) // limit))
    return [s.select(rows[::step]) for s, rows in zip(samples, usable, strict=True) if len(rows[::step])]
