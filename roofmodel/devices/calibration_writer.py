"""Writer of a device's file with the parameter sets that `roof calibrate` fitted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from roofmodel.devices.calibration import Calibration, Fitted, Sets
from roofmodel.devices.calibration_reader import SHARED, TIMINGS, is_seconds
from roofmodel.errors import DeviceError

_HEADING = "calibration:"
_COMMENT = "# Fitted by `roof calibrate`. roofmodel/devices/calibration.py explains the parameters."


def device_file(text: str, calibration: Calibration) -> str:
    """A device's YAML text with these sets; the calibration section moves to the end of the file.

    Fitted kinds are replaced. Other kinds stay, including those that refer to another device by `like`. Raises
    DeviceError for a section in braces.
    """
    found = re.search(r"^calibration:(.*)$", text, re.MULTILINE)
    before, section = (text[: found.start()], text[found.end() :]) if found else (text, "")
    if found and found[1].partition("#")[0].strip():
        raise DeviceError(
            f"{found[0]!r}: roof calibrate cannot replace a section in braces; write each set on lines of its own"
        )
    kept: dict[str, list[str]] = {}
    for line in filter(str.strip, section.splitlines()):
        if line[2:3].strip() and line.startswith("  "):  # a kind, at the first level
            kind = line.strip().partition(":")[0]
            kept[kind] = []
        if kept:
            kept[kind].append(line)
    if "like" in kept:  # for all kinds
        kept = {name: [f"  {name}:", f"  {kept['like'][0]}"] for name in TIMINGS}
    kept |= sections(calibration)
    lines = [line for name in TIMINGS for line in kept.get(name, [])]
    before = before.rstrip().removesuffix(_COMMENT).rstrip()
    return "\n".join((before, "", _COMMENT, _HEADING, *lines)) + "\n"


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
