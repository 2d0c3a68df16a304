"""Read PyTorch profiler traces (Chrome JSON written by Kineto) as a stream: memory does not grow with the text.

Times are stored as integer nanoseconds, see `torch_fields.py`.

    kernel    complete events (ph X) of category kernel; gpu_user_annotation is ignored because its spans cover the
              same kernels
    launch    the cuda_runtime, cuda_driver or hip event with the same args.correlation
    operator  the cpu_op event with the same args."External id", with shapes if recorded; else the innermost cpu_op that
              encloses the launch on its thread
    ranges    user_annotation events (record_function, ProfilerStep#n)

Chrome traces of other tools are rejected: they lack the keys and categories that all PyTorch profilers write.

PyTorch 1.8 wrote `Operator`, for annotations too, `Kernel` and `external id`. A trace is an object with `traceEvents`
or a list of events. The old autograd profiler wrote no categories; its kernels are in the process "CUDA functions".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO

from roofmodel.errors import ProfileError
from roofmodel.files.file_names import printable
from roofmodel.files.json_stream import InvalidNumber, JSONDamage, JSONText
from roofmodel.profiles import torch_fields as fields
from roofmodel.profiles.kernel import Evidence, Profile, copy_direction, host_memory
from roofmodel.profiles.streams import decode, encoding, limited_name
from roofmodel.profiles.torch_fields import CALL, HOW_TO_COLLECT, OPERATORS, Event

if TYPE_CHECKING:
    from roofmodel.profiles.timelines.timeline import Timeline

_TRACE_KEYS = (
    '"traceEvents"',
    '"ph"',
    '"schemaVersion"',
    '"deviceProperties"',
    '"distributedInfo"',
    '"displayTimeUnit"',
)
_PYTORCH_KEYS = {"schemaVersion", "deviceProperties", "distributedInfo"}
_WORK = {"kernel": "kernel", "gpu_memcpy": "copy", "memcpy": "copy", "gpu_memset": "memset", "memset": "memset"}
_ANNOTATION = re.compile(r"ProfilerStep#|enumerate\(DataLoader\)|Optimizer\.|## ")
_TOGETHER = 1024  # events of one category
_OTHERS = {"gpu_user_annotation", "python_function"}  # categories of PyTorch that are not read
_COUNTERS = "cuda_profiler_range"
_SIDES = re.compile(r"\((\w+) -> (\w+)\)")
_BYTES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int": 4, "long": 8, "char": 1, "byte": 1, "bool": 1,
    "signed char": 1, "unsigned char": 1, "short": 2, "long int": 8,
}  # fmt: skip


def recognize(head: bytes) -> bool:
    """Whether a file that starts with these bytes is a Chrome trace."""
    text = decode(head)
    return bool(re.match(r'\s*(\{\s*"|\[\s*\{\s*")', text)) and any(mark in text for mark in _TRACE_KEYS)


def read(file: BinaryIO, name: str) -> Profile:
    """The kernels of a trace in order of start; times in seconds from the first event.

    A trace without kernels gives an empty profile with a warning that says how to collect them. Raises ProfileError as
    `read_timeline` does.
    """
    from roofmodel.profiles.timelines.kernels import profile

    return profile(read_timeline(file, name))


def read_timeline(file: BinaryIO, name: str) -> Timeline:
    """The events of a trace. Raises ProfileError for JSON that is truncated, damaged or not a PyTorch trace."""
    trace = _Trace()
    try:
        document = _read(JSONText(file, encoding), trace, name)
        trace.finish()
    except JSONDamage as error:
        damage = "truncated" if error.truncated else "not valid JSON"
        raise ProfileError(f"{name}: the trace is {damage} ({error}); export it again") from None
    except InvalidNumber as error:
        raise ProfileError(f"{name}: the trace has {error}; export it again") from None
    if trace.events and not (document.keys() & _PYTORCH_KEYS or trace.is_pytorch):
        raise ProfileError(
            f"{name}: a Chrome trace of another tool{trace.other_tool}; only PyTorch profiler traces are supported: "
            f"{HOW_TO_COLLECT}"
        )
    return trace.timeline(name, document)


def _read(text: JSONText, trace: _Trace, name: str) -> Event:
    """Add the events to the trace; the other keys of the document, with the values that are used."""

    def is_no_trace(why: str) -> ProfileError:
        return ProfileError(f"{name}: JSON, but not a PyTorch trace: {why}")

    document: Event = {}
    no_list = "no list of events (`traceEvents`)"
    if text.peek() == "[":
        _add(text, trace, is_no_trace(no_list))
        if not trace.phases:
            raise is_no_trace("its list has no events (no `ph`)")
    elif text.peek() != "{":
        text.value()
        raise is_no_trace(no_list)
    else:
        has_events = False
        text.take("{")
        while (mark := text.peek()) != "}":
            if mark != '"':
                text.take('"')
            key = text.value()
            text.take(":")
            if text.peek() == "[" and key == "traceEvents":
                if has_events:
                    raise ProfileError(f"{name}: the key 'traceEvents' occurs more than once; export the trace again")
                has_events = True
                _add(text, trace, is_no_trace(no_list))
            else:
                value = text.value()
                document[key] = value if key in _PYTORCH_KEYS else None
            if text.peek() != "}":
                text.take(",")
                text.peek()
        text.take("}")
        if not has_events:
            raise is_no_trace(no_list)
    if text.peek():
        text.take("")
    return document


def _add(text: JSONText, trace: _Trace, no_list: ProfileError) -> None:
    for event in text.items():
        if not isinstance(event, dict):
            raise no_list
        trace.add(event)


@lru_cache(maxsize=1 << 16)
def _label(name: str) -> str:
    return limited_name(printable(name))


@lru_cache(maxsize=256)
def _table(category: str) -> str | None:
    """The table of the events of a category; None for those that are not read."""
    if category in _WORK:
        return "work"
    if CALL.fullmatch(category):
        return "calls"
    return "operators" if category in OPERATORS else "ranges" if category == "user_annotation" else None


class _Trace:
    """The tables of a trace, filled event by event."""

    def __init__(self) -> None:
        from roofmodel.profiles.timelines import timeline  # imports numpy

        self.work, self.calls, self.operators, self.ranges = (
            timeline.TableBuilder(each) for each in (timeline.WORK, timeline.CALLS, timeline.OPERATORS, timeline.RANGES)
        )
        self._latest = timeline.LATEST
        self._waiting: dict[str, list[Event]] = defaultdict(list)  # by category
        self.events = self.phases = self.unusable = 0
        self.begin: int | None = None
        self.is_pytorch = self._has_counters = self._is_amd = False
        self._keys: set[str] = set()  # of arguments, until an event of PyTorch is found

    def add(self, event: Event) -> None:
        """Add an event. Events of one category are stored together: column by column is faster than row by row."""
        self.events += 1
        phase = event.get("ph")
        self.phases += phase is not None
        if phase == "X":
            waiting = self._waiting[fields.category(event)]
            waiting.append(event)
            if len(waiting) == _TOGETHER:
                self._store(fields.category(event), waiting)

    def _store(self, category: str, waiting: list[Event]) -> None:
        """Store the waiting events of a category, and empty the list.

        Those without a name, a time or (unless GPU work) a valid duration are counted as unusable.
        """
        events, waiting[:] = waiting[:], []
        starts = [fields.nanoseconds(event.get("ts")) for event in events]
        self.begin = min((start for start in (self.begin, *starts) if start is not None), default=None)
        table = _table(category)
        if table is None:
            self._note_others(category, events)
            return
        self.is_pytorch = True
        lengths = [fields.nanoseconds(event.get("dur")) for event in events]
        untimed: list[int | None] = [None] * len(events)
        if table == "work":
            untimed = [1 if length is None or length < 0 else None for length in lengths]
            lengths = [length if no is None else 0 for length, no in zip(lengths, untimed, strict=True)]
        rows = [
            (event, _label(name), start, start + length, no)
            for event, start, length, no in zip(events, starts, lengths, untimed, strict=True)
            if isinstance(name := event.get("name"), str) and name and start is not None and length is not None
            and -self._latest < start <= start + length < self._latest
        ]  # fmt: skip
        self.unusable += len(events) - len(rows)
        if not rows:
            return
        columns: dict[str, Any]
        events, *columns_of_all = zip(*rows, strict=True)  # type: ignore[assignment]
        columns = dict(zip(("name", "start", "end", "untimed"), columns_of_all, strict=True))
        args = [fields.args_of(event) for event in events]
        if table == "work":
            self.work.extend(len(rows), **columns, **_work_columns(_WORK[category], columns["name"], events, args))
            return
        del columns["untimed"]
        for column, key in (("process", "pid"), ("thread", "tid")):
            columns[column] = [_plain(event.get(key)) for event in events]
        if table == "calls":
            self._is_amd |= any(name.startswith("hip") for name in columns["name"])
            self.calls.extend(len(rows), **columns, correlation=_integers(args, "correlation"))
            return
        if table == "operators":
            numbers, inputs = _integers(args, "External id", "external id"), [*map(fields.inputs_text, events)]
            self.operators.extend(len(rows), **columns, number=numbers, inputs=inputs)
        for i, name in enumerate(columns["name"]):
            if table == "ranges" or (category == "operator" and _ANNOTATION.match(name)):
                self.ranges.add(**{column: values[i] for column, values in columns.items()})

    def finish(self) -> None:
        """Store the events that still wait."""
        for category, waiting in self._waiting.items():
            self._store(category, waiting)

    def _note_others(self, category: str, events: list[Event]) -> None:
        """Whether events that are not read are of PyTorch, or which other tool wrote them."""
        self.is_pytorch |= category in _OTHERS or any(event.get("pid") == "CPU functions" for event in events)
        self._has_counters |= category == _COUNTERS
        for event in events if not self.is_pytorch else ():
            self._keys |= fields.args_of(event).keys() & {"BeginNs", "hlo_op", "hlo_module"}

    @property
    def other_tool(self) -> str:
        """The tool that wrote a trace that is not of PyTorch, in parentheses; empty if its events do not show it."""
        if "BeginNs" in self._keys:
            return " (AMD's rocprof)"
        return " (JAX or another XLA program)" if self._keys else ""

    def timeline(self, name: str, document: Event) -> Timeline:
        """The tables with the launches of the work, and the facts that the other keys of the document state."""
        from roofmodel.profiles.timelines.timeline import KERNEL, Timeline, with_launches

        warnings = []
        if self.unusable:
            warnings.append(f"{self.unusable} events without a name, a time or a valid duration are ignored")
        work = self.work.frame()
        if not (work["kind"] == KERNEL).any():
            content = "hardware counters but no kernel times" if self._has_counters else "no kernels"
            warnings.append(f"the trace has {content}; {HOW_TO_COLLECT}")
        is_amd = self._is_amd or any(key.startswith(("hip_", "roctracer", "rocm")) for key in document)
        ran = {str(device) for device in work.loc[work["kind"] == KERNEL, "device"].dropna().unique()}
        info = document.get("distributedInfo")
        distributed = info if isinstance(info, dict) else {}
        timeline = Timeline(
            "torch", name, work, self.calls.frame(), self.operators.frame(), self.ranges.frame(),
            _evidence(document.get("deviceProperties"), ran, is_amd), tuple(warnings), self.begin or 0,
            stated_rank=_rank(distributed.get("rank")), world_size=_rank(distributed.get("world_size")),
        )  # fmt: skip
        return with_launches(timeline)


def _rank(value: object) -> int | None:
    rank = fields.integer(value)
    return rank if rank is not None and 0 <= rank < 10**6 else None


def _evidence(listed: object, ran: set[str], is_amd: bool) -> tuple[Evidence, ...]:
    """Attributes of the devices that ran kernels, or of all devices if no device number matches."""
    devices = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []
    used = [device for device in devices if fields.label(device.get("id")) in ran]
    return tuple(dict.fromkeys(fields.attributes(device, is_amd) for device in used or devices))


def _plain(value: object) -> int | str:
    """A process or thread: texts and numbers as they are, because dicts distinguish them by value."""
    return value if type(value) is int or type(value) is str else str(value)


def _integers(args: Iterable[Event], key: str, otherwise: str = "") -> list[int | None]:
    return [fields.integer(each.get(key, each.get(otherwise))) for each in args]


def _sizes(args: Iterable[Event], key: str) -> list[str | None]:
    """Grids or blocks as text, such as `64,2,1`."""
    texts: list[str | None] = []
    for each in args:
        value = each.get(key)
        sizes = [fields.integer(size) for size in value] if isinstance(value, list) and len(value) == 3 else [None]
        texts.append(None if None in sizes else "{},{},{}".format(*sizes))
    return texts


def _work_columns(
    kind: str, names: Sequence[str], events: Sequence[Event], args: Sequence[Event]
) -> dict[str, Sequence[Any]]:
    columns: dict[str, Sequence[Any]] = {
        "kind": [kind] * len(names),
        "device": [*map(fields.device_of, events)],
        "stream": [
            fields.label(each.get("stream", event.get("tid") if event.get("cat") else None))
            for event, each in zip(events, args, strict=True)
        ],
        "correlation": _integers(args, "correlation"),
        "bytes": _integers(args, "bytes"),
    }
    if kind == "copy":
        return columns | {"direction": [*map(copy_direction, names)], "memory": [*map(_memory, names)]}
    if kind == "memset":
        return columns | {"memory": ["device" if "(Device)" in name else None for name in names]}
    columns |= {
        "operator": _integers(args, "External id", "external id"),
        "grid": _sizes(args, "grid"),
        "block": _sizes(args, "block"),
        "registers": _integers(args, "registers per thread"),
        "occupancy": [fields.decimal(each.get("est. achieved occupancy %")) for each in args],
    }
    collectives = [_collective_cells(each) if each.get("Collective name") else {} for each in args]
    keys = {key for each in collectives for key in each}
    return columns | {key: [each.get(key) for each in collectives] for key in keys}


def _memory(name: str) -> str | None:
    sides = _SIDES.search(name)
    return host_memory(sides[1], sides[2]) if sides else None


def _collective_cells(args: Event) -> dict[str, Any]:
    elements = max(
        (n for key in ("In msg nelems", "Out msg nelems") if (n := fields.integer(args.get(key)))), default=None
    )
    element = str(args.get("dtype", "")).lower().removeprefix("c10::")
    size = 1 if element.startswith("float8") else _BYTES.get(element)
    members = [int(rank) for rank in re.findall(r"\d{1,9}", str(args.get("Process Group Ranks")))]
    return {
        "collective": fields.label(args.get("Collective name")),
        "message_bytes": elements * size if elements and size else None,
        "group_size": fields.integer(args.get("Group size")),
        "group_members": ",".join(map(str, sorted(set(members)))) or None,
        "group_span": max(members) - min(members) + 1 if members else None,
    }
