"""A table of measurements -> the parameters of the timing model, and how far off they are on rows they did not see.

Least squares on expected / measured - 1, with a loss that grows like the error itself (soft L1), over the logarithms
of the parameters, each within a factor of where it starts; then, since formulas have kinks that slopes do not tell of,
the mean error itself by Powell's method, which needs none. A third of the rows is held out by cells of shapes, so that
neighbours of a fitted row do not count as unseen; error and interval are those of the rows held out. Rows that beat
their bound are named, not fitted; so is what has too few rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import (
    MAX_TRANSFER_ERROR,
    Calibration,
    CollectiveTiming,
    ContextTiming,
    ExpertsTiming,
    Fit,
    Fitted,
    GemmTiming,
    GenerationTiming,
    Sets,
    StreamTiming,
    Timing,
)
from roofmodel.devices.device import Device
from roofmodel.errors import DeviceError, WorkloadError
from roofmodel.prediction.chip import l2_bytes
from roofmodel.prediction.links import route
from roofmodel.prediction.roofline import place
from roofmodel.prediction.stream import stream_kind
from roofmodel.prediction.timing import expect, gemm_work, operator_format_key
from roofmodel.study.benchmark.table import HOST_CLOCK, Array, Group, first_few, groups, listed, read, seconds, skipped

ROWS = 3000  # that a fit takes of a set at most; more do not change it
FEW = 600  # that suffice to choose between what is no matter of degree
FEWEST = 3  # rows for each parameter, below which nothing is fitted
BEATEN = 0.95  # of its bound, below which a measurement cannot be right; clocks differ by less
SPAN = 20.0  # a parameter stays within this factor of where it starts
SCALE = 0.03  # errors below it count by their square
POLISHED = 1500  # evaluations of the last step
USUAL = "fp16/fp16"
# Parameters that are no matter of degree; those that change more come first, as each is chosen by itself. Of values
# that the rows do not tell apart it is the first.
CHOICES = {
    "packed": (1.0, 0.0),
    "elsewhere": (0.0, 1.0, 2.0),
    "group": (0.0, 1000.0, 32.0),
    "queue": (0.0, 1.0),
    "tall": (0.0, 64.0, 128.0, 256.0),
    "parts": (32.0, 7.0, 1.0),
    "few": (0.0, 4.0),
}
# Parameters whose slope is lost far from where they belong: starts to try.
STARTS = {"host": (2e-6, 6e-5)}
# Parts of a ceiling: at most all of it, and a little for the clock.
MOST = {"pipe": 1.05, "dram": 1.0, "tail": 1.0, "early": 1.0, "bandwidth": 1.0}

# By kind of parameters, where the fit starts.
ORIGINS: dict[str, Any] = {
    "gemm": GemmTiming(
        2.5e-6, 5e-7, 3e-9, 2.5e-6, 0.9, 0.2, 0.8, 0.3, 0.85, 1e-5,
        row=2e-7, spill=0.5, host=2e-5, convert=1e-9, column=5e-8, dot=1e-9, part=3e-8, late=5e-7,
    ),
    "context": ContextTiming(9e-6, 0.7, 20.0, 60.0, 0.5, 0.5, 1.0),
    "generation": GenerationTiming(9e-6, 2e-6, 3e-6, 0.4, 0.8, 0.0, row=5e-8, alone=7e-6, single=1e-6),
    "experts": ExpertsTiming(3e-5, 1e-7, 0.6, 0.8, 0.9, 0.6, 0.0),
    "collectives": CollectiveTiming(7e-6, 1e-6, 0.4, 2.6e-5, 0.76),
    "stream": StreamTiming(3e-6, 0.8, 0.2),
}  # fmt: skip
# What a device's file may lack, as a line of it.
LACKING = {"multiprocessors": "multiprocessors: 108", "clocks: boost": "clocks: {boost: 1410 MHz}"}
# By a table's operation, the kind that is fitted to it; others move data.
KINDS = {
    "gemm": "gemm", "attn_context": "context", "attn_generation": "generation", "moe": "experts",
    "nccl": "collectives", "custom_allreduce": "collectives",
}  # fmt: skip

_UNKNOWN = Fit(0, 0, 0.0, 1.0, 1.0, "", "")


class Calibrated(NamedTuple):
    """What was fitted, and what was not, and why."""

    calibration: Calibration
    remarks: tuple[str, ...]


class Sample(NamedTuple):
    """Measurements of one operation and type: an operator over columns, and seconds."""

    group: Group
    measured: Array
    held_out: Array  # which rows the fit does not see

    def rows(self, of: Array) -> Sample:
        """Some of them."""
        some = _of_rows(self.group.operator, of)
        return Sample(self.group._replace(operator=some), self.measured[of], self.held_out[of])


def _of_rows(operator: Operator, of: Array) -> Operator:
    return replace(
        operator,
        sizes={axis: _some(size, of) for axis, size in operator.sizes.items()},
        matmul_flops=_some(operator.matmul_flops, of),
        vector_flops=_some(operator.vector_flops, of),
        touched={name: _some(elements, of) for name, elements in operator.touched.items()},
        collective=operator.collective and operator.collective._replace(gpus=_some(operator.collective.gpus, of)),
        parts=tuple(_of_rows(part, of) for part in operator.parts),
    )


def _some(values: Any, of: Array) -> Any:
    return values[of] if np.ndim(values) else values


def calibrate(
    paths: list[str], device: Device, source: str, third: int = 0, begin: Callable[[str], None] = lambda _: None
) -> Calibrated:
    """Everything that the tables have measurements of, fitted but for a `third` of the cells of shapes; needs scipy.

    A set takes up to some minutes; `begin` is told its name and rows ahead of each.
    Raises ProfileError for what is no table, DeviceError for a file that says too little, WorkloadError where nothing
    can be fitted.
    """
    if find_spec("scipy") is None:
        raise WorkloadError("calibrating needs scipy: pip install scipy")
    if device.missing_timing_fields:
        lacking = LACKING[device.missing_timing_fields[0]]
        raise DeviceError(
            f"{device.id}: its file lacks '{lacking.partition(':')[0]}', which the timing model counts with; add it, "
            f"with the device's own number, such as '{lacking}'"
        )
    remarks: list[str] = []
    found, fitter = _samples(paths, device, third, remarks), _Fitter(device, source, remarks, begin)
    kinds: dict[str, Any] = {kind: fitter.sets(kind, found[kind], start) for kind, start in ORIGINS.items()}
    if not any(kinds.values()):
        raise WorkloadError("; ".join(("nothing to fit", *(remarks or ["the tables have no row that can be fitted"]))))
    kinds = {kind: _with_others(sets, getattr(device.calibration, kind, {})) for kind, sets in kinds.items()}
    return Calibrated(Calibration(device.id, **kinds), tuple(remarks))


def _samples(paths: list[str], device: Device, third: int, remarks: list[str]) -> dict[str, list[Sample]]:
    """The tables' measurements by the kind of parameters that is fitted to them; that third is held out."""
    measured: dict[str, list[Sample]] = {}
    for path in paths:
        table = read(path)
        took, (several, notes) = seconds(table), groups(table)
        remarks += [f"{path}: {words}" for words in listed(skipped(notes.tolist()))]
        for group in (group for group in several if group.l2 != "warm"):  # its data come from DRAM
            what = f"{path}: " + " ".join(filter(None, (group.op, group.compute, group.kernel)))
            try:
                wrong = took[group.rows] < BEATEN * _least(group, device)
            except WorkloadError as error:
                remarks.append(f"{what}: {error}")
                continue
            if wrong.any():
                lines = first_few((group.rows[wrong] + 2).tolist())
                remarks.append(f"{what}: {lines}: over 5 % quicker than the bound, left out as suspect")
            sample = Sample(group, took[group.rows], held_out(group.shape, third))
            measured.setdefault(group.op, []).append(sample.rows(np.flatnonzero(~wrong)))
    found: dict[str, list[Sample]] = {}
    for op in dict.fromkeys((*KINDS, *measured)):
        found.setdefault(KINDS.get(op, "stream"), []).extend(measured.get(op, ()))
    found["stream"] = [
        sample
        if sample.group.kernel.endswith(HOST_CLOCK)
        else sample._replace(group=sample.group._replace(kernel=stream_kind(sample.group.operator)))
        for sample in found.get("stream", ())
    ]
    return found


def _least(group: Group, device: Device) -> Array:
    """Seconds that no measurement of these rows can beat: their bound, but for data that L2 may hold."""
    placed = place(group.operator.cost, device, group.compute, group.operator.collective)
    resident = np.asarray(placed.cost.bytes) <= l2_bytes(device)
    least = np.maximum(np.maximum(placed.compute_seconds, placed.link_seconds), placed.memory_seconds * ~resident)
    return np.broadcast_to(least, group.rows.shape)


def _with_others(found: Sets[Timing], before: Sets[Timing]) -> Sets[Timing]:
    """These sets of a kind, where there are any, and behind them those that the device had of what the tables have not:
    other implementations, formats, links."""
    names = dict.fromkeys([*found, *before]) if found else ()
    return {name: {**found.get(name, {}), **before.get(name, {}), **found.get(name, {})} for name in names}


def _by_form(sample: Sample, device: Device) -> Iterator[tuple[str, Sample]]:
    """What sets of parameters are told apart by: formats; of exchanges, row by row, the links that they go over."""
    operator = sample.group.operator
    if operator.collective is None:
        yield operator_format_key(operator, sample.group.compute), sample
    elif way := route(operator.collective, device):
        over = np.select([way.leaves, way.bridged], [2, 1], np.zeros(len(sample.measured), int))
        for which, link in enumerate((device.inside, device.bridge, device.network)):
            if link and (over == which).any():
                yield link.parameters, sample.rows(np.flatnonzero(over == which))


class _Fitter(NamedTuple):
    device: Device
    source: str
    remarks: list[str]
    begin: Callable[[str], None]

    def sets(self, kind: str, samples: list[Sample], start: Timing) -> Sets[Timing]:
        """A kind's sets by implementation and formats, the default first; none of rows that are too few."""
        named: dict[str, dict[str, list[Sample]]] = {"any": {}} if kind == "gemm" else {}
        for form, sample in (each for one in samples for each in _by_form(one, self.device)):
            kernels = [sample.group.kernel or "any"]
            if kind == "gemm" and form == USUAL:
                # Matrix products of 16 bits are all of one library, of whose versions each framework brings its own;
                # those of other formats are everybody's own.
                kernels.append("any")
            for kernel in dict.fromkeys(kernels):
                named.setdefault(kernel, {}).setdefault(form, []).append(sample)
        found: dict[str, dict[str, Fitted[Timing]]] = {}
        for name, forms in named.items():
            for form, samples_of in sorted(forms.items()):
                rows, wanted = sum(len(s.measured) for s in samples_of), FEWEST * len(start)
                if rows >= wanted:
                    self.begin(f"{kind} {name} {form}: {rows} rows")
                if one := self.fit(samples_of, start, kind):
                    found.setdefault(name, {})[form] = one
                    if one.fit.error > MAX_TRANSFER_ERROR:
                        what = f"{one.fit.error:.0%} off on rows held out"
                        self.remarks.append(f"{kind} {name} {form}: {what}: it stands in for nothing else")
                elif name != "any" or list(named) == ["any"]:  # else its rows are told of by their own name
                    why = f"{wanted} are wanted" if rows < wanted else "too few of them are held out, or all"
                    self.remarks.append(f"{kind} {name} {form}: not fitted: of its {rows} rows {why}")
        return {name: found[name] for name in self._default_first(kind, named, found)}

    def _default_first(self, kind: str, named: dict[str, dict[str, list[Sample]]], found: Sets[Timing]) -> list[str]:
        """The one library of matrix products, else what most was measured of; of attention, of which engines have
        several and take the quickest, the nearest to its bound that is no rarity."""
        rows = {name: sum(one.fit.rows for one in forms.values()) for name, forms in found.items()}
        ranks: dict[str, float] = {name: -count for name, count in rows.items()}
        if kind in ("context", "generation"):
            near = {name: self.nearness([s for some in named[name].values() for s in some]) for name in rows}
            ranks = {name: -near[name] * (rows[name] > max(rows.values()) / 10) for name in rows}
        return sorted(found, key=lambda name: (name not in ("any", "add"), ranks[name]))

    def fit(self, samples: list[Sample], start: Timing, into: str) -> Fitted[Timing] | None:
        """A set and its evidence; None where the rows are too few."""
        if sum(len(s.measured) for s in samples) < FEWEST * len(start):
            return None
        seen, few = _thinned(samples, ROWS), _thinned(samples, FEW)
        unseen = [s.rows(np.flatnonzero(s.held_out)) for s in samples if s.held_out.any()]
        if not seen or not unseen:
            return None
        start = _applying(start, seen)

        def off(timing: Timing) -> float:
            return float(np.abs(self._ratios(few, timing, into) - 1).mean())

        found = start
        for name, values in (STARTS | CHOICES).items():
            if name in start._fields:
                tried = [self._parameters(few, start, found._replace(**{name: value}), into) for value in values]
                found = min(tried, key=off)
        found = self._parameters(seen, start, found, into, polished=True)
        return self._evidence(sum(int((~s.held_out).sum()) for s in samples), seen, unseen, _plain(found), into)

    def nearness(self, samples: list[Sample]) -> float:
        """The mean of bound / measured."""
        placed = [(place(s.group.operator.cost, self.device, s.group.compute), s.measured) for s in samples]
        return float(np.concatenate([each.bound_seconds / measured for each, measured in placed]).mean())

    def _ratios(self, samples: list[Sample], timing: Timing, into: str) -> Array:
        """Expected / measured of every row."""
        only: dict[str, Any] = {into: {"any": {"any": Fitted(timing, _UNKNOWN)}}}
        device = replace(self.device, calibration=Calibration(self.device.id, **only))
        ratios = []
        for sample in samples:
            expected = expect(sample.group.operator, device, sample.group.compute)
            assert expected is not None
            ratios.append(expected.seconds / sample.measured)
        return np.concatenate(ratios)

    def _parameters(
        self, samples: list[Sample], usual: Timing, start: Timing, into: str, polished: bool = False
    ) -> Timing:
        """The best within SPAN of what is usual, from a start there; what is 0 stays so."""
        from scipy.optimize import least_squares, minimize

        free = [i for i, value in enumerate(usual) if usual._fields[i] not in CHOICES and value]
        origin = np.log([usual[i] for i in free])
        most = [MOST.get(usual._fields[i], np.inf) for i in free]
        lowest, highest = origin - np.log(SPAN), np.minimum(origin + np.log(SPAN), np.log(most))
        first = np.clip(np.log([start[i] for i in free]), lowest + 1e-6, highest - 1e-6)

        def at(point: Array) -> Timing:
            values = list(start)
            for i, value in zip(free, np.exp(point), strict=True):
                values[i] = float(value)
            return type(start)._make(values)

        def residuals(point: Array) -> Array:
            return self._ratios(samples, at(point), into) - 1

        found = least_squares(
            residuals, first, bounds=(lowest, highest), loss="soft_l1", f_scale=SCALE, diff_step=1e-3, max_nfev=40,
        )  # fmt: skip
        if polished:

            def off(point: Array) -> float:
                return float(np.abs(residuals(point)).mean())

            bounds = np.column_stack([lowest, highest])
            options = {"maxfev": POLISHED, "xtol": 1e-3, "ftol": 1e-5}
            found = minimize(off, found.x, method="Powell", bounds=bounds, options=options)
        return type(start)._make(float(f"{value:.3g}") for value in at(found.x))

    def _evidence(
        self, rows: int, seen: list[Sample], unseen: list[Sample], timing: Timing, into: str
    ) -> Fitted[Timing]:
        """The error of the rows that were not seen, and the interval around those; where they are few, around all."""
        ratios = self._ratios(unseen, timing, into)
        spread = ratios if len(ratios) >= 10 else np.concatenate((ratios, self._ratios(seen, timing, into)))
        low, high = np.quantile(1 / spread, (0.1, 0.9), method="weibull")  # of few rows, the outermost
        low, high = min(low, 1.0), max(high, 1.0)  # the expectation itself is inside
        fit = Fit(
            rows, len(ratios), float(f"{np.abs(ratios - 1).mean():.3g}"), float(f"{low:.3g}"),
            float(f"{high:.3g}"), self.source, date.today().isoformat(),
        )  # fmt: skip
        return Fitted(timing, fit)


def _applying(start: Timing, samples: list[Sample]) -> Timing:
    """Without what these products of matrices have not: rows to quantise, weights to convert."""
    if isinstance(start, GemmTiming):
        products = [found for s in samples if (found := gemm_work(s.group.operator, s.group.compute))]
        if not any(np.any(each.quantized) for each in products):
            start = start._replace(row=0.0, spill=0.0)
        if not any(each.b < each.a for each in products):
            start = start._replace(convert=0.0)
    return start


def _plain(timing: Timing) -> Timing:
    """Without what never comes about: waits for a host, since nothing is as short; kernels that there are not."""
    if isinstance(timing, GemmTiming) and timing.host <= timing.latency:
        timing = timing._replace(host=0.0)
    if isinstance(timing, GemmTiming) and not timing.few:
        timing = timing._replace(column=0.0, dot=0.0)
    if isinstance(timing, GenerationTiming) and not timing.group:
        timing = timing._replace(alone=0.0, single=0.0)
    return timing


def _thinned(samples: list[Sample], most: int) -> list[Sample]:
    """Of the rows that may be seen, so many at most, evenly."""
    seen = [np.flatnonzero(~s.held_out) for s in samples]
    step = max(1, -(-sum(len(rows) for rows in seen) // most))
    return [s.rows(rows[::step]) for s, rows in zip(samples, seen, strict=True) if len(rows[::step])]


def held_out(shape: Mapping[str, Array], third: int = 0) -> Array:
    """One of the three thirds of the cells of shapes: sizes to the nearest power of two, so that neighbours stay
    together."""
    cells = np.stack([np.round(np.log2(np.maximum(shape[name], 1))).astype(int) for name in sorted(shape)])
    return np.array([zlib.crc32(cell.tobytes()) % 3 == third for cell in np.ascontiguousarray(cells.T)])
