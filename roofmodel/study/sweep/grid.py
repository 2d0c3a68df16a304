"""Grids: `1:256:*2` and lists of values -> axes; axes -> blocks of points that fit in memory.

A range holds both of its ends where its steps meet them: `1:8` is 1, 2, … 8; `0:100:25` is 0, 25, … 100; `1:256:*2` is
1, 2, 4, … 256. A list is values and ranges, `1,2,4:64:*2`; a value that comes again is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import log, prod
from operator import index
from typing import TypedDict

from roofmodel.errors import Option, WorkloadError, shorten

MOST = 10**7
"""Values of an axis."""
EXAMPLES = "1,8,64 or 1:64, 0:4096:512, 1:256:*2"


Numbers = int | str | Iterable[int]
"""One value, text such as `1:256:*2`, or several values."""
Names = str | Iterable[str]
"""One value, text such as `fp16,fp8`, or several values."""


class GridOptions(TypedDict, total=False):
    """The options of a sweep as keyword arguments: those of an estimate, each with one value or several."""

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


def numbers(option: str, asked: object, low: int, high: int) -> list[int]:
    """The whole numbers that an axis is asked for, by text or as an int or ints; from `low` to `high`.

    Raises WorkloadError that quotes the part which is none.
    """
    if isinstance(asked, str):
        found: Iterable[object] = (value for part in asked.split(",") for value in _range(option, part.strip()))
    else:
        found = asked if isinstance(asked, Iterable) else [asked]
    values = [_whole(option, value, low, high) for value in found]
    if not values:
        raise WorkloadError(Option(option), f": no values; try {EXAMPLES}")
    return list(dict.fromkeys(values))


def names(asked: object) -> list[object]:
    """The values that an axis of names is asked for: `fp16,fp8`, or any sequence."""
    if isinstance(asked, str):
        asked = [name.strip() for name in asked.split(",")]
    return list(dict.fromkeys(asked if isinstance(asked, Iterable) else [asked]))


def _range(option: str, text: str) -> Sequence[int]:
    """`8`, `1:8`, `0:100:25`, `1:256:*2` as the whole numbers that it stands for."""

    def refuse(token: str, why: str) -> WorkloadError:
        return WorkloadError(Option(option), f" is {shorten(text)}: {shorten(token)} {why}; try {EXAMPLES}")

    def whole(token: str) -> int:
        try:
            return int(token)
        except ValueError:
            raise refuse(token, "is not a whole number") from None

    ends = text.split(":")
    if len(ends) == 1:
        return [whole(text)]
    if len(ends) > 3:
        raise refuse(text, "has more than a start, an end and a step")
    first, last, step = whole(ends[0]), whole(ends[1]), (ends[2:] or ["1"])[0]
    if last < first:
        raise refuse(text, f"ends before it starts; {last}:{first} would not")
    if step.startswith("*"):
        if first < 1:
            raise refuse(ends[0], "times a factor gets nowhere: start at 1 or more")
        factor = _factor(step, refuse)
        if (log(last) - log(first)) / log(factor) >= MOST:
            raise refuse(text, f"has more than {MOST} values")
        return list(_powers(first, last, factor))
    if whole(step) < 1:
        raise refuse(step, "is no step: it must be 1 or more")
    if (last - first) // whole(step) >= MOST:
        raise refuse(text, f"has more than {MOST} values")
    return range(first, last + 1, whole(step))


def _factor(step: str, refuse: Callable[[str, str], WorkloadError]) -> float:
    try:
        factor = float(step[1:])
    except ValueError:
        raise refuse(step, "is no factor") from None
    if not 1 < factor < float("inf"):
        raise refuse(step, "is no factor: it must be more than 1")
    return factor


def _powers(first: int, last: int, factor: float) -> Iterator[int]:
    value: float = first
    while value <= last:
        yield round(value)
        value *= factor


def _whole(option: str, value: object, low: int, high: int) -> int:
    try:
        number = index(value)  # type: ignore[arg-type]  # NumPy's ints too
    except TypeError:
        number = low - 1
    if isinstance(value, bool) or not low <= number <= high:
        raise WorkloadError(Option(option), f" is {shorten(value)}; it must be a whole number from {low} to {high}")
    return number


def blocks(lengths: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """A grid of axes so long, cut into blocks of at most so many points: in order, each point in one of them.

    Outer axes are taken value by value, the one after them in pieces, those within whole.
    """
    inner = len(lengths)
    while inner and prod(lengths[inner - 1 :]) <= most:
        inner -= 1
    cut = inner - 1  # the axis that is taken in pieces
    pieces = [
        [slice(0, length)] if axis > cut else _cut(length, max(1, most // prod(lengths[inner:])) if axis == cut else 1)
        for axis, length in enumerate(lengths)
    ]
    return product(*pieces)


def _cut(length: int, piece: int) -> list[slice]:
    return [slice(start, min(start + piece, length)) for start in range(0, length, piece)]
