"""A class: the sheets of all students of a roster, and their key."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from roofmodel.errors import Option, OutputError
from roofmodel.files.text_files import expand, read_text
from roofmodel.homework.answer import answers_in_unit, document
from roofmodel.homework.homework import Sheet, SheetSource, has_answers, source_of
from roofmodel.homework.roster import read_roster
from roofmodel.options.values import PathLike
from roofmodel.report.base import Derivation
from roofmodel.report.latex import check_pdflatex

KEY = "key.json"
SCHEMA = "roofmodel.homework-key/1"
SEED_BYTES = 16


class WrittenSheet(NamedTuple):
    """The sheet of a student, and the name of its file."""

    sheet: Sheet
    row: Mapping[str, str]
    file: str


class WrittenClass(NamedTuple):
    """The sheets of a class."""

    name: str
    folder: Path
    key: Path
    sheets: tuple[WrittenSheet, ...]


def write_class(roster: PathLike, folder: PathLike, sheet: PathLike, seed: str, form: str, force: bool) -> WrittenClass:
    """Write the sheets of all students into a folder, and the key beside it.

    Raises AnswerError for the roster, WorkloadError for the sheet, and OutputError for files that exist: a sheet with
    answers, and the key of another seed or sheet, unless `force` is given.
    """
    students, source = read_roster(roster), source_of(sheet)
    target = expand(folder)
    target = target.resolve() if target.name in ("", "..") else target
    key = target.parent / KEY
    if not target.parent.is_dir():
        raise OutputError(f"{os.fspath(folder)}: folder {str(target.parent)!r} does not exist; create it first")
    if target.exists() and not target.is_dir():
        raise OutputError(f"{os.fspath(folder)}: is a file; name a folder")
    if not force:
        _check_key_replaced(key, source.name, seed)
    secret = seed or secrets.token_hex(SEED_BYTES)
    files: dict[str, str] = {}
    sheets = []
    for row in students.rows:
        file = _file_name(row["student"], files)
        files[file.casefold()] = file
        sheets.append(WrittenSheet(source.sheet(row["student"], secret), row, f"{file}.{form}"))
    for each in () if force else sheets:
        if has_answers(str(target / each.file)):
            raise OutputError(
                f"{target / each.file}: is a sheet with answers; give another folder, or ", Option("force"),
                " to replace it",
            )  # fmt: skip
    written_class = WrittenClass(source.name, target, key, tuple(sheets))
    if form == "pdf":
        check_pdflatex()
    try:
        target.mkdir(exist_ok=True)
        _write_private(key, _key(written_class, source, students.columns, secret))
        for each in sheets:
            Derivation(document(each.sheet)).save(target / each.file)
    except OSError as error:
        raise OutputError(f"{error.filename or target}: cannot be written ({error.strerror})") from None
    return written_class


def _check_key_replaced(key: Path, name: str, seed: str) -> None:
    """Raises OutputError if this would replace the key of another class."""
    if not key.exists():
        return
    try:
        before = json.loads(read_text(key))
        same = bool(seed) and (before["seed"], before["sheet"]) == (seed, name)
    except (OSError, ValueError, TypeError, KeyError):
        same = False
    if not same:
        raise OutputError(
            f"{key} is the key of sheets that exist. To add students, give its seed: ", Option("seed", "SEED"),
            ". For another sheet, give a folder in another directory, such as week2/sheets. ", Option("force"),
            " replaces the key; the old sheets can then no longer be graded",
        )  # fmt: skip


def _file_name(student: str, file_names: Mapping[str, str]) -> str:
    """A name that any file system accepts, and that no other student has, also where case does not count."""
    stem = re.sub(r"[^\w.@+-]+", "_", student).strip("._") or "student"
    stem = f"{stem}_" if stem.casefold() == "key" else stem
    name, number = stem, 2
    while name.casefold() in file_names:
        name, number = f"{stem}-{number}", number + 1
    return name


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _key(written_class: WrittenClass, source: SheetSource, columns: Sequence[str], seed: str) -> str:
    students = [
        {"row": dict(row), "file": file, "made": sheet.fingerprint, "answers": answers_in_unit(sheet)}
        for sheet, row, file in written_class.sheets
    ]
    own = {"problems": source.text} if source.text else {}
    data = {
        "schema": SCHEMA,
        "sheet": written_class.name,
        "seed": seed,
        "columns": list(columns),
        **own,
        "students": students,
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"
