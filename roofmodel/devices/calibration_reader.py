"""Reader of the `calibration` section of a device's file; `calibration_writer.py` writes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from roofmodel.devices.calibration import (
    BatchedTiming,
    Calibration,
    ChunkTiming,
    CollectiveTiming,
    ContextTiming,
    ExpertsTiming,
    FilterTiming,
    Fit,
    Fitted,
    GemmTiming,
    GenerationTiming,
    LatentGenerationTiming,
    RecurrenceTiming,
    Sets,
    StreamTiming,
    TiledTiming,
    Timing,
)
from roofmodel.devices.transfer import CalibratedDevice, DeferredSets, sets_of_kind, transferred
from roofmodel.errors import DeviceError, shorten
from roofmodel.files.text_files import YamlValue

TIMINGS: dict[str, Any] = {
    "gemm": GemmTiming,
    "context": ContextTiming,
    "generation": GenerationTiming,
    "experts": ExpertsTiming,
    "collectives": CollectiveTiming,
    "stream": StreamTiming,
    "encoder": TiledTiming,
    "latent_context": TiledTiming,
    "latent_generation": LatentGenerationTiming,
    "latent_products": BatchedTiming,
    "filter": FilterTiming,
    "filter_update": RecurrenceTiming,
    "chunks": ChunkTiming,
    "recurrence": RecurrenceTiming,
}
SECONDS = (
    "latency", "step", "split", "ramp", "row", "cast", "host", "convert", "column", "dot", "wave", "alone", "single",
    "expert", "pair", "routing", "late", "part", "token", "block", "chunk", "start", "serial",
    "cluster_latency", "cluster_wave", "narrow_wave",
)  # fmt: skip
POSITIVE = (
    "pipe", "dram", "l2", "store", "parts", "stream", "rows", "early", "bandwidth", "height", "tile", "splits", "kept",
    "column_blocks", "cluster_pipe", "padded", "large",
)  # fmt: skip
"""Parameters that a formula divides by, unless their default is 0."""
LEAST_DIVISOR = 1e-6  # of these parameters; times with much smaller ones overflow
CHOICES = {"elsewhere": (0, 1, 2, 3), "balanced": (0, 1)}
"""The values of parameters that select a formula."""
_HEAD_SIZE = re.compile("[1-9][0-9]{0,5}")
SHARED = ("source", "date")  # of the fits of a kind
Load = Callable[[str, tuple[str, ...]], CalibratedDevice]
"""Returns a device by its name, with its parameter sets of some kinds."""


def read(
    node: YamlValue,
    device: CalibratedDevice,
    load: Load,
    kinds: tuple[str, ...] = tuple(TIMINGS),
    deferred: bool = False,
) -> Calibration:
    """The parameter sets of `kinds` in a device's file, and those of other devices that the file names by `like`.

    `like: a100-sxm-80gb` takes the sets of that device, for all kinds or for one kind, with wider intervals. Only these
    kinds of the other device are loaded, so that two devices can use different kinds of each other. `transfer.py`
    scales the parameters. Raises DeviceError; with `deferred`, errors in the other files are raised when these sets are
    first used (see `DeferredSets`).
    """
    entries = node.mapping(("like", *TIMINGS))
    device_id = device.id

    def like(of: YamlValue, kinds: tuple[str, ...]) -> CalibratedDevice:
        try:
            found = load(of.text(), kinds) if of.text() != device_id else device
        except RecursionError:
            raise of.error(f"{of.path} is {of.text()!r}, whose calibration refers back to this device") from None
        except DeviceError as error:
            raise of.error(f"{of.path}: ", *error.args) from None
        if found.calibration is None:
            raise of.error(f"{of.path} is {of.text()!r}, which is not another, calibrated device")
        return found

    if "like" in entries:
        if len(entries) > 1:
            raise entries["like"].error(f"{node.path} has both 'like' and its own parameter sets; keep one of them")
        return transferred(device, like(entries["like"], kinds), kinds)
    sets, transferred_kinds = {}, {}
    by_source: dict[str, dict[str, YamlValue]] = {}
    for kind in kinds:
        if kind in entries:
            if same := entries[kind].mapping().get("like"):
                by_source.setdefault(same.text(), {})[kind] = same
            else:
                sets[kind] = _sets(entries[kind], TIMINGS[kind])
    for name, wanted in by_source.items():
        find = cache(partial(_transferred_kinds, device, like, wanted))
        transferred_kinds[name if deferred else find().device] = list(wanted)
        reads = {kind: partial(sets_of_kind, find, kind) for kind in wanted}
        sets |= {kind: DeferredSets(read) if deferred else read()[0] for kind, read in reads.items()}
    return Calibration(device_id, transferred_kinds, **sets)


def _transferred_kinds(
    device: CalibratedDevice,
    like: Callable[[YamlValue, tuple[str, ...]], CalibratedDevice],
    wanted: Mapping[str, YamlValue],
) -> Calibration:
    """The sets of the `wanted` kinds of one other device; the values name this device, with their line in the file."""
    kinds = tuple(wanted)
    return transferred(device, like(wanted[kinds[0]], kinds), kinds)


def _sets(node: YamlValue, timing: type[Timing]) -> Sets[Timing]:
    """The sets of a kind; the entry `fit` has the source and date of sets that do not state their own."""
    entries = node.mapping()
    shared = entries.pop("fit").mapping(SHARED) if "fit" in entries else {}
    return {
        name: {_form(form, one): _fitted(one, timing, shared) for form, one in forms.mapping().items()}
        for name, forms in entries.items()
    }


def _form(key: str, node: YamlValue) -> str:
    """A format key of a set, whose third part is a head size."""
    for size in key.split("/")[2:]:
        if not _HEAD_SIZE.fullmatch(size):
            raise node.error(
                f"the key {shorten(key)} has the head size {shorten(size)}; "
                "it must be a positive whole number, as in 'fp16/fp16/128'"
            )
    return key


def _fitted(node: YamlValue, timing: type[Timing], shared: Mapping[str, YamlValue]) -> Fitted[Timing]:
    usual = timing._field_defaults
    wanted = (*timing._fields, "fit")
    entries = node.mapping(wanted, required=[name for name in wanted if name not in usual])
    values = [_read(entries[n], timing, n) if n in entries else usual[n] for n in timing._fields]
    fit = {**shared, **entries["fit"].mapping(Fit._fields, [name for name in Fit._fields if name not in shared])}
    for name, value in zip(timing._fields, values, strict=True):
        if name in POSITIVE and value < LEAST_DIVISOR and value != usual.get(name):
            raise entries[name].error(f"{entries[name].path} is {value:g}; it must be at least {LEAST_DIVISOR:g}")
        if name in CHOICES and value not in CHOICES[name]:
            *others, last = map(str, CHOICES[name])
            raise entries[name].error(f"{entries[name].path} is {value:g}; it must be {', '.join(others)} or {last}")
    low, high = fit["low"].number(), fit["high"].number()
    if not low <= 1 <= high:  # factors on the expected time
        raise entries["fit"].error(
            f"{entries['fit'].path} has the interval {low:g} to {high:g}, which must contain 1, such as 0.9 to 1.1"
        )
    return Fitted(
        timing._make(values),
        Fit(
            fit["rows"].integer(0, 10**9), fit["held_out"].integer(0, 10**9),
            fit["error"].number(), low, high, fit["source"].text(), fit["date"].text(),
        ),
    )  # fmt: skip


def _read(node: YamlValue, timing: type[Any], name: str) -> float:
    nothing = name in timing._field_defaults and node.text() == "0"
    return 0.0 if nothing else node.quantity("s") if is_seconds(timing, name) else node.number()


def is_seconds(timing: type[Timing], name: str) -> bool:
    """Whether a parameter is a time, which has a unit in the file."""
    return name in SECONDS or (name == "fill" and timing is GemmTiming)
