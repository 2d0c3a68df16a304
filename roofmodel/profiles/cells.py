"""What stands in a cell of a profiler's CSV: numbers of an undeclared locale, scaled units, ways to say "nothing".

A number such as `1,234` is 1234 where the comma groups thousands and 1.234 where it is the decimal mark, and
no profiler says which. One file has one locale, so the file as a whole decides (`Numbers`): some cell in it
usually reads one way only. Where none does, the number is refused rather than guessed.
"""

from __future__ import annotations

import re

from roofmodel.errors import ProfileError, shorten

_MISSING = frozenset({"", "-", "nan", "-nan", "inf", "-inf", "none", "null", "no data", "<no data>"})
_INSTANCES = re.compile(r"([^(]*\d)\s*\(.+\)\Z", re.DOTALL)  # `158 (0: 100; 1: 58)`: the total, then its parts
_SPACED = re.compile(r"(?<=\d)[\u00a0\u202f\u2009 '’](?=\d{3})")  # thousands that some locales set apart by a space

# With P the decimal mark and T the thousands mark: what may be written, and what reads one way only. `1T234`
# and `1P234` are the same text in two locales, and are in the first pattern but not in the second.
_GRAMMAR = r"[+-]?(?:\d+|\d{1,3}(?:T\d{3})+)(?:P\d*)?(?:[eE][+-]?\d+)?"
_CERTAIN = (
    r"[+-]?(?:\d+P(?:\d{1,2}|\d{4,})?|0+P\d+|\d{4,}P\d+|\d{1,3}(?:T\d{3})+P\d+"
    r"|\d{1,3}(?:T\d{3}){2,}|\d+P\d+[eE][+-]?\d+)"
)
_GROUPED = r"[+-]?[1-9]\d{0,2}T\d{3}"


def _pattern(template: str, decimal: str) -> re.Pattern[str]:
    thousands = "," if decimal == "." else "."
    return re.compile(template.replace("P", re.escape(decimal)).replace("T", re.escape(thousands)))


_VALID = {mark: _pattern(_GRAMMAR, mark) for mark in ".,"}
_SURE = {mark: _pattern(_CERTAIN, mark) for mark in ".,"}
_WHOLE = {mark: _pattern(_GROUPED, mark) for mark in ".,"}


def bare(text: str) -> str:
    """A cell without blanks around it and without the instances that may follow its total."""
    text = text.strip()
    if text.endswith(")") and (match := _INSTANCES.match(text)):
        return match.group(1).strip()
    return text


def missing(text: str) -> bool:
    """Whether a cell says that there is no value: `n/a`, `(!) n/a`, `no data`, nothing at all."""
    lowered = text.strip().lower()
    return lowered in _MISSING or "n/a" in lowered


class Numbers:
    """The numbers of one file: `note` gathers what tells its locale, `value` reads once all of it was seen."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.decimal: str | None = None  # the decimal mark, once a cell has shown it
        self.shown = ("", 0)  # that cell and its line

    def note(self, text: str, line: int, whole: bool = False) -> None:
        """Learn from a cell; `whole`: it counts things, so that a mark before three digits groups thousands."""
        if self.decimal is not None or ("," not in text and "." not in text):
            return
        text = _SPACED.sub("", text)
        for mark in ".,":
            if _SURE[mark].fullmatch(text) or (whole and _WHOLE[mark].fullmatch(text)):
                self.decimal, self.shown = mark, (text, line)
                return

    def value(self, text: str, line: int, what: str) -> int | float:
        """The number in a cell; an int where it is written as one. Raises ProfileError with file and line."""
        where = f"{self.file}:{line}: {what}"
        text = _SPACED.sub("", text)
        marks = [mark for mark in ".," if _VALID[mark].fullmatch(text)]
        if not marks:
            raise ProfileError(f"{where}: {shorten(text)} is not a number")
        if len(marks) == 2 and ("," in text or "." in text):
            if self.decimal is None:
                grouped, plain = re.sub(r"[.,]", "", text), text.replace(",", ".")
                raise ProfileError(
                    f"{where}: {text!r} is {grouped} or {plain}, and nothing in the file tells which; "
                    "export it again with LC_ALL=C, or with --print-units base"
                )
            marks = [self.decimal]
        if len(marks) == 1 and marks[0] != self.decimal and self.decimal is not None:
            raise ProfileError(
                f"{where}: {text!r} and {self.shown[0]!r} (line {self.shown[1]}) are of different locales; "
                "export the file again with LC_ALL=C"
            )
        plain = text.replace("," if marks[0] == "." else ".", "").replace(",", ".")
        number = float(plain) if re.search(r"[.eE]", plain) else _int(plain)
        if number - number != 0:  # 1e999 is infinite
            raise ProfileError(f"{where}: {shorten(text)} is no finite number")
        return number


def _int(digits: str) -> int | float:
    return int(digits) if len(digits) < 40 else float(digits)


_PREFIX = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_TIME = {
    **dict.fromkeys(("ns", "nsec", "nsecond"), 1e-9),
    **dict.fromkeys(("us", "µs", "μs", "usec", "usecond"), 1e-6),
    **dict.fromkeys(("ms", "msec", "msecond"), 1e-3),
    **dict.fromkeys(("s", "sec", "second"), 1),
}
_COUNTED = frozenset(("1", "inst", "instruction", "cycle", "sector", "request", "wavefront", "event", "op", "flop"))
_COUNTED |= {"warp", "thread", "block", "register"}


def unit(text: str) -> tuple[int | float, str] | None:
    """`Mbyte` -> (10^6, 'byte'), `cycle/nsecond` -> (10^9, '/s'), `inst/cycle` -> (1, ''), `%` -> (0.01, '%').

    The factor to base units and the dimension: 'byte', 's', '/s', 'byte/s', '%' or '' (a count, or a count per
    cycle). None for what is no unit known here. Byte prefixes are decimal, as Nsight Compute's are.
    """
    text = text.strip()
    above, _, below = text.partition("/")
    top = _single(above)
    if top is None or not below:
        return top if "/" not in text else None
    bottom = _single(below)
    if bottom is None:
        return None
    if bottom[1] == "s":
        # 1/1e-9 is not exactly 10^9 in floating point
        return round(top[0] / bottom[0]) if top[0] / bottom[0] >= 1 else top[0] / bottom[0], f"{top[1]}/s"
    return (top[0] / bottom[0] if bottom[0] != 1 else top[0]), top[1]


def _single(name: str) -> tuple[int | float, str] | None:
    if name == "%":
        return 0.01, "%"
    if name == "" or name in _COUNTED or name.rstrip("s") in _COUNTED:
        return 1, ""
    if name in _TIME or name.removesuffix("s") in _TIME:
        return _TIME.get(name) or _TIME[name.removesuffix("s")], "s"
    for word, dimension in (("bytes", "byte"), ("byte", "byte"), ("B", "byte"), ("hz", "/s"), ("Hz", "/s")):
        if name.endswith(word):
            prefix = name[: -len(word)]
            factor = _PREFIX.get(prefix) or (_BINARY.get(prefix) if dimension == "byte" else None)
            return (factor, dimension) if factor else None
    if name[0] in _PREFIX and name[1:] in _COUNTED:
        return _PREFIX[name[0]], ""
    return None
