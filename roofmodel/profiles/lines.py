"""The lines of a text whose encoding nobody declared, numbered, and the rows of a CSV among them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import BinaryIO

from roofmodel.errors import ProfileError

_LONGEST = 1 << 24  # characters of a line; a row is never so long


def encoding(head: bytes) -> str:
    """UTF-16 where a redirect of PowerShell made it so; UTF-8, with or without its mark, elsewhere."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    some = head[:200]
    if some[1::2].count(0) > len(some) // 3 and not some[0::2].count(0):
        return "utf-16-le"
    return "utf-8-sig"


class Lines:
    """The lines of a seekable stream. `number` is that of the line last given, from 1. Close it when done."""

    def __init__(self, stream: BinaryIO, file: str) -> None:
        self.file, self.number = file, 0
        self._text = io.TextIOWrapper(stream, encoding=encoding(stream.read(4096)), errors="replace")
        self._text.seek(0)

    def __iter__(self) -> Iterator[str]:
        while line := self.next():
            yield line

    def close(self) -> None:
        """Let go of the stream, which stays open."""
        self._text.detach()

    def next(self) -> str:
        """The next line, or an empty string at the end. Of one beyond all measure an empty line is left."""
        line = self._text.readline(_LONGEST)
        self.number += 1
        while len(line) == _LONGEST and not line.endswith("\n"):
            more = self._text.readline(_LONGEST)
            line = more if len(more) == _LONGEST else "\n"
        return line.lstrip("\ufeff")

    def row(self, line: str, cut: Callable[[str], bool]) -> list[str]:
        """The fields of the row that begins in `line`; a text in quotes may run over several lines.

        `cut` says whether a line begins something else, so that the row before it was never finished. Raises
        ProfileError, with file and line, for such a row and for what is no CSV.
        """
        first, count = self.number, line.count('"')
        parts = [line]
        while count % 2:
            more = self.next()
            if not more or len(parts) > 1000 or cut(more):
                raise ProfileError(f"{self.file}:{first}: the row ends inside a quoted text: the file is cut there")
            parts.append(more)
            count += more.count('"')
        try:
            (fields,) = csv.reader(io.StringIO("".join(parts), newline=""), strict=True)
        except (csv.Error, ValueError) as error:
            raise ProfileError(f"{self.file}:{first}: not a row of a table ({error})") from None
        return fields
