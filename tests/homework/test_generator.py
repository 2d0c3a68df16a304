"""Problems in YAML: formulas, texts with quantities, and errors with file and line."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.errors import AnswerError
from roofmodel.homework import formulas, homework
from roofmodel.homework.answer import document
from roofmodel.homework.generator import packaged
from roofmodel.report.markdown import markdown

VALID = """\
symbols: {n: the size, P: the peak}
problems:
  mine:
    title: Size {n:,}
    given: "{device} has {P:FLOP/s}, {Y:GiB}; t = {t:us} us."
    draws: {n: 1000:9000:1000, device: [a100]}
    quantities: {P: "gemm_peak(device, 'fp16')", Y: memory(device), t: n/10**6}
    questions:
      time:
        text: How long for {n}?
        unit: us
        answer: 2*n**3/P
        mistakes: [one_flop, {n**3: divide by {{P}}}]
"""


def made(text: str, tmp_path: Path, student: str = "ada") -> homework.Sheet:
    (tmp_path / "mine.yaml").write_text(text)
    return homework.sheet(student, str(tmp_path / "mine.yaml"))


def test_a_file_of_problems_gives_a_sheet(tmp_path: Path) -> None:
    text = VALID.replace("divide by {{P}}", "divide by the peak")
    sheet = made(text, tmp_path)
    (problem,) = sheet.problems
    n = problem.questions[0].values["n"]
    assert (sheet.name, problem.title) == ("mine", f"Size {n // 1000} 000")
    assert problem.given == f"NVIDIA A100 SXM4 80 GB has 312 TFLOP/s, 80 GiB; t = {n} us."
    (question,) = problem.questions
    assert question.value == pytest.approx(2 * n**3 / 312e12)
    assert [mistake.result for mistake in question.mistakes] == pytest.approx([n**3 / 312e12, n**3])
    assert {made(text, tmp_path, str(number)).problems[0].title for number in range(40)} == {
        f"Size {thousands} 000" for thousands in range(1, 10)
    }


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("answer: 2*n**3/P", "answer: 2*m**3/P", r"mine.yaml:12: .*unknown name 'm'"),
        ("answer: 2*n**3/P", "answer: 2*n**/P", r"mine.yaml:12: .*is not a formula"),
        ("answer: 2*n**3/P", "answer: n.real", r"mine.yaml:12: .*'n.real' is not allowed"),
        ("answer: 2*n**3/P", "answer: __import__('os').system('x')", r"mine.yaml:12: .*is not allowed"),
        ("answer: 2*n**3/P", "answer: bandwidth(device)", r"mine.yaml:12: .*unknown function 'bandwidth'"),
        ("answer: 2*n**3/P", "answer: n/(P - P)", r"mine.yaml:12: .*divides by zero"),
        ("answer: 2*n**3/P", "answer: 9**9**9", r"mine.yaml:12: .*too large"),
        ("answer: 2*n**3/P", "answer: 1e308*1e308", r"mine.yaml:12: .*has no value"),
        ("t: n/10**6", "t: n*1e308*1e308", r"mine.yaml:7: .*quantities.t: .* has no value"),
        ("{n**3:", "{1e308*n*n:", r"mine.yaml:13: .*has no value"),
        ("answer: 2*n**3/P", "answer: n*Y", r"mine.yaml:12: 'Y' has no meaning; state it under 'symbols'"),
        ("answer: 2*n**3/P", "answer: ceiling(1e308*1e308)", r"mine.yaml:12: .*questions.time.answer: .*has no value"),
        ("answer: 2*n**3/P", "answer: 1e305*n/n", r"mine.yaml:12: .*questions.time.answer has no value in us"),
        ("t: n/10**6", "t: n/10**6*1e308*1e308", r"mine.yaml:7: problems.mine.quantities.t: .*has no value"),
        ("{n**3:", "{n**3*1e306:", r"mine.yaml:13: .*has no value"),
        ("mistakes:", "synonyms: {disk: [SSD]}\n        mistakes:", r"mine.yaml:13: unknown key 'disk'"),
        ("unit: us", "united: us", r"mine.yaml:11: unknown key 'united'; did you mean 'unit'"),
        ("one_flop", "one_flops", r"mine.yaml:13: unknown mistake 'one_flops'; did you mean 'one_flop'"),
        ("1000:9000:1000", "9000:1000", r"mine.yaml:6: .*a range has 1 to"),
        ("1000:9000:1000", "many", r"mine.yaml:6: .*give a list, or a range such as 256:1024:64"),
        ("[a100]", "[a101]", r"mine.yaml:7: .*unknown device 'a101'"),
        ("[a100]", "[]", r"mine.yaml:6: .*has no values"),
        ("'fp16'", "'fp17'", r"mine.yaml:7: .*has no pipe for 'fp17'"),
        ("{n:,}", "{m:,}", r"mine.yaml:4: .*unknown name 'm' in braces"),
        ("{n:,}", "{n.real}", r"mine.yaml:4: .*unknown name 'n.real' in braces"),
        ("symbols:", "sheet: [other]\nsymbols:", r"mine.yaml:1: unknown problem 'other'"),
        ("title: Size {n:,}", "titel: x", r"mine.yaml:4: unknown key 'titel'"),
    ],
)  # fmt: skip
def test_an_invalid_file_of_problems_is_refused_with_its_line(
    before: str, after: str, message: str, tmp_path: Path
) -> None:
    assert before in VALID
    with pytest.raises(AnswerError, match=message):
        made(VALID.replace("divide by {{P}}", "no").replace(before, after), tmp_path)


def test_a_question_lists_further_names_of_a_ceiling(tmp_path: Path) -> None:
    text = VALID.replace("divide by {{P}}", "no").replace("unit: us", "unit: compute or memory")
    text = text.replace("mistakes: [one_flop, {n**3: no}]", "synonyms: {compute: [the ALUs of the SM]}")
    sheet = made(text, tmp_path)
    answers = {"mine": {"time": "The ALUs of the SM."}}
    assert homework.check(answers, "ada", str(tmp_path / "mine.yaml")).score == 1
    assert sheet.problems[0].questions[0].synonyms == {"compute": ("the ALUs of the SM",)}


NAMES: Any = {"a": 3, "b": Fraction(1, 3), "c": 2.5}
LEAVES = st.sampled_from(["a", "b", "c", "2", "0.5", "10"])
SUMS = st.recursive(LEAVES, lambda inner: st.builds("({}{}{})".format, inner, st.sampled_from("+-*"), inner))


@given(formula=SUMS)
def test_a_formula_has_the_value_of_exact_arithmetic(formula: str) -> None:
    exact = {"a": Fraction(3), "b": Fraction(1, 3), "c": Fraction(5, 2), "half": Fraction(1, 2)}
    assert formulas.evaluate(formula, NAMES | {"c": Fraction(5, 2)}) == eval(formula.replace("0.5", "half"), exact)


@given(text=st.text(max_size=40))
def test_any_text_is_a_formula_or_refused(text: str) -> None:
    with suppress(ValueError):
        formulas.evaluate(text, NAMES)


def test_a_quotient_is_exact_before_it_is_rounded_up() -> None:
    assert formulas.evaluate("ceiling(3*b*10**30/(10**30))", {"b": Fraction(1, 3)}) == 1
    assert formulas.evaluate("floor(49*(1/49))", {}) == 1  # 0.9999999999999999 in floats


def test_a_sheet_of_own_problems_does_not_send_students_to_the_file_with_the_formulas(tmp_path: Path) -> None:
    text = VALID.replace("divide by {{P}}", "divide by the peak")
    assert "The lecturer checks them." in markdown(document(made(text, tmp_path)))


def test_every_problem_belongs_to_a_sheet() -> None:
    used = {id for ids in homework.SHEETS.values() for id in ids}
    assert used == packaged().problems.keys()
