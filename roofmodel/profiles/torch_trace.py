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

import operator
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress, islice
from typing import Any, BinaryIO

from roofmodel.errors import ProfileError
from roofmodel.files.json_stream import InvalidNumber, JSONDamage, JSONText
from roofmodel.files.text_files import printable
from roofmodel.numbers import units
from roofmodel.profiles import torch_fields as fields
from roofmodel.profiles.columns import ColumnTable
from roofmodel.profiles.kernel import Evidence, KernelTable, copy_direction, host_memory
from roofmodel.profiles.streams import encoding, limited_name
from roofmodel.profiles.timelines import timeline as timelines
from roofmodel.profiles.timelines.timeline import Timeline, kernel_rows, with_launches
from roofmodel.profiles.torch_fields import CALL, HOW_TO_COLLECT, OPERATORS, Event

_PYTORCH_KEYS = {"schemaVersion", "deviceProperties", "distributedInfo"}
_WORK = {"kernel": "kernel", "gpu_memcpy": "copy", "memcpy": "copy", "gpu_memset": "memset", "memset": "memset"}
_ANNOTATION = re.compile(r"ProfilerStep#|enumerate\(DataLoader\)|Optimizer\.|## ")
_TOGETHER = 1024  # events that are stored at once
_OTHERS = {"gpu_user_annotation", "python_function"}  # categories of PyTorch that are not read
_COUNTERS = "cuda_profiler_range"
_LAUNCH = re.compile(r"(cuda|cu|hip)\w*Launch\w*Kernel|hipLaunchKernel|GraphLaunch", re.I)
_SIDES = re.compile(r"\((\w+) -> (\w+)\)")
_BYTES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int": 4, "long": 8, "char": 1, "byte": 1, "bool": 1,
    "signed char": 1, "unsigned char": 1, "short": 2, "long int": 8,
}  # fmt: skip


def read(file: BinaryIO, name: str) -> Timeline:
    """The events of a trace; one without kernels has a warning that says how to collect them.

    Raises ProfileError for JSON that is truncated, damaged or not a PyTorch trace."""
    trace = _Trace()
    try:
        document = _read(JSONText(file, encoding), trace, name)
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
    events = text.items()
    while batch := list(islice(events, _TOGETHER)):
        if not all(isinstance(event, dict) for event in batch):
            raise no_list
        trace.add(batch)


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
        self.work = KernelTable()
        self.calls, self.operators, self.ranges = (
            ColumnTable(each) for each in (timelines.CALLS, timelines.OPERATORS, timelines.RANGES)
        )
        self.events = self.phases = self.unusable = 0
        self.begin: int | None = None
        self.is_pytorch = self._has_counters = self._is_amd = False
        self._keys: set[str] = set()  # of arguments, until an event of PyTorch is found

    def add(self, events: list[Event]) -> None:
        """Add events; those of one category together, because column by column is faster than row by row."""
        phases = [event.get("ph") for event in events]
        self.events += len(events)
        self.phases += len(events) - phases.count(None)
        by_category: dict[str, list[Event]] = defaultdict(list)
        for event, phase in zip(events, phases, strict=True):
            if phase == "X":
                by_category[fields.category(event)].append(event)
        for category, selected in by_category.items():
            self._store(category, selected)

    def _store(self, category: str, events: list[Event]) -> None:
        """Store events of a category.

        Those without a name, a time or (unless GPU work) a valid duration are counted as unusable.
        """
        starts = fields.nanoseconds(events, "ts")
        self.begin = min((start for start in (self.begin, *starts) if start is not None), default=None)
        table = _table(category)
        if table is None:
            self._note_others(category, events)
            return
        self.is_pytorch = True
        lengths, names = fields.nanoseconds(events, "dur"), [event.get("name") for event in events]
        columns: dict[str, Sequence[Any]] = {}
        if not self._usable(names, starts, lengths):
            untimed: list[Any] = [None] * len(events)
            if table == "work":
                untimed = [1 if length is None or length < 0 else None for length in lengths]
                lengths = [length if no is None else 0 for length, no in zip(lengths, untimed, strict=True)]
            usable = [
                self._usable([name], [start], [length])
                for name, start, length in zip(names, starts, lengths, strict=True)
            ]
            self.unusable += usable.count(False)
            events, names, starts, lengths, untimed = (
                [*compress(values, usable)] for values in (events, names, starts, lengths, untimed)
            )
            columns["untimed"] = untimed
        columns |= {"name": [*map(_label, names)], "start": starts, "end": [*map(operator.add, starts, lengths)]}
        args = [fields.args_of(event) for event in events]
        if table == "work":
            self.work.extend(len(events), **columns, **_work_columns(_WORK[category], columns["name"], events, args))
            return
        columns.pop("untimed", None)
        columns |= {"process": fields.plain(events, "pid"), "thread": fields.plain(events, "tid")}
        if table == "calls":
            self._is_amd |= any(name.startswith("hip") for name in {*columns["name"]})
            self.calls.extend(len(events), **columns, correlation=fields.integers(args, "correlation"))
            return
        if table == "operators":
            numbers = fields.integers(args, "External id", "external id")
            self.operators.extend(len(events), **columns, number=numbers, inputs=fields.inputs_texts(args))
        if table == "operators" and category != "operator":
            return  # PyTorch 1.8 wrote annotations as operators
        rows = [i for i, name in enumerate(columns["name"]) if table == "ranges" or _ANNOTATION.match(name)]
        self.ranges.extend(len(rows), **{column: [values[i] for i in rows] for column, values in columns.items()})

    def _usable(self, names: Sequence[Any], starts: Sequence[Any], lengths: Sequence[Any]) -> bool:
        """Whether all of these events have a name, a time, and a duration that ends before the latest time."""
        if {*map(type, names)} != {str} or not all(names) or None in starts or None in lengths or min(lengths) < 0:
            return False
        return bool(min(starts) > -timelines.LATEST and max(map(operator.add, starts, lengths)) < timelines.LATEST)

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
        warnings = []
        if self.unusable:
            warnings.append(
                f"{units.count(self.unusable, 'event')} without a name, a time or a valid duration: ignored"
            )
        work = self.work
        rows = kernel_rows(work)
        if not rows:
            content = "hardware counters but no kernel times" if self._has_counters else "no kernels"
            launches = sum(_LAUNCH.search(call or "") is not None for call in self.calls.cells("name"))
            warnings.append(
                f"the trace has {content}, but {units.count(launches, 'launch', 'es')} by the CPU: CUDA was profiled, "
                "but not its kernels, as with another profiler at the same time (ncu, nsys, DCGM), in WSL with an "
                "older driver, or for kernels that ran after the recording stopped (synchronize before its end)"
                if launches and not self._has_counters
                else f"the trace has {content}; {HOW_TO_COLLECT}"
            )
        is_amd = self._is_amd or any(key.startswith(("hip_", "roctracer", "rocm")) for key in document)
        ran = {*work.select(rows).cells("device")} - {None}
        info = document.get("distributedInfo")
        distributed = info if isinstance(info, dict) else {}
        timeline = Timeline(
            "torch", name, work, self.calls, self.operators, self.ranges,
            _evidence(document.get("deviceProperties"), ran, is_amd), tuple(warnings), self.begin or 0,
            stated_rank=_rank(distributed.get("rank")), world_size=_rank(distributed.get("world_size")),
        )  # fmt: skip
        return with_launches(timeline)


def _rank(value: object) -> int | None:
    rank = fields.integer(value)
    return rank if rank is not None and 0 <= rank < 10**6 else None


def _evidence(listed: object, ran: set[str], is_amd: bool) -> tuple[Evidence, ...]:
    """Attributes of the devices that ran kernels, or of all devices if no device number matches; of AMD's, if none."""
    devices = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []
    used = [device for device in devices if fields.label(device.get("id")) in ran]
    known = dict.fromkeys(fields.attributes(device, is_amd) for device in used or devices)
    return tuple(known) or (Evidence(amd=True),) * is_amd


def _work_columns(
    kind: str, names: Sequence[str], events: Sequence[Event], args: Sequence[Event]
) -> dict[str, Sequence[Any]]:
    columns: dict[str, Sequence[Any]] = {
        "kind": [kind] * len(names),
        "device": fields.labels([fields.device_of(event, each) for event, each in zip(events, args, strict=True)]),
        "stream": fields.labels(
            [
                each["stream"] if "stream" in each else event.get("tid") if event.get("cat") else None
                for event, each in zip(events, args, strict=True)
            ]
        ),
        "correlation": fields.integers(args, "correlation"),
        "bytes": fields.integers(args, "bytes"),
    }
    if kind == "copy":
        columns |= {"direction": [*map(copy_direction, names)], "memory": [*map(_memory, names)]}
        return _with_peers(columns, args) if any("toDevice" in each for each in args) else columns
    if kind == "memset":
        return columns | {"memory": ["device" if "(Device)" in name else None for name in names]}
    columns |= {
        "operator": fields.integers(args, "External id", "external id"),
        "grid": fields.sizes(args, "grid"),
        "block": fields.sizes(args, "block"),
        "registers": fields.integers(args, "registers per thread"),
        "shared_bytes": fields.integers(args, "shared memory"),
        "occupancy": [
            None if percent is None else float(percent) / 100 or None  # 0 means that it is unknown
            for percent in fields.numbers(args, "est. achieved occupancy %")
        ],
    }
    if not any("Collective name" in each for each in args):
        return columns
    collectives = [_collective_cells(each) if each.get("Collective name") else {} for each in args]
    keys = {key for each in collectives for key in each}
    return columns | {key: [each.get(key) for each in collectives] for key in keys}


def _with_peers(columns: dict[str, Sequence[Any]], args: Sequence[Event]) -> dict[str, Sequence[Any]]:
    """Add source and destination of copies, of which only those between GPUs state two devices."""
    sources, destinations = (fields.labels([each.get(key) for each in args]) for key in ("fromDevice", "toDevice"))
    every = zip(sources, destinations, columns["direction"], strict=True)
    directions = [direction if source == destination else "PtoP" for source, destination, direction in every]
    return columns | {"source": sources, "destination": destinations, "direction": directions}


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
