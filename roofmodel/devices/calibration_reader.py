"""The `calibration` of a device's file, read; `recalibrated.py` writes it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from roofmodel.devices.calibration import (
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
from roofmodel.text_files import Place

TIMINGS: dict[str, Any] = {
    "gemm": GemmTiming,
    "context": ContextTiming,
    "generation": GenerationTiming,
    "experts": ExpertsTiming,
    "collectives": CollectiveTiming,
    "stream": StreamTiming,
}
SECONDS = (
    "latency", "step", "split", "ramp", "row", "host", "convert", "column", "dot", "wave", "alone", "single",
    "expert", "late", "part",
)  # fmt: skip
POSITIVE = ("pipe", "dram", "l2", "store", "parts", "stream", "rows", "bandwidth")
WIDER = 1.5  # how much wider an interval is, as a power of its ends, where the sets are another device's


def read(place: Place, device: Device, load: Callable[[str], Device]) -> Device:
    """The device with its file's own sets, and those of another device that it names, of everything or of one kind.

    `like: a100-sxm-80gb` stands for the sets of a device of the same design; their interval is taken wider. Where the
    same benchmark of matrix products ran on both devices, their pipes are taken as far as it got here (see `_pace`).
    """
    entries = place.mapping(("like", *TIMINGS))
    own = device.id

    def like(of: Place) -> tuple[Calibration, float]:
        try:
            found = load(of.text()) if of.text() != own else device
        except RecursionError:
            raise of.error(f"{of.path} is {of.text()!r}, whose own calibration leads back here") from None
        if found.calibration is None:
            raise of.error(f"{of.path} is {of.text()!r}, which is no other device that is calibrated")
        return found.calibration, _pace(device, found)

    if "like" in entries:
        if len(entries) > 1:
            raise entries["like"].error(f"{place.path} is either 'like' another device or has sets of its own")
        other, pace = like(entries["like"])
        sets = {kind: _carried(getattr(other, kind), pace) for kind in TIMINGS}
        borrowed = {other.device: [kind for kind in TIMINGS if sets[kind]]}
        return replace(device, calibration=Calibration(other.device, borrowed, **sets))
    sets, borrowed = {}, {}
    for kind, timing in TIMINGS.items():
        if kind in entries:
            inside = entries[kind].mapping()
            same = inside.get("like")
            if same:
                other, pace = like(same)
                sets[kind] = _carried(getattr(other, kind), pace)
                borrowed.setdefault(other.device, []).append(kind)
            else:
                sets[kind] = _sets(entries[kind], timing)
    return replace(device, calibration=Calibration(own, borrowed, **sets))


def _sets(place: Place, timing: type[Timing]) -> Sets[Timing]:
    return {
        name: {form: _fitted(one, timing) for form, one in forms.mapping().items()}
        for name, forms in place.mapping().items()
    }


def _fitted(place: Place, timing: type[Timing]) -> Fitted[Timing]:
    usual = timing._field_defaults
    wanted = (*timing._fields, "fit")
    entries = place.mapping(wanted, required=[name for name in wanted if name not in usual])
    values = [_read(entries[n], timing, n) if n in entries else usual[n] for n in timing._fields]
    fit = entries["fit"].mapping(Fit._fields, required=Fit._fields)
    for name, value in zip(timing._fields, values, strict=True):
        if name in POSITIVE and name in entries and value <= 0:
            raise entries[name].error(f"{entries[name].path} is {value:g}; it must be greater than zero")
    return Fitted(
        timing._make(values),
        Fit(
            fit["rows"].whole(0, 10**9), fit["held_out"].whole(0, 10**9), fit["error"].number(), fit["low"].number(),
            fit["high"].number(), fit["source"].text(), fit["date"].text(),
        ),
    )  # fmt: skip


def _read(place: Place, timing: type[Any], name: str) -> float:
    nothing = name in timing._field_defaults and place.text() == "0"
    return 0.0 if nothing else place.quantity("s") if is_seconds(timing, name) else place.number()


def is_seconds(timing: type[Timing], name: str) -> bool:
    """Whether a parameter is a time, which the file states with its unit."""
    return name in SECONDS or (name == "fill" and timing is GemmTiming)


def _pace(here: Device, there: Device) -> float:
    """How much less of its tensor pipes' peaks a device gets than another, by the benchmarks that both ran; 1 at most.

    That is what a card's power does: one that is given little for its peak lowers its clock while it multiplies. All
    formats draw on the same power, so that their mean stands for each.
    """
    mine, others = _reached(here), _reached(there)
    ratios = [mine[benchmark] / others[benchmark] for benchmark in mine.keys() & others.keys()]
    return min(sum(ratios) / len(ratios), 1.0) if ratios else 1.0


def _reached(device: Device) -> dict[tuple[str, str, str], float]:
    """By tensor pipe and benchmark, the part of the peak that it got."""
    return {
        (m.ceiling, m.by, device.sources[m.source]): m.value / device.pipes[m.ceiling].peak
        for m in device.measured
        if m.ceiling.startswith("tensor_") and m.ceiling in device.pipes and m.source
    }


def _carried(sets: Sets[Timing], pace: float) -> Sets[Timing]:
    """Another device's sets: their pipes at the pace of this one, their intervals wider."""

    def carried(one: Fitted[Any]) -> Fitted[Any]:
        timing, fit = one
        slower = timing._replace(pipe=timing.pipe * pace) if "pipe" in timing._fields else timing
        return Fitted(slower, fit.wider(WIDER))

    return {name: {form: carried(one) for form, one in forms.items()} for name, forms in sets.items()}
