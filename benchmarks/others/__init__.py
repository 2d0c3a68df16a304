"""Predictions of other tools for the rows of our tables, one module per tool.

Each tool runs as it is installed or from the reader's own clone; this repository holds no code of theirs. `ToolMissing`
says how to get a tool that is missing.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from roofmodel.models.hub import catalog


class ToolMissing(Exception):
    """A tool that cannot run: what is missing, and how to get it."""


@contextlib.contextmanager
def config_folder(model: str) -> Iterator[str]:
    """A folder with the config.json of a packaged model, for tools that read such a folder."""
    with tempfile.TemporaryDirectory() as folder:
        config = next(entry.config for entry in catalog() if entry.id.rpartition("/")[2].lower() == model)
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        yield folder
