"""Read the events of a PyTorch profiler trace as a stream, with ijson: memory does not grow with the text.

Times are stored as integer nanoseconds, see `profiles/torch_fields.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from roofmodel.errors import ProfileError, shorten
from roofmodel.files.file_names import printable
from roofmodel.profiles import torch_fields as fields
from roofmodel.profiles.kernel import copy_direction, host_memory
from roofmodel.profiles.streams import limited_name
from roofmodel.profiles.timelines.timeline import (
    CALLS,
    COPY,
    KERNEL,
    LATEST,
    MEMSET,
    OPERATORS,
    RANGES,
    WORK,
    TableBuilder,
    Timeline,
    count_joined,
    with_launches,
)
from roofmodel.profiles.torch_fields import CALL, HOW_TO_COLLECT, Event
from roofmodel.profiles.torch_fields import OPERATORS as OPERATOR_CATEGORIES

_WORK = {"kernel": KERNEL, "gpu_memcpy": COPY, "memcpy": COPY, "gpu_memset": MEMSET, "memset": MEMSET}
_SIDES = re.compile(r"\((\w+) -> (\w+)\)")
_BYTES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int": 4, "long": 8, "char": 1, "byte": 1, "bool": 1,
    "signed char": 1, "unsigned char": 1, "short": 2, "long int": 8,
}  # fmt: skip
_DISTRIBUTED_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*"rank"\s*:\s*(\d{1,6})\b')
_HEAD = 1 << 16  # bytes in which the rank is searched
_MAX_NESTING = 2000  # opened and not closed in the 64 KiB that ijson reads at a time
_ESCAPES = re.compile(rb"\\(?:ud[89ab]..\\ud[c-f]..|(ud[89a-f]..)|.)", re.I | re.S)
"""A backslash and what it escapes; group 1 is half of a surrogate pair."""
_INCOMPLETE = re.compile(rb"(?<!\\)(?:\\\\)*(\\(?:u.{0,3}|ud[89ab]..(?:\\(?:u.{0,3})?)?)?)\Z", re.I | re.S)
_LIST_KEY = ("", "map_key", "traceEvents")


def read(file: BinaryIO, name: str) -> Timeline:
    """The events of a trace. Raises ProfileError for JSON that is truncated, damaged or not a PyTorch trace."""
    work, calls = TableBuilder(WORK), TableBuilder(CALLS)
    operators, ranges = TableBuilder(OPERATORS), TableBuilder(RANGES)
    unusable = 0
    prefix, properties = _header(file, name)
    seen_categories = set()
    for event in _events(file, name, prefix):
        category = fields.category(event)
        seen_categories.add(category)
        if event.get("ph") != "X":
            continue
        args = fields.args_of(event)
        is_call = category not in _WORK and CALL.fullmatch(category) is not None
        if not (category in _WORK or is_call or category in OPERATOR_CATEGORIES or category == "user_annotation"):
            continue
        start, duration = fields.nanoseconds(event.get("ts")), fields.nanoseconds(event.get("dur"))
        label = event.get("name")
        if start is None or duration is None or not isinstance(label, str) or not label:
            unusable += 1
            continue
        label, end = limited_name(printable(label)), start + duration
        if not -LATEST < start <= end < LATEST:
            unusable += 1
            continue
        process, thread = str(event.get("pid")), str(event.get("tid"))
        if category in _WORK:
            kind = _WORK[category]
            work.add(kind=kind, start=start, end=end, name=label, **_work_cells(kind, label, event, args))
        elif is_call:
            correlation = fields.integer(args.get("correlation"))
            calls.add(name=label, start=start, end=end, process=process, thread=thread, correlation=correlation)
        elif category in OPERATOR_CATEGORIES:
            inputs = fields.inputs_text(event)
            operators.add(name=label, start=start, end=end, process=process, thread=thread, inputs=inputs)
        else:
            ranges.add(name=label, start=start, end=end, process=process, thread=thread)
    if not seen_categories & {*_WORK, *OPERATOR_CATEGORIES, "user_annotation"} and not any(
        map(CALL.fullmatch, seen_categories)
    ):
        raise ProfileError(
            f"{name}: not a trace of the PyTorch profiler (no event has its categories); {HOW_TO_COLLECT}"
        )
    evidence = tuple(dict.fromkeys(fields.attributes(device, amd=False) for device in properties))
    timeline = Timeline(
        "torch", name, work.frame(), calls.frame(), operators.frame(), ranges.frame(), evidence,
        stated_rank=_stated_rank(file),
    )  # fmt: skip
    timeline = with_launches(timeline)
    return _checked(timeline, unusable)


def _checked(timeline: Timeline, unusable: int) -> Timeline:
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

    Tools that rewrite traces may put the properties after the events.
    """
    import ijson

    prefix, properties = "item", []
    try:
        token = next((token for _, token, _ in ijson.parse(_CheckedText(file, name))), None)
        file.seek(0)
        if token == "start_map":
            prefix = "traceEvents.item"
            _check_one_list(file, name)
            # PyTorch writes them before the events, so that this stops there
            listed: object = next(ijson.items(_CheckedText(file, name), "deviceProperties"), [])
            properties = listed if isinstance(listed, list) else []
            file.seek(0)
    except ijson.JSONError as error:
        raise _damaged(name, error) from None
    except (ValueError, ArithmeticError, RecursionError):  # such as 1e99999999999999999999
        raise _invalid_numbers(name) from None
    return prefix, [each for each in properties if isinstance(each, dict)]


def _stated_rank(file: BinaryIO) -> int | None:
    """The rank in `distributedInfo`, which PyTorch writes before the events."""
    file.seek(0)
    found = _DISTRIBUTED_RANK.search(file.read(_HEAD))
    return int(found[1]) if found else None


def _events(file: BinaryIO, name: str, prefix: str) -> Iterator[Event]:
    import ijson

    try:
        for event in ijson.items(_CheckedText(file, name), prefix):
            if isinstance(event, dict):
                yield event
    except ijson.JSONError as error:
        raise _damaged(name, error) from None
    except (ValueError, ArithmeticError, RecursionError):  # such as 1e99999999999999999999
        raise _invalid_numbers(name) from None


class _CheckedText:
    """The text of a trace for ijson. Raises ProfileError for a number of more than 2048 digits and for deep nesting,
    for which ijson takes quadratic memory: it keeps the path of each level.

    Control characters become blanks: PyTorch does not escape them in names, which JSON demands. Python refuses integers
    of more than 4300 digits, upon which ijson's backend in C crashes the process. Halves of surrogate pairs become
    U+FFFD: ijson would decode them to invalid UTF-8.
    """

    _BLANKS = bytes(range(32)), b" " * 32

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name, self._table = file, name, bytes.maketrans(*self._BLANKS)
        self._end = self._held = b""

    def read(self, size: int = -1) -> bytes:
        block = self._whole_escapes(size).translate(self._table)
        if b"\\u" in block:
            block = _ESCAPES.sub(_without_half_pair, block)
        text = self._end + block
        # 2047 digits in a row contain a whole block of this raster, wherever they begin
        if any(text[place : place + 1024].isdigit() for place in range(0, len(text) - 1023, 1024)) or (
            block.count(b"[") + block.count(b"{") - block.count(b"]") - block.count(b"}") > _MAX_NESTING
        ):
            raise _invalid_numbers(self._name)
        self._end = text[-2047:]
        return block

    def _whole_escapes(self, size: int) -> bytes:
        """The next bytes; an escape at their end that is not complete waits for the rest."""
        while more := self._file.read(size):
            block = self._held + more
            cut = _INCOMPLETE.search(block, max(0, len(block) - 64))
            place = cut.start(1) if cut else len(block)
            block, self._held = block[:place], block[place:]
            if block:
                return block
        block, self._held = self._held, b""
        return block


def _without_half_pair(escape: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if escape[1] else escape[0]


def _check_one_list(file: BinaryIO, name: str) -> None:
    """Raises ProfileError for a second key `traceEvents`: which of the lists is meant is unknown."""
    import ijson

    count, rest, key = 0, b"", b'"traceEvents"'
    while block := file.read(1 << 20):
        count += (rest + block).count(key)
        rest = block[-len(key) + 1 :]
    file.seek(0)
    if count > 1:  # also in a name; parsing is slow, so it is left to this case
        keys = sum(
            1 for path, token, value in ijson.parse(_CheckedText(file, name)) if (path, token, value) == _LIST_KEY
        )
        file.seek(0)
        if keys > 1:
            raise ProfileError(f"{name}: the key 'traceEvents' occurs more than once; export the trace again")


def _invalid_numbers(name: str) -> ProfileError:
    return ProfileError(f"{name}: the trace has invalid numbers or too deep nesting; export it again")


def _damaged(name: str, error: Exception) -> ProfileError:
    text = " ".join(str(error).split())
    if "premature EOF" in text or "ncomplete" in text:
        return ProfileError(f"{name}: the trace is truncated; export it again")
    return ProfileError(f"{name}: the trace is not valid JSON ({shorten(text)}); export it again")


def _work_cells(kind: str, label: str, event: Event, args: Event) -> Event:
    cells: Event = {
        "device": fields.device_of(event),
        "stream": fields.label(args.get("stream", event.get("tid"))),
        "correlation": fields.integer(args.get("correlation")),
        "bytes": fields.integer(args.get("bytes")),
    }
    if kind == COPY:
        sides = _SIDES.search(label)
        cells["direction"], cells["memory"] = copy_direction(label), sides and host_memory(sides[1], sides[2])
    elif kind == MEMSET:
        cells["memory"] = "device" if "(Device)" in label else None
    elif kind == KERNEL and (collective := args.get("Collective name")):
        elements = max(
            (n for key in ("In msg nelems", "Out msg nelems") if (n := fields.integer(args.get(key)))), default=None
        )
        element = str(args.get("dtype", "")).lower().removeprefix("c10::")
        size = 1 if element.startswith("float8") else _BYTES.get(element)
        members = [int(rank) for rank in re.findall(r"\d{1,9}", str(args.get("Process Group Ranks")))]
        cells["collective"] = fields.label(collective)
        cells["message_bytes"] = elements * size if elements and size else None
        cells["group_size"] = fields.integer(args.get("Group size"))
        cells["group_members"] = ",".join(map(str, sorted(set(members)))) or None
        cells["group_span"] = max(members) - min(members) + 1 if members else None
    return cells
