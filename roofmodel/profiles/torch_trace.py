"""PyTorch profiler traces (Chrome JSON written by Kineto) -> a Profile.

`ts` and `dur` are microseconds whatever `displayTimeUnit` says, and near 1.7e15: a float keeps a quarter of
a microsecond there, so numbers are read as decimals and kept as integer nanoseconds until the end.

    kernels      complete events (ph X) of category kernel; copies and sets of memory are counted in a warning, and
                 gpu_user_annotation is left out: its spans cover the same kernels again
    its launch   the cuda_runtime, cuda_driver or hip event with the same args.correlation
    its call     the cpu_op event with the same args."External id": the framework's operator, with shapes where recorded
    its ranges   user_annotation events (record_function, ProfilerStep#n) around that launch, see `ranges`

Other tools write Chrome traces too; those, told by what no profiler of PyTorch's leaves out, are refused.

A trace may be an object with `traceEvents` or a bare list of events. The autograd profiler of old wrote no
categories: there kernels lie in the process "CUDA functions".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, BinaryIO

from roofmodel.errors import ProfileError, shorten
from roofmodel.profiles.kernel import Call, Evidence, Extent, Kernel, Profile, extent, unlisted
from roofmodel.profiles.nvtx_ranges import Launch, Range, place, remarks
from roofmodel.profiles.streams import decode, printable

_MARKS = ('"traceEvents"', '"ph"', '"schemaVersion"', '"deviceProperties"', '"distributedInfo"', '"displayTimeUnit"')
_OWN = {"schemaVersion", "deviceProperties", "distributedInfo"}
_COPIES = {"gpu_memcpy", "gpu_memset", "memcpy", "memset"}
_CATEGORIES = {"kernel", "cpu_op", "operator", "user_annotation", "gpu_user_annotation", "python_function"}
_CALL = re.compile(r"(\w+_)?(runtime|driver|api)")
_HOW = "collect with `torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])`"
_LARGEST = Decimal(10) ** 18  # microseconds: beyond any clock

_Event = dict[str, Any]


def recognise(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a Chrome trace."""
    text = decode(head)
    return bool(re.match(r'\s*(\{\s*"|\[\s*\{\s*")', text)) and any(mark in text for mark in _MARKS)


def read(file: BinaryIO, name: str) -> Profile:
    """The kernels of a trace, by start; times in seconds from the first event.

    A trace without GPU work gives a Profile without kernels and a warning that says how to collect them.
    Raises ProfileError, with the position, for JSON that is cut short or damaged or is no trace.
    """
    document = _parse(decode(file.read()), name)
    events = list(_events(document, name))
    if events and not (isinstance(document, dict) and document.keys() & _OWN) and not any(map(_of_pytorch, events)):
        raise ProfileError(
            f"{name}: is a Chrome trace of another tool{_other(events)}; of these, the PyTorch profiler's are read: "
            f"{_HOW}"
        )
    try:
        return _profile(document if isinstance(document, dict) else {}, events, name)
    except _Damaged as error:
        raise ProfileError(f"{name}: {error}") from None


class _Damaged(ValueError):
    """An event that is no event; the message says which."""


def _parse(text: str, name: str) -> object:
    try:
        return json.loads(text, parse_float=Decimal, strict=False)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) - 1 or "Unterminated" in error.msg
        what = "the trace is cut short" if cut else "the trace is no valid JSON"
        where = f"line {error.lineno}, column {error.colno}, character {error.pos}"
        raise ProfileError(f"{name}: {what} ({where}: {error.msg}); export it again") from None
    except (ValueError, ArithmeticError, RecursionError):
        raise ProfileError(f"{name}: the trace holds numbers or nesting that no profiler writes") from None


def _events(document: object, name: str) -> Iterator[_Event]:
    """The events of an object with `traceEvents`, or of a bare list of them."""
    listed = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(listed, list) or not all(isinstance(event, dict) for event in listed):
        raise ProfileError(f"{name}: is JSON, but no PyTorch trace: it has no list of events (`traceEvents`)")
    if isinstance(document, list) and not any("ph" in event for event in listed):
        raise ProfileError(f"{name}: is JSON, but no PyTorch trace: nothing in its list is an event (no `ph`)")
    yield from (event for event in listed if event.get("ph") == "X")


def _profile(document: _Event, events: list[_Event], name: str) -> Profile:
    work = [event for event in events if _category(event) == "kernel"]
    starts = [start for event in events if (start := _nanoseconds(event.get("ts"))) is not None]
    origin = min(starts, default=0)
    kernels: list[tuple[int, int, _Event]] = []
    for i, event in enumerate(work):
        start = _nanoseconds(event.get("ts"))
        if start is None or not isinstance(event.get("name"), str) or not event["name"]:
            raise _Damaged(
                f"an event of category {_category(event)} lacks its name ({shorten(event.get('name'))}) "
                f"or its time ({shorten(event.get('ts'))}); export the trace again"
            )
        kernels.append((start, i, event))
    kernels.sort(key=lambda item: item[:2])
    in_order = [event for _, _, event in kernels]
    launches = _launches(events, in_order)
    placed = place(launches, _ranges(events))
    warnings = remarks(placed)
    calls = _calls(events)
    table = tuple(
        _kernel(event, i, name, (start - origin) / 1e9, launches[i], placed.labels[i], calls)
        for i, (start, _, event) in enumerate(kernels)
    )
    if not table:
        counters = any(_category(event) == "cuda_profiler_range" for event in events)
        what = "hardware counters of kernels, but no times of theirs" if counters else "no work of a GPU"
        warnings.append(f"the trace holds {what}; {_HOW}")
    warnings += unlisted(sum(_category(event) in _COPIES for event in events))
    if timeless := sum(kernel.seconds is None for kernel in table):
        warnings.append(f"{timeless} kernels have no duration, or a negative one: their time is unknown")
    return Profile("torch", (name,), table, _evidence(document, events, in_order), tuple(warnings))


def _kernel(
    event: _Event, index: int, file: str, start: float, launch: Launch | None, nvtx: tuple[str, ...],
    calls: Mapping[int, Call],
) -> Kernel:  # fmt: skip
    args = _args(event)
    external = _integer(args.get("External id"))
    duration = _nanoseconds(event.get("dur"))
    occupancy = _decimal(args.get("est. achieved occupancy %"))
    return Kernel(
        id=str(index),
        file=file,
        name=printable(event["name"]),
        process=None if launch is None else str(launch.process),
        device=_device(event),
        stream=_label(args.get("stream", event.get("tid") if event.get("cat") else None)),
        grid=_sizes(args.get("grid")),
        block=_sizes(args.get("block")),
        nvtx=nvtx,
        call=None if external is None else calls.get(external),
        seconds=None if duration is None or duration < 0 else duration / 1e9,
        start=start,
        occupancy=float(occupancy / 100) if occupancy else None,  # 0, of what ran, says that it was not to be found
        registers=_integer(args.get("registers per thread")),
    )


def _launches(events: Iterable[_Event], work: Iterable[_Event]) -> list[Launch | None]:
    """The call that launched each piece of work; None where the trace has none, or several processes do."""
    calls: dict[int, Launch | None] = {}
    for event in events:
        if _CALL.fullmatch(_category(event)) and _args(event):
            correlation, time = _integer(_args(event).get("correlation")), _nanoseconds(event.get("ts"))
            if correlation is None or time is None:
                continue
            call = Launch(str(event.get("pid")), str(event.get("tid")), time)
            known = calls.get(correlation, call)
            same = known is not None and known.process == call.process
            calls[correlation] = min(known, call, key=lambda c: c.time) if known is not None and same else None
    correlations = (_integer(_args(event).get("correlation")) for event in work)
    return [None if correlation is None else calls.get(correlation) for correlation in correlations]


def _calls(events: Iterable[_Event]) -> dict[int, Call]:
    """The framework's operators by their id; ids of the runtime's own calls, which no operator has, are left out."""
    found = {}
    for event in events:
        number = _integer(_args(event).get("External id")) if _category(event) == "cpu_op" else None
        if number is not None and isinstance(event.get("name"), str):
            shapes = _args(event).get("Input Dims")
            found[number] = Call(number, event["name"], _shapes(shapes) if isinstance(shapes, list) else ())
    return found


def _shapes(listed: Sequence[object]) -> tuple[tuple[int, ...], ...]:
    """Sizes of tensors; an argument that is none, or whose sizes are no numbers, is empty."""
    sizes = (tuple(map(_integer, shape)) if isinstance(shape, list) else () for shape in listed)
    return tuple(() if None in each else each for each in sizes)  # type: ignore[misc]


def _ranges(events: Iterable[_Event]) -> Iterator[Range]:
    for event in events:
        if _category(event) == "user_annotation" and isinstance(event.get("name"), str):
            start, duration = _nanoseconds(event.get("ts")), _nanoseconds(event.get("dur"))
            label = printable(event["name"])
            if start is not None and duration is not None:
                yield Range(str(event.get("pid")), str(event.get("tid")), start, start + duration, label)


def _evidence(document: _Event, events: list[_Event], work: list[_Event]) -> tuple[Evidence, ...]:
    """The attributes of the devices that the work ran on, or of all where their numbers fit none."""
    listed = document.get("deviceProperties")
    devices = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []
    used = {_device(event) for event in work}
    ran = [device for device in devices if _label(device.get("id")) in used]
    amd = any(key.startswith(("hip_", "roctracer", "rocm")) for key in document) or any(
        _CALL.fullmatch(_category(event)) and str(event.get("name")).startswith("hip") for event in events
    )
    return tuple(dict.fromkeys(_attributes(device, amd) for device in ran or devices))


def _attributes(device: _Event, amd: bool) -> Evidence:
    """A device's attributes. AMD's major and minor (gfx90a is 9.0) are no compute capability of NVIDIA's."""
    major, minor = _integer(device.get("computeMajor")), _integer(device.get("computeMinor"))
    amd = amd or _integer(device.get("warpSize")) == 64
    return Evidence(
        name=_label(device.get("name")),
        compute_capability=None if amd or not major else f"{major}.{minor or 0}",
        multiprocessors=_integer(device.get("numSms")) or None,
        dram_bytes=_integer(device.get("totalGlobalMem")) or None,
    )


def _of_pytorch(event: _Event) -> bool:
    """Whether the event is of a category of Kineto's, or in a process of the old autograd profiler's."""
    category = _category(event)
    known = category in _CATEGORIES or category in _COPIES or _CALL.fullmatch(category)
    return bool(known) or event.get("pid") in ("CPU functions", "CUDA functions")


def _other(events: Iterable[_Event]) -> str:
    """Whose trace it is, where events say it, in brackets."""
    keys = {key for event in events for key in _args(event)}
    if "BeginNs" in keys:
        return " (AMD's rocprof)"
    return " (JAX's, or of another program on XLA)" if keys & {"hlo_op", "hlo_module"} else ""


# Fields of an event.


def _category(event: _Event) -> str:
    category = event.get("cat")
    if category is None and event.get("pid") == "CUDA functions":
        return "memcpy" if str(event.get("name")).startswith(("Memcpy", "Memset")) else "kernel"
    return category.lower() if isinstance(category, str) else ""


def _args(event: _Event) -> _Event:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _device(event: _Event) -> str | None:
    """The ordinal of the GPU: an argument, else the event's process (or, without categories, its thread)."""
    return _label(_args(event).get("device", event.get("pid" if event.get("cat") else "tid")))


def _label(value: object) -> str | None:
    return printable(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None


def _decimal(value: object) -> Decimal | None:
    """A number, or a number in quotes, as ROCm writes some; None for anything else."""
    if isinstance(value, str) and not re.fullmatch(r"-?\d{1,20}(\.\d{1,20})?", value, re.ASCII):
        return None
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        return None
    number = Decimal(value)
    return number if -_LARGEST < number < _LARGEST else None  # abs() would overflow on 1e999999


def _integer(value: object) -> int | None:
    number = _decimal(value)
    return None if number is None or number != int(number) else int(number)


def _nanoseconds(microseconds: object) -> int | None:
    """Exact: three decimals of a microsecond are a nanosecond."""
    value = _decimal(microseconds)
    return None if value is None else round(value * 1000)


def _sizes(value: object) -> Extent | None:
    return extent(map(_integer, value)) if isinstance(value, list) and len(value) == 3 else None
