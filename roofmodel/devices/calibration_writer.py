"""Writer of a device's file with the parameter sets that `roof calibrate` fitted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import yaml

from roofmodel.devices.calibration import Calibration, Fitted, Sets
from roofmodel.devices.calibration_reader import SHARED, TIMINGS, is_seconds
from roofmodel.errors import DeviceError

_HEADING = "calibration:"
_COMMENT = "# Fitted by `roof calibrate`. roofmodel/devices/calibration.py explains the parameters."


def device_file(text: str, calibration: Calibration) -> str:
    """A device's YAML text with these sets in its calibration section; without a section, they follow at the end.

    Fitted kinds are replaced. Other kinds stay, including those that refer to another device by `like`, and so does the
    text before and after the section. Raises DeviceError for a file or a section in braces.
    """
    text = text.rstrip() + "\n"
    lines, file = text.splitlines(), yaml.compose(text, yaml.SafeLoader)
    assert isinstance(file, yaml.MappingNode)  # the device was read from it
    if file.flow_style or any(key.start_mark.column for key, _ in file.value):
        raise DeviceError(
            "roof calibrate cannot add sets to a device's file in braces or with indented keys; "
            "start each key of the device in the first column of a line"
        )
    start = stop = file.end_mark.line
    indent, kept = "  ", dict[str, list[str]]()
    next_keys = [key.start_mark.line for key, _ in file.value[1:]] + [file.end_mark.line]
    for (key, value), next_key in zip(file.value, next_keys, strict=True):
        if key.value == "calibration":
            start, stop = key.start_mark.line, _end(lines, next_key, 0)
            indent, kept = " " * value.start_mark.column, _kinds(value, lines, start, stop)
    fitted = sections(calibration)
    kept |= {kind: [indent + line.removeprefix("  ") for line in written] for kind, written in fitted.items()}
    section = "\n".join((_COMMENT, _HEADING, *(line for kind in TIMINGS for line in kept.get(kind, ()))))
    before = "\n".join(lines[:start]).rstrip().removesuffix(_COMMENT).rstrip()
    after = "\n".join(lines[stop:]).strip("\n")
    return "\n\n".join(filter(None, (before, section, after))) + "\n"


def _kinds(section: yaml.MappingNode, lines: list[str], start: int, stop: int) -> dict[str, list[str]]:
    """The lines of each kind of the section, which has the lines from `start` to `stop`."""
    if section.flow_style:
        raise DeviceError(
            f"{lines[start]!r}: roof calibrate cannot replace a section in braces; write each set on lines of its own"
        )
    names, column = [kind.value for kind, _ in section.value], section.start_mark.column
    if names == ["like"]:  # for all kinds
        indent, source = " " * column, _quoted(section.value[0][1].value)
        return {kind: [f"{indent}{kind}:", f"{indent}  like: {source}"] for kind in TIMINGS}
    ends = [_end(lines, kind.start_mark.line, column) for kind, _ in section.value[1:]]
    return {name: lines[slice(*ends)] for name, ends in zip(names, pairwise((start + 1, *ends, stop)), strict=True)}


def _end(lines: list[str], next_key: int, column: int) -> int:
    """The line after a value; blank lines, and comments up to the column of the next key, belong to that key."""
    of_next_key = re.compile(rf"\s*$| {{0,{column}}}#")
    while of_next_key.match(lines[next_key - 1]):
        next_key -= 1
    return next_key


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
