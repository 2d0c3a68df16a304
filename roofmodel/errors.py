"""Errors that the user can correct, and messages that name options without fixing how an option is written.

    RoofError                an error that the user can correct; the command line prints it and exits with 2
    ├── ModelError           a model's name, its config file, or a value in that file
    ├── DeviceError          a device's name, its YAML file, or a value in that file
    ├── EngineError          an engine's name, its YAML file, or a value in that file
    ├── ProfileError         a profiler file that is not readable, is damaged, or is ambiguous
    ├── WorkloadError        batch, lengths, phase, formats, or an invalid combination of them
    ├── AnswerError          a file of homework answers that is not readable, or answers another sheet
    └── OutputError          a file that cannot be written

Every message states the place, the problem (with the offending text in quotes), and a value that works.
Any other exception is a bug, and the command line reports it as one (exit 1).

The library names an option as an `Option`. Python writes it `ep=8`, the command line `--ep 8`. It names a command as a
`Command`: Python writes `roofmodel.list_models()`, the command line `roof models list`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Option(NamedTuple):
    """An option of a function or command, with its value if the message states one.

    A tuple is several values to choose from; an upper-case text is a placeholder, as in `Option("context", "N")`.
    """

    name: str
    value: object = None

    def __str__(self) -> str:
        return _spelling.get()(self)


class Command(NamedTuple):
    """A command of `roof` that a message recommends, and the Python call that does the same."""

    line: str
    call: str

    def __str__(self) -> str:
        return _spelling.get()(self)


def python_spelling(option: Option | Command) -> str:
    """`ep=8`, `phase="decode"`, or `ep` without a value. A format is the method that returns it: `.to_dict()`.

    Examples:
        >>> print(Option("dtype", "fp16"), Option("context", "N"), Option("micro_batch"))
        dtype="fp16" context=N micro_batch
    """
    if isinstance(option, Command):
        return option.call
    name, value = option
    if name == "format":
        return {"csv": ".to_frame()", "json": ".to_dict()"}.get(str(value), name)
    if value is None:
        return name
    if isinstance(value, tuple):
        return f"{name}={', '.join(map(as_text, value))}"
    quoted = isinstance(value, str) and not value.isupper()
    return f"{name}={json.dumps(value, ensure_ascii=False) if quoted else as_text(value)}"


_spelling: ContextVar[Callable[[Option | Command], str]] = ContextVar("spelling", default=python_spelling)


@contextmanager
def option_spelling(spelling: Callable[[Option | Command], str]) -> Iterator[None]:
    """Within this context, texts are written with `spelling(part)` in place of each Option and Command."""
    token = _spelling.set(spelling)
    try:
        yield
    finally:
        _spelling.reset(token)


class Message:
    """Text with Options in it; `str(message)` writes them the way of the current interface.

    Examples:
        >>> message = Message(Option("ep", 8), " needs 8 GPUs; use ", Option("tp", 8))
        >>> str(message)
        'ep=8 needs 8 GPUs; use tp=8'
    """

    __slots__ = ("parts",)

    parts: tuple[str | Option | Command, ...]

    def __init__(self, *parts: Text) -> None:
        flat: list[str | Option | Command] = []
        for part in parts:
            flat += part.parts if isinstance(part, Message) else (part,)
        self.parts = tuple(flat)

    @property
    def option(self) -> str | None:
        """The name of the first option in it, None without any."""
        return next((part.name for part in self.parts if isinstance(part, Option)), None)

    def __str__(self) -> str:
        return "".join(map(str, self.parts))

    def __repr__(self) -> str:
        return f"Message({', '.join(map(repr, self.parts))})"

    def __add__(self, other: Text) -> Message:
        return Message(self, other)

    def __radd__(self, other: Text) -> Message:
        return Message(other, self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)


class WarningNote(Message):
    """A note that warns. Its text begins with `warning: `, its parts do not.

    Examples:
        >>> print(WarningNote("16 GPUs exceed one node; see ", Option("tp")))
        warning: 16 GPUs exceed one node; see tp
    """

    __slots__ = ()

    def __str__(self) -> str:
        return f"warning: {super().__str__()}"


class AnswerNote(Message):
    """A note on what would give other numbers: another value of an option, or measurements that do not exist.

    Other notes state what a number means, or where an input is from.
    """

    __slots__ = ()


LIST_MODELS = Command("'roof models list'", "roofmodel.list_models()")
LIST_FAMILIES = Command("'roof models families'", "roofmodel.list_families()")
LIST_HARDWARE = Command("'roof hw list'", "roofmodel.list_hardware()")
COMPARE = Command("'roof compare'", "roofmodel.compare()")
NCU_COMMAND = Command("'roof ncu-command'", "roofmodel.ncu_command()")
SWEEP = Command("'roof sweep'", "roofmodel.sweep()")
VALIDATE = Command("'roof validate'", "roofmodel.validate()")
"""Commands that several messages recommend."""


Text = str | Option | Command | Message
"""What messages are made of."""


def joined(separator: str, texts: Iterable[Text]) -> Message:
    """Texts with a separator between them, as `str.join` does it.

    Examples:
        >>> print(joined(" or ", [Option("tp", 2), Option("tp", 4)]))
        tp=2 or tp=4
    """
    parts = [part for text in texts for part in (separator, text)]
    return Message(*parts[1:])


def ignored(option: str, why: Text) -> Message:
    """A note on an option that does not apply."""
    return Message(Option(option), " is ignored: ", why)


def warnings_in(notes: Iterable[Text]) -> list[Message]:
    """The notes that warn, as messages without `warning: `."""
    return [Message(*note.parts) for note in notes if isinstance(note, WarningNote)]


class RoofError(Exception):
    """An error that the user can correct. Its arguments are the parts of its message, as for `Message`."""

    def __init__(self, *parts: Text) -> None:
        super().__init__(*parts)

    @property
    def message(self) -> Message:
        """The message, with its options as data."""
        return Message(*self.args)

    @property
    def option(self) -> str | None:
        """The name of the option that is wrong (the first one that the message names); None if it names no option."""
        return self.message.option

    def __str__(self) -> str:
        return cut_words(str(self.message))


class ModelError(RoofError):
    """A model's name, its config file, or a value in that file."""


class DeviceError(RoofError):
    """A device's name, its YAML file, or a value in that file."""


class EngineError(RoofError):
    """An engine's name, its YAML file, an option of it, or a value in that file."""


class ProfileError(RoofError):
    """A profiler file that is not readable, is damaged, or is ambiguous."""


class WorkloadError(RoofError):
    """Batch, lengths, phase, formats, or an invalid combination of them."""


class AnswerError(RoofError):
    """A file of homework answers that is not readable, or answers another sheet."""


class OutputError(RoofError):
    """A file that cannot be written."""


def suggest(word: str, known_words: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean 'a' or 'b'?` with at most three similar words, or an empty string.

    Names that contain the word come first (names that begin with it, then shorter names), then similarly spelled ones.
    A word of one letter is too short for names that merely contain it.
    """
    import difflib

    lowered = {name.lower(): name for name in known_words}
    start = word.lower()
    contains = str.__contains__ if len(start) > 1 else str.startswith
    containing = [name for name in lowered if start and contains(name, start)] if cutoff < 0.7 else []
    containing.sort(key=lambda name: (not name.startswith(start), len(name)))
    similar = difflib.get_close_matches(word.lower(), lowered, n=3, cutoff=cutoff)
    close = list(dict.fromkeys([*containing, *similar]))[:3]
    return f"; did you mean {' or '.join(repr(lowered[c]) for c in close)}?" if close else ""


def choices(word: str, known_words: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean 'a'? known: a, b, c`: similar words, then all known ones."""
    names = list(known_words)
    return f"{suggest(word, names, cutoff) or ';'} known: {', '.join(names)}"


TECHNIQUES = {
    "states": "a format of the optimizer's state", "lora": "LoRA", "lora_targets": "LoRA", "qlora": "QLoRA",
    "offload": "offloading to the host",
}  # fmt: skip
"""Techniques that some command has no option for, by the names that users try: similar names would mislead."""


def not_modeled(option: str) -> str | None:
    """`context parallelism is not modeled here` for the name of an option that is one of TECHNIQUES, or which option to
    give in its place; None for other names."""
    name = option.removeprefix("--").replace("-", "_")
    if name in ("prefix_cache", "prefix_caching", "enable_prefix_caching"):
        return "tokens of a prompt that are already cached are its context (--context)"
    technique = TECHNIQUES.get(name)
    return technique and f"{technique} is not modeled here"


def as_text(value: object) -> str:
    """`str(value)`, also of an int of more digits than Python prints."""
    try:
        return str(value)
    except ValueError:
        return "a number of thousands of digits"


def shorten(value: object, limit: int = 60) -> str:
    """The repr of a value, cut to `limit` characters so that one long value does not fill the screen."""
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python prints
        text = as_text(value) if isinstance(value, int) else "a value with a number of thousands of digits"
    except RecursionError:
        text = "a value nested too deeply to print"
    return cut(text, limit)


def cut(text: str, limit: int) -> str:
    """The text, cut to `limit` characters; the last one is then an ellipsis.

    Examples:
        >>> cut("volta_sgemm", 6)
        'volta…'
    """
    return text if len(text) <= limit else f"{text[: max(limit - 1, 0)]}…"


def kind_of(value: object) -> str:
    """`a list`, `an int`; `None` without its type."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


JSON_NUMBER_TOO_LONG = "a number has thousands of digits"
"""What is wrong with JSON that Python's reader refuses with another ValueError than JSONDecodeError."""
LONGEST_WORD = 400
"""Characters of a word in an error message; most paths are shorter."""


def cut_words(text: str) -> str:
    """The text with its longest words cut, such as numbers of thousands of digits.

    Examples:
        >>> cut_words("--batch: " + 5000 * "9")
        '--batch: 99999999999999999999999999999999999999999999999999999999999…'
    """
    return " ".join(word if len(word) <= LONGEST_WORD else cut(word, 60) for word in text.split(" "))
