"""Homework: answers by hand, keys that pass their own check, slips that get their hint."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel import cli
from roofmodel.errors import AnswerError, WorkloadError
from roofmodel.study import homework
from roofmodel.study.homework import Graded, Sheet, near
from roofmodel.study.problem import SYMBOLS, UNITS, Problem, Question
from roofmodel.views import homework as views

STUDENTS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)


def fixed(**chosen: Any) -> Any:
    """A draw that takes what is told, and else the first option."""
    return lambda what, options: chosen.get(what, options[0])


def problem(name: str, **chosen: Any) -> dict[str, float | str]:
    """The answers to a problem, in the units asked."""
    found = homework.PROBLEMS[name](fixed(**chosen))
    return {
        q.id: q.value if isinstance(q.value, str) else pytest.approx(q.value / UNITS[q.unit], rel=1e-4)
        for q in found.questions
    }


def checked(text: str, tmp_path: Path, student: str = "ada", **options: Any) -> dict[str, Graded]:
    """What a check says of a file, by problem and question."""
    path = tmp_path / "answers.yaml"
    path.write_text(text, encoding="utf-8")
    found = homework.check(str(path), student, **options)
    return {f"{p.id}.{graded.question.id}": graded for p, answers in found.problems for graded in answers}


# --- By hand ----------------------------------------------------------------------------------------


def test_a_triad_by_hand() -> None:
    # 50 M elements of 8 bytes, three vectors, 2 FLOPs each, at 2039 GB/s of an A100 with 80 GB
    found = problem("stream", kernel="triad", dtype="fp64", device="a100-sxm-80gb", n=50)
    assert found == {
        "intensity": 1 / 12,  # as the lecture has it
        "time": 1200e6 / 2039e9 * 1e6,
        "rate": 2039 / 12,
    }


def test_where_a_product_is_bound_by_compute_by_hand() -> None:
    # 2 n^3 / (3 n^2 2 B) = n/3 = 312 / 1.555, and of the lecture 2 n^3 / (4 n^2 8 B) = n/16
    found = problem("matmul", kernel="matmul", device="a100-sxm-40gb")
    assert found == {"ridge": 312000 / 1555, "fp16": 602, "fp64": 3211}  # 3328 with 1.5 TB/s


def test_a_stencil_by_hand() -> None:
    found = problem("stencil", dtype="fp32", device="v100-sxm2-32gb", n=500)
    assert found == {"cached": 7 / 8, "uncached": 7 / 32, "time": 500**3 * 8 / 900e9 * 1e3}


def test_a_block_of_gpt2_xl_by_hand() -> None:
    found = problem("block", model="gpt2-xl", batch=2, seq=512)
    tokens, hidden = 2 * 512, 1600
    assert found == {
        "flops": (tokens * 24 * hidden**2 + 2 * 4 * 512**2 * hidden) / 1e9,
        "causal": 2 * 2 * 2 * (512 * 513 // 2) * hidden / 1e9,  # two products of 2 FLOPs, of two prompts
    }


def test_prefill_and_decode_by_hand() -> None:
    found = problem("phases", model="llama-3.1-8b", device="a100-sxm-80gb", batch=4, seq=512)
    d, f, t = 4096, 14336, 4 * 512
    assert found == {
        "prefill": t * d * f / (t * d + d * f + t * f),
        "prefill_bound": "compute",  # above 153
        "decode": 4 * d * f / (4 * d + d * f + 4 * f),
        "decode_bound": "memory",
        "batch": 161,  # 160.7: 1 / (2039/312000 - 1/4096 - 1/14336)
    }


def test_a_kv_cache_by_hand() -> None:
    found = problem("kv", model="llama-3.1-8b", device="a100-sxm-40gb", batch=8, tokens=2048)
    token = 2 * 32 * 8 * 128 * 2  # K and V, layers, heads, elements, fp16
    assert found == {
        "token": token / 1000,
        "batch": token * 8 * 2048 / 1e9,
        "fits": (40 * 2**30 - 2 * 8_030_261_248) // (token * 2048),
    }


def test_a_decode_by_hand() -> None:
    found = problem("decode", model="llama-3.1-8b", device="h100-sxm", batch=16, context=2048)
    weights = 2 * (8_030_261_248 - 128_256 * 4096 + 16 * 4096)  # the head is read, of the embeddings 16 rows
    cache = 16 * 2049 * 131_072
    assert found == {"weights": weights / 1e9, "cache": cache / 1e9, "rate": 16 / ((weights + cache) / 3.35e12)}


def test_counters_by_hand() -> None:
    counts = dict(fadd=100, fmul=200, ffma=300, hadd=10, hmul=20, hfma=400)
    found = problem("counters", **counts, bytes=1000)
    assert found == {"fp32": 0.9, "fp16": 1.66, "intensity": 2.56 / 10}  # 100 + 200 + 600; 20 + 40 + 1600; 10 GB


def test_what_was_achieved_by_hand() -> None:
    # 2 x 4096^3 / 312 TFLOP/s = 440.51 us; half of it was reached: 881.0 us as the sheet says
    found = problem("achieved", device="a100-sxm-80gb", n=4096, share=50)
    assert found == {"bound": 440.509, "rate": 2 * 4096**3 / 881.0e-6 / 1e12, "fraction": 50.001}


# --- Every sheet ------------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(student=STUDENTS, name=st.sampled_from(sorted(homework.SHEETS)), seed=st.text(max_size=5))
def test_a_key_passes_its_own_check(student: str, name: str, seed: str, tmp_path_factory: Any) -> None:
    sheet = homework.sheet(student, name, seed)
    for form in ("md", "yaml"):
        path = tmp_path_factory.mktemp("key") / f"key.{form}"
        document = views.document(sheet, key=True)
        code = document.blocks[-1].text
        path.write_text(document.written("markdown") if form == "md" else code, encoding="utf-8")
        assert homework.check(str(path), student, seed=seed).score == 1


@pytest.fixture(scope="module")
def sheets() -> list[Sheet]:
    return [homework.sheet(f"student {number}") for number in range(6)]


def questions(sheets: list[Sheet]) -> list[tuple[Problem, Question]]:
    return [(each, question) for sheet in sheets for each in sheet.problems for question in each.questions]


def test_the_derivation_gives_what_the_tool_counts(sheets: list[Sheet]) -> None:
    for _, question in questions(sheets):
        names = {name: sympy.Symbol(name, positive=True) for name in question.values}
        found = sympy.sympify(question.formula, locals=names).subs({names[n]: v for n, v in question.values.items()})
        if isinstance(question.value, str):
            assert question.value == ("compute" if found > 0 else "memory")
        else:
            assert near(float(found), question.value, 1e-9), question


def test_no_answer_stands_in_the_sheet(sheets: list[Sheet]) -> None:
    for sheet in sheets:
        document = views.document(sheet)
        assert '"answer"' not in document.written("json")
        assert '"formula"' not in document.written("json")
        shown = set(re.findall(r"[\d.]+", document.written("markdown")))
        keyed = views.document(sheet, key=True).data["problems"]
        for answer in (question["answer"] for each in keyed for question in each["questions"]):
            if isinstance(answer, float) and len(f"{answer:.4g}") > 3:  # 0.5, or 32, may well stand there for another
                assert not {f"{answer:.{digits}g}" for digits in (4, 5, 6)} & shown


def test_every_slip_is_wrong_and_gets_its_hint(sheets: list[Sheet]) -> None:
    seen = set()
    for _, question in questions(sheets):
        for slip in question.slips:
            if not isinstance(question.value, str) and not near(slip.factor, 1, question.tolerance):
                answer = slip.factor * question.value
                assert not near(answer, question.value, question.tolerance)
                assert slip.hint in homework.hint_for(question, answer)
                seen.add(slip.hint)
    assert len(seen) > 40


def test_every_symbol_has_a_meaning(sheets: list[Sheet]) -> None:
    assert {name for _, question in questions(sheets) for name in question.values} == SYMBOLS.keys()


def test_a_sheet_comes_again_and_another_is_another(sheets: list[Sheet]) -> None:
    assert homework.sheet("student 0") == sheets[0]
    made = {sheet.made for sheet in [*sheets, homework.sheet("student 0", seed="x")]}
    assert len(made) == 7


def test_draws_stay_what_they_are() -> None:
    # by coreutils: printf '["s", "ada", "n"]' | b2sum -l 64. Sheets that were handed out must come again, also later
    assert homework.draws("s", "ada")("n", range(1000)) == 0x7BCF89A7754394E8 % 1000


# --- A check ----------------------------------------------------------------------------------------


def halved(sheet: Sheet, of: str, factor: float) -> str:
    """The right answer to a question, times a factor."""
    name, _, which = of.partition(".")
    found = next(q for p, q in questions([sheet]) if (p.id, q.id) == (name, which))
    assert not isinstance(found.value, str)
    return f"answers:\n  {name}:\n    {which}: {factor * found.value / UNITS[found.unit]:.6g}\n"


@pytest.mark.parametrize(
    ("asked", "factor", "hint"),
    [
        ("stream.intensity", 0.5, "a multiply-add is two FLOPs"),
        ("block.flops", 0.5, "a multiply-add is two FLOPs"),
        ("achieved.rate", 0.5, "a multiply-add is two FLOPs"),
        ("kv.batch", 1e9 / 2**30, "this is GiB"),
        ("kv.token", 8, "bits and bytes"),
        ("kv.token", 0.5, "keys and values"),
        ("block.causal", 1.998, "S(S+1)/2"),
        ("stencil.time", 1000, "a power of a thousand"),
        ("stencil.time", 1.3, "made of the size"),
    ],
)
def test_a_wrong_answer_is_told_what_it_looks_like(
    asked: str, factor: float, hint: str, sheets: list[Sheet], tmp_path: Path
) -> None:
    found = checked(halved(sheets[0], asked, factor), tmp_path, "student 0")[asked]
    assert not found.right
    assert found.hint is not None
    assert hint in found.hint


@pytest.mark.parametrize("factor", [0.985, 1, 1.015])
def test_an_answer_within_the_tolerance_is_right(factor: float, sheets: list[Sheet], tmp_path: Path) -> None:
    assert checked(halved(sheets[0], "decode.rate", factor), tmp_path, "student 0")["decode.rate"].right


def test_a_formula_without_the_factor_two_of_hfma_is_recognised(tmp_path: Path) -> None:
    sheet = homework.sheet("ada", "measuring")
    values = next(q.values for p, q in questions([sheet]) if (p.id, q.id) == ("counters", "fp16"))
    wrong = 2 * sum(values.values()) / 1e9  # as a slide has it: twice all instructions
    text = f"sheet: measuring\nanswers: {{counters: {{fp16: {wrong} GFLOP}}}}\n"
    hint = checked(text, tmp_path)["counters.fp16"].hint
    assert hint is not None
    assert "the factor two that many formulas lack" in hint


BAD = [
    ("", "answers.yaml: is empty"),
    ("answers: [1, 2]\n", "answers.yaml:1: answers must be a mapping"),
    ("student: ada\n", "lacks the key 'answers'"),
    ("answers:\n  streem:\n    time: 1\n", "answers.yaml:2: unknown key 'streem'; did you mean 'stream'?"),
    ("answers:\n  stream:\n    tme: 1\n", "answers.yaml:3: unknown key 'tme'; did you mean 'time'?"),
    ("answers:\n  stream:\n    time: 3,5\n", "answers.yaml:3: answers.stream.time is '3,5'; it must be a number in us"),
    ("answers:\n  stream:\n    time: 3 ms\n", "is '3 ms'; it must be a number in us"),
    ("answers:\n  stream:\n    time: nan\n", "is 'nan'"),
    ("answers:\n  stream:\n    rate: 1e308\n", "is '1e308'"),
    ("answers:\n  stream:\n    time: [1]\n", "answers.stream.time must be text"),
    ("answers:\n  stream: !!timestamp x\n", "answers.yaml:2: answers.stream must be a mapping"),
    ("answers:\n  phases:\n    decode_bound: memroy\n", "it must be one of compute, memory"),
    ("student: bob\nanswers:\n", "answers.yaml:1: these are answers of student 'bob', not of 'ada'; see --student"),
    ("sheet: lecture\nanswers:\n", "answers.yaml:1: unknown sheet 'lecture'; did you mean 'lectures'?"),
    ("made: 12345678\nanswers:\n", "answers.yaml:1: the sheet was made as '12345678'"),
    ("answers: {\n", "not YAML"),
    ("# Sheet\n```\nanswers:\n  stream:\n    time: many\n```\n", "answers.yaml:5: answers.stream.time is 'many'"),
]


@pytest.mark.parametrize(("text", "says"), BAD)
def test_bad_answers_are_told_where_and_what(text: str, says: str, tmp_path: Path) -> None:
    if text.endswith("answers:\n"):
        text = text.replace("answers:\n", "answers: {}\n")
    with pytest.raises(AnswerError) as raised:
        checked(text, tmp_path)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("student", "name"), [("", "lectures"), ("a\nb", "lectures"), ("x" * 101, "lectures"), ("a", "b")]
)
def test_a_sheet_that_cannot_be_is_refused(student: str, name: str) -> None:
    with pytest.raises(WorkloadError, match=r"--student is|--sheet: unknown sheet 'b'; known: lectures"):
        homework.sheet(student, name)


# --- The commands -----------------------------------------------------------------------------------


def roof(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["roof", "homework", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return (int(ended.value.code or 0), *capsys.readouterr())


def test_a_sheet_is_written_filled_in_and_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sheet, command = str(tmp_path / "sheet.md"), ("--student", "ada", "--seed", "secret")
    status, out, err = roof(
        capsys, monkeypatch, "new", *command, "--sheet", "rooflines", "-o", sheet, "--format", "json"
    )
    assert (status, err) == (0, f"wrote {sheet}\n")
    assert [each["id"] for each in json.loads(out)["problems"]] == list(homework.SHEETS["rooflines"])
    text = Path(sheet).read_text(encoding="utf-8")
    Path(sheet).write_text(text.replace("cached:", "cached: 1e9", 1).replace("ridge:", "ridge: 1 FLOP/B"), "utf-8")
    status, out, err = roof(capsys, monkeypatch, "check", sheet, *command, "--format", "json")
    assert (status, err) == (0, "")  # wrong answers are no error
    found = json.loads(out)
    assert (found["schema"], found["score"], found["asked"]) == ("roofmodel.homework-check/1", 0, 12)
    assert found["problems"][1]["questions"][0]["answer"] == 1
    status, out, err = roof(capsys, monkeypatch, "check", sheet, "--student", "ada")
    assert status == 2
    assert f"error: {sheet}:" in err
    assert "another --seed" in err


def test_the_key_is_printed_for_who_has_the_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOF_HOMEWORK_SEED", "secret")
    status, out, _ = roof(capsys, monkeypatch, "new", "--student", "ada", "--sheet", "measuring", "--key")
    assert status == 0
    assert "4F + 2A + 2M = 4 ·" in out
    assert f'made: "{homework.sheet("ada", "measuring", "secret").made}"' in out


def test_answers_that_are_not_there_are_told_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, err = roof(capsys, monkeypatch, "check", "absent.md", "--student", "ada")
    assert (status, out) == (2, "")
    assert err == "error: absent.md: no such file; it should be the sheet with its answers\n"
