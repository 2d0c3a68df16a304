"""Traced numbers as the scripts of roof explore evaluate them. In the page's data

{"$": 12}                                    is node 12 of the trace
{"if": 12, "yes": ..., "no": ...}            is what node 12 decides between
["whole", "5"], ["real", 0.5], ["/", 3, 4]   are nodes; "bytes" and names of formulas take nodes as well
["+", 3, 4, 5]                               goes on from the left, as "max" does
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from roofmodel.tracing.trace import Excerpt, Fork, Trace, Traced, TracedFunction


class Rows:
    """Records, each of which stands once."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._where: dict[str, int] = {}

    def index(self, record: Any) -> int:
        """Where the record stands."""
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
    """A formula with nodes of its own."""
    used = found.trace.excerpt(numbers(found.result))
    return {"nodes": nodes(used), "result": plain(found.result, used)}


def nodes(used: Excerpt) -> list[list[Any]]:
    """Nodes in their order; ints as text, of which a script would make floats."""
    return [["whole", str(node[1])] if node[0] == "whole" else list(node) for node in used.nodes]


def numbers(value: Any) -> Iterator[Traced]:
    """The recorded numbers in data, those that forks ask about as well."""
    if isinstance(value, Traced):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from numbers(one)


def plain(value: Any, used: Excerpt) -> Any:
    """Data with recorded numbers and forks, as JSON has it."""
    if isinstance(value, Traced):
        return {"$": used.where[value.index]}
    if isinstance(value, Fork):
        return {
            "if": used.where[value.condition.index], "yes": plain(value.yes, used), "no": plain(value.no, used)
        }  # fmt: skip
    if isinstance(value, Mapping):
        return {key: plain(one, used) for key, one in value.items()}
    return [plain(one, used) for one in value] if isinstance(value, list | tuple) else value
