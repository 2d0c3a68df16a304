"""What the readers of printed tables share: bytes to lines, a line to its cells, a cell to a number.

Numbers are read exactly (`Decimal`), and only where they can mean one thing: `1,234` is a thousand in
one locale and one and a quarter in another, so it is refused, while `1,234,567` and `1,234.5` are read.
"""

from __future__ import annotations

import codecs
import re
from decimal import Decimal
from typing import BinaryIO

from roofmodel.errors import ProfileError, shorten

SECONDS = {
    "ns": Decimal("1e-9"),
    "nsec": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "usec": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "msec": Decimal("1e-3"),
    "s": Decimal(1),
    "sec": Decimal(1),
}

_PLAIN = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,2})?", re.ASCII)
_GROUPED = re.compile(r"[+-]?\d{1,3}((,\d{3}){2,10}(\.\d+)?|,\d{3}\.\d+)", re.ASCII)
_ABSENT = {"", "-", "n/a", "nan", "none", "null"}


def decode(content: bytes) -> str:
    """The text of a file or of its beginning: UTF-8 or UTF-16 (a PowerShell redirect), BOM or not."""
    if content.startswith(codecs.BOM_UTF8):
        return content[3:].decode("utf-8", errors="replace")
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", errors="replace")
    if b"\0" in content[:2] and b"\0\0" not in content[:64]:
        return content.decode("utf-16-be" if content[:1] == b"\0" else "utf-16-le", errors="replace")
    return content.decode("utf-8", errors="replace")


def read_lines(file: BinaryIO, name: str) -> list[str]:
    """All lines of a text file; ProfileError for a binary one."""
    text = decode(file.read())
    if "\0" in text:
        raise ProfileError(f"{name}: is binary, not the table its beginning promised; export it as CSV again")
    return text.replace("\r\n", "\n").split("\n")


def cells(line: str) -> list[str] | None:
    """The cells of one CSV line, or None where its quotes do not close: cut short, or no CSV at all."""
    import csv

    try:
        return [cell.strip() for cell in next(csv.reader([line], strict=True), [])]
    except csv.Error:
        return None


def number(text: str) -> Decimal | None:
    """A cell as an exact number; None for an empty one, `-` or `n/a`; ValueError for anything else."""
    text = text.strip()
    if text.lower() in _ABSENT:
        return None
    if _PLAIN.fullmatch(text):
        return Decimal(text)
    if _GROUPED.fullmatch(text):
        return Decimal(text.replace(",", ""))
    hint = "; export with LC_ALL=C, which writes 1234.5" if re.fullmatch(r"[\d.,]+", text) else ""
    raise ValueError(f"{shorten(text)} is not a number that can be read in one way only{hint}")


def whole(text: str) -> int | None:
    """A cell as an int; None for an empty one; ValueError for a fraction, a negative or no number."""
    value = number(text)
    if value is None:
        return None
    if value != int(value) or value < 0:
        raise ValueError(f"{shorten(text)} is not a count")
    return int(value)


def triple(text: str) -> tuple[int, int, int] | None:
    """Three sizes in one cell, `(32768 1 1)` or `148    1    1`, as (x, y, z)."""
    sizes = re.findall(r"\d{1,10}", text)
    return (int(sizes[0]), int(sizes[1]), int(sizes[2])) if len(sizes) == 3 else None


def ordinal(device: str) -> str | None:
    """The ordinal that ends a device's name, `Tesla V100 (0)` -> `0`; None where there is none."""
    match = re.search(r"\((\d+)\)\s*$", device)
    return match[1] if match else None


def without_ordinal(device: str) -> str:
    """`Tesla V100 (0)` -> `Tesla V100`."""
    return re.sub(r"\s*\(\d+\)\s*$", "", device).strip()
