"""What comments in our own source say of the constants beside them, for who is shown these constants."""

from __future__ import annotations

import inspect
import io
import tokenize
from functools import cache
from types import ModuleType


@cache
def remarks(module: ModuleType, within: str = "") -> dict[str, str]:
    """What a module's source says beside its names: the comment behind a line, or above it; of one class, if asked."""
    source = inspect.getsource(getattr(module, within) if within else module)
    found: dict[str, str] = {}
    above: list[str] = []
    name = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        first = not token.line[: token.start[1]].strip()
        if token.type == tokenize.COMMENT:
            comment = token.string.lstrip("# ")
            if first:
                above.append(comment)
            elif name:
                found[name] = comment
        elif first and token.type in (tokenize.NAME, tokenize.STRING):
            name = token.string.strip("\"'")
            if above:
                found[name] = " ".join(above)
            above = []
    return found
