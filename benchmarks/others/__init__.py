"""What other tools say of the rows that we measure ourselves by, a module a tool: run as they are installed, or from a
clone of the reader's own; nothing of theirs is here. `NotHere` says how to get one that is lacking."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from roofmodel.models.hub import catalogue


class NotHere(Exception):
    """A tool that cannot be run here: what is lacking, and how to get it."""


@contextlib.contextmanager
def config_folder(model: str) -> Iterator[str]:
    """A folder with the config.json of a packaged model, for tools that read one."""
    with tempfile.TemporaryDirectory() as folder:
        config = next(entry.config for entry in catalogue() if entry.id.rpartition("/")[2].lower() == model)
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        yield folder
