"""Reader of a device's parameter sets: `hardware/fitted/DEVICE.yaml`, or the section `calibration` of a user's file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from roofmodel.devices import library
from roofmodel.devices.calibration import (
    HEAD_SIZES,
    BatchedTiming,
    Calibration,
    CausalConvolutionTiming,
    CollectiveTiming,
    DecodeTiming,
    DeltaRuleTiming,
    ElementwiseTiming,
    ExpertsTiming,
    Fit,
    Fitted,
    GemmTiming,
    Parameter,
    PrefillTiming,
    Sets,
    StateUpdateTiming,
    Timing,
    for_all_head_sizes,
    parameters,
    stated_parameters,
)
from roofmodel.devices.transfer import CalibratedDevice, DeferredSets, sets_of_kind, transferred
from roofmodel.errors import DeviceError
from roofmodel.files.text_files import YamlValue

TIMINGS: dict[str, Any] = {
    "gemm": GemmTiming,
    "prefill_attention": PrefillTiming,
    "decode_attention": DecodeTiming,
    "experts": ExpertsTiming,
    "collectives": CollectiveTiming,
    "elementwise": ElementwiseTiming,
    "encoder_attention": PrefillTiming,
    "latent_prefill": PrefillTiming,
    "latent_decode": DecodeTiming,
    "latent_products": BatchedTiming,
    "causal_convolution": CausalConvolutionTiming,
    "causal_convolution_update": StateUpdateTiming,
    "delta_rule_prefill": DeltaRuleTiming,
    "delta_rule_decode": StateUpdateTiming,
}
LEAST_DIVISOR = 1e-6  # of the parameters that are no times: a formula may divide by them
SHARED = ("source", "date")  # of the fits of a kind
Load = Callable[[str, tuple[str, ...]], CalibratedDevice]
"""Returns a device by its name, with its parameter sets of some kinds."""


def read(
    sets: YamlValue | None,
    like: YamlValue | None,
    device: CalibratedDevice,
    load: Load,
    kinds: tuple[str, ...] = tuple(TIMINGS),
    deferred: bool = False,
) -> Calibration | None:
    """The parameter sets of `kinds` of a device; None where it has none.

    `sets` are those that were fitted to measurements on the device. All other kinds are those of the device `like`,
    with wider intervals; only they are loaded, so that two devices can use different kinds of each other. `transfer.py`
    scales the parameters. Raises DeviceError; with `deferred`, errors in the other file are raised when these sets are
    first used (see `DeferredSets`).
    """
    entries = sets.mapping((*TIMINGS, "like")) if sets else {}
    if "like" in entries:
        name = entries["like"].text()
        raise entries["like"].error(
            f"'like' is now a key of the file: replace 'calibration: {{like: {name}}}' by 'like: {name}'"
        )
    if like is None and sets is None:
        return None
    own: dict[str, Any] = {kind: _sets(entries[kind], TIMINGS[kind]) for kind in kinds if kind in entries}
    if like is None:
        return Calibration(device.id, **own)
    missing = tuple(kind for kind in kinds if kind not in entries)
    find = cache(partial(_transferred, device, like, load, missing))
    if not entries:
        return find()
    reads = {kind: partial(sets_of_kind, find, kind) for kind in missing}
    others: dict[str, Any] = {kind: DeferredSets(read) if deferred else read()[0] for kind, read in reads.items()}
    source = like.text() if deferred or not missing else find().device
    return Calibration(device.id, {source: missing} if missing else {}, **own, **others)


class _RefersBackError(DeviceError):
    """The parameters of the device `like` are those of the device itself; the message has one file only."""


def _transferred(device: CalibratedDevice, like: YamlValue, load: Load, kinds: tuple[str, ...]) -> Calibration:
    """The sets of some kinds of the device that a file names by `like`."""
    name = like.text()
    refers_back = _RefersBackError(*like.error(f"like refers back to this file: {name}").args)
    if name == device.id:
        raise refers_back
    try:
        source = load(name, kinds)
    except (RecursionError, _RefersBackError):
        raise refers_back from None
    except DeviceError as error:
        raise like.error(f"{like.path}: ", *error.args) from None
    if source.calibration is None:
        calibrated = [each for each in library.names() if library.fitted_file(library.find(each))]
        raise like.error(f"{like.path}: {name} has no fitted parameters; calibrated devices: {', '.join(calibrated)}")
    return transferred(device, source, kinds)


def _sets(node: YamlValue, timing: type[Timing]) -> Sets[Timing]:
    """The sets of a kind; the entry `fit` has the source and date of sets that do not state their own."""
    entries = node.mapping()
    shared = entries.pop("fit").mapping(SHARED) if "fit" in entries else {}
    return {
        name: {form: _fitted(entry, timing, shared) for form, entry in forms.mapping().items()}
        for name, forms in entries.items()
    }


def _fitted(node: YamlValue, timing: type[Timing], shared: Mapping[str, YamlValue]) -> Fitted[Timing]:
    declared, fields_by_name = parameters(timing), stated_parameters(timing)
    entries = node.mapping((*fields_by_name, "fit"), required=(*fields_by_name, "fit"))
    values: list[float] = []
    for name, fields in fields_by_name.items():
        if len(fields) > 1:
            by_size = entries[name].mapping(tuple(map(str, HEAD_SIZES)))
            values_by_size = {int(size): _value(entry, declared[fields[0]]) for size, entry in by_size.items()}
            if not values_by_size:
                raise entries[name].error(f"{entries[name].path} has no head size, such as {{128: ...}}")
            values += for_all_head_sizes(values_by_size)
        else:
            values.append(_value(entries[name], declared[name]))
    fit = {**shared, **entries["fit"].mapping(Fit._fields, [name for name in Fit._fields if name not in shared])}
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


def _value(node: YamlValue, parameter: Parameter) -> float:
    """The value of a parameter: a time with its unit, or a number."""
    if is_seconds(parameter):
        return 0.0 if node.text() == "0" else node.quantity("s")
    value = node.number()
    if value < LEAST_DIVISOR and value not in parameter.values:
        raise node.error(f"{node.path} is {value:g}; it must be at least {LEAST_DIVISOR:g}")
    return value


def is_seconds(parameter: Parameter) -> bool:
    """Whether a parameter is a time, which has a unit in files."""
    return parameter.unit.startswith("s")
