"""Which notes of a result are shown: all warnings, then those on given options and those that change the answer."""

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from rich.text import Text as RichText

import roofmodel
from roofmodel.errors import AnswerNote, Message, Option, Text, WarningNote
from roofmodel.report.base import NoteChoice, RenderedResult, note_choice
from tests.command_line import Roof, run

V3 = ("estimate", "deepseek-v3", "--hw", "h100")


@pytest.fixture
def roof(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Roof:
    return lambda *arguments: run(arguments, monkeypatch, capsys)


class Result(RenderedResult):
    def __init__(self, *notes: Text, warnings: tuple[str, ...] = ()) -> None:
        self.found, self.doubts = notes, warnings

    def _messages(self) -> Iterable[Text]:
        return self.found

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.doubts

    def __rich__(self) -> Any:
        return RichText("result")


FACT, OTHER, ON_TP = "a fact", "another fact", Message("see ", Option("tp"))
BORROWED, ON_DTYPE = AnswerNote("borrowed"), AnswerNote("try ", Option("dtype", "fp8"))


def test_notes_that_change_the_answer_come_first_and_the_rest_is_counted() -> None:
    shown = Result(FACT, ON_TP, BORROWED, ON_DTYPE, OTHER).remarks()
    assert shown == ['note: try dtype="fp8"', "note: borrowed", "note: a fact", "2 more: .notes"]


def test_a_note_on_a_given_option_comes_before_all_others() -> None:
    with note_choice(NoteChoice(is_given=lambda option: option == "tp")):
        assert Result(FACT, BORROWED, ON_DTYPE, ON_TP).remarks()[0] == "note: see tp"


def test_all_warnings_are_shown_before_the_notes() -> None:
    warnings = [WarningNote(str(number)) for number in range(4)]
    assert Result(FACT, OTHER, *warnings, ON_TP, BORROWED, warnings=("of the file",)).remarks() == [
        *(f"warning: {number}" for number in range(4)), "warning: of the file",
        "note: borrowed", "note: a fact", "note: another fact", "1 more: .notes",
    ]  # fmt: skip


def test_nothing_is_counted_where_all_notes_are_shown() -> None:
    notes = (FACT, OTHER, ON_TP, BORROWED)
    assert not any("more" in line for line in Result(*notes[:3]).remarks())
    with note_choice(NoteChoice(every=True)):
        assert Result(*notes).remarks() == ["note: borrowed", "note: a fact", "note: another fact", "note: see tp"]


def test_notes_on_how_a_result_is_shown_count_as_its_own() -> None:
    assert Result(FACT, OTHER, BORROWED).remarks(ON_DTYPE)[-1] == "1 more: .notes"


def test_a_notebook_shows_the_same_lines() -> None:
    plain = Result(FACT, OTHER, ON_TP, BORROWED)._repr_mimebundle_()["text/plain"]
    assert plain.split("\n")[:5] == ["result", "note: borrowed", "note: a fact", "note: another fact", "1 more: .notes"]


def test_an_estimate_of_deepseek_v3_prints_three_notes_and_json_has_all(roof: Roof) -> None:
    done = roof(*V3, "--format", "json")
    notes = json.loads(done.out)["notes"]
    *shown, last = done.err.splitlines()
    assert [line.partition(":")[0] for line in shown] == ["warning", "note", "note", "note"]
    assert shown[0].startswith("warning: the workload does not fit")
    assert last == f"{len(notes) - 4} more: --notes"
    every = roof(*V3, "--notes").err.splitlines()
    assert every[:4] == shown
    assert sorted(line.removeprefix("note: ") for line in every) == sorted(notes)
    assert len(roofmodel.estimate("deepseek-v3", "h100").notes) == len(notes)


def test_a_note_on_an_option_that_the_command_line_gives_is_the_first_note(roof: Roof) -> None:
    assert roof(*V3, "--routing", "uniform").err.splitlines()[1].startswith("note: --routing uniform: ")
    assert "--routing" not in roof(*V3).err


def test_the_choice_ends_with_the_command(roof: Roof) -> None:
    before = roofmodel.estimate("deepseek-v3", "h100").remarks()
    roof(*V3, "--notes")
    assert roofmodel.estimate("deepseek-v3", "h100").remarks() == before


def test_a_file_has_all_notes(roof: Roof, tmp_path: Any) -> None:
    roof(*V3, "-o", str(tmp_path / "v3.md"), "-o", str(tmp_path / "v3.html"))
    notes = roofmodel.estimate("deepseek-v3", "h100").notes
    for form in ("md", "html"):
        text = re.sub(r"\W+", " ", (tmp_path / f"v3.{form}").read_text(encoding="utf-8"))
        assert all(re.sub(r"\W+", " ", note)[-30:] in text for note in notes if "--" not in note and "=" not in note)


@pytest.mark.parametrize("command", ["estimate", "sweep", "plan", "explain", "crossover", "plot",
                                     "ncu-command", "measure", "models show"])  # fmt: skip
def test_a_command_that_prints_notes_has_the_option(command: str, roof: Roof) -> None:
    assert "--notes" in roof(*command.split(), "--help").out


@pytest.mark.parametrize("command", ["kernels", "trace", "jitter", "validate", "count", "explore", "hw check"])
def test_a_command_whose_result_has_only_warnings_has_no_such_option(command: str, roof: Roof) -> None:
    assert "--notes" not in roof(*command.split(), "--help").out
