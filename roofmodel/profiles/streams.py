"""Decompress and decode profiler files, iterate over their lines, split CSV rows, and give a stream a path.

Inputs without an end and files that decompress to very much more than their size are refused.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from roofmodel.errors import ProfileError
from roofmodel.files.text_files import printable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_COPY = 2**30
"""Bytes of a pipe or a decompressed database that are copied to the folder for temporary files, which is often small or
in memory. Larger files need no copy if they are given as uncompressed files."""

MAX_EXPANSION = 200
"""Decompressed size relative to the compressed size. Traces and tables reach 35, runs of one byte 1000."""

MIN_EXPANDED = 64 * 2**20
"""Decompressed bytes from which MAX_EXPANSION applies: small files may be very regular."""

MAX_NAME = 2**14
"""Characters of a kernel's or range's name. The longest measured name has 5123; the patterns that classify names take
quadratic time."""

_MAX_LINE_LENGTH = 1 << 24  # characters; no row is that long
# Quotes enclose a cell or, doubled, stand within a quoted cell; a quote anywhere else means a damaged row.
_ROW = re.compile(r'(?:"(?:[^"]|"")*+"|[^",]*+)(?:,(?:"(?:[^"]|"")*+"|[^",]*+))*+\n?')

NO_LAST_NEWLINE = "the last line has no line end: it may be truncated"


def encoding(head: bytes) -> str:
    """UTF-16 if the bytes show it (PowerShell redirects write it), else UTF-8 with or without BOM."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    some = head[:200]
    first, second = some[0::2].count(0), some[1::2].count(0)  # in Latin text one byte of each pair is zero
    if max(first, second) > len(some) // 3 and not min(first, second):
        return "utf-16-be" if first else "utf-16-le"
    return "utf-8-sig"


def decode(content: bytes) -> str:
    """Decode a file, or its first bytes."""
    return content.decode(encoding(content), errors="replace")


def limited_name(name: str) -> str:
    """A name cut to MAX_NAME characters. A checksum at the end keeps different names different."""
    if len(name) <= MAX_NAME:
        return name
    ending = f"…{zlib.crc32(name.encode(errors='replace')):08x}"
    return name[: MAX_NAME - len(ending)] + ending


def copy_stream(stream: BinaryIO, target: BinaryIO, name: str) -> None:
    """Copy the rest of a stream. Raises ProfileError if it is longer than MAX_COPY."""
    copied = 0
    while chunk := stream.read(1 << 20):
        copied += len(chunk)
        if copied > MAX_COPY:
            raise ProfileError(
                f"{name}: more than {MAX_COPY // 2**20} MiB from a pipe or a compressed file; "
                "save the data uncompressed and give that file"
            )
        target.write(chunk)


class Gunzip(io.RawIOBase):
    """A decompressed stream that closes the compressed one. Raises ProfileError if it expands too much."""

    def __init__(self, compressed: BinaryIO, name: str) -> None:
        self._compressed, self._name = compressed, name
        self._content = gzip.GzipFile(fileobj=compressed, mode="rb")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._content.seek(offset, whence)

    def tell(self) -> int:
        return self._content.tell()

    def readinto(self, buffer: WriteableBuffer) -> int:
        count = self._content.readinto(buffer)
        size = self._content.tell()
        if size > MIN_EXPANDED and size > MAX_EXPANSION * self._compressed.tell():
            raise ProfileError(
                f"{self._name}: decompresses to more than {MAX_EXPANSION} times its size, as no profile does"
            )
        return count

    def close(self) -> None:
        super().close()
        self._content.close()
        self._compressed.close()


def cells(row: str) -> list[str] | None:
    """The cells of a CSV row; None if a quote does not close or encloses only part of a cell."""
    line = row.removesuffix("\n")
    if line[:1] == line[-1:] == '"':
        plain = line[1:-1].split('","')
        if line.count('"') == 2 * len(plain):  # every quote starts or ends a cell
            return plain
    if not _ROW.fullmatch(row):
        return None
    try:
        (values,) = csv.reader(io.StringIO(row, newline=""), strict=True)
    except (csv.Error, ValueError):
        return None
    return values


def split(row: str) -> list[str] | None:
    """The cells of a CSV row without surrounding blanks; None as for `cells`."""
    values = cells(row)
    return None if values is None else [cell.strip() for cell in values]


class Lines:
    """The decoded lines of a seekable stream. A context manager that leaves the stream open.

    `number` is the number of the last line, from 1; `where` is `file:number` for messages. After each line of
    `text_lines`, `ended` is False if that line has no line end, so that the file may be truncated there.
    """

    def __init__(self, stream: BinaryIO, file: str) -> None:
        self.file, self.number, self.ended = file, 0, True
        self._text = io.TextIOWrapper(stream, encoding=encoding(stream.read(4096)), errors="replace")
        self._text.seek(0)
        self._each = self._lines()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._text.detach()

    def __iter__(self) -> Iterator[str]:
        return self._each

    def _lines(self) -> Iterator[str]:
        readline = self._text.readline
        while line := readline(_MAX_LINE_LENGTH):
            self.number += 1
            yield line if line[0] != "\ufeff" and len(line) < _MAX_LINE_LENGTH else self._clean(line)

    @property
    def where(self) -> str:
        return f"{self.file}:{self.number}"

    def next(self) -> str:
        """The next line, or an empty string at the end. An oversized line becomes an empty line."""
        return next(self._each, "")

    def _clean(self, line: str) -> str:
        while len(line) == _MAX_LINE_LENGTH and not line.endswith("\n"):
            more = self._text.readline(_MAX_LINE_LENGTH)
            line = more if len(more) == _MAX_LINE_LENGTH else "\n"
        return line.lstrip("\ufeff")

    def text_lines(self) -> Iterator[str]:
        """The lines without line ends, made printable. Raises ProfileError for binary content."""
        for line in self:
            if "\0" in line:
                raise ProfileError(f"{self.where}: binary content in a text table; export the file again")
            self.ended = line.endswith("\n")
            yield printable(line.removesuffix("\n"))

    def row(self, line: str, starts_new_row: Callable[[str], bool]) -> list[str]:
        """The cells of the row that starts at `line`; a quoted cell may contain line ends.

        `starts_new_row` detects a line that starts another row, which means that this row is truncated. Raises
        ProfileError, with file and line, for a truncated row and for invalid CSV.
        """
        where, count = self.where, line.count('"')
        parts = [line]
        while count % 2:
            more = self.next()
            if not more or len(parts) > 1000 or starts_new_row(more):
                raise ProfileError(f"{where}: the row ends inside a quoted cell: the file is truncated there")
            parts.append(more)
            count += more.count('"')
        if (values := cells("".join(parts))) is None:
            raise ProfileError(f"{where}: not a table row: misplaced quote or line end")
        return values


@contextmanager
def as_file(stream: BinaryIO, magic: bytes, file: str) -> Iterator[Path]:
    """A path with the content of `stream`, for libraries that open files themselves: its own file or a temporary copy.

    The own file is used only if it starts with `magic`: the file behind a decompressed stream does not, and a pipe
    has no file. Raises ProfileError, with the name `file`, if the copy would be too large.
    """
    name = getattr(stream, "name", None)
    if isinstance(name, str | os.PathLike) and _begins(Path(name), magic):
        yield Path(name).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        stream.seek(0)
        with copy.open("wb") as out:
            copy_stream(stream, out, file)
        yield copy


def _begins(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(magic)) == magic
