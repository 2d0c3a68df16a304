"""Whose machine it was is nobody's business: paths, user and host are taken out of everything that is to be sent."""

from __future__ import annotations

import getpass
import gzip
import os
import re
import socket
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

TEXT = (".csv", ".json", ".txt", ".yaml")
ROOT = Path(__file__).parents[2]


def scrub(folder: Path) -> list[Path]:
    """Rewrite the texts of a folder, packed and unfinished ones too, without the names of this machine.

    Returns those that cannot be rewritten, as a packed one that was cut off, or any where the disk is full.
    """
    names, failed = list(patterns(folder)), []
    for path in sorted(folder.rglob("*")):
        whole = path.name.removesuffix(".part")
        packed = whole.endswith(".gz")
        if not whole.removesuffix(".gz").endswith(TEXT) or not path.is_file():
            continue
        try:
            before = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
            after = before
            for name, instead in names:
                after = name.sub(instead, after)
            if after != before:
                beside = path.with_name(f"{path.name}.scrubbed")
                try:
                    beside.write_bytes(gzip.compress(after, 6) if packed else after)
                    beside.replace(path)
                finally:
                    beside.unlink(missing_ok=True)
        except (OSError, EOFError, zlib.error):
            failed.append(path)
    return failed


def patterns(folder: Path) -> Iterator[tuple[re.Pattern[bytes], bytes]]:
    """What is replaced by what, longer names first, since they may hold the shorter ones.

    A user or host whose name is also a word of what is collected (a host a100, a user cuda) is taken out where it
    stands alone between the slashes of a path: anywhere else it may well be that word.
    """
    paths = {
        str(folder): "FOLDER",
        str(ROOT): "ROOFMODEL",
        sys.executable: "python",
        sys.prefix: "PYTHON",
        str(Path.home()): "HOME",
    }
    host = socket.gethostname()
    people = {host: "HOST", host.partition(".")[0]: "HOST", _user(): "USER"}
    sources = _sources()
    for name, instead in sorted((paths | people).items(), key=lambda pair: -len(pair[0])):
        # a name of a letter or two, or root, would be found in the midst of words
        if len(name) <= 3 or name in ("root", "/root", "localhost"):
            continue
        before, behind = rb"(?<![A-Za-z0-9])", rb"(?![A-Za-z0-9])"
        word = re.escape(name.encode())
        if name in paths:
            before = b""
        elif re.search(before + word + behind, sources, re.IGNORECASE):
            before, behind = rb"(?<=/)", rb"(?=/)"
        yield re.compile(before + word + behind), instead.encode()


def _sources() -> bytes:
    """The programs that write and read what is collected, and the devices' files: they hold its words."""
    files = [*(ROOT / "roofmodel").rglob("*.py"), *Path(__file__).parent.glob("*.py"), *(ROOT / "hardware").iterdir()]
    return b"\n".join(file.name.encode() + b"\n" + file.read_bytes() for file in files)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return os.environ.get("USER", "")
