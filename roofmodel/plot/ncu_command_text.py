"""The collection command as a shell line, as JSON, and as a list of reasons."""

from __future__ import annotations

import shlex
from typing import Any

from roofmodel.plot.ncu_command import Collection
from roofmodel.profiles.ncu import metric_catalog


def line(collection: Collection) -> str:
    """The command as one line, quoted for a shell."""
    return shlex.join(collection.command)


def document(collection: Collection) -> dict[str, Any]:
    """The document `roofmodel.ncu-command/1` or `roofmodel.nsys-command/1`: the command, and why each part is there."""
    device = {
        "hardware": collection.hardware,
        "hardware_from": collection.hardware_from,
        "compute_capability": collection.compute_capability,
    }
    return {
        "schema": f"roofmodel.{'nsys' if collection.tool == 'nsys' else 'ncu'}-command/1",
        "command": list(collection.command),
        "why": [{"part": " ".join(part.words), "why": part.why} for part in collection.parts],
        **(device if collection.hardware else {}),
        "notes": list(map(str, collection.notes)),
    }


def reasons(collection: Collection) -> str:
    """One line per part of the command with its reason; for --metrics also one line per group of metrics."""
    lines = []
    for words, why in collection.parts:
        metrics = words[0] == "--metrics"
        lines.append((words[0] if metrics else " ".join(words), why))
        if metrics and collection.compute_capability:
            groups = metric_catalog.collection(collection.compute_capability)
            lines += [(f"  {group.quantity} ({len(group.metrics)})", group.why) for group in groups]
    width = max(len(part) for part, _ in lines)
    return "".join(f"  {part:<{width}}  {why}\n" for part, why in lines)
