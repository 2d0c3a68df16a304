"""Fields of the events of PyTorch profiler traces, for the reader of kernels and the reader of whole runs.

`ts` and `dur` are microseconds with up to three decimals. They are read as decimals and converted to integer
nanoseconds, because a float of 1.7e15 us has a resolution of a quarter of a microsecond.
"""

from __future__ import annotations

import json
import marshal
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from types import NoneType
from typing import Any

from roofmodel.files.text_files import printable
from roofmodel.profiles.kernel import Evidence, Extent, RecordedInputs, Sizes, extent

CALL = re.compile(r"(\w+_)?(runtime|driver|api)")
"""Categories of CUDA and HIP calls."""
OPERATORS = ("cpu_op", "operator")
"""Categories of framework operators; PyTorch 1.8 wrote Operator, for annotations too."""
HOW_TO_COLLECT = "collect with `torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])`"
_LARGEST = 10**18  # microseconds; later than any clock shows
_THOUSAND = Decimal(1000)

Event = dict[str, Any]


def category(event: Event) -> str:
    """The category in lower case (PyTorch 1.8 wrote Kernel); for events of older profilers by their process."""
    stated_category = event.get("cat")
    if stated_category is None and event.get("pid") == "CUDA functions":
        return "memcpy" if str(event.get("name")).startswith(("Memcpy", "Memset")) else "kernel"
    return _lower(stated_category) if isinstance(stated_category, str) else ""


@lru_cache(maxsize=256)
def _lower(text: str) -> str:
    return text.lower()


def args_of(event: Event) -> Event:
    """The arguments of an event; empty if it has none."""
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def device_of(event: Event, args: Event) -> object:
    """The GPU ordinal: an argument, else the event's process (or, without categories, its thread)."""
    return args["device"] if "device" in args else event.get("pid" if event.get("cat") else "tid")


def label(value: object) -> str | None:
    """A name or number as printable text; None for anything else."""
    return printable(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None


def decimal(value: object) -> Decimal | None:
    """A number, or a number in quotes (ROCm writes some); None for anything else."""
    if isinstance(value, str) and not re.fullmatch(r"-?\d{1,20}(\.\d{1,20})?", value, re.ASCII):
        return None
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        return None
    number = Decimal(value)
    return number if -_LARGEST < number < _LARGEST else None  # abs() would overflow on 1e999999


def integer(value: object) -> int | None:
    """A whole number, as `decimal` reads it; None for anything else."""
    if type(value) is int:
        return value if -_LARGEST < value < _LARGEST else None
    number = decimal(value)
    return None if number is None or number != int(number) else int(number)


# Columns of many events. A column whose values all have the usual type is checked at once, not value by value.


def integers(events: Sequence[Event], key: str, otherwise: str = "") -> list[Any]:
    """Whole numbers of events or arguments; None for anything else."""
    values: list[Any] = [event.get(key) for event in events]
    if otherwise and None in values:
        values = [event.get(key, event.get(otherwise)) for event in events]
    types = {*map(type, values)}
    if types == {NoneType} or (types == {int} and max(map(abs, values)) < _LARGEST):
        return values
    return [*map(integer, values)]


def nanoseconds(events: Sequence[Event], key: str) -> list[Any]:
    """Microseconds to integer nanoseconds, exact for up to three decimals; None if not a number."""
    values: list[Any] = [event.get(key) for event in events]
    if not {*map(type, values)} <= {int, Decimal} or not -_LARGEST < min(values) <= max(values) < _LARGEST:
        return [None if (value := decimal(each)) is None else round(value * 1000) for each in values]
    thousands = [*map(_THOUSAND.__mul__, values)]
    whole = [*map(int, thousands)]
    return whole if whole == thousands else [*map(round, thousands)]


def numbers(args: Sequence[Event], key: str) -> list[Any]:
    """Numbers; None for anything else."""
    values: list[Any] = [each.get(key) for each in args]
    return values if {*map(type, values)} == {int} and max(map(abs, values)) < _LARGEST else [*map(decimal, values)]


def labels(values: Sequence[object]) -> list[Any]:
    """Names or numbers as printable text; None for anything else."""
    return [*map(_plain_label if {*map(type, values)} <= {int, str, NoneType} else label, values)]


_plain_label = lru_cache(maxsize=1 << 12)(label)


def plain(events: Sequence[Event], key: str) -> list[int | str]:
    """Processes or threads: texts and numbers as they are, because dicts distinguish them by value."""
    values: list[Any] = [event.get(key) for event in events]
    return values if {*map(type, values)} <= {int, str} else [*map(str, values)]


def sizes(args: Sequence[Event], key: str) -> list[Extent | None]:
    """Grids or blocks; None for anything else."""
    values = [tuple(value) if type(value := each.get(key)) is list else () for each in args]
    try:
        return [*map(_size, values)]
    except TypeError:  # a list in a list
        return [None] * len(args)


@lru_cache(maxsize=1 << 12)
def _size(value: tuple[object, ...]) -> Extent | None:
    return extent(map(integer, value))


_INPUT_KEYS = ("Input Dims", "Input type", "Concrete Inputs", "Input Strides")
_encoded = json.JSONEncoder(default=str, separators=(",", ":")).encode
_texts: dict[bytes, str | None] = {}  # by marshalled arguments
_MAX_TEXTS = 1 << 14
_MAX_INPUTS = 20_000  # characters of the arguments of one operator; longer lists are not stored


def inputs_texts(args: Sequence[Event]) -> list[str | None]:
    """The recorded arguments of operators as JSON text, for `parse_inputs`; None if its shapes are not recorded."""
    return [_inputs_text([*map(each.get, _INPUT_KEYS)]) if "Input Dims" in each else None for each in args]


def _inputs_text(inputs: list[object]) -> str | None:
    """The text of equal arguments is encoded once: each step has the operators of the one before."""
    if not isinstance(inputs[0], list):
        return None
    try:
        key = marshal.dumps(inputs, 2)
        if key not in _texts:
            text = _encoded(inputs)
            if len(_texts) > _MAX_TEXTS:
                _texts.clear()
            _texts[key] = text if len(text) <= _MAX_INPUTS else None
        return _texts[key]
    except (RecursionError, ValueError):  # damaged: nested too deeply, or numbers that are no integers
        return None


def parse_inputs(text: str) -> RecordedInputs:
    """The arguments of an operator from the text of `inputs_text`. Sizes that are not counts become ()."""
    shapes, types, values, strides = (each if isinstance(each, list) else [] for each in json.loads(text))
    return RecordedInputs(
        tuple(map(_sizes, shapes)), tuple(map(str, types)), tuple(map(str, values)), tuple(map(_sizes, strides))
    )


def _sizes(listed: object) -> Sizes | tuple[Sizes, ...]:
    """The sizes of a tensor or of each tensor of a list."""
    if not isinstance(listed, list):
        return ()
    if listed and all(isinstance(each, list) for each in listed):
        return tuple(_plain_sizes(each) for each in listed)
    return _plain_sizes(listed)


def _plain_sizes(listed: list[object]) -> Sizes:
    sizes = tuple(each for each in map(integer, listed) if each is not None and each >= 0)
    return sizes if len(sizes) == len(listed) else ()


def _product(name: str | None) -> str | None:
    """The name of a device; None where an AMD driver knows no product name and reports the architecture, or none."""
    return None if not name or name == "AMD Radeon Graphics" or name.startswith("gfx") else name


def attributes(device: Event, amd: bool) -> Evidence:
    """A device's attributes. AMD's major and minor (9.0 for gfx90a) are not a compute capability."""
    major, minor = integer(device.get("computeMajor")), integer(device.get("computeMinor"))
    amd = amd or integer(device.get("warpSize")) == 64 or (label(device.get("name")) or "").startswith("AMD")
    return Evidence(
        name=_product(label(device.get("name"))),
        compute_capability=None if amd or not major else f"{major}.{minor or 0}",
        multiprocessors=integer(device.get("numSms")) or None,
        dram_bytes=integer(device.get("totalGlobalMem")) or None,
        amd=amd,
    )
