"""Removes the names of people and machines from a folder that is to be sent: in contents, file names and links.

These are the user's and the host's names, the host's domain, paths, and the UUIDs of GPUs.
"""

from __future__ import annotations

import getpass
import gzip
import os
import re
import socket
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SHORT = 3  # letters up to which a name is likely to be part of something else
COMMON = ("", "root", "/root", "/", "localhost", "localdomain", "(none)")  # names that identify nobody
USER_VARIABLES = ("USER", "LOGNAME", "USERNAME", "SUDO_USER")
GPU_UUID = re.compile(rb"\b(?:GPU|MIG)-(?=[0-9a-f-]*\d)[0-9a-f]{8}[0-9a-f-]*", re.IGNORECASE)
LETTER = rb"[A-Za-z0-9]"


class Replacement(NamedTuple):
    """A pattern and the text that replaces its first group, or all of it if it has no group."""

    pattern: re.Pattern[bytes]
    text: bytes
    file_names_only: bool = False


def scrub(folder: Path) -> list[Path]:
    """Remove the names of this machine from a folder: from file names, targets of links, and contents, also gzipped.

    A binary file keeps its length. Returns the files that cannot be rewritten: a gzip file that is cut off, or any
    file if the disk is full.
    """
    every = [*replacements(folder)]
    patterns = [each for each in every if not each.file_names_only]
    failed = []
    for path in sorted(folder.rglob("*"), key=lambda path: len(path.parts), reverse=True):  # before their folders
        name = scrubbed_name(path.name, every)
        if name != path.name:
            path.rename(_unused(path.with_name(name)))
    for path in sorted(folder.rglob("*")):
        try:
            if path.is_symlink():
                _scrub_link(path, every)
            elif path.is_file():
                _scrub_file(path, patterns)
        except (OSError, EOFError, zlib.error):
            failed.append(path)
    return failed


def _scrub_file(path: Path, patterns: Iterable[Replacement]) -> None:
    packed = path.name.removesuffix(".part").endswith(".gz")
    before = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    after = scrubbed(before, patterns)
    if after == before:
        return
    temporary = path.with_name(f"{path.name}.scrubbed")
    try:
        temporary.write_bytes(gzip.compress(after, 6) if packed else after)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _scrub_link(path: Path, patterns: Iterable[Replacement]) -> None:
    before = os.fsencode(os.readlink(path))
    after = scrubbed(before, patterns)
    if after != before:
        path.unlink()
        path.symlink_to(os.fsdecode(after))


def scrubbed_name(name: str, patterns: Iterable[Replacement]) -> str:
    """A file's name without the names of this machine."""
    between = b"/%s/" % os.fsencode(name)
    return os.fsdecode(scrubbed(between, patterns)[1:-1].replace(b"/", b"_"))


def scrubbed(content: bytes, patterns: Iterable[Replacement]) -> bytes:
    """The content without the names of this machine. Binary content keeps its length, as its format may require."""
    binary = b"\0" in content
    for pattern, text, _ in patterns:

        def replaced(match: re.Match[bytes], text: bytes = text) -> bytes:
            group = pattern.groups and 1  # noqa: B023  # called before the next pattern
            start, end = match.span(group)
            instead = text[: end - start].ljust(end - start, b"_") if binary else text
            return match[0][: start - match.start()] + instead + match[0][end - match.start() :]

        content = pattern.sub(replaced, content)
    return content


def replacements(folder: Path) -> Iterator[Replacement]:
    """What replaces each name; longer names come first, because they may contain shorter ones.

    A name that is short, or also a word of what is collected (a host a100, a user cuda), is replaced only where it is
    evidently a name: as a folder in a path, before `@`, or as the value of a key such as USER.
    """
    yield Replacement(GPU_UUID, b"GPU-UUID")
    paths = {str(folder): "FOLDER", str(ROOT): "ROOFMODEL", sys.executable: "python", sys.prefix: "PYTHON"}
    users = _users()
    homes = [str(Path.home()), *(os.path.expanduser(f"~{user}") for user in users)]
    paths |= {home: "HOME" for home in homes if home.startswith("/")}
    names = {**_hosts(), **dict.fromkeys(users, "USER")}
    names |= dict.fromkeys(_visible_gpus(), "GPU-UUID")
    sources = _sources().lower()
    for name, text in sorted((paths | names).items(), key=lambda pair: -len(pair[0])):
        if name in COMMON:
            continue
        word = re.escape(os.fsencode(name))
        alone = rb"(?<!%s)%s(?!%s)" % (LETTER, word, LETTER)
        is_word = name in names and _contains_word(sources, os.fsencode(name).lower())
        if name in paths:
            patterns = [rb"%s(?!%s)" % (word, LETTER)]
        elif len(name) <= SHORT or is_word:
            patterns = [
                rb"(?<=/)%s(?=/)" % word,
                rb"/(?:[\w.@+-]+/)+(%s)(?![\w.+-]*[\w/])" % word,  # the last folder of a path, unlike the s of GB/s
                rb"(?<!%s)%s(?=@[A-Za-z])" % (LETTER, word),
                rb"(?i:\b(?:\w*user|user_?name|logname|login|owner)[\"']?\s*[=:]\s*[\"']?)(%s)(?!%s)" % (word, LETTER),
            ]
        else:
            patterns = [alone]
        for pattern in patterns:
            yield Replacement(re.compile(pattern), text.encode())
        if name in names and not is_word:
            yield Replacement(re.compile(alone), text.encode(), file_names_only=True)


def _contains_word(text: bytes, word: bytes) -> bool:
    """Whether the text has this word, not as a part of a longer word."""
    if word not in text:  # a plain search takes a hundredth of the time of the pattern
        return False
    return re.search(rb"(?<!%s)%s(?!%s)" % (LETTER, re.escape(word), LETTER), text) is not None


def _users() -> list[str]:
    """The user's names: of this process, and of the person who became another user with sudo."""
    user_names = [os.environ.get(name, "") for name in USER_VARIABLES]
    return [name for name in dict.fromkeys([_user(), *user_names]) if name not in COMMON]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _hosts() -> dict[str, str]:
    """The host's names and its domain, with those above it up to the last but one: the last is of a country."""
    names = {}
    for name in (socket.gethostname(), _full_host_name()):
        host, _, domain = name.partition(".")
        names |= {name: "HOST", host: "HOST"}
        while "." in domain:
            names.setdefault(domain, "DOMAIN")
            domain = domain.partition(".")[2]
    return names


def _full_host_name() -> str:
    """The host's name with its domain, unless a name server takes too long to answer."""
    host_names: list[str] = []
    thread = threading.Thread(target=lambda: host_names.append(socket.getfqdn()), daemon=True)
    thread.start()
    thread.join(5)
    return host_names[0] if host_names else ""


def _visible_gpus() -> list[str]:
    """The GPUs that CUDA_VISIBLE_DEVICES names by UUID, which it may abbreviate."""
    tokens = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [token.strip() for token in tokens if token.strip().upper().startswith(("GPU-", "MIG-"))]


def _sources() -> bytes:
    """The programs that write and read what is collected, and the devices' files: they contain its words."""
    files = [
        *(ROOT / "roofmodel").rglob("*.py"),
        *Path(__file__).parent.glob("*.py"),
        *(ROOT / "hardware").rglob("*.yaml"),
    ]
    return b"\n".join(file.name.encode() + b"\n" + file.read_bytes() for file in files)


def _unused(path: Path) -> Path:
    """The path, or one with a number if there is such a file."""
    number = 2
    while path.exists() or path.is_symlink():
        path = path.with_name(f"{number}-{path.name}")
        number += 1
    return path
