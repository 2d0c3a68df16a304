"""The answers of `roof homework`: a sheet, its key, and the check of its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from roofmodel.errors import Command
from roofmodel.homework.homework import SHEETS, Graded, GradedSheet, Sheet
from roofmodel.homework.problem import Problem, Question
from roofmodel.numbers import units
from roofmodel.report import formula
from roofmodel.report.document import (
    Block,
    Code,
    Document,
    Equation,
    Equations,
    Form,
    Heading,
    Paragraph,
    Rows,
    TextTable,
)
from roofmodel.report.latex import text_form
from roofmodel.report.table import COUNT, Column, Table

DIGITS, EXACT_DIGITS = 5, 15  # more than any tolerance needs; of an exact answer, what a float has


def document(sheet: Sheet, key: bool = False) -> Document:
    """The sheet; with `key` the answers and their derivations instead of the blanks."""
    blocks: list[Block] = [
        Paragraph(
            "A multiply-add is two FLOPs. GB and GB/s are powers of 1000, KiB and GiB powers of 1024. Peaks are dense. "
            "Bytes are compulsory DRAM traffic: each array moves once, unless stated otherwise."
        ),
    ]
    for number, problem in enumerate(sheet.problems, 1):
        blocks += [Heading(f"{number}. {problem.title}"), Paragraph(problem.given)]
        blocks += _solutions(problem) if key else [_questions(problem)]
    blocks.append(Heading("Answers" if key else "Your answers"))
    if key:
        blocks.append(Paragraph(f"Symbols: {_legend(sheet)}."))
    else:
        student = json.dumps(sheet.student, ensure_ascii=False)
        command = Command(
            f"roof homework check FILE --student {student}", f'roofmodel.check_homework("FILE", {student})'
        )
        by_lecturer = sheet.seeded or sheet.name not in SHEETS  # a file of own problems has the formulas of the answers
        checks = "The lecturer checks them" if by_lecturer else f"Check them with {command}"
        blocks.append(Paragraph(f"Write each number after its colon, in the stated unit. {checks}."))
        blocks.append(Paragraph("Hand in a text file with this list. PDF and Word files cannot be graded."))
    blocks.append(Code("\n".join(_answers(sheet, filled=key))))
    title = f"{'Key' if key else 'Problems'}: {sheet.name}, {sheet.student}"
    data = partial(_data, sheet, key)
    rows = [{"problem": each["id"], **question} for each in data()["problems"] for question in each["questions"]]
    return Document(title, blocks, data, lambda: Rows(QUESTIONS if key else QUESTIONS.without(*KEY_COLUMNS), rows))


KEY_COLUMNS = ("answer", "formula")
QUESTIONS = Table(
    "questions",
    [
        Column("problem", meaning="the problem"),
        Column("question", value="id", meaning="the question, as the answers name it"),
        Column("text", meaning="what is asked"),
        Column("unit", meaning="the unit of the answer"),
        Column("tolerance", meaning="the accepted relative error; 0 for an exact answer"),
        Column("answer", meaning="the right answer"),
        Column("formula", meaning="its formula"),
    ],
)


def _questions(problem: Problem) -> TextTable:
    return TextTable(
        ("blank", "question", "unit", "|tolerance"),
        [(q.id, q.text, q.unit, tolerance(q)) for q in problem.questions],
    )


def tolerance(question: Question) -> str:
    """The accepted relative error, or `exact`."""
    return f"{units.significant(question.tolerance * 100)}%" if question.tolerance else "exact"


def _answers(sheet: Sheet, filled: bool) -> Iterator[str]:
    """The YAML of the answers, with blanks or with the right values."""
    yield f"student: {json.dumps(sheet.student, ensure_ascii=False)}"
    yield f"sheet: {sheet.name}"
    yield f'made: "{sheet.fingerprint}"'
    yield "answers:"
    for problem in sheet.problems:
        yield f"  {problem.id}:"
        for question in problem.questions:
            yield f"    {question.id}: {in_unit(question, question.value) if filled else ''}  # {question.unit}"


# --- The key ----------------------------------------------------------------------------------------


def _solutions(problem: Problem) -> Iterator[Block]:
    for question in problem.questions:
        yield Paragraph(f"{question.id}: {question.text}")
        yield Equations([derivation(question)])
    if problem.tool:
        yield Paragraph(f"With roofmodel: {problem.tool}")


def derivation(question: Question) -> Equation:
    """The formula in symbols, with numbers, and the answer; for a ceiling, the intensity minus the ridge point."""
    expression = question.expression
    values = {each: _number(question.values[each.name]) for each in expression.free_symbols}
    if isinstance(question.value, str):
        difference = units.significant(float(expression.subs(values)), DIGITS)
        answer = text_form(f"{difference} FLOP/B relative to the ridge point, so {question.value}")
    else:
        answer = text_form(in_unit(question, question.value), question.unit)
    symbols = Form(formula.text(expression), formula.latex(expression))
    numbers = Form(formula.text(expression, values), formula.latex(expression, values))
    return Equation(question.id, [symbols, numbers, answer])


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, Fraction) else value


def _legend(sheet: Sheet) -> str:
    used = [each for problem in sheet.problems for question in problem.questions for each in question.used.items()]
    return ", ".join(f"{name} is {meaning}" for name, meaning in dict.fromkeys(used))


def in_unit(question: Question, value: float | str) -> str:
    """An answer in the unit of the question."""
    if isinstance(value, str):
        return value
    return units.significant(question.in_unit(value), DIGITS if question.tolerance else EXACT_DIGITS)


def _data(sheet: Sheet, key: bool) -> dict[str, Any]:
    return {
        "schema": "roofmodel.homework/1",
        "sheet": sheet.name,
        "student": sheet.student,
        "made": sheet.fingerprint,
        "problems": [
            {
                "id": problem.id,
                "title": problem.title,
                "given": problem.given,
                "questions": [_question(question, key) for question in problem.questions],
                **({"tool": problem.tool} if key and problem.tool else {}),
            }
            for problem in sheet.problems
        ],
        **({} if key else {"answers": {p.id: {q.id: None for q in p.questions} for p in sheet.problems}}),
    }


def answers_in_unit(sheet: Sheet) -> dict[str, dict[str, float | str]]:
    """The right answers by problem and question, in the units of the questions."""
    return {
        problem.id: {q.id: q.value if isinstance(q.value, str) else q.in_unit(q.value) for q in problem.questions}
        for problem in sheet.problems
    }


def _question(question: Question, key: bool) -> dict[str, Any]:
    fields = {"id": question.id, "text": question.text, "unit": question.unit, "tolerance": question.tolerance}
    if not key:
        return fields
    value = question.value if isinstance(question.value, str) else question.in_unit(question.value)
    values = {name: _number(each) for name, each in question.values.items()}
    return {**fields, "answer": value, "formula": question.formula, "values": values}


# --- A check ----------------------------------------------------------------------------------------


def report(graded_sheet: GradedSheet) -> Document:
    """The graded answers and the hints for wrong ones, without the right answers."""
    graded, right = graded_sheet.graded, sum(each.right for each in graded_sheet.graded)
    rows = [
        {"question": f"{problem.id}.{each.question.id}", "graded": each}
        for problem, answers in graded_sheet.problems
        for each in answers
    ]
    answered = Rows(ANSWERS, rows)
    hints: list[Block] = [
        Paragraph(f"{problem.id}.{each.question.id}: {each.hint}")
        for problem, answers in graded_sheet.problems
        for each in answers
        if each.hint
    ]
    return Document(
        f"{graded_sheet.sheet.name}, {graded_sheet.sheet.student}: {right} of {len(graded)} right",
        [
            answered,
            *([Heading("Hints")] if hints else []),
            *hints,
        ],
        lambda: {
            "schema": "roofmodel.homework-check/1",
            "sheet": graded_sheet.sheet.name,
            "student": graded_sheet.sheet.student,
            "score": graded_sheet.score,
            "right": right,
            "asked": len(graded),
            "problems": [
                {
                    "id": problem.id,
                    "right": all(each.right for each in answers),
                    "questions": [
                        {
                            "id": each.question.id,
                            "answer": _answer(each),
                            "right": each.right,
                            "hint": each.hint,
                        }
                        for each in answers
                    ],
                }
                for problem, answers in graded_sheet.problems
            ],
        },
        lambda: answered,
    )


def _answer(graded: Graded) -> float | str | None:
    answer = graded.answer
    return answer if answer is None or isinstance(answer, str) else graded.question.in_unit(answer)


def _written(row: dict[str, Any]) -> str:
    graded: Graded = row["graded"]
    return "" if graded.answer is None else in_unit(graded.question, graded.answer)


ANSWERS = Table(
    "answers",
    [
        Column("question", "question", wrap=True, meaning="the question, as `problem.question`"),
        Column(
            "answer", "answer", COUNT, value=lambda row: _answer(row["graded"]), text=_written, wrap=True,
            meaning="the answer in the unit; empty without one",
        ),
        Column("unit", "unit", value="graded.question.unit", wrap=True, meaning="the unit of the answer"),
        Column(
            "result", "result", value=lambda row: _verdict(row["graded"]), wrap=True,
            meaning="`right`, `wrong`, `blank`, or `unread` if its meaning is not clear",
        ),
        Column("hint", value="graded.hint", meaning="the likely mistake; empty without one"),
    ],
)  # fmt: skip


def _verdict(graded: Graded) -> str:
    if not graded.understood:
        return "unread"
    return "right" if graded.right else "blank" if graded.answer is None else "wrong"


# --- Practice ---------------------------------------------------------------------------------------


class Attempt(NamedTuple):
    """The first answer to a question."""

    question: str  # as `problem.question`
    graded: Graded


def practice_report(name: str, attempts: Sequence[Attempt]) -> Document:
    """The first answers of a practice, and how many were right."""
    right = sum(each.graded.right for each in attempts)
    rows = Rows(ANSWERS, [{"question": each.question, "graded": each.graded} for each in attempts])
    title = f"{name}: {right} of {units.count(len(attempts), 'question')} right at the first try"

    def data() -> dict[str, Any]:
        return {
            "schema": "roofmodel.homework-practice/1", "sheet": name, "right": right, "asked": len(attempts),
            "answers": ANSWERS.records(rows.rows),
        }  # fmt: skip

    return Document(title, [rows] if attempts else [], data, lambda: rows)
