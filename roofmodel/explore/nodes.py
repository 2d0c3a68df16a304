"""Traced numbers in the data of the explorable page.

{"$": 12}                                    is node 12 of the trace
{"if": 12, "yes": ..., "no": ...}            selects by the condition in node 12
["whole", "5"], ["real", 0.5], ["/", 3, 4]   are nodes; "bytes" and traced functions take nodes too
["+", 3, 4, 5]                               is evaluated from the left; so is "max"
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from roofmodel.numbers.traced import Excerpt, Fork, Trace, Traced, TracedFunction


class UniqueRecords:
    """Records without duplicates."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self._indices: dict[str, int] = {}

    def index(self, record: Any) -> int:
        """The index of the record, which is added if it is new."""
        key = json.dumps(record, default=lambda number: {"$": number.index})
        if key not in self._indices:
            self._indices[key] = len(self.records)
            self.records.append(record)
        return self._indices[key]


def formula_of_bytes(trace: Trace, name: str, function: Callable[[Any], Any]) -> None:
    """Trace the bytes of elements in a format, as the function `bytes|NAME`."""
    trace_of_bytes = Trace()
    elements = trace_of_bytes.input("0")
    trace.functions[f"bytes|{name}"] = TracedFunction(trace_of_bytes, trace_of_bytes.cases(lambda: function(elements)))


def formula(function: TracedFunction) -> dict[str, Any]:
    """A traced function, with its own nodes."""
    excerpt = function.trace.excerpt(numbers(function.result))
    return {"nodes": nodes(excerpt), "result": plain(function.result, excerpt)}


def nodes(excerpt: Excerpt) -> list[list[Any]]:
    """Nodes in order, with ints as text: JavaScript would parse them as floats."""
    return [["whole", str(node[1])] if node[0] == "whole" else list(node) for node in excerpt.nodes]


def numbers(value: Any) -> Iterator[Traced]:
    """The traced numbers in data, conditions of forks included."""
    if isinstance(value, Traced):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from numbers(item)


def plain(value: Any, excerpt: Excerpt) -> Any:
    """Data with traced numbers and forks, for JSON."""
    if isinstance(value, Traced):
        return {"$": excerpt.where[value.index]}
    if isinstance(value, Fork):
        return {
            "if": excerpt.where[value.condition.index], "yes": plain(value.yes, excerpt), "no": plain(value.no, excerpt)
        }  # fmt: skip
    if isinstance(value, Mapping):
        return {key: plain(item, excerpt) for key, item in value.items()}
    return [plain(item, excerpt) for item in value] if isinstance(value, list | tuple) else value
