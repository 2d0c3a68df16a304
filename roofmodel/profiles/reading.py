"""Detect the tool of profiler files by their content and read them into one profile. File names do not matter.

`FORMATS` is the registry of formats.
"""

from __future__ import annotations

import glob
import io
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from roofmodel.errors import COMPARE, NCU_COMMAND, VALIDATE, ProfileError, Text, shorten
from roofmodel.files.text_files import display_names, foreign_profile
from roofmodel.profiles import signatures
from roofmodel.profiles.kernel import AMD_ALTERNATIVE, KernelTable, Profile, ReaderWarning
from roofmodel.profiles.streams import Gunzip, copy_stream

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from roofmodel.profiles.timelines.timeline import Timeline

NCU, ROCPROF = "Nsight Compute", "AMD's rocprof"
_HEAD = 1 << 20  # bytes read for recognition; much, because a program may print a lot before the profiler does
MEASURED_COLUMNS = {b"op", b"latency_us"}  # of the tables that `roof validate` reads
_LISTED = 3  # names of skipped files in a warning
_SPREADSHEET = re.compile(
    rb'^(?:\xef\xbb\xbf)?"?(?:ID|Process ID|Time ?\(%\)|Start ?\(\w+\))"?([;\t])', re.MULTILINE
)  # tables of ncu and nsys that a spreadsheet saved
# Table headers that AMD's profilers write.
_AMD = re.compile(rb'^"?(Dispatch_ID|Name"?,"?Calls"?,"?TotalDurationNs|Kind"?,"?Agent_Id)\b', re.MULTILINE)


@dataclass(frozen=True)
class InputFile:
    """An input file: `open` returns a decompressed, seekable stream; `path` is the file itself.

    `path` is None for standard input and for compressed files.
    """

    name: str
    open: Callable[[], BinaryIO]
    path: Path | None = None


ProgressCallback = Callable[[str, int, int | None], None]
"""Called with a file's name, the number of bytes read, and the file's size in bytes."""

_progress: ContextVar[ProgressCallback] = ContextVar("progress", default=lambda name, done, total: None)


@contextmanager
def report_progress(progress: ProgressCallback) -> Iterator[None]:
    """Within this context, reading a file calls `progress`."""
    token = _progress.set(progress)
    try:
        yield
    finally:
        _progress.reset(token)


def current_progress() -> ProgressCallback:
    """The callback of this context."""
    return _progress.get()


Recognize = Callable[[bytes], bool]


class ProfileFormat(NamedTuple):
    """A format: the tool that writes it, its signature, and the module of this folder that reads it.

    The module has a function `read(stream, name)`, or `read_all(streams and names, generation)` if files of one run are
    joined. It returns a `Timeline`, and is imported with the first file.
    """

    tool: str
    recognize: Recognize  # from the first bytes of a file
    module: str
    joined: bool = False

    def read(self, sources: Sequence[InputFile], generation: str | None = None, **options: Any) -> Iterator[Timeline]:
        """The timeline of each file; of all files if they are joined."""
        module = import_module(f"roofmodel.profiles.{self.module}")
        if self.joined:
            yield module.read_all(_streams(sources), generation)
            return
        for stream, name in _streams(sources):
            yield module.read(stream, name, **options)


def _streams(sources: Sequence[InputFile]) -> Iterator[tuple[BinaryIO, str]]:
    for source in sources:
        with source.open() as stream:
            yield stream, source.name


# Detect tables of several tools in one file: otherwise all but the first tool's would be ignored.
_TABLE_DETECTORS: tuple[tuple[str, Recognize], ...] = (
    (NCU, signatures.ncu_table),
    ("nvprof", signatures.nvprof_table),
    ("Nsight Systems", signatures.nsys_table),
)

FORMATS: tuple[ProfileFormat, ...] = (
    ProfileFormat(NCU, signatures.ncu, "ncu.reader", joined=True),
    ProfileFormat("nvprof", signatures.nvprof, "nvprof"),
    ProfileFormat("nvprof", signatures.nvprof_database, "nvprof_database"),
    ProfileFormat(ROCPROF, signatures.rocprof, "rocprof", joined=True),  # before nsys, which takes any other database
    ProfileFormat("Nsight Systems", signatures.nsys, "nsys"),
    ProfileFormat("the PyTorch profiler", signatures.torch_trace, "torch_trace"),
    ProfileFormat("the PyTorch profiler", signatures.key_averages, "timelines.torch_averages"),
)


def read(paths: Iterable[str | Path], generation: str | None = None) -> Profile:
    """Read profiler files: paths, patterns such as `out.*`, `-` for standard input; compressed with gzip or not.

    `generation` is the compute capability (`7.0`), used for files that do not record it. Files of no known tool are
    skipped with a warning. Raises ProfileError if no file is left, if one cannot be read or is damaged, and for files
    of different tools.
    """
    with opened_sources(paths) as sources:
        if not sources:
            raise ProfileError("no profiler file given; ", NCU_COMMAND, " prints a command that writes one")
        recognized_files, foreign = profiler_files(sources)
        tools = list(dict.fromkeys(form.tool for form, _ in recognized_files))
        if len(tools) > 1:
            first = {form.tool: source.name for form, source in reversed(recognized_files)}
            raise ProfileError(
                f"files of different tools: {', '.join(f'{first[tool]} ({tool})' for tool in tools)}; "
                "give the files of one tool at a time"
            )
        known_sources = [source for _, source in recognized_files]
        joined = [(recognized_files[0][0], known_sources)] if recognized_files[0][0].joined else []
        from roofmodel.profiles.timelines import kernels

        try:
            every = (
                timeline
                for form, files in joined or [(form, [source]) for form, source in recognized_files]
                for timeline in form.read(files, generation)
            )
            profile = concatenate(map(kernels.profile, every))
        except (OSError, EOFError, zlib.error) as error:
            names = ", ".join(source.name for source in known_sources[:3])
            raise ProfileError(f"{names}: cannot be read: {_reason(error)}") from None
        return replace(profile, warnings=(*profile.warnings, *foreign))


class _NotAProfile(ProfileError):
    """A file of no known tool; `reason` says what it is instead."""

    def __init__(self, name: str, reason: str, *advice: Text) -> None:
        super().__init__(f"{name}: {reason}; ", *advice)
        self.name, self.reason = name, reason


def profiler_files(
    sources: Iterable[InputFile],
) -> tuple[list[tuple[ProfileFormat, InputFile]], list[ReaderWarning]]:
    """The files with their formats, and warnings about files of no known tool, which are skipped.

    A pattern such as `*.csv` often matches other files as well. Raises ProfileError if no file is left.
    """
    recognized_files, foreign = [], []
    for source in sources:
        try:
            recognized_files.append((recognized(source), source))
        except _NotAProfile as error:
            foreign.append(error)
    if foreign and not recognized_files:
        raise foreign[0]
    names_of: dict[str, list[str]] = {}
    for file in foreign:
        names_of.setdefault(file.reason, []).append(file.name)
    warnings, shown = [], display_names(file.name for file in foreign)
    for reason, names in names_of.items():
        more = f" and {len(names) - _LISTED} more files" if len(names) > _LISTED else ""
        listed = ", ".join(shown[name] for name in names[:_LISTED])
        warnings.append(ReaderWarning(f"{listed}{more}: skipped: {reason}"))
    return recognized_files, warnings


def concatenate(profiles: Iterable[Profile]) -> Profile:
    """Concatenate profiles of one tool."""
    every = list(profiles)
    return Profile(
        tool=every[0].tool,
        files=tuple(file for profile in every for file in profile.files),
        kernels=_concatenated([profile.kernels for profile in every]),
        evidence=tuple(
            dict.fromkeys(replace(evidence, file=evidence.file or p.files[0]) for p in every for evidence in p.evidence)
        ),
        warnings=tuple(dict.fromkeys(text for profile in every for text in profile.warnings)),
        copies=_concatenated([profile.copies for profile in every]),
    )


def _concatenated(tables: Sequence[KernelTable]) -> KernelTable:
    if len(tables) == 1:
        return tables[0]
    every = KernelTable()
    for table in tables:
        every.append(table)
    return every


def recognized(source: InputFile) -> ProfileFormat:
    """The format of a file. Raises ProfileError for a file of an unknown tool."""
    try:
        with source.open() as stream:
            head = stream.read(_HEAD)
    except (OSError, EOFError, zlib.error) as error:
        raise ProfileError(f"{source.name}: cannot be read: {_reason(error)}") from None
    if len(tools := [tool for tool, has_table in _TABLE_DETECTORS if has_table(head)]) > 1:
        raise ProfileError(f"{source.name}: contains tables of {' and '.join(tools)}; split it into one file per tool")
    if spreadsheet := _SPREADSHEET.search(head):
        raise ProfileError(
            f"{source.name}: its columns are separated by {spreadsheet[1].decode()!r}, as a spreadsheet saves them; "
            "give the file that the profiler wrote"
        )
    for form in FORMATS:
        if form.recognize(head):
            return form
    if foreign := foreign_profile(head, source.name):
        description, _, advice = foreign.partition("; ")
        raise _NotAProfile(source.name, description, advice)
    tool_names = ", ".join(dict.fromkeys(form.tool for form in FORMATS))
    if not head.strip():
        description = "the file is empty"
    elif head.startswith(b"PK\x03\x04"):
        description = "a zip archive; extract it first"
    elif _AMD.search(head):
        raise _NotAProfile(source.name, "this output of AMD's rocprof is not supported", AMD_ALTERNATIVE)
    elif signatures.serving_result(head):
        raise _NotAProfile(source.name, "a result of a serving benchmark", "for its prediction use ", COMPARE)
    elif head.startswith(b"PAR1"):
        description = "not a profiler export but a Parquet file"
    elif set(head.partition(b"\n")[0].strip().split(b",")) >= MEASURED_COLUMNS:
        raise _NotAProfile(source.name, "a table of measured operations", "for its errors use ", VALIDATE)
    elif b"\0" in head:
        description = "an unknown binary format"
    else:
        description = "not a profiler export"
    raise _NotAProfile(
        source.name, description, f"supported tools: {tool_names}; ", COMPARE,
        f" also reads results of {signatures.SERVING_TOOLS}",
    )  # fmt: skip


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or "the file is damaged"


@contextmanager
def opened_sources(paths: Iterable[str | Path]) -> Iterator[list[InputFile]]:
    """The files that the paths and patterns name, each once. Pipes are copied first: they cannot be read twice."""
    sources: dict[object, InputFile] = {}
    with ExitStack() as copies:

        def copied(stream: BinaryIO, name: str) -> InputFile:
            """A copy of a pipe; only of its first bytes if they are not of a profiler."""
            copy = cast(BinaryIO, copies.enter_context(tempfile.TemporaryFile()))
            source = _source(name, lambda: os.dup(copy.fileno()))
            copy.write(stream.read(_HEAD))
            copy.flush()
            try:
                recognized(source)
            except _NotAProfile:
                return source
            except ProfileError:
                pass  # the first bytes of a compressed file may not be enough
            copy_stream(stream, copy, name)
            copy.flush()
            return _source(name, lambda: os.dup(copy.fileno()))

        for path in map(str, paths):
            if path == "-":
                if sys.stdin is None:
                    raise ProfileError("standard input is closed; give the names of the files")
                if "-" not in sources:
                    sources["-"] = copied(sys.stdin.buffer, "standard input")
                continue
            for file in _matching_files(path):
                if file.is_file():
                    sources.setdefault(file.resolve(), _source(str(file), file))
                else:
                    with file.open("rb") as pipe:
                        sources[len(sources)] = copied(pipe, str(file))
        yield list(sources.values())


def expanded_files(argument: str) -> list[str]:
    """The files that a path, a pattern or a folder names; `-` stays. Raises ProfileError if there are none."""
    if argument == "-" or not _is_folder(argument):
        return [argument] if argument == "-" else list(map(str, _matching_files(argument)))
    files = [str(file) for file in sorted(Path(argument).iterdir()) if file.is_file() and file.name[0] != "."]
    if not files:
        raise ProfileError(f"{argument}: the folder contains no files; give the files of a run")
    return files


def _is_folder(argument: str) -> bool:
    try:
        return bool(argument) and Path(argument).is_dir()
    except (OSError, ValueError):  # too long, or contains a null byte
        return False


def _matching_files(path: str) -> list[Path]:
    """The files that a path or pattern names. Raises ProfileError for a folder, and if there are none."""
    if not path:
        raise ProfileError("'' is not a file name; give a profiler file, or - for standard input")
    file = Path(path)
    try:
        if file.is_dir():
            raise ProfileError(f"{path}: is a folder; give its files, such as {path.rstrip('/')}/*")
        if file.exists():
            return [file]
    except (OSError, ValueError):  # too long, or contains a null byte
        pass
    if glob.has_magic(path):
        if matches := [Path(name) for name in sorted(glob.glob(path, recursive=True)) if Path(name).is_file()]:
            return matches
        raise ProfileError(f"{path}: no file matches the pattern")
    raise ProfileError(f"{shorten(path)}: no such file")


def _source(name: str, file: Path | Callable[[], int]) -> InputFile:
    def plain() -> BinaryIO:
        raw = _FileWithProgress(file if isinstance(file, Path) else file(), name)
        raw.seek(0)  # duplicated descriptors of a copy share their position
        return cast(BinaryIO, io.BufferedReader(raw, 1 << 20))

    def unpacked() -> BinaryIO:
        stream = plain()
        return cast(BinaryIO, io.BufferedReader(Gunzip(stream, name), 1 << 20)) if _is_gzip(stream) else stream

    try:
        with plain() as stream:
            packed = _is_gzip(stream)
    except OSError as error:
        raise ProfileError(f"{name}: cannot be read: {_reason(error)}") from None
    return InputFile(name, unpacked, None if packed or not isinstance(file, Path) else file)


class _FileWithProgress(io.FileIO):
    """A file that reports how many of its bytes (compressed, if it is) were read."""

    def __init__(self, file: Path | int, name: str) -> None:
        super().__init__(file, "r")
        self._label, self._report, self._size = name, current_progress(), os.fstat(self.fileno()).st_size

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        count = super().readinto(buffer)
        self._report(self._label, self.tell(), self._size)
        return count


def _is_gzip(stream: BinaryIO) -> bool:
    magic = stream.read(2)
    stream.seek(0)
    return magic == b"\x1f\x8b"
