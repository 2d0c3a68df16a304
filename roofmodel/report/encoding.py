"""Text encodings: JSON and CSV, ASCII in place of characters that a terminal lacks, escapes for Markdown."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from roofmodel.files.text_files import printable
from roofmodel.numbers.algebra import plain, whole


def as_json(document: Any) -> str:
    """A document as JSON, numbers unrounded, a Fraction as an int or a float.

    Raises ValueError for NaN and infinity, which JSON cannot express.
    """
    return json.dumps(document, indent=1, allow_nan=False, default=_without_fraction)


def _without_fraction(value: Any) -> Any:
    if isinstance(value, Fraction):
        return plain(whole(value))
    raise TypeError(f"{value!r} is not a number, a text, a list or a record")


def as_csv(columns: Sequence[str], records: Iterable[Mapping[str, Any]]) -> str:
    """A header, and a line per record; an unknown value is an empty field. Texts are those of `csv_cell`."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: csv_cell(value) for key, value in record.items()} for record in records)
    return out.getvalue().rstrip("\n")


def csv_cell(value: Any) -> Any:
    """The value; a text in printable characters, with an apostrophe in front if a spreadsheet would run it.

    Spreadsheets take a cell for a formula if it begins with `=`, `+`, `-` or `@`, or with a tab or a line end before
    one of these (OWASP, "CSV injection"). Numbers are unchanged, also as text.
    """
    if not isinstance(value, str):
        return value
    value = printable(value)
    if not value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) or _is_number(value):
        return value
    return f"'{value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


ASCII_FALLBACK = "roofmodel.ascii_fallback"
"""The error handler for streams, `errors=ASCII_FALLBACK`: it replaces each character that the stream's encoding lacks
by one ASCII character, so that columns stay aligned."""
_PAIRS = (
    "×x ·- ÷/ −- ≥> ≤< ≈~ –- —- …~ µu μu ²2 ³3 ᵀT “\" ”\" ‘' ’' →> ←< ↑^ ↓v "
    "─- ╌- │| ┤| ├| ┴+ ┬+ └+ ┘+ ┌+ ┐+ ╱/ ●* ◆* ■# ▲^ ▼v █# ▉# ▊# ▋# ▌= ▍- ▎. ▏. ░."
)
_ASCII = {pair[0]: pair[1] for pair in _PAIRS.split()}


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_ASCII.get(character, "?") for character in missing), error.end


codecs.register_error(ASCII_FALLBACK, _replace)


def escape_markdown(text: str) -> str:
    """Text as one line with `&`, `<` and `[` escaped, so that Markdown reads no tag, entity, link or block in it.

    Entities and not backslashes: renderers of formulas take `\\[` for the begin of a formula.
    """
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace("[", "&#91;")
