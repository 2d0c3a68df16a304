"""Writer of a device's file with the parameter sets that `roof calibrate` fitted, in a section `calibration`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import yaml

from roofmodel.devices.calibration import Calibration, Fitted, Sets
from roofmodel.devices.calibration_reader import SHARED, TIMINGS, is_seconds
from roofmodel.errors import DeviceError

_COMMENT = "# Fitted by `roof calibrate`. roofmodel/devices/calibration.py explains the parameters."


def device_file(text: str, calibration: Calibration) -> str:
    """A device's YAML text with these sets as its last section, in place of an earlier section `calibration`.

    Raises DeviceError for a file in braces or with indented keys.
    """
    text = text.rstrip() + "\n"
    lines, file = text.splitlines(), yaml.compose(text, yaml.SafeLoader)
    assert isinstance(file, yaml.MappingNode)  # the device was read from it
    if file.flow_style or any(key.start_mark.column for key, _ in file.value):
        raise DeviceError(
            "roof calibrate cannot add sets to a device's file in braces or with indented keys; "
            "start each key of the device in the first column of a line"
        )
    starts = {key.value: key.start_mark.line for key, _ in file.value}
    if "calibration" in starts:
        start = starts["calibration"]
        stop = min((line for line in starts.values() if line > start), default=len(lines))
        while start < stop - 1 and (not lines[stop - 1] or lines[stop - 1].startswith("#")):  # of the next key
            stop -= 1
        lines[start:stop] = []
    kept = "\n".join(line for line in lines if line != _COMMENT).rstrip()
    section = [line for lines in sections(calibration).values() for line in lines]
    return "\n".join((kept, "", _COMMENT, "calibration:", *section)) + "\n"


def sections(calibration: Calibration) -> dict[str, list[str]]:
    """Kind -> its lines of YAML, one for each set."""
    written: dict[str, list[str]] = {}
    for kind in TIMINGS:
        sets: Sets[Any] = getattr(calibration, kind)
        if not sets:
            continue
        origins = Counter(_origin(one) for forms in sets.values() for one in forms.values())
        shared = origins.most_common(1)[0][0]
        lines = [f"  {kind}:", f"    fit: {{{_entries(shared)}}}"]
        for name, forms in sets.items():
            of_forms = [f"{form}: {_set(one, shared)}" for form, one in forms.items()]
            if len(of_forms) == 1:
                lines.append(f"    {_quoted(name)}: {{{of_forms[0]}}}")
            else:
                lines += [f"    {_quoted(name)}:", *(f"      {line}" for line in of_forms)]
        written[kind] = lines
    return written


def _set(one: Fitted[Any], shared: tuple[tuple[str, str], ...]) -> str:
    """A set without default values, and without a source and date that equal those of the kind."""
    timing, defaults = one.timing._asdict(), one.timing._field_defaults
    stated = [(n, _value(type(one.timing), n, v)) for n, v in timing.items() if n not in defaults or v != defaults[n]]
    fit = [(n, str(v)) for n, v in one.fit._asdict().items() if n not in SHARED]
    fit += [each for each in _origin(one) if each not in shared]
    return f"{{{_entries([*stated, ('fit', f'{{{_entries(fit)}}}')])}}}"


def _origin(one: Fitted[Any]) -> tuple[tuple[str, str], ...]:
    """The source and date of a fit, as the file has them."""
    return (("source", _quoted(one.fit.source)), ("date", one.fit.date))


def _entries(values: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values)


def _value(timing: type[Any], name: str, value: float) -> str:
    if not is_seconds(timing, name):
        return f"{value:g}" if float(f"{value:g}") == value else repr(float(value))  # scaled for another device
    unit, factor = ("us", 1e6) if value >= 1e-6 else ("ns", 1e9)
    return f"{value * factor:.4g} {unit}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
