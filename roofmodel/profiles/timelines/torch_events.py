"""Read the events of a PyTorch profiler trace as a stream, with ijson: memory does not grow with the text.

Times are microseconds with up to three decimals; they are read as decimals and stored as integer nanoseconds, because
a float of 1.7e15 us has a resolution of a quarter of a microsecond. Categories are compared in lower case: PyTorch 1.8
wrote `Kernel`, `Memcpy`, `Operator` and `Runtime`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, BinaryIO

from roofmodel.errors import ProfileError, shorten
from roofmodel.file_names import printable
from roofmodel.profiles.kernel import Evidence, copy_direction, host_memory
from roofmodel.profiles.timelines.timeline import (
    CALLS,
    COPY,
    KERNEL,
    MEMSET,
    OPERATORS,
    RANGES,
    WORK,
    TableBuilder,
    Timeline,
    count_joined,
    with_launches,
)

HOW_TO_COLLECT = "collect with `torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])`"
_WORK = {"kernel": KERNEL, "gpu_memcpy": COPY, "memcpy": COPY, "gpu_memset": MEMSET, "memset": MEMSET}
_CALL = re.compile(r"(\w+_)?(runtime|driver|api)")
_OPERATOR = ("cpu_op", "operator")
_SIDES = re.compile(r"\((\w+) -> (\w+)\)")
_BYTES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int": 4, "long": 8, "char": 1, "byte": 1, "bool": 1,
    "float8": 1, "signed char": 1, "unsigned char": 1, "short": 2, "long int": 8,
}  # fmt: skip
_LIST_KEY = ("", "map_key", "traceEvents")
_MAX_MICROSECONDS = Decimal(10) ** 15 * 9
Event = dict[str, Any]


def read(file: BinaryIO, name: str) -> Timeline:
    """The events of a trace. Raises ProfileError for JSON that is truncated, damaged or not a PyTorch trace."""
    work, calls = TableBuilder(WORK), TableBuilder(CALLS)
    operators, ranges = TableBuilder(OPERATORS), TableBuilder(RANGES)
    unusable = 0
    prefix, properties = _header(file, name)
    seen_categories = set()
    for event in _events(file, name, prefix):
        category = str(event.get("cat", "")).lower()
        seen_categories.add(category)
        if event.get("ph") != "X":
            continue
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        is_call = category not in _WORK and _CALL.fullmatch(category) is not None
        if not (category in _WORK or is_call or category in _OPERATOR or category == "user_annotation"):
            continue
        start, duration = _nanoseconds(event.get("ts")), _nanoseconds(event.get("dur"))
        label = event.get("name")
        if start is None or duration is None or duration < 0 or not isinstance(label, str) or not label:
            unusable += 1
            continue
        label = printable(label)
        end = start + duration
        process, thread = str(event.get("pid")), str(event.get("tid"))
        if category in _WORK:
            kind = _WORK[category]
            work.add(kind=kind, start=start, end=end, name=label, **_work_cells(kind, label, event, args))
        elif is_call:
            correlation = _integer(args.get("correlation"))
            calls.add(name=label, start=start, end=end, process=process, thread=thread, correlation=correlation)
        else:
            table = operators if category in _OPERATOR else ranges
            table.add(name=label, start=start, end=end, process=process, thread=thread)
    if not seen_categories & {*_WORK, *_OPERATOR, "user_annotation"} and not any(map(_CALL.fullmatch, seen_categories)):
        raise ProfileError(
            f"{name}: not a trace of the PyTorch profiler (no event has its categories); {HOW_TO_COLLECT}"
        )
    timeline = Timeline(
        "torch", name, work.frame(), calls.frame(), operators.frame(), ranges.frame(), _evidence(properties)
    )
    timeline = with_launches(timeline)
    return _checked(timeline, unusable)


def _checked(timeline: Timeline, unusable: int) -> Timeline:
    from dataclasses import replace

    warnings = []
    kernels, joined = count_joined(timeline)
    if not kernels:
        warnings.append(f"the trace has no kernels; {HOW_TO_COLLECT}")
    elif joined < kernels:
        warnings.append(
            f"{kernels - joined} of {kernels} kernels have no launch in the trace: their operator, range and the cause "
            "of idle time before them are unknown"
        )
    if unusable:
        warnings.append(f"{unusable} events without a name, a time or a valid duration are ignored")
    return replace(timeline, warnings=tuple(warnings))


def _header(file: BinaryIO, name: str) -> tuple[str, list[Event]]:
    """The path of the events (the trace is an object, or a list of events), and the entries of `deviceProperties`.

    PyTorch writes the properties before the events; tools that rewrite traces may put them after.
    """
    import ijson

    prefix, properties = "item", []
    try:
        token = next((token for _, token, _ in ijson.parse(_WithoutControls(file))), None)
        file.seek(0)
        if token == "start_map":
            prefix = "traceEvents.item"
            _check_one_list(file, name)
            properties = list(ijson.items(_WithoutControls(file), "deviceProperties.item"))
            file.seek(0)
    except ijson.JSONError as error:
        raise _damaged(name, error) from None
    return prefix, [each for each in properties if isinstance(each, dict)]


def _events(file: BinaryIO, name: str, prefix: str) -> Iterator[Event]:
    import ijson

    try:
        for event in ijson.items(_WithoutControls(file), prefix):
            if isinstance(event, dict):
                yield event
    except ijson.JSONError as error:
        raise _damaged(name, error) from None


class _WithoutControls:
    """A stream whose control characters are blanks: PyTorch does not escape them in names, which JSON demands."""

    _BLANKS = bytes(range(32)), b" " * 32

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._table = file, bytes.maketrans(*self._BLANKS)

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size).translate(self._table)


def _check_one_list(file: BinaryIO, name: str) -> None:
    """Raises ProfileError for a second key `traceEvents`: which of the lists is meant is unknown."""
    import ijson

    count, rest, key = 0, b"", b'"traceEvents"'
    while block := file.read(1 << 20):
        count += (rest + block).count(key)
        rest = block[-len(key) + 1 :]
    file.seek(0)
    if count > 1:  # also in a name; parsing is slow, so it is left to this case
        keys = sum(1 for path, token, value in ijson.parse(_WithoutControls(file)) if (path, token, value) == _LIST_KEY)
        file.seek(0)
        if keys > 1:
            raise ProfileError(f"{name}: the key 'traceEvents' occurs more than once; export the trace again")


def _damaged(name: str, error: Exception) -> ProfileError:
    text = " ".join(str(error).split())
    if "premature EOF" in text or "ncomplete" in text:
        return ProfileError(f"{name}: the trace is truncated; export it again")
    return ProfileError(f"{name}: the trace is not valid JSON ({shorten(text)}); export it again")


def _work_cells(kind: str, label: str, event: Event, args: Event) -> Event:
    cells: Event = {
        "device": _text(args.get("device", event.get("pid"))),
        "stream": _text(args.get("stream", event.get("tid"))),
        "correlation": _integer(args.get("correlation")),
        "bytes": _integer(args.get("bytes")),
    }
    if kind == COPY:
        sides = _SIDES.search(label)
        cells["direction"], cells["memory"] = copy_direction(label), sides and host_memory(sides[1], sides[2])
    elif kind == MEMSET:
        cells["memory"] = "device" if "(Device)" in label else None
    elif kind == KERNEL and (collective := args.get("Collective name")):
        elements = max(
            (n for key in ("In msg nelems", "Out msg nelems") if (n := _integer(args.get(key)))), default=None
        )
        size = _BYTES.get(str(args.get("dtype", "")).lower().removeprefix("c10::"))
        cells["collective"] = _text(collective)
        cells["message_bytes"] = elements * size if elements and size else None
        cells["group_size"] = _integer(args.get("Group size"))
    return cells


def _evidence(properties: list[Event]) -> tuple[Evidence, ...]:
    found = []
    for device in properties:
        major, minor = _integer(device.get("computeMajor")), _integer(device.get("computeMinor"))
        amd = _integer(device.get("warpSize")) == 64
        found.append(
            Evidence(
                name=_text(device.get("name")),
                compute_capability=None if amd or not major else f"{major}.{minor or 0}",
                multiprocessors=_integer(device.get("numSms")) or None,
                dram_bytes=_integer(device.get("totalGlobalMem")) or None,
            )
        )
    return tuple(dict.fromkeys(found))


def _text(value: object) -> str | None:
    return printable(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, str) and not re.fullmatch(r"-?\d{1,20}(\.\d{1,20})?", value, re.ASCII):
        return None
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        return None
    number = Decimal(value)
    return number if -_MAX_MICROSECONDS < number < _MAX_MICROSECONDS else None


def _integer(value: object) -> int | None:
    number = _decimal(value)
    return None if number is None or number != int(number) else int(number)


def _nanoseconds(microseconds: object) -> int | None:
    value = _decimal(microseconds)
    return None if value is None else round(value * 1000)
