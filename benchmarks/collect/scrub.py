"""Whose machine it was is nobody's business: paths, user and host are taken out of everything that is to be sent."""

from __future__ import annotations

import getpass
import gzip
import os
import socket
import sys
from pathlib import Path

TEXT = (".csv", ".json", ".txt", ".yaml")
ROOT = Path(__file__).parents[2]


def scrub(folder: Path) -> None:
    """Rewrite the texts of a folder, packed ones too, without the names of this machine."""
    names = replacements(folder)
    for path in sorted(folder.rglob("*")):
        packed = path.suffix == ".gz"
        if (path.with_suffix("") if packed else path).suffix not in TEXT or not path.is_file():
            continue
        before = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
        after = before
        for name, instead in names:
            after = after.replace(name.encode(), instead.encode())
        if after != before:
            path.write_bytes(gzip.compress(after, 6) if packed else after)


def replacements(folder: Path) -> list[tuple[str, str]]:
    """What is replaced by what, longer names first, since they may hold the shorter ones."""
    known = {
        str(folder): "FOLDER",
        str(ROOT): "ROOFMODEL",
        sys.executable: "python",
        sys.prefix: "PYTHON",
        str(Path.home()): "HOME",
        socket.gethostname(): "HOST",
        _user(): "USER",
    }
    # a name of a letter or two, or root, would be found in the midst of words
    told = [
        (name, instead)
        for name, instead in known.items()
        if len(name) > 3 and name not in ("root", "/root", "localhost")
    ]
    return sorted(told, key=lambda pair: -len(pair[0]))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return os.environ.get("USER", "")
