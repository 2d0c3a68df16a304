"""Output files: the suffix selects the format, and an existing file is replaced only when the new one is complete."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from roofmodel.errors import OutputError
from roofmodel.files.text_files import expand


def check(path: str, suffixes: Iterable[str]) -> Path:
    """The path to write, checked before any work is done.

    Raises OutputError for an unknown suffix, a missing folder, a read-only file, or a path that cannot be written.
    """
    target, suffixes = expand(path), list(suffixes)
    if form(target, suffixes) is None:
        known_suffixes = ", ".join(f".{s}" for s in suffixes)
        problem = f"unknown suffix {target.suffix!r}" if target.suffix else "has no suffix, which selects the format"
        raise OutputError(f"{path or repr(path)}: {problem}; known: {known_suffixes}")
    if not os.path.isdir(target.parent):
        raise OutputError(f"{path}: folder {str(target.parent)!r} does not exist; create it first")
    if os.path.isdir(target):
        raise OutputError(f"{path}: is a folder; name a file in it")
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return target  # a new file
    except OSError as error:  # an invalid file name, or a folder without permission
        raise _cannot_write(target, error) from None
    if not mode & ANYONE_WRITES or not os.access(target, os.W_OK):  # the superuser has access without permission
        raise OutputError(f"{path}: the file is read-only; name another file, or permit writing it")
    return target


def form(target: Path, suffixes: Iterable[str]) -> str | None:
    """The longest of the suffixes with which the name ends, such as `json` or `perfetto.json`; None without."""
    ending = "".join(target.suffixes).lower()
    return max((s for s in suffixes if ending.endswith(f".{s}")), key=len, default=None)


ANYONE_WRITES = 0o222


def check_not_input(path: str, inputs: Iterable[str]) -> None:
    """Raises OutputError if writing this path would replace an input: the same file by any path or link.

    An input is a path, a pattern, a folder with a config.json, FILE@HW, or a name.
    """
    target = expand(path)
    for name in inputs:
        for file in _files_of(name):
            with suppress(OSError, ValueError):  # no such file, or no file name
                if os.path.samefile(target, file):
                    raise OutputError(f"{path}: is also an input ({name}); give another file for the output")


def _files_of(name: str) -> Iterator[Path]:
    """The paths that an argument may name; most do not exist."""
    for text in (name, name.rpartition("@")[0]):
        yield expand(text)
        yield expand(text) / "config.json"
        yield from map(Path, glob.iglob(text, recursive=True) if glob.has_magic(text) else ())


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file in the same folder, then rename it to the target, whose permissions it takes.

    A symbolic link is followed; a device or a pipe is written directly. Raises OutputError.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            write(target)
            return
        mode = target.stat().st_mode & 0o7777 if target.exists() else None
        _remove_abandoned(target.parent)
        # chosen before the file exists, so that a signal at any time leaves none; short, as the target's may be longest
        temporary = target.with_name(f"{TEMPORARY}{os.urandom(8).hex()}")
        lock: int | None = None
        try:
            lock = _create_locked(temporary, 0o666 if mode is None else 0o600)
            write(temporary)
            if mode is not None:
                temporary.chmod(mode)
            temporary.replace(target)
        finally:
            if lock is not None:
                os.close(lock)
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from None


TEMPORARY = ".roofmodel-"
"""What the names of temporary files begin with."""


def _create_locked(file: Path, permissions: int) -> int | None:
    """Create a file, locked until the descriptor is closed or the process ends; None where there are no locks."""
    while True:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, permissions)
        try:
            import fcntl
        except ImportError:  # Windows
            os.close(descriptor)
            return None
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if file.exists():  # else another process has removed it before it was locked
            return descriptor
        os.close(descriptor)


def _remove_abandoned(folder: Path) -> None:
    """Delete the temporary files in a folder whose processes were killed, so that nobody locks them."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    for file in folder.glob(f"{TEMPORARY}*"):
        with suppress(OSError):  # locked, of another user, or already deleted
            descriptor = os.open(file, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.unlink()
            finally:
                os.close(descriptor)


def _cannot_write(target: Path, error: OSError) -> OutputError:
    return OutputError(f"{target}: cannot be written ({error.strerror or error})")
