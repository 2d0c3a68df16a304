"""Read PyTorch profiler traces (Chrome JSON written by Kineto).

`ts` and `dur` are microseconds, regardless of `displayTimeUnit`. Values near 1.7e15 have a resolution of a quarter of a
microsecond as floats, so numbers are read as decimals and converted to integer nanoseconds.

    kernel    complete events (ph X) of category kernel; memory copies and memsets are only counted in a warning, and
              gpu_user_annotation is ignored because its spans cover the same kernels
    launch    the cuda_runtime, cuda_driver or hip event with the same args.correlation
    call      the cpu_op event with the same args."External id": the framework operator, with shapes if recorded; else
              the innermost cpu_op that encloses the launch on its thread
    ranges    user_annotation events (record_function, ProfilerStep#n) that enclose the launch, see `nvtx_ranges.py`

Chrome traces of other tools are rejected: they lack the keys and categories that all PyTorch profilers write.

PyTorch 1.8 wrote `Operator`, for annotations too, `Kernel` and `external id`. Profilers of 2022 and 2023 gave kernels
their correlation id as `External id`, which then does not identify an operator.

A trace is an object with `traceEvents` or a list of events. The old autograd profiler wrote no categories; its kernels
are in the process "CUDA functions".
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import BinaryIO

from roofmodel.errors import ProfileError, shorten
from roofmodel.files.file_names import printable
from roofmodel.profiles import torch_fields as fields
from roofmodel.profiles.kernel import Call, Evidence, Extent, Kernel, Profile, ReaderWarning, copies_warning, extent
from roofmodel.profiles.nvtx_ranges import Launch, Range, enclosing_ranges, placement_warnings
from roofmodel.profiles.streams import decode, limited_name, read_most
from roofmodel.profiles.torch_fields import CALL, HOW_TO_COLLECT, OPERATORS, Event

_TRACE_KEYS = (
    '"traceEvents"',
    '"ph"',
    '"schemaVersion"',
    '"deviceProperties"',
    '"distributedInfo"',
    '"displayTimeUnit"',
)
_PYTORCH_KEYS = {"schemaVersion", "deviceProperties", "distributedInfo"}
_COPIES = {"gpu_memcpy", "gpu_memset", "memcpy", "memset"}
_ANNOTATION = re.compile(r"ProfilerStep#|enumerate\(DataLoader\)|Optimizer\.|## ")
_CATEGORIES = {"kernel", "cpu_op", "operator", "user_annotation", "gpu_user_annotation", "python_function"}
MAX_TRACE = 4 * 2**30
"""Bytes of a trace, decompressed. Reading it takes about ten times as much memory."""


def recognize(head: bytes) -> bool:
    """Whether a file that starts with these bytes is a Chrome trace."""
    text = decode(head)
    return bool(re.match(r'\s*(\{\s*"|\[\s*\{\s*")', text)) and any(mark in text for mark in _TRACE_KEYS)


def read(file: BinaryIO, name: str) -> Profile:
    """The kernels of a trace in order of start; times in seconds from the first event.

    A trace without kernels gives an empty profile with a warning that says how to collect them. Raises ProfileError,
    with the position, for JSON that is truncated or damaged or is not a trace.
    """
    content = read_most(file, MAX_TRACE + 1)
    if len(content) > MAX_TRACE:
        raise ProfileError(f"{name}: larger than {MAX_TRACE // 2**30} GiB; record fewer steps")
    text = decode(content)
    document = _parse(text, name)
    if text.count('"traceEvents"') > 1 and _has_repeated_events(text):
        raise ProfileError(f"{name}: the key 'traceEvents' occurs more than once; export the trace again")
    events = list(_events(document, name))
    if (
        events
        and not (isinstance(document, dict) and document.keys() & _PYTORCH_KEYS)
        and not any(map(_is_pytorch_event, events))
    ):
        raise ProfileError(
            f"{name}: a Chrome trace of another tool{_tool_hint(events)}; only PyTorch profiler traces are supported: "
            f"{HOW_TO_COLLECT}"
        )
    try:
        return _profile(document if isinstance(document, dict) else {}, events, name)
    except _MalformedEvent as error:
        raise ProfileError(f"{name}: {error}") from None


class _MalformedEvent(ValueError):
    """A malformed event; the message describes it."""


def _parse(text: str, name: str) -> object:
    try:
        return json.loads(text, parse_float=Decimal, strict=False)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) - 1 or "Unterminated" in error.msg
        what = "the trace is truncated" if cut else "the trace is not valid JSON"
        where = f"line {error.lineno}, column {error.colno}, character {error.pos}"
        raise ProfileError(f"{name}: {what} ({where}: {error.msg}); export it again") from None
    except (ValueError, ArithmeticError, RecursionError):
        raise ProfileError(f"{name}: the trace has invalid numbers or too deep nesting; export it again") from None


def _has_repeated_events(text: str) -> bool:
    """Whether the outermost object has the key `traceEvents` more than once. The parser takes only the last one."""
    pairs = json.loads(text, object_pairs_hook=lambda pairs: pairs, parse_int=str, parse_float=str, strict=False)
    return [pair[0] for pair in pairs if isinstance(pair, tuple)].count("traceEvents") > 1


def _events(document: object, name: str) -> Iterator[Event]:
    """The complete events of an object with `traceEvents`, or of a list of events."""
    listed = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(listed, list) or not all(isinstance(event, dict) for event in listed):
        raise ProfileError(f"{name}: JSON, but not a PyTorch trace: no list of events (`traceEvents`)")
    if isinstance(document, list) and not any("ph" in event for event in listed):
        raise ProfileError(f"{name}: JSON, but not a PyTorch trace: its list has no events (no `ph`)")
    yield from (event for event in listed if event.get("ph") == "X")


def _profile(document: Event, events: list[Event], name: str) -> Profile:
    work = [event for event in events if fields.category(event) == "kernel"]
    starts = [start for event in events if (start := fields.nanoseconds(event.get("ts"))) is not None]
    origin = min(starts, default=0)
    kernels: list[tuple[int, int, Event]] = []
    for i, event in enumerate(work):
        start = fields.nanoseconds(event.get("ts"))
        if start is None or not isinstance(event.get("name"), str) or not event["name"]:
            raise _MalformedEvent(
                f"an event of category {fields.category(event)} lacks its name ({shorten(event.get('name'))}) "
                f"or its time ({shorten(event.get('ts'))}); export the trace again"
            )
        kernels.append((start, i, event))
    kernels.sort(key=lambda item: item[:2])
    in_order = [event for _, _, event in kernels]
    launches = _launches(events, in_order)
    placed = enclosing_ranges(launches, _ranges(events))
    warnings = placement_warnings(placed)
    calls = _calls_of_kernels(events, in_order, launches)
    table = tuple(
        _kernel(event, i, name, start, origin, launches[i], placed.labels[i], calls[i])
        for i, (start, _, event) in enumerate(kernels)
    )
    if not table:
        counters = any(fields.category(event) == "cuda_profiler_range" for event in events)
        content = "hardware counters but no kernel times" if counters else "no kernels"
        warnings.append(ReaderWarning(f"the trace has {content}; {HOW_TO_COLLECT}"))
    elif not any(calls) and any(fields.category(event) in OPERATORS for event in events):
        warnings.append(ReaderWarning(f"none of {len(table)} kernels could be joined with a framework operator"))
    warnings += copies_warning(sum(fields.category(event) in _COPIES for event in events))
    if timeless := sum(kernel.seconds is None for kernel in table):
        text = f"{timeless} kernels have a missing or negative duration: their times are unknown"
        warnings.append(ReaderWarning(text, "times"))
    return Profile("torch", (name,), table, _evidence(document, events, in_order), tuple(warnings))


def _kernel(
    event: Event, index: int, file: str, start: int, origin: int, launch: Launch | None, nvtx: tuple[str, ...],
    call: Call | None,
) -> Kernel:  # fmt: skip
    args = fields.args_of(event)
    duration = fields.nanoseconds(event.get("dur"))
    occupancy = fields.decimal(args.get("est. achieved occupancy %"))
    return Kernel(
        id=str(index),
        file=file,
        name=limited_name(printable(event["name"])),
        process=None if launch is None else str(launch.process),
        device=fields.device_of(event),
        stream=fields.label(args.get("stream", event.get("tid") if event.get("cat") else None)),
        grid=_sizes(args.get("grid")),
        block=_sizes(args.get("block")),
        nvtx=nvtx,
        call=call,
        seconds=None if duration is None or duration < 0 else duration / 1e9,
        start=(start - origin) / 1e9,
        launch=None if launch is None else (launch.time - origin) / 1e9,
        occupancy=float(occupancy / 100) if occupancy else None,  # 0 means that it is unknown
        registers=fields.integer(args.get("registers per thread")),
    )


def _launches(events: Iterable[Event], work: Iterable[Event]) -> list[Launch | None]:
    """The call that launched each kernel; None if it is missing, or if several processes use its correlation id."""
    calls: dict[int, Launch | None] = {}
    for event in events:
        if CALL.fullmatch(fields.category(event)) and fields.args_of(event):
            correlation, time = (
                fields.integer(fields.args_of(event).get("correlation")),
                fields.nanoseconds(event.get("ts")),
            )
            if correlation is None or time is None:
                continue
            call = Launch(str(event.get("pid")), str(event.get("tid")), time)
            known = calls.get(correlation, call)
            same = known is not None and known.process == call.process
            calls[correlation] = min(known, call, key=lambda c: c.time) if known is not None and same else None
    correlations = (fields.integer(fields.args_of(event).get("correlation")) for event in work)
    return [None if correlation is None else calls.get(correlation) for correlation in correlations]


def _calls_of_kernels(
    events: Sequence[Event], work: Sequence[Event], launches: Sequence[Launch | None]
) -> list[Call | None]:
    """The framework operator that launched each kernel: by External id, else the one that encloses the launch."""
    operators = [
        event for event in events if fields.category(event) in OPERATORS and isinstance(event.get("name"), str)
    ]
    numbers = [_external_id(event) for event in work]
    correlations = [fields.integer(fields.args_of(event).get("correlation")) for event in work]
    are_ids = any(number != correlation for number, correlation in zip(numbers, correlations, strict=True))
    by_number = {_external_id(event): event for event in operators} if are_ids else {}
    by_number.pop(None, None)
    missing = [None if n in by_number else launch for n, launch in zip(numbers, launches, strict=True)]
    enclosing = _enclosing_operators(operators, missing)
    calls: dict[int, Call] = {}  # by the operator's event: kernels of one operator share a call
    parents = _parents(operators)

    def call(event: Event | None) -> Call | None:
        if event is None:
            return None
        chain = [event]
        while id(chain[-1]) not in calls and (outer := parents.get(id(chain[-1]))) is not None:
            chain.append(outer)
        parent = None
        for each in reversed(chain):
            if id(each) not in calls:
                number, text = _external_id(each), fields.inputs_text(each)
                inputs = None if text is None else fields.parse_inputs(text)
                listed = fields.args_of(each).get("Input Dims")
                shapes = _shapes(listed) if isinstance(listed, list) else ()
                identity = len(calls) if number is None else number
                calls[id(each)] = Call(identity, each["name"], shapes, inputs, parent)
            parent = calls[id(each)]
        return parent

    found = [call(by_number.get(number) or other) for number, other in zip(numbers, enclosing, strict=True)]
    graphs = {
        fields.integer(fields.args_of(event).get("correlation"))
        for event in events
        if "GraphLaunch" in str(event.get("name")) and CALL.fullmatch(fields.category(event))
    } - {None}
    return [
        each._replace(in_graph=True) if each and number in graphs else each
        for each, number in zip(found, correlations, strict=True)
    ]


def _parents(operators: Iterable[Event]) -> dict[int, Event]:
    """For each operator (the id of its event), the operator of its thread that called it; none for outermost ones."""
    from roofmodel.profiles.timelines.enclosing import nested  # imports numpy

    found: dict[int, Event] = {}
    for events in _by_thread(operators).values():
        outer = nested([0] * len(events), [event[0] for event in events], [event[1] for event in events]).parents
        found |= {id(event[2]): events[i][2] for event, i in zip(events, outer.tolist(), strict=True) if i >= 0}
    return found


def _by_thread(operators: Iterable[Event]) -> dict[tuple[str, str], list[tuple[int, int, Event]]]:
    """The operators of each process and thread with their starts and ends in nanoseconds."""
    found: dict[tuple[str, str], list[tuple[int, int, Event]]] = defaultdict(list)
    for event in operators:
        start, duration = fields.nanoseconds(event.get("ts")), fields.nanoseconds(event.get("dur"))
        if start is not None and duration is not None:
            found[str(event.get("pid")), str(event.get("tid"))].append((start, start + duration, event))
    return found


def _enclosing_operators(operators: Iterable[Event], launches: Sequence[Launch | None]) -> list[Event | None]:
    """For each launch, the innermost operator of its thread that encloses it; None without a launch or an operator."""
    from roofmodel.profiles.timelines.enclosing import nested  # imports numpy

    of_thread = _by_thread(operators)
    found: list[Event | None] = [None] * len(launches)
    waiting: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for i, launch in enumerate(launches):
        if launch is not None:
            waiting[str(launch.process), str(launch.thread)].append((launch.time, i))
    for key, times in waiting.items():
        events = of_thread.get(key, ())
        starts, ends = [e[0] for e in events], [e[1] for e in events]
        indices = nested([0] * len(events), starts, ends, [0] * len(times), [time for time, _ in times]).innermost
        for (_, i), index in zip(times, indices.tolist(), strict=True):
            found[i] = events[index][2] if index >= 0 else None
    return found


def _external_id(event: Event) -> int | None:
    args = fields.args_of(event)
    return fields.integer(args.get("External id", args.get("external id")))


def _shapes(listed: Sequence[object]) -> tuple[tuple[int, ...], ...]:
    """Tensor shapes; () for an argument that is not a tensor or whose sizes are not counts."""
    sizes = (tuple(map(fields.integer, shape)) if isinstance(shape, list) else () for shape in listed)
    return tuple(
        each if all(size is not None and size >= 0 for size in each) else ()  # type: ignore[misc]
        for each in sizes
    )


def _ranges(events: Iterable[Event]) -> Iterator[Range]:
    for event in events:
        category, name = fields.category(event), event.get("name")
        if isinstance(name, str) and (
            category == "user_annotation" or (category == "operator" and _ANNOTATION.match(name))
        ):
            start, duration = fields.nanoseconds(event.get("ts")), fields.nanoseconds(event.get("dur"))
            label = limited_name(printable(event["name"]))
            if start is not None and duration is not None:
                yield Range(str(event.get("pid")), str(event.get("tid")), start, start + duration, label)


def _evidence(document: Event, events: list[Event], work: list[Event]) -> tuple[Evidence, ...]:
    """Attributes of the devices that ran kernels, or of all devices if no device number matches."""
    listed = document.get("deviceProperties")
    devices = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []
    used = {fields.device_of(event) for event in work}
    ran = [device for device in devices if fields.label(device.get("id")) in used]
    amd = any(key.startswith(("hip_", "roctracer", "rocm")) for key in document) or any(
        CALL.fullmatch(fields.category(event)) and str(event.get("name")).startswith("hip") for event in events
    )
    return tuple(dict.fromkeys(fields.attributes(device, amd) for device in ran or devices))


def _is_pytorch_event(event: Event) -> bool:
    """Whether the event has a Kineto category, or is in a process of the old autograd profiler."""
    category = fields.category(event)
    known = category in _CATEGORIES or category in _COPIES or CALL.fullmatch(category)
    return bool(known) or event.get("pid") in ("CPU functions", "CUDA functions")


def _tool_hint(events: Iterable[Event]) -> str:
    """The tool that wrote the trace, in parentheses, if its events show it; else an empty string."""
    keys = {key for event in events for key in fields.args_of(event)}
    if "BeginNs" in keys:
        return " (AMD's rocprof)"
    return " (JAX or another XLA program)" if keys & {"hlo_op", "hlo_module"} else ""


def _sizes(value: object) -> Extent | None:
    return extent(map(fields.integer, value)) if isinstance(value, list) and len(value) == 3 else None
