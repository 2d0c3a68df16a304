"""Profiler files of any tool -> one profile. What a file is, its content says; its name says nothing.

`READERS` is the registry: a tool is a line there, with a function that recognises it from the first bytes and
one that reads the files of it that one call was given.
"""

from __future__ import annotations

import glob
import gzip
import io
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from roofmodel.errors import ProfileError, shorten
from roofmodel.profiles import nsys, nsys_stats, nvprof, torch_trace
from roofmodel.profiles.kernel import OF_AMD, Profile
from roofmodel.profiles.ncu import reader as ncu

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_HEAD = 1 << 20  # bytes of a file that must suffice to recognise it: programs print much before a profiler does
_SPREADSHEET = re.compile(
    rb'^(?:\xef\xbb\xbf)?"?(?:ID|Process ID|Time ?\(%\)|Start ?\(\w+\))"?([;\t])', re.MULTILINE
)  # of ncu's and nsys's tables, saved again
# Headings of tables, and the one key of a document, that AMD's profilers write.
_AMD = re.compile(
    rb'^"?(Dispatch_ID|Kernel_Name"?,"?Count|Name"?,"?Calls"?,"?TotalDurationNs|Kind"?,"?Agent_Id)\b'
    rb'|^\s*\{\s*"rocprofiler-sdk-tool"',
    re.MULTILINE,
)


@dataclass(frozen=True)
class Source:
    """A file as a reader gets it: `open` gives its bytes, decompressed and seekable; `path` is where they stand.

    `path` is None for standard input and for what was compressed.
    """

    name: str
    open: Callable[[], BinaryIO]
    path: Path | None = None


Watch = Callable[[str, int, int], None]
"""Is told a file's name, how many of its bytes were read, and how many there are."""

watching: ContextVar[Watch] = ContextVar("watching", default=lambda name, done, total: None)

Recognise = Callable[[bytes], bool]
Read = Callable[[Sequence[Source], str | None], Profile]


def one_by_one(read: Callable[[BinaryIO, str], Profile]) -> Read:
    """A reader of one stream, for the registry: its files are read one by one and stand side by side."""

    def read_each(sources: Sequence[Source], generation: str | None) -> Profile:
        def profiles() -> Iterator[Profile]:
            for source in sources:
                with source.open() as stream:
                    yield read(stream, source.name)

        return concatenate(profiles())

    return read_each


def _read_ncu(sources: Sequence[Source], generation: str | None) -> Profile:
    def streams() -> Iterator[tuple[BinaryIO, str]]:
        for source in sources:
            with source.open() as stream:
                yield stream, source.name

    return ncu.read_all(streams(), generation)


# Whose tables stand in a file: none may be lost because another tool's was recognised first.
_TABLES: tuple[tuple[str, Recognise], ...] = (
    ("Nsight Compute", ncu.holds_table),
    ("nvprof", nvprof.holds_table),
    ("Nsight Systems", nsys_stats.holds_table),
)

READERS: tuple[tuple[str, Recognise, Read], ...] = (
    ("Nsight Compute", ncu.recognise, _read_ncu),
    ("nvprof", nvprof.recognise, one_by_one(nvprof.read)),
    ("Nsight Systems", nsys.recognise, one_by_one(nsys.read)),
    ("the PyTorch profiler", torch_trace.recognise, one_by_one(torch_trace.read)),
)


def read(paths: Iterable[str | Path], generation: str | None = None) -> Profile:
    """Read profiler files: paths, patterns such as `out.*`, `-` for standard input; compressed with gzip or not.

    `generation` is the compute capability (`7.0`) for files that do not say it. Raises ProfileError, which says
    where, what, and what would work, for anything that is no profile, and for files of different tools.
    """
    with _sources(paths) as sources:
        if not sources:
            raise ProfileError("no profiler file was given; give one, such as the line of `roof ncu-command` writes")
        found = [(_recognise(source), source) for source in sources]
        tools = list(dict.fromkeys(tool for (tool, _), _ in found))
        if len(tools) > 1:
            first = {tool: source.name for (tool, _), source in reversed(found)}
            raise ProfileError(
                f"files of different tools: {', '.join(f'{first[tool]} is of {tool}' for tool in tools)}; "
                "read those of one tool at a time"
            )
        try:
            return found[0][0][1](sources, generation)
        except (OSError, EOFError, zlib.error) as error:
            raise ProfileError(f"{', '.join(s.name for s in sources[:3])}: cannot be read: {_why(error)}") from None


def concatenate(profiles: Iterable[Profile]) -> Profile:
    """Profiles of one tool, one after the other."""
    every = list(profiles)
    return Profile(
        tool=every[0].tool,
        files=tuple(file for profile in every for file in profile.files),
        kernels=tuple(kernel for profile in every for kernel in profile.kernels),
        evidence=tuple(dict.fromkeys(replace(seen, file=p.files[0]) for p in every for seen in p.evidence)),
        warnings=tuple(dict.fromkeys(text for profile in every for text in profile.warnings)),
    )


def _recognise(source: Source) -> tuple[str, Read]:
    try:
        with source.open() as stream:
            head = stream.read(_HEAD)
    except (OSError, EOFError, zlib.error) as error:
        raise ProfileError(f"{source.name}: cannot be read: {_why(error)}") from None
    if len(tools := [tool for tool, holds_table in _TABLES if holds_table(head)]) > 1:
        raise ProfileError(
            f"{source.name}: holds tables of {' and of '.join(tools)}; give each tool's a file of its own"
        )
    if parted := _SPREADSHEET.search(head):
        raise ProfileError(
            f"{source.name}: its columns are parted by {parted[1].decode()!r}, as spreadsheets save them; "
            "give the file as the profiler wrote it"
        )
    for tool, recognise, reader in READERS:
        if recognise(head):
            return tool, reader
    known = ", ".join(tool for tool, _, _ in READERS)
    if not head.strip():
        what = "the file is empty"
    elif head.startswith(b"PK\x03\x04"):
        what = "a zip archive; unpack it and give the files in it"
    elif _AMD.search(head):
        raise ProfileError(f"{source.name}: of AMD's rocprof or rocprofiler, whose files are not read; {OF_AMD}")
    elif b"\0" in head:
        what = "a binary file of a kind not known here"
    else:
        what = "a text without anything that a profiler writes"
    raise ProfileError(f"{source.name}: {what}; files of these tools can be read: {known}")


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or "it is damaged"


@contextmanager
def _sources(paths: Iterable[str | Path]) -> Iterator[list[Source]]:
    """What the paths stand for, each file once. What cannot be read twice, such as a pipe, is copied first."""
    sources: dict[object, Source] = {}
    with ExitStack() as copies:

        def copied(stream: BinaryIO) -> Callable[[], int]:
            copy = copies.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stream, copy)
            copy.flush()

            return lambda: os.dup(copy.fileno())

        for path in map(str, paths):
            if path == "-":
                if "-" not in sources:
                    sources["-"] = _source("standard input", copied(sys.stdin.buffer))
                continue
            for file in _files(path):
                if file.is_file():
                    sources.setdefault(file.resolve(), _source(str(file), file))
                else:
                    with file.open("rb") as pipe:
                        sources[len(sources)] = _source(str(file), copied(pipe))
        yield list(sources.values())


def _files(path: str) -> list[Path]:
    if not path:
        raise ProfileError("'' is no file's name; give a profiler file, or - for standard input")
    file = Path(path)
    try:
        if file.is_dir():
            raise ProfileError(f"{path}: a folder; give the files in it, such as {path.rstrip('/')}/*")
        if file.exists():
            return [file]
    except (OSError, ValueError):  # a name too long, or with a zero byte, is no file's
        pass
    if glob.has_magic(path):
        if found := [Path(name) for name in sorted(glob.glob(path, recursive=True)) if Path(name).is_file()]:
            return found
        raise ProfileError(f"{path}: no file matches this pattern")
    raise ProfileError(f"{shorten(path)}: there is no such file")


def _source(name: str, file: Path | Callable[[], int]) -> Source:
    def plain() -> BinaryIO:
        raw = _Watched(file if isinstance(file, Path) else file(), name)
        raw.seek(0)  # a copy shares its place with those that were opened before
        return cast(BinaryIO, io.BufferedReader(raw, 1 << 20))

    def unpacked() -> BinaryIO:
        stream = plain()
        return cast(BinaryIO, _Gzip(stream)) if _is_gzip(stream) else stream

    try:
        with plain() as stream:
            packed = _is_gzip(stream)
    except OSError as error:
        raise ProfileError(f"{name}: cannot be read: {_why(error)}") from None
    return Source(name, unpacked, None if packed or not isinstance(file, Path) else file)


class _Watched(io.FileIO):
    """A file that says how much of it was read; of a compressed one, as it lies on the disk."""

    def __init__(self, file: Path | int, name: str) -> None:
        super().__init__(file, "r")
        self._said, self._watch, self._size = name, watching.get(), os.fstat(self.fileno()).st_size

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        count = super().readinto(buffer)
        self._watch(self._said, self.tell(), self._size)
        return count


def _is_gzip(stream: BinaryIO) -> bool:
    magic = stream.read(2)
    stream.seek(0)
    return magic == b"\x1f\x8b"


class _Gzip(gzip.GzipFile):
    """A compressed file that takes the file beneath it along when it closes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._beneath = stream
        super().__init__(fileobj=stream, mode="rb")

    def close(self) -> None:
        super().close()
        self._beneath.close()
