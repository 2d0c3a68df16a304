"""Files of answers as students hand them in: text in any encoding, with or without the fences of a sheet, and JSON.

Each answer is one line, `question: answer  # unit`, under the line of its problem. The lines are read one by one, so
that an answer that is no YAML does not affect the others.
"""

from __future__ import annotations

import codecs
import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from roofmodel.errors import AnswerError, RoofError, Text
from roofmodel.files.text_files import LARGEST_TEXT, YamlValue, expand, parse_yaml, printable
from roofmodel.homework.answers import plain
from roofmodel.options.values import PathLike

Answers = PathLike | Mapping[str, Any]
"""A file of answers, or a dictionary: answers by problem and question, alone or in the dictionary of a sheet."""
Questions = Mapping[str, Sequence[str]]
"""The ids of the questions of each problem."""
Place = tuple[str, str]
"""A problem and its question."""
HEADER = ("student", "sheet", "made")
_OTHER_KEYS = ("schema", "problems")  # of a sheet in JSON
_FORMATS = {
    b"%PDF": "a PDF", b"PK\x03\x04": "a Word document or another ZIP archive", b"{\\rtf": "an RTF document",
    b"\xd0\xcf\x11\xe0": "a document of an old Word", b"\x89PNG": "a picture", b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture", b"\x1f\x8b": "a gzip archive",
}  # fmt: skip
_SUFFIXES = {
    "pdf": "a PDF", "docx": "a Word document", "doc": "a Word document", "odt": "a document of LibreOffice",
    "pages": "a document of Pages", "rtf": "an RTF document", "xlsx": "a spreadsheet", "ods": "a spreadsheet",
    "html": "a web page", "htm": "a web page", "ipynb": "a notebook", "zip": "a ZIP archive",
    **dict.fromkeys(("png", "jpg", "jpeg", "heic", "gif", "webp"), "a picture"),
}  # fmt: skip
_MISSING = (
    "the block of answers is missing; it belongs under 'Your answers', between ``` lines (LaTeX: in a verbatim "
    "environment)"
)


class Entry(NamedTuple):
    """A text of a file: an answer as it is written, or a field of the header."""

    text: str
    file: str
    line: int

    def error(self, *message: Text) -> RoofError:
        """An AnswerError about this line."""
        return AnswerError(f"{self.file}:{self.line}: ", *message)


class Submission(NamedTuple):
    """What a file states: its header, and its answers in lines or as data."""

    header: Mapping[str, Entry]
    lines: tuple[Entry, ...] = ()
    data: YamlValue | None = None

    def answers(self, questions: Questions) -> tuple[dict[Place, Entry], list[Entry]]:
        """The answers by problem and question, and what belongs to no question. Raises AnswerError for invalid data."""
        if self.data is not None:
            return _in_data(self.data, questions), []
        reader = _LineReader(questions)
        for line in self.lines:
            reader.read(line)
        return reader.found, reader.unknown

    @property
    def has_answers(self) -> bool:
        """Whether any answer is not blank."""
        if self.data is not None:
            problems = [] if self.data.is_null else self.data.mapping().values()
            return any(not answer.is_null for each in problems if each.is_mapping for answer in each.mapping().values())
        fields = (re.fullmatch(r"\W*[\w -]+?\W*?[:=](.*)", each.text) for each in self.lines)
        return any(_answer(field[1]) for field in fields if field)


def read(answers: Answers) -> Submission:
    """The content of a file or of a dictionary. Raises AnswerError."""
    if isinstance(answers, Mapping):
        document = answers if "answers" in answers else {"answers": answers}
        return _structured(json.dumps(document, default=str), "answers")  # NumPy's numbers have no JSON
    name = os.fspath(answers)
    text = read_any_text(name)
    if not text.strip():
        raise AnswerError(f"{name}: expected a homework sheet with answers, got an empty file")
    if text.lstrip().startswith("{"):
        return _structured(text, name)
    if re.search(r"^\s*answers\s*:[ \t]*[{\[]", text, re.MULTILINE):  # YAML in flow style
        try:
            return _structured(_without_fences(text), name)
        except AnswerError:
            lines = _lines_of(text, name)
            if not any(re.match(r"\W*\w+\s*:\s*[^\s{\[#]", each.text) for each in lines.lines):
                raise
            return lines
    return _lines_of(text, name)


def _without_fences(text: str) -> str:
    """The last block between fences that has answers, at the same line; a text without fences as it is."""
    lines, start = text.split("\n"), 0
    block = lines
    for i, line in enumerate(lines):
        if re.match(r"```|\\(begin|end)\{verbatim\}", line):
            if any(each.startswith("answers:") for each in lines[start:i]):
                block = [*[""] * start, *lines[start:i]]
            start = i + 1
    return "\n".join(block)


def read_any_text(name: str, wanted: str = "a homework sheet with answers") -> str:
    """The text of a file in UTF-8, UTF-16 or Windows-1252. Raises AnswerError for a file that is no text."""
    path = expand(name)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_TEXT + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise AnswerError(f"{name}: no such file; give {wanted}") from None
    except OSError as error:
        raise AnswerError(f"{name}: cannot be read ({error.strerror})") from None
    by_content = next((known for start, known in _FORMATS.items() if content.startswith(start)), None)
    format_name = _SUFFIXES.get(path.suffix[1:].lower()) or by_content
    if format_name:
        raise AnswerError(f"{name}: {format_name}; give {wanted} as a text file, such as 1001.yaml")
    text = _decoded(content)
    if len(content) > LARGEST_TEXT or text is None:
        raise AnswerError(f"{name}: not a text file; give {wanted}")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decoded(content: bytes) -> str | None:
    """Text by its byte order mark, by the zeros of UTF-16, or else in UTF-8 or Windows-1252."""
    zeros = [content[i::2].count(0) * 4 > len(content[i::2]) for i in (0, 1)]
    encodings = ["utf-8-sig", "cp1252"]
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encodings = ["utf-16"]
    elif any(zeros):
        encodings = ["utf-16-be" if zeros[0] else "utf-16-le"]
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        return None if "\0" in text else text
    return None


# --- Data -------------------------------------------------------------------------------------------


def _structured(text: str, name: str) -> Submission:
    root = parse_yaml(text.replace("\t", " "), name, AnswerError, "a homework sheet with answers")
    entries = root.mapping((*HEADER, "answers", *_OTHER_KEYS), required=("answers",))
    header = {key: Entry(entries[key].text(), name, entries[key].line) for key in HEADER if key in entries}
    return Submission(header, data=entries["answers"])


def _in_data(data: YamlValue, questions: Questions) -> dict[Place, Entry]:
    found = {}
    for problem, entry in ({} if data.is_null else data.mapping(questions)).items():
        for question, answer in ({} if entry.is_null else entry.mapping(questions[problem])).items():
            if not answer.is_null:
                found[problem, question] = Entry(_written(answer), answer.file, answer.line)
    return found


def _written(answer: YamlValue) -> str:
    """A scalar, or the text of a list with one value; other lists and mappings as YAML prints them."""
    try:
        return answer.text()
    except AnswerError:
        value = answer.value()
        return printable(str(value[0] if isinstance(value, list) and len(value) == 1 else value))


# --- Lines ------------------------------------------------------------------------------------------


def _lines_of(text: str, name: str) -> Submission:
    """The header and the lines after the last `answers:` that has answers."""
    lines = [Entry(line, name, number) for number, line in enumerate(text.split("\n"), 1)]
    starts = [i for i, each in enumerate(lines) if re.fullmatch(r"\W*answers\W*:\W*", each.text, re.IGNORECASE)]
    if not starts and re.search(r"^(# Problems: |\|---|\\section\*\{Problems: )", text, re.MULTILINE):
        raise AnswerError(f"{name}: expected a homework sheet with answers, got a file that is {_MISSING}")
    if not starts:
        rest = tuple(line for line in lines if not _HEADER_LINE.match(line.text))
        found = Submission(_header(lines), rest)
        if not found.has_answers:
            raise AnswerError(f"{name}: not a homework sheet with answers: it has no line 'answers:'")
        return found
    blocks = [Submission(_header(lines[:start]), tuple(_block(lines[start + 1 :]))) for start in starts]
    return ([block for block in blocks if block.has_answers] or blocks)[-1]


_HEADER_LINE = re.compile(rf"[^\w#]*({'|'.join(HEADER)})[^\w:=]*[:=](.*)", re.IGNORECASE)


def _header(lines: Sequence[Entry]) -> dict[str, Entry]:
    """The fields of the header, the last of each in these lines."""
    matches = ((each, _HEADER_LINE.match(each.text)) for each in lines)
    return {
        match[1].lower(): each._replace(text=text) for each, match in matches if match and (text := _field(match[2]))
    }


def _field(text: str) -> str:
    text = text.strip()
    try:
        return str(json.loads(text))
    except ValueError:
        return printable(re.sub(r"\s#.*", "", text).strip(" \t\"“”„«»‘’'`*_,"))


def _block(lines: Sequence[Entry]) -> Iterator[Entry]:
    """The lines of answers up to the end of their fence."""
    for each in lines:
        if re.match(r"\s*(```|~~~|\\end\{)", each.text):
            return
        yield each


def _answer(text: str) -> str:
    """An answer without the comment of its unit; the comment, if the answer is written in it."""
    answer, _, comment = text.partition("#")
    if plain(answer).strip(" -.–—/|,"):
        return printable(answer.strip(" \t|,"))
    words = re.search(r"[0-9]", comment) and not re.fullmatch(r"\s*[^\s]*\s*", comment)
    return printable(f"#{comment}".strip()) if words else ""


class _LineReader:
    """The answers of lines such as `time: 1020 us`, under a line of their problem."""

    def __init__(self, questions: Questions) -> None:
        self.questions = questions
        self.found: dict[Place, Entry] = {}
        self.unknown: list[Entry] = []
        self._problem = next(iter(questions)) if len(questions) == 1 else ""
        self._place: Place | None = None  # of the line before
        self._seen: set[Place] = set()

    def read(self, line: Entry) -> None:
        """Read the next line of the file."""
        text = line.text.strip()
        if not re.search(r"\w", text) or text.startswith(("#", "\\begin", "\\end", "```", "~~~")):
            return
        word, value = self._key(text)
        if not value and text.endswith(":") and self._closest(word, self.questions) and not self._question(word):
            self._problem, self._place = self._closest(word, self.questions), None
        elif place := self._question(word):
            self._place = place
            self._seen.add(place)
            self._add(line, value)
        elif word in self.questions and value.startswith("{"):
            self._add_mapping(line, word, value)
        elif word in self.questions and not value:
            self._problem, self._place = word, None
        elif self._place and self._place not in self.found and not text.endswith(":"):
            self._add(line, text)  # the answer is on the line after its question
        elif re.match(r"[\w-]+\s*[:=]", text):
            self.unknown.append(line._replace(text=printable(text)))
            if not value:
                self._problem, self._place = "", None

    def _key(self, text: str) -> tuple[str, str]:
        """The word before a colon, or the first word if it is a known one, and the answer after it."""
        key, _, value = re.sub(r"^[^\w]+", "", text).partition(next((c for c in text if c in ":=：|"), ":"))
        known = {*self.questions, *(id for ids in self.questions.values() for id in ids)}
        first, _, rest = key.partition(" ")
        if _id(key) not in known and _id(first) in known:
            key, value = first, text[text.index(first) + len(first) :].strip() if rest else value
        return _id(key), _answer(value)

    def _question(self, word: str) -> Place | None:
        """The question that a word names, also misspelled: of the problem, or of the only other problem with it."""
        of_problem = [id for id in self.questions.get(self._problem, ()) if (self._problem, id) not in self._seen]
        if word in self.questions and word not in of_problem:
            return None
        if name := word if word in of_problem else self._closest(word, of_problem):
            return self._problem, name
        others = [(p, word) for p, ids in self.questions.items() if word in ids and (p, word) not in self._seen]
        return others[0] if len(others) == 1 else None

    @staticmethod
    def _closest(word: str, names: Iterable[str]) -> str:
        close = difflib.get_close_matches(word, names, n=2, cutoff=0.75)
        return close[0] if len(close) == 1 or word in close else ""

    def _add(self, line: Entry, value: str) -> None:
        if value and self._place:
            self.found[self._place] = line._replace(text=value)

    def _add_mapping(self, line: Entry, problem: str, value: str) -> None:
        """The answers of a problem in one line, `stream: {time: 1020 us}`."""
        self._problem, self._place = problem, None
        try:
            found = _in_data(parse_yaml(f"{problem}: {value}", line.file, AnswerError, "answers"), self.questions)
        except AnswerError:
            self.unknown.append(line._replace(text=printable(line.text.strip())))
            return
        self.found |= {place: entry._replace(line=line.line) for place, entry in found.items()}


def _id(text: str) -> str:
    """`Decode bound` as `decode_bound`, without emphasis."""
    return re.sub(r"[ -]+", "_", text.replace("\\", "").strip(" \t*_`\"'”“’‘").lower())
