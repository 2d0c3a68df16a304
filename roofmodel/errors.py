"""What a person reads when something is wrong.

    RoofError                something the user can mend: the command line prints it and exits with 2
    ├── ModelError           a model's name, its config file, or a value in it
    ├── DeviceError          a device's name, its YAML file, or a value in it
    ├── ProfileError         a profiler's file: not one, damaged, or ambiguous
    ├── WorkloadError        batch, lengths, phase, widths, or a combination that makes no sense
    ├── AnswerError          a file of answers to homework: not one, or of another sheet
    └── OutputError          a file that cannot be written

Every message says where, what (quoting the offending token), and what would work.
Anything that is not a RoofError is a bug, and the command line says so (exit 1).
"""

from __future__ import annotations

from collections.abc import Iterable


class RoofError(Exception):
    """Something the user can mend."""


class ModelError(RoofError):
    """A model's name, its config file, or a value in it."""


class DeviceError(RoofError):
    """A device's name, its YAML file, or a value in it."""


class ProfileError(RoofError):
    """A profiler's file that is none, is damaged, or says something ambiguous."""


class WorkloadError(RoofError):
    """Batch, lengths, phase, widths, or a combination of them that makes no sense."""


class AnswerError(RoofError):
    """A file of answers to homework that is none, or that answers another sheet."""


class OutputError(RoofError):
    """A file that cannot be written."""


def suggest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean 'a' or 'b'?` for the nearest of the known words, or an empty string.

    Names that hold the word come first, those that begin with it leading, then the shortest; then names that look
    like it.
    """
    import difflib

    lowered = {name.lower(): name for name in known}
    start = word.lower()
    holding = [name for name in lowered if start and start in name] if cutoff < 0.7 else []
    holding.sort(key=lambda name: (not name.startswith(start), len(name)))
    alike = difflib.get_close_matches(word.lower(), lowered, n=3, cutoff=cutoff)
    close = list(dict.fromkeys([*holding, *alike]))[:3]
    return f"; did you mean {' or '.join(repr(lowered[c]) for c in close)}?" if close else ""


def choices(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean 'a'? known: a, b, c`: the nearest of the known words, and all of them."""
    names = list(known)
    return f"{suggest(word, names, cutoff) or ';'} known: {', '.join(names)}"


def shorten(value: object, limit: int = 60) -> str:
    """A value as it stands in a message: its repr, cut so that one absurd value fills no screen."""
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python will print
        text = "a number of thousands of digits"
    except RecursionError:
        text = "a value nested too deeply to print"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
