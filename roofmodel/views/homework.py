"""Homework as documents: the sheet with its blanks, the lecturer's key, and what a check found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from roofmodel import units
from roofmodel.study.homework.homework import Graded, Report, Sheet
from roofmodel.study.homework.problem import SYMBOLS, UNITS, Problem, Question
from roofmodel.views.kit import formula
from roofmodel.views.kit.document import (
    Block,
    Code,
    Document,
    Equation,
    Equations,
    Form,
    Heading,
    Paragraph,
    Table,
    said,
)

DIGITS = 5  # more than any tolerance asks for


def document(sheet: Sheet, key: bool = False) -> Document:
    """The sheet; with `key` the answers and how they are found, in place of the blanks."""
    blocks: list[Block] = [
        Heading(f"{'Key' if key else 'Problems'}: {sheet.name}, {sheet.student}", 1),
        Paragraph(
            "A multiply-add is two FLOPs; GB and GB/s are powers of 1000, KiB and GiB of 1024; peaks are dense. "
            "Bytes are those that have to cross DRAM: each array once, unless it says otherwise."
        ),
    ]
    for number, problem in enumerate(sheet.problems, 1):
        blocks += [Heading(f"{number}. {problem.title}"), Paragraph(problem.given)]
        blocks += _solutions(problem) if key else [_questions(problem)]
    blocks.append(Heading("The answers" if key else "Your answers"))
    if key:
        blocks.append(Paragraph(f"In formulas, {_legend(sheet)}."))
    else:
        command = f"roof homework check FILE --student {json.dumps(sheet.student, ensure_ascii=False)}"
        checks = "the lecturer checks them" if sheet.seeded else f"then {command} says which are right"
        blocks.append(Paragraph(f"Numbers behind the colons, in the unit named; {checks}."))
    blocks.append(Code("\n".join(_answers(sheet, filled=key))))
    return Document(blocks, _data(sheet, key))


def _questions(problem: Problem) -> Table:
    return Table(
        ("blank", "what is asked", "unit", "|within"),
        [(q.id, q.text, q.unit, f"{q.tolerance:.0%}" if q.tolerance else "exact") for q in problem.questions],
    )


def _answers(sheet: Sheet, filled: bool) -> Iterator[str]:
    """The file of answers in YAML: its blanks empty, or filled in rightly."""
    yield f"student: {json.dumps(sheet.student, ensure_ascii=False)}"
    yield f"sheet: {sheet.name}"
    yield f'made: "{sheet.made}"'
    yield "answers:"
    for problem in sheet.problems:
        yield f"  {problem.id}:"
        for question in problem.questions:
            yield f"    {question.id}: {_in_unit(question, question.value) if filled else ''}  # {question.unit}"


# --- The key ----------------------------------------------------------------------------------------


def _solutions(problem: Problem) -> Iterator[Block]:
    for question in problem.questions:
        yield Paragraph(f"{question.id}: {question.text}")
        yield Equations([_derivation(question)])


def _derivation(question: Question) -> Equation:
    """The formula, with numbers, and the answer; where that is a word, how far the intensity is above the ridge."""
    expression, values = _expression(question)
    if isinstance(question.value, str):
        answer = said(f"{units.significant(float(expression.subs(values)), DIGITS)} FLOP/B, so {question.value}")
    else:
        answer = said(_in_unit(question, question.value), question.unit)
    symbols = Form(formula.text(expression), formula.latex(expression))
    numbers = Form(formula.text(expression, values), formula.latex(expression, values))
    return Equation(question.id, [symbols, numbers, answer])


def _legend(sheet: Sheet) -> str:
    used = dict.fromkeys(name for problem in sheet.problems for q in problem.questions for name in q.values)
    return ", ".join(f"{name} is {SYMBOLS[name]}" for name in used)


def _expression(question: Question) -> tuple[Any, Mapping[Any, Any]]:
    """The formula for SymPy, and the value of each of its symbols."""
    import sympy

    names = {name: sympy.Symbol(name, positive=True) for name in question.values}
    return sympy.sympify(question.formula, locals=names), {names[name]: n for name, n in question.values.items()}


def _in_unit(question: Question, value: float | str) -> str:
    """An answer as a blank takes it."""
    return value if isinstance(value, str) else units.significant(value / UNITS[question.unit], DIGITS)


def _data(sheet: Sheet, key: bool) -> dict[str, Any]:
    return {
        "schema": "roofmodel.homework/1",
        "sheet": sheet.name,
        "student": sheet.student,
        "made": sheet.made,
        "problems": [
            {
                "id": problem.id,
                "title": problem.title,
                "given": problem.given,
                "questions": [_question(question, key) for question in problem.questions],
            }
            for problem in sheet.problems
        ],
        **({} if key else {"answers": {p.id: {q.id: None for q in p.questions} for p in sheet.problems}}),
    }


def _question(question: Question, key: bool) -> dict[str, Any]:
    asked = {"id": question.id, "text": question.text, "unit": question.unit, "tolerance": question.tolerance}
    if not key:
        return asked
    value = question.value if isinstance(question.value, str) else question.value / UNITS[question.unit]
    return {**asked, "answer": value, "formula": question.formula, "values": dict(question.values)}


# --- A check ----------------------------------------------------------------------------------------


def report(found: Report) -> Document:
    """Which answers are right, and what the others look like; never what is right."""
    graded, right = found.graded, sum(each.right for each in found.graded)
    rows = [
        (
            f"{problem.id}.{each.question.id}",
            "" if each.answer is None else _in_unit(each.question, each.answer),
            each.question.unit,
            _verdict(each),
        )
        for problem, answers in found.problems
        for each in answers
    ]
    hints: list[Block] = [
        Paragraph(f"{problem.id}.{each.question.id}: {each.hint}")
        for problem, answers in found.problems
        for each in answers
        if each.hint
    ]
    return Document(
        [
            Heading(f"{found.sheet.name}, {found.sheet.student}: {right} of {len(graded)} right", 1),
            Table(("answer", "|given", "in", "is"), rows),
            *([Heading("hints")] if hints else []),
            *hints,
        ],
        {
            "schema": "roofmodel.homework-check/1",
            "sheet": found.sheet.name,
            "student": found.sheet.student,
            "score": found.score,
            "right": right,
            "asked": len(graded),
            "problems": [
                {
                    "id": problem.id,
                    "right": all(each.right for each in answers),
                    "questions": [
                        {
                            "id": each.question.id,
                            "answer": each.answer
                            if each.answer is None or isinstance(each.answer, str)
                            else each.answer / UNITS[each.question.unit],
                            "right": each.right,
                            "hint": each.hint,
                        }
                        for each in answers
                    ],
                }
                for problem, answers in found.problems
            ],
        },
    )


def _verdict(graded: Graded) -> str:
    if not graded.understood:
        return "no such word" if isinstance(graded.question.value, str) else "not a number"
    return "right" if graded.right else "blank" if graded.answer is None else "wrong"
