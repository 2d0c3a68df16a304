"""Names of files as results show them: printable, and without folders, which may name people and machines."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from roofmodel.errors import Message, Text


def display_names(paths: Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """The name that results show for each path: the file's own name, after its folder's if two files share a name.

    Examples:
        >>> display_names(["/home/someone/run.csv"])
        {'/home/someone/run.csv': 'run.csv'}
        >>> list(display_names(["/scratch/someone/a/run.csv", "b/run.csv"]).values())
        ['a/run.csv', 'b/run.csv']
    """
    files = {os.fspath(path): Path(path) for path in paths}
    count = Counter(file.name for file in files.values())
    return {
        path: printable(f"{file.parent.name}/{file.name}" if count[file.name] > 1 else file.name)
        for path, file in files.items()
    }


def rename_files(text: Text, names: Mapping[str, str]) -> Text:
    """A note or warning with each path in it replaced by its name in results."""
    parts = Message(text).parts
    for path in sorted(names, key=len, reverse=True):  # a path may begin with another one
        parts = tuple(part.replace(path, names[path]) if isinstance(part, str) else part for part in parts)
    return Message(*parts) if isinstance(text, Message) else parts[0]


def printable(text: str) -> str:
    """Replace unprintable characters with a blank or `\ufffd`, so that the text is safe to print in a terminal.

    Names of files, kernels and ranges come from users: they may contain escape sequences, bidirectional control
    characters, line ends, or unpaired surrogates (a file name that is not UTF-8).
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)
