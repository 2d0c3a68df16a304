"""From the bytes of a file to lines with numbers, and from a line of CSV to its cells. Nobody declared the encoding."""

from __future__ import annotations

import codecs
import csv
import io
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from roofmodel.errors import ProfileError

_LONGEST = 1 << 24  # characters of a line; a row is never so long
# A quote stands around a cell or, doubled, within such a one: anywhere else it is what is left of a damaged one.
_ROW = re.compile(r'(?:"(?:[^"]|"")*+"|[^",]*+)(?:,(?:"(?:[^"]|"")*+"|[^",]*+))*+\n?')

UNENDED = "the last line does not end: what it says may be cut"


def encoding(head: bytes) -> str:
    """UTF-16 where a redirect of PowerShell made it so; UTF-8, with or without its mark, elsewhere."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    some = head[:200]
    first, second = some[0::2].count(0), some[1::2].count(0)  # of Latin text one byte of each pair is zero
    if max(first, second) > len(some) // 3 and not min(first, second):
        return "utf-16-be" if first else "utf-16-le"
    return "utf-8-sig"


def decode(content: bytes) -> str:
    """The text of a file, or of its beginning."""
    return content.decode(encoding(content), errors="replace")


def printable(text: str) -> str:
    """A text that no terminal obeys: what is no visible character becomes a blank, or `\ufffd`.

    Names are what somebody's program chose: they may hold escape sequences, marks that turn the direction of writing,
    or half a character, which cannot be written anywhere.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)


def cells(row: str) -> list[str] | None:
    """The cells of a row of CSV; None where its quotes do not close or enclose part of a cell."""
    line = row.removesuffix("\n")
    if line[:1] == line[-1:] == '"':
        plain = line[1:-1].split('","')
        if line.count('"') == 2 * len(plain):  # every quote begins or ends a cell
            return plain
    if not _ROW.fullmatch(row):
        return None
    try:
        (found,) = csv.reader(io.StringIO(row, newline=""), strict=True)
    except (csv.Error, ValueError):
        return None
    return found


def split(row: str) -> list[str] | None:
    """The cells of a row of CSV, blanks around them removed; None as for `cells`."""
    found = cells(row)
    return None if found is None else [cell.strip() for cell in found]


class Lines:
    """The lines of a seekable stream, to be used as a context, which leaves the stream open.

    `number` is that of the line last given, from 1; `where` is the file and that number, as messages begin; `ended`
    says of a line of `printed` whether its end was there, without which the file may have been cut within it.
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
        while line := readline(_LONGEST):
            self.number += 1
            yield line if line[0] != "\ufeff" and len(line) < _LONGEST else self._odd(line)

    @property
    def where(self) -> str:
        return f"{self.file}:{self.number}"

    def next(self) -> str:
        """The next line, or an empty string at the end. Of one beyond all measure an empty line is left."""
        return next(self._each, "")

    def _odd(self, line: str) -> str:
        while len(line) == _LONGEST and not line.endswith("\n"):
            more = self._text.readline(_LONGEST)
            line = more if len(more) == _LONGEST else "\n"
        return line.lstrip("\ufeff")

    def printed(self) -> Iterator[str]:
        """The lines, without their ends, of a file that must be text throughout. Raises ProfileError for a binary."""
        for line in self:
            if "\0" in line:
                raise ProfileError(f"{self.where}: is binary, not the table its beginning promised; export it again")
            self.ended = line.endswith("\n")
            yield printable(line.removesuffix("\n"))

    def row(self, line: str, cut: Callable[[str], bool]) -> list[str]:
        """The cells of the row that begins in `line`; a text in quotes may run over several lines.

        `cut` says whether a line begins something else, so that the row before it was never finished. Raises
        ProfileError, with file and line, for such a row and for what is no CSV.
        """
        where, count = self.where, line.count('"')
        parts = [line]
        while count % 2:
            more = self.next()
            if not more or len(parts) > 1000 or cut(more):
                raise ProfileError(f"{where}: the row ends inside a quoted text: the file is cut there")
            parts.append(more)
            count += more.count('"')
        if (found := cells("".join(parts))) is None:
            raise ProfileError(f"{where}: not a row of a table: a quote or a line's end stands where none may")
        return found


@contextmanager
def on_disk(stream: BinaryIO, magic: bytes) -> Iterator[Path]:
    """Where the content of a stream, which begins with `magic`, lies: its own file, else a temporary copy.

    The file of a stream that is decompressed on the way begins otherwise, and a pipe has none.
    """
    name = getattr(stream, "name", None)
    if isinstance(name, str) and _begins(Path(name), magic):
        yield Path(name).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        stream.seek(0)
        with copy.open("wb") as out:
            shutil.copyfileobj(stream, out)
        yield copy


def _begins(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(magic)) == magic
