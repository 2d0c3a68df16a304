"""The command that collects, as a line to paste, as JSON, and as reasons to read."""

from __future__ import annotations

import shlex
from typing import Any

from roofmodel.profiles.ncu import metric_catalog
from roofmodel.study.profile.ncu_command import Collection


def line(collection: Collection) -> str:
    """One line that a shell takes as it stands."""
    return shlex.join(collection.command)


def document(collection: Collection) -> dict[str, Any]:
    """The document `roofmodel.ncu-command/1`: the words of the line, and for each part why it stands there."""
    return {
        "schema": "roofmodel.ncu-command/1",
        "command": list(collection.command),
        "why": [{"part": " ".join(part.words), "why": part.why} for part in collection.parts],
        "hardware": collection.hardware,
        "hardware_from": collection.hardware_from,
        "compute_capability": collection.compute_capability,
        "notes": list(map(str, collection.notes)),
    }


def reasons(collection: Collection) -> str:
    """A line a part of the command, and under --metrics, which are many, a line a group of them."""
    lines = []
    for words, why in collection.parts:
        metrics = words[0] == "--metrics"
        lines.append((words[0] if metrics else " ".join(words), why))
        if metrics:
            groups = metric_catalog.collection(collection.compute_capability)
            lines += [(f"  {group.what} ({len(group.metrics)})", group.why) for group in groups]
    width = max(len(part) for part, _ in lines)
    return "".join(f"  {part:<{width}}  {why}\n" for part, why in lines)
