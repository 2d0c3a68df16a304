"""A class: all sheets with one key, and the answers of a folder graded in one go."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.errors import AnswerError, OutputError, WorkloadError
from roofmodel.homework import homework
from tests.command_line import run

ROSTER = "name,student,section\nAda Lovelace,1001,A\nGrace Hopper,1002,B\nEmmy Noether,1003,A\n"
OWN = """\
sheet: [limit, counters]
symbols: {P: the peak, B: the bandwidth}
problems:
  limit:
    title: The ridge point
    given: "{device}: {P:FLOP/s} in {dtype}, {B:B/s}."
    draws: {device: [a100, h100-sxm, h200], dtype: [fp16, fp64]}
    quantities: {P: "gemm_peak(device, dtype)", B: bandwidth(device)}
    questions:
      ridge:
        text: The ridge point.
        unit: FLOP/B
        answer: P/B
        tolerance: 1 %
        points: 2
        mistakes: [in_bits, {B/P: invert it}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a roster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOF_HOMEWORK_SEED", raising=False)
    (tmp_path / "roster.csv").write_text(ROSTER)
    (tmp_path / "mine.yaml").write_text(OWN)
    return tmp_path


def written_key() -> dict[str, Any]:
    return json.loads(Path("key.json").read_text())  # type: ignore[no-any-return]


def answer(student: str, file: str, factors: dict[str, float] | None = None) -> None:
    """Write the sheet of a student with the right answers, some of them multiplied by a factor."""
    entry = next(each for each in written_key()["students"] if each["row"]["student"] == student)
    text = Path("sheets", entry["file"]).read_text()
    for problem, answers in entry["answers"].items():
        for question, value in answers.items():
            factor = (factors or {}).get(f"{problem}.{question}", 1)
            given = value if isinstance(value, str) else f"{value * factor:.6g}"
            text = re.sub(rf"(\n  {problem}:\n(?:    .*\n)*?    {question}:)", rf"\1 {given}", text)
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(text)


def test_the_key_of_a_class_is_beside_its_sheets_and_nowhere_in_them(folder: Path) -> None:
    roofmodel.homework_class("roster.csv", "sheets", "measuring")
    assert sorted(path.name for path in folder.iterdir()) == ["key.json", "mine.yaml", "roster.csv", "sheets"]
    assert sorted(path.name for path in Path("sheets").iterdir()) == ["1001.md", "1002.md", "1003.md"]
    key = written_key()
    assert len(bytes.fromhex(key["seed"])) * 8 == 128
    sheets = [path.read_text() for path in Path("sheets").iterdir()]
    assert not any(key["seed"] in sheet for sheet in sheets)
    assert "The lecturer checks them" in sheets[0]
    assert Path("key.json").stat().st_mode & 0o077 == 0  # only the owner reads it


def test_the_seed_of_the_key_gives_the_sheet_and_its_key(folder: Path) -> None:
    roofmodel.homework_class("roster.csv", "sheets", "measuring")
    key = written_key()
    again = roofmodel.homework("1002", "measuring", seed=key["seed"])
    assert Path("sheets/1002.md").read_text() == again.to_markdown() + "\n"
    answers = roofmodel.homework("1002", "measuring", seed=key["seed"], key=True).to_dict()
    found = {p["id"]: {q["id"]: q["answer"] for q in p["questions"]} for p in answers["problems"]}
    assert key["students"][1]["answers"] == found


def test_a_generated_seed_differs_each_time(folder: Path) -> None:
    seeds = set()
    for name in "ab":
        Path(name).mkdir()
        roofmodel.homework_class("roster.csv", f"{name}/sheets", "measuring")
        seeds.add(json.loads(Path(name, "key.json").read_text())["seed"])
    assert len(seeds) == 2


def test_answers_of_a_class_become_points(folder: Path) -> None:
    roofmodel.homework_class("roster.csv", "sheets", "measuring")
    answer("1001", "answers/1001.md")
    answer("1002", "answers/late/upload.md", {"stream.intensity": 0.5, "achieved.rate": 1.3})
    grades = roofmodel.grade_homework("answers", "key.json")
    assert grades.warnings == ("1 of 3 students without a file: 1003",)
    grades.save("grades.csv")
    rows = [*csv.DictReader(Path("grades.csv").read_text().splitlines())]
    assert [*rows[0]] == [
        "name", "student", "section", "stream.intensity", "stream.time", "stream.rate", "counters.fp32",
        "counters.fp16", "counters.intensity", "achieved.bound", "achieved.rate", "achieved.fraction", "points",
        "unread",
    ]  # fmt: skip
    assert [(row["name"], row["points"]) for row in rows] == [
        ("Ada Lovelace", "9"), ("Grace Hopper", "7"), ("Emmy Noether", "?"),
    ]  # fmt: skip
    assert (rows[1]["stream.intensity"], rows[1]["stream.time"], rows[2]["stream.time"]) == ("0", "1", "?")
    assert [row["unread"] for row in rows] == ["0", "0", "9"]
    # half of the answer is a common mistake, 1.3 times is none
    partial = roofmodel.grade_homework("answers", "key.json", partial=0.25).to_dict()
    assert [student["points"] for student in partial["students"]] == [9, 7.25, None]
    assert partial["students"][1]["questions"]["stream.intensity"] == 0.25
    found = {each["question"]: each for each in partial["questions"]}
    assert found["stream.intensity"] == {
        "question": "stream.intensity", "points": 1, "right": 1, "answered": 2, "unread": 0,
        "hint": "half the answer: a multiply-add is two FLOPs", "hinted": 1,
    }  # fmt: skip


def test_a_file_that_cannot_be_graded_is_a_warning_and_no_zero(folder: Path) -> None:
    roofmodel.homework_class("roster.csv", "sheets", "measuring")
    answer("1001", "answers/1.md")
    answer("1002", "answers/2.md")
    answer("1002", "answers/3.md", {"stream.time": 2})
    answer("1003", "answers/4.md")
    first, last = Path("answers/1.md"), Path("answers/4.md")
    first.write_bytes(b"student: 1001\n\0\1\2")
    first.rename("answers/1001.md")
    last.write_text(last.read_text().replace('made: "', 'made: "0'))
    grades = roofmodel.grade_homework("answers", "key.json")
    assert [student["points"] for student in grades.to_dict()["students"]] == [None, None, None]
    broken, other, twice = grades.warnings
    assert broken == "not graded: answers/1001.md: not a text file; give a homework sheet with answers"
    assert "another version of roofmodel" in other
    assert twice == "not graded: 2 files have answers of student '1002': 2.md, 3.md"


def test_two_files_with_the_same_answers_are_graded(folder: Path) -> None:
    roofmodel.homework_class("roster.csv", "sheets", "measuring")
    answer("1002", "answers/2.md")
    answer("1002", "answers/copy of 2.md")
    grades = roofmodel.grade_homework("answers", "key.json")
    assert grades.to_dict()["students"][1]["points"] == 9
    assert grades.warnings[0] == "student '1002': 2.md is graded, not copy of 2.md"


def test_an_answer_that_cannot_be_read_is_listed_for_the_lecturer(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    roofmodel.homework_class("roster.csv", "sheets", "measuring")
    for student in ("1001", "1002", "1003"):
        answer(student, f"answers/{student}.md")
    file = Path("answers/1002.md")
    text = re.sub(r"(\n    intensity:) \S+", r"\1 1,25 or 3", file.read_text(), count=1)
    text = re.sub(r"(\n    rate:) \S+", r"\1", text, count=1)  # blank
    file.write_text(re.sub(r"(\n    bound:) \S+", r"\1 [1, 2]", text))
    grades = roofmodel.grade_homework("answers", "key.json")
    assert grades.warnings == ()
    assert [student["points"] for student in grades.to_dict()["students"]] == [9, 6, 9]
    first, second = grades.to_dict()["unread"]
    line = next(number for number, each in enumerate(text.split("\n"), 1) if "1,25 or 3" in each)
    assert first == {
        "student": "1002", "question": "stream.intensity", "answer": "1,25 or 3", "file": "1002.md", "line": line,
    }  # fmt: skip
    assert (second["question"], second["answer"]) == ("achieved.bound", "[1, 2]")
    _, out, _ = run(("homework", "grade", "answers", "--key", "key.json"), monkeypatch, capsys)
    assert "1002    stream.intensity 1,25 or 3" in out
    grades.save("grades.csv")
    row = [*csv.DictReader(Path("grades.csv").read_text().splitlines())][1]
    assert (row["stream.intensity"], row["stream.rate"], row["achieved.bound"]) == ("?", "-", "?")
    assert (row["points"], row["unread"]) == ("6", "2")


def test_the_lecturer_rules_on_answers(folder: Path) -> None:
    roofmodel.homework_class("roster.csv", "sheets", "measuring")
    answer("1001", "answers/1001.md", {"stream.time": 3})
    answer("1002", "answers/1002.md")
    file = Path("answers/1002.md")
    file.write_text(re.sub(r"(\n    intensity:) \S+", r"\1 a twelfth", file.read_text(), count=1))
    Path("rulings.csv").write_text(
        "student;question;points;why\n1002;stream.intensity;0,5;words\n1001;stream.time;1;\n1003;stream.time;1;\n"
    )
    grades = roofmodel.grade_homework("answers", "key.json", override="rulings.csv").to_dict()
    assert [student["points"] for student in grades["students"]] == [9, 8.5, 1]
    assert (grades["students"][1]["unread"], grades["unread"]) == ([], [])
    assert grades["rulings"][0] == {"student": "1002", "question": "stream.intensity", "points": 0.5}


@pytest.mark.parametrize(
    ("rulings", "message"),
    [
        ("student,question\n", "r.csv:1: the header has no column 'points'"),
        ("student,question,points\n2001,stream.time,1\n", "r.csv:2: student '2001' is not in the roster"),
        ("student,question,points\n1001,stream.tme,1\n", "unknown question 'stream.tme'; did you mean 'stream.time'"),
        ("student,question,points\n1001,stream.time,2\n", "r.csv:2: points is '2'; it must be a number from 0 to 1"),
        ("student,question,points\n1001,stream.time,one\n", "r.csv:2: points is 'one'; it must be a number"),
        (
            "student,question,points\n1001,stream.time,1\n1001,stream.time,0\n",
            "r.csv:3: student '1001' has another ruling on stream.time",
        ),
    ],
)
def test_an_invalid_ruling_is_refused_with_its_line(rulings: str, message: str, folder: Path) -> None:
    roofmodel.homework_class("roster.csv", "sheets", "measuring")
    Path("r.csv").write_text(rulings)
    with pytest.raises(AnswerError) as raised:
        roofmodel.grade_homework("sheets", "key.json", override="r.csv")
    assert message in str(raised.value)


# --- What students do to their files ----------------------------------------------------------------

S = "student\nS1\nS2\n0030\n"


def filled(folder: Path, student: str = "S1") -> str:
    """The sheet of a student of the roster S with all right answers."""
    if not Path("key.json").exists():
        Path("roster.csv").write_text(S)
        roofmodel.homework_class("roster.csv", "sheets", "measuring", seed="a seed of many characters")
    answer(student, "answers/x.md")
    text = Path("answers/x.md").read_text()
    Path("answers/x.md").unlink()
    return text


def points(folder: Path) -> dict[str, float | None]:
    students = roofmodel.grade_homework("answers", "key.json").to_dict()["students"]
    return {each["student"]: each["points"] for each in students}


EDITS = {
    "case": lambda text: text.replace('"S1"', "s1"),
    "curly quotes": lambda text: text.replace('"', "”"),
    "no quotes": lambda text: text.replace('"', ""),
    "tabs": lambda text: re.sub("^( +)", lambda found: "\t" * (len(found[0]) // 2), text, flags=re.MULTILINE),
    "no indentation": lambda text: re.sub("^ +", "", text, flags=re.MULTILINE),
    "no fences": lambda text: text.replace("```", ""),
    "only the list": lambda text: text[text.index("student:") : text.rindex("```")],
    "no units": lambda text: re.sub(" +#.*", "", text),
    "capitals": lambda text: re.sub(r"^ *(\w+):", lambda found: found[0].upper(), text, flags=re.MULTILINE),
    "equals signs": lambda text: re.sub(r"^(    \w+):", r"\1 =", text, flags=re.MULTILINE),
    "bullets": lambda text: re.sub(r"^(    )(\w+):", r"\1- **\2**:", text, flags=re.MULTILINE),
    "on the next line": lambda text: re.sub(r"^(    \w+:) (\S+)", r"\1\n      \2", text, flags=re.MULTILINE),
    "Windows lines": lambda text: text.replace("\n", "\r\n"),
    "comments": lambda text: text.replace("  # us", " because of the ridge  # us"),
    "a blank copy below": lambda text: text + re.sub("^(    [a-z0-9]+:).*", r"\1", text, flags=re.MULTILINE),
    "misspelled keys": lambda text: text.replace("  stream:", "  streem:").replace("    time:", "    tiem:"),
    "non-breaking spaces": lambda text: text.replace("    ", "\u00a0\u00a0\u00a0\u00a0"),
    "no student": lambda text: re.sub("student: .*\n", "", text),
    "another student": lambda text: text.replace('"S1"', '"S2"'),
    "a mistyped student": lambda text: text.replace('"S1"', '"S11"'),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_file_is_graded(edit: str, folder: Path) -> None:
    text = EDITS[edit](filled(folder))
    assert text != filled(folder)
    Path("answers/hand-in.txt").write_bytes(text.encode())
    assert points(folder) == {"S1": 9, "S2": None, "0030": None}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "cp1252"])
def test_a_file_in_any_encoding_is_graded(encoding: str, folder: Path) -> None:
    text = re.sub(r"(\n    time: \S+)", r"\1 µs", filled(folder))
    Path("answers/hand-in.md").write_bytes(text.encode(encoding))
    assert points(folder)["S1"] == 9


def test_a_number_without_its_zeros_is_the_same_student(folder: Path) -> None:
    Path("answers/x.md").write_text(filled(folder, "0030").replace('"0030"', "30"))
    assert points(folder)["0030"] == 9


def test_a_mistake_in_a_header_touches_nobody_else(folder: Path) -> None:
    first, second = filled(folder), filled(folder, "S2")
    Path("answers/a.md").write_text(first.replace('"S1"', '"S2"'))
    Path("answers/b.md").write_text(second)
    assert points(folder) == {"S1": 9, "S2": 9, "0030": None}
    assert "a.md" in roofmodel.grade_homework("answers", "key.json").warnings[0]
    no_made = re.sub("made: .*\n", "", first).replace('"S1"', '"S2"')
    Path("answers/a.md").unlink()
    Path("answers/S1.md").write_text(no_made)  # only the name of the file tells
    assert points(folder) == {"S1": 9, "S2": 9, "0030": None}
    Path("answers/S1.md").rename("answers/unknown.md")
    assert points(folder) == {"S1": None, "S2": 9, "0030": None}


def test_an_answer_that_is_no_yaml_does_not_affect_the_others(folder: Path) -> None:
    for words in ("**{}**", "`{}`", "% {}", "@ {}", "t: {}", "{} us: memory", "*{}", "'{}", "[{}", "{{{}", "! {}"):
        sheet = filled(folder)
        value = re.search(r"\n    time: (\S+)", sheet)[1]
        text = sheet.replace(f"time: {value}", f"time: {words.format(value)}")
        Path("answers/x.md").write_text(text)
        (student, *_) = roofmodel.grade_homework("answers", "key.json").to_dict()["students"]
        assert student["points"] + len(student["unread"]) == 9
        assert set(student["unread"]) <= {"stream.time"}


def test_files_that_cannot_be_graded_are_named(folder: Path) -> None:
    filled(folder)
    Path("answers/S1.docx").write_bytes(b"PK\x03\x04 word/document.xml")
    Path("answers/scan.pdf").write_bytes(b"%PDF-1.7")
    Path("answers/photo.md").write_bytes(b"\x89PNG\r\n\0")
    Path("answers/.DS_Store").write_bytes(b"\0")
    grades = roofmodel.grade_homework("answers", "key.json")
    word, picture, pdf, missing = grades.warnings
    assert word.startswith("not graded: answers/S1.docx: a Word document; give a homework sheet with answers as a text")
    assert picture.startswith("not graded: answers/photo.md: a picture;")
    assert pdf.startswith("not graded: answers/scan.pdf: a PDF;")
    assert missing == "2 of 3 students without a file: S2, 0030"
    assert grades.to_dict()["students"][0]["file"] == "S1.docx"


def test_a_sheet_without_answers_is_blank_and_named(folder: Path) -> None:
    filled(folder)
    Path("answers/x.md").write_text(Path("sheets/S1.md").read_text())
    grades = roofmodel.grade_homework("answers", "key.json")
    assert grades.warnings[-1] == "all answers are blank in the files of: S1"
    grades.save("grades.csv")
    rows = [*csv.DictReader(Path("grades.csv").read_text().splitlines())]
    assert [row["stream.time"] for row in rows] == ["-", "?", "?"]
    assert [row["points"] for row in rows] == ["0", "?", "?"]


def test_an_answer_in_the_comment_of_the_unit_is_not_blank(folder: Path) -> None:
    text = re.sub(r"(\n    time:) (\S+)  # us", r"\1  # \2 us", filled(folder))
    Path("answers/x.md").write_text(text)
    (student, *_) = roofmodel.grade_homework("answers", "key.json").to_dict()["students"]
    assert (student["points"], student["unread"]) in ((9, []), (8, ["stream.time"]))


def test_students_without_a_file_are_listed_once(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    roofmodel.homework_class("roster.csv", "sheets", "measuring")
    answer("1002", "answers/1002.md", {"stream.intensity": 0.5})
    status, out, err = run(("homework", "grade", "answers", "--key", "key.json"), monkeypatch, capsys)
    assert status == 0
    assert "2 of 3 students without a file: 1001, 1003" in err
    assert "1001" not in out
    (titles,) = (line.split() for line in out.splitlines() if line.startswith("question"))
    assert titles == ["question", "points", "right", "of", "most", "common", "mistake", "times"]
    assert "not shown" not in out


def test_answers_of_a_stranger_are_a_warning(folder: Path) -> None:
    roofmodel.homework_class("roster.csv", "sheets", "measuring")
    Path("answers").mkdir()
    Path("answers/x.yaml").write_text("student: 2001\nanswers: {stream: {time: 1}}\n")
    Path("answers/y.yaml").write_text("answers: {stream: {time: 1}}\n")
    Path("answers/1003.yaml").write_text("answers: {stream: {time: 1}}\n")  # the name of the sheet's file
    assert roofmodel.grade_homework("answers", "key.json").warnings == (
        "not graded: answers/x.yaml:1: student '2001' is not in the roster",
        "not graded: answers/y.yaml: states no student",
        "2 of 3 students without a file: 1001, 1002",
    )


def test_problems_of_a_lecturer_are_written_and_graded(folder: Path) -> None:
    roofmodel.homework_class("roster.csv", "sheets", "mine.yaml")
    answer("1001", "answers/1001.md")
    answer("1002", "answers/1002.md", {"limit.ridge": 8})
    Path("mine.yaml").unlink()  # the key has the problems
    found = roofmodel.grade_homework("answers", "key.json", partial=0.5).to_dict()
    assert (found["sheet"], found["points"]) == ("mine", 5)  # 2 + 3 of counters
    assert [student["points"] for student in found["students"]] == [5, 4, None]


def test_sheets_and_keys_that_exist_are_not_replaced(folder: Path) -> None:
    roofmodel.homework_class("roster.csv", "sheets", "measuring")
    with pytest.raises(OutputError, match=r"key\.json is the key of sheets that exist. To add students"):
        roofmodel.homework_class("roster.csv", "others", "measuring")
    assert not Path("others").exists()
    seed = written_key()["seed"]
    Path("roster.csv").write_text(ROSTER + "Alan Turing,1004,B\n")
    roofmodel.homework_class("roster.csv", "sheets", "measuring", seed=seed)
    assert len(written_key()["students"]) == 4
    answer("1004", "sheets/1004.md")
    with pytest.raises(OutputError, match=r"1004\.md: is a sheet with answers"):
        roofmodel.homework_class("roster.csv", "sheets", "measuring", seed=seed)
    roofmodel.homework_class("roster.csv", "sheets", "measuring", force=True)
    assert written_key()["seed"] != seed


def test_the_current_folder_has_its_key_beside_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("inside").mkdir()
    monkeypatch.chdir("inside")
    roofmodel.homework_class("../roster.csv", ".", "measuring")
    assert (folder / "key.json").is_file()
    assert not Path("key.json").exists()


def test_names_of_students_are_no_paths(folder: Path) -> None:
    Path("roster.csv").write_text("student\n../../etc/x\n..\na b\nA_B\nkey\nJörg\n")
    roofmodel.homework_class("roster.csv", "sheets", "measuring", suffix="json")
    files = sorted(path.name for path in Path("sheets").iterdir())
    assert files == ["A_B-2.json", "Jörg.json", "a_b.json", "etc_x.json", "key_.json", "student.json"]


@pytest.mark.parametrize(
    ("roster", "message"),
    [
        ("", "roster.csv: is empty; its first line is a header; give a CSV file with a column 'student'"),
        ("name,Student\nA,1\n", "roster.csv:1: the header has no column 'student'; did you mean 'Student'?"),
        ("student\n", "roster.csv: lists no students"),
        ("student,name\n1,a\n1,b\n", "roster.csv:3: student '1' is also in line 2"),
        ("student,name\n,b\n", "roster.csv:2: the field 'student' is empty"),
        ("student,points\n1,2\n", "roster.csv:1: column 'points': give each column a name of its own"),
        ("student,a,a\n1,2,3\n", "roster.csv:1: column 'a': give each column a name of its own"),
        ("student\n1,2\n", "roster.csv:2: more fields than the header has"),
    ],
)
def test_an_invalid_roster_is_refused_with_its_line(roster: str, message: str, folder: Path) -> None:
    Path("roster.csv").write_text(roster)
    with pytest.raises(AnswerError) as raised:
        roofmodel.homework_class("roster.csv", "sheets")
    assert message in str(raised.value)
    assert not Path("sheets").exists()


def test_a_roster_from_a_spreadsheet_is_read(folder: Path) -> None:
    Path("roster.csv").write_bytes("\ufeffstudent;name\r\n1001;Łukasiewicz, Jan\r\n\r\n".encode())
    assert roofmodel.homework_class("roster.csv", "sheets").to_dict()["students"][0]["student"] == "1001"
    assert written_key()["students"][0]["row"] == {"student": "1001", "name": "Łukasiewicz, Jan"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "key.json: not a JSON file; give the key.json"),
        ("[]", "key.json: not the key of a class"),
        ('{"schema": "roofmodel.homework-key/1"}', "key.json: the key is incomplete"),
    ],
)
def test_an_invalid_key_is_refused(text: str, message: str, folder: Path) -> None:
    Path("key.json").write_text(text)
    with pytest.raises(AnswerError, match=message):
        roofmodel.grade_homework(".", "key.json")


def test_grading_needs_files_and_a_fraction(folder: Path) -> None:
    roofmodel.homework_class("roster.csv", "sheets", "measuring")
    Path("empty").mkdir()
    with pytest.raises(AnswerError, match="empty: has no files with answers"):
        roofmodel.grade_homework("empty", "key.json")
    with pytest.raises(AnswerError, match="absent: no such folder"):
        roofmodel.grade_homework("absent", "key.json")
    with pytest.raises(WorkloadError, match=r"partial is 2; it must be a fraction from 0 to 1"):
        roofmodel.grade_homework("sheets", "key.json", partial=2)


def test_a_guess_of_a_seed_takes_the_time_of_a_slow_hash() -> None:
    assert homework.HARDNESS * 8 * 128 == 64 * 2**20  # bytes of memory for a try


def test_the_commands_write_a_class_and_its_grades(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, err = run(
        ("homework", "class", "roster.csv", "-o", "sheets", "--sheet", "measuring"), monkeypatch, capsys
    )
    assert (status, out.splitlines()[2].split()) == (0, ["1001", "1001.md"])
    assert err == "wrote 3 sheets to sheets\nwrote key.json: the seed and all answers; keep it secret\n"
    for student in ("1001", "1002", "1003"):
        answer(student, f"answers/{student}.md", {"counters.fp32": 3})
    grade = ("homework", "grade", "answers", "--key", "key.json")
    status, out, err = run((*grade, "-o", "grades.csv"), monkeypatch, capsys)
    assert (status, err) == (0, "wrote grades.csv\n")
    assert "1003              8     8      0 1003.md" in out
    assert run((*grade, "--format", "csv"), monkeypatch, capsys)[1].rstrip() == Path("grades.csv").read_text().rstrip()
    status, out, err = run(("homework", "grade", "answers"), monkeypatch, capsys)
    assert status == 2
    assert "--key" in err


def test_a_short_seed_gives_a_note(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("homework", "class", "roster.csv", "-o", "sheets", "--sheet", "measuring", "--seed", "fall26")
    assert "note: --seed has 6 characters" in run(command, monkeypatch, capsys)[2]
    assert written_key()["seed"] == "fall26"
