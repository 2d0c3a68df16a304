"""Reading of answers as people write them: `t = 2120 us`, `782 TFLOPS`, `1/12 = 0.0833`, `memory bound (DRAM)`.

An answer without a unit is in the unit of its question; one with another unit of the same kind is converted. What has
no clear meaning is left to the lecturer.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from roofmodel.homework import formulas
from roofmodel.homework.problem import BASES, CEILINGS, SMALL_PREFIXES, AnswerUnit, unit_of

MAX_LENGTH = 200
MAX_POWER = 30


class ReadAnswer(NamedTuple):
    """What a text may mean: numbers in base units, or names of ceilings.

    A doubtful meaning is not what the text says, but what its author may have meant, such as 1020 by `1.020`.
    """

    meanings: tuple[Fraction | str, ...] = ()  # the likely one first
    doubtful: tuple[Fraction | str, ...] = ()
    certain: bool = False  # whether the answer is wrong if no meaning is right


UNREAD = ReadAnswer()


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))


# --- Notation ---------------------------------------------------------------------------------------

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_LATEX = (
    (r"\\(?:d|t)?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"(\1)/(\2)"),
    (r"\\(?:text|mathrm|mathbf|textbf|emph|boxed|operatorname)\s*\{([^{}]*)\}", r"\1"),
    (r"\\(?:times|cdot)(?![a-z])", "*"),
    (r"\\(?:approx|simeq|sim)(?![a-z])", "≈"),
    (r"\\geq?(?:slant)?(?![a-z])", "≥"),
    (r"\\leq?(?:slant)?(?![a-z])", "≤"),
    (r"\\mu(?![a-z])\s*", "µ"),
    (r"\\[,;:! ]|\\q?quad(?![a-z])", " "),
    (r"\\%", "%"),
    (r"\\[()\[\]]", " "),
    (r"\^\s*\{([^{}]*)\}", r"^\1"),
    (r"\$", " "),
)
_MARKUP = (
    (r"<sup>(.*?)</sup>", r"^\1"),
    (r"</?[a-z]+ ?/?>", " "),
    (r"~~.*?~~", " "),  # struck out
    (r"(?<![\w)*])(\*{1,3}|_{1,3}|`+)(?=\S)(.+?)(?<=\S)\1(?![\w(*])", r"\2"),
    (r"[\"“”„«»`]", ""),
)
_EDGES = " \t'’‘*_!?;"


def plain(text: str) -> str:
    """A text without emphasis, quotes and LaTeX, with `^` before exponents and with ordinary characters."""
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+", lambda found: "^" + found[0].translate(_SUPERSCRIPTS), text)
    text = unicodedata.normalize("NFKC", html.unescape(text)).replace("⁄", "/").replace("−", "-")
    for pattern, replacement in (*_LATEX, *_MARKUP):
        text = re.sub(pattern, replacement, text)
    text = " ".join(text.split()).strip(_EDGES)
    text = re.sub(r"\.{2,}$|(?<=\D)\.$|,$", "", text)
    unwrapped = re.fullmatch(r"[(<{\[]([^()<>{}\[\]]*)[)>}\]]", text)
    return unwrapped[1].strip(_EDGES) if unwrapped else text


# --- Ceilings ---------------------------------------------------------------------------------------

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "memory": ("memory", "memory bandwidth", "gpu memory", "mem", "mem bw", "bandwidth", "bw", "dram", "hbm"),
    "compute": (
        "compute", "computation", "flop", "flops", "flop/s", "peak flops", "arithmetic", "math", "alu", "alus",
        "tensor cores", "cuda cores",
    ),
}  # fmt: skip
"""What people call the ceilings, besides the synonyms that a question lists."""
BOTH = " and ".join(CEILINGS)
_FILLERS = _words(
    "the a it its this that is are by to of on so we be i think due therefore thus clearly bound bounded limit limited "
    "limits limiting limitation limiter ceiling roof roofline kernel side region regime peak rate performance "
    "throughput access accesses traffic transfer transfers dominated dominates"
)
"""Words that change nothing in the name of a ceiling."""
_CLAUSE_ENDS = re.compile(r"[,;.(){}\[\]→]|->|=>|\b(?:because|since|as|for|when|while|where|if)\b|(?:^|\s)-+\s|\d")
_NOT = re.compile(r"\b(?:not|no|isn't|isnt|rather than|instead of|more than|never|neither|non)\b")


def ceiling(text: str, synonyms: Mapping[str, Sequence[str]] | None = None) -> ReadAnswer:
    """The ceiling that a text names first: `compute`, `memory`, or BOTH, which is never right."""
    names = {
        word.lower(): name for name in CEILINGS for word in (*SYNONYMS[name], *(synonyms or {}).get(name, ()))
    }  # fmt: skip
    longest_first = sorted(names, key=len, reverse=True)
    words = "|".join(re.escape(word).replace(r"\ ", r"[\s-]+") for word in longest_first)
    name = re.compile(rf"(?<![^\W_])(?:{words})(?=bound|limited|[\W_]|$)")

    def named(part: str) -> set[str]:
        return {names[" ".join(re.split(r"[\s-]+", found))] for found in name.findall(part)}

    text = plain(text[:MAX_LENGTH]).lower().replace("’", "'")
    label, separator, rest = re.split(r"([:=])", text, maxsplit=1) if re.search("[:=]", text) else (text, "", "")
    text = rest if separator and not name.search(label) else text
    ends = (end.start() for end in _CLAUSE_ENDS.finditer(text))
    clause = next((text[:end] for end in ends if name.search(text[:end])), text)
    negation = _NOT.search(clause)
    affirmed = clause[: negation.start()] if negation else clause
    found = named(affirmed)
    unknown = set(re.findall(r"[a-z0-9']+", name.sub(" ", affirmed))) - _FILLERS
    if negation and not found:
        others = set(CEILINGS) - named(clause[negation.end() :])
        return ReadAnswer(doubtful=tuple(others), certain=True) if len(others) == 1 and not unknown else UNREAD
    if unknown <= {"or", "and", "both", "either"} and (len(found) == 2 or "both" in unknown):
        return ReadAnswer((BOTH,), certain=True)
    return ReadAnswer(tuple(found), certain=True) if len(found) == 1 and not unknown else UNREAD


# --- Numbers ----------------------------------------------------------------------------------------

_DIGITS = r"[0-9](?:[0-9.,'’_]|\ (?=[0-9]{3}(?![0-9])))*|[.,][0-9]+"
_NUMBER = re.compile(
    rf"""
    (?<![\w.,]) (?P<sign> [-+]? )
    (?P<digits> {_DIGITS} )
    (?: \s? [eE] (?P<e> [-+]?[0-9]+ ) | \s* \* \s* 10 \s* (?: \^ | \*\* ) \s* \(? (?P<power> [-+]?[0-9]+ ) \)? )?
    """,
    re.VERBOSE,
)
_PLAIN_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_ARITHMETIC = re.compile(
    rf"(?<![\w.,])[-+(\s]*{_PLAIN_NUMBER}(?:[\s()]*(?:\*\*|[*/^+-])[\s(+-]*{_PLAIN_NUMBER})+[\s)]*"
)
_QUOTIENT_OF_UNITS = re.compile(rf"([^/]*)/\s*\(?\s*({_PLAIN_NUMBER})\s*([^()]+?)\s*\)?")
_RELATIONS = re.compile(r"->|=>|>=|<=|=+|[≈≃≅~→⇒≥≤<>]|:(?![0-9])")
_STRICT = frozenset(("<", ">", "<=", "≤"))
_LEADING_WORDS = _words(
    "about approx approximately roughly around circa ca is it takes need needs equals answer ans result value the a "
    "total exactly only just at least min minimum lower bound of we get so therefore i"
)
_TRAILING_WORDS = _FILLERS | {
    "memory", "compute", "dram", "hbm", "approx", "approximately", "about", "roughly", "or", "less", "more", "max",
    "min", "minimum", "maximum", "total", "each", "at", "least", "exactly", "in", "rounded", "up",
}  # fmt: skip
_NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip
_MAGNITUDES = {"k": 3, "thousand": 3, "m": 6, "million": 6, "mio": 6, "billion": 9, "bn": 9, "trillion": 12}
_LETTERS = frozenset(("k", "m"))  # magnitudes of counted things only


def number(text: str, unit: str) -> ReadAnswer:
    """What a text may mean in base units: the last value of an equation, without the words after it.

    `2,449` has two meanings: a comma separates thousands in English, decimals in most of Europe.
    """
    if len(text) > MAX_LENGTH:
        return UNREAD
    text = re.sub(r"(?<=[0-9)])\s*[x×·⋅•∙]\s*(?=[0-9(])", "*", plain(text))
    asked = unit_of(unit)
    readings: list[ReadAnswer] = []
    for relation, part in _sides(text):
        if re.search("[0-9]", part) or not readings:
            reading = _side(part, asked)
            readings.append(reading._replace(certain=reading.certain and relation not in _STRICT))
    last = readings[-1]
    others = [each for reading in readings[:-1] for each in (*reading.meanings, *reading.doubtful)]
    return last._replace(doubtful=(*last.doubtful, *others))


def _sides(text: str) -> Iterator[tuple[str, str]]:
    """The sides of equations outside brackets, each with the relation before it."""
    start, relation = 0, ""
    for found in _RELATIONS.finditer(text):
        before = text[: found.start()]
        if before.count("(") == before.count(")"):
            yield relation, text[start : found.start()].strip()
            start, relation = found.end(), found[0]
    yield relation, text[start:].strip()


def _side(text: str, unit: AnswerUnit) -> ReadAnswer:
    """One value with the words around it."""
    found = _NUMBER.search(text)
    if found is None:
        words = text.lower().split()
        counted = next((i for i, word in enumerate(words) if word in _NUMBER_WORDS), None)
        if counted is None:
            return UNREAD
        words[counted] = str(_NUMBER_WORDS.index(words[counted]))
        return _side(" ".join(words), unit)
    lead, values, doubtful, certain = text[: found.start()], [*_values(found)], [*_doubtful(found["digits"])], True
    arithmetic = _ARITHMETIC.search(text)
    if arithmetic and arithmetic.end() > found.end() + 1 and arithmetic.start() <= found.start():
        lead, rest = text[: arithmetic.start()], text[arithmetic.end() :]
        values, doubtful = [*_evaluated(arithmetic[0])], []
        certain = unit.base != "%" and not re.search(r"(?<!\*)\*(?!\*)|(?<![eE*/^(])[+-](?!$)", arithmetic[0].strip())
    else:
        rest = text[found.end() :]
    lead_words = re.findall(r"[^\W\d_]+", lead.lower())
    certain = certain and set(lead_words) <= _LEADING_WORDS and not re.search(r"[^\s\w.±]", lead)
    scaled = _after(rest, unit)
    if scaled is None:
        return ReadAnswer(doubtful=tuple(value * unit.factor for value in values))
    scale, inverted, comment_is_certain = scaled
    meanings = [scale / value if inverted else value * scale for value in values if value or not inverted]
    certain = certain and comment_is_certain and bool(meanings)
    return ReadAnswer(tuple(meanings), tuple(each * scale for each in doubtful), certain)


def _values(found: re.Match[str]) -> Iterator[Fraction]:
    power = int(found["e"] or found["power"] or 0)
    if abs(power) <= MAX_POWER:
        sign = -1 if found["sign"] == "-" else 1
        yield from (sign * each * Fraction(10) ** power for each in _numbers(found["digits"].rstrip(".,_'’")))


def _doubtful(digits: str) -> Iterator[Fraction]:
    """1020 for `1.020`, as some write it in Europe."""
    if digits.count(".") == 1 and _is_grouped(digits, "."):
        yield Fraction(digits.replace(".", ""))


def _evaluated(arithmetic: str) -> Iterator[Fraction]:
    try:
        yield Fraction(formulas.evaluate(arithmetic.replace("^", "**"), {}, {}))
    except (ValueError, OverflowError):
        return


def _numbers(digits: str) -> Iterator[Fraction]:
    """The values of digits with separators, the likely one first."""
    digits = re.sub(r"(?<=[0-9])[ '’_](?=[0-9])", "", digits)
    dots, commas = digits.count("."), digits.count(",")
    if dots and commas:  # the last one is the decimal separator
        decimal = "." if digits.rindex(".") > digits.rindex(",") else ","
        other = "," if decimal == "." else "."
        integer_part, _, rest = digits.partition(decimal)
        if digits.count(decimal) == 1 and _is_grouped(integer_part, other):
            yield Fraction(f"{integer_part.replace(other, '')}.{rest or 0}")
        return
    for separator, count in ((",", commas), (".", dots)):
        if count and (separator == "," or count > 1) and _is_grouped(digits, separator):
            yield Fraction(digits.replace(separator, ""))
    if dots + commas <= 1 and re.fullmatch(r"[0-9]+[.,]?[0-9]*|[.,][0-9]+", digits):
        integer_part, _, rest = digits.replace(",", ".").partition(".")
        yield Fraction(f"{integer_part or 0}.{rest or 0}")


def _is_grouped(digits: str, separator: str) -> bool:
    """Whether the separator stands before groups of three digits, as in `1,234,567`."""
    return re.fullmatch(rf"[1-9][0-9]{{0,2}}(?:{re.escape(separator)}[0-9]{{3}})+", digits) is not None


# --- What follows a number --------------------------------------------------------------------------


class _Scale(NamedTuple):
    """The size of a written unit in the base unit of the question."""

    factor: int | Fraction
    inverted: bool = False  # B/FLOP for FLOP/B
    certain: bool = True  # whether the words after the unit change nothing


def _after(rest: str, unit: AnswerUnit) -> _Scale | None:
    """The unit after a number, followed by words; None if it is not of the same kind."""
    rest = re.sub(r"\s*\bper\b\s*", "/", rest.rstrip(" _*").lstrip(" _*'’.…)]}>"))
    if re.match(r"\([0-9]+\)", rest) or re.match(r"[-+*/^]?\s*[0-9(]*[0-9]", rest):  # 0.08(3), 1/2/3
        return None
    magnitude = re.match(r"([A-Za-z]+)\b", rest)
    power = _MAGNITUDES.get(magnitude[1].lower()) if magnitude else None
    if magnitude and power and (len(magnitude[1]) > 1 or unit.base not in BASES):
        scaled = _after(rest[magnitude.end() :], unit)
        return scaled and scaled._replace(factor=scaled.factor * 10**power)
    if quotient := _QUOTIENT_OF_UNITS.fullmatch(rest):
        return _quotient_of_units(quotient[1], quotient[2], quotient[3], unit)
    for end in [found.start() for found in re.finditer(r"(?<=\w)(?!\w)|(?<=%)|$", rest)][::-1]:
        written, comment = rest[:end].strip(), rest[end:].strip()
        if written and (scale := _scale(written, unit)) is not None and not re.match(r"/(?!/)|[\^*·]", comment):
            return scale._replace(certain=_is_comment(comment))
    is_word = re.match(r"[^\W_]|%|/(?!/)", rest) and not re.match(r"(?:because|since|as|see|so|due|which|when)\b", rest)
    if not is_word or _words(rest) <= _TRAILING_WORDS:
        return _Scale(unit.factor, certain=_is_comment(rest))
    if unit.base in BASES or re.search("[0-9]", rest) or _is_other_unit(rest):
        return None
    return _Scale(unit.factor, certain=False)  # another word for what is counted


def _is_comment(text: str) -> bool:
    """Whether words after a value cannot state another one."""
    return not re.search(r"[0-9]|\b(?:or|not|to)\b", text)


def _is_other_unit(text: str) -> bool:
    """Whether a text begins with a unit of another kind than counted things."""
    word = re.split(r"[\s,;(]", text, maxsplit=1)[0]
    return any(_scale(word, AnswerUnit(base, 1)) is not None for base in BASES)


def _quotient_of_units(dividend: str, divisor: str, divisor_unit: str, unit: AnswerUnit) -> _Scale | None:
    """`FLOPs/24 bytes` after a number."""
    above, slash, below = unit.base.partition("/")
    for first, second, inverted in ((above, below, False), (below, above, unit.base == "FLOP/B")):
        top, bottom = (_scale(text, AnswerUnit(base, 0)) for text, base in ((dividend, first), (divisor_unit, second)))
        if slash and top and bottom and top.factor and bottom.factor and Fraction(divisor):
            factor = Fraction(top.factor) / Fraction(divisor) / Fraction(bottom.factor)
            return _Scale(1 / factor if inverted else factor, inverted)
        if above == below or unit.base != "FLOP/B":
            break
    return None


def _scale(written: str, unit: AnswerUnit) -> _Scale | None:
    """The size of a written unit in the base unit of the question; None for a unit of another kind."""
    text = re.sub(r"\s*/\s*", "/", re.sub(r"\s*\bper\b\s*", "/", written.strip().rstrip(".")))
    text = re.sub(r"\s*[·*]?\s*(s|B|FLOP)\^-1\Z", r"/\1", text)
    text = re.sub(r"/(?:s|sec|second)s?\Z", "/s", text, flags=re.IGNORECASE)
    if not text:
        return _Scale(unit.factor)
    if unit.base == "%":
        return _Scale(Fraction(1, 100)) if text.lower() in ("%", "percent", "per cent", "pct", "/cent") else None
    if unit.base == "s":
        if long := re.fullmatch(r"(min|h)(?:s|utes?|rs?|ours?)?", text, re.IGNORECASE):
            return _Scale(3600 if long[1].lower() == "h" else 60)
        match = re.fullmatch(r"(milli|micro|nano|pico|mu|[mμunp]?)[ -]?(?:s|secs?|seconds?)", text, re.IGNORECASE)
        prefix = match and {"micro": "u", "mu": "u", "μ": "u"}.get(match[1].lower(), match[1].lower()[:1])
        return None if prefix is None else _Scale(SMALL_PREFIXES.get(prefix, 1))
    if unit.base not in BASES:
        same = _count_word(text) == _count_word(unit.base) or (unit.base == "times" and text.lower() in ("x", "×"))
        return _Scale(unit.factor) if same else None
    if unit.base == "FLOP/B" and re.fullmatch(rf"{_BYTES}/{_FLOPS}[sS]?", text):
        return _Scale(1, inverted=True)
    name = _BASE_NAMES[unit.base].fullmatch(text)
    if name is None:
        return None
    prefixes = BASES[unit.base]
    prefix = next(filter(None, name.groups()), "")
    prefix = _LONG_PREFIXES.get(prefix.lower(), prefix[:1].upper() + prefix[1:])
    factor = prefixes.get("k" if prefix == "K" else prefix)
    return None if factor is None else _Scale(factor)


_LONG_PREFIXES = {"kilo": "k", "mega": "M", "giga": "G", "tera": "T", "peta": "P"}
_LONG = "|".join(f"[{name[0]}{name[0].upper()}]{name[1:]}" for name in _LONG_PREFIXES)
_BYTES = r"(?:B|[Bb]ytes?)"
_FLOPS = r"(?:FLOP|flop|Flop|OP|op|Op|F)"
_PREFIX = rf"({_LONG}|[kKMGTPmgtp]?) ?"
_BASE_NAMES = {
    "FLOP": re.compile(rf"{_PREFIX}{_FLOPS}[sS]?"),
    "FLOP/s": re.compile(rf"{_PREFIX}{_FLOPS}(?:[sS]|[sS]?/s|ps|PS)"),
    "FLOP/B": re.compile(rf"() ?{_FLOPS}[sS]?(?:/|:){_BYTES}"),
    "B": re.compile(rf"({_LONG}|(?:[kKMGTP]i?)?) ?{_BYTES}|([kmgtp])b"),
    "B/s": re.compile(rf"({_LONG}|(?:[kKMGTP]i?)?) ?{_BYTES}(?:/s|ps)"),
}
"""The spellings of units, with their prefixes."""
_SHORT = {"tok": "token", "img": "image", "seq": "sequence"}


def _count_word(text: str) -> str:
    """`Images / s` and `img/s` as `image/s`: a word of a counted thing in the singular."""
    word, slash, rest = text.lower().partition("/")
    word = word.strip().removesuffix("s")
    return _SHORT.get(word, word) + slash + rest.strip()
