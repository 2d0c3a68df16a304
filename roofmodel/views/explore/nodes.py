"""Traced numbers as the scripts of roof explore evaluate them. In the page's data

{"$": 12}                                    is node 12 of the trace
{"if": 12, "yes": ..., "no": ...}            is a choice by node 12
["whole", "5"], ["real", 0.5], ["/", 3, 4]   are nodes; "bytes" and traced functions take nodes too
["+", 3, 4, 5]                               is evaluated from the left; so is "max"
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from roofmodel.tracing.trace import Excerpt, Fork, Trace, Traced, TracedFunction


class Rows:
    """Records without duplicates."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._where: dict[str, int] = {}

    def index(self, record: Any) -> int:
        """The index of the record, which is added if it is new."""
        key = json.dumps(record, default=lambda number: {"$": number.index})
        if key not in self._where:
            self._where[key] = len(self.found)
            self.found.append(record)
        return self._where[key]


def formula_of_bytes(trace: Trace, name: str, function: Callable[[Any], Any]) -> None:
    """Write down, as the trace's formula `bytes|NAME`, how many bytes so many elements of a format take."""
    inside = Trace()
    elements = inside.input("0")
    trace.functions[f"bytes|{name}"] = TracedFunction(inside, inside.cases(lambda: function(elements)))


def formula(found: TracedFunction) -> dict[str, Any]:
    """A traced function, with its own nodes."""
    used = found.trace.excerpt(numbers(found.result))
    return {"nodes": nodes(used), "result": plain(found.result, used)}


def nodes(used: Excerpt) -> list[list[Any]]:
    """Nodes in order, with ints as text: JavaScript would parse them as floats."""
    return [["whole", str(node[1])] if node[0] == "whole" else list(node) for node in used.nodes]


def numbers(value: Any) -> Iterator[Traced]:
    """The traced numbers in data, conditions of forks included."""
    if isinstance(value, Traced):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from numbers(one)


def plain(value: Any, used: Excerpt) -> Any:
    """Data with traced numbers and forks, for JSON."""
    if isinstance(value, Traced):
        return {"$": used.where[value.index]}
    if isinstance(value, Fork):
        return {
            "if": used.where[value.condition.index], "yes": plain(value.yes, used), "no": plain(value.no, used)
        }  # fmt: skip
    if isinstance(value, Mapping):
        return {key: plain(one, used) for key, one in value.items()}
    return [plain(one, used) for one in value] if isinstance(value, list | tuple) else value
