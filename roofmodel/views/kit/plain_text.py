"""Text where not every sign may stand: for the characters that a terminal's encoding lacks others, one for one, so that
columns and pictures hold; for those that mean something in Markdown, what shows them."""

from __future__ import annotations

import codecs

ERRORS = "roofmodel.plain"  # how a stream is opened that replaces them: errors=ERRORS
_PAIRS = (
    "×x ·- ÷/ −- ≥> ≤< ≈~ –- —- …~ µu μu ²2 ³3 ᵀT “\" ”\" ‘' ’' →> ←< ↑^ ↓v "
    "─- ╌- │| ┤| ├| ┴+ ┬+ └+ ┘+ ┌+ ┐+ ╱/ ●* ◆* ■# ▲^ ▼v █# ▉# ▊# ▋# ▌= ▍- ▎. ▏. ░."
)
_PLAIN = {pair[0]: pair[1] for pair in _PAIRS.split()}


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_PLAIN.get(sign, "?") for sign in lacking), error.end


codecs.register_error(ERRORS, _replace)


def in_markdown(text: str) -> str:
    """Text that Markdown shows as it stands, be it the name of a folder: nothing in it is a tag, or a letter's code."""
    return text.replace("&", "&amp;").replace("<", "&lt;")
