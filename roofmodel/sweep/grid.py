"""Parser of sweep axes such as `1:256:*2`, and division of a grid into blocks of points that fit in memory.

A range includes its start, and its end if a step reaches it: `1:8` is 1, 2, … 8; `0:100:25` is 0, 25, … 100; `1:256:*2`
is 1, 2, 4, … 256. A list contains values and ranges, `1,2,4:64:*2`; duplicates are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from math import log, prod
from operator import index
from typing import Any, NamedTuple

from roofmodel.errors import Message, Option, Text, WorkloadError, shorten
from roofmodel.options.values import RECOMPUTED_MODULES, SIZE_EXAMPLES, check_size
from roofmodel.options.workload import DECLARED, valid

MAX_VALUES = 10**7
"""Limit of the values of one axis."""
FEW_VALUES = 4
"""An option with at most so many possible values has these as examples."""


def numbers(option: str, axis_values: object, low: int, high: int, limit: int = MAX_VALUES) -> list[int]:
    """The whole numbers of an axis, given as text, as an int or as several ints; at most `limit` per range.

    Raises WorkloadError, which quotes the invalid part, for a number outside `low` to `high` or text of another form.
    """
    axis = _Axis(option, low, high, limit)
    if isinstance(axis_values, str):
        entries: Iterable[object] = (value for part in axis_values.split(",") for value in _range(axis, part.strip()))
    else:
        entries = axis_values if isinstance(axis_values, Iterable) else [axis_values]
    values = [_whole(axis, value) for value in entries]
    if not values:
        raise WorkloadError(Option(option), ": no values; ", axis.examples)
    return list(dict.fromkeys(values))


def names(axis_values: object) -> list[object]:
    """The values of an axis of names, given as text such as `fp16,fp8` or as a sequence.

    Modules after `selective:` belong to one value of `--recompute`: `none,selective:norm,mlp` has two.
    """
    if isinstance(axis_values, str):
        parts: list[str] = []
        for part in map(str.strip, axis_values.split(",")):
            if parts and parts[-1].startswith("selective:") and part in RECOMPUTED_MODULES:
                parts[-1] += f"+{part}"
            else:
                parts.append(part)
        axis_values = parts
    return list(dict.fromkeys(axis_values if isinstance(axis_values, Iterable) else [axis_values]))


def powers(option: str, axis_values: object) -> list[float]:
    """The watts of an axis such as `300W,500W` or `300W:700W:100W`, or as a sequence.

    Raises WorkloadError, which quotes the invalid part, for another value.
    """
    values: list[float] = []
    for each in names(axis_values):
        start, *end_and_step = str(each).split(":") if isinstance(each, str) else [each]
        watts = valid(option, start)
        if not end_and_step:
            values.append(watts)
            continue
        if len(end_and_step) != 2 or "" in end_and_step:
            raise WorkloadError(
                Option(option), f": {shorten(each)} is no range start:end:step; try ",
                Option(option, DECLARED[option].examples[1]),
            )  # fmt: skip
        end, step = (valid(option, part) for part in end_and_step)
        if end < watts or (end - watts) / step >= MAX_VALUES:
            raise WorkloadError(Option(option), f": {shorten(each)} ends before it starts, or has too many values")
        values += [watts + place * step for place in range(int((end - watts) / step + 1e-9) + 1)]
    return list(dict.fromkeys(values))


class _Axis(NamedTuple):
    """An option whose values are whole numbers from `low` to `high`, at most `limit` of them per range."""

    option: str
    low: int
    high: int
    limit: int

    @property
    def examples(self) -> Message:
        """Values that are possible."""
        if self.high - self.low < FEW_VALUES:
            possible = ",".join(map(str, range(self.low, self.high + 1)))
            return Message("try ", Option(self.option, self.low), " or ", Option(self.option, possible))
        values, ranges = DECLARED[self.option].examples if self.option in DECLARED else SIZE_EXAMPLES
        return Message("try ", Option(self.option, values), f" or {ranges}")

    def invalid(self, token: str, why: str, suggestion: Text | None = None) -> WorkloadError:
        """The error for a part of the text, with `suggestion` or else examples."""
        return WorkloadError(Option(self.option), f": {shorten(token)} {why}; ", suggestion or self.examples)


def _range(axis: _Axis, text: str) -> Sequence[int]:
    """`8`, `1:8`, `0:100:25`, `1:256:*2` as whole numbers."""

    def integer(token: str) -> int:
        try:
            return int(token)
        except ValueError:
            raise axis.invalid(token, "is not a whole number") from None

    ends = text.split(":")
    if len(ends) == 1:
        return [integer(text)]
    if len(ends) > 3:
        raise axis.invalid(text, "has more parts than start:end:step")
    first, last, step = integer(ends[0]), integer(ends[1]), (ends[2:] or ["1"])[0]
    if last < first:
        is_possible = axis.low <= last and first <= axis.high
        raise axis.invalid(text, "ends before it starts", f"use {last}:{first}" if is_possible else None)
    if step.startswith("*"):
        if first < 1:
            raise axis.invalid(ends[0], "is below 1; a range with a factor must start at 1 or more")
        factor = _factor(axis, step)
        if (log(last) - log(first)) / log(factor) >= axis.limit:
            raise axis.invalid(text, f"has more than {axis.limit} values")
        return list(_powers(first, last, factor))
    if integer(step) < 1:
        raise axis.invalid(step, "is not a valid step: it must be 1 or more")
    if (last - first) // integer(step) >= axis.limit:
        raise axis.invalid(text, f"has more than {axis.limit} values")
    return range(first, last + 1, integer(step))


def _factor(axis: _Axis, step: str) -> float:
    try:
        factor = float(step[1:])
    except ValueError:
        raise axis.invalid(step, "is not a valid factor") from None
    if not 1 < factor < float("inf"):
        raise axis.invalid(step, "is not a valid factor: it must be more than 1")
    return factor


def _powers(first: int, last: int, factor: float) -> Iterator[int]:
    value: float = first
    while value <= last:
        yield round(value)
        value *= factor


def _whole(axis: _Axis, value: Any) -> int:
    with suppress(TypeError):
        value = value if isinstance(value, bool) else index(value)  # accepts NumPy ints
    check_size(axis.option, value, axis.low, axis.high)
    return int(value)


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
