"""Read a JSON document of any size one value after another, in the memory of its largest value.

Python's own parser reads each value. It takes what profilers write and JSON forbids: control characters in strings, and
half of a surrogate pair. Older PyTorch on Windows does not escape the backslashes of paths (`C:\\new\\Users`): from the
first escape that JSON does not have, all backslashes are read so, except those before a quote or a backslash.

This is our own because ijson, the usual library, stops at such text and takes 1.3 times as long.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, BinaryIO

BLOCK = 1 << 20  # bytes that are read at once
MAX_VALUE = 1 << 26  # characters of one value, such as an event
_NEAR_END = 16  # characters in which a value that a block cuts fails, if it is no string
_EXPONENT = 3  # characters that a block may cut off after the digits of a number: `e+` or `.`
_ESCAPE = re.compile(r'\\(?:["\\/]|u[0-9a-fA-F]{4})?')  # in a file whose backslashes are not escaped
_CUT_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?)\Z")
_BLANKS = re.compile(r"[ \t\n\r]*").match
_COMMA = re.compile(r"[ \t\n\r]*,[ \t\n\r]*(?=[^ \t\n\r])").match


class JSONDamage(ValueError):
    """Text that is not JSON, with its position; `truncated`: it is, up to its end."""

    def __init__(self, message: str, truncated: bool) -> None:
        super().__init__(message)
        self.truncated = truncated


class InvalidNumber(ValueError):
    """A number that Python refuses (of more than 4300 digits, or 1e99999999999999999999), or too deep nesting."""


class JSONText:
    """The text of a document. Numbers with a point or an exponent become Decimals."""

    def __init__(self, file: BinaryIO, encoding_of: Callable[[bytes], str]) -> None:
        block = file.read(BLOCK)
        self._decoder = codecs.getincrementaldecoder(encoding_of(block))("replace")
        self._file, self._ended = file, not block
        self._text, self._place = self._decoder.decode(block, self._ended), 0
        self._scan = json.JSONDecoder(parse_float=Decimal, strict=False).raw_decode
        self._single_backslashes, self._held = False, ""  # an escape that the last block cuts
        self._characters = self._lines = 0  # before the text
        self._line_start = 0  # character at which the line begins

    def peek(self) -> str:
        """The next character that is no blank; empty at the end."""
        while True:
            self._place = _BLANKS(self._text, self._place).end()  # type: ignore[union-attr]
            if self._place < len(self._text):
                return self._text[self._place]
            if not self._more():
                return ""

    def take(self, expected: str) -> str:
        """The next character that is no blank. Raises JSONDamage if it is not one of the expected ones."""
        character = self.peek()
        if not character or character not in expected:
            raise self._damage(f"expected {' or '.join(expected) or 'the end'}", self._place)
        self._place += 1
        return character

    def value(self) -> Any:
        """The next value, whose first character `peek` has found. Raises JSONDamage and InvalidNumber."""
        while True:
            try:
                element, end = self._scan(self._text, self._place)
                if end < len(self._text) - _EXPONENT or self._ended:
                    self._place = end
                    return element
            except json.JSONDecodeError as error:
                near_end = not self._ended and error.pos >= len(self._text) - _NEAR_END
                if error.msg.startswith("Invalid \\") and not near_end and not self._single_backslashes:
                    self._single_backslashes = True
                    self._text = self._text[: self._place] + self._escaped(self._text[self._place :])
                    continue
                self._check_cut(error.msg, error.pos)
            except (ValueError, ArithmeticError, RecursionError):
                raise InvalidNumber("invalid numbers or too deep nesting") from None
            self._more()

    def items(self) -> Iterator[Any]:
        """The values of the list that begins here."""
        self.take("[")
        if self.peek() == "]":
            self._place += 1
            return
        while True:
            yield self.value()
            if following := _COMMA(self._text, self._place):
                self._place = following.end()
            elif self.take(",]") == "]":
                return
            else:
                self.peek()

    def _check_cut(self, message: str, place: int) -> None:
        """Raises JSONDamage unless more text may complete the value."""
        cut = "Unterminated" in message or place >= len(self._text) - _NEAR_END
        if self._ended or not cut:
            raise self._damage(message, place)

    def _more(self) -> bool:
        """Read on; False at the end."""
        passed, rest = self._text[: self._place], len(self._text) - self._place
        if rest > MAX_VALUE:
            raise self._damage(f"a value of more than {MAX_VALUE >> 20} MiB", self._place)
        if breaks := passed.count("\n"):
            self._lines += breaks
            self._line_start = self._characters + passed.rindex("\n") + 1
        self._characters += len(passed)
        blocks = [self._file.read(BLOCK) for _ in range(1 + rest // BLOCK)]
        self._ended = not blocks[0]
        text = "".join(self._decoder.decode(block) for block in blocks)
        if self._ended:
            text += self._decoder.decode(b"", True)
        if self._single_backslashes:
            text = self._escaped(text)
        self._text, self._place = self._text[self._place :] + text, 0
        return not self._ended

    def _escaped(self, text: str) -> str:
        """The text with two backslashes for each single one."""
        text = self._held + text
        cut = None if self._ended else _CUT_ESCAPE.search(text)
        self._held = cut[1] if cut else ""
        return _ESCAPE.sub(lambda escape: escape[0] if len(escape[0]) > 1 else r"\\", text.removesuffix(self._held))

    def _damage(self, message: str, place: int) -> JSONDamage:
        truncated = self._ended and ("Unterminated" in message or place >= len(self._text.rstrip()) - 1)
        before = self._text[:place]
        line_start = self._characters + before.rindex("\n") + 1 if "\n" in before else self._line_start
        character = self._characters + place
        where = f"line {self._lines + before.count(chr(10)) + 1}, column {character - line_start + 1}"
        return JSONDamage(f"{where}, character {character}: {message}", truncated)
