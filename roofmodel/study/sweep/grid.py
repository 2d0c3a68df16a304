"""Parser of sweep axes such as `1:256:*2`, and division of a grid into blocks of points that fit in memory.

A range includes its start, and its end if a step reaches it: `1:8` is 1, 2, … 8; `0:100:25` is 0, 25, … 100; `1:256:*2`
is 1, 2, 4, … 256. A list contains values and ranges, `1,2,4:64:*2`; duplicates are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import log, prod
from operator import index
from typing import TypedDict

from roofmodel.errors import Message, Option, WorkloadError, shorten
from roofmodel.option_values import RoutingOption
from roofmodel.study.estimate.options import out_of_range

MAX_VALUES = 10**7
"""Limit of the values of one axis."""
LIST_EXAMPLE, RANGE_EXAMPLES = "1,8,64", "1:64, 0:4096:512, 1:256:*2"


Numbers = int | str | Iterable[int]
"""One value, text such as `1:256:*2`, or several values."""
Names = str | Iterable[str]
"""One value, text such as `fp16,fp8`, or several values."""


class GridOptions(TypedDict, total=False):
    """Keyword arguments of a sweep: the options of an estimate, each with one or several values."""

    phase: Names | None
    batch: Numbers | None
    seq: Numbers | None
    context: Numbers | None
    dtype: Names | None
    weights: Names | None
    kv: Names | None
    activations: Names | None
    attention: Names | None
    logits: Names | None
    new_tokens: Numbers | None
    image: Numbers | None
    mla: Names | None
    optimizer: Names | None
    recompute: Names | None
    decoder_seq: Numbers | None
    runtime: Names | None
    launch: float | str | Iterable[float | str] | None
    tp: Numbers | None
    dp: Numbers | None
    pp: Numbers | None
    ep: Numbers | None
    vpp: Numbers | None
    micro_batch: Numbers | None
    sequence_parallel: Names | None
    zero: Numbers | None
    data_parallel: Names | None
    engine: Names | None
    routing: RoutingOption | Iterable[RoutingOption] | None
    memory_utilization: float | str | Iterable[float | str] | None


def numbers(option: str, given: object, low: int, high: int, limit: int = MAX_VALUES) -> list[int]:
    """The whole numbers of an axis, given as text, as an int or as several ints; at most `limit` per range.

    Raises WorkloadError, which quotes the invalid part, for a number outside `low` to `high` or text of another form.
    """
    if isinstance(given, str):
        found: Iterable[object] = (value for part in given.split(",") for value in _range(option, part.strip(), limit))
    else:
        found = given if isinstance(given, Iterable) else [given]
    values = [_whole(option, value, low, high) for value in found]
    if not values:
        raise WorkloadError(Option(option), ": no values; ", _examples(option))
    return list(dict.fromkeys(values))


def names(given: object) -> list[object]:
    """The values of an axis of names, given as text such as `fp16,fp8` or as a sequence."""
    if isinstance(given, str):
        given = [name.strip() for name in given.split(",")]
    return list(dict.fromkeys(given if isinstance(given, Iterable) else [given]))


def _examples(option: str) -> Message:
    return Message("try ", Option(option, LIST_EXAMPLE), f" or {RANGE_EXAMPLES}")


def _range(option: str, text: str, limit: int) -> Sequence[int]:
    """`8`, `1:8`, `0:100:25`, `1:256:*2` as whole numbers."""

    def refuse(token: str, why: str) -> WorkloadError:
        return WorkloadError(Option(option), f": {shorten(token)} {why}; ", _examples(option))

    def whole(token: str) -> int:
        try:
            return int(token)
        except ValueError:
            raise refuse(token, "is not a whole number") from None

    ends = text.split(":")
    if len(ends) == 1:
        return [whole(text)]
    if len(ends) > 3:
        raise refuse(text, "has more parts than start:end:step")
    first, last, step = whole(ends[0]), whole(ends[1]), (ends[2:] or ["1"])[0]
    if last < first:
        raise refuse(text, f"ends before it starts; use {last}:{first}")
    if step.startswith("*"):
        if first < 1:
            raise refuse(ends[0], "is below 1; a range with a factor must start at 1 or more")
        factor = _factor(step, refuse)
        if (log(last) - log(first)) / log(factor) >= limit:
            raise refuse(text, f"has more than {limit} values")
        return list(_powers(first, last, factor))
    if whole(step) < 1:
        raise refuse(step, "is not a valid step: it must be 1 or more")
    if (last - first) // whole(step) >= limit:
        raise refuse(text, f"has more than {limit} values")
    return range(first, last + 1, whole(step))


def _factor(step: str, refuse: Callable[[str, str], WorkloadError]) -> float:
    try:
        factor = float(step[1:])
    except ValueError:
        raise refuse(step, "is not a valid factor") from None
    if not 1 < factor < float("inf"):
        raise refuse(step, "is not a valid factor: it must be more than 1")
    return factor


def _powers(first: int, last: int, factor: float) -> Iterator[int]:
    value: float = first
    while value <= last:
        yield round(value)
        value *= factor


def _whole(option: str, value: object, low: int, high: int) -> int:
    try:
        number = index(value)  # type: ignore[arg-type]  # accepts NumPy ints
    except TypeError:
        number = low - 1
    if isinstance(value, bool) or not low <= number <= high:
        raise out_of_range(option, value, low, high)
    return number


def blocks(lengths: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Divide a grid, whose axes have these lengths, into blocks of at most `most` points, in order.

    A block has one value of each outer axis, a slice of one axis, and all values of the inner axes.
    """
    inner = len(lengths)
    while inner and prod(lengths[inner - 1 :]) <= most:
        inner -= 1
    cut = inner - 1  # the axis that is sliced
    pieces = [
        [slice(0, length)] if axis > cut else _cut(length, max(1, most // prod(lengths[inner:])) if axis == cut else 1)
        for axis, length in enumerate(lengths)
    ]
    return product(*pieces)


def _cut(length: int, piece: int) -> list[slice]:
    return [slice(start, min(start + piece, length)) for start in range(0, length, piece)]
