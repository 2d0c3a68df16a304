"""Text encodings: JSON and CSV, ASCII in place of characters that a terminal lacks, escapes for Markdown."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from typing import Any


def as_json(document: Any) -> str:
    """A document as JSON, numbers unrounded. Raises ValueError for NaN and infinity, which JSON cannot express."""
    return json.dumps(document, indent=1, allow_nan=False)


def as_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """One line per record, with the keys of the first record as the header; an unknown value is an empty field.

    Without records the text is empty.
    """
    import csv
    import io

    if not records:
        return ""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue().rstrip("\n")


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
    """Text with `&` and `<` escaped, so that Markdown shows it literally and reads no tag or entity in it."""
    return text.replace("&", "&amp;").replace("<", "&lt;")
